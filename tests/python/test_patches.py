"""Patches in the Python client: `Model.patch` and `load_into(since=)`, against tensors that torch made."""
import json
import struct

import harness
import pytest
import torch
from conftest import bytes_of, url_of
from safetensors.torch import save_file

import tensord

FIRST, SECOND, THIRD = "weight_v000001", "weight_v000002", "weight_v000003"
TYPES = [torch.bfloat16, torch.float32, torch.float64, torch.float16, torch.uint8, torch.int64, torch.bool,
         torch.float8_e4m3fn, torch.complex64]


def versions_of(seed):
    """Return the tensors of three versions: 1% of the elements change, NaNs among them; one tensor changes whole, one
    not at all, one is new and one is gone."""
    g = torch.Generator().manual_seed(seed)
    first = {f"w.{number}": torch.randn(301, 77, generator=g).to(kind) for number, kind in enumerate(TYPES)}
    first |= {"frozen": torch.randn(1000, generator=g), "dense": torch.randn(50, generator=g), "old": torch.zeros(3)}
    first["w.0"][0] = float("nan")
    made = [first]
    for _ in range(2):
        after = {name: tensor.clone() for name, tensor in made[-1].items() if name != "old"}
        for number in range(len(TYPES)):
            bits = after[f"w.{number}"].view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
                                             [after[f"w.{number}"].element_size()])
            chosen = torch.rand(bits.shape, generator=g) < 0.01
            bits[chosen] ^= 1
        after["dense"] += 1
        after["new"] = torch.full((4,), float(len(made)))
        made.append(after)
    return made


@pytest.fixture
def three(serve):
    made = versions_of(1)
    for name, tensors in zip((FIRST, SECOND, THIRD), made):
        (serve.root / "run" / name).mkdir(parents=True)
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()},
                  serve.root / "run" / name / "model.safetensors")
    harness.age(serve.root)
    return serve(), made


def is_same(one, other):
    return one.dtype == other.dtype and one.contiguous().view(-1).view(torch.uint8).equal(
        other.contiguous().view(-1).view(torch.uint8))


def copies(tensors, wanted):
    """Return copies of tensors, with those names of `wanted` that they lack."""
    return {name: tensors[name].clone() if name in tensors else torch.zeros_like(tensor)
            for name, tensor in wanted.items()}


def tensor_bytes(server):
    return bytes_of(server, "boxes.bin") + bytes_of(server, "tensors:read")


@pytest.mark.parametrize("ring_bytes", [64 << 20, 1000])
@pytest.mark.parametrize("verify", [None, True])
def test_a_load_reads_only_elements(three, ring_bytes, verify):
    server, (first, second, third) = three
    target = copies(first, second)
    before = tensor_bytes(server)
    url = url_of(server, f"run?version={SECOND}")
    assert tensord.load_into(target, url, since=FIRST, verify=verify, ring_bytes=ring_bytes) == ([], [])
    assert all(is_same(target[name], tensor) for name, tensor in second.items())
    assert tensor_bytes(server) - before == second["dense"].nbytes + second["new"].nbytes
    tensord.load_into(target, url_of(server, f"run?version={THIRD}"), since=2, ring_bytes=ring_bytes)
    assert all(is_same(target[name], tensor) for name, tensor in third.items())
    module = torch.nn.Module()
    for number, (name, tensor) in enumerate(copies(first, third).items()):
        module.register_buffer(f"b{number}", tensor)
    names = {f"b{number}": name for number, name in enumerate(third)}
    tensord.load_into(module, url_of(server, "run?version=latest"), since=FIRST, names=names)
    assert all(is_same(module.get_buffer(key), third[name]) for key, name in names.items())


def test_other_targets(three):
    """Targets with strides, of other types, and of some of the names."""
    server, (first, second, _) = three
    model = tensord.open_model(url_of(server, f"run?version={SECOND}"))
    target = {"w.0": first["w.0"].t().contiguous().t(), "w.1": first["w.1"].bfloat16(),
              "w.3": torch.cat([first["w.3"]] * 2, 1)[:, :77]}
    model.load_into(target, strict=False, dtype="any", since=FIRST)
    assert is_same(target["w.0"], second["w.0"]) and is_same(target["w.3"], second["w.3"])
    assert is_same(target["w.1"], second["w.1"].bfloat16())


def test_a_target_of_another_version(three):
    """With verify=True a tensor that did not have the version before is read whole."""
    server, (first, second, _) = three
    target = copies(first, second)
    target["w.1"][5, 5] = 99.0
    model = tensord.open_model(url_of(server, f"run?version={SECOND}"))
    model.load_into(target, since=FIRST, verify=True)
    assert all(is_same(target[name], tensor) for name, tensor in second.items())


def test_the_patch_itself(three):
    server, (first, second, _) = three
    patch = tensord.open_model(url_of(server, f"run?version={SECOND}")).patch(FIRST)
    assert (patch.since, patch.version) == (FIRST, SECOND)
    assert sorted(patch.whole) == ["dense", "new"] and patch.removed == ["old"]
    assert set(patch.entries) == {f"w.{number}" for number in range(len(TYPES))}
    for part in patch.parts():
        name = part.name
        index = torch.frombuffer(part.indices, dtype=torch.int32)
        size = second[name].element_size()
        differs = (first[name].view(torch.uint8).view(-1, size) != second[name].view(torch.uint8).view(-1, size)).any(1)
        assert index.tolist() == differs.nonzero().flatten().tolist()
    with pytest.raises(ValueError, match="opened without"):
        tensord.open_model(url_of(server, f"run/{SECOND}")).patch(FIRST)
    with pytest.raises(tensord.NotFoundError):
        tensord.open_model(url_of(server, f"run?version={SECOND}")).patch("9")


def test_arrays_of_numpy(three):
    """`put` writes into arrays too, with strides or without."""
    from tensord.tensors.patches import put

    server, (first, second, _) = three
    for make in (lambda array: array.copy(), lambda array: array.T.copy().T):
        arrays = {name: make(first[name].numpy()) for name in ("w.1", "w.2", "w.5", "w.8")}
        for part in tensord.open_model(url_of(server, f"run?version={SECOND}")).patch(1).parts(arrays.__contains__):
            put(arrays[part.name], part)
        assert all((array.tobytes() == second[name].numpy().tobytes()) for name, array in arrays.items())


def test_patches_of_boxes(three):
    from tensord.tensors.boxes import Box
    from tensord.tensors.patches import put_bytes

    server, (first, second, _) = three
    model = tensord.open_model(url_of(server, f"run?version={SECOND}"))
    wanted = [Box("w.1", (3, 5), (100, 70)), Box("w.0", (0, 0), (301, 77)), Box("w.1", (0, 0), (10, 77)),
              Box("frozen", (10,), (20,))]
    views = [memoryview(bytearray(first[box.name][tuple(slice(a, a + n) for a, n in zip(box.start, box.sizes))]
                                  .contiguous().view(torch.uint8).numpy().tobytes())) for box in wanted]
    patch = model.patch_of_boxes(model.at(FIRST), wanted)
    assert patch.whole == [] and set(patch.entries) == {"0", "1", "2"}
    for part in patch.parts():
        put_bytes(views[int(part.name)], part)
    for box, view in zip(wanted, views):
        part = second[box.name][tuple(slice(a, a + n) for a, n in zip(box.start, box.sizes))]
        assert bytes(view) == part.contiguous().view(torch.uint8).numpy().tobytes()


def test_without_patches(three, monkeypatch):
    """An older server, or one that makes no patch: tensors that changed are read."""
    server, (first, second, _) = three
    model = tensord.open_model(url_of(server, f"run?version={SECOND}"))
    monkeypatch.setattr(tensord.tensors.model, "open_patch", lambda *_: None)
    target = copies(first, second)
    model.load_into(target, since=FIRST)
    assert all(is_same(target[name], tensor) for name, tensor in second.items())


def file_of(about, tensors, body=b""):
    text = json.dumps({"__metadata__": about, **tensors}).encode()
    return struct.pack("<Q", len(text)) + text + body


ABOUT = {"format": "patch", "since": FIRST, "version": SECOND, "whole": "[]", "removed": "[]"}


def row(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize("body", [
    b"", b"\0" * 7, b"\xff" * 8, struct.pack("<Q", 100) + b"{}", file_of({}, {}), file_of(ABOUT | {"whole": "{}"}, {}),
    file_of(ABOUT | {"format": "pt"}, {}), file_of(ABOUT | {"removed": 1}, {}),
    file_of(ABOUT, {"w.indices": row("I32", [1], 0, 4)}),
    file_of(ABOUT, {"w.indices": row("I32", [1], 0, 4), "w.values": row("F32", [2], 4, 12)}, b"\0" * 12),
    file_of(ABOUT, {"w.indices": row("I8", [1], 0, 1), "w.values": row("F32", [1], 1, 5)}, b"\0" * 5),
    file_of(ABOUT, {"w.indices": row("I32", [1], 0, 4), "w.values": row("F32", [1], 4, 8)}, b"\0" * 7),
    file_of(ABOUT, {"w.indices": row("I32", [-1], 0, -4), "w.values": row("F32", [-1], 4, 0)}, b"\0" * 8),
    file_of(ABOUT, {"w.indices": row("I32", [1], -8, -4), "w.values": row("F32", [1], 4, 8)}, b"\0" * 8),
    file_of(ABOUT, {"w.indices": row("I32", [2], 0, 8), "w.values": row("F4", [2], 8, 9)}, b"\0" * 9),
    b"\x08\0\0\0\0\0\0\0" + b"[" * 8,
])
# shows: security.md python-lists
def test_patches_that_are_malformed(body, serve):
    """The reader of a header takes nothing that does not fit."""
    from tensord.net.transfer import Resource
    from tensord.tensors import patches

    class Served(patches.Patch):
        pass

    class Source:
        def first(self, patience):
            return Resource("/x", '"0"', len(body))

    def read_resource(session, source, views, begin, *_):
        for view in views:
            view[:] = body[begin:begin + len(view)]
            begin += len(view)

    class Session:
        options = tensord.Options()

    original, patches.read_resource = patches.read_resource, read_resource
    try:
        with pytest.raises(tensord.ProtocolError):
            Served(Session(), Source(), "run")
    finally:
        patches.read_resource = original


def test_indices_that_a_tensor_lacks():
    from tensord.tensors.patches import Part, put

    for index in (-1, 4, 2**31 - 1):
        indices = memoryview(bytearray(struct.pack("<ii", 0, index)))
        part = Part("w", "F32", 4, indices, memoryview(bytearray(b"\1" * 8)))
        for target in (torch.zeros(2, 2), torch.zeros(2, 2).numpy()):
            with pytest.raises(tensord.ProtocolError, match="lacks"):
                put(target, part)
            assert (target == 0).all()
