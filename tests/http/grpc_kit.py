"""The port of --grpc-listen: clients by grpcio, and frames of HTTP/2 (RFC 9113) and header blocks of HPACK (RFC 7541)
written by hand."""
import re
import socket
import struct

import grpc

from rpc_kit import Schema, frame

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
NO_ERROR, PROTOCOL_ERROR, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 8, 11


def grpc_address(srv):
    """Return the address of the port for gRPC, from the server's log."""
    return re.search(r"listening for gRPC clients on https?://(127\.0\.0\.1:\d+)", srv.stderr()).group(1)


class Calls:
    """Calls methods of tensord.v1 over a channel of grpcio."""

    def __init__(self, srv, credentials=None, options=(), headers=()):
        address = grpc_address(srv)
        if credentials:
            self.channel = grpc.secure_channel(address, credentials, options=list(options))
        else:
            self.channel = grpc.insecure_channel(address, options=list(options))
        self.schema = Schema(srv.get("/tensord.v1.binpb", headers).body)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.channel.close()

    def stub(self, method):
        kind = self.channel.unary_stream if self.schema.methods[method].server_streaming else self.channel.unary_unary
        return kind(self.schema.path(method), request_serializer=lambda message: message.SerializeToString(),
                    response_deserializer=self.schema.output(method).FromString)

    def call(self, method, fields, timeout=30, **kw):
        return self.stub(method)(self.schema.request(method, fields), timeout=timeout, **kw)


def h2_frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def block(*fields):
    """A header block of literals without indexing and without Huffman's code (RFC 7541, section 6.2.2)."""
    def text(value):
        if len(value) < 127:
            return bytes([len(value)]) + value
        rest, out = len(value) - 127, b"\x7f"
        while rest >= 128:
            out += bytes([rest % 128 + 128])
            rest //= 128
        return out + bytes([rest]) + value
    return b"".join(b"\0" + text(name.encode()) + text(value.encode()) for name, value in fields)


def request_block(path="/tensord.v1.ModelService/ListModels", *more, kind="application/grpc"):
    return block((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
                 ("content-type", kind), ("te", "trailers"), *more)


class RawH2:
    """A connection on which the test writes each frame."""

    def __init__(self, srv, settings=b"", timeout=20, preface=True, window=None, source=None):
        host, port = grpc_address(srv).rsplit(":", 1)
        self.sock = socket.socket()
        if window:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.sock.settimeout(timeout)
        if source:
            self.sock.bind((source, 0))
        self.sock.connect((host, int(port)))
        self.buf = b""
        if preface:
            self.send(PREFACE + h2_frame(SETTINGS, payload=settings))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def send_all(self, data):
        """Send all, unless the server ends the connection before that. Return whether all was sent."""
        try:
            self.sock.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def call(self, stream, body=frame(b""), path="/tensord.v1.ModelService/ListModels", *more):
        self.send(h2_frame(HEADERS, END_HEADERS, stream, request_block(path, *more)) +
                  h2_frame(DATA, END_STREAM, stream, body))

    def read(self):
        """Return the next frame as (kind, flags, stream, payload); None at the end."""
        def fill(n):
            while len(self.buf) < n:
                data = self.sock.recv(65536)
                if not data:
                    return False
                self.buf += data
            return True
        try:
            if not fill(9):
                return None
            n = struct.unpack(">I", b"\0" + self.buf[:3])[0]
            if not fill(9 + n):
                return None
        except ConnectionResetError:
            return None
        kind, flags, stream = self.buf[3], self.buf[4], struct.unpack(">I", self.buf[5:9])[0]
        payload, self.buf = self.buf[9:9 + n], self.buf[9 + n:]
        return kind, flags, stream, payload

    def read_until(self, test):
        """Read frames up to the first for which test(kind, flags, stream, payload) is true, and return it; None: the
        connection has ended without such a frame."""
        while (found := self.read()) is not None:
            if test(*found):
                return found
        return None

    def goaway(self):
        """Read to GOAWAY, and return its error code; None: the connection has ended without it."""
        found = self.read_until(lambda kind, *_: kind == GOAWAY)
        return found and struct.unpack(">I", found[3][4:8])[0]

    def ends(self):
        """Read to the end of the connection."""
        return self.read_until(lambda *_: False) is None

    def wait_end(self, stream):
        """Read to the frame that ends the stream: its kind, and the code of RST_STREAM."""
        kind, _, _, payload = self.read_until(lambda kind, flags, of, _: of == stream and (
            kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM)))
        return kind, struct.unpack(">I", payload)[0] if kind == RST_STREAM else None
