"""The peer of --updates: writes versions of a model and deltas, and goes from one version to the next in the ways that
run in Python. peers.py runs it."""

import json
import os
import shutil
import struct
import sys
import time

INDEX, WEIGHTS, DELTA = "model.safetensors.index.json", "model.safetensors", "model-00000-of-00001.safetensors"
MEDIAN = 0.035  # of |w|
BETAS = 0.9, 0.95
WARM_STEPS = 60  # of Adam, after which its moments no longer depend on where they began
BLOCK_ELEMENTS = 1 << 20
GROUP_SECONDS = 60


class Updates:
    """A trainer (make, hold, broadcast), or a host that follows it (all requests but make and hold)."""

    packages = ("torch", "safetensors.torch", "numpy", "zstandard", "xxhash", "tensord")

    def __init__(self):
        self.base, self.memory, self.held, self.ranks, self.changing = {}, {}, {}, [], []

    def answer(self, request):
        return getattr(self, request["do"])(request)

    # ---- versions

    def make(self, request):
        """Writes version 0 below `root`/run, and for each rate a version that is one step from it, with deltas of both
        kinds of checksums. Returns what changed, by rate."""
        import torch

        torch.manual_seed(34)
        root, base = request["root"], {}
        for name, shape in request["shapes"].items():
            base[name] = torch.ones(shape) if "norm" in name else torch.randn(shape) * (MEDIAN / 0.6745)
        write_full(os.path.join(root, "run", "weight_v000000"), stepped(base, None, 0, ()))
        step = adam_steps()
        return {"changes": [write_step(root, number + 1, base, step, rate, tuple(request["frozen"]))
                            for number, rate in enumerate(request["rates"])]}

    # ---- memory of a host that follows

    def base_into(self, request):
        """Makes the memory have the bytes of the version at `path`."""
        from safetensors.torch import load_file

        self.base = self.base or load_file(request["path"])
        self.memory = self.memory or {name: tensor.clone() for name, tensor in self.base.items()}
        for name, tensor in self.memory.items():
            tensor.copy_(self.base[name])
        return {}

    def check(self, request):
        """Returns the names of tensors that are not those of the version at `path`."""
        import torch
        from safetensors.torch import load_file

        want = load_file(request["path"])
        return {"wrong": [name for name in want if not torch.equal(bytes_of(want[name]), bytes_of(self.memory[name]))]}

    def into(self, request):
        import tensord

        return timed(lambda: tensord.load_into(self.memory, request["url"], progress=False))

    def since(self, request):
        """Reads changed tensors, as from a server that makes no patches."""
        from unittest import mock

        import tensord

        with mock.patch.object(tensord.tensors.model, "open_patch", lambda *_: None):
            return self.patch(request)

    def patch(self, request):
        import tensord

        return timed(lambda: tensord.load_into(self.memory, request["url"], since=request["since"], progress=False))

    def base_ranks(self, request):
        """Makes the ranks' tensors those of a version."""
        import tensord

        self.ranks = self.ranks or [tensord.load_rank(request["url"], "vllm", request["tp"], rank, progress=False)
                                    for rank in range(request["tp"])]
        self.changing = [{name: tensor.clone() for name, tensor in one.items()} for one in self.ranks]
        return {}

    def rank_patch(self, request):
        """Writes the elements that differ into a rank's tensors. All tensors of its patch have to be sparse."""
        import tensord
        from tensord.tensors.patches import put

        def run():
            with tensord.connect(request["url"], progress=False) as client:
                found = client.model().patch(request["since"], "vllm", request["tp"], request["rank"])
                assert not found.whole
                for part in found.parts():
                    put(self.changing[request["rank"]][part.name], part)
        return timed(run)

    def rank(self, request):
        import tensord

        return timed(lambda: tensord.load_rank(request["url"], "vllm", request["tp"], request["rank"], progress=False))

    # ---- a group of the trainer and the host

    def join(self, request):
        """Joins the group. Returns why it could not, or nothing."""
        import datetime

        import torch.distributed as dist

        try:
            dist.init_process_group("gloo", init_method=request["address"], rank=request["rank"], world_size=2,
                                    timeout=datetime.timedelta(seconds=GROUP_SECONDS))
        except (RuntimeError, ValueError) as error:
            return {"error": str(error).splitlines()[0]}
        return {}

    def hold(self, request):
        """Reads the version at `path` into memory, from which it is broadcast."""
        from safetensors.torch import load_file

        self.held = {name: tensor.clone() for name, tensor in load_file(request["path"]).items()}
        return {}

    def broadcast(self, request):
        """Sends the held tensors, one after the other; a peer that holds none receives them into its memory."""
        import torch.distributed as dist

        def all_tensors():
            for _, tensor in sorted((self.held or self.memory).items()):
                dist.broadcast(bytes_of(tensor), 0)
        return timed(all_tensors)

    # ---- ModelExpress

    def modelexpress(self, request):
        """Finds its package, also in the folder `writers`. Returns its version, None where it is not installed."""
        sys.path.append(request["writers"])
        try:
            from importlib.metadata import version

            import modelexpress_rl.inference.receiver  # noqa: F401

            return {"version": version("modelexpress")}
        except ImportError:
            return {"version": None}

    def receive(self, request):
        """Lets its receiver prepare a version, from a delta or a full one. The receiver has version 0 in a new cache,
        which is not measured. Returns the directory, too."""
        from modelexpress_rl.inference.receiver import ObjectStorageGeneratorConfig, _LocalCheckpoint, _S3Version
        from modelexpress_rl.object_storage import ObjectStorageType
        from modelexpress_rl.s3 import S3Client
        from modelexpress_rl.train import WeightPayloadFormat

        shutil.rmtree(request["cache"], ignore_errors=True)
        s3 = S3Client(endpoint_url=request["s3"], region_name="us-east-1")
        receiver = _LocalCheckpoint(model_name="run", s3=s3, config=ObjectStorageGeneratorConfig(
            storage_type=ObjectStorageType.S3, initial_base_version_id=number_text(0),
            seed_checkpoint_path=request["seed"], refit_checkpoint_dir=request["cache"]))
        receiver.initialize()
        delta = request["delta"]
        version = _S3Version(
            version_id=number_text(request["number"]), base_version_id=number_text(0) if delta else None,
            payload_format=WeightPayloadFormat.XOR_DELTA if delta else WeightPayloadFormat.FULL_HF_CHECKPOINT,
            uri="%s/%s" % (request["uri"], INDEX))
        sample = timed(lambda: receiver.prepare(version))
        s3.close()
        return {**sample, "path": str(receiver.local_checkpoint)}


def timed(run):
    begin = time.perf_counter()
    run()
    return {"seconds": time.perf_counter() - begin}


def bytes_of(tensor):
    """Returns a view of a tensor's bytes."""
    import torch

    return tensor.reshape(-1).view(torch.uint8)


def number_text(number):
    return "%06d" % number


# ---- steps of a trainer

def adam_steps():
    """Returns what Adam subtracts from each element of a block for a learning rate of 1, when gradients are noise."""
    import torch

    mean, square = torch.zeros(BLOCK_ELEMENTS), torch.zeros(BLOCK_ELEMENTS)
    gradient = torch.empty(BLOCK_ELEMENTS)
    for _ in range(WARM_STEPS):
        gradient.normal_()
        mean.mul_(BETAS[0]).add_(gradient, alpha=1 - BETAS[0])
        square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
    return mean / (square.sqrt() + 1e-8)


def stepped(base, step, rate, frozen):
    """Returns the float32 masters after one step, as bfloat16, by name. rate: 0 makes no step. frozen: beginnings of
    the names of tensors that do not change. Each tensor takes the updates from another place of the block on."""
    import torch

    found = {}
    for at, (name, master) in enumerate(base.items()):
        if rate and not (frozen and name.startswith(frozen)):
            count = master.numel()
            repeated = step.roll(at * 1_000_003).repeat(-(-count // len(step)))[:count]
            master = master - rate * repeated.view(master.shape)
        found[name] = master.to(torch.bfloat16)
    return found


def write_full(folder, tensors):
    from safetensors.torch import save_file

    os.makedirs(folder)
    save_file(tensors, os.path.join(folder, WEIGHTS), metadata={"format": "pt"})
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    write_index(folder, {"total_size": size}, dict.fromkeys(tensors, WEIGHTS))


def write_index(folder, metadata, weight_map):
    with open(os.path.join(folder, INDEX), "w") as f:
        json.dump({"metadata": metadata, "weight_map": weight_map}, f)


def write_step(root, number, base, step, rate, frozen):
    """Writes a version and its deltas. Returns which shares of elements, bytes and tensors changed, and the delta's
    share of the version's bytes."""
    import zlib

    import xxhash
    import zstandard

    old, new = stepped(base, None, 0, ()), stepped(base, step, rate, frozen)
    write_full(os.path.join(root, "run", "weight_v" + number_text(number)), new)
    frames, changed, total = {}, {"elements": 0, "bytes": 0, "tensors": 0}, sum(t.numel() for t in new.values())
    for name, tensor in new.items():
        xor = bytes_of(old[name]) ^ bytes_of(tensor)
        count = int(xor.count_nonzero())
        if count:
            frames[name] = zstandard.ZstdCompressor(level=1).compress(xor.numpy())
            for key, more in (("elements", int((old[name] != tensor).sum())), ("bytes", count), ("tensors", 1)):
                changed[key] += more
    for folder, form, checksum in (
            ("run/delta_", "xxh3-128", lambda data: xxhash.xxh3_128(data).hexdigest()),
            ("deltas/delta_", "adler32", lambda data: "%08x" % zlib.adler32(data))):
        write_delta(os.path.join(root, folder + number_text(number)), frames, {
            name: checksum(bytes_of(new[name]).numpy()) for name in frames}, {
                "version": number_text(number), "base_version": number_text(0), "delta_encoding": "xor",
                "compression_format": "zstd", "checksum_format": form})
    return {"rate": rate, "elements": changed["elements"] / total, "bytes": changed["bytes"] / total / 2,
            "tensors": changed["tensors"] / len(new), "delta": sum(map(len, frames.values())) / total / 2}


def write_delta(folder, frames, sums, metadata):
    """Writes a delta as slime and ModelExpress do: the frame of each tensor is a tensor of bytes with its name."""
    os.makedirs(folder)
    places, at = {"__metadata__": sums}, 0
    for name, frame in frames.items():
        places[name] = {"dtype": "U8", "shape": [len(frame)], "data_offsets": [at, at + len(frame)]}
        at += len(frame)
    if frames:
        header = json.dumps(places).encode()
        with open(os.path.join(folder, DELTA), "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header + b"".join(frames.values()))
    write_index(folder, metadata, dict.fromkeys(frames, DELTA))
