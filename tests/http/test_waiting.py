"""GET /models/{id}?wait=ETAG&timeout=SECONDS: the answer comes when the model changes, or as a 304 at the timeout."""
import contextlib
import os
import re
import socket
import threading
import time
from pathlib import Path

import pytest

from harness import Conn, check_error, enc, request_bytes, safetensors_bytes, tensor

LONG = 300  # seconds: the longest timeout; no test waits for it


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def write(root, name, salt):
    """Put a checkpoint of always the same size and names into place, as a trainer does: by a rename."""
    path = root / name / "model.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(".new")
    new.write_bytes(safetensors_bytes([tensor("w", "F32", [100], str(salt))]))
    os.replace(new, path)


def rescan(s):
    answer = s.request("/rescan", method="POST")
    assert answer.status == 200, answer


def publish(s, name, salt):
    write(s.root, name, salt)
    rescan(s)


@pytest.fixture
def serve(root, start):
    """Serve the model `demo`, and whatever is in the root. Nothing is scanned unless it is asked for."""
    def go(*args, **kw):
        if not (root / "demo").exists():
            write(root, "demo", 0)
        return start(root, *args, **{"settle": "0", "rescan": "0"} | kw)
    return go


def target(tag, name="demo", **parameters):
    query = "&".join(f"{k}={v}" for k, v in {"wait": enc(tag), "timeout": LONG, **parameters}.items() if v is not None)
    return f"/models/{name}?{query}"


def tag_of(s, name="demo"):
    return s.get(f"/models/{name}").etag


def waiting(s, count):
    s.wait_for(lambda: s.gauge("tensord_waiters") == count, f"{count} requests wait", timeout=30)


class Waiter:
    """A request that has been sent, and whose answer comes later. `split`: in two pieces, for a thread of its own."""

    def __init__(self, s, path, headers=(), method="GET", split=False):
        self.conn, self.method, self.path = Conn(s.port, timeout=60), method, path
        head = request_bytes(path, headers, method, port=s.port)
        if split:
            self.conn.send(head[:10])
            time.sleep(0.3)
        self.conn.send(head[10 if split else 0:])

    def answer(self):
        with self.conn:
            return self.conn.read_response(self.method, self.path)


def threads(s):
    return int(re.search(r"Threads:\s*(\d+)", Path(f"/proc/{s.pid}/status").read_text())[1])


@pytest.mark.parametrize("workers", ["2", "0"])
def test_a_change_ends_the_wait_of_all(serve, workers):
    """Tags with and without quotes, either spelling of the id, GET and HEAD, a browser, either lane."""
    with serve("--workers", workers) as s:
        tag = tag_of(s)
        bare = tag.strip('"')
        waiters = [Waiter(s, target(tag)), Waiter(s, target(bare)), Waiter(s, target(f"W/{tag}")),
                   Waiter(s, f"/models/demo?wait={bare}"), Waiter(s, target(tag, "local/demo")),
                   Waiter(s, target(tag, timeout=None)), Waiter(s, target(tag), split=True),
                   Waiter(s, target(tag, "demo/"), {"Accept": "text/html"}), Waiter(s, target(tag), method="HEAD")]
        waiting(s, len(waiters))
        publish(s, "demo", 1)
        now = s.get("/models/demo")
        assert now.etag != tag
        for waiter in waiters:
            answer = waiter.answer()
            assert (answer.status, answer.etag, answer.length) == (200, now.etag, len(now.body)), answer
            assert answer.body == (b"" if waiter.method == "HEAD" else now.body)
            assert answer.get("Content-Type") == "application/json"
        waiting(s, 0)


def test_a_tag_that_is_not_the_current_one_is_answered_at_once(serve):
    with serve() as s:
        old = tag_of(s)
        publish(s, "demo", 1)
        now = s.get("/models/demo")
        for tag in (old, old.strip('"'), "", '"', "x", '""', "*", "W/", now.etag[1:33], now.etag[:20], "a" * 2000):
            answer = s.get(target(tag))
            assert (answer.status, answer.etag, answer.body) == (200, now.etag, now.body), tag
        page = s.get("/models/demo/", {"Accept": "text/html"})
        assert "html" in page.get("Content-Type")  # without wait nothing is different
        assert s.get(target(page.etag)).body == now.body
        part = s.get(target(old), {"Range": "bytes=0-9"})
        assert (part.status, part.body) == (206, now.body[:10])
        assert s.get(target(old), {"If-None-Match": now.etag}).status == 304


def test_the_timeout_without_news(serve):
    """304 with the tag and the fields of any other 304 of this target; the connection lives on."""
    with serve() as s, Conn(s.port) as c:
        now = c.request("/models/demo")
        began = time.monotonic()
        answer = c.request(target(now.etag, timeout=1))
        assert time.monotonic() - began >= 1
        assert (answer.status, answer.etag, answer.body) == (304, now.etag, b"")
        usual = c.request("/models/demo", {"If-None-Match": now.etag})
        assert (usual.status, usual.names(), usual.length) == (304, answer.names(), answer.length)
        assert c.request(target(now.etag, timeout=0)).status == 304
        assert c.request(target(now.etag, timeout=0), method="HEAD").status == 304
        assert c.request("/models/demo").body == now.body


def test_wrong_parameters(serve):
    with serve() as s:
        tag = tag_of(s)
        for timeout in ("301", "-1", "1.5", "1s", "", "99999999999999999999999"):
            check_error(s.get(target(tag, timeout=timeout)), 400, "timeout must be a whole number from 0 to 300")
        check_error(s.get("/models/demo?timeout=301"), 400, "timeout must be a whole number from 0 to 300")
        assert s.get("/models/demo?timeout=300").status == 200
        check_error(s.get(f"/models/demo?wait={tag}"), 400, "must be percent-encoded")  # quotes, RFC 3986
        check_error(s.get(target(tag, waits="1")), 400, "known here: wait, timeout")
        check_error(s.get(f"/models/demo?wait={enc(tag)}&wait={enc(tag)}"), 400, "given twice")
        check_error(s.get(target(tag, "demo/tensors")), 400, "unknown query parameter")


def test_a_digest_that_becomes_known_is_no_change(serve, root):
    """Not while a request waits, and not for a client whose tag is from before, even from before a restart."""
    with serve() as s:
        before = s.get("/models/demo")
        assert "sha256" not in before.json()["files"][0]
    big = root / "big" / "x.bin"
    big.parent.mkdir()
    with open(big, "wb") as f:
        f.truncate(32 << 20)
    write(root, "big", 0)
    with serve(hash_threads=1) as s:
        waiters = [Waiter(s, target(tag_of(s, "big"), "big")), Waiter(s, target(before.etag))]
        s.wait_hashed()
        now = s.get("/models/demo")
        assert "sha256" in now.json()["files"][0] and now.etag != before.etag
        assert s.get("/models/demo", {"If-None-Match": before.etag}).status == 200
        waiting(s, 2)
        answer = s.get(target(before.etag, timeout=1))
        assert (answer.status, answer.etag) == (304, now.etag)
        publish(s, "demo", 1)
        publish(s, "big", 1)
        assert [w.answer().status for w in waiters] == [200, 200]


def test_other_models_are_no_change(serve):
    with serve() as s:
        tag = tag_of(s)
        waiter = Waiter(s, target(tag))
        waiting(s, 1)
        for i in range(3):
            publish(s, "other", i)
        assert s.get(target(tag, timeout=0)).status == 304
        assert s.gauge("tensord_waiters") == 1
        (s.root / "demo/config.json").write_text('{"a": 1}')
        rescan(s)
        assert waiter.answer().json()["config"] == {"a": 1}


@pytest.mark.parametrize("workers", ["2", "0"])
def test_a_model_that_disappears(serve, workers):
    with serve("--workers", workers) as s:
        check_error(s.get(target('"x"', "nothing")), 404, "nothing", "not found")
        waiters = [Waiter(s, target(tag_of(s), name)) for name in ("demo", "local/demo")]
        waiting(s, 2)
        os.rename(s.root / "demo", s.root / "moved")
        rescan(s)
        for waiter in waiters:
            check_error(waiter.answer(), 404, "not found")


def test_odd_ids(serve, root):
    names = ["a b", "a+b", "ü", "%41", "org/name", "a/b/c", "q?x=1", "x#y", "a&wait=1", "w.safetensors/x"]
    for name in names:
        write(root, name, 0)
    with serve() as s:
        waiters = [Waiter(s, target(tag_of(s, enc(name)), enc(name))) for name in names]
        waiters += [Waiter(s, target(tag_of(s, "org/name"), "org/name"))]
        waiting(s, len(waiters))
        for name in names:
            write(root, name, 1)
        rescan(s)
        for waiter, name in zip(waiters, [*names, "org/name"]):
            answer = waiter.answer()
            assert (answer.status, answer.json()["id"]) == (200, name), answer


@pytest.mark.parametrize("workers", ["2", "0"])
# shows: security.md host-waiters
def test_at_most_max_waiters(serve, workers):
    """Beyond --max-waiters: 503. A client that goes away leaves its place to others."""
    with serve("--max-waiters", "2", "--workers", workers) as s:
        tag = tag_of(s)
        waiters = [Waiter(s, target(tag)) for _ in range(2)]
        waiting(s, 2)
        refused = s.get(target(tag))
        check_error(refused, 503, "as many requests wait for a change as --max-waiters allows")
        assert int(refused.get("Retry-After")) >= 1
        assert s.get(target("x")).status == 200 and s.get(target(tag, timeout=0)).status == 304  # these do not wait
        waiters.pop().conn.close()
        waiting(s, 1)
        waiters.append(Waiter(s, target(tag)))
        waiting(s, 2)
        publish(s, "demo", 1)
        assert [w.answer().status for w in waiters] == [200, 200]


def test_a_client_that_sends_nothing_more_does_not_wait(serve):
    """TCP does not distinguish a client that has closed its sending side from one that is gone; it gets the answer of a
    timeout."""
    with serve() as s:
        tag = tag_of(s)
        waiter = Waiter(s, target(tag))
        waiting(s, 1)
        waiter.conn.sock.shutdown(socket.SHUT_WR)
        assert waiter.answer().status == 304


def test_no_waiters_at_all(serve):
    with serve("--max-waiters", "0") as s:
        assert s.get(target(tag_of(s))).status == 503


# shows: security.md host-waiters
def test_500_waiters_take_no_threads(serve):
    """They cost no thread while they wait, and at most eight while they are answered, all at once."""
    count = 500
    with serve("--max-connections-per-address", "600") as s, contextlib.ExitStack() as stack:
        tag = tag_of(s)
        before = threads(s)
        waiters = [Waiter(s, target(tag)) for _ in range(count)]
        for waiter in waiters:
            stack.enter_context(waiter.conn)
        waiting(s, count)
        assert threads(s) <= before + 2  # jobs of the requests for metrics and for the tag
        assert s.get("/models/demo").etag == tag
        write(s.root, "demo", 1)
        publishing = threading.Thread(target=rescan, args=(s,))
        publishing.start()
        most = 0
        while s.alive() and publishing.is_alive():
            most = max(most, threads(s))
        publishing.join()
        began = time.monotonic()
        answers = [waiter.answer() for waiter in waiters]
        assert time.monotonic() - began < 10  # under a sanitizer, on a busy machine; 0.1 s in a release build
        assert {(a.status, a.etag) for a in answers} == {(200, tag_of(s))}
        assert most <= before + 12


@pytest.mark.parametrize("workers", ["2", "0"])
# shows: security.md host-sigterm-waiters
def test_sigterm_ends_all_waits(serve, workers):
    with serve("--workers", workers, "--drain-timeout", "120") as s:
        tag = tag_of(s)
        waiters = [Waiter(s, target(tag)) for _ in range(20)] + [Waiter(s, target(tag), split=True)]
        waiting(s, len(waiters))
        s.term()
        for waiter in waiters:
            answer = waiter.answer()
            assert (answer.status, answer.etag, answer.get("Connection")) == (304, tag, "close")
        assert s.wait_exit(30) == 0


def test_a_second_signal_does_not_wait_for_waiters(serve):
    """The server's end itself answers those that came while it drained."""
    with serve("--drain-delay", "60") as s:
        tag = tag_of(s)
        waiter = Waiter(s, target(tag))
        waiting(s, 1)
        s.term()
        assert waiter.answer().status == 304
        assert s.get(target(tag)).status == 304  # nobody waits any more
        s.term()
        assert s.wait_exit(30) == 0


def test_waiting_is_not_slowness(serve):
    """The log shows the time of waiting apart from `seconds`, which the histogram counts; in_flight leaves it out."""
    with serve() as s:
        tag = tag_of(s)
        waiters = [Waiter(s, target(tag, timeout=2)), Waiter(s, target(tag, timeout=2), split=True)]
        waiting(s, 2)
        types, helps, _ = s.metrics()
        assert types["tensord_waiters"] == "gauge" and helps["tensord_waiters"]
        s.wait_for(lambda: s.gauge("tensord_http_requests_in_flight") == 1, "only the request for the metrics is made")
        spent = s.gauge("tensord_http_request_duration_seconds_sum")
        for waiter in waiters:
            answer = waiter.answer()
            assert answer.status == 304
            timing = re.search(r"total;dur=([0-9.]+)", answer.get("Server-Timing") or "")
            assert timing is None or float(timing[1]) < 1500
        lines = [line for line in s.whole_log().splitlines() if "wait=" in line]
        assert len(lines) == 2
        for line in lines:
            found = re.search(r" status=304 .* seconds=([0-9.]+) route=model waited=([0-9.]+)", line)
            assert found and float(found[1]) < 1.5 <= float(found[2]), line
        assert s.gauge("tensord_http_request_duration_seconds_sum") - spent < 1.5
        s.wait_for(lambda: s.gauge("tensord_http_requests_in_flight") == 1, "only the request for the metrics is made")
        assert s.gauge("tensord_waiters") == 0
        assert all("waited=" not in line for line in s.log().splitlines() if "wait=" not in line)


@pytest.mark.parametrize("workers", ["2", "0"])
def test_no_change_is_missed(serve, workers):
    """Readers that wait with the tag of the last answer see the last of many quick changes, and never the same tag
    twice, although changes come between their requests."""
    with serve("--workers", workers) as s:
        faults = []

        def follow():
            with Conn(s.port, timeout=60) as c:
                answer = c.request("/models/demo")
                while not answer.json()["config"]:
                    tag = answer.etag
                    answer = c.request(target(tag, timeout=30))
                    if answer.status != 200 or answer.etag == tag:
                        faults.append(answer)
                        return

        readers = [threading.Thread(target=follow) for _ in range(4)]
        for reader in readers:
            reader.start()
        waiting(s, 4)
        for i in range(1, 9):
            publish(s, "demo", i)
        (s.root / "demo/config.json").write_text('{"step": 9}')
        rescan(s)
        for reader in readers:
            reader.join(60)
        assert not faults and not any(reader.is_alive() for reader in readers)
