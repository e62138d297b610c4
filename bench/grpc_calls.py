#!/usr/bin/env python3
"""Measure a port of gRPC: many WatchModel streams on few connections, and GetModel beside grpcio's own server.

usage: .venv/bin/python bench/grpc_calls.py TENSORD [STREAMS CONNECTIONS]

The client of the watches is this program, which reads frames of HTTP/2 by hand; that of GetModel is h2load (Debian:
nghttp2-client). The peer is a server of grpcio that answers with the bytes that tensord answers with.
"""
import concurrent.futures
import json
import re
import resource
import selectors
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

OPTIONS = ["--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--access-log", "off", "--settle", "0",
           "--rescan-interval", "0", "--max-waiters", "50000", "--max-connections", "2000",
           "--max-connections-per-address", "2000"]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
SERVICE = "/tensord.v1.ModelService/"
ROUNDS, CALLS = 5, 20_000


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def text(value):
    assert len(value) < 127
    return bytes([len(value)]) + value


def header_block(path):
    """A request's fields in HPACK, from the static table and without indexing (RFC 7541, 6.1 and 6.2.2)."""
    return (b"\x83\x86\x04" + text(path.encode()) + b"\x01" + text(b"localhost") + b"\x0f\x10" +
            text(b"application/grpc") + b"\x00" + text(b"te") + text(b"trailers"))


def message(model, *mask):
    """GetModelRequest or WatchModelRequest in a frame of gRPC: model is field 1, read_mask field 3."""
    paths = b"".join(b"\x0a" + text(name.encode()) for name in mask)
    body = b"\x0a" + text(model.encode()) + (b"\x1a" + text(paths) if mask else b"")
    return struct.pack(">BI", 0, len(body)) + body


def write_model(root, number):
    """Put a model into the place of the one before, as by a rename."""
    head = json.dumps({f"w{i}": {"dtype": "F32", "shape": [4], "data_offsets": [16 * i, 16 * i + 16]}
                       for i in range(8)}).encode()
    head += b" " * (-len(head) % 8)
    (root / "m").mkdir(exist_ok=True)
    new = root / "m/.new"
    new.write_bytes(struct.pack("<Q", len(head)) + head + struct.pack("<I", number) * 32)
    new.rename(root / "m/model.safetensors")


class Server:
    def __init__(self, tensord, root):
        self.process = subprocess.Popen([tensord, "serve", str(root), *OPTIONS], stderr=subprocess.PIPE, text=True)
        self.http = self.grpc = None
        for line in self.process.stderr:
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
            self.http = int(found[1]) if found else self.http
            found = re.search(r"gRPC.*?127\.0\.0\.1:(\d+)", line)
            self.grpc = int(found[1]) if found else self.grpc
            if self.http and self.grpc:
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        while self.ask("/readyz") != 200:
            time.sleep(0.05)

    def ask(self, target, data=None):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{target}", data) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def status(self, name):
        found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text(), re.MULTILINE)
        return int(found[1])

    def seconds(self):
        """The processor time that the server has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


class Watcher:
    """One connection with watches. `got`: the number of messages that have come on it."""

    def __init__(self, port, streams):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.buffer, self.got, self.taken = bytearray(), 0, 0
        out = [PREFACE, frame(SETTINGS, 0, 0), frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30))]
        block, body = header_block(SERVICE + "WatchModel"), message("m", "id")
        for number in range(streams):
            out.append(frame(HEADERS, END_HEADERS, 2 * number + 1, block))
            out.append(frame(DATA, END_STREAM, 2 * number + 1, body))
        self.sock.sendall(b"".join(out))
        self.sock.setblocking(False)

    def read(self):
        self.buffer += self.sock.recv(1 << 18) or sys.exit("a connection was closed")
        at = 0
        while len(self.buffer) - at >= 9:
            size = int.from_bytes(self.buffer[at:at + 3], "big")
            if len(self.buffer) - at < 9 + size:
                break
            kind, flags = self.buffer[at + 3], self.buffer[at + 4]
            if kind == DATA and size > 0:
                self.got += 1
                if flags & END_STREAM:
                    sys.exit("a watch has ended")
            elif kind in (SETTINGS, PING) and not flags & ACK:
                self.sock.sendall(frame(kind, ACK, 0, bytes(self.buffer[at + 9:at + 9 + size]) * (kind == PING)))
            elif kind not in (DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE):
                sys.exit(f"a frame of the kind {kind} has come: {bytes(self.buffer[at:at + 9 + size])!r}")
            at += 9 + size
        del self.buffer[:at]


def read_all(selector, watchers, wanted):
    """Read until each watch has got that many messages. Returns when the first and the last of the last ones came."""
    least = sum(one.got for one in watchers)
    first = None
    while sum(one.got for one in watchers) < wanted:
        for key, _ in selector.select(30) or sys.exit(f"{sum(one.got for one in watchers)} messages of {wanted}"):
            key.data.read()
        if first is None and sum(one.got for one in watchers) > least:
            first = time.monotonic()
    return first, time.monotonic()


def watch(server, root, streams, connections):
    selector, watchers = selectors.DefaultSelector(), []
    before = server.status("VmRSS"), server.status("Threads")
    start = time.monotonic()
    for _ in range(connections):
        watchers.append(Watcher(server.grpc, streams // connections))
        selector.register(watchers[-1].sock, selectors.EVENT_READ, watchers[-1])
    _, end = read_all(selector, watchers, streams)
    print(f"{streams:,} watches on {connections} connections: first states after {end - start:.2f} s; "
          f"{(server.status('VmRSS') - before[0]) / 1024:.0f} MiB more, "
          f"threads {before[1]} -> {server.status('Threads')}")
    for number in range(1, ROUNDS + 1):
        used = server.seconds()
        start = time.monotonic()
        write_model(root, number)
        threading.Thread(target=server.ask, args=("/rescan", b"")).start()
        first, last = read_all(selector, watchers, streams * (number + 1))
        print(f"  change {number}: messages after {first - start:.3f} to {last - start:.3f} s, "
              f"{server.seconds() - used:.2f} s of processor time")
    print(f"  then {server.status('VmRSS') / 1024:.0f} MiB, {server.status('Threads')} threads")
    for one in watchers:
        one.sock.close()


def load(port, calls, concurrent, body):
    """Calls of a second by h2load on one connection."""
    done = subprocess.run(["h2load", "-c1", f"-m{concurrent}", f"-n{calls}", "-d", body, "-H",
                           "content-type: application/grpc", "-H", "te: trailers",
                           f"http://127.0.0.1:{port}{SERVICE}GetModel"], capture_output=True, text=True, check=True)
    assert f" {calls} succeeded" in done.stdout, done.stdout
    return float(re.search(r"([\d.]+) req/s", done.stdout)[1])


def peer(answer):
    """Start grpcio's server in this process. Returns it and its port."""
    import grpc

    handler = grpc.method_handlers_generic_handler(
        "tensord.v1.ModelService", {"GetModel": grpc.unary_unary_rpc_method_handler(lambda request, context: answer)})
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def unary(server):
    request = urllib.request.Request(f"http://127.0.0.1:{server.http}{SERVICE}GetModel", message("m")[5:],
                                     {"Content-Type": "application/proto"})
    answer = urllib.request.urlopen(request).read()
    other, port = peer(answer)
    with tempfile.NamedTemporaryFile() as body:
        body.write(message("m"))
        body.flush()
        for concurrent_calls in (1, 100):
            calls = CALLS if concurrent_calls > 1 else CALLS // 10
            ours, theirs = [], []
            for _ in range(ROUNDS):
                ours.append(load(server.grpc, calls, concurrent_calls, body.name))
                theirs.append(load(port, calls, concurrent_calls, body.name))
            print(f"GetModel, {len(answer)} bytes, 1 connection, {concurrent_calls} calls at once: "
                  f"{statistics.median(ours):,.0f} calls/s, grpcio {statistics.median(theirs):,.0f}, ratio "
                  f"{statistics.median(a / b for a, b in zip(ours, theirs)):.1f}")
    other.stop(None)


def main():
    tensord = sys.argv[1]
    streams, connections = (int(value) for value in (sys.argv[2:4] or ("10000", "100")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_model(root, 0)
        server = Server(tensord, root)
        try:
            watch(server, root, streams, connections)
            unary(server)
        finally:
            server.stop()


main()
