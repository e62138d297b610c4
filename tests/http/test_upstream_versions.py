"""Versions behind a server with --upstream: the list of the upstream's, `?version=`, revisions of the Hub. Each test
runs two servers, or a stranger in the upstream's place; the expectations are the upstream's own answers, and the bytes
that the test wrote."""
import contextlib
import hashlib
import http.server
import json
import os
import shutil
import socketserver
import subprocess
import threading
import time

import pytest
from harness import check_error, enc, safetensors_bytes, tensor, tensord_binary
from publishing import Repo
from signing import TokensFile
from upstream_kit import cache, count, hubs  # noqa: F401
from upstream_kit import weights as large

ID = "org/name"
LONG = 60
STEPS = range(1, 6)


def weights(salt):
    return safetensors_bytes([tensor("w", "F32", [4, 6], str(salt)), tensor("b", "BF16", [8], str(salt))])


def files(salt):
    return {"config.json": b'{"model_type": "llama"}', "model.safetensors": weights(salt)}


@pytest.fixture
def origin(tmp_path, start):
    (tmp_path / "origin").mkdir()
    return start(tmp_path / "origin", "--publish", "local", settle="0")


def url_of(s):
    return f"http://127.0.0.1:{s.port}"


def push(s, salt, revision, name=ID, **more):
    answer = Repo(s.port, name).push(files(salt), revision=revision, **more)[0]
    assert answer.status in (200, 201), answer
    return answer.json()["commit"]


def put(root, path, salt):
    """Put a model of the upstream into place by one rename."""
    made = root / (path.replace("/", "-") + ".tmp")
    made.mkdir(parents=True)
    for name, data in files(salt).items():
        (made / name).write_bytes(data)
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    os.rename(made, root / path)


def names(s, name=ID, **fields):
    return [row["version"] for row in s.json(f"/models/{enc(name, '/')}/versions", **fields)["versions"]]


def has_version(s, version, name=ID):
    s.wait_for(lambda: version in names(s, name), f"{version} is listed", 20)


def read(s, version, name=ID, file="files/model.safetensors", **more):
    """The bytes of a version, once they are here."""
    got = []

    def is_there():
        got[:] = [s.get(f"/models/{enc(name, '/')}/{file}?version={version}", **more)]
        return got[0].status == 200
    s.wait_for(is_there, f"{name} at {version}", 20)
    return got[0]


def published(s, version, name=ID):
    """Wait until the version's tensors can be read."""
    s.wait_for(lambda: s.get(f"/models/{enc(name, '/')}/tensors?version={version}").status == 200,
               f"{version} is complete", 20)


def facts(rows):
    return [{key: value for key, value in row.items() if key != "updated"} for row in rows]


# ------------------------------------------------------------------------------------------------- pushed revisions

def test_pushed_revisions(origin, cache):   # noqa: F811
    """The list is the upstream's; each version has its bytes, and is fetched once."""
    for n in (1, 2, 10):
        push(origin, n, f"weight_v{n:06}")
    push(origin, "main", "main")
    has_version(origin, "weight_v000010")
    s = cache(url_of(origin))
    theirs = origin.json(f"/models/{ID}/versions")
    ours = s.json(f"/models/{ID}/versions")
    assert ours["latest"] == theirs["latest"] == "weight_v000010"
    assert facts(ours["versions"]) == facts(theirs["versions"]) and len(ours["versions"]) == 4
    assert [row["updated"] for row in ours["versions"]] == [row["updated"] for row in theirs["versions"]]
    assert count(s, "begun_total") == 0         # a list fetches no model
    for asked, name, salt in (("weight_v000002", "weight_v000002", 2), ("2", "weight_v000002", 2),
                              ("latest", "weight_v000010", 10), ("000001", "weight_v000001", 1)):
        answer = read(s, asked)
        assert answer.body == weights(salt) and answer.get("X-Tensord-Version") == name
    assert count(s, "begun_total") == 3
    for n in (1, 2, 10):
        published(s, f"weight_v{n:06}")
        manifest = s.json(f"/models/{ID}/tensors?version=weight_v{n:06}")
        assert manifest["model"] == ID and manifest["version"] == f"weight_v{n:06}"
        assert s.get(f"/models/{ID}/tensors/w?version={n}").body == \
            origin.get(f"/models/{ID}/tensors/w?version={n}").body
    assert count(s, "begun_total") == 3 and count(s, "published_total") == 3
    assert s.ids() == []        # versions are in no list of models
    described = s.json(f"/models/{ID}?version=1")
    assert described["id"] == ID and described["version"] == "weight_v000001"
    assert described["upstream"]["state"] == "here"


def test_main_and_versions(origin, cache):      # noqa: F811
    """main is the model as without versions, beside its versions."""
    push(origin, "main", "main")
    push(origin, 5, "step-5")
    s = cache(url_of(origin))
    s.wait_for(lambda: s.get(f"/models/{ID}").status == 200, "main is fetched", 20)
    assert read(s, "step-5").body == weights(5)
    published(s, "step-5")
    s.wait_for(lambda: s.ids() == [ID], "main is published", 20)
    assert s.get(f"/models/{ID}/files/model.safetensors").body == weights("main")
    assert s.get(f"/{ID}/resolve/main/model.safetensors").body == weights("main")
    tree = {row["path"] for row in s.json(f"/api/models/{ID}/tree/main?recursive=1")}
    assert tree == {"config.json", "model.safetensors"}
    assert s.json(f"/api/models/{ID}")["sha"] == origin.json(f"/api/models/{ID}")["sha"]
    assert count(s, "begun_total") == 2


def test_the_hub(origin, cache):        # noqa: F811
    commits = {n: push(origin, n, f"step-{n}") for n in (1, 2)}
    s = cache(url_of(origin))

    def resolve(revision, name="model.safetensors"):
        got = []

        def is_there():
            got[:] = [s.get(f"/{ID}/resolve/{revision}/{name}")]
            return got[0].status == 200
        s.wait_for(is_there, revision, 20)
        return got[0]
    for revision, n in (("step-1", 1), ("latest", 2), (commits[1], 1), ("step-2", 2)):
        answer = resolve(revision)
        assert answer.body == weights(n) and answer.get("X-Repo-Commit") == commits[n], revision
    for n in (1, 2):
        published(s, f"step-{n}")
        info = s.json(f"/api/models/{ID}/revision/step-{n}")
        assert info["sha"] == commits[n] and info["id"] == ID
        assert resolve(commits[n], "config.json").body == files(n)["config.json"]
        tree = s.json(f"/api/models/{ID}/tree/step-{n}")
        assert {row["path"]: row["size"] for row in tree} == {k: len(v) for k, v in files(n).items()}
    assert count(s, "begun_total") == 2
    answer = s.get(f"/{ID}/resolve/step-9/config.json")
    assert answer.status == 404 and count(s, "begun_total") <= 3
    assert s.get(f"/{ID}/resolve/2/config.json").status == 404          # a number is no revision


# ---------------------------------------------------------------------------------------------------- folders

@pytest.mark.parametrize("family", ["run", "org/run"])
def test_folders(tmp_path, start, cache, family):       # noqa: F811
    (tmp_path / "origin").mkdir()
    for n in (9, 10):
        put(tmp_path / "origin", f"{family}/weight_v{n:06}", n)
    origin = start(tmp_path / "origin", settle="0")
    s = cache(url_of(origin))
    has_version(origin, "weight_v000010", family)
    ours, theirs = (x.json(f"/models/{family}/versions") for x in (s, origin))
    assert facts(ours["versions"]) == facts(theirs["versions"]) and ours["latest"] == theirs["latest"]
    assert read(s, "latest", family).body == weights(10)
    assert read(s, 9, family).body == weights(9)
    published(s, 9, family), published(s, 10, family)
    if family == "run":     # a model of its own, as at the upstream
        assert s.get("/models/run/weight_v000009/files/model.safetensors").body == weights(9)
    assert count(s, "begun_total") == 2
    put(s.root.parent / "origin", f"{family}/weight_v000011", 11)
    has_version(s, "weight_v000011", family)
    answer = s.get(f"/{family}/resolve/weight_v000011/model.safetensors")
    assert answer.status == 200 and answer.body == weights(11)
    published(s, 11, family)
    assert count(s, "begun_total") == 3


def test_main_of_a_folder_is_the_latest(tmp_path, start, cache):        # noqa: F811
    """Also when another one becomes the latest: nothing is kept as the folder's own model."""
    (tmp_path / "origin").mkdir()
    put(tmp_path / "origin", "run/step-1", 1)
    origin = start(tmp_path / "origin", settle="0")
    s = cache(url_of(origin))
    assert s.get("/models/run").status == 404
    for n in (1, 2):
        if n == 2:
            put(tmp_path / "origin", "run/step-2", 2)
            has_version(s, "step-2", "run")
        s.wait_for(lambda n=n: s.get("/run/resolve/main/model.safetensors").body == weights(n), f"main is {n}", 20)
        assert s.get("/api/models/run").status == 200
        published(s, n, "run")
    assert sorted(x.name for x in s.root.iterdir() if not x.name.startswith(".")) == ["run"]
    assert sorted(x.name for x in (s.root / "run").iterdir()) == ["step-1", "step-2"]


# ---------------------------------------------------------------------------------------------------- waiting

def test_wait_ends_soon_after_the_push(origin, cache):      # noqa: F811
    push(origin, 0, "step-0")
    s = cache(url_of(origin))
    times = {}

    def follow(server):
        tag = ""
        while f"step-{len(STEPS)}" not in times.get(server, {}):
            answer = server.get(f"/models/{ID}/versions?wait={enc(tag)}&timeout={LONG}", timeout=LONG + 10)
            tag = answer.etag
            if answer.status == 200:
                times.setdefault(server, {}).setdefault(answer.json()["latest"], time.monotonic())
    waiters = [threading.Thread(target=follow, args=[x]) for x in (s, origin)]
    for waiter in waiters:
        waiter.start()
    for n in STEPS:
        time.sleep(0.5)
        push(origin, n, f"step-{n}")
    for waiter in waiters:
        waiter.join()
    late = sorted(times[s][f"step-{n}"] - times[origin][f"step-{n}"] for n in STEPS)
    assert late[len(STEPS) // 2] < 1, late      # behind a client that waits at the upstream
    state = s.get(f"/models/{ID}/versions")
    assert s.get(f"/models/{ID}/versions?wait={enc(state.etag)}&timeout=1").status == 304


def test_wait_for_latest(origin, cache):        # noqa: F811
    push(origin, 1, "step-1")
    s = cache(url_of(origin))
    read(s, "latest")
    published(s, "latest")
    first = s.get(f"/models/{ID}?version=latest")
    assert first.json()["version"] == "step-1"
    got = []
    waiter = threading.Thread(target=lambda: got.append(
        s.get(f"/models/{ID}?version=latest&wait={enc(first.etag)}&timeout={LONG}", timeout=LONG + 10)))
    waiter.start()
    time.sleep(0.3)
    push(origin, 2, "step-2")
    waiter.join(20)
    assert got and got[0].status == 200 and got[0].json()["version"] == "step-2"
    assert read(s, "latest").body == weights(2)


def test_wait_for_the_first_version(origin, cache):     # noqa: F811
    s = cache(url_of(origin))
    got = []
    waiter = threading.Thread(target=lambda: got.append(
        s.get(f"/models/{ID}/versions?wait=&timeout={LONG}", timeout=LONG + 10)))
    waiter.start()
    time.sleep(0.5)
    push(origin, 1, "step-1")
    waiter.join(20)
    assert got and got[0].status == 200 and got[0].json()["latest"] == "step-1"


def test_a_chain(origin, cache):        # noqa: F811
    push(origin, 1, "step-1")
    rack = cache(url_of(origin), root="rack")
    node = cache(url_of(rack), root="node")
    state = node.get(f"/models/{ID}/versions")
    assert state.json()["latest"] == "step-1"
    push(origin, 2, "step-2")
    answer = node.get(f"/models/{ID}/versions?wait={enc(state.etag)}&timeout={LONG}", timeout=LONG + 10)
    assert answer.status == 200 and answer.json()["latest"] == "step-2"
    assert read(node, "latest").body == weights(2)
    assert count(node, "begun_total") == count(rack, "begun_total") == 1


# ---------------------------------------------------------------------------------------- changes at the upstream

def test_a_version_that_moves(origin, cache):       # noqa: F811
    """A ref that is pushed again leads to other bytes, here too."""
    push(origin, 1, "step-1")
    s = cache(url_of(origin))
    assert read(s, 1).body == weights(1)
    published(s, 1)
    s.wait_for(lambda: count(s, "following") == 1, "the events are followed", 20)
    push(origin, "again", "step-1")
    s.wait_for(lambda: read(s, 1).body == weights("again"), "the new bytes are here", 20)
    assert count(s, "renewed_total") == 1


def test_a_version_that_is_deleted(tmp_path, start, cache):     # noqa: F811
    """It leaves the list; what was fetched stays, as any model that is removed there."""
    (tmp_path / "origin").mkdir()
    for n in (1, 2, 3):
        put(tmp_path / "origin", f"run/step-{n}", n)
    origin = start(tmp_path / "origin", settle="0")
    s = cache(url_of(origin))
    assert read(s, 3, "run").body == weights(3)
    published(s, 3, "run")
    for n in (2, 3):
        shutil.rmtree(tmp_path / f"origin/run/step-{n}")
    s.wait_for(lambda: names(s, "run") == ["step-1"], "the list is the upstream's", 20)
    assert s.json("/models/run/versions")["latest"] == "step-1"
    assert read(s, "latest", "run").body == weights(1)
    assert read(s, 3, "run").body == weights(3)
    error = check_error(s.get("/models/run/tensors?version=step-2"), 404)
    assert error["details"]["known"] == ["step-1", "latest"]


def test_an_upstream_that_is_away(tmp_path, origin, cache, start):      # noqa: F811
    """The list stays as it was; after a restart here, it has the versions that were fetched."""
    for n in (1, 2, 3):
        push(origin, n, f"step-{n}")
    s = cache(url_of(origin))
    before = s.json(f"/models/{ID}/versions")
    assert read(s, 2).body == weights(2)
    published(s, 2)
    origin.stop()
    time.sleep(2)
    assert s.json(f"/models/{ID}/versions") == before
    assert read(s, 2).body == weights(2)
    assert s.get(f"/models/{ID}/tensors?version=3").status == 503
    s.stop()
    s = start(tmp_path / "cache", "--upstream", url_of(origin))
    s.wait_for(lambda: s.get(f"/models/{ID}/versions").status == 200, "the list of what is here", 40)
    listing = s.json(f"/models/{ID}/versions")
    assert [row["version"] for row in listing["versions"]] == ["step-2"] and listing["latest"] == "step-2"
    assert s.get(f"/models/{ID}/files/model.safetensors?version=step-2").body == weights(2)
    assert s.get(f"/{ID}/resolve/step-2/model.safetensors").body == weights(2)


def test_eviction(origin, cache):       # noqa: F811
    """Versions count as models do: the one that was read longest ago makes room, and is fetched again by a request."""
    for n in (1, 2, 3):
        Repo(origin.port, ID).push({"model.safetensors": large(1 << 20, str(n))}, revision=f"step-{n}")
    s = cache(url_of(origin), "--cache-max-bytes", 2_300_000)
    for n in (1, 2, 3):
        assert read(s, n).body == large(1 << 20, str(n))
        published(s, n)
        time.sleep(0.1)
    kept = sorted(x.name for x in (s.root / "org").iterdir())
    assert kept == ["name@step-2", "name@step-3"]
    assert names(s) == ["step-1", "step-2", "step-3"]
    assert read(s, 1).body == large(1 << 20, "1")


# ---------------------------------------------------------------------------------------------------- rights

def test_tokens(tmp_path, start, cache):        # noqa: F811
    """A token sees of a folder the versions that it may see, of a cache all if it may see the model."""
    (tmp_path / "origin").mkdir()
    for n in (1, 2, 3):
        put(tmp_path / "origin", f"run/step-{n}", n)
    origin = start(tmp_path / "origin", "--publish", "local", settle="0")
    push(origin, 7, "step-7")
    tokens = TokensFile(tmp_path / "tokens.json").add("all").add("some", ["run/step-[12]"]).add("name", [ID]).add(
        "other", ["else/*"])
    s = cache(url_of(origin), "--tokens", str(tokens))

    def listed(token, name):
        answer = s.get(f"/models/{name}/versions", headers=tokens.bearer(token))
        return [row["version"] for row in answer.json()["versions"]] if answer.status == 200 else answer.status
    assert listed("all", "run") == ["step-1", "step-2", "step-3"]
    assert listed("some", "run") == ["step-1", "step-2"]
    assert listed("other", "run") == 404 and listed("other", ID) == 404 and listed("some", ID) == 404
    assert listed("name", ID) == ["step-7"] and listed("name", "run") == 404
    some = tokens.bearer("some")
    assert read(s, "latest", "run", headers=some).body == weights(2)
    assert s.get("/models/run/files/model.safetensors?version=step-3", headers=some).status == 404
    assert s.get("/run/resolve/step-3/model.safetensors", headers=some).status == 404
    assert read(s, 7, headers=tokens.bearer("name")).body == weights(7)
    assert s.get(f"/models/{ID}/files/model.safetensors?version=7", headers=some).status == 404
    assert s.get(f"/models/{ID}/files/model.safetensors?version=7", headers=tokens.bearer("other")).status == 404


# ---------------------------------------------------------------------------------------------- other upstreams

def test_a_hub_has_no_versions(hubs, cache):    # noqa: F811
    hub = hubs({ID: files(0)})
    s = cache(hub.url)
    assert s.get(f"/models/{ID}/versions?wait=&timeout=0").status in (200, 404)
    s.wait_for(lambda: s.get(f"/models/{ID}").status == 200, "main is fetched", 20)
    assert s.json(f"/models/{ID}/versions")["versions"] == []
    error = check_error(s.get(f"/models/{ID}/tensors?version=step-1"), 404)
    assert error["details"]["known"] == []


class Stranger(http.server.BaseHTTPRequestHandler):
    """A tensord by its /version, whose lists of versions the test decides."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body, **fields):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.server.asked.append(self.path)
        with contextlib.suppress(OSError):
            if self.path == "/version":
                self.answer(200, b'{"name": "tensord", "version": "1"}')
            elif "/versions" in self.path:
                self.server.speak(self)
            else:
                self.answer(404, b"{}")


@pytest.fixture
def stranger():
    servers = []

    def go(speak):
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Stranger)
        server.daemon_threads = True
        server.asked, server.speak = [], speak
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server, f"http://127.0.0.1:{server.server_address[1]}"

    yield go
    for server in servers:
        server.shutdown()
        server.server_close()


def row(name, number=None, **more):
    return {"version": name, "number": number, "kind": "full", "base": None, "href": "/x", "total_bytes": 1,
            "file_bytes": 1, "updated": "2026-11-30T00:00:00.123Z", **more}


def one_page(rows, latest=None, **more):
    return json.dumps({"model": ID, "latest": latest, "versions": rows, "next_page_token": "", **more}).encode()


HOSTILE = {
    "not json": b"<html>",
    "a list": b"[1, 2]",
    "no rows": b'{"latest": null}',
    "a name of 1 MB": one_page([row("x" * (1 << 20))]),
    "a name with a slash": one_page([row("a/b")]),
    "a name that leaves": one_page([row("..")]),
    "a name with a NUL": one_page([row("a\0b")]),
    "no name": one_page([{"kind": "full"}]),
    "two of one name": one_page([row("step-1", 1), row("step-1", 1)]),
    "a latest that is not there": one_page([row("step-1", 1)], "step-2"),
    "a negative number": one_page([row("step-1", -1)]),
    "a number of 40 digits": one_page([row("step-1", 10 ** 40)]),
    "refs that are no list": one_page([row("step-1", 1, commit="c", refs={})]),
    "a time in the year 9999": one_page([row("step-1", 1, updated="9999-12-31T23:59:59Z")]),
    "deeply nested": b'{"versions":' + b"[" * 100000,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_lists(stranger, cache, what):      # noqa: F811
    _, url = stranger(lambda http: http.answer(200, HOSTILE[what], ETag='"1-1"'))
    s = cache(url)
    assert s.get(f"/models/{ID}/versions", timeout=60).status == 503
    assert s.get(f"/models/{ID}/tensors?version=step-1", timeout=60).status == 503
    assert s.get("/healthz").status == 200 and s.ids() == []
    assert "list of versions of" in s.stderr()


def test_names_that_no_folder_can_have(stranger, cache):        # noqa: F811
    """They are listed, since they are the upstream's, and not fetched."""
    strange = ["step 1", "ü1", "a@b", "x" * 150, "a.tmp", 'q"uote']
    _, url = stranger(lambda http: http.answer(200, one_page([row(name) for name in strange]), ETag='"1-1"'))
    s = cache(url)
    assert sorted(names(s)) == sorted(strange)
    for name in strange:
        check_error(s.get(f"/models/{ID}/tensors?version={enc(name)}"), 404)
    assert [x.name for x in s.root.iterdir() if not x.name.startswith(".")] == []


def test_deltas_in_a_circle(stranger, cache):       # noqa: F811
    rows = [row("step-1", 1, kind="delta", base="step-2"), row("step-2", 2, kind="delta", base="step-1")]
    _, url = stranger(lambda http: http.answer(200, one_page(rows), ETag='"1-1"'))
    s = cache(url)
    listing = s.json(f"/models/{ID}/versions")
    assert [(x["version"], x["base"], x["kind"]) for x in listing["versions"]] == [
        ("step-1", "step-2", "delta"), ("step-2", "step-1", "delta")]
    assert listing["latest"] is None
    check_error(s.get(f"/models/{ID}?version=latest"), 404)


def test_a_million_versions(stranger, cache):       # noqa: F811
    """An upstream that lists versions without an end is bounded, in requests and in memory."""
    def speak(http):
        first = len(http.server.asked) * 1000
        rows = [row(f"step-{first + i}", first + i) for i in range(1000)]
        http.answer(200, one_page(rows, "step-1", next_page_token=f"t{first}"), ETag='"1-1"')
    server, url = stranger(speak)
    s = cache(url)
    before = s.anon_bytes()
    s.get(f"/models/{ID}/versions", timeout=60)
    s.wait_for(lambda: "versions of" in s.stderr(), "the list is refused", 180)
    assert len(server.asked) < 1100
    assert s.get("/healthz").status == 200
    assert s.get(f"/models/{ID}/versions").status == 503
    assert s.anon_bytes() - before < 256 << 20


def test_a_list_that_changes_all_the_time(stranger, cache):     # noqa: F811
    """A stranger that answers every wait at once is asked a few times a second."""
    def speak(http):
        n = len(http.server.asked)
        http.answer(200, one_page([row(f"step-{n}", n)], f"step-{n}"), ETag=f'"{n}-1"')
    server, url = stranger(speak)
    s = cache(url)
    assert s.get(f"/models/{ID}/versions").status == 200
    asked = len(server.asked)
    time.sleep(3)
    assert len(server.asked) - asked < 20


def test_many_names(origin, cache):     # noqa: F811
    """A client that invents names is bounded as with models, and lists of others are answered."""
    push(origin, 1, "step-1")
    s = cache(url_of(origin))
    statuses = [s.get(f"/models/org/n{i}/versions").status for i in range(80)]
    assert set(statuses) <= {404, 429} and 429 in statuses
    assert statuses.count(404) >= 30        # a name counts for its list and for its model


def test_a_loop(tmp_path, start, cache):        # noqa: F811
    """Two servers that pull from each other answer 404, also for versions."""
    from upstream_kit import free_port
    ports = free_port(), free_port()
    a = cache(f"http://127.0.0.1:{ports[1]}", "--listen", f"127.0.0.1:{ports[0]}", root="a")
    b = cache(f"http://127.0.0.1:{ports[0]}", "--listen", f"127.0.0.1:{ports[1]}", root="b")
    for s in (a, b):
        s.wait_for(lambda s=s: s.get(f"/models/{ID}/versions", timeout=40).status == 404, "there is no such list", 60)


def test_digests(origin, cache):        # noqa: F811
    """The SHA-256 that the Hub's tree shows is that of the bytes."""
    push(origin, 3, "step-3")
    s = cache(url_of(origin))
    read(s, 3)
    published(s, 3)
    tree = {x["path"]: x for x in s.json(f"/api/models/{ID}/tree/step-3")}
    assert tree["model.safetensors"]["lfs"]["oid"] == hashlib.sha256(weights(3)).hexdigest()


def test_the_commands(tmp_path, origin, cache):     # noqa: F811
    """`tensord pull --revision` and `tensord follow` take versions from a cache that has none of them yet."""
    for n in (1, 2):
        push(origin, n, f"step-{n}")
    s = cache(url_of(origin))

    def command(*args):
        done = subprocess.run([tensord_binary(), *args, "--quiet"], capture_output=True, text=True, timeout=60,
                              check=False)
        assert done.returncode == 0, done.stderr
    command("pull", url_of(s), ID, "--revision", "step-1", "-o", tmp_path / "one")
    assert (tmp_path / "one/model.safetensors").read_bytes() == weights(1)
    command("follow", url_of(s), ID, "-o", tmp_path / "followed", "--once")
    assert (tmp_path / "followed/latest/model.safetensors").read_bytes() == weights(2)
    assert (tmp_path / "followed/step-2").is_dir()
    assert count(s, "begun_total") == 2
