"""A server that answers nonsense: each is refused by a clear error, and nothing is done that it asks for."""
import http.server
import json
import threading

import pytest

import tensord

GOOD = {"model": "m", "checkpoint": "c", "format": "safetensors", "etag": "ab", "metadata": {}, "tensors": [
    {"name": "w", "dtype": "F32", "shape": [1024, 1024], "nbytes": 4194304, "file": "f", "offset": 0}]}


@pytest.fixture
def hostile():
    """A server whose answers a test sets: {method: bytes}; `seen` has the request lines."""
    answers, seen = {}, []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            seen.append(self.requestline)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.wfile.write(answers[self.command])

        do_GET = do_POST = answer

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    server.answers, server.seen = answers, seen
    server.url = f"tensord://127.0.0.1:{server.server_port}/m"
    yield server
    server.shutdown()
    server.server_close()


def answer(body, head="HTTP/1.1 200 OK"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"{head}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def load(server):
    return tensord.load_file(server.url, retry_for=0.3, stall_timeout=0.5)


@pytest.mark.parametrize("change", [
    {"shape": [1024, 1025]}, {"shape": [-1]}, {"shape": [2**70]}, {"shape": ["x"]}, {"shape": [1.5]},
    {"shape": [1] * 65, "nbytes": 4}, {"nbytes": 2**60}, {"nbytes": "4194304"}, {"shape": None}, {"name": ["w"]},
])
def test_manifests_whose_sizes_do_not_fit(hostile, change):
    hostile.answers["GET"] = answer({**GOOD, "tensors": [{**GOOD["tensors"][0], **change}]})
    with pytest.raises(tensord.ProtocolError, match="the manifest is not one of tensord"):
        load(hostile)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b"[" * 200000, b"<html>", b"\xff\xfe", b"null", b"1e999"])
def test_what_is_no_manifest(hostile, body):
    hostile.answers["GET"] = answer(body)
    with pytest.raises(tensord.ProtocolError, match="is this a tensord server|not one of tensord"):
        load(hostile)


@pytest.mark.parametrize("head", [
    b"", b"SSH-2.0-OpenSSH_9\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/2 200\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX" + b"x" * 70000,
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n123",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1e3\r\n\r\n",
])
def test_what_is_no_answer(hostile, head):
    hostile.answers["GET"] = head
    with pytest.raises((tensord.ProtocolError, tensord.ConnectError)) as caught:
        load(hostile)
    assert f"127.0.0.1:{hostile.server_port}" in str(caught.value)


@pytest.mark.parametrize("row", [
    {"href": "http://127.0.0.1:1/x"}, {"href": "//127.0.0.1:1/x"}, {"href": "/x\r\nX-Forged: 1"}, {"href": "/a b"},
    {"href": "x"}, {"href": 5}, {"etag": 'a"\r\nX: "b'}, {"etag": ""}, {"nbytes": -1}, {"nbytes": "5"},
    {"nbytes": True},
])
def test_plans_lead_nowhere_else(hostile, row):
    hostile.answers["GET"] = answer(GOOD)
    plan = {"ranks": [{"rank": 0, "href": "/models/m/plans/p/boxes.bin", "etag": "e", "nbytes": 4194304, **row}]}
    hostile.answers["POST"] = answer(plan)
    with pytest.raises(tensord.ProtocolError, match="answered a plan with the path|answered no plan"):
        load(hostile)
    assert {line.split()[1] for line in hostile.seen} == {"/models/m/tensors", "/models/m/plans"}


def test_a_redirect_is_refused_with_its_status(hostile):
    hostile.answers["GET"] = answer(b"", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/models/m/tensors")
    with pytest.raises(tensord.AnswerError, match="302"):
        load(hostile)


def test_tokens_are_sent_and_never_shown(hostile, monkeypatch):
    hostile.answers["GET"] = answer({"error": {"code": 401, "status": "X", "message": "who"}}, "HTTP/1.1 401 No")
    monkeypatch.setenv("TENSORD_TOKEN", "sesame-17")
    with pytest.raises(tensord.AnswerError, match="401: who; give a token by token= or TENSORD_TOKEN") as caught:
        load(hostile)
    assert "sesame" not in str(caught.value)
    monkeypatch.setenv("TENSORD_TOKEN", "sesame\r\nX-Forged: 1")
    with pytest.raises(ValueError, match="characters that HTTP does not allow"):
        load(hostile)


@pytest.mark.parametrize("url, text", [
    ("http://user:word@host/models/m", "token="), ("ftp://host/m", "begins with http://"), ("", "begins with"),
    ("host:8080/m", "begins with"), ("http://host:99999/models/m", "port"), ("http:///models/m", "no host"),
    ("tensord://host/m?revision=1", "only checkpoint="), ("http://a/models/m,http://b/models/n", "different models"),
    ("tensord://host", "no model is named"),
])
def test_urls_that_name_no_model(url, text):
    with pytest.raises(tensord.AddressError, match=text) as caught:
        tensord.load_file(url)
    assert "word@" not in str(caught.value)


def test_names_are_encoded_in_requests(hostile):
    hostile.answers["GET"] = answer({"error": {"message": "no"}}, "HTTP/1.1 404 Not Found")
    for name in ("a b", "a\r\nX: 1", "ü", "../..", "a?b#c"):
        with pytest.raises(tensord.NotFoundError):
            tensord.connect(f"http://127.0.0.1:{hostile.server_port}", retry_for=0.3).manifest(name)
    assert hostile.seen[0] == "GET /models/a%20b/tensors HTTP/1.1"
    assert hostile.seen[1] == "GET /models/a%0D%0AX%3A%201/tensors HTTP/1.1"
    assert hostile.seen[4] == "GET /models/a%3Fb%23c/tensors HTTP/1.1"
