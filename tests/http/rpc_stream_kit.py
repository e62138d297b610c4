"""Reads server streams of Connect (https://connectrpc.com/docs/protocol, Streaming RPCs), gRPC-Web (PROTOCOL-WEB.md)
and gRPC (PROTOCOL-HTTP2.md, with the trailers of RFC 9112, section 7.1.2), with google.protobuf for the messages. No
code of the project."""
import base64
import json
import struct
import time
import urllib.parse

from google.protobuf import json_format

from harness import request_bytes
from rpc_kit import frame

# All content types of streams, by protocol and codec.
KINDS = {"connect": "application/connect+proto", "connect json": "application/connect+json",
         "web": "application/grpc-web+proto", "web json": "application/grpc-web+json",
         "grpc": "application/grpc+proto", "grpc json": "application/grpc+json"}

# The numbers and words of https://connectrpc.com/docs/protocol/#error-codes and of gRPC's statuscodes.md.
CODES = {"canceled": 1, "unknown": 2, "invalid_argument": 3, "deadline_exceeded": 4, "not_found": 5,
         "already_exists": 6, "permission_denied": 7, "resource_exhausted": 8, "failed_precondition": 9, "aborted": 10,
         "out_of_range": 11, "unimplemented": 12, "internal": 13, "unavailable": 14, "data_loss": 15,
         "unauthenticated": 16}


class StreamCall:
    """A call whose answer is read as it comes. first: a target that its connection asks for before, since a connection
    that begins with a short GET shares a thread (--workers)."""

    def __init__(self, rpc, method, fields, form="connect", headers=(), raw=None, **kw):
        self.kind, self.is_json = KINDS[form], "json" in form
        self.output = rpc.schema.output(method)
        request = rpc.schema.request(method, fields) if raw is None else None
        body = raw if raw is not None else frame(
            json_format.MessageToJson(request).encode() if self.is_json else request.SerializeToString())
        self.start(rpc.srv, rpc.schema.path(method), body, dict(headers), **kw)

    def start(self, srv, path, body, headers, first=None, **kw):
        self.conn = srv.conn(**kw)
        assert first is None or self.conn.request(first).status == 200
        fields = {"Content-Type": self.kind, **headers, "Content-Length": str(len(body))}
        self.conn.send(request_bytes(path, fields, "POST", "HTTP/1.1", srv.port) + body)
        self.head = self.conn.read_head(f"POST {path}")
        assert self.head.status == 200, self.head
        assert self.head.get("Content-Type") == self.kind, self.head
        self.length = self.head.length
        self.is_chunked = self.head.get("Transfer-Encoding") == "chunked"
        assert self.is_chunked != (self.length is not None), self.head
        self.left, self.body, self.trailers = self.length, b"", None
        self.error, self.has_ended = None, False
        if self.head.get("grpc-status") is not None:    # Trailers-Only
            assert self.length == 0
            self.end_by({name.lower(): value for name, value in self.head.headers})

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.conn.close()

    def more(self, timeout):
        """Reads once; returns whether bytes of the body have come."""
        self.conn.sock.settimeout(timeout)
        if not self.is_chunked:
            if self.left == 0 or (not self.conn.buf and not self.conn.fill()):
                return False
            taken = self.conn.buf[:self.left]
            self.conn.buf, self.left = self.conn.buf[len(taken):], self.left - len(taken)
            self.body += taken
            return True
        if self.trailers is not None:
            return False
        size = int(self.conn.line(), 16)
        if size == 0:
            self.trailers = {}
            while line := self.conn.line():
                name, value = line.decode("ascii").split(": ", 1)
                self.trailers[name] = value
            return False
        self.body += self.conn.read_exact(size, self.head)
        assert self.conn.line() == b""
        return True

    def take(self, n, timeout):
        deadline = time.monotonic() + timeout
        while len(self.body) < n:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if not self.more(left):
                return None
        taken, self.body = self.body[:n], self.body[n:]
        return taken

    def next(self, timeout=20):
        """The next message; None at the end, whose error is then in `error` as (word, message, details)."""
        if self.has_ended:
            return None
        head = self.take(5, timeout)
        if head is None:
            assert not self.body, self.body
            assert self.trailers, f"the answer has no end; {self.head}"
            self.end_by(self.trailers)
            return None
        flags, size = head[0], struct.unpack(">I", head[1:])[0]
        payload = self.take(size, timeout)
        assert payload is not None, "the answer ends within a frame"
        if flags == 0:
            self.size = size
            return json_format.Parse(payload, self.output()) if self.is_json else self.output.FromString(payload)
        if "grpc-web" in self.kind:
            assert flags == 0x80
            self.end_by(dict(line.split(": ", 1) for line in payload.decode("ascii").split("\r\n") if line))
        else:
            assert flags == 2 and "connect" in self.kind
            self.has_ended = True
            end = json.loads(payload)
            assert set(end) <= {"error", "metadata"}
            if "error" in end:
                details = {d["type"]: base64.b64decode(d["value"] + "==") for d in end["error"]["details"]}
                self.error = (end["error"]["code"], end["error"]["message"], details)
        assert self.take(1, timeout) is None, "bytes follow the end"
        return None

    def end_by(self, fields):
        self.has_ended = True
        number = int(fields["grpc-status"])
        if number != 0:
            word = next(word for word, code in CODES.items() if code == number)
            self.error = (word, urllib.parse.unquote(fields["grpc-message"]), fields["grpc-status-details-bin"])

    def all(self, timeout=60):
        """All messages up to an end without an error."""
        found = []
        while (message := self.next(timeout)) is not None:
            found.append(message)
        assert self.error is None, self.error
        return found

    def fails(self, timeout=20):
        """The code and the message of an answer that has no message but an error."""
        assert self.next(timeout) is None and self.error is not None
        return self.error[:2]
