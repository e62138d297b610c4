"""Tensors that the server unpacks: damage is found once, and nothing is unpacked that nobody waits for.

tests/interop/test_decoded.py compares the bytes with those of the formats' own libraries.
"""
import time

import pytest

from fixtures import write_zeros_npz
from harness import age, check_error, request_bytes

DAMAGED_BYTES = 128 << 20
LONG_BYTES = (4 << 30) - (16 << 20)    # the most that a deflated tensor may have, but for a block
MATRIX_BYTES = 512 << 20               # twice --decode-memory, so that not all columns can stay unpacked
DRAIN_S = 1


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("decoded") / "root"
    write_zeros_npz(root / "damaged.npz", DAMAGED_BYTES, damaged=True)
    write_zeros_npz(root / "matrix.npz", MATRIX_BYTES, columns=256)
    write_zeros_npz(root / "long0.npz", LONG_BYTES)
    for i in range(1, 4):
        (root / f"long{i}.npz").write_bytes((root / "long0.npz").read_bytes())
    age(root)
    return root


def unpacked(s):
    """Return how often something was unpacked."""
    return s.gauge("tensord_decode_cache_misses_total")


# shows: security.md content-damaged-requests
def test_damage_is_found_once(root, start):
    """Every request for a damaged stream gets the same error, and the stream is unpacked once, for the first."""
    s = start(root)
    href = "/models/damaged.npz/tensors/a"
    first = s.get(href, timeout=300)
    text = check_error(first, 422, "damaged.npz", "CRC")["message"]
    before = unpacked(s)
    assert before >= 1
    for _ in range(20):
        for headers in ([], [("Range", "bytes=0-0")], [("Range", "bytes=-10")], [("Range", "bytes=100000-20000000")]):
            answer = s.get(href, headers)
            assert answer.status == 422 and answer.body == first.body, answer
        assert s.head(href).status == 422
        for query in ("?slice=5:9", "?format=npy"):
            assert check_error(s.get(href + query), 422)["message"] == text
        read = s.post("/models/damaged.npz/tensors:read", {"tensors": [{"name": "a", "slice": "7:8"}]})
        assert check_error(read, 422)["message"] == text
    assert unpacked(s) == before


def test_head_unpacks_no_stream(root, start):
    """The length is known without unpacking. Known damage is reported; a condition that holds is a 304 at once."""
    s = start(root)
    for query, length in (("", DAMAGED_BYTES), ("?slice=0:9", 9)):
        target = "/models/damaged.npz/tensors/a" + query
        head = s.head(target)
        assert (head.status, head.length) == (200, length), head
        assert s.head(target, [("If-None-Match", head.etag)]).status == 304
        assert s.get(target, [("If-None-Match", head.etag)]).status == 304
    assert s.head("/models/damaged.npz/model.safetensors").status == 200
    assert unpacked(s) == 0
    check_error(s.get("/models/damaged.npz/tensors/a", timeout=300), 422, "CRC")
    before = unpacked(s)
    for target in ("tensors/a", "tensors/a?slice=0:9", "model.safetensors"):
        assert s.head("/models/damaged.npz/" + target).status == 422, target
    assert unpacked(s) == before


def ends_within_the_drain(s, count):
    """SIGTERM while `count` requests need unpacking: they are cut after the drain, and unpacking ends with them."""
    s.term()
    assert s.wait_exit(DRAIN_S + 15) == 0
    cut = f"--drain-timeout is over: cutting {count} connection{'' if count == 1 else 's'}; "
    assert cut in s.stderr(), s.stderr()[-1000:]


# shows: security.md host-sigterm-unpacking
def test_sigterm_while_long_streams_are_unpacked(root, start):
    """Four streams take most of a minute of processor time; twice as many requests wait."""
    s = start(root, "--drain-timeout", DRAIN_S)
    conns = [s.conn() for _ in range(12)]
    for i, c in enumerate(conns):
        c.send(request_bytes(f"/models/long{i % 4}.npz/tensors/a", [("Range", "bytes=-1")]))
    s.wait_for(lambda: unpacked(s) >= 4 and s.gauge("tensord_http_requests_in_flight") >= 12, "they are being unpacked")
    ends_within_the_drain(s, 12)
    for c in conns:
        c.close()


# shows: security.md content-transposed host-sigterm-unpacking
def test_sigterm_while_a_matrix_is_read_across_its_columns(root, start):
    """Each row has an element of every column, and half of the columns are no longer unpacked when they are needed."""
    s = start(root, "--drain-timeout", DRAIN_S)
    href = "/models/matrix.npz/tensors/a"
    assert s.get(href, [("Range", "bytes=0-0")], timeout=300).body == b"\0"
    before = unpacked(s)
    with s.conn() as c:
        c.send(request_bytes(href, [("Range", "bytes=1000000-1032000")]))
        s.wait_for(lambda: unpacked(s) > before + 2, "it is being read")
        ends_within_the_drain(s, 1)


# shows: security.md content-transposed
def test_a_client_that_leaves_ends_unpacking(root, start):
    s = start(root)
    href = "/models/matrix.npz/tensors/a"
    assert s.get(href, [("Range", "bytes=0-0")], timeout=300).body == b"\0"
    before = unpacked(s)
    with s.conn() as c:
        c.send(request_bytes(href, [("Range", "bytes=1000000-1032000")]))
        s.wait_for(lambda: unpacked(s) > before + 2, "it is being read")
    s.wait_for(lambda: s.gauge("tensord_http_requests_in_flight") == 1, "only the request for metrics", timeout=20)
    before = unpacked(s)
    time.sleep(1)
    assert unpacked(s) == before
