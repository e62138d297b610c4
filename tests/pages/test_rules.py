"""The rules of all pages find what breaks them: pages with one fault each, from a server of this file's own."""
import contextlib
import http.server
import re
import threading

import pytest

from browser import FIELDS, check

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>rules - tensord</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/-/tensord.css?v=1"><link rel="icon" href="/-/tensord.svg">
<script src="/-/tensord.js?v=1" defer></script></head>
<body><a href="#main">Skip to the content</a><nav aria-label="Pages"><a href="/">all</a></nav>
<main id="main"><h1>Rules</h1><p id="text">Text.</p></main></body></html>
"""
CSS = "body { background: #fff; color: #000 } a { color: #00e; display: inline-block; padding: 12px }\n"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><path d="M0 0h8v8H0z"/></svg>'
MAIN = "<h1>Rules</h1>"

# Name of the fault: (the rule that finds it, text of the page, text in its place)
FAULTS = {
    "no h1": ("h1", MAIN, ""),
    "two h1": ("h1", MAIN, MAIN * 2),
    "no main": ("main", 'id="main"', 'id="content"'),
    "no language": ("lang", ' lang="en"', ""),
    "another title": ("title", "rules - tensord", "rules"),
    "no viewport": ("viewport", '<meta name="viewport" content="width=device-width, initial-scale=1">', ""),
    "no navigation": ("nav", "nav", "div"),
    "another link first": ("the skip link is first", "<body>", '<body><a href="/">first</a>'),
    "a style of its own": ("inline styles", 'id="text"', 'id="text" style="color:red"'),
    "a handler": ("handlers", 'id="text"', 'id="text" onclick="alert(1)"'),
    "a script of its own": ("scripts", MAIN, MAIN + "<script>alert(1)</script>"),
    "a script that holds up the page": ("scripts", " defer", ""),
    "a style sheet of another host": ("styles", "/-/tensord.css?v=1", "http://other.example/x.css"),
    "a picture of another host": ("violations of the policy", MAIN, MAIN + '<img alt="" src="http://other.example/x">'),
    "a picture that is missing": ("refused requests", MAIN, MAIN + '<img alt="" src="/missing">'),
    "the same id twice": ("ids that are there twice", MAIN, '<h1 id="text">Rules</h1>'),
    "too wide": ("overflow", "Text.", "x" * 3000),
}
SCRIPTS = {
    "an error of a script": ("errors", "nothing.at.all"),
    "an error on the console": ("console", "console.error('wrong')"),
    "a warning on the console": ("console", "console.warn('odd')"),
    "a dialog": ("dialogs", "alert(1)"),
    "a request to another host": ("violations of the policy", "fetch('http://other.example/').catch(() => {})"),
    "a page that moves": ("layout shift", """document.getElementById("text").textContent = "Text. ".repeat(500);
        setTimeout(() => {
            for (let i = 0; i < 20; i++) document.getElementById("main").before(document.createElement("hr"));
        }, 300)"""),
}


class Faulty(http.server.BaseHTTPRequestHandler):
    """Answers with the server's page, its fields and the assets."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        page, script, fields = self.server.shown
        assets = {"/-/tensord.css": ("text/css", CSS), "/-/tensord.js": ("text/javascript", script),
                  "/-/tensord.svg": ("image/svg+xml", SVG)}
        path = self.path.split("?")[0]
        if path == "/":
            status, body = 200, page
        else:
            status = 200 if path in assets else 404
            kind, body = assets.get(path, ("text/plain", "missing"))
            fields = {"content-type": kind}
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())


@pytest.fixture(scope="module")
def show(browser):
    """show(page, script, fields) visits a page that is answered so."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Faulty) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

        @contextlib.contextmanager
        def go(page=PAGE, script="", fields=FIELDS):
            server.shown = (page, script, fields)
            shown = browser.visit(f"http://127.0.0.1:{server.server_port}/", width=360)
            yield shown
            shown.close()

        yield go
        server.shutdown()


def broken_rules(page):
    """Return what the rules say of a page."""
    with pytest.raises(AssertionError) as found:
        check(page)
    return str(found.value)


def test_a_good_page(show):
    with show() as page:
        check(page)
        page.axe()


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_page(show, fault):
    rule, text, other = FAULTS[fault]
    assert text in PAGE
    with show(PAGE.replace(text, other)) as page:
        assert f"'{rule}'" in broken_rules(page)


@pytest.mark.parametrize("fault", SCRIPTS)
def test_faults_of_the_script(show, fault):
    rule, script = SCRIPTS[fault]
    with show(script=script) as page:
        page.evaluate("() => new Promise(done => setTimeout(done, 600))")
        assert f"'{rule}'" in broken_rules(page)


@pytest.mark.parametrize("field", FIELDS)
def test_faults_of_the_fields(show, field):
    other = {"content-type": "text/html", "content-security-policy": "default-src 'self'"}.get(field, "x")
    with show(fields=FIELDS | {field: other}) as page:
        assert re.search(f"'fields': .*'{field}'", broken_rules(page))


def test_requests_that_a_policy_allows(show):
    """A request to another host is found without the policy, too."""
    with show(script="fetch('http://other.example/').catch(() => {})", fields={"content-type": "text/html"}) as page:
        page.evaluate("() => new Promise(done => setTimeout(done, 300))")
        assert "'requests to other hosts': ['http://other.example/']" in broken_rules(page)


def test_faults_that_axe_finds(show):
    """Contrast in dark colours alone, a picture without words, a field without a name."""
    for other in ('<img src="/-/tensord.svg">', '<input type="search">', '<p aria-hidden="true"><a href="/">a</a></p>'):
        with show(PAGE.replace(MAIN, MAIN + other)) as page, pytest.raises(AssertionError, match="axe on /"):
            page.axe()


def test_the_keyboard(show):
    """Tab reaches the links in turn; the focus that nobody sees is a fault."""
    with show() as page:
        page.tab_to("a[href='#main']", most=1)
        page.tab_to("nav a", most=1)
        page.go("keyboard.press", "Enter")
        with pytest.raises(AssertionError, match="did not lead to"):
            page.tab_to("button", most=5)
