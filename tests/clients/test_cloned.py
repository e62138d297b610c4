"""A directory that was cloned without Git LFS: stock clients show what to do, and do not retry for ever."""
import json
import subprocess

import boto3
import botocore
import botocore.config
import pytest

import harness
from client import HUB0, NEWEST, ClientError, Worker, quiet_environment
from test_s3 import s3_port

# docs/spec.md of git-lfs
POINTER = (b"version https://git-lfs.github.com/spec/v1\n"
           b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n")
ADVICE = "git lfs pull"


@pytest.fixture(scope="module")
def srv(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cloned") / "root/ns/cloned"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
    (folder / "model.safetensors").write_bytes(POINTER)
    (folder / "tokenizer.json").write_bytes(POINTER)
    bad = folder.parent / "bad"
    bad.mkdir()
    (bad / "model.safetensors").write_bytes(b"rubbish!")
    harness.age(folder.parent)
    with harness.Server(folder.parents[1], "--s3-listen", "127.0.0.1:0") as s:
        yield s


@pytest.fixture(scope="module", params=["newest", "0.36.2"])
def hub(request, srv):
    with Worker("calls_hub", NEWEST if request.param == "newest" else HUB0,
                HF_ENDPOINT=f"http://127.0.0.1:{srv.port}") as w:
        yield w


@pytest.fixture(scope="module")
def s3(srv):
    return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{s3_port(srv)}", region_name="us-east-1",
                        config=botocore.config.Config(signature_version=botocore.UNSIGNED))


def asked(srv):
    return sum(n for name, labels, n in srv.metrics()[2]
               if name == "tensord_http_requests_total" and labels["route"] in ("hub_file", "s3_object"))


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
# shows: security.md content-lfs-pointers
def test_huggingface_hub(srv, hub, tmp_path, name):
    """The exception or its cause has the server's words; the client does not remember the file as missing."""
    before = asked(srv)
    with pytest.raises(ClientError) as caught:
        hub.download(repo_id="ns/cloned", filename=name, cache_dir=str(tmp_path))
    assert ADVICE in str(caught.value)
    assert asked(srv) - before == 1, "asked once, not again"
    assert hub.cached(repo_id="ns/cloned", filename=name, cache_dir=str(tmp_path)) is None
    assert "EntryNotFoundError" not in caught.value.kinds or "LocalEntryNotFoundError" in caught.value.kinds


def test_snapshot(hub, tmp_path):
    with pytest.raises(ClientError, match=ADVICE):
        hub.snapshot(repo_id="ns/cloned", cache_dir=str(tmp_path))


@pytest.mark.parametrize("what", [["ns/cloned"], ["ns/cloned", "tokenizer.json"]])
def test_hf_download(srv, tmp_path, what):
    env = quiet_environment(tmp_path, HF_ENDPOINT=f"http://127.0.0.1:{srv.port}")
    done = subprocess.run([str(NEWEST.parent / "hf"), "download", *what], env=env, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode != 0
    assert ADVICE in done.stderr + done.stdout


def test_what_is_whole_can_be_had(hub, tmp_path):
    assert hub.download(repo_id="ns/cloned", filename="config.json", cache_dir=str(tmp_path))


def test_boto3(srv, s3):
    before = asked(srv)
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        s3.get_object(Bucket="ns", Key="cloned/model.safetensors")
    assert caught.value.response["Error"]["Code"] == "GitLfsPointer"
    assert ADVICE in str(caught.value)
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        s3.head_object(Bucket="ns", Key="cloned/model.safetensors")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 409
    assert asked(srv) - before == 2, "each asked once, not again"


def test_aws(srv, tmp_path):
    env = quiet_environment(tmp_path, AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any")
    aws = ["aws", "--endpoint-url", f"http://127.0.0.1:{s3_port(srv)}", "s3"]
    done = subprocess.run([*aws, "cp", "--recursive", "s3://ns/cloned/", str(tmp_path / "out")], env=env,
                          capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and ADVICE in done.stderr
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["config.json"]


@pytest.mark.parametrize(
    "command, words", [(["/usr/bin/rclone", "copy", "--retries", "1", "T:ns/cloned", "out"], ["GitLfsPointer", ADVICE]),
                       ([
                           "/usr/bin/s3cmd", "--host={host}", "--host-bucket={host}", "--no-ssl", "--no-progress",
                           "--access_key=any", "--secret_key=any", "get", "s3://ns/cloned/model.safetensors", "out"
                       ], ["409 (Conflict)"])])  # this call sends HEAD, whose answer has no words
def test_tools_say_what_it_is(srv, tmp_path, command, words):
    """Clients translate S3's own codes: for InvalidObjectState rclone says that the object is in Glacier."""
    host = f"127.0.0.1:{s3_port(srv)}"
    remote = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": f"http://{host}", "ENV_AUTH": "false",
              "ACCESS_KEY_ID": "any", "SECRET_ACCESS_KEY": "any", "REGION": "us-east-1"}
    env = quiet_environment(tmp_path, **{f"RCLONE_CONFIG_T_{k}": v for k, v in remote.items()})
    before = asked(srv)
    done = subprocess.run([word.format(host=host) for word in command], env=env, cwd=tmp_path, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120)
    said = done.stdout + done.stderr
    assert done.returncode != 0 and all(word in said for word in words) and "GLACIER" not in said.upper(), said
    assert asked(srv) - before <= 12, "not again and again"


def test_lists(hub):
    """huggingface_hub's own classes accept members that they do not know."""
    assert "unreadable-files" in hub.model_info(repo_id="ns/cloned")["tags"]
    assert {e["path"] for e in hub.tree(repo_id="ns/cloned")} == {"config.json", "model.safetensors", "tokenizer.json"}
    assert hub.errors(repo_id="ns/cloned") == {"model.safetensors": True, "tokenizer.json": True}
    assert hub.errors(repo_id="ns/bad") == {"model.safetensors": False}


def test_what_does_not_parse_can_be_had(hub, srv, s3, tmp_path):
    with open(hub.download(repo_id="ns/bad", filename="model.safetensors", cache_dir=str(tmp_path)), "rb") as f:
        assert f.read() == b"rubbish!"
    assert s3.get_object(Bucket="ns", Key="bad/model.safetensors")["Body"].read() == b"rubbish!"
