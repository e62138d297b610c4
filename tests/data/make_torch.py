#!/usr/bin/env python3
"""Writes tests/data/torch/: small checkpoints by the real torch.save, and beside each NAME.pt a NAME.txt that says what
torch.load makes of it. The C tests compare tensord's manifest with that, and need no Python.

A line of NAME.txt: name, type, shape, strides in elements ("-" for row-major), FNV-1a of the bytes in logical order
(64 bits, hex), separated by tabs; "!reason" instead of the hash where tensord serves no bytes, "?" where the type or the
shape is nobody's to say. Lines are sorted by name. "=" lines are metadata: key, JSON value.

    PYTHONHASHSEED=0 .venv/bin/python tests/data/make_torch.py

Files of the legacy form hold addresses as keys, which are replaced by numbers of the same length; the order of their
storages is that of the addresses and changes from run to run: torch has no way to choose the keys. Everything else is the
same in every run (with PYTHONHASHSEED, since jit.save writes a class's constants as a set has them).
"""
import io
import json
import math
import re
import sys
import types
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import nn

OUT = Path(__file__).resolve().parent / "torch"
DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.uint16: "U16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.uint32: "U32",
    torch.float32: "F32",
    torch.complex64: "C64",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.uint64: "U64",
    torch.complex32: "C32",
    torch.complex128: "C128",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e8m0fnu: "F8_E8M0",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float4_e2m1fn_x2: "F4_E2M1_X2",
    torch.bits8: "BITS8",
    torch.bits16: "BITS16",
    torch.bits1x8: "BITS1x8",
    torch.bits2x4: "BITS2x4",
    torch.bits4x2: "BITS4x2",
    torch.qint8: "QINT8",
    torch.quint8: "QUINT8",
    torch.qint32: "QINT32",
    torch.quint4x2: "QUINT4x2",
    torch.quint2x4: "QUINT2x4",
}
PLAIN = [d for d in DTYPES if not str(d).startswith(("torch.q", "torch.bool"))]


def filled(dtype, *shape, seed=0):
    """A tensor whose bytes depend on their position and the seed."""
    count = int(np.prod(shape, dtype=np.int64))
    if dtype == torch.bool:
        return torch.tensor([(i * 7 + seed) % 3 == 0 for i in range(count)], dtype=torch.bool).reshape(shape)
    size = dtype.itemsize
    raw = bytes((i * 31 + (i >> 8) * 7 + seed * 97 + 1) % 251 for i in range(count * size))
    t = torch.empty(0, dtype=dtype)
    storage = torch.UntypedStorage(count * size)
    if raw:
        torch.empty(0, dtype=torch.uint8).set_(storage, 0, (len(raw), ),
                                               (1, )).copy_(torch.frombuffer(bytearray(raw), dtype=torch.uint8))
    stride = [int(np.prod(shape[i + 1:], dtype=np.int64)) for i in range(len(shape))]
    return t.set_(storage, 0, shape, stride)


def logical_bytes(t):
    """The elements in logical order, read from the storage without arithmetic (some types have none)."""
    raw, size = bytes(t.untyped_storage()), t.element_size()
    at = [t.storage_offset()]
    for n, step in zip(t.shape, t.stride()):
        at = [a + i * step for a in at for i in range(n)]
    return b"".join(raw[a * size:(a + 1) * size] for a in at)


def fnv(data):
    h = 0xcbf29ce484222325
    for b in data:
        h = (h ^ b) * 0x100000001b3 % 2**64
    return f"{h:016x}"


def strides_of(t):
    """As manifests show them: None for row-major; steps over one element or none mean nothing."""
    step = 1
    if 0 in t.shape:
        return None
    for n, s in zip(reversed(t.shape), reversed(t.stride())):
        if n > 1 and s != step:
            return list(t.stride())
        step *= n
    return None


def why_not(t):
    """Why tensord serves no bytes of it, or None."""
    if t.is_quantized and t.dtype in (torch.quint4x2, torch.quint2x4):
        return "packed below a byte"
    if t.device.type == "meta":
        return "on the meta device, so never stored"
    if t.layout == torch.jagged:
        return "nested (jagged)"
    if t.layout != torch.strided:
        return "sparse"
    if t.is_nested:
        return "nested"
    if t.is_conj():
        return "conjugated"
    if t.is_neg():
        return "negated"
    return None


def key_text(key):
    return str(key)


def text_of(raw):
    """bytes as manifests show them: the text that they are, or else with \\xNN for what is none. Long ones are cut, not
    within a character."""
    head = raw[:1000]
    for whole in [head] + [head[:-n] for n in (1, 2, 3)] * (len(raw) > 1000):
        try:
            return whole.decode() if len(raw) <= 1000 else {"length": len(raw), "first": whole.decode()}
        except UnicodeDecodeError:
            pass
    shown = "".join(c if c.isprintable() else "".join(f"\\x{b:02x}" for b in c.encode(errors="surrogateescape"))
                    for c in head.decode(errors="surrogateescape"))
    return shown if len(raw) <= 1000 else {"length": len(raw), "first": shown}


def is_scalar(obj):
    return obj is None or isinstance(obj, (int, float, np.generic, str, bytes, bytearray, torch.device, torch.dtype))


def json_of(obj):
    if isinstance(obj, (bytes, bytearray)):
        return text_of(bytes(obj))
    if isinstance(obj, np.floating):  # the shortest decimal that reads back as the same float32
        obj = float(str(obj))
    if isinstance(obj, np.generic):
        obj = obj.item()
    if isinstance(obj, float) and not math.isfinite(obj):
        return "NaN" if math.isnan(obj) else "Infinity" if obj > 0 else "-Infinity"
    return str(obj) if isinstance(obj, (torch.device, torch.dtype)) else obj


def flatten(obj, name, scalars):
    """(name, tensor) of every tensor below obj, as the documentation of tensord says it names them."""
    below = f"{name}." if name else ""
    if isinstance(obj, nn.Module):
        for key, value in obj.state_dict(keep_vars=True).items():
            yield below + key, value
    elif isinstance(obj, torch.Tensor):
        yield name, obj
        if obj.layout == torch.sparse_coo:
            yield below + "indices", obj._indices()
            yield below + "values", obj._values()
        elif obj.layout in (torch.sparse_csr, torch.sparse_bsr):
            yield from [(below + "crow_indices", obj.crow_indices()), (below + "col_indices", obj.col_indices()),
                        (below + "values", obj.values())]
        elif obj.layout in (torch.sparse_csc, torch.sparse_bsc):
            yield from [(below + "ccol_indices", obj.ccol_indices()), (below + "row_indices", obj.row_indices()),
                        (below + "values", obj.values())]
        elif obj.layout == torch.jagged:
            yield from [(below + "values", obj._values), (below + "offsets", obj.offsets())]
            if obj.lengths() is not None:
                yield below + "lengths", obj.lengths()
            scalars[below + "ragged_idx"] = obj._ragged_idx
            return
        elif obj.is_nested:
            yield from [(below + "values", obj.values()), (below + "sizes", obj._nested_tensor_size()),
                        (below + "strides", obj._nested_tensor_strides()),
                        (below + "storage_offsets", obj._nested_tensor_storage_offsets())]
        elif obj.is_quantized:
            if obj.qscheme() == torch.per_tensor_affine:
                scalars[below + "q_scale"], scalars[below + "q_zero_point"] = obj.q_scale(), obj.q_zero_point()
            else:
                yield from [(below + "q_per_channel_scales", obj.q_per_channel_scales()),
                            (below + "q_per_channel_zero_points", obj.q_per_channel_zero_points())]
                scalars[below + "q_per_channel_axis"] = obj.q_per_channel_axis()
        for key, value in vars(obj).items() if type(obj) is not torch.Tensor else ():
            yield from flatten(value, below + key, scalars)
    elif isinstance(obj, torch.UntypedStorage | torch.storage.TypedStorage):
        untyped = obj if isinstance(obj, torch.UntypedStorage) else obj._untyped_storage
        dtype = torch.uint8 if isinstance(obj, torch.UntypedStorage) else obj.dtype
        yield name, torch.empty(0, dtype=dtype).set_(untyped, 0, (untyped.nbytes() // dtype.itemsize,), (1,))
    elif isinstance(obj, dict):
        for key, value in obj.items():
            yield from flatten(value, below + key_text(key), scalars)
    elif isinstance(obj, (list, tuple, set, frozenset)) and not all(map(is_scalar, obj)):
        for i, value in enumerate(obj):
            yield from flatten(value, f"{below}{i}", scalars)
    elif isinstance(obj, types.SimpleNamespace):
        for key, value in vars(obj).items():
            yield from flatten(value, below + key, scalars)
    elif isinstance(obj, (list, tuple, set, frozenset)):
        items = [json_of(v) for v in obj]
        if items:
            scalars[name] = items if len(items) <= 64 else {"length": len(items), "first": items[:64]}
    elif is_scalar(obj):
        scalars[name] = json_of(obj)
    elif isinstance(obj, np.ndarray):
        yield name, obj


def describe(obj, reason=None):
    scalars, lines = {}, []
    for name, t in flatten(obj, "", scalars):
        if isinstance(t, np.ndarray):
            lines.append((name, DTYPES[torch.from_numpy(t).dtype], json.dumps(list(t.shape), separators=(",", ":")),
                          "-", "!stored inside the pickle"))
            continue
        why = reason if reason and t.dtype.itemsize > 1 else why_not(t)
        nested = t.layout == torch.jagged or (t.layout == torch.strided and t.is_nested)
        strided = t.layout == torch.strided and not nested
        shape = "?" if nested else json.dumps(list(t.shape), separators=(",", ":"))
        strides = strides_of(t) if strided else None
        lines.append((name, DTYPES[t.dtype], shape, json.dumps(strides, separators=(",", ":")) if strides else "-",
                      f"!{why}" if why else fnv(logical_bytes(t))))
    lines.sort(key=lambda line: line[0].encode())
    metadata = [("=", key, json.dumps(value, separators=(",", ":"))) for key, value in scalars.items()]
    return "".join("\t".join(line) + "\n" for line in lines + metadata)


def write(name, obj, data=None, loaded=None, reason=None, **options):
    if data is None:
        out = io.BytesIO()
        torch.save(obj, out, **options)
        data = out.getvalue()
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.pt").write_bytes(data)
    if loaded is None:
        loaded = torch.load(io.BytesIO(data), weights_only=False)
    (OUT / f"{name}.txt").write_text(describe(loaded, reason))


def steady_keys(data):
    """Legacy keys are addresses: numbers of the same length and in the same order instead."""
    keys = sorted(set(re.findall(rb"(?<=X....)[0-9]{9,}|(?<=\x8c.)[0-9]{9,}", data, re.S)))
    for i, key in enumerate(keys):
        data = data.replace(key, b"%0*d" % (len(key), i))
    return data


def write_legacy(name, obj, loaded=None, **options):
    out = io.BytesIO()
    # The source of a module's class is put into the file, with the path it has on this machine, unless it cannot be had.
    with mock.patch("torch.serialization.get_source_lines_and_file", side_effect=OSError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(obj, out, _use_new_zipfile_serialization=False, **options)
    write(name, None, data=steady_keys(out.getvalue()), loaded=loaded)


def model():
    """Every shape of module: nested containers, buffers, a buffer that is not saved, tied weights, lists of parameters."""
    torch.manual_seed(5)
    m = nn.Sequential(
        OrderedDict(
            embed=nn.Embedding(7, 4), norm=nn.LayerNorm(4),
            blocks=nn.ModuleList(nn.ModuleDict({"fc": nn.Linear(4, 4), "act": nn.ReLU()}) for _ in range(2)),
            bn=nn.BatchNorm1d(4), extra=nn.ParameterList([
                nn.Parameter(filled(torch.float32, 3, seed=1)),
                nn.Parameter(filled(torch.float32, 2, seed=2))
            ]), named=nn.ParameterDict({"a": nn.Parameter(filled(torch.float32, 2,
                                                                 seed=3))}), head=nn.Linear(4, 7, bias=False)))
    m.head.weight = m.embed.weight
    m.blocks.append(m.blocks[0])
    m.register_buffer("kept", filled(torch.float16, 3, seed=4))
    m.register_buffer("not_kept", filled(torch.float16, 3, seed=5), persistent=False)
    m.register_buffer("none", None)
    return m


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.table = filled(torch.float32, 4, seed=9)
        self.register_buffer("steps", filled(torch.int64, 2, seed=1))

    def forward(self, x):
        return self.fc(x) + self.table.sum()


def without_debug_records(data):
    """The archive as torch's own writer makes it of the other records: these hold paths of the machine, and jit.save has no
    way to leave them out."""
    reader, out = torch._C.PyTorchFileReader(io.BytesIO(data)), io.BytesIO()
    writer = torch._C.PyTorchFileWriter(out)
    by_writer = ("version", ".data/serialization_id")
    writer.set_min_version(int(reader.get_record("version")))
    for name in reader.get_all_records():
        if name not in by_writer and not name.endswith(".debug_pkl"):
            record = reader.get_record(name)
            writer.write_record(name, record, len(record))
    writer.write_end_of_file()
    return out.getvalue()


def scripted():
    torch.manual_seed(6)
    constant = filled(torch.float32, 2, seed=3)
    traced = torch.jit.trace(lambda x: x * constant, torch.ones(2))
    m = torch.jit.script(Scripted())
    for name, module in (("scripted", m), ("traced", traced)):
        out = io.BytesIO()
        torch.jit.save(module, out)
        state = {**m.state_dict(), "table": m.table} if name == "scripted" else {"constants.0": constant}
        write(name, None, data=without_debug_records(out.getvalue()), loaded=OrderedDict(state))
        text = (OUT / f"{name}.txt").read_text()
        (OUT / f"{name}.txt").write_text("".join(line + "\n" for line in text.splitlines() if line))


def views():
    base = filled(torch.float32, 6, 8, seed=2)
    c = filled(torch.complex64, 5, seed=3)
    half = filled(torch.float8_e4m3fn, 4, 4, seed=8)
    return {
        "base": base,
        "same": base,
        "transposed": base.t(),
        "row": base[2],
        "column": base[:, 3],
        "block": base[1:4, 2:5],
        "every_other": base[::2, ::3],
        "expanded": base[0, :1].expand(4, 5),
        "ones": base[:1, 1:2],
        "permuted": filled(torch.int16, 2, 3, 4, seed=1).permute(2, 0, 1),
        "conj": c.conj(),
        "plain": c,
        "neg": filled(torch.complex64, 4, seed=6).conj().imag,
        "empty": torch.empty(0, 3),
        "empty_view": base[3:3],
        "scalar": torch.tensor(2.5),
        "channels_last": filled(torch.uint8, 1, 3, 4, 2).contiguous(memory_format=torch.channels_last),
        "float8": half,
        "float8_t": half.t(),
        "deep": base.reshape(*[1] * 63, 48)[..., :7],
    }


def kinds():
    torch.manual_seed(7)
    with_state = nn.Parameter(filled(torch.float32, 3, seed=1))
    with_state.tag = "x"
    q = torch.randn(4, 3)
    return {
        "parameter":
        nn.Parameter(filled(torch.float32, 2, 2)),
        "with_state":
        with_state,
        "coo":
        torch.sparse_coo_tensor([[0, 2], [1, 0]], torch.tensor([1.5, 2.5]), (3, 2)),
        "csr":
        torch.eye(3).to_sparse_csr(),
        "csc":
        torch.eye(2).to_sparse_csc(),
        "nested":
        torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(1, 3)]),
        "meta":
        torch.empty(3, 4, device="meta").t(),
        "qint8":
        torch.quantize_per_tensor(q, 0.5, 3, torch.qint8),
        "quint8":
        torch.quantize_per_tensor(q, 0.25, 100, torch.quint8),
        "qint32":
        torch.quantize_per_tensor(q, 0.125, 0, torch.qint32),
        "channels":
        torch.quantize_per_channel(q, torch.tensor([.5, .25, 1., 2.], dtype=torch.float64), torch.tensor([0, 1, 2, 3]),
                                   0, torch.qint8),
        "packed":
        torch.quantize_per_channel(torch.randn(4, 4), torch.ones(4), torch.zeros(4), 0, torch.quint4x2),
        "numpy":
        np.arange(6, dtype=np.float32).reshape(2, 3),
        "numpy_scalar":
        np.float64(1.5),
        "storage":
        filled(torch.int32, 3, seed=6).untyped_storage(),
    }


def checkpoint():
    torch.manual_seed(8)
    m = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    optimizer = torch.optim.Adam(m.parameters(), lr=1e-3)
    m(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    return {
        "model": m.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "loss": 0.125, "run": "näme \"x\"\n",
        "done": False, "nothing": None, "pieces":
        [filled(torch.int8, 3),
         (filled(torch.int8, 2, seed=1), {"deep": filled(torch.int8, 1, seed=2)})], "steps": list(range(70)), "big":
        2**70, "inf": 1e300, 7: filled(torch.uint8, 4,
                                       seed=4), "args": types.SimpleNamespace(width=5, mask=filled(torch.bool, 3))
    }


def values():
    """What may stand beside tensors, however the protocol spells it."""
    return {
        "bytes": b"plain",
        "no bytes": b"",
        "text": "näme".encode(),
        "binary": bytes([0, 65, 128, 195, 255, 92]),
        "array": bytearray(b"xy\xe9"),
        "no array": bytearray(),
        "list of bytes": [b"a", bytearray(b"b"), 1],
        "cpu": torch.device("cpu"),
        "cuda": torch.device("cuda", 1),
        "dtype": torch.bfloat16,
        "places": [torch.device("meta"), torch.float32],
        "set": {3, 1, 2},
        "no set": set(),
        "frozen": frozenset(["x"]),
        "size": torch.Size([2, 3]),
        "tensors": frozenset([filled(torch.int8, 2, seed=9)]),
        "big":
        [2**63 - 1, 2**63, -2**63, -2**63 - 1, 2**64, 2**70, -2**70, 10**18, 10**27, -10**100, 2**511 - 1, -2**511],
        "huge": 2**70,
        "floats": [0.1, 1 / 3, 1.0, -0.0, 1e-5, 1e16, 5e-324, 1.7976931348623157e308],
        "others": [math.inf, -math.inf, math.nan],
        "single": np.float32(0.1),
        "double": np.float64(0.1),
        "none": np.float32("nan"),
        "int": np.int64(-5),
    }


def big_endian():
    with mock.patch.object(torch.serialization, "sys", types.SimpleNamespace(byteorder="big", maxsize=sys.maxsize)):
        for name, zip_form in (("big_endian", True), ("legacy_big_endian", False)):
            out = io.BytesIO()
            obj = {"wide": filled(torch.float32, 3), "narrow": filled(torch.int8, 5)}
            torch.save(obj, out, _use_new_zipfile_serialization=zip_form)
            data = out.getvalue() if zip_form else steady_keys(out.getvalue())
            # legacy files are little-endian whatever they say: torch.load reads them so
            write(name, None, data=data, loaded=obj, reason="big-endian" if zip_form else None)


def rezip(data, change):
    """The archive with change(name, bytes) -> (bytes, method) or None applied to each member."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            made = change(info.filename, old.read(info))
            if made is not None:
                entry = zipfile.ZipInfo(info.filename, (1980, 1, 1, 0, 0, 0))
                entry.compress_type = made[1]
                new.writestr(entry, made[0])
    return out.getvalue()


def archives():
    """Archives that other zip tools made of torch's."""
    out = io.BytesIO()
    torch.save({"a": filled(torch.float32, 40), "b": filled(torch.int64, 2, seed=1)}, out)
    data = out.getvalue()
    stored, deflated = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
    (OUT / "rezipped.pt").write_bytes(rezip(data, lambda n, b: (b, stored)))
    (OUT / "rezipped.txt").write_text(describe(torch.load(io.BytesIO(data))))
    (OUT / "compressed.pt").write_bytes(rezip(data, lambda n, b: (b, deflated)))
    (OUT / "compressed.txt").write_text(
        re.sub("[0-9a-f]{16}$", "!compressed (deflate)", describe(torch.load(io.BytesIO(data))), flags=re.M))


def main():
    warnings.simplefilter("ignore")
    flat = OrderedDict((f"{DTYPES[d]}", filled(d, 3, 2, seed=i)) for i, d in enumerate([torch.bool, *PLAIN]))
    write("flat", flat)
    write("checkpoint", checkpoint())
    write("protocol4", checkpoint()["model"], pickle_protocol=4)
    write("module", model())
    write("in_dict", {"net": nn.Linear(2, 1), "ema": nn.Linear(2, 1).state_dict(), "names": ["a", "b"]})
    write("views", views())
    write("kinds", kinds())
    write("bare", filled(torch.float32, 2, 3))
    write("unnamed", {"": filled(torch.float32, 2, 3)})
    write("list", [filled(torch.float32, 2), filled(torch.int64, 1, seed=1)])
    write("empty", {})
    write(
        "unstored", {
            "row": torch.empty(3, device="meta"), "rows": torch.empty(3, 4, device="meta"), "columns": torch.empty(
                3, 4, device="meta").t(), "ones": torch.empty(1, 5, 1, device="meta", dtype=torch.float16).transpose(
                    0, 2), "scalar": torch.empty((), device="meta"), "none": torch.empty(0, 3, device="meta").t(),
            "nested": torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(1, 3)])
        })
    rows = torch.nested.nested_tensor(
        [filled(torch.float16, 2, 3), filled(torch.float16, 5, 3, seed=1)], layout=torch.jagged)
    write("jagged", {"rows": rows, "columns": rows.transpose(1, 2), "holes": torch.nested.narrow(
        filled(torch.float16, 2, 5, 4), 1, torch.tensor([0, 1]), torch.tensor([2, 3]), layout=torch.jagged)})
    write("values", values())
    write("values_protocol4", values(), pickle_protocol=4)
    cut = {"bytes": bytes(range(256)) * 5, "text": b"x" + "ä".encode() * 700, "continued": b"\x80" * 1200}
    write("cut", cut)
    write("cut_protocol4", cut, pickle_protocol=4)
    write("scalars_only", {"a": 1, "b": [1, 2.5, "x", None, True]})
    legacy = {k: v for k, v in flat.items() if k not in ("C32",)}
    # torch 2.13 writes untyped storages into legacy files and cannot read them: what was saved is what is expected.
    write_legacy("legacy_flat", legacy, loaded=legacy)
    write_legacy("legacy_protocol4", checkpoint()["model"], pickle_protocol=4)
    write_legacy("legacy_module", nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    viewed = views()
    write_legacy("legacy_views", viewed, loaded=viewed)
    write_legacy("legacy_bare", filled(torch.float16, 5))
    big_endian()
    scripted()
    archives()


if __name__ == "__main__":
    main()
