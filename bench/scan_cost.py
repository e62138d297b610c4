#!/usr/bin/env python3
"""What parsing in a process of its own costs: the time of serve's first scan of a directory of small safetensors files,
by its own metric, with --sandbox best-effort and off in turn. Standard library alone.

    bench/scan_cost.py build/tensord [--files 2000] [--rounds 15]
"""
import argparse
import json
import re
import statistics
import struct
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path


def write_files(root, count):
    """Files of eight small tensors, as many writers make them."""
    names = {f"layer.{k}.weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [k * 64, k * 64 + 64]}
             for k in range(8)}
    header = json.dumps(names).encode()
    header += b" " * (-len(header) % 8)
    for i in range(count):
        (root / f"m{i:06}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(512))


def scan_seconds(program, root, how):
    """Start a server, wait for its first scan, and return how long that took."""
    args = [program, "serve", root, "--listen", "127.0.0.1:0", "--settle", "0", "--sandbox", how, "--access-log", "off",
            "--hash-threads", "0", "--rescan-interval", "0", "--watch", "off"]
    with subprocess.Popen(args, stderr=subprocess.PIPE, text=True) as server:
        try:
            for line in server.stderr:
                if found := re.search(r"listening on (http\S+)", line):
                    url = found[1]
                    break
            while True:
                text = urllib.request.urlopen(url + "/metrics").read().decode()
                if re.search(r"^tensord_ready 1", text, re.MULTILINE):
                    break
                time.sleep(0.02)
        finally:
            server.terminate()
    return float(re.search(r"^tensord_last_scan_duration_seconds (\S+)", text, re.MULTILINE)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("program")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    took = {"best-effort": [], "off": []}
    with tempfile.TemporaryDirectory(prefix="tensord-bench-") as name:
        write_files(Path(name), args.files)
        for _ in range(args.rounds):
            for how, times in took.items():
                times.append(scan_seconds(args.program, name, how))
    for how, times in took.items():
        print(f"--sandbox {how:12} {min(times) * 1e3:.1f} ms shortest, {statistics.median(times) * 1e3:.1f} ms median")
    for name, of in (("shortest", min), ("median", statistics.median)):
        with_it, without = of(took["best-effort"]), of(took["off"])
        print(f"{name}: {with_it / without:.2f} times, {(with_it - without) / args.files * 1e6:.1f} us for each file")


if __name__ == "__main__":
    main()
