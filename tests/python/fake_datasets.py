"""A server of datasets in this process, for answers that a real one does not give: faults, an index that stands still.
It answers by the contract of api/openapi.yaml; the rows are lists of bytes."""
import hashlib
import http.server
import json
import re
import struct
import threading
import urllib.parse
from dataclasses import dataclass, field

import numpy

from tensord.rows.permutation import Permutation


@dataclass
class Split:
    """Rows of one split."""

    rows: list
    format: str = "jsonl"
    columns: list = None
    row_type: str = "application/json"
    reason: str = None
    state: str = "ready"
    done_bytes: int = 0
    files: list = field(default_factory=list)

    def __len__(self):
        return len(self.rows)

    @property
    def fingerprint(self):
        data = b"".join(struct.pack("<Q", len(row)) + row for row in self.rows)
        return hashlib.sha256(data).hexdigest()[:32]

    @property
    def nbytes(self):
        return sum(map(len, self.rows)) + len(self)

    def describe(self, name):
        ready = self.state == "ready"
        return {"name": name, "format": self.format, "rows": len(self) if ready else None, "nbytes": self.nbytes,
                "row_type": self.row_type, "columns": self.columns, "reason": self.reason,
                "fingerprint": self.fingerprint if ready else None, "files": self.files,
                "index": {"state": self.state, "done_bytes": self.nbytes if ready else self.done_bytes,
                          "nbytes": self.nbytes}}


class Refused(Exception):
    def __init__(self, status, message, **fields):
        super().__init__(message)
        self.status, self.message, self.fields = status, message, fields


class FakeServer:
    """Serves `datasets`, {id: {split: Split}}; `index`, bytes, is a table of places. `before(handler, path, query)` is
    called for each request, and may raise Refused; `change(answer)` may change an answer's "status", "fields" and
    "body", and set "cut" or "stall"."""

    def __init__(self, datasets, before=None, change=None, token=None):
        self.datasets, self.before, self.change, self.token = datasets, before, change, token
        self.requests = []  # (method, target)
        self.index = b""
        self._held = threading.Event()
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65536

            def do_GET(self):
                fake._answer(self)

            do_POST = do_HEAD = do_GET

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 128

            def handle_error(self, *_):
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        self._held.set()
        self._server.shutdown()
        self._server.server_close()

    def url(self, dataset):
        return f"tensord://127.0.0.1:{self.port}/datasets/{dataset}"

    def _answer(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        self.requests.append((handler.command, handler.path))
        path, _, query = handler.path.partition("?")
        answer = {"status": 200, "fields": {}, "body": b"", "path": handler.path, "cut": -1, "stall": False}
        try:
            query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
            if self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
                raise Refused(401, "a token is needed")
            if self.before:
                self.before(handler, path, query)
            answer["body"], answer["fields"] = self._route(handler.command, urllib.parse.unquote(path), query, body,
                                                           handler.headers)
            if handler.command != "POST" and path.endswith(("/rows", "/index")) or "/rows/" in path:
                self._cut_range(handler.headers, answer)
        except Refused as refused:
            answer["status"], answer["fields"] = refused.status, {key.replace("_", "-"): str(value)
                                                                  for key, value in refused.fields.items()}
            answer["body"] = json.dumps({"error": {"message": refused.message, "status": "X"}}).encode()
        if self.change:
            self.change(answer)
        body, cut = answer["body"], answer["cut"]
        length, body = len(body), b"" if handler.command == "HEAD" else body
        lines = [f"HTTP/1.1 {answer['status']} X", f"Content-Length: {length}",
                 *(f"{name}: {value}" for name, value in answer["fields"].items())]
        handler.wfile.write("\r\n".join(lines).encode() + b"\r\n\r\n" + (body if cut < 0 else body[:cut]))
        handler.wfile.flush()
        if answer["stall"]:
            self._held.wait(60)
        handler.close_connection = handler.close_connection or cut >= 0 or answer["stall"]

    def _cut_range(self, headers, answer):
        etag = f'"{hashlib.sha256(answer["body"]).hexdigest()[:16]}"'
        answer["fields"]["ETag"] = etag
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("Range", ""))
        if wanted and headers.get("If-Range", etag) == etag:
            total, begin = len(answer["body"]), int(wanted[1])
            end = min(total, int(wanted[2] or total) + 1)
            answer["status"] = 206
            answer["fields"]["Content-Range"] = f"bytes {begin}-{end - 1}/{total}"
            answer["body"] = answer["body"][begin:end]

    def _route(self, method, path, query, body, headers):
        if path == "/datasets":
            return self._list(query)
        found = re.fullmatch(r"/datasets/(.*?)(?:/(index|rows(?::batchGet|/[^/]*)?))?", path)
        if not found or found[1] not in self.datasets:
            raise Refused(404, f'"{path}" not found')
        splits = self.datasets[found[1]]
        if not found[2]:
            rows = [split.describe(name) for name, split in splits.items()]
            return json.dumps({"id": found[1], "splits": rows, "errors": []}).encode(), {}
        if method == "POST" and headers.get("Content-Type") == "application/json":
            wanted = json.loads(body)
            query.update({key: wanted[key] for key in ("split", "format") if key in wanted})
            indices = wanted["indices"]
        elif method == "POST":
            indices = numpy.frombuffer(body, "<u8").tolist()
        name = query.get("split") or (next(iter(splits)) if len(splits) == 1 else "")
        if name not in splits:
            raise Refused(404, f'split "{name}" not found; there are {", ".join(splits)}')
        split = splits[name]
        if query.get("fingerprint", split.fingerprint) != split.fingerprint:
            raise Refused(412, "the split has another fingerprint")
        if split.state != "ready":
            raise Refused(503, "the index is being built", Retry_After=1)
        if split.reason:
            raise Refused(422, split.reason)
        if found[2] == "index":
            return self.index, {}
        rows = len(split)
        if found[2].startswith("rows/"):
            number = int(found[2][5:])
            if number >= rows:
                raise Refused(400, f"row {number} does not exist; the split has {rows}")
            return split.rows[number], {"Content-Type": split.row_type}
        if found[2] == "rows":
            indices, fields = self._range(split, query)
        else:
            fields = {}
            for number in indices:
                if number >= rows:
                    raise Refused(400, f"row {number} does not exist; the split has {rows}")
        return self._body(split, indices, query.get("format", "frame")), fields

    def _range(self, split, query):
        start, count = int(query.get("start", 0)), int(query.get("count", 100))
        total, rank, world = len(split), 0, 1
        if query.get("order") == "shuffle":
            rank, world = map(int, query.get("shard", "0/1").split("/"))
            total = max(0, -(-(total - rank) // world))
        if start > total:
            raise Refused(400, f"start {start} is beyond the {total} rows")
        if query.get("order") == "shuffle":
            permutation = Permutation(len(split), int(query.get("seed", 0)), int(query.get("epoch", 0)))
            indices = permutation.take(start, count, rank, world)
        else:
            indices = range(start, min(start + count, total))
        return indices, {"X-Row-Start": start, "X-Row-Count": len(indices), "X-Row-Total": total}

    def _body(self, split, indices, form):
        rows = [split.rows[number] for number in indices]
        if form == "raw":
            return b"".join(row + b"\n" for row in rows)
        ends = numpy.cumsum([0, *map(len, rows)]).astype("<u8").tobytes()
        return struct.pack("<Q", len(rows)) + ends + b"".join(rows)

    def _list(self, query):
        size, begin = int(query.get("page_size", 100)), int(query.get("page_token", 0))
        rows = [{"id": name, "splits": list(splits)} for name, splits in sorted(self.datasets.items())]
        page = {"datasets": rows[begin : begin + size]}
        if begin + size < len(rows):
            page["next_page_token"] = str(begin + size)
        return json.dumps(page).encode(), {"Content-Type": "application/json"}
