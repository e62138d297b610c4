"""The tree of good models that the read-only tests serve, written once by hand and by the safetensors package."""
import contextlib
import hashlib
import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from harness import DTYPE_BITS, PACKAGE_DTYPES, Model, Tensor, age, pattern, tensor, write_by_hand, write_by_package

COMMIT_A = "a" * 39 + "1"
COMMIT_B = "b" * 39 + "2"
COMMIT_C = "c" * 39 + "3"

# Names that make naive URL handling fail. All of them live in one model.
NAMES = [
    "plain",
    "with.dots.and_underscores-0",
    "a/b",
    "a%2Fb",
    "a%252Fb",
    "/leading",
    "trailing/",
    "double//slash",
    "with space",
    " lead and trail ",
    "plus+plus",
    "pl us",
    "quote\"double",
    "quote'single",
    "back\\slash",
    "question?mark",
    "hash#mark",
    "percent%",
    "percent%zz",
    "amp&equals=semi;colon:comma,",
    "at@dollar$bang!star*",
    "brackets[0](1){2}<3>",
    "pipe|caret^tick`tilde~",
    "ünïcode",
    "名前/テンソル",
    "emoji😀",
    "e\u0301 combining",
    "é precomposed",
    "tab\there",
    "line\nGET /forged HTTP/1.1",
    "del\x7f",
    "control\x01",
    "dots/../up",
    "..",
    ".",
    "./here",
    "tensors",
    "files/x",
    "model.safetensors",
    "UPPER",
    "upper",
    "long" + "x" * 1000,
    "0",
    "-",
    "%",
    "+",
    "\u2028sep",
    "nbsp\u00a0",
    "\ufeffbom",
    "rtl\u202etxt",
]


class Tree:
    def __init__(self, root):
        self.root = Path(root)
        self.models = {}

    def model(self, id, path=None):
        m = Model(id, self.root / (path or id))
        m.dir.mkdir(parents=True, exist_ok=True)
        self.models[id] = m
        return m


def build_tree(root):
    t = Tree(root)
    t.root.mkdir(parents=True)

    # plain models, written by the real package
    m = t.model("plain")
    ts = [tensor("model.embed_tokens.weight", "BF16", [64, 48]), tensor("model.norm.weight", "F32", [48]),
          tensor("lm_head.weight", "F16", [33, 7]), tensor("step", "I64", [])]
    write_by_package(m.dir / "model.safetensors", ts, {"format": "pt"})
    m.metadata = {"format": "pt"}
    m.add(*ts)
    (m.dir / "config.json").write_text(json.dumps(
        {"model_type": "test", "hidden_size": 48, "big": 9007199254740993, "nested": {"a": [1, 2.5, None, True]}}))
    (m.dir / "tokenizer.json").write_bytes(b'{"x":"' + b"\xc3\xa9" * 100 + b'"}')
    (m.dir / "README.md").write_text("# plain\n<script>alert(1)</script>\n")
    (m.dir / "vocab.txt").write_text("a\nb\n")
    (m.dir / "page.html").write_text("<script>alert(1)</script>")
    (m.dir / "image.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (m.dir / "data.bin").write_bytes(pattern(5000, "data.bin"))
    (m.dir / "noextension").write_bytes(pattern(77, "noext"))
    (m.dir / "zero.txt").write_bytes(b"")
    (m.dir / ".hidden").write_text("SECRET dot")
    (m.dir / "half.safetensors.incomplete").write_text("SECRET incomplete")
    (m.dir / "half.safetensors.tmp").write_text("SECRET tmp")
    deep = m.dir / "sub dir" / "ünï+code" / ".." / "deeper"
    (m.dir / "sub dir" / "ünï+code").mkdir(parents=True)
    deep.mkdir()
    (m.dir / "sub dir" / "ünï+code" / "file 100%.json").write_text('{"deep":true}')
    (m.dir / "sub dir" / "deeper" / "notes.txt").write_text("notes")
    (m.dir / ".git").mkdir()
    (m.dir / ".git" / "config").write_text("SECRET git")

    # every dtype, by hand; and those the package can write, by the package
    m = t.model("dtypes/hand")
    ts = []
    for d in DTYPE_BITS:
        ts += [tensor(f"{d}.matrix", d, [6, 8]), tensor(f"{d}.empty", d, [3, 0, 4])]
        if DTYPE_BITS[d] >= 8:
            ts += [tensor(f"{d}.scalar", d, []), tensor(f"{d}.odd", d, [1, 5, 1, 3])]
    write_by_hand(m.dir / "model.safetensors", ts, None, pad=0)
    m.add(*ts)
    m = t.model("dtypes/package")
    ts = [tensor(f"{d}.m", d, [4, 10], "p") for d in PACKAGE_DTYPES]
    write_by_package(m.dir / "weights.safetensors", ts, {"k": "v", "ünï": "\"quoted\"\n", "empty": ""})
    m.metadata = {"k": "v", "ünï": "\"quoted\"\n", "empty": ""}
    m.add(*ts)

    # hard names
    m = t.model("org/names")
    ts = [tensor(n, "U8", [37 + i]) for i, n in enumerate(NAMES)]
    write_by_hand(m.dir / "model.safetensors", ts)
    m.add(*ts)

    # many tensors of a known mix, for filters and pages
    m = t.model("many")
    ts = []
    for i in range(250):
        d = ("F32", "BF16", "I64", "U8")[i % 4]
        ts.append(tensor(f"model.layers.{i:03d}.{'attn' if i % 2 else 'mlp'}.weight", d, [i % 7 + 1, 3]))
    write_by_hand(m.dir / "model.safetensors", ts[::-1])
    m.add(*ts)

    # shapes: 0-d, zero dims, 64-bit dims of no bytes, many dims, names that sort bytewise
    m = t.model("shapes")
    ts = [tensor("scalar", "F64", []), tensor("zero", "F32", [0]), tensor("zeros", "BF16", [0, 4, 0]),
          Tensor("huge_dim", "F32", [0, 9007199254740993]), Tensor("huge_dim2", "U8", [18446744073709551615, 0]),
          tensor("many_dims", "U8", [1, 2, 1, 3, 1, 2, 1, 1, 2]), tensor("a.10", "U8", [1]), tensor("a.2", "U8", [2]),
          tensor("B", "U8", [3]), tensor("b", "U8", [4])]
    write_by_hand(m.dir / "model.safetensors", ts)
    m.add(*ts)

    # shards with an index (tensor order interleaved), and shards without
    m = t.model("sharded")
    weight_map = {}
    for i in range(3):
        ts = [tensor(f"layer.{k}.w", "F32", [5, k + 1]) for k in range(i, 12, 3)]
        name = f"model-{i + 1:05d}-of-00003.safetensors"
        write_by_package(m.dir / name, ts, {"format": "pt"})
        m.add(*ts)
        weight_map |= {x.name: name for x in ts}
    (m.dir / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {"total_size": m.total_bytes}, "weight_map": weight_map}, indent=2))
    m = t.model("noindex")
    for i in range(2):
        ts = [tensor(f"part{i}.{k}", "I16", [7, k + 2]) for k in range(4)]
        write_by_hand(m.dir / f"part-{i}.safetensors", ts)
        m.add(*ts)

    # nested models, a model whose id looks like a method of another, a model in the root itself
    for id in ("nested/outer", "nested/outer/inner", "nested/outer/inner/deepest"):
        m = t.model(id)
        ts = [tensor("w", "U8", [100], id)]
        write_by_hand(m.dir / "model.safetensors", ts)
        m.add(*ts)
    m = t.model("amb")
    ts = [tensor("x", "U8", [50], "amb"), tensor("y/z", "U8", [51], "amb")]
    write_by_hand(m.dir / "model.safetensors", ts)
    m.add(*ts)
    m = t.model("amb/tensors/x")
    ts = [tensor("inner", "U8", [52], "amb/tensors/x")]
    write_by_hand(m.dir / "model.safetensors", ts)
    m.add(*ts)
    m = Model("single.safetensors", t.root)
    ts = [tensor("w", "F32", [10], "single"), tensor("v", "U8", [3], "single")]
    write_by_hand(t.root / "single.safetensors", ts)
    m.add(*ts)
    t.models[m.id] = m
    m = t.model("ünï code/mödel+x 100%")
    ts = [tensor("w", "U8", [64], m.id)]
    write_by_hand(m.dir / "model.safetensors", ts)
    m.add(*ts)
    for word in ("tensors", "files", "plans", "shards", "model.safetensors"):
        write_by_hand(t.root / "reserved" / word / "w.safetensors", [tensor("w", "U8", [8], word)])
    m = t.model("tensors/inside")         # a method word that is not the last segment is fine
    ts = [tensor("w", "U8", [65], m.id)]
    write_by_hand(m.dir / "model.safetensors", ts)
    m.add(*ts)

    # for the range table: a tensor, an empty tensor, a plain file, an empty file
    m = t.model("bytes")
    ts = [tensor("blob", "U8", [20011]), tensor("empty", "F32", [0, 3]), tensor("one", "U8", [1])]
    write_by_hand(m.dir / "model.safetensors", ts)
    m.add(*ts)
    (m.dir / "range.bin").write_bytes(pattern(40009, "range.bin"))
    (m.dir / "zero.bin").write_bytes(b"")

    # a dataset: not a model
    rows = t.root / "datasets" / "org" / "rows"
    rows.mkdir(parents=True)
    (rows / "train.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    (rows / "README.md").write_text("# rows\n")

    # 64-bit: a sparse file of 6 GiB with marks beyond 4 GiB and a tensor at its end
    m = t.model("big")
    big = Tensor("huge", "U8", [6 << 30])
    tail = tensor("tail", "F32", [1000])
    head = json.dumps({"huge": {"dtype": "U8", "shape": [6 << 30], "data_offsets": [0, 6 << 30]},
                       "tail": {"dtype": "F32", "shape": [1000], "data_offsets": [6 << 30, (6 << 30) + 4000]}}).encode()
    head += b" " * (-len(head) % 8)
    with open(m.dir / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        base = 8 + len(head)
        f.truncate(base + (6 << 30) + 4000)
        for at in BIG_MARKS:
            f.seek(base + at)
            f.write(pattern(BIG_MARK_BYTES, f"mark{at}"))
        f.seek(base + (6 << 30))
        f.write(tail.data)
    big.file = tail.file = "model.safetensors"
    big.offset, tail.offset = base, base + (6 << 30)
    m.add(big, tail)

    hf_cache(t)
    age(t.root)
    return t


BIG_MARK_BYTES = 4099
BIG_MARKS = [0, (1 << 31) - 2000, (1 << 32) - 2000, 5 << 30, (6 << 30) - BIG_MARK_BYTES]


def big_slice(first, last):
    """Return bytes first..last of the tensor `huge`, without holding 6 GiB."""
    out = np.zeros(last - first + 1, dtype=np.uint8)
    for at in BIG_MARKS:
        mark = np.frombuffer(pattern(BIG_MARK_BYTES, f"mark{at}"), dtype=np.uint8)
        a, b = max(first, at), min(last + 1, at + BIG_MARK_BYTES)
        if a < b:
            out[a - first:b - first] = mark[a - at:b - at]
    return out.tobytes()


def hf_snapshot(repo, commit, files):
    """One snapshot of a Hugging Face cache folder: blobs by digest, relative links to them."""
    snap = repo / "snapshots" / commit
    (repo / "blobs").mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        digest = hashlib.sha256(data).hexdigest()
        blob = repo / "blobs" / digest
        if not blob.exists():
            blob.write_bytes(data)
        link = snap / name
        link.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(os.path.relpath(blob, link.parent), link)
    return snap


def st(tensors, metadata=None):
    from harness import safetensors_bytes
    return safetensors_bytes(tensors, metadata)


def locate_in(raw, name, tensors):
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    for t in tensors:
        t.file, t.offset = name, 8 + n + head[t.name]["data_offsets"][0]


def hf_cache(t):
    """Three cache folders: with refs/main (not the newest snapshot), without refs, and without an organisation."""
    def one(folder, id, commits, main, expect):
        repo = t.root / folder
        for age_rank, commit in enumerate(commits):
            ts = [tensor("w", "F32", [11 + age_rank], id + commit), tensor("sub/v", "U8", [5], id + commit)]
            raw = st(ts, {"commit": commit})
            hf_snapshot(repo, commit, {"model.safetensors": raw, "config.json": json.dumps({"commit": commit}).encode(),
                                       "sub/notes.txt": b"notes " + commit.encode()})
            if commit == expect:
                m = Model(id, repo / "snapshots" / commit)
                locate_in(raw, "model.safetensors", ts)
                m.metadata = {"commit": commit}
                m.add(*ts)
                m.revision = commit
                t.models[id] = m
        if main:
            (repo / "refs").mkdir()
            (repo / "refs" / "main").write_text(main)
        (repo / ".no_exist" / commits[0]).mkdir(parents=True)
    one("models--hf-org--with-main", "hf-org/with-main", [COMMIT_A, COMMIT_B], COMMIT_A, COMMIT_A)
    one("models--hf-org--no.refs", "hf-org/no.refs", [COMMIT_C], None, COMMIT_C)
    one("models--solo", "solo", [COMMIT_B], COMMIT_B, COMMIT_B)


def write_zeros_npz(path, nbytes, damaged=False, columns=1):
    """Write an .npz with one array "a" of that many zero bytes (a multiple of 16 MiB below 4 GiB), deflated to a
    thousandth. One block is compressed once and repeated, so this takes seconds where a zip writer takes minutes.
    damaged: its CRC is wrong. columns: more than one makes a matrix that is stored column by column."""
    unit = 16 << 20
    assert nbytes % unit == 0 and nbytes < 1 << 32
    head = b"{'descr': '|u1', 'fortran_order': %s, 'shape': (%d, %d), }" % (
        b"True" if columns > 1 else b"False", nbytes // columns, columns)
    head = b"\x93NUMPY\x01\x00\x76\x00" + head.ljust(117) + b"\n"

    def block(data, end):
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(data) + packer.flush(end)

    stream = block(head, zlib.Z_FULL_FLUSH) + block(bytes(unit), zlib.Z_FULL_FLUSH) * (nbytes // unit) + block(
        b"", zlib.Z_FINISH)
    crc = zlib.crc32(head)
    for _ in range(nbytes // unit):
        crc = zlib.crc32(bytes(unit), crc)
    crc ^= 1 if damaged else 0
    name, size = b"a.npy", len(head) + nbytes
    fields = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, crc, len(stream), size, len(name), 0)
    local = struct.pack("<I", 0x04034B50) + fields + name + stream
    central = struct.pack("<IH", 0x02014B50, 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 1, 1, len(central), len(local), 0)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(local + central + end)


@contextlib.contextmanager
def stuck_disk(place):
    """Mount the tree place/"source" on a file system whose reads hang while a file exists. Yield the mount point and
    the path of that file."""
    mount_point, hold = place / "mount", place / "hold"
    mount_point.mkdir()
    disk = subprocess.Popen([sys.executable, Path(__file__).parent / "stuck_disk.py", place / "source", mount_point,
                             hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if disk.stdout.readline() != "mounted\n":
            pytest.fail("no FUSE file system (root and /dev/fuse are needed): " + disk.stderr.read()[-500:])
        yield mount_point, hold
    finally:
        hold.unlink(missing_ok=True)
        disk.stdin.close()
        disk.wait(timeout=20)
