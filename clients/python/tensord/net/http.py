"""One HTTP/1.1 connection to a server: requests, answers, and bodies that are received straight into memory.

The reader of http.client takes 1.2 to 2.2 times as much processor time (docs/client-performance.md): it parses each
header by the package email, and `HTTPResponse.readinto` makes a system call for each part of a body that has arrived.
Here a blocking socket receives with MSG_WAITALL and without a poll: one system call, in which other Python threads run,
fills up to 4 MiB. This module also bounds headers, lines and chunks of hostile servers.
"""
from __future__ import annotations

import base64
import contextlib
import errno
import functools
import json
import os
import re
import socket
import ssl
import struct
import sys
import time
import urllib.request
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, Type, Union
from urllib.parse import unquote, urlsplit

from .. import errors
from .._version import VERSION
from ..address import Endpoint
from ..options import MIB, TLS_NAMES, Options
from .bodies import Body
from .buffer import empty_bytes

MAX_HEAD_BYTES = 64 * 1024
MAX_TEXT_BYTES = 64 * MIB  # of a small answer
MAX_MANIFEST_BYTES = 1024 * MIB  # of millions of tensors
MAX_INTERIM = 16  # answers (100 Continue) before the one that counts
MAX_TRAILERS = 100  # lines after the last chunk
ERROR_TEXT_BYTES = 64 * 1024
RECEIVE_BYTES = 4 * MIB  # of one system call, so that a stop is noticed soon
EXPECT_BYTES = MIB  # of a body; before larger ones, and those in chunks, the server may refuse
EXPECT_SECONDS = 1.0  # to wait for 100 Continue; servers may leave it out (RFC 9110, 10.1.1)
REFUSAL_SECONDS = 2.0  # to wait for an answer after the server has ended its side of the connection
MIN_SEND_RATE = 1024  # bytes per second, over stall_timeout
USER_AGENT = f"tensord-python/{VERSION}"


class Dropped(ConnectionError):
    """The connection ended or stalled. `started`: whether bytes of an answer had arrived."""

    def __init__(self, message: str, started: bool):
        super().__init__(message)
        self.started = started


class Answer:
    """The head of an answer. Its body must be read before the connection can be used again."""

    def __init__(self, connection: "Connection", status: int, fields: Dict[str, str], has_body: bool):
        self.connection = connection
        self.status = status
        self.fields = fields  # names in lower case
        self.length: Optional[int] = None  # bytes of the body; None: chunked
        self.left = 0
        coding = fields.get("transfer-encoding", "chunked").lower()
        if has_body and (coding != "chunked" or fields.get("content-encoding", "identity").lower() != "identity"):
            raise errors.ProtocolError(f"{connection.endpoint} answered in a coding that was not requested "
                                       f"({fields.get('content-encoding', coding)!r}): does a proxy or a cache change "
                                       "what the server sends?")
        if not has_body:
            self.length = 0
        elif "transfer-encoding" in fields:
            self.length = None
        else:
            text = fields.get("content-length", "")
            if not text.isascii() or not text.isdigit() or len(text) > 19:
                raise errors.ProtocolError(f"{connection.endpoint} answered without a length")
            self.length = self.left = int(text)

    def receive_into(self, view: memoryview) -> int:
        """Receives bytes of the body until the view is full or the body ends, and returns their number.

        Raises Dropped when the connection ends or stalls; then `received` of the connection is their number.
        """
        count = self.connection.receive_into(view[: self.left])
        self.left -= count
        return count

    def read(self, limit: int = MAX_TEXT_BYTES) -> bytearray:
        """Reads the whole body. Raises ProtocolError above `limit` bytes, Dropped when it is cut."""
        if self.length is None:
            return self._read_chunks(limit)
        if self.left > limit:
            raise errors.ProtocolError(f"{self.connection.endpoint} sent {self.left} bytes; the limit is {limit}")
        data = empty_bytes(self.left)
        self.receive_into(memoryview(data))
        return data

    def _read_chunks(self, limit: int) -> bytearray:
        data = bytearray()
        while True:
            size = self._chunk_size()
            if size == 0:
                break
            if len(data) + size > limit:
                raise errors.ProtocolError(f"{self.connection.endpoint} sent more than {limit} bytes")
            while size:
                part = bytearray(min(size, MIB))
                self.connection.receive_into(memoryview(part))
                data += part
                size -= len(part)
            if self.connection.read_line() != b"":
                raise errors.ProtocolError(f"{self.connection.endpoint} sent a damaged chunk")
        for _ in range(MAX_TRAILERS):
            if not self.connection.read_line():
                self.length = 0
                return data
        raise errors.ProtocolError(f"{self.connection.endpoint} sent more than {MAX_TRAILERS} lines after a body")

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
        return (self.left == 0 and self.length is not None and self.connection.sent_whole and
                self.fields.get("connection", "").lower() != "close")


class Connection:
    """A connection to one server, used by one thread at a time. `stop` may be called by any thread."""

    def __init__(self, endpoint: Endpoint, options: Options):
        self.endpoint = endpoint
        self.options = options
        self.used = False
        self.received = 0  # bytes of the last receive_into
        self._buffer = b""  # received after the head, not taken yet
        self.sent_whole = True  # the last request was sent to its end
        self._early: Optional[Answer] = None  # the answer to a request that is not sent whole
        self._interim = 0  # answers of 1xx to this request
        self._send_seconds, self._send_bytes = 0.0, 0  # of its body, since the rate was checked
        self._chunked = False
        self.proxy: Optional[Proxy] = None
        self._receive_limit = options.stall_timeout  # seconds until the next byte
        self._socket = self._open()

    # ---- opening

    def _open(self) -> Any:
        deadline = time.monotonic() + self.options.connect_timeout
        proxy = _proxy_for(self.endpoint)
        host, port = (proxy.host, proxy.port) if proxy else (self.endpoint.host, self.endpoint.port)
        try:
            raw = socket.create_connection((host, port), timeout=self.options.connect_timeout)
        except OSError as error:
            raise errors.ConnectError(f"{proxy or self.endpoint} cannot be reached: {error}") from error
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.endpoint.scheme == "https":
                if proxy:
                    self._tunnel(raw, proxy, deadline)
                raw = self._start_tls(raw, deadline)
                self._waitall = 0
                raw.settimeout(self.options.stall_timeout)
            else:
                self.proxy = proxy
                self._waitall = _set_stall_timeout(raw, self.options.stall_timeout)
        except errors.TensordError:
            raw.close()
            raise
        except OSError as error:
            raw.close()
            raise errors.ConnectError(f"{self.endpoint} cannot be reached: {error}") from error
        except BaseException:
            raw.close()
            raise
        return raw

    def _start_tls(self, raw: socket.socket, deadline: float) -> ssl.SSLSocket:
        """Raises SetupError for a certificate that is not trusted, and for a server without TLS."""
        context = _tls_context(self.options)
        raw.settimeout(_left(deadline))
        try:
            return context.wrap_socket(raw, server_hostname=self.endpoint.host)  # its timeout is for the whole of it
        except ssl.SSLCertVerificationError as error:
            hint = ""
            if error.verify_code in _UNKNOWN_ISSUER:
                hint = (f"; {self.options.named('ca_file')} or the environment's SSL_CERT_FILE names a file with the "
                        "certificates to trust")
            raise errors.SetupError(f"the certificate of {self.endpoint} is not trusted: {error.verify_message}"
                                    f"{hint}") from error
        except ssl.SSLError as error:
            if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
                raise errors.SetupError(f"{self.endpoint} does not answer in TLS ({error.reason}): is it a server of "
                                        "http://?") from error
            self._raise_refusal(error)
            raise

    def _raise_refusal(self, error: OSError) -> None:
        """Raises SetupError if an error is an alert by which the server refuses the handshake, such as for the client's
        certificate. With TLS 1.3 it comes after the handshake, in place of the first answer."""
        reason = getattr(error, "reason", None) or ""
        alert = reason.partition("_ALERT_")[2]
        if alert not in _REFUSALS:
            return
        name = self.options.named("cert_file")
        hint = ""
        if self.options.cert_file is not None:
            hint = f"; does it trust who signed the certificate of {name}, and is that one for clients and still valid?"
        elif alert in _WANTS_CERTIFICATE:
            hint = f"; does it want a certificate of clients, which is {name}?"
        raise errors.SetupError(f"{self.endpoint} refused the TLS handshake: {alert.lower().replace('_', ' ')}"
                                f"{hint}") from error

    def _tunnel(self, raw: socket.socket, proxy: "Proxy", deadline: float) -> None:
        """Lets a proxy connect to the server. Raises ConnectError, SetupError if it refuses, ProtocolError."""
        target = self.endpoint.authority
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", *proxy.fields]
        head = bytearray()
        try:
            raw.settimeout(_left(deadline))
            raw.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
            while not head.endswith(b"\r\n\r\n"):
                if len(head) > MAX_HEAD_BYTES:
                    raise errors.ProtocolError(f"{proxy} sent a header of more than {MAX_HEAD_BYTES} bytes")
                raw.settimeout(_left(deadline))
                byte = raw.recv(1)  # no more: the bytes after the head are the server's
                if not byte:
                    raise errors.ConnectError(f"{proxy} closed the connection, instead of connecting to {target}")
                head += byte
        except socket.timeout as error:
            raise errors.ConnectError(f"{proxy} did not connect to {target} within {self.options.connect_timeout:g} s "
                                      "(connect_timeout)") from error
        found = re.match(rb"HTTP/1\.[01] (\d{3})[ \r]", head)
        if not found:
            raise errors.ProtocolError(f"{proxy} does not answer in HTTP/1.1")
        status = int(found[1])
        if not 200 <= status < 300:
            kind = errors.SetupError if 400 <= status < 500 and status not in (408, 429) else errors.ConnectError
            raise kind(f"{proxy} answered {status} instead of connecting to {target}"
                       f"{proxy.login_hint if status == 407 else ''}")

    # ---- requests

    def request(self, method: str, path: str, fields: Optional[Dict[str, str]] = None,
                body: Union[bytes, Body] = b"", wait: Optional[float] = None) -> Answer:
        """Sends a request and receives the head of the answer. Parameters as of `send` and `read_head`. Raises Dropped,
        ProtocolError.
        """
        self.send(method, path, fields, body)
        return self.read_head(method, wait)

    def send(self, method: str, path: str, fields: Optional[Dict[str, str]] = None,
             body: Union[bytes, Body] = b"") -> None:
        """Sends a request. `path` is the server's own, encoded, with its query. The rest of a Body is not sent when the
        server answers before its end. Raises Dropped, ProtocolError."""
        if isinstance(body, Body):
            self.begin(method, path, fields, body.nbytes)
            if not self.has_answered:
                body.send_to(self)
            self.end()
            return
        length = len(body) if body or method == "POST" else None
        if length is not None:
            fields = {"Content-Type": "application/json", **(fields or {}), "Content-Length": str(length)}
        head = self._start(method, path, fields or {})
        try:
            self._socket.sendall(head + body if len(body) < MIB else head)
            if len(body) >= MIB:
                self._socket.sendall(body)
        except OSError as error:
            self._take_early_answer(error)

    def begin(self, method: str, path: str, fields: Optional[Dict[str, str]], nbytes: Optional[int],
              expects: bool = True) -> None:
        """Sends the head of a request whose body follows by `send_part` and `send_file`, and then `end`.

        `nbytes`: of the body; None: chunks. `expects`: waits for 100 Continue before a large body, for at most
        EXPECT_SECONDS; see `has_answered`. Raises Dropped, ProtocolError.
        """
        fields = {"Content-Type": "application/octet-stream", **(fields or {})}
        self._chunked = nbytes is None
        if nbytes is None:
            fields["Transfer-Encoding"] = "chunked"
        else:
            fields["Content-Length"] = str(nbytes)
        waits = expects and (nbytes is None or nbytes >= EXPECT_BYTES)
        if waits:
            fields["Expect"] = "100-continue"
        head = self._start(method, path, fields)
        self.sent_whole = False
        try:
            self._socket.sendall(head)
        except OSError as error:
            self._take_early_answer(error)
        end = time.monotonic() + EXPECT_SECONDS
        while waits and not self.has_answered and not self._interim and time.monotonic() < end:
            self._look(max(0.0, end - time.monotonic()))

    def _start(self, method: str, path: str, fields: Mapping[str, str]) -> bytes:
        """Returns the bytes of the head of a request that begins now."""
        target = self.endpoint.prefix + path
        if self.proxy:
            target = f"{self.endpoint.scheme}://{self.endpoint.host_header}{target}"
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.endpoint.host_header}", f"User-Agent: {USER_AGENT}",
                 "Accept-Encoding: identity"]
        token = self.options.find_token()
        if token:
            lines.append(f"Authorization: Bearer {token}")
        if self.proxy:
            lines += self.proxy.fields
        lines += [f"{name}: {value}" for name, value in fields.items()]
        self.used = True
        self.sent_whole, self._early, self._interim = True, None, 0
        self._send_seconds, self._send_bytes = 0.0, 0
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"

    @property
    def has_answered(self) -> bool:
        """Whether the answer has arrived before the end of the request. `read_head` returns it."""
        return self._early is not None

    @property
    def can_send_files(self) -> bool:
        """Whether `send_file` may work: not over TLS, whose bytes the kernel does not encrypt, nor in chunks."""
        return hasattr(os, "sendfile") and not isinstance(self._socket, ssl.SSLSocket) and not self._chunked

    def send_part(self, view: memoryview) -> int:
        """Sends a part of a body, and returns its length; less if the server answers first. Raises Dropped."""
        if not len(view):
            return 0
        if self._chunked:
            self._send_all(memoryview(b"%x\r\n" % len(view)))
        sent = self._send_all(view)
        if self._chunked and not self.has_answered:
            self._send_all(memoryview(b"\r\n"))
        self._look(0)
        return sent

    def send_file(self, fd: int, offset: int, count: int) -> Optional[int]:
        """Sends bytes of a file, and returns their number: 0 at its end, or when the server has answered; None if
        the kernel cannot send this file. Raises Dropped."""
        try:
            sent = self._paced(lambda: os.sendfile(self._socket.fileno(), fd, offset, count))
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSOCK):
                return None
            self._take_early_answer(error)
            return 0
        self._look(0)
        return sent

    def _send_all(self, view: memoryview) -> int:
        """Sends bytes, and returns how many; fewer if the server answers first. Raises Dropped."""
        done = 0
        try:
            while done < len(view) and not self.has_answered:
                done += self._paced(functools.partial(self._socket.send, view[done:]))
        except OSError as error:
            self._take_early_answer(error)
        return done

    def _paced(self, send: Callable[[], int]) -> int:
        """Calls `send`, which sends bytes and returns their number, and returns its result. Raises OSError also where
        the server has taken less than MIN_SEND_RATE for stall_timeout; time between the calls does not count."""
        begun = time.monotonic()
        sent = send()
        self._send_seconds += time.monotonic() - begun
        self._send_bytes += sent
        if self._send_seconds >= self.options.stall_timeout:
            if self._send_bytes < MIN_SEND_RATE * self._send_seconds:
                raise socket.timeout(f"it took {self._send_bytes} bytes in {self._send_seconds:.3g} s")
            self._send_seconds, self._send_bytes = 0.0, 0
        return sent

    def end(self) -> None:
        """Ends a body. Raises Dropped."""
        if self._chunked and not self.has_answered:
            self._send_all(memoryview(b"0\r\n\r\n"))
        self._chunked = False
        self.sent_whole = not self.has_answered

    def _look(self, seconds: float) -> None:
        """Takes what has arrived while a request is being sent, or arrives within some seconds: an answer ends the
        sending, answers of 1xx are dropped. Raises Dropped if the server has closed the connection without an answer,
        ProtocolError."""
        if not self.has_answered and self._wait_readable(seconds):
            self._receive_now()
            self._take_heads()

    def _take_heads(self) -> None:
        """Decodes the heads that have arrived whole. Raises ProtocolError."""
        while self._early is None and b"\r\n\r\n" in self._buffer:
            answer = self._read_head("")
            if answer.status >= 200:
                self._early, self.sent_whole = answer, False
            else:
                self._count_interim()

    def _count_interim(self) -> None:
        """Counts an answer of 1xx. Raises ProtocolError for too many."""
        self._interim += 1
        if self._interim >= MAX_INTERIM:
            raise errors.ProtocolError(f"{self.endpoint} sent {MAX_INTERIM} interim answers and no final one")

    def _take_early_answer(self, error: OSError) -> None:
        """Takes the answer of a server that did not take the whole request. Raises SetupError for a refusal of the TLS
        handshake, Dropped if there is no answer."""
        self._find_refusal()
        end = time.monotonic() + REFUSAL_SECONDS
        with contextlib.suppress(Dropped):
            self._take_heads()
            while not self.has_answered and self._wait_readable(max(0.0, end - time.monotonic())):
                self._receive_now()
                self._take_heads()
        if not self.has_answered:
            if isinstance(error, (BlockingIOError, socket.timeout)):
                why = f"none for {self.options.stall_timeout:g} s" if isinstance(error, BlockingIOError) else error
                raise Dropped(f"{self.endpoint} takes no more bytes: {why}", started=False) from error
            raise Dropped(f"{self.endpoint} closed the connection: {error}", started=False) from error

    def _find_refusal(self) -> None:
        """Raises SetupError if an alert has arrived from a server that did not take the request."""
        if isinstance(self._socket, ssl.SSLSocket):
            with contextlib.suppress(OSError):
                self._socket.settimeout(0)
                self._receive_more()

    def read_head(self, method: str, wait: Optional[float] = None) -> Answer:
        """Receives the head of the answer to a request that was sent. Raises Dropped, ProtocolError.

        `wait`: seconds until the answer must begin, for a server that has much to do first; stall_timeout by default.
        """
        if self._early is not None:
            return self._early
        end = None if wait is None else time.monotonic() + wait
        try:
            while True:
                if end is not None:
                    self._limit_receive(max(0.001, end - time.monotonic()))
                answer = self._read_head(method)
                if answer.status >= 200:
                    return answer
                self._count_interim()
        finally:
            if end is not None:
                self._limit_receive(self.options.stall_timeout)

    def _read_head(self, method: str) -> Answer:
        begun = None
        while b"\r\n\r\n" not in self._buffer:
            if self._buffer and not b"HTTP/1.".startswith(self._buffer[:7]):
                raise errors.ProtocolError(f"{self.endpoint} does not answer in HTTP/1.1")
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise errors.ProtocolError(f"{self.endpoint} sent a header of more than {MAX_HEAD_BYTES} bytes")
            if begun is not None and time.monotonic() - begun > self.options.stall_timeout:
                raise Dropped(f"{self.endpoint} did not end a header within {self.options.stall_timeout:g} s", True)
            self._receive_more()
            begun = begun or time.monotonic()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        text = head.decode("latin-1")
        lines = text.split("\r\n")
        found = re.match(r"HTTP/1\.[01] ([0-9]{3})(?: |$)", lines[0])
        if not found:
            raise errors.ProtocolError(f"{self.endpoint} does not answer in HTTP/1.1")
        if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", text.replace("\r\n", "")):
            raise errors.ProtocolError(f"{self.endpoint} sent a header with control characters")
        fields: Dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            name, value = name.lower(), value.strip()
            if not colon or not name or name != name.strip():
                raise errors.ProtocolError(f"{self.endpoint} sent a damaged header")
            if name in ("content-length", "content-range", "etag") and fields.get(name, value) != value:
                raise errors.ProtocolError(f"{self.endpoint} sent {name} twice")
            fields[name] = value
        if lines[0].startswith("HTTP/1.0"):
            fields.setdefault("connection", "close")
        status = int(found[1])
        return Answer(self, status, fields, method != "HEAD" and status >= 200 and status not in (204, 304))

    # ---- bytes

    def _receive_more(self) -> None:
        try:
            data = self._socket.recv(4096)
        except ssl.SSLWantReadError:
            raise
        except OSError as error:
            self._raise_refusal(error)
            raise Dropped(self._why(error), started=bool(self._buffer)) from error
        if not data:
            raise Dropped(f"{self.endpoint} closed the connection", started=bool(self._buffer))
        self._buffer += data

    def _receive_now(self) -> None:
        """Appends bytes that have arrived to the buffer; over TLS there may be none. Raises Dropped."""
        if len(self._buffer) > MAX_HEAD_BYTES:
            raise errors.ProtocolError(f"{self.endpoint} sent a header of more than {MAX_HEAD_BYTES} bytes")
        if not isinstance(self._socket, ssl.SSLSocket):
            self._receive_more()
            return
        self._socket.settimeout(0)
        try:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._receive_more()
        finally:
            with contextlib.suppress(OSError):
                self._socket.settimeout(self.options.stall_timeout)

    def _limit_receive(self, seconds: float) -> None:
        """Limits the time until the next byte arrives."""
        self._receive_limit = seconds
        if self._waitall:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(seconds))
        else:
            self._socket.settimeout(seconds)

    def _why(self, error: OSError) -> str:
        if isinstance(error, (BlockingIOError, socket.timeout)):
            return f"{self.endpoint} sent nothing for {self._receive_limit:.3g} s"
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
        """Fills the view, and returns its length. Raises Dropped; then `received` says how many bytes arrived."""
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
        """Returns whether an idle connection is unusable: the server closed it or sent bytes without a request."""
        return bool(self._buffer) or self._wait_readable(0)

    def _wait_readable(self, seconds: float) -> bool:
        """Waits for bytes, or for the end of the connection, and returns whether there are any."""
        import select

        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        try:
            if hasattr(select, "poll"):
                poll = select.poll()
                poll.register(self._socket.fileno(), select.POLLIN)
                return bool(poll.poll(seconds * 1000))
            return bool(select.select([self._socket], [], [], seconds)[0])
        except (OSError, ValueError):
            return True

    def stop(self) -> None:
        """Breaks the connection, also for a thread that waits for bytes."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def abandon(self) -> None:
        """Closes this process's descriptor of a connection that another process owns; sends nothing to the server."""
        try:
            fd = self._socket.detach()
            if fd >= 0:
                socket.close(fd)
        except OSError:
            pass


def _set_stall_timeout(raw: socket.socket, seconds: float) -> int:
    """Limits the time without a byte. Returns the flag that makes a receive wait until its buffer is full.

    Python's own timeout makes the socket non-blocking, which costs a poll for each receive and defeats MSG_WAITALL;
    the kernel's does not.
    """
    if sys.platform == "win32":
        raw.settimeout(seconds)
        return 0
    raw.settimeout(None)
    limit = _timeval(seconds)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    return socket.MSG_WAITALL


def _timeval(seconds: float) -> bytes:
    """Returns seconds in the form of SO_RCVTIMEO."""
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))


_UNKNOWN_ISSUER = (18, 19, 20, 21)  # X509_V_ERR_*: self-signed, or signed by nobody who is trusted

_WANTS_CERTIFICATE = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE")  # the latter of TLS 1.2 has other causes too

# Alerts that come again however often one tries (RFC 8446, 6.2), by OpenSSL's names.
_REFUSALS = (*_WANTS_CERTIFICATE, "ACCESS_DENIED", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED", "CERTIFICATE_REVOKED",
             "CERTIFICATE_UNKNOWN", "INSUFFICIENT_SECURITY", "NO_CERTIFICATE", "PROTOCOL_VERSION", "UNKNOWN_CA",
             "UNSUPPORTED_CERTIFICATE")

_contexts: Dict[Tuple[Any, ...], ssl.SSLContext] = {}


def _tls_context(options: Options) -> ssl.SSLContext:
    """Returns the TLS context for these options; a process reads its files once. Raises SetupError."""
    key = tuple(getattr(options, name) for name in TLS_NAMES)
    if key not in _contexts:
        try:
            context = ssl.create_default_context(cafile=options.ca_file)
        except OSError as error:
            raise errors.SetupError(f"{options.with_value('ca_file')} cannot be used: {error}") from error
        _load_own_certificate(context, options)
        if not options.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        _contexts[key] = context
    return _contexts[key]


def _load_own_certificate(context: ssl.SSLContext, options: Options) -> None:
    """Makes a context show the client's certificate, if there is one. Raises SetupError."""
    if options.cert_file is None:
        return
    try:
        context.load_cert_chain(options.cert_file, options.key_file, password=lambda: "")  # else OpenSSL asks for one
    except OSError as error:
        names = [options.with_value(name) for name in ("cert_file", "key_file") if getattr(options, name) is not None]
        raise errors.SetupError(f"{' with '.join(names)} cannot be used: {error}; they must hold a certificate "
                                "and its key in PEM, without a password") from error


def _left(deadline: float) -> float:
    """Returns the seconds until a deadline. Raises socket.timeout after it."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout("timed out")
    return left


@dataclass(frozen=True)
class Proxy:
    """A proxy of the environment. `variable` names it there; `fields` are the lines that log in to it."""

    variable: str
    host: str
    port: int
    fields: Tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"the proxy {self.host}:{self.port}"

    @property
    def login_hint(self) -> str:
        """Returns advice for a login that the proxy refuses or demands."""
        if self.fields:
            return f"; it refuses the login in {self.variable}"
        return f"; it wants a login, in {self.variable} as http://user:password@{self.host}:{self.port}"


def _proxy_for(endpoint: Endpoint) -> Optional[Proxy]:
    """Returns the environment's proxy for a server (http_proxy, https_proxy, all_proxy; no_proxy), as urllib has it.

    Raises SetupError for a proxy that cannot be used.
    """
    if urllib.request.proxy_bypass(endpoint.host_header) or urllib.request.proxy_bypass(endpoint.host):
        return None
    proxies = urllib.request.getproxies()
    variable = f"{endpoint.scheme}_proxy" if proxies.get(endpoint.scheme) else "all_proxy"
    url = proxies.get(variable[: -len("_proxy")])
    if not url:
        return None
    try:
        parts = urlsplit(url if "://" in url else "http://" + url)
        host, port = parts.hostname, parts.port or 80
        usable = parts.scheme == "http" and "@" not in parts.path + parts.query + parts.fragment
    except ValueError:
        host = None
    if not host or not usable:  # the value may hold a password
        raise errors.SetupError(f"{variable} of the environment does not name a proxy that can be used: it is "
                                "http://host:port, or http://user:password@host:port with %-encoded characters; "
                                f"{endpoint.host} in no_proxy needs none")
    fields: Tuple[str, ...] = ()
    if parts.username:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        fields = (f"Proxy-Authorization: Basic {base64.b64encode(login.encode()).decode()}",)
    return Proxy(variable, host, port, fields)


def error_of(answer: Answer, path: str, kinds: Optional[Mapping[int, Type[errors.AnswerError]]] = None,
             advice: Optional[Mapping[int, str]] = None, limit: int = ERROR_TEXT_BYTES) -> errors.AnswerError:
    """Reads the body of an error answer, of at most `limit` bytes, and returns the error.

    `kinds` and `advice`: the class of error and what to do, by status, in place of those of a request that reads.
    """
    url = f"{answer.connection.endpoint}{path}"
    message, code = "", ""
    details: Any = None
    try:
        error = json.loads(answer.read(limit))["error"]
        message, code = errors.printable(str(error["message"])), errors.printable(str(error.get("status", "")))
        details = error.get("details")
    except (Dropped, errors.ProtocolError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    known: Dict[int, Type[errors.AnswerError]] = {404: errors.NotFoundError, 412: errors.ChangedError, **(kinds or {})}
    sent = answer.connection.options.find_token()
    hint = {401: "the token was refused" if sent else
            f"give a token by {answer.connection.options.named('token')} or TENSORD_TOKEN",
            403: "the token does not allow this", **(advice or {})}.get(answer.status)
    proxy, endpoint = answer.connection.proxy, answer.connection.endpoint
    if answer.status == 400 and message.startswith("this port speaks HTTPS"):
        plain = "tensord:// is plain HTTP" if endpoint.written == "tensord" else "http:// has no TLS"
        hint = f"{plain}, the URL over TLS is {endpoint.https_url}"
        hint += ". The token was sent in the clear: others may have read it" if sent else ""
    elif answer.status == 404 and endpoint.prefix and not endpoint.resource:
        hint = (f"{endpoint.prefix} is taken for the prefix of a proxy: if it is a model, its URL is "
                f"{endpoint.origin}/models{endpoint.prefix}")
    tail = f"; {hint}" if hint else ""
    if answer.status == 407 and proxy:
        message, tail = f"the answer is of {proxy}", proxy.login_hint
    elif not message and 300 <= answer.status < 400:
        where = errors.printable(answer.fields.get("location", "")) or "nowhere"
        message = f"it redirects to {where}; redirects are not followed"
    elif not message:
        message = "the answer has no message of tensord's; is this a tensord server?"
        tail += f" Or is the answer of {proxy}?" if proxy else ""
    kind = known.get(answer.status, errors.AnswerError)
    return kind(f"{url}: {answer.status}: {message}{tail}", answer.status, code, url, details)
