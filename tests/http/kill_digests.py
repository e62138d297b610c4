"""Kills a server again and again while it hashes and writes its log of digests, and checks the log.

After each kill every record of the log's good part must have the right digest of the file with that identity, and the
next start must succeed. Files change before each start. Now and then the log is filled with digests of files that do
not exist, so that the server rewrites it. At the end a server runs undisturbed, and everything is compared again. By
hand:

    python tests/http/kill_digests.py --runs 1000 --seed 7
"""
import argparse
import hashlib
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import Server, age, pattern  # noqa: E402

HEADER = b"tdigests" + struct.pack("<II", 1, 0x01020304)
BODY = struct.Struct("<IIQQQqq32s")
FILES = 800


class Wrong(AssertionError):
    pass


def identity(st):
    return st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns


def record(id, digest):
    body = BODY.pack(BODY.size + 8, 1, *id, digest)
    return body + struct.pack("<II", zlib.crc32(body), 0)


def read_log(path):
    """Return {identity: digest} of the good part of the log, read as catalog/digests/digest_log.h describes it."""
    data = path.read_bytes() if path.exists() else b""
    known = {}
    if data[:16] != HEADER:
        return known
    for at in range(16, len(data) - BODY.size - 7, BODY.size + 8):
        body, (crc, zero) = data[at:at + BODY.size], struct.unpack_from("<II", data, at + BODY.size)
        size, kind, *id, digest = BODY.unpack(body)
        if (size, kind, zero, crc) != (BODY.size + 8, 1, 0, zlib.crc32(body)):
            break
        known[tuple(id)] = digest
    return known


class Place:
    def __init__(self, tmp, seed):
        self.random = random.Random(seed)
        self.root, self.state = Path(tmp) / "root", Path(tmp) / "state"
        (self.root / "m").mkdir(parents=True)
        self.state.mkdir(mode=0o700)
        self.log = self.state / "digests"
        self.contents = {}
        for i in range(FILES):
            self.change(i)

    def change(self, i):
        path = self.root / "m" / f"{i}.bin"
        data = pattern(self.random.choice((0, 1, 3000, 200000)), self.random.randrange(1 << 30))
        path.write_bytes(data)
        age(path)
        self.contents[identity(path.stat())] = hashlib.sha256(data).digest()

    def disturb(self):
        for i in self.random.sample(range(FILES), 300):
            self.change(i)
        if self.random.random() < 0.3:
            gone = [record((1, self.random.randrange(1 << 60), 2, 3, 4), bytes(32)) for _ in range(2 * FILES + 10001)]
            good = read_log(self.log)
            self.log.write_bytes(HEADER + b"".join(record(id, digest) for id, digest in good.items()) + b"".join(gone))
            os.chmod(self.log, 0o600)

    def check(self):
        """Return how many digests of existing files are kept. No digest may be wrong, not even of a file that is
        gone."""
        known = read_log(self.log)
        for id, digest in known.items():
            if id in self.contents and self.contents[id] != digest:
                raise Wrong(f"the digest kept for {id} is wrong")
        return sum(1 for i in range(FILES) if identity((self.root / "m" / f"{i}.bin").stat()) in known)


def run(runs, seed, binary=None, out=print):
    tmp = tempfile.mkdtemp(prefix="tensord-kill-")
    kept = []
    try:
        place = Place(tmp, seed)
        for _ in range(runs):
            place.disturb()
            server = Server(place.root, "--state-dir", place.state, binary=binary, ready=False, hash_threads=2,
                            rescan="0.2", access_log="off")
            time.sleep(place.random.random() ** 2 * 0.4)
            server.kill()
            server.check_stderr()
            shutil.rmtree(server.tmp)
            kept.append(place.check())
        server = Server(place.root, "--state-dir", place.state, binary=binary, hash_threads=2)
        server.wait_for(lambda: server.gauge("tensord_hashed_files") == FILES, "all is hashed", 60)
        server.stop()
        checked = subprocess.run([str(server.binary), "verify", str(place.root), "--state-dir", str(place.state)],
                                 capture_output=True, text=True, timeout=300)
        halfway = sum(1 for n in kept if n < FILES)
        out(f"{runs} kills, {halfway} of them before all was kept, then from {min(kept)} on; "
            f"{checked.stdout.splitlines()[-1]}")
        if checked.returncode != 0 or f"{FILES} compared with recorded digests" not in checked.stdout:
            raise Wrong(f"seed {seed}: {checked.stdout}{checked.stderr}")
        return kept
    finally:
        shutil.rmtree(tmp, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--runs", type=int, default=1000)
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--binary", default=None)
    a = p.parse_args()
    seed = a.seed if a.seed is not None else int(time.time())
    print(f"seed {seed}")
    run(a.runs, seed, a.binary)


if __name__ == "__main__":
    main()
