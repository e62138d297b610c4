"""Compares reading compressed tensors over HTTP, unpacked by tensord, with h5py and NumPy on the same file."""

import hashlib
import http.client
import json
import os
import time

import decode_peer
from bench_parse import Lines, find_python
from bench_report import Targets, median, number, ratio, table, times
from bench_servers import BenchError

HERE = os.path.dirname(os.path.abspath(__file__))
ROW_BYTES = 4 * decode_peer.COLUMNS

# file, description, name of the peer
CASES = (
    ("gzip.h5", "HDF5, gzip", "h5py"),
    ("shuffle.h5", "HDF5, shuffle and gzip", "h5py"),
    ("lzf.h5", "HDF5, shuffle and lzf", "h5py"),
    ("npz.npz", "npz, deflated", "NumPy"),
)


class Peer(Lines):
    def __init__(self, python):
        super().__init__([python, "-B", os.path.join(HERE, "decode_peer.py")])
        self.about = json.loads(self.read())

    def request(self, **what):
        return json.loads(self.ask(json.dumps(what)))


class Client:
    """One connection that reads whole bodies into one buffer."""

    def __init__(self, port, most):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.room = memoryview(bytearray(most))

    def get(self, path, begin=None, length=None):
        headers = {} if begin is None else {"Range": "bytes=%d-%d" % (begin, begin + length - 1)}
        self.connection.request("GET", path, headers=headers)
        response = self.connection.getresponse()
        done = 0
        while True:
            got = response.readinto(self.room[done:])
            if got == 0:
                break
            done += got
        if response.status not in (200, 206):
            raise BenchError("%s: %d %s" % (path, response.status, bytes(self.room[:200])))
        return self.room[:done]


def path_of(name, i):
    return "/models/%s/tensors/t%d" % (name, i)


def measure(server_of, peer, root, name, tensors, rows, windows):
    """Measures one round, windows first, each with a server that has unpacked nothing yet."""
    path = os.path.join(root, name)
    server = server_of(root).start()
    try:
        client = Client(server.port, rows * ROW_BYTES)
        begin = time.perf_counter_ns()
        parts = [bytes(client.get(path_of(name, i), row * ROW_BYTES, count * ROW_BYTES)) for i, row, count in windows]
        mine_windows = time.perf_counter_ns() - begin
        theirs = peer.request(do="windows", path=path, windows=windows)
        if hashlib.sha256(b"".join(parts)).hexdigest() != theirs["sha256"]:
            raise BenchError("%s: tensord and the peer read different bytes" % name)
    finally:
        server.stop()
    server = server_of(root).start()
    try:
        client = Client(server.port, rows * ROW_BYTES)
        begin = time.perf_counter_ns()
        for i in range(tensors):
            client.get(path_of(name, i))
        mine = time.perf_counter_ns() - begin
    finally:
        server.stop()
    return {"window_ns": mine_windows, "peer_window_ns": theirs["ns"], "whole_ns": mine,
            "peer_whole_ns": peer.request(do="whole", path=path, tensors=tensors)["ns"]}


def measure_case(server_of, peer, work, case, options):
    name, what, peer_name = case
    tensors, rows, count = (2, 256, 4) if options.quick else (8, 8192, 32)
    root = os.path.join(work, "decode-" + name)
    os.makedirs(root, exist_ok=True)
    peer.request(do="make", path=os.path.join(root, name), kind=name, tensors=tensors, rows=rows)
    rounds = [measure(server_of, peer, root, name, tensors, rows, decode_peer.windows_of(tensors, rows, count, seed))
              for seed in range(1 if options.quick else options.rounds)]
    os.unlink(os.path.join(root, name))
    row = {"what": what, "peer": peer_name, "bytes": tensors * rows * ROW_BYTES, "windows": count, "rounds": rounds}
    for key in ("whole", "window"):
        row[key] = median([r[key + "_ns"] for r in rounds])
        row["peer_" + key] = median([r["peer_" + key + "_ns"] for r in rounds])
        row[key + "_times"] = median([ratio(r["peer_" + key + "_ns"], r[key + "_ns"]) for r in rounds])
    return row


def run(server_of, work, options):
    about = ["F32 tensors of 8192 x 1024 in chunks of 64 rows; one client in Python reads all of eight tensors, or 32 "
             "windows of 64 rows at random places, over HTTP from a server that was just started; h5py and NumPy read "
             "the same from the file, in a process that has imported everything"]
    targets, rows = Targets(), []
    python = find_python(options)
    if python is None:
        about.append("**nothing compared**: no Python with h5py and NumPy; ./test.sh makes .venv, or name one with "
                     "--python")
    else:
        with Peer(python) as peer:
            if peer.about["missing"]:
                about.append("**nothing compared**: %s has no %s" % (python, ", ".join(peer.about["missing"])))
            else:
                rows = [measure_case(server_of, peer, work, case, options) for case in CASES]
    for row in rows:
        targets.at_least("faster than %s, whole: %s" % (row["peer"], row["what"]), row["whole_times"], 1)
        targets.at_least("faster than %s, windows: %s" % (row["peer"], row["what"]), row["window_times"], 1)
    cells = [[row["what"], row["peer"],
              number(row["peer_whole"] / 1e6, 0), number(row["whole"] / 1e6, 0), times(row["whole_times"]),
              number(row["peer_window"] / row["windows"] / 1e6, 2), number(row["window"] / row["windows"] / 1e6, 2),
              times(row["window_times"])] for row in rows]
    return {"mode": "decode", "title": "Compressed tensors", "about": about, "targets": targets, "rows": rows,
            "table": table(["file", "peer", "whole, peer ms", "whole, tensord ms", "peer / tensord",
                            "window, peer ms", "window, tensord ms", "peer / tensord"], cells)}
