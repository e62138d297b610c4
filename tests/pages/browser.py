"""Chromium, driven by tests/js/browser.mjs: visits to pages, what pages do, and the rules that all pages keep."""
import os
import re
import shutil
import urllib.parse

import harness
from json_process import JsonProcess

SCRIPT = harness.REPO / "tests/js/browser.mjs"
PICTURES = harness.REPO / "build-results/pages"
PICTURE_HEIGHT = 2400      # pixels: the rest of a longer page looks alike

POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
          "form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
FIELDS = {"content-security-policy": POLICY, "referrer-policy": "no-referrer", "x-content-type-options": "nosniff",
          "content-type": "text/html; charset=utf-8"}
# Rules of axe whose outcome depends on the colours.
COLOUR_RULES = ["color-contrast", "link-in-text-block"]

# Returns the parts of a page that the common rules speak of.
FACTS = """() => {
    const all = selector => [...document.querySelectorAll(selector)];
    const shown = e => e.cloneNode(false).outerHTML.slice(0, 200);
    const first = all("a[href], button, input, select, textarea, summary, [tabindex]")[0];
    const ids = all("[id]").map(e => e.id);
    return {
        lang: document.documentElement.lang,
        title: document.title,
        headings: all("h1").length,
        mains: all("main").length,
        main: all("main#main").length,
        navs: all("nav").length,
        viewport: all("meta[name=viewport]").map(e => e.content),
        first: first ? shown(first) : null,
        skips: first?.matches("a[href='#main']") ?? false,
        styles: all("link[rel=stylesheet]").map(e => e.getAttribute("href")),
        scripts: all("script").map(e => [e.getAttribute("src"), e.defer]),
        icons: all("link[rel=icon]").map(e => e.getAttribute("href")),
        inline: all("style, [style]").map(shown),
        handlers: all("*").filter(e => [...e.attributes].some(a => a.name.startsWith("on"))).map(shown),
        twice: ids.filter((id, i) => ids.indexOf(id) !== i),
        overflow: document.documentElement.scrollWidth - innerWidth,
        wide: all("body *").filter(e => !e.closest("[tabindex='0']"))
            .filter(e => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5).map(shown),
    };
}"""
ASSET = re.compile(r"/-/tensord\.(css|js)\?v=[0-9A-Za-z_-]+|/-/tensord\.(svg)(\?v=[0-9A-Za-z_-]+)?")


class BrowserError(Exception):
    """A call that the browser did not carry out, with the stack of the driver."""


class Browser(JsonProcess):
    """Chromium as it is built for tests, without windows. The whole browser takes more than twice the time."""

    def __init__(self, chromium="/usr/bin/chromium-headless-shell"):
        home = harness.temporary_directory(self, "tensord-browser-")
        env = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG") if name in os.environ}
        super().__init__([shutil.which("node"), SCRIPT, chromium], env | {"HOME": home}, home)

    def call(self, name, **args):
        answer = self.ask({"call": name, **args})
        if "error" in answer:
            raise BrowserError(answer["error"])
        return answer["result"]

    def visit(self, url, width=1280, height=900, dark=False, script=True, status=200, user=None, headers=None):
        """Open a page and return it once it has loaded. script: whether JavaScript runs. status: of the answer, for
        the rules. user: (name, password) for a server that asks for them. headers: fields of every request."""
        user = {"username": user[0], "password": user[1]} if user else None
        opened = self.call("open", url=url, width=width, height=height, dark=dark, script=script, user=user,
                           headers=headers)
        return Page(self, opened, url, script, status)


class Page:
    """One page, in a context of its own. At the end of a `with` block the page must have kept the common rules."""

    def __init__(self, browser, opened, url, script, wanted):
        self.browser, self.number = browser, opened["page"]
        self.status, self.wanted, self.script = opened["status"], wanted, script
        self.headers = {name.lower(): value for name, value in opened["headers"]}
        self.origin = origin_of(url)

    def __enter__(self):
        return self

    def __exit__(self, kind, *exc):
        try:
            if kind is None:
                check(self)
        finally:
            self.close()

    def call(self, name, **args):
        return self.browser.call(name, page=self.number, **args)

    def close(self):
        self.call("close")

    def report(self):
        """Return what has been seen of the page: console, errors, dialogs, requests, failed, refused (answers from 400
        on), violations, shift, url and others (popups and downloads)."""
        return self.call("report")

    def evaluate(self, source, argument=None):
        """Return what a function of JavaScript returns in the page. It gets the argument."""
        return self.call("evaluate", source=source, argument=argument)

    def wait(self, source, argument=None, seconds=20):
        """Wait until a function of JavaScript returns something true in the page."""
        self.call("wait", source=source, argument=argument, timeout=seconds * 1000)

    def act(self, method, *args):
        """Call a method of Playwright's Page by its name, such as "keyboard.press", and wait for its end."""
        self.call("act", method=method, args=args)

    def click(self, selector):
        self.act("click", selector)

    def press(self, *keys):
        for key in keys:
            self.act("keyboard.press", key)

    def type(self, selector, text):
        """Type text into a field key by key, in place of the text that it has."""
        self.act("fill", selector, "")
        self.act("type", selector, text)

    def go(self, method, *args):
        """Do what leads to another document, and wait until that has loaded."""
        mark = "globalThis[Symbol.for('tensord.left')]"
        self.evaluate(f"() => {{ {mark} = true; }}")
        self.act(method, *args)
        self.wait(f"() => !{mark} && document.readyState === 'complete'")

    def goto(self, path):
        """Open another page of the server."""
        self.act("goto", self.origin + path)

    def open_or_save(self, url):
        """Open any address. Return whether the browser saved it instead of showing it, and of what it shows, what its
        scripts have set as `ran` and how many scripts it has."""
        return self.call("openOrSave", url=url)

    def path(self):
        """Return path and query of the page's address."""
        return self.report()["url"].removeprefix(self.origin)

    def count(self, selector):
        return self.evaluate("s => document.querySelectorAll(s).length", selector)

    def all(self, selector, attribute=None):
        """Return the texts of all elements, or the values of an attribute."""
        return self.evaluate("""([selector, attribute]) => [...document.querySelectorAll(selector)].map(e =>
            attribute === null ? e.textContent.trim() : e.getAttribute(attribute))""", [selector, attribute])

    def one(self, selector, attribute=None):
        """Return the text of the only element, or the value of an attribute."""
        found = self.all(selector, attribute)
        assert len(found) == 1, f"{selector}: {len(found)} elements"
        return found[0]

    def tab_to(self, selector, most=200):
        """Press Tab until the element has the focus, which must show wherever it is on the way."""
        for _ in range(most):
            self.press("Tab")
            hidden = self.evaluate("""() => {
                const e = document.activeElement;
                if (e === document.body) return null;
                const style = getComputedStyle(e), box = e.getBoundingClientRect();
                const shows = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0
                    || style.boxShadow !== "none" || e.matches("select, input, button");
                return shows && box.width > 0 ? null : e.outerHTML.slice(0, 200);
            }""")
            assert hidden is None, f"nobody sees that this has the focus: {hidden}"
            if self.evaluate("s => document.activeElement.matches(s)", selector):
                return
        raise AssertionError(f"{most} times Tab did not lead to {selector}")

    def set_dark(self, dark):
        self.act("emulateMedia", {"colorScheme": "dark" if dark else "light"})

    def shoot(self, name, folder=PICTURES):
        folder.mkdir(parents=True, exist_ok=True)
        self.call("shoot", path=str(folder / f"{name}.png"), height=PICTURE_HEIGHT)

    def axe(self, rules=None):
        """Check that axe finds nothing serious or critical."""
        bad = [f for f in self.call("axe", rules=rules) if f["impact"] in ("serious", "critical")]
        assert not bad, f"axe on {self.path()}: " + "\n".join(
            f"{f['impact']} {f['rule']}: {f['help']}\n  " + "\n  ".join(f["places"]) for f in bad)


def origin_of(url):
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def check(page):
    """Check the rules that every page keeps, whatever was done on it."""
    report, facts = page.report(), page.evaluate(FACTS)
    own = report["url"]
    # Chromium reports the status of the page itself as an error, too.
    said = [m for m in report["console"] if m["type"] in ("error", "warning") and
            not (page.wanted >= 400 and m["url"] == own and f"status of {page.wanted}" in m["text"])]
    foreign = [r["url"] for r in report["requests"] if origin_of(r["url"]) != page.origin]
    failed = [r for r in report["failed"] if r["why"] != "net::ERR_ABORTED"]     # the page has another one in its place
    refused = [r for r in report["refused"] if not (page.wanted >= 400 and r["url"] == own)]
    wrong_fields = {name: page.headers.get(name) for name, value in FIELDS.items() if page.headers.get(name) != value}
    rules = [                                   # what the rule is of, whether it is broken, what was found
        ("status", page.status != page.wanted, page.status),
        ("fields", wrong_fields, wrong_fields),
        ("console", said, said),
        ("errors", report["errors"], report["errors"]),
        ("dialogs", report["dialogs"], report["dialogs"]),
        ("popups and downloads", report["others"], report["others"]),
        ("requests to other hosts", foreign, foreign),
        ("failed requests", failed, failed),
        ("refused requests", refused, refused),
        ("violations of the policy", report["violations"], report["violations"]),
        ("layout shift", report["shift"] >= 0.1, report["shift"]),
        ("lang", not facts["lang"], facts["lang"]),
        ("title", not re.fullmatch(r"\S.* - tensord", facts["title"], re.DOTALL), facts["title"]),
        ("h1", facts["headings"] != 1, facts["headings"]),
        ("main", (facts["mains"], facts["main"]) != (1, 1), facts["mains"]),
        ("nav", facts["navs"] == 0, facts["navs"]),
        ("viewport", facts["viewport"] != ["width=device-width, initial-scale=1"], facts["viewport"]),
        ("the skip link is first", not facts["skips"], facts["first"]),
        ("styles", not are_assets(facts["styles"], "css"), facts["styles"]),
        ("scripts", not are_assets([source for source, _ in facts["scripts"]], "js") or
         not all(deferred for _, deferred in facts["scripts"]), facts["scripts"]),
        ("icon", not are_assets(facts["icons"], "svg"), facts["icons"]),
        ("inline styles", facts["inline"], facts["inline"]),
        ("handlers", facts["handlers"], facts["handlers"]),
        ("ids that are there twice", facts["twice"], facts["twice"]),
        ("overflow", facts["overflow"] > 0, (facts["overflow"], facts["wide"])),
    ]
    broken = {what: found for what, is_broken, found in rules if is_broken}
    assert not broken, f"{own}: {broken}"


def are_assets(addresses, kind):
    """Return whether the addresses are one, of the file of that kind."""
    found = ASSET.fullmatch(addresses[0] or "") if len(addresses) == 1 else None
    return found is not None and kind in found.groups()


def inspect(browser, url, name, status=200, ready=None, folder=PICTURES, **options):
    """Visit a page at 1280 and 360 pixels, in light and dark colours: the common rules, axe, a picture of each. ready:
    a function that gets the page once it has loaded, to do something on it first. options: others of visit."""
    for width in (1280, 360):
        with browser.visit(url, width=width, status=status, **options) as page:
            if ready:
                ready(page)
            for dark in (False, True):
                page.set_dark(dark)
                page.shoot(f"{name}-{width}-{'dark' if dark else 'light'}", folder)
                page.axe(COLOUR_RULES if dark else None)
