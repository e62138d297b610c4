"""Calls of the services of tensord.v1, with google.protobuf as the other side of both codecs."""
import base64
import json
import struct
import urllib.parse

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.rpc import code_pb2, error_details_pb2, status_pb2

from harness import age, tensor, write_by_hand

# The trailers of an answer of gRPC-Web without an error, as PROTOCOL-WEB.md lays them out.
GOOD_TRAILERS = b"\x80" + struct.pack(">I", 16) + b"grpc-status: 0\r\n"


class Schema:
    """The messages and methods of a descriptor set."""

    def __init__(self, descriptor_set):
        self.set = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set)
        self.pool = descriptor_pool.DescriptorPool()
        for file in self.set.file:
            self.pool.Add(file)
        self.methods = {}
        for file in self.set.file:
            for service in file.service:
                if file.package == "tensord.v1":
                    found = self.pool.FindServiceByName(f"tensord.v1.{service.name}")
                    self.methods.update({method.name: method for method in found.methods})

    def message(self, name):
        full = name if "." in name else f"tensord.v1.{name}"
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(full))

    def path(self, method):
        return f"/tensord.v1.{self.methods[method].containing_service.name}/{method}"

    def request(self, method, fields):
        return json_format.ParseDict(fields, self.message(self.methods[method].input_type.full_name)())

    def output(self, method):
        return self.message(self.methods[method].output_type.full_name)


def frame(message, flags=0):
    return bytes([flags]) + struct.pack(">I", len(message)) + message


class Rpc:
    """Calls methods on a server."""

    def __init__(self, srv, headers=()):
        self.srv = srv
        r = srv.get("/tensord.v1.binpb", headers)
        assert r.status == 200, r
        self.schema = Schema(r.body)

    def post(self, method, body, kind, headers=None):
        return self.srv.post(self.schema.path(method), body, {"Content-Type": kind, **(headers or {})})

    def get(self, method, request, as_json=False, headers=()):
        if as_json:
            query = {"encoding": "json", "message": json_format.MessageToJson(request)}
        else:
            text = base64.urlsafe_b64encode(request.SerializeToString()).decode().rstrip("=")
            query = {"encoding": "proto", "base64": "1", "message": text}
        return self.srv.get(f"{self.schema.path(method)}?connect=v1&{urllib.parse.urlencode(query)}", headers)

    def answers(self, method, fields):
        """The answer to the call by every protocol and codec, as {name: (response, message)}."""
        request, output = self.schema.request(method, fields), self.schema.output(method)
        binary, text = request.SerializeToString(), json_format.MessageToJson(request)
        found = {}
        found["proto"] = self.post(method, binary, "application/proto")
        found["json"] = self.post(method, text.encode(), "application/json")
        found["web"] = self.post(method, frame(binary), "application/grpc-web+proto")
        found["web json"] = self.post(method, frame(text.encode()), "application/grpc-web+json")
        found["grpc"] = self.post(method, frame(binary), "application/grpc")
        found["grpc json"] = self.post(method, frame(text.encode()), "application/grpc+json")
        if self.schema.methods[method].GetOptions().idempotency_level == 1:
            found["get"] = self.get(method, request)
            found["get json"] = self.get(method, request, as_json=True)
        return {name: (r, self.read(r, output, name)) for name, r in found.items()}

    @staticmethod
    def read(r, output, name):
        """The only message of an answer. `name`: of the protocol and codec, as in `answers`."""
        assert r.status == 200, r
        body = r.body
        form, codec = name.partition(" ")[0], "json" if "json" in name else "proto"
        base = {"web": "application/grpc-web+", "grpc": "application/grpc+"}.get(form, "application/")
        assert r.get("Content-Type") == base + codec
        assert r.trailers == ({"grpc-status": "0"} if form == "grpc" else {})
        if form in ("web", "grpc"):
            n = struct.unpack(">I", body[1:5])[0]
            assert body[:1] == b"\0" and body[5 + n:] == (GOOD_TRAILERS if form == "web" else b""), body[:200]
            body = body[5:5 + n]
        return json_format.Parse(body, output()) if codec == "json" else output.FromString(body)


def rest_message(output, text):
    """REST's JSON as the method's message; a member without a field of its name is an error."""
    return json_format.ParseDict(json.loads(text), output(), ignore_unknown_fields=False)


def connect_error(schema, r):
    """The code and the message of an error of Connect, whose ErrorInfo must say the same."""
    assert r.get("Content-Type") == "application/json", r
    error = json.loads(r.body)
    info = {d["type"]: base64.b64decode(d["value"] + "==") for d in error["details"]}
    assert "=" not in "".join(d["value"] for d in error["details"])
    text = info["google.rpc.ErrorInfo"]
    n = text[1]
    assert text[:1] == b"\x0a" and text[2:2 + n].decode() == error["code"].upper(), error
    assert text[2 + n:] == b"\x12\x07tensord"
    return error["code"], error["message"]


def web_error(r):
    """The number and the message of an error of gRPC-Web."""
    assert r.status == 200 and r.body[:1] == b"\x80", r
    assert struct.unpack(">I", r.body[1:5])[0] == len(r.body) - 5
    fields = dict(line.split(": ", 1) for line in r.body[5:].decode("ascii").split("\r\n") if line)
    return int(fields["grpc-status"]), urllib.parse.unquote(fields["grpc-message"])


def grpc_error(r):
    """The number and the message of an error of gRPC without an answer before it, which is in the header alone; its
    google.rpc.Status must say the same."""
    assert r.status == 200 and r.length == 0 and r.get("Content-Type").startswith("application/grpc"), r
    number, message = int(r.get("grpc-status")), urllib.parse.unquote(r.get("grpc-message"))
    text = r.get("grpc-status-details-bin")
    status = status_pb2.Status.FromString(base64.b64decode(text + "=" * (-len(text) % 4)))
    assert (status.code, status.message) == (number, message)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info) and info.domain == "tensord" and code_pb2.Code.Value(info.reason) == number
    return number, message


# ---- what every typed client is asked ---------------------------------------------------------------------

RULES = [{"match": "*", "dim": 0}]
# Each unary method with a request, and where REST has the same. PLAN stands for the id of a plan.
UNARY = [
    ("ModelService", "ListModels", {"pageSize": 2}, "/models?page_size=2"),
    ("ModelService", "GetModel", {"model": "org/a"}, "/models/org/a"),
    ("ModelService", "ListVersions", {"model": "run"}, "/models/run/versions"),
    ("ModelService", "GetManifest", {"model": "org/a", "match": "l*"}, "/models/org/a/tensors?match=l*&page_size=1000"),
    ("ModelService", "GetRankFile", {"model": "org/a", "engine": "none", "tpSize": 2, "tpRank": 1},
     "/models/org/a/shards/none/tp2/rank-1.json"),
    ("ModelService", "RegisterPlan", {"model": "org/a", "tpSize": 2, "rules": RULES}, None),
    ("ModelService", "GetPlan", {"model": "org/a", "plan": "PLAN"}, "/models/org/a/plans/PLAN"),
    ("DatasetService", "ListDatasets", {}, "/datasets"),
    ("DatasetService", "GetDataset", {"dataset": "rows"}, "/datasets/rows"),
    ("DatasetService", "BatchGetRows", {"dataset": "rows", "indices": [7, 0, 99]}, None),
    ("ServerService", "GetVersion", {}, "/version"),
    ("ServerService", "GetReadiness", {}, "/readyz"),
    ("ServerService", "Rescan", {}, None),
]


def write_models(root):
    """Write what UNARY asks for."""
    for name in ("org/a", "run/step-1", "run/step-2"):
        write_by_hand(root / name / "model.safetensors", [tensor(f"l{i}", "F32", (8, 4)) for i in range(20)])
    write_by_hand(root / "ünï/b c/model.safetensors", [tensor("w", "BF16", (3,))])
    (root / "datasets/rows").mkdir(parents=True)
    (root / "datasets/rows/train.jsonl").write_text("".join(f'{{"a": {i}}}\n' for i in range(100)))
    age(root)


def wait_until_whole(srv):
    """Wait until the answers to UNARY stay as they are."""
    srv.wait_hashed()
    srv.wait_for(lambda: srv.json("/datasets/rows")["splits"][0]["index"]["state"] == "ready", "the rows are counted")


def check_unary(rpc, call, left_out=()):
    """Check that the answer to every unary method is REST's. call: takes {"service", "method", "request"}, and returns
    the client's answer as JSON."""
    unary = {name for name, method in rpc.schema.methods.items() if not method.server_streaming}
    assert {row[1] for row in UNARY} == unary
    plan = rpc.srv.post("/models/org/a/plans", {"tp_size": 2, "rules": RULES}).json()["id"]
    for service, method, request, target in (row for row in UNARY if row[1] not in left_out):
        request = json.loads(json.dumps(request).replace("PLAN", plan))
        for _ in range(3):    # GetReadiness counts scans, and one may end between the two answers
            got = call({"service": service, "method": method, "request": request})
            assert isinstance(got, dict) and "code" not in got, (method, got)
            message = rest_message(rpc.schema.output(method), json.dumps(got))
            if target is None:
                break
            r = rpc.srv.get(target.replace("PLAN", plan))
            assert r.status == 200, r
            wanted = rest_message(rpc.schema.output(method), r.body)
            if message == wanted:
                break
        else:
            raise AssertionError(f"{method}: {message} is not {wanted}")


def check_streams(rpc, call):
    """Check that the streams that end have the bytes of REST. call: as of check_unary, with "streams" set for methods
    whose answer is a list."""
    def messages(service, method, request):
        got = call({"service": service, "method": method, "request": request, "streams": True})
        assert isinstance(got, list), got
        return [json_format.ParseDict(one, rpc.schema.output(method)()) for one in got]

    parts = [{"name": "l0"}, {"name": "l3", "slice": "2:5"}, {"name": "l0"}]
    found = messages("ModelService", "ReadTensors", {"model": "org/a", "tensors": parts, "chunkBytes": 4096})
    for i, part in enumerate(parts):
        target = f"/models/org/a/tensors/{part['name']}" + (f"?slice={part['slice']}" if "slice" in part else "")
        mine = [one for one in found if one.index == i]
        assert b"".join(one.data for one in mine) == rpc.srv.get(target).body and mine[0].HasField("tensor")
    found = messages("DatasetService", "StreamRows", {"dataset": "rows", "start": 5, "count": 20})
    rows = [row for one in found for row in one.rows]
    assert found[0].start == 5 and found[0].total == 100
    assert rows == [b'{"a": %d}' % i for i in range(5, 25)], rows
    rows = call({"service": "DatasetService", "method": "BatchGetRows",
                 "request": {"dataset": "rows", "indices": [7, 0, 99]}})["rows"]
    assert [base64.b64decode(row) for row in rows] == [b'{"a": %d}' % i for i in (7, 0, 99)]


def check_errors(rpc, call):
    """Check that errors have the code and REST's message, and ErrorInfo among their details."""
    for service, method, request, code, answer in [
            ("ModelService", "GetModel", {"model": "nö/such"}, "not_found", rpc.srv.get("/models/n%C3%B6/such")),
            ("ModelService", "GetManifest", {"model": "org/a", "dtype": "X"}, "invalid_argument",
             rpc.srv.get("/models/org/a/tensors?dtype=X")),
            ("ModelService", "RegisterPlan", {"model": "org/a", "tpSize": 3, "rules": RULES}, "failed_precondition",
             rpc.srv.post("/models/org/a/plans", {"tp_size": 3, "rules": RULES}))]:
        got = call({"service": service, "method": method, "request": request})
        assert got["code"].replace("_", "").lower() == code.replace("_", ""), got
        assert got["message"] == answer.json()["error"]["message"]
        assert got["details"] == ["google.rpc.ErrorInfo"]
