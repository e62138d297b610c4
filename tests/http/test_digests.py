"""Digests of files: entity tags from them, the log of digests, restarts, progress."""
import hashlib
import json
import os
import shutil
import stat
import subprocess
import time

import pytest

import kill_digests
from harness import age, enc, pattern, tensor, tensord_binary, write_by_hand

LARGE = 5 << 20


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def root(tmp_path):
    """A model of two shards, plain files, one of them empty and one large, and a model by itself."""
    root = tmp_path / "root"
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
              "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 1, "vocab_size": 96}
    shards = {
        "model-00001-of-00002.safetensors":
        [tensor("model.embed_tokens.weight", "BF16", [96, 64]),
         tensor("model.norm.weight", "BF16",
                [64])], "model-00002-of-00002.safetensors": [tensor("lm_head.weight", "BF16", [96, 64])]
    }
    for name, tensors in shards.items():
        write_by_hand(root / "org" / "m" / name, tensors)
    (root / "org" / "m" / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {}, "weight_map": {t.name: name for name, tensors in shards.items() for t in tensors}}))
    (root / "org" / "m" / "config.json").write_text(json.dumps(config))
    (root / "org" / "m" / "empty.txt").write_bytes(b"")
    (root / "org" / "m" / "large.bin").write_bytes(pattern(LARGE, 1))
    write_by_hand(root / "single" / "model.safetensors", [tensor("a/b", "F32", [10, 10])])
    age(root)
    return root


def files_of(root):
    return sorted(p for p in root.rglob("*") if p.is_file())


def wait_known(s):
    """Wait until every file is hashed and the digests are published. Return that part of /readyz."""
    def known():
        d = s.json("/readyz")["digests"]
        return d if d["files"] > 0 and d["files"] == d["known_files"] == d["published_files"] else None
    return s.wait_for(known, "all files are hashed and published", 60)


def etags(s):
    """Return {target: ETag} of everything that depends on the bytes of files, and their tags in JSON."""
    out = {}
    for model in ("org/m", "single"):
        info = s.json(f"/models/{model}")
        targets = [f"/models/{model}/files/{f['path']}" for f in info["files"]]
        manifest = s.json(f"/models/{model}/tensors")
        tensors = [t["href"] for t in manifest["tensors"]]
        targets += tensors + [
            tensors[0] + "?slice=0:1", f"/models/{model}/tensors", f"/models/{model}/model.safetensors"
        ]
        out[f"etag of {model}"] = manifest["etag"]
        for target in targets:
            r = s.head(target)
            assert r.status == 200, r
            out[target] = r.etag
    target = "/models/org/m/shards/fsdp/tp2/rank-1.safetensors"
    r = s.head(target)
    assert r.status == 200, r
    out[target] = r.etag
    return out


def test_a_files_etag_is_its_sha256(root, start):
    s = start(root, hash_threads=1)
    wait_known(s)
    for path in files_of(root):
        model, name = ("single", path.name) if path.parent.name == "single" else ("org/m", path.name)
        r = s.get(f"/models/{model}/files/{name}")
        assert r.etag == f'"{sha256(path)}"' and hashlib.sha256(r.body).hexdigest() == r.etag.strip('"')
        assert s.get(f"/models/{model}/files/{name}", {"If-None-Match": r.etag}).status == 304
        listed = {f["path"]: f for f in s.json(f"/models/{model}")["files"]}
        assert listed[name]["sha256"] == sha256(path)


def test_progress_is_told(root, start):
    s = start(root, hash_threads=1)
    d = wait_known(s)
    size = sum(p.stat().st_size for p in files_of(root))
    n = len(files_of(root))
    assert d == {"enabled": True, "stored": False, "files": n, "known_files": n, "published_files": n, "bytes": size,
                 "known_bytes": size, "failed": 0, "mismatches": 0}
    for name, value in (("tensord_hashed_files", n), ("tensord_hashed_file_bytes", size), ("tensord_file_bytes", size),
                        ("tensord_hash_read_bytes_total", size), ("tensord_hash_failures_total", 0),
                        ("tensord_hash_mismatches_total", 0), ("tensord_digest_store", 0)):
        assert s.gauge(name) == value, name


def test_one_line_in_the_log(root, start):
    """The log does not report each digest that becomes known."""
    s = start(root, hash_threads=1)
    wait_known(s)
    assert s.stderr().count("indexed 2 models") == 1, s.stderr()


def test_a_restart_reads_nothing(root, tmp_path, start):
    state = tmp_path / "state"
    s = start(root, "--state-dir", state, hash_threads=1)
    wait_known(s)
    assert s.gauge("tensord_digest_store") == 1 and s.json("/readyz")["digests"]["stored"] is True
    before = etags(s)
    s.stop()
    assert stat.S_IMODE(state.stat().st_mode) == 0o700 and stat.S_IMODE((state / "digests").stat().st_mode) == 0o600
    for threads in (1, 0):
        s = start(root, "--state-dir", state, hash_threads=threads)
        assert wait_known(s)["enabled"] is (threads > 0)
        assert etags(s) == before
        time.sleep(0.3)
        assert s.gauge("tensord_hash_read_bytes_total") == 0
        s.stop()
    (root / "single" / "new.txt").write_text("new")  # and only new files are read
    age(root / "single" / "new.txt")
    s = start(root, "--state-dir", state, hash_threads=1)
    wait_known(s)
    assert s.gauge("tensord_hash_read_bytes_total") == 3


def test_copies_have_equal_etags(root, tmp_path, start):
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    age(copy, 7200)
    a, b = start(root), start(copy)
    one, two = etags(a), etags(b)
    assert one.keys() == two.keys() and all(one[k] != two[k] for k in one), "identities are not equal"
    a.stop(), b.stop()
    a, b = start(root, hash_threads=1), start(copy, hash_threads=1)
    wait_known(a), wait_known(b)
    one, two = etags(a), etags(b)
    assert one == two
    assert len(set(one.values())) >= len(one) - 1, "what differs has different tags"


def test_equal_models_have_equal_tags_of_descriptions(root, tmp_path, start):
    """Once their files are hashed, whatever their times; also datasets. Any other difference makes another tag."""
    (root / "datasets/rows").mkdir(parents=True)
    (root / "datasets/rows/train.jsonl").write_text('{"n": 1}\n')
    age(root)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    age(copy, 7200)
    paths = ["/models/org/m", *(f"/models/{name}" for name in os.listdir(root) if name not in ("org", "datasets")),
             "/datasets/rows"]
    a, b = start(root, hash_threads=1), start(copy, hash_threads=1)
    early = [a.get(path) for path in paths]
    for s in (a, b):
        wait_known(s)
        s.wait_for(lambda s=s: s.json("/datasets/rows")["splits"][0]["index"]["state"] == "ready", "the index")
    one, two = [a.get(path) for path in paths], [b.get(path) for path in paths]
    assert [r.etag for r in one] == [r.etag for r in two]
    assert len({r.etag for r in one}) == len(paths)
    for r, other, first, path in zip(one, two, early, paths):
        here, there = r.json(), other.json()
        assert here.pop("updated", None) != there.pop("updated", None) or path.startswith("/datasets")
        assert here == there
        assert b.get(path, {"If-None-Match": r.etag}).status == 304
        for tag in (r.etag, first.etag):        # of another replica, and of before its files were hashed
            assert (b if tag == r.etag else a).get(f"{path}?wait={enc(tag)}&timeout=0").status == 304, path
    (copy / "org/m/config.json").write_text((copy / "org/m/config.json").read_text().replace("64", "63"))
    age(copy, 7200)
    assert b.request("/rescan", method="POST").status == 200
    b.wait_hashed()
    assert b.get(paths[0]).etag != one[0].etag and b.get(paths[1]).etag == one[1].etag
    assert b.get(f"{paths[0]}?wait={enc(one[0].etag)}&timeout=0").status == 200
    assert b.request("/rescan", method="POST").status == 200


# shows: security.md digest-file-changes
def test_a_file_that_changes_in_place(root, start):
    s = start(root, hash_threads=1, rescan="0.2")
    wait_known(s)
    path = root / "org" / "m" / "large.bin"
    tensor_before = s.head("/models/single/tensors/a%2Fb").etag
    with open(path, "r+b") as f:
        f.seek(1000)
        f.write(b"changed")
    s.wait_for(lambda: s.head("/models/org/m/files/large.bin").etag == f'"{sha256(path)}"', "the new digest", 60)
    r = s.get("/models/org/m/files/large.bin")
    assert r.body == path.read_bytes()
    assert s.head("/models/single/tensors/a%2Fb").etag == tensor_before
    assert wait_known(s)["failed"] in (0, 1)  # it may have changed while it was hashed


# shows: security.md digest-sigterm
def test_small_files_do_not_wait_for_large_ones(root, start):
    with open(root / "a-huge.bin", "wb") as f:  # first by name
        f.truncate(1 << 40)
    age(root)
    s = start(root, hash_threads=1)
    path = root / "org" / "m" / "config.json"
    s.wait_for(lambda: s.head("/models/org/m/files/config.json").etag == f'"{sha256(path)}"', "a small file's digest",
               60)
    d = s.json("/readyz")["digests"]
    assert d["known_files"] < d["files"]
    began = time.monotonic()
    s.stop()  # in the middle of 1 TiB
    assert time.monotonic() - began < 10


def test_without_threads(root, start):
    s = start(root, hash_threads=0)
    time.sleep(0.5)
    d = s.json("/readyz")["digests"]
    assert (d["enabled"], d["known_files"], d["files"]) == (False, 0, len(files_of(root)))
    assert s.gauge("tensord_hash_read_bytes_total") == 0
    assert all("sha256" not in f for f in s.json("/models/org/m")["files"])
    assert len(s.head("/models/org/m/files/config.json").etag) == 34


# shows: security.md digest-two-servers
def test_two_servers_share_a_directory(root, tmp_path, start):
    """The second reads what the first knows, and writes nothing."""
    state = tmp_path / "state"
    first = start(root, "--state-dir", state, hash_threads=1)
    wait_known(first)
    second = start(root, "--state-dir", state, hash_threads=1)
    assert "in use by another process" in second.stderr()
    assert wait_known(second)["stored"] is False
    assert etags(first) == etags(second)


# ------------------------------------------------------------------------------------------------- faults

def refused(root, *args):
    p = subprocess.run([str(tensord_binary()), "serve",
                        str(root), "--listen", "127.0.0.1:0", *map(str, args)], capture_output=True, text=True,
                       timeout=60)
    assert p.returncode == 1 and "--state-dir" in p.stderr, p
    return p.stderr


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o2777])
# shows: security.md digest-shared-directory
def test_a_directory_that_everybody_may_write_to(root, tmp_path, start, mode):
    """For such a directory (a Kubernetes emptyDir, /tmp) the server uses a directory of its own in it, and logs
    which."""
    state = tmp_path / "volume"
    state.mkdir()
    state.chmod(mode)
    own = state / f"tensord-{os.geteuid()}"
    s = start(root, "--state-dir", state, hash_threads=1)
    s.wait_hashed()
    line = f'--state-dir: others can write to "{state}"; digests are kept in its sub-directory "{own.name}"'
    assert s.stderr().count(line) == 1
    assert s.gauge("tensord_digest_store") == 1
    s.stop()
    assert [p.name for p in state.iterdir()] == [own.name] and stat.S_IMODE(own.stat().st_mode) & 0o777 == 0o700
    s = start(root, "--state-dir", state, hash_threads=0)
    digests = s.json("/readyz")["digests"]
    assert digests["known_files"] == digests["files"] > 0       # no file was hashed twice
    p = subprocess.run([str(tensord_binary()), "verify",
                        str(root), "--state-dir", str(state)], capture_output=True, text=True, timeout=60)
    assert p.returncode == 0 and f"{digests['files']} compared with recorded digests" in p.stdout, p


def test_directories_that_are_refused(root, tmp_path):
    assert "is in the served directory" in refused(root, "--state-dir", root / "state")
    assert not (root / "state").exists()
    (tmp_path / "link").symlink_to(root / "org")
    assert "is in the served directory" in refused(root, "--state-dir", tmp_path / "link")
    bad = tmp_path / "bad"
    bad.mkdir()
    bad.chmod(0o777)
    (bad / f"tensord-{os.geteuid()}").symlink_to(tmp_path)
    assert "somebody else put it there" in refused(root, "--state-dir", bad)
    bad.chmod(0o700)
    (bad / "digests").symlink_to("/etc/passwd")
    assert "must be a file" in refused(root, "--state-dir", bad)


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 16 KiB: the log of 200 files does not fit. Mounting needs a right that not every host gives."""
    at = tmp_path / "disk"
    at.mkdir()
    p = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "none",
                        str(at)], capture_output=True, text=True)
    if p.returncode != 0:
        yield None
        return
    yield at
    subprocess.run(["umount", str(at)], check=True)


# shows: security.md digest-disk-full
def test_a_full_disk(tmp_path, tiny_disk, start):
    root = tmp_path / "root"
    for i in range(300):
        (root / "m").mkdir(parents=True, exist_ok=True)
        (root / "m" / f"{i}.txt").write_text(str(i))
    age(root)
    state = tiny_disk if tiny_disk is not None else "/dev/full"
    if tiny_disk is None:  # there is no such disk: at least the error for a path that is no directory is checked
        assert "cannot open" in refused(root, "--state-dir", state)
        return
    s = start(root, "--state-dir", state, hash_threads=1)
    wait_known(s)
    assert s.json("/readyz")["digests"]["stored"] is False and s.gauge("tensord_digest_store") == 0
    assert s.stderr().count("digests are kept in memory only") == 1
    assert s.head("/models").status == 200
    s.stop()
    s = start(root, "--state-dir", state, hash_threads=1)  # what was written before is still right
    wait_known(s)
    s.stop()
    subprocess.run(["mount", "-o", "remount,ro", str(state)], check=True)
    s = start(root, "--state-dir", state, hash_threads=1)
    assert wait_known(s)["stored"] is False


# shows: security.md digest-unreadable
def test_a_writer_that_never_rests(root, start):
    """The file is not hashed again and again, but once when the writer leaves it alone."""
    s = start(root, hash_threads=1, rescan="0.2")
    wait_known(s)
    before = s.json("/readyz")["digests"]["failed"]
    blob = root / "org" / "m" / "large.bin"
    until = time.monotonic() + 3
    while time.monotonic() < until:
        with open(blob, "r+b") as f:
            f.write(os.urandom(8))
        time.sleep(0.02)
    assert s.json("/readyz")["digests"]["failed"] - before < 20
    s.wait_for(lambda: s.head("/models/org/m/files/large.bin").etag == f'"{sha256(blob)}"', "the last version's digest",
               60)


# shows: security.md digest-wrong-blob
def test_a_damaged_cache_is_noticed(tmp_path, start):
    folder = tmp_path / "hub" / "models--org--name"
    good, bad = b"good", b"bad"
    for data, name in ((good, hashlib.sha256(good).hexdigest()), (bad, hashlib.sha256(b"what it was").hexdigest())):
        (folder / "blobs").mkdir(parents=True, exist_ok=True)
        (folder / "snapshots" / ("a" * 40)).mkdir(parents=True, exist_ok=True)
        (folder / "blobs" / name).write_bytes(data)
        (folder / "snapshots" / ("a" * 40) / data.decode()).symlink_to(f"../../blobs/{name}")
    write_by_hand(folder / "snapshots" / ("a" * 40) / "model.safetensors", [tensor("w", "U8", [8])])
    age(tmp_path / "hub")
    s = start(tmp_path / "hub", hash_threads=1)
    assert wait_known(s)["mismatches"] == 1
    assert s.gauge("tensord_hash_mismatches_total") == 1
    assert 'does not hash to its blob\'s name' in s.stderr() and "tensord verify" in s.stderr()
    assert s.head("/models/org/name/files/bad").etag == f'"{hashlib.sha256(bad).hexdigest()}"'


# shows: security.md digest-kills
def test_kills_leave_a_good_log():
    """kill_digests.py, 20 times; by hand 1,000 times."""
    seed = int(os.environ.get("TENSORD_KILL_SEED", time.time()))
    kept = kill_digests.run(int(os.environ.get("TENSORD_KILL_RUNS", 20)), seed)
    assert max(kept) > 0, "no kill came after a write: nothing was shown"


def test_the_check_of_kills_finds_wrong_digests(tmp_path):
    place = kill_digests.Place(tmp_path, 1)
    id = next(iter(place.contents))
    place.log.write_bytes(kill_digests.HEADER + kill_digests.record(id, place.contents[id]))
    assert place.check() == 1
    place.log.write_bytes(kill_digests.HEADER + kill_digests.record(id, bytes(32)))
    with pytest.raises(kill_digests.Wrong):
        place.check()
    data = bytearray(kill_digests.HEADER + kill_digests.record(id, bytes(32)))
    data[60] ^= 1
    place.log.write_bytes(data)
    assert place.check() == 0
