"""Complete answers that their clients have not read when somebody writes to the file in place: no sign but an empty
queue counts as proof that they were read. Clients that shut down their sending side, clients whose sockets the server
does not find, relays that pass on references to pages, files that lose the immutable attribute."""
import concurrent.futures
import contextlib
import fcntl
import os
import socket
import ssl
import struct
import subprocess
import termios
import threading
import time

import history
import pki
import pytest
from fixtures import write_zeros_npz
from harness import Conn, Incomplete, Server, SplicingRelay, age, request_bytes, tensor, write_by_hand
from upstream_kit import MIB, cache, hubs, model    # noqa: F401

URL = "/models/m/tensors/w"
NBYTES = 300 << 10
LONG = 1_500_000    # more than a receive queue of 64 KiB has, and no more than a send queue takes at once


class File:
    """A model with one tensor, and a program that writes zeros over it in place."""

    def __init__(self, root, nbytes):
        self.path = root / "m" / "model.safetensors"
        write_by_hand(self.path, [tensor("w", "U8", [nbytes])])
        age(root)
        self.data = self.path.read_bytes()[-nbytes:]
        self.waited = None

    def overwrite(self):
        """Write in place, and put the mtime back."""
        before, begun = self.path.stat(), time.monotonic()
        with open(self.path, "r+b", buffering=0) as f:
            self.waited = time.monotonic() - begun
            f.seek(-len(self.data), os.SEEK_END)
            f.write(bytes(len(self.data)))
        os.utime(self.path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def overwrite_soon(self):
        """Begin to write, and give a writer that need not wait the time to be done."""
        thread = threading.Thread(target=self.overwrite, daemon=True)
        thread.start()
        time.sleep(1)
        return thread


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


def by_reference(s):
    """Return how many answers were sent by reference."""
    return next(n for name, labels, n in s.metrics()[2] if (name, labels) == ("tensord_http_answers_total",
                                                                              {"way": "file"}))


def begins(c):
    """Return whether some of an answer is unread at the client."""
    return struct.unpack("i", fcntl.ioctl(c.sock, termios.FIONREAD, bytes(4)))[0] > 0


def ask(s, c, way):
    """Request the tensor and read nothing, until all of the answer is in the kernel's hands. way: "file", by
    reference, or "copy", by a copy of whatever kind."""
    before = by_reference(s)
    c.send(request_bytes(URL))
    s.wait_for(lambda: begins(c) and s.gauge("tensord_http_requests_in_flight") == 1, "the answer is complete")
    assert by_reference(s) == before + (way == "file")


@contextlib.contextmanager
def connected(s, rcvbuf=1 << 20):
    with contextlib.closing(Conn(s.port, timeout=60, rcvbuf=rcvbuf)) as c:
        yield c


@pytest.mark.parametrize("first", ["", "bytes=0-0"], ids=["own", "shared"])
@pytest.mark.parametrize("nbytes, rcvbuf", [(NBYTES, 1 << 20), (LONG, 1 << 15)], ids=["arrived", "on-its-way"])
# shows: security.md file-odd-clients
def test_the_end_of_a_client_proves_nothing(root, start, nbytes, rcvbuf, first):
    """The client shuts down its sending side (nc -N, socat, Go's CloseWrite) and still reads."""
    f = File(root, nbytes)
    s = start(root)
    with connected(s, rcvbuf) as c:
        if first:
            assert c.request(URL, [("Range", first)]).status == 206
        ask(s, c, "file")
        c.sock.shutdown(socket.SHUT_WR)
        s.wait_for(lambda: s.gauge("tensord_http_connections") == 1, "the server has closed the connection")
        writer = f.overwrite_soon()
        assert f.waited is None, "the writer did not wait for the reader"
        assert c.read_response().body == f.data
        writer.join(5)
        assert not writer.is_alive(), "the writer waits for what is read"
        assert c.ended()


def test_a_client_that_has_ended_its_side_gets_a_copy(root, start):
    f = File(root, NBYTES)
    s = start(root)
    with connected(s) as c:
        assert c.request(URL, [("Range", "bytes=0-0")]).status == 206
        c.sock.send(request_bytes(URL), socket.MSG_MORE)         # in one segment with the end
        c.sock.shutdown(socket.SHUT_WR)
        s.wait_for(lambda: s.gauge("tensord_http_connections") == 1, "the server has closed the connection")
        assert by_reference(s) == 0
        f.overwrite_soon()
        assert f.waited is not None and f.waited < 0.5
        assert c.read_response().body == f.data


def test_a_client_that_closes_after_reading_holds_nobody_up(root, start):
    """Neither one that closes at once, nor one that has shut down its side before and has read all."""
    f = File(root, NBYTES)
    s = start(root)
    for shut_down in (False, True):
        with connected(s) as c:
            ask(s, c, "file")
            assert c.read_response().body == f.data
            if shut_down:
                c.sock.shutdown(socket.SHUT_WR)
                s.wait_for(lambda: s.gauge("tensord_http_connections") == 1, "the server has closed the connection")
        s.wait_for(lambda: s.gauge("tensord_http_connections") == 1, "the server has closed the connection")
    f.overwrite_soon()
    assert f.waited is not None and f.waited < 0.5


# shows: security.md file-odd-clients
def test_the_end_of_the_server_waits_for_readers(root, start):
    """A server that drains keeps the lease until the last answer is read."""
    f = File(root, NBYTES)
    s = start(root)
    with connected(s) as c:
        ask(s, c, "file")
        s.proc.terminate()
        writer = f.overwrite_soon()
        assert f.waited is None and s.proc.poll() is None, "the server did not wait for the reader"
        assert c.read_response().body == f.data
        writer.join(10)
        assert not writer.is_alive()
    s.wait_exit()


# shows: security.md file-odd-clients
def test_a_client_bound_to_an_interface_gets_copies(root, start):
    """sock_diag does not find it: `curl --interface lo`, a VRF."""
    f = File(root, NBYTES)
    s = start(root)
    with contextlib.closing(Conn(s.port, timeout=60, rcvbuf=1 << 20, **history.BOUND_TO_LO)) as c:
        ask(s, c, "copy")
        f.overwrite_soon()
        assert f.waited is not None and f.waited < 0.5
        assert c.read_response().body == f.data


RULES = {"redirect": ("127.0.0.1", "-p tcp --dport 9000 -j REDIRECT --to-ports {port}"),
         "dnat": ("127.0.0.9", "-p tcp --dport 9000 -j DNAT --to-destination 127.0.0.1:{port}")}


def in_a_namespace(body):
    """Run body() in a thread with a network namespace of its own, in which the loopback interface is up."""
    def run():
        os.close(history.Namespace.make())
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return body()

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


@pytest.mark.parametrize("rule", RULES)
# shows: security.md file-odd-clients
def test_a_client_behind_a_rule_of_this_host_gets_copies(root, rule):
    """Its socket is connected to another address than the server's is. Needs root, for the network namespace."""
    f = File(root, NBYTES)
    host, text = RULES[rule]

    def body():
        with Server(root, hash_threads=0) as s:
            subprocess.run(["iptables", "-t", "nat", "-A", "OUTPUT", *text.format(port=s.port).split()], check=True)
            with contextlib.closing(Conn(9000, host=host, timeout=60, rcvbuf=1 << 20)) as c:
                ask(s, c, "copy")
                f.overwrite_soon()
                assert f.waited is not None and f.waited < 0.5
                assert c.read_response().body == f.data

    in_a_namespace(body)


@pytest.mark.parametrize("option", ["remote", "off"])
# shows: security.md file-odd-clients
def test_no_references_for_relays(root, start, option):
    f = File(root, LONG)
    s = start(root, "--sendfile", option)
    with SplicingRelay(s.port) as relay, contextlib.closing(Conn(relay.port, timeout=60, rcvbuf=1 << 15)) as c:
        ask(s, c, "copy")
        time.sleep(0.5)                        # all of it is in the relay's queues
        f.overwrite_soon()
        assert f.waited is not None and f.waited < 0.5
        assert c.read_response().body == f.data


def test_references_for_files_that_can_never_change(root, start):
    """--sendfile remote spares copies where there is nothing to fear; off is for everything."""
    f = File(root, NBYTES)
    for option, way in (("on", "file"), ("remote", "file"), ("off", "copy")):
        s = start(root, "--sendfile", option, "--files", "immutable")
        with connected(s) as c:
            ask(s, c, way)
            assert c.read_response().body == f.data


@contextlib.contextmanager
def immutable_attribute(path):
    """Set it (chattr +i), and yield a function that takes it off."""
    get_flags, set_flags, flag = 0x80086601, 0x40086602, 0x10
    with open(path, "rb") as f:
        before = struct.unpack("l", fcntl.ioctl(f, get_flags, bytes(8)))[0]
        try:
            fcntl.ioctl(f, set_flags, struct.pack("l", before | flag))
        except OSError as e:
            pytest.fail(f"no immutable attribute (root with CAP_LINUX_IMMUTABLE is needed, and a file system like ext4 "
                        f"below --basetemp): {e}")
        try:
            yield lambda: fcntl.ioctl(f, set_flags, struct.pack("l", before))
        finally:
            fcntl.ioctl(f, set_flags, struct.pack("l", before))


# shows: security.md file-immutable-attribute
def test_the_immutable_attribute_may_go_while_an_answer_is_unread(root, start):
    f = File(root, NBYTES)
    with immutable_attribute(f.path) as take_off:
        s = start(root)
        with connected(s) as c:
            ask(s, c, "file")
            take_off()
            f.overwrite_soon()
            assert f.waited is None, "the writer did not wait for the reader"
            assert c.read_response().body == f.data
    s.wait_for(lambda: f.waited is not None, "the writer continues")


@pytest.mark.parametrize("leases", ["on", "off"])
# shows: security.md file-immutable-attribute
def test_the_immutable_attribute_may_go_while_an_answer_is_sent(root, start, leases):
    """Hours after the file was mapped: what is sent after the write shows, so the answer breaks off."""
    f = File(root, 16 << 20)
    with immutable_attribute(f.path) as take_off:
        s = start(root, "--leases", leases)
        assert s.get(URL, {"Range": "bytes=0-3"}).status == 206
        with connected(s, 1 << 16) as c:
            c.send(request_bytes(URL))
            s.wait_for(lambda: begins(c), "the answer begins")
            take_off()
            f.overwrite_soon().join(10)
            with pytest.raises((Incomplete, ConnectionError)):
                c.read_response()


def ask_and_shut_down(c, target):
    """Send a request with the end of the client's side in one segment, and return the answer."""
    c.sock.send(request_bytes(target), socket.MSG_MORE)
    c.sock.shutdown(socket.SHUT_WR)
    return c.read_response()


UNPACKED_BYTES = 64 << 20
ROWS = b'{"a": 1}\n' * 1000
WORKED = {   # what takes work or waits
    "unpacked": "/models/z.npz/tensors/a",
    "unpacked-part": "/models/z.npz/tensors/a?slice=0:4",
    "row": "/datasets/d/rows/999",
    "rows": "/datasets/d/rows",
}


@pytest.mark.parametrize("workers", ["2", "0"])
@pytest.mark.parametrize("what", WORKED)
def test_work_is_done_for_a_client_that_has_ended_its_side(root, start, what, workers):
    """nc -N, and some proxies, shut down their sending side behind the request."""
    write_zeros_npz(root / "z.npz", UNPACKED_BYTES)
    (root / "datasets/d").mkdir(parents=True)
    (root / "datasets/d/a.jsonl").write_bytes(ROWS)
    age(root)
    s = start(root, "--workers", workers)
    s.wait_for(lambda: s.json("/datasets/d")["splits"][0]["index"]["state"] == "ready", "the rows are found")
    with connected(s) as c:
        answer = ask_and_shut_down(c, WORKED[what])
    whole = s.get(WORKED[what])
    assert (answer.status, answer.body) == (200, whole.body) and whole.status == 200, answer


def test_a_client_that_has_ended_its_side_gets_a_file_as_it_arrives(hubs, cache):
    files = model()
    hub = hubs({"org/m": files})
    hub.open_gate(2 * MIB)
    s = cache(hub.url)
    content = files["model.safetensors"]
    with connected(s) as c:
        c.sock.send(request_bytes("/org/m/resolve/main/model.safetensors"), socket.MSG_MORE)
        c.sock.shutdown(socket.SHUT_WR)
        head = c.read_head()
        assert head.status == 200
        assert c.read_exact(MIB, head) == content[:MIB]
        time.sleep(1)                                    # the server checks the client once in this time
        hub.open_gate(None)
        assert c.read_exact(len(content) - MIB, head) == content[MIB:]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return pki.Authority(tmp_path_factory.mktemp("pki"))


class HalfClosed:
    """A TLS client that sends one request and ends its sending side behind it, in one write: by the alert close_notify
    (says_so), by a FIN, or by both. Then it reads the answer."""

    def __init__(self, port, context, request, says_so, fin):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.received, self.sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.received, self.sent, server_hostname="127.0.0.1")
        self.until_done(self.tls.do_handshake)
        self.tls.write(request)
        if says_so:
            with contextlib.suppress(ssl.SSLWantReadError):     # it would wait for the server's own alert
                self.tls.unwrap()
        self.socket.sendall(self.sent.read())
        if fin:
            self.socket.shutdown(socket.SHUT_WR)

    def until_done(self, step):
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                if data := self.sent.read():
                    self.socket.sendall(data)
                data = self.socket.recv(1 << 16)
                self.received.write(data) if data else self.received.write_eof()

    def answer(self):
        """Return status and body; the server ends the connection behind them."""
        data = b""
        with contextlib.closing(self.socket), contextlib.suppress(ssl.SSLZeroReturnError, ssl.SSLEOFError):
            while part := self.until_done(lambda: self.tls.read(1 << 16)):
                data += part
        head, _, body = data.partition(b"\r\n\r\n")
        return int(head.split()[1]), body


@pytest.mark.parametrize("says_so, fin", [(True, False), (False, True), (True, True)], ids=["alert", "fin", "both"])
def test_a_tls_client_that_has_ended_its_side_gets_its_answer(root, start, authority, says_so, fin):
    """TLS 1.3 ends each direction by itself (RFC 8446 section 6.1)."""
    write_zeros_npz(root / "z.npz", 16 << 20)
    f = File(root, LONG)
    s = start(root, *pki.options_of(authority.sign("server")), tls=authority.context())
    for target, body in ((URL, f.data), ("/models/z.npz/tensors/a", bytes(16 << 20))):
        client = HalfClosed(s.port, authority.context(), request_bytes(target), says_so, fin)
        assert client.answer() == (200, body)
