"""torch.distributed.checkpoint by TensordWriter: saved to a server, read by torch's own reader and by TensordReader."""
import os
import pickle
import signal
import subprocess
import threading
from pathlib import Path

import harness
import pytest
import torch
import torch.distributed.checkpoint as dcp
import warm_python
from conftest import url_of
from publishing import Repo
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

import tensord
from dcp_run import make_model, state_of
from tensord.dcp import TensordReader, TensordWriter


def zeros_like(state):
    return {name: torch.zeros_like(value) if isinstance(value, torch.Tensor) else type(value)()
            for name, value in state.items()}


def same(one, other):
    return one.keys() == other.keys() and all(
        torch.equal(one[name], other[name]) if isinstance(one[name], torch.Tensor) else one[name] == other[name]
        for name in one)


def save(url, state, **settings):
    writer = TensordWriter(url, **settings)
    dcp.save(state, storage_writer=writer, no_dist=True)
    return writer


def loaded(url, like):
    state = zeros_like(like)
    dcp.load(state, storage_reader=TensordReader(url, progress=False), no_dist=True)
    return state


def folder_of(server, model, ref="main"):
    """Where the server keeps the files of a model's revision."""
    cache = Path(server.root) / ("models--" + model.replace("/", "--"))
    return cache / "snapshots" / (cache / "refs" / ref).read_text()


def by_torch(folder, like):
    """Return the state that torch's own reader finds in a folder."""
    state = zeros_like(like)
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    return state


def test_a_checkpoint_is_what_torch_wrote(serve, tmp_path, monkeypatch):
    server = serve("--publish", "any")
    monkeypatch.setattr(os, "sync", lambda: pytest.fail("torch syncs the whole machine"))
    state, url = state_of(1), url_of(server, "org/run/step-1")
    writer = save(url, state)
    assert writer.commit.changed and writer.commit.files == 2
    assert same(loaded(url, state), state)
    kept = folder_of(server, "org/run") / "step-1"
    assert same(by_torch(kept, state), state)
    dcp.save(state, checkpoint_id=tmp_path / "own", no_dist=True)
    assert {path.name for path in kept.iterdir()} == {path.name for path in (tmp_path / "own").iterdir()}
    about = pickle.loads((kept / ".metadata").read_bytes())
    assert {type(record).__name__ for record in about.storage_data.values()} == {"_StorageInfo"}
    assert about.storage_meta.checkpoint_id == url


def test_each_save_goes_to_its_folder_and_revision(serve):
    server = serve("--publish", "any")
    url = url_of(server, "org/run")
    writer = TensordWriter(url_of(server, "org/run"), message="a step")
    for number in (1, 2):
        dcp.save(state_of(number), checkpoint_id=f"{url}@exp/steps/step-{number}", storage_writer=writer, no_dist=True)
    assert writer.commit.revision == "exp" and writer.commit.files == 4
    save(f"{url}@exp", state_of(3))
    for number, folder in ((1, "steps/step-1"), (2, "steps/step-2"), (3, "")):
        want = state_of(number)
        assert same(by_torch(folder_of(server, "org/run", "exp") / folder, want), want), folder
    found = Repo(server.port, "org/run").ask("GET", "/commits").json()
    assert [commit["message"] for commit in found["commits"]].count("a step") == 2


def test_an_older_checkpoint_is_replaced_whole(serve):
    """Parts that the new checkpoint does not have go, all other files stay, and readers see one of both."""
    server = serve("--publish", "any")
    repo, url = Repo(server.port, "org/run"), url_of(server, "org/run/last")
    assert repo.push({"last/notes.txt": b"mine", "last/inner/a.txt": b"too", "b.txt": b"beside"})[0].status == 201
    save(url, state_of(1), single_file_per_rank=False)
    parts = {path.name for path in (folder_of(server, "org/run") / "last").glob("*.distcp")}
    assert len(parts) > 1
    wrong, over = [], threading.Event()

    def read():
        while not over.is_set():
            names = {path.name for path in (folder_of(server, "org/run") / "last").glob("*.distcp")}
            found = loaded(url, state_of(0))
            if found["step"] not in (1, 2) or not same(found, state_of(found["step"])) or len(names) not in (
                    1, len(parts)):
                wrong.append((found["step"], names))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        writer = save(url, state_of(2))
    finally:
        over.set()
        reader.join()
    assert not wrong and writer.commit.files == 5
    last = folder_of(server, "org/run") / "last"
    assert sorted(path.name for path in last.iterdir()) == [".metadata", "__0_0.distcp", "inner", "notes.txt"]
    assert same(loaded(url, state_of(2)), state_of(2))


def test_a_checkpoint_that_must_not_be_replaced(serve):
    server = serve("--publish", "any")
    url = url_of(server, "org/run/last")
    save(url, state_of(1), overwrite=False)
    with pytest.raises(dcp.CheckpointException, match="is a checkpoint already, and overwrite=False"):
        save(url, state_of(2), overwrite=False)
    assert same(loaded(url, state_of(1)), state_of(1))


class Breaks:
    """An object that cannot be saved."""

    def __reduce__(self):
        raise RuntimeError("cannot be pickled")


def test_a_save_that_fails_changes_nothing(serve):
    """An object that cannot be saved fails in the middle of a file whose first bytes have been sent."""
    server = serve("--publish", "any")
    url = url_of(server, "org/run/last")
    save(url, state_of(1))
    before = Repo(server.port, "org/run").ask("GET", "/commits").json()["refs"]
    with pytest.raises(dcp.CheckpointException, match="cannot be pickled"):
        save(url, {"a": torch.zeros(3_000_000), "b": Breaks()})

    class Fails(torch.Tensor):
        def detach(self):
            raise RuntimeError("the tensor fails")

    with pytest.raises(dcp.CheckpointException, match="the tensor fails"):
        save(url, {"a": torch.rand(3_000_000), "z": torch.zeros(5).as_subclass(Fails)})
    assert Repo(server.port, "org/run").ask("GET", "/commits").json()["refs"] == before
    assert same(loaded(url, state_of(1)), state_of(1))


def test_a_server_that_dies_during_a_save(tmp_path):
    """The save fails, and the model on disk is the one from before."""
    (tmp_path / "root").mkdir()
    server = harness.Server(tmp_path / "root", "--publish", "any")
    url = url_of(server, "org/run/last")
    save(url, state_of(1))
    kept = folder_of(server, "org/run")

    class Dies(torch.Tensor):
        def detach(self):
            server.kill()
            return torch.zeros(1_000_000)

    state = {f"layer.{i}": torch.rand(1_000_000) for i in range(4)}
    with pytest.raises(dcp.CheckpointException, match=f"ConnectError: http://127.0.0.1:{server.port}"):
        save(url, {**state, "zero": torch.zeros(1_000_000).as_subclass(Dies)}, retry_for=0.5)
    assert server.rc == -signal.SIGKILL
    assert folder_of(server, "org/run") == kept and same(by_torch(kept / "last", state_of(1)), state_of(1))


@pytest.mark.parametrize("kind", [AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS])
def test_a_save_in_the_background(serve, kind, tmp_path):
    server = serve("--publish", "any")
    url = url_of(server, "org/run/step-7")
    code = f"""
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from dcp_run import state_of
from tensord.dcp import TensordWriter
if __name__ == "__main__":
    dist.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1)
    state = state_of(7)
    done = dcp.async_save(state, storage_writer=TensordWriter({url!r}),
                          async_checkpointer_type=AsyncCheckpointerType.{kind.name})
    for value in state.values():
        if isinstance(value, torch.Tensor):
            value.zero_()
    done.result()
    dist.destroy_process_group()
"""
    script = tmp_path / "run.py"
    script.write_text(code)
    done = subprocess.run([*warm_python.command(), script], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert same(loaded(url, state_of(7)), state_of(7))


@pytest.mark.parametrize("how", ["", "async"])
def test_ranks_of_fsdp(serve, how):
    """Three ranks save their parts into one checkpoint; then two do so over it."""
    server = serve("--publish", "any")
    url, want = url_of(server, "org/run/step-1"), make_model().state_dict()
    for ranks in (3, 2):
        run = [*warm_python.command(), Path(__file__).with_name("dcp_run.py"), "write", url, str(ranks), how]
        done = subprocess.run(run, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        folder = folder_of(server, "org/run") / "step-1"
        assert {path.name.split("_")[2] for path in folder.glob("*.distcp")} == {str(rank) for rank in range(ranks)}
        assert same(loaded(url, want), want) and same(by_torch(folder, want), want)


def test_a_writer_may_be_pickled_and_says_what_it_cannot_do(serve):
    server = serve("--publish", "any")
    url = url_of(server, "org/run/step-1")
    writer = pickle.loads(pickle.dumps(TensordWriter(url)))
    dcp.save(state_of(1), storage_writer=writer, no_dist=True)
    assert same(loaded(url, state_of(1)), state_of(1))
    with pytest.raises(ValueError, match="use_collectives=True: one rank commits"):
        TensordWriter(url).set_up_storage_writer(True, rank=0, use_collectives=False)
    with pytest.raises(tensord.AddressError):
        TensordWriter("/tmp/folder")
    assert TensordWriter.validate_checkpoint_id(url) and not TensordWriter.validate_checkpoint_id("/tmp/folder")


def test_who_may_not_write_is_told(serve):
    server = serve()
    with pytest.raises(dcp.CheckpointException, match="a tensord with --publish"):
        save(url_of(server, "org/run"), state_of(1))
