#!/usr/bin/env python3
"""Writes tests/data/onnx/: small models by the real onnx package, and beside each NAME.onnx a NAME.txt with what
onnx.numpy_helper.to_array reads from it, a line per initialiser: NAME|DTYPE|[SHAPE]|C|REASON|CRC32. CRC32 is that of the
elements, little-endian and packed as raw_data are; - where they are not served. The same bytes at every run.

    .venv/bin/python tests/data/make_onnx.py
"""
import pathlib
import zlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OUT = pathlib.Path(__file__).resolve().parent / "onnx"
WORDS = {
    "FLOAT": "F32", "UINT8": "U8", "INT8": "I8", "UINT16": "U16", "INT16": "I16", "INT32": "I32", "INT64": "I64",
    "STRING": "STRING", "BOOL": "BOOL", "FLOAT16": "F16", "DOUBLE": "F64", "UINT32": "U32", "UINT64": "U64",
    "COMPLEX64": "C64", "COMPLEX128": "C128", "BFLOAT16": "BF16", "FLOAT8E4M3FN": "F8_E4M3", "FLOAT8E4M3FNUZ":
    "F8_E4M3FNUZ", "FLOAT8E5M2": "F8_E5M2", "FLOAT8E5M2FNUZ": "F8_E5M2FNUZ", "UINT4": "U4", "INT4": "I4", "FLOAT4E2M1":
    "F4", "FLOAT8E8M0": "F8_E8M0", "UINT2": "U2", "INT2": "I2", "FLOAT6E2M3": "F6_E2M3", "FLOAT6E3M2": "F6_E3M2"
}
PACKED = {"U4": 4, "I4": 4, "F4": 4, "U2": 2, "I2": 2, "F6_E2M3": 6, "F6_E3M2": 6}  # bits of an element
KINDS = {number: name for name, number in TensorProto.DataType.items() if name != "UNDEFINED"}


def pattern(kind, shape, seed=0):
    """Elements whose bits depend on their position."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    count = int(np.prod(shape, dtype=np.int64))
    word = WORDS[KINDS[kind]]
    if word == "BOOL":
        return (np.arange(count) % 3 == seed % 3).reshape(shape)
    if word in PACKED:
        bits = PACKED[word]
        values = ((np.arange(count) * 5 + seed) % (1 << bits)).astype(np.uint8)
        if word in ("I4", "I2"):  # ml_dtypes keeps them with their sign
            values = np.where(values >> (bits - 1) != 0, values.astype(np.int16) - (1 << bits), values).astype(np.int8)
        return values.view(dtype).reshape(shape)
    raw = bytes((31 * i + 7 * (i >> 8) + 97 * seed + 1) % 251 for i in range(count * dtype.itemsize))
    if word in ("F16", "F32", "F64", "C64", "C128"):  # numbers, since make_tensor goes by way of them
        return (np.arange(count) * 1.5 + seed).astype(dtype).reshape(shape)
    return np.frombuffer(raw, dtype).reshape(shape)


def logical_bytes(tensor, base_dir=""):
    """The elements as to_array reads them, packed where raw_data would be: the first element in the lowest bits."""
    array = numpy_helper.to_array(tensor, base_dir)
    bits = PACKED.get(WORDS[KINDS[tensor.data_type]])
    if bits is None:
        return array.tobytes()
    stream = 0
    for i, value in enumerate(array.reshape(-1).view(np.uint8).tolist()):
        stream |= (value & ((1 << bits) - 1)) << (bits * i)
    return stream.to_bytes((array.size * bits + 7) // 8, "little")


def reason_of(tensor):
    """Why its bytes are not in one run of the file, by the fields that it has."""
    word = WORDS[KINDS[tensor.data_type]]
    if word == "STRING":
        return "strings"
    if any(len(getattr(tensor, field)) for field in ("int32_data", "int64_data", "uint64_data")):
        return "stored as protobuf numbers of variable length"
    if word in PACKED and int(np.prod(tensor.dims, dtype=np.int64)) % {4: 2, 2: 4, 6: 4}[PACKED[word]]:
        return "its last byte is not full"
    if tensor.data_location == TensorProto.EXTERNAL:
        return "stored in another file"
    return "-"


def line(name, word, dims, reason, crc):
    return f"{name}|{word}|[{','.join(map(str, dims))}]|C|{reason}|{crc}\n"


def describe(graph):
    lines = {}
    def add(name, tensor):
        reason = reason_of(tensor)
        crc = f"{zlib.crc32(logical_bytes(tensor)):08x}" if reason == "-" else "-"
        lines[name] = line(name, WORDS[KINDS[tensor.data_type]], tensor.dims, reason, crc)
    for tensor in graph.initializer:
        add(tensor.name, tensor)
    for sparse in graph.sparse_initializer:
        name = sparse.values.name
        lines[name] = line(name, WORDS[KINDS[sparse.values.data_type]], sparse.dims, "sparse", "-")
        add(f"{name}.values", sparse.values)
        add(f"{name}.indices", sparse.indices)
    return "".join(lines[name] for name in sorted(lines, key=str.encode))


def model(initializers, nodes=(), sparse=(), **fields):
    graph = helper.make_graph(list(nodes), "g", [], [], initializer=list(initializers), sparse_initializer=list(sparse))
    return helper.make_model(graph, producer_name="make_onnx", opset_imports=[helper.make_opsetid("", 23)],
                             ir_version=13, **fields)


def raw(name, kind, shape, seed=0):
    return numpy_helper.from_array(pattern(kind, shape, seed), name)


def typed(name, kind, shape, seed=0):
    """In the field of its type."""
    return helper.make_tensor(name, kind, shape, pattern(kind, shape, seed).reshape(-1))


def sparse(name):
    values = raw(name, TensorProto.FLOAT, [3])
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 5, 7]), "where"), [2, 5])


def branches():
    """A node with two graphs that have initialisers of their own, and one with a constant: neither is listed."""
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    bodies = [
        helper.make_graph([helper.make_node("Identity", [f"w{i}"], ["y"])], f"body{i}", [], [out],
                          [raw(f"w{i}", TensorProto.FLOAT, [2], i)]) for i in range(2)
    ]
    return [helper.make_node("If", ["c"], ["z"], then_branch=bodies[0], else_branch=bodies[1]),
            helper.make_node("Constant", [], ["k"], value=raw("k", TensorProto.FLOAT, [3]))]


def models():
    numbers = [kind for kind in KINDS if KINDS[kind] != "STRING"]
    yield "types_raw", model([raw(KINDS[kind].lower(), kind, [4, 6], kind) for kind in numbers])
    yield "types_typed", model([typed(KINDS[kind].lower(), kind, [2, 4], kind) for kind in numbers])
    yield "odd", model([raw(KINDS[kind].lower(), kind, [3], kind) for kind in numbers])
    shapes = [[], [5], [1], [0], [2, 0, 3], [1, 1, 1], [2, 3, 4], [1] * 64]
    yield "shapes", model([raw(f"s{i}", TensorProto.FLOAT, shape, i) for i, shape in enumerate(shapes)])
    yield "strings", model(
        [helper.make_tensor("t", TensorProto.STRING, [2], [b"a", "\u00e4".encode()]),
         raw("w", TensorProto.FLOAT, [2])])
    yield "sparse", model([raw("w", TensorProto.FLOAT, [2])], sparse=[sparse("s")])
    yield "nodes", model([raw("c", TensorProto.BOOL, [1])], nodes=branches())
    full = model([raw("w", TensorProto.INT8, [3])], producer_version="1.0", domain="org.example", model_version=-3,
                 doc_string="a \u00e4 b")
    full.opset_import.append(helper.make_opsetid("ai.onnx.ml", 5))
    helper.set_model_props(full, {"license": "none", "long": "\u00e4" * 3000})
    yield "metadata", full
    yield "empty", model([])
    outside = model(
        [raw("a", TensorProto.FLOAT, [3, 4]),
         raw("b", TensorProto.INT64, [5], 2),
         raw("c", TensorProto.INT4, [3])])
    for i, tensor in enumerate(outside.graph.initializer):
        onnx.external_data_helper.set_external_data(tensor, f"sub/data.{i % 2}", offset=4096 * i,
                                                    length=len(tensor.raw_data))
        tensor.ClearField("raw_data")
    yield "external", outside


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for name, proto in models():
        (OUT / f"{name}.onnx").write_bytes(proto.SerializeToString(deterministic=True))
        (OUT / f"{name}.txt").write_text(describe(proto.graph))
