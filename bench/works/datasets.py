"""Rows of datasets: batches beside single GETs, the index beside dd, a shuffled order entered far from its start, rows
that are not in the page cache beside pread, and rows into torch's DataLoader beside other libraries."""

import array
import http.client
import json
import os
import random
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import threading
import time

import files
from measure import (BenchError, at_least, at_most, by_turns, bytes_text, median_of, median_ratio, number, result,
                     table, times)
from servers import Tensord, opened

MIB = 1 << 20
BATCH = 1024  # rows
GETS_CONNECTIONS = 4
COLD_BATCHES, COLD_BATCH = 4, 256
PREADS = 32  # threads
PATH = "/datasets/%s" % files.DATASET
INDEX_SECONDS = 900


class Sizes:
    """Rows of each file: `rows` of 1 KiB; `short` of 20 bytes, and as many numbers; `first` of 1 KiB, for the time to
    the first batch; `trained` of 1 KiB, for the trainers. passes: batches whose processor time is taken together;
    resumes: first batches in each round."""

    def __init__(self, quick, directory):
        self.rows, self.short, self.trained = (5_000, 50_000, 2_000) if quick else (1_000_000, 100_000_000, 131_072)
        room = shutil.disk_usage(directory).free > 40 << 30
        self.first = 5_000 if quick else 10_000_000 if room else 2_000_000
        self.passes, self.resumes = (2, 2) if quick else (100, 20)


class Served(Tensord):
    """A server of one dataset. start() returns when its index is ready, after ready_s seconds."""

    def __init__(self, bench, rows, state_dir=None):
        super().__init__(bench.work, rows, bench.options.tensord, "tensord-rows",
                         options=["--settle", "0"] + (["--state-dir", state_dir] if state_dir else []))
        self.rows, self.ready_s = rows, None

    def start(self):
        self.begun = time.monotonic()
        return super().start()

    def wait_ready(self):
        self.wait_for(self.read_port, "listening", step_s=0.001)
        connection = opened(self.port)
        self.wait_for(lambda: self.is_indexed(connection), "indexed", INDEX_SECONDS, 0.005)
        self.ready_s = time.monotonic() - self.begun
        connection.close()

    def is_indexed(self, connection):
        connection.request("GET", PATH)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status in (404, 503):
            return False  # it scans
        split = json.loads(body)["splits"][0]
        if split["index"]["state"] == "failed" or split["rows"] not in (None, self.rows.count):
            raise BenchError("%s: %d rows of %s" % (PATH, self.rows.count, body[:300]))
        return split["index"]["state"] == "ready"


# ---- requests

def ask(connection, method, path, body=None):
    """Returns the body of an answer of 200."""
    headers = {} if body is None else {"Content-Type": "application/octet-stream"}
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    data = answer.read()
    if answer.status != 200:
        raise BenchError("%s %s: status %d: %s" % (method, path, answer.status, data[:200]))
    return data


def cut(frame):
    """Returns the rows of a body of format=frame."""
    count = struct.unpack_from("<Q", frame)[0]
    ends = struct.unpack_from("<%dQ" % (count + 1), frame, 8)
    base = 8 * (count + 2)
    return [frame[base + a:base + b] for a, b in zip(ends, ends[1:])]


def get_batch(connection, numbers):
    return cut(ask(connection, "POST", PATH + "/rows:batchGet?format=frame", array.array("Q", numbers).tobytes()))


def get_shuffled(connection, seed, start, count):
    return cut(ask(connection, "GET", PATH + "/rows?order=shuffle&seed=%d&start=%d&count=%d" % (seed, start, count)))


def get_singly(connections, numbers):
    """Gets each row by a request of its own, over connections with a thread each."""
    return in_threads(len(connections), numbers, lambda thread, row: ask(connections[thread], "GET",
                                                                         PATH + "/rows/%d" % row))


def read_directly(rows, numbers, threads):
    """Reads rows from their file by pread, in threads."""
    with open(rows.path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        return in_threads(threads, numbers, lambda _, row: os.pread(
            file.fileno(), rows.stride - rows.end_bytes, rows.offset + row * rows.stride))


def in_threads(count, items, work):
    """Returns [work(thread, item) of every item], with the items divided among threads."""
    done, faults = [None] * len(items), []

    def run(thread):
        try:
            for i in range(thread, len(items), count):
                done[i] = work(thread, items[i])
        except (BenchError, OSError, http.client.HTTPException) as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise BenchError("%s" % faults[0])
    return done


def timed(what, want, work, *given):
    """Returns the seconds that a call takes which returns rows. Raises BenchError if they are not those of want()."""
    begin = time.perf_counter()
    got = work(*given)
    seconds = time.perf_counter() - begin
    if got != want():
        raise BenchError("%s: other rows than the file's" % what)
    return seconds


# ---- measures; each returns {way: [sample of each round]}

def turns(bench, ways, most=None):
    return by_turns({(): ways}, min(most or bench.options.rounds, bench.options.rounds), not bench.quick)[()]


def measure_batches(bench, rows, sizes):
    with Served(bench, rows) as server:
        connections = [opened(server.port) for _ in range(GETS_CONNECTIONS)]

        def numbers(turn):
            return random.Random(turn).choices(range(rows.count), k=BATCH)

        def processor(turn):
            wanted = [numbers(turn * sizes.passes + i) for i in range(sizes.passes)]
            bodies, cpu = [array.array("Q", some).tobytes() for some in wanted], server.cpu_s()
            answers = [ask(connections[0], "POST", PATH + "/rows:batchGet?format=frame", body) for body in bodies]
            cpu = server.cpu_s() - cpu
            if any(cut(answer) != rows.read(some) for some, answer in zip(wanted, answers)):
                raise BenchError("a batch: other rows than the file's")
            return {"cpu": cpu / sizes.passes / BATCH}

        def way(work, connection):
            return lambda turn: {"seconds": timed("a batch", lambda: rows.read(numbers(turn)), work, connection,
                                                  numbers(turn))}

        return turns(bench, {"batch": way(get_batch, connections[0]), "singly": way(get_singly, connections),
                             "processor": processor})


def measure_index(bench, rows, tiny, cold, most=None):
    """Measures programs from their start: dd, and a server until its index is ready, less a server of one row."""
    def prepare():
        if cold:
            files.make_cold(rows.path, not bench.quick)
        else:
            files.fill_cache(rows.path)

    def children_cpu_s():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def dd(_turn):
        prepare()
        cpu, begin = children_cpu_s(), time.perf_counter()
        subprocess.run(["nice", "-n", "5", "dd", "if=" + rows.path, "of=/dev/null", "bs=1M", "status=none"], check=True)
        return {"seconds": time.perf_counter() - begin, "cpu": children_cpu_s() - cpu}

    def index(turn):
        with Served(bench, tiny) as server:
            alone, anon, cpu = server.ready_s, server.anon_bytes(), server.cpu_s()
        prepare()
        with Served(bench, rows) as server:
            whole, grown, cpu = server.ready_s, server.anon_bytes() - anon, server.cpu_s() - cpu
            connection = opened(server.port)
            seconds = timed("a first batch", lambda: rows.read(files.shuffled(rows.count, turn, 0, COLD_BATCH)),
                            get_shuffled, connection, turn, 0, COLD_BATCH)
            connection.close()
        return {"seconds": max(whole - alone, 1e-4), "cpu": cpu, "anon": grown, "first": whole + seconds}

    return turns(bench, {"index": index, "dd": dd}, most)


def measure_resume(bench, rows, sizes):
    """Measures the first batch on a new connection, at 90% of the order, with another seed each time."""
    with Served(bench, rows) as server:
        def resume(turn):
            start, seconds = rows.count * 9 // 10, []
            for seed in range(turn * sizes.resumes, (turn + 1) * sizes.resumes):
                connection = opened(server.port)
                seconds.append(timed("a shuffled batch", lambda seed=seed: rows.read(
                    files.shuffled(rows.count, seed, start, BATCH)), get_shuffled, connection, seed, start, BATCH))
                connection.close()
            return {"seconds": statistics.median(seconds), "most": max(seconds)}

        return turns(bench, {"resume": resume})


def measure_cold(bench, rows):
    """Reads the same rows from a cold page cache in three ways. The server finds its index in a state directory."""
    state = os.path.join(bench.work, "state")
    with Served(bench, rows, state):
        pass

    def numbers(turn):
        return random.Random(-1 - turn).choices(range(rows.count), k=COLD_BATCHES * COLD_BATCH)

    def by_batches(connection, wanted):
        return [row for i in range(0, len(wanted), COLD_BATCH)
                for row in get_batch(connection, wanted[i:i + COLD_BATCH])]

    def batches(turn):
        with Served(bench, rows, state) as server:
            connection = opened(server.port)
            files.make_cold(rows.path, not bench.quick)
            seconds = timed("a cold batch", lambda: rows.read(numbers(turn)), by_batches, connection, numbers(turn))
            connection.close()
        return {"seconds": seconds}

    def directly(threads):
        def read(turn):
            files.make_cold(rows.path, not bench.quick)
            return {"seconds": timed("pread", lambda: rows.read(numbers(turn)), read_directly, rows, numbers(turn),
                                     threads)}
        return read

    return turns(bench, {"batches": batches, "pread": directly(1), "preads": directly(PREADS)})


# ---- trainers

MINE = {"map": "tensord.Dataset, ShuffleSampler", "iterable": "tensord.IterableDataset, shuffle"}
OTHERS = {"local": "datasets, load_from_disk, local file", "webdataset": "webdataset over nginx, buffer of 1,000"}
WANTED = {"local": 0.8, "webdataset": 1}


def measure_trainers(bench, rows):
    """Returns {workers: {way: samples}} and the versions of the libraries."""
    with bench.peer("rows") as peer, Tensord(bench.work, rows, bench.options.tensord,
                                             options=["--settle", "0"]) as server, bench.nginx(root=rows.root) as nginx:
        what = {"url": "tensord://127.0.0.1:%d/datasets/%s" % (server.port, files.DATASET), "nginx": nginx.url()}
        known = peer.request(do="prepare", path=rows.path, root=rows.root)["about"]
        all_workers = (0,) if bench.quick else (0, 2)

        def way(name, workers):
            def run(turn):
                sample = peer.request(do="epoch", way=name, workers=workers, seed=turn, check=turn < 2, **what)
                if not sample["same"]:
                    raise BenchError("%s reads other rows than the file's" % {**MINE, **OTHERS}[name])
                return sample
            return run

        return by_turns({workers: {name: way(name, workers) for name in [*MINE, *OTHERS]} for workers in all_workers},
                        bench.options.rounds, not bench.quick), known


def trainer_lines(trained, count):
    for workers, samples in trained.items():
        for mine, name in MINE.items():
            for way, other in OTHERS.items():
                yield ["%s; %s; %d workers" % (name, other, workers),
                       *(number(count / median_of(samples[w], "seconds"), 0) + " rows/s" for w in (mine, way)),
                       times(median_ratio(samples[way], samples[mine], "seconds"))]


def trainer_targets(trained):
    for workers, samples in trained.items():
        for way, wanted in WANTED.items():
            yield at_least("rows/s into a DataLoader, %d workers: the faster of tensord's / %s" % (workers, way),
                           max(median_ratio(samples[way], samples[mine], "seconds") for mine in MINE), wanted)


# ---- the report

def say(text):
    print("datasets: " + text, file=sys.stderr, flush=True)


def measure(bench, sizes, cold):
    """Returns the samples by what was measured, and the files of rows."""
    place = os.path.join(bench.directory, "datasets-bench")
    say("batches")
    rows = files.write_lines(os.path.join(place, "rows"), sizes.rows)
    tiny = files.write_lines(os.path.join(place, "tiny"), 1)
    found = {"batches": measure_batches(bench, rows, sizes)}
    say("index")
    found["index"] = measure_index(bench, rows, tiny, False)
    if cold:
        found["index_cold"] = measure_index(bench, rows, tiny, True)
        say("cold rows")
        found["cold"] = measure_cold(bench, rows)
    say("many rows")
    short = files.write_lines(os.path.join(place, "short"), sizes.short, files.SHORT_BYTES)
    found["index_short"] = measure_index(bench, short, tiny, False, 3)
    found["resume_lines"] = measure_resume(bench, short, sizes)
    numbers = files.write_numbers(os.path.join(place, "numbers"), sizes.short)
    found["resume_npy"] = measure_resume(bench, numbers, sizes)
    say("first batch")
    first = files.write_lines(os.path.join(place, "first"), sizes.first)
    found["first"] = measure_index(bench, first, tiny, cold, 2)
    if not bench.quick:
        shutil.rmtree(first.root)
    return found, {"rows": rows, "short": short, "numbers": numbers, "first": first}


def lines_of(found, given):
    """Yields the table's lines: what, the figures of tensord and of the peer, tensord's in the peer's."""
    def line(what, key, mine, other, unit, convert, field="seconds"):
        of, beside = found[key][mine], found[key].get(other)
        return [what, convert(median_of(of, field)) + unit, convert(median_of(beside, "seconds")) + unit if beside else
                "-", times(median_ratio([{"seconds": s["seconds"]} for s in beside],
                                        [{"seconds": s[field]} for s in of], "seconds")) if beside else "-"]

    def ms(seconds):
        return number(seconds * 1e3)

    def rate(amount, digits=2):
        return lambda seconds: number(amount / seconds, digits)

    yield line("%d random rows: one batch, %d GETs over %d connections" % (BATCH, BATCH, GETS_CONNECTIONS), "batches",
               "batch", "singly", " ms", ms)
    for key, what, rows in (("index", "in the page cache", "rows"), ("index_cold", "cold", "rows"),
                            ("index_short", "in the page cache, rows of 20 bytes", "short")):
        if key in found:
            yield line("index of %s, %s; dd" % (bytes_text(given[rows].nbytes), what), key, "index", "dd", " GB/s",
                       rate(given[rows].nbytes / 1e9))
    cpu = found["index"]
    yield ["processor time of the index, page-cached; dd", *(ms(median_of(cpu[way], "cpu")) + " ms"
                                                             for way in ("index", "dd")),
           times(median_ratio(cpu["index"], cpu["dd"], "cpu"))]
    for way, what in (("pread", "pread, 1 thread"), ("preads", "pread, %d threads" % PREADS)):
        if "cold" in found:
            yield line("cold random rows in batches of %d; %s" % (COLD_BATCH, what), "cold", "batches", way, " rows/s",
                       rate(COLD_BATCHES * COLD_BATCH, 0))
    for key, what in (("resume_lines", "lines"), ("resume_npy", ".npy")):
        yield line("first batch at 90%% of %s shuffled rows, %s" % (number(given["short"].count, 0), what), key,
                   "resume", None, " ms", ms)
    yield line("from the server's start to the first batch of %s; dd" % bytes_text(given["first"].nbytes), "first",
               "index", "dd", " s", number, "first")


def targets_of(found, given):
    def faster(key, mine, other):
        return median_ratio(found[key][other], found[key][mine], "seconds")

    yield at_least("%d rows: single GETs / batch" % BATCH, faster("batches", "batch", "singly"), 15)
    yield at_least("rows/s per core of the server", 1 / median_of(found["batches"]["processor"], "cpu"), 300_000,
                   lambda value: number(value, 0))
    for key, what in (("index", "page-cached"), ("index_cold", "cold")):
        if key in found:
            yield at_least("rate of the index / dd, " + what, faster(key, "index", "dd"), 0.8)
    rows = number(given["short"].count, 0)
    for key, what in (("resume_lines", "lines"), ("resume_npy", ".npy")):
        yield at_most("ms to the first batch at 90%% of %s rows, %s" % (rows, what),
                      1e3 * median_of(found[key]["resume"], "seconds"), 50, number)
    yield at_most("MiB of the index of %s rows" % rows, max(s["anon"] for s in found["index_short"]["index"]) / MIB, 64,
                  number)


def run(bench):
    sizes, cold = Sizes(bench.quick, bench.directory), not files.is_memory(bench.directory)
    found, given = measure(bench, sizes, cold)
    say("trainers")
    trained, known = measure_trainers(bench, files.write_lines(
        os.path.join(bench.directory, "datasets-bench", "trained"), sizes.trained))
    about = ["rows of %d bytes in %s of JSON Lines; %s rows of %d bytes in %s, and as many of 4 bytes in a .npy; every "
             "answer is compared with the file" % (
                 files.ROW_BYTES, bytes_text(given["rows"].nbytes), number(sizes.short, 0), files.SHORT_BYTES,
                 bytes_text(given["short"].nbytes)),
             "index: from the server's start until its index is ready, polled each 5 ms, less the same of a server of "
             "one row; dd: from its start to its end",
             None if cold else "**cold: left out**, the files are in memory",
             "trainers: an epoch of %s rows of JSON in batches of 256 with default collation, from the opening of the "
             "dataset on; %s" % (number(sizes.trained, 0), known)]
    return result("Rows of datasets", about, [table(
        ["what", "tensord", "beside", "ratio"], [*lines_of(found, given), *trainer_lines(trained, sizes.trained)])],
        [*targets_of(found, given), *trainer_targets(trained)], {**found, "trainers": list(trained.items())})
