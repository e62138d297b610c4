#!/usr/bin/env python3
"""Prints the tables of docs/configuration.md from the tables in the program's sources.

    scripts/print_tables.py options      the options of tensord serve, from server/config/config_options.c
    scripts/print_tables.py metrics      the metrics, from the calls of td_metrics_head, _gauge and _count
    scripts/print_tables.py --write      puts both into docs/configuration.md, between the lines that mark them

tests/http/test_docs.py compares the page with what this script prints, and both with a running server.
"""

import functools
import re
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "docs/configuration.md"
OPTIONS = REPO / "server/config/config_options.c"
PROGRAM = ("api", "catalog", "core", "http", "parser", "rank", "server", "slicing", "storage", "work")  # its folders
UNITS = {"NS": 10**9, "MIB": 2**20, "TIB": 2**40, "UINT64_MAX": 2**64 - 1}
# Kinds of options that have bounds, by the names of the macros of the table.
COUNTS, SIZES, TIMES = {"COUNT", "COUNT_OR_AUTO"}, {"SIZE"}, {"TIME"}


def strip_comments(source):
    return re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)


def cells_of(line):
    """Returns the cells of a line of a Markdown table as they are shown; none for another line."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@functools.cache
def program_headers():
    """Returns the text of all headers of the program's folders."""
    return "".join(path.read_text() for folder in PROGRAM for path in sorted((REPO / folder).rglob("*.h")))


def constant(name):
    """Returns the value of a constant of the program's headers, such as TD_DECODE_MEMORY_BYTES."""
    if found := re.search(rf"^\s*{name} = ([^,]*),", program_headers(), re.MULTILINE):
        return number(found[1])
    raise SystemExit(f"print_tables.py: no header has the constant {name}")


def number(text):
    """Returns the value of a product, quotient or name in the C table, such as `256 * MIB`."""
    value = 1
    for operator, factor in re.findall(r"([*/]?)\s*(\w+)", text.strip(" ()")):
        amount = int(factor) if factor.isdigit() else UNITS.get(factor) or constant(factor)
        value = value // amount if operator == "/" else value * amount
    return value


def show_size(value):
    """Returns a size as the program writes it: with the largest unit that divides it."""
    for unit, factor in (("T", 2**40), ("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    return str(value)


def show_time(value):
    """Returns a time as the program writes it: with the largest unit that divides it."""
    for unit, factor in (("d", 86400 * 10**9), ("h", 3600 * 10**9), ("m", 60 * 10**9), ("s", 10**9), ("ms", 10**6)):
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    return "0s"


def show_range(kind, arguments):
    """Returns the range that a row's kind and bounds give, or "" for an option without bounds."""
    show = str if kind in COUNTS else show_size if kind in SIZES else show_time if kind in TIMES else None
    if show is None:
        return ""
    _, low, high = (a.strip() for a in arguments.split(","))
    return f"{show(number(low))} to {show(number(high))}"


def read_options():
    """Yields (name, value, default, range, whether SIGHUP applies it, help) of each option that has a flag."""
    source = strip_comments(OPTIONS.read_text())
    table = source.partition("options[] = {")[2].partition("\n};")[0]
    strings = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
    row = rf"\{{{strings},\s*{strings},\s*{strings},\s*{strings},\s*(\w+)\(([^()]*)\),\s*(\w+)\}}"
    found = re.findall(row, table)
    if len(found) != len(re.findall(r"\b(?:LIVE|AT_START)\}", table)):
        raise SystemExit("print_tables.py: a row of config_options.c has a form that this script does not know")
    for name, value, default, words, kind, arguments, when in found:
        if "TD_OPTION_FILE_ONLY" not in arguments:
            texts = ["".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)) for text in (name, value, default, words)]
            yield *texts[:3], show_range(kind, arguments), when == "LIVE", texts[3]


def options_table():
    lines = ["| option | default | range | SIGHUP | meaning |", "|---|---|---|---|---|"]
    for name, value, default, bounds, is_live, words in read_options():
        value = value.replace("|", "\\|")
        cells = [f"`--{name} {value}`", f"`{default or 'not set'}`", bounds, "yes" if is_live else "", words]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(re.sub(r"\|  (?=\|)", "| ", line) for line in lines)


def read_metrics():
    """Returns {name: (type, help)}, in the order of the sources."""
    metrics = {}
    for path in sorted(p for folder in PROGRAM for p in (REPO / folder).rglob("*.c")):
        source = strip_comments(path.read_text())
        source = re.sub(r'static const char name\[\] = ("tensord_\w+");(.*?)^\}',
                        lambda m: m[2].replace("(out, name,", f"(out, {m[1]},") + "}", source,
                        flags=re.DOTALL | re.MULTILINE)
        calls = re.findall(r'td_metrics_(head|gauge|count)\(out, "(tensord_\w+)",\s*(?:"(\w+)",\s*)?'
                           r'((?:"(?:[^"\\]|\\.)*"\s*)+)', source)
        for call, name, kind, words in calls:
            kind = {"head": kind, "gauge": "gauge", "count": "counter"}[call]
            metrics[name] = (kind, "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', words)))
    return metrics


def metrics_table():
    lines = ["| metric | type | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind} | {words} |" for name, (kind, words) in sorted(read_metrics().items())]
    return "\n".join(lines)


TABLES = {"options": options_table, "metrics": metrics_table}


def marks(name):
    """Returns the lines around the table of that name in the page."""
    return f"<!-- {name}: printed by scripts/print_tables.py -->\n", f"\n<!-- end of {name} -->\n"


def table_in(text, name):
    """Returns the table that stands between the marks of that name in the page's text."""
    begin, end = marks(name)
    return text.partition(begin)[2].partition(end)[0]


def write_page():
    text = PAGE.read_text()
    for name, table in TABLES.items():
        begin, end = marks(name)
        if begin not in text or end not in text:
            raise SystemExit(f"print_tables.py: {PAGE} has no place for the table of {name}")
        before, rest = text.split(begin)
        text = before + begin + table() + end + rest.split(end)[1]
    PAGE.write_text(text)


def main(arguments):
    if arguments == ["--write"]:
        write_page()
    elif len(arguments) == 1 and arguments[0] in TABLES:
        print(TABLES[arguments[0]]())
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
