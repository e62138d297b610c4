"""The table of a model's tensors: filter, sort, pages; and names that are hostile."""
import math
import re

import pytest

import models
import visits
from browser import inspect

COLUMNS = ["name", "dtype", "shape", "elements", "bytes", "file", "offset"]
SORTS = {"dtype": lambda t: t.dtype, "elements": lambda t: math.prod(t.shape), "bytes": lambda t: t.nbytes,
         "name": lambda t: t.name.encode()}
SHOWN = "table#tensors tr[data-tensor]"
LLAMA = visits.TENSORS["tensors"]
MOE = visits.model(models.MOE, "view/tensors")


@pytest.mark.parametrize("name", visits.TENSORS)
def test_looks(browser, srv, name):
    inspect(browser, f"http://127.0.0.1:{srv.port}{visits.TENSORS[name]}", name)


def names(page):
    return page.all(SHOWN, "data-tensor")


def counts(page):
    return tuple(int(page.one("table#tensors", f"data-{what}")) for what in ("total", "matched"))


def row(name):
    return f"{SHOWN}[data-tensor='{name}']"


def test_cells(see, root):
    tensors = {t.name: t for t in models.llama_tensors()}
    with see(LLAMA) as page:
        assert counts(page) == (300, 300) and set(names(page)) == set(tensors)
        for name in ("model.norm.weight", visits.GATE):
            t = tensors[name]
            assert page.all(f"{row(name)} [data-col]", "data-col") == COLUMNS
            got = {c: page.one(f"{row(name)} [data-col={c}]") for c in COLUMNS}
            values = {c: int(page.one(f"{row(name)} [data-col={c}]", "data-value"))
                      for c in ("elements", "bytes", "offset")}
            assert got["name"] == name and got["dtype"] == t.dtype
            assert [int(n) for n in re.findall("[0-9]+", got["shape"])] == t.shape
            assert (values["elements"], values["bytes"]) == (math.prod(t.shape), t.nbytes)
            with open(root / models.LLAMA / got["file"], "rb") as f:
                f.seek(values["offset"])
                assert f.read(t.nbytes) == t.data


def test_pages(see):
    """10,000 tensors are 20 pages of 500, each once, by links that work without script."""
    for script in (True, False):
        with see(MOE, script=script) as page:
            assert counts(page) == (10_000, 10_000) and len(names(page)) == 500
            first = names(page)
            page.click("a[rel=next] >> nth=0")
            page.wait("() => location.search.includes('page=2')")
            page.wait("first => document.readyState === 'complete' &&"
                      " document.querySelector('tr[data-tensor]').dataset.tensor !== first", first[0])
            assert len(names(page)) == 500 and not set(first) & set(names(page))
    with see(MOE + "?page=20") as page:
        assert len(names(page)) == 500 and page.count("a[rel=next]") == 0


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_sort_by_the_headings(see, script):
    """The first click sorts ascending, the second descending. The heading says so to screen readers."""
    tensors = models.llama_tensors()
    with see(LLAMA, script=script) as page:
        assert page.one("#tensors th[aria-sort=ascending]").startswith("Name") and names(page) == sorted(names(page))
        for column, key in SORTS.items():
            link = f"#tensors th [data-sort$={column}]"
            key_of = {t.name: key(t) for t in tensors}
            for direction in ("ascending", "descending"):
                if script:
                    page.click(link)
                else:
                    page.go("click", link)
                page.wait("""([link, direction]) =>
                    document.querySelector(link)?.closest("th").ariaSort === direction""", [link, direction])
                got = [key_of[name] for name in names(page)]
                assert len(got) == 300 and got == sorted(got, reverse=direction == "descending"), (column, direction)
                assert page.count("#tensors th[aria-sort=ascending], #tensors th[aria-sort=descending]") == 1


def test_filter_as_one_types(see):
    """The table follows the field, over all tensors and not those of the page alone; so does the address."""
    with see(MOE) as page:
        words = "layers.12.BLOCK_sparse_moe.experts.253"
        page.act("type", "input#filter[name=q]", words)
        page.wait("() => document.querySelector('#tensors').dataset.matched === '3'")
        page.wait("words => new URLSearchParams(location.search).get('q') === words", words)
        assert counts(page) == (10_000, 3) and len(names(page)) == 3
        assert page.evaluate("() => document.activeElement.id") == "filter"
        page.axe()
        address = page.path()
    with see(address) as page:
        assert counts(page) == (10_000, 3), "the address alone leads to the same table"
        assert page.evaluate("() => document.querySelector('#filter').value") == words


def test_filter_by_dtype(see):
    f32 = {t.name for t in models.llama_tensors() if t.dtype == "F32"}
    with see(LLAMA) as page:
        page.act("selectOption", "select#dtype", "F32")
        page.wait("n => document.querySelector('#tensors').dataset.matched === String(n)", len(f32))
        assert set(names(page)) == f32 and "dtype=F32" in page.path()
    with see(LLAMA, script=False) as page:
        page.act("selectOption", "select#dtype", "F32")
        page.act("fill", "input#filter", "layers.0.")
        page.go("press", "input#filter", "Enter")
        assert set(names(page)) == {n for n in f32 if "layers.0." in n}


def test_nothing_found(see):
    with see(visits.TENSORS["tensors-nothing"]) as page:
        assert counts(page) == (300, 0) and "no tensor" in page.one("main").lower()


def test_hostile_names(see, srv):
    """Each name is there and is text. A long one is cut in the middle, and its link leads to a page with all of it."""
    with see(visits.TENSORS["tensors-hostile"]) as page:
        assert sorted(names(page)) == sorted(models.HOSTILE_NAMES)
        shown = dict(zip(names(page), page.all(f"{SHOWN} [data-col=name]")))
        for name, text in shown.items():
            assert len(text) <= 300, name[:40]
            assert not any(ord(c) < 32 for c in text), repr(text)
            if name.isprintable() and len(name.encode()) < 250:
                assert text == (name.strip() or name.replace(" ", "\\x20"))
        assert page.count(f"{SHOWN} bdi") >= len(shown)
        assert page.count("main img") == page.count("main svg[onload]") == page.count("main script") == 0
        links = dict(zip(names(page), page.all(f"{SHOWN} [data-col=name] a", "href"), strict=True))
    for name, link in links.items():
        assert srv.get(link, {"Accept": "text/html"}).status == 200, name
    for name in ("..", " ", "a/../../b", "__proto__", "line\nbreak", "x" * 300, "</title><script>alert(1)</script>"):
        with see(links[name]) as page:
            assert page.one("h1")


def test_by_keyboard_alone(see):
    with see(LLAMA) as page:
        page.tab_to("input#filter")
        page.act("keyboard.type", "layers.3.mlp.gate")
        page.wait("() => document.querySelector('#tensors').dataset.matched === '1'")
        page.tab_to(f"{SHOWN} [data-col=name] a")
        page.go("keyboard.press", "Enter")
        assert page.path() == visits.tensor(models.LLAMA, "model.layers.3.mlp.gate_proj.weight")
