"""Rank files of a very large checkpoint, many at once: memory has a bound, and what is beyond it is told to come again."""
import contextlib
import itertools
import json
import re
import struct
from pathlib import Path

import pytest

from harness import Conn, Server, age, check_error, is_sanitized, request_bytes

TENSORS, NAME_BYTES = 20000, 1500          # a header of some 32 MB, which every rank's file has too
BUDGET = 512 << 20                         # TD_SHARD_LIVE_BYTES
CACHE = 256 << 20                          # TD_SHARD_CACHE_BYTES
READERS, RANKS = 24, 64
SLOW, WIDE_RANKS = 200, 256                # readers, ranks and tensors of a model whose header has some 6 MB, more than a socket takes
WIDE_TENSORS = 4000
AT_ONCE = 8                                # more would wait for the four that are made at once
UPLOADS = 8 * 8388608                      # eight times --max-body-bytes
EACH = 64 << 10                            # what a connection may take beside the budget


def write_model(folder, tensors, ranks):
    folder.mkdir()
    rows = ranks * 8
    head = {f"{i:05}" + "x" * (NAME_BYTES - 5): {"dtype": "F32", "shape": [ranks, 2], "data_offsets": [i * rows, (i + 1) * rows]}
            for i in range(tensors)}
    text = json.dumps(head).encode()
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + tensors * rows)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("memory")
    for name, tensors, ranks in (("big", TENSORS, RANKS), ("wide", WIDE_TENSORS, WIDE_RANKS)):
        write_model(root / name, tensors, ranks)
    age(root)
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
        c, told = refused[0]
        told.body = c.read_exact(told.length, told)
        check_error(told, 503, "rank files", "try again")
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


# ---- the peak ----------------------------------------------------------------------------------------------

def forget_peak(srv):
    """From now on VmHWM is the most that has been resident since. What is resident now."""
    Path(f"/proc/{srv.pid}/clear_refs").write_text("5")
    return peak_bytes(srv)


def peak_bytes(srv):
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{srv.pid}/status").read_text()).group(1)) << 10


def bound_bytes(kind, readers):
    """Of what is resident beyond the baseline: the budget and so much for each connection, and what all requests' bodies may
    take together. AddressSanitizer has half as much again, for its shadow, what it keeps of freed memory and its classes of
    sizes, and for each thread a stack of its own for what is used after a return."""
    asan = (BUDGET // 2 + readers * (512 << 10)) if is_sanitized() else 0
    return BUDGET + readers * EACH + (UPLOADS if kind == "tensors:read" else 0) + asan


def wide(rank):
    return f"/models/wide/shards/fsdp/tp{WIDE_RANKS}/rank-{rank}.safetensors"


def read_body(first):
    """A request for a header of some 6 MB: all tensors but a few, no two requests the same."""
    names = [f"{i:05}" + "x" * (NAME_BYTES - 5) for i in range(WIDE_TENSORS) if i != first]
    return json.dumps({"tensors": [{"name": n} for n in names], "format": "safetensors"}).encode()


def requests_of(kind):
    for i in range(SLOW):
        if kind == "header":
            yield request_bytes(wide(i), [("Range", "bytes=0-5900000")])
        elif kind == "whole":
            yield request_bytes(wide(i))
        else:
            body = read_body(i)
            yield request_bytes("/models/wide/tensors:read", [("Content-Length", str(len(body)))], "POST") + body


@pytest.mark.parametrize("kind", ["header", "whole", "tensors:read"])
def test_the_peak_of_two_hundred_slow_readers(srv, kind):
    """Each wants another file and reads no more than the head of the answer. The process never has more than the budget and
    64 KiB for each of them, counted from before they came: what an answer holds counts until it is freed."""
    assert srv.get("/models/wide").status == 200
    base = forget_peak(srv)
    with contextlib.ExitStack() as stack:
        heads = []
        requests = requests_of(kind)
        while some := list(itertools.islice(requests, AT_ONCE)):
            conns = [stack.enter_context(contextlib.closing(Conn(srv.port, timeout=120, rcvbuf=4096))) for _ in some]
            for c, request in zip(conns, some):
                c.send(request)
            heads += [c.read_head() for c in conns]
        good = [h for h in heads if h.status in (200, 206)]
        refused = [h for h in heads if h.status == 503]
        assert len(good) + len(refused) == SLOW and len(good) >= 40
        assert all(h.get("Retry-After") == "1" for h in refused)
        taken = peak_bytes(srv) - base
        assert live(srv) <= BUDGET
        assert taken < bound_bytes(kind, SLOW), f"{taken >> 20} MiB for {len(good)} answers, {int(live(srv)) >> 20} MiB in the gauge"
        print(f"{kind}: {taken >> 20} MiB for {len(good)} answers, {int(live(srv)) >> 20} MiB in the gauge")
    others = itertools.cycle(range(SLOW, WIDE_RANKS))       # a file that is made has those go that nobody has
    srv.wait_for(lambda: srv.get(wide(next(others))).status == 200 and live(srv) <= CACHE, "they are freed", timeout=60)
