"""Fifty snapshot downloads at the same time: none fails, every one is equal, and the server's memory stays flat."""
import threading
import time

import pytest

import harness
from client import Worker, digests, wait_hashed

PROCESSES, EACH = 5, 10
GROWTH = 48 << 20       # of one round; the bytes sent are 400 MiB. AddressSanitizer keeps much of what was freed
AGAIN = 12 << 20        # of a second round, which needs the same memory as the first


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("many") / "root"
    for i in range(1, 5):
        harness.write_by_hand(root / f"ns/model/model-{i:05d}-of-00004.safetensors",
                              [harness.tensor(f"w{i}", "F32", (512, 1024))])
    for i in range(8):
        (root / f"ns/model/file-{i}.json").write_bytes(harness.pattern(500, f"{i}"))
    harness.age(root)
    return root


class Watch(threading.Thread):
    """Records the most anonymous memory of a server while it runs."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.most, self.over = server, 0, threading.Event()

    def run(self):
        while not self.over.is_set():
            self.most = max(self.most, self.server.anon_bytes())
            time.sleep(0.05)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.over.set()
        self.join()


def one_round(workers, folder):
    """Run all workers at once, each with EACH snapshots at once. Return the caches."""
    errors, caches = [], []

    def go(worker, mine):
        errors.extend(worker.many_snapshots(repo_id="ns/model", caches=mine))
    threads = []
    for i, worker in enumerate(workers):
        mine = [str(folder / f"{i}-{j}") for j in range(EACH)]
        caches += mine
        threads.append(threading.Thread(target=go, args=(worker, mine)))
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []
    return caches


def test_fifty_snapshots(root, tmp_path):
    with harness.Server(root) as s:
        wait_hashed(s, "ns/model")
        url = f"http://127.0.0.1:{s.port}"
        workers = [Worker("calls_hub", HF_ENDPOINT=url) for _ in range(PROCESSES)]
        for w in workers:
            w.version()
        before = s.anon_bytes()
        with Watch(s) as first:
            caches = one_round(workers, tmp_path / "first")
        peaks = [first.most]
        for number in range(3):     # a leak grows in each round; a busy machine may serve fewer at once in one round
            with Watch(s) as again:
                one_round(workers, tmp_path / f"again-{number}")
            more = again.most - max(peaks)
            peaks.append(again.most)
            if more < AGAIN:
                break
        for w in workers:
            w.__exit__()
        want = digests(root / "ns/model")
        for cache in caches:
            snapshots = list((tmp_path / "first" / cache).glob("models--ns--model/snapshots/*"))
            assert len(snapshots) == 1 and digests(snapshots[0]) == want
        assert first.most - before < GROWTH
        assert more < AGAIN, peaks
