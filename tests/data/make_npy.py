#!/usr/bin/env python3
"""Writes tests/data/npy/ and tests/data/npz/ with NumPy, and beside each file what NumPy reads from it again, a line per
array: NAME DTYPE [SHAPE] ORDER REASON CRC32. CRC32 is that of the elements in row-major order; - where they are not
served. The same bytes at every run.

    .venv/bin/python tests/data/make_npy.py
"""
import io
import pathlib
import zipfile
import zlib

import numpy as np
from numpy.lib import format as npy_format

HERE = pathlib.Path(__file__).resolve().parent

PLAIN = {
    "b1": "BOOL", "i1": "I8", "i2": "I16", "i4": "I32", "i8": "I64", "u1": "U8", "u2": "U16", "u4": "U32", "u8": "U64",
    "f2": "F16", "f4": "F32", "f8": "F64", "f16": "F128", "c8": "C64", "c16": "C128", "c32": "C256"
}


def pattern(dtype, shape):
    """Position-dependent bytes; no padding bytes that a copy may lose."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if dtype.kind == "b":
        return (np.arange(count) % 3 == 0).reshape(shape)
    if dtype.str in ("<f16", "<c32"):  # ten bytes of each sixteen are used; the others are whatever was there
        array = (np.arange(count) * (1 if dtype.kind == "f" else 1 + 2j)).astype(dtype)
        array.view("u1").reshape(-1, 16)[:, 10:] = 0
        return array.reshape(shape)
    if dtype.kind == "c":
        return (np.arange(count) * (1 + 2j)).astype(dtype).reshape(shape)
    if dtype.kind in "SU":
        return np.array([str(i) for i in range(count)], dtype).reshape(shape)
    if dtype.kind in "mMfiu":
        return (np.arange(count) % 120 + 1).astype(dtype).reshape(shape)
    raw = bytes((7 * i + 1) % 256 for i in range(count * dtype.itemsize))
    return np.frombuffer(raw, dtype).reshape(shape).copy()


def describe(name, array, compressed=False):
    """What the manifest must say of an array that numpy.load gave out."""
    dtype, reason = array.dtype, "-"
    kind = f"{dtype.kind}{dtype.itemsize}"
    if dtype.hasobject:
        word, reason = "OBJECT", "pickled objects"
    elif dtype.names is not None:
        word, reason = "COMPOUND", "structured"
    elif dtype.kind in "SU":
        word, reason = "STRING", "strings"
    elif dtype.kind == "V":
        word, reason = "OPAQUE", "opaque"
    else:
        word = {"M8": "DATETIME64", "m8": "TIMEDELTA64"}.get(kind) or PLAIN[kind]
        if dtype.byteorder == ">":
            reason = "big-endian"
    if compressed and reason in ("-", "big-endian"):
        reason = "compressed (deflate)"
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    crc = f"{zlib.crc32(np.ascontiguousarray(array).tobytes()):08x}" if reason == "-" else "-"
    return f"{name}|{word}|[{','.join(map(str, array.shape))}]|{order}|{reason}|{crc}\n"


def npy_files():
    for kind in PLAIN:
        yield f"type_{kind}", pattern(kind, (3, 4)), None
    for i, shape in enumerate([(), (5,), (1,), (0,), (2, 0, 3), (1, 1, 1), (2, 3, 4), (1,) * 64]):
        yield f"shape_{i}", pattern("f4", shape), None
    for i, shape in enumerate([(2, 3), (2, 3, 4), (3, 1, 2), (0, 3), (1, 5), (4,)]):
        yield f"fortran_{i}", np.asfortranarray(pattern("i2", shape)), None
    for name, dtype in [("big_f4", ">f4"), ("big_i2", ">i2"), ("text_s5", "S5"), ("text_u3", "U3"), ("text_big", ">U3"),
                        ("void_2", "V2"), ("void_7", "V7"), ("time", "M8[ns]"), ("span", "m8[10D]"),
                        ("time_plain", "M8"), ("time_big", ">M8[s]")]:
        yield name, pattern(dtype, (4,)), None
    yield "struct", pattern([("a", "<f4"), ("b", "i1", (2, 3))], (3,)), None
    yield "struct_padded", pattern(np.dtype({"names": ["a", "b"], "formats": ["<f4", "i1"], "offsets": [0, 8]}),
                                   (3, )), None
    yield "struct_nested", pattern([("a", [("x", "<f4"), ("y", [("z", "u1")], (2, ))]), ("it's \\ \"", "S3")],
                                   (3, )), None
    yield "struct_title", pattern([(("a title", "a"), "<f4")], (2,)), None
    yield "struct_latin", pattern([("\u00e9", "<f4")], (2,)), None
    yield "struct_utf8", pattern([("\u65e5\u672c", "<f4")], (2,)), None  # version 3.0 by itself
    yield "struct_empty", np.zeros(2, np.dtype([])), None
    yield "struct_fortran", np.asfortranarray(pattern([("a", "<f4"), ("b", "u1")], (2, 3))), None
    for version in [(1, 0), (2, 0), (3, 0)]:
        yield f"version_{version[0]}", pattern("f4", (3, 4)), version


def write_npy():
    folder = HERE / "npy"
    for name, array, version in npy_files():
        out = io.BytesIO()
        npy_format.write_array(out, array, version=version)
        (folder / f"{name}.npy").write_bytes(out.getvalue())
        out.seek(0)
        (folder / f"{name}.txt").write_text(describe("", np.load(out)), encoding="utf-8")
    # Objects: their pickle is not loaded here either.
    objects = np.array([1, "two", None], object)
    np.save(folder / "objects.npy", objects, allow_pickle=True)
    (folder / "objects.txt").write_text(describe("", objects))


def write_npz():
    folder = HERE / "npz"
    arrays = {
        "w": pattern("f4", (3, 4)), "W": pattern("i8", (2, )), "layer.0.bias": pattern("f2", (5, )), "fortran":
        np.asfortranarray(pattern("f8", (2, 3))), "zero": pattern("f4", (0, 2)), "scalar": pattern("f8", ()), "big":
        pattern(">i4", (3, )), "text": pattern("U4", (2, )), "dir/x": pattern("u1", (3, )), "d\u00e9j\u00e0":
        pattern("u1", (2, )), "": pattern("u1", (4, ))
    }
    for name, save, compressed in [("plain", np.savez, False), ("compressed", np.savez_compressed, True)]:
        path = folder / f"{name}.npz"
        save(path, **arrays)
        again = np.load(path)
        assert sorted(again.files) == sorted(arrays)
        lines = [describe(key, again[key], compressed) for key in sorted(arrays, key=str.encode)]
        (folder / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    np.savez(folder / "unnamed.npz", **{"": arrays["w"]})
    (folder / "unnamed.txt").write_text(describe("", np.load(folder / "unnamed.npz")[""]))
    np.savez(folder / "empty.npz")
    (folder / "empty.txt").write_text("")
    # Members that are no arrays: numpy gives them out as bytes.
    path = folder / "mixed.npz"
    with zipfile.ZipFile(path, "w") as z:
        for key, method in [("a", 0), ("b", 8)]:
            out = io.BytesIO()
            np.save(out, arrays["w"])
            z.writestr(zipfile.ZipInfo(key + ".npy"), out.getvalue(), method)
        z.writestr(zipfile.ZipInfo("readme.txt"), b"not an array")
        z.writestr(zipfile.ZipInfo("short"), b"\x93NUM")
        z.writestr(zipfile.ZipInfo("bare"), out.getvalue())
    again = np.load(path)
    assert isinstance(again["readme.txt"], bytes) and isinstance(again["short"], bytes)
    (folder / "mixed.txt"
     ).write_text(describe("a", again["a"]) + describe("b", again["b"], True) + describe("bare", again["bare"]))


if __name__ == "__main__":
    for each in ["npy", "npz"]:
        for old in (HERE / each).glob("*"):
            old.unlink()
    write_npy()
    write_npz()
