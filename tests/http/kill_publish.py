"""Kills a publishing server again and again during pushes, and checks what is on the disk and what is served.

After each kill the model is at the commit of the last push that was answered, or at that of the push that was under
way, and whole: every file has the bytes of that version. What was answered as complete is sent no second time. Now and
then the model is deleted. At the end, nothing of an unfinished push is left but blobs that expire. By hand:

    python tests/http/kill_publish.py --runs 200 --seed 7
"""
import argparse
import contextlib
import hashlib
import http.client
import json
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import Server, pattern  # noqa: E402
from publishing import PIECE, Repo, digest  # noqa: E402

CUT = (OSError, http.client.HTTPException)


class Wrong(AssertionError):
    pass


def check(right, *what):
    if not right:
        raise Wrong(*what)


class Model:
    """The model that is pushed. One of the versions in `allowed` must be served (None: no model)."""

    def __init__(self, seed):
        self.random, self.number = random.Random(seed), 0
        self.allowed = [None]
        self.sent = set()       # digests of blobs that were answered as complete, and that a version since needs

    def next_version(self):
        self.number += 1
        count = self.random.randrange(3, 30)
        sizes = [self.random.choice((0, 1, 5000, 300_000, 3 * PIECE + 5)) for _ in range(count)]
        return {"config.json": b"{}" + b" " * self.number,
                **{f"d{i % 4}/{i}.dat": pattern(n, self.number * 1000 + i) for i, n in enumerate(sizes)}}

    def write(self, port):
        """Push versions until the server dies."""
        repo = Repo(port, "org/m", timeout=20)
        with contextlib.suppress(CUT):
            while True:
                if self.allowed[-1] is not None and self.random.random() < 0.15:
                    self.allowed.append(None)
                    answer = repo.ask("DELETE")
                    check(answer.status == 204, answer)
                    self.allowed, self.sent = [None], set()
                    continue
                files = self.next_version()
                self.allowed.append(files)
                self.push(repo, files)
                self.allowed = [files]

    def push(self, repo, files):
        answer = repo.commit(files)
        if answer.status == 409:
            by_digest = {digest(d): d for d in files.values()}
            for blob in answer.error()["details"]["missing"]:
                data = by_digest[blob["digest"]]
                if self.random.random() < 0.5 or len(data) <= PIECE:
                    put = repo.put(data)
                else:
                    for first in range(0, len(data), PIECE):
                        put = repo.piece(data, first, min(first + PIECE, len(data)) - 1)
                check(put.status in (200, 201), put)
                self.sent.add(blob["digest"])
            answer = repo.commit(files)
        check(answer.status == 201, answer)

    def verify(self, server):
        """Check what is served after a restart."""
        repo = Repo(server.port, "org/m")
        answer = repo.ask("GET")
        if answer.status == 404:
            check(None in self.allowed, "the model has gone", server.stderr()[-2000:])
            if self.allowed[-1] is None:        # the deletion that was under way was made
                self.sent = set()
            self.allowed = [None]
            return
        names = {f["path"]: f["size"] for f in answer.json()["files"]}
        now = [v for v in self.allowed if v is not None and {p: len(d) for p, d in v.items()} == names]
        check(len(now) == 1, "another set of files than any version", names)
        for path, data in now[0].items():
            got = repo.file(path)
            check(got.status == 200 and got.body == data, path, got.status)
        self.allowed = now

    def verify_resume(self, server, left):
        """Push what was cut once more: what was answered as complete is not missing."""
        if left is None:
            return
        repo = Repo(server.port, "org/m")
        answer = repo.commit(left)
        if answer.status == 409:
            lost = {m["digest"] for m in answer.error()["details"]["missing"]} & self.sent
            check(not lost, "blobs were lost", lost)
        answer, _ = repo.push(left)
        check(answer.status in (200, 201), answer)
        self.allowed = [left]
        self.verify(server)


def verify_disk(root):
    for blob in root.glob("models--*/blobs/[0-9a-f]*"):
        check(hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name, blob)
    check(os.listdir(root / ".tensord-publish/incoming") == [], "incoming")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    print("seed", args.seed, digest(b""), flush=True)
    folder = args.folder or Path(tempfile.mkdtemp(prefix="tensord-kill-publish-"))
    root = folder / "root"
    root.mkdir()
    model = Model(args.seed)
    moved = 0
    for run in range(args.runs):
        server = Server(root, "--publish", "local", hash_threads=0, settle="30", timeout=60)
        before = model.number
        writer = threading.Thread(target=model.write, args=(server.port,))
        writer.start()
        time.sleep(model.random.random() ** 2 * 1.5)
        server.kill()
        writer.join(60)
        check(not writer.is_alive())
        moved += model.number - before
        left = model.allowed[-1]
        server = Server(root, "--publish", "local", hash_threads=0, settle="0.05", timeout=60)
        verify_disk(root)
        server.wait_ready(60)
        model.verify(server)
        if model.random.random() < 0.5:
            model.verify_resume(server, left)
        server.stop()
        if (run + 1) % 10 == 0:
            print(f"{run + 1} of {args.runs} runs, {moved} versions", file=sys.stderr, flush=True)
    verify_disk(root)
    print(json.dumps({"runs": args.runs, "versions": moved}))


if __name__ == "__main__":
    main()
