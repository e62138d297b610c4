"""Models with a tensor that cannot be in a safetensors file: the errors say so, and no link leads to a file that cannot
be made."""
import json
import subprocess

import gguf
import h5py
import numpy as np
import pytest
from safetensors.numpy import load

from harness import Server, age, check_error, tensord_binary

BROWSER = {"Accept": "text/html,*/*;q=0.8"}
WHOLE = {"match": "**", "whole": True}


@pytest.fixture(scope="module")
def srv(tmp_path_factory):
    root = tmp_path_factory.mktemp("blocked") / "root"
    for name in ("gguf", "half", "hdf5", "npz", "good"):
        (root / name).mkdir(parents=True)
    for name, quantized in (("gguf", True), ("half", False)):
        writer = gguf.GGUFWriter(root / name / "x.gguf", "llama")
        writer.add_tensor("plain", np.arange(6, dtype=np.float32))
        if quantized:
            blocks = gguf.quants.quantize(np.ones((2, 64), np.float32), gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor("q.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            bf16 = gguf.quants.quantize(np.ones((2, 64), np.float32), gguf.GGMLQuantizationType.BF16)
            writer.add_tensor("q.weight", bf16, raw_dtype=gguf.GGMLQuantizationType.BF16)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    with h5py.File(root / "hdf5/x.h5", "w") as f:
        f["plain"] = np.arange(6, dtype=np.float32)
        f["link"] = h5py.SoftLink("/plain")
    np.savez(root / "npz/x.npz", plain=np.arange(6, dtype=np.float32), objects=np.array([{}, None], dtype=object))
    np.savez(root / "good/x.npz", plain=np.arange(6, dtype=np.float32))
    age(root)
    with Server(root, hash_threads=0) as s:
        yield s


@pytest.mark.parametrize("model, dtype, others", [("gguf", "Q8_0", "raw can"),
                                                  ("half", "BF16", "raw and safetensors can")])
def test_a_type_that_numpy_lacks_names_formats_that_have_it(srv, model, dtype, others):
    url = f"/models/{model}/tensors/q.weight"
    r = srv.get(f"{url}?format=npy")
    check_error(r, 400, f"NumPy has no type {dtype}: format=npy cannot express it; {others}\"")
    for format in ("raw", "safetensors"):
        assert (srv.get(f"{url}?format={format}").status == 200) == (format in others), format


@pytest.mark.parametrize("model, name, why", [
    ("gguf", "q.weight", 'tensor \\"q.weight\\": safetensors has no dtype for the type Q8_0'),
    ("hdf5", "link", 'tensor \\"link\\" has no bytes that could be put into a file (soft link to /plain)'),
    ("npz", "objects", 'tensor \\"objects\\" has no bytes that could be put into a file (pickled objects)'),
])
def test_what_one_tensor_blocks(srv, model, name, why):
    """The message has a rule that leaves the tensor out, and that rule works."""
    rule = {"match": name, "drop": True}
    text = json.dumps(rule, separators=(",", ":")).replace('"', '\\"')
    for url in (f"/models/{model}/model.safetensors", f"/{model}/resolve/safetensors/model.safetensors"):
        r = srv.get(url)
        assert r.status == 422
        message = r.body.decode() if url.startswith("/models") else json.dumps(r.get("X-Error-Message"))
        assert why in message, message
        assert f"a plan with the rule {text} leaves it out" in message, message
    page = srv.get(f"/models/{model}/", BROWSER).body.decode()
    assert f"/models/{model}/tensors" in page and "model.safetensors" not in page
    refs = srv.json(f"/api/models/{model}/refs")
    assert [branch["name"] for branch in refs["branches"]] == ["main"]
    plan = srv.post(f"/models/{model}/plans", {"tp_size": 1, "rules": [rule, WHOLE]})
    assert plan.status == 201, plan.body
    tensors = load(srv.get(plan.json()["ranks"][0]["href"]).body)
    assert list(tensors) == ["plain"] and tensors["plain"].tolist() == [0, 1, 2, 3, 4, 5]
    p = subprocess.run([str(tensord_binary()), "plan", str(srv.root), model, "--engine", "none", "--tp", "1"],
                       capture_output=True, text=True, timeout=60)
    assert p.returncode == 1 and p.stdout == "" and '"drop":true}' in p.stderr


@pytest.mark.parametrize("model", ["good", "half"])
def test_what_nothing_blocks(srv, model):
    assert srv.get(f"/models/{model}/model.safetensors").status == 200
    assert f"/models/{model}/model.safetensors" in srv.get(f"/models/{model}/", BROWSER).body.decode()
    refs = srv.json(f"/api/models/{model}/refs")
    assert [branch["name"] for branch in refs["branches"]] == ["main", "safetensors"]
