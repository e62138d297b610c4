"""Commits of a Hugging Face cache are made by hand, in several orders, under clients of every interface: each answer is
of one commit."""
import hashlib
import os
import shutil
import threading
import time
import xml.etree.ElementTree as ET

import pytest

from fixtures import st
from harness import KeepAlive, Server, age, s3_port, tensor

NAMES = ["config.json", "model.safetensors", "notes.txt", "sub/a.json", "sub/b.json"]
PAUSE = 0.04  # between two steps; a commit takes longer than a scan, and less than --settle


class Cache:
    """A cache folder. Each commit has other bytes, of other sizes, under most of the names."""

    def __init__(self, root):
        self.dir = root / "models--org--m"
        for part in ("blobs", "refs", "snapshots", "new"):
            (self.dir / part).mkdir(parents=True)
        self.known = {}                                      # commit -> path -> size

    def contents(self, number):
        names = [n for n in NAMES if n != NAMES[2 + number % 3]] + [f"only-{number}.txt"]
        raw = {"config.json": b'{"a": 1}', "model.safetensors": st([tensor("w", "U8", [64 + number])])}
        return {n: raw.get(n, b"x" * (100 + number)) for n in names}

    def blob(self, data):
        path = self.dir / "blobs" / hashlib.sha256(data).hexdigest()
        if not path.exists():
            path.write_bytes(data)
        return path

    def link(self, folder, name, data):
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(os.path.relpath(self.dir / "blobs" / hashlib.sha256(data).hexdigest(), link.parent), link)

    def ref(self, commit):
        (self.dir / "refs/main.tmp").write_text(commit)
        os.rename(self.dir / "refs/main.tmp", self.dir / "refs/main")

    def commit(self, number, order):
        """Make a commit: "client" as huggingface_hub does, "reverse" with links before their blobs, "rename"."""
        commit, files = f"{number:040x}", self.contents(number)
        self.known[commit] = {n: len(data) for n, data in files.items()}
        folder = self.dir / ("new" if order == "rename" else "snapshots") / commit
        folder.mkdir()
        if order == "client":
            self.ref(commit)
        for name, data in files.items():
            if order == "reverse":
                self.link(folder, name, data)
                time.sleep(PAUSE)
                self.blob(data)
            else:
                self.blob(data)
                time.sleep(PAUSE)
                self.link(folder, name, data)
            time.sleep(PAUSE)
        if order == "rename":
            os.rename(folder, self.dir / "snapshots" / commit)
        self.ref(commit)
        return commit


class Poller(threading.Thread):
    def __init__(self, name, ask, known):
        super().__init__(name=name, daemon=True)
        self.ask, self.known, self.wrong, self.seen, self.ended = ask, known, [], [], threading.Event()

    def run(self):
        with KeepAlive() as client:
            while not self.ended.is_set():
                try:
                    files, commit = self.ask(client)
                except AssertionError as e:
                    self.wrong.append(str(e))
                    continue
                match = [c for c, known in dict(self.known).items() if known == files and commit in (None, c)]
                if not match:
                    self.wrong.append(f"{commit}: {files}")
                elif not self.seen or self.seen[-1] != match[0]:
                    self.seen.append(match[0])
                time.sleep(0.004)


def pollers(server, known):
    port = s3_port(server)

    def get(client, target, to=None):
        r = client.get(to or server.port, target)
        assert r.status == 200, f"{target}: {r.status}"
        return r

    def model(client):
        answer = get(client, "/models/org/m").json()
        return {f["path"]: f["size"] for f in answer["files"]}, answer["revision"]

    def tree(client):
        return {f["path"]: f["size"] for f in get(client, "/api/models/org/m/tree/main?recursive=true").json()
                if f["type"] == "file"}, None

    def siblings(client):
        answer = get(client, "/api/models/org/m?blobs=true").json()
        return {f["rfilename"]: f["size"] for f in answer["siblings"]}, answer["sha"]

    def keys(client):
        document = ET.fromstring(get(client, "/org?list-type=2&prefix=m/", port).body)
        space = document.tag[:document.tag.index("}") + 1]
        return {c.find(space + "Key").text[len("m/"):]: int(c.find(space + "Size").text)
                for c in document.findall(space + "Contents")}, None

    def refs(client):
        commit = get(client, "/api/models/org/m/refs").json()["branches"][0]["targetCommit"]
        assert "main" in get(client, "/v2/org/m/tags/list").json()["tags"]
        return known.get(commit), commit

    return [Poller(f.__name__, f, known) for f in (model, tree, siblings, keys, refs)]


# shows: security.md file-commit-being-made
@pytest.mark.parametrize("watch", ["on", "off"])
def test_every_answer_is_of_one_commit(tmp_path, watch):
    root = tmp_path / "root"
    cache = Cache(root)
    first = cache.commit(0, "client")
    age(root)
    with Server(root, "--s3-listen", "127.0.0.1:0", settle="1", rescan="0.05", watch=watch) as s:
        s.wait_for(lambda: s.get("/models/org/m").status == 200, "the first commit is shown")
        threads = pollers(s, cache.known)
        for thread in threads:
            thread.start()

        def shown(commit):
            s.wait_for(lambda: s.json("/models/org/m")["revision"] == commit, f"{commit} is shown", timeout=30)
            time.sleep(0.1)
        orders = ["client", "reverse", "rename"]
        for number in range(1, 7):
            before = cache.known.copy()
            shown(cache.commit(number, orders[number % 3]))
            if number % 2 == 0:                              # back, and the commit before is removed
                cache.ref(first)
                shown(first)
                for old in set(before) - {first}:
                    shutil.rmtree(cache.dir / "snapshots" / old, ignore_errors=True)
        for thread in threads:
            thread.ended.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
            assert not thread.wrong, f"{thread.name}: {len(thread.wrong)} wrong answers, such as {thread.wrong[:3]}"
            assert set(thread.seen) == set(cache.known), f"{thread.name} saw {thread.seen}"
