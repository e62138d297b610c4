"""The page of a dataset: its first rows, images shown."""
import pytest

import models
import visits
from browser import inspect


@pytest.mark.parametrize("name", visits.DATASETS)
def test_looks(browser, srv, name):
    inspect(browser, f"http://127.0.0.1:{srv.port}{visits.DATASETS[name]}", name)


def test_images(see):
    with see(visits.DATASETS["dataset-pictures"]) as page:
        assert page.count("main img") >= 5
        page.evaluate("() => document.querySelectorAll('main img').forEach(i => { i.loading = 'eager'; })")
        page.wait("() => [...document.querySelectorAll('main img')].every(i => i.naturalWidth === 48)")
        assert all(page.all("main img", "alt")), "each has words in its place"


def test_texts(see):
    with see(visits.DATASETS["dataset-texts"], script=False) as page:
        said = page.one("main")
        assert "<script>alert(1)</script>" in said and page.count("main script") == 0
        assert "row 0" in said and "x" * 2000 not in said
        for column in ("id", "text", "score", "tags", "none"):
            assert column in said


def shown_rows(page):
    return [int(n) for n in page.all("#rows tr[data-row]", "data-row")]


def test_columns_have_types(see):
    with see(visits.DATASETS["dataset-texts"]) as page:
        heads = page.all("#rows th[data-type] bdi")
        assert heads == ["id", "text", "score", "tags", "none"]
        assert len(set(page.all("#rows th[data-type]", "data-type"))) > 2


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_rows_by_their_number(see, script):
    """The field leads to a row; links lead to the rows before and after. The address leads to the same rows."""
    with see(visits.DATASETS["dataset-texts"], script=script) as page:
        first = shown_rows(page)
        assert first[0] == 0 and int(page.one("#rows", "data-total")) == 500
        page.act("fill", "#row input[name=row]", "321")
        if script:
            page.press("Enter")
            page.wait("() => document.querySelector('#rows tr[data-row]').dataset.row === '321'")
        else:
            page.go("press", "#row input[name=row]", "Enter")
        assert shown_rows(page) == [321 + i for i in first] and "row 321" in page.one("#rows")
        assert "row=321" in page.path()
        page.click("a[rel=next]")
        page.wait("n => document.querySelector('#rows tr[data-row]').dataset.row === n", str(321 + len(first)))
        page.click("a[rel=prev]")
        page.wait("() => document.querySelector('#rows tr[data-row]').dataset.row === '321'")


def test_a_row_past_the_end(see):
    """The page says so, and the field for another number stays."""
    with see(visits.DATASETS["dataset-texts"] + "?split=train&row=500") as page:
        assert shown_rows(page) == [] and page.one("#reason") == "there is no row 500; rows are 0 to 499"
        page.act("fill", "#row input[name=row]", "499")
        page.press("Enter")
        page.wait("() => document.querySelector('#rows tr[data-row]')?.dataset.row === '499'")
        assert page.count("#reason") == 0


def test_the_card(see):
    """The README, without its front matter."""
    with see(visits.DATASETS["dataset-texts"]) as page:
        assert page.all("#card h2") == ["Texts"] and page.all("#card p") == ["Rows of text."]
        page.click("a[href='#card']")


def test_copy(see):
    with see(visits.DATASETS["dataset-texts"]) as page:
        for kind in page.all("pre[data-command]", "data-command"):
            page.click(f"button[data-copy={kind}]")
            page.wait("() => /copied/i.test(document.querySelector('[role=status]').textContent)")
            assert page.evaluate("() => navigator.clipboard.readText()") == page.one(f"pre[data-command={kind}]")


def test_by_keyboard_alone(see):
    with see(visits.DATASETS["dataset-texts"]) as page:
        page.tab_to("#splits a")
        page.tab_to("#row input[name=row]")
        page.act("keyboard.press", "Control+A")
        page.act("keyboard.type", "77")
        page.press("Enter")
        page.wait("() => document.querySelector('#rows tr[data-row]').dataset.row === '77'")
        page.tab_to("a[rel=next]")
