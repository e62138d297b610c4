"""The first read of a file that is not in the page cache."""

import os
import sys
import time

import bench_fixture
import bench_servers
from bench_load import disturbed_note
from bench_report import Targets, bytes_text, connections_text, median, median_ratio, number, table, times
from bench_servers import BenchError
from bench_throughput import SHORT, rotated

COLD_ENOUGH = 0.01  # largest part of the file that may still be in the page cache
WHOLE = 0
CASES = [(WHOLE, "sequential"), (16 << 20, "sequential"), (1 << 20, "sequential"), (16 << 20, "shuffle"),
         (1 << 20, "shuffle")]
QUICK_CASES = [(WHOLE, "sequential"), (1 << 20, "shuffle")]


def start_cold(server):
    """Starts the server on a file of which nothing is cached. Pages that a process has touched through a
    mapping cannot be dropped. So every run gets a fresh process, and the cache is dropped before its start and
    again after it has scanned the root."""
    path = server.fixture.path
    bench_fixture.drop_cache(path, COLD_ENOUGH)
    server.start()
    resident = bench_fixture.drop_cache(path, COLD_ENOUGH)
    if resident > COLD_ENOUGH:
        server.stop()
        raise BenchError("%s: %.1f%% of the file is still in the page cache" % (server.name, 100 * resident))
    return resident


def run_case(load, server, range_bytes, order, connections):
    resident = start_cold(server)
    try:
        if range_bytes == WHOLE:
            extra = ["--requests", connections]  # each connection reads the whole file
        else:
            extra = ["--order", order, "--once"]  # the connections together read every byte once
        result = load.run(server, range_bytes, connections, extra, seed=11)
        if connections == 1 or range_bytes != WHOLE:
            touched = bench_fixture.resident_fraction(server.fixture.path)
            if touched < 0.9:
                raise BenchError("after reading it whole only %.0f%% of the file is cached: memory is short"
                                 % (100 * touched))
    finally:
        server.stop()
    result["resident_before"] = resident
    return result


def read_rate_gb(path, size):
    """Returns the GB/s of plain read() on the cold file: the disk's own rate."""
    bench_fixture.drop_cache(path)
    start = time.monotonic()
    bench_fixture.fill_cache(path)
    return size / (time.monotonic() - start) / 1e9


def summarize(samples, names):
    rows = []
    for (range_bytes, order, connections), of_server in samples.items():
        for name in names:
            mine = of_server[name]
            row = {"range_bytes": range_bytes, "order": order, "connections": connections, "server": name}
            for key in ("gb_per_s", "seconds", "p50_us", "p99_us", "server_cpu_s_per_gb", "other_processors"):
                row[key] = median([s[key] for s in mine])
            for other in names:
                if other != name:
                    row["rate_vs_" + other] = median_ratio(mine, of_server[other], "gb_per_s")
            rows.append(row)
    return rows


def cold_table(rows, names):
    references = [n for n in names if n != "tensord"]
    columns = ["range", "order", "conns", "server", "GB/s", "seconds", "p50 ms", "p99 ms", "CPU s/GB"]
    columns += ["rate / " + SHORT.get(n, n) for n in references]
    return table(columns, [
        ["whole" if r["range_bytes"] == WHOLE else bytes_text(r["range_bytes"]), r["order"], r["connections"],
         r["server"], number(r["gb_per_s"]), number(r["seconds"]), number(r["p50_us"] / 1000, 1),
         number(r["p99_us"] / 1000, 1), number(r["server_cpu_s_per_gb"], 3)]
        + [times(r.get("rate_vs_" + n)) for n in references] for r in rows])


def run(load, servers, fixture, options):
    names = [s.name for s in servers]
    cases = [(size, order, connections) for size, order in (QUICK_CASES if options.quick else CASES)
             for connections in (1, 8)]
    samples = {case: {n: [] for n in names} for case in cases}
    if bench_fixture.drop_cache(fixture.path, COLD_ENOUGH, 1) > COLD_ENOUGH:
        if options.quick:
            return None
        raise BenchError("%s keeps its files in memory; name a directory on a disk with --dir" % fixture.root)
    disk = [read_rate_gb(fixture.path, fixture.size)]
    for server in servers:
        with server:
            bench_servers.check_identical(server, load.kind)
    for turn in range(options.cold_rounds):
        for position, case in enumerate(cases):
            for server in rotated(servers, turn + position):
                samples[case][server.name].append(run_case(load, server, case[0], case[1], case[2]))
        disk.append(read_rate_gb(fixture.path, fixture.size))
        print("cold round %d of %d done" % (turn + 1, options.cold_rounds), file=sys.stderr)
    rows = summarize(samples, names)
    targets = Targets()
    for r in rows:
        if r["server"] == "tensord" and "nginx" in names:
            what = "whole" if r["range_bytes"] == WHOLE else bytes_text(r["range_bytes"])
            targets.at_least("cold rate / nginx, %s, %s, %s" % (what, r["order"], connections_text(r["connections"])),
                             r["rate_vs_nginx"], 1.0)
    note = disturbed_note([s for case in samples.values() for of in case.values() for s in of], 0.3)
    about = ["one file of %s, dropped from the page cache (checked with mincore: at most %d%% left) before each run, "
             "each run against a fresh server" % (bytes_text(fixture.tensor_bytes), COLD_ENOUGH * 100),
             "whole: each connection reads all of it; else the connections together read each range once",
             "%d rounds, medians; plain read() of the same cold file: %.2f GB/s"
             % (options.cold_rounds, median(disk))]
    return {"mode": "cold", "title": "From a cold page cache", "about": about + ([note] if note else []),
            "table": cold_table(rows, names), "targets": targets, "rows": rows, "disk_gb_per_s": disk,
            "read_ahead_kib": read_ahead_kib(fixture.path),
            "samples": [{"range_bytes": c[0], "order": c[1], "connections": c[2], "servers": v}
                        for c, v in samples.items()]}


def read_ahead_kib(path):
    device = os.stat(path).st_dev
    try:
        with open("/sys/dev/block/%d:%d/queue/read_ahead_kb" % (os.major(device), os.minor(device))) as f:
            return int(f.read())
    except (OSError, ValueError):
        return None
