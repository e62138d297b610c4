"""Files that do not exist on disk: every rank's file and the whole model's, over HTTP, from every kind of source."""
import concurrent.futures
import json
import os
import random
import shutil
import signal

import h5py
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from safetensors.torch import save_file

from harness import Server, age, check_error, engine_names

H, KV, D, HIDDEN, INTER, VOCAB, LAYERS = 8, 2, 16, 96, 160, 321, 2
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_attention_heads": H, "num_key_value_heads": KV,
    "head_dim": D, "hidden_size": HIDDEN, "intermediate_size": INTER, "vocab_size": VOCAB, "num_hidden_layers": LAYERS
}


def weights(dtype=torch.bfloat16):
    """Qwen3's names; every element differs from its neighbours."""
    shapes = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN, ), "lm_head.weight": (VOCAB, HIDDEN)
    }
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        shapes |= {p + "self_attn.q_proj.weight": (H * D, HIDDEN), p + "self_attn.k_proj.weight": (KV * D, HIDDEN),
                   p + "self_attn.v_proj.weight": (KV * D, HIDDEN), p + "self_attn.o_proj.weight": (HIDDEN, H * D),
                   p + "self_attn.q_norm.weight": (D,), p + "self_attn.k_norm.weight": (D,),
                   p + "mlp.gate_proj.weight": (INTER, HIDDEN), p + "mlp.up_proj.weight": (INTER, HIDDEN),
                   p + "mlp.down_proj.weight": (HIDDEN, INTER), p + "input_layernorm.weight": (HIDDEN,),
                   p + "post_attention_layernorm.weight": (HIDDEN,)}
    out = {}
    for k, (name, shape) in enumerate(sorted(shapes.items())):
        n = int(np.prod(shape))
        bits = (torch.arange(n, dtype=torch.int64) * 7919 + k * 104729) % 30000
        out[name] = bits.to(
            torch.int16).view(dtype).reshape(shape) if dtype.itemsize == 2 else bits.to(dtype).reshape(shape)
    return out


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("ranks")
    w = weights()

    def model(name):
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(CONFIG))
        return root / name

    save_file(w, model("one") / "model.safetensors", {"format": "pt"})
    names = sorted(w)
    d = model("sharded")
    parts = {"model-00001-of-00003.safetensors": names[0::3], "model-00002-of-00003.safetensors": names[1::3],
             "model-00003-of-00003.safetensors": names[2::3]}
    for file, part in parts.items():
        save_file({n: w[n] for n in part}, d / file)
    (d / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {}, "weight_map": {n: f for f, part in parts.items() for n in part}}))
    torch.save(w, model("bin") / "pytorch_model.bin")
    turned = {n: (t.t().contiguous().t() if t.dim() == 2 else t) for n, t in w.items()}  # column-major storage
    torch.save(turned, model("turned") / "pytorch_model.bin")
    f32 = {n: t.view(torch.int16).to(torch.float32) for n, t in w.items()}
    save_file(f32, model("one32") / "model.safetensors")
    with h5py.File(model("h5") / "model.h5", "w") as f:
        for n, t in f32.items():
            f.create_dataset(n, data=t.numpy())
    age(root)
    return root


def rank(srv, model, engine, tp, r, **kw):
    got = srv.get(f"/models/{model}/shards/{engine}/tp{tp}/rank-{r}.safetensors", **kw)
    assert got.status == 200, got
    return got


def vocab_rows(n, tp):
    padded = (n + 63) // 64 * 64
    return padded // tp


def expected_vllm(w, tp, r, engine="vllm@0.33"):
    """vLLM's own layout, by narrow, cat and pad. From 0.14 on attention has four scales."""
    out = {}
    cut = lambda t, d: t.narrow(d, r * (t.shape[d] // tp), t.shape[d] // tp)
    for name, t in w.items():
        if name.endswith(("embed_tokens.weight", "lm_head.weight")):
            n = vocab_rows(VOCAB, tp)
            full = torch.nn.functional.pad(t.view(torch.int16), (0, 0, 0, n * tp - VOCAB)).view(t.dtype)
            out[name] = full.narrow(0, r * n, n)
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            out[name] = cut(t, 1)
        elif "_proj" not in name:
            out[name] = t
    for i in range(LAYERS):
        p = f"model.layers.{i}.self_attn."
        kv = []
        for x in "kv":
            t = w[p + x + "_proj.weight"]
            kv.append(cut(t, 0) if KV >= tp else t.narrow(0, r // (tp // KV) * D, D))
        out[p + "qkv_proj.weight"] = torch.cat([cut(w[p + "q_proj.weight"], 0), *kv])
        m = f"model.layers.{i}.mlp."
        out[m + "gate_up_proj.weight"] = torch.cat([cut(w[m + "gate_proj.weight"], 0), cut(w[m + "up_proj.weight"], 0)])
        for scale in ("_q_scale", "_k_scale", "_v_scale", "_prob_scale") if engine == "vllm@0.33" else ():
            out[p + "attn." + scale] = torch.ones(())
    return out


def same(got, want):
    assert sorted(got) == sorted(want)
    for n in want:
        a, b = got[n], want[n].contiguous()
        assert a.dtype == b.dtype and a.shape == b.shape, \
            f"{n}: {a.dtype} {tuple(a.shape)}, wanted {b.dtype} {tuple(b.shape)}"
        assert a.reshape(-1).view(torch.uint8).equal(b.reshape(-1).view(torch.uint8)), f"{n}: other bytes"


@pytest.mark.parametrize("model", ["one", "sharded", "bin", "turned"])
@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_vllms_ranks_from_every_source(srv, model, tp):
    w = weights()
    for r in range(tp):
        got = rank(srv, model, "vllm", tp, r)
        same(load_safetensors(got.body), expected_vllm(w, tp, r))


@pytest.mark.parametrize("spelled", ["vllm@0.33", "vllm%400.33", "vllm"])
def test_a_version_of_vllm(srv, spelled):
    """Without a version it is the newest one, the same file; the description and the file name the version."""
    got = srv.get(f"/models/one/shards/{spelled}/tp2/rank-1.safetensors")
    newest = rank(srv, "one", "vllm@0.33", 2, 1)
    assert got.status == 200 and (got.body, got.etag) == (newest.body, newest.etag)
    header = json.loads(got.body[8:8 + int.from_bytes(got.body[:8], "little")])
    assert header["__metadata__"]["engine"] == "vllm@0.33"
    about = srv.json(f"/models/one/shards/{spelled}/tp2/rank-1.json")
    assert about["engine"] == "vllm@0.33" and '"' + about["etag"] + '"' == got.etag
    scales = [t for t in about["tensors"] if t["name"].endswith("_scale")]
    assert len(scales) == 4 * LAYERS
    assert {json.dumps({k: t[k] for k in ("dtype", "shape", "nbytes", "extents")}) for t in scales} == {
        json.dumps({"dtype": "F32", "shape": [], "nbytes": 4, "extents": [{"constant": 1.0}]})}


def test_the_older_layout_of_vllm_stays(srv):
    """The layout that `vllm` had before versions, to the byte: also the name in the file and its commit."""
    for tp in (1, 2, 4):
        for r in range(tp):
            got = rank(srv, "one", "vllm@0.13", tp, r)
            same(load_safetensors(got.body), expected_vllm(weights(), tp, r, "vllm@0.13"))
            assert got.etag != rank(srv, "one", "vllm@0.33", tp, r).etag
    header = json.loads(got.body[8:8 + int.from_bytes(got.body[:8], "little")])
    assert header["__metadata__"]["engine"] == "vllm"
    assert srv.json("/models/one/shards/vllm@0.13/tp2/rank-0.json")["engine"] == "vllm@0.13"


@pytest.mark.parametrize("name", ["vllm@0.14", "vllm@", "vllm@0.330", "vllm-0.13", "vllm@0.13@0.33", "fsdp@0.33", "@"])
def test_an_unknown_version_is_404_with_the_engines(srv, name):
    known = ["fsdp", "nano-vllm", "none", "vllm", "vllm@0.13", "vllm@0.33"]
    for path in (f"/models/one/shards/{name}/tp2/rank-0.safetensors", f"/models/one/shards/{name}/tp2/rank-0.json"):
        assert check_error(srv.get(path), 404, name, ", ".join(known))["details"]["known"] == known
    e = check_error(srv.post("/models/one/plans", {"engine": name, "tp_size": 2}), 404, name)
    assert e["details"]["known"] == known == engine_names()


def test_plans_and_revisions_of_versions(srv):
    """A plan, and a revision of the Hub, where - stands for @, have the engine's own file."""
    tags = {}
    for name, revision, own in (("vllm", "vllm", "vllm@0.33"), ("vllm@0.33", "vllm-0.33", "vllm@0.33"),
                                ("vllm@0.13", "vllm-0.13", "vllm@0.13")):
        want = load_safetensors(rank(srv, "one", own, 2, 1).body)
        plan = srv.post("/models/one/plans", {"engine": name, "tp_size": 2}).json()
        has_scales = "model.layers.0.self_attn.attn._q_scale" in [o["name"] for o in plan["outputs"]]
        assert has_scales == (own == "vllm@0.33")
        same(load_safetensors(srv.get(plan["ranks"][1]["href"]).body), want)
        tags[name] = plan["ranks"][1]["etag"]
        listed = srv.json(f"/api/models/local/one/tree/tp2-rank1-{revision}")
        assert [f["path"] for f in listed] == ["config.json", "model-rank-1-part-0.safetensors"]
        for file in ("model-rank-1-part-0.safetensors", "model.safetensors"):
            got = srv.get(f"/local/one/resolve/tp2-rank1-{revision}/{file}")
            assert got.status == 200 and got.body == rank(srv, "one", own, 2, 1).body
    assert len(set(tags.values())) == 3, "plans that name the engine otherwise are others, and so are their files"
    unknown = srv.get("/local/one/resolve/tp2-rank1-vllm-0.14/config.json")
    assert unknown.status == 404 and "vllm-0.13, vllm-0.33" in unknown.json()["error"]


def test_constants_of_a_clients_rules(srv):
    rules = [{"match": "model.layers.*.mlp.up_proj.weight", "out": "scale.*", "constant": -0.1},
             {"match": "model.layers.1.**", "drop": True},
             {"match": "nothing", "out": "x", "constant": 2},
             {"match": "**", "uneven": "chunk"}]
    plan = srv.post("/models/one/plans", {"tp_size": 2, "rules": rules}).json()
    got = load_safetensors(srv.get(plan["ranks"][1]["href"]).body)
    assert got["scale.0"].dtype == torch.float32 and got["scale.0"].shape == ()
    assert got["scale.0"].item() == np.float32(-0.1) and "scale.1" not in got and plan["unused_rules"] == [2]
    about = srv.json(plan["ranks"][1]["href"].replace(".safetensors", ".json"))
    assert [t["extents"] for t in about["tensors"] if t["name"] == "scale.0"] == [[{"constant": -0.1}]]
    check_error(srv.post("/models/one/plans", {"tp_size": 1, "rules": [{"match": "**", "constant": 1}]}), 400, "out")
    twice = [{"match": "**", "whole": True}, {"match": "**", "out": "model.norm.weight", "constant": 1}]
    check_error(srv.post("/models/one/plans", {"tp_size": 1, "rules": twice}), 422, "model.norm.weight", "constant")


def test_hdf5_and_safetensors_give_the_same_ranks(srv):
    for engine in ("vllm", "vllm@0.13", "fsdp", "none"):
        for r in range(2):
            a = load_safetensors(rank(srv, "h5", engine, 2, r).body)
            same(a, load_safetensors(rank(srv, "one32", engine, 2, r).body))


def test_fsdp_is_torchs_chunk(srv):
    w = weights()
    for tp in (2, 3, 5, 16):
        for r in range(tp):
            want = {}
            for n, t in w.items():
                pieces = torch.chunk(t, tp, 0)
                want[n] = pieces[r] if r < len(pieces) else t[:0]
            same(load_safetensors(rank(srv, "sharded", "fsdp", tp, r).body), want)


@pytest.mark.parametrize("model", ["one", "sharded", "bin", "turned"])
def test_the_whole_model_as_one_file(srv, model, tmp_path):
    r = srv.get(f"/models/{model}/model.safetensors")
    assert r.status == 200
    (tmp_path / "x.safetensors").write_bytes(r.body)
    w = weights()
    with safe_open(tmp_path / "x.safetensors", "pt") as f:
        assert f.metadata() == {"format": "pt", "model": model, "engine": "none", "tp_size": "1", "tp_rank": "0"}
        same({n: f.get_tensor(n) for n in f.keys()}, w)
    assert r.body == rank(srv, model, "none", 1, 0).body


def test_the_header_is_as_promised(srv):
    """In data order without gaps, padded with spaces to a multiple of eight."""
    for tp, r in ((1, 0), (2, 1), (8, 7)):
        body = rank(srv, "sharded", "vllm", tp, r).body
        n = int.from_bytes(body[:8], "little")
        assert n % 8 == 0
        header = json.loads(body[8:8 + n])
        assert header.pop("__metadata__") == {
            "format": "pt", "model": "sharded", "engine": "vllm@0.33", "tp_size": str(tp), "tp_rank": str(r)
        }
        at = 0
        for name, t in header.items():
            assert t["data_offsets"][0] == at, name
            at = t["data_offsets"][1]
        assert 8 + n + at == len(body)


def test_the_order_and_the_bytes_are_those_of_the_package(tmp_path):
    """Results of engines and rules are in the order in which safetensors itself writes them: in falling order of types,
    then by name, so
    that each begins at a multiple of its element's size. A list of the client's keeps its order."""
    types = [torch.float8_e4m3fn, torch.int64, torch.bool, torch.bfloat16, torch.uint8, torch.float32, torch.float64,
             torch.int16, torch.float16, torch.int32, torch.int8, torch.complex64]
    tensors = {}
    for i in range(3 * len(types)):
        size = (2 + i % 3, 1 + i % 2)
        raw = torch.arange(i, i + size[0] * size[1] * types[i % len(types)].itemsize, dtype=torch.int32) % 2
        tensors[f"t{i * 7 % 36:02}"] = raw.to(torch.uint8).view(types[i % len(types)]).reshape(size)
    (tmp_path / "org" / "m").mkdir(parents=True)
    torch.save(tensors, tmp_path / "org" / "m" / "pytorch_model.bin")
    age(tmp_path)

    def header_of(data):
        n = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + n])
        header.pop("__metadata__", None)
        assert n % 8 == 0
        return list(header.items()), data[8 + n:]

    with Server(tmp_path) as s:
        plan = s.post("/models/org/m/plans", {"tp_size": 2, "rules": [{"match": "**", "uneven": "chunk"}]}).json()
        whole = s.get("/models/org/m/model.safetensors").body
        ranks = [s.get(f"/models/org/m/shards/fsdp/tp2/rank-{r}.safetensors").body for r in range(2)]
        files = ranks + [whole, s.get("/models/org/m/shards/none/tp1/rank-0.safetensors").body,
                         s.get("/org/m/resolve/safetensors/model.safetensors").body,
                         s.get("/org/m/resolve/tp2-rank1-fsdp/model.safetensors").body]
        files += [s.get(rank["href"]).body for rank in plan["ranks"]]
        for data in files:
            assert header_of(data) == header_of(save_safetensors(load_safetensors(data)))
            for name, entry in header_of(data)[0]:
                assert entry["data_offsets"][0] % load_safetensors(data)[name].element_size() == 0, name
        assert header_of(whole) == header_of(save_safetensors(tensors))
        assert [n for n, _ in header_of(ranks[0])[0]] == [t["name"] for t in s.json(
            "/models/org/m/shards/fsdp/tp2/rank-0.json")["tensors"]] == [t["name"] for t in plan["outputs"]]
        names = ["t05", "t01", "t30", "t02"]
        plan = s.post("/models/org/m/plans", {"ranks": [{"tensors": [{"name": n} for n in names]}]}).json()
        mine = s.get(plan["ranks"][0]["href"]).body
        assert [n for n, _ in header_of(mine)[0]] == names == [t["name"] for t in plan["outputs"]]


def test_random_ranges_and_parallel_downloads(srv):
    rng = random.Random(3)
    for model, engine, tp, r in (("sharded", "vllm", 4, 2), ("turned", "vllm", 2, 1), ("bin", "fsdp", 3, 1)):
        path = f"/models/{model}/shards/{engine}/tp{tp}/rank-{r}.safetensors"
        whole = srv.get(path)
        n = len(whole.body)
        head = 8 + int.from_bytes(whole.body[:8], "little")
        borders = [0, 1, 7, 8, head - 1, head, head + 1, n - 1]
        with srv.conn() as c:
            for i in range(50):
                first = borders[i] if i < len(borders) else rng.randrange(n)
                last = min(n - 1, first + rng.choice([0, 1, 31, 1000, 100000, n]))
                p = c.request(path, {"Range": f"bytes={first}-{last}"})
                assert p.status == 206 and p.body == whole.body[first:last + 1], f"{first}-{last}: {p}"
                assert p.etag == whole.etag
            p = c.request(path, {"Range": f"bytes=0-9,{n - 5}-{n - 1}"})
            assert p.status == 206 and p.get("Content-Type").startswith("multipart/byteranges")
        step = -(-n // 8)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            pieces = list(
                pool.map(
                    lambda k: srv.get(
                        path, {"Range": f"bytes={k * step}-{min(n, (k + 1) * step) - 1}", "If-Range": whole.etag}).body,
                    range(8)))
        assert b"".join(pieces) == whole.body
        h = srv.head(path)
        assert h.status == 200 and h.length == n and h.etag == whole.etag
        assert srv.get(path, {"If-None-Match": whole.etag}).status == 304


def test_the_description_says_where_every_byte_lies(srv, root):
    """Assemble the file by rank-{r}.json."""
    def run(e, data, tensors):
        if "zeros" in e:
            return bytes(e["zeros"])
        if "constant" in e:
            return np.array(e["constant"], "<f4").tobytes()
        if "repeat" in e:
            return b"".join(
                run({**x, "offset": x["offset"] +
                     k * x.get("step", 0)}, data, tensors) if "zeros" not in x else bytes(x["zeros"])
                for k in range(e["repeat"]) for x in e["extents"])
        source = data(e["file"]) if "file" in e else tensors(e["tensor"])
        return b"".join(source[at:at + e["length"]] for j in range(e.get("count2", 1)) for i in range(e.get("count", 1))
                        for at in [e["offset"] + j * e.get("stride2", 0) + i * e.get("stride", 0)])

    for model, engine, tp, r in (("one", "vllm@0.33", 2, 1), ("sharded", "vllm@0.13", 8, 5),
                                 ("turned", "vllm@0.33", 2, 0), ("one32", "vllm@0.33", 4, 3),
                                 ("bin", "fsdp", 3, 2), ("one", "none", 1, 0)):
        path = f"/models/{model}/shards/{engine}/tp{tp}/rank-{r}"
        about = srv.json(path + ".json")
        whole = srv.get(path + ".safetensors")
        assert (about["model"], about["engine"], about["tp_size"], about["tp_rank"]) == (model, engine, tp, r)
        assert about["nbytes"] == len(whole.body) and '"' + about["etag"] + '"' == whole.etag
        data = lambda f: (root / model / f).read_bytes()
        tensors = lambda n: srv.get(f"/models/{model}/tensors/{n}").body
        at = about["header_bytes"]
        assert at == 8 + int.from_bytes(whole.body[:8], "little")
        for t in about["tensors"]:
            got = b"".join(run(e, data, tensors) for e in t["extents"])
            assert got == whole.body[at:at + t["nbytes"]], f"{model} {engine} {t['name']}"
            assert len(t["extents"]) <= 4, "extents are not spelled out one by one"
            at += t["nbytes"]
        assert at == len(whole.body)


def test_validators_last(root, srv):
    """Validators survive a restart; another rank, engine, size or model has another validator."""
    paths = [
        f"/models/{m}/shards/{e}/tp{tp}/rank-{r}.safetensors" for m in ("one", "bin") for e in ("vllm", "fsdp", "none")
        for tp in (1, 2) for r in range(tp)
    ]
    srv.wait_hashed()
    first = {p: srv.head(p).etag for p in paths}
    assert len(set(first.values())) == len(paths)
    with Server(root) as other:
        other.wait_hashed()
        assert {p: other.head(p).etag for p in paths} == first


def test_the_names_that_vllm_and_sglang_ask_for(srv):
    a = srv.get("/models/one/shards/vllm/tp2/model-rank-1-part-0.safetensors")
    assert a.status == 200 and a.body == rank(srv, "one", "vllm", 2, 1).body


def test_what_is_not_there(srv):
    get = lambda rest: srv.get("/models/one/" + rest)
    names = engine_names()
    e = check_error(get("shards/tgi/tp2/rank-0.safetensors"), 404, "tgi", f"the engines are {', '.join(names)}")
    assert e["details"]["known"] == names
    for path in ("shards/vllm/tp2", "shards/vllm/tp2/"):
        check_error(get(path), 404, "a rank's file is missing", "rank-{r}.safetensors")
    for path in ("shards/vllm", "shards/vllm/"):
        check_error(get(path), 400, "the number of ranks is missing", "shards/vllm/tp2/rank-0.safetensors")
    check_error(get("shards/vllm/tp5000/rank-0.safetensors"), 400, "tp5000", "is not a valid number of ranks", "tp4096")
    check_error(get("shards/vllm/tp2/rank-2.safetensors"), 404, "rank 2 does not exist: with 2 ranks, use 0 to 1")
    for size in ("tp0", "tp", "tpx", "2", "tp-1", "tp01", "tp99999999999", "tp4097"):
        check_error(get(f"shards/vllm/{size}/rank-0.safetensors"), 400, "tp1")
    for file in ("rank-0", "rank-0.bin", "rank-x.safetensors", "rank--1.safetensors", "rank-01.safetensors",
                 "model-rank-0-part-1.safetensors", ""):
        check_error(get(f"shards/vllm/tp2/{file}"), 404)
    check_error(get("shards/vllm/tp3/rank-0.safetensors"), 422, "_proj.weight", "3 ranks")
    check_error(get("shards/nano-vllm/tp4/rank-0.safetensors"), 422)
    check_error(get("shards/vllm/tp2/rank-0.safetensors?x=1"), 400, "x")
    check_error(srv.post("/models/one/shards/vllm/tp2/rank-0.safetensors", b"{}"), 405)


# ------------------------------------------------------------------------------------------ registered plans

EXPLICIT = {
    "ranks": [{
        "tensors": [{"name": "model.embed_tokens.weight", "slice": "0:100,:", "as": "emb"},
                    {"name": "model.norm.weight"}]
    }, {
        "tensors": [{"name": "model.layers.0.mlp.down_proj.weight", "slice": ":,16:48"},
                    {"name": "model.layers.1.self_attn.q_proj.weight", "slice": "...,5"}]
    }]
}
RULES = {
    "tp_size":
    2, "rules": [{"match": "model.layers.*.mlp.down_proj.weight", "dim": 1}, {"match": "**_proj.weight", "dim": 0},
                 {"match": "**", "whole": True}]
}


def test_explicit_plans(srv):
    w = weights()
    r = srv.post("/models/one/plans", EXPLICIT)
    assert r.status == 201, r
    plan = r.json()
    assert r.get("Location") == f"plans/{plan['id']}"
    assert [x["rank"] for x in plan["ranks"]] == [0, 1]
    assert [o["name"] for o in plan["outputs"]] == ["emb", "model.norm.weight"]
    want = [{"emb": w["model.embed_tokens.weight"][:100], "model.norm.weight": w["model.norm.weight"]},
            {"model.layers.0.mlp.down_proj.weight": w["model.layers.0.mlp.down_proj.weight"][:, 16:48],
             "model.layers.1.self_attn.q_proj.weight": w["model.layers.1.self_attn.q_proj.weight"][..., 5]}]
    for x, y in zip(plan["ranks"], want):
        got = srv.get(x["href"])
        assert got.status == 200 and len(got.body) == x["nbytes"] and got.etag == '"' + x["etag"] + '"'
        same(load_safetensors(got.body), y)
        names = list(json.loads(got.body[8:8 + int.from_bytes(got.body[:8], "little")]))
        assert names[1:] == list(y), "in the order of the plan"
    spaced = json.dumps(EXPLICIT, indent=3).encode()
    again = srv.post("/models/one/plans", spaced)
    assert again.status == 200 and again.json()["id"] == plan["id"]
    assert srv.json(f"/models/one/plans/{plan['id']}") == plan
    assert srv.json(f"/models/one/plans/{plan['id']}/rank-1.json")["engine"] == "plan"


def test_plans_by_rules(srv):
    w = weights()
    plan = srv.post("/models/sharded/plans", RULES).json()
    for r, x in enumerate(plan["ranks"]):
        want = {}
        for n, t in w.items():
            d = 1 if "mlp.down_proj" in n else 0 if n.endswith("_proj.weight") else None
            want[n] = t if d is None else t.chunk(2, d)[r]
        same(load_safetensors(srv.get(x["href"]).body), want)


def test_rules_that_match_nothing_are_told(srv):
    plan = {
        "tp_size": 2, "rules": [{"match": "model.embed_token.weight"}, *RULES["rules"], {"match": "lm_head.weight"}]
    }
    r = srv.post("/models/one/plans", plan).json()
    assert r["unused_rules"] == [0, 4]  # mistyped; behind a rule that takes everything
    assert srv.get(f"/models/one/plans/{r['id']}").json()["unused_rules"] == [0, 4]
    assert srv.post("/models/one/plans", RULES).json()["unused_rules"] == []
    assert srv.post("/models/one/plans", {"engine": "vllm", "tp_size": 2}).json()["unused_rules"] == []
    assert srv.post("/models/one/plans", EXPLICIT).json()["unused_rules"] == []


def test_a_plan_that_is_too_much(tmp_path):
    """The limit is 4,000,000 tensors times ranks: 1,000 tensors for 4,000 ranks."""
    (tmp_path / "m").mkdir()
    save_file({f"t{i}": torch.zeros(1, dtype=torch.uint8) for i in range(1001)}, tmp_path / "m" / "model.safetensors")
    age(tmp_path)
    with Server(tmp_path) as s:
        check_error(s.post("/models/m/plans", {"engine": "none", "tp_size": 4000}), 422, "too much at once", "1001",
                    "4000000")


def test_no_plan_is_made_while_draining(root):
    """The error is that of the drain, not that planning takes too long."""
    with Server(root, "--drain-delay", "3") as s:
        os.kill(s.pid, signal.SIGTERM)
        s.wait_for(lambda: s.get("/readyz").json()["state"] == "draining", "it drains")
        check_error(s.post("/models/one/plans", {"engine": "none", "tp_size": 2}), 503, "the server is shutting down")


def test_an_engines_plan_is_the_engines_files(srv):
    plan = srv.post("/models/one/plans", {"engine": "vllm", "tp_size": 2}).json()
    for r, x in enumerate(plan["ranks"]):
        same(load_safetensors(srv.get(x["href"]).body), load_safetensors(rank(srv, "one", "vllm", 2, r).body))


# shows: security.md client-plans
def test_bad_plans(srv):
    post = lambda body: srv.post("/models/one/plans", body)
    for body in (b"", b"{", b"[]", b"{}", b'{"engine":"vllm"}', b'{"tp_size":2}', b'{"engine":"vllm","tp_size":0}',
                 b'{"engine":"vllm","tp_size":"2"}', b'{"engine":"vllm","tp_size":4097}', b'{"ranks":[]}',
                 b'{"ranks":[{}]}', b'{"ranks":[{"tensors":[{}]}]}', b'{"engine":"vllm","tp_size":2,"rules":[]}',
                 b'{"tp_size":2,"rules":[{"match":"a","nonsense":1}]}', b'{"tp_size":2,"rules":{}}',
                 b'{"engine":"vllm","engine":"vllm","tp_size":2}', b"{}{}", b'{"ranks":[{"tensors":[]}],"tp_size":2}'):
        check_error(post(body), 400)
    e = check_error(post({"engine": "tgi", "tp_size": 2}), 404, "tgi")
    assert e["details"]["known"] == engine_names()
    norm = {"name": "model.norm.weight"}
    for tensors, status, says in (([{"name": "nope"}], 404, r'tensor \"nope\"'), ([{**norm, "slice": "0:1,0:1"}], 400,
                                                                                  r'tensor \"model.norm.weight\": '),
                                  ([norm, norm], 400, "model.norm.weight")):
        check_error(post({"ranks": [{"tensors": [norm]}, {"tensors": tensors}]}), status, says, "rank 1: ")
    check_error(post({"tp": 2}), 400, r'unknown key \"tp\"', "tp_size")
    check_error(post({"tp_size": 2, "rules": [{"match": "nothing", "dim": 0}]}), 422)
    check_error(post({"tp_size": 7, "rules": [{"match": "**", "dim": 0}]}), 422)
    check_error(srv.get("/models/one/plans/0123456789abcdef0123456789abcdef"), 404, "register")
    check_error(srv.get("/models/one/plans/x/rank-0.safetensors"), 404, "register")
    check_error(srv.get("/models/one/plans"), 405, allow=("POST",))


def test_a_model_that_no_engine_knows(tmp_path):
    d = tmp_path / "m"
    d.mkdir()
    save_file(weights(), d / "model.safetensors")
    (tmp_path / "n").mkdir()
    save_file(weights(), tmp_path / "n" / "model.safetensors")
    (d / "config.json").write_text(json.dumps({**CONFIG, "architectures": ["Qwen9ForCausalLM"], "model_type": "qwen9"}))
    age(tmp_path)
    with Server(tmp_path) as s:
        check_error(s.get("/models/m/shards/vllm/tp2/rank-0.safetensors"), 422, "Qwen9ForCausalLM", "Qwen3ForCausalLM",
                    "use rules")
        check_error(s.get("/models/n/shards/vllm/tp2/rank-0.safetensors"), 422, "config.json")
        assert s.get("/models/m/shards/fsdp/tp2/rank-0.safetensors").status == 200


def test_a_changed_file_is_another_file(tmp_path):
    d = tmp_path / "m"
    d.mkdir()
    w = weights()
    save_file(w, d / "model.safetensors")
    (d / "config.json").write_text(json.dumps(CONFIG))
    age(tmp_path)
    path = "/models/m/shards/vllm/tp2/rank-0.safetensors"
    with Server(tmp_path) as s:
        s.wait_hashed()                                 # so that the validator changes with the content alone
        old = s.get(path)
        w["model.norm.weight"] = w["model.norm.weight"] + 1
        save_file(w, tmp_path / "new.safetensors")
        shutil.move(tmp_path / "new.safetensors", d / "model.safetensors")
        new = s.wait_for(lambda: (lambda r: r
                                  if r.status == 200 and r.etag != old.etag else None)(s.get(path)), "the new file")
        same(load_safetensors(new.body), expected_vllm(w, 2, 0))
        assert s.get(path, {"Range": "bytes=0-9", "If-Range": old.etag}).status == 200


def test_a_changed_config_is_another_file(tmp_path):
    """For engines that read heads from config.json; the files of other engines do not change."""
    d = tmp_path / "m"
    d.mkdir()
    save_file(weights(), d / "model.safetensors")
    (d / "config.json").write_text(json.dumps(CONFIG))
    age(tmp_path)
    paths = {e: f"/models/m/shards/{e}/tp2/rank-0.safetensors" for e in ("vllm", "fsdp", "none")}
    with Server(tmp_path) as s:
        s.wait_hashed()
        old = {e: s.get(p) for e, p in paths.items()}
        (d / "config.json").write_text(
            json.dumps({**CONFIG, "num_attention_heads": H // 2, "num_key_value_heads": KV // 2, "head_dim": 2 * D}))
        age(d / "config.json", 1800)
        s.wait_for(lambda: s.head(paths["vllm"]).etag != old["vllm"].etag, "another validator")
        s.wait_hashed()
        new = {e: s.get(p) for e, p in paths.items()}
        assert s.get(paths["vllm"], {"If-None-Match": old["vllm"].etag}).status != 304
        assert new["fsdp"].etag == old["fsdp"].etag and new["none"].body == old["none"].body
    with Server(tmp_path) as s:
        s.wait_hashed()
        assert {e: s.head(p).etag for e, p in paths.items()} == {e: r.etag for e, r in new.items()}


def test_what_would_lie_in_too_many_places_is_refused(tmp_path):
    (tmp_path / "m").mkdir()
    save_file({"t": torch.arange(4096 * 81 * 2, dtype=torch.int32).to(torch.uint8).reshape(8192, 3, 3, 3, 3)},
              tmp_path / "m" / "model.safetensors")
    age(tmp_path)
    with Server(tmp_path) as s:
        assert s.get("/models/m/tensors/t?slice=:2000,:2,:2,:2").status == 200
        check_error(s.get("/models/m/tensors/t?slice=:,:2,:2,:2"), 422, "too many places")
        item = {"name": "t", "slice": ":2000,:2,:2,:2"}
        check_error(s.post("/models/m/tensors:read", {"tensors": [item] * 1000}), 422, "too many pieces")
        assert s.post("/models/m/tensors:read", {"tensors": [item] * 3}).status == 200
