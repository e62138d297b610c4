"""An HTTP server with tensord's API for publishing, in memory, that fails when a test wants it to."""
import contextlib
import hashlib
import http.server
import json
import re
import socket
import threading
import time

PIECE = 262144


class Blob:
    """The bytes of a blob. Those of whole pieces stay, also when a request was cut off."""

    def __init__(self, size):
        self.size, self.data, self.has = size, bytearray(size), [False] * max(1, -(-size // PIECE))

    def take(self, at, data):
        self.data[at:at + len(data)] = data
        for i in range(-(-at // PIECE), len(self.has)):
            if at + len(data) >= min((i + 1) * PIECE, self.size) and i * PIECE <= at + len(data):
                self.has[i] = True

    def missing(self):
        ranges = []
        for i, has in enumerate(self.has):
            if not has:
                end = min((i + 1) * PIECE, self.size) - 1
                if ranges and ranges[-1][1] + 1 == i * PIECE:
                    ranges[-1][1] = end
                else:
                    ranges.append([i * PIECE, end])
        return ranges


class Refusal(Exception):
    """An answer of 400 or above."""

    def __init__(self, status, message="", details=None, **headers):
        super().__init__(message)
        self.status, self.message, self.details, self.headers = status, message, details, headers


class FakePublish:
    """models: id -> the blobs and the files of each revision. requests: (method, path, range, bytes of the body that
    arrived). before(handler): called before the body is read; may raise Refusal. reads(handler): called for each block
    of a body; may raise ConnectionError to cut the connection off, or sleep."""

    def __init__(self, token=None):
        self.token, self.models, self.requests, self.lock = token, {}, [], threading.RLock()
        self.before = self.reads = lambda handler: None
        self.commit_bodies, self.port, self.server = [], 0, None

    def __enter__(self):
        fake = self

        class Handler(_Handler):
            publish = fake
        self.server = _Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()
        return self

    def __exit__(self, *exc):
        """End, after the requests have ended where they are, as with a process that is killed."""
        def ends(handler):
            raise ConnectionError
        reads, self.reads = self.reads, ends
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        for s in list(self.server.open):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
        end = time.monotonic() + 20
        while self.server.open and time.monotonic() < end:
            time.sleep(0.02)
        self.reads = reads

    def model(self, name):
        return self.models.setdefault(name, {"blobs": {}, "refs": {}, "commits": []})

    def files(self, name="org/m", revision="main"):
        model = self.model(name)
        return {path: bytes(model["blobs"][digest].data)
                for path, digest in model["refs"].get(revision, ("", {}))[1].items()}

    def sent(self, name=None):
        """The bytes of bodies of blobs that have arrived."""
        return sum(n for method, path, _, n in self.requests if method == "PUT")

    # ---- the contract

    def put(self, name, digest, at, size, data, is_whole):
        blobs = self.model(name)["blobs"]
        with self.lock:
            blob = blobs.setdefault(digest, Blob(size))
            if blob.size != size:
                raise Refusal(409, "the blob has another size")
            if not blob.missing():
                return 200
            blob.take(at, data)
            if not is_whole or blob.missing():
                return 202
            if hashlib.sha256(blob.data).hexdigest() != digest:
                del blobs[digest]
                raise Refusal(422, "the bytes have another digest")
            return 201

    def state(self, name, digest):
        blob = self.model(name)["blobs"].get(digest)
        if blob is None:
            raise Refusal(404, "nothing is known of this blob")
        missing = blob.missing()
        return {"digest": "sha256:" + digest, "size": blob.size, "complete": not missing, "missing": missing[:1000]}

    def commit(self, name, wish):
        assert set(wish) <= {"files", "keep", "delete", "revision", "from", "parent", "message", "dry_run"}, wish
        with self.lock:
            model = self.model(name)
            at, before = model["refs"].get(wish.get("revision", "main"), ("", {}))
            if "parent" in wish and wish["parent"] != at:
                raise Refusal(412, f"the revision is at {at or 'no commit'}", {"commit": at})
            missing = {}
            for file in wish["files"]:
                digest = file["digest"].removeprefix("sha256:")
                blob = model["blobs"].get(digest)
                if blob is None:
                    missing[digest] = {"digest": file["digest"]}
                elif blob.missing():
                    missing[digest] = {"digest": file["digest"], "missing": blob.missing()[:1000]}
                elif blob.size != file["size"]:
                    raise Refusal(400, "the size is not the blob's")
            if missing:
                raise Refusal(409, "blobs are not here", {"missing": list(missing.values())})
            files = {**(before if wish.get("keep") else {}),
                     **{f["path"]: f["digest"].removeprefix("sha256:") for f in wish["files"]}}
            commit = hashlib.sha1(json.dumps(sorted(files.items())).encode()).hexdigest()
            is_dry_run = wish.get("dry_run", False)
            if not is_dry_run:
                model["refs"][wish.get("revision", "main")] = (commit, files)
                model["commits"].append(wish)
            return (200 if commit == at or is_dry_run else 201), {
                "model": name, "revision": wish.get("revision", "main"), "commit": commit, "parent": at,
                "changed": commit != at, "files": len(files), "bytes": sum(model["blobs"][d].size
                                                                           for d in files.values())}


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads, allow_reuse_address, request_queue_size = True, True, 64

    def __init__(self, *args):
        self.open = set()
        super().__init__(*args)

    def process_request(self, request, address):
        self.open.add(request)
        super().process_request(request, address)

    def shutdown_request(self, request):
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address):
        """Say nothing of clients that break off."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def handle_expect_100(self):
        return True     # do_* sends the 100 when the request is not refused before

    def answer(self, status, body=None, **headers):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def body(self):
        """Read the body block by block, and return what has arrived and whether that is all."""
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        length, data = int(self.headers["Content-Length"]), bytearray()
        self.record[3] = 0
        try:
            while len(data) < length:
                self.publish.reads(self)
                some = self.rfile.read1(min(65536, length - len(data)))
                if not some:
                    break
                data += some
                self.record[3] += len(some)
        except ConnectionError:
            pass
        return bytes(data), len(data) == length

    def run(self):
        publish = self.publish
        self.record = [self.command, self.path, self.headers.get("Content-Range"), 0]
        publish.requests.append(self.record)
        if publish.token is not None and self.headers.get("Authorization") != f"Bearer {publish.token}":
            raise Refusal(401, "no or wrong token")
        publish.before(self)
        found = re.fullmatch(r"/(?:models|(?=datasets/))([^?]*?)/(commits|blobs/sha256:([0-9a-f]{64}))",
                             self.path.replace("/models/", "/models", 1))
        if not found:
            raise Refusal(404, "no such path")
        name, what, digest = found[1], found[2], found[3]
        if self.command == "POST" and what == "commits":
            data, is_whole = self.body()
            if not is_whole:
                raise ConnectionError
            publish.commit_bodies.append(json.loads(data))
            return publish.commit(name, publish.commit_bodies[-1])
        if self.command == "GET" and digest:
            return 200, publish.state(name, digest)
        if self.command == "PUT" and digest:
            at, size = 0, int(self.headers["Content-Length"])
            if part := re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", self.headers.get("Content-Range", "")):
                at, end, size = int(part[1]), int(part[2]) + 1, int(part[3])
                if at % PIECE or (end % PIECE and end != size) or end - at != int(self.headers["Content-Length"]):
                    raise Refusal(400, "bad range")
            data, is_whole = self.body()
            status = publish.put(name, digest, at, size, data, is_whole)
            if not is_whole:
                raise ConnectionError
            return status, publish.state(name, digest)
        raise Refusal(405, "not allowed")

    def do_PUT(self):
        try:
            self.answer(*self.run())
        except ConnectionError:
            self.close_connection = True
        except Refusal as r:
            self.close_connection = True
            self.answer(r.status, {"error": {"code": "X", "message": r.message, "details": r.details or {}}},
                        Connection="close", **r.headers)
            self.linger()

    do_POST = do_GET = do_HEAD = do_PUT

    def linger(self):
        """Read on for a while, so that the answer is not lost by a reset."""
        with contextlib.suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(0.5)
            end = time.monotonic() + 2
            while time.monotonic() < end and self.rfile.read1(65536):
                pass
