"""Many rank files of a very large checkpoint at once: memory has a bound, and requests beyond it get 503."""
import contextlib
import functools
import itertools
import json
import re
import struct
import time
from pathlib import Path

import pytest

from harness import (REPO, Conn, Server, age, check_error, is_sanitized, release_binary, request_bytes, tensor,
                     write_by_hand)

TENSORS, NAME_BYTES = 20000, 1500          # a header of some 32 MB, in every rank's file too
COUNTED = 480 << 20                        # TD_RANK_LIVE_BYTES
CACHE = 256 << 20                          # TD_RANK_CACHE_BYTES
READERS, RANKS = 24, 64
SLOW, WIDE_RANKS = 200, 256                # readers, and ranks of the models that they read
SLOW_SANITIZED = 100                       # readers of the build with sanitizers: some 70 have an answer here too
AT_ONCE = 8                                # more would wait, because four are made at once
EACH = 64 << 10                            # memory of a connection besides the budget
WIDE = {
    "even": 1300,                          # tensors: answers of 2 MB or more. All readers have one at the same time
    "wide": 4000,                          # of 6 MB: some 70 readers have one, the others get 503
}
KINDS = ["header", "whole", "description", "tensors:read"]


def documented_budget():
    """Return the budget that docs/limits.md promises."""
    row = re.search(r"^\| memory of rank files, slices and their descriptions[^|]*\| (\d+) MiB: ",
                    (REPO / "docs/limits.md").read_text(), re.MULTILINE)
    return int(row.group(1)) << 20


def write_model(folder, tensors, ranks):
    folder.mkdir()
    rows = ranks * 8
    head = {
        f"{i:05}" + "x" * (NAME_BYTES - 5):
        {"dtype": "F32", "shape": [ranks, 2], "data_offsets": [i * rows, (i + 1) * rows]} for i in range(tensors)
    }
    text = json.dumps(head).encode()
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + tensors * rows)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("memory")
    write_model(root / "big", TENSORS, RANKS)
    for name, tensors in WIDE.items():
        write_model(root / name, tensors, WIDE_RANKS)
    age(root)
    return root


@contextlib.contextmanager
def serve(root, **kw):
    """Start a server that cuts no reader and hashes nothing, so that entity tags do not change."""
    with Server(root, "--min-rate", 0, "--send-timeout", 300, "--idle-timeout", 300, hash_threads=0, **kw) as s:
        yield s


@pytest.fixture
def srv(root):
    with serve(root) as s:
        yield s


@pytest.fixture
def release(root):
    """Use a build without sanitizers: AddressSanitizer's shadow, quarantine and size classes would count as memory."""
    with serve(root, binary=release_binary()) as s:
        yield s


@pytest.fixture(params=["srv", "release"])
def either(request):
    return request.getfixturevalue(request.param)


def path(rank, suffix="safetensors"):
    return f"/models/big/shards/fsdp/tp{RANKS}/rank-{rank}.{suffix}"


def live(srv):
    return srv.gauge("tensord_shard_files_bytes")


def start_readers(srv, stack, targets):
    """Start readers that read only the header of their answer. Return (connection, header) of each."""
    out = []
    for target in targets:
        c = stack.enter_context(contextlib.closing(Conn(srv.port, timeout=60, rcvbuf=4096)))
        c.send(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        out.append((c, c.read_head()))
    return out


@pytest.mark.parametrize("suffix", ["safetensors", "json"])
# shows: security.md client-rank-files
def test_slow_readers_of_different_ranks_stay_within_the_budget(either, suffix):
    srv = either
    assert srv.get("/models/big").status == 200
    base = srv.anon_bytes()
    with contextlib.ExitStack() as stack:
        readers = start_readers(srv, stack, [path(r, suffix) for r in range(READERS)])
        good = [(c, h) for c, h in readers if h.status == 200]
        refused = [(c, h) for c, h in readers if h.status == 503]
        assert len(good) + len(refused) == READERS and len(good) >= 5 and refused
        assert all(h.get("Retry-After") == "1" for _, h in refused)
        assert live(srv) <= COUNTED
        taken = srv.anon_bytes() - base
        assert is_sanitized(srv.binary) or taken < bound_bytes(READERS), f"{taken >> 20} MiB for {len(good)} answers"
        c, told = refused[0]
        told.body = c.read_exact(told.length, told)
        check_error(told, 503, "rank files", "try again")
        if suffix == "safetensors":                # an existing file costs no more memory
            assert srv.get(path(0), [("Range", "bytes=0-7")]).status == 206
    srv.wait_for(lambda: srv.get(path(RANKS - 1, suffix)).status == 200, "room for another rank", timeout=60)
    srv.wait_for(lambda: live(srv) <= CACHE, "only the cache is left")
    # and the process has returned the memory, except what malloc keeps for later connections
    srv.wait_for(lambda: srv.anon_bytes() - base < CACHE + (128 << 20), "freed memory is returned")


# shows: security.md client-rank-files
def test_readers_of_one_rank_share_it(srv):
    with contextlib.ExitStack() as stack:
        readers = start_readers(srv, stack, [path(0)] * READERS)
        assert [h.status for _, h in readers] == [200] * READERS
        assert live(srv) < 64 << 20
        assert len({h.etag for _, h in readers}) == 1


def test_requests_of_one_rank_at_once_make_it_once(srv):
    """All requests are sent before one can be answered. Their first bytes come when the one file is made, the same for
    all."""
    with contextlib.ExitStack() as stack:
        conns = [stack.enter_context(contextlib.closing(Conn(srv.port, timeout=60))) for _ in range(16)]
        for c in conns:
            c.send(f"GET {path(1)} HTTP/1.1\r\nHost: x\r\nRange: bytes=0-99\r\n\r\n".encode())
        answers = [c.read_response() for c in conns]
        assert {a.status for a in answers} == {206} and len({a.body for a in answers}) == 1
        assert live(srv) < 64 << 20


# ---- the peak ----------------------------------------------------------------------------------------------

def forget_peak(srv):
    """Reset VmHWM, the peak of resident memory. Return what is resident now."""
    Path(f"/proc/{srv.pid}/clear_refs").write_text("5")
    return peak_bytes(srv)


def peak_bytes(srv):
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{srv.pid}/status").read_text()).group(1)) << 10


def bound_bytes(readers):
    return documented_budget() + readers * EACH


def wide(model, rank, suffix="safetensors"):
    return f"/models/{model}/shards/fsdp/tp{WIDE_RANKS}/rank-{rank}.{suffix}"


@functools.cache
def names_of(model):
    """Return the JSON of each tensor of a model in the body of a request."""
    return [b'{"name":"%05d%s"}' % (t, b"x" * (NAME_BYTES - 5)) for t in range(WIDE[model])]


def request_of(kind, model, i):
    """Return a request for a file that no other reader requests."""
    if kind == "header":
        return request_bytes(wide(model, i), [("Range", f"bytes=0-{WIDE[model] * NAME_BYTES}")])
    if kind == "whole":
        return request_bytes(wide(model, i))
    if kind == "description":
        return request_bytes(wide(model, i, "json"))
    names = names_of(model)
    body = b'{"tensors":[%s],"format":"safetensors"}' % b",".join(names[:i] + names[i + 1:])      # all but one
    return request_bytes(f"/models/{model}/tensors:read", [("Content-Length", str(len(body)))], "POST") + body


def ask(readers, kind, model):
    """Send the request of each (number, connection) and read only the head of the answer. Return (those that have an
    answer, those that were refused). Request bodies have a bound of their own, so they are sent one at a time."""
    good, refused = [], []
    while some := list(itertools.islice(readers, 1 if kind == "tensors:read" else AT_ONCE)):
        for i, c in some:
            c.send(request_of(kind, model, i))
        for i, c in some:
            head = c.read_head()
            assert head.status in (200, 206, 503), head
            if head.status == 503:
                assert head.get("Retry-After") == "1"
                head.body = c.read_exact(head.length, head)
                check_error(head, 503, "rank files", "try again")
            (refused if head.status == 503 else good).append((i, c))
    return good, refused


def answers(srv):
    """Return the number of answers that are being sent, and of those that were sent. The kernel may take an answer of
    2 MB as a whole while nobody reads it: an idle one lets a send queue grow to 4 MB. On a busy machine it did so with
    11 of 200 readers, so 25 answers may go that way; the others must wait."""
    _, _, samples = srv.metrics()
    sent = sum(v for name, labels, v in samples if name == "tensord_http_requests_total" and
               labels["route"] in ("shard", "read") and labels["code"] in ("200", "206"))
    sending = sum(v for name, _, v in samples if name == "tensord_http_requests_in_flight") - 1   # without this scrape
    assert sent <= SLOW // 8, f"{sent} answers were sent to readers that do not read"
    return sent + sending


@contextlib.contextmanager
def slow_readers(srv, kind, model, count):
    """Counts the readers of different files that hold an answer while the connections of all are open; readers retry
    when the answer says so. Then all readers close, and their memory must be freed."""
    with contextlib.ExitStack() as stack:
        comers = ((i, stack.enter_context(contextlib.closing(Conn(srv.port, timeout=120, rcvbuf=4096))))
                  for i in range(count))
        good, refused = ask(comers, kind, model)
        if refused:
            time.sleep(1)
            more, refused = ask(iter(refused), kind, model)
            good += more
        assert len(good) + len(refused) == count
        assert srv.gauge("tensord_http_connections") >= count, "all are still connected"
        srv.wait_for(lambda: answers(srv) == len(good), "every answer is being sent or was sent")
        assert live(srv) <= COUNTED
        yield len(good)
    others = itertools.cycle(range(SLOW, WIDE_RANKS))       # making a file drops files that nobody uses
    srv.wait_for(lambda: srv.get(wide(model, next(others))).status == 200 and live(srv) <= CACHE, "they are freed",
                 timeout=60)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", WIDE)
# shows: security.md client-rank-files
def test_the_peak_of_two_hundred_slow_readers(release, model, kind):
    """The process never takes more than the documented budget and 64 KiB for each reader above its memory before they
    came: an answer's memory counts until it is freed."""
    assert release.get(f"/models/{model}").status == 200
    base = forget_peak(release)
    with slow_readers(release, kind, model, SLOW) as good:
        taken = peak_bytes(release) - base
        told = f"{model} {kind}: {taken >> 20} MiB for {good} answers, {int(live(release)) >> 20} MiB in the gauge"
        print(told)
        assert taken < bound_bytes(SLOW), told
        assert good == SLOW if model == "even" else 40 <= good < SLOW, told


@pytest.mark.parametrize("kind", KINDS)
def test_what_slow_readers_hold_is_counted(srv, kind):
    """The same under a sanitizer, where the memory of the process says little."""
    assert srv.get("/models/wide").status == 200
    with slow_readers(srv, kind, "wide", SLOW_SANITIZED) as good:
        assert 40 <= good < SLOW_SANITIZED


def test_a_checkpoint_file_takes_no_more_than_is_counted(tmp_path):
    """--max-memory counts a constant for each checkpoint file, given in docs/limits.md. A file of one tensor, with
    its model and its folder, takes no more."""
    count = 4000
    counted = re.search(r"`--max-memory` counts ([\d,]+) bytes for each checkpoint file",
                        (REPO / "docs/limits.md").read_text())
    per_file = int(counted.group(1).replace(",", ""))
    taken = []
    for name, models in (("empty", 0), ("full", count)):
        (tmp_path / name).mkdir()
        for i in range(models):
            write_by_hand(tmp_path / name / f"m{i:05d}" / "model.safetensors", [tensor("w", "F32", [4])])
        age(tmp_path / name)
        with serve(tmp_path / name, binary=release_binary()) as s:
            s.wait_for(lambda n=models: s.gauge("tensord_models") == n, "all is listed")
            taken.append(s.anon_bytes())
    grown = taken[1] - taken[0]
    assert 1000 * count < grown <= per_file * count, \
        f"{grown / count:.0f} bytes for each of {count} files, {per_file} are counted"
