#!/usr/bin/env python3
"""Prints the manual page tensord(1) from the texts of `tensord help`.

    scripts/print_man.py [PROGRAM]            prints the page; without PROGRAM, of the newest build*/tensord
    scripts/print_man.py --write [PROGRAM]    writes docs/tensord.1

tests/http/test_docs.py compares docs/tensord.1 with what this script prints.
"""

import re
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "docs/tensord.1"


def escape(text):
    """Escapes a text for roff: backslashes, hyphens, and a dot or a quote at the beginning of a line."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\\&" + text if text[:1] in (".", "'") else text


def sentence(text):
    """Returns an escaped text that begins with a capital letter, unless it begins with the program's name."""
    return escape(text if text.startswith("tensord ") else text[:1].upper() + text[1:])


def entries(lines):
    """Yields (term, text) of indented lines: two blanks begin a term, two blanks end it; deeper lines continue it."""
    term, text = None, []
    for line in lines:
        begins = re.match(r"  (\S.*?)(?:  +(.*))?$", line)
        if line.startswith("   ") or not begins:
            text.append(line.strip())
            continue
        if term is not None:
            yield term, " ".join(text)
        term, text = begins[1], [begins[2]] if begins[2] else []
    if term is not None:
        yield term, " ".join(text)


def block_of(lines):
    """Returns a paragraph of a help text in roff: a list of terms, or flowing text."""
    out = []
    if any(line.startswith("  ") for line in lines) and not lines[0].startswith(("exit codes:", "signals:")):
        if not lines[0].startswith("  "):
            head, *lines = lines
            while lines and not lines[0].startswith("  "):
                head += " " + lines.pop(0)
            out += [".PP", sentence(head)]
        for term, text in entries(lines):
            bold = "\\fB" + escape(term) + "\\fR"
            out += [".TP", bold, escape(text)] if text else [".PP", bold]
        return out
    text = " ".join(line.strip() for line in lines)
    return [".PP", sentence(text)]


def paragraphs(text):
    return [p.splitlines() for p in text.strip("\n").split("\n\n")]


def help_of(program, *command):
    return subprocess.run([program, "help", *command], capture_output=True, text=True, check=True).stdout


def commands_of(program):
    """Returns the commands in the order of the text that the program prints without arguments."""
    brief = subprocess.run([program], capture_output=True, text=True, check=False).stderr
    return [name for name in re.findall(r"^  tensord (\w+) ", brief, re.MULTILINE) if name != "help"]


def version():
    return re.search(r"project\(tensord VERSION (\S+)", (REPO / "CMakeLists.txt").read_text())[1]


def manual_page(program):
    """Returns the manual page of the program."""
    top = paragraphs(help_of(program))
    usage = next(p for p in top if p[0] == "usage:")
    out = ['.\\" Printed by scripts/print_man.py from the texts of `tensord help`: change those.',
           f'.TH TENSORD 1 "" "tensord {version()}" "User Commands"',
           ".SH NAME", "tensord \\- serve the tensors of model checkpoints over HTTP", ".SH SYNOPSIS"]
    for i, (term, _) in enumerate(entries(usage[1:])):
        out += ([".br"] if i else []) + ["\\fB" + escape(term) + "\\fR"]
    out += [".SH DESCRIPTION", escape(top[0][0])]
    for command in commands_of(program):
        out += [f".SH {command.upper()}"]
        for lines in paragraphs(help_of(program, command)):
            out += block_of(lines)
    signals = next(p for p in top if p[0].startswith("signals:"))
    split = next(i for i, line in enumerate(signals) if line.startswith("exit codes:"))
    for name, lines in (("SIGNALS", signals[:split]), ("EXIT STATUS", signals[split:])):
        text = " ".join(line.strip() for line in lines).partition(": ")[2]
        out += [f".SH {name}", sentence(text)]
    out += [".SH SEE ALSO", "The folder docs/ of the project. It describes every option, format, client and message."]
    return "\n".join(out) + "\n"


def main(arguments):
    is_written = arguments[:1] == ["--write"]
    rest = arguments[is_written:]
    if len(rest) > 1 or rest[:1] == ["--help"]:
        sys.exit(__doc__)
    built = sorted(REPO.glob("build*/tensord"), key=lambda path: path.stat().st_mtime)
    if not rest and not built:
        sys.exit("build the program first: cmake --build --preset asan --target tensord")
    text = manual_page(rest[0] if rest else built[-1])
    if is_written:
        PAGE.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main(sys.argv[1:])
