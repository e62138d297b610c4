"""Streams of tensord.v1 whose bytes come late, are unpacked, or change on their way: an upstream, a disk that hangs,
compressed tensors, files that are cut, overwritten or replaced. And many readers that are slow."""
import contextlib
import os
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest

from fixtures import stuck_disk, write_zeros_npz
from harness import Incomplete, Server, age, pattern, release_binary, safetensors_bytes, tensor, write_by_hand
from rpc_kit import Rpc
from rpc_stream_kit import KINDS, StreamCall
from upstream_kit import CHECKS, MIB, cache, hubs, model, published  # noqa: F401

FORMS = ("connect", "connect json", "web", "grpc")


def read_to_end(call):
    """Return the messages, and how the answer ended: "whole", "broken", or the code of its error."""
    messages = []
    try:
        while (message := call.next(60)) is not None:
            messages.append(message)
    except (Incomplete, ConnectionError, AssertionError):
        assert not call.has_ended
        return messages, "broken"
    return messages, call.error[0] if call.error else "whole"


def bytes_of(messages):
    """Return the bytes of each tensor, in the order of their positions in the request."""
    data = {}
    for message in messages:
        data[message.index] = data.get(message.index, b"") + message.data
    assert list(data) == list(range(len(data)))
    return list(data.values())


def read_tensors(rpc, name, tensors, form="connect", **fields):
    """Return the bytes of the tensors, and how the answer ended."""
    request = {"model": name, "tensors": [{"name": name} for name in tensors], **fields}
    with StreamCall(rpc, "ReadTensors", request, form, first="/healthz") as call:
        messages, end = read_to_end(call)
    return bytes_of(messages), end


def by_rest(rpc, name, tensors):
    answers = [rpc.srv.get(f"/models/{name}/tensors/{one}") for one in tensors]
    assert all(r.status == 200 for r in answers), answers
    return [r.body for r in answers]


# ---- an upstream ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["2", "0"])
def test_the_first_call_for_a_model_begins_its_fetch(hubs, cache, workers):     # noqa: F811
    """A small model is waited for: its bytes are those of the upstream, in each form."""
    hub = hubs({f"org/m{i}": {"model.safetensors": safetensors_bytes(
        [tensor("a", "U8", [MIB], str(i)), tensor("b", "F32", [4, 8], str(i))])} for i in range(len(KINDS))})
    rpc = Rpc(cache(hub.url, "--workers", workers))
    for i, form in enumerate(KINDS):
        want = [pattern(MIB, f"{i}a"), pattern(128, f"{i}b")]
        assert read_tensors(rpc, f"org/m{i}", "ab", form, chunkBytes=300_000) == (want, "whole"), form
        assert by_rest(rpc, f"org/m{i}", "ab") == want


def test_a_model_of_which_a_part_is_here(hubs, cache):      # noqa: F811
    """No byte of it is streamed before all files are here and checked."""
    files = model(nbytes=4 * MIB)
    hub = hubs({"org/m": files})
    hub.open_gate(2 * MIB)
    server = cache(hub.url)
    rpc = Rpc(server)
    with StreamCall(rpc, "WatchModel", {"model": "org/m"}) as watch:
        assert watch.next().model.upstream.state == "incoming"
        for form in FORMS:
            with StreamCall(rpc, "ReadTensors", {"model": "org/m", "tensors": [{"name": "a"}]}, form) as call:
                code, message = call.fails()
            assert code == "unavailable" and "is being fetched from the upstream" in message
        r = server.get("/models/org/m/files/model.safetensors", [("Range", "bytes=0-999"), CHECKS])
        assert r.body == files["model.safetensors"][:1000]
        hub.open_gate(None)
        published(server, "org/m")
        while (state := watch.next().model.upstream.state) != "here":
            assert state == "incoming"
    for form in FORMS:
        assert read_tensors(rpc, "org/m", "ab", form) == ([pattern(4 * MIB, "wa"), pattern(128, "wb")], "whole")


def test_an_upstream_that_dies_and_comes_back(hubs, cache, tmp_path):       # noqa: F811
    """Calls end with an error, those that wait for the model as well. A stream of its states continues."""
    hub = hubs({"org/m": model(nbytes=4 * MIB)})
    hub.open_gate(2 * MIB)
    (tmp_path / "origin").mkdir()
    origin = Server(tmp_path / "origin", "--upstream", hub.url)
    port = origin.port
    server = cache(f"http://127.0.0.1:{port}")
    rpc = Rpc(server)
    with StreamCall(rpc, "WatchModel", {"model": "org/m"}, "grpc") as watch, ThreadPoolExecutor(len(KINDS)) as pool:
        assert watch.next().model.upstream.state == "incoming"
        early = [pool.submit(read_tensors, rpc, "org/m", "ab", form) for form in KINDS]
        origin.kill()
        for end in [*(call.result() for call in early), *(read_tensors(rpc, "org/m", "ab", form) for form in KINDS)]:
            assert end == ([], "unavailable")
        hub.open_gate(None)
        with Server(tmp_path / "origin", "--upstream", hub.url, "--listen", f"127.0.0.1:{port}") as again:
            again.wait_for(lambda: server.get("/models/org/m/tensors").status == 200, "it is fetched", 30)
            while (state := watch.next().model.upstream.state) != "here":
                assert state == "incoming"
    for form in FORMS:
        assert read_tensors(rpc, "org/m", "ab", form) == ([pattern(4 * MIB, "wa"), pattern(128, "wb")], "whole")


def test_an_upstream_that_lies(hubs, cache):        # noqa: F811
    """No byte comes of a file whose digest is wrong."""
    hub = hubs({"org/m": model(nbytes=MIB)})
    hub.wrong_sha.add("model.safetensors")
    rpc = Rpc(cache(hub.url))
    for form in KINDS:
        assert read_tensors(rpc, "org/m", "ab", form) == ([], "unavailable"), form


def test_a_model_that_is_evicted(hubs, cache):      # noqa: F811
    """It leaves the disk while its bytes are streamed; these are all right."""
    size = 8 * MIB
    hub = hubs({f"org/m{i}": model(str(i), size) for i in range(3)})
    rpc = Rpc(cache(hub.url, "--cache-max-bytes", 20 * MIB))
    for i in range(2):
        assert rpc.srv.get(f"/models/org/m{i}/files/config.json").status == 200
        published(rpc.srv, f"org/m{i}")
    with contextlib.ExitStack() as stack:
        request = {"model": "org/m0", "tensors": [{"name": "a"}]}
        calls = [stack.enter_context(StreamCall(rpc, "ReadTensors", request, form, rcvbuf=1 << 16)) for form in FORMS]
        assert rpc.srv.get("/models/org/m1/files/config.json").status == 200
        assert rpc.srv.get("/models/org/m2/files/config.json").status == 200
        published(rpc.srv, "org/m2")
        rpc.srv.wait_for(lambda: rpc.srv.ids() == ["org/m1", "org/m2"], "m0 was evicted")
        for form, call in zip(FORMS, calls, strict=True):
            messages, end = read_to_end(call)
            assert end == "whole" and bytes_of(messages) == [pattern(size, "0a")], form


# ---- a disk -----------------------------------------------------------------------------------------------


def write_rows(path, count, mark=b"x", nbytes=100):
    """Write rows of this many bytes. Return them."""
    rows = [b'{"i": %8d, "text": "%s"}' % (i, mark * (nbytes - 27)) for i in range(count)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(rows) + b"\n")
    return rows


def await_rows(s, name="d"):
    s.wait_for(lambda: s.get(f"/datasets/{name}/rows?count=1").status == 200, "the rows are found", 30)


@contextlib.contextmanager
def held(hold):
    """Let the disk stop answering for a while."""
    hold.touch()
    try:
        yield
    finally:
        hold.unlink()


@pytest.mark.parametrize("workers", ["1", "0"])
def test_tensors_on_a_disk_that_hangs(place, start, workers):
    """Their bytes are in no cache. Nobody else waits for them, and they are right when they come."""
    names = {form: f"w{i}" for i, form in enumerate(FORMS)}
    for name in ["calm", *names.values()]:
        write_by_hand(place / "source" / name / "model.safetensors", [tensor("w", "U8", [4 * MIB], name)])
    age(place / "source")
    with stuck_disk(place) as (mount_point, hold), ThreadPoolExecutor(len(FORMS)) as pool:
        rpc = Rpc(start(mount_point, "--workers", workers))
        assert read_tensors(rpc, "calm", "w")[1] == "whole"
        with held(hold):
            calls = {name: pool.submit(read_tensors, rpc, name, "w", form) for form, name in names.items()}
            rpc.srv.wait_for(lambda: rpc.srv.gauge("tensord_http_requests_in_flight") > len(calls), "all of them wait")
            for form in FORMS:
                assert read_tensors(rpc, "calm", "w", form) == ([pattern(4 * MIB, "calmw")], "whole")
            assert not any(call.done() for call in calls.values())
        for name, call in calls.items():
            assert call.result() == ([pattern(4 * MIB, name + "w")], "whole"), name


@pytest.mark.parametrize("workers", ["1", "0"])
def test_rows_on_a_disk_that_hangs(place, start, workers):
    """The disk stops answering while a stream is sent that is made of several answers."""
    rows = write_rows(place / "source/d/train.jsonl", 100_000)
    write_rows(place / "source/calm/train.jsonl", 10)
    age(place / "source")
    options = ("--workers", workers, "--state-dir", place / "state")
    with stuck_disk(place) as (mount_point, hold):
        with Server(mount_point, *options, hash_threads=0) as s:
            await_rows(s)
        with open(mount_point / "d/train.jsonl", "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        rpc = Rpc(start(mount_point, *options))
        await_rows(rpc.srv)
        with contextlib.ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(len(FORMS)))
            calls = {form: stack.enter_context(StreamCall(rpc, "StreamRows", {"dataset": "d"}, form, rcvbuf=1 << 16,
                                                          first="/healthz")) for form in ("connect", "grpc")}
            got = {form: list(call.next().rows) for form, call in calls.items()}
            with held(hold):
                rest = {form: pool.submit(read_to_end, call) for form, call in calls.items()}
                batch = pool.submit(rpc.answers, "BatchGetRows", {"dataset": "d", "indices": [69_000, 5, 69_000]})
                for form in FORMS:
                    with StreamCall(rpc, "StreamRows", {"dataset": "calm"}, form) as call:
                        assert [len(message.rows) for message in call.all()] == [10]
                assert not batch.done() and not any(one.done() for one in rest.values())
            for name, (_, message) in batch.result().items():
                assert list(message.rows) == [rows[69_000], rows[5], rows[69_000]], name
            for form, one in rest.items():
                messages, end = one.result()
                assert end == "whole" and got[form] + [row for message in messages for row in message.rows] == rows


# ---- a decoder --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def decoded(tmp_path_factory):
    """A server of tensors that are unpacked, swapped or gathered; their values; and the damaged ones."""
    root = tmp_path_factory.mktemp("decoded") / "root"
    root.mkdir()
    values = np.frombuffer(pattern(4 * 60_000, "d"), "<u4").reshape(600, 100) % 1000
    arrays = {"gzip": values, "big": values.astype(">u4"), "lzf": values[:7], "columns": values.T}
    with h5py.File(root / "h5.h5", "w") as file:
        file.create_dataset("gzip", data=values, chunks=(50, 30), compression="gzip", shuffle=True, fletcher32=True)
        file.create_dataset("lzf", data=values[:7], chunks=(3, 100), compression="lzf")
        file["big"] = arrays["big"]
    np.savez_compressed(root / "zip.npz", gzip=values, columns=np.asfortranarray(values.T))
    write_zeros_npz(root / "damaged.npz", 16 * MIB, damaged=True)
    with h5py.File(root / "cut.h5", "w") as file:
        data = file.create_dataset("w", data=values, chunks=(50, 100), compression="gzip", fletcher32=True)
        chunk = data.id.get_chunk_info(9)
    with open(root / "cut.h5", "r+b") as file:
        file.seek(chunk.byte_offset + chunk.size // 2)
        file.write(bytes(20))
    age(root)
    with Server(root, hash_threads=0) as s:
        yield Rpc(s), {name: array.astype("<u4").tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("form", KINDS)
def test_tensors_that_are_made_on_the_way(decoded, form):
    """Compressed, big-endian and transposed ones: the values that were written, as by REST."""
    rpc, values = decoded
    for name, tensors in (("h5.h5", ["gzip", "big", "lzf"]), ("zip.npz", ["columns", "gzip"])):
        access = {row["name"]: row.get("access") for row in rpc.srv.json(f"/models/{name}/tensors")["tensors"]}
        assert set(map(access.get, tensors)) <= {"decoded", "swapped", "gathered"}, access
        want = [values[one] for one in tensors]
        assert by_rest(rpc, name, tensors) == want
        for chunk in (4096, 0):
            assert read_tensors(rpc, name, tensors, form, chunkBytes=chunk) == (want, "whole"), (name, chunk)
    parts = {"model": "h5.h5", "tensors": [{"name": "gzip", "slice": "7:90,3:50"}, {"name": "big", "slice": ":,1:2"}]}
    with StreamCall(rpc, "ReadTensors", parts, form) as call:
        got = bytes_of(call.all())
    assert got == [rpc.srv.get(f"/models/h5.h5/tensors/{part['name']}?slice={part['slice']}").body
                   for part in parts["tensors"]]


@pytest.mark.parametrize("form", KINDS)
def test_damage_is_no_end(decoded, form):
    """A tensor that cannot be unpacked is an error, or breaks the answer off where its bytes would begin."""
    rpc, _ = decoded
    for name, one in (("damaged.npz", "a"), ("cut.h5", "w")):
        for request in ([{"name": one}], [{"name": one, "slice": "0:9"}, {"name": one}]):
            with StreamCall(rpc, "ReadTensors", {"model": name, "tensors": request}, form) as call:
                messages, end = read_to_end(call)
            assert end in ("failed_precondition", "broken"), (name, end)
            assert end == "broken" or messages == []


# ---- files that change ------------------------------------------------------------------------------------


@contextlib.contextmanager
def begun(rpc, method, fields):
    """Begin the call in each form, and read one message. Yield {form: (call, first message)}."""
    with contextlib.ExitStack() as stack:
        calls = {form: stack.enter_context(StreamCall(rpc, method, fields, form, rcvbuf=1 << 16)) for form in FORMS}
        yield {form: (call, call.next()) for form, call in calls.items()}


def cut(path, new):
    os.truncate(path, path.stat().st_size // 8)


def overwrite(path, new):
    with open(path, "r+b") as file:
        file.write(new)


def overwrite_end(path, new):
    with open(path, "r+b") as file:
        file.seek(-1000, os.SEEK_END)
        file.write(new[-1000:])


def replace(path, new):
    path.with_name(".new").write_bytes(new)
    os.replace(path.with_name(".new"), path)


def remove(path, new):
    path.unlink()


CHANGES = {change.__name__: change for change in (cut, overwrite, overwrite_end, replace, remove)}


@pytest.mark.parametrize("leases", ["on", "off"])
def test_tensors_that_change(start, tmp_path, leases):
    """An answer that ends well has the bytes of one state. A file that is replaced or removed is sent to its end."""
    size, root = 12 * MIB, tmp_path / "root"
    for name in CHANGES:
        write_by_hand(root / name / "model.safetensors", [tensor("w", "U8", [size], "old")])
    age(root)
    rpc = Rpc(start(root, "--leases", leases, rescan="0"))
    old, new = pattern(size, "oldw"), pattern(size, "neww")
    for name, change in CHANGES.items():
        with begun(rpc, "ReadTensors", {"model": name, "tensors": [{"name": "w"}]}) as calls:
            change(root / name / "model.safetensors", safetensors_bytes([tensor("w", "U8", [size], "new")]))
            for form, (call, first) in calls.items():
                messages, end = read_to_end(call)
                data, = bytes_of([first, *messages])
                if change in (replace, remove):
                    assert end == "whole" and data == old, (name, form)
                elif end == "whole":
                    assert change is not cut and data in (old, new), (name, form)
                else:
                    assert end == "broken" and len(data) < size, (name, form, end)


@pytest.mark.parametrize("count, nbytes", [(10_000, 1_000), (100_000, 100)])
def test_rows_that_change(start, tmp_path, count, nbytes):
    """Of one answer of REST, or of several. The rows before an error are those of the first state, and its message has
    their number. A change that is found so begins a scan."""
    root = tmp_path / "root"
    for name in CHANGES:
        old = write_rows(root / name / "train.jsonl", count, nbytes=nbytes)
    new = write_rows(tmp_path / "new", count, b"y", nbytes)
    age(root)
    rpc = Rpc(start(root, rescan="0"))
    for name, change in CHANGES.items():
        await_rows(rpc.srv, name)
        before, ends = rpc.srv.get(f"/datasets/{name}"), set()
        with begun(rpc, "StreamRows", {"dataset": name}) as calls:
            change(root / name / "train.jsonl", (tmp_path / "new").read_bytes())
            for form, (call, first) in calls.items():
                messages, end = read_to_end(call)
                rows = [row for message in [first, *messages] for row in message.rows]
                ends.add(end)
                if end == "whole":
                    assert rows == old or (rows == new and change not in (replace, remove)), (name, form)
                elif end != "broken":
                    assert rows == old[:len(rows)], (name, form)
                    assert end == "not_found" or f'"start" {len(rows)}' in call.error[1], (name, form, call.error)
        # Another stream may still have the file open that was replaced or removed; the rest comes from this one then. A
        # scan finds that a dataset is gone, after which the code is not_found.
        if change in (replace, remove):
            late = set() if count == 10_000 else {"failed_precondition", "not_found"}
            assert ends <= {"whole", *late}, (name, ends)
        else:
            assert ends <= {"broken", "failed_precondition", *(["whole"] if change is not cut else [])}, (name, ends)
        if ends != {"whole"}:
            rpc.srv.wait_for(lambda n=name, etag=before.etag: rpc.srv.get(f"/datasets/{n}").etag != etag, "it is found")


def test_rows_that_a_scan_has_found_changed(start, tmp_path):
    """The next answer of REST that a stream asks for is an error, each time another one."""
    root = tmp_path / "root"
    statuses = {"shorter": 200, "fingerprint": 200, "removed": 404, "index": 503}
    for name in statuses:
        old = write_rows(root / name / "train.jsonl", 100_000)
    age(root)
    rpc = Rpc(start(root, rescan="0"))
    for name, status in statuses.items():
        await_rows(rpc.srv, name)
        fields, path = {"dataset": name}, root / name / "train.jsonl"
        if name == "fingerprint":
            fields["fingerprint"] = rpc.srv.json(f"/datasets/{name}")["splits"][0]["fingerprint"]
        before = rpc.srv.get(f"/datasets/{name}/rows?count=1")
        with begun(rpc, "StreamRows", fields) as calls:
            if name == "removed":
                remove(path, None)
            else:
                replace(path, b"{}\n" * 10)
            if name == "index":
                os.truncate(path, 100 << 30)    # a hole, which takes long to read
            assert rpc.srv.post("/rescan", b"").status == 200

            def is_found(name=name, status=status, before=before):
                now = rpc.srv.get(f"/datasets/{name}/rows?count=1")
                return now.etag != before.etag and now.status == status
            rpc.srv.wait_for(is_found, f"{name} is found to have changed")
            ends = set()
            for form, (call, first) in calls.items():
                messages, end = read_to_end(call)
                rows = [row for message in [first, *messages] for row in message.rows]
                assert rows == old[:len(rows)] and len(rows) < len(old)
                assert end == "not_found" or f'"start" {len(rows)}' in call.error[1], (name, form, call.error)
                ends.add(end)
            if name == "removed":    # the server may ask for rows before its scan ends
                assert "not_found" in ends <= {"not_found", "failed_precondition"}
            else:
                assert ends == {"failed_precondition"}, name


# ---- many readers -----------------------------------------------------------------------------------------

READERS = 50
# The request of each slow reader, and the most memory that it may take, by docs/api.md.
SLOW = {"long messages": ("ReadTensors", {"model": "m", "tensors": [{"name": "w"}]}, MIB),
        "short messages": ("ReadTensors", {"model": "m", "tensors": [{"name": "w"}], "chunkBytes": 4096},
                           MIB + 16 * MIB // 4096 * 140),
        "rows": ("StreamRows", {"dataset": "d"}, 3 * MIB)}     # malloc keeps some of what the first answer took


@pytest.fixture(scope="module")
def long_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("long") / "root"
    write_by_hand(root / "m/model.safetensors", [tensor("w", "U8", [16 * MIB]), tensor("q", "U8", [1000])])
    write_rows(root / "d/train.jsonl", 100_000)
    age(root)
    return root


@pytest.mark.parametrize("workers", ["2", "0"])
@pytest.mark.parametrize("what", SLOW)
# shows: security.md client-slow-reader
def test_slow_readers_beside_a_quick_one(long_root, what, workers):
    """Streams that are hardly read take little memory, and hold up nobody. The bounds are for the program without
    sanitizers."""
    method, fields, most_bytes = SLOW[what]
    with Server(long_root, "--workers", workers, binary=release_binary(), hash_threads=0) as s, \
            contextlib.ExitStack() as stack:
        rpc = Rpc(s)
        await_rows(s)

        def ask_quickly():
            for form in KINDS:
                assert read_tensors(rpc, "m", "q", form) == ([pattern(1000, "q")], "whole")
            with StreamCall(rpc, "StreamRows", {"dataset": "d", "start": 70_000, "count": 9}) as call:
                assert [len(message.rows) for message in call.all()] == [9]
            with StreamCall(rpc, "WatchModel", {"model": "m"}) as watch:
                assert watch.next().model.id == "m"

        ask_quickly()
        before = s.anon_bytes()
        calls = [stack.enter_context(StreamCall(rpc, method, fields, FORMS[i % len(FORMS)], rcvbuf=1 << 14,
                                                first="/healthz" if i % 3 else None)) for i in range(READERS)]
        for call in calls:
            assert call.next() is not None, call.error
        ask_quickly()
        assert s.gauge("tensord_http_requests_in_flight") + s.gauge("tensord_waiters") > len(calls)
        assert (s.anon_bytes() - before) / READERS < most_bytes
        messages, end = read_to_end(calls[7])
        assert end == "whole" and len(messages) > 5
        for call in calls:
            call.conn.close()
        s.wait_for(lambda: s.gauge("tensord_http_requests_in_flight") == 1 and s.gauge("tensord_waiters") == 0,
                   "they go")
        with StreamCall(rpc, method, fields) as call:
            assert call.all()
