"""PUT of whole files into tensord and into nginx's DAV module, which does not hash: one at a time and eight at once, by
curl. Beside one PUT, save_model of the Python client sends a model of as many bytes from memory. Each body is new, so
that no server has it already. The files of both servers are in the directory --dir: on one disk, or on a tmpfs to
measure without a disk."""

import concurrent.futures
import functools
import hashlib
import itertools
import os
import shutil
import subprocess
import time

import servers
from measure import BenchError, at_least, at_most, by_turns, bytes_text, result, rows_table, summarize

AT_ONCE = 8
SAVED = "tensord, save_model"


class Source:
    """Files to send. Each call of renewed() changes their first bytes, so that their digests are new."""

    def __init__(self, directory, size):
        self.numbers, self.size = itertools.count(1), size
        self.paths = [os.path.join(directory, "source-%d" % i) for i in range(1 + AT_ONCE)]
        block = os.urandom(1 << 20)
        for path, length in zip(self.paths, [size] + [size // 4] * AT_ONCE):
            with open(path, "wb") as f:
                for at in range(0, length, len(block)):
                    f.write(block[:length - at])

    def renewed(self, count):
        """Returns (paths, bytes) of files: one of the whole size, or all that have a quarter of it."""
        chosen = self.paths[:1] if count == 1 else self.paths[1:]
        for path in chosen:
            with open(path, "r+b") as f:
                f.write(next(self.numbers).to_bytes(8, "little"))
        return chosen, sum(os.path.getsize(path) for path in chosen)


def sha256_seconds(size):
    """Returns the processor time of one SHA-256 over so many bytes in memory."""
    block, left, hasher = bytes(1 << 20), size, hashlib.sha256()
    begin = time.thread_time()
    while left > 0:
        hasher.update(block)
        left -= len(block)
    return time.thread_time() - begin


def put(server, path, name):
    trust = ["--cacert", server.pair.authority] if server.https else []
    url = server.url(name)
    run = subprocess.run(["curl", "-sS", *trust, "-o", "/dev/null", "-w", "%{http_code}", "-T", path, url],
                         capture_output=True, text=True, check=False)
    if run.stdout not in ("200", "201", "204"):
        raise BenchError("PUT %s: %s %s" % (url, run.stdout, run.stderr.strip()))


def wait_idle(server):
    """Waits until the server has done what it does after an answer, so that its processor time is all counted."""
    last = server.cpu_s()
    while True:
        time.sleep(0.1)
        now = server.cpu_s()
        if now - last < 0.005:
            return
        last = now


def check_and_remove(server, number, size):
    if isinstance(server, servers.Tensord):
        headers = server.get("/bench/m%d/resolve/main/data.raw" % number, method="HEAD")[1]
        found = int(headers["Content-Length"])
        server.get("/models/bench/m%d" % number, method="DELETE")
    else:
        path = os.path.join(server.root, "m%d.raw" % number)
        found = os.path.getsize(path)
        os.unlink(path)
    if found != size:
        raise BenchError("%s: file %d has %d bytes, not %d" % (server.name, number, found, size))


def send(server, source, count):
    """Sends `count` files at once. Returns seconds and the server's processor time, each for the bytes sent."""
    paths, total = source.renewed(count)
    is_tensord = isinstance(server, servers.Tensord)
    names = [("/models/bench/m%d/files/data.raw" if is_tensord else "/m%d.raw") % i for i in range(count)]
    before, begin = server.cpu_s(), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        list(pool.map(functools.partial(put, server), paths, names))
    seconds = time.monotonic() - begin
    wait_idle(server)
    cpu = server.cpu_s() - before
    for i, path in enumerate(paths):
        check_and_remove(server, i, os.path.getsize(path))
    return {"seconds": seconds, "rate": total / seconds, "cpu": cpu / total}


def save(server, peer, size):
    """Sends a model of `size` bytes from the memory of a peer. Returns as `send`."""
    before = server.cpu_s()
    sample = peer.request(url=server.url("/models/bench/saved"), size=size, ca=server.pair and server.pair.authority)
    wait_idle(server)
    cpu = server.cpu_s() - before
    server.get("/models/bench/saved", method="DELETE")
    return {"seconds": sample["seconds"], "rate": sample["bytes"] / sample["seconds"], "cpu": cpu / sample["bytes"]}


def run(bench):
    if not shutil.which("curl"):
        raise BenchError("curl is not installed, which sends the files")
    size = bench.options.size
    roots = [os.path.join(bench.directory, name) for name in ("uploads-nginx", "uploads-tensord")]
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)
        os.makedirs(root)
    source = Source(bench.work, size)
    compared = [bench.nginx(root=roots[0], dav=True, pair=bench.chosen_pair),
                bench.tensord(root=roots[1], pair=bench.chosen_pair,
                              options=["--publish", "local", "--keep-commits", "0"])]
    with bench.started(compared) as started, bench.peer("save") as peer:
        cells = {(count,): {server.name: lambda _, server=server, count=count: send(server, source, count)
                            for server in started} for count in (1, AT_ONCE)}
        cells[1,][SAVED] = lambda _, server=started[-1]: save(server, peer, size)
        samples = by_turns(cells, bench.options.rounds, not bench.quick, "uploads")
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)
    sha = sha256_seconds(256 << 20) / (256 << 20)
    rows = summarize(samples, ("at once",), {"rate": "rate"})
    nginx_cpu = {row["at once"]: row["cpu"] for row in rows if row["server"] == "nginx"}
    targets = []
    for row in rows:
        row["cpu / allowed"] = row["cpu"] / (1.3 * nginx_cpu[row["at once"]] + sha)
        if row["server"] == "tensord":
            what = "PUT, %d at once: " % row["at once"]
            targets += [at_least(what + "rate / nginx's", row["rate / nginx"], 1.0),
                        at_most(what + "CPU / (1.3 x nginx's + one SHA-256)", row["cpu / allowed"], 1.0)]
        if row["server"] == SAVED:
            targets.append(at_least("save_model: rate / PUT's", row["rate / tensord"], 0.9))
    about = [bench.transport,
             "one file of %s, then %d of %s at once, each into a new model; %d rounds by turns; one SHA-256 takes %.2f "
             "CPU s/GB here" % (bytes_text(size), AT_ONCE, bytes_text(size // 4), bench.options.rounds, sha * 1e9),
             "tensord hashes each body, syncs it and makes it a commit; nginx does none of this"]
    return result("PUT beside nginx's DAV module", about, [rows_table(rows, [
        ("at once", "at once", 0), ("server", "server"), ("MB/s", "rate", 0, 1e-6), ("rate / nginx", "rate / nginx", 2),
        ("server CPU s/GB", "cpu", 2, 1e9), ("CPU / (1.3 x nginx + SHA-256)", "cpu / allowed", 2)])],
        targets, rows, samples)
