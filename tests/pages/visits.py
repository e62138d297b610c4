"""The pages that people look at, by the names of their pictures: path and status."""
from models import BROKEN, GGUF, HDF5, HOSTILE, LLAMA, MOE, PICTURES, STEPS, TEXTS

from harness import enc

GATE = "model.layers.0.mlp.gate_proj.weight"


def model(id, rest=""):
    """Return the path of a model's page, or of a page below it."""
    return f"/models/{enc(id, '/')}/{rest}"


def tensor(id, name):
    return model(id, f"view/tensor/{enc(name)}")


INDEX = {"index": "/", "index-found": "/?q=LLAMA&sort=-bytes", "index-nothing": "/?q=no-such-name",
         "models": "/models/"}
MODEL = {"model": model(LLAMA), "model-moe": model(MOE), "model-gguf": model(GGUF), "model-hdf5": model(HDF5),
         "model-broken": model(BROKEN), "model-hostile": model(HOSTILE), "model-hub": f"/{LLAMA}"}
FOLDERS = {"folder": model(LLAMA, "files/"), "folder-hostile": model(HOSTILE, "files/"),
           "folder-dataset": f"/datasets/{PICTURES}/resolve/main/train/"}
TENSORS = {"tensors": model(LLAMA, "view/tensors"), "tensors-moe": model(MOE, "view/tensors?sort=-bytes&page=3"),
           "tensors-gguf": model(GGUF, "view/tensors"), "tensors-hostile": model(HOSTILE, "view/tensors"),
           "tensors-nothing": model(LLAMA, "view/tensors?q=no-such-name")}
TENSOR = {"tensor": tensor(LLAMA, GATE), "tensor-vector": tensor(LLAMA, "model.norm.weight"),
          "tensor-q8": tensor(GGUF, "blk.0.attn_q.weight"), "tensor-hdf5": tensor(HDF5, "layers/conv2d_1/vars/0"),
          "tensor-hostile": tensor(HOSTILE, "\"><img src=x onerror=alert(1)>")}
RANKS = {"ranks": model(LLAMA, "view/ranks?engine=vllm&tp=2"), "ranks-moe": model(MOE, "view/ranks?engine=vllm&tp=2"),
         "ranks-refused": model(LLAMA, "view/ranks?engine=vllm&tp=3"), "ranks-choice": model(LLAMA, "view/ranks")}
COMPARE = {"compare": f"/compare?a={STEPS[0]}&b={STEPS[1]}", "compare-choice": "/compare"}
STATUS = {"status": "/status"}
DATASETS = {"dataset-pictures": f"/datasets/{PICTURES}", "dataset-texts": f"/datasets/{TEXTS}"}
ERRORS = {"missing": ("/models/no/such/model/", 404), "wrong": (model(LLAMA, "?no-such-parameter=1"), 400)}

ALL = {name: (path, 200) for group in (INDEX, MODEL, FOLDERS, TENSORS, TENSOR, RANKS, COMPARE, STATUS, DATASETS)
       for name, path in group.items()} | ERRORS
