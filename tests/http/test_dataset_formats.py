"""Rows of every format over a socket, compared with what the format's own writer wrote and its own reader reads.

The tests import pandas and webdataset themselves: that takes seconds, and each of the processes of pytest imports all
modules of tests."""
import contextlib
import csv
import functools
import io
import json
import random
import re
import shutil
import struct
import tarfile
import zlib

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

from harness import REPO, Server, age, check_error, enc, pattern

PACKED = {"Content-Type": "application/octet-stream"}
SAMPLES = REPO / "tests/data/rows"
EXPECTED = {e["file"]: e for e in json.loads((SAMPLES / "expected.json").read_text())}


# ------------------------------------------------------------------------------------------------- helpers

def write(root, files):
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def split_of(srv, id, split="train"):
    return next(s for s in srv.json(f"/datasets/{id}")["splits"] if s["name"] == split)


def all_splits(srv):
    return [s for d in srv.json("/datasets")["datasets"] for s in srv.json(f"/datasets/{d['id']}")["splits"]]


def unframe(body):
    """Return the rows of a body of format=frame."""
    count = struct.unpack_from("<Q", body)[0]
    ends = struct.unpack_from(f"<{count + 1}Q", body, 8)
    area = body[8 * (count + 2):]
    assert ends[0] == 0 and ends[-1] == len(area) and list(ends) == sorted(ends)
    return [area[a:b] for a, b in zip(ends, ends[1:])]


def ok(r, status=200):
    assert r.status == status, r
    return r


class Rows:
    """The rows of one split, over one connection."""

    def __init__(self, conn, id, split="train"):
        self.conn, self.id, self.split = conn, id, split

    def get(self, tail="", **query):
        text = "&".join(f"{k}={enc(str(v))}" for k, v in {"split": self.split, **query}.items())
        return self.conn.request(f"/datasets/{self.id}/{tail or 'rows'}?{text}")

    def post(self, numbers, packed=False, **more):
        url = f"/datasets/{self.id}/rows:batchGet"
        if packed:
            url += "?" + "&".join(f"{k}={v}" for k, v in {"split": self.split, **more}.items())
            return self.conn.request(url, PACKED, "POST", body=struct.pack(f"<{len(numbers)}Q", *numbers))
        body = json.dumps({"split": self.split, "indices": numbers, **more}).encode()
        return self.conn.request(url, (), "POST", body=body)

    def order(self, count, **query):
        """Return the numbers of the rows of a shuffled order: of a file of numbers with as many lines."""
        lines = Rows(self.conn, f"numbers/{count}").get(order="shuffle", count=count, format="raw", **query)
        return [int(n) for n in ok(lines).body.split()]


def batches(rng, n):
    """Numbers of rows as trainers may ask for them: nothing, one, reversed, repeated, any."""
    return [[], [n - 1], [*reversed(range(n))], [0, 0, n - 1, 0], [n // 2] * 70,
            [rng.randrange(n) for _ in range(rng.randrange(1, 2 * n + 1))]] if n > 0 else [[]]


def check_rows(srv, id, want, split="train"):
    """Compare every way to ask for rows with the bytes of all rows."""
    n, rng = len(want), random.Random(n_seed(id))
    with srv.conn() as conn:
        rows = Rows(conn, id, split)
        for number in range(n):
            r = ok(rows.get(f"rows/{number}"))
            assert r.body == want[number], (id, number)
        check_error(rows.get(f"rows/{n}"), 404)
        for start, count in [(0, n), (n, 5), *((rng.randrange(n), rng.randrange(n + 3)) for _ in range(8 if n else 0))]:
            r = ok(rows.get(start=start, count=count))
            part = want[start:start + count]
            assert unframe(r.body) == part, (id, start, count)
            assert (r.get("X-Row-Count"), r.get("X-Row-Total")) == (str(len(part)), str(n))
        for numbers in batches(rng, n):
            part = [want[i] for i in numbers]
            assert unframe(ok(rows.post(numbers)).body) == part, (id, numbers)
            assert unframe(ok(rows.post(numbers, packed=True)).body) == part, (id, numbers)
        check_error(rows.post([n]), 400, f"index 0 of the batch is {n}" if n > 0 else "has no rows")
        check_order(rows, want)
        check_table(rows, want)


def n_seed(text):
    return zlib.crc32(text.encode())


def check_order(rows, want):
    n = len(want)
    if n == 0:
        return
    order = rows.order(n, seed=5, epoch=2)
    assert sorted(order) == list(range(n))
    assert unframe(ok(rows.get(order="shuffle", seed=5, epoch=2, count=n)).body) == [want[i] for i in order]
    parts = [unframe(ok(rows.get(order="shuffle", seed=5, epoch=2, count=n, shard=f"{r}/3")).body) for r in range(3)]
    assert parts == [[want[i] for i in order[r::3]] for r in range(3)]


def read_table(body):
    """Return the columns and the metadata of a safetensors file."""
    size = struct.unpack_from("<Q", body)[0]
    head, data = json.loads(body[8:8 + size]), body[8 + size:]
    meta = head.pop("__metadata__")
    dtypes = {"U64": "<u8", "U32": "<u4"}
    columns = {k: np.frombuffer(data[slice(*v["data_offsets"])], dtypes[v["dtype"]]) for k, v in head.items()}
    assert all(list(columns[k].shape) == v["shape"] for k, v in head.items())
    return columns, meta


def check_table(rows, want):
    """Fetch rows by plain Range requests to the files, at the places that the index names."""
    columns, meta = read_table(ok(rows.get("index")).body)
    files = json.loads(meta["files"])
    assert meta["dataset"] == rows.id and meta["split"] == rows.split and len(columns["file"]) == len(want)
    for number, row in enumerate(want):
        file, at, size = (int(columns[k][number]) for k in ("file", "offset", "nbytes"))
        assert size == len(row)
        if size > 0:
            r = rows.conn.request(f"/datasets/{rows.id}/resolve/main/{enc(files[file], '/')}",
                                  {"Range": f"bytes={at}-{at + size - 1}"})
            assert ok(r, 206).body == row, (rows.id, number)


# ------------------------------------------------------------------------------------ files by real writers

def csv_bytes(table, **options):
    out = io.StringIO(newline="")
    csv.writer(out, **options).writerows(table)
    return out.getvalue().encode()


def csv_tables():
    """{path: (header, records)} with line ends, quotes and delimiters in fields."""
    rng = random.Random(4180)
    words = ["", "a", "x y", 'say "hi"', "one,two", "line\nend", "line\r\nend", "\n\n", "é\u4e2d", "tab\there", '"']

    def records(n):
        return [[str(i), *(rng.choice(words) for _ in range(3))] for i in range(n)]

    return {f"{split}/{i}.csv": (["id", "a b", 'q"', "d"], records(n))
            for split, sizes in (("train", (30, 0, 7)), ("test", (5,))) for i, n in enumerate(sizes)}


def csv_line_ends():
    """{dataset: text}, with LF, CR and CR LF as line ends, also mixed and within quotes."""
    rng = random.Random(13)
    words = ["a", "b c", '"x"', '"1\r2"', '"3\r\n4"', '"5\n6"', '"q""\r"', "u"]
    ends = {"cr": ["\r"], "crlf": ["\r\n"], "mixed": ["\r", "\n", "\r\n", "\r\r", "\n\r"]}
    return {f"ends/{name}-{i}": "id,t,u" + "".join(
                rng.choice(some) + ",".join([str(k), *rng.choices(words, k=2)]) for k in range(60)) + some[0] * (i % 2)
            for name, some in ends.items() for i in range(4)}


def tar_samples(path):
    import webdataset.tariterators

    return [(s["__key__"], {k: v for k, v in s.items() if not k.startswith("__")})
            for s in webdataset.tariterators.tarfile_samples([{"url": str(path)}])]


def write_tars(folder):
    """Shards by webdataset's own writer, and one by tarfile in each of its formats."""
    import webdataset

    folder.mkdir(parents=True)
    for shard in range(2):
        with webdataset.TarWriter(str(folder / f"shard-{shard:06}.tar")) as writer:
            for i in range(12):
                writer.write({"__key__": f"{shard}/{i:04}", "cls": i, "json": {"n": i, "s": shard},
                              "bin": pattern(i * 997, f"{shard}.{i}")})
    for i, form in enumerate((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        with tarfile.open(folder / f"z{i}.tar", "w", format=form) as archive:
            for k in range(4):
                for end in ("txt", "seg.png"):
                    info = tarfile.TarInfo(f"{'long/' * (0 if i == 0 else 40)}{i}-{k}.{end}")
                    data = f"{i} {k} {end}".encode() * (k * 200)
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))


def write_images(root):
    """{path below root: bytes}, an image of each type by Pillow."""
    types = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "webp": "WEBP", "gif": "GIF", "bmp": "BMP", "tif": "TIFF",
             "tiff": "TIFF"}
    images = {}
    for i, (end, kind) in enumerate(types.items()):
        out = io.BytesIO()
        Image.new("RGB", (8 + i, 9), (30 * i, 200 - i, 7)).save(out, kind)
        images[f"{i}.{end}"] = out.getvalue()
    write(root, {f"datasets/images/plain/{n}": d for n, d in images.items()})
    names = "".join(f"{n},{i}\n" for i, n in enumerate(images))
    write(root, {f"pictures/{n}": d for n, d in images.items()} | {"pictures/metadata.csv":
                                                                  f"file_name,label\n{names}".encode()})
    for folder in ("datasets/images/classes", "pets"):
        write(root, {f"{folder}/train/{'cat' if i % 2 else 'dog'}/{n}": d for i, (n, d) in enumerate(images.items())})
    write(root, {"pets/README.md": b"# classes", "plants/README.md": b"# no dataset",
                 "plants/logo.png": images["0.png"]})
    return images


def write_numbers(root):
    """Arrays and tokens, and per dataset the rows as numpy gives them."""
    rng = np.random.default_rng(16)
    arrays = {"f4": rng.random((20, 3, 2), np.float32), "i8": np.arange(17), "bool": rng.random((5, 9)) < 0.5,
              "big": rng.random((6, 5)).astype(">f8"), "c8": rng.random((4, 2)).astype(np.complex64)}
    rows = {}
    for name, array in arrays.items():
        folder = root / "datasets/npy" / name
        folder.mkdir(parents=True)
        for i, part in enumerate(np.array_split(array, 3)):
            np.save(folder / f"{i}.npy", part)
        rows[f"npy/{name}"] = [row.tobytes() for row in array]
    for name, dtype, count in (("uint16x8", "<u2", 8), ("int32", "<i4", 1), ("float16x3", "<f2", 3), ("uint8x1000",
                                                                                                      "u1", 1000)):
        folder = root / "datasets/tokens" / name
        folder.mkdir(parents=True)
        tokens = rng.integers(0, 120, 21 * count).astype(dtype)
        tokens[:13 * count].tofile(folder / f"a.{name}.bin")
        tokens[13 * count:].tofile(folder / f"b.{name}.bin")
        rows[f"tokens/{name}"] = [row.tobytes() for row in tokens.reshape(-1, count)]
    return rows


def write_samples(root):
    """The files of tests/data/rows, each as a dataset of its own, with the file beside it that it needs."""
    for name in EXPECTED:
        files = {name: (SAMPLES / name).read_bytes()}
        if name.startswith("chunk-"):
            files["index.json"] = b"{}"
        if EXPECTED[name]["format"] == "megatron":
            files[name.replace(".bin", ".idx")] = (SAMPLES / name.replace(".bin", ".idx")).read_bytes()
        write(root, {f"datasets/samples/{name}/{k}": v for k, v in files.items()})


def arrow_table(first, n):
    """A table with columns of many types, with nulls."""
    def some(values):
        return [None if (first + i) % 5 == 3 else v for i, v in enumerate(values)]

    numbers = range(first, first + n)
    return pa.table({
        "id": pa.array(numbers, pa.int64()),
        "flag": pa.array(some(i % 3 == 0 for i in numbers), pa.bool_()),
        "real": pa.array(some(i / 7 for i in numbers), pa.float32()),
        "text": pa.array(some("é" * (i % 9) for i in numbers), pa.string()),
        "large": pa.array(some(b"\x00\xff" * (i % 4) for i in numbers), pa.large_binary()),
        "fixed": pa.array(some(struct.pack("<I", i) for i in numbers), pa.binary(4)),
        "list": pa.array(some(list(range(i % 4)) for i in numbers), pa.list_(pa.int16())),
        "nested": pa.array(some([{"a": i, "b": ["x"] * (i % 3)}] * (i % 2) for i in numbers),
                           pa.large_list(pa.struct({"a": pa.uint8(), "b": pa.list_(pa.string())}))),
        "pair": pa.array(some([i, None] for i in numbers), pa.list_(pa.float64(), 2)),
        "map": pa.array(some([("k", i)] * (i % 3) for i in numbers), pa.map_(pa.string(), pa.int32())),
        "time": pa.array(some(i * 1000 for i in numbers), pa.timestamp("us", tz="UTC")),
        "price": pa.array(some(i for i in numbers), pa.int32()).cast(pa.decimal128(12, 2)),
        "nothing": pa.nulls(n),
    })


def arrow_bytes(tables, kind="stream", **options):
    """An Arrow file of record batches, one for each table."""
    out = io.BytesIO()
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with new(out, tables[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for table in tables:
            for batch in table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]:
                writer.write_batch(batch)
    return out.getvalue()


def unusual_tables():
    """{name: table} of types that few writers use, each with nulls."""
    texts = [None if i % 4 == 1 else "text " * (i % 7) for i in range(40)]
    lists = [None if i % 5 == 2 else list(range(i % 6)) for i in range(40)]
    ends, kinds = np.cumsum([1 + i % 5 for i in range(14)]), pa.array([i % 2 for i in range(40)], pa.int8())
    values = [pa.array(range(40)), pa.array([str(i) for i in range(40)])]
    columns = {
        "string_view": pa.array(texts, pa.string_view()),
        "binary_view": pa.array(texts, pa.string()).cast(pa.binary()).cast(pa.binary_view()),
        "list_view": pa.array(lists, pa.list_view(pa.int32())),
        "large_list_view": pa.array(lists, pa.large_list_view(pa.int64())),
        "sparse_union": pa.UnionArray.from_sparse(kinds, values),
        "dense_union": pa.UnionArray.from_dense(kinds, pa.array([i // 2 for i in range(40)], pa.int32()), values),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array(texts[:14])),
        "interval": pa.array([None, (1, 2, 3)] * 20, pa.month_day_nano_interval()),
        "decimal256": pa.array(range(40), pa.int64()).cast(pa.decimal256(30, 3)),
        "half": pa.array(np.arange(40, dtype=np.float16)),
        "inner_words": pa.array([[t] for t in texts], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    }
    return {name: pa.table({"a": column, "id": range(len(column))}) for name, column in columns.items()}


def words_table(first, n, words):
    return pa.table({"id": range(first, first + n), "word": pa.array([words[i % len(words)] for i in range(n)])
                     .dictionary_encode()})


def write_arrow(root):
    """Arrow datasets: {id: the table of each file}."""
    plain = [[arrow_table(0, 40), arrow_table(40, 1), arrow_table(41, 33)], [arrow_table(74, 0), arrow_table(74, 26)],
             [arrow_table(100, 20)]]
    made = {}

    def add(id, files, kind="stream", **options):
        made[id] = [pa.concat_tables(tables) for tables in files]
        for i, tables in enumerate(files):
            write(root, {f"datasets/{id}/data-{i:05}.arrow": arrow_bytes(tables, kind, **options)})

    add("arrow/stream", plain)
    add("arrow/file", plain, "file")
    add("arrow/zstd", plain, compression="zstd")
    add("arrow/lz4", plain, "file", compression="lz4")
    add("arrow/empty", [[arrow_table(0, 0)]])
    add("arrow/words", [[words_table(0, 30, ["a", "bb", "é"])], [words_table(30, 20, ["x", "bb", "yy", ""])]])
    add("arrow/one-word-list", [[words_table(0, 30, ["a", "bb", "é"]), words_table(30, 12, ["a", "bb", "é"])]])
    more = [["a", "bb"], ["a", "bb", "c"], ["a", "bb", "c", "dd"]]
    add("arrow/deltas", [[words_table(9 * i, 9, words) for i, words in enumerate(more)]], emit_dictionary_deltas=True)
    add("arrow/replaced", [[words_table(9 * i, 9, words) for i, words in enumerate([["a", "b"], ["c"], ["b", "d"]])]])
    add("arrow/unequal", [[pa.table({"a": [1, 2, 3]})], [pa.table({"a": ["x", "y"]})], [pa.table({"b": [1.5]})]])
    for name, table in unusual_tables().items():
        add(f"types/{name}", [[table.slice(0, 25), table.slice(25)]])
    many = pa.table({"id": range(100_000), "text": [str(i) for i in range(100_000)]})
    add("arrow/many", [[many.slice(i, 1000) for i in range(0, 100_000, 1000)]])
    add("arrow/wide", [[pa.table({"blob": pa.array([b"z" * 3_000_000, b"", b"y" * 20_000], pa.binary())})]])
    return made


def parquet_tables():
    return {f"data/train-0000{i}-of-00002.parquet": arrow_table(60 * i, 60).drop(["nothing"]).append_column(
        "blob", [[pattern(4000, 60 * i + k) for k in range(60)]]) for i in range(2)}


LARGE = ["large/jsonl/a.jsonl", "large/tokens/a.uint8x52428800.bin"]


@functools.cache
def large_files():
    return dict(zip(LARGE, [b'"' + b"j" * (50 << 20) + b'"', bytes(50 << 20) + pattern(50 << 20, "t")]))


class Tree:
    """All datasets, and what their rows are."""

    def __init__(self, root):
        self.root = root
        self.csv = csv_tables()
        write(root, {f"datasets/text/csv/{n}": csv_bytes([h, *r]) for n, (h, r) in self.csv.items()})
        write(root, {f"datasets/text/tsv/{n[:-3]}tsv": csv_bytes([h, *r], dialect="excel-tab")
                     for n, (h, r) in self.csv.items()})
        self.line_ends = csv_line_ends()
        write(root, {f"datasets/{n}/a.csv": text.encode() for n, text in self.line_ends.items()})
        write_tars(root / "datasets/tars")
        self.images = write_images(root)
        self.numbers = write_numbers(root)
        write_samples(root)
        self.arrow = write_arrow(root)
        self.parquet = parquet_tables()
        for name, table in self.parquet.items():
            (root / "datasets/parquet" / name).parent.mkdir(parents=True, exist_ok=True)
            pyarrow.parquet.write_table(table, root / "datasets/parquet" / name, row_group_size=25)
        write(root, {f"datasets/{n}": d for n, d in large_files().items()})
        shards = ["text.mds", "text.mds", "number.mds"]
        write(root, {f"datasets/shards/mds/shard.{i:05}.mds": (SAMPLES / n).read_bytes() for i, n in enumerate(shards)})
        write(root, {f"datasets/shards/lit/chunk-{i}-0.bin": (SAMPLES / "chunk-plain.bin").read_bytes()
                     for i in range(2)} | {"datasets/shards/lit/index.json": b"{}"})
        counts = {*range(1, 130)}
        write(root, {f"datasets/numbers/{n}/n.jsonl": "".join(f"{i}\n" for i in range(n)).encode() for n in counts})
        age(root)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("formats") / "root"
    yield Tree(root)
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def srv(tree):
    s = Server(tree.root, hash_threads=0)
    s.wait_for(lambda: all(x["index"]["state"] == "ready" for x in all_splits(s)), "all indexes", 60, every=0.2)
    yield s
    s.stop()


# -------------------------------------------------------------------------------------- rows that are bytes

@pytest.mark.parametrize("name", sorted(n for n in EXPECTED if not EXPECTED[n]["says"]))
def test_samples(srv, name):
    """Files of real writers: lengths and sums of rows are those that the real readers read (make_rows.py)."""
    want, id = EXPECTED[name], f"samples/{name}"
    split = split_of(srv, id)
    assert (split["format"], split["rows"], split["columns"]) == (want["format"], len(want["rows"]), want["columns"])
    with srv.conn() as conn:
        rows = [Rows(conn, id).get(f"rows/{i}").body for i in range(len(want["rows"]))]
    assert [[len(row), f"{zlib.crc32(row):08x}"] for row in rows] == want["rows"]
    check_rows(srv, id, rows)


@pytest.mark.parametrize("name", sorted(n for n in EXPECTED if EXPECTED[n]["says"]))
def test_samples_that_cannot_be_cut(srv, name):
    want, id = EXPECTED[name], f"samples/{name}"
    split = split_of(srv, id)
    assert split["rows"] == len(want["rows"]) and want["says"] in split["reason"]
    with srv.conn() as conn:
        rows = Rows(conn, id)
        for r in (rows.get(), rows.get("rows/0"), rows.get("index"), rows.post([0])):
            check_error(r, 422, want["says"])


@pytest.mark.parametrize("id, dialect", [("text/csv", "excel"), ("text/tsv", "excel-tab")])
@pytest.mark.parametrize("name", ["train", "test"])
def test_csv(srv, tree, id, dialect, name):
    """Each row is one record for Python's csv module, and the file's bytes."""
    files = [f for f in sorted(tree.csv) if f.startswith(name)]
    want = [csv_bytes([r], dialect=dialect).removesuffix(b"\r\n") for f in files for r in tree.csv[f][1]]
    split = split_of(srv, id, name)
    assert (split["rows"], split["row_type"]) == (len(want), "text/csv")
    assert [c["name"] for c in split["columns"]] == tree.csv[files[0]][0]
    check_rows(srv, id, want, name)
    with srv.conn() as conn:
        text = ok(Rows(conn, id, name).get(format="raw", count=10**6)).body.decode()
    records = [r for f in files for r in tree.csv[f][1]]
    assert list(csv.reader(io.StringIO(text, newline=""), dialect=dialect)) == records


def test_csv_line_ends(srv, tree):
    """Rows end where they end for Python's csv module and for pandas: a CR alone ends one, too."""
    import pandas

    for id, text in tree.line_ends.items():
        want = [r for r in csv.reader(io.StringIO(text, newline="")) if r]
        split = split_of(srv, id)
        assert [c["name"] for c in split["columns"]] == want[0] and split["rows"] == 60, id
        with srv.conn() as conn:
            rows = [r.decode() for r in unframe(ok(Rows(conn, id).get()).body)]
            raw = ok(Rows(conn, id).get(format="raw")).body.decode()
        assert [next(csv.reader(io.StringIO(row, newline=""))) for row in rows] == want[1:], id
        assert list(csv.reader(io.StringIO(raw, newline=""))) == want[1:], id
        assert pandas.read_csv(io.BytesIO(text.encode()), dtype=str).values.tolist() == want[1:], id
        check_rows(srv, id, [row.encode() for row in rows])


def test_webdataset(srv, tree):
    """Rows, and archives made of any of them, as webdataset's reader and tarfile read them."""
    samples = [s for path in sorted((tree.root / "datasets/tars").glob("*.tar")) for s in tar_samples(path)]
    assert split_of(srv, "tars")["rows"] == len(samples) == 36
    rng = random.Random(6)
    with srv.conn() as conn:
        rows = Rows(conn, "tars")

        def read(r):
            assert ok(r).get("Content-Type") == "application/x-tar"
            (tree.root.parent / "answer.tar").write_bytes(r.body)
            with tarfile.open(tree.root.parent / "answer.tar") as archive:
                members = [m.name for m in archive.getmembers()]
            got = tar_samples(tree.root.parent / "answer.tar")
            assert members == [f"{key}.{end}" for key, values in got for end in values]
            return got

        singles = []
        for i, sample in enumerate(samples):
            r = ok(rows.get(f"rows/{i}"))
            assert r.get("Content-Type") == "application/x-tar"
            singles.append(r.body)
            r.body += bytes(1024)
            assert read(r) == [sample]
        check_rows(srv, "tars", singles)
        for start, count in ((0, 36), (5, 30), (35, 1), (36, 1), (20, 0)):
            assert read(rows.get(start=start, count=count, format="tar")) == samples[start:start + count]
        for packed in (False, True):
            some = rng.sample(range(36), 20)
            assert read(rows.post(some, packed, format="tar")) == [samples[i] for i in some]
        order = rows.order(36, seed=9)
        assert read(rows.get(order="shuffle", seed=9, format="tar")) == [samples[i] for i in order]
        raw = b"".join(singles[3:9])
        assert ok(rows.get(start=3, count=6, format="raw")).body == raw
        check_error(Rows(conn, "text/csv").get(format="tar"), 422, "csv files are no members of a tar")
        check_error(Rows(conn, "text/csv").get(format="arrow"), 422, "as format=arrow; ask for format=frame")


def test_shards(srv):
    """Several files of MDS, and of LitData, are one split in the order of their paths."""
    with srv.conn() as conn:
        def single(name):
            return [Rows(conn, f"samples/{name}").get(f"rows/{i}").body for i in range(len(EXPECTED[name]["rows"]))]

        mds, lit = single("text.mds") * 2 + single("number.mds"), single("chunk-plain.bin") * 2
    check_rows(srv, "shards/mds", mds)
    check_rows(srv, "shards/lit", lit)


@pytest.mark.parametrize("id", ["npy/f4", "npy/i8", "npy/bool", "npy/big", "npy/c8", "tokens/uint16x8", "tokens/int32",
                                "tokens/float16x3", "tokens/uint8x1000"])
def test_numbers(srv, tree, id):
    want = tree.numbers[id]
    check_rows(srv, id, want)
    split = split_of(srv, id)
    column = split["columns"][0]
    with srv.conn() as conn:
        raw = ok(Rows(conn, id).get(format="raw", count=10**9)).body
    array = np.frombuffer(raw, column["type"]).reshape(-1, *column.get("shape", []))
    assert len(array) == split["rows"] and [row.tobytes() for row in array] == want
    if id.startswith("npy/"):
        for path in sorted((tree.root / "datasets" / id).glob("*.npy")):
            part = np.load(path)
            np.testing.assert_array_equal(array[:len(part)], part, strict=True)
            array = array[len(part):]
        assert len(array) == 0


IMAGE_TYPES = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "webp": "image/webp", "gif": "image/gif",
               "bmp": "image/bmp", "tif": "image/tiff", "tiff": "image/tiff"}


@pytest.mark.parametrize("id", ["images/plain", "pictures", "images/classes", "pets"])
def test_images(srv, tree, id):
    """Each image is a row with its own type, below datasets/, beside metadata.csv and in folders of classes."""
    folder = tree.root / (f"datasets/{id}" if "/" in id else id)
    paths = sorted(str(p.relative_to(folder)) for p in folder.rglob("*.*") if p.suffix[1:] in IMAGE_TYPES)
    want = [(folder / p).read_bytes() for p in paths]
    split = split_of(srv, id)
    assert (split["format"], split["rows"], [f["path"] for f in split["files"]]) == ("images", 8, paths)
    check_rows(srv, id, want)
    with srv.conn() as conn:
        for number, path in enumerate(paths):
            r = ok(Rows(conn, id).get(f"rows/{number}"))
            kind = path.rpartition(".")[2]
            assert r.get("Content-Type") == IMAGE_TYPES[kind]
            with Image.open(io.BytesIO(r.body)) as image:
                assert image.get_format_mimetype() == IMAGE_TYPES[kind] and image.size[1] == 9


def test_images_of_a_model_are_no_rows(srv):
    assert not [d for d in srv.json("/datasets")["datasets"] if d["id"] == "plants"]


@pytest.mark.parametrize("name", LARGE)
def test_large_rows(srv, name):
    id, size = name.rpartition("/")[0], 50 << 20
    data = large_files()[name]
    want = [data] if id == "large/jsonl" else [data[:size], data[size:]]
    last = len(want) - 1
    with srv.conn() as conn:
        rows = Rows(conn, id)
        assert ok(rows.get(f"rows/{last}")).body == want[last]
        assert unframe(ok(rows.get(count=5)).body) == want
        assert unframe(ok(rows.post([last, 0])).body) == [want[last], want[0]]
        r = conn.request(f"/datasets/{id}/rows/{last}", {"Range": "bytes=-1000"})
        assert ok(r, 206).body == want[last][-1000:]


# ------------------------------------------------------------------------------------------------- Arrow

def read_arrow(r):
    """Return the wanted rows of an answer: its stream without the rows before and behind them."""
    assert ok(r).get("Content-Type") == "application/vnd.apache.arrow.stream"
    with pa.ipc.open_stream(r.body) as reader:
        table = reader.read_all()
    table.validate(full=True)
    skip, count = int(r.get("X-Row-Skip", "0")), int(r.get("X-Row-Count"))
    assert skip + count <= len(table)
    assert "X-Row-Skip" not in [k for k, v in r.headers if v == "0"]
    return table.slice(skip, count), len(table)


def same(table, want):
    return table.schema.equals(want.schema, check_metadata=True) and table.to_pylist() == want.to_pylist()


def take(table, numbers):
    return [row for row in (table.slice(i, 1).to_pylist()[0] for i in numbers)]


CUT = ["arrow/stream", "arrow/file", "arrow/one-word-list"]
PACKED_BATCHES = ["arrow/zstd", "arrow/lz4"]


@pytest.mark.parametrize("id", [*CUT, *PACKED_BATCHES])
def test_arrow(srv, tree, id):
    want, rng = pa.concat_tables(tree.arrow[id]), random.Random(n_seed(id))
    n = len(want)
    is_cut = id in CUT
    split = split_of(srv, id)
    assert (split["rows"], [c["name"] for c in split["columns"]]) == (n, want.column_names)
    assert [f["rows"] for f in split["files"]] == [len(t) for t in tree.arrow[id]]
    with srv.conn() as conn:
        rows = Rows(conn, id)
        for i in range(n):
            table, whole = read_arrow(rows.get(f"rows/{i}"))
            assert same(table, want.slice(i, 1)) and (not is_cut or whole == 1), (id, i)
        for start, count in [(0, n), (39, 3), (n, 5), *((rng.randrange(n), rng.randrange(n + 3)) for _ in range(25))]:
            table, whole = read_arrow(rows.get(start=start, count=count))
            assert same(table, want.slice(start, count)) and (not is_cut or whole == len(table)), (id, start, count)
        for numbers in batches(rng, n):
            for r in (rows.post(numbers), rows.post(numbers, packed=True, format="arrow")):
                if is_cut or not numbers:
                    table, whole = read_arrow(r)
                    assert table.schema.equals(want.schema) and table.to_pylist() == take(want, numbers)
                    assert whole == len(numbers)
                else:
                    check_error(r, 422, "compressed")
        shuffled = rows.get(order="shuffle", seed=3, count=n, shard="1/2")
        if is_cut:
            assert read_arrow(shuffled)[0].to_pylist() == take(want, rows.order(n, seed=3)[1::2])
        else:
            check_error(shuffled, 422, "compressed")
        check_error(rows.get("index"), 422, "batches" if is_cut else "compressed")
        check_error(rows.get(format="raw"), 422, "format=arrow")
        check_error(rows.get(f"rows/{n}"), 404)
        check_error(rows.get(start=n + 1), 400)


@pytest.mark.parametrize("name", sorted(unusual_tables()))
def test_arrow_types(srv, tree, name):
    """Consecutive rows of each type are right, as whole batches at least; in any order they are right or refused."""
    want = tree.arrow[f"types/{name}"][0]
    numbers = [39, 0, 24, 25, 25, 7]
    with srv.conn() as conn:
        rows = Rows(conn, f"types/{name}")
        for start, count in ((0, 40), (3, 1), (20, 10), (26, 3), (39, 1)):
            assert same(read_arrow(rows.get(start=start, count=count))[0], want.slice(start, count)), (start, count)
        reasons = {"view": "view type", "union": "union type", "runs": "run-end encoded"}
        reason = next((v for k, v in reasons.items() if k in name), None)
        r = rows.post(numbers)
        if reason is None:
            assert read_arrow(r)[0].to_pylist() == take(want, numbers)
        else:
            check_error(r, 422, reason)


def test_arrow_of_no_rows(srv, tree):
    with srv.conn() as conn:
        rows = Rows(conn, "arrow/empty")
        for r in (rows.get(), rows.get(count=0), rows.post([])):
            assert same(read_arrow(r)[0], tree.arrow["arrow/empty"][0])
        check_error(rows.get("rows/0"), 404, "has no rows")


def test_arrow_dictionaries_of_several_files(srv, tree):
    """Consecutive rows go past the end of a file; rows in any order do so only where no file has a dictionary."""
    want = pa.concat_tables(tree.arrow["arrow/words"])
    with srv.conn() as conn:
        rows = Rows(conn, "arrow/words")
        for start, count in ((0, 50), (25, 10), (29, 2), (30, 20)):
            assert same(read_arrow(rows.get(start=start, count=count))[0], want.slice(start, count))
        assert read_arrow(rows.post([49, 30, 31, 49]))[0].to_pylist() == take(want, [49, 30, 31, 49])
        check_error(rows.post([0, 49]), 422, "dictionaries of its own")


@pytest.mark.parametrize("id", ["arrow/deltas", "arrow/replaced"])
def test_arrow_dictionaries_that_change(srv, tree, id):
    """Dictionaries grow, or are replaced, between the batches of a stream; rows have the words of their batch."""
    want, numbers = tree.arrow[id][0], [26, 0, 9, 8, 17, 18, 18]
    with srv.conn() as conn:
        rows = Rows(conn, id)
        for start, count in ((0, 27), (0, 9), (9, 9), (18, 9), (4, 1), (13, 2), (26, 1), (7, 13)):
            got = read_arrow(rows.get(start=start, count=count))[0]
            assert got.to_pylist() == want.slice(start, count).to_pylist(), (start, count)
        if id == "arrow/deltas":
            assert read_arrow(rows.post(numbers))[0].to_pylist() == take(want, numbers)
        else:
            check_error(rows.post(numbers), 422, "replaces the values of a dictionary")


def test_arrow_schemas_differ(srv, tree):
    tables = tree.arrow["arrow/unequal"]
    with srv.conn() as conn:
        rows = Rows(conn, "arrow/unequal")
        for start, table in zip((0, 3, 5), tables):
            assert same(read_arrow(rows.get(start=start, count=len(table)))[0], table)
            assert read_arrow(rows.post([start]))[0].to_pylist() == take(table, [0])
        for r in (rows.get(), rows.get(start=4, count=2), rows.post([5, 0])):
            check_error(r, 422, "different schemas")


def test_many_rows_of_arrow(srv, tree):
    """Any number of consecutive rows is one answer; in another order they are at most 65,536."""
    want = tree.arrow["arrow/many"][0]
    n, most = len(want), 65536
    with srv.conn() as conn:
        rows = Rows(conn, "arrow/many")
        assert read_arrow(rows.get(start=77, count=10**9))[0].equals(want.slice(77))
        backwards = list(range(n - 1, n - 1 - most, -1))
        table = read_arrow(rows.post(backwards, packed=True))[0]
        assert table.equals(want.take(backwards))
        shuffled = read_arrow(rows.get(order="shuffle", count=most))[0].column("id").to_pylist()
        assert len(set(shuffled)) == most and shuffled != sorted(shuffled)
        check_error(rows.get(order="shuffle", count=most + 1), 400, "count must be at most 65536")


def test_arrow_of_long_values(srv, tree):
    want = tree.arrow["arrow/wide"][0]
    with srv.conn() as conn:
        rows = Rows(conn, "arrow/wide")
        for numbers in ([0], [2, 1, 0, 0]):
            assert read_arrow(rows.post(numbers))[0].to_pylist() == take(want, numbers)
        assert read_arrow(rows.post([0] * 9))[0].to_pylist() == take(want, [0] * 9)
        check_error(rows.post([0] * 30), 422, "more than 67108864 bytes", "fewer rows at a time")
        r = ok(rows.get("rows/0"))
        part = conn.request("/datasets/arrow/wide/rows/0", {"Range": "bytes=1000000-2000000"})
        assert ok(part, 206).body == r.body[1000000:2000001] and same(read_arrow(r)[0], want.slice(0, 1))


# ------------------------------------------------------------------------------------------------ Parquet

def test_parquet(srv, tree):
    """Rows are refused with the reason; pyarrow reads row groups by Range from the file's URL."""
    split = split_of(srv, "parquet")
    assert (split["rows"], split["format"], "read row groups by Range" in split["reason"]) == (120, "parquet", True)
    with srv.conn() as conn:
        rows = Rows(conn, "parquet")
        for r in (rows.get(), rows.get("rows/3"), rows.post([1]), rows.get("index"), rows.get(order="shuffle")):
            check_error(r, 422, "read row groups by Range")
    fs = fsspec.filesystem("http", skip_instance_cache=True)
    for name in tree.parquet:
        local = tree.root / "datasets/parquet" / name
        table = pyarrow.parquet.read_table(local)
        url = f"http://127.0.0.1:{srv.port}/datasets/parquet/resolve/main/{name}"
        with fs.open(url, cache_type="none") as f, pyarrow.parquet.ParquetFile(f) as file:
            assert file.num_row_groups == 3 and same(file.read_row_group(1), table.slice(25, 25))
            sent = [int(n) for n in re.findall(rf"{re.escape(name)}\" status=206 sent=(\d+)", srv.whole_log())]
            assert 0 < sum(sent) < local.stat().st_size * 0.7
            assert same(file.read(), table)


# ------------------------------------------------------------------------------------- mixed and declared

NUMBERS = b"".join(b'{"n": %d}\n' % i for i in range(6))
CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: lines/*.jsonl
  - split: extra
    path: [tables/a.csv, tables/b.csv]
- config_name: tars
  data_files: shards/*.tar
---
# A dataset of several formats
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A dataset whose card declares splits of several formats, one whose files have two formats in one split, and one
    with many splits and no card."""
    root = tmp_path_factory.mktemp("mixed") / "root"
    tar = (SAMPLES / "writer.tar").read_bytes()
    write(root, {"datasets/org/card/README.md": CARD.encode(), "datasets/org/card/lines/b.jsonl": NUMBERS[27:],
                 "datasets/org/card/lines/a.jsonl": NUMBERS[:27], "datasets/org/card/tables/b.csv": b"a,b\n3,4\n",
                 "datasets/org/card/tables/a.csv": b"a,b\n1,2\n", "datasets/org/card/tables/c.csv": b"a,b\n5,6\n",
                 "datasets/org/card/shards/0.tar": tar})
    write(root, {"datasets/two/a.jsonl": b"1\n2\n", "datasets/two/b.jsonl": b"3\n", "datasets/two/c.csv": b"x\n4\n"})
    write(root, {"datasets/three/train.jsonl": NUMBERS, "datasets/three/test.tar": tar,
                 "datasets/three/validation.arrow": arrow_bytes([arrow_table(0, 9)])})
    age(root)
    with Server(root, hash_threads=0) as s:
        s.wait_for(lambda: all(x["index"]["state"] == "ready" for x in all_splits(s)), "all indexes")
        yield s
    shutil.rmtree(root, ignore_errors=True)


def test_splits_of_the_card(mixed):
    d = mixed.json("/datasets/org/card")
    assert [(s["name"], s["format"], s["rows"], [f["path"] for f in s["files"]]) for s in d["splits"]] == [
        ("train", "jsonl", 6, ["lines/a.jsonl", "lines/b.jsonl"]),
        ("extra", "csv", 2, ["tables/a.csv", "tables/b.csv"]), ("tars/train", "webdataset", 3, ["shards/0.tar"])]
    with mixed.conn() as conn:
        assert ok(Rows(conn, "org/card").get(format="raw")).body == NUMBERS
        assert ok(Rows(conn, "org/card", "extra").get(format="raw")).body == b"1,2\n3,4\n"
        r = ok(Rows(conn, "org/card", "tars/train").get(format="tar"))
        assert [m.name for m in tarfile.open(fileobj=io.BytesIO(r.body))][:2] == ["000.cls", "000.json"]
        check_error(conn.request("/datasets/org/card/rows"), 400, "has several splits", "train", "extra", "tars/train")


def test_formats_of_one_dataset(mixed):
    """A split has the format of most of its files; the others are listed. Other splits may have other formats."""
    d = mixed.json("/datasets/two")
    assert [(s["name"], s["format"], s["rows"]) for s in d["splits"]] == [("train", "jsonl", 3)]
    assert [e for e in d["errors"] if "c.csv" in json.dumps(e) and "another format" in json.dumps(e)] == d["errors"]
    assert len(d["errors"]) == 1
    d = mixed.json("/datasets/three")
    assert [(s["name"], s["format"], s["rows"]) for s in d["splits"]] == [
        ("train", "jsonl", 6), ("validation", "arrow", 9), ("test", "webdataset", 3)]
    with mixed.conn() as conn:
        assert same(read_arrow(Rows(conn, "three", "validation").get())[0], arrow_table(0, 9))
        assert ok(Rows(conn, "three").get("rows/4")).body == b'{"n": 4}'


# ------------------------------------------------------------------------------------------- broken files

def sample(name):
    return (SAMPLES / name).read_bytes()


def broken_files():
    """{dataset: ({path: bytes}, a part of the reason)}, files that cannot be read as their names say."""
    tar, mds, lit = sample("writer.tar"), sample("text.mds"), sample("chunk-plain.bin")
    arrow, arrow_file = arrow_bytes([arrow_table(0, 40)]), arrow_bytes([arrow_table(0, 40)], "file")
    npy, parquet = io.BytesIO(), io.BytesIO()
    np.save(npy, np.arange(10))
    npy = npy.getvalue()
    pyarrow.parquet.write_table(pa.table({"a": range(9)}), parquet)
    parquet = parquet.getvalue()
    idx, bin_ = sample("sequences.idx"), sample("sequences.bin")
    single = {
        "csv-header": ("csv", b'"' + b"x" * (2 << 20) + b'"\n1\n', "header"),
        "jsonl-cr": ("jsonl", b'{"a": 1}\r{"a": 2}\r', "its lines end with CR alone"),
        "tar-sum": ("tar", tar[:148] + b"0000001\0" + tar[156:], "checksum"),
        "tar-cut": ("tar", tar[:3000], "tar header: only 440 of 512 bytes"),
        "tar-member": ("tar", tar[:700], "pass the end of the file"),
        "tar-junk": ("tar", pattern(5000, "tar"), "checksum"),
        "tar-gzip": ("tar", b"\x1f\x8b\x08" + pattern(5000, "gz"), "checksum"),
        "mds-cut": ("mds", mds[:-3], "the file has 372"),
        "mds-junk": ("mds", pattern(500, "mds"), "the file has 500"),
        "mds-count": ("mds", struct.pack("<I", 2**32 - 1) + mds[4:], "4294967295 rows"),
        "npy-cut": ("npy", npy[:-1], "the file ends after 79"),
        "npy-junk": ("npy", b"junk" * 50, "no npy file"),
        "npy-objects": ("npy", npy.replace(b"'<i8'", b"'|O' "), "object"),
        "tokens": ("uint16x8.bin", bytes(17), "17 bytes is no multiple"),
        "arrow-junk": ("arrow", pattern(5000, "arrow"), "a message says that its metadata has"),
        "arrow-cut": ("arrow", arrow[:len(arrow) // 2], "a message says that its body has"),
        "arrow-huge": ("arrow", b"\xff" * 4 + struct.pack("<i", 2**31 - 1) + arrow[8:], "2147483647 bytes"),
        "arrow-file-cut": ("arrow", arrow_file[:-20], "may be cut off"),
        "parquet-junk": ("parquet", pattern(5000, "p"), "PAR1 is missing"),
        "parquet-cut": ("parquet", parquet[:-9], "PAR1 is missing"),
        "parquet-footer": ("parquet", parquet[:-8] + struct.pack("<I", 2**31) + b"PAR1", "2147483648 bytes"),
        "no-mds": ("mds", b"", "0 bytes"), "no-npy": ("npy", b"", "no npy file"), "no-tar": ("tar", b"", "empty"),
        "no-arrow": ("arrow", b"", "no schema"), "no-parquet": ("parquet", b"", "0 bytes"),
    }
    made = {name: ({f"train/x.{end}": data}, why) for name, (end, data, why) in single.items()}
    index = {"train/index.json": b"{}"}
    return made | {
        "lit-cut": ({"train/chunk-0-0.bin": lit[:-4]} | index, "the file has 223"),
        "lit-junk": ({"train/chunk-0-0.bin": pattern(900, "lit")} | index, "the file has 900"),
        "no-lit": ({"train/chunk-0-0.bin": b""} | index, "0 bytes"),
        "megatron-cut": ({"train/x.bin": bin_[:-2], "train/x.idx": idx}, "the data file has 16"),
        "megatron-magic": ({"train/x.bin": bin_, "train/x.idx": b"M" + idx}, "MMIDIDX"),
        "megatron-table": ({"train/x.bin": bin_, "train/x.idx": idx[:-3]}, "103 bytes"),
        "no-megatron": ({"train/x.bin": b"", "train/x.idx": b""}, "0 bytes"),
    }


BROKEN = broken_files()
EMPTY = ["csv", "tsv", "jsonl", "uint16x8.bin"]  # without rows; files of other formats cannot be empty


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """Each broken file beside a good split, empty files, and files whose damage an index does not see."""
    root = tmp_path_factory.mktemp("broken") / "root"
    for name, (files, _) in BROKEN.items():
        write(root, {f"datasets/broken/{name}/{k}": v for k, v in files.items()})
        write(root, {f"datasets/broken/{name}/test/good.jsonl": NUMBERS})
    write(root, {f"datasets/empty/{end}/x.{end}": b"" for end in EMPTY})
    write(root, {"datasets/empty/images/a.png": b"", "datasets/empty/images/b.png": b"b"})
    mds, lit, idx = (bytearray(sample(n)) for n in ("text.mds", "chunk-plain.bin", "sequences.idx"))
    mds[12:16] = lit[12:16] = b"\xff" * 4            # where row 1 ends and row 2 begins
    idx[58:66] = struct.pack("<q", 10**6)            # where row 1 begins, behind 34 bytes and 4 lengths
    write(root, {"datasets/entry/mds/x.mds": mds, "datasets/entry/lit/chunk-0-0.bin": lit,
                 "datasets/entry/lit/index.json": b"{}", "datasets/entry/megatron/x.bin": sample("sequences.bin"),
                 "datasets/entry/megatron/x.idx": idx})
    table, rng = arrow_bytes([arrow_table(0, 40), arrow_table(40, 40)]), random.Random(3)
    for k in range(30):
        data = bytearray(table)
        for _ in range(4):
            data[rng.randrange(1144, len(data))] ^= 1 << rng.randrange(8)
        write(root, {f"datasets/bits/{k}/x.arrow": data})
    age(root)
    with Server(root, hash_threads=0) as s:
        s.wait_for(lambda: all(x["index"]["state"] != "building" for x in all_splits(s)), "all indexes", 60, every=0.2)
        yield s
    shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_broken_files(damaged, name):
    """The reason is listed at the file and in answers; the other split has its rows, and the file itself is served."""
    files, why = BROKEN[name]
    id = f"broken/{name}"
    split = split_of(damaged, id)
    assert (split["index"]["state"], split["rows"], split["fingerprint"]) == ("failed", None, None)
    path = next(iter(files))
    assert [(f["path"], f["rows"]) for f in split["files"]] == [(path, None)] and why in split["files"][0]["error"]
    with damaged.conn() as conn:
        rows = Rows(conn, id)
        for r in (rows.get(), rows.get("rows/0"), rows.get("index"), rows.post([0]), rows.get(order="shuffle")):
            check_error(r, 422, path.rpartition("/")[2], why)
        assert ok(Rows(conn, id, "test").get(format="raw")).body == NUMBERS
        assert ok(conn.request(f"/datasets/{id}/resolve/main/{path}")).body == files[path]


@pytest.mark.parametrize("end", EMPTY)
def test_empty_files(damaged, end):
    assert split_of(damaged, f"empty/{end}")["rows"] == 0
    check_rows(damaged, f"empty/{end}", [])


def test_empty_images(damaged):
    with damaged.conn() as conn:
        rows = Rows(conn, "empty/images")
        assert unframe(ok(rows.get()).body) == [b"", b"b"]
        assert unframe(ok(rows.post([1, 0, 0])).body) == [b"b", b"", b""]
        assert ok(rows.get("rows/0")).body == b""


@pytest.mark.parametrize("name, file, wrong", [("mds", "text.mds", (1, 2)), ("lit", "chunk-plain.bin", (1, 2)),
                                               ("megatron", "sequences.bin", (1,))])
def test_wrong_entries(damaged, name, file, wrong):
    """A wrong entry of a table is an error of its rows alone."""
    want = EXPECTED[file]["rows"]
    with damaged.conn() as conn:
        rows = Rows(conn, f"entry/{name}")
        for i, (size, crc) in enumerate(want):
            r = rows.get(f"rows/{i}")
            if i in wrong:
                check_error(r, 422, f"row {i}", "offsets")
            else:
                assert (len(ok(r).body), f"{zlib.crc32(r.body):08x}") == (size, crc)
        good = [i for i in range(len(want)) if i not in wrong]
        assert [len(row) for row in unframe(ok(rows.post(good)).body)] == [want[i][0] for i in good]
        check_error(rows.get(), 422, "offsets")


def test_damaged_arrow_batches(damaged):
    """Bits that are wrong in the metadata or offsets of batches: every answer is a stream that pyarrow takes, with as
    many rows, or 422 with the file's name. The request is never blamed."""
    refused = 0
    with damaged.conn() as conn:
        for k in range(30):
            rows = Rows(conn, f"bits/{k}")
            for r in (*(rows.get(f"rows/{i}") for i in range(0, 80, 9)), rows.get(start=30, count=20),
                      rows.post(list(range(79, -1, -3))), rows.post([5])):
                if r.status != 200:
                    check_error(r, 422, "x.arrow")
                    refused += 1
                    continue
                with contextlib.suppress(pa.ArrowInvalid), pa.ipc.open_stream(r.body) as reader:  # values are not read
                    assert len(reader.read_all()) == int(r.get("X-Row-Count"))
    assert 0 < refused < 300


@pytest.mark.parametrize("id", ["arrow/stream", "tars", "shards/mds", "text/csv", "npy/f4", "images/plain"])
def test_the_page_leads_to_rows(srv, id):
    """A browser's page of each format has a link to the first rows, which are answered."""
    page = ok(srv.get(f"/datasets/{id}", {"Accept": "text/html"})).body.decode()
    found = re.findall(r'data-link="rows" href="([^"]*)"', page)
    assert found and "cannot be cut" not in page
    for link in found:
        ok(srv.get(link.replace("&amp;", "&")))
