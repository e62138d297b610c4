"""Stock clients write through the S3 port: boto3, s3fs, the AWS command line, rclone, s3cmd, and torch's distributed
checkpoints over fsspec. What they wrote is compared with what is read on the main port."""
import hashlib
import io
import os
import subprocess
import urllib.parse

import boto3
import pytest
import s3fs
import torch
import torch.distributed.checkpoint as dcp
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError
from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

import harness
import pki
from client import quiet_environment, s3_port
from signing import TokensFile

BIG = harness.pattern(20_000_001, "big")     # three parts of 8 MiB


@pytest.fixture(scope="module", params=["http", "https"])
def srv(request, tmp_path_factory):
    """A server, over TLS too: the SDKs then send chunked bodies with trailers."""
    folder = tmp_path_factory.mktemp("put")
    (folder / "root").mkdir()
    tokens = TokensFile(folder / "tokens.json").add("w", rights=("read", "write"))
    options, tls = ["--s3-listen", "127.0.0.1:0", "--publish", "any", "--tokens", tokens], None
    ca = str(pki.Authority(folder).cert)
    if request.param == "https":
        authority = pki.Authority(folder, "second")
        pair, ca, tls = authority.sign("server"), str(authority.cert), authority.context()
        options += ["--tls-cert", pair.cert, "--tls-key", pair.key]
    with harness.Server(folder / "root", *options, tls=tls) as s:
        s.access, s.secret = tokens.s3_keys("w")
        s.ca, s.bearer, s.s3_url = ca, tokens.bearer("w"), f"{request.param}://127.0.0.1:{s3_port(s)}"
        yield s


def environment(srv, home):
    return quiet_environment(home, LC_ALL="C.UTF-8", AWS_ACCESS_KEY_ID=srv.access, AWS_SECRET_ACCESS_KEY=srv.secret,
                             AWS_DEFAULT_REGION="us-east-1")


def run(srv, home, *command):
    """Run a command, which must succeed. Returns what it printed."""
    got = subprocess.run([str(word) for word in command], env=environment(srv, home), stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, timeout=120, check=False)
    assert got.returncode == 0, got.stdout + got.stderr
    return got.stdout + got.stderr


@pytest.fixture
def s3(srv):
    return boto3.client("s3", endpoint_url=srv.s3_url, aws_access_key_id=srv.access, aws_secret_access_key=srv.secret,
                        region_name="us-east-1", verify=srv.ca,
                        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}))


@pytest.fixture
def fs(srv):
    return s3fs.S3FileSystem(endpoint_url=srv.s3_url, key=srv.access, secret=srv.secret, skip_instance_cache=True,
                             use_listings_cache=False,
                             client_kwargs={"region_name": "us-east-1", "verify": srv.ca},
                             config_kwargs={"s3": {"addressing_style": "path"}})


def files(srv, model):
    """Returns the files of a model on the Hub's face of the main port, {path: bytes}."""
    tree = srv.get(f"/api/models/{model}/tree/main?recursive=true", srv.bearer)
    assert tree.status == 200, tree
    names = [entry["path"] for entry in tree.json() if entry["type"] == "file"]
    return {name: srv.get(f"/{model}/resolve/main/{urllib.parse.quote(name)}", srv.bearer).body for name in names}


@pytest.fixture
def local(tmp_path):
    """A directory with files, and its content."""
    content = {"config.json": b"{}", "big.bin": BIG, "sub/empty": b"", "sub/name with +.txt": b"x"}
    for name, body in content.items():
        path = tmp_path / "from" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return tmp_path / "from", content


def test_boto3(srv, s3):
    s3.create_bucket(Bucket="boto")
    put = s3.put_object(Bucket="boto", Key="m/a.json", Body=b"{}")
    head = s3.head_object(Bucket="boto", Key="m/a.json")
    assert put["ETag"] == head["ETag"] == '"' + hashlib.sha256(b"{}").hexdigest() + '-1"'
    for algorithm in ("CRC32", "SHA1", "SHA256", "SHA512"):
        s3.put_object(Bucket="boto", Key="m/sum", Body=algorithm.encode(), ChecksumAlgorithm=algorithm)
    s3.upload_fileobj(io.BytesIO(BIG), "boto", "m/big.bin", Config=TransferConfig(multipart_chunksize=5 << 20))
    s3.copy({"Bucket": "boto", "Key": "m/big.bin"}, "boto", "m/copy.bin",
            Config=TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=8 << 20))
    assert files(srv, "boto/m") == {"a.json": b"{}", "sum": b"SHA512", "big.bin": BIG, "copy.bin": BIG}
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket="boto", Key="m/a.json", Body=b"x", IfNoneMatch="*")
    s3.put_object(Bucket="boto", Key="m/a.json", Body=b"x", IfMatch=head["ETag"])
    gone = s3.delete_objects(Bucket="boto", Delete={"Objects": [{"Key": "m/sum"}, {"Key": "m/big.bin"}]})
    assert "Errors" not in gone
    s3.delete_object(Bucket="boto", Key="m/copy.bin")
    assert files(srv, "boto/m") == {"a.json": b"x"}


def test_presigned_put(srv, s3):
    client = boto3.client("s3", endpoint_url=srv.s3_url, aws_access_key_id=srv.access,
                          aws_secret_access_key=srv.secret, region_name="us-east-1",
                          config=Config(signature_version="s3v4", s3={"addressing_style": "path"}))
    url = client.generate_presigned_url("put_object", {"Bucket": "signed", "Key": "m/a"}, ExpiresIn=60)
    got = subprocess.run(["curl", "-sS", "--fail", "--cacert", srv.ca, "-T", "-", url], input=b"from curl",
                         capture_output=True, timeout=60, check=False)
    assert got.returncode != 0                                   # no length: curl sends it in chunks
    got = subprocess.run(["curl", "-sS", "--fail", "--cacert", srv.ca, "--data-binary", "from curl", "-X", "PUT", url],
                         capture_output=True, timeout=60, check=False)
    assert got.returncode == 0, got.stderr
    assert s3.get_object(Bucket="signed", Key="m/a")["Body"].read() == b"from curl"


def test_s3fs(srv, fs, local):
    folder, content = local
    fs.makedirs("fs/m", exist_ok=True)
    fs.put(str(folder), "fs/m", recursive=True)
    assert files(srv, "fs/m") == content
    with fs.open("fs/m/streamed", "wb", block_size=5 << 20) as f:
        for at in range(0, len(BIG), 3_000_000):
            f.write(BIG[at:at + 3_000_000])
    with fs.open("fs/m/streamed", "ab") as f:
        f.write(b"more")
    assert fs.cat("fs/m/streamed") == BIG + b"more"
    fs.mv("fs/m/streamed", "fs/m/moved")
    assert not fs.exists("fs/m/streamed") and fs.info("fs/m/moved")["size"] == len(BIG) + 4
    with pytest.raises(OSError, match="If-None-Match"):
        fs.pipe_file("fs/m/moved", b"x", mode="create")
    fs.rm("fs/m", recursive=True)
    assert not fs.exists("fs/m/config.json")


def test_aws_command(srv, local, tmp_path):
    folder, content = local
    aws = ["/usr/bin/aws", "--endpoint-url", srv.s3_url, "--ca-bundle", srv.ca, "s3"]
    run(srv, tmp_path, *aws, "mb", "s3://cli")
    run(srv, tmp_path, *aws, "cp", "--recursive", folder, "s3://cli/m")
    assert files(srv, "cli/m") == content
    assert run(srv, tmp_path, *aws, "sync", folder, "s3://cli/m") == ""      # nothing is newer than its object
    (folder / "config.json").write_text('{"a": 1}')
    assert run(srv, tmp_path, *aws, "sync", folder, "s3://cli/m").count("upload:") == 1
    run(srv, tmp_path, *aws, "mv", "s3://cli/m/big.bin", "s3://cli/m/large.bin")
    run(srv, tmp_path, *aws, "rm", "--recursive", "s3://cli/m/sub")
    assert files(srv, "cli/m") == {"config.json": b'{"a": 1}', "large.bin": BIG}


def rclone(srv, home, *args):
    (home / "rclone.conf").write_text(f"[t]\ntype = s3\nprovider = Other\nendpoint = {srv.s3_url}\n"
                                      f"access_key_id = {srv.access}\nsecret_access_key = {srv.secret}\n"
                                      "region = us-east-1\n")
    return run(srv, home, "/usr/bin/rclone", "--config", home / "rclone.conf", "--ca-cert", srv.ca,
               "--s3-upload-cutoff", "8M", "--s3-chunk-size", "8M", *args)


def test_rclone(srv, local, tmp_path):
    folder, content = local
    rclone(srv, tmp_path, "copy", folder, "t:rclone/m")
    assert files(srv, "rclone/m") == content
    rclone(srv, tmp_path, "check", "--download", folder, "t:rclone/m")
    rclone(srv, tmp_path, "moveto", "t:rclone/m/big.bin", "t:rclone/m/large.bin")
    (folder / "config.json").unlink()
    rclone(srv, tmp_path, "sync", "--size-only", folder, "t:rclone/m")
    assert files(srv, "rclone/m") == {name: body for name, body in content.items() if name != "config.json"}


def test_s3cmd(srv, local, tmp_path):
    folder, content = local
    host = srv.s3_url.partition("//")[2]
    s3cmd = ["/usr/bin/s3cmd", f"--host={host}", f"--host-bucket={host}", f"--access_key={srv.access}",
             f"--secret_key={srv.secret}", "--no-progress", "--multipart-chunk-size-mb=5",
             *(["--ssl", f"--ca-certs={srv.ca}"] if srv.s3_url.startswith("https") else ["--no-ssl"])]
    run(srv, tmp_path, *s3cmd, "put", "--recursive", f"{folder}/", "s3://s3cmd/m/")
    assert files(srv, "s3cmd/m") == content
    run(srv, tmp_path, *s3cmd, "del", "s3://s3cmd/m/big.bin")
    assert "big.bin" not in files(srv, "s3cmd/m")


def test_distributed_checkpoints(srv, fs, monkeypatch):
    """torch writes .metadata.tmp, and renames it to .metadata: a copy and a deletion."""
    for name, value in (("AWS_ACCESS_KEY_ID", srv.access), ("AWS_SECRET_ACCESS_KEY", srv.secret),
                        ("AWS_CA_BUNDLE", srv.ca), ("AWS_DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(name, value)
    options = {"endpoint_url": srv.s3_url, "client_kwargs": {"region_name": "us-east-1"}}
    for step in (1, 2):                                          # the second one overwrites the first
        state = {"w": torch.full((1000, 100), float(step)), "step": step}
        dcp.save(state, storage_writer=FsspecWriter("s3://dcp/run/last", overwrite=True, **options), no_dist=True)
        loaded = {"w": torch.zeros(1000, 100), "step": 0}
        dcp.load(loaded, storage_reader=FsspecReader("s3://dcp/run/last", **options), no_dist=True)
        assert torch.equal(loaded["w"], state["w"]) and loaded["step"] == step
    names = sorted(os.path.basename(p) for p in fs.ls("dcp/run/last"))
    assert ".metadata" in names and ".metadata.tmp" not in names
    assert srv.get("/models/dcp/run/last", srv.bearer).json()["id"] == "dcp/run/last"
