"""The order of shuffled rows: a permutation that is computed row by row, and never stored.

A seed and an epoch give each number below n another number below n. It is a Feistel network of 8 rounds over an even
number of bits, with the finaliser of splitmix64 as round function; a result that is not below n is permuted again until
it is. docs/python.md has the formulas, and the server computes the same: tests/data/permutation.json has values.
"""
from __future__ import annotations

import importlib.util
import operator
from typing import Any, Iterator, List, Tuple

MASK64 = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
ROUNDS = 8
MIN_BITS = 16
MAX_ROWS = 2**63
SMALL_ROWS = 2**13  # below it most results are too large and permuted again: a table of all rows costs less
FIRST_CHUNK = 256  # positions that `walk` computes at first, so that the first row takes little time
LAST_CHUNK = 16384  # and later, which costs least for each


def mix64(x: int) -> int:
    """Returns the finaliser of splitmix64 of a number of 64 bits."""
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK64
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK64
    return x ^ x >> 31


def check_seed(what: str, value: Any) -> int:
    """Returns a seed or an epoch. Raises TypeError, ValueError if it is not a number of 64 bits."""
    if isinstance(value, bool):
        raise TypeError(f"{what} is {value!r}; it must be a whole number")
    number = operator.index(value)
    if not 0 <= number <= MASK64:
        raise ValueError(f"{what} is {number}; it must be at least 0 and below 2**64")
    return number


def check_shard(rank: Any, world: Any) -> Tuple[int, int]:
    """Returns (rank, world). Raises ValueError unless 0 <= rank < world."""
    rank, world = operator.index(rank), operator.index(world)
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} is out of range for world {world}: ranks count from 0 to {world - 1}")
    return rank, world


def shard_rows(rows: int, rank: int, world: int) -> int:
    """Returns how many of `rows` rows are in a shard: every world-th, beginning with number `rank`."""
    return max(0, -(-(rows - rank) // world))


class Permutation:
    """The permutation of the numbers below `rows` for a seed and an epoch. Immutable; for any number of threads.

    Raises ValueError for more than 2**63 rows, and for a seed or an epoch that has not 64 bits.
    """

    def __init__(self, rows: int, seed: int = 0, epoch: int = 0):
        self.rows = operator.index(rows)
        if not 0 <= self.rows <= MAX_ROWS:
            raise ValueError(f"{rows} rows cannot be permuted: the limit is 2**63")
        self.seed, self.epoch = check_seed("seed", seed), check_seed("epoch", epoch)
        state = mix64(mix64((self.seed + GOLDEN) & MASK64) + self.epoch + GOLDEN & MASK64)
        self._keys = [mix64(state + (r + 1) * GOLDEN & MASK64) for r in range(ROUNDS)]
        bits = max(MIN_BITS, (self.rows - 1).bit_length() if self.rows else 0)
        self._half = (bits + 1) // 2
        self._mask = 2**self._half - 1
        self._table: List[int] = []

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        return f"Permutation({self.rows}, seed={self.seed}, epoch={self.epoch})"

    def __getitem__(self, position: int) -> int:
        """Returns the row at a position. Raises IndexError outside of [0, rows)."""
        position = operator.index(position)
        if not 0 <= position < self.rows:
            raise IndexError(f"position {position} of a permutation of {self.rows} rows")
        return self._permute(position)

    def __iter__(self) -> Iterator[int]:
        return self.walk()

    def take(self, start: int, count: int, rank: int = 0, world: int = 1) -> List[int]:
        """Returns the rows at positions start, start + 1, ... of a shard: at most `count`, fewer at its end.

        numpy computes them if it is installed, some twenty times as fast; the rows are the same.
        """
        rank, world = check_shard(rank, world)
        end = min(start + count, shard_rows(self.rows, rank, world))
        if start < 0 or count < 0:
            raise ValueError(f"start and count must not be negative, not {start} and {count}")
        positions = range(start * world + rank, end * world + rank, world) if start < end else range(0)
        if importlib.util.find_spec("numpy") is None or (len(positions) < 8 and self.rows >= SMALL_ROWS):
            return self._take_plain(positions)
        if self.rows < SMALL_ROWS:
            return self._take_small(positions)
        rows: List[int] = self._take_numpy(positions).tolist()
        return rows

    def walk(self, start: int = 0, rank: int = 0, world: int = 1) -> Iterator[int]:
        """Yields the rows of a shard from a position on, which are computed some thousands at a time."""
        size = FIRST_CHUNK
        while True:
            rows = self.take(start, size, rank, world)
            yield from rows
            if len(rows) < size:
                return
            start += size
            size = min(2 * size, LAST_CHUNK)

    def _permute(self, x: int) -> int:
        half, mask, shift = self._half, self._mask, 64 - self._half
        while True:
            left, right = x >> half, x & mask
            for key in self._keys:
                left, right = right, left ^ mix64(right + key & MASK64) >> shift
            x = left << half | right
            if x < self.rows:
                return x

    def _take_plain(self, positions: range) -> List[int]:
        return [self._permute(position) for position in positions]

    def _take_small(self, positions: range) -> List[int]:
        """Returns the same as `_take_plain`, by a table of all rows, which numpy computes in some milliseconds."""
        import numpy

        if not self._table:
            numbers = numpy.arange(2**MIN_BITS)
            results = self._evaluate_numpy(numbers.astype(numpy.uint64), numpy).astype(numbers.dtype)
            # Where a number leads that is permuted while it is too large: each round doubles how many times at most.
            ends = numpy.where(numbers < self.rows, numbers, results)
            rows = results[: self.rows]
            while (rows >= self.rows).any():
                rows, ends = ends[rows], ends[ends]
            self._table = rows.tolist()
        return self._table[positions.start : positions.stop : positions.step]

    def _take_numpy(self, positions: range) -> Any:
        """Returns the same as `_take_plain`, as an array of 64 bits."""
        import numpy

        x: Any = numpy.arange(len(positions), dtype=numpy.uint64)
        x *= numpy.uint64(positions.step)
        x += numpy.uint64(positions.start)
        out = self._evaluate_numpy(x, numpy)
        rows = numpy.uint64(self.rows)
        beyond = numpy.flatnonzero(out >= rows)
        while len(beyond):
            again = self._evaluate_numpy(out[beyond], numpy)
            out[beyond] = again
            beyond = beyond[again >= rows]
        return out

    def _evaluate_numpy(self, x: Any, numpy: Any) -> Any:
        half, mask, shift = (numpy.uint64(one) for one in (self._half, self._mask, 64 - self._half))
        a, b, c = (numpy.uint64(one) for one in (30, 27, 31))
        first, second = numpy.uint64(0xBF58476D1CE4E5B9), numpy.uint64(0x94D049BB133111EB)
        left, right = x >> half, x & mask
        for key in self._keys:
            mixed = right + numpy.uint64(key)  # arrays of 64 bits wrap around
            mixed ^= mixed >> a
            mixed *= first
            mixed ^= mixed >> b
            mixed *= second
            mixed ^= mixed >> c
            mixed >>= shift
            left, right = right, left ^ mixed
        return left << half | right
