"""Writing where something fails: cuts, kills, refusals, forks, wrong answers, and servers that take nothing."""
import contextlib
import hashlib
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import torch
from conftest import REPO, url_of

import harness
import pki
from listener import Listener, read_head
from publishing import PIECE, Repo
from signing import TokensFile

sys.path.insert(0, str(REPO / "tests" / "interop"))

from fake_publish import FakePublish, Refusal  # noqa: E402

import tensord  # noqa: E402
from tensord.publishing.repository import Blob, Repository  # noqa: E402

MIB = 1 << 20
DATA = harness.pattern(20 * MIB + 77, 5)


def blob_of(data):
    return Blob(f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))


def opened(port, id="org/m", **options):
    return Repository.open(f"tensord://127.0.0.1:{port}/{id}", **{"retry_for": 5, "progress": False, **options})


class Relay(Listener):
    """Passes bytes to `port` and back. cuts: after how many bytes of the client's each of the next connections is cut;
    answers: how many bytes of answers pass on the next connections."""

    def __init__(self, port, cuts=(), answers=()):
        self.target, self.cuts, self.answers, self.sent = port, list(cuts), list(answers), 0
        self.lock = threading.Lock()
        super().__init__()

    def handle(self, client, _):
        with self.lock:
            cut = self.cuts.pop(0) if self.cuts else None
            answer = self.answers.pop(0) if self.answers else None
        with socket.create_connection(("127.0.0.1", self.target)) as server:
            back = threading.Thread(target=self.pump, args=(server, client, answer, False), daemon=True)
            back.start()
            self.pump(client, server, cut, True)
            back.join()

    def pump(self, source, target, most, counts):
        with contextlib.suppress(OSError):
            while most is None or most > 0:
                data = source.recv(65536 if most is None else min(most, 65536))
                if not data:
                    break
                target.sendall(data)
                most = None if most is None else most - len(data)
                if counts:
                    with self.lock:
                        self.sent += len(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Script(Listener):
    """Calls `play(connection, head)` once for each connection, after the head of its first request."""

    def __init__(self, play):
        self.play, self.heads = play, []
        super().__init__()

    def handle(self, connection, _):
        head = read_head(connection)
        if head:
            self.heads.append(head)
            self.play(connection, head)


def answer(status, body=b"{}", *fields):
    """The bytes of an answer."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def refusing(status, message="no", details=None):
    error = {"code": status, "message": message, "details": details or {}}
    return answer(status, json.dumps({"error": error}).encode())


def read_body(connection, head):
    """Reads a body, whole."""
    if b"100-continue" in head:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", head)
    if length:
        left = int(length[1])
        while left > 0:
            left -= len(connection.recv(min(left, 65536)) or b"x" * left)
        return
    end = b""
    while not end.endswith(b"\r\n0\r\n\r\n"):
        end = (end + connection.recv(65536))[-7:]


# ---- cuts and kills, with a real server


def content(server, path, id="org/m"):
    return Repo(server.port, f"{id}/resolve/main/{path}", "").ask("GET", "").body


def test_cuts_send_only_what_is_missing(serve):
    server = serve("--publish", "any")
    with Relay(server.port, cuts=[5 * MIB, 9 * MIB, 100]) as relay:
        repo = opened(relay.port)
        blob = repo.send(DATA)
        assert blob == blob_of(DATA) and relay.cuts == []
        assert relay.sent < len(DATA) + 3 * PIECE + 10_000
        repo.commit({"a.bin": blob})
    assert content(server, "a.bin") == DATA


def test_a_stream_that_is_cut_is_an_error_and_leaves_no_blob(serve):
    server = serve("--publish", "any")
    with Relay(server.port, cuts=[5 * MIB]) as relay:
        repo = opened(relay.port)
        with pytest.raises(tensord.ConnectError, match="write it again"), repo.stream() as out:
            for at in range(0, len(DATA), MIB):
                out.write(DATA[at:at + MIB])
        with pytest.raises(ValueError, match="no blob"):
            out.blob
        out.close()
        with repo.stream() as out:  # the next one is whole
            out.write(DATA)
        assert out.blob == blob_of(DATA)


@pytest.mark.parametrize("cuts", [[8 * MIB], [3 * MIB, 1000, 7 * MIB], [0, 0, 0]])
def test_save_model_resumes_after_cuts(serve, cuts):
    server = serve("--publish", "any")
    tensors = {"a": torch.arange(3 * MIB, dtype=torch.int32),
               "b": torch.arange(MIB, dtype=torch.int32).view(1024, -1).t()}
    with Relay(server.port, cuts=cuts) as relay:
        made = tensord.save_model(tensors, f"tensord://127.0.0.1:{relay.port}/org/m", retry_for=20, ring_bytes=MIB)
        assert relay.cuts == []
    found = tensord.load_file(url_of(server, "org/m"))
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items()) and made.changed


def test_a_killed_server_goes_on_where_it_was(tmp_path):
    first = harness.Server(tmp_path, "--publish", "any")
    with Relay(first.port) as relay:
        done, faults = [], []

        def send():
            try:
                repo = opened(relay.port, retry_for=60, connections=2)
                done.append(repo.commit({"a.bin": repo.send(DATA * 4)}))
            except Exception as error:
                faults.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        end = time.monotonic() + 30
        while relay.sent < 20 * MIB and time.monotonic() < end:
            time.sleep(0.001)
        first.kill()
        before = relay.sent
        second = harness.Server(tmp_path, "--publish", "any")
        relay.target = second.port
        thread.join(60)
        assert not faults and done[0].changed
        assert relay.sent - before < 4 * len(DATA)  # some of it was kept
        assert content(second, "a.bin") == DATA * 4
        second.stop()


def test_a_commit_whose_answer_is_lost_is_asked_again(serve):
    server = serve("--publish", "any")
    with Relay(server.port, answers=[None, 10]) as relay:
        repo = opened(relay.port)
        blob = repo.send(b"{}")
        repo.close()
        made = repo.commit({"config.json": blob})
        assert made.commit == opened(server.port).commit({"config.json": blob}).commit and relay.answers == []


# ---- refusals


@pytest.fixture
def limited(serve, tmp_path):
    """A server that gives 2 MiB of room, and tokens: writer, reader and other."""
    tokens = TokensFile(tmp_path / "tokens.json")
    tokens.add("writer", models=["org/*"], rights=("read", "write")).add("reader")
    tokens.add("other", models=["else/*"], rights=("read", "write"))
    return serve("--publish", "any", "--publish-max-bytes", "2m", "--tokens", tokens)


def each_way(repo, data):
    """Yields what writes data to a server in each way, as functions."""
    def streamed(size):
        with repo.stream(size) as out:
            for at in range(0, len(data), MIB):
                out.write(data[at:at + MIB])
            out.write(b"")

    yield lambda: repo.send(data)
    yield lambda: streamed(None)
    yield lambda: streamed(len(data))
    yield lambda: tensord.save_model({"x": torch.frombuffer(bytearray(data), dtype=torch.uint8)},
                                     f"tensord://127.0.0.1:{repo.port}/{repo.id}", options=repo.options)


@pytest.mark.parametrize("nbytes", [10, 40 * MIB])
@pytest.mark.parametrize("token, status, words", [
    (None, 401, "give a token by token= or TENSORD_TOKEN"), ("nonsense", 401, "the token was refused"),
    ("reader", 403, "the token needs the right to write this"), ("other", 403, "the token needs the right")])
def test_tokens(limited, nbytes, token, status, words):
    text = TokensFile.text(token) if token in ("reader", "other") else token
    repo = opened(limited.port, token=text)
    repo.port = limited.port
    for write in each_way(repo, bytes(nbytes)):
        with pytest.raises(tensord.AnswerError) as caught:
            write()
        assert caught.value.status == status and words in str(caught.value)
    with pytest.raises(tensord.AnswerError) as caught:
        repo.commit({"a": blob_of(b"")})
    assert caught.value.status == status
    received = sum(map(int, re.findall(r" received=(\d+)", limited.whole_log())))
    assert received < 8 * MIB  # a refusal comes before the bytes


@pytest.mark.parametrize("options, id, status, words", [
    ([], "org/m", (404, 411, 413), "--publish"),
    (["--publish", "any"], "org/a--b", (400,), ""),
    (["--publish", "any", "--publish-max-bytes", "2m"], "org/m", (507,), "raises --publish-max-bytes")])
def test_refusals_of_a_real_server_arrive(serve, options, id, status, words):
    server = serve(*options)
    repo = opened(server.port, id)
    repo.port = server.port
    for write in each_way(repo, bytes(40 * MIB)):
        with pytest.raises(tensord.AnswerError) as caught:
            write()
        assert caught.value.status in status and words in str(caught.value), str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).status == caught.value.status


def test_a_refusal_over_tls_arrives(serve, tmp_path):
    authority = pki.Authority(tmp_path)
    options = pki.options_of(authority.sign("server"))
    server = serve("--publish", "any", "--publish-max-bytes", "50m", *options, tls=authority.context())
    repo = Repository.open(f"tensords://localhost:{server.port}/org/m", ca_file=str(authority.cert), retry_for=5)
    data = bytes(60 * MIB)
    for write in (lambda: repo.send(data), lambda: streamed_whole(repo, data),
                  lambda: streamed_whole(repo, data, None)):
        with pytest.raises(tensord.AnswerError) as caught:
            write()
        assert caught.value.status == 507
    (tmp_path / "a.bin").write_bytes(DATA)
    blob = repo.send(tmp_path / "a.bin")
    assert streamed_whole(repo, DATA, None) == blob == blob_of(DATA)


def streamed_whole(repo, data, size=0):
    with repo.stream(len(data) if size == 0 else size) as out:
        out.write(data)
    return out.blob


@pytest.mark.parametrize("how", ["views", "file", "sized", "chunked"])
@pytest.mark.parametrize("early", [0, 3 * MIB])
def test_an_answer_before_the_end_of_the_body_is_heard(tmp_path, how, early):
    """The server reads a part of the body at most, answers, and closes, so that the rest is answered with a reset."""
    (tmp_path / "a.bin").write_bytes(DATA)

    def play(connection, head):
        if head.startswith(b"GET"):
            connection.sendall(refusing(404))
            return
        if early:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            read = 0
            while read < early:
                read += len(connection.recv(65536))
        connection.sendall(refusing(413, "too large"))

    with Script(play) as script:
        repo = opened(script.port)
        write = {"views": lambda: repo.send(DATA), "file": lambda: repo.send(tmp_path / "a.bin"),
                 "sized": lambda: streamed_whole(repo, DATA), "chunked": lambda: streamed_whole(repo, DATA, None)}[how]
        for _ in range(3):
            with pytest.raises(tensord.AnswerError, match="too large; it is more than the server takes"):
                write()


@pytest.mark.parametrize("status, fields, tries", [
    (503, {}, 3), (503, {"Retry_After": 1}, 3), (429, {}, 3), (500, {}, 3), (507, {"Retry_After": 0}, 3), (507, {}, 1)])
def test_a_server_that_is_busy_is_asked_again(status, fields, tries):
    left = {"PUT": 2, "POST": 2}

    def before(handler):
        if left.get(handler.command):
            left[handler.command] -= 1
            raise Refusal(status, "busy", **fields)

    with FakePublish() as fake:
        fake.before = before
        repo = opened(fake.port)
        begun = time.monotonic()
        if tries == 1:
            with pytest.raises(tensord.AnswerError, match="raises --publish-max-bytes"):
                repo.send(b"abc")
            return
        blob = repo.send(b"abc")
        assert repo.commit({"a": blob}).changed and left == {"PUT": 0, "POST": 0}
        assert time.monotonic() - begun >= 4 * fields.get("Retry_After", 0)


def test_wrong_bytes_are_dropped_and_raised():
    def play(connection, head):
        if head.startswith(b"GET"):
            connection.sendall(refusing(404))
        else:
            read_body(connection, head)
            connection.sendall(refusing(422, "another digest"))

    with Script(play) as script:
        for data in (b"abc", DATA):
            with pytest.raises(tensord.DigestError, match="changed while it was sent"):
                opened(script.port).send(data)
            with pytest.raises(tensord.DigestError):
                streamed_whole(opened(script.port), data)


# ---- wrong answers


def state(**changed):
    about = {"digest": blob_of(DATA).digest, "size": len(DATA), "complete": True, "missing": [], **changed}
    return json.dumps({name: value for name, value in about.items() if value is not ...}).encode()


WRONG = {
    "another digest": state(digest="sha256:" + "0" * 64), "another size": state(size=5), "a text": b'"x"',
    "no json": b"hello", "deep": b"[" * 100_000, "no digest": state(digest=...), "a digest of 3": state(digest="abc"),
    "size": state(size=-1), "true": state(size=True), "complete": state(complete="yes"), "missing": state(missing=7),
    "ranges": state(missing=[[5, 1]]), "html": b"<html></html>",
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_answers_about_a_blob(what):
    def play(connection, head):
        if head.startswith(b"GET"):
            connection.sendall(refusing(404))
        else:
            read_body(connection, head)
            connection.sendall(answer(201, WRONG[what]))

    with Script(play) as script:
        for write in (lambda repo: repo.send(DATA), lambda repo: streamed_whole(repo, DATA)):
            with pytest.raises((tensord.ProtocolError, tensord.DigestError)):
                write(opened(script.port, retry_for=1, connections=1))


@pytest.mark.parametrize("body", [
    b"", b"[]", b'{"commit": "zz"}', b"[" * 100_000,
    b'{"commit": 5, "revision": "main", "changed": true, "files": 1, "bytes": 1}',
    b'{"commit": "\\u001b[2J", "revision": "main", "changed": true, "files": 1, "bytes": 1}',
    b'{"commit": "abc", "revision": "main", "changed": 1, "files": 1, "bytes": 1}',
    b'{"commit": "abc", "revision": "main", "changed": true, "files": "many", "bytes": 1}'])
def test_wrong_answers_about_a_commit(body):
    with Script(lambda connection, head: connection.sendall(answer(201, body))) as script:
        with pytest.raises(tensord.ProtocolError):
            opened(script.port, retry_for=1).commit({"a": blob_of(b"")})


def forever(first, block):
    """Sends the same bytes again and again."""
    def play(connection, head):
        connection.sendall(first)
        while True:
            connection.sendall(block)

    return play


FLOODS = {
    "interim answers": forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "early hints": forever(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
    "a header": forever(b"HTTP/1.1 201 X\r\n", b"X-Field: value\r\n"),
    "a line": forever(b"HTTP/1.1 201 X\r\nX: ", b"x" * 1000),
    "a long body": forever(b"HTTP/1.1 201 X\r\nContent-Length: 999999999999\r\n\r\n", b" " * 65536),
    "chunks": forever(b"HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b" " * 65536 + b"\r\n"),
    "an error": forever(b"HTTP/1.1 409 X\r\nContent-Length: 999999999999\r\n\r\n", b" " * 65536),
    "no http": forever(b"", b"SSH-2.0-x\r\n"),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_floods_end(flood):
    """Time and memory are bounded, whatever comes, before the body and after it."""
    with Script(FLOODS[flood]) as script:
        for write in (lambda repo: repo.send(b"abc"), lambda repo: repo.send(DATA),
                      lambda repo: streamed_whole(repo, DATA, None), lambda repo: repo.commit({"a": blob_of(b"")})):
            begun = time.monotonic()
            with pytest.raises(tensord.TensordError):
                write(opened(script.port, retry_for=1, stall_timeout=2))
            assert time.monotonic() - begun < 40
    import resource
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 * MIB  # KiB


@pytest.mark.parametrize("how", ["views", "file", "chunked"])
def test_a_server_that_takes_nothing_has_failed(tmp_path, how):
    (tmp_path / "a.bin").write_bytes(DATA)

    def play(connection, head):
        if head.startswith(b"GET"):
            connection.sendall(refusing(404))
        else:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            time.sleep(60)

    with Script(play) as script:
        repo = opened(script.port, retry_for=1, stall_timeout=1, connections=1)
        write = {"views": lambda: repo.send(DATA), "file": lambda: repo.send(tmp_path / "a.bin"),
                 "chunked": lambda: streamed_whole(repo, DATA, None)}[how]
        with pytest.raises(tensord.ConnectError):
            write()


class Narrow(socket.socket):
    """A socket that takes 100 bytes in 0.3 s, as one does whose other end reads so few."""

    def send(self, data, *flags):
        time.sleep(0.3)
        return super().send(data[:100], *flags)


@pytest.mark.parametrize("size", [None, 0])
def test_a_server_that_takes_a_few_bytes_now_and_then_has_failed(monkeypatch, size):
    """Less than 1 KiB/s for stall_timeout, although each send passes some bytes."""
    connect = socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda *a, **b: Narrow(fileno=connect(*a, **b).detach()))
    with Script(lambda connection, head: read_body(connection, head)) as script:
        with pytest.raises(tensord.ConnectError, match="takes no more bytes: it took"):
            streamed_whole(opened(script.port, stall_timeout=2), DATA, size)


def test_an_end_of_the_connection_before_the_body_is_tried_again():
    """A server that closes in place of 100 Continue, such as one that is restarted."""
    left = [2]

    def play(connection, head):
        if left[0]:
            left[0] -= 1
            return
        read_body(connection, head)
        connection.sendall(answer(201, state()))

    with Script(play) as script:
        assert streamed_whole(opened(script.port), DATA) == blob_of(DATA)
        assert left == [0] and len(script.heads) == 3


def test_an_answer_may_come_late():
    """The server hashes and syncs after the last byte, for longer than stall_timeout."""
    def play(connection, head):
        read_body(connection, head)
        time.sleep(3)
        connection.sendall(answer(201, state(digest=blob_of(b"abc").digest, size=3)))

    with Script(play) as script:
        assert opened(script.port, stall_timeout=1).send(b"abc") == blob_of(b"abc")
        assert len(script.heads) == 1


def test_redirects_are_not_followed():
    with Script(lambda connection, head: connection.sendall(
            answer(307, b"", "Location: http://elsewhere.test/"))) as script:
        for write in (lambda repo: repo.send(b"abc"), lambda repo: streamed_whole(repo, DATA),
                      lambda repo: repo.commit({"a": blob_of(b"")})):
            with pytest.raises(tensord.AnswerError, match="redirects are not followed"):
                write(opened(script.port))


# ---- streams


def test_a_stream_of_a_known_size_has_this_size(serve):
    server = serve("--publish", "any")
    repo = opened(server.port)
    for size, data in ((5, b"abc"), (3 * MIB, bytes(2 * MIB)), (0, b"x")):
        with pytest.raises(ValueError, match="to a stream of"), repo.stream(size) as out:
            out.write(data)
        assert out.closed
    with pytest.raises(BufferError):
        repo.stream().write(memoryview(bytes(100))[::2])
    with repo.stream() as out:
        assert out.write(memoryview(b"abcdefgh").cast("H")) == 8 and out.writable()
        out.write(torch.arange(5).numpy())
    assert out.blob == blob_of(b"abcdefgh" + torch.arange(5).numpy().tobytes())
    with pytest.raises(ValueError, match="closed"):
        out.write(b"x")
    incoming = serve.root / ".tensord-publish/incoming"
    server.wait_for(lambda: not any(incoming.iterdir()), "the bytes of the aborted stream are dropped")


def test_memory_that_changes_after_write_does_not_change_the_blob(serve):
    server = serve("--publish", "any")
    buffer = bytearray(MIB // 2)
    digest = hashlib.sha256()
    with opened(server.port).stream() as out:
        for step in range(12):
            buffer[:] = bytes([step]) * len(buffer)
            digest.update(buffer)
            out.write(buffer)
    assert out.blob.digest == f"sha256:{digest.hexdigest()}"


# ---- processes and threads


def forked(do):
    """Runs a function in a child made by fork; its result must be true."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if do() else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_disturbs_neither_side(serve):
    server = serve("--publish", "any")
    repo = opened(server.port)
    repo.send(b"first")
    out = repo.stream()
    out.write(DATA)

    def in_child():
        with pytest.raises(tensord.TensordError, match="another process"):
            out.write(b"x")
        out.close()
        with pytest.raises(ValueError):
            out.blob
        return repo.send(DATA[:5 * MIB]) == blob_of(DATA[:5 * MIB])

    forked(in_child)
    forked(lambda: True)
    out.write(b"rest")
    out.close()
    assert out.blob == blob_of(DATA + b"rest")
    assert repo.commit({"a": out.blob, "b": blob_of(DATA[:5 * MIB])}).files == 2


def test_two_threads_use_one_repository(serve):
    server = serve("--publish", "any")
    repo, faults = opened(server.port), []

    def work(number):
        try:
            data = DATA[number:]
            with repo.stream() as out:
                for at in range(0, len(data), MIB):
                    out.write(data[at:at + MIB])
            assert out.blob == repo.send(data) == blob_of(data)
            repo.commit({f"{number}.bin": out.blob}, keep=True)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not faults and opened(server.port).names() == {f"{number}.bin" for number in range(4)}


INTERRUPTED = """
import sys, tensord, torch
tensord.save_model({str(i): torch.zeros(64 * 2**20) for i in range(4)}, sys.argv[1], max_shard_size="200MB")
"""


@pytest.mark.parametrize("how", ["save_model", "push"])
def test_an_interrupt_ends_the_work(tmp_path, how):
    (tmp_path / "here").mkdir()
    for name in "ab":
        with open(tmp_path / "here" / f"{name}.bin", "wb") as file:
            file.truncate(300 * MIB)
    taken = threading.Event()

    def play(connection, head):
        if head.startswith(b"GET"):
            connection.sendall(refusing(404))
        elif b"/commits" in head:
            digest = re.findall(rb"sha256:[0-9a-f]{64}", connection.recv(65536))[0].decode()
            connection.sendall(refusing(409, "missing", {"missing": [{"digest": digest}]}))
        else:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.recv(MIB)
            taken.set()
            time.sleep(60)

    with Script(play) as script:
        url = f"tensord://127.0.0.1:{script.port}/org/m"
        command = ["-c", INTERRUPTED, url] if how == "save_model" else ["-m", "tensord", "push",
                                                                         str(tmp_path / "here"), url]
        running = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
        try:
            assert taken.wait(60)
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=20)
        finally:
            running.kill()
        assert running.returncode in (130, -signal.SIGINT), said
        assert ("tensord: interrupted" if how == "push" else "KeyboardInterrupt") in said
