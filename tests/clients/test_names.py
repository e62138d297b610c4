"""One model by each of its names, by stock clients: `demo` and `local/demo`, and a folder of a repository."""
import re
import subprocess

import boto3
import botocore
import botocore.config
import pytest

import harness
from client import NEWEST, ClientError, Worker, digests, quiet_environment, sha256, wait_hashed

NAMES = ["demo", "local/demo"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Returns a root, and the answer for a model in a folder of a repository before it was saved."""
    root = tmp_path_factory.mktemp("names") / "root"
    (root / "demo/unet").mkdir(parents=True)
    (root / "demo/config.json").write_text('{"model_type": "none"}\n')
    harness.write_by_hand(root / "demo/model.safetensors", [harness.tensor("w", "F32", (30, 40))])
    harness.write_by_hand(root / "demo/unet/model.safetensors", [harness.tensor("u", "F32", (3, 4))])
    (root / "both").mkdir()
    (root / "both/which.txt").write_text("both")
    (root / "local/both").mkdir(parents=True)
    (root / "local/both/which.txt").write_text("local/both")
    (root / "tiny/pipe").mkdir(parents=True)
    (root / "tiny/pipe/model_index.json").write_text("{}\n")
    with Worker("calls_transformers", HF_HUB_OFFLINE="1") as w:
        made = w.make(kind="bert", folder=str(root / "tiny/pipe"))
    harness.age(root)
    return root, made


@pytest.fixture(scope="module")
def srv(saved):
    with harness.Server(saved[0], "--s3-listen", "127.0.0.1:0") as s:
        wait_hashed(s, "local/demo", "tiny/pipe", "local/both", "both")
        yield s


def s3_endpoint(server):
    ports = re.findall(r"http://127\.0\.0\.1:(\d+)", server.stderr())
    return f"http://127.0.0.1:{next(p for p in ports if int(p) != server.port)}"


@pytest.mark.parametrize("name", NAMES)
def test_hf_download(srv, saved, tmp_path, name):
    env = quiet_environment(tmp_path, HF_ENDPOINT=f"http://127.0.0.1:{srv.port}", NO_COLOR="1")
    done = subprocess.run([str(NEWEST.parent / "hf"), "download", name, "--local-dir", str(tmp_path / "got")], env=env,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    got = {k: v for k, v in digests(tmp_path / "got").items() if not k.startswith(".cache")}
    assert got == digests(saved[0] / "demo")


@pytest.mark.parametrize("name", NAMES)
def test_one_id_in_answers(srv, hub, name):
    assert hub.model_info(repo_id=name)["id"] == "local/demo"
    assert srv.get(f"/models/{name}").json()["id"] == "demo"


def test_each_is_listed_once(hub):
    assert sorted(hub.models()) == ["both", "local/both", "local/demo", "tiny/pipe"]


def test_the_directory_owns_the_name(hub, tmp_path):
    for name in ("both", "local/both"):
        got = hub.download(repo_id=name, filename="which.txt", cache_dir=str(tmp_path))
        assert open(got, encoding="ascii").read() == name


@pytest.mark.parametrize("form", ["bert", "bert-sharded", "bert-bin"])
def test_transformers_loads_a_folder(srv, saved, tmp_path, form):
    with Worker("calls_transformers", HF_ENDPOINT=f"http://127.0.0.1:{srv.port}") as w:
        assert w.load(kind="bert", name="tiny/pipe", subfolder=form, cache_dir=str(tmp_path)) == saved[1]
    assert srv.get(f"/models/tiny/pipe/{form}").json()["id"] == f"tiny/pipe/{form}"


def test_download_of_a_folder(hub, saved, tmp_path):
    got = hub.download(repo_id="local/demo", filename="model.safetensors", subfolder="unet", cache_dir=str(tmp_path))
    assert sha256(got) == sha256(saved[0] / "demo/unet/model.safetensors")


def test_a_folder_is_no_repository(hub):
    """The client itself refuses three segments; for two it asks the server, and shows the server's message."""
    with pytest.raises(ClientError, match="Repo id must be in the form"):
        hub.model_info(repo_id="tiny/pipe/bert")
    with pytest.raises(ClientError,
                       match='it is the folder "unet" of "local/demo": ask for that with subfolder="unet"'):
        hub.model_info(repo_id="demo/unet")


@pytest.mark.parametrize("bucket, prefix", [("demo", ""), ("local", "demo/")])
def test_boto3(srv, saved, tmp_path, bucket, prefix):
    s3 = boto3.client("s3", endpoint_url=s3_endpoint(srv), region_name="us-east-1", config=botocore.config.Config(
        signature_version=botocore.UNSIGNED, s3={"addressing_style": "path"}))
    keys = [c["Key"] for c in s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]]
    assert keys == sorted(prefix + n for n in digests(saved[0] / "demo"))
    s3.download_file(bucket, prefix + "model.safetensors", str(tmp_path / "m"))
    assert sha256(tmp_path / "m") == sha256(saved[0] / "demo/model.safetensors")
    ranks = s3.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}shards/none/tp1/")["Contents"]
    assert f"{prefix}shards/none/tp1/model-rank-0-part-0.safetensors" in [c["Key"] for c in ranks]
    assert sorted(b["Name"] for b in s3.list_buckets()["Buckets"]) == ["both", "local", "tiny"]


@pytest.mark.parametrize("place", ["s3://demo/", "s3://local/demo/"])
def test_aws_cp(srv, saved, tmp_path, place):
    env = quiet_environment(tmp_path, AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any", LC_ALL="C.UTF-8")
    done = subprocess.run(["/usr/bin/aws", "--endpoint-url", s3_endpoint(srv), "s3", "cp", "--recursive", place,
                           str(tmp_path / "got")], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert digests(tmp_path / "got") == digests(saved[0] / "demo")
