"""The peers in Python: one kind of them in a process that continues to run. It answers each line of standard input
with a line, both JSON. clients.py starts it with a Python that has the packages.

usage: peers.py parse|decode|client|rows|save|updates [FOLDER_OF_A_PYTHON_CLIENT]"""

import ctypes
import glob
import hashlib
import json
import os
import resource
import shutil
import sys
import tempfile
import time

from update_peer import Updates


def missing(packages):
    """Imports the packages, outside all measured times, and returns those that this Python lacks."""
    lacking = []
    for name in packages:
        try:
            __import__(name)
        except ImportError:
            lacking.append(name)
    return lacking


# ---- the structure of files

def llama_names():
    parts = ("attention.wq", "attention.wk", "attention.wv", "attention.wo", "feed_forward.w1", "feed_forward.w2",
             "feed_forward.w3", "attention_norm", "ffn_norm")
    layers = ["layers.%d.%s.weight" % (i, part) for i in range(32) for part in parts]
    return ["tok_embeddings.weight", *layers, "norm.weight", "output.weight"]


def make_torch(path):
    import torch
    state = {name: torch.zeros(64 if "norm" in name else (64, 16), dtype=torch.bfloat16) for name in llama_names()}
    torch.save(state, path)


def make_hdf5(path):
    import h5py
    import numpy
    with h5py.File(path, "w") as f:
        for i in range(200):
            f.create_dataset("model/layer_%d/%s" % (i // 4, ("kernel", "bias", "gamma", "beta")[i % 4]),
                             data=numpy.full((16, 16), i, numpy.float32))


def make_safetensors(path):
    import numpy
    import safetensors.numpy
    safetensors.numpy.save_file({"model.layers.%d.part%d.weight" % (i // 10, i % 10): numpy.full((16, 16), i, "<f2")
                                 for i in range(1000)}, path)


def read_torch(path):
    import torch
    return torch.load(path, mmap=True, weights_only=True)


def read_hdf5(path):
    import h5py
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item.id.get_offset()
    with h5py.File(path, "r") as f:
        f.visititems(visit)
    return found


def read_safetensors(path):
    from safetensors import safe_open
    with safe_open(path, framework="np") as f:
        return list(f.keys())


MAKERS = {"torch": make_torch, "hdf5": make_hdf5, "safetensors": make_safetensors}
READERS = {"torch": read_torch, "hdf5": read_hdf5, "safetensors": read_safetensors}


class Parse:
    """The readers that `tensord inspect` is compared with."""

    packages = ("torch", "h5py", "safetensors", "numpy")

    def answer(self, request):
        if request["do"] == "make":
            MAKERS[request["kind"]](request["path"])
            return {}
        begin = time.perf_counter_ns()
        result = READERS[request["kind"]](request["path"])
        ns = time.perf_counter_ns() - begin
        if request["do"] == "names":
            return {"names": sorted(result), "offsets": result if request["kind"] == "hdf5" else None}
        return {"ns": ns}  # the result is freed after the clock was stopped


# ---- compressed tensors

FILTERS = {"gzip.h5": {"compression": "gzip"}, "shuffle.h5": {"compression": "gzip", "shuffle": True},
           "lzf.h5": {"compression": "lzf", "shuffle": True}}


def make_compressed(path, kind, tensors, rows, columns):
    """Returns weights that were bfloat16 and are kept as F32, as in compressed checkpoints."""
    import h5py
    import numpy
    rng = numpy.random.default_rng(1)
    arrays = []
    for _ in range(tensors):
        a = (rng.standard_normal((rows, columns)) * 0.02).astype("<f4")
        a.view("<u4")[...] &= 0xFFFF0000
        arrays.append(a)
    if kind.endswith(".npz"):
        numpy.savez_compressed(path, **{"t%d" % i: a for i, a in enumerate(arrays)})
        return
    with h5py.File(path, "w") as f:
        for i, a in enumerate(arrays):
            f.create_dataset("t%d" % i, data=a, chunks=(64, columns), **FILTERS[kind])


def opened(path):
    import h5py
    import numpy
    return numpy.load(path) if path.endswith(".npz") else h5py.File(path, "r")


def read_whole(path, tensors):
    with opened(path) as f:
        return [f["t%d" % i][...] for i in range(tensors)]


def read_windows(path, windows):
    with opened(path) as f:
        return [f["t%d" % i][row:row + count].tobytes() for i, row, count in windows]


class Decode:
    """h5py and NumPy, which read compressed tensors."""

    packages = ("h5py", "numpy")

    def answer(self, request):
        path = request["path"]
        if request["do"] == "make":
            make_compressed(path, request["kind"], request["tensors"], request["rows"], request["columns"])
            return {}
        begin = time.perf_counter_ns()
        if request["do"] == "whole":
            parts = read_whole(path, request["tensors"])
        else:
            parts = read_windows(path, request["windows"])
        ns = time.perf_counter_ns() - begin
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        return {"ns": ns, "sha256": digest.hexdigest()}


# ---- loading a checkpoint

# The dimension along which ranks share a tensor; tensors with one dimension are whole on every rank.
COLUMN_WISE = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head")
ROW_WISE = ("o_proj", "down_proj")


class Client:
    """The ways to load a checkpoint."""

    packages = ("torch", "safetensors.torch", "requests", "huggingface_hub", "numpy")

    def __init__(self):
        self.kept = {}

    def answer(self, request):
        if request["do"] in ("check", "prepare"):
            return getattr(self, request["do"])(request)
        with open("/proc/self/clear_refs", "w") as clear:
            clear.write("5")
        before, faults = status_bytes("VmRSS"), page_faults()
        begin, cpu = time.perf_counter(), cpu_s()
        tensors = getattr(self, request["do"])(request)
        seconds, cpu = time.perf_counter() - begin, cpu_s() - cpu
        faults = page_faults() - faults
        peak, nbytes = status_bytes("VmHWM"), sum(t.numel() * t.element_size() for t in tensors.values())
        if request.get("keep"):
            self.kept[request["do"]] = tensors
        extra = peak - before - (0 if request["do"] in ("into", "loop") else nbytes)
        return {"seconds": seconds, "cpu": cpu, "bytes": nbytes, "extra": extra, "faults": faults}

    def check(self, request):
        """Compares what was kept with the file, byte by byte, and drops it."""
        import torch
        from safetensors.torch import load_file

        want, wrong = load_file(request["path"]), []
        for way in request["ways"]:
            got = self.kept.pop(way)
            same = got.keys() == want.keys() and all(
                torch.equal(got[n].contiguous().view(torch.uint8), want[n].view(torch.uint8)) for n in want)
            wrong += [] if same else [way]
        return {"wrong": wrong}

    # ---- ways into memory that exists

    def memory(self, request):
        """Return views of one block of memory, touched, laid out as the file's bytes."""
        import torch

        if "memory" not in self.kept:
            block = torch.zeros(request["nbytes"], dtype=torch.uint8).fill_(1)
            views = {}
            for name, (shape, begin, end) in request["tensors"].items():
                views[name] = block[begin:end].view(torch.bfloat16).view(shape)
            self.kept["memory"] = block, views
        return self.kept["memory"]

    def prepare(self, request):
        self.memory(request)
        self.library = ctypes.CDLL(request["library"])
        return {}

    def into(self, request):
        import tensord

        _, views = self.kept["memory"]
        tensord.load_into(views, request["url"], progress=False)
        return views

    def loop(self, request):
        block, views = self.kept["memory"]
        call = self.library.receive_ranges
        call.argtypes = [ctypes.c_char_p, ctypes.c_uint, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64,
                         ctypes.c_uint64, ctypes.c_uint, ctypes.c_void_p]
        fault = call(b"127.0.0.1", request["port"], request["file"].encode(), request["offset"], block.numel(),
                     16 << 20, 8, block.data_ptr())
        if fault:
            raise OSError(fault, os.strerror(fault))
        return views

    # ---- ways into new memory

    def load_file(self, request):
        import tensord

        return tensord.load_file(request["url"], progress=False)

    def small_pages(self, request):
        """Loads as load_file does where the host forbids huge pages."""
        from tensord.tensors import huge_pages

        advise, huge_pages.advise = huge_pages.advise, lambda blocks: None
        try:
            return self.load_file(request)
        finally:
            huge_pages.advise = advise

    def requests(self, request):
        import requests
        import safetensors.torch

        with requests.Session() as session:
            answer = session.get("http://127.0.0.1:%d%s" % (request["port"], request["file"]))
            answer.raise_for_status()
            return safetensors.torch.load(answer.content)

    def hub(self, request):
        from huggingface_hub import snapshot_download
        from safetensors.torch import load_file

        cache = tempfile.mkdtemp(dir=request["work"])
        try:
            folder = snapshot_download(request["model"], cache_dir=cache,
                                       endpoint="http://127.0.0.1:%d" % request["port"])
            return load_file(glob.glob(os.path.join(folder, "*.safetensors"))[0])
        finally:
            shutil.rmtree(cache)

    def runai(self, request):
        from runai_model_streamer import SafetensorsStreamer

        os.environ.update({"AWS_ENDPOINT_URL": "http://127.0.0.1:%d" % request["s3"], "AWS_ACCESS_KEY_ID": "any",
                           "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1",
                           "AWS_EC2_METADATA_DISABLED": "true", "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0"})
        with SafetensorsStreamer() as streamer:
            streamer.stream_files(["s3://" + request["model"] + "/model.safetensors"])
            return dict(streamer.get_tensors())

    # ---- ways of one rank

    def rank(self, request):
        import tensord

        return tensord.load_rank(request["url"], "vllm", request["tp"], request["rank"], progress=False)

    def lazy(self, request):
        """Loads as an engine's weight loaders do: parameters of the rank's shapes, and copies of narrowed tensors."""
        import tensord
        import torch
        from tensord.lazy import deferred

        rank, tp = request["rank"], request["tp"]
        model = tensord.open_model(request["url"], progress=False)
        made = {}
        with tensord.safe_open(model, "pt", lazy=True) as f, deferred(model):
            for name in f.keys():  # noqa: SIM118
                tensor = f.get_tensor(name)
                part = tensor
                for dim, names in enumerate((COLUMN_WISE, ROW_WISE)):
                    if any(one in name for one in names):
                        part = tensor.chunk(tp, dim)[rank]
                made[name] = torch.empty(part.shape, dtype=part.dtype)
                made[name].copy_(part)
        model.session.close()
        return made


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def status_bytes(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key)) * 1024


# ---- rows through torch's DataLoader

BATCH = 256
SHARD_ROWS = 8192
BUFFER_ROWS = 1000


class Rows:
    """The ways to read an epoch of rows."""

    packages = ("torch", "datasets", "requests", "webdataset")

    def answer(self, request):
        return getattr(self, request["do"])(request)

    def prepare(self, request):
        """Writes the rows in the forms of the other libraries, and returns the versions of these."""
        import datasets
        import webdataset

        self.root = request["root"]
        with open(request["path"], "rb") as lines:
            self.rows = [json.loads(line) for line in lines]
        self.arrow = os.path.join(self.root, "arrow")
        if not os.path.exists(self.arrow):
            datasets.Dataset.from_list(self.rows).save_to_disk(self.arrow)
        self.write_tars()
        return {"about": "datasets %s, webdataset %s" % (datasets.__version__, webdataset.__version__)}

    def write_tars(self):
        import webdataset

        folder = os.path.join(self.root, "tars")
        if os.path.exists(folder):
            return
        os.makedirs(folder)
        for first in range(0, len(self.rows), SHARD_ROWS):
            with webdataset.TarWriter(os.path.join(folder, "%05d.tar" % (first // SHARD_ROWS))) as out:
                for row in self.rows[first:first + SHARD_ROWS]:
                    out.write({"__key__": row["id"], "json": row})

    def epoch(self, request):
        """Reads all rows once, with everything that comes before the first batch; compares them if asked to."""
        begin, kept, count, first = time.perf_counter(), [], 0, None
        for batch in getattr(self, request["way"])(request, request["workers"]):
            first = first or time.perf_counter() - begin
            count += len(batch["id"])
            if request["check"]:
                kept += zip(batch["id"], batch["text"])
        seconds = time.perf_counter() - begin
        same = count == len(self.rows) and (
            not request["check"] or sorted(kept) == [(row["id"], row["text"]) for row in self.rows])
        return {"seconds": seconds, "first": first, "same": same}

    # ---- the ways; each returns what yields the batches

    def map(self, request, workers):
        import tensord

        dataset = tensord.Dataset(request["url"], decode="json", progress=False)
        return loader(dataset, workers, sampler=tensord.ShuffleSampler(dataset, seed=request["seed"]))

    def iterable(self, request, workers):
        import tensord

        return loader(tensord.IterableDataset(request["url"], shuffle=True, seed=request["seed"], batch_size=BATCH,
                                              decode="json", progress=False), workers)

    def local(self, request, workers):
        import datasets

        return loader(datasets.load_from_disk(self.arrow), workers, shuffle=True)

    def webdataset(self, request, workers):
        import webdataset

        names = sorted(os.path.basename(path) for path in glob.glob(os.path.join(self.root, "tars", "*.tar")))
        urls = [request["nginx"] + "/tars/" + name for name in names]
        rows = webdataset.WebDataset(urls, shardshuffle=len(urls), seed=request["seed"], empty_check=False)
        return loader(rows.shuffle(BUFFER_ROWS).decode().map(member), workers)


def member(sample):
    return sample["json"]


def loader(dataset, workers, **how):
    import torch.utils.data

    return torch.utils.data.DataLoader(dataset, batch_size=BATCH, num_workers=workers, **how)


class Save:
    """A model in memory, which tensord.save_model sends."""

    packages = ("torch", "tensord")

    def __init__(self):
        self.tensors = {}

    def answer(self, request):
        """Makes the tensors new, which are `size` bytes together, and sends them."""
        import tensord
        import torch

        if not self.tensors:
            block = torch.frombuffer(bytearray(os.urandom(1 << 20)), dtype=torch.float16)
            blocks = max(1, request["size"] // LAYERS >> 20)
            self.tensors = {"layers.%d.weight" % i: block.repeat(blocks) for i in range(LAYERS)}
        for tensor in self.tensors.values():
            tensor[:8] = torch.frombuffer(bytearray(os.urandom(16)), dtype=torch.float16)
        options = tensord.Options(ca_file=request["ca"])
        begin, cpu = time.perf_counter(), cpu_s()
        made = tensord.save_model(self.tensors, request["url"], progress=False, options=options)
        return {"seconds": time.perf_counter() - begin, "cpu": cpu_s() - cpu, "bytes": made.bytes}


LAYERS = 16
KINDS = {"parse": Parse, "decode": Decode, "client": Client, "rows": Rows, "save": Save, "updates": Updates}


def main():
    """Prints the missing packages first, then the answer to each request."""
    clients = sys.argv[2] if len(sys.argv) > 2 else os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "clients", "python")
    sys.path.insert(0, clients)
    peer = KINDS[sys.argv[1]]()
    print(json.dumps({"missing": missing(peer.packages), "python": sys.version.split()[0]}), flush=True)
    for line in sys.stdin:
        print(json.dumps(peer.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
