"""Pull-through: models that are not here are fetched from another server while they are read, once for everybody."""
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

import harness
import pki
from harness import Conn, pattern, safetensors_bytes, tensor
from hub_like import COMMIT
from upstream_kit import (CHECKS, CONFIG, MIB, WINDOW, bearer_of, cache, count,  # noqa: F401
                          free_port, hubs, model, new_token, published, weights)


def test_a_hubs_model_is_read_as_if_it_were_here(hubs, cache):
    files = model()
    hub = hubs({"org/m": files})
    server = cache(hub.url)
    assert server.ids() == []
    for path, content in files.items():
        r = server.get(f"/models/org/m/files/{path}")
        assert (r.status, r.body) == (200, content), path
        assert r.etag == f'"{hashlib.sha256(content).hexdigest()}"', path
    published(server, "org/m")
    again = server.get("/models/org/m/files/model.safetensors")
    assert (again.status, again.body) == (200, files["model.safetensors"])
    assert again.etag == f'"{hashlib.sha256(files["model.safetensors"]).hexdigest()}"'
    assert server.get("/models/org/m/tensors").status == 200
    assert hub.sent_bytes("model.safetensors") == len(files["model.safetensors"])
    assert server.json("/models/org/m")["upstream"] == {"state": "here", "verified": True}
    assert count(server, "published_total") == 1


# shows: security.md client-cross-site
def test_pages_of_other_sites_begin_no_fetch(hubs, cache):
    """A picture or a script of any page that somebody looks at could fill the disk. A person who follows a link may,
    and so may pages that may read the answers. What is here already is here for all."""
    viewer = "https://viewer.example"
    hub = hubs({f"org/m{i}": model() for i in range(4)})
    server = cache(hub.url, "--cors-origin", viewer)
    cross, path = {"Sec-Fetch-Site": "cross-site"}, "/models/org/m{}/files/config.json"
    for other in (cross, {"Sec-Fetch-Site": "same-site", "Sec-Fetch-User": "?0"}, {"Origin": "https://evil.example"}):
        for begin in (path, "/org/m{}/resolve/main/config.json", "/models/org/m{}/", "/api/models/org/m{}",
                      "/v2/org/m{}/manifests/main"):
            r = server.get(begin.format(0), other)
            assert r.status == 403 and b"a page of another site may not change anything" in r.body, (begin, r)
    assert hub.requests == []
    for i, fields in enumerate(({**cross, "Origin": viewer}, {**cross, "Sec-Fetch-User": "?1"},
                                {"Sec-Fetch-Site": "none"}), start=1):
        assert server.get(path.format(i), fields).body == model()["config.json"], fields
        published(server, f"org/m{i}")
        assert server.get(path.format(i), cross).status == 200


def test_64_clients_ask_at_once_and_upstream_sends_each_byte_once(hubs, cache):
    files = model(nbytes=4 * MIB)
    hub = hubs({"org/m": files})
    hub.open_gate(MIB)
    server = cache(hub.url)
    got, begin = [None] * 64, threading.Barrier(65)

    def ask(i):
        begin.wait()
        with contextlib.suppress(Exception):
            got[i] = server.get("/org/m/resolve/main/model.safetensors", timeout=60)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(64)]
    for t in threads:
        t.start()
    begin.wait()
    server.wait_for(lambda: count(server, "early_requests_total") >= 64, "all have been answered from one fetch", 30)
    hub.open_gate(None)
    for t in threads:
        t.join()
    assert all(r is not None and r.status == 200 and r.body == files["model.safetensors"] for r in got)
    for path, content in files.items():
        assert hub.sent_bytes(path) == len(content), path
    assert hub.count("/tree/") == 1


def shards(n, salt):
    """A model of n files with one tensor each, and their index."""
    files = {f"model-{i:05d}-of-{n:05d}.safetensors": safetensors_bytes([tensor(f"t{i}", "U8", [2000], f"{salt}{i}")])
             for i in range(1, n + 1)}
    index = {f"t{i}": f"model-{i:05d}-of-{n:05d}.safetensors" for i in range(1, n + 1)}
    return files | {"config.json": CONFIG,
                    "model.safetensors.index.json": json.dumps({"weight_map": index}).encode()}


def test_no_reader_sees_a_part_of_a_model_that_is_being_published(hubs, cache):
    """The files come within a moment, far less than --settle: as soon as one scan has found the model, it has all."""
    models = {f"org/m{i}": shards(40, f"m{i}-") for i in range(3)}
    hub = hubs(models, lfs_from=1000)
    server = cache(hub.url, settle="30")
    for name, files in models.items():
        seen, answers = set(), set()

        def look(name=name, seen=seen, answers=answers):
            info = server.get(f"/api/models/{name}")
            sha, siblings = (info.json()["sha"], info.json()["siblings"]) if info.status == 200 else (None, [])
            seen.add((info.status, sha, len(siblings)))
            answers.add(server.head(f"/{name}/resolve/{sha}/config.json").status)
            tensors = server.get(f"/models/{name}/tensors").status
            answers.add(tensors if tensors != 503 else 200)
            return name in server.ids() and tensors == 200

        server.wait_for(look, f"{name} is published", every=0)
        assert [(status, n) for status, _, n in seen] == [(200, len(files))], seen
        assert answers == {200}
    assert " warn " not in server.stderr()
    # a scan may list the directory before it hears of the rename: then it has none of the files, and the next one all
    assert set(re.findall(r"(\d+) files? changed less than --settle ago", server.stderr())) <= {"42"}
    assert f"are fetched from {hub.url}; disk for them: no bound" in server.stderr()


def test_bytes_come_before_the_fetch_has_ended(hubs, cache):
    files = model()
    hub = hubs({"org/m": files})
    hub.open_gate(2 * MIB)
    server = cache(hub.url)
    content = files["model.safetensors"]
    with Conn(server.port) as c:
        c.send(harness.request_bytes("/org/m/resolve/main/model.safetensors", port=server.port))
        head = c.read_head()
        assert head.status == 200
        assert head.length == len(content)
        assert head.get("X-Repo-Commit") is not None
        assert c.read_exact(MIB, head) == content[:MIB]
        r = server.get("/models/org/m/files/model.safetensors", [("Range", "bytes=100-199"), CHECKS])
        assert (r.status, r.body) == (206, content[100:200])
        assert r.get("Cache-Control") == "no-store"
        info = server.json("/api/models/org/m/revision/main?blobs=true")
        assert sorted(f["rfilename"] for f in info["siblings"]) == sorted(files)
        assert info["sha"] == head.get("X-Repo-Commit")
        tree = server.json("/api/models/org/m/tree/main")
        assert {f["path"]: f["size"] for f in tree} == {p: len(b) for p, b in files.items()}
        assert server.ids() == []                       # lists show what is here
        assert server.get("/models/org/m/files/none").status == 404
        about = server.json("/models/org/m")
        assert about["upstream"]["state"] == "incoming"
        assert MIB < about["upstream"]["arrived_bytes"] < about["upstream"]["total_bytes"]
        for target in ("/models/org/m/tensors", "/models/org/m/tensors/a", "/org/m/resolve/tp2-rank0-vllm/config.json",
                       "/models/org/m/shards/vllm/tp2/rank-0.safetensors"):
            r = server.get(target)
            assert r.status == 503, target
            assert r.get("Retry-After") is not None
            assert b"is being fetched from the upstream" in r.body
        hub.open_gate(len(content) - 10)                # the last MiB waits for the digest
        at = (len(content) - MIB) // WINDOW * WINDOW
        assert c.read_exact(at - MIB, head) == content[MIB:at]
        c.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            while True:
                at += len(c.sock.recv(MIB))
        assert at <= len(content) - MIB
        c.sock.settimeout(20)
        hub.open_gate(None)
        assert c.read_exact(len(content) - at, head) == content[at:]
    published(server, "org/m")
    after = server.get("/org/m/resolve/main/model.safetensors")                     # nothing that clients keep differs
    for name in ("ETag", "X-Repo-Commit", "Last-Modified"):
        assert after.get(name) == head.get(name), name


SLOW = {"slow.txt": pattern(2 * WINDOW, "slow")}      # the one file that a gate holds up
DESCRIBED = {"config.json": CONFIG, "README.md": b"# hello\n"}
ARRIVING = {        # the files that a model has beside SLOW, and the URLs below it that answer 503 until all are here
    "described": (DESCRIBED | {"tokenizer.json": b"{}"}, ""),
    "bare": ({"README.md": b"# hello\n", "tokenizer.json": b"{}"}, ""),
    "rows": ({"config.json": CONFIG, "train.jsonl": b'{"a": 1}\n'}, ""),
    "whole": (DESCRIBED | {"model.safetensors": weights(1000)},
              "tensors tensors/a model.safetensors shards plans rank"),
    "parts": ({"model_index.json": b"{}", "unet/config.json": CONFIG, "unet/x.safetensors": weights(1000)},
              "unet/tensors rank"),
}
WORDS = {"shards": "shards/vllm/tp2/rank-0.safetensors", "plans": "plans/x"}


def answers_of(server, name):
    """The statuses of a model's URLs, by short names, and what else must not differ."""
    below = ("tensors", "tensors/a", "model.safetensors", "shards", "plans", "files", "files/README.md",
             "files/none", "none", "unet", "unet/tensors", "unet/files/config.json", "unet/files/none")
    urls = {word: f"/models/{name}/{WORDS.get(word, word)}" for word in below}
    hub = {"": f"/models/{name}", "/": f"/models/{name}/", "api": f"/api/models/{name}",
           "tree": f"/api/models/{name}/tree/main", "refs": f"/api/models/{name}/refs",
           "rank": f"/api/models/{name}/revision/tp2-rank0-vllm", "file": f"/{name}/resolve/main/README.md",
           "absent": f"/{name}/resolve/main/none"}
    got = {word: server.get(url) for word, url in (urls | hub).items()}
    described = got[""].json() if got[""].status == 200 else {}
    same = (described.get("files"), got["api"].json()["sha"], got["api"].json()["siblings"])
    return {word: r.status for word, r in got.items()}, same, got


@pytest.mark.parametrize("is_tensord", [False, True])
@pytest.mark.parametrize("name", [*(f"org/{kind}" for kind in ARRIVING), "parts"])
def test_a_model_on_its_way_answers_as_it_will_when_it_is_here(hubs, cache, start, tmp_path, name, is_tensord):
    """The names of the files decide whether a path is a model, a model in a directory of another, or no model."""
    files, waits = ARRIVING[name.removeprefix("org/")]
    hub = hubs({name: SLOW | files})
    hub.is_tensord = is_tensord
    for path, content in (SLOW | files).items():
        place = tmp_path / "local" / name / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    local = start(tmp_path / "local")
    hub.open_gate(WINDOW)
    server = cache(hub.url)
    before, same, got = answers_of(server, name)
    assert {word for word, status in before.items() if status == 503} == set(waits.split())
    assert all(f'model \\"{name}\\" is being fetched' in r.body.decode() for r in got.values()
               if r.status == 503 and r.asked.startswith("GET /models")), got
    assert b"neither here nor at the upstream" not in got[""].body
    for word in waits.split():
        del before[word]
    hub.open_gate(None)
    server.wait_for(lambda: re.search('published "', server.stderr()), "it is published")
    assert server.post("/rescan", b"").status == 200
    after, same_after, _ = answers_of(server, name)
    assert after == answers_of(local, name)[0]
    assert before.items() <= after.items()
    assert same_after == same


COLD = {"tensors": (), "tensors/a": (), "tensors/b?slice=0:2": (), "model.safetensors": (),
        "shards/none/tp2/rank-0.safetensors": (), "tensors:read": b'{"tensors": [{"name": "b"}]}'}


@pytest.mark.parametrize("workers", ["2", "0"])
def test_what_is_nearly_here_is_waited_for(hubs, cache, workers):
    """The first request for a small model begins the fetch, and is answered when that is done. GET, HEAD, a body that
    is read again, the Hub's virtual revisions; each of a model that nobody has asked for."""
    names = [f"org/m{i}" for i in range(2 * len(COLD) + 1)]
    hub = hubs({name: model(nbytes=MIB) for name in names})
    server = cache(hub.url, "--workers", workers)
    for name, (path, body) in zip(names, COLD.items()):
        r = server.post(f"/models/{name}/{path}", body) if body else server.get(f"/models/{name}/{path}")
        assert r.status == 200, (path, r)
        assert r.body == (server.post(f"/models/{name}/{path}", body) if body else
                          server.get(f"/models/{name}/{path}")).body
    for name, (path, body) in zip(names[len(COLD):], COLD.items()):
        if not body:
            assert server.request(f"/models/{name}/{path}", method="HEAD").status == 200, path
    assert server.get(f"/{names[-1]}/resolve/safetensors/model.safetensors").status == 200
    assert server.gauge("tensord_waiters") == 0


def test_what_is_not_nearly_here_is_not_waited_for(hubs, cache):
    """A request waits for 1 s at most, and not at all for a fetch that stands still."""
    hub = hubs({"org/m": model(nbytes=2 * MIB)})
    hub.open_gate(MIB)
    server = cache(hub.url)
    for least, most in ((0.5, 15), (0, 0.9)):
        began = time.monotonic()
        r = server.get("/models/org/m/tensors")
        took = time.monotonic() - began
        assert r.status == 503 and int(r.get("Retry-After")) >= 1 and b"is being fetched from the upstream" in r.body
        assert least < took < most, took
        time.sleep(2)
    hub.open_gate(None)
    published(server, "org/m")


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 12345\n" % (64 * b"a")


def at_every_interface(server, path):
    """Answers for a file of org/m, and how to read an error's status: name of the request -> response."""
    content = hashlib.sha256(POINTER).hexdigest()
    hub, native = f"/org/m/resolve/main/{path}", f"/models/org/m/files/{path}"
    s3 = Conn(harness.s3_port(server))
    asked = {
        "hub": server.get(hub), "hub, HEAD": server.head(hub), "hub, commit":
        server.get(f"/org/m/resolve/{server.json('/api/models/org/m')['sha']}/{path}"), "native": server.get(native),
        "native, HEAD": server.head(native), "a range": server.get(hub, [("Range", "bytes=0-9")]),
        "several ranges": server.get(native, [("Range", "bytes=0-1,5-6")]), "client that checks":
        server.get(hub, [CHECKS]), "If-None-Match": server.get(hub, [("If-None-Match", '"x"')]), "s3":
        s3.request(f"/org/m/{path}"), "s3, HEAD": s3.request(f"/org/m/{path}", method="HEAD"), "blob":
        server.get(f"/v2/org/m/blobs/sha256:{content}")
    }
    s3.close()
    return {name: (r.status, b"version https" in r.body) for name, r in asked.items()}


@pytest.mark.parametrize("lfs_from", [0, 100_000], ids=["with digests", "without"])
@pytest.mark.parametrize("path", ["model-00002-of-00002.safetensors", "tokenizer.json", "sub/notes.txt", "config.json"])
# shows: security.md content-lfs-pointers
def test_a_git_lfs_pointer_is_refused_while_it_arrives(hubs, cache, path, lfs_from):
    """As it will be when it is here: 409 on every interface. The other files of the model are served."""
    files = {"model-00001-of-00002.safetensors": weights(2 * MIB), "other.txt": b"version 1 of a text\n", path: POINTER}
    hub = hubs({"org/m": files}, lfs_from=lfs_from)
    hub.open_gate(WINDOW)
    server = cache(hub.url, "--s3-listen", "127.0.0.1:0")
    before = at_every_interface(server, path)
    assert server.ids() == [], "it still arrives"
    assert before.pop("blob") in ((409, False), (503, False)) # registries wait for the model
    assert before.pop("s3")[0] == before.pop("s3, HEAD")[0] == 404 # S3 has published models alone
    assert set(before.values()) == {(409, False)}, before
    r = server.get(f"/models/org/m/files/{path}")
    assert re.search(rf'"org/m/{path}\\" is a Git LFS pointer.*run \\"git lfs pull\\" there', r.body.decode()), r
    assert server.get("/org/m/resolve/main/other.txt").body == files["other.txt"]
    hub.open_gate(None)
    published(server, "org/m")
    after = at_every_interface(server, path)
    assert set(after.values()) == {(409, False)}, after
    assert server.get("/org/m/resolve/main/other.txt").body == files["other.txt"]


# shows: security.md content-lfs-pointers
def test_a_pointer_that_comes_late_is_never_sent(hubs, cache):
    """An answer that began before the file came is broken off."""
    hub = hubs({"org/m": {"model.safetensors": POINTER}}, lfs_from=0)
    hub.open_gate(100)
    server = cache(hub.url)
    with server.conn() as c:
        c.send(b"GET /org/m/resolve/main/model.safetensors HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(4) # longer than an answer waits for the first byte
        hub.open_gate(None)
        with pytest.raises(harness.Incomplete) as end:
            c.read_response()
    assert end.value.response.status == 200 and end.value.body == b""
    assert server.get("/org/m/resolve/main/model.safetensors").status == 409


def test_a_directory_of_a_model_whose_name_has_no_organisation(hubs, cache):
    """Its URL looks like that of a model with one, at which no fetch begins. The Hub's clients may write local/."""
    hub = hubs({"parts": SLOW | ARRIVING["parts"][0]})
    hub.open_gate(WINDOW)
    server = cache(hub.url)
    assert server.get("/models/parts/unet").status == 404
    assert count(server, "begun_total") == 0
    assert server.get("/api/models/parts").status == 200
    assert server.json("/models/parts/unet")["upstream"]["state"] == "incoming"
    for target in ("/models/parts/unet/tensors", "/api/models/parts/revision/tp2-rank0-vllm",
                   "/api/models/local/parts/revision/tp2-rank0-vllm"):
        r = server.get(target)
        assert r.status == 503 and b"is being fetched from the upstream: " in r.body, r.body
    hub.open_gate(None)
    published(server, "parts/unet")
    assert server.json("/models/parts/unet")["upstream"] == {"state": "here", "verified": True}


def test_files_that_are_wanted_come_before_others(hubs, cache):
    """Of 10 large files, few are fetched unasked; while these stand still, a later one is read."""
    hub = hubs({"org/m": {f"part-{i}.bin": pattern(MIB + WINDOW * 2, f"part-{i}") for i in range(10)}})
    hub.open_gate(WINDOW)
    server = cache(hub.url)
    assert server.get("/models/org/m").status == 200
    server.wait_for(lambda: hub.count("/resolve/") == 4, "4 files are fetched unasked")
    for begun, i in enumerate((9, 8, 7), 5):    # the thread that found a request works on it, and another one polls
        r = server.get(f"/org/m/resolve/main/part-{i}.bin", [("Range", "bytes=0-99"), CHECKS])
        assert (r.status, r.body) == (206, pattern(100, f"part-{i}"))
        assert hub.count("/resolve/") == begun


# shows: security.md upstream-wrong-digest
def test_an_upstream_that_lies_about_a_digest_is_refused(hubs, cache, tmp_path):
    files = model()
    hub = hubs({"org/m": files})
    hub.wrong_sha.add("model.safetensors")
    server = cache(hub.url)
    with Conn(server.port) as c, pytest.raises(harness.Incomplete):
        c.request("/models/org/m/files/model.safetensors")
    server.wait_for(lambda: count(server, "failures_total") == 1, "the failure is counted")
    r = server.get("/models/org/m/files/config.json")
    assert r.status == 503
    assert b"cannot be fetched from the upstream" in r.body
    assert server.ids() == []
    assert not (tmp_path / "cache" / "org").exists()
    hub.wrong_sha.clear()                               # the upstream comes to its senses
    server.wait_for(lambda: server.get("/models/org/m/files/model.safetensors").status == 200, "it is tried again", 20)
    published(server, "org/m")


def test_an_upstream_that_publishes_a_new_version_in_between(hubs, cache):
    """Readers of the old one are cut off, and the next request fetches the new one by a new list."""
    old, new = model("old", 20 * MIB), model("new", 20 * MIB)
    hub = hubs({"org/m": old})
    hub.open_gate(2 * MIB)
    server = cache(hub.url)
    with Conn(server.port) as c:
        c.send(harness.request_bytes("/models/org/m/files/model.safetensors", port=server.port))
        head = c.read_head()
        c.read_exact(MIB, head)
        hub.models["org/m"] = new
        hub.open_gate(None)
        with pytest.raises(harness.Incomplete):
            c.read_exact(len(old["model.safetensors"]) - MIB, head)
    got = {}

    def is_new():
        got["r"] = server.get("/models/org/m/files/model.safetensors")
        return got["r"].status == 200
    server.wait_for(is_new, "it is tried again", 20)
    assert got["r"].body == new["model.safetensors"]
    published(server, "org/m")


def test_absent_models_are_asked_for_once_a_minute(hubs, cache):
    hub = hubs({"org/m": model()})
    server = cache(hub.url)
    for _ in range(5):
        assert server.get("/models/org/none/files/config.json").status == 404
        assert server.get("/org/none/resolve/main/config.json").status == 404
        assert server.get("/api/models/org/none").status == 404
    assert hub.count("org/none") == 1
    for target in ("/models/..%2fx/files/a", "/models/a/b/c/d/files/a", "/models/.hidden/files/a", "/datasets/org/none",
                   "/api/datasets/org/none"):
        assert server.get(target).status == 404
    assert hub.count("hidden|datasets|x/files|a/b/c") == 0


# shows: security.md upstream-kills
def test_kill_9_in_the_middle_and_the_next_start_goes_on(hubs, cache, tmp_path):
    files = model(nbytes=24 * MIB)
    content = files["model.safetensors"]
    hub = hubs({"org/m": files})
    hub.open_gate(12 * MIB)
    (tmp_path / "cache").mkdir()
    server = harness.Server(tmp_path / "cache", "--upstream", hub.url)
    with Conn(server.port) as c:
        c.send(harness.request_bytes("/org/m/resolve/main/model.safetensors", port=server.port))
        assert c.read_exact(10 * MIB, c.read_head()) == content[:10 * MIB]
        server.kill()
    assert not (tmp_path / "cache" / "org").exists()
    sent_before = hub.sent_bytes("model.safetensors")
    hub.open_gate(None)
    server = cache(hub.url)
    assert re.search(r"kept: 0 fetched models, 1 incomplete \([1-9]\d+ bytes\)", server.stderr())
    assert server.ids() == []
    assert server.get("/org/m/resolve/main/model.safetensors", timeout=60).body == content
    published(server, "org/m")
    sent_after = hub.sent_bytes("model.safetensors") - sent_before
    assert sent_after <= len(content) - 6 * MIB         # what was on disk is not fetched again
    assert sorted(p.name for p in (tmp_path / "cache" / "org" / "m").iterdir()) == sorted(files)


def test_a_lower_bound_than_what_is_kept_is_said_at_the_start(hubs, cache):
    hub = hubs({"org/m": model(nbytes=2 * MIB)})
    server = cache(hub.url)
    assert server.get("/org/m/resolve/main/config.json").status == 200
    published(server, "org/m")
    assert "more than --cache-max-bytes" not in server.stderr()
    server.stop()
    server = cache(hub.url, "--cache-max-bytes", MIB)
    assert re.search(r"warn .*the models that were fetched take \d+ bytes, more than --cache-max-bytes \(1048576\)",
                     server.stderr())
    assert server.ids() == ["org/m"]


# shows: security.md upstream-slow
def test_an_upstream_that_dies_and_comes_back_goes_on(hubs, cache):
    files = model(nbytes=12 * MIB)
    content = files["model.safetensors"]
    hub = hubs({"org/m": files})
    hub.open_gate(4 * MIB)
    server = cache(hub.url)
    got = {}

    def read():
        got["r"] = server.get("/org/m/resolve/main/model.safetensors", timeout=60)

    reader = threading.Thread(target=read)
    reader.start()
    server.wait_for(lambda: hub.sent_bytes("model.safetensors") >= 4 * MIB, "the first bytes were sent")
    hub.close()
    hubs({"org/m": files}, port=hub.port)
    reader.join()
    assert got["r"].body == content
    published(server, "org/m")


# shows: security.md upstream-errors
def test_who_waits_for_a_list_is_told_so(cache):
    """Nobody listens at the upstream's port. A request of another server's waits for 2 s, not 10."""
    url = f"http://127.0.0.1:{free_port()}"
    server = cache(url)
    r = server.get("/models/org/m", [("Tensord-Via", "0123456789abcdef")], timeout=30)
    assert r.status == 503
    assert r.json()["error"]["message"] == 'the list of files of "org/m" is being fetched from the upstream; try again'
    assert url in server.stderr()                       # where the operator reads why; clients need not know it


# shows: security.md upstream-slow
def test_readers_that_wait_hold_up_nobody_else(hubs, cache):
    """Short ranges and HEAD share a thread (--workers 1); a range that has not arrived must not stop it."""
    files = model()
    hub = hubs({"org/m": files})
    hub.open_gate(2 * MIB)
    server = cache(hub.url, "--workers", 1)
    content = files["model.safetensors"]
    waiting = [server.conn() for _ in range(8)]
    for c in waiting:
        c.send(harness.request_bytes("/org/m/resolve/main/model.safetensors", [("Range", "bytes=3000000-3000099")],
                                     port=server.port))
    server.wait_for(lambda: count(server, "early_requests_total") >= 8, "all wait")
    for _ in range(20):
        begun = time.monotonic()
        r = server.head("/org/m/resolve/main/model.safetensors")
        assert (r.status, r.length) == (200, len(content))
        r = server.get("/org/m/resolve/main/model.safetensors", [("Range", "bytes=0-99"), CHECKS])
        assert (r.status, r.body) == (206, content[:100])
        assert time.monotonic() - begun < 2
    hub.open_gate(None)
    for c in waiting:
        assert c.read_response("GET").body == content[3000000:3000100]
        c.close()


# shows: security.md upstream-tokens
def test_a_request_by_token_and_redirects_to_another_host(hubs, cache, tmp_path):
    files = model()
    hub = hubs({"org/m": files}, token="hf_upstream", cdn=True)
    token = tmp_path / "token"
    token.write_text("hf_upstream\n")
    server = cache(hub.url, "--upstream-token-file", token)
    r = server.get("/org/m/resolve/main/model.safetensors", [("Authorization", "Bearer of-the-client")])
    assert (r.status, r.body) == (200, files["model.safetensors"])
    for _, path, headers in hub.requests:
        assert "of-the-client" not in str(headers)
        assert ("Authorization" in headers) == (not path.startswith("/cdn/")), path
    assert hub.count("^/cdn/") > 0
    assert "hf_upstream" not in server.stderr() + server.log()


def test_a_url_with_a_path_too_much_is_told(hubs, cache):
    hub = hubs({"org/m": model()})
    server = cache(hub.url + "/models")
    assert server.get("/models/org/m").status == 404
    words = f'upstream: "org/m" is not fetched: {hub.url}/models, .*404.*perhaps without "/models"'
    server.wait_for(lambda: re.search(words, server.stderr()), "the log names the path")


@pytest.mark.parametrize("down_first", [True, False])
def test_only_all_servers_can_say_that_there_is_no_model(hubs, cache, down_first):
    hub, down = hubs({}), f"http://127.0.0.1:{free_port()}"
    server = cache(",".join([down, hub.url] if down_first else [hub.url, down]))
    assert server.get("/models/org/m", timeout=60).status == 503
    server.wait_for(lambda: f'{hub.url} has no model "org/m" at "main", and another server fails: {down}'
                    in server.stderr(), "the log names both")


# shows: security.md upstream-token-view
def test_a_token_decides_before_anything_is_fetched(hubs, cache, tmp_path):
    hub = hubs({"org/m": model(), "other/m": model()})
    tokens = tmp_path / "tokens.json"
    bearer = bearer_of(new_token(tokens, "reader", "org/*"))
    server = cache(hub.url, "--tokens", tokens, ready=False)
    server.wait_for(lambda: server.get("/readyz").status == 200, "ready")
    assert server.get("/models/org/m/files/config.json").status == 401
    assert server.get("/models/other/m/files/config.json", bearer).status == 404
    assert hub.requests == []
    assert server.get("/models/org/m/files/config.json", bearer).status == 200


def test_a_model_below_another_stays_hidden_while_both_arrive(hubs, cache, tmp_path):
    """Until it is published, a directory that will be a model of its own shows as files of the outer model."""
    weights = model()["model.safetensors"]
    hub = hubs({"outer": model() | {"sub-x/model.safetensors": weights, "sub/model.safetensors": weights}})
    hub.open_gate(MIB)
    tokens = tmp_path / "tokens.json"
    bearers = []
    for name, globs in (("outer", ("outer",)), ("both", ("outer", "outer/*")),
                        ("other", ("outer", "outer/sub-x"))):
        bearers.append(bearer_of(new_token(tokens, name, *globs)))
    server = cache(hub.url, "--tokens", tokens, ready=False)
    server.wait_for(lambda: server.get("/readyz").status == 200, "ready")
    part = [("Range", "bytes=0-99"), CHECKS]
    paths = "/models/outer/files/sub/model.safetensors", "/outer/resolve/main/sub/model.safetensors"
    for few in bearers[0], bearers[2]:
        assert [server.get(path, few + part).status for path in paths] == [503, 503]
    assert [server.get(path, bearers[1] + part).status for path in paths] == [206, 206]
    listed = server.get("/api/models/outer/tree/main?recursive=true", bearers[0])
    assert (listed.status, b"sub" in listed.body) == (503, False)
    hub.open_gate(None)
    server.wait_for(lambda: server.get("/models/outer/files/config.json", bearers[0]).status == 200, "published")
    assert [server.get(path, bearers[0] + part).status for path in paths] == [404, 404]


# shows: security.md upstream-errors
def test_a_tensord_with_tls_and_tokens_is_an_upstream(cache, start, tmp_path):
    ca, other = pki.Authority(tmp_path), pki.Authority(tmp_path, "other")
    pair = ca.sign("server")
    files = model(nbytes=2 * MIB)
    for path, content in files.items():
        (tmp_path / "site" / "org" / "m").mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / "org" / "m" / path).write_bytes(content)
    harness.age(tmp_path / "site")
    tokens, token = tmp_path / "tokens.json", tmp_path / "token"
    token.write_text(new_token(tokens, "node"))
    site = start(tmp_path / "site", *pki.options_of(pair), "--tokens", tokens, tls=ca.context(), hash_threads=1)
    url = f"https://127.0.0.1:{site.port}"
    good = cache(url, "--upstream-ca", ca.cert, "--upstream-token-file", token, root="good")
    r = good.get("/org/m/resolve/main/model.safetensors")
    assert (r.status, r.body) == (200, files["model.safetensors"])
    published(good, "org/m")
    stranger = cache(url, "--upstream-ca", other.cert, "--upstream-token-file", token, root="stranger")
    r = stranger.get("/org/m/resolve/main/model.safetensors", timeout=60)
    assert (r.status, url.encode() in r.body) == (503, False)      # not 404: the model may be there
    assert re.search(f"{url}.*certificate", stranger.stderr())
    token.write_text("td_of-another-server")
    refused = cache(url, "--upstream-ca", ca.cert, "--upstream-token-file", token, root="refused")
    assert refused.get("/org/m/resolve/main/config.json").status == 503
    assert f"{url} answers 401: give a token that may read it by --upstream-token-file" in refused.stderr()
    token.unlink()
    r = refused.get("/org/other/resolve/main/config.json")
    assert (r.status, str(token).encode() in r.body) == (503, False)
    assert str(token) in refused.stderr()
    assert refused.ids() == stranger.ids() == []


# shows: security.md upstream-eviction
def test_the_least_recently_read_model_makes_room(hubs, cache, tmp_path):
    hub = hubs({f"org/m{i}": model(str(i), 2 * MIB) for i in range(4)})
    root = tmp_path / "cache"
    (root / "mine").mkdir(parents=True)
    (root / "mine" / "model.safetensors").write_bytes(weights(3 * MIB, "mine"))
    harness.age(root / "mine")
    server = cache(hub.url, "--cache-max-bytes", 5 * MIB)
    for name in ("org/m0", "org/m1"):
        assert server.get(f"/{name}/resolve/main/model.safetensors").status == 200
        published(server, name)
    with Conn(server.port, rcvbuf=4096) as c:
        c.send(harness.request_bytes("/org/m1/resolve/main/model.safetensors", port=server.port))
        head = c.read_head()
        assert server.get("/org/m0/resolve/main/config.json").status == 200     # m1 leaves; its reader finishes
        assert server.get("/org/m2/resolve/main/model.safetensors").status == 200
        published(server, "org/m2")
        assert len(c.read_exact(head.length, head)) == head.length
    server.wait_for(lambda: server.ids() == ["mine", "org/m0", "org/m2"], "m1 is gone")
    assert count(server, "evicted_total") == 1
    assert not (root / "org" / "m1").exists()
    r = server.get("/org/m1/resolve/main/config.json")                      # it comes again when it is asked for
    assert (r.status, r.body) == (200, CONFIG)


def test_eviction_leaves_what_the_operator_has_changed(hubs, cache, tmp_path):
    """A file added below a directory of a model, and a file of a model written in place, are the operator's."""
    deep = {**model(nbytes=2 * MIB), "d/config.json": CONFIG}
    hub = hubs({f"org/{name}": deep for name in ("added", "written", "kept", "next")})
    root = tmp_path / "cache" / "org"
    server = cache(hub.url, "--cache-max-bytes", 5 * MIB)
    for name in ("added", "written"):
        assert server.get(f"/org/{name}/resolve/main/config.json").status == 200
        published(server, f"org/{name}")
    (root / "added" / "d" / "precious.bin").write_bytes(b"the operator's own")
    with open(root / "written" / "model.safetensors", "r+b") as f:
        f.seek(-4, os.SEEK_END)
        f.write(b"mine")
    before = {p: p.read_bytes() for name in ("added", "written") for p in (root / name).rglob("*") if p.is_file()}
    for name in ("kept", "next"):
        assert server.get(f"/org/{name}/resolve/main/config.json").status == 200
        published(server, f"org/{name}")
    assert {p: p.read_bytes() for p in before} == before
    assert count(server, "evicted_total") == 0
    server.wait_for(lambda: count(server, "kept_models") == 2, "both of the operator's models are kept")
    being_checked = tmp_path / "cache" / ".tensord-upstream" / "check"
    server.wait_for(lambda: not list(being_checked.iterdir()), "no model is being checked")


# shows: security.md upstream-full-disk
def test_a_model_that_is_too_large_is_an_answer(hubs, cache, tmp_path):
    hub = hubs({"org/m": model()})
    server = cache(hub.url, "--cache-max-bytes", MIB)
    for target in ("/models/org/m/files/config.json", "/org/m/resolve/main/config.json"):
        r = server.get(target)
        assert r.status == 507
        assert b"there is no room for \\\"org/m\\\"" in r.body or b'there is no room for "org/m"' in r.body, r.body
        assert b"1048576" not in r.body
        assert b"too large for this server" in r.body and r.get("Retry-After") is None
    p = subprocess.run([harness.tensord_binary(), "pull", f"http://127.0.0.1:{server.port}", "org/m", "-o",
                        tmp_path / "out", "--retry-for", "100s"], capture_output=True, text=True, timeout=50)
    assert p.returncode == 1 and "too large for this server, or its upstream; the server's log" in p.stderr, p.stderr
    assert "more than --cache-max-bytes 1048576\n" in server.stderr()
    assert count(server, "failures_total") == 1
    assert list((tmp_path / "cache" / ".tensord-upstream" / "incoming").iterdir()) == []


def test_a_model_that_is_too_large_for_the_upstream_is_the_same_answer(hubs, cache):
    """It is no fault of bytes or of a server: who asks learns at once that it is of no use, and no server is asked
    alone. Another server that has room for it sends it."""
    hub = hubs({"org/m": model()})
    small = cache(hub.url, "--cache-max-bytes", MIB, root="small")
    behind = f"http://127.0.0.1:{small.port}"
    server = cache(f"{behind},{behind}/")
    for target in ("/models/org/m/files/config.json", "/org/m/resolve/main/config.json"):
        r = server.get(target)
        assert (r.status, r.get("Retry-After")) == (507, None), r.body
        assert b"too large for this server, or its upstream" in r.body
    failures = {labels["reason"]: n for name, labels, n in server.metrics()[2]
                if name == "tensord_upstream_failures_total"}
    assert failures["space"] == 1 and sum(failures.values()) == 1, failures
    assert "is asked of another server alone" not in server.stderr()
    assert "the server answered 507, there is no room for " in server.stderr()
    other = cache(f"{behind},{hub.url}", root="other")
    assert other.get("/models/org/m/files/config.json").body == CONFIG


def test_files_without_digests_make_an_unverified_copy(hubs, cache):
    files = model(nbytes=2 * MIB)
    hub = hubs({"org/m": files})
    hub.no_digests = True
    server = cache(hub.url)
    r = server.get("/org/m/resolve/main/model.safetensors")
    assert (r.status, r.body) == (200, files["model.safetensors"])
    published(server, "org/m")
    assert server.json("/models/org/m")["upstream"] == {"state": "here", "verified": False}
    assert hub.count("/tree/") == 2             # the second time for digests
    assert "; it is unverified: the upstream has no digests for some files\n" in server.stderr()
    assert count(server, "unverified_models") == 1


def fetch_without_digests(hub, server):
    """Has a client read the large file while the upstream lists no digests; it lists them before the last byte."""
    hub.no_digests = True
    hub.open_gate(MIB)
    reader = threading.Thread(target=server.get, args=("/org/m/resolve/main/config.json",), daemon=True)
    reader.start()
    server.wait_for(lambda: hub.sent_bytes("model.safetensors") > 0, "the file arrives", 30)
    hub.no_digests = False
    hub.open_gate(None)
    reader.join(60)


def test_digests_that_are_there_with_the_last_byte_verify_the_copy(hubs, cache):
    files = model(nbytes=2 * MIB)
    hub = hubs({"org/m": files})
    server = cache(hub.url)
    fetch_without_digests(hub, server)
    published(server, "org/m")
    assert server.json("/models/org/m")["upstream"] == {"state": "here", "verified": True}
    assert server.get("/org/m/resolve/main/model.safetensors").body == files["model.safetensors"]
    assert hub.count("/tree/") == 2
    assert count(server, "unverified_models") == 0


@pytest.mark.parametrize("nbytes, no_sha256", [
    (2 * MIB, False),
    (2 * MIB, True),
    (17 * MIB, True)])  # its Git name is not computed while it arrives
# shows: security.md upstream-late-digest
def test_bytes_with_another_digest_than_the_last_list_has_are_not_published(hubs, cache, nbytes, no_sha256):
    files = model(nbytes=nbytes)
    hub = hubs({"org/m": files})
    hub.no_sha256 = no_sha256
    hub.lie["model.safetensors"] = bytes(len(files["model.safetensors"]))
    server = cache(hub.url)
    fetch_without_digests(hub, server)
    server.wait_for(lambda: count(server, "failures_total") == 1, "the digest is found to be another", 30)
    assert 'the upstream had no digest of "model.safetensors" at first; now it lists' in server.stderr()
    assert server.ids() == []
    hub.lie.clear()
    server.wait_for(lambda: server.get("/org/m/resolve/main/config.json").status == 200, "it is fetched again", 30)
    published(server, "org/m")
    assert server.get("/org/m/resolve/main/model.safetensors").body == files["model.safetensors"]
    assert server.json("/models/org/m")["upstream"] == {"state": "here", "verified": True}


def test_three_servers_in_a_row(hubs, cache):
    files = model()
    hub = hubs({"org/m": files})
    first = cache(hub.url, root="first")
    second = cache(f"http://127.0.0.1:{first.port}", root="second")
    third = cache(f"http://127.0.0.1:{second.port}", root="third")
    r = third.get("/org/m/resolve/main/model.safetensors", timeout=60)
    assert (r.status, r.body) == (200, files["model.safetensors"])
    for server in (first, second, third):
        published(server, "org/m")
    assert hub.sent_bytes("model.safetensors") == len(files["model.safetensors"])
    assert third.get("/org/none/resolve/main/config.json", timeout=60).status == 404


# shows: security.md upstream-circles
def test_servers_that_name_each_other_or_themselves_answer_404(cache):
    port, other = free_port(), free_port()
    itself = cache(f"http://127.0.0.1:{port}", "--listen", f"127.0.0.1:{port}", root="itself")
    for way in ("made up", ",".join(["0123456789abcdef"] * 8)):     # which spends no warning
        assert itself.get("/models/org/made-up", [("Tensord-Via", way)]).status == 404
    assert itself.stderr().count("says that it has passed 8 other servers") == 1
    r = itself.get("/models/org/m/files/x", timeout=30)
    assert (r.status, b"neither here nor at the upstream" in r.body) == (404, True)
    assert itself.stderr().count("does --upstream name this server") == 1
    one = cache(f"http://127.0.0.1:{other}", root="one")
    two = cache(f"http://127.0.0.1:{one.port}", "--listen", f"127.0.0.1:{other}", root="two")
    assert two.get("/models/org/m/files/x", timeout=30).status == 404
    assert one.get("/models/org/m/files/x", timeout=30).status == 404


def test_a_directory_that_cannot_be_used_is_said_at_the_start(hubs, tmp_path):
    hub = hubs({})
    (tmp_path / "cache").mkdir()

    def run(*args):
        return subprocess.run([harness.tensord_binary(), "serve", tmp_path / "cache", "--listen", "127.0.0.1:0", *args],
                              capture_output=True, text=True, timeout=30, check=False)

    wrong = run("--upstream", "ftp://host")
    assert wrong.returncode == 2
    assert "--upstream: " in wrong.stderr
    assert "ftp" in wrong.stderr
    for option in ("--upstream-token-file", "--upstream-ca"):
        wrong = run("--upstream", hub.url, option, tmp_path / "none")
        assert wrong.returncode == 1
        assert f'{option}: cannot open "{tmp_path / "none"}"' in wrong.stderr
    for directory, fault in (("no-such", "does not exist"), ("file", "is not a directory")):
        (tmp_path / "file").write_text("")
        wrong = subprocess.run([harness.tensord_binary(), "serve", tmp_path / directory, "--listen", "127.0.0.1:0",
                                "--upstream", hub.url], capture_output=True, text=True, timeout=30, check=False)
        assert wrong.returncode != 0
        assert f'"{tmp_path / directory}" {fault}' in wrong.stderr
    (tmp_path / "cache" / ".tensord-upstream").write_text("a file is in the way")
    wrong = run("--upstream", hub.url)
    assert wrong.returncode != 0
    assert "--upstream keeps models in" in wrong.stderr


def test_two_servers_cannot_share_a_directory(hubs, cache):
    hub = hubs({"org/m": model()})
    cache(hub.url)
    with pytest.raises(AssertionError, match="another tensord with --upstream"):
        cache(hub.url)


# shows: security.md upstream-store-removed
def test_a_store_that_is_removed_while_the_server_runs_is_told(hubs, cache, tmp_path):
    hub = hubs({"org/m": model(), "org/n": model("n"), "org/o": model("o")})
    server = cache(hub.url)
    assert server.get("/org/m/resolve/main/README.md").status == 200
    published(server, "org/m")
    hub.open_gate(MIB)
    assert server.get("/models/org/n/files/config.json").status == 200        # org/n is on its way
    shutil.rmtree(tmp_path / "cache" / ".tensord-upstream")
    r = server.get("/models/org/o/files/config.json")
    assert (r.status, b'"org/o\\" cannot be fetched from the upstream at present' in r.body) == (503, True), r
    assert r.get("Retry-After") is not None
    said = '.tensord-upstream", or what is in it, was removed or replaced while the server runs; restart the server'
    assert f'upstream: "org/o" could not be fetched: "{tmp_path / "cache"}/{said}' in server.stderr()
    second = cache(hub.url)
    hub.open_gate(None)
    server.wait_for(lambda: 'upstream: "org/n" could not be fetched' in server.stderr(), "the fetch has ended")
    assert server.get("/org/m/resolve/main/README.md").status == 200
    assert not (tmp_path / "cache" / "org" / "n").exists()
    assert second.get("/org/n/resolve/main/model.safetensors").body == model("n")["model.safetensors"]
    published(second, "org/n")
    assert sorted(p.name for p in (tmp_path / "cache" / ".tensord-upstream").rglob("*") if p.name != "lock") == sorted(
        ["incoming", "records", "check", "trash"] +
        [p.name for p in (tmp_path / "cache" / ".tensord-upstream" / "records").iterdir()])


def test_sigterm_ends_a_fetch_and_its_readers(hubs, cache):
    hub = hubs({"org/m": model()})
    hub.open_gate(2 * MIB)
    server = cache(hub.url, "--drain-timeout", "0.2")
    with Conn(server.port) as c:
        c.send(harness.request_bytes("/org/m/resolve/main/model.safetensors", port=server.port))
        c.read_exact(MIB, c.read_head())
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 10


# shows: security.md upstream-full-disk
def test_a_full_disk_is_an_answer(hubs, tmp_path):
    """In a mount namespace, so that the mount ends with its processes."""
    unshare = "unshare --mount" if os.geteuid() == 0 else "unshare --map-root-user --mount"
    hub = hubs({"org/m": model(), "org/small": model("s", MIB)})
    mount = tmp_path / "small"
    mount.mkdir()
    script = 'mount -t tmpfs -o size=4m tensord "$1" && shift && exec "$@"'
    binary = tmp_path / "tensord-in-namespace"
    binary.write_text("#!/bin/sh\n"
                      f"exec {unshare} sh -c '{script}' sh {mount} {harness.tensord_binary()} \"$@\"\n")
    binary.chmod(0o755)
    with harness.Server(mount, "--upstream", hub.url, binary=binary) as server:
        r = server.get("/org/m/resolve/main/model.safetensors")
        assert r.status == 507
        assert b"there is no room" in r.body
        assert b"too large" not in r.body and 1 <= int(r.get("Retry-After")) <= 30
        assert "the disk has" in server.stderr()
        r = server.get("/org/small/resolve/main/model.safetensors")
        assert r.status == 200
        published(server, "org/small")


def refused(r, status, code):
    """Return the message of an error of the registry."""
    assert r.status == status, r
    assert r.get("Docker-Distribution-API-Version") == "registry/2.0"
    error, = json.loads(r.body)["errors"]
    assert error["code"] == code, error
    return error["message"]


@pytest.mark.parametrize("path", ["manifests/main", "manifests/latest", "tags/list", f"blobs/sha256:{'0' * 64}",
                                  f"manifests/sha256:{'0' * 64}"])
@pytest.mark.parametrize("name", ["org/m", "local/solo", "Org/Spelled"])
def test_a_registrys_request_begins_the_fetch(hubs, cache, name, path):
    """It is answered 503 until the model is here; then as for any model."""
    files = model(nbytes=2 * MIB)
    hub = hubs({"org/m": files, "solo": files, "Org/Spelled": files})
    hub.open_gate(MIB)
    server = cache(hub.url)
    r = server.get(f"/v2/{name}/{path}")
    message = refused(r, 503, "UNAVAILABLE")
    assert int(r.get("Retry-After")) > 0
    total = sum(map(len, files.values()))
    assert re.search(rf"is being fetched from the upstream: \d+ of {total} bytes are here; ", message), message
    assert "Retry-After" in message and "can be read" not in message       # no client of registries asks for files
    assert server.json("/v2/_catalog")["repositories"] == []
    hub.open_gate(None)
    id = name.removeprefix("local/")
    published(server, id)
    r = server.get(f"/v2/{name}/manifests/main")
    assert r.status == 200, r
    layers = json.loads(r.body)["layers"]
    layers = {layer["annotations"]["org.cncf.model.filepath"]: layer["digest"] for layer in layers}
    assert layers == {path: f"sha256:{hashlib.sha256(content).hexdigest()}" for path, content in files.items()}
    for path, layer in layers.items():
        assert server.get(f"/v2/{name}/blobs/{layer}").body == files[path]
    assert server.get(f"/v2/{id.lower()}/manifests/main").body == r.body        # now it has its name, too
    assert hub.sent_bytes("model.safetensors") == len(files["model.safetensors"])


def test_registrys_requests_that_fetch_nothing(hubs, cache, tmp_path):
    """Names that the upstream does not have, and paths that need no model, are answered as without an upstream."""
    (tmp_path / "plain").mkdir()
    hub = hubs({"org/m": model()})
    server, plain = cache(hub.url), harness.Server(tmp_path / "plain")
    nothing = f"sha256:{'0' * 64}"
    with plain:
        for target in (f"org/m/referrers/{nothing}", "org/m/blobs/uploads/", "_catalog", "", "a/b/c/manifests/main",
                       ".hidden/m/tags/list", "datasets/m/manifests/main"):
            r, wanted = server.get(f"/v2/{target}"), plain.get(f"/v2/{target}")
            assert r.status == wanted.status, target
            if re.search("manifests|tags", target):
                assert refused(r, 404, "NAME_UNKNOWN").startswith('no repository "'), target
            else:
                assert r.body == wanted.body, target
        assert hub.requests == []
        for path in ("manifests/main", f"blobs/{nothing}", "tags/list"):
            r = server.get(f"/v2/org/none/{path}")
            assert refused(r, 404, "NAME_UNKNOWN") == (
                'no repository "org/none", neither here nor at the upstream; a model whose id has capital letters has '
                "to be fetched by its id once, as by GET /models/Org/Name")
            assert "upstream" not in refused(plain.get(f"/v2/org/none/{path}"), 404, "NAME_UNKNOWN")
            assert r.get("Retry-After") is None
        for method in ("PUT", "POST", "DELETE"):
            with server.conn() as c:
                assert c.request("/v2/org/m/manifests/main", method=method).status == 405
    assert hub.count("org/none") == 1
    assert hub.count("org/m") == 0


# shows: security.md upstream-token-view
def test_a_registrys_token_decides_before_anything_is_fetched(hubs, cache, tmp_path):
    hub = hubs({"org/m": model(), "other/m": model()})
    tokens = tmp_path / "tokens.json"
    bearer = bearer_of(new_token(tokens, "reader", "org/*"))
    server = cache(hub.url, "--tokens", tokens, ready=False)
    server.wait_for(lambda: server.get("/readyz").status == 200, "ready")
    refused(server.get("/v2/org/m/manifests/main"), 401, "UNAUTHORIZED")
    hidden, none = (server.get(f"/v2/other/{name}/manifests/main", bearer) for name in ("m", "n"))
    refused(hidden, 404, "NAME_UNKNOWN")
    assert hidden.body == none.body.replace(b"other/n", b"other/m")
    assert hub.requests == []
    server.wait_for(lambda: server.get("/v2/org/m/manifests/main", bearer).status == 200, "it is fetched")
    assert hub.count("other") == 0


def test_a_registrys_model_that_is_too_large_is_an_answer(hubs, cache):
    server = cache(hubs({"org/m": model()}).url, "--cache-max-bytes", MIB)
    assert "there is no room" in refused(server.get("/v2/org/m/manifests/main"), 507, "UNAVAILABLE")


def test_blobs_of_a_registry_count_as_read(hubs, cache, tmp_path):
    """Of two models the one whose blobs were read last stays."""
    hub = hubs({f"org/m{i}": model(str(i), 2 * MIB) for i in range(3)})
    server = cache(hub.url, "--cache-max-bytes", 5 * MIB)
    for name in ("org/m0", "org/m1"):
        assert server.get(f"/{name}/resolve/main/model.safetensors").status == 200
        published(server, name)
    sha256 = hashlib.sha256(CONFIG).hexdigest()
    assert server.get(f"/v2/org/m0/blobs/sha256:{sha256}").body == CONFIG
    assert server.get("/v2/org/m2/manifests/main").status == 503
    published(server, "org/m2")
    server.wait_for(lambda: server.ids() == ["org/m0", "org/m2"], "m1 is gone")


def test_skopeo_copies_through(hubs, cache, tmp_path):
    """The first try begins the fetch of a tensord's model and fails; a later one brings every byte."""
    files = model() | {"sub/extra.bin": pattern(200_000, "extra")}
    hub = hubs({"org/m": files})
    hub.open_gate(MIB)
    first = cache(hub.url, root="first")
    second = cache(f"http://127.0.0.1:{first.port}", root="second")
    into = tmp_path / "into"

    def copy():
        return subprocess.run(["skopeo", "copy", "--src-tls-verify=false", "--preserve-digests",
                               f"docker://127.0.0.1:{second.port}/org/m:main", f"dir:{into}"],
                              capture_output=True, text=True, timeout=120, check=False)

    done = copy()
    assert done.returncode != 0
    assert "503 Service Unavailable" in done.stderr, done.stderr      # skopeo of this version shows no message
    hub.open_gate(None)
    published(second, "org/m")
    done = copy()
    assert done.returncode == 0, done.stderr
    for layer in json.loads((into / "manifest.json").read_bytes())["layers"]:
        content = files[layer["annotations"]["org.cncf.model.filepath"]]
        assert (into / layer["digest"].removeprefix("sha256:")).read_bytes() == content
    assert hub.sent_bytes("model.safetensors") == len(files["model.safetensors"])


def test_hf_download_reads_through(hubs, cache, tmp_path):
    files = model() | {"tokenizer.json": b'{"x": 1}', "sub/extra.bin": pattern(200_000, "extra")}
    hub = hubs({"org/m": files})
    server = cache(hub.url)
    into = tmp_path / "into"
    hf = Path(harness.__file__).resolve().parents[2] / ".venv" / "bin" / "hf"
    done = subprocess.run([hf, "download", "org/m", "--local-dir", into], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{server.port}", "HF_HOME":
                               str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}, check=False)
    assert done.returncode == 0, done.stderr
    for path, content in files.items():
        assert (into / path).read_bytes() == content
    assert hub.sent_bytes("model.safetensors") == len(files["model.safetensors"])
    assert hub.count(COMMIT) > 0
