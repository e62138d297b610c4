"""The page of one tensor, beside the manifest as JSON and the bytes of the file."""
import hashlib
import io
import json
import os

import gguf
import numpy as np
import pytest
import torch

from harness import DTYPE_BITS, Server, age, enc, tensor, write_by_hand
from page_reader import read_page
from test_page_tensors import NAMES

DTYPES = [tensor(dtype.lower(), dtype, (8, 3)) for dtype in DTYPE_BITS]


def write_gguf(path):
    writer = gguf.GGUFWriter(path, "llama")
    rng = np.random.default_rng(5)
    for name, kind in (("q4", gguf.GGMLQuantizationType.Q4_0), ("q8", gguf.GGMLQuantizationType.Q8_0)):
        values = rng.standard_normal((4, 64), dtype=np.float32)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def srv(tmp_path_factory):
    root = tmp_path_factory.mktemp("tensor") / "root"
    write_by_hand(root / "names/model.safetensors", [tensor(name, "U8", (i + 1,)) for i, name in enumerate(NAMES)])
    write_by_hand(root / "dtypes/model.safetensors", DTYPES)
    write_by_hand(root / "part/model-00001-of-00002.safetensors", [tensor("here", "F32", (2, 2))])
    (root / "gguf").mkdir()
    write_gguf(root / "gguf/model.gguf")
    (root / "torch").mkdir()
    shared = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    torch.save({"tied.a": shared, "tied.b": shared, "turned": shared.t(), "alone": torch.zeros(2)},
               root / "torch/pytorch_model.bin")
    (root / "npz").mkdir()
    np.savez_compressed(root / "npz/weights.npz", packed=np.zeros((50, 20), np.float32))
    (root / "delta").mkdir()
    age(root)
    with Server(root) as s:
        yield s


def page(srv, model, name, query="", status=200):
    answer = srv.get(f"/models/{enc(model)}/view/tensor/{enc(name)}" + query)
    assert answer.status == status, answer.body
    return read_page(answer)


def facts(root):
    return {row["data-fact"]: (row["data-value"], row.one("dd").text) for row in root.one(id="facts").all(data_fact=None)}


def listed(srv, model):
    return {t["name"]: t for t in srv.json(f"/models/{model}/tensors")["tensors"]}


@pytest.mark.parametrize("model", ["dtypes", "gguf", "torch", "npz"])
def test_facts_are_those_of_the_manifest(srv, model):
    for name, t in listed(srv, model).items():
        got = facts(page(srv, model, name))
        assert got["dtype"] == (t["dtype"], t["dtype"]) and json.loads(got["shape"][0]) == t["shape"]
        assert int(got["elements"][0]) == int(np.prod(t["shape"])) and int(got["bytes"][0]) == t["nbytes"]
        assert got["file"] == (t["file"], t["file"]) and got["checkpoint"][0] in srv.get(f"/models/{model}").body.decode()
        assert json.loads(got.get("strides", ("null",))[0]) == t.get("strides")
        assert int(got.get("offset", ("-1",))[0]) == t.get("offset", -1)
        assert got["stored"][0] == t.get("access", "direct")
        assert t.get("stored", "") in got["stored"][1]


def test_blocks_of_gguf(srv):
    """gguf.GGML_QUANT_SIZES: the elements and bytes of a block."""
    for name, kind in (("q4", gguf.GGMLQuantizationType.Q4_0), ("q8", gguf.GGMLQuantizationType.Q8_0)):
        elements, nbytes = gguf.GGML_QUANT_SIZES[kind]
        got = facts(page(srv, "gguf", name))
        assert got["elements"][0] == str(4 * 64) and got["bytes"][0] == str(4 * 64 // elements * nbytes)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_a_page_and_links(srv, name):
    href = next(t["href"] for t in srv.json("/models/names/tensors")["tensors"] if t["name"] == name)
    root = read_page(srv.get(href.replace("/tensors/", "/view/tensor/", 1)))
    data = tensor(name, "U8", (NAMES.index(name) + 1,)).data
    links = {a["data-link"]: a["href"] for a in root.all("a", data_link=None)}
    assert srv.get(links["raw"]).body == data
    assert np.load(io.BytesIO(srv.get(links["npy"]).body)).tobytes() == data
    assert srv.get(links["safetensors"]).body.endswith(data)
    assert root.one("h1").text != "" and (len(name) <= 256 or name in root.one("main").text)
    for a in root.one("main").all("a"):
        assert srv.get(a["href"]).status == 200, a["href"]


@pytest.mark.parametrize("name", [t.name for t in DTYPES])
def test_links_lead_to_what_exists(srv, name):
    """NumPy lacks some types, and no link leads to an error."""
    root = page(srv, "dtypes", name)
    links = {a["data-link"]: srv.get(a["href"]) for a in root.all("a", data_link=None)}
    assert all(answer.status == 200 for answer in links.values()) and {"raw", "safetensors"} <= set(links)
    assert ("npy" in links) == (srv.get(f"/models/dtypes/tensors/{name}?format=npy").status == 200)


def test_other_names_of_the_same_bytes(srv):
    assert [a.text for a in page(srv, "torch", "tied.a").one(id="aliases").all("a")] == ["tied.b"]
    root = page(srv, "torch", "tied.b")
    assert [a.text for a in root.one(id="aliases").all("a")] == ["tied.a"]
    assert srv.get(root.one(id="aliases").one("a")["href"]).status == 200
    assert not page(srv, "torch", "alone").all(id="aliases")


def test_a_digest_is_shown_once_it_is_known(srv):
    assert "sha256" not in facts(page(srv, "dtypes", "i64"))
    assert srv.get("/models/dtypes/tensors?match=i64&digests=1").status == 200
    data = next(t.data for t in DTYPES if t.name == "i64")
    assert facts(page(srv, "dtypes", "i64"))["sha256"][0] == hashlib.sha256(data).hexdigest()


def test_a_part_of_a_model(srv):
    root = page(srv, "part", "here")
    assert srv.get(root.one("a", data_link="raw")["href"]).body == tensor("here", "F32", (2, 2)).data


def test_what_is_not_there(srv):
    for target, says in [("dtypes/view/tensor/zz", "has no tensor"), ("dtypes/view/tensor/", "has no tensor"),
                         ("dtypes/view/tensor", "no page"), ("dtypes/view/tensor/i8?checkpoint=zz", "no checkpoint"),
                         ("zz/view/tensor/x", "not found")]:
        answer = srv.get(f"/models/{target}", {"Accept": "text/html"})
        assert answer.status == 404 and says in read_page(answer).one(id="error").text, target
    assert srv.get("/models/dtypes/view/tensor/i8?slice=0:1").status == 400
