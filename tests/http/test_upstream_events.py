"""A server with --upstream follows the events of a tensord: a fetched model that changes there is fetched again."""
import contextlib
import http.server
import socketserver
import threading
import time

import pytest

from harness import safetensors_bytes, tensor
from publishing import Repo
from signing import TokensFile
from upstream_kit import cache, count, hubs, model, published  # noqa: F401

ID = "org/name"
FILE = f"/models/{ID}/files/model.safetensors"


def weights(salt, rows=4):
    return safetensors_bytes([tensor("w", "F32", [rows, 6], str(salt))])


def files(salt):
    return {"config.json": b'{"model_type": "llama"}', "model.safetensors": weights(salt)}


@pytest.fixture
def origin(tmp_path, start):
    (tmp_path / "origin").mkdir()
    return start(tmp_path / "origin", "--publish", "local", settle="0")


def url_of(s):
    return f"http://127.0.0.1:{s.port}"


def push(s, salt, name=ID, **more):
    answer = Repo(s.port, name).push(files(salt), **more)[0]
    assert answer.status in (200, 201), answer
    return answer.json()["commit"]


def following(s):
    s.wait_for(lambda: count(s, "following") == 1, "the events are followed", 20)


def fetch(s, name=ID):
    """Have a model fetched to its end."""
    s.wait_for(lambda: s.get(f"/models/{name}").status == 200, f"{name} is fetched", 20)
    published(s, name)


def followed(origin, cache, *names):    # noqa: F811
    """Start a cache that has these models of the origin and follows its events."""
    for name in names:
        push(origin, 0, name)
    s = cache(url_of(origin))
    for name in names:
        fetch(s, name)
    following(s)
    return s


def await_bytes(s, data, timeout=20, target=FILE):
    def has():
        answer = s.get(target)
        return answer.status == 200 and answer.body == data
    s.wait_for(has, "the cache has the new bytes", timeout)


def test_a_new_commit_is_seen_at_once(origin, cache):   # noqa: F811
    """Without events a model that is complete is not compared with the upstream again."""
    s = followed(origin, cache, ID)
    for salt in range(1, 4):
        commit = push(origin, salt)
        answered = time.monotonic()
        await_bytes(s, weights(salt))
        assert time.monotonic() - answered < 2
        published(s, ID)
        s.wait_for(lambda c=commit: s.json(f"/api/models/{ID}")["sha"] == c, "the commit is the new one")
    assert count(s, "renewed_total") == 3


def test_other_models_stay(origin, cache):      # noqa: F811
    s = followed(origin, cache, ID, "org/other")
    begun = count(s, "begun_total")
    push(origin, 0, "org/third")                                        # not fetched here
    push(origin, 5, revision="v1")                                      # another branch
    push(origin, 1, "org/other")
    await_bytes(s, weights(1), target="/models/org/other/files/model.safetensors")
    assert s.get(FILE).body == weights(0)
    assert count(s, "begun_total") == begun + 1 and count(s, "renewed_total") == 1


def test_a_model_that_is_removed_there_stays(origin, cache):    # noqa: F811
    s = followed(origin, cache, ID)
    assert Repo(origin.port, ID).ask("DELETE").status == 204
    push(origin, 0, "org/after")
    time.sleep(1)
    assert s.get(FILE).body == weights(0)
    push(origin, 2)         # published again
    await_bytes(s, weights(2))


@pytest.mark.parametrize("others", [0, 8000])
def test_changes_while_the_cache_was_away(tmp_path, origin, cache, start, others):  # noqa: F811
    """others: folders beside the kept models; with many, the cache compares before its first scan has ended."""
    push(origin, 0)
    push(origin, 0, "org/other")
    s = cache(url_of(origin))
    fetch(s), fetch(s, "org/other")
    s.stop()
    push(origin, 1)
    for i in range(others):
        (tmp_path / "cache" / "others" / str(i)).mkdir(parents=True)
    s = start(tmp_path / "cache", "--upstream", url_of(origin), hash_threads=1)
    await_bytes(s, weights(1))
    s.wait_for(lambda: count(s, "renewed_total") == 1, "one model was another one")
    time.sleep(1)
    assert count(s, "renewed_total") == 1 and count(s, "begun_total") == 1      # the other one is the same


def test_an_upstream_that_starts_again(tmp_path, start, cache):     # noqa: F811
    """Its events have other ids then: the cache compares, and fetches what has changed alone."""
    (tmp_path / "origin").mkdir()
    with_port = [tmp_path / "origin", "--publish", "local"]
    origin = start(*with_port, settle="0", hash_threads=1)
    port = origin.port
    s = followed(origin, cache, ID, "org/other")
    begun = count(s, "begun_total")
    origin.stop()
    again = start(*with_port, "--listen", f"127.0.0.1:{port}", settle="0", hash_threads=1)
    push(again, 1)
    await_bytes(s, weights(1), 30)
    s.wait_for(lambda: count(s, "following") == 1, "the events are followed again", 30)
    time.sleep(1)
    assert count(s, "begun_total") == begun + 1
    assert "ERROR" not in s.stderr()


def test_a_copy_that_the_operator_has_changed_stays(origin, cache):     # noqa: F811
    s = followed(origin, cache, ID)
    (s.root / ID / "notes.txt").write_text("of the operator")
    push(origin, 1)
    s.wait_for(lambda: "was changed here, and stays" in s.stderr(), "the log says so", 20)
    assert s.get(FILE).body == weights(0) and (s.root / ID / "notes.txt").exists()


def test_an_upstream_with_tokens(tmp_path, start, cache):       # noqa: F811
    (tmp_path / "origin").mkdir()
    tokens = TokensFile(tmp_path / "tokens.json").add("writer", rights=("read", "write")).add("cache", ["org/*"])
    origin = start(tmp_path / "origin", "--publish", "local", "--tokens", str(tokens), settle="0")
    (tmp_path / "token").write_text(tokens.text("cache") + "\n")
    repo = Repo(origin.port, ID, headers=tokens.bearer("writer"))
    assert repo.push(files(0))[0].status == 201
    s = cache(url_of(origin), "--upstream-token-file", tmp_path / "token")
    fetch(s)
    following(s)
    assert repo.push(files(1))[0].status == 201
    await_bytes(s, weights(1))


def test_a_chain(origin, cache):    # noqa: F811
    push(origin, 0)
    rack = cache(url_of(origin), root="rack")
    node = cache(url_of(rack), root="node")
    fetch(rack), fetch(node)
    following(rack), following(node)
    push(origin, 1)
    await_bytes(rack, weights(1))
    await_bytes(node, weights(1), 30)


def test_an_upstream_without_events(hubs, cache):       # noqa: F811
    hub = hubs({ID: model()})
    s = cache(hub.url)
    time.sleep(0.5)
    assert hub.requests == []       # there is nothing to follow
    fetch(s)
    s.wait_for(lambda: "it has no events" in s.stderr(), "the log says so", 20)
    time.sleep(1)
    assert count(s, "following") == 0
    assert s.stderr().count("upstream: it") == 1 and "ERROR" not in s.stderr(), s.stderr()


# ---------------------------------------------------------------------------------------------- hostile upstreams

@pytest.fixture
def kept_cache(tmp_path, hubs, cache, start):     # noqa: F811
    """Start a server that has a fetched model: kept_cache(url)."""
    first = cache(hubs({ID: files(0)}).url)
    fetch(first)
    first.stop()
    return lambda url: start(tmp_path / "cache", "--upstream", url)


class Hostile(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        if self.path.startswith("/events"):
            with contextlib.suppress(OSError):
                self.wfile.write(self.server.head)
                self.server.speak(self.wfile.write)
            self.close_connection = True
        else:
            body = b'{"name": "tensord", "version": "1"}' if self.path == "/version" else b"{}"
            self.send_response(200 if self.path == "/version" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)


BEGINNING = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"


@contextlib.contextmanager
def hostile(speak, head=BEGINNING + b"\r\n"):
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Hostile)
    server.daemon_threads, server.asked, server.speak, server.head = True, [], speak, head
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def endless_line(write):
    while True:
        write(b"data: " + b"x" * 65536)


def endless_event(write):
    while True:
        write(b"data: " + b"x" * 8000 + b"\n")


def too_many(write):
    while True:
        write(b'event: replaced\ndata: {"kind":"model","id":"org/name"}\n\n' * 1000)


def comments(write):
    while True:
        write(b":" + b"x" * 8000 + b"\n")


@pytest.mark.parametrize("speak, word", [(endless_line, "16384 bytes"), (endless_event, "65536 bytes"),
                                         (too_many, "too many"), (comments, "too many")])
def test_events_that_have_no_end(kept_cache, speak, word):
    with hostile(speak) as (server, url):
        s = kept_cache(url)
        s.wait_for(lambda: word in s.stderr(), "the log says why", 60)
        before = s.anon_bytes()
        time.sleep(2)
        asked = [path for path, _ in server.asked if path.startswith("/events")]
        assert len(asked) == 1, asked       # not again at once
        assert s.get("/models").status == 200 and s.anon_bytes() < before + (64 << 20)


def test_a_header_that_has_no_end(kept_cache):
    """docs/security.md: it is an error after a bounded number of bytes."""
    def fields(write):
        while True:
            write(b"X-Field: " + b"x" * 1000 + b"\r\n")

    with hostile(fields, BEGINNING) as (_, url):
        s = kept_cache(url)
        s.wait_for(lambda: "the header of the answer has more than" in s.stderr(), "the log says why", 60)
        assert count(s, "following") == 0 and s.get("/models").status == 200


def test_events_that_mean_nothing(kept_cache):
    lines = [b"event: replaced\ndata: nonsense\n\n", b"event: replaced\ndata: []\n\n", b"data: {}\n\n",
             b'event: replaced\ndata: {"kind":"model","id":7}\n\n',
             b'event: replaced\ndata: {"kind":"model","id":"../../etc"}\n\n',
             b'event: replaced\ndata: {"kind":"model","id":"' + b"a/" * 5000 + b'"}\n\n',
             b'event: published\ndata: ' + b"[" * 10000 + b"\n\n",
             b"event: reset\ndata: x\n\n" * 50, b"id: \x00\nid: a\r\nid: b\rdata: 1\r\r", b"\xff\xfe\n\n"]
    done = threading.Event()

    def speak(write):
        for line in lines:
            write(line)
        done.set()
        time.sleep(30)

    with hostile(speak) as (server, url):
        s = kept_cache(url)
        assert done.wait(20)
        following(s)
        s.wait_for(lambda: any(path.startswith(f"/api/models/{ID}/") for path, _ in server.asked), "it compares")
        time.sleep(0.5)
        known = ("/events", "/version", f"/api/models/{ID}/")       # the model that it has, and no other
        assert all(path.startswith(known) for path, _ in server.asked), server.asked
        assert s.get(FILE).body == weights(0)       # the upstream answers 404 for it


def test_the_last_id_is_sent_again(kept_cache):
    def speak(write):
        write(b"retry: 1\nid: abc-7\n\n")

    with hostile(speak) as (server, url):
        s = kept_cache(url)
        def fields_of():
            return [{k.lower(): v for k, v in headers.items()} for path, headers in server.asked if path == "/events"]
        s.wait_for(lambda: len(fields_of()) >= 3, "it has asked three times", 30)
        fields = fields_of()
        assert "last-event-id" not in fields[0] and fields[0]["accept"] == "text/event-stream"
        assert [f["last-event-id"] for f in fields[1:3]] == ["abc-7"] * 2
