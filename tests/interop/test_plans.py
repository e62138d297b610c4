"""Compares plans of slicing/ with layouts that are made with torch alone: the same names, types, shapes and bytes on
every rank.

tests/kit/plan_dump prints the plans; the bytes are assembled here from the pieces. The oracles are written from what
the engines do (narrow, chunk, cat, pad, stack, view and transpose over whole tensors), not from the rules. Every
element of a model is another number, so that a misplaced one shows.
"""
import json
import math
import random
import re
import subprocess

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F

from harness import REPO, SANITIZER_MARKS, tensord_binary

FAILED_PRECONDITION = 4  # enum td_code
INVALID_ARGUMENT = 1
NOT_FOUND = 2
RANKS = [1, 2, 3, 4, 8, 16]
DTYPES = {
    torch.float32: ("F32", torch.int32), torch.bfloat16: ("BF16", torch.int16), torch.float16: ("F16", torch.int16),
    torch.int32: ("I32", torch.int32), torch.float64: ("F64", torch.int64), torch.uint8: ("U8", torch.uint8)
}


def in_the_order_of_safetensors(results):
    """Return the names as the package orders tensors of these types."""
    types = {name: dtype for dtype, (name, _) in DTYPES.items()} | {"I64": torch.int64, "F8_E4M3": torch.float8_e4m3fn}
    file = safetensors.torch.save({name: torch.zeros(1, dtype=types[dtype]) for name, (dtype, *_) in results.items()})
    header = json.loads(file[8:8 + int.from_bytes(file[:8], "little")])
    return sorted(header, key=lambda name: header[name]["data_offsets"])


# ---- models ----

class Model:
    """Tensors by name, elements numbered from 1 through all of them, and a config.json."""

    def __init__(self, config=None, dtype=torch.float32):
        self.config, self.dtype, self.tensors, self.next = config, dtype, {}, 1

    def add(self, name, *shape, dtype=None):
        dtype = dtype or self.dtype
        bits = DTYPES[dtype][1]
        n = math.prod(shape)
        numbers = torch.arange(self.next, self.next + n, dtype=torch.int64)
        self.next += n
        self.tensors[name] = numbers.to(bits).view(dtype).reshape(shape)
        return self.tensors[name]

    def write(self, path):
        path.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file(self.tensors, path / "model.safetensors")
        if self.config is not None:
            (path / "config.json").write_text(self.config if isinstance(self.config, str) else json.dumps(self.config))
        return path


class Refused(Exception):
    def __init__(self, error):
        super().__init__(error["message"])
        self.code, self.message = error["code"], error["message"]


def run_dump(path, tp, engine):
    tool = tensord_binary().parent / "tests/kit/plan_dump"
    done = subprocess.run([str(tool), str(path), str(tp), engine], capture_output=True, timeout=120)
    err = done.stderr.decode("utf-8", "replace")
    for mark in SANITIZER_MARKS:
        assert mark not in err, err[:4000]
    assert done.returncode == 0 and err == "", f"exit code {done.returncode}: {err[-3000:]}"
    return json.loads(done.stdout)


def assemble(output, sources):
    """Return a result's bytes, assembled from its pieces; sources are arrays of the elements' bytes as numbers."""
    if "constant" in output:
        assert not output["pieces"] and output["dtype"] == "F32"
        return np.array(output["constant"], "<f4").view("<u4")
    cells, pieces = output["cells"], output["pieces"]
    per = len(pieces) // cells
    assert per * cells == len(pieces)
    stacked = any("tensor" in p and sources[p["tensor"]].ndim < len(output["shape"]) for p in pieces)
    cell_shape = output["shape"][1:] if stacked else output["shape"]
    made = []
    for cell in range(cells):
        parts = []
        for piece in pieces[cell * per:(cell + 1) * per]:
            assert piece["size"] > 0 and piece["count"] >= 1 and (piece["count"] > 1) == (piece["stride"] > 0)
            if "tensor" not in piece:
                shape = list(cell_shape)
                shape[output["axis"]] = piece["size"]
                parts.append(np.zeros(shape, sources[0].dtype if not parts else parts[0].dtype))
                continue
            source = sources[piece["tensor"]]
            if source.ndim == 0:
                assert (piece["start"], piece["size"], piece["count"]) == (0, 1, 1)
                parts.append(source)
                continue
            for i in range(piece["count"]):
                start = piece["start"] + i * piece["stride"]
                assert start + piece["size"] <= source.shape[output["axis"]]
                parts.append(np.take(source, range(start, start + piece["size"]), axis=output["axis"]))
        if parts and parts[0].ndim == 0:
            made.append(parts[0])
        else:
            made.append(np.concatenate(parts, axis=output["axis"]) if parts else np.zeros(cell_shape, np.uint8))
    return np.stack(made) if stacked else made[0]


def plan(path, tp, engine):
    """Return every rank's results: {name: (dtype, shape, bytes)} with the dropped names; or raise Refused for all
    ranks."""
    dump = run_dump(path, tp, engine)
    with open(path / "model.safetensors", "rb") as f:
        raw = f.read()
    sources = []
    for t in dump["tensors"]:
        kind = {
            "F32": "<u4", "I32": "<u4", "BF16": "<u2", "F16": "<u2", "F64": "<u8", "U8": "u1", "I64": "<u8", "F8_E4M3":
            "u1"
        }[t["dtype"]]
        n = math.prod(t["shape"])
        sources.append(np.frombuffer(raw, kind, n, t["offset"]).reshape(t["shape"]))
    assert len(dump["ranks"]) == max(tp, 1)
    if "error" in dump["ranks"][0]:
        assert all("error" in rank for rank in dump["ranks"]), "some ranks are refused, others are not"
        raise Refused(dump["ranks"][0]["error"])
    ranks = []
    for rank in dump["ranks"]:
        assert "error" not in rank, rank
        results = {}
        for output in rank["outputs"]:
            made = assemble(output, sources)
            assert list(made.shape) == output["shape"], output["name"]
            data = made.tobytes()
            assert output["name"] not in results
            there = bool(output["pieces"]) or "constant" in output
            assert len(data) == output["nbytes"] or not there, output["name"]
            results[output["name"]] = (output["dtype"], output["shape"], data if there else b"")
        assert list(results) == in_the_order_of_safetensors(results), "results come in the order of safetensors"
        assert rank["total_bytes"] == sum(len(r[2]) for r in results.values())
        ranks.append((results, rank["dropped"]))
    return ranks


def raw(tensor):
    dtype, bits = DTYPES[tensor.dtype]
    return dtype, list(tensor.shape), tensor.contiguous().view(bits).numpy().tobytes() if tensor.numel() else b""


NEWER_NAMES = [
    (r"\.experts\.(w13|w2)_weight$", r".experts.routed_experts.\1_weight"),
    (r"\.mlp\.shared_experts?\.", ".mlp.experts._shared_experts._layer."),
    (r"\.mlp\.shared_expert_gate\.", ".mlp.experts._shared_experts._layer.expert_gate."),
]
ROUTERS_IN_EXPERTS = (r"\.mlp\.gate\.", ".mlp.experts.gate.")
LATENT_NAMES = (r"\.self_attn\.(q_proj|q_a_layernorm|q_b_proj|o_proj)\.", r".self_attn.mla_attn.\1.")
ATTENTION_MODULES = [(r"(.*\.mla_attn)\.o_proj\.weight", r"\1.mla_attn."),
                     (r"(.*\.self_attn)\.o_proj\.weight", r"\1.attn."),
                     (r"(.*\.self_attention)\.dense\.weight", r"\1.attn.")]
ONE = 0x3F800000  # the bits of 1.0, which no element of a model here has


def is_tied(config):
    """Return whether a model's head is its embeddings under the head's name. DeepSeek has none, Gemma 2 no head."""
    kind = config.get("model_type")
    if kind in ("gemma2", "deepseek_v2", "deepseek_v3"):
        return False
    return config.get("tie_word_embeddings", kind in ("gemma3_text", "bloom", "falcon"))


def newer(model, results):
    """Return vLLM 0.33's state of the results of 0.13. tests/python/test_vllm_sharded.py tries its own loader."""
    kind = model.config.get("model_type")
    names = list(NEWER_NAMES)
    names += [ROUTERS_IN_EXPERTS] if kind in ("qwen3_moe", "deepseek_v2", "deepseek_v3") else []
    names += [LATENT_NAMES] if kind in ("deepseek_v2", "deepseek_v3") else []
    if is_tied(model.config):
        names += [(r"^model\.embed_tokens\.weight$|^transformer\.word_embeddings\.weight$", "lm_head.weight")]
        results = {name: tensor for name, tensor in results.items() if name != "lm_head.weight"}
    out = {}
    for name, tensor in results.items():
        for old, new in names:
            name = re.sub(old, new, name)
        out[name] = tensor
        for old, new in ATTENTION_MODULES:
            if re.fullmatch(old, name):
                out |= {f"{re.sub(old, new, name)}_{scale}_scale": torch.ones(()) for scale in ("k", "prob", "q", "v")}
                break
    return out


def check(model, path, tp, engine, oracle, dropped=(), complete=True):
    """Compare all ranks with the oracle, and check that together they have every element of the model. The oracles of
    vLLM are those of its layout up to 0.13; the newer one is the same under other names."""
    if engine == "vllm":
        check(model, path, tp, "vllm@0.13", oracle, dropped, complete)
        head = ["lm_head.weight"] if is_tied(model.config) and "lm_head.weight" in model.tensors else []
        check(model, path, tp, "vllm@0.33", lambda m, t, r: newer(m, oracle(m, t, r)), [*dropped, *head], complete)
        assert plan(path, tp, "vllm") == plan(path, tp, "vllm@0.33")
        return
    ranks = plan(model.write(path), tp, engine)
    for r, (results, gone) in enumerate(ranks):
        wanted = {name: raw(t) for name, t in oracle(model, tp, r).items()}
        assert list(results) == in_the_order_of_safetensors(wanted), f"rank {r} of {tp}"
        for name in wanted:
            assert results[name][:2] == wanted[name][:2], f"{name}, rank {r} of {tp}"
            assert results[name][2] == wanted[name][2], f"{name}, rank {r} of {tp}"
        assert gone == sorted(dropped)
    if complete and model.dtype == torch.float32:
        have = np.unique(
            np.concatenate([np.frombuffer(d, "<u4") for results, _ in ranks for _, _, d in results.values()]))
        want = np.unique(
            np.concatenate([t.view(torch.int32).numpy().ravel() for n, t in model.tensors.items() if n not in dropped]))
        assert np.array_equal(have[(have != 0) & (have != ONE)], want), "all ranks together are the model"


def refused(model, path, tp, engine, *words):
    """Check that the engine refuses the model; of vLLM both do."""
    if engine == "vllm":
        refused(model, path, tp, "vllm@0.13", *words)
    with pytest.raises(Refused) as e:
        plan(model.write(path), tp, engine)
    assert e.value.code == FAILED_PRECONDITION, e.value.message
    for word in words:
        assert e.value.message.endswith(word) if word == WAY_ON else word in e.value.message, e.value.message


# ---- oracles: the layers of tensor-parallel engines ----

def column(w, t, r):
    n = w.shape[0] // t
    assert n * t == w.shape[0]
    return w.narrow(0, r * n, n)


def row(w, t, r):
    n = w.shape[1] // t
    assert n * t == w.shape[1]
    return w.narrow(1, r * n, n)


def vocabulary(w, t, r, pad=64):
    more = -w.shape[0] % pad
    return column(F.pad(w, (0, 0, 0, more)), t, r)


def qkv(q, k, v, heads, kv_heads, t, r):
    """Queries by head; keys and values by head, or one head shared by several ranks."""
    hd = q.shape[0] // heads
    assert heads % t == 0
    if kv_heads >= t:
        assert kv_heads % t == 0
        n, at = kv_heads // t, r * (kv_heads // t)
    else:
        assert t % kv_heads == 0
        n, at = 1, r // (t // kv_heads)
    return torch.cat(
        [q.narrow(0, r * heads // t * hd, heads // t * hd),
         k.narrow(0, at * hd, n * hd),
         v.narrow(0, at * hd, n * hd)])


def is_norm(name):
    return "norm" in name or "ln_" in name


def dense_layer(w, out, p, c, t, r):
    """Attention and MLP of a layer with Llama's names, p its prefix."""
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    for kind in ("weight", "bias"):
        if f"{p}self_attn.q_proj.{kind}" in w:
            out[f"{p}self_attn.qkv_proj.{kind}"] = qkv(*(w[f"{p}self_attn.{x}_proj.{kind}"] for x in "qkv"), heads, kv,
                                                       t, r)
        for where in ("mlp", "mlp.shared_expert", "mlp.shared_experts"):
            if f"{p}{where}.gate_proj.{kind}" in w:
                out[f"{p}{where}.gate_up_proj.{kind}"] = torch.cat(
                    [column(w[f"{p}{where}.{x}_proj.{kind}"], t, r) for x in ("gate", "up")])
    for name in ("self_attn.o_proj", "mlp.down_proj", "mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj"):
        if f"{p}{name}.weight" in w:
            out[f"{p}{name}.weight"] = row(w[f"{p}{name}.weight"], t, r)
        if f"{p}{name}.bias" in w:
            out[f"{p}{name}.bias"] = w[f"{p}{name}.bias"]


def expert_layer(w, out, p, names, experts, t, r):
    gate, up, down = names
    if f"{p}.0.{gate}.weight" not in w:
        return
    out[f"{p}.w13_weight"] = torch.stack(
        [torch.cat([column(w[f"{p}.{e}.{x}.weight"], t, r) for x in (gate, up)]) for e in range(experts)])
    out[f"{p}.w2_weight"] = torch.stack([row(w[f"{p}.{e}.{down}.weight"], t, r) for e in range(experts)])


def vllm_llama(model, t, r):
    w, c, out = model.tensors, model.config, {}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        if name in w:
            out[name] = vocabulary(w[name], t, r)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        dense_layer(w, out, p, c, t, r)
        expert_layer(w, out, f"{p}mlp.experts", ("gate_proj", "up_proj", "down_proj"), c.get("num_experts"), t, r)
        expert_layer(w, out, f"{p}block_sparse_moe.experts", ("w1", "w3", "w2"), c.get("num_local_experts"), t, r)
    return out | {
        n: x for n, x in w.items() if is_norm(n) or n.endswith(("gate.weight", "gate.e_score_correction_bias"))
    }


# ---- models with Llama's names ----

ARCHITECTURES = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3":
    "Qwen3ForCausalLM", "gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM", "phi3": "Phi3ForCausalLM",
    "mixtral": "MixtralForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM", "gpt_neox": "GPTNeoXForCausalLM",
    "bloom": "BloomForCausalLM", "falcon": "FalconForCausalLM"
}


def base(kind, **more):
    return {"architectures": [ARCHITECTURES[kind]], "model_type": kind, "num_hidden_layers": 2, **more}


def add_attention(m, p, heads, kv, hd, hidden, bias=False, o_bias=False):
    for x, n in (("q", heads), ("k", kv), ("v", kv)):
        m.add(f"{p}self_attn.{x}_proj.weight", n * hd, hidden)
        if bias:
            m.add(f"{p}self_attn.{x}_proj.bias", n * hd)
    m.add(f"{p}self_attn.o_proj.weight", hidden, heads * hd)
    if o_bias:
        m.add(f"{p}self_attn.o_proj.bias", hidden)


def add_mlp(m, p, hidden, inner, bias=False):
    for x in ("gate", "up"):
        m.add(f"{p}.{x}_proj.weight", inner, hidden)
        if bias:
            m.add(f"{p}.{x}_proj.bias", inner)
    m.add(f"{p}.down_proj.weight", hidden, inner)
    if bias:
        m.add(f"{p}.down_proj.bias", hidden)


def llama(kind="llama", heads=16, kv=8, hd=8, hidden=48, inner=96, vocab=130, head=True, bias=False, o_bias=False,
          mlp_bias=False, norms=("input_layernorm", "post_attention_layernorm"), dtype=torch.float32, mlp=add_mlp,
          **more):
    m = Model(
        base(kind, hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv, head_dim=hd, vocab_size=vocab,
             intermediate_size=inner, **more), dtype)
    m.add("model.embed_tokens.weight", vocab, hidden)
    for i in range(2):
        p = f"model.layers.{i}."
        add_attention(m, p, heads, kv, hd, hidden, bias, o_bias)
        if mlp is add_mlp:
            add_mlp(m, f"{p}mlp", hidden, inner, mlp_bias)
        else:
            mlp(m, p, i, hidden, inner)
        for norm in norms:
            m.add(f"{p}{norm}.weight", hd if norm.endswith(("q_norm", "k_norm")) else hidden)
    m.add("model.norm.weight", hidden)
    if head:
        m.add("lm_head.weight", vocab, hidden)
    return m


QK_NORMS = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")
GEMMA_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


@pytest.mark.parametrize("kv", [1, 2, 8])
@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_vllm_attention_heads(tmp_path, tp, kv):
    """head_dim is not hidden / heads; ranks share key-value heads when there are too few."""
    check(llama(kv=kv), tmp_path, tp, "vllm", vllm_llama)


@pytest.mark.parametrize("heads,kv", [(12, 3), (12, 1), (6, 6)])
def test_vllm_three_ranks(tmp_path, heads, kv):
    check(llama(heads=heads, kv=kv), tmp_path, 3, "vllm", vllm_llama)


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("model", [
    lambda: llama("qwen2", bias=True, head=False, tie_word_embeddings=True),
    lambda: llama("qwen2", bias=True, tie_word_embeddings=True),
    lambda: llama("qwen2", bias=True, dtype=torch.bfloat16),
    lambda: llama("qwen3", norms=QK_NORMS, dtype=torch.bfloat16, hd=24),
    lambda: llama("mistral", vocab=128, dtype=torch.float16),
    lambda: llama("llama", vocab=64 * 8, bias=True, o_bias=True, mlp_bias=True),
    lambda: llama("gemma2", norms=GEMMA_NORMS, head=False, hd=32, vocab=256),
    lambda: llama("gemma3_text", norms=GEMMA_NORMS + QK_NORMS[2:], head=False, kv=1, vocab=100),
], ids=["qwen2-tied", "qwen2-tied-but-there", "qwen2", "qwen3", "mistral", "llama-biases", "gemma2", "gemma3"])
def test_vllm_dense(tmp_path, model, tp):
    check(model(), tmp_path, tp, "vllm", vllm_llama)


def test_vllm_drops_what_its_loader_passes_over(tmp_path):
    m = llama()
    drop = []
    for i in range(2):
        for name in ("inv_freq", "cos_cached", "sin_cached"):
            drop.append(f"model.layers.{i}.self_attn.rotary_emb.{name}")
            m.add(drop[-1], 4, 2)
    check(m, tmp_path, 2, "vllm", vllm_llama, dropped=drop)


def test_model_type_and_text_config_stand_in(tmp_path):
    """Without architectures the model type decides; numbers may be in text_config; null counts as missing."""
    m = llama(heads=8, kv=8, hd=6)
    c = m.config
    del c["architectures"]
    c["num_key_value_heads"] = c["head_dim"] = None
    oracle_config = dict(c, num_key_value_heads=8)

    def oracle(model, t, r):
        model.config = oracle_config
        return vllm_llama(model, t, r)

    check(m, tmp_path / "a", 2, "vllm", oracle)
    m.config = {
        "architectures": None, "model_type": "outer", "text_config": {**c, "architectures": ["LlamaForCausalLM"]},
        "vision_config": {"num_attention_heads": 3}
    }
    oracle_config["num_hidden_layers"] = 2
    check(m, tmp_path / "b", 2, "vllm", oracle)


# ---- Phi-3: fused on disk ----

@pytest.mark.parametrize("kv", [2, 8, 16])
@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_vllm_phi3(tmp_path, tp, kv):
    """query, key and value are one tensor, gate and up another: every part is split."""
    heads, hd, hidden, inner = 16, 6, 96, 64
    split = llama("phi3", heads=heads, kv=kv, hd=hd, hidden=hidden, inner=inner)
    fused = Model(split.config)
    for name, tensor in split.tensors.items():
        if name.endswith(("k_proj.weight", "v_proj.weight", "up_proj.weight")):
            continue
        if name.endswith("q_proj.weight"):
            p = name.removesuffix("q_proj.weight")
            fused.tensors[p + "qkv_proj.weight"] = torch.cat([split.tensors[f"{p}{x}_proj.weight"] for x in "qkv"])
        elif name.endswith("gate_proj.weight"):
            p = name.removesuffix("gate_proj.weight")
            fused.tensors[p + "gate_up_proj.weight"] = torch.cat(
                [split.tensors[f"{p}{x}_proj.weight"] for x in ("gate", "up")])
        else:
            fused.tensors[name] = tensor
    check(fused, tmp_path, tp, "vllm", lambda m, t, r: vllm_llama(split, t, r))


# ---- experts ----

def mixtral_mlp(experts):
    def add(m, p, i, hidden, inner):
        m.add(f"{p}block_sparse_moe.gate.weight", experts, hidden)
        for e in range(experts):
            m.add(f"{p}block_sparse_moe.experts.{e}.w1.weight", inner, hidden)
            m.add(f"{p}block_sparse_moe.experts.{e}.w2.weight", hidden, inner)
            m.add(f"{p}block_sparse_moe.experts.{e}.w3.weight", inner, hidden)
    return add


def qwen_mlp(experts, shared, dense_layer_0=False):
    def add(m, p, i, hidden, inner):
        if dense_layer_0 and i == 0:
            return add_mlp(m, f"{p}mlp", hidden, 4 * inner)
        m.add(f"{p}mlp.gate.weight", experts, hidden)
        for e in range(experts):
            add_mlp(m, f"{p}mlp.experts.{e}", hidden, inner)
        if shared:
            add_mlp(m, f"{p}mlp.shared_expert", hidden, 2 * inner)
            m.add(f"{p}mlp.shared_expert_gate.weight", 1, hidden)
    return add


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("model", [
    lambda: llama("mixtral", inner=16, mlp=mixtral_mlp(11), num_local_experts=11),
    lambda: llama("mixtral", inner=16, mlp=mixtral_mlp(1), num_local_experts=1),
    lambda: llama("qwen2_moe", inner=16, bias=True, mlp=qwen_mlp(12, True), num_experts=12),
    lambda: llama("qwen3_moe", inner=16, norms=QK_NORMS, kv=1, mlp=qwen_mlp(10, False, True), num_experts=10),
], ids=["mixtral", "mixtral-1-expert", "qwen2-moe", "qwen3-moe"])
def test_vllm_experts(tmp_path, model, tp):
    """Experts are stacked by number, not by name: 10 comes after 9."""
    check(model(), tmp_path, tp, "vllm", vllm_llama)


def deepseek(kind, q_lora, heads=16, hidden=32, inner=16, nope=6, rope=2, v=5, kv_lora=12, experts=9, nextn=0):
    m = Model(
        base(kind, hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=heads, vocab_size=129,
             n_routed_experts=experts, q_lora_rank=q_lora, num_nextn_predict_layers=nextn))
    m.add("model.embed_tokens.weight", 129, hidden)
    for i in range(2 + nextn):
        p = f"model.layers.{i}."
        if q_lora:
            m.add(f"{p}self_attn.q_a_proj.weight", q_lora, hidden)
            m.add(f"{p}self_attn.q_a_layernorm.weight", q_lora)
            m.add(f"{p}self_attn.q_b_proj.weight", heads * (nope + rope), q_lora)
        else:
            m.add(f"{p}self_attn.q_proj.weight", heads * (nope + rope), hidden)
        m.add(f"{p}self_attn.kv_a_proj_with_mqa.weight", kv_lora + rope, hidden)
        m.add(f"{p}self_attn.kv_a_layernorm.weight", kv_lora)
        m.add(f"{p}self_attn.kv_b_proj.weight", heads * (nope + v), kv_lora)
        m.add(f"{p}self_attn.o_proj.weight", hidden, heads * v)
        m.add(f"{p}input_layernorm.weight", hidden)
        if i == 0:
            add_mlp(m, f"{p}mlp", hidden, 4 * inner)
            continue
        m.add(f"{p}mlp.gate.weight", experts, hidden)
        m.add(f"{p}mlp.gate.e_score_correction_bias", experts)
        for e in range(experts):
            add_mlp(m, f"{p}mlp.experts.{e}", hidden, inner)
        add_mlp(m, f"{p}mlp.shared_experts", hidden, inner)
        if i >= 2:
            m.add(f"{p}eh_proj.weight", hidden, 2 * hidden)
    m.add("model.norm.weight", hidden)
    m.add("lm_head.weight", 129, hidden)
    return m


def vllm_deepseek(model, t, r):
    config = dict(model.config, num_experts=model.config["n_routed_experts"])
    w = {n: x for n, x in model.tensors.items() if not n.startswith("model.layers.2.")}
    copy = Model(config)
    copy.tensors = {n: x for n, x in w.items() if "self_attn.q_" not in n or is_norm(n)}
    out = vllm_llama(copy, t, r)
    for i in range(2):
        p = f"model.layers.{i}.self_attn."
        if p + "q_a_proj.weight" in w:
            out[p + "fused_qkv_a_proj.weight"] = torch.cat(
                [w[p + "q_a_proj.weight"], w[p + "kv_a_proj_with_mqa.weight"]])
            out[p + "q_b_proj.weight"] = column(w[p + "q_b_proj.weight"], t, r)
        else:
            out[p + "kv_a_proj_with_mqa.weight"] = w[p + "kv_a_proj_with_mqa.weight"]
            out[p + "q_proj.weight"] = column(w[p + "q_proj.weight"], t, r)
        out[p + "kv_b_proj.weight"] = column(w[p + "kv_b_proj.weight"], t, r)
    return out


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("kind,q_lora", [("deepseek_v2", 10), ("deepseek_v2", None), ("deepseek_v3", 10)])
def test_vllm_deepseek(tmp_path, kind, q_lora, tp):
    check(deepseek(kind, q_lora), tmp_path, tp, "vllm", vllm_deepseek)


def test_vllm_drops_layers_that_predict_further_tokens(tmp_path):
    m = deepseek("deepseek_v3", 10, nextn=1)
    check(m, tmp_path, 2, "vllm", vllm_deepseek, dropped=[n for n in m.tensors if n.startswith("model.layers.2.")])


def test_vllm_deepseek_deals_whole_heads(tmp_path):
    """6 heads of 8 rows are 48 rows. 4 ranks divide the rows, but not the heads."""
    refused(deepseek("deepseek_v3", 10, heads=6), tmp_path, 4, "vllm", "model.layers.0.self_attn.",
            "6 attention heads (num_attention_heads) of 11, ")


# ---- query_key_value: GPT-NeoX, BLOOM, Falcon ----

def interleaved(kind, prefix, heads, groups, per_group, hd, attention, bias, **more):
    hidden = heads * hd
    m = Model(base(kind, hidden_size=hidden, vocab_size=130, **more))
    for i in range(2):
        p = f"{prefix}{i}."
        shapes = {
            f"{attention}.query_key_value": (groups * per_group * hd, hidden), f"{attention}.dense": (hidden, hidden),
            "mlp.dense_h_to_4h": (4 * hidden, hidden), "mlp.dense_4h_to_h": (hidden, 4 * hidden)
        }
        for name, shape in shapes.items():
            m.add(f"{p}{name}.weight", *shape)
            if bias:
                m.add(f"{p}{name}.bias", shape[0])
        m.add(f"{p}input_layernorm.weight", hidden)
        m.add(f"{p}input_layernorm.bias", hidden)
    return m


def vllm_interleaved(prefix, heads, kv, embeddings, rename=lambda n: n):
    """For each key-value head its queries, its key and its value: first separated, then dealt as usual."""
    def apart(w):
        hd = w.shape[0] // (heads + 2 * kv)
        groups = w.view(kv, heads // kv + 2, hd, *w.shape[1:])
        q, k, v = groups[:, :heads // kv], groups[:, heads // kv:heads // kv + 1], groups[:, heads // kv + 1:]
        return (x.reshape(-1, *w.shape[1:]) for x in (q, k, v))

    def oracle(model, t, r):
        out = {}
        for name, w in model.tensors.items():
            if name in embeddings:
                w = vocabulary(w, t, r)
            elif "query_key_value" in name:
                w = qkv(*apart(w), heads, kv, t, r)
            elif "dense_h_to_4h" in name:
                w = column(w, t, r)
            elif name.endswith(("dense.weight", "dense_4h_to_h.weight")):
                w = row(w, t, r)
            out[rename(name)] = w
        return out
    return oracle


def test_the_view_of_neox_is_that_of_transformers():
    """vLLM's way to separate NeoX's parts, (heads, 3, hd) transposed to (3, heads, hd), equals the oracle's."""
    w = torch.arange(4 * 3 * 2 * 5).reshape(24, 5)
    theirs = w.view(4, 3, -1, 5).transpose(0, 1).reshape(24, 5)
    groups = w.view(4, 3, 2, 5)
    assert torch.equal(theirs, torch.cat([groups[:, i].reshape(-1, 5) for i in range(3)]))


@pytest.mark.parametrize("tp", RANKS)
def test_vllm_neox(tmp_path, tp):
    heads = 12 if tp == 3 else 16
    m = interleaved("gpt_neox", "gpt_neox.layers.", heads, heads, 3, 4, "attention", True, num_attention_heads=heads)
    drop = []
    for i in range(2):
        for name in ("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq"):
            drop.append(f"gpt_neox.layers.{i}.{name}")
    oracle = vllm_interleaved("gpt_neox.layers.", heads, heads, ("gpt_neox.embed_in.weight", "embed_out.weight"))
    m.add("gpt_neox.embed_in.weight", 130, heads * 4)
    m.add("embed_out.weight", 130, heads * 4)
    kept = dict(m.tensors)
    for name in drop:
        m.add(name, 1, 1, 3, 3, dtype=torch.uint8 if name.endswith("attention.bias") else None)
    shadow = Model(m.config)
    shadow.tensors = kept
    check(m, tmp_path, tp, "vllm@0.13", lambda _, t, r: oracle(shadow, t, r), dropped=drop)
    refused(m, tmp_path, tp, "vllm@0.33", "GPT-NeoX through Transformers", WAY_ON)


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("bare", [True, False])
def test_vllm_bloom(tmp_path, tp, bare):
    """vLLM's loader adds `transformer.` before the names of BLOOM's own checkpoints."""
    prefix = "" if bare else "transformer."
    m = interleaved("bloom", prefix + "h.", 8, 8, 3, 4, "self_attention", True, n_head=8)
    for name in ("word_embeddings_layernorm", "ln_f"):
        m.add(f"{prefix}{name}.weight", 32)
        m.add(f"{prefix}{name}.bias", 32)
    m.add(f"{prefix}word_embeddings.weight", 130, 32)
    check(
        m, tmp_path, tp, "vllm",
        vllm_interleaved(prefix + "h.", 8, 8, (f"{prefix}word_embeddings.weight", ), lambda n: "transformer." + n
                         if bare else n))


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("kv,flags", [(4, {"new_decoder_architecture": True, "num_kv_heads": 4}),
                                      (2, {"new_decoder_architecture": True, "num_kv_heads": 2}),
                                      (1, {"multi_query": True, "num_kv_heads": 16}),
                                      (16, {"multi_query": False, "num_kv_heads": 3}), (1, {})],
                         ids=["groups-of-4", "groups-of-8", "multi-query", "one-each", "defaults"])
def test_vllm_falcon(tmp_path, tp, kv, flags):
    m = interleaved("falcon", "transformer.h.", 16, kv, 16 // kv + 2, 4, "self_attention", "num_kv_heads" not in flags,
                    num_attention_heads=16, **flags)
    m.add("transformer.word_embeddings.weight", 130, 64)
    m.add("transformer.ln_f.weight", 64)
    m.add("lm_head.weight", 130, 64)
    check(m, tmp_path, tp, "vllm",
          vllm_interleaved("transformer.h.", 16, kv, ("transformer.word_embeddings.weight", "lm_head.weight")))


# ---- what vLLM's layout is not known for ----

def without(m, *names):
    for name in names:
        del m.tensors[name]
    return m


def plus(m, name, *shape, dtype=None):
    m.add(name, *shape, dtype=dtype)
    return m


def configured(m, **more):
    m.config.update(more)
    return m


Q0 = "model.layers.0.self_attn.q_proj"
WAY_ON = "; vLLM reads its part by --load-format tensord"


@pytest.mark.parametrize("tp,model,words", [
    (3, lambda: llama(), ["tensor", "16 attention heads (num_attention_heads)"]),
    (2, lambda: llama(kv=3, heads=12), ["k_proj", "3 key-value heads (num_key_value_heads)"]),
    (4, lambda: llama(inner=42), ["down_proj", "42"]),
    (3, lambda: llama(heads=12, kv=3, vocab=64), ["64 rows of the vocabulary (vocab_size)"]),
    (2, lambda: configured(llama(), num_attention_heads=8, head_dim=8), ["self_attn", "not the"]),
    (2, lambda: configured(llama(), num_key_value_heads=4), ["k_proj", "not the"]),
    (2, lambda: configured(llama(), head_dim=4), ["self_attn", "not the"]),
    (2, lambda: configured(llama(), vocab_size=129), ["130 elements"]),
    (2, lambda: without(llama(), "model.layers.1.self_attn.k_proj.weight"),
     ["model.layers.1.self_attn.qkv_proj.weight", "lacks"]),
    (2, lambda: without(llama(bias=True), "model.layers.1.self_attn.v_proj.bias"),
     ["model.layers.1.self_attn.qkv_proj.bias", "lacks"]),
    (2, lambda: plus(llama(), "model.layers.0.mlp.extra.weight", 4, 4),
     ["model.layers.0.mlp.extra.weight", "no rule", WAY_ON]),
    (2, lambda: plus(llama("qwen2"), "model.layers.0.self_attn.qkv_proj.weight", 256, 48),
     ["qkv_proj.weight", "no rule"]),
    (2, lambda: plus(llama(), "model.layers.0.self_attn.qkv_proj.weight", 256, 48), ["qkv_proj.weight", "both"]),
    (2, lambda: plus(llama(), Q0 + ".weight_scale_inv", 2, 2), [Q0 + ".weight_scale_inv", "quantised", WAY_ON]),
    (2, lambda: plus(llama(), Q0 + ".weight_scale", 1), [Q0 + ".weight_scale", "quantised", WAY_ON]),
    (2, lambda: plus(llama(), Q0 + ".qweight", 16, 16, dtype=torch.int32), [Q0 + ".qweight", "quantised", WAY_ON]),
    (2, lambda: plus(llama(), Q0 + ".weight.absmax", 16), [Q0 + ".weight.absmax", "quantised", WAY_ON]),
    (2, lambda: plus(without(llama(), Q0 + ".weight"), Q0 + ".weight", 128, 48, dtype=torch.uint8),
     [Q0 + ".weight", "U8", "quantised", WAY_ON]),
    (2, lambda: configured(llama(), quantization_config={"quant_method": "fp8"}), ["quantization_config", WAY_ON]),
    (2, lambda: configured(plus(llama(), Q0 + ".weight_scale_inv", 2, 2), quantization_config={"quant_method": "fp8"}),
     ["quantization_config", Q0 + ".weight_scale_inv", WAY_ON]),
    (2, lambda: configured(llama(), architectures=["NovelForCausalLM"]),
     ["NovelForCausalLM", "LlamaForCausalLM", "Qwen3ForCausalLM", "rules", WAY_ON]),
    (2, lambda: configured(llama(), architectures=[], model_type="novel"), ["novel", "LlamaForCausalLM", WAY_ON]),
    (2, lambda: configured(llama(), architectures=[], model_type=None), ["no architecture", "LlamaForCausalLM"]),
    (2, lambda: configured(llama(), num_attention_heads=None), ["num_attention_heads"]),
    (2, lambda: llama("qwen3_moe", inner=16, mlp=qwen_mlp(4, False)), ["number of experts"]),
    (2, lambda: llama("qwen3_moe", inner=16, mlp=qwen_mlp(4, False), num_experts=5), ["experts", "5 are wanted"]),
    (2, lambda: without(llama("mixtral", inner=16, mlp=mixtral_mlp(4), num_local_experts=4),
                        "model.layers.0.block_sparse_moe.experts.1.w3.weight"), ["w13_weight", "lacks"]),
    (2, lambda: without(llama("mixtral", inner=16, mlp=mixtral_mlp(4), num_local_experts=4),
                        "model.layers.1.block_sparse_moe.experts.2.w2.weight"), ["w2_weight", "lacks"]),
    (2, lambda: plus(llama("mixtral", inner=16, mlp=mixtral_mlp(4), num_local_experts=4),
                     "model.layers.0.block_sparse_moe.experts.x.w2.weight", 48, 16), ["experts.x.w2.weight", "index"]),
    (2,
     lambda: configured(plus(llama(), "model.layers.0.mlp.experts.gate_up_proj_blocks", 4, 8, 2, 16, dtype=torch.uint8),
                        architectures=["GptOssForCausalLM"]),
     ["model.layers.0.mlp.experts.gate_up_proj_blocks", WAY_ON]),
    (2, lambda: configured(plus(llama(), "model.layers.0.mlp.experts.gate_up_proj", 4, 8, 16), architectures=
                           ["GptOssForCausalLM"]), ["model.layers.0.mlp.experts.gate_up_proj", "transposes", WAY_ON]),
])
def test_vllm_refuses(tmp_path, tp, model, words):
    refused(model(), tmp_path, tp, "vllm", *words)


@pytest.mark.parametrize("config,word", [
    (None, "no config.json"),
    ("", "config.json"),
    ("[]", "config.json"),
    ("{", "config.json"),
    ('{"num_attention_heads":"16"}', "num_attention_heads"),
    ('{"num_attention_heads":16.0}', "config.json"),
    ('{"num_attention_heads":-1}', "config.json"),
    ('{"num_attention_heads":99999999999999999999}', "config.json"),
    ('{"num_attention_heads":16,"num_attention_heads":8}', "twice"),
    ('{"num_attention_heads":16,"n_head":8}', "another name"),
    ('{"architectures":"LlamaForCausalLM"}', "architectures"),
    ('{"architectures":[3]}', "architectures"),
    ('{"text_config":[]}', "config.json"),
])
def test_config_that_cannot_be_read_is_refused(tmp_path, config, word):
    m = llama()
    m.config = config
    refused(m, tmp_path, 2, "vllm", word)


# ---- nano-vllm ----

class NanoVllm:
    """Does with a checkpoint what nano-vllm's Qwen3 and its loader do on one rank, written from their meaning. Any
    exception
    counts as a refusal, because it ends nano-vllm."""

    PACKED = {
        "q_proj": ("qkv_proj", "q"), "k_proj": ("qkv_proj", "k"), "v_proj": ("qkv_proj", "v"), "gate_proj":
        ("gate_up_proj", 0), "up_proj": ("gate_up_proj", 1)
    }  # part -> (fused, shard id)

    def __init__(self, config, tp, rank):
        self.tp, self.rank, self.params, self.loads = tp, rank, {}, {}
        if not 1 <= tp <= 8:
            raise ValueError("tensor_parallel_size")
        hidden, heads, kv = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
        hd = config.get("head_dim") or hidden // heads
        bias = config.get("attention_bias", False)
        vocab, inner = config["vocab_size"], config["intermediate_size"]
        for name in ("model.embed_tokens", "lm_head"):
            self.parameter(f"{name}.weight", (self.share(vocab), hidden), self.narrowed(0))
        self.parameter("model.norm.weight", (hidden,), self.copied)
        for i in range(config["num_hidden_layers"]):
            p = f"model.layers.{i}."
            h, k = self.share(heads) * hd, self.share(kv) * hd
            places = {"q": (0, h), "k": (h, k), "v": (h + k, k)}
            self.parameter(f"{p}self_attn.qkv_proj.weight", (h + 2 * k, hidden), self.chunk_into(places))
            if bias:
                self.parameter(f"{p}self_attn.qkv_proj.bias", (h + 2 * k,), self.chunk_into(places))
            for norm in () if bias else ("q_norm", "k_norm"):
                self.parameter(f"{p}self_attn.{norm}.weight", (hd,), self.copied)
            self.parameter(f"{p}self_attn.o_proj.weight", (hidden, self.share(heads * hd)), self.narrowed(1))
            both = self.share(2 * inner)
            part = inner // tp
            self.parameter(f"{p}mlp.gate_up_proj.weight", (both, hidden),
                           self.chunk_into({0: (0, part), 1: (part, part)}))
            self.parameter(f"{p}mlp.down_proj.weight", (hidden, self.share(inner)), self.narrowed(1))
            for norm in ("input_layernorm", "post_attention_layernorm"):
                self.parameter(f"{p}{norm}.weight", (hidden,), self.copied)

    def share(self, n):
        if n % self.tp != 0:
            raise ValueError(f"{n} is not divisible by {self.tp}")
        return n // self.tp

    def parameter(self, name, shape, load):
        self.params[name] = torch.zeros(shape)
        self.loads[name] = load
        self.filled = getattr(self, "filled", {})

    def fill(self, place, part):
        if place.shape != part.shape:
            raise ValueError(f"{tuple(part.shape)} into {tuple(place.shape)}")
        place.view(torch.int32).copy_(part.contiguous().view(torch.int32))

    def copied(self, param, loaded):
        self.fill(param, loaded)

    def narrowed(self, dim):
        def load(param, loaded):
            if loaded.shape[
                    dim] != param.shape[dim] * self.tp:  # nano-vllm would cut a larger one silently; tensord refuses
                raise ValueError("sizes of config.json and of the checkpoint differ")
            self.fill(param, loaded.narrow(dim, self.rank * param.shape[dim], param.shape[dim]))
        return load

    def chunk_into(self, places):
        def load(param, loaded, part):
            off, size = places[part]
            self.fill(param.narrow(0, off, size), loaded.chunk(self.tp, 0)[self.rank])
        return load

    def load(self, tensors):
        touched = set()
        for name, tensor in tensors.items():
            for part, (fused, shard) in self.PACKED.items():
                if part in name:
                    target = name.replace(part, fused)
                    self.loads[target](self.params[target], tensor, shard)
                    break
            else:
                target = name
                self.loads[target](self.params[target], tensor)
            touched.add(target)
        return {name: self.params[name] for name in touched}


def nano(heads=16, kv=8, hd=8, hidden=48, inner=96, vocab=240, bias=False, **more):
    norms = ("input_layernorm", "post_attention_layernorm") if bias else QK_NORMS
    return llama("qwen3", heads=heads, kv=kv, hd=hd, hidden=hidden, inner=inner, vocab=vocab, bias=bias, norms=norms,
                 attention_bias=bias, **more)


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("model", [
    lambda: nano(), lambda: nano(kv=16, hd=6), lambda: nano(bias=True),
    lambda: nano(head=False, tie_word_embeddings=True)
], ids=["qwen3", "one-kv-head-each", "biases", "tied"])
def test_nano_vllm(tmp_path, model, tp):
    check(model(), tmp_path, tp, "nano-vllm", lambda m, t, r: NanoVllm(m.config, t, r).load(m.tensors))


def test_nano_vllm_three_ranks(tmp_path):
    check(nano(heads=12, kv=3), tmp_path, 3, "nano-vllm", lambda m, t, r: NanoVllm(m.config, t, r).load(m.tensors))


@pytest.mark.parametrize("seed", range(60))
def test_nano_vllm_has_the_same_refusals(tmp_path, seed):
    """Random models and numbers of ranks: both plan them, with the same bytes, or both refuse."""
    rng = random.Random(seed)
    tp = rng.choice([1, 2, 3, 4, 8, 16])
    heads = rng.choice([4, 6, 8, 12, 16])
    m = nano(heads=heads, kv=rng.choice([k for k in (1, 2, 3, 4, 8, heads) if heads % k == 0]), hd=rng.choice([2, 8]),
             hidden=24, inner=rng.choice([48, 96, 20, 42]), vocab=rng.choice([240, 96, 100, 151]),
             bias=rng.random() < 0.3)
    if rng.random() < 0.5:
        change = rng.choice(["bias", "norm", "fused", "gate_up", "inv_freq", "heads", "vocab", "extra"])
        p = "model.layers.0.self_attn."
        if change == "bias":
            m.tensors.pop(p + "q_proj.bias", None)
            m.add(p + "q_proj.bias", m.config["num_attention_heads"] * m.config["head_dim"])
        elif change == "norm":
            m.tensors.pop(p + "q_norm.weight", None)
            m.add(p + "q_norm.weight", m.config["head_dim"])
        elif change == "fused":
            m.add(p + "qkv_proj.weight", 8, 24)
        elif change == "gate_up":
            m.add("model.layers.0.mlp.gate_up_proj.weight", 8, 24)
        elif change == "inv_freq":
            m.add(p + "rotary_emb.inv_freq", 4)
        elif change == "heads":
            m.config["num_attention_heads"] *= 2
        elif change == "vocab":
            m.config["vocab_size"] -= rng.choice([1, tp])
        elif change == "extra":
            m.add("model.extra.weight", 3)
    verdicts = set()
    wanted = []
    for r in range(tp):
        try:
            wanted.append(NanoVllm(m.config, tp, r).load(m.tensors))
            verdicts.add("loads")
        except (ValueError, KeyError, TypeError) as e:
            verdicts.add(f"refuses: {type(e).__name__}")
    if verdicts == {"loads"}:
        check(m, tmp_path, tp, "nano-vllm", lambda m, t, r: wanted[r])
    else:
        refused(m, tmp_path, tp, "nano-vllm")


@pytest.mark.parametrize("tp,model,words", [
    (8, lambda: nano(kv=4), ["k_proj", "4 key-value heads (num_key_value_heads)"]),
    (2, lambda: nano(vocab=151), ["151 rows of the vocabulary (vocab_size)"]),
    (16, lambda: nano(kv=16), ["at most 8"]),
    (2, lambda: plus(nano(), "model.layers.0.self_attn.qkv_proj.weight", 4, 4), ["qkv_proj.weight", "no parameter"]),
    (2, lambda: configured(nano(bias=True), attention_bias=False), ["k_proj.bias", "no parameter"]),
    (2, lambda: configured(nano(), attention_bias=True), ["k_norm.weight", "no parameter"]),
    (2, lambda: configured(nano(), architectures=["LlamaForCausalLM"]), ["LlamaForCausalLM", "Qwen3ForCausalLM"]),
])
def test_nano_vllm_refuses(tmp_path, tp, model, words):
    refused(model(), tmp_path, tp, "nano-vllm", *words)


# ---- none, fsdp ----

SHAPES = [(), (1,), (0,), (7,), (16,), (5, 3), (16, 4), (1, 9), (0, 4), (4, 0), (17, 2, 2), (2, 3, 4, 5)]


def anything(dtype=torch.float32):
    m = Model(None, dtype)
    for i, shape in enumerate(SHAPES):
        m.add(f"t{i}.weight", *shape)
    m.add("quantised.qweight", 6, 5, dtype=torch.int32)
    return m


@pytest.mark.parametrize("tp", RANKS + [5, 64])
def test_none_is_everything(tmp_path, tp):
    check(anything(), tmp_path, tp, "none", lambda m, t, r: m.tensors)


def fsdp_oracle(m, t, r):
    """As DTensor's Shard(0): torch.chunk, and nothing for ranks behind its last piece. A tensor without dimensions is
    whole."""
    out = {}
    for name, w in m.tensors.items():
        chunks = torch.chunk(w, t) if w.ndim > 0 else None
        out[name] = w if chunks is None else chunks[r] if r < len(chunks) else w.narrow(0, 0, 0)
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("tp", RANKS + [5])
def test_fsdp_is_torch_chunk(tmp_path, tp, dtype):
    check(anything(dtype), tmp_path, tp, "fsdp", fsdp_oracle, complete=dtype == torch.float32)


def test_unknown_engine_and_ranks(tmp_path):
    path = anything().write(tmp_path)
    for engine, tp, code in (("novel", 2, NOT_FOUND), ("vllm@0.14", 2, NOT_FOUND),
                             ("vllm-0.13", 2, NOT_FOUND), ("none", 0, INVALID_ARGUMENT),
                             ("none", 4097, INVALID_ARGUMENT),
                             ("vllm", 0, INVALID_ARGUMENT)):
        with pytest.raises(Refused) as e:
            plan(path, tp, engine)
        assert e.value.code == code, e.value.message


# ---- rules that a client gives ----

def by_rules(tmp_path, model, tp, rules, oracle, dropped=(), complete=True):
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    check(model, tmp_path, tp, f"@{tmp_path / 'rules.json'}", oracle, dropped, complete)


def one(*shape, dtype=torch.float32):
    m = Model()
    m.add("w", *shape, dtype=dtype)
    return m


@pytest.mark.parametrize("tp", RANKS)
def test_rules_expert_parallel(tmp_path, tp):
    """E experts over the ranks; the first E % ep ranks get one more."""
    def oracle(m, t, r):
        b, more = divmod(13, t)
        return {"w": m.tensors["w"].narrow(0, r * b + min(r, more), b + (r < more))}
    by_rules(tmp_path, one(13, 4), tp, [{"match": "w", "uneven": "balanced"}], oracle)


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("dim", [1, -1])
def test_rules_of_other_dimensions(tmp_path, tp, dim):
    by_rules(tmp_path, one(3, 8), tp, [{"match": "**", "dim": dim}], lambda m, t, r: {"w": row(m.tensors["w"], t, r)})


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_rules_gptq(tmp_path, tp):
    """qweight is packed along its inputs, eight to an I32, so 64 inputs are 8 stored numbers; zeros are packed along
    the outputs."""
    m = Model()
    m.add("a.qweight", 8, 12, dtype=torch.int32)
    m.add("a.qzeros", 4, 16, dtype=torch.int32)
    rules = [{"match": "*.qweight", "dim": 0, "pack": 8, "parts": [{"count": 4, "unit": 16}]},
             {"match": "*.qzeros", "dim": 1, "pack": 8}]
    by_rules(
        tmp_path, m, tp, rules, lambda m, t, r:
        {"a.qweight": column(m.tensors["a.qweight"], t, r), "a.qzeros": row(m.tensors["a.qzeros"], t, r)})


def test_rules_refuse_to_cut_a_packed_element(tmp_path):
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps([{"match": "**", "pack": 8}]))
    refused(one(3, 4, dtype=torch.int32), tmp_path, 2, f"@{rules}", '"w"', "packed")


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_rules_vocabulary(tmp_path, tp):
    by_rules(tmp_path, one(100, 3), tp, [{"match": "w", "pad_to": 16, "out": "embedding"}],
             lambda m, t, r: {"embedding": vocabulary(m.tensors["w"], t, r, 16)})


@pytest.mark.parametrize("seed", range(40))
def test_rules_parts_and_groups(tmp_path, seed):
    """One tensor of several interleaved parts: the oracle separates them with view and deals every part by itself."""
    rng = random.Random(seed)
    tp = rng.choice(RANKS)
    groups = rng.choice([1, 1, 2, 3, 8])
    parts = [{"count": groups * rng.randint(1, 6), "unit": rng.randint(1, 5)} for _ in range(rng.randint(1, 4))]
    before, after = rng.choice([(), (3,)]), rng.choice([(), (2,)])
    spans = [p["count"] // groups * p["unit"] for p in parts]
    n = groups * sum(spans)
    m = one(*before, n, *after)
    rule = {"match": "w", "dim": len(before), "groups": groups, "parts": parts, "uneven": "chunk"}

    def oracle(m, t, r):
        w = m.tensors["w"].movedim(len(before), 0)
        rest = w.shape[1:]
        out = []
        for part, piece in zip(parts, w.reshape(groups, -1, *rest).split(spans, dim=1)):
            units = piece.reshape(part["count"], part["unit"], *rest)
            chunks = units.chunk(t)
            mine = chunks[r] if r < len(chunks) else units[:0]
            out.append(mine.reshape(-1, *rest))
        return {"w": torch.cat(out).movedim(0, len(before))}

    by_rules(tmp_path, m, tp, [rule], oracle)


def test_rules_join_stack_drop_and_rename(tmp_path):
    m = Model()
    for e in range(11):
        m.add(f"moe.{e}.up", 4, 3)
        m.add(f"moe.{e}.gate", 2, 3)
    m.add("a.left", 3, 2)
    m.add("a.right", 3, 5)
    m.add("scale")
    m.add("norm", 6)
    m.add("gone", 2, 2)
    rules = [{"match": "moe.*.gate", "out": "moe.w13_weight", "slot": 0, "stack": True},
             {"match": "moe.*.up", "out": "moe.w13_weight", "slot": 1, "stack": True, "stack_size": 11},
             {"match": "*.left", "out": "x.*.both", "slot": 0, "whole": True, "dim": 1},
             {"match": "*.right", "out": "x.*.both", "slot": 7, "whole": True, "dim": 1},
             {"match": "gone", "drop": True}]

    def oracle(m, t, r):
        w = m.tensors
        return {
            "moe.w13_weight":
            torch.stack(
                [torch.cat([column(w[f"moe.{e}.gate"], t, r),
                            column(w[f"moe.{e}.up"], t, r)]) for e in range(11)]), "x.a.both":
            torch.cat([w["a.left"], w["a.right"]], dim=1), "scale":
            w["scale"], "norm":
            w["norm"]
        }
    by_rules(tmp_path, m, 2, rules, oracle, dropped=["gone"])


@pytest.mark.parametrize("model,rules,words", [
    (lambda: one(4, 4), [], ['"w"', "no rule"]),
    (lambda: one(4, 4), [{"match": "w", "refuse": "not today"}], ['"w"', "not today"]),
    (lambda: one(4), [{"match": "w", "dim": 1}], ['"w"', "1 dimension, numbered from 0"]),
    (lambda: one(4, 4), [{"match": "w", "parts": [{"count": 3}]}], ['"w"', "not the 4 elements"]),
    (lambda: one(4, 4), [{"match": "w", "parts": [{"count": 5}]}], ['"w"', "not the 4 elements"]),
    (lambda: one(4, 4), [{"match": "w", "parts": [{"count": 2**63, "unit": 4}]}], ['"w"', "not the 4 elements"]),
    (lambda: one(6, 4), [{"match": "w", "parts": [{}, {}], "groups": 2}], ['"w"', "not the 6 elements"]),
    (lambda: one(4, 4), [{"match": "w", "pack": 2**63}], ['"w"', "2^64"]),
    (lambda: one(4, 4), [{"match": "w", "pad_to": 2**64 - 1}], ['"w"', "18446744073709551615 elements"]),
    (lambda: plus(one(4, 4), "v", 4, 4), [{"match": "*", "out": "same"}], ["same"]),
    (lambda: plus(one(4, 4), "v", 4), [{"match": "w", "out": "v"}], ['"v"', '"w"']),
    (lambda: plus(one(4, 4), "v", 4, 3), [{"match": "w", "out": "x"}, {"match": "v", "out": "x", "slot": 1}
                                          ], ["joined"]),
    (lambda: plus(one(4, 4), "v", 4, 4, dtype=torch.bfloat16), [{"match": "w", "out": "x"},
                                                                {"match": "v", "out": "x", "slot": 1}], ["joined"]),
    (lambda: plus(one(4, 4), "v", 4, 4), [{"match": "w", "out": "x"}, {"match": "v", "out": "x", "slot": 1, "dim": 1}
                                          ], ["joined"]),
    (lambda: plus(one(), "v"), [{"match": "w", "out": "x"}, {"match": "v", "out": "x", "slot": 1}], ["joined"]),
])
def test_rules_that_do_not_fit_are_refused(tmp_path, model, rules, words):
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    refused(model(), tmp_path, 2, f"@{tmp_path / 'rules.json'}", *words)


def documented_rules():
    """Return the lists of rules in docs/slicing.md."""
    text = (REPO / "docs" / "slicing.md").read_text()
    return re.findall(r"```json\n(.*?)```", text, re.S)


@pytest.mark.parametrize("tp", [1, 2, 16])
def test_documented_rules_of_a_llama(tmp_path, tp):
    m = llama(heads=16, kv=8, hd=128, hidden=16, inner=32, vocab=100)
    path = m.write(tmp_path)
    (tmp_path / "rules.json").write_text(documented_rules()[0])
    assert plan(path, tp, f"@{tmp_path / 'rules.json'}") == plan(path, tp, "vllm@0.33")


def test_documented_rules_of_other_kinds(tmp_path):
    m = Model()
    for e in range(8):
        for name, shape in (("w1", (4, 3)), ("w2", (3, 4)), ("w3", (4, 3))):
            m.add(f"experts.{e}.{name}", *shape)
    m.add("h.0.qkv", 4 * 6 * 8, 2)
    m.add("a.qweight", 32, 3, dtype=torch.int32)
    m.add("a.qzeros", 2, 4, dtype=torch.int32)
    m.add("b.c.shard", 2, 5)
    m.add("all_experts", 7, 2)

    def oracle(m, t, r):
        w = m.tensors
        groups = w["h.0.qkv"].view(4, 6, 8, 2)
        q, k, v = (x.reshape(-1, 2) for x in (groups[:, :4], groups[:, 4:5], groups[:, 5:]))
        mine = range(0, 4) if r == 0 else range(4, 7)
        return {
            "w13":
            torch.stack([torch.cat([column(w[f"experts.{e}.{x}"], t, r) for x in ("w1", "w3")]) for e in range(8)]),
            "w2": torch.stack([row(w[f"experts.{e}.w2"], t, r) for e in range(8)]), "transformer.h.0.qkv":
            qkv(q, k, v, 16, 4, t, r), "a.qweight": column(w["a.qweight"], t, r), "a.qzeros": row(w["a.qzeros"], t, r),
            "b.c.shard": w["b.c.shard"].chunk(t, 1)[r], "all_experts": w["all_experts"][list(mine)]
        }
    by_rules(tmp_path, m, 2, json.loads(documented_rules()[1]), oracle)


# ---- the worked example of a real model ----

def test_qwen3_0_6b(tmp_path):
    """Rank 1 of 2 of Qwen3-0.6B: shapes and boxes, computed by hand."""
    header = {}
    at = 0
    for name, shape in {
            "model.layers.0.self_attn.q_proj.weight": [2048, 1024], "model.layers.0.self_attn.k_proj.weight":
        [1024, 1024], "model.layers.0.self_attn.v_proj.weight": [1024, 1024], "model.layers.0.self_attn.o_proj.weight":
        [1024, 2048], "model.layers.0.mlp.down_proj.weight": [1024, 3072]
    }.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * math.prod(shape)]}
        at += 2 * math.prod(shape)
    text = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(at))
    (tmp_path / "config.json").write_text(
        json.dumps({
            "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "num_attention_heads": 16,
            "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936
        }))
    for engine in ("vllm@0.13", "nano-vllm"):
        dump = run_dump(tmp_path, 2, engine)
        names = [t["name"].split(".")[-2] for t in dump["tensors"]]
        got = {
            o["name"].split(".")[-2]: (o["shape"], o["nbytes"], o["axis"], [(names[p["tensor"]], p["start"], p["size"])
                                                                            for p in o["pieces"]])
            for o in dump["ranks"][1]["outputs"]
        }
        assert got == {
            "qkv_proj": ([2048, 1024], 4194304, 0, [("q_proj", 1024, 1024), ("k_proj", 512, 512),
                                                    ("v_proj", 512, 512)]), "o_proj":
            ([1024, 1024], 2097152, 1, [("o_proj", 1024, 1024)]), "down_proj":
            ([1024, 1536], 3145728, 1, [("down_proj", 1536, 1536)])
        }
