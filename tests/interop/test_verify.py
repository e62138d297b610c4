"""tensord verify compares contents with recorded digests and with the names of a Hugging Face cache."""
import hashlib
import json
import os
import struct
import subprocess
import zlib

import pytest
from pulls import shown_on_terminal

from harness import Server, age, pattern, tensor, tensord_binary, write_by_hand

GIB = 1 << 30


def verify(*args, **env):
    return subprocess.run([str(tensord_binary()), "verify", *map(str, args)], capture_output=True, text=True,
                          timeout=120, env={**os.environ, **{k: str(v) for k, v in env.items()}})


def as_json(*args):
    p = verify(*args, "--json")
    assert p.returncode in (0, 1, 3) and p.stderr == "", p
    out = json.loads(p.stdout)
    bad = out["mismatches"] + out["unreadable"] > 0
    nothing = out["recorded"] + out["blob_names"] == 0
    only_names = "--state-dir" in args and out["recorded"] == 0
    assert p.returncode == (1 if bad else 3 if nothing else 1 if only_names else 0)
    return out


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def record(path, sha256):
    """Return one record of the log, as catalog/digests/digest_log.h describes it."""
    st = os.stat(path)
    body = struct.pack("<IIQQQqq", 88, 1, st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns) + sha256
    return body + struct.pack("<II", zlib.crc32(body), 0)


def write_log(state, records):
    state.mkdir(mode=0o700, exist_ok=True)
    (state / "digests").write_bytes(b"tdigests" + struct.pack("<II", 1, 0x01020304) + b"".join(records))
    os.chmod(state / "digests", 0o600)


@pytest.fixture
def models(tmp_path):
    root = tmp_path / "models"
    write_by_hand(root / "m" / "model.safetensors", [tensor("w", "U8", [100000])])
    (root / "m" / "config.json").write_text("{}")
    (root / "m" / "empty.txt").write_text("")
    (root / "m" / "odd\nname").write_text("x")
    age(root)
    return root


def serve_until_hashed(root, state):
    with Server(root, "--state-dir", state, hash_threads=1) as s:
        s.wait_for(lambda: s.json("/readyz")["digests"]["known_files"] == s.json("/readyz")["digests"]["files"],
                   "all is hashed")


def test_what_a_server_recorded(models, tmp_path):
    state = tmp_path / "state"
    serve_until_hashed(models, state)
    p = verify(models, "--state-dir", state)
    assert p.returncode == 0 and p.stderr == "", p
    assert p.stdout.splitlines()[-1].startswith(
        "4 files, ") and "4 compared with recorded digests, 0 with names of blobs, 0 not compared;" in p.stdout
    out = as_json(models, f"--state-dir={state}")
    size = sum(f.stat().st_size for f in (models / "m").iterdir())
    assert out == {
        "problems": [], "files": 4, "bytes": size, "recorded": 4, "blob_names": 0, "not_compared": 0, "mismatches": 0,
        "unreadable": 0, "not_compared_files": []
    }


def test_beside_a_running_server(models, tmp_path):
    state = tmp_path / "state"
    with Server(models, "--state-dir", state, hash_threads=1) as s:
        s.wait_for(lambda: s.gauge("tensord_hashed_files") == 4, "all is hashed")
        s.wait_for(lambda: as_json(models, "--state-dir", state)["recorded"] == 4, "the log is on the disk")
        assert s.gauge("tensord_digest_store") == 1


# shows: security.md digest-bit-rot
def test_a_content_that_is_not_what_was_recorded(models, tmp_path):
    """Bit rot: the same identity, other bytes. A disk changes the bytes; here the log has another digest instead."""
    state = tmp_path / "state"
    bad = models / "m" / "model.safetensors"
    good = models / "m" / "config.json"
    was = hashlib.sha256(b"what it was").digest()
    write_log(state, [record(bad, was), record(good, hashlib.sha256(b"{}").digest())])
    now = hashlib.sha256(bad.read_bytes()).hexdigest()
    out = as_json(models, "--state-dir", state)
    assert out["problems"] == [{"problem": "recorded", "file": str(bad), "expected": was.hex(), "found": now}]
    assert (out["files"], out["recorded"], out["not_compared"], out["mismatches"]) == (4, 2, 2, 1)
    p = verify(models, "--state-dir", state)
    assert p.returncode == 1
    line, *others, summary = p.stdout.splitlines()
    rest = [models / "m/empty.txt", models / "m/odd\nname"]
    assert out["not_compared_files"] == [str(f) for f in rest]
    assert others == ["not compared: " + str(f).replace("\n", "\\x0a") for f in rest]
    assert line.startswith("MISMATCH") and str(bad) in line and was.hex() in line and now in line
    assert "1 mismatch, 0 unreadable" in summary
    assert "restore the file" in p.stderr and p.stderr.count("\n") == 1


def test_a_log_that_is_not_to_be_trusted(models, tmp_path):
    """A record with a wrong checksum, and a log that others could have written, do not count."""
    state = tmp_path / "state"
    bad = models / "m" / "model.safetensors"
    broken = bytearray(record(bad, hashlib.sha256(b"what it was").digest()))
    broken[50] ^= 1
    write_log(state, [bytes(broken)])
    assert as_json(models, "--state-dir", state)["recorded"] == 0
    os.chmod(state, 0o777)
    p = verify(models, "--state-dir", state)
    assert p.returncode == 1 and "there is no sub-directory" in p.stderr and p.stdout == ""


def test_a_change_makes_another_file(models, tmp_path):
    """A byte is changed and the mtime restored: the ctime differs, so the record is not of this file, and a server
    hashes the file again. Only names in a cache can show the change."""
    state = tmp_path / "state"
    serve_until_hashed(models, state)
    path = models / "m" / "model.safetensors"
    st = path.stat()
    with open(path, "r+b") as f:
        f.seek(5000)
        f.write(b"\xff\xff")
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
    out = as_json(models, "--state-dir", state)
    assert (out["files"], out["recorded"], out["mismatches"]) == (4, 3, 0)


# ---------------------------------------------------------------------------------------- Hugging Face caches

@pytest.fixture
def cache(tmp_path):
    """models--org--name with two revisions, one of whose blobs they share."""
    folder = tmp_path / "hub" / "models--org--name"
    files = {"model.safetensors": pattern(300000, 1), "config.json": b"{}", "tokenizer.model": pattern(5000, 2)}
    blobs = {}
    (folder / "blobs").mkdir(parents=True)
    for name, data in files.items():
        blob = git_sha1(data) if name == "config.json" else hashlib.sha256(data).hexdigest()
        (folder / "blobs" / blob).write_bytes(data)
        blobs[name] = blob
    for commit, names in (("a" * 40, files), ("b" * 40, ["config.json", "model.safetensors"])):
        (folder / "snapshots" / commit).mkdir(parents=True)
        for name in names:
            (folder / "snapshots" / commit / name).symlink_to(f"../../blobs/{blobs[name]}")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("a" * 40)
    age(tmp_path / "hub")
    return folder, blobs


def test_names_of_a_cache(cache):
    folder, blobs = cache
    out = as_json(folder.parent)
    assert out == {
        "problems": [], "files": 3, "bytes": 305002, "recorded": 0, "blob_names": 3, "not_compared": 0, "mismatches": 0,
        "unreadable": 0, "not_compared_files": []
    }
    one = as_json(folder / "snapshots" / ("b" * 40))
    assert (one["files"], one["blob_names"]) == (2, 2)
    p = verify(folder.parent)
    assert p.returncode == 0 and p.stderr == "" and "3 files" in p.stdout


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
# shows: security.md digest-wrong-blob
def test_a_changed_blob(cache, name):
    folder, blobs = cache
    path = folder / "blobs" / blobs[name]
    st = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
    found = git_sha1(data) if len(blobs[name]) == 40 else hashlib.sha256(data).hexdigest()
    out = as_json(folder.parent)
    assert out["mismatches"] == 1 and out["files"] == 3
    problem = out["problems"][0]
    assert problem.pop("file").endswith(f"/{name}")
    assert problem == {"problem": "blob_name", "blob": str(path), "expected": blobs[name], "found": found}
    p = verify(folder.parent)
    assert p.returncode == 1 and f"its blob {path} hashes to {found}" in p.stdout and "delete the blob" in p.stderr


def test_a_revision_that_is_not_served_counts_too(cache):
    folder, blobs = cache
    data = b"only in the other revision"
    name = hashlib.sha256(b"another").hexdigest()
    (folder / "blobs" / name).write_bytes(data)
    (folder / "snapshots" / ("b" * 40) / "extra.bin").symlink_to(f"../../blobs/{name}")
    out = as_json(folder.parent)
    assert [p["file"] for p in out["problems"]] == [str(folder / "snapshots" / ("b" * 40) / "extra.bin")]


# ------------------------------------------------------------------------------------------------- the rest

def test_what_cannot_be_read(models, tmp_path):
    os.mkfifo(models / "m" / "fifo")
    (models / "m" / "out").symlink_to("/etc/hostname")
    (models / "m" / "gone").symlink_to("nowhere")
    out = as_json(models)
    assert out["unreadable"] >= 2 and out["files"] == 4 and out["mismatches"] == 0
    files = {os.path.basename(p["file"]): p["message"] for p in out["problems"] if p["problem"] == "unreadable"}
    assert "regular file" in files["fifo"] and "outside" in files["out"]
    p = verify(models)
    assert p.returncode == 1 and p.stdout.count("UNREADABLE") == out["unreadable"]


def test_names_are_safe_to_print(models, tmp_path):
    state = tmp_path / "state"
    write_log(state, [record(models / "m" / "odd\nname", b"\0" * 32)])
    p = verify(models, "--state-dir", state)
    assert p.stdout.count("\n") == 2 + 3 and "odd\\x0aname" in p.stdout
    assert as_json(models, "--state-dir", state)["problems"][0]["file"].endswith("odd\nname")


def test_nothing_to_compare_with(models, tmp_path):
    p = verify(models)
    assert p.returncode == 3 and "nothing to compare with: no --state-dir" in p.stderr
    (tmp_path / "state").mkdir(mode=0o700)
    p = verify(models, "--state-dir", tmp_path / "state")
    assert p.returncode == 3 and "no digest of these files is recorded in" in p.stderr
    assert list((tmp_path / "state").iterdir()) == []


def test_files_that_could_not_be_compared(models, tmp_path):
    """JSON names them all, text 20 of them. A file with several names stands there once."""
    state = tmp_path / "state"
    write_log(state, [record(models / "m/config.json", hashlib.sha256(b"{}").digest())])
    for i in range(30):
        (models / f"m/more-{i:02}").write_text(str(i))
    os.link(models / "m/more-07", models / "m/z-link")
    names = sorted(str(f) for f in (models / "m").iterdir() if f.name not in ("config.json", "z-link"))
    out = as_json(models, "--state-dir", state)
    assert out["not_compared_files"] == names and out["not_compared"] == len(names) == 33
    p = verify(models, "--state-dir", state)
    assert p.returncode == 0 and p.stderr == "", p
    assert p.stdout.splitlines()[:-1] == [
        *("not compared: " + name.replace("\n", "\\x0a") for name in names[:20]), "not compared: and 13 more"]
    p = verify(models)
    assert p.returncode == 3 and p.stdout.count("\n") == 1, "all files: the summary suffices"
    assert as_json(models)["not_compared_files"] == sorted([*names, str(models / "m/config.json")])


def test_the_state_directory_of_the_environment(models, tmp_path):
    """The variable is read as by serve: the option comes before it, and an empty variable counts as unset."""
    state, other = tmp_path / "state", tmp_path / "other"
    other.mkdir(mode=0o700)
    write_log(state, [record(models / "m" / "config.json", hashlib.sha256(b"{}").digest())])
    p = verify(models, TENSORD_STATE_DIR=state)
    assert p.returncode == 0 and "1 compared with recorded digests" in p.stdout and p.stderr == "", p
    p = verify(models, "--state-dir", state, TENSORD_STATE_DIR=other)
    assert p.returncode == 0 and "1 compared with recorded digests" in p.stdout, p
    p = verify(models, TENSORD_STATE_DIR=other)
    assert p.returncode == 3 and f"recorded in {other} (TENSORD_STATE_DIR): is it" in p.stderr, p
    p = verify(models, "--state-dir", other, TENSORD_STATE_DIR=state)
    assert p.returncode == 3 and f"recorded in {other}: is it" in p.stderr, p
    for args, env in ((["--state-dir="], {"TENSORD_STATE_DIR": state}), ([], {"TENSORD_STATE_DIR": ""})):
        p = verify(models, *args, **env)
        assert p.returncode == 3 and "no --state-dir is given" in p.stderr, p


def test_blobs_without_their_snapshots(cache):
    """Names are compared where snapshots link to them, so the message names the folder that has them."""
    folder, _ = cache
    p = verify(folder / "blobs")
    assert p.returncode == 3 and p.stderr.count("\n") == 1 and f"verify {folder} instead" in p.stderr, p
    assert verify(folder).stderr == ""
    (folder.parent / "plain" / "blobs").mkdir(parents=True)
    (folder.parent / "plain" / "blobs" / "x").write_text("x")
    assert "these are not files of a Hugging Face cache" in verify(folder.parent / "plain" / "blobs").stderr


@pytest.mark.parametrize("args", [[], ["a", "b"], ["a", "--state-dir"], ["a", "--what"]])
def test_usage(args):
    p = verify(*args)
    assert p.returncode == 2 and "usage: tensord verify DIR [--state-dir DIR] [--json]" in p.stderr and p.stdout == ""


def test_directories_that_are_not_there(tmp_path):
    p = verify(tmp_path / "no")
    assert p.returncode == 1 and p.stderr == f'tensord: "{tmp_path / "no"}" does not exist\n'
    (tmp_path / "file").write_text("")
    p = verify(tmp_path / "file")
    assert p.returncode == 1 and p.stderr == f'tensord: "{tmp_path / "file"}" is not a directory\n'
    (tmp_path / "file").unlink()
    p = verify(tmp_path, "--state-dir", tmp_path / "no")
    assert p.returncode == 1 and "--state-dir" in p.stderr
    p = verify(tmp_path)
    assert p.returncode == 3 and p.stdout.startswith("0 files")


def test_a_full_disk_for_the_answer(models):
    with open("/dev/full", "w") as full:
        p = subprocess.run([str(tensord_binary()), "verify", str(models)], stdout=full, stderr=subprocess.PIPE,
                           text=True, timeout=60)
    assert p.returncode == 1 and "cannot write" in p.stderr


def test_progress_in_bytes_on_a_terminal(tmp_path):
    with open(tmp_path / "large.bin", "wb") as f:
        f.truncate(6 * GIB)
    seen = shown_on_terminal(["verify", tmp_path], b"\x1b[K")
    assert b"\rtensord: verifying, " in seen and b"of 6.00 GiB hashed" in seen
