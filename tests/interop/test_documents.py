"""Python in the documents: README's example runs, and docs/formats.md names the same types as the packages."""
import json
import re
import subprocess
import sys

import gguf.quants
import ml_dtypes
import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

from harness import REPO, Server

README = (REPO / "README.md").read_text()
SLICING = (REPO / "docs" / "slicing.md").read_text()


def block(language, text=README):
    return re.search(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]


def test_examples_in_python(tmp_path, monkeypatch):
    """Uses the model that ./serve.sh makes: element i of its F32 tensors is i (scripts/demo_model.py)."""
    subprocess.run([sys.executable, REPO / "scripts/demo_model.py", tmp_path / "demo"], check=True)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server(tmp_path) as server:
        found = {}
        sliced = {}
        exec(block("python").replace("127.0.0.1:8080", f"127.0.0.1:{server.port}"), found)
        exec(block("python", SLICING).replace("127.0.0.1:8080", f"127.0.0.1:{server.port}"), sliced)
    assert found["entry"] == json.loads(block("json"))
    assert torch.equal(found["weight"], torch.arange(64, dtype=torch.float32))
    assert sliced["weights"]["model.layers.0.self_attn.qkv_proj.weight"].shape == (
        4 * 8 + 8 + 8, 64)  # half of 8 and of 2 heads of 8 rows


def type_rows():
    text = (REPO / "docs" / "formats.md").read_text()
    table = text[text.index("| `dtype` | torch | NumPy |"):].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        name, of_torch, of_numpy = (cell.strip() for cell in line.strip("|").split("|"))
        yield name.strip("`"), of_torch.strip("`"), of_numpy


def numpy_type(cell):
    name = re.search(r"`(.*?)`", cell)[1]
    return np.dtype(getattr(np, name.removeprefix("np.")) if name.startswith("np.") else getattr(ml_dtypes, name))


def test_types_are_those_of_the_packages():
    rows = list(type_rows())
    of_torch = {name: getattr(torch, cell.removeprefix("torch.")) for name, cell, _ in rows if cell}
    of_numpy = {name: numpy_type(cell) for name, _, cell in rows if cell}
    assert safetensors.torch._TYPES.items() <= of_torch.items()
    assert {name: np.dtype(t) for name, t in safetensors.numpy._TYPES.items()}.items() <= of_numpy.items()
    for name in of_torch.keys() & of_numpy.keys():
        assert of_torch[name].itemsize == of_numpy[name].itemsize, name
    assert of_numpy["F128"].itemsize == 16 and of_numpy["C256"].itemsize == 32
    assert torch.float4_e2m1fn_x2.itemsize == 1 and callable(gguf.quants.dequantize)


def test_types_are_all_there():
    """Every type of the contract is in the table or in the list below it."""
    text = (REPO / "docs" / "formats.md").read_text()
    section = text[text.index("## Types"):text.index("## What a manifest says")]
    contract = (REPO / "api" / "openapi.yaml").read_text()
    types = re.search(r"    Dtype:\n.*?enum: \[(.*?)\]", contract, re.DOTALL)[1].replace("\n",
                                                                                         " ").replace(",", " ").split()
    named = set(re.findall(r"`(\w+)`", section))
    blocks = {t for t in types if re.fullmatch(r"I?Q\d\w*|TQ\d_0|\w+FP4", t)}
    packed = {t for t in types if t.startswith(("QUINT4", "QUINT2", "BITS"))}
    assert set(types) - blocks - packed <= named, set(types) - blocks - packed - named
