"""Compares `tensord inspect --json` of one file, process start included, with the Python reader of the file's format,
which is running and has imported everything. Also measures the memory of `inspect` for very large headers."""

import json
import os
import shutil
import struct
import subprocess

import bench_fixture
from bench_report import Targets, median, number, ratio, table, times
from bench_servers import BenchError

MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
COPIES = 50

# kind, file name, what is compared, how many times faster tensord should be
CASES = (
    ("torch", "consolidated.00.pth", "291 tensors, torch.load(mmap=True, weights_only=True)", 5),
    ("hdf5", "model.h5", "200 datasets, h5py: visititems, get_offset", 10),
    ("safetensors", "model.safetensors", "1,000 tensors, safe_open().keys()", 1),
)


class Lines:
    """A program that answers each line of input with a line."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise BenchError("%s ended before its answer" % self.process.args[-1])
        return line

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.read()


class Spawner(Lines):
    """Times whole programs with spawn_time.c."""

    def time(self, *command):
        ns, resident_kib, status = (int(word) for word in self.ask("\t".join(command)).split())
        if status != 0:
            raise BenchError("%s: wait status %d" % (" ".join(command), status))
        return {"ms": ns / 1e6, "resident_bytes": resident_kib << 10}


class Peer(Lines):
    """The Python readers, in a process that keeps running."""

    def __init__(self, python):
        super().__init__([python, "-B", os.path.join(HERE, "parse_peer.py")])
        self.about = json.loads(self.read())

    def request(self, do, kind, path):
        return json.loads(self.ask(json.dumps({"do": do, "kind": kind, "path": path})))

    def time(self, kind, path):
        return {"ms": self.request("time", kind, path)["ns"] / 1e6}


def refusal(tensord, path):
    """Returns in one line why this build cannot read the file, or None when it can."""
    run = subprocess.run([tensord, "inspect", path, "--json"], capture_output=True, text=True, check=False)
    return None if run.returncode == 0 else run.stderr.strip().replace(path, "it").replace("|", "/")[:160]


def check_same(tensord, peer, kind, path):
    """Checks that both find the same tensors, because a reader that finds fewer would be faster."""
    run = subprocess.run([tensord, "inspect", path, "--json"], capture_output=True, check=True)
    mine = {t["name"]: t["offset"] for t in json.loads(run.stdout)["tensors"]}
    theirs = peer.request("names", kind, path)
    if sorted(mine) != theirs["names"] or (theirs["offsets"] is not None and mine != theirs["offsets"]):
        raise BenchError("%s: tensord and the peer find different tensors" % os.path.basename(path))


def per_file(spawner, tensord, path, work, rounds):
    """Returns the milliseconds for one more file in a running process: a directory of many files less one of a single
    file."""
    sizes = {}
    for count in (1, 1 + COPIES):
        directory = os.path.join(work, "copies-%d" % count)
        for i in range(count):
            os.makedirs(os.path.join(directory, "m%03d" % i))
            shutil.copyfile(path, os.path.join(directory, "m%03d" % i, os.path.basename(path)))
        sizes[count] = directory
    values = [(spawner.time(tensord, "inspect", "--json", sizes[1 + COPIES])["ms"]
               - spawner.time(tensord, "inspect", "--json", sizes[1])["ms"]) / COPIES for _ in range(rounds)]
    for directory in sizes.values():
        shutil.rmtree(directory)
    return median(values)


def measure_case(spawner, peer, tensord, case, work, rounds):
    kind, name, what, wanted = case
    directory = os.path.join(work, "parse-" + kind)
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, name)
    peer.request("make", kind, path)
    row = {"kind": kind, "what": what, "wanted": wanted, "refusal": refusal(tensord, path),
           "file_bytes": os.path.getsize(path), "tensord": [], "peer": []}
    if row["refusal"] is None:
        check_same(tensord, peer, kind, path)
    sides = [("peer", lambda: peer.time(kind, path))]
    if row["refusal"] is None:
        sides.append(("tensord", lambda: spawner.time(tensord, "inspect", "--json", path)))
    for round_number in range(rounds + 2):  # the first two rounds do not count
        for side, run in sides[::1 if round_number % 2 else -1]:
            value = run()
            if round_number >= 2:
                row[side].append(value)
    row["peer_ms"] = median([r["ms"] for r in row["peer"]])
    row["tensord_ms"] = median([r["ms"] for r in row["tensord"]])
    row["times"] = median([ratio(p["ms"], t["ms"]) for p, t in zip(row["peer"], row["tensord"])])
    row["per_file_ms"] = None if row["refusal"] else per_file(spawner, tensord, path, work, max(3, rounds // 10))
    row["times_per_file"] = None if row["refusal"] else ratio(row["peer_ms"], row["per_file_ms"])
    return row


def write_large_safetensors(path, header_bytes):
    """Writes a file with tensors of one byte, so many that the header has header_bytes."""
    entries, length, i = {}, 2, 0
    while length < header_bytes:
        name = "model.layers.%07d.self_attn.weight" % i
        entries[name] = {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
        length += len(name) + len(str(i)) * 2 + 54
        i += 1
    header = bench_fixture.header_of(entries)
    with open(path, "wb") as f:
        f.write(header)
        f.truncate(len(header) + i)
    return len(header)


def write_large_gguf(path, tensors):
    """Writes a file of empty tensors, which have only names."""
    head = [b"GGUF" + struct.pack("<IQQ", 3, tensors, 0)]
    for i in range(tensors):
        name = b"blk.%07d.attn_q.weight" % i
        head.append(struct.pack("<Q", len(name)) + name + struct.pack("<IQQIQ", 2, 32, 0, 0, 0))
    content = b"".join(head)
    with open(path, "wb") as f:
        f.write(content + bytes(-len(content) % 32))
    return len(content)


def measure_memory(spawner, tensord, work, quick):
    """Measures the peak resident memory of inspect beyond that for a file of one tensor, by the header's length."""
    small = os.path.join(work, "small.safetensors")
    write_large_safetensors(small, 3)
    base = spawner.time(tensord, "inspect", "--json", small)["resident_bytes"]
    rows = []
    for name, write, amount, what in (
            ("large.safetensors", write_large_safetensors, MIB if quick else 20 * MIB, "safetensors, a long header"),
            ("large.gguf", write_large_gguf, 10_000 if quick else 1_000_000, "GGUF, {:,} names")):
        path = os.path.join(work, name)
        header_bytes = write(path, amount)
        row = {"what": what.format(amount), "header_bytes": header_bytes, "refusal": refusal(tensord, path)}
        if row["refusal"] is None:
            runs = [spawner.time(tensord, "inspect", "--json", path) for _ in range(1 if quick else 3)]
            row["ms"] = median([r["ms"] for r in runs])
            row["resident_bytes"] = max(r["resident_bytes"] for r in runs)
            row["times_header"] = (row["resident_bytes"] - base) / header_bytes
        rows.append(row)
        os.unlink(path)
    return base, rows


def find_python(options):
    for python in [options.python
                   ] if options.python else [os.path.join(os.path.dirname(HERE), ".venv", "bin", "python")]:
        if os.access(python, os.X_OK):
            return python
    return None


def measure_cases(spawner, options, work, about):
    python = find_python(options)
    if python is None:
        about.append("**nothing compared**: no Python with torch, h5py and safetensors; ./test.sh makes .venv, or name "
                     "one with --python")
        return []
    with Peer(python) as peer:
        if peer.about["missing"]:
            about.append("**nothing compared**: %s has no %s" % (python, ", ".join(peer.about["missing"])))
            return []
        about.append("peers: Python %s, one process that has imported everything and keeps running; what they return "
                     "is freed outside the measured time" % peer.about["python"])
        return [measure_case(spawner, peer, options.tensord, case, work, 3 if options.quick else options.parse_rounds)
                for case in CASES]


def comparison_table(rows, start):
    cells = [[row["what"], number(row["peer_ms"], 3), number(row["tensord_ms"], 3), number(row["per_file_ms"], 3),
              times(row["times"]), times(row["times_per_file"]),
              "not supported by this build: " + row["refusal"] if row["refusal"] else ""]
             for row in rows]
    cells.append(["process start alone: tensord --help", "-", number(start["help_ms"], 3), "-", "-", "-", ""])
    cells.append(["process start alone: /bin/true", "-", number(start["true_ms"], 3), "-", "-", "-", ""])
    return table(["file", "peer ms", "inspect ms", "of it per file ms", "faster", "faster per file", "note"], cells)


def memory_table(base, rows):
    cells = [[row["what"], number(row["header_bytes"] / MIB, 1), number(row.get("ms"), 0),
              number(row["resident_bytes"] / MIB, 1) if "ms" in row else "-", times(row.get("times_header")),
              "not supported by this build: " + row["refusal"] if row["refusal"] else ""] for row in rows]
    cells.append(["safetensors, one tensor", "0.0", "-", number(base / MIB, 1), "-", ""])
    return table(["header", "MiB", "inspect ms", "peak resident MiB", "beyond that of one tensor, by header", "note"],
                 cells)


def run(spawn_time, work, options):
    about = ["`inspect --json FILE` from before posix_spawn to after wait4, output to /dev/null, by a small C program "
             "(spawn_time.c), so that no large parent is forked; files are page-cached",
             "*of it per file*: by a directory of %d copies against one of a single copy, in one process each"
             % (1 + COPIES)]
    with Spawner([spawn_time]) as spawner:
        rows = measure_cases(spawner, options, work, about)
        rounds = 3 if options.quick else options.parse_rounds
        start = {"help_ms": median([spawner.time(options.tensord, "--help")["ms"] for _ in range(rounds)]),
                 "true_ms": median([spawner.time("/bin/true")["ms"] for _ in range(rounds)])}
        base, memory = measure_memory(spawner, options.tensord, work, options.quick)
    if rows and not options.quick:
        about.append("%d rounds, the sides taking turns; *faster* is the median of the ratios within each round"
                     % options.parse_rounds)
    targets = Targets()
    for row in rows:
        # Without tensord's start, which mostly loads libraries, because the peer does not start anew for each file.
        targets.at_least("faster than the peer, per file: " + row["what"], row["times_per_file"], row["wanted"])
    return {"mode": "parse", "title": "Reading a file's structure", "about": about,
            "table": comparison_table(rows, start) + "\n\n" + memory_table(base, memory), "targets": targets,
            "rows": rows, "start": start, "memory": memory, "memory_base_bytes": base}
