"""Frames of known attacks on servers of HTTP/2, written by hand: each costs bounded memory, ends the stream or the
connection, and leaves other connections alone."""
import socket
import struct
import time
from pathlib import Path

import pytest

from grpc_kit import (
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, HEADERS, PING, PREFACE, PRIORITY,
    PROTOCOL_ERROR, RST_STREAM, SETTINGS, WINDOW_UPDATE, Calls, RawH2, block, h2_frame, request_block)
from harness import Server, is_sanitized, tensor, write_by_hand
from rpc_kit import frame

LISTEN = ("--grpc-listen", "127.0.0.1:0")
LIST = "/tensord.v1.ModelService/ListModels"
READ = "/tensord.v1.ModelService/ReadTensors"
BIG = 16 << 20


@pytest.fixture(scope="module")
def srv(tmp_path_factory):
    root = tmp_path_factory.mktemp("attacks")
    write_by_hand(root / "m/model.safetensors", [tensor("w", "U8", (BIG,))])
    with Server(root, *LISTEN, "--header-timeout", "2", "--body-timeout", "2", "--idle-timeout", "3", "--send-timeout",
                "3", "--min-rate", "0", hash_threads=0) as s:
        yield s


@pytest.fixture
def guarded(srv):
    """The server, whose memory may grow by 64 MiB at most (more with a sanitizer), and which answers others before and
    after, without a word on standard error."""
    def resident():
        text = Path(f"/proc/{srv.proc.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) * 1024
    srv.wait_for(lambda: "ready: " in srv.stderr(), "all lines of the start are written")
    lines = srv.stderr()
    with Calls(srv) as calls:
        assert len(calls.call("ListModels", {}).models) == 1
        before = resident()
        yield srv
        assert resident() - before < (512 if is_sanitized() else 64) << 20
        assert len(calls.call("ListModels", {}).models) == 1
    srv.wait_for(lambda: srv.gauge("tensord_grpc_streams") == 0, "all streams have ended")
    assert srv.stderr() == lines


def calm(raw):
    """The connection ends, with ENHANCE_YOUR_CALM unless the client's own bytes are in the way."""
    code = raw.goaway()
    assert code in (ENHANCE_YOUR_CALM, None), code


def floods(srv):
    return srv.gauge("tensord_grpc_floods_total")


# shows: security.md h2-floods
def test_rapid_reset(guarded):
    """CVE-2023-44487: streams that are opened and reset at once."""
    before = floods(guarded)
    with RawH2(guarded) as raw:
        for i in range(20000):
            if not raw.send_all(h2_frame(HEADERS, END_HEADERS | END_STREAM, 2 * i + 1, request_block(LIST)) +
                                h2_frame(RST_STREAM, 0, 2 * i + 1, struct.pack(">I", 8))):
                break
        calm(raw)
        assert raw.ends()
    assert guarded.gauge("tensord_grpc_resets_total") > 100
    guarded.wait_for(lambda: floods(guarded) == before + 1, "the flood is counted")


def test_resets_of_large_answers(guarded):
    with RawH2(guarded) as raw:
        body = frame(b"\x0a\x01m" + READ_TENSORS)
        for i in range(300):
            raw.send(h2_frame(HEADERS, END_HEADERS, 2 * i + 1, request_block(READ)) +
                     h2_frame(DATA, END_STREAM, 2 * i + 1, body) +
                     h2_frame(RST_STREAM, 0, 2 * i + 1, struct.pack(">I", 8)))


@pytest.mark.parametrize("name, flood", [
    ("ping", h2_frame(PING, 0, 0, bytes(8))),
    ("ping acknowledged", h2_frame(PING, ACK, 0, bytes(8))),
    ("settings", h2_frame(SETTINGS)),
    ("settings of values", h2_frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535) * 5)),
    ("window", h2_frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1))),
    ("priority", h2_frame(PRIORITY, 0, 3, struct.pack(">IB", 0, 1))),
    ("unknown", h2_frame(0xfa, 0, 0, b"x")),
])
# shows: security.md h2-floods
def test_floods_of_frames(guarded, name, flood):
    before = floods(guarded)
    with RawH2(guarded) as raw:
        for _ in range(100):
            if not raw.send_all(flood * 1000):
                break
        calm(raw)
    guarded.wait_for(lambda: floods(guarded) == before + 1, "the flood is counted")


# shows: security.md h2-floods
@pytest.mark.parametrize("payload", [b"", b"x"])
def test_flood_of_tiny_data(guarded, payload):
    before = floods(guarded)
    with RawH2(guarded) as raw:
        raw.send(h2_frame(HEADERS, END_HEADERS, 1, request_block(LIST)))
        for _ in range(100):
            if not raw.send_all(h2_frame(DATA, 0, 1, payload) * 1000):
                break
        calm(raw)
    guarded.wait_for(lambda: floods(guarded) == before + 1, "the flood is counted")


# shows: security.md h2-floods
def test_pings_whose_answers_are_not_read(guarded):
    """The acknowledgements may not pile up."""
    with RawH2(guarded, window=4096) as raw:
        raw.sock.settimeout(5)
        try:
            for _ in range(200):
                if not raw.send_all(h2_frame(PING, 0, 0, bytes(8)) * 1000):
                    break
        except TimeoutError:
            pass


# shows: security.md h2-floods
def test_continuation_flood(guarded):
    """CVE-2024-28182: a header block that does not end."""
    with RawH2(guarded) as raw:
        raw.send(h2_frame(HEADERS, 0, 1, request_block(LIST)))
        for _ in range(10000):
            if not raw.send_all(h2_frame(CONTINUATION, 0, 1, block(("x-a", "y" * 1000)))):
                break
        assert raw.goaway() != 0 and raw.ends()


# shows: security.md h2-floods
def test_hpack_bomb(guarded):
    """One entry of 4,000 bytes in the dynamic table, named by a byte thousands of times (RFC 7541, section 6.1)."""
    entry = b"\x40\x01x" + b"\x7f" + bytes([(4000 - 127) % 128 + 128, (4000 - 127) // 128]) + b"y" * 4000
    with RawH2(guarded) as raw:
        raw.send(h2_frame(HEADERS, 0, 1, request_block(LIST) + entry))
        for i in range(7):
            raw.send_all(h2_frame(CONTINUATION, END_HEADERS if i == 6 else 0, 1, b"\xbe" * 16000))
        assert raw.goaway() != 0 and raw.ends()


# shows: security.md h2-floods
def test_header_list_too_large(guarded):
    with RawH2(guarded) as raw:
        fields = [(f"x-{i}", "y" * 1000) for i in range(40)]
        payload = request_block(LIST, *fields)
        raw.send(h2_frame(HEADERS, END_STREAM, 1, payload[:16000]) +
                 h2_frame(CONTINUATION, 0, 1, payload[16000:32000]) +
                 h2_frame(CONTINUATION, END_HEADERS, 1, payload[32000:]))
        assert raw.wait_end(1)[0] == HEADERS    # an answer of trailers alone
        raw.call(3)                             # the connection lives
        assert raw.wait_end(3)[0] == HEADERS


def test_too_many_streams(guarded):
    """The 101st stream at once is refused, and the others are answered."""
    with RawH2(guarded) as raw:
        assert raw.read_until(lambda kind, flags, *_: kind == SETTINGS and flags & ACK)
        raw.send(h2_frame(SETTINGS, ACK))
        for i in range(101):
            raw.send(h2_frame(HEADERS, END_HEADERS, 2 * i + 1, request_block(LIST)))
        assert raw.read_until(lambda kind, *_: kind in (RST_STREAM, GOAWAY))


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"PRI * HTTP/1.1\r\n\r\n",
                                   b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", b"\0" * 100, b"POST " + b"x" * 5000])
# shows: security.md h2-protocol
def test_bad_prefaces(guarded, first):
    with RawH2(guarded, preface=False) as raw:
        raw.send_all(first)
        assert raw.ends()


@pytest.mark.parametrize("frames", [
    h2_frame(DATA, 0, 1, b"x"),                                       # a stream that was not opened
    h2_frame(HEADERS, END_HEADERS, 2, request_block()),               # an even number
    h2_frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),   # no HPACK
    h2_frame(CONTINUATION, 0, 1, b""),
    h2_frame(PING, 0, 0, b"1234567"),
    h2_frame(SETTINGS, 0, 0, b"12345"),
    h2_frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 31)),
    h2_frame(WINDOW_UPDATE, 0, 0, bytes(4)),
    h2_frame(5, END_HEADERS, 1, bytes(4) + request_block()),          # PUSH_PROMISE by a client
    h2_frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7fffffff)),
    b"\xff\xff\xff\0\0\0\0\0\1",                                      # a frame of 16 MiB
])
# shows: security.md h2-protocol
def test_broken_frames_end_the_connection(guarded, frames):
    with RawH2(guarded) as raw:
        raw.send_all(frames)
        assert raw.goaway() not in (0,)


@pytest.mark.parametrize("fields", [
    [(":method", "POST"), (":scheme", "http"), (":path", LIST)],
    [(":method", "POST"), (":scheme", "http"), (":path", ""), (":authority", "x")],
    [(":method", "POST"), (":scheme", "http"), (":path", LIST), (":path", LIST), (":authority", "x")],
    [(":method", "POST"), (":scheme", "http"), (":path", LIST), (":authority", "x"), ("Upper", "x")],
    [(":method", "POST"), (":scheme", "http"), (":path", LIST), (":authority", "x"), ("connection", "close")],
    [(":method", "POST"), (":scheme", "http"), (":path", LIST), (":authority", "x"), ("x", "a\r\nb")],
    [(":method", "POST"), (":scheme", "http"), (":path", LIST + "\0"), (":authority", "x")],
    [(":method", "POST"), (":scheme", "http"), (":path", LIST), (":authority", "x"), ("host", "y")],
    [("x", "y")],
])
# shows: security.md h2-protocol
def test_malformed_requests(guarded, fields):
    """Each ends its stream or is answered by an error; the connection lives."""
    with RawH2(guarded) as raw:
        raw.send(h2_frame(HEADERS, END_HEADERS | END_STREAM, 1, block(*fields, ("content-type", "application/grpc"))))
        raw.call(3)
        assert raw.wait_end(3)[0] == HEADERS


# shows: security.md h2-protocol
def test_stream_reuse(guarded):
    """A closed stream is not answered again, nor one with a smaller number than another (RFC 9113, section 5.1.1)."""
    with RawH2(guarded) as raw:
        raw.call(3)
        assert raw.wait_end(3)[0] == HEADERS
        raw.call(3)
        raw.call(1)
        assert raw.read_until(lambda kind, *_: kind in (HEADERS, DATA)) is None


def test_body_with_another_length_than_declared(guarded):
    with RawH2(guarded) as raw:
        raw.call(1, frame(b""), LIST, ("content-length", "99"))
        assert raw.wait_end(1) == (RST_STREAM, PROTOCOL_ERROR)
        raw.call(3)
        assert raw.wait_end(3)[0] == HEADERS


# ---- slow clients --------------------------------------------------------------------------------------


def read_call(raw, stream=1):
    raw.call(stream, frame(b"\x0a\x01m" + READ_TENSORS), READ)


READ_TENSORS = b"\x22\x03\x0a\x01w"    # field 4 of ReadTensorsRequest, {name: "w"}; checked below


def test_the_request_of_these_tests_is_the_schemas(srv):
    with Calls(srv) as calls:
        request = calls.schema.request("ReadTensors", {"model": "m", "tensors": [{"name": "w"}]})
        assert request.SerializeToString() == b"\x0a\x01m" + READ_TENSORS


# shows: security.md h2-slow
def test_closed_windows_stall_and_end_the_stream(guarded):
    """A client that opens no window is cut, and its connection serves other streams until then."""
    with RawH2(guarded, settings=struct.pack(">HI", 4, 0)) as raw:
        read_call(raw)
        assert raw.read_until(lambda kind, flags, stream, _: kind == HEADERS and stream == 1)
        kind, code = raw.wait_end(1)
        assert (kind, code) == (RST_STREAM, 8)
    guarded.wait_for(lambda: "cut=stalled" in guarded.log(), "the log names the reason")


def test_windows_of_one_byte(guarded):
    """One byte at a time is progress, but --min-rate is not reached; here the client leaves, and all is freed."""
    with RawH2(guarded, settings=struct.pack(">HI", 4, 1)) as raw:
        read_call(raw)
        for _ in range(200):
            assert raw.read_until(lambda kind, flags, stream, payload: kind == DATA and len(payload) == 1)
            raw.send(h2_frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1)))


# shows: security.md h2-slow
def test_windows_of_one_byte_are_too_slow(tmp_path):
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "U8", (BIG,))])
    with Server(tmp_path, *LISTEN, "--min-rate", "1000", hash_threads=0) as s, \
            RawH2(s, settings=struct.pack(">HI", 4, 1), timeout=60) as raw:
        read_call(raw)
        end = time.monotonic() + 50
        while time.monotonic() < end:
            found = raw.read()
            if found is None or found[0] == RST_STREAM:
                break
            if found[0] == DATA:
                time.sleep(0.01)
                raw.send_all(h2_frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1)))
        assert found is None or found[0] == RST_STREAM
        s.wait_for(lambda: "cut=slow" in s.log(), "the log names the reason")


# shows: security.md h2-slow
def test_a_socket_that_is_not_read(guarded):
    """Large windows and a client that reads nothing: the connection is cut as a whole."""
    settings = struct.pack(">HI", 4, 0x7fffffff)
    with RawH2(guarded, settings=settings, window=4096) as raw:
        raw.send(h2_frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7fff0000)))
        for i in range(50):
            read_call(raw, 2 * i + 1)
        guarded.wait_for(lambda: guarded.gauge("tensord_grpc_streams") == 0, "the connection was cut", timeout=30)


# shows: security.md h2-slow
@pytest.mark.parametrize("part", [PREFACE[:10], PREFACE, PREFACE + h2_frame(SETTINGS)[:5]])
def test_slow_prefaces(guarded, part):
    with RawH2(guarded, preface=False) as raw:
        raw.send(part)
        assert raw.ends()


@pytest.mark.parametrize("part", [
    h2_frame(HEADERS, END_HEADERS, 1, request_block())[:20],                   # within a frame
    h2_frame(HEADERS, 0, 1, request_block()),                                  # within a header block
])
# shows: security.md h2-slow
def test_headers_that_do_not_end(guarded, part):
    with RawH2(guarded) as raw:
        raw.send(part)
        assert raw.ends()


# shows: security.md h2-slow
def test_bodies_that_do_not_end(guarded):
    """The stream is reset at the body's deadline, whatever else the connection does."""
    with RawH2(guarded) as raw:
        raw.send(h2_frame(HEADERS, END_HEADERS, 1, request_block()) + h2_frame(DATA, 0, 1, b"\0\0\0"))
        raw.call(3)
        assert raw.wait_end(3)[0] == HEADERS
        assert raw.wait_end(1) == (RST_STREAM, 8)


def test_half_closed_clients(guarded):
    with RawH2(guarded) as raw:
        read_call(raw)
        raw.sock.shutdown(socket.SHUT_WR)
        assert raw.ends()


def test_idle_connections_end(guarded):
    with RawH2(guarded) as raw:
        raw.call(1)
        assert raw.wait_end(1)[0] == HEADERS
        assert raw.goaway() == 0 and raw.ends()


def test_silent_conversations_end(guarded):
    """A call whose messages are answered one by one ends when the client asks nothing more."""
    path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    with RawH2(guarded) as raw:
        raw.send(h2_frame(HEADERS, END_HEADERS, 1, request_block(path)) + h2_frame(DATA, 0, 1, frame(b"\x3a\x00")))
        assert raw.read_until(lambda kind, *_: kind == DATA)
        assert raw.wait_end(1)[0] == HEADERS


def test_conversation_in_pieces(guarded):
    """Bytes one by one: each message is answered when it is complete, and a broken end is an error."""
    path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    with RawH2(guarded) as raw:
        raw.send(h2_frame(HEADERS, END_HEADERS, 1, request_block(path)))
        for byte in frame(b"\x3a\x00") * 2:
            raw.send(h2_frame(DATA, 0, 1, bytes([byte])))
        raw.send(h2_frame(DATA, END_STREAM, 1, b"\0\0"))
        assert raw.read_until(lambda kind, *_: kind == DATA)
        assert raw.wait_end(1)[0] == HEADERS
