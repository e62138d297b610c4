#!/usr/bin/env python3
"""Prints the codebooks of rank/values/codebook.c from the arrays of the package gguf, which must be installed.

    scripts/print_codebooks.py            prints the C tables
    scripts/print_codebooks.py --write    puts them into codebook.c, between the lines that mark them

tests/interop/test_gguf.py compares the file with what this script prints.
"""
import sys
from pathlib import Path

import gguf.quants
import numpy as np

SOURCE = Path(__file__).resolve().parent.parent / "rank/values/codebook.c"
BEGIN, END = "/* codebooks: printed by scripts/print_codebooks.py */\n", "/* end of codebooks */\n"
TYPES = {"iq1": "IQ1_S", "iq2_xxs": "IQ2_XXS", "iq2_xs": "IQ2_XS", "iq2_s": "IQ2_S", "iq3_xxs": "IQ3_XXS",
         "iq3_s": "IQ3_S"}
WORDS_A_LINE = 5


def codebook(name):
    """Returns the levels of a type's numbers, and its points as rows of these."""
    kind = getattr(gguf.quants, name)
    kind.init_grid()
    return [int(level) for level in kind.grid_map], kind.grid.reshape(kind.grid_shape)


def words_of(levels, points):
    """Returns the set of the points as 64-bit words."""
    numbers = points.shape[1]
    digits = np.searchsorted(levels, points)
    integers = digits @ len(levels)**np.arange(numbers)
    if sorted(levels) != levels or (np.diff(integers) <= 0).any():
        raise SystemExit("print_codebooks.py: the points do not ascend")
    bits = np.zeros(-(-len(levels)**numbers // 64) * 64, np.uint8)
    bits[integers] = 1
    return np.packbits(bits, bitorder="little").view("<u8").tolist()


def table():
    """Returns the C tables of all codebooks."""
    out = []
    for name, of in TYPES.items():
        levels, points = codebook(of)
        words = [f"0x{word:016X}," for word in words_of(levels, points)]
        lines = [" ".join(words[i:i + WORDS_A_LINE]) for i in range(0, len(words), WORDS_A_LINE)]
        values = ", ".join(str(level) for level in levels)
        fields = f"{len(points)}, {points.shape[1]}, {len(levels)}, {{{values}}}, {name}_set"
        out += [f"static const uint64_t {name}_set[] = {{", *(f"    {line}" for line in lines), "};",
                f"const struct td_codebook td_codebook_{name} = {{{fields}}};", ""]
    return "\n".join(out[:-1]) + "\n"


def with_tables(source):
    """Returns the text of codebook.c with the tables in their place."""
    head, rest = source.split(BEGIN)
    return head + BEGIN + table() + END + rest.split(END)[1]


def main(arguments):
    if arguments == ["--write"]:
        SOURCE.write_text(with_tables(SOURCE.read_text()))
    elif not arguments:
        print(table(), end="")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
