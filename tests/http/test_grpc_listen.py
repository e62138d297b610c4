"""The port of --grpc-listen with the clients of gRPC themselves: grpcio, grpcio-health-checking, grpcio-reflection and
buf. Answers are compared with REST's."""
import json
import re
import ssl
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status

from grpc_kit import DATA, PREFACE, SETTINGS, Calls, RawH2, grpc_address, h2_frame
from harness import Server, enc, release_binary, tensor, write_by_hand
from pki import Authority
from rpc_kit import frame, rest_message
from signing import TokensFile

LISTEN = ("--grpc-listen", "127.0.0.1:0")
Check = health_pb2.HealthCheckRequest
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


@pytest.fixture(scope="module")
def srv(tree):
    with Server(tree.root, *LISTEN, hash_threads=0) as s:
        yield s


@pytest.fixture(scope="module")
def calls(srv):
    with Calls(srv) as c:
        yield c


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("pki"))


def rest(calls, srv, method, target):
    r = srv.get(target)
    assert r.status == 200, r
    return rest_message(calls.schema.output(method), r.body)


def fails(call, *args, **kw):
    with pytest.raises(grpc.RpcError) as caught:
        result = call(*args, **kw)
        if hasattr(result, "__next__"):
            list(result)
    return caught.value


# ---- the same as REST ----------------------------------------------------------------------------------


def test_every_unary_method(srv, calls):
    assert calls.call("ListModels", {}) == rest(calls, srv, "ListModels", "/models")
    assert calls.call("ListDatasets", {}) == rest(calls, srv, "ListDatasets", "/datasets")
    assert calls.call("GetVersion", {}) == rest(calls, srv, "GetVersion", "/version")
    assert calls.call("GetReadiness", {}).ready
    model = next(row["id"] for row in srv.get("/models").json()["models"] if row["checkpoints"])
    assert calls.call("GetModel", {"model": model}) == rest(calls, srv, "GetModel", f"/models/{enc(model)}")
    target = f"/models/{enc(model)}/tensors?page_size=1000"
    assert calls.call("GetManifest", {"model": model}) == rest(calls, srv, "GetManifest", target)
    fields = {"model": model, "engine": "none", "tpSize": 2, "tpRank": 1}
    target = f"/models/{enc(model)}/shards/none/tp2/rank-1.json"
    assert calls.call("GetRankFile", fields) == rest(calls, srv, "GetRankFile", target)
    plan = calls.call("RegisterPlan", {"model": model, "engine": "none", "tpSize": 2})
    assert calls.call("GetPlan", {"model": model, "plan": plan.id}) == plan
    dataset = srv.get("/datasets").json()["datasets"][0]["id"]
    assert calls.call("GetDataset", {"dataset": dataset}).id == dataset
    assert calls.call("Rescan", {}) is not None


def test_metadata_is_that_of_the_header(srv, calls):
    model = srv.get("/models").json()["models"][0]["id"]
    answer, call = calls.stub("GetModel").with_call(calls.schema.request("GetModel", {"model": model}), timeout=30)
    fields = dict(call.initial_metadata())
    assert re.fullmatch(r'"[0-9a-f-]+"', fields["etag"]) and answer.id == model
    assert fields["x-request-id"]
    assert call.code() == grpc.StatusCode.OK and not call.details()


def test_tensors_and_rows(tmp_path):
    """Streams whose bytes are those of files, larger than all windows together."""
    values = np.random.default_rng(1).integers(0, 255, 24 << 20, np.uint8)
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "U8", (len(values),))])
    header = (tmp_path / "m/model.safetensors").read_bytes()[:-len(values)]
    (tmp_path / "m/model.safetensors").write_bytes(header + values.tobytes())
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows/train.jsonl").write_text("".join(f'{{"a": {i}}}\n' for i in range(5000)))
    with Server(tmp_path, *LISTEN, hash_threads=0) as s, Calls(s) as calls:
        got = [m.data for m in calls.call("ReadTensors", {"model": "m", "tensors": [{"name": "w"}]})]
        assert b"".join(got) == values.tobytes() and max(map(len, got)) <= 2 << 20
        s.wait_for(lambda: s.json("/datasets/rows")["splits"][0]["index"]["state"] == "ready", "the rows are counted")
        rows = [row for m in calls.call("StreamRows", {"dataset": "rows", "split": "train"}) for row in m.rows]
        assert [json.loads(row) for row in rows] == [{"a": i} for i in range(5000)]
        batch = calls.call("BatchGetRows", {"dataset": "rows", "split": "train", "indices": [7, 4999, 0]})
        assert [json.loads(row)["a"] for row in batch.rows] == [7, 4999, 0]


def test_watch_model(tmp_path):
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("a", "F32", (2,))])
    with Server(tmp_path, *LISTEN, hash_threads=0, rescan="0.1") as s, Calls(s) as calls:
        watch = calls.call("WatchModel", {"model": "m"})
        assert next(watch).model.id == "m"
        write_by_hand(tmp_path / "m/model.safetensors", [tensor("b", "F32", (3,))])
        assert next(watch).model.id == "m"
        assert s.gauge("tensord_waiters") == 1
        watch.cancel()
        s.wait_for(lambda: s.gauge("tensord_waiters") == 0 and s.gauge("tensord_grpc_streams") == 0,
                   "the cancelled call has freed its place", timeout=5)
        late = fails(calls.call, "WatchModel", {"model": "m"}, timeout=0.5)
        assert late.code() == grpc.StatusCode.DEADLINE_EXCEEDED


# ---- errors --------------------------------------------------------------------------------------------


def test_errors_have_codes_words_and_details(srv, calls):
    for method, fields, code in (("GetModel", {"model": "none/such"}, grpc.StatusCode.NOT_FOUND),
                                 ("GetModel", {}, grpc.StatusCode.INVALID_ARGUMENT),
                                 ("ListModels", {"pageSize": -1}, grpc.StatusCode.INVALID_ARGUMENT)):
        error = fails(calls.call, method, fields)
        assert error.code() == code and error.details()
        status = rpc_status.from_call(error)
        info = error_details_pb2.ErrorInfo()
        assert status.details[0].Unpack(info) and info.reason == code.name and info.domain == "tensord"
    error = fails(calls.call, "GetModel", {"model": "none/such"})
    assert error.details() == srv.get("/models/none%2Fsuch").json()["error"]["message"]


def test_unknown_methods_and_bad_messages(calls):
    for path in ("/tensord.v1.ModelService/None", "/other.Service/Method", "/models", "/",
                 "/grpc.health.v1.Health/None"):
        assert fails(calls.channel.unary_unary(path), b"", timeout=30).code() == grpc.StatusCode.UNIMPLEMENTED, path
    error = fails(calls.channel.unary_unary(calls.schema.path("GetModel")), b"\x0a\x7f", timeout=30)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    error = fails(calls.channel.stream_unary(calls.schema.path("GetModel")), iter([b"", b""]), timeout=30)
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED


def curl(srv, path, *args):
    p = subprocess.run(["curl", "-s", "--http2-prior-knowledge", "-D", "-", "-o", "/dev/null", "--max-time", "20",
                        *args, f"http://{grpc_address(srv)}{path}"], capture_output=True, text=True, timeout=60)
    return p.stdout


def test_what_is_not_grpc_is_refused(srv):
    assert curl(srv, "/models").startswith("HTTP/2 405")
    for kind in ("application/json", "application/proto", "application/grpc-web+proto", "text/plain"):
        head = curl(srv, "/tensord.v1.ModelService/ListModels", "-H", f"Content-Type: {kind}", "-d", "{}")
        assert head.startswith("HTTP/2 415"), (kind, head)
    head = curl(srv, "/models", "-H", "Content-Type: application/grpc", "--data-binary", "")
    assert head.startswith("HTTP/2 200") and "\ngrpc-status: 12" in head


# shows: security.md h2-protocol
def test_http1_and_tls_get_a_plain_refusal(srv):
    address = grpc_address(srv)
    p = subprocess.run(["curl", "-s", "--http1.1", f"http://{address}/models"], capture_output=True, text=True,
                       timeout=60)
    assert "over HTTP/2" in p.stdout, p
    with RawH2(srv, preface=False) as raw:
        raw.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100))
        assert b"without TLS" in raw.sock.recv(4096)


def test_a_large_request_is_refused_and_the_connection_lives(start, tmp_path):
    s = start(tmp_path, *LISTEN, "--max-body-bytes", "100000")
    with Calls(s) as calls:
        error = fails(calls.call, "ListModels", {"match": "x" * 300000})
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "--max-body-bytes" in error.details()
        assert not calls.call("ListModels", {"match": "x" * 90000}).models
        error = fails(calls.call, "ListModels", {}, metadata=[("x-large", "y" * 7000)] * 6)
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not calls.call("ListModels", {}).models


# ---- tokens --------------------------------------------------------------------------------------------


def test_tokens(start, tmp_path):
    write_by_hand(tmp_path / "root/a/model.safetensors", [tensor("w", "F32", (2,))])
    write_by_hand(tmp_path / "root/b/model.safetensors", [tensor("w", "F32", (2,))])
    tokens = TokensFile(tmp_path / "tokens").add("some", models=["a"])
    s = start(tmp_path / "root", *LISTEN, "--tokens", tokens)
    bearer = tokens.bearer("some")
    with Calls(s, headers=bearer) as calls:
        metadata = [(name.lower(), value) for name, value in bearer.items()]
        assert fails(calls.call, "ListModels", {}).code() == grpc.StatusCode.UNAUTHENTICATED
        assert [m.id for m in calls.call("ListModels", {}, metadata=metadata).models] == ["a"]
        assert fails(calls.call, "GetModel", {"model": "b"}, metadata=metadata).code() == grpc.StatusCode.NOT_FOUND
        # a request with a large body is refused without its body
        error = fails(calls.call, "ListModels", {"match": "x" * 1000000})
        assert error.code() == grpc.StatusCode.UNAUTHENTICATED
        assert health_pb2_grpc.HealthStub(calls.channel).Check(Check(), timeout=30).status == SERVING
        assert "token=some" in s.whole_log()


# ---- TLS -----------------------------------------------------------------------------------------------


def test_tls(start, tree, authority):
    pair = authority.sign("server")
    s = start(tree.root, *LISTEN, "--tls-cert", pair.cert, "--tls-key", pair.key, "--plain-listen", "127.0.0.1:0",
              ready=False)
    credentials = grpc.ssl_channel_credentials(authority.cert.read_bytes())
    channel = grpc.secure_channel(grpc_address(s), credentials)
    health = health_pb2_grpc.HealthStub(channel)
    s.wait_for(lambda: health.Check(Check(), timeout=30).status == SERVING, "the server is ready")
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    assert pool.FindServiceByName("tensord.v1.ModelService").methods_by_name["GetModel"]
    channel.close()
    address = grpc_address(s)
    host, port = address.split(":")
    for protocols in (["h2"], ["http/1.1"], []):
        context = authority.context()
        context.set_alpn_protocols(protocols)
        with socket.create_connection((host, int(port)), timeout=20) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as sock:
                if protocols == ["h2"]:
                    sock.sendall(PREFACE + h2_frame(SETTINGS))
                    assert sock.selected_alpn_protocol() == "h2" and sock.recv(9)[3] == SETTINGS
                    continue
                with pytest.raises(ssl.SSLError, match="no application protocol"):
                    sock.recv(9)
    with RawH2(s) as raw:    # a client without TLS
        assert b"over TLS" in raw.sock.recv(4096)


def test_tls_streams(start, tmp_path, authority):
    values = np.random.default_rng(2).integers(0, 255, 8 << 20, np.uint8)
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "U8", (len(values),))])
    path = tmp_path / "m/model.safetensors"
    path.write_bytes(path.read_bytes()[:-len(values)] + values.tobytes())
    pair = authority.sign("streams")
    s = start(tmp_path, *LISTEN, "--tls-cert", pair.cert, "--tls-key", pair.key, ready=False)
    credentials = grpc.ssl_channel_credentials(authority.cert.read_bytes())
    channel = grpc.secure_channel(grpc_address(s), credentials)
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = descriptor_pool.DescriptorPool(database)
    request = message_factory.GetMessageClass(pool.FindMessageTypeByName("tensord.v1.ReadTensorsRequest"))
    answer = message_factory.GetMessageClass(pool.FindMessageTypeByName("tensord.v1.ReadTensorsResponse"))
    health = health_pb2_grpc.HealthStub(channel)
    s.wait_for(lambda: health.Check(Check(), timeout=30).status == SERVING, "the server is ready")
    stub = channel.unary_stream("/tensord.v1.ModelService/ReadTensors", response_deserializer=answer.FromString,
                                request_serializer=request.SerializeToString)
    message = json_format.ParseDict({"model": "m", "tensors": [{"name": "w"}]}, request())
    with ThreadPoolExecutor(4) as threads:
        for data in threads.map(lambda _: b"".join(m.data for m in stub(message, timeout=60)), range(4)):
            assert data == values.tobytes()
    channel.close()


# ---- health and reflection -----------------------------------------------------------------------------


def test_health(srv, calls):
    stub = health_pb2_grpc.HealthStub(calls.channel)
    services = ["", "tensord.v1.ModelService", "tensord.v1.DatasetService", "tensord.v1.ServerService"]
    for service in services:
        assert stub.Check(Check(service=service), timeout=30).status == SERVING
    assert fails(stub.Check, Check(service="none"), timeout=30).code() == grpc.StatusCode.NOT_FOUND
    listed = stub.List(health_pb2.HealthListRequest(), timeout=30).statuses
    assert {name: entry.status for name, entry in listed.items()} == dict.fromkeys(services, SERVING)
    watch = stub.Watch(Check(service="none"), timeout=30)
    assert next(watch).status == SERVICE_UNKNOWN
    watch.cancel()


def test_health_follows_readiness(tmp_path):
    with Server(tmp_path, *LISTEN, "--require-models", "1", "--drain-delay", "3", rescan="0.1", ready=False) as s:
        channel = grpc.insecure_channel(grpc_address(s))
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(Check(service="tensord.v1.ModelService"), timeout=60)
        assert next(watch).status == NOT_SERVING
        write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "F32", (2,))])
        assert next(watch).status == SERVING
        s.term()
        assert next(watch).status == NOT_SERVING
        assert fails(lambda: next(watch)).code() == grpc.StatusCode.UNAVAILABLE
        assert stub.Check(Check(), timeout=30).status == NOT_SERVING
        channel.close()


def test_health_over_http1(srv):
    body = Check(service="").SerializeToString()
    r = srv.post("/grpc.health.v1.Health/Check", body, {"Content-Type": "application/proto"})
    assert r.status == 200 and health_pb2.HealthCheckResponse.FromString(r.body).status == SERVING


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_conversation(calls, version):
    """A stream that stays open between the questions, as grpcurl's does."""
    stub = calls.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=lambda m: m.SerializeToString(),
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString)
    Request = reflection_pb2.ServerReflectionRequest
    go_on = threading.Semaphore(0)
    questions = [Request(host="h", list_services=""), Request(file_containing_symbol="tensord.v1.Model"),
                 Request(file_containing_symbol="tensord.v1.ModelService.GetModel"),
                 Request(file_by_filename="google/protobuf/timestamp.proto"), Request(file_by_filename="none.proto"),
                 Request(file_containing_symbol="tensord.v1.Mode"), Request(all_extension_numbers_of_type="x.Y"),
                 Request(all_extension_numbers_of_type="tensord.v1.Model"),
                 Request(file_containing_symbol="grpc.health.v1.HealthCheckResponse.ServingStatus")]

    def ask():
        for question in questions:
            yield question
            go_on.acquire()

    answers = []
    for answer in stub(ask(), timeout=60):
        answers.append(answer)
        go_on.release()
    assert [a.original_request for a in answers] == questions
    assert answers[0].valid_host == "h"
    services = {s.name for s in answers[0].list_services_response.service}
    assert services == {"tensord.v1.ModelService", "tensord.v1.DatasetService", "tensord.v1.ServerService",
                        "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                        "grpc.reflection.v1alpha.ServerReflection"}
    files = {file.name: file for file in calls.schema.set.file}
    for i, name in ((1, "tensord/v1/model_service.proto"), (2, "tensord/v1/model_service.proto"),
                    (3, "google/protobuf/timestamp.proto")):
        assert list(answers[i].file_descriptor_response.file_descriptor_proto) == [files[name].SerializeToString()]
    assert [answers[i].error_response.error_code for i in (4, 5, 6)] == [5, 5, 5]
    assert answers[7].all_extension_numbers_response.base_type_name == "tensord.v1.Model"
    assert b"grpc/health/v1/health.proto" in answers[8].file_descriptor_response.file_descriptor_proto[0]


def test_reflected_services_of_grpc_are_those_of_the_packages(calls):
    """The descriptors of health and reflection define the same fields as those of the packages."""
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(calls.channel))
    for name, ours in ((health_pb2.DESCRIPTOR, "grpc.health.v1"),
                       (reflection_pb2.DESCRIPTOR, "grpc.reflection.v1alpha")):
        for message in name.message_types_by_name:
            want = name.message_types_by_name[message]
            got = pool.FindMessageTypeByName(f"{ours}.{message}")
            assert {(f.name, f.number, f.type) for f in got.fields} == {(f.name, f.number, f.type) for f in want.fields}


def test_buf_curl_by_reflection(srv):
    buf = Path(sys.executable).parent / "buf"
    p = subprocess.run([str(buf), "curl", "--http2-prior-knowledge", "--protocol", "grpc", "-d", "{}",
                        f"http://{grpc_address(srv)}/tensord.v1.ServerService/GetVersion"],
                       capture_output=True, text=True, timeout=60)
    assert p.returncode == 0 and json.loads(p.stdout)["version"] == srv.json("/version")["version"], p


# ---- many streams, one connection ----------------------------------------------------------------------


def test_many_calls_at_once(srv, calls):
    model = srv.get("/models").json()["models"][0]["id"]
    want = calls.call("GetModel", {"model": model})
    stub, request = calls.stub("GetModel"), calls.schema.request("GetModel", {"model": model})
    futures = [stub.future(request, timeout=60) for _ in range(2000)]
    assert all(f.result() == want for f in futures)


def test_streams_do_not_wait_for_one_another(start, tmp_path):
    """A stream that its client does not read leaves the others of its connection alone."""
    values = bytes(32 << 20)
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "U8", (len(values),))])
    s = start(tmp_path, *LISTEN)
    with Calls(s) as calls:
        stalled = [calls.call("ReadTensors", {"model": "m", "tensors": [{"name": "w"}]}) for _ in range(20)]
        for stream in stalled:
            next(stream)
        assert sum(len(m.data) for m in calls.call("ReadTensors", {"model": "m", "tensors": [{"name": "w"}]})) \
            == len(values)
        assert calls.call("ListModels", {}).models
        for stream in stalled:
            stream.cancel()
        s.wait_for(lambda: s.gauge("tensord_grpc_streams") == 0, "the cancelled streams have ended")
        assert calls.call("ListModels", {}).models


def test_keepalive_pings(start, tmp_path):
    s = start(tmp_path, *LISTEN, "--idle-timeout", "60")
    options = [("grpc.keepalive_time_ms", 100), ("grpc.keepalive_permit_without_calls", 1),
               ("grpc.http2.max_pings_without_data", 0)]
    with Calls(s, options=options) as calls:
        watch = health_pb2_grpc.HealthStub(calls.channel).Watch(Check(), timeout=60)
        next(watch)
        time.sleep(2)
        assert calls.call("ListModels", {}) is not None
        watch.cancel()


# ---- operators -----------------------------------------------------------------------------------------


def test_log_and_metrics(start, tmp_path):
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "F32", (2,))])
    s = start(tmp_path, *LISTEN)
    with Calls(s) as calls:
        calls.call("GetModel", {"model": "m"}, metadata=[("x-request-id", "abc-1")])
        fails(calls.call, "GetModel", {"model": "n"})
        line = next(line for line in s.whole_log().splitlines() if "rpc_get_model" in line)
        assert 'method="POST" target="/tensord.v1.ModelService/GetModel" status=200' in line
        assert "route=rpc_get_model" in line and "client=127.0.0.1" in line and "cut=" not in line
        assert 'tensord_http_requests_total{route="rpc_get_model",code="200"} 2' in s.get("/metrics").body.decode()


def test_limits_of_connections(tmp_path):
    source = "127.0.0.2"    # a connection by which the harness saw the start may count for 127.0.0.1
    with Server(tmp_path, *LISTEN, "--max-connections-per-address", "2") as s:
        with RawH2(s, source=source) as one, RawH2(s, source=source) as two:
            assert one.read() and two.read()
            with RawH2(s, source=source) as three:
                assert three.goaway() == 11    # ENHANCE_YOUR_CALM
    with Server(tmp_path, *LISTEN, "--max-connections", "1") as s:
        with RawH2(s) as one:
            assert one.read()
            channel = grpc.insecure_channel(grpc_address(s))
            stub = health_pb2_grpc.HealthStub(channel)
            assert stub.Check(Check(), timeout=30).status == SERVING    # a probe is answered at the limit
            error = fails(channel.unary_unary("/tensord.v1.ModelService/ListModels"), b"", timeout=30)
            assert error.code() == grpc.StatusCode.UNAVAILABLE and "--max-connections" in error.details()
            channel.close()


def test_drain_finishes_streams(tmp_path):
    values = bytes(16 << 20)
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "U8", (len(values),))])
    with Server(tmp_path, *LISTEN, "--drain-delay", "0", "--drain-timeout", "30") as s, Calls(s) as calls:
        stream = calls.call("ReadTensors", {"model": "m", "tensors": [{"name": "w"}], "chunkBytes": 65536})
        got = len(next(stream).data)
        s.term()
        time.sleep(1)
        assert got + sum(len(m.data) for m in stream) == len(values)
        s.wait_exit(30)


# shows: security.md h2-many-waits
def test_memory_of_many_watches(tmp_path):
    """10,000 streams on 100 connections: few threads, some KiB each, and all hear of a change."""
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "F32", (2,))])
    count, per = 100, 100
    with Server(tmp_path, *LISTEN, "--max-waiters", "50000", "--max-connections-per-address", "1000", rescan="0.2",
                binary=release_binary()) as s:
        status = lambda key: int(next(line.split()[1] for line in open(f"/proc/{s.proc.pid}/status")    # noqa: E731
                                      if line.startswith(key)))
        before, threads = status("VmRSS"), status("Threads")
        raws = []
        schema_request = frame(b"\x0a\x01m")
        for _ in range(count):
            raw = RawH2(s)
            raws.append(raw)
            for i in range(per):
                raw.call(2 * i + 1, schema_request, "/tensord.v1.ModelService/WatchModel")
        for raw in raws:
            for _ in range(per):
                assert raw.read_until(lambda kind, flags, *_: kind == DATA)
        s.wait_for(lambda: s.gauge("tensord_waiters") == count * per, "all wait", timeout=30)
        assert (status("VmRSS") - before) * 1024 / (count * per) < 12 * 1024
        s.wait_for(lambda: status("Threads") - threads < 50, "threads that have nothing to do have ended")
        began = time.monotonic()
        write_by_hand(tmp_path / "m/model.safetensors", [tensor("v", "F32", (3,))])
        for raw in raws:
            for _ in range(per):
                assert raw.read_until(lambda kind, flags, *_: kind == DATA)
        print("all heard within", time.monotonic() - began)
        for raw in raws:
            raw.sock.close()
        s.wait_for(lambda: s.gauge("tensord_waiters") == 0, "all places are free", timeout=10)


def test_compressed_requests(srv, calls):
    """The server reads requests that a client packs by gzip, and packs no answer."""
    model = srv.get("/models").json()["models"][0]["id"]
    want = calls.call("GetModel", {"model": model})
    # the field is unknown, and long enough that the client packs the message
    packed = calls.schema.request("GetModel", {"model": model}).SerializeToString() + b"\xfa\x07\xe8\x07" + b"x" * 1000
    stub = calls.channel.unary_unary(calls.schema.path("GetModel"),
                                     response_deserializer=calls.schema.output("GetModel").FromString)
    assert stub(packed, timeout=30, compression=grpc.Compression.Gzip) == want
    error = fails(stub, packed, timeout=30, compression=grpc.Compression.Deflate)
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED and "gzip" in error.details()
    stub = calls.channel.unary_unary("/grpc.health.v1.Health/Check",
                                     response_deserializer=health_pb2.HealthCheckResponse.FromString)
    packed = Check(service="tensord.v1.ModelService").SerializeToString() + b"\xfa\x07\xe8\x07" + b"x" * 1000
    assert stub(packed, timeout=30, compression=grpc.Compression.Gzip).status == SERVING
    error = fails(stub, packed, timeout=30, compression=grpc.Compression.Deflate)
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED and "gzip" in error.details()
