"""The calls of readers of datasets that tests make: datasets, pyarrow, duckdb, webdataset, litdata."""
import hashlib
import os

import fsspec


def shown(value):
    """Return the value as JSON has it; bytes by their digest."""
    if isinstance(value, dict):
        return {k: shown(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(v) for v in value]
    is_bytes = isinstance(value, (bytes, bytearray, memoryview))
    return {"sha256": hashlib.sha256(value).hexdigest()} if is_bytes else value


def load(name, cache_dir=None, streaming=False, split="train", shuffle=None, skip=0, **kw):
    """Rows by datasets.load_dataset."""
    import datasets
    rows = datasets.load_dataset(name, split=split, cache_dir=cache_dir, streaming=streaming, **kw)
    if shuffle is not None:
        rows = rows.shuffle(seed=shuffle)
    return [shown(dict(r)) for r in (rows.skip(skip) if skip else rows)]


def parquet_groups(url, groups, columns=None):
    """Row groups by pyarrow.parquet, by Range. Also returns how many bytes were read."""
    import pyarrow.parquet
    with fsspec.open(url, "rb", cache_type="none") as f, pyarrow.parquet.ParquetFile(f) as file:
        return shown(file.read_row_groups(groups, columns=columns).to_pylist())


def arrow_dataset(urls, kind, rows=None, **filters):
    """Rows by pyarrow.dataset over several files: those at the numbers `rows`, or all that a filter leaves."""
    import pyarrow.dataset as ds
    fs = fsspec.filesystem("http")
    data = ds.dataset(urls, filesystem=fs, format=kind)
    if rows is not None:
        return shown(data.take(rows).to_pylist())
    column, least = filters["at_least"]
    return shown(data.to_table(filter=ds.field(column) >= least).to_pylist())


def arrow_stream(url, body=None):
    """Rows of an answer of the server, read by pyarrow from the URL."""
    import pyarrow as pa
    with fsspec.open(url, "rb") as f, pa.ipc.open_stream(f) as reader:
        return shown(reader.read_all().to_pylist())


def duck(query):
    """The rows of a query. URLs by fsspec, of the Hub and of S3: duckdb's own extension comes from another server."""
    import duckdb
    import huggingface_hub
    with duckdb.connect() as con:
        con.register_filesystem(huggingface_hub.HfFileSystem())
        con.register_filesystem(fsspec.filesystem("s3", anon=True, endpoint_url=os.environ["AWS_ENDPOINT_URL"]))
        return shown([list(row) for row in con.execute(query).fetchall()])


def webdataset(urls, **kw):
    """Samples by webdataset.WebDataset with its own readers of URLs."""
    import webdataset
    data = webdataset.WebDataset(urls, shardshuffle=False, **kw)
    return [shown({k: v for k, v in s.items() if k == "__key__" or not k.startswith("__")}) for s in data]


def litdata_write(folder, count):
    import litdata.streaming.writer
    os.makedirs(folder)
    writer = litdata.streaming.writer.BinaryWriter(folder, chunk_size=10)
    items = [("text" * n, n, bytes(n)) for n in range(count)]
    for n, item in enumerate(items):
        writer[n] = item
    writer.done()
    writer.merge()
    return shown(items)


def litdata_read(uri, cache_dir, numbers=None, shuffle=False):
    """Items by litdata.StreamingDataset: those at `numbers`, or all in its order."""
    import litdata
    data = litdata.StreamingDataset(uri, cache_dir=cache_dir, shuffle=shuffle, seed=3, storage_options={
        "endpoint_url": os.environ["AWS_ENDPOINT_URL"]})
    return shown([data[n] for n in numbers] if numbers is not None else list(data))
