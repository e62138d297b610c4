"""NumPy writes, tensord inspects: names, types, shapes, strides and every byte must be as numpy.load reads them."""
import io
import warnings

import ml_dtypes
import numpy as np
import pytest
from numpy.lib import format as npy_format

from test_safetensors import inspect_each, inspect_json

PLAIN = {
    "|b1": "BOOL", "|i1": "I8", "<i2": "I16", "<i4": "I32", "<i8": "I64", "|u1": "U8", "<u2": "U16", "<u4": "U32",
    "<u8": "U64", "<f2": "F16", "<f4": "F32", "<f8": "F64", "<f16": "F128", "<c8": "C64", "<c16": "C128", "<c32":
    "C256", "<M8[ns]": "DATETIME64", "<M8": "DATETIME64", "<M8[25s]": "DATETIME64", "<m8[D]": "TIMEDELTA64", "<m8[3as]":
    "TIMEDELTA64"
}
UNSERVED = {
    ">i2": ("I16", "big-endian"), ">f8": ("F64", "big-endian"), ">c8": ("C64", "big-endian"), ">M8[D]":
    ("DATETIME64", "big-endian"), "|S7": ("STRING", "strings"), "<U3": ("STRING", "strings"), ">U3":
    ("STRING", "strings"), "|S1": ("STRING", "strings"), "|V2": ("OPAQUE", "opaque"), "|V5": ("OPAQUE", "opaque")
}
SHAPES = [(), (1,), (7,), (0,), (3, 5), (2, 3, 4), (2, 0, 3), (1, 4, 1), (1,) * 64]


def pattern(dtype, shape):
    """Return values of a type whose bytes depend on their position; booleans are 0 and 1."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    raw = bytearray((11 * i + 3) % 251 for i in range(count * dtype.itemsize))
    if dtype.kind == "b":
        raw = bytes(b % 2 for b in raw)
    if dtype.kind == "U":
        return np.array([str(i % 10) for i in range(count)], dtype).reshape(shape)
    return np.frombuffer(bytes(raw), dtype).reshape(shape)


def served(path, tensor, dtype):
    """Return the tensor as an array over the file's bytes, at the place that the manifest gives."""
    strides = tensor.get("strides")
    if strides is not None:
        strides = [s * dtype.itemsize for s in strides]
    return np.ndarray(tensor["shape"], dtype, path.read_bytes(), tensor["offset"], strides) \
        if 0 not in tensor["shape"] else np.empty(tensor["shape"], dtype)


def check(path, tensor, array, compressed=False):
    """Compare one tensor of a manifest with that of numpy.load."""
    descr = array.dtype.str
    word, reason = UNSERVED.get(descr) or (PLAIN[descr], None)
    if reason == "big-endian" or (compressed and reason is None): # how it is stored
        assert "reason" not in tensor and "offset" not in tensor, tensor
        reason = "compressed (deflate)" if compressed else reason
        assert (tensor["access"], tensor["stored"]) == ("decoded" if compressed else "swapped", reason), tensor
    else:
        assert tensor.get("reason") == reason, tensor
    assert (tensor["dtype"], tuple(tensor["shape"])) == (word, array.shape), tensor
    if word not in ("STRING", "OPAQUE"):
        assert tensor["nbytes"] == array.nbytes
    if reason is None:
        got = served(path, tensor, array.dtype)
        assert got.tobytes() == array.tobytes(), f"{path}: {tensor}"
        assert array.flags.c_contiguous or tensor["strides"] == [s // array.itemsize for s in array.strides]


@pytest.mark.parametrize("descr", [*PLAIN, *UNSERVED])
def test_npz_of_every_type_shape_and_order(tmp_path, descr):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays = {
            f"{order}.{'x'.join(map(str, shape)) or 'scalar'}"[:40]: np.asarray(pattern(descr, shape), order=order)
            for shape in SHAPES for order in "CF"
        }
        for save, compressed in [(np.savez, False), (np.savez_compressed, True)]:
            path = tmp_path / f"{save.__name__}.npz"
            save(path, **arrays)
            tensors = {t["name"]: t for t in inspect_json(path)["tensors"]}
            with np.load(path) as again:
                assert sorted(tensors) == sorted(again.files)
                for name in again.files:
                    check(path, tensors[name], again[name], compressed)


@pytest.mark.parametrize("descr", ["<f4", "|b1", "<c16", "<f16", ">i2", "|S7"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_of_every_version(tmp_path, descr, version):
    for i, array in enumerate(
        [pattern(descr, (3, 5)),
         np.asfortranarray(pattern(descr, (2, 3, 4))),
         pattern(descr, ())]):
        path = tmp_path / f"model{i}.npy"
        with open(path, "wb") as f:
            npy_format.write_array(f, array, version=version)
        document = inspect_json(path)
        assert document["tensor_count"] == 1
        check(path, document["tensors"][0], np.load(path))


@pytest.mark.parametrize("name",
                         ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "float4_e2m1fn", "float8_e8m0fnu"])
def test_types_that_npy_has_no_word_for(tmp_path, name):
    """Saved as void or, for float8_e5m2, as <f1, which NumPy itself refuses to read."""
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(6, getattr(ml_dtypes, name)))
    tensor = inspect_json(path)["tensors"][0]
    assert (tensor["dtype"], tensor["shape"], tensor["reason"]) == ("OPAQUE", [6], "opaque")


STRUCTS = [
    np.dtype([("a", "<f4"), ("b", "i1", (2, 3))]),
    np.dtype({"names": ["a", "b"], "formats": ["<f4", "i1"], "offsets": [0, 8]}),
    np.dtype([("a", [("x", "<f4"), ("y", [("z", "u1")], (2, ))]), ("it's \\ \"", "S3")]),
    np.dtype([(("title", "a"), "<f4")]),
    np.dtype([("\u00e9", "<f4")]),
    np.dtype([("\u65e5\u672c", "<f4"), ("\U0001f600", "<M8[us]")]),
    np.dtype([]),
    np.dtype([("a", "O"), ("b", "<f4")]),
    np.dtype([("a", ">f4")]),
    np.dtype([("n" * 3000, "<f4"), ("m", "<i8")], align=True),
    np.dtype([(f"f{i}", "<f4") for i in range(300)]),
]


@pytest.mark.parametrize("dtype", STRUCTS, ids=range(len(STRUCTS)))
def test_structured_and_object_types_are_listed(tmp_path, dtype):
    for order in "CF":
        path = tmp_path / f"{order}.npy"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.save(path, np.zeros((3, 2), dtype, order=order), allow_pickle=True)
        tensor = inspect_json(path)["tensors"][0]
        assert (tensor["dtype"], tensor["shape"], tensor["reason"]) == ("COMPOUND", [3, 2], "structured")
    np.save(path, np.array([[1], None, {}], object), allow_pickle=True)
    tensor = inspect_json(path)["tensors"][0]
    assert (tensor["dtype"], tensor["shape"], tensor["reason"]) == ("OBJECT", [3], "pickled objects")


def npy(header, version=1, data=64, pad=True):
    """Write a file with this header, as it is or padded as NumPy does."""
    text = header if isinstance(header, bytes) else header.encode("utf-8" if version == 3 else "latin1")
    prefix = 10 if version == 1 else 12
    if pad:
        text += b" " * (-(prefix + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(prefix - 8, "little") + text + bytes(data)


def head(descr="'<f4'", order="False", shape="(2, 3)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


DESCRS = [
    "'<f4'", "'f4'", "'=f4'", "'|f4'", "'>f4'", "'>i1'", "'<b1'", "'O'", "'|O8'", "'<f3'", "'<f12'", "'<i16'", "'<f4 '",
    "''", "'<'", "'|V0'", "'S0'", "'<M8[foo]'", "'<M8[]'", "'<M8[10D]'", "'<m4'", "'<M8[ns'", "'|S5'", "'|S99'",
    "'<c64'", "'<x4'", "None", "4", "['<f4']", "[('a',)]", "[('a', '<f4')]", "[('a', '<f4', 2)]",
    "[('a', '<f4', (2, 1))]", "[('a', '<f4', (2, 3))]", "[('a', '<f4'), ('b', [('c', '<i2')])]", "[,]", "[]",
    "[('a', '<f4'),,]", "[('a', 'O')]", "[('a', '<f3')]", "('<f4', (2,))", "__import__('os').system('true')"
]
SHAPE_TEXTS = [
    "()", "(2,)", "(2, 3)", "(2, 3,)", "(2)", "2", "[2]", "(2 3)", "(,)", "(-1,)", "(-1, -6)", "(2.0,)", "('2',)",
    "(16,)", "(17,)", "(0,)", "(0, 5)", "(4294967296, 4294967296)", "(4611686018427387904, 4)", "(2L, 3L)", "(2 L,)",
    "(2LL,)", "(02,)", "None", "(" + "1," * 64 + ")", "(" + "1," * 65 + ")"
]
BAD = ([npy(head(descr=d)) for d in DESCRS] + [npy(head(shape=s), v) for s in SHAPE_TEXTS for v in (1, 2, 3)] + [
    npy(head(order=o)) for o in ["True", "False", "0", "None", "'True'", "true"]
] + [
    npy(h)
    for h in [
        "", "{}", "[]", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}",
        '{"shape":(2,3),"descr":"<f4","fortran_order":False}', "{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}",
        head() + " x",
        head() + head(), "__import__('os').system('true')", "{'descr: '<f4'}",
        head()[:-1],
        head().replace("}", "]")
    ]
] + [npy(head(), data=n) for n in (0, 23, 24, 25, 100)] + [npy(head(), v, pad=False) for v in (1, 2, 3)] +
       [npy(head().ljust(n), v, pad=False) for n in (10000, 10001)
        for v in (1, 2, 3)] + [npy(head())[:n] for n in (0, 5, 6, 8, 9, 10, 11, 50, 127, 128, 151, 152)] +
       [b"\x93NUMPX" + npy(head())[6:], npy(head(), 4)] + [
           b"\x93NUMPY\x01\x01" + npy(head())[8:], b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
           npy(b"\xff" + head().encode(), 3),
           npy(b"\0" + head().encode())
       ])
# Only tensord: arrays that numpy.load cannot return are listed with a reason; files that nothing writes are refused.
LISTED = ["OBJECT", "COMPOUND"]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    return inspect_each(tmp_path_factory.mktemp("npy"), "x.npy", BAD)


@pytest.mark.parametrize("number", range(len(BAD)))
def test_verdicts_are_numpys(verdicts, number):
    data = BAD[number]
    path, tensors, err = verdicts[number]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            array = np.load(io.BytesIO(data))
        except Exception as e:  # numpy.load raises many kinds of exceptions
            array, why = None, e
    if array is None:
        if tensors is not None:
            assert tensors["x"]["dtype"] in LISTED and "allow_pickle" in str(
                why), f"{data[:200]}: NumPy says {why}"
    else:
        assert tensors is not None, f"{data[:200]}: {err}"
        tensor = tensors["x"]
        assert tuple(tensor["shape"]) == array.shape
        if "reason" not in tensor and "stored" not in tensor:
            assert served(path, tensor, array.dtype).tobytes() == array.tobytes()
