"""Every POST that reads a document takes it with a length or in chunks, plain or packed by gzip, with the same answer.

The routes are those of api/openapi.yaml, of the Hub's table of publishing (api/hub/hub_publish.c) and of the schema of
tensord.v1; a new one fails these tests until it is listed here. RFC 9110 8.4 and 15.5.16 (Content-Encoding, 415), RFC
9112 7.1 (chunks), RFC 1952 (gzip).
"""
import contextlib
import gzip
import json
import random
import re
import threading
import time
import zlib

import pytest
import yaml

import pki
from harness import REPO, Server, check_error, release_binary, request_bytes, tensor, write_by_hand
from publishing import digest
from rpc_kit import Rpc, frame
from signing import TokensFile

BLOB = b"a blob"
DELTA = {"files": [{"path": "a.bin", "digest": digest(BLOB), "size": len(BLOB)}], "dry_run": True}
# path: its body. Bodies of files are no documents: these are in FILES.
NATIVE = {
    "/models/{id}/tensors:read": {"tensors": [{"name": "t"}, {"name": "t", "slice": "1:3"}]},
    "/models/{id}/plans": {"engine": "none", "tp_size": 1},
    "/datasets/{id}/rows:batchGet": {"split": "train", "indices": [1, 0, 1]},
    "/models/{id}/blobs/{digest}": {"parts": []},
    "/datasets/{id}/blobs/{digest}": {"parts": []},
    "/models/{id}/commits": DELTA,
    "/datasets/{id}/commits": DELTA,
    "/api/models/{id}/paths-info/{revision}": {"paths": ["model.safetensors"]},
    "/api/datasets/{id}/paths-info/{revision}": {"paths": ["train.jsonl"]},
    "/sign": {"path": "/models", "expires_in": 60},
}
FILES = {"/models/{id}/blobs", "/datasets/{id}/blobs"}
# word of the table: path and body
HUB = {
    "preupload": ("/api/models/pub/m/preupload/main", {"files": [{"path": "a", "size": 3, "sample": "YWJj"}]}),
    "commit": ("/api/models/pub/m/commit/main", b'{"key": "header", "value": {"summary": "s", "parentCommit": "%s"}}\n'
               b'{"key": "file", "value": {"path": "a", "content": "YWJj", "encoding": "base64"}}\n' % (b"0" * 40)),
    "branch": ("/api/models/pub/m/branch/main", {}),
    "tag": ("/api/models/pub/m/tag/main", {"tag": "v1"}),
    "super-squash": ("/api/models/pub/m/super-squash/none", {"message": "one"}),
    "discussions": ("/api/models/pub/m/discussions", {"title": "t"}),
    "xet": ("/api/models/pub/m/xet/SESSION/v1/shards", b"no shard"),
    "create": ("/api/repos/create", {"name": "m", "organization": "pub"}),
    "move": ("/api/repos/move", {"fromRepo": "pub/none", "toRepo": "pub/other"}),
    "batch": ("/pub/m.git/info/lfs/objects/batch",
              {"operation": "upload", "transfers": ["basic"], "hash_algo": "sha256", "objects": []}),
}
NO_BODY = {"validate-yaml"}
IN_MEMORY = {path for path in NATIVE if "blobs" not in path and "commits" not in path}  # --max-body-bytes is for these
MOST = 20_000


def targets():
    """All routes that read a document, as (path, body)."""
    found = []
    for path, body in NATIVE.items():
        target = path.replace("{revision}", "main").replace("{digest}", digest(BLOB))
        target = target.replace("{id}", "pub/d" if "datasets" in path else "pub/m")
        found.append((target.replace("pub", "read") if path in IN_MEMORY else target, body))
    return found + list(HUB.values())


ALL = [pytest.param(target, body if isinstance(body, bytes) else json.dumps(body).encode(), id=target)
       for target, body in targets()]
ONES_IN_MEMORY = [case for case in ALL if "/read/" in case.values[0] or case.values[0] == "/sign"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("forms")
    write_by_hand(root / "read/m/model.safetensors", [tensor("t", "U8", [1000])])
    (root / "read/d").mkdir(parents=True)
    (root / "read/d/train.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    return root


@pytest.fixture(scope="module")
def writer(root, tmp_path_factory):
    """The header of a caller who may all."""
    tokens = TokensFile(tmp_path_factory.mktemp("tokens") / "tokens.json").add("all", rights=("read", "write"))
    return tokens, tokens.bearer("all")


@pytest.fixture(scope="module", params=["plain", "tls"])
def srv(request, root, writer, tmp_path_factory):
    options, context = [], None
    if request.param == "tls":
        authority = pki.Authority(tmp_path_factory.mktemp("pki"))
        context = authority.context()
        options = pki.options_of(authority.sign("server"))
    s = Server(root, "--tokens", writer[0], "--publish", "any", "--max-body-bytes", MOST, *options, tls=context,
               hash_threads=0)
    s.auth = writer[1]
    s.post("/api/repos/create", {"name": "m", "organization": "pub"}, s.auth)
    s.post("/api/repos/create", {"name": "d", "organization": "pub", "type": "dataset"}, s.auth)
    answer = s.get("/api/models/pub/m/xet-write-token/main", s.auth)
    s.session = answer.json()["casUrl"].rpartition("/xet/")[2].strip("/")
    s.wait_for(lambda: s.post("/datasets/read/d/rows:batchGet", {"split": "train", "indices": [0]},
                              s.auth).status == 200, "the rows are indexed")
    yield s
    s.stop()


@pytest.fixture(scope="module")
def plain(root, writer):
    s = Server(root, "--tokens", writer[0], "--max-body-bytes", MOST, "--body-timeout", "2", hash_threads=0)
    s.auth = writer[1]
    yield s
    s.stop()


def chunked(body, seed=1):
    rng, out, at = random.Random(seed), [], 0
    while at < len(body):
        n = rng.choice([1, 2, 7, 300])
        out.append(f"{len(body[at:at + n]):x}{rng.choice(['', ';x=y'])}\r\n".encode() + body[at:at + n] + b"\r\n")
        at += n
    return b"".join(out) + b"0\r\n" + rng.choice([b"", b"X-Trailer: 1\r\n"]) + b"\r\n"


def members(body):
    return b"".join(gzip.compress(part) for part in (body[:3], b"", body[3:]))


def send(c, target, headers, body, in_chunks):
    headers = [*headers, ("Transfer-Encoding", "chunked") if in_chunks else ("Content-Length", str(len(body)))]
    c.send(request_bytes(target, headers, "POST") + (chunked(body) if in_chunks else body))
    return c.read_response("POST")


def stable(r):
    """The answer without what changes from request to request."""
    fields = sorted((n, v) for n, v in r.headers if n.lower() not in ("date", "x-request-id", "server-timing",
                                                                      "content-length"))
    body = re.sub(rb"X-Tensord-[A-Za-z]+=[^&\"]*|Expires=\d+|\d{4}-\d\d-\d\dT[0-9:.]*Z", b"", r.body)
    return r.status, fields, body


def test_every_route_is_here():
    paths = yaml.safe_load((REPO / "api/openapi.yaml").read_text())["paths"]
    assert {p for p, item in paths.items() if "requestBody" in item.get("post", {})} == set(NATIVE) | FILES
    words = set(re.findall(r'"([a-z-]+)", "POST"', (REPO / "api/hub/hub_publish.c").read_text()))
    assert words == set(HUB) | NO_BODY


@pytest.mark.parametrize("target, body", ALL)
def test_the_same_answer(srv, target, body):
    target = target.replace("SESSION", srv.session)
    auth = list(srv.auth.items()) + [("Content-Type", "application/json")]
    with srv.conn() as c:
        assert send(c, target, auth, body, False).status < 500  # a plan is new once
        wanted = stable(send(c, target, auth, body, False))
        assert wanted[0] not in (405, 411, 413, 415) and wanted[0] < 500, wanted
        for coding, packed in ((None, body), ("identity", body), ("gzip", gzip.compress(body)),
                               ("GZIP", gzip.compress(body, 0)), ("x-gzip", gzip.compress(body)),
                               ("identity, gzip", members(body))):
            headers = auth + ([("Content-Encoding", coding)] if coding else [])
            for in_chunks in (False, True):
                got = stable(send(c, target, headers, packed, in_chunks))
                assert got == wanted, (coding, in_chunks, got, wanted)
        c.send(request_bytes(target, [*auth, ("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked")], "POST") +
               chunked(gzip.compress(body)) + request_bytes("/healthz"))
        assert stable(c.read_response("POST")) == wanted
        assert c.read_response().status == 200


def damaged(body):
    good = gzip.compress(body)
    return {"checksum": good[:-8] + bytes([good[-8] ^ 1]) + good[-7:], "length": good[:-1] + b"\x01",
            "cut": good[:-1], "head": good[:5], "middle": good[:12] + b"\xff\xff" + good[14:],
            "no gzip": body + b"x" * 20, "zlib": zlib.compress(body), "trailing": good + b"x",
            "trailing zeros": good + bytes(8),
            "half a member": good + gzip.compress(b"")[:-3], "reserved flag": good[:3] + b"\xe0" + good[4:]}


@pytest.mark.parametrize("how", damaged(b"x"))
@pytest.mark.parametrize("target, body", ALL)
def test_damaged_ones(srv, target, body, how):
    target = target.replace("SESSION", srv.session)
    headers = [*srv.auth.items(), ("Content-Encoding", "gzip")]
    with srv.conn() as c:
        for in_chunks in (False, True):
            r = send(c, target, headers, damaged(body)[how], in_chunks)
            assert r.status == 400 and b"gzip" in r.body, (how, r)
        assert b"gzip" not in send(c, target, headers, gzip.compress(body), True).body


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "zstd", "gzip2"])
@pytest.mark.parametrize("target, body", ALL)
def test_unknown_codings(srv, target, body, coding):
    """RFC 9110 15.5.16: 415 with Accept-Encoding."""
    target = target.replace("SESSION", srv.session)
    r = srv.post(target, body, {**srv.auth, "Content-Encoding": coding})
    assert r.status == 415 and r.get("Accept-Encoding") == "gzip, identity", r
    assert b"gzip, identity" in r.body
    twice = [*srv.auth.items(), ("Content-Encoding", "gzip"), ("Content-Encoding", "gzip")]
    assert srv.post(target, gzip.compress(gzip.compress(body)), twice).status == 415


@pytest.mark.parametrize("target, body", ONES_IN_MEMORY)
# shows: security.md client-bodies
def test_the_limit_counts_unpacked(plain, target, body):
    headers = list(plain.auth.items())
    packed = [*headers, ("Content-Encoding", "gzip")]
    full, long = body + b" " * (MOST - len(body)), body + b" " * (MOST + 1 - len(body))
    with plain.conn() as c:
        for in_chunks in (False, True):
            for fields, sent in ((headers, full), (packed, gzip.compress(full)), (packed, members(full))):
                assert send(c, target, fields, sent, in_chunks).status in (200, 201)
            for bomb in (gzip.compress(long), gzip.compress(long) * 2, gzip.compress(bytes(8 << 20))):
                r = send(c, target, packed, bomb, in_chunks)
                assert r.status == 413 and b"unpacked, the body is longer than --max-body-bytes" in r.body, r
        r = send(c, target, headers, long, True)
        assert r.status == 413 and b"longer than --max-body-bytes" in r.body, r


# shows: security.md client-bodies
def test_many_empty_members(plain):
    body = gzip.compress(b"") * (MOST // 20 - 10) + gzip.compress(b'{"tensors": [{"name": "t"}]}')
    r = plain.post("/models/read/m/tensors:read", body, {**plain.auth, "Content-Encoding": "gzip"})
    assert (r.status, r.length) == (200, 1000), r


# shows: security.md client-bodies
def test_unpacked_bodies_count_for_their_address(plain):
    """Half of the memory for bodies is taken by bodies that have not ended; then an unpacked one has no room."""
    read, good = "/models/read/m/tensors:read", b'{"tensors": [{"name": "t"}]}'
    packed = {**plain.auth, "Content-Encoding": "gzip"}
    long = gzip.compress(good + b" " * (MOST - len(good)))
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            c = stack.enter_context(contextlib.closing(plain.conn(source="127.0.0.2")))
            c.send(request_bytes(read, [*plain.auth.items(), ("Content-Length", str(MOST))], "POST") +
                   b" " * (MOST - 200))
        time.sleep(0.2)
        check_error(plain.post(read, long, packed, source="127.0.0.2"), 503, "its share")
        assert plain.post(read, long, packed).status == 200
        assert plain.post(read, gzip.compress(good), packed, source="127.0.0.2").status == 200
    plain.wait_for(lambda: plain.post(read, long, packed, source="127.0.0.2").status == 200, "memory is there again")


# shows: security.md client-bodies
def test_bombs_are_bounded(root):
    """8 KB that unpack to 8 MiB, from many connections at once: memory stays within the bound on all bodies."""
    with Server(root, binary=release_binary()) as s:
        read = "/models/read/m/tensors:read"
        bomb = gzip.compress(b" " * (8 << 20))
        assert len(bomb) < 9000
        s.post(read, bomb, {"Content-Encoding": "gzip"})
        before, peak, left = s.anon_bytes(), 0, []

        def ask():
            for _ in range(10):
                left.append(s.post(read, bomb, {"Content-Encoding": "gzip"}).status)

        threads = [threading.Thread(target=ask) for _ in range(40)]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            peak = max(peak, s.anon_bytes())
            time.sleep(0.005)
        for t in threads:
            t.join()
        assert set(left) <= {400, 503} and 400 in left and len(left) == 400, set(left)
        assert peak - before < (64 + 32) << 20, (peak - before) >> 20


def test_a_sink_stops_at_its_limit(srv):
    """A commit has at most 64 MiB, unpacked, and what it takes is counted."""
    bomb = gzip.compress(b" " * (65 << 20))
    r = srv.post("/models/pub/m/commits", bomb, {**srv.auth, "Content-Encoding": "gzip"})
    assert r.status in (413, 503), r
    assert srv.post("/models/pub/m/commits", gzip.compress(json.dumps(DELTA).encode()),
                    {**srv.auth, "Content-Encoding": "gzip"}).status < 500


def test_files_are_not_unpacked(srv):
    """The bytes of a file are what was sent, whatever fields say."""
    data = gzip.compress(b"file")
    r = srv.post("/models/pub/m/blobs", data, {**srv.auth, "Content-Encoding": "gzip"})
    assert r.status == 201 and digest(data) in r.get("Location"), r


# ---- tensord.v1


@pytest.fixture(scope="module")
def rpc(root):
    s = Server(root, "--max-body-bytes", MOST, hash_threads=0)
    yield Rpc(s)
    s.stop()


FIELDS = {"model": "read/m", "dataset": "read/d", "engine": "none", "tp_size": 1, "plan": "none", "split": "train"}
TYPES = ["application/proto", "application/json", "application/connect+proto", "application/connect+json",
         "application/grpc-web+proto", "application/grpc-web+json", "application/grpc+proto", "application/grpc+json"]


def encoding_of(kind):
    """The names of the fields for the encoding of a message, and for those that are known."""
    prefix = "grpc-" if "grpc" in kind else "Connect-" if "connect" in kind else ""
    return (prefix + ("encoding" if "grpc" in kind else "Content-Encoding"),
            prefix + ("accept-encoding" if "grpc" in kind else "Accept-Encoding"))


def framed(kind):
    return "grpc" in kind or "connect" in kind


def rpc_body(rpc, method, kind):
    request = rpc.schema.message(rpc.schema.methods[method].input_type.full_name)()
    for field in request.DESCRIPTOR.fields:
        if field.name in FIELDS:
            setattr(request, field.name, FIELDS[field.name])
    if method == "ReadTensors":
        request.tensors.add(name="t")
    if "json" in kind:
        from google.protobuf import json_format
        return json_format.MessageToJson(request).encode()
    return request.SerializeToString()


@pytest.mark.parametrize("kind", TYPES)
def test_every_method(rpc, kind):
    for method, described in rpc.schema.methods.items():
        is_stream = described.server_streaming
        # of Rescan the body is empty, and WatchModel has no end: test_rpc_watch.py calls it
        if method in ("Rescan", "WatchModel") or ("grpc" not in kind and is_stream != ("connect" in kind)):
            continue
        target, body = rpc.schema.path(method), rpc_body(rpc, method, kind)
        has_frames = framed(kind)
        with rpc.srv.conn() as c:
            wanted = stable(send(c, target, [("Content-Type", kind)], frame(body) if has_frames else body, False))
            coding = (encoding_of(kind)[0], "gzip")
            packed = frame(gzip.compress(body), 1) if has_frames else gzip.compress(body)
            for fields, sent in (([], frame(body) if has_frames else body), ([coding], packed),
                                 ([(coding[0], "identity")], frame(body) if has_frames else body)):
                for in_chunks in (False, True):
                    got = stable(send(c, target, [("Content-Type", kind), *fields], sent, in_chunks))
                    assert got[0] == wanted[0] and got[2] == wanted[2], (method, fields, in_chunks, got, wanted)
            if has_frames:  # a frame may be plain although the request names an encoding
                assert stable(send(c, target, [("Content-Type", kind), coding], frame(body), True))[2] == wanted[2]


def code_of(r, kind):
    """The gRPC status of an answer, by any protocol."""
    if "grpc" not in kind:
        error = json.loads(r.body[5:])["error"] if framed(kind) else r.json()
        return {"unimplemented": 12, "invalid_argument": 3, "resource_exhausted": 8, "internal": 13}[error["code"]]
    text = r.get("grpc-status") or re.search(rb"grpc-status: (\d+)", r.body)[1]
    return int(text)


@pytest.mark.parametrize("kind", TYPES)
def test_compressed_messages_that_are_refused(rpc, kind):
    method = "ReadTensors" if "connect" in kind else "GetModel"
    target, body = rpc.schema.path(method), rpc_body(rpc, method, kind)
    has_frames = framed(kind)
    name, accepts = encoding_of(kind)

    def ask(encoding, packed, flag=1):
        fields = {"Content-Type": kind, **({name: encoding} if encoding else {})}
        return rpc.srv.post(target, frame(packed, flag) if has_frames else packed, fields)

    r = ask("br", body)
    assert code_of(r, kind) == 12 and r.get(accepts) == "gzip, identity", r
    assert code_of(ask("gzip", body), kind) == 3
    assert code_of(ask("gzip", gzip.compress(body)[:-1]), kind) == 3
    assert code_of(ask("gzip", gzip.compress(body) + b"x"), kind) == 3
    assert code_of(ask("gzip", gzip.compress(bytes(MOST + 1))), kind) == 8
    if has_frames:
        assert code_of(ask(None, gzip.compress(body)), kind) == 13
        assert code_of(ask("identity", gzip.compress(body)), kind) == 13
        assert code_of(ask("gzip", gzip.compress(body), 3), kind) == 3


def test_compressed_gets(rpc):
    """https://connectrpc.com/docs/protocol: the message of a GET is compressed, then base64."""
    import base64
    body = rpc_body(rpc, "GetModel", "application/proto")
    path = rpc.schema.path("GetModel")
    wanted = rpc.post("GetModel", body, "application/proto")
    assert wanted.status == 200

    def get(packed, compression="gzip"):
        text = base64.urlsafe_b64encode(packed).decode().rstrip("=")
        return rpc.srv.get(f"{path}?connect=v1&encoding=proto&base64=1&compression={compression}&message={text}")

    assert get(gzip.compress(body)).body == get(members(body)).body == get(body, "identity").body == wanted.body
    assert get(gzip.compress(body)).etag == get(body, "identity").etag
    r = get(body, "br")
    assert r.status == 501 and r.json()["code"] == "unimplemented" and r.get("Accept-Encoding") == "gzip, identity"
    assert get(body).json()["code"] == get(gzip.compress(body)[:-2]).json()["code"] == "invalid_argument"
    assert get(gzip.compress(bytes(MOST + 1))).json()["code"] == "resource_exhausted"
    assert get(b"").json()["code"] == "invalid_argument"  # no model is named; nothing to unpack
