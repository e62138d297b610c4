"""The pages of folders and of errors."""
import os

import pytest

import models
import visits
from browser import inspect


@pytest.mark.parametrize("name", visits.FOLDERS)
def test_looks(browser, srv, name):
    inspect(browser, f"http://127.0.0.1:{srv.port}{visits.FOLDERS[name]}", name)


@pytest.mark.parametrize("name", visits.ERRORS)
def test_looks_of_errors(browser, srv, name):
    path, status = visits.ERRORS[name]
    inspect(browser, f"http://127.0.0.1:{srv.port}{path}", name, status)


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_an_error_has_its_reason(see, srv, script):
    """The page says what the JSON says."""
    for path, status in visits.ERRORS.values():
        with see(path, script=script, status=status) as page:
            assert page.one("#error[role=alert]") == srv.get(path).json()["error"]["message"]


def test_every_file_is_listed(see, root):
    with see(visits.FOLDERS["folder"]) as page:
        assert sorted(page.all("#files tr[data-file]", "data-file")) == sorted(os.listdir(root / models.LLAMA))


def test_hostile_names_are_text(see):
    """Names in the page's order of writing, isolated, with control characters as escapes."""
    with see(visits.FOLDERS["folder-hostile"]) as page:
        texts = dict(zip(page.all("#files tr[data-file]", "data-file"), page.all("#files tr[data-file] th bdi")))
        for name in ("<script>alert(1)<.txt", "\"><img src=x onerror=alert(1)>.txt", "constructor", "__proto__",
                     "a b%41?.txt"):
            assert texts[name] == name
        assert not any(ord(c) < 32 for text in texts.values() for c in text)
        assert page.count("main img") == page.count("main script") == 0


def test_by_keyboard_alone(see):
    """The skip link leads to the content, and Tab from there to the first file."""
    with see(visits.FOLDERS["folder"]) as page:
        page.tab_to("a[href='#main']", most=1)
        page.press("Enter")
        page.tab_to("#files tr[data-file] a", most=4)
