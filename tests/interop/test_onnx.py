"""The onnx package writes, tensord inspects and serves: names, types, shapes and every byte must be as
onnx.numpy_helper.to_array reads them, and models that onnx.checker refuses are refused."""
import json
import os

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from harness import enc
from make_onnx import KINDS, WORDS, describe, logical_bytes, model, raw, reason_of, sparse, typed
from test_safetensors import inspect_each, inspect_json, one_line, run

NUMBERS = [kind for kind in KINDS if KINDS[kind] != "STRING"]
SHAPES = [(), (1,), (8,), (0,), (3, 8), (2, 0, 3), (1, 4, 1), (2, 3, 4)]
IDS = [KINDS[kind] for kind in KINDS]


def manifest(server, id):
    document = server.json(f"/models/{enc(id, '/')}/tensors")
    return document, {t["name"]: t for t in document["tensors"]}


def check_tensor(server, t, proto, base_dir="", reason=None):
    """Check one initialiser of a manifest, and its bytes over HTTP."""
    word = WORDS[KINDS[proto.data_type]]
    assert (t["dtype"], t["shape"], t.get("reason")) == (word, list(proto.dims), reason), t
    r = server.get(t["href"])
    if reason is not None:
        assert r.status == 422 and reason in r.json()["error"]["message"], r
        return
    want = logical_bytes(proto, str(base_dir))
    assert t["nbytes"] == len(want)
    assert r.status == 200 and r.body == want, t


# ---- in the model's own file -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NUMBERS, ids=[KINDS[kind] for kind in NUMBERS])
def test_every_type_in_every_shape(serve, kind):
    """In raw_data, and in the field of its type."""
    protos = [raw(f"raw{i}", kind, shape, i) for i, shape in enumerate(SHAPES)
              ] + [typed(f"typed{i}", kind, shape, i) for i, shape in enumerate(SHAPES)]
    proto = model(protos)
    onnx.checker.check_model(proto)
    onnx.save(proto, serve.root / "m.onnx")
    server = serve()
    document, got = manifest(server, "m.onnx")
    assert set(got) == {t.name for t in protos} and document["format"] == "onnx"
    for tensor in protos:
        reason = reason_of(tensor)
        check_tensor(server, got[tensor.name], tensor, reason=None if reason == "-" else reason)


def test_every_type_that_onnx_has_is_here():
    assert set(WORDS) == {name for name in TensorProto.DataType.keys() if name != "UNDEFINED"}


def test_strings_sparse_and_what_is_within_nodes(serve):
    from make_onnx import branches
    text = helper.make_tensor("t", TensorProto.STRING, [2], [b"a", b"bc"])
    proto = model([text, raw("w", TensorProto.FLOAT, [2, 3])], nodes=branches(), sparse=[sparse("s")])
    onnx.save(proto, serve.root / "m.onnx")
    server = serve()
    _, got = manifest(server, "m.onnx")
    assert set(got) == {"t", "w", "s", "s.values", "s.indices"}
    check_tensor(server, got["t"], text, reason="strings")
    check_tensor(server, got["w"], proto.graph.initializer[1])
    check_tensor(server, got["s.values"], proto.graph.sparse_initializer[0].values)
    check_tensor(server, got["s.indices"], proto.graph.sparse_initializer[0].indices)
    assert (got["s"]["dtype"], got["s"]["shape"], got["s"]["reason"]) == ("F32", [2, 5], "sparse")


def test_metadata(tmp_path):
    proto = model([raw("w", TensorProto.INT8, [3])], producer_version="1.0", domain="org.example", model_version=-3,
                  doc_string="a \u00e4")
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 5))
    helper.set_model_props(proto, {"license": "none"})
    onnx.save(proto, tmp_path / "m.onnx")
    assert inspect_json(tmp_path / "m.onnx")["metadata"] == {
        "ir_version": 13, "producer_name": "make_onnx", "producer_version": "1.0", "domain": "org.example",
        "model_version": -3, "doc_string": "a \u00e4", "opset_import": 23, "opset_import.ai.onnx.ml": 5,
        "metadata_props.license": "none"
    }


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.fc = torch.nn.Linear(16, 5)

    def forward(self, x):
        return self.fc(self.norm(self.conv(x)).flatten(1))


# ---- in files beside it ----------------------------------------------------------------------------------------------


def big_model():
    return model([
        raw(f"w{i}", kind, [64, 40], i)
        for i, kind in enumerate((TensorProto.FLOAT, TensorProto.BFLOAT16, TensorProto.INT64, TensorProto.INT4))
    ] + [raw("small", TensorProto.FLOAT, [3])])


@pytest.mark.parametrize("one_file", [True, False])
@pytest.mark.parametrize("folder", ["m", "org/m"])
def test_external_data(serve, one_file, folder):
    """onnx.save writes all large tensors into one file beside the model, or each into one of its own."""
    (serve.root / folder).mkdir(parents=True)
    proto = big_model()
    kept = [TensorProto.FromString(t.SerializeToString()) for t in proto.graph.initializer]
    onnx.save(proto, serve.root / folder / "model.onnx", save_as_external_data=True, all_tensors_to_one_file=one_file,
              location="model.onnx.data" if one_file else None)
    assert len(list((serve.root / folder).iterdir())) == (2 if one_file else 5)
    server = serve()
    document, got = manifest(server, folder)
    assert document["checkpoint"] == "model.onnx" and set(got) == {t.name for t in kept}
    for tensor in kept:
        check_tensor(server, got[tensor.name], tensor)
        inside = tensor.name == "small"
        assert got[tensor.name]["file"] == ("model.onnx" if inside else "model.onnx.data" if one_file else tensor.name)
        r = server.get(got[tensor.name]["href"], {"Range": "bytes=5-8"})
        assert r.status == 206 and r.body == logical_bytes(tensor)[5:9]
    assert document["total_bytes"] == sum(t["nbytes"] for t in document["tensors"])
    assert not server.json(f"/models/{folder}").get("errors")


def external(proto, name, location, offset=0, length=None):
    """Mark the tensor's bytes as external."""
    tensor = next(t for t in proto.graph.initializer if t.name == name)
    onnx.external_data_helper.set_external_data(tensor, location, offset, length)
    tensor.ClearField("raw_data")


# shows: security.md content-onnx-external content-lfs-pointers
def test_external_data_in_a_folder_below_and_where_it_is_not(serve):
    """A tensor without bytes has a reason; the rest is served. The reference refuses to load such models."""
    root = serve.root / "m"
    (root / "sub" / "er").mkdir(parents=True)
    data = bytes(i % 251 for i in range(4096))
    (root / "sub" / "er" / "w.bin").write_bytes(data)
    (serve.root / "outside.bin").write_bytes(data)
    (serve.root.parent / "outside.bin").write_bytes(data)
    os.symlink("../../outside.bin", root / "link.bin")
    os.symlink("sub/er/w.bin", root / "inner.bin")
    (root / ".hidden.bin").write_bytes(data)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + 64 * "a" + "\nsize 4096\n"
    (root / "pointer.bin").write_text(pointer)
    names = [
        "below", "dotted", "inner", "missing", "link", "hidden", "parent", "absolute", "folder", "past", "end", "own",
        "self", "cloned", "cloned-past"
    ]
    proto = model([raw(name, TensorProto.FLOAT, [4]) for name in names])
    external(proto, "below", "sub/er/w.bin", 8, 16)
    external(proto, "dotted", "./sub//er/./w.bin", 100)
    external(proto, "inner", "inner.bin", 12)
    external(proto, "missing", "gone.bin")
    external(proto, "link", "link.bin")
    external(proto, "hidden", ".hidden.bin")
    external(proto, "parent", "../outside.bin")
    external(proto, "absolute", str(serve.root / "outside.bin"))
    external(proto, "folder", "sub")
    external(proto, "past", "sub/er/w.bin", 4081, 16)
    external(proto, "end", "sub/er/w.bin", 4080, 16)
    external(proto, "self", "model.onnx")
    external(proto, "cloned", "pointer.bin")
    external(proto, "cloned-past", "pointer.bin", 4000, 16)
    (root / "model.onnx").write_bytes(proto.SerializeToString())
    server = serve()
    _, got = manifest(server, "m")
    for name, offset in (("below", 8), ("dotted", 100), ("inner", 12), ("end", 4080)):
        assert server.get(got[name]["href"]).body == data[offset:offset + 16], name
    check_tensor(server, got["own"], proto.graph.initializer[names.index("own")])
    for name in ("missing", "link", "hidden", "folder", "self"):
        assert got[name]["reason"] == "the file with its external data is not there", got[name]
    for name in ("parent", "absolute"):
        assert got[name]["reason"] == "its external data are not below the model's directory", got[name]
    for name in ("cloned", "cloned-past"):
        assert got[name]["reason"] == "the file with its external data is a Git LFS pointer; run git lfs pull", got[
            name]
        assert server.get(got[name]["href"]).status == 422
    assert got["past"]["reason"] == "its external data leave their file"
    assert server.get(got["parent"]["href"]).status == 422
    errors = server.json("/models/m")["errors"]
    assert any(".hidden.bin" in e["message"] and e["file"] == "model.onnx" for e in errors), errors
    for name in ("missing", "link", "parent", "absolute", "folder"):
        tensor = proto.graph.initializer[names.index(name)]
        with pytest.raises((onnx.checker.ValidationError, FileNotFoundError, ValueError)):
            numpy_helper.to_array(tensor, str(root))


def test_external_data_that_come_later_or_change(serve):
    """The tensors appear with their file, and get another tag when the file changes."""
    root = serve.root / "m"
    root.mkdir()
    proto = model([raw("w", TensorProto.UINT8, [1000])])
    external(proto, "w", "w.bin", 0, 1000)
    (root / "model.onnx").write_bytes(proto.SerializeToString())
    server = serve()
    assert manifest(server, "m")[1]["w"]["reason"] == "the file with its external data is not there"
    tags = set()
    for fill in (b"a", b"b"):
        (root / "new").write_bytes(fill * 1000)
        os.utime(root / "new", (1, 1))
        os.rename(root / "new", root / "w.bin")
        server.wait_for(
            lambda: server.get("/models/m/tensors/w").status == 200 and server.get("/models/m/tensors/w").body == fill *
            1000, "the new data")
        assert "reason" not in manifest(server, "m")[1]["w"]
        tags.add(server.get("/models/m/tensors/w").get("ETag"))
    assert len(tags) == 2
    os.unlink(root / "w.bin")
    server.wait_for(lambda: server.get("/models/m/tensors/w").status == 422, "that they are gone")
    assert "not there" in manifest(server, "m")[1]["w"]["reason"]


def test_a_model_directly_in_the_served_directory(serve):
    """Its data are in the file beside it; by itself, the model's tensors are in another file."""
    onnx.save(big_model(), serve.root / "bert.onnx", save_as_external_data=True, location="bert.onnx.data")
    kept = {t.name: t for t in big_model().graph.initializer}
    server = serve()
    _, got = manifest(server, "bert.onnx")
    for name, tensor in kept.items():
        check_tensor(server, got[name], tensor)
    alone = {t["name"]: t for t in inspect_json(serve.root / "bert.onnx")["tensors"]}
    assert {t.get("reason") for t in alone.values()} == {None, "stored in another file"}


def test_torch_exports_it(serve):
    """The initialisers of torch.onnx.export are the state_dict, with its names. Uses the exporter that needs only
    torch."""
    net = Net().eval()
    torch.onnx.export(net, (torch.randn(1, 3, 4, 4), ), str(serve.root / "net.onnx"), dynamo=False,
                      do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING)
    server = serve()
    _, got = manifest(server, "net.onnx")
    state = {k: v for k, v in net.state_dict().items() if k != "norm.num_batches_tracked"}
    assert set(state) <= set(got)
    for name, value in state.items():
        assert got[name]["shape"] == list(value.shape) and server.get(
            got[name]["href"]).body == value.numpy().tobytes(), name


# ---- what is refused -------------------------------------------------------------------------------------------------


def bad_models():
    def one(**change):
        proto = model([raw("w", TensorProto.FLOAT, [2, 3])])
        tensor = proto.graph.initializer[0]
        for key, value in change.items():
            if isinstance(value, list):
                tensor.ClearField(key)
                getattr(tensor, key).extend(value)
            elif value is None:
                tensor.ClearField(key)
            else:
                setattr(tensor, key, value)
        return proto
    outside = one(data_location=TensorProto.EXTERNAL)
    no_place = one(data_location=TensorProto.EXTERNAL, raw_data=None)
    twice = model([raw("w", TensorProto.FLOAT, [2]), raw("w", TensorProto.FLOAT, [2])])
    across = model([raw("s", TensorProto.FLOAT, [2])], sparse=[sparse("s")])
    no_version = one()
    no_version.ClearField("ir_version")
    no_opset = one()
    del no_opset.opset_import[:]
    keys = one()
    for _ in range(2):
        keys.metadata_props.add(key="k", value="v")
    return {
        "no_name": one(name=None), "empty_name": one(name=""), "no_type": one(data_type=None), "undefined":
        one(data_type=0), "negative": one(dims=[-2, 3]), "overflow": one(dims=[2**62, 4]), "too_short":
        one(raw_data=bytes(23)), "no_data": one(raw_data=None), "two_fields": one(float_data=[1.0] * 6), "wrong_field":
        one(raw_data=None, int64_data=[1] * 6), "few_floats": one(raw_data=None, float_data=[1.0] * 5), "data_of_none":
        one(dims=[0]), "raw_strings": one(data_type=TensorProto.STRING), "outside_and_here": outside, "no_place":
        no_place, "twice": twice, "twice_across": across, "no_version": no_version, "no_opset": no_opset, "keys": keys
    }


@pytest.mark.parametrize("name", sorted(bad_models()))
# shows: security.md content-onnx
def test_what_the_checker_refuses_is_refused(tmp_path, name):
    data = bad_models()[name].SerializeToString()
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(data)
    (tmp_path / "m.onnx").write_bytes(data)
    code, out, err = run("inspect", tmp_path / "m.onnx", "--json")
    assert code == 1 and one_line(err), (code, out, err)


FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def whole(kind, shape):
    """A tensor in the field of its type, and that field's name."""
    tensor = (helper.make_tensor("w", kind, shape, [b"a"] * int(np.prod(shape)))
              if kind == TensorProto.STRING else typed("w", kind, shape))
    return tensor, next(field for field in FIELDS if len(getattr(tensor, field)))


def typed_cases(kind):
    """Tensors in the fields of their types with other numbers of elements, and as many elements in other fields."""
    for shape in ([], [3], [8], [2, 4], [33]):
        right, field = whole(kind, shape)
        count = len(getattr(right, field))
        last = getattr(right, field)[-1]
        for other in sorted({0, 1, count - 2, count - 1, count, count + 1, count + 7} & set(range(count + 8))):
            tensor = TensorProto(name="w", data_type=kind, dims=shape)
            getattr(tensor, field).extend((list(getattr(right, field)) + [last] * 7)[:other])
            yield shape, field, other, tensor
        for wrong in FIELDS:
            if wrong != field:
                tensor = TensorProto(name="w", data_type=kind, dims=shape)
                getattr(tensor, wrong).extend([b"a" if wrong == "string_data" else 1] * count)
                yield shape, wrong, count, tensor


def accepts(check, *arguments):
    try:
        check(*arguments)
        return True
    except (onnx.checker.ValidationError, ValueError):
        return False


@pytest.mark.parametrize("kind", KINDS, ids=IDS)
def test_typed_data_of_another_number_or_field(tmp_path, kind):
    """Data that the checker or to_array refuses are refused. Types below a byte are the exception: the checker counts
    four bytes in each number, to_array one, and to_array leaves out what is too much; tensord refuses less than the
    checker needs and more than to_array uses. Each case is a model of its own; one process reads all of them."""
    cases = [(*case, model([tensor]).SerializeToString()) for *case, tensor in typed_cases(kind)]
    for number, (*_, data) in enumerate(cases):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "m.onnx").write_bytes(data)
    code, out, err = run("inspect", tmp_path, "--json")
    document = json.loads(out)
    accepted = [one["model"] for one in document["models"]]
    refused = [one["model"] for one in document["errors"]]
    assert sorted(accepted + refused) == sorted(map(str, range(len(cases)))), err
    assert code == 1
    lines = {line.removeprefix("tensord: ").split("/m.onnx: ")[0]: line for line in err.splitlines()}
    assert sorted(lines) == sorted(refused) and len(err.splitlines()) == len(refused), err
    for number, (shape, field, count, data) in enumerate(cases):
        tensor = onnx.load_model_from_string(data).graph.initializer[0]
        checked = accepts(onnx.checker.check_model, data)
        want = checked and accepts(numpy_helper.to_array, tensor)
        if WORDS[KINDS[kind]] in ("U4", "I4", "F4", "U2", "I2") and field == "int32_data":
            want = checked and count <= len(getattr(whole(kind, shape)[0], field))
        line = lines.get(str(number), "")
        assert (str(number) in accepted) == want, (shape, field, count, line)
        assert want or one_line(line), line


SPELLINGS = (None, "0", "00", "16", "016", "+16", " 16 ", "1_6", "\t16\n", "-0", "0x10", "", " ", "-1", "1__6", "_16",
             "16_", "16.0", "1e1", "16 0", "8", "32", "9223372036854775807", "18446744073709551616", "9" * 40)


def test_spellings_of_external_offset_and_length(serve):
    """Values that to_array reads are served, byte for byte. Without a length, or with length 0, the bytes are those
    that shape
    and type imply, as in ONNX Runtime; to_array wants the file to end there, or an empty file. All else has a
    reason."""
    want = {}
    data = bytes(range(100, 148))
    for offset, length in [(offset, length) for offset in SPELLINGS for length in SPELLINGS
                           if {offset, length} & {None, "0", "16"}]:
        folder = f"m{len(want)}"
        (serve.root / folder).mkdir()
        (serve.root / folder / "d.bin").write_bytes(data)
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "d.bin"), ("offset", offset), ("length", length)):
            if value is not None:
                tensor.external_data.add(key=key, value=value)
        onnx.save(model([tensor]), serve.root / folder / "m.onnx")
        if length in (None, "0", "00", "-0"):
            tensor.external_data.add(key="length", value="16")
        try:
            want[folder] = (offset, length, numpy_helper.to_array(tensor, str(serve.root / folder)).tobytes())
        except ValueError:
            want[folder] = (offset, length, None)
    server = serve()
    served = 0
    for folder, (offset, length, bytes_read) in want.items():
        r = server.get(f"/models/{folder}/tensors/w")
        if bytes_read is None:
            assert r.status == 422 and "external data" in r.json()["error"]["message"], (offset, length, r)
        else:
            assert r.status == 200 and r.body == bytes_read, (offset, length, r)
            served += 1
    assert served > 20


def test_damage_anywhere_never_crashes(tmp_path):
    """Each byte is changed in turn: the model is refused, or has other tensors. Where the onnx package and tensord both
    read it, they agree."""
    data = model(
        [raw("w", TensorProto.FLOAT, [2, 3]),
         typed("d", TensorProto.DOUBLE, [3]),
         raw("b", TensorProto.BOOL, [1])]).SerializeToString(deterministic=True)
    read = 0
    inputs = [data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1:] for at in range(len(data))]
    for at, (path, tensors, _) in enumerate(inspect_each(tmp_path, "m.onnx", inputs)):
        if tensors is None:
            continue
        changed = inputs[at]
        got = {name: t for name, t in tensors.items() if "reason" not in t}
        proto = onnx.load_model_from_string(changed)
        for tensor in proto.graph.initializer:
            if tensor.name in got:
                read += 1
                offset = got[tensor.name].get("offset", 0)
                want = logical_bytes(tensor)
                assert changed[offset:offset + len(want)] == want, (at, tensor.name)
    assert read > 50


def test_fixtures_are_what_the_package_reads():
    """tests/data/onnx/NAME.txt has what to_array reads from NAME.onnx."""
    from make_onnx import OUT, models
    for name, _ in models():
        assert (OUT / f"{name}.txt").read_text() == describe(
            onnx.ModelProto.FromString((OUT / f"{name}.onnx").read_bytes()).graph), name
