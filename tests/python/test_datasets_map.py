"""tensord.Dataset: rows by number, slices, lists and loops, beside the files read by Python, csv and numpy."""
import csv
import json
import os
import pickle
import random
import signal
import threading
import time

import numpy
import pytest
from conftest import rows_url

import tensord

QUIET = {"progress": False, "retry_for": 20.0}
COUNT = 1000


def values(count, seed=1):
    """Rows of many sizes, with text of several languages, empty lists and nested objects."""
    rng = random.Random(seed)
    return [{"id": number, "text": "".join(rng.choices("abc äöü 日本 \U0001f600 \"\\\n", k=rng.randrange(200))),
             "list": list(range(number % 7)), "nested": {"a": None, "b": number / 8}} for number in range(count)]


def write_jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=row["id"] % 2 == 0) + "\n" for row in rows), "utf-8")


@pytest.fixture
def jsonl(serve_rows):
    rows = values(COUNT)
    folder = serve_rows.root / "datasets" / "org" / "text"
    write_jsonl(folder / "train-00000-of-00002.jsonl", rows[:600])
    write_jsonl(folder / "train-00001-of-00002.jsonl", rows[600:])
    write_jsonl(folder / "test-00000-of-00001.jsonl", rows[:5])
    return rows_url(serve_rows(), "org/text"), rows


def test_rows_by_number(jsonl):
    url, rows = jsonl
    dataset = tensord.Dataset(url, split="train", **QUIET)
    assert len(dataset) == COUNT and dataset.id == "org/text" and dataset.split == "train"
    for number in (0, 1, 599, 600, 999, -1, -1000, numpy.int64(7), numpy.uint8(9)):
        assert dataset[number] == rows[number], number
    for number in (1000, -1001, 2**70):
        with pytest.raises(IndexError, match=f"row {number} of org/text: split train has 1000 rows, -1000 to 999"):
            dataset[number]
    for wrong in ("a", 1.5, None, True, [1]):
        with pytest.raises(TypeError):
            dataset[wrong]


def test_slices(jsonl):
    url, rows = jsonl
    dataset = tensord.Dataset(url, split="train", **QUIET)
    for one in (slice(None), slice(10, 20), slice(595, 605), slice(-3, None), slice(None, None, -1),
                slice(900, 100, -97),
                slice(0, 1000, 333), slice(5, 5), slice(2000, 3000), slice(-5000, 3), slice(7, 8, 5)):
        assert dataset[one] == rows[one], one


def test_lists(jsonl):
    url, rows = jsonl
    dataset = tensord.Dataset(url, split="train", **QUIET)
    rng = random.Random(5)
    for wanted in ([], [3], [3, 3, 3], [0, 999, -1, -1000], list(range(10)),
                   [rng.randrange(COUNT) for _ in range(5000)]):
        assert dataset.__getitems__(wanted) == [rows[number] for number in wanted]
    assert dataset.__getitems__(numpy.array([5, -2])) == [rows[5], rows[-2]]
    assert dataset.__getitems__(range(3)) == rows[:3]
    with pytest.raises(IndexError):
        dataset.__getitems__([0, 1000])
    with pytest.raises(TypeError):
        dataset.__getitems__("12")


def test_loops(jsonl):
    url, rows = jsonl
    dataset = tensord.Dataset(url, split="train", **QUIET)
    assert list(dataset) == rows
    dataset.fetcher._row_bytes = 2**18  # 4 rows a request
    assert list(dataset) == rows and list(dataset.walk(990)) == rows[990:]
    broken = iter(dataset)
    assert next(broken) == rows[0]
    broken.close()
    assert dataset[3] in dataset


def test_large_lists_are_several_requests(jsonl, monkeypatch):
    """Of at most PART_ROWS rows each, and about PART_BYTES; the rows come in the order of the list."""
    url, rows = jsonl
    monkeypatch.setattr("tensord.rows.fetching.PART_ROWS", 100)
    dataset = tensord.Dataset(url, split="train", **QUIET)
    asked = []
    read = dataset.fetcher.read_list
    dataset.fetcher.read_list = lambda rows, stopping: asked.append(len(rows)) or read(rows, stopping)
    wanted = random.Random(6).choices(range(COUNT), k=2050)
    assert dataset.__getitems__(wanted) == [rows[number] for number in wanted]
    assert sorted(asked) == [50] + [100] * 20
    assert dataset[:] == rows
    monkeypatch.setattr("tensord.rows.fetching.PART_BYTES", 2**15)
    assert tensord.Dataset(url, split="train", **QUIET).fetcher.part_rows(2**15) == min(
        100, 2**15 // (dataset.split_info.nbytes // COUNT))


def test_rows_as_they_lie(jsonl, serve_rows):
    url, rows = jsonl
    dataset = tensord.Dataset(url, split="train", decode=None, **QUIET)
    lines = b"".join(path.read_bytes() for path in sorted((serve_rows.root / "datasets/org/text").glob("train-*")))
    assert list(dataset) == lines.split(b"\n")[:-1]
    assert dataset.read_bytes([1, 0]) == [dataset[1], dataset[0]] == lines.split(b"\n")[1::-1]
    assert tensord.Dataset(url, split="train", **QUIET).read_bytes(slice(3)) == dataset[:3]


def test_odd_lines(serve_rows):
    """CRLF, blank lines, a last line without an end, an empty object, a long row."""
    folder = serve_rows.root / "datasets" / "odd"
    folder.mkdir(parents=True)
    long = json.dumps("x" * 3_000_000).encode()
    (folder / "train.jsonl").write_bytes(b'{"a":1}\r\n\n  \t\r\n{}\n' + long + b'\n"\xc3\xa4"\n[1, 2]')
    dataset = tensord.Dataset(rows_url(serve_rows(), "odd"), **QUIET)
    assert dataset.read_bytes(slice(None)) == [b'{"a":1}', b"{}", long, b'"\xc3\xa4"', b"[1, 2]"]
    assert dataset[:] == [{"a": 1}, {}, "x" * 3_000_000, "ä", [1, 2]] and dataset[2] == "x" * 3_000_000
    assert dataset.__getitems__([2, 1, 2]) == [dataset[2], {}, dataset[2]]


def test_columns_and_functions(jsonl):
    url, rows = jsonl
    dataset = tensord.Dataset(url, split="test", columns=["id", "list"], **QUIET)
    assert dataset[4] == {"id": 4, "list": [0, 1, 2, 3]}
    lengths = tensord.Dataset(url, split="test", decode=len, **QUIET)
    assert lengths[:] == [len(row) for row in tensord.Dataset(url, split="test", decode="bytes", **QUIET)]
    with pytest.raises(tensord.DecodeError, match="row 2 of org/text .split test. cannot be read by decode='json': it "
                                                  "has no none, but id, text, list, nested; read_bytes..2.. returns"):
        tensord.Dataset(url, split="test", columns=["none"], **QUIET)[2]
    with pytest.raises(TypeError, match="columns is a list of names"):
        tensord.Dataset(url, split="test", columns="id", **QUIET)
    with pytest.raises(ValueError, match="unknown decode='xml'; choose one of bytes, json, csv"):
        tensord.Dataset(url, split="test", decode="xml", **QUIET)
    with pytest.raises(ValueError, match="does not fit split test of format jsonl"):
        tensord.Dataset(url, split="test", decode="arrow", **QUIET)

    def broken(row):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tensord.Dataset(url, split="test", decode=broken, **QUIET)[0]


def test_csv(serve_rows):
    rows = [{"name": f"n{number}", "text": text, "empty": ""} for number, text in
            enumerate(["plain", 'with "quotes"', "with, comma", "two\nlines", "ä日本", ""])]
    path = serve_rows.root / "datasets" / "table" / "train.csv"
    path.parent.mkdir(parents=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    dataset = tensord.Dataset(rows_url(serve_rows(), "table"), **QUIET)
    assert dataset.column_names == ["name", "text", "empty"]
    assert list(dataset) == rows and dataset.__getitems__([3, 1]) == [rows[3], rows[1]] and dataset[-1] == rows[-1]
    assert tensord.Dataset(rows_url_of(dataset), columns=["text"], **QUIET)[3] == {"text": "two\nlines"}


def rows_url_of(dataset):
    return f"{dataset.session.endpoints[0]}/datasets/{dataset.id}"


@pytest.mark.parametrize("dtype", ["int32", "float16", "uint8", "float64"])
def test_npy(serve_rows, dtype):
    array = numpy.random.default_rng(1).integers(0, 200, (50, 4, 3)).astype(dtype)
    path = serve_rows.root / "datasets" / "arrays" / "train.npy"
    path.parent.mkdir(parents=True)
    numpy.save(path, array)
    dataset = tensord.Dataset(rows_url(serve_rows(), "arrays"), **QUIET)
    found = numpy.stack(list(dataset))
    assert found.dtype == array.dtype and (found == array).all()
    dataset[3][0] = 7  # memory of its own, which may be written to
    assert (dataset[3] == array[3]).all() and dataset.read_bytes([3]) == [array[3].tobytes()]


def test_splits(jsonl):
    url, rows = jsonl
    with pytest.raises(ValueError, match=r"org/text has 2 splits \(.*train.*\): split= chooses one"):
        tensord.Dataset(url, **QUIET)
    with pytest.raises(tensord.NotFoundError, match="has no split 'dev'; its splits are"):
        tensord.Dataset(url, split="dev", **QUIET)
    assert tensord.Dataset(url + "?split=test", **QUIET).split == "test"
    assert tensord.Dataset(url + "?split=test", split="train", **QUIET).split == "train"
    with pytest.raises(tensord.NotFoundError):
        tensord.Dataset(url + "x", **QUIET)
    with pytest.raises(tensord.AddressError, match="no dataset is named"):
        tensord.Dataset(url.partition("/datasets")[0], **QUIET)
    with pytest.raises(tensord.AddressError, match="only split= is allowed in a dataset's URL"):
        tensord.Dataset(url + "?checkpoint=1", **QUIET)
    with pytest.raises(tensord.AddressError, match="names the dataset org/text, and no model"):
        tensord.open_model(url, **QUIET).manifest()


def test_of_a_client(jsonl):
    url, rows = jsonl
    client = tensord.connect(url.partition("/datasets")[0], **QUIET)
    found = client.datasets()
    assert [one["id"] for one in found] == ["org/text"] and sorted(found[0]["splits"]) == ["test", "train"]
    assert client.dataset("org/text", split="test")[:] == rows[:5]
    assert tensord.connect(url, **QUIET).dataset(split="test")[0] == rows[0]
    assert tensord.Dataset(tensord.connect(url, **QUIET), "test")[0] == rows[0]
    client.dataset("org/text", split="train")  # waits for its index
    info = client.dataset_info("org/text")
    assert info.splits["train"].rows == COUNT and len(info.splits["train"].files) == 2
    with pytest.raises(tensord.AddressError, match="no dataset is named"):
        client.dataset()


def test_the_same_text_for_the_same_rows(jsonl):
    url, rows = jsonl
    dataset = tensord.Dataset(url, split="test", **QUIET)
    again = tensord.Dataset(url.replace("tensord://", "http://"), split="test", **QUIET)
    assert repr(dataset) == repr(again) and "127.0.0.1" not in repr(dataset)
    assert f"fingerprint={dataset.fingerprint!r}" in repr(dataset)
    assert repr(dataset) != repr(tensord.Dataset(url, split="train", **QUIET))


def test_pickles_and_forks(jsonl):
    url, rows = jsonl
    dataset = tensord.Dataset(url, split="train", columns=["id"], **QUIET)
    assert pickle.loads(pickle.dumps(dataset))[7] == {"id": 7}
    dataset.fetcher._row_bytes = 2**13  # 128 rows a request
    read = dataset.fetcher.read_range
    dataset.fetcher.read_range = lambda *part: read(*part) if part[0] == 0 else time.sleep(0.5) or read(*part)
    walk = iter(dataset)
    assert next(walk) == {"id": 0}
    child = os.fork()  # while requests run ahead, whose threads are not in the child
    if child == 0:
        fine = [row["id"] for row in walk] == list(range(1, COUNT)) and dataset[-1] == {"id": 999}
        os._exit(0 if fine else 1)
    deadline = time.monotonic() + 20
    ended = (0, 0)
    while ended == (0, 0):
        assert time.monotonic() < deadline or os.kill(child, signal.SIGKILL)
        time.sleep(0.05)
        ended = os.waitpid(child, os.WNOHANG)
    assert ended == (child, 0)
    assert [row["id"] for row in walk] == list(range(1, COUNT)) and dataset[5] == {"id": 5}


def test_threads(jsonl):
    url, rows = jsonl
    dataset = tensord.Dataset(url, split="train", **QUIET)
    faults = []

    def work(number):
        rng = random.Random(number)
        try:
            for _ in range(20):
                wanted = rng.choices(range(COUNT), k=rng.randrange(1, 50))
                assert dataset.__getitems__(wanted) == [rows[one] for one in wanted]
                assert dataset[wanted[0]] == rows[wanted[0]]
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults


def test_shuffled_ranges(jsonl):
    url, rows = jsonl
    dataset = tensord.Dataset(url, split="train", **QUIET)
    order = list(tensord.ShuffleSampler(dataset, seed=3, epoch=1))
    assert [row["id"] for row in dataset.shuffled(0, 5000, seed=3, epoch=1)] == order
    assert [row["id"] for row in dataset.shuffled(10, 20, 3, 1, rank=2, world=7)] == order[2::7][10:30]
    assert dataset.shuffled(1000, 5, 3, 1) == [] and dataset.shuffled(2000, 5) == []
    with pytest.raises(ValueError):
        dataset.shuffled(0, 5, rank=7, world=7)


def test_an_empty_split(serve_rows):
    folder = serve_rows.root / "datasets" / "empty"
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text("\n\n")
    dataset = tensord.Dataset(rows_url(serve_rows(), "empty"), **QUIET)
    assert len(dataset) == 0 and list(dataset) == [] and dataset[:] == [] and dataset.shuffled(0, 5) == []
    assert list(tensord.ShuffleSampler(dataset)) == []
    with pytest.raises(IndexError, match="row 0 of empty: split train has 0 rows$"):
        dataset[0]


def test_the_hubs_name_of_a_dataset(serve_rows):
    """local/counts is the Hub's name of datasets/counts."""
    write_jsonl(serve_rows.root / "datasets" / "counts" / "train.jsonl", values(3))
    url = rows_url(serve_rows(), "local/counts")
    assert tensord.Dataset(url, **QUIET)[:] == values(3)
    with pytest.raises(TypeError, match="takes a dataset, not its URL"):
        tensord.ShuffleSampler(url)
