"""Rows of formats other than text, of files by their own writers: Arrow as tables, `datasets.Dataset` and dicts,
samples of webdataset, images, arrays; a source of grain."""
import csv
import io
import json
import pickle
import struct
import tarfile

import datasets
import grain
import numpy
import pandas
import pyarrow
import pyarrow.feather
import pytest
from conftest import rows_url
from PIL import Image

import tensord
from tensord.rows import decoding
from tensord.rows.splits import DatasetInfo

QUIET = {"progress": False, "retry_for": 20.0}
SCHEMA = pyarrow.schema([("id", pyarrow.int64()), ("text", pyarrow.string()),
                         ("list", pyarrow.list_(pyarrow.float32())),
                         ("nested", pyarrow.struct([("a", pyarrow.bool_()), ("b", pyarrow.binary())]))])
ROWS = [{"id": number, "text": None if number % 9 == 4 else "ä" * (number % 5), "list": [number / 4] * (number % 4),
         "nested": {"a": number % 2 == 0, "b": bytes([number % 256])}} for number in range(250)]


@pytest.fixture
def arrow(serve_rows):
    path = serve_rows.root / "datasets" / "table" / "train.arrow"
    path.parent.mkdir(parents=True)
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, SCHEMA) as writer:
        for at in range(0, len(ROWS), 100):
            writer.write_batch(pyarrow.RecordBatch.from_pylist(ROWS[at : at + 100], SCHEMA))
    return rows_url(serve_rows(), "table")


def test_arrow_as_dicts(arrow):
    dataset = tensord.Dataset(arrow, **QUIET)
    assert len(dataset) == 250 and dataset.column_names == ["id", "text", "list", "nested"]
    assert dataset[0] == ROWS[0] and dataset[-1] == ROWS[-1] and dataset[95:105] == ROWS[95:105]
    assert list(dataset) == ROWS
    assert dataset.__getitems__([249, 3, 3, 100]) == [ROWS[249], ROWS[3], ROWS[3], ROWS[100]]
    assert dataset[5:5] == [] and dataset.__getitems__([]) == []
    order = list(tensord.ShuffleSampler(dataset, seed=2))
    assert dataset.shuffled(5, 50, seed=2) == [ROWS[number] for number in order[5:55]]
    assert [row["id"] for row in tensord.IterableDataset(dataset, shuffle=True, seed=2)] == order
    assert tensord.Dataset(arrow, columns=["id"], **QUIET)[7] == {"id": 7}
    assert tensord.Dataset(arrow, decode=lambda row: row["id"] * 2, **QUIET).__getitems__([4, 5]) == [8, 10]
    with pytest.raises(tensord.TensordError, match="parts of tables, and have no bytes of their own: arrow"):
        dataset.read_bytes([0])
    with pytest.raises(ValueError, match="rows of Arrow's and Parquet files, and only these"):
        tensord.Dataset(arrow, decode=None, **QUIET)


def test_arrow_as_tables(arrow, monkeypatch):
    dataset = tensord.Dataset(arrow, **QUIET)
    whole = pyarrow.Table.from_pylist(ROWS, SCHEMA)
    assert dataset.arrow().equals(whole) and dataset.arrow(slice(10, 120)).equals(whole.slice(10, 110))
    assert dataset.arrow([9, 9, 200]).to_pylist() == [ROWS[9], ROWS[9], ROWS[200]]
    assert dataset.arrow([]).schema.equals(SCHEMA) and dataset.arrow(slice(0, 0)).num_rows == 0
    assert tensord.Dataset(arrow, columns=["text", "id"], **QUIET).arrow().equals(whole.select(["text", "id"]))
    monkeypatch.setattr("tensord.rows.fetching.PART_ROWS", 30)
    assert dataset.arrow().equals(whole) and dataset.arrow(range(249, -1, -1)).to_pylist() == ROWS[::-1]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_arrow_that_is_compressed(serve_rows, codec, monkeypatch):
    """Batches that cannot be cut are read whole, each once."""
    folder = serve_rows.root / "datasets" / "table"
    folder.mkdir(parents=True)
    whole = pyarrow.Table.from_pylist(ROWS, SCHEMA)
    pyarrow.feather.write_feather(whole.slice(0, 130), folder / "train-0.feather", codec, chunksize=40)
    with pyarrow.OSFile(str(folder / "train-1.arrow"), "wb") as file, pyarrow.ipc.new_stream(
            file, SCHEMA, options=pyarrow.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(whole.slice(130), 50)
    server = serve_rows()
    url = rows_url(server, "table")
    dataset = tensord.Dataset(url, **QUIET)
    assert "compressed" in dataset.split_info.reason and dataset.column_names == SCHEMA.names
    assert dataset[0] == ROWS[0] and dataset[-1] == ROWS[-1] and dataset[95:135] == ROWS[95:135]
    assert list(dataset) == ROWS and dataset.arrow().equals(whole) and dataset.arrow([]).schema.equals(SCHEMA)
    order = list(tensord.ShuffleSampler(dataset, seed=2))
    assert dataset.__getitems__(order) == dataset.shuffled(0, 250, seed=2) == [ROWS[number] for number in order]
    assert [row["id"] for row in tensord.IterableDataset(dataset, shuffle=True, seed=2)] == order
    assert pickle.loads(pickle.dumps(dataset)).to_datasets([7, 7])["id"] == [7, 7]
    assert tensord.Dataset(url, columns=["id"], **QUIET)[7] == {"id": 7}
    assert server.whole_log().count("/rows?") < 30  # 7 batches, for four ways that keep them
    monkeypatch.setattr("tensord.rows.grouped.KEPT_BYTES", 1)
    assert tensord.Dataset(url, **QUIET).__getitems__(order) == [ROWS[number] for number in order]


def test_arrow_as_datasets(serve_rows, monkeypatch):
    """Files that `datasets` itself writes come back with their features."""
    features = datasets.Features({"id": datasets.Value("int32"), "label": datasets.ClassLabel(names=["no", "yes"]),
                                  "image": datasets.Image()})
    pictures = []
    for number in range(20):
        file = io.BytesIO()
        Image.new("RGB", (4, 3), (number, 2, 3)).save(file, "PNG")
        pictures.append({"bytes": file.getvalue(), "path": None})
    source = datasets.Dataset.from_dict({"id": list(range(20)), "label": [n % 2 for n in range(20)], "image": pictures},
                                        features=features)
    path = serve_rows.root / "datasets" / "pictures" / "train.arrow"
    path.parent.mkdir(parents=True)
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, source.data.table.schema) as writer:
        writer.write_table(source.data.table)
    dataset = tensord.Dataset(rows_url(serve_rows(), "pictures"), **QUIET)
    for parts in (8192, 6):
        monkeypatch.setattr("tensord.rows.fetching.PART_ROWS", parts)
        found = dataset.to_datasets()
        assert found.features == features and found.cache_files == [] and len(found) == 20
        assert found[7]["label"] == 1 and found[7]["image"].getpixel((0, 0)) == (7, 2, 3)
        assert dataset.to_datasets([3, 3, 19])["id"] == [3, 3, 19]
    assert tensord.Dataset(rows_url_of(dataset), columns=["id"], **QUIET).to_datasets(slice(2)).column_names == ["id"]


def rows_url_of(dataset):
    return f"{dataset.session.endpoints[0]}/datasets/{dataset.id}"


def test_other_rows_as_tables(serve_rows):
    folder = serve_rows.root / "datasets" / "mixed"
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text("".join(json.dumps({"id": n, "tags": ["a"] * n}) + "\n" for n in range(5)))
    (folder / "test.jsonl").write_text("1\n2\n3\n")
    url = rows_url(serve_rows(), "mixed")
    dataset = tensord.Dataset(url, split="train", **QUIET)
    found = dataset.to_datasets()
    assert found[3] == {"id": 3, "tags": ["a"] * 3} and found.cache_files == []
    assert dataset.arrow([4, 0]).to_pylist() == [dataset[4], dataset[0]]
    assert tensord.Dataset(url, split="test", **QUIET).arrow(slice(1, None)).to_pylist() == [{"row": 2}, {"row": 3}]


def test_samples_of_webdataset(serve_rows):
    path = serve_rows.root / "datasets" / "samples" / "train-000.tar"
    path.parent.mkdir(parents=True)
    wanted = []
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for number in range(12):
            key = f"some/{'very-long-' * 20 if number == 5 else ''}{number:04}"
            sample = {"__key__": key, "jpg": bytes([number]) * (number * 300), "seg.png": b"", "cls": b"%d" % number}
            for extension in ("jpg", "seg.png", "cls"):
                info = tarfile.TarInfo(f"{key}.{extension}")
                info.size = len(sample[extension])
                archive.addfile(info, io.BytesIO(sample[extension]))
            wanted.append(sample)
    url = rows_url(serve_rows(), "samples")
    dataset = tensord.Dataset(url, **QUIET)
    assert list(dataset) == wanted and dataset.__getitems__([11, 5]) == [wanted[11], wanted[5]]
    assert tensord.Dataset(url, columns=["__key__", "cls"], **QUIET)[3] == {"__key__": "some/0003", "cls": b"3"}


def test_images(serve_rows):
    folder = serve_rows.root / "datasets" / "shots"
    folder.mkdir(parents=True)
    for number in range(6):
        Image.new("RGB", (5, 4), (number, 100, 200)).save(folder / f"train-{number}.png")
    dataset = tensord.Dataset(rows_url(serve_rows(), "shots"), **QUIET)
    assert [image.getpixel((1, 1))[0] for image in dataset] == list(range(6)) and dataset[2].size == (5, 4)


def test_paths_of_rows(serve_rows):
    folder = serve_rows.root / "datasets" / "pets"
    for number, kind in enumerate(("cat", "cat", "dög")):
        (folder / "train" / kind).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2), (number, 0, 0)).save(folder / "train" / kind / f"{number}.png")
    text = serve_rows.root / "datasets" / "text"
    text.mkdir()
    (text / "train-0.jsonl").write_text("1\n2\n")
    (text / "train-1.jsonl").write_text("3\n")
    server = serve_rows()
    pets, lines = (tensord.Dataset(rows_url(server, name), **QUIET) for name in ("pets", "text"))
    assert pets.paths() == ["train/cat/0.png", "train/cat/1.png", "train/dög/2.png"]
    assert pets.paths([2, 0, -1]) == ["train/dög/2.png", "train/cat/0.png", "train/dög/2.png"]
    assert [image.getpixel((0, 0))[0] for image in pets] == [0, 1, 2]
    assert pickle.loads(pickle.dumps(lines)).paths() == ["train-0.jsonl", "train-0.jsonl", "train-1.jsonl"]
    assert lines.paths(slice(0, 0)) == lines.paths([]) == []
    with pytest.raises(IndexError):
        lines.paths([3])


# ---- decoders alone: a split's description, as the server gives it, and a row's bytes

def decoder(format, columns, decode="auto", files=()):
    row = {"name": "train", "format": format, "rows": 1, "nbytes": 1, "row_type": "x", "columns": columns,
           "reason": None, "fingerprint": "ab", "index": {"state": "ready", "done_bytes": 1, "nbytes": 1},
           "files": list(files)}
    info = DatasetInfo.from_json({"id": "x", "splits": [row], "errors": []})
    return decoding.decoder_of(decode, info.split(None), None)[1]


@pytest.mark.parametrize("name", ["uint16", "<u2", "|u1", "U16", "int32", "float32", "F32", "BF16", "bfloat16"])
def test_tokens(name):
    import ml_dtypes

    dtype = {"U16": "uint16", "F32": "float32", "BF16": ml_dtypes.bfloat16}.get(name, name)
    array = numpy.arange(24).astype(dtype)
    found = decoder("tokens", [{"name": "tokens", "type": name}])(array.tobytes())
    assert found.dtype == array.dtype and (found == array).all()
    found = decoder("megatron", [{"name": "tokens", "type": name, "shape": [4, 6]}])(array.tobytes())
    assert found.shape == (4, 6) and found.flags.writeable
    scalar = decoder("npy", [{"name": "x", "type": name, "shape": []}])(array[5:6].tobytes())
    assert scalar.shape == () and scalar == array[5]
    assert pickle.loads(pickle.dumps(decoder("npy", [{"name": "x", "type": name}])))(b"").shape == (0,)


def test_big_endian_arrays():
    """Are of the machine's order, which torch needs."""
    array = numpy.arange(6, dtype=">i4")
    found = decoder("npy", [{"name": "array", "type": ">i4", "shape": [2, 3]}])(array.tobytes())
    assert found.dtype.isnative and (found.reshape(-1) == array).all()


def test_tabs():
    read = decoder("csv", [{"name": "a"}, {"name": "b"}], files=[{"path": "x/train.TSV", "nbytes": 1}])
    assert read(b'1,2\t"t\tu"') == {"a": "1,2", "b": "t\tu"}
    with pytest.raises(ValueError, match="both .tsv and .csv"):
        decoder("csv", [{"name": "a"}], files=[{"path": "a.tsv", "nbytes": 1}, {"path": "a.csv", "nbytes": 1}])


def test_types_that_are_not_known():
    for columns in (None, [], [{"name": "a"}], [{"name": "a", "type": "O"}], [{"name": "a", "type": "words"}],
                    [{"name": "a", "type": "int8"}, {"name": "b", "type": "int8"}],
                    [{"name": "a", "type": "int8", "shape": [-1]}]):
        with pytest.raises(ValueError, match="train"):
            decoder("npy", columns)
    with pytest.raises(ValueError, match="columns of split train are not known"):
        decoder("mds", None)


def test_mds():
    """Samples as streaming's MDSWriter lays them out: the sizes of what has no fixed one, then the values."""
    columns = [("array", "ndarray"), ("fixed", "ndarray:int16:2,3"), ("flag", "uint8"), ("mean", "float32"),
               ("n", "int"), ("notes", "json"), ("picture", "jpeg"), ("typed", "ndarray:float32"), ("words", "str")]
    array, fixed = numpy.arange(6, dtype=numpy.int64).reshape(3, 2), numpy.arange(6, dtype=numpy.int16).reshape(2, 3)
    typed = numpy.arange(300, dtype=numpy.float32)
    parts = {"array": bytes([65, 2 << 2, 3, 2]) + array.tobytes(), "fixed": fixed.tobytes(), "flag": b"\x09",
             "mean": struct.pack("<f", 0.5), "n": struct.pack("<q", -7), "notes": b'{"a": 1}', "picture": b"\xff\xd8",
             "typed": bytes([1 << 2 | 1]) + struct.pack("<H", 300) + typed.tobytes(), "words": "ä日".encode()}
    sizes = [len(parts[name]) for name in ("array", "notes", "picture", "typed", "words")]
    row = struct.pack("<5I", *sizes) + b"".join(parts[name] for name, _ in columns)
    read = decoder("mds", [{"name": name, "type": encoding} for name, encoding in columns])
    found = read(row)
    assert list(found) == [name for name, _ in columns]
    assert (found["array"] == array).all() and found["array"].dtype == array.dtype
    assert (found["fixed"] == fixed).all() and (found["typed"] == typed).all()
    assert {name: found[name] for name in ("flag", "mean", "n", "notes", "picture", "words")} == {
        "flag": 9, "mean": 0.5, "n": -7, "notes": {"a": 1}, "picture": b"\xff\xd8", "words": "ä日"}
    for damaged in (row[:-1], row + b"x", row[:10], b""):
        with pytest.raises((ValueError, struct.error)):
            read(damaged)
    with pytest.raises(ValueError, match="encoding 'ndarray:object' of MDS is not known"):
        decoder("mds", [{"name": "a", "type": "ndarray:object"}])


def test_fields_of_csv_of_any_length():
    """Texts above the limit that Python's module csv has for all readers; pandas reads them."""
    limit = csv.field_size_limit()
    text = 'text,n\n"' + "ä, " * 100_000 + '",1\n'
    wanted = pandas.read_csv(io.StringIO(text), dtype=str).to_dict("records")
    read = decoder("csv", [{"name": "text"}, {"name": "n"}])
    assert [read(text.partition("\n")[2].encode())] == wanted and csv.field_size_limit() == limit
    with pytest.raises(csv.Error):
        read(text.partition("\n")[2].replace(",1", "x,1").encode())
    assert csv.field_size_limit() == limit


def test_rows_that_are_damaged():
    assert decoder("csv", None)(b'a,"b, c"') == ["a", "b, c"]
    with pytest.raises(ValueError, match="it has 2 fields, where there are 1 columns"):
        decoder("csv", [{"name": "a", "type": "string"}])(b"1,2")
    with pytest.raises(ValueError, match="not part of a tar file"):
        decoder("webdataset", None)(b"x" * 512)
    with pytest.raises(ValueError, match="nested too deeply"):
        decoder("jsonl", None)(b"[" * 100000)
    assert decoder("parquet", None) is None and decoder("litdata", None) is None
    assert decoder("jsonl", None, None) is None


def test_a_source_of_grain(serve_rows):
    folder = serve_rows.root / "datasets" / "ids"
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text("".join(f'{{"id": {number}}}\n' for number in range(100)))
    dataset = tensord.Dataset(rows_url(serve_rows(), "ids"), **QUIET)
    assert isinstance(dataset, grain.sources.RandomAccessDataSource)
    pipeline = grain.MapDataset.source(dataset).shuffle(seed=1).map(lambda row: row["id"]).batch(8)
    rows = [row for batch in pipeline for row in batch.tolist()]
    assert sorted(rows) == list(range(100)) and rows != sorted(rows)
    loader = grain.DataLoader(data_source=dataset, sampler=grain.samplers.IndexSampler(100, num_epochs=1, seed=2,
                                                                                     shuffle=True), worker_count=0)
    walk = iter(loader)
    taken = [next(walk)["id"] for _ in range(40)]
    state = walk.get_state()
    rest = [row["id"] for row in walk]
    again = iter(loader)
    again.set_state(state)
    assert [row["id"] for row in again] == rest and sorted(taken + rest) == list(range(100))
