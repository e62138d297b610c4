"""Small models for tests of inference engines, and processes that load them as ranks."""
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import torch
import transformers
from conftest import CLIENT, REPO  # which sets the path of warm_python

import warm_python

PACKAGES = REPO / ".venv-engines"
SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 512, "tie_word_embeddings": False}
MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES, head_dim=32)),
    "mixtral": lambda: transformers.MixtralForCausalLM(transformers.MixtralConfig(**SIZES, num_local_experts=4)),
}

TIED = {**SIZES, "tie_word_embeddings": True}
DEEPSEEK = {**SIZES, "num_key_value_heads": 4, "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
            "v_head_dim": 32, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
            "first_k_dense_replace": 1, "n_shared_experts": 2, "n_group": 2, "topk_group": 1}
NOAUX = {"topk_method": "noaux_tc", "scoring_func": "sigmoid"}  # in every published config.json of DeepSeek-V3
TRANSFORMER = {"hidden_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 500}


def configured(name, config=None, **settings):
    """Return how to make the model of a class of transformers, with random weights, and what its config.json needs
    beside."""
    kind = getattr(transformers, f"{name}ForCausalLM")
    return lambda: (kind(kind.config_class(**settings)), config or {})


# Every architecture that the engine vllm has a table for, in each of its forms: tied heads, biases, fused queries.
ARCHITECTURES = {
    "llama": configured("Llama", **{**SIZES, "vocab_size": 500}),
    "llama-tied": configured("Llama", **TIED),
    "llama-biases": configured("Llama", **SIZES, attention_bias=True, mlp_bias=True),
    "mistral": configured("Mistral", **SIZES),
    "mistral-tied": configured("Mistral", **TIED),
    "qwen2": configured("Qwen2", **SIZES),
    "qwen2-tied": configured("Qwen2", **TIED),
    "qwen3": configured("Qwen3", **SIZES, head_dim=48),
    "qwen3-tied": configured("Qwen3", **TIED, head_dim=32),
    "gemma2": configured("Gemma2", **TIED, head_dim=32),
    "gemma3": configured("Gemma3", **TIED, head_dim=32),
    "gemma3-untied": configured("Gemma3", **SIZES, head_dim=32),
    "phi3": configured("Phi3", **SIZES, pad_token_id=0),
    "phi3-tied": configured("Phi3", **TIED, pad_token_id=0),
    "mixtral": configured("Mixtral", **SIZES, num_local_experts=4),
    "qwen2_moe": configured("Qwen2Moe", **SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64,
                            shared_expert_intermediate_size=128),
    "qwen3_moe": configured("Qwen3Moe", **SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64,
                            head_dim=32),
    "deepseek_v2": configured("DeepseekV2", **DEEPSEEK, q_lora_rank=48),
    "deepseek_v2-lite": configured("DeepseekV2", **DEEPSEEK, q_lora_rank=None),
    "deepseek_v3": configured("DeepseekV3", NOAUX, **DEEPSEEK, q_lora_rank=48),
    "deepseek_v3-lite": configured("DeepseekV3", NOAUX, **DEEPSEEK, q_lora_rank=None),
    "bloom": configured("Bloom", hidden_size=128, n_layer=2, n_head=4, vocab_size=500),
    "falcon-7b": configured("Falcon", **TRANSFORMER),
    "falcon-40b": configured("Falcon", **TRANSFORMER, num_kv_heads=2, new_decoder_architecture=True),
    "falcon-rw": configured("Falcon", **TRANSFORMER, multi_query=False, alibi=True, bias=True, parallel_attn=False),
    "falcon-untied": configured("Falcon", **TRANSFORMER, tie_word_embeddings=False),
}


def write_architecture(name, folder, dtype, seed=4):
    """Write the model with weights that differ everywhere, also where transformers begins with ones or zeros."""
    torch.manual_seed(seed)
    model, config = ARCHITECTURES[name]()
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            torch.nn.init.normal_(tensor)
    model.to(dtype)
    for key, tensor in model.state_dict().items():
        if key.endswith("e_score_correction_bias"):  # F32 whatever the weights are, as published
            model.get_submodule(key.rpartition(".")[0]).e_score_correction_bias = tensor.float()
    model.save_pretrained(folder)
    if config:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **config}))


class Engine:
    """A process that has imported an engine by a script, and forks the ranks of each run (engine_ranks.py)."""

    def __init__(self, script, folder, **variables):
        """Start the script with these variables in its environment. Output and errors of its ranks go below the
        folder."""
        self.folder, self.runs = folder, 0
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CLIENT), str(PACKAGES)]), **variables}
        self.socket, its_input = socket.socketpair()
        with open(folder / "import.err", "w") as errors, its_input:
            self.process = subprocess.Popen([*warm_python.command(), str(script)], env=environment, stdin=its_input,
                                            stdout=errors, stderr=errors, start_new_session=True)
        self.statuses = self.socket.makefile()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        """End the process, with ranks that still run."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.statuses.close()
        self.socket.close()

    def begin(self, folder, url, tp, way="", **variables):
        """Begin all ranks at once, with these variables in their environment (None: unset), and return the file of each
        one's output."""
        self.runs += 1
        store = self.folder / f"store-{self.runs}"  # by which ranks find each other; a port could be another's by then
        outputs = [self.folder / f"rank-{rank}" for rank in range(tp)]
        ranks = [[str(output), variables, str(folder), url, str(rank), str(tp), str(store), way]
                 for rank, output in enumerate(outputs)]
        self.socket.sendall(json.dumps(ranks).encode() + b"\n")
        return outputs

    def wait(self):
        """Return the exit status of each rank, when all have ended."""
        statuses = self.statuses.readline()
        assert statuses, (self.folder / "import.err").read_text()[-3000:]
        return json.loads(statuses)

    def run(self, folder, url, tp, way="", **variables):
        """Run all ranks at once as `begin` does, and return what each printed last, as JSON."""
        outputs = self.begin(folder, url, tp, way, **variables)
        assert self.wait() == [0] * tp, Path(f"{outputs[0]}.err").read_text()[-3000:]
        return [json.loads(output.read_text().splitlines()[-1]) for output in outputs]
