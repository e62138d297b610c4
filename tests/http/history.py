"""A history check for a server of files that change (in the manner of Jepsen).

Every 8-byte word of a test file is an invertible mix of (file, generation, offset), so every word names the generation
it belongs to. Seeded writers publish generations: by rename, in place, by truncation and rewriting, by unlinking and
creating; some put the mtime back afterwards, so that all generations of a file have one mtime and one size; and some
change only metadata (mode, links, a copy renamed over the file), which changes the ctime as a write does. Clients
record their requests and the answers. Then the history is checked:

  I1  a complete 200 or 206 holds one generation only (a broken connection is allowed to writers in place, to nobody
      else)
  I2  one ETag of one target never labels two byte strings
  I3  a request begun after a publication plus the staleness bound never sees an older generation; and what one answer
      has shown, no later request un-sees
  I4  If-Range with an old ETag never yields a 206 of new bytes
  I5  HEAD, manifest and GET agree for one ETag
  I6  304 only if that ETag is current (by the measure of I3)

and at the end the numbers of descriptors, threads, mappings and bytes of memory are those of the start. By hand:

    python tests/http/history.py --seconds 600 --seed 7
    python tests/http/history.py --seconds 600 --seed 7 -- --leases off
    python tests/http/history.py --seconds 600 --seed 7 --another-user
"""
import argparse
import collections
import json
import os
import random
import shutil
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import Conn, Incomplete, ProtocolError, Server, as_nobody, is_sanitized, parse_multipart  # noqa: E402

MASK = (1 << 64) - 1
TENSORS = 4
RESCAN, SETTLE = 1.0, 0.4                 # the writers' pauses within one file stay well below the settle time
SLACK = 2.0                               # scheduling of two busy cores, and the scan itself
BOUND = RESCAN + SETTLE + SLACK

# name, how it is written, bytes of data
FILES = [
    ("constant", "never", 256 << 10),
    ("renamed", "rename", 1 << 20),
    ("inplace-small", "inplace", 64 << 10),
    ("inplace-large", "inplace", 8 << 20),
    ("truncated", "truncate", 512 << 10),
    ("unlinked", "unlink", 256 << 10),
    ("everything", "mixed", 2 << 20),
    ("restored-small", "restore", 64 << 10),
    ("restored-large", "restore", 8 << 20),
    ("restored-truncated", "restore-truncate", 512 << 10),
    ("restored-everything", "restore-mixed", 2 << 20),
    ("touched", "touch", 1 << 20),
]
MIXED = {"mixed": ["rename", "inplace", "truncate", "unlink"],
         "restore-mixed": ["restore-rename", "restore", "restore-truncate", "restore-unlink", "touch", "touch"]}
UNBROKEN = {"never", "rename", "unlink",
            "touch"}  # running answers of these files must finish: no inode's bytes ever change


def mix(x):
    """splitmix64's finalizer: every bit of (generation, file, offset) reaches every byte of the word."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def unmix(x):
    def inv(v, s):                                   # of v ^ (v >> s)
        r = v
        for _ in range(64 // s + 1):
            r = v ^ (r >> s)
        return r & MASK
    x = inv(x, 31)
    x = x * pow(0x94D049BB133111EB, -1, 1 << 64) & MASK
    x = inv(x, 27)
    x = x * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & MASK
    return inv(x, 30)


class File:
    """One served file and its generations."""

    def __init__(self, root, index, name, how, nbytes):
        self.index, self.name, self.how, self.nbytes = index, name, how, nbytes
        self.path = Path(root) / name / "model.safetensors"
        self.path.parent.mkdir(parents=True)
        self.base = len(self.header(0))
        self.size = self.base + nbytes
        self.cache, self.lock = collections.OrderedDict(), threading.Lock()
        self.published = []                   # (generation, begun, ended, how)
        self.stalls = []  # (from, to): a writer's pause within one generation beyond the settle time
        self.gen = self.touches = 0
        quarter = nbytes // TENSORS
        self.targets = {f"/models/{name}/files/model.safetensors": (0, self.size)}
        for i in range(TENSORS):
            self.targets[f"/models/{name}/tensors/w{i}"] = (self.base + i * quarter, self.base + (i + 1) * quarter)

    def header(self, gen):
        quarter = self.nbytes // TENSORS
        head = {"__metadata__": {"file": f"{self.index:04d}", "gen": f"{gen:010d}"}}
        for i in range(TENSORS):
            head[f"w{i}"] = {"dtype": "U64", "shape": [quarter // 8], "data_offsets": [i * quarter, (i + 1) * quarter]}
        raw = json.dumps(head).encode()
        raw += b" " * (-(8 + len(raw)) % 64)
        return struct.pack("<Q", len(raw)) + raw

    def content(self, gen):
        """Return the whole file of one generation."""
        with self.lock:
            if gen in self.cache:
                self.cache.move_to_end(gen)
                return self.cache[gen]
        x = np.arange(self.nbytes // 8, dtype=np.uint64) | np.uint64((gen << 40) | (self.index << 32))
        raw = self.header(gen) + mix(x).astype("<u8").tobytes()
        with self.lock:
            self.cache[gen] = raw
            while len(self.cache) > 6:
                self.cache.popitem(last=False)
        return raw

    def piece(self, gen, start, end):
        """Return bytes start..end of one generation, without making the whole file."""
        if end - start > 4096 or gen in self.cache:
            return self.content(gen)[start:end]
        head = self.header(gen)
        first = max(0, start - self.base) // 8
        x = np.arange(first, max(first, -(-(end - self.base) // 8)),
                      dtype=np.uint64) | np.uint64((gen << 40) | (self.index << 32))
        raw = mix(x).astype("<u8").tobytes()
        if start < self.base:
            return (head + raw)[start:end]
        skip = start - self.base - 8 * first
        return raw[skip:skip + end - start]

    def generations_of(self, start, data):
        """Return the generations that bytes at `start` of the file can be of: usually one; none for a mixture or
        garbage."""
        at = max(self.base, -(-start // 8) * 8)
        if at + 8 <= start + len(data):
            word = unmix(struct.unpack("<Q", data[at - start:at - start + 8])[0])
            gen, file, index = word >> 40, word >> 32 & 0xFF, word & 0xFFFFFFFF
            if file != self.index or index != (at - self.base) // 8 or gen > self.gen:
                return frozenset()
            candidates = [gen]
        else:
            candidates = range(max(0, self.gen - 60), self.gen + 1)
        return frozenset(g for g in candidates if self.piece(g, start, start + len(data)) == data)

    def describe(self, start, data):
        """Describe a violation: the runs of generations within a body."""
        runs, last = [], None
        at = max(self.base, -(-start // 8) * 8)
        while at + 8 <= start + len(data) and len(runs) < 12:
            raw = data[at - start:at - start + 8]
            word = unmix(struct.unpack("<Q", raw)[0])
            gen, file, index = word >> 40, word >> 32 & 0xFF, word & 0xFFFFFFFF
            label = f"gen {gen}" if file == self.index and index == (at - self.base) // 8 else \
                f"file {file} gen {gen} word {index}" if gen <= self.gen and file < len(FILES) else \
                "zeros" if raw == bytes(8) else "garbage"
            if label != last:
                runs.append(f"{label} from byte {at}")
                last = label
            at += 8
        return "; ".join(runs)


class Writer(threading.Thread):
    def __init__(self, f, seed, stop):
        super().__init__(daemon=True)
        self.f, self.rng, self.halt = f, random.Random(f"{seed}/{f.name}"), stop
        self.error = None
        self.paced = 0.0                                   # when the last step of this generation was begun or done

    def pace(self):
        """Run after each step of writing: the machine may have delayed this thread for longer than files need to
        settle. The server is then right to publish the file as it is."""
        now = time.monotonic()
        if now - self.paced > SETTLE:
            self.f.stalls.append((self.paced, now))
        self.paced = now

    def touch(self):
        """Change metadata alone: the mode, a second name, a copy in the file's place."""
        f, self.f.touches = self.f, self.f.touches + 1
        other = f.path.parent / ".other"
        how = self.rng.choice(["mode", "mode", "link", "copy"])
        if how == "mode":
            f.path.chmod(self.rng.choice([0o604, 0o644, 0o664]))
        elif how == "link":
            os.link(f.path, other)
            time.sleep(self.rng.random() * 0.1)
            os.unlink(other)
        else:
            shutil.copy2(f.path, other)
            os.rename(other, f.path)

    def publish(self, how):
        """Publish one generation, or change metadata; "restore-..." sets the mtime back."""
        if how == "touch":
            return self.touch()
        times = self.f.path.stat()
        self.write(how.removeprefix("restore-") if how != "restore" else "inplace")
        if how.startswith("restore"):
            os.utime(self.f.path, ns=(times.st_atime_ns, times.st_mtime_ns))
        gen, begun = self.f.gen, self.begun
        self.f.published.append((gen, begun, time.monotonic(), how))
        return None

    def write(self, how):
        f = self.f
        gen = f.gen + 1
        raw = f.content(gen)
        f.gen = gen                                    # from now on its bytes may be seen
        self.begun = self.paced = time.monotonic()
        if how == "rename":
            tmp = f.path.parent / f".model.safetensors.{gen}"
            tmp.write_bytes(raw)
            if f.how.startswith("restore"):
                shutil.copystat(f.path, tmp)
            os.rename(tmp, f.path)
        elif how == "inplace":
            with open(f.path, "r+b", buffering=0) as out:
                self.paced = time.monotonic()               # opening waits for those who have not read their answers
                self.spill(out, raw)
        elif how == "truncate":
            with open(f.path, "wb", buffering=0) as out:
                self.paced = time.monotonic()
                self.spill(out, raw)
        elif how == "unlink":
            os.unlink(f.path)
            if self.rng.random() < 0.5:
                time.sleep(self.rng.random() * 0.3)
            self.paced = time.monotonic()
            with open(f.path, "wb", buffering=0) as out:
                self.spill(out, raw)

    def spill(self, out, raw):
        chunk = self.rng.choice([4096, 65536, 1 << 20, len(raw)])
        order = list(range(0, len(raw), chunk))
        for at in order:
            out.write(raw[at:at + chunk])
            self.pace()
            if self.rng.random() < 4 / len(order):
                time.sleep(self.rng.random() * 0.02)

    def run(self):
        try:
            while not self.halt.is_set():
                self.publish(self.rng.choice(MIXED.get(self.f.how, [self.f.how])))
                k = self.rng.random()
                pause = self.rng.random() * 0.05 if k < 0.25 else self.rng.random(
                ) * 1.5 if k < 0.75 else BOUND + 2 * self.rng.random()
                self.halt.wait(pause)
        except Exception as e:                             # a fault of the test itself
            self.error = e


Record = collections.namedtuple("Record",
                                "t0 t1 client file target op sent_etag sent_range status etag gens whole note")


class Client(threading.Thread):
    """Sends random requests and keeps the records.
    kind: fast, slow (pauses inside bodies), late (reads only when the answer has lain in its socket for a while), or
    keen (manifests, HEAD, validators)."""

    def __init__(self, number, kind, port, files, seed, stop, known, lock):
        super().__init__(daemon=True)
        self.number, self.kind, self.port, self.files = number, kind, port, files
        self.rng, self.halt = random.Random(f"{seed}/client{number}"), stop
        self.known = known                                  # target -> recent ETags, shared
        self.lock = lock
        self.records, self.bytes, self.error = [], 0, None
        self.conn = self.before = None

    def run(self):
        try:
            while not self.halt.is_set():
                self.step()
        except Exception as e:
            self.error = e
        if self.conn:
            self.conn.close()

    def connection(self):
        if self.conn is None or self.conn.eof:
            self.conn = Conn(self.port, timeout=30, rcvbuf={"slow": 1 << 17, "late": 1 << 20}.get(self.kind))
            self.before = None                              # how the writer changes the last answer's file
        return self.conn

    def drop(self):
        if self.conn:
            self.conn.close()
        self.conn = self.before = None

    def stale(self, e):
        """Return whether the connection closed without a byte after an answer from a file that changes in place: the
        cut of that transfer came just after its end. RFC 9112 9.3.1 has clients repeat such a request."""
        return isinstance(e, (Incomplete, ConnectionError)) and getattr(e, "response", None) is None and \
            self.before is not None and self.before not in UNBROKEN

    def read_slowly(self, c, head):
        """Read the body in pieces with pauses, so that writers come in between."""
        want, parts = head.length, []
        while want:
            n = min(want, self.rng.choice([1000, 65536, 1 << 20]))
            try:
                parts.append(c.read_exact(n, head))
            except Incomplete as e:
                raise Incomplete(str(e), head, b"".join(parts) + e.body) from e
            want -= n
            if self.rng.random() < 0.3:
                time.sleep(self.rng.random() * 0.15)
        return b"".join(parts)

    def random_range(self, n):
        k = self.rng.random()
        if k < 0.1:
            return f"bytes=-{self.rng.randrange(1, 5000)}"
        if k < 0.2:
            return f"bytes={self.rng.randrange(n)}-"
        spans, at = [], 0
        for _ in range(1 if k < 0.85 else 3):
            a = at + self.rng.randrange(max(1, (n - at) // 2))
            b = min(n - 1, a + self.rng.choice([0, 7, 30, 4095, 65535, n]))
            spans.append(f"{a}-{b}")
            at = min(n - 1, b + 1000)
            if at >= n - 1:
                break
        return "bytes=" + ",".join(spans)

    def step(self):
        rng = self.rng
        f = rng.choice(self.files if self.kind != "slow" else [x for x in self.files if x.nbytes >= 1 << 20])
        if rng.random() < (0.25 if self.kind == "keen" else 0.03):
            return self.manifest(f)
        target = rng.choice(list(f.targets))
        if self.kind == "slow" and rng.random() < 0.5:  # more than the sockets hold, so that a writer comes in between
            target = f"/models/{f.name}/files/model.safetensors"
        start, end = f.targets[target]
        op, headers, sent_etag, sent_range, method = "get", [], None, None, "GET"
        tags = self.known[target]
        k = rng.random()
        if rng.random() < (0.3 if self.kind == "slow" else 0.7):
            sent_range = self.random_range(end - start)
            headers.append(("Range", sent_range))
        if tags and k < 0.55:
            sent_etag = rng.choice(list(tags)[-3:] if rng.random() < 0.7 else list(tags))
            op = rng.choice(["if-range", "if-range", "if-none-match", "if-match"])
            headers.append(({"if-range": "If-Range", "if-none-match": "If-None-Match", "if-match":
                             "If-Match"}[op], sent_etag))
        if k > (0.85 if self.kind == "keen" else 0.95):
            method, op = "HEAD", "head"
        leave = rng.random() < 0.02
        if rng.random() < 0.03:
            headers.append(("Connection", "close"))
        t0 = time.monotonic()
        note, whole, gens, status, etag = "", True, None, 0, None
        try:
            c = self.connection()
            c.send(b"%s %s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (method.encode(), target.encode(),
                   b"".join(b"%s: %s\r\n" % (a.encode(), b.encode()) for a, b in headers)))
            if leave:
                c.sock.recv(1)
                self.drop()
                return None
            if self.kind == "late" and rng.random() < 0.5:
                time.sleep(rng.random() * 2)
            if self.kind == "slow" and method == "GET":
                r = c.read_head(f"{method} {target} {headers}")
                status, etag = r.status, r.etag
                r.body = self.read_slowly(c, r) if r.status not in (204, 304) else b""
            else:
                r = c.read_response(method, f"{method} {target} {headers}")
            status, etag = r.status, r.etag
            t1 = time.monotonic()
            self.bytes += len(r.body)
            if status in (200, 206) and method == "GET":
                gens, note = self.judge(f, start, end, r, sent_range)
            elif status == 200:
                if r.length != end - start:
                    note = f"HEAD says {r.length} bytes, wanted {end - start}"
            elif status == 503:
                if r.get("Retry-After") is None:
                    note = "503 without Retry-After"
            self.before = f.how
            if "close" in r.get("Connection", "").lower():
                self.drop()
        except (Incomplete, ConnectionError, TimeoutError) as e:
            t1, whole, note = time.monotonic(), False, "stale" if self.stale(e) else repr(e)
            head = getattr(e, "response", None)
            status, etag = (head.status, head.etag) if head else (0, None)
            self.drop()
        except ProtocolError as e:
            t1, note, gens = time.monotonic(), f"protocol: {e}", frozenset()
            self.drop()
        if status in (200, 206) and etag and whole:
            with self.lock:
                if not tags or tags[-1] != etag:
                    if etag not in tags:
                        tags.append(etag)
        self.records.append(
            Record(t0, t1, self.number, f.index, target, op, sent_etag, sent_range, status, etag, gens, whole, note))
        return None

    def judge(self, f, start, end, r, sent_range):
        """Return the generations that a complete body can be of; none, and a note, for a mixture."""
        n = end - start
        if r.status == 200:
            pieces = [(0, r.body)]
            if len(r.body) != n:
                return frozenset(), f"a 200 of {len(r.body)} bytes, the target has {n}"
        elif (r.get("Content-Type") or "").startswith("multipart/"):
            pieces = [(a, data) for a, b, total, _, data in parse_multipart(r)]
        else:
            a, rest = r.get("Content-Range")[6:].split("-")
            b, total = rest.split("/")
            if int(total) != n or int(b) - int(a) + 1 != len(r.body):
                return frozenset(), f"Content-Range {r.get('Content-Range')}, {len(r.body)} bytes, the target has {n}"
            pieces = [(int(a), r.body)]
        gens = None
        for a, data in pieces:
            mine = f.generations_of(start + a, data)
            gens = mine if gens is None else gens & mine
        if not gens:
            return gens, "body: " + " | ".join(f.describe(start + a, d) for a, d in pieces)
        return gens, ""

    def manifest(self, f):
        t0 = time.monotonic()
        target = f"/models/{f.name}/tensors"
        gens, note, whole, etag = None, "", True, None
        try:
            r = self.connection().request(target)
            t1, status, etag = time.monotonic(), r.status, r.etag
            if status == 200:
                doc = r.json()
                etag = doc["etag"]
                gens = frozenset([int(doc["metadata"]["gen"])])
                for t in doc["tensors"]:
                    a, b = f.targets[t["href"]]
                    if (t["offset"], t["nbytes"]) != (a, b - a):
                        note = f"manifest says {t}"
                if len(doc["tensors"]) != TENSORS or note:
                    gens = frozenset()
            self.before = f.how
            if "close" in r.get("Connection", "").lower():
                self.drop()
        except (Incomplete, ConnectionError, TimeoutError) as e:
            t1, status, whole, note = time.monotonic(), 0, False, "stale" if self.stale(e) else repr(e)
            self.drop()
        self.records.append(
            Record(t0, t1, self.number, f.index, target + "#etag", "manifest", None, None, status, etag, gens, whole,
                   note))


class Violation(AssertionError):
    pass


def in_stall(f, r):
    """Return whether the answer falls into a time in which half a generation may be served as a version: its writer was
    delayed for longer than files need to settle."""
    return any(r.t1 >= begin and r.t0 <= end + BOUND for begin, end in f.stalls)


def check(files, records, began):
    """Check all invariants over the whole history. Return the violations as texts, each with the history around it."""
    found = []
    by_file = collections.defaultdict(list)
    for r in records:
        by_file[r.file].append(r)

    def report(what, r, f):
        near = [x for x in by_file[f.index] if abs(x.t0 - r.t0) < 1.5 or (x.etag and x.etag == r.etag)]
        near = sorted(near, key=lambda x: x.t0)
        at = near.index(r)
        lines = [
            f"VIOLATION {what}",
            f"  file {f.name} (written by: {f.how}), times in seconds since the start, bound {BOUND:.2f}"
        ]
        for gen, a, b, how in f.published:
            if a - began < r.t1 - began + 1 and b > r.t0 - 8:
                lines.append(f"  wrote  {a - began:9.4f} .. {b - began:9.4f}  generation {gen} by {how}")
        for x in near[max(0, at - 12):at + 8]:
            lines.append(("> " if x is r else "  ") +
                         f"client {x.client} {x.t0 - began:9.4f} .. {x.t1 - began:9.4f} {x.op} {x.target} "
                         f"{x.sent_range or ''} {x.sent_etag or ''} -> {x.status} {x.etag} generations "
                         f"{sorted(x.gens) if x.gens is not None else '-'}{'' if x.whole else ' BROKEN'} {x.note}")
        found.append("\n".join(lines))

    for f in files:
        mine = sorted((r for r in by_file[f.index] if not in_stall(f, r)), key=lambda r: r.t0)
        label = {}                                            # (target, etag) -> generations
        for r in mine:                                        # I1, statuses
            if r.gens is not None and not r.gens:
                report("I1: a complete answer is not one generation", r, f)
            elif r.note and r.whole:
                report("I5: " + r.note, r, f)
            if not r.whole:
                if f.how in UNBROKEN and r.note != "stale":
                    report("a broken transfer of a file whose bytes never changed", r, f)
                continue
            allowed = {
                "never": {200, 206, 304}, "rename": {200, 206, 304, 412, 503}, "inplace": {200, 206, 304, 412, 503},
                "touch": {200, 206, 304, 412, 503}
            }
            if r.status not in allowed.get(f.how, {200, 206, 304, 404, 412, 503}):
                if not (f.how == "inplace" and r.status == 404):
                    report(f"status {r.status} of a file written by {f.how}", r, f)
            if r.gens:                                        # I2
                key = (r.target, r.etag)
                have = label.get(key)
                if have is None:
                    label[key] = r.gens
                elif not have & r.gens:
                    report(f"I2: ETag {r.etag} labelled generation {sorted(have)} before", r, f)
                else:
                    label[key] = have & r.gens
        # what each answer showed of the file's age: bytes, or the ETag it vouched for
        shown = []
        for r in mine:
            if not r.whole:
                continue
            gens = r.gens
            if r.status == 304:
                gens = label.get((r.target, r.sent_etag))
                if r.etag is not None and r.etag != r.sent_etag:
                    report("I6: 304 with another ETag than was asked for", r, f)
            elif r.op == "head" and r.status == 200:
                gens = label.get((r.target, r.etag))
            if gens:
                shown.append((r, min(gens), max(gens)))        # a few bytes may fit several generations
            if r.op == "if-range" and r.status == 206 and r.sent_range:            # I4
                old = label.get((r.target, r.sent_etag))
                if r.etag != r.sent_etag or (old and r.gens and not old & r.gens):
                    report(
                        f"I4: If-Range {r.sent_etag} (generation {sorted(old) if old else '?'}) "
                        "gave a 206 of something else", r, f)
            if r.op == "if-match" and r.status in (200, 206) and r.etag != r.sent_etag:
                report("If-Match was answered with another ETag", r, f)
        pub = [(b, g) for g, a, b, how in f.published]
        ends = sorted((r.t1, low) for r, low, high in shown)
        i = j = newest = seen = 0
        for r, low, gen in shown:                                  # I3, I6; sorted by t0
            while i < len(pub) and pub[i][0] + BOUND < r.t0:
                newest = max(newest, pub[i][1])
                i += 1
            while j < len(ends) and ends[j][0] < r.t0:
                seen = max(seen, ends[j][1])
                j += 1
            which = "I6: a 304" if r.status == 304 else "I3: an answer"
            if gen < newest:
                report(f"{which} of generation {gen}, yet {newest} was published more than {BOUND:.2f} s before", r, f)
            if gen < seen:
                report(f"{which} of generation {gen}, yet an answer that ended before it began had shown {seen}", r, f)
    return found


def run(seconds, seed, clients=10, out=print, options=(), another_user=False):
    """Run writers and clients. another_user: the server is not the files' owner, so it gets no leases."""
    place = tempfile.mkdtemp(prefix="tensord-history-")
    os.chmod(place, 0o755)
    tmp = os.path.join(place, "root")
    files = [File(tmp, i, *spec) for i, spec in enumerate(FILES)]
    for f in files:
        f.path.write_bytes(f.content(0))
        f.published.append((0, time.monotonic(), time.monotonic(), "first"))
    old = time.time() - 60
    for f in files:
        os.utime(f.path, (old, old))
    server = Server(tmp, *options, settle=SETTLE, rescan=int(RESCAN), access_log="off",
                    binary=as_nobody(Path(place)) if another_user else None)
    try:
        def touch_all():
            for f in files:
                for t in f.targets:
                    server.get(t, {"Range": "bytes=0-99"})
                server.get(f"/models/{f.name}/tensors")
        for _ in range(3):
            touch_all()
        base = (len(server.fds()), server.threads(), server.anon_bytes())
        began = time.monotonic()
        halt_writers, halt_clients, lock = threading.Event(), threading.Event(), threading.Lock()
        known = collections.defaultdict(lambda: collections.deque(maxlen=12))
        for f in files:
            for t in f.targets:
                known[t] = collections.deque(maxlen=12)
        writers = [Writer(f, seed, halt_writers) for f in files if f.how != "never"]
        kinds = ["slow", "slow", "late", "late", "keen"] + ["fast"] * max(1, clients - 5)
        readers = [Client(i, k, server.port, files, seed, halt_clients, known, lock) for i, k in enumerate(kinds)]
        for t in writers + readers:
            t.start()
        while time.monotonic() - began < seconds and server.alive() and not any(t.error for t in writers + readers):
            time.sleep(0.2)
        halt_writers.set()
        for t in writers:
            t.join()
        time.sleep(BOUND + 0.5)                               # readers go on, so that the last generations must show
        halt_clients.set()
        for t in readers:
            t.join(60)
        for t in writers + readers:
            if t.error:
                raise t.error
        records = [r for c in readers for r in c.records]
        count = collections.Counter(
            (r.status if r.whole else "stale" if r.note == "stale" else "broken") for r in records)
        summary = (
            f"seed {seed}: {len(records)} answers in {time.monotonic() - began:.0f} s, "
            f"{sum(c.bytes for c in readers) >> 20} MiB, by status {dict(sorted(count.items(), key=str))}, "
            f"{sum(len(f.published) - 1 for f in files)} generations: "
            f"{ {f.name: len(f.published) - 1 for f in files} }, "
            f"{sum(len(f.published) - 1 for f in files if f.how.startswith('restore'))} of them "
            "with the mtime put back, "
            f"{sum(f.touches for f in files)} touches of metadata")
        out(summary)
        if not server.alive():
            raise Violation(
                f"seed {seed}: the server died with {server.proc.poll()}; stderr:\n{server.stderr()[-8000:]}")
        stalls = sum(len(f.stalls) for f in files)
        if stalls:
            unjudged = sum(in_stall(files[r.file], r) for r in records)
            out(f"{stalls} pauses of writers beyond the settle time of {SETTLE} s; "
                f"{unjudged} answers of their time are not judged")
            if unjudged > len(records) // 20:
                raise Violation(
                    f"{summary}\nthe machine is too starved for this check: {unjudged} answers cannot be judged")
        found = check(files, records, began)
        if found:
            raise Violation(f"{summary}\n{len(found)} violations with seed {seed}; the first:\n" +
                            "\n\n".join(found[:3]))
        for f in files:                                       # in the end everybody sees the last generation, whole
            for t, (a, b) in f.targets.items():
                r = server.get(t)
                if r.status != 200 or r.body != f.content(f.gen)[a:b]:
                    raise Violation(
                        f"seed {seed}: after the last write {t} is not generation {f.gen}: {r} {f.describe(a, r.body)}")
        if sum(1 for r in records if r.gens) < 10 * seconds:
            raise Violation(f"{summary}\ntoo few answers to mean anything")
        touch_all()
        settle = time.monotonic() + 8
        while True:
            now = (len(server.fds()), server.threads(), server.anon_bytes())
            deleted = [line for line in server.maps().splitlines() if "(deleted)" in line and str(tmp) in line]
            room = (192 << 20) if is_sanitized() else (16 << 20)
            good = now[0] <= base[0] and now[1] <= base[1] and now[2] <= base[2] + room and not deleted
            if good or time.monotonic() > settle:
                break
            time.sleep(0.2)
        out(f"descriptors {base[0]} -> {now[0]}, threads {base[1]} -> {now[1]}, "
            f"anonymous memory {base[2] >> 10} -> {now[2] >> 10} KiB, mappings of deleted files {len(deleted)}")
        if not good:
            raise Violation(f"seed {seed}: not back where it began (see the line above): {deleted[:3]} {server.fds()}")
        server.stop()
        return records
    except BaseException:
        server.kill()
        server.check_stderr()
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--clients", type=int, default=10)
    p.add_argument("--another-user", action="store_true", help="run the server as nobody (needs root)")
    p.add_argument("options", nargs="*", help="further options of the server, after --, such as -- --leases off")
    a = p.parse_args()
    seed = a.seed if a.seed is not None else int(time.time())
    try:
        run(a.seconds, seed, a.clients, options=a.options, another_user=a.another_user)
    except Violation as e:
        print(e)
        return 1
    print("no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
