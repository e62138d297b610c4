#!/usr/bin/env python3
"""Prints the C sources that clang-tidy and a compiler may judge otherwise than at the commit in analyzed_commit:

    scripts/changed_sources.py FOLDER...    the sources of these folders that changed, or include a header that did
    scripts/changed_sources.py --record     writes the present commit into scripts/analyzed_commit

What they say of a source depends on the source, its headers and how it is compiled, so one without a change needs no
second check. `./test.sh analysis` checks all sources and then records the commit; the full tier checks those that this
script prints. It prints all when it cannot know: when git does not have the commit in the history, or when a file
changed that decides how sources are compiled or checked."""
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "scripts/analyzed_commit"
PROGRAM = ("api", "catalog", "core", "http", "parser", "rank", "server", "slicing", "storage", "work")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)
# Files that decide how all sources are compiled or checked.
RULES = {"CMakeLists.txt", "CMakePresets.json", ".clang-tidy", "scripts/check_tidy.sh"}


def git(*args):
    return subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True, check=True).stdout


def is_program(path):
    return path.split("/")[0] in PROGRAM


def changed_files():
    """Return the files that differ from those of the recorded commit; None: git does not know the commit."""
    try:
        commit = RECORD.read_text().strip()
        git("merge-base", "--is-ancestor", commit, "HEAD")
        return [*git("diff", "--name-only", "--no-renames", commit).splitlines(),
                *git("ls-files", "--others", "--exclude-standard").splitlines()]
    except (OSError, subprocess.CalledProcessError):
        return None


def c_files():
    """Yield all sources and headers, in order."""
    for top in (*PROGRAM, "bench", "tests"):
        for folder, below, names in os.walk(ROOT / top):
            below[:] = sorted(name for name in below if name != "node_modules")
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(f"{folder}/{name}", ROOT)


def includes_of(path):
    """Return the paths where a compiler looks for the headers that a file includes. "" stands for all headers that the
    build makes."""
    looked = set()
    for name in INCLUDE.findall((ROOT / path).read_text(errors="replace")):
        places = {os.path.normpath(f"{Path(path).parent}/{name}"), os.path.normpath(name)}
        looked |= places if any((ROOT / place).is_file() for place in places) else {*places, ""}
    return looked


def main(folders):
    files = list(c_files())
    changed = changed_files()
    if changed is None or RULES & set(changed):
        return [f for f in files if f.endswith(".c") and f.startswith(folders)]
    # The program's folders also have the files that the build turns into headers.
    reached = {"" if is_program(f) and not f.endswith((".c", ".h", "CMakeLists.txt")) else f for f in changed}
    # A CMakeLists.txt decides how the sources below it are compiled.
    rules = tuple(f.removesuffix("CMakeLists.txt") for f in changed if f.endswith("/CMakeLists.txt"))
    reached.update(f for f in files if f.startswith(rules))
    users = {}
    for file in files:
        for used in includes_of(file):
            users.setdefault(used, []).append(file)
    queue = list(reached)
    while queue:
        for user in users.get(queue.pop(), ()):
            if user not in reached:
                reached.add(user)
                queue.append(user)
    return [f for f in files if f.endswith(".c") and f.startswith(folders) and f in reached]


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        if git("status", "--porcelain"):
            sys.exit("changed_sources.py: files have changed since the last commit; commit them first")
        RECORD.write_text(git("rev-parse", "HEAD"))
        print(f"{RECORD.relative_to(ROOT)} names the present commit now; commit this file, too")
    elif sys.argv[1:]:
        for source in main(tuple(f"{folder.rstrip('/')}/" for folder in sys.argv[1:])):
            print(source)
    else:
        sys.exit(__doc__)
