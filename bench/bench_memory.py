"""Measures the anonymous memory (RssAnon) that a server grows by while connections are in the middle of large
transfers."""

import select
import socket
import time

from bench_report import Targets, bytes_text, number, table
from bench_servers import BenchError, MemoryWatch

SETTLE_S = 0.5
STEP_S = 0.05
STEP_BYTES = 64 << 10


def slow_open(server, kind, count, range_bytes):
    """Opens connections that request range_bytes each and read almost nothing of the answers."""
    path, size, _ = server.target(kind)
    slots = size // range_bytes
    sockets = []
    for i in range(count):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STEP_BYTES)
        s.settimeout(10)
        s.connect(("127.0.0.1", server.port))
        off = i % slots * range_bytes
        s.sendall(b"GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nRange: bytes=%d-%d\r\n\r\n"
                  % (path.encode(), server.port, off, off + range_bytes - 1))
        sockets.append(s)
    for s in sockets:
        head = s.recv(4096)
        if not head.startswith(b"HTTP/1.1 206"):
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


def measure(load, server, connections, range_bytes, seconds):
    with server:
        load.run(server, range_bytes, 1, ["--requests", 1])
        time.sleep(SETTLE_S)
        base = server.anon_bytes()
        sockets = slow_open(server, load.kind, connections, range_bytes)
        try:
            with MemoryWatch(server) as watch:
                slow_read(sockets, seconds)
            slow_peak = watch.peak
        finally:
            for s in sockets:
                s.close()
        time.sleep(SETTLE_S)
        with MemoryWatch(server) as watch:
            load.run(server, range_bytes, connections, ["--duration", seconds])
        fast_peak = watch.peak
        time.sleep(SETTLE_S)
        return {"server": server.name, "base_bytes": base, "slow_peak_bytes": slow_peak,
                "fast_peak_bytes": fast_peak, "after_bytes": server.anon_bytes(),
                "slow_growth_per_connection_bytes": max(0, slow_peak - base) / connections,
                "fast_growth_per_connection_bytes": max(0, fast_peak - base) / connections}


def run(load, servers, fixture, options):
    connections = 16 if options.quick else 64
    range_bytes = min(fixture.tensor_bytes, 256 << 20)
    seconds = 1 if options.quick else 3
    rows = [measure(load, server, connections, range_bytes, seconds) for server in servers if server.name != "raw"]
    targets = Targets()
    for r in rows:
        if r["server"] == "tensord":
            for how in ("slow", "fast"):
                targets.at_most("anonymous KiB per active connection, %s" % how,
                                r[how + "_growth_per_connection_bytes"] / 1024, 1024, lambda v: number(v, 1))
    kib = lambda n: number(n / 1024, 0)  # noqa: E731
    text = table(["server", "RssAnon idle KiB", "slow peak KiB", "slow KiB/conn", "full speed peak KiB",
                  "full speed KiB/conn", "after KiB"],
                 [[r["server"], kib(r["base_bytes"]), kib(r["slow_peak_bytes"]),
                   number(r["slow_growth_per_connection_bytes"] / 1024, 1), kib(r["fast_peak_bytes"]),
                   number(r["fast_growth_per_connection_bytes"] / 1024, 1), kib(r["after_bytes"])] for r in rows])
    about = ["%d connections in the middle of %s transfers: slow ones that read 64 KiB every %d ms, then the same "
             "number at full speed; RssAnon of all the server's processes, sampled every 5 ms"
             % (connections, bytes_text(range_bytes), STEP_S * 1000)]
    return {"mode": "memory", "title": "Anonymous memory per active connection", "about": about, "table": text,
            "targets": targets, "rows": rows}
