"""A file whose ctime changes while it is sent: a change of metadata alone lets the answer finish, a write ends it, even
with the mtime set back. The server runs as the files' owner, who gets read leases, or as another user, as in a
container with a mounted volume."""
import mmap
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from harness import (Incomplete, Server, Transfer, age, as_nobody, check_error, pattern, same_prefix, tensor,
                     write_by_hand)

ROWS, COLUMNS = 4096, 4096                               # more than the sockets hold
BYTES = ROWS * COLUMNS
# The requests, with their headers: one run, the whole file, several ranges, columns (gathered),
# a rank's file (composed).
TARGETS = [
    ("/models/m/tensors/w", ()),
    ("/models/m/files/model.safetensors", ()),
    ("/models/m/tensors/w", ((b"Range", b"bytes=0-5999999,7000000-16000000"),)),
    ("/models/m/tensors/w?slice=:,0:3000", ()),
    ("/models/m/shards/fsdp/tp2/rank-1.safetensors", ()),
]


@pytest.fixture(params=[("owner", "on"), ("owner", "off"), ("another user", "on"), ("another user", "off")],
                ids=lambda p: f"{p[0]}, leases {p[1]}")
def host(request):
    """A model and its server: (server, path of the file, its tensor)."""
    place = Path(tempfile.mkdtemp(prefix="tensord-touched-"))       # pytest's own is closed to others
    place.chmod(0o755)
    path = place / "root/m/model.safetensors"
    w = tensor("w", "U8", [ROWS, COLUMNS], "old")
    write_by_hand(path, [w])
    age(path)
    who, leases = request.param
    s = Server(place / "root", "--leases", leases, binary=as_nobody(place) if who != "owner" else None, hash_threads=0)
    leased = leases == "on" and (who == "owner" or os.geteuid() != 0)
    assert s.get("/models/m/tensors/w", {"Range": "bytes=0-9"}).status == 206
    assert s.gauge("tensord_leased_files") == leased and s.gauge("tensord_watched_files") == (not leased)
    yield s, path, w
    s.stop()
    shutil.rmtree(place)


# ------------------------------------------------------------------------------------ writes with the mtime put back

def write_at(path, at, data):
    with open(path, "r+b", buffering=0) as f:
        f.seek(at)
        f.write(data)


def whole(path, new):
    write_at(path, path.stat().st_size - BYTES, new)


def tail(path, new):
    write_at(path, path.stat().st_size - 1000, new[-1000:])


def backwards(path, new):
    """Overwrite from the end in small pieces, and set the mtime back after each."""
    size, times = path.stat().st_size, path.stat()
    for at in range(BYTES, 0, -(1 << 20)):
        write_at(path, size - BYTES + at - (1 << 20), new[at - (1 << 20):at])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def rewritten(path, new):
    raw = path.read_bytes()[:-BYTES] + new
    with open(path, "wb") as f:
        f.write(raw)


def through_a_mapping(path, new):
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        m[len(m) - BYTES:] = new


def then_unlinked(path, new):
    """Overwrite, then hide that behind a change that lets answers finish. The file comes back with the new bytes."""
    times = path.stat()
    whole(path, new)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    copy = path.with_name(".copy")
    shutil.copy2(path, copy)
    os.unlink(path)
    os.rename(copy, path)


@pytest.mark.parametrize("write", [whole, tail, backwards, rewritten, through_a_mapping, then_unlinked],
                         ids=lambda f: f.__name__)
# shows: security.md file-mtime-restored
def test_overwritten_and_the_mtime_put_back(host, write):
    """No complete answer under the old tag has a byte that was written later, and the new bytes get a new tag."""
    s, path, w = host
    before, tag = path.stat(), s.head("/models/m/tensors/w").etag
    old, new = path.read_bytes(), pattern(BYTES, "new")
    tr = Transfer(s, "/models/m/tensors/w")
    tr.read(1 << 20)
    assert tr.head.etag == tag
    write(path, new)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    now = path.stat()
    assert (now.st_mtime_ns, now.st_size) == (before.st_mtime_ns, before.st_size)
    complete, got = tr.finish()
    assert not complete, \
        f"complete under {tag}, though the file was written to: {same_prefix(got, w.data)} of {len(got)} bytes " \
        f"are the old ones, {'all' if got == new else 'not all'} are the new ones"
    s.wait_for(lambda: s.get("/models/m/tensors/w", {"Range": "bytes=0-9"}).status == 206, "the new bytes are served")
    r = s.get("/models/m/tensors/w")
    assert r.status == 200 and r.body == path.read_bytes()[-BYTES:] and r.etag != tag, r
    assert old[:-BYTES] == path.read_bytes()[:-BYTES]


@pytest.mark.parametrize("command", ['cp -p "$1" "$2"', 'cat "$1" > "$2"; touch -r "$1" "$2"',
                                     'dd if="$1" of="$2" bs=1M conv=notrunc status=none; touch -r "$1" "$2"'])
# shows: security.md file-mtime-restored
def test_real_tools_put_the_mtime_back(host, command):
    """Copy from a file with the same mtime and size, as in images, Nix and SOURCE_DATE_EPOCH builds."""
    s, path, w = host
    raw, new = path.read_bytes(), pattern(BYTES, "new")
    source = path.parent.parent.parent / "source"
    source.write_bytes(raw[:-BYTES] + new)
    shutil.copystat(path, source)
    tr = Transfer(s, "/models/m/files/model.safetensors")
    tr.read(1 << 20)
    subprocess.run(["bash", "-c", command, "-", source, path], check=True, timeout=60)
    assert path.stat().st_mtime_ns == source.stat().st_mtime_ns and path.read_bytes() == source.read_bytes()
    complete, got = tr.finish()
    assert not complete, \
        f"complete, though the file was written to: {same_prefix(got, raw)} of {len(got)} bytes are the old ones"


@pytest.mark.parametrize("target, headers", TARGETS[1:], ids=["file", "ranges", "columns", "rank"])
# shows: security.md file-mtime-restored
def test_every_kind_of_answer_notices(host, target, headers):
    s, path, _ = host
    before = path.stat()
    tr = Transfer(s, target, headers=headers)
    tr.read(1 << 20)
    whole(path, pattern(BYTES, "new"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    complete, got = tr.finish()
    assert not complete, f"{len(got)} bytes, complete, though the file was written to"


@pytest.mark.parametrize("targets", [TARGETS[3:4], TARGETS], ids=["columns", "all"])
def test_writers_do_not_wait_for_slow_readers(host, targets):
    """Whatever is being sent. Under a lease the kernel would let the writer wait for 45 s."""
    _, path, _ = host
    running = [Transfer(host[0], target, headers=headers) for target, headers in targets]
    for tr in running:
        tr.read(1 << 20)
    began = time.monotonic()
    tail(path, pattern(BYTES, "new"))
    took = time.monotonic() - began
    assert took < 15, f"a writer waited for {took:.1f} s"
    for tr in running:
        complete, _ = tr.finish()
        assert not complete


# ------------------------------------------------------------------------------------------------- metadata alone

def mode(path):
    path.chmod(0o604)


def link(path):
    os.link(path, path.with_name(".second"))


def link_and_unlink(path):
    link(path)
    os.unlink(path.with_name(".second"))


def unlink(path):
    os.unlink(path)


def rename_away(path):
    os.rename(path, path.parent.parent.parent / "away")


def rename_over(path):
    write_by_hand(path.with_name(".new"), [tensor("w", "U8", [ROWS, COLUMNS], "new")])
    os.rename(path.with_name(".new"), path)


def same_mtime_over(path):
    """Replace the file by one with its mtime and size, as `rsync -t` does."""
    write_by_hand(path.with_name(".new"), [tensor("w", "U8", [ROWS, COLUMNS], "new")])
    shutil.copystat(path, path.with_name(".new"))
    os.rename(path.with_name(".new"), path)


def read_again_and_mode_again(path):
    """Other readers, such as the server's own scan, must not matter."""
    for i in range(10):
        path.chmod(0o644 if i % 2 else 0o604)
        path.read_bytes()
        time.sleep(0.05)


@pytest.mark.parametrize("touch", [mode, link, link_and_unlink, unlink, rename_away, rename_over, same_mtime_over,
                                   read_again_and_mode_again], ids=lambda f: f.__name__)
# shows: security.md file-metadata
def test_running_answers_finish(host, touch):
    """Unlink, rename, link and chmod change the ctime as a write does; running answers are complete and right."""
    s, path, _ = host
    want = [s.get(target, [(k.decode(), v.decode()) for k, v in headers]).body for target, headers in TARGETS]
    assert want[0] == path.read_bytes()[-BYTES:]
    running = [Transfer(s, target, headers=headers) for target, headers in TARGETS]
    for tr in running:
        tr.read(1 << 20)
    touch(path)
    time.sleep(1.3)                                       # a scan comes in between
    for tr, (target, headers), body in zip(running, TARGETS, want):
        complete, got = tr.finish()
        if headers:                                       # each answer of several ranges has its own boundary
            assert complete and len(got) == len(body), f"{target} {headers}: {len(got)} bytes"
        else:
            assert complete and got == body, \
                f"{target}: {len(got)} of {len(body)} bytes, {same_prefix(got, body)} right"


# shows: security.md file-metadata
def test_small_answers_while_metadata_changes_all_the_time(host):
    """Small answers are complete and right, or a 503 while the file is scanned again; none breaks off."""
    s, path, w = host
    stop, wrong, statuses = threading.Event(), [], []

    def read():
        with s.conn() as c:
            while not stop.is_set():
                try:
                    r = c.request("/models/m/tensors/w", {"Range": "bytes=70000-79999"})
                except Incomplete as e:
                    wrong.append(e)
                    return
                statuses.append(r.status)
                if r.status == 503:
                    check_error(r, 503)
                elif r.status != 206 or r.body != w.data[70000:80000]:
                    wrong.append(r)
                time.sleep(0.001)
    readers = [threading.Thread(target=read) for _ in range(3)]
    for t in readers:
        t.start()
    for i in range(40):
        path.chmod(0o644 if i % 2 else 0o604)
        time.sleep(0.05)
    s.wait_for(lambda: s.get("/models/m/tensors/w", {"Range": "bytes=0-9"}).status == 206,
               "service after the last change")
    stop.set()
    for t in readers:
        t.join()
    assert not wrong and statuses.count(206) > 10, (wrong[:1], len(statuses))
