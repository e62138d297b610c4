"""Each phase of a connection has one option that bounds it, and no other option ends it: docs/configuration.md.

Every server here has one short timeout and all others long, or one long and all others short.
"""
import json
import time

import pytest

from fixtures import write_zeros_npz
from harness import age, pattern, request_bytes, tensor, write_by_hand

TIMEOUTS = ("--header-timeout", "--body-timeout", "--idle-timeout", "--send-timeout")
READ = "/models/m/tensors:read"
BODY = json.dumps({"tensors": [{"name": "small"}]}).encode()
BIG_BYTES = 48 << 20
ZEROS_BYTES = 1 << 30
PAUSE = 3.5  # longer than the short timeout by more than the second to which a timeout may be rounded


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("deadlines") / "root"
    write_by_hand(root / "m/model.safetensors", [tensor("small", "U8", [4096]), tensor("big", "U8", [BIG_BYTES])])
    age(root)
    return root


def arguments(name, own, others):
    """The options that set the timeout called `name` to `own` seconds and the rest to `others`."""
    out = ["--min-rate", 0]
    for option in TIMEOUTS:
        out += [option, own if option == name else others]
    return out


def begin_nothing(c):
    pass


def begin_header(c):
    c.send(b"GET /models/m/tensors/small HTTP/1.1\r\nHost: h\r\n")


def begin_body(c):
    c.send(request_bytes(READ, [("Content-Length", str(len(BODY)))], "POST") + BODY[:10])


def begin_answer(c):
    c.send(request_bytes("/models/m/tensors/big"))
    assert c.read_head().status == 200


def begin_idle(c):
    assert c.request("/models/m/tensors/small").body == pattern(4096, "small")


PHASES = {
    # name: (what begins it, the option that ends it)
    "a new connection": (begin_nothing, "--header-timeout"),
    "a header": (begin_header, "--header-timeout"),
    "a body": (begin_body, "--body-timeout"),
    "an answer": (begin_answer, "--send-timeout"),
    "between requests": (begin_idle, "--idle-timeout"),
}


@pytest.mark.parametrize("phase", PHASES)
# shows: security.md client-deadlines
def test_its_own_timeout_ends_a_phase(root, start, phase):
    begin, option = PHASES[phase]
    s = start(root, *arguments(option, 1, 3600))
    with s.conn(rcvbuf=4096) as c:
        begin(c)
        s.wait_for(lambda: s.gauge("tensord_http_connections") == 1, "only the connection that asks", timeout=20)
        if phase != "an answer":
            assert c.ended(5), "the server let go of the connection without closing it"


# shows: security.md client-deadlines
def test_no_other_timeout_ends_an_answer(root, start):
    """A reader that takes nothing for a while, in the middle of an answer, gets all of it."""
    s = start(root, *arguments("--send-timeout", 60, 1))
    with s.conn(rcvbuf=1 << 19) as c:
        c.send(request_bytes("/models/m/tensors/big"))
        head = c.read_head()
        body = c.read_exact(1 << 20, head)
        time.sleep(PAUSE)
        body += c.read_exact(BIG_BYTES - len(body), head)
        assert body == pattern(BIG_BYTES, "big")


# shows: security.md client-deadlines
def test_no_other_timeout_ends_a_header(root, start):
    s = start(root, *arguments("--header-timeout", 60, 1))
    with s.conn() as c:
        begin_header(c)
        time.sleep(PAUSE)
        c.send(b"\r\n")
        assert c.read_response().body == pattern(4096, "small")


# shows: security.md client-deadlines
def test_no_other_timeout_ends_a_body(root, start):
    s = start(root, *arguments("--body-timeout", 60, 1))
    with s.conn() as c:
        begin_body(c)
        time.sleep(PAUSE)
        c.send(BODY[10:])
        assert c.read_response("POST").body == pattern(4096, "small")


# shows: security.md client-deadlines
def test_no_other_timeout_ends_the_time_between_requests(root, start):
    s = start(root, *arguments("--idle-timeout", 60, 1))
    with s.conn() as c:
        begin_idle(c)
        time.sleep(PAUSE)
        begin_idle(c)


# shows: security.md client-deadlines
def test_no_other_timeout_ends_the_handling_of_a_request(root, start, tmp_path):
    """The first byte of a deflated tensor comes when all of it has been unpacked, which takes longer than a second."""
    write_zeros_npz(tmp_path / "z.npz", ZEROS_BYTES)
    age(tmp_path)
    s = start(tmp_path, *arguments("", 1, 1), "--header-timeout", 60)
    r = s.get("/models/z.npz/tensors/a", [("Range", "bytes=0-0")], timeout=300)
    assert (r.status, r.body) == (206, b"\0")
