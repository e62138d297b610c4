"""Connections that share threads (--workers): what would wait leaves the thread, so that nobody else waits for it."""
import contextlib
import os
import resource
import socket
import struct
import subprocess
import threading
import time

import pytest

from fixtures import stuck_disk
from harness import NOBODY, Conn, age, as_nobody, check_error, request_bytes, tensor, write_by_hand

BYTES = 4 << 20
TENSOR = "/models/m/tensors/w"
SHORT = {"Range": "bytes=0-4095"}


def write_model(root, names="m"):
    for name in names:
        write_by_hand(root / name / "model.safetensors", [tensor("w", "U8", [BYTES])])
    age(root)


def data_of(root, name="m"):
    return (root / name / "model.safetensors").read_bytes()[-BYTES:]


def sample(srv, metric):
    return {name: v for name, labels, v in srv.metrics()[2] if not labels}[metric]


def threads(srv):
    return len(os.listdir(f"/proc/{srv.proc.pid}/task"))


def settled_threads(srv):
    """Return the number of threads when it has not changed for 0.5 s: earlier connections and jobs have ended."""
    last, since = threads(srv), time.monotonic()
    while time.monotonic() - since < 0.5:
        if (now := threads(srv)) != last:
            last, since = now, time.monotonic()
        time.sleep(0.02)
    return last


def refuses(port):
    try:
        Conn(port).close()
    except ConnectionError:
        return True
    return False


@pytest.fixture
def root(tmp_path):
    write_model(tmp_path / "root")
    return tmp_path / "root"


def test_short_answers_share_threads(root, start):
    """A connection takes no thread until its first request comes, and none of its own if that asks for little."""
    with start(root, "--workers", "2") as srv, contextlib.ExitStack() as stack:
        before = settled_threads(srv)
        silent = [stack.enter_context(Conn(srv.port)) for _ in range(20)]
        srv.wait_for(lambda: sample(srv, "tensord_http_connections") >= 21, "all are accepted")
        short = [stack.enter_context(Conn(srv.port)) for _ in range(20)]
        for c in short:
            assert c.request(TENSOR, SHORT).body == data_of(root)[:4096]
        assert threads(srv) <= before + 1  # a job may be at work
        long = [stack.enter_context(Conn(srv.port)) for _ in range(5)]
        for c in long:
            assert c.request(TENSOR).body == data_of(root)
        assert threads(srv) >= before + 5
        for c in silent:  # the first request may also come late
            assert c.request(TENSOR, {"Range": "bytes=5-9"}).body == data_of(root)[5:10]


def test_no_workers(root, start):
    with start(root, "--workers", "0") as srv, Conn(srv.port) as c:
        for _ in range(3):
            assert c.request(TENSOR, SHORT).body == data_of(root)[:4096]
        with_it = settled_threads(srv)
        c.close()
        srv.wait_for(lambda: threads(srv) == with_it - 1, "its thread has ended")
        assert sample(srv, "tensord_http_jobs_total") == 0


@pytest.mark.parametrize("workers", ["0", "2"])
def test_silent_connections_take_no_thread_while_the_server_drains(root, start, workers):
    """They are not closed at once: the first request of one may be on its way, and is answered."""
    with start(root, "--workers", workers) as srv, contextlib.ExitStack() as stack:
        before = settled_threads(srv)
        silent = [stack.enter_context(Conn(srv.port)) for _ in range(40)]
        srv.wait_for(lambda: sample(srv, "tensord_http_connections") >= 41, "all are accepted")
        srv.term()
        srv.wait_for(lambda: refuses(srv.port), "the server listens no more")
        assert threads(srv) <= before + 1  # one may have ended later than settled_threads has seen
        got = silent[0].request(TENSOR, SHORT)
        assert got.body == data_of(root)[:4096] and got.get("Connection") == "close"
        assert threads(srv) <= before + 1
        assert srv.wait_exit(10) == 0
        assert all(c.ended() for c in silent[1:])


@pytest.mark.parametrize("leases", ["on", "off"])
def test_every_answer_is_right_in_a_shared_thread(root, start, leases):
    """A connection that begins with a short range gets all other answers too: long ones by reference and through
    windows, slices, lists, plans, errors, and answers to bodies."""
    data = data_of(root)
    with start(root, "--workers", "1", "--leases", leases) as srv, Conn(srv.port) as c:
        for _ in range(2):
            assert c.request(TENSOR, SHORT).body == data[:4096]
            assert c.request(TENSOR).body == data
            assert c.request(TENSOR, {"Range": "bytes=1-1048579"}).body == data[1:1048580]
            assert c.request(TENSOR, {"Range": "bytes=0-9,100-109"}).status == 206
            assert c.request(TENSOR + "?slice=0:4000000:2").status == 400
            assert c.request(TENSOR + "?slice=3:3000003").body == data[3:3000003]
            assert c.request("/models").json()["models"][0]["id"] == "m"
            assert c.request("/models/m/tensors").json()["tensor_count"] == 1
            assert c.request("/api/models/m", method="HEAD").status in (200, 404)
            assert c.request("/models/m/nothing").status == 404
            assert c.request(TENSOR, method="HEAD").length == BYTES
            read = c.request("/models/m/tensors:read", method="POST", body=b'{"items": [{"tensor": "w"}]}')
            assert read.status in (200, 400)
        assert sample(srv, "tensord_http_jobs_total") > 0


def test_pipelined_requests_are_answered_in_order(root, start):
    data = data_of(root)
    with start(root, "--workers", "1") as srv, Conn(srv.port, timeout=60) as c:
        parts = [(0, 10), (0, BYTES), (7, 70000), (100, 120)] * 3
        c.send(b"".join(request_bytes(TENSOR, {"Range": f"bytes={a}-{b - 1}"}) for a, b in parts))
        for a, b in parts:
            assert c.read_response().body == data[a:b]


# shows: security.md client-leaves
def test_a_client_that_has_closed_its_side_is_answered_by_jobs_too(root, start):
    """Beside older connections on the same thread, libmicrohttpd reads from the socket as soon as the job has ended."""
    with start(root, "--workers", "2") as srv, contextlib.ExitStack() as stack:
        for _ in range(16):
            assert stack.enter_context(Conn(srv.port)).request("/models").status == 200
        for target in ["/models/m/tensors", "/models", TENSOR, TENSOR + "?slice=3:3000003"] * 3:
            c = stack.enter_context(Conn(srv.port))
            assert c.request(TENSOR, SHORT).status == 206
            c.send(request_bytes(target))
            c.sock.shutdown(socket.SHUT_WR)
            r = c.read_response()
            assert r.status == 200 and len(r.body) == r.length, target


def test_a_client_that_has_closed_its_side_is_answered_and_closed(root, start):
    with start(root, "--workers", "1") as srv, Conn(srv.port) as c:
        c.send(request_bytes(TENSOR, SHORT) * 2)
        c.sock.shutdown(socket.SHUT_WR)
        for _ in range(2):
            assert c.read_response().body == data_of(root)[:4096]
        assert c.ended(timeout=5)


# ---------------------------------------------------------------------------------------------- a disk that hangs


@contextlib.contextmanager
def released(hold):
    """Let the disk continue at the end, also of a test that fails: the server cannot be stopped before."""
    try:
        yield
    finally:
        hold.unlink(missing_ok=True)


@pytest.fixture
def stuck(place):
    """A root on a file system whose reads hang while the third value, a path, exists; the first one is its source."""
    source = place / "source"
    write_model(source, ["m", "cached", "asked"])
    with stuck_disk(place) as (mount_point, hold):
        yield source, mount_point, hold


@pytest.mark.parametrize("asked", [SHORT, {"Range": "bytes=1000000-1200000"}, {}])
# shows: security.md client-hanging-disk
def test_a_disk_that_hangs_holds_up_nobody_else(stuck, start, asked):
    source, mount_point, hold = stuck
    with start(mount_point, "--workers", "1") as srv, released(hold), contextlib.ExitStack() as stack:
        calm, waiting = [], []
        for _ in range(4):
            calm.append(stack.enter_context(Conn(srv.port)))
            waiting.append(stack.enter_context(Conn(srv.port, timeout=60)))
            for c in (calm[-1], waiting[-1]):
                assert c.request("/models/cached/tensors/w", SHORT).body == data_of(source, "cached")[:4096]
        hold.touch()
        for c in waiting:
            c.send(request_bytes(TENSOR, {"Range": "bytes=3000000-3004095"} if asked is SHORT else asked))
        time.sleep(0.3)
        slowest = 0
        for i in range(200):
            begun = time.monotonic()
            got = calm[i % len(calm)].request("/models/cached/tensors/w", SHORT)
            slowest = max(slowest, time.monotonic() - begun)
            assert got.body == data_of(source, "cached")[:4096]
        with Conn(srv.port) as c:
            assert c.request("/healthz").status == 200
        assert slowest < 2, slowest
        hold.unlink()
        data = data_of(source)
        expected = (data[3000000:3004096] if asked is SHORT else data[1000000:1200001] if asked else data)
        for c in waiting:
            assert c.read_response().body == expected


# shows: security.md client-hanging-disk
def test_attributes_that_do_not_come_hold_up_nobody_else(stuck, start):
    """All bytes are in memory, but only the file system knows whether the file is still the same."""
    source, mount_point, hold = stuck
    asked = "/models/asked/tensors/w"
    with start(mount_point, "--workers", "1") as srv, released(hold), Conn(srv.port) as calm, \
            Conn(srv.port, timeout=60) as waiting:
        for _ in range(2):
            assert calm.request("/models/cached/tensors/w", SHORT).body == data_of(source, "cached")[:4096]
            assert waiting.request(asked, SHORT).body == data_of(source, "asked")[:4096]
        hold.touch()
        waiting.send(request_bytes(asked, SHORT))
        time.sleep(0.3)
        for _ in range(20):
            assert calm.request("/models/cached/tensors/w", SHORT).body == data_of(source, "cached")[:4096]
        hold.unlink()
        assert waiting.read_response().body == data_of(source, "asked")[:4096]


def test_a_file_is_looked_at_by_a_job(stuck, start):
    """An answer of more than 32 KiB, which a slow client reads while the file system says nothing of the file."""
    source, mount_point, hold = stuck
    asked = "/models/asked/tensors/w"
    with start(mount_point, "--workers", "1") as srv, released(hold), Conn(srv.port, timeout=2) as calm, \
            Conn(srv.port, timeout=60, rcvbuf=4096, mss=536) as waiting:
        # With what the kernel needs for each segment, the sockets hold less than the answer.
        for c in (calm, waiting):
            assert c.request("/models/cached/tensors/w", SHORT).body == data_of(source, "cached")[:4096]
        assert srv.get(asked).body == data_of(source, "asked")    # all of it is in memory
        waiting.send(request_bytes(asked, {"Range": "bytes=0-250000"}))
        time.sleep(0.3)
        hold.touch()
        body = []
        reader = threading.Thread(target=lambda: body.append(waiting.read_response().body))
        reader.start()
        time.sleep(0.3)
        for _ in range(20):
            assert calm.request("/models/cached/tensors/w", SHORT).body == data_of(source, "cached")[:4096]
        hold.unlink()
        reader.join(60)
        assert body == [data_of(source, "asked")[:250001]]


@pytest.mark.parametrize("options, headers", [((), {}), (("--files", "immutable"), {}),
                                              (("--files", "immutable"), {"Connection": "close"})])
def test_nobody_waits_for_a_socket_whose_answer_waits_for_a_disk(stuck, start, options, headers):
    """The kernel locks a socket while it copies to it, and would wait for the disk so. The thread that enforces
    deadlines looks at every socket, and new connections wait for it."""
    source, mount_point, hold = stuck
    path = mount_point / "m" / "model.safetensors"
    with start(mount_point, *options) as srv, released(hold), Conn(srv.port, timeout=60) as waiting:
        first = path.stat().st_size - BYTES
        for target in ("/models/cached/tensors/w", "/healthz"):
            assert srv.get(target).status == 200
        with open(path, "rb") as f:    # what is looked at is in memory, and nothing else
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for at in (0, *(first + (BYTES - 1) // 3 * i for i in range(4))):
                os.pread(f.fileno(), 1, at)
            hold.touch()
            waiting.send(request_bytes(TENSOR, headers))
            time.sleep(0.5)
            for _ in range(5):
                assert srv.get("/healthz", timeout=3).status == 200
        hold.unlink()
        assert waiting.read_response().body == data_of(source)


# shows: security.md client-leaves
def test_a_client_that_goes_while_a_job_works_is_counted(stuck, start):
    source, mount_point, hold = stuck
    with start(mount_point, "--workers", "1") as srv, released(hold), contextlib.ExitStack() as stack:
        def counted():
            return sum(v for name, labels, v in srv.metrics()[2]
                       if name == "tensord_http_requests_total" and labels["route"] == "tensor")

        conns = [stack.enter_context(Conn(srv.port)) for _ in range(9)]
        for c in conns:
            assert c.request("/models/cached/tensors/w", SHORT).body == data_of(source, "cached")[:4096]
        srv.wait_for(lambda: counted() == 9, "the short ones are counted")
        hold.touch()
        for i, c in enumerate(conns[:8]):
            c.send(request_bytes(TENSOR, {"Range": f"bytes={300000 * i}-{300000 * i + (4095 if i % 2 else 70000)}"}))
        srv.wait_for(lambda: srv.gauge("tensord_http_requests_in_flight") == 9, "jobs wait for the disk")
        for c in conns[:8]:
            c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            c.close()
        hold.unlink()
        srv.wait_for(lambda: counted() == 17, "they are counted")
        srv.wait_for(lambda: srv.gauge("tensord_http_requests_in_flight") == 1, "nothing is left")
        assert conns[8].request(TENSOR, SHORT).body == data_of(source)[:4096]


@contextlib.contextmanager
def no_further_thread(srv):
    """Let the system start no thread for the server of as_nobody: root has no such limit. It is the server's user who
    sets the limit, since root in a container may not."""
    before = resource.getrlimit(resource.RLIMIT_NPROC)[0]  # the server has inherited it

    def limit(threads):
        subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "prlimit", "--pid",
                        str(srv.proc.pid), f"--nproc={threads}:"], check=True)

    limit(1)
    try:
        yield
    finally:  # at its end, LeakSanitizer starts a process
        limit("unlimited" if before == resource.RLIM_INFINITY else before)


def test_what_would_wait_is_refused_when_no_thread_becomes_free(stuck, place, start):
    """All threads for jobs wait for the disk, and no further one can be started: a request that would wait is answered
    503 at once, until the disk continues. Earlier requests wait."""
    source, mount_point, hold = stuck
    with start(mount_point, "--workers", "1", binary=as_nobody(place)) as srv, released(hold), \
            contextlib.ExitStack() as stack:
        calm, *waiting = [stack.enter_context(Conn(srv.port, timeout=60)) for _ in range(9)]
        for c in (calm, *waiting):
            assert c.request("/models/cached/tensors/w", SHORT).body == data_of(source, "cached")[:4096]
        stack.enter_context(no_further_thread(srv))
        hold.touch()
        for i, c in enumerate(waiting):
            c.send(request_bytes(TENSOR, {"Range": f"bytes={300000 * i}-{300000 * i + 4095}"}))
        # All of them have come before the worker answers one that was sent later and does not wait.
        assert calm.request("/healthz").status == 200

        def refused():
            """Return the answer when it comes at once. Until the jobs are stuck, this is one more that waits."""
            r = srv.get(TENSOR, SHORT, timeout=0.5)
            return r.status == 503 and r

        r = srv.wait_for(refused, "a request is refused")
        check_error(r, 503, "no thread is free, and no further one can be started; try again")
        assert r.get("Connection") == "close"
        assert "no further thread could be started for what has to wait" in srv.stderr()
        assert srv.get("/healthz").status == 200
        hold.unlink()
        for i, c in enumerate(waiting):
            assert c.read_response().body == data_of(source)[300000 * i:300000 * i + 4096]
        assert calm.request(TENSOR, {"Range": "bytes=3000000-3004095"}).body == data_of(source)[3000000:3004096]


# shows: security.md client-hanging-disk
def test_the_server_stops_while_a_job_waits_for_a_disk(stuck, start):
    """As with a thread that waits for a disk, the stop takes until the disk answers."""
    source, mount_point, hold = stuck
    with start(mount_point, "--workers", "1", "--drain-timeout", "0") as srv, released(hold), Conn(srv.port) as c:
        assert c.request("/models/cached/tensors/w", SHORT).body == data_of(source, "cached")[:4096]
        hold.touch()
        c.send(request_bytes(TENSOR, {"Range": "bytes=3000000-3004095"}))
        time.sleep(0.3)
        threading.Timer(1, hold.unlink, kwargs={"missing_ok": True}).start()
        srv.stop()
