"""Samples of webdatasets: tar files as people make them, beside the package webdataset; and hostile ones, which take no
more memory than their bytes."""
import io
import random
import re
import struct
import tarfile
import tracemalloc

import pytest
import webdataset
from conftest import rows_url
from fake_datasets import FakeServer, Split

import tensord
from tensord.decoding import decode_sample
from tensord.rows.samples import split_path

QUIET = {"progress": False, "retry_for": 20.0}
LONG = "d" * 90 + "/" + "e" * 90
ARCHIVES = {
    "dots": ["train.v1/", "train.v1/1.jpg", "train.v1/1.cls", "train.v1/2.jpg", "a.b.c/x/k.seg.png", "a.b.c/x/k.js"],
    "lead": ["./", "./1.jpg", "./1.json", "./2.jpg", "./2.json"],
    "mac": ["./._1.jpg", "./1.jpg", "./._1.txt", "./1.txt", "._2.jpg", "2.jpg", ".DS_Store", "2.txt"],
    "keys": ["22.05.png", "22.05.json", "2 Track 2.0 (Clean).mp3", "2 Track 2.0 (Clean).json", "no", "b.e.txt", "b.c"],
    "case": ["A.JPG", "A.Json", "B.JPG"],
    "long": [f"{LONG}/{i}.{ext}" for i in range(2) for ext in ("jpg", "cls")] + ["äö/kü.txt", "äö/kü.cls"],
    "again": ["a.jpg", "b.jpg", "a.cls"],
    "hidden": ["d/a.jpg", "d/.jpg", "d/a.cls", "x.y/.jpg", "d/b.jpg", "d/.b", "d/.c", ".d"],
    "plain": ["a.txt", "LICENSE", "a.cls", "docs/README", "a.z", "b.txt", "Makefile"],
    "meta": ["__index__.json", "0.jpg", "__meta__", "0.cls", "__dir__/0.txt", "1.jpg", "__1.txt", "d/__m__"],
    "ends": ["a.", "a.b", "b..", "b.c", "b..c"],
    "twice": ["a.jpg", "b.jpg", "b.JPG"],
}
FORMS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def archive(names, form):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for number, name in enumerate(names):
            info = tarfile.TarInfo(name)
            data = b"" if number % 5 == 3 else f"{number}:{name}".encode()
            info.size = len(data)
            if name.endswith("/"):
                info.type, info.size = tarfile.DIRTYPE, 0
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def samples_of(path):
    """Return the samples that the package finds, and whether it fails behind them."""
    found = []
    try:
        for sample in webdataset.tariterators.tarfile_samples([{"url": str(path)}]):
            found.append({key: bytes(value) if isinstance(value, bytes) else value for key, value in sample.items()
                          if key not in ("__url__", "__local_path__")})
    except ValueError:
        return found, True
    return found, False


def test_archives_beside_webdataset(serve_rows):
    written = {}
    for name, names in ARCHIVES.items():
        for label, form in FORMS.items():
            try:
                data = archive(names, form)
            except ValueError:  # ustar has no longer names
                continue
            path = serve_rows.root / "datasets" / f"{name}-{label}" / "shard-000000.tar"
            path.parent.mkdir(parents=True)
            path.write_bytes(data)
            written[f"{name}-{label}"] = samples_of(path)
    assert len(written) >= 3 * len(ARCHIVES) - 1
    server = serve_rows()
    for name, (wanted, fails) in written.items():
        dataset = tensord.Dataset(rows_url(server, name), **QUIET)
        assert [dataset[number] for number in range(len(wanted))] == wanted, name
        assert fails == name.startswith("twice") and len(dataset) == len(wanted) + fails, name
        if fails:
            with pytest.raises(tensord.DecodeError, match="row 1 .*two members for 'jpg'"):
                dataset[len(wanted)]


def test_keys_beside_webdataset():
    """The key and the extension are those of the package's pattern, also of paths that no writer makes."""
    rng = random.Random(1)
    for _ in range(20000):
        path = "".join(rng.choice("ab./_\n.") for _ in range(rng.randrange(1, 12)))
        skipped = re.match(r"__[^/]*__($|/)", path) or "/" not in path and path[:2] == path[-2:] == "__"
        key, extension = (None, None) if skipped else webdataset.tariterators.base_plus_ext(path)
        assert split_path(path) == ((None, "") if key is None else (key, extension)), repr(path)


# ---- hostile archives

def header(name, kind=b"0", size=0, **fields):
    """Return a header of GNU's form; `fields`: further bytes by their place, as at_386=b"..."."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:124] = b"0000644\0" + b"0000000\0" * 2
    block[124:136] = b"%011o\0" % size if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    block[136:148] = b"%011o\0" % 0
    block[156:157] = kind
    block[257:265] = b"ustar  \0"
    for place, data in fields.items():
        at = int(place[3:])
        block[at : at + len(data)] = data
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data):
    return data + bytes(-len(data) % 512)


def pax(kind, **records):
    text = b""
    for key, value in records.items():
        record = b" " + key.replace("_", ".").encode() + b"=" + str(value).encode() + b"\n"
        length = len(record) + len(str(len(record) + 2))
        text += str(length if len(str(length)) + len(record) == length else length + 1).encode() + record
    return header(b"pax", kind, len(text)) + padded(text)


HUGE = 2 << 30
EMPTY = {"at_386": b"%011o\0" % 0 + b"%011o\0" % 0, "at_483": b"%011o\0" % HUGE}
SPARSE = {
    "gnu": header(b"0.bin", b"S", 0, **EMPTY),
    "gnu-extended": header(b"0.bin", b"S", 0, at_482=b"\1", **EMPTY) + bytes(512),
    "pax-0.0": pax(b"x", GNU_sparse_size=HUGE, GNU_sparse_numblocks=1, GNU_sparse_offset=0, GNU_sparse_numbytes=0) +
    header(b"0.bin"),
    "pax-0.1": pax(b"x", GNU_sparse_map="0,0", GNU_sparse_size=HUGE, GNU_sparse_name="0.bin") + header(b"G/0.bin"),
    "pax-1.0": pax(b"x", GNU_sparse_major=1, GNU_sparse_minor=0, GNU_sparse_realsize=HUGE, GNU_sparse_name="0.bin") +
    header(b"G/0.bin", b"0", 512) + padded(b"1\n0\n0\n"),
    "solaris": pax(b"X", GNU_sparse_map="0,0", GNU_sparse_size=HUGE, GNU_sparse_name="0.bin") + header(b"0.bin"),
    "global": pax(b"g", GNU_sparse_map="0,0", GNU_sparse_size=HUGE) + header(b"0.bin"),
}
REFUSED = {
    "size-passes-the-end": header(b"0.bin", b"0", 513) + bytes(512),
    "size-of-2-to-70": header(b"0.bin", b"0", 2**70),
    "size-below-0": header(b"0.bin", at_124=b"\xff" * 12),
    "size-no-number": header(b"0.bin", at_124=b"12a\0"),
    "pax-size": pax(b"x", size=2**60) + header(b"0.bin"),
    "pax-size-below-0": pax(b"x", size=-512) + header(b"0.bin"),
    "pax-size-twice": pax(b"x", size=0) + pax(b"x", size=0) + header(b"0.bin"),
    "pax-record-of-0": header(b"pax", b"x", 7) + padded(b"0 a=bb\n") + header(b"0.bin"),
    "pax-record-too-long": header(b"pax", b"x", 7) + padded(b"99 a=b\n") + header(b"0.bin"),
    "pax-path-empty": pax(b"x", path="") + header(b"0.bin"),
    "pax-global-path": pax(b"g", path="a.b") + header(b"0.bin"),
    "pax-too-large": header(b"pax", b"x", 2**20 + 512) + bytes(2**20 + 512) + header(b"0.bin"),
    "long-name-too-long": header(b"L", b"L", 16384) + b"a" * 16384 + header(b"0.bin"),
    "two-long-names": (header(b"L", b"L", 3) + padded(b"a.b")) * 2 + header(b"0.bin"),
    "directory-with-data": header(b"0.bin", b"5", 512) + bytes(512),
    "link-with-data": header(b"0.bin", b"2", 512) + bytes(512),
    "no-header": b"x" * 512,
    "half-a-header": header(b"0.bin")[:100],
    "checksum": header(b"0.bin").replace(b"0.bin", b"1.bin"),
    "no-member": b"",
    "no-key": header(b"README"),
    "two-keys": header(b"a.txt") + header(b"b.txt"),
    "two-members": header(b"a.txt") + header(b"a.TXT"),
}


def peak_of(row):
    """Return the most memory that decoding a row takes beside it, and the error."""
    tracemalloc.start()
    try:
        decode_sample(row)
        error = None
    except ValueError as found:
        error = found
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, error


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_members(name):
    row = SPARSE[name]
    if name != "global":
        with tarfile.open(fileobj=io.BytesIO(row + bytes(1024))) as tar:  # the input is what it should be
            member, = tar.getmembers()
            assert member.issparse() and member.size == HUGE and member.name == "0.bin"
    peak, error = peak_of(row)
    assert "sparse" in str(error) and peak < 2**18


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_archives(name):
    peak, error = peak_of(REFUSED[name])
    assert error is not None and peak < 2**18 + 4 * len(REFUSED[name])
    server = FakeServer({"d": {"train": Split([archive(["a.txt"], tarfile.GNU_FORMAT), REFUSED[name]], "webdataset",
                                              row_type="application/x-tar")}})
    try:
        dataset = tensord.Dataset(server.url("d"), progress=False, retry_for=5.0)
        assert dataset[0] == {"__key__": "a", "txt": b"0:a.txt"}
        with pytest.raises(tensord.DecodeError, match="row 1 of d .* cannot be read by decode='sample'"):
            dataset[1]
    finally:
        server.stop()


def test_numbers_and_names_of_old_writers():
    """Binary sizes, checksums of signed bytes, prefixes, and headers that say nothing of a sample."""
    data = b"x" * 700
    signed = bytearray(header("0ä.bin".encode(), b"\0", 700))
    total = struct.unpack("512b", bytes(signed[:148] + b" " * 8 + signed[156:]))
    signed[148:156] = b"%06o\0 " % sum(total)
    binary = header(b"1.bin", b"7", at_124=b"\x80" + (700).to_bytes(11, "big"))
    prefixed = header(b"2.bin", b"0", 700, at_257=b"ustar\0", at_345=b"some/folder")
    rest = pax(b"g", comment="x") + header(b"dir/") + header(b"dev", b"3") + header(b"K", b"K", 3) + padded(b"abc")
    for first, key in ((bytes(signed), "0ä"), (binary, "1"), (prefixed, "some/folder/2")):
        assert decode_sample(rest + first + padded(data)) == {"__key__": key, "bin": data}


def test_damaged_archives():
    """Whatever bytes a row has, it becomes a sample or ValueError, of no more bytes than it has."""
    rng = random.Random(3)
    rows = [archive(["a/b.jpg", "a/b.cls", f"{LONG}/c.txt"], form) for form in list(FORMS.values())[1:]]
    rows += list(SPARSE.values()) + list(REFUSED.values())
    for number in range(4000):
        row = bytearray(rows[number % len(rows)])
        for _ in range(rng.randrange(1, 4)):
            if row:
                row[rng.randrange(len(row))] = rng.choice(b"\0\x7f\x80\xff0179/.=\nxLSg")
        for at in range(0, len(row) - 511, 512):  # most headers have a right checksum
            if rng.random() < 0.7:
                row[at + 148 : at + 156] = b" " * 8
                row[at + 148 : at + 156] = b"%06o\0 " % sum(row[at : at + 512])
        try:
            sample = decode_sample(bytes(row))
        except ValueError:
            continue
        assert sum(len(value) for key, value in sample.items() if key != "__key__") <= len(row)
