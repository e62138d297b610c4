"""Pushes while readers ask every face, of the publishing server and of another one over the same directory: each answer
is of one commit, whole. And the server is killed during pushes."""
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from harness import Conn, KeepAlive, Server, repeats, s3_port
from kill_publish import Model
from publishing import PIECE, Repo, digest


class Deleted(Exception):
    pass


class Poller(threading.Thread):
    """Asks one face again and again, over one connection. An answer must be one of the sets of files that were ordered,
    or none of them."""

    def __init__(self, name, ask, known):
        super().__init__(name=name, daemon=True)
        self.ask, self.known, self.over = ask, known, threading.Event()
        self.wrong, self.seen = [], set()

    def run(self):
        with KeepAlive(timeout=60) as client:
            while not self.over.is_set():
                try:
                    found = self.ask(client)
                except Deleted:
                    continue
                number = self.known.get(found)
                if number is None:
                    self.wrong.append(found)
                self.seen.add(number)
                time.sleep(0.002)

    def await_seen(self, number, seconds=60):
        until = time.monotonic() + seconds
        while number not in self.seen:
            assert time.monotonic() < until, (self.name, number, self.seen)
            time.sleep(0.01)

    def stop(self):
        self.over.set()
        self.join(60)
        assert not self.is_alive() and not self.wrong, (self.name, self.wrong[:2])


def key(files):
    """A set of files, by their paths and sizes: every version has other sizes."""
    return frozenset((path, len(data)) for path, data in files.items())


def faces(server, who):
    """Functions that each ask one face for the model's files, with a client or over a new connection."""
    s3 = s3_port(server)

    def get(client, target, port=server.port):
        if client:
            r = client.get(port, target)
        else:
            with Conn(port, timeout=60) as c:
                r = c.request(target)
        if r.status == 503:         # its files went with the model, between the answer's beginning and its end
            assert "changed since it was indexed" in r.body.decode(), r
            raise Deleted
        assert r.status in (200, 404), r
        return r

    def native(client=None):
        r = get(client, "/models/org/m")
        return frozenset((f["path"], f["size"]) for f in r.json()["files"]) if r.status == 200 else frozenset()

    def tree(client=None):
        r = get(client, "/api/models/org/m/tree/main?recursive=true")
        return frozenset((f["path"], f["size"]) for f in r.json() if f["type"] == "file") if r.status == 200 \
            else frozenset()

    def siblings(client=None):
        r = get(client, "/api/models/org/m?blobs=true")
        return frozenset((f["rfilename"], f["size"]) for f in r.json()["siblings"]) if r.status == 200 else frozenset()

    def keys(client=None):
        r = get(client, "/org?list-type=2&prefix=m/", s3)
        if r.status == 404:
            return frozenset()
        page = ET.fromstring(r.body)
        space = page.tag[:page.tag.index("}") + 1]
        return frozenset((c.find(space + "Key").text[len("m/"):], int(c.find(space + "Size").text))
                         for c in page.findall(space + "Contents"))

    return [(f"{who} {f.__name__}", f) for f in (native, tree, siblings, keys)]


def shows(ask, files):
    """Whether a face shows these files now."""
    try:
        return ask() == files
    except Deleted:
        return False


def version(number, count=30):
    """Files of a version: some names are in every version, some in a few; every size says the version."""
    names = [f"d{i % 3}/f{i:02}.dat" for i in range(count) if (number + i) % 5 != 0]
    return {"config.json": b"{}" + b" " * number, **{n: os.urandom(1000 + number) for n in names}}


# Each of the 15 combinations of n % 3 and n % 5 comes once.
# shows: security.md file-commit-being-made publish-readers
@pytest.mark.parametrize("watch, rounds", [("on", repeats(15, 50)), ("off", repeats(15, 20))])
def test_never_half(tmp_path, watch, rounds):
    versions = [version(n) for n in range(rounds)]
    known = {frozenset(): "none", **{key(v): n for n, v in enumerate(versions)}}
    with Server(tmp_path, "--publish", "local", "--s3-listen", "127.0.0.1:0", settle="30", watch=watch) as s, \
            Server(tmp_path, "--s3-listen", "127.0.0.1:0", settle="0.2", watch=watch, rescan="0.3") as reader:
        pollers = [Poller(name, ask, known) for name, ask in faces(s, "own") + faces(reader, "reader")]
        [p.start() for p in pollers]
        repo, chance = Repo(s.port, "org/m"), random.Random(7)
        mine = dict(faces(s, "own"))
        for n, files in enumerate(versions):
            answer, _ = repo.push(files)
            assert answer.status == 201, answer
            if n % 5 == 1:          # rolled back to the version before
                assert repo.commit(versions[n - 1]).status == 201
                files = versions[n - 1]
            elif n % 5 == 3:
                assert repo.ask("DELETE").status == 204
                files = {}
            elif n % 5 == 4:        # the same again
                assert repo.commit(files).status == 200
            wanted = key(files)
            if n % 3 == 0:      # a reader that scans sees these versions, too
                [p.await_seen(known[wanted]) for p in pollers]
            for name in chance.sample(sorted(mine), 2):
                assert mine[name]() == wanted, (n, name)        # shown when the answer has come
        last = key(files)
        until = time.monotonic() + 3
        theirs = dict(faces(reader, "reader"))
        while not all(shows(ask, last) for ask in theirs.values()):
            assert time.monotonic() < until + (30 if os.environ.get("TENSORD_SLOW") else 7), "the reader is too late"
            time.sleep(0.05)
        [p.stop() for p in pollers]
        for p in pollers:
            assert len(p.seen) > 5, (p.name, p.seen)
        for path, data in files.items():
            assert repo.file(path).body == data


# shows: security.md publish-readers
def test_open_readers_keep_what_they_read(tmp_path, start):
    """A reader of a version that was replaced gets all of its bytes."""
    s = start(tmp_path, "--publish", "local", settle="30")
    repo = Repo(s.port, "org/m")
    old = os.urandom(3_000_000)
    assert repo.push({"config.json": b"{}", "w.dat": old})[0].status == 201
    with Conn(s.port) as c:
        c.send(b"GET /models/org/m/files/w.dat HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.1)
        assert repo.push({"config.json": b"{}", "w.dat": b"new"})[0].status == 201
        assert repo.file("w.dat").body == b"new"
        answer = c.read_response("GET", "the old version")
    assert answer.status == 200 and hashlib.sha256(answer.body).digest() == hashlib.sha256(old).digest()
    at = repo.commits()["commits"][-1]["commit"]
    assert Repo(s.port, f"org/m@{at}").file("w.dat").body == old


class Recorded(Model):
    """Notes every version that it pushes."""

    def __init__(self, seed):
        super().__init__(seed)
        self.known = {frozenset(): 0}

    def next_version(self):
        files = super().next_version()
        self.known[key(files)] = self.number
        return files


class TakingOver(threading.Thread):
    """Starts a server that publishes to a directory again and again, until it can."""

    def __init__(self, root):
        super().__init__(daemon=True)
        self.root, self.refusals, self.server, self.over = root, [], None, threading.Event()

    def run(self):
        while self.server is None and not self.over.is_set():
            try:
                self.server = Server(self.root, "--publish", "local", settle="0.2", hash_threads=0, timeout=60)
            except AssertionError as e:
                self.refusals.append(str(e))
                time.sleep(0.05)


# shows: security.md publish-takeover
def test_a_standby_takes_over(tmp_path):
    """The publisher is killed during pushes, three times, and each time a server that waits for its place publishes
    from then on: it has what was acknowledged, and resumes what was cut. A reader over the same directory, which runs
    all the time, shows whole versions alone."""
    model = Recorded(random.randrange(1 << 30))
    with Server(tmp_path, "--s3-listen", "127.0.0.1:0", settle="0.2", rescan="0.3") as reader:
        pollers = [Poller(name, ask, model.known) for name, ask in faces(reader, "reader")]
        [p.start() for p in pollers]
        server = Server(tmp_path, "--publish", "local", settle="30", hash_threads=0)
        for _ in range(3):
            standby = TakingOver(tmp_path)
            standby.start()
            writer = threading.Thread(target=model.write, args=(server.port,))
            writer.start()
            number = model.number
            server.wait_for(lambda: model.number >= number + 4 and standby.refusals, "pushes, and a try to start", 60)
            server.kill()
            writer.join(60)
            standby.join(60)
            standby.over.set()
            assert not writer.is_alive() and standby.server, standby.refusals[-1:]
            for said in standby.refusals:
                assert "ended with 1 before" in said and "another tensord with --publish serves" in said and \
                    "others serve it without this option" in said, said
            server, left = standby.server, model.allowed[-1]
            model.verify(server)
            model.verify_resume(server, left)
        last = key(model.allowed[-1]) if model.allowed[-1] else frozenset()
        theirs = dict(faces(reader, "reader"))
        reader.wait_for(lambda: all(shows(ask, last) for ask in theirs.values()), "the last version is shown", 30)
        server.stop()
        [p.stop() for p in pollers]
        assert all(len(p.seen) > 3 for p in pollers), [p.seen for p in pollers]


def test_a_copy_of_the_directory(tmp_path):
    """docs/scaling.md: a copy that is made while the publisher runs, with and without its own folder, has what was
    committed, and a server publishes to it."""
    root = tmp_path / "root"
    root.mkdir()
    files = {"config.json": b"{}", "w.dat": os.urandom(600_000)}
    with Server(root, "--publish", "local") as s:
        repo = Repo(s.port, "org/m")
        commit = repo.push(files)[0].json()["commit"]
        half = os.urandom(2 * PIECE)
        assert repo.piece(half, 0, PIECE - 1).status == 202
        for name, left_out in (("whole", ()), ("without", (".tensord-publish",))):
            shutil.copytree(root, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns(*left_out))
    for name in ("whole", "without"):
        with Server(tmp_path / name, "--publish", "local") as s:
            repo = Repo(s.port, "org/m")
            assert repo.main() == commit and repo.file("w.dat").body == files["w.dat"]
            assert repo.piece(half, PIECE, 2 * PIECE - 1).status == 201     # resumed
            assert repo.push({**files, "x": half})[0].status == 201 and repo.file("x").body == half


def test_kill(tmp_path):
    """tests/http/kill_publish.py with more runs is the long test."""
    script = Path(__file__).with_name("kill_publish.py")
    done = subprocess.run([sys.executable, script, "--runs", "6", "--seed", str(random.randrange(1 << 30)),
                           "--folder", tmp_path], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1])["runs"] == 6 and digest(b"") in done.stdout
