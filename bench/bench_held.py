"""Measures many connections that clients hold open: the rate of short ranges beside idle ones, and how fast 10,000 are
accepted and answered, in how much memory."""

import contextlib
import json
import resource
import subprocess
import sys
import time

import bench_servers
import bench_throughput
from bench_load import disturbed_note
from bench_report import Targets, bytes_text, median, median_ratio, number, table, times
from bench_servers import BenchError

RANGE_BYTES = 4 << 10
CONNECTIONS = 64  # that work, beside the idle ones
SETTLE_S = 0.5
RETURN_S = 10  # how long a server may take to notice that clients have closed their connections
MEMORY_LIMIT_MIB = 400  # for 10,000 connections
MOST_CONNECTIONS = 28_000  # ports that a client of one address has at Linux's default
OTHER_FILES = 20_000  # descriptors of a server beside those of connections: tensord keeps 16,384 files mapped at most
MIB = 1 << 20


class Holder:
    """Connections that were each answered one short range and stay open. within: closes them at the end."""

    def __init__(self, binary, server, kind, count):
        path, size, _ = server.target(kind)
        self.server, self.count, self.opened = server, count, None
        self.command = [binary, str(server.port), path, str(size), str(RANGE_BYTES), str(count)]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise BenchError("%s, %d connections held: %s; server: %s" % (
                self.server.name, self.count, self.process.communicate()[1].strip(), self.server.last_log()))
        self.opened = json.loads(line)
        return self

    def __exit__(self, kind, *unused):
        out, err = self.process.communicate()
        if kind is not None:
            return
        if self.process.returncode != 0:
            raise BenchError("hold_connections: %s" % err.strip())
        ended = json.loads(out)["ended"]
        if ended:
            raise BenchError("%s ended %d of %d connections that were held: %s"
                             % (self.server.name, ended, self.count, self.server.last_log()))


@contextlib.contextmanager
def descriptors(connections):
    """Raises the limit on open files, which the servers and the client inherit, and puts it back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    try:
        if hard == resource.RLIM_INFINITY or hard >= wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        else:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
    except (OSError, ValueError):  # not root
        if hard < connections + 200:
            raise BenchError("%d connections need %d open files, the limit is %d: run as root, or with fewer "
                             "(--held-connections)" % (connections, connections + 200, hard)) from None
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def kernel_bytes():
    """Returns the memory that the kernel has for stacks of threads and page tables, of all processes together."""
    with open("/proc/meminfo") as f:
        fields = dict(line.split(":") for line in f)
    return sum(int(fields[name].split()[0]) for name in ("KernelStack", "PageTables")) * 1024


def state_of(server):
    return {"anonymous_bytes": server.anon_bytes(), "unmapped_bytes": server.unmapped_bytes(),
            "kernel_bytes": kernel_bytes(), "threads": server.threads()}


# ---- rates beside idle connections ----

def measure_rates(load, holder, servers, idle, options):
    """Returns {server name: {"alone": [result per round], "beside": [likewise]}}. In every other round the run beside
    idle connections comes first."""
    samples = {s.name: {"alone": [], "beside": []} for s in servers}
    for turn in range(0 if options.quick else -1, options.rounds):
        for server in bench_throughput.rotated(servers, turn):
            for how in bench_throughput.rotated(["alone", "beside"], turn):
                with holder(server, idle) if how == "beside" else contextlib.nullcontext():
                    result = load.run(server, RANGE_BYTES, CONNECTIONS, ["--duration", options.duration], seed=turn + 2)
                if turn >= 0:
                    samples[server.name][how].append(result)
        print("round %d of %d beside idle connections done" % (turn + 1, options.rounds), file=sys.stderr)
    return samples


def rate_rows(samples):
    rows = []
    for name, of in samples.items():
        row = {"server": name, "ratio": median_ratio(of["beside"], of["alone"], "requests_per_s")}
        for how in ("alone", "beside"):
            for key in ("requests_per_s", "p50_us", "p99_us", "server_cpu_us_per_request"):
                row["%s_%s" % (how, key)] = median([s[key] for s in of[how]])
        if "nginx" in samples:
            row["beside_vs_nginx"] = median_ratio(of["beside"], samples["nginx"]["beside"], "requests_per_s")
        rows.append(row)
    return rows


def rate_table(rows, idle):
    return table(["server", "req/s alone", "req/s beside %d idle" % idle, "beside / alone", "p50 us", "p50 us beside",
                  "p99 us", "p99 us beside", "CPU us/req", "CPU us/req beside", "rate beside / nginx"],
                 [[r["server"], number(r["alone_requests_per_s"], 0), number(r["beside_requests_per_s"], 0),
                   times(r["ratio"]), number(r["alone_p50_us"], 0), number(r["beside_p50_us"], 0),
                   number(r["alone_p99_us"], 0), number(r["beside_p99_us"], 0),
                   number(r["alone_server_cpu_us_per_request"], 1), number(r["beside_server_cpu_us_per_request"], 1),
                   times(r.get("beside_vs_nginx")) if r["server"] != "nginx" else "-"] for r in rows])


# ---- many connections ----

def closed(server, before):
    """Waits until the server has about as many descriptors as before (nginx may have opened the file in its other
    worker), and returns the seconds that this took."""
    start = time.monotonic()
    while server.descriptors() > before + 4:
        if time.monotonic() > start + RETURN_S:
            raise BenchError("%s has %d descriptors %d s after all connections were closed, %d before them"
                             % (server.name, server.descriptors(), RETURN_S, before))
        time.sleep(0.01)
    return time.monotonic() - start


def measure_held(load, holder, server, count):
    """Starts the server, and opens and closes `count` connections."""
    with server:
        load.run(server, RANGE_BYTES, CONNECTIONS, ["--requests", 10_000])
        time.sleep(SETTLE_S)
        descriptors_before, before, cpu_s = server.descriptors(), state_of(server), server.cpu_s()
        with holder(server, count) as held:
            cpu_s = server.cpu_s() - cpu_s
            time.sleep(SETTLE_S)
            cpu_idle_s = server.cpu_s()
            time.sleep(2 * SETTLE_S)
            cpu_idle_s = server.cpu_s() - cpu_idle_s
            while_held = state_of(server)
        close_s = closed(server, descriptors_before)
        time.sleep(SETTLE_S)
        after = state_of(server)
    return {"server": server.name, "connections": count, "seconds": held.opened["seconds"],
            "connections_per_s": count / held.opened["seconds"], "server_cpu_us_per_connection": cpu_s / count * 1e6,
            "client_cpu_us_per_connection": held.opened["client_cpu_s"] / count * 1e6,
            "idle_processors": cpu_idle_s / (2 * SETTLE_S), "close_s": close_s,
            "before": before, "held": while_held, "after": after}


def held_rows(runs):
    """Returns one row per server: medians over its runs."""
    rows = []
    for of in runs.values():
        row = {"server": of[0]["server"], "connections": of[0]["connections"]}
        for key in of[0]:
            if isinstance(of[0][key], float):
                row[key] = median([r[key] for r in of])
        for when in ("before", "held", "after"):
            row[when] = {key: median([r[when][key] for r in of]) for key in of[0][when]}
        row["kib_per_connection"] = (row["held"]["unmapped_bytes"]
                                     - row["before"]["unmapped_bytes"]) / 1024 / row["connections"]
        rows.append(row)
    return rows


def held_table(rows):
    mib = lambda r, key: number(r[key] / MIB, 1)  # noqa: E731
    return table(["server", "connections", "accepted/s", "CPU us/conn", "client CPU us/conn", "processors while idle",
                  "threads", "RssAnon MiB before", "held", "after", "unmapped MiB held", "KiB/conn", "kernel MiB",
                  "closed after s"],
                 [[r["server"], number(r["connections"], 0), number(r["connections_per_s"], 0),
                   number(r["server_cpu_us_per_connection"], 1), number(r["client_cpu_us_per_connection"], 1),
                   number(r["idle_processors"], 3), number(r["held"]["threads"], 0),
                   mib(r["before"], "anonymous_bytes"), mib(r["held"], "anonymous_bytes"),
                   mib(r["after"], "anonymous_bytes"), mib(r["held"], "unmapped_bytes"),
                   number(r["kib_per_connection"], 1),
                   number((r["held"]["kernel_bytes"] - r["before"]["kernel_bytes"]) / MIB, 1),
                   number(r["close_s"])] for r in rows])


# ---- both ----

def run(load, make_servers, binary, fixture, options):
    """make_servers: makes the servers for so many connections at once."""
    idle = 200 if options.quick else 1000
    count = options.held_connections or (200 if options.quick else 10_000)
    servers = make_servers(max(count, idle) + 2 * CONNECTIONS)
    if not servers:
        raise BenchError("--held is about tensord and nginx: name one of them with --servers")
    names = [s.name for s in servers]
    holder = lambda server, connections: Holder(binary, server, load.kind, connections)  # noqa: E731
    runs = {name: [] for name in names}
    with descriptors(max(count, idle) + 2 * CONNECTIONS):
        with contextlib.ExitStack() as started:
            for server in servers:
                started.enter_context(server)
            bench_throughput.prepare(load, servers, fixture)
            samples = measure_rates(load, holder, servers, idle, options)
        for turn in range(options.rounds):
            for server in bench_throughput.rotated(servers, turn):
                runs[server.name].append(measure_held(load, holder, server, count))
            print("round %d of %d of held connections done" % (turn + 1, options.rounds), file=sys.stderr)
    rates, held = rate_rows(samples), held_rows(runs)
    targets = Targets()
    for r in held:
        if r["server"] == "tensord":
            targets.at_most("MiB of memory, not mapped files, with %s connections" % number(count, 0),
                            r["held"]["unmapped_bytes"] / MIB, MEMORY_LIMIT_MIB, lambda v: number(v, 1))
    note = disturbed_note([s for of in samples.values() for how in of.values() for s in how])
    about = ["ranges of %s on %d connections, alone and beside %d more that were each answered one such range and then "
             "idle; %d interleaved rounds of %g s" % (bytes_text(RANGE_BYTES), CONNECTIONS, idle, options.rounds,
                                                      options.duration),
             "%s connections that one client opens as fast as it can, each asking for one range of %s, at most 64 of "
             "them at once, and holds open; the server is started anew in each of %d rounds"
             % (number(count, 0), bytes_text(RANGE_BYTES), options.rounds),
             "every number is a median over the rounds, every ratio the median of the rounds' ratios"]
    return {"mode": "held", "title": "Connections that are held open", "about": about + ([note] if note else []),
            "table": rate_table(rates, idle) + "\n\n" + held_table(held), "targets": targets,
            "rows": {"rates": rates, "held": held}, "samples": {"rates": samples, "held": runs}}
