"""Stock readers of datasets, unchanged, on the files of datasets: datasets, pyarrow, duckdb, webdataset, litdata and
mosaicml-streaming."""
import csv
import io
import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest
import webdataset as wds

import harness
from calls_rows import shown
from client import READERS, ClientError, Worker, s3_port, wait_hashed

ROWS = [{"n": i, "text": f"row {i} é\n\"{i}\"", "list": list(range(i % 4))} for i in range(120)]
FLAT = [{"n": r["n"], "text": r["text"]} for r in ROWS]
ITEMS, SAMPLES = 35, 150


def write_tables(folder):
    """The same rows as jsonl, csv, parquet and arrow, each in two files of the split train and one of test."""
    for name in ("jsonl", "csv", "parquet", "arrow", "feather"):
        (folder / name).mkdir()
    for split, part, rows in (("train", 0, ROWS[:50]), ("train", 1, ROWS[50:]), ("test", 0, ROWS[:3])):
        table = pa.Table.from_pylist(rows)
        (folder / f"jsonl/{split}-{part}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, ["n", "text"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
        (folder / f"csv/{split}-{part}.csv").write_text(out.getvalue(), newline="")
        pyarrow.parquet.write_table(table, folder / f"parquet/{split}-{part}.parquet", row_group_size=20)
        with pa.ipc.new_stream(folder / f"arrow/{split}-{part}.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=30)
        with pa.ipc.new_file(folder / f"feather/{split}-{part}.feather", table.schema) as writer:
            writer.write_table(table, max_chunksize=30)


def sample(shard, n):
    return {"__key__": f"{shard}/{n:03}", "json": {"n": n}, "bin": harness.pattern(700 * n, f"{shard}.{n}")}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return the directory and the items that litdata wrote."""
    root = tmp_path_factory.mktemp("readers") / "root"
    folder = root / "datasets/org"
    folder.mkdir(parents=True)
    write_tables(folder)
    (folder / "tars").mkdir()
    for shard in range(3):
        with wds.TarWriter(str(folder / f"tars/train-{shard:06}.tar")) as writer:
            for n in range(8):
                writer.write(sample(shard, n))
    with Worker("calls_mds", PYTHONPATH=str(READERS)) as w:
        w.write(folder=str(folder / "mds"), count=SAMPLES)
    with Worker("calls_rows", PYTHONPATH=str(READERS)) as w:
        items = w.litdata_write(folder=str(folder / "items"), count=ITEMS)
    harness.age(root)
    return root, items


@pytest.fixture(scope="module")
def srv(made):
    with harness.Server(made[0], "--s3-listen", "127.0.0.1:0") as s:
        names = ("jsonl", "csv", "parquet", "arrow", "tars", "items", "mds")
        wait_hashed(s, *(f"org/{n}" for n in names), kind="datasets")
        s.wait_for(lambda: all(split["index"]["state"] == "ready" for n in names
                               for split in s.json(f"/datasets/org/{n}")["splits"]), "the indexes", 30)
        yield s


@pytest.fixture(scope="module")
def environment(srv):
    s3 = f"http://127.0.0.1:{s3_port(srv)}"
    return {"HF_ENDPOINT": f"http://127.0.0.1:{srv.port}", "AWS_ENDPOINT_URL": s3, "S3_ENDPOINT_URL": s3,
            "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "PYTHONPATH": str(READERS)}


@pytest.fixture(scope="module")
def client(environment):
    with Worker("calls_rows", **environment) as w:
        yield w


@pytest.fixture
def files(srv):
    return lambda name, path: f"http://127.0.0.1:{srv.port}/datasets/org/{name}/resolve/main/{path}"


# ------------------------------------------------------------------------------------------ load_dataset

@pytest.mark.parametrize("name", ["jsonl", "csv", "parquet", "arrow"])
def test_load_dataset(client, tmp_path, name):
    want = FLAT if name == "csv" else ROWS
    assert client.load(name=f"org/{name}", cache_dir=str(tmp_path)) == want
    assert client.load(name=f"org/{name}", cache_dir=str(tmp_path), split="test") == want[:3]
    assert client.load(name=f"org/{name}", streaming=True) == want
    assert client.load(name=f"org/{name}", streaming=True, skip=47) == want[47:]
    shuffled = client.load(name=f"org/{name}", streaming=True, shuffle=7)
    assert shuffled != want and sorted(shuffled, key=lambda r: r["n"]) == want


def test_load_dataset_of_tars(client, tmp_path):
    """The builder "webdataset" of datasets: members are columns."""
    want = [shown({k: v for k, v in sample(s, n).items() if k != "__key__"}) for s in range(3) for n in range(8)]
    for how in ({"cache_dir": str(tmp_path)}, {"streaming": True}):
        rows = client.load(name="org/tars", **how)
        assert [{k: r[k] for k in ("json", "bin")} for r in rows] == want
        assert [r["__key__"] for r in rows] == [f"{s}/{n:03}" for s in range(3) for n in range(8)]


# ------------------------------------------------------------------------------------- pyarrow and duckdb

def test_parquet_by_range(client, srv, files):
    url = files("parquet", "train-1.parquet")
    assert client.parquet_groups(url=url, groups=[2, 0]) == [*ROWS[90:110], *ROWS[50:70]]
    assert client.parquet_groups(url=url, groups=[3], columns=["n"]) == [{"n": r["n"]} for r in ROWS[110:]]
    assert any("train-1.parquet" in x and "status=206" in x for x in srv.whole_log().splitlines())


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_pyarrow_dataset(client, files, kind):
    urls = [files(kind, f"train-{i}.{kind}") for i in range(2)]
    assert client.arrow_dataset(urls=urls, kind=kind, rows=[119, 0, 49, 50, 50]) == [
        ROWS[i] for i in (119, 0, 49, 50, 50)]
    assert client.arrow_dataset(urls=urls, kind=kind, at_least=["n", 117]) == ROWS[117:]


def test_pyarrow_reads_rows(client, srv):
    """The server's own answer is a stream, which pyarrow reads from its URL."""
    url = f"http://127.0.0.1:{srv.port}/datasets/org/arrow/rows?split=train"
    assert client.arrow_stream(url=url + "&start=28&count=40") == ROWS[28:68]
    shuffled = client.arrow_stream(url=url + "&order=shuffle&seed=1&count=120")
    assert shuffled != ROWS and sorted(shuffled, key=lambda r: r["n"]) == ROWS


@pytest.mark.parametrize("scheme", ["hf", "s3"])
def test_duckdb(client, scheme):
    at = f"{scheme}://datasets/org"
    rows = [[r["n"], r["text"]] for r in ROWS]
    assert client.duck(query=f"SELECT n, text FROM read_parquet('{at}/parquet/train-*.parquet') WHERE n >= 45 "
                             "ORDER BY n") == rows[45:]
    assert client.duck(query=f"SELECT n, text FROM read_csv('{at}/csv/train-1.csv') ORDER BY n") == rows[50:]
    assert client.duck(query=f"SELECT sum(n), count(*) FROM read_json('{at}/jsonl/train-*.jsonl')") == [[7140, 120]]


# ------------------------------------------------------------------ webdataset, litdata, mosaicml-streaming

@pytest.mark.parametrize("scheme", ["", "pipe:curl -sf "])
def test_webdataset(client, files, scheme):
    want = [shown({**sample(s, n), "json": json.dumps({"n": n}).encode()}) for s in range(3) for n in range(8)]
    got = client.webdataset(urls=scheme + files("tars", "train-{000000..000002}.tar"))
    assert [r["__key__"] for r in got] == [r["__key__"] for r in want]
    assert [r["bin"] for r in got] == [r["bin"] for r in want]
    assert [r["json"] for r in got] == [r["json"] for r in want]


def test_webdataset_reads_rows(client, srv, files):
    """An answer of format=tar is a shard: any samples, here past the end of a file, and shuffled."""
    whole = client.webdataset(urls=files("tars", "train-{000000..000002}.tar"))
    url = f"http://127.0.0.1:{srv.port}/datasets/org/tars/rows?format=tar"
    assert client.webdataset(urls=f"pipe:curl -sf '{url}&start=6&count=12'") == whole[6:18]
    assert client.webdataset(urls=f"{url}&start=6&count=12") == whole[6:18]
    halves = [client.webdataset(urls=f"pipe:curl -sf '{url}&order=shuffle&seed=4&shard={i}/2'") for i in range(2)]
    got = [r for half in halves for r in half]
    assert got != whole and sorted(got, key=lambda r: r["__key__"]) == whole
    with pytest.raises(ClientError):
        client.webdataset(urls=f"pipe:curl -sf '{url}&start=25'")


def test_litdata(client, made, tmp_path):
    """StreamingDataset on the port of S3, by number, in order, and shuffled."""
    items, uri = made[1], "s3://datasets/org/items"
    numbers = [0, 34, 9, 10, 9]
    assert client.litdata_read(uri=uri, cache_dir=str(tmp_path / "a"), numbers=numbers) == [items[n] for n in numbers]
    assert client.litdata_read(uri=uri, cache_dir=str(tmp_path / "b")) == items
    shuffled = client.litdata_read(uri=uri, cache_dir=str(tmp_path / "c"), shuffle=True)
    assert shuffled != items and sorted(shuffled, key=lambda item: item[1]) == items


def test_litdata_chunks_have_rows(srv, made):
    """The rows of a litdata dataset are its items, encoded: the sizes, then the pickled leaves."""
    split = srv.json("/datasets/org/items")["splits"][0]
    assert (split["format"], split["rows"], len(made[1])) == ("litdata", ITEMS, ITEMS)
    for n in (0, 9, 34):
        assert f"{'text' * n}".encode() in srv.get(f"/datasets/org/items/rows/{n}").body


@pytest.mark.parametrize("scheme", ["s3", "hf"])
def test_mosaicml_streaming(environment, srv, tmp_path, scheme):
    """StreamingDataset on the port of S3 and on the Hub's paths, by number, in order, and shuffled."""
    split = srv.json("/datasets/org/mds")["splits"][0]
    assert (split["format"], split["rows"]) == ("mds", SAMPLES) and split["file_count"] > 1
    remote, numbers = f"{scheme}://datasets/org/mds", [0, 149, 70, 70]
    with Worker("calls_mds", **environment) as w:
        assert w.read(remote=remote, local=str(tmp_path / "a"), numbers=numbers) == numbers
        assert w.read(remote=remote, local=str(tmp_path / "b")) == list(range(SAMPLES))
        shuffled = w.read(remote=remote, local=str(tmp_path / "c"), shuffle=True)
        assert shuffled != sorted(shuffled) == list(range(SAMPLES))


PUT = """
import sys
import fsspec
import tensord.fsspec
fsspec.register_implementation("tensord", tensord.fsspec.TensordFileSystem)
fsspec.filesystem("tensord").put(sys.argv[1] + "/", sys.argv[2], recursive=True)
"""


def test_a_folder_of_mds_put_by_fsspec(tmp_path):
    """MDSWriter writes a folder, and the Python client's file system puts it whole: by one commit."""
    with Worker("calls_mds", PYTHONPATH=str(READERS)) as w:
        w.write(folder=str(tmp_path / "mds"), count=SAMPLES)
    (tmp_path / "root").mkdir()
    with harness.Server(tmp_path / "root", "--publish", "any") as s:
        subprocess.run([sys.executable, "-c", PUT, tmp_path / "mds", f"127.0.0.1:{s.port}/datasets/org/mds/"],
                       check=True, timeout=120, env={**os.environ, "PYTHONPATH": str(harness.REPO / "clients/python")})
        assert len(s.json("/datasets/org/mds/commits")["commits"]) == 1
        tree = s.json("/api/datasets/org/mds/tree/main?recursive=1")
        assert {f["path"]: s.get(f"/datasets/org/mds/resolve/main/{f['path']}").body for f in tree} == {
            path.name: path.read_bytes() for path in (tmp_path / "mds").iterdir()}
        split, = s.wait_for(lambda: [x for x in s.json("/datasets/org/mds")["splits"] if x["rows"] is not None],
                            "the rows are counted")
        assert split["rows"] == SAMPLES
