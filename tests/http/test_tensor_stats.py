"""?format=stats: statistics of a tensor, compared with NumPy, ml_dtypes and gguf, for every type."""
import io
import json
import math
import re
import zipfile
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest

from harness import DTYPE_BITS, Tensor, age, check_error, enc, pattern, release_binary, tensor, write_by_hand

SAMPLE, RUNS, RUN = 1048576, 256, 4096
MEMBERS = ["name", "dtype", "shape", "nbytes", "elements", "sampled", "sample", "min", "max", "mean", "std", "zeros",
           "nans", "infinities", "histogram", "heatmap", "first"]
ML_DTYPES = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "U32": np.uint32,
    "I32": np.int32, "U64": np.uint64, "I64": np.int64, "F16": np.float16, "F32": np.float32, "F64": np.float64,
    "BF16": ml_dtypes.bfloat16, "F8_E5M2": ml_dtypes.float8_e5m2, "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu, "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz, "F4": ml_dtypes.float4_e2m1fn, "F6_E2M3": ml_dtypes.float6_e2m3fn,
    "F6_E3M2": ml_dtypes.float6_e3m2fn, "C64": np.complex64,
}
# The types of GGUF's blocks that the package gguf decodes.
BLOCKS = [t for t in gguf.GGMLQuantizationType if t in gguf.quants._type_traits and t.name != "BF16"]
# Pairs of bytes that are a half-precision infinity, NaN, zero of either sign, the smallest and the largest numbers.
ODD_PAIRS = ["007c", "00fc", "007e", "ffff", "0000", "0080", "0100", "ff7b", "fffb"]


# ------------------------------------------------------------------------------------------------ expectations

def decode(dtype, data):
    """Return the elements of a type of safetensors as doubles."""
    bits = DTYPE_BITS[dtype]
    if bits < 8:  # the first element is in the lowest bits
        single = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").reshape(-1, bits)
        codes = (single << np.arange(bits, dtype=np.uint8)).sum(axis=1).astype(np.uint8)
        return codes.view(ML_DTYPES[dtype]).astype(np.float64)
    values = np.frombuffer(data, ML_DTYPES[dtype])
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        if dtype == "C64":
            values = values.astype(np.complex128)
            return np.hypot(values.real, values.imag)
        return values.astype(np.float64)


def sample_of(values, block):
    n = len(values)
    if n <= SAMPLE:
        return values
    starts = [i * (n - RUN) // (RUNS - 1) // block * block for i in range(RUNS)]
    return np.concatenate([values[s:s + RUN] for s in starts])


def shown(x):
    """Return a number as the JSON has it."""
    return "NaN" if math.isnan(x) else "Infinity" if x == math.inf else "-Infinity" if x == -math.inf else x


def check_moments(got, finite):
    """Compare mean and std with exact sums, of numbers that are scaled so that no sum overflows."""
    shift = int(np.frexp(np.abs(finite).max())[1])
    scaled = np.ldexp(finite, -shift)
    mean = math.fsum(scaled) / len(scaled)
    std = math.sqrt(math.fsum((scaled - mean) ** 2) / len(scaled))
    assert math.ldexp(got["mean"], -shift) == pytest.approx(mean, rel=1e-12, abs=1e-15)
    assert math.ldexp(got["std"], -shift) == pytest.approx(std, rel=1e-12, abs=1e-15)


def heat_map(values, shape):
    """Return rows, columns and cells by the rule of docs/statistics.md."""
    columns = shape[-1]
    rows = len(values) // columns
    h, w = min(rows, 32), min(columns, 32)
    cells = []
    for i in range(h):
        row = (2 * i + 1) * rows // (2 * h)
        for j in range(w):
            first, end = j * columns // w, (j + 1) * columns // w
            cell = values[row * columns + first:row * columns + min(end, first + 64)]
            cell = np.abs(cell[np.isfinite(cell)])
            with np.errstate(over="ignore"):
                mean = float(cell.sum() / len(cell)) if len(cell) else None
            if mean == math.inf:
                mean = float((cell / len(cell)).sum())
            cells.append(mean)
    return h, w, cells


def check(got, values, shape, block=1, bins=64):
    """Compare an answer with all elements of the tensor, in logical order."""
    assert list(got) == MEMBERS
    sample = sample_of(values, block)
    finite = sample[np.isfinite(sample)]
    assert got["shape"] == list(shape)
    assert got["elements"] == len(values) and got["sampled"] == len(sample)
    assert got["sample"] == ("all" if len(values) <= SAMPLE else "runs")
    assert got["zeros"] == int((sample == 0).sum())
    assert got["nans"] == int(np.isnan(sample).sum())
    assert got["infinities"] == int(np.isinf(sample).sum())
    assert got["first"] == [shown(float(x)) for x in values[:16]]
    histogram = got["histogram"]
    assert list(histogram) == ["low", "high", "counts"]
    if len(finite) == 0:
        assert [got[k] for k in ("min", "max", "mean", "std")] == [None] * 4
        assert histogram == {"low": None, "high": None, "counts": []}
    else:
        low, high = float(finite.min()), float(finite.max())
        assert (got["min"], got["max"]) == (low, high) == (histogram["low"], histogram["high"])
        check_moments(got, finite)
        if low == high:
            assert histogram["counts"] == [len(finite)]
        else:
            half = 0.5 if math.isinf(high - low) else 1.0
            at = np.floor((finite * half - low * half) / (high * half - low * half) * bins)
            assert histogram["counts"] == np.bincount(np.minimum(at, bins - 1).astype(int), minlength=bins).tolist()
    if len(shape) < 2 or len(values) == 0:
        assert got["heatmap"] is None
    else:
        h, w, cells = heat_map(values, shape)
        assert list(got["heatmap"]) == ["rows", "columns", "values"]
        assert (got["heatmap"]["rows"], got["heatmap"]["columns"]) == (h, w)
        assert got["heatmap"]["values"] == [c if c is None else pytest.approx(c, rel=1e-12) for c in cells]


def stats(srv, model, name, query="", headers=()):
    r = srv.get(f"/models/{enc(model, '/')}/tensors/{enc(name)}?format=stats{query}", headers)
    assert r.status == 200, f"{model} {name} {query}: {r}"
    got = r.json()
    assert r.get("Content-Type") == "application/json" and r.get("X-Tensor-Dtype") == got["dtype"]
    assert json.loads(r.get("X-Tensor-Shape")) == got["shape"]
    return got


# ------------------------------------------------------------------------------------------------ files

def special_floats(dtype):
    """Return bytes with both infinities, NaNs, both zeros, the smallest and the largest numbers."""
    kind = ML_DTYPES[dtype]
    info = ml_dtypes.finfo(kind)
    smallest = float(info.smallest_subnormal)
    numbers = [math.inf, -math.inf, math.nan, 0.0, -0.0, smallest, -smallest, float(info.max), float(info.min),
               float(info.tiny), 1.0, -1.0]
    return np.array(numbers, np.float64).astype(kind).tobytes()


def random_blocks(kind, shape, seed):
    """Return random bytes of blocks, as gguf wants them: the last dimension counts bytes."""
    elems, size = gguf.GGML_QUANT_SIZES[kind]
    row = shape[-1] // elems * size
    count = int(np.prod(shape[:-1], dtype=int)) * row
    return np.frombuffer(pattern(count, seed), np.uint8).reshape(*shape[:-1], row)


def odd_blocks(kind):
    """Return a block a row, of each pair of bytes."""
    _, size = gguf.GGML_QUANT_SIZES[kind]
    return np.array([np.resize(np.frombuffer(bytes.fromhex(pair), np.uint8), size) for pair in ODD_PAIRS])


def write_gguf(path, tensors):
    writer = gguf.GGUFWriter(str(path), "test")
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


FLOATS = ["F16", "BF16", "F32", "F64", "F8_E5M2", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2FNUZ"]
SHAPES = {"scalar": [], "one": [1], "empty": [0], "empty3": [3, 0, 2], "line": [100], "cube": [5, 7, 12],
          "wide": [3, 1000], "tall": [1000, 3], "row": [1, 50], "column": [50, 1], "deep": [2, 1, 3, 1, 70]}
LARGE = {"F32": [1027, 1025], "I8": [3, 700, 1000], "F4": [1100, 1000], "F6_E3M2": [1100, 1000], "BF16": [1048577],
         "C64": [700, 1600]}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("stats") / "root"
    tensors = [tensor("random/" + d, d, [48, 40]) for d in DTYPE_BITS]
    tensors += [Tensor("special/" + d, d, [12], special_floats(d)) for d in FLOATS]
    tensors += [tensor("shape/" + name, "F32", shape) for name, shape in SHAPES.items()]
    tensors += [tensor("large/" + d, d, shape) for d, shape in LARGE.items()]
    tensors += [tensor("exact", "U8", [SAMPLE]), tensor("more", "U8", [SAMPLE + 1])]
    for name, number in (("nan", math.nan), ("inf", -math.inf), ("zero", 0.0), ("negative", -2.5), ("tiny", 5e-324)):
        tensors.append(Tensor(name, "F64", [4, 9], np.full(36, number).tobytes()))
    wide = np.array([np.finfo(np.float64).max, -np.finfo(np.float64).max] * 40 + [1.0])
    tensors.append(Tensor("widest", "F64", [81], wide.tobytes()))
    small = np.array([5e-324, 1e-310, -3e-320, 2e-308])
    tensors.append(Tensor("smallest", "F64", [2, 2], small.tobytes()))
    write_by_hand(root / "m" / "model.safetensors", tensors)
    other = [Tensor("random/F32", "F32", [2], np.array([1, 2], np.float32).tobytes())]
    write_by_hand(root / "m" / "other.safetensors", other)
    q4_k, q8_k = gguf.GGMLQuantizationType.Q4_K, gguf.GGMLQuantizationType.Q8_K
    write_gguf(root / "q.gguf", {t.name: (random_blocks(t, [6, 512], t.name), t) for t in BLOCKS} |
               {"odd/" + t.name: (odd_blocks(t), t) for t in BLOCKS} |
               {"large/Q4_K": (random_blocks(q4_k, [2100, 512], "l"), q4_k),
                "q8_k": (random_blocks(q8_k, [2, 512], "k"), q8_k)})
    age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    from harness import Server
    s = Server(root)
    s.wait_hashed()
    yield s
    s.stop()


@pytest.fixture(scope="module")
def whole(root):
    """All tensors of the model m: values and shape by name."""
    raw = (root / "m" / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    found = {}
    for name, entry in json.loads(raw[8:8 + length]).items():
        begin, end = (8 + length + at for at in entry["data_offsets"])
        found[name] = (decode(entry["dtype"], raw[begin:end]), entry["shape"], entry["dtype"], end - begin)
    return found


# ------------------------------------------------------------------------------------------------ types

@pytest.mark.parametrize("name", [f"random/{d}" for d in DTYPE_BITS] + [f"special/{d}" for d in FLOATS] +
                         [f"shape/{s}" for s in SHAPES] + [f"large/{d}" for d in LARGE] +
                         ["exact", "more", "nan", "inf", "zero", "negative", "tiny", "widest", "smallest"])
def test_types_shapes_and_samples(srv, whole, name):
    values, shape, dtype, nbytes = whole[name]
    got = stats(srv, "m", name)
    assert (got["name"], got["dtype"], got["nbytes"]) == (name, dtype, nbytes)
    check(got, values, shape, block={"F4": 2, "F6_E3M2": 4}.get(dtype, 1))


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.name)
def test_blocks_are_those_of_gguf(srv, kind):
    data = random_blocks(kind, [6, 512], kind.name)
    with np.errstate(all="ignore"):
        values = gguf.quants.dequantize(data, kind).astype(np.float64).reshape(-1)
    got = stats(srv, "q.gguf", kind.name)
    assert (got["dtype"], got["nbytes"]) == (kind.name, data.size)
    check(got, values, [6, 512])


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.name)
def test_blocks_of_odd_scales(srv, kind):
    """Any bytes are a block: each block is one pair of bytes, over and over."""
    elems, _ = gguf.GGML_QUANT_SIZES[kind]
    with np.errstate(all="ignore"):
        values = gguf.quants.dequantize(odd_blocks(kind), kind).astype(np.float64).reshape(-1)
    got = stats(srv, "q.gguf", "odd/" + kind.name)
    check(got, values, [len(ODD_PAIRS), elems])
    for row in range(len(ODD_PAIRS)):
        part = values[row * elems:(row + 1) * elems]
        check(stats(srv, "q.gguf", "odd/" + kind.name, f"&slice={row}"), part, [elems])


def test_a_sample_of_blocks(srv):
    kind = gguf.GGMLQuantizationType.Q4_K
    with np.errstate(all="ignore"):
        values = gguf.quants.dequantize(random_blocks(kind, [2100, 512], "l"), kind).astype(np.float64).reshape(-1)
    check(stats(srv, "q.gguf", "large/Q4_K"), values, [2100, 512], block=256)


def test_a_type_without_statistics(srv):
    check_error(srv.get("/models/q.gguf/tensors/q8_k?format=stats"), 422, "no statistics for Q8_K")


# ------------------------------------------------------------------------------------------------ parts

@pytest.mark.parametrize("name, query, index", [
    ("shape/cube", "&slice=1:4,2:7,3:9", np.s_[1:4, 2:7, 3:9]), ("shape/cube", "&slice=2", np.s_[2]),
    ("shape/cube", "&slice=:,3", np.s_[:, 3]), ("shape/cube", "&slice=4,6,11", np.s_[4, 6, 11]),
    ("shape/cube", "&slice=0:0", np.s_[0:0]), ("shape/wide", "&shard=1:1/3", np.s_[:, 334:668]),
    ("large/F32", "&slice=1:1026,1:1025", np.s_[1:1026, 1:1025]), ("large/F32", "&slice=5:900", np.s_[5:900]),
    ("large/I8", "&slice=:,:,7:507", np.s_[:, :, 7:507]), ("large/I8", "&slice=:,1:,:", np.s_[:, 1:, :]),
])
def test_slices(srv, whole, name, query, index):
    values, shape, _, _ = whole[name]
    part = values.reshape(shape)[index]
    check(stats(srv, "m", name, query), part.reshape(-1), np.shape(part))


def test_parts_of_blocks(srv):
    kind = gguf.GGMLQuantizationType.Q5_K
    with np.errstate(all="ignore"):
        values = gguf.quants.dequantize(random_blocks(kind, [6, 512], kind.name), kind).astype(np.float64)
    check(stats(srv, "q.gguf", "Q5_K", "&slice=2:5,256:"), values[2:5, 256:].reshape(-1), [3, 256])
    check_error(srv.get("/models/q.gguf/tensors/Q5_K?format=stats&slice=:,1:"), 400, "block")


def test_another_checkpoint(srv):
    got = stats(srv, "m", "random/F32", "&checkpoint=other.safetensors")
    assert got["first"] == [1.0, 2.0] and got["heatmap"] is None and got["std"] == 0.5


# ------------------------------------------------------------------------------------------------ parameters

@pytest.mark.parametrize("bins", [1, 2, 63, 512])
def test_bins(srv, whole, bins):
    values, shape, _, _ = whole["random/I8"]
    got = stats(srv, "m", "random/I8", f"&bins={bins}")
    assert len(got["histogram"]["counts"]) == bins
    check(got, values, shape, bins=bins)


def test_bad_parameters(srv):
    base = "/models/m/tensors/random/I8?"
    for bins in ("0", "513", "-1", "x", "", "1.5", "99999999999999999999"):
        check_error(srv.get(base + "format=stats&bins=" + bins), 400, "bins")
    for query in ("bins=64", "format=raw&bins=64", "format=npy&bins=64"):
        check_error(srv.get(base + query), 400, "bins", "stats")
    check_error(srv.get(base + "format=statistics"), 400, "stats")
    check_error(srv.get(base + "format=stats&slice=1000"), 400, "1000")
    check_error(srv.get("/models/m/tensors/none?format=stats"), 404, "none")


def test_validators(srv):
    """The tag follows the tensor's file, and differs by part and number of bins. HEAD has the length."""
    base = "/models/m/tensors/random/F32?format=stats"
    r = srv.get(base)
    again = srv.get(base)
    assert (again.etag, again.body) == (r.etag, r.body)
    assert r.get("Cache-Control") == srv.get("/models/m/tensors/random/F32").get("Cache-Control")
    tags = {srv.get("/models/m/tensors/random/F32" + query).etag for query in
            ("", "?format=npy", "?format=stats", "?format=stats&bins=63", "?format=stats&slice=0:2")}
    assert len(tags) == 5
    head = srv.head(base)
    assert (head.status, head.etag, head.length) == (200, r.etag, len(r.body))
    unchanged = srv.get(base, [("If-None-Match", r.etag)])
    assert unchanged.status == 304 and unchanged.etag == r.etag
    assert srv.get(base, [("If-None-Match", '"other"')]).status == 200
    part = srv.get(base, [("Range", "bytes=2-9"), ("If-Range", r.etag)])
    assert part.status == 206 and part.body == r.body[2:10]


# ------------------------------------------------------------------------------------------------ storage

def npy_bytes(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Arrays that files store otherwise, and a server over them: (server, arrays by model and name)."""
    import h5py
    import torch

    from harness import Server
    root = tmp_path_factory.mktemp("stored") / "root"
    root.mkdir()
    rng = np.random.default_rng(5)
    a = rng.standard_normal((1100, 1000)).astype(np.float32)
    small = rng.standard_normal((40, 33)).astype(np.float32)
    arrays = {
        ("plain.npz", "a"): a, ("packed.npz", "a"): a, ("packed.npz", "c"): small.astype(np.complex128) * (1 + 2j),
        ("long.npy", "long"): small.astype(np.longdouble) / 3, ("big.npy", "big"): small.astype(">f4"),
        ("clong.npy", "clong"): small.astype(np.clongdouble) * (1 + 2j),
        ("fortran.npy", "fortran"): np.asfortranarray(a),
        ("date.npy", "date"): np.array(["2026-11-29", "NaT", "1969-07-20"], "M8[D]"),
        ("delta.npy", "delta"): np.array([5, "NaT", -7], "m8[s]"),
        ("half.npy", "half"): small.astype(np.float16), ("h.h5", "gzip"): a, ("h.h5", "big"): a.astype(">f8"),
        ("view.pt", "turned"): a.T, ("view.pt", "repeated"): np.broadcast_to(small[0], (50000, 33)),
    }
    np.savez(root / "plain.npz", a=a)
    np.savez_compressed(root / "packed.npz", a=a, c=arrays["packed.npz", "c"])
    for (file, name), array in arrays.items():
        if file.endswith(".npy"):
            np.save(root / file, array)
    with h5py.File(root / "h.h5", "w") as f:
        f.create_dataset("gzip", data=a, chunks=(100, 90), compression="gzip", shuffle=True, fletcher32=True)
        f.create_dataset("big", data=arrays["h.h5", "big"], chunks=(64, 1000))
    turned, repeated = torch.from_numpy(a).T, torch.from_numpy(small[0]).expand(50000, 33)
    torch.save({"turned": turned, "repeated": repeated}, root / "view.pt")
    with zipfile.ZipFile(root / "damaged.npz", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a.npy", npy_bytes(a))
    damaged = bytearray((root / "damaged.npz").read_bytes())
    for at in (damaged.index(b"PK\x03\x04") + 14, damaged.index(b"PK\x01\x02") + 16):  # the CRC
        damaged[at] ^= 1
    (root / "damaged.npz").write_bytes(damaged)
    age(root)
    s = Server(root)
    yield s, arrays
    s.stop()


def numbers(array):
    """Return an array's elements as doubles in logical order."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind in "mM":
        return np.where(np.isnat(flat), np.nan, flat.view(np.int64).astype(np.float64))
    return (np.hypot(flat.real, flat.imag) if flat.dtype.kind == "c" else flat).astype(np.float64)


def test_tensors_that_are_stored_otherwise(stored):
    s, arrays = stored
    for (model, name), array in arrays.items():
        check(stats(s, model, name), numbers(array), array.shape)
        if array.ndim == 2:
            part = array[3:37, 1:20]
            check(stats(s, model, name, "&slice=3:37,1:20"), numbers(part), part.shape)


# shows: security.md content-damaged-requests
def test_damaged_tensors_have_no_statistics(stored):
    check_error(stored[0].get("/models/damaged.npz/tensors/a?format=stats"), 422, "damaged.npz", "CRC")


def box_file(path, name, whole, offsets, box):
    """Write one rank's boxes as torch's HuggingFaceStorageWriter does."""
    info = json.dumps({name: {"saved_offsets": offsets}})
    t = Tensor(name, "F32", list(box.shape), np.ascontiguousarray(box).tobytes())
    write_by_hand(path, [t], {"DCP_SHARDING_INFO": info, "DCP_VERSION": "1.0", "format": "pt"})


def test_pieces(tmp_path, start):
    whole = np.random.default_rng(6).standard_normal((1600, 1000)).astype(np.float32)
    folder = tmp_path / "root" / "boxes"
    for rank in range(4):
        rows, columns = rank // 2 * 800, rank % 2 * 500
        box_file(folder / f"shard-{rank + 1:05}-model-00001-of-00001.safetensors", "w", whole, [rows, columns],
                 whole[rows:rows + 800, columns:columns + 500])
    age(tmp_path / "root")
    s = start(tmp_path / "root")
    assert len(s.json("/models/boxes/tensors")["tensors"][0]["pieces"]) == 4
    check(stats(s, "boxes", "w"), whole.reshape(-1).astype(np.float64), whole.shape)
    part = whole[700:900, 400:600]
    check(stats(s, "boxes", "w", "&slice=700:900,400:600"), part.reshape(-1).astype(np.float64), part.shape)


def test_a_changed_file(root, tmp_path, start):
    t = Tensor("t", "F32", [3], np.array([1, 2, 3], np.float32).tobytes())
    write_by_hand(tmp_path / "root" / "a.safetensors", [t])
    age(tmp_path / "root")
    s = start(tmp_path / "root")
    tag = s.get("/models/a.safetensors/tensors/t?format=stats").etag
    t.data = np.array([4, 5, 6], np.float32).tobytes()
    write_by_hand(tmp_path / "root" / "a.safetensors", [t])
    target = "/models/a.safetensors/tensors/t?format=stats"
    now = s.wait_for(lambda: (r := s.get(target)).status == 200 and r.json()["min"] == 4.0 and r, "the new numbers")
    assert now.etag != tag
    assert s.get(target, [("If-None-Match", tag)]).status == 200


# ------------------------------------------------------------------------------------------------ bounds

def write_sparse(path, dtype, shape):
    """Write a file of zeros that takes no room on the disk."""
    size = int(np.prod(shape, dtype=object)) * DTYPE_BITS[dtype] // 8
    head = json.dumps({"huge": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}).encode()
    head += b" " * (-len(head) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head)
        f.truncate(8 + len(head) + size)


def most_memory(s):
    """Return the most bytes of memory that the server had at once, with the pages of files that it maps."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{s.pid}/status").read_text())[1]) << 10


@pytest.mark.parametrize("dtype, shape", [
    ("F32", [1 << 20, 1 << 20]), ("F4", [1 << 42]), ("U8", [3, 1 << 41]), ("F64", [1 << 39, 1]), ("BF16", [1, 1 << 41]),
])
def test_huge_tensors_cost_no_more_than_their_sample(tmp_path, start, dtype, shape):
    """Terabytes of zeros: the memory of the server, mapped pages of the file included, grows by at most 64 MiB."""
    path = tmp_path / "root" / "huge.safetensors"
    write_sparse(path, dtype, shape)  # sparse: ext4 has files of up to 16 TiB
    age(tmp_path / "root")
    s = start(tmp_path / "root", binary=release_binary())
    s.json("/models/huge.safetensors/tensors")
    before = most_memory(s)
    for _ in range(3):
        got = stats(s, "huge.safetensors", "huge")
    assert (got["sampled"], got["zeros"], got["min"], got["max"], got["std"]) == (SAMPLE, SAMPLE, 0.0, 0.0, 0.0)
    assert got["histogram"]["counts"] == [SAMPLE]
    assert most_memory(s) - before < 64 << 20


def test_a_sample_maps_no_pages_around_it(tmp_path, start):
    """All of the file is in memory, where a fault would map the pages around the one that is read."""
    path = tmp_path / "root" / "cached.safetensors"
    write_sparse(path, "F32", [32, 1 << 21])
    assert len(path.read_bytes()) > 1 << 28
    age(tmp_path / "root")
    s = start(tmp_path / "root", binary=release_binary())
    s.json("/models/cached.safetensors/tensors")
    before = most_memory(s)
    assert stats(s, "cached.safetensors", "huge")["zeros"] == SAMPLE
    assert most_memory(s) - before < 32 << 20
