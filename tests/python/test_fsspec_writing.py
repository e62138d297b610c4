"""The file system of fsspec over a server that takes files: files appear whole, those of one call by one commit."""
import io
import os
import re
import subprocess

import fsspec
import pandas
import pyarrow
import pyarrow.dataset
import pytest
import torch
import torch.distributed.checkpoint as dcp
import webdataset
from fsspec_kit import TABLE, registered  # noqa: F401  the fixture of all tests
from harness import tensord_binary
from publishing import Repo
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

import tensord


@pytest.fixture
def place(serve):
    """A server, its name as paths begin, and a file system. `plain` is a model that the operator made."""
    (serve.root / "plain").mkdir()
    (serve.root / "plain/model.bin").write_bytes(b"x")
    (serve.root / "plain/config.json").write_text("{}")
    server = serve("--publish", "any")
    return server, f"127.0.0.1:{server.port}", fsspec.filesystem("tensord", progress=False)


def commits_of(server, id, kind="models"):
    """The number of commits that were made, which the server keeps for an hour."""
    return len(Repo(server.port, id, kind).commits()["commits"])


def test_a_file_is_written_and_read(place):
    server, base, fs = place
    path = f"{base}/org/name/sub/a b%20é.bin"
    data = os.urandom(3_000_000)
    with fs.open(path, "wb") as file:
        assert file.writable() and not file.seekable()
        assert file.write(data[:1_000_000]) == 1_000_000 and file.tell() == 1_000_000
        assert not fs.exists(path)
        file.write(data[1_000_000:])
    assert fs.cat(path) == data and fs.info(path)["size"] == len(data) and fs.isdir(f"{base}/org/name/sub")
    with fsspec.open(f"tensord://{base}/org/name/b.txt", "w") as file:
        file.write("text\n")
    with fsspec.open(f"tensord://{base}/org/name/c.txt.gz", "wt", compression="gzip") as file:
        file.write("packed")
    with fsspec.open(f"tensord://{base}/org/name/c.txt.gz", "rt", compression="gzip") as file:
        assert file.read() == "packed"
    fs.pipe(f"{base}/org/name/b.txt", b"other")
    assert fs.cat(f"{base}/org/name/b.txt") == b"other"
    fs.touch(f"{base}/org/name/empty")
    assert fs.cat(f"{base}/org/name/empty") == b""
    assert sorted(fs.find(f"{base}/org/name")) == [f"{base}/org/name/{name}" for name in (
        "b.txt", "c.txt.gz", "empty", "sub/a b%20é.bin")]
    for create in (lambda: fs.open(path, "xb"), lambda: fs.pipe(path, b"", mode="create"),
                   lambda: fs.put(__file__, path, mode="create")):
        with pytest.raises(FileExistsError):
            create()
    with fs.open(f"{base}/org/name/new.txt", "xb") as file:
        file.write(b"new")
    assert fs.cat(f"{base}/org/name/new.txt") == b"new"
    for mode in ("ab", "r+b"):
        with pytest.raises(OSError, match="written whole"):
            fs.open(path, mode)
    assert fs.cat(path) == data


def test_an_exception_leaves_no_file(place):
    server, base, fs = place
    path = f"{base}/org/name/a.bin"
    fs.pipe(path, b"before")
    with pytest.raises(KeyError), fs.open(path, "wb") as file:
        file.write(b"after" * 1_000_000)
        raise KeyError
    file = fs.open(path, "wb")
    file.write(b"lost")
    del file
    with pytest.raises(KeyError), fs.transaction:
        fs.pipe(path, b"after")
        with fs.open(f"{base}/org/name/b.bin", "wb") as file:
            file.write(b"after")
        raise KeyError
    assert fs.cat(path) == b"before" and fs.ls(f"{base}/org/name", detail=False) == [path]
    assert commits_of(server, "org/name") == 1


def test_one_call_is_one_commit(place, tmp_path):
    server, base, fs = place
    for name in ("a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"):
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text(name)
    fs.put(str(tmp_path / "out") + "/", f"{base}/org/name/", recursive=True)
    assert commits_of(server, "org/name") == 1
    assert {path[len(base) + 10:]: fs.cat(path).decode() for path in fs.find(f"{base}/org/name")} == {
        name: name for name in ("a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt")}
    with fs.transaction:
        fs.pipe(f"{base}/org/name/a.txt", b"1")
        with fs.open(f"{base}/org/name/e.txt", "wb") as file:
            file.write(b"2")
        fs.rm(f"{base}/org/name/b.txt")
        assert fs.cat(f"{base}/org/name/a.txt") == b"a.txt"
    assert commits_of(server, "org/name") == 2 and fs.cat(f"{base}/org/name/a.txt") == b"1"
    fs.pipe({f"{base}/org/name/f": b"f", f"{base}/org/name/g": b"g", f"{base}/org/other/h": b"h"})
    assert commits_of(server, "org/name") == 3 and fs.cat(f"{base}/org/other/h") == b"h"
    fs.mv(f"{base}/org/name/sub", f"{base}/org/name/moved", recursive=True)
    assert commits_of(server, "org/name") == 4
    fs.rm([f"{base}/org/name/f", f"{base}/org/name/g"])
    assert commits_of(server, "org/name") == 5
    assert sorted(fs.find(f"{base}/org/name")) == [f"{base}/org/name/{name}" for name in (
        "a.txt", "e.txt", "moved/c.txt", "moved/deep/d.txt")]
    fs.get(f"{base}/org/name/moved/", str(tmp_path / "back") + "/", recursive=True)
    assert (tmp_path / "back/deep/d.txt").read_text() == "sub/deep/d.txt"
    fs.rm(f"{base}/org/name", recursive=True)
    assert not fs.exists(f"{base}/org/name") and fs.exists(f"{base}/org/other/h")
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{base}/org/name/a.txt")


def test_copies(place):
    """A copy inside a model sends no bytes; one to another model does."""
    server, base, fs = place
    data = os.urandom(5_000_000)
    fs.pipe(f"{base}/org/name/a.bin", data)

    def received():
        text = server.get("/metrics").body.decode()
        return sum(float(n) for n in re.findall(r"^tensord_upload_received_bytes_total\S* (\S+)$", text, re.MULTILINE))

    before = received()
    assert before >= len(data)
    fs.cp(f"{base}/org/name/a.bin", f"{base}/org/name/b.bin")
    assert received() - before < 100_000
    fs.cp(f"{base}/org/name/a.bin", f"{base}/org/other/c.bin")
    assert received() - before >= len(data)
    assert fs.cat(f"{base}/org/name/b.bin") == fs.cat(f"{base}/org/other/c.bin") == data


def test_revisions_datasets_and_ids_of_one_part(place):
    server, base, fs = place
    fs.pipe(f"{base}/org/name/a.txt", b"main")
    fs.pipe(f"{base}/org/name@v2/a.txt", b"v2")
    fs.pipe(f"{base}/datasets/org/rows/train.jsonl", b'{"n": 1}\n')
    fs.pipe(f"{base}/single@main/a.txt", b"one part")
    fs.pipe(f"{base}/single/sub/b.txt", b"in it")
    assert fs.cat(f"{base}/org/name/a.txt") == b"main" and fs.cat(f"{base}/org/name@v2/a.txt") == b"v2"
    assert fs.cat(f"{base}/datasets/org/rows/train.jsonl") == b'{"n": 1}\n'
    assert fs.cat(f"{base}/single/a.txt") == b"one part" and fs.cat(f"{base}/single/sub/b.txt") == b"in it"
    assert Repo(server.port, "org/name").commits()["refs"].keys() == {"main", "v2"}
    for path in ("file.txt", "org/file.txt", "datasets/file.txt", "org/name"):
        with pytest.raises(OSError, match="not a file of a model or dataset: org/name/file"):
            fs.pipe(f"{base}/{path}", b"")
    with pytest.raises(tensord.AnswerError) as caught:
        fs.pipe(f"{base}/plain/model.bin", b"mine")
    assert caught.value.status == 409 and fs.cat(f"{base}/plain/model.bin") == b"x"


def test_pandas_and_pyarrow(place):
    server, base, fs = place
    TABLE.to_csv(f"tensord://{base}/org/name/table.csv", index=False)
    TABLE.to_parquet(f"tensord://{base}/org/name/table.parquet")
    assert pandas.read_csv(f"tensord://{base}/org/name/table.csv").equals(TABLE)
    assert pandas.read_parquet(f"tensord://{base}/org/name/table.parquet").equals(TABLE)
    pyarrow.dataset.write_dataset(pyarrow.Table.from_pandas(TABLE), f"{base}/datasets/org/table", filesystem=fs,
                                  format="parquet", max_rows_per_file=2000, max_rows_per_group=2000)
    found = pyarrow.dataset.dataset(f"{base}/datasets/org/table", filesystem=fs).to_table().to_pandas()
    assert found.sort_values("n", ignore_index=True).equals(TABLE)


def test_checkpoints_by_torch(place):
    """torch writes `.metadata.tmp` and renames it; a checkpoint is read as it was written."""
    server, base, fs = place
    url = f"tensord://{base}/org/run/step-1"
    state = {"w": torch.arange(1000.0), "step": 7}
    dcp.save(state, storage_writer=FsspecWriter(url), no_dist=True)
    assert sorted(fs.ls(f"{base}/org/run/step-1", detail=False)) == [f"{base}/org/run/step-1/{name}" for name in (
        ".metadata", "__0_0.distcp")]
    dcp.save({**state, "step": 8}, storage_writer=FsspecWriter(url), no_dist=True)
    found = {"w": torch.zeros(1000), "step": 0}
    dcp.load(found, storage_reader=FsspecReader(url), no_dist=True)
    assert torch.equal(found["w"], state["w"]) and found["step"] == 8
    assert tensord.load_file(url)["w"].sum() == state["w"].sum()


def test_names_that_are_not_listed(place):
    server, base, fs = place
    fs.pipe(f"{base}/org/name/a.tmp", b"soon")
    assert fs.exists(f"{base}/org/name/a.tmp") and fs.info(f"{base}/org/name/a.tmp")["size"] == 4
    assert not fs.exists(f"{base}/org/name/a.txt")
    fs.mv(f"{base}/org/name/a.tmp", f"{base}/org/name/a.txt")
    assert fs.cat(f"{base}/org/name/a.txt") == b"soon" and not fs.exists(f"{base}/org/name/a.tmp")
    fs.pipe(f"{base}/org/name/.hidden", b"")
    fs.rm(f"{base}/org/name/.hidden")
    assert not fs.exists(f"{base}/org/name/.hidden") and commits_of(server, "org/name") == 1


def test_as_lightning_saves(place):
    """The calls of Lightning's checkpoints: a transaction around a file, or pipe; folders; rm of older ones."""
    server, base, fs = place
    for step in range(3):
        path = f"{base}/org/run/checkpoints/epoch={step}-step={10 * step}.ckpt"
        buffer = io.BytesIO()
        torch.save({"state_dict": {"w": torch.full((10,), float(step))}, "global_step": step}, buffer)
        fs.makedirs(os.path.dirname(path), exist_ok=True)
        if step % 2:
            fs.pipe(path, buffer.getvalue())
        else:
            with fs.transaction, fs.open(path, "wb") as file:
                file.write(buffer.getvalue())
        assert fs.exists(path) and fs.isfile(path)
    old = f"{base}/org/run/checkpoints/epoch=0-step=0.ckpt"
    fs.rm(old, recursive=True)
    assert len(fs.ls(f"{base}/org/run/checkpoints")) == 2 and not fs.exists(old)
    with fs.open(f"{base}/org/run/checkpoints/epoch=2-step=20.ckpt", "rb") as file:
        assert torch.load(file)["state_dict"]["w"][0] == 2


def test_shards_of_webdataset(place, monkeypatch):
    server, base, fs = place
    url = f"tensord://{base}/datasets/org/shards"
    monkeypatch.setitem(webdataset.gopen_schemes, "tensord",
                        lambda name, mode, bufsize, **_: fsspec.open(name, mode).open())
    with webdataset.ShardWriter(f"{url}/train-%03d.tar", maxcount=4, verbose=0) as sink:
        for i in range(10):
            sink.write({"__key__": f"{i:04d}", "txt": f"sample {i}", "cls": i})
    dataset = tensord.Dataset(url, split="train")
    assert len(dataset) == 10 and dataset[7]["txt"] == b"sample 7"


def test_tokens(serve, tmp_path):
    """A token that may only read is refused, by the name of the right."""
    tokens = tmp_path / "tokens.json"
    made = {}
    for name, more in (("reads", []), ("writes", ["--write"])):
        run = subprocess.run([tensord_binary(), "token", "new", name, "--tokens", tokens, *more], check=True,
                             capture_output=True, text=True)
        made[name] = run.stdout.split("token:")[1].split()[0]
    server = serve("--publish", "any", "--tokens", tokens)
    path = f"127.0.0.1:{server.port}/org/name/a.txt"
    reads, writes = (fsspec.filesystem("tensord", token=made[name]) for name in ("reads", "writes"))
    with pytest.raises(tensord.AnswerError, match="token new NAME --write") as caught:
        reads.pipe(path, b"x")
    assert caught.value.status == 403
    writes.pipe(path, b"x")
    assert reads.cat(path) == b"x"
