"""Small models for tests of inference engines, and processes that load them as ranks."""
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

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


class Engine:
    """A process that has imported an engine by a script, and forks the ranks of each run (engine_ranks.py)."""

    def __init__(self, script, folder):
        """Start the script. Output and errors of its ranks go below the folder."""
        self.folder, self.runs = folder, 0
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CLIENT), str(PACKAGES)])}
        read, write = os.pipe()
        with open(folder / "import.err", "w") as errors:
            self.process = subprocess.Popen([sys.executable, "-W", "ignore", str(script), str(write)], env=environment,
                                            stdin=subprocess.PIPE, stdout=errors, stderr=errors, pass_fds=[write],
                                            text=True, start_new_session=True)
        os.close(write)
        self.statuses = open(read)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        """End the process, with ranks that still run."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.statuses.close()

    def run(self, folder, url, tp, way=""):
        """Run all ranks at once, and return what each printed last, as JSON."""
        self.runs += 1
        store = self.folder / f"store-{self.runs}"  # by which ranks find each other; a port could be another's by then
        outputs = [self.folder / f"rank-{rank}" for rank in range(tp)]
        ranks = [[str(output), str(folder), url, str(rank), str(tp), str(store), way]
                 for rank, output in enumerate(outputs)]
        self.process.stdin.write(json.dumps(ranks) + "\n")
        self.process.stdin.flush()
        statuses = self.statuses.readline()
        assert statuses, (self.folder / "import.err").read_text()[-3000:]
        assert json.loads(statuses) == [0] * tp, Path(f"{outputs[0]}.err").read_text()[-3000:]
        return [json.loads(output.read_text().splitlines()[-1]) for output in outputs]
