"""`tensord pull` against tensord, against servers that fail or send wrong answers, and through kills and full disks."""
import hashlib
import json
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fake_hub import COMMIT, FakeHub, git_oid
from harness import Server, age, tensor, tensord_binary, write_by_hand
from pulls import MIB, QUICK, PacedRelay, big, check, environment, fails, pull, staging, start, tree_of

# ------------------------------------------------------------------------------------------- from a tensord

def test_a_model_is_copied_and_kept(model, tmp_path):
    server = model()
    out = tmp_path / "out/of/it"
    report, _ = pull(f"http://127.0.0.1:{server.port}", "-o", out)
    want = tree_of(model.root / "org/m")
    assert tree_of(out) == want
    assert {f["path"]: (f["bytes"], f["sha256"], f["complete"], f["verified"], f["present"], f["fetched_bytes"],
                        f["resumed_bytes"]) for f in report["files"]} == \
        {path: (len(data), hashlib.sha256(data).hexdigest(), True, True, False, len(data), 0)
         for path, data in want.items()}
    total = sum(map(len, want.values()))
    assert {k: report[k] for k in ("model", "revision", "directory", "complete", "verified", "bytes", "fetched_bytes",
                                   "resumed_bytes")} == \
        {"model": "org/m", "revision": "main", "directory": str(out), "complete": True, "verified": True,
         "bytes": total, "fetched_bytes": total, "resumed_bytes": 0}
    assert re.fullmatch("[0-9a-f]{40}", report["commit"]) and 0 <= report["seconds"] < 60 and "error" not in report
    before = {p: p.stat().st_ino for p in out.rglob("*")}
    again, _ = pull(f"http://127.0.0.1:{server.port}/", "-o", out)
    assert all(f["present"] and f["sha256"] for f in again["files"]) and again["fetched_bytes"] == 0
    assert {p: p.stat().st_ino for p in out.rglob("*")} == before
    (out / "config.json").write_bytes(b"!" * len(want["config.json"]))        # same size, other content
    again, _ = pull(f"http://127.0.0.1:{server.port}", "-o", out)
    assert tree_of(out) == want and again["fetched_bytes"] == len(want["config.json"])


def test_files_of_a_rank(model, tmp_path):
    server = model()
    for rank in (0, 1):
        report, _ = pull(f"http://127.0.0.1:{server.port}", "-o", tmp_path / "out", "--engine", "fsdp", "--tp", 2,
                         "--rank", rank)
        assert report["revision"] == f"tp2-rank{rank}-fsdp" and report["complete"]
        told = {f["path"]: f["verified"] for f in report["files"]}
        assert f"rank-{rank}.safetensors" in told and told["config.json"]
        url = f"http://127.0.0.1:{server.port}/org/m/resolve/tp2-rank{rank}-fsdp/model.safetensors"
        want = subprocess.run(["curl", "-sf", url], stdout=subprocess.PIPE, check=True).stdout
        assert (tmp_path / f"out/rank-{rank}.safetensors").read_bytes() == want
    assert sorted(os.listdir(tmp_path / "out")) == ["config.json", "deep", "empty.txt", "rank-0.safetensors",
                                                    "rank-1.safetensors"]
    p = start(f"http://127.0.0.1:{server.port}", "-o", tmp_path / "line", "--engine", "fsdp", "--tp", 2, "--rank", 0)
    assert "; 1 file (rank-0.safetensors) was checked by length and entity tag alone\n" in p.communicate(timeout=60)[0]


def test_a_rank_of_a_model_with_exports(model, tmp_path):
    """Folders without a config.json have no rank file, and do not spoil the pull of the others."""
    write_by_hand(model.root / "org/m/model.safetensors", [tensor("model.embed_tokens.weight", "BF16", [64, 64])])
    (model.root / "org/m/config.json").write_text(json.dumps(
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
         "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 1, "vocab_size": 64}))
    write_by_hand(model.root / "org/m/onnx/model.safetensors", [tensor("x", "F32", [8])])
    (model.root / "org/m/original").mkdir()
    (model.root / "org/m/original/consolidated.00.pth").write_bytes(
        (Path(__file__).parents[1] / "data/torch/checkpoint.pt").read_bytes())
    (model.root / "org/m/original/params.json").write_text("{}")
    server = model()
    report, _ = pull(f"http://127.0.0.1:{server.port}", "-o", tmp_path / "out", "--engine", "vllm", "--tp", 2,
                     "--rank", 1)
    assert report["complete"]
    want = tree_of(model.root / "org/m")
    for name in ("model.safetensors", "onnx/model.safetensors", "original/consolidated.00.pth"):
        del want[name]
    want["model-rank-1-part-0.safetensors"] = server.get("/models/org/m/shards/vllm/tp2/rank-1.safetensors").body
    assert tree_of(tmp_path / "out") == want
    for engine in ("vllm@0.13", "vllm-0.33"):
        out = tmp_path / engine
        pull(f"http://127.0.0.1:{server.port}", "-o", out, "--engine", engine, "--tp", 2, "--rank", 1)
        got = server.get(f"/models/org/m/shards/{engine.replace('-', '@')}/tp2/rank-1.safetensors").body
        assert tree_of(out) == {**want, "model-rank-1-part-0.safetensors": got}


def test_a_rank_file_is_verified_once_its_digest_is_known(model, tmp_path):
    """The list has the digest once the registry has computed it."""
    server = model()
    rank = ("--engine", "fsdp", "--tp", 2, "--rank", 1)

    def rank_file():
        report, _ = pull(f"http://127.0.0.1:{server.port}", "-o", tmp_path / "out", *rank)
        return report, next(f for f in report["files"] if f["path"] == "rank-1.safetensors")

    report, file = rank_file()
    assert not report["verified"] and not file["verified"]
    assert server.get("/v2/org/m/manifests/tp2-rank1-fsdp").status == 200
    data = (tmp_path / "out/rank-1.safetensors").read_bytes()
    (tmp_path / "out/rank-1.safetensors").write_bytes(bytes([data[0] ^ 1]) + data[1:])
    report, file = rank_file()
    assert report["verified"] and file["verified"] and file["fetched_bytes"] == len(data)
    assert (tmp_path / "out/rank-1.safetensors").read_bytes() == data
    assert file["sha256"] == hashlib.sha256(data).hexdigest()
    report, file = rank_file()
    assert report["verified"] and file["present"] and report["fetched_bytes"] == 0


def test_a_served_directory_may_be_the_destination(model, tmp_path):
    """A half file is not listed, and what was pulled is served."""
    (tmp_path / "copy").mkdir()
    origin = model()
    with Server(tmp_path / "copy") as copy:
        pull(f"http://127.0.0.1:{origin.port}", "-o", tmp_path / "copy/org/m")
        deadline = time.monotonic() + 20
        while True:
            got = subprocess.run(["curl", "-s", f"http://127.0.0.1:{copy.port}/org/m/resolve/main/model.safetensors"],
                                 stdout=subprocess.PIPE, check=True).stdout
            if got == (model.root / "org/m/model.safetensors").read_bytes():
                break
            assert time.monotonic() < deadline, got[:200]


def siblings(server):
    """Return the files of org/m that a tensord lists, or None."""
    p = subprocess.run(["curl", "-s", f"http://127.0.0.1:{server.port}/api/models/org/m"], stdout=subprocess.PIPE,
                       check=True)
    about = json.loads(p.stdout)
    return {f["rfilename"] for f in about["siblings"]} if "siblings" in about else None


# shows: security.md pull-appears-complete
def test_a_new_directory_appears_complete(tmp_path):
    """A server of the directory above lists the model with all files, or not at all, while its files arrive one by
    one; a pull that was killed resumes in the same place."""
    files = {"config.json": b"{}", **{f"{i}.txt": big(60_000, seed=i) for i in range(40)}}
    late, killed = sorted(files)[20:], threading.Event()
    (tmp_path / "copy").mkdir()
    out = tmp_path / "copy/org/m"
    seen = []
    with FakeHub(files) as hub, Server(tmp_path / "copy") as copy:
        def file(handler, name):
            if name in late:
                killed.wait(60)
            handler.send_file(files[name], hub.etag(name), pace=120_000)
        hub.file = file
        p = start(hub.url, "-o", f"{out}//", "--connections", 8)
        while p.poll() is None:
            seen.append(siblings(copy))
            if len([name for name in tree_of(staging(out)) if name in files]) > 10:
                p.kill()
        p.communicate()
        killed.set()
        assert p.returncode == -signal.SIGKILL and not out.exists()
        report, _ = pull(hub.url, "-o", out)
        assert sum(f["present"] for f in report["files"]) > 10 and tree_of(out) == files
        assert os.listdir(out.parent) == ["m"]
        deadline = time.monotonic() + 20
        while seen[-1] != set(files):
            seen.append(siblings(copy))
            assert time.monotonic() < deadline, seen[-1]
    assert all(names is None or names == set(files) for names in seen) and None in seen


def test_ranks_fill_one_new_directory_at_once(model, tmp_path):
    url = f"http://127.0.0.1:{model().port}"
    all_of_them = [start(url, "-o", tmp_path / "out", "--engine", "fsdp", "--tp", 4, "--rank", rank)
                   for rank in range(4)]
    for p in all_of_them:
        _, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
    assert sorted(os.listdir(tmp_path / "out")) == ["config.json", "deep", "empty.txt",
                                                    *(f"rank-{rank}.safetensors" for rank in range(4))]
    assert os.listdir(tmp_path).count("out") == 1 and not staging(tmp_path / "out").exists()


def test_the_name_is_taken_meanwhile(hub, tmp_path):
    out = tmp_path / "out"

    def file(handler, name):
        out.mkdir(exist_ok=True)
        (out / "other").touch()
        FakeHub.file(hub, handler, name)
    hub.file = file
    report, err = pull(hub.url, "-o", out, code=1)
    assert str(staging(out)) in err and not report["complete"]
    assert tree_of(staging(out)) == hub.files | {".tensord-pull-of": b"org/m at main"}
    assert tree_of(out) == {"other": b""}


@pytest.mark.parametrize("options, want", [
    (["--include", "*.json", "--include", "emp*"], {"config.json", "empty.txt"}),
    (["--exclude", "deep/*", "--exclude=*.safetensors"], {"config.json", "empty.txt"}),
    (["--include=*.txt", "--exclude=deep/*"], {"empty.txt"}),
])
def test_patterns(model, tmp_path, options, want):
    pull(f"http://127.0.0.1:{model().port}", "-o", tmp_path / "out", *options)
    assert set(tree_of(tmp_path / "out")) == want


def test_default_directory_and_lines(model, tmp_path):
    p = start(f"http://127.0.0.1:{model().port}", cwd=tmp_path)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and tree_of(tmp_path / "m") == tree_of(model.root / "org/m")
    assert re.fullmatch(r"org/m: 4 files, .* in m; 0 were there already; fetched .* in .* s \(.*\)\n", out), out


def test_what_is_missing_is_told(model, tmp_path):
    url = f"http://127.0.0.1:{model().port}"
    for options, words in ((["--revision", "none"], "404"), (["--include", "x"], "--include")):
        report, err = pull(url, "-o", tmp_path / "out", *options, code=1)
        assert words in err and words in report["error"] and not report["complete"]
    _, err = pull(url, "-o", tmp_path / "out", model="org/other", code=1)
    assert "404" in err and "org/other" in err and "without" not in err and "did you mean" not in err
    _, err = pull(url, "-o", tmp_path / "out", model="ORG/M", code=1)
    assert 'did you mean "org/m"?' in err
    _, err = pull(url + "/models/", "-o", tmp_path / "out", code=1)
    assert 'without "/models"' in err


# --------------------------------------------------------------------------------- servers that fail or deceive

# shows: security.md pull-wrong-content
def test_a_hub_with_git_names(tmp_path):
    """For files that are not in LFS the Hub lists Git's names, which are checked."""
    with FakeHub({"a.txt": b"text", "model.safetensors": big(MIB)}, digests="git") as hub:
        report, _ = check(hub, tmp_path / "out")
        assert report["verified"] and report["commit"] == COMMIT
        assert all(f"/{COMMIT}/" in path for path, _ in hub.requests if "/resolve/" in path)
        assert pull(hub.url, "-o", tmp_path / "out")[0]["fetched_bytes"] == 0
        hub.tree = lambda: [hub.item("a.txt", b"text") | {"oid": git_oid(b"tex")}]
        (tmp_path / "out/a.txt").unlink()
        _, err = pull(hub.url, "-o", tmp_path / "out", *QUICK, code=1)
        assert git_oid(b"tex") in err and not (tmp_path / "out/a.txt").exists()
        hub.tree = lambda: [hub.item("a.txt", b"") | {"oid": git_oid(b"tex")}]
        _, err = pull(hub.url, "-o", tmp_path / "out", *QUICK, code=1)
        assert '"a.txt" with 0 bytes and a digest that is not that of 0 bytes' in err
        hub.files = {"a.txt": b""}
        hub.tree = lambda: [hub.item("a.txt", b"")]
        assert pull(hub.url, "-o", tmp_path / "out", *QUICK)[0]["verified"]


@pytest.mark.parametrize("size, words", [
    (2**63 - 1, ["9223372036854775807 bytes", "a file may have 281474976710656"]),
    (2**48, ["281474976710656 bytes", "room for"]),
])
def test_a_file_larger_than_any_disk(hub, tmp_path, size, words):
    """A listed size is compared with the disk before memory is spent on it."""
    hub.tree = lambda: [hub.item("model.safetensors", hub.files["model.safetensors"]) | {
        "size": size, "lfs": {"oid": "0" * 64, "size": size, "pointerSize": 130}}]
    fails(hub, tmp_path / "out", *words)
    assert not any("/resolve/" in path for path, _ in hub.requests)


def test_pages_of_a_list(hub, tmp_path):
    items = [hub.item(name, data) for name, data in hub.files.items()]

    def api(handler, path):
        page = "cursor=2" in handler.path
        if "/tree/" in path:
            link = f'<{hub.url}/api/models/org/m/tree/main?cursor=2>; rel="next"'
            more = {} if page else {"Link": link}
            handler.answer(200, json.dumps(items[1:] if page else items[:1]).encode(), **more)
        else:
            FakeHub.api(hub, handler, path)
    hub.api = api
    check(hub, tmp_path / "out")


@pytest.mark.parametrize("digests", ["lfs", None])
# shows: security.md pull-broken-answers
def test_truncated_answers(hub, tmp_path, digests):
    hub.digests = digests
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name), cut=2_000_000)
    report, _ = check(hub, tmp_path / "out")
    assert report["verified"] == (digests is not None) and hub.count("model.safetensors") >= 5


# shows: security.md pull-broken-answers
def test_answers_that_bring_nothing(hub, tmp_path):
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name), cut=0)
    begin = time.monotonic()
    fails(hub, tmp_path / "out", hub.url)
    assert 1 < time.monotonic() - begin < 15 and hub.count("config.json") >= 3


@pytest.mark.parametrize("claim", [{"total": 99}, {"total": 1 << 40}, {"length": 99}, {"length": 10 * MIB * 9},
                                   {"status": 204}, {"ranges": False, "length": 5}])
# shows: security.md pull-lengths
def test_lies_about_length(hub, tmp_path, claim):
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name), **claim)
    fails(hub, tmp_path / "out")
    with FakeHub(hub.files) as good:            # other servers are not affected
        check(hub, tmp_path / "out", good.url)


# shows: security.md pull-lengths
def test_other_range_than_asked(hub, tmp_path):
    def file(handler, name):
        handler.headers.replace_header("Range", "bytes=1-")
        handler.send_file(hub.files[name], hub.etag(name))
    hub.file = file
    fails(hub, tmp_path / "out", "other bytes than were asked for")


# shows: security.md pull-lengths
def test_body_longer_than_told(hub, tmp_path):
    def file(handler, name):
        data = hub.files[name]
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(data + b"more")
        handler.close_connection = True
    hub.file = file
    check(hub, tmp_path / "out")


@pytest.mark.parametrize("digests", ["lfs", None])
@pytest.mark.parametrize("tag", [True, False])
def test_server_without_ranges(hub, tmp_path, digests, tag):
    hub.digests = digests
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name) if tag else None, ranges=False)
    check(hub, tmp_path / "out")


def test_server_without_ranges_that_breaks_off(hub, tmp_path):
    cuts = iter([MIB, 2 * MIB])
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name), ranges=False,
                                           cut=next(cuts, None) if name != "config.json" else None)
    check(hub, tmp_path / "out")


# shows: security.md pull-file-changes
def test_neither_digest_nor_tag(hub, tmp_path):
    """Bytes of two answers could be of two files, so one answer must bring all."""
    hub.digests = None
    cuts = iter([MIB])
    hub.file = lambda h, name: h.send_file(hub.files[name], None, cut=next(cuts, None) if name[0] == "m" else None)
    report, _ = check(hub, tmp_path / "out")
    assert hub.count("model.safetensors") == 2 and not report["verified"]


# shows: security.md pull-file-changes
def test_file_changes_in_between(hub, tmp_path):
    """Without a digest the file starts over, and is the new one."""
    new, served = big(seed=2), []
    hub.digests = None

    def file(handler, name):
        if name != "model.safetensors":
            return FakeHub.file(hub, handler, name)
        data = hub.files[name] if not served else new
        served.append(len(data))
        handler.send_file(data, '"new"' if data is new else '"old"', cut=MIB if data is not new else None)
    hub.file = file
    pull(hub.url, "-o", tmp_path / "out", *QUICK)
    assert (tmp_path / "out/model.safetensors").read_bytes() == new


def test_file_changes_all_the_time(hub, tmp_path):
    numbers = iter(range(1000))
    hub.digests = None
    hub.file = lambda h, name: h.send_file(hub.files[name], f'"{next(numbers)}"', cut=100_000)
    fails(hub, tmp_path / "out", "changed")


NEW = {"same size": big(seed=2), "longer": big(11 * MIB, seed=2), "shorter": big(3 * MIB, seed=2), "gone": None}


@pytest.mark.parametrize("digests", ["lfs", "git", None])
@pytest.mark.parametrize("what", NEW)
def test_a_new_version_in_between(hub, tmp_path, what, digests):
    """The list is read once more, and all files are those of its version, whatever was here of the old one."""
    hub.digests = digests
    hub.files |= {"file": b"old", "directory/of/one": b"old", "same.txt": b"same", "empty.txt": b""}
    new = {"config.json": b'{"a":2}', "file/now/below": b"new", "directory": b"new", "same.txt": b"same",
           "empty.txt": b""}
    new |= {"other.safetensors": big(seed=2)} if what == "gone" else {"model.safetensors": NEW[what]}

    def file(handler, name):
        if name not in hub.files:
            return handler.answer(404)
        is_first = name == "model.safetensors" and hub.files is not new
        handler.send_file(hub.files[name], hub.etag(name), cut=4 * MIB if is_first else None)
        hub.files = new if is_first else hub.files
    hub.file = file
    report, err = pull(hub.url, "-o", tmp_path / "out", *QUICK, "--connections", 1)
    assert tree_of(tmp_path / "out") == new
    assert err.count("the list of files has changed on the server; continuing with the new one") == 1
    assert sum("/tree/" in path for path, _ in hub.requests) == 2
    fetched = {f["path"]: f["fetched_bytes"] for f in report["files"]}
    assert report["fetched_bytes"] == sum(fetched.values())
    assert fetched["config.json"] == len(b'{"a":1}' + new["config.json"])
    assert digests is None or (report["verified"] and not any(f["present"] for f in report["files"]))
    assert digests is None or hub.count("same.txt") == 1


def change_without_a_trace(hub):
    """Have the next answer of model.safetensors be cut, and all later ones be those of a new version with another
    commit, the same paths and the same sizes. Return its files."""
    hub.digests = None
    hub.files = old = {"a.json": b'{"a":1}', "model.safetensors": big()}
    new = {"a.json": b'{"a":2}', "model.safetensors": big(seed=2)}

    def api(handler, path):
        if "/revision/" in path:
            sha = COMMIT if hub.files is old else "d" * 40
            return handler.answer(200, json.dumps({"id": "org/m", "sha": sha}).encode())
        FakeHub.api(hub, handler, path)

    def file(handler, name):
        is_first = name == "model.safetensors" and hub.files is old
        handler.send_file(hub.files[name], hub.etag(name), cut=MIB if is_first else None)
        hub.files = new if is_first else hub.files
    hub.api, hub.file = api, file
    return new


def test_a_new_version_that_only_the_commit_tells(hub, tmp_path):
    new = change_without_a_trace(hub)
    report, err = pull(hub.url, "-o", tmp_path / "out", *QUICK, "--connections", 1)
    assert tree_of(tmp_path / "out") == new and report["commit"] == "d" * 40 and "continuing with the new one" in err


def test_a_new_version_whose_list_cannot_be_read(hub, tmp_path):
    """The files that are here may be of two versions, so none gets its place."""
    new = change_without_a_trace(hub)
    api = hub.api
    hub.api = lambda h, path: h.answer(404, X_Error_Message="no list") if hub.files is new else api(h, path)
    report, err = pull(hub.url, "-o", tmp_path / "out", *QUICK, "--connections", 1, code=1)
    assert "404, no list" in err and not report["complete"] and not (tmp_path / "out").exists()


def test_digests_that_become_known_in_between(hub, tmp_path):
    """Then a tensord's entity tags change. What is here is checked by the new list, and not fetched again."""
    hub.digests = None

    def file(handler, name):
        is_first = hub.digests is None and name == "model.safetensors"
        handler.send_file(hub.files[name], '"1"' if is_first else hub.etag(name), cut=MIB if is_first else None)
        hub.digests = "lfs" if is_first else hub.digests
    hub.file = file
    report, err = pull(hub.url, "-o", tmp_path / "out", *QUICK, "--connections", 1)
    assert tree_of(tmp_path / "out") == hub.files and report["verified"] and "continuing with the new one" in err
    assert hub.count("config.json") == 1 and hub.count("model.safetensors") == 3


def test_digests_that_a_list_tells_after_a_failure(hub, tmp_path):
    """The part of a file that is here is resumed, and its bytes count once."""
    hub.digests, answers = None, iter(["cut", "gone"])

    def file(handler, name):
        what = next(answers, None) if name == "model.safetensors" else None
        if what == "gone":
            hub.digests = "lfs"
            return handler.answer(404)
        handler.send_file(hub.files[name], hub.etag(name), cut=4 * MIB if what == "cut" else None)
    hub.file = file
    report, err = pull(hub.url, "-o", tmp_path / "out", *QUICK, "--connections", 1)
    told = next(f for f in report["files"] if f["path"] == "model.safetensors")
    assert tree_of(tmp_path / "out") == hub.files and report["verified"] and "continuing with the new one" in err
    assert told["resumed_bytes"] == 4 * MIB and told["fetched_bytes"] == told["bytes"] - 4 * MIB, told


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_digest_that_becomes_known_after_an_interruption(hub, tmp_path, is_damaged):
    """The part that is here is resumed, since the digest decides at the end; if it is wrong, all is fetched once
    more."""
    out, hub.digests = tmp_path / "out", None
    break_off(hub, out)
    hub.digests = "lfs"
    if is_damaged:
        with open(staging(out) / ".model.safetensors.tensord-part", "r+b") as f:
            f.write(b"damage")
    report, _ = check(hub, out)
    told = next(f for f in report["files"] if f["path"] == "model.safetensors")
    size = len(hub.files["model.safetensors"])
    assert report["verified"] and told["resumed_bytes"] == (0 if is_damaged else 4 * MIB)
    assert told["fetched_bytes"] == (2 * size - 4 * MIB if is_damaged else size - 4 * MIB)


@pytest.mark.parametrize("digests", ["lfs", None])
def test_new_versions_all_the_time(hub, tmp_path, digests):
    """The pull ends after four lists with what to do; the next one succeeds."""
    hub.digests = digests
    answers = iter(range(1, 1000))

    def file(handler, name):
        handler.send_file(hub.files[name], hub.etag(name), cut=100_000)
        if name == "model.safetensors":
            hub.files["model.safetensors"] = big(9 * MIB + next(answers), seed=2)
    hub.file = file
    err = fails(hub, tmp_path / "out", "org/m has changed 4 times while it was pulled: run the same command again for "
                "the new version; model.safetensors from ")
    assert sum("/tree/" in path for path, _ in hub.requests) == 5 and err.count("continuing with the new one") == 3
    hub.file = lambda h, name: FakeHub.file(hub, h, name)
    check(hub, tmp_path / "out")


def test_a_rank_of_a_new_version(hub, tmp_path):
    """The list has no digest of a rank's weights: the new weights come with the new files beside them."""
    hub.digests = None
    new = {"config.json": b'{"a":2345}', "model.safetensors": big(seed=2)}

    def file(handler, name):
        is_first = name == "model.safetensors" and hub.files is not new
        handler.send_file(hub.files[name], hub.etag(name), cut=MIB if is_first else None)
        hub.files = new if is_first else hub.files
    hub.file = file
    pull(hub.url, "-o", tmp_path / "out", *QUICK, "--engine", "fsdp", "--tp", 2, "--rank", 1)
    assert tree_of(tmp_path / "out") == {"config.json": new["config.json"],
                                         "rank-1.safetensors": new["model.safetensors"]}


def test_a_tensord_publishes_a_new_version(model, tmp_path):
    """The usual case: digests are known, several connections, a rename on the server and a scan. The relay holds up
    the old version until the new one is listed."""
    path = model.root / "org/m/model.safetensors"
    write_by_hand(path, [tensor(f"model.layers.{i}.w", "F32", [2048, 512]) for i in range(12)])
    server = model()

    def wait_for_digest():
        url = f"http://127.0.0.1:{server.port}/api/models/org/m/tree/main"
        want, deadline = hashlib.sha256(path.read_bytes()).hexdigest().encode(), time.monotonic() + 60
        while want not in subprocess.run(["curl", "-s", url], stdout=subprocess.PIPE, check=True).stdout:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    wait_for_digest()
    with PacedRelay(server.port, pace=8 * MIB) as relay:
        p = start(f"http://127.0.0.1:{relay.port}", "-o", tmp_path / "out", "--connections", 3, "--json")
        while relay.passed < 6 * MIB:
            assert p.poll() is None
            time.sleep(0.01)
        write_by_hand(tmp_path / "new", [tensor(f"model.layers.{i}.v", "F32", [2048, 512]) for i in range(12)])
        age(tmp_path / "new")
        os.replace(tmp_path / "new", path)
        wait_for_digest()
        relay.pace = None
        out, err = p.communicate(timeout=60)
    assert p.returncode == 0 and "continuing with the new one" in err, err
    assert tree_of(tmp_path / "out") == tree_of(model.root / "org/m") and json.loads(out)["verified"]


# shows: security.md pull-wrong-content
def test_wrong_digest(hub, tmp_path):
    good = dict(hub.files)
    tree = hub.tree()
    hub.tree = lambda: tree
    hub.files["model.safetensors"] = big(seed=3)
    fails(hub, tmp_path / "out", hashlib.sha256(good["model.safetensors"]).hexdigest(),
          hashlib.sha256(hub.files["model.safetensors"]).hexdigest())
    assert set(tree_of(staging(tmp_path / "out"))) == {"config.json", ".tensord-pull-of"}
    with FakeHub(good) as other:               # bytes of a liar among those of others: each server alone
        _, err = pull(f"{hub.url},{other.url}", "-o", tmp_path / "out", *QUICK, "--connections", 4)
        assert tree_of(tmp_path / "out") == good and "alone" in err


def test_retry_after(hub, tmp_path):
    asked = []

    def file(handler, name):
        asked.append(time.monotonic())
        if len(asked) == 1:
            return handler.answer(503, b"busy", Retry_After="2")
        FakeHub.file(hub, handler, name)
    hub.file = file
    del hub.files["config.json"]
    _, err = pull(hub.url, "-o", tmp_path / "out", "--connections", 1)
    assert tree_of(tmp_path / "out") == hub.files and asked[1] - asked[0] >= 2 and "503" in err
    asked.clear()
    assert "503" in fails(hub, tmp_path / "out2", args=("--retry-for", "1s", "--connections", 1)) and len(asked) == 1


def test_no_room_for_the_moment(hub, tmp_path):
    """507 with Retry-After passes, as one without does not."""
    told = iter(["1"])

    def file(handler, name):
        wait = next(told, None)
        if wait:
            handler.answer(507, Retry_After=wait, X_Error_Message="other models are on their way")
        else:
            FakeHub.file(hub, handler, name)
    hub.file = file
    _, err = check(hub, tmp_path / "out")
    assert "the server answered 507, other models are on their way; next try in 1." in err


def test_no_retries(hub, tmp_path):
    hub.file = lambda h, name: h.answer(500)
    fails(hub, tmp_path / "out", "500", args=("--retry-for", "0"))
    assert hub.count("config.json") == 1


@pytest.mark.parametrize("status", [401, 403, 404, 409, 416, 507])
def test_refusals_that_stay(hub, tmp_path, status):
    hub.file = lambda h, name: h.answer(status, b"x" * 200, X_Error_Message="because")
    fails(hub, tmp_path / "out", str(status), "because")
    assert hub.count("config.json") == 1


# shows: security.md pull-broken-answers
def test_stalled_answer(hub, tmp_path):
    stalled = threading.Event()

    def file(handler, name):
        if name == "model.safetensors" and not stalled.is_set():
            stalled.set()
            data = hub.files[name]
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes 0-{len(data) - 1}/{len(data)}")
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data[:MIB])
            time.sleep(6)
        else:
            FakeHub.file(hub, handler, name)
    hub.file = file
    pull(hub.url, "-o", tmp_path / "out", "--stall", "1s", "--connections", 1)
    assert tree_of(tmp_path / "out") == hub.files


def test_connections_share_a_file(hub, tmp_path):
    """None of the first four requests is answered before all have come: they ask for parts of one file at once."""
    meeting, asked = threading.Barrier(4), []
    del hub.files["config.json"]

    def file(handler, name):
        with hub.lock:
            asked.append(handler.wanted(len(hub.files[name]))[0])
            is_early = len(asked) <= 4
        if is_early:
            meeting.wait(30)
        FakeHub.file(hub, handler, name)
    hub.file = file
    check(hub, tmp_path / "out", timeout=40)
    assert len(set(asked[:4])) == 4


def test_several_connections_are_faster_than_one(hub, tmp_path):
    """Each answer is paced, as by a route that gives each connection the same rate."""
    del hub.files["config.json"]
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name), pace=3 * MIB)
    seconds = {n: pull(hub.url, "-o", tmp_path / str(n), "--connections", n)[0]["seconds"] for n in (1, 8)}
    assert tree_of(tmp_path / "1") == tree_of(tmp_path / "8") == hub.files
    assert seconds[8] < seconds[1] / 2, seconds


def test_a_silent_server_holds_up_nobody(hub, tmp_path):
    """The other one takes over after 5 s, long before the connection counts as stalled."""
    over = threading.Event()
    with FakeHub(hub.files) as silent:
        def file(handler, name):
            handler.send_response(206)
            first, end = handler.wanted(len(hub.files[name]))
            handler.send_header("Content-Range", f"bytes {first}-{end - 1}/{len(hub.files[name])}")
            handler.send_header("Content-Length", str(end - first))
            handler.end_headers()
            over.wait(60)
        silent.file = file
        try:
            _, err = pull(f"{silent.url},{hub.url}", "-o", tmp_path / "out", "--stall", "10m", "--connections", 2,
                          "--include", "*.safetensors")
        finally:
            over.set()
        assert "nothing came for 5 s" in err and silent.count("model.safetensors") > 0
    assert (tmp_path / "out/model.safetensors").read_bytes() == hub.files["model.safetensors"]


# shows: security.md pull-broken-answers
def test_a_server_dies_in_the_middle(hub, tmp_path):
    """The other one brings the rest, without a byte twice but those under way."""
    hub.files["model.safetensors"] = data = big(12 * MIB)
    with FakeHub(hub.files) as dying:
        for one in (hub, dying):
            one.file = lambda h, name, one=one: h.send_file(one.files[name], one.etag(name), pace=8 * MIB)
        out = tmp_path / "out"
        p = start(f"{dying.url},{hub.url}", "-o", out, "--connections", 2, "--json", *QUICK)
        while dying.count("model.safetensors") == 0 or hub.count("model.safetensors") == 0:
            assert p.poll() is None
            time.sleep(0.01)
        time.sleep(0.2)

        dying.dead.set()
        dying.close()
        report, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
        assert (out / "model.safetensors").read_bytes() == data
        assert json.loads(report)["fetched_bytes"] < len(data) + 2 * MIB


def test_small_files_come_side_by_side(tmp_path):
    """None of four is answered before all are asked for."""
    meeting = threading.Barrier(4)
    with FakeHub({f"{i}.txt": b"x" * i for i in range(1, 13)}) as hub:
        def file(handler, name):
            meeting.wait(30)
            FakeHub.file(hub, handler, name)
        hub.file = file
        check(hub, tmp_path / "out", timeout=30)
        assert len(hub.requests) == 12 + 3


def test_no_server_at_all(tmp_path):
    with FakeHub({}) as hub:
        url = hub.url
    report, err = pull(url, "-o", tmp_path / "out", "--retry-for", "1s", code=1)
    assert url in report["error"] and "next try" in err and not (tmp_path / "out").exists()


def test_first_server_is_down(hub, tmp_path):
    with FakeHub({}) as down:
        url = down.url
    report, _ = pull(f"{url},{hub.url}", "-o", tmp_path / "out")
    assert tree_of(tmp_path / "out") == hub.files and report["complete"]


def test_a_bad_server_of_two_is_left_alone(tmp_path):
    """It is asked once by each of the four workers, who ask at the same time; its notes are three at most."""
    files, meeting = {f"{i}.txt": b"x" * (i + 1) for i in range(30)}, threading.Barrier(4)
    with FakeHub(files) as hub, FakeHub(files) as bad:
        def file(handler, name):
            meeting.wait(30)
            handler.answer(404, b"")
        bad.file = file
        _, err = pull(f"{bad.url},{hub.url}", "-o", tmp_path / "out", *QUICK, "--connections", 4)
        assert tree_of(tmp_path / "out") == files
        assert sum("/resolve/" in path for path, _ in bad.requests) == 4
        assert sum(bad.url in line for line in err.splitlines()) == 3 and "further notes" in err, err


def test_servers_that_each_have_other_files(tmp_path):
    """A server that lacks one file may have the next one."""
    files = {f"{i}.txt": b"x" * (i + 1) for i in range(10)}
    with FakeHub(files) as even, FakeHub(files) as odd:
        for hub, rest in ((even, 0), (odd, 1)):
            hub.file = lambda h, name, hub=hub, rest=rest: FakeHub.file(hub, h, name) if int(name[0]) % 2 == rest \
                else h.answer(404)
        begin = time.monotonic()
        pull(f"{even.url},{odd.url}", "-o", tmp_path / "out", "--connections", 1, "--retry-for", "0")
        assert tree_of(tmp_path / "out") == files and time.monotonic() - begin < 15


@pytest.mark.parametrize("name, words", [("z/z", "is no directory"),
                                         ("a", 'a directory in "{}" has the name of the file "a"')])
def test_what_is_in_the_way_is_found_before_anything_is_fetched(tmp_path, name, words):
    out = tmp_path / "out"
    (out / "a").mkdir(parents=True)
    (out / "z").write_text("mine")
    with FakeHub({"0": b"first", name: b"last"}) as hub:
        _, err = pull(hub.url, "-o", out, code=1)
        assert words.format(out) in err and err.count("\n") == 1
        assert tree_of(out) == {"z": b"mine"} and not any("/resolve/" in path for path, _ in hub.requests)


def test_files_of_another_model_are_named(tmp_path):
    """Files of the other model stay, as any file of the user's does, and an engine would load both."""
    out = tmp_path / "out"
    a = {"config.json": b"{}", "model-00001-of-00002.safetensors": b"1" * 40, "model-00002-of-00002.safetensors": b"2"}
    b = {"config.json": b'{"b": 1}', "model.safetensors": b"3" * 50}
    with FakeHub(a) as hub:
        report, err = pull(hub.url, "-o", out)
        assert report["complete"] and err == ""
        assert pull(hub.url, "-o", out)[1] == ""        # the same model again
    (out / "notes.txt").write_text("mine")
    (out / "sub").mkdir()
    with FakeHub(b) as hub:
        report, err = pull(hub.url, "-o", out)
        assert report["complete"]
        staying = 'holds another model: 2 checkpoint files of it (such as "model-00001-of-00002.safetensors") stay'
        assert f'"{out}" {staying}' in err
        assert f'1 file of other sizes (such as "config.json") in "{out}" is replaced' in err and err.count("\n") == 1
        assert tree_of(out) == {**a, **b, "notes.txt": b"mine"}
        assert pull(hub.url, "-o", out, "--quiet")[1] == ""
        for name in a:
            if name not in b:
                (out / name).unlink()
        assert pull(hub.url, "-o", out)[1] == ""


def test_what_is_in_place_of_the_directory_is_named(hub, tmp_path):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    out.symlink_to("nothing")
    _, err = pull(hub.url, "-o", out, code=1)
    assert f'"{out}" is a symlink that leads nowhere' in err
    out.unlink()
    out.write_text("mine")
    _, err = pull(hub.url, "-o", out, code=1)
    assert f'"{out}" is not a directory' in err
    out.unlink()
    for make in (lambda path: path.symlink_to(elsewhere), lambda path: path.write_text("mine")):
        make(staging(out))
        _, err = pull(hub.url, "-o", out, code=1)
        assert f'"{staging(out)}", where the files are until all are there, is no directory; remove it' in err
        staging(out).unlink()
    assert os.listdir(elsewhere) == [] and not out.exists() and not any("/resolve/" in p for p, _ in hub.requests)


def test_a_directory_that_cannot_be_written_is_named(hub, tmp_path):
    out = tmp_path / "ro"
    out.mkdir()
    script = 'mount -t tmpfs -o ro none "$0" && exec "$@"'
    p = subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-c", script, out, tensord_binary(), "pull",
                        hub.url, "org/m", "-o", out], capture_output=True, text=True, env=environment(), timeout=60)
    assert p.returncode == 1 and f'cannot write into "{out}": Read-only file system' in p.stderr, p


# --------------------------------------------------------------------------------- kills, disks and terminals

# shows: security.md pull-kills
def test_kills_at_any_moment(tmp_path):
    """50 kill -9 at random moments: each pull resumes the work of earlier ones, and no file is ever wrong."""
    rng, kills, out = random.Random(18), 0, tmp_path / "out"
    files = {f"d{i}/f{i}.bin": big(MIB * (i + 1) // 2 + i, seed=i) for i in range(4)}
    with FakeHub(files) as hub:
        hub.file = lambda h, name: h.send_file(files[name], hub.etag(name), pace=3 * MIB)
        while kills < 50:
            hub.digests = ("lfs", None)[kills // 25]
            p = start(hub.url, "-o", out, "--connections", rng.choice((1, 3)), "--quiet")
            try:
                p.wait(rng.uniform(0.02, 0.35))
                assert p.returncode == 0 and out.exists(), p.stderr.read()
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
                kills += 1
            if out.exists():                    # a pull may be killed after it has renamed the directory
                assert {k: v for k, v in tree_of(out).items() if k != ".tensord-pull-of"} == files
                subprocess.run(["rm", "-rf", out], check=True)
            for path, data in tree_of(staging(out)).items():
                if not path.split("/")[-1].startswith("."):
                    assert data == files[path], path
        report, _ = pull(hub.url, "-o", out)
    assert tree_of(out) == files and report["complete"]


@pytest.mark.parametrize("digests", ["lfs", None])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_resumed_bytes_are_not_fetched_again(hub, tmp_path, sent, digests):
    out, hub.digests = tmp_path / "out", digests
    data = hub.files["model.safetensors"]
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name), pace=9 * MIB)
    p = start(hub.url, "-o", out, "--connections", 1, "--json")
    part = staging(out) / ".model.safetensors.tensord-part"
    journal = staging(out) / ".model.safetensors.tensord-journal"
    while not journal.exists() or sum(map(int.bit_count, journal.read_bytes()[512:])) < 4:
        assert p.poll() is None
        time.sleep(0.01)
    begin = time.monotonic()
    p.send_signal(sent)
    _, err = p.communicate(timeout=30)
    assert time.monotonic() - begin < 15 and part.exists() and not out.exists()
    if sent != signal.SIGKILL:
        assert p.returncode == 1 and "stopped by a signal" in err and str(staging(out)) in err
    report, _ = pull(hub.url, "-o", out)
    told = next(f for f in report["files"] if f["path"] == "model.safetensors")
    assert told["resumed_bytes"] >= 4 * 262144 and told["resumed_bytes"] + told["fetched_bytes"] == len(data)
    assert tree_of(out) == hub.files


@pytest.mark.parametrize("what, code, most_s", [("pull", 1, 5), ("serve", 0, 20)])
# shows: security.md pull-name-server
def test_a_resolver_that_is_silent_delays_no_end(tmp_path, what, code, most_s):
    """libcurl asks it on a thread, which cannot be ended and is not waited for: it tries for 90 s. The answer of a
    server that drains may wait for the list of files for 2 s."""
    script = Path(__file__).resolve().parent / "silent_resolver.py"
    done = subprocess.run(["unshare", "--map-root-user", "--net", "--mount", sys.executable, "-B", script, tmp_path,
                           what], capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["code"] == code and told["seconds"] < most_s and "Sanitizer" not in told["stderr"], told
    assert "stopped by a signal" in told["stderr"] or what == "serve", told


# shows: security.md pull-kills
def test_damaged_part_is_found(hub, tmp_path):
    """Bytes on our own disk are hashed too, and a part that was damaged is fetched again."""
    out = tmp_path / "out"
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name), pace=9 * MIB)
    p = start(hub.url, "-o", out, "--connections", 1)
    journal = staging(out) / ".model.safetensors.tensord-journal"
    while not journal.exists() or journal.read_bytes()[512:513] in (b"", b"\0"):
        assert p.poll() is None
        time.sleep(0.01)
    p.kill()
    p.wait()
    with open(staging(out) / ".model.safetensors.tensord-part", "r+b") as f:
        f.write(b"damage")
    hub.file = lambda h, name: FakeHub.file(hub, h, name)
    check(hub, out)


# shows: security.md pull-file-changes
def test_another_content_is_not_resumed(hub, tmp_path):
    out = tmp_path / "out"
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name), cut=MIB)
    pull(hub.url, "-o", out, "--retry-for", "0", code=1)
    assert (staging(out) / ".model.safetensors.tensord-part").exists()
    hub.files["model.safetensors"] = big(seed=9)
    hub.file = lambda h, name: FakeHub.file(hub, h, name)
    report, _ = check(hub, out)
    assert report["resumed_bytes"] == 0


def break_off(hub, out, *args):
    """Have a pull end in the middle of model.safetensors, with all small files."""
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name),
                                           cut=4 * MIB if name == "model.safetensors" else None)
    pull(hub.url, "-o", out, "--retry-for", "0", "--connections", 1, *args, code=1)
    hub.file = lambda h, name: FakeHub.file(hub, h, name)


def test_what_a_model_no_longer_has_is_removed(hub, tmp_path):
    """Of an earlier try, files and parts of files that the model has no more, or that are excluded now."""
    out = tmp_path / "out"
    hub.files |= {"old/a.txt": b"a", "now_a_directory": b"b", "notes.txt": b"c"}
    break_off(hub, out)
    assert {".model.safetensors.tensord-part", "old/a.txt", "notes.txt"} <= set(tree_of(staging(out)))
    hub.files = {"config.json": hub.files["config.json"], "now_a_directory/x": b"d", "notes.txt": b"c"}
    pull(hub.url, "-o", out, *QUICK, "--exclude", "notes.*")
    assert tree_of(out) == {name: data for name, data in hub.files.items() if name != "notes.txt"}
    assert sorted(os.listdir(out)) == ["config.json", "now_a_directory"] and os.listdir(tmp_path) == ["out"]


def test_files_of_a_user_are_never_removed(hub, tmp_path):
    """No pull has noted that they are its own, so neither this one nor the next one takes them for leftovers."""
    out = tmp_path / "out"
    (staging(out) / "mine").mkdir(parents=True)
    (staging(out) / "mine/thesis.txt").write_bytes(b"thesis")
    for _ in range(2):
        _, err = pull(hub.url, "-o", out, *QUICK, code=1)
        assert f'"{staging(out)}" holds files that no pull has noted: move them away, or give another -o' in err
        assert tree_of(staging(out))["mine/thesis.txt"] == b"thesis" and not out.exists()
    (staging(out) / "mine").rename(tmp_path / "mine")
    check(hub, out)


def test_what_is_mounted_below_is_not_removed(hub, tmp_path):
    break_off(hub, tmp_path / "out")
    (staging(tmp_path / "out") / "disk").mkdir()
    script = 'mount -t tmpfs none "$0/disk" && echo mine > "$0/disk/mine" && "$@" && cat out/disk/mine'
    p = subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-c", script, staging(tmp_path / "out"),
                        tensord_binary(), "pull", hub.url, "org/m", "-o", "out", "--quiet"], capture_output=True,
                       text=True, env=environment(), cwd=tmp_path, timeout=60)
    assert p.returncode == 0 and p.stdout == "mine\n", p


@pytest.mark.parametrize("engine,name", [("fsdp", "rank-{}.safetensors"),
                                         ("vllm@0.13", "model-rank-{}-part-0.safetensors"),
                                         ("vllm@9.9", "model-rank-{}-part-0.safetensors")])
def test_what_another_rank_has_left_is_not_removed(hub, tmp_path, engine, name):
    """The server lists the weights as model.safetensors, as servers did before engines had names of their own."""
    out, ranks = tmp_path / "out", [("--engine", engine, "--tp", 2, "--rank", rank) for rank in range(2)]
    hub.files["old.txt"] = b"old"
    break_off(hub, out, *ranks[1])
    del hub.files["old.txt"]
    pull(hub.url, "-o", out, *QUICK, *ranks[0])
    assert set(tree_of(out)) == {"config.json", name.format(0), f".{name.format(1)}.tensord-part",
                                 f".{name.format(1)}.tensord-journal"}
    report, _ = pull(hub.url, "-o", out, *QUICK, *ranks[1])
    assert report["resumed_bytes"] == 4 * MIB
    assert tree_of(out) == {"config.json": hub.files["config.json"],
                            **{name.format(rank): hub.files["model.safetensors"] for rank in range(2)}}


def test_a_pull_that_is_at_work_loses_nothing(hub, tmp_path):
    """It listed the model before it changed; another one, of after the change, comes and ends while it waits."""
    out, waits = tmp_path / "out", threading.Event()
    old = hub.files | {"old.txt": b"old"}
    hub.files = old

    def file(handler, name):
        if name == "model.safetensors":
            waits.wait(60)
        handler.send_file(old[name], f'"{hashlib.sha256(old[name]).hexdigest()}"')
    hub.file = file
    p = start(hub.url, "-o", out)
    while "old.txt" not in tree_of(staging(out)):
        assert p.poll() is None
        time.sleep(0.01)
    hub.files = {"config.json": old["config.json"]}
    pull(hub.url, "-o", out, *QUICK)
    waits.set()
    _, err = p.communicate(timeout=60)
    assert p.returncode == 0 and tree_of(out) == old, err


def test_a_new_version_leaves_what_another_rank_has_published(hub, tmp_path):
    """Rank 1 ends with exit code 0 and renames the directory; then the model changes under rank 0, which waits."""
    out, waits, asked = tmp_path / "out", threading.Event(), []
    hub.files["old.txt"] = b"old"
    new = {"config.json": b'{"a":2345}', "model.safetensors": big(seed=2)}

    def file(handler, name):
        if name == "model.safetensors":
            asked.append(name)
            if len(asked) == 1:
                waits.wait(60)
        FakeHub.file(hub, handler, name)
    hub.file = file
    p = start(hub.url, "-o", out, "--connections", 1, "--engine", "fsdp", "--tp", 2, "--rank", 0)
    while not asked:
        assert p.poll() is None
        time.sleep(0.01)
    pull(hub.url, "-o", out, *QUICK, "--connections", 1, "--engine", "fsdp", "--tp", 2, "--rank", 1)
    old, hub.files = tree_of(out), new
    assert old.pop(".rank-0.safetensors.tensord-part") is not None and {"old.txt", "rank-1.safetensors"} <= set(old)
    waits.set()
    _, err = p.communicate(timeout=60)
    assert p.returncode == 0 and "continuing with the new one" in err, err
    assert tree_of(out) == {**old, "config.json": new["config.json"], "rank-0.safetensors": new["model.safetensors"]}


def test_the_last_line_tells_what_was_resumed(hub, tmp_path):
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name), cut=4 * MIB)
    pull(hub.url, "-o", tmp_path / "out", "--retry-for", "0", "--connections", 1, code=1)
    hub.file = lambda h, name: FakeHub.file(hub, h, name)
    out, _ = start(hub.url, "-o", tmp_path / "out").communicate(timeout=60)
    assert re.search(r"; 1 was there already; 4\.00 MiB are of an earlier run, fetched 5\.01 MiB in ", out), out


@pytest.mark.parametrize("how", ["tmpfs", "limit"])
# shows: security.md pull-full-disk
def test_full_disk(hub, tmp_path, how):
    out = tmp_path / "out"
    out.mkdir()
    command = [tensord_binary(), "pull", hub.url, "org/m", "-o", out, *QUICK]
    if how == "tmpfs":
        script = 'mount -t tmpfs -o size=2m none "$0" && shift 0 && "$@"; code=$?; ls -A "$0"; exit $code'
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, out, *command]
    else:
        command = ["prlimit", f"--fsize={2 * MIB}", *command]
    p = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert p.returncode == 1, p
    assert ("No space left" if how == "tmpfs" else "File too large") in p.stderr and "model.safetensors" in p.stderr
    if how == "tmpfs":
        assert p.stdout.split() == ["config.json"], p.stdout


def test_two_pulls_at_once(hub, tmp_path):
    """They share the work file by file: nothing is fetched twice, and both succeed."""
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name), pace=12 * MIB)
    both = [start(hub.url, "-o", tmp_path / "out", "--json") for _ in range(2)]
    reports = []
    for p in both:
        out, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
        reports.append(json.loads(out))
    assert tree_of(tmp_path / "out") == hub.files
    assert sum(r["fetched_bytes"] for r in reports) == sum(map(len, hub.files.values()))


def test_progress_on_a_terminal(hub, tmp_path):
    hub.files["model.safetensors"] = big(3 * MIB + 12345)
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name), pace=MIB)
    master, slave = pty.openpty()
    p = subprocess.Popen([tensord_binary(), "pull", hub.url, "org/m", "-o", tmp_path / "out", "--connections", "1"],
                         stdout=slave, stderr=slave, env=environment())
    os.close(slave)
    shown = b""
    while True:
        try:
            some = os.read(master, 4096)
        except OSError:
            break
        if not some:
            break
        shown += some
    os.close(master)
    assert p.wait(60) == 0
    text = shown.decode()
    lines = re.findall(r"\r(tensord: \[=*>? *\] +\d+%, \S+ \S+ of 3\.01 MiB, \S+ \S+/s(?:, \d+ s left)?, "
                       r"[\d.]+ s: org/m)", text)
    assert len(lines) >= 3 and any("left" in line for line in lines) and "org/m: 2 files" in text, text


def test_a_terminal_is_told_that_no_bytes_come(hub, tmp_path):
    gate = threading.Event()
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name), pace=16 * MIB, gate=gate)
    master, slave = pty.openpty()
    p = subprocess.Popen([tensord_binary(), "pull", hub.url, "org/m", "-o", tmp_path / "out", "--connections", "1"],
                         stdout=slave, stderr=slave, env=environment())
    os.close(slave)
    shown, begun = b"", time.monotonic()
    while b"no bytes for 4 s" not in shown:
        shown += os.read(master, 4096)
        assert time.monotonic() - begun < 20, shown
    assert re.search(rb"\rtensord: \[=*> *\] +\d+%, 1\.\d\d MiB of 9\.01 MiB, no bytes for 3 s, [\d.]+ s: org/m\x1b",
                     shown)
    gate.set()
    assert p.wait(60) == 0
    os.close(master)
    assert tree_of(tmp_path / "out") == hub.files


def test_a_log_is_told_once_that_no_bytes_come(hub, tmp_path):
    """One line when it stands still, and the next one when it continues."""
    hub.files["model.safetensors"] = big(14 * MIB)
    gate = threading.Event()
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name), pace=2 * MIB, gate=gate)
    p = start(hub.url, "-o", tmp_path / "out", "--connections", 1)
    line = p.stderr.readline()
    while line and "no bytes for" not in line:      # a slow machine may report first that some have come
        assert re.fullmatch(r"tensord: \[.*, \d+\.0 s: org/m\n", line), line
        line = p.stderr.readline()
    assert re.fullmatch(r"tensord: \[.*, 1\.\d\d MiB of 14\.00 MiB, no bytes for \d+ s, \d+\.0 s: org/m\n", line), line
    assert select.select([p.stderr], [], [], 6) == ([], [], [])
    gate.set()
    _, rest = p.communicate(timeout=60)
    assert p.returncode == 0 and tree_of(tmp_path / "out") == hub.files
    assert re.match(r"tensord: \[.*/s(, \d+ s left)?, \d+\.0 s: org/m\n", rest), rest


def test_quiet_and_no_terminal(hub, tmp_path):
    p = start(hub.url, "-o", tmp_path / "out", "--quiet")
    assert p.communicate(timeout=60) == ("", "") and p.returncode == 0
