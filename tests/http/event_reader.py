"""A reader of server-sent events for tests, by the WHATWG HTML standard, section 9.2.6, and of chunked bodies by
RFC 9112, section 7.1. No code of the project."""
import json
import time
from dataclasses import dataclass

from harness import request_bytes

STREAM = [("Accept", "text/event-stream")]


@dataclass
class Event:
    type: str
    data: object        # parsed JSON
    id: str

    def __getitem__(self, key):
        return self.data[key]

    def named(self):
        """Return the type, the kind, the id and the revision."""
        return (self.type, self.data["kind"], self.data["id"], self.data.get("revision"))


class EventReader:
    def __init__(self, server, target="/events", headers=(), last=None, **kw):
        more = headers.items() if isinstance(headers, dict) else headers
        headers = [*STREAM, *more] + ([("Last-Event-ID", last)] if last is not None else [])
        self.conn = server.conn(**kw)
        self.conn.send(request_bytes(target, headers, "GET", "HTTP/1.1", server.port))
        self.head = self.conn.read_head(f"GET {target}")
        self.raw, self.text, self.events = b"", b"", []
        self.is_complete = False        # the last chunk has come
        self.last_id, self.retry, self.comments, self.ids = "", None, [], []
        self.fields = ("", [])

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.conn.close()

    def close(self):
        self.conn.close()

    def opened(self):
        """Wait for the first bytes of a stream, so that later events are in it."""
        assert self.head.status == 200, self.head
        deadline = time.monotonic() + 20
        while self.retry is None:
            assert self.pump(deadline - time.monotonic()), "no first bytes"
        return self

    def pump(self, timeout):
        """Read once and take events out of what has come. Returns False at the timeout or at the end."""
        if timeout <= 0 or self.conn.eof:
            return False
        self.conn.sock.settimeout(timeout)
        try:
            if not self.conn.buf:       # bytes that came with the header
                self.conn.fill(1 << 16)
        except TimeoutError:
            return False
        except ConnectionError:
            self.conn.eof = True
        self.raw, self.conn.buf = self.raw + self.conn.buf, b""
        self.take_chunks()
        self.take_lines()
        return True

    def take_chunks(self):
        while not self.is_complete:
            line, mark, rest = self.raw.partition(b"\r\n")
            size = int(line, 16) if mark else 0
            if not mark or len(rest) < size + 2:
                return
            assert rest[size:size + 2] == b"\r\n", rest[:80]
            self.text, self.raw, self.is_complete = self.text + rest[:size], rest[size + 2:], size == 0

    def take_lines(self):
        *lines, self.text = self.text.split(b"\n")
        for line in (raw.decode() for raw in lines):
            assert "\r" not in line
            name, colon, value = line.partition(":")
            value = value.removeprefix(" ")
            type, data = self.fields
            if not line:
                if data:
                    self.events.append(Event(type or "message", json.loads("\n".join(data)), self.last_id))
                self.fields = ("", [])
            elif colon and not name:
                self.comments.append(value)
            elif name == "event":
                self.fields = (value, data)
            elif name == "data":
                self.fields = (type, [*data, value])
            elif name == "id":
                assert "\0" not in value
                self.last_id = value
                self.ids.append(value)
            elif name == "retry":
                self.retry = int(value)
            else:
                raise AssertionError(f"field {name!r}")

    def next(self, timeout=20):
        deadline = time.monotonic() + timeout
        while not self.events:
            assert self.pump(deadline - time.monotonic()), f"no event in {timeout} s; eof {self.conn.eof}"
        return self.events.pop(0)

    def take(self, count, timeout=20):
        return [self.next(timeout) for _ in range(count)]

    def nothing(self, seconds=0.5):
        """Check that no event comes for so long."""
        deadline = time.monotonic() + seconds
        while self.pump(deadline - time.monotonic()):
            pass
        assert not self.events, self.events

    def ended(self, timeout=20):
        """Wait for the end of the connection; returns whether the stream ended with its last chunk."""
        deadline = time.monotonic() + timeout
        while not self.conn.eof:
            assert self.pump(deadline - time.monotonic()) or self.conn.eof, "the stream has not ended"
        return self.is_complete
