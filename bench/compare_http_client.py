#!/usr/bin/env python3
"""Compares the Python client's own HTTP reader (clients/python/tensord/net/http.py) with http.client and `readinto`.

    bench/compare_http_client.py http://127.0.0.1:8080/models/ID/files/model.safetensors

Both read the same ranges of a file into the same memory over one connection, by turns. It prints the medians over the
rounds of the ratios http.client / ours, of time and of this process's processor time.
"""
import argparse
import http.client
import os
import statistics
import sys
import time
from urllib.parse import urlsplit

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "clients", "python"))

from tensord.address import Endpoint  # noqa: E402
from tensord.net.http import Connection  # noqa: E402
from tensord.options import Options  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
SIZES = {64 * KIB: 1000, 256 * KIB: 500, MIB: 250, 4 * MIB: 80, 16 * MIB: 20}  # bytes of a range: requests of a round


def read_ours(endpoint, path, offsets, view):
    connection = Connection(endpoint, Options())
    try:
        begin = time.perf_counter(), time.process_time()
        for offset in offsets:
            answer = connection.request("GET", path, {"Range": f"bytes={offset}-{offset + len(view) - 1}"})
            if answer.status != 206 or answer.length != len(view):
                raise SystemExit(f"status {answer.status}, {answer.length} bytes instead of {len(view)}")
            answer.receive_into(view)
        return time.perf_counter() - begin[0], time.process_time() - begin[1]
    finally:
        connection.close()


def read_theirs(endpoint, path, offsets, view):
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=30)
    connection.connect()
    try:
        begin = time.perf_counter(), time.process_time()
        for offset in offsets:
            connection.request("GET", path, headers={"Range": f"bytes={offset}-{offset + len(view) - 1}"})
            answer = connection.getresponse()
            if answer.status != 206 or answer.length != len(view):
                raise SystemExit(f"status {answer.status}, {answer.length} bytes instead of {len(view)}")
            done = 0
            while done < len(view):
                done += answer.readinto(view[done:])
        return time.perf_counter() - begin[0], time.process_time() - begin[1]
    finally:
        connection.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", help="a file of a model or a dataset, of more than 16 MiB, on a server with http://")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    parts = urlsplit(options.url)
    endpoint = Endpoint("http", parts.hostname, parts.port or 80)
    head = http.client.HTTPConnection(endpoint.host, endpoint.port)
    head.request("HEAD", parts.path)
    nbytes = int(head.getresponse().headers["Content-Length"])
    print("%8s %10s %16s" % ("range", "time", "processor time"))
    for size, count in SIZES.items():
        view = memoryview(bytearray(size))
        offsets = [k * size % (nbytes - size) for k in range(count)]
        ratios = []
        for number in range(options.rounds + 1):
            ways = [read_ours, read_theirs]
            took = {way: way(endpoint, parts.path, offsets, view) for way in (ways if number % 2 else ways[::-1])}
            ratios.append([theirs / ours for ours, theirs in zip(took[read_ours], took[read_theirs])])
        columns = [statistics.median(column) for column in zip(*ratios[1:])]  # without the first round
        print("%4d KiB %9.2fx %15.2fx" % (size // KIB, *columns), flush=True)


if __name__ == "__main__":
    main()
