"""h5py and NumPy in one running Python: makes files of compressed tensors, then times one reading for every line of
standard input. bench_decode.py starts it with a Python that has both packages, and talks with it in lines of JSON."""

import hashlib
import random
import time

import peer

COLUMNS = 1024
FILTERS = {"gzip.h5": {"compression": "gzip"}, "shuffle.h5": {"compression": "gzip", "shuffle": True},
           "lzf.h5": {"compression": "lzf", "shuffle": True}}


def make(path, kind, tensors, rows):
    """Returns weights that were bfloat16 and are kept as F32, as in compressed checkpoints."""
    import h5py
    import numpy
    rng = numpy.random.default_rng(1)
    arrays = []
    for _ in range(tensors):
        a = (rng.standard_normal((rows, COLUMNS)) * 0.02).astype("<f4")
        a.view("<u4")[...] &= 0xFFFF0000
        arrays.append(a)
    if kind.endswith(".npz"):
        numpy.savez_compressed(path, **{"t%d" % i: a for i, a in enumerate(arrays)})
        return
    with h5py.File(path, "w") as f:
        for i, a in enumerate(arrays):
            f.create_dataset("t%d" % i, data=a, chunks=(64, COLUMNS), **FILTERS[kind])


def opened(path):
    import h5py
    import numpy
    return numpy.load(path) if path.endswith(".npz") else h5py.File(path, "r")


def read_whole(path, tensors):
    with opened(path) as f:
        for i in range(tensors):
            f["t%d" % i][...]


def read_windows(path, windows):
    with opened(path) as f:
        return [f["t%d" % i][row:row + count].tobytes() for i, row, count in windows]


def answer(request):
    path = request["path"]
    if request["do"] == "make":
        make(path, request["kind"], request["tensors"], request["rows"])
        return {}
    begin = time.perf_counter_ns()
    parts = read_whole(path, request["tensors"]) if request["do"] == "whole" else read_windows(path, request["windows"])
    ns = time.perf_counter_ns() - begin
    return {"ns": ns, "sha256": hashlib.sha256(b"".join(parts)).hexdigest() if parts else None}


def windows_of(tensors, rows, count, seed):
    """Returns the beginnings of `count` windows of 64 rows."""
    rng = random.Random(seed)
    return [(rng.randrange(tensors), rng.randrange(rows - 64), 64) for _ in range(count)]


if __name__ == "__main__":
    peer.serve(("h5py", "numpy"), answer)
