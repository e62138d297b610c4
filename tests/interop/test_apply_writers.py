"""`tensord apply` beside ModelExpress's own trainer and receiver. (slime publishes no package: test_apply.py writes its
form.)"""
import json
import os
import subprocess
from pathlib import Path

import pytest

import warm_python
from deltas import INDEX
from harness import REPO
from pulls import tree_of
from test_apply import apply, refused

HERE = Path(__file__).parent


def mx(*args):
    """Run mx_versions.py with the packages of .venv-writers. Return what it prints."""
    command = [*warm_python.command(), HERE / "mx_versions.py", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "PYTHONPATH": str(REPO / ".venv-writers")})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """A full version with the name "full", and the deltas 1 to 5."""
    at = tmp_path_factory.mktemp("mx")
    mx("publish", at, 5)
    return at


def test_deltas_of_modelexpress(versions, tmp_path):
    """Each version has the bytes of the trainer's weights, and its receiver makes the same files."""
    deltas = [versions / str(i) for i in range(1, 6)]
    for i in range(1, 6):
        out = tmp_path / f"out{i}"
        report, _ = apply("--base-version", "full", versions / "full", *deltas[:i], "-o", out)
        assert (report["version"], report["changed_tensors"]) == (str(i), 3)
        assert json.loads(mx("read", out)) == json.loads((deltas[i - 1] / "hashes.json").read_text())
        index = json.loads((out / INDEX).read_text())
        assert index["metadata"]["version"] == str(i)
        assert set(index["weight_map"]) == {"embed.weight", "frozen", "layers.0.fp8", "layers.0.w"}
    mx("receive", versions, "full", *range(1, 6))
    received, made = tree_of(versions / "received"), tree_of(tmp_path / "out5")
    assert json.loads(mx("read", versions / "received")) == json.loads(mx("read", tmp_path / "out5"))
    for name in set(made) - {INDEX, "hashes.json"}:     # headers differ: its receiver keeps the old checksums there
        n = 8 + int.from_bytes(made[name][:8], "little")
        assert len(made[name]) == len(received[name]) and made[name][n:] == received[name][n:]


def test_chains_of_modelexpress_that_do_not_fit(versions, tmp_path):
    full, one, two = versions / "full", versions / "1", versions / "2"
    refused(tmp_path / "out", full, one, says="say it by --base-version")
    refused(tmp_path / "out", "--base-version", "full", full, two, says='is for version "1"')
    refused(tmp_path / "out", "--base-version", "full", full, one, full, says="is no delta")
