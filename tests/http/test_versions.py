"""Versions: families of folders and of Hub caches, their list, `?version=`, and their faces for clients of the Hub, of
registries and of S3. The expectations are the rules of docs/versions.md, and the bytes that the test wrote."""
import hashlib
import html
import re
import shutil
import threading
import urllib.parse

import numpy as np
import pytest

from harness import age, check_error, enc, safetensors_bytes, tensor, write_by_hand
from publishing import Repo
from signing import TokensFile

C1, C2, C3 = "1" * 40, "2" * 40, "3" * 40
LONG = 100                                               # seconds that no wait here lasts


def write(root, path, salt):
    """Write a model of two tensors, and return them."""
    tensors = [tensor("a.weight", "F32", [8, 4], str(salt)), tensor("b", "BF16", [6], str(salt))]
    write_by_hand(root / path / "model.safetensors", tensors)
    age(root / path)
    return tensors


def write_cache(root, id, commit, salt, *refs):
    """Write a snapshot of a Hub cache as clients do: a symlink to a blob; and refs to it."""
    cache = root / ("models--" + id.replace("/", "--"))
    write_by_hand(cache / "blobs" / f"blob-{salt}",
                  [tensor("a.weight", "F32", [8, 4], str(salt)), tensor("b", "BF16", [6], str(salt))])
    (cache / "snapshots" / commit).mkdir(parents=True)
    (cache / "snapshots" / commit / "model.safetensors").symlink_to(f"../../blobs/blob-{salt}")
    for ref in refs:
        (cache / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (cache / "refs" / ref).write_text(commit)
    age(cache)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("versions") / "root"
    for number in (9, 10, 11):
        write(root, f"run/weight_v{number:06}", number)
    write(root, "run/step-9", "step 9")
    write(root, "run/final", "final")
    (root / "run/weight_v000012").mkdir()
    (root / "run/weight_v000012/model.safetensors").write_bytes(b"broken")
    age(root / "run")
    write(root, "org/run/global_step_2", "two")
    write(root, "org/run/global_step_10", "ten")
    write(root, "a/b/c/d/epoch-1", "deep")
    write(root, "plain", "plain")
    write(root, "google/gemma-2", 2)
    write(root, "google/gemma-3", 3)
    write_cache(root, "org/name", C1, 1, "step-5", "step-40", "v1.0")
    write_cache(root, "org/name", C2, 2, "main", "step-30")
    write_cache(root, "org/name", C3, 3)
    write_cache(root, "gpt2", C1, "g1")
    write_cache(root, "gpt2", C2, "g2", "main")
    return root


@pytest.fixture(scope="module")
def srv(root):
    import harness
    s = harness.Server(root, hash_threads=0)
    s.wait_ready()
    yield s
    s.stop()


def versions(s, id, **fields):
    return s.json(f"/models/{enc(id, '/')}/versions", **fields)


def names(listing):
    return [row["version"] for row in listing["versions"]]


# ---------------------------------------------------------------------------------------------- the list

def test_the_list_of_a_folder(srv):
    listing = versions(srv, "run")
    assert listing["model"] == "run" and listing["latest"] == "weight_v000011" and listing["next_page_token"] == ""
    assert names(listing) == ["step-9", "weight_v000009", "weight_v000010", "weight_v000011", "weight_v000012"]
    assert [row["number"] for row in listing["versions"]] == [9, 9, 10, 11, 12]
    row = listing["versions"][1]
    described = srv.json("/models/run/weight_v000009")
    assert row == {"version": "weight_v000009", "number": 9, "kind": "full", "base": None, "href": row["href"],
                   "total_bytes": 140, "file_bytes": described["file_bytes"], "updated": described["updated"]}
    assert srv.json(row["href"])["version"] == "weight_v000009"
    assert names(versions(srv, "org/run")) == ["global_step_2", "global_step_10"]
    assert names(versions(srv, "local/run")) == names(listing)
    assert names(versions(srv, "a/b/c/d")) == ["epoch-1"]


def test_the_list_of_a_cache(srv):
    listing = versions(srv, "org/name")
    assert listing["latest"] == "step-40"
    assert [(r["version"], r["number"], r["commit"], r["refs"]) for r in listing["versions"]] == [
        (C3, None, C3, []), ("step-30", 30, C2, ["main", "step-30"]),
        ("step-40", 40, C1, ["step-40", "step-5", "v1.0"])]
    listing = versions(srv, "gpt2")
    assert (names(listing), listing["latest"]) == ([C1, C2], C2)


def test_models_without_versions(srv):
    assert versions(srv, "plain") == {"model": "plain", "latest": None, "versions": [], "next_page_token": ""}
    assert versions(srv, "google/gemma-2")["versions"] == []
    for id in ("google", "none", "run/none", "a/b", "org"):
        check_error(srv.get(f"/models/{id}/versions"), 404)


def test_pages(srv):
    whole = versions(srv, "run")
    rows, token = [], ""
    while True:
        r = srv.get(f"/models/run/versions?page_size=2&page_token={token}")
        rows += r.json()["versions"]
        token = r.json()["next_page_token"]
        assert r.json()["latest"] == "weight_v000011"
        if not token:
            break
    assert rows == whole["versions"]
    other = srv.get("/models/org/run/versions?page_size=1").json()["next_page_token"]
    check_error(srv.get(f"/models/run/versions?page_token={other}"), 400)
    for query in ("page_size=0", "page_size=x", "timeout=x", "match=*", "version=latest", "checkpoint=safetensors"):
        check_error(srv.get(f"/models/run/versions?{query}"), 400)


def test_methods_and_conditions(srv):
    for id in ("run", "plain", "org/name"):
        target = f"/models/{id}/versions"
        r = srv.get(target)
        assert r.status == 200 and r.etag, r
        head = srv.head(target)
        assert (head.status, head.etag, head.get("Content-Length")) == (200, r.etag, r.get("Content-Length"))
        assert srv.get(target, {"If-None-Match": r.etag}).status == 304
        assert srv.get(target, {"If-Match": '"other"'}).status == 412
        assert srv.get(target + "/").body == r.body
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            check_error(srv.request(target, method=method), 405)


def test_reserved_names(start, tmp_path):
    """No id ends in `versions` or `changes`; the folder's files stay in the model above."""
    write(tmp_path / "root", "m/versions", 1)
    write(tmp_path / "root", "m/changes", 2)
    write(tmp_path / "root", "m/versions/step-1", 3)
    s = start(tmp_path / "root")
    assert [e["file"] for e in s.json("/models")["errors"]] == ["m/changes", "m/versions"]
    assert s.ids() == ["m/versions/step-1"]
    check_error(s.get("/models/m/versions"), 404)


def test_hostile_names(start, tmp_path):
    root = tmp_path / "root"
    for name in ("step-1", "step-1 ", "STEP-2", "step-\u0661", "v0000000000000000001", "1e3", "..5", "v-1"):
        write(root, f"run/{name}", name)
    write(root, "a b/\u00fc%2F/step-3", "odd")
    write_cache(root, "odd", "v\u00fc \"x\"", "c", "main")
    s = start(root)
    assert names(versions(s, "run")) == ["step-1"]
    listing = versions(s, "a b/\u00fc%2F")
    assert names(listing) == ["step-3"]
    assert s.json(listing["versions"][0]["href"])["id"] == "a b/\u00fc%2F"
    listing = versions(s, "odd")
    assert names(listing) == ["v\u00fc \"x\""]
    r = s.get(listing["versions"][0]["href"])
    assert r.status == 200 and r.get("X-Tensord-Version") == "v%C3%BC%20%22x%22", r
    for text in ("", "%00", "%FF", "a" * 5000, "..", "step-1%2F..", "99999999999999999999", "-1", "+1", "latest%20"):
        r = s.get(f"/models/run/tensors?version={text}")
        assert r.status in (400, 404), (text, r)
        assert len(r.body) < 2000


def test_more_prefixes(start, tmp_path):
    import subprocess

    from harness import tensord_binary
    root = tmp_path / "root"
    for name in ("ckpt.12", "ckpt.x", "e\u00e9 3", "step-1", "other4"):
        write(root, f"run/{name}", name)
    s = start(root, "--version-prefix", "ckpt.", "--version-prefix=e\u00e9 ,run")
    assert names(versions(s, "run")) == ["step-1", "e\u00e9 3", "ckpt.12"]
    r = s.get("/models/run?version=3")
    assert r.json()["version"] == "e\u00e9 3" and r.get("X-Tensord-Version") == "e%C3%A9%203", r
    assert "ckpt.12" in s.json("/v2/run/tags/list")["tags"]
    s = start(root, env={"TENSORD_VERSION_PREFIX": "ckpt.,other"})
    assert names(versions(s, "run")) == ["step-1", "other4", "ckpt.12"]
    for wrong in (["a/b"], ["a,"], [","], ["x" * 65], ["a\n"], [f"p{i}" for i in range(33)]):
        options = [option for prefix in wrong for option in ("--version-prefix", prefix)]
        r = subprocess.run([tensord_binary(), "serve", str(root), "--listen", "127.0.0.1:0", *options],
                           capture_output=True, text=True, timeout=60, check=False)
        assert r.returncode != 0 and "--version-prefix" in r.stderr, (wrong, r)


# ---------------------------------------------------------------------------------------------- ?version=

ROUTES = ("", "/tensors", "/tensors/a.weight", "/tensors/a.weight?slice=0:2", "/shards/none/tp2/rank-1.safetensors",
          "/shards/none/tp2/rank-1.json", "/model.safetensors", "/files/model.safetensors")


def with_version(target, version):
    return f"{target}{'&' if '?' in target else '?'}version={version}"


@pytest.mark.parametrize("route", ROUTES)
def test_the_answer_is_the_version_s(srv, route):
    for id, version, model, name in (("run", "weight_v000009", "run/weight_v000009", "weight_v000009"),
                                     ("run", "10", "run/weight_v000010", "weight_v000010"),
                                     ("run", "000011", "run/weight_v000011", "weight_v000011"),
                                     ("run", "latest", "run/weight_v000011", "weight_v000011"),
                                     ("org/run", "latest", "org/run/global_step_10", "global_step_10"),
                                     ("a/b/c/d", "1", "a/b/c/d/epoch-1", "epoch-1")):
        own = srv.get(f"/models/{model}{route}")
        r = srv.get(with_version(f"/models/{id}{route}", version))
        assert (r.status, own.status) == (200, 200), r
        assert r.get("X-Tensord-Version") == name and own.get("X-Tensord-Version") is None
        if r.get("Content-Type") != "application/json":
            assert (r.body, r.etag) == (own.body, own.etag)
            assert r.get("X-Tensor-Shape") == own.get("X-Tensor-Shape")
            assert srv.get(with_version(f"/models/{id}{route}", version), {"Range": "bytes=1-3"}).body == r.body[1:4]
            continue
        document, mine = r.json(), own.json()
        key = "id" if route == "" else "model"
        assert (document[key], document["version"], mine[key]) == (id, name, model)
        for row, other in zip(document.get("tensors", []), mine.get("tensors", [])):
            if "href" in row:
                assert "latest" not in row["href"]
                assert srv.get(row["href"]).body == srv.get(other["href"]).body
            assert {**row, "href": 0} == {**other, "href": 0}
        head = srv.head(with_version(f"/models/{id}{route}", version))
        assert (head.status, head.etag, head.get("X-Tensord-Version")) == (200, r.etag, name)
        again = srv.get(with_version(f"/models/{id}{route}", version), {"If-None-Match": r.etag})
        assert (again.status, again.get("X-Tensord-Version")) == (304, name)


def test_what_a_version_of_a_cache_can_be_called(srv):
    def commit(version):
        return srv.json(f"/models/org/name?version={enc(version)}")["revision"]
    assert [commit(v) for v in ("step-5", "step-40", "v1.0", C1, "40", "latest")] == [C1] * 6
    assert [commit(v) for v in ("main", "step-30", "30", C2)] == [C2] * 4
    assert commit(C3) == C3
    for version in ("5", "none", "4" * 40):
        check_error(srv.get(f"/models/org/name?version={version}"), 404)
    described = srv.json("/models/org/name?version=v1.0")
    assert (described["id"], described["version"]) == ("org/name", "step-40")
    whole = srv.get(f"/org/name/resolve/{C1}/model.safetensors").body
    assert srv.get("/models/org/name/tensors/b?version=step-5").body == whole[-12:]
    assert srv.json("/models/gpt2?version=latest")["revision"] == C2
    assert srv.json("/models/gpt2")["revision"] == C2


def test_the_first_that_fits(start, tmp_path):
    """A name comes before a ref and a commit, these before a number, and that before `latest`."""
    root = tmp_path / "root"
    for name in ("9", "step-9", "10", "epoch_11", "iter12"):
        write(root, f"run/{name}", name)
    write_cache(root, "org/name", C1, 1, "latest", "step-1")
    write_cache(root, "org/name", C2, 2, "step-2", "20")
    write_cache(root, "org/name", C3, 3, C2, "v3")                  # a ref with the name of another snapshot
    s = start(root)

    def chosen(id, version):
        r = s.get(f"/models/{id}?version={version}")
        return r.json()["version"] if r.status == 200 else r.status
    assert [chosen("run", v) for v in ("9", "09", "10", "010", "11", "000012", "latest")] == [
        "9", 400, "10", "10", "epoch_11", "iter12", "iter12"]
    listing = versions(s, "org/name")
    assert listing["latest"] == "20" and names(listing) == ["step-1", "v3", "20"]
    assert [chosen("org/name", v) for v in ("latest", "step-2", "20", "2", "3", C1, C3)] == [
        "step-1", "20", "20", 404, "v3", "step-1", "v3"]
    assert chosen("org/name", C2) == "v3"       # the ref, which the snapshot's own folder does not outrank


def test_the_page_of_files(srv):
    """Its links lead to files of the version that was the latest one when it was made."""
    r = srv.get("/models/run/files?version=latest")
    assert (r.status, r.get("X-Tensord-Version")) == (200, "weight_v000011")
    links = [link for link in re.findall(r'href="([^"]*)"', r.body.decode()) if "model.safetensors" in link]
    wanted = srv.get("/models/run/weight_v000011/files/model.safetensors").body
    assert links
    for link in links:
        target = urllib.parse.urljoin("/models/run/files?version=latest", html.unescape(link))
        assert "latest" not in target and srv.get(target).body == wanted, (link, target)


def test_unknown_and_ambiguous_versions(srv):
    for route in (*ROUTES, "/tensors:read", "/plans", "/plans/" + "0" * 32):
        method = "POST" if route in ("/tensors:read", "/plans") else "GET"
        ask = srv.post if method == "POST" else srv.get
        r = ask(with_version(f"/models/run{route}", "weight_v7"), *([{}] if method == "POST" else []))
        assert r.status == 404, r
        known = r.json()["error"]["details"]["known"]
        assert known[-1] == "latest" and "weight_v000011" in known and "weight_v000011" in r.json()["error"]["message"]
        assert r.get("X-Tensord-Version") is None
    r = srv.get("/models/run/tensors?version=9")
    assert r.status == 400 and r.json()["error"]["details"]["known"] == ["step-9", "weight_v000009"], r
    r = srv.get("/models/plain?version=latest")
    assert r.status == 404 and r.json()["error"]["details"]["known"] == [], r
    check_error(srv.get("/models/none?version=latest"), 404)
    check_error(srv.get("/models/run/weight_v000009?version=latest"), 404)
    assert srv.get("/models?version=latest").status == 400
    assert srv.get("/models/run").status == 404 and srv.get("/models/run/tensors").status == 404
    assert srv.get("/models/run/tensors?version=latest&version=9").status == 400


def test_reads_and_plans(srv):
    body = {"tensors": [{"name": "b"}, {"name": "a.weight", "slice": "0:1"}]}
    r = srv.post("/models/run/tensors:read?version=latest", body)
    assert (r.status, r.get("X-Tensord-Version")) == (200, "weight_v000011")
    assert r.body == srv.post("/models/run/weight_v000011/tensors:read", body).body
    plan = srv.post("/models/run/plans?version=latest", {"engine": "none", "tp_size": 2})
    assert plan.status in (200, 201) and plan.json()["model"] == "run", plan
    assert plan.json()["version"] == "weight_v000011"
    own = srv.post("/models/run/weight_v000011/plans", {"engine": "none", "tp_size": 2}).json()
    for rank, mine in zip(plan.json()["ranks"], own["ranks"]):
        assert "version=weight_v000011" in rank["href"] and rank["etag"] == mine["etag"]
        assert srv.get(rank["href"]).body == srv.get(mine["href"]).body
    location = f"/models/run/{plan.get('Location')}" if plan.get("Location") else \
        f"/models/run/plans/{own['id']}?version=latest"
    assert srv.get(location).json() == plan.json()
    assert srv.get(f"/models/run/plans/{own['id']}/rank-0.json?version=10").json()["version"] == "weight_v000010"


# ---------------------------------------------------------------------------------------------- waiting

class Waiter(threading.Thread):
    def __init__(self, server, target, headers=()):
        super().__init__()
        self.ask = lambda: server.get(target, headers, timeout=LONG)
        self.start()

    def run(self):
        self.result = self.ask()

    def answer(self):
        self.join(LONG)
        assert not self.is_alive()
        return self.result


def wait_for_waiters(s, count):
    s.wait_for(lambda: s.gauge("tensord_waiters") == count, f"{count} requests wait", 30)


def test_waits(start, tmp_path):
    root = tmp_path / "root"
    write(root, "run/step-1", 1)
    s = start(root, "--settle", "0", settle="0", rescan="0")

    def scan():
        assert s.request("/rescan", method="POST").status == 200

    listing, latest = s.get("/models/run/versions").etag, s.get("/models/run?version=latest").etag
    fixed = s.get("/models/run?version=step-1").etag
    waiters = [Waiter(s, f"/models/run/versions?wait={enc(listing)}&timeout={LONG}"),
               Waiter(s, f"/models/run?version=latest&wait={enc(latest)}&timeout={LONG}"),
               Waiter(s, f"/models/run?version=2&wait=&timeout={LONG}"),
               Waiter(s, f"/models/new/versions?wait=&timeout={LONG}"),
               Waiter(s, f"/models/new?version=latest&wait=&timeout={LONG}"),
               Waiter(s, f"/models/run?version=step-1&wait={enc(fixed)}&timeout={LONG}")]
    wait_for_waiters(s, 6)
    write(root, "other", 1)
    scan()
    wait_for_waiters(s, 6)
    write(root, "run/step-2", 1)                          # the same bytes: another version all the same
    write(root, "new/v1", 1)
    scan()
    assert names(waiters[0].answer().json()) == ["step-1", "step-2"]
    assert [w.answer().json()["version"] for w in (waiters[1], waiters[2], waiters[4])] == ["step-2", "step-2", "v1"]
    assert names(waiters[3].answer().json()) == ["v1"]
    wait_for_waiters(s, 1)
    write(root, "run/step-1", "changed")
    scan()
    assert waiters[5].answer().status == 200
    last = s.get("/models/run?version=latest").etag
    waiter = Waiter(s, f"/models/run?version=latest&wait={enc(last)}&timeout={LONG}")
    wait_for_waiters(s, 1)
    shutil.rmtree(root / "run")
    scan()
    assert waiter.answer().status == 404
    assert s.get(f"/models/new/versions?wait={enc(s.get('/models/new/versions').etag)}&timeout=0").status == 304
    check_error(s.get("/models/none/versions?wait=&timeout=0"), 404)


def test_a_ref_alone_ends_waits(start, tmp_path):
    """A push of the same bytes under another name is another version: its snapshot is the same."""
    root = tmp_path / "root"
    write_cache(root, "org/name", C1, 1, "main", "step-1")
    s = start(root, settle="0", rescan="0")
    tags = [s.get(target).etag for target in ("/models/org/name/versions", "/models/org/name?version=latest",
                                              "/models/org/name/tensors?version=latest")]
    waiters = [Waiter(s, f"/models/org/name/versions?wait={enc(tags[0])}&timeout={LONG}"),
               Waiter(s, f"/models/org/name?version=latest&wait={enc(tags[1])}&timeout={LONG}")]
    wait_for_waiters(s, 2)
    (root / "models--org--name/refs/step-2").write_text(C1)
    assert s.request("/rescan", method="POST").status == 200
    assert waiters[0].answer().json()["latest"] == "step-2"
    assert waiters[1].answer().json()["version"] == "step-2"
    r = s.get("/models/org/name/tensors?version=latest", {"If-None-Match": tags[2]})
    assert (r.status, r.json()["version"]) == (200, "step-2")


@pytest.mark.parametrize("refs", [["step-1"], ["step-1", "main"]])
def test_a_version_of_a_cache_keeps_its_tags(start, tmp_path, refs):
    """Another version becomes the latest one, or another commit main: tags, plans and waits of the version stay."""
    root = tmp_path / "root"
    write_cache(root, "org/name", C1, 1, *refs)
    s = start(root, settle="0", rescan="0", hash_threads=0)
    targets = [with_version(f"/models/org/name{route}", "step-1") for route in ROUTES]
    before = [s.get(target) for target in targets]
    assert {r.status for r in before} == {200}
    manifest = s.json("/models/org/name/tensors?version=step-1")["etag"]
    body = {"boxes": [{"name": "b"}], "manifest": manifest}
    plan = s.post("/models/org/name/plans?version=step-1", body)
    assert plan.status in (200, 201), plan
    boxes = f"/models/org/name/plans/{plan.json()['id']}/boxes.bin?version=step-1"
    sent = s.get(boxes)
    assert sent.status == 200
    waiter = Waiter(s, f"/models/org/name?version=step-1&wait={enc(s.get(targets[0]).etag)}&timeout={LONG}")
    wait_for_waiters(s, 1)
    write_cache(tmp_path / "more", "org/name", C2, 2, *[ref.replace("step-1", "step-2") for ref in refs])
    for path in ("blobs/blob-2", f"snapshots/{C2}", *[f"refs/{ref.replace('step-1', 'step-2')}" for ref in refs]):
        (tmp_path / "more/models--org--name" / path).rename(root / "models--org--name" / path)
    assert s.request("/rescan", method="POST").status == 200
    assert s.json("/models/org/name?version=latest")["version"] == "step-2"
    for target, r in zip(targets, before):
        again = s.get(target)
        assert (again.etag, again.body) == (r.etag, r.body), target
    assert s.post("/models/org/name/plans?version=step-1", body).json() == plan.json()
    again = s.get(boxes, {"If-Match": sent.etag})
    assert (again.status, again.body, again.etag) == (200, sent.body, sent.etag)
    assert waiter.is_alive()
    shutil.rmtree(root / "models--org--name/snapshots" / C1)
    assert s.request("/rescan", method="POST").status == 200
    assert waiter.answer().status == 404


# ---------------------------------------------------------------------------------------------- rights

# shows: security.md token-hidden
def test_tokens(root, tmp_path, start):
    tokens = TokensFile(tmp_path / "tokens.json")
    some = tokens.add("some", ["run/weight_v00000*", "org/name"]).bearer("some")
    every = tokens.add("every", ["*"]).bearer("every")
    none = tokens.add("none", ["plain"]).bearer("none")
    s = start(root, "--tokens", tokens)
    listing = s.json("/models/run/versions", headers=some)
    assert (names(listing), listing["latest"]) == (["weight_v000009"], "weight_v000009")
    assert s.get("/models/run?version=latest", some).json()["version"] == "weight_v000009"
    r = s.get("/models/run?version=weight_v000010", some)
    assert r.status == 404 and r.json()["error"]["details"]["known"] == ["weight_v000009", "latest"], r
    for hidden, absent in (("run?version=weight_v000010", "run?version=weight_v777777"),
                           ("run?version=10", "run?version=77"), ("org/run/versions", "no/run/versions"),
                           ("org/run?version=latest", "no/run?version=latest"),
                           ("run/weight_v000010?version=1", "run/weight_v777777?version=1")):
        r, other = s.get(f"/models/{hidden}", some), s.get(f"/models/{absent}", some)
        assert r.status == other.status == 404
        assert r.body.replace(b"org/run", b"no/run").replace(b"000010", b"777777").replace(
            b'"10\\"', b'"77\\"') == other.body
    assert s.get("/models/run?version=weight_v000010", every).status == 200
    assert len(s.json("/models/org/name/versions", headers=some)["versions"]) == 3
    assert s.get("/models/org/name?version=v1.0", some).status == 200
    for target in ("/models/run/versions", "/models/run?version=latest", "/models/org/name/versions"):
        assert s.get(target, none).status == 404
        assert s.get(target).status == 401
    assert s.get("/v2/run/tags/list", none).status == 404
    assert "weight_v000010" not in s.get("/v2/run/tags/list", some).json()["tags"]
    signed = s.post("/sign", {"path": "/models/run/tensors/b?version=latest", "expires_in": 60}, some).json()["path"]
    r = s.get(signed)
    assert (r.status, r.get("X-Tensord-Version")) == (200, "weight_v000009")
    assert s.get(signed.replace("latest", "weight_v000010")).status in (401, 403)


# ---------------------------------------------------------------------------------------------- other faces

def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_hub(srv, root):
    refs = {b["name"]: b["targetCommit"] for b in srv.json("/api/models/run/refs")["branches"]}
    assert set(refs) >= {"main", "latest", "step-9", "weight_v000009", "weight_v000012"}
    assert refs["main"] == refs["latest"] == refs["weight_v000011"]
    assert len(set(refs.values()) - {refs.get("safetensors")}) == 5   # one commit for each version
    for id in ("run", "local/run"):
        for version in ("weight_v000009", "step-9"):
            info = srv.json(f"/api/models/{id}/revision/{version}")
            assert (info["id"], info["sha"]) == ("local/run", refs[version])
            assert [f["rfilename"] for f in info["siblings"]] == ["model.safetensors"]
            want = (root / "run" / version / "model.safetensors").read_bytes()
            assert srv.get(f"/{id}/resolve/{version}/model.safetensors").body == want
            assert srv.get(f"/{id}/resolve/{refs[version]}/model.safetensors").body == want
    for id in ("run", "org/run", "org/name", "plain"):
        r = srv.get(f"/api/models/{id}/revision/none")
        assert (r.status, r.get("X-Error-Code")) == (404, "RevisionNotFound"), r
    # a folder of two segments is a repository as before, with a folder for each version
    assert [f["rfilename"] for f in srv.json("/api/models/org/run")["siblings"]] == [
        "global_step_10/model.safetensors", "global_step_2/model.safetensors"]
    assert srv.get("/org/run/resolve/global_step_2/model.safetensors").body == \
        srv.get("/org/run/resolve/main/global_step_2/model.safetensors").body
    assert srv.get("/org/run/resolve/latest/model.safetensors").body == \
        srv.get("/org/run/resolve/main/global_step_10/model.safetensors").body
    assert srv.get("/org/name/resolve/latest/model.safetensors").get("X-Repo-Commit") == C1
    assert srv.get("/org/name/resolve/main/model.safetensors").get("X-Repo-Commit") == C2
    assert srv.get("/gpt2/resolve/latest/model.safetensors").get("X-Repo-Commit") == C2
    assert srv.get("/plain/resolve/latest/model.safetensors").get("X-Error-Code") == "RevisionNotFound"
    assert [b["name"] for b in srv.json("/api/models/gpt2/refs")["branches"]] == ["main", "safetensors"]


def test_the_registry(srv):
    repositories = srv.json("/v2/_catalog")["repositories"]
    assert {"run", "run/weight_v000009", "org/run", "org/name", "gpt2"} <= set(repositories)
    assert len(set(repositories)) == len(repositories)
    tags = srv.json("/v2/run/tags/list")["tags"]
    assert set(tags) >= {"latest", "main", "step-9", "weight_v000009", "weight_v000011"}
    assert {"global_step_2", "global_step_10", "latest"} <= set(srv.json("/v2/org/run/tags/list")["tags"])
    assert {"step-30", "step-40", "step-5", "v1.0", "latest"} <= set(srv.json("/v2/org/name/tags/list")["tags"])


def test_s3_keys_are_as_ever(root, start):
    from harness import s3_port
    s = start(root, "--s3-listen", "127.0.0.1:0")
    import urllib.request
    with urllib.request.urlopen(f"http://127.0.0.1:{s3_port(s)}/run?list-type=2") as r:
        text = r.read().decode()
    assert "<Key>weight_v000009/model.safetensors</Key>" in text and "<Key>final/model.safetensors</Key>" in text


def test_only_broken_versions(start, tmp_path):
    (tmp_path / "root/run/v1").mkdir(parents=True)
    (tmp_path / "root/run/v1/model.safetensors").write_bytes(b"broken")
    age(tmp_path / "root")
    s = start(tmp_path / "root")
    assert versions(s, "run")["latest"] is None
    r = s.get("/models/run?version=latest")
    assert r.status == 404 and r.json()["error"]["details"]["known"] == ["v1"], r
    assert s.json("/models/run?version=v1")["checkpoints"] == []
    assert [b["name"] for b in s.json("/api/models/run/refs")["branches"]] == ["v1"]
    assert s.get("/run/resolve/v1/model.safetensors").body == b"broken"
    r = s.get("/run/resolve/main/model.safetensors")
    assert (r.status, r.get("X-Error-Code")) == (404, "RevisionNotFound"), r
    assert s.get("/api/models/run").status == 404
    assert s.json("/v2/run/tags/list")["tags"] == ["v1"]


def test_bytes_are_what_numpy_wrote(start, tmp_path):
    from safetensors.numpy import load, save_file
    for number in range(1, 4):
        (tmp_path / f"root/run/iter_{number:07}").mkdir(parents=True)
        save_file({"w": np.full((3, 5), number, np.float32)}, tmp_path / f"root/run/iter_{number:07}/model.safetensors")
    age(tmp_path / "root")
    s = start(tmp_path / "root")
    for number in range(1, 4):
        got = np.frombuffer(s.get(f"/models/run/tensors/w?version={number}").body, np.float32)
        assert (got == number).all() and got.size == 15
        assert (load(s.get(f"/models/run/model.safetensors?version={number}").body)["w"] == number).all()


# ------------------------------------------------------------------------------------------- commits without a ref

def test_the_commit_of_a_deleted_branch(start, tmp_path):
    """A deleted branch leaves a commit that is kept for its readers: it is listed by its hash, without refs, can be
    asked for, and is neither the latest version nor a ref of the Hub or a tag of the registry."""
    s = start(tmp_path, "--publish", "local", hash_threads=1)
    repo = Repo(s.port, "org/m")

    def push(revision, salt):
        answer, _ = repo.push({"model.safetensors": safetensors_bytes([tensor("w", "F32", [4], salt)])},
                              revision=revision)
        assert answer.status == 201, answer
        return answer.json()["commit"]

    commits = {revision: push(revision, revision) for revision in ("main", "exp", "step-3")}
    assert versions(s, "org/m")["latest"] == "step-3"
    for branch, latest in (("exp", "step-3"), ("step-3", commits["main"])):
        assert s.request(f"/api/models/org/m/branch/{branch}", method="DELETE").status == 200
        listing = versions(s, "org/m")
        assert listing["latest"] == latest
        row, = [row for row in listing["versions"] if row["commit"] == commits[branch]]
        assert (row["version"], row["refs"], row["number"]) == (commits[branch], [], None)
        r = s.get(f"/models/org/m/tensors/w?version={commits[branch]}")
        assert r.status == 200 and r.body == tensor("w", "F32", [4], branch).data
        check_error(s.get(f"/models/org/m?version={branch}"), 404, branch)
        refs = s.json("/api/models/org/m/refs")
        known = {one[key] for one in refs["branches"] + refs["tags"] for key in ("name", "targetCommit")}
        assert not known & {branch, commits[branch]} and commits["main"] in known
        assert not set(s.json("/v2/org/m/tags/list")["tags"]) & {branch, commits[branch]}
    assert len(names(versions(s, "org/m"))) == 3
    push("main", "new")
    listing = versions(s, "org/m")      # the commit before is kept, too
    assert listing["latest"] == repo.main() and names(listing).count(commits["main"]) == 1
