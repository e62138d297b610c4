"""The file system of fsspec: files of models by range, as pandas and pyarrow read them."""
import errno
import os

import fsspec
import pandas
import pyarrow.parquet
import pytest
import torch
from safetensors.torch import load, save_file

import tensord
from tensord.fsspec import TensordFileSystem

TABLE = pandas.DataFrame({"n": range(5000), "half": [n / 2 for n in range(5000)]})


@pytest.fixture(autouse=True)
def registered():
    fsspec.register_implementation("tensord", TensordFileSystem, clobber=True)
    TensordFileSystem.clear_instance_cache()


@pytest.fixture
def place(serve):
    """The server, and its name as paths begin: models `plain`, `org/name`, and `org/name/inner`."""
    for model in ("plain", "org/name", "org/name/inner"):
        (serve.root / model).mkdir(parents=True, exist_ok=True)
        save_file({"w": torch.arange(30.0)}, serve.root / model / "model.safetensors")
    (serve.root / "org/name/config.json").write_text('{"model_type": "x"}')
    (serve.root / "org/name/inner/config.json").write_text("{}")
    (serve.root / "org/name/é %20?.txt").write_text("odd")
    TABLE.to_csv(serve.root / "plain/table.csv", index=False)
    TABLE.to_parquet(serve.root / "plain/table.parquet", row_group_size=1000)
    (serve.root / "plain/large.bin").write_bytes(bytes(range(256)) * 40000)
    server = serve()
    return server, f"127.0.0.1:{server.port}"


def names(rows, base):
    return {row["name"][len(base) + 1 :]: row["type"][0] for row in rows}


def test_listings(place):
    """Folders of models, models, and models in models, as folders of one tree."""
    server, base = place
    fs = fsspec.filesystem("tensord", progress=False)
    assert isinstance(fs, TensordFileSystem) and fs is fsspec.filesystem("tensord", progress=False)
    assert names(fs.ls(f"tensord://{base}"), base) == {"org": "d", "plain": "d"}
    assert names(fs.ls(f"{base}/org/"), base) == {"org/name": "d"}
    assert names(fs.ls(f"{base}/org/name"), base) == {
        "org/name/config.json": "f", "org/name/model.safetensors": "f", "org/name/inner": "d",
        "org/name/é %20?.txt": "f"}
    assert fs.ls(f"{base}/org/name/inner", detail=False) == [f"{base}/org/name/inner/config.json",
                                                             f"{base}/org/name/inner/model.safetensors"]
    assert [row["size"] for row in fs.ls(f"{base}/org/name/config.json")] == [19]
    found = fs.find(f"tensord://{base}")
    assert len(found) == 9 and f"{base}/org/name/inner/model.safetensors" in found
    assert fs.glob(f"tensord://{base}/*/*.csv") == [f"{base}/plain/table.csv"]
    assert fs.glob(f"{base}/**/model.safetensors") == [
        f"{base}/{model}/model.safetensors" for model in ("org/name/inner", "org/name", "plain")]
    assert fs.isdir(f"{base}/org") and fs.isdir(f"{base}/org/name") and fs.isfile(f"{base}/org/name/config.json")
    server.wait_hashed()
    about = fs.info(f"tensord://{base}/org/name/config.json")
    assert (about["type"], about["size"], len(about["sha256"])) == ("file", 19, 64)
    for path in ("nothing", "org/none", "org/name/none.json", "plain/none/x", "or", "org/name/inne"):
        assert not fs.exists(f"{base}/{path}"), path
        for call in (fs.ls, fs.info, fs.cat, fs.ukey, fs.open):
            with pytest.raises(FileNotFoundError, match=path):
                call(f"{base}/{path}")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{base}/org/name")


def test_reading(place):
    server, base = place
    fs = fsspec.filesystem("tensord", progress=False)
    whole = bytes(range(256)) * 40000
    path = f"{base}/plain/large.bin"
    assert fs.cat(path) == whole and fs.cat_file(path, 5, 70000) == whole[5:70000]
    assert fs.cat_file(path, -7) == whole[-7:] and fs.cat_file(path, 9, 3) == b""
    assert fs.cat({path, f"{base}/org/name/config.json"}) == {
        path: whole, f"{base}/org/name/config.json": b'{"model_type": "x"}'}
    assert fs.cat_ranges([path, path], [0, 255], [3, 258]) == [b"\x00\x01\x02", b"\xff\x00\x01"]
    assert fs.cat(f"{base}/org/name/é %20?.txt") == b"odd"
    with fsspec.open(f"tensord://{path}", block_size=1000) as file:
        assert file.read(3) == whole[:3] and file.seek(-5, os.SEEK_END) == len(whole) - 5
        assert file.read() == whole[-5:] and file.read() == b""
        file.seek(123456)
        assert file.read(2000) == whole[123456:125456] and file.tell() == 125456 and file.size == len(whole)
    with fsspec.open(f"tensord://{base}/org/name/config.json", "rt") as file:
        assert file.read() == '{"model_type": "x"}'
    assert torch.equal(load(fs.cat(f"{base}/org/name/inner/model.safetensors"))["w"], torch.arange(30.0))


def test_pandas_and_pyarrow(place):
    server, base = place
    assert pandas.read_csv(f"tensord://{base}/plain/table.csv").equals(TABLE)
    assert pandas.read_parquet(f"tensord://{base}/plain/table.parquet").equals(TABLE)
    fs = fsspec.filesystem("tensord", progress=False)
    column = pyarrow.parquet.read_table(f"{base}/plain/table.parquet", filesystem=fs, columns=["n"])
    assert column.to_pandas().equals(TABLE[["n"]])


def test_everything_that_writes_is_refused(place):
    server, base = place
    fs = fsspec.filesystem("tensord")
    path = f"{base}/plain/new.bin"
    for call in (lambda: fs.open(path, "wb"), lambda: fs.open(path, "ab"), lambda: fs.pipe(path, b"x"),
                 lambda: fs.rm(f"{base}/plain/table.csv"), lambda: fs.touch(path), lambda: fs.mkdir(f"{base}/m"),
                 lambda: fs.makedirs(f"{base}/m/n"), lambda: fs.rmdir(f"{base}/org"), lambda: fs.put(__file__, path),
                 lambda: fs.cp(f"{base}/plain/table.csv", path), lambda: fs.mv(f"{base}/plain/table.csv", path),
                 lambda: TABLE.to_csv(f"tensord://{path}")):
        with pytest.raises(OSError, match="tensord serves files and takes none") as caught:
            call()
        assert caught.value.errno == errno.EROFS
    assert not fs.exists(path) and fs.exists(f"{base}/plain/table.csv")


def test_an_open_file_has_one_version(place, serve):
    server, base = place
    fs = fsspec.filesystem("tensord", retry_for=20.0)
    path = f"{base}/plain/large.bin"
    before = fs.ukey(path)
    with fs.open(path, block_size=4096) as file:
        assert file.read(10) == bytes(range(10))
        (serve.root / "plain/large.bin").write_bytes(b"\x07" * 256 * 40000)
        server.wait_for(lambda: fs.ukey(path) != before, "the new version is published")
        file.seek(5_000_000)
        with pytest.raises(tensord.ChangedError, match="changed while it was being read"):
            file.read(10)
    assert fs.cat_file(path, 5_000_000, 5_000_010) == b"\x07" * 10


def test_options_and_servers(place):
    """Options are fsspec's storage_options; a server that is away is passed over."""
    server, base = place
    both = f"127.0.0.1:1,{base}"
    options = {"retry_for": 20.0, "connect_timeout": 2.0, "token": "abc"}
    assert fsspec.open(f"tensord://{both}/org/name/config.json", **options).open().read() == b'{"model_type": "x"}'
    assert len(pandas.read_csv(f"tensord://{both}/plain/table.csv", storage_options=options)) == 5000
    with pytest.raises(tensord.ConnectError, match="gave up"):
        fsspec.filesystem("tensord", retry_for=0.2).ls("127.0.0.1:1/m")
