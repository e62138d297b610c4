"""Publishing again and again: what a commit of one changed file costs, how soon waiting readers have a trainer's new
step, and how fast a file is read while others are uploaded."""

import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import shutil
import statistics
import subprocess
import threading
import time

import files
import servers
from measure import BenchError, at_least, at_most, by_turns, bytes_text, number, result, rows_table, summarize, table

FILES = 500
READERS = 16
STEP_BYTES = 32 << 20
FIRST_BYTES = 64 << 10
UPLOADS = 8


class Writer:
    """A repository of a server, and one kept connection to it."""

    def __init__(self, port, model):
        self.base, self.http = "/models/" + model, http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, method, path, body, wanted):
        self.http.request(method, self.base + path, body)
        answer = self.http.getresponse()
        text = answer.read()
        if answer.status not in wanted:
            raise BenchError("%s %s%s: %d %s" % (method, self.base, path, answer.status, text[:300]))
        return json.loads(text)

    def put(self, data):
        """Sends a blob. Returns what a commit says of it."""
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.ask("PUT", "/blobs/" + digest, data, (200, 201))
        return {"digest": digest, "size": len(data)}

    def commit(self, blobs, keep):
        """Makes a commit of {path: what put() returned}. Returns its id."""
        listed = [{"path": path, **blob} for path, blob in blobs.items()]
        return self.ask("POST", "/commits", json.dumps({"files": listed, "keep": keep}), (200, 201))["commit"]


def count_below(root):
    """Returns the files, links and folders below the root."""
    return sum(len(folders) + len(names) for _, folders, names in os.walk(root))


# ---- many commits

def commits(bench):
    """Changes one file of a model of many files, again and again."""
    many, count = (50, 20) if bench.quick else (FILES, bench.options.commit_count)
    root = os.path.join(bench.work, "root")
    os.makedirs(root)
    part = max(1, count // 10)
    rows = []
    with bench.tensord(root=root, options=["--publish", "local"]) as server:
        writer = Writer(server.port, "org/m")
        writer.commit({"d%d/%d.bin" % (i % 10, i): writer.put(b"file %d" % i) for i in range(many)}, False)
        for first in range(0, count, part):
            cpu, begin = server.cpu_s(), time.monotonic()
            for i in range(first, min(first + part, count)):
                writer.commit({"config.json": writer.put(b'{"step": %d}' % i)}, True)
            made = min(first + part, count) - first
            rows.append({"commits": first + made, "cpu": (server.cpu_s() - cpu) / made,
                         "seconds": (time.monotonic() - begin) / made, "anonymous": server.anon_bytes(),
                         "below": count_below(root)})
    about = ["%d commits of one changed file to a model of %d files; the defaults keep the newest 64 commits" % (count,
                                                                                                          many)]
    return result("Commits", about, [rows_table(rows, [
        ("after commits", "commits", 0), ("server CPU ms each", "cpu", 1, 1e3), ("ms each", "seconds", 1, 1e3),
        ("anonymous MB", "anonymous", 1, 1e-6), ("files below DIR", "below", 0)])],
        [at_most("the last tenth's CPU / the second's", rows[-1]["cpu"] / rows[min(1, len(rows) - 1)]["cpu"], 1.3)],
        rows)


# ---- a trainer and its readers

class Readers:
    """Threads that wait for the next state of a model, and then read the beginning of its weights."""

    def __init__(self, port, model, count):
        self.port, self.target, self.ends = port, "/models/" + model, {}
        self.is_over, self.lock = threading.Event(), threading.Lock()
        self.threads = [threading.Thread(target=self.read, daemon=True) for _ in range(count)]
        self.errors = []

    def read(self):
        try:
            self.follow()
        except (OSError, http.client.HTTPException, BenchError) as error:
            if not self.is_over.is_set():
                self.errors.append(error)

    def follow(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        tag = self.ask(connection, self.target, {})[0].headers["ETag"]
        while not self.is_over.is_set():
            answer, _ = self.ask(connection, "%s?wait=%s&timeout=30" % (self.target, tag.replace('"', "%22")), {})
            if answer.status == 304:
                continue
            tag = answer.headers["ETag"]
            end = "bytes=0-%d" % (FIRST_BYTES - 1)
            _, data = self.ask(connection, self.target + "/files/model.safetensors", {"Range": end})
            with self.lock:
                self.ends.setdefault(int.from_bytes(data[-8:], "little"), []).append(time.monotonic())

    @staticmethod
    def ask(connection, target, fields):
        connection.request("GET", target, headers=fields)
        answer = connection.getresponse()
        data = answer.read()
        if answer.status not in (200, 206, 304):
            raise BenchError("GET %s: %d %s" % (target, answer.status, data[:200]))
        return answer, data


def step_of(template, step):
    """Returns the template's bytes with the step's number in its first FIRST_BYTES."""
    return template[:FIRST_BYTES - 8] + step.to_bytes(8, "little") + template[FIRST_BYTES:]


def at_percent(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def trainer(bench):
    """Pushes a step at fixed times, while readers wait for each."""
    steps, period, size = (4, 0.5, 1 << 20) if bench.quick else (bench.options.steps, bench.options.step_seconds,
                                                                STEP_BYTES)
    root, source = os.path.join(bench.work, "root"), os.path.join(bench.work, "model.safetensors")
    os.makedirs(root)
    files.write_big(source, size)
    with open(source, "rb") as f:
        template = f.read()
    marks, after_commit, after_request = [], [], []
    with bench.tensord(root=root, options=["--publish", "local", "--keep-commits", "30"]) as server:
        writer = Writer(server.port, "run/m")
        others = {"config.json": writer.put(b'{"architectures": []}'),
                  **{"part%d.json" % i: writer.put(b'{"part": %d}' % i) for i in range(28)}}
        writer.commit({**others, "model.safetensors": writer.put(step_of(template, 0))}, False)
        readers = Readers(server.port, "run/m", READERS)
        for thread in readers.threads:
            thread.start()
        time.sleep(1)  # so that all of them wait
        begin = time.monotonic()
        for step in range(1, steps + 1):
            weights = writer.put(step_of(template, step))
            sent = time.monotonic()
            writer.commit({**others, "model.safetensors": weights}, False)
            done = time.monotonic()
            server.wait_for(lambda step=step: readers.errors or len(readers.ends.get(step, ())) == READERS,
                            "letting all readers read step %d" % step, seconds=30)
            if readers.errors:
                raise BenchError("a reader failed: %s" % readers.errors[0])
            after_commit += [max(0, end - done) for end in readers.ends[step]]
            after_request += [end - sent for end in readers.ends[step]]
            if step % max(1, steps // 6) == 0:
                marks.append([step, number(server.anon_bytes() / 1e6, 1), count_below(root), server.threads()])
            time.sleep(max(0, begin + step * period - time.monotonic()))
        readers.is_over.set()
    rows = [[what, number(statistics.median(values) * 1e3, 1), number(at_percent(values, 99) * 1e3, 1),
             number(max(values) * 1e3, 1)]
            for what, values in (("the commit was asked for", after_request),
                                 ("the commit was answered", after_commit))]
    about = ["%d steps, one every %g s: 30 files, and the weights change (%s); %d readers wait by `?wait=`, then "
             "read %s; --keep-commits 30" % (steps, period, bytes_text(size), READERS, bytes_text(FIRST_BYTES))]
    in_ms = lambda seconds: number(seconds * 1e3, 1) + " ms"  # noqa: E731
    return result("A trainer and its readers", about, [
        table(["a reader has the first bytes after", "p50 ms", "p99 ms", "longest ms"], rows),
        table(["step", "anonymous MB", "files below DIR", "threads"], marks)],
        [at_most("p50 after the commit's answer", statistics.median(after_commit), 0.1, in_ms),
         at_most("p99 after the commit's answer", at_percent(after_commit, 99), 0.25, in_ms)],
        samples={"after answer": {"s": after_commit}, "after request": {"s": after_request}})


# ---- reading beside uploads

@contextlib.contextmanager
def uploading(server, path, rate):
    """Uploads the file again and again, by UPLOADS clients of so many bytes a second each."""
    is_over = threading.Event()
    is_tensord = isinstance(server, servers.Tensord)

    def send(number_):
        url = server.url(("/models/up/m%d/files/data.raw" if is_tensord else "/up%d.raw") % number_)
        while not is_over.is_set():
            run = subprocess.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--limit-rate", str(rate),
                                  "--max-time", "20", "-T", path, url], capture_output=True, text=True, check=False)
            if run.stdout not in ("200", "201", "204") and not is_over.is_set():
                raise BenchError("PUT %s: %s %s" % (url, run.stdout, run.stderr.strip()))

    with concurrent.futures.ThreadPoolExecutor(UPLOADS) as pool:
        running = [pool.submit(send, i) for i in range(UPLOADS)]
        time.sleep(0.5)
        try:
            yield
        finally:
            is_over.set()
        for each in running:
            each.result()


def beside(bench):
    """Reads a file alone, and while others are uploaded at a fixed rate, from tensord and from nginx."""
    if not shutil.which("curl"):
        raise BenchError("curl is not installed, which sends the files")
    rate = bench.options.upload_rate
    upload = os.path.join(bench.work, "upload.raw")
    with open(upload, "wb") as f:
        f.write(os.urandom(1 << 20) * (1 if bench.quick else max(1, rate // (1 << 20))))
    load = bench.load()
    with bench.started([bench.nginx(root=bench.linked_root("nginx"), dav=True),
                        bench.tensord(root=bench.linked_root("tensord"), options=["--publish", "local"])]) as started:
        def read(server):
            return load.run(server, 1 << 20, 8, ["--duration", bench.options.duration])

        def one(server):
            alone = read(server)
            with uploading(server, upload, rate):
                beside_ = read(server)
            return {"alone": alone["bytes"] / alone["seconds"], "rate": beside_["bytes"] / beside_["seconds"],
                    "kept": beside_["bytes"] / beside_["seconds"] * alone["seconds"] / alone["bytes"]}

        samples = by_turns({(): {server.name: lambda _, server=server: one(server) for server in started}},
                           bench.options.rounds, not bench.quick, "beside")
    rows = summarize(samples, (), {"kept": "kept"})
    kept = {row["server"]: row["kept"] for row in rows}
    about = ["ranges of 1 MiB over 8 connections, %g s alone and as long beside %d uploads of %s/s each; %d rounds by "
             "turns" % (bench.options.duration, UPLOADS, bytes_text(rate), bench.options.rounds)]
    return result("Reading beside uploads", about, [rows_table(rows, [
        ("server", "server"), ("MB/s alone", "alone", 0, 1e-6), ("MB/s beside", "rate", 0, 1e-6),
        ("kept", "kept", 2)])],
        [at_least("rate beside uploads / alone", kept["tensord"], 0.8)], rows, samples)
