"""torch.distributed.checkpoint writes with four processes, tensord serves the whole tensors."""
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import MetadataIndex

import warm_python
from harness import Server, age, enc, tensord_binary

HERE = Path(__file__).resolve().parent
DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64"}


def age_all(root):
    for p in root.rglob("*"):
        if p.is_file():
            age(p)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """root/d is the checkpoint. Returns the whole tensors as torch has them."""
    root = tmp_path_factory.mktemp("dcp") / "root"
    root.mkdir()
    command = [*warm_python.command(), str(HERE / "make_dcp.py"), str(root / "d")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    whole = torch.load(str(root / "d.whole.pt"), weights_only=True)
    (root / "d.whole.pt").unlink()
    return root, whole


@pytest.fixture(scope="module")
def srv(made):
    age_all(made[0])
    with Server(made[0]) as s:
        s.wait_hashed()
        yield s


def raw(tensor):
    return bytes(tensor.detach().contiguous().view(torch.uint8).reshape(-1).tolist()) \
        if tensor.dim() and tensor.numel() else \
        bytes(tensor.detach().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


def test_names_types_shapes(srv, made):
    m = srv.json("/models/d/tensors")
    assert m["format"] == "dcp" and m["checkpoint"] == "dcp" and srv.json("/models/d")["errors"] == []
    got = {t["name"]: t for t in m["tensors"]}
    assert set(got) == set(made[1])
    for name, want in made[1].items():
        t = got[name]
        assert (t["dtype"], t["shape"], t["nbytes"]) == (DTYPES[want.dtype], list(want.shape),
                                                         want.numel() * want.element_size()), name
        assert "reason" not in t, t


def test_every_byte(srv, made):
    for name, want in made[1].items():
        r = srv.get(f"/models/d/tensors/{enc(name)}")
        assert r.status == 200 and r.body == raw(want), name
        assert r.get("X-Tensor-Shape").replace(" ", "") == str(list(want.shape)).replace(" ", "")


def test_pieces_lie_where_the_manifest_says(srv, made):
    root, whole = made
    pieced = 0
    for t in srv.json("/models/d/tensors")["tensors"]:
        want = whole[t["name"]]
        for p in t.get("pieces", []):
            box = want[tuple(slice(a, a + n) for a, n in zip(p["start"], p["shape"]))]
            data = (root / "d" / p["file"]).read_bytes()[p["offset"]:p["offset"] + box.numel() * box.element_size()]
            assert data == raw(box), (t["name"], p)
            pieced += 1
    assert pieced > 20


def test_the_table(made):
    """inspect shows a tensor in several pieces without an offset or a file, and counts the files that hold tensors."""
    p = subprocess.run([str(tensord_binary()), "inspect", str(made[0] / "d")], capture_output=True, text=True,
                       timeout=60)
    assert p.returncode == 0 and p.stderr == "", p.stderr
    lines = p.stdout.splitlines()
    files = sorted(f.name for f in (made[0] / "d").glob("*.distcp"))
    assert lines[0].endswith(f"in {len(files)} files")
    assert [line for line in lines
            if line.startswith("  file ")] == [f"  file {i + 1} = {name}" for i, name in enumerate(files)]
    (grid,) = [line.split() for line in lines if line.startswith("  grid ")]
    assert grid[4:] == ["-", "-", "4", "pieces", "in", "4", "files"], grid


def test_ranges_and_validators(srv, made):
    body = raw(made[1]["grid"])
    target = "/models/d/tensors/grid"
    whole = srv.get(target)
    for a, b in [(0, 0), (1, 7), (35, 36), (100, 500), (83, 839), (len(body) - 1, len(body) - 1)]:
        r = srv.get(target, {"Range": f"bytes={a}-{b}", "If-Range": whole.etag})
        assert r.status == 206 and r.body == body[a:b + 1], (a, b)
    assert srv.get(target, {"If-None-Match": whole.etag}).status == 304
    tags = [srv.head(f"/models/d/tensors/{enc(n)}").etag for n in made[1]]
    assert len(set(tags)) == len(tags)


def test_served_by_itself(srv, made):
    """The directory of the checkpoint is the served directory."""
    with Server(made[0] / "d") as s:
        assert [m["id"] for m in s.json("/models")["models"]] == ["d"] and s.json("/models/d")["errors"] == []
        ours, theirs = s.json("/models/d/tensors"), srv.json("/models/d/tensors")
        assert [t | {"href": ""} for t in ours["tensors"]] == [t | {"href": ""} for t in theirs["tensors"]]
        assert s.get("/models/d/tensors/grid").body == raw(made[1]["grid"])


def test_a_missing_file_is_named(made, tmp_path):
    shutil.copytree(made[0] / "d", tmp_path / "root" / "d")
    (tmp_path / "root/d/__2_0.distcp").unlink()
    age_all(tmp_path)
    with Server(tmp_path / "root") as s:
        m = s.json("/models/d")
        assert m["checkpoints"] == []
        assert any("__2_0.distcp" in e["message"] for e in m["errors"]), m["errors"]


def test_without_metadata_it_is_said(made, tmp_path):
    shutil.copytree(made[0] / "d", tmp_path / "root" / "d")
    (tmp_path / "root/d/.metadata").unlink()
    age_all(tmp_path)
    with Server(tmp_path / "root") as s:
        m = s.json("/models/d")
        assert m["checkpoints"] == [] and any(".metadata" in e["message"] for e in m["errors"]), m


def test_a_broken_file_is_refused(made, tmp_path):
    shutil.copytree(made[0] / "d", tmp_path / "root" / "d")
    p = tmp_path / "root/d/__1_0.distcp"
    p.write_bytes(p.read_bytes()[:-5])
    age_all(tmp_path)
    with Server(tmp_path / "root") as s:
        m = s.json("/models/d")
        assert m["checkpoints"] == [] and any("__1_0.distcp" in e["message"] + e["file"]
                                              for e in m["errors"]), m["errors"]


# shows: security.md content-dcp-item-length
def test_an_item_is_as_long_as_the_metadata_says(made, tmp_path):
    """dcp.load sees only that part of the file, so another archive may end there."""
    shutil.copytree(made[0] / "d", tmp_path / "root" / "d")
    p = tmp_path / "root/d/.metadata"
    metadata = pickle.loads(p.read_bytes())
    for key, info in metadata.storage_data.items():
        info.length -= 1 if key.fqn == "grid" else 0
    p.write_bytes(pickle.dumps(metadata))
    age_all(tmp_path)
    with Server(tmp_path / "root") as s:
        got = {t["name"]: t for t in s.json("/models/d/tensors")["tensors"]}
        assert got.pop("grid")["reason"] == "a piece is not where .metadata says"
        assert all("reason" not in t for t in got.values()) and len(got) > 3


@pytest.mark.filterwarnings("ignore")
def test_a_single_box_that_is_not_all(tmp_path):
    """A box of the tensor's shape that begins elsewhere: torch leaves the rest of the tensor as it was, so those values
    are unknown."""
    d = tmp_path / "root/d"
    dcp.save({"w": torch.tensor([1., 2, 3, 4])}, checkpoint_id=d, no_dist=True)
    meta = pickle.loads((d / ".metadata").read_bytes())
    meta.state_dict_metadata["w"].chunks[0].offsets = torch.Size([2])
    meta.storage_data = {MetadataIndex("w", torch.Size([2]), 0): info for info in meta.storage_data.values()}
    (d / ".metadata").write_bytes(pickle.dumps(meta))
    age_all(tmp_path)
    with Server(tmp_path / "root") as s:
        (t,) = s.json("/models/d/tensors")["tensors"]
        assert t["reason"] == "its pieces do not fill it exactly" and s.get("/models/d/tensors/w").status == 422


def test_metadata_of_another_kind_is_a_dot_file(tmp_path):
    (tmp_path / "root/m").mkdir(parents=True)
    (tmp_path / "root/m/.metadata").write_bytes(b"not a pickle")
    (tmp_path / "root/m/readme.txt").write_bytes(b"x")
    age_all(tmp_path)
    with Server(tmp_path / "root") as s:
        assert s.json("/models")["models"] == []
