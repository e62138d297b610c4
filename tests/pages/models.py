"""The models and datasets that the tests of pages visit. build(root) writes them all; all else are their facts."""
import io
import json
import os
import string

import gguf
import h5py
import numpy as np
from PIL import Image

from harness import DTYPE_BITS, Tensor, age, header_json, frame, tensor, write_by_hand

LLAMA = "org/llama-300"
MOE = "org/moe-10000"
GGUF = "org/gguf"
HDF5 = "keras/cnn"
BROKEN = "broken/cut"
HOSTILE = "hostile/<script>alert(1)<"
STEPS = ("runs/tuned/step-100", "runs/tuned/step-200")
PICTURES, TEXTS = "org/pictures", "org/texts"
LAYERS, MOE_LAYERS, MOE_EXPERTS = 33, 13, 254

LLAMA_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": LAYERS, "vocab_size": 256,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}
MOE_CONFIG = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 16, "intermediate_size": 8,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": MOE_LAYERS, "vocab_size": 64,
    "num_local_experts": MOE_EXPERTS, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}

# Names of tensors that break pages which do not escape, cut and isolate them.
HOSTILE_NAMES = [
    "<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "'><svg onload=alert(1)>", "javascript:alert(1)",
    "</title><script>alert(1)</script>", "--><script>alert(1)</script>", "&lt;b&gt;&amp;&quot;", "%3Cscript%3E",
    "constructor", "__proto__", "toString", "hasOwnProperty", "main", "tensors", "filter", "models", "location",
    "rtl\u202egnp.exe", "\u2066isolated", "\u05e9\u05dc\u05d5\u05dd", "line\nbreak", "tab\there", "control\x01\x1b[31m",
    "del\x7f", "\u0085next", "\u2028line", "\ufeffmark", "{{name}}", "${name}", "a/../../b", "..", ".", " ",
    "  two  ", "?q=1#x",
    "x" * 300, "word " * 60, "\u00e9" * 300, "deep." * 100 + "weight", "e\u0301" * 150,
    "\U0001f600" * 80,
]
# Names of files. A name of a file has no slash and at most 255 bytes.
HOSTILE_FILES = [
    b"<script>alert(1)<.txt", b"\"><img src=x onerror=alert(1)>.txt", b"bad\xff\xfe.bin", "rtl\u202egnp.exe".encode(),
    b"constructor", b"__proto__", b"esc\x1b[31m.txt", b"x" * 251 + b".txt", b"a b%41?.txt", b"javascript:alert(1)",
]
HOSTILE_README = """---
license: "<script>alert(1)</script>"
tags: ["\\"><img src=x onerror=alert(1)>", "javascript:alert(1)"]
base_model: "rtl\\u202egnp"
---
# <script>alert(1)</script>

<img src=x onerror=alert(1)> <meta http-equiv=refresh content="0;url=http://other.example/">
<form action=http://other.example/><input name=main id=main></form> <style>* { display: none }</style>

[a](javascript:alert(1)) [b](JaVa&#9;Script:alert(1)) [c](data:text/html,<script>alert(1)</script>)
[d](//other.example/)
![e](http://other.example/track.png) ![f](data:image/png;base64,AA==) [g](../../../../etc/passwd)
<javascript:alert(1)>

## main
### constructor
| a | b |
|---|---|
| """ + "x" * 2000 + """ | <b onclick=alert(1)>b</b> |

""" + "word" * 300 + """

```html
<script>alert(1)</script>
```
"""
README = """---
license: apache-2.0
language:
- en
tags:
- llama
- test
base_model: org/base
---
# Llama of 300 tensors

A model for **tests**, with `code`, a [page](https://example.com/paper) and [its configuration](config.json).

## Use

```python
from transformers import AutoModel
model = AutoModel.from_pretrained("org/llama-300")
```

| benchmark | score |
|---|---:|
| MMLU | 25.1 |

- [x] converted
- [ ] trained

![A picture](picture.png)
"""


def normal(name, dtype, shape):
    """A tensor of values as a model has them: normally distributed, the same in each run."""
    count = int(np.prod(shape, dtype=np.int64))
    seed = np.frombuffer(name.encode("utf-8", "surrogatepass").ljust(8)[-8:], np.uint32)
    values = (np.random.default_rng(seed).standard_normal(count) * 0.02).astype(np.float32)
    data = {"F32": lambda: values, "F16": lambda: values.astype(np.float16),
            "BF16": lambda: (values.view(np.uint32) >> 16).astype(np.uint16)}[dtype]().tobytes()
    return Tensor(name, dtype, list(shape), data)


def transformer(config, make, mlp):
    """Return the tensors of a transformer of that configuration, as Hugging Face names them. make(name, shape); mlp:
    name below a layer -> shape."""
    h, heads, kv = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    layer = {"self_attn.q_proj.weight": [h, h], "self_attn.k_proj.weight": [h * kv // heads, h],
             "self_attn.v_proj.weight": [h * kv // heads, h], "self_attn.o_proj.weight": [h, h],
             "input_layernorm.weight": [h], "post_attention_layernorm.weight": [h]} | mlp
    made = [make("model.embed_tokens.weight", [config["vocab_size"], h])]
    for i in range(config["num_hidden_layers"]):
        made += [make(f"model.layers.{i}.{name}", shape) for name, shape in layer.items()]
    return made + [make("model.norm.weight", [h]), make("lm_head.weight", [config["vocab_size"], h])]


def llama_tensors(config=LLAMA_CONFIG):
    h, wide = config["hidden_size"], config["intermediate_size"]
    return transformer(config, lambda name, shape: normal(name, "F32" if "norm" in name else "BF16", shape),
                       {"mlp.gate_proj.weight": [wide, h], "mlp.up_proj.weight": [wide, h],
                        "mlp.down_proj.weight": [h, wide]})


def moe_tensors():
    h, wide = MOE_CONFIG["hidden_size"], MOE_CONFIG["intermediate_size"]
    mlp = {"block_sparse_moe.gate.weight": [MOE_EXPERTS, h]}
    for e in range(MOE_EXPERTS):
        for name, shape in (("w1", [wide, h]), ("w2", [h, wide]), ("w3", [wide, h])):
            mlp[f"block_sparse_moe.experts.{e}.{name}.weight"] = shape
    return transformer(MOE_CONFIG, lambda name, shape: tensor(name, "BF16", shape), mlp)


def picture(size, colour, kind="PNG"):
    """Return the bytes of an image of one colour."""
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, kind)
    return out.getvalue()


def write_llama(folder):
    tensors = llama_tensors()
    assert len(tensors) == 300
    files = {f"model-{i + 1:05d}-of-00002.safetensors": tensors[i::2] for i in range(2)}
    for name, part in files.items():
        write_by_hand(folder / name, part, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {"total_size": sum(t.nbytes for t in tensors)},
         "weight_map": {t.name: name for name, part in files.items() for t in part}}))
    (folder / "config.json").write_text(json.dumps(LLAMA_CONFIG))
    (folder / "README.md").write_text(README)
    (folder / "picture.png").write_bytes(picture((320, 120), (40, 90, 160)))


def write_moe(folder):
    tensors = moe_tensors()
    assert len(tensors) == 10_000
    write_by_hand(folder / "model.safetensors", tensors, {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(MOE_CONFIG))


def write_gguf(path):
    """Write a Llama of one layer by llama.cpp's package, with tensors of several types."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("A Llama of one layer")
    writer.add_context_length(2048)
    writer.add_embedding_length(256)
    writer.add_block_count(1)
    writer.add_token_list([f"token-{i}" for i in range(300)])
    values = np.random.default_rng(1).standard_normal((64, 256)).astype(np.float32)
    kinds = gguf.GGMLQuantizationType
    writer.add_tensor("token_embd.weight", values.astype(np.float16))
    writer.add_tensor("blk.0.attn_norm.weight", values[0])
    for name, kind in (("attn_q", kinds.Q8_0), ("attn_k", kinds.Q4_0), ("attn_v", kinds.Q5_1), ("ffn_up", kinds.BF16)):
        writer.add_tensor(f"blk.0.{name}.weight", gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_alphabet(path):
    """Write a Llama of one layer that llama.cpp runs: after each letter it says the next one of the alphabet. Its layer
    adds nothing; each letter's embedding is the output row of the next letter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    width, wide, letters = 32, 64, string.ascii_lowercase
    kinds = gguf.TokenType
    tokens = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)]
    tokens += [(f"<0x{i:02X}>", kinds.BYTE) for i in range(256)]
    first = len(tokens)
    tokens += [(letter, kinds.NORMAL) for letter in letters]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("The alphabet")
    writer.add_context_length(256)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(wide)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_rope_dimension_count(8)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([kind for _, kind in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    weights = {f"blk.0.{name}": np.zeros(shape, np.float32) for name, shape in (
        ("attn_q", (width, width)), ("attn_k", (width, width)), ("attn_v", (width, width)),
        ("attn_output", (width, width)), ("ffn_gate", (wide, width)), ("ffn_up", (wide, width)),
        ("ffn_down", (width, wide)))}
    weights |= {name: np.ones(width, np.float32) for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")}
    for name, after in (("token_embd", 0), ("output", 1)):
        weights[name] = np.zeros((len(tokens), width), np.float32)
        for i in range(len(letters) - after):
            weights[name][first + i + after, i] = 1
    for name, values in weights.items():
        writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_hdf5(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(2)
    with h5py.File(path, "w") as f:
        for layer, shape in (("conv2d", (3, 3, 1, 32)), ("conv2d_1", (3, 3, 32, 64)), ("dense", (1600, 10))):
            group = f.create_group(f"layers/{layer}/vars")
            group["0"] = random.standard_normal(shape).astype(np.float32)
            group["1"] = np.zeros(shape[-1], np.float32)


def write_broken(folder):
    """Write a model of a good file and one that ends before its last tensor."""
    write_by_hand(folder / "good.safetensors", [normal("good.weight", "F32", [8, 8])])
    cut = [tensor("cut.weight", "F32", [64, 64])]
    (folder / "cut.safetensors").write_bytes(frame(header_json(cut), cut[0].data[:1000]))
    (folder / "not-json.safetensors").write_bytes(frame(b"{\"weight\": <script>alert(1)</script>}", b""))


def write_steps(root):
    """Write two versions of a model. Returns the name of each tensor that differs, and how."""
    same = [normal(f"layers.{i}.weight", "BF16", [32, 32]) for i in range(20)]
    changes = {
        "changed.content": (normal("changed.content", "F32", [16, 16]), tensor("changed.content", "F32", [16, 16])),
        "changed.dtype": (normal("changed.dtype", "F32", [16, 16]), normal("changed.dtype", "BF16", [16, 16])),
        "changed.shape": (normal("changed.shape", "F32", [16, 16]), normal("changed.shape", "F32", [16, 32])),
        "removed": (normal("removed", "F32", [4]), None),
        "added": (None, normal("added", "F32", [4])),
    }
    for i, id in enumerate(STEPS):
        both = same + [pair[i] for pair in changes.values() if pair[i]]
        write_by_hand(root / id / "model.safetensors", both, {"format": "pt"})
    return {name: name.removeprefix("changed.") for name in changes}


def write_hostile(root):
    folder = root / HOSTILE
    tensors = [tensor(name, "U8", [8 + i]) for i, name in enumerate(HOSTILE_NAMES)]
    write_by_hand(folder / "model.safetensors", tensors,
                  {"<script>alert(1)</script>": "\"><img src=x onerror=alert(1)>", "__proto__": "x" * 100_000,
                   "rtl\u202e": "\u202egnp"})
    for name in HOSTILE_FILES:
        with open(os.fsencode(folder) + b"/" + name, "wb") as f:
            f.write(b"<script>alert(1)</script>")
    (folder / "README.md").write_text(HOSTILE_README)
    long = f"{'x' * 200}/{'y' * 200}"
    for id in ("\"><img src=x onerror=alert(1)>", "constructor", "__proto__", "rtl\u202egnp", long):
        write_by_hand(root / id / "model.safetensors", [tensor("w", "U8", [16], id)])


def write_datasets(root):
    colours = {"red": (200, 30, 30), "green": (30, 160, 60), "blue": (30, 60, 200)}
    for name, colour in colours.items():
        for i in range(40):
            path = root / PICTURES / "train" / name / f"{i:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture((48, 32), tuple(c + i for c in colour)))
    texts = [{"id": i, "text": f"row {i}", "score": i / 7, "tags": ["a", "b"], "none": None} for i in range(500)]
    texts[1]["text"], texts[2]["text"] = "<script>alert(1)</script>", "x" * 5000
    texts[3]["text"] = "rtl \u202egnp \u05e9\u05dc\u05d5\u05dd"
    (root / TEXTS).mkdir(parents=True)
    (root / TEXTS / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    (root / TEXTS / "README.md").write_text("---\nlicense: mit\n---\n# Texts\n\nRows of text.\n")


def build(root):
    """Write everything below root."""
    write_llama(root / LLAMA)
    write_moe(root / MOE)
    write_gguf(root / GGUF / "model.gguf")
    write_hdf5(root / HDF5 / "model.weights.h5")
    write_broken(root / BROKEN)
    write_steps(root)
    write_hostile(root)
    write_datasets(root / "datasets")
    many = [tensor(f"{d}.matrix", d, [6, 8]) for d in DTYPE_BITS]
    write_by_hand(root / "org/all-dtypes/model.safetensors", many)
    age(root)
