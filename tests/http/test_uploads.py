"""Bodies of uploads go to sinks: tests/kit/upload_server.c has the program's sockets, and sinks that hash.

Expectations: RFC 9110 10.1.1 (Expect), RFC 9112 6 (framing), 7.1 (chunked), 9.6 (an answer before the body's end).
"""
import hashlib
import json
import random
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

import harness
import pki

MIB = 1 << 20


class Server:
    def __init__(self, folder, *options):
        binary = harness.tensord_binary().parent / "upload_server"
        self.log = folder / "access.log"
        self.process = subprocess.Popen(
            [binary, folder, "--listen", "127.0.0.1:0", "--access-log", self.log, *options], stdout=subprocess.PIPE,
            text=True)
        self.url = self.process.stdout.readline().strip()
        self.port = int(self.url.rpartition(":")[2])
        self.context = None

    def connect(self):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        return self.context.wrap_socket(sock, server_hostname="localhost") if self.context else sock

    def ask(self, *parts):
        """Sends the parts on a new connection, and returns the answer."""
        with self.connect() as sock:
            for part in parts:
                sock.sendall(part)
            return Reader(sock).answer()

    def state(self):
        return json.loads(self.ask(head("GET", "/state"))[1])

    def wait_released(self, count=None):
        """Waits until all sinks are released; returns the state."""
        until = time.monotonic() + 30
        while True:
            state = self.state()
            if state["made"] == state["released"] and (count is None or state["made"] == count):
                return state
            assert time.monotonic() < until, state
            time.sleep(0.05)

    def wait_made(self, count):
        """Waits until so many sinks were made. A reset before that would discard the request."""
        until = time.monotonic() + 30
        while self.state()["made"] < count:
            assert time.monotonic() < until, count
            time.sleep(0.01)

    def metric(self, name):
        """Returns the value of a sample, by its name and labels."""
        lines = self.ask(head("GET", "/metrics"))[1].decode().splitlines()
        return float(next(line.rpartition(" ")[2] for line in lines if line.rpartition(" ")[0] == name))

    def stop(self):
        """Ends the server as SIGTERM does; returns its numbers, and fails if it leaked or released a sink twice."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=90)
        assert self.process.returncode == 0
        words = out.split()
        assert words[1] == words[3], out
        return words


class Reader:
    def __init__(self, sock):
        self.file = sock.makefile("rb")

    def interim(self):
        line = self.file.readline()
        assert self.file.readline() == b"\r\n"
        return line

    def answer(self):
        """Returns status, body and header of the next answer; status 0 when the connection has ended."""
        line = self.file.readline()
        if not line:
            return 0, b"", {}
        header = {}
        while (field := self.file.readline()) not in (b"\r\n", b""):
            name, _, value = field.decode().partition(":")
            header[name.lower()] = value.strip()
        return int(line.split()[1]), self.file.read(int(header.get("content-length", 0))), header

    def ended(self):
        """Waits for the connection's end, which may be a reset."""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True


def head(method, target, *fields, version="HTTP/1.1"):
    lines = [f"{method} {target} {version}", "Host: localhost", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def put(target, body, *fields, method="PUT"):
    return head(method, target, f"Content-Length: {len(body)}", *fields) + body


def chunk(data, extension=""):
    return f"{len(data):x}{extension}\r\n".encode() + data + b"\r\n"


def pattern(n, seed=1):
    return random.Random(seed).randbytes(n)


def sha256(data):
    return hashlib.sha256(data).hexdigest().encode()


@pytest.fixture
def server(tmp_path):
    started = Server(tmp_path)
    yield started
    started.stop()


# ---- bodies


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH", "DELETE"])
@pytest.mark.parametrize("size", [0, 1, 70_000, 3 * MIB + 7])
def test_a_body_with_a_length_arrives(server, method, size):
    body = pattern(size)
    status, text, _ = server.ask(put("/sink", body, method=method))
    assert status == 200 and text.split(b"\n")[1] == sha256(body) and f"declared {size}".encode() in text
    assert server.wait_released(1)["handled"] == 1


def test_large_pieces_in_the_upload_lane(server):
    """A piece is half the pool of 512 KiB where the first bytes announced the upload, and 16 times smaller else."""
    body = pattern(32 * MIB)
    pieces = int(server.ask(put("/sink", body))[1].split()[3])
    assert pieces < 3000
    with server.connect() as sock:
        sock.sendall(head("GET", "/state"))
        reader = Reader(sock)
        assert reader.answer()[0] == 200
        sock.sendall(put("/sink", body))  # on a thread that serves other connections
        status, text, _ = reader.answer()
        assert status == 200 and text.split(b"\n")[1] == sha256(body)
        assert int(text.split()[3]) > 2000


@pytest.mark.parametrize("first", [b"", head("GET", "/state")])
def test_chunked_bodies(server, first):
    """Tiny chunks, all sizes, extensions and trailers; in both lanes."""
    rng = random.Random(7)
    body = pattern(100_000)
    parts, at = [], 0
    while at < len(body):
        n = rng.choice([1, 2, 15, 16, 255, 4096])
        parts.append(chunk(body[at:at + n], rng.choice(["", ";a", ';name="v"', ";x=y;z"])))
        at += n
    with server.connect() as sock:
        reader = Reader(sock)
        if first:
            sock.sendall(first)
            assert reader.answer()[0] == 200
        for trailer in (b"", b"X-Sum: abc\r\nX-Two: d\r\n"):
            sock.sendall(head("PUT", "/sink", "Transfer-Encoding: chunked") + b"".join(parts) + b"0\r\n" + trailer +
                         b"\r\n")
            status, text, _ = reader.answer()
            assert status == 200 and text.split(b"\n")[1] == sha256(body)
        sock.sendall(head("PUT", "/sink", "Transfer-Encoding: chunked") + b"0\r\n\r\n")
        status, text, _ = reader.answer()
        assert status == 200 and text.startswith(b"0 bytes") and text.split(b"\n")[1] == sha256(b"")


def test_keep_alive_and_pipelined_requests(server):
    body = pattern(200_000)
    with server.connect() as sock:
        reader = Reader(sock)
        threading.Thread(target=sock.sendall, args=((put("/sink", body) + head("GET", "/bytes") +
                                                      put("/memory", b"abc", method="POST") + put("/sink", body)),),
                         daemon=True).start()
        answers = [reader.answer() for _ in range(4)]
        assert [a[0] for a in answers] == [200] * 4
        assert answers[0][1].split(b"\n")[1] == answers[3][1].split(b"\n")[1] == sha256(body)
        assert len(answers[1][1]) == 65536 and answers[2][1] == b"3 bytes in memory\n"


def test_tls(tmp_path):
    authority = pki.Authority(tmp_path)
    pair = authority.sign("server")
    server = Server(tmp_path, "--tls-cert", pair.cert, "--tls-key", pair.key)
    server.context = authority.context()
    body = pattern(2 * MIB)
    assert server.ask(put("/sink", body))[1].split(b"\n")[1] == sha256(body)
    assert server.ask(put("/refuse", pattern(32 * MIB)))[0] == 403
    status, text, _ = server.ask(head("PUT", "/sink", "Transfer-Encoding: chunked") + chunk(body) + b"0\r\n\r\n")
    assert status == 200 and text.split(b"\n")[1] == sha256(body)
    server.stop()


# ---- Expect and refusals


def test_expect(server):
    body = b"hello"
    with server.connect() as sock:
        reader = Reader(sock)
        sock.sendall(head("PUT", "/sink", "Content-Length: 5", "Expect: 100-continue"))
        assert reader.interim() == b"HTTP/1.1 100 Continue\r\n"
        sock.sendall(body)
        assert reader.answer()[1].split(b"\n")[1] == sha256(body)
        sock.sendall(head("PUT", "/refuse", "Content-Length: 5", "Expect: 100-continue"))
        status, _, header = reader.answer()
        assert status == 403 and header["connection"] == "close" and reader.ended()
    assert server.ask(head("PUT", "/sink", "Content-Length: 5", "Expect: 200-ok"))[0] == 417
    # HTTP/1.0 knows no expectations: no 100 comes
    status, text, _ = server.ask(head("PUT", "/sink", "Content-Length: 5", "Expect: 100-continue",
                                      version="HTTP/1.0") + body)
    assert status == 200 and text.split(b"\n")[1] == sha256(body)


@pytest.mark.parametrize("target, wanted", [("/refuse", 403), ("/here", 200), ("/nothing", 405), ("/memory", 413)])
@pytest.mark.parametrize("first", [b"", head("GET", "/state")])
def test_an_answer_before_the_body_arrives_without_expect(server, target, wanted, first):
    """32 MiB are sent before the client reads: its connection is not reset, and the answer is there."""
    with server.connect() as sock:
        reader = Reader(sock)
        if first:
            sock.sendall(first)
            assert reader.answer()[0] == 200
        sock.sendall(head("PUT", target, f"Content-Length: {32 * MIB}"))
        for _ in range(32):
            sock.sendall(bytes(MIB))
        status, _, header = reader.answer()
        assert status == wanted and header["connection"] == "close" and reader.file.read(1) == b""


def test_lingering_has_bounds(server):
    """A client that sends on after the answer is cut after 64 MiB or 2 s."""
    started = time.monotonic()
    with server.connect() as sock:
        sock.sendall(head("PUT", "/refuse", f"Content-Length: {1 << 40}"))
        assert Reader(sock).answer()[0] == 403
        with pytest.raises(OSError):
            while True:
                sock.sendall(b"x")
                time.sleep(0.05)
                assert time.monotonic() - started < 20
    assert 1.5 < time.monotonic() - started < 15


@pytest.mark.parametrize("first", [b"", head("GET", "/state")])
@pytest.mark.parametrize("fail_at", [0, 1000, 300_000])
def test_a_sink_that_fails(server, fail_at, first):
    """The rest of the body is dropped, and the connection stays open."""
    with server.connect() as sock:
        reader = Reader(sock)
        if first:
            sock.sendall(first)
            assert reader.answer()[0] == 200
        sock.sendall(put(f"/sink?fail_at={fail_at}", pattern(8 * MIB)))
        status, text, _ = reader.answer()
        assert status == 507 and b"the sink failed" in text
        sock.sendall(put("/sink", b"abc"))
        assert reader.answer()[1].split(b"\n")[1] == sha256(b"abc")
    assert server.wait_released(2)["handled"] == 2
    assert server.metric('tensord_uploads_refused_total{cause="sink"}') == 1


@pytest.mark.parametrize("fields, wanted", [
    (["Content-Length: 5", "Transfer-Encoding: chunked"], 400),
    (["Content-Length: 5", "Content-Length: 5"], 400),
    (["Transfer-Encoding: gzip, chunked"], 400),
    (["Transfer-Encoding: identity"], 400),
    (["Content-Length: 9223372036854775808"], 413),
    (["Content-Length: 18446744073709551615"], 413),
])
def test_bad_framing(server, fields, wanted):
    assert server.ask(head("PUT", "/sink", *fields) + b"hello")[0] == wanted
    assert server.state()["made"] == 0


def test_chunked_elsewhere(server):
    status, text, _ = server.ask(head("POST", "/memory", "Transfer-Encoding: chunked") + chunk(b"abc") + b"0\r\n\r\n")
    assert (status, text) == (200, b"3 bytes in memory\n")
    assert server.ask(head("GET", "/bytes", "Transfer-Encoding: chunked"))[0] == 400
    assert server.ask(head("PUT", "/sink", "Transfer-Encoding: chunked", version="HTTP/1.0"))[0] == 400


@pytest.mark.parametrize("size", [b"-1", b"g", b"", b"ffffffffffffffff", b"10000000000000000", b"0x5", b" 5",
                                  b"5" * 40])
@pytest.mark.parametrize("first", [b"", head("GET", "/state")])
def test_hostile_chunk_sizes(server, size, first):
    """The connection ends without a success, and the sink is released once, unhandled."""
    with server.connect() as sock:
        reader = Reader(sock)
        if first:
            sock.sendall(first)
            assert reader.answer()[0] == 200
        sock.sendall(head("PUT", "/sink", "Transfer-Encoding: chunked") + chunk(b"good") + size + b"\r\nhello\r\n")
        sock.shutdown(socket.SHUT_WR)
        assert reader.answer()[0] in (0, 400, 413)
    assert server.wait_released(1)["handled"] == 0


# ---- ends


@pytest.mark.parametrize("first", [b"", head("GET", "/state")])
@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_a_cut_at_each_stage_releases_the_sink(server, first, how):
    stages = [head("PUT", "/sink", "Content-Length: 1000000"),
              head("PUT", "/sink", "Content-Length: 1000000") + bytes(500_000),
              head("PUT", "/sink?sleep_us=50000", "Content-Length: 1000000") + bytes(900_000),
              head("PUT", "/sink", "Transfer-Encoding: chunked") + chunk(b"abc") + b"10\r\nab",
              head("PUT", "/sink", "Transfer-Encoding: chunked") + chunk(b"abc") + b"1",
              head("PUT", "/sink", "Transfer-Encoding: chunked") + chunk(b"abc") + b"0\r\nX: y"]
    for number, stage in enumerate(stages, start=1):
        sock = server.connect()
        if first:
            sock.sendall(first)
            assert Reader(sock).answer()[0] == 200
        sock.sendall(stage)
        server.wait_made(number)
        time.sleep(0.02)
        if how == "half":
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1)
        if how == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
    assert server.wait_released(len(stages))["handled"] == 0
    assert server.metric("tensord_uploads") == 0


def test_stalls_end_and_slow_bodies_continue(tmp_path):
    """--send-timeout ends an upload that stands still, --body-timeout ends none; neither does a slow sink."""
    server = Server(tmp_path, "--send-timeout", "1s", "--body-timeout", "1s")
    body = pattern(40)
    with server.connect() as stalled, server.connect() as slow, server.connect() as waiting:
        stalled.sendall(head("PUT", "/sink", "Content-Length: 40") + body[:20])
        waiting.sendall(put("/sink?sleep_us=3000000", body))
        slow.sendall(head("PUT", "/sink", "Content-Length: 40"))
        for byte in body:
            slow.sendall(bytes([byte]))
            time.sleep(0.1)
        assert Reader(slow).answer()[1].split(b"\n")[1] == sha256(body)
        assert Reader(waiting).answer()[1].split(b"\n")[1] == sha256(body)
        assert Reader(stalled).ended()
    assert server.wait_released(3)["handled"] == 2
    assert server.metric('tensord_http_cut_transfers_total{reason="stalled"}') == 1
    server.stop()
    line = next(line for line in server.log.read_text().splitlines() if " cut=stalled" in line)
    assert 'method="PUT"' in line and " status=0 " in line and " received=20 " in line and "request_id=" in line


def test_reads_beside_eight_uploads(server):
    """GET and HEAD are answered while 8 sinks are slow."""
    all_have_begun = threading.Event()

    def upload():
        whole = put("/sink?sleep_us=20000", bytes(8 * MIB))
        with server.connect() as sock:
            sock.sendall(whole[:1000])
            all_have_begun.wait()
            sock.sendall(whole[1000:])
            assert Reader(sock).answer()[0] == 200
    threads = [threading.Thread(target=upload) for _ in range(8)]
    for thread in threads:
        thread.start()
    while server.metric("tensord_uploads") < 8:
        time.sleep(0.01)
    all_have_begun.set()
    times = []
    while any(thread.is_alive() for thread in threads):
        began = time.monotonic()
        assert len(server.ask(head("GET", "/bytes"))[1]) == 65536
        times.append(time.monotonic() - began)
    for thread in threads:
        thread.join()
    assert sorted(times)[len(times) // 2] < 0.5
    assert server.wait_released()["handled"] == 8


def test_uploads_of_one_address_are_bounded(tmp_path):
    """Uploads take at most half of --max-connections, and those of one address half of that."""
    server = Server(tmp_path, "--max-connections", "16")
    begun = []
    for _ in range(4):
        sock = server.connect()
        sock.sendall(head("PUT", "/sink", "Content-Length: 5"))
        begun.append(sock)
    while server.metric("tensord_uploads") < 4:
        time.sleep(0.01)
    status, text, header = server.ask(put("/sink", b"hello"))
    assert status == 503 and b"your address" in text and header["retry-after"]
    assert server.metric('tensord_uploads_refused_total{cause="address"}') == 1
    begun.pop().close()
    until = time.monotonic() + 20
    while server.metric("tensord_uploads") > 3:
        assert time.monotonic() < until
    assert server.ask(put("/sink", b"hello"))[0] == 200
    for sock in begun:
        sock.close()
    server.stop()


def test_draining_waits_for_uploads(tmp_path):
    server = Server(tmp_path, "--drain-timeout", "20s")
    body = pattern(100_000)
    with server.connect() as sock:
        sock.sendall(head("PUT", "/sink", f"Content-Length: {len(body)}") + body[:50_000])
        while server.metric("tensord_uploads") < 1:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(1.5)
        sock.sendall(body[50_000:])
        status, text, header = Reader(sock).answer()
        assert status == 200 and text.split(b"\n")[1] == sha256(body) and header["connection"] == "close"
    assert server.stop()[-1] == "1"


def test_draining_ends_at_its_timeout(tmp_path):
    server = Server(tmp_path, "--drain-timeout", "1s")
    with server.connect() as sock, server.connect() as shared:
        shared.sendall(head("GET", "/state"))
        assert Reader(shared).answer()[0] == 200
        for one in (sock, shared):
            one.sendall(head("PUT", "/sink", "Content-Length: 100000") + bytes(50_000))
        while server.metric("tensord_uploads") < 2:
            time.sleep(0.01)
        assert server.stop()[-1] == "0"


def test_the_log_and_the_metrics_count_received_bytes(server):
    assert server.ask(put("/sink", bytes(123_456)))[0] == 200
    assert server.metric("tensord_upload_received_bytes_total") == 123_456
    assert server.ask(put("/refuse", b"x"))[0] == 403
    assert server.metric('tensord_uploads_refused_total{cause="handler"}') == 1
    time.sleep(0.3)
    lines = server.log.read_text().splitlines()
    assert " received=123456 " in next(line for line in lines if '"/sink"' in line)
    assert not any(" received=" in line for line in lines if 'method="GET"' in line)
