"""The page that compares two models."""
from collections import Counter

import pytest

import models
import visits
from browser import inspect

DIFFERENT = {"added": "added", "removed": "removed", "changed.content": "content", "changed.dtype": "dtype",
             "changed.shape": "shape"}
COUNTS = ["added", "removed", "dtype", "shape", "content", "same", "unknown"]


@pytest.mark.parametrize("name", visits.COMPARE)
def test_looks(browser, srv, name):
    inspect(browser, f"http://127.0.0.1:{srv.port}{visits.COMPARE[name]}", name)


def differences(page):
    rows = "#diff tr[data-tensor]"
    return dict(zip(page.all(rows, "data-tensor"), page.all(rows, "data-change"), strict=True))


def counts(page):
    return {c: int(page.one(f"#counts [data-count={c}]", "data-value")) for c in COUNTS}


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_only_differences(see, script):
    with see(visits.COMPARE["compare"], script=script) as page:
        assert differences(page) == DIFFERENT
        assert counts(page) == Counter(DIFFERENT.values()) | {"same": 20, "unknown": 0}
    a, b = models.STEPS
    with see(f"/compare?a={b}&b={a}", script=script) as page:
        assert differences(page)["added"] == "removed" and differences(page)["removed"] == "added"
    with see(f"/compare?a={a}&b={a}", script=script) as page:
        assert differences(page) == {} and counts(page)["same"] == 24


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_choice_of_two_models(see, script):
    with see("/compare", script=script) as page:
        for field, id in zip("ab", models.STEPS, strict=True):
            if page.evaluate("name => document.querySelector(`form [name=${name}]`).tagName", field) == "SELECT":
                page.act("selectOption", f"form [name={field}]", id)
            else:
                page.act("fill", f"form [name={field}]", id)
        page.act("click", "form:has([name=b]) button")
        page.wait("() => document.querySelectorAll('#diff tr[data-tensor]').length === 5")
        assert "a=runs" in page.path() and "b=runs" in page.path()


def test_a_model_that_is_not_there(see):
    """Its name is text, also when it is HTML."""
    with see("/compare?a=%3Cscript%3Ealert(1)%3C/script%3E&b=" + models.STEPS[1], status=404) as page:
        assert "<script>alert(1)</script>" in page.one("main") and page.count("main script") == 0
