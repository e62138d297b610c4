"""A history check for a server of files that change (in the manner of Jepsen).

Every 8-byte word of a test file is an invertible mix of (file, generation, offset), so every word names the generation
it belongs to. Seeded writers publish generations: by rename, in place with write() and through a mapping, by truncation
and rewriting, by unlinking and creating; some put the mtime back afterwards, so that all generations of a file have one
mtime and one size; and some change only metadata (mode, links, a copy renamed over the file), which changes the ctime
as a write does. Clients record their requests and the answers; some read in small pieces with pauses, some begin to
read when the answer has been in their socket for up to six seconds; some of these have shut down their sending side,
some are bound to an interface, some ask through a relay that moves references to pages (splice). Connections begin with
short requests, which the server gives to shared threads, or with long ones, which get threads of their own, and
continue with both. Then the history is checked:

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
    python tests/http/history.py --seconds 600 --seed 7 --namespace

There are two cases that docs/security.md names as open. A relay on the server's host has taken a complete answer from
its queue, but not yet passed it on, and a writer in place gets the file; not so with -- --sendfile remote. And with
--namespace the clients run in a network namespace of their own, which a veth pair connects with the server's: the
server cannot look into their sockets, so a client leaves a complete answer unread, and after the grace of 2 s a writer
in place gets the file. Answers that were changed in just these ways (`changed_as_named` has the rule) are counted and
printed, and are no violation of I1, I2 and I4.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import ctypes
import fcntl
import ipaddress
import json
import mmap
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import (Conn, Incomplete, ProtocolError, Server, SplicingRelay, as_nobody, is_sanitized,  # noqa: E402
                     parse_multipart, repeats)

TENSORS, ROWS = 4, 8
RESCAN, SETTLE = 1.0, 0.4                 # the writers' pauses within one file stay well below the settle time
SLACK = 2.0                               # scheduling of two busy cores, and the scan itself
BOUND = RESCAN + SETTLE + SLACK
GRACE = 2.0                               # TD_DELIVERY_GRACE_NS
COPIED = 32 << 10                         # TD_REFERENCE_BYTES: longest run that is always copied
SHORT = 256 << 10                         # TD_LANE_SHORT_BYTES
# Linux lets a socket that is bound to no interface connect from the port of one that is; both then break. So clients of
# the two kinds have different addresses.
BOUND_TO_LO = {"device": "lo", "source": "127.0.0.3"}
PAUSE = repeats(0.002, 0)                 # between two requests of the clients that are fast or keen
MEMORY_ROOM = 24 << 20                    # malloc keeps up to 16 MiB (bound_free_memory of cmd_serve.c); fragments

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
    ("mapped", "mmap", 1 << 20),
    ("restored-mapped", "restore-mmap", 1 << 20),
]
MIXED = {"mixed": ["rename", "inplace", "truncate", "unlink", "mmap"],
         "restore-mixed": ["restore-rename", "restore", "restore-truncate", "restore-unlink", "restore-mmap", "touch",
                           "touch"]}
IN_PLACE = {"inplace", "mmap", "restore", "restore-mmap", "mixed", "restore-mixed"}
UNBROKEN = {"never", "rename", "unlink",
            "touch"}  # running answers of these files must finish: no inode's bytes ever change


def mix(x):
    """splitmix64's finalizer: every bit of (generation, file, offset) reaches every byte of the word."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def unmix(x):
    """The inverse of mix."""
    def inv(v, s):                                   # of v ^ (v >> s)
        r = v
        for _ in range(64 // s + 1):
            r = v ^ (r >> np.uint64(s))
        return r
    with np.errstate(over="ignore"):
        x = inv(x, 31) * np.uint64(pow(0x94D049BB133111EB, -1, 1 << 64))
        x = inv(x, 27) * np.uint64(pow(0xBF58476D1CE4E5B9, -1, 1 << 64))
        return inv(x, 30)


def word_at(data, at):
    """Return (generation, file, index) that the word at byte `at` of the data names."""
    word = int(unmix(np.uint64(struct.unpack_from("<Q", data, at)[0])))
    return word >> 40, word >> 32 & 0xFF, word & 0xFFFFFFFF


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
        self.opened = {}  # generation -> when its writer in place had opened the file, and had written nothing yet
        self.stalls = []  # (from, to): a writer's pause within one generation beyond the settle time
        self.gen = self.touches = 0
        quarter = nbytes // TENSORS
        # target -> its runs in the file, as (from, to)
        self.targets = {f"/models/{name}/files/model.safetensors": [(0, self.size)]}
        for i in range(TENSORS):
            begin, row = self.base + i * quarter, quarter // ROWS
            url = f"/models/{name}/tensors/w{i}"
            self.targets[url] = [(begin, begin + quarter)]
            self.targets[url + "?shard=1:1/2"] = [(begin + k * row + row // 2, begin + (k + 1) * row)
                                                  for k in range(ROWS)]

    def header(self, gen):
        quarter = self.nbytes // TENSORS
        head = {"__metadata__": {"file": f"{self.index:04d}", "gen": f"{gen:010d}"}}
        for i in range(TENSORS):
            head[f"w{i}"] = {"dtype": "U64", "shape": [ROWS, quarter // 8 // ROWS],
                             "data_offsets": [i * quarter, (i + 1) * quarter]}
        raw = json.dumps(head).encode()
        raw += b" " * (-(8 + len(raw)) % 64)
        return struct.pack("<Q", len(raw)) + raw

    def length(self, target):
        return sum(b - a for a, b in self.targets[target])

    def pieces(self, target, at, data):
        """Return bytes from `at` on of the target as (place in the file, bytes), one for each run."""
        found = []
        for a, b in self.targets[target]:
            n = min(b - a - at, len(data))
            if n > 0:
                found.append((a + at, data[:n]))
                data = data[n:]
            at = max(0, at - (b - a))
        return found

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
            gen, file, index = word_at(data, at - start)
            if file != self.index or index != (at - self.base) // 8 or gen > self.gen:
                return frozenset()
            candidates = [gen]
        else:
            candidates = range(max(0, self.gen - 60), self.gen + 1)
        return frozenset(g for g in candidates if self.piece(g, start, start + len(data)) == data)

    def has_word(self, start, data):
        """Return whether the bytes at `start` of the file have a whole word of its data."""
        return max(self.base, -(-start // 8) * 8) + 8 <= start + len(data)

    def mixture(self, start, data):
        """Return the generations that the words of the bytes at `start` of the file name, if every byte is that of one
        of them at its place; else none."""
        at = max(self.base, -(-start // 8) * 8)
        words = np.frombuffer(data, dtype="<u8", offset=at - start, count=(start + len(data) - at) // 8)
        named = np.unique(unmix(words) >> np.uint64(40)).tolist()  # a word of two generations names any number
        gens = frozenset(gen for gen in named if gen <= self.gen)
        raw = np.frombuffer(data, dtype=np.uint8)
        known = np.zeros(len(raw), dtype=bool)
        for gen in gens:
            known |= raw == np.frombuffer(self.content(gen)[start:start + len(data)], dtype=np.uint8)
        return gens if known.all() else frozenset()

    def describe(self, start, data):
        """Describe a violation: the runs of generations within a body."""
        runs, last = [], None
        at = max(self.base, -(-start // 8) * 8)
        while at + 8 <= start + len(data) and len(runs) < 12:
            raw = data[at - start:at - start + 8]
            gen, file, index = word_at(raw, 0)
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
        self.stamp = 0.0                                   # mtime after the last step of this generation

    def pace(self, out):
        """Run after each step of writing: the machine may have delayed this thread, also within a step, until the mtime
        of the step before was older than files need to settle. The server is then right to publish the file as it was.
        A truncation is a step, too: the kernel sets the size before the times, and may wait for the disk in between."""
        age = time.time() - self.stamp
        if age > SETTLE:
            now = time.monotonic()
            self.f.stalls.append((now - age, now))
        self.stamp = os.fstat(out.fileno()).st_mtime

    def own(self, gen):
        """Run when a file is open that is written in place, after waiting for those who have unread answers. Until the
        first step it is the generation before, of whatever age."""
        self.f.opened[gen] = time.monotonic()
        self.stamp = time.time()

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
        self.begun = time.monotonic()
        if how == "rename":
            tmp = f.path.parent / f".model.safetensors.{gen}"
            tmp.write_bytes(raw)
            if f.how.startswith("restore"):
                shutil.copystat(f.path, tmp)
            os.rename(tmp, f.path)
        elif how == "inplace":
            with open(f.path, "r+b", buffering=0) as out:
                self.own(gen)
                self.spill(out, out, raw)
        elif how == "mmap":
            with open(f.path, "r+b", buffering=0) as out, mmap.mmap(out.fileno(), len(raw)) as mapped:
                self.own(gen)
                self.spill(out, mapped, raw)
        elif how == "truncate":
            self.stamp = time.time()
            with open(f.path, "wb", buffering=0) as out:
                self.pace(out)
                self.spill(out, out, raw)
        elif how == "unlink":
            os.unlink(f.path)
            if self.rng.random() < 0.5:
                time.sleep(self.rng.random() * 0.3)
            with open(f.path, "wb", buffering=0) as out:
                self.stamp = os.fstat(out.fileno()).st_mtime
                self.spill(out, out, raw)

    def spill(self, out, target, raw):
        """Write the bytes to the target: the open file `out`, or its mapping."""
        chunk = self.rng.choice([4096, 65536, 1 << 20, len(raw)])
        order = list(range(0, len(raw), chunk))
        for at in order:
            target.write(raw[at:at + chunk])
            self.pace(out)
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


class Namespace:
    """A network namespace, and a veth pair between it and ours. Needs root. The namespace has no name, so the kernel
    removes it, and with it the pair, when this process ends, however it ends."""

    CLONE_NEWNET = 0x40000000
    libc = ctypes.CDLL(None, use_errno=True)

    @classmethod
    def call(cls, name, *arguments):
        """Call unshare or setns, which change the calling thread alone."""
        if getattr(cls.libc, name)(*arguments) != 0:
            raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")

    @classmethod
    def make(cls):
        """Move the calling thread into a new namespace without a veth pair. Return a descriptor of it."""
        cls.call("unshare", cls.CLONE_NEWNET)
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY)

    def __enter__(self):
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            self.fd = thread.submit(self.make).result()
        self.link, path = f"tdh{os.getpid()}", f"/proc/{os.getpid()}/fd/{self.fd}"
        subnet = ipaddress.ip_address("198.18.0.0") + 4 * (os.getpid() % (1 << 15))  # RFC 2544's, for benchmarks
        self.host = str(subnet + 1)
        try:
            for command in (f"ip link add {self.link} type veth peer name inside netns {path}",
                            f"ip address add {self.host}/30 dev {self.link}",
                            f"ip link set {self.link} up",
                            f"nsenter --net={path} ip address add {subnet + 2}/30 dev inside",
                            f"nsenter --net={path} ip link set inside up"):
                subprocess.run(command.split(), check=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc):
        subprocess.run(["ip", "link", "delete", self.link], check=False)
        os.close(self.fd)

    def enter(self):
        """Move the calling thread into the namespace, for the rest of its life."""
        self.call("setns", self.fd, self.CLONE_NEWNET)


class Counted:
    """A socket that counts the bytes which were read from it."""

    def __init__(self, sock):
        self.sock, self.received = sock, 0

    def recv(self, size):
        got = self.sock.recv(size)
        self.received += len(got)
        return got

    def __getattr__(self, name):
        return getattr(self.sock, name)


class Watched(Conn):
    """A connection that notes how much of an answer has come, read or unread, and whether its requests were short."""

    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.sock = Counted(self.sock)
        self.lanes = []

    def ask(self, data):
        """Send a request. All earlier answers are read."""
        self.asked_at, self.looks = self.sock.received, [(time.monotonic(), 0)]
        self.send(data)

    def look(self):
        now = time.monotonic()
        unread = struct.unpack("i", fcntl.ioctl(self.sock.fileno(), termios.FIONREAD, bytes(4)))[0]
        self.looks.append((now, self.sock.received - self.asked_at + unread))

    def whole_since(self):
        """Return the last time at which the answer, which is read by now, had not come as a whole; None unless it was
        seen to have come before its last bytes were read."""
        total = self.sock.received - self.asked_at
        return max(at for at, come in self.looks if come < total) if self.looks[-1][1] == total else None


def is_short(method, target, sent_range):
    """Return whether the server takes the answer for a short one: a connection that begins so shares a thread."""
    if method == "HEAD" or not sent_range:
        return method == "HEAD" or target.endswith("/tensors")
    spans = [span.split("-") for span in sent_range.removeprefix("bytes=").split(",")]
    return all(a and b for a, b in spans) and sum(int(b) - int(a) + 1 for a, b in spans) <= SHORT


# whole_since: of an answer that may be sent by reference to a client whose socket the server cannot look into, the last
# time at which it had not come as a whole. is_relayed: it may have been sent by reference to a relay that splices.
# mixture: the generations of its bytes, also of several.
Record = collections.namedtuple("Record",
                                "t0 t1 client file target op sent_etag sent_range status etag gens whole note "
                                "whole_since mixture is_relayed", defaults=(None, frozenset(), False))


class Client(threading.Thread):
    """Sends random requests and keeps the records.
    kind: fast, slow (pauses inside bodies), late (reads only when the answer has been in its socket for a while), half
    (late, and shuts down its sending side before), bound (late, and bound to the loopback interface), relayed (late,
    through the relay), or keen (manifests, HEAD, validators).
    namespace: the network namespace to connect from, if not the server's. is_referred: the server may send by
    reference to this client. relay: a SplicingRelay, for kind relayed."""

    def __init__(self, number, kind, server, files, seed, stop, known, lock, namespace=None, is_referred=True,
                 relay=None):
        super().__init__(daemon=True)
        self.number, self.kind, self.server, self.files, self.relay = number, kind, server, files, relay
        self.is_late = kind in ("late", "half", "bound", "relayed")
        self.namespace, self.is_referred = namespace, is_referred
        self.rng, self.halt = random.Random(f"{seed}/client{number}"), stop
        self.known = known                                  # target -> recent ETags, shared
        self.lock = lock
        self.records, self.bytes, self.error = [], 0, None
        self.conn = self.before = None
        self.lanes = collections.Counter()                  # connections that began so, and that had both

    def run(self):
        try:
            if self.namespace:
                self.namespace.enter()
            while not self.halt.is_set():
                self.step()
                if self.kind in ("fast", "keen"):
                    time.sleep(PAUSE)
        except Exception as e:
            self.error = e
        if self.conn:
            self.conn.close()

    def connection(self):
        if self.conn is None or self.conn.eof:
            rcvbuf = {"slow": 1 << 17, "relayed": 1 << 15}.get(self.kind, 1 << 21 if self.is_late else None)
            self.conn = Watched(self.relay.port if self.relay else self.server.port, host=self.server.host, timeout=30,
                                rcvbuf=rcvbuf, **(BOUND_TO_LO if self.kind == "bound" else {}))
            self.before = None                              # how the writer changes the last answer's file
        return self.conn

    def note_lane(self, c, method, target, sent_range):
        lane = "short" if is_short(method, target, sent_range) else "long"
        if not c.lanes:
            self.lanes[lane] += 1
        elif lane not in c.lanes and len(c.lanes) == 1:
            self.lanes["both"] += 1
        if lane not in c.lanes:
            c.lanes.append(lane)

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
            c.look()
            n = min(want, self.rng.choice([1000, 65536, 1 << 20]))
            try:
                parts.append(c.read_exact(n, head))
            except Incomplete as e:
                raise Incomplete(str(e), head, b"".join(parts) + e.body) from e
            want -= n
            if self.rng.random() < 0.3:
                time.sleep(self.rng.random() * 0.15)
        return b"".join(parts)

    def wait_before_reading(self, c):
        """Leave the answer unread for up to 6 s, which is less and more than the grace, and watch it come. Kind half
        shuts down its sending side first, at once or when the server has sent some."""
        if self.kind == "half":
            time.sleep(self.rng.choice([0, 0.05, 0.3]) * self.rng.random())
            c.sock.shutdown(socket.SHUT_WR)
        end = time.monotonic() + self.rng.random() * self.rng.choice([1, 2, 6])
        while time.monotonic() < end:
            c.look()
            time.sleep(0.02)
        c.look()

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
        waits = self.is_late and rng.random() < 0.5
        if waits and rng.random() < 0.7:  # for files that may change while the answer is unread
            f = rng.choice([x for x in self.files if x.how in IN_PLACE])
        if rng.random() < (0.25 if self.kind == "keen" else 0.03):
            return self.manifest(f)
        target = rng.choice(list(f.targets))
        if self.kind == "slow" and rng.random() < 0.5:  # more than the sockets hold, so that a writer comes in between
            target = f"/models/{f.name}/files/model.safetensors"
        length = f.length(target)
        op, headers, sent_etag, sent_range, method = "get", [], None, None, "GET"
        tags = self.known[target]
        k = rng.random()
        if rng.random() < (0.3 if self.kind == "slow" or waits else 0.7):
            sent_range = self.random_range(length)
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
        note, whole, gens, status, etag, whole_since, mixture = "", True, None, 0, None, None, frozenset()
        try:
            c = self.connection()
            self.note_lane(c, method, target, sent_range)
            c.ask(b"%s %s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (method.encode(), target.encode(),
                   b"".join(b"%s: %s\r\n" % (a.encode(), b.encode()) for a, b in headers)))
            if leave:
                c.sock.recv(1)
                self.drop()
                return None
            if waits:
                self.wait_before_reading(c)
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
                pieces, note = self.pieces(f, target, r)
                gens, note = (frozenset(), note) if note else self.judge(f, pieces)
                if self.may_lie_open(pieces, headers):
                    whole_since = c.whole_since() if self.namespace else None
                    mixture = gens or mixture_of(f, pieces)
            elif status == 200:
                if r.length != length:
                    note = f"HEAD says {r.length} bytes, wanted {length}"
            elif status == 503:
                if r.get("Retry-After") is None:
                    note = "503 without Retry-After"
            self.before = f.how
            if "close" in r.get("Connection", "").lower() or (self.kind == "half" and waits):
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
            Record(t0, t1, self.number, f.index, target, op, sent_etag, sent_range, status, etag, gens, whole, note,
                   whole_since, mixture, self.relay is not None and bool(mixture)))
        return None

    def may_lie_open(self, pieces, headers):
        """Return whether some of the answer, of 200 or 206, may have been sent by reference to where the server cannot
        look."""
        return (self.namespace or self.relay) is not None and self.is_referred and \
            ("Connection", "close") not in headers and any(len(data) > COPIED for _, data in pieces)

    def pieces(self, f, target, r):
        """Return the bytes of an answer, of 200 or 206, as (place in the file, bytes), and a note if it has not the
        bytes that it says."""
        n = f.length(target)
        if r.status == 200:
            parts = [(0, r.body)]
            if len(r.body) != n:
                return [], f"a 200 of {len(r.body)} bytes, the target has {n}"
        elif (r.get("Content-Type") or "").startswith("multipart/"):
            parts = [(a, data) for a, b, total, _, data in parse_multipart(r)]
        else:
            a, rest = r.get("Content-Range")[6:].split("-")
            b, total = rest.split("/")
            if int(total) != n or int(b) - int(a) + 1 != len(r.body):
                return [], f"Content-Range {r.get('Content-Range')}, {len(r.body)} bytes, the target has {n}"
            parts = [(int(a), r.body)]
        return [piece for a, data in parts for piece in f.pieces(target, a, data)], ""

    def judge(self, f, pieces):
        """Return the generations that a complete body can be of; none, and a note, for a mixture."""
        gens = None
        for a, data in pieces:
            mine = f.generations_of(a, data)
            gens = mine if gens is None else gens & mine
        if not gens:
            return frozenset(), "body: " + " | ".join(f.describe(a, d) for a, d in pieces)
        return gens, ""

    def manifest(self, f):
        t0 = time.monotonic()
        target = f"/models/{f.name}/tensors"
        gens, note, whole, etag = None, "", True, None
        try:
            c = self.connection()
            self.note_lane(c, "GET", target, None)
            r = c.request(target)
            t1, status, etag = time.monotonic(), r.status, r.etag
            if status == 200:
                doc = r.json()
                etag = doc["etag"]
                gens = frozenset([int(doc["metadata"]["gen"])])
                for t in doc["tensors"]:
                    (a, b), = f.targets[t["href"]]
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


def mixture_of(f, pieces):
    """Return the generations that the pieces name, if every byte is that of one of them; else none. A piece without a
    whole word names none, but has to be that of some generation."""
    each = [f.mixture(a, data) for a, data in pieces if f.has_word(a, data)]
    others = [f.generations_of(a, data) for a, data in pieces if not f.has_word(a, data)]
    return frozenset().union(*each) if all(each) and all(others) else frozenset()


class Violation(AssertionError):
    pass


def in_stall(f, r):
    """Return whether the answer falls into a time in which half a generation may be served as a version: its writer was
    delayed for longer than files need to settle."""
    return any(r.t1 >= begin and r.t0 <= end + BOUND for begin, end in f.stalls)


def late_writers(f, r):
    """Return the generations whose writers got the file, in place, when the answer had been unread for longer than the
    grace, and before it was read; of an answer through a relay, while it may have been in the relay's queues."""
    if r.is_relayed:
        return frozenset(gen for gen, at in f.opened.items() if r.t0 <= at <= r.t1)
    if r.whole_since is None:
        return frozenset()
    return frozenset(gen for gen, at in f.opened.items() if r.whole_since + GRACE <= at <= r.t1)


def changed_as_named(f, r, own):
    """Return whether an answer, which is not of its tag's generation, is a case that docs/security.md names as open. It
    is if the answer was long enough to be sent by reference under a lease, to a client in another network namespace or
    to a relay that splices; if the client saw it whole in its own socket before it read the end, or the relay had it;
    if every byte is that of its own generation, or of one whose writer, in place, opened the file when the answer had
    been in the client's socket for at least the grace, or while the relay had it. A writer that got the file earlier is
    the server's fault. own: the generations that the tag stands for, or None if no other answer shows them."""
    late = late_writers(f, r)
    own = own or frozenset([min(r.mixture, default=0)])
    return bool(r.mixture) and r.mixture - own <= late and all(max(own) < gen for gen in r.mixture - own)


def check(files, records, began, left_open=None):
    """Check all invariants over the whole history. Return the violations as texts, each with the history around it.
    left_open: a list that takes the answers which are not one generation, in the way that is named as open."""
    found, left_open = [], [] if left_open is None else left_open
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
                opened = f", had the file from {f.opened[gen] - began:.4f}" if gen in f.opened else ""
                lines.append(f"  wrote  {a - began:9.4f} .. {b - began:9.4f}  generation {gen} by {how}{opened}")
        for x in near[max(0, at - 12):at + 8]:
            lines.append(("> " if x is r else "  ") +
                         f"client {x.client} {x.t0 - began:9.4f} .. {x.t1 - began:9.4f} {x.op} {x.target} "
                         f"{x.sent_range or ''} {x.sent_etag or ''} -> {x.status} {x.etag} generations "
                         f"{sorted(x.gens) if x.gens is not None else '-'}{'' if x.whole else ' BROKEN'}"
                         f"{f' not yet whole at {x.whole_since - began:.4f}' if x.whole_since else ''} {x.note}")
        found.append("\n".join(lines))

    for f in files:
        mine = sorted((r for r in by_file[f.index] if not in_stall(f, r)), key=lambda r: r.t0)
        label = {}                                            # (target, etag) -> generations
        unproved = {id(r) for r in mine if r.whole and late_writers(f, r)}
        for r in mine:                                        # I1, statuses
            if id(r) in unproved:
                continue
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
        for r in mine:                                        # I1, I2 of answers that writers may have changed
            if id(r) not in unproved:
                continue
            own = label.get((r.target, r.etag))
            if r.gens and own and own & r.gens:
                unproved.remove(id(r))
            elif changed_as_named(f, r, own):
                left_open.extend([r] if own or not r.gens else [])      # else nobody can know
            elif not r.gens:
                report("I1: a complete answer is not one generation", r, f)
            elif own:
                report(f"I2: ETag {r.etag} labelled generation {sorted(own)} before", r, f)
        # what each answer showed of the file's age: bytes, or the ETag it vouched for
        shown = []
        for r in mine:
            if not r.whole:
                continue
            gens = None if id(r) in unproved else r.gens
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
                if r.etag != r.sent_etag or (old and gens and not old & gens):
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


def run(seconds, seed, clients=18, out=print, options=(), another_user=False, namespace=None):
    """Run writers and clients. another_user: the server is not the files' owner, so it gets no leases. namespace: the
    Namespace that the clients run in."""
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
                    binary=as_nobody(Path(place)) if another_user else None,
                    host=namespace.host if namespace else "127.0.0.1")
    is_referred = not another_user and not {"off", "remote"} & {*options}      # --leases off, --sendfile remote or off
    clean = contextlib.ExitStack()
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
        late = ["late"] * 4 + ["half"] * 2 + ([] if namespace else ["bound"] + ["relayed"] * 2)
        relay = clean.enter_context(SplicingRelay(server.port, server.host))
        kinds = ["slow"] * 4 + late + ["keen"] + ["fast"] * max(1, clients - 5 - len(late))
        readers = [Client(i, k, server, files, seed, halt_clients, known, lock, namespace, is_referred,
                          relay if k == "relayed" else None) for i, k in enumerate(kinds)]
        for t in writers + readers:
            t.start()
        while time.monotonic() - began < seconds and server.alive() and not any(t.error for t in writers + readers):
            time.sleep(0.2)
        halt_writers.set()
        for t in writers:
            t.join()
        time.sleep(BOUND + 0.5)                               # readers continue, so that the last generations must show
        halt_clients.set()
        for t in readers:
            t.join(60)
        clean.close()
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
        lanes = sum((c.lanes for c in readers), collections.Counter())
        ways = {labels["way"]: int(n) for name, labels, n in server.metrics()[2]
                if name == "tensord_http_answers_total"}
        out(f"connections that began with a short request {lanes['short']}, with a long one {lanes['long']}, "
            f"that had both {lanes['both']}; answers by way {ways}, "
            f"jobs {int(server.gauge('tensord_http_jobs_total'))}")
        if not (lanes["short"] and lanes["long"] and lanes["both"]):
            raise Violation(f"{summary}\nonly one lane was used: {lanes}")
        left_open = []
        found = check(files, records, began, left_open)
        if not namespace:
            out(f"answers that a relay may have had by reference {sum(r.is_relayed for r in records)}; named as open, "
                f"overwritten in place while it had them: {len(left_open)}")
        if namespace:
            waited = [r.t1 - r.whole_since for r in records if r.whole_since is not None]
            out(f"answers that may be sent by reference and were whole in their client's socket {len(waited)}, "
                f"{sum(w > GRACE for w in waited)} of them for longer than the grace; named as open, "
                f"overwritten in place after it: {len(left_open)}, read "
                f"{sorted(round(r.t1 - r.whole_since, 2) for r in left_open)} s after they had come")
        if found:
            raise Violation(f"{summary}\n{len(found)} violations with seed {seed}; the first:\n" +
                            "\n\n".join(found[:3]))
        for f in files:                                       # in the end everybody sees the last generation, whole
            for t, runs in f.targets.items():
                r = server.get(t)
                if r.status != 200 or r.body != b"".join(f.content(f.gen)[a:b] for a, b in runs):
                    raise Violation(f"seed {seed}: after the last write {t} is not generation {f.gen}: {r} " +
                                    "; ".join(f.describe(a, d) for a, d in f.pieces(t, 0, r.body)))
        if sum(1 for r in records if r.gens) < 10 * seconds:
            raise Violation(f"{summary}\ntoo few answers to mean anything")
        touch_all()
        settle = time.monotonic() + 8
        while True:
            now = (len(server.fds()), server.threads(), server.anon_bytes())
            deleted = [line for line in server.maps().splitlines() if "(deleted)" in line and str(tmp) in line]
            room = (192 << 20) if is_sanitized() else MEMORY_ROOM
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
        clean.close()
        shutil.rmtree(place, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--clients", type=int, default=18)
    p.add_argument("--another-user", action="store_true", help="run the server as nobody (needs root)")
    p.add_argument("--namespace", action="store_true",
                   help="run the clients in a network namespace of their own (needs root)")
    p.add_argument("options", nargs="*", help="further options of the server, after --, such as -- --leases off")
    a = p.parse_args()
    seed = a.seed if a.seed is not None else int(time.time())
    try:
        with Namespace() if a.namespace else contextlib.nullcontext() as namespace:
            run(a.seconds, seed, a.clients, options=a.options, another_user=a.another_user, namespace=namespace)
    except Violation as e:
        print(e)
        return 1
    print("no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
