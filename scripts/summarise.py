#!/usr/bin/env python3
"""Counts the results of the steps of ./test.sh, and prints the table at the end of a run.

    scripts/summarise.py RESULTS SECONDS STEP...

SECONDS is what the run took: less than all steps together, because two run at a time. RESULTS/STEP.status holds
"exit-status seconds kind", and RESULTS/STEP.times what the shell's `times` printed at the step's end. A step of kind
"one" counts as one test. A step of kind "tests" wrote JUnit XML (RESULTS/STEP.xml, by ctest or pytest): its tests are
counted, and a step without tests failed. A skipped test counts as failed, because it proves nothing. The last line is
"N passed, N failed"; the exit status is 1 if any test failed.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def tests_of(path):
    """Returns (passed, names of tests that did not pass). ctest marks skipped and disabled tests by their status."""
    passed, bad = 0, []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        if kinds or case.get("status", "run") != "run":
            bad.append(f"{name} ({', '.join(sorted(kinds)) or case.get('status')})")
        else:
            passed += 1
    return passed, bad


def outcome(results, step):
    """Returns (passed, failed, seconds, notes) of one step."""
    status = results / f"{step}.status"
    if not status.exists():
        return 0, 1, 0, ["did not run"]
    code, seconds, kind = status.read_text().split()
    code, seconds = int(code), int(seconds)
    notes = []
    if code in (124, 137):
        notes.append("ran out of time")
    elif code != 0:
        notes.append(f"exit status {code}")
    if kind == "one":
        return (1, 0, seconds, notes) if code == 0 else (0, 1, seconds, notes)
    try:
        passed, bad = tests_of(results / f"{step}.xml")
    except (OSError, ElementTree.ParseError) as error:
        return 0, 1, seconds, notes + [f"no test results: {error}"]
    failed = len(bad)
    if passed + failed == 0:
        notes.append("ran no tests")
    # A step that failed although no test did counts as one failure.
    if failed == 0 and (code != 0 or passed == 0):
        failed = 1
    return passed, failed, seconds, notes + bad


def processor_seconds(path):
    """Returns the sum of what `times` of a shell printed: user and system time of itself and of its children."""
    if not path.exists():
        return 0
    times = re.findall(r"(\d+)m([\d.]+)s", path.read_text())
    return round(sum(60 * int(minutes) + float(seconds) for minutes, seconds in times))


def clock(seconds):
    return f"{seconds // 60:>6}:{seconds % 60:02}"


def main():
    results, seconds, steps = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    rows = [(step, *outcome(results, step), processor_seconds(results / f"{step}.times")) for step in steps]
    print(f"\n{'step':<10} {'result':<7} {'passed':>7} {'failed':>7} {'time':>9} {'processor':>9}")
    for step, passed, failed, took, notes, busy in rows:
        verdict = "FAILED" if failed else "ok"
        print(f"{step:<10} {verdict:<7} {passed:>7} {failed:>7} {clock(took)} {clock(busy)}")
        for note in notes:
            print(f"           {note}")
    passed, failed, busy = (sum(row[i] for row in rows) for i in (1, 2, 5))
    print(f"{'':<10} {'':<7} {passed:>7} {failed:>7} {clock(seconds)} {clock(busy)}\n")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
