#!/usr/bin/env python3
"""Writes tests/data/gguf/: files by the real GGUFWriter (and by hand what it cannot write), and beside each, NAME.txt:
what the real GGUFReader says of it, in the lines that tests/unit/parser/test_gguf.c makes of a manifest. Deterministic.

    .venv/bin/python tests/data/make_gguf.py"""

import json
import logging
import pathlib
import struct

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value
from gguf.constants import GGML_QUANT_SIZES

HERE = pathlib.Path(__file__).resolve().parent / "gguf"
SHOWN_ITEMS, SHOWN_BYTES = 64, 4096


def pattern(count, seed):
    """Bytes that tell their own position, so that a wrong offset shows."""
    i = np.arange(count, dtype=np.uint64)
    return ((i * 7 + i // 251 + seed * 13 + 1) % 256).astype(np.uint8)


def writer(name, **options):
    return gguf.GGUFWriter(HERE / name, "llama", **options)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def add_raw(w, name, kind, shape, seed):
    """A tensor of any type with bytes of our own: shape in elements, outermost first."""
    elems, size = GGML_QUANT_SIZES[kind]
    rows = [*shape[:-1], shape[-1] // elems * size]
    data = pattern(int(np.prod(rows)), seed).reshape(rows)
    w.add_tensor(name, data, raw_dtype=kind)


def write_types():
    """Every type that the package knows, two rows of one block; shapes of every rank. Not Q8_1: its blocks have 36 bytes
    (ggml-common.h, block_q8_1: two halves and 32 bytes), and the package says 40."""
    w = writer("types.gguf")
    for i, kind in enumerate(Type):
        if kind not in (Type.F32, Type.Q8_0, Type.Q8_1):
            add_raw(w, "type." + kind.name, kind, [2, GGML_QUANT_SIZES[kind][0]], i)
    w.add_tensor("one", np.array([1.5], np.float32))
    w.add_tensor("four", np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5))
    w.add_tensor("three", np.arange(24, dtype=np.int16).reshape(2, 3, 4))
    rng = np.random.default_rng(1)
    w.add_tensor("q8", gguf.quants.quantize(rng.random((3, 64), np.float32), Type.Q8_0), raw_dtype=Type.Q8_0)
    finish(w)


def write_values():
    w = writer("values.gguf")
    for kind, low, high in (("uint8", 0, 255), ("int8", -128, 127), ("uint16", 0, 65535), ("int16", -32768, 32767),
                            ("uint32", 0, 2**32 - 1), ("int32", -2**31, 2**31 - 1), ("uint64", 0, 2**64 - 1),
                            ("int64", -2**63, 2**63 - 1)):
        getattr(w, "add_" + kind)(kind + ".low", low)
        getattr(w, "add_" + kind)(kind + ".high", high)
        w.add_key_value(kind + ".array", [low, high, 1], Value.ARRAY, sub_type=Value[kind.upper()])
    reals = [0.0, -0.0, 1.0, -1.5, 0.1, 1e-5, 10000.0, 500000.0, 1e-4, 0.00012345, 123456.78, 1e15, 1e16, 3.0e38, 1e-40,
             16777216.0, 3.1415927, float("nan"), float("inf"), float("-inf")]
    for i, value in enumerate(reals):
        w.add_float32("f32.%02d" % i, value)
        w.add_float64("f64.%02d" % i, value)
    w.add_float64("f64.more", 5e-324)
    w.add_float64("f64.most", 1.7976931348623157e308)
    w.add_float64("f64.long", 2 / 3)
    w.add_bool("yes", True)
    w.add_bool("no", False)
    w.add_array("bools", [True, False, True])
    w.add_array("long.bools", [i % 3 == 0 for i in range(70)])
    w.add_string("text", "plain")
    w.add_string("text.signs", "\"quoted\" \\ \n \t \x01 \x7f é 日本 \U0001f600")
    w.add_key_value("text.empty", "", Value.STRING)
    w.add_key_value("text.nul", "a\0b", Value.STRING)
    w.add_string("text.cut", "-" * (SHOWN_BYTES - 1) + "é")  # not through a character
    w.add_array("tokens", ["<s>", "", "é", "</s>"])
    w.add_array("items.64", list(range(SHOWN_ITEMS)))
    w.add_array("items.65", list(range(SHOWN_ITEMS + 1)))
    w.add_array("tokens.100", ["token %d" % i for i in range(100)])
    w.add_string("schlüssel", "name of the key in UTF-8")
    finish(w)


def write_others():
    w = writer("alignment.gguf")
    w.add_custom_alignment(256)
    for i in range(3):
        w.add_tensor("blk.%d.w" % (9 + i), pattern(33 + i, i).view(np.int8))
    finish(w)
    w = writer("none.gguf")
    w.add_string("general.name", "pairs alone")
    finish(w)
    w = writer("split.gguf", split_max_tensors=2)
    for i in range(5):
        w.add_tensor("t%d" % i, np.full((2, i + 1), i, np.float32))
    finish(w)


def text_of(name):
    return struct.pack("<Q", len(name)) + name


def info(name, dims, kind, offset):
    return (text_of(name) + struct.pack("<I", len(dims)) + struct.pack("<%dQ" % len(dims), *dims)
            + struct.pack("<IQ", kind, offset))


def write_by_hand():
    """Version 2, an empty array, no dimensions at all, and dimensions of 0, none of which the writer writes."""
    head = (b"GGUF" + struct.pack("<IQQ", 2, 4, 2) + text_of(b"general.architecture") + struct.pack("<I", 8) +
            text_of(b"llama") + text_of(b"empty") + struct.pack("<IIQ", 9, 6, 0) + info(b"scalar", [], Type.F32, 0) +
            info(b"none", [4, 0], Type.F16, 32) + info(b"w", [64], Type.Q4_0, 32) +
            info(b"last", [0, 3, 2], Type.Q8_0, 96))
    head += bytes(-len(head) % 32)
    data = pattern(4, 1).tobytes() + bytes(28) + pattern(36, 2).tobytes() + bytes(28)
    (HERE / "version2.gguf").write_bytes(head + data)


def cut(text):
    raw = text.encode()
    if len(raw) <= SHOWN_BYTES:
        return text
    return {"length": len(raw), "first": raw[:SHOWN_BYTES].decode(errors="ignore")}


def value_of(field):
    """A field's contents as the metadata has them."""
    value = field.contents()
    if field.types[0] == Value.ARRAY:
        items = [] if value is None else value
        shown = [one_value(field, field.types[-1], i, items) for i in range(min(len(items), SHOWN_ITEMS))]
        return {"length": len(items), "first": shown} if len(items) > SHOWN_ITEMS else shown
    return one_value(field, field.types[0], None, value)


def one_value(field, kind, index, value):
    value = value if index is None else value[index]
    if kind == Value.STRING:
        return cut(value)
    if kind in (Value.FLOAT32, Value.FLOAT64):
        if value != value or value in (float("inf"), float("-inf")):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        return float(str(np.float32(value))) if kind == Value.FLOAT32 else value
    return value


def json_text(value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("\x7f", "\\u007f").replace("\\t", "\\u0009")


def describe(path):
    reader = gguf.GGUFReader(path)
    lines = []
    for t in sorted(reader.tensors, key=lambda t: t.name.encode()):
        shape = ",".join(str(n) for n in reversed(t.shape.tolist()))
        lines.append("%s %s [%s] %d+%d" % (t.name, t.tensor_type.name, shape, t.data_offset, t.n_bytes))
    for name, field in reader.fields.items():
        if not name.startswith("GGUF."):
            lines.append("%s=%s" % (name, json_text(value_of(field))))
    path.with_suffix(".txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def main():
    logging.disable(logging.WARNING)
    HERE.mkdir(exist_ok=True)
    for old in HERE.iterdir():
        old.unlink()
    write_types()
    write_values()
    write_others()
    write_by_hand()
    for path in sorted(HERE.glob("*.gguf")):
        describe(path)


if __name__ == "__main__":
    main()
