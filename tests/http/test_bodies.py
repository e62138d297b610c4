"""Bodies of requests: only with POST, with a length or in chunks, bounded in size and time, and harmless to later
requests. test_body_forms.py has every route that reads one."""
import contextlib
import json
import random
import time

import pytest

import pki
from harness import Server, check_error, request_bytes, tensor, write_by_hand

LONG = 16 << 20                            # more than sockets hold
READ = "/models/m/tensors:read"
GOOD = json.dumps({"tensors": [{"name": "t"}]}).encode()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("bodies")
    (root / "m").mkdir()
    write_by_hand(root / "m" / "model.safetensors", [tensor("t", "U8", [1000]), tensor("long", "U8", [LONG])])
    return root


@pytest.fixture(scope="module")
def srv(root):
    s = Server(root, "--max-body-bytes", "4096", "--body-timeout", "1.5")
    yield s
    s.stop()


@pytest.fixture(scope="module", params=["own thread", "shared thread", "no shared threads", "tls"])
def lane(request, root, tmp_path_factory):
    """Returns a function that connects to a server, in each way in which connections are served."""
    options = ["--max-body-bytes", "4096", "--body-timeout", "1.5"]
    context = None
    if request.param == "tls":
        authority = pki.Authority(tmp_path_factory.mktemp("pki"))
        context = authority.context()
        options += pki.options_of(authority.sign("server"))
    if request.param == "no shared threads":
        options += ["--workers", "0"]
    s = Server(root, *options, tls=context)

    def connect():
        c = s.conn()
        if request.param == "shared thread":  # the first request decides
            assert c.request("/models").status == 200
        return c

    yield connect
    s.stop()


def head(length, *headers):
    return request_bytes(READ, [("Content-Length", str(length)), *headers], "POST")


def chunked(*headers):
    return request_bytes(READ, [("Transfer-Encoding", "chunked"), *headers], "POST")


def chunk(data, extension=""):
    return f"{len(data):x}{extension}\r\n".encode() + data + b"\r\n"


END = b"0\r\n\r\n"


# shows: security.md client-bodies
def test_several_on_one_connection(srv):
    with srv.conn() as c:
        for i in range(5):
            assert c.request(READ, method="POST", body=GOOD + b" " * i * 100).length == 1000
            assert c.request("/healthz").status == 200
        c.send(head(len(GOOD)) + GOOD + request_bytes("/healthz") + head(len(GOOD)) + GOOD)  # pipelined
        assert [c.read_response().status for _ in range(3)] == [200] * 3


def test_in_pieces(srv):
    with srv.conn() as c:
        c.send(head(len(GOOD)))
        for b in GOOD:
            c.send(bytes([b]))
            time.sleep(0.005)
        assert c.read_response("POST").length == 1000


def test_100_continue(srv):
    with srv.conn() as c:
        c.send(head(len(GOOD), ("Expect", "100-continue")))
        assert c.read_head().status == 100
        c.send(GOOD)
        assert c.read_response("POST").length == 1000


# shows: security.md client-bodies
def test_too_long(srv):
    with srv.conn() as c:
        c.send(head(4097))  # refused before any byte of it was received
        check_error(c.read_response("POST"), 413, "--max-body-bytes")
        assert c.ended()
    with srv.conn() as c:
        body = GOOD + b" " * (4096 - len(GOOD))
        assert c.request(READ, method="POST", body=body).status == 200


# ---- chunks (RFC 9112 7.1)


def test_in_chunks(lane):
    """Chunks of all sizes, extensions and trailers, and requests behind them that are read from where the body ends."""
    rng = random.Random(3)
    body = GOOD + b" " * 3000
    parts, at = [], 0
    while at < len(body):
        n = rng.choice([1, 2, 15, 16, 255, 1000])
        parts.append(chunk(body[at:at + n], rng.choice(["", ";a", ';name="v"', " ;x=y;z"[1:]])))
        at += n
    with lane() as c:
        for trailers in (b"", b"X-Sum: abc\r\nContent-Length: 7\r\nTransfer-Encoding: gzip\r\n"):
            c.send(chunked() + b"".join(parts) + b"0\r\n" + trailers + b"\r\n")
            assert c.read_response("POST").length == 1000
            assert c.request("/healthz").status == 200
        c.send(chunked() + chunk(GOOD) + END + request_bytes("/healthz") + chunked() + chunk(GOOD) + END +
               head(len(GOOD)) + GOOD + request_bytes("/models"))  # pipelined
        answers = [c.read_response() for _ in range(5)]
        assert [r.status for r in answers] == [200] * 5 and [r.length for r in answers[2:4]] == [1000] * 2


def test_chunks_in_pieces(lane):
    with lane() as c:
        c.send(chunked())
        for b in chunk(GOOD, ";ext=1") + b"0\r\nX: y\r\n\r\n":
            c.send(bytes([b]))
            time.sleep(0.002)
        assert c.read_response("POST").length == 1000


def test_chunks_without_a_byte(lane):
    with lane() as c:
        c.send(chunked() + END)
        check_error(c.read_response("POST"), 400)
        assert c.request(READ, method="POST", body=GOOD).status == 200


def test_100_continue_and_chunks(lane):
    with lane() as c:
        c.send(chunked(("Expect", "100-continue")))
        assert c.read_head().status == 100
        c.send(chunk(GOOD) + END)
        assert c.read_response("POST").length == 1000


# shows: security.md client-bodies
def test_chunks_past_the_limit(lane):
    """The rest is read and dropped, the answer comes after the end, and the connection serves the next request."""
    with lane() as c:
        for body in (GOOD + b" " * (4097 - len(GOOD)), b" " * 300_000):
            c.send(chunked() + b"".join(chunk(body[at:at + 1000]) for at in range(0, len(body), 1000)) + END)
            check_error(c.read_response("POST"), 413, "--max-body-bytes")
            assert c.request("/healthz").status == 200
        c.send(chunked() + chunk(GOOD + b" " * (4096 - len(GOOD))) + END)
        assert c.read_response("POST").status == 200


# shows: security.md client-bodies
def test_chunks_without_an_end(srv):
    """At most 64 MiB more than the longest body are read."""
    sent = 0
    piece = chunk(b" " * 65536)
    with srv.conn() as c:
        c.send(chunked())
        with pytest.raises(ConnectionError):
            while sent < 256 << 20:
                c.send(piece)
                sent += 65536
    assert 64 << 20 <= sent < 128 << 20
    assert srv.post(READ, GOOD).status == 200


# shows: security.md client-bodies
def test_chunks_that_drip(lane):
    """--body-timeout counts for all chunks together."""
    began = time.monotonic()
    with lane() as c:
        c.send(chunked())
        with pytest.raises((ConnectionError, AssertionError)):
            for _ in range(100):
                c.send(chunk(b" "))
                time.sleep(0.1)
                assert not c.ended(0.001)
    assert 1.3 < time.monotonic() - began < 10


@pytest.mark.parametrize("body", [b"-1\r\n", b"g\r\n", b"\r\n", b"ffffffffffffffff1\r\nx", b"0x5\r\nhello\r\n",
                                  b" 5\r\nhello\r\n", b"5\r\nhelloworld\r\n", b"5\r\nhello5\r\n"])
# shows: security.md client-malformed
def test_chunks_that_are_none(lane, body):
    """No request behind a broken chunk is executed."""
    with lane() as c:
        c.send(chunked() + chunk(GOOD) + body + b"0\r\n\r\n" + request_bytes("/healthz"))
        r = c.read_response("POST")
        assert r.status in (400, 413) and c.ended(), (r, c.buf)


@pytest.mark.parametrize("fields, version", [
    ([("Transfer-Encoding", "chunked"), ("Content-Length", "5")], "HTTP/1.1"),
    ([("Content-Length", "0"), ("Transfer-Encoding", "chunked")], "HTTP/1.1"),
    ([("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")], "HTTP/1.1"),
    ([("Transfer-Encoding", "gzip, chunked")], "HTTP/1.1"), ([("Transfer-Encoding", "identity")], "HTTP/1.1"),
    ([("Transfer-Encoding", "chunked")], "HTTP/1.0")])
# shows: security.md client-malformed
def test_one_way_to_state_a_length(lane, fields, version):
    """RFC 9112 6.1 and 6.3: anything else may be understood differently by a proxy."""
    with lane() as c:
        c.send(request_bytes(READ, fields, "POST", version) + chunk(GOOD) + END + request_bytes("/healthz"))
        check_error(c.read_response("POST"), 400, "Transfer-Encoding")
        assert c.ended()


# shows: security.md client-bodies
def test_all_chunks_together_are_bounded(srv):
    """They count as they come, as bodies with a length do."""
    with contextlib.ExitStack() as stack:
        conns = [stack.enter_context(contextlib.closing(srv.conn(source="127.0.0.2"))) for _ in range(5)]
        for c in conns:
            c.send(chunked() + chunk(b" " * 4090))
            time.sleep(0.05)
        conns[4].send(END)
        check_error(conns[4].read_response("POST"), 503, "half of the memory set aside for bodies, its share")
        assert srv.post(READ, GOOD + b" " * 3000).status == 200
    srv.wait_for(lambda: srv.post(READ, GOOD).status == 200, "memory is there again")


def test_no_room_is_taken_by_chunks_where_nobody_reads_them(srv):
    with srv.conn() as c:
        c.send(request_bytes("/models", [("Transfer-Encoding", "chunked")], "POST"))
        check_error(c.read_response("POST"), 405)  # at once
        assert c.ended()


@pytest.mark.parametrize(
    "target",
    ["/models", "/models/m", "/models/m/tensors", "/models/m/files/model.safetensors", "/healthz", "/nothing"])
# shows: security.md client-bodies
def test_where_there_is_no_use_for_one(srv, target):
    with srv.conn() as c:
        c.send(request_bytes(target, [("Content-Length", "1000")], "POST"))
        check_error(c.read_response("POST"), (404, 405))  # at once, without waiting for the body
        assert c.ended()


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("fields", [[("Content-Length", "5")], [("Transfer-Encoding", "chunked")]])
@pytest.mark.parametrize("target,allow", [("/models", ("GET", "HEAD")),
                                          ("/models/m/files/model.safetensors", ("GET", "HEAD")), (READ, ("POST", )),
                                          ("/api/models/m", ("GET", "HEAD"))])
def test_methods_that_there_are_not(srv, method, fields, target, allow):
    """RFC 9110 15.5.6: 405 with Allow. The body is not read, so the connection ends."""
    with srv.conn() as c:
        c.send(
            request_bytes(target, fields, method) + b"5\r\nhello\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
        r = c.read_response(method)
        assert r.status == 405 and r.get("Connection") == "close", r
        assert {word.strip() for word in r.get("Allow").split(",")} == set(allow), r
        assert c.ended(), "the body was taken for a request"


# shows: security.md client-bodies
def test_one_that_never_comes(srv):
    began = time.monotonic()
    with srv.conn() as c:
        c.send(head(100) + b"{")
        assert c.ended(10)
    assert 1.3 < time.monotonic() - began < 6
    with srv.conn() as c:  # a byte now and then does not help
        c.send(head(4000))
        began = time.monotonic()
        with pytest.raises((ConnectionError, AssertionError)):
            for _ in range(60):
                c.send(b" ")
                time.sleep(0.1)
                assert not c.ended(0.001)
        assert time.monotonic() - began < 6
    assert srv.get("/healthz").status == 200


# shows: security.md client-bodies
def test_all_together_are_bounded(srv):
    """The server reads bodies of eight times the longest at once, and half of that of one address."""
    sources = ["127.0.0.2"] * 4 + ["127.0.0.3"] * 4 + ["127.0.0.4"] * 2 + ["127.0.0.2"]
    conns = [srv.conn(source=source) for source in sources]
    try:
        for c in conns:
            c.send(head(4096))  # an announced body takes no memory
        assert srv.post(READ, GOOD).status == 200
        for c in conns[:4]:
            c.send(b" " * 4090)
            time.sleep(0.05)
        conns[10].send(b" " * 4096)
        check_error(conns[10].read_response("POST"), 503, "half of the memory set aside for bodies, its share")
        assert srv.post(READ, GOOD + b" " * 3000).status == 200  # another address has its own half
        for c in conns[4:9]:
            c.send(b" " * 4090)
            time.sleep(0.05)
        conns[8].send(b" " * 6)
        check_error(conns[8].read_response("POST"), 503, "other requests take all the memory")
    finally:
        for c in conns:
            c.close()
    srv.wait_for(lambda: srv.post(READ, GOOD).status == 200, "memory is there again")


# shows: security.md client-bodies
def test_what_is_refused_takes_no_memory(srv):
    """An address that sends more than its half leaves the other half to the others."""
    with contextlib.ExitStack() as stack:
        for _ in range(9):
            c = stack.enter_context(contextlib.closing(srv.conn(source="127.0.0.2")))
            c.send(head(4096) + b" " * 4090)
        time.sleep(0.2)
        conns = [stack.enter_context(contextlib.closing(srv.conn(source="127.0.0.3"))) for _ in range(4)]
        for c in conns:
            c.send(head(4096) + GOOD + b" " * (4090 - len(GOOD)))
        for c in conns:
            c.send(b" " * 6)
            assert c.read_response("POST").status == 200


# shows: security.md client-bodies
def test_slow_readers_of_answers_do_not_hold_bodies(srv):
    """A body counts until its request has been handled, not until the answer has been read."""
    long = json.dumps({"tensors": [{"name": "long"}]}).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            c = stack.enter_context(contextlib.closing(srv.conn(rcvbuf=4096)))
            c.send(head(4096) + long + b" " * (4096 - len(long)))
            r = c.read_head()
            assert (r.status, r.length) == (200, LONG)
        assert srv.gauge("tensord_http_requests_in_flight") >= 8      # their answers are being sent
        assert srv.post(READ, GOOD).status == 200


def test_nothing_is_kept(srv):
    srv.post(READ, GOOD)
    before = srv.anon_bytes()
    for _ in range(300):
        assert srv.post(READ, GOOD + b" " * 3000).status == 200
    assert srv.anon_bytes() - before < 32 << 20
    assert srv.gauge("tensord_http_requests_in_flight") <= 1
