"""The headers of image layers (rank/tar_layer.h), read by Python's tarfile and by GNU tar.

tests/kit/tar_dump writes them. Sizes need no data: tarfile reads a header block by block, and a pax header with it."""
import io
import shutil
import subprocess
import tarfile

import pytest

from harness import tensord_binary

GIB = 1 << 30
SIZES = [0, 1, 511, 512, 8 * GIB - 1, 8 * GIB, 8 * GIB + 1, 1 << 40, (1 << 62) + 3]


def dump(*files):
    tool = tensord_binary().parent / "tests/kit/tar_dump"
    lines = "".join(f"{size} {path}\n" for path, size in files)
    p = subprocess.run([str(tool)], input=lines.encode(), capture_output=True, timeout=60)
    assert p.returncode == 0 and p.stderr == b"", p
    return p.stdout


def members(data):
    """Read all headers, as an archive whose files have no content."""
    found = []
    stream = io.BytesIO(data)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        archive.fileobj = stream
        while stream.tell() < len(data):
            archive.offset = stream.tell()
            member = archive.tarinfo.fromtarfile(archive)
            stream.seek(member.offset_data)
            found.append(member)
    return found


def check(member, name, size, is_file):
    assert (member.name, member.size, member.isreg(), member.isdir()) == (name, size, is_file, not is_file)
    assert (member.mode, member.uid, member.gid, member.mtime) == (0o444 if is_file else 0o755, 0, 0, 0)
    assert (member.uname, member.gname, member.linkname) == ("", "", "")


def check_file(found, path, size):
    parts = path.split("/")
    for i in range(1, len(parts)):
        check(found.pop(0), "/".join(parts[:i]), 0, False)
    check(found.pop(0), path, size, True)


def paths():
    letters = "abcdefghijklmnopqrstuvwxyz"
    for step in (1000, 3, 60, 100, 101, 156):
        for length in range(1, 301):
            text = [letters[i % 26] for i in range(length)]
            text[step - 1:length - 1:step] = "/" * len(text[step - 1:length - 1:step])
            yield "".join(text)
    yield "modèle/重み-00001-of-00002.safetensors"
    yield "a b/c\td/'\"\\.json"


# shows: security.md oci-layer-names
def test_every_length_of_a_path():
    names = list(paths())
    found = members(dump(*((name, i) for i, name in enumerate(names))))
    for i, name in enumerate(names):
        check_file(found, name, i)
    assert found == []


@pytest.mark.parametrize("name", ["model.safetensors", "d/" * 60 + "model.safetensors"], ids=["short", "long"])
# shows: security.md oci-layer-names
def test_sizes_around_8_gib(name):
    found = members(dump(*((name, size) for size in SIZES)))
    for size in SIZES:
        check_file(found, name, size)
    assert found == []


def test_gnu_tar_agrees():
    """GNU tar lists what it would extract. It reads contents, so the files are empty."""
    tar = shutil.which("tar")
    assert tar is not None
    names = [name for name in paths() if name.isascii() and "\t" not in name]
    for name in names[:: 7]:
        p = subprocess.run([tar, "--list", "--quoting-style=literal", "-f", "-"], input=dump((name, 0)) + bytes(1024),
                           capture_output=True, timeout=60)
        assert p.returncode == 0 and p.stderr == b"", p
        parts = name.split("/")
        assert p.stdout.decode().splitlines() == ["/".join(parts[:i]) + "/" for i in range(1, len(parts))] + [name]
