"""`tensord pull` beside curl, aria2c and `hf download`: one file over the loopback interface, round after round, into a
new directory each time.

The clients take turns, first as fast as the loopback interface is, then (--limit) through a relay that sends at most so
many bytes per second on each connection, as a path or a server does that bounds a single one. With --delay the last of
these parts is repeated through a relay that also delays each request, as a long way does. `tensord pull` checks the
SHA-256 of what it has received and syncs the file. aria2c checks it when it has received everything; curl does so where
openssl follows it; `hf download` does not. None of these syncs. Times include the start of each program; CPU seconds
are the client's alone."""

import json
import os
import shutil
import socket
import subprocess
import threading
import time

import files
import servers
from measure import BenchError, by_turns, bytes_text, median_of, median_ratio, number, result, table

MODEL = "bench/m"
NAME = "model.safetensors"
SO_MAX_PACING_RATE = 47  # of Linux; bytes per second


class Relay:
    """Passes connections on to a server, and answers back at no more than `rate` bytes per second on each of them. The
    kernel keeps the rate (SO_MAX_PACING_RATE) and moves the bytes (splice), so the relay takes little CPU time. A
    request waits for `delay` seconds, and the first one of a connection twice as long."""

    def __init__(self, server, rate, delay=0):
        self.server, self.rate, self.delay = (server.address, server.port), rate, delay
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            client.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, self.rate)
            server = socket.create_connection(self.server)
            for source, sink, delay in ((client, server, self.delay), (server, client, 0)):
                threading.Thread(target=self.move, args=(source, sink, delay), daemon=True).start()

    @staticmethod
    def move(source, sink, delay):
        """Moves bytes until either side ends."""
        out, into = os.pipe()
        time.sleep(delay)
        try:
            while (left := os.splice(source.fileno(), into, 1 << 20)) > 0:
                time.sleep(delay)
                while left > 0:
                    left -= os.splice(out, sink.fileno(), left)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the other side has closed
        finally:
            os.close(out)
            os.close(into)


def commands(bench, url, sha256, out):
    """Returns {name: (command, more environment)} of all clients. Some of their programs may be missing."""
    file_url, path = "%s/%s/resolve/main/%s" % (url, MODEL, NAME), os.path.join(out, NAME)
    pull = [bench.options.tensord, "pull", url, MODEL, "-o", out, "--quiet", "--connections"]
    aria = ["aria2c", "-q", "--file-allocation=none", "--checksum=sha-256=" + sha256, "-k", "1M", "-d", out, "-o", NAME,
            file_url]
    hub = {"HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
           "HF_HOME": os.path.join(bench.work, "home")}
    return {
        "curl": (["curl", "-s", "-o", path, file_url], {}),
        "curl, then openssl dgst -sha256": (
            ["sh", "-c", 'curl -s -o "$0" "$1" && openssl dgst -sha256 "$0"', path, file_url], {}),
        "tensord pull, 1 connection": ([*pull, "1"], {}), "aria2c, 1 connection": ([*aria, "-x", "1", "-s", "1"], {}),
        "tensord pull, 8 connections": ([*pull, "8"], {}), "aria2c, 8 connections": ([*aria, "-x", "8", "-s", "8"], {}),
        "hf download": ([os.path.join(os.path.dirname(bench.options.python), "hf"), "download", MODEL, "--local-dir",
                         out], hub),
    }


def fetch(command, environment, out, size):
    """Returns wall and CPU seconds of the command, after it was checked that the file has its length."""
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    begin, before = time.monotonic(), os.times()
    run = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    wall, after = time.monotonic() - begin, os.times()
    if run.returncode != 0 or os.path.getsize(os.path.join(out, NAME)) != size:
        raise BenchError("%s has not fetched %s: %s" % (command[0], NAME, run.stderr[-300:]))
    return {"seconds": wall, "cpu": after.children_user + after.children_system - before.children_user
            - before.children_system}


def compare(bench, url, sha256, size):
    """Measures all clients by turns. Returns their samples, and the table."""
    out = os.path.join(bench.directory, "pulled")
    known = commands(bench, url, sha256, out)
    ways = {name: lambda _, given=given: fetch(*given, out, size) for name, given in known.items()
            if shutil.which(given[0][0])}
    samples, cells = by_turns({(): ways}, bench.options.rounds, not bench.quick)[()], []
    for name in known:
        of = samples.get(name)
        if not of:
            cells.append([name, "not installed", "-", "-", "-"])
            continue
        rates = sorted(size / sample["seconds"] / 1e6 for sample in of)
        cells.append([name, number(size / median_of(of, "seconds") / 1e6, 0), "%.0f to %.0f" % (rates[0], rates[-1]),
                      number(median_ratio(of, samples["curl"], "seconds")), number(median_of(of, "cpu") / size * 1e9)])
    return samples, table(["client", "MB/s", "lowest to highest", "time / curl's in the same round", "CPU s/GB"], cells)


def run(bench):
    if not shutil.which("curl"):
        raise BenchError("curl is not installed, with which all others are compared")
    root = os.path.join(bench.directory, "pull-root")
    size = files.write_big(os.path.join(root, MODEL, NAME), bench.options.size).size
    tables, samples, limits = [], {}, bench.options.limit
    with bench.tensord(root=root, options=["--settle", "0", "--hash-threads", "1"]) as server:
        found = {}

        def hashed():
            found.update(json.loads(server.get("/api/models/%s/tree/main" % MODEL)[2])[0])
            return "lfs" in found

        server.wait_for(hashed, "done with hashing", 300, 0.2)
        parts = [("as fast as the loopback interface is", lambda: server.url())]
        parts += [("at most %.0f MB/s on each connection" % (limit / 1e6), lambda limit=limit: Relay(server, limit).url)
                  for limit in limits]
        if bench.options.delay and limits:
            parts.append(("%s, and each request waits for %d ms" % (parts[-1][0], bench.options.delay),
                          lambda: Relay(server, limits[-1], bench.options.delay / 1000).url))
        for what, url in parts:
            samples[what], text = compare(bench, url(), found["lfs"]["oid"], size)
            tables += [what[0].upper() + what[1:] + ":", text]
    about = ["a file of %s; %d rounds by turns" % (bytes_text(size), bench.options.rounds)]
    return result("tensord pull", about, tables, samples=samples)
