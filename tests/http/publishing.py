"""A writer for tests of publishing, from the contract alone: http.client and hashlib, no code of the project."""
import hashlib
import http.client
import json
import urllib.parse

PIECE = 262144


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Answer:
    def __init__(self, response):
        self.status, self.body = response.status, response.read()
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.length = len(self.body)

    def get(self, name, default=None):
        return self.headers.get(name.lower(), default)

    def names(self):
        return [name for name in self.headers if name != "server-timing"]    # any slow answer has it

    def json(self):
        return json.loads(self.body)

    def error(self):
        return self.json()["error"]

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:600]!r}>"


class Repo:
    """A repository of a server, and who asks: headers. All requests of one Repo use one connection while it lasts."""

    asked = []      # (method, target, answer) of all of them

    def __init__(self, port, id, kind="models", headers=None, timeout=120, is_checked=True):
        self.is_checked = is_checked
        self.base, self.headers = f"/{kind}/{id}", headers or {}
        self.port, self.timeout = port, timeout
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def ask(self, method, path="", body=None, headers=None):
        self.http.request(method, self.base + path, body, {**self.headers, **(headers or {})})
        answer = Answer(self.http.getresponse())
        if self.is_checked:
            Repo.asked.append((method, self.base + path, answer))
        return answer

    def other(self):
        """The same repository, on a connection of its own."""
        return Repo(self.port, self.base.split("/", 2)[2], self.base.split("/")[1], self.headers, self.timeout)

    def put(self, data, headers=None, name=None):
        return self.ask("PUT", "/blobs/" + (name or digest(data)), data, headers)

    def piece(self, data, first, last):
        return self.put(data[first:last + 1], {"Content-Range": f"bytes {first}-{last}/{len(data)}"}, digest(data))

    def commit(self, files=None, **more):
        """Post a commit of these files, {path: bytes}."""
        order = dict(more)
        if files is not None:
            order["files"] = [{"path": p, "digest": digest(d), "size": len(d)} for p, d in files.items()]
        return self.ask("POST", "/commits", json.dumps(order))

    def push(self, files, **more):
        """Do as the contract says: post the commit, send what it lacks, post it again. Returns the last answer, and the
        number of blobs that were sent."""
        answer, sent = self.commit(files, **more), 0
        if answer.status == 409 and "missing" in answer.error()["details"]:
            by_digest = {digest(d): d for d in files.values()}
            for blob in answer.error()["details"]["missing"]:
                put = self.put(by_digest[blob["digest"]])
                assert put.status in (200, 201), put
                sent += 1
            answer = self.commit(files, **more)
        return answer, sent

    def file(self, path):
        return self.ask("GET", "/files/" + urllib.parse.quote(path))

    def put_file(self, path, data, headers=None):
        return self.ask("PUT", "/files/" + urllib.parse.quote(path), data, headers)

    def delete_file(self, path, headers=None):
        return self.ask("DELETE", "/files/" + urllib.parse.quote(path), headers=headers)

    def commits(self):
        answer = self.ask("GET", "/commits")
        assert answer.status == 200, answer
        return answer.json()

    def main(self):
        return self.commits()["refs"]["main"]
