"""Calls of the services of tensord.v1, with google.protobuf as the other side of both codecs."""
import base64
import json
import struct
import urllib.parse

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.rpc import code_pb2, error_details_pb2, status_pb2

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
