"""Ranges of one file by the load client: from the page cache, over TLS, from a cold page cache, while another file is
hashed, and from a cache in front of tensord."""

import os
import signal
import subprocess
import time

import files
import servers
from clients import disturbed_note
from measure import (BenchError, LeftOut, at_least, at_most, by_turns, bytes_text, connections_text, median, result,
                     rounds_text, rows_table, summarize, times)

CELL = ("range_bytes", "connections")
RATIOS = {"rate": "gb_per_s", "CPU": "server_cpu_s_per_gb"}
COLUMNS = [("range", "range_bytes", bytes_text), ("conns", "connections"), ("server", "server"),
           ("GB/s", "gb_per_s", 2), ("req/s", "requests_per_s", 0), ("p50 us", "p50_us", 0), ("p99 us", "p99_us", 0),
           ("CPU s/GB", "server_cpu_s_per_gb", 3), ("client CPU s/GB", "client_cpu_s_per_gb", 3)]


def prepare(load, compared, fixture):
    """Reads the file into the page cache, checks every server, and touches every mapping once."""
    files.fill_cache(fixture.path)
    resident = files.resident_fraction(fixture.path)
    if resident < 0.98:
        raise BenchError("only %.1f%% of %s stays in the page cache: use a smaller --size"
                         % (100 * resident, fixture.name))
    for server in compared:
        servers.check_identical(server, load.kind)
        load.run(server, 0, 1, ["--requests", 1])


def measure(bench, load, compared, cells, name, around=lambda server, run: run()):
    """Measures every (range, connections) with every server. around: calls run() for a server, with what belongs before
    and after."""
    def way(server, cell):
        return lambda turn: around(server, lambda: load.run(server, *cell, ["--duration", bench.options.duration],
                                                            seed=turn + 1))

    return by_turns({cell: {server.name: way(server, cell) for server in compared} for cell in cells},
                    bench.options.rounds, not bench.quick, name)


def with_ratios(columns, names, shorts=("rate", "CPU")):
    """Returns the columns, and those of the ratios to each other server; to tensord only where there are more ways to
    run it. There is no CPU / raw, since raw copies."""
    ways = any(name.startswith("tensord-") for name in names)
    return columns + [("%s / %s" % (short, name.replace("nginx-", "")), "%s / %s" % (short, name), times)
                      for short in shorts for name in names if not name.startswith("tensord-")
                      and (ways or name != "tensord") and (short, name) != ("CPU", "raw")]


def cell_text(row):
    return "%s, %s" % (bytes_text(row["range_bytes"]), connections_text(row["connections"]))


# ---- from the page cache

def throughput_targets(rows, names, congestion, reader):
    """The limits depend on the congestion control, which paces nginx on the loopback device, and on what the client
    does with the bytes."""
    for r in (row for row in rows if row["server"] == "tensord"):
        large = r["range_bytes"] >= 1 << 20
        if not large:
            rate, cost = (1.2 if r["range_bytes"] <= 4 << 10 and r["connections"] >= 64 else 1.0), 1.05
        elif congestion == "bbr":
            rate, cost = 2.5, 0.35
        else:
            rate, cost = (1.5, 0.9) if reader == "discard" else (0.95, 1.1)
        if "nginx" in names:
            yield at_least("rate / nginx, " + cell_text(r), r["rate / nginx"], rate)
            yield at_most("CPU / nginx, " + cell_text(r), r["CPU / nginx"], cost)
        if "sendfile" in names and large and reader == "copy":
            yield at_least("rate / sendfile, " + cell_text(r), r["rate / sendfile"], 0.95)
        if "before" in names:
            yield at_least("rate / before, " + cell_text(r), r["rate / before"], 0.97)


def ways_text(server):
    """Returns what distinguishes a tensord, and the shares of the ways by which it sent bodies, for the report."""
    ways = {way: count for way, count in server.ways().items() if count}
    total = sum(ways.values())
    return "%s: %s; answers by way: %s" % (server.name, server.about, ", ".join(
        "%s %.0f%%" % (way, 100 * count / total) for way, count in sorted(ways.items(), key=lambda w: -w[1])))


def throughput(bench):
    fixture, options = bench.fixture, bench.options
    cells = [(size, n) for size in options.sizes for n in options.connections if size <= fixture.tensor_bytes]
    congestion, results = bench.congestion, []
    for reader in ["copy", "discard"] if options.reader == "both" else [options.reader]:
        load = bench.load(reader=reader)
        with bench.started(bench.servers(also=True)) as compared:
            prepare(load, compared, fixture)
            samples = measure(bench, load, compared, cells, "throughput")
            ways = [ways_text(server) for server in compared if server.about]
        names, rows = [server.name for server in compared], summarize(samples, CELL, RATIOS)
        about = ["congestion control %s; %s" % (congestion, load.reader_text()),
                 "one page-cached safetensors file, %s; `%s` URLs on tensord; ranges at random 4 KiB aligned offsets"
                 % (bytes_text(fixture.tensor_bytes), load.kind),
                 rounds_text(options), *ways, disturbed_note(samples)]
        results.append(result("Throughput, page-cached, %s, %s" % (congestion, reader), about,
                              [rows_table(rows, with_ratios(COLUMNS, names))],
                              throughput_targets(rows, names, congestion, reader), rows, samples))
    return results


# ---- over TLS 1.3, with one certificate and one cipher

TLS_CELLS = [(size, n) for size in (1 << 20, 16 << 20, 256 << 20) for n in (1, 8)]


def tls(bench):
    fixture, options = bench.fixture, bench.options
    load, pair = bench.load("copy", more=["--tls", servers.CIPHER]), bench.pair
    cells = [cell for cell in TLS_CELLS[:2 if bench.quick else None] if cell[0] <= fixture.tensor_bytes]
    with bench.started([bench.nginx(pair=pair), bench.tensord(pair=pair)]) as compared:
        prepare(load, compared, fixture)
        samples = measure(bench, load, compared, cells, "tls")
    rows = summarize(samples, CELL, RATIOS)
    about = ["TLS 1.3, %s, a certificate on P-256, for both" % servers.CIPHER,
             "one page-cached safetensors file, %s; ranges at random 4 KiB aligned offsets; the client (OpenSSL) "
             "decrypts and drops them, a thread for each connection" % bytes_text(fixture.tensor_bytes),
             rounds_text(options), disturbed_note(samples)]
    return result("TLS, page-cached, %s" % bench.congestion, about,
                  [rows_table(rows, with_ratios(COLUMNS, ["nginx", "tensord"]))],
                  [at_least("rate / nginx, " + cell_text(r), r["rate / nginx"], 1.0)
                   for r in rows if r["server"] == "tensord"], rows, samples)


# ---- while another file is hashed

HASHING_CELLS = [(4 << 10, 8), (64 << 10, 8), (1 << 20, 8), (16 << 20, 8)]
HUGE_BYTES = 1 << 40  # of a sparse file, so large that hashing never ends
HASHED = "tensord_hash_read_bytes_total"
KEPT_RATE = 0.8  # smallest part of the rate without hashing


def hashing(bench):
    fixture, options = bench.fixture, bench.options
    root = bench.linked_root("hashing")
    huge = os.path.join(root, "a-huge.bin")  # before the other file by name, so this one is hashed
    files.write(huge, [b""])
    os.truncate(huge, HUGE_BYTES)
    os.utime(huge, (files.OLD, files.OLD))
    load = bench.load()
    quiet, busy = (bench.tensord(name=name, root=root, options=more) for name, more in (
        ("quiet", []), ("hashing", ["--hash-threads", "1"])))

    def around(server, run):
        """Stops the server that hashes while the other one is measured."""
        if server is quiet:
            busy.process.send_signal(signal.SIGSTOP)
        try:
            return run()
        finally:
            busy.process.send_signal(signal.SIGCONT)

    with bench.started([quiet, busy]) as compared:
        prepare(load, compared, fixture)
        busy.wait_for(lambda: busy.metric(HASHED) > 0, "hashing")
        hashed = -busy.metric(HASHED)
        samples = measure(bench, load, compared, [c for c in HASHING_CELLS if c[0] <= fixture.tensor_bytes], "hashing",
                          around)
        hashed += busy.metric(HASHED)
    if hashed <= 0:
        raise BenchError("nothing was hashed during the rounds")
    rows = summarize(samples, CELL, {"rate": "gb_per_s"})
    about = ["the same page-cached file from two servers that take turns; one of them hashes a file of zeros without "
             "end, and is stopped while the other is measured; %s were hashed" % bytes_text(int(hashed)),
             rounds_text(options), disturbed_note(samples)]
    return result("Serving while files are hashed", about,
                  [rows_table(rows, [*COLUMNS[:7], ("rate / quiet", "rate / quiet", times)])],
                  [at_least("rate while hashing / rate, " + cell_text(r), r["rate / quiet"], KEPT_RATE)
                   for r in rows if r["server"] == "hashing"], rows, samples)


# ---- from a cold page cache

WHOLE = 0
COLD_CELLS = [(size, order, n) for size, order in (
    (WHOLE, "sequential"), (16 << 20, "sequential"), (1 << 20, "sequential"), (16 << 20, "shuffle"),
    (1 << 20, "shuffle")) for n in (1, 8)]


def cold_range(nbytes):
    return "whole" if nbytes == WHOLE else bytes_text(nbytes)


def cold_run(load, server, range_bytes, order, connections):
    """Measures a fresh server on a file that is not in the page cache. Pages that a process has touched through a
    mapping cannot be dropped, so the cache is dropped before the start, and again when the server has scanned."""
    path = server.fixture.path
    files.drop_cache(path)
    with server:
        resident = files.make_cold(path)
        # Each connection reads the whole file, or all together read every byte once.
        extra = ["--requests", connections] if range_bytes == WHOLE else ["--order", order, "--once"]
        sample = load.run(server, range_bytes, connections, extra, seed=11)
        if (connections == 1 or range_bytes != WHOLE) and files.resident_fraction(path) < 0.9:
            raise BenchError("after reading it whole, less than 90%% of %s is cached: memory is short" % path)
    return {**sample, "resident_before": resident}


def read_rate(path, size):
    """Returns the GB/s of plain read() on the cold file: the disk's own rate."""
    files.drop_cache(path)
    start = time.monotonic()
    files.fill_cache(path)
    return size / (time.monotonic() - start) / 1e9


def cold(bench):
    fixture, load, compared = bench.fixture, bench.load(), bench.servers()
    if files.is_memory(fixture.root):
        raise LeftOut("%s keeps its files in memory; name a directory on a disk with --dir" % fixture.root)
    disk = [read_rate(fixture.path, fixture.size)]
    for server in compared:
        with server:
            servers.check_identical(server, load.kind)
    cells = COLD_CELLS[:1] + COLD_CELLS[-1:] if bench.quick else COLD_CELLS
    samples = by_turns({cell: {server.name: lambda _, server=server, cell=cell: cold_run(load, server, *cell)
                               for server in compared} for cell in cells}, bench.options.cold_rounds, False, "cold")
    disk.append(read_rate(fixture.path, fixture.size))
    rows, names = summarize(samples, ("range_bytes", "order", "connections"), RATIOS), [s.name for s in compared]
    columns = [("range", "range_bytes", cold_range), ("order", "order"), *COLUMNS[1:4],
               ("seconds", "seconds", 2), ("p50 ms", "p50_us", 1, 1e-3), ("p99 ms", "p99_us", 1, 1e-3), COLUMNS[7]]
    about = ["one file of %s, dropped from the page cache (checked with mincore: at most %d%% left) before each run, "
             "each run against a fresh server" % (bytes_text(fixture.tensor_bytes), files.COLD_ENOUGH * 100),
             "whole: each connection reads all of it; else the connections together read each range once",
             "%d rounds, medians; plain read() of the same cold file: %.2f GB/s"
             % (bench.options.cold_rounds, median(disk)), disturbed_note(samples, 0.3)]
    return result("From a cold page cache", about, [rows_table(rows, with_ratios(columns, names, ["rate"]))],
                  [at_least("cold rate / nginx, %s, %s, %s" % (cold_range(r["range_bytes"]), r["order"],
                                                               connections_text(r["connections"])),
                            r["rate / nginx"], 1.0)
                   for r in rows if r["server"] == "tensord" and "nginx" in names], rows, samples)


# ---- nginx as a cache in front of tensord

FETCH = ("fetch and store", 16 << 20, 1, ["--order", "sequential", "--once"], 0)
# name: (for how long a piece is used without asking, cases); a case: what, range, connections, options, pause
CACHES = {
    "nginx-cache": ("1h", [("from the cache, 16 MiB", 16 << 20, 8, ["--order", "sequential"], 0),
                           ("from the cache, whole", 0, 8, [], 0)]),
    "nginx-asking": ("1s", [("from the cache, each piece asked for again", 16 << 20, 8,
                             ["--order", "sequential", "--once"], 1.1)]),
}


def cache(bench):
    """Measures the processor time of an nginx that fetches a file in slices and stores it, that answers from its cache,
    and that has to ask again for each piece (304), as the profile `scale` does after a second."""
    load, options, samples = bench.load(), bench.options, {}

    def one(server, size, connections, extra, pause_s):
        time.sleep(pause_s)
        before = upstream.cpu_s()
        sample = load.run(server, size, connections,
                          extra if "--once" in extra else [*extra, "--duration", options.duration])
        return {**sample, "upstream": (upstream.cpu_s() - before) / sample["bytes"] * 1e9}

    with bench.tensord() as upstream:
        for name, (valid, cases) in CACHES.items():
            with bench.nginx(name=name, cache={"upstream": upstream, "slice": "4m", "valid": valid}) as server:
                for what, *case in [FETCH, *cases]:
                    found = by_turns({(what, case[1]): {name: lambda _, case=case: one(server, *case)}},
                                     1 if what == FETCH[0] else options.rounds, False)
                    samples.update({(name, *cell): ways for cell, ways in found.items()})
    rows = summarize(samples, ("cache", "what", "connections"))
    return result("nginx as a cache of tensord", ["slices of 4 MiB, a file of %s" % bytes_text(bench.fixture.size)],
                  [rows_table(rows, [("nginx", "what"), *COLUMNS[1:4], ("nginx s/GB", "server_cpu_s_per_gb", 3),
                                     ("tensord s/GB", "upstream", 3), ("client s/GB", "client_cpu_s_per_gb", 3)])],
                  rows=rows, samples=samples)
