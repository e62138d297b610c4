#!/usr/bin/env python3
"""Writes tests/data/slices.txt and tests/data/joins.txt with NumPy and torch: what slices and shards of arrays are, and
what parts of arrays are when they are put together.

slices.txt:

    slice TEXT SHAPE RESULT_SHAPE CRC32    the positions of the result's elements in the array, in order, each as a
                                           little-endian number of 32 bits; - where the array is too large to have
    slice TEXT SHAPE error                 NumPy refuses
    shard DIM:RANK/SIZE SHAPE RESULT_SHAPE CRC32

joins.txt:

    AXIS CELLS SHAPE,... PIECE,... RESULT_SHAPE CRC32

Array i holds 1000 * i, 1000 * i + 1 and so on, little-endian numbers of 32 bits; the checksum is that of the result's
bytes. A piece is zSIZE (zeros) or ARRAY:START:SIZE:COUNT:STRIDE; the pieces are dealt to the cells evenly, joined along
the axis, and the cells stacked where there are several.

Shapes are written 3x4, and "scalar" where there are no dimensions. The same bytes at every run.

    .venv/bin/python tests/data/make_slices.py
"""
import itertools
import pathlib
import random
import zlib

import numpy as np
import torch

HERE = pathlib.Path(__file__).resolve().parent

ONE = [
    "0", "4", "-1", "-5", "5", "-6", "-0", ":", "0:", ":5", "2:4", "-4:", ":-4", "-4:-2", "4:2", "-2:1", "7:", ":7",
    "-9:", ":-9", "-9:9", "9:-9", "5:", "5:5", "0:0", "-0:", ":-0", "3:3", "...", "...,2", "2,...", "...,1:3",
    "1:3,...", "99999999999999999999", "-99999999999999999999", "0:99999999999999999999", "-99999999999999999999:2",
    "18446744073709551615:", "9223372036854775808:", "-18446744073709551616:", "", "0,0", ":,:", "...,0,0", "...,...",
    "a", "0:a", "-", ":-", "-:2", "1-", "..", "....", ".", ",", "0,,", "1.0", "1_"
]
MANY = [
    ":", "0", "-1", "1:", ":-1", "...,1:3", "0,1", ":,1", "1,:", "1:2,2:3", "...,0", "0,...", ":,...,:", "0,...,1:",
    "1:,:2,-2:", "0,1,2", "0,1,2,3", "...,0,1,2", "0,...,1,2", ":,:,:", ":,:,:,:", "-1,-1,-1", "5,0,0", "0,0,5",
    "1:1,:,:", ":,1:1,:", "...,:,0:2", "0:9,0:9,0:9", "...", ":,0,:", "0:1,0:1,0:1"
]


def shape_text(shape):
    return "x".join(map(str, shape)) or "scalar"


def crc(positions):
    return f"{zlib.crc32(np.ascontiguousarray(positions, '<u4').tobytes()):08x}"


def slice_line(text, shape):
    size = int(np.prod(shape, dtype=object))
    array = np.arange(size, dtype="u4").reshape(shape) if size < 2**20 else np.broadcast_to(np.uint8(0), shape)
    try:
        result = eval(f"array[{text}]", {"array": array})  # NumPy's own reading of the text
    except (IndexError, SyntaxError, NameError):
        return f"slice {text or '(empty)'} {shape_text(shape)} error"
    return f"slice {text} {shape_text(shape)} {shape_text(result.shape)} {crc(result) if size < 2**20 else '-'}"


def shard_line(dim, rank, count, shape):
    array = torch.arange(int(np.prod(shape)), dtype=torch.int32).reshape(shape)
    pieces = torch.chunk(array, count, dim)
    # torch.chunk makes fewer pieces when there is nothing for the last ones
    piece = pieces[rank].numpy() if rank < len(pieces) else array.narrow(dim, 0, 0).numpy()
    return f"shard {dim}:{rank}/{count} {shape_text(shape)} {shape_text(piece.shape)} {crc(piece)}"


def random_item(rng, size):
    def bound():
        return rng.choice(["", str(rng.randint(-size - 2, size + 2))])
    return rng.choice([f"{bound()}:{bound()}", f"{bound()}:{bound()}", ":", "...", str(rng.randint(-size - 1, size))])


def lines():
    for text in ONE:
        yield slice_line(text, (5,))
    for text, shape in itertools.product(MANY, [(3, 4, 5), (2, 5), (6,), (2, 0, 3), (2, 2, 2, 3)]):
        yield slice_line(text, shape)
    for text in ["...", ":", "0", "...,0", "...,..."]:
        yield slice_line(text, ())
    for text in [":", "0", "-1", "0:0", "...", "1:", "-1:"]:
        yield slice_line(text, (0,))
    large = 2**62
    for text in ["1:", ":-1", f"{large - 1}:", f"{large}:", str(large - 1), f"-{large}", str(large), f"-{large + 1}",
                 f":{2 * large}", f"-{2 * large}:-{large - 3}", f"{2**64 - 1}:", f":{2**64 + 5}"]:
        yield slice_line(text, (large,))
    yield slice_line("...,0", (1,) * 64)
    yield slice_line(",".join(["0"] * 64), (1,) * 64)
    yield slice_line(",".join(["0"] * 65), (1,) * 64)
    rng = random.Random(4)
    for _ in range(400):
        shape = tuple(rng.randint(0, 6) for _ in range(rng.randint(1, 4)))
        items = [random_item(rng, shape[min(i, len(shape) - 1)]) for i in range(rng.randint(1, len(shape) + 1))]
        yield slice_line(",".join(items), shape)
    for size, count in itertools.product(range(10), [1, 2, 3, 4, 8, 16]):
        for rank in range(count):
            yield shard_line(0, rank, count, (size,))
    for dim, count in itertools.product([0, 1, 2, -1, -2, -3], [1, 2, 3, 5, 7]):
        for rank in range(count):
            yield shard_line(dim, rank, count, (5, 6, 3))


def join_line(rng):
    """torch.narrow for every box of a piece, torch.cat for the cell, torch.stack for the cells."""
    shape = [rng.randint(1, 5) for _ in range(rng.randint(1, 4))]
    axis = rng.randrange(len(shape))
    cells = rng.choice([1, 1, 2, 3])
    shapes = [list(shape) for _ in range(rng.randint(1, 3))]
    if cells == 1:
        for each in shapes:
            each[axis] = rng.randint(0, 8)
    arrays = [torch.arange(int(np.prod(s)), dtype=torch.int32).reshape(s) + 1000 * i for i, s in enumerate(shapes)]
    forms = []  # of a cell's pieces: None and a size for zeros, or which array from the cell's on
    for _ in range(rng.randint(1, 4)):
        if rng.random() < 0.2:
            forms.append((None, 0, rng.randint(0, 3), 1, 0))
            continue
        array = rng.randrange(len(arrays))
        room = arrays[array].shape[axis]
        start = rng.randint(0, max(room - 1, 0))
        size = rng.randint(0 if rng.random() < 0.1 else min(1, room), room - start)
        count, stride = 1, 0
        if rng.random() < 0.5 and size < room - start:
            count = rng.randint(2, 3)
            stride = rng.randint(0, (room - start - size) // (count - 1))
        forms.append((array, start, size, count, stride))
    pieces, results = [], []
    for cell in range(cells):
        parts = []
        for array, start, size, count, stride in forms:
            if array is None:
                pieces.append(f"z{size}")
                zeros = list(arrays[0].shape)
                zeros[axis] = size
                parts.append(torch.zeros(zeros, dtype=torch.int32))
                continue
            which = (array + cell) % len(arrays)
            pieces.append(f"{which}:{start}:{size}:{count}:{stride}")
            parts += [arrays[which].narrow(axis, start + i * stride, size) for i in range(count)]
        results.append(torch.cat(parts, axis))
    result = (torch.stack(results) if cells > 1 else results[0]).numpy()
    return (f"{axis} {cells} {','.join(shape_text(s) for s in shapes)} {','.join(pieces)} {shape_text(result.shape)} "
            f"{crc(result)}")


if __name__ == "__main__":
    rng = random.Random(5)
    for name, made in [("slices.txt", lines()), ("joins.txt", (join_line(rng) for _ in range(600)))]:
        (HERE / name).write_text("".join(line + "\n" for line in dict.fromkeys(made)))
