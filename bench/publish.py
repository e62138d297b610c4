#!/usr/bin/env python3
"""Measures how long a model takes from the beginning of a copy or a rename until it is served:
bench/publish.py [--runs N] [--only "mv alone"] [-- OPTIONS OF SERVE].

It starts build/tensord with its defaults on a free port, over a temporary directory. Standard library only.
"""
import argparse
import http.client
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HOW = ("mv alone", "cp -r alone", "cp -r SIGHUP", "cp -r rescan", "mv SIGHUP", "mv rescan")
REPO = pathlib.Path(__file__).resolve().parents[1]


def ask(port, method, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def wait_until_served(port, name):
    while ask(port, "GET", f"/models/{name}") != 200:
        time.sleep(0.005)


def measure(server, port, root, source, how, run):
    """Returns the seconds until the model is served."""
    name = f"{how.replace(' ', '-')}-{run}"
    aside = root.parent / name
    if how.startswith("mv"):
        subprocess.run(["cp", "-r", source, aside], check=True)
    began = time.monotonic()
    if how.startswith("mv"):
        os.rename(aside, root / name)
    else:
        subprocess.run(["cp", "-r", source, root / name], check=True)
    if how.endswith("SIGHUP"):
        server.send_signal(signal.SIGHUP)
    elif how.endswith("rescan"):
        assert ask(port, "POST", "/rescan") == 200
    wait_until_served(port, name)
    return time.monotonic() - began


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--runs", type=int, default=10)
    arguments.add_argument("--only", choices=HOW, action="append")
    arguments.add_argument("options", nargs="*")
    arguments.add_argument("--binary", default=str(REPO / "build/tensord"))
    arguments = arguments.parse_args()
    top = pathlib.Path(tempfile.mkdtemp(prefix="tensord-publish-"))
    root, source, log = top / "root", top / "source", top / "log"
    root.mkdir()
    subprocess.run([sys.executable, REPO / "scripts/demo_model.py", source], check=True)
    with open(log, "wb") as err:
        server = subprocess.Popen(
            [arguments.binary, "serve",
             str(root), "--listen", "127.0.0.1:0", "--access-log", "off", *arguments.options], stderr=err)
    try:
        while not (found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", log.read_text())):
            time.sleep(0.02)
        port = int(found.group(1))
        for how in arguments.only or HOW:
            took = []
            for run in range(arguments.runs):
                took.append(measure(server, port, root, source, how, run))
                time.sleep(0.37)        # so that each run begins at another moment of the scan interval
            took.sort()
            print(f"{how:14} median {statistics.median(took):6.3f} s  p99 {took[-1 - len(took) // 100]:6.3f} s  "
                  f"longest {took[-1]:6.3f} s", flush=True)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
