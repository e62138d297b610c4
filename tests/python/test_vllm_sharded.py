"""Rank files by vLLM's own loaders of sharded states, for every architecture of the engine's table."""
import re
import subprocess
import sys
from pathlib import Path

import engines
import pytest
import torch
import transformers
from conftest import REPO, url_of
from safetensors import safe_open

from harness import s3_port, tensord_binary

RUN = Path(__file__).with_name("vllm_run.py")
TABLES = sorted((REPO / "slicing" / "engine").glob("engine_vllm_*.c"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with engines.Engine(RUN, tmp_path_factory.mktemp("vllm")) as engine:
        yield engine.run


def pull(server, model, engine, tp, folder):
    """Pull all ranks' files into one folder, as docs/recipes.md does."""
    for rank in range(tp):
        subprocess.run([tensord_binary(), "pull", f"http://127.0.0.1:{server.port}", model, "--engine", engine, "--tp",
                        str(tp), "--rank", str(rank), "-o", str(folder), "--quiet"], check=True, timeout=120)


def described(path):
    """Return the types and shapes of a file's tensors, as vllm_run.py gives those of a state."""
    with safe_open(path, "pt") as file:
        return {name: [str(tensor.dtype), list(tensor.shape)]
                for name in file.keys() for tensor in [file.get_tensor(name)]}


def test_every_architecture_of_the_table_is_tried():
    """The others have no layout: GPT-NeoX, which runs through Transformers, and gpt-oss."""
    table = set(re.findall(r'^    \{"(\w+)",$|^    \{"(\w+)", ', TABLES[-1].read_text(), re.M))
    tried = {type(model()[0]).__name__ for model in engines.ARCHITECTURES.values()}
    assert {a or b for a, b in table} - tried == {"GPTNeoXForCausalLM", "GptOssForCausalLM"}


def test_the_newest_table_is_of_the_pinned_vllm():
    """A newer vLLM in the requirements needs a new table, or a new name of the newest one (docs/extending.md)."""
    pinned = re.search(r"^vllm==(\d+)\.(\d+)\.", (REPO / "tests" / "requirements-engines.txt").read_text(), re.M)
    names = re.findall(r'\.name = "vllm@(\d+)\.(\d+)"', "".join(path.read_text() for path in TABLES))
    newest = max((int(major), int(minor)) for major, minor in names)
    assert (int(pinned[1]), int(pinned[2])) <= newest


def check_ranks(server, run, model, folder, tp, load_format="sharded_state"):
    """Pull all ranks' files, and have each loaded: nothing may be missing, too much, or of other bytes."""
    pull(server, "m", "vllm", tp, folder)
    names = [f"model-rank-{rank}-part-0.safetensors" for rank in range(tp)]
    assert sorted(path.name for path in folder.glob("*.safetensors")) == names
    for name, found in zip(names, run(model, str(folder), tp, load_format), strict=True):
        assert found.get("error") is None and found["wrong"] == [], f"{name}: {found}"
        assert described(folder / name) == found["state"]


@pytest.mark.parametrize("name", engines.ARCHITECTURES)
def test_vllm_loads_two_ranks_as_sharded_states(serve, run, tmp_path, name):
    engines.write_architecture(name, serve.root / "m", torch.bfloat16)
    check_ranks(serve(), run, serve.root / "m", tmp_path / "ranks", 2)


@pytest.mark.parametrize("name,tp,dtype", [("llama", 1, torch.float16), ("llama", 4, torch.bfloat16),
                                           ("deepseek_v3", 1, torch.bfloat16), ("qwen2_moe", 4, torch.float16)])
def test_vllm_loads_other_numbers_of_ranks(serve, run, tmp_path, name, tp, dtype):
    """Four ranks share two key-value heads."""
    engines.write_architecture(name, serve.root / "m", dtype)
    check_ranks(serve(), run, serve.root / "m", tmp_path / "ranks", tp)


@pytest.mark.parametrize("tp", [2, 8])
def test_vllm_loads_the_model_of_the_readme(serve, run, tmp_path, tp):
    """The model that ./serve.sh makes, whose rank file for 8 ranks README.md fetches."""
    subprocess.run([sys.executable, REPO / "scripts" / "demo_model.py", serve.root / "m"], check=True, timeout=60)
    pull(serve(), "m", "vllm", tp, tmp_path / "ranks")
    for found in run(serve.root / "m", str(tmp_path / "ranks"), tp, "sharded_state"):
        assert found.get("error") is None and found["wrong"] == [], found


def test_vllm_reads_its_part_of_what_no_rank_file_can_be_made_for(serve, run):
    """The way on that the refusal names, for the architecture that only vllm@0.13 has a layout for. test_vllm.py has
    quantised models."""
    torch.manual_seed(4)
    config = transformers.GPTNeoXConfig(hidden_size=128, intermediate_size=512, num_hidden_layers=2,
                                        num_attention_heads=4, vocab_size=512)
    transformers.GPTNeoXForCausalLM(config).to(torch.bfloat16).save_pretrained(serve.root / "m")
    server = serve()
    refused = server.get("/models/m/shards/vllm/tp2/rank-0.safetensors")
    assert refused.status == 422
    assert refused.json()["error"]["message"].endswith("; vLLM reads its part by --load-format tensord")
    assert server.get("/models/m/shards/vllm@0.13/tp2/rank-0.safetensors").status == 200
    assert [rank["wrong"] for rank in run(serve.root / "m", url_of(server, "m"), 2)] == [[], []]


@pytest.mark.parametrize("name", ["llama", "llama-tied", "qwen2_moe", "deepseek_v3", "bloom"])
def test_the_streamer_loads_two_ranks(serve, run, tmp_path, name):
    """Run:ai's streamer, by the same loader, from a folder."""
    engines.write_architecture(name, serve.root / "m", torch.bfloat16)
    check_ranks(serve(), run, serve.root / "m", tmp_path / "ranks", 2, "runai_streamer_sharded")


def test_the_streamer_reads_ranks_from_s3(serve, run, tmp_path):
    """As docs/recipes.md and docs/s3.md print it: no file of the model on a disk of the rank's."""
    engines.write_architecture("qwen3-tied", serve.root / "m", torch.bfloat16)
    server = serve("--s3-listen", "127.0.0.1:0")
    endpoint = f"http://127.0.0.1:{s3_port(server)}"
    settings = {"AWS_ENDPOINT_URL": endpoint, "RUNAI_STREAMER_S3_ENDPOINT": endpoint,
                "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0", "AWS_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any",
                "VLLM_ASSETS_CACHE": str(tmp_path)}
    for name in ("vllm", "vllm@0.33"):
        source = f"s3://local/m/shards/{name}/tp2"
        found = run(serve.root / "m", source, 2, "runai_streamer_sharded", **settings)
        assert [rank.get("error", rank.get("wrong")) for rank in found] == [[], []], name
