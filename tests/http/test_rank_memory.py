"""Rank files of a very large checkpoint, many at once: memory has a bound, and what is beyond it is told to come again."""
import contextlib
import json
import struct

import pytest

from harness import Conn, Server, check_error

TENSORS, NAME_BYTES = 20000, 1500          # a header of some 32 MB, which every rank's file has too
BUDGET = 512 << 20                         # TD_SHARD_LIVE_BYTES
CACHE = 256 << 20                          # TD_SHARD_CACHE_BYTES
READERS, RANKS = 24, 64


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("memory")
    (root / "big").mkdir()
    head = {f"{i:05}" + "x" * (NAME_BYTES - 5): {"dtype": "F32", "shape": [RANKS, 2], "data_offsets": [i * RANKS * 8, (i + 1) * RANKS * 8]}
            for i in range(TENSORS)}
    text = json.dumps(head).encode()
    with open(root / "big" / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + TENSORS * RANKS * 8)
    return root


@pytest.fixture
def srv(root):
    s = Server(root, "--min-rate", 0, "--send-timeout", 300, hash_threads=0)     # nobody is cut, entity tags stay
    yield s
    s.stop()


def path(rank, suffix="safetensors"):
    return f"/models/big/shards/fsdp/tp{RANKS}/rank-{rank}.{suffix}"


def live(srv):
    return srv.gauge("tensord_shard_files_bytes")


def start_readers(srv, stack, targets):
    """Readers that take no more than the header of their answer; (connection, header) of each."""
    out = []
    for target in targets:
        c = stack.enter_context(contextlib.closing(Conn(srv.port, timeout=60, rcvbuf=4096)))
        c.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        out.append((c, c.read_head()))
    return out


@pytest.mark.parametrize("suffix", ["safetensors", "json"])
def test_slow_readers_of_different_ranks_stay_within_the_budget(srv, suffix):
    assert srv.get("/models/big").status == 200
    base = srv.anon_bytes()
    with contextlib.ExitStack() as stack:
        readers = start_readers(srv, stack, [path(r, suffix) for r in range(READERS)])
        good = [(c, h) for c, h in readers if h.status == 200]
        refused = [(c, h) for c, h in readers if h.status == 503]
        assert len(good) + len(refused) == READERS and len(good) >= 5 and refused
        assert all(h.get("Retry-After") == "1" for _, h in refused)
        assert live(srv) <= BUDGET
        # A file that was made too much is freed before it is refused; the rest is what makers take.
        assert srv.anon_bytes() - base < BUDGET + (192 << 20), f"{(srv.anon_bytes() - base) >> 20} MiB for {len(good)} answers"
        check_error(srv.get(path(RANKS - 1, suffix)), 503, "try again")
        if suffix == "safetensors":                # what is there costs nothing more
            assert srv.get(path(0), [("Range", "bytes=0-7")]).status == 206
    srv.wait_for(lambda: srv.get(path(RANKS - 1, suffix)).status == 200, "room for another rank", timeout=60)
    srv.wait_for(lambda: live(srv) <= CACHE, "only the cache is left")
    # and it has left the process, but for what malloc keeps for the connections to come
    srv.wait_for(lambda: srv.anon_bytes() - base < CACHE + (128 << 20), "freed memory is given back")


def test_readers_of_one_rank_share_it(srv):
    with contextlib.ExitStack() as stack:
        readers = start_readers(srv, stack, [path(0)] * READERS)
        assert [h.status for _, h in readers] == [200] * READERS
        assert live(srv) < 64 << 20
        assert len({h.etag for _, h in readers}) == 1


def test_requests_of_one_rank_at_once_make_it_once(srv):
    """Sent before any can be answered: their first bytes come when the one file is there, and it is the same for all."""
    with contextlib.ExitStack() as stack:
        conns = [stack.enter_context(contextlib.closing(Conn(srv.port, timeout=60))) for _ in range(16)]
        for c in conns:
            c.send(f"GET {path(1)} HTTP/1.1\r\nHost: x\r\nRange: bytes=0-99\r\n\r\n".encode())
        answers = [c.read_response() for c in conns]
        assert {a.status for a in answers} == {206} and len({a.body for a in answers}) == 1
        assert live(srv) < 64 << 20
