"""The readers that `tensord inspect` is compared with, in one running Python: makes the files, then times one read of a
file for every line of standard input. Needs torch, h5py and safetensors; bench_parse.py starts it with a Python that
has them, and talks with it in lines of JSON."""

import time

import peer


def llama_names():
    parts = ("attention.wq", "attention.wk", "attention.wv", "attention.wo", "feed_forward.w1", "feed_forward.w2",
             "feed_forward.w3", "attention_norm", "ffn_norm")
    layers = ["layers.%d.%s.weight" % (i, part) for i in range(32) for part in parts]
    return ["tok_embeddings.weight", *layers, "norm.weight", "output.weight"]


def make_torch(path):
    import torch
    state = {name: torch.zeros(64 if "norm" in name else (64, 16), dtype=torch.bfloat16) for name in llama_names()}
    torch.save(state, path)
    return len(state)


def make_hdf5(path):
    import h5py
    import numpy
    with h5py.File(path, "w") as f:
        for i in range(200):
            f.create_dataset("model/layer_%d/%s" % (i // 4, ("kernel", "bias", "gamma", "beta")[i % 4]),
                             data=numpy.full((16, 16), i, numpy.float32))
    return 200


def make_safetensors(path):
    import numpy
    import safetensors.numpy
    safetensors.numpy.save_file(
        {
            "model.layers.%d.part%d.weight" % (i // 10, i % 10): numpy.full((16, 16), i, numpy.float16)
            for i in range(1000)
        }, path)
    return 1000


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


MAKE = {"torch": make_torch, "hdf5": make_hdf5, "safetensors": make_safetensors}
READ = {"torch": read_torch, "hdf5": read_hdf5, "safetensors": read_safetensors}


def answer(request):
    if request["do"] == "make":
        return {"tensors": MAKE[request["kind"]](request["path"])}
    read = READ[request["kind"]]
    begin = time.perf_counter_ns()
    result = read(request["path"])
    ns = time.perf_counter_ns() - begin
    if request["do"] == "names":
        return {"names": sorted(result), "offsets": result if request["kind"] == "hdf5" else None}
    return {"ns": ns}  # the result is freed after the clock was stopped


if __name__ == "__main__":
    peer.serve(("torch", "h5py", "safetensors", "numpy"), answer)
