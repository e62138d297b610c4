"""Xet's upload, with raw requests: xorbs and shards that are written here, from the specification, and faulty ones. The
real client is in tests/clients/test_hub_upload.py."""
import hashlib
import json
import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

import harness
from harness import pattern
from test_hub_upload import Hub, committed, gone, lfs_line, sha256
from signing import TokensFile

END = b"\xff" * 32 + bytes(16)


def chunk(data, scheme=0, stored=None, version=0):
    stored = data if stored is None else stored
    return (bytes([version]) + len(stored).to_bytes(3, "little") + bytes([scheme]) + len(data).to_bytes(3, "little") +
            stored)


def frame(data):
    """An LZ4 frame of blocks that are not compressed, of at most 64 KiB each."""
    blocks = [data[at:at + 65_536] for at in range(0, len(data), 65_536)]
    return bytes.fromhex("04224d18604082") + b"".join(
        struct.pack("<I", len(block) | 1 << 31) + block for block in blocks) + bytes(4)


def grouped(data):
    return b"".join(data[i::4] for i in range(4))


def hash_of(data):
    """A name for a xorb; the server computes none."""
    return hashlib.sha256(b"xorb" + data).digest()


def text_of(raw):
    return b"".join(raw[i:i + 8][::-1] for i in range(0, 32, 8)).hex()


def term(xorb, length, first, end):
    return hash_of(xorb) + struct.pack("<IIII", 0, length, first, end)


def file_of(sha, *terms, verified=True):
    """The records of a file; sha: its SHA-256 in hexadecimal digits, or None."""
    flags = (1 << 31 if verified else 0) | (1 << 30 if sha else 0)
    records = bytes(32) + struct.pack("<II", flags, len(terms)) + bytes(8) + b"".join(terms)
    if verified:
        records += bytes(48) * len(terms)
    if sha:
        raw = bytes.fromhex(sha)
        records += b"".join(raw[i:i + 8][::-1] for i in range(0, 32, 8)) + bytes(16)
    return records


def shard_of(*files, end=END):
    return b"HFRepoMetaData\0" + bytes(17) + struct.pack("<QQ", 2, 0) + b"".join(files) + end


class Xet:
    """An upload: a write token and its session."""

    def __init__(self, hub, id, kind="models"):
        answer = hub.ask("GET", f"/api/{kind}/{id}/xet-write-token/main")
        assert answer.status == 200, answer
        got = answer.json()
        self.hub = Hub(hub, {"Authorization": f"Bearer {got['accessToken']}"})
        assert got["casUrl"].startswith(f"{hub.url}/api/{kind}/{id}/xet/")
        self.base, self.token, self.exp = got["casUrl"][len(hub.url):], got["accessToken"], got["exp"]

    def xorb(self, data, name=None):
        return self.hub.ask("POST", f"{self.base}/v1/xorbs/default/{name or text_of(hash_of(data))}", data)

    def shard(self, data):
        return self.hub.ask("POST", f"{self.base}/v1/shards", data)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("xet") / "root"
    root.mkdir()
    return root


@pytest.fixture(scope="module")
def srv(root):
    with harness.Server(root, "--publish", "local") as s:
        yield s


@pytest.fixture
def hub(srv):
    return Hub(srv)


def test_an_upload(hub, srv):
    """All schemes, several xorbs, a footer; chunks in any order and repeated. Then the ordinary commit."""
    id = hub.new("all")
    xet, other = Xet(hub, id), Xet(hub, id)
    assert xet.base != other.base                 # clients remember nothing from one upload to the next
    a, b, c = pattern(100_000, "a"), pattern(131_072, "b"), pattern(999, "c")
    one = chunk(a) + chunk(b, 1, frame(b)) + chunk(c, 2, frame(grouped(c)))
    two = chunk(c) + b"XETBLOB" + bytes(100)
    for xorb in (one, two, one):
        answer = xet.xorb(xorb)
        assert answer.status == 200 and answer.json()["was_inserted"] is True, answer
    whole, small = a + b + c + c + b, c * 3
    files = [file_of(sha256(whole), term(one, len(a + b + c), 0, 3), term(two, len(c), 0, 1),
                     term(one, len(b), 1, 2)), file_of(sha256(small), *[term(two, len(c), 0, 1)] * 3, verified=False)]
    shard = shard_of(*files, file_of(None, term(one, len(a), 0, 1)), end=END + b"more about xorbs")
    for _ in range(2):
        answer = xet.shard(shard)
        assert answer.status == 200 and answer.json() == {"result": 1}, answer
    committed(hub.commit(id, lfs_line("whole.bin", whole, size=len(whole)), lfs_line("small.bin", small),
                         lfs_line("a.bin", a)))
    for path, data in (("whole.bin", whole), ("small.bin", small), ("a.bin", a)):
        answer = hub.read(id, path)
        assert answer.body == data and answer.headers["etag"] == f'"{sha256(data)}"'
    assert other.shard(shard_of(*files)).status == 200       # they are here, so no xorb is needed
    assert other.shard(shard_of(file_of(sha256(a + a), *[term(one, len(a), 0, 1)] * 2))).status == 400
    rows = hub.new("rows", type="dataset")
    xet = Xet(hub, rows, "datasets")
    assert xet.xorb(two).status == 200
    assert xet.shard(shard_of(file_of(sha256(c), term(two, len(c), 0, 1)))).status == 200
    committed(hub.commit(rows, lfs_line("c.bin", c), kind="datasets"))


def built(srv):
    """Return how many bytes the server has written to blobs."""
    return srv.gauge("tensord_publish_received_bytes_total")


def test_files_without_a_sum(hub, srv, root):
    """A file whose SHA-256 the shard does not say is built once in an upload, however often it is listed, also by
    several requests at once."""
    id = hub.new("nosum")
    xet = Xet(hub, id)
    data = pattern(131_072, "nosum")
    xorb = chunk(data) * 64
    assert xet.xorb(xorb).status == 200
    whole, part = term(xorb, 64 * len(data), 0, 64), term(xorb, len(data), 3, 4)
    shard = shard_of(*[file_of(None, whole)] * 5, *[file_of(None, part)] * 3)
    before = built(srv)
    assert xet.shard(shard).status == 200
    assert built(srv) - before < 66 * len(data)
    with ThreadPoolExecutor(4) as pool:
        assert [a.status for a in pool.map(xet.shard, [shard] * 8)] == [200] * 8
    assert built(srv) - before < 67 * len(data)
    other = Xet(hub, id)                          # its xorbs are others, so nothing is known of its files
    assert other.shard(shard).status == 400
    committed(hub.commit(id, lfs_line("whole.bin", data * 64), lfs_line("part.bin", data)))
    committed(hub.commit(id, gone("whole.bin"), gone("part.bin")))
    assert not [f for f in os.listdir(root / ".tensord-publish/incoming") if f.startswith("stream")]
    at_once = Xet(hub, id)
    assert at_once.xorb(xorb).status == 200
    shards = [shard_of(file_of(None, *[whole] * n)) for n in (2, 2, 2)]
    with ThreadPoolExecutor(3) as pool:
        assert [a.status for a in pool.map(at_once.shard, shards)] == [200] * 3
    committed(hub.commit(id, lfs_line("twice.bin", data * 128)))


def test_what_clients_try(hub):
    """Paths that are not there are 404: clients do without."""
    xet = Xet(hub, hub.new("tries"))
    for method, path in (("GET", "/v1/chunks/default/" + "0" * 64), ("POST", "/v1/xorb-grants/default/" + "0" * 64),
                         ("POST", "/v2/shards"), ("POST", "/v1/telemetry"), ("POST", "/v1/xorbs/default/xyz"),
                         ("POST", "/v1/xorbs/other/" + "0" * 64), ("GET", "/v1/shards")):
        assert hub.ask(method, xet.base + path, b"x" if method == "POST" else None).status == 404, path
    assert hub.ask("POST", xet.base.rsplit("/", 1)[0] + "/nosession/v1/shards", b"").status == 404
    assert hub.ask("GET", "/api/models/org/none/xet-write-token/main").status == 404
    assert hub.ask("POST", "/api/models/org/none/xet/" + "0" * 32 + "/v1/shards", b"").status == 404


@pytest.mark.parametrize("xorb", [
    b"", b"x", chunk(b"abc")[:-1], chunk(b"abc") + b"\0", chunk(b"abc", version=1), chunk(b"abc", scheme=3),
    chunk(b""), chunk(b"abc", stored=b"ab"), chunk(bytes(131_073)), b"XETBLOB" + bytes(9),
    chunk(b"a") * 16_385], ids=range(11))
def test_faulty_xorbs(hub, root, xorb):
    hub.create("faulty", "org")
    answer = Xet(hub, "org/faulty").xorb(xorb)
    assert answer.status == 400 and "xorb" in answer.error(), answer
    assert not [f for f in os.listdir(root / ".tensord-publish/incoming") if f.startswith("stream")]


A, B = pattern(1000, "A"), pattern(2000, "B")
XORB = chunk(A) + chunk(B)
BAD = chunk(A, 1, frame(A)[:-5] + b"xxxxx") + chunk(B, 1, frame(A))
HUGE = struct.pack("<I", 2_000_000_000)


@pytest.mark.parametrize("shard, status, says", [
    (b"", 400, "no shard"), (b"HFRepoMetaData\0", 400, "no shard"), (bytes(500), 400, "no shard"),
    (shard_of(end=b""), 400, "cut"), (shard_of(file_of(sha256(A), term(XORB, 1000, 0, 1)), end=b""), 400, "cut"),
    (shard_of(bytes(36) + HUGE + bytes(8)), 400, "cut"),
    (shard_of(file_of(sha256(A), term(XORB, 1000, 0, 0))), 400, "empty term"),
    (shard_of(file_of(sha256(A), term(XORB, 0, 0, 1))), 400, "empty term"),
    (shard_of(file_of(sha256(A), term(XORB, 1000, 0, 3))), 400, "names chunk 2 of a xorb that has 2"),
    (shard_of(file_of(sha256(A), term(XORB, 1000, 0, 2**32 - 1))), 400, "names chunk"),
    (shard_of(file_of(sha256(A), term(XORB, 999, 0, 1))), 400, "bytes"),
    (shard_of(file_of(sha256(A), term(XORB, 1001, 0, 1))), 400, "1001"),
    (shard_of(file_of(sha256(A), term(b"?", 1000, 0, 1))), 400, "was not sent for this upload"),
    (shard_of(file_of(sha256(B), term(XORB, 1000, 0, 1))), 422, ""),
    (shard_of(file_of(sha256(A), term(BAD, 1000, 0, 1))), 400, "LZ4"),
    (shard_of(file_of(sha256(B), term(BAD, 2000, 1, 2))), 400, "LZ4"),
    (shard_of(file_of(sha256(A + B), term(XORB, 3000, 0, 2)), file_of(sha256(A), term(b"?", 1, 0, 1))), 400,
     "not sent"),
], ids=range(17))
def test_faulty_shards(hub, root, shard, status, says):
    """The client sees why, and no part of a file stays."""
    hub.create("pieces", "org")
    xet = Xet(hub, "org/pieces")
    assert xet.xorb(XORB).status == 200 and xet.xorb(BAD).status == 200
    answer = xet.shard(shard)
    assert answer.status == status and says in answer.error(), answer
    assert not [f for f in os.listdir(root / ".tensord-publish/incoming") if f.startswith("stream")]
    assert hub.commit("org/pieces", lfs_line("a", A)).status == 422


def test_bounds(hub, srv):
    """A xorb comes with its length, at most 64 MiB and a footer."""
    xet = Xet(hub, hub.new("bounds"))
    path = f"{xet.base}/v1/xorbs/default/{'0' * 64}"
    for field, status in ((f"Content-Length: {65 << 20}", b"413"), ("Transfer-Encoding: chunked", b"411")):
        with socket.create_connection(("127.0.0.1", srv.port), timeout=10) as s:
            s.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\n".encode())
            assert s.recv(100).startswith(b"HTTP/1.1 " + status)
    assert xet.xorb(chunk(bytes(131_072)) * 511).status == 200


def test_xorbs_count_and_go(tmp_path, start):
    """They take room from --publish-max-bytes, and a new start of the server removes them."""
    root = tmp_path / "root"
    root.mkdir()
    incoming = root / ".tensord-publish/incoming"
    s = start(root, "--publish", "local", "--publish-max-bytes", "10M")
    hub = Hub(s)
    xet = Xet(hub, hub.new("room"))
    sent = [xet.xorb(chunk(pattern(131_072, str(i))) * 31).status for i in range(4)]
    assert sent == [200, 200, 507, 507] and len(list(incoming.iterdir())) == 2
    with socket.create_connection(("127.0.0.1", s.port)) as cut:
        cut.sendall(f"POST {xet.base}/v1/xorbs/default/{'1' * 64} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n"
                    .encode() + chunk(bytes(50_000)))
        s.wait_for(lambda: len(list(incoming.iterdir())) == 3, "the xorb arrives")
    s.wait_for(lambda: len(list(incoming.iterdir())) == 2, "what arrived of it is dropped")
    s.stop()
    start(root, "--publish", "local")
    assert not list(incoming.iterdir())


def test_tokens(tmp_path, start):
    """The write token is the client's own; a session needs the right to write for its model."""
    tokens = TokensFile(tmp_path / "tokens.json").add("reader").add("writer", ["org/*"], rights=("read", "write"))
    tokens.add("other", ["else/*"], rights=("read", "write"))
    root = tmp_path / "root"
    root.mkdir()
    s = start(root, "--publish", "any", "--tokens", tokens)
    hub = Hub(s, tokens.bearer("writer"))
    id = hub.new("m")
    xet = Xet(hub, id)
    assert xet.token == tokens.text("writer")
    asks = [("GET", f"/api/models/{id}/xet-write-token/main", None), ("POST", f"{xet.base}/v1/shards", shard_of()),
            ("POST", f"{xet.base}/v1/xorbs/default/{text_of(hash_of(XORB))}", XORB)]
    for method, path, body in asks:
        assert Hub(s).ask(method, path, body).status == 401
        for name in ("reader", "other"):
            assert Hub(s, tokens.bearer(name)).ask(method, path, body).status == 403
    assert xet.xorb(XORB).status == 200
    assert hub.create("n", "org").status == 200
    there = xet.base.replace(id, "org/n")         # the xorbs of one model are not those of another
    answer = hub.ask("POST", f"{there}/v1/shards", shard_of(file_of(sha256(A), term(XORB, 1000, 0, 1))))
    assert answer.status == 400 and "was not sent" in answer.error()
    assert xet.shard(shard_of(file_of(sha256(A), term(XORB, 1000, 0, 1)))).status == 200


def test_off(root, start):
    hub = Hub(start(root))
    assert hub.ask("POST", f"/api/models/org/all/xet/{'0' * 32}/v1/shards", json.dumps({})).status == 405
