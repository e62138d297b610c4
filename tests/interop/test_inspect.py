"""The output of tensord inspect for people."""
import json
import os
import pty
import re
import select
import subprocess
import zipfile

import numpy as np
import pytest
import torch

from harness import Server, age, is_sanitized, tensor, tensord_binary, write_by_hand


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A directory that takes longer than a second to read, in every build."""
    root = tmp_path_factory.mktemp("slow")
    n = 100000 if is_sanitized(tensord_binary()) else 400000
    text = "{" + ",".join(f'"t{i:07}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{i + 1}]}}'
                          for i in range(n)) + "}"
    first = root / "0.safetensors"
    first.write_bytes(len(text).to_bytes(8, "little") + text.encode() + bytes(n))
    for k in range(1, 12):  # links are files of their own, and each is read
        os.link(first, root / f"{k}.safetensors")
    return root


def test_a_line_of_progress(slow):
    p = subprocess.run([str(tensord_binary()), "inspect", str(slow), "--json"], stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE, timeout=120)
    lines = p.stderr.decode().splitlines()
    assert p.returncode == 0 and len(lines) >= 1
    assert all("checkpoint files read" in line and str(slow) in line for line in lines), lines


def test_on_a_terminal_it_is_renewed_in_place(slow):
    ours, theirs = pty.openpty()
    p = subprocess.Popen([str(tensord_binary()), "inspect", str(slow), "--json"], stdout=subprocess.DEVNULL,
                         stderr=theirs)
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
    p = subprocess.run([str(tensord_binary()), "inspect", str(tmp_path)], stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE, timeout=60)
    assert p.returncode == 0 and p.stderr == b""


def inspect(*args):
    p = subprocess.run([str(tensord_binary()), "inspect", *map(str, args)], capture_output=True, text=True, timeout=60)
    assert p.returncode == 0 and p.stderr == "", p.stderr
    return p.stdout


def test_the_table_of_one_file(tmp_path):
    """The first line names the file, so there is no column for it. An empty name is shown as such, and long metadata is
    cut."""
    path = tmp_path / "m/one.safetensors"
    write_by_hand(path, [tensor("", "U8", [7]), tensor("weight", "F32", [2, 3])],
                  metadata={"short": "é" * 98, "long": "é" * 99})
    out = inspect(path.parent)
    lines = out.splitlines()
    head = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    assert lines[0] == "one.safetensors  checkpoint safetensors, format safetensors, 2 tensors, 31 B in one.safetensors"
    assert lines[1:4] == ["  NAME    DTYPE  SHAPE  BYTES  OFFSET",
                          f'  ""      U8     [7]        7  {head:>6}',
                          f"  weight  F32    [2,3]     24  {head + 7:>6}"]
    assert '  metadata short = "' + "é" * 98 + '"' in lines and '  metadata long = "' + "é" * 99 + "..." in lines
    (manifest,) = json.loads(inspect(tmp_path / "m", "--json"))["models"]
    assert manifest["metadata"]["long"] == "é" * 99


def test_the_table_of_several_files(tmp_path):
    """The files are numbered, and named below the table."""
    shards = ["a-00001-of-00002.safetensors", "a-00002-of-00002.safetensors"]
    write_by_hand(tmp_path / "m" / shards[0], [tensor("x", "U8", [1]), tensor("z", "U8", [1])])
    write_by_hand(tmp_path / "m" / shards[1], [tensor("y", "U8", [1])])
    lines = inspect(tmp_path).splitlines()
    assert lines[0].endswith("3 tensors, 3 B in 2 files") and lines[1] == "  NAME  DTYPE  SHAPE  BYTES  OFFSET  FILE"
    assert [(line.split()[0], line.split()[-1]) for line in lines[2:5]] == [("x", "1"), ("y", "2"), ("z", "1")]
    assert lines[5:7] == [f"  file {i + 1} = {name}" for i, name in enumerate(shards)]


def test_the_notes_of_a_table(tmp_path):
    """Notes have a column when there are any; a tensor that cannot be served is in no total."""
    np.savez(tmp_path / "a.npz", plain=np.zeros((2, 3), np.float32),
             turned=np.asfortranarray(np.zeros((2, 3), np.float32)))
    np.savez_compressed(tmp_path / "b.npz", packed=np.zeros((2, 3), np.float32))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as a, zipfile.ZipFile(tmp_path / "b.npz") as b:
        a.writestr("packed.npy", b.read("packed.npy"), zipfile.ZIP_DEFLATED)
    lines = inspect(tmp_path / "a.npz").splitlines()
    assert "3 tensors, 72 B in" in lines[0]
    at = lines[1].index("NOTE")
    assert {line.split()[0]: line[at:] for line in lines[2:5]} == {
        "packed": "decoded: compressed (deflate)", "plain": "", "turned": "strides [1,2]"}
    assert [line.split() for line in lines[5:6]] == [["total", "F32", "3", "tensors", "72", "B"]]


def test_json_of_a_directory_is_one_line(tmp_path):
    for name in "ab":
        write_by_hand(tmp_path / f"{name}.safetensors", [tensor("x", "U8", [1])])
    out = inspect(tmp_path, "--json")
    assert out.count("\n") == 1 and out.endswith("]}\n") and len(json.loads(out)["models"]) == 2
    one = inspect(tmp_path / "a.safetensors", "--json")
    assert one.count("\n") == 1 and json.loads(one)["model"] == "a.safetensors"


def test_what_is_said_of_files_directly_in_the_directory(tmp_path):
    """Files are named by their own path, whatever the model's name is."""
    write_by_hand(tmp_path / "a-00001-of-00002.safetensors", [tensor("x", "U8", [1])])
    p = subprocess.run([str(tensord_binary()), "inspect", str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert p.returncode == 1 and p.stderr.startswith("tensord: a-00001-of-00002.safetensors: shard 2 of 2"), p.stderr


def test_wrong_usage_is_one_plain_sentence():
    for args in ([], ["--x"], ["a", "b"]):
        p = subprocess.run([str(tensord_binary()), "inspect", *args], capture_output=True, text=True, timeout=60)
        assert p.returncode == 2 and p.stderr.endswith(
            "; usage: tensord inspect FILE|DIR [--json] [--no-sandbox]\n") and "?;" not in p.stderr, p.stderr


def test_a_snapshot_of_a_hugging_face_cache(tmp_path):
    """Its files are symlinks to blobs outside it. inspect shows it as a server on the cache would. Serving it alone is
    refused, with advice."""
    folder = tmp_path / "hub/models--org--name"
    snapshot = folder / "snapshots/c1"
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir()
    write_by_hand(folder / "blobs/aaa", [tensor("w", "F32", [2])])
    (snapshot / "model.safetensors").symlink_to("../../blobs/aaa")
    (tmp_path / "latest").symlink_to(snapshot)
    for path in (snapshot, tmp_path / "latest"):
        p = subprocess.run([str(tensord_binary()), "inspect", str(path), "--json"], capture_output=True, text=True,
                           timeout=60)
        assert p.returncode == 0 and p.stderr == "", p.stderr
        (manifest,) = json.loads(p.stdout)["models"]
        assert manifest["model"] == "org/name" and [t["name"] for t in manifest["tensors"]] == ["w"]
    for p in folder.rglob("*"):
        age(p)
    with Server(snapshot) as s:
        assert any("serve the folder that holds models--org--name" in e["message"]
                   for e in s.json("/models/model.safetensors")["errors"])
    with Server(tmp_path / "hub") as s:
        assert s.json("/models/org/name/tensors")["tensors"][0]["name"] == "w"


def test_libraries_are_shared():
    """The program has no copy of them inside, so that a security update of the system reaches it."""
    def run(*args):
        return subprocess.run([*args, str(tensord_binary())], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(\w+)", run("readelf", "-d")))
    assert needed >= {"libcjson", "libcrypto", "libdeflate", "liblz4", "libmicrohttpd", "libyaml", "libz"}, needed
    from_outside = set(re.findall(r" U (\w+)", run("nm", "-D", "--undefined-only")))
    assert from_outside >= {"SHA256_Update", "libdeflate_free_decompressor", "LZ4F_decompress", "MHD_start_daemon",
                            "yaml_parser_parse", "inflate"}
    assert "dlopen" not in from_outside
    assert re.search(r"^libmicrohttpd \d+\.\d+", subprocess.run([str(tensord_binary()), "--version"], text=True,
                     capture_output=True, check=True).stdout, re.M)


@pytest.mark.parametrize("names", [["m-00001-of-00002.pth", "m-00002-of-00002.pth"], ["a.pth", "b.pth"]])
def test_totals_past_64_bits(tmp_path, names):
    """The tensors of a file have at most 2^64-1 bytes, but those of two files may have more: of one set, or of two."""
    for k, name in enumerate(names):
        vast = torch.zeros(1, dtype=torch.uint8).expand(2 ** 62)
        (tmp_path / "m").mkdir(exist_ok=True)
        torch.save({f"t{k}.{i}": vast for i in range(3)}, tmp_path / "m" / name)
    p = subprocess.run([str(tensord_binary()), "inspect", str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert p.returncode == 1 and p.stderr.count("\n") == 1 and "more than 2^64-1 bytes" in p.stderr, p.stderr
    shown = [line for line in p.stdout.splitlines() if "  checkpoint " in line]
    assert len(shown) == (0 if names[0].startswith("m-") else 1) and all("12288.00 PiB" in line
                                                                         for line in shown), shown


def test_one_long_name_does_not_widen_the_table(tmp_path):
    """The name is cut, and shifts only its own row."""
    names = ["é" * 150, "é" * 200, "é" * 201, "w" * 10000] + [f"layer.{i}" for i in range(1000)]
    write_by_hand(tmp_path / "a.safetensors", [tensor(n, "U8", [1]) for n in names])
    lines = inspect(tmp_path / "a.safetensors").splitlines()
    rows = {line.split()[0]: line for line in lines[2:2 + len(names)]}
    assert set(rows) == set(names[:2]) | {names[2][:200] + "...", names[3][:200] + "..."} | set(names[4:])
    assert all(len(row) < 150 for name, row in rows.items() if name.startswith("layer"))
    assert all(row.split()[1:3] == ["U8", "[1]"] for row in rows.values())
