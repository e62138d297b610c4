"""The file system of fsspec: files of models and datasets by range, as pandas and pyarrow read them."""
import os
from dataclasses import replace

import fsspec
import pandas
import pki
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import pytest
import torch
from fsspec_kit import TABLE, registered  # noqa: F401  the fixture of all tests
from safetensors.torch import load, save_file

import tensord
from tensord import address
from tensord.__main__ import main
from tensord.fsspec import TensordFileSystem


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


def test_a_server_that_takes_no_files(place):
    """Each call says who has to act, and nothing changes."""
    server, base = place
    fs = fsspec.filesystem("tensord")
    path = f"{base}/org/name/new.bin"
    for call in (lambda: fs.pipe(path, b"x"), lambda: fs.rm(f"{base}/org/name/config.json"), lambda: fs.touch(path),
                 lambda: fs.put(__file__, path), lambda: fs.cp(f"{base}/org/name/config.json", path),
                 lambda: fs.mv(f"{base}/org/name/config.json", path), lambda: TABLE.to_csv(f"tensord://{path}")):
        with pytest.raises(tensord.AnswerError, match="--publish"):
            call()
    assert not fs.exists(path) and fs.exists(f"{base}/org/name/config.json")


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


# ---- datasets

@pytest.fixture
def data(serve):
    """The server of datasets `org/name`, `by/year` and `elsewhere` and of a model `plain`, and how its paths begin."""
    root = serve.root
    for folder in ("datasets/org/name/data/deep", "datasets/by/year/y=1", "datasets/by/year/y=2", "elsewhere", "plain"):
        (root / folder).mkdir(parents=True)
    (root / "datasets/org/name/README.md").write_text("# é")
    for number in range(5):
        TABLE[number * 1000 : (number + 1) * 1000].to_parquet(
            root / f"datasets/org/name/data/train-0000{number}-of-00005.parquet", index=False)
    (root / "datasets/org/name/data/deep/a b?%20#.csv").write_text("a,b\n1,2\n")
    for year in (1, 2):
        TABLE[: year * 10].to_parquet(root / f"datasets/by/year/y={year}/x.parquet", index=False)
    (root / "elsewhere/x.jsonl").write_text('{"n": 1}\n')
    save_file({"w": torch.arange(30.0)}, root / "plain/model.safetensors")
    server = serve()
    return server, f"127.0.0.1:{server.port}"


def test_datasets_are_below_their_folder(data):
    server, base = data
    fs = fsspec.filesystem("tensord", progress=False)
    assert names(fs.ls(f"tensord://{base}"), base) == {"datasets": "d", "plain": "d"}
    assert names(fs.ls(f"{base}/datasets"), base) == {"datasets/by": "d", "datasets/elsewhere": "d",
                                                      "datasets/org": "d"}
    assert names(fs.ls(f"{base}/datasets/org/"), base) == {"datasets/org/name": "d"}
    assert names(fs.ls(f"{base}/datasets/org/name"), base) == {"datasets/org/name/README.md": "f",
                                                               "datasets/org/name/data": "d"}
    inside = f"{base}/datasets/org/name/data"
    parts = [f"{inside}/train-0000{n}-of-00005.parquet" for n in range(5)]
    assert fs.ls(inside, detail=False) == [f"{inside}/deep", *parts]
    assert fs.glob(f"{base}/datasets/**/train-*.parquet") == parts
    assert len(fs.find(f"tensord://{base}")) == 11 and fs.isdir(f"{base}/datasets/by/year/y=1")
    server.wait_hashed()
    about = fs.info(f"tensord://{base}/datasets/org/name/README.md")
    assert (about["type"], about["size"], len(about["sha256"])) == ("file", 4, 64)
    assert fs.cat(f"{inside}/deep/a b?%20#.csv") == b"a,b\n1,2\n" and fs.cat_file(parts[0], 0, 4) == b"PAR1"
    assert fs.cat(f"{base}/datasets/elsewhere/x.jsonl") == b'{"n": 1}\n'
    for path in ("datasets/none", "datasets/or", "datasets/org/name/none", "datasets/org/name/data/tr", "dataset"):
        for call in (fs.ls, fs.info, fs.cat, fs.ukey, fs.open):
            with pytest.raises(FileNotFoundError, match=path):
                call(f"{base}/{path}")
    for path in ("datasets", "datasets/org", "datasets/org/name", "datasets/org/name/data"):
        with pytest.raises(FileNotFoundError):
            fs.open(f"{base}/{path}")


def test_pandas_and_pyarrow_read_datasets(data):
    """pyarrow takes the file system by FSSpecHandler, as it is: single files, folders, partitions, filters."""
    _, base = data
    folder = f"{base}/datasets/org/name/data"
    fs = fsspec.filesystem("tensord", progress=False)
    files = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))
    one = f"{folder}/train-00002-of-00005.parquet"
    assert pandas.read_parquet(f"tensord://{one}").equals(TABLE[2000:3000].reset_index(drop=True))
    assert pyarrow.parquet.read_table(one, filesystem=files, columns=["n"]).column("n").to_pylist() == list(
        range(2000, 3000))
    assert pyarrow.parquet.ParquetFile(one, filesystem=files).metadata.num_rows == 1000
    paths = [f"{folder}/train-0000{n}-of-00005.parquet" for n in range(5)]
    assert pyarrow.dataset.dataset(paths, filesystem=files).to_table().to_pandas().equals(TABLE)
    found = pyarrow.dataset.dataset(paths, filesystem=files).to_table(filter=pyarrow.dataset.field("n") > 4990)
    assert found.column("n").to_pylist() == list(range(4991, 5000))
    years = pyarrow.dataset.dataset(f"{base}/datasets/by/year", filesystem=files, partitioning="hive").to_table()
    assert sorted(years.column("y").to_pylist()) == [1] * 10 + [2] * 20
    assert pyarrow.parquet.read_table(f"{base}/datasets/by/year", filesystem=files).num_rows == 30
    assert pyarrow.dataset.dataset(f"fsspec+tensord://{base}/datasets/by/year").count_rows() == 30
    seen = files.get_file_info(pyarrow.fs.FileSelector(f"{base}/datasets/org/name", recursive=True))
    assert {one.path for one in seen if one.is_file} >= set(paths) and any(one.path == folder for one in seen)
    missing, known = files.get_file_info([f"{folder}/none", one])
    assert missing.type == pyarrow.fs.FileType.NotFound and known.size == fs.size(one)
    with pytest.raises(tensord.AnswerError, match="--publish"):
        pyarrow.parquet.write_table(pyarrow.table({"n": [1]}), f"{folder}/new.parquet", filesystem=files)


def test_a_long_list_of_files(serve):
    """The list of a folder comes in pages of 5,000."""
    folder = serve.root / "datasets/many/data"
    folder.mkdir(parents=True)
    for number in range(5200):
        (folder / f"{number:05}.jsonl").write_text(f"{number}\n")
    server = serve(hash_threads=0)
    listed = fsspec.filesystem("tensord").ls(f"127.0.0.1:{server.port}/datasets/many/data", detail=False)
    assert [path.rpartition("/")[2] for path in listed] == [f"{number:05}.jsonl" for number in range(5200)]


def test_over_tls(serve, tmp_path):
    """`tensords://` is `tensord://` of a server with TLS: for fsspec, for models, for datasets and for the command."""
    authority = pki.Authority(tmp_path)
    (serve.root / "m").mkdir()
    save_file({"w": torch.arange(30.0)}, serve.root / "m/model.safetensors")
    (serve.root / "datasets/d").mkdir(parents=True)
    (serve.root / "datasets/d/train.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    server = serve(*pki.options_of(authority.sign("server")), tls=authority.context())
    base, trust = f"tensords://127.0.0.1:{server.port}", {"ca_file": str(authority.cert)}
    for target in (f"{base}/m/model.safetensors", f"{base}/datasets/d/train.jsonl"):
        with fsspec.open(target, **trust) as file:
            assert file.read() == (serve.root / target.partition(f":{server.port}/")[2]).read_bytes()
    assert fsspec.filesystem("tensords", **trust).ls(f"{base}/datasets", detail=False) == [
        f"127.0.0.1:{server.port}/datasets/d"]
    assert torch.equal(tensord.load_file(f"{base}/m", **trust)["w"], torch.arange(30.0))
    assert tensord.Dataset(f"{base}/datasets/d", **trust)[1] == {"n": 2}
    assert [row["id"] for row in tensord.connect(base, **trust).models()] == ["m"]
    assert main(["ls", f"{base}/m", "--ca-file", str(authority.cert)]) == 0
    with pytest.raises(tensord.SetupError, match="certificate"):
        tensord.load_file(f"{base}/m", retry_for=1.0)
    with pytest.raises(tensord.AnswerError, match="the URL over TLS is https://"):
        tensord.load_file(base.replace("tensords", "tensord") + "/m", retry_for=1.0)


def test_what_urls_over_tls_name():
    """They differ from tensord:// in TLS alone, with several servers, splits and checkpoints as well."""
    for rest in ("h:8443/org/name", "h/m", "h:1,g:2/m?checkpoint=c", "[::1]:2/m", "h/datasets/org/name?split=t", "h"):
        secure, plain = address.parse(f"tensords://{rest}"), address.parse(f"tensord://{rest}")
        assert [one.scheme for one in secure.endpoints] == ["https"] * len(plain.endpoints)
        assert [replace(one, scheme="http") for one in secure.endpoints] == list(plain.endpoints)
        assert replace(secure, endpoints=()) == replace(plain, endpoints=())
    assert address.is_url("tensords://h/m") and not address.is_url("tensordss://h/m")
    assert address.parse("tensords://h/m") == address.parse("https://h:8080/models/m")
    with pytest.raises(tensord.AddressError, match="or tensords://"):
        address.parse("tensorss://h/m")
    for text in ("tensords://[::1/m", "http://h:1,[::1]:2/models/m", "tensord://[x]/m"):
        with pytest.raises(tensord.AddressError, match="no host"):
            address.parse(text)
