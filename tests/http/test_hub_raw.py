"""The Hub facade over a socket, with raw requests as clients send them. The clients themselves are in tests/clients.

Expectations by rules of huggingface_hub or git are computed here from the files, never taken from the server.
"""
import hashlib
import html
import json
import os
import shutil
import subprocess
import threading
import time

import pytest

from harness import Conn, age, enc, parse_multipart, pattern, tensor, write_by_hand

NEW, OLD = "1" * 40, "0" * 40


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def pointer_of(data):
    """Return the pointer that git-lfs commits in the file's place (docs/spec.md of git-lfs)."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(data)}\nsize {len(data)}\n".encode()


def git_name(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def wait_hashed(s, id, kind="models", timeout=30):
    def known():
        items = s.json(f"/api/{kind}/{id}/tree/main?recursive=true")
        return all("lfs" in i for i in items if i["type"] == "file")
    s.wait_for(known, f"all of {id} is hashed", timeout)
    scans = s.gauge("tensord_scans_total")
    s.hup()
    s.wait_for(lambda: s.gauge("tensord_scans_total") >= scans + 2, "the commit is the one of the contents")


@pytest.fixture(scope="module")
def files():
    return {"config.json": b"{}\n", "data.dat": pattern(300_000, "data"), "empty.txt": b"",
            "sub dir/é+%2F.txt": b"odd", "sub dir/deeper/x": b"x", "sub-dir": b"-", "sub.dir": b"."}


@pytest.fixture(scope="module")
def root(tmp_path_factory, files):
    root = tmp_path_factory.mktemp("hub") / "root"
    for name, data in files.items():
        write(root / "ns/plain" / name, data)
    write_by_hand(root / "ns/plain/model.safetensors", [tensor("w", "F32", (40, 50))])
    cache = root / "models--org--cached"
    for commit, text in ((NEW, b"new"), (OLD, b"old")):
        blob = cache / "blobs" / sha256(text)
        write(blob, text)
        (cache / "snapshots" / commit).mkdir(parents=True)
        (cache / "snapshots" / commit / "a.txt").symlink_to(f"../../blobs/{sha256(text)}")
    write(cache / "refs/main", NEW.encode())
    write(cache / "refs/refs/pr/1", OLD.encode())
    age(root)
    return root


@pytest.fixture(scope="module")
def hub(root, start_module):
    s = start_module(root)
    wait_hashed(s, "ns/plain")
    wait_hashed(s, "org/cached")
    return s


@pytest.fixture(scope="module")
def start_module():
    from harness import Server
    began = []

    def go(*args, **kw):
        began.append(Server(*args, **kw))
        return began[-1]

    yield go
    for s in began:
        s.stop()


def commit_of(s, id="ns/plain", revision="main"):
    return s.json(f"/api/models/{id}/revision/{revision}")["sha"]


# ---------------------------------------------------------------------------------------------- files


def test_every_file_by_every_revision(hub, files):
    revisions = ["main", "HEAD", commit_of(hub), "safetensors", commit_of(hub, revision="safetensors")]
    with hub.conn() as c:
        for revision in revisions:
            for name, data in files.items():
                for spelled in {enc(name, "/"), enc(name)}:
                    target = f"/ns/plain/resolve/{revision}/{spelled}"
                    head = c.request(target, {"Accept-Encoding": "identity"}, "HEAD")
                    get = c.request(target, {"Accept-Encoding": "gzip, deflate"})
                    assert get.status == 200 and get.body == data, get
                    assert get.etag == f'"{sha256(data)}"' and get.length == len(data), get
                    assert head.status == 200 and head.body == b"", head
                    for field in ("ETag", "Content-Length", "X-Repo-Commit", "Accept-Ranges", "Last-Modified",
                                  "Content-Type", "Cache-Control"):
                        assert head.get(field) == get.get(field) and get.get(field) is not None, field
                    for field in ("Location", "X-Xet-Hash", "Link", "Content-Encoding", "X-Error-Code"):
                        assert get.get(field) is None, field


@pytest.mark.parametrize("field, first, last", [
    ("bytes=0-0", 0, 0), ("bytes=0-7", 0, 7), ("bytes=100-1173", 100, 1173), ("bytes=0-1999999", 0, 299_999),
    ("bytes=299999-", 299_999, 299_999), ("bytes=-5", 299_995, 299_999), ("bytes=10485-", 10485, 299_999)])
def test_ranges_of_resolve(hub, files, field, first, last):
    data = files["data.dat"]
    for revision in ("main", commit_of(hub)):
        r = hub.get(f"/ns/plain/resolve/{revision}/data.dat", {"Range": field})
        assert r.status == 206 and r.body == data[first:last + 1], r
        assert r.get("Content-Range") == f"bytes {first}-{last}/{len(data)}", r
        assert r.etag == f'"{sha256(data)}"' and r.get("X-Repo-Commit") == commit_of(hub), r


def test_ranges_that_are_none(hub, files):
    data = files["data.dat"]
    r = hub.get("/ns/plain/resolve/main/data.dat", {"Range": "bytes=300000-"})   # taken for the end of the file
    assert r.status == 416 and r.get("Content-Range") == "bytes */300000", r
    assert hub.get("/ns/plain/resolve/main/empty.txt", {"Range": "bytes=0-0"}).status == 200
    assert hub.head("/ns/plain/resolve/main/data.dat", {"Range": "bytes=0-0"}).length == len(data)
    several = parse_multipart(hub.get("/ns/plain/raw/main/data.dat", {"Range": "bytes=0-9,-9"}))
    assert [p[4] for p in several] == [data[:10], data[-9:]]


def test_a_client_that_has_it(hub, files):
    tag = f'"{sha256(files["data.dat"])}"'
    for method in ("GET", "HEAD"):
        r = hub.request("/ns/plain/resolve/main/data.dat", {"If-None-Match": tag}, method)
        assert r.status == 304 and r.etag == tag and r.body == b"", r
        assert r.get("X-Repo-Commit") == commit_of(hub), r
    assert hub.get("/ns/plain/resolve/main/data.dat", {"If-Match": '"other"'}).status == 412


def test_a_rank_by_name_and_by_commit(hub):
    commit = commit_of(hub, revision="tp2-rank1-none")
    assert commit != commit_of(hub)
    named = hub.get("/ns/plain/resolve/tp2-rank1-none/model.safetensors")
    found = hub.get(f"/ns/plain/resolve/{commit}/model.safetensors")
    direct = hub.get("/models/ns/plain/shards/none/tp2/rank-1.safetensors")
    assert named.status == 200 and named.body == found.body == direct.body
    assert named.get("X-Repo-Commit") == found.get("X-Repo-Commit") == commit
    tree = {i["path"]: i for i in hub.json(f"/api/models/ns/plain/tree/{commit}?recursive=true")}
    assert tree["model.safetensors"]["size"] == len(named.body)
    assert hub.get(f"/ns/plain/resolve/{commit}/model.safetensors", {"Range": "bytes=8-19"}).body == named.body[8:20]


# ---------------------------------------------------------------------------------------------- caches


@pytest.mark.parametrize("revision, commit, text", [("main", NEW, b"new"), (NEW, NEW, b"new"), (OLD, OLD, b"old"),
                                                    ("refs%2Fpr%2F1", OLD, b"old"), ("refs/pr/1", OLD, b"old")])
def test_revisions_of_a_cache(hub, revision, commit, text):
    assert commit_of(hub, "org/cached", revision) == commit
    r = hub.get(f"/org/cached/resolve/{revision}/a.txt")
    assert r.body == text and r.get("X-Repo-Commit") == commit and r.etag == f'"{sha256(text)}"', r
    tree = hub.json(f"/api/models/org/cached/tree/{revision}")
    assert [(i["path"], i["oid"]) for i in tree] == [("a.txt", git_name(pointer_of(text)))]


def test_refs_of_a_cache(hub):
    refs = hub.json("/api/models/org/cached/refs?include_prs=1")
    assert [(b["name"], b["ref"], b["targetCommit"]) for b in refs["branches"]] == [("main", "refs/heads/main", NEW)]
    assert [(b["name"], b["ref"], b["targetCommit"]) for b in refs["pullRequests"]] == [("refs/pr/1", "refs/pr/1", OLD)]


def test_as_llama_cpp_downloads(tmp_path, start):
    """llama.cpp, common/hf-cache.cpp and download.cpp: refs, the tree of main's commit, HEAD, GET that is resumed."""
    files = {"tiny-Q4_K_M.gguf": pattern(200_000, "q4"), "tiny-Q8_0.gguf": pattern(100_000, "q8")}
    for name, data in files.items():
        write(tmp_path / "root/org/tiny-GGUF" / name, data)
    age(tmp_path / "root")
    s = start(tmp_path / "root", hash_threads=1)
    wait_hashed(s, "org/tiny-GGUF")
    accept = {"Accept": "application/json", "User-Agent": "llama-cpp/b1"}
    branches = s.get("/api/models/org/tiny-GGUF/refs", accept).json()["branches"]
    commit = next(b["targetCommit"] for b in branches if b["name"] == "main")
    listed = s.get(f"/api/models/org/tiny-GGUF/tree/{commit}?recursive=true", accept).json()
    assert {i["path"]: i["lfs"]["oid"] for i in listed
            if i["type"] == "file"} == {n: sha256(d) for n, d in files.items()}
    for name, data in files.items():
        target = f"/org/tiny-GGUF/resolve/{commit}/{name}"
        head = s.request(target, method="HEAD")
        assert (head.status, head.length, head.get("Accept-Ranges")) == (200, len(data), "bytes")
        rest = s.get(target, {"Range": "bytes=70000-"})
        assert rest.status == 206 and rest.body == data[70000:]
    assert isinstance(s.get("/api/models/org/none/refs", accept).json()["error"], str)


# ---------------------------------------------------------------------------------------------- trees


def test_tree_is_what_git_lfs_would_say(hub, root, files):
    items = hub.json("/api/models/ns/plain/tree/main?recursive=true&expand=false")
    assert [i["path"] for i in items if i["type"] == "directory"] == ["sub dir", "sub dir/deeper"]
    found = {i["path"]: i for i in items if i["type"] == "file"}
    everything = files | {"model.safetensors": (root / "ns/plain/model.safetensors").read_bytes()}
    assert set(found) == set(everything)
    for name, data in everything.items():
        pointer = pointer_of(data)
        assert found[name] == {"type": "file", "path": name, "size": len(data), "oid": git_name(pointer),
                               "lfs": {"oid": sha256(data), "size": len(data), "pointerSize": len(pointer)}}, name
    by_git = subprocess.run(["git", "hash-object", "--stdin"], input=pointer_of(files["data.dat"]), capture_output=True,
                            check=False)
    assert by_git.returncode != 0 or by_git.stdout.decode().strip() == found["data.dat"]["oid"]


def test_paths_info_by_form_and_by_json(hub):
    target = "/api/models/ns/plain/paths-info/main"
    form = hub.post(target, b"paths=sub+dir%2F%C3%A9%2B%252F.txt&paths=none&paths=sub+dir&expand=True",
                    {"Content-Type": "application/x-www-form-urlencoded"})
    posted = hub.post(target, {"paths": ["sub dir/é+%2F.txt", "none", "sub dir"], "expand": True})
    assert form.status == posted.status == 200 and form.json() == posted.json(), (form, posted)
    assert [(i["type"], i["path"]) for i in form.json()] == [("file", "sub dir/é+%2F.txt"), ("directory", "sub dir")]
    assert all(i["lastCommit"]["id"] == commit_of(hub) for i in form.json())
    assert hub.request(target, {"Content-Length": "9000000"}, "POST").status == 413
    many = b"&".join(b"paths=none" for _ in range(100_000))
    assert hub.post(target, many).status == 400


def test_codes_of_errors(hub):
    for target, code in (("/ns/none/resolve/none/x", "RepoNotFound"), ("/ns/plain/resolve/none/x", "RevisionNotFound"),
                         ("/ns/plain/resolve/main/none", "EntryNotFound"), ("/api/models/ns/none", "RepoNotFound"),
                         ("/api/models/ns/plain/revision/none", "RevisionNotFound"),
                         ("/api/models/ns/plain/tree/main/additional_chat_templates?recursive=false", "EntryNotFound"),
                         ("/api/models/ns/plain/discussions?p=0", None), ("/api/agent-harnesses", None)):
        get, head = hub.get(target), hub.head(target)
        assert get.status == head.status == 404, get
        assert get.get("X-Error-Code") == head.get("X-Error-Code") == code, get
        assert isinstance(get.json()["error"], str) and get.get("Content-Type") == "application/json", get
        assert (get.get("X-Repo-Commit") is not None) == (code == "EntryNotFound"), get


@pytest.mark.parametrize("path, status", [
    ("/ns/plain/resolve/main/none", 404), ("/ns/plain/resolve/none/data.dat", 404), ("/ns/none/resolve/main/x", 404),
    ("/datasets/ns/none/resolve/main/x", 404), ("/api/models/ns/none", 404), ("/api/none", 404)])
def test_errors_are_pages_for_browsers(hub, path, status):
    """Somebody who follows a link of a card to a file that is missing gets a page, with the same words and fields."""
    plain, page = hub.get(path), hub.get(path, {"Accept": "text/html,*/*;q=0.8"})
    assert plain.status == page.status == status
    assert page.get("Content-Type") == "text/html; charset=utf-8" and b"<nav" in page.body, page
    assert plain.json()["error"] in html.unescape(page.body.decode()), page
    for field in ("X-Error-Code", "X-Error-Message", "X-Repo-Commit", "Cache-Control"):
        assert page.get(field) == plain.get(field), field
    assert page.get("Content-Security-Policy") and page.get("X-Content-Type-Options") == "nosniff"


FILE, PATHS = "/ns/plain/resolve/main/data.dat", "/api/models/ns/plain/paths-info/main"


@pytest.mark.parametrize("method, target, headers, status, part",
                         [("POST", FILE, {"Content-Length": "0"}, 405, "POST is not allowed"),
                          ("PUT", FILE, {}, 405, "PUT is not allowed"),
                          ("POST", "/api/repos/create", {"Content-Length": "5"}, 405, "POST is not allowed"),
                          ("GET", PATHS, {}, 405, "GET is not allowed"),
                          ("GET", FILE, {"Range": "bytes=300000-"}, 416, "bytes=300000-"),
                          ("GET", FILE, {"If-Match": '"other"'}, 412, "If-Match"),
                          ("GET", "/api/models/ns/plain", {"If-Match": '"other"'}, 412, "If-Match"),
                          ("GET", FILE + "%zz", {}, 400, "hexadecimal"), ("GET", "/api/models/%ff", {}, 400, "UTF-8"),
                          ("GET", "/api/models/a<b", {}, 400, "percent-encoded"),
                          ("GET", FILE, {"Host": "a b"}, 400, "Host"),
                          ("GET", FILE, {"Content-Length": "3"}, 400, "Content-Length"),
                          ("POST", PATHS, {"Transfer-Encoding": "gzip"}, 400, "Transfer-Encoding"),
                          ("POST", PATHS, {"Content-Length": "9000000"}, 413, "--max-body-bytes"),
                          ("GET", FILE, [(f"X-{i}", "x") for i in range(100)], 431, "too many header fields")])
def test_every_error_has_the_hubs_form(hub, method, target, headers, status, part):
    """Clients show `error` as it is; the answer to HEAD has the same length and no body."""
    r = hub.request(target, headers, method)
    assert r.status == status and r.get("Content-Type") == "application/json" and r.get("X-Error-Code") is None, r
    assert list(r.json()) == ["error"] and part in r.json()["error"], r
    head = hub.request(target, headers, "HEAD")
    if method == "GET" and status not in (405, 416):  # its text names the method, so HEAD differs
        assert head.status == status and head.length == len(r.body) and head.body == b"", head


def test_ours_have_our_form(hub):
    for target in ("/models/ns/plain/files/data.dat", "/models", "/healthz"):
        assert hub.request(target, {}, "PUT").json()["error"]["status"] == "UNIMPLEMENTED", target


def test_all_connections_in_use(root, start):
    s = start(root, "--max-connections", 2)
    with s.conn() as one, s.conn() as two:
        assert one.request("/healthz").status == two.request("/healthz").status == 200
        for target in ("/api/models", FILE):
            r = s.get(target)
            assert r.status == 503 and r.get("Retry-After") and "--max-connections" in r.json()["error"], r
        assert s.get("/models").json()["error"]["status"] == "UNAVAILABLE"


def test_a_wrong_revision_is_explained(hub):
    for revision, part in (("none", "it has main, safetensors, tp{n}-rank{r}-{engine}"),
                           ("tp2-rank2-none", "rank0 to rank1"), ("tp2-rank0-none-of-all",
                                                                  "the engines are ")):
        r = hub.get(f"/api/models/ns/plain/revision/{revision}")
        assert r.status == 404 and r.get("X-Error-Code") == "RevisionNotFound" and part in r.json()["error"], r
    missing = hub.get("/ns/plain/resolve/main/none").json()["error"]
    where = missing.split("; GET ")[1].split(" lists ")[0]
    assert "config.json" in [i["path"] for i in hub.json(where)], missing


def test_a_message_is_in_a_header_too(hub):
    """Clients show this header of an answer to HEAD, which has no body."""
    for target, part in (("/ns/plain/resolve/tp2-rank2-none/config.json", '"rank2" is not a rank of 2'),
                         ("/ns/plain/resolve/main/no", "no file"), ("/datasets/ns/plain/resolve/main/config.json",
                                                                    "there is a model of that id")):
        head, get = hub.request(target, method="HEAD"), hub.get(target)
        assert head.status == 404 and part in head.get("X-Error-Message"), head
        assert head.get("X-Error-Message") == get.get("X-Error-Message") == get.json()["error"]
    assert "?" in hub.get("/ns/plain/resolve/main/%C3%A9").get("X-Error-Message")


def test_a_path_that_is_named_often_is_answered_once(hub):
    target = "/api/models/ns/plain/paths-info/main"
    form = hub.post(target,
                    b"&".join(b"paths=sub-dir&paths=config.json&paths=none&paths=sub+dir%2F" for _ in range(2500)))
    assert [i["path"] for i in form.json()] == ["sub-dir", "config.json", "sub dir"], form
    assert hub.post(target, {"paths": ["sub-dir", "config.json", "sub dir"] * 3000}).json() == form.json()


# ---------------------------------------------------------------------------------------------- digests


def test_head_waits_for_the_digest(tmp_path, start):
    """A HEAD as the very first request: the answer has the digest, because the file can be hashed in that time."""
    data = pattern(3_000_000, "waits")
    write(tmp_path / "root/ns/m/data.dat", data)
    age(tmp_path / "root")
    s = start(tmp_path / "root", hash_threads=1)
    r = s.head("/ns/m/resolve/main/data.dat")
    assert r.status == 200 and r.etag == f'"{sha256(data)}"', r


def test_head_does_not_wait_for_what_takes_long(tmp_path, start):
    """40 GB cannot be hashed before a client gives up (10 s): the answer comes at once, with another tag."""
    write(tmp_path / "root/ns/m/data.dat", b"")
    os.truncate(tmp_path / "root/ns/m/data.dat", 40 * 10**9)
    age(tmp_path / "root")
    s = start(tmp_path / "root", hash_threads=1)
    began = time.monotonic()
    r = s.head("/ns/m/resolve/main/data.dat")
    took = time.monotonic() - began
    assert r.status == 200 and r.length == 40 * 10**9 and took < 4, (took, r)
    assert len(r.etag.strip('"')) == 32 and r.get("X-Repo-Commit") == commit_of(s, "ns/m"), r
    item, = s.json("/api/models/ns/m/tree/main")
    assert "lfs" not in item and item["size"] == 40 * 10**9
    part = s.get("/ns/m/resolve/main/data.dat", {"Range": "bytes=39999999990-", "If-Match": r.etag})
    assert part.status == 206 and part.body == bytes(10), part


def test_many_wait_at_once(tmp_path, start):
    """Each client gets its answer within its time limit, whatever the others ask for."""
    for i in range(40):
        write(tmp_path / f"root/ns/m/{i}.bin", pattern(500_000, str(i)))
    age(tmp_path / "root")
    s = start(tmp_path / "root", hash_threads=1)
    slow = []

    def ask(i):
        began = time.monotonic()
        r = s.head(f"/ns/m/resolve/main/{i}.bin", timeout=30)
        if r.status != 200 or time.monotonic() - began > 9:
            slow.append(r)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(40)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not slow


# ---------------------------------------------------------------------------------------------- changes


# shows: security.md client-commits
def test_a_commit_is_gone_when_the_files_are(tmp_path, start):
    """Clients continue with the commit that they got; they would take newer bytes under it for the old ones."""
    root = tmp_path / "root"
    write(root / "ns/m/config.json", b"{}")
    write_by_hand(root / "ns/m/model.safetensors", [tensor("w", "F32", (4,))])
    age(root)
    s = start(root, hash_threads=1)
    wait_hashed(s, "ns/m")
    before, made = commit_of(s, "ns/m"), commit_of(s, "ns/m", "safetensors")
    write(root / "ns/m/new.json", b"{}")
    os.replace(root / "ns/m/new.json", root / "ns/m/config2.json")
    age(root)
    s.hup()
    s.wait_for(lambda: commit_of(s, "ns/m") != before, "another commit")
    for old in (before, made):
        for target in (f"/ns/m/resolve/{old}/config.json", f"/api/models/ns/m/tree/{old}",
                       f"/api/models/ns/m/revision/{old}"):
            r = s.get(target)
            assert r.status == 404 and r.get("X-Error-Code") == "RevisionNotFound", r
            assert r.get("X-Repo-Commit") is None, r


# shows: security.md client-commits
def test_while_a_repository_is_exchanged_under_load(tmp_path, start):
    """A commit names one content: a 200 has the bytes that the commit had when it was first seen; else 404 or 503."""
    root = tmp_path / "root"
    versions = [pattern(100_000, f"v{i}") for i in range(2)]
    write(root / "ns/m/data.dat", versions[0])
    age(root)
    s = start(root, hash_threads=1)
    stop = threading.Event()
    seen, wrong, counts = {}, [], {}
    lock = threading.Lock()

    def load():
        with Conn(s.port) as c:
            while not stop.is_set():
                info = c.request("/api/models/ns/m/revision/main")
                if info.status != 200:
                    wrong.append(info)
                    return
                sha = json.loads(info.body)["sha"]
                r = c.request(f"/ns/m/resolve/{sha}/data.dat")
                with lock:
                    counts[r.status] = counts.get(r.status, 0) + 1
                    if r.status == 200:
                        if seen.setdefault(sha, r.body) != r.body or r.get("X-Repo-Commit") != sha:
                            wrong.append(r)
                    elif r.status == 404 and r.get("X-Error-Code") != "RevisionNotFound":
                        wrong.append(r)
                    elif r.status not in (404, 503):
                        wrong.append(r)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for t in threads:
        t.start()
    for turn in range(12):
        write(root / "ns/m/.next", versions[(turn + 1) % 2])
        age(root / "ns/m/.next")
        os.replace(root / "ns/m/.next", root / "ns/m/data.dat")
        s.hup()
        time.sleep(0.2)
    stop.set()
    for t in threads:
        t.join()
    assert not wrong, wrong[:3]
    assert counts.get(200, 0) > 20 and len(seen) >= 2, counts
    shutil.rmtree(root)


def test_whose_token_it_is_does_not_matter(hub):
    for token in ("Bearer x", "Bearer hf_" + "y" * 100, "Basic eDp5"):
        assert hub.get("/ns/plain/resolve/main/config.json", {"Authorization": token}).status == 200
        assert hub.json("/api/whoami-v2", {"Authorization": token})["name"] == "local"


def test_lists_have_pages(hub):
    ids, target, pages = [], "/api/models?limit=1&full=true", 0
    while target:
        r = hub.get(target)
        ids += [m["id"] for m in r.json()]
        link, pages = r.get("Link"), pages + 1
        assert link is None or link.startswith(f"<http://127.0.0.1:{hub.port}/api/models?") and link.endswith(
            '>; rel="next"'), r
        target = link and link[len(f"<http://127.0.0.1:{hub.port}"):link.index(">")]
    assert ids == ["ns/plain", "org/cached"] and pages == 2


def test_routes_are_counted(hub):
    hub.get("/ns/plain/resolve/main/config.json")
    hub.get("/api/models/ns/plain")
    _, _, samples = hub.metrics()
    routes = {labels["route"] for name, labels, value in samples if name == "tensord_http_requests_total" and value > 0}
    assert {"hub_file", "hub_api"} <= routes
