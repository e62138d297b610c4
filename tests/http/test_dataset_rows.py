"""Rows of datasets over a socket, compared with Python's own splitting of the same files."""
import contextlib
import json
import os
import random
import shutil
import struct
import threading
import time

import pytest

from fixtures import stuck_disk
from harness import (Conn, Incomplete, Server, Transfer, age, check_error, is_sanitized, parse_multipart,
                     raise_open_files, release_binary, request_bytes)

MOST_ROWS = 65536
PACKED = {"Content-Type": "application/octet-stream"}
BROWSER = {"Accept": "text/html,application/xhtml+xml"}


# ---------------------------------------------------------------------------------------------- the oracle

def split_rows(data):
    """Return the rows of a JSON Lines file, as Python cuts lines."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    lines = data.split(b"\n")
    ended, last = lines[:-1], lines[-1]
    return [line.removesuffix(b"\r") for line in ended if line.strip()] + ([last] if last.strip() else [])


def frame(rows):
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    return struct.pack(f"<{len(offsets) + 1}Q", len(rows), *offsets) + b"".join(rows)


def lines(rows):
    return b"".join(row + b"\n" for row in rows)


def permute(n, seed, epoch, position):
    """The permutation by the words of core/permutation.h."""
    gold, mask = 0x9E3779B97F4A7C15, 2**64 - 1

    def mix(x):
        x &= mask
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
        return x ^ x >> 31

    state = mix(mix(seed + gold) + epoch + gold)
    half = next(h for h in range(8, 33) if n <= 4**h)
    while True:
        left, right = divmod(position, 2**half)
        for r in range(8):
            left, right = right, left ^ mix(right + mix(state + (r + 1) * gold)) >> 64 - half
        position = left << half | right
        if position < n:
            return position


# ------------------------------------------------------------------------------------------------- helpers

def write(root, files):
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    age(root)


def split_of(srv, id, split="train"):
    return next(s for s in srv.json(f"/datasets/{id}")["splits"] if s["name"] == split)


def wait_index(srv, id, split="train", timeout=60):
    srv.wait_for(lambda: split_of(srv, id, split)["index"]["state"] == "ready", f"the index of {id}", timeout)


def check_rows(r, want, start, total):
    assert r.status == 200 and r.body == frame(want), r
    assert r.get("Content-Type") == "application/octet-stream" and r.get("X-Content-Type-Options") == "nosniff"
    assert (r.get("X-Row-Start"), r.get("X-Row-Count"), r.get("X-Row-Total")) == (str(start), str(len(want)),
                                                                                  str(total))
    return r


def metric(srv, name):
    return {n: v for n, labels, v in srv.metrics()[2] if not labels}[name]


def random_file(rng, rows, plain=False):
    """Rows of 1 byte to 200 KB, with everything between them that may be there."""
    out = bytearray(b"\xef\xbb\xbf" if not plain and rng.random() < 0.3 else b"")
    for i in range(rows):
        kind = rng.random()
        size = rng.choice((1, 2, 16383, 16384, 16385)) if kind < 0.1 else rng.randrange(
            200_000) if kind < 0.12 else rng.randrange(1, 300)
        text = "".join(rng.choices('abc{}":,\\ \u00e9\u2028\U0001f600\u0085', k=min(size, 400))).strip() or "x"
        row = (text * (size // len(text) + 1)).encode()[:size]
        row = row if row.strip() else b"y" * size
        end = b"\n" if plain else rng.choice((b"\n", b"\n", b"\r\n", b"\n\n", b"\n \t\r\n\x0b\x0c\n"))
        out += row + (b"" if i == rows - 1 and rng.random() < 0.5 else end)
    return bytes(out)


@pytest.fixture(scope="module")
def contents():
    """{dataset: {path: bytes}}"""
    rng = random.Random(16)
    found = {
        "datasets/org/mixed": {f"train/{i}.jsonl": random_file(rng, n) for i, n in enumerate((300, 0, 40, 1, 500))},
        "datasets/plain": {f"data/train-0000{i}-of-00004.jsonl": random_file(rng, 250, True) for i in range(4)},
        "one": {"only.ndjson": random_file(rng, 400)},
        "datasets/org/edges": {"a.jsonl": b"1\r\n", "b.jsonl": b"\n", "c.jsonl": b"2", "d.jsonl": b"",
                               "e.jsonl": b"\xef\xbb\xbf3\r", "f.jsonl": b" \t4 \n\r\n"},
        "datasets/org/parts": {"train.jsonl": b"1\n2\n", "test.jsonl": b"3\n", "dev.jsonl": b"4\n"},
        "datasets/empty": {"a.jsonl": b"\n\n"},
        "datasets/org/large": {"a.jsonl": b'"' + b"z" * (50 << 20) + b'"\n"small"\n'},
        "datasets/org/images": {f"{i:03}.png": bytes(range(i)) * (i * 40) for i in range(60)},
    }
    return found


@pytest.fixture(scope="module")
def root(tmp_path_factory, contents):
    root = tmp_path_factory.mktemp("datasets") / "root"
    for folder, files in contents.items():
        write(root, {f"{folder}/{name}": data for name, data in files.items()})
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def srv(root):
    s = Server(root, "--s3-listen", "127.0.0.1:0", hash_threads=0)
    for id in ("org/mixed", "plain", "one", "org/edges", "org/parts", "empty", "org/large"):
        wait_index(s, id)
    yield s
    s.stop()


def rows_of(contents, folder):
    return [row for name in sorted(contents[folder]) for row in split_rows(contents[folder][name])]


SETS = [("datasets/org/mixed", "org/mixed"), ("datasets/plain", "plain"), ("one", "one"), ("one", "local/one"),
        ("datasets/org/edges", "org/edges")]


# --------------------------------------------------------------------------------------------------- tests

def test_the_list(srv):
    r = srv.json("/datasets")
    assert [d["id"] for d in r["datasets"]] == ["empty", "one", "org/edges", "org/images", "org/large", "org/mixed",
                                                "org/parts", "plain"]
    assert next(d for d in r["datasets"] if d["id"] == "org/parts")["splits"] == ["train", "validation", "test"]
    assert [d["id"] for d in srv.json("/datasets?match=org/*")["datasets"]] == [
        "org/edges", "org/images", "org/large", "org/mixed", "org/parts"]
    seen, token = [], ""
    while True:
        page = srv.json(f"/datasets?page_size=3&page_token={token}")
        seen += [d["id"] for d in page["datasets"]]
        token = page["next_page_token"]
        if not token:
            break
        assert len(page["datasets"]) == 3
    assert seen == [d["id"] for d in r["datasets"]]
    check_error(srv.get(f"/datasets?match=x&page_token={srv.json('/datasets?page_size=1')['next_page_token']}"), 400)


@pytest.mark.parametrize("folder, id", SETS)
def test_the_description(srv, contents, folder, id):
    d = srv.json(f"/datasets/{id}")
    assert d["id"] == id.removeprefix("local/") and d["errors"] == [] and len(d["splits"]) == 1
    split, files = d["splits"][0], contents[folder]
    assert (split["name"], split["format"], split["row_type"], split["columns"], split["reason"]) == (
        "train", "jsonl", "application/json", None, None)
    size = sum(map(len, files.values()))
    assert split["rows"] == len(rows_of(contents, folder)) and split["nbytes"] == size
    assert split["index"] == {"state": "ready", "done_bytes": size, "nbytes": size}
    assert split["files"] == [{"path": name, "nbytes": len(files[name]), "rows": len(split_rows(files[name]))}
                              for name in sorted(files)]
    assert split["file_count"] == len(files)


@pytest.mark.parametrize("folder, id", SETS)
def test_slices(srv, contents, folder, id):
    rows = rows_of(contents, folder)
    n, rng = len(rows), random.Random(1)
    check_rows(srv.get(f"/datasets/{id}/rows"), rows[:100], 0, n)
    check_rows(srv.get(f"/datasets/{id}/rows?count=0"), [], 0, n)
    check_rows(srv.get(f"/datasets/{id}/rows?start={n}"), [], n, n)
    check_rows(srv.get(f"/datasets/{id}/rows?split=train&order=file&shard=0/1&seed=7&count={2**64 - 1}"), rows, 0, n)
    for _ in range(25):
        start, count = rng.randrange(n), rng.randrange(1, n + 5)
        want = rows[start:start + count]
        with srv.conn() as c:
            check_rows(c.request(f"/datasets/{id}/rows?start={start}&count={count}"), want, start, n)
            r = c.request(f"/datasets/{id}/rows?start={start}&count={count}&format=raw")
            assert r.status == 200 and r.body == lines(want), r
            assert r.get("Content-Type") == "text/plain; charset=utf-8"
            assert c.request(f"/datasets/{id}/rows?start={start}&count={count}", method="HEAD").length == len(
                frame(want))


@pytest.mark.parametrize("folder, id", SETS)
def test_single_rows(srv, contents, folder, id):
    rows = rows_of(contents, folder)
    rng = random.Random(2)
    with srv.conn() as c:
        for i in [0, len(rows) - 1, *(rng.randrange(len(rows)) for _ in range(60))]:
            r = c.request(f"/datasets/{id}/rows/{i}")
            assert r.status == 200 and r.body == rows[i] and r.get("Content-Type") == "application/json", r
            assert (r.get("X-Row-Start"), r.get("X-Row-Count"), r.get("X-Row-Total")) == (str(i), "1", str(len(rows)))
    check_error(srv.get(f"/datasets/{id}/rows/{len(rows)}"), 404, f"rows are 0 to {len(rows) - 1}")


@pytest.mark.parametrize("folder, id", SETS)
def test_batches(srv, contents, folder, id):
    rows = rows_of(contents, folder)
    rng = random.Random(3)
    for count in (0, 1, 2, 63, 64, 65, 1000, 3000):
        indices = [rng.randrange(len(rows)) for _ in range(count)]
        if count > 2:
            indices[1] = indices[0]
        want = [rows[i] for i in indices]
        r = srv.post(f"/datasets/{id}/rows:batchGet", {"split": "train", "indices": indices})
        assert r.status == 200 and r.body == frame(want), r
        assert r.get("X-Row-Count") == str(count) and r.get("X-Row-Total") == str(len(rows))
        assert r.get("ETag") is None and r.get("Accept-Ranges") is None and r.get("Cache-Control") == "no-store"
        packed = struct.pack(f"<{count}Q", *indices)
        assert srv.post(f"/datasets/{id}/rows:batchGet?split=train", packed, PACKED).body == frame(want)
        r = srv.post(f"/datasets/{id}/rows:batchGet?format=raw", packed, PACKED)
        assert r.body == lines(want) and r.get("Content-Type") == "text/plain; charset=utf-8"
        assert srv.post(f"/datasets/{id}/rows:batchGet", {"format": "raw", "indices": indices}).body == lines(want)


def test_ranges_and_conditions_do_not_apply_to_batches(srv, contents):
    rows = rows_of(contents, "one")
    for headers in ({"Range": "bytes=0-3"}, {"If-None-Match": "*"}, {"If-Match": '"x"'}):
        r = srv.post("/datasets/one/rows:batchGet", {"indices": [3]}, headers)
        assert r.status == 200 and r.body == frame([rows[3]]), r


@pytest.mark.parametrize("query", ["count=50", "count=50&format=raw", "order=shuffle&count=70000&format=raw",
                                   "shard=1/3&start=5", "start=10&count=2"])
@pytest.mark.parametrize("id", ["org/mixed", "plain"])
def test_ranges(srv, id, query):
    target = f"/datasets/{id}/rows?{query}"
    whole = srv.get(target)
    assert whole.status == 200 and whole.get("Accept-Ranges") == "bytes"
    rng = random.Random(4)
    for _ in range(15):
        first = rng.randrange(len(whole.body))
        last = rng.randrange(first, len(whole.body))
        r = srv.get(target, {"Range": f"bytes={first}-{last}", "If-Range": whole.etag})
        assert r.status == 206 and r.body == whole.body[first:last + 1], r
        assert r.get("X-Row-Count") == whole.get("X-Row-Count")
    parts = parse_multipart(srv.get(target, {"Range": "bytes=0-9,20-39"}))
    assert [p[-1] for p in parts] == [whole.body[0:10], whole.body[20:40]]
    assert srv.get(target, {"Range": f"bytes={len(whole.body)}-"}).status == 416
    assert srv.get(target, {"If-None-Match": whole.etag}).status == 304
    assert srv.get(target, {"If-Match": '"other"'}).status == 412
    head = srv.head(target)
    assert head.etag == whole.etag and head.length == len(whole.body)


def test_entity_tags_tell_answers_apart(srv):
    targets = ["/datasets/one/rows" + q for q in (
        "", "?start=1", "?count=3", "?format=raw", "?order=shuffle", "?order=shuffle&seed=1", "?order=shuffle&epoch=1",
        "?shard=0/2", "?shard=1/2", "?order=shuffle&shard=1/2", "/0", "/1")]
    tags = [srv.get(t).etag for t in targets]
    assert len(set(tags)) == len(tags) and None not in tags
    assert srv.get("/datasets/one/rows?split=train&order=file&start=0&count=100&seed=9").etag == tags[0]


def test_images_are_rows(srv, contents):
    files = contents["datasets/org/images"]
    rows = [files[name] for name in sorted(files)]
    split = split_of(srv, "org/images")
    assert (split["format"], split["rows"], split["row_type"]) == ("images", 60, "application/octet-stream")
    check_rows(srv.get("/datasets/org/images/rows?start=5&count=200"), rows[5:], 5, 60)
    r = srv.get("/datasets/org/images/rows?format=raw")
    assert r.body == b"".join(rows) and r.get("Content-Type") == "application/octet-stream"
    r = srv.get("/datasets/org/images/rows/7")
    assert r.body == rows[7] and r.get("Content-Type") == "image/png"
    order = [30, 2, 2, 59, 0]
    assert srv.post("/datasets/org/images/rows:batchGet", {"indices": order}).body == frame([rows[i] for i in order])


def test_a_row_of_50_mb(srv, contents):
    rows = rows_of(contents, "datasets/org/large")
    assert len(rows) == 2 and srv.get("/datasets/org/large/rows/0", timeout=60).body == rows[0]
    r = srv.get("/datasets/org/large/rows/0", {"Range": "bytes=-3"})
    assert r.status == 206 and r.body == rows[0][-3:]
    assert srv.get("/datasets/org/large/rows/1").body == b'"small"'
    assert srv.post("/datasets/org/large/rows:batchGet", {"indices": [1, 0, 1]}, timeout=60).body == frame(
        [rows[1], rows[0], rows[1]])
    assert srv.get("/datasets/org/large/rows?format=raw", timeout=60).body == lines(rows)


# -------------------------------------------------------------------------------------------------- shuffle

def shuffled(srv, id, seed, epoch, rank=0, world=1, start=0, count=MOST_ROWS, form="frame"):
    return srv.get(f"/datasets/{id}/rows?order=shuffle&seed={seed}&epoch={epoch}&shard={rank}/{world}&start={start}"
                   f"&count={count}&format={form}")


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """A dataset whose rows are their numbers."""
    root = tmp_path_factory.mktemp("numbered")
    write(root, {f"datasets/n/{i}.jsonl": b"".join(b"%d\n" % k for k in range(i * 1000, (i + 1) * 1000))
                 for i in range(7)} | {"datasets/few/a.jsonl": b"0\n1\n2\n"})
    s = Server(root, hash_threads=0)
    wait_index(s, "n")
    wait_index(s, "few")
    yield s
    s.stop()


def numbers(r):
    assert r.status == 200, r
    return [int(x) for x in r.body.split()]


@pytest.mark.parametrize("seed, epoch", [(0, 0), (1, 0), (0, 1), (12345, 9), (2**64 - 1, 2**64 - 1)])
def test_a_shuffle_is_that_permutation(numbered, seed, epoch):
    got = numbers(shuffled(numbered, "n", seed, epoch, form="raw"))
    assert got == [permute(7000, seed, epoch, i) for i in range(7000)]
    assert sorted(got) == list(range(7000))
    for world in (1, 2, 8):
        shards = [numbers(shuffled(numbered, "n", seed, epoch, r, world, form="raw")) for r in range(world)]
        joined = [None] * 7000
        for rank, shard in enumerate(shards):
            joined[rank::world] = shard
        assert joined == got
    assert sorted(numbers(shuffled(numbered, "few", seed, epoch, form="raw"))) == [0, 1, 2]


def test_seeds_and_epochs_give_other_orders(numbered):
    orders = [tuple(numbers(shuffled(numbered, "n", s, e, count=50, form="raw"))) for s in range(4) for e in range(4)]
    assert len(set(orders)) == 16


def test_an_epoch_is_resumed_anywhere(numbered):
    rng = random.Random(5)
    for rank, world in ((0, 1), (1, 3), (7, 8)):
        whole = numbers(shuffled(numbered, "n", 3, 4, rank, world, form="raw"))
        for _ in range(20):
            start, count = rng.randrange(len(whole) + 1), rng.randrange(300)
            r = shuffled(numbered, "n", 3, 4, rank, world, start, count, "raw")
            assert numbers(r) == whole[start:start + count]
            assert r.get("X-Row-Total") == str(len(whole)) and r.get("X-Row-Start") == str(start)
    assert numbers(shuffled(numbered, "few", 0, 0, 3, 4, form="raw")) == []  # fewer rows than shards


def test_shards_in_file_order(numbered):
    for rank in range(3):
        got = numbers(numbered.get(f"/datasets/n/rows?shard={rank}/3&count=7000&format=raw"))
        assert got == list(range(7000))[rank::3]


def test_shuffled_batches_keep_bytes(srv, contents):
    rows = rows_of(contents, "datasets/org/mixed")
    n = len(rows)
    check_rows(shuffled(srv, "org/mixed", 6, 1), [rows[permute(n, 6, 1, i)] for i in range(n)], 0, n)


# --------------------------------------------------------------------------------------------------- errors

@pytest.mark.parametrize("query, status, needles", [
    ("x=1", 400, ["unknown"]), ("start=-1", 400, ["start must be a whole number"]), ("start=1.5", 400, ["1.5"]),
    ("start=1e3", 400, []), ("start=", 400, []), ("start=0x10", 400, []), ("start=%20 1".replace(" ", ""), 400, []),
    ("start=18446744073709551616", 400, ["18446744073709551615"]), ("start=18446744073709551615", 400, ["from 0 to"]),
    ("start=401", 400, ["from 0 to 400, the number of rows, not 401"]), ("count=-1", 400, ["count"]),
    ("count=99999999999999999999", 400, ["count"]), ("start=0&start=1", 400, []), ("format=jsno", 400, ["frame"]),
    ("format=bare", 400, []), ("format=", 400, []), ("format=tar", 422, ["format=frame"]), ("order=random", 400, []),
    ("order=", 400, []), ("seed=x", 400, ["seed"]), ("seed=-1", 400, []), ("epoch=18446744073709551616", 400, []),
    ("shard=1", 400, ["R/W"]), ("shard=1/1", 400, []), ("shard=0/0", 400, []), ("shard=-1/2", 400, []),
    ("shard=/2", 400, []), ("shard=0/", 400, []), ("shard=0/2/3", 400, []), ("shard=0/4294967296", 400, []),
    ("shard=0/4294967295&start=2", 400, ["from 0 to 1"]), ("split=none", 404, ["train"]), ("split=", 404, []),
    ("fingerprint=", 412, []), ("fingerprint=0", 412, ["read GET /datasets/one again"]),
    ("split=none&fingerprint=0", 404, []), ("start=%zz", 400, []), ("start=%00", 400, []),
])
# shows: security.md rows-bad-requests
def test_bad_parameters(srv, query, status, needles):
    r = srv.get(f"/datasets/one/rows?{query}")
    e = check_error(r, status, *needles)
    assert srv.head(f"/datasets/one/rows?{query}").status == status
    if "unknown order" in e["message"]:
        assert e["details"]["known"] == ["file", "shuffle"]
    if "unknown format" in e["message"]:
        assert e["details"]["known"] == ["frame", "raw", "tar", "arrow", "json"]


def test_a_split_has_to_be_named(srv):
    for method, target in (("GET", "rows"), ("GET", "rows/0")):
        r = srv.request(f"/datasets/org/parts/{target}", method=method)
        assert check_error(r, 400, "split=")["details"]["known"] == ["train", "validation", "test"]
    check_error(srv.post("/datasets/org/parts/rows:batchGet", {"indices": []}), 400, "split=")
    for split, want in (("train", [b"1", b"2"]), ("validation", [b"4"]), ("test", [b"3"])):
        assert srv.get(f"/datasets/org/parts/rows?split={split}").body == frame(want)


def test_more_rows_than_an_answer_has(srv, tmp_path, start):
    write(tmp_path, {"datasets/many/a.jsonl": b"1\n" * 70000, "datasets/gaps/a.jsonl": b"1\n" * 69999 + b"\n1\n"})
    s = start(tmp_path)
    for id in ("many", "gaps"):
        wait_index(s, id)
        assert s.get(f"/datasets/{id}/rows?count=65536&format=raw").body == b"1\n" * 65536
        check_error(s.get(f"/datasets/{id}/rows?count=65537"), 400, "at most 65536")
        assert s.get(f"/datasets/{id}/rows?count=70000&start=4464").status == 200
        check_error(s.get(f"/datasets/{id}/rows?count=65537&format=raw&order=shuffle"), 400)
        check_error(s.get(f"/datasets/{id}/rows?count=65537&format=raw&shard=0/1&order=shuffle"), 400)
    assert s.get("/datasets/many/rows?count=70000&format=raw").body == b"1\n" * 70000  # one piece of its file
    check_error(s.get("/datasets/gaps/rows?count=70000&format=raw"), 400)
    batch = struct.pack("<65536Q", *range(65536))
    assert s.post("/datasets/many/rows:batchGet", batch, PACKED).status == 200
    check_error(s.post("/datasets/many/rows:batchGet", batch + bytes(8), PACKED), 400, "65536")
    check_error(s.post("/datasets/many/rows:batchGet", {"indices": [0] * 65537}), 400, "65536")


@pytest.mark.parametrize("path, status, needles", [
    ("/datasets/none", 404, ["GET /datasets lists datasets"]), ("/datasets/none/rows", 404, []),
    ("/datasets/org", 404, []), ("/datasets/one/none", 404, ["rows, rows/{number}, index and rows:batchGet"]),
    ("/datasets/one/rows/", 200, []), ("/datasets/one/rows/x", 404, ["rows are 0 to 399"]),
    ("/datasets/one/rows/-1", 404, []), ("/datasets/one/rows/0/1", 404, []), ("/datasets/one/rows/00", 200, []),
    ("/datasets/one/rows/18446744073709551616", 404, []), ("/datasets/one/rows/1.0", 404, []),
    ("/datasets/one/rowsx", 404, []), ("/datasets/one/rows:batchGetx", 404, []), ("/datasets/empty/rows/0", 404,
                                                                                 ["has no rows"]),
    ("/datasets/one/rows/0?start=1", 400, []), ("/datasets/one/rows/0?split=no", 404, []),
    ("/datasets/one/rows/0?fingerprint=x", 412, []), ("/datasets/one?x=1", 400, []), ("/datasets?x=1", 400, []),
    ("/datasetsx", 404, []), ("/datasets//one", 404, []), ("/datasets/one/../one/rows", 404, []),
])
def test_paths(srv, path, status, needles):
    r = srv.get(path)
    assert r.status == status, r
    if status != 200:
        check_error(r, status, *needles)


@pytest.mark.parametrize("method, path, allow", [
    ("POST", "/datasets", ("GET", "HEAD")), ("POST", "/datasets/one/rows", ("GET", "HEAD")),
    ("DELETE", "/datasets/one/rows/0", ("GET", "HEAD")), ("GET", "/datasets/one/rows:batchGet", ("POST",)),
    ("HEAD", "/datasets/one/rows:batchGet", ("POST",)), ("PUT", "/datasets/one/rows:batchGet", ("POST",)),
])
def test_methods(srv, method, path, allow):
    r = srv.request(path, method=method)
    assert r.status == 405 and sorted(r.get("Allow").split(", ")) == sorted(allow), r


@pytest.mark.parametrize("body, status, needles", [
    (b"", 400, ["at byte 0"]), (b"[]", 400, ["an object with"]), (b"{}", 400, [r'\"indices\" is missing']),
    (b'{"indices":[0]', 400, ["at byte 14"]), (b'{"indices":[0]}x', 400, ["at byte 15"]),
    (b'{"indices":[0],"indices":[1]}', 400, ["at byte 15", "twice"]),
    (b'{"indices":[],"indices":[]}', 400, ["twice"]), (b'{"indices":0}', 400, ["at byte 11", "a list of row numbers"]),
    (b'{"indices":[-1]}', 400, ["at byte 12"]), (b'{"indices":[0,1.0]}', 400, ["at byte 14"]),
    (b'{"indices":[1e2]}', 400, ["at byte 12"]), (b'{"indices":["0"]}', 400, ["at byte 12"]),
    (b'{"indices":[null]}', 400, ["at byte 12"]), (b'{"indices":[[0]]}', 400, ["at byte 12"]),
    (b'{"indices":[18446744073709551616]}', 400, ["at byte 12"]),
    (b'{"indices":[18446744073709551615]}', 400, ["index 0 of the batch is 18446744073709551615; rows are 0 to 399"]),
    (b'{"indices":[0,400]}', 400, ["index 1 of the batch is 400; rows are 0 to 399"]),
    (b'{"indices":[0],"x":1}', 400, ['unknown key \\"x\\"', "at byte 15"]),
    (b'{"indices":[0],"split":7}', 400, ["a string expected"]), (b'{"split":"no","indices":[0]}', 404, ["train"]),
    (b'{"split":"train","split":"train","indices":[0]}', 400, ["twice"]),
    (b'{"indices":[0],"format":"x"}', 400, ["frame"]), (b'{"indices":[0],"format":"tar"}', 422, []),
    (b'{"indices":[0],"split":"tr\\u0000ain"}', 400, []), (b'{"indices":' + b"[" * 100000, 400, []),
    (b"[" * 100000 + b"]" * 100000, 400, []), (b'{"a":' * 5000, 400, []), (b"\xff\xfe", 400, []),
    (b'{"indices":[' + b"0," * 200000 + b"0]}", 400, ["65536"]),
])
# shows: security.md rows-bad-requests
def test_bad_batches(srv, body, status, needles):
    check_error(srv.post("/datasets/one/rows:batchGet", body), status, *needles)


# shows: security.md rows-bad-requests
def test_bad_packed_batches(srv):
    for n in range(1, 8):
        check_error(srv.post("/datasets/one/rows:batchGet", bytes(n), PACKED), 400, f"{n} bytes")
    check_error(srv.post("/datasets/one/rows:batchGet", struct.pack("<2Q", 0, 2**64 - 1), PACKED), 400, "index 1")
    check_error(srv.post("/datasets/one/rows:batchGet?split=no", bytes(8), PACKED), 404)
    check_error(srv.post("/datasets/empty/rows:batchGet", bytes(8), PACKED), 400, "has no rows")
    assert srv.post("/datasets/empty/rows:batchGet", b"", PACKED).body == frame([])
    check_error(srv.post("/datasets/one/rows:batchGet?fingerprint=x", bytes(8), PACKED), 412)
    check_error(srv.post("/datasets/one/rows:batchGet?start=1", bytes(8), PACKED), 400)
    check_error(srv.post("/datasets/one/rows:batchGet", bytes(8 << 20), PACKED), 400, "65536")


def test_large_bodies_give_their_memory_back(srv):
    """Bodies of 8 MiB of JSON: deep, long, and of one string."""
    most = 8 << 20
    for body in (b'{"indices":[' + b"1," * ((most - 20) // 2) + b"1]}", b'{"x":"' + b"y" * (most - 8) + b'"}',
                 b'{"indices":[' + b'{"a":[' * ((most - 20) // 6), b" " * most):
        for _ in range(2):
            assert srv.post("/datasets/one/rows:batchGet", body, timeout=60).status in (400, 422, 503)
    assert srv.post("/datasets/one/rows:batchGet", {"indices": [0] * 60000}, timeout=60).status == 200


# shows: security.md rows-bad-requests
def test_repeats_of_a_row_of_16_kib(srv, tmp_path, start):
    """65,536 times one row: a gigabyte that nobody holds in memory."""
    row = b"q" * 16384
    write(tmp_path, {"datasets/r/a.jsonl": b"1\n" + row + b"\n"})
    s = start(tmp_path)
    wait_index(s, "r")
    before = s.anon_bytes()
    with s.conn(timeout=60) as c:
        body = struct.pack("<65536Q", *([1] * 65536))
        c.send(request_bytes("/datasets/r/rows:batchGet", {**PACKED, "Content-Length": str(len(body))}, "POST") + body)
        head = c.read_head("batch")
        assert head.status == 200 and head.length == 8 + 65537 * 8 + 65536 * 16384, head
        table = c.read_exact(8 + 65537 * 8, head)
        assert table == struct.pack("<65538Q", 65536, *range(0, 65537 * 16384, 16384))
        for _ in range(64):
            assert c.read_exact(16384 * 16, head) == row * 16
        assert s.anon_bytes() - before < (100 << 20) * (4 if is_sanitized(s.binary) else 1)
    s.wait_for(lambda: s.post("/datasets/r/rows:batchGet", {"indices": [0]}).body == frame([b"1"]), "it answers")


# ------------------------------------------------------------------------------------- other ways to the files

def test_pages_and_other_interfaces(srv, contents):
    for id in ("org/mixed", "one"):
        page = srv.get(f"/datasets/{id}", BROWSER)
        assert page.status == 200 and page.get("Content-Type").startswith("text/html") and page.get(
            "Vary") == "Accept, X-Forwarded-Proto", page
        assert srv.get(f"/datasets/{id}").get("Vary") == "Accept"
    assert b'href="/datasets/org/mixed/resolve/main/"' in srv.get("/datasets/org/mixed", BROWSER).body
    missing = srv.get("/datasets/none", BROWSER)
    assert missing.status == 404 and missing.get("Content-Type").startswith("text/html"), missing
    assert srv.get("/datasets/one/rows/0", BROWSER).body == rows_of(contents, "one")[0]
    assert srv.get("/datasets/one/rows?count=1", BROWSER).status == 200
    data = contents["datasets/plain"]["data/train-00000-of-00004.jsonl"]
    assert srv.get("/datasets/plain/resolve/main/data/train-00000-of-00004.jsonl").body == data
    assert srv.get("/datasets/local/plain/resolve/main/data/train-00000-of-00004.jsonl").body == data
    tree = srv.json("/api/datasets/plain/tree/main?recursive=true")
    assert [t["path"] for t in tree if t["type"] == "file"] == sorted(contents["datasets/plain"])
    ids = {d["id"] for d in srv.json("/api/datasets")}
    assert {"org/mixed", "org/large", "local/plain"} <= ids and "plain/data" not in ids
    assert all(not m["id"].startswith("datasets") for m in srv.json("/models")["models"])


def test_the_s3_port(root, contents, start):
    s = start(root, "--s3-listen", "127.0.0.1:0")
    import re
    port = int(s.wait_for(lambda: re.search(r"S3.* http://127.0.0.1:(\d+)|http://127.0.0.1:(\d+).*S3", s.stderr()),
                          "the S3 port").group(1) or 0)
    with Conn(port) as c:
        r = c.request("/datasets/org/edges/a.jsonl")
        assert r.status == 200 and r.body == contents["datasets/org/edges"]["a.jsonl"], r


# ------------------------------------------------------------------------------------------------ the index

@pytest.mark.parametrize("workers", ["0", "1"])
# shows: security.md rows-indexing
def test_while_the_index_is_made(place, start, workers):
    files = {"datasets/s/train.jsonl": b"1\n2\n" * 300_000, "datasets/s/test.jsonl": b"3\n"}
    write(place / "source", files)
    with stuck_disk(place) as (mount_point, hold):
        hold.touch()
        s = start(mount_point, "--workers", workers)
        try:
            split = split_of(s, "s")
            assert split["index"]["state"] == "building" and split["rows"] is None and split["fingerprint"] is None
            assert split["files"] == [{"path": "train.jsonl", "nbytes": 1_200_000, "rows": None}]
            with s.conn() as c:
                for target in ("rows?split=train", "rows/0?split=train", "rows?split=train&order=shuffle"):
                    check_error(c.request(f"/datasets/s/{target}"), 503, "the index of split", "0 of 1200000 bytes")
            check_error(s.post("/datasets/s/rows:batchGet", {"split": "train", "indices": [0]}), 503, "try again")
            assert s.get("/readyz").status == 200
        finally:
            hold.unlink()
        wait_index(s, "s")
        assert s.get("/datasets/s/rows?split=train&count=600000&format=raw").body == files["datasets/s/train.jsonl"]
        assert split_of(s, "s")["index"]["done_bytes"] == 1_200_000


# shows: security.md rows-indexing
def test_stopping_while_the_index_is_made(tmp_path, start):
    """A sparse file of 200 GB: progress is shown, and the server does not wait for it."""
    (tmp_path / "datasets/big").mkdir(parents=True)
    with open(tmp_path / "datasets/big/a.jsonl", "wb") as f:
        f.truncate(200 << 30)
    write(tmp_path, {"datasets/small/a.jsonl": b"1\n"})
    s = start(tmp_path)
    wait_index(s, "small")  # small ones first
    first = s.wait_for(lambda: split_of(s, "big")["index"]["done_bytes"], "the first bytes are done")
    s.wait_for(lambda: split_of(s, "big")["index"]["done_bytes"] > first, "more are done")
    check_error(s.get("/datasets/big/rows/0"), 503, f"of {200 << 30} bytes are done")
    begun = time.monotonic()
    s.stop()
    assert time.monotonic() - begun < 10


def test_single_rows_in_a_shared_thread(start, root, contents):
    rows = rows_of(contents, "datasets/org/mixed")
    s = start(root, "--workers", "1")
    wait_index(s, "org/mixed")
    with s.conn() as c:
        assert c.request("/datasets").status == 200  # a connection of the shared lane
        for i in range(0, len(rows), 7):
            assert c.request(f"/datasets/org/mixed/rows/{i}").body == rows[i]
        check_rows(c.request("/datasets/org/mixed/rows?count=1000"), rows[:1000], 0, len(rows))
        r = c.request("/datasets/org/mixed/rows:batchGet", method="POST", body=b'{"indices":[5,3]}')
        assert r.body == frame([rows[5], rows[3]])
        jobs = metric(s, "tensord_http_jobs_total")
        for i in range(50):
            assert c.request(f"/datasets/org/mixed/rows/{i}").body == rows[i]
        assert metric(s, "tensord_http_jobs_total") <= jobs + 5  # what is mapped and in memory takes none


def test_a_restart_reads_nothing(tmp_path, contents):
    root, state = tmp_path / "root", tmp_path / "state"
    files = {f"datasets/org/mixed/{k}": v for k, v in contents["datasets/org/mixed"].items()}
    write(root, files)
    size = sum(map(len, files.values()))
    rows = rows_of(contents, "datasets/org/mixed")
    seen = []
    for expected in (size, 0, 0):
        with Server(root, "--state-dir", state, hash_threads=0) as s:
            wait_index(s, "org/mixed")
            assert metric(s, "tensord_row_index_read_bytes_total") == expected
            assert metric(s, "tensord_row_index_ready_files") == metric(s, "tensord_row_index_files") == len(files)
            assert metric(s, "tensord_row_index_rows") == len(rows)
            check_rows(s.get("/datasets/org/mixed/rows?count=1000"), rows, 0, len(rows))
            seen.append(split_of(s, "org/mixed"))
    assert seen[0] == seen[1] == seen[2]
    for file in (state / "rows").iterdir():  # damaged: made again
        file.write_bytes(file.read_bytes()[:-1])
    with Server(root, "--state-dir", state, hash_threads=0) as s:
        wait_index(s, "org/mixed")
        assert metric(s, "tensord_row_index_read_bytes_total") == size
        assert split_of(s, "org/mixed") == seen[0]


def test_copies_have_equal_fingerprints(srv, start, root, tmp_path):
    shutil.copytree(root / "datasets/org/mixed", tmp_path / "elsewhere/copy")
    age(tmp_path)
    s = start(tmp_path)
    wait_index(s, "elsewhere/copy")
    want = split_of(srv, "org/mixed")["fingerprint"]
    assert split_of(s, "elsewhere/copy")["fingerprint"] == want
    r = s.get(f"/datasets/elsewhere/copy/rows?fingerprint={want}")
    assert r.status == 200 and r.body == srv.get("/datasets/org/mixed/rows").body


# ----------------------------------------------------------------------------------------- files that change

@pytest.mark.parametrize("change", ["replace", "append", "truncate", "overwrite", "remove"])
@pytest.mark.parametrize("leases", ["on", "off"])
# shows: security.md rows-file-changes rows-fingerprint
def test_a_file_changes(tmp_path, start, change, leases):
    """Every answer is of one version; after the next scan it is the new one."""
    root = tmp_path / "root"
    old = b"".join(b"old %d\n" % i for i in range(2000))
    new = {"replace": b"".join(b"NEW %d\n" % i for i in range(1500)), "append": old + b"appended\n" * 10, "truncate":
           old[:5000], "overwrite": old.replace(b"old", b"NEW"), "remove": None}[change]
    write(root, {"datasets/c/a.jsonl": old, "datasets/c/b.jsonl": b"b\n"})
    path = root / "datasets/c/a.jsonl"
    s = start(root, "--leases", leases, rescan="0.2")
    wait_index(s, "c")
    fingerprint = split_of(s, "c")["fingerprint"]
    versions = [lines(split_rows(old) + [b"b"]), lines(split_rows(new or b"") + [b"b"])]
    stop, faults, statuses = threading.Event(), [], set()

    def ask():
        while not stop.is_set():
            for target in ("rows?count=9000&format=raw", "rows?count=9000&format=raw&shard=0/1"):
                try:
                    r = s.get(f"/datasets/c/{target}")
                except (Incomplete, ConnectionError):
                    statuses.add("cut")
                    continue
                statuses.add(r.status)
                if r.status not in (200, 503) or (r.status == 200 and r.body not in versions):
                    faults.append(r)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.1)
    if change == "replace":
        (tmp_path / "new").write_bytes(new)
        os.replace(tmp_path / "new", path)
    elif change == "append":
        with open(path, "ab") as f:
            f.write(b"appended\n" * 10)
    elif change == "truncate":
        os.truncate(path, 5000)
    elif change == "overwrite":
        with open(path, "r+b") as f:
            f.write(new)
    else:
        path.unlink()

    def is_new():
        r = s.get("/datasets/c/rows?count=9000&format=raw")
        return r.status == 200 and r.body == versions[1]

    s.wait_for(is_new, "the new rows", 30)
    stop.set()
    thread.join()
    assert not faults, faults[0]
    assert 200 in statuses
    assert split_of(s, "c")["fingerprint"] != fingerprint
    check_error(s.get(f"/datasets/c/rows?fingerprint={fingerprint}"), 412, "has changed")
    check_error(s.get(f"/datasets/c/rows/0?fingerprint={fingerprint}"), 412)
    check_error(s.post(f"/datasets/c/rows:batchGet?fingerprint={fingerprint}", {"indices": [0]}), 412)


@pytest.mark.parametrize("leases", ["on", "off"])
# shows: security.md rows-file-changes
def test_a_file_changes_while_its_rows_are_sent(tmp_path, start, leases):
    """Long rows are sent from the file: the answer is whole and of the old version, or cut."""
    row = b"r" * 1_000_000
    write(tmp_path / "root", {"datasets/c/a.jsonl": (row + b"\n") * 60})
    s = start(tmp_path / "root", "--leases", leases, rescan="0.2")
    wait_index(s, "c")
    for target in ("rows?count=60", "rows?count=60&format=raw", "rows?order=shuffle&count=60", "rows/5"):
        t = Transfer(s, f"/datasets/c/{target}", rcvbuf=4096)
        t.read(1000)
        writer = threading.Thread(target=lambda: (tmp_path / "root/datasets/c/a.jsonl").open("r+b").write(b"X" * 999))
        writer.start()
        whole, got = t.finish()
        writer.join()
        assert b"X" not in got and got.endswith(row[:10]) or not whole, target
        (tmp_path / "again").write_bytes((row + b"\n") * 60)
        os.replace(tmp_path / "again", tmp_path / "root/datasets/c/a.jsonl")
        s.wait_for(lambda: s.get("/datasets/c/rows/59", {"Range": "bytes=0-0"}).status == 206, "the file is back", 30)


# -------------------------------------------------------------------------------------------------- memory

# shows: security.md rows-slow-readers
def test_many_slow_readers_stay_within_the_budget(tmp_path):
    """200 connections of one address ask for 65,536 rows each and read slowly: they get an answer or 503, and the
    memory of all of them is bounded by 128 MiB and what each connection has. Another address gets its rows."""
    write(tmp_path, {"datasets/m/a.jsonl": b"".join(b'{"number": %d, "text": "%s"}\r\n' % (i, b"x" * (i % 90))
                                                    for i in range(100_000))})
    raise_open_files(4096)
    with Server(tmp_path, binary=release_binary(), hash_threads=0) as s, contextlib.ExitStack() as stack:
        wait_index(s, "m")
        before = s.anon_bytes()
        conns = []
        for i in range(200):
            c = stack.enter_context(s.conn(source="127.0.0.2", rcvbuf=4096, timeout=120))
            c.send(request_bytes(f"/datasets/m/rows?order=shuffle&seed={i}&count=65536"))
            conns.append(c)
        heads = [c.read_head("rows") for c in conns]
        statuses = {h.status for h in heads}
        assert statuses == {200, 503}, statuses
        c, refused = next((c, h) for c, h in zip(conns, heads) if h.status == 503)
        message = json.loads(c.read_exact(refused.length, refused))["error"]["message"]
        assert "for your address" in message and "128 MiB" in message and "try again" in message, message
        assert len(s.get("/datasets/m/rows?order=shuffle&count=65536").body) > 65536
        assert s.anon_bytes() - before < (128 + 100) << 20, f"{(s.anon_bytes() - before) >> 20} MiB, {statuses}"
        for c, head in list(zip(conns, heads))[::40]:
            if head.status == 200:
                assert c.read_exact(8, head) == struct.pack("<Q", 65536)
        stack.close()
        s.wait_for(lambda: s.get("/datasets/m/rows?order=shuffle&count=65536").status == 200, "the memory is free")


# shows: security.md rows-many-files
def test_an_answer_from_many_files(tmp_path, start):
    """An answer opens the files of its rows, at most 4,096, and gives them back."""
    want = [b"%d" % i * (1 if i % 2 else 4200) for i in range(4100)]
    write(tmp_path, {f"datasets/i/{i:05}.png": data for i, data in enumerate(want)})
    s = start(tmp_path, "--max-maps", "64")
    check_rows(s.get("/datasets/i/rows?start=3&count=4096", timeout=60), want[3:4099], 3, 4100)
    for query in ("count=4097", "count=4097&format=raw", "order=shuffle&count=4100"):
        check_error(s.get(f"/datasets/i/rows?{query}", timeout=60), 400, "more than 4096 files; ask for fewer at once")
    r = s.post("/datasets/i/rows:batchGet", {"indices": [*range(4096), 0, 4095]}, timeout=60)
    assert r.body == frame(want[:4096] + [want[0], want[4095]])
    check_error(s.post("/datasets/i/rows:batchGet", {"indices": list(range(4097))}, timeout=60), 400, "4096 files")
    s.wait_for(lambda: len(s.fds()) < 200, "the files are closed")
    with s.conn(rcvbuf=4096, timeout=60) as slow:  # a client that does not read keeps no file open: rows are copies
        slow.send(b"GET /datasets/i/rows?count=4096 HTTP/1.1\r\nHost: x\r\n\r\n")
        slow.fill(100)
        assert len(s.fds()) < 200


# shows: security.md rows-many-files
def test_too_few_descriptors(tmp_path, start):
    """Where the process may open few files, answers from more of them are 503, and others continue."""
    write(tmp_path, {f"datasets/i/{i:05}.png": b"%d" % i for i in range(600)})
    s = start(tmp_path, "--max-maps", "64", "--max-connections", "64", nofile=400)
    check_error(s.get("/datasets/i/rows?count=600"), 503, "Too many open files")
    for i in range(0, 600, 100):
        check_rows(s.get(f"/datasets/i/rows?start={i}&count=100"), [b"%d" % k for k in range(i, i + 100)], i, 600)


def test_json_of_large_descriptions(tmp_path, start):
    """At most 1,000 files of a split are listed, from file_start on."""
    write(tmp_path, {f"datasets/f/{i:04}.jsonl": b"%d\n" % i for i in range(1100)})
    s = start(tmp_path)
    wait_index(s, "f")
    split = split_of(s, "f")
    assert split["file_count"] == 1100 and len(split["files"]) == 1000 and split["rows"] == 1100
    assert numbers(s.get("/datasets/f/rows?count=2000&format=raw")) == list(range(1100))
    assert json.dumps(split["files"][:1]) == json.dumps([{"path": "0000.jsonl", "nbytes": 2, "rows": 1}])
    for first, listed in ((1, 1000), (100, 1000), (101, 999), (1099, 1), (1100, 0), (2**64 - 1, 0)):
        found = s.json(f"/datasets/f?file_start={first}")["splits"][0]
        names = [f"{i:04}.jsonl" for i in range(first, min(first + 1000, 1100))]
        assert [file["path"] for file in found["files"]] == names and len(names) == listed
        assert found["file_count"] == 1100 and found["fingerprint"] == split["fingerprint"]
    for text in ("", "-1", "x", str(2**64)):
        check_error(s.get(f"/datasets/f?file_start={text}"), 400, "file_start must be a whole number")


def sparse(path, size):
    """A file that is one row of zeros and takes no room on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.truncate(size)


def test_a_huge_file_holds_up_no_other(tmp_path, start):
    """Short files are indexed beside it, and nobody reads it on once it is gone."""
    sparse(tmp_path / "datasets/huge/a.jsonl", 1 << 42)
    s = start(tmp_path, "--hash-threads", "0")
    s.wait_for(lambda: split_of(s, "huge")["index"]["done_bytes"] > 0, "the huge file is being read")
    write(tmp_path, {"datasets/small/a.jsonl": b"{}\n"})
    assert s.post("/rescan", b"").status == 200
    wait_index(s, "small", timeout=60)
    (tmp_path / "datasets/huge/a.jsonl").unlink()
    assert s.post("/rescan", b"").status == 200
    s.wait_for(lambda: not any("huge/a.jsonl" in path for path in s.fds().values()), "the deleted file is closed",
               timeout=30)


def cpu_ticks(s):
    fields = open(f"/proc/{s.proc.pid}/stat").read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_work_for_a_client_that_is_gone_ends(tmp_path, start):
    """Rows that take hours to find: the client's end ends the search, and so does a stop."""
    sparse(tmp_path / "datasets/long/a.jsonl", 256 << 20)   # read for each of 30,000 rows
    write(tmp_path, {"datasets/long/b.jsonl": b"1\n2\n"})
    s = start(tmp_path, "--drain-timeout", "2")
    wait_index(s, "long", timeout=120)
    body = struct.pack("<60000Q", *[i % 2 for i in range(60000)])
    with s.conn(timeout=60) as c:
        c.send(b"POST /datasets/long/rows:batchGet HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
               b"Content-Length: %d\r\n\r\n" % len(body) + body)
        before = cpu_ticks(s)
        s.wait_for(lambda: cpu_ticks(s) - before > 20, "the search has begun", timeout=30)
        assert s.get("/healthz").status == 200
    s.wait_for(lambda: (lambda at: (time.sleep(0.5), cpu_ticks(s) - at)[1] < 10)(cpu_ticks(s)), "the search has ended",
               timeout=30)


def test_a_long_row_holds_up_no_worker(tmp_path, start):
    """A row of 1 GiB is looked for by a thread of its own."""
    sparse(tmp_path / "datasets/long/a.jsonl", 1 << 30)
    s = start(tmp_path, "--workers", "1")
    wait_index(s, "long", timeout=120)
    with s.conn(timeout=60) as c:
        c.send(b"GET /datasets/long/rows/0 HTTP/1.1\r\nHost: x\r\nRange: bytes=0-0\r\n\r\n")
        time.sleep(0.05)
        began = time.monotonic()
        assert s.get("/version", {"Range": "bytes=0-1"}).status == 206
        quick = time.monotonic() - began
        c.fill()
        assert quick < (time.monotonic() - began) / 2 + 0.2


def test_more_rows_than_numbers(tmp_path, start):
    """Rows of no bytes may be any number; their sum has to have 64 bits, and so have sizes in the table."""
    for i, rows in enumerate((2**63 - 1, 2**63 - 1, 2**62)):
        header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d, 0), }" % rows
        header += b" " * (-(len(header) + 11) % 64) + b"\n"
        write(tmp_path, {f"datasets/n/{i}.npy": b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header})
    s = start(tmp_path)
    wait_index(s, "n")
    for path in ("rows", "rows/0", "index", "rows?order=shuffle"):
        check_error(s.get(f"/datasets/n/{path}"), 422, "more rows than can be numbered")
