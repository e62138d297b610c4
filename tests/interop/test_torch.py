"""The real PyTorch writes, tensord inspects and serves: names, types, shapes, strides and every byte must be those of
torch."""
import collections
import io
import json
import os
import pickle
import random
import zipfile
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.serialization import config

from harness import Server, age, enc, tensor, write_by_package
from test_pickle import dump
from test_safetensors import inspect_each, inspect_json, one_line, run

pytestmark = pytest.mark.filterwarnings("ignore")

# c10/core/ScalarType.h: what torch.save accepts, and the words of the manifest.
DTYPES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32", torch.int64: "I64",
    torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.complex64: "C64",
    torch.complex128: "C128"
}
# Saved through an untyped storage.
NEW_DTYPES = {
    torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64", torch.complex32: "C32", torch.float8_e4m3fn:
    "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float8_e8m0fnu: "F8_E8M0", torch.float4_e2m1fn_x2: "F4_E2M1_X2", torch.bits8: "BITS8", torch.bits16: "BITS16",
    torch.bits1x8: "BITS1x8", torch.bits2x4: "BITS2x4", torch.bits4x2: "BITS4x2"
}
QUANTIZED = {torch.qint8: "QINT8", torch.quint8: "QUINT8", torch.qint32: "QINT32"}
WORDS = DTYPES | NEW_DTYPES | QUANTIZED
WRITERS = [(zipped, protocol) for zipped in (True, False) for protocol in (1, 2, 3, 4, 5)]
WRITER_IDS = [f"{'zip' if zipped else 'legacy'}{protocol}" for zipped, protocol in WRITERS]


def save(value, path, zipped=True, protocol=2):
    torch.save(value, path, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol)


def raw(t):
    """Return all bytes, with the elements in logical order."""
    t = t.detach()
    if t.is_quantized:
        t = t.int_repr()
    return as_bytes(t)


def as_bytes(t):
    size = t.element_size()
    # copies by way of integers of the same size: some types have no operations of their own
    ints = t if size == 16 else t.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size])
    return ints.contiguous().numpy().tobytes()


def filled(dtype, shape, seed=1):
    """Return a tensor of any type whose bytes depend on their position."""
    count = int(np.prod(shape, dtype=np.int64))
    size = torch.empty(0, dtype=dtype).element_size()
    data = np.random.default_rng(seed).integers(0, 2 if dtype == torch.bool else 256, size=count * size, dtype=np.uint8)
    return torch.from_numpy(data).view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def shapes_of(dtype, seed):
    """Return name -> tensor, for all the ways in which a tensor can use a storage."""
    base = filled(dtype, (4, 6), seed)
    cube = filled(dtype, (2, 3, 4, 5), seed + 1)
    return {
        "plain": base, "scalar": filled(dtype, (), seed + 2), "empty": filled(dtype, (0, )), "empty.3d":
        filled(dtype, (2, 0, 3)), "transposed": base.t(), "row": base[2], "column": base[:, 3], "steps":
        base[::2, 1::2], "expanded": filled(dtype, (3, 1), seed + 3).expand(3, 5), "expanded.scalar":
        filled(dtype, (), seed + 4).expand(2, 2), "permuted": cube.permute(3, 1, 0, 2), "channels_last":
        channels_last(cube), "ones": filled(dtype, (1, 1, 1),
                                            seed + 5), "same": base, "last": filled(dtype, (9, ),
                                                                                    seed + 6)[8:], "nothing": base[4:]
    }


def channels_last(t):
    made = torch.empty_strided(t.shape, (t.shape[1] * t.shape[2] * t.shape[3], 1, t.shape[3] * t.shape[1], t.shape[1]),
                               dtype=t.dtype)
    size = t.element_size()
    if size == 16:
        return made.copy_(t)
    ints = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    made.view(ints).copy_(t.view(ints))
    return made


def contiguous_strides(shape):
    out, n = [], 1
    for d in reversed(shape):
        out.insert(0, n)
        n *= d
    return out


def check_entry(t, want):
    """Compare one tensor of a manifest with torch's; strides are missing when the elements are in order."""
    assert (t["dtype"], t["shape"], t["nbytes"]) == (WORDS[want.dtype], list(want.shape),
                                                     want.numel() * want.element_size()), t
    assert "reason" not in t, t
    if want.numel() > 0:
        strides = t.get("strides", contiguous_strides(want.shape))
        assert [s for s, d in zip(strides, want.shape)
                if d > 1] == [s for s, d in zip(want.stride(), want.shape) if d > 1], t
        assert "strides" in t or want.is_contiguous(), t


def tensors_of(server, id, **query):
    target = f"/models/{enc(id, '/')}/tensors" + "".join(f"?{k}={enc(v)}" for k, v in query.items())
    document = server.json(target)
    assert not document.get("next_page_token"), "more than one page"
    return document, {t["name"]: t for t in document["tensors"]}


def check_model(server, id, want, extra=()):
    """Check all tensors of the model by name, every byte over HTTP, and that inspect agrees."""
    document, got = tensors_of(server, id)
    assert set(got) == set(want) | set(extra), set(got) ^ (set(want) | set(extra))
    assert [t["name"] for t in inspect_json(server.root / id)["tensors"]] == [t["name"] for t in document["tensors"]]
    with server.conn() as c:
        for name, tensor_ in want.items():
            check_entry(got[name], tensor_)
            r = c.request(got[name]["href"])
            assert r.status == 200 and r.body == raw(tensor_), f"{id} {name}: {r}"
    return document, got


@pytest.fixture
def serve(tmp_path):
    """serve() starts a server over tmp_path/root, once everything is written."""
    began = []
    (tmp_path / "root").mkdir()

    def go(*args):
        age(tmp_path / "root")
        began.append(Server(tmp_path / "root", *args))
        return began[-1]
    go.root = tmp_path / "root"
    yield go
    for s in began:
        s.stop()


# ---------------------------------------------------------------------------- (a) dicts of tensors

@pytest.mark.parametrize("zipped, protocol", WRITERS, ids=WRITER_IDS)
def test_every_type_in_every_shape(serve, zipped, protocol):
    want = {}
    for i, dtype in enumerate(DTYPES | NEW_DTYPES):
        want |= {f"{dtype}.{name}": t for name, t in shapes_of(dtype, 10 * i).items()}
    save(want, serve.root / "m.pt", zipped, protocol)
    document, got = check_model(serve(), "m.pt", want)
    assert document["format"] == "pytorch"
    for dtype in DTYPES:
        assert got[f"{dtype}.same"]["alias_of"] == f"{dtype}.plain" or got[f"{dtype}.plain"][
            "alias_of"] == f"{dtype}.same"
        assert got[f"{dtype}.last"]["offset"] > 0


def test_legacy_files_of_untyped_storages_are_written_but_torch_cannot_read_them(tmp_path):
    """tensord reads them; the bytes are compared with those that were saved."""
    save({"x": filled(torch.float8_e5m2, (2,))}, tmp_path / "x.pt", zipped=False)
    with pytest.raises(AttributeError, match="UntypedStorage"):
        torch.load(tmp_path / "x.pt", weights_only=False)


def test_every_type_that_torch_has_is_here(tmp_path):
    others = {torch.quint4x2, torch.quint2x4}
    for name in dir(torch):
        dtype = getattr(torch, name)
        if isinstance(dtype, torch.dtype) and dtype not in WORDS and dtype not in others:
            with pytest.raises(Exception):
                save({"x": torch.empty(2, dtype=torch.uint8).view(dtype)}, tmp_path / "x.pt")


@pytest.mark.parametrize("zipped, protocol", WRITERS, ids=WRITER_IDS)
def test_quantized(serve, zipped, protocol):
    want, scales = {}, torch.tensor([0.1, 0.2, 0.5], dtype=torch.float64)
    for dtype in QUANTIZED:
        want[f"{dtype}"] = torch.quantize_per_tensor(torch.randn(3, 7), 0.05, 3, dtype)
        want[f"{dtype}.t"] = torch.quantize_per_tensor(torch.randn(3, 7), 0.05, 3, dtype).t()
        want[f"{dtype}.channels"] = torch.quantize_per_channel(torch.randn(5, 3), scales, torch.tensor([1, 2, 3]), 1,
                                                               dtype)
    packed = {
        f"packed.{d}": torch._empty_affine_quantized([4, 8], scale=1.0, zero_point=0, dtype=getattr(torch, d))
        for d in ("quint4x2", "quint2x4")
    }
    save(want | packed, serve.root / "m.pt", zipped, protocol)
    parts = {
        f"{d}.channels.q_per_channel_{p}": t for d in QUANTIZED
        for p, t in (("scales", scales), ("zero_points", torch.tensor([1, 2, 3])))
    }
    document, got = check_model(serve(), "m.pt", want | parts, packed)
    for d in QUANTIZED:
        assert document["metadata"][f"{d}.q_scale"] == 0.05 and document["metadata"][f"{d}.q_zero_point"] == 3
        assert document["metadata"][f"{d}.channels.q_per_channel_axis"] == 1
    for name in packed:
        assert "byte" in got[name]["reason"] and got[name]["shape"] == [4, 8]


def unserved():
    coo = torch.tensor([[0, 2.0], [3, 0]]).to_sparse()
    csr = torch.tensor([[0, 2.0], [3, 0]]).to_sparse_csr()
    return {
        "conj": (torch.randn(3, dtype=torch.complex64).conj(), "conjugated"), "neg":
        (torch._neg_view(torch.randn(3)), "negated"), "coo": (coo, "sparse"), "csr": (csr, "sparse"), "csc":
        (csr.to_dense().to_sparse_csc(), "sparse"), "nested":
        (torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(1, 3)]), "nested"), "meta":
        (torch.empty(4, 5, device="meta", dtype=torch.float16), "meta")
    }


@pytest.mark.parametrize("zipped, protocol", WRITERS, ids=WRITER_IDS)
def test_what_has_no_bytes_of_its_own_has_a_reason(serve, zipped, protocol):
    beside = filled(torch.float32, (3, 3))
    cases = unserved()
    for name, (value, _) in cases.items():
        save({name: value, "beside": beside}, serve.root / f"{name}.pt", zipped, protocol)
    server = serve()
    for name, (value, reason) in cases.items():
        document, got = tensors_of(server, f"{name}.pt")
        assert reason in got[name]["reason"], got[name]
        assert document["total_bytes"] == sum(t["nbytes"] for t in document["tensors"] if "reason" not in t), name
        r = server.get(got[name]["href"])
        assert r.status == 422 and reason in r.json()["error"]["message"], r
        assert server.get(got["beside"]["href"]).body == raw(beside), name
        if name in ("conj", "neg", "meta"):
            assert (got[name]["dtype"], got[name]["shape"]) == (WORDS[value.dtype], list(value.shape)), name
        assert got[name]["nbytes"] == (0 if name == "nested" else value.numel() * value.element_size()), name
        if name == "coo":
            assert server.get(got["coo.values"]["href"]).body == raw(value._values())
            assert server.get(got["coo.indices"]["href"]).body == raw(value._indices())
        if name == "csr":
            assert server.get(got["csr.crow_indices"]["href"]).body == raw(value.crow_indices())


def jagged(kind):
    """Return tensors of torch.nested with layout jagged: a batch of rows, one with holes (and so with lengths), one
    ragged in its last dimension, and a parameter."""
    rows = [filled(torch.float16, (n, 3), seed=n) for n in (2, 5, 1)]
    whole = torch.nested.nested_tensor(rows, layout=torch.jagged)
    return {
        "whole":
        whole, "transposed":
        whole.transpose(1, 2), "parameter":
        nn.Parameter(whole), "holes":
        torch.nested.narrow(filled(torch.float16, (3, 5, 4)), 1, torch.tensor([0, 1, 0]), torch.tensor([2, 3, 5]),
                            layout=torch.jagged)
    }[kind]


def check_jagged(serve, path, name):
    """Check that the tensor has a reason, and that the parts below its name are those of torch.load, with every
    byte."""
    loaded = torch.load(path, weights_only=False)[name]
    assert loaded.layout == torch.jagged and loaded.is_nested
    parts = {f"{name}.values": loaded._values, f"{name}.offsets": loaded.offsets()}
    if loaded.lengths() is not None:
        parts[f"{name}.lengths"] = loaded.lengths()
    server = serve()
    document, got = tensors_of(server, path.name)
    assert set(got) == {name, "beside"} | set(parts), sorted(got)
    assert (got[name]["dtype"], got[name]["shape"], got[name]["nbytes"], got[name]["addressable"]) == ("F16", [], 0,
                                                                                                       False)
    assert got[name]["reason"] == "nested (jagged)"
    r = server.get(got[name]["href"])
    assert r.status == 422 and "nested (jagged)" in r.json()["error"]["message"], r
    for part, want in parts.items():
        check_entry(got[part], want)
        assert server.get(got[part]["href"]).body == raw(want), part
    return document, loaded


@pytest.mark.parametrize("zipped, protocol", WRITERS, ids=WRITER_IDS)
@pytest.mark.parametrize("kind", ["whole", "transposed", "parameter", "holes"])
def test_a_jagged_tensor_and_its_parts(serve, zipped, protocol, kind):
    path = serve.root / "m.pt"
    save({"nj": jagged(kind), "beside": filled(torch.float32, (3, 3))}, path, zipped, protocol)
    document, loaded = check_jagged(serve, path, "nj")
    assert document["metadata"]["nj.ragged_idx"] == loaded._ragged_idx


def reduced_by(make):
    """Call save() with another __reduce_ex__ of jagged tensors."""
    return mock.patch.object(type(jagged("whole")), "__reduce_ex__", lambda self, protocol: make(self))


def state_of(t):
    return {k: v for k, v in torch._utils._get_obj_state(t).items() if k not in ("_size", "_strides")}


def test_a_jagged_tensor_of_torch_2_1(serve):
    """Written as by NestedTensor.__reduce_ex__ of torch 2.1 to 2.3, which calls the class with values and offsets."""
    path = serve.root / "m.pt"
    with reduced_by(lambda t: (torch._tensor._rebuild_from_type_v2, (type(t), type(t),
                                                                     (t._values, t._offsets), state_of(t)))):
        save({"nj": jagged("whole"), "beside": filled(torch.float32, (3, 3))}, path)
    check_jagged(serve, path, "nj")


def test_a_jagged_tensor_whose_state_has_other_parts_is_refused(tmp_path):
    """torch.load sets the state on the tensor, so the other parts would be its values. No writer makes such files."""
    other = filled(torch.float16, (8, 3), seed=9)
    with reduced_by(lambda t: (torch._tensor._rebuild_from_type_v2,
                               (type(t), type(t), (t._values, t._offsets), state_of(t) | {"_values": other}))):
        save({"nj": jagged("whole")}, tmp_path / "m.pt")
    assert torch.equal(torch.load(tmp_path / "m.pt", weights_only=False)["nj"]._values, other)
    assert "other parts than it was made of" in failure(tmp_path / "m.pt")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_bare_tensor_is_called_like_its_file(serve, zipped):
    t = filled(torch.float32, (3, 4))
    save(t, serve.root / "bare.pt", zipped)
    check_model(serve(), "bare.pt", {"bare": t})


@pytest.mark.parametrize("zipped, protocol", WRITERS, ids=WRITER_IDS)
def test_random_views_of_shared_storages(serve, zipped, protocol):
    rng = random.Random(protocol)
    bases = [filled(d, (240,), i) for i, d in enumerate([torch.float32, torch.bfloat16, torch.int8, torch.complex128])]
    want = {}
    for i in range(150):
        base = rng.choice(bases)
        shape, strides = [rng.randrange(0, 4) for _ in range(rng.randrange(4))], []
        strides = [rng.randrange(0, 12) for _ in shape]
        want[f"v{i}"] = torch.as_strided(base, shape, strides, rng.randrange(0, 100))
    save({"views": [*want.values()]}, serve.root / "m.pt", zipped, protocol)
    check_model(serve(), "m.pt", {f"views.{i}": t for i, t in enumerate(want.values())})


def test_archives_of_every_make(serve):
    """Streams, other alignments, no checksums, odd file names: the archive differs, the tensors do not."""
    want = {
        "a": filled(torch.bfloat16, (5, 3), 1), "b": filled(torch.float64, (2, ), 2), "none": torch.empty(0), "c":
        filled(torch.int8, (7, ), 3)
    }
    stream = io.BytesIO()
    save(want, stream)
    (serve.root / "stream.pt").write_bytes(stream.getvalue())
    config.save.storage_alignment = 4096
    save(want, serve.root / "page.pt")
    config.save.storage_alignment = 64
    torch.serialization.set_crc32_options(False)
    save(want, serve.root / "plain.pt")
    torch.serialization.set_crc32_options(True)
    names = ["stream.pt", "page.pt", "plain.pt", "a.b c-\u00e9.ckpt", "no.tensors.in.name.pth"]
    for name in names[3:]:
        save(want, serve.root / name)
    server = serve()
    for name in names:
        check_model(server, name, want)
    assert all(t["offset"] % 4096 == 0 for t in tensors_of(server, "page.pt")[1].values() if t["nbytes"])


def test_a_legacy_file_with_long_pickles(tmp_path):
    """Their length is written nowhere, so tensord reads more and more."""
    want = {f"model.layers.{i}.weight": filled(torch.int16, (3, 2), i) for i in range(4000)}
    path = tmp_path / "x.pt"
    save(want, path, zipped=False)
    data = path.read_bytes()
    assert data.index(b"cpu") < 64 * 1024 < data.rindex(b"model.layers.")
    got = {t["name"]: t for t in inspect_json(path)["tensors"]}
    assert set(got) == set(want)
    for name, t in want.items():
        check_entry(got[name], t)
        assert data[got[name]["offset"]:got[name]["offset"] + got[name]["nbytes"]] == raw(t)


# ---------------------------------------------------------------------------- (b) whole modules

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight


class Mixed(nn.Module):
    """Everything that a module can have, and attributes that state_dict() ignores."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.LayerNorm(3)) for _ in range(3)])
        self.by_name = nn.ModuleDict({"a": nn.Conv1d(2, 3, 2), "b": Tied()})
        self.list = nn.ParameterList([torch.randn(2), torch.randn(3)])
        self.dict = nn.ParameterDict({"x": nn.Parameter(torch.randn(2, 2)), "y": nn.Parameter(torch.randn(1))})
        self.register_buffer("kept", torch.arange(4))
        self.register_buffer("unsaved", torch.arange(5), persistent=False)
        self.register_buffer("no_buffer", None)
        self.register_parameter("no_parameter", None)
        self.attribute = torch.randn(3)
        self.attributes = {"t": torch.randn(2), "n": 3}
        self.again = self.layers[0]
        self.frozen = nn.Parameter(torch.randn(2), requires_grad=False)
        self.tagged = nn.Parameter(torch.randn(2))
        self.tagged.tag = "state of a parameter"


class BertLike(nn.Module):
    """A module with the names of transformers' BertModel."""

    def __init__(self, width=8, layers=2):
        super().__init__()
        self.embeddings = nn.Module()
        self.embeddings.word_embeddings = nn.Embedding(30, width, padding_idx=0)
        self.embeddings.position_embeddings = nn.Embedding(16, width)
        self.embeddings.token_type_embeddings = nn.Embedding(2, width)
        self.embeddings.LayerNorm = nn.LayerNorm(width, eps=1e-12)
        self.embeddings.register_buffer("position_ids", torch.arange(16).expand((1, -1)))
        self.embeddings.register_buffer("token_type_ids", torch.zeros(1, 16, dtype=torch.long), persistent=False)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList([self.one_layer(width) for _ in range(layers)])
        self.pooler = nn.Module()
        self.pooler.dense = nn.Linear(width, width)
        self.pooler.activation = nn.Tanh()

    @staticmethod
    def one_layer(width):
        layer = nn.Module()
        layer.attention = nn.Module()
        setattr(layer.attention, "self", nn.Module())
        for name in ("query", "key", "value"):
            setattr(getattr(layer.attention, "self"), name, nn.Linear(width, width))
        layer.attention.output = nn.Module()
        layer.attention.output.dense, layer.attention.output.LayerNorm = nn.Linear(width, width), nn.LayerNorm(width)
        layer.intermediate = nn.Module()
        layer.intermediate.dense, layer.intermediate.act = nn.Linear(width, 2 * width), nn.GELU()
        layer.output = nn.Module()
        layer.output.dense, layer.output.LayerNorm, layer.output.dropout = nn.Linear(
            2 * width, width), nn.LayerNorm(width), nn.Dropout(0.1)
        return layer


MODULES = {
    "linear": lambda: nn.Linear(3, 2), "no bias": lambda: nn.Linear(3, 2, bias=False), "embedding":
    lambda: nn.Embedding(5, 3), "layer norm": lambda: nn.LayerNorm(4), "plain norm":
    lambda: nn.LayerNorm(4, elementwise_affine=False), "batch norm": lambda: nn.BatchNorm1d(3), "no statistics":
    lambda: nn.BatchNorm1d(3, track_running_stats=False), "lstm": lambda: nn.LSTM(3, 4, 2, bidirectional=True),
    "attention": lambda: nn.MultiheadAttention(4, 2), "transformer":
    lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2), "relu": lambda: nn.ReLU(), "tied": Tied,
    "mixed": Mixed, "bert": BertLike, "half": lambda: Mixed().to(torch.bfloat16), "channels last":
    lambda: nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last), "sequential":
    lambda: nn.Sequential(nn.Linear(2, 2), nn.Identity())
}


@pytest.mark.parametrize("zipped, protocol", [(True, 2), (True, 4), (False, 2), (False, 5)],
                         ids=["zip2", "zip4", "legacy2", "legacy5"])
def test_a_module_is_its_state_dict(serve, zipped, protocol):
    torch.manual_seed(3)
    modules = {name: make() for name, make in MODULES.items()}
    for name, module in modules.items():
        save(module, serve.root / f"{name}.pt", zipped, protocol)
    server = serve()
    for name, module in modules.items():
        _, got = check_model(server, f"{name}.pt", dict(module.state_dict()))
        if name == "tied":
            assert [t["alias_of"] for t in got.values() if "alias_of" in t] == ["embed.weight"], got


@pytest.mark.parametrize("zipped", [True, False])
def test_modules_within_a_checkpoint(serve, zipped):
    value = {"net": Mixed(), "ema": nn.Linear(2, 2), "args": {"lr": 0.1, "layers": [1, 2]}}
    save(value, serve.root / "m.ckpt", zipped)
    want = {f"net.{k}": v for k, v in value["net"].state_dict().items()
            } | {f"ema.{k}": v for k, v in value["ema"].state_dict().items()}
    document, _ = check_model(serve(), "m.ckpt", want)
    assert document["metadata"]["args.lr"] == 0.1 and document["metadata"]["args.layers"] == [1, 2]


# ---------------------------------------------------------------------------- (c) TorchScript

class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.tied = nn.Linear(3, 4)
        self.tied.weight = self.inner[0].weight
        self.register_buffer("mask", torch.arange(6).reshape(2, 3).t())

    def forward(self, x):
        return self.inner(x) + self.tied(x) + torch.sum(self.mask)


@pytest.mark.parametrize("how", ["script", "trace", "frozen"])
def test_torchscript(serve, how):
    module = Scripted().eval()
    script = torch.jit.script(module) if how == "script" else torch.jit.trace(module, torch.randn(2, 3))
    if how == "frozen":
        script = torch.jit.freeze(torch.jit.script(module))
    script.save(str(serve.root / "m.pt"))
    again = torch.jit.load(str(serve.root / "m.pt"))
    server = serve()
    _, got = tensors_of(server, "m.pt")
    want = dict(again.state_dict())
    assert set(want) <= set(got), set(want) - set(got)
    for name, t in want.items():
        check_entry(got[name], t)
        assert server.get(got[name]["href"]).body == raw(t), name
    others = {n: t for n, t in got.items() if n not in want}
    assert all(n.startswith("constants.") for n in others), others
    held = [t for t in constants(serve.root / "m.pt")]
    assert len(others) == len(held)
    assert sorted(server.get(t["href"]).body for t in others.values()) == sorted(held)
    if how == "frozen":
        assert others


class Holder(nn.Module):
    def __init__(self, buffers):
        super().__init__()
        for name, t in buffers.items():
            self.register_buffer(name, t)

    def forward(self, x):
        return x


def test_torchscript_of_every_type(serve):
    """TorchScript's pickler has a storage class for every type, for newer types too."""
    buffers = {word: filled(dtype, (3, 5), i) for i, (dtype, word) in enumerate((DTYPES | NEW_DTYPES).items())}
    torch.jit.script(Holder(buffers)).save(str(serve.root / "m.pt"))
    again = torch.jit.load(str(serve.root / "m.pt")).state_dict()
    assert {n: t.dtype for n, t in again.items()} == {n: t.dtype for n, t in buffers.items()}
    check_model(serve(), "m.pt", dict(again))


@pytest.mark.parametrize("name", ["coo", "csr", "conj", "neg"]) # torch.jit.save cannot write several sparse tensors
def test_torchscript_of_what_has_no_bytes_of_its_own(tmp_path, name):
    """TorchScript writes other arguments than torch.save: the number of a layout, and types of dicts around them."""
    dense, complex_ = torch.tensor([[0., 1.5], [2.5, 0.]]), filled(torch.complex64, (3,))
    buffer, reason = {
        "coo": (dense.to_sparse(), "sparse"), "csr": (dense.to_sparse_csr(), "sparse"), "conj":
        (complex_.conj(), "conjugated"), "neg": (complex_.conj().imag, "negated")
    }[name]
    torch.jit.script(Holder({"t": buffer})).save(str(tmp_path / "m.pt"))
    again = torch.jit.load(str(tmp_path / "m.pt")).state_dict()["t"]
    assert (again.layout, again.is_conj(), again.is_neg()) == (buffer.layout, buffer.is_conj(), buffer.is_neg())
    got = {t["name"]: t for t in inspect_json(tmp_path / "m.pt")["tensors"]}
    t = got.pop("t")
    assert (t["dtype"], t["shape"], t["reason"]) == (WORDS[again.dtype], list(again.shape), reason)
    parts = {}
    if name == "coo":
        parts = {"t.indices": again._indices(), "t.values": again._values()}
    if name == "csr":
        parts = {
            "t.crow_indices": again.crow_indices(), "t.col_indices": again.col_indices(), "t.values": again.values()
        }
    assert set(got) == set(parts)
    for part, want in parts.items():
        check_entry(got[part], want)


def constants(path):
    """Return the bytes of the tensors among a script's constants."""
    reader = torch._C.PyTorchFileReader(str(path))
    return [reader.get_record(r) for r in reader.get_all_records() if r.startswith("constants/")]


# ---------------------------------------------------------------------------- (d) training checkpoints

@pytest.mark.parametrize("zipped, protocol", WRITERS, ids=WRITER_IDS)
def test_a_training_checkpoint(serve, zipped, protocol):
    module = Mixed()
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=0.01)
    sum(p.sum() for p in module.parameters()).backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    value = {
        "model": module.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "epoch":
        1, "name": "r\u00fcn", "best": float("inf"), "rng": torch.get_rng_state(), "loss": np.float64(0.5), "args":
        collections.namedtuple, "done": False, "none": None
    }
    save(value, serve.root / "last.ckpt", zipped, protocol)
    want = {f"model.{k}": t for k, t in value["model"].items()} | {"rng": value["rng"]}
    for i, state in value["optimizer"]["state"].items():
        want |= {f"optimizer.state.{i}.{k}": t for k, t in state.items()}
    assert "optimizer.state.0.exp_avg" in want
    document, _ = check_model(serve(), "last.ckpt", want)
    meta = document["metadata"]
    assert meta["epoch"] == 1 and meta["name"] == "r\u00fcn" and meta["done"] is False and meta[
        "none"] is None and meta["loss"] == 0.5
    assert meta["optimizer.param_groups.0.lr"] == value["optimizer"]["param_groups"][0]["lr"]
    assert meta["optimizer.param_groups.0.params"] == value["optimizer"]["param_groups"][0]["params"]
    assert meta["best"] == "Infinity"


@pytest.mark.parametrize("zipped, protocol", WRITERS, ids=WRITER_IDS)
def test_scalars_of_numpy_are_metadata(tmp_path, zipped, protocol):
    rng = random.Random(protocol)
    value = {
        f"{t.__name__}.{i}": t(v) for t in (np.int8, np.int16, np.int32, np.int64)
        for i, v in enumerate([-128, -1, 0, 100])
    }
    value |= {
        f"{t.__name__}.{i}": t(v) for t in (np.uint8, np.uint16, np.uint32, np.uint64)
        for i, v in enumerate([0, 128, 255])
    }
    value |= {f"float64.{i}": np.float64(rng.gauss(0, 1e9))
              for i in range(20)} | {f"float32.{i}": np.float32(rng.gauss(0, 1)) for i in range(20)}
    value |= {"uint64.max": np.uint64(2**64 - 1), "bool": np.bool_(True), "not": np.bool_(False)}
    save(value, tmp_path / "x.pt", zipped, protocol)
    want = {k: float(str(v)) if v.dtype == np.float32 else v.item()
            for k, v in value.items()}  # the shortest that reads back
    assert inspect_json(tmp_path / "x.pt")["metadata"] == want


@pytest.mark.parametrize("zipped, protocol", WRITERS, ids=WRITER_IDS)
def test_values_without_a_word_in_json(tmp_path, zipped, protocol):
    value = {
        "text": b"plain", "bytes": b"a\xff\x00", "no bytes": b"", "array": bytearray(b"xy\xe9"), "set": {2, 1},
        "frozen": frozenset("x"), "no set": set(), "size": torch.Size([2, 3]), "cpu": torch.device("cpu"), "cuda":
        torch.device("cuda", 1), "type": torch.float8_e5m2, "big": 2**70, "negative": -2**64, "inf": float("inf"),
        "list": [float("-inf"), b"b", 0.1, 2**64]
    }
    save(value, tmp_path / "x.pt", zipped, protocol)
    assert inspect_json(tmp_path / "x.pt")["metadata"] == {
        "text": "plain", "bytes": "a\\xff\\x00", "no bytes": "", "array": "xy\\xe9", "set": [1, 2], "frozen": ["x"],
        "size": [2, 3], "cpu": "cpu", "cuda": "cuda:1", "type": "torch.float8_e5m2", "big": 2**70, "negative": -2**64,
        "inf": "Infinity", "list": ["-Infinity", "b", 0.1, 2**64]}


class Slotted:
    __slots__ = ("weight", "count")


class Converted:
    """Written as tensors of devices without storages: on the CPU, with the type that they get when they are loaded."""
    def __init__(self, t, dtype):
        self.t, self.dtype = t, dtype

    def __reduce__(self):
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, (self.t, self.dtype, "cpu", False)


def test_attributes_wherever_they_are(serve):
    slotted, module = Slotted(), nn.Linear(3, 2)
    slotted.weight, slotted.count = filled(torch.float32, (2, 3)), 5
    module.weight.mask = filled(torch.bool, (2, 3)) # no part of its state_dict()
    save({"object": slotted, "module": module}, serve.root / "m.pt")
    want = {"object.weight": slotted.weight} | {f"module.{n}": t for n, t in module.state_dict().items()}
    document, _ = check_model(serve(), "m.pt", want)
    assert document["metadata"]["object.count"] == 5


def test_what_is_converted_when_it_is_loaded(tmp_path):
    t = filled(torch.float32, (4,))
    save({"same": Converted(t, torch.float32), "other": Converted(t, torch.bfloat16)}, tmp_path / "m.pt")
    again = torch.load(tmp_path / "m.pt", weights_only=False)
    assert again["other"].dtype == torch.bfloat16
    got = {t["name"]: t for t in inspect_json(tmp_path / "m.pt")["tensors"]}
    check_entry(got["same"], again["same"])
    assert got["other"]["reason"] == "converted when it is loaded"


def test_odd_keys_and_clashing_names(serve):
    t = [filled(torch.uint8, (i + 3,), i) for i in range(8)]
    save(
        {
            "a": {"b": t[0]}, "a.b": t[1], 5: t[2], "": t[3],
            ("tuple", 1): t[4], "\u540d\u524d \U0001f600/..": t[5], "line\nbreak": t[6], None: [t[7]]
        }, serve.root / "m.pt")
    server = serve()
    _, got = tensors_of(server, "m.pt")
    assert sorted(server.get(g["href"]).body for g in got.values()) == sorted(raw(x) for x in t) and len(got) == 8
    assert set(got) == {"a.b", "a.b#2", "5", "", "('tuple', 1)", "\u540d\u524d \U0001f600/..", "line\nbreak",
                        "None.0"}, sorted(got)


def scalar_keys():
    rng = random.Random(5)
    keys = [
        None, True, False, -1, 2**62, 1.5, -0.0, 1e16, 1e-5, 0.1 + 0.2, 5e-324,
        float("inf"),
        float("nan"), (), (0, ), (0, 1), ("a", "\u00e4 b", ""), (1.5, None, True, -7)
    ]
    return keys + [rng.gauss(0, 1) * 10.0 ** rng.randrange(-300, 300) for _ in range(200)]


@pytest.mark.parametrize("zipped, protocol", WRITERS, ids=WRITER_IDS)
def test_keys_that_are_no_strings(tmp_path, zipped, protocol):
    value = {k: torch.tensor([i]) for i, k in enumerate(scalar_keys())}
    save({"d": value, "m": dict.fromkeys(value, 1)}, tmp_path / "m.pt", zipped, protocol)
    document = inspect_json(tmp_path / "m.pt")
    assert {t["name"] for t in document["tensors"]} == {f"d.{k}" for k in value}
    assert set(document["metadata"]) == {f"m.{k}" for k in value}


def test_other_keys_are_positions(tmp_path):
    keys = [2**70, ((0, 1), 2), ("it's",), frozenset({1}), torch.float32]
    save({"d": {k: torch.tensor([i]) for i, k in enumerate(keys)}}, tmp_path / "m.pt")
    assert [t["name"] for t in inspect_json(tmp_path / "m.pt")["tensors"]] == [f"d.{i}" for i in range(len(keys))]


def test_keys_that_look_alike_are_all_there(serve):
    t = [filled(torch.uint8, (i + 3,), i) for i in range(8)]
    keys = [True, "True", 1.5, "1.5", None, "None", (0, 1), "(0, 1)"]
    save({**dict(zip(keys, t)), "m": {k: i for i, k in enumerate(keys)}}, serve.root / "m.pt")
    want = {f"{k}" if i % 2 == 0 else f"{k}#2": t[i] for i, k in enumerate(keys)}
    document, _ = check_model(serve(), "m.pt", want)
    assert document["metadata"] == {f"m.{k}" if i % 2 == 0 else f"m.{k}#2": i for i, k in enumerate(keys)}


def test_names_that_look_like_numbered_ones_are_kept(serve):
    names = ["a.b" + "#2" * i for i in range(12)]
    t = [filled(torch.uint8, (i + 3,), i) for i in range(13)]
    save({"a": {"b": t[12]}, **dict(zip(names, t))}, serve.root / "m.pt")
    check_model(serve(), "m.pt", {"a.b": t[12], "a.b#3": t[0]} | dict(zip(names[1:], t[1:])))


# ---------------------------------------------------------------------------- (e) a Llama

def llama():
    """Returns a small consolidated.00.pth with the 291 tensors of a Llama of 7 billion parameters."""
    names = ["tok_embeddings.weight", "norm.weight", "output.weight"]
    for i in range(32):
        names += [
            f"layers.{i}.{n}.weight"
            for n in ("attention.wq", "attention.wk", "attention.wv", "attention.wo", "feed_forward.w1",
                      "feed_forward.w2", "feed_forward.w3", "attention_norm", "ffn_norm")
        ]
    # Ranks and sizes are few, as in a Llama; the memo does not depend on how many different numbers there are.
    return {n: filled(torch.bfloat16, (8,) if "norm" in n else (16, 8), i) for i, n in enumerate(names)}


def test_a_llama(serve):
    want = llama()
    (serve.root / "llama").mkdir()
    path = serve.root / "llama/consolidated.00.pth"
    save(want, path)
    server = serve()
    document, got = tensors_of(server, "llama")
    assert len(got) == document["tensor_count"] == 291 and set(got) == set(want)
    data = path.read_bytes()
    reader = torch._C.PyTorchFileReader(str(path))
    assert reader.get_record_offset("data/0") % 64 == 0
    with server.conn() as c:
        for i, (name, t) in enumerate(want.items()):
            check_entry(got[name], t)
            assert got[name]["offset"] == reader.get_record_offset(
                f"data/{i}") and got[name]["offset"] % 64 == 0, got[name]
            assert c.request(
                got[name]["href"]).body == data[got[name]["offset"]:got[name]["offset"] + got[name]["nbytes"]] == raw(t)
    with zipfile.ZipFile(path) as z:
        [pickled] = [z.read(n) for n in z.namelist() if n.endswith("/data.pkl")]
    [mine] = dump([pickled])
    assert mine["memo"] == 2334


# ---------------------------------------------------------------------------- (f) shards

def write_shards(folder, want, count):
    folder.mkdir(parents=True)
    weight_map, names = {}, [*want]
    for k in range(count):
        file = f"pytorch_model-{k + 1:05d}-of-{count:05d}.bin"
        part = {n: want[n] for n in names[k::count]}
        save(part, folder / file)
        weight_map |= {n: file for n in part}
    total = sum(t.numel() * t.element_size() for t in want.values())
    (folder / "pytorch_model.bin.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))


def test_shards_are_one_checkpoint(serve):
    want = {f"h.{i}.w": filled(torch.float16, (i + 1, 5), i) for i in range(20)}
    write_shards(serve.root / "m", want, 3)
    server = serve()
    assert [c["id"] for c in server.json("/models/m")["checkpoints"]
            ] == ["pytorch"] and server.json("/models/m")["errors"] == []
    document, got = tensors_of(server, "m")
    assert document["checkpoint"] == document["format"] == "pytorch" and set(got) == set(want)
    for name, t in want.items():
        check_entry(got[name], t)
        assert server.get(got[name]["href"]).body == raw(t)
        assert got[name]["file"] == json.loads(
            (serve.root / "m/pytorch_model.bin.index.json").read_text())["weight_map"][name]


def test_a_missing_shard_is_reported(serve):
    write_shards(serve.root / "m", {f"w{i}": filled(torch.float32, (3,), i) for i in range(6)}, 3)
    (serve.root / "m/pytorch_model-00002-of-00003.bin").unlink()
    document = serve().json("/models/m")
    assert document["checkpoints"] == []
    assert any("pytorch_model-00002-of-00003.bin" in e["message"] + e["file"] for e in document["errors"]), document


def test_safetensors_come_first(serve):
    want = {"w": filled(torch.float32, (3, 3))}
    (serve.root / "both").mkdir()
    (serve.root / "one").mkdir()
    save(want, serve.root / "both/pytorch_model.bin")
    save(want, serve.root / "one/pytorch_model.bin")
    save({"lr": 0.1}, serve.root / "one/training_args.bin")
    write_by_package(serve.root / "both/model.safetensors", [tensor("w", "F32", [2, 2])])
    server = serve()
    assert [c["id"] for c in server.json("/models/both")["checkpoints"]] == ["safetensors", "pytorch"]
    assert tensors_of(server, "both")[0]["checkpoint"] == "safetensors"
    assert tensors_of(server, "both", checkpoint="pytorch")[1]["w"]["shape"] == [3, 3]
    assert server.get("/models/both/tensors/w?checkpoint=pytorch").body == raw(want["w"])
    document, got = tensors_of(server, "one")
    assert document["checkpoint"] == "pytorch" and [*got] == ["w"] and server.json("/models/one")["errors"] == []


def test_a_bin_is_torchs_by_more_than_its_first_byte(serve):
    """Every file of torch.save is read. A file that only begins like a pickle, or that torch.load refuses, is a plain
    file."""
    want = {"w": filled(torch.float32, (3, 3))}
    for zipped, protocol in WRITERS:
        (serve.root / f"m{protocol}{zipped}").mkdir()
        save(want, serve.root / f"m{protocol}{zipped}/weights.bin", zipped, protocol)
    (serve.root / "plain").mkdir()
    save(want, serve.root / "plain/pytorch_model.bin")
    (serve.root / "plain/random.bin").write_bytes(b"\x80" + bytes(range(200)))
    (serve.root / "plain/pickle.bin").write_bytes(pickle.dumps({"a": 1}, 2))
    with pytest.raises(RuntimeError, match="Invalid magic number"):
        torch.load(serve.root / "plain/pickle.bin", weights_only=False)
    server = serve()
    for model in ["plain"] + [f"m{protocol}{zipped}" for zipped, protocol in WRITERS]:
        assert [*tensors_of(server, model)[1]] == ["w"]
        assert server.get(f"/models/{model}/tensors/w").body == raw(want["w"])
    model = server.json("/models/plain")
    assert model["errors"] == [] and {f["path"]
                                      for f in model["files"]} == {"pytorch_model.bin", "random.bin", "pickle.bin"}


# ---------------------------------------------------------------------------- (g) nothing is run

class Attack:
    def __init__(self, callable_, *args):
        self.parts = callable_, args

    def __reduce__(self):
        return self.parts


def attacks(trace):
    text = f"open({str(trace)!r}, 'w').write('x')"
    return {"os.system": Attack(os.system, f"touch {trace}"), "exec": Attack(exec, text), "eval": Attack(eval, text),
            "open": Attack(open, str(trace), "w"), "os.mkdir": Attack(os.mkdir, str(trace))}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", [*attacks(Path("x"))])
# shows: security.md content-pickle-calls
def test_nothing_is_run(serve, tmp_path, name, zipped):
    trace = tmp_path / "trace"
    want = filled(torch.float32, (4, 4))
    save({"w": want, "evil": attacks(trace)[name]}, serve.root / "m.pt", zipped)
    server = serve()
    _, got = tensors_of(server, "m.pt")
    assert [*got] == ["w"] and server.get(got["w"]["href"]).body == raw(want)
    assert [t["name"] for t in inspect_json(serve.root / "m.pt")["tensors"]] == ["w"]
    assert not trace.exists()
    torch.load(serve.root / "m.pt", weights_only=False)  # the attack was a real one
    assert trace.exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_objects_without_tensors_are_no_error(serve, zipped):
    import argparse
    (serve.root / "m").mkdir()
    save(argparse.Namespace(lr=0.1, output_dir="x", device=torch.device("cpu"), dtype=torch.float16),
         serve.root / "m/training_args.bin", zipped)
    save({"n": 3}, serve.root / "m/pytorch_model.bin", zipped)
    save([], serve.root / "m/nothing.pt", zipped)
    server = serve()
    assert server.json("/models/m")["errors"] == []
    assert inspect_json(serve.root / "m/training_args.bin")["tensors"] == []
    assert inspect_json(serve.root / "m/nothing.pt")["tensors"] == []


# ---------------------------------------------------------------------------- (h) a torch archive in HDF5

def as_hdf5(archive, path, **options):
    """Write every record as a dataset of bytes. The root becomes `archive`, its name when torch writes to a stream."""
    with zipfile.ZipFile(archive) as z, h5py.File(path, "w", **options) as h:
        offsets = []
        for info in z.infolist():
            name = "archive/" + info.filename.split("/", 1)[1]
            made = h.create_dataset(name, data=np.frombuffer(z.read(info), np.uint8))
            offsets.append((name, made.id.get_offset()))
        h.create_dataset("offsets_table", data=np.frombuffer(json.dumps(offsets).encode(), np.uint8))


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_module_in_hdf5(serve, tmp_path, libver):
    torch.manual_seed(5)
    module = BertLike()
    save(module, tmp_path / "bert.pt")
    (serve.root / "bert").mkdir()
    path = serve.root / "bert/model.h5"
    as_hdf5(tmp_path / "bert.pt", path, libver=libver)
    server = serve()
    document, got = tensors_of(server, "bert")
    want = module.state_dict()
    assert set(got) == set(want), set(got) ^ set(want)
    data = path.read_bytes()
    with h5py.File(path) as h:
        places = {h[f"archive/data/{k}"].id.get_offset() for k in h["archive/data"]}
    for name, t in want.items():
        check_entry(got[name], t)
        r = server.get(got[name]["href"])
        assert r.status == 200 and r.body == raw(t), name
        assert got[name]["offset"] in places, "within the dataset, where HDF5 put it"
        if t.is_contiguous():
            assert data[got[name]["offset"]:got[name]["offset"] + got[name]["nbytes"]] == raw(t)
    assert "embeddings.token_type_ids" not in got and "embeddings.position_ids" in got


def bytes_of(state, zipped):
    out = io.BytesIO()
    torch.save(state, out, _use_new_zipfile_serialization=zipped)
    return out.getvalue()


@pytest.mark.parametrize("behind", [b"\n", bytes(512), b"PK\5\6", b"zip", b"legacy", b"half", b"thrice"])
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_what_follows_a_save_is_ignored(serve, zipped, behind):
    """torch.load reads the first save of a file, and does not look at what follows."""
    first, second = ({"w": filled(torch.float32, (7, 5), seed), "v": filled(torch.int64, (3, ), seed)}
                     for seed in (1, 2))
    more = {
        b"zip": bytes_of(second, True), b"legacy": bytes_of(second, False), b"half": bytes_of(second, False)[:99],
        b"thrice": 2 * bytes_of(second, zipped)
    }.get(behind, behind)
    (serve.root / "m").mkdir()
    path = serve.root / "m" / "x.pt"
    path.write_bytes(bytes_of(first, zipped) + more)
    want = torch.load(path)
    assert all(torch.equal(want[name], first[name]) for name in first)
    server = serve()
    got = {t["name"]: t for t in server.json("/models/m/tensors")["tensors"]}
    assert set(got) == set(want)
    for name in want:
        assert server.get(got[name]["href"]).body == raw(want[name]), name


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("where", ["in front", "another archive in front"])
def test_what_precedes_a_save_is_refused(tmp_path, zipped, where):
    """By torch.load, too: a file is known by its first bytes, and an archive by its places."""
    data = bytes_of({"w": torch.arange(4)}, zipped)
    data = b"x" + data if where == "in front" else bytes_of({"w": torch.arange(400), "v": torch.arange(9)}, True) + data
    path = tmp_path / "x.pt"
    path.write_bytes(data)
    if where != "in front" and not zipped: # the archive is the first save
        assert set(torch.load(path)) == {t["name"] for t in inspect_json(path)["tensors"]}
        return
    with pytest.raises((pickle.UnpicklingError, RuntimeError)):
        torch.load(path)
    failure(path)


# ---------------------------------------------------------------------------- (i) what is wrong is said

def failure(path):
    code, out, err = run("inspect", path, "--json")
    assert code == 1 and one_line(err), (code, out, err)
    return err


@pytest.mark.parametrize("zipped", [True, False])
def test_a_truncated_file(tmp_path, zipped):
    save({f"w{i}": filled(torch.float32, (30,), i) for i in range(3)}, tmp_path / "x.pt", zipped)
    data = (tmp_path / "x.pt").read_bytes()
    for left in [0, 1, 3, 10, 40, len(data) // 3, len(data) // 2, len(data) - 30, len(data) - 1]:
        (tmp_path / "x.pt").write_bytes(data[:left])
        failure(tmp_path / "x.pt")


def rezip(data, changes):
    """Write the archive again by zipfile, with some records changed; alignment and compression do not matter here."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as z, zipfile.ZipFile(out, "w") as made:
        for info in z.infolist():
            name = info.filename.split("/", 1)[1]
            content = changes.get(name, z.read(info))
            if content is not None:
                made.writestr(f"x/{name}", content)
    return out.getvalue()


def test_a_damaged_pickle_says_where(tmp_path):
    path = tmp_path / "x.pt"
    save({"weight": filled(torch.float32, (30,))}, path)
    data = path.read_bytes()
    with zipfile.ZipFile(path) as z:
        pickled = z.read("x/data.pkl")
    for changed, words in [(pickled[:-1], "STOP"), (pickled[:2] + b"\xff" + pickled[3:], "0xff"),
                           (pickled + b"x", "follow STOP"), (b"", ""),
                           (pickled.replace(b"X\x07\x00\x00\x00storage",
                                            b"X\x07\x00\x00\x00storaga"), "persistent id")]:
        path.write_bytes(rezip(data, {"data.pkl": changed}))
        err = failure(path)
        assert words.lower() in err.lower(), err
        digits = [int(w) for w in "".join(c if c.isdigit() else " " for c in err.replace(str(path), "")).split()]
        with zipfile.ZipFile(path) as z:
            begin = z.getinfo("x/data.pkl").header_offset + 30 + len("x/data.pkl")
        assert any(begin <= d <= begin + len(changed)
                   for d in digits), f"no position within data.pkl, {begin}-{begin + len(changed)}: {err}"


def test_missing_and_wrong_records(tmp_path):
    path = tmp_path / "x.pt"
    save({"weight": filled(torch.float32, (30,))}, path)
    data = path.read_bytes()
    for changes, words in [({"data/0": None}, "data/0"), ({"data/0": b"\0" * 119}, "data/0"),
                           ({"data/0": b"\0" * 124}, "data/0"), ({"data.pkl": None}, "data.pkl"),
                           ({"byteorder": b"middle"}, "byteorder"), ({"version": b"abc"}, "version")]:
        path.write_bytes(rezip(data, changes))
        assert words in failure(path)
    path.write_bytes(rezip(data, {}))
    assert inspect_json(path)["tensors"][0]["shape"] == [30], "the archive is in order when nothing is changed"
    path.write_bytes(rezip(data, {"byteorder": b"big"}))
    assert inspect_json(path)["tensors"][0]["stored"] == "big-endian"


def test_damage_anywhere_never_crashes(tmp_path):
    """One byte is changed: the file is refused in one line, or served."""
    rng = random.Random(11)
    for zipped in (True, False):
        path = tmp_path / "x.pt"
        save({"a": filled(torch.float32, (3,)), "n": [1, "x"], "m": nn.Linear(1, 1)}, path, zipped)
        data = path.read_bytes()
        inputs = [bytearray(data) for _ in range(60)]
        for changed in inputs:
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        inspect_each(tmp_path / f"zipped-{zipped}", "x.pt", inputs)
