"""The history check of history.py, for a minute with a fresh seed (./test.sh --long runs it for 35 minutes); and
proof that the check finds violations."""
import dataclasses
import io
import os
import socket
import subprocess
import sys
import time

import pytest

import history
from harness import REPO, tensord_binary

SECONDS = float(os.environ.get("TENSORD_HISTORY_SECONDS", 10))
SEED = int(os.environ.get("TENSORD_HISTORY_SEED", time.time()))


@pytest.mark.parametrize("leases", ["on", "off"])
@pytest.mark.parametrize("who", ["owner", "another user"])
# shows: security.md file-random-changes open-relay
def test_history(who, leases):
    """With read leases (where the host grants them) and without, with a server that owns the files and with one that
    does not."""
    history.run(SECONDS, SEED, options=["--leases", leases], another_user=who != "owner")


# shows: security.md open-relay
def test_history_without_references_on_this_host(capsys):
    """A relay that splices has no answer by reference then, so nothing of what it passes on is let pass."""
    history.run(SECONDS, SEED, options=["--sendfile", "remote"])
    out = capsys.readouterr().out
    assert "may have had by reference 0; named as open, overwritten in place while it had them: 0" in out, out
    assert "'file': 0" in out, out


# shows: security.md open-namespace
def test_history_from_another_network_namespace():
    """With clients in a network namespace of their own. Who is not root becomes it in a user namespace."""
    command = [sys.executable, "-B", str(REPO / "tests/http/history.py"), "--namespace", "--seconds", str(2 * SECONDS),
               "--seed", str(SEED)]
    if os.geteuid() != 0:
        command = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    done = subprocess.run(command, env=os.environ | {"TENSORD": str(tensord_binary())}, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0 and "named as open" in done.stdout, done.stdout + done.stderr


def test_words_name_their_generation(tmp_path):
    f = history.File(tmp_path, 3, "f", "inplace", 64 << 10)
    f.gen = 9
    for gen in (0, 5, 9):
        raw = f.content(gen)
        assert len(raw) == f.size
        for start, end in ((0, f.size), (f.base + 1, f.base + 100), (f.base + 64, f.base + 72), (1000, 1001),
                           (f.size - 3, f.size)):
            assert gen in f.generations_of(start, raw[start:end]), (gen, start, end)
        for a, b in ((0, 10), (f.base - 3, f.base + 5), (f.base, f.base + 3), (f.base + 13, f.base + 90), (f.size - 5,
                                                                                                           f.size)):
            f.cache.clear()
            assert f.piece(gen, a, b) == raw[a:b], (gen, a, b)
    a, b = f.content(5), f.content(9)
    for cut in (f.base + 8, f.base + 4096, f.size - 8, f.size - 1, f.base - 5):
        assert not f.generations_of(0, a[:cut] + b[cut:]), f"a mixture at byte {cut} goes unseen"
    assert not f.generations_of(f.base, bytes(1000)), "zeros go unseen"
    sliced = "/models/f/tensors/w1?shard=1:1/2"
    runs = f.targets[sliced]
    body = b"".join(a[x:y] for x, y in runs)
    assert len(body) == f.length(sliced) == 8192 and len(runs) == 8
    assert f.pieces(sliced, 1000, body[1000:3000]) == [(runs[0][0] + 1000, a[runs[0][0] + 1000:runs[0][1]]),
                                                       (runs[1][0], a[runs[1][0]:runs[1][1]]),
                                                       (runs[2][0], a[runs[2][0]:runs[2][0] + 952])]
    mixed = a[:5000] + b[5000:70000 - f.base]
    assert f.mixture(0, mixed) == {5, 9} and f.mixture(3, mixed[3:]) == {5, 9} and f.mixture(0, a) == {5}
    pieces = [(0, mixed[:4000]), (f.base + 5, mixed[f.base + 5:f.base + 8]), (9000, mixed[9000:])]
    assert history.mixture_of(f, pieces) == {5, 9}
    assert not history.mixture_of(f, [*pieces[:1], (f.base + 5, b"xyz"), *pieces[2:]]), "bytes of no generation"
    assert not f.mixture(0, mixed[:20] + b"\0" + mixed[21:]), "a header of no generation goes unseen"
    assert not f.mixture(0, mixed[:9000] + b"\0" + mixed[9001:]), "a word of no generation goes unseen"
    assert "gen 5 from byte" in f.describe(0, a[:2000] + b[2000:]) and "gen 9 from" in f.describe(
        0, a[:2000] + b[2000:])


@dataclasses.dataclass
class Fake:
    index: int = 0
    name: str = "f"
    how: str = "inplace"
    published: tuple = ((0, -10.0, -10.0, "first"), (1, 10.0, 10.5, "inplace"))
    stalls: tuple = ()
    opened: dict = dataclasses.field(default_factory=lambda: {1: 10.1})


def rec(t0, t1, op="get", status=200, etag='"a"', gens=(0, ), sent_etag=None, sent_range=None, whole=True, note="",
        target="/t", whole_since=None, mixture=(), is_relayed=False):
    return history.Record(t0, t1, 0, 0, target, op, sent_etag, sent_range, status, etag,
                          None if gens is None else frozenset(gens), whole, note, whole_since, frozenset(mixture),
                          is_relayed)


LATE = 10.5 + history.BOUND + 1
GOOD = [rec(1, 2), rec(11, 12, etag='"b"', gens=(1,)), rec(LATE, LATE + 1, etag='"b"', gens=(1,))]


@pytest.mark.parametrize("name, how, more", [
    ("I1", "inplace", [rec(3, 4, gens=())]),
    ("I2", "inplace", [rec(11, 12, etag='"a"', gens=(1,))]),
    ("I3", "inplace", [rec(LATE, LATE + 1, gens=(0,))]),
    ("I3", "inplace", [rec(12.5, 13, gens=(0,))]),                                       # must not be older
    ("I4", "inplace", [rec(11, 12, "if-range", 206, '"b"', (1,), sent_etag='"a"', sent_range="bytes=0-1")]),
    ("I6", "inplace", [rec(LATE, LATE + 1, "if-none-match", 304, '"a"', None, sent_etag='"a"')]),
    ("broken", "rename", [rec(3, 4, gens=None, whole=False)]),
    ("broken", "touch", [rec(3, 4, gens=None, whole=False)]),
    ("I1", "restore", [rec(3, 4, gens=())]),
    ("I2", "restore", [rec(11, 12, etag='"a"', gens=(1,))]),
    ("status 503", "never", [rec(3, 4, status=503, etag=None, gens=None)]),
    ("status 500", "inplace", [rec(3, 4, status=500, etag=None, gens=None)]),
    ("I5", "inplace", [rec(3, 4, "head", gens=None, note="HEAD says 5 bytes")]),
])
# shows: security.md file-random-changes
def test_the_checker_finds(name, how, more):
    f = Fake(how=how)
    found = history.check([f], GOOD + more, 0.0)
    assert found and name in found[0], f"{name} goes unseen: {found}"


def test_the_checker_lets_good_histories_pass():
    allowed = [rec(3, 4, gens=None, whole=False), rec(10.1, 10.2, status=503, etag=None, gens=None),
               rec(10.6, 10.9, gens=(0,)), rec(3, 4, "if-none-match", 304, '"a"', None, sent_etag='"a"')]
    assert history.check([Fake()], GOOD + allowed, 0.0) == []


OPENED = Fake().opened[1]
UNREAD = {"t0": OPENED - 2.5, "t1": OPENED + 0.2, "whole_since": OPENED - 2.2}


@pytest.mark.parametrize("way", [{}, {"whole_since": None, "is_relayed": True}], ids=["unread", "relayed"])
@pytest.mark.parametrize("gens, mixture", [((), (0, 1)), ((1,), (1,))])
def test_what_is_named_as_open_is_counted(gens, mixture, way):
    """The answer is changed, in part or as a whole, by a writer in place that had to wait for the grace, or that wrote
    while a relay had the answer. It shows nothing that later answers must not be older than."""
    left_open = []
    r = rec(**UNREAD | way, gens=gens, mixture=mixture, note="" if gens else "body: of two generations")
    later = rec(10.35, 10.4, "if-none-match", 304, '"a"', None, sent_etag='"a"')
    assert history.check([Fake()], GOOD + [r, later], 0.0, left_open) == [] and left_open == [r]


@pytest.mark.parametrize("name, gens, mixture, other", [
    ("I1", (), (0, 1), {"whole_since": None}),                  # it was not seen in its client's socket
    ("I1", (), (0, 1), {"whole_since": OPENED - 1.9}),          # the writer got the file within the grace
    ("I1", (), (0, 1), {"t1": OPENED - 0.01}),                  # the writer got the file after the answer was read
    ("I1", (), (), {}),                                         # bytes of no generation
    ("I1", (), (0, 1, 2), {}),                                  # one of the writers did not write in place
    ("I2", (1,), (1,), {"whole_since": OPENED - 1.9}),
    ("I2", (1,), (1,), {"whole_since": None}),
    ("I2", (2,), (2,), {}),
    ("I2", (1,), (1,), {"etag": '"b2"'}),                       # the tag is that of a later generation
    ("I1", (), (0, 1), {"is_relayed": True, "t0": OPENED + 0.1}),       # the writer got the file before it was sent
    ("I1", (), (0, 1), {"is_relayed": True, "t1": OPENED - 0.01}),      # the writer got the file after it was read
])
# shows: security.md open-namespace
def test_what_is_not_named_as_open_is_a_violation(name, gens, mixture, other):
    known = GOOD[:2] + [rec(12, 13, etag='"b2"', gens=(2,))]
    f = Fake(published=Fake.published + ((2, 11.0, 11.1, "rename"),))
    left_open = []
    r = rec(**UNREAD | {"gens": gens, "mixture": mixture} | other)
    found = history.check([f], known + [r], 0.0, left_open)
    assert found and name in found[0] and not left_open, f"{name} goes unseen: {found}"


def test_a_client_knows_since_when_the_whole_answer_lay_there():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        c = history.Watched(listener.getsockname()[1])
        peer = listener.accept()[0]
    with c, peer:
        c.ask(b"GET / HTTP/1.1\r\n\r\n")
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n" + bytes(100))
        half = time.monotonic()
        while c.looks[-1][0] < half + 0.1:
            c.look()
        before = time.monotonic()
        peer.sendall(bytes(100))
        after = time.monotonic()
        while c.looks[-1][0] < after + 0.1:
            c.look()
        c.read_response()
        assert before - 0.1 < c.whole_since() < after + 0.1
        c.ask(b"GET / HTTP/1.1\r\n\r\n")
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        c.read_response()
        assert c.whole_since() is None, "nobody looked"


def test_half_a_generation_may_be_served_while_its_writer_is_kept_waiting():
    half = rec(10.2, 10.3, "head", gens=None, note="HEAD says 0 bytes")
    stalled = Fake(stalls=((10.0, 10.45),))
    assert history.check([stalled], GOOD + [half], 0.0) == []
    assert history.check([stalled], GOOD + [half._replace(t0=3, t1=4)], 0.0), "another time is judged"


def test_a_writer_notes_its_pauses(tmp_path, monkeypatch):
    f = history.File(tmp_path, 0, "f", "truncate", 64 << 10)
    writer = history.Writer(f, 1, None)
    writer.write("truncate")
    assert f.stalls == []
    monkeypatch.setattr(history, "SETTLE", 0.0)
    writer.write("truncate")
    assert f.stalls


class Delayed(io.FileIO):
    """A file whose writer is delayed after the first step and before the second one, by less than files need to settle,
    and by more in all."""
    steps = 0

    def write(self, data):
        self.steps += 1
        time.sleep(0.3 if self.steps == 2 else 0)
        written = super().write(data)
        time.sleep(0.3 if self.steps == 1 else 0)
        return written


def test_a_writer_notes_pauses_within_its_steps(tmp_path):
    f = history.File(tmp_path, 0, "f", "inplace", 64 << 10)
    f.path.write_bytes(f.content(0))
    writer = history.Writer(f, 1, None)
    writer.rng.choice = lambda chunks: chunks[1]                # two steps
    with Delayed(f.path, "r+") as out:
        writer.own(1)
        writer.spill(out, out, f.content(1))
    assert out.steps == 2 and len(f.stalls) == 1


def test_a_writer_notes_a_truncation_that_takes_long(tmp_path, monkeypatch):
    """The times of the file are set at its end."""
    f = history.File(tmp_path, 0, "f", "truncate", 64 << 10)
    writer = history.Writer(f, 1, None)

    def slow_open(*args, **kwargs):
        time.sleep(0.5)
        return open(*args, **kwargs)

    monkeypatch.setattr(history, "open", slow_open, raising=False)
    writer.write("truncate")
    assert len(f.stalls) == 1


@pytest.mark.parametrize("how", ["inplace", "mmap"])
def test_a_writer_in_place_notes_when_it_has_the_file(tmp_path, how):
    f = history.File(tmp_path, 0, "f", how, 64 << 10)
    f.path.write_bytes(f.content(0))
    before, inode = time.monotonic(), f.path.stat().st_ino
    history.Writer(f, 1, None).publish(how)
    assert f.path.read_bytes() == f.content(1) and f.path.stat().st_ino == inode
    assert list(f.opened) == [1] and before < f.opened[1] < f.published[-1][2]
