"""Parts of tensors and rank files beside nginx's contiguous ranges of the same length and bare loops that send the same
runs, and eight ranks beside eight whole checkpoints. All files are in the page cache."""

import json
import os
import socket
import subprocess
import time

import files
import servers
from clients import checked, disturbed_note
from measure import (BenchError, at_least, at_most, by_turns, bytes_text, connections_text, median, median_of,
                     median_ratio, number, ratio, result, rounds_text, rows_table, summarize, table, times)
from works.connections import slow_open
from works.ranges import COLUMNS, RATIOS

TP, RANK = 8, 3
MIB = 1 << 20
# Bytes of a run of a row-parallel slice: an eighth of this many BF16 columns. 28,672 is Llama 3 70B's intermediate
# size.
RUNS = {1536: 6144, 7168: 28672, 65536: 262144}


def make_root(bench):
    root = os.path.join(bench.directory, "slices")
    shapes = {"rows%d" % run: [(64 if bench.quick else 512) * MIB // (2 * columns), columns]
              for run, columns in RUNS.items()}
    paths = [os.path.join(root, model, "model.safetensors") for model in ("rows", "llama")]
    places, offset = files.write_tensors(paths[0], shapes)
    model = files.Llama(2, vocabulary=2048, intermediate=2048) if bench.quick else files.Llama(33)  # of 300 tensors
    model.write(os.path.dirname(paths[1]))
    for path in paths:
        files.fill_cache(path)
    return root, {name: (shape, offset + begin, offset + end) for name, (shape, begin, end) in places.items()}


# ---- rates

def runs_of(place, run, columns):
    """Returns the slice as (offset of its first run in the file, bytes of a run, from one to the next, runs)."""
    shape, begin, _ = place
    return begin + RANK * run, run, 2 * columns, shape[0]


def check_answer(server, path, want, headers=None):
    status, _, body = server.get(path, headers)
    if status not in (200, 206) or body != want:
        raise BenchError("%s: GET %s: status %d, not the file's bytes" % (server.name, path, status))


def measure_rates(bench, load, compared, root, places):
    """Measures for each kind of run one answer of the slice's length after the other: gathered by tensord and by the
    bare loops, contiguous by nginx. Returns the samples by (run, bytes of an answer, connections)."""
    path, cells = os.path.join(root, "rows", "model.safetensors"), {}
    for run, columns in RUNS.items():
        place = places["rows%d" % run]
        size, runs = (place[2] - place[1]) // TP, runs_of(place, run, columns)
        with open(path, "rb") as f:
            wanted = b"".join(os.pread(f.fileno(), run, runs[0] + row * runs[2]) for row in range(runs[3]))
            contiguous = os.pread(f.fileno(), size, place[1])
        parts = dict.fromkeys(compared, ("/%d/%d/%d/%d" % runs, size))
        parts["tensord"] = ("/models/rows/tensors/rows%d?shard=1:%d/%d" % (run, RANK, TP), size)
        parts["nginx"] = ("/rows/model.safetensors", os.path.getsize(path))
        for name, (url, _) in parts.items():
            of_range = {"Range": "bytes=%d-%d" % (place[1], place[1] + size - 1)} if name == "nginx" else None
            check_answer(compared[name], url, contiguous if of_range else wanted, of_range)

        def way(name, connections, size=size, parts=parts):
            return lambda turn: load.run(compared[name], size if name == "nginx" else 0, connections,
                                         ["--duration", bench.options.duration], turn + 1, parts[name])

        for connections in bench.options.connections:
            cells[run, size, connections] = {name: way(name, connections) for name in compared}
    return by_turns(cells, bench.options.rounds, not bench.quick, "slices")


def rate_targets(rows):
    """One target against nginx, which sends contiguous bytes by reference, and one against the loop that gathers by
    copying. There is no target of processor time: what a gathering server can spare is the loop's."""
    for r in (row for row in rows if row["server"] == "tensord"):
        what = "runs of %s bytes, %s: " % (number(r["run"], 0), connections_text(r["connections"]))
        yield at_least(what + "rate / nginx's contiguous one", r["rate / nginx"], 0.8)
        yield at_least(what + "rate / gather", r["rate / gather"], 0.95)


# ---- eight ranks

def together(load, server, parts):
    """Fetches each part once, all at the same time, each by a client of its own. Returns the seconds until the last has
    ended, and the server's processor time for a GB."""
    cpu, start = server.cpu_s(), time.monotonic()
    clients = [subprocess.Popen(load.command(server, 0, 1, ["--requests", 1], part=part), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True) for part in parts]
    for client in clients:
        checked(subprocess.CompletedProcess(client.args, 0, *client.communicate()), server, server.name)
    return {"seconds": time.monotonic() - start,
            "cpu": (server.cpu_s() - cpu) / sum(size for _, size in parts) * 1e9}


def measure_ranks(bench, load, compared, root):
    """Returns the samples of each side, and the bytes that each fetches."""
    nginx, tensord = compared["nginx"], compared["tensord"]
    whole = os.path.getsize(os.path.join(root, "llama", "model.safetensors"))
    ranks = []
    for rank in range(TP):
        path = "/models/llama/shards/vllm/tp%d/rank-%d" % (TP, rank)
        ranks.append((path + ".safetensors", json.loads(tensord.get(path + ".json")[2])["nbytes"]))
    sides = {"%d ranks" % TP: (tensord, ranks),
             "%d times the whole, from tensord" % TP: (tensord, [(
                 "/models/llama/files/model.safetensors", whole)] * TP),
             "%d times the whole, from nginx" % TP: (nginx, [("/llama/model.safetensors", whole)] * TP)}
    samples = by_turns({(): {side: lambda _, side=side: together(load, *sides[side]) for side in sides}},
                       bench.options.rounds, not bench.quick)[()]
    return samples, {side: sum(size for _, size in parts) for side, (_, parts) in sides.items()}


def ranks_table(samples, nbytes):
    ranks = median_of(samples["%d ranks" % TP], "seconds")
    return table(["fetched at once", "bytes", "CPU s/GB", "s", "beside the ranks"], [
        [side, bytes_text(nbytes[side]), number(median_of(of, "cpu"), 3), number(median_of(of, "seconds"), 3),
         times(ratio(median_of(of, "seconds"), ranks))] for side, of in samples.items()])


# ---- first byte, memory

def first_byte_ms(server, path):
    """Returns the milliseconds from the request to the first byte of the answer's body."""
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start, got = time.perf_counter(), b""
        s.sendall(("GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nRange: bytes=0-999\r\n\r\n" % path).encode())
        while not got.partition(b"\r\n\r\n")[2]:
            more = s.recv(65536)
            if not more:
                raise BenchError("GET %s: %s" % (path, got[:300]))
            got += more
        if not got.startswith(b"HTTP/1.1 206"):
            raise BenchError("GET %s: %s" % (path, got[:300]))
        return 1000 * (time.perf_counter() - start)


def memory_each(server, connections):
    """Returns the anonymous bytes that the server grows by for each connection within a slice of many runs."""
    base = server.anon_bytes()
    path = "/models/rows/tensors/rows1536?shard=1:%d/%d" % (RANK, TP)
    sockets = slow_open(server, path, [None] * connections, b"200")
    time.sleep(0.5)
    grown = server.anon_bytes() - base
    for s in sockets:
        s.close()
    return grown / connections


def run(bench):
    root, places = make_root(bench)
    rows_file = files.Fixture(os.path.join(root, "rows", "model.safetensors"), 0, 0)
    load = bench.load()
    with bench.started([bench.nginx(root=root), bench.tensord(root=root), *(
            servers.Raw(bench.work, rows_file, bench.program("raw_send"), name, "--" + name)
            for name in ("gather", "vectors"))]) as started:
        compared = {server.name: server for server in started}
        samples = measure_rates(bench, load, compared, root, places)
        ranks, nbytes = measure_ranks(bench, load, compared, root)
        shards = ["/models/llama/shards/fsdp/tp%d/rank-0.safetensors" % tp
                  for tp in range(2, 3 if bench.quick else 13)]
        first, planned = ([first_byte_ms(compared["tensord"], path) for path in shards] for _ in range(2))
        memory = memory_each(compared["tensord"], 8 if bench.quick else 64)
    rows = summarize(samples, ("run", "bytes", "connections"), RATIOS)
    about = [
        "congestion control %s; %s" % (bench.congestion, load.reader_text()),
        "slices: `?shard=1:%d/%d`, one run of so many bytes out of each row, beside nginx's contiguous ranges of "
        "the same length, and beside bare loops that send the same runs: gather copies them into windows, vectors "
        "sends them from the mapping" % (RANK, TP), rounds_text(bench.options),
        "ranks: all %d of vLLM's for a Llama, each fetched by a client of its own, all at once; beside %d clients "
        "that fetch the whole" % (TP, TP),
        "first byte: of a range of a rank's file that nobody has asked for before, and of one that is planned",
        disturbed_note(samples)]
    columns = [("run", "run", lambda n: bytes_text(n) if n % 1024 == 0 else "%d B" % n),
               ("answer", "bytes", bytes_text), *COLUMNS[1:4], *COLUMNS[7:]]
    columns += [(name, name, times) for name in ("rate / nginx", "CPU / nginx", "rate / gather", "CPU / gather")]
    facts = table(["", ""], [["first byte of a rank's file, planned for it", "%.2f ms" % median(first)],
                             ["first byte, planned before", "%.2f ms" % median(planned)],
                             ["anonymous memory per connection amid a slice", bytes_text(int(memory))]])
    eight, whole, _ = ranks
    return result("Slices and rank files, %s" % bench.congestion, about,
                  [rows_table(rows, columns), ranks_table(ranks, nbytes), facts],
                  [*rate_targets(rows),
                   at_most("eight ranks, of the time of eight whole checkpoints",
                           median_ratio(ranks[eight], ranks[whole], "seconds"), 0.2),
                   at_most("first byte of a rank's file", median(first), 5.0, lambda v: "%.2f ms" % v)],
                  {"rates": rows, "ranks": ranks, "rank_bytes": nbytes, "first_byte_ms": first,
                   "planned_first_byte_ms": planned, "memory_bytes": memory}, samples)
