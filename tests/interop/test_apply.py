"""`tensord apply`: full versions out of a base and deltas of slime and ModelExpress, and what it refuses."""
import json
import os
import pty
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import zstandard
from safetensors.numpy import save_file

from deltas import (CHECKSUMS, INDEX, assert_equal, encode, frame, raw, read_full, step, tensors, write_delta,
                    write_full, write_skyrl_delta)
from harness import release_binary, tensord_binary
from harness import frame as safetensors_frame
from pulls import environment, outputs_of, tree_of


def start(*args, binary=None, **kw):
    return subprocess.Popen([binary or tensord_binary(), "apply", *map(str, args)], text=True, env=environment(),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)


def apply(*args, code=0, timeout=120, **kw):
    """Run the command with --json. Return the object and standard error."""
    out, err = outputs_of(start(*args, "--json", **kw), code, timeout)
    return json.loads(out) if code != 2 else None, err


def state_of(folder):
    """Return what must not change of a directory that is only read: names, contents, times."""
    return {str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_ctime_ns)
            for p in sorted(folder.rglob("*")) if p.is_file()}


class Run:
    """Versions of a run: folders weight_v000000 (full) and after it deltas, with the tensors of each."""

    def __init__(self, at, **full):
        self.at, self.all = at, [tensors()]
        self.base = write_full(at / "weight_v000000", self.all[0], **full)

    def add(self, new=None, **delta):
        number = len(self.all)
        new = step(self.all[-1], seed=number) if new is None else new
        folder = write_delta(self.at / f"weight_v{number:06d}", self.all[-1], new, f"{number:06d}",
                             f"{number - 1:06d}", **delta)
        self.all.append(new)
        return folder


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "run")


@pytest.fixture
def out(tmp_path):
    (tmp_path / "made").mkdir()
    return tmp_path / "made/out"


def refused(out, *args, says, code=1):
    """Apply, which must be refused with this text: no OUT, nothing beside it, and nothing that is read changes."""
    folders = [a for a in args if isinstance(a, os.PathLike)]
    before = [state_of(f) for f in folders]
    beside = sorted(os.listdir(out.parent))
    report, err = apply(*args, "-o", out, code=code)
    assert says in err and len(err.splitlines()) == 1, err
    assert report["complete"] is False and report["error"] in err
    assert sorted(os.listdir(out.parent)) == beside
    assert [state_of(f) for f in folders] == before
    return err


# ------------------------------------------------------------------------------------------------ SkyRL's deltas

@pytest.fixture
def skyrl(tmp_path):
    """A base, and its three next versions as SkyRL's deltas: (base, [folder], [tensors])."""
    all, folders = [tensors()], []
    base = write_full(tmp_path / "base", all[0], files=2)
    for n in range(1, 4):
        all.append(step(all[-1], n, names=list(all[0])[n - 1:]))
        folders.append(write_skyrl_delta(tmp_path / f"sync/delta-{n:08d}", all[-2], all[-1], n, n - 1, files=n))
    return base, folders, all


def test_skyrl(skyrl, out):
    base, folders, all = skyrl
    before = [state_of(f) for f in (base, *folders)]
    report, err = apply("--base-version", "0", base, *folders, "-o", out)
    got, said = read_full(out)
    assert_equal(got, all[3])
    assert err == "" and said["version"] == "3" and [state_of(f) for f in (base, *folders)] == before
    assert report["base_version"] == "0" and report["deltas"] == 3
    assert sorted(tree_of(out)) == sorted(tree_of(base))        # nothing of the deltas, such as manifest.json
    apply("--base-version", "0", base, folders[0], "-o", out.parent / "one")
    apply(out.parent / "one", *folders[1:], "-o", out.parent / "two")
    assert tree_of(out.parent / "two") == tree_of(out)


def test_a_skyrl_delta_without_changes(skyrl, out, tmp_path):
    base, folders, all = skyrl
    same = write_skyrl_delta(tmp_path / "sync/delta-00000004", all[3], all[3], 4, 3)
    apply("--base-version", "0", base, *folders, same, "-o", out)
    got, said = read_full(out)
    assert_equal(got, all[3])
    assert said["version"] == "4"


def test_the_order_of_skyrl(skyrl, out):
    base, folders, _ = skyrl
    refused(out, base, folders[0], says="say it by --base-version")
    refused(out, "--base-version", "0", base, folders[1], says='is for version "1"')
    refused(out, "--base-version", "0", base, folders[0], folders[2], says="before it makes version")


@pytest.mark.parametrize(("changes", "says"), [
    ({"version": None}, 'it lacks "version"'),
    ({"base_version": None}, 'it lacks "version", "base_version"'),
    ({"base_version": "0"}, "a version must be a number"),
    ({"base_version": -1}, "manifest.json"),
    ({"tensors": None}, 'or "tensors"'),
    ({"tensors": {}}, "must be one list"),
    ({"tensors": [1]}, "a tensor must be an object"),
    ({"tensors": [{}]}, 'a tensor has no "name"'),
    ({"records": {"layers.0.w": {"payload_key": "layers.0.norm"}}}, "is not its name"),
    ({"records": {"layers.0.w": {"payload_file": "/etc/passwd"}}}, "does not lead to a file below"),
    ({"records": {"layers.0.w": {"payload_file": "../x.safetensors"}}}, "does not lead to a file below"),
    ({"records": {"layers.0.w": {"payload_file": "gone.safetensors"}}}, "gone.safetensors"),
    ({"records": {"layers.0.w": {"payload_file": 7}}}, "must be a text"),
    ({"records": {"layers.0.w": {"checksum": "0" * 31}}}, "manifest.json has no checksum"),
    ({"records": {"layers.0.w": {"checksum": "0" * 32}}}, "the checksum of the new bytes is"),
    ({"records": {"layers.0.w": {"checksum_algorithm": "sha256"}}}, "checksums of several kinds"),
    ({"records": {"layers.0.w": {"name": "unknown", "payload_key": "unknown"}}}, "unknown"),
    ({"records": {"layers.0.w": {"name": "scalar", "payload_key": "scalar"}}}, "twice"),
])
def test_a_skyrl_delta_that_is_wrong(skyrl, out, tmp_path, changes, says):
    base, _, all = skyrl
    folder = write_skyrl_delta(tmp_path / "wrong", all[0], all[1], 1, 0, **changes)
    refused(out, "--base-version", "0", base, folder, says=says)


def test_skyrl_by_sha256(skyrl, out, tmp_path):
    base, _, all = skyrl
    folder = write_skyrl_delta(tmp_path / "wrong", all[0], all[1], 1, 0, records={
        name: {"checksum_algorithm": "sha256"} for name in all[1]})
    refused(out, "--base-version", "0", base, folder, says='checksum_format "sha256" is unknown')


def test_no_manifest_and_no_index(skyrl, out, tmp_path):
    base, _, _ = skyrl
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/manifest.json").write_text('{"name": "of another program"}')
    refused(out, "--base-version", "0", base, tmp_path / "empty", says="which SkyRL's manifests have")


# ------------------------------------------------------------------------------------------------- what is made

@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
@pytest.mark.parametrize("checksum", ["xxh3-128", "adler32"])
@pytest.mark.parametrize("files", [0, 1, 3])
def test_one_delta(tmp_path, out, encoding, checksum, files):
    run = Run(tmp_path / "run", files=files)
    delta = run.add(delta_encoding=encoding, checksum_format=checksum, shards=2)
    before = [state_of(run.base), state_of(delta)]
    report, err = apply(run.base, delta, "-o", out)
    got, said = read_full(out)
    assert_equal(got, run.all[1])
    assert err == "" and [state_of(run.base), state_of(delta)] == before
    assert said == {"total_size": sum(a.nbytes for a in run.all[1].values()), "version": "000001"}
    tree, base = tree_of(out), tree_of(run.base)
    assert set(tree) == set(base) | {INDEX}
    assert all(tree[name] == base[name] for name in ("config.json", "tokenizer/vocab.txt"))
    assert sorted(os.listdir(out.parent)) == ["out"]
    changed = [n for n in run.all[0] if n != "none"]
    assert report == {"base": str(run.base), "deltas": 1, "directory": str(out), "complete": True,
                      "base_version": "0", "version": "000001", "tensors": 7, "changed_tensors": len(changed),
                      "tensor_bytes": said["total_size"], "changed_tensor_bytes": said["total_size"],
                      "file_bytes": sum(len(data) for name, data in base.items() if name != INDEX),
                      "seconds": report["seconds"]}


def test_a_chain_of_both_encodings(run, out):
    """Each tensor changes in some of the deltas, and one in none."""
    names = [n for n in run.all[0] if n not in ("none", "layers.0.w")]
    chain = [run.add(step(run.all[-1], i, names=names[i % 3:]), delta_encoding=("xor", "overwrite")[i % 2],
                     checksum_format=("xxh3-128", "adler32")[i // 2 % 2], shards=1 + i % 3) for i in range(8)]
    apply(run.base, *chain, "-o", out)
    got, said = read_full(out)
    assert_equal(got, run.all[8])
    assert said["version"] == "000008"
    # in two steps: the version that was made is the base of the next
    apply(run.base, *chain[:3], "-o", out.parent / "half")
    apply(out.parent / "half", *chain[3:], "-o", out.parent / "whole")
    assert tree_of(out.parent / "whole") == tree_of(out)


def test_a_delta_without_changes(run, out):
    """Nothing changed: `{}` and no file, alone and in a chain."""
    empty = run.add(dict(run.all[0]))
    assert sorted(os.listdir(empty)) == [INDEX]
    apply(run.base, empty, "-o", out)
    got, said = read_full(out)
    assert_equal(got, run.all[0])
    assert said["version"] == "000001"
    apply(run.base, empty, run.add(), run.add(dict(run.all[-1])), "-o", out.parent / "more")
    assert_equal(read_full(out.parent / "more")[0], run.all[3])


def test_overwrite_may_be_applied_twice(run, out):
    """Once more to what it made: the same bytes, since a position gets its new byte whatever is there."""
    delta = run.add(delta_encoding="overwrite")
    apply(run.base, delta, "-o", out)
    apply("--base-version", "000000", out, delta, "-o", out.parent / "again")
    assert tree_of(out.parent / "again") == tree_of(out)


def test_overwrite_of_every_byte_and_in_any_order(run, out):
    new = {**run.all[0], "layers.0.w": 255 - run.all[0]["layers.0.w"]}
    at = np.random.default_rng(5).permutation(2100).astype("<u4")
    content = struct.pack("<I", 2100) + at.tobytes() + raw(new["layers.0.w"])[at].tobytes()
    apply(run.base, run.add(new, delta_encoding="overwrite", frames={"layers.0.w": frame(content)}), "-o", out)
    assert_equal(read_full(out)[0], new)


def test_tied_tensors_change_by_their_own_names(run, out):
    """Of two equal tensors one changes; and a tied name that the base has not is refused."""
    new = step(run.all[0], 3, names=["lm_head.weight"])
    apply(run.base, run.add(new), "-o", out)
    assert_equal(read_full(out)[0], new)
    untied = {n: a for n, a in run.all[0].items() if n != "lm_head.weight"}
    base = write_full(run.at / "untied/weight_v000000", untied)
    refused(out.parent / "no", base, run.at / "weight_v000001", says='"lm_head.weight": the base')


def test_frames_of_every_form(run, out):
    """Frames without the length of their content, with a checksum, of many blocks, and with a window as long as the
    content: RFC 8878 allows all of them."""
    new = step(run.all[0], 4)
    names = [n for n in new if n != "none"]
    forms = [{"write_content_size": False}, {"write_checksum": True}, {"level": 19}, {"level": 22, "enable_ldm": True},
             {"window_log": 10}, {"level": -5}]
    frames = {}
    for name, form in zip(names, forms, strict=True):
        parameters = zstandard.ZstdCompressionParameters.from_level(form.pop("level", 1), **form)
        frames[name] = zstandard.ZstdCompressor(compression_params=parameters).compress(encode(run.all[0][name],
                                                                                              new[name], "xor"))
    apply(run.base, run.add(new, frames=frames), "-o", out)
    assert_equal(read_full(out)[0], new)


def test_the_version_of_the_base(tmp_path, out):
    """The option, else the index, else the number in the folder's name; numbers compare as numbers."""
    arrays, new = tensors(), step(tensors(), 1)
    delta = write_delta(tmp_path / "delta", arrays, new, "000008", "000007")
    opaque = write_delta(tmp_path / "opaque", arrays, new, "uid-b", "uid-a")
    by_index = write_full(tmp_path / "run/step-3", arrays, version="0007")
    by_name = [write_full(tmp_path / "run" / name, arrays)
               for name in ("weight_v000007", "step-7", "7", "checkpoint_0007", "v7")]
    nothing = write_full(tmp_path / "run/anything", arrays)
    for i, base in enumerate([by_index, *by_name]):
        apply(base, delta, "-o", out.parent / str(i))
        assert_equal(read_full(out.parent / str(i))[0], new)
    apply("--base-version", "7", nothing, delta, "-o", out.parent / "option")
    apply("--base-version=000007", by_index, delta, "-o", out.parent / "option2")
    apply("--base-version", "uid-a", by_index, opaque, "-o", out.parent / "opaque")
    assert read_full(out.parent / "opaque")[1]["version"] == "uid-b"
    refused(out, nothing, delta, says="say it by --base-version")
    refused(out, "--base-version", "8", by_name[0], delta, says='is for version "000007"')
    refused(out, "--base-version", "uid", by_name[0], opaque, says='is for version "uid-a"')
    refused(out, "--base-version", "uid-a", by_name[0], delta, says='is version "uid-a"')


def test_bases_by_symlinks(tmp_path, out):
    """A snapshot of a Hugging Face cache, and a version whose unchanged files are links to the version before."""
    run = Run(tmp_path / "run")
    delta = run.add()
    cache = tmp_path / "models--org--m"
    (cache / "blobs").mkdir(parents=True)
    snapshot = cache / "snapshots/weight_v000000"
    linked = tmp_path / "run/step-0"
    for path in sorted(p for p in run.base.rglob("*") if p.is_file()):
        name = path.relative_to(run.base)
        for link, target in ((snapshot / name, cache / "blobs" / str(name).replace("/", "-")), (linked / name, path)):
            link.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy(path, target)
            link.symlink_to(os.path.relpath(target, link.parent))
    for i, base in enumerate((snapshot, linked)):
        apply(base, delta, "-o", out.parent / str(i))
        assert_equal(read_full(out.parent / str(i))[0], run.all[1])
        assert not any(p.is_symlink() for p in (out.parent / str(i)).rglob("*"))
    (tmp_path / "secret").write_text("secret")
    (linked / "notes.txt").symlink_to(tmp_path / "secret")
    refused(out, linked, delta, says="notes.txt")


def test_a_base_on_another_file_system(tmp_path, out):
    """There the kernel neither shares bytes nor copies them by itself."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as there:
        assert os.stat(there).st_dev != os.stat(out.parent).st_dev
        run = Run(Path(there) / "run")
        apply(run.base, run.add(step(run.all[0], 1, names=["layers.1.w"])), "-o", out)
        assert_equal(read_full(out)[0], run.all[1])


def test_other_weights_are_left_out(run, out):
    """Weights to which the delta is not applied are not those of the new version. Names with a dot are not shown by a
    server either."""
    for name in ("consolidated.safetensors", "pytorch_model.bin", "gguf/model.gguf", ".cache/x", ".gitattributes"):
        (run.base / name).parent.mkdir(exist_ok=True)
        (run.base / name).write_bytes(b"x")
    _, err = outputs_of(start(run.base, run.add(), "-o", out), 0, 60)
    assert "3 files of the base" in err and "left out" in err
    assert set(tree_of(out)) == {INDEX, "config.json", "tokenizer/vocab.txt", "model-00001-of-00002.safetensors",
                                 "model-00002-of-00002.safetensors"}


def test_checksums_of_the_old_bytes_do_not_stay(tmp_path, out):
    """Full versions of ModelExpress have a checksum of each tensor, which is wrong for one that changed."""
    arrays = tensors()
    base = write_full(tmp_path / "weight_v000000", arrays, files=1, checksum_format="adler32")
    part = base / "model-00001-of-00001.safetensors"
    sums = {name: CHECKSUMS["adler32"](raw(a).tobytes()) for name, a in arrays.items()}
    save_file(arrays, part, metadata=sums)
    new = step(arrays, 1, names=["layers.0.w", "embed.weight"])
    apply(base, write_delta(tmp_path / "weight_v000001", arrays, new, "1", "0"), "-o", out)
    got, said = read_full(out)
    assert_equal(got, new)
    assert "checksum_format" not in said
    data = (out / part.name).read_bytes()
    header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    assert header["__metadata__"] == {name: " " * 8 if name in ("layers.0.w", "embed.weight") else text
                                      for name, text in sums.items()}


def test_the_index_keeps_what_it_says(tmp_path, out):
    arrays = tensors()
    base = write_full(tmp_path / "weight_v000000", arrays, version="000000", files=2)
    index = json.loads((base / INDEX).read_text())
    index = {"extra": [1, {"a": None}], **index, "last": "\u20ac\\"}
    index["metadata"]["total_size"] = 12345678901234567890
    index["metadata"]["note"] = {"deep": ["\n"]}
    (base / INDEX).write_text(json.dumps(index))
    apply(base, write_delta(tmp_path / "d", arrays, step(arrays, 1), "v\"1", "0"), "-o", out)
    index["metadata"]["version"] = 'v"1'
    assert json.loads((out / INDEX).read_text()) == index
    del index["metadata"]
    (base / INDEX).write_text(json.dumps(index))
    apply(base, tmp_path / "d", "-o", out.parent / "two")
    assert json.loads((out.parent / "two" / INDEX).read_text()) == {**index, "metadata": {"version": 'v"1'}}


def test_a_server_serves_what_is_made(tmp_path, serve):
    run = Run(serve.root / "run")
    apply(run.base, run.add(), "-o", serve.root / "made")
    server = serve()
    for name, array in run.all[1].items():
        if array.size:
            assert server.get(f"/models/made/tensors/{name}").body == raw(array).tobytes()


# ------------------------------------------------------------------------------------------------- what is refused

def test_out_is_there(run, out, tmp_path):
    delta = run.add()
    for make in (out.mkdir, lambda: (out / "x").write_text("x"), lambda: (shutil.rmtree(out), out.write_text("x")),
                 lambda: (out.unlink(), out.symlink_to("nowhere"))):
        make()
        refused(out, run.base, delta, says="is there already")
    refused(run.base, run.base, delta, says="is there already")
    refused(run.base / "inner", run.base, delta, says="would be inside")
    refused(delta / "inner", run.base, delta, says="would be inside")


def test_the_order_of_versions(run, out):
    one, two, three = run.add(), run.add(), run.add()
    refused(out, run.base, two, says='is for version "000001"')
    refused(out, run.base, one, three, says="before it makes version")
    refused(out, run.base, two, one, says='is for version "000001"')
    refused(out, run.base, one, one, says="before it makes version")
    refused(out, run.base, run.base, says="is no delta")
    refused(out, run.base, one, run.base, says="is no delta")
    refused(out, "--base-version", "0", one, one, says="is a delta")
    refused(out, run.base, run.at / "nothing", says="nothing")


@pytest.mark.parametrize(("changes", "says"), [
    ({"delta_encoding": "rle"}, 'delta_encoding "rle" is unknown'),
    ({"compression_format": "lz4"}, 'compression_format "lz4" is unknown'),
    ({"checksum_format": "blake3"}, 'checksum_format "blake3" is unknown'),
    ({"drop": ["compression_format"]}, 'no "compression_format"'),
    ({"drop": ["checksum_format"]}, 'no "checksum_format"'),
    ({"drop": ["delta_encoding"]}, "is no delta"),
    ({"drop": ["base_version"]}, 'no "base_version"'),
    ({"drop": ["version"]}, 'no "version"'),
    ({"base_version": None}, "must be a text"),
    ({"sums": {"layers.0.w": None}}, "no checksum"),
    ({"sums": {"layers.0.w": "0" * 31}}, "no checksum"),
    ({"sums": {"layers.0.w": "0" * 32}}, "the checksum of the new bytes is"),
    ({"frames": {"unknown": frame(b"x")}, "sums": {"unknown": "0" * 32}}, "has no such tensor"),
    ({"weight_map": {"missing": "model-00000-of-00001.safetensors"}}, "has no such tensor"),
    ({"weight_map": {"none": "model-00000-of-00001.safetensors"}}, "but it is not"),
    ({"weight_map": {"none": "../weight_v000000/model-00001-of-00002.safetensors"}}, "does not lead to a file below"),
    ({"weight_map": {"none": "/etc/passwd"}}, "does not lead to a file below"),
    ({"weight_map": {"none": "model-00009-of-00010.safetensors"}}, "model-00009-of-00010.safetensors"),
])
def test_a_delta_that_is_wrong(run, out, changes, says):
    for encoding in ("xor", "overwrite"):
        folder = run.at / encoding
        run.all[1:] = []
        shutil.rmtree(run.at / "weight_v000001", ignore_errors=True)
        run.add(**{"delta_encoding": encoding, **changes}).rename(folder)
        refused(out, run.base, folder, says=says)


def damaged():
    """Yields names of faults, and what makes the frame of layers.0.w (2,100 bytes) out of its content."""
    yield "no frame", lambda c: b"x" * 40, "do not begin with a zstd frame"
    yield "empty", lambda c: b"", "do not begin with a zstd frame"
    yield "cut header", lambda c: frame(c)[:5], "do not begin with a zstd frame"
    yield "skippable", lambda c: b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd" + frame(c), "do not begin with a zstd frame"
    yield "cut", lambda c: frame(c)[:-7], "zstd frame"
    yield "bytes after", lambda c: frame(c) + b"x", "bytes follow the zstd frame"
    yield "frame after", lambda c: frame(c) + frame(c), "bytes follow the zstd frame"
    yield "damaged", lambda c: frame(c)[:9] + b"\xff\xff\xff" + frame(c)[12:], "zstd frame"
    yield "too short", lambda c: frame(c[:-1]), "zstd frame ends too early"
    yield "too long", lambda c: frame(c + b"x" * 99999), "more than the"
    yield "too long, not said", lambda c: zstandard.ZstdCompressor(write_content_size=False).compress(c + b"x"), \
        "more bytes than expected"
    yield "dictionary", lambda c: frame(c)[:4] + b"\x01\x58\x07" + frame(c)[6:], "needs a dictionary"
    yield "window", lambda c: b"\x28\xb5\x2f\xfd\x00\xff" + frame(c)[8:], "needs a window"


@pytest.mark.parametrize(("spoil", "says"), [pytest.param(spoil, says, id=name) for name, spoil, says in damaged()])
@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_a_frame_that_is_wrong(run, out, encoding, spoil, says):
    new = step(run.all[0], 1)
    content = encode(run.all[0]["layers.0.w"], new["layers.0.w"], encoding)
    delta = run.add(new, frames={"layers.0.w": spoil(content)}, delta_encoding=encoding)
    err = refused(out, run.base, delta, says=says)
    assert '"layers.0.w"' in err and "model-00000-of-00001.safetensors" in err


@pytest.mark.parametrize(("content", "says"), [
    (struct.pack("<I", 3) + struct.pack("<III", 0, 1, 2100) + b"abc", "byte 2100 changes"),
    (struct.pack("<I", 1) + struct.pack("<I", 0xFFFFFFFF) + b"a", "byte 4294967295 changes"),
    (struct.pack("<I", 2101) + b"\0" * 2101 * 5, "more than the 10504 expected"),
    (struct.pack("<I", 0xFFFFFFFF) + b"\0" * 100, "4294967295 bytes change"),
    (struct.pack("<I", 3) + struct.pack("<III", 0, 1, 2) + b"ab", "ends too early"),
    (struct.pack("<I", 1) + struct.pack("<I", 0) + b"ab", "more bytes than expected"),
    (b"\1\0\0", "ends too early"),
])
def test_an_overwrite_that_is_wrong(run, out, content, says):
    delta = run.add(frames={"layers.0.w": frame(content)}, delta_encoding="overwrite")
    refused(out, run.base, delta, says=says)


def test_a_bomb_needs_no_memory(run, out):
    """A frame of 4 GiB of zeros in 130 KiB, which says so or not."""
    zeros, made = bytes(1 << 20), []
    for size in (4 << 30, -1):
        compressor = zstandard.ZstdCompressor(level=1).compressobj(size=size)
        made.append(b"".join(compressor.compress(zeros) for _ in range(4096)) + compressor.flush())
    new = step(run.all[0], 1)
    for i, bomb in enumerate(made):
        delta = write_delta(run.at / f"bomb{i}", run.all[0], new, "1", "0", frames={"layers.0.w": bomb})
        begin = time.monotonic()
        refused(out, run.base, delta, says=("more than the 2100 expected", "more bytes than expected")[i])
        assert time.monotonic() - begin < 60


def test_headers_that_lie(run, out):
    """Files of safetensors whose headers have wrong sizes, gaps, overlaps and names twice."""
    delta = run.add(step(run.all[0], 1, names=["layers.0.w"]))
    part = delta / "model-00000-of-00001.safetensors"
    good = part.read_bytes()
    n = struct.unpack("<Q", good[:8])[0]
    header, data = json.loads(good[8:8 + n]), good[8 + n:]
    size = len(data)

    def wrote(text, body=data, n=None):
        part.write_bytes(safetensors_frame(text if isinstance(text, bytes) else json.dumps(text).encode(), body, n))
        refused(out, run.base, delta, says=part.name)

    wrote(header, n=1 << 60)
    wrote(header, data[:-1])
    wrote(header, data + b"x")
    wrote({**header, "layers.0.w": {**header["layers.0.w"], "data_offsets": [0, size + 1]}})
    wrote({**header, "layers.0.w": {**header["layers.0.w"], "data_offsets": [1, size]}})
    wrote({**header, "layers.1.w": header["layers.0.w"]})           # the same bytes for two
    wrote(json.dumps(header).encode()[:-1] + b', "layers.0.w": ' + json.dumps(header["layers.0.w"]).encode() + b"}")
    wrote({**header, "layers.0.w": {"dtype": "I8", "shape": [size], "data_offsets": [0, size]}})
    wrote({**header, "layers.0.w": {"dtype": "U8", "shape": [1, size], "data_offsets": [0, size]}})
    wrote({**header, "more": {"dtype": "U8", "shape": [0], "data_offsets": [size, size]}})
    wrote({**header, "__metadata__": {"layers.0.w": 7}})
    part.write_bytes(good)
    for text in ('{"metadata": {"version": "1"}}', "[]", "", '{"weight_map": {"a": "x", "a": "x"}}',
                 '{"weight_map": {}, "metadata": {"version": "1", "version": "2"}}'):
        (delta / INDEX).write_text(text)
        refused(out, run.base, delta, says=INDEX)


def test_wrong_usage(run, out):
    delta = run.add()
    for args in ((), (run.base,), (run.base, delta), (run.base, "-o", out), (run.base, delta, "-o"),
                 (run.base, delta, "-o", out, "--color"), (run.base, delta, "--base-version")):
        _, err = outputs_of(start(*args), 2, 60)
        assert "usage: tensord apply" in err
    text, _ = outputs_of(start("--help"), 0, 60)
    assert "tensord apply [--base-version TEXT] BASE DELTA [DELTA ...] -o OUT" in text


# ------------------------------------------------------------------------------------- kills, disks, memory, terminals

def large(at, size=64 << 20):
    """A base of one large tensor and a delta that changes all of it, slowly enough to be killed in the middle."""
    rng = np.random.default_rng(9)
    some = rng.integers(0, 256, (2, 4 << 20), dtype=np.uint8)
    old = {"w": np.tile(some[0], size // (4 << 20)), "x": np.zeros(10, np.uint8)}
    new = {**old, "w": np.tile(some[0] ^ some[1] & (some[1] > 180) * np.uint8(255), size // (4 << 20))}
    base = write_full(at / "weight_v000000", old, files=2)
    return base, write_delta(at / "weight_v000001", old, new, "1", "0"), new


def test_kills_at_any_moment(tmp_path, out):
    """After a kill -9 there is no OUT or a whole one, and the next run removes what is left."""
    base, delta, new = large(tmp_path)
    apply(base, delta, "-o", out)
    want, rng, was_left = tree_of(out), random.Random(3), 0
    shutil.rmtree(out)
    begin = time.monotonic()
    apply(base, delta, "-o", out.parent / "timed")
    took = time.monotonic() - begin
    for _ in range(12):
        p = start(base, delta, "-o", out)
        time.sleep(rng.uniform(0, took))
        p.send_signal(signal.SIGKILL)
        p.communicate()
        left = sorted(os.listdir(out.parent))
        assert left in (["timed"], [".out.tensord-apply", "timed"], ["out", "timed"]), left
        was_left += ".out.tensord-apply" in left
        if out.exists():
            assert tree_of(out) == want
            shutil.rmtree(out)
    assert was_left
    apply(base, delta, "-o", out)
    assert tree_of(out) == want and sorted(os.listdir(out.parent)) == ["out", "timed"]
    assert_equal(read_full(out)[0], new)


def test_a_signal_leaves_nothing(tmp_path, out):
    base, delta, _ = large(tmp_path, 256 << 20)
    p = start(base, delta, "-o", out)
    while not (out.parent / ".out.tensord-apply").exists() and p.poll() is None:
        time.sleep(0.01)
    p.send_signal(signal.SIGTERM)
    _, err = outputs_of(p, 1, 60)
    assert "stopped by a signal" in err and os.listdir(out.parent) == []


def test_two_at_once(tmp_path, out):
    """One of two runs for the same OUT makes it, and the other is refused; none disturbs the other."""
    base, delta, new = large(tmp_path)
    both = [start(base, delta, "-o", out) for _ in range(2)]
    ends = [(p.communicate(timeout=120)[1], p.returncode) for p in both]
    assert sorted(code for _, code in ends) == [0, 1], ends
    assert any("another tensord writes" in err or "is there already" in err for err, code in ends if code == 1), ends
    assert_equal(read_full(out)[0], new)
    assert os.listdir(out.parent) == ["out"]


def test_a_full_disk(tmp_path, out):
    base, delta, _ = large(tmp_path)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    _, err = outputs_of(start(base, delta, "-o", out, preexec_fn=limit), 1, 60)
    assert "cannot write" in err and os.listdir(out.parent) == []


# Starts a command, and prints its exit code and the most memory that it had, in KiB. In a process of its own, since a
# child's figure begins with the memory of the process that starts it.
MEASURE = """
import os, sys
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""


@pytest.mark.parametrize(("encoding", "most"), [("xor", 24 << 20), ("overwrite", 24 + 40 << 20)])
def test_memory(tmp_path, out, encoding, most):
    """A tensor at a time: XOR needs the memory of its windows, OVERWRITE that of the largest tensor, here 96 MiB in
    three tensors of 32 MiB. Measured with the release build."""
    rng = np.random.default_rng(1)
    old = {n: rng.integers(0, 256, 32 << 20, dtype=np.uint8) for n in "abc"}
    new = {n: a ^ np.tile(rng.integers(0, 256, 1 << 20, dtype=np.uint8) >> 5 << 7, 32) for n, a in old.items()}
    base = write_full(tmp_path / "weight_v000000", old)
    delta = write_delta(tmp_path / "weight_v000001", old, new, "1", "0", delta_encoding=encoding)
    command = [release_binary(), "apply", base, delta, "-o", out, "--quiet"]
    measured = subprocess.run([sys.executable, "-c", MEASURE, *command], capture_output=True, text=True, timeout=120,
                              check=True)
    code, most_kib = map(int, measured.stdout.split())
    assert code == 0, measured.stderr
    assert most_kib << 10 < most, most_kib
    assert_equal(read_full(out)[0], new)


def test_progress_on_a_terminal(tmp_path, out):
    base, delta, _ = large(tmp_path, 256 << 20)
    control, terminal = pty.openpty()
    p = subprocess.Popen([tensord_binary(), "apply", base, delta, "-o", out], env=environment(), stderr=terminal,
                         stdout=subprocess.PIPE, text=True)
    os.close(terminal)
    shown = b""
    try:
        while some := os.read(control, 4096):
            shown += some
    except OSError:
        pass        # the terminal's other end is closed
    line, _ = p.communicate(timeout=120)
    os.close(control)
    assert p.returncode == 0 and "of 256.00 MiB" in shown.decode(), shown
    assert line == f"{out}: version 1 from 0 by 1 delta; 1 of 2 tensors changed, 256.00 MiB, in {line.split()[-2]} s\n"
