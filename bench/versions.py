#!/usr/bin/env python3
"""Measure one folder with many versions: scans, lists, one version, `latest`, and requests that wait for the next.

usage: bench/versions.py TENSORD [VERSIONS]
"""
import http.client
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
from pathlib import Path

WAITERS = 1000
OPTIONS = ["--listen", "127.0.0.1:0", "--access-log", "off", "--settle", "0", "--max-waiters", "2000",
           "--max-connections", "3000", "--max-connections-per-address", "3000"]


def name_of(number):
    return f"weight_v{number:06d}"


def write_version(root, number):
    """Write a version under another name, and rename it, as trainers do."""
    head = json.dumps({"w": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}).encode()
    head += b" " * (-len(head) % 8)
    folder = root / "run" / f".{number}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + struct.pack("<I", number) * 16)
    folder.rename(root / "run" / name_of(number))


class Server:
    """A server over a folder, with one connection to it."""

    def __init__(self, tensord, root):
        self.process = subprocess.Popen([tensord, "serve", str(root), *OPTIONS], stderr=subprocess.PIPE, text=True)
        self.port = None
        for line in self.process.stderr:
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port)
        while self.ask("/readyz")[0].status != 200:
            time.sleep(0.05)

    def ask(self, target, method="GET"):
        self.connection.request(method, target)
        answer = self.connection.getresponse()
        return answer, answer.read()

    def last_scan_s(self):
        return json.loads(self.ask("/readyz")[1])["scan"]["last_seconds"]

    def waiters(self):
        return int(re.search(r"^tensord_waiters (\d+)", self.ask("/metrics")[1].decode(), re.M)[1])


def time_target(server, target, count=20):
    """Print the median time of requests for one target."""
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        answer, body = server.ask(target)
        times.append(time.perf_counter() - begin)
    print(f"{target}: {answer.status}, {len(body)} bytes, {statistics.median(times) * 1000:.2f} ms")


def time_waiters(server, root, number):
    """Have many requests wait on the latest version, add one, and print when they are answered."""
    tag = server.ask("/models/run?version=latest")[0].getheader("ETag").strip('"')
    target = f"/models/run?version=latest&wait={tag}&timeout=120"
    left = selectors.DefaultSelector()
    for _ in range(WAITERS):
        waiting = socket.create_connection(("127.0.0.1", server.port))
        waiting.sendall(f"GET {target} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
        left.register(waiting, selectors.EVENT_READ)
    while server.waiters() < WAITERS:
        time.sleep(0.1)
    times = []
    begin = time.perf_counter()
    write_version(root, number)
    while len(times) < WAITERS:
        for key, _ in left.select(60):
            answer = key.fileobj.recv(65536)
            times.append(time.perf_counter() - begin)
            if f"X-Tensord-Version: {name_of(number)}\r\n".encode() not in answer:
                raise SystemExit(f"another answer: {answer!r}")
            left.unregister(key.fileobj)
            key.fileobj.close()
    print(f"{WAITERS} waiters: the first answer {times[0] * 1000:.0f} ms after the rename, the last "
          f"{times[-1] * 1000:.0f} ms")


def main():
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    count = int(sys.argv[2]) if len(sys.argv) == 3 else 10000
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, max(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for number in range(count):
            write_version(root, number)
        server = Server(sys.argv[1], root)
        print(f"first scan: {server.last_scan_s():.2f} s")
        write_version(root, count)
        server.ask("/rescan", "POST")
        print(f"scan after one more version: {server.last_scan_s():.2f} s")
        for target in ("/models/run/versions", "/models/run/versions?page_size=100", "/models/run?version=latest",
                       "/models/run/tensors/w?version=latest", f"/models/run/tensors/w?version={count // 2}",
                       f"/models/run/{name_of(count // 2)}/tensors/w", "/api/models/run/refs",
                       f"/run/resolve/{name_of(count // 2)}/model.safetensors", "/v2/run/tags/list?n=100"):
            time_target(server, target)
        time_waiters(server, root, count + 1)
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        print(f"memory: {int(re.search(r'VmRSS:[^0-9]+([0-9]+)', status)[1]) // 1024} MiB")
        server.process.terminate()
        server.process.wait()


if __name__ == "__main__":
    main()
