#!/usr/bin/env python3
"""Lists the promises of docs/security.md with the tests that show each.

    scripts/list_promises.py            every promise, with its tests
    scripts/list_promises.py MARK...    these promises alone
    scripts/list_promises.py --check    prints faults and exits 1: a promise without a test, a mark without a promise

A test shows a promise if the line above its function is a comment with the promise's mark: `# shows: security.md MARK`
in Python, `/* shows: security.md MARK */` in C. One comment may have several marks. A comment that stands above no
function counts for the whole file.
"""

import re
import sys
from pathlib import Path

import print_tables

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "docs/security.md"
MARK = r"[a-z0-9]+(?:-[a-z0-9]+)*"
COMMENT = re.compile(rf"\s*(?:#|/\*) shows: security\.md((?: {MARK})+)(?: \*/)?$")
ENDS_WITH_MARK = re.compile(rf"\| (?:`{MARK}`(?:; [^|]*)?|\*not tested\*) \|$")
DECORATOR = re.compile(r"\s*@")
FUNCTION = re.compile(r"\s*(?:async )?def (\w+)\(|(?:static )?\w[\w *]*?\b(\w+)\(")


def read_promises(text):
    """Returns {mark: what happens}, of the rows of tables that end with a mark, and of "(mark `...`)" in sentences."""
    promises = {}
    for row in re.findall(r"^\|.*\|$", text, re.MULTILINE):
        cells = print_tables.cells_of(row)
        if found := re.match(rf"`({MARK})`(?:; |$)", cells[-1]):
            if found[1] in promises:
                raise SystemExit(f"list_promises.py: two rows have the mark {found[1]}")
            promises[found[1]] = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cells[0])
    for mark in re.findall(rf"\(mark\s`({MARK})`\)", text):
        promises.setdefault(mark, "see the text of docs/security.md")
    return promises


def unmarked_rows(text):
    """Returns the rows of the tables of promises that have neither a mark nor the words "not tested"."""
    rows, is_promise = [], False
    for line in text.splitlines():
        if not line.startswith("|"):
            is_promise = False
        elif line.endswith("| mark |"):
            is_promise = True
        elif is_promise and "|---|" not in line and not ENDS_WITH_MARK.search(line):
            rows.append(line)
    return rows


def read_tests(folder):
    """Returns {mark: ["file::function" or "file", ...]} of the comments below the folder."""
    shown = {}
    for path in sorted(folder.rglob("*.*")):
        if path.suffix not in (".py", ".c", ".h") or "node_modules" in path.parts:
            continue
        lines = path.read_text(errors="replace").splitlines()
        for at, line in enumerate(lines):
            if not (found := COMMENT.match(line)):
                continue
            below = at + 1
            while below < len(lines) and (COMMENT.match(lines[below]) or DECORATOR.match(lines[below])):
                below += 1
            function = FUNCTION.match(lines[below]) if below < len(lines) else None
            if not function and any(FUNCTION.match(line) for line in lines[:at]):
                raise SystemExit(f"{path.relative_to(REPO)}:{at + 1}: this mark is above no test")
            name = path.relative_to(REPO).as_posix() + (f"::{function[1] or function[2]}" if function else "")
            for mark in found[1].split():
                shown.setdefault(mark, []).append(name)
    return shown


def faults(text, shown):
    """Returns what is wrong with the promises of the page's text and the tests that show them, one line each."""
    promises = read_promises(text)
    return ([f"docs/security.md: this row needs a mark or *not tested*: {row[:100]}" for row in unmarked_rows(text)]
            + [f"docs/security.md: no test shows {mark}" for mark in promises if mark not in shown]
            + [f"{test}: docs/security.md has no promise {mark}"
               for mark, tests in sorted(shown.items()) if mark not in promises for test in tests])


def main(arguments):
    text, shown = PAGE.read_text(), read_tests(REPO / "tests")
    if arguments == ["--check"]:
        found = faults(text, shown)
        print("\n".join(found) or f"{len(read_promises(text))} promises, each with a test")
        sys.exit(bool(found))
    promises = read_promises(text)
    if unknown := [mark for mark in arguments if mark not in promises]:
        sys.exit(f"list_promises.py: docs/security.md has no promise {unknown[0]}\n{__doc__}")
    for mark in arguments or promises:
        print(f"{mark}: {promises[mark]}")
        for test in shown.get(mark, []):
            print(f"    {test}")


if __name__ == "__main__":
    main(sys.argv[1:])
