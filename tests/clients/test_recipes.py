"""The commands of docs/recipes.md, run as they are printed, against the demo model."""
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from safetensors import safe_open

import harness
from client import digests, quiet_environment, s3_port, wait_hashed
from registry import BUSYBOX, INDEX, MANIFEST, Box, DockerEngine, ReferenceRegistry
from signing import TokensFile


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


def command(srv, folder, block, **more):
    """Return the arguments that run commands in an empty folder, with the clients of the test environment and this
    server's main address. more: variables of the environment."""
    block = block.replace("127.0.0.1:8080", f"127.0.0.1:{srv.port}")
    env = quiet_environment(folder, **{**more, "PATH": f"{harness.REPO}/.venv/bin:/usr/bin:/bin"})
    return {"args": ["bash", "-e", "-u", "-o", "pipefail", "-c", block], "cwd": folder, "env": env, "text": True}


def run(srv, folder, block, **more):
    """Run commands as `command` says, with the address for S3 too, and return what they print."""
    block = block.replace("127.0.0.1:8081", f"127.0.0.1:{s3_port(srv)}") if ":8081" in block else block
    got = subprocess.run(**command(srv, folder, block, **more), capture_output=True, timeout=300, check=False)
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


def test_follow_a_trainer(tmp_path, root):
    """The loop reports each checkpoint once, as soon as the trainer's line has published it, and ends with the
    model."""
    follow, publish, names = shell_of("Follow a trainer")
    place, folder = tmp_path / "root", tmp_path / "folder"
    shutil.copytree(root, place)
    shutil.copytree(root / "demo", place / "run/step-2000", copy_function=shutil.copy2)
    folder.mkdir()
    with harness.Server(place, settle="0", rescan="0") as s:
        listed = run(s, folder, "tag=\n" + names)
        of_list, of_name = map(json.loads, listed.splitlines())
        assert [m["id"] for m in of_list["models"]] == ["run/step-2000"] == [of_name["id"]]
        with subprocess.Popen(**command(s, folder, follow), stdout=subprocess.PIPE) as loop:
            for step in range(3):
                assert re.match(r"next: \d{4}-", loop.stdout.readline())
                s.wait_for(lambda: s.gauge("tensord_waiters") == 1, "the loop waits")
                if step < 2:
                    (place / "demo/.new").write_text(f'{{"step": {step}}}')
                    os.replace(place / "demo/.new", place / "demo/trainer_state.json")
                else:
                    os.rename(place / "demo", place / "gone")
                run(s, folder, publish)
            assert loop.stdout.read() == "the model is gone\n"
        assert loop.returncode == 0


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


def test_one_rank_for_each_job(root, tmp_path):
    """Each URL answers its file, without a token."""
    by_url, by_s3 = shell_of("One rank's file for each job")
    tokens = TokensFile(tmp_path / "tokens.json").add("trainer", ["demo"])
    access, secret = tokens.s3_keys("trainer")
    given = f"export PATH={harness.tensord_binary().parent}:$PATH S3_ACCESS_KEY={access} S3_SECRET_KEY={secret}\n"
    with harness.Server(root, "--s3-listen", "127.0.0.1:0", "--tokens", tokens) as s:
        run(s, tmp_path, given + by_url)
        for rank in range(2):
            wanted = s.get(f"/models/demo/shards/vllm/tp2/rank-{rank}.safetensors", tokens.bearer("trainer"))
            assert wanted.status == 200 and (tmp_path / f"rank-{rank}.safetensors").read_bytes() == wanted.body
        url = run(s, tmp_path, given + by_s3).strip()
        got = run(s, tmp_path, f"curl --fail --silent --output from-s3 '{url}'")
        assert got == "" and (tmp_path / "from-s3").read_bytes() == (tmp_path / "rank-0.safetensors").read_bytes()


@pytest.fixture(scope="module")
def box():
    if os.geteuid() != 0:
        pytest.fail("running containers needs root here")
    with Box() as b:
        b.import_busybox()
        yield b


def test_from_a_registry(srv, root, box, tmp_path):
    """The files, a copy in another registry, a volume of podman, and files by Docker."""
    files, copy, volume, docker = shell_of("From a registry")
    run(srv, tmp_path, files)
    assert digests(tmp_path / "demo") == digests(root / "demo")
    with ReferenceRegistry(box) as theirs:
        run(srv, tmp_path, copy, **box.env, REGISTRY=theirs.address)
        for tag in ("main", "image"):
            here, there = (s.get(f"/v2/{name}/manifests/{tag}", [("Accept", INDEX), ("Accept", MANIFEST)])
                           for s, name in ((srv, "local/demo"), (theirs, "models/demo")))
            assert here.status == there.status == 200 and here.body == there.body
    said = run(srv, tmp_path, volume, **box.env, ENGINE_IMAGE=BUSYBOX)
    assert set(digests(root / "demo")) <= set(said.split())
    with DockerEngine(box) as engine:
        run(srv, tmp_path, docker, **engine.env)
    assert (tmp_path / "model.safetensors").read_bytes() == (root / "demo/model.safetensors").read_bytes()
