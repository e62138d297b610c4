"""Pull-through when somebody sends wrong bytes, asks for too much, or is in the way: upstreams, clients, names and
files."""
import contextlib
import hashlib
import os
import re
import threading
import time
from pathlib import Path

import pytest

import harness
from hub_like import HubLike
from upstream_kit import (CHECKS, CONFIG, HIDDEN, MIB, WINDOW, bearer_of, cache, count,  # noqa: F401
                          free_port, hubs, model, new_token, published)

RANGES = {"short": "bytes=4000000-4000099", "long": f"bytes=1000000-{4 * MIB}", "parts": "bytes=0-9,4000000-4000099",
          "end": "bytes=4000000-"}


# shows: security.md upstream-wrong-digest
def test_no_part_is_complete_before_its_file_is_checked(hubs, cache):
    """The upstream sends a wrong byte in the middle of a file. A client that was cut off must not resume with its
    tag."""
    files = model()
    content = files["model.safetensors"]
    hub = hubs({"org/m": files})
    hub.lie["model.safetensors"] = content[:4000050] + bytes([content[4000050] ^ 1]) + content[4000051:]
    hub.open_gate(5 * MIB)
    server = cache(hub.url)
    target = "/org/m/resolve/main/model.safetensors"
    etag = server.head(target).etag
    with contextlib.ExitStack() as stack:
        conns = {name: stack.enter_context(server.conn()) for name in RANGES}
        for name, c in conns.items():
            c.send(harness.request_bytes(target, [("Range", RANGES[name])], port=server.port))
        head = conns["long"].read_head()                # its first bytes come, under the tag of the right content
        assert (head.status, head.etag) == (206, etag)
        assert conns["long"].read_exact(MIB, head) == content[1000000:1000000 + MIB]
        hub.open_gate(None)
        with pytest.raises(harness.Incomplete):
            conns["long"].read_exact(head.length - MIB, head)
        for name in ("short", "parts", "end"):
            try:
                assert conns[name].read_response("GET").status == 503, name
            except harness.Incomplete:
                continue
    hub.lie.clear()
    server.wait_for(lambda: server.get("/models/org/m/files/config.json").status == 200, "it is tried again", 20)
    published(server, "org/m")
    for name, value in RANGES.items():
        r = server.get(target, [("Range", value)])
        assert (r.status, r.etag) == (206, etag), name
        r = server.get(target, [("Range", value), ("If-Range", etag)])
        assert (r.status, r.etag, r.body) == (200, etag, content), name
    r = server.get("/org/m/resolve/main/config.json", [("Range", "bytes=1-2"), ("If-Range", server.head(
        "/org/m/resolve/main/config.json").etag)])
    assert (r.status, r.body) == (206, CONFIG[1:3])     # no wrong byte of this file was sent


# shows: security.md upstream-wrong-digest
def test_nobody_goes_on_after_a_fetch_that_failed_of_something_else(hubs, cache):
    """A reader has a wrong byte, and then the upstream lacks another file: nobody has found the byte. The next fetch
    gets it right, so what the reader would get now does not fit to what he has."""
    files = {**model(), "other.safetensors": model("o")["model.safetensors"]}
    content = files["model.safetensors"]
    hub = hubs({"org/m": files})
    at = MIB + 5000                                     # in a piece that is not whole when the fetch fails
    hub.lie["model.safetensors"] = content[:at] + bytes([content[at] ^ 1]) + content[at + 1:]
    hub.open_gate(MIB + 100_000)
    has_read, send_file = threading.Event(), hub.send_file

    def fail_other(h, name, path):
        if path == "other.safetensors":
            has_read.wait(20)
            return hub.fail(h, 404, "gone", "EntryNotFound")
        return send_file(h, name, path)

    hub.send_file = fail_other
    server = cache(hub.url)
    target = "/org/m/resolve/main/model.safetensors"
    with server.conn() as c:
        c.send(harness.request_bytes(target, [("Range", "bytes=100000-")], port=server.port))
        head = c.read_head()
        got = c.read_exact(at + 1 - 100000, head)
        assert head.status == 206 and got[-1] == content[at] ^ 1
        has_read.set()
        with pytest.raises(harness.Incomplete):
            c.read_exact(head.length - len(got), head)
    hub.send_file = send_file
    hub.lie.clear()
    hub.open_gate(None)
    server.wait_for(lambda: server.get("/models/org/m/files/config.json").status == 200, "it is tried again", 20)
    published(server, "org/m")
    rest = ("Range", f"bytes={at + 1}-")
    r = server.get(target, [rest, ("If-Range", head.etag)])
    assert (r.status, r.etag, r.body) == (200, head.etag, content)
    r = server.get(target, [rest, ("If-Match", head.etag)])
    assert r.status == 412 and b"get the whole file" in r.body
    r = server.get(target, [("If-Match", head.etag)])
    assert (r.status, r.body) == (200, content)
    for fields in ([rest], [rest, ("If-Match", "*")]):  # a client that names no entity tag does not resume with one
        r = server.get(target, fields)
        assert (r.status, r.body) == (206, content[at + 1:])


WAITING = {"short": [("Range", "bytes=3000000-3000010")], "parts": [("Range", "bytes=0-10,3000000-3000010")],
           "long": [("Range", "bytes=900000-")], "checks": [("Range", "bytes=3000000-"), CHECKS],
           "checks short": [("Range", "bytes=3000000-3000010"), CHECKS]}


@pytest.mark.parametrize("workers", [0, 1])
# shows: security.md upstream-slow
def test_readers_hold_no_place_for_longer_than_they_may(hubs, cache, workers):
    """Nothing more comes of the file. Who stays is cut off after --send-timeout, and who leaves is gone at once."""
    hub = hubs({"org/m": model()})
    hub.open_gate(2 * MIB)
    args = ["--workers", workers] if workers else []
    server = cache(hub.url, "--send-timeout", 1, *args)
    target = "/org/m/resolve/main/model.safetensors"
    server.wait_for(lambda: server.head(target).status == 200, "it arrives")
    with contextlib.ExitStack() as stack:
        conns = {name: stack.enter_context(server.conn()) for name in WAITING}
        for name, c in conns.items():
            c.send(harness.request_bytes(target, WAITING[name], port=server.port))
        for name, c in conns.items():
            head = c.read_head()
            assert head.status == 206, name
            with pytest.raises(harness.Incomplete):
                c.read_exact(head.length, head)
        server.wait_for(lambda: server.gauge("tensord_http_connections") == 1, "no connection is left", 5)
    server.stop()
    server = cache(hub.url, *args, root="another")      # with a --send-timeout of 60 s
    server.wait_for(lambda: server.head(target).status == 200, "it arrives")
    for fields in WAITING.values():
        c = server.conn()
        stack.enter_context(c)
        c.send(harness.request_bytes(target, fields, port=server.port))
    server.wait_for(lambda: server.gauge("tensord_http_requests_in_flight") == len(WAITING) + 1, "all wait")
    stack.close()
    server.wait_for(lambda: server.gauge("tensord_http_connections") == 1, "no connection is left", 5)


def test_parts_are_complete_when_their_file_is_checked(hubs, cache):
    files = model()
    content = files["model.safetensors"]
    hub = hubs({"org/m": files})
    hub.open_gate(5 * MIB)
    server = cache(hub.url)
    target = "/org/m/resolve/main/model.safetensors"
    with server.conn() as short, server.conn() as long:
        long.send(harness.request_bytes(target, [("Range", f"bytes=0-{4 * MIB - 1}")], port=server.port))
        head = long.read_head()
        assert long.read_exact(3 * MIB - WINDOW, head) == content[:3 * MIB - WINDOW]
        short.send(harness.request_bytes(target, [("Range", "bytes=0-99")], port=server.port))
        at = 3 * MIB - WINDOW
        for c in (long, short):                         # all of whose bytes are here
            c.sock.settimeout(0.3)
            with pytest.raises(TimeoutError):
                while True:
                    at += len(c.sock.recv(MIB))
                    assert at <= 3 * MIB
            c.sock.settimeout(20)
        hub.open_gate(None)
        assert short.read_response("GET").body == content[:100]
        assert long.read_exact(head.length - at, head) == content[at:4 * MIB]
    r = server.get(target, [("Range", "bytes=0-99")])
    assert (r.status, r.body, r.get("Cache-Control")) == (206, content[:100], "no-cache")


def test_a_server_passes_on_what_another_one_has_not_checked(hubs, cache):
    """The second server asks the first one for 16 MiB at a time, and checks the whole file itself."""
    files = model(nbytes=20 * MIB)
    content = files["model.safetensors"]
    hub = hubs({"org/m": files})
    hub.open_gate(18 * MIB)
    first = cache(hub.url, root="first")
    second = cache(f"http://127.0.0.1:{first.port}", root="second")
    with second.conn() as c:
        c.send(harness.request_bytes("/org/m/resolve/main/model.safetensors", port=second.port))
        head = c.read_head()
        assert c.read_exact(17 * MIB, head) == content[:17 * MIB]
        hub.open_gate(None)
        assert c.read_exact(len(content) - 17 * MIB, head) == content[17 * MIB:]


# shows: security.md upstream-wrong-server
def test_a_dead_server_and_its_twin(hubs, cache):
    files = model()
    hub = hubs({"org/m": files})
    server = cache(f"http://127.0.0.1:{free_port()},{hub.url}")
    r = server.get("/org/m/resolve/main/model.safetensors", timeout=30)
    assert (r.status, r.body) == (200, files["model.safetensors"])
    published(server, "org/m")
    assert count(server, "failures_total") == 0


@pytest.mark.parametrize("fault", ["bytes", "digest"])
# shows: security.md upstream-wrong-server
def test_another_server_takes_over_from_one_that_lies(hubs, cache, fault):
    """It sends other bytes than it lists, or lists another digest than that of the bytes."""
    files = model()
    content = files["model.safetensors"]
    liar, hub = hubs({"org/m": files}), hubs({"org/m": files})
    if fault == "bytes":
        liar.lie["model.safetensors"] = b"\0" * len(content)
    else:
        liar.wrong_sha.add("model.safetensors")
    server = cache(f"{liar.url},{hub.url}")
    assert server.get("/models/org/m/files/config.json").body == CONFIG
    published(server, "org/m")
    r = server.get("/org/m/resolve/main/model.safetensors")
    assert (r.status, r.body, r.etag) == (200, content, f'"{hashlib.sha256(content).hexdigest()}"')
    assert server.stderr().count("is asked of another server alone") == 1
    assert server.json("/models/org/m")["upstream"] == {"state": "here", "verified": True}


# shows: security.md upstream-many-models
def test_names_of_one_client_are_bounded(hubs, cache):
    """The 65th new name at once is too much, and names that are known are not. Which kind of server the upstream is, is
    asked for the first name alone."""
    hub = hubs({"org/m": model(nbytes=1000)})
    server = cache(hub.url)
    begun, answers = time.monotonic(), []
    with server.conn() as c:
        while not answers or answers[-1].status == 404:
            answers.append(c.request(f"/models/org/none-{len(answers)}"))
            assert len(answers) <= 64 + 1 + (time.monotonic() - begun) + 1      # one name a second comes back
        assert len(answers) > 64
        r = answers[-1]
        assert (r.status, r.get("Retry-After")) == (429, "1")
        assert b"this client has asked for too many models that are not on this server" in r.body
        assert c.request("/models/org/none-5").status == 404
    assert hub.count("^/version$") == 1
    server.wait_for(lambda: server.get("/models/org/m").status == 200, "a second later there is one more name")


def test_each_token_has_names_of_its_own(hubs, cache, tmp_path):
    hub = hubs({})
    tokens, bearers = tmp_path / "tokens.json", []
    for name in ("one", "other"):
        bearers.append(bearer_of(new_token(tokens, name)))
    server = cache(hub.url, "--tokens", tokens, ready=False)
    server.wait_for(lambda: server.get("/readyz").status == 200, "ready")
    with server.conn() as c:
        answers = {c.request(f"/models/org/none-{i}", bearers[0]).status for i in range(80)}
        assert answers == {404, 429}
        assert c.request("/models/org/none-100", bearers[1]).status == 404


@pytest.mark.parametrize("is_tensord", [True, False])
def test_a_503_of_a_tensord_may_be_about_one_model_alone(hubs, cache, is_tensord):
    hub = hubs({"org/m": model(), "org/other": model("o", 1000)})
    hub.refused["org/m"], hub.is_tensord = 40, is_tensord
    server = cache(hub.url)
    assert server.get("/models/org/m/files/config.json").status == 503
    assert server.get("/models/org/other/files/config.json").status == (200 if is_tensord else 503)
    assert server.stderr().count("no model is asked for during the next 40 s") == (0 if is_tensord else 1)


# shows: security.md upstream-patience
def test_an_upstream_that_asks_for_patience_is_left_alone(hubs, cache):
    hub = hubs({"org/m": model()})
    hub.retry_after = 40
    server = cache(hub.url)
    begun = time.monotonic()
    first = server.get("/models/org/m/files/config.json")
    assert (first.status, b"has asked clients to wait" in first.body) == (503, True)
    assert 30 <= int(first.get("Retry-After")) <= 40
    asked = len(hub.requests)
    for i in range(5):
        r = server.get(f"/models/org/m{i}/files/config.json")
        assert (r.status, b"has asked clients to wait" in r.body) == (503, True)
    assert len(hub.requests) == asked
    assert count(server, "failures_total") == 0
    assert time.monotonic() - begun < 8                 # nobody is kept waiting for what cannot come


# shows: security.md upstream-patience
def test_a_server_that_comes_back_is_asked_while_another_one_asks_for_patience(hubs, cache):
    """The preferred one has gone, and the other one is busy: that must not keep anybody from the first one."""
    models = {name: model(name, 1000) for name in ("org/m", "org/n", "org/o")}
    port = free_port()
    with HubLike(models, port=port) as hub:
        busy = hubs(models)
        server = cache(f"{hub.url},{busy.url}")
        assert server.get("/models/org/m/files/config.json").status == 200
        published(server, "org/m")
    busy.retry_after = 300
    assert server.get("/models/org/n/files/config.json").status == 503
    server.wait_for(lambda: '"org/n" could not be fetched' in server.stderr(), "all tries are over", 30)
    hubs(models, port=port)
    assert server.get("/models/org/o/files/config.json").body == CONFIG
    server.wait_for(lambda: server.get("/models/org/n/files/config.json").status == 200, "the failure is forgotten")
    assert busy.count("") == 1
    assert "no model is asked for" not in server.stderr()


def test_patience_that_a_file_is_answered_with_is_for_all(hubs, cache):
    hub = hubs({"org/m": model(nbytes=1000), "org/n": model(nbytes=1000)})
    hub.retry_after, hub.busy_paths = 70, "/resolve/"
    server = cache(hub.url)
    begun = time.monotonic()
    server.get("/models/org/m/files/config.json")
    server.wait_for(lambda: '"org/m" could not be fetched' in server.stderr(), "the fetch has failed")
    asked = -1
    while asked != len(hub.requests):   # those that were on their way when the fetch failed
        asked = len(hub.requests)
        time.sleep(0.5)
    r = server.get("/models/org/n/files/config.json")
    assert (r.status, b"has asked clients to wait" in r.body) == (503, True)
    assert len(hub.requests) == asked
    said = re.search(rf"no model is asked for during the next (\d+) s: {re.escape(hub.url)} has sent Retry-After and "
                     r"may be asked again in (\d+) s", server.stderr())
    passed = time.monotonic() - begun       # the 70 s began in this time, and what the log names is rounded up
    assert said and all(70 - passed <= int(seconds) <= 70 for seconds in said.groups()), server.stderr()


# shows: security.md upstream-name-taken
def test_a_part_of_a_name_that_is_taken_is_said(hubs, cache):
    """A model around the directory of another one."""
    hub = hubs({name: model(nbytes=1000) for name in ("two", "two/below")})
    server = cache(hub.url)
    assert server.get("/two/below/resolve/main/config.json").status == 200
    published(server, "two/below")
    for _ in range(2):
        r = server.get("/api/models/two")
        assert (r.status, b"something else has this name, or a part of it" in r.body) == (409, True), r.body
        assert r.get("Retry-After") is None
    assert count(server, "absent_total") == 0
    assert re.search('warn .*"two" could not be fetched: ".*/two" is in the way: it is not a model ', server.stderr())


def held(server, name):
    """How many descriptors the server has open of a model that is arriving, or has arrived."""
    fds = Path(f"/proc/{server.pid}/fd")
    names = (os.readlink(fd) for fd in fds.iterdir() if fd.is_symlink())
    return sum(f"/{name}/" in path or ".tensord-upstream/incoming" in path for path in names)


def test_files_that_no_scan_finds_are_left_out(hubs, cache):
    """So the model has one commit, before and after it is published, and a client that has asked for it continues."""
    files = model()
    hub = hubs({"org/m": files | HIDDEN, "org/hidden": HIDDEN})
    hub.open_gate(MIB)
    server = cache(hub.url)
    commit = server.head("/org/m/resolve/main/config.json").get("X-Repo-Commit")
    assert [f["rfilename"] for f in server.json("/api/models/org/m")["siblings"]] == sorted(files)
    for path in HIDDEN:
        assert server.get(f"/org/m/resolve/{commit}/{path}").status == 404
    hub.open_gate(None)
    published(server, "org/m")
    server.wait_for(lambda: held(server, "org/m") == 0, "the model is served from the directory alone")
    r = server.get(f"/org/m/resolve/{commit}/model.safetensors")
    assert (r.status, r.body, r.get("X-Repo-Commit")) == (200, files["model.safetensors"], commit)
    assert all(hub.sent_bytes(path) == 0 for path in HIDDEN)
    assert server.get("/api/models/org/hidden").status == 404       # as a model without files is


# shows: security.md upstream-many-files
def test_files_of_arriving_models_are_bounded_by_the_limit_on_open_files(hubs, cache, tmp_path):
    many = {f"f{i:03}.txt": b"x" * 10 for i in range(120)}
    few = {f"f{i:03}.txt": b"x" * 10 for i in range(20)} | model(nbytes=1000)
    hub = hubs({"org/many": many, "org/few": few})
    binary = tmp_path / "tensord-with-few-descriptors"
    binary.write_text(f"#!/bin/sh\nulimit -n 400\nexec {harness.tensord_binary()} \"$@\"\n")
    binary.chmod(0o755)
    (tmp_path / "cache").mkdir()
    with harness.Server(tmp_path / "cache", "--upstream", hub.url, "--max-connections", 64, binary=binary) as server:
        r = server.get("/models/org/many/files/f000.txt")
        assert (r.status, b"there is no room" in r.body) == (507, True)
        assert re.search(r'"org/many" has 120 files, .* leaves 64 for that: raise it \(ulimit -n\)', server.stderr())
        assert server.get("/models/org/few").status == 200
        published(server, "org/few")
        server.wait_for(lambda: held(server, "org/few") == 0,
                        "the descriptors are closed as soon as a scan has found the model")


def test_no_longer_list_is_read_than_a_model_may_have_files(hubs, cache):
    hub = hubs({"org/long": {f"d{i}/f.txt": b"x" for i in range(4 * 4096 + 1)}})
    server = cache(hub.url)
    assert server.get("/models/org/long").status == 503
    assert "names more than 16384 files and directories" in server.stderr()
