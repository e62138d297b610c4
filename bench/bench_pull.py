#!/usr/bin/env python3
"""Compares `tensord pull` with curl, aria2c and `hf download`: one file from one server over the loopback interface,
round after round, into a new directory each time. By hand:

    bench/bench_pull.py build/tensord [--size 2G] [--rounds 5] [--limit 1000M,100M] [--delay 50] [--dir /dev/shm]

The clients take turns within each round, first as fast as the loopback interface is, then (--limit) through a relay
that sends at most so many bytes per second on each connection, as a path or a server does that bounds a single one.
With --delay the last of these parts is repeated through a relay that also holds up each request, as a long way does.

`tensord pull` checks the SHA-256 of what it has received and syncs the file. aria2c checks it when it has received
everything (--checksum); curl does so in a line of its own, in which openssl follows it; `hf download` does not. None of
these syncs. Times include the start of each program. CPU seconds are the client's alone. What is not installed is left
out, and the report says so."""
import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAME = "model.safetensors"
CHUNK = 64 << 20
SO_MAX_PACING_RATE = 47  # of Linux; bytes per second


def size_argument(text):
    m = re.fullmatch(r"(\d+)([MG])", text)
    if not m:
        raise argparse.ArgumentTypeError("a size such as 512M or 2G, not %s" % text)
    return int(m[1]) << {"M": 20, "G": 30}[m[2]]


def limits_argument(text):
    return [size_argument(one) for one in text.split(",") if one != ""]


def parse_arguments():
    p = argparse.ArgumentParser(description="Compares tensord pull with curl, aria2c and hf download.")
    p.add_argument("tensord")
    p.add_argument("--size", type=size_argument, default=2 << 30, help="of the file (2G)")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--limit", type=limits_argument, default=[1000 << 20, 100 << 20],
                   help="bytes per second of each connection in later parts (1000M,100M); empty leaves them out")
    p.add_argument("--delay", type=int, default=0,
                   help="ms by which a relay holds up each request in one more part, with the last limit (0: no such "
                        "part)")
    p.add_argument("--dir", help="where the files lie, the served and the fetched one (a temporary directory)")
    p.add_argument("--hf", default=os.path.join(TREE, ".venv/bin/hf"))
    return p.parse_args()


def write_model(folder, size):
    """Write a safetensors file of one tensor with random bytes."""
    os.makedirs(folder)
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(os.path.join(folder, NAME), "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        for at in range(0, size, CHUNK):
            f.write(os.urandom(min(CHUNK, size - at)))


class Server:
    """A tensord that knows the digest of its file, which is `sha256`."""

    def __init__(self, tensord, root):
        self.proc = subprocess.Popen([tensord, "serve", root, "--listen", "127.0.0.1:0", "--access-log", "off",
                                      "--settle", "0"], stderr=subprocess.PIPE, text=True)
        for line in self.proc.stderr:
            found = re.search(r"listening on (http://\S+)", line)
            if found:
                self.url = found[1]
                break
        else:
            sys.exit("the server did not start")
        tree = self.url + "/api/models/bench/m/tree/main"
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(tree) as answer:
                    entry = json.load(answer)[0]
                if "lfs" in entry:
                    self.sha256 = entry["lfs"]["oid"]
                    return
            except OSError:
                pass
            time.sleep(0.2)
        sys.exit("the server does not know the digest of its file")

    def stop(self):
        self.proc.terminate()
        self.proc.wait()


class Relay:
    """Passes connections on to a server, and answers back at no more than `rate` bytes per second on each of them. The
    kernel keeps the rate (SO_MAX_PACING_RATE) and moves the bytes (splice), so the relay takes little CPU time. A
    request waits for `delay` seconds, and the first one of a connection twice as long."""

    def __init__(self, server_url, rate, delay=0):
        host, port = server_url.removeprefix("http://").split(":")
        self.server, self.rate, self.delay = (host, int(port)), rate, delay
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
        """Move bytes until either side ends."""
        out, into = os.pipe()
        time.sleep(delay)
        try:
            while (left := os.splice(source.fileno(), into, 1 << 20)) > 0:
                time.sleep(delay)
                while left > 0:
                    left -= os.splice(out, sink.fileno(), left)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the other side has gone
        finally:
            os.close(out)
            os.close(into)


def commands(options, url, sha256, work):
    """Return name -> (function of the destination that gives the command, more environment), and all names."""
    file_url = url + "/bench/m/resolve/main/" + NAME

    def pull(connections):
        return lambda out: [options.tensord, "pull", url, "bench/m", "-o", out, "--quiet", "--connections",
                            str(connections)]

    def aria(connections):
        return lambda out: ["aria2c", "-q", "--file-allocation=none", "--checksum=sha-256=" + sha256, "-k", "1M", "-x",
                            str(connections), "-s", str(connections), "-d", out, "-o", NAME, file_url]

    found = {"curl": (lambda out: ["curl", "-s", "-o", os.path.join(out, NAME), file_url], {}),
             "curl, then openssl dgst -sha256": (
                 lambda out: ["sh", "-c", 'curl -s -o "$0" "$1" && openssl dgst -sha256 "$0"', os.path.join(out, NAME),
                              file_url], {}),
             "tensord pull, 1 connection": (pull(1), {}), "aria2c, 1 connection": (aria(1), {}),
             "tensord pull, 8 connections": (pull(8), {}), "aria2c, 8 connections": (aria(8), {}),
             "hf download": (lambda out: [options.hf, "download", "bench/m", "--local-dir", out],
                             {"HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
                              "HF_HOME": os.path.join(work, "home")})}
    return {name: what for name, what in found.items() if shutil.which(what[0]("")[0])}, list(found)


def measure(command, environment, out, size):
    """Return wall and CPU seconds of the command, after a look at what it has written."""
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    begin, before = time.monotonic(), os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   env={**os.environ, **environment})
    wall, after = time.monotonic() - begin, os.times()
    written = os.path.getsize(os.path.join(out, NAME))
    if written < size:
        sys.exit("%s has written %d bytes" % (command[0], written))
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu


def compare(options, url, sha256, work):
    """Measure all clients by turns; print a table."""
    there, names = commands(options, url, sha256, work)
    results = {name: [] for name in there}
    for _ in range(options.rounds):
        for name, (command, environment) in there.items():
            out = os.path.join(work, "out")
            results[name].append(measure(command(out), environment, out, options.size))
    print("| client | MB/s, median of %d (lowest to highest) | time / curl's in the same round, median "
          "| CPU seconds per GB |\n|---|---|---|---|" % options.rounds)
    for name in names:
        if name not in results:
            print("| %s | not installed | | |" % name)
            continue
        rates = sorted(options.size / wall / 1e6 for wall, _ in results[name])
        ratio = statistics.median(mine[0] / curl[0] for mine, curl in zip(results[name], results["curl"]))
        cpu = statistics.median(cpu for _, cpu in results[name]) / (options.size / 1e9)
        print("| %s | %.0f (%.0f to %.0f) | %.2f | %.2f |"
              % (name, statistics.median(rates), rates[0], rates[-1], ratio, cpu))
    print("\nLoad average of the last minute: %.1f, with %d processors"
          % (os.getloadavg()[0], os.cpu_count()), flush=True)


def main():
    options = parse_arguments()
    if shutil.which("curl") is None:
        sys.exit("curl is not installed, with which all others are compared")
    with tempfile.TemporaryDirectory(prefix="tensord-bench-", dir=options.dir) as work:
        write_model(os.path.join(work, "root/bench/m"), options.size)
        server = Server(options.tensord, os.path.join(work, "root"))
        try:
            print("As fast as the loopback interface is:\n", flush=True)
            compare(options, server.url, server.sha256, work)
            for limit in options.limit:
                print("\nAt most %.0f MB/s on each connection:\n" % (limit / 1e6), flush=True)
                compare(options, Relay(server.url, limit).url, server.sha256, work)
            if options.delay > 0 and options.limit:
                print("\nThe same, and each request waits for %d ms:\n" % options.delay, flush=True)
                compare(options, Relay(server.url, options.limit[-1], options.delay / 1000).url, server.sha256, work)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
