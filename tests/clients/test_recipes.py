"""The commands of docs/recipes.md, run as they are printed, against the demo model."""
import json
import re
import subprocess
import sys

import pytest
from safetensors import safe_open

import harness
from client import digests, quiet_environment, s3_port, wait_hashed


def shell_of(heading):
    """Return the sh blocks of one recipe."""
    text = (harness.REPO / "docs/recipes.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks, heading
    return blocks


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("recipes") / "models"
    subprocess.run([sys.executable, harness.REPO / "scripts/demo_model.py", root / "demo"], check=True)
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with harness.Server(root, "--s3-listen", "127.0.0.1:0") as s:
        wait_hashed(s, "local/demo")
        yield s


def run(srv, folder, block):
    """Run commands in an empty folder, with the clients of the test environment and this server's addresses."""
    block = block.replace("127.0.0.1:8080", f"127.0.0.1:{srv.port}").replace("127.0.0.1:8081",
                                                                             f"127.0.0.1:{s3_port(srv)}")
    env = quiet_environment(folder, PATH=f"{harness.REPO}/.venv/bin:/usr/bin:/bin")
    got = subprocess.run(["bash", "-e", "-u", "-o", "pipefail", "-c", block], cwd=folder, env=env, capture_output=True,
                         text=True, timeout=300, check=False)
    assert got.returncode == 0, f"{block}\n{got.stdout}\n{got.stderr}"
    return got.stdout


def test_mirror(srv, root, tmp_path):
    """The Hub's client and an S3 client fetch every file; a second run of the latter fetches nothing."""
    by_hub, by_s3 = shell_of("Mirror a server")
    run(srv, tmp_path, by_hub)
    assert digests(tmp_path / "mirror/demo") == digests(root / "demo")
    assert "download: " in run(srv, tmp_path, by_s3)
    assert digests(tmp_path / "mirror-s3/local/demo") == digests(root / "demo")
    assert run(srv, tmp_path, by_s3) == ""


def test_rank_files_for_vllm(srv, root, tmp_path):
    """The files that sharded_state needs: config.json, and model-rank-{rank}-part-0.safetensors of both ranks."""
    block, why = shell_of("Rank files for vLLM")
    run(srv, tmp_path, block + "\ntest -d demo")      # `vllm serve demo` needs this folder
    assert json.loads(run(srv, tmp_path, why))["tensors"]
    assert "cannot be divided evenly among 4096 ranks" in run(srv, tmp_path, why.replace("tp2", "tp4096"))
    config = json.loads((tmp_path / "demo/config.json").read_text())
    for rank in range(2):
        with safe_open(tmp_path / f"demo/model-rank-{rank}-part-0.safetensors", "pt") as f:
            shape = f.get_slice("model.embed_tokens.weight").get_shape()
        assert shape[1] == config["hidden_size"] and shape[0] < config["vocab_size"]
