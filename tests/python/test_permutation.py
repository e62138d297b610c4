"""The permutation of order=shuffle: its values, that it is one, and that it looks like a random one.

tests/data/permutation.json is written by plain integer arithmetic, without the client's code."""
import importlib.util
import itertools
import json
import math
import subprocess
import sys

import numpy
import pytest
from conftest import CLIENT, REPO

from tensord.rows.permutation import Permutation, shard_rows

VECTORS = REPO / "tests" / "data" / "permutation.json"


def test_the_vectors_are_what_the_script_writes(tmp_path):
    script = REPO / "tests" / "data" / "make_permutation.py"
    (tmp_path / script.name).write_bytes(script.read_bytes())
    subprocess.run([sys.executable, tmp_path / script.name], check=True)
    assert (tmp_path / VECTORS.name).read_bytes() == VECTORS.read_bytes()


@pytest.mark.parametrize("with_numpy", [True, False])
def test_first_rows(with_numpy, monkeypatch):
    vectors = json.loads(VECTORS.read_text())
    assert {one["rows"] for one in vectors} >= {1, 2, 10, 65536, 65537, 1000003, 2**33} and len(vectors) >= 80
    if not with_numpy:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for one in vectors:
        permutation = Permutation(one["rows"], one["seed"], one["epoch"])
        assert permutation.take(0, 8) == one["first"], one
        assert permutation[0] == one["first"][0]


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7, 10, 255, 1000, 8191, 8192, 8193, 65535, 65536, 65537, 100003, 262145])
def test_each_row_comes_once(rows):
    for seed, epoch in ((0, 0), (7, 2), (2**64 - 1, 1)):
        found = numpy.array(Permutation(rows, seed, epoch).take(0, rows + 5), dtype=numpy.int64)
        assert len(found) == rows and (numpy.sort(found) == numpy.arange(rows)).all()


@pytest.mark.parametrize("rows", [5, 1000, 8192, 65537, 2**40 + 3])
def test_numpy_and_plain_integers_agree(rows):
    permutation = Permutation(rows, 11, 13)
    for start, world in itertools.product((0, 1, 17, max(0, rows // 8 - 40)), (1, 3, 8)):
        for rank in {0, world - 1}:
            count = min(50, shard_rows(rows, rank, world) - start)
            positions = range(start * world + rank, (start + max(0, count)) * world + rank, world)
            assert permutation.take(start, 50, rank, world) == permutation._take_plain(positions)


@pytest.mark.parametrize("rows", [1, 7, 8, 1000, 70001])
def test_shards_cover_everything_once(rows):
    """The shards of a world, read in turns, are the order of one."""
    whole = Permutation(rows, 3, 4).take(0, rows)
    for world in (1, 2, 8):
        shards = [list(Permutation(rows, 3, 4).walk(0, rank, world)) for rank in range(world)]
        assert [len(shard) for shard in shards] == [shard_rows(rows, rank, world) for rank in range(world)]
        turns = itertools.zip_longest(*shards)
        assert [row for turn in turns for row in turn if row is not None] == whole


def test_walks_go_on_anywhere():
    whole = Permutation(50000, 5).take(0, 50000)
    for start in (0, 1, 255, 256, 257, 49999, 50000, 60000):
        assert list(Permutation(50000, 5).walk(start)) == whole[start:]
    assert Permutation(50000, 5)[49999] == whole[-1]
    for position in (-1, 50000):
        with pytest.raises(IndexError, match=f"position {position} of a permutation of 50000 rows"):
            Permutation(50000, 5)[position]


def test_a_walk_computes_only_what_it_needs():
    """The first row of a walk at nine tenths of 100,000,000 rows: 256 rows are computed."""
    permutation = Permutation(100_000_000, 1)
    computed = []
    permutation.take = lambda start, count, *shard: computed.append(count) or Permutation.take(
        permutation, start, count, *shard)
    next(permutation.walk(90_000_000))
    assert computed == [256]


def samples(rows):
    for seed, epoch in itertools.product(range(4), range(5)):
        yield numpy.array(Permutation(rows, seed, epoch).take(0, rows), dtype=numpy.int64)


@pytest.mark.parametrize("rows", [10000, 65536])
def test_it_looks_random(rows):
    """Each figure, over 20 permutations, is within five standard deviations of that of random permutations. Fixed
    points: 1 each, variance 1. Differences of neighbours of 1 or -1: 2 each, variance 2. Correlation of row and
    position, and of a row with the next one: 0 with a deviation of 1 / sqrt(rows)."""
    position = numpy.arange(rows)
    fixed = neighbours = 0
    for found in samples(rows):
        fixed += int((found == position).sum())
        neighbours += int((numpy.abs(numpy.diff(found)) == 1).sum())
        assert abs(numpy.corrcoef(found, position)[0, 1]) * math.sqrt(rows) < 5
        assert abs(numpy.corrcoef(found[1:], found[:-1])[0, 1]) * math.sqrt(rows) < 5
    assert abs(fixed - 20) < 5 * math.sqrt(20) and abs(neighbours - 40) < 5 * math.sqrt(40)


@pytest.mark.parametrize("rows", [10000, 65536, 100003])
def test_buckets_are_filled_evenly(rows):
    """Chi-square of how the rows of each of 16 stretches spread over 16 stretches of positions, (16 - 1)^2 degrees of
    freedom: within six deviations of its mean, and their mean over 20 permutations within five of its own."""
    found = []
    for permutation in samples(rows):
        counts, _, _ = numpy.histogram2d(numpy.arange(rows), permutation, bins=16, range=[[0, rows], [0, rows]])
        expected = counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True) / rows
        found.append(((counts - expected) ** 2 / expected).sum())
    free = 15 * 15
    assert all(abs(one - free) < 6 * math.sqrt(2 * free) for one in found), found
    assert abs(numpy.mean(found) - free) < 5 * math.sqrt(2 * free / len(found))


def test_seeds_and_epochs_give_unrelated_orders():
    """Two permutations share a row at a position about once, as random ones do; also for seeds and epochs that are near
    each other, or changed about."""
    orders = {(seed, epoch): numpy.array(Permutation(10000, seed, epoch).take(0, 10000))
              for seed, epoch in itertools.product(range(5), range(5))}
    shared = [int((one == other).sum()) for one, other in itertools.combinations(orders.values(), 2)]
    assert max(shared) < 10 and abs(sum(shared) - len(shared)) < 5 * math.sqrt(len(shared))


def test_what_is_refused():
    for wrong in ({"seed": -1}, {"seed": 2**64}, {"epoch": -1}, {"rows": -1}, {"rows": 2**63 + 1}):
        with pytest.raises(ValueError):
            Permutation(**{"rows": 10, **wrong})
    for wrong in ({"seed": 1.5}, {"epoch": True}, {"seed": "1"}):
        with pytest.raises(TypeError):
            Permutation(10, **wrong)
    for rank, world in ((1, 1), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="ranks count from 0"):
            Permutation(10).take(0, 1, rank, world)
    with pytest.raises(ValueError):
        Permutation(10).take(-1, 1)
    assert Permutation(2**63).take(2**63 - 1, 5) == [Permutation(2**63)[2**63 - 1]]


def test_numpy_is_not_needed():
    code = ("import sys; sys.modules['numpy'] = None\n"
            "import importlib.util; found = importlib.util.find_spec\n"
            "importlib.util.find_spec = lambda name, *more: None if name == 'numpy' else found(name, *more)\n"
            "from tensord.rows.permutation import Permutation; print(Permutation(1000003, 42, 3).take(0, 8))")
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(CLIENT)}, capture_output=True, text=True)
    want = next(one for one in json.loads(VECTORS.read_text())
                if (one["rows"], one["seed"], one["epoch"]) == (1000003, 42, 3))
    assert json.loads(done.stdout) == want["first"], done
