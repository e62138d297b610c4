"""Many connections to one server: memory while they transfer, connections that are held open, and short ranges beside
long ones and plans."""

import contextlib
import http.client
import itertools
import json
import os
import re
import resource
import select
import socket
import subprocess
import threading
import time

import files
from clients import checked, disturbed_note
from measure import (BenchError, at_most, by_turns, bytes_text, number, result, rounds_text, rows_table,
                     summarize, times)
from servers import MemoryWatch
from works.ranges import prepare

MIB = 1 << 20
SETTLE_S = 0.5
SHORT_BYTES = 4 << 10

# ---- anonymous memory amid large transfers

STEP_S = 0.05
STEP_BYTES = 64 << 10


def slow_open(server, path, ranges, status=b"206"):
    """Opens connections that each ask for one (offset, length), or without one for the whole path, and read almost
    nothing of the answers. Returns their sockets."""
    sockets = []
    for given in ranges:
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STEP_BYTES)
        s.settimeout(10)
        s.connect(("127.0.0.1", server.port))
        field = "Range: bytes=%d-%d\r\n" % (given[0], sum(given) - 1) if given else ""
        s.sendall(("GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (path, field)).encode())
        sockets.append(s)
    for s in sockets:
        head = s.recv(4096)
        if not head.startswith(b"HTTP/1.1 " + status):
            raise BenchError("%s: a slow connection got %r" % (server.name, head[:60]))
    return sockets


def slow_read(sockets, seconds):
    """Reads STEP_BYTES per connection and step. A connection that ends is an error."""
    end = time.monotonic() + seconds
    buffer = bytearray(STEP_BYTES)
    while time.monotonic() < end:
        readable, _, _ = select.select(sockets, [], [], STEP_S)
        for s in readable:
            if s.recv_into(buffer) == 0:
                raise BenchError("a slow connection was closed within its transfer")
        time.sleep(STEP_S)


def memory_of(load, server, connections, nbytes, seconds, settle_s):
    """Returns a row: the RssAnon of a fresh server before, during and after transfers."""
    path, size, _ = server.target(load.kind)
    with server:
        load.run(server, nbytes, 1, ["--requests", 1])
        time.sleep(settle_s)
        base = server.anon_bytes()
        with MemoryWatch(server) as slow:
            sockets = slow_open(server, path, [(i % (size // nbytes) * nbytes, nbytes) for i in range(connections)])
            slow_read(sockets, seconds)
        for s in sockets:
            s.close()
        time.sleep(settle_s)
        with MemoryWatch(server) as fast:
            load.run(server, nbytes, connections, ["--duration", seconds])
        time.sleep(settle_s)
        return {"server": server.name, "base": base, "slow": slow.peak, "fast": fast.peak,
                "after": server.anon_bytes(), "slow_each": max(0, slow.peak - base) / connections,
                "fast_each": max(0, fast.peak - base) / connections}


def memory(bench):
    connections, seconds, settle_s = (16, 0.3, 0.1) if bench.quick else (64, 3, SETTLE_S)
    nbytes = min(bench.fixture.tensor_bytes, 256 << 20)
    rows = [memory_of(bench.load(), server, connections, nbytes, seconds, settle_s) for server in bench.servers()
            if server.name != "raw"]
    columns = [("server", "server")] + [(title, key, digits, 1 / 1024) for title, key, digits in (
        ("RssAnon idle KiB", "base", 0), ("slow peak KiB", "slow", 0), ("slow KiB/conn", "slow_each", 1),
        ("full speed peak KiB", "fast", 0), ("full speed KiB/conn", "fast_each", 1), ("after KiB", "after", 0))]
    about = ["%d connections in the middle of %s transfers: slow ones that read 64 KiB every %d ms, then the same "
             "number at full speed; RssAnon of all the server's processes, sampled every 5 ms"
             % (connections, bytes_text(nbytes), STEP_S * 1000)]
    return result("Anonymous memory per active connection", about, [rows_table(rows, columns)], [
        at_most("anonymous KiB per active connection, %s" % how, r[how + "_each"] / 1024, 1024, lambda v: number(v, 1))
        for r in rows if r["server"] == "tensord" for how in ("slow", "fast")], rows)


# ---- connections that are held open

WORKING = 64  # connections that work beside the idle ones
RETURN_S = 10  # how long a server may take to notice that clients have closed their connections
MEMORY_LIMIT_MIB = 400  # for 10,000 connections
MOST_CONNECTIONS = 28_000  # ports that a client of one address has at Linux's default
OTHER_FILES = 20_000  # descriptors of a server beside those of connections: tensord keeps 16,384 files mapped at most


class Holder:
    """Connections that were each answered one short range and stay open; a context that closes them at its end."""

    def __init__(self, program, server, kind, count):
        path, size, _ = server.target(kind)
        self.server, self.count, self.opened = server, count, None
        self.command = [program, str(server.port), path, str(size), str(SHORT_BYTES), str(count)]

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
    """Raises the limit on open files, which the servers and the client inherit, and restores it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    try:
        unlimited = hard == resource.RLIM_INFINITY or hard >= wanted
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard if unlimited else wanted))
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


def wait_closed(server, before):
    """Waits until the server has about as many descriptors as before (nginx may have opened the file in its other
    worker), and returns the seconds that this took."""
    start = time.monotonic()
    server.wait_for(lambda: server.descriptors() <= before + 4, "rid of the connections that were closed", RETURN_S,
                    0.01)
    return time.monotonic() - start


def held_run(load, holder, server, count, settle_s):
    """Starts the server, and opens and closes `count` connections."""
    with server:
        load.run(server, SHORT_BYTES, WORKING, ["--requests", 10_000])
        time.sleep(settle_s)
        before, anon, unmapped = server.descriptors(), server.anon_bytes(), server.unmapped_bytes()
        kernel, cpu_s = kernel_bytes(), server.cpu_s()
        with holder(server, count) as held:
            cpu_s = server.cpu_s() - cpu_s
            time.sleep(settle_s)
            idle_s = server.cpu_s()
            time.sleep(2 * settle_s)
            idle_s = server.cpu_s() - idle_s
            sample = {"threads": server.threads(), "anon_held": server.anon_bytes(),
                      "unmapped_held": server.unmapped_bytes(), "kernel": kernel_bytes() - kernel}
        close_s = wait_closed(server, before)
        time.sleep(settle_s)
        return {**sample, "anon_before": anon, "anon_after": server.anon_bytes(), "connections": count,
                "each": (sample["unmapped_held"] - unmapped) / count, "per_s": count / held.opened["seconds"],
                "cpu_us": cpu_s / count * 1e6, "client_cpu_us": held.opened["client_cpu_s"] / count * 1e6,
                "idle_processors": idle_s / (2 * settle_s), "close_s": close_s}


HELD_COLUMNS = [
    ("server", "server"), ("connections", "connections", 0), ("accepted/s", "per_s", 0), ("CPU us/conn", "cpu_us", 1),
    ("client CPU us/conn", "client_cpu_us", 1), ("processors while idle", "idle_processors", 3),
    ("threads", "threads", 0), ("RssAnon MiB before", "anon_before", 1, 1 / MIB), ("held", "anon_held", 1, 1 / MIB),
    ("after", "anon_after", 1, 1 / MIB), ("unmapped MiB held", "unmapped_held", 1, 1 / MIB),
    ("KiB/conn", "each", 1, 1 / 1024), ("kernel MiB", "kernel", 1, 1 / MIB), ("closed after s", "close_s", 2)]
BESIDE_COLUMNS = [
    ("server", "server"), ("connections", "how"), ("req/s", "requests_per_s", 0), ("p50 us", "p50_us", 0),
    ("p99 us", "p99_us", 0), ("CPU us/req", "server_cpu_us_per_request", 1),
    ("rate beside / alone", "rate / alone", times)]


def held(bench):
    options, load = bench.options, bench.load()
    idle, count, settle_s = (200, 200, 0.1) if bench.quick else (1000, 10_000, SETTLE_S)
    count = options.held_connections or count
    most = max(count, idle) + 2 * WORKING
    compared = bench.servers(connections=most)
    program = bench.program("hold_connections")

    def holder(server, connections):
        return Holder(program, server, load.kind, connections)

    def beside(server, how):
        def run(turn):
            with holder(server, idle) if how == "beside" else contextlib.nullcontext():
                return load.run(server, SHORT_BYTES, WORKING, ["--duration", options.duration], seed=turn + 1)
        return run

    with descriptors(most):
        with bench.started(compared):
            prepare(load, compared, bench.fixture)
            samples = by_turns({(s.name,): {how: beside(s, how) for how in ("alone", "beside")} for s in compared},
                               options.rounds, not bench.quick, "held, beside idle ones")
        held_samples = by_turns({(): {s.name: lambda _, s=s: held_run(load, holder, s, count, settle_s)
                                      for s in compared}}, options.rounds, False, "held")
    rows = summarize(samples, ("server",), {"rate": "requests_per_s"}, "how")
    held_rows = summarize(held_samples)
    about = ["ranges of %s on %d connections, alone and beside %d more that were each answered one such range and then "
             "idle" % (bytes_text(SHORT_BYTES), WORKING, idle),
             "%s connections that one client opens as fast as it can, each asking for one range of %s, at most 64 of "
             "them at once, and holds open; the server is started again in each of %d rounds"
             % (number(count, 0), bytes_text(SHORT_BYTES), options.rounds),
             rounds_text(options), disturbed_note(samples)]
    return result("Connections that are held open", about,
                  [rows_table(rows, BESIDE_COLUMNS), rows_table(held_rows, HELD_COLUMNS)],
                  [at_most("MiB of memory, not mapped files, with %s connections" % number(count, 0),
                           r["unmapped_held"] / MIB, MEMORY_LIMIT_MIB, lambda v: number(v, 1))
                   for r in held_rows if r["server"] == "tensord"], [*rows, *held_rows], {**samples, **held_samples})


# ---- short ranges beside long ones and plans

INTERVAL_US = 1000
STREAMS, STREAM_BYTES = 64, 256 << 20
PLANNERS = 8
RUN_FACTOR = 5  # a run takes so many times --duration: a p99 needs thousands of answers
WORST = 2.0  # p99 beside everything, by that of an idle server
MODEL = "many.safetensors"
LOADS = {"nothing": (False, False), "streams": (True, False), "plans": (False, True), "both": (True, True)}


class Planners:
    """Clients that register one plan after the other, each another one; a context that runs them. Its end raises
    BenchError if an answer was not a new plan."""

    numbers = itertools.count()  # of all plans, because a server keeps those of earlier rounds

    def __init__(self, server):
        self.server, self.ids, self.error = server, set(), None
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(PLANNERS)]

    def _run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)
        try:
            while not self._stop.is_set():
                rules = [{"match": "none.%d" % next(self.numbers), "whole": True}, {"match": "**", "uneven": "chunk"}]
                connection.request("POST", "/models/%s/plans" % MODEL, json.dumps({"tp_size": 2, "rules": rules}))
                answer = connection.getresponse()
                start = answer.read(200)
                plan = re.match(rb'{"id":"(\w+)"', start)
                if answer.status != 201 or not plan or plan[1] in self.ids:
                    raise BenchError("status %d, and not a new plan: %s" % (answer.status, start))
                while answer.read(1 << 20):  # megabytes, whose parsing would load the machine more than planning
                    pass
                self.ids.add(plan[1])
        except (OSError, http.client.HTTPException, BenchError) as error:
            self.error = self.error or "%s: POST plans: %r" % (self.server.name, error)
        finally:
            connection.close()

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind, *unused):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if kind is None and self.error:
            raise BenchError(self.error)


@contextlib.contextmanager
def streams(load, server, nbytes, seed, found):
    """Runs clients that fetch one long range after the other, and puts their rate into `found` at the end."""
    process = subprocess.Popen(load.command(server, nbytes, STREAMS, ["--duration", 3600, "--cut"], seed),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield
    finally:
        process.terminate()
        ended = subprocess.CompletedProcess(process.args, 0, *process.communicate())
    found["stream_gb_per_s"] = checked(ended, server, server.name + ", streams", "bytes")["gb_per_s"]


def tail_run(load, stream_load, server, what, seconds, settle_s, seed):
    """Returns the load client's result of the short ranges, with what the other clients were answered beside it."""
    with_streams, with_plans = LOADS[what]
    found, planners = {}, None
    with contextlib.ExitStack() as running:
        if with_streams:
            running.enter_context(streams(stream_load, server, min(STREAM_BYTES, server.fixture.tensor_bytes), seed,
                                          found))
        if with_plans:
            planners = running.enter_context(Planners(server))
        time.sleep(settle_s)
        start, before = time.monotonic(), len(planners.ids) if planners else 0
        sample = load.run(server, SHORT_BYTES, 1, ["--interval", INTERVAL_US, "--duration", seconds], seed)
        if planners:
            found["plans_per_s"] = (len(planners.ids) - before) / (time.monotonic() - start)
    return {**sample, **found}


TAIL_COLUMNS = [
    ("server", "server"), ("beside", "beside"), ("p50 us", "p50_us", 0), ("p99 us", "p99_us", 0),
    ("max us", "most_us", 0),
    *(("%s / idle" % short, "%s / nothing" % short, times) for short in ("p50", "p99", "max")),
    ("client late p50 us", "late_p50_us", 0), ("p99 us", "late_p99_us", 0), ("max us", "late_max_us", 0),
    ("streams GB/s", "stream_gb_per_s", 2), ("plans/s", "plans_per_s", 1)]


def tail(bench):
    tensors, settle_s = (2000, 0.2) if bench.quick else (100_000, 1.0)
    seconds = bench.options.duration * (1 if bench.quick else RUN_FACTOR)
    root, fixture = bench.linked_root("tail"), bench.fixture
    files.write_small(os.path.join(root, MODEL), tensors)
    load = bench.load()
    stream_load = bench.load(threads=bench.options.client_threads.replace("auto", str(os.cpu_count() or 1)))
    compared = [bench.tensord(root=root)] + ([bench.nginx()] if "nginx" in bench.options.servers else [])

    def way(server, what):
        return lambda turn: tail_run(load, stream_load, server, what, seconds, settle_s, turn + 1)

    with bench.started(compared):
        prepare(load, compared, fixture)
        samples = by_turns({(s.name,): {what: way(s, what) for what, (_, plans) in LOADS.items()
                                        if s.name == "tensord" or not plans} for s in compared},
                           bench.options.rounds, not bench.quick, "tail")
    rows = summarize(samples, ("server",), {"p50": "p50_us", "p99": "p99_us", "max": "max_us"}, "beside")
    for row in rows:
        row["most_us"] = max(s["max_us"] for s in samples[row["server"],][row["beside"]])
    about = ["ranges of %s on one connection, a request every %g ms unless the answer before it has not come"
             % (bytes_text(SHORT_BYTES), INTERVAL_US / 1000),
             "streams: ranges of %s on %d connections without end, %s; plans: %d clients that each register one plan "
             "after the other for 2 ranks of a model of %s tensors, none twice"
             % (bytes_text(min(STREAM_BYTES, fixture.tensor_bytes)), STREAMS, stream_load.reader_text(), PLANNERS,
                number(tensors, 0)),
             "%d rounds of %g s: medians, the largest of all rounds as max, and medians of the rounds' ratios"
             % (bench.options.rounds, seconds),
             "client late: by how much the client's own pauses between requests came out too long. So long it waited "
             "for a processor, beside the same load; its latencies include such waits. It stands for a client on a "
             "machine of its own, and has the highest priority that it may have: nice -20 for root"]
    return result("Short ranges beside long ones and plans", about, [rows_table(rows, TAIL_COLUMNS)], [
        at_most("p99 of %s ranges beside %d streams and %d clients that make plans / p99 of an idle server"
                % (bytes_text(SHORT_BYTES), STREAMS, PLANNERS), r["p99 / nothing"], WORST)
        for r in rows if (r["server"], r["beside"]) == ("tensord", "both")], rows, samples)
