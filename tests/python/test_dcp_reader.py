"""torch.distributed.checkpoint by TensordReader: saved by 4 ranks, loaded by other numbers of them."""
import json
import subprocess
from pathlib import Path

import harness
import pytest
import torch
import torch.distributed.checkpoint as dcp
import warm_python
from conftest import bytes_of, url_of
from safetensors.torch import save_file

import tensord
from tensord.dcp import TensordReader

RANKS = (1, 2, 3, 8)
CASES = ("fsdp", "columns", "copies", "safetensors")


def run(*arguments):
    done = subprocess.run([*warm_python.command(), Path(__file__).with_name("dcp_run.py"), *map(str, arguments)],
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A server of what 4 ranks wrote, the tensors in it, and the folder."""
    root = tmp_path_factory.mktemp("dcp") / "root"
    root.mkdir()
    run("save", root, 4)
    want = torch.load(f"{root}.pt")
    assert len(list((root / "fsdp").glob("*.distcp"))) == 4
    (root / "changed").mkdir()
    save_file({name: tensor + 1 for name, tensor in want.items()}, root / "changed/model.safetensors")
    harness.age(root)
    with harness.Server(root) as server:
        yield server, want, root


@pytest.fixture(scope="module")
def loaded(saved):
    """The results of each rank for each number of ranks, and those of the ranks of a torn load."""
    server, _, root = saved
    run("load", root, root.parent / "out", f"tensord://127.0.0.1:{server.port}", *RANKS)
    rows = [row for path in root.parent.glob("out-*") for row in json.loads(path.read_text())]
    assert len(rows) == sum(RANKS) * len(CASES) + 2
    return {row.pop("agent"): row for row in rows}


@pytest.mark.parametrize("ranks", RANKS)
def test_each_rank_reads_its_part(saved, loaded, ranks):
    """Rows by FSDP2, columns by DTensor, whole tensors: what was saved. All that is sent to a rank, the manifest too,
    is at most 1.05 of what it holds."""
    server, want, _ = saved
    whole = sum(tensor.nbytes for tensor in want.values())
    for case in CASES:
        rows = {agent: row for agent, row in loaded.items() if agent in {f"ranks-{ranks}-{rank}-{case}"
                                                                         for rank in range(ranks)}}
        assert len(rows) == ranks and all(row["same"] for row in rows.values()), rows
        if case != "copies":
            assert sum(row["held"] for row in rows.values()) <= whole + 4096 * ranks
        for agent, row in rows.items():
            ratio = bytes_of(server, agent=agent) / row["held"]
            print(f"{agent}: {ratio:.4f} of {row['held']} bytes")
            assert 1 <= ratio <= 1.05, (agent, row)


def test_ranks_that_find_different_versions(loaded):
    """No rank continues with a mixture."""
    for rank in (0, 1):
        assert "changed on the server while it was being loaded: load again" in loaded[f"torn-{rank}"]["error"]


def test_a_plain_state_dict_without_processes(saved):
    server, want, _ = saved

    def load(state, model="plain", **settings):
        dcp.load(state, storage_reader=TensordReader(url_of(server, model)), no_dist=True, **settings)
        return state

    state = load({name: torch.zeros_like(tensor) for name, tensor in want.items()})
    assert all(torch.equal(state[name], want[name]) for name in want)
    with pytest.raises(dcp.CheckpointException, match="Missing key in checkpoint state_dict: none"):
        load({"none": torch.zeros(1)})
    with pytest.raises(dcp.CheckpointException, match="Size mismatch between saved"):
        load({"0.bias": torch.zeros(1)})
    lenient = dcp.DefaultLoadPlanner(allow_partial_load=True)
    for settings in ({}, {"planner": lenient}):
        state = load({"note": {"epoch": 0}, "0.bias": torch.zeros(903)}, **settings)
        assert state["note"] == {"epoch": 7} and torch.equal(state["0.bias"], want["0.bias"])


def test_a_tensor_that_cannot_be_served_is_said(serve):
    (serve.root / "m").mkdir()
    torch.save({"w": torch._neg_view(torch.ones(3))}, serve.root / "m/model.pt")
    reader = TensordReader(url_of(serve(), "m"))
    with pytest.raises(dcp.CheckpointException, match="tensor 'w' of m cannot be read: negated"):
        dcp.load({"w": torch.zeros(3)}, storage_reader=reader, no_dist=True)


def test_safetensors_and_a_change_between_loads(serve):
    (serve.root / "m").mkdir()
    path = serve.root / "m" / "model.safetensors"
    save_file({"w": torch.arange(20.0).reshape(4, 5)}, path)
    server = serve()
    server.wait_hashed()
    reader = TensordReader(url_of(server, "m"))
    state = {"w": torch.zeros(4, 5, dtype=torch.float64)}
    dcp.load(state, storage_reader=reader, no_dist=True)
    assert torch.equal(state["w"], torch.arange(20.0, dtype=torch.float64).reshape(4, 5))

    reader.reset()
    metadata = reader.read_metadata()
    assert metadata.state_dict_metadata["w"].size == torch.Size([4, 5])
    save_file({"w": torch.ones(4, 5)}, path)
    client = tensord.connect(url_of(server, "m"))
    etag = reader._model.manifest().etag
    server.wait_for(lambda: client.manifest().etag != etag, "the new version is published")
    with pytest.raises(tensord.ChangedError, match="changed on the server"):
        planner = dcp.DefaultLoadPlanner()
        planner.set_up_planner(state, metadata, True)
        reader.read_data(reader.prepare_local_plan(planner.create_local_plan()), planner)
    dcp.load(state, storage_reader=reader, no_dist=True)  # each load begins with the version of its time
    assert torch.equal(state["w"], torch.ones(4, 5, dtype=torch.float64))
    assert TensordReader.validate_checkpoint_id("tensord://host/m")
    assert not TensordReader.validate_checkpoint_id("/tmp/m")


def test_a_version_that_has_two_tags(saved):
    """The tag of a version changes when its files have been hashed: ranks that read one each agree."""
    server, _, root = saved
    server.wait_hashed()
    with harness.Server(root, hash_threads=0) as unhashed:
        former = tensord.connect(url_of(unhashed, "fsdp")).manifest().etag
    model = tensord.open_model(url_of(server, "fsdp"))
    assert former != model.manifest().etag
    model.agree([former])
    for tag in ("0" * 32, tensord.connect(url_of(server, "plain")).manifest().etag):
        with pytest.raises(tensord.ChangedError, match="load again"):
            model.agree([former, tag])
