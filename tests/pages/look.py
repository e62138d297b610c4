#!/usr/bin/env python3
"""Takes pictures of the pages, to be looked at: at 1280 and 360 pixels, in light and dark colours.

    tests/pages/look.py OUT                         every page of visits.py, over the models of the tests
    tests/pages/look.py OUT NAME...                 these pages
    tests/pages/look.py OUT --url http://HOST:PORT /PATH...     pages of a running server

Writes OUT/NAME-WIDTH-SCHEME.png and prints what a page does against the rules of all pages. Needs Chromium
(scripts/deps.sh pages), tests/js/node_modules (./test.sh pages sets it up), and TENSORD or a build.
"""
import argparse
import contextlib
import re
import sys
import tempfile
from pathlib import Path

for folder in ("http", "pages"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))

import harness  # noqa: E402
import models  # noqa: E402
import visits  # noqa: E402
from browser import Browser, BrowserError, inspect  # noqa: E402


@contextlib.contextmanager
def server_of(url):
    """Yield the URL of the server to look at: the one that is given, or one over the models of the tests."""
    if url:
        yield url.rstrip("/")
        return
    with tempfile.TemporaryDirectory() as place:
        models.build(Path(place) / "root")
        with harness.hashed_server(Path(place) / "root") as server:
            yield f"http://127.0.0.1:{server.port}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the directory of the pictures")
    parser.add_argument("--url", help="a running server; NAME is then a path")
    parser.add_argument("name", nargs="*")
    options = parser.parse_args()
    if options.url:
        pages = {re.sub(r"\W+", "-", path).strip("-") or "index": (path, 200) for path in options.name or ["/"]}
    else:
        pages = {name: visits.ALL[name] for name in options.name or visits.ALL}
    bad = 0
    with server_of(options.url) as url, Browser() as browser:
        for name, (path, status) in pages.items():
            try:
                inspect(browser, url + path, name, status, folder=options.out)
                print(f"{name}: ok")
            except (AssertionError, BrowserError) as e:
                bad += 1
                print(f"{name}: {e}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
