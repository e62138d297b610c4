"""boto3, s3fs, the AWS command line, the Run:ai streamer and tensorizer against the S3 facade."""
import base64
import hashlib
import re
import subprocess

import boto3
import botocore
import botocore.config
import pytest
import requests
import s3fs
import safetensors.torch

import harness
from client import ClientError, CuttingProxy, Worker, digests, quiet_environment, s3_port, sha256

NAMES = ["config.json", "name with space.txt", "é/ü+plus.txt", "a+b.txt", "100%.txt", "a&b<c>.txt", "empty.txt",
         "sub/deeper/file.bin"]
BIG = 20_000_001        # more than two parts of 8 MiB


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("s3") / "root"
    for name in NAMES:
        path = root / "ns/plain" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if name == "empty.txt" else harness.pattern(2000 + len(name), name))
    harness.write_by_hand(root / "ns/plain/model.safetensors", [harness.tensor("w", "F32", (30, 40)),
                                                                harness.tensor("b", "F16", (7,))])
    (root / "ns/big").mkdir()
    (root / "ns/big/big.bin").write_bytes(harness.pattern(BIG, "big"))
    harness.write_by_hand(root / "ns/big/model.safetensors", [harness.tensor(n, "F32", (1024, 1024)) for n in "abcd"])
    harness.write_by_hand(root / "other/model/model.safetensors", [harness.tensor("w", "I8", (9,))])
    harness.write_by_hand(root / "alone/model.safetensors", [harness.tensor("w", "I8", (10,))])
    with Worker("calls_transformers", HF_HUB_OFFLINE="1") as w:
        w.make(kind="llama", folder=str(root / "ns"))
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def written(root):
    """Writes a module's tensors to a file of tensorizer, beside the model."""
    with Worker("calls_s3") as w:
        tensors = w.tensorizer_write(path=str(root / "ns/plain/module.tensors"))
    harness.age(root / "ns/plain")
    return tensors


@pytest.fixture(scope="module")
def srv(root, written):
    with harness.Server(root, "--s3-listen", "127.0.0.1:0") as s:
        yield s


@pytest.fixture(scope="module")
def endpoint(srv):
    return f"http://127.0.0.1:{s3_port(srv)}"


@pytest.fixture(scope="module", params=["anonymous", "signed"])
def s3(request, endpoint):
    if request.param == "anonymous":
        how = {"config": botocore.config.Config(signature_version=botocore.UNSIGNED)}
    else:
        how = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **how)


def keys(folder, prefix):
    return sorted(prefix + name for name in digests(folder))


def fails(code, call, **kw):
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        call(**kw)
    assert caught.value.response["Error"]["Code"] == code


# ------------------------------------------------------------------------------------------------- boto3

def test_buckets(s3):
    assert sorted(b["Name"] for b in s3.list_buckets()["Buckets"]) == ["local", "ns", "other"]
    assert s3.head_bucket(Bucket="ns")["ResponseMetadata"]["HTTPStatusCode"] == 200
    fails("404", s3.head_bucket, Bucket="none")


def test_list_with_delimiter(s3, root):
    got = s3.list_objects_v2(Bucket="ns", Prefix="plain/", Delimiter="/")
    flat = [k for k in keys(root / "ns/plain", "plain/") if k.count("/") == 1]
    assert [c["Key"] for c in got["Contents"]] == sorted(flat, key=lambda k: k.encode())
    assert [p["Prefix"] for p in got["CommonPrefixes"]] == ["plain/sub/", "plain/é/"]
    assert not got["IsTruncated"] and got["KeyCount"] == len(flat) + 2
    for c in got["Contents"]:
        assert c["Size"] == (root / "ns" / c["Key"]).stat().st_size
        assert re.fullmatch(r'"[0-9a-f]{32,64}-1"', c["ETag"]) and c["LastModified"].tzinfo
    got = s3.list_objects_v2(Bucket="ns", Delimiter="/")
    assert [p["Prefix"] for p in got["CommonPrefixes"]] == ["big/", "llama-bin/", "llama-sharded/", "llama/", "plain/"]
    assert "Contents" not in got


def test_list_by_pages(s3, root):
    whole = [c["Key"] for c in s3.list_objects_v2(Bucket="ns")["Contents"]]
    assert whole == sorted((p.relative_to(root / "ns").as_posix() for p in (root / "ns").rglob("*") if p.is_file()),
                           key=lambda k: k.encode())
    pages = list(s3.get_paginator("list_objects_v2").paginate(Bucket="ns", PaginationConfig={"PageSize": 2}))
    assert [c["Key"] for p in pages for c in p["Contents"]] == whole
    assert all(len(p["Contents"]) == 2 for p in pages[:-1])
    pages = list(s3.get_paginator("list_objects_v2").paginate(Bucket="ns", Prefix="plain/", Delimiter="/",
                                                              PaginationConfig={"PageSize": 3}))
    both = [x for p in pages for x in [c["Key"] for c in p.get("Contents", [])]
            + [c["Prefix"] for c in p.get("CommonPrefixes", [])]]
    assert sorted(both) == sorted(set(both)) and {"plain/sub/", "plain/é/", "plain/a&b<c>.txt"} <= set(both)
    after = s3.list_objects_v2(Bucket="ns", StartAfter=whole[4])
    assert [c["Key"] for c in after["Contents"]] == whole[5:]


def test_head_and_get(s3, root):
    for name in digests(root / "ns/plain"):
        data = (root / "ns/plain" / name).read_bytes()
        head = s3.head_object(Bucket="ns", Key=f"plain/{name}")
        assert head["ContentLength"] == len(data) and head["LastModified"] and head["AcceptRanges"] == "bytes"
        got = s3.get_object(Bucket="ns", Key=f"plain/{name}")
        assert got["Body"].read() == data, name
        assert got["ETag"] == head["ETag"] and got["ETag"].endswith('-1"')


def test_ranges_and_conditions(s3, root):
    data = (root / "ns/plain/model.safetensors").read_bytes()
    ask = {"Bucket": "ns", "Key": "plain/model.safetensors"}
    got = s3.get_object(**ask, Range="bytes=10-29")
    assert got["Body"].read() == data[10:30] and got["ContentRange"] == f"bytes 10-29/{len(data)}"
    assert s3.get_object(**ask, Range="bytes=-7")["Body"].read() == data[-7:]
    assert s3.get_object(**ask, Range="bytes=100-", IfMatch=got["ETag"])["Body"].read() == data[100:]
    fails("InvalidRange", s3.get_object, **ask, Range=f"bytes={len(data)}-")
    fails("PreconditionFailed", s3.get_object, **ask, IfMatch='"00"')
    fails("304", s3.get_object, **ask, IfNoneMatch=got["ETag"])


def test_checksums_and_attributes(s3, srv, root):
    """boto3 compares the bytes with the checksum that it asks for by itself; the digest is the file's own."""
    srv.wait_hashed()
    for name in ("model.safetensors", "config.json"):
        data = (root / "ns/plain" / name).read_bytes()
        ask = {"Bucket": "ns", "Key": f"plain/{name}"}
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        got = s3.get_object(**ask)
        assert got["ChecksumSHA256"] == digest and got["Body"].read() == data
        assert s3.head_object(**ask, ChecksumMode="ENABLED")["ChecksumSHA256"] == digest
        assert "ChecksumSHA256" not in s3.get_object(**ask, Range="bytes=0-1")
        every = s3.get_object_attributes(**ask, ObjectAttributes=["ETag", "Checksum", "ObjectParts", "StorageClass",
                                                                  "ObjectSize"])
        assert every["Checksum"] == {"ChecksumSHA256": digest, "ChecksumType": "FULL_OBJECT"}
        assert (every["ObjectSize"], every["StorageClass"]) == (len(data), "STANDARD")
        assert every["ETag"] == got["ETag"].strip('"') and every["LastModified"] == got["LastModified"]
        assert "ETag" not in s3.get_object_attributes(**ask, ObjectAttributes=["ObjectSize"])
    owners = [o["Owner"] for o in s3.list_objects_v2(Bucket="ns", FetchOwner=True)["Contents"]]
    assert owners and all(o == {"ID": "tensord", "DisplayName": "tensord"} for o in owners)
    assert not any("Owner" in o for o in s3.list_objects_v2(Bucket="ns")["Contents"])


def test_errors(s3):
    fails("NoSuchKey", s3.get_object, Bucket="ns", Key="plain/none")
    fails("404", s3.head_object, Bucket="ns", Key="plain/none")
    fails("NoSuchBucket", s3.list_objects_v2, Bucket="none")
    fails("NoSuchBucket", s3.get_object, Bucket="none", Key="a")
    fails("MethodNotAllowed", s3.put_object, Bucket="ns", Key="plain/new", Body=b"x")
    fails("MethodNotAllowed", s3.delete_object, Bucket="ns", Key="plain/config.json")


def reads_of(service):
    """Return the names of boto3's operations that only read, with arguments for a bucket and an object, and made-up
    values for the others."""
    for name in service.operation_names:
        op = service.operation_model(name)
        uri = op.http["requestUri"]
        if op.http["method"] in ("GET", "HEAD") and name != "CreateSession":
            kw = {"Bucket": "ns", "Key": "plain/config.json"}
            kw = {m: kw.get(m) for m in op.input_shape.required_members} if op.input_shape else {}
            made_up = {"UploadId": "1", "Id": "1", "AnnotationName": "a", "ObjectAttributes": ["ETag"]}
            yield name, uri, {m: made_up.get(m) if v is None else v for m, v in kw.items()}


def test_what_else_s3_knows_is_not_implemented(s3):
    """For every operation of boto3: none is answered with another operation's document, an object's bytes or a
    listing."""
    served = {
        "ListBuckets", "ListDirectoryBuckets", "HeadBucket", "GetBucketLocation", "GetBucketVersioning", "ListObjects",
        "ListObjectsV2", "HeadObject", "GetObject", "GetObjectAttributes"
    }
    asked = set()
    for name, uri, kw in reads_of(s3.meta.service_model):
        if name == "ListDirectoryBuckets":      # of other hosts
            continue
        call = getattr(s3, botocore.xform_name(name))
        asked.add(name)
        if name in served:
            assert call(**kw)["ResponseMetadata"]["HTTPStatusCode"] == 200, name
        else:
            with pytest.raises(botocore.exceptions.ClientError) as caught:
                call(**kw)
            assert caught.value.response["Error"]["Code"] == "NotImplemented", name
            what = re.search(r"\?([\w-]+)", uri)
            assert f'"{what.group(1) if what else "uploadId"}"' in caught.value.response["Error"]["Message"], name
    assert len(asked) > 35 and served - asked == {"ListDirectoryBuckets"}


def test_all_that_boto3_tells_operations_by_is_known(s3, endpoint):
    """A parameter that makes it another request in S3 must not be ignored."""
    service = s3.meta.service_model
    names = {n for op in service.operation_names
             for n in re.findall(r"[?&]([\w-]+)", service.operation_model(op).http["requestUri"])}
    for name in names - {"list-type", "select-type", "location", "versioning"}:  # attributes need a field, too
        for where in ("/ns", "/ns/plain/config.json"):
            assert requests.get(f"{endpoint}{where}?{name}=1", timeout=30).status_code == 501, name


def test_the_wrong_port(srv):
    """The error for users who point the SDK to the main port: docs/troubleshooting.md."""
    s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{srv.port}", region_name="us-east-1",
                      aws_access_key_id="any", aws_secret_access_key="any")
    for call, kw in ((s3.list_buckets, {}), (s3.list_objects_v2, {"Bucket": "ns"}),
                     (s3.get_object, {"Bucket": "ns", "Key": "plain/config.json"})):
        with pytest.raises(botocore.exceptions.ClientError, match=r"An error occurred \(404\) .*: Not Found"):
            call(**kw)


def test_the_hubs_clients_at_this_port(endpoint):
    """These clients show the server's message, so it says that this is the S3 port."""
    with Worker("calls_hub", HF_ENDPOINT=endpoint) as w:
        for call, kw in ((w.model_info, {"repo_id": "ns/plain"}), (w.snapshot, {"repo_id": "ns/plain"})):
            with pytest.raises(ClientError) as caught:
                call(**kw)
            assert "NoSuchBucket" in caught.value.text and "the port for clients of S3" in caught.value.text


def test_download_in_parts(s3, root, tmp_path):
    s3.download_file("ns", "big/big.bin", str(tmp_path / "big"))
    assert sha256(tmp_path / "big") == sha256(root / "ns/big/big.bin")


def test_cut_connections_are_mended(endpoint, root, tmp_path):
    """The clients themselves request the missing part again."""
    port = int(endpoint.rsplit(":", 1)[1])
    with CuttingProxy(port, after=2 << 20, cuts=2) as proxy:
        s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{proxy.port}", region_name="us-east-1",
                          config=botocore.config.Config(signature_version=botocore.UNSIGNED))
        s3.download_file("ns", "big/big.bin", str(tmp_path / "big"))
        assert proxy.done_cuts == 2 and sha256(tmp_path / "big") == sha256(root / "ns/big/big.bin")
    with CuttingProxy(port, after=2 << 20, cuts=2) as proxy, \
            Worker("calls_s3", AWS_ENDPOINT_URL=f"http://127.0.0.1:{proxy.port}", RUNAI_STREAMER_S3_UNSIGNED="1") as w:
        got = w.runai_stream(paths=["s3://ns/big/model.safetensors"])
        assert proxy.done_cuts == 2 and got == read_tensors((root / "ns/big/model.safetensors").read_bytes())


def test_the_bucket_of_single_segments(s3, root):
    assert [c["Key"] for c in s3.list_objects_v2(Bucket="local")["Contents"]] == ["alone/model.safetensors"]
    got = s3.get_object(Bucket="local", Key="alone/model.safetensors")["Body"].read()
    assert got == (root / "alone/model.safetensors").read_bytes()


def test_rank_files_are_listed_where_asked_for(s3, srv):
    everything = [c["Key"] for c in s3.list_objects_v2(Bucket="ns")["Contents"]]
    assert not any("shards/" in k for k in everything)
    prefix = "llama/shards/vllm/tp2/"
    listed = {c["Key"].removeprefix(prefix): c["Size"]
              for c in s3.list_objects_v2(Bucket="ns", Prefix=prefix, Delimiter="/")["Contents"]}
    assert sorted(listed) == ["config.json", "generation_config.json", "model-rank-0-part-0.safetensors",
                              "model-rank-1-part-0.safetensors"]
    whole = srv.get("/models/ns/llama/shards/vllm/tp2/rank-1.safetensors").body
    assert listed["model-rank-1-part-0.safetensors"] == len(whole)
    got = s3.get_object(Bucket="ns", Key=prefix + "model-rank-1-part-0.safetensors")
    assert got["Body"].read() == whole


# -------------------------------------------------------------------------------------------------- s3fs

@pytest.fixture(scope="module", params=["anonymous", "signed"])
def fs(request, endpoint):
    keys = {"anon": True} if request.param == "anonymous" else {"key": "any", "secret": "any"}
    return s3fs.S3FileSystem(endpoint_url=endpoint, skip_instance_cache=True,
                             client_kwargs={"region_name": "us-east-1"}, **keys)


def test_s3fs(fs, root):
    flat = sorted({f"ns/plain/{n.split('/')[0]}" for n in digests(root / "ns/plain")})
    assert sorted(fs.ls("ns/plain")) == flat
    assert sorted(fs.find("ns/plain")) == keys(root / "ns/plain", "ns/plain/")
    assert fs.glob("ns/plain/**/file.bin") == ["ns/plain/sub/deeper/file.bin"]
    assert sorted(fs.glob("ns/*/config.json")) == sorted(f"ns/{m}/config.json" for m in
                                                         ("llama", "llama-bin", "llama-sharded", "plain"))
    assert fs.exists("ns/plain/é/ü+plus.txt") and not fs.exists("ns/plain/none")
    assert fs.isdir("ns/plain/sub") and fs.isfile("ns/plain/empty.txt")
    assert isinstance(fs.checksum("ns/plain/config.json"), int)


def test_s3fs_reads(fs, root, tmp_path):
    data = (root / "ns/plain/model.safetensors").read_bytes()
    with fs.open("ns/plain/model.safetensors", "rb", block_size=1000) as f:
        f.seek(500)
        assert f.read(2500) == data[500:3000]
    assert fs.cat("ns/plain/model.safetensors") == data
    assert fs.cat("ns/plain/empty.txt") == b""
    fs.get("ns/plain/", str(tmp_path / "all"), recursive=True)
    assert digests(tmp_path / "all") == digests(root / "ns/plain")


# ----------------------------------------------------------------------------------------- the command line

def test_aws(endpoint, root, tmp_path):
    def aws(*args):
        env = quiet_environment(tmp_path, AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any", LC_ALL="C.UTF-8")
        got = subprocess.run(["/usr/bin/aws", "--endpoint-url", endpoint, *args], env=env, capture_output=True,
                             text=True, timeout=120, check=False)
        assert got.returncode == 0, got.stderr
        return got.stdout
    assert [line.split()[-1] for line in aws("s3", "ls").splitlines()] == ["local", "ns", "other"]
    listed = aws("s3", "ls", "s3://ns/plain/").splitlines()
    assert any(re.fullmatch(r"\s+PRE sub/", line) for line in listed)
    assert any(line.endswith(f" {(root / 'ns/plain/a+b.txt').stat().st_size} a+b.txt") for line in listed)
    aws("s3", "cp", "--recursive", "--no-progress", "s3://ns/plain/", str(tmp_path / "plain"))
    assert digests(tmp_path / "plain") == digests(root / "ns/plain")
    aws("s3", "cp", "--no-progress", "s3://ns/big/big.bin", str(tmp_path / "big"))
    assert sha256(tmp_path / "big") == sha256(root / "ns/big/big.bin")
    assert aws("s3", "sync", "--no-progress", "s3://ns/plain/", str(tmp_path / "plain")) == "", "nothing is new"


# ---------------------------------------------------------------------------------------------- streamers

@pytest.fixture(scope="module")
def streamers(endpoint):
    """Configured by the environment alone, as in vLLM; the Run:ai streamer accepts host names and addresses."""
    with Worker("calls_s3", AWS_ENDPOINT_URL=endpoint, AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any") as w:
        yield w


@pytest.fixture(scope="module")
def anonymous(endpoint):
    with Worker("calls_s3", AWS_ENDPOINT_URL=endpoint.replace("127.0.0.1", "localhost"), RUNAI_STREAMER_S3_UNSIGNED="1",
                RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING="0") as w:
        yield w


def read_tensors(data):
    import calls_s3
    return {n: calls_s3.digest(t) for n, t in safetensors.torch.load(data).items()}


@pytest.mark.parametrize("who", ["streamers", "anonymous"])
def test_runai_streams_a_model(request, root, who):
    w = request.getfixturevalue(who)
    assert w.runai_list(path="s3://ns/llama") == ["s3://ns/llama/model.safetensors"]
    assert w.runai_stream(paths=["s3://ns/llama/model.safetensors"]) == read_tensors(
        (root / "ns/llama/model.safetensors").read_bytes())
    shards = w.runai_list(path="s3://ns/llama-sharded/")
    assert len(shards) > 1 and w.runai_stream(paths=shards) == read_tensors(
        (root / "ns/llama/model.safetensors").read_bytes())


@pytest.mark.parametrize("rank", [0, 1])
def test_runai_streams_a_rank(streamers, srv, root, tmp_path, rank):
    """As vLLM's runai_streamer_sharded does with s3://ns/llama/shards/vllm/tp2/ as the model."""
    folder = "s3://ns/llama/shards/vllm/tp2/"
    streamers.runai_pull(path=folder, folder=str(tmp_path), ignore_pattern=["*.pt", "*.safetensors", "*.bin"])
    assert digests(tmp_path) == {n: sha256(root / "ns/llama" / n) for n in ("config.json", "generation_config.json")}
    paths = [p for p in streamers.runai_list(path=folder) if re.search(f"model-rank-{rank}-part-.*\\.safetensors$", p)]
    assert paths == [f"{folder}model-rank-{rank}-part-0.safetensors"]
    want = srv.get(f"/models/ns/llama/shards/vllm/tp2/rank-{rank}.safetensors").body
    assert streamers.runai_stream(paths=paths) == read_tensors(want)


@pytest.mark.parametrize("readers", [1, 4])
def test_tensorizer(streamers, srv, written, readers):
    """From S3, and by plain HTTP from the files of a model."""
    for uri in ("s3://ns/plain/module.tensors", f"http://127.0.0.1:{srv.port}/models/ns/plain/files/module.tensors"):
        assert streamers.tensorizer_read(uri=uri, readers=readers) == written, uri
