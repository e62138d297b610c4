#!/usr/bin/env python3
"""Writes tests/data/rows/ with the writers of each format, and expected.json with what their readers read from it
again: of each file its format, its columns, and per row the number of bytes and their CRC-32. The same bytes at every
run.

Needs numpy, webdataset, mosaicml-streaming, litdata with zstd, and GNU tar:

    python tests/data/make_rows.py
"""
import csv
import inspect
import io
import itertools
import json
import pathlib
import random
import re
import shutil
import struct
import subprocess
import tarfile
import tempfile
import zlib

import litdata.streaming.item_loader
import litdata.streaming.writer
import numpy as np
import streaming.base.format.mds as mds
import webdataset
import webdataset.tariterators

FOLDER = pathlib.Path(__file__).resolve().parent / "rows"
LONG = "a/" + "folder-of-a-long-name/" * 6  # more than the 100 bytes of a name field, and the 155 of a prefix
expected = []


def expect(file, format_name, rows, columns=None, says=None):
    """rows: the bytes of each; says: a part of the reason why they are not answered, or of the file's refusal."""
    expected.append({
        "file": file, "format": format_name, "columns": columns, "says": says,
        "rows": [[len(row), f"{zlib.crc32(row):08x}"] for row in rows]
    })


# ---- text ----


def lines_of_records(content, delimiter):
    """The bytes of each record of a CSV text, and its fields: csv.reader tells how many lines a record took."""
    lines = content.decode("utf-8-sig", "surrogateescape").split("\n")
    lines = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    reader = csv.reader(iter(lines), delimiter=delimiter)
    records, taken = [], 0
    for fields in reader:
        record = lines[taken:reader.line_num]
        text = "".join(record)
        taken = reader.line_num
        is_closed = len(list(csv.reader(iter(record + ["x"]), delimiter=delimiter))) == 2
        if text.strip(" \t\r\v\f\n".replace(delimiter, "")):
            if text.endswith("\n") and is_closed:
                text = text[:-2] if text.endswith("\r\n") else text[:-1]
            records.append((text.encode("utf-8", "surrogateescape"), fields))
    return records


def csv_file(name, content, delimiter=","):
    (FOLDER / name).write_bytes(content)
    records = lines_of_records(content, delimiter)
    columns = [{"name": field} for field in records[0][1]] if records else None
    expect(name, "csv", [text for text, _ in records[1:]], columns)


def written_csv(rows, **options):
    out = io.StringIO(newline="")
    csv.writer(out, **options).writerows(rows)
    return out.getvalue().encode()


def text_files():
    table = [["id", "name", "a \"text\""], [1, "x", "one, two"], [2, "", "line\r\nend\n\n"],
             [3, "\u00e9\u4e2d", "\"\""], ["", "", ""], [4, " y ", "'"]]
    csv_file("excel.csv", written_csv(table))
    csv_file("unix.csv", b"\xef\xbb\xbf" + written_csv(table, dialect="unix").rstrip(b"\n"))
    csv_file("excel.tsv", written_csv([row + ["a\tb"] for row in table], dialect="excel-tab"), "\t")
    csv_file("tabs.tsv", b"a\tb\n1\t2\n\t\n\n \n3\t\"4\n5\"\n", "\t")
    csv_file("odd.csv", b'\n  \na,"b ""c""",d"e"\n\n1,x"y",""""\n"a"b"c",\n"x\n\n",\r\n \r\n\xff,"open\n,"",\n')
    csv_file("header.csv", b"only,a,header")
    csv_file("many.csv", written_csv([["n", "text"]] + [[n, "\n" * (n % 3)] for n in range(100)]))
    rows = [b'{"a": 1}', b'{"b": "\xc3\xa9"}', b"[1, 2]"]
    content = rows[0] + b"\r\n\n" + rows[1] + b"\n \t\n" + rows[2]
    (FOLDER / "mixed.jsonl").write_bytes(content)
    read = [json.loads(line) for line in content.splitlines() if line.strip()]
    assert read == [json.loads(row) for row in rows]
    expect("mixed.jsonl", "jsonl", rows)


# ---- tar ----


def samples_of(path):
    """Keys and members of each sample, as webdataset's reader gives them."""
    data = webdataset.tariterators.tarfile_samples([{"url": str(path)}])
    for sample in data:
        yield sample["__key__"], {name: value for name, value in sample.items() if not name.startswith("__")}


def tar_file(name, content):
    """Where a sample lies: from tarfile's offset of its first member to the end of its last one."""
    while content.endswith(bytes(3 * 512)):
        content = content[:-512]
    path = FOLDER / name
    path.write_bytes(content)
    with tarfile.open(path) as archive:
        members = [member for member in archive.getmembers() if member.isreg()]
    rows = []
    at = 0
    for key, values in samples_of(path):
        places = []
        while len(places) < len(values):
            member = members[at]
            at += 1
            if webdataset.tariterators.base_plus_ext(member.name)[0] == key:
                places.append((member.offset, member.offset_data + -(-member.size // 512) * 512))
        rows.append(content[places[0][0]:places[-1][1]])
        # a row and two blocks of zeros are an archive with this one sample
        single = FOLDER / "single.tar"
        single.write_bytes(rows[-1] + bytes(1024))
        assert list(samples_of(single)) == [(key, values)], name
        single.unlink()
    expect(name, "webdataset", rows)


def member(archive, name, data=b"", **more):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in more.items():
        setattr(info, key, value)
    archive.addfile(info, io.BytesIO(data))


def archive_of(tar_format, long_name, **options):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tar_format, **options) as archive:
        member(archive, "__meta__.json", b"{}")
        member(archive, "folder/", type=tarfile.DIRTYPE)
        member(archive, "folder/0.jpg", b"jpeg" * 200)
        member(archive, "folder/readme", b"no key")
        member(archive, "folder/0.cls", b"7")
        member(archive, "folder/link.txt", type=tarfile.SYMTYPE, linkname="0.cls")
        member(archive, "folder/0.seg.png", b"x" * 512)
        member(archive, "folder/1.jpg")
        member(archive, "folder/hard.jpg", type=tarfile.LNKTYPE, linkname="folder/1.jpg")
        member(archive, long_name + "2.txt", b"long")
        member(archive, long_name + "2.json", b"[]")
        member(archive, ".hidden.txt", b"no key")
        member(archive, "folder/.hidden.txt", b"the folder is the key")
        member(archive, "a.b/.hidden.txt", b"no key")
        member(archive, "__x__/3.txt", b"metadata")
        member(archive, "4.txt", b"four")
    return out.getvalue()


def tar_files():
    path = FOLDER / "writer.tar"
    with webdataset.TarWriter(str(path), mtime=0, user="", group="") as writer:
        for number in range(3):
            writer.write({"__key__": f"{number:03}", "cls": number, "json": {"n": number}, "txt": "x" * 300 * number})
    tar_file("writer.tar", path.read_bytes())
    tar_file("gnu.tar", archive_of(tarfile.GNU_FORMAT, LONG * 2))
    tar_file("pax.tar", archive_of(tarfile.PAX_FORMAT, LONG + "\u00e9" * 40, pax_headers={"comment": "for all"}))
    tar_file("ustar.tar", archive_of(tarfile.USTAR_FORMAT, LONG))
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        names = [LONG + "5.txt", LONG + "5.cls", "6.txt", "6.cls"]
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name[-5:])
        for each in ["gnu", "posix"]:
            options = [f"--format={each}", "--mtime=@1.5", "--owner=0", "--group=0", "--mode=644", "--no-recursion"]
            if each == "posix":
                options.append("--pax-option=delete=atime,delete=ctime,exthdr.name=%d/PaxHeaders/%f")
            made = subprocess.run(["tar", *options, "-C", place, "-cf", "-", *names], check=True, capture_output=True)
            tar_file(f"gnutar_{each}.tar", made.stdout)


def key_bytes(path):
    """The length of the path's key, 0 for none, by the two patterns of webdataset's reader."""
    signature = inspect.signature(webdataset.tariterators.tar_file_iterator)
    if re.match(signature.parameters["skip_meta"].default, path):
        return 0
    return len(webdataset.tariterators.base_plus_ext(path)[0] or "")


def key_file():
    """keys.json: paths by the length of their key. All short ones of five characters, and longer ones by chance."""
    paths = ["".join(letters) for size in range(5) for letters in itertools.product("a._/\n", repeat=size)]
    chance = random.Random(16)
    paths += ["".join(chance.choices("ab.__/\n", k=chance.randint(5, 14))) for _ in range(300)]
    keys = {}
    for path in paths:
        keys.setdefault(key_bytes(path), []).append(path)
    (FOLDER / "keys.json").write_text(json.dumps(keys, separators=(",", ":")) + "\n", encoding="utf-8")


# ---- tables of offsets ----


def mds_file(name, columns, samples):
    with tempfile.TemporaryDirectory() as place:
        with mds.MDSWriter(columns=columns, out=place + "/out") as writer:
            for sample in samples:
                writer.write(sample)
        shutil.copy(place + "/out/shard.00000.mds", FOLDER / name)
        index = json.loads(pathlib.Path(place + "/out/index.json").read_text(encoding="utf-8"))
        reader = mds.MDSReader.from_json(place, "out", index["shards"][0])
        rows = [reader.get_sample_data(number) for number in range(reader.samples)]
        assert [reader.decode_sample(row) for row in rows] == samples
        expect(name, "mds", rows,
               [{"name": a, "type": b} for a, b in zip(reader.column_names, reader.column_encodings)])


def mds_files():
    mds_file("text.mds", {"text": "str", "id": "int", "raw": "bytes"},
             [{"text": "word " * n, "id": n, "raw": bytes(range(n))} for n in range(5)])
    mds_file("number.mds", {"n": "uint16"}, [{"n": np.uint16(n)} for n in range(7)])


def litdata_file(name, items, says=None, **options):
    with tempfile.TemporaryDirectory() as place:
        writer = litdata.streaming.writer.BinaryWriter(place, chunk_size=len(items), **options)
        for number, item in enumerate(items):
            writer[number] = item
        writer.done()
        writer.merge()
        shutil.copy(place + "/chunk-0-0.bin", FOLDER / name)
        loader = litdata.streaming.item_loader.PyTreeLoader()
        rows = []
        if says is None:
            with open(place + "/chunk-0-0.bin", "rb", 0) as chunk:
                rows = [loader._load_data(chunk, (1 + number) * 4) for number in range(len(items))]
        expect(name, "litdata", rows or [b""] * len(items), says=says)


def litdata_files():
    litdata_file("chunk-plain.bin", [("text" * n, n, bytes(n)) for n in range(6)])
    litdata_file("chunk-sample.bin", ["text" * n for n in range(3)], compression="zstd", compression_level="sample")
    litdata_file("chunk-arrow.bin", [{"text": "x" * n, "n": n} for n in range(3)], says="in an Arrow file")
    litdata_file("chunk-frames.bin", ["text" * n for n in range(3)], says="in frames", compression="zstd")


# ---- numbers ----


def megatron_file(name, code, dtype, lengths, documents, modes=None):
    """The layout of _IndexWriter in megatron/core/datasets/indexed_dataset.py, and what _IndexReader reads of it."""
    item = np.dtype(dtype).itemsize
    pointers = np.cumsum([0] + lengths)[:-1] * item
    tokens = (np.arange(sum(lengths)) * 7 % 120).astype(dtype)
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(lengths), len(documents))
    index += np.array(lengths, np.int32).tobytes() + np.array(pointers, np.int64).tobytes()
    index += np.array(documents, np.int64).tobytes() + (b"" if modes is None else np.array(modes, np.int8).tobytes())
    (FOLDER / f"{name}.idx").write_bytes(index)
    (FOLDER / f"{name}.bin").write_bytes(tokens.tobytes())
    read_lengths = np.frombuffer(index, np.int32, len(lengths), 34)
    read_pointers = np.frombuffer(index, np.int64, len(lengths), 34 + read_lengths.nbytes)
    rows = [np.frombuffer(tokens.tobytes(), dtype, length, pointer) if length else tokens[:0]
            for length, pointer in zip(read_lengths, read_pointers)]
    expect(f"{name}.bin", "megatron", [row.tobytes() for row in rows], [{"name": "tokens", "type": dtype}])


def number_files():
    megatron_file("sequences", 8, "uint16", [3, 0, 5, 1], [0, 2, 4])
    megatron_file("modes", 4, "int32", [2, 2, 1], [0, 1, 3], [0, 1, 0])
    megatron_file("none", 6, "float64", [], [0])
    grid = np.arange(12).reshape(3, 4)
    arrays = {
        "f4": grid.astype("<f4"), "big": grid.astype(">i2"), "cube": np.arange(24, dtype="u1").reshape(2, 3, 4),
        "flat": np.arange(5), "bool": grid % 2 == 0, "column": np.asfortranarray(grid[:, :1]),
        "empty": np.zeros((0, 3)), "hollow": np.zeros((3, 0)), "half": grid.astype("f2"),
        "complex": grid.astype("c8"), "fortran": np.asfortranarray(grid), "struct": np.zeros(2, [("a", "<f4")]),
        "text": np.array(["a", "bc"])
    }
    says = {"fortran": "in Fortran order", "struct": "structured", "text": "strings"}
    for name, array in arrays.items():
        np.save(FOLDER / f"{name}.npy", array)
        read = np.load(FOLDER / f"{name}.npy")
        columns = [{"name": "array", "type": read.dtype.str, "shape": list(read.shape[1:])}]
        if name in ("struct", "text"):
            columns[0]["type"] = {"struct": "COMPOUND", "text": "STRING"}[name]
        rows = [read[number].tobytes() for number in range(len(read))]
        expect(f"{name}.npy", "npy", rows, columns, says.get(name))
    np.save(FOLDER / "dates.npy", np.array(["2026-01-01", "2026-01-02"], "M8[D]"))
    expect("dates.npy", "npy", [day.tobytes() for day in np.load(FOLDER / "dates.npy")],
           [{"name": "array", "type": "DATETIME64", "shape": []}])
    for name, dtype, count in [("tokens.uint16x4.bin", "u2", 4), ("tokens.float64.bin", "f8", None)]:
        np.arange(12).astype("<" + dtype).tofile(FOLDER / name)
        read = np.fromfile(FOLDER / name, "<" + dtype).reshape(-1, count or 1)
        column = {"name": "tokens", "type": str(read.dtype)}
        expect(name, "tokens", [row.tobytes() for row in read], [column | ({"shape": [count]} if count else {})])


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    text_files()
    tar_files()
    key_file()
    mds_files()
    litdata_files()
    number_files()
    lines = ",\n".join(json.dumps(entry) for entry in expected)
    (FOLDER / "expected.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
