"""Rows of datasets: batches beside single GETs, the index beside dd, a shuffled order entered far from its start, rows
that are not in the page cache beside pread, and rows into a DataLoader beside other libraries (bench_trainers.py)."""

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

import bench_fixture
import bench_rows
import bench_servers
import bench_trainers
from bench_report import Targets, bytes_text, median, median_ratio, number, table, times
from bench_servers import BenchError, Tensord

MIB = 1 << 20
COLD_ENOUGH = 0.01
BATCH = 1024  # rows
GETS_CONNECTIONS = 4
COLD_BATCHES, COLD_BATCH = 4, 256
PREADS = 32  # threads
PASSES = 100  # batches whose processor time is taken together
RESUMES = 20  # first batches in each round
PATH = "/datasets/%s" % bench_rows.DATASET
INDEX_SECONDS = 900


class Sizes:
    """Rows of each file: `rows` of 1 KiB; `short` of 20 bytes, and as many numbers; `first` of 1 KiB, for the time to
    the first batch; `trained` of 1 KiB, for the trainers."""

    def __init__(self, quick, directory):
        self.rows, self.short, self.trained = (5_000, 50_000, 2_000) if quick else (1_000_000, 100_000_000, 131_072)
        room = shutil.disk_usage(directory).free > 40 << 30
        self.first = 5_000 if quick else 10_000_000 if room else 2_000_000
        self.passes, self.resumes = (2, 2) if quick else (PASSES, RESUMES)


class Served(Tensord):
    """A server of one dataset. start() returns when it is ready, ready_s has the seconds until its index was there."""

    name = "tensord-rows"

    def __init__(self, work, binary, rows, state_dir=None):
        super().__init__(work, rows, binary, rows.root,
                         ["--settle", "0"] + (["--state-dir", state_dir] if state_dir else []))
        self.rows, self.ready_s = rows, None

    def start(self):
        self.begun = time.monotonic()
        return super().start()

    def wait_ready(self):
        self.wait_for(self.read_port, "listening", step_s=0.001)
        connection = connect(self)
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

def connect(server):
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)


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
    rows = [None] * len(numbers)

    def work(first):
        for i in range(first, len(numbers), len(connections)):
            rows[i] = ask(connections[first], "GET", PATH + "/rows/%d" % numbers[i])

    in_threads(len(connections), work)
    return rows


def read_directly(path, rows, numbers, threads):
    """Reads rows from their file by pread, in threads."""
    got = [None] * len(numbers)
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

        def work(first):
            for i in range(first, len(numbers), threads):
                got[i] = os.pread(file.fileno(), rows.stride - rows.end_bytes, rows.offset + numbers[i] * rows.stride)

        in_threads(threads, work)
    return got


def in_threads(count, work):
    faults = []

    def run(first):
        try:
            work(first)
        except (BenchError, OSError, http.client.HTTPException) as fault:
            faults.append(fault)

    if count == 1:
        return work(0)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise BenchError("%s" % faults[0])


def check(what, got, want):
    if got != want:
        raise BenchError("%s: other rows than the file's" % what)


def children_cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(work, *given):
    """Returns the seconds that a call takes, and its result."""
    begin = time.perf_counter()
    result = work(*given)
    return time.perf_counter() - begin, result


# ---- measures; each returns {way: [{"seconds": ...} of each round]}

def by_turns(ways, rounds, quick):
    """Calls the functions of ways by turns, after a round that does not count; each returns its sample."""
    samples = {way: [] for way in ways}
    for turn in range(0 if quick else -1, rounds):
        for way in ways if turn % 2 == 0 else reversed(list(ways)):
            sample = ways[way](turn + 1)
            if turn >= 0:
                samples[way].append(sample)
    return samples


def measure_batches(work, rows, sizes, options):
    with Served(work, options.tensord, rows) as server:
        connections = [connect(server) for _ in range(GETS_CONNECTIONS)]

        def numbers(turn):
            return random.Random(turn).choices(range(rows.count), k=BATCH)

        def batch(turn):
            seconds, got = timed(get_batch, connections[0], numbers(turn))
            check("a batch", got, rows.read(numbers(turn)))
            return {"seconds": seconds}

        def singly(turn):
            seconds, got = timed(get_singly, connections, numbers(turn))
            check("single rows", got, rows.read(numbers(turn)))
            return {"seconds": seconds}

        def processor(turn):
            wanted = [numbers(turn * sizes.passes + i) for i in range(sizes.passes)]
            bodies = [array.array("Q", some).tobytes() for some in wanted]
            path = PATH + "/rows:batchGet?format=frame"
            cpu, begin = server.cpu_s(), time.perf_counter()
            answers = [ask(connections[0], "POST", path, body) for body in bodies]
            cpu, seconds = server.cpu_s() - cpu, time.perf_counter() - begin
            for some, answer in zip(wanted, answers):
                check("a batch", cut(answer), rows.read(some))
            return {"cpu": cpu / sizes.passes / BATCH, "seconds": seconds / sizes.passes}

        return by_turns({"batch": batch, "singly": singly, "processor": processor}, options.rounds, options.quick)


def measure_index(work, rows, tiny, cold, rounds, options):
    """Measures programs from their start: dd, and a server until the index is there, less a server of one row."""
    def prepare():
        if not cold:
            return bench_fixture.fill_cache(rows.path)
        resident = bench_fixture.drop_cache(rows.path, COLD_ENOUGH)
        if resident > COLD_ENOUGH and not options.quick:
            raise BenchError("%.1f%% of %s is still in the page cache" % (100 * resident, rows.path))

    def dd(_turn):
        prepare()
        command = ["nice", "-n", "5", "dd", "if=" + rows.path, "of=/dev/null", "bs=1M", "status=none"]
        cpu = children_cpu_s()
        return {"seconds": timed(lambda: subprocess.run(command, check=True))[0], "cpu": children_cpu_s() - cpu}

    def index(turn):
        with Served(work, options.tensord, tiny) as server:
            alone, anon, cpu = server.ready_s, server.anon_bytes(), server.cpu_s()
        prepare()
        with Served(work, options.tensord, rows) as server:
            whole, grown, cpu = server.ready_s, server.anon_bytes() - anon, server.cpu_s() - cpu
            connection = connect(server)
            seconds, got = timed(get_shuffled, connection, turn, 0, COLD_BATCH)
            connection.close()
        check("a first batch", got, rows.read(bench_rows.shuffled(rows.count, turn, 0, COLD_BATCH)))
        return {"seconds": max(whole - alone, 1e-4), "cpu": cpu, "anon": grown, "first": whole + seconds}

    return by_turns({"index": index, "dd": dd}, rounds, options.quick)


def measure_resume(work, rows, sizes, options):
    """Measures the first batch on a new connection, at 90% of the order, with another seed each time."""
    with Served(work, options.tensord, rows) as server:
        def resume(turn):
            start, seconds = rows.count * 9 // 10, []
            for seed in range(turn * sizes.resumes, (turn + 1) * sizes.resumes):
                connection = connect(server)
                taken, got = timed(get_shuffled, connection, seed, start, BATCH)
                connection.close()
                seconds.append(taken)
                check("a shuffled batch", got, rows.read(bench_rows.shuffled(rows.count, seed, start, BATCH)))
            return {"seconds": statistics.median(seconds), "most": max(seconds)}

        return by_turns({"resume": resume}, options.rounds, options.quick)


def measure_cold(work, rows, options):
    """Reads the same rows from a cold page cache in three ways. The server finds its index in a state directory."""
    state = os.path.join(work, "state")
    with Served(work, options.tensord, rows, state):
        pass

    def drop():
        resident = bench_fixture.drop_cache(rows.path, COLD_ENOUGH)
        if resident > COLD_ENOUGH and not options.quick:
            raise BenchError("%.1f%% of %s is still in the page cache" % (100 * resident, rows.path))

    def numbers(turn):
        return random.Random(-1 - turn).choices(range(rows.count), k=COLD_BATCHES * COLD_BATCH)

    def batches(turn):
        wanted = numbers(turn)
        with Served(work, options.tensord, rows, state) as server:
            connection = connect(server)
            drop()
            seconds, got = timed(lambda: [row for i in range(0, len(wanted), COLD_BATCH)
                                          for row in get_batch(connection, wanted[i:i + COLD_BATCH])])
            connection.close()
        check("a cold batch", got, rows.read(wanted))
        return {"seconds": seconds}

    def directly(threads):
        def read(turn):
            drop()
            seconds, got = timed(read_directly, rows.path, rows, numbers(turn), threads)
            check("pread", got, rows.read(numbers(turn)))
            return {"seconds": seconds}
        return read

    return by_turns({"batches": batches, "pread": directly(1), "preads": directly(PREADS)}, options.rounds,
                    options.quick)


# ---- the report

def in_memory(directory):
    """Returns whether files there are always in memory, so that none is ever cold."""
    path = os.path.join(directory, "resident.tmp")
    with open(path, "wb") as file:
        file.write(bytes(MIB))
    try:
        return bench_fixture.drop_cache(path, seconds=1) > COLD_ENOUGH
    finally:
        os.unlink(path)


def say(text):
    print("datasets: " + text, file=sys.stderr, flush=True)


def measure(work, directory, sizes, options):
    place = os.path.join(directory, "datasets-bench")
    cold = not in_memory(directory)
    say("writing files")
    rows = bench_rows.write_lines(os.path.join(place, "rows"), sizes.rows)
    tiny = bench_rows.write_lines(os.path.join(place, "tiny"), 1)
    found = {"batches": measure_batches(work, rows, sizes, options)}
    say("index")
    found["index"] = measure_index(work, rows, tiny, False, options.rounds, options)
    if cold:
        found["index_cold"] = measure_index(work, rows, tiny, True, options.rounds, options)
        say("cold rows")
        found["cold"] = measure_cold(work, rows, options)
    say("many rows")
    short = bench_rows.write_lines(os.path.join(place, "short"), sizes.short, bench_rows.SHORT_BYTES)
    found["index_short"] = measure_index(work, short, tiny, False, min(3, options.rounds), options)
    found["resume_lines"] = measure_resume(work, short, sizes, options)
    numbers = bench_rows.write_numbers(os.path.join(place, "numbers"), sizes.short)
    found["resume_npy"] = measure_resume(work, numbers, sizes, options)
    say("first batch")
    first = bench_rows.write_lines(os.path.join(place, "first"), sizes.first)
    found["first"] = measure_index(work, first, tiny, cold, min(2, options.rounds), options)
    if not options.quick:
        shutil.rmtree(first.root)
    return found, {"rows": rows, "short": short, "numbers": numbers, "first": first}


def cells_of(found, files):
    """Returns the table's lines: what, the figures of tensord and of the peer, tensord's in the peer's."""
    def line(what, mine, other, unit, convert):
        return [what, convert(median([s["seconds"] for s in mine])) + unit,
                "-" if other is None else convert(median([s["seconds"] for s in other])) + unit,
                "-" if other is None else times(median_ratio(other, mine, "seconds"))]

    def rate(rows):
        return lambda seconds: number(rows.nbytes / seconds / 1e9)

    def ms(seconds):
        return number(seconds * 1e3)

    def rows_per_s(count):
        return lambda seconds: number(count / seconds, 0)

    batches = found["batches"]
    cells = [line("%d random rows: one batch, %d GETs over %d connections" % (BATCH, BATCH, GETS_CONNECTIONS),
                  batches["batch"], batches["singly"], " ms", ms)]
    for key, what, rows in (("index", "in the page cache", "rows"), ("index_cold", "cold", "rows"),
                            ("index_short", "in the page cache, rows of 20 bytes", "short")):
        if key in found:
            cells.append(line("index of %s, %s; dd" % (bytes_text(files[rows].nbytes), what), found[key]["index"],
                              found[key]["dd"], " GB/s", rate(files[rows])))
    cpu = found["index"]
    cells.append(["processor time of the index, page-cached; dd",
                  *(number(median([s["cpu"] for s in cpu[way]]) * 1e3) + " ms" for way in ("index", "dd")),
                  times(median_ratio(cpu["index"], cpu["dd"], "cpu"))])
    if "cold" in found:
        for way, what in (("pread", "pread, 1 thread"), ("preads", "pread, %d threads" % PREADS)):
            cells.append(line("cold random rows in batches of %d; %s" % (COLD_BATCH, what), found["cold"]["batches"],
                              found["cold"][way], " rows/s", rows_per_s(COLD_BATCHES * COLD_BATCH)))
    for key, what in (("resume_lines", "lines"), ("resume_npy", ".npy")):
        cells.append(line("first batch at 90%% of %s shuffled rows, %s" % (number(files["short"].count, 0), what),
                          found[key]["resume"], None, " ms", ms))
    first = [{"seconds": s["first"]} for s in found["first"]["index"]]
    cells.append(line("from the server's start to the first batch of %s; dd" % bytes_text(files["first"].nbytes), first,
                      found["first"]["dd"], " s", number))
    return cells


def set_targets(targets, found, files):
    def faster(key, mine, other):
        return median_ratio(found[key][other], found[key][mine], "seconds")

    targets.at_least("%d rows: single GETs / batch" % BATCH, faster("batches", "batch", "singly"), 15)
    per_row = median([s["cpu"] for s in found["batches"]["processor"]])
    targets.at_least("rows/s per core of the server", 1 / per_row, 300_000, lambda value: number(value, 0))
    targets.at_least("rate of the index / dd, page-cached", faster("index", "index", "dd"), 0.8)
    if "index_cold" in found:
        targets.at_least("rate of the index / dd, cold", faster("index_cold", "index", "dd"), 0.8)
    rows = number(files["short"].count, 0)
    for key, what in (("resume_lines", "lines"), ("resume_npy", ".npy")):
        targets.at_most("ms to the first batch at 90%% of %s rows, %s" % (rows, what),
                        median([1e3 * s["seconds"] for s in found[key]["resume"]]), 50, number)
    targets.at_most("MiB of the index of %s rows" % rows,
                    max(s["anon"] for s in found["index_short"]["index"]) / MIB, 64, number)


def run(work, directory, options):
    sizes, targets, about = Sizes(options.quick, directory), Targets(), []
    found, files = measure(work, directory, sizes, options)
    about.append("rows of %d bytes in %s of JSON Lines; %s rows of %d bytes in %s, and as many of 4 bytes in a .npy; "
                 "every answer is compared with the file" % (bench_rows.ROW_BYTES, bytes_text(files["rows"].nbytes),
                 number(sizes.short, 0), bench_rows.SHORT_BYTES, bytes_text(files["short"].nbytes)))
    about.append("index: from the server's start until its index is there, polled each 5 ms, less the same of a server "
                 "of one row; dd: from its start to its end")
    if "cold" not in found:
        about.append("**cold: left out**, the files lie in memory")
    cells = cells_of(found, files)
    set_targets(targets, found, files)
    say("trainers")
    trained = bench_trainers.run(work, directory, sizes.trained, options, about)
    cells += bench_trainers.cells_of(trained, sizes.trained)
    bench_trainers.set_targets(targets, trained)
    return {"mode": "datasets", "title": "Rows of datasets", "about": about, "targets": targets,
            "rows": {**found, "trainers": trained}, "table": table(["what", "tensord", "beside", "ratio"], cells)}
