"""Versions of a model as trainers write them, for tests of `tensord apply`: full ones by the safetensors package,
deltas by a writer that follows the description of the format with numpy, zstandard and xxhash. (slime publishes no
package. test_apply_writers.py has the deltas of ModelExpress's own writer.)"""
import json
import struct
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import xxhash
import zstandard
from safetensors.numpy import load_file, save, save_file

INDEX = "model.safetensors.index.json"
FORMATS = {"delta_encoding": "xor", "compression_format": "zstd", "checksum_format": "xxh3-128"}
CHECKSUMS = {"xxh3-128": lambda data: xxhash.xxh3_128(data).hexdigest(),
             "adler32": lambda data: f"{zlib.adler32(data):08x}"}


def tensors(seed=1):
    """Return tensors of several types, among them one of several windows of the reader (1 MiB), one without elements,
    and two that are tied: equal under two names."""
    rng = np.random.default_rng(seed)
    found = {"embed.weight": rng.standard_normal((700, 801)).astype(ml_dtypes.bfloat16),
             "layers.0.norm": rng.standard_normal(64).astype(np.float32),
             "layers.0.w": rng.integers(0, 256, (300, 7), dtype=np.uint8),
             "layers.1.w": rng.standard_normal((128, 64)).astype(np.float16),
             "scalar": np.array(3.5, np.float32),
             "none": np.zeros((0, 4), np.float32)}
    return {**found, "lm_head.weight": found["embed.weight"].copy()}


def raw(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def step(old, seed, share=0.01, names=None):
    """Return the tensors of the next version: a share of the bytes of all tensors, or of those named, is another."""
    rng, new = np.random.default_rng(seed), {}
    for name, array in old.items():
        data = raw(array).copy()
        if len(data) and (names is None or name in names):
            where = rng.choice(len(data), max(1, int(len(data) * share)), replace=False)
            data[where] ^= rng.integers(1, 256, len(where), dtype=np.uint8)
        new[name] = data.view(array.dtype).reshape(array.shape)
    return new


def write_full(folder, arrays, version=None, files=2, others=True, **metadata):
    """Write a full version with an index, in several files; files=0: model.safetensors alone, without an index."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    if others:
        (folder / "config.json").write_text('{"model_type": "tiny"}')
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer/vocab.txt").write_text("a\nb\n")
    if files == 0:
        save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    names, where = list(arrays), {}
    for i in range(files):
        part = f"model-{i + 1:05d}-of-{files:05d}.safetensors"
        mine = {name: arrays[name] for name in names[i::files]}
        where |= dict.fromkeys(mine, part)
        save_file(mine, folder / part, metadata={"format": "pt"})
    said = {"total_size": sum(a.nbytes for a in arrays.values()), **metadata}
    if version is not None:
        said["version"] = version
    (folder / INDEX).write_text(json.dumps({"metadata": said, "weight_map": where}, indent=2))
    return folder


def encode(old, new, encoding):
    """Return the content of a frame: old ^ new; or the number of bytes that differ, their positions, the new bytes."""
    old, new = raw(old), raw(new)
    if encoding == "xor":
        return (old ^ new).tobytes()
    at = np.flatnonzero(old != new).astype("<u4")
    return struct.pack("<I", len(at)) + at.tobytes() + new[at].tobytes()


def frame(content):
    return zstandard.ZstdCompressor(level=1).compress(content)


def write_delta(folder, old, new, version, base, shards=1, frames=None, sums=None, drop=(), weight_map=None, **formats):
    """Write the delta between two versions. frames, sums: in place of the right ones, by name; drop: members of the
    metadata that are left out; weight_map: changes it."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    said = {"version": version, "base_version": base, **FORMATS, **formats}
    sum_of = CHECKSUMS.get(said["checksum_format"], CHECKSUMS["xxh3-128"])
    changed = {name: frame(encode(old[name], new[name], said["delta_encoding"])) for name in new
               if name in old and not np.array_equal(raw(old[name]), raw(new[name]))} | (frames or {})
    checks = {name: sum_of(raw(new[name]).tobytes()) for name in changed if name in new} | (sums or {})
    where, names = {}, list(changed)
    for i in range(shards if names else 0):
        part = f"model-{i:05d}-of-{shards:05d}.safetensors"
        mine = names[i::shards]
        where |= dict.fromkeys(mine, part)
        (folder / part).write_bytes(save({n: np.frombuffer(changed[n], np.uint8) for n in mine},
                                         metadata={n: checks[n] for n in mine if checks.get(n) is not None}))
    where |= weight_map or {}
    (folder / INDEX).write_text(json.dumps({"metadata": {k: v for k, v in said.items() if k not in drop},
                                            "weight_map": where}))
    return folder


def write_skyrl_delta(folder, old, new, number, before, files=1, records=None, **manifest):
    """Write a delta as SkyRL's trainer does (DeltaCheckpointPublisher.create_delta_files and publish, in
    skyrl/backends/skyrl_train/weight_sync/delta/checkpoint.py of 2026-09): each change is old ^ new, one frame at level
    1; the checksums are in manifest.json, which is written last. records: changes a tensor's record, by name; manifest:
    other members of it, None: without it."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    changed = [name for name in new if not np.array_equal(raw(old[name]), raw(new[name]))]
    tensors, parts = [], []
    for i in range(min(files, len(changed))):
        part, mine = f"delta-rank00000-file{i:06d}.safetensors", {}
        for name in changed[i::files]:
            data = mine[name] = frame(encode(old[name], new[name], "xor"))
            tensors.append({"name": name, "dtype": str(new[name].dtype), "shape": list(new[name].shape),
                            "uncompressed_num_bytes": new[name].nbytes, "compressed_num_bytes": len(data),
                            "payload_file": part, "payload_key": name,
                            "checksum": CHECKSUMS["xxh3-128"](raw(new[name])), "checksum_algorithm": "xxh3-128",
                            **(records or {}).get(name, {})})
        (folder / part).write_bytes(save({name: np.frombuffer(data, np.uint8) for name, data in mine.items()}))
        parts.append(part)
    said = {"version": number, "base_version": before, "tensors": tensors, "payload_files": parts,
            "total_uncompressed_num_bytes": sum(t["uncompressed_num_bytes"] for t in tensors),
            "total_compressed_num_bytes": sum(t["compressed_num_bytes"] for t in tensors), **manifest}
    (folder / "manifest.json").write_text(json.dumps({k: v for k, v in said.items() if v is not None}))
    return folder


def read_full(folder):
    """Return the tensors by the index, as loaders find them, and the metadata of the index."""
    index = json.loads((Path(folder) / INDEX).read_text())
    files = {part: load_file(Path(folder) / part) for part in set(index["weight_map"].values())}
    return {name: files[part][name] for name, part in index["weight_map"].items()}, index["metadata"]


def assert_equal(got, want):
    assert sorted(got) == sorted(want)
    for name in want:
        assert (got[name].dtype, got[name].shape) == (want[name].dtype, want[name].shape), name
        assert raw(got[name]).tobytes() == raw(want[name]).tobytes(), name
