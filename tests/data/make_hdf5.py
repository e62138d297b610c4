#!/usr/bin/env python3
"""Writes tests/data/hdf5/: small HDF5 files by h5py and Keras, damage to some of them
(NAME.patch), and beside each what h5py says of it, as NAME.txt:

    T <tab> name <tab> dtype <tab> [shape] <tab> offset <tab> nbytes <tab> reason <tab> alias of
    M <tab> key <tab> JSON value

Offset, shape and type come from h5py; the reasons from h5py's property lists. Files that h5py cannot open as a whole
have the line R (refused). The files are the same in every run with the same packages (h5py 3.16, HDF5 2.0, Keras 3.15), but for the times
that headers of version 2 hold, and their checksums."""
import io
import json
import os
import pathlib
import struct
import sys
import tempfile
import zipfile

os.environ.setdefault("KERAS_BACKEND", "torch")
import h5py  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parent / "hdf5"
FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", 32000: "lzf"}
COMPRESSORS = {1, 4, 5, 6, 32000}
PLAIN = {
    "u1": "U8", "i1": "I8", "u2": "U16", "i2": "I16", "u4": "U32", "i4": "I32", "u8": "U64", "i8": "I64", "f2": "F16",
    "f4": "F32", "f8": "F64", "f16": "F128", "c8": "C64", "c16": "C128", "c32": "C256", "b1": "BOOL"
}


def type_of(d):
    """(name, reason) of a dataset's type."""
    if d.id.get_type().get_class() == h5py.h5t.OPAQUE:
        if d.attrs.get("dtype") == "bfloat16":
            return "BF16", None
        return "OPAQUE", "opaque type"
    if h5py.check_string_dtype(d.dtype):
        return "STRING", "variable-length strings" if h5py.check_string_dtype(d.dtype).length is None else "strings"
    if h5py.check_ref_dtype(d.dtype):
        return "OBJECT", "references"
    if h5py.check_vlen_dtype(d.dtype):
        return "OBJECT", "variable-length type"
    if d.id.get_type().get_class() == h5py.h5t.ARRAY:
        return "OBJECT", "array type"
    if d.dtype.kind == "V":
        return "COMPOUND", "compound type"
    name = PLAIN[d.dtype.str.lstrip("<>|=")]
    return name, "big-endian" if d.dtype.byteorder == ">" else None


def reason_of(d, type_reason):
    plist = d.id.get_create_plist()
    filters = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
    layout = {h5py.h5d.COMPACT: "compact", h5py.h5d.CHUNKED: "chunked", h5py.h5d.VIRTUAL:
              "virtual"}.get(plist.get_layout())
    if plist.get_external_count():
        return "external storage"
    if layout == "chunked" and type_reason and type_reason != "big-endian":
        return type_reason
    if filters:
        how = "compressed" if COMPRESSORS.intersection(filters) else "filtered"
        return f"{how} ({', '.join(FILTERS.get(f, f'filter {f}') for f in filters)})"
    if layout or type_reason:
        return layout or type_reason
    if d.shape is None:
        return "no dataspace"
    if d.size and d.id.get_storage_size() == 0:  # its offset is None, or 511 behind a userblock of 512 bytes
        return "not allocated"
    if d.size and d.id.get_offset() + d.nbytes > os.path.getsize(d.file.filename):
        return "past the end of the file"
    return None


def json_of(value):
    if isinstance(value, h5py.Empty):
        return None
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        raw = value.encode()
        cut = raw[:4096].decode("utf-8", "ignore")
        return value if len(raw) <= 4096 else {"length": len(raw), "first": cut}
    if isinstance(value, np.ndarray):
        if value.ndim != 1 or value.dtype.names:
            return None
        items = [json_of(v) for v in value[:64]]
        return items if len(value) <= 64 else {"length": len(value), "first": items}
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.floating) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, np.floating):  # the shortest decimal that reads back, of a half as of a float
        return float(str(value if value.itemsize == 8 else np.float32(value)))
    return int(value) if isinstance(value, np.integer) else None


def metadata(f):
    groups = [("", f)] + [(f"{n}@", f[n]) for n in f if f.get(n, getlink=True, getclass=True) is h5py.HardLink
                          and isinstance(f[n], h5py.Group)]
    seen = set()
    for prefix, group in groups:
        address = h5py.h5o.get_info(group.id).addr
        if address in seen:
            continue
        seen.add(address)
        for key, value in group.attrs.items():
            if (shown := json_of(value)) is not None:
                yield prefix + key, json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def tensors(f):
    """Breadth first, as each object's shortest path is the one it is known by."""
    queue, groups = [("", f)], {h5py.h5o.get_info(f.id).addr: ""}
    for path, group in queue:
        for name in group:
            full = f"{path}/{name}" if path else name
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.SoftLink):
                yield full, "OBJECT", (), 0, 0, f"soft link to {link.path}"
            elif isinstance(link, h5py.ExternalLink):
                yield full, "OBJECT", (), 0, 0, f"external link to {link.filename}:{link.path}"
            elif isinstance(group[name], h5py.Group):
                address = h5py.h5o.get_info(group[name].id).addr
                if address in groups:
                    yield full, "OBJECT", (), 0, 0, f"hard link to /{groups[address]}"
                else:
                    groups[address] = full
                    queue.append((full, group[name]))
            elif isinstance(group[name], h5py.Dataset):
                d = group[name]
                dtype, type_reason = type_of(d)
                reason = reason_of(d, type_reason)
                sized = dtype not in ("STRING", "OBJECT", "COMPOUND", "OPAQUE") and d.shape is not None
                offset = d.id.get_offset() if reason in (
                    None, "big-endian") and d.size else f.userblock_size if reason is None else 0
                yield full, dtype, d.shape or (), offset, d.size * d.id.get_type().get_size() if sized else 0, reason


def describe(path):
    with h5py.File(path) as f:
        rows = sorted(tensors(f), key=lambda t: t[0].encode())
        first = {}
        lines = []
        for name, dtype, shape, offset, nbytes, reason in rows:
            key = (offset, nbytes)
            alias = first.get(key, "") if reason is None and nbytes else ""
            if reason is None and nbytes:
                first.setdefault(key, name)
            dims = ",".join(map(str, shape))
            lines.append(f"T\t{name}\t{dtype}\t[{dims}]\t{offset}\t{nbytes}\t{reason or ''}\t{alias}\n")
        lines += [f"M\t{k}\t{v}\n" for k, v in metadata(f)]
    path.with_suffix(".txt").write_text("".join(lines), encoding="utf-8")


def make(name, fill, libver="earliest", **kw):
    path = OUT / f"{name}.h5"
    with h5py.File(path, "w", libver=libver, meta_block_size=64, **kw) as f:
        fill(f)
    describe(path)


def low(f, name, shape, set_up, dtype=h5py.h5t.NATIVE_INT32):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    set_up(plist)
    return h5py.h5d.create(f.id, name.encode(), dtype, h5py.h5s.create_simple(shape), plist)


def fill_types(f):
    for t in ["u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8", "<g", "<c8", "<c16", "?"]:
        f.create_dataset(f"plain/{t.strip('<?') or 'bool'}", data=(np.arange(6) * 7 % 50).reshape(2, 3).astype(t))
    for t in [">i2", ">c8"]:
        f.create_dataset(f"big/{t[1:]}", data=np.arange(3).astype(t))
    f["scalar"] = np.float32(3)
    f["opaque"] = np.zeros(2, "V2")
    f["zero"] = np.zeros((0, 4), "f4")
    f["null"] = h5py.Empty("f4")
    f.create_dataset("enum", data=[1, 2], dtype=h5py.enum_dtype({"X": 1, "Y": 2}, basetype="<i2"))
    f.create_dataset("flags", data=[0, 1], dtype=h5py.enum_dtype({"NO": 0, "YES": 1}, basetype="i1"))
    f["fixed"] = np.array([b"abc", b"de"])
    f.create_dataset("strings", data=["a", "b"], dtype=h5py.string_dtype())
    f.create_dataset("vlen", (2,), dtype=h5py.vlen_dtype(np.int32))
    f["compound"] = np.zeros(2, [("a", "<i4"), ("b", "<f4")])
    f["bf16"] = np.frombuffer(bytes(range(12)), "V2").reshape(2, 3)
    f["bf16"].attrs["dtype"] = "bfloat16"
    f.create_dataset("reference", data=f["scalar"].ref, dtype=h5py.ref_dtype)
    low(f, "array", (2,), lambda p: None, h5py.h5t.array_create(h5py.h5t.NATIVE_INT32, (3,)))
    f["type"] = np.dtype("<f8")
    f.create_dataset("committed", data=np.arange(4.0), dtype=f["type"])
    f.create_dataset("committed_too", data=np.arange(4.0), dtype=f["type"])


def fill_numbers(f):
    f["bool"] = np.array([True, False])
    f["complex"] = np.arange(3).astype("<c8")
    f["compound"] = np.zeros(2, [("r", "<f4"), ("j", "<f4")])
    f["enum"] = np.zeros(1, h5py.enum_dtype({"NO": 0, "YES": 1}, basetype="i1"))


def fill_layouts(f):
    values = np.arange(64, dtype="<f4")
    f["plain"] = values
    f.create_dataset("gzip", data=values, compression="gzip", shuffle=True, fletcher32=True)
    if f.libver[0] != "earliest":
        f.create_dataset("lzf", data=values, compression="lzf")
        f.create_dataset("scale", data=np.arange(64), scaleoffset=4)
    f.create_dataset("chunked", data=values, chunks=(16,))
    f.create_dataset("unallocated", (5,), "<f4")
    f.create_dataset("external", (10,), "<f4", external=[("other.bin", 0, 40)])  # 140
    low(f, "unknown_filter", (8, ), lambda p: (p.set_chunk((8, )), p.set_filter(40000, h5py.h5z.FLAG_OPTIONAL,
                                                                                (1, 2, 3))))  # 146
    low(f, "compact", (3,), lambda p: p.set_layout(h5py.h5d.COMPACT))
    f.create_dataset("huge", (2**40,), "<f4", chunks=(1024,), compression="gzip")  # 142
    layout = h5py.VirtualLayout((10,), "<f4")
    layout[:] = h5py.VirtualSource("other.h5", "x", (10,))
    if f.libver != ("earliest", "earliest"):
        f.create_virtual_dataset("virtual", layout)  # 141


def fill_floats(f):
    for t in ("f8", "f4", "f2"):
        values = [0.1, 1 / 3, 1.0, -0.0, 6e-5, 1e4, np.inf, -np.inf, np.nan]
        f.attrs[t] = np.array(values, f"<{t}")
        f.attrs[f"{t} alone"] = np.dtype(t).type(0.1)
    f.attrs["large"] = np.array([1e22, 1e16, 1e-5, 5e-324, 1.7976931348623157e308])


def fill_filters(f):
    values = np.arange(64, dtype="<f4")
    f.create_dataset("shuffle", data=values, chunks=(16,), shuffle=True)
    f.create_dataset("fletcher32", data=values, chunks=(16,), fletcher32=True)
    f.create_dataset("both", data=values, chunks=(16,), shuffle=True, fletcher32=True)
    f.create_dataset("lzf", data=values, chunks=(16,), shuffle=True, compression="lzf")


def fill_links(f):
    f["a/data"] = np.arange(5, dtype="<i4")
    f["again"] = f["a/data"]
    f["a/self"] = f["a"]
    f["a/up"] = f["/"]
    f["soft"] = h5py.SoftLink("/a/data")  # 138
    f["dangling"] = h5py.SoftLink("nowhere")
    f["loop1"] = h5py.SoftLink("/loop2")  # 139
    f["loop2"] = h5py.SoftLink("/loop1")
    f["external"] = h5py.ExternalLink("../etc/passwd", "/q")  # 137
    f["ünï/名前"] = np.float64(1)
    f["back\\slash and \"quotes\""] = np.int8(1)
    f.create_group("empty")


def fill_many(f):
    f["d"] = np.arange(3, dtype="<i4")
    g = f.create_group("g", track_order=f.libver[0] != "earliest" or None)
    for i in range(90):
        g[f"link{i * 37 % 100:02d}" + "x" * (i % 9)] = f["d"]
    f["g/soft"] = h5py.SoftLink("/d")
    f["g/deeper/x"] = np.arange(2, dtype="<i8")


def fill_attributes(f):
    f["w"] = np.arange(4, dtype="<f4")
    g = f.create_group("group")
    f["group/below"] = np.arange(2, dtype="<f4")
    for o, n in ((f, 6), (g, 2), (g.create_group("deep"), 1)):
        for i in range(n):
            o.attrs[f"n{i}"] = i - 2
        o.attrs["text"] = "hëllo \"you\""
        if n == 1:
            continue
        o.attrs["bytes"] = b"torch"
        o.attrs["float"] = 1.5
        o.attrs["half"] = np.float16(-0.25)
        o.attrs["bool"] = True
        o.attrs["u8"] = np.uint64(2**64 - 1)
        o.attrs["names"] = [b"dense", b"dense_1"]
        o.attrs["strings"] = ["x", "yy", ""]
        o.attrs["empty"] = h5py.Empty("f4")
        o.attrs["matrix"] = np.zeros((2, 2))
        o.attrs["compound"] = np.zeros(1, [("a", "i4")])
        o.attrs["big"] = np.arange(100, dtype="<u2")
    if f.libver[0] != "earliest":
        f.attrs["long"] = "é" + "abcdefgh" * 700


def fill_small(f):
    f["g/a"] = np.arange(6, dtype="<f4").reshape(2, 3)
    f["b"] = np.arange(4, dtype="u1")
    f.attrs["k"] = np.bytes_("v")


def chunk_files():
    """One dataset "x" each, in chunks that are found in each of the ways there are; `_deep` has inner nodes."""
    matrix = np.arange(60, dtype="<i4").reshape(6, 10)
    both = {"data": matrix, "chunks": (2, 4), "compression": "gzip", "shuffle": True, "fletcher32": True}

    def early(plist):
        plist.set_chunk((2, 4))
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)

    def implicit(f):
        low(f, "x", (6, 10), early)
        f["x"][...] = matrix

    def implicit_many(f):  # each with two chunks of one element
        for i in range(16):
            low(f, f"x{i:02}", (2, ), lambda plist: (plist.set_chunk(
                (1, )), plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)))

    def small_chunks(n, **kw):
        return lambda f: f.create_dataset("x", data=(np.arange(n) % 251).astype("u1"), chunks=(1,), **kw)
    v110 = ("v110", "v110")
    make("chunks_tree", lambda f: f.create_dataset("x", **both))
    make("chunks_tree_deep", small_chunks(70))
    make("chunks_fixed", lambda f: f.create_dataset("x", **both), v110)
    make("chunks_fixed_paged", small_chunks(1100), v110)
    make("chunks_extensible", small_chunks(300, maxshape=(None,)), v110)
    make("chunks_tree_2", lambda f: f.create_dataset("x", **both, maxshape=(None, None)), v110)
    make("chunks_tree_2_deep", lambda f: f.create_dataset(
        "x", data=np.arange(100, dtype="u1").reshape(10, 10), chunks=(1, 1), maxshape=(None, None)), v110)
    make("chunks_single", lambda f: f.create_dataset("x", data=matrix, chunks=(6, 10), compression="gzip"), v110)
    make("chunks_implicit", implicit, v110)
    make("chunks_implicit_many", implicit_many, v110)


def keras_files():
    import keras
    keras.utils.set_random_seed(1)

    def model():
        return keras.Sequential(
            [keras.layers.Input((3, )),
             keras.layers.Dense(2, name="dense"),
             keras.layers.Dense(1, name="out")])
    with tempfile.TemporaryDirectory() as d:
        for name, policy, save in [("keras_bf16.weights", "bfloat16", "save_weights"),
                                   ("keras_legacy", "float32", "save")]:
            keras.config.set_dtype_policy(policy)
            path = pathlib.Path(d) / f"{name}.h5"
            getattr(model(), save)(path)
            if path.stat().st_size > 30000:
                sys.exit(f"{name} has {path.stat().st_size} bytes, too many for a fixture")
            out = OUT / f"{name.replace('.', '_')}.h5"
            out.write_bytes(path.read_bytes())
            describe(out)


def patch(source, name, change, refused=False, expected=None):
    """NAME.patch: a fixture and what to change in it, `offset hex` on each line. R in the description where h5py finds
    the outcome wrong, too."""
    good = (OUT / f"{source}.h5").read_bytes()
    raw = bytearray(good)
    change(raw)
    lines = [f"{i} {raw[i]:02x}\n" for i in range(len(raw)) if raw[i] != good[i]]
    (OUT / f"{name}.patch").write_text(source + "\n" + "".join(lines))
    with tempfile.TemporaryDirectory() as d:
        path = pathlib.Path(d) / f"{name}.h5"
        path.write_bytes(raw)
        if refused and not opens(path):
            (OUT / f"{name}.txt").write_text("R\n")
        elif refused:
            sys.exit(f"{name}: h5py opens it")
        elif expected:
            (OUT / f"{name}.txt").write_text(expected)
        else:
            describe(path)
            (OUT / f"{name}.txt").write_bytes(path.with_suffix(".txt").read_bytes())


def opens(path):
    try:
        with h5py.File(path) as f:
            list(tensors(f))
            list(metadata(f))
    except Exception:  # whatever h5py calls it
        return False
    return True


def at(raw, needle, skip=0):
    """The position of something that occurs exactly once."""
    if raw.count(needle) != 1:
        sys.exit(f"{needle!r} occurs {raw.count(needle)} times")
    return raw.index(needle) + skip


def continuation_cycle(raw):  # 144: the continuation's first message becomes a continuation of itself
    i = raw.index(struct.pack("<HHB3x", 0x10, 16, 0))
    addr, length = struct.unpack_from("<QQ", raw, i + 8)
    raw[addr:addr + 24] = struct.pack("<HHB3xQQ", 0x10, 16, 0, addr, length)


def past_the_end(raw):  # 145
    contiguous = struct.pack("<BBQQ", 3, 1, WHERE["small"], 24)
    struct.pack_into("<Q", raw, at(raw, contiguous, 2), len(raw) - 8)


def flip(needle, skip=0):
    def change(raw):
        raw[raw.index(needle) + skip] ^= 0x40
    return change


def shared_filters(raw):
    """The first pipeline of filters says that it stands elsewhere in the file."""
    raw[raw.index(b"\x0b\0\x20\0\1\0\0\0") + 4] |= 2


WHERE = {}


def torch_archive(path, compressed, left_out=()):
    """The records of a torch.save archive as datasets, most of them of bytes. They are named .hdf5: no description beside."""
    tensors = {"a": torch.arange(16, 24, dtype=torch.uint8), "b": torch.arange(32, 41, dtype=torch.int8),
               "c": torch.zeros(100, dtype=torch.uint8), "d": torch.arange(5, dtype=torch.int32)}
    stream = io.BytesIO()
    torch.save(tensors | {"note": "x" * 6000}, stream)  # a pickle longer than all of the file's structure
    with zipfile.ZipFile(stream) as z, h5py.File(path, "w") as f:
        for name in z.namelist():
            record = name.split("/", 1)[1]
            kind = "i4" if record == "data/3" else "u1"
            if record not in left_out:
                f.create_dataset(f"archive/{record}", data=np.frombuffer(z.read(name), kind),
                                 compression="gzip" if record in compressed else None)
        f["offsets_table"] = np.arange(4)


def torch_archives():
    torch_archive(OUT / "archive.hdf5", ["data/2"])
    torch_archive(OUT / "archive_without_a_record.hdf5", [], ["data/1"])
    torch_archive(OUT / "archive_compressed_pickle.hdf5", ["data.pkl"])


def main():
    OUT.mkdir(exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    for libver, mark in (("earliest", ""), ("latest", "_latest")):  # symbol tables and header version 1; dense storage
        make(f"layouts{mark}", fill_layouts, (libver, libver) if mark else libver)
        make(f"filters{mark}", fill_filters, libver)
        make(f"links{mark}", fill_links, libver)
        make(f"many{mark}", fill_many, libver)
        make(f"attributes{mark}", fill_attributes, libver)
        make(f"small{mark}", fill_small, libver)
    make("types", fill_types, "v110")
    make("numbers", fill_numbers)
    make("floats", fill_floats)
    make("small_v108", fill_small, ("v108", "v108"))
    make("userblock", lambda f: (fill_small(f), f.create_dataset("unallocated", (3, ), "<f4")),
         userblock_size=512)  # 143
    fcpl = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    fcpl.set_sizes(4, 4)
    with h5py.File(h5py.h5f.create(str(OUT / "narrow.h5").encode(), h5py.h5f.ACC_TRUNC, fcpl)) as f:
        fill_small(f)
        f.attrs["in the heap"] = ["a", "bcdefghi"]
    describe(OUT / "narrow.h5")
    torch_archives()
    chunk_files()
    with h5py.File(OUT / "small.h5") as f:
        WHERE["small"] = f["g/a"].id.get_offset()
    patch("attributes", "bad_144_continuation_cycle", continuation_cycle, refused=True)
    # libhdf5 refuses to open that dataset alone; the rest of the file is as it was.
    lines = (OUT / "small.txt").read_text().replace(f"\t{WHERE['small']}\t24\t\t\n",
                                                    "\t0\t24\tpast the end of the file\t\n")
    patch("small", "bad_145_past_the_end", past_the_end, expected=lines)
    lines = (OUT / "filters.txt").read_text().replace("filtered (shuffle)", "filtered")
    patch("filters", "shared_filters", shared_filters, expected=lines)
    patch("small_latest", "bad_superblock_checksum", flip(b"\x89HDF", 20), refused=True)
    patch("small_latest", "bad_header_checksum", flip(b"OHDR", 30), refused=True)
    patch("many_latest", "bad_tree_checksum", flip(b"BTLF", 9), refused=True)
    patch("many_latest", "bad_heap_checksum", flip(b"FRHP", 30), refused=True)
    patch("many_latest", "bad_block_checksum", flip(b"FHDB", 40), refused=True)
    patch("small", "bad_symbol_table", flip(b"SNOD"), refused=True)
    patch("small", "bad_tree", flip(b"TREE"), refused=True)
    patch("small", "bad_local_heap", flip(b"HEAP"), refused=True)
    keras_files()
    total = sum(p.stat().st_size for p in OUT.iterdir())
    print(
        f"{len(list(OUT.iterdir()))} files, {total} bytes, the largest {max(p.stat().st_size for p in OUT.iterdir())}")


if __name__ == "__main__":
    main()
