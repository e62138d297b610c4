"""tensord inspect as a person sees it."""
import json
import os
import pty
import select
import subprocess

import pytest

from harness import Server, age, is_sanitized, tensor, tensord_binary, write_by_hand


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A directory that takes longer than a second to read, whatever the build."""
    root = tmp_path_factory.mktemp("slow")
    n = 200000 if is_sanitized(tensord_binary()) else 400000
    text = "{" + ",".join(f'"t{i:07}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{i + 1}]}}' for i in range(n)) + "}"
    first = root / "0.safetensors"
    first.write_bytes(len(text).to_bytes(8, "little") + text.encode() + bytes(n))
    for k in range(1, 12):  # links are files of their own, each of which is read
        os.link(first, root / f"{k}.safetensors")
    return root


def test_a_line_of_progress(slow):
    p = subprocess.run([str(tensord_binary()), "inspect", str(slow), "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=120)
    lines = p.stderr.decode().splitlines()
    assert p.returncode == 0 and len(lines) >= 1
    assert all("checkpoint files read" in line and str(slow) in line for line in lines), lines


def test_on_a_terminal_it_is_renewed_in_place(slow):
    ours, theirs = pty.openpty()
    p = subprocess.Popen([str(tensord_binary()), "inspect", str(slow), "--json"], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        ready, _, _ = select.select([ours], [], [], 120)
        assert ready, "no end"
        try:
            more = os.read(ours, 65536)
        except OSError:
            break
        if not more:
            break
        seen += more
    os.close(ours)
    assert p.wait(60) == 0
    assert seen.count(b"\r") >= 2 and b"\n" not in seen and seen.endswith(b"\r\x1b[K"), seen[-300:]


def test_a_quick_one_is_silent(tmp_path):
    (tmp_path / "a.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    p = subprocess.run([str(tensord_binary()), "inspect", str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60)
    assert p.returncode == 0 and p.stderr == b""


def test_a_snapshot_of_a_hugging_face_cache(tmp_path):
    """Its files are symlinks to blobs beside it; it is shown as a server on the cache shows it. Serving it alone is refused
    with what to do."""
    folder = tmp_path / "hub/models--org--name"
    snapshot = folder / "snapshots/c1"
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir()
    write_by_hand(folder / "blobs/aaa", [tensor("w", "F32", [2])])
    (snapshot / "model.safetensors").symlink_to("../../blobs/aaa")
    (tmp_path / "latest").symlink_to(snapshot)
    for path in (snapshot, tmp_path / "latest"):
        p = subprocess.run([str(tensord_binary()), "inspect", str(path), "--json"], capture_output=True, text=True, timeout=60)
        assert p.returncode == 0 and p.stderr == "", p.stderr
        (manifest,) = json.loads(p.stdout)["models"]
        assert manifest["model"] == "org/name" and [t["name"] for t in manifest["tensors"]] == ["w"]
    for p in folder.rglob("*"):
        age(p)
    with Server(snapshot) as s:
        assert any("serve the folder that holds models--org--name" in e["message"] for e in s.json("/models/model.safetensors")["errors"])
    with Server(tmp_path / "hub") as s:
        assert s.json("/models/org/name/tensors")["tensors"][0]["name"] == "w"


@pytest.mark.parametrize("library", ["no library", "one without functions"])
def test_libmicrohttpd_is_needed_to_serve_alone(tmp_path, library):
    """It is loaded by `serve`: what is wrong with it disturbs nothing else."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "a.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    ldd = subprocess.run(["sh", "-c", "ldconfig -p | grep -o 'libmicrohttpd[^ ]*' | head -1"], capture_output=True, text=True, check=True)
    path = tmp_path / ldd.stdout.strip()
    if library == "no library":
        path.write_text("rubbish")
    else:
        subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", str(path)], check=True)
    def run(*args):
        return subprocess.run([str(tensord_binary()), *args], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert run("inspect", str(tmp_path / "m")).returncode == 0
    for args in (("serve", str(tmp_path / "m"), "--listen", "127.0.0.1:0"), ("--version",)):
        p = run(*args)
        assert p.returncode == 1 and p.stderr.count("\n") == 1 and "libmicrohttpd" in p.stderr, (p.returncode, p.stderr)
