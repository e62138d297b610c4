"""A server that answers nonsense: each is refused by a clear error, and nothing is done that it asks for."""
import http.server
import json
import re
import socket
import threading
import time

import pytest
import torch

import tensord
from tensord.net.progress import Progress

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
            self.wfile.write(self.server.answers[self.command])

        do_GET = do_POST = do_HEAD = answer

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
    {"shape": [1] * 65, "nbytes": 4}, {"offset": "x"}, {"file": 7}, {"alias_of": 3}, {"addressable": 0}, {"dtype": []},
    {"sha256": 1}, {"sha256": "A" * 64}, {"sha256": ""},
    {"name": "\ud800"}, {"nbytes": 2**60}, {"nbytes": "4194304"}, {"shape": None}, {"name": ["w"]},
])
# shows: security.md python-manifests
def test_manifests_whose_sizes_do_not_fit(hostile, change):
    hostile.answers["GET"] = answer({**GOOD, "tensors": [{**GOOD["tensors"][0], **change}]})
    with pytest.raises(tensord.ProtocolError, match="the manifest is malformed"):
        load(hostile)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b"[" * 200000, b"<html>", b"\xff\xfe", b"null", b"1e999"])
# shows: security.md python-manifests
def test_what_is_no_manifest(hostile, body):
    hostile.answers["GET"] = answer(body)
    with pytest.raises(tensord.ProtocolError, match="is this a tensord server|the manifest is malformed"):
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
# shows: security.md python-answers
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
# shows: security.md python-paths
def test_plans_lead_nowhere_else(hostile, row):
    hostile.answers["GET"] = answer(GOOD)
    plan = {"ranks": [{"rank": 0, "href": "/models/m/plans/p/boxes.bin", "etag": "e", "nbytes": 4194304, **row}]}
    hostile.answers["POST"] = answer(plan)
    with pytest.raises(tensord.ProtocolError, match="answered a plan with the path|did not answer with a plan"):
        load(hostile)
    assert {line.split()[1] for line in hostile.seen} == {"/models/m/tensors", "/models/m/plans"}


# shows: security.md python-paths
def test_a_redirect_is_refused_with_its_status(hostile):
    hostile.answers["GET"] = answer(b"", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/models/m/tensors")
    with pytest.raises(tensord.AnswerError, match="302"):
        load(hostile)


# shows: security.md python-tokens
def test_tokens_are_sent_and_never_shown(hostile, monkeypatch):
    hostile.answers["GET"] = answer({"error": {"code": 401, "status": "X", "message": "who"}}, "HTTP/1.1 401 No")
    monkeypatch.setenv("TENSORD_TOKEN", "sesame-17")
    with pytest.raises(tensord.AnswerError, match="401: who; the token was refused") as caught:
        load(hostile)
    assert "sesame" not in str(caught.value)
    monkeypatch.setenv("TENSORD_TOKEN", "sesame\r\nX-Forged: 1")
    with pytest.raises(ValueError, match="TENSORD_TOKEN has a space.* HTTP does not allow"):
        load(hostile)


@pytest.mark.parametrize("url, text", [
    ("http://user:word@host/models/m", "TENSORD_TOKEN"), ("ftp://host/m", "use http://"), ("", "is not the URL of"),
    ("host:8080/m", "is not the URL of"), ("http://host:99999/models/m", "port"), ("http:///models/m", "no host"),
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


# shows: security.md python-unserved-tensors
def test_a_tensor_without_a_reason_is_not_left_unfilled(hostile):
    row = {**GOOD["tensors"][0], "nbytes": 0, "addressable": False, "reason": ""}
    hostile.answers["GET"] = answer({**GOOD, "tensors": [row]})
    target = {"w": torch.full((1024, 1024), 7.0, dtype=torch.float64)}
    with pytest.raises(tensord.TensordError, match="its bytes cannot be served"):
        tensord.load_into(target, hostile.url, dtype="any")


# shows: security.md python-manifests
def test_one_name_has_one_tensor(hostile):
    hostile.answers["GET"] = answer({**GOOD, "tensors": [GOOD["tensors"][0]] * 2})
    with pytest.raises(tensord.ProtocolError, match="a name that two tensors have"):
        load(hostile)


# shows: security.md python-manifests
def test_a_manifest_is_of_the_model_that_was_asked_for(hostile):
    """Its name goes into later requests, which other servers get too."""
    hostile.answers["GET"] = answer({**GOOD, "model": "../../internal/admin"})
    with pytest.raises(tensord.ProtocolError, match=r"the manifest of '../../internal/admin' instead of 'm'"):
        load(hostile)
    assert len(hostile.seen) == 1


class Endless:
    """A server that answers each connection with a beginning, and then with the same bytes for ever."""

    def __init__(self, begin, again=b"", every=0.0):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.begin, self.again, self.every = begin, again, every
        self.heads = []
        self.url = f"tensord://127.0.0.1:{self.listener.getsockname()[1]}/m"
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection):
        try:
            self.heads.append(connection.recv(65536))
            connection.sendall(self.begin)
            while self.again:
                connection.sendall(self.again)
                time.sleep(self.every)
            connection.recv(1)
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()  # it must not accept from the descriptor, which another listener may get
        self.listener.close()


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("begin, again, every, error", [
    (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0, "interim answers"),
    (b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 0, "interim answers"),
    (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"Trailer: x\r\n", 0, "lines after a body"),
    (OK, b"X", 0.2, "did not end a header within 0.5 s"),
], ids=["100", "103", "trailers", "drip"])
# shows: security.md python-answers
def test_answers_without_an_end(begin, again, every, error):
    began = time.monotonic()
    with Endless(begin, again, every) as server, pytest.raises(tensord.TensordError, match=error):
        tensord.load_file(server.url, retry_for=0.3, stall_timeout=0.5)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("head, error", [
    (b"HTTP/1.1 \xb200 OK\r\n\r\n", "does not answer in HTTP/1.1"),
    (b"SSH-2.0-OpenSSH_9.7\r\n", "does not answer in HTTP/1.1"),
    (OK + b'ETag: "a"\nX-Forged: 1\r\nContent-Length: 2\r\n\r\n{}', "control characters"),
    (OK + b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}", "control characters"),
    (OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", "coding that was not requested .*gzip"),
    (OK + b"Transfer-Encoding: gzip, chunked\r\nContent-Length: 2\r\n\r\n{}", "coding that was not requested"),
    (OK + b"Content-Length: 99999999999\r\n\r\n", "bytes; the limit is"),
    (b"HTTP/1.1 404 No\r\nContent-Length: 60000\r\n\r\n" + b"[" * 60000, "404: the answer has no message"),
    (b"HTTP/1.1 302 Found\r\nLocation: http://x/\x1b]0;y\x07\r\nContent-Length: 0\r\n\r\n", "control characters"),
    (b"HTTP/1.1 302 Found\r\nLocation: http://x/y\r\nContent-Length: 0\r\n\r\n",
     "redirects to http://x/y; redirects are not followed"),
], ids=range(10))
# shows: security.md python-answers
def test_heads_that_are_refused(head, error):
    with Endless(head) as server, pytest.raises(tensord.TensordError, match=error):
        tensord.load_file(server.url, retry_for=0.3, stall_timeout=0.5)
    assert b"Accept-Encoding: identity" in server.heads[0]


@pytest.mark.parametrize("page", [{"models": None}, [], {"models": 7}, {"models": [{}]}, {"models": [{"id": "a/../b"}]},
                                  {"models": [], "next_page_token": "t"}])
# shows: security.md python-lists
def test_lists_of_models(hostile, page):
    hostile.answers["GET"] = answer(page)
    with pytest.raises(tensord.ProtocolError, match="the list of models"):
        tensord.connect(hostile.url.rpartition("/")[0]).models()


# shows: security.md python-lists
def test_a_list_of_models_that_does_not_end(hostile, monkeypatch):
    import tensord.client

    monkeypatch.setattr(tensord.net.pages, "MAX_ROWS", 50)
    row = {"id": "a", "total_bytes": 1, "checkpoints": []}
    hostile.answers["GET"] = answer({"models": [row] * 7, "next_page_token": "same"})
    with pytest.raises(tensord.ProtocolError, match="does not end: 56 were read"):
        tensord.connect(hostile.url.rpartition("/")[0]).models()


def peak():
    with open("/proc/self/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) // 1024


# shows: security.md python-memory
def test_memory_is_used_by_what_comes(hostile):
    """3 GB are promised, by a manifest or a file's length, and nothing is sent."""
    rows = [{"name": "w", "dtype": "U8", "shape": [3 * 10**9], "nbytes": 3 * 10**9, "file": "f", "offset": 0}]
    hostile.answers["GET"] = answer({**GOOD, "tensors": rows})
    plan = {"ranks": [{"href": "/plan", "etag": "a", "nbytes": 3 * 10**9}]}
    hostile.answers["POST"] = answer(plan)
    before = peak()
    most = []
    is_over = threading.Event()

    def measure():
        while not is_over.wait(0.01):
            most.append(peak())

    watch = threading.Thread(target=measure, daemon=True)
    watch.start()
    with pytest.raises(tensord.TensordError):
        tensord.open_model(hostile.url, retry_for=0.5, stall_timeout=0.3).read_bytes("w")
    is_over.set()
    watch.join()
    assert max(most) - before < 200


# shows: security.md python-paths
def test_names_of_files_lead_nowhere_else(hostile, tmp_path):
    from tensord.net import resources

    for path in ("../../evil", "/etc/evil", "a//b", "a/./b", "", None, "a\0b"):
        hostile.answers["GET"] = answer({"files": [{"path": path, "size": 1}]})
        model = tensord.open_model(hostile.url)
        with pytest.raises(tensord.ProtocolError, match="leads out of its model"):
            resources.files_of(model.session, "m")
        with pytest.raises(tensord.ProtocolError, match="leads out of its model"):
            resources.fetch(model.session, "m", path, str(tmp_path))
        with pytest.raises(tensord.ProtocolError, match="leads out of its model"):
            fsspec_of(hostile).ls(hostile.url[len("tensord://"):])
    assert list(tmp_path.iterdir()) == []


def fsspec_of(hostile, is_dataset=False):
    from tensord.fsspec import TensordFileSystem, _Target

    system = TensordFileSystem(skip_instance_cache=True)
    system._locate = lambda path: (tensord.connect(hostile.url), _Target("m", is_dataset), "")
    return system


def test_malformed_lists_of_files_of_datasets(hostile):
    """Names that lead elsewhere, sizes that are not numbers, answers that are not lists, and a list without an end."""
    good = {"type": "file", "path": "a", "size": 1}
    system, path = fsspec_of(hostile, is_dataset=True), hostile.url[len("tensord://") : -2] + "/datasets/m"
    for name in ("../evil", "/etc/evil", "a//b", "a/./b", "", None, "a\0b"):
        hostile.answers["GET"] = answer([{**good, "path": name}])
        with pytest.raises(tensord.ProtocolError, match="leads out of its model"):
            system.ls(path)
    for body in ([{**good, "size": -1}], [{**good, "size": "1"}], [{"type": "file"}], [1], 1, {"a": 1}, b"[" * 99999):
        hostile.answers["GET"] = answer(body)
        with pytest.raises(tensord.ProtocolError, match="the list of the files of m is malformed"):
            system.ls(path)
    hostile.answers["GET"] = answer([good], head='HTTP/1.1 200 OK\r\nLink: <http://evil/?cursor=1>; rel="next"')
    with pytest.raises(tensord.ProtocolError, match="does not end"):
        system.ls(path)
    assert all(line.startswith("GET /api/datasets/m/tree/main") for line in hostile.seen)


def test_a_list_that_is_unchanged_at_once_is_not_asked_for_in_a_loop(hostile):
    row = {"id": "m", "total_bytes": 1, "checkpoints": [{"id": "c"}]}
    hostile.answers["GET"] = answer({"models": [row]}, head='HTTP/1.1 200 OK\r\nETag: "a"')
    models = tensord.watch(hostile.url, retry_for=5.0)
    next(models)
    hostile.answers["GET"] = b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n'
    thread = threading.Thread(target=next, args=(models,))
    thread.start()
    time.sleep(1.5)
    asked = len(hostile.seen)
    hostile.answers["GET"] = answer({"models": [{**row, "total_bytes": 2}]}, head='HTTP/1.1 200 OK\r\nETag: "b"')
    thread.join(10)
    assert not thread.is_alive() and 2 <= asked <= 4


@pytest.mark.parametrize("fields", [b'ETag: "a"\r\nContent-Length: 1' + b"0" * 5000, b"ETag: a\r\nContent-Length: 5",
                                    b'ETag: "a"\r\nContent-Length: \xb2', b"Content-Length: 5"])
def test_files_that_are_not_described(hostile, fields, tmp_path):
    from tensord.net import resources

    hostile.answers["HEAD"] = OK + fields + b"\r\n\r\n"
    with pytest.raises(tensord.ProtocolError, match="no entity tag or no length|without a length"):
        resources.fetch(tensord.connect(hostile.url, retry_for=0.2).session, "m", "config.json", str(tmp_path / "new"))


# shows: security.md python-versions
def test_a_whole_file_without_its_tag_is_not_taken(hostile, tmp_path):
    from tensord.net import resources

    hostile.answers["HEAD"] = OK + b'ETag: "a"\r\nContent-Length: 5\r\n\r\n'
    hostile.answers["GET"] = OK + b"Content-Length: 5\r\n\r\nOTHER"
    with pytest.raises(tensord.ProtocolError, match="answered without an entity tag"):
        resources.fetch(tensord.connect(hostile.url, retry_for=0.2).session, "m", "config.json", str(tmp_path))


# shows: security.md python-versions
def test_rank_files_of_two_versions_are_not_mixed(hostile):
    """A server that has forgotten the plan registers it again, with another tag."""
    manifest = {**GOOD, "tensors": [{**GOOD["tensors"][0], "shape": [4 * 2**20], "nbytes": 2**24}]}
    hostile.answers["GET"] = answer(manifest)
    tags = iter("abcdefgh")

    class Plans(dict):
        def __getitem__(self, method):
            if method == "POST":
                return answer({"ranks": [{"href": "/plan", "etag": next(tags), "nbytes": 2**24 + 80}]})
            if hostile.seen[-1].startswith("GET /plan"):
                return b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"
            return super().__getitem__(method)

    hostile.answers = Plans(hostile.answers)
    with pytest.raises(tensord.ChangedError, match="another version than this load began with"):
        tensord.load_rank(hostile.url, "none", 1, 0, retry_for=2)


NASTY = "\x1b]0;pwned\x07\x1b[2J\nforged line"


# shows: security.md python-terminal
def test_a_server_writes_nothing_to_the_terminal(hostile, capfd):
    from tensord.__main__ import main

    hostile.answers["GET"] = answer({**GOOD, "tensors": [{**GOOD["tensors"][0], "name": NASTY}]})
    main(["ls", hostile.url])
    hostile.answers["GET"] = answer({"error": {"code": 403, "message": NASTY, "status": NASTY}}, "HTTP/1.1 403 No")
    assert main(["ls", hostile.url, "--retry-for", "1"]) == 1
    models = [{"id": NASTY, "total_bytes": 1, "checkpoints": [{"format": NASTY}]}]
    hostile.answers["GET"] = answer({"models": models, "datasets": [{"id": NASTY, "splits": [NASTY]}]})
    assert main(["ls", hostile.url.rpartition("/")[0]]) == 0
    with Progress(10, NASTY, True) as progress:
        progress.add(5)
    shown = "".join(capfd.readouterr())
    assert "\x1b]" not in shown and "\x1b[2J" not in shown and "\x07" not in shown and "\nforged" not in shown
    assert shown.count("\\x1b]0;pwned\\x07\\x1b[2J\\nforged line") >= 4


def test_a_misspelt_name_among_many_is_refused_at_once(hostile):
    rows = [{**GOOD["tensors"][0], "name": f"model.layers.{number}.mlp.weight"} for number in range(20000)]
    hostile.answers["GET"] = answer({**GOOD, "tensors": rows})
    manifest = tensord.open_model(hostile.url).manifest()
    began = time.thread_time()
    for _ in range(10):
        with pytest.raises(tensord.NotFoundError, match="no tensor 'model.layers.1.mlp.wieght'$"):
            manifest["model.layers.1.mlp.wieght"]
    assert time.thread_time() - began < 0.5
