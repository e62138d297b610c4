"""A server with the part of the Hugging Face Hub's interface that fetching uses, in shapes recorded from the Hub. Tests
control what it sends: a gate holds the large file up, and the server can send wrong bytes, redirect and die. It counts
what it has sent."""
import hashlib
import json
import re
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
STEP = 64 * 1024


def git_oid(content):
    """Git's name of a blob."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class HubLike:
    """models: id -> {path: content}. Files of at least lfs_from bytes are in LFS and have a SHA-256 in the tree. token:
    what clients must send. cdn: whether LFS files are redirected to another port, as the Hub does."""

    def __init__(self, models, lfs_from=100_000, token=None, cdn=False, port=0):
        self.models, self.lfs_from, self.token = models, lfs_from, token
        self.lock = threading.Condition()
        self.requests = []      # (method, path, headers)
        self.sent = {}          # path of a file -> ranges that were sent
        self.gate = None        # bytes of each LFS file that may be sent; None: all
        self.lie = {}           # path -> content that is sent in place of the right one
        self.wrong_sha = set()  # paths whose SHA-256 in the tree is another
        self.no_digests = False
        self.no_sha256 = False  # the tree has Git's names alone
        self.retry_after = None # seconds: every request is answered 429
        self.busy_paths = ""    # pattern: only these are
        self.refused = {}       # model -> seconds: requests for it are answered 503
        self.is_tensord = False # it says that it is one
        self.servers = [self._serve(port)]
        self.cdn_port = None
        if cdn:
            self.servers.append(self._serve(0))
            self.cdn_port = self.servers[1].server_address[1]
        self.port = self.servers[0].server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def _serve(self, port):
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_HEAD(self):
                hub.answer(self)

            do_GET = do_HEAD

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server

    def close(self):
        self.open_gate(None)
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def open_gate(self, most):
        with self.lock:
            self.gate = most
            self.lock.notify_all()

    def count(self, pattern):
        """How many requests had a path that matches."""
        with self.lock:
            return sum(1 for _, path, _ in self.requests if re.search(pattern, path))

    def sent_bytes(self, path):
        with self.lock:
            return sum(end - first for first, end in self.sent.get(path, []))

    def answer(self, h):
        path = urllib.parse.unquote(h.path.split("?")[0])
        with self.lock:
            self.requests.append((h.command, path, dict(h.headers)))
        if self.retry_after is not None and re.search(self.busy_paths, path):
            return self.fail(h, 429, "too many requests", "RateLimited", [("Retry-After", str(self.retry_after))])
        if path == "/version" and self.is_tensord:
            return self.send_json(h, {"name": "tensord", "version": "1.0.0"})
        for model, seconds in self.refused.items():
            if path.startswith(f"/api/models/{model}/"):
                return self.fail(h, 503, "not now", "Busy", [("Retry-After", str(seconds))])
        if path.startswith("/cdn/"):
            return self.send_file(h, *path[len("/cdn/"):].split("//", 1))
        if self.token is not None and h.headers.get("Authorization") != f"Bearer {self.token}":
            return self.fail(h, 401, "Invalid username or password.", "RepoNotFound")
        found = re.fullmatch(r"/api/models/(.+?)/(revision|tree)/(?:main|" + COMMIT + ")", path)
        if found and found[1] in self.models:
            return self.send_json(h, self.about(found[1]) if found[2] == "revision" else self.tree(found[1]))
        found = re.fullmatch(r"/([^/]+(?:/[^/]+)?)/resolve/(?:main|" + COMMIT + ")/(.+)", path)
        if found and found[2] in self.models.get(found[1], {}):
            if self.cdn_port is not None and len(self.models[found[1]][found[2]]) >= self.lfs_from:
                return self.redirect(h, f"http://127.0.0.1:{self.cdn_port}/cdn/{found[1]}//{found[2]}")
            return self.send_file(h, found[1], found[2])
        return self.fail(h, 404, "Repository not found", "RepoNotFound")

    def fail(self, h, status, message, code, fields=()):
        body = json.dumps({"error": message}).encode()
        h.send_response(status)
        for name, value in fields:
            h.send_header(name, value)
        h.send_header("X-Error-Code", code)
        h.send_header("X-Error-Message", message)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        h.wfile.write(body if h.command == "GET" else b"")

    def redirect(self, h, to):
        h.send_response(302)
        h.send_header("Location", to)
        h.send_header("Content-Length", "0")
        h.end_headers()

    def send_json(self, h, value):
        body = json.dumps(value).encode()
        h.send_response(200)
        h.send_header("Content-Type", "application/json")
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        h.wfile.write(body)

    def about(self, model):
        return {"_id": "621ffdc036468d709f17434d", "id": model, "modelId": model, "sha": COMMIT, "private": False,
                "siblings": [{"rfilename": path} for path in self.models[model]]}

    def tree(self, model):
        items = []
        for path, content in sorted(self.models[model].items()):
            item = {"type": "file", "oid": git_oid(content), "size": len(content), "path": path}
            if len(content) >= self.lfs_from:
                sha = hashlib.sha256(content + (b"!" if path in self.wrong_sha else b"")).hexdigest()
                item["lfs"] = {"oid": sha, "size": len(content), "pointerSize": 134}
            if self.no_digests or self.no_sha256:
                item.pop("lfs", None)
            if self.no_digests:
                item.pop("oid", None)
            items.append(item)
        return items

    def send_file(self, h, model, path):
        content = self.models[model][path]
        sent = self.lie.get(path, content)
        first, end = 0, len(content)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", h.headers.get("Range") or "")
        if wanted:
            first = int(wanted[1])
            end = min(end, int(wanted[2]) + 1 if wanted[2] else end)
            h.send_response(206)
            h.send_header("Content-Range", f"bytes {first}-{end - 1}/{len(content)}")
        else:
            h.send_response(200)
        h.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        h.send_header("Accept-Ranges", "bytes")
        h.send_header("Content-Length", str(end - first))
        h.end_headers()
        if h.command == "GET":
            self.send_range(h, path, sent, first, end, len(content) >= self.lfs_from)

    def send_range(self, h, path, content, first, end, is_gated):
        at = first
        while at < end:
            with self.lock:
                while is_gated and self.gate is not None and at >= self.gate:
                    self.lock.wait()
                stop = min(end, at + STEP, self.gate if is_gated and self.gate is not None else end)
            try:
                h.wfile.write(content[at:stop])
            except OSError:
                break
            with self.lock:
                self.sent.setdefault(path, []).append((at, stop))
            at = stop
