"""What tests call of transformers: making tiny models with fixed seeds, and loading them by path or from the Hub."""
import hashlib

import torch
import transformers

transformers.logging.set_verbosity_error()
SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
KINDS = {
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig, {**SMALL, "num_key_value_heads": 2}),
    "qwen3": (transformers.Qwen3ForCausalLM, transformers.Qwen3Config,
              {**SMALL, "num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": True}),
    "bert": (transformers.BertForMaskedLM, transformers.BertConfig, SMALL),
}
LOADERS = {"llama": transformers.AutoModelForCausalLM, "qwen3": transformers.AutoModelForCausalLM,
           "bert": transformers.AutoModelForMaskedLM}


def make(kind, folder):
    """The same model three times: one safetensors file, several, and pickles alone."""
    torch.manual_seed(sorted(KINDS).index(kind))
    model_class, config_class, sizes = KINDS[kind]
    model = model_class(config_class(**sizes)).eval()
    for parameter in model.parameters():        # biases and norms, too, shall differ from what a new model has
        parameter.data.normal_(0, 0.1)
    model.save_pretrained(f"{folder}/{kind}")
    model.save_pretrained(f"{folder}/{kind}-sharded", max_shard_size="20KB")
    model.config.save_pretrained(f"{folder}/{kind}-bin")
    torch.save(model.state_dict(), f"{folder}/{kind}-bin/pytorch_model.bin")
    return fingerprint(model)


def fingerprint(model):
    """SHA-256 of every weight, and of what the model answers to some tokens."""
    def digest(t):
        return hashlib.sha256(t.detach().contiguous().numpy().tobytes()).hexdigest()
    with torch.no_grad():
        logits = model(torch.arange(12).reshape(2, 6)).logits
    return {"weights": {n: digest(t) for n, t in model.state_dict().items()}, "logits": digest(logits)}


def load(kind, name, **kw):
    return fingerprint(LOADERS[kind].from_pretrained(name, **kw).eval())
