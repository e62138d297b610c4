"""/models/{id}/changes?since=V1&version=V2, compared with what safetensors and torch read from the files of the two
versions, tensor by tensor."""
import hashlib
import json
import os
import shutil
import struct

import pytest
import safetensors.torch
import torch

from harness import age, check_error, enc
from signing import TokensFile


def bytes_of(t):
    return t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def save(folder, tensors, name="model.safetensors"):
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(tensors, folder / name)


def read(folder):
    """Return the tensors of a version, by the packages that its files are of."""
    out = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".safetensors":
            out.update(safetensors.torch.load_file(path))
        elif path.suffix == ".bin":
            out.update(torch.load(path, weights_only=True))
    return out


def compare(old, new):
    """Return what the server is to answer for two versions, from their tensors."""
    def is_same(n):
        a, b = old[n], new[n]
        return a.dtype == b.dtype and a.shape == b.shape and bytes_of(a) == bytes_of(b)

    same = [n for n in new if n in old and is_same(n)]
    changed = sorted(n for n in new if n in old and n not in same)
    return {"changed": changed, "added": sorted(set(new) - set(old)), "removed": sorted(set(old) - set(new)),
            "same": len(same), "same_bytes": sum(len(bytes_of(new[n])) for n in same),
            "changed_bytes": sum(len(bytes_of(new[n])) for n in changed)}


def check(s, target, root, model, since, version, name=None):
    """Ask, and compare the answer with the packages' and each row with a GET of its href."""
    r = s.get(target, timeout=120)
    assert r.status == 200, r
    answer = r.json()
    old, new = read(root / model / since), read(root / model / version)
    want = compare(old, new)
    assert (answer["model"], answer["since"], answer["version"]) == (model, since, name or version)
    assert {k: answer[k] for k in want if k not in ("changed", "added")} == \
        {k: want[k] for k in want if k not in ("changed", "added")}
    for key in ("changed", "added"):
        assert [row["name"] for row in answer[key]] == want[key]
        for row in answer[key]:
            t = new[row["name"]]
            assert set(row) == {"name", "dtype", "shape", "nbytes", "sha256", "href"}
            assert row["shape"] == list(t.shape) and row["nbytes"] == len(bytes_of(t))
            assert row["sha256"] == hashlib.sha256(bytes_of(t)).hexdigest()
            assert s.get(row["href"]).body == bytes_of(t)
            assert "version=" in row["href"] and "latest" not in row["href"]
    return r


def step(number):
    """The tensors of a step: frozen ones, one that changes, one whose type and one whose shape changes, one that comes
    and one that goes."""
    g = torch.Generator().manual_seed(3)
    tensors = {"frozen.a": torch.randn(40, 30, generator=g), "frozen.b": torch.randn(7, generator=g).bfloat16(),
               "w": torch.randn(64, 8, generator=g) + number, "empty": torch.zeros(0, 3)}
    tensors["kind"] = torch.arange(8, dtype=torch.int32 if number == 1 else torch.float32)
    tensors["form"] = torch.zeros(4, 2) if number == 1 else torch.zeros(2, 4)
    tensors["gone" if number == 1 else "new/name +%"] = torch.ones(5)
    return tensors


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    for number in (1, 2):
        save(root / "run" / f"step-{number}", step(number))
    save(root / "run" / "step-3", {n: t for n, t in step(2).items() if n != "w"} | {"w": torch.full((64, 8), 2.5)})
    age(root)
    return root


def test_what_changed(root, start):
    s = start(root, hash_threads=1)
    check(s, "/models/run/changes?since=step-1&version=step-2", root, "run", "step-1", "step-2")
    check(s, "/models/run/changes?since=step-2&version=step-1", root, "run", "step-2", "step-1")
    check(s, "/models/run/changes?since=1&version=3", root, "run", "step-1", "step-3")
    check(s, "/models/run/changes/?since=2", root, "run", "step-2", "step-3")
    check(s, "/models/run/changes?since=step-1&version=latest", root, "run", "step-1", "step-3")
    answer = check(s, "/models/run/changes?since=step-3", root, "run", "step-3", "step-3").json()
    assert answer["changed"] == answer["added"] == answer["removed"] == [] and answer["same"] == 7


def test_other_formats_and_shards(root, start):
    """The same values in another format and in shards are the same tensors; the first checkpoint of each counts."""
    old = step(1)
    folder = root / "run" / "step-4"
    folder.mkdir()
    torch.save({n: t for n, t in old.items()} | {"w": old["w"].t().contiguous().t()}, folder / "pytorch_model.bin")
    names = sorted(step(2))
    parts = {"model-00001-of-00002.safetensors": names[:3], "model-00002-of-00002.safetensors": names[3:]}
    for file, some in parts.items():
        save(root / "run" / "step-5", {n: step(2)[n] for n in some}, file)
    (root / "run" / "step-5" / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {}, "weight_map": {n: file for file, some in parts.items() for n in some}}))
    age(root)
    s = start(root, hash_threads=1)
    answer = check(s, "/models/run/changes?since=1&version=4", root, "run", "step-1", "step-4").json()
    assert answer["changed"] == [] and answer["same"] == len(old)
    check(s, "/models/run/changes?since=2&version=5", root, "run", "step-2", "step-5")
    check(s, "/models/run/changes?since=4&version=5", root, "run", "step-4", "step-5")


def test_links_are_not_hashed(root, start, tmp_path):
    """A version whose files are symbolic links to another's: known to be the same without a SHA-256."""
    (root / "run" / "step-9").mkdir()
    (root / "run" / "step-9" / "model.safetensors").symlink_to("../step-3/model.safetensors")
    s = start(root, "--state-dir", tmp_path / "state", hash_threads=0)
    answer = s.json("/models/run/changes?since=step-3&version=step-9")
    assert answer["same"] == 7 and answer["changed"] == answer["added"] == answer["removed"] == []
    check_error(s.get("/models/run/changes?since=step-1"), 422, "--hash-threads")


def test_entity_tags(root, start):
    s = start(root, hash_threads=1)
    s.wait_hashed()
    target = "/models/run/changes?since=step-1&version=step-2"
    r = s.get(target)
    assert r.status == 200 and r.etag
    again = s.get(target, {"If-None-Match": r.etag})
    assert again.status == 304 and again.body == b"" and again.etag == r.etag
    assert s.get("/models/run/changes?since=step-1&version=step-3", {"If-None-Match": r.etag}).status == 200
    head = s.head(target)
    assert head.status == 200 and head.length == len(r.body) and head.etag == r.etag
    data = step(2)
    data["frozen.a"][0, 0] += 1
    save(root / "run" / "step-2", data)
    age(root)
    s.wait_for(lambda: s.get(target, {"If-None-Match": r.etag}).status == 200, "the change is seen")
    check(s, target, root, "run", "step-1", "step-2")


@pytest.mark.parametrize("query,status,needles", [
    ("", 400, ["since"]), ("version=step-2", 400, ["since"]), ("since=", 404, ["step-3"]),
    ("since=step-99", 404, ["step-99", "step-3"]), ("since=step-1&version=nope", 404, ["nope", "step-3"]),
    ("since=step-1&version=", 404, ["step-3"]), ("since=step-1&x=1", 400, ["x"]),
    ("since=step-1&since=step-2", 400, ["since"]), ("since=step-1&digests=1", 400, ["digests"]),
    ("since=step-1&wait=x", 400, ["wait"]), ("since=" + "9" * 5000, 404, []), ("since=..%2F..%2Fetc", 404, []),
    ("since=step-1%00", 400, []), ("since=99999999999999999999", 404, []),
])
def test_wrong_parameters(root, start, query, status, needles):
    s = start(root, hash_threads=1)
    check_error(s.get("/models/run/changes?" + query), status, *needles)
    check_error(s.post("/models/run/changes?since=step-1", {}), 405)


def test_models_without_versions(root, start):
    save(root / "alone", {"a": torch.ones(2)})
    age(root)
    s = start(root, hash_threads=1)
    check_error(s.get("/models/alone/changes?since=step-1"), 404, "no versions")
    check_error(s.get("/models/nowhere/changes?since=step-1"), 404)
    check_error(s.get("/models/changes?since=step-1"), 404)
    check_error(s.get("/models/run/step-1/changes?since=step-1"), 404, "no versions")
    check_error(s.get("/models/run/changes/x?since=step-1"), 404)


def test_two_versions_of_one_number(root, start):
    save(root / "run" / "checkpoint-1", {"w": torch.ones(1)})
    age(root)
    s = start(root, hash_threads=1)
    check_error(s.get("/models/run/changes?since=1"), 400, "checkpoint-1", "step-1")


def test_deltas(root, start):
    """The index of slime's and ModelExpress' deltas: neither side may be one."""
    folder = root / "run" / "step-4"
    save(folder, {"w": torch.zeros(3, dtype=torch.uint8)}, "model-00000-of-00001.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {"version": "000004", "base_version": "000003", "delta_encoding": "xor",
                      "compression_format": "zstd", "checksum_format": "adler32"},
         "weight_map": {"w": "model-00000-of-00001.safetensors"}}))
    age(root)
    s = start(root, hash_threads=1)
    for query in ("since=step-4&version=step-3", "since=step-3&version=step-4"):
        check_error(s.get("/models/run/changes?" + query), 422, "delta", "tensord apply", "step-3")
    check(s, "/models/run/changes?since=step-1", root, "run", "step-1", "step-3")


def test_a_version_without_a_checkpoint(root, start):
    folder = root / "run" / "step-7"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"no checkpoint")
    age(root)
    s = start(root, hash_threads=1)
    r = s.get("/models/run/changes?since=step-1&version=step-7")
    check_error(r, 404)


def test_a_cache_of_the_hub(tmp_path, start):
    """Snapshots are versions: by their refs, and by the folder's name."""
    root = tmp_path / "root"
    cache = root / "models--org--m"
    commits = {"a" * 40: 1, "b" * 40: 2}
    for commit, number in commits.items():
        blob = cache / "blobs" / str(number)
        save(cache / "made", step(number), "x")
        blob.parent.mkdir(parents=True, exist_ok=True)
        os.replace(cache / "made" / "x", blob)
        (cache / "snapshots" / commit).mkdir(parents=True)
        (cache / "snapshots" / commit / "model.safetensors").symlink_to(f"../../blobs/{number}")
    shutil.rmtree(cache / "made")
    (cache / "refs").mkdir()
    for ref, commit in (("main", "b" * 40), ("step-1", "a" * 40), ("step-2", "b" * 40)):
        (cache / "refs" / ref).write_text(commit)
    age(root)
    s = start(root, hash_threads=1)
    for query in (f"since={'a' * 40}&version={'b' * 40}", "since=step-1&version=main", "since=1"):
        answer = s.json(f"/models/org/m/changes?{query}")
        want = compare(step(1), step(2))
        assert (answer["since"], answer["version"]) == ("step-1", "step-2")
        assert [row["name"] for row in answer["changed"]] == want["changed"]
        for row in answer["changed"] + answer["added"]:
            assert s.get(row["href"]).body == bytes_of(step(2)[row["name"]])


def test_tokens(root, start, tmp_path):
    """A caller compares only versions that it sees; the others are unknown, and the latest is the latest of its own."""
    tokens = TokensFile(tmp_path / "tokens.json")
    some = tokens.add("some", ["run/step-1", "run/step-2"]).bearer("some")
    none = tokens.add("none", ["plain"]).bearer("none")
    s = start(root, "--tokens", tokens, hash_threads=1)
    r = s.get("/models/run/changes?since=step-1", some)
    assert r.status == 200 and r.json()["version"] == "step-2"
    e = check_error(s.get("/models/run/changes?since=step-1&version=step-3", some), 404)
    assert set(e["details"]["known"]) == {"step-1", "step-2", "latest"}
    check_error(s.get("/models/run/changes?since=step-1", none), 404)
    check_error(s.get("/models/run/changes?since=step-1"), 401)


def save_huge_versions(root):
    """Write two versions with a tensor of 256 GiB of zeros, which is a hole in the file."""
    for number in (1, 2):
        header = json.dumps({"w": {"dtype": "U8", "shape": [1 << 38], "data_offsets": [0, 1 << 38]}}).encode()
        path = root / "run" / f"step-{number}" / "model.safetensors"
        path.parent.mkdir(parents=True)
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header)
            f.truncate(8 + len(header) + (1 << 38))
    age(root)


def test_slow_hashing_is_503(tmp_path, start):
    """503 with when to come again, and the server serves on."""
    root = tmp_path / "root"
    save_huge_versions(root)
    s = start(root, hash_threads=1)
    r = s.get("/models/run/changes?since=step-1", timeout=120)
    check_error(r, 503, "0 of 2 tensors")
    assert int(r.get("Retry-After")) >= 1 and s.get("/healthz").status == 200


def test_names_that_have_to_be_quoted(tmp_path, start):
    root = tmp_path / "root"
    names = ["a/b", "..", "x?y=1&z", "ü", 'q"uote', "plus+%2F", ""]
    for number in (1, 2):
        save(root / "ru n" / f"step-{number}", {n: torch.full((3,), number) for n in names})
    age(root)
    s = start(root, hash_threads=1)
    check(s, f"/models/{enc('ru n')}/changes?since=1", root, "ru n", "step-1", "step-2")
