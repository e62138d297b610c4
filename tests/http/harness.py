"""The base of every HTTP test: the server under test, a strict client, and writers of fixtures.

Standard library and numpy only. The client is deliberately strict: an answer that breaks RFC 9112
raises ProtocolError instead of being repaired, and an answer cut short raises Incomplete with what was received.
"""
import collections
import contextlib
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import urllib.parse
import weakref
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

REPO = Path(__file__).resolve().parents[2]
LONG = os.environ.get("TENSORD_LONG") == "1"    # ./test.sh --long: loops have all their repetitions

SANITIZER_MARKS = (
    "ERROR: AddressSanitizer", "runtime error:", "WARNING: ThreadSanitizer", "LeakSanitizer",
    "ERROR: UndefinedBehaviorSanitizer", "AddressSanitizer:DEADLYSIGNAL", "Assertion `", "stack smashing",
    "Fatal error in GNU libmicrohttpd",
)


def tensord_binary():
    """Return the binary under test: $TENSORD, else build-asan/tensord, else build/tensord. Fail without one."""
    env = os.environ.get("TENSORD")
    if env:
        path = Path(env) if os.path.isabs(env) else (REPO / env if (REPO / env).exists() else Path(env).resolve())
        if not os.access(path, os.X_OK):
            raise RuntimeError(f"TENSORD={env} is not an executable file")
        return path
    for name in ("build-asan/tensord", "build/tensord"):
        if os.access(REPO / name, os.X_OK):
            return REPO / name
    raise RuntimeError("no tensord to test: set TENSORD, or build build-asan/tensord or build/tensord first")


def engine_names():
    """Return the names of all engines, in the order in which messages list them, from the help of `tensord plan`."""
    text = subprocess.run([tensord_binary(), "plan", "--help"], capture_output=True, text=True, check=True).stdout
    names = re.split(", | or ", re.search(r"the engine whose layout is planned: (.*)", text)[1])
    assert "none" in names and "vllm" in names, text
    return names


def s3_port(server):
    """Return the port for S3 clients, from the server's log."""
    return int(re.search(r"listening for S3 clients on http://127\.0\.0\.1:(\d+)", server.stderr()).group(1))


def is_sanitized(binary=None):
    """True when the binary carries a sanitizer, so that memory and time bounds can allow for it."""
    data = Path(binary or tensord_binary()).read_bytes()
    return b"__asan_init" in data or b"__tsan_init" in data


def release_binary():
    """A build without sanitizers, for bounds on memory that are to be exact: the binary under test if it has none, else
    $TENSORD_RELEASE, else build/tensord; else a loud failure."""
    tested = tensord_binary()
    if not is_sanitized(tested):
        return tested
    path = (REPO / os.environ.get("TENSORD_RELEASE", "build/tensord")).resolve()
    if not os.access(path, os.X_OK) or is_sanitized(path):
        raise RuntimeError(
            f"{path} is no tensord without sanitizers: cmake --preset release && cmake --build --preset release, "
            "or set TENSORD_RELEASE")
    return path


def repeats(short, long):
    """Return how often a random or timed loop repeats: `short` times, or `long` times with TENSORD_LONG=1."""
    return long if LONG else short


def longest_first(items, modules):
    """Sort collected tests: those of these modules first. Run by several processes, a module each, they all end at
    about the same time."""
    items.sort(key=lambda item: item.path.stem not in modules)


# ------------------------------------------------------------------------------------------------ bytes

PATTERN_WORDS = 1 << 15                   # made at a time, so that they stay in the processor's cache
CACHE_BYTES = 192 << 20                   # of the patterns that tests asked for last
pattern_cache = collections.OrderedDict()
pattern_lock = threading.Lock()


def pattern(nbytes, seed):
    """Return nbytes that depend on their position and on seed (a name or number), so that a wrong offset always
    shows. A cache has those of 64 KiB or more."""
    if isinstance(seed, str):
        seed = zlib.crc32(seed.encode("utf-8", "surrogatepass"))
    if nbytes < 65536:
        return make_pattern(nbytes, seed)
    with pattern_lock:
        data = pattern_cache.pop((nbytes, seed), None) or make_pattern(nbytes, seed)
        pattern_cache[nbytes, seed] = data
        while sum(map(len, pattern_cache.values())) > CACHE_BYTES:
            pattern_cache.popitem(last=False)
    return data


def make_pattern(nbytes, seed):
    """Return the outputs of splitmix64 for the states seed * 0x9E3779B97F4A7C15 + 1, and so on in steps of 1."""
    words = np.arange((nbytes + 7) // 8, dtype="<u8")
    with np.errstate(over="ignore"):
        for at in range(0, len(words), PATTERN_WORDS):
            x = words[at:at + PATTERN_WORDS]
            x += np.uint64((seed * 0x9E3779B97F4A7C15 + 1) & 0xFFFFFFFFFFFFFFFF)
            x ^= x >> np.uint64(30)
            x *= np.uint64(0xBF58476D1CE4E5B9)
            x ^= x >> np.uint64(27)
            x *= np.uint64(0x94D049BB133111EB)
            x ^= x >> np.uint64(31)
    return words.tobytes()[:nbytes]


# Bits per element, from the reference implementation (safetensors, tensor.rs, Dtype::bitsize).
DTYPE_BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}

# How the safetensors package spells the dtypes it can write.
PACKAGE_DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16", "I32": "int32", "U32": "uint32",
    "F32": "float32", "I64": "int64", "U64": "uint64", "F64": "float64", "C64": "complex64",
    "F4": "float4_e2m1fn_x2",
}


def nbytes_of(dtype, shape):
    n = 1
    for d in shape:
        n *= d
    bits = n * DTYPE_BITS[dtype]
    assert bits % 8 == 0
    return bits // 8


@dataclass
class Tensor:
    name: str
    dtype: str
    shape: list
    data: bytes = b""
    file: str = ""        # relative to the model's directory
    offset: int = -1      # absolute in that file

    @property
    def nbytes(self):
        return nbytes_of(self.dtype, self.shape)


def tensor(name, dtype, shape, salt=""):
    return Tensor(name, dtype, list(shape), pattern(nbytes_of(dtype, shape), salt + name))


def header_json(tensors, metadata=None, start=0):
    head = {}
    if metadata is not None:
        head["__metadata__"] = metadata
    at = start
    for t in tensors:
        head[t.name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [at, at + len(t.data)]}
        at += len(t.data)
    return json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def frame(header, data=b"", n=None):
    """Raw file: u64le header length (n overrides the truth), header, data."""
    return struct.pack("<Q", len(header) if n is None else n) + header + data


def safetensors_bytes(tensors, metadata=None, pad=8):
    head = header_json(tensors, metadata)
    if pad:
        head += b" " * (-len(head) % pad)
    return frame(head, b"".join(t.data for t in tensors))


def write_by_hand(path, tensors, metadata=None, pad=8):
    """Write a file in the given order, and note in each tensor the place of its bytes."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(safetensors_bytes(tensors, metadata, pad))
    locate(path, tensors)


def write_by_package(path, tensors, metadata=None):
    """Write with the real safetensors package (which sorts by alignment and name)."""
    import safetensors
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    keep, spec = [], {}
    for t in tensors:
        raw = np.frombuffer(t.data, dtype=np.uint8) if t.data else np.zeros(1, dtype=np.uint8)
        keep.append(raw)
        shape = list(t.shape)
        if t.dtype == "F4":          # the package counts pairs (float4_e2m1fn_x2) and doubles the last dimension
            shape[-1] //= 2
        if hasattr(safetensors, "TensorSpec"):
            spec[t.name] = safetensors.TensorSpec(dtype=PACKAGE_DTYPES[t.dtype], shape=shape,
                                                  data_ptr=raw.ctypes.data, data_len=len(t.data))
        else:                        # before 0.6: plain dictionaries
            spec[t.name] = {"dtype": PACKAGE_DTYPES[t.dtype], "shape": shape, "data": t.data}
    safetensors.serialize_file(spec, str(path), metadata)
    locate(path, tensors)
    del keep


def read_header(path):
    """(header as Python objects, absolute offset of the data), read independently of the server."""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        return json.loads(f.read(n).decode("utf-8", "surrogatepass")), 8 + n


def locate(path, tensors):
    head, base = read_header(path)
    for t in tensors:
        t.file = os.path.basename(path)
        t.offset = base + head[t.name]["data_offsets"][0]


def age(path, seconds=3600):
    """Backdate a file or a whole tree, so that it counts as settled at once."""
    path = Path(path)
    now = time.time()
    entries = [path] if not path.is_dir() or path.is_symlink() else [path, *sorted(path.rglob("*"))]
    for i, p in enumerate(reversed(entries)):
        with contextlib.suppress(FileNotFoundError):
            t = int((now - seconds) * 1e9) + i * 1_000_003
            os.utime(p, ns=(t, t), follow_symlinks=False)


@dataclass
class Model:
    id: str
    dir: Path
    tensors: dict = field(default_factory=dict)     # name -> Tensor
    metadata: dict = field(default_factory=dict)

    def add(self, *tensors):
        for t in tensors:
            assert t.name not in self.tensors
            self.tensors[t.name] = t
        return self

    @property
    def total_bytes(self):
        return sum(t.nbytes for t in self.tensors.values())


def enc(text, safe=""):
    """Percent-encode a tensor name or path segment."""
    return urllib.parse.quote(text, safe=safe)


# ----------------------------------------------------------------------------------------------- client

class ProtocolError(AssertionError):
    """The server said something RFC 9112 or 9110 does not allow."""


class Incomplete(Exception):
    """The connection ended before the answer was whole. `response` has the head, `body` the bytes that were
    received."""

    def __init__(self, why, response=None, body=b""):
        super().__init__(f"{why}; {len(body)} body bytes came")
        self.response, self.body = response, body


TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2}) ([\t \x21-\x7e\x80-\xff]*)")
SINGLETONS = {"content-length", "content-type", "content-range", "etag", "last-modified", "date", "retry-after",
              "accept-ranges", "x-tensor-dtype", "x-tensor-shape", "x-content-type-options", "location"}


class Response:
    def __init__(self, status, reason, headers, asked=""):
        self.status, self.reason, self.headers, self.asked = status, reason, headers, asked
        self.body = b""
        self.trailers = {}
        self.interim = []

    def all(self, name):
        return [v for k, v in self.headers if k.lower() == name.lower()]

    def get(self, name, default=None):
        values = self.all(name)
        if len(values) > 1 and name.lower() in SINGLETONS:
            raise ProtocolError(f"{self.asked}: {name} appears {len(values)} times: {values}")
        return values[0] if values else default

    def names(self):
        """Return the names of the fields but Server-Timing, which an answer has or has not by the time it took."""
        return sorted(k.lower() for k, _ in self.headers if k.lower() != "server-timing")

    @property
    def length(self):
        v = self.get("Content-Length")
        return None if v is None else int(v)

    @property
    def etag(self):
        return self.get("ETag")

    def json(self):
        if not (self.get("Content-Type") or "").startswith("application/json"):
            raise AssertionError(f"{self}: Content-Type is {self.get('Content-Type')!r}, wanted application/json")
        try:
            return json.loads(self.body)
        except ValueError as e:
            raise AssertionError(f"{self}: body is not JSON ({e})") from e

    def __repr__(self):
        shown = self.body[:300]
        return (f"<asked {self.asked!s:.300} -> {self.status} {self.reason} "
                f"{dict((k, v) for k, v in self.headers)} body[{len(self.body)}]={shown!r}>")


class Conn:
    """One TCP connection, with a strict reader of HTTP/1.1 answers. tls: an ssl.SSLContext, for a port with TLS.
    device: the interface that the socket is bound to."""

    def __init__(self, port, source=None, timeout=20.0, rcvbuf=None, host="127.0.0.1", mss=None, tls=None,
                 device=None):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if device:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        if mss:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mss)
        self.sock.settimeout(timeout)
        if source:
            self.sock.bind((source, 0))
        try:
            self.sock.connect((host, port))
        except OSError:
            self.sock.close()
            raise
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            plain, self.sock = self.sock, None
            self.sock = tls.wrap_socket(plain, server_hostname=host)   # closes the socket when it fails
        self.buf = b""
        self.port = port
        self.eof = False

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def fill(self, size=1 << 18):
        """Read some more. Return False at the end of the stream."""
        if self.eof:
            return False
        got = self.sock.recv(size)
        if not got:
            self.eof = True
            return False
        self.buf += got
        return True

    def line(self, limit=65536):
        while b"\n" not in self.buf:
            if len(self.buf) > limit:
                raise ProtocolError(f"a line of more than {limit} bytes in an answer: {self.buf[:200]!r}")
            if not self.fill():
                raise Incomplete(f"connection closed in the head of an answer, after {self.buf!r}")
        raw, self.buf = self.buf.split(b"\n", 1)
        if not raw.endswith(b"\r"):
            raise ProtocolError(f"answer line does not end in CRLF: {raw!r}")
        return raw[:-1]

    def read_head(self, asked=""):
        first = self.line()
        m = STATUS_LINE.fullmatch(first)
        if not m:
            raise ProtocolError(f"{asked}: bad status line {first!r}")
        headers = []
        while True:
            raw = self.line()
            if not raw:
                break
            name, colon, value = raw.partition(b":")
            if not colon or not TOKEN.fullmatch(name) or re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", value):
                raise ProtocolError(f"{asked}: bad header line in the answer: {raw!r}")
            headers.append((name.decode("ascii"), value.strip(b" \t").decode("latin-1")))
        r = Response(int(m.group(2)), m.group(3).decode("latin-1"), headers, asked)
        for name in SINGLETONS:
            r.get(name)
        return r

    def read_exact(self, n, response):
        parts, have = [], 0
        if self.buf:
            parts.append(self.buf[:n])
            have = len(parts[0])
            self.buf = self.buf[n:]
        while have < n:
            try:
                got = self.sock.recv(min(1 << 20, n - have))
            except (ConnectionError, TimeoutError) as e:
                raise Incomplete(f"{type(e).__name__} in the body of {response.asked}", response,
                                 b"".join(parts)) from e
            if not got:
                self.eof = True
                raise Incomplete(f"connection closed in the body of {response.asked}", response, b"".join(parts))
            parts.append(got)
            have += len(got)
        return b"".join(parts)

    def read_response(self, method="GET", asked=""):
        r = self.read_head(asked)
        interim = []
        while 100 <= r.status < 200:
            if r.status == 101:
                raise ProtocolError(f"{asked}: 101 Switching Protocols, nobody agreed to that")
            interim.append(r.status)
            r = self.read_head(asked)
        r.interim = interim
        te, cl = r.all("Transfer-Encoding"), r.get("Content-Length")
        if te and cl is not None:
            raise ProtocolError(f"{r}: Transfer-Encoding and Content-Length together (RFC 9112 6.2)")
        if cl is not None and not re.fullmatch(r"[0-9]+", cl):
            raise ProtocolError(f"{r}: Content-Length {cl!r}")
        if r.status in (204, 304) or method == "HEAD":
            if te and r.status in (204, 304):
                raise ProtocolError(f"{r}: Transfer-Encoding in a {r.status}")
            return r
        if te:
            if [t.lower() for t in te] != ["chunked"]:
                raise ProtocolError(f"{r}: Transfer-Encoding {te}")
            body = []
            while True:
                size = self.line()
                if not re.fullmatch(rb"[0-9a-fA-F]+(;.*)?", size):
                    raise ProtocolError(f"{r}: chunk size line {size!r}")
                n = int(size.split(b";")[0], 16)
                if n == 0:
                    break
                body.append(self.read_exact(n, r))
                if self.line() != b"":
                    raise ProtocolError(f"{r}: chunk without CRLF")
            while line := self.line():
                name, colon, value = line.decode("latin-1").partition(": ")
                assert colon and name not in r.trailers, f"{r}: trailer {line!r}"
                r.trailers[name] = value
            r.body = b"".join(body)
        elif cl is not None:
            r.body = self.read_exact(int(cl), r)
        else:
            while self.fill():
                pass
            r.body, self.buf = self.buf, b""
        return r

    def request(self, target, headers=(), method="GET", version="HTTP/1.1", body=None):
        headers = list(headers.items()) if isinstance(headers, dict) else list(headers)
        if body is not None:
            headers.append(("Content-Length", str(len(body))))
        self.send(request_bytes(target, headers, method, version, self.port) + (body or b""))
        return self.read_response(method, f"{method} {target} {list(headers) if headers else ''}")

    def ended(self, timeout=5.0):
        """Return whether the server closes within timeout and sends nothing more (self.buf has what it sent)."""
        deadline = time.monotonic() + timeout
        while not self.eof:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.sock.settimeout(left)
            try:
                self.fill()
            except TimeoutError:
                return False
            except ConnectionError:
                self.eof = True
        return not self.buf


class KeepAlive:
    """A client of one thread. It sends its next request to a port over the connection of the one before."""

    def __init__(self, **kw):
        self.conns, self.kw = {}, kw

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for c in self.conns.values():
            c.close()

    def get(self, port, target):
        c = self.conns.pop(port, None) or Conn(port, **self.kw)
        try:
            r = c.request(target)
        except BaseException:
            c.close()
            raise
        if c.eof or "close" in r.get("Connection", "").lower():
            c.close()
        else:
            self.conns[port] = c
        return r


def request_bytes(target, headers=(), method="GET", version="HTTP/1.1", port=0):
    if isinstance(target, str):
        target = target.encode("latin-1")
    headers = list(headers.items()) if isinstance(headers, dict) else list(headers)
    out = [method.encode() + b" " + target + b" " + version.encode() + b"\r\n"]
    if version == "HTTP/1.1" and not any(k.lower() == "host" for k, _ in headers):
        out.append(b"Host: 127.0.0.1:%d\r\n" % port)
    for k, v in headers:
        out.append(k.encode("latin-1") + b": " + v.encode("latin-1") + b"\r\n")
    out.append(b"\r\n")
    return b"".join(out)


# ---------------------------------------------------------------------------------------------- metrics

SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(.*)\})? (\S+)( [0-9]+)?")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')


def parse_metrics(text):
    """Prometheus text format 0.0.4 -> ({family: type}, {family: help}, [(name, {label: value}, float)])."""
    types, helps, samples = {}, {}, []
    if text and not text.endswith("\n"):
        raise AssertionError("metrics: the last line has no line feed")
    for no, line in enumerate(text.split("\n")[:-1], 1):
        if line.startswith("# HELP "):
            name, _, rest = line[7:].partition(" ")
            assert name not in helps, f"metrics line {no}: second HELP for {name}"
            helps[name] = rest
        elif line.startswith("# TYPE "):
            name, _, kind = line[7:].partition(" ")
            assert name not in types, f"metrics line {no}: second TYPE for {name}"
            assert kind in ("counter", "gauge", "histogram", "summary", "untyped"), f"metrics line {no}: {line!r}"
            assert not any(s[0] == name for s in samples), f"metrics line {no}: TYPE after samples of {name}"
            types[name] = kind
        elif line.startswith("#") or not line:
            continue
        else:
            m = SAMPLE.fullmatch(line)
            assert m, f"metrics line {no} is not a sample: {line!r}"
            labels, rest = {}, m.group(3) or ""
            while rest:
                lm = LABEL.match(rest)
                assert lm, f"metrics line {no}: bad labels at {rest!r}"
                assert lm.group(1) not in labels, f"metrics line {no}: label {lm.group(1)} twice"
                labels[lm.group(1)] = lm.group(2)
                rest = rest[lm.end():]
                assert not rest or rest.startswith(","), f"metrics line {no}: bad labels at {rest!r}"
                rest = rest[1:]
            samples.append((m.group(1), labels, float(m.group(4))))
    return types, helps, samples


# ----------------------------------------------------------------------------------------------- server

def temporary_directory(owner, prefix):
    """Make a directory that is removed with its owner, an object, at the latest when this process ends. Processes that
    are forked from this one leave it alone."""
    path, maker = tempfile.mkdtemp(prefix=prefix), os.getpid()

    def remove():
        if os.getpid() == maker:
            shutil.rmtree(path, ignore_errors=True)

    weakref.finalize(owner, remove)
    return path


def raise_open_files(count):
    """Let this process have that many open files, or as many as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, count)), hard))


def anon_bytes_of(pid):
    """Return the bytes of memory of a process that no file has."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no Anonymous: in smaps_rollup")


class Server:
    """One tensord over one root. Every server is registered when it starts, and conftest checks how each ended. With
    rescan="0" nothing is watched either, so that scans come only when they are asked for. tls: an ssl.SSLContext, if
    the options in args give the server a certificate."""

    live = []

    def __init__(self, root, *args, settle="0.05", rescan="1", access_log="-", env=None, ready=True, timeout=30,
                 binary=None, nofile=None, hash_threads=None, host="127.0.0.1", watch=None, tls=None):
        self.root, self.host, self.tls = Path(root), host, tls
        self.binary = Path(binary or tensord_binary())
        self.tmp = temporary_directory(self, "tensord-test-")
        self.err_path = os.path.join(self.tmp, "stderr")
        self.out_path = os.path.join(self.tmp, "stdout")
        self.args = [str(self.binary), "serve", str(root), "--listen", f"{host}:0"]
        for flag, value in (("--settle", settle), ("--rescan-interval", rescan), ("--access-log", access_log),
                            ("--hash-threads", hash_threads),
                            ("--watch", watch or ("off" if rescan == "0" else None))):
            if value is not None:
                self.args += [flag, str(value)]
        self.args += [str(a) for a in args]
        full_env = dict(os.environ)
        full_env.setdefault("ASAN_OPTIONS", "detect_leaks=1:quarantine_size_mb=4:malloc_context_size=12")
        full_env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
        full_env.setdefault("TSAN_OPTIONS", "halt_on_error=0:second_deadlock_stack=1")
        full_env.update(env or {})
        raise_open_files(8192)  # the server inherits the limit
        pre = None  # with a function, subprocess copies the tables of this process's memory: 25 ms with torch
        if nofile is not None:
            def pre():
                resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, nofile))

        with open(self.err_path, "wb") as err, open(self.out_path, "wb") as out:
            self.proc = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=full_env,
                                         preexec_fn=pre)
        self.pid = self.proc.pid
        self.rc = None
        Server.live.append(self)
        self.port = self._wait_port(timeout)
        if ready:
            self.wait_ready(timeout)

    def __enter__(self):
        return self

    def __exit__(self, kind, *exc):
        if kind is None:
            self.stop()
        else:
            self.kill()

    def stderr(self):
        return Path(self.err_path).read_text("utf-8", "replace")

    def log(self):
        return Path(self.out_path).read_bytes().decode("utf-8", "surrogateescape")

    def whole_log(self):
        """Return the access log when it has the lines of all answers so far. It has one writer, so these come before
        the line of the request that is made here."""
        mark = f"/log-mark-{time.monotonic_ns()}"
        self.get(mark)
        self.wait_for(lambda: mark in self.log(), "the line of the last request in the access log")
        return self.log()

    def _wait_port(self, timeout):
        deadline = time.monotonic() + timeout
        while True:
            m = re.search(rf"listening on https?://{re.escape(self.host)}:(\d+)", self.stderr())
            if m:
                return int(m.group(1))
            if self.proc.poll() is not None:
                Server.live.remove(self)
                raise AssertionError(f"{' '.join(self.args)} ended with {self.proc.returncode} before listening; "
                                     f"stderr:\n{self.stderr()}")
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(
                    f"{' '.join(self.args)}: no `listening on` in {timeout} s; stderr:\n{self.stderr()}")
            time.sleep(0.01)

    def wait_ready(self, timeout=30):
        self.wait_for(lambda: self.get("/readyz").status == 200, "GET /readyz is 200", timeout)

    def wait_hashed(self, timeout=60):
        """Wait until every file is hashed and entity tags depend on the digests."""
        def all_known():
            digests = self.get("/readyz").json()["digests"]
            return digests["published_files"] == digests["files"]
        self.wait_for(all_known, "all files are hashed", timeout)

    def wait_for(self, test, what, timeout=10.0, every=0.03):
        """Poll until test() is truthy and return that; refused connections count as 'not yet'."""
        deadline = time.monotonic() + timeout
        last = None
        while True:
            try:
                got = test()
                if got:
                    return got
            except (ConnectionError, Incomplete, TimeoutError) as e:
                last = e
            if self.proc.poll() is not None:
                raise AssertionError(f"server ended with {self.proc.returncode} while waiting for: {what}; "
                                     f"stderr:\n{self.stderr()[-4000:]}")
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"waited {timeout} s for: {what} (last {last!r}); stderr:\n{self.stderr()[-4000:]}")
            time.sleep(every)

    def conn(self, **kw):
        return Conn(self.port, **{"host": self.host, "tls": self.tls, **kw})

    def request(self, target, headers=(), method="GET", version="HTTP/1.1", **kw):
        with self.conn(**kw) as c:
            return c.request(target, headers, method, version)

    def get(self, target, headers=(), **kw):
        return self.request(target, headers, "GET", **kw)

    def post(self, target, body, headers=(), **kw):
        """Send a POST. body: bytes, or an object to send as JSON."""
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        with self.conn(**kw) as c:
            return c.request(target, headers, "POST", body=body)

    def head(self, target, headers=(), **kw):
        return self.request(target, headers, "HEAD", **kw)

    def json(self, target, headers=()):
        r = self.get(target, headers)
        assert r.status == 200, f"wanted 200, {r}"
        return r.json()

    def ids(self):
        return [m["id"] for m in self.json("/models")["models"]]

    def metrics(self):
        r = self.get("/metrics")
        assert r.status == 200, f"wanted 200, {r}"
        return parse_metrics(r.body.decode("utf-8"))

    def gauge(self, *patterns):
        """Return the sum of the samples of the first metric whose whole name matches one of the patterns."""
        _, _, samples = self.metrics()
        for p in patterns:
            hits = [v for name, _, v in samples if re.fullmatch(p, name)]
            if hits:
                return sum(hits)
        raise AssertionError(f"no metric matches {patterns}; there are {sorted({s[0] for s in samples})}")

    # resources of the process

    def fds(self):
        out = {}
        for fd in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(OSError):
                out[int(fd)] = os.readlink(f"/proc/{self.pid}/fd/{fd}")
        return out

    def sockets(self):
        return sum(1 for v in self.fds().values() if v.startswith("socket:"))

    def threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def anon_bytes(self):
        return anon_bytes_of(self.pid)

    def maps(self):
        return Path(f"/proc/{self.pid}/maps").read_text("utf-8", "replace")

    def alive(self):
        return self.proc.poll() is None

    def hup(self):
        self.proc.send_signal(signal.SIGHUP)

    def term(self):
        self.proc.send_signal(signal.SIGTERM)

    def wait_exit(self, timeout=30):
        try:
            self.rc = self.proc.wait(timeout)
        except subprocess.TimeoutExpired:
            err = self.stderr()
            self.kill()
            raise AssertionError(f"server did not end within {timeout} s; stderr:\n{err[-4000:]}") from None
        if self in Server.live:
            Server.live.remove(self)
        return self.rc

    def check_stderr(self):
        text = self.stderr()
        for mark in SANITIZER_MARKS:
            if mark in text:
                at = text.index(mark)
                raise AssertionError(
                    f"{' '.join(self.args)}\nsanitizer report on stderr:\n{text[max(0, at - 500):at + 6000]}")

    def stop(self, timeout=30):
        """Send SIGTERM. The exit code must be 0, and standard error must have no sanitizer report."""
        if self.rc is None:
            died = self.proc.poll()
            if died is None:
                self.term()
            self.wait_exit(timeout)
            self.check_stderr()
            assert died is None, f"server had died with {died} before it was stopped; stderr:\n{self.stderr()[-6000:]}"
        self.check_stderr()
        assert self.rc == 0, f"exit code {self.rc} after SIGTERM; stderr:\n{self.stderr()[-6000:]}"

    def kill(self):
        if self.proc.poll() is None:
            self.proc.kill()
        self.rc = self.proc.wait()
        if self in Server.live:
            Server.live.remove(self)


@contextlib.contextmanager
def hashed_server(root, *args, **kw):
    """Run a server that has hashed all files, so that entity tags stay and manifests are there."""
    with Server(root, *args, **kw) as s:
        s.wait_hashed()
        yield s


NOBODY = 65534


def as_nobody(place):
    """A tensord, copied to `place`, that runs as another user than the files' owner. Without root we are the owner, and
    only the modes keep us out."""
    shutil.copy(tensord_binary(), place / "tensord")
    run = place / "as-nobody"
    who = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups " if os.geteuid() == 0 else ""
    run.write_text(f"#!/bin/sh\nexec {who}{place}/tensord \"$@\"\n")
    run.chmod(0o755)
    return run


class SplicingRelay:
    """A relay that passes connections on by splice(2), as Go's io.Copy between connections and HAProxy's `option
    splice-response` do: references to the pages leave its receive queue and wait in its send queue."""

    def __init__(self, port, host="127.0.0.1", sndbuf=8 << 20):
        self.to, self.sndbuf = (host, port), sndbuf
        self.listener = socket.create_server((host, 0))
        self.port = self.listener.getsockname()[1]
        self.threads = []
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.listener.shutdown(socket.SHUT_RDWR)          # accept() ends
        self.listener.close()
        for thread in [self.thread, *self.threads]:
            thread.join(30)

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                self.threads = [t for t in self.threads if t.is_alive()]
                self.threads.append(threading.Thread(target=self.connect, args=[client], daemon=True))
                self.threads[-1].start()

    def connect(self, client):
        """Pass on in both directions, until either side has ended."""
        with client, contextlib.suppress(OSError), socket.create_connection(self.to) as server:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.sndbuf)
            back = threading.Thread(target=self.pass_on, args=[client, server], daemon=True)
            back.start()
            self.pass_on(server, client)
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RD)
            back.join()

    @staticmethod
    def pass_on(source, target):
        out, into = os.pipe()
        try:
            fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 1 << 20)
            while (n := os.splice(source.fileno(), into, 1 << 20)) > 0:
                while n > 0:
                    n -= os.splice(out, target.fileno(), n)
            target.shutdown(socket.SHUT_WR)
        except OSError:                                   # a reset: the other side is to see one, too
            for sock in (source, target):
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    sock.shutdown(socket.SHUT_RDWR)
        finally:
            os.close(out)
            os.close(into)


class Transfer:
    """A GET whose body is read in steps: begin, do something to the file, finish."""

    def __init__(self, s, target, rcvbuf=1 << 18, headers=()):
        self.c = s.conn(rcvbuf=rcvbuf, timeout=20)
        self.c.send(b"GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (target.encode(), b"".join(b"%s: %s\r\n" % h
                                                                                         for h in headers)))
        self.head = self.c.read_head(target)
        assert self.head.status in (200, 206), self.head
        self.body = b""

    def read(self, n):
        self.body += self.c.read_exact(n, self.head)

    def finish(self):
        """Return (whether it was complete, all bytes that were received)."""
        try:
            self.body += self.c.read_exact(self.head.length - len(self.body), self.head)
            return True, self.body
        except Incomplete as e:
            self.body += e.body
            return False, self.body
        finally:
            self.c.close()


def same_prefix(got, want):
    """Return how many leading bytes are right."""
    n = min(len(got), len(want))
    if got[:n] == want[:n]:
        return n
    lo, hi = 0, n
    while hi - lo > 1:
        mid = (lo + hi) // 2
        if got[:mid] == want[:mid]:
            lo = mid
        else:
            hi = mid
    return lo


# --------------------------------------------------------------------------------------------- checking

CODES = {
    400: "INVALID_ARGUMENT", 411: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404:
    "NOT_FOUND", 409: "FAILED_PRECONDITION", 405: "UNIMPLEMENTED", 412: "FAILED_PRECONDITION", 416: "OUT_OF_RANGE", 422:
    "FAILED_PRECONDITION", 413: "RESOURCE_EXHAUSTED", 429: "RESOURCE_EXHAUSTED", 431: "RESOURCE_EXHAUSTED", 500:
    "INTERNAL", 503: "UNAVAILABLE"
}


def check_error(r, code, *needles, allow=("GET", "HEAD")):
    """Check the error model of api/openapi.yaml (Error): status, JSON shape, canonical code, words of the message."""
    codes = code if isinstance(code, (tuple, list, set)) else (code,)
    assert r.status in codes, f"wanted {code}, {r}"
    e = r.json()
    assert set(e) == {"error"} and isinstance(e["error"], dict), f"error model: {r}"
    e = e["error"]
    assert e.get("code") == r.status, f"error.code is {e.get('code')}, status line says {r.status}: {r}"
    assert e.get("status") == CODES[r.status], f"error.status is {e.get('status')}, wanted {CODES[r.status]}: {r}"
    assert isinstance(e.get("message"), str) and e["message"], f"error.message is missing: {r}"
    assert "\n" not in e["message"], f"error.message has several lines: {r}"
    assert isinstance(e.get("details", {}), dict), f"error.details is no object: {r}"
    whole = json.dumps(e, ensure_ascii=False)
    for n in needles:
        assert n in whole, f"error does not mention {n!r}: {r}"
    if r.status == 405:
        named = sorted(a.strip() for a in (r.get("Allow") or "").split(","))
        assert named == sorted(allow), f"Allow is {r.get('Allow')!r}: {r}"
    if r.status == 503:
        assert re.fullmatch(r"[0-9]+", r.get("Retry-After") or ""), f"503 without Retry-After: {r}"
    return e


def parse_multipart(r):
    """Strict multipart/byteranges (RFC 9110 14.6, RFC 2046 5.1.1): [(first, last, total, content type, bytes)]."""
    ct = r.get("Content-Type") or ""
    m = re.fullmatch(r'multipart/byteranges; *boundary=("?)([0-9A-Za-z\'()+_,\-./:=? ]{1,70})\1', ct)
    assert m, f"Content-Type of a multipart answer: {ct!r}: {r}"
    assert r.get("Content-Range") is None, f"Content-Range on top of a multipart answer (15.3.7.2): {r}"
    mark = b"--" + m.group(2).encode()
    body = r.body
    parts = []
    if body.startswith(b"\r\n" + mark):
        body = body[2:]
    assert body.startswith(mark + b"\r\n"), f"multipart does not begin with its boundary: {body[:100]!r}"
    at = len(mark) + 2
    while True:
        end = body.find(b"\r\n\r\n", at)
        assert end >= 0, f"multipart part head without an end: {body[at:at + 200]!r}"
        head = {}
        for line in body[at:end].split(b"\r\n"):
            k, colon, v = line.partition(b":")
            assert colon and TOKEN.fullmatch(k), f"bad part header {line!r}"
            assert k.lower() not in head, f"part header {k!r} twice"
            head[k.lower()] = v.strip().decode("latin-1")
        cr = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", head.get(b"content-range", ""))
        assert cr, f"part without a good Content-Range: {head}"
        a, b, total = (int(x) for x in cr.groups())
        assert a <= b < total, f"part's Content-Range is impossible: {head}"
        data = body[end + 4:end + 4 + b - a + 1]
        assert len(data) == b - a + 1, f"part {a}-{b} holds {len(data)} bytes"
        parts.append((a, b, total, head.get(b"content-type"), data))
        at = end + 4 + len(data)
        assert body[at:at + 2 + len(mark)] == b"\r\n" + mark, \
            f"no boundary after part {a}-{b} but {body[at:at + 80]!r}"
        assert mark not in data, "the boundary occurs within a part"
        at += 2 + len(mark)
        if body[at:at + 2] == b"--":
            rest = body[at + 2:]
            assert rest in (b"", b"\r\n"), f"bytes after the closing boundary: {rest[:80]!r}"
            return parts
        assert body[at:at + 2] == b"\r\n", f"boundary line does not end in CRLF: {body[at:at + 20]!r}"
        at += 2
