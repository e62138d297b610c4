"""A server with the Hub's interface whose answers a test spoils: for what no honest server does."""
import hashlib
import json
import socket
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c" * 40


def git_oid(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 0

    def log_message(self, *args):
        pass

    def do_GET(self):
        hub = self.server.hub
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        with hub.lock:
            hub.requests.append((path, dict(self.headers)))
        try:
            if path == "/version":
                self.answer(404, b"no such page")
            elif path.startswith("/api/"):
                hub.api(self, path)
            else:
                name = path.split("/resolve/", 1)[1].split("/", 1)[1]
                hub.file(self, name)
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def answer(self, status, body=b"", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def wanted(self, size):
        """Return the range that is asked for as (first, end), or None."""
        field = self.headers.get("Range")
        if not field:
            return None
        first, last = field.removeprefix("bytes=").split("-")
        return int(first), min(size, int(last) + 1 if last else size)

    def send_file(self, data, etag, ranges=True, total=None, length=None, cut=None, pace=None, status=None,
                  gate=None):
        """Answer the file or the asked part of it. cut: end the connection after so many bytes; pace: bytes per
        second; total, length: false sizes of the file and of the answer; gate: an event that bytes after the
        first MiB wait for."""
        asked = self.wanted(len(data)) if ranges else None
        first, end = asked or (0, len(data))
        part = data[first:end]
        self.send_response(status or (206 if asked else 200))
        if etag:
            self.send_header("ETag", etag)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{end - 1}/{len(data) if total is None else total}")
        self.send_header("Content-Length", str(len(part) if length is None else length))
        self.end_headers()
        if cut is not None:
            part, self.close_connection = part[:cut], True
        step = len(part) or 1 if not pace else max(1, pace // 50)
        for at in range(0, len(part), step):
            if self.server.hub.dead.is_set():
                raise ConnectionError("the server has died")
            if gate is not None and at >= 1 << 20:
                gate.wait(60)
            self.wfile.write(part[at:at + step])
            if pace:
                time.sleep(step / pace)


class Server(ThreadingHTTPServer):
    request_queue_size = 64

    def handle_error(self, request, client_address):
        """Say nothing of clients that break off."""


class Server6(Server):
    """Listens at an IPv6 address; at "::" for IPv4 as well."""
    address_family = socket.AF_INET6


class FakeHub:
    """files: path -> bytes. digests: "lfs", "git" or None, the kind that the tree lists. A test replaces `file`, `api`
    or `tree`."""

    def __init__(self, files, digests="lfs", host="127.0.0.1", tls=None, port=0):
        self.files, self.digests, self.lock, self.requests = files, digests, threading.Lock(), []
        self.dead = threading.Event()           # set: answers that are under way break off
        self.server = (Server6 if ":" in host else Server)((host, port), Handler)
        self.server.daemon_threads = True
        self.server.hub = self
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if tls else 'http'}://{shown}:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()
        self.closed = False

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        if not self.closed:
            self.closed = True
            self.server.shutdown()
            self.server.server_close()
            self.thread.join()

    def count(self, name):
        """Return how often the file was asked for."""
        return sum(path.endswith("/" + name) and "/resolve/" in path for path, _ in self.requests)

    def etag(self, name):
        return '"' + hashlib.sha256(self.files[name]).hexdigest() + '"'

    def item(self, path, data):
        item = {"type": "file", "path": path, "size": len(data), "oid": "0" * 40}
        if self.digests == "lfs":
            item["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        elif self.digests == "git":
            item["oid"] = git_oid(data)
        else:
            del item["oid"]
        return item

    def tree(self):
        return [{"type": "directory", "path": "d", "oid": "0" * 40, "size": 0},
                *(self.item(path, data) for path, data in self.files.items())]

    def api(self, handler, path):
        if path.split("/")[5] == "revision":
            handler.answer(200, json.dumps({"id": "org/m", "sha": COMMIT}).encode())
        else:
            handler.answer(200, json.dumps(self.tree()).encode())

    def file(self, handler, name):
        handler.send_file(self.files[name], self.etag(name))
