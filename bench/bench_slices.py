"""Compares parts of tensors and rank files with nginx's contiguous ranges of the same length and with bare loops that
send the same runs, and eight ranks with eight whole checkpoints. All files are in the page cache."""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import time

import bench_fixture
import bench_servers
from bench_load import disturbed_note
from bench_report import Targets, bytes_text, connections_text, median, median_ratio, number, ratio, table, times
from bench_servers import BenchError
from bench_throughput import KEYS, rotated

TP = 8
RANK = 3
MIB = 1 << 20

# Bytes of a run of a row-parallel slice: an eighth of this many BF16 columns. 28,672 is Llama 3 70B's intermediate
# size.
RUNS = {1536: 6144, 7168: 28672, 65536: 262144}
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, VOCAB = 2048, 16, 8, 128, 6144, 32768


class Part:
    """A server with another path for the load client: one answer of a known length."""

    def __init__(self, server, path, size):
        self.server, self.path, self.size = server, path, size

    def __getattr__(self, name):
        return getattr(self.server, name)

    def target(self, _kind):
        return self.path, self.size, 0


def write_tensors(path, tensors):
    """Writes BF16 tensors of random bytes that repeat every 4 MiB, with a page number on each page."""
    at, entries = 0, {}
    for name, shape in tensors.items():
        nbytes = 2
        for n in shape:
            nbytes *= n
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + nbytes]}
        at += nbytes
    header = bench_fixture.header_of(entries)
    if os.path.exists(path) and os.path.getsize(path) == len(header) + at:
        return
    block = bytearray(random.Random(11).randbytes(bench_fixture.BLOCK))
    with open(path + ".tmp", "wb") as f:
        f.write(header)
        for off in range(0, at, bench_fixture.BLOCK):
            for page in range(0, bench_fixture.BLOCK, bench_fixture.PAGE):
                block[page:page + 8] = (off + page).to_bytes(8, "little")
            f.write(memoryview(block)[:min(bench_fixture.BLOCK, at - off)])
        f.flush()
        os.fsync(f.fileno())
    os.utime(path + ".tmp", (bench_fixture.OLD, bench_fixture.OLD))
    os.rename(path + ".tmp", path)


def llama(layers):
    """Returns a Llama's tensors: nine for each layer, and three."""
    shapes = {
        "model.embed_tokens.weight": [VOCAB, HIDDEN], "lm_head.weight": [VOCAB, HIDDEN], "model.norm.weight": [HIDDEN]
    }
    for i in range(layers):
        p = "model.layers.%d." % i
        shapes.update({
            p + "self_attn.q_proj.weight": [HEADS * HEAD_DIM, HIDDEN], p + "self_attn.k_proj.weight":
            [KV_HEADS * HEAD_DIM, HIDDEN], p + "self_attn.v_proj.weight": [KV_HEADS * HEAD_DIM,
                                                                           HIDDEN], p + "self_attn.o_proj.weight":
            [HIDDEN, HEADS * HEAD_DIM], p + "mlp.gate_proj.weight": [INTERMEDIATE, HIDDEN], p + "mlp.up_proj.weight":
            [INTERMEDIATE, HIDDEN], p + "mlp.down_proj.weight": [HIDDEN, INTERMEDIATE], p + "input_layernorm.weight":
            [HIDDEN], p + "post_attention_layernorm.weight": [HIDDEN]
        })
    return shapes


def make_root(work, quick):
    root = os.path.join(work, "slices")
    os.makedirs(os.path.join(root, "llama"), exist_ok=True)
    os.makedirs(os.path.join(root, "rows"), exist_ok=True)
    rows = {run: [(64 if quick else 512) * MIB // (2 * columns), columns] for run, columns in RUNS.items()}
    write_tensors(os.path.join(root, "rows", "model.safetensors"),
                  {"rows%d" % run: shape for run, shape in rows.items()})
    write_tensors(os.path.join(root, "llama", "model.safetensors"), llama(2 if quick else 33))  # 300 tensors
    with open(os.path.join(root, "llama", "config.json"), "w") as f:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": HEADS,
                   "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "hidden_size": HIDDEN,
                   "intermediate_size": INTERMEDIATE, "vocab_size": VOCAB}, f)
    for model in ("rows", "llama"):
        bench_fixture.fill_cache(os.path.join(root, model, "model.safetensors"))
    return root


def get(server, path, headers=""):
    """Returns (seconds to the first byte of the answer's body, the head, the whole body)."""
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start = time.perf_counter()
        s.sendall(("GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n" % (path, headers)).encode())
        got = b""
        while b"\r\n\r\n" not in got or got.endswith(b"\r\n\r\n"):
            more = s.recv(65536)
            if not more:
                break
            got += more
        first = time.perf_counter() - start
        head, _, body = got.partition(b"\r\n\r\n")
        parts = [body]
        while more := s.recv(1 << 20):
            parts.append(more)
    if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 206")):
        raise BenchError("%s: %s" % (path, (head + body)[:300].decode(errors="replace")))
    return first, head, b"".join(parts)


# ---- rates ----

def slice_of(tensor, run, columns):
    """Returns the slice as (offset of its first run in the file, bytes of a run, from one to the next, runs)."""
    return tensor["offset"] + RANK * run, run, 2 * columns, tensor["shape"][0]


def measure_rates(load, servers, root, options):
    """Measures for each kind of run one answer of the slice's length after the other: gathered by tensord and by the
    bare loops, contiguous by nginx. Returns a row for each kind of run, number of connections and server."""
    rows = []
    path = os.path.join(root, "rows", "model.safetensors")
    for run, columns in RUNS.items():
        tensor = json.loads(get(servers["tensord"], "/models/rows/tensors?match=rows%d" % run)[2])["tensors"][0]
        size = tensor["nbytes"] // TP
        runs = slice_of(tensor, run, columns)
        paths = dict.fromkeys(servers, "/%d/%d/%d/%d" % runs)
        paths["tensord"] = "/models/rows/tensors/rows%d?shard=1:%d/%d" % (run, RANK, TP)
        parts = {name: Part(servers[name], paths[name], size) for name in servers if name != "nginx"}
        for part in parts.values():
            check_slice(part, path, runs)
        parts["nginx"] = Part(servers["nginx"], "/rows/model.safetensors", os.path.getsize(path))
        check_range(parts["nginx"], path, tensor["offset"], size)
        for connections in options.connections:
            samples = {name: [] for name in servers}
            for turn in range(-1, options.rounds):
                for name in rotated(list(servers), turn):
                    result = load.run(parts[name], size if name == "nginx" else 0, connections,
                                      ["--duration", options.duration], seed=turn + 2)
                    if turn >= 0:
                        samples[name].append(result)
            rows += [{"run": run, "bytes": size, "connections": connections, "server": name, "samples": mine,
                      **{key: median([s[key] for s in mine]) for key in KEYS},
                      **{"%s_vs_%s" % (what, other): median_ratio(mine, samples[other], key)
                         for other in ("nginx", "gather") if name not in (other, "nginx")
                         for what, key in (("rate", "gb_per_s"), ("cpu", "server_cpu_s_per_gb"))}}
                     for name, mine in samples.items()]
        print("runs of %d bytes done" % run, file=sys.stderr)
    return rows


def check_slice(part, path, runs):
    """Checks that the answer is the runs, byte for byte."""
    off, run, stride, count = runs
    status, _, body = bench_servers.get(part.port, part.path)
    if status != 200 or len(body) != run * count:
        raise BenchError("%s: GET %s: status %d, %d bytes instead of 200, %d"
                         % (part.name, part.path, status, len(body), run * count))
    with open(path, "rb") as f:
        for row in range(count):
            if body[row * run:(row + 1) * run] != os.pread(f.fileno(), run, off + row * stride):
                raise BenchError("%s: row %d of %s is not the file's bytes" % (part.name, row, part.path))


def check_range(part, path, off, size):
    """Checks that a range of the whole file is the file's bytes."""
    status, _, body = bench_servers.get(part.port, part.path, {"Range": "bytes=%d-%d" % (off, off + size - 1)})
    with open(path, "rb") as f:
        if status != 206 or body != os.pread(f.fileno(), size, off):
            raise BenchError("%s: GET %s, status %d: not the file's bytes" % (part.name, part.path, status))


def rate_table(rows):
    return table(["run", "answer", "conns", "server", "GB/s", "CPU s/GB", "client CPU s/GB", "rate / nginx",
                  "CPU / nginx", "rate / gather", "CPU / gather"],
                 [[bytes_text(r["run"]) if r["run"] % 1024 == 0 else "%d B" % r["run"], bytes_text(r["bytes"]),
                   r["connections"], r["server"], number(r["gb_per_s"]), number(r["server_cpu_s_per_gb"], 3),
                   number(r["client_cpu_s_per_gb"], 3), times(r.get("rate_vs_nginx")), times(r.get("cpu_vs_nginx")),
                   times(r.get("rate_vs_gather")), times(r.get("cpu_vs_gather"))] for r in rows])


def add_rate_targets(targets, rows):
    """Adds a target against nginx, which sends contiguous bytes by reference, and one against the loop that gathers by
    copying. A CPU target there is none: what a gathering server can spare is the loop's."""
    of = {(r["run"], r["connections"], r["server"]): r for r in rows}
    for (run, connections, name), r in of.items():
        if name == "tensord":
            what = "runs of %s bytes, %s: " % (number(run, 0), connections_text(connections))
            raw = of[run, connections, "gather"]["rate_vs_nginx"]
            targets.at_least(what + "rate / nginx's contiguous one", r["rate_vs_nginx"], 0.8, raw=raw)
            targets.at_least(what + "rate / gather", r["rate_vs_gather"], 0.95)


# ---- eight ranks ----

def together(load, parts):
    """Returns the seconds until each target was fetched once, all at the same time, each by a client of its own."""
    commands = []
    for part in parts:
        path, size, _ = part.target(None)
        commands.append([
            load.binary, "--port",
            str(part.port), "--path", path, "--file-size",
            str(size), "--range-size", "0", "--connections", "1", "--threads", "1", "--requests", "1"
        ] + (["--copy"] if load.reader == "copy" else []))
    start = time.monotonic()
    clients = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for c in commands]
    for client in clients:
        out, err = client.communicate()
        if client.returncode != 0 or json.loads(out)["errors"]:
            raise BenchError("a client failed: %s %s" % (out[:200], err[:200]))
    return time.monotonic() - start


def measure_ranks(load, nginx, tensord, root, rounds):
    whole_bytes = os.path.getsize(os.path.join(root, "llama", "model.safetensors"))
    ranks = []
    for rank in range(TP):
        path = "/models/llama/shards/vllm/tp%d/rank-%d.safetensors" % (TP, rank)
        about = json.loads(get(tensord, path.replace(".safetensors", ".json"))[2])
        ranks.append(Part(tensord, path, about["nbytes"]))
    sides = {"ranks": ranks,
             "whole": [Part(tensord, "/models/llama/files/model.safetensors", whole_bytes)] * TP,
             "nginx": [Part(nginx, "/llama/model.safetensors", whole_bytes)] * TP}
    samples, cpu = {side: [] for side in sides}, {side: [] for side in sides}
    for turn in range(-1, rounds):
        for side in rotated(list(sides), turn):
            server = nginx if side == "nginx" else tensord
            before = server.cpu_s()
            seconds = together(load, sides[side])
            if turn >= 0:
                samples[side].append(seconds)
                cpu[side].append((server.cpu_s() - before) / sum(part.size for part in sides[side]) * 1e9)
    return {"rank_bytes": sum(p.size for p in ranks), "whole_bytes": TP * whole_bytes,
            "seconds": {side: median(values) for side, values in samples.items()},
            "cpu_s_per_gb": {side: median(values) for side, values in cpu.items()},
            "of_whole": median([ratio(a, b) for a, b in zip(samples["ranks"], samples["whole"])]),
            "of_nginx": median([ratio(a, b) for a, b in zip(samples["ranks"], samples["nginx"])])}


# ---- first byte, memory ----

def measure_first_byte(tensord, rounds):
    """Returns the ms from request to first byte of a rank's file: planned for this request, and planned before."""
    path = "/models/llama/shards/fsdp/tp%d/rank-0.safetensors"
    first = [1000 * get(tensord, path % (2 + k), "Range: bytes=0-999\r\n")[0] for k in range(rounds)]
    again = [1000 * get(tensord, path % (2 + k), "Range: bytes=0-999\r\n")[0] for k in range(rounds)]
    return median(first), median(again)


def measure_memory(tensord, connections):
    """Returns the anonymous bytes that the server grows by for each connection within a slice of many runs."""
    base = tensord.anon_bytes()
    sockets = []
    for i in range(connections):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        s.connect(("127.0.0.1", tensord.port))
        s.sendall(b"GET /models/rows/tensors/rows1536?shard=1:%d/8 HTTP/1.1\r\nHost: x\r\n\r\n" % (i % 8))
        sockets.append(s)
    for s in sockets:
        s.recv(65536)
    time.sleep(0.5)
    grown = tensord.anon_bytes() - base
    for s in sockets:
        s.close()
    return grown / connections


def run(load, options, work, make_servers, congestion):
    """make_servers: makes the servers of a directory and of the file in it that bare loops send, nginx first."""
    root = make_root(work, options.quick)
    rounds = options.rounds
    with contextlib.ExitStack() as started:
        servers = {s.name: started.enter_context(s)
                   for s in make_servers(root, os.path.join(root, "rows", "model.safetensors"))}
        nginx, tensord = servers["nginx"], servers["tensord"]
        rates = measure_rates(load, servers, root, options)
        ranks = measure_ranks(load, nginx, tensord, root, rounds)
        first, again = measure_first_byte(tensord, 1 if options.quick else 11)
        memory = measure_memory(tensord, 8 if options.quick else 64)
    about = [
        "congestion control %s; the client %s" % (congestion, load.reader_text()),
        "slices: `?shard=1:%d/%d`, one run of so many bytes out of each row, beside nginx's contiguous ranges of the "
        "same length, and beside bare loops that send the same runs: gather copies them into windows, vectors sends "
        "them from the mapping" % (RANK, TP),
        "%d interleaved rounds of %g s; every number is a median over the rounds, every ratio the median of the "
        "rounds' ratios" % (rounds, options.duration),
        "ranks: all %d of vLLM's for a Llama of %s, each fetched by a client of its own, all at once; beside %d "
        "clients that fetch the whole" % (TP, bytes_text(ranks["whole_bytes"] // TP), TP),
        "first byte: of a range of a rank's file of 300 tensors that nobody has asked for before, and of one that is "
        "planned"
    ]
    note = disturbed_note([s for row in rates for s in row["samples"]])
    about += [note] if note else []
    text = rate_table(rates)
    seconds = ranks["seconds"]
    text += "\n\n" + table(["fetched at once", "bytes", "CPU s/GB", "s", "beside the ranks"], [
        [name, bytes_text(ranks["rank_bytes" if side == "ranks" else "whole_bytes"]),
         number(ranks["cpu_s_per_gb"][side], 3), number(seconds[side], 3),
         "" if side == "ranks" else times(ratio(seconds[side], seconds["ranks"]))]
        for side, name in (("ranks", "%d ranks" % TP), ("whole", "%d times the whole, from tensord" % TP),
                           ("nginx", "%d times the whole, from nginx" % TP))])
    text += "\n\n" + table(["", ""], [["first byte of a rank's file, planned for it", "%.2f ms" % first],
                                      ["first byte, planned before", "%.2f ms" % again],
                                      ["anonymous memory per connection amid a slice", bytes_text(int(memory))]])
    targets = Targets()
    add_rate_targets(targets, rates)
    targets.at_most("eight ranks, of the time of eight whole checkpoints", ranks["of_whole"], 0.2)
    targets.at_most("first byte of a rank's file", first, 5.0, lambda v: "%.2f ms" % v)
    return {
        "mode": "slices", "title": "Slices and rank files, %s" % congestion, "about": about, "table": text,
        "targets": targets, "rates": rates, "congestion": congestion, "reader": load.reader, "ranks": ranks,
        "first_byte_ms": first, "planned_first_byte_ms": again, "memory_bytes": memory
    }
