"""datasets.load_dataset from tensord in the place of the Hub; fsspec's plain HTTP on the HTML index."""
import json

import pyarrow
import pyarrow.parquet
import pytest

import harness
from client import ClientError, Worker, wait_hashed

ROWS = [{"number": i, "text": f"row {i} é"} for i in range(50)]
NAMES = ["config.json", "name with space.txt", "é.txt", "a+b.txt", "100%.txt"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("datasets") / "root"
    for name in ("lines", "columns/data", "two", "plain/sub"):
        (root / "ns" / name).mkdir(parents=True)
    (root / "ns/lines/train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ROWS))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), root / "ns/columns/data/train-00000-of-00001.parquet")
    (root / "ns/columns/README.md").write_text("---\nlicense: mit\n---\nOf which the folder is a repository.\n")
    (root / "ns/two/train.csv").write_text("a,b\n1,x\n2,y\n")
    (root / "ns/two/test.csv").write_text("a,b\n3,z\n")
    for name in NAMES:
        (root / "ns/plain" / name).write_bytes(harness.pattern(5000, name))
    (root / "ns/plain/sub/file.bin").write_bytes(b"below")
    harness.write_by_hand(root / "ns/plain/model.safetensors", [harness.tensor("w", "F32", (40, 50))])
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with harness.Server(root) as s:
        wait_hashed(s, "ns/lines", "ns/columns", "ns/two", kind="datasets")
        yield s


@pytest.fixture(scope="module")
def client(srv):
    with Worker("calls_datasets", HF_ENDPOINT=f"http://127.0.0.1:{srv.port}") as w:
        yield w


def test_load_json(client, tmp_path):
    assert client.rows(name="ns/lines", cache_dir=str(tmp_path)) == ROWS


def test_load_parquet(client, tmp_path):
    assert client.rows(name="ns/columns", cache_dir=str(tmp_path)) == ROWS


def test_load_a_revision(client, tmp_path):
    assert client.rows(name="ns/columns", cache_dir=str(tmp_path), revision="main") == ROWS


def test_stream(client):
    assert client.streamed(name="ns/lines") == ROWS
    assert client.streamed(name="ns/columns") == ROWS


def test_splits(client, tmp_path):
    assert client.splits(name="ns/two", cache_dir=str(tmp_path)) == {"train": 2, "test": 1}


def test_no_such_dataset(client, tmp_path):
    with pytest.raises(ClientError) as caught:
        client.rows(name="ns/none", cache_dir=str(tmp_path))
    assert "DatasetNotFoundError" in caught.value.kinds


# ------------------------------------------------------------------------------- fsspec, and no Hub in it

@pytest.fixture(scope="module")
def files(srv):
    return f"http://127.0.0.1:{srv.port}/models/ns/plain/files/"


def names(urls, base):
    return sorted(u.removeprefix(base) for u in urls)


def test_fsspec_lists(client, files):
    wanted = sorted([*(harness.enc(n) for n in NAMES), "model.safetensors", "sub/"])
    assert names(client.http_ls(url=files), files) == wanted
    assert names(client.http_glob(url=files + "*.json"), files) == ["config.json"]
    assert names(client.http_ls(url=files + "sub/"), files) == ["sub/file.bin"]
    assert "sub/file.bin" in names(client.http_find(url=files), files)


def test_fsspec_reads(client, files, root):
    for url in client.http_ls(url=files):
        if not url.endswith("/"):
            data = bytes.fromhex(client.http_read(url=url))
            assert data in [(root / "ns/plain" / n).read_bytes() for n in [*NAMES, "model.safetensors"]], url
    whole = (root / "ns/plain/model.safetensors").read_bytes()
    assert client.http_read(url=files + "model.safetensors", at=3000, n=2000) == whole[3000:5000].hex()
    info = client.http_info(url=files + "model.safetensors")
    assert info["size"] == len(whole) and info["etag"] and info["partial"]
