"""Files for the bench, written by hand: no package needed, and big ones in seconds. Also what of them is in the page
cache."""

import array
import ctypes
import dataclasses
import importlib.util
import json
import math
import mmap
import os
import random
import socket
import time

from measure import BenchError

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = 4096
BLOCK = 4 << 20
OLD = 1_600_000_000  # modification time of every file: long settled, the same in every run
TENSOR = "model.embed_tokens.weight"
ROW_ELEMS = 2048
COLD_ENOUGH = 0.01  # largest part of a file that may still be in the page cache


@dataclasses.dataclass
class Fixture:
    """A file with one big tensor: the path, and the tensor's place in the file."""

    path: str
    tensor_off: int
    tensor_bytes: int

    def __post_init__(self):
        self.root, self.name = os.path.split(self.path)
        self.size = self.tensor_off + self.tensor_bytes

    def read(self, off, length):
        with open(self.path, "rb") as f:
            return os.pread(f.fileno(), length, off)


# ---- safetensors

def header_of(tensors):
    """Returns the header of a safetensors file: 8 bytes of length, JSON, spaces up to a multiple of 8."""
    text = json.dumps(tensors, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write(path, blocks, sync=True):
    """Writes a file from an iterator over its bytes, under another name first."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".tmp", "wb") as f:
        for block in blocks:
            f.write(block)
        f.flush()
        if sync:  # dirty pages cannot be dropped, and writing them back would disturb the first rounds
            os.fsync(f.fileno())
    os.utime(path + ".tmp", (OLD, OLD))
    os.rename(path + ".tmp", path)


def pages(nbytes):
    """Yields bytes in which each 4 KiB page starts with its number; the rest is random and repeats every 4 MiB. So no
    two pages are equal and a wrong offset shows, yet the disk's speed is the limit."""
    block = bytearray(random.Random(7).randbytes(BLOCK))
    for off in range(0, nbytes, BLOCK):
        numbers = array.array("Q", range(off // PAGE, (off + BLOCK) // PAGE)).tobytes()
        for byte in range(8):
            block[byte::PAGE] = numbers[byte::8]
        yield memoryview(block)[:min(BLOCK, nbytes - off)]


def write_tensors(path, shapes, sparse=False):
    """Writes (or finds) a file of BF16 tensors. sparse: with a hole in their place. Returns ({name: (shape, begin, end)
    of the data}, offset of the data in the file)."""
    places, at = {}, 0
    for name, shape in shapes.items():
        end = at + 2 * math.prod(shape)
        places[name], at = (shape, at, end), end
    header = header_of({name: {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
                        for name, (shape, begin, end) in places.items()})
    if sparse:
        write(path, [header])
        os.truncate(path, len(header) + at)
    elif not is_written(path, header, at):
        write(path, (block for part in ([header], pages(at)) for block in part))
    return places, len(header)


def is_written(path, header, nbytes):
    try:
        with open(path, "rb") as f:
            last = max(0, nbytes // PAGE - 1)
            return (os.fstat(f.fileno()).st_size == len(header) + nbytes and f.read(len(header)) == header
                    and os.pread(f.fileno(), 8, len(header) + last * PAGE) == last.to_bytes(8, "little"))
    except OSError:
        return False


def write_big(path, tensor_bytes):
    """Writes (or finds) a file with one BF16 tensor."""
    if tensor_bytes % (2 * ROW_ELEMS):
        raise BenchError("the size must be a multiple of %d" % (2 * ROW_ELEMS))
    _, offset = write_tensors(path, {TENSOR: [tensor_bytes // (2 * ROW_ELEMS), ROW_ELEMS]})
    return Fixture(path, offset, tensor_bytes)


def tensor_names(count):
    """Returns `count` names like those in real models."""
    kinds = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
             "mlp.up_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm", "self_attn.q_norm"]
    return ["model.layers.%d.%s.weight" % (i // len(kinds), kinds[i % len(kinds)]) for i in range(count)]


def write_small(path, count, nbytes=64):
    """Writes a file of many small F32 tensors of nbytes each."""
    tensors = {name: {"dtype": "F32", "shape": [nbytes // 4], "data_offsets": [i * nbytes, (i + 1) * nbytes]}
               for i, name in enumerate(tensor_names(count))}
    write(path, [header_of(tensors), *(i.to_bytes(8, "little") * (nbytes // 8) for i in range(count))], sync=False)


@dataclasses.dataclass
class Llama:
    """The shapes of a Llama in BF16."""

    layers: int
    hidden: int = 2048
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    intermediate: int = 6144
    vocabulary: int = 32768

    def shapes(self):
        """Returns {name: shape}: nine tensors for each layer, and three."""
        hidden, heads, kv = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer = {"self_attn.q_proj": [heads, hidden], "self_attn.k_proj": [kv, hidden],
                 "self_attn.v_proj": [kv, hidden], "self_attn.o_proj": [hidden, heads],
                 "mlp.gate_proj": [self.intermediate, hidden], "mlp.up_proj": [self.intermediate, hidden],
                 "mlp.down_proj": [hidden, self.intermediate], "input_layernorm": [hidden],
                 "post_attention_layernorm": [hidden]}
        return {"model.embed_tokens.weight": [self.vocabulary, hidden], "lm_head.weight": [self.vocabulary, hidden],
                "model.norm.weight": [hidden],
                **{"model.layers.%d.%s.weight" % (i, name): shape for i in range(self.layers)
                   for name, shape in layer.items()}}

    def write(self, folder, sparse=False):
        """Writes model.safetensors and config.json. Returns what write_tensors does."""
        self.write_config(folder)
        return write_tensors(os.path.join(folder, "model.safetensors"), self.shapes(), sparse)

    def write_config(self, folder):
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": self.heads,
                  "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "hidden_size": self.hidden,
                  "intermediate_size": self.intermediate, "vocab_size": self.vocabulary,
                  "num_hidden_layers": self.layers, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
        write(os.path.join(folder, "config.json"), [json.dumps(config).encode()])


# ---- rows: every row of a file has the same length, so that its place is its number times that, and no two are equal

DATASET = "bench"  # every root serves one dataset of this name
ROW_BYTES, SHORT_BYTES = 1024, 20  # of a line, with its end
DIGITS = 10
START = b'{"id":"'
BLOCK_ROWS = 10_000  # a power of ten, so that only the upper digits change from block to block
NPY_HEADER_BYTES = 128


class Rows:
    """A dataset of one file: root to serve, path, number of rows, bytes of each with and without its line end."""

    def __init__(self, root, name, count, stride, end_bytes=1, offset=0):
        self.root, self.count, self.stride, self.end_bytes, self.offset = root, count, stride, end_bytes, offset
        self.path = os.path.join(root, "datasets", DATASET, name)
        self.nbytes = offset + count * stride

    def read(self, numbers):
        """Returns rows as they are in the file."""
        with open(self.path, "rb") as file:
            return [os.pread(file.fileno(), self.stride - self.end_bytes, self.offset + n * self.stride)
                    for n in numbers]

    def written(self, blocks):
        """Writes (or finds) the file, and returns the rows."""
        if not os.path.exists(self.path) or os.path.getsize(self.path) != self.nbytes:
            write(self.path, blocks)
        return self


def write_lines(root, count, stride=ROW_BYTES):
    """Writes a JSON Lines file: {"id":"0000000017"}, with a "text" of random letters where there is room."""
    return Rows(root, "rows.jsonl", count, stride).written(line_blocks(count, stride))


def line_blocks(count, stride):
    block = bytearray(b"".join(line(i, stride) for i in range(BLOCK_ROWS)))
    for first in range(0, count, BLOCK_ROWS):
        for at, digit in enumerate(b"%0*d" % (DIGITS, first)):
            if at < DIGITS - len(str(BLOCK_ROWS)) + 1:  # the lower digits are those of the row within its block
                block[len(START) + at::stride] = bytes([digit]) * BLOCK_ROWS
        yield memoryview(block)[:min(BLOCK_ROWS, count - first) * stride]


def line(number, stride):
    text = START + b"%0*d" % (DIGITS, number)
    if len(text) + 3 < stride:
        text += b'","text":"'
        letters = random.Random(number).randbytes((stride - len(text)) // 2).hex().encode()
        text += letters[:stride - 3 - len(text)].ljust(stride - 3 - len(text), b"x")
    return text + b'"}\n'


def write_numbers(root, count):
    """Writes a .npy file of numbers of 4 bytes, each the number of its row."""
    header = b"{'descr': '<u4', 'fortran_order': False, 'shape': (%d,), }" % count

    def blocks():
        yield b"\x93NUMPY\x01\x00" + (NPY_HEADER_BYTES - 10).to_bytes(2, "little")
        yield header.ljust(NPY_HEADER_BYTES - 11) + b"\n"
        for first in range(0, count, 1_000_000):
            yield array.array("I", range(first, min(count, first + 1_000_000))).tobytes()

    return Rows(root, "rows.npy", count, 4, 0, NPY_HEADER_BYTES).written(blocks())


def shuffled(count, seed, start, wanted):
    """Returns the rows at positions [start, start + wanted) of the shuffled order, by the Python client's code."""
    path = os.path.join(TREE, "clients", "python", "tensord", "rows", "permutation.py")
    spec = importlib.util.spec_from_file_location("bench_permutation", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Permutation(count, seed, 0).take(start, wanted)


# ---- the page cache

def resident_fraction(path):
    """Returns the part of a file that is in the page cache (mincore over a fresh mapping, which touches no page)."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as f:
        size = os.fstat(f.fileno()).st_size
        mapping = mmap.mmap(f.fileno(), size, access=mmap.ACCESS_COPY)
    try:
        pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        flags = (ctypes.c_ubyte * pages)()
        anchor = ctypes.c_char.from_buffer(mapping)
        rc = libc.mincore(ctypes.c_void_p(ctypes.addressof(anchor)), ctypes.c_size_t(size), flags)
        del anchor
        if rc != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        return 1 - bytes(flags).count(0) / pages
    finally:
        mapping.close()


def drop_cache(path, enough=COLD_ENOUGH, seconds=5):
    """Drops the file's pages from the page cache and returns the fraction that stayed. Pages that a process has mapped
    and touched stay until the process ends. Pages that sendfile put on a socket can stay in a per-processor list
    until that processor sees a packet."""
    end = time.monotonic() + seconds
    while True:
        with open(path, "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        resident = resident_fraction(path)
        if resident <= enough or time.monotonic() > end:
            return resident
        packet_on_each_processor()
        time.sleep(0.02)


def make_cold(path, strict=True):
    """Drops the file's pages. Raises BenchError if too many stayed and strict."""
    resident = drop_cache(path)
    if resident > COLD_ENOUGH and strict:
        raise BenchError("%.1f%% of %s is still in the page cache" % (100 * resident, path))
    return resident


def is_memory(directory):
    """Returns whether files there are always in memory (tmpfs), so that none is ever cold."""
    path = os.path.join(directory, "resident.tmp")
    write(path, [bytes(1 << 20)])
    try:
        return drop_cache(path, seconds=1) > COLD_ENOUGH
    finally:
        os.unlink(path)


def packet_on_each_processor():
    allowed = os.sched_getaffinity(0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        try:
            for processor in allowed:
                os.sched_setaffinity(0, {processor})
                s.sendto(b"x", s.getsockname())
        finally:
            os.sched_setaffinity(0, allowed)


def fill_cache(path):
    buffer = bytearray(BLOCK)
    with open(path, "rb", buffering=0) as f:
        while f.readinto(buffer):
            pass
