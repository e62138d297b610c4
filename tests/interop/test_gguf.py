"""The real gguf package writes, tensord inspects: manifest, metadata and every byte must be as the package reads
them."""
import json
import math
import struct
import sys

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value
from gguf.constants import GGML_QUANT_SIZES

from harness import REPO
from test_safetensors import inspect_json, one_line, run

sys.path.append(str(REPO / "scripts"))
import print_codebooks

SHOWN_ITEMS, SHOWN_BYTES = 64, 4096
# ggml-common.h: block_q8_1 is two halves and 32 bytes. The package has the old size, 40.
WRONG_IN_THE_PACKAGE = {Type.Q8_1}
TYPES = [t for t in Type if t not in WRONG_IN_THE_PACKAGE]


def quantizable():
    """Return the types that gguf.quants can make from floats."""
    x = np.linspace(-1, 1, 512, dtype=np.float32).reshape(2, 256)
    for kind in TYPES:
        try:
            gguf.quants.quantize(x, kind)
            yield kind
        except NotImplementedError:
            continue


def raw(kind, shape, seed):
    """Return random bytes for a tensor of this shape (in elements, outermost first)."""
    elems, size = GGML_QUANT_SIZES[kind]
    rows = [*shape[:-1], shape[-1] // elems * size]
    return np.random.default_rng(seed).integers(0, 256, rows, dtype=np.uint8)


def write(path, fill, **options):
    writer = gguf.GGUFWriter(path, "llama", **options)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def check(path):
    """Compare the manifest of one file with GGUFReader: names, types, shapes, places, bytes, metadata."""
    manifest, reader = inspect_json(path), gguf.GGUFReader(path)
    assert manifest["format"] == "gguf"
    got = {t["name"]: t for t in manifest["tensors"]}
    content = path.read_bytes()
    assert sorted(got, key=str.encode) == [t["name"] for t in manifest["tensors"]]
    assert set(got) == {t.name for t in reader.tensors} and len(manifest["tensors"]) == len(reader.tensors)
    for want in reader.tensors:
        t = got[want.name]
        assert t["dtype"] == want.tensor_type.name, t
        assert t["shape"] == list(reversed(want.shape.tolist())), t
        assert (t["offset"], t["nbytes"]) == (want.data_offset, want.n_bytes), t
        assert content[t["offset"]:t["offset"] + t["nbytes"]] == want.data.tobytes(), f"{want.name}: other bytes"
    fields = {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert list(manifest["metadata"]) == list(fields), "pairs in the file's order"
    for key, field in fields.items():
        check_field(key, field, manifest["metadata"][key])
    return manifest


def check_field(key, field, got):
    if field.types[0] != Value.ARRAY:
        check_value(key, field.types[0], field.contents(), got)
        return
    want = field.contents() or []
    if len(want) > SHOWN_ITEMS:
        assert got["length"] == len(want) and set(got) == {"length", "first"}, key
        got, want = got["first"], want[:SHOWN_ITEMS]
    assert len(got) == len(want), key
    for a, b in zip(want, got):
        check_value(key, field.types[-1], a, b)


def check_value(key, kind, want, got):
    if kind == Value.STRING:
        text = want.encode()
        if len(text) > SHOWN_BYTES:
            assert got["length"] == len(text), key
            got, want = got["first"], text[:SHOWN_BYTES].decode(errors="ignore")
        assert got == want, key
    elif kind in (Value.FLOAT32, Value.FLOAT64) and not math.isfinite(want):
        assert got == ("NaN" if math.isnan(want) else "Infinity" if want > 0 else "-Infinity"), key
    elif kind == Value.FLOAT32:
        assert np.float32(got).tobytes() == np.float32(want).tobytes() and isinstance(got,
                                                                                      float), f"{key}: {want} {got}"
        assert len(repr(got)) <= len(repr(float(str(np.float32(want))))), f"{key}: {got} could be shorter"
    elif kind == Value.FLOAT64:
        assert repr(got) == repr(want), key
    else:
        assert got == want and type(got) is type(want), f"{key}: {want!r} {got!r}"


@pytest.mark.parametrize("kind", TYPES, ids=lambda t: t.name)
def test_every_type(tmp_path, kind):
    """Shapes of every rank, data of any bytes; ne[0] is a multiple of the block."""
    block = GGML_QUANT_SIZES[kind][0]
    shapes = [[block], [3, 2 * block], [2, 3, block], [2, 1, 3, 3 * block]]

    def fill(w):
        for i, shape in enumerate(shapes):
            w.add_tensor(f"t{i}", raw(kind, shape, i), raw_dtype=kind)
    manifest = check(write(tmp_path / "m.gguf", fill))
    assert [t["shape"] for t in manifest["tensors"]] == shapes


def test_quantized_by_the_package(tmp_path):
    kinds = list(quantizable())
    assert {Type.Q4_0, Type.Q8_0, Type.Q5_1, Type.BF16, Type.TQ1_0} <= set(kinds)
    x = np.random.default_rng(5).standard_normal((4, 512), np.float32)
    packed = {kind: gguf.quants.quantize(x, kind) for kind in kinds}
    path = write(tmp_path / "m.gguf",
                 lambda w: [w.add_tensor(f"w.{k.name}", d, raw_dtype=k) for k, d in packed.items()])
    content = path.read_bytes()
    for t in check(path)["tensors"]:
        kind = Type[t["dtype"]]
        data = np.frombuffer(content[t["offset"]:t["offset"] + t["nbytes"]], np.uint8)
        assert t["shape"] == [4, 512]
        assert np.array_equal(gguf.quants.dequantize(data.reshape(4, -1).view(packed[kind].dtype), kind),
                              gguf.quants.dequantize(packed[kind], kind)), t


def test_plain_arrays(tmp_path):
    arrays = {np.dtype(d).name: (np.arange(24) * 5).astype(d).reshape(2, 3, 4)
              for d in (np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64)}
    path = write(tmp_path / "m.gguf", lambda w: [w.add_tensor(n, a) for n, a in arrays.items()])
    for t in check(path)["tensors"]:
        a = arrays[t["name"]]
        assert np.array_equal(np.frombuffer(path.read_bytes(), a.dtype, a.size, t["offset"]).reshape(t["shape"]), a)


@pytest.mark.parametrize("alignment", [1, 8, 32, 64, 4096, 1 << 20])
def test_alignments(tmp_path, alignment):
    def fill(w):
        w.add_custom_alignment(alignment)
        for i in range(5):
            w.add_tensor(f"blk.{i}.w", raw(Type.I8, [37 * i + 1], i).view(np.int8))
    manifest = check(write(tmp_path / "m.gguf", fill))
    assert all(t["offset"] % alignment == 0 for t in manifest["tensors"])


def test_metadata_of_every_kind(tmp_path):
    rng = np.random.default_rng(9)

    def fill(w):
        for kind, code in {Value.UINT8: "B", Value.INT8: "b", Value.UINT16: "H", Value.INT16: "h", Value.UINT32: "I",
                           Value.INT32: "i", Value.UINT64: "Q", Value.INT64: "q"}.items():
            size = struct.calcsize(code)
            values = [struct.unpack(f"<{code}", rng.bytes(size))[0] for _ in range(70)]
            w.add_key_value(f"{kind.name}.one", values[0], kind)
            w.add_key_value(f"{kind.name}.64", values[:64], Value.ARRAY, sub_type=kind)
            w.add_key_value(f"{kind.name}.65", values[:65], Value.ARRAY, sub_type=kind)
        for i in range(500):  # of any bits, among them NaN, infinities and subnormal numbers
            w.add_key_value(f"f32.{i}", struct.unpack("<f", rng.bytes(4))[0], Value.FLOAT32)
            w.add_key_value(f"f64.{i}", struct.unpack("<d", rng.bytes(8))[0], Value.FLOAT64)
        for i, x in enumerate((0.0, -0.0, 1e-5, 1e-6, 10000.0, 1e6, 500000.0, 0.1, 1 / 3, math.inf, -math.inf, math.nan,
                               2.0**-149, 2.0**127)):
            w.add_float32(f"real.{i}", x)
            w.add_float64(f"double.{i}", x)
        w.add_bool("t", True)
        w.add_bool("f", False)
        w.add_array("bools", [i % 2 == 0 for i in range(65)])
        w.add_array("scores", [float(i) / 7 for i in range(1000)])
        w.add_string("chat_template", "{% for é in 日本 %}\n\t\"\\\x00\x7f" * 400)
        w.add_string("most", "é" * 2048)
        w.add_string("one_more", "-" + "é" * 2048)
        w.add_array("tokens", [f"tok{i}" * (i % 9) for i in range(32000)])
        w.add_array("long_texts", ["x" * (4094 + i) for i in range(5)])
    check(write(tmp_path / "m.gguf", fill))


def test_a_real_vocabulary_file_without_tensors(tmp_path):
    check(write(tmp_path / "vocab.gguf", lambda w: w.add_token_list([b"<s>", "é".encode(), b"plain"])))


def test_names(tmp_path):
    names = [
        "blk.0.attn_q.weight", "ünïcode", "名前", "😀", "a b", "q\"'", "back\\slash", "tab\t", "new\nline", "%2F", "x" * 63
    ]
    manifest = check(
        write(tmp_path / "m.gguf",
              lambda w: [w.add_tensor(n,
                                      raw(Type.I8, [9 + i], i).view(np.int8)) for i, n in enumerate(names)]))
    assert {t["name"] for t in manifest["tensors"]} == set(names)


def test_a_large_header(tmp_path):
    """More than one read's worth of tokens, and a thousand tensors behind them."""
    def fill(w):
        w.add_token_list([f"token number {i}" for i in range(100_000)])
        w.add_token_scores([i * -0.5 for i in range(100_000)])
        for i in range(1000):
            w.add_tensor(f"blk.{i // 10}.part{i % 10}.weight", raw(Type.Q4_0, [i % 3 + 1, 32], i), raw_dtype=Type.Q4_0)
    check(write(tmp_path / "m.gguf", fill))


def test_each_file_of_a_split_set_by_itself(tmp_path):
    def fill(w):
        for i in range(7):
            w.add_tensor(f"t{i}", raw(Type.F32, [i + 1, 3], i), raw_dtype=Type.F32)
    write(tmp_path / "m.gguf", fill, split_max_tensors=3)
    paths = sorted(tmp_path.glob("m-*-of-00003.gguf"))
    assert len(paths) == 3
    for no, path in enumerate(paths):
        metadata = check(path)["metadata"]
        assert (metadata["split.no"], metadata["split.count"], metadata["split.tensors.count"]) == (no, 3, 7)
    write(tmp_path / "other.gguf", lambda w: w.add_tensor("a", np.ones(4, np.float32)))
    code, out, err = run("inspect", tmp_path, "--json")
    models = {m["model"]: [t["name"] for t in m["tensors"]] for m in json.loads(out)["models"]}
    assert code == 0 and models == {"m": [f"t{i}" for i in range(7)], "other.gguf": ["a"]}, err
    paths[1].unlink()
    code, out, err = run("inspect", tmp_path)
    assert code == 1 and one_line(err) and "shard 2 of 3 is not there" in err and "other.gguf" in out.decode()


def test_version_2(tmp_path):
    path = write(tmp_path / "m.gguf", lambda w: w.add_tensor("a", np.ones((2, 4), np.float32)))
    content = bytearray(path.read_bytes())
    content[4] = 2
    path.write_bytes(content)
    check(path)


def test_every_cut_is_refused(tmp_path):
    path = write(tmp_path / "m.gguf", lambda w: w.add_tensor("a", np.ones((2, 5), np.float32)))
    t = check(path)["tensors"][0]
    content = path.read_bytes()
    for n in sorted({0, 3, 4, 7, 8, 23, 24, 40, t["offset"] - 1, t["offset"], t["offset"] + t["nbytes"] - 1}):
        path.write_bytes(content[:n])
        code, out, err = run("inspect", path)
        assert code == 1 and one_line(err), f"the first {n} of {len(content)} bytes: {code}, {err!r}"
    path.write_bytes(content[:t["offset"] + t["nbytes"]])  # the padding behind the last tensor belongs to no tensor
    check(path)


def test_bytes_that_are_not_utf8_are_escaped(tmp_path):
    """The package writes them; its reader refuses to decode them."""
    path = write(tmp_path / "m.gguf",
                 lambda w: w.add_key_value("raw", [b"\xff\xfe", b"ok"], Value.ARRAY, sub_type=Value.STRING))
    assert inspect_json(path)["metadata"]["raw"] == ["\\xff\\xfe", "ok"]
    assert json.dumps(inspect_json(path))


def test_codebooks_are_those_of_the_package():
    """After a change of the format, scripts/print_codebooks.py --write."""
    source = print_codebooks.SOURCE.read_text()
    assert print_codebooks.with_tables(source) == source
