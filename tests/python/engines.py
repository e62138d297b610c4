"""Small models for tests of inference engines, and processes that load them as ranks."""
import json
import os
import socket
import subprocess
import sys

import transformers
from conftest import CLIENT, REPO

PACKAGES = REPO / ".venv-engines"
SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 512, "tie_word_embeddings": False}
MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES, head_dim=32)),
    "mixtral": lambda: transformers.MixtralForCausalLM(transformers.MixtralConfig(**SIZES, num_local_experts=4)),
}


def run(script, folder, url, tp, way=""):
    """Run `script FOLDER URL RANK TP PORT WAY` for all ranks at once, and return what each printed last, as JSON."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CLIENT), str(PACKAGES)])}
    ranks = []
    for rank in range(tp):
        arguments = [str(folder), url, str(rank), str(tp), str(port), way]
        ranks.append(subprocess.Popen([sys.executable, "-W", "ignore", str(script), *arguments], env=environment,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    done = [rank.communicate(timeout=240) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * tp, done[0][1][-3000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in done]
