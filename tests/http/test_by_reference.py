"""Answers that the kernel sends by reference (sendfile): the bytes that a client has not read yet are the file's own
pages, so a write in place would show in them. The server keeps the file's lease until the client has read them."""
import collections
import contextlib
import os
import threading
import time

import pytest

import harness
from harness import Conn, age, request_bytes, tensor, write_by_hand

ROOM = 1 << 20
URL = "/models/m/tensors/w"
SHORT = 128 << 10
# Bytes of the tensor, each fits a receive buffer; whether a short request comes first, so that the connection is of the
# shared lane: server/mhd/sender in either lane, and libmicrohttpd; and what is requested: one run, or one behind a
# header.
CASES = {"shared-short": (SHORT, True, ""), "own": (300 << 10, False, ""), "shared-long": (300 << 10, True, ""),
         "own-runs": (300 << 10, False, "?format=npy")}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture
def root(tmp_path, case):
    root = tmp_path / "root"
    for model in ("m", "other"):
        write_by_hand(root / model / "model.safetensors", [tensor("w", "U8", [case[0]])])
    age(root)
    return root


@pytest.fixture
def unread_answer(case):
    """Return a function that requests the tensor and reads nothing, until all of the answer is in the client's own
    socket. It returns the connection."""
    def go(stack, srv, then=b""):
        c = stack.enter_context(contextlib.closing(Conn(srv.port, timeout=60, rcvbuf=ROOM)))
        if case[1]:
            assert c.request(URL, [("Range", "bytes=0-0")]).status == 206
        before = ways(srv)["file"]
        c.send(request_bytes(URL + case[2]) + then)
        srv.wait_for(lambda: ways(srv)["file"] == before + 1, "the answer is complete")
        return c
    return go


def data_of(root):
    data = (root / "m" / "model.safetensors").read_bytes()
    return data[-(len(data) >> 10 << 10):]    # behind the header, which is shorter than 1 KiB


def ways_of(metrics):
    return {labels["way"]: v for name, labels, v in metrics[2] if name == "tensord_http_answers_total"}


def ways(srv):
    return ways_of(srv.metrics())


class Writer(threading.Thread):
    """Writes zeros over the tensor, in place. Opening the file waits for the lease."""

    def __init__(self, root):
        super().__init__(daemon=True)
        self.path, self.count, self.waited = root / "m" / "model.safetensors", len(data_of(root)), None

    def run(self):
        begun = time.monotonic()
        fd = os.open(self.path, os.O_WRONLY)
        self.waited = time.monotonic() - begun
        os.pwrite(fd, bytes(self.count), os.fstat(fd).st_size - self.count)
        os.close(fd)


def test_each_answer_is_counted_by_its_way(root, start):
    s = start(root, "--leases", "on")
    scrapes = collections.Counter()
    scraper = Conn(s.port)

    def others():
        """Return the ways of all answers but those of this function, once none is on its way: an answer is counted
        after its last byte."""
        for _ in range(1000):
            r = scraper.request("/metrics")
            metrics = harness.parse_metrics(r.body.decode())
            counted = collections.Counter(ways_of(metrics))
            counted.subtract(scrapes)
            scrapes["copy" if len(r.body) <= 8192 else "memory"] += 1
            if [v for name, _, v in metrics[2] if name == "tensord_http_requests_in_flight"] == [1]:
                return counted
        raise AssertionError("answers stay on their way")

    for target, headers, way in [
        (URL, [], "file"),
        (URL, [("Range", "bytes=5-8196")], "copy"),                     # 8,192 bytes
        (URL, [("Range", "bytes=5-8197")], "memory"),
        (URL, [("Range", "bytes=5-32772")], "memory"),                  # 32,768 bytes
        (URL, [("Range", "bytes=5-32773")], "file"),
        (URL, [("Connection", "close")], "memory"),                     # no further request would prove anything
        (URL, [("Range", "bytes=0-99")], "copy"),
        (URL, [("Range", "bytes=0-20000,40000-60000")], "memory"),      # short runs
        (URL, [("Range", "bytes=0-40000,50000-99999")], "file"),        # long runs
        (URL + "?format=npy", [], "file"),
    ]:
        before = others()
        assert s.get(target, headers).status in (200, 206)
        grown = others()
        grown.subtract(before)
        assert {w: n for w, n in grown.items() if n} == {way: 1}, (target, headers, grown)
    scraper.close()
    s = start(root, "--leases", "off")
    assert s.get(URL).status == 200
    s.wait_for(lambda: ways(s)["checked"] == 1, "the answer is counted")
    assert ways(s)["file"] == 0


# shows: security.md file-unread-answer
def test_a_writer_waits_until_the_answer_is_read(root, start, unread_answer):
    """Without the lease that is kept, all bytes would be the writer's."""
    want = data_of(root)
    s = start(root)
    with contextlib.ExitStack() as stack:
        c = unread_answer(stack, s)
        writer = Writer(root)
        writer.start()
        time.sleep(1.5)
        assert writer.waited is None, "the writer did not wait for the reader"
        r = c.read_response()
        assert r.status == 200 and r.body.endswith(want)
        writer.join(10)
        assert 1.4 < writer.waited < 10
    s.wait_for(lambda: s.get(URL).status in (200, 503), "the server continues")


def test_a_writer_does_not_wait_for_what_was_read(root, start, unread_answer):
    """Neither on an idle connection, nor on one that continued with another file, nor on one that the client closed."""
    s = start(root)
    with contextlib.ExitStack() as stack:
        idle, further, closed = (unread_answer(stack, s) for _ in range(3))
        for c in (idle, further, closed):
            assert c.read_response().status == 200
        further.send(request_bytes("/models/other/tensors/w"))
        closed.close()
        writer = Writer(root)
        writer.start()
        writer.join(10)
        assert writer.waited is not None and writer.waited < 1, writer.waited
        assert further.read_response().status == 200


# shows: security.md file-unread-answer
def test_a_client_that_pipelines_proves_nothing_by_its_next_request(root, start, unread_answer):
    want = data_of(root)
    s = start(root)
    with contextlib.ExitStack() as stack:
        c = unread_answer(stack, s, then=request_bytes("/version"))
        s.wait_for(lambda: s.gauge("tensord_http_requests_in_flight") == 1, "both are answered")
        writer = Writer(root)
        writer.start()
        time.sleep(1)
        assert writer.waited is None
        assert c.read_response().body.endswith(want) and c.read_response().status == 200
        writer.join(10)
        assert writer.waited is not None


# shows: security.md file-unread-answer
def test_the_lease_outlives_the_connection(root, start, unread_answer):
    """The server ends the idle connection while its last answer is unread."""
    want = data_of(root)
    s = start(root, "--idle-timeout", 1)
    with contextlib.ExitStack() as stack:
        c = unread_answer(stack, s)
        s.wait_for(lambda: s.gauge("tensord_http_connections") == 1, "the idle connection is closed")
        writer = Writer(root)
        writer.start()
        time.sleep(1)
        assert writer.waited is None
        assert c.read_response().body.endswith(want)
        writer.join(10)
        assert writer.waited is not None


def test_a_file_declared_immutable_needs_no_lease(root, start):
    """Another user's file is sent by reference when the operator promises that nobody writes to it."""
    for option, way in (("mutable", "checked"), ("immutable", "file")):
        s = start(root, "--files", option, "--leases", "off")
        assert s.get(URL).body == data_of(root)
        s.wait_for(lambda: ways(s)[way] == 1, f"the answer is counted as {way}")
    part = root / "part"
    write_by_hand(part / "model.safetensors", [tensor("w", "U8", [SHORT], "2")])
    age(part)
    os.replace(part / "model.safetensors", root / "m" / "model.safetensors")
    s.wait_for(lambda: s.get(URL).body == data_of(root), "a file that is replaced by rename is seen")
