"""Loads a checkpoint in the ways that --client compares, one for each line of standard input. Needs torch, safetensors,
requests and huggingface_hub; runai_model_streamer where it is there. Allocations are mapped and unmapped each time
(MALLOC_MMAP_THRESHOLD_ set by bench_client.py), so that new memory is new for each way."""

import ctypes
import glob
import json
import os
import resource
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "clients", "python"))

import peer  # noqa: E402

# The dimension along which ranks share a tensor; tensors with one dimension are whole on every rank.
COLUMN_WISE = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head")
ROW_WISE = ("o_proj", "down_proj")


class Peer:
    def __init__(self):
        self.kept = {}

    def answer(self, request):
        if request["do"] == "check":
            return self.check(request["path"], request["ways"])
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

    def check(self, path, ways):
        """Compares what was kept with the file, byte by byte, and drops it."""
        import torch
        from safetensors.torch import load_file

        want, wrong = load_file(path), []
        for way in ways:
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
        """What load_file does where the host forbids huge pages."""
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
        """What an engine's weight loaders do: parameters of the rank's shapes, and copies of narrowed tensors."""
        import tensord
        import torch
        from tensord.lazy import deferred

        rank, tp = request["rank"], request["tp"]
        model = tensord.open_model(request["url"], progress=False)
        made = {}
        with tensord.safe_open(model, "pt", lazy=True) as f, deferred(model):
            for name in f.keys():
                tensor = f.get_tensor(name)
                part = tensor
                for dim, names in enumerate((COLUMN_WISE, ROW_WISE)):
                    if any(one in name for one in names):
                        part = tensor.chunk(tp, dim)[rank]
                made[name] = torch.empty(part.shape, dtype=part.dtype)
                made[name].copy_(part)
        model.client.close()
        return made


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def status_bytes(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key)) * 1024


def main():
    state = Peer()

    def answer(request):
        if request["do"] == "prepare":
            return state.prepare(request)
        return state.answer(request)

    peer.serve(["torch", "safetensors.torch", "requests", "huggingface_hub", "numpy"], answer)


if __name__ == "__main__":
    main()
