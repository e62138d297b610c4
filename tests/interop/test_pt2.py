"""torch.export.save writes, tensord inspects and serves:
parameters, buffers and constants must be those of torch.export.load."""
import io
import zipfile

import pytest
import torch
from torch import nn
from torch._export.serde.serialize import serialize
from torch.export.pt2_archive._package import PT2ArchiveWriter

from make_pt2 import WRITERS, deflated, inner_deflated, load
from test_safetensors import inspect_each, inspect_json, one_line, run
from test_torch import check_model, filled

pytestmark = pytest.mark.filterwarnings("ignore")


class Net(nn.Module):
    """Tied weights, a transposed one, a buffer that is saved and one that is not, a constant,
    an empty one, several types."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.tied = nn.Linear(3, 4)
        self.tied.weight = self.linear.weight
        self.turned = nn.Parameter(filled(torch.bfloat16, (4, 3)).t())
        self.row = nn.Parameter(filled(torch.float32, (5, 4), seed=3)[2:4])
        self.register_buffer("steps", filled(torch.int64, (4,)))
        self.register_buffer("unsaved", filled(torch.float16, (2,)), persistent=False)
        self.register_buffer("nothing", torch.empty(0, 3))
        self.register_buffer("scalar", torch.tensor(2.5))
        self.constant = filled(torch.float32, (4,), seed=2)
        self.parts = nn.ModuleList(nn.Conv1d(2, 2, 1) for _ in range(2))

    def forward(self, x):
        y = self.linear(x) + self.tied(
            x) + self.constant + self.turned.float().sum() + self.row.sum() + self.steps + self.scalar
        return y + self.unsaved.float().sum() + self.nothing.sum() + sum(
            p(x.reshape(2, 2, -1)[:, :, :1]).sum() for p in self.parts)


def exported():
    return torch.export.export(Net(), (torch.ones(4, 3),))


@pytest.mark.parametrize("writer", WRITERS)
def test_what_export_load_gives(serve, writer):
    path = serve.root / "net.pt2"
    WRITERS[writer](exported(), path)
    want = load(path)
    assert {"linear.weight", "tied.weight", "turned", "steps", "unsaved", "constant", "parts.1.bias"} <= set(want)
    document, got = check_model(serve(), "net.pt2", want)
    assert document["format"] == "pt2" and got["tied.weight"]["alias_of"] == "linear.weight"
    assert got["turned"]["strides"] == [1, 3]


def test_a_tensor_that_is_pickled(serve):
    """A tensor whose bytes are not contiguous is a file of torch.save within the archive."""
    path = serve.root / "net.pt2"
    torch.export.save(exported(), path)
    with zipfile.ZipFile(path) as source:
        members = {n.split("/", 1)[1]: source.read(n) for n in source.namelist()}
    config = members["data/weights/model_weights_config.json"].decode()
    turned = load(path)["turned"]
    buffer = io.BytesIO()
    torch.save(turned, buffer)
    record = config.split('"turned": {"path_name": "')[1].split('"')[0]
    other = config.replace(f'"{record}", "is_param": true, "use_pickle": false',
                           f'"{record}", "is_param": true, "use_pickle": true')
    assert other != config
    with PT2ArchiveWriter(str(path)) as archive:
        for name, data in members.items():
            if name in (".data/version", ".data/serialization_id", "byteorder"):
                continue
            archive.write_bytes(
                name,
                buffer.getvalue() if name == f"data/weights/{record}" else
                other.encode() if name.endswith("weights_config.json") else data)
    want = load(path)
    assert torch.equal(want["turned"], turned)
    check_model(serve(), "net.pt2", want)


@pytest.mark.parametrize("repack", [deflated, inner_deflated])
@pytest.mark.parametrize("writer", WRITERS)
# shows: security.md content-pt2-deflated
def test_deflated_members_are_decoded(serve, writer, repack):
    path = serve.root / "net.pt2"
    WRITERS[writer](exported(), path)
    stored = load(path)
    path.write_bytes(repack(path.read_bytes()))
    want = load(path)
    assert set(want) == set(stored) and all(torch.equal(want[n], stored[n]) for n in want)
    _, got = check_model(serve(), "net.pt2", want)
    expected = "decoded" if writer != "current" or repack is deflated else None
    assert {t.get("access") for t in got.values()
            if t["nbytes"] > 0} == {expected} | ({"gathered"} if expected is None else set())
    assert got["tied.weight"]["alias_of"] == "linear.weight"


# shows: security.md content-pt2-deflated
def test_what_is_deflated_twice_is_listed(tmp_path):
    path = tmp_path / "net.pt2"
    WRITERS["torch_2_8"](exported(), path)
    path.write_bytes(deflated(inner_deflated(path.read_bytes())))
    tensors = {t["name"]: t for t in inspect_json(path)["tensors"]}
    assert set(tensors) == set(load(path))
    assert {t["reason"] for t in tensors.values() if t["nbytes"] > 0} == {"compressed twice"}


def test_aotinductor_packages_are_refused(tmp_path):
    with PT2ArchiveWriter(str(tmp_path / "m.pt2")) as archive:
        archive.write_string("data/aotinductor/model/model.so", "code")
    code, _, err = run("inspect", tmp_path / "m.pt2", "--json")
    assert code == 1 and one_line(err) and "AOTInductor" in err, err


def altered(path, change):
    """Return the archive with one of its texts changed."""
    source = zipfile.ZipFile(path)
    members = [(n.split("/", 1)[1], source.read(n)) for n in source.namelist()]
    with PT2ArchiveWriter(str(path)) as archive:
        for name, data in members:
            if name not in (".data/version", ".data/serialization_id", "byteorder"):
                archive.write_bytes(name, change(name, data))


BAD = {
    "no_record": (b'"path_name": "weight_0"', b'"path_name": "weight_99"', "is not in the archive"),
    "outside": (b'"path_name": "weight_0"', b'"path_name": "../weight_0"', "plain name"),
    "too_large":
    (b'"sizes": [{"as_int": 4}, {"as_int": 3}]', b'"sizes": [{"as_int": 4}, {"as_int": 300}]', "leaves its storage"),
    "negative": (b'"storage_offset": {"as_int": 0}', b'"storage_offset": {"as_int": -1}', "whole number"),
    "symbolic": (b'"storage_offset": {"as_int": 0}', b'"storage_offset": {"as_name": "s0"}', "not a number"),
    "huge": (b'"storage_offset": {"as_int": 0}', b'"storage_offset": {"as_int": 9223372036854775807}', "is past"),
    "twice": (b'"use_pickle": false', b'"use_pickle": false, "use_pickle": true', "twice"),
    "no_json": (b'"config"', b'config', "expected"),
}


@pytest.mark.parametrize("name", BAD)
# shows: security.md content-pt2-configs
def test_a_config_that_is_wrong_is_refused(tmp_path, name):
    path = tmp_path / "net.pt2"
    torch.export.save(exported(), path)
    before, after, says = BAD[name]
    altered(path, lambda member, data: data.replace(before, after) if member.endswith("weights_config.json") else data)
    code, out, err = run("inspect", path, "--json")
    assert code == 1 and one_line(err), (code, out, err)
    with pytest.raises(Exception):
        load(path)


# shows: security.md content-pt2-configs
def test_nothing_is_run(tmp_path):
    """A pickle in the place of the state_dict only becomes a record of its calls."""
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))
    buffer = io.BytesIO()
    torch.save({"w": torch.ones(2), "trap": Trap()}, buffer)
    artifact = serialize(exported())
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as archive:
        archive.writestr("serialized_exported_program.json", artifact.exported_program)
        archive.writestr("serialized_state_dict.pt", buffer.getvalue())
        archive.writestr("serialized_constants.pt", artifact.constants)
    names = {t["name"] for t in inspect_json(tmp_path / "m.pt2")["tensors"]}
    assert "w" in names and not (tmp_path / "ran").exists()


def test_every_prefix_is_refused(tmp_path):
    path = tmp_path / "net.pt2"
    torch.export.save(exported(), path)
    data = path.read_bytes()
    inputs = [data[:end] for end in range(0, len(data), 251)]
    for prefix, tensors, err in inspect_each(tmp_path / "prefixes", "net.pt2", inputs):
        assert tensors is None and one_line(err), (prefix, tensors, err)
