"""An HTTP proxy in front of a server under test, which changes, cuts or holds back the answers that a test chooses."""
import http.client
import http.server
import re
import socket
import threading
from dataclasses import dataclass, field


@dataclass
class Exchange:
    """One request and its answer. A fault changes the answer's members before it is sent."""

    number: int  # of this request among those that `of` counts, from 0
    method: str
    path: str
    begin: int  # of the range that was asked for; 0 without one
    status: int
    fields: dict
    body: bytes
    cut: int = -1  # the connection ends after so many bytes of the body; -1: it does not
    stall: bool = False  # nothing follows the cut, and the connection stays
    sent: int = 0
    framing: list = field(default_factory=list)  # further lines of the header

    def set(self, name, value):
        """Set a field of the answer; None removes it."""
        for known in [one for one in self.fields if one.lower() == name.lower()]:
            del self.fields[known]
        if value is not None:
            self.fields[name] = value


class FaultProxy:
    """Passes requests to `port`. `fault(exchange)` is called for answers whose path contains `of`."""

    def __init__(self, port, fault=None, of="boxes.bin"):
        self.upstream, self.fault, self.of = port, fault, of
        self.seen = []  # an Exchange for each answer whose path contains `of`, without its body
        self._lock = threading.Lock()
        self._held = threading.Event()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self):
                proxy._pass_on(self)

            do_GET = do_POST = do_HEAD = pass_on

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 128

            def handle_error(self, *_):
                pass  # a client may leave at any time

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def ranges(self):
        """Return [begin, end) of the bytes that were sent, in order of begin, of answers with 206 or 200."""
        with self._lock:
            return sorted((one.begin, one.begin + one.sent) for one in self.seen if one.status in (200, 206))

    def stop(self):
        """Stop the proxy, and drop what stalls."""
        self._held.set()
        self._server.shutdown()
        self._server.server_close()

    def _pass_on(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in handler.headers.items() if name.lower() != "connection"}
        upstream = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=30)
        try:
            upstream.request(handler.command, handler.path, body, headers)
            answer = upstream.getresponse()
            data = answer.read()
        except OSError:
            handler.close_connection = True
            return
        finally:
            upstream.close()
        wanted = re.search(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        fields = {name: value for name, value in answer.getheaders() if name.lower() not in ("connection", "date")}
        exchange = Exchange(0, handler.command, handler.path, int(wanted[1]) if wanted else 0, answer.status, fields,
                            data)
        if self.of in handler.path:
            with self._lock:
                exchange.number = len(self.seen)
                self.seen.append(exchange)
            if self.fault:
                self.fault(exchange)
        self._send(handler, exchange)

    def _send(self, handler, exchange):
        lines = [f"HTTP/1.1 {exchange.status} X", *(f"{name}: {value}" for name, value in exchange.fields.items())]
        head = "\r\n".join([*lines, *exchange.framing]).encode("latin-1") + b"\r\n\r\n"
        body = exchange.body if handler.command != "HEAD" else b""
        part = body if exchange.cut < 0 else body[: exchange.cut]
        exchange.sent = len(part)
        exchange.body = b""
        handler.wfile.write(head + part)
        if exchange.stall:
            self._held.wait(60)
        if exchange.cut >= 0 or exchange.stall:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_WR)
