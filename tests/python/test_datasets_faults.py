"""Datasets when something fails: answers that are cut, stalled, damaged or of another version, an index that is being
built, several servers, tokens. The faults are made by a server in this process."""
import json
import os
import random
import signal
import struct
import threading
import time

import fake_datasets
import numpy
import pytest
from fake_datasets import FakeServer, Refused, Split
from torch.utils.data import BatchSampler

import tensord

QUIET = {"progress": False, "retry_for": 2.0, "stall_timeout": 1.0}
ROWS = [json.dumps({"id": number, "text": "x" * (number % 90)}).encode() for number in range(500)]
WANTED = [json.loads(row) for row in ROWS]


@pytest.fixture
def fake():
    servers = []

    def start(datasets=None, **how):
        servers.append(FakeServer(datasets or {"d": {"train": Split(ROWS)}}, **how))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def of_rows(change):
    """Return a change of answers with rows alone, which gets their number from 0 on."""
    count = [0]

    def made(answer):
        if "/rows" in answer["path"] and answer["status"] < 300:
            count[0] += 1
            change(answer, count[0] - 1)
    return made


@pytest.mark.parametrize("at, stall", [(0, False), (1, True), (8, False), (100, False), (4016, False), (4017, True),
                                       (9000, False), (-1, False)])
def test_answers_that_are_cut(fake, at, stall):
    def change(answer, number):
        if number == 0:
            answer["cut"], answer["stall"] = at % len(answer["body"]), stall

    backwards = range(499, -1, -1)
    for read in (lambda d: d[:], lambda d: d.__getitems__(backwards)[::-1], lambda d: [d[k] for k in range(5)]):
        server = fake(change=of_rows(change))
        found = read(tensord.Dataset(server.url("d"), **QUIET))
        assert found == WANTED[: len(found)]


def test_the_rest_alone_is_asked_for(fake):
    """After cuts, GET resumes by ranges; a list asks for the rows that had not arrived."""
    sent = []

    def change(answer, number):
        sent.append(len(answer["body"]))
        if number < 3:
            answer["cut"] = len(answer["body"]) * 3 // 4

    server = fake(change=of_rows(change))
    dataset = tensord.Dataset(server.url("d"), **QUIET)
    assert dataset[:] == WANTED
    assert len(sent) == 4 and sent[1] == sent[0] - sent[0] * 3 // 4 and sent[3] < sent[0] / 50
    sent.clear()
    server.change = of_rows(change)
    assert dataset.__getitems__(range(500, 0, -1)[1:]) == WANTED[:0:-1]
    assert len(sent) == 4 and sent[1] < sent[0] * 0.4 and sent[2] < sent[1] * 0.5


def test_an_answer_of_another_tag_begins_anew(fake):
    def change(answer, number):
        if number == 0:
            answer["cut"] = 5000
        answer["fields"]["ETag"] = f'"{number}"'

    server = fake(change=of_rows(change))
    assert tensord.Dataset(server.url("d"), **QUIET)[:] == WANTED


def damaged(body, how):
    count = struct.unpack_from("<Q", body)[0]
    offsets = list(struct.unpack_from(f"<{count + 1}Q", body, 8))
    area = body[8 * (count + 2) :]
    if how == "count":
        count += 1
    elif how == "huge":
        count = 2**63
    elif how == "short":
        area = area[:-1]
    elif how == "long":
        area += b"x"
    elif how == "falling":
        offsets[3], offsets[4] = offsets[4], offsets[3] - 1
    elif how == "first":
        offsets[0] = 1
    elif how == "beyond":
        offsets[-1] = 2**64 - 1
    elif how == "none":
        return b""
    return struct.pack("<Q", count) + struct.pack(f"<{len(offsets)}Q", *offsets) + area


@pytest.mark.parametrize("how", ["count", "huge", "short", "long", "falling", "first", "beyond", "none"])
def test_damaged_frames(fake, how):
    def change(answer, number):
        answer["body"] = damaged(answer["body"], how)

    dataset = tensord.Dataset(fake(change=of_rows(change)).url("d"), **QUIET)
    for read in (lambda: dataset[:100], lambda: dataset.__getitems__([5, 4, 3, 9])):
        with pytest.raises(tensord.ProtocolError, match="datasets/d/rows"):
            read()


@pytest.mark.parametrize("fields, status", [
    ({"X-Row-Start": "1"}, 200), ({"X-Row-Count": "99"}, 200), ({"X-Row-Count": "x"}, 200), ({}, 204), ({}, 206)])
def test_answers_to_something_else(fake, fields, status):
    def change(answer, number):
        answer["fields"].update(fields)
        answer["status"] = status

    dataset = tensord.Dataset(fake(change=of_rows(change)).url("d"), **QUIET)
    with pytest.raises(tensord.ProtocolError, match="answered"):
        dataset[:100]


def test_promised_sizes_take_no_memory(fake):
    def change(answer):
        if "/rows" in answer["path"]:
            answer["fields"]["Content-Length"] = str(2**62)

    server = fake()
    dataset = tensord.Dataset(server.url("d"), **QUIET)
    server.change = change
    with pytest.raises(tensord.ProtocolError, match="Content-Length|content-length"):
        dataset[:10]


def test_a_server_that_never_ends_is_given_up(fake):
    """Answers that are cut at the same place each time, with another tag, so that each begins again."""
    def change(answer, number):
        answer["cut"], answer["fields"]["ETag"] = 5000, f'"{number}"'

    began = time.monotonic()
    with pytest.raises(tensord.ConnectError, match="gave up after"):
        tensord.Dataset(fake(change=of_rows(change)).url("d"), **QUIET)[:]
    assert time.monotonic() - began < 10


# ---- versions

def test_a_dataset_that_changes(fake):
    server = fake()
    dataset = tensord.Dataset(server.url("d"), **QUIET)
    sampler = tensord.ShuffleSampler(dataset)
    state, old = sampler.state_dict(), dataset.fingerprint
    assert dataset[3] == WANTED[3]
    server.datasets["d"]["train"] = Split(ROWS[::-1])
    for read in (lambda: dataset[3], lambda: dataset[:], lambda: dataset.__getitems__([1, 2]), lambda: list(dataset),
                 lambda: dataset.shuffled(0, 5), lambda: list(tensord.IterableDataset(dataset, shuffle=True))):
        with pytest.raises(tensord.DatasetChanged, match="split train of d changed on the server after it was opened; "
                                                         "nothing of the new version was used: open it again"):
            read()
    again = tensord.Dataset(server.url("d"), **QUIET)
    assert again[0] == WANTED[-1] and again.fingerprint != old
    with pytest.raises(tensord.DatasetChanged, match=f"fingerprint {old}, this one has {again.fingerprint}"):
        tensord.ShuffleSampler(again).load_state_dict(state)


def test_every_request_names_the_fingerprint(fake):
    server = fake()
    dataset = tensord.Dataset(server.url("d"), **QUIET)
    dataset[1], dataset[:], dataset.__getitems__([2, 1]), list(dataset), dataset.shuffled(0, 3)
    asked = [target for _, target in server.requests if "/rows" in target]
    assert len(asked) == 5 and all(f"fingerprint={dataset.fingerprint}" in target for target in asked)


# ---- an index that is being built

def test_waits_for_the_index(fake, capfd):
    split = Split(ROWS, state="building")
    server = fake({"d": {"train": split}})

    def build():
        for done in range(4):
            time.sleep(0.4)
            split.done_bytes = split.nbytes * done // 4
        split.state = "ready"

    builder = threading.Thread(target=build)
    builder.start()
    dataset = tensord.Dataset(server.url("d"), retry_for=1.0, progress=True)
    builder.join()
    assert dataset[:] == WANTED and "index of d" in capfd.readouterr().err


def test_an_index_that_stands_still(fake):
    split = Split(ROWS, state="building", done_bytes=77)
    server = fake({"d": {"train": split}})
    began = time.monotonic()
    with pytest.raises(tensord.ConnectError, match=r"index of split train of d is being built, and stands at 77 of \d+ "
                                                   r"bytes for \d s \(retry_for=1\)"):
        tensord.Dataset(server.url("d"), progress=False, retry_for=1)
    assert 1 < time.monotonic() - began < 5


def test_an_index_that_cannot_be_built(fake):
    split = Split(ROWS, state="failed", files=[{"path": "a.jsonl", "nbytes": 3, "rows": None, "error": "a hole"}])
    with pytest.raises(tensord.TensordError, match="index of split train of d cannot be built: a.jsonl: a hole"):
        tensord.Dataset(fake({"d": {"train": split}}).url("d"), **QUIET)


def test_an_index_that_is_built_again(fake):
    """503 with Retry-After in the middle, as after a restart of the server."""
    until = [0.0]

    def before(handler, path, query):
        if "/rows" in path and time.monotonic() < until[0]:
            raise Refused(503, "the index is being built", Retry_After=1)

    dataset = tensord.Dataset(fake(before=before).url("d"), progress=False, retry_for=5)
    until[0] = time.monotonic() + 1.5
    assert dataset[:] == WANTED
    until[0] = time.monotonic() + 60
    dataset.session.options.__dict__["retry_for"] = 1.0
    with pytest.raises(tensord.AnswerError, match="503: the index is being built; gave up after") as caught:
        dataset[0]
    assert caught.value.status == 503


def test_rows_that_cannot_be_cut(fake):
    split = Split(ROWS, "litdata", reason="the chunks are compressed")
    dataset = tensord.Dataset(fake({"d": {"train": split}}).url("d"), **QUIET)
    assert len(dataset) == 500 and dataset.split_info.reason == "the chunks are compressed"
    with pytest.raises(tensord.TensordError, match="the chunks are compressed"):
        dataset[0]


def test_files_of_parquet_that_are_not_described(fake):
    """Parquet is read from its files: a description without them, or with others, is refused."""
    files = [{"path": "a.parquet", "nbytes": 9, "rows": 400}, {"path": "b.parquet", "nbytes": 9, "rows": 99}]
    for described in ([], files):
        server = fake({"d": {"train": Split(ROWS, "parquet", reason="compressed", files=described)}})
        with pytest.raises(tensord.ProtocolError, match="describes files that do not have 500 rows"):
            tensord.Dataset(server.url("d"), **QUIET)


def table_of(names, numbers, dtype="U32", shape=None, offsets=None, size=None):
    data = numpy.array(numbers, "<u4").tobytes()
    header = json.dumps({"__metadata__": {"files": names if type(names) is str else json.dumps(names)},
                         "file": {"dtype": dtype, "shape": [len(numbers)] if shape is None else shape,
                                  "data_offsets": [0, len(data)] if offsets is None else offsets}}).encode()
    return struct.pack("<Q", len(header) if size is None else size) + header + data


def test_tables_of_places(fake):
    server = fake({"d": {"train": Split(ROWS[:3])}})
    server.index = table_of(["a", "b"], [0, 1, 1])
    assert tensord.Dataset(server.url("d"), **QUIET).paths([2, 0]) == ["b", "a"]


@pytest.mark.parametrize("table", [
    b"", b"1234567", struct.pack("<Q", 2**62), table_of(["a"], [0, 0, 1]), table_of(["a"], [0, 0]), table_of(["a", 5],
    [0, 0, 0]), table_of("[", [0] * 3), table_of(["a"], [0] * 3, dtype="U64"), table_of(["a"], [0] * 3, shape=[4]),
    table_of(["a"], [0] * 3, offsets=[-4, 8]), table_of(["a"], [0] * 3, offsets=[4, 16]),
    table_of(["a"], [0] * 3, offsets=[0, 8]), table_of(["a"], [0] * 3, size=5), table_of(["a"], [0] * 3, size=2**40),
    table_of("[" * 100000, [0] * 3), table_of(["a"], [0] * 3, offsets=None, shape="3"),
    table_of(["a"], [0] * 3, offsets=["0", "12"])])
def test_hostile_tables_of_places(fake, table):
    server = fake({"d": {"train": Split(ROWS[:3])}})
    server.index = table
    with pytest.raises(tensord.ProtocolError, match="/datasets/d/index"):
        tensord.Dataset(server.url("d"), **QUIET).paths()


# ---- rows that are read ahead

def posts(server):
    return sum(method == "POST" for method, _ in server.requests)


def until(true):
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_the_next_batch_is_read_while_one_is_used(fake):
    server = fake()
    dataset = tensord.Dataset(server.url("d"), **QUIET)
    sampler = tensord.ShuffleSampler(dataset, seed=4)
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        before, order, used = posts(server), [], 0
        for batch in BatchSampler(sampler, 64, drop_last=False):
            assert dataset.__getitems__(batch) == [WANTED[number] for number in batch]
            order += batch
            used += 1
            until(lambda: posts(server) == before + min(used + 1, 8))
        assert order == list(sampler) and sorted(order) == list(range(500))
    time.sleep(0.1)
    assert posts(server) == 16  # each batch once


def test_batches_that_were_not_expected(fake):
    """A loop may skip, repeat, or mix in rows of its own: what was read ahead for another list is not used."""
    server = fake()
    dataset = tensord.Dataset(server.url("d"), **QUIET)
    walk = iter(tensord.ShuffleSampler(dataset, seed=4))
    batches = [[next(walk) for _ in range(50)] for _ in range(3)]
    for batch in (batches[2], batches[0], batches[2], [5, 5, 1], batches[2], batches[2]):
        assert dataset.__getitems__(batch) == [WANTED[number] for number in batch]
    fourth = [next(walk) for _ in range(50)]
    assert dataset.__getitems__(fourth) == [WANTED[number] for number in fourth]
    assert [dataset.__getitems__([number])[0] for number in walk] == [
        WANTED[number] for number in list(tensord.ShuffleSampler(dataset, seed=4))[200:]]


def test_a_fault_of_a_batch_that_is_read_ahead_is_raised_in_its_turn(fake):
    split = Split(ROWS)
    server = fake({"d": {"train": split}})
    dataset = tensord.Dataset(server.url("d"), **QUIET)
    walk = iter(tensord.ShuffleSampler(dataset, seed=4))
    first, second = ([next(walk) for _ in range(50)] for _ in range(2))
    walk = iter(tensord.ShuffleSampler(dataset, seed=4))
    assert [next(walk) for _ in range(50)] == first
    server.before = lambda *_: setattr(split, "rows", ROWS[::-1]) if posts(server) == 2 else None
    assert dataset.__getitems__(first) == [WANTED[number] for number in first]
    until(lambda: posts(server) == 2)
    with pytest.raises(tensord.DatasetChanged, match="changed on the server"):
        dataset.__getitems__(second)


# ---- descriptions

@pytest.mark.parametrize("change", [
    {"rows": -1}, {"rows": "5"}, {"rows": 2**63}, {"rows": None}, {"fingerprint": None}, {"fingerprint": "a b\r\n"},
    {"fingerprint": 7}, {"nbytes": None}, {"columns": [{}]}, {"columns": 5}, {"index": None}, {"index": {}},
    {"name": ""}, {"name": None}, {"files": [{"path": 1, "nbytes": 1}]}, {"reason": 5}])
def test_hostile_descriptions(fake, change):
    def made(answer):
        about = json.loads(answer["body"])
        about["splits"][0].update(change)
        answer["body"] = json.dumps(about).encode()

    with pytest.raises(tensord.ProtocolError):
        tensord.Dataset(fake(change=made).url("d"), **QUIET)


@pytest.mark.parametrize("body", [
    b"[]", b"{}", b'{"splits": 5}', b'{"splits": [5], "id": "d"}', b'{"id": "e", "splits": []}', b"nothing",
    b'{"datasets": [{"id": "../x", "splits": []}]}', b'{"datasets": [{"id": "x"}]}',
    b'{"datasets": [], "next_page_token": "1"}'])
def test_hostile_answers(fake, body):
    server = fake(change=lambda answer: answer.update(body=body))
    with pytest.raises(tensord.ProtocolError):
        tensord.Dataset(server.url("d"), **QUIET)
    with pytest.raises(tensord.ProtocolError):
        tensord.connect(server.url("d"), **QUIET).datasets()


def test_lists_in_pages(fake):
    server = fake({f"d{number:04}": {"train": Split(ROWS[:1])} for number in range(2500)})
    assert [one["id"] for one in tensord.connect(server.url("d0"), **QUIET).datasets()] == sorted(server.datasets)
    assert len(server.requests) == 3


# ---- several servers, tokens, interrupts

def test_another_server_goes_on(fake):
    """One server cuts and refuses, another one has another version, a third nobody listens to: one that works is
    enough."""
    def change(answer, number):
        answer["cut"] = len(answer["body"]) // 2 if number % 2 else 0

    bad, good = fake(change=of_rows(change)), fake()
    other = fake({"d": {"train": Split(ROWS[:400])}})
    hosts = [f"127.0.0.1:{one.port}" for one in (bad, good)] + ["127.0.0.1:9"]
    for turn in range(3):
        url = f"tensord://{','.join(hosts[turn:] + hosts[:turn])}/datasets/d"
        dataset = tensord.Dataset(url, progress=False, retry_for=10)
        assert dataset[:] == WANTED and dataset[9] == WANTED[9]
        assert dataset.__getitems__([4, 2]) == [WANTED[4], WANTED[2]]
    dataset = tensord.Dataset(f"{good.url('d')},{other.url('d')}", **QUIET)
    for number in range(6):
        dataset.session._preferred = dataset.session.endpoints[number % 2]
        assert dataset[number] == WANTED[number] and dataset[:] == WANTED
    good.datasets.clear()  # now each server has something else
    with pytest.raises((tensord.DatasetChanged, tensord.NotFoundError)):
        dataset[0]


def test_a_server_that_works_is_kept(fake):
    """Requests do not begin with a server that was found broken."""
    broken, good = fake(), fake()
    dataset = tensord.Dataset(f"{good.url('d')},{broken.url('d')}", **QUIET)
    broken.stop()
    broken.requests.clear()
    taken, take = [], dataset.session.pool.take
    dataset.session.pool.take = lambda endpoint, fresh=False: taken.append(endpoint) or take(endpoint, fresh)
    began = time.monotonic()
    for number in range(100):
        assert dataset[number] == WANTED[number]
    assert time.monotonic() - began < 5
    assert sum(endpoint.port == broken.port for endpoint in taken) <= 1


def test_tokens(fake, monkeypatch):
    server = fake(token="secret")
    with pytest.raises(tensord.AnswerError, match="401: a token is needed; give a token by token= or TENSORD_TOKEN"):
        tensord.Dataset(server.url("d"), **QUIET)
    assert tensord.Dataset(server.url("d"), token="secret", **QUIET).__getitems__([3]) == [WANTED[3]]
    assert "secret" not in repr(tensord.Dataset(server.url("d"), token="secret", **QUIET))
    monkeypatch.setenv("TENSORD_TOKEN", "secret")
    assert tensord.Dataset(server.url("d"), **QUIET)[3] == WANTED[3]


def test_an_interrupt_ends_a_read_at_once(fake):
    def change(answer, number):
        answer["cut"], answer["stall"] = 10, True

    dataset = tensord.Dataset(fake(change=of_rows(change)).url("d"), progress=False, stall_timeout=20.0)
    dataset.fetcher._row_bytes = 2**18
    for read in (lambda: dataset[:], lambda: list(dataset), lambda: dataset[5],
                 lambda: dataset.__getitems__([1] * 200)):
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            read()
        assert time.monotonic() - began < 3


def test_threads_that_are_left_end(fake):
    """A loop that is left while a server stalls leaves no thread that asks again and again."""
    def change(answer, number):
        answer["cut"] = 10

    server = fake(change=of_rows(change))
    dataset = tensord.Dataset(server.url("d"), progress=False, retry_for=60)
    walk = iter(dataset)
    timer = threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(walk)
    deadline = time.monotonic() + 8
    while any(thread.name == "tensord-rows" for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(thread.name == "tensord-rows" for thread in threading.enumerate())


def test_a_long_run_through_faults(fake):
    """Many batches while every fourth answer is cut somewhere, refused or another one's."""
    rng = random.Random(3)

    def change(answer, number):
        kind = rng.randrange(12)
        if kind == 0:
            answer["cut"] = rng.randrange(len(answer["body"]) + 1)
        elif kind == 1:
            answer.update(status=rng.choice((500, 502, 503)), body=b"busy")
        elif kind == 2:
            answer["body"] = answer["body"][:-1]
            answer["fields"]["ETag"] = '"damaged"'

    dataset = tensord.Dataset(fake(change=of_rows(change)).url("d"), progress=False, retry_for=30)
    order = numpy.random.default_rng(4).integers(0, 500, (150, 20)).tolist()
    for wanted in order:
        assert dataset.__getitems__(wanted) == [WANTED[number] for number in wanted]


def test_the_fake_server_reads_json_too():
    """Requests that only other clients send, so that the fake keeps to the contract."""
    server = FakeServer({"d": {"train": Split(ROWS)}})
    import urllib.request

    body = json.dumps({"split": "train", "indices": [2, 2, 1], "format": "raw"}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/datasets/d/rows:batchGet", body,
                                     {"Content-Type": "application/json"})
    assert urllib.request.urlopen(request).read() == ROWS[2] + b"\n" + ROWS[2] + b"\n" + ROWS[1] + b"\n"
    server.stop()
    assert fake_datasets.Split(ROWS).fingerprint
