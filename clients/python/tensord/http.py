"""One HTTP/1.1 connection to a server: requests, answers, and bodies that are received straight into memory.

http.client copies each body through a buffer of its own; here `recv_into` fills the caller's memory, and a blocking
socket with MSG_WAITALL fills it with few system calls, in which other Python threads run.
"""
from __future__ import annotations

import base64
import json
import socket
import ssl
import struct
import sys
import urllib.request
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import unquote, urlsplit

from . import errors
from ._version import VERSION
from .address import Endpoint
from .options import MIB, Options

MAX_HEAD_BYTES = 64 * 1024
MAX_TEXT_BYTES = 1024 * MIB  # of an answer that is kept whole: a manifest of millions of tensors
ERROR_TEXT_BYTES = 64 * 1024
RECEIVE_BYTES = 4 * MIB  # of one system call, so that a stop is noticed soon
USER_AGENT = f"tensord-python/{VERSION}"


class Dropped(ConnectionError):
    """The connection ended or stalled. `started`: whether bytes of an answer had come."""

    def __init__(self, message: str, started: bool):
        super().__init__(message)
        self.started = started


class Answer:
    """The head of an answer. The body has to be read before the connection can be used again."""

    def __init__(self, connection: "Connection", status: int, fields: Dict[str, str], has_body: bool):
        self.connection = connection
        self.status = status
        self.fields = fields  # names in lower case
        self.length: Optional[int] = None  # bytes of the body; None: chunked
        self.left = 0
        if not has_body:
            self.length = 0
        elif fields.get("transfer-encoding", "").lower() == "chunked":
            self.length = None
        else:
            text = fields.get("content-length", "")
            if not text.isascii() or not text.isdigit() or len(text) > 19:
                raise errors.ProtocolError(f"{connection.endpoint} answered without a length")
            self.length = self.left = int(text)

    def receive_into(self, view: memoryview) -> int:
        """Receives bytes of the body until the view is full, and returns how many came; less than the view's at a stop.

        Raises Dropped when the connection ends or stalls; `received` of the connection says how many had come.
        """
        count = self.connection.receive_into(view[: self.left])
        self.left -= count
        return count

    def read(self, limit: int = MAX_TEXT_BYTES) -> bytes:
        """Reads the whole body. Raises ProtocolError above `limit` bytes, Dropped when it is cut."""
        if self.length is None:
            return self._read_chunks(limit)
        if self.left > limit:
            raise errors.ProtocolError(f"{self.connection.endpoint} sent {self.left} bytes, where {limit} are the most")
        data = bytearray(self.left)
        self.receive_into(memoryview(data))
        return bytes(data)

    def _read_chunks(self, limit: int) -> bytes:
        parts: List[bytes] = []
        total = 0
        while True:
            size = self._chunk_size()
            if size == 0:
                break
            total += size
            if total > limit:
                raise errors.ProtocolError(f"{self.connection.endpoint} sent more than {limit} bytes")
            part = bytearray(size)
            self.connection.receive_into(memoryview(part))
            parts.append(bytes(part))
            if self.connection.read_line() != b"":
                raise errors.ProtocolError(f"{self.connection.endpoint} sent a damaged chunk")
        while self.connection.read_line():
            pass
        self.length = 0
        return b"".join(parts)

    def _chunk_size(self) -> int:
        text = self.connection.read_line().split(b";")[0].strip()
        try:
            if not 0 < len(text) <= 15 or text[:1] in b"+-":
                raise ValueError
            return int(text, 16)
        except ValueError:
            raise errors.ProtocolError(f"{self.connection.endpoint} sent a damaged chunk") from None

    @property
    def finished(self) -> bool:
        """Whether the body has been read and the connection may be used again."""
        return self.left == 0 and self.length is not None and self.fields.get("connection", "").lower() != "close"


class Connection:
    """A connection to one server, used by one thread at a time. `stop` may be called by any thread."""

    def __init__(self, endpoint: Endpoint, options: Options):
        self.endpoint = endpoint
        self.options = options
        self.used = False
        self.received = 0  # bytes of the last receive_into
        self._buffer = b""  # received after the head, not taken yet
        self._via_proxy = False
        self._proxy_login = ""
        self._socket = self._open()

    # ---- opening

    def _open(self) -> Any:
        proxy = _proxy_for(self.endpoint)
        host, port = (proxy[0], proxy[1]) if proxy else (self.endpoint.host, self.endpoint.port)
        try:
            raw = socket.create_connection((host, port), timeout=self.options.connect_timeout)
        except OSError as error:
            what = f"the proxy {host}:{port}" if proxy else str(self.endpoint)
            raise errors.ConnectError(f"{what} cannot be reached: {error}") from error
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if proxy:
                self._proxy_login = proxy[2]
                if self.endpoint.scheme == "https":
                    self._tunnel(raw)
                else:
                    self._via_proxy = True
            if self.endpoint.scheme == "https":
                raw = _tls_context(self.options).wrap_socket(raw, server_hostname=self.endpoint.host)
                self._waitall = 0
                raw.settimeout(self.options.stall_timeout)
            else:
                self._waitall = _set_stall_timeout(raw, self.options.stall_timeout)
        except OSError as error:
            raw.close()
            raise errors.ConnectError(f"{self.endpoint} cannot be reached: {error}") from error
        except BaseException:
            raw.close()
            raise
        return raw

    def _tunnel(self, raw: socket.socket) -> None:
        target = f"{self.endpoint.host_header.rpartition(':')[0] or self.endpoint.host_header}:{self.endpoint.port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if self._proxy_login:
            lines.append(f"Proxy-Authorization: {self._proxy_login}")
        raw.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        head = b""
        while not head.endswith(b"\r\n\r\n") and len(head) < MAX_HEAD_BYTES:
            byte = raw.recv(1)
            if not byte:
                break
            head += byte
        if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")):
            line = head.split(b"\r\n")[0].decode("latin-1")
            raise errors.ConnectError(f"the proxy does not connect to {target}: {line or 'it closed the connection'}")

    # ---- requests

    def request(self, method: str, path: str, fields: Optional[Dict[str, str]] = None, body: bytes = b"") -> Answer:
        """Sends a request and receives the head of the answer. `path` is the server's own, encoded, with its query.

        Raises Dropped, ProtocolError.
        """
        target = self.endpoint.prefix + path
        if self._via_proxy:
            target = f"{self.endpoint.scheme}://{self.endpoint.host_header}{target}"
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.endpoint.host_header}", f"User-Agent: {USER_AGENT}"]
        token = self.options.find_token()
        if token:
            lines.append(f"Authorization: Bearer {token}")
        if self._via_proxy and self._proxy_login:
            lines.append(f"Proxy-Authorization: {self._proxy_login}")
        if body or method == "POST":
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        for name, value in (fields or {}).items():
            lines.append(f"{name}: {value}")
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        self.used = True
        try:
            self._socket.sendall(head + body if len(body) < MIB else head)
            if len(body) >= MIB:
                self._socket.sendall(body)
        except OSError as error:
            raise Dropped(f"{self.endpoint} closed the connection: {error}", started=False) from error
        while True:
            answer = self._read_head(method)
            if answer.status >= 200:
                return answer

    def _read_head(self, method: str) -> Answer:
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise errors.ProtocolError(f"{self.endpoint} sent a header of more than {MAX_HEAD_BYTES} bytes")
            self._receive_more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        parts = lines[0].split(" ", 2)
        if len(parts) < 2 or parts[0] not in ("HTTP/1.1", "HTTP/1.0") or not parts[1].isdigit() or len(parts[1]) != 3:
            raise errors.ProtocolError(f"{self.endpoint} does not answer in HTTP/1.1")
        fields: Dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            name, value = name.lower(), value.strip()
            if not colon or not name or name != name.strip():
                raise errors.ProtocolError(f"{self.endpoint} sent a damaged header")
            if name in ("content-length", "content-range", "etag") and fields.get(name, value) != value:
                raise errors.ProtocolError(f"{self.endpoint} sent {name} twice")
            fields[name] = value
        if parts[0] == "HTTP/1.0":
            fields.setdefault("connection", "close")
        status = int(parts[1])
        return Answer(self, status, fields, method != "HEAD" and status >= 200 and status not in (204, 304))

    # ---- bytes

    def _receive_more(self) -> None:
        try:
            data = self._socket.recv(4096)
        except OSError as error:
            raise Dropped(self._why(error), started=bool(self._buffer)) from error
        if not data:
            raise Dropped(f"{self.endpoint} closed the connection", started=bool(self._buffer))
        self._buffer += data

    def _why(self, error: OSError) -> str:
        if isinstance(error, (BlockingIOError, socket.timeout)):
            return f"{self.endpoint} sent nothing for {self.options.stall_timeout:g} s"
        return f"the connection to {self.endpoint} broke: {error}"

    def read_line(self) -> bytes:
        """Reads a line of the framing of chunks, without its end."""
        while b"\n" not in self._buffer:
            if len(self._buffer) > 4096:
                raise errors.ProtocolError(f"{self.endpoint} sent a damaged chunk")
            self._receive_more()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.rstrip(b"\r")

    def receive_into(self, view: memoryview) -> int:
        """Fills the view, and returns its length. Raises Dropped; `received` counts the bytes that came before."""
        self.received = min(len(self._buffer), len(view))
        if self.received:
            view[: self.received] = self._buffer[: self.received]
            self._buffer = self._buffer[self.received :]
        while self.received < len(view):
            want = min(len(view) - self.received, RECEIVE_BYTES)
            try:
                if self._waitall:
                    count = self._socket.recv_into(view[self.received :], want, self._waitall)
                else:
                    count = self._socket.recv_into(view[self.received :], want)
            except OSError as error:
                raise Dropped(self._why(error), started=True) from error
            if count == 0:
                raise Dropped(f"{self.endpoint} closed the connection within an answer", started=True)
            self.received += count
        return len(view)

    @property
    def stale(self) -> bool:
        """Whether an idle connection cannot be used again: the server closed it, or sent what nobody asked for."""
        import select

        if self._buffer:
            return True
        try:
            if hasattr(select, "poll"):
                poll = select.poll()
                poll.register(self._socket.fileno(), select.POLLIN)
                return bool(poll.poll(0))
            return bool(select.select([self._socket], [], [], 0)[0])
        except (OSError, ValueError):
            return True

    def stop(self) -> None:
        """Ends the connection under whoever waits for it."""
        try:
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        """Closes the connection."""
        try:
            self._socket.close()
        except OSError:
            pass

    def abandon(self) -> None:
        """Closes this process's copy of a connection that another process owns, without a word to the server."""
        try:
            fd = self._socket.detach()
            if fd >= 0:
                socket.close(fd)
        except OSError:
            pass


def _set_stall_timeout(raw: socket.socket, seconds: float) -> int:
    """Limits the time without a byte, and returns the flag by which a receive waits for all that it asks for.

    Python's own timeout makes the socket non-blocking, which costs a poll for each receive and defeats MSG_WAITALL;
    the kernel's does not.
    """
    if sys.platform == "win32":
        raw.settimeout(seconds)
        return 0
    raw.settimeout(None)
    limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    return socket.MSG_WAITALL


_contexts: Dict[Tuple[Optional[str], bool], ssl.SSLContext] = {}


def _tls_context(options: Options) -> ssl.SSLContext:
    key = (options.ca_file, options.verify)
    if key not in _contexts:
        context = ssl.create_default_context(cafile=options.ca_file)
        if not options.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        _contexts[key] = context
    return _contexts[key]


def _proxy_for(endpoint: Endpoint) -> Optional[Tuple[str, int, str]]:
    """Returns host, port and Proxy-Authorization of the environment's proxy (http_proxy, https_proxy, no_proxy)."""
    if urllib.request.proxy_bypass(endpoint.host_header):
        return None
    proxies = urllib.request.getproxies()
    url = proxies.get(endpoint.scheme) or proxies.get("all")
    if not url:
        return None
    parts = urlsplit(url if "://" in url else "http://" + url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "http" or not parts.hostname:
        raise errors.ConnectError(f"the proxy {url!r} of the environment is not one of http://: "
                                  f"add {endpoint.host} to no_proxy, or change {endpoint.scheme}_proxy")
    login = ""
    if parts.username:
        text = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        login = "Basic " + base64.b64encode(text.encode()).decode()
    return parts.hostname, port or 80, login


def error_of(answer: Answer, path: str) -> errors.AnswerError:
    """Reads the body of an answer that refuses, and returns its error."""
    url = f"{answer.connection.endpoint}{path}"
    message, code = "", ""
    try:
        error = json.loads(answer.read(ERROR_TEXT_BYTES))["error"]
        message, code = str(error["message"]), str(error.get("status", ""))
    except (Dropped, errors.ProtocolError, ValueError, KeyError, TypeError):
        pass
    kind = {404: errors.NotFoundError, 412: errors.ChangedError}.get(answer.status, errors.AnswerError)
    hint = {401: "; give a token by token= or TENSORD_TOKEN", 403: "; the token does not allow this"}
    text = message or "the answer has no message of tensord's; is this a tensord server?"
    return kind(f"{url}: {answer.status}: {text}{hint.get(answer.status, '')}", answer.status, code, url)
