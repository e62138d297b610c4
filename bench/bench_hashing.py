"""Compares page-cached ranges from a server that hashes another file in the background and one that hashes nothing."""

import os
import signal
import sys

import bench_fixture
import bench_servers
import bench_throughput
from bench_load import disturbed_note
from bench_report import Targets, bytes_text, connections_text, median_ratio, number, table, times
from bench_servers import BenchError

HUGE = 1 << 40  # a sparse file, so large that hashing never ends
HUGE_NAME = "a-huge.bin"  # sorts before the other file, so this one is hashed
CELLS = [(4 << 10, 8), (64 << 10, 8), (1 << 20, 8), (16 << 20, 8)]
KEPT = 0.8  # smallest part of the rate without hashing, at 1 MiB


class Quiet(bench_servers.Tensord):
    name = "quiet"


class Hashing(bench_servers.Tensord):
    name = "hashing"

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def hashed_bytes(self):
        _, _, text = bench_servers.get(self.port, "/metrics")
        for line in text.decode().splitlines():
            if line.startswith("tensord_hash_read_bytes_total "):
                return float(line.split()[1])
        raise BenchError("no tensord_hash_read_bytes_total: is this tensord older than its hasher?")


def make_root(directory, fixture):
    root = os.path.join(directory, "hashing-root")
    os.makedirs(root, exist_ok=True)
    link, huge = os.path.join(root, fixture.name), os.path.join(root, HUGE_NAME)
    for path in (link, huge):
        if os.path.exists(path):
            os.unlink(path)
    os.link(fixture.path, link)
    with open(huge, "wb") as f:
        f.truncate(HUGE)
    os.utime(huge, (bench_fixture.OLD, bench_fixture.OLD))
    return root


def measure(load, quiet, hashing, cells, options):
    """Measures like bench_throughput.measure, but pauses the hashing server while the other is measured."""
    samples = {cell: {s.name: [] for s in (quiet, hashing)} for cell in cells}
    for turn in range(0 if options.quick else -1, options.rounds):
        for number_of_cell, (range_bytes, connections) in enumerate(cells):
            for server in bench_throughput.rotated([quiet, hashing], turn + number_of_cell):
                if server is quiet:
                    hashing.pause()
                result = load.run(server, range_bytes, connections, ["--duration", options.duration], seed=turn + 2)
                hashing.go_on()
                if turn >= 0:
                    samples[range_bytes, connections][server.name].append(result)
        print("round %d of %d done" % (turn + 1, options.rounds), file=sys.stderr)
    return samples


def rows_of(samples):
    rows = []
    for (range_bytes, connections), of_server in samples.items():
        for name in ("quiet", "hashing"):
            row = {"range_bytes": range_bytes, "connections": connections, "server": name}
            row.update({k: bench_throughput.median([s[k] for s in of_server[name]]) for k in bench_throughput.KEYS})
            row["rate_vs_quiet"] = median_ratio(of_server[name], of_server["quiet"], "gb_per_s")
            rows.append(row)
    return rows


def rate_table(rows):
    columns = ["range", "conns", "server", "GB/s", "req/s", "p50 us", "p99 us", "rate / quiet"]
    return table(columns, [[bytes_text(r["range_bytes"]), r["connections"], r["server"], number(r["gb_per_s"]),
                            number(r["requests_per_s"], 0), number(r["p50_us"], 0), number(r["p99_us"], 0),
                            times(r["rate_vs_quiet"]) if r["server"] == "hashing" else "-"] for r in rows])


def run(load, options, work, directory, fixture):
    root = make_root(directory, fixture)
    quiet = Quiet(work, fixture, options.tensord, root)
    hashing = Hashing(work, fixture, options.tensord, root, ["--hash-threads", "1"])
    cells = [c for c in CELLS if c[0] <= fixture.tensor_bytes]
    with quiet, hashing:
        bench_throughput.prepare(load, [quiet, hashing], fixture)
        hashing.wait_for(lambda: hashing.hashed_bytes() > 0, "hashing")
        before = hashing.hashed_bytes()
        samples = measure(load, quiet, hashing, cells, options)
        hashed = hashing.hashed_bytes() - before
        if hashed <= 0:
            raise BenchError("nothing was hashed meanwhile")
    rows = rows_of(samples)
    targets = Targets()
    for r in rows:
        if r["server"] == "hashing":
            what = "rate while hashing / rate, %s, %s" % (bytes_text(r["range_bytes"]),
                                                          connections_text(r["connections"]))
            targets.at_least(what, r["rate_vs_quiet"], KEPT)
    note = disturbed_note([s for cell in samples.values() for of in cell.values() for s in of])
    about = [
        "the same page-cached file from two servers that take turns; one of them hashes a file of zeros without end, "
        "and stands still while the other is measured",
        "%d interleaved rounds of %g s; %s hashed meanwhile" %
        (options.rounds, options.duration, bytes_text(int(hashed)))
    ]
    return {"mode": "hashing", "title": "Serving while files are hashed", "about": about + ([note] if note else []),
            "table": rate_table(rows), "targets": targets, "rows": rows,
            "samples": [{"range_bytes": c[0], "connections": c[1], "servers": v} for c, v in samples.items()]}
