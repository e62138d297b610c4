"""Files that change while they are served, rescans, and the drain. A transfer may break, but a complete one must be
right."""
import os
import shutil
import signal
import threading
import time

import pytest

from harness import Conn, Incomplete, Transfer, age, check_error, pattern, same_prefix, tensor, write_by_hand

BYTES = 32 << 20        # the sockets of a connection hold 5 MiB, so the server still reads the file when it changes


def model(root, name, nbytes=4096, salt="1", settled=True):
    t = tensor("w", "U8", [nbytes], salt)
    write_by_hand(root / name / "model.safetensors", [t])
    if settled:
        age(root / name)
    return t


# The bytes sent are guarded by read leases where the host grants them, and without them where it does not.
leases = pytest.mark.parametrize("leases", ["on", "off"])


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    yield root
    shutil.rmtree(root, ignore_errors=True)


def path_of(root, name):
    return root / name / "model.safetensors"


# ------------------------------------------------------------------------------------- while being sent

@pytest.mark.parametrize("keep", [0, 100, 4096, 1 << 20, BYTES // 2])
@leases
# shows: security.md file-truncated
def test_truncated_in_the_middle_of_a_transfer(root, start, leases, keep):
    """The transfer breaks. A transfer of another file that began before ends well, and the server continues to serve.
    Under a
    lease the broken one was sent by reference: its last bytes, which a client drops, may be those of the cut file."""
    t = model(root, "cut", BYTES)
    other = model(root, "other", BYTES, "2")
    s = start(root, "--leases", leases)
    victim, bystander = Transfer(s, "/models/cut/tensors/w"), Transfer(s, "/models/other/tensors/w")
    victim.read(1 << 20)
    bystander.read(1 << 20)
    os.truncate(path_of(root, "cut"), keep)
    whole, got = victim.finish()
    assert not whole, f"a complete answer of {len(got)} bytes from a file cut to {keep}"
    right = same_prefix(got, t.data)
    torn = [i for i in range(right, len(got)) if got[i] not in (t.data[i], 0)] if leases == "on" else got[right:]
    assert not torn, f"{len(got)} bytes came, and only {right} of them are the file's " \
                     f"(zeros of a torn mapping?): {got[right:right + 32]!r}"
    whole, got = bystander.finish()
    assert whole and got == other.data, f"the other transfer: whole {whole}, {len(got)} bytes"
    assert s.alive() and s.get("/healthz").status == 200
    r = s.get("/models/cut/tensors/w")
    assert r.status in (503, 404), r
    if r.status == 503:
        check_error(r, 503)
    s.wait_for(lambda: s.get("/models/cut/tensors/w").status == 404, "404 once the cut file is rescanned")
    e = s.json("/models/cut")
    assert e["checkpoints"] == [] and e["errors"], e
    assert s.get("/models/other/tensors/w").body == other.data


@leases
# shows: security.md file-truncated
def test_truncated_again_and_again(root, start, leases):
    """20 rounds of truncation and repair under 4 readers: every complete answer is right."""
    t = model(root, "m", 8 << 20)
    steady = model(root, "steady", 1 << 20, "2")
    raw = path_of(root, "m").read_bytes()
    s = start(root, "--leases", leases)
    stop, wrong, counts = threading.Event(), [], {}

    def reader(target, want, must):
        while not stop.is_set():
            try:
                r = s.get(target)
            except (Incomplete, ConnectionError) as e:
                counts["broken"] = counts.get("broken", 0) + 1
                if must:
                    wrong.append(f"the steady file: {e!r}")
                continue
            counts[r.status] = counts.get(r.status, 0) + 1
            if r.status == 200 and r.body != want or r.status not in (200, 404, 503) or must and r.status != 200:
                wrong.append(repr(r))
    threads = [threading.Thread(target=reader, args=("/models/m/tensors/w", t.data, False)) for _ in range(3)]
    threads.append(threading.Thread(target=reader, args=("/models/steady/tensors/w", steady.data, True)))
    for th in threads:
        th.start()
    for i in range(20):
        time.sleep(0.03 * (i % 5))
        os.truncate(path_of(root, "m"), (i * 997) % 5000)
        time.sleep(0.02)
        path_of(root, "m").write_bytes(raw)
    stop.set()
    for th in threads:
        th.join()
    assert not wrong, f"{len(wrong)}: {wrong[0]}"
    assert s.alive()
    s.wait_for(lambda: s.get("/models/m/tensors/w").status == 200, "service of the repaired file")
    assert s.get("/models/m/tensors/w").body == t.data


def rewrite_in_place(path, raw, chunk=1 << 20):
    with open(path, "r+b") as f:
        for at in range(0, len(raw), chunk):
            f.write(raw[at:at + chunk])
            f.flush()


@leases
# shows: security.md file-overwritten
def test_overwritten_in_place_in_the_middle_of_a_transfer(root, start, leases):
    """Same size, new bytes: the transfer breaks, or all its bytes are of one generation."""
    old = model(root, "m", BYTES, "old")
    raw_old = path_of(root, "m").read_bytes()
    new = tensor("w", "U8", [BYTES], "new")
    raw_new = raw_old[:len(raw_old) - BYTES] + new.data
    s = start(root, "--leases", leases)
    for delay in (0, 0.2):
        s.wait_for(lambda: s.get("/models/m/tensors/w", {"Range": "bytes=0-9"}).status == 206, "the file is served")
        begun_with = s.get("/models/m/tensors/w", {"Range": "bytes=0-99"})
        tr = Transfer(s, "/models/m/tensors/w")
        tr.read(1 << 20)
        now = raw_new if begun_with.body == old.data[:100] else raw_old
        rewrite_in_place(path_of(root, "m"), now)
        time.sleep(delay)
        whole, got = tr.finish()
        if whole:
            assert got in (old.data, new.data), \
                f"a complete 200 with ETag {tr.head.etag} mixes two generations: " \
                f"the first {same_prefix(got, old.data)} bytes are old"
        r = s.get("/models/m/tensors/w", {"Range": "bytes=0-99"})
        if r.status == 206:
            assert r.etag != begun_with.etag, f"the old ETag labels new bytes: {r}"
        else:
            check_error(r, 503)
        s.wait_for(lambda: s.get("/models/m/tensors/w").status == 200, "the new generation")
        r = s.get("/models/m/tensors/w")
        assert r.body == (new.data if now is raw_new else old.data) and r.etag != begun_with.etag


@leases
# shows: security.md file-overwritten
def test_overwritten_at_the_end_while_the_last_bytes_wait(root, start, leases):
    """Only the tail changes, after nearly all was sent: no complete answer may have the old ETag and a new tail."""
    old = model(root, "m", BYTES, "old")
    s = start(root, "--leases", leases)
    for i in range(3):
        before = s.get("/models/m/tensors/w", {"Range": "bytes=0-9"})
        assert before.status == 206, before
        tr = Transfer(s, "/models/m/tensors/w", rcvbuf=4096)
        tr.read(BYTES - (12 << 20) + i * (3 << 20))
        with open(path_of(root, "m"), "r+b") as f:
            f.seek(-1000, 2)
            tail = pattern(1000, f"tail{i}")
            f.write(tail)
        whole, got = tr.finish()
        current = old.data[:-1000] + tail
        if whole:
            assert got == old.data, f"complete, and its tail is not of the generation of ETag {before.etag}"
        old.data = current
        s.wait_for(lambda: s.get("/models/m/tensors/w").status == 200, "the new generation")
        assert s.get("/models/m/tensors/w").body == current


# shows: security.md file-replaced
def test_renamed_over_in_the_middle_of_a_transfer(root, start):
    """The running answer finishes from the old file; new ones see the new file soon; never a mix."""
    old = model(root, "m", BYTES, "old")
    s = start(root)
    tag = s.head("/models/m/tensors/w").etag
    tr = Transfer(s, "/models/m/tensors/w")
    tr.read(1 << 20)
    new = tensor("w", "U8", [BYTES], "new")
    write_by_hand(root / "m/.new", [new])
    age(root / "m/.new", 100)
    os.rename(root / "m/.new", path_of(root, "m"))
    began = time.monotonic()
    time.sleep(0.3)
    whole, got = tr.finish()
    assert whole and got == old.data, f"rename must not hurt the running transfer: whole {whole}, {len(got)} bytes, " \
                                      f"{same_prefix(got, old.data)} right"
    while True:
        r = s.get("/models/m/tensors/w", {"Range": "bytes=100-199"})
        if r.status == 206 and r.etag != tag:
            break
        assert r.status == 503 or (r.etag == tag and r.body == old.data[100:200]), r
        assert time.monotonic(
        ) - began < 6, f"the old file is served {time.monotonic() - began:.1f} s after the rename: {r}"
        time.sleep(0.05)
    r = s.get("/models/m/tensors/w")
    assert r.body == new.data
    s.wait_for(lambda: f"{path_of(root, 'm')} (deleted)" not in s.maps(), "the old file's mapping is released",
               timeout=10)


# shows: security.md file-unlinked
def test_unlinked_in_the_middle_of_a_transfer(root, start):
    old = model(root, "m", BYTES, "old")
    model(root, "other", 4096, "2")
    s = start(root)
    tr = Transfer(s, "/models/m/tensors/w")
    tr.read(1 << 20)
    os.unlink(path_of(root, "m"))
    time.sleep(0.3)
    whole, got = tr.finish()
    assert whole and got == old.data, f"unlink must not hurt the running transfer: whole {whole}, {len(got)} bytes"
    s.wait_for(lambda: s.get("/models/m/tensors/w").status == 404, "404 after the unlink")
    s.wait_for(lambda: "m" not in s.ids(), "the model leaves the list")
    s.wait_for(
        lambda: f"{path_of(root, 'm')} (deleted)" not in s.maps() and not any("(deleted)" in v
                                                                              for v in s.fds().values()),
        "the file's disk space is released", timeout=10)
    model(root, "m", 5000, "again")
    s.wait_for(lambda: s.get("/models/m/tensors/w").status == 200, "a new file of the same name")
    assert s.get("/models/m/tensors/w").body == pattern(5000, "againw")


def test_growing_file(root, start):
    """Bytes behind the end make the file invalid: 503, then an error. A valid file is served again later."""
    t = model(root, "m", 4096)
    s = start(root)
    assert s.get("/models/m/tensors/w").body == t.data
    raw = path_of(root, "m").read_bytes()
    with open(path_of(root, "m"), "ab") as f:
        f.write(b"more")
    r = s.get("/models/m/tensors/w")
    assert r.status in (503, 404) or r.body == t.data, r
    s.wait_for(lambda: s.get("/models/m/tensors/w").status == 404, "the grown file is refused")
    assert s.json("/models/m")["errors"]
    path_of(root, "m").write_bytes(raw)
    s.wait_for(lambda: s.get("/models/m/tensors/w").status == 200, "the mended file is served")
    assert s.get("/models/m/tensors/w").body == t.data


# -------------------------------------------------------------------------------- changed, seen, rescanned

# shows: security.md file-changed-since-scan
def test_changed_file_is_503_then_the_new_manifest(root, start):
    """docs/files.md, Files that change: 503 with Retry-After, and a scan starts, even without an interval."""
    old = model(root, "m", 4096, "old")
    s = start(root, rescan="0")
    before = s.get("/models/m/tensors/w")
    assert before.body == old.data
    new = tensor("w", "U8", [5000], "new")
    write_by_hand(path_of(root, "m"), [new])
    r = s.get("/models/m/tensors/w")
    if r.status == 503:
        check_error(r, 503)
    else:
        assert r.status == 200 and r.body == new.data and r.etag != before.etag, r
    s.wait_for(lambda: s.get("/models/m/tensors/w").status == 200, "the new generation, without SIGHUP or interval")
    assert s.get("/models/m/tensors/w").body == new.data
    assert s.json("/models/m/tensors")["tensors"][0]["nbytes"] == 5000


@pytest.mark.parametrize("what", ["tensor", "file"])
@pytest.mark.parametrize("headers", [{}, {"Range": "bytes=0-9"}, {"If-None-Match": "{etag}"}, {"If-Match": "{etag}"},
                                     {"If-Range": "{etag}", "Range": "bytes=0-9"}])
@leases
# shows: security.md file-changed-since-scan
def test_no_old_etag_for_a_changed_file(root, start, leases, what, headers):
    """Same size, changed in place: no 304, no 206, no 200 under the old ETag (I2, I4, I6)."""
    old = model(root, "m", 4096, "old")
    target = "/models/m/" + ("tensors/w" if what == "tensor" else "files/model.safetensors")
    s = start(root, "--leases", leases, rescan="600")
    tag = s.get(target).etag
    raw = path_of(root, "m").read_bytes()
    new = pattern(4096, "new")
    with open(path_of(root, "m"), "r+b") as f:
        f.seek(len(raw) - 4096)
        f.write(new)
    assert old.data != new
    h = {k: v.replace("{etag}", tag) for k, v in headers.items()}
    deadline = time.monotonic() + 10
    while True:
        r = s.get(target, h)
        assert r.status != 304, f"304 for an ETag that is gone: {r}"
        if r.status == 503:
            check_error(r, 503)
        elif "If-Match" in h:
            check_error(r, 412)
            break
        else:
            assert r.status in (200, 206) and r.etag != tag, f"the old ETag labels new bytes: {r}"
            if "If-Range" in h:
                assert r.status == 200, f"If-Range with an old ETag must not give a part of the new: {r}"
            break
        assert time.monotonic() < deadline, f"503 for 10 s after a change: {r}"
        time.sleep(0.05)


def test_sighup_rescans(root, start):
    model(root, "a")
    s = start(root, rescan="0")
    assert s.ids() == ["a"]
    t = model(root, "b", 100, "b")
    s.hup()
    s.wait_for(lambda: s.ids() == ["a", "b"], "b after SIGHUP", timeout=5)
    assert s.get("/models/b/tensors/w").body == t.data
    shutil.rmtree(root / "a")
    s.hup()
    s.wait_for(lambda: s.ids() == ["b"], "a gone after SIGHUP", timeout=5)


# shows: security.md host-sighup-storm
def test_sighup_storm(root, start):
    """1,000 SIGHUPs under load: no request fails, nothing leaks."""
    t = model(root, "a", 100000)
    for i in range(20):
        model(root, f"more{i}")
    s = start(root)
    for _ in range(20):
        s.get("/models/a/tensors/w")
    s.hup()
    time.sleep(0.5)
    fds, threads, anon = len(s.fds()), s.threads(), s.anon_bytes()
    stop, wrong = threading.Event(), []

    def reader():
        with s.conn() as c:
            while not stop.is_set():
                r = c.request("/models/a/tensors/w")
                if r.status != 200 or r.body != t.data:
                    wrong.append(repr(r))
    th = [threading.Thread(target=reader) for _ in range(2)]
    for x in th:
        x.start()
    for _ in range(1000):
        s.hup()
        time.sleep(0.001)
    time.sleep(0.5)
    stop.set()
    for x in th:
        x.join()
    assert not wrong, wrong[0]
    s.wait_for(lambda: len(s.fds()) <= fds + 1 and s.threads() <= threads,
               f"descriptors {fds} and threads {threads} back", timeout=5)
    grown = s.anon_bytes() - anon
    assert grown < 32 << 20, f"{grown >> 20} MiB more after 1,000 rescans"


def test_rescan_interval_finds_new_changed_and_gone(root, start):
    model(root, "a")
    s = start(root)
    t = model(root, "new/model", 777, "n")
    s.wait_for(lambda: "new/model" in s.ids(), "a new model within the rescan interval", timeout=5)
    assert s.get("/models/new/model/tensors/w").body == t.data
    (root / "new/model/config.json").write_text('{"v":1}')
    def config():
        r = s.get("/models/new/model")                     # 503 while the file is known to have changed
        assert r.status in (200, 503), r
        return r.json().get("config")
    s.wait_for(lambda: config() == {"v": 1}, "config.json that came later", timeout=5)
    (root / "new/model/config.json").write_text('{"v":2}')
    s.wait_for(lambda: config() == {"v": 2}, "config.json changed", timeout=5)
    os.rename(root / "new/model", root / "moved")
    s.wait_for(lambda: s.ids() == ["a", "moved"], "a directory renamed", timeout=5)
    assert s.get("/models/moved/tensors/w").body == t.data


# shows: security.md file-being-written
def test_unsettled_files_wait(root, start):
    """A file younger than --settle is not published; one that keeps changing stays out; then it comes."""
    model(root, "a")
    s = start(root, settle="2")
    path = path_of(root, "slow")
    t = tensor("w", "U8", [4096], "slow")
    write_by_hand(path, [t])
    raw = path.read_bytes()
    began = time.monotonic()
    while time.monotonic() - began < 3:
        path.write_bytes(raw)                              # an upload in progress
        for target in ("/models/slow/tensors/w", "/models/slow/files/model.safetensors"):
            r = s.get(target)
            assert r.status in (404,
                                503), f"published {time.monotonic() - began:.1f} s into the upload, --settle is 2: {r}"
            if r.status == 503:
                check_error(r, 503)
        time.sleep(0.2)
    wrote = time.monotonic()
    s.wait_for(lambda: s.get("/models/slow/tensors/w").status == 200, "published once quiet", timeout=8)
    assert time.monotonic(
    ) - wrote > 1.0, f"published {time.monotonic() - wrote:.2f} s after the last write, --settle is 2"
    assert s.get("/models/slow/tensors/w").body == t.data
    # A known file that is written again: 503 with Retry-After until it settles, never the old ETag with new bytes.
    tag = s.head("/models/slow/tensors/w").etag
    new = tensor("w", "U8", [4096], "slow2")
    write_by_hand(path, [new])
    seen = set()
    deadline = time.monotonic() + 10
    while True:
        r = s.get("/models/slow/tensors/w")
        seen.add(r.status)
        if r.status == 200 and r.etag != tag:
            break
        assert r.status in (200, 503), f"a known but unsettled file: {r}"
        assert r.status != 200 or r.body == t.data, f"the old ETag labels new bytes: {r}"
        if r.status == 503:
            check_error(r, 503)
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)
    assert r.body == new.data
    assert 503 in seen, f"a known but unsettled file is 503 with Retry-After; statuses were {seen}"


def test_a_known_file_cut_to_nothing_is_not_served_as_empty(root, start):
    """A writer truncates first and writes later: in between the answer is 503, until the file settles."""
    t = model(root, "m")
    (root / "m/config.json").write_text('{"v":1}')
    age(root / "m")
    s = start(root, settle="1")
    for name in ("model.safetensors", "config.json"):
        assert s.get(f"/models/m/files/{name}").status == 200
        raw = (root / "m" / name).read_bytes()
        (root / "m" / name).write_bytes(b"")
        began = time.monotonic()
        while time.monotonic() - began < 0.7:
            r = s.get(f"/models/m/files/{name}")
            assert r.status == 503, \
                f"{name} is known and unsettled {time.monotonic() - began:.2f} s after it was cut to nothing: {r}"
            check_error(r, 503)
            r = s.get("/models/m/tensors/w")
            assert r.status == 503 or name == "config.json" and r.body == t.data, \
                f"the tensor of a known, unsettled file: {r}"
            time.sleep(0.02)
        (root / "m" / name).write_bytes(raw)
        s.wait_for(lambda: s.get(f"/models/m/files/{name}").status == 200, f"{name} is served again")
        assert s.get(f"/models/m/files/{name}").body == raw
    assert s.get("/models/m/tensors/w").body == t.data


def test_a_file_caught_in_the_middle_of_its_truncation(root, start):
    """open(O_TRUNC) sets the size before the times:
    for a moment the file is empty under its old, settled mtime and ctime."""
    t = model(root, "m", 2 * BYTES)                         # truncation takes longer the more pages the file has
    raw = path_of(root, "m").read_bytes()
    s = start(root)
    stop, wrong, count = threading.Event(), [], []

    def reader():
        c = s.conn()
        while not stop.is_set():
            try:
                r = c.request("/models/m/files/model.safetensors", {"Range": "bytes=5-9"})
            except (Incomplete, ConnectionError):
                c.close()
                c = s.conn()
                continue
            count.append(r.status)
            if r.status not in (206, 404, 503) or r.status == 206 and r.body != raw[5:10]:
                wrong.append(r)
        c.close()
    threads = [threading.Thread(target=reader) for _ in range(3)]
    for th in threads:
        th.start()
    for _ in range(10):
        s.wait_for(lambda: s.get("/models/m/tensors/w", {"Range": "bytes=0-9"}).status == 206, "service", every=0.01)
        time.sleep(0.06)
        fd = os.open(path_of(root, "m"), os.O_WRONLY | os.O_TRUNC)
        time.sleep(0.01)
        os.write(fd, raw)
        os.close(fd)
    stop.set()
    for th in threads:
        th.join()
    assert not wrong, f"{len(wrong)} of {len(count)} answers are of no generation: {wrong[0]}"
    s.wait_for(lambda: s.get("/models/m/tensors/w").status == 200, "service")
    assert s.get("/models/m/tensors/w").body == t.data


@pytest.mark.parametrize("while_sending", [False, True])
def test_writers_are_not_held_up(root, start, while_sending):
    """A writer waits for a moment at most when it opens a file, however the server guards what it sends."""
    model(root, "m", BYTES)
    s = start(root)
    for how in ("r+b", "wb", "unlink", "rename"):
        tr = None
        time.sleep(0.15)                            # a file under a lease is looked at ten times in a second
        s.wait_for(lambda: s.get("/models/m/tensors/w", {"Range": "bytes=0-9"}).status == 206, "service")
        raw = path_of(root, "m").read_bytes()
        if while_sending:
            tr = Transfer(s, "/models/m/tensors/w")
            tr.read(100000)
        (root / "m/.new").write_bytes(raw)
        began = time.monotonic()
        if how == "unlink":
            os.unlink(path_of(root, "m"))
            os.rename(root / "m/.new", path_of(root, "m"))
        elif how == "rename":
            os.rename(root / "m/.new", path_of(root, "m"))
        else:
            with open(path_of(root, "m"), how) as f:
                f.write(raw)
        took = time.monotonic() - began
        assert took < 3, f"{how} took {took:.1f} s while the file was {'sent' if while_sending else 'known'}"
        if tr:
            tr.c.close()


# shows: security.md file-being-written
def test_a_copy_that_grows_is_never_half_published(root, start):
    """cp of a file in small steps: the model appears only whole."""
    model(root, "a")
    s = start(root, settle="0.5")
    t = tensor("w", "U8", [300000], "cp")
    write_by_hand(root / ".src", [t])
    raw = (root / ".src").read_bytes()
    (root / "cp").mkdir()
    with open(path_of(root, "cp"), "wb") as f:
        for at in range(0, len(raw), 30000):
            f.write(raw[at:at + 30000])
            f.flush()
            r = s.get("/models/cp/tensors/w")
            assert r.status in (404, 503), r
            time.sleep(0.1)
    s.wait_for(lambda: s.get("/models/cp/tensors/w").status == 200, "published when whole", timeout=8)
    assert s.get("/models/cp/tensors/w").body == t.data


# shows: security.md file-future-mtime
def test_future_mtime_is_still_served(root, start):
    """A wrong clock must not hide a file for ever."""
    t = model(root, "future")
    when = time.time() + 86400
    os.utime(path_of(root, "future"), (when, when))
    s = start(root)
    s.wait_for(lambda: s.get("/models/future/tensors/w").status == 200, "a file whose mtime is in the future",
               timeout=6)
    assert s.get("/models/future/tensors/w").body == t.data


# shows: security.md file-swapped
def test_swapped_for_a_directory_fifo_or_link(root, start, tmp_path):
    """A file becomes something else between scan and open: nothing outside is opened, nothing blocks."""
    names = ("dir", "fifo", "link", "parent")
    for n in names:
        model(root, n)
    outside = tmp_path / "outside"
    write_by_hand(outside / "model.safetensors", [tensor("w", "U8", [4096], "SECRET")])
    secret = pattern(4096, "SECRETw")
    s = start(root, rescan="0")
    for n in ("dir", "fifo", "link"):
        os.unlink(path_of(root, n))
    path_of(root, "dir").mkdir()
    os.mkfifo(path_of(root, "fifo"))
    os.symlink(outside / "model.safetensors", path_of(root, "link"))
    os.rename(root / "parent", root / ".gone")
    os.symlink(outside, root / "parent")
    for n in names:
        for target in (f"/models/{n}/tensors/w", f"/models/{n}/files/model.safetensors"):
            began = time.monotonic()
            r = s.get(target)
            assert time.monotonic() - began < 2, target
            assert secret not in r.body, f"{target} serves a file outside the root"
            assert r.status in (200, 404, 503), r
    s.hup()
    for n in names:
        s.wait_for(lambda: s.get(f"/models/{n}/tensors/w").status == 404, f"{n} is gone", timeout=6)


# shows: security.md file-root-vanishes
def test_root_made_empty_and_back(root, start):
    """The server continues to run. When the root is filled again, it is served with the right bytes."""
    t = model(root, "m", BYTES // 8)
    s = start(root)
    tr = Transfer(s, "/models/m/tensors/w", rcvbuf=4096)
    aside = root.parent / "aside"
    aside.mkdir()
    os.rename(root / "m", aside / "m")
    whole, got = tr.finish()
    assert whole and got == t.data
    s.wait_for(lambda: s.ids() == [], "an empty root, confirmed, is an empty list", timeout=10)
    assert s.get("/models/m/tensors/w").status == 404
    os.rename(aside / "m", root / "m")
    s.wait_for(lambda: s.ids() == ["m"], "the model is back", timeout=6)
    assert s.get("/models/m/tensors/w").body == t.data


# shows: security.md file-root-vanishes
def test_root_directory_vanishes_and_returns(root, start):
    t = model(root, "m")
    s = start(root)
    os.rename(root, str(root) + ".away")
    end = time.monotonic() + 3
    while time.monotonic() < end:
        for target in ("/models", "/models/m/tensors/w", "/readyz", "/healthz"):
            r = s.get(target)
            assert r.status in (200, 404, 503), r
            if target == "/healthz":
                assert r.status == 200
            if r.status == 200 and target.endswith("/w"):
                assert r.body == t.data
        time.sleep(0.1)
    os.rename(str(root) + ".away", root)
    s.wait_for(lambda: s.get("/models/m/tensors/w").status == 200 and s.get("/readyz").status == 200, "served again",
               timeout=8)
    assert s.get("/models/m/tensors/w").body == t.data


def test_a_model_that_appears_does_not_disturb_the_etags_of_others(root, start):
    model(root, "m")
    s = start(root)
    tag, listing = s.head("/models/m/tensors/w").etag, s.get("/models/m/tensors").etag
    model(root, "n")
    s.wait_for(lambda: s.ids() == ["m", "n"], "n appears")
    assert s.head("/models/m/tensors/w").etag == tag and s.get("/models/m/tensors").etag == listing
    s.stop()
    again = start(root)
    assert again.head("/models/m/tensors/w").etag == tag, "the ETag of an unchanged file survives a restart"


# -------------------------------------------------------------------------------------------------- drain

# shows: security.md host-sigterm-downloads
def test_sigterm_waits_for_a_transfer(root, start):
    """The transfer completes with the right bytes, new work is refused, readyz says so, exit 0."""
    t = model(root, "m", BYTES)
    s = start(root)
    tr = Transfer(s, "/models/m/tensors/w")
    tr.read(1 << 20)
    s.term()
    time.sleep(0.5)
    assert s.alive(), "the server ended with a transfer under way"
    for target in ("/readyz", "/models"):
        try:
            r = s.get(target)
        except (ConnectionError, Incomplete):
            continue                                       # refused, which is also right
        if target == "/readyz":
            check_error(r, 503)
        else:
            assert r.status == 503 or "close" in r.get("Connection", "").lower(), f"while draining: {r}"
    for _ in range(8):
        tr.read(2 << 20)
        time.sleep(0.1)
    whole, got = tr.finish()
    assert whole and got == t.data, f"a transfer under drain: whole {whole}, {len(got)} of {BYTES} bytes"
    began = time.monotonic()
    assert s.wait_exit(10) == 0, f"exit code {s.rc}"
    assert time.monotonic() - began < 5, f"{time.monotonic() - began:.1f} s from the last byte to the exit"


# shows: security.md host-sigterm-downloads
def test_drain_timeout_cuts(root, start):
    model(root, "m", BYTES)
    s = start(root, "--drain-timeout", 2, "--send-timeout", 60)
    tr = Transfer(s, "/models/m/tensors/w", rcvbuf=4096)
    began = time.monotonic()
    s.term()
    assert s.wait_exit(10) == 0, f"exit code {s.rc}"
    took = time.monotonic() - began
    assert 1.5 <= took <= 5, f"ended after {took:.1f} s, --drain-timeout is 2"
    whole, _ = tr.finish()
    assert not whole, "cut, yet the client thinks the answer is whole"


def test_drain_delay_keeps_serving(root, start):
    """readyz 503 at once, still accepting and serving for --drain-delay, each answer with Connection: close."""
    t = model(root, "m")
    s = start(root, "--drain-delay", 3)
    keep = s.conn()
    assert keep.request("/models/m/tensors/w").status == 200
    s.term()
    s.wait_for(lambda: s.get("/readyz").status == 503, "readyz 503 after SIGTERM", timeout=1.5)
    assert s.get("/healthz").status == 200, "alive while draining"
    r = s.get("/models/m/tensors/w")
    assert r.status == 200 and r.body == t.data, f"within --drain-delay: {r}"
    assert "close" in r.get("Connection", "").lower(), f"Connection: close while draining (RFC 9112 9.6): {r}"
    r = keep.request("/models/m/tensors/w")
    assert r.status == 200 and "close" in r.get("Connection", "").lower(), r
    assert keep.ended()
    keep.close()
    began = time.monotonic()
    assert s.wait_exit(10) == 0
    assert time.monotonic() - began < 5


# shows: security.md host-sigterm-downloads
def test_idle_connections_do_not_hold_up_the_drain(root, start):
    model(root, "m")
    s = start(root)
    conns = [s.conn() for _ in range(20)]
    for c in conns[:10]:
        assert c.request("/models/m/tensors/w").status == 200
    for c in conns[10:15]:
        c.send(b"GET /mod")
    began = time.monotonic()
    s.term()
    assert s.wait_exit(15) == 0
    took = time.monotonic() - began
    assert took < 5, f"20 idle connections held up the exit for {took:.1f} s"
    for c in conns:
        c.close()


def test_second_sigterm_ends_at_once(root, start):
    model(root, "m", BYTES)
    s = start(root, "--drain-timeout", 60, "--send-timeout", 60)
    tr = Transfer(s, "/models/m/tensors/w", rcvbuf=4096)
    s.term()
    time.sleep(0.5)
    assert s.alive()
    began = time.monotonic()
    s.term()
    s.wait_exit(10)
    took = time.monotonic() - began
    assert took < 2, f"ended {took:.1f} s after the second SIGTERM"
    s.check_stderr()
    s.rc_after_second = s.rc
    assert s.rc in (0, 1, 128 + signal.SIGTERM, -signal.SIGTERM), f"exit code {s.rc}"
    s.rc = 0                                             # stop() of the fixture asks for 0 after an ordinary drain
    tr.c.close()


def test_sigint_drains_too(root, start):
    model(root, "m")
    s = start(root)
    s.proc.send_signal(signal.SIGINT)
    assert s.wait_exit(10) == 0, f"exit code {s.rc} after SIGINT"


def test_sigterm_during_the_first_scan(root, start):
    for i in range(300):
        model(root, f"m{i}")
    s = start(root, ready=False)
    s.term()
    assert s.wait_exit(10) == 0, f"exit code {s.rc}"


def test_sigpipe_does_not_kill(root, start):
    t = model(root, "m", BYTES)
    s = start(root)
    for _ in range(20):
        c = Conn(s.port, rcvbuf=4096)
        c.send(b"GET /models/m/tensors/w HTTP/1.1\r\nHost: x\r\n\r\n")
        c.sock.recv(100)
        c.close()
    assert s.get("/models/m/tensors/w").body == t.data
