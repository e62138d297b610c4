"""Compares tensord's Python client with a bare receive loop in C, requests, hf download and Run:ai's streamer; ranks
that read their part with ranks that read everything over a shaped link; and lazy tensors with rank files."""

import contextlib
import json
import os
import random
import urllib.request

import bench_fixture
from bench_link import SERVER, FarTensord, NoLink, shaped_link
from bench_parse import Lines, find_python
from bench_report import Targets, bytes_text, median, median_ratio, number, ratio, table, times
from bench_servers import BenchError, Tensord, free_port

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
TP = 8
MODEL = "bench/llama"
LINK_MBIT = 1000
TURNS = 6  # of the ways that take a fraction of a second, in each round
LAYERS = {False: 16, True: 1}  # by --quick
WAYS = {  # name: what the table calls it; the first two into memory that exists, the others into new memory
    "loop": "receive loop in C, 8 threads", "into": "tensord.load_into", "load_file": "tensord.load_file",
    "small_pages": "tensord.load_file, no huge pages",
    "requests": "requests, one Session, safetensors.torch.load", "hub": "snapshot_download + load_file",
    "runai": "Run:ai streamer, S3 port",
}


class Peer(Lines):
    def __init__(self, python, namespace=None):
        environment = {"MALLOC_MMAP_THRESHOLD_": "65536", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
                       "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"}
        super().__init__([*(["ip", "netns", "exec", namespace] if namespace else []), "env",
                          *("%s=%s" % pair for pair in environment.items()), python, "-B",
                          os.path.join(HERE, "client_peer.py")])
        self.about = json.loads(self.read())

    def request(self, **what):
        return json.loads(self.ask(json.dumps(what)))

    def begin(self, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def end(self):
        return json.loads(self.read())


class Checkpoint:
    """A Llama in BF16 of random bytes: path, and {name: (shape, begin, end)} with the data's place in the file."""

    def __init__(self, root, layers, hidden=2048, ffn=8192, vocabulary=32768):
        shapes = {"model.embed_tokens.weight": [vocabulary, hidden]}
        for layer in range(layers):
            for name, shape in {"self_attn.q_proj": [hidden, hidden], "self_attn.k_proj": [hidden // 2, hidden],
                                "self_attn.v_proj": [hidden // 2, hidden], "self_attn.o_proj": [hidden, hidden],
                                "mlp.gate_proj": [ffn, hidden], "mlp.up_proj": [ffn, hidden],
                                "mlp.down_proj": [hidden, ffn], "input_layernorm": [hidden],
                                "post_attention_layernorm": [hidden]}.items():
                shapes["model.layers.%d.%s.weight" % (layer, name)] = shape
        shapes.update({"model.norm.weight": [hidden], "lm_head.weight": [vocabulary, hidden]})
        self.tensors, at = {}, 0
        for name, shape in shapes.items():
            end = at + 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            self.tensors[name], at = (shape, at, end), end
        self.nbytes = at
        folder = os.path.join(root, MODEL)
        os.makedirs(folder)
        self.path = os.path.join(folder, "model.safetensors")
        header = bench_fixture.header_of({name: {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
                                          for name, (shape, begin, end) in self.tensors.items()})
        self.offset = len(header)
        with open(self.path, "wb") as file:
            file.write(header)
            block = bytearray(random.Random(7).randbytes(4 * MIB))
            for begin in range(0, self.nbytes, len(block)):
                block[:8] = begin.to_bytes(8, "little")
                file.write(memoryview(block)[: self.nbytes - begin])
            file.flush()
            os.fsync(file.fileno())
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
                       "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": hidden // 128,
                       "num_key_value_heads": hidden // 256, "vocab_size": vocabulary, "head_dim": 128,
                       "tie_word_embeddings": False, "torch_dtype": "bfloat16"}, file)
        for name in os.listdir(folder):
            os.utime(os.path.join(folder, name), (bench_fixture.OLD, bench_fixture.OLD))


class Hashed(Tensord):
    """A server with an S3 port, whose files are hashed before anything is measured."""

    name = "tensord-client"

    def __init__(self, work, binary, root):
        super().__init__(work, None, binary, root, ["--settle", "0", "--hash-threads", "1"])
        self.s3 = free_port()

    def command(self):
        return super().command() + ["--s3-listen", "127.0.0.1:%d" % self.s3]

    def wait_hashed(self):
        def hashed():
            with urllib.request.urlopen("http://127.0.0.1:%d/models/%s" % (self.port, MODEL)) as answer:
                return all("sha256" in row for row in json.load(answer)["files"])

        self.wait_for(hashed, "hashed", 300, 0.2)


def measure_turns(peer, server, ways, turns, what):
    """Measures ways that take turns, and returns the median of each way's seconds and costs."""
    samples = {way: [] for way in ways}
    for turn in range(turns):
        for way in ways if turn % 2 == 0 else reversed(ways):
            cpu = server.cpu_s()
            sample = peer.request(do=way, **what)
            sample["server_cpu"] = server.cpu_s() - cpu
            samples[way].append(sample)
    return {way: {key: median([sample[key] for sample in samples[way]]) for key in samples[way][0]} for way in ways}


def measure_ways(peer, server, checkpoint, library, work, options):
    what = {"url": "tensord://127.0.0.1:%d/%s" % (server.port, MODEL), "port": server.port, "s3": server.s3,
            "file": "/models/%s/files/model.safetensors" % MODEL, "offset": checkpoint.offset, "model": MODEL,
            "work": work}
    peer.request(do="prepare", library=library, nbytes=checkpoint.nbytes, tensors=checkpoint.tensors)
    for way in WAYS:  # a round that does not count, whose bytes are compared
        peer.request(do=way, keep=True, **what)
        wrong = peer.request(do="check", path=checkpoint.path, ways=[way])["wrong"]
        if wrong:
            raise BenchError("%s loads other bytes than the file's" % WAYS[way])
    samples = {way: [] for way in [*WAYS, "rank", "lazy"]}
    for number_ in range(options.rounds):
        for ways, turns in ((["loop", "into"], TURNS), (["load_file", "small_pages"], TURNS),
                           (["requests", "hub", "runai"], 1)):
            for way, sample in measure_turns(peer, server, ways, turns, what).items():
                samples[way].append(sample)
        what_rank = {**what, "tp": TP, "rank": number_ % TP}
        for way, sample in measure_turns(peer, server, ["rank", "lazy"], TURNS, what_rank).items():
            samples[way].append(sample)
    if any(abs(a["bytes"] - b["bytes"]) > 0.01 * b["bytes"] for a, b in zip(samples["lazy"], samples["rank"])):
        raise BenchError("lazy tensors and the rank file do not have the same bytes")
    return samples


# ---- a shaped link

def measure_link(python, work, options, root):
    """Returns the slowest rank's seconds of each round, for rank files and for whole downloads."""
    samples = {"rank": [], "whole": []}
    with shaped_link(LINK_MBIT) as (servers, clients), contextlib.ExitStack() as stack:
        server = stack.enter_context(FarTensord(work, options.tensord, root, servers))
        url = "tensord://%s:%d/%s" % (SERVER, server.port, MODEL)
        peers = [stack.enter_context(Peer(python, clients)) for _ in range(TP)]
        for number_ in range(options.rounds + 1):
            for way in samples:
                for rank, peer in enumerate(peers):
                    what = {"do": "rank", "tp": TP, "rank": rank} if way == "rank" else {"do": "load_file"}
                    peer.begin(url=url, **what)
                seconds = [peer.end()["seconds"] for peer in peers]
                if number_:
                    samples[way].append(max(seconds))
    return samples


# ---- the report

def run(library, work, options):
    root = os.path.join(work, "client-root")
    python = find_python(options)
    targets, rows, cells = Targets(), {}, []
    about = []
    result = {"mode": "client", "title": "Python client", "about": about, "targets": targets, "rows": rows}
    if python is None:
        about.append("**nothing compared**: no Python with torch and the peers; ./test.sh makes .venv, or --python")
        return {**result, "table": ""}
    checkpoint = Checkpoint(root, LAYERS[options.quick])
    about.append("%s of BF16 in %d tensors, page-cached; each way ends in tensors of torch in the processor's memory; "
                 "the client's bytes are copied by the kernel into that memory, as in real use; 8 connections; loopback"
                 % (bytes_text(checkpoint.nbytes), len(checkpoint.tensors)))
    about.append("into memory that exists and was touched: the first two, the same block; into new memory: the others. "
                 "load_file after snapshot_download maps the file and reads nothing more. In each round the first two "
                 "take turns %d times, and so do load_file with and without huge pages, and rank files and lazy "
                 "tensors" % TURNS)
    with Peer(python) as peer, Hashed(work, options.tensord, root) as server:
        if peer.about["missing"]:
            about.append("**nothing compared**: %s has no %s" % (python, ", ".join(peer.about["missing"])))
            return {**result, "table": ""}
        server.wait_hashed()
        rows.update(measure_ways(peer, server, checkpoint, library, work, options))
    small = Checkpoint(os.path.join(work, "link-root"), 1)
    try:
        rows["link"] = measure_link(python, work, options, os.path.join(work, "link-root"))
        about.append("shaped link: tbf of %d Mbit/s between two network namespaces, %s, %d ranks at once, the slowest"
                     % (LINK_MBIT, bytes_text(small.nbytes), TP))
    except NoLink as reason:
        about.append("**shaped link left out**: %s" % reason)
    for way, name in WAYS.items():
        cells.append([name, number(checkpoint.nbytes / median([s["seconds"] for s in rows[way]]) / 1e9),
                      number(median([s["cpu"] for s in rows[way]]) / checkpoint.nbytes * 1e9, 2),
                      number(median([s["server_cpu"] for s in rows[way]]) / checkpoint.nbytes * 1e9, 2),
                      number(beyond_mib(rows[way]), 0), number(faults_per_gb(rows[way]), 0)])
    rank_bytes = median([s["bytes"] for s in rows["rank"]])
    for way, name in {"rank": "tensord.load_rank, vllm, tp 8", "lazy": "lazy tensors, tp 8"}.items():
        cells.append([name, number(rank_bytes / median([s["seconds"] for s in rows[way]]) / 1e9),
                      number(median([s["cpu"] for s in rows[way]]) / rank_bytes * 1e9, 2), "-",
                      number(beyond_mib(rows[way]), 0), number(faults_per_gb(rows[way]), 0)])
    set_targets(targets, rows)
    return {**result, "table": table(["way", "GB/s", "client CPU s/GB", "server CPU s/GB", "MiB beyond the tensors",
                                      "page faults/GB"], cells)}


def beyond_mib(samples):
    """Returns the peak memory beyond the tensors; a way that maps a file has less than the tensors."""
    return max(0, median([sample["extra"] for sample in samples])) / MIB


def faults_per_gb(samples):
    return median([sample["faults"] for sample in samples]) / median([sample["bytes"] for sample in samples]) * 1e9


def set_targets(targets, rows):
    def faster(mine, other):
        return median_ratio(rows[other], rows[mine], "seconds")

    targets.at_least("load_into / receive loop in C", faster("into", "loop"), 0.9)
    targets.at_least("load_file / load_file without huge pages", faster("load_file", "small_pages"), 1)
    targets.at_most("page faults of load_file / without huge pages",
                    median_ratio(rows["load_file"], rows["small_pages"], "faults"), 0.05)
    targets.at_least("load_file / requests", faster("load_file", "requests"), 4)
    targets.at_least("load_file / snapshot_download + load_file", faster("load_file", "hub"), 2)
    targets.at_least("load_file / Run:ai streamer", faster("load_file", "runai"), 1)
    targets.at_most("processor time of load_file / Run:ai streamer",
                    median_ratio(rows["load_file"], rows["runai"], "cpu"), 1)
    targets.at_most("time of lazy tensors / rank file", median_ratio(rows["lazy"], rows["rank"], "seconds"), 1.15)
    for way in ("into", "load_file", "rank", "lazy"):
        targets.at_most("MiB beyond the tensors, %s" % way, beyond_mib(rows[way]), 128, number)
    if "link" in rows:
        link = rows["link"]
        targets.at_least("shaped link: 8 whole downloads / 8 ranks, slowest",
                         median([ratio(a, b) for a, b in zip(link["whole"], link["rank"])]), 6)
