"""Server streams of tensord.v1 over HTTP/1.1: ReadTensors, BatchGetRows and StreamRows against REST."""
import json
import os
import struct
import time

import pytest

from harness import Incomplete, Server, age, enc, tensor, write_by_hand
from rpc_kit import Rpc, connect_error, frame
from rpc_stream_kit import KINDS, StreamCall

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def rpc(srv):
    return Rpc(srv)


def joined(messages):
    """The bytes of each tensor, and the description in its first message."""
    data, facts = {}, {}
    for message in messages:
        assert (message.index in data) != message.HasField("tensor"), "described in the first message alone"
        if message.HasField("tensor"):
            facts[message.index] = message.tensor
        data[message.index] = data.get(message.index, b"") + message.data
    assert list(data) == sorted(data)
    return data, facts


# ---- ReadTensors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", KINDS)
def test_tensors_are_those_of_rest(rpc, form):
    """Of each model of the tree, by every protocol and codec: REST's bytes, in frames whose lengths are right."""
    models = [row["id"] for row in rpc.srv.get("/models").json()["models"] if row["id"] != "amb"]
    read = 0
    for model in models if form == "connect" else models[::5]:
        manifest = rpc.srv.get(f"/models/{enc(model)}/tensors?page_size=40")
        if manifest.status != 200:
            continue
        rows = [row for row in manifest.json()["tensors"] if row.get("addressable", True) and row["nbytes"] < MIB]
        if not rows:
            continue
        want = [rpc.srv.get(row["href"]).body for row in rows]
        with StreamCall(rpc, "ReadTensors", {"model": model, "tensors": [{"name": row["name"]} for row in rows]},
                        form) as call:
            assert call.is_chunked == ("grpc" in form and "web" not in form)
            data, facts = joined(call.all())
        assert [data[i] for i in range(len(rows))] == want, model
        for i, row in enumerate(rows):
            assert (facts[i].name, facts[i].dtype, list(facts[i].shape), facts[i].nbytes) == \
                (row["name"], row["dtype"], row["shape"], row["nbytes"])
        read += 1
    assert read > (15 if form == "connect" else 3)


@pytest.mark.parametrize("form", KINDS)
def test_parts_names_and_chunks(start, tmp_path, form):
    size = 5 * MIB + 3
    content = bytes(i * 7 % 251 for i in range(size))
    path = tmp_path / "m/model.safetensors"
    write_by_hand(path, [tensor("w", "U8", (size,)), tensor("x", "F32", (6, 4)), tensor("none", "U8", (0,))])
    rest = Rpc(start(tmp_path))
    content = rest.srv.get("/models/m/tensors/w").body
    items = [{"name": "w"}, {"name": "x", "slice": "1:5,2:3", "as": "part"}, {"name": "none"},
             {"name": "w", "slice": "10:20"}]
    for asked, chunk in ((0, MIB), (1, 4096), (4097, 4097), (2 * MIB + 1, 2 * MIB), (3_000_000_000, 2 * MIB)):
        with StreamCall(rest, "ReadTensors", {"model": "m", "tensors": items, "chunkBytes": asked}, form) as call:
            messages = []
            while (message := call.next()) is not None:
                assert call.size < 4 * MIB, "stock clients take 4 MiB"
                messages.append(message)
            assert call.error is None
        data, facts = joined(messages)
        assert all(len(message.data) <= chunk for message in messages)
        assert len([m for m in messages if m.index == 0]) == -(-size // chunk)
        assert data[0] == content and data[2] == b"" and data[3] == content[10:20]
        assert data[1] == rest.srv.get("/models/m/tensors/x?slice=1:5,2:3").body
        assert (facts[1].name, list(facts[1].shape), facts[1].nbytes) == ("part", [4, 1], 16)


def test_errors_before_the_first_byte(rpc):
    """The code and the message of REST, as the end of the stream."""
    cases = [({"model": "plain"}, "invalid_argument", None),
             ({"model": "no-such", "tensors": [{"name": "x"}]}, "not_found", "/models/no-such/tensors:read"),
             ({"model": "plain", "tensors": [{"name": "nope"}]}, "not_found", "/models/plain/tensors:read"),
             ({"model": "plain", "tensors": [{"name": "model.norm.weight", "slice": "x"}]}, "invalid_argument",
              "/models/plain/tensors:read"),
             ({"model": "plain", "tensors": [{"name": "model.norm.weight"}], "manifest": "x"}, "failed_precondition",
              "/models/plain/tensors:read"),
             ({"model": "", "tensors": [{"name": "x"}]}, "invalid_argument", None)]
    for fields, word, target in cases:
        for form in KINDS:
            with StreamCall(rpc, "ReadTensors", fields, form) as call:
                code, message = call.fails()
            assert code == word, (fields, form, message)
            if target:
                body = {key: value for key, value in fields.items() if key != "model"}
                assert message == rpc.srv.post(target, body).json()["error"]["message"]


def test_a_file_that_shrinks_breaks_the_answer_off(start, tmp_path):
    path = tmp_path / "m/model.safetensors"
    write_by_hand(path, [tensor("w", "U8", (64 * MIB,))])
    rpc = Rpc(start(tmp_path))
    for form in ("connect", "connect json", "grpc"):
        write_by_hand(path, [tensor("w", "U8", (64 * MIB,))])
        rpc.srv.wait_for(lambda: rpc.srv.get("/models/m/tensors/w?slice=0:1").status == 200, "the model is there")
        with StreamCall(rpc, "ReadTensors", {"model": "m", "tensors": [{"name": "w"}]}, form,
                        rcvbuf=1 << 16) as call:
            assert call.next() is not None
            with open(path, "r+b") as file:
                file.truncate(MIB)
            with pytest.raises((Incomplete, AssertionError, ConnectionError)):
                while call.next() is not None:
                    pass
        assert call.error is None and not call.has_ended


# ---- rows -----------------------------------------------------------------------------------------------


def write_rows(root, count, name="train"):
    rows = [json.dumps({"i": i, "text": "x" * (i * 37 % 301)}) for i in range(count)]
    root.mkdir(parents=True, exist_ok=True)
    (root / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    return [row.encode() for row in rows]


@pytest.mark.parametrize("form", KINDS)
def test_rows_in_order(start, tmp_path, form):
    rows = write_rows(tmp_path / "d", 20_000)
    rpc = Rpc(start(tmp_path))
    rpc.srv.wait_for(lambda: rpc.srv.get("/datasets/d/rows?count=1").status == 200, "the rows are found")
    for fields, want in (({}, rows), ({"start": "19990"}, rows[19990:]), ({"start": 5, "count": 7}, rows[5:12]),
                         ({"count": 0}, []), ({"start": 20000}, []), ({"start": 19999, "count": 100}, rows[-1:]),
                         ({"shard": "1/3"}, rows[1::3]), ({"shard": "1/3", "start": 2, "count": 3}, rows[7:16:3])):
        with StreamCall(rpc, "StreamRows", {"dataset": "d", **fields}, form) as call:
            at, got = int(fields.get("start", 0)), []
            total = len(range(1, 20000, 3)) if "shard" in fields else 20000
            for message in call.all():
                assert (message.start, message.total) == (at + len(got), total)
                assert sum(map(len, message.rows)) <= MIB
                got += message.rows
        assert got == want, fields


def rows_by_rest(rpc, query):
    """The rows of an answer of REST in the form "frame": their number, offsets, and bytes."""
    frames = rpc.srv.get(f"/datasets/d/rows?format=frame&{query}").body
    count, = struct.unpack_from("<Q", frames)
    offsets = struct.unpack_from(f"<{count + 1}Q", frames, 8)
    area = frames[8 * (count + 2):]
    return [area[a:b] for a, b in zip(offsets, offsets[1:], strict=False)]


def test_rows_shuffled_as_by_rest(start, tmp_path):
    write_rows(tmp_path / "d", 1000)
    rpc = Rpc(start(tmp_path))
    rpc.srv.wait_for(lambda: rpc.srv.get("/datasets/d/rows?count=1").status == 200, "the rows are found")
    fields = {"order": "shuffle", "seed": "18446744073709551615", "epoch": "3", "shard": "0/2", "count": "200"}
    query = "&".join(f"{key}={value}" for key, value in fields.items())
    want = rows_by_rest(rpc, query)
    with StreamCall(rpc, "StreamRows", {"dataset": "d", **fields}) as call:
        assert [row for message in call.all() for row in message.rows] == want and len(want) == 200
    fingerprint = rpc.srv.get("/datasets/d").json()["splits"][0]["fingerprint"]
    with StreamCall(rpc, "StreamRows", {"dataset": "d", "fingerprint": fingerprint, "count": 1}) as call:
        assert len(call.all()) == 1
    with StreamCall(rpc, "StreamRows", {"dataset": "d", "fingerprint": "x"}) as call:
        assert call.fails()[0] == "failed_precondition"


MANY = 150_000     # more than twice as many as one answer of REST has


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A server with a split of MANY rows, and the rows."""
    root = tmp_path_factory.mktemp("many") / "root"
    rows = write_rows(root / "d", MANY)
    age(root)
    with Server(root) as s:
        rpc = Rpc(s)
        s.wait_for(lambda: s.get("/datasets/d/rows?count=1").status == 200, "the rows are found")
        yield rpc, rows


def read_rows(call, at, total):
    """Return the rows of a stream that begins at this position."""
    got = []
    for message in call.all():
        assert (message.start, message.total) == (at + len(got), total)
        got += message.rows
    return got


@pytest.mark.parametrize("form", KINDS)
def test_more_rows_than_one_answer_has(many, form):
    """A stream continues beyond the 65,536 rows that an answer of REST has at most."""
    rpc, rows = many
    for fields, want in (({}, rows), ({"start": 3, "count": 65_537}, rows[3:65_540]),
                         ({"start": 80_000, "count": 70_001}, rows[80_000:]), ({"count": 65_536}, rows[:65_536])):
        with StreamCall(rpc, "StreamRows", {"dataset": "d", **fields}, form) as call:
            assert read_rows(call, fields.get("start", 0), MANY) == want, fields


def test_more_shuffled_rows_than_one_answer_has(many):
    """In REST's order, over the border between two answers."""
    rpc, rows = many
    order = "order=shuffle&seed=7&epoch=1&shard=1/2"
    with StreamCall(rpc, "StreamRows", {"dataset": "d", "order": "shuffle", "seed": 7, "epoch": 1,
                                        "shard": "1/2"}) as call:
        got = read_rows(call, 0, MANY // 2)
    assert len(got) == len(set(got)) == MANY // 2 and set(got) < set(rows)
    for at in (0, 65_530, MANY // 2 - 10):
        assert rows_by_rest(rpc, f"start={at}&count=10&{order}") == got[at:at + 10], at


@pytest.mark.parametrize("form", ["connect", "web", "grpc"])
def test_rows_that_change_end_the_stream(start, tmp_path, form):
    """An error says from which row on; rows of two states never stand in one stream."""
    rows = write_rows(tmp_path / "d", MANY)
    rpc = Rpc(start(tmp_path))
    rpc.srv.wait_for(lambda: rpc.srv.get("/datasets/d/rows?count=1").status == 200, "the rows are found")
    before = rpc.srv.get("/datasets/d").json()["splits"][0]["fingerprint"]
    with StreamCall(rpc, "StreamRows", {"dataset": "d"}, form, rcvbuf=1 << 14) as call:
        got = list(call.next().rows)
        write_rows(tmp_path / "new", MANY + 1)
        os.replace(tmp_path / "new/train.jsonl", tmp_path / "d/train.jsonl")
        rpc.srv.post("/rescan", b"")
        rpc.srv.wait_for(lambda: rpc.srv.get("/datasets/d").json()["splits"][0]["fingerprint"] != before, "new rows")
        rpc.srv.wait_for(lambda: rpc.srv.get("/datasets/d/rows?count=1").status == 200, "the rows are found again")
        while (message := call.next()) is not None:
            got += message.rows
        assert got == rows[:len(got)] and len(got) < MANY
        assert call.error[0] == "failed_precondition" and f'"start" {len(got)}' in call.error[1], call.error


def test_streams_of_many_rows_end(many):
    """At the client's deadline, and when the client goes, which frees its place."""
    rpc, _ = many
    with StreamCall(rpc, "StreamRows", {"dataset": "d"}, "grpc", headers={"grpc-timeout": "300m"},
                    rcvbuf=1 << 14) as call:
        assert call.next() is not None
        time.sleep(1)
        while call.next() is not None:
            pass
        assert call.error[0] == "deadline_exceeded"
    with StreamCall(rpc, "StreamRows", {"dataset": "d"}, "connect", rcvbuf=1 << 14) as call:
        assert call.next() is not None
    rpc.srv.wait_for(lambda: rpc.srv.gauge("tensord_waiters") == 0, "the place is free")


def test_long_rows_are_messages_of_their_own(start, tmp_path):
    rows = ["a", "b" * (5 * MIB), "c", "d" * 700_000, "e" * 700_000]
    (tmp_path / "d").mkdir()
    (tmp_path / "d/train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rpc = Rpc(start(tmp_path))
    rpc.srv.wait_for(lambda: rpc.srv.get("/datasets/d/rows?count=1").status == 200, "the rows are found")
    for form in KINDS:
        with StreamCall(rpc, "StreamRows", {"dataset": "d"}, form) as call:
            messages = [[json.loads(row) for row in message.rows] for message in call.all()]
        assert messages == [["a"], [rows[1]], ["c", rows[3]], [rows[4]]]


def test_batches(start, tmp_path):
    rows = write_rows(tmp_path / "d", 5000)
    (tmp_path / "long").mkdir()
    (tmp_path / "long/train.jsonl").write_text(json.dumps("x" * MIB * 4) + "\n" + "1\n" * 3)
    rpc = Rpc(start(tmp_path))
    rpc.srv.wait_for(lambda: all(rpc.srv.get(f"/datasets/{name}/rows?count=1").status == 200 for name in ("d", "long")),
                     "the rows are found")
    for indices in ([7], [4999, 0, 0, 17], list(range(0, 5000, 50))):
        for name, (r, message) in rpc.answers("BatchGetRows", {"dataset": "d", "indices": indices}).items():
            assert list(message.rows) == [rows[i] for i in indices] and message.total == 5000, name
            assert (r.length is None) == name.startswith("grpc"), name
    every = rpc.schema.request("BatchGetRows", {"dataset": "d", "indices": list(range(4999, -1, -1))})
    r = rpc.post("BatchGetRows", every.SerializeToString(), "application/proto")
    assert list(rpc.schema.output("BatchGetRows").FromString(r.body).rows) == rows[::-1]
    for name, (_, message) in rpc.answers("BatchGetRows", {"dataset": "long", "indices": [0]}).items():
        assert len(message.rows[0]) == 4 * MIB + 2, name
    for fields, word in (({"dataset": "long", "indices": [0, 1]}, "out_of_range"),
                         ({"dataset": "d", "indices": [5000]}, "invalid_argument"),
                         ({"dataset": "d"}, "invalid_argument"), ({"dataset": "", "indices": [1]}, "invalid_argument"),
                         ({"dataset": "no", "indices": [1]}, "not_found"),
                         ({"dataset": "d", "indices": [1] * 65537}, "invalid_argument"),
                         ({"dataset": "d", "indices": [1], "fingerprint": "x"}, "failed_precondition")):
        request = rpc.schema.request("BatchGetRows", fields)
        r = rpc.post("BatchGetRows", request.SerializeToString(), "application/proto")
        assert connect_error(rpc.schema, r)[0] == word, (fields["dataset"], r)
        assert word != "out_of_range" or "StreamRows" in r.json()["message"]


def test_rows_that_cannot_be_cut_out(start, tmp_path):
    """Rows of Arrow are no texts of their own: REST's error."""
    import pyarrow as pa
    (tmp_path / "d").mkdir()
    table = pa.table({"a": [1, 2, 3]})
    with pa.OSFile(str(tmp_path / "d/train.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    rpc = Rpc(start(tmp_path))
    message = rpc.srv.get("/datasets/d/rows?format=frame").json()["error"]["message"]
    with StreamCall(rpc, "StreamRows", {"dataset": "d"}) as call:
        assert call.fails() == ("failed_precondition", message)


# ---- the protocol ---------------------------------------------------------------------------------------


def test_types_of_streams_and_of_unary_calls(rpc):
    """415 with Accept-Post for the other kind of method (Connect: HTTP to error code mapping; protocol.md)."""
    body = rpc.schema.request("ReadTensors", {"model": "plain", "tensors": [{"name": "x"}]}).SerializeToString()
    for kind in ("application/proto", "application/json", "text/plain", "application/grpc-web-text"):
        r = rpc.post("ReadTensors", body, kind)
        assert r.status == 415 and "application/connect+proto" in r.get("Accept-Post"), kind
        assert "application/proto," not in r.get("Accept-Post")
    for kind in ("application/connect+proto", "application/connect+json", "application/connect"):
        r = rpc.post("GetModel", frame(b"\x0a\x05plain"), kind)
        assert r.status == 415 and r.get("Accept-Post").startswith("application/proto, application/json"), kind
    assert rpc.srv.get(rpc.schema.path("StreamRows") + "?connect=v1&encoding=json&message=%7B%7D").status == 405


def test_cases_of_the_conformance_suite(rpc):
    """From github.com/connectrpc/conformance, internal/app/connectconformance/testsuites/data: server streams without
    a request and with several (server_invalid_requests / "multiple-requests", "no-request"), an unknown method, and
    compressed frames without a compression or with an unknown one."""
    body = rpc.schema.request("ReadTensors", {"model": "plain", "tensors": [{"name": "x"}]}).SerializeToString()
    cases = [(b"", {}, "unimplemented"), (frame(body) * 2, {}, "unimplemented"), (frame(body, flags=1), {}, "internal"),
             (frame(body, flags=1), {"Connect-Content-Encoding": "zstd"}, "unimplemented"),
             (frame(body)[:-1], {}, "invalid_argument"), (frame(body)[:3], {}, "invalid_argument"),
             (frame(body, flags=4), {}, "invalid_argument"), (b"\0\xff\xff\xff\xff" + body, {}, "invalid_argument"),
             (frame(b"\xff"), {}, "invalid_argument"), (frame(body), {"Connect-Timeout-Ms": "x"}, "invalid_argument"),
             (frame(body), {"Connect-Protocol-Version": "2"}, "invalid_argument")]
    for raw, headers, word in cases:
        with StreamCall(rpc, "ReadTensors", {}, "connect", headers, raw=raw) as call:
            assert call.fails()[0] == word, (raw[:20], headers)
    r = rpc.srv.post("/tensord.v1.ModelService/NoSuch", frame(b""), {"Content-Type": "application/connect+proto"})
    end = json.loads(r.body[5:])
    assert r.status == 200 and r.body[0] == 2 and end["error"]["code"] == "unimplemented"


def test_refusals_before_routing(rpc):
    """They end the stream in its form, too."""
    path = rpc.schema.path("ReadTensors")
    r = rpc.srv.request(path, method="POST",
                        headers={"Content-Type": "application/connect+json", "Content-Length": str(1 << 30)})
    assert r.status == 200 and r.get("Content-Type") == "application/connect+json" and r.body[0] == 2
    assert json.loads(r.body[5:])["error"]["code"] == "resource_exhausted"
    assert struct.unpack(">I", r.body[1:5])[0] == len(r.body) - 5


def test_deadlines(rpc):
    fields = {"model": "plain", "tensors": [{"name": "model.norm.weight"}]}
    with StreamCall(rpc, "ReadTensors", fields, headers={"Connect-Timeout-Ms": "10000"}) as call:
        assert call.all()
    with StreamCall(rpc, "ReadTensors", fields, "grpc", headers={"grpc-timeout": "10S"}) as call:
        assert call.all()
