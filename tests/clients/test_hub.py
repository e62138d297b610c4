"""huggingface_hub, the newest and 0.36.2, against tensord in the place of the Hub."""
import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

import harness
from client import (HUB0, NEWEST, ClientError, CuttingProxy, Worker, digests, quiet_environment, sha256, wait_hashed)

NAMES = ["config.json", "README.md", "name with space.txt", "é/ü+plus.txt", "a+b.txt", "100%.txt", "empty.txt",
         "sub/deeper/file.bin", "sub/beside.txt"]
BIG = 24 << 20
MAIN, OLDER, PULL = "a" * 40, "b" * 40, "c" * 40


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def build_plain(folder):
    for name in NAMES:
        write(folder / name, b"" if name == "empty.txt" else harness.pattern(1000 + len(name), name))
    write(folder / "config.json", b'{"model_type": "none"}\n')
    write(folder / ".hidden", b"not served")
    write(folder / "half.bin.incomplete", b"not served")
    harness.write_by_hand(folder / "model.safetensors", [harness.tensor("w", "F32", (300, 40)),
                                                         harness.tensor("b", "BF16", (7,))], {"format": "pt"})


def build_sharded(folder):
    shards = {"model-00001-of-00002.safetensors": harness.tensor("one", "F32", (3, 4)),
              "model-00002-of-00002.safetensors": harness.tensor("two", "F16", (5,))}
    for name, tensor in shards.items():
        harness.write_by_hand(folder / name, [tensor])
    index = {"metadata": {"total_size": 58}, "weight_map": {t.name: name for name, t in shards.items()}}
    write(folder / "model.safetensors.index.json", json.dumps(index).encode())


def build_cache(folder):
    """Build a cache in huggingface_hub's layout: three commits that share a blob, with their refs."""
    def add(commit, name, data):
        blob = folder / "blobs" / hashlib.sha256(data).hexdigest()
        write(blob, data)
        link = folder / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    weights = harness.safetensors_bytes([harness.tensor("w", "F32", (4, 4))])
    for commit in (MAIN, OLDER, PULL):
        add(commit, "model.safetensors", weights)
        add(commit, "notes/which.txt", commit.encode())
    add(MAIN, "only-main.txt", b"new")
    write(folder / "refs/main", MAIN.encode())
    write(folder / "refs/refs/pr/1", PULL.encode())


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("hub") / "root"
    build_plain(root / "ns/plain")
    build_sharded(root / "ns/sharded")
    write(root / "ns/big/model.safetensors",
          harness.safetensors_bytes([harness.tensor("big", "U8", (BIG,))]))
    write(root / "ns/data/train.jsonl", b'{"a": 1}\n{"a": 2}\n')
    harness.write_by_hand(root / "alone/model.safetensors", [harness.tensor("w", "I8", (9,))])
    build_cache(root / "models--org--cached")
    write(root / "datasets--org--rows/refs/main", MAIN.encode())
    write(root / f"datasets--org--rows/snapshots/{MAIN}/rows.jsonl", b'{"a": 3}\n')
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with harness.Server(root) as s:
        wait_hashed(s, "ns/plain", "ns/sharded", "ns/big", "local/alone", "org/cached")
        yield s


@pytest.fixture(scope="module", params=["newest", "0.36.2"])
def hub(request, srv):
    """One process of each version for all tests; a cache is given with each call."""
    python = HUB0 if request.param == "0.36.2" else NEWEST
    with Worker("calls_hub", python, HF_ENDPOINT=f"http://127.0.0.1:{srv.port}") as w:
        w.is_newest = request.param == "newest"
        yield w


@pytest.fixture
def cache(tmp_path):
    return str(tmp_path / "cache")


def fails(kind, call, **kw):
    with pytest.raises(ClientError) as caught:
        call(**kw)
    assert kind in caught.value.kinds, caught.value
    return caught.value


# ------------------------------------------------------------------------------------------------- files

def test_versions(hub):
    assert hub.version().split(".")[0] == ("2" if hub.is_newest else "0")


def test_one_file_after_the_other(hub, root, cache):
    for name in [*NAMES, "model.safetensors"]:
        got = Path(hub.download(repo_id="ns/plain", filename=name, cache_dir=cache))
        assert got.read_bytes() == (root / "ns/plain" / name).read_bytes(), name
        assert got.resolve().name == sha256(got), "the validator is the digest, and so names the blob"


def test_snapshot_is_equal(hub, root, cache):
    got = hub.snapshot(repo_id="ns/plain", cache_dir=cache)
    assert digests(got) == digests(root / "ns/plain")
    assert sorted(digests(got)) == sorted([*NAMES, "model.safetensors"]), "hidden files and halves are not served"


def test_snapshot_into_a_folder(hub, root, tmp_path):
    got = hub.snapshot(repo_id="ns/plain", local_dir=str(tmp_path / "here"))
    assert digests(got) == digests(root / "ns/plain")


def test_snapshot_of_some_files(hub, cache):
    got = hub.snapshot(repo_id="ns/plain", allow_patterns=["*.txt"], ignore_patterns=["a+*"], cache_dir=cache)
    assert sorted(digests(got)) == sorted(n for n in NAMES if n.endswith(".txt") and n != "a+b.txt")


def test_what_is_cached_is_not_fetched_again(hub, srv, cache):
    hub.snapshot(repo_id="ns/plain", cache_dir=cache)
    before = srv.gauge("tensord_http_response_body_bytes_total", ".*body_bytes_total", ".*sent_bytes_total")
    hub.snapshot(repo_id="ns/plain", cache_dir=cache)
    sent = srv.gauge("tensord_http_response_body_bytes_total", ".*body_bytes_total", ".*sent_bytes_total") - before
    assert sent < 48000, "listings and metrics only, not the weights"


def test_an_unknown_token_is_ignored(hub, root, cache):
    got = hub.download(repo_id="ns/plain", filename="config.json", token="hf_unknown", cache_dir=cache)
    assert Path(got).read_bytes() == (root / "ns/plain/config.json").read_bytes()


def test_a_cut_connection_is_resumed(hub, srv, root, cache):
    """The connection is cut twice in the middle of a file; clients write pieces of 10 MB. 0.36.2 does not resume by
    itself, but its next call resumes where the last one ended."""
    python = NEWEST if hub.is_newest else HUB0
    with CuttingProxy(srv.port, after=11 << 20, cuts=2) as proxy, \
            Worker("calls_hub", python, HF_ENDPOINT=f"http://127.0.0.1:{proxy.port}") as w:
        for _ in range(1 if hub.is_newest else 3):
            try:
                got = w.download(repo_id="ns/big", filename="model.safetensors", cache_dir=cache)
                break
            except ClientError as e:
                assert not hub.is_newest and "RequestException" in e.kinds, e
        assert sha256(got) == sha256(root / "ns/big/model.safetensors")
        assert proxy.done_cuts == 2
        assert proxy.asked.lower().count(b"\r\nrange: bytes=") == 2
        assert proxy.carried < 30 << 20, "resumed, not started again"


def test_resumed_from_a_server_that_was_restarted(srv, root, cache):
    """0.36.2 keeps the first half under its validator; the restarted server must give the same validator."""
    ask = {"repo_id": "ns/big", "filename": "model.safetensors", "cache_dir": cache}
    with CuttingProxy(srv.port, after=11 << 20, cuts=1) as proxy, \
            Worker("calls_hub", HUB0, HF_ENDPOINT=f"http://127.0.0.1:{proxy.port}") as w:
        fails("RequestException", w.download, **ask)
    with harness.Server(root) as other, CuttingProxy(other.port, after=0, cuts=0) as proxy, \
            Worker("calls_hub", HUB0, HF_ENDPOINT=f"http://127.0.0.1:{proxy.port}") as w:
        assert sha256(w.download(**ask)) == sha256(root / "ns/big/model.safetensors")
        assert b"\r\nrange: bytes=10485760-\r\n" in proxy.asked.lower()
        assert proxy.carried < 16 << 20


def test_while_files_are_being_hashed(hub, root, cache):
    """A snapshot that begins before the digests are known, and so with other blob names, is right too."""
    with harness.Server(root) as s, \
            Worker("calls_hub", NEWEST if hub.is_newest else HUB0, HF_ENDPOINT=f"http://127.0.0.1:{s.port}") as w:
        for repo in ("ns/big", "ns/plain"):
            assert digests(w.snapshot(repo_id=repo, cache_dir=cache)) == digests(root / repo)


def test_trees_of_several_pages(hub, tmp_path):
    """list_repo_tree, which list_repo_files uses, follows Link: no file is missing, none comes twice."""
    names = [f"d{i // 1000:02}/{i:05}" for i in range(11_000)]
    for name in names:
        write(tmp_path / "root/ns/wide" / name, b"")
    harness.age(tmp_path / "root")
    with harness.Server(tmp_path / "root", hash_threads=0) as s, \
            Worker("calls_hub", NEWEST if hub.is_newest else HUB0, HF_ENDPOINT=f"http://127.0.0.1:{s.port}") as w:
        assert sorted(w.list_repo_files(repo_id="ns/wide")) == names
        _, _, samples = s.metrics()
        asked = sum(n for name, labels, n in samples
                    if name == "tensord_http_requests_total" and labels["route"] == "hub_api")
        assert asked >= 3, "one answer for each page"


# ------------------------------------------------------------------------------------------------ errors

def test_errors_are_the_clients_own(hub, cache):
    fails("EntryNotFoundError", hub.download, repo_id="ns/plain", filename="none.txt", cache_dir=cache)
    fails("EntryNotFoundError", hub.download, repo_id="ns/plain", filename="sub", cache_dir=cache)
    fails("EntryNotFoundError", hub.download, repo_id="ns/plain", filename=".hidden", cache_dir=cache)
    fails("RevisionNotFoundError", hub.download, repo_id="ns/plain", filename="config.json", revision="none",
          cache_dir=cache)
    fails("RevisionNotFoundError", hub.download, repo_id="ns/plain", filename="config.json", revision="0" * 40,
          cache_dir=cache)
    fails("RevisionNotFoundError", hub.download, repo_id="ns/plain", filename="config.json", revision="refs/pr/1",
          cache_dir=cache)
    fails("RepositoryNotFoundError", hub.download, repo_id="ns/none", filename="config.json", cache_dir=cache)
    fails("RepositoryNotFoundError", hub.download, repo_id="none", filename="config.json", cache_dir=cache)
    fails("RevisionNotFoundError", hub.snapshot, repo_id="ns/plain", revision="none", cache_dir=cache)
    fails("RepositoryNotFoundError", hub.snapshot, repo_id="ns/none", cache_dir=cache)
    fails("RepositoryNotFoundError", hub.model_info, repo_id="ns/none")
    fails("RevisionNotFoundError", hub.model_info, repo_id="ns/plain", revision="none")
    fails("RepositoryNotFoundError", hub.dataset_info, repo_id="ns/none")
    fails("RepositoryNotFoundError", hub.tree, repo_id="ns/none")
    fails("RevisionNotFoundError", hub.tree, repo_id="ns/plain", revision="none")
    fails("EntryNotFoundError", hub.tree, repo_id="ns/plain", path_in_repo="none")
    fails("RepositoryNotFoundError", hub.paths_info, repo_id="ns/none", paths=["a"])
    fails("RepositoryNotFoundError", hub.refs, repo_id="ns/none")


def test_errors_can_be_read(hub):
    assert "POST is not allowed here" in str(fails("HfHubHTTPError", hub.create_repo, repo_id="ns/new", token="hf_any"))
    assert "use rank0 to rank1" in str(fails("RevisionNotFoundError", hub.model_info, repo_id="ns/plain",
                                                   revision="tp2-rank2-none"))


def test_what_does_not_exist_is_remembered(hub, cache):
    ask = {"repo_id": "ns/plain", "filename": "none.txt", "cache_dir": cache}
    assert hub.cached(**ask) is None
    fails("EntryNotFoundError", hub.download, **ask)
    assert hub.cached(**ask) == "no-exist"
    assert hub.cached(**ask, revision=hub.model_info(repo_id="ns/plain")["sha"]) == "no-exist"


# -------------------------------------------------------------------------------------------------- info

def test_model_info(hub, root):
    got = hub.model_info(repo_id="ns/plain")
    assert got["id"] == "ns/plain" and got["private"] is False and got["tags"] is not None
    assert len(got["sha"]) == 40 and int(got["sha"], 16)
    assert got["modified"].endswith("+00:00")
    assert sorted(got["files"]) == sorted(digests(root / "ns/plain"))
    for revision in ("main", "HEAD", got["sha"]):
        assert hub.model_info(repo_id="ns/plain", revision=revision)["sha"] == got["sha"]
    assert hub.model_info(repo_id="ns/plain", expand=["sha", "siblings"])["sha"] == got["sha"]


def test_model_info_with_files(hub, root):
    files = hub.model_info(repo_id="ns/plain", files_metadata=True)["files"]
    for name, digest in digests(root / "ns/plain").items():
        size = (root / "ns/plain" / name).stat().st_size
        assert files[name]["size"] == size
        assert files[name]["lfs"]["sha256"] == digest and files[name]["lfs"]["size"] == size


def test_tree(hub, root):
    def paths(**kw):
        return sorted((e["path"], "folder" in e) for e in hub.tree(repo_id="ns/plain", **kw))
    files = sorted(digests(root / "ns/plain"))
    folders = ["sub", "sub/deeper", "é"]
    assert paths(recursive=True) == sorted([(f, False) for f in files] + [(d, True) for d in folders])
    assert paths() == sorted([(f, False) for f in files if "/" not in f] + [("sub", True), ("é", True)])
    assert paths(path_in_repo="sub") == [("sub/beside.txt", False), ("sub/deeper", True)]
    assert paths(path_in_repo="sub/deeper", expand=True) == [("sub/deeper/file.bin", False)]
    assert paths(path_in_repo="é", recursive=True) == [("é/ü+plus.txt", False)]
    assert sorted(hub.list_repo_files(repo_id="ns/plain")) == files


def test_tree_entries(hub, root):
    for e in hub.tree(repo_id="ns/plain", recursive=True):
        if "folder" in e:
            continue
        path = root / "ns/plain" / e["path"]
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(path)}\nsize {e['size']}\n".encode()
        assert e["size"] == path.stat().st_size
        assert e["lfs"] == {"sha256": sha256(path), "size": e["size"], "pointer_size": len(pointer)}
        assert e["oid"] == hashlib.sha1(b"blob %d\0" % len(pointer) + pointer).hexdigest(), "as git names the pointer"


def test_paths_info(hub):
    wanted = ["config.json", "name with space.txt", "é/ü+plus.txt", "a+b.txt", "100%.txt"]
    got = hub.paths_info(repo_id="ns/plain", paths=[*wanted, "none.txt", "sub"])
    assert sorted(e["path"] for e in got) == sorted([*wanted, "sub"])
    assert [e["path"] for e in got if "folder" in e] == ["sub"]
    assert hub.paths_info(repo_id="ns/plain", paths=["none.txt"]) == []


def test_exists(hub):
    assert hub.file_exists(repo_id="ns/plain", filename="é/ü+plus.txt")
    assert not hub.file_exists(repo_id="ns/plain", filename="none.txt")
    assert not hub.file_exists(repo_id="ns/none", filename="config.json")
    assert not hub.file_exists(repo_id="ns/plain", filename="config.json", revision="none")
    assert hub.revision_exists(repo_id="ns/plain", revision="main")
    assert not hub.revision_exists(repo_id="ns/plain", revision="none")
    assert hub.repo_exists(repo_id="ns/plain") and not hub.repo_exists(repo_id="ns/none")
    assert hub.repo_exists(repo_id="ns/data", repo_type="dataset")


def test_safetensors_metadata(hub):
    got = hub.safetensors(repo_id="ns/plain")
    assert not got["sharded"] and got["tensors"] == {"w": ["F32", [300, 40]], "b": ["BF16", [7]]}
    got = hub.safetensors(repo_id="ns/sharded")
    assert got["sharded"] and got["tensors"] == {"one": ["F32", [3, 4]], "two": ["F16", [5]]}
    assert got["weight_map"]["two"] == "model-00002-of-00002.safetensors"
    fails("NotASafetensorsRepoError", hub.safetensors, repo_id="ns/data", repo_type="dataset")


def test_who_and_whether(hub):
    assert hub.whoami(token="hf_any")["name"]
    assert hub.auth_check(repo_id="ns/plain") is None
    fails("RepositoryNotFoundError", hub.auth_check, repo_id="ns/none")
    got = hub.refs(repo_id="ns/plain")
    assert got["branches"]["refs/heads/main"] == hub.model_info(repo_id="ns/plain")["sha"]
    assert got["pull_requests"] == {}


def test_lists(hub):
    everything = hub.models()
    assert {"ns/plain", "ns/sharded", "ns/big", "org/cached"} <= set(everything)
    assert any(i in everything for i in ("alone", "local/alone"))
    assert sorted(hub.models(author="ns")) == ["ns/big", "ns/plain", "ns/sharded"]
    assert hub.models(search="PLAI") == ["ns/plain"]
    assert hub.models(author="org", search="plain") == []
    assert len(hub.models(limit=2)) == 2
    assert hub.models_by_pages(limit=2) == everything
    assert sorted(hub.datasets()) == ["ns/data", "org/rows"]
    assert hub.datasets(author="org") == ["org/rows"]


def test_datasets(hub, root, cache):
    got = hub.dataset_info(repo_id="ns/data", files_metadata=True)
    assert got["id"] == "ns/data" and list(got["files"]) == ["train.jsonl"]
    path = hub.download(repo_id="ns/data", filename="train.jsonl", repo_type="dataset", cache_dir=cache)
    assert sha256(path) == sha256(root / "ns/data/train.jsonl")
    path = hub.snapshot(repo_id="org/rows", repo_type="dataset", cache_dir=cache)
    assert Path(path).name == MAIN and (Path(path) / "rows.jsonl").read_bytes() == b'{"a": 3}\n'


# ---------------------------------------------------------------------------------------------- revisions

def test_a_repository_of_one_segment(hub, root, cache):
    for repo in ("alone", "local/alone"):
        got = hub.snapshot(repo_id=repo, cache_dir=cache)
        assert digests(got) == digests(root / "alone")
    assert hub.model_info(repo_id="alone")["sha"] == hub.model_info(repo_id="local/alone")["sha"]


def test_commits_of_a_cache(hub, root, cache):
    def which(**kw):
        return Path(hub.download(repo_id="org/cached", filename="notes/which.txt", cache_dir=cache, **kw)).read_text()
    assert which() == MAIN and which(revision="main") == MAIN and which(revision=MAIN) == MAIN
    assert which(revision=OLDER) == OLDER
    assert which(revision="refs/pr/1") == PULL and which(revision=PULL) == PULL
    assert hub.model_info(repo_id="org/cached", revision="refs/pr/1")["sha"] == PULL
    got = hub.snapshot(repo_id="org/cached", revision="refs/pr/1", cache_dir=cache)
    assert Path(got).name == PULL
    assert digests(got) == digests(root / "models--org--cached/snapshots" / PULL)
    assert "only-main.txt" not in digests(got)
    fails("EntryNotFoundError", hub.download, repo_id="org/cached", filename="only-main.txt", revision=OLDER,
          cache_dir=cache)
    fails("RevisionNotFoundError", hub.download, repo_id="org/cached", filename="notes/which.txt",
          revision="refs/pr/2", cache_dir=cache)
    got = hub.refs(repo_id="org/cached")
    assert got["branches"]["refs/heads/main"] == MAIN and got["pull_requests"] == {"refs/pr/1": PULL}
    for ref, commit in got["branches"].items():
        assert hub.model_info(repo_id="org/cached", revision=ref.removeprefix("refs/heads/"))["sha"] == commit


def test_what_the_client_cached_is_served_again(hub, root, cache):
    """A cache that the client wrote is the root of another server, which has the same commits and files."""
    first = hub.snapshot(repo_id="ns/plain", cache_dir=cache)
    harness.age(cache)
    with harness.Server(cache) as second:
        with Worker("calls_hub", NEWEST if hub.is_newest else HUB0, HF_ENDPOINT=f"http://127.0.0.1:{second.port}") as w:
            got = w.snapshot(repo_id="ns/plain", cache_dir=cache + "-2")
            assert w.models() == ["ns/plain"]
    assert Path(got).name == Path(first).name
    assert digests(got) == digests(root / "ns/plain")


# ---------------------------------------------------------------------------------------------- verifying

def run_hf(srv, home, *args):
    env = quiet_environment(home, HF_ENDPOINT=f"http://127.0.0.1:{srv.port}", NO_COLOR="1")
    return subprocess.run([str(NEWEST.parent / "hf"), *args], env=env, capture_output=True, text=True, timeout=60,
                          check=False)


def test_hf_cache_verify(srv, tmp_path):
    """The command that people use, after its own download; it finds a changed byte."""
    cache = str(tmp_path / "cache")
    got = run_hf(srv, tmp_path, "download", "ns/plain", "--cache-dir", cache)
    assert got.returncode == 0, got.stderr
    got = run_hf(srv, tmp_path, "cache", "verify", "ns/plain", "--cache-dir", cache, "--fail-on-missing-files",
                 "--fail-on-extra-files")
    assert got.returncode == 0, got.stdout + got.stderr
    snapshot = next(Path(cache).glob("models--ns--plain/snapshots/*"))
    (snapshot / "a+b.txt").resolve().write_bytes(b"x")
    got = run_hf(srv, tmp_path, "cache", "verify", "ns/plain", "--cache-dir", cache)
    assert got.returncode != 0 and "a+b.txt" in got.stdout + got.stderr


def test_hf_cache_verify_of_a_rank(srv, tmp_path):
    """The list has the digest of a rank file that was pulled from the registry."""
    revision = "tp3-rank2-fsdp"
    args = ("ns/plain", "--revision", revision, "--cache-dir", str(tmp_path / "cache"))
    got = run_hf(srv, tmp_path, "download", *args)
    assert got.returncode == 0, got.stderr
    got = run_hf(srv, tmp_path, "cache", "verify", *args)
    assert got.returncode != 0 and "model.safetensors" in got.stdout + got.stderr
    assert srv.get(f"/v2/ns/plain/manifests/{revision}").status == 200
    got = run_hf(srv, tmp_path, "cache", "verify", *args, "--fail-on-missing-files", "--fail-on-extra-files")
    assert got.returncode == 0, got.stdout + got.stderr
    got = run_hf(srv, tmp_path, "download", *args[:-2], "--cache-dir", str(tmp_path / "again"))
    assert got.returncode == 0, got.stderr
    data, = [p.read_bytes() for p in tmp_path.glob("again/models--ns--plain/snapshots/*/model.safetensors")]
    assert data == srv.get(f"/ns/plain/resolve/{revision}/model.safetensors").body


# --------------------------------------------------------------------------------------------- filesystem

def test_filesystem(hub, root):
    files = digests(root / "ns/plain")
    assert sorted(hub.fs_ls(path="ns/plain")) == sorted(
        {f"ns/plain/{f.split('/')[0]}" for f in files})
    assert hub.fs_ls(path="ns/plain/sub/deeper") == ["ns/plain/sub/deeper/file.bin"]
    assert hub.fs_sizes(path="ns/plain") == {f"ns/plain/{f}": (root / "ns/plain" / f).stat().st_size for f in files}
    assert sorted(hub.fs_glob(pattern="ns/plain/*.txt")) == sorted(
        f"ns/plain/{f}" for f in files if f.endswith(".txt") and "/" not in f)
    assert hub.fs_glob(pattern="ns/plain/**/file.bin") == ["ns/plain/sub/deeper/file.bin"]
    assert hub.fs_exists(path="ns/plain/é/ü+plus.txt") and not hub.fs_exists(path="ns/plain/none")
    assert not hub.fs_exists(path="ns/none/config.json")
    assert hub.fs_info(path="ns/plain/sub") == {"name": "ns/plain/sub", "size": 0, "type": "directory"}
    fails("FileNotFoundError", hub.fs_ls, path="ns/none")


def test_filesystem_reads(hub, root):
    whole = (root / "ns/plain/model.safetensors").read_bytes()
    path = "ns/plain/model.safetensors"
    assert hub.fs_read(path=path) == whole.hex()
    assert hub.fs_read(path=path, at=1000, n=3000) == whole[1000:4000].hex()
    assert hub.fs_read(path=path, at=len(whole) - 5, n=100) == whole[-5:].hex()
    assert hub.fs_read(path="ns/plain/empty.txt") == ""
    assert hub.fs_read(path="org/cached@refs%2Fpr%2F1/notes/which.txt") == PULL.encode().hex()
    assert hub.fs_read(path=f"org/cached@{OLDER}/notes/which.txt") == OLDER.encode().hex()
    assert hub.fs_read(path="datasets/org/rows/rows.jsonl") == b'{"a": 3}\n'.hex()
