"""The history check of history.py, for 40 seconds with a fresh seed; and proof that the check finds violations."""
import dataclasses
import os
import time

import pytest

import history


@pytest.mark.parametrize("leases", ["on", "off"])
@pytest.mark.parametrize("who", ["owner", "another user"])
def test_history(who, leases):
    """10 seconds each with read leases (where the host grants them) and without,
    with a server that owns the files and with one that does not."""
    seed = int(os.environ.get("TENSORD_HISTORY_SEED", time.time()))
    history.run(float(os.environ.get("TENSORD_HISTORY_SECONDS", 10)), seed, options=["--leases", leases],
                another_user=who != "owner")


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
    assert "gen 5 from byte" in f.describe(0, a[:2000] + b[2000:]) and "gen 9 from" in f.describe(
        0, a[:2000] + b[2000:])


@dataclasses.dataclass
class Fake:
    index: int = 0
    name: str = "f"
    how: str = "inplace"
    published: tuple = ((0, -10.0, -10.0, "first"), (1, 10.0, 10.5, "inplace"))
    stalls: tuple = ()


def rec(t0, t1, op="get", status=200, etag='"a"', gens=(0, ), sent_etag=None, sent_range=None, whole=True, note="",
        target="/t"):
    return history.Record(t0, t1, 0, 0, target, op, sent_etag, sent_range, status, etag,
                          None if gens is None else frozenset(gens), whole, note)


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
def test_the_checker_finds(name, how, more):
    f = Fake(how=how)
    found = history.check([f], GOOD + more, 0.0)
    assert found and name in found[0], f"{name} goes unseen: {found}"


def test_the_checker_lets_good_histories_pass():
    allowed = [rec(3, 4, gens=None, whole=False), rec(10.1, 10.2, status=503, etag=None, gens=None),
               rec(10.6, 10.9, gens=(0,)), rec(3, 4, "if-none-match", 304, '"a"', None, sent_etag='"a"')]
    assert history.check([Fake()], GOOD + allowed, 0.0) == []


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
