"""Compares parts of tensors and rank files with nginx's contiguous ranges of the same length, and eight ranks with
eight whole checkpoints. All files are in the page cache."""

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
from bench_throughput import rotated

TP = 8
RANK = 3
MIB = 1 << 20

# Bytes of a run of a row-parallel slice: an eighth of this many BF16 columns. 28,672 is Llama 3 70B's intermediate
# size.
RUNS = {7168: 28672, 1536: 6144}
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

def measure_rates(load, nginx, tensord, root, options):
    """Measures for each kind of run one answer of the slice's length after the other, gathered by tensord and
    contiguous by nginx."""
    rows = []
    file_bytes = os.path.getsize(os.path.join(root, "rows", "model.safetensors"))
    for run, columns in RUNS.items():
        tensor = json.loads(get(tensord, "/models/rows/tensors?match=rows%d" % run)[2])["tensors"][0]
        size = tensor["nbytes"] // TP
        part = Part(tensord, "/models/rows/tensors/rows%d?shard=1:%d/%d" % (run, RANK, TP), size)
        contiguous = Part(nginx, "/rows/model.safetensors", file_bytes)
        check_slice(part, os.path.join(root, "rows", "model.safetensors"), tensor, run, columns)
        for connections in options.connections:
            samples = {"tensord": [], "nginx": []}
            for turn in range(-1, options.rounds):
                for server, range_bytes in rotated([(part, 0), (contiguous, size)], turn):
                    result = load.run(server, range_bytes, connections, ["--duration", options.duration], seed=turn + 2)
                    if turn >= 0:
                        samples[server.name].append(result)
            rows.append({"run": run, "bytes": size, "connections": connections, "samples": samples,
                         "gb_per_s": median([s["gb_per_s"] for s in samples["tensord"]]),
                         "nginx_gb_per_s": median([s["gb_per_s"] for s in samples["nginx"]]),
                         "rate": median_ratio(samples["tensord"], samples["nginx"], "gb_per_s"),
                         "cpu": median_ratio(samples["tensord"], samples["nginx"], "server_cpu_s_per_gb")})
        print("runs of %d bytes done" % run, file=sys.stderr)
    return rows


def check_slice(part, path, tensor, run, columns):
    """Checks that the bytes are those of the columns."""
    body = get(part, part.path)[2]
    with open(path, "rb") as f:
        for row in (0, 1, tensor["shape"][0] // 2, tensor["shape"][0] - 1):
            wanted = os.pread(f.fileno(), run, tensor["offset"] + row * 2 * columns + RANK * run)
            if body[row * run:(row + 1) * run] != wanted:
                raise BenchError("row %d of %s is wrong" % (row, part.path))


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
    samples = {side: [] for side in sides}
    for turn in range(-1, rounds):
        for side in rotated(list(sides), turn):
            seconds = together(load, sides[side])
            if turn >= 0:
                samples[side].append(seconds)
    return {"rank_bytes": sum(p.size for p in ranks), "whole_bytes": TP * whole_bytes,
            "seconds": {side: median(values) for side, values in samples.items()},
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


def run(load, options, work, make_nginx, make_tensord):
    root = make_root(work, options.quick)
    rounds = options.rounds
    with make_nginx(root) as nginx, make_tensord(root) as tensord:
        rates = measure_rates(load, nginx, tensord, root, options)
        ranks = measure_ranks(load, nginx, tensord, root, rounds)
        first, again = measure_first_byte(tensord, 1 if options.quick else 11)
        memory = measure_memory(tensord, 8 if options.quick else 64)
    about = [
        "slices: `?shard=1:%d/%d`, one run of so many bytes out of each row, beside nginx's contiguous ranges of the "
        "same length" % (RANK, TP),
        "ranks: all %d of vLLM's for a Llama of %s, each fetched by a client of its own, all at once; beside %d "
        "clients that fetch the whole" % (TP, bytes_text(ranks["whole_bytes"] // TP), TP),
        "first byte: of a range of a rank's file of 300 tensors that nobody has asked for before, and of one that is "
        "planned"
    ]
    note = disturbed_note([s for row in rates for side in row["samples"].values() for s in side])
    about += [note] if note else []
    lines = [[
        bytes_text(r["run"]) if r["run"] % 1024 == 0 else "%d B" % r["run"],
        bytes_text(r["bytes"]), r["connections"],
        number(r["gb_per_s"]),
        number(r["nginx_gb_per_s"]),
        times(r["rate"]),
        times(r["cpu"])
    ] for r in rates]
    text = table(["run", "answer", "conns", "GB/s", "nginx GB/s", "rate / nginx", "CPU per GB / nginx"], lines)
    seconds = ranks["seconds"]
    text += "\n\n" + table(["fetched at once", "bytes", "s", "beside the ranks"], [
        ["%d ranks" % TP, bytes_text(ranks["rank_bytes"]), number(seconds["ranks"], 3), ""],
        ["%d times the whole, from tensord" % TP, bytes_text(ranks["whole_bytes"]), number(seconds["whole"], 3),
         times(ratio(seconds["whole"], seconds["ranks"]))],
        ["%d times the whole, from nginx" % TP, bytes_text(ranks["whole_bytes"]), number(seconds["nginx"], 3),
         times(ratio(seconds["nginx"], seconds["ranks"]))]])
    text += "\n\n" + table(["", ""], [["first byte of a rank's file, planned for it", "%.2f ms" % first],
                                      ["first byte, planned before", "%.2f ms" % again],
                                      ["anonymous memory per connection amid a slice", bytes_text(int(memory))]])
    targets = Targets()
    for r in rates:
        what = "runs of %d bytes, %s: " % (r["run"], connections_text(r["connections"]))
        targets.at_least(what + "rate of nginx's contiguous one", r["rate"], 1.0)
        targets.at_most(what + "CPU per GB of nginx's", r["cpu"], 1.0)
    targets.at_most("eight ranks, of the time of eight whole checkpoints", ranks["of_whole"], 0.2)
    targets.at_most("first byte of a rank's file", first, 5.0, lambda v: "%.2f ms" % v)
    return {
        "mode": "slices", "title": "Slices and rank files", "about": about, "table": text, "targets": targets, "rates":
        rates, "ranks": ranks, "first_byte_ms": first, "planned_first_byte_ms": again, "memory_bytes": memory
    }
