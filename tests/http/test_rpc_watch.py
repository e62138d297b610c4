"""WatchModel of tensord.v1: the same descriptions as GetModel, one at once and one after each change, and every way in
which such a stream ends."""
import os
import shutil
import time

import pytest

from harness import Server, is_sanitized, tensor, write_by_hand
from rpc_kit import Rpc
from rpc_stream_kit import KINDS, StreamCall
from signing import TokensFile

FORMS = list(KINDS)


def write(root, name, size):
    """Replaces the model by one with a tensor of so many bytes."""
    write_by_hand(root / name / "new", [tensor("w", "U8", (size,))])
    os.replace(root / name / "new", root / name / "model.safetensors")


def rescan(s):
    assert s.post("/rescan", b"").status == 200


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root").mkdir()
    for name in ("a", "b"):
        write(tmp_path / "root", name, 8)
    return tmp_path / "root"


@pytest.fixture(params=["shared", "threads"])
def rpc(request, start, root):
    """With shared threads, and with a thread for each connection."""
    return Rpc(start(root, *(["--workers", "0"] if request.param == "threads" else [])))


def described(rpc, model, form="connect", **fields):
    """GetModel's answer and its tag, which depends on the codec until all files are hashed."""
    name = "json" if "json" in form else "proto"
    r, message = rpc.answers("GetModel", {"model": model, **fields})[name]
    return message, r.get("ETag").strip('"')


def settled(s, model, size):
    s.wait_for(lambda: rescan(s) is None and s.json(f"/models/{model}")["total_bytes"] == size, "the change is served")


@pytest.mark.parametrize("form", FORMS)
def test_first_the_state_and_then_each_change(rpc, root, form):
    want, etag = described(rpc, "a", form)
    with StreamCall(rpc, "WatchModel", {"model": "a"}, form) as call:
        first = call.next()
        assert first.model == want and first.etag == etag and call.is_chunked
        for size in (9, 10):
            write(root, "a", size)
            settled(rpc.srv, "a", size)
            message = call.next()
            while message.model.total_bytes != size:    # a file that still changes may be seen as well
                message = call.next()
            assert (message.model, message.etag) == described(rpc, "a", form)
        write(root, "b", 11)
        settled(rpc.srv, "b", 11)
        with pytest.raises(TimeoutError):
            call.next(timeout=0.3)      # nothing about another model


def test_a_known_state_is_not_sent_again(rpc, root):
    with StreamCall(rpc, "WatchModel", {"model": "a"}) as call:
        etag = call.next().etag
    for known in (etag, f'"{etag}"', rpc.srv.get("/models/a").get("ETag")):
        with StreamCall(rpc, "WatchModel", {"model": "a", "etag": known}) as call:
            with pytest.raises(TimeoutError):
                call.next(timeout=0.2)
    with StreamCall(rpc, "WatchModel", {"model": "a", "etag": etag}) as call:
        write(root, "a", 20)
        settled(rpc.srv, "a", 20)
        assert call.next().model.id == "a"
    for other in ("x", "x" * 5000, "é", "a-b"):
        with StreamCall(rpc, "WatchModel", {"model": "a", "etag": other}) as call:
            assert call.next().model.total_bytes == 20


def test_masks_and_versions(start, root):
    for step in (1, 2):
        write(root, f"run/step-{step}", step)
    rpc = Rpc(start(root))
    for form in FORMS:
        with StreamCall(rpc, "WatchModel", {"model": "a", "readMask": "id,fileCount"}, form) as call:
            model = call.next().model
            assert [field.name for field, _ in model.ListFields()] == ["id", "file_count"]
    with StreamCall(rpc, "WatchModel", {"model": "a", "readMask": "etag"}) as call:
        assert call.fails()[0] == "invalid_argument"
    with StreamCall(rpc, "WatchModel", {"model": "run", "version": "latest"}) as call:
        assert call.next().model.version == "step-2"
        write(root, "run/step-3", 3)
        message = call.next()
        assert message.model.version == "step-3"
        assert message.model == described(rpc, "run", version="latest")[0]


@pytest.mark.parametrize("form", FORMS)
def test_errors_at_once(rpc, form):
    """A model that does not exist is not waited for, whether a tag is given or not."""
    for fields, word in (({"model": "no"}, "not_found"), ({"model": "no", "etag": "x"}, "not_found"),
                         ({"model": ""}, "invalid_argument"), ({"model": "a/files"}, "not_found"),
                         ({"model": "a", "version": "v1"}, "not_found")):
        with StreamCall(rpc, "WatchModel", fields, form) as call:
            assert call.fails()[0] == word, fields


@pytest.mark.parametrize("form", FORMS)
def test_a_model_that_is_removed(rpc, root, form):
    with StreamCall(rpc, "WatchModel", {"model": "a"}, form) as call:
        assert call.next() is not None
        shutil.rmtree(root / "a")
        rescan(rpc.srv)
        assert call.fails()[0] == "not_found"


@pytest.mark.parametrize("form", FORMS)
def test_the_deadline(rpc, form):
    fields = {"Connect-Timeout-Ms": "400"} if "connect" in form else {"grpc-timeout": "400m"}
    with StreamCall(rpc, "WatchModel", {"model": "a"}, form, fields) as call:
        began = time.monotonic()
        assert call.next() is not None
        assert call.fails()[0] == "deadline_exceeded"
        assert time.monotonic() - began > 0.3


@pytest.mark.parametrize("form", FORMS)
def test_a_server_that_ends(rpc, form):
    with StreamCall(rpc, "WatchModel", {"model": "a"}, form) as call:
        assert call.next() is not None
        rpc.srv.term()
        assert call.fails()[0] == "unavailable"


def test_tokens_that_end(place):
    """An expired or a revoked token is unauthenticated; one that no longer sees the model finds none."""
    for name in ("a", "b"):
        write(place / "root", name, 8)
    tokens = TokensFile(place / "tokens")
    tokens.add("short", expires_s=int(time.time()) + 3).add("revoked").add("narrowed").add("good", models=["a"])
    s = Server(place / "root", "--tokens", str(tokens), hash_threads=0, rescan="0")
    try:
        rpc = Rpc(s, tokens.bearer("good"))
        names = ("short", "revoked", "narrowed", "good")
        calls = {name: StreamCall(rpc, "WatchModel", {"model": "a"}, headers=tokens.bearer(name)) for name in names}
        for call in calls.values():
            assert call.next().model.id == "a"
        assert calls["short"].fails()[0] == "unauthenticated"
        tokens.add("narrowed", models=["b"])
        tokens.remove("revoked")
        s.hup()
        write(place / "root", "a", 9)
        s.wait_for(lambda: s.get("/models/a", tokens.bearer("revoked")).status == 401, "the tokens are read")
        s.hup()
        assert calls["revoked"].fails()[0] == "unauthenticated"
        assert calls["narrowed"].fails()[0] == "not_found"
        assert calls["good"].next().model.total_bytes == 9
        with StreamCall(rpc, "WatchModel", {"model": "b"}, headers=tokens.bearer("good")) as call:
            hidden = call.fails()
        with StreamCall(rpc, "WatchModel", {"model": "c"}, headers=tokens.bearer("good")) as call:
            assert call.fails() == (hidden[0], hidden[1].replace('"b"', '"c"'))
        with StreamCall(rpc, "WatchModel", {"model": "a"}, "grpc") as call:
            assert call.fails()[0] == "unauthenticated"
        for call in calls.values():
            call.conn.close()
    finally:
        s.stop()


def test_the_share_of_a_client_and_max_waiters(start, root, tmp_path):
    tokens = TokensFile(tmp_path / "tokens.json")
    for i in range(5):
        tokens.add(f"t{i}")
    s = start(root, "--max-waiters", "8", "--tokens", str(tokens.path))
    rpc = Rpc(s, tokens.bearer("t0"))

    def watch(i, form="connect"):
        return StreamCall(rpc, "WatchModel", {"model": "a"}, form, tokens.bearer(f"t{i}"))

    calls = []
    for i in range(4):
        calls += [watch(i), watch(i)]
        for call in calls[-2:]:
            assert call.next() is not None
        if i == 0:
            for form in FORMS:
                code, message = watch(0, form).fails()
                assert code == "resource_exhausted" and "quarter" in message
    code, message = watch(4).fails()
    assert code == "resource_exhausted" and "--max-waiters" in message
    calls.pop().conn.close()
    s.wait_for(lambda: watch(4).next() is not None, "a client that is gone leaves its place")
    for call in calls:
        call.conn.close()


def test_clients_that_are_gone(rpc):
    calls = [StreamCall(rpc, "WatchModel", {"model": "a"}) for _ in range(20)]
    for call in calls:
        assert call.next() is not None
    assert rpc.srv.gauge("tensord_waiters") == 20
    for call in calls:
        call.conn.close()
    rpc.srv.wait_for(lambda: rpc.srv.gauge("tensord_waiters") == 0, "clients that are gone are noticed")


def test_many_watchers_take_no_threads_and_little_memory(root, start):
    """Each sees the change. The bound on memory is for the program without sanitizers."""
    count = 200 if is_sanitized() else 600
    s = start(root, "--max-waiters", "3000", "--max-connections", "1000", "--max-connections-per-address", "1000")
    rpc = Rpc(s)
    threads = s.threads()
    before = s.anon_bytes()
    calls = [StreamCall(rpc, "WatchModel", {"model": "a"}) for _ in range(count)]
    for call in calls:
        assert call.next().model.total_bytes == 8
    s.wait_for(lambda: s.threads() <= threads + count // 10, f"watchers have no threads; {s.threads()}")
    if not is_sanitized():
        assert (s.anon_bytes() - before) / count < 64 * 1024
    write(root, "a", 9)
    settled(s, "a", 9)
    for call in calls:
        assert call.next().model.total_bytes == 9
        call.conn.close()
    s.wait_for(lambda: s.gauge("tensord_waiters") == 0, "clients that are gone are noticed")
