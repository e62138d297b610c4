"""How soon files are served: the first scan with the sandbox and without, and models that are copied or renamed into
the root."""

import os
import shutil
import signal
import subprocess
import sys
import time

import files
import servers
from measure import BenchError, by_turns, median_of, number, result, table

TREE = files.TREE


def scan(bench):
    """Measures what parsing in a process of its own costs, by the server's own metric."""
    root, count = os.path.join(bench.work, "root"), 500 if bench.quick else 2000
    for i in range(count):
        files.write_small(os.path.join(root, "m%06d.safetensors" % i), 8)

    def first_scan(how):
        # Without hashing, since the scan that publishes digests would be the last one.
        with bench.tensord(root=root, options=["--settle", "0", "--sandbox", how, "--rescan-interval", "0", "--watch",
                                               "off", "--hash-threads", "0"]) as server:
            return {"seconds": server.metric("tensord_last_scan_duration_seconds")}

    samples = by_turns({(): {how: lambda _, how=how: first_scan(how) for how in ("best-effort", "off")}},
                       3 * bench.options.rounds)
    cells = []
    for what, of in (("shortest", lambda way: min(s["seconds"] for s in samples[()][way])),
                     ("median", lambda way: median_of(samples[()][way], "seconds"))):
        sandboxed, plain = of("best-effort"), of("off")
        cells.append([what, number(sandboxed * 1e3, 1), number(plain * 1e3, 1), number(sandboxed / plain),
                      number((sandboxed - plain) / count * 1e6, 1)])
    about = ["%d files of 8 tensors, page-cached; `--sandbox best-effort` and `off` by turns, %d rounds"
             % (count, 3 * bench.options.rounds)]
    return result("The first scan", about, [table(
        ["of the rounds", "sandbox ms", "off ms", "ratio", "us for each file"], cells)], samples=samples)


# ---- from the beginning of a copy or a rename until the model is served

PUBLISHED = {  # what: (options of the server, renamed or copied, what asks for a scan)
    "mv, nothing else": ([], "mv", None), "cp -r, nothing else": ([], "cp", None),
    "cp -r, --watch off": (["--watch", "off"], "cp", None), "cp -r, SIGHUP": ([], "cp", "SIGHUP"),
    "cp -r, POST /rescan": ([], "cp", "rescan"), "mv, SIGHUP": ([], "mv", "SIGHUP"),
    "mv, POST /rescan": ([], "mv", "rescan"),
}


def publish_once(server, source, name, renamed, asked):
    aside, model = os.path.join(os.path.dirname(server.root), name), os.path.join(server.root, name)
    if renamed == "mv":
        shutil.copytree(source, aside)
    begin = time.monotonic()
    if renamed == "mv":
        os.rename(aside, model)
    else:
        subprocess.run(["cp", "-r", source, model], check=True)
    if asked == "SIGHUP":
        server.process.send_signal(signal.SIGHUP)
    elif asked == "rescan" and server.get("/rescan", method="POST")[0] != 200:
        raise BenchError("POST /rescan is refused")
    server.wait_for(lambda: servers.get_status(server.port, "/models/" + name) == 200, "serving " + name, step_s=0.005)
    seconds = time.monotonic() - begin
    time.sleep(0.37)  # so that each run begins at another moment of the scan interval
    return {"seconds": seconds}


def publish(bench):
    source = os.path.join(bench.work, "source")
    subprocess.run([sys.executable, os.path.join(TREE, "scripts", "demo_model.py"), source], check=True,
                   stdout=subprocess.DEVNULL)
    rows, samples = [], {}
    for number_, (what, (options, renamed, asked)) in enumerate(PUBLISHED.items()):
        if bench.quick and asked is None and renamed == "cp":
            continue  # takes until the next scan
        root = os.path.join(bench.work, "served%d" % number_, "root")
        os.makedirs(root)
        with bench.tensord(root=root, options=options) as server:
            of = [publish_once(server, source, "model-%d" % turn, renamed, asked)
                  for turn in range(2 * bench.options.rounds)]
        samples[what] = {"seconds": of}
        rows.append([what, number(median_of(of, "seconds"), 3), number(max(s["seconds"] for s in of), 3)])
    return result("Until a model is served", ["the demo model of 21 tensors, defaults, %d runs each"
                                              % (2 * bench.options.rounds)],
                  [table(["how", "median s", "longest s"], rows)], samples=samples)
