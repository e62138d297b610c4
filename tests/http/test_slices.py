"""?slice=, ?shard=, ?format= and tensors:read: parts of tensors, compared with those of NumPy and torch, which the
tests import themselves: that takes seconds, and each of pytest's processes imports all modules of tests."""
import io
import json
import random

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load as load_safetensors

from harness import DTYPE_BITS, check_error, enc, pattern, tensor, write_by_hand

SHAPES = {
    "t0": [], "t1": [17], "t2": [12, 10], "t3": [5, 6, 7], "t4": [3, 4, 5, 6], "t5": [2, 3, 2, 3, 4], "empty":
    [4, 0, 3], "ones": [1, 1, 8]
}
NUMPY = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "U8": "|u1", "BOOL": "|b1", "C64": "<c8", "F64": "<f8", "I8": "|i1",
         "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    import torch

    root = tmp_path_factory.mktemp("slices")
    ts = [tensor(n, "F32", s) for n, s in SHAPES.items()] + [tensor("d/" + d, d, [6, 8]) for d in DTYPE_BITS]
    (root / "m").mkdir()
    write_by_hand(root / "m" / "model.safetensors", ts, {"format": "pt"})
    x = torch.arange(6 * 8 * 4, dtype=torch.float32).reshape(6, 8, 4)
    (root / "pt").mkdir()
    torch.save({"t": x.permute(2, 0, 1), "every": x[::2, 1::3], "plain": x}, root / "pt" / "a.pt")
    return root


@pytest.fixture(scope="module")
def srv(root, request):
    from harness import Server
    s = Server(root)
    s.wait_hashed()  # entity tags stay as they are
    yield s
    s.stop()


def array(name):
    return np.frombuffer(pattern(4 * int(np.prod(SHAPES[name], dtype=int)), name), "<u4").reshape(SHAPES[name])


def index(text):
    """Return the tuple that NumPy makes of x[text]."""
    class Get:
        def __getitem__(self, item):
            return item if isinstance(item, tuple) else (item,)
    return eval("g[" + text + "]", {"g": Get()})  # noqa: S307  texts of this file


def get(srv, name, model="m", **query):
    return srv.get(f"/models/{model}/tensors/{enc(name, '/')}?" + "&".join(f"{k}={enc(v, ':,-')}"
                                                                           for k, v in query.items()))


SLICES = {
    "t1": [
        "0:5", "5:", ":-3", "-4:", "0:100", "100:", "-100:3", "7:3", ":", "5", "-1", "...", "...,3", "0:0", "-5:-2",
        "16:17"
    ],
    "t2": [
        "0:4,:", ":,0:4", "2:7,3:9", "99999999999999999999:", ":-99999999999999999999", "5", "5,3", ":,5", "-1,-1",
        "...,0:3", "0:3,...", "11:12,9:10", "3:3", ":,7:2", "0:12,0:10", "..."
    ],
    "t3": [
        ":,2:4,:", "1:3,:,2:5", "...,1:3", "2,...", "2,3", ":,:,6", "1,...,3", "4,5,6", "0:5,0:6,1:2", ":,1",
        "-2:,-2:,-2:"
    ],
    "t4": ["1:3,1:3,1:3,1:3", ":,:,:,2", "0,:,2:4,1:5", "2,1:2,:,3:", ":,3,:,0:2", "...,4:6"],
    "t5": [":,1:2,:,1:2,:", "1,2,0:1,0:2,1:3", ":,:,:,:,0", "0:1,...,3:", ":,0:2,1,:,2:4"],
    "empty": [":", "1:3", ":,0:0", "2", "...,1"],
    "ones": ["0", "0,0", ":,:,2:6", "0,0,3", "...,-1"],
    "t0": ["..."],
}


@pytest.mark.parametrize("name", SLICES)
def test_slices_are_numpys(srv, name):
    for text in SLICES[name]:
        want = array(name)[index(text)]
        r = get(srv, name, slice=text)
        assert r.status == 200, f"{name}[{text}]: {r}"
        assert r.body == want.tobytes(), f"{name}[{text}]: other bytes"
        assert json.loads(r.get("X-Tensor-Shape")) == list(np.shape(want)), f"{name}[{text}]: {r.get('X-Tensor-Shape')}"


def test_random_slices(srv):
    rng = random.Random(5)
    for _ in range(150):
        name = rng.choice(["t2", "t3", "t4", "t5"])
        parts = []
        for n in SHAPES[name][:rng.randint(1, len(SHAPES[name]))]:
            a, b = rng.randint(-n - 2, n + 2), rng.randint(-n - 2, n + 2)
            parts.append(rng.choice([":", f"{a}:", f":{b}", f"{a}:{b}", f"{a}:{b}", str(rng.randint(-n, n - 1))]))
        text = ",".join(parts)
        want = array(name)[index(text)]
        r = get(srv, name, slice=text)
        assert r.status == 200 and r.body == want.tobytes(), f"{name}[{text}]: {r}"
        if len(r.body) > 1:  # the part is a representation of its own: ranges count within it
            first = rng.randrange(len(r.body))
            last = rng.randrange(first, len(r.body))
            q = f"/models/m/tensors/{name}?slice={enc(text, ':,-')}"
            p = srv.get(q, {"Range": f"bytes={first}-{last}", "If-Range": r.etag})
            assert p.status == 206 and p.body == r.body[first:last + 1], f"{name}[{text}] {first}-{last}: {p}"


@pytest.mark.parametrize("text, needle", [
    ("", "slice"), ("::2", "step"), ("0:4:1", "step"), ("12", "12"), ("-13", "12"), ("0,0,0", "2"), ("...,...", "..."),
    ("a", "a"), ("0:x", "x"), ("1.5", "1.5"), (",", ","), ("0,", "0,"), ("None", "None"), ("[0]", "[0]"), ("0:4;", ";"),
    ("99999999999999999999", "9"), ("- 1", "1"), ("0 :4", "0"),
])
# shows: security.md client-plans
def test_bad_slices(srv, text, needle):
    check_error(get(srv, "t2", slice=text), 400, needle)


def test_shards_are_torchs_chunks(srv):
    import torch

    for name, shape in (("t1", [17]), ("t2", [12, 10]), ("t3", [5, 6, 7]), ("empty", [4, 0, 3])):
        x = torch.from_numpy(array(name).astype(np.int64))
        for dim in range(-len(shape), len(shape)):
            for size in (1, 2, 3, 4, 5, 7, 16, 20):
                pieces = [p.numpy().astype("<u4") for p in torch.chunk(x, size, dim)] if shape[dim] > 0 else []
                for rank in range(size):
                    r = get(srv, name, shard=f"{dim}:{rank}/{size}")
                    empty = list(shape)
                    empty[dim] = 0
                    want = pieces[rank] if rank < len(pieces) else np.empty(empty, "<u4")
                    assert r.status == 200 and r.body == want.tobytes(), f"{name} {dim}:{rank}/{size}: {r}"
                    assert json.loads(r.get("X-Tensor-Shape")) == list(want.shape), f"{name} {dim}:{rank}/{size}"


@pytest.mark.parametrize(
    "text",
    ["", "0", "0:1", "0:1/0", "0:2/2", "2:0/2", "-3:0/2", "0:-1/2", "a:0/2", "0:0/2/3", "0:0/-2", ":0/2", "0:/2"])
def test_bad_shards(srv, text):
    check_error(get(srv, "t2", shard=text), 400)


def test_slice_and_shard_exclude_each_other(srv):
    check_error(get(srv, "t2", slice="0:1", shard="0:0/2"), 400, "slice", "shard")


def test_numpys_format(srv):
    for dtype in DTYPE_BITS:
        r = get(srv, "d/" + dtype, format="npy", slice="1:5")
        if dtype not in NUMPY:
            check_error(r, 400, dtype, "npy")
            continue
        got = np.load(io.BytesIO(r.body))
        want = np.frombuffer(pattern(6 * 8 * DTYPE_BITS[dtype] // 8, "d/" + dtype), NUMPY[dtype]).reshape(6, 8)[1:5]
        assert got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes(), dtype
    for name in SHAPES:
        r = get(srv, name, format="npy")
        got = np.load(io.BytesIO(r.body))
        assert got.shape == tuple(SHAPES[name]) and got.tobytes() == array(name).tobytes(), name
        assert r.body.index(b"\n") % 64 == 63  # the data is aligned, as numpy.lib.format writes it


def test_safetensors_format(srv, tmp_path):
    for name in SHAPES:
        r = get(srv, name, format="safetensors")
        (tmp_path / "x.safetensors").write_bytes(r.body)
        with safe_open(tmp_path / "x.safetensors", "np") as f:
            assert list(f.keys()) == [name] and f.metadata() == {"format": "pt"}
            assert f.get_tensor(name).tobytes() == array(name).tobytes() and list(
                f.get_tensor(name).shape) == SHAPES[name]
    r = get(srv, "t2", format="safetensors", slice="3:5,:")
    assert load_safetensors(r.body)["t2"].tobytes() == array("t2")[3:5].tobytes()
    e = check_error(get(srv, "t2", format="pickle"), 400, "pickle", "raw, npy, safetensors and stats")
    assert e["details"]["known"] == ["raw", "npy", "safetensors", "stats"]


def test_sub_byte_types_are_cut_between_bytes(srv):
    whole = pattern(24, "d/F4")
    assert get(srv, "d/F4", slice="1:3").body == whole[4:12]
    assert get(srv, "d/F4", slice=":,2:6").body == b"".join(whole[4 * i + 1:4 * i + 3] for i in range(6))
    check_error(get(srv, "d/F4", slice=":,1:3"), 400)
    check_error(get(srv, "d/F4", slice="0,3"), 400)


def test_parts_of_tensors_that_do_not_lie_in_order(srv):
    import torch

    x = torch.arange(6 * 8 * 4, dtype=torch.float32).reshape(6, 8, 4)
    for name, t in (("t", x.permute(2, 0, 1)), ("every", x[::2, 1::3]), ("plain", x)):
        for text in (":", "1:3", ":,1:2", "...,0:2", "1,1", "0:1,1:3,1:2", "-1"):
            want = t.contiguous().numpy()[index(text)]
            r = get(srv, name, model="pt", slice=text)
            assert r.status == 200 and r.body == want.tobytes(), f"{name}[{text}]: {r}"
        r = get(srv, name, model="pt", format="npy")
        assert np.load(io.BytesIO(r.body)).tobytes() == t.contiguous().numpy().tobytes()


def test_validators_tell_parts_apart(srv):
    seen = {}
    for query in ("", "?slice=0:4", "?slice=0:4,:", "?slice=1:5", "?slice=0", "?slice=0:1", "?shard=0:0/3",
                  "?shard=1:0/3", "?format=npy", "?format=safetensors", "?format=npy&slice=0:4"):
        r = srv.get("/models/m/tensors/t2" + query)
        assert r.status == 200, f"{query}: {r}"
        same = seen.setdefault(r.etag, (query, r.body, r.get("X-Tensor-Shape")))
        assert same[1:] == (r.body, r.get("X-Tensor-Shape")), f"{query} and {same[0]} have one validator"
        h = srv.head("/models/m/tensors/t2" + query)
        assert h.status == 200 and h.etag == r.etag and h.length == len(r.body)
        assert srv.get("/models/m/tensors/t2" + query, {"If-None-Match": r.etag}).status == 304
    assert len(seen) >= 9


# ------------------------------------------------------------------------------------------ tensors:read

def test_a_batch_of_tensors(srv):
    ask = [{"name": "t3", "slice": "1:3"}, {"name": "t1"}, {"name": "t4", "slice": "0,...,2:4"}, {"name": "t3"},
           {"name": "empty"}]
    want = [array("t3")[1:3], array("t1"), array("t4")[0, ..., 2:4], array("t3"), array("empty")]
    r = srv.post("/models/m/tensors:read", {"tensors": ask, "format": "raw"})
    assert r.status == 200 and r.body == b"".join(w.tobytes() for w in want), r
    assert r.get("Content-Type") == "application/octet-stream"
    assert srv.post("/models/m/tensors:read", {"tensors": ask}).body == r.body  # raw is the default
    ask[3]["as"] = "again"
    r = srv.post("/models/m/tensors:read", {"tensors": ask, "format": "safetensors"})
    got = load_safetensors(r.body)
    names = ["t3", "t1", "t4", "again", "empty"]
    assert sorted(got) == sorted(names)
    for n, w in zip(names, want):
        assert got[n].shape == w.shape and got[n].tobytes() == w.tobytes(), n


def test_bad_batches(srv):
    post = lambda body: srv.post("/models/m/tensors:read", body)
    check_error(post({"tensors": [{"name": "t1"}, {"name": "t1"}], "format": "safetensors"}), 400, "t1")
    check_error(post({"tensors": [{"name": "nope"}]}), 404, "nope")
    check_error(post({"tensors": [{"name": "t1", "slice": "::2"}]}), 400, r'tensor \"t1\": ', "step")
    check_error(post({"tensors": [{"name": "t1", "slices": "0:2"}]}), 400, r'unknown key \"slices\"')
    check_error(post({"tensors": [], "formats": "raw"}), 400, r'unknown key \"formats\"')
    check_error(post(b'{"tensors":[],"tensors":[]}'), 400, "twice")
    for body in (b"", b"{", b"[]", b"{}", b'{"tensors":{}}', b'{"tensors":[1]}', b'{"tensors":[{}]}',
                 b'{"tensors":[{"name":1}]}', b'{"tensors":[],"format":"npy"}', b'{"tensors":[],"format":1}',
                 b'{"tensors":[],"x":1}', b'{"tensors":[]}x', b'{"tensors":[],"tensors":[]}',
                 b'{"tensors":[{"name":"t1","name":"t1"}]}', b'{"tensors":[{"name":"t1","x":1}]}', b"\xff",
                 b"[" * 100000):
        check_error(post(body), 400)
    check_error(srv.get("/models/m/tensors:read"), 405, allow=("POST",))
    r = post({"tensors": []})
    assert r.status == 200 and r.body == b""
