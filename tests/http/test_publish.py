"""Publishing by the native interface, case by case. Expectations come from the contract (docs/publish.md) and from
hashlib, never from the program's own output."""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import re
import socket
import threading
import time

import pytest

from harness import NOBODY, Server, age, as_nobody, pattern, s3_port, tensor, tensord_binary, write_by_hand
from publishing import PIECE, Repo, digest
from signing import TokensFile
from test_openapi import PUBLISHING, Contract

CONFIG = b'{"model_type": "llama"}'
COMMIT = re.compile(r"[0-9a-f]{40}")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("publish") / "root"
    write_by_hand(root / "made/by-hand/model.safetensors", [tensor("w", "F32", [4, 6])])
    words = [tensor(name, "U8", [3]) for name in ("commits", "blobs", "blobs/x", "files/x")]
    write_by_hand(root / "words/model.safetensors", words)
    (root / "made/by-hand/config.json").write_text("{}")
    (root / "made/plain").mkdir()
    (root / "made/plain/notes.txt").write_text("of the operator")
    for path in [*root.rglob("*")]:
        age(path)
    with Server(root, "--publish", "local", "--s3-listen", "127.0.0.1:0", hash_threads=0, settle="60") as s:
        yield s


@pytest.fixture(scope="module", autouse=True)
def contract(server):
    """Check at the end that every answer was as api/openapi.yaml says."""
    contract = Contract(json.loads(server.get("/openapi.json").body))
    patterns = {}
    for path in PUBLISHING | {"/models/{id}", "/models/{id}/files/{path}", "/datasets/{id}"}:
        of_path = re.escape(path).replace(r"\{id\}", "[^/?]+(/[^/?]+)?").replace(r"\{path\}", "[^?]+")
        patterns[path] = re.compile(of_path.replace(r"\{digest\}", r"[^/?]+") + r"(\?.*)?")
    yield
    checked = set()
    for method, target, answer in Repo.asked:
        path = next((p for p in sorted(patterns, key=len, reverse=True) if patterns[p].fullmatch(target)), None)
        item = contract.all_paths.get(path, {})
        if method.lower() in item and (method != "GET" or path in PUBLISHING):
            contract.check(path, answer, method)
            checked.add((method, path, answer.status))
    assert checked
    Repo.asked.clear()


@pytest.fixture
def repo(server, request):
    """A repository that no other test uses."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:60]
    return Repo(server.port, f"org/{name}")


def check_blob(answer, status, data, missing=None):
    assert answer.status == status, answer
    assert answer.json() == {"digest": digest(data), "size": len(data), "complete": missing is None,
                             "missing": missing or []}
    assert answer.headers["content-type"] == "application/json"


def check_error(answer, status, *words):
    assert answer.status == status, answer
    error = answer.error()
    assert error["code"] == status and set(error) == {"code", "status", "message", "details"}, error
    for word in words:
        assert word in error["message"], error
    return error


def check_commit(answer, status, files, parent="", changed=True, revision="main"):
    assert answer.status == status, answer
    body = answer.json()
    assert COMMIT.fullmatch(body["commit"]), body
    assert body == {"model": body["model"], "revision": revision, "commit": body["commit"], "parent": parent,
                    "changed": changed, "files": len(files), "bytes": sum(len(d) for d in files.values())}
    return body["commit"]


def push(repo, files, **more):
    answer, _ = repo.push(files, **more)
    assert answer.status in (200, 201), answer
    return answer.json()["commit"]


# ---- off ------------------------------------------------------------------------------------------------------

def test_off(tmp_path, start):
    (tmp_path / "m").mkdir()
    (tmp_path / "m/config.json").write_text("{}")
    (tmp_path / "m/notes.txt").write_text("x")
    s = start(tmp_path)
    repo = Repo(s.port, "m", is_checked=False)
    for method, path in (("PUT", f"/blobs/{digest(b'x')}"), ("DELETE", ""), ("PUT", "/files/config.json"),
                         ("DELETE", "/files/config.json")):
        answer = Repo(s.port, "m", is_checked=False).ask(method, path, b"x" if method == "PUT" else None)
        assert answer.status in (404, 405), (method, path, answer)
    assert repo.ask("DELETE", "/files/config.json").status == 405
    assert repo.ask("GET", "/commits").status == 404
    assert sorted(os.listdir(tmp_path)) == ["m"]


def test_directory_must_be_writable(tmp_path):
    with pytest.raises(AssertionError) as why:
        Server("/proc/self", "--publish", "local")
    assert "--publish" in str(why.value) and "ended with 1" in str(why.value)


def test_one_publisher(tmp_path, start):
    start(tmp_path, "--publish", "local")
    with pytest.raises(AssertionError, match="ended with 1"):
        Server(tmp_path, "--publish", "local")
    start(tmp_path)     # a reader may


# ---- blobs ----------------------------------------------------------------------------------------------------

def test_whole_blob(repo):
    data = pattern(700_001, "whole")
    assert repo.ask("GET", f"/blobs/{digest(data)}").status == 404
    check_blob(repo.put(data), 201, data)
    check_blob(repo.put(data), 200, data)
    check_blob(repo.ask("GET", f"/blobs/{digest(data)}"), 200, data)
    head = repo.ask("HEAD", f"/blobs/{digest(data)}")
    assert head.status == 200 and head.body == b"" and int(head.headers["content-length"]) > 0
    assert repo.ask("GET", "/commits").status == 404       # blobs alone show nothing
    assert repo.ask("GET").status == 404


def test_empty_blob(repo):
    check_blob(repo.put(b""), 201, b"")
    check_error(repo.put(b"", name=digest(b"x")), 422)
    check_commit(repo.commit({"empty.txt": b""}), 201, {"empty.txt": b""})


# shows: security.md publish-patterns
def test_blobs_are_known_per_repository(server, repo):
    check_blob(repo.put(b"mine"), 201, b"mine")
    assert Repo(server.port, "org/somebody-else").ask("GET", f"/blobs/{digest(b'mine')}").status == 404


def test_pieces_in_any_order(repo):
    data = pattern(3 * PIECE + 17, "pieces")
    check_blob(repo.piece(data, PIECE, 2 * PIECE - 1), 202, data, [[0, PIECE - 1], [2 * PIECE, len(data) - 1]])
    check_blob(repo.piece(data, 3 * PIECE, len(data) - 1), 202, data, [[0, PIECE - 1], [2 * PIECE, 3 * PIECE - 1]])
    check_blob(repo.piece(data, 0, 2 * PIECE - 1), 202, data, [[2 * PIECE, 3 * PIECE - 1]])
    check_blob(repo.ask("GET", f"/blobs/{digest(data)}"), 200, data, [[2 * PIECE, 3 * PIECE - 1]])
    error = check_error(repo.commit({"w.bin": data, "x": b"x"}), 409)
    assert error["details"] == {"missing": [{"digest": digest(data), "missing": [[2 * PIECE, 3 * PIECE - 1]]},
                                            {"digest": digest(b"x")}]}
    check_blob(repo.piece(data, 2 * PIECE, 3 * PIECE - 1), 201, data)
    check_blob(repo.piece(data, 0, PIECE - 1), 200, data)
    push(repo, {"w.bin": data})


def test_ranges_of_the_first_missing_blobs_alone(repo):
    data = pattern(2 * PIECE, "late")
    check_blob(repo.piece(data, 0, PIECE - 1), 202, data, [[PIECE, 2 * PIECE - 1]])
    files = {f"f{i:03}": b"%d" % i for i in range(100)}
    missing = check_error(repo.commit({**files, "late": data}), 409)["details"]["missing"]
    assert missing == [{"digest": digest(d)} for d in [*files.values(), data]]
    del files["f000"]
    missing = check_error(repo.commit({**files, "late": data}), 409)["details"]["missing"]
    assert missing[-1] == {"digest": digest(data), "missing": [[PIECE, 2 * PIECE - 1]]}


def test_pieces_in_parallel(repo):
    data = pattern(40 * PIECE + 5, "parallel")
    spans = [(i * 2 * PIECE, min((i + 1) * 2 * PIECE, len(data)) - 1) for i in range(21)]
    statuses, lock = [], threading.Lock()

    def work(mine):
        one = repo.other()
        for first, last in mine:
            status = one.piece(data, first, last).status
            with lock:
                statuses.append(status)

    threads = [threading.Thread(target=work, args=(spans[i::4],)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert sorted(set(statuses)) == [201, 202] and len(statuses) == 21
    check_blob(repo.ask("GET", f"/blobs/{digest(data)}"), 200, data)
    push(repo, {"config.json": CONFIG, "w.dat": data})
    assert repo.file("w.dat").body == data


@pytest.mark.parametrize("text", [
    "bytes 0-9/*", "bytes */20", "bytes 1-262143/700000", "bytes 0-9/700000", "bytes 262144-262143/700000",
    "bytes 0-699999/699999", "bytes 0-700000/700000", "items 0-9/10", "bytes 0-9", "bytes -9/10", "0-9/10",
    "bytes 0-18446744073709551615/18446744073709551616", "bytes 0x0-9/10"])
def test_bad_ranges(repo, text):
    data = pattern(700_000, "range")
    check_error(repo.ask("PUT", f"/blobs/{digest(data)}", data[:10], {"Content-Range": text}), 400)
    assert repo.ask("GET", f"/blobs/{digest(data)}").status == 404


def test_a_range_in_the_url(repo):
    """The same as Content-Range; the answer has a tag, which clients of Git LFS repeat. A POST asks whether it is
    all."""
    data = pattern(2 * PIECE, "url")
    blob = f"/blobs/{digest(data)}"
    tag = f'"{digest(data)[7:]}"'
    check_error(repo.ask("POST", blob, b""), 404)
    first = f"{blob}?range=0-{PIECE - 1}/{len(data)}"
    answer = repo.ask("PUT", first, data[:PIECE])
    assert answer.status == 202 and answer.headers["etag"] == tag
    check_error(repo.ask("POST", blob, b"{}"), 409)
    for query in (f"range=0-{PIECE}/{len(data)}", f"range=bytes 0-{PIECE - 1}/{len(data)}".replace(" ", "%20"),
                  "range=", "range=0-9", f"Range=0-{PIECE - 1}/{len(data)}", f"range=0-{PIECE - 1}/{len(data)}&x=1",
                  f"range=0-{PIECE - 1}/{len(data)}&range=0-{PIECE - 1}/{len(data)}"):
        check_error(repo.ask("PUT", f"{blob}?{query}", data[:PIECE]), 400)
    check_error(repo.ask("PUT", first, data[:PIECE], {"Content-Range": f"bytes 0-{PIECE - 1}/{len(data)}"}), 400)
    for path in (f"{blob}?range=0-1/2", "/blobs?range=0-1/2", "/files/a?range=0-1/2"):
        check_error(repo.ask("PUT" if "files" in path else "POST", path, b"ab"), 400)
    answer = repo.ask("PUT", f"{blob}?range={PIECE}-{2 * PIECE - 1}/{len(data)}", data[PIECE:])
    assert answer.status == 201 and answer.headers["etag"] == tag
    assert repo.ask("PUT", first, data[:PIECE]).headers["etag"] == tag
    assert "etag" not in repo.ask("PUT", blob, data).headers
    check_blob(repo.ask("POST", blob, b'{"parts": []}'), 200, data)
    check_error(repo.ask("POST", blob, bytes((1 << 20) + 1)), 413)


# shows: security.md publish-room
def test_wrong_lengths(server, repo):
    data = pattern(2 * PIECE, "lengths")
    for body in (data[:PIECE - 1], data[:PIECE] + b"x"):
        check_error(repo.other().ask("PUT", f"/blobs/{digest(data)}", body,
                                     {"Content-Range": f"bytes 0-{PIECE - 1}/{len(data)}"}), 400)
    with socket.create_connection(("127.0.0.1", server.port)) as sock:      # says 2 pieces, sends 1.5, and goes
        sock.sendall(f"PUT {repo.base}/blobs/{digest(data)} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
                     .encode() + data[:PIECE * 3 // 2])
    server.wait_for(lambda: repo.ask("GET", f"/blobs/{digest(data)}").status == 200, "the first piece is here")
    server.wait_for(lambda: repo.ask("GET", f"/blobs/{digest(data)}").json()["missing"] == [[PIECE, 2 * PIECE - 1]],
                    "a whole piece stays")
    check_error(repo.commit({"a": data}), 409)
    check_error(repo.put(data[:-1], name=digest(data)), 409)        # another size than before
    check_blob(repo.piece(data, PIECE, 2 * PIECE - 1), 201, data)


def test_needs_a_length(repo):
    check_error(repo.ask("PUT", f"/blobs/{digest(b'abc')}", iter([b"abc"])), 411)


# shows: security.md publish-room
def test_wrong_digest_drops_everything(server, repo):
    data = pattern(2 * PIECE, "right")
    before = server.gauge("tensord_publish_refused_total")
    check_error(repo.put(b"x" + data[1:], name=digest(data)), 422)
    assert repo.ask("GET", f"/blobs/{digest(data)}").status == 404
    wrong = data[:PIECE] + b"x" + data[PIECE + 1:]
    assert repo.piece(data, 0, PIECE - 1).status == 202
    check_error(repo.ask("PUT", f"/blobs/{digest(data)}", wrong[PIECE:],
                         {"Content-Range": f"bytes {PIECE}-{2 * PIECE - 1}/{len(data)}"}), 422)
    assert repo.ask("GET", f"/blobs/{digest(data)}").status == 404
    check_error(repo.commit({"a": data}), 409)
    check_blob(repo.put(data), 201, data)
    assert server.gauge("tensord_publish_refused_total") == before + 2


@pytest.mark.parametrize("name", ["sha256:abc", "sha256:" + "A" * 64, "md5:" + "0" * 32, "0" * 64,
                                  "sha256:" + "0" * 63 + "g"])
def test_bad_digests(repo, name):
    for method, body in (("PUT", b"x"), ("GET", None)):
        check_error(repo.ask(method, "/blobs/" + name, body), 400)


def test_posted_blobs(repo):
    data = pattern(600_000, "posted")
    good = "sha-256=:" + base64.b64encode(hashlib.sha256(data).digest()).decode() + ":"
    answer = repo.ask("POST", "/blobs", data)
    check_blob(answer, 201, data)
    assert answer.headers["location"] == f"{repo.base}/blobs/{digest(data)}"
    check_blob(repo.ask("GET", f"/blobs/{digest(data)}"), 200, data)
    check_blob(repo.ask("POST", "/blobs", iter([data[:100], data[100:]]), {"Repr-Digest": good}), 201, data)
    check_blob(repo.ask("POST", "/blobs", b""), 201, b"")
    check_blob(repo.ask("POST", "/blobs", data, {"Repr-Digest": "md5=:AAAA:, " + good}), 201, data)
    check_error(repo.ask("POST", "/blobs", data[1:], {"Repr-Digest": good}), 422)
    assert repo.ask("GET", f"/blobs/{digest(data[1:])}").status == 404
    for bad in ("sha-256=abc", "sha-256=:AAAA:", "sha-256=", good[:-1]):
        check_error(repo.ask("POST", "/blobs", b"x", {"Repr-Digest": bad}), 400)
    with socket.create_connection(("127.0.0.1", repo.port)) as sock:        # a cut body leaves nothing
        sock.sendall(f"POST {repo.base}/blobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                     f"4\r\nhalf\r\n".encode())
    time.sleep(0.2)
    assert repo.ask("GET", f"/blobs/{digest(b'half')}").status == 404


def test_methods(repo):
    for method, path, allow in (("PATCH", f"/blobs/{digest(b'')}", "PUT, GET, HEAD, POST"), ("GET", "/blobs", "POST"),
                                ("PATCH", "/commits", "POST, GET, HEAD"),
                                ("POST", "/files/a", "GET, HEAD, PUT, DELETE")):
        answer = repo.other().ask(method, path)
        check_error(answer, 405)
        assert answer.headers["allow"] == allow
    check_error(repo.ask("GET", "/commits?x=1"), 400, "x")


def test_tensors_with_the_names_of_words(server):
    for name in ("commits", "blobs", "blobs/x", "files/x"):
        answer = Repo(server.port, "words", is_checked=False).ask("GET", f"/tensors/{name}")
        assert answer.status == 200 and answer.body == tensor(name, "U8", [3]).data, name
        assert Repo(server.port, "words", is_checked=False).ask("HEAD", f"/tensors/{name}").status == 200


# ---- commits --------------------------------------------------------------------------------------------------

def test_push(server, repo):
    files = {"config.json": CONFIG, "a/b.bin": pattern(300_000, "b"), "é ü.txt": b"odd", "w.bin": b"w"}
    error = check_error(repo.commit(files), 409)
    assert [m["digest"] for m in error["details"]["missing"]] == [digest(d) for d in files.values()]
    answer, sent = repo.push(files, message="one")
    first = check_commit(answer, 201, files)
    assert sent == 4
    answer, sent = repo.push(files)
    assert check_commit(answer, 200, files, parent=first, changed=False) == first and sent == 0
    for path, data in files.items():
        got = repo.file(path)
        assert got.status == 200 and got.body == data and got.headers["etag"] == f'"{digest(data)[7:]}"', path
    log = repo.commits()
    assert log["model"] == repo.base[len("/models/"):] and log["refs"] == {"main": first}
    assert [(c["commit"], c["parent"], c["message"]) for c in log["commits"]] == [(first, "", "one")]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", log["commits"][0]["time"])
    assert f"commit={first}" in server.stderr() and f'model="{log["model"]}"' in server.stderr()


def test_the_same_files_are_the_same_commit(server, repo):
    files = {"config.json": CONFIG, "x.txt": b"x"}
    first = push(repo, files)
    second = push(repo, {"config.json": CONFIG, "x.txt": b"y"})
    answer, sent = repo.push(files)
    assert check_commit(answer, 201, files, parent=second) == first and sent == 0    # rolled back
    assert push(Repo(server.port, "org/the-same-elsewhere"), files) == first
    assert repo.file("x.txt").body == b"x"
    at = Repo(server.port, repo.base[len("/models/"):] + "@" + second)               # the other one can be read
    assert at.file("x.txt").body == b"y"


def test_keep_and_delete(repo):
    files = {"config.json": CONFIG, "a/1": b"1", "a/2": b"2", "b": b"b"}
    first = push(repo, files)
    repo.put(b"new")
    files = {"config.json": CONFIG, "a/2": b"2", "b": b"new"}
    check_commit(repo.commit({"b": b"new"}, keep=True, delete=["a/1"]), 201, files, parent=first)
    parent = repo.main()
    check_error(repo.commit(keep=True, delete=["a/1"]), 404, "a/1")
    check_error(repo.commit(keep=True, delete=["c/"]), 404)
    assert repo.main() == parent
    check_commit(repo.commit(keep=True, delete=["a/"]), 201, {"config.json": CONFIG, "b": b"new"}, parent=parent)
    assert repo.file("a/2").status == 404 and repo.file("b").body == b"new"


def test_parents(repo):
    files = {"config.json": CONFIG, "x": b"1"}
    check_error(repo.push(files, parent="0" * 40)[0], 412)
    first = check_commit(repo.push(files, parent="")[0], 201, files)
    error = check_error(repo.push({"x": b"2"}, parent="")[0], 412)
    assert error["details"] == {"commit": first}
    second = push(repo, {"config.json": CONFIG, "x": b"2"}, parent=first)
    error = check_error(repo.push(files, parent=first)[0], 412)
    assert error["details"] == {"commit": second} and repo.file("x").body == b"2"


def test_revisions(server, repo):
    files = {"config.json": CONFIG, "x": b"1"}
    first = push(repo, files)
    repo.put(b"2")
    answer = repo.commit({"x": b"2"}, keep=True, revision="dev/next", **{"from": "main"})
    second = check_commit(answer, 201, {"config.json": CONFIG, "x": b"2"}, revision="dev/next")
    assert repo.commits()["refs"] == {"main": first, "dev/next": second}
    assert repo.file("x").body == b"1"
    hub = Repo(server.port, repo.base[len("/models/"):], "api/models")
    assert hub.ask("GET", "/revision/dev%2Fnext").json()["sha"] == second
    check_commit(repo.commit(files, revision="v1"), 201, files, revision="v1")
    check_commit(repo.commit(keep=True, revision="v2", **{"from": second}), 201, {"config.json": CONFIG, "x": b"2"},
                 revision="v2")
    check_error(repo.commit(files, revision="v3", **{"from": "none"}), 404)
    for bad in ("", "a b", "../x", "0" * 40, "HEAD", "x.lock", "/x", "x/"):
        check_error(repo.commit(files, revision=bad), 400)
    check_error(repo.commit(files, revision="dev"), 409)        # a folder of revisions


def test_two_revisions_are_made_in_one_step(repo):
    """A revision that exists ignores `from`."""
    push(repo, {"config.json": CONFIG, "x": b"1"})
    repo.put(b"2")
    repo.commit({"x": b"2"}, revision="other")
    check_commit(repo.commit({"x": b"2"}, keep=True, **{"from": "other"}), 201, {"config.json": CONFIG, "x": b"2"},
                 parent=repo.commits()["commits"][-1]["commit"])


BAD_PATHS = ["", "/a", "a//b", "a/", "./a", "a/./b", "../a", "a/../b", "..", ".", "a\nb", "a\x7fb", "x" * 239,
             "/".join(["d"] * 33), "/".join(["x" * 200] * 6), ".hidden", "a/.git/x", "a.tmp", "a.incomplete", "a\\b"]


@pytest.mark.parametrize("path", BAD_PATHS, ids=range(len(BAD_PATHS)))
# shows: security.md publish-outside
def test_bad_paths(repo, path):
    repo.put(b"x")
    check_error(repo.commit({path: b"x"}), 400)
    assert repo.ask("GET", "/commits").status == 404


def test_longest_paths(repo):
    files = {"x" * 238: b"1", "/".join(["d"] * 32): b"2", "/".join(["y" * 200] * 5 + ["z" * 19]): b"3",
             "config.json": CONFIG}
    push(repo, files)
    for path, data in files.items():
        assert repo.file(path).body == data


def test_a_dry_run_changes_nothing(repo):
    """It is answered as the commit will be, but never 201."""
    files = {"a.txt": b"first", "config.json": CONFIG}
    assert [m["digest"] for m in repo.commit(files, dry_run=True).error()["details"]["missing"]] == \
        [digest(b"first"), digest(CONFIG)]
    for data in files.values():
        repo.put(data)
    would = repo.commit(files, dry_run=True)
    assert would.status == 200 and would.json()["changed"] and would.json()["files"] == 2
    assert repo.ask("GET", "/commits").status == 404
    made = repo.commit(files)
    assert made.status == 201 and made.json() == would.json()
    before = repo.commits()
    repo.put(b"second")
    other = {"a.txt": b"second"}
    would = repo.commit(other, dry_run=True, parent=made.json()["commit"])
    assert would.status == 200 and would.json()["changed"] and would.json()["parent"] == made.json()["commit"]
    check_error(repo.commit(other, dry_run=True, parent=""), 412)
    check_error(repo.commit({"../x": b"second"}, dry_run=True), 400)
    check_error(repo.commit(other, dry_run="yes"), 400, "dry_run")
    unchanged = repo.commit(files, dry_run=True)
    assert unchanged.status == 200 and not unchanged.json()["changed"]
    assert repo.commits() == before and repo.file("a.txt").body == b"first"


@pytest.mark.parametrize("change, word", [
    ({"unknown": 1}, "unknown"), ({"files": {}}, "files"), ({"files": [1]}, "file"), ({"keep": "yes"}, "keep"),
    ({"files": [{"path": "a", "digest": digest(b"x")}]}, "size"),
    ({"files": [{"path": "a", "digest": "x", "size": 1}]}, "digest"),
    ({"files": [{"path": "a", "digest": digest(b"x"), "size": -1}]}, ""),
    ({"files": [{"path": "a", "digest": digest(b"x"), "size": 1, "mode": 7}]}, "mode"),
    ({"files": [{"path": "a", "digest": digest(b"x"), "size": 1}] * 2}, "a"),
    ({"files": [{"path": "a", "digest": digest(b"x"), "size": 2}]}, "bytes"),
    ({"files": [{"path": "a\0b", "digest": digest(b"x"), "size": 1}]}, ""),
    ({"delete": "a"}, "delete"), ({"delete": [1]}, "delete"), ({"message": 1}, "message"), ({"parent": None}, "parent"),
])
def test_bad_orders(repo, change, word):
    repo.put(b"x")
    order = {"files": [{"path": "ok", "digest": digest(b"x"), "size": 1}], **change}
    check_error(repo.ask("POST", "/commits", json.dumps(order)), 400, word)
    assert repo.ask("GET", "/commits").status == 404


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"files":[]}x', b"\xff", b'{"keep":true,"keep":true}',
                                  b"[" * 100_000, b'{"message":"\\ud800","files":[]}', b"{}"])
def test_no_orders(repo, body):
    check_error(repo.ask("POST", "/commits", body), 400)


def test_the_bound_on_listed_files(tmp_path):
    """A commit that would pass --max-files is refused, and one that passes it since is left out whole."""
    (tmp_path / "root").mkdir()
    with Server(tmp_path / "root", "--publish", "local", "--max-files", "8") as s:
        one, other = Repo(s.port, "org/one"), Repo(s.port, "org/other")
        for step in range(4):       # files of kept commits do not take the places of others
            files = {f"{i}.txt": b"%d" % (10 * step + i) for i in range(5)}
            assert one.push(files)[0].status == 201
            assert {p: s.get(f"/org/one/resolve/main/{p}").body for p in files} == files
        assert other.push({"a": b"a", "b": b"b", "c": b"c"})[0].status == 201
        answer = other.push({"d": b"d"}, keep=True)[0]
        error = check_error(answer, 413)
        assert "at most 8 files (--max-files): it has 5 others, and the revision would have 4" in error["message"]
        assert other.push({"d": b"d"}, keep=True, delete=["a"])[0].status == 201
        tree = [f["path"] for f in s.json("/api/models/org/other/tree/main")]
        assert tree == ["b", "c", "d"]
        (tmp_path / "root/f").write_text("of the operator")
        age(tmp_path / "root/f")

        def shown():
            answers = [s.get(f"/api/models/{id}/tree/main") for id in ("org/one", "org/other")]
            return [len(json.loads(a.body)) if a.status == 200 else 0 for a in answers]

        s.wait_for(lambda: sorted(shown()) != [3, 5], "the operator's file is listed")
        assert sorted(shown()) in ([0, 3], [0, 5])
        left_out = "org/one" if shown()[0] == 0 else "org/other"
        s.wait_for(lambda: f"{left_out}: not published: with all files" in s.stderr(), "the log names the model", 5)


def test_too_many_files(repo):
    repo.put(b"x")
    item = {"digest": digest(b"x"), "size": 1}
    body = json.dumps({"files": [{"path": f"{i}", **item} for i in range(100_001)]})
    check_error(repo.ask("POST", "/commits", body), 413)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", repo.port, timeout=60)) as c:
        c.putrequest("POST", repo.base + "/commits")        # the refusal comes before the body
        c.putheader("Content-Length", str((64 << 20) + 1))
        c.endheaders()
        assert c.getresponse().status == 413


def test_a_file_and_a_folder(repo):
    push(repo, {"config.json": CONFIG, "a": b"1"})
    repo.put(b"2")
    check_error(repo.commit({"a/b": b"2"}, keep=True), 409)
    check_error(repo.commit({"c": b"2", "c/d": b"2"}), 409)
    assert repo.file("a").body == b"1"
    push(repo, {"a/b": b"2"}, keep=True, delete=["a"])
    assert repo.file("a/b").body == b"2"


def test_names_that_look_alike(repo):
    """Names that differ by case or by their Unicode form are different files."""
    files = {"Config.json": b"C", "config.json": CONFIG, "é": b"composed", "e\u0301": b"decomposed",
             "ﬁ": b"ligature", "fi": b"letters"}
    push(repo, files)
    for path, data in files.items():
        assert repo.file(path).body == data, path


@pytest.mark.parametrize("id", ["a--b", "org/a--b", "o..rg/x", ".hidden/x", "org/.x", "org/blobs",
                                "org/commits", "org/plans", "org/tensors", "commits", "a%5Cb", "-a", "org/x-",
                                "x%0Ay", "n" * 201, "org/x@" + "0" * 40])
# shows: security.md publish-outside
def test_bad_ids(server, id):
    bad = Repo(server.port, id)
    check_error(bad.ask("PUT", f"/blobs/{digest(b'x')}", b"x"), 400)
    check_error(bad.ask("POST", "/commits", '{"files":[]}'), 400)


def test_ids_of_one_segment_and_datasets(server):
    push(Repo(server.port, "single"), {"config.json": CONFIG, "x": b"1"})
    assert Repo(server.port, "single").file("x").body == b"1"
    rows = b'{"text": "a"}\n{"text": "b"}\n'
    data = Repo(server.port, "org/rows", "datasets")
    answer, _ = data.push({"train.jsonl": rows})
    assert answer.status == 201 and answer.json()["model"] == "org/rows"
    server.wait_for(lambda: data.ask("GET", "/rows?split=train").status == 200, "the rows are indexed")
    assert data.commits()["refs"]["main"] == answer.json()["commit"]
    hub = Repo(server.port, "org/rows", "api/datasets").ask("GET", "/tree/main")
    assert [f["path"] for f in hub.json()] == ["train.jsonl"]
    assert data.put_file("more.jsonl", rows).status == 201 and data.delete_file("more.jsonl").status == 200
    assert data.ask("DELETE").status == 204
    assert Repo(server.port, "org/rows", "api/datasets").ask("GET").status == 404


# shows: security.md publish-outside
def test_directories_of_the_operator(server):
    model, plain = Repo(server.port, "made/by-hand"), Repo(server.port, "made/plain")
    for repo in (model, plain):
        check_error(repo.other().put(b"x"), 409, "not published")
        check_error(repo.commit({"a": b"x"}), 409)
        check_error(repo.other().put_file("config.json", b"x"), 409)
        assert repo.ask("GET", "/commits").status == 404
        assert repo.ask("GET", f"/blobs/{digest(b'x')}").status == 404
    for method, path in (("DELETE", ""), ("DELETE", "/files/config.json")):
        check_error(model.ask(method, path), 409)
        check_error(plain.ask(method, path), 404)
    check_error(Repo(server.port, "made/nothing").ask("DELETE"), 404)
    assert (server.root / "made/by-hand/config.json").read_text() == "{}"
    assert (server.root / "made/plain/notes.txt").read_text() == "of the operator"


def test_ids_below_ids(server):
    """An id cannot be the beginning of another one: one of the two would be hidden."""
    files = {"config.json": CONFIG, "x": b"1"}
    push(Repo(server.port, "above/below"), files)
    check_error(Repo(server.port, "above").put(b"x"), 409)
    push(Repo(server.port, "over"), files)
    check_error(Repo(server.port, "over/under").put(b"x"), 409)
    push(Repo(server.port, "above", "datasets"), files)
    check_error(Repo(server.port, "above/below", "datasets").put(b"x"), 409)
    for id in ("datasets/x", "datasets"):
        check_error(Repo(server.port, id).put(b"x"), 400)
    push(Repo(server.port, "made/new"), files)          # beside the operator's
    for id in ("above/below", "over", "made/new"):
        assert Repo(server.port, id).file("x").body == b"1"
    assert Repo(server.port, "made/by-hand").ask("GET").status == 200


def refuse_early(repo, method, path, headers):
    """Send the head of a request alone; the answer comes before the body."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", repo.port, timeout=60)) as c:
        c.putrequest(method, repo.base + path)
        for name, value in headers.items():
            c.putheader(name, value)
        c.endheaders()
        response = c.getresponse()
        return response.status, json.loads(response.read())["error"]["message"]


def test_ids_beside_files_of_the_operator(server):
    """Files in the directory "team" make it a repository of the Hub's clients, and "team/x" a part of it; folders for
    the rows of splits do so too. A directory that has only models does not."""
    root = server.root
    for path in ("team/notes.txt", "parts/train/a.jsonl", "hidden/.notes", "datasets/rows/a.jsonl", "empty/sub/b.txt"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("{}")
    blob, chunked = {"Content-Length": "5000000"}, {"Transfer-Encoding": "chunked"}
    for id, kind in (("team/x", "models"), ("parts/test", "models"), ("rows/x", "datasets"),
                     ("made/plain", "models")):     # the last one is the operator's own
        repo = Repo(server.port, id, kind)
        for method, path, headers in (("PUT", "/blobs/" + digest(b"x"), blob), ("POST", "/blobs", chunked),
                                      ("PUT", "/files/a.txt", chunked), ("POST", "/commits", chunked)):
            status, message = refuse_early(repo, method, path, headers)
            assert status == 409, (id, method, path, status, message)
            assert "choose another name" in message
        assert repo.ask("GET", "/commits").status == 404
    for id in ("hidden/x", "empty/x"):
        assert Repo(server.port, id).put_file("a.txt", b"a").status == 201
    for id in ("upper/lower", "top"):
        assert Repo(server.port, id).put_file("a.txt", b"a").status == 201
    for id in ("upper", "top/x"):       # above and below what was published
        status, _ = refuse_early(Repo(server.port, id), "PUT", "/files/a.txt", chunked)
        assert status == 409


# shows: security.md publish-outside
def test_links_are_not_followed(server, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("models--evil--whole", "models--evil--inner"):
        repo = Repo(server.port, name[len("models--"):].replace("--", "/"))
        if name.endswith("whole"):
            (server.root / name).symlink_to(outside)
        else:
            push(repo, {"config.json": CONFIG, "x": b"1"})
            blobs = server.root / name / "blobs"
            blobs.rename(server.root / name / "old")
            blobs.symlink_to(outside)
        answer = repo.other().put(b"new")
        assert answer.status >= 400, answer
        assert os.listdir(outside) == []
    (server.root / "models--evil--whole").unlink()


# ---- files ----------------------------------------------------------------------------------------------------

def test_files(repo):
    answer = repo.put_file("sub/é.txt", b"one")
    first = check_commit(answer, 201, {"a": b"one"})
    assert answer.headers["etag"] == f'"{digest(b"one")[7:]}"'
    push(repo, {"config.json": CONFIG, "b": b""}, keep=True, delete=["sub/"])
    assert repo.put_file("sub/é.txt", b"one").status == 201 and repo.delete_file("b").status == 200
    push(repo, {"b": b""}, keep=True)
    assert repo.ask("HEAD", "/files/sub/%C3%A9.txt").headers["etag"] == f'"{digest(b"one")[7:]}"'
    parent = repo.main()
    same = {"a": b"one", "b": CONFIG, "c": b""}
    check_commit(repo.put_file("sub/é.txt", b"one"), 200, same, parent=parent, changed=False)
    streamed = repo.ask("PUT", "/files/sub/%C3%A9.txt", iter([b"tw", b"o"]))
    parent = check_commit(streamed, 200, same, parent=parent)
    assert repo.file("sub/é.txt").body == b"two"
    check_commit(repo.delete_file("sub/é.txt"), 200, {"b": CONFIG, "c": b""}, parent=parent)
    assert repo.file("sub/é.txt").status == 404
    check_error(repo.delete_file("sub/é.txt"), 404)
    check_error(repo.delete_file("sub/"), 400)
    check_error(repo.put_file("../x", b"x"), 400)
    check_error(repo.other().put_file(".hidden", b"x"), 400)


def test_conditions(repo):
    one, two = f'"{digest(b"1")[7:]}"', f'"{digest(b"2")[7:]}"'
    check_error(repo.put_file("x", b"1", {"If-Match": one}), 412)
    check_error(repo.other().put_file("x", b"1", {"If-Match": "*"}), 412)
    assert repo.other().put_file("x", b"1", {"If-None-Match": "*"}).status == 201
    for condition in ({"If-None-Match": "*"}, {"If-Match": two}, {"If-Match": "W/" + one}, {"If-None-Match": one}):
        check_error(repo.other().put_file("x", b"2", condition), 412)
        check_error(repo.other().delete_file("x", condition), 412)
    assert repo.other().put_file("x", b"2", {"If-Match": f"{two}, {one}"}).status == 200
    good = {"Repr-Digest": "sha-256=:" + base64.b64encode(hashlib.sha256(b"3").digest()).decode() + ":"}
    check_error(repo.other().put_file("x", b"4", good), 422)
    assert repo.other().put_file("x", b"3", good).status == 200
    check_error(repo.other().delete_file("x", {"If-Match": two}), 412)
    assert repo.other().delete_file("x", {"If-Match": "*"}).status == 200


def test_one_of_many_wins(repo):
    """Of many writers with the same condition, one wins."""
    for kind in ("condition", "parent"):
        path = f"{kind}.txt"
        parent = repo.main() if kind == "parent" else ""
        answers = []

        def write(i):
            mine = repo.other()
            data = b"%d of " % i + kind.encode()
            if kind == "condition":
                answers.append(mine.put_file(path, data, {"If-None-Match": "*"}))
            else:
                answers.append(mine.push({path: data}, keep=True, parent=parent)[0])

        threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert sorted(a.status for a in answers) == [201] + [412] * 7, answers
        winner = next(a for a in answers if a.status == 201).json()
        assert repo.main() == winner["commit"] and winner["parent"] == parent


def test_the_last_of_two_writers_is_whole(repo):
    sets = [{"config.json": CONFIG, **{f"{w}{i}": b"%d" % w for i in range(20)}, "x": b"x%d" % w} for w in range(2)]
    for round in range(5):
        threads = [threading.Thread(target=lambda s=s: push(repo.other(), s)) for s in sets]
        [t.start() for t in threads]
        [t.join() for t in threads]
        answer = repo.ask("GET")
        assert answer.status == 200, answer
        names = {f["path"] for f in answer.json()["files"]}
        assert names in [set(s) for s in sets]
        assert repo.file("x").body == sets[0 if names == set(sets[0]) else 1]["x"]


def test_delete_model(server, repo):
    data = pattern(5_000_000, "deleted")
    push(repo, {"config.json": CONFIG, "w.dat": data})
    used = server.gauge("tensord_publish_used_bytes")
    reader = http.client.HTTPConnection("127.0.0.1", server.port)
    reader.request("GET", repo.base + "/files/w.dat")
    answer = reader.getresponse()
    begin = answer.read(1000)
    deleted = repo.ask("DELETE")
    assert deleted.status == 204 and deleted.body == b"" and "content-length" not in deleted.headers
    assert repo.ask("GET").status == 404 and repo.file("w.dat").status == 404
    assert repo.ask("GET", "/commits").status == 404
    assert begin + answer.read() == data                # a reader finishes
    check_error(repo.ask("DELETE"), 404)
    assert server.gauge("tensord_publish_used_bytes") == used - len(data) - len(CONFIG)
    push(repo, {"config.json": CONFIG, "w.dat": b"again"})
    assert repo.file("w.dat").body == b"again"


# ---- all faces ------------------------------------------------------------------------------------------------

def test_every_face_shows_it_at_once(server, repo):
    """Although --settle is a minute."""
    name = repo.base[len("/models/"):]
    hub = Repo(server.port, name, "api/models")
    s3 = http.client.HTTPConnection("127.0.0.1", s3_port(server))
    oci = http.client.HTTPConnection("127.0.0.1", server.port)
    for i in range(10):
        files = {"config.json": CONFIG, **{f"{k}.bin": b"%d %d" % (i, k) for k in range(3)}}
        commit = push(repo, files)
        assert repo.ask("GET").json()["revision"] == commit
        tree = {f["path"]: f["lfs"]["oid"] for f in hub.ask("GET", "/tree/main").json()}
        assert tree == {p: digest(d)[7:] for p, d in files.items()}
        s3.request("GET", f"/{name}/1.bin")
        answer = s3.getresponse()
        assert answer.read() == files["1.bin"] and answer.headers["ETag"].startswith(f'"{digest(files["1.bin"])[7:23]}')
        oci.request("GET", f"/v2/{name}/tags/list")
        answer = oci.getresponse()
        assert answer.status == 200 and b"main" in answer.read()


# ---- who ------------------------------------------------------------------------------------------------------

def test_only_this_machine(server, repo):
    for field in ("X-Forwarded-For", "Via", "Origin"):
        answer = Repo(server.port, "org/x", headers={field: "other"}).put(b"x")
        check_error(answer, 403)


# shows: security.md publish-rights
def test_tokens(tmp_path, start):
    tokens = TokensFile(tmp_path / "tokens")
    tokens.add("reader", ["org/*"]).add("writer", ["org/*", "datasets/org/*"], rights=("read", "write"))
    tokens.add("other", ["x/*"], rights=("read", "write"))
    root = tmp_path / "root"
    root.mkdir()
    s = start(root, "--publish", "any", "--tokens", tokens)
    repo = Repo(s.port, "org/m", headers=tokens.bearer("writer"))
    commit = push(repo, {"config.json": CONFIG, "x": b"1"})
    assert repo.commits()["commits"][0]["token"] == "writer"
    requests = [("PUT", f"/blobs/{digest(b'y')}", b"y"), ("POST", "/blobs", b"y"), ("POST", "/commits", b"{}"),
                ("PUT", "/files/y", b"y"), ("DELETE", "/files/x", None), ("DELETE", "", None)]
    for method, path, body in requests:
        answer = Repo(s.port, "org/m").ask(method, path, body)
        check_error(answer, 401)
        assert answer.headers["www-authenticate"].startswith("Bearer")
        for who in ("reader", "other"):
            texts = {check_error(Repo(s.port, f"org/{id}", headers=tokens.bearer(who)).ask(method, path, body),
                                 403)["message"].replace(id, "ID") for id in ("mine", "none")}
            assert len(texts) == 1, texts
    assert Repo(s.port, "org/m", headers=tokens.bearer("reader")).main() == commit
    check_error(Repo(s.port, "org/m", headers=tokens.bearer("other")).ask("GET", "/commits"), 404)
    assert Repo(s.port, "org/d", "datasets", tokens.bearer("writer")).put(b"x").status == 201
    check_error(Repo(s.port, "x/d", "datasets", tokens.bearer("other")).put(b"x"), 403)
    s.wait_for(lambda: re.search(r'target="/models/org/m/commits".*token="?writer', s.log()),
               "the access log has the token")
    assert f"commit={commit} parent=- token=writer" in s.stderr()
    tokens.remove("writer")
    s.hup()
    s.wait_for(lambda: repo.other().put(b"z").status == 401, "the token is revoked")


def test_a_token_is_revoked_during_the_body(tmp_path, start):
    tokens = TokensFile(tmp_path / "tokens").add("writer", rights=("read", "write")).add("admin")
    root = tmp_path / "root"
    root.mkdir()
    s = start(root, "--publish", "any", "--tokens", tokens)
    data = pattern(PIECE, "revoked")
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=30)
    c.putrequest("PUT", f"/models/org/m/blobs/{digest(data)}")
    c.putheader("Authorization", tokens.bearer("writer")["Authorization"])
    c.putheader("Content-Length", str(len(data)))
    c.endheaders()
    c.send(data[:1000])
    tokens.remove("writer")
    s.hup()
    s.wait_for(lambda: Repo(s.port, "a", headers=tokens.bearer("writer")).ask("GET").status == 401, "it is revoked")
    c.send(data[1000:])
    assert c.getresponse().status == 401
    tokens.add("writer", rights=("read", "write"))
    s.hup()
    s.wait_for(lambda: Repo(s.port, "org/m", headers=tokens.bearer("writer")).ask(
        "GET", f"/blobs/{digest(data)}").status in (200, 404), "the token is good again")
    state = Repo(s.port, "org/m", headers=tokens.bearer("writer")).ask("GET", f"/blobs/{digest(data)}")
    assert state.status == 404 or not state.json()["complete"]


# ---- room -----------------------------------------------------------------------------------------------------

# shows: security.md publish-room
def test_no_room(tmp_path, start):
    s = start(tmp_path, "--publish", "local", "--publish-max-bytes", "1000000")
    old = {"config.json": CONFIG, "w.bin": pattern(600_000, "old")}
    repo = Repo(s.port, "org/old")
    push(repo, old)
    data = pattern(500_000, "more")
    check_error(repo.other().put(data), 507, "--publish-max-bytes")
    check_error(repo.other().ask("POST", "/blobs", data), 507)
    check_error(repo.other().ask("POST", "/blobs", iter([data])), 507)
    check_error(repo.other().put_file("more.bin", data), 507)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", s.port, timeout=30)) as c:
        c.putrequest("PUT", f"/models/org/new/blobs/{digest(data)}")        # the answer comes before the body
        c.putheader("Content-Length", str(len(data)))
        c.endheaders()
        assert c.getresponse().status == 507
    for path, content in old.items():
        assert repo.file(path).body == content
    assert s.gauge("tensord_publish_used_bytes") == 600_000 + len(CONFIG)
    assert repo.ask("DELETE").status == 204
    assert repo.other().put(data).status == 201


# shows: security.md publish-room
def test_full_disk(tmp_path, start):
    """A disk of 6 MiB: 507 before the body where the length is known, and what is there stays."""
    disk, wrapper = tmp_path / "disk", tmp_path / "on-a-small-disk"
    disk.mkdir()
    wrapper.write_text("#!/bin/sh\n"
                       f"exec unshare --map-root-user --mount sh -c 'mount -t tmpfs -o size=6m none {disk} && exec "
                       f"{tensord_binary()} \"$@\"' sh \"$@\"\n")
    wrapper.chmod(0o755)
    s = start(disk, "--publish", "local", binary=wrapper)
    repo = Repo(s.port, "org/m")
    old = {"config.json": CONFIG, "w.dat": pattern(3_000_000, "old")}
    push(repo, old)
    data = pattern(4_000_000, "more")
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", s.port, timeout=30)) as c:
        c.putrequest("PUT", f"/models/org/m/blobs/{digest(data)}")
        c.putheader("Content-Length", str(len(data)))
        c.endheaders()
        assert c.getresponse().status == 507
    check_error(repo.other().put(data), 507)
    check_error(repo.other().ask("POST", "/blobs", data), 507)
    check_error(repo.other().ask("POST", "/blobs", iter([data[:2_000_000], data[2_000_000:]])), 507)
    check_error(repo.other().put_file("more.dat", iter([data])), 507)
    for path, content in old.items():
        assert repo.file(path).body == content
    small = pattern(1_000_000, "small")
    assert repo.put(small).status == 201        # nothing of the refused ones is left
    assert repo.ask("DELETE").status == 204
    assert repo.put(data).status == 201


def failures(s):
    """Return how often requests that publish have failed, by reason."""
    _, _, samples = s.metrics()
    return {labels["reason"]: value for name, labels, value in samples if name == "tensord_publish_failures_total"}


def test_a_removal_that_is_not_shown_yet_need_not_be_repeated(place, start):
    root = place / "root"
    root.mkdir()
    if os.geteuid() == 0:
        os.chown(root, NOBODY, NOBODY)
    s = start(root, "--publish", "local", binary=as_nobody(place))
    repo = Repo(s.port, "org/m")
    push(repo, {"config.json": CONFIG, "x": b"1"})
    try:
        root.chmod(0o300)       # it cannot be listed, so scans fail
        check_error(repo.ask("DELETE"), 503, "it was removed, and is not shown yet",
                    "a later scan shows it, without another request")
    finally:
        root.chmod(0o755)
    s.wait_for(lambda: repo.file("x").status == 404, "a later scan shows it")


def test_what_an_operator_is_warned_of(place, start):
    """The room of the bound and of the disk, the age of uploads, and requests that failed, by reason."""
    root = place / "root"
    root.mkdir()
    if os.geteuid() == 0:
        os.chown(root, NOBODY, NOBODY)
    s = start(root, "--publish", "local", "--publish-max-bytes", "1000000", binary=as_nobody(place))
    disk = os.statvfs(root)
    assert s.gauge("tensord_publish_max_bytes") == 1_000_000
    assert s.gauge("tensord_publish_disk_bytes") == disk.f_blocks * disk.f_frsize
    assert 0 < s.gauge("tensord_publish_disk_free_bytes") <= disk.f_blocks * disk.f_frsize
    assert s.gauge("tensord_publish_oldest_upload_seconds") == 0
    repo = Repo(s.port, "org/m")
    push(repo, {"config.json": CONFIG, "x": b"1"})
    assert failures(s) == {"room": 0, "late": 0, "other": 0}

    check_error(repo.other().put(pattern(1_000_001, "more")), 507)
    assert failures(s) == {"room": 1, "late": 0, "other": 0}

    data = pattern(2 * PIECE, "half")
    assert repo.piece(data, 0, PIECE - 1).status == 202
    s.wait_for(lambda: s.gauge("tensord_publish_oldest_upload_seconds") > 0.2, "the open upload gets older")
    assert repo.piece(data, PIECE, 2 * PIECE - 1).status == 201
    assert s.gauge("tensord_publish_oldest_upload_seconds") == 0

    more = {"config.json": CONFIG, "x": b"1", "y": b"2"}
    assert repo.put(b"2").status == 201
    try:
        root.chmod(0o300)       # it cannot be listed, so scans fail
        check_error(repo.commit(more), 503, "is not shown yet", "Permission denied", "send the same request again")
    finally:
        root.chmod(0o755)
    assert failures(s) == {"room": 1, "late": 1, "other": 0}
    assert repo.commit(more).status == 200 and repo.file("y").body == b"2"

    (root / ".tensord-publish/lock").unlink()
    check_error(repo.put(b"another"), 500, "removed or replaced")
    assert failures(s) == {"room": 1, "late": 1, "other": 1}


# shows: security.md publish-room
def test_what_expires(tmp_path, start):
    s = start(tmp_path, "--publish", "local", "--upload-expires", "1s", "--keep-commits", "0")
    repo = Repo(s.port, "org/m")
    first = push(repo, {"config.json": CONFIG, "x": b"old"})
    repo.put(b"never used")
    for i in range(40):     # so many commits have the repository tidied before the minute is over
        repo.put_file("x", b"%d" % i)
        time.sleep(0.06)
    s.wait_for(lambda: repo.ask("GET", f"/blobs/{digest(b'never used')}").status == 404, "the blob has expired", 30)
    assert first not in [c["commit"] for c in repo.commits()["commits"]]
    assert repo.file("x").body == b"39"


def test_restart(tmp_path, start):
    s = Server(tmp_path, "--publish", "local", hash_threads=0)
    data = pattern(3 * PIECE, "resumed")
    repo = Repo(s.port, "org/m")
    first = push(repo, {"config.json": CONFIG, "x": b"1"})
    assert repo.piece(data, 0, PIECE - 1).status == 202
    used = s.gauge("tensord_publish_used_bytes")
    s.kill()
    s = start(tmp_path, "--publish", "local")
    repo = Repo(s.port, "org/m")
    check_blob(repo.ask("GET", f"/blobs/{digest(data)}"), 200, data, [[PIECE, 3 * PIECE - 1]])
    assert repo.main() == first and s.gauge("tensord_publish_used_bytes") == used
    check_blob(repo.piece(data, PIECE, 3 * PIECE - 1), 201, data)
    assert s.gauge("tensord_publish_open_blobs") == 0
