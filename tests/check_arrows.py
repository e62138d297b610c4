#!/usr/bin/env python3
"""Fails when an #include runs against the arrows of the design, or names a file that is not there.

    check_arrows.py ROOT         checks the tree under ROOT
    check_arrows.py --self-test  checks that a wrong include is caught
"""

import pathlib
import re
import sys
import tempfile

# folder -> the folders whose headers it may include, besides its own
MAY_USE = {
    "core": set(),
    "parser": {"core"},
    "storage": {"core"},
    "slicing": {"core", "parser", "storage"},
    "catalog": {"core", "parser", "storage"},
    "api": {"core", "parser", "storage", "slicing", "catalog"},
    "server": {"core", "parser", "storage", "slicing", "catalog", "api"},
}
# system headers that one folder alone may use
OWNED = {"microhttpd.h": "server"}

INCLUDE = re.compile(r'^[ \t]*(?:#|%:|\?\?=)[ \t]*(?:include|include_next|import)\b(.*)$', re.MULTILINE)
COMMENT = re.compile(r'/\*.*?\*/', re.DOTALL)
QUOTED = re.compile(r'\s*"([^"]+)"')
SYSTEM = re.compile(r'\s*<([^>]+)>')


def faults_of_line(root, folder, rest):
    """What is wrong with one include, whose line goes on with `rest`."""
    if system := SYSTEM.match(rest):
        name = system.group(1)
        if name in OWNED and OWNED[name] != folder:
            yield f"<{name}> is for {OWNED[name]}/ alone"
        if name.split("/")[0] in MAY_USE and (root / name).exists():
            yield f"<{name}> is ours: use quotes"
        return
    quoted = QUOTED.match(rest)
    if not quoted:
        yield "an include that is neither \"...\" nor <...> cannot be checked"
        return
    name = quoted.group(1)
    target = name.split("/")[0]
    if target not in MAY_USE or ".." in name.split("/"):
        yield f'"{name}" is not named from the root of the tree, as "core/json.h" is'
    elif target != folder and target not in MAY_USE[folder]:
        yield f"{folder}/ may not use {target}/"
    elif not (root / name).is_file():
        yield f'"{name}" does not exist'


def check(root):
    """All faults under root, as lines for people."""
    faults = []
    for folder in MAY_USE:
        for path in sorted((root / folder).rglob("*.[ch]")):
            # comments become blanks of the same shape, so line numbers stay
            text = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), path.read_text(encoding="utf-8"))
            text = text.replace("\\\n", "  ")
            for include in INCLUDE.finditer(text):
                line = text.count("\n", 0, include.start(1)) + 1
                for fault in faults_of_line(root, folder, include.group(1)):
                    faults.append(f"{path.relative_to(root)}:{line}: {fault}")
    return faults


def self_test():
    """(file, text, is it a fault)"""
    cases = [
        ("core/a.c", '#include "core/a.h"\n#include <stdio.h>\n', False),
        ("parser/a.c", '#include "core/a.h"\n', False),
        ("storage/a.c", '#include "core/a.h"\n', False),
        ("slicing/a.c", '#include "parser/a.h"\n#include "storage/a.h"\n', False),
        ("catalog/a.c", '#include "parser/a.h"\n#include "storage/a.h"\n', False),
        ("api/a.c", '#include "catalog/a.h"\n#include "slicing/a.h"\n', False),
        ("server/a.c", '#include "api/a.h"\n#include <microhttpd.h>\n', False),
        ("core/a.c", '/* #include "api/a.h" */\n', False),
        ("core/a.c", '/*\n#include "api/a.h"\n*/\n', False),
        ("core/a.c", '#include "parser/a.h"\n', True),
        ("core/a.h", '#include "server/a.h"\n', True),
        ("core/sub/a.c", '#include "parser/a.h"\n', True),
        ("parser/a.c", '#include "storage/a.h"\n', True),
        ("parser/a.c", '  #  include  "catalog/a.h" // a comment\n', True),
        ("parser/a.c", '#/**/include "catalog/a.h"\n', True),
        ("parser/a.c", '#include \\\n"catalog/a.h"\n', True),
        ("storage/a.c", '#include "parser/a.h"\n', True),
        ("slicing/a.c", '#include "catalog/a.h"\n', True),
        ("catalog/a.c", '#include "slicing/a.h"\n', True),
        ("catalog/a.c", '#include "api/a.h"\n', True),
        ("api/a.c", '#include "server/a.h"\n', True),
        ("api/a.c", "#include <microhttpd.h>\n", True),
        ("core/a.c", "#include <microhttpd.h>\n", True),
        ("server/a.c", '#include "../api/a.h"\n', True),
        ("server/a.c", '#include "api/../core/a.h"\n', True),
        ("server/a.c", '#include "a.h"\n', True),
        ("server/a.c", '#include "api/absent.h"\n', True),
        ("server/a.c", "#include <api/a.h>\n", True),
        ("server/a.c", "#include HEADER\n", True),
    ]
    wrong = 0
    for name, text, is_fault in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for each in MAY_USE:
                (root / each).mkdir()
                (root / each / "a.h").write_text("")
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
            faults = check(root)
        if bool(faults) != is_fault:
            wrong += 1
            print(f"{name}: {text!r}: {faults or 'no fault'}", file=sys.stderr)
    return wrong


def main(arguments):
    if arguments == ["--self-test"]:
        return 1 if self_test() else 0
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[0])
    if not (root / "core").is_dir():
        print(f"{root} holds no core/", file=sys.stderr)
        return 2
    faults = check(root)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
