"""The list of models and datasets."""
import math

import pytest

import models
import visits
from browser import inspect

COLUMNS = ["name", "parameters", "bytes", "format", "updated", "state"]
LARGE = {models.LLAMA: models.llama_tensors(), models.MOE: models.moe_tensors()}


def listed(page):
    return page.all("#models tr[data-model]", "data-model")


def cells(page, column, attribute="data-value"):
    return page.all(f"#models tr[data-model] [data-col={column}]", attribute)


@pytest.mark.parametrize("name", visits.INDEX)
def test_looks(browser, srv, name):
    inspect(browser, f"http://127.0.0.1:{srv.port}{visits.INDEX[name]}", name)


def test_every_model_and_dataset_is_listed_with_its_figures(srv, see):
    for script in (True, False):
        with see("/", script=script) as page:
            assert set(listed(page)) >= set(srv.ids())
            assert sorted(page.all("#datasets tr[data-dataset]", "data-dataset")) == [models.PICTURES, models.TEXTS]
            for id, tensors in LARGE.items():
                row = f"#models tr[data-model='{id}']"
                assert page.all(f"{row} [data-col]", "data-col") == COLUMNS
                assert page.one(f"{row} [data-col=name]") == id
                assert int(page.one(f"{row} [data-col=parameters]", "data-value")) == sum(
                    math.prod(t.shape) for t in tensors)
                assert int(page.one(f"{row} [data-col=bytes]", "data-value")) == sum(t.nbytes for t in tensors)
            assert "cut.safetensors" in page.one(f"#models tr[data-model='{models.BROKEN}']")


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
@pytest.mark.parametrize("column", ["name", "parameters", "bytes", "updated"])
def test_sort(see, script, column):
    with see("/", script=script) as page:
        everything = sorted(listed(page))
        for sort, sign in ((column, 1), (f"-{column}", -1)):
            page.goto(f"/?sort={sort}")
            assert sorted(listed(page)) == everything, sort
            if column == "name":
                got = listed(page)
                assert got == sorted(got, key=lambda id: id.encode(), reverse=sign < 0), sort
            else:
                got = [int(value) for value in cells(page, column) if value]
                assert got == sorted(got, reverse=sign < 0) and len(got) > 5, sort


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_search(see, script):
    """A part of the name in any case. Words that no name has are answered in words."""
    with see("/", script=script) as page:
        search = "form#search input[type=search][name=q]"
        page.type(search, "LLaMa-3")
        if script:
            page.wait("n => document.querySelectorAll('#models tr[data-model]').length === n", 1)
            page.wait("() => new URLSearchParams(location.search).get('q') === 'LLaMa-3'")
        else:
            page.go("press", search, "Enter")
            assert "q=LLaMa-3" in page.path()
        assert listed(page) == [models.LLAMA]
        page.goto("/?q=%22%3E%3Cimg")
        assert listed(page) == ["\"><img src=x onerror=alert(1)>"]
        assert page.evaluate("s => document.querySelector(s).value", search) == "\"><img"
        page.goto("/?q=no-such-name")
        assert listed(page) == [] and "no model" in page.one("main").lower()


def test_hostile_names_are_text(see):
    names = ["\"><img src=x onerror=alert(1)>", "constructor", "__proto__", models.HOSTILE]
    with see("/") as page:
        shown = dict(zip(listed(page), cells(page, "name", None)))
        for name in names:
            assert shown[name] == name
        assert page.count("main img") == 0 and page.count("main script") == 0
        isolated = page.all("#models tr[data-model] [data-col=name] bdi")
        assert len(isolated) == len(shown), "names that are written from right to left leave the line as it is"


def test_by_keyboard_alone(see):
    """Skip the navigation, search, and reach the model that is found."""
    with see("/") as page:
        page.tab_to("a[href='#main']", most=1)
        page.press("Enter")
        assert page.path() == "/#main"
        page.tab_to("form#search input[name=q]")
        page.act("keyboard.type", "llama-3")
        page.wait("() => document.querySelectorAll('#models tr[data-model]').length === 1")
        assert page.evaluate("() => document.activeElement.name") == "q", "the focus is still in the field"
        page.tab_to(f"#models tr[data-model='{models.LLAMA}'] a")


def test_a_model_that_arrives(browser, arriving):
    """It is listed with what has arrived of it. Once it is here it is a model as others."""
    server, open_gate = arriving
    base = f"http://127.0.0.1:{server.port}"
    inspect(browser, f"{base}/", "index-arriving")
    with browser.visit(f"{base}/") as page:
        assert "org/arriving" in page.one("main")
    open_gate()
    server.wait_for(lambda: "org/arriving" in server.ids(), "org/arriving is published", 60)
    with browser.visit(f"{base}/") as page:
        assert listed(page) == ["org/arriving"]
