"""Tensors that the server decodes: big-endian tensors, deflated tensors, HDF5 datasets in chunks. Real writers write,
tensord serves. Every value is compared with that of the format's own reader, as a whole, in ranges, in slices, as .npy
and in a rank file."""
import io
import json
import os
import random
import subprocess
import sys
import zipfile

import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
import gguf  # noqa: E402
import h5py  # noqa: E402
import numpy as np  # noqa: E402
import safetensors.numpy  # noqa: E402
import torch  # noqa: E402

import harness  # noqa: E402
from harness import Server  # noqa: E402


def values(shape, dtype, seed):
    """Return numbers that depend on their place, half of them smooth, so that they compress."""
    n = int(np.prod(shape, dtype=np.int64))
    raw = harness.pattern(n * np.dtype(dtype).itemsize, seed)
    a = np.frombuffer(raw, dtype="u1").copy()
    a[: len(a) // 2] = np.repeat(np.arange(len(a) // 64 + 1, dtype="u1"), 32)[: len(a) // 2]
    if np.dtype(dtype) == np.bool_:
        return (a[:n] % 2).astype(bool).reshape(shape)
    return a.view(dtype)[:n].reshape(shape)


def little(array):
    """Return the array's bytes as the server must send them."""
    a = np.ascontiguousarray(array)
    return a.astype(a.dtype.newbyteorder("<"), copy=False).tobytes() if a.dtype.kind != "V" else a.tobytes()


def manifest(server, model):
    return {t["name"]: t for t in server.json(f"/models/{model}/tensors")["tensors"]}


def get(server, path, **headers):
    return server.get(path, list(headers.items()))


def compare(server, tensor, array, access, rng):
    """Compare the tensor with an array of the same dtype and shape."""
    want, href = little(array), tensor["href"]
    assert tensor.get("access") == access, tensor
    assert "addressable" not in tensor and ("offset" in tensor) == (access == "gathered" and
                                                                    "stored" not in tensor), tensor
    assert tuple(tensor["shape"]) == array.shape and tensor["nbytes"] == len(want), tensor
    whole = get(server, href)
    assert whole.status == 200 and whole.body == want, (tensor, whole.status, whole.body[:200])
    tag = whole.etag
    assert tag.startswith('"')
    for _ in range(12 if want else 0):
        a = rng.randrange(len(want))
        b = rng.randrange(a, len(want))
        part = get(server, href, **{"Range": f"bytes={a}-{b}", "If-Range": tag})
        assert part.status == 206 and part.body == want[a:b + 1], (tensor, a, b)
    assert get(server, href, **{"Range": "bytes=0-0", "If-Range": '"other"'}).body == want or not want
    for _ in range(6 if want and array.ndim else 0):
        cuts = [sorted(rng.sample(range(n + 1), 2)) for n in array.shape]
        text = ",".join(f"{a}:{b}" for a, b in cuts)
        part = get(server, f"{href}?slice={text}")
        assert part.body == little(array[tuple(slice(a, b) for a, b in cuts)]), (tensor, text)


# ---- HDF5 ----

FILTERS = {
    "gzip": {"compression": "gzip"},
    "gzip9_shuffle": {"compression": "gzip", "compression_opts": 9, "shuffle": True},
    "fletcher": {"fletcher32": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf"},
    "lzf_shuffle": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "shuffle": {"shuffle": True},
    "plain": {},
}
# shape, chunks, maxshape: single chunk, fixed array, extensible array, B-tree, edges in all dimensions
GRIDS = {
    "single": ((20, 30), (20, 30), None),
    "fixed": ((23, 31), (5, 8), None),
    "grown": ((23, 31), (5, 8), (100, 64)),
    "unlimited0": ((23, 31), (5, 8), (None, 31)),
    "unlimited1": ((23, 31), (5, 8), (40, None)),
    "both": ((23, 31), (5, 8), (None, None)),
    "deep": ((3, 4, 5, 6), (2, 3, 5, 4), (None, 4, 5, 6)),
    "middle": ((6, 7, 8), (4, 3, 2), (6, None, 20)),
    "rows": ((3000,), (7,), None),
    "rows_unlimited": ((3000,), (7,), (None,)),
    "wide": ((40, 3), (9, 3), None),
    "large_chunk": ((10, 10), (16, 16), (None, None)),
}


def add_filled(f, name, time, value, kind):
    """Add a dataset that has chunks which are not written; h5py reads zeros there when the fill value is never
    written."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4, 3))
    plist.set_fill_time(time)
    if value is not None:
        plist.set_fill_value(np.array(value, "<f4"))
    if kind == "packed":
        plist.set_deflate(4)
    unlimited = h5py.h5s.UNLIMITED
    space = h5py.h5s.create_simple((10, 7), (unlimited, unlimited) if kind == "grown" else (10, 7))
    d = h5py.Dataset(h5py.h5d.create(f.id, name.encode(), h5py.h5t.IEEE_F32LE, space, dcpl=plist))
    if kind != "nothing":
        d[0:4] = values((4, 7), "<f4", name)
    if kind == "grown":
        d.resize((2, 7))
        d.resize((11, 8))


def write_grids(path, libver):
    want = {}
    with h5py.File(path, "w", libver=libver) as f:
        for g, (shape, chunks, maxshape) in GRIDS.items():
            for k, options in FILTERS.items():
                name = f"{g}.{k}"
                want[name] = values(shape, "<f4", name)
                f.create_dataset(name, data=want[name], chunks=chunks, maxshape=maxshape, **options)
        for dtype in ("<i1", "<u2", ">u2", ">i4", "<f8", ">f8", ">c8", "<c16", "?", ">f2"):
            name = "type." + dtype.replace(">", "big_").replace("<", "").replace("?", "bool")
            want[name] = values((50, 7), dtype, name)
            f.create_dataset(name, data=want[name], chunks=(8, 4), compression="gzip", shuffle=True)
            want[name + ".plain"] = want[name]
            f.create_dataset(name + ".plain", data=want[name])
        holes = f.create_dataset("holes", shape=(40, 40), dtype="<f4", chunks=(7, 9), fillvalue=2.5, compression="gzip")
        holes[10:12, 10:12] = 1
        f.create_dataset("empty", shape=(33,), dtype=">i4", chunks=(8,), fillvalue=-7)
        f.create_dataset("zeros", shape=(33, 2), dtype="<f8", chunks=(8, 2), compression="gzip")
        f.create_dataset("no_elements", shape=(0, 5), dtype="<f4", chunks=(2, 5), maxshape=(None, 5),
                         compression="gzip")
        for time in (h5py.h5d.FILL_TIME_NEVER, h5py.h5d.FILL_TIME_IFSET, h5py.h5d.FILL_TIME_ALLOC):
            for value in (None, 7.5):
                for options in ("holes", "nothing", "packed", "grown"):
                    add_filled(f, f"filled_{options}_{time}_{value}", time, value, options)
        shrunk = f.create_dataset("shrunk", data=values((30, 9), "<i2", 5), chunks=(4, 4), maxshape=(None, 20))
        shrunk.resize((11, 7))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4, 5))
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple((18, 13), (24, 30))
        early = h5py.h5d.create(f.id, b"implicit", h5py.h5t.IEEE_F32LE, space, dcpl=plist)
        early.write(h5py.h5s.ALL, h5py.h5s.ALL, values((18, 13), "<f4", 77))
        # a chunk without one of the filters: the mask of each chunk counts
        masked = f.create_dataset("masked", data=values((16, 16), "<f4", 8), chunks=(8, 8), compression="gzip",
                                  shuffle=True)
        masked.id.write_direct_chunk((8, 0), values((8, 8), "<f4", 9).tobytes(), filter_mask=3)
    with h5py.File(path) as f:
        return {name: f[name][()] for name in f}


@pytest.mark.parametrize("libver", ["earliest", "v108", "v110", "latest"])
def test_hdf5_in_chunks(tmp_path, libver):
    want = write_grids(tmp_path / "x.h5", libver)
    rng = random.Random(libver)
    with Server(tmp_path) as server:
        got = manifest(server, "x.h5")
        assert set(got) == set(want)
        for name, array in want.items():
            parts = name.split(".")
            plain = (parts[-1] == "plain" or parts[0] in ("empty", "shrunk", "implicit") or
                     name.startswith(("filled_holes", "filled_nothing", "filled_grown")))
            big = array.dtype.byteorder == ">"
            if parts[0] == "no_elements":
                assert get(server, got[name]["href"]).body == b""
            elif parts[0] == "type" and plain and not big:
                assert "access" not in got[name]
                assert get(server, got[name]["href"]).body == little(array)
            else:
                compare(server, got[name], array, ("swapped" if big else "gathered") if plain else "decoded", rng)


def test_hdf5_pages_of_chunks(tmp_path):
    """Enough chunks for fixed and extensible arrays of several pages, some never written, and for B-trees of several
    levels."""
    with h5py.File(tmp_path / "x.h5", "w", libver="latest") as f:
        n = 280_000
        f.create_dataset("fixed", data=values((n,), "u1", 1)[:5000], chunks=(1,), shape=None)
        for name, shape, maxshape in (("paged", (n, ), None), ("extensible", (n, ), (None, )), ("tree", (60, 70),
                                                                                                (None, None))):
            d = f.create_dataset(name, shape=shape, maxshape=maxshape, chunks=(1, ) * len(shape), dtype="u1",
                                 fillvalue=9, fletcher32=name == "paged")
            if len(shape) == 2:
                d[...] = values(shape, "u1", 2)
                continue
            for at in (0, 3, 700, 1023, 1024, 40_000, 131_000, 131_100, 133_200, 135_300, 139_999, 200_000, 270_000,
                       n - 5):
                d[at:at + 5] = values((5,), "u1", at)
    rng = random.Random(1)
    with h5py.File(tmp_path / "x.h5") as f, Server(tmp_path) as server:
        got = manifest(server, "x.h5")
        for name in f:
            compare(server, got[name], f[name][()], "decoded" if name == "paged" else "gathered", rng)


def test_hdf5_rank_file_and_formats(tmp_path):
    """Rank files and other formats of decoded tensors are as those of other tensors; a rank's description gives no
    offset."""
    a = values((64, 48), "<f4", 1)
    b = values((64, 48), ">f4", 2)
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f.create_dataset("a", data=a, chunks=(10, 10), compression="gzip")
        f.create_dataset("b", data=b)
    with Server(tmp_path) as server:
        plan = {"tp_size": 4, "rules": [{"match": "a", "dim": 1}, {"match": "b", "dim": 0}]}
        made = server.post("/models/x.h5/plans", plan, [("Content-Type", "application/json")])
        assert made.status == 201, made.body
        href = made.json()["ranks"][1]["href"]
        tensors = safetensors.numpy.load(get(server, href).body)
        assert np.array_equal(tensors["a"], a[:, 12:24]) and np.array_equal(tensors["b"], b[16:32].astype("<f4"))
        for run in get(server, href.removesuffix(".safetensors") + ".json").json()["tensors"]:
            assert '"file"' not in json.dumps(run), run
        read = server.post("/models/x.h5/tensors:read", json.dumps(
            {"tensors": [{"name": "a", "slice": "3:9,7:30"}, {"name": "b"}], "format": "raw"}).encode(),
            [("Content-Type", "application/json")])
        assert read.body == little(a[3:9, 7:30]) + little(b)
        for name, array in (("a", a), ("b", b)):
            npy = get(server, f"/models/x.h5/tensors/{name}?format=npy").body
            assert little(np.load(io.BytesIO(npy))) == little(array)


def test_keras_compressed(tmp_path):
    """Keras' own weights, rewritten compressed as h5repack would, also within a .keras archive."""
    import keras
    model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(32), keras.layers.Dense(8)])
    model.save_weights(tmp_path / "plain.weights.h5")
    packed = tmp_path / "packed.weights.h5"
    with h5py.File(tmp_path / "plain.weights.h5") as src, h5py.File(packed, "w") as dst:
        def copy(name, o):
            if isinstance(o, h5py.Dataset):
                dst.create_dataset(name, data=o[()], chunks=True, compression="gzip", shuffle=True)
        src.visititems(copy)
    model.save(tmp_path / "m.keras")
    with zipfile.ZipFile(tmp_path / "m.keras") as src, zipfile.ZipFile(tmp_path / "packed.keras", "w") as dst:
        for item in src.namelist():
            dst.writestr(item, packed.read_bytes() if item.endswith(".h5") else src.read(item))
    want = [w.numpy() for w in model.weights]
    with Server(tmp_path) as server:
        for name in ("packed.weights.h5", "packed.keras"):
            got = [get(server, t["href"]).body for t in manifest(server, name).values() if t["nbytes"]]
            assert sorted(got) == sorted(little(w) for w in want)


def test_hdf5_of_other_filters_is_listed_with_them(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f.create_dataset("scaled", data=np.arange(100, dtype="i4"), chunks=(10,), scaleoffset=0)
    with Server(tmp_path) as server:
        t = manifest(server, "x.h5")["scaled"]
        assert t["addressable"] is False and "scaleoffset" in t["reason"]
        assert get(server, t["href"]).status == 422


@pytest.mark.parametrize("kind", ["deflate", "fletcher32"])
# shows: security.md content-unpacked-size
def test_a_damaged_chunk_is_an_error(tmp_path, kind):
    """One bit in a chunk is wrong: the answer is an error that says so, never wrong bytes. Other tensors are still
    served."""
    a = values((64, 64), "<f4", 3)
    options = {"compression": "gzip"} if kind == "deflate" else {"fletcher32": True}
    with h5py.File(tmp_path / "x.h5", "w") as f:
        d = f.create_dataset("a", data=a, chunks=(16, 64), **options)
        at = d.id.get_chunk_info(2).byte_offset
    data = bytearray((tmp_path / "x.h5").read_bytes())
    data[at + 100] ^= 1
    (tmp_path / "x.h5").write_bytes(data)
    with Server(tmp_path) as server:
        href = manifest(server, "x.h5")["a"]["href"]
        for headers in ({}, {"Range": "bytes=8000-12000"}, {"Range": "bytes=8192-8192"}):
            answer = get(server, href, **headers)
            assert answer.status == 422 and b"damaged" in answer.body, (answer.status, answer.body[:200])
        assert get(server, href, Range="bytes=0-8191").body == little(a)[:8192]


# shows: security.md content-damage-midway
def test_damage_behind_the_first_byte_is_told(tmp_path):
    """An answer that has begun breaks off at the damage. The metric and the access log say why; the log names tensor
    and file."""
    values_of = {name: values((512, 1024), "<f4", seed) for seed, name in enumerate(("a", "b"))}
    (tmp_path / "m").mkdir()
    with h5py.File(tmp_path / "m" / "x.h5", "w") as f:
        for name, a in values_of.items():
            d = f.create_dataset(name, data=a, chunks=(64, 1024), compression="gzip")
        at = d.id.get_chunk_info(7).byte_offset
    data = bytearray((tmp_path / "m" / "x.h5").read_bytes())
    data[at + 100] ^= 1
    (tmp_path / "m" / "x.h5").write_bytes(data)
    with Server(tmp_path) as server:
        def cuts(reason):
            return sum(v for name, labels, v in server.metrics()[2]
                       if name == "tensord_http_cut_transfers_total" and labels["reason"] == reason)
        made = server.post("/models/m/plans", {"tp_size": 1, "rules": [{"match": "**", "whole": True}]})
        for href in (manifest(server, "m")["b"]["href"], made.json()["ranks"][0]["href"]):
            before = cuts("damaged")
            with pytest.raises(harness.Incomplete):
                get(server, href)
            server.wait_for(lambda b=before: cuts("damaged") == b + 1, "a cut")
        assert cuts("changed") == 0
        assert 'an answer was broken off: tensor "b" of "m/x.h5": a chunk is damaged' in server.stderr()
        server.wait_for(lambda: server.log().count("cut=damaged") == 2, "the access log")
        assert get(server, manifest(server, "m")["a"]["href"]).body == little(values_of["a"])


def test_the_cache_is_counted(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f.create_dataset("a", data=values((64, 64), "<f4", 3), chunks=(16, 64), compression="gzip")
    with Server(tmp_path) as server:
        def counts():
            return [
                server.gauge(f"tensord_decode_cache_{name}")
                for name in ("bytes", "hits_total", "misses_total", "evictions_total")
            ]
        assert counts() == [0, 0, 0, 0]
        href = manifest(server, "x.h5")["a"]["href"]
        get(server, href)
        held, hits, misses, evictions = counts()
        assert misses == 4 and evictions == 0 and held >= 64 * 64 * 4, counts()
        get(server, href)
        assert counts()[1] >= hits + 4 and counts()[2] == 4 and counts()[0] == held, counts()


# ---- NumPy ----

def test_npz(tmp_path):
    """savez_compressed of every order and type, with other members that are no arrays."""
    want = {
        "f": np.asfortranarray(values((30, 40), "<f4", 1)), "c": values((7, 5, 3), "<i8", 2), "scalar": np.float32(3.5),
        "big": values((9, 9), ">f8", 3), "bigf": np.asfortranarray(values((9, 8), ">c8", 4)), "none": np.zeros(
            (0, 3), "f4"), "bool": values((100, ), "?", 5), "long": values((700, 1000), "<u4", 6)
    }
    np.savez_compressed(tmp_path / "x.npz", **want)
    np.savez(tmp_path / "y.npz", **want)
    np.save(tmp_path / "z.npy", want["bigf"])
    rng = random.Random(2)
    with Server(tmp_path) as server:
        got = manifest(server, "x.npz")
        with np.load(tmp_path / "x.npz") as npz:
            for name in npz:
                if npz[name].size:
                    compare(server, got[name], npz[name], "decoded", rng)
        got = manifest(server, "y.npz")
        for name in ("big", "bigf"):
            compare(server, got[name], want[name], "swapped", rng)
        compare(server, next(iter(manifest(server, "z.npy").values())), want["bigf"], "swapped", rng)


def test_npz_larger_than_a_part(tmp_path):
    """Some megabytes: the second read begins in the middle of the stream, at a state that the first read noted."""
    a = values((3000, 1111), "<f4", 1)
    np.savez_compressed(tmp_path / "x.npz", a=a)
    want = little(a)
    rng = random.Random(3)
    with Server(tmp_path) as server:
        href = manifest(server, "x.npz")["a"]["href"]
        for _ in range(40):
            at = rng.randrange(len(want))
            n = rng.randrange(1, 3_000_000)
            assert get(server, href, Range=f"bytes={at}-{at + n - 1}").body == want[at:at + n]
        assert get(server, href).body == want


# shows: security.md content-unpacked-size
def test_a_damaged_npz_is_an_error_for_every_range(tmp_path):
    """The CRC covers all bytes, so no range of a member with a wrong CRC is answered. A rank file begins with `a`,
    whose elements are larger."""
    np.savez_compressed(tmp_path / "x.npz", a=np.arange(500_000, dtype="<f4"), b=np.arange(10, dtype="u1"))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    with zipfile.ZipFile(tmp_path / "x.npz") as z:
        crc = z.getinfo("a.npy").CRC.to_bytes(4, "little")
    at = data.find(crc)
    while at >= 0:  # in the local header, the descriptor and the directory, which must agree
        data[at] ^= 1
        at = data.find(crc, at + 1)
    (tmp_path / "x.npz").write_bytes(data)
    with Server(tmp_path) as server:
        href = manifest(server, "x.npz")["a"]["href"]
        for headers in ({}, {"Range": "bytes=0-10"}, {"Range": "bytes=-10"}):
            answer = get(server, href, **headers)
            assert answer.status == 422 and b"CRC" in answer.body
            assert server.request(href, method="HEAD").status == 422
        for query in ("?format=npy", "?format=safetensors", "?slice=1:", "?slice=1:9&format=npy"):
            assert get(server, href + query).status == 422
            assert server.request(href + query, method="HEAD").status == 422, query
        for target in ("shards/none/tp1/rank-0.safetensors", "model.safetensors"):
            assert server.request(f"/models/x.npz/{target}", method="HEAD").status == 422, target
        assert get(server, manifest(server, "x.npz")["b"]["href"]).status == 200


# ---- GGUF ----

CONVERTED = ("Q4_0", "Q8_0", "Q4_K", "Q6_K", "MXFP4", "NVFP4")


def write_gguf(path, types):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 7)
    writer.add_array("some.numbers", [1, 2, 300])
    writer.add_array("some.texts", ["a", "bcd"])
    writer.add_float64("a.double", 1.25)
    writer.add_bool("a.bool", True)
    for dtype in ("float32", "float16"):
        writer.add_tensor(dtype, values((12, 64), np.dtype(dtype), dtype))
    bf16 = values((12, 128), "u1", "bf16")
    writer.add_tensor("bf16", bf16, raw_dtype=gguf.GGMLQuantizationType.BF16)
    for name in types:
        kind = gguf.GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        writer.add_tensor(name, values((6, 512 // block * size), "u1", name), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_gguf_of_the_other_byte_order(tmp_path):
    """gguf-py's own converter turns a little-endian file into a big-endian one; the served bytes must be those of the
    former."""
    (tmp_path / "little").mkdir()
    (tmp_path / "big").mkdir()
    write_gguf(tmp_path / "little/m.gguf", CONVERTED)
    (tmp_path / "big/m.gguf").write_bytes((tmp_path / "little/m.gguf").read_bytes())
    p = subprocess.run([sys.executable, "-m", "gguf.scripts.gguf_convert_endian", str(tmp_path / "big/m.gguf"), "big"],
                       input="YES\n", capture_output=True, text=True, timeout=120)
    assert p.returncode == 0, p.stderr
    assert (tmp_path / "big/m.gguf").read_bytes() != (tmp_path / "little/m.gguf").read_bytes()
    rng = random.Random(4)
    with Server(tmp_path) as server:
        one, two = (server.json(f"/models/{m}/tensors") for m in ("little", "big"))
        assert one["metadata"] == two["metadata"]
        a, b = ({t["name"]: t for t in doc["tensors"]} for doc in (one, two))
        assert set(a) == set(b) and len(a) == 3 + len(CONVERTED)
        for name, t in b.items():
            want = get(server, a[name]["href"]).body
            assert t["shape"] == a[name]["shape"] and t["dtype"] == a[name]["dtype"]
            assert get(server, t["href"]).body == want, name
            assert t["access"] == "swapped" and t["stored"] == "big-endian" and "offset" not in t, t
            for _ in range(20):
                x = rng.randrange(len(want))
                y = rng.randrange(x, len(want))
                assert get(server, t["href"], Range=f"bytes={x}-{y}").body == want[x:y + 1], (name, x, y)


def test_gguf_blocks_of_unknown_byte_order_have_a_reason(tmp_path):
    write_gguf(tmp_path / "m.gguf", ["Q2_K", "IQ1_M"])
    data = bytearray((tmp_path / "m.gguf").read_bytes())
    reader = gguf.GGUFReader(tmp_path / "m.gguf", "r+")  # as the converter would, but it refuses these types
    for field in reader.fields.values():
        for part in field.parts:
            part.byteswap(inplace=True)
    for tensor in reader.tensors:
        for part in tensor.field.parts:
            part.byteswap(inplace=True)
    reader.data.flush()
    assert (tmp_path / "m.gguf").read_bytes() != data
    with Server(tmp_path) as server:
        got = manifest(server, "m.gguf")
        for name in ("Q2_K", "IQ1_M"):
            assert got[name]["addressable"] is False and "big-endian" in got[name]["reason"], got[name]


# ---- PyTorch ----

def rezip(source, target, change=lambda name, data: data, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(source) as src, zipfile.ZipFile(target, "w", compression) as dst:
        for item in src.namelist():
            dst.writestr(item, change(item, src.read(item)))


STATE = {"w": torch.arange(3000, dtype=torch.float32).reshape(50, 60), "t": torch.arange(12.).reshape(3, 4).t(),
         "h": torch.arange(999, dtype=torch.bfloat16), "c": torch.arange(8).to(torch.complex64), "i": torch.arange(77),
         "b": torch.tensor([True, False])}
STATE["view"] = STATE["w"][10:20, 5:9]
STATE["tied"] = STATE["w"]


def torch_bytes(t):
    t = t.contiguous()
    return t.view(torch.uint8).numpy().tobytes() if t.numel() else b""


def check_torch(server, model, want, access):
    got = manifest(server, model)
    assert set(got) == set(want)
    rng = random.Random(model)
    for name, t in want.items():
        expected = torch_bytes(t)
        assert got[name]["access"] == access(name), got[name]
        assert get(server, got[name]["href"]).body == expected, name
        for _ in range(5):
            x = rng.randrange(len(expected))
            assert get(server, got[name]["href"], Range=f"bytes={x}-").body == expected[x:], (name, x)
    assert got["w"].get("alias_of") == "tied" and "alias_of" not in got["view"]


def test_torch_zipped_again(tmp_path):
    torch.save(STATE, tmp_path / "plain.pt")
    rezip(tmp_path / "plain.pt", tmp_path / "packed.pt")
    with Server(tmp_path) as server:
        check_torch(server, "packed.pt", torch.load(tmp_path / "plain.pt"),
                    lambda name: "decoded")


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_torch_of_a_big_endian_host(tmp_path, compression):
    """The record `byteorder` says big, and torch.load swaps all storages; the served values must be those of
    torch.load."""
    torch.save(STATE, tmp_path / "plain.pt")
    rezip(tmp_path / "plain.pt", tmp_path / "stored.pt",
          lambda name, data: b"big" if name.endswith("/byteorder") else data, zipfile.ZIP_STORED)
    want = torch.load(tmp_path / "stored.pt")
    assert not torch.equal(want["w"], STATE["w"])
    rezip(tmp_path / "stored.pt", tmp_path / "big.pt", compression=compression)
    packed = compression == zipfile.ZIP_DEFLATED
    with Server(tmp_path) as server:
        got = manifest(server, "big.pt")
        for name, t in want.items():
            expected = torch_bytes(t)
            if not packed and name == "b":
                assert "access" not in got[name]
            else:
                assert got[name]["access"] == ("decoded" if packed else "swapped"), got[name]
            assert get(server, got[name]["href"]).body == expected, name


def test_legacy_torch_is_little_endian_whatever_it_says(tmp_path):
    """torch writes and reads legacy files in little-endian order on every host, whatever little_endian says."""
    torch.save(STATE, tmp_path / "plain.pt", _use_new_zipfile_serialization=False)
    data = (tmp_path / "plain.pt").read_bytes()
    mark = b"little_endian"
    at = data.index(mark) + len(mark)
    flag = data.index(b"\x88", at)
    (tmp_path / "big.pt").write_bytes(data[:flag] + b"\x89" + data[flag + 1:])
    want = torch.load(tmp_path / "big.pt")
    with Server(tmp_path) as server:
        got = manifest(server, "big.pt")
        for name, t in want.items():
            assert torch.equal(t, STATE[name])
            assert get(server, got[name]["href"]).body == torch_bytes(t), name


@pytest.mark.parametrize("place", ["hard link", "cache of the Hub"])
@pytest.mark.parametrize("first", ["p.pt", "p.npz"])
# shows: security.md file-two-names
def test_one_file_that_two_formats_read(tmp_path, place, first):
    """A zip archive that torch.load and numpy.load both read, under two names of one inode: each name's tensors have
    their own bytes, whichever is unpacked first."""
    big, small = torch.full((1 << 20,), 0x41, dtype=torch.uint8), np.full(64, 0x42, "u1")
    torch.save({"x": big}, tmp_path / "source.pt")
    member = io.BytesIO()
    np.save(member, small)
    if place == "hard link":
        names = [tmp_path / "root/m" / name for name in ("p.pt", "p.npz")]
        names[0].parent.mkdir(parents=True)
        file, model = names[0], "m"
    else:
        commit = "a" * 40
        cache = tmp_path / "root/models--org--m"
        for folder in ("blobs", f"snapshots/{commit}", "refs"):
            (cache / folder).mkdir(parents=True)
        (cache / "refs/main").write_text(commit)
        names = [cache / f"snapshots/{commit}/{name}" for name in ("p.pt", "p.npz")]
        file, model = cache / "blobs/b", "org/m"
    with zipfile.ZipFile(tmp_path / "source.pt") as source, zipfile.ZipFile(file, "w") as archive:
        for name in source.namelist():
            archive.writestr(name, source.read(name), zipfile.ZIP_DEFLATED if "/data/" in name else zipfile.ZIP_STORED)
        archive.writestr("source/b.npy", member.getvalue(), zipfile.ZIP_DEFLATED)
    for name in names:
        if name != file:
            os.link(file, name) if place == "hard link" else name.symlink_to("../../blobs/b")
    assert torch.load(names[0])["x"].equal(big) and (np.load(names[1])["source/b"] == small).all()
    harness.age(tmp_path / "root")
    want = {"p.pt": ("x", big.numpy().tobytes()), "p.npz": ("source%2Fb", small.tobytes())}
    with Server(tmp_path / "root", "--hash-threads", "0") as server:
        for checkpoint in (first, *(n for n in want if n != first)) * 2:
            name, data = want[checkpoint]
            href = f"/models/{model}/tensors/{name}?checkpoint={checkpoint}"
            for begin, end in ((0, 63), (20, 40), (1000, 9000), (1000, 262143)):
                if end < len(data):
                    answer = get(server, href, Range=f"bytes={begin}-{end}")
                    assert answer.status == 206 and answer.body == data[begin:end + 1], (checkpoint, begin)
            assert get(server, href).body == data, checkpoint
