#!/usr/bin/env python3
"""Writes a small Llama in safetensors format: scripts/demo_model.py DIR. Plain Python, no packages.

Element i of an F32 tensor is i; element i of a BF16 tensor is i % 256, because BF16 holds whole numbers exactly only
up to 256. The files are the same on every machine, times included.
"""

import json
import os
import struct
import sys

HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, LAYERS = 64, 8, 2, 128, 256, 2
TIMESTAMP = 1735689600  # 2025-01-01, UTC


def layout():
    head = HIDDEN // HEADS
    yield "model.embed_tokens.weight", "BF16", [VOCAB, HIDDEN]
    for n in range(LAYERS):
        layer = f"model.layers.{n}."
        yield layer + "input_layernorm.weight", "F32", [HIDDEN]
        yield layer + "self_attn.q_proj.weight", "BF16", [HEADS * head, HIDDEN]
        yield layer + "self_attn.k_proj.weight", "BF16", [KV_HEADS * head, HIDDEN]
        yield layer + "self_attn.v_proj.weight", "BF16", [KV_HEADS * head, HIDDEN]
        yield layer + "self_attn.o_proj.weight", "BF16", [HIDDEN, HEADS * head]
        yield layer + "post_attention_layernorm.weight", "F32", [HIDDEN]
        yield layer + "mlp.gate_proj.weight", "BF16", [FFN, HIDDEN]
        yield layer + "mlp.up_proj.weight", "BF16", [FFN, HIDDEN]
        yield layer + "mlp.down_proj.weight", "BF16", [HIDDEN, FFN]
    yield "model.norm.weight", "F32", [HIDDEN]
    yield "lm_head.weight", "BF16", [VOCAB, HIDDEN]


def elements(dtype, count):
    if dtype == "F32":
        return struct.pack(f"<{count}f", *range(count))
    words = [struct.unpack("<I", struct.pack("<f", i))[0] >> 16 for i in range(256)]
    return struct.pack(f"<{count}H", *(words[i % 256] for i in range(count)))


def safetensors():
    header, body = {"__metadata__": {"format": "pt", "source": "scripts/demo_model.py"}}, bytearray()
    for name, dtype, shape in layout():
        count = 1
        for size in shape:
            count *= size
        data = elements(dtype, count)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(body)


def config():
    values = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
              "intermediate_size": FFN, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
              "num_hidden_layers": LAYERS, "vocab_size": VOCAB, "torch_dtype": "bfloat16"}
    return json.dumps(values, indent=2).encode() + b"\n"


def write(path, data):
    with open(path + ".tmp", "wb") as file:
        file.write(data)
    os.utime(path + ".tmp", (TIMESTAMP, TIMESTAMP))
    os.chmod(path + ".tmp", 0o644)
    os.rename(path + ".tmp", path)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: scripts/demo_model.py DIR")
    directory = sys.argv[1]
    os.makedirs(directory, exist_ok=True)
    write(os.path.join(directory, "config.json"), config())
    write(os.path.join(directory, "model.safetensors"), safetensors())


if __name__ == "__main__":
    main()
