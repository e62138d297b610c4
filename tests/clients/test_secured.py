"""Stock clients over TLS with a token: each gets what its token sees, and each is refused, with a message that its user
understands, with a token that is wrong, has expired, was revoked, or is for another model."""
import json
import subprocess

import boto3
import botocore.exceptions
import pytest
import s3fs
import safetensors.torch

import harness
import pki
from client import HUB0, NEWEST, ClientError, Worker, digests, quiet_environment, s3_port

REFUSED = ["wrong", "expired", "revoked", "foreign"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("secured") / "root"
    harness.write_by_hand(root / "theirs/model/model.safetensors", [harness.tensor("w", "F32", (30, 40))])
    return root


@pytest.fixture(scope="module")
def saved(root):
    """Returns the fingerprint of the saved model."""
    with Worker("calls_transformers", HF_HUB_OFFLINE="1") as w:
        made = w.make(kind="llama", folder=str(root / "ours"))
    harness.age(root)
    return made


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    return pki.Authority(tmp_path_factory.mktemp("pki"))


def token_command(*words):
    got = subprocess.run([str(harness.tensord_binary()), "token", *words], capture_output=True, text=True, timeout=30,
                         check=False)
    assert got.returncode == 0, got.stderr
    return got.stdout


@pytest.fixture(scope="module")
def tokens(ca):
    """Kind -> what `tensord token new --json` printed; "good" sees the models of `ours` alone."""
    file = ca.folder / "tokens.json"
    more = {"good": ["--models", "ours/*"], "foreign": ["--models", "theirs/*"], "revoked": [], "expired": []}
    made = {name: json.loads(token_command("new", name, "--tokens", str(file), "--json", *words))
            for name, words in more.items()}
    token_command("revoke", "revoked", "--tokens", str(file))
    document = json.loads(file.read_text())
    for token in document["tokens"]:
        if token["name"] == "expired":
            token["expires"] = "2020-01-01T00:00:00Z"
    file.write_text(json.dumps(document))
    made["wrong"] = {"token": "td_" + "A" * 43, "s3_access_key": made["good"]["s3_access_key"],
                     "s3_secret_key": "A" * 43}
    made["none"] = None
    return made


@pytest.fixture(scope="module")
def srv(root, saved, ca, tokens):
    with harness.Server(root, *pki.options_of(ca.sign("server")), "--tokens", ca.folder / "tokens.json", "--s3-listen",
                        "127.0.0.1:0", tls=ca.context()) as s:
        yield s


@pytest.fixture(scope="module")
def trusted(ca):
    """The environment in which clients know the authority."""
    return {name: str(ca.cert) for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE", "CURL_CA_BUNDLE")}


def s3_keys(made):
    return {"AWS_ACCESS_KEY_ID": made["s3_access_key"], "AWS_SECRET_ACCESS_KEY": made["s3_secret_key"]}


# -------------------------------------------------------------------------------------------------- curl

def curl(srv, trusted, path, token):
    head = [] if token is None else ["-H", f"Authorization: Bearer {token['token']}"]
    got = subprocess.run(["curl", "-sS", "--fail-with-body", "-D", "/dev/stderr", *head,
                          f"https://127.0.0.1:{srv.port}{path}"],
                         env=quiet_environment("/nonexistent", **trusted), capture_output=True, timeout=60, check=False)
    return got.returncode, got.stderr.decode(), got.stdout


def test_curl(srv, trusted, tokens, root):
    file = "/models/ours/llama/files/model.safetensors"
    code, head, body = curl(srv, trusted, file, tokens["good"])
    assert code == 0 and body == (root / "ours/llama/model.safetensors").read_bytes(), head
    code, _, body = curl(srv, trusted, "/models", tokens["good"])
    assert code == 0 and {m["id"].split("/")[0] for m in json.loads(body)["models"]} == {"ours"}
    without = subprocess.run(["curl", "-sS", f"https://127.0.0.1:{srv.port}/healthz"], capture_output=True, text=True,
                             timeout=60, check=False, env=quiet_environment("/nonexistent"))
    assert without.returncode == 60, "an unknown authority is curl's error 60"


@pytest.mark.parametrize("kind", ["none", *REFUSED])
def test_curl_is_refused(srv, trusted, tokens, kind):
    code, head, body = curl(srv, trusted, "/models/ours/llama", tokens[kind])
    assert code == 22
    if kind == "foreign":
        assert " 404 " in head.splitlines()[0] and "not found" in json.loads(body)["error"]["message"]
    else:
        assert " 401 " in head.splitlines()[0] and "www-authenticate: bearer" in head.lower()
        assert "token" in json.loads(body)["error"]["message"]


def test_a_signed_url_is_for_one_file(srv, trusted, tokens):
    """The holder of a token hands one rank's file to a job, which has no token."""
    rank = "/models/ours/llama/shards/fsdp/tp2/rank-1.safetensors"
    ask = {"path": rank, "expires_in": 60}
    r = srv.post("/sign", ask, [("Authorization", f"Bearer {tokens['good']['token']}")])
    assert r.status == 200 and r.json()["url"].startswith(f"https://127.0.0.1:{srv.port}{rank}?expires="), r
    signed = r.json()["url"].removeprefix(f"https://127.0.0.1:{srv.port}")
    code, head, body = curl(srv, trusted, signed, None)
    assert code == 0 and body == curl(srv, trusted, rank, tokens["good"])[2], head
    code, head, _ = curl(srv, trusted, signed.replace("rank-1", "rank-0"), None)
    assert code == 22 and " 403 " in head.splitlines()[0]


# --------------------------------------------------------------------------------------------- the Hub's

def hub_environment(srv, trusted, token):
    more = {} if token is None else {"HF_TOKEN": token["token"]}
    return {"HF_ENDPOINT": f"https://127.0.0.1:{srv.port}", **trusted, **more}


def run_hf(srv, trusted, token, home, *args):
    env = quiet_environment(home, NO_COLOR="1", **hub_environment(srv, trusted, token))
    return subprocess.run([str(NEWEST.parent / "hf"), *args], env=env, capture_output=True, text=True, timeout=120,
                          check=False)


def test_hf_download(srv, trusted, tokens, root, tmp_path):
    got = run_hf(srv, trusted, tokens["good"], tmp_path, "download", "ours/llama", "--local-dir", tmp_path / "got")
    assert got.returncode == 0, got.stderr
    assert digests(tmp_path / "got") == digests(root / "ours/llama")


@pytest.mark.parametrize("kind", ["none", *REFUSED])
def test_hf_download_is_refused(srv, trusted, tokens, tmp_path, kind):
    got = run_hf(srv, trusted, tokens[kind], tmp_path, "download", "ours/llama", "--local-dir", tmp_path / "got")
    said = got.stdout + got.stderr
    assert got.returncode != 0 and not list(tmp_path.rglob("*.safetensors"))
    assert "Traceback" not in said, said
    assert ("not found" in said.lower()) if kind == "foreign" else ("401" in said or "token" in said.lower()), said


@pytest.mark.parametrize("python", [NEWEST, HUB0], ids=["newest", "0.36.2"])
def test_huggingface_hub(srv, trusted, tokens, root, tmp_path, python):
    """Good tokens alone; test_hub_tokens.py has the refusals."""
    with Worker("calls_hub", python, **hub_environment(srv, trusted, tokens["good"])) as w:
        folder = w.snapshot(repo_id="ours/llama", cache_dir=str(tmp_path))
        assert digests(folder) == digests(root / "ours/llama")


def test_transformers(srv, trusted, tokens, saved, tmp_path):
    with Worker("calls_transformers", **hub_environment(srv, trusted, tokens["good"])) as w:
        assert w.load(kind="llama", name="ours/llama", cache_dir=str(tmp_path / "good")) == saved
    for kind in REFUSED:
        with Worker("calls_transformers", **hub_environment(srv, trusted, tokens[kind])) as w, \
                pytest.raises(ClientError) as caught:
            w.load(kind="llama", name="ours/llama", cache_dir=str(tmp_path / kind))
        assert "OSError" in caught.value.kinds, caught.value


# --------------------------------------------------------------------------------------------------- S3's

S3_CODES = {"wrong": "SignatureDoesNotMatch", "expired": "InvalidAccessKeyId", "revoked": "InvalidAccessKeyId",
            "foreign": "NoSuchBucket"}


@pytest.fixture(scope="module")
def endpoint(srv):
    return f"https://127.0.0.1:{s3_port(srv)}"


def boto(endpoint, ca, made):
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", verify=str(ca.cert),
                        aws_access_key_id=made["s3_access_key"], aws_secret_access_key=made["s3_secret_key"])


def test_boto3(endpoint, ca, tokens, root):
    s3 = boto(endpoint, ca, tokens["good"])
    assert [b["Name"] for b in s3.list_buckets()["Buckets"]] == ["ours"]
    got = s3.get_object(Bucket="ours", Key="llama/model.safetensors", Range="bytes=10-99")["Body"].read()
    assert got == (root / "ours/llama/model.safetensors").read_bytes()[10:100]


@pytest.mark.parametrize("kind", REFUSED)
def test_boto3_is_refused(endpoint, ca, tokens, kind):
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        boto(endpoint, ca, tokens[kind]).list_objects_v2(Bucket="ours")
    assert caught.value.response["Error"]["Code"] == S3_CODES[kind]


def aws(endpoint, trusted, made, home, *args):
    env = quiet_environment(home, LC_ALL="C.UTF-8", **trusted, **s3_keys(made))
    return subprocess.run(["/usr/bin/aws", "--endpoint-url", endpoint, *args], env=env, capture_output=True, text=True,
                          timeout=120, check=False)


def test_aws(endpoint, trusted, tokens, root, tmp_path):
    got = aws(endpoint, trusted, tokens["good"], tmp_path, "s3", "cp", "--recursive", "--no-progress",
              "s3://ours/llama/", str(tmp_path / "got"))
    assert got.returncode == 0, got.stderr
    assert digests(tmp_path / "got") == digests(root / "ours/llama")


@pytest.mark.parametrize("kind", REFUSED)
def test_aws_is_refused(endpoint, trusted, tokens, tmp_path, kind):
    got = aws(endpoint, trusted, tokens[kind], tmp_path, "s3", "ls", "s3://ours/")
    assert got.returncode != 0 and S3_CODES[kind] in got.stderr, got.stderr


def s3fs_for(endpoint, ca, made):
    return s3fs.S3FileSystem(endpoint_url=endpoint, skip_instance_cache=True, key=made["s3_access_key"],
                             secret=made["s3_secret_key"],
                             client_kwargs={"region_name": "us-east-1", "verify": str(ca.cert)})


def test_s3fs(endpoint, ca, tokens, root):
    fs = s3fs_for(endpoint, ca, tokens["good"])
    assert fs.cat("ours/llama/config.json") == (root / "ours/llama/config.json").read_bytes()


@pytest.mark.parametrize("kind", REFUSED)
def test_s3fs_is_refused(endpoint, ca, tokens, kind):
    with pytest.raises(FileNotFoundError if kind == "foreign" else PermissionError):
        s3fs_for(endpoint, ca, tokens[kind]).cat("ours/llama/config.json")


def streamer(endpoint, trusted, made):
    return Worker("calls_s3", AWS_ENDPOINT_URL=endpoint, **trusted, **s3_keys(made))


def test_runai_streamer(endpoint, trusted, tokens, root):
    import calls_s3 
    tensors = safetensors.torch.load_file(root / "ours/llama/model.safetensors")
    want = {name: calls_s3.digest(t) for name, t in tensors.items()}
    with streamer(endpoint, trusted, tokens["good"]) as w:
        assert w.runai_stream(paths=["s3://ours/llama/model.safetensors"]) == want


@pytest.mark.parametrize("kind", REFUSED)
def test_runai_streamer_is_refused(endpoint, trusted, tokens, kind):
    with streamer(endpoint, trusted, tokens[kind]) as w, pytest.raises(ClientError) as caught:
        w.runai_list(path="s3://ours/llama")
    assert S3_CODES[kind] in str(caught.value), caught.value
