"""Measures page-cached throughput: every (range size, connections) cell, each with every server, round after round."""

import os
import sys

import bench_fixture
import bench_servers
from bench_load import disturbed_note
from bench_report import Targets, bytes_text, connections_text, median, median_ratio, number, table, times
from bench_servers import BenchError

KEYS = ("gb_per_s", "requests_per_s", "p50_us", "p99_us", "max_us", "server_cpu_s_per_gb", "client_cpu_s_per_gb",
        "softirq_cpu_s_per_gb", "server_cpu_us_per_request", "client_cpu_us_per_request", "server_processors",
        "client_processors", "other_processors")


SHORT = {"nginx-nopush": "nopush"}  # in the names of columns


def rotated(items, by):
    by %= len(items)
    return items[by:] + items[:by]


def prepare(load, servers, fixture):
    """Reads the file into the page cache, checks every server, and touches every mapping once."""
    bench_fixture.fill_cache(fixture.path)
    resident = bench_fixture.resident_fraction(fixture.path)
    if resident < 0.98:
        raise BenchError("only %.1f%% of %s stays in the page cache: use a smaller --size"
                         % (100 * resident, fixture.name))
    for server in servers:
        bench_servers.check_identical(server, load.kind)
        load.run(server, 0, 1, ["--requests", 1])


def measure(load, servers, cells, rounds, duration_s, warm_up=True):
    """Returns {(range, connections): {server name: [one result per round]}}. A first round does not count: it touches
    mappings, and on a virtual machine the memory behind the socket buffers, for the first time."""
    samples = {cell: {s.name: [] for s in servers} for cell in cells}
    for turn in range(-1 if warm_up else 0, rounds):
        for number_of_cell, (range_bytes, connections) in enumerate(cells):
            for server in rotated(servers, turn + number_of_cell):
                result = load.run(server, range_bytes, connections, ["--duration", duration_s], seed=turn + 2)
                if turn >= 0:
                    samples[range_bytes, connections][server.name].append(result)
        print("round %d of %d done" % (turn + 1, rounds), file=sys.stderr)
    return samples


def summarize(samples, names):
    """Returns one row per cell and server: medians, and the ratios to every reference that ran."""
    rows = []
    for (range_bytes, connections), of_server in samples.items():
        for name in names:
            mine = of_server[name]
            row = {"range_bytes": range_bytes, "connections": connections, "server": name}
            row.update({key: median([s[key] for s in mine]) for key in KEYS})
            for other in names:
                if other != name:
                    row["rate_vs_" + other] = median_ratio(mine, of_server[other], "gb_per_s")
                    row["cpu_vs_" + other] = median_ratio(mine, of_server[other], "server_cpu_s_per_gb")
            row["client_bound"] = client_bound(row)
            rows.append(row)
    return rows


def client_bound(row):
    """Returns whether the client used more than half of the processor time. Client and server then compete for it, and
    the rate says as much about the client."""
    return row["client_processors"] > 0.5 * (os.cpu_count() or 1)


def rate_table(rows, names):
    variants = [n for n in names if n.startswith("tensord-")]
    references = [n for n in names if n not in ["tensord"] + variants] + (["tensord"] if variants else [])
    columns = ["range", "conns", "server", "GB/s", "req/s", "p50 us", "p99 us", "CPU s/GB", "client CPU s/GB"]
    columns += ["rate / " + SHORT.get(n, n) for n in references]
    columns += ["CPU / " + SHORT.get(n, n) for n in references if n != "raw"]
    lines = []
    for r in rows:
        line = [bytes_text(r["range_bytes"]), r["connections"], r["server"], number(r["gb_per_s"]),
                number(r["requests_per_s"], 0 if r["requests_per_s"] >= 100 else 1), number(r["p50_us"], 0),
                number(r["p99_us"], 0), number(r["server_cpu_s_per_gb"], 3), number(r["client_cpu_s_per_gb"], 3)]
        line += [times(r.get("rate_vs_" + n)) for n in references]
        line += [times(r.get("cpu_vs_" + n)) for n in references if n != "raw"]
        lines.append(line)
    return table(columns, lines)


def add_targets(targets, rows, names, congestion, reader):
    """Adds the targets against plain nginx, which they name; nginx with tcp_nopush is only in the table. The limits
    depend on the congestion control, which paces nginx on the loopback device, and on what the client does with the
    bytes."""
    by_cell = {(r["range_bytes"], r["connections"], r["server"]): r for r in rows}
    for (range_bytes, connections, name), r in by_cell.items():
        if name != "tensord":
            continue
        cell = "%s, %s" % (bytes_text(range_bytes), connections_text(connections))
        raw = by_cell.get((range_bytes, connections, "sendfile"), {})
        if range_bytes < 1 << 20:
            rate, cost = (1.2 if range_bytes <= 4 << 10 and connections >= 64 else 1.0), 1.05
        elif congestion == "bbr":
            rate, cost = 2.5, 0.35
        else:
            rate, cost = (1.5, 0.9) if reader == "discard" else (0.95, 1.1)
        if "nginx" in names:
            targets.at_least("rate / nginx, " + cell, r["rate_vs_nginx"], rate, raw=raw.get("rate_vs_nginx"))
            targets.at_most("CPU / nginx, " + cell, r["cpu_vs_nginx"], cost, raw=raw.get("cpu_vs_nginx"))
        if "sendfile" in names and range_bytes >= 1 << 20 and reader == "copy":
            targets.at_least("rate / sendfile, " + cell, r["rate_vs_sendfile"], 0.95)
        if "before" in names:
            targets.at_least("rate / before, " + cell, r["rate_vs_before"], 0.97)


def ways_text(server):
    """Returns what distinguishes a tensord, and the shares of the ways by which it sent bodies, for the report."""
    ways = {way: count for way, count in server.ways().items() if count}
    total = sum(ways.values())
    return "%s: %s; answers by way: %s" % (server.name, server.about, ", ".join(
        "%s %.0f%%" % (way, 100 * count / total) for way, count in sorted(ways.items(), key=lambda w: -w[1])))


def run(load, servers, fixture, options, congestion):
    cells = [(size, connections) for size in options.sizes for connections in options.connections
             if size <= fixture.tensor_bytes]
    names = [s.name for s in servers]
    for server in servers:
        server.start()
    try:
        prepare(load, servers, fixture)
        copy_gb = bench_fixture.copy_rate_gb(fixture.path)
        samples = measure(load, servers, cells, options.rounds, options.duration, not options.quick)
        ways = [ways_text(s) for s in servers if s.about]
    finally:
        for server in servers:
            server.stop()
    rows = summarize(samples, names)
    targets = Targets()
    add_targets(targets, rows, names, congestion, load.reader)
    note = disturbed_note([s for cell in samples.values() for of in cell.values() for s in of])
    about = ["one page-cached safetensors file, %s; `%s` URLs on tensord; ranges at random 4 KiB aligned offsets"
             % (bytes_text(fixture.tensor_bytes), load.kind),
             "%d interleaved rounds of %g s; every number is a median over the rounds, every ratio the median of "
             "the rounds' ratios" % (options.rounds, options.duration),
             "one processor copies this mapped file at %.1f GB/s (%.3f CPU s/GB) on this machine"
             % (copy_gb, 1 / copy_gb)]
    about += ways
    about.insert(0, "congestion control %s; the client %s" % (congestion, load.reader_text()))
    title = "Throughput, page-cached, %s, %s" % (congestion, load.reader)
    return {"mode": "throughput", "title": title, "about": about + ([note] if note else []),
            "table": rate_table(rows, names), "targets": targets, "rows": rows, "copy_gb_per_s": copy_gb,
            "congestion": congestion, "reader": load.reader,
            "samples": [{"range_bytes": c[0], "connections": c[1], "servers": v} for c, v in samples.items()]}
