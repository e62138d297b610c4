"""Bodies of requests: only with POST and a Content-Length, bounded in size and time, and harmless to later requests."""
import contextlib
import json
import time

import pytest

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


def head(length, *headers):
    return request_bytes(READ, [("Content-Length", str(length)), *headers], "POST")


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


# shows: security.md client-bodies
def test_of_unknown_length(srv):
    with srv.conn() as c:
        c.send(request_bytes(READ, [("Transfer-Encoding", "chunked")], "POST") + b"5\r\nhello\r\n0\r\n\r\n")
        check_error(c.read_response("POST"), 411, "Content-Length")
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
