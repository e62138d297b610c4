"""docker/nginx/nginx.conf in front of two tensords, all as plain processes: replicas that end one after the other,
answers whose later pieces fail, and the Hub's client. tests/docker runs the same configuration in containers."""
# shows: security.md token-nginx-cache
import contextlib
import http.client
import json
import subprocess
import time

import pytest

import harness
from client import HUB0, NEWEST, Worker, digests
from test_proxies import free_ports

MIB = 1 << 20
PIECE = 4 * MIB                 # nginx's slice
LARGE = 12 * PIECE              # far more than what sockets and nginx hold
SMALL = [f"w{i}" for i in range(16)]


def publish(root, large):
    """Put org/m in place by a rename, with these bytes as the tensor "large"."""
    tensors = [harness.tensor(name, "U8", (16, 1024), name) for name in SMALL]
    harness.write_by_hand(root / "org/.new", [*tensors, harness.Tensor("large", "U8", [len(large)], large)])
    harness.age(root)
    (root / "org/.new").rename(root / "org/m/model.safetensors")


class Tier:
    """nginx at `port`, in front of `replicas`. It has one process, and a replica that failed stays out for a minute, so
    that no test depends on how quickly a replica starts."""

    def __init__(self, root, folder):
        self.root, self.folder = root, folder
        self.port, *self.ports = free_ports(3)
        self.replicas = [self.replica(i) for i in range(2)]
        conf = (harness.REPO / "docker/nginx/nginx.conf").read_text()
        for old, new in {"worker_processes auto": "worker_processes 1", "fail_timeout=2s": "fail_timeout=60s",
                         "/tmp/": f"{folder}/", "/dev/stdout": f"{folder}/access",
                         "proxy_cache_path /cache ": f"proxy_cache_path {folder}/cache ",
                         "listen 8080": f"listen 127.0.0.1:{self.port}",
                         "replica-1:8080": f"127.0.0.1:{self.ports[0]}",
                         "replica-2:8080": f"127.0.0.1:{self.ports[1]}"}.items():
            assert old in conf, f"nginx.conf has no {old}"
            conf = conf.replace(old, new)
        (folder / "nginx.conf").write_text(f"daemon off;\nuser root;\n{conf}")
        with open(folder / "log", "wb") as log:
            self.proc = subprocess.Popen(["/usr/sbin/nginx", "-c", folder / "nginx.conf"], stdin=subprocess.DEVNULL,
                                         stdout=log, stderr=log)

    def replica(self, i, **options):
        """Start replica i. Return it when its entity tags are those of the other one, unless there are options."""
        server = harness.Server(self.root, "--listen", f"127.0.0.1:{self.ports[i]}", "--state-dir",
                                self.folder / f"state{i}", "--max-connections-per-address", "1024", **options)
        if not options:
            server.wait_hashed()
        return server

    def ask(self, target, method="GET", body=None, headers=None):
        """Send one request on a connection of its own. Return the answer with its whole body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, target, body, headers or {})
            answer = connection.getresponse()
            answer.body = answer.read()
            return answer
        finally:
            connection.close()

    def conn(self, **options):
        return harness.Conn(self.port, **options)

    def sent_by_replicas(self):
        return sum(replica.gauge("tensord_http_sent_bytes_total") for replica in self.replicas)

    def wait(self):
        deadline = time.monotonic() + 20
        while True:
            try:
                if self.ask("/readyz").status == 200:
                    return
            except OSError:
                pass
            assert self.proc.poll() is None and time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.05)

    def stop(self):
        self.proc.terminate()
        self.proc.wait(20)
        for replica in self.replicas:
            replica.kill()


@pytest.fixture
def large():
    return harness.pattern(LARGE, "large")


@pytest.fixture
def tier(tmp_path, large):
    (tmp_path / "root/org/m").mkdir(parents=True)
    publish(tmp_path / "root", large)
    made = Tier(tmp_path / "root", tmp_path)
    try:
        made.wait()
        yield made
    finally:
        made.stop()


def test_replicas_restart_one_right_after_the_other(tier):
    """Each replica ends as soon as the other one is there again, which nginx leaves out for a while."""
    for turn in range(4):
        tier.replicas[turn % 2].stop()
        names = SMALL[4 * turn:4 * turn + 4]        # those that are not in the cache
        asks = [("GET", "/models", None), ("GET", "/org/m/resolve/main/model.safetensors", None),
                *[("GET", f"/models/org/m/tensors/{name}", None) for name in names],
                *[("POST", "/models/org/m/tensors:read", json.dumps({"tensors": [{"name": name}]})) for name in names]]
        for method, target, body in asks:
            answer = tier.ask(target, method, body)
            assert answer.status == 200, (turn, method, target, answer.body[:200])
        tier.replicas[turn % 2] = tier.replica(turn % 2)
    for replica in tier.replicas:
        replica.stop()
    assert tier.ask("/models").status == tier.ask("/models/org/m/tensors/large").status == 503


def test_an_old_piece_is_asked_for_without_bytes(tier):
    """A piece is used for a second; then a replica says that its entity tag still holds."""
    target = "/models/org/m/shards/fsdp/tp2/rank-0.safetensors"
    first = tier.ask(target)
    before, deadline = tier.sent_by_replicas(), time.monotonic() + 10
    while (now := tier.ask(target)).headers["X-Cache-Status"] == "HIT":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert now.headers["X-Cache-Status"] == "REVALIDATED" and now.body == first.body
    assert tier.sent_by_replicas() - before < MIB


def get_large(tier, between):
    """Ask for the tensor "large", call `between` after the first MiB, and read the rest. Return all bytes that came."""
    transfer = harness.Transfer(tier, "/models/org/m/tensors/large", rcvbuf=1 << 16)
    transfer.read(MIB)
    between()
    whole, body = transfer.finish()
    assert not whole and transfer.head.length == LARGE and len(body) >= MIB
    return body


def get_all(tier, not_yet=None):
    """Return the tensor "large" as soon as an answer is complete and not that: old pieces are used for a second."""
    deadline = time.monotonic() + 10
    while True:
        with contextlib.suppress(http.client.IncompleteRead):
            if (body := tier.ask("/models/org/m/tensors/large").body) != not_yet:
                return body
        assert time.monotonic() < deadline, (tier.folder / "log").read_text()[-2000:]
        time.sleep(0.05)


@pytest.mark.parametrize("other", ["is gone", "is left out"])
def test_a_piece_that_fails_ends_the_answer(tier, large, other):
    """The replica that answers dies in the middle. The other one died before, or runs again; then nginx asks it for
    whole answers, which must not be joined to the bytes that the client has."""
    tier.replicas[0].kill()
    for name in SMALL:
        assert tier.ask(f"/models/org/m/tensors/{name}").status == 200
    assert "temporarily disabled" in (tier.folder / "log").read_text()
    if other == "is left out":
        tier.replicas[0] = tier.replica(0)
    body = get_large(tier, tier.replicas[1].kill)
    assert body == large[:len(body)]
    assert tier.ask("/models").status == (200 if other == "is left out" else 503)


@pytest.mark.parametrize("size", [2 * MIB, 11 * PIECE])
def test_a_shorter_version_is_not_joined_to_the_old_one(tier, large, size):
    """The file is replaced in the middle of an answer: the next pieces no longer exist, or have other bytes."""
    def replace():
        publish(tier.root, harness.pattern(size, "new"))
        for replica in tier.replicas:
            replica.wait_for(lambda r=replica: r.head("/models/org/m/tensors/large").length == size, "the new version")

    body = get_large(tier, replace)
    assert body == large[:len(body)]
    assert get_all(tier, not_yet=large) == harness.pattern(size, "new")


def test_pieces_from_before_the_file_was_hashed(tier):
    """The first pieces come with an entity tag that is not derived from the digest, the others with the tag that is."""
    new = harness.pattern(LARGE, "new")
    for replica in tier.replicas:
        replica.stop()
    publish(tier.root, new)
    tier.replicas = [tier.replica(i, hash_threads=0) for i in range(2)]
    for first in (0, PIECE):
        target, field = "/models/org/m/tensors/large", {"Range": f"bytes={first}-{first + 9}"}
        assert tier.ask(target, headers=field).body == new[first:first + 10]
    for i, replica in enumerate(tier.replicas):
        replica.stop()
        tier.replicas[i] = tier.replica(i)
    assert get_all(tier) == new


@pytest.mark.parametrize("python", [NEWEST, HUB0], ids=["newest", "0.36"])
def test_the_hubs_client_gets_rank_files_from_the_cache(tier, python, tmp_path):
    """It asks by the commit of a rank's revision. A second client costs no bytes of a replica but lists."""
    with Worker("calls_hub", python=python, HF_ENDPOINT=f"http://127.0.0.1:{tier.port}") as hub:
        cost, got = [], []
        for cache in ("first", "second"):
            before = tier.sent_by_replicas()
            got.append(hub.snapshot(repo_id="org/m", revision="tp2-rank1-fsdp", cache_dir=str(tmp_path / cache)))
            cost.append(tier.sent_by_replicas() - before)
    assert digests(got[0]) == digests(got[1]) and cost[0] > LARGE / 2
    assert cost[1] < MIB, cost
