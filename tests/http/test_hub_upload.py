"""Uploads by the Hub's interface, with raw requests as huggingface_hub sends them. The clients themselves are in
tests/clients. Digests and names of Git are computed here."""
import base64
import hashlib
import http.client
import json
import os
import socket

import pytest

import harness
from harness import pattern
from signing import TokensFile

WEIGHTS = harness.safetensors_bytes([harness.tensor("w", "F32", (30, 40))])


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_name(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Answer:
    def __init__(self, response):
        self.status, self.body = response.status, response.read()
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    def json(self):
        return json.loads(self.body)

    def error(self):
        return self.json()["error"]

    @property
    def code(self):
        return self.headers.get("x-error-code")

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:600]!r}>"


class Hub:
    """Asks one server."""

    def __init__(self, server, headers=None):
        self.port, self.headers, self.url = server.port, headers or {}, f"http://127.0.0.1:{server.port}"

    def ask(self, method, path, body=None, headers=None):
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        conn.request(method, path, body, {**self.headers, **(headers or {})})
        answer = Answer(conn.getresponse())
        conn.close()
        return answer

    def create(self, name, organization=None, **more):
        return self.ask("POST", "/api/repos/create", {"name": name, "organization": organization, **more})

    def new(self, name, **more):
        """Create org/name."""
        assert self.create(name, "org", **more).status == 200
        return f"org/{name}"

    def preupload(self, id, files, revision="main", kind="models"):
        asked = [{"path": p, "size": len(d), "sample": base64.b64encode(d[:512]).decode()} for p, d in files.items()]
        answer = self.ask("POST", f"/api/{kind}/{id}/preupload/{revision}", {"files": asked})
        assert answer.status == 200, answer
        return {f["path"]: f for f in answer.json()["files"]}

    def batch(self, id, objects, **more):
        return self.ask("POST", f"/{id}.git/info/lfs/objects/batch",
                        {"operation": "upload", "transfers": ["basic", "multipart"], "hash_algo": "sha256",
                         "objects": objects, **more}, {"Content-Type": "application/vnd.git-lfs+json"})

    def commit(self, id, *lines, revision="main", kind="models", summary="test", query="", **header):
        body = [{"key": "header", "value": {"summary": summary, "description": "", **header}}, *lines]
        text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in body)
        return self.ask("POST", f"/api/{kind}/{id}/commit/{revision}{query}", text,
                        {"Content-Type": "application/x-ndjson"})

    def files(self, id, revision="main", kind="models"):
        items = self.ask("GET", f"/api/{kind}/{id}/tree/{revision}?recursive=true").json()
        return {i["path"]: i["size"] for i in items if i["type"] == "file"}

    def read(self, id, path, revision="main"):
        return self.ask("GET", f"/{id}/resolve/{revision}/{path}")


def file_line(path, data, **more):
    return {"key": "file", "value": {"content": base64.b64encode(data).decode(), "path": path, "encoding": "base64",
                                     **more}}


def lfs_line(path, data, **more):
    return {"key": "lfsFile", "value": {"path": path, "algo": "sha256", "oid": sha256(data), **more}}


def gone(path, key="deletedFile"):
    return {"key": key, "value": {"path": path}}


def committed(answer):
    assert answer.status == 200, answer
    got = answer.json()
    assert got["success"] and got["commitUrl"].endswith("/commit/" + got["commitOid"])
    return got["commitOid"]


def send(hub, id, data):
    """Send a blob as a large file, without a token."""
    action = hub.batch(id, [{"oid": sha256(data), "size": len(data)}]).json()["objects"][0]["actions"]["upload"]
    assert action["href"].startswith(hub.url + "/")
    return Hub(hub).ask("PUT", action["href"][len(hub.url):], data)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("hub-upload") / "root"
    (root / "own/model").mkdir(parents=True)
    (root / "own/model/config.json").write_text("{}")
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with harness.Server(root, "--publish", "local") as s:
        yield s


@pytest.fixture
def hub(srv):
    return Hub(srv)


# --------------------------------------------------------------------------------------------- repositories

def test_create(hub):
    for body, url in (({"name": "made", "organization": "org"}, "/org/made"), ({"name": "bare"}, "/local/bare"),
                      ({"name": "rows", "organization": "org", "type": "dataset", "private": True},
                       "/datasets/org/rows"),
                      ({"name": "x", "organization": "local", "visibility": "public"}, "/local/x")):
        answer = hub.ask("POST", "/api/repos/create", body)
        assert answer.status == 200 and answer.json()["url"] == hub.url + url, answer
        again = hub.ask("POST", "/api/repos/create", body)
        assert again.status == 409 and again.json()["url"] == hub.url + url and again.error(), again


@pytest.mark.parametrize("body, says", [
    ({"name": "s", "organization": "org", "type": "space"}, "spaces"),
    ({"name": "a--b", "organization": "org"}, "--"), ({"name": "..", "organization": "org"}, ""),
    ({"name": "", "organization": "org"}, ""), ({"name": ["x"]}, '"name" is a string'),
    ({"name": "blobs", "organization": "org"}, "blobs"),
    ("[]", "an object"), ("{", ""), ({"name": "n\0", "organization": "org"}, ""), ({"name": "a/b/c"}, ""),
])
def test_create_refuses(hub, body, says):
    answer = hub.ask("POST", "/api/repos/create", body)
    assert answer.status == 400 and says in answer.error(), answer


def test_directories_of_the_operator_stay(hub, root):
    """They are not changed by anything."""
    answer = hub.create("model", "own")
    assert answer.status == 409 and answer.json()["url"] == hub.url + "/own/model"
    assert "was not published" in answer.error()
    for answer in (hub.commit("own/model", file_line("a", b"x")), hub.batch("own/model", []),
                   hub.ask("POST", "/api/models/own/model/preupload/main", {"files": []}),
                   hub.ask("DELETE", "/api/repos/delete", {"name": "model", "organization": "own"}),
                   hub.ask("POST", "/api/models/own/model/branch/x", {})):
        assert answer.status == 409, answer
    assert os.listdir(root / "own/model") == ["config.json"]


def test_an_empty_repository(hub):
    """It has a description and no files; its missing files are not a missing repository."""
    id = hub.new("empty")
    info = hub.ask("GET", f"/api/models/{id}").json()
    assert info["id"] == id and info["siblings"] == [] and info["author"] == "org"
    for revision in ("main", info["sha"]):
        assert hub.ask("GET", f"/api/models/{id}/revision/{revision}").json()["sha"] == info["sha"]
        assert hub.ask("GET", f"/api/models/{id}/tree/{revision}?recursive=true").json() == []
    assert hub.ask("GET", f"/api/models/{id}/commits/main").json() == []
    assert hub.ask("GET", f"/api/models/{id}/refs").json()["branches"] == []
    assert hub.ask("POST", f"/api/models/{id}/paths-info/main", {"paths": ["x"]}).json() == []
    for method in ("GET", "HEAD"):
        answer = hub.ask(method, f"/{id}/resolve/main/README.md")
        assert answer.status == 404 and answer.code == "EntryNotFound", answer
    assert hub.ask("GET", f"/api/models/{id}/tree/main/sub").code == "EntryNotFound"
    assert hub.ask("GET", f"/api/models/{id}/revision/dev").code == "RevisionNotFound"
    assert hub.ask("GET", "/api/models/org/missing").code == "RepoNotFound"
    assert hub.read("org/missing", "x").code == "RepoNotFound"
    assert id not in [m["id"] for m in hub.ask("GET", "/api/models").json()]
    assert committed(hub.commit(id, file_line("a", b"1"), parentCommit=info["sha"]))
    assert hub.files(id) == {"a": 1}


# ------------------------------------------------------------------------------------------ files and commits

def test_how_files_come(hub):
    id = hub.new("modes")
    files = {"config.json": b"{}", "a.safetensors": bytes(8 << 20), "b.safetensors": bytes((8 << 20) + 1),
             "empty.bin": b"", ".gitattributes": b"x", "d/.hidden/x": b"x", "x.tmp": b"x"}
    got = hub.preupload(id, files)
    assert list(got) == list(files) and not any("oid" in f for f in got.values())
    assert [p for p, f in got.items() if f["uploadMode"] == "lfs"] == ["b.safetensors"]
    assert [p for p, f in got.items() if f["shouldIgnore"]] == [".gitattributes", "d/.hidden/x", "x.tmp"]
    rows = hub.new("modes-of-data", type="dataset")
    got = hub.preupload(rows, {"a.parquet": b"x", "b.jsonl": b"x", "empty.parquet": b""}, kind="datasets")
    assert [f["uploadMode"] for f in got.values()] == ["lfs", "regular", "regular"]


def test_what_has_not_changed(hub):
    """The client skips a file whose name of Git, or SHA-256 for a large one, is the one of its own file."""
    id, large = hub.new("same"), pattern((8 << 20) + 5, "large")
    assert send(hub, id, large).status == 201
    committed(hub.commit(id, file_line("a.json", b"{1}"), lfs_line("d/large", large, size=len(large))))
    got = hub.preupload(id, {"a.json": b"{2}", "d/large": large, "b": b"{1}", "d": b"x", "./a.json": b"{2}",
                             "d/../a.json": b"{2}", "d/../d/large": large, "d//large": large})
    assert got["a.json"]["oid"] == git_name(b"{1}") and got["d/large"]["oid"] == sha256(large)
    assert [path for path, file in got.items() if "oid" in file] == ["a.json", "d/large"]
    assert "oid" not in hub.preupload(id, {"a.json": b"longer"})["a.json"]
    assert hub.ask("POST", f"/api/models/{id}/preupload/nope", {"files": []}).code == "RevisionNotFound"
    assert hub.ask("POST", "/api/models/org/none/preupload/main", {"files": []}).code == "RepoNotFound"


@pytest.mark.parametrize("body", ["[]", "{", "{}", {"files": {}}, {"files": [1]}, {"files": [{"path": "a"}]},
                                  {"files": [{"path": "a", "size": -1}]}, {"files": [{"path": 1, "size": 1}]}])
def test_preupload_refuses(hub, body):
    hub.create("bad", "org")
    answer = hub.ask("POST", "/api/models/org/bad/preupload/main", body)
    assert answer.status == 400 and answer.error(), answer


def test_large_files(hub, srv):
    id, data = hub.new("lfs"), pattern(700_000, "lfs")
    oid = sha256(data)
    answer = hub.batch(id, [{"oid": oid, "size": len(data)}], ref={"name": "main"})
    assert answer.headers["content-type"] == "application/vnd.git-lfs+json"
    got = answer.json()
    assert got["transfer"] == "basic" and got["objects"][0]["oid"] == oid and got["objects"][0]["size"] == len(data)
    href = got["objects"][0]["actions"]["upload"]["href"][len(hub.url):]
    wrong = hub.ask("PUT", href, data[:-1] + b"?")
    assert wrong.status == 422, wrong
    assert hub.ask("PUT", href, data).status == 201
    got = hub.batch(id, [{"oid": oid, "size": len(data)}, {"oid": oid, "size": 1}, {"oid": "x", "size": 1}]).json()
    assert "actions" not in got["objects"][0] and "error" not in got["objects"][0]
    assert [o["error"]["code"] for o in got["objects"][1:]] == [422, 422]
    assert hub.batch("datasets/org/none", []).code == "RepoNotFound"
    assert hub.batch(id, [], operation="download").status == 422
    for objects in ({}, [1], [{"oid": oid}], [{"oid": oid, "size": "1"}], [{"size": 1, "oid": 2}]):
        assert hub.batch(id, objects).status == 400
    committed(hub.commit(id, lfs_line("m/x.bin", data)))
    answer = hub.read(id, "m/x.bin")
    assert answer.body == data and answer.headers["etag"] == f'"{oid}"'
    assert srv.get(f"/models/{id}/files/m/x.bin").status == 404    # a file alone is no model


PART = 64 << 20


def test_parts(hub, srv, root):
    """A file of more than two parts of 64 MiB comes in parts, where the client knows that transfer; the last part
    completes it. A part that was cut is sent again alone."""
    id = hub.new("parts")
    data = pattern(1 << 20, "parts") * 140 + b"end"
    large, small = {"oid": sha256(data), "size": len(data)}, {"oid": sha256(b"small"), "size": 5}
    assert hub.batch(id, [small]).json()["transfer"] == "basic"
    basic = hub.batch(id, [large], transfers=["basic"]).json()
    assert basic["transfer"] == "basic" and "header" not in basic["objects"][0]["actions"]["upload"]
    got = hub.batch(id, [large, small]).json()
    assert got["transfer"] == "multipart"
    one, other = [o["actions"]["upload"] for o in got["objects"]]
    assert one["header"]["chunk_size"] == str(PART) and other["header"]["chunk_size"] == "5"
    assert sorted(one["header"]) == ["1", "2", "3", "chunk_size"] and sorted(other["header"]) == ["1", "chunk_size"]

    def put(action, part, body, **headers):
        return Hub(hub).ask("PUT", action["header"][str(part)][len(hub.url):], body, headers)

    def complete(action, oid):
        return Hub(hub).ask("POST", action["href"][len(hub.url):], {"oid": oid, "parts": []})

    assert complete(one, large["oid"]).status == 404
    for part in (2, 1):
        answer = put(one, part, data[(part - 1) * PART:part * PART])
        assert answer.status == 202 and answer.headers["etag"] == f'"{large["oid"]}"', answer
    assert complete(one, large["oid"]).status == 409
    host, path = "127.0.0.1", one["header"]["3"][len(hub.url):]
    with socket.create_connection((host, srv.port), timeout=60) as cut:
        cut.sendall(f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data) - 2 * PART}\r\n\r\n".encode())
        cut.sendall(data[2 * PART:2 * PART + 300_000])
    assert put(one, 3, data[:PART]).status == 400                         # another length
    assert put(one, 3, data[2 * PART:], **{"Content-Range": "bytes 0-1/2"}).status == 400
    answer = put(one, 3, data[2 * PART:])
    assert answer.status == 201 and answer.json()["complete"] and answer.headers["etag"]
    assert put(one, 1, data[:PART]).status == 200                         # it is here
    assert complete(one, large["oid"]).status == 200
    assert put(other, 1, b"small").status == 201 and complete(other, small["oid"]).status == 200
    committed(hub.commit(id, lfs_line("large.bin", data), lfs_line("small.bin", b"small")))
    assert hub.read(id, "large.bin").body == data


def test_many_objects(hub):
    """A request may name 1,000 files, and gets 4,000 URLs of parts: it is answered in bounded memory."""
    id = hub.new("objects")
    objects = [{"oid": f"{i:064x}", "size": 1 << 40} for i in range(1001)]
    answer = hub.batch(id, objects)
    assert answer.status == 413 and "1000 objects" in answer.error()
    answer = hub.batch(id, objects[:1000])
    actions = [o["actions"]["upload"] for o in answer.json()["objects"]]
    parts = [len(a["header"]) - 1 for a in actions]
    assert max(parts) <= 100 and sum(p for p in parts if p > 1) <= 4000 and len(answer.body) < 4_000_000
    for action, count in zip(actions, parts):
        assert -(-(1 << 40) // int(action["header"]["chunk_size"])) == count   # as huggingface_hub checks
    error = hub.batch(id, [{"oid": "0" * 64, "size": 2**63}]).json()["objects"][0]["error"]
    assert error["code"] == 422


def test_a_commit(hub, srv):
    """Commits add to what is there, on every face; digests are known at once."""
    id = hub.new("model")
    first = committed(hub.commit(id, file_line("config.json", b"{}"), file_line("model.safetensors", WEIGHTS),
                                 file_line("old/a", b"a"), file_line("old/b", b"b"), file_line("empty", b"")))
    assert hub.files(id) == {"config.json": 2, "model.safetensors": len(WEIGHTS), "old/a": 1, "old/b": 1, "empty": 0}
    assert srv.get(f"/models/{id}/files/model.safetensors").etag == f'"{sha256(WEIGHTS)}"'
    second = committed(hub.commit(id, gone("old/", "deletedFolder"), gone("empty"), file_line("new", b"new"),
                                  parentCommit=first, summary="Second", description="More\nof it"))
    assert set(hub.files(id)) == {"config.json", "model.safetensors", "new"} and second != first
    assert set(hub.files(id, first)) >= {"old/a", "empty"}
    assert committed(hub.commit(id, file_line("new", b"new"))) == second
    assert committed(hub.commit(id, file_line("more", b"1"), parentCommit=second[:7]))
    history = hub.ask("GET", f"/api/models/{id}/commits/main").json()
    assert [c["id"] for c in history][1:] == [second, first]
    assert history[1]["title"] == "Second" and history[1]["message"] == "More\nof it"
    assert committed(hub.commit(id, file_line("new", b"one"), file_line("new", b"two"))) and \
        hub.read(id, "new").body == b"two"
    committed(hub.commit(id, file_line("d/x", b"1")))
    committed(hub.commit(id, gone("d", "deletedFolder")))
    assert "d/x" not in hub.files(id)


def test_commits_that_are_refused(hub):
    """Nothing changes, and the client sees why."""
    id = hub.new("refused")
    now = committed(hub.commit(id, file_line("a", b"a"), file_line("d/x", b"x")))
    for answer, status, code, says in (
            (hub.commit(id, file_line("b", b""), parentCommit="0" * 40), 412, None, now),
            (hub.commit(id, lfs_line("b", b"never sent")), 422, None, sha256(b"never sent")),
            (hub.commit(id, lfs_line("b", b"a", size=2)), 400, None, "bytes"),
            (hub.commit(id, gone("b")), 404, "EntryNotFound", '"b"'),
            (hub.commit(id, gone("a", "deletedFolder")), 404, "EntryNotFound", '"a/"'),
            (hub.commit(id, file_line("a/b", b"")), 409, None, ""),
            (hub.commit(id, file_line("../b", b"")), 400, None, ""),
            (hub.commit(id, file_line(".git/config", b"")), 400, None, ""),
            (hub.commit(id, file_line("b", b""), revision="nope"), 404, "RevisionNotFound", "nope"),
            (hub.commit(id, file_line("b", b""), revision=now), 400, None, ""),
            (hub.commit(id, file_line("b", b""), query="?create_pr=1"), 400, None, "pull request"),
            (hub.commit("org/none", file_line("b", b"")), 404, "RepoNotFound", "create it first"),
            (hub.commit(id, file_line("b", b"", encoding="utf-8")), 400, None, "line 2"),
            (hub.commit(id, file_line("b", b"", content="a")), 400, None, "line 2 of the commit: \"content\""),
            (hub.commit(id, gone("a"), "{\n"), 400, None, "line 3"),
            (hub.commit(id, {"key": "copyFile", "value": {"path": "b"}}), 400, None, "line 2"),
            (hub.ask("POST", f"/api/models/{id}/commit/main", json.dumps(gone("a"))), 400, None, "header"),
            (hub.ask("POST", f"/api/models/{id}/commit/main", b""), 400, None, "no header")):
        assert answer.status == status and answer.code == code and says in answer.error(), answer
    assert hub.ask("GET", f"/api/models/{id}").json()["sha"] == now


def test_a_long_content_takes_no_memory(hub, srv):
    """A line of 90 MiB is decoded as it arrives."""
    id, data = hub.new("long"), pattern(64 << 20, "long")
    hub.commit(id, file_line("small", b"1"))
    before = srv.anon_bytes()
    committed(hub.commit(id, file_line("large.bin", data)))
    assert srv.anon_bytes() - before < 40 << 20
    assert sha256(hub.read(id, "large.bin").body) == sha256(data)


def test_a_body_that_is_cut(hub, srv, root):
    """A client that goes away in the middle of a commit changes nothing, and leaves nothing."""
    id = hub.new("cut")
    now = committed(hub.commit(id, file_line("a", b"a")))
    with socket.create_connection(("127.0.0.1", srv.port)) as s:
        s.sendall((f"POST /api/models/{id}/commit/main HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n"
                   '{"key":"header","value":{"summary":"s"}}\n{"key":"file","value":{"content":"').encode())
        s.sendall(b"QUFB" * 100_000)
        incoming = root / ".tensord-publish/incoming"
        srv.wait_for(lambda: any(incoming.iterdir()), "the content arrives")
    srv.wait_for(lambda: not any(incoming.iterdir()), "the content is dropped")
    assert hub.ask("GET", f"/api/models/{id}").json()["sha"] == now


def test_chunked_bodies(hub):
    id = hub.new("chunked")

    def lines():
        yield json.dumps({"key": "header", "value": {"summary": "s"}}).encode() + b"\n"
        yield json.dumps(file_line("a", b"hello")).encode()
    assert committed(hub.ask("POST", f"/api/models/{id}/commit/main", lines()))
    assert hub.read(id, "a").body == b"hello"


# --------------------------------------------------------------------------------------- branches, tags, names

def refs(hub, id):
    return {b["name"]: b["targetCommit"] for b in hub.ask("GET", f"/api/models/{id}/refs").json()["branches"]}


def test_branches_and_tags(hub):
    id = hub.new("refs")
    first = committed(hub.commit(id, file_line("a", b"1")))
    assert hub.ask("POST", f"/api/models/{id}/branch/dev", {}).status == 200
    assert hub.ask("POST", f"/api/models/{id}/branch/dev", {}).status == 409
    assert hub.ask("POST", f"/api/models/{id}/tag/main", {"tag": "v1", "message": "m"}).status == 200
    assert hub.ask("POST", f"/api/models/{id}/tag/main", {"tag": "v1"}).status == 409
    second = committed(hub.commit(id, file_line("a", b"22"), revision="dev"))
    assert refs(hub, id) == {"main": first, "dev": second, "v1": first}
    assert hub.files(id, "dev") == {"a": 2} and hub.files(id, "v1") == {"a": 1}
    assert hub.ask("POST", f"/api/models/{id}/branch/a%2Fb", {"startingPoint": second}).status == 200
    assert hub.files(id, "a%2Fb") == {"a": 2}
    for answer in (hub.ask("POST", f"/api/models/{id}/branch/x", {"startingPoint": "nope"}),
                   hub.ask("POST", f"/api/models/{id}/tag/nope", {"tag": "x"}),
                   hub.ask("DELETE", f"/api/models/{id}/branch/x"), hub.ask("DELETE", f"/api/models/{id}/tag/x"),
                   hub.ask("POST", f"/api/models/{id}/super-squash/x", {})):
        assert answer.status == 404 and answer.code == "RevisionNotFound", answer
    assert hub.ask("POST", f"/api/models/{id}/branch/..", {}).status == 400
    assert hub.ask("POST", f"/api/models/{id}/tag/main", {}).status == 400
    assert hub.ask("DELETE", f"/api/models/{id}/branch/main").status == 409
    assert hub.ask("DELETE", f"/api/models/{id}/branch/a%2Fb").status == 200
    assert hub.ask("DELETE", f"/api/models/{id}/tag/v1").status == 200
    assert refs(hub, id) == {"main": first, "dev": second}


def test_a_branch_before_the_first_commit(hub):
    """Clients make a branch of the empty main of a new repository, and commit to it."""
    id = hub.new("early")
    for name in ("step-1", "step-2"):
        assert hub.ask("POST", f"/api/models/{id}/branch/{name}", {}).status == 200
        assert hub.preupload(id, {"a": b"1"}, name)["a"]["uploadMode"] == "regular"
        committed(hub.commit(id, file_line(name, b"1"), revision=name))
        assert hub.files(id, name) == {name: 1}
    committed(hub.commit(id, file_line("main", b"1")))
    assert hub.files(id) == {"main": 1}
    assert hub.commit(id, file_line("main", b"1"), revision="step-3").code == "RevisionNotFound"


def test_squash(hub):
    id = hub.new("squash")
    for n in range(3):
        last = committed(hub.commit(id, file_line("a", b"x" * n), summary=f"step {n}"))
    assert [c["title"] for c in hub.ask("GET", f"/api/models/{id}/commits/main").json()] == \
        ["step 2", "step 1", "step 0"]
    assert hub.ask("POST", f"/api/models/{id}/super-squash/main", {"message": "all"}).status == 200
    assert [(c["id"], c["title"]) for c in hub.ask("GET", f"/api/models/{id}/commits/main").json()] == [(last, "all")]
    assert hub.read(id, "a").body == b"xx"


def test_move_and_delete(hub, srv, root):
    id = hub.new("from")
    committed(hub.commit(id, file_line("config.json", b"{}"), file_line("model.safetensors", WEIGHTS)))
    for body, status in (({"fromRepo": "org/none", "toRepo": "org/n"}, 404), ({"fromRepo": id}, 400),
                         ({"fromRepo": id, "toRepo": "own/model"}, 409), ({"fromRepo": id, "toRepo": id}, 409)):
        answer = hub.ask("POST", "/api/repos/move", body)
        assert answer.status == status, (body, answer)
    assert hub.ask("POST", "/api/repos/move", {"fromRepo": id, "toRepo": "new/name", "type": "model"}).status == 200
    assert hub.read(id, "config.json").code == "RepoNotFound"
    assert hub.read("new/name", "model.safetensors").body == WEIGHTS
    assert srv.get("/models/new/name/files/model.safetensors").etag == f'"{sha256(WEIGHTS)}"'
    committed(hub.commit("new/name", file_line("more", b"1")))
    empty = hub.new("empty-from")
    assert hub.ask("POST", "/api/repos/move", {"fromRepo": empty, "toRepo": "org/empty-to"}).status == 200
    assert hub.ask("GET", "/api/models/org/empty-to").json()["siblings"] == []
    for name, organization in (("name", "new"), ("empty-to", "org")):
        body = {"name": name, "organization": organization, "type": "model"}
        assert hub.ask("DELETE", "/api/repos/delete", body).status == 200
        answer = hub.ask("DELETE", "/api/repos/delete", body)
        assert answer.status == 404 and answer.code == "RepoNotFound"
        assert hub.ask("GET", f"/api/models/{organization}/{name}").code == "RepoNotFound"
    assert not list(root.glob("models--new--*"))


# ------------------------------------------------------------------------------------------------ small answers

def test_cards_and_checks(hub):
    id = hub.new("checks")
    answer = hub.ask("POST", "/api/validate-yaml", {"content": "---\nlicense: mit\n---\n", "repoType": "model"})
    assert answer.status == 200 and answer.json() == {"errors": [], "warnings": []}
    assert hub.ask("GET", f"/api/models/{id}/auth-check/write").status == 200
    assert hub.ask("GET", f"/api/models/{id}/auth-check/other").status == 404


def test_settings(hub):
    """Tokens decide who sees a repository, so its visibility is no matter; nothing is gated."""
    base = f"/api/models/{hub.new('set')}"
    path = base + "/settings"
    for body in ({"private": True}, {"visibility": "private"}, {"gated": False}, {}):
        assert hub.ask("PUT", path, body).status == 200, body
    answer = hub.ask("PUT", path, {"gated": "auto"})
    assert answer.status == 400 and "gated" in answer.error()
    answer = hub.ask("PUT", "/api/models/org/none/settings", {"private": True})
    assert answer.status == 404 and answer.code == "RepoNotFound"
    answer = hub.ask("POST", base + "/discussions", {"title": "x", "pullRequest": True})
    assert answer.status == 400 and "pull requests" in answer.error()


# -------------------------------------------------------------------------------------------------- who may

ASKS = [("POST", "/api/repos/create", {"name": "m", "organization": "org"}),
        ("DELETE", "/api/repos/delete", {"name": "m", "organization": "org"}),
        ("POST", "/api/repos/move", {"fromRepo": "org/m", "toRepo": "org/n"}),
        ("POST", "/api/models/org/m/preupload/main", {"files": []}),
        ("POST", "/api/models/org/m/commit/main", '{"key":"header","value":{}}'),
        ("POST", "/org/m.git/info/lfs/objects/batch", {"operation": "upload", "objects": []}),
        ("POST", "/api/models/org/m/branch/dev", {}), ("DELETE", "/api/models/org/m/branch/dev", None),
        ("POST", "/api/models/org/m/tag/main", {"tag": "t"}), ("DELETE", "/api/models/org/m/tag/t", None),
        ("POST", "/api/models/org/m/super-squash/main", {"message": "m"}),
        ("PUT", "/api/models/org/m/settings", {"private": True}),
        ("POST", "/api/models/org/m/discussions", {"title": "t"})]


def test_nobody_where_publishing_is_off(root, start):
    hub = Hub(start(root))
    for method, path, body in ASKS + [("POST", "/api/validate-yaml", {})]:
        assert hub.ask(method, path, body).status == 405, path
    assert hub.ask("GET", "/org/m.git/info/lfs/objects/batch").status == 405


def test_tokens(tmp_path, start):
    """Every write needs a token with the right to write for this id; a large file needs none, because its URL is
    signed."""
    tokens = TokensFile(tmp_path / "tokens.json").add("reader").add("writer", ["org/*"], rights=("read", "write"))
    tokens.add("other", ["else/*"], rights=("read", "write"))
    root = tmp_path / "root"
    root.mkdir()
    s = start(root, "--publish", "any", "--tokens", tokens)
    nobody, reader, other, writer = (Hub(s, tokens.bearer(n) if n else {}) for n in ("", "reader", "other", "writer"))
    for method, path, body in ASKS:
        assert nobody.ask(method, path, body).status == 401, path
        for hub in (reader, other):
            answer = hub.ask(method, path, body)
            assert answer.status == 403 and "right to write" in answer.error(), (path, answer)
    card = {"content": "---\nlicense: mit\n---\n", "repoType": "model"}
    assert nobody.ask("POST", "/api/validate-yaml", card).status == 200       # clients send no token with it
    assert Hub(s, {"Authorization": "Bearer td_wrong"}).ask("POST", "/api/validate-yaml", card).status == 401
    assert not (root / "models--org--m").exists() and not list((root / ".tensord-publish/new").iterdir())
    assert writer.create("m", "org").status == 200
    assert writer.create("m", "else").status == 403
    assert writer.ask("POST", "/api/repos/move", {"fromRepo": "org/m", "toRepo": "else/m"}).status == 403
    assert other.ask("GET", "/api/models/org/m").status == 404    # as if it were not there
    assert writer.ask("GET", "/api/models/org/m/auth-check/write").status == 200
    assert reader.ask("GET", "/api/models/org/m").status == 200
    assert reader.ask("GET", "/api/models/org/m/auth-check/write").status == 403
    data = pattern(100_000, "signed")
    href = writer.batch("org/m", [{"oid": sha256(data), "size": len(data)}]).json()["objects"][0]["actions"]
    href = href["upload"]["href"][len(writer.url):]
    assert "signature=writer." in href
    for method in ("GET", "POST", "DELETE"):
        assert nobody.ask(method, href).status in (401, 403)
    assert nobody.ask("PUT", href.replace(sha256(data), sha256(b"x")), b"x").status == 403
    assert nobody.ask("PUT", href, data).status == 201
    asked = writer.batch("org/m", [{"oid": "0" * 64, "size": 3 * PART}]).json()["objects"][0]["actions"]["upload"]
    whole, part = (asked["href"][len(writer.url):], asked["header"]["2"][len(writer.url):])
    assert nobody.ask("POST", whole, {}).status == 404
    assert nobody.ask("PUT", whole, b"x").status == 403 and nobody.ask("POST", part, b"x").status == 403
    assert nobody.ask("PUT", part.replace("67108864-", "0-"), b"x").status == 403
    assert nobody.ask("POST", whole.replace("0" * 64, sha256(data)), {}).status == 403
    assert nobody.ask("POST", href.partition("?")[0], {}).status == 401
    assert reader.ask("POST", href.partition("?")[0], {}).status == 403
    oid = committed(writer.commit("org/m", lfs_line("x.bin", data)))
    s.wait_for(lambda: s.log().count("token=writer") >= 5, "the log has the writer's requests")
    assert reader.read("org/m", "x.bin").body == data
    assert [c["authors"] for c in reader.ask("GET", "/api/models/org/m/commits/main").json()] == [[{"user": "writer"}]]
    tokens.remove("writer")
    s.wait_for(lambda: writer.ask("GET", "/api/whoami-v2").status == 401, "the token is gone")
    assert writer.commit("org/m", file_line("b", b"b")).status == 401
    assert nobody.ask("PUT", href, data).status == 403
    assert reader.ask("GET", "/api/models/org/m").json()["sha"] == oid


def test_only_from_here(srv):
    """--publish local is not for requests that a proxy or a page in a browser passed on."""
    for field in ("X-Forwarded-For", "Origin"):
        hub = Hub(srv, {field: "http://a.example"})
        for method, path, body in ASKS:
            assert hub.ask(method, path, body).status == 403, path


@pytest.mark.parametrize("method, path", [(m, p) for m, p, _ in ASKS] + [("POST", "/api/validate-yaml")])
def test_refused_before_the_body(srv, method, path):
    """The path alone shows who may publish nothing or not there, and which repository is not there."""
    for field, status in (("X-Forwarded-For: 10.0.0.1\r\n", 403), ("", 404)):
        if status == 404 and "/commit/" not in path:
            continue
        with socket.create_connection(("127.0.0.1", srv.port), timeout=10) as s:
            s.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{field}Content-Length: 1000000\r\n\r\n".encode())
            assert s.recv(4096).startswith(b"HTTP/1.1 %d " % status)


def test_no_room(tmp_path, start):
    """A large file that does not fit is refused before it is sent; a commit's content while it arrives."""
    root = tmp_path / "root"
    root.mkdir()
    hub = Hub(start(root, "--publish", "local", "--publish-max-bytes", "20M"))
    id = hub.new("room")
    got = hub.batch(id, [{"oid": "0" * 64, "size": 21 << 20}, {"oid": "1" * 64, "size": 1000}]).json()["objects"]
    assert got[0]["error"]["code"] == 507 and "--publish-max-bytes" in got[0]["error"]["message"]
    assert "actions" in got[1]
    answer = hub.commit(id, file_line("a", bytes(21 << 20)))
    assert answer.status == 507, answer
    assert committed(hub.commit(id, file_line("a", bytes(1000))))
