"""Stock clients of S3 and the S3 port of a server that has tokens: with the right keys, and refused with a message that
their users understand."""
import re
import subprocess
import time

import boto3
import botocore.exceptions
import pytest
import requests
import s3fs

import harness
from client import ClientError, Worker, digests, quiet_environment, s3_port
from signing import TokensFile

REFUSED = {  # who -> S3's code
    "anonymous": "AccessDenied", "wrong secret": "SignatureDoesNotMatch", "unknown key": "InvalidAccessKeyId",
    "expired": "InvalidAccessKeyId", "revoked": "InvalidAccessKeyId",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("s3") / "root"
    for name in ("ns/open", "ns/hidden", "secret/model"):
        harness.write_by_hand(root / name / "model.safetensors", [harness.tensor("w", "F32", (300, 40))])
        for file in ("config.json", "name with space.txt", "é/ü+plus~.txt"):
            (root / name / file).parent.mkdir(exist_ok=True)
            (root / name / file).write_bytes(b"{}" if file == "config.json" else harness.pattern(2000, file))
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    file = TokensFile(tmp_path_factory.mktemp("tokens") / "tokens.json")
    return file.add("job", ["ns/open"]).add("old", expires_s=int(time.time()) - 5)


@pytest.fixture(scope="module")
def endpoint(root, tokens):
    with harness.hashed_server(root, "--s3-listen", "127.0.0.1:0", "--tokens", tokens) as s:
        yield f"http://127.0.0.1:{s3_port(s)}"


@pytest.fixture
def keys(tokens):
    """The access key and the secret key of someone."""
    def go(who):
        access, secret = tokens.s3_keys("old" if who == "expired" else "job")
        if who == "revoked":
            gone = TokensFile(tokens.path.with_name("gone.json")).add("gone")
            return gone.s3_keys("gone")
        return {"wrong secret": (access, "wrong"), "unknown key": ("TDUNKNOWN", secret)}.get(who, (access, secret))
    return go


def client(endpoint, keys):
    return boto3.client("s3", endpoint_url=endpoint, region_name="eu-central-1", aws_access_key_id=keys[0],
                        aws_secret_access_key=keys[1])


def test_boto3(endpoint, keys, root, tmp_path):
    s3 = client(endpoint, keys("job"))
    assert [b["Name"] for b in s3.list_buckets()["Buckets"]] == ["ns"]
    found = [c["Key"] for page in s3.get_paginator("list_objects_v2").paginate(
        Bucket="ns", PaginationConfig={"PageSize": 2}) for c in page["Contents"]]
    assert found == sorted(("open/" + n for n in digests(root / "ns/open")), key=str.encode)
    for key in found:
        assert s3.get_object(Bucket="ns", Key=key)["Body"].read() == (root / "ns" / key).read_bytes()
        url = s3.generate_presigned_url("get_object", {"Bucket": "ns", "Key": key, "ResponseContentType": "a/b"}, 60)
        assert requests.get(url, timeout=10).content == (root / "ns" / key).read_bytes()
        url = s3.generate_presigned_url("head_object", {"Bucket": "ns", "Key": key}, 60)
        assert requests.head(url, timeout=10).status_code == 200
        assert requests.get(url, timeout=10).status_code == 403, "signed for HEAD"
    s3.download_file("ns", "open/model.safetensors", str(tmp_path / "got"))
    assert (tmp_path / "got").read_bytes() == (root / "ns/open/model.safetensors").read_bytes()
    rank = s3.get_object(Bucket="ns", Key="open/shards/fsdp/tp2/model-rank-1-part-0.safetensors", Range="bytes=0-7")
    assert rank["ResponseMetadata"]["HTTPStatusCode"] == 206
    for bucket, key, code in (("secret", "model/config.json", "NoSuchBucket"),
                              ("ns", "hidden/config.json", "NoSuchKey")):
        with pytest.raises(botocore.exceptions.ClientError) as caught:
            s3.get_object(Bucket=bucket, Key=key)
        assert caught.value.response["Error"]["Code"] == code


@pytest.mark.parametrize("who", [w for w in REFUSED if w != "anonymous"])
def test_boto3_is_refused(endpoint, keys, who):
    s3 = client(endpoint, keys(who))
    for call, kw in ((s3.get_object, {"Bucket": "ns", "Key": "open/config.json"}), (s3.list_buckets, {}),
                     (s3.list_objects_v2, {"Bucket": "ns"})):
        with pytest.raises(botocore.exceptions.ClientError) as caught:
            call(**kw)
        assert caught.value.response["Error"]["Code"] == REFUSED[who]
        assert caught.value.response["ResponseMetadata"]["RetryAttempts"] == 0
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        s3.head_object(Bucket="ns", Key="open/config.json")
    assert caught.value.response["Error"]["Code"] == "403"


def test_s3fs(endpoint, keys, root):
    def fs(who):
        how = {"anon": True} if who == "anonymous" else dict(zip(("key", "secret"), keys(who)))
        return s3fs.S3FileSystem(endpoint_url=endpoint, skip_instance_cache=True,
                                 client_kwargs={"region_name": "us-east-1"}, **how)
    good = fs("job")
    assert sorted(good.find("ns/open")) == sorted(f"ns/open/{n}" for n in digests(root / "ns/open"))
    with good.open("ns/open/model.safetensors", "rb", block_size=1000) as f:
        f.seek(500)
        assert f.read(2500) == (root / "ns/open/model.safetensors").read_bytes()[500:3000]
    assert not good.exists("ns/hidden/config.json") and not good.exists("secret/model/config.json")
    for who in REFUSED:
        with pytest.raises(PermissionError):
            fs(who).ls("ns/open")


def run(command, home, **env):
    got = subprocess.run(command, env=quiet_environment(home, LC_ALL="C.UTF-8", **env), stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, timeout=120, check=False)
    return got.returncode, got.stdout + got.stderr


def aws(endpoint, keys, home, *args):
    return run(["/usr/bin/aws", "--endpoint-url", endpoint, "s3", *args], home, AWS_ACCESS_KEY_ID=keys[0],
               AWS_SECRET_ACCESS_KEY=keys[1])


def rclone(endpoint, keys, home, *args):
    remote = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": endpoint, "ACCESS_KEY_ID": keys[0],
              "SECRET_ACCESS_KEY": keys[1], "REGION": "us-east-1"}
    (home / "rclone.conf").write_text("")
    return run(["/usr/bin/rclone", "--config", str(home / "rclone.conf"), "--retries", "1", *args], home,
               **{f"RCLONE_CONFIG_T_{k}": v for k, v in remote.items()})


def s3cmd(endpoint, keys, home, *args):
    host = endpoint.removeprefix("http://")
    (home / "s3cfg").write_text("[default]\n")
    return run(["/usr/bin/s3cmd", "--config", str(home / "s3cfg"), f"--host={host}", f"--host-bucket={host}",
                "--no-ssl", f"--access_key={keys[0]}", f"--secret_key={keys[1]}", "--no-progress", *args], home)


@pytest.mark.parametrize("tool,copy,links", [
    (aws, ("cp", "--recursive", "--no-progress", "s3://ns/open/", "{to}"), ("presign", "s3://ns/open/config.json")),
    (rclone, ("copy", "T:ns/open", "{to}"), ("link", "--expire", "1h", "T:ns/open/config.json")),
    (s3cmd, ("get", "--recursive", "s3://ns/open/", "{to}/"), None),
], ids=["aws", "rclone", "s3cmd"])
def test_commands(endpoint, keys, root, tmp_path, tool, copy, links):
    to = tmp_path / "to"
    to.mkdir()
    rc, said = tool(endpoint, keys("job"), tmp_path, *(a.format(to=to) for a in copy))
    assert rc == 0, said
    assert digests(to) == digests(root / "ns/open")
    if links:
        rc, said = tool(endpoint, keys("job"), tmp_path, *links)
        url = re.search(r"http://\S+", said)[0]
        assert rc == 0 and requests.get(url, timeout=10).content == b"{}", said
        assert requests.get(url.replace("config", "confix"), timeout=10).status_code == 403
    for who, says in (("wrong secret", "signature"), ("unknown key", "TDUNKNOWN|InvalidAccessKeyId|403"),
                      ("expired", "does not exist|InvalidAccessKeyId|403")):
        rc, said = tool(endpoint, keys(who), tmp_path, *(a.format(to=tmp_path / who) for a in copy))
        assert rc != 0 and re.search(says, said, re.IGNORECASE), said
        assert not re.search("Traceback", said), said
    rc, said = tool(endpoint, keys("job"), tmp_path,
                    *(a.format(to=tmp_path / "hidden").replace("ns/open", "secret/model") for a in copy))
    assert (rc != 0 or not digests(tmp_path / "hidden")) and "403" not in said, said


def test_curl(endpoint, keys, root, tmp_path):
    """curl signs the digest of the body only with a header that says so, and S3 asks for it."""
    def curl(path, *args):
        return run(["curl", "--silent", "--show-error", "--fail-with-body", "--aws-sigv4", "aws:amz:us-east-1:s3",
                    "--user", ":".join(keys("job")), *args, endpoint + path], tmp_path)
    digest = ("-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD")
    assert curl("/ns/open/config.json", *digest) == (0, "{}")
    rc, said = curl("/ns?list-type=2&prefix=open%2F", *digest)
    assert rc == 0 and "<Key>open/config.json</Key>" in said
    rc, said = curl("/ns/open/%C3%A9/%C3%BC%2Bplus~.txt", "--output", str(tmp_path / "odd"), *digest)
    assert rc == 0 and (tmp_path / "odd").read_bytes() == (root / "ns/open/é/ü+plus~.txt").read_bytes()
    rc, said = curl("/ns/open/config.json")
    assert rc != 0 and "Missing required header for this request: x-amz-content-sha256" in said


def test_runai(endpoint, keys):
    def worker(who):
        access, secret = keys(who)
        return Worker("calls_s3", AWS_ENDPOINT_URL=endpoint, AWS_ACCESS_KEY_ID=access, AWS_SECRET_ACCESS_KEY=secret)
    with worker("job") as w:
        assert list(w.runai_stream(paths=["s3://ns/open/model.safetensors"])) == ["w"]
    with worker("wrong secret") as w, pytest.raises(ClientError):
        w.runai_stream(paths=["s3://ns/open/model.safetensors"])
