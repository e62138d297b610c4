#!/usr/bin/env python3
"""The bytes of whole models and of their rank files, exactly: what `tensord plan` says of checkpoints with the shapes
of Llama 3, whose tensors are holes in sparse files. Standard library alone.

    bench/model_bytes.py build/tensord [--engine vllm] [--tp 2,4,8,16]
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

from bench_fixture import header_of  # noqa: E402
from bench_report import number, table  # noqa: E402

GB = 1e9
HEAD_DIM, KV_HEADS, VOCAB = 128, 8, 128256
MODELS = {  # hidden size, layers, heads, intermediate size
    "8B": (4096, 32, 32, 14336), "70B": (8192, 80, 64, 28672), "405B": (16384, 126, 128, 53248),
}


def shapes_of(hidden, layers, heads, intermediate):
    shapes = {"model.embed_tokens.weight": [VOCAB, hidden], "lm_head.weight": [VOCAB, hidden],
              "model.norm.weight": [hidden]}
    of_layer = {"self_attn.q_proj": [heads * HEAD_DIM, hidden], "self_attn.k_proj": [KV_HEADS * HEAD_DIM, hidden],
                "self_attn.v_proj": [KV_HEADS * HEAD_DIM, hidden], "self_attn.o_proj": [hidden, heads * HEAD_DIM],
                "mlp.gate_proj": [intermediate, hidden], "mlp.up_proj": [intermediate, hidden],
                "mlp.down_proj": [hidden, intermediate], "input_layernorm": [hidden],
                "post_attention_layernorm": [hidden]}
    for layer in range(layers):
        shapes.update({"model.layers.%d.%s.weight" % (layer, name): shape for name, shape in of_layer.items()})
    return shapes


def write_sparse(folder, hidden, layers, heads, intermediate):
    """Writes a header, and a hole in place of the tensors; a config.json beside it."""
    os.makedirs(folder)
    entries, at = {}, 0
    for name, shape in shapes_of(hidden, layers, heads, intermediate).items():
        end = at + 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        entries[name], at = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}, end
    header = header_of(entries)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(header)
        file.truncate(len(header) + at)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": heads,
                   "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "hidden_size": hidden,
                   "intermediate_size": intermediate, "vocab_size": VOCAB, "num_hidden_layers": layers}, file)


def plan(tensord, root, model, engine, tp):
    run = subprocess.run([tensord, "plan", root, model, "--engine", engine, "--tp", str(tp), "--json"],
                         capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit("model_bytes: plan of %s: %s" % (model, run.stderr.strip()))
    return json.loads(run.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("tensord", type=os.path.abspath)
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--tp", type=lambda text: [int(part) for part in text.split(",")], default=[2, 4, 8, 16])
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="tensord-bench-") as root:
        for model, shape in MODELS.items():
            write_sparse(os.path.join(root, model), *shape)
            for tp in options.tp:
                about = plan(options.tensord, root, model, options.engine, tp)
                whole, ranks = about["checkpoint_bytes"], [rank["nbytes"] for rank in about["ranks"]]
                rows.append([model, tp, number(whole / GB, 2), number(max(ranks) / GB, 2),
                             number(max(ranks) * tp / whole, 4), number(sum(ranks) / GB, 2),
                             number(about["total"]["repeated_bytes"] / GB, 3)])
    print(table(["Llama 3", "tp", "whole GB", "rank file GB", "x tp / whole", "all ranks GB", "GB repeated"], rows))


if __name__ == "__main__":
    main()
