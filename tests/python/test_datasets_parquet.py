"""Rows of Parquet files by pyarrow's own writer: the client reads row groups by range, and cuts the rows itself."""
import os
import pickle

import datasets
import pyarrow
import pyarrow.parquet
import pytest
from conftest import bytes_of, rows_url
from test_datasets_formats import ROWS, SCHEMA

import tensord
import tensord.rows.grouped

QUIET = {"progress": False, "retry_for": 20.0}
WHOLE = pyarrow.Table.from_pylist(ROWS, SCHEMA)


@pytest.fixture
def folder(serve_rows):
    path = serve_rows.root / "datasets" / "table" / "data"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def url(serve_rows, folder):
    """250 rows in three files, one of them without rows, in row groups of 40."""
    for number, part in enumerate((WHOLE.slice(0, 130), WHOLE.slice(0, 0), WHOLE.slice(130))):
        pyarrow.parquet.write_table(part, folder / f"train-{number:05}-of-00003.parquet", row_group_size=40,
                                    compression=("snappy", "zstd", "none")[number])
    return rows_url(serve_rows(), "table")


def test_rows(url):
    dataset = tensord.Dataset(url, **QUIET)
    assert len(dataset) == 250 and dataset.column_names == ["id", "text", "list", "nested"]
    assert dataset[0] == ROWS[0] and dataset[-1] == ROWS[-1] and dataset[125:135] == ROWS[125:135]
    assert dataset[::-60] == ROWS[::-60] and list(dataset) == ROWS
    assert dataset.__getitems__([249, 3, 3, 130, 129, 100]) == [ROWS[n] for n in (249, 3, 3, 130, 129, 100)]
    assert dataset[5:5] == [] and dataset.__getitems__([]) == []
    assert tensord.Dataset(url, columns=["id"], **QUIET)[7] == {"id": 7}
    assert tensord.Dataset(url, decode=lambda row: row["id"] * 2, **QUIET).__getitems__([4, 5]) == [8, 10]
    with pytest.raises(IndexError, match="250 rows"):
        dataset[250]
    with pytest.raises(tensord.TensordError, match="are parts of tables, and have no bytes of their own"):
        dataset.read_bytes([0])
    with pytest.raises(ValueError, match="Arrow's and Parquet files, and only these"):
        tensord.Dataset(url, decode="json", **QUIET)


def test_orders(url):
    dataset = tensord.Dataset(url, **QUIET)
    order = list(tensord.ShuffleSampler(dataset, seed=2))
    assert sorted(order) == list(range(250)) and order != list(range(250))
    assert dataset.shuffled(5, 50, seed=2) == [ROWS[number] for number in order[5:55]]
    halves = [[row["id"] for row in tensord.IterableDataset(dataset, shuffle=True, seed=2, rank=rank, world=2,
                                                            batch_size=8)] for rank in (0, 1)]
    assert halves == [order[0::2], order[1::2]]
    assert [row["id"] for row in tensord.IterableDataset(dataset, rank=1, world=3)] == list(range(1, 250, 3))


def test_tables(url, folder):
    dataset = tensord.Dataset(url, **QUIET)
    assert dataset.arrow().equals(WHOLE) and dataset.arrow(slice(10, 120)).equals(WHOLE.slice(10, 110))
    assert dataset.arrow([9, 9, 200]).to_pylist() == [ROWS[9], ROWS[9], ROWS[200]]
    assert dataset.arrow([]).schema.equals(SCHEMA) and dataset.arrow(slice(0, 0)).num_rows == 0
    chosen = tensord.Dataset(url, columns=["text", "id"], **QUIET)
    assert chosen.arrow().equals(WHOLE.select(["text", "id"])) and chosen.column_names == ["text", "id"]
    assert dataset.to_datasets(slice(20, 30))["id"] == list(range(20, 30))
    with pytest.raises(ValueError, match="-of-00003.parquet has no column nothing, but id, text, list, nested"):
        tensord.Dataset(url, columns=["nothing"], **QUIET)[0]


def test_features(serve_rows, folder):
    """Files that `datasets` itself writes come back with their features."""
    features = datasets.Features({"label": datasets.ClassLabel(names=["no", "yes"]), "n": datasets.Value("uint8")})
    source = datasets.Dataset.from_dict({"label": [n % 2 for n in range(20)], "n": range(20)}, features=features)
    source.to_parquet(folder / "test-00000-of-00001.parquet")
    found = tensord.Dataset(rows_url(serve_rows(), "table"), **QUIET).to_datasets()
    assert found.features == features and found.to_list() == source.to_list()


def test_row_groups_are_read_once_and_no_more_than_needed(serve_rows, folder, monkeypatch):
    rows = [{"id": n, "text": os.urandom(2000).hex()} for n in range(1000)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "train-00000-of-00001.parquet",
                                row_group_size=100, use_dictionary=False)
    size = os.path.getsize(folder / "train-00000-of-00001.parquet")
    server = serve_rows()
    url = rows_url(server, "table")
    dataset = tensord.Dataset(url, **QUIET)
    assert dataset.__getitems__([350, 301, 399]) == [rows[n] for n in (350, 301, 399)]
    assert dataset[300] == rows[300]
    assert 0.1 * size < bytes_of(server, "resolve") < 0.2 * size
    assert list(dataset) == rows
    assert bytes_of(server, "resolve") < 1.1 * size  # group 3 was kept
    monkeypatch.setattr(tensord.rows.grouped, "KEPT_BYTES", 1)
    again = tensord.Dataset(url, **QUIET)
    assert [again[number] for number in range(0, 1000, 20)] == rows[::20]
    assert 1.9 * size < bytes_of(server, "resolve") < 2.2 * size
    before = bytes_of(server, "resolve")
    assert [row["id"] for row in tensord.Dataset(url, columns=["id"], **QUIET)] == list(range(1000))
    assert bytes_of(server, "resolve") - before < 0.2 * size


def test_pickles_forks_and_loaders(url):
    from torch.utils.data import DataLoader

    dataset = tensord.Dataset(url, **QUIET)
    assert dataset[0] == ROWS[0] and pickle.loads(pickle.dumps(dataset))[1] == ROWS[1]
    order = list(tensord.ShuffleSampler(dataset, seed=3))
    for workers, context in ((0, None), (2, "fork"), (2, "spawn")):
        loader = DataLoader(tensord.Dataset(url, columns=["id"], **QUIET), batch_size=20, num_workers=workers,
                            sampler=tensord.ShuffleSampler(dataset, seed=3), multiprocessing_context=context)
        assert [number for batch in loader for number in batch["id"].tolist()] == order


def test_files_that_change(serve_rows, folder):
    for number in (0, 1):
        pyarrow.parquet.write_table(WHOLE.slice(100 * number, 100), folder / f"train-{number:05}-of-00002.parquet")
    server = serve_rows()
    url = rows_url(server, "table")
    first, second = tensord.Dataset(url, **QUIET), tensord.Dataset(url, **QUIET)
    assert first[0] == ROWS[0]
    for number in (0, 1):
        part = WHOLE.slice(100 - 100 * number, 100)
        pyarrow.parquet.write_table(part, folder / "new", row_group_size=50)
        os.utime(folder / "new", (1_000_000_000, 1_000_000_000))
        os.rename(folder / "new", folder / f"train-{number:05}-of-00002.parquet")
    info = tensord.connect(url)
    server.wait_for(lambda: info.dataset_info().split("train").fingerprint not in (None, first.fingerprint),
                    "the new files")
    assert first[1] == ROWS[1]  # its row group was read before
    for dataset, row in ((first, 150), (second, 0)):
        with pytest.raises(tensord.DatasetChanged, match="changed on the server after it was opened"):
            dataset[row]
    assert tensord.Dataset(url, **QUIET)[0] == ROWS[100]


def test_more_files_than_one_description_lists(serve_rows, folder):
    for number in range(1003):
        pyarrow.parquet.write_table(WHOLE.slice(number % 250, 1), folder / f"train-{number:05}-of-01003.parquet")
    dataset = tensord.Dataset(rows_url(serve_rows(), "table"), **QUIET)
    assert len(dataset) == 1003 and len(dataset.split_info.files) == 1000 and dataset.split_info.file_count == 1003
    assert dataset.__getitems__([1002, 0, 999, 1000]) == [ROWS[number % 250] for number in (1002, 0, 999, 1000)]


@pytest.mark.parametrize("codec", ["snappy", "zstd", "lz4", "gzip"])
def test_pages_that_are_damaged(serve_rows, folder, codec):
    """Are DecodeError, whatever pyarrow raises, and disturb no other row group."""
    path = folder / "train-00000-of-00001.parquet"
    pyarrow.parquet.write_table(WHOLE, path, row_group_size=125, compression=codec)
    group = pyarrow.parquet.ParquetFile(path).metadata.row_group(1)
    begin = min(group.column(number).dictionary_page_offset or group.column(number).data_page_offset
                for number in range(group.num_columns))
    with open(path, "r+b") as file:
        file.seek(begin + 40)
        file.write(b"\xff" * (group.total_byte_size // 4))
    dataset = tensord.Dataset(rows_url(serve_rows(), "table"), **QUIET)
    assert dataset[0:125] == ROWS[:125]
    for read in (lambda: dataset[125], lambda: dataset.arrow([0, 249]), lambda: dataset.to_datasets()):
        with pytest.raises(tensord.DecodeError, match="train-00000-of-00001.parquet cannot be read as Parquet"):
            read()
