"""Archives of Python's zipfile, NumPy and PyTorch, read as .npz files: an accepted archive must be the one that zipfile
sees, and an archive that zipfile refuses must be refused."""
import io
import json
import random
import struct
import zipfile

import numpy as np
import pytest
import torch

from test_numpy import check
from test_safetensors import inspect_each, run

ARRAYS = {
    "w": np.arange(12, dtype="<f4").reshape(3, 4), "b": np.asfortranarray(np.arange(6, dtype="<i2").reshape(2, 3)), "z":
    np.zeros((0, 2), "<f8")
}


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


class Pipe(io.RawIOBase):
    """A file that cannot seek, so that zipfile writes data descriptors."""
    data = b""

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data)
        return len(data)


def build(out=None, method=zipfile.ZIP_STORED, zip64=False, comment=b"", folder=False):
    out = out or io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        z.comment = comment
        for name, array in ARRAYS.items():
            if folder:
                z.mkdir(name) if hasattr(z, "mkdir") else z.writestr(name + "/", b"")
            with z.open(f"{name}/{name}.npy" if folder else name + ".npy", "w", force_zip64=zip64) as f:
                f.write(npy(array))
    return out.getvalue() if isinstance(out, io.BytesIO) else out.data


GOOD = {
    "stored": lambda: build(),
    "deflated": lambda: build(method=zipfile.ZIP_DEFLATED),
    "zip64": lambda: build(zip64=True),
    "piped": lambda: build(Pipe()),
    "piped zip64": lambda: build(Pipe(), zip64=True),
    "piped deflated": lambda: build(Pipe(), zipfile.ZIP_DEFLATED),
    "comment": lambda: build(comment=b"c" * 65535),
    "folders": lambda: build(folder=True),
}


def verdict(tmp_path, data):
    """Write the archive and inspect it. Return its path, the tensors by name (None: refused), and standard error."""
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    code, out, err = run("inspect", path, "--json")
    if code != 0:
        return path, None, err
    assert err == "", f"inspect of a good file is silent on stderr, got {err!r}"
    return path, {t["name"]: t for t in json.loads(out)["tensors"]}, err


def compare(path, tensors):
    """Check an accepted archive: NumPy must read the same arrays from it."""
    with np.load(path) as again, zipfile.ZipFile(path) as z:
        assert sorted(tensors) == sorted(n.removesuffix(".npy") for n in z.namelist() if not n.endswith("/"))
        for info in z.infolist():
            if info.filename.endswith("/"):
                continue
            name = info.filename.removesuffix(".npy")
            check(path, tensors[name], again[name], info.compress_type == zipfile.ZIP_DEFLATED)


@pytest.mark.parametrize("name", GOOD)
def test_what_zipfile_writes(tmp_path, name):
    path, tensors, err = verdict(tmp_path, GOOD[name]())
    assert tensors is not None, err
    compare(path, tensors)


BEHIND = {
    "a byte": b"\n",
    "much": b"x" * 65536,
    "a member's header": b"PK\3\4" + bytes(60),
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("behind", BEHIND)
def test_bytes_behind_the_archive(tmp_path, name, behind):
    """zipfile ignores them, also where a comment is cut off."""
    data = GOOD[name]()
    data += BEHIND[behind][:65536 - (len(data) - end(data) - 22)]
    path, tensors, err = verdict(tmp_path, data)
    assert tensors is not None, err
    compare(path, tensors)


def test_a_comment_that_is_cut_off(tmp_path):
    path, tensors, err = verdict(tmp_path, build(comment=b"hello")[:-2])
    assert tensors is not None, err
    compare(path, tensors)


KEYS = ["/a", "//b", "../c", "a/../d", "..", ".", "./e", "f//g", "h/", "/", "\\i", "j\\..\\k", "\u00e4/\u00f6",
        "l?m#n%2Fo", "...", "..p", "", "q r", "C:s"]


def test_keys_are_names_and_no_paths(serve):
    """NumPy writes any key as a member's name. hrefs lead to each array, also through a client that removes dot
    segments and empty segments; nothing else of the served tree is reached."""
    (serve.root / "m").mkdir()
    np.savez(serve.root / "m" / "x.npz", **{key: np.arange(4) + i for i, key in enumerate(KEYS)})
    with np.load(serve.root / "m" / "x.npz") as again:
        want = {key: again[key] for key in again}
    assert sorted(want) == sorted(KEYS)
    server = serve()
    got = {t["name"]: t for t in server.json("/models/m/tensors")["tensors"]}
    assert sorted(got) == sorted(KEYS)
    for key, array in want.items():
        href = got[key]["href"]
        if key != "":  # the path of the empty name is that of the manifest
            assert not {"", ".", ".."} & set(href.removeprefix("/").split("/")), href
            assert server.get(href).body == array.tobytes(), (key, href)


def records(kind):
    out = io.BytesIO()
    if kind == "script":
        torch.jit.save(torch.jit.script(torch.nn.Linear(3, 2)), out)
    elif kind == "no crc":
        torch.serialization.set_crc32_options(False)
        torch.save({"a": torch.arange(10), "z": torch.zeros(0)}, out)
        torch.serialization.set_crc32_options(True)
    else:
        torch.save({"a": torch.arange(10), "z": torch.zeros(0), "b": torch.ones(3, 3)}, out)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["save", "no crc", "script"])
def test_what_torch_writes(tmp_path, kind):
    """An archive of torch has no arrays of an .npz, but is valid; with one byte less, or one in front, it is not."""
    data = records(kind)
    path, tensors, err = verdict(tmp_path, data)
    assert tensors is not None, err
    assert tensors == {}
    for bad in (data[:-1], b"x" + data, data[:100] + data[101:]):
        assert verdict(tmp_path, bad)[1] is None


def patched(data, at, fmt, value):
    out = bytearray(data)
    struct.pack_into(fmt, out, at, value)
    return bytes(out)


def end(data):
    return data.rindex(b"PK\5\6")


def central(data, name):
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        at = z.start_dir
        for info in z.infolist():
            if info.filename == name:
                return at
            at += 46 + sum(struct.unpack_from("<HHH", data, at + 28))
    raise KeyError(name)


def bad():
    data = build()
    w, local = central(data, "w.npy"), 0
    yield "40 no end record", data[:-22]
    yield "directory offset", patched(data, end(data) + 16, "<I", 2**31)
    yield "directory size", patched(data, end(data) + 12, "<I", 2**31)
    yield "48 local name", patched(data, local + 30, "<B", 120)
    yield "49 encrypted", patched(patched(data, w + 8, "<H", 1), local + 6, "<H", 1)
    yield "49 patched data", patched(patched(data, w + 8, "<H", 0x20), local + 6, "<H", 0x20)
    yield "49 strong encryption", patched(patched(data, w + 8, "<H", 0x40), local + 6, "<H", 0x40)
    yield "header offset", patched(data, w + 42, "<I", 7)
    yield "method", patched(patched(data, w + 10, "<H", 99), local + 8, "<H", 99)
    yield "central signature", patched(data, w, "<I", 0)
    yield "local signature", patched(data, local, "<I", 0)
    yield "60 central extra", patched(data, w + 30, "<H", 200)


def bad_by_us():
    """Archives that zipfile accepts."""
    data = build()
    w = central(data, "w.npy")
    yield "41 two end records", data + data[-22:]
    yield "counts", patched(patched(data, end(data) + 8, "<H", 9), end(data) + 10, "<H", 9)
    yield "59 bytes before the first header", b"x" + data
    yield "66 symlink", patched(data, w + 38, "<I", 0o120777 << 16)
    yield "member on another disk", patched(data, w + 34, "<H", 1)
    yield "58 descriptor", patched(build(Pipe()), build(Pipe()).index(b"PK\7\10") + 8, "<I", 5)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z, pytest.warns(UserWarning):
        z.writestr("w.npy", npy(ARRAYS["w"]))
        z.writestr("w.npy", npy(ARRAYS["b"]))
    yield "46 duplicate name", out.getvalue()


BAD = dict(bad())
STRICTER = dict(bad_by_us())


@pytest.mark.parametrize("name", BAD)
def test_what_zipfile_refuses_is_refused(tmp_path, name):
    """zipfile must fail to open each archive, or to read one of its members."""
    with pytest.raises(
        (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, KeyError, EOFError, OSError)):
        with np.load(io.BytesIO(BAD[name])) as again:
            for key in [*ARRAYS]:
                again[key]
    _, tensors, err = verdict(tmp_path, BAD[name])
    assert tensors is None and len(err.splitlines()) == 1, err


@pytest.mark.parametrize("name", STRICTER)
# shows: security.md content-ambiguous-archives
def test_what_zipfile_does_not_mind_is_refused(tmp_path, name):
    _, tensors, err = verdict(tmp_path, STRICTER[name])
    assert tensors is None and len(err.splitlines()) == 1, err


@pytest.mark.parametrize("name", ["stored", "piped zip64", "deflated"])
def test_what_is_accepted_of_changed_archives_is_what_numpy_reads(tmp_path, name):
    """A byte of the structure is changed: NumPy must read the same from every archive that is accepted."""
    data = GOOD[name]()
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        ends = [(i.header_offset, i.header_offset + 30 + sum(struct.unpack_from("<HH", data, i.header_offset + 26)))
                for i in z.infolist()]
        places = [at for begin, stop in ends for at in range(begin, stop)] + list(range(z.start_dir, len(data)))
    rng = random.Random(5)
    inputs = [bytearray(data) for _ in range(120)]
    for changed in inputs:
        changed[rng.choice(places)] = rng.choice([0, 1, 8, 0x20, 0x7F, 0xFF])
    accepted = 0
    for path, tensors, _ in inspect_each(tmp_path, "x.npz", inputs):
        if tensors is not None:
            accepted += 1
            compare(path, tensors)
    assert accepted > 0, "dates at least mean nothing"
