"""The cases for servers of Connect's conformance suite, copied by hand: connectrpc/conformance at v1.0.5-56,
internal/app/connectconformance/testsuites/data. The suite calls a service of its own; here ServerService.GetVersion and
Health.Check are its unary methods, and what only a client can see is left out. Cases of streams are in
test_rpc_streams.py."""
import gzip
import json
import struct

import pytest
from grpc_reflection.v1alpha import reflection_pb2

from rpc_kit import GOOD_TRAILERS, Rpc, frame, grpc_error, web_error

PATH = "method of the service"
PATHS = ["/tensord.v1.ServerService/GetVersion", "/grpc.health.v1.Health/Check"]
UNKNOWN_PATH = "another method of the service"
CONNECT = {"Content-Type": "application/proto", "Connect-Protocol-Version": "1"}
GRPC = {"Content-Type": "application/grpc", "TE": "trailers"}
WEB = {"Content-Type": "application/grpc-web"}
UNKNOWN, INTERNAL, UNIMPLEMENTED = 2, 13, 12
ONE, NONE = frame(b""), b""


@pytest.fixture(scope="module")
def rpc(srv):
    return Rpc(srv)


@pytest.fixture(params=PATHS, ids=["GetVersion", "Check"])
def method(request):
    return request.param


def ask(srv, path, headers, body, verb="POST"):
    with srv.conn() as c:
        return c.request(path, headers, verb, body=body)


def path_of(case, method):
    return method if case == PATH else method[:method.rindex("/") + 1] + "UnknownMethod"


# File, case, verb, path, fields beside CONNECT, body; the status (None: any) and the code.
@pytest.mark.parametrize("verb, path, fields, body, status, code", [
    pytest.param("POST", PATH, {"Content-Type": "image/jpeg"}, b"12345678", 415, "unknown",
                 id="server_unexpected/unexpected-content-type"),
    pytest.param("DELETE", PATH, {}, NONE, 405, "unknown", id="connect_server_unexpected/unexpected-verb"),
    pytest.param("POST", UNKNOWN_PATH, {}, NONE, 404, "unimplemented", id="connect_server_unexpected/unexpected-uri"),
    pytest.param("POST", PATH, {"Content-Type": "application/foo"}, NONE, 415, "unknown",
                 id="connect_server_unexpected/unexpected-codec"),
    pytest.param("POST", PATH, {"Content-Encoding": "foo"}, b"x", None, "unimplemented",
                 id="connect_server_unexpected/unexpected-compression"),
])
def test_connect_errors(srv, method, verb, path, fields, body, status, code):
    r = ask(srv, path_of(path, method), {**CONNECT, **fields}, body, verb)
    assert status is None or r.status == status, r
    assert r.get("Content-Type") == "application/json" and json.loads(r.body)["code"] == code, r.body


# Of gRPC and gRPC-Web alike: grpc_server_unexpected.yaml and grpc_web_server_unexpected.yaml. The suffix of the
# Content-Type, and the codes that the case allows; None: no error.
@pytest.mark.parametrize("verb, path, suffix, fields, body, codes", [
    pytest.param("POST", PATH, "+proto", {}, NONE, {UNIMPLEMENTED}, id="unary/no-request"),
    pytest.param("POST", PATH, "+proto", {}, ONE * 2, {UNIMPLEMENTED}, id="unary/multiple-requests"),
    pytest.param("DELETE", PATH, "", {}, ONE, {UNKNOWN, INTERNAL, UNIMPLEMENTED}, id="unexpected-verb"),
    pytest.param("POST", UNKNOWN_PATH, "", {}, ONE, {UNIMPLEMENTED}, id="unexpected-uri"),
    pytest.param("POST", PATH, "+foo", {}, ONE, {UNKNOWN, INTERNAL, UNIMPLEMENTED}, id="unexpected-codec"),
    pytest.param("POST", PATH, "", {"grpc-encoding": "foo"}, frame(b"x", 1), {UNIMPLEMENTED},
                 id="unexpected-compression"),
    pytest.param("POST", PATH, "+proto", {"grpc-encoding": "identity"}, frame(b"", 1), {INTERNAL},
                 id="unexpected-compressed-message"),
    pytest.param("POST", PATH, "+proto", {}, ONE, None, id="with-proto-sub-format"),
    pytest.param("POST", PATH, "", {}, ONE, None, id="without-proto-sub-format"),
])
@pytest.mark.parametrize("base", [GRPC, WEB], ids=["grpc", "grpc-web"])
def test_grpc(srv, method, base, verb, path, suffix, fields, body, codes):
    headers = {**base, **fields, "Content-Type": base["Content-Type"] + suffix}
    r = ask(srv, path_of(path, method), headers, body, verb)
    if codes is None:
        n = struct.unpack(">I", r.body[1:5])[0]
        assert n > 0 and r.body[:1] == b"\0" and r.status == 200
        assert (r.body[5 + n:] == GOOD_TRAILERS) if base is WEB else (r.trailers == {"grpc-status": "0"})
        return
    # A client that gets no gRPC takes the code from the status (grpc's http-grpc-status-mapping.md).
    by_status = {404: UNIMPLEMENTED, 405: UNKNOWN, 415: UNKNOWN}
    if r.status == 200:
        code = (web_error if base is WEB else grpc_error)(r)[0]
    else:
        code = by_status[r.status]
    assert code in codes, r


def test_empty_requests(rpc):
    """server_empty.yaml, unary/empty-request."""
    assert all(message.version for _, message in rpc.answers("GetVersion", {}).values())


@pytest.mark.parametrize("name", ["gzip", "GZIP"])
def test_compressed_requests(srv, method, name):
    """gzip of no bytes is an empty message; encodings are names of HTTP, whose case does not matter."""
    body = frame(gzip.compress(b""), 1)
    r = ask(srv, method, {**GRPC, "grpc-encoding": name}, body)
    assert r.status == 200 and r.trailers == {"grpc-status": "0"}, r


@pytest.mark.parametrize("name", ["gzip", "GZIP"])
def test_compressed_messages_of_reflection(srv, name):
    """Each message of a stream is compressed by itself, or not at all."""
    Request = reflection_pb2.ServerReflectionRequest
    wanted = Request(list_services="").SerializeToString()
    packed = frame(gzip.compress(wanted), 1)
    path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    plain = ask(srv, path, GRPC, frame(wanted) * 3)
    r = ask(srv, path, {**GRPC, "grpc-encoding": name}, packed + frame(wanted) + packed)
    assert r.status == 200 and r.trailers == {"grpc-status": "0"} and len(r.body) > 300 and r.body == plain.body, r
