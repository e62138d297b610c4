"""h5py and Keras write, tensord inspects: names, dtypes, shapes and every byte must agree with what h5py reads."""
import ctypes
import json
import os
import subprocess
from pathlib import Path

import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
import h5py  # noqa: E402
import numpy as np  # noqa: E402

from harness import SANITIZER_MARKS, Server, tensord_binary  # noqa: E402

PLAIN = {
    "u1": "U8", "i1": "I8", "u2": "U16", "i2": "I16", "u4": "U32", "i4": "I32", "u8": "U64", "i8": "I64", "f2": "F16",
    "f4": "F32", "f8": "F64", "f16": "F128", "c8": "C64", "c16": "C128", "c32": "C256", "b1": "BOOL"
}


def inspect(path):
    p = subprocess.run(
        [str(tensord_binary()), "inspect", "--json", str(path)], capture_output=True, text=True, timeout=60)
    for mark in SANITIZER_MARKS:
        assert mark not in p.stderr, p.stderr[:4000]
    return p.returncode, json.loads(p.stdout) if p.returncode == 0 else None, p.stderr


def datasets(f):
    """Return name -> dataset for every path of hard links, each group once, breadth first, as tensord walks."""
    found, queue, seen = {}, [("", f)], {h5py.h5o.get_info(f.id).addr}
    for path, group in queue:
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            full, o = f"{path}/{name}".lstrip("/"), group[name]
            if isinstance(o, h5py.Dataset):
                found[full] = o
            elif isinstance(o, h5py.Group) and h5py.h5o.get_info(o.id).addr not in seen:
                seen.add(h5py.h5o.get_info(o.id).addr)
                queue.append((full, o))
    return found


def check(path, at_least=1):
    """Check that addressable datasets have h5py's bytes, and that contiguous, plain and allocated datasets are
    addressable."""
    code, doc, err = inspect(path)
    assert code == 0, err
    raw = path.read_bytes()
    got = {t["name"]: t for t in doc["tensors"]}
    served = 0
    with h5py.File(path) as f:
        want = datasets(f)
        assert set(want) <= set(got), set(want) - set(got)
        for name, d in want.items():
            t = got[name]
            assert tuple(t["shape"]) == (d.shape or ()), name
            plist = d.id.get_create_plist()
            plain = d.dtype.str.lstrip(
                "<|") in PLAIN and d.dtype.names is None and d.id.get_type().get_class() != h5py.h5t.ENUM
            bfloat16 = d.attrs.get("dtype") == "bfloat16"
            if plain:
                assert t["dtype"] == PLAIN[d.dtype.str.lstrip("<|")], name
            expected = ((plain or bfloat16) and plist.get_layout() == h5py.h5d.CONTIGUOUS and
                        not plist.get_external_count() and d.shape is not None and
                        (d.size == 0 or d.id.get_storage_size() > 0))
            addressable = t.get("addressable", True)
            if expected:
                assert addressable, f"{name}: {t}"
            if not addressable:
                assert t["reason"]
                continue
            if "stored" in t: # test_decoded.py has the bytes
                assert "offset" not in t and t["access"] in ("gathered", "swapped", "decoded"), t
                served += 1
                continue
            served += 1
            assert t["nbytes"] == d.size * d.id.get_type().get_size(), name
            if d.size:
                assert t["offset"] == d.id.get_offset(), name
                stored = np.frombuffer(raw, np.asarray(d[()]).dtype, d.size, t["offset"]).reshape(d.shape)
                if t["dtype"] == "F128":  # six bytes of padding have any value
                    assert np.array_equal(stored, d[()]), name
                else:
                    assert stored.tobytes() == np.asarray(d[()]).tobytes(), name
    assert served >= at_least
    return doc


LIBVERS = ["earliest", "v108", "v110", "v112", "v114", "latest"]


@pytest.mark.parametrize("libver", LIBVERS)
@pytest.mark.parametrize("userblock", [0, 512, 4096])
def test_every_plain_type(tmp_path, libver, userblock):
    path = tmp_path / "types.h5"
    with h5py.File(path, "w", libver=libver if libver in ("earliest", "latest") else (libver, libver),
                   userblock_size=userblock) as f:
        for i, t in enumerate(
            ["u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8", "<g", "<c8", "<c16", "?"]):
            f[f"types/{i}"] = (np.arange(30) * 7 % 50).reshape(2, 3, 5).astype(t)
            f[f"scalars/{i}"] = np.ones((), t)
            f[f"zero/{i}"] = np.zeros((3, 0), t)
        for t in (">f4", ">i2"):
            f[f"big/{t[1:]}"] = np.arange(3).astype(t)
    doc = check(path, 45)
    assert {t["dtype"] for t in doc["tensors"] if t["name"].startswith("types/")} == set(PLAIN.values()) - {"C256"}
    for t in doc["tensors"]:
        if t["name"].startswith("big/"):
            assert t["access"] == "swapped" and t["stored"] == "big-endian" and "offset" not in t


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 40, 500, 3000])
def test_groups_of_every_size(tmp_path, libver, count):
    """Compact and dense links, B-trees of several levels, fractal heaps with indirect blocks."""
    path = tmp_path / "many.h5"
    with h5py.File(path, "w", libver=libver) as f:
        g = f.create_group("group")
        for i in range(count):
            g[f"{'long ' * (i % 30)}name {i * 7919 % 100003}"] = np.full(3, i, "<i4")
    assert len(check(path, count)["tensors"]) == count


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_attributes(tmp_path, libver):
    path = tmp_path / "attributes.h5"
    values = {"text": "hëllo", "int": 7, "negative": -3, "float": 0.1, "names": ["a", "bb"], "yes": True}
    with h5py.File(path, "w", libver=libver) as f:
        f["group/w"] = np.zeros(2, "<f4")
        for o in (f, f["group"]):
            for k, v in values.items():
                o.attrs[k] = v
            for i in range(30):
                o.attrs[f"n{i}"] = [f"item {j} of {i}" for j in range(i)]
    got = check(path)["metadata"]
    for prefix in ("", "group@"):
        for k, v in values.items():
            assert got[prefix + k] == v, k
        for i in range(1, 30):
            assert got[f"{prefix}n{i}"] == [f"item {j} of {i}" for j in range(i)]


def test_grown_and_shrunken(tmp_path):
    """Headers with continuations, groups that went from compact to dense and back, deleted objects."""
    for libver in ("earliest", "latest"):
        path = tmp_path / f"{libver}.h5"
        with h5py.File(path, "w", libver=libver) as f:
            for i in range(50):
                f[f"d{i}"] = np.full(i, i, "<i2")
        with h5py.File(path, "r+", libver=libver) as f:
            for i in range(0, 50, 2):
                del f[f"d{i}"]
            for i in range(20):
                f["d1"].attrs[f"attribute {i}"] = "x" * i
                f[f"new/{i}"] = np.full(4, i, "<f8")
        check(path, 45)
        with h5py.File(path, "r+", libver=libver) as f:
            for i in range(1, 48, 2):
                del f[f"d{i}"]
        check(path, 20)


def model(keras):
    return keras.Sequential(
        [keras.layers.Input((8, )),
         keras.layers.Dense(4),
         keras.layers.BatchNormalization(),
         keras.layers.Dense(2)])


@pytest.mark.parametrize("policy", ["float32", "float16", "bfloat16"])
def test_keras_weights(tmp_path, policy):
    import keras
    keras.config.set_dtype_policy(policy)
    m = model(keras)
    path = tmp_path / "m.weights.h5"
    m.save_weights(path)
    doc = check(path, 8)
    assert {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[policy] in {t["dtype"] for t in doc["tensors"]}
    raw = path.read_bytes()
    first = next(t for t in doc["tensors"] if t["name"].endswith("dense/vars/0"))
    want = keras.ops.convert_to_numpy(keras.ops.cast(m.layers[0].kernel, "float32"))
    bits = np.frombuffer(raw, {"float16": "<f2", "bfloat16": "<u2"}.get(policy, "<f4"), 32, first["offset"])
    got = (bits.astype("<u4") << 16).view("<f4") if policy == "bfloat16" else bits.astype("<f4")
    assert np.array_equal(got.reshape(8, 4), want)
    keras.config.set_dtype_policy("float32")


def test_keras_legacy_model(tmp_path):
    import keras
    m = model(keras)
    m.compile("adam", "mse")
    path = tmp_path / "m.h5"
    m.save(path)
    doc = check(path, 8)
    assert doc["metadata"]["keras_version"] == keras.__version__
    with h5py.File(path) as f:
        config = f.attrs["model_config"]
    shown = doc["metadata"]["model_config"]
    assert shown == (config if len(config) <= 4096 else {"length": len(config), "first": config[:4096]})
    names = [layer.name for layer in m.layers]
    assert doc["metadata"]["model_weights@layer_names"] == names


def test_keras_2_layout(tmp_path):
    """The layout of Keras 2: layer_names at the root, weight_names at every layer."""
    path = tmp_path / "k2.h5"
    with h5py.File(path, "w") as f:
        f.attrs["layer_names"] = [b"dense", b"dense_1"]
        f.attrs["backend"], f.attrs["keras_version"] = b"tensorflow", b"2.15.0"
        for layer in ("dense", "dense_1"):
            f.create_group(layer).attrs["weight_names"] = [f"{layer}/kernel:0".encode(), f"{layer}/bias:0".encode()]
            f[f"{layer}/{layer}/kernel:0"] = np.arange(12, dtype="<f4").reshape(3, 4)
            f[f"{layer}/{layer}/bias:0"] = np.arange(4, dtype="<f4")
    doc = check(path, 4)
    assert doc["metadata"]["layer_names"] == ["dense", "dense_1"]
    assert doc["metadata"]["dense_1@weight_names"] == ["dense_1/kernel:0", "dense_1/bias:0"]
    assert doc["metadata"]["backend"] == "tensorflow"


def type_of(base, precision=None, offset=None):
    """A copy of a type of libhdf5, with another precision and offset, for which h5py has no names."""
    made = base.copy()
    library = ctypes.CDLL(next(Path(h5py.__file__).parent.parent.glob("h5py.libs/libhdf5-*.so*")))
    for value, change in ((precision, library.H5Tset_precision), (offset, library.H5Tset_offset)):
        change.argtypes = [ctypes.c_int64, ctypes.c_size_t]
        assert value is None or change(made.id, value) >= 0
    return made


def add_typed(f, name, made, array):
    """Write the array's bytes as a dataset of this type."""
    library = ctypes.CDLL(next(Path(h5py.__file__).parent.parent.glob("h5py.libs/libhdf5-*.so*")))
    library.H5Dwrite.argtypes = [ctypes.c_int64] * 5 + [ctypes.c_void_p]
    d = h5py.h5d.create(f.id, name.encode(), made, h5py.h5s.create_simple(array.shape))
    assert library.H5Dwrite(d.id, made.id, 0, 0, 0, array.tobytes()) >= 0


def test_bit_fields_are_unsigned_integers(tmp_path):
    """As h5py reads them; bit fields with unused bits have a reason, and h5py cannot read them."""
    path = tmp_path / "bits.h5"
    with h5py.File(path, "w") as f:
        for bits in (8, 16, 32, 64):
            for order in ("LE", "BE")[:1 if bits == 8 else 2]:
                add_typed(f, f"b{bits}{order}", getattr(h5py.h5t, f"STD_B{bits}{order}"),
                          np.frombuffer(bytes(range(3, 243)), f"u{bits // 8}").reshape(5, -1))
        add_typed(f, "part12", type_of(h5py.h5t.STD_B16LE, 12), np.arange(6, dtype="u2"))
        add_typed(f, "part8", type_of(h5py.h5t.STD_B16LE, 8, 4), np.arange(6, dtype="u2"))
    code, doc, err = inspect(path)
    assert code == 0, err
    got = {t["name"]: t for t in doc["tensors"]}
    with h5py.File(path) as f, Server(tmp_path) as server:
        for name in f:
            if name.startswith("part"):
                assert got[name]["reason"] == "bit fields of an unusual size"
                with pytest.raises(OSError):
                    f[name][...]
                continue
            want = f[name][...]
            assert got[name]["dtype"] == PLAIN[want.dtype.str.lstrip("<>|")], name
            assert got[name].get("stored") == ("big-endian" if name.endswith("BE") else None)
            body = server.get(f"/models/bits.h5/tensors/{name}").body
            assert body == want.astype(want.dtype.newbyteorder("<")).tobytes(), name


def test_booleans_in_either_order(tmp_path):
    """h5py takes an enumeration of FALSE = 0 and TRUE = 1 for booleans, in whatever order it names them."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        for name, members in (("plain", {"FALSE": 0, "TRUE": 1}), ("reversed", {"TRUE": 1, "FALSE": 0}),
                              ("swapped", {"FALSE": 1, "TRUE": 0}), ("three", {"FALSE": 0, "TRUE": 1, "BOTH": 2})):
            made = h5py.h5t.enum_create(h5py.h5t.STD_I8LE)
            for member, value in members.items():
                made.enum_insert(member.encode(), value)
            add_typed(f, name, made, np.array([0, 1, 1, 0], "i1"))
    doc = inspect(path)[1]
    with h5py.File(path) as f:
        for t in doc["tensors"]:
            assert t["dtype"] == PLAIN[f[t["name"]].dtype.str.lstrip("|")], t


def test_types_that_are_no_numbers_have_a_reason(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        add_typed(f, "opaque type", h5py.h5t.create(h5py.h5t.OPAQUE, 4), np.arange(3, dtype="u4"))
        add_typed(f, "array type", h5py.h5t.array_create(h5py.h5t.IEEE_F32LE, (2, )), np.arange(3, dtype="u8"))
        add_typed(f, "time type", h5py.h5t.UNIX_D32LE, np.arange(3, dtype="u4"))
        add_typed(f, "integer of an unusual size", type_of(h5py.h5t.STD_I32LE, 24), np.arange(3, dtype="u4"))
        f["compound type"] = np.zeros(2, [("a", "<i4"), ("b", "<f4")])
        f["references"] = np.array([f["compound type"].ref], h5py.ref_dtype)
        f.create_dataset("variable-length type", (2, ), h5py.vlen_dtype("<i4"))[0] = [1, 2]
        f["strings"] = np.array([b"a", b"bc"])
        f["variable-length strings"] = "x"
    for t in inspect(path)[1]["tensors"]:
        assert t["reason"] == t["name"] and not t["addressable"], t
