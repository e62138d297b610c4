"""Safetensors files for the bench, written by hand: no package needed, and big ones in seconds."""

import array
import ctypes
import json
import mmap
import os
import random
import socket
import time

PAGE = 4096
BLOCK = 4 << 20
OLD = 1_600_000_000  # modification time of every file: long settled, the same in every run
TENSOR = "model.embed_tokens.weight"
ROW_ELEMS = 2048


class Fixture:
    """A file with one big tensor: the path, and the tensor's place in the file."""

    def __init__(self, path, tensor_off, tensor_bytes):
        self.path, self.name = path, os.path.basename(path)
        self.root = os.path.dirname(path)
        self.tensor_off, self.tensor_bytes = tensor_off, tensor_bytes
        self.size = tensor_off + tensor_bytes

    def read(self, off, length):
        with open(self.path, "rb") as f:
            return os.pread(f.fileno(), length, off)


class Folder:
    """A directory of files to serve."""

    def __init__(self, root):
        self.root = root


def header_of(tensors):
    """Returns the header of a safetensors file: 8 bytes of length, JSON, spaces up to a multiple of 8."""
    text = json.dumps(tensors, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write_big(path, tensor_bytes):
    """Writes (or finds) a file with one BF16 tensor. Each 4 KiB page starts with its page number; the rest is random
    and repeats every 4 MiB. So no two pages are equal and a wrong offset shows, yet the disk's speed is the limit."""
    if tensor_bytes % (2 * ROW_ELEMS):
        raise ValueError("the size must be a multiple of %d" % (2 * ROW_ELEMS))
    shape = [tensor_bytes // (2 * ROW_ELEMS), ROW_ELEMS]
    header = header_of({"__metadata__": {"format": "pt"},
                        TENSOR: {"dtype": "BF16", "shape": shape, "data_offsets": [0, tensor_bytes]}})
    fixture = Fixture(path, len(header), tensor_bytes)
    if _is_written(fixture, header):
        return fixture
    part = path + ".tmp"
    block = bytearray(random.Random(7).randbytes(BLOCK))
    with open(part, "wb") as f:
        f.write(header)
        for off in range(0, tensor_bytes, BLOCK):
            first = off // PAGE
            numbers = array.array("Q", range(first, first + BLOCK // PAGE)).tobytes()
            for byte in range(8):
                block[byte::PAGE] = numbers[byte::8]
            f.write(memoryview(block)[:min(BLOCK, tensor_bytes - off)])
        f.flush()
        os.fsync(f.fileno())  # dirty pages cannot be dropped, and writing them back would disturb the first rounds
    os.utime(part, (OLD, OLD))
    os.rename(part, path)
    return fixture


def _is_written(fixture, header):
    try:
        if os.path.getsize(fixture.path) != fixture.size or fixture.read(0, len(header)) != header:
            return False
        last = fixture.tensor_bytes // PAGE - 1
        return fixture.read(fixture.tensor_off + last * PAGE, 8) == last.to_bytes(8, "little")
    except OSError:
        return False


def write_small(path, names, nbytes=64):
    """Writes a file of many small F32 tensors of nbytes each."""
    tensors = {name: {"dtype": "F32", "shape": [nbytes // 4], "data_offsets": [i * nbytes, (i + 1) * nbytes]}
               for i, name in enumerate(names)}
    header = header_of(tensors)
    with open(path, "wb") as f:
        f.write(header)
        for i in range(len(names)):
            f.write(i.to_bytes(8, "little") * (nbytes // 8))
    os.utime(path, (OLD, OLD))


def tensor_names(count):
    """Returns `count` names like those in real models."""
    kinds = ["self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
             "self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
             "input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.q_norm.weight"]
    return ["model.layers.%d.%s" % (i // len(kinds), kinds[i % len(kinds)]) for i in range(count)]


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


def drop_cache(path, enough=0.01, seconds=5):
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


def copy_rate_gb(path):
    """Returns the GB/s at which one processor copies the mapped file into a small buffer: the cost of memory in every
    send that copies."""
    with open(path, "rb") as f:
        mapping = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
    length = len(mapping)
    anchor = ctypes.c_char.from_buffer(mapping)
    chunk = min(256 << 10, length)
    target = ctypes.create_string_buffer(chunk)
    try:
        for _ in range(2):  # the first pass fills the page tables
            start = time.monotonic()
            for off in range(0, length - chunk + 1, chunk):
                ctypes.memmove(target, ctypes.addressof(anchor) + off, chunk)
            seconds = time.monotonic() - start
        return length // chunk * chunk / seconds / 1e9
    finally:
        del anchor
        mapping.close()
