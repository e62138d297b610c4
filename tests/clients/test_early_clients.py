"""Stock clients in the first seconds of a server with files that were written just before: they retry, or show why."""
import os
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config

from harness import Server, s3_port, safetensors_bytes, tensor

MESSAGE = "the server is not ready yet: files that changed just before its start are not published"


@pytest.fixture(params=["2"])
def early(tmp_path, request):
    """A server that will be ready soon. The parameter is --settle in seconds."""
    model = tmp_path / "root/org/young"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(safetensors_bytes([tensor("w", "F32", [4])]))
    with Server(tmp_path / "root", "--s3-listen", "127.0.0.1:0", settle=request.param, ready=False) as s:
        s.wait_for(lambda: s.get("/readyz").json()["scan"]["completed"] > 0, "the first scan")
        yield s


def run(s, tmp_path, *args, **env):
    """Run a program of the virtual environment, and return its result with all that it says as `text`."""
    env = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{s.port}", "HF_HOME": str(tmp_path / "hf"), **env}
    done = subprocess.run(args, env=env, capture_output=True, text=True, timeout=120, check=False)
    done.text = done.stdout + done.stderr
    return done


def test_hf_hub_download_tries_again(early, tmp_path):
    code = 'from huggingface_hub import hf_hub_download as get; print(open(get("org/young", "config.json")).read())'
    done = run(early, tmp_path, sys.executable, "-c", code)
    assert done.returncode == 0 and done.stdout == "{}\n", done.text


@pytest.mark.parametrize("early", ["10"], indirect=True)
def test_hf_download_shows_the_reason(early, tmp_path):
    """It asks for the description first, and does not try again; it does not say that there is no such repository."""
    args = [Path(sys.executable).parent / "hf", "download", "org/young", "--local-dir", tmp_path / "out"]
    done = run(early, tmp_path, *args)
    assert done.returncode != 0 and MESSAGE in " ".join(done.text.split()) and "404" not in done.text, done.text
    early.wait_for(lambda: early.get("/readyz").status == 200, "the server is ready", 30)
    assert run(early, tmp_path, *args).returncode == 0


def test_boto3_tries_again(early):
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{s3_port(early)}", region_name="us-east-1",
                          config=Config(signature_version=UNSIGNED, s3={"addressing_style": "path"},
                                        retries={"mode": "standard", "max_attempts": 8}))
    assert client.get_object(Bucket="org", Key="young/config.json")["Body"].read() == b"{}"
    assert [b["Name"] for b in client.list_buckets()["Buckets"]] == ["org"]
    assert client.list_objects_v2(Bucket="org")["KeyCount"] == 2


@pytest.mark.parametrize("early", ["10"], indirect=True)
def test_oras_shows_the_reason(early, tmp_path):
    code = ("import sys, oras.client; c = oras.client.OrasClient(insecure=True); "
            "c.pull(target=sys.argv[1], outdir=sys.argv[2])")
    done = run(early, tmp_path, sys.executable, "-c", code, f"127.0.0.1:{early.port}/org/young:latest", tmp_path / "o")
    assert done.returncode != 0 and MESSAGE in done.text and "Service Unavailable" in done.text, done.text
