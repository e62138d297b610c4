"""Files of rows for --datasets, written by hand: every row has the same length, so that a row's place is its number
times that, and no two rows are equal."""

import array
import importlib.util
import os
import random

import bench_fixture

HERE = os.path.dirname(os.path.abspath(__file__))
ROW_BYTES = 1024  # of a line, with its end
SHORT_BYTES = 20
DIGITS = 10
START = b'{"id":"'
BLOCK_ROWS = 10_000  # one power of ten, so that only the upper digits change from block to block
HEADER_BYTES = 128  # of the .npy file
DATASET = "bench"  # every root serves one dataset of this name


class Rows:
    """A dataset of one file: root to serve, path, number of rows, bytes of each with and without its line end."""

    def __init__(self, root, name, count, stride, end_bytes=1, offset=0):
        self.root, self.count, self.stride, self.end_bytes, self.offset = root, count, stride, end_bytes, offset
        self.path = os.path.join(root, "datasets", DATASET, name)
        self.nbytes = offset + count * stride

    def read(self, numbers):
        """Returns rows as they lie in the file."""
        with open(self.path, "rb") as file:
            return [os.pread(file.fileno(), self.stride - self.end_bytes, self.offset + n * self.stride)
                    for n in numbers]

    def is_written(self):
        return os.path.exists(self.path) and os.path.getsize(self.path) == self.nbytes


def write(rows, blocks):
    """Writes (or finds) the file of some rows, from an iterator over its bytes."""
    if rows.is_written():
        return rows
    os.makedirs(os.path.dirname(rows.path), exist_ok=True)
    part = os.path.join(rows.root, "part.tmp")
    with open(part, "wb") as file:
        for block in blocks:
            file.write(block)
        file.flush()
        os.fsync(file.fileno())  # dirty pages cannot be dropped
    os.utime(part, (bench_fixture.OLD, bench_fixture.OLD))
    os.rename(part, rows.path)
    return rows


def write_lines(root, count, stride=ROW_BYTES):
    """Writes a JSON Lines file: {"id":"0000000017"}, with a "text" of random letters where there is room."""
    return write(Rows(root, "rows.jsonl", count, stride), line_blocks(count, stride))


def line_blocks(count, stride):
    block = bytearray(b"".join(line(i, stride) for i in range(BLOCK_ROWS)))
    for first in range(0, count, BLOCK_ROWS):
        for at, digit in enumerate(b"%0*d" % (DIGITS, first)):
            if at < DIGITS - len(str(BLOCK_ROWS)) + 1:  # the lower digits are those of the row within its block
                block[len(START) + at::stride] = bytes([digit]) * BLOCK_ROWS
        yield memoryview(block)[:min(BLOCK_ROWS, count - first) * stride]


def line(number, stride):
    text = START + b"%0*d" % (DIGITS, number)
    if len(text) + 3 < stride:
        text += b'","text":"'
        letters = random.Random(number).randbytes((stride - len(text)) // 2).hex().encode()
        text += letters[:stride - 3 - len(text)].ljust(stride - 3 - len(text), b"x")
    return text + b'"}\n'


def write_numbers(root, count):
    """Writes a .npy file of numbers of 4 bytes, each the number of its row."""
    header = b"{'descr': '<u4', 'fortran_order': False, 'shape': (%d,), }" % count
    rows = Rows(root, "rows.npy", count, 4, 0, HEADER_BYTES)

    def blocks():
        yield b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little") + header.ljust(HEADER_BYTES - 11) + b"\n"
        for first in range(0, count, 1_000_000):
            yield array.array("I", range(first, min(count, first + 1_000_000))).tobytes()

    return write(rows, blocks())


def shuffled(count, seed, start, wanted):
    """Returns the rows at positions [start, start + wanted) of the shuffled order, by the Python client's code."""
    path = os.path.join(os.path.dirname(HERE), "clients", "python", "tensord", "permutation.py")
    spec = importlib.util.spec_from_file_location("bench_permutation", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Permutation(count, seed, 0).take(start, wanted)
