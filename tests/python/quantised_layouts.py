"""Small checkpoints in the layouts of quantised models, with random values: what a loader moves, not what it computes.

Names, types and shapes are those that AutoFP8 and DeepSeek (FP8), AutoAWQ, GPTQModel, compressed-tensors and gpt-oss
write; vLLM's layers refuse others.
"""
import json

import torch
from safetensors.torch import save_file

HIDDEN, HEADS, KV_HEADS, HEAD, FFN, VOCAB, LAYERS = 512, 8, 4, 128, 1024, 512, 2
GROUP = 128
LINEAR = {"self_attn.q_proj": (HEADS * HEAD, HIDDEN), "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
          "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN), "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
          "mlp.gate_proj": (FFN, HIDDEN), "mlp.up_proj": (FFN, HIDDEN), "mlp.down_proj": (HIDDEN, FFN)}


def of_type(dtype, *shape):
    """Return random bytes as a tensor. Floating-point ones hold ordinary numbers, so that they compare."""
    if dtype in (torch.float16, torch.bfloat16, torch.float32):
        return torch.randn(shape).to(dtype)
    if dtype == torch.float8_e4m3fn:
        return torch.randn(shape).to(dtype)
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    return torch.randint(least, most, shape, dtype=torch.int64).to(dtype)


def fp8(rows, columns):
    return {"weight": of_type(torch.float8_e4m3fn, rows, columns), "weight_scale": torch.rand(()),
            "input_scale": torch.rand(())}


def fp8_blocks(rows, columns):
    return {"weight": of_type(torch.float8_e4m3fn, rows, columns),
            "weight_scale_inv": of_type(torch.float32, -(-rows // 128), -(-columns // 128))}


def awq(rows, columns):
    return {"qweight": of_type(torch.int32, columns, rows // 8),
            "qzeros": of_type(torch.int32, columns // GROUP, rows // 8),
            "scales": of_type(torch.float16, columns // GROUP, rows)}


def gptq(rows, columns):
    return {"qweight": of_type(torch.int32, columns // 8, rows),
            "qzeros": of_type(torch.int32, columns // GROUP, rows // 8),
            "scales": of_type(torch.float16, columns // GROUP, rows),
            "g_idx": (torch.randperm(columns) // GROUP).to(torch.int32)}


def packed(rows, columns):
    return {"weight_packed": of_type(torch.int32, rows, columns // 8),
            "weight_scale": of_type(torch.bfloat16, rows, columns // GROUP),
            "weight_shape": torch.tensor([rows, columns])}


def int8(rows, columns):
    return {"weight": of_type(torch.int8, rows, columns), "weight_scale": of_type(torch.float32, rows, 1)}


def of_compressed_tensors(layout, weights, activations=None):
    group = {"targets": ["Linear"], "input_activations": activations, "output_activations": None, "weights": weights}
    return {"quant_method": "compressed-tensors", "format": layout, "ignore": ["lm_head"],
            "quantization_status": "compressed", "config_groups": {"group_0": group}}


# name: (a layer's tensors, quantization_config)
LAYOUTS = {
    "fp8": (fp8, {"quant_method": "fp8", "activation_scheme": "static"}),
    "fp8-blocks": (fp8_blocks, {"quant_method": "fp8", "activation_scheme": "dynamic",
                                "weight_block_size": [128, 128]}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}),
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True,
                    "damp_percent": 0.01}),
    "compressed-int4": (packed, of_compressed_tensors("pack-quantized", {
        "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP})),
    "compressed-int8": (int8, of_compressed_tensors("int-quantized", {
        "num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}, {
        "num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True})),
}


def write_llama(folder, layout, seed=6):
    """Write a Llama whose linear layers have a layout of LAYOUTS."""
    torch.manual_seed(seed)
    make, config = LAYOUTS[layout]
    tensors = {"model.embed_tokens.weight": of_type(torch.bfloat16, VOCAB, HIDDEN),
               "lm_head.weight": of_type(torch.bfloat16, VOCAB, HIDDEN),
               "model.norm.weight": of_type(torch.bfloat16, HIDDEN)}
    for layer in range(LAYERS):
        base = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{base}.{norm}.weight"] = of_type(torch.bfloat16, HIDDEN)
        for name, shape in LINEAR.items():
            tensors.update({f"{base}.{name}.{part}": tensor for part, tensor in make(*shape).items()})
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FFN,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
        "vocab_size": VOCAB, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5,
        "max_position_embeddings": 512, "quantization_config": config}))


def write_gpt_oss(folder, experts=4, ffn=512):
    """Write a gpt-oss whose experts are in MXFP4: blocks of 32 values in 16 bytes, with a scale of one byte each."""
    torch.manual_seed(6)
    tensors = {"model.embed_tokens.weight": of_type(torch.bfloat16, VOCAB, HIDDEN),
               "lm_head.weight": of_type(torch.bfloat16, VOCAB, HIDDEN),
               "model.norm.weight": of_type(torch.bfloat16, HIDDEN)}
    for layer in range(LAYERS):
        base = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{base}.{norm}.weight"] = of_type(torch.bfloat16, HIDDEN)
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            rows, columns = LINEAR[f"self_attn.{name}"]
            tensors[f"{base}.self_attn.{name}.weight"] = of_type(torch.bfloat16, rows, columns)
            tensors[f"{base}.self_attn.{name}.bias"] = of_type(torch.bfloat16, rows)
        tensors[f"{base}.self_attn.sinks"] = of_type(torch.bfloat16, HEADS)
        tensors[f"{base}.mlp.router.weight"] = of_type(torch.bfloat16, experts, HIDDEN)
        tensors[f"{base}.mlp.router.bias"] = of_type(torch.bfloat16, experts)
        for name, rows, columns in (("gate_up_proj", 2 * ffn, HIDDEN), ("down_proj", HIDDEN, ffn)):
            expert = f"{base}.mlp.experts.{name}"
            tensors[f"{expert}_blocks"] = of_type(torch.uint8, experts, rows, columns // 32, 16)
            tensors[f"{expert}_scales"] = of_type(torch.uint8, experts, rows, columns // 32)
            tensors[f"{expert}_bias"] = of_type(torch.bfloat16, experts, rows)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": HIDDEN,
        "intermediate_size": ffn, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "vocab_size": VOCAB, "num_local_experts": experts,
        "num_experts_per_tok": 2, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5,
        "max_position_embeddings": 512, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"],
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}))
