"""Measures many models, and one model with very many tensors: time until ready, memory, streaming a long manifest."""

import json
import os
import socket
import threading
import time
import urllib.parse

import bench_fixture
import bench_servers
from bench_report import Targets, median, number, table
from bench_servers import BenchError, MemoryWatch

MIB = 1 << 20
STREAMS = 8


def make_tree(root, directories, tensors):
    names = bench_fixture.tensor_names(tensors)
    for i in range(directories):
        directory = os.path.join(root, "model-%05d" % i)
        os.makedirs(directory, exist_ok=True)
        bench_fixture.write_small(os.path.join(directory, "model.safetensors"), names)


def start_timed(server):
    start = time.monotonic()
    server.start()
    return time.monotonic() - start


def measure_tree(server, directories, tensors, rounds):
    """Returns medians over a few starts on one tree. The files were just written, so they are in the page cache."""
    seconds, resident, anonymous = [], [], []
    for _ in range(rounds):
        seconds.append(start_timed(server))
        try:
            status, _, body = bench_servers.get(server.port, "/models")
            models = json.loads(body)["models"] if status == 200 else []
            count = sum(c["tensor_count"] for m in models for c in m["checkpoints"])
            if len(models) != directories or count != directories * tensors:
                raise BenchError("GET /models: status %d, %d models with %d tensors instead of %d with %d"
                                 % (status, len(models), count, directories, directories * tensors))
            resident.append(server.resident_bytes())
            anonymous.append(server.anon_bytes())
        finally:
            server.stop()
    return {"ready_s": median(seconds), "resident_bytes": median(resident), "anonymous_bytes": median(anonymous)}


class Stream:
    """Reads one GET to its end, slowly when a pause is given; counts the bytes of the body and discards them."""

    def __init__(self, port, path, pause_s=0.0):
        self.pause_s, self.first_byte_s, self.total_s, self.bytes, self.error = pause_s, None, None, 0, None
        self.request = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % (path.encode(), port)
        self.socket = socket.create_connection(("127.0.0.1", port), 60)

    def run(self):
        try:
            start = time.monotonic()
            self.socket.sendall(self.request)
            head, end, data = b"", b"", self.socket.recv(64 << 10)
            self.first_byte_s = time.monotonic() - start
            while data and not end:  # the head's length depends on times in it
                head, end, data = (head + data).partition(b"\r\n\r\n")
                data = data or self.socket.recv(64 << 10)
            if not head.startswith(b"HTTP/1.1 200"):
                raise BenchError("manifest: %r" % head[:60])
            while data:
                self.bytes += len(data)
                if self.pause_s:
                    time.sleep(self.pause_s)
                data = self.socket.recv(64 << 10)
            self.total_s = time.monotonic() - start
        except (OSError, BenchError) as error:
            self.error = str(error)
        finally:
            self.socket.close()


def run_streams(server, path, pause_s):
    """Returns the largest RssAnon while STREAMS clients read the manifest at once."""
    streams = [Stream(server.port, path, pause_s) for _ in range(STREAMS)]
    threads = [threading.Thread(target=s.run) for s in streams]
    with MemoryWatch(server, 0.001) as watch:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    for s in streams:
        if s.error:
            raise BenchError("%s: %s" % (path, s.error))
    if len({s.bytes for s in streams}) != 1:
        raise BenchError("%s: the clients got different lengths" % path)
    return watch.peak


def measure_manifest(server, name, tensors):
    path = "/models/%s/tensors" % urllib.parse.quote(name)
    ready_s = start_timed(server)
    try:
        resident = server.resident_bytes()
        before = server.anon_bytes()
        first = Stream(server.port, path)
        first.run()
        if first.error:
            raise BenchError("%s: %s" % (path, first.error))
        after_first = server.anon_bytes()
        manifest = json.loads(bench_servers.get(server.port, path)[2])
        if manifest["tensor_count"] != tensors or len(manifest["tensors"]) != tensors:
            raise BenchError("the manifest lists %d tensors instead of %d" % (len(manifest["tensors"]), tensors))
        del manifest
        again = Stream(server.port, path)
        again.run()
        base = server.anon_bytes()
        slow_peak = run_streams(server, path, 0.001)
        fast_peak = run_streams(server, path, 0)
    finally:
        server.stop()
    return {"ready_s": ready_s, "resident_bytes": resident, "manifest_bytes": first.bytes,
            "first_byte_s": first.first_byte_s, "total_s": first.total_s, "again_first_byte_s": again.first_byte_s,
            "again_total_s": again.total_s, "first_growth_bytes": after_first - before,
            "streams_slow_growth_bytes": max(0, slow_peak - base),
            "streams_fast_growth_bytes": max(0, fast_peak - base)}


def run(make_tensord, work, options):
    directories, per_file, tensors = (100, 20, 2000) if options.quick else (2000, 50, 100_000)
    tree, single = os.path.join(work, "tree"), os.path.join(work, "single")
    os.makedirs(single, exist_ok=True)
    make_tree(tree, directories, per_file)
    name = "many.safetensors"
    bench_fixture.write_small(os.path.join(single, name), bench_fixture.tensor_names(tensors))
    settle = ["--settle", "0"]
    many = measure_tree(make_tensord(tree, settle), directories, per_file, 1 if options.quick else 3)
    one = measure_manifest(make_tensord(single, settle), name, tensors)
    rows = [["%d files of %d tensors: exec to /readyz 200" % (directories, per_file), number(many["ready_s"], 3), "s"],
            ["  resident then (VmRSS)", number(many["resident_bytes"] / MIB, 1), "MiB"],
            ["  anonymous of that (RssAnon)", number(many["anonymous_bytes"] / MIB, 1), "MiB"],
            ["1 file of %d tensors: exec to /readyz 200" % tensors, number(one["ready_s"], 3), "s"],
            ["  resident then (VmRSS)", number(one["resident_bytes"] / MIB, 1), "MiB"],
            ["  manifest, length", number(one["manifest_bytes"] / MIB, 1), "MiB"],
            ["  first request: first byte", number(one["first_byte_s"] * 1e3, 1), "ms"],
            ["  first request: last byte", number(one["total_s"] * 1e3, 1), "ms"],
            ["  later request: first byte", number(one["again_first_byte_s"] * 1e3, 1), "ms"],
            ["  later request: last byte", number(one["again_total_s"] * 1e3, 1), "ms"],
            ["  growth by the first request", number(one["first_growth_bytes"] / MIB, 2), "MiB"],
            ["  growth while %d slow clients stream it" % STREAMS,
             number(one["streams_slow_growth_bytes"] / MIB, 2), "MiB"],
            ["  growth while %d fast clients stream it" % STREAMS,
             number(one["streams_fast_growth_bytes"] / MIB, 2), "MiB"]]
    targets = Targets()
    if not options.quick:
        targets.at_most("s until 2,000 files with 100,000 tensors are ready", many["ready_s"], 5, number)
        targets.at_most("MiB resident then", many["resident_bytes"] / MIB, 200, number)
        targets.at_most("MiB grown while %d clients stream a 100,000-tensor manifest, %.0f MiB each"
                        % (STREAMS, one["manifest_bytes"] / MIB),
                        max(one["streams_slow_growth_bytes"], one["streams_fast_growth_bytes"]) / MIB, STREAMS, number)
    return {"mode": "scale", "title": "Many models, many tensors", "about":
            ["`--settle 0`, page-cached; %d starts on the tree, medians" % (1 if options.quick else 3)],
            "table": table(["what", "value", "unit"], rows), "targets": targets, "rows": [many, one]}
