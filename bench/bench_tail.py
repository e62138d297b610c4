"""Measures how long short ranges take while other clients stream long ones, make plans of a very large model, or both,
beside the same ranges from an idle server."""

import contextlib
import http.client
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time

import bench_fixture
import bench_servers
import bench_throughput
from bench_report import Targets, bytes_text, median, median_ratio, number, table, times
from bench_servers import BenchError

PING_BYTES = 4 << 10
PING_INTERVAL_US = 1000
STREAM_BYTES = 256 << 20
STREAMS = 64
PLANNERS = 8
TENSORS = 100_000
RUN_FACTOR = 5  # a run takes so many times --duration: a p99 needs thousands of answers
WORST = 2.0  # p99 beside everything, by that of an idle server
MODEL = "many.safetensors"

# What else the server does meanwhile: (streams, plans).
LOADS = {"nothing": (False, False), "streams": (True, False), "plans": (False, True), "both": (True, True)}


class Planners:
    """Clients that register one plan after the other, each another one. within: runs them. Its end raises BenchError
    if an answer was not a new plan."""

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


class Streams:
    """Clients that fetch one long range after the other. within: runs them. Its end ends them, and raises BenchError if
    there was an error."""

    def __init__(self, load, server, nbytes, seed):
        self.server, self.gb_per_s = server, None
        self.command = load.command(server, nbytes, STREAMS, ["--duration", 3600, "--cut"], seed)

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return self

    def __exit__(self, kind, *unused):
        self.process.terminate()
        out, err = self.process.communicate()
        if kind is not None:
            return
        result = json.loads(out) if out else {"errors": 1, "first_error": err.strip()}
        if result["errors"] or not result["bytes"]:
            raise BenchError("%s: %d errors of streams; first: %s; server: %s" % (
                self.server.name, result["errors"], result["first_error"], self.server.last_log()))
        self.gb_per_s = result["gb_per_s"]


def make_root(directory, fixture, tensors):
    """Returns a directory with the fixture's file and a model of many tensors."""
    root = os.path.join(directory, "tail-root")
    os.makedirs(root, exist_ok=True)
    for name in os.listdir(root):
        os.unlink(os.path.join(root, name))
    os.link(fixture.path, os.path.join(root, fixture.name))
    bench_fixture.write_small(os.path.join(root, MODEL), bench_fixture.tensor_names(tensors))
    return root


def measure(load, stream_load, server, what, seconds, settle_s, seed):
    """Returns the load client's result of the short ranges, with what the other clients were answered meanwhile."""
    with_streams, with_plans = LOADS[what]
    nbytes = min(STREAM_BYTES, server.fixture.tensor_bytes)
    streams = planners = None
    with contextlib.ExitStack() as running:
        if with_streams:
            streams = running.enter_context(Streams(stream_load, server, nbytes, seed))
        if with_plans:
            planners = running.enter_context(Planners(server))
        time.sleep(settle_s)
        start, before = time.monotonic(), len(planners.ids) if planners else 0
        result = load.run(server, PING_BYTES, 1, ["--interval", PING_INTERVAL_US, "--duration", seconds], seed)
        if planners:
            result["plans_per_s"] = (len(planners.ids) - before) / (time.monotonic() - start)
    if streams:
        result["stream_gb_per_s"] = streams.gb_per_s
    return result


def summarize(samples):
    """Returns a row for each server and what it did meanwhile: medians over the rounds, the largest of all waits."""
    rows = []
    for name, of in samples.items():
        for what, mine in of.items():
            row = {"server": name, "beside": what, "requests": sum(s["requests"] for s in mine),
                   "max_us": max(s["max_us"] for s in mine), "late_max_us": max(s["late_max_us"] for s in mine)}
            for key in ("p50_us", "p99_us", "late_p50_us", "late_p99_us", "stream_gb_per_s", "plans_per_s"):
                row[key] = median([s.get(key) for s in mine])
            if what != "nothing":
                for key in ("p50_us", "p99_us", "max_us"):
                    row[key.replace("_us", "_vs_idle")] = median_ratio(mine, of["nothing"], key)
            rows.append(row)
    return rows


def tail_table(rows):
    return table(["server", "beside", "answers", "p50 us", "p99 us", "max us", "p50 / idle", "p99 / idle", "max / idle",
                  "client late p50 us", "p99 us", "max us", "streams GB/s", "plans/s"],
                 [[r["server"], r["beside"], number(r["requests"], 0), number(r["p50_us"], 0), number(r["p99_us"], 0),
                   number(r["max_us"], 0), times(r.get("p50_vs_idle")), times(r.get("p99_vs_idle")),
                   times(r.get("max_vs_idle")), number(r["late_p50_us"], 0), number(r["late_p99_us"], 0),
                   number(r["late_max_us"], 0), number(r["stream_gb_per_s"]), number(r["plans_per_s"], 1)]
                  for r in rows])


def run(load, stream_load, make_servers, directory, fixture, options):
    """make_servers: makes the servers of a directory. stream_load: the load client for the streams."""
    tensors = 2000 if options.quick else TENSORS
    seconds, settle_s = options.duration * (1 if options.quick else RUN_FACTOR), 0.2 if options.quick else 1.0
    servers = make_servers(make_root(directory, fixture, tensors))
    samples = {s.name: {what: [] for what, (_, plans) in LOADS.items() if s.name == "tensord" or not plans}
               for s in servers}
    with contextlib.ExitStack() as started:
        for server in servers:
            started.enter_context(server)
        bench_throughput.prepare(load, servers, fixture)
        for turn in range(0 if options.quick else -1, options.rounds):
            for server in bench_throughput.rotated(servers, turn):
                for what in bench_throughput.rotated(list(samples[server.name]), turn):
                    result = measure(load, stream_load, server, what, seconds, settle_s, turn + 2)
                    if turn >= 0:
                        samples[server.name][what].append(result)
            print("round %d of %d done" % (turn + 1, options.rounds), file=sys.stderr)
    rows = summarize(samples)
    targets = Targets()
    for r in rows:
        if (r["server"], r["beside"]) == ("tensord", "both"):
            targets.at_most("p99 of %s ranges beside %d streams and %d clients that make plans / p99 of an idle server"
                            % (bytes_text(PING_BYTES), STREAMS, PLANNERS), r["p99_vs_idle"], WORST)
    about = ["ranges of %s on one connection, a request every %g ms unless the answer before it has not come; %d "
             "interleaved rounds of %g s" % (bytes_text(PING_BYTES), PING_INTERVAL_US / 1000, options.rounds, seconds),
             "streams: ranges of %s on %d connections without end, whose client %s; plans: %d clients, each of which "
             "registers one plan after the other for 2 ranks of a model of %s tensors, none twice"
             % (bytes_text(min(STREAM_BYTES, fixture.tensor_bytes)), STREAMS, stream_load.reader_text(), PLANNERS,
                number(tensors, 0)),
             "medians over the rounds, the largest of all rounds as max; every ratio is the median of the rounds' "
             "ratios",
             "client late: by how much the client's own pauses between requests came out too long. So long it waited "
             "for a processor, beside the same load; its latencies include such waits. It stands for a client on a "
             "machine of its own, and has the highest priority that it may have: nice -20 for root"]
    return {"mode": "tail", "title": "Short ranges beside long ones and plans", "about": about,
            "table": tail_table(rows), "targets": targets, "rows": rows, "samples": samples}
