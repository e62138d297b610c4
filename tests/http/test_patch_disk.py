"""The disk of patches (changes?format=patch): its limit of bytes, a full disk, a folder that cannot be written to. What
a patch must have is what numpy finds (test_patches.py)."""
import hashlib
import os
import resource
import subprocess

import numpy
import pytest

from harness import NOBODY, Conn, age, as_nobody, check_error, tensord_binary
from test_patches import PATH, changed, check_patch, write

MIB = 1 << 20


def save_steps(root, count, elements, share=0.37):
    """Write versions of one F32 tensor: step-1, and others that differ from it in that share. Returns them by number.
    A patch from step-1 has 8 bytes for each element that differs."""
    rng = numpy.random.default_rng(7)
    steps = {1: {"w": ("F32", (elements,), rng.integers(0, 2**32, elements, dtype=numpy.uint32))}}
    for number in range(2, count + 1):
        steps[number] = changed(steps[1], share, number)
    for number, tensors in steps.items():
        write(root / "run" / f"step-{number}", tensors)
    age(root)
    return steps


def ask(s, steps, number):
    """Get the patch from step-1 to this step, which must be right. Returns its bytes."""
    r = s.get(PATH + f"since=1&version={number}", timeout=120)
    while r.status == 503 and b"the patch is being made" in r.body:     # on a busy machine; no other reason counts
        r = s.get(PATH + f"since=1&version={number}", timeout=120)
    assert r.status == 200, (r, r.body[:300])
    check_patch(r.body, steps[1], steps[number], "step-1", f"step-{number}")
    return r.body


def kept(folder, bodies):
    """Return the numbers of the patches that are files of the folder. There is no other file in it."""
    sums = {hashlib.sha256(body).digest(): number for number, body in bodies.items()}
    found = []
    for path in folder.iterdir():
        data = path.read_bytes()
        assert data[-32:] == hashlib.sha256(data[:-32]).digest(), f"{path} is not whole"
        found.append(sums[data[-32:]])
    return sorted(found)


# ------------------------------------------------------------------------------------------------- the limit of bytes

def test_the_least_recently_used_goes(tmp_path, start):
    """A limit of 32 MiB. A patch has 3.1 MB, and takes 12 MiB while it is made."""
    steps = save_steps(tmp_path / "root", 9, 1_048_576)
    state = tmp_path / "state"
    s = start(tmp_path / "root", "--state-dir", state, "--patch-max-bytes", "32M")
    bodies = {}
    for number in (2, 3, 4, 5, 6, 7):
        bodies[number] = ask(s, steps, number)
        assert sum(path.stat().st_size for path in (state / "patches").iterdir()) <= 32 * MIB
    before = kept(state / "patches", bodies)
    assert before == [2, 3, 4, 5, 6, 7]
    ask(s, steps, 2)                                            # 2 becomes the most recently used one
    for number in (8, 9):
        bodies[number] = ask(s, steps, number)
    left = kept(state / "patches", bodies)
    gone = sorted(set(bodies) - set(left))
    assert gone == [3, 4, 5, 6, 7][:len(gone)] and 1 <= len(gone) <= 3 and 2 in left
    assert ask(s, steps, gone[0]) == bodies[gone[0]]            # it is made again


def test_a_patch_of_more_than_a_quarter(tmp_path, start):
    save_steps(tmp_path / "root", 2, 6 * MIB, 0.2)              # 10 MB
    state = tmp_path / "state"
    s = start(tmp_path / "root", "--state-dir", state, "--patch-max-bytes", "32M")
    check_error(s.get(PATH + "since=1&version=2", timeout=120), 422, "read the tensors themselves")
    assert list((state / "patches").iterdir()) == []


class Reader:
    """Reads the beginning of a patch, and the rest later."""

    def __init__(self, s, number):
        self.conn = Conn(s.port, rcvbuf=4096, timeout=120)
        self.conn.send(f"GET {PATH}since=1&version={number} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        self.response = self.conn.read_head()
        assert self.response.status == 200, self.response

    def finish(self):
        body = self.conn.read_exact(self.response.length, self.response)
        self.conn.close()
        return body


def test_a_patch_in_use_stays(tmp_path, start):
    """Answers that are being sent keep their patches, and their bytes count. When all of the limit is in use, others
    are 503 until an answer has ended."""
    steps = save_steps(tmp_path / "root", 9, 4 * MIB)           # patches of 12.4 MB
    state = tmp_path / "state"
    s = start(tmp_path / "root", "--state-dir", state, "--patch-max-bytes", "64M")
    bodies = {2: ask(s, steps, 2)}
    (made,) = [path.stat().st_ino for path in (state / "patches").iterdir()]
    first = Reader(s, 2)
    for number in (3, 4, 5, 6):
        bodies[number] = ask(s, steps, number)
        assert 2 in kept(state / "patches", bodies)
    assert 3 not in kept(state / "patches", bodies), "it is older than those that stay, and nobody reads it"
    ask(s, steps, 2)
    assert made in [path.stat().st_ino for path in (state / "patches").iterdir()], "2 was made again"
    others = [Reader(s, number) for number in (4, 5, 6)]
    r = s.get(PATH + "since=1&version=7", timeout=120)
    check_error(r, 503, "patches on the disk")
    assert kept(state / "patches", bodies) == [2, 4, 5, 6]
    for number, reader in zip((2, 4, 5, 6), (first, *others)):
        assert reader.finish() == bodies[number]
    s.wait_for(lambda: s.get(PATH + "since=1&version=7", timeout=120).status == 200, "there is room", 60)
    bodies[7] = ask(s, steps, 7)
    assert len(kept(state / "patches", bodies)) <= 4 and 7 in kept(state / "patches", bodies)


# ------------------------------------------------------------------------------------------------------ full disks

@pytest.fixture
def small_disk(tmp_path):
    """(the directory where the server sees a disk of 5 MiB, the program that starts the server so)."""
    disk, wrapper = tmp_path / "disk", tmp_path / "on-a-small-disk"
    disk.mkdir()
    wrapper.write_text("#!/bin/sh\n"
                       f"exec unshare --map-root-user --mount sh -c 'mount -t tmpfs -o size=5m,mode=700 none {disk} && "
                       f"exec {tensord_binary()} \"$@\"' sh \"$@\"\n")
    wrapper.chmod(0o755)
    return disk, wrapper


@pytest.mark.parametrize("how", ["--state-dir", "TMPDIR"])
def test_a_full_disk(tmp_path, start, small_disk, how):
    """The disk is smaller than the limit: the patches that were used least recently make room."""
    disk, wrapper = small_disk
    steps = save_steps(tmp_path / "root", 9, 300_000)           # patches of 0.9 MB, which take twice that at first
    args, env = ((how, disk), {}) if how == "--state-dir" else ((), {how: str(disk)})
    s = start(tmp_path / "root", *args, binary=wrapper, env=env)
    bodies = {number: ask(s, steps, number) for number in (2, 3, 4)}
    assert ask(s, steps, 2) == bodies[2]
    for number in (5, 6, 7, 8, 9):
        bodies[number] = ask(s, steps, number)
    inside = f"/proc/{s.pid}/root{disk}"
    if how == "TMPDIR":
        assert os.listdir(inside) == []
        return
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in os.listdir(f"{inside}/patches"):
        with open(f"{inside}/patches/{name}", "rb") as file:
            (folder / name).write_bytes(file.read())
    left = kept(folder, bodies)
    assert 9 in left and 2 not in left and 1 <= len(left) <= 5
    assert [ask(s, steps, number) == bodies[number] for number in (2, 9)] == [True, True]


def test_a_patch_for_which_the_disk_has_no_room(tmp_path, start, small_disk):
    """503 with the reason, nothing of it stays, and smaller patches are made."""
    disk, wrapper = small_disk
    root = tmp_path / "root"
    steps = save_steps(root, 3, 300_000)
    rng = numpy.random.default_rng(3)
    large = {"w": ("F32", (2 * MIB,), rng.integers(0, 2**32, 2 * MIB, dtype=numpy.uint32))}
    for number, tensors in ((1, large), (2, changed(large, 0.4, 1))):
        write(root / "large" / f"step-{number}", tensors)
    age(root)
    s = start(root, "--state-dir", disk, binary=wrapper, hash_threads=1)
    bodies = {2: ask(s, steps, 2)}
    for _ in range(2):
        r = s.get("/models/large/changes?format=patch&since=1&version=2", timeout=120)
        check_error(r, 503, "cannot write a patch to the disk", "No space left on device")
        names = os.listdir(f"/proc/{s.pid}/root{disk}/patches")
        assert all(not name.startswith("new-") for name in names), names
        for number in (2, 3):
            bodies[number] = ask(s, steps, number)
    changes = s.get("/models/large/changes?since=1&version=2", timeout=120)
    assert changes.status == 200 and [row["name"] for row in changes.json()["changed"]] == ["w"]


def test_a_write_that_fails_in_the_middle(tmp_path, start):
    """A limit on the size of files, which is raised again."""
    steps = save_steps(tmp_path / "root", 4, 300_000)
    state = tmp_path / "state"
    s = start(tmp_path / "root", "--state-dir", state)
    bodies = {2: ask(s, steps, 2)}
    _, most = resource.prlimit(s.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(s.pid, resource.RLIMIT_FSIZE, (600_000, most))
    check_error(s.get(PATH + "since=1&version=3", timeout=60), 503, "cannot write a patch to the disk")
    assert kept(state / "patches", bodies) == [2] and ask(s, steps, 2) == bodies[2]
    resource.prlimit(s.pid, resource.RLIMIT_FSIZE, (most, most))
    for number in (3, 4):
        bodies[number] = ask(s, steps, number)
    assert kept(state / "patches", bodies) == [2, 3, 4]


# ------------------------------------------------------------------------------------- folders that cannot be used

def test_a_folder_that_cannot_be_written_to(place, start):
    """422 with the reason, from which clients read tensors; a patch that is there is still answered; when the folder
    can be written to again, patches are made."""
    steps = save_steps(place / "root", 4, 100_000)
    state = place / "state"
    state.mkdir()
    if os.geteuid() == 0:
        os.chown(state, NOBODY, NOBODY)
    s = start(place / "root", "--state-dir", state, binary=as_nobody(place))
    bodies = {2: ask(s, steps, 2)}
    folder = next(state.rglob("patches"))
    folder.chmod(0o500)
    check_error(s.get(PATH + "since=1&version=3", timeout=60), 422, "cannot create a file for a patch in --state-dir",
                "Permission denied")
    assert ask(s, steps, 2) == bodies[2]
    folder.chmod(0o700)
    bodies[3] = ask(s, steps, 3)
    assert kept(folder, bodies) == [2, 3]
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    check_error(s.get(PATH + "since=1&version=4", timeout=60), 422, "cannot create a file for a patch in --state-dir")
    assert [ask(s, steps, number) == bodies[number] for number in (2, 3)] == [True, True]


def test_a_file_where_the_folder_should_be(tmp_path, start):
    """Patches are then in files without names, as without --state-dir; the log says so."""
    steps = save_steps(tmp_path / "root", 2, 100_000)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "patches").write_text("mine")
    s = start(tmp_path / "root", "--state-dir", state)
    ask(s, steps, 2)
    assert (state / "patches").read_text() == "mine"
    assert "patches are kept in temporary files alone" in s.stderr()


@pytest.mark.parametrize("size", ["31M", "2T", "x"])
def test_limits_that_are_refused(tmp_path, size):
    (tmp_path / "root").mkdir()
    p = subprocess.run([tensord_binary(), "serve", tmp_path / "root", "--patch-max-bytes", size], capture_output=True,
                       text=True, timeout=60)
    assert p.returncode == 2 and "--patch-max-bytes" in p.stderr
