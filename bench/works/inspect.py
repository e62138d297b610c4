"""Reading the structure of files, and tensors that are compressed: beside Python's readers of the same formats; also
many models, and one model with very many tensors."""

import contextlib
import hashlib
import http.client
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import threading
import time

import files
import servers
from clients import Lines
from measure import (BenchError, at_least, at_most, by_turns, median, median_of, median_ratio, number, ratio, result,
                     table, times)
from servers import MemoryWatch

MIB = 1 << 20

# ---- inspect beside the Python reader of the file's format, which has imported everything and continues to run

COPIES = 50
PARSE_CASES = (  # kind, file name, what is compared, how many times faster tensord should be
    ("torch", "consolidated.00.pth", "291 tensors, torch.load(mmap=True, weights_only=True)", 5),
    ("hdf5", "model.h5", "200 datasets, h5py: visititems, get_offset", 10),
    ("safetensors", "model.safetensors", "1,000 tensors, safe_open().keys()", 1),
)


class Spawner(Lines):
    """Times whole programs with spawn_time.c."""

    def time(self, *command):
        ns, resident_kib, status = (int(word) for word in self.ask("\t".join(command)).split())
        if status != 0:
            raise BenchError("%s: wait status %d" % (" ".join(command), status))
        return {"ms": ns / 1e6, "resident_bytes": resident_kib << 10}

    def inspect(self, tensord, path):
        return self.time(tensord, "inspect", "--json", path)


def check_same(tensord, peer, kind, path):
    """Checks that both find the same tensors, because a reader that finds fewer would be faster."""
    run = subprocess.run([tensord, "inspect", path, "--json"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise BenchError("inspect: %s" % run.stderr.strip())
    mine = {t["name"]: t["offset"] for t in json.loads(run.stdout)["tensors"]}
    theirs = peer.request(do="names", kind=kind, path=path)
    if sorted(mine) != theirs["names"] or (theirs["offsets"] is not None and mine != theirs["offsets"]):
        raise BenchError("%s: tensord and the peer find different tensors" % os.path.basename(path))


def per_file_ms(spawner, tensord, path, rounds):
    """Returns the time for one more file in a running process: a directory of many files less one of a single file."""
    sizes = {}
    for count in (1, 1 + COPIES):
        sizes[count] = os.path.join(os.path.dirname(path), "copies-%d" % count)
        for i in range(count):
            os.makedirs(os.path.join(sizes[count], "m%03d" % i))
            shutil.copy(path, os.path.join(sizes[count], "m%03d" % i))
    return median([(spawner.inspect(tensord, sizes[1 + COPIES])["ms"] - spawner.inspect(tensord, sizes[1])["ms"])
                   for _ in range(rounds)]) / COPIES


def parse_case(bench, spawner, peer, case, rounds):
    kind, name, what, wanted = case
    tensord, path = bench.options.tensord, os.path.join(bench.work, "parse-" + kind, name)
    os.makedirs(os.path.dirname(path))
    peer.request(do="make", kind=kind, path=path)
    check_same(tensord, peer, kind, path)
    samples = by_turns({(): {"peer": lambda _: {"ms": peer.request(do="time", kind=kind, path=path)["ns"] / 1e6},
                             "tensord": lambda _: spawner.inspect(tensord, path)}}, rounds)[()]
    row = {"what": what, "wanted": wanted, "peer_ms": median_of(samples["peer"], "ms"), "samples": samples,
           "tensord_ms": median_of(samples["tensord"], "ms"),
           "times": median_ratio(samples["peer"], samples["tensord"], "ms"),
           "per_file_ms": per_file_ms(spawner, tensord, path, max(3, rounds // 10))}
    return {**row, "times_per_file": ratio(row["peer_ms"], row["per_file_ms"])}


def write_long_safetensors(path, header_bytes):
    """Writes a file with tensors of one byte, so many that the header has header_bytes. Returns its length."""
    entries, length, i = {}, 2, 0
    while length < header_bytes:
        name = "model.layers.%07d.self_attn.weight" % i
        entries[name] = {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
        length += len(name) + len(str(i)) * 2 + 54
        i += 1
    header = files.header_of(entries)
    files.write(path, [header, bytes(i)])
    return len(header)


def write_long_gguf(path, tensors):
    """Writes a file of empty tensors, which have only names. Returns the length of its header."""
    head = [b"GGUF" + struct.pack("<IQQ", 3, tensors, 0)]
    for i in range(tensors):
        name = b"blk.%07d.attn_q.weight" % i
        head.append(struct.pack("<Q", len(name)) + name + struct.pack("<IQQIQ", 2, 32, 0, 0, 0))
    length = sum(len(part) for part in head)
    files.write(path, [*head, bytes(-length % 32)])
    return length


def header_memory(bench, spawner):
    """Returns rows: the peak resident memory of inspect beyond that for a file of one tensor, by the header's length.
    """
    rows, base = [], 0
    for name, write, amount, what in (
            ("small.safetensors", write_long_safetensors, 3, "safetensors, one tensor"),
            ("long.safetensors", write_long_safetensors, MIB if bench.quick else 20 * MIB,
             "safetensors, a long header"),
            ("long.gguf", write_long_gguf, 10_000 if bench.quick else 1_000_000, "GGUF, {:,} names")):
        path = os.path.join(bench.work, name)
        length = write(path, amount)
        runs = [spawner.inspect(bench.options.tensord, path) for _ in range(1 if bench.quick else 3)]
        resident = median_of(runs, "resident_bytes")
        base = base or resident
        rows.append({"what": what.format(amount), "header_bytes": length, "ms": median_of(runs, "ms"),
                     "resident_bytes": resident, "times_header": (resident - base) / length})
        os.unlink(path)
    return rows


def parse(bench):
    rounds, tensord = bench.options.parse_rounds, bench.options.tensord
    with Spawner([bench.program("spawn_time")]) as spawner, bench.peer("parse") as peer:
        rows = [parse_case(bench, spawner, peer, case, rounds) for case in PARSE_CASES]
        starts = {what: median([spawner.time(*command)["ms"] for _ in range(rounds)])
                  for what, command in (("tensord --help", (tensord, "--help")), ("/bin/true", ("/bin/true",)))}
        memory = header_memory(bench, spawner)
    cells = [[r["what"], number(r["peer_ms"], 3), number(r["tensord_ms"], 3), number(r["per_file_ms"], 3),
              times(r["times"]), times(r["times_per_file"])] for r in rows]
    cells += [["process start alone: " + what, "-", number(ms, 3), "-", "-", "-"] for what, ms in starts.items()]
    memory_cells = [[r["what"], number(r["header_bytes"] / MIB, 1), number(r["ms"], 0),
                     number(r["resident_bytes"] / MIB, 1), times(r["times_header"])] for r in memory]
    about = ["`inspect --json FILE` from before posix_spawn to after wait4, output to /dev/null, by a small C program "
             "(spawn_time.c), so that no large parent is forked; files are page-cached",
             "*of it per file*: by a directory of %d files against one of a single file, in one process each"
             % (1 + COPIES),
             "peers: Python %s, one process that has imported everything and continues to run; what they return is "
             "freed outside the measured time" % peer.python,
             "%d rounds, the sides taking turns; *faster* is the median of the ratios within each round" % rounds]
    # Without tensord's start, which mostly loads libraries, because the peer does not start again for each file.
    return result("Reading a file's structure", about, [
        table(["file", "peer ms", "inspect ms", "of it per file ms", "faster", "faster per file"], cells),
        table(["header", "MiB", "inspect ms", "peak resident MiB", "beyond that of one tensor, by header"],
              memory_cells)],
        [at_least("faster than the peer, per file: " + r["what"], r["times_per_file"], r["wanted"]) for r in rows],
        {"files": rows, "starts": starts, "memory": memory})


# ---- compressed tensors over HTTP

COLUMNS = 1024  # of F32
WINDOW_ROWS = 64
DECODE_CASES = (  # file, description, name of the peer
    ("gzip.h5", "HDF5, gzip", "h5py"),
    ("shuffle.h5", "HDF5, shuffle and gzip", "h5py"),
    ("lzf.h5", "HDF5, shuffle and lzf", "h5py"),
    ("npz.npz", "npz, deflated", "NumPy"),
)


def read_parts(bench, root, name, parts, nbytes):
    """Starts a server that has unpacked nothing yet, and reads the parts (tensor, first byte, bytes; or None) with one
    client into one buffer. Returns the milliseconds and the SHA-256 of all bytes."""
    room, digest = memoryview(bytearray(nbytes)), hashlib.sha256()
    with bench.tensord(root=root, options=["--settle", "0"]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        elapsed = 0
        for tensor, first, length in parts:
            begin = time.perf_counter_ns()
            headers = {} if length is None else {"Range": "bytes=%d-%d" % (first, first + length - 1)}
            connection.request("GET", "/models/%s/tensors/t%d" % (name, tensor), headers=headers)
            answer, done = connection.getresponse(), 0
            while got := answer.readinto(room[done:]):
                done += got
            elapsed += time.perf_counter_ns() - begin
            if answer.status not in (200, 206):
                raise BenchError("%s: status %d: %s" % (name, answer.status, bytes(room[:200])))
            digest.update(room[:done])
        connection.close()
    return {"ms": elapsed / 1e6, "sha256": digest.hexdigest()}


def decode_case(bench, peer, name):
    """Returns the samples of the ways to read all tensors, and windows of 64 rows at random places."""
    tensors, rows, count = (2, 256, 4) if bench.quick else (8, 8192, 32)
    root, row_bytes = os.path.join(bench.work, "decode-" + name), 4 * COLUMNS
    os.makedirs(root)
    path = os.path.join(root, name)
    peer.request(do="make", path=path, kind=name, tensors=tensors, rows=rows, columns=COLUMNS)

    def windows(turn):
        rng = random.Random(turn)
        return [(rng.randrange(tensors), rng.randrange(rows - WINDOW_ROWS), WINDOW_ROWS) for _ in range(count)]

    def mine(parts):
        return read_parts(bench, root, name, parts, rows * row_bytes)

    def theirs(**what):
        answer = peer.request(path=path, **what)
        return {"ms": answer["ns"] / 1e6, "sha256": answer["sha256"]}

    samples = by_turns({
        "whole": {"tensord": lambda _: mine([(i, None, None) for i in range(tensors)]),
                  "peer": lambda _: theirs(do="whole", tensors=tensors)},
        "window": {"tensord": lambda turn: mine([(i, row * row_bytes, n * row_bytes) for i, row, n in windows(turn)]),
                   "peer": lambda turn: theirs(do="windows", windows=windows(turn))}},
        bench.options.rounds, False)
    for ways in samples.values():
        if any(a["sha256"] != b["sha256"] for a, b in zip(ways["tensord"], ways["peer"])):
            raise BenchError("%s: tensord and the peer read different bytes" % name)
    os.unlink(path)
    return samples, count


def decode(bench):
    cells, targets, kept = [], [], {}
    with bench.peer("decode") as peer:
        for name, what, peer_name in DECODE_CASES:
            kept[what], count = decode_case(bench, peer, name)
            line = [what, peer_name]
            for how, ways in kept[what].items():
                each = count if how == "window" else 1
                faster = median_ratio(ways["peer"], ways["tensord"], "ms")
                line += [number(median_of(ways[side], "ms") / each, 2) for side in ("peer", "tensord")]
                line.append(times(faster))
                targets.append(at_least("faster than %s, %s: %s" % (peer_name, how, what), faster, 1))
            cells.append(line)
    about = ["F32 tensors of 8192 x 1024 in chunks of 64 rows; one client in Python reads all of eight tensors, or 32 "
             "windows of 64 rows at random places, over HTTP from a server that was just started; h5py and NumPy read "
             "the same from the file, in a process that has imported everything"]
    return result("Compressed tensors", about, [table(
        ["file", "peer", "whole, peer ms", "whole, tensord ms", "peer / tensord", "window, peer ms",
         "window, tensord ms", "peer / tensord"], cells)], targets, kept)


# ---- many models, many tensors

STREAMS = 8


def tree_start(server, directories, tensors):
    """Returns a sample of one start on a tree. The files were just written, so they are in the page cache."""
    start = time.monotonic()
    with server:
        ready_s = time.monotonic() - start
        _, _, body = server.get("/models")
        count = [c["tensor_count"] for m in json.loads(body)["models"] for c in m["checkpoints"]]
        if len(count) != directories or sum(count) != directories * tensors:
            raise BenchError("GET /models: %d checkpoints with %d tensors instead of %d with %d"
                             % (len(count), sum(count), directories, directories * tensors))
        return {"ready_s": ready_s, "resident": server.resident_bytes(), "anon": server.anon_bytes()}


def stream(port, path, pause_s=0.0):
    """Reads one GET to its end, slowly when a pause is given. Returns seconds to the first and the last byte, and the
    bytes of the body."""
    with contextlib.closing(socket.create_connection(("127.0.0.1", port), 60)) as s:
        start = time.monotonic()
        s.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path.encode())
        data = s.recv(64 << 10)
        first_s, head = time.monotonic() - start, b""
        while data and b"\r\n\r\n" not in head:
            head += data
            data = s.recv(64 << 10)
        if not head.startswith(b"HTTP/1.1 200"):
            raise BenchError("%s: %r" % (path, head[:60]))
        nbytes = len(head.partition(b"\r\n\r\n")[2])
        while data:
            nbytes += len(data)
            time.sleep(pause_s)
            data = s.recv(64 << 10)
        return {"first_s": first_s, "last_s": time.monotonic() - start, "bytes": nbytes}


def streams_peak(server, path, pause_s, nbytes):
    """Returns the largest RssAnon while STREAMS clients read the manifest at once."""
    lengths = []

    def one():
        try:
            lengths.append(stream(server.port, path, pause_s)["bytes"])
        except (OSError, BenchError) as error:
            lengths.append(str(error))

    threads = [threading.Thread(target=one) for _ in range(STREAMS)]
    with MemoryWatch(server, 0.001) as watch:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if lengths != [nbytes] * STREAMS:
        raise BenchError("%s: the clients got %s, not %d bytes each" % (path, lengths, nbytes))
    return watch.peak


def manifest(server, path, tensors):
    """Returns a row about a file of very many tensors."""
    start = time.monotonic()
    with server:
        row = {"ready_s": time.monotonic() - start, "resident": server.resident_bytes()}
        before = server.anon_bytes()
        first = stream(server.port, path)
        row["first_growth"] = server.anon_bytes() - before
        listed = json.loads(server.get(path)[2])
        if listed["tensor_count"] != tensors or len(listed["tensors"]) != tensors:
            raise BenchError("the manifest lists %d tensors instead of %d" % (len(listed["tensors"]), tensors))
        again, base = stream(server.port, path), server.anon_bytes()
        peaks = [max(0, streams_peak(server, path, pause_s, first["bytes"]) - base) for pause_s in (0.001, 0)]
    return {**row, "bytes": first["bytes"], "first": first, "again": again, "slow_growth": peaks[0],
            "fast_growth": peaks[1]}


def scale(bench):
    directories, per_file, tensors = (100, 20, 2000) if bench.quick else (2000, 50, 100_000)
    tree, single = os.path.join(bench.work, "tree"), os.path.join(bench.work, "single")
    for i in range(directories):
        files.write_small(os.path.join(tree, "model-%05d" % i, "model.safetensors"), per_file)
    files.write_small(os.path.join(single, "many.safetensors"), tensors)
    many = [tree_start(bench.tensord(root=tree, options=["--settle", "0"]), directories, per_file)
            for _ in range(1 if bench.quick else 3)]
    one = manifest(bench.tensord(root=single, options=["--settle", "0"]), "/models/many.safetensors/tensors", tensors)
    ready, resident = median_of(many, "ready_s"), median_of(many, "resident")
    rows = [["%d files of %d tensors: exec to /readyz 200" % (directories, per_file), number(ready, 3), "s"],
            ["  resident then (VmRSS)", number(resident / MIB, 1), "MiB"],
            ["  anonymous of that (RssAnon)", number(median_of(many, "anon") / MIB, 1), "MiB"],
            ["1 file of %d tensors: exec to /readyz 200" % tensors, number(one["ready_s"], 3), "s"],
            ["  resident then (VmRSS)", number(one["resident"] / MIB, 1), "MiB"],
            ["  manifest, length", number(one["bytes"] / MIB, 1), "MiB"],
            *(["  %s request: %s byte" % (which, end), number(one[key][end + "_s"] * 1e3, 1), "ms"]
              for which, key in (("first", "first"), ("later", "again")) for end in ("first", "last")),
            ["  growth by the first request", number(one["first_growth"] / MIB, 2), "MiB"],
            *(["  growth while %d %s clients stream it" % (STREAMS, how), number(one[how + "_growth"] / MIB, 2), "MiB"]
              for how in ("slow", "fast"))]
    about = ["`--settle 0`, page-cached; %d starts on the tree, medians" % len(many)]
    return result("Many models, many tensors", about, [table(["what", "value", "unit"], rows)], [
        at_most("s until 2,000 files with 100,000 tensors are ready", ready, 5, number),
        at_most("MiB resident then", resident / MIB, 200, number),
        at_most("MiB grown while %d clients stream a 100,000-tensor manifest, %.0f MiB each"
                % (STREAMS, one["bytes"] / MIB), max(one["slow_growth"], one["fast_growth"]) / MIB, STREAMS, number)],
        {"tree": many, "manifest": one})
