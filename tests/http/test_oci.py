"""The OCI facade over a socket. Digests are computed here from the bytes, names are matched by the regular expression
of the specification, and documents are validated by the JSON schemas that Debian's package of the image specification
brings. The clients of registries themselves are in tests of their own."""
import base64
import concurrent.futures
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import gguf
import jsonschema
import numpy as np
import pytest
import referencing
import referencing.jsonschema

import harness
from harness import Conn, Server, age, tensor, write_by_hand
from signing import TokensFile
from test_tokens import new

# distribution-spec 1.1.1, "Pulling manifests": the grammars of names and tags
NAME = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(\/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*")
TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")
SCHEMAS = Path("/usr/share/gocode/src/github.com/opencontainers/image-spec/schema")

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
# modelpack/model-spec, docs/spec.md
MODEL, MODEL_CONFIG = "application/vnd.cncf.model.manifest.v1+json", "application/vnd.cncf.model.config.v1+json"
LAYER = re.compile(r"application/vnd\.cncf\.model\.(weight|weight\.config|doc|code|dataset)\.v1\.raw")
FILEPATH, TITLE = "org.cncf.model.filepath", "org.opencontainers.image.title"
COMMIT, OTHER, NO_REF = "1" * 40, "2" * 40, "3" * 40


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def write_gguf(path, word):
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_string("general.name", word)
    writer.add_tensor("token_embd.weight", np.full((40, 32), len(word), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def build(root):
    for id in ("Org/Model_A", "org/model_a", "demo"):
        write_by_hand(root / id / "model.safetensors", [tensor("w", "F16", (300, 500), id), tensor("b", "F32", (7,))])
        write(root / id / "config.json", b'{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
        write(root / id / "README.md", f"---\nlicense: apache-2.0\n---\n# {id}\n".encode())
    write(root / "demo/sub/deeper/code.py", b"print()\n")
    write(root / "demo/sub--deeper--code.py", b"another file\n")
    write(root / "demo/empty.txt", b"")
    write(root / 'demo/odd "é name.txt', b"odd")
    for quant in ("Q8_0", "Q4_K_M", "UD-Q2_K_XL"):
        write_gguf(root / f"G/Tiny-GGUF/tiny-{quant}.gguf", quant)
    write_gguf(root / "G/Tiny-GGUF/mmproj-BF16.gguf", "another projector")
    write_gguf(root / "G/Tiny-GGUF/mmproj-F16.gguf", "projector")
    write(root / "G/Tiny-GGUF/LICENSE", b"MIT")
    write(root / "G/Tiny-GGUF/template", b"{{ .Prompt }}")
    write(root / "G/Tiny-GGUF/params", b'{"stop": ["x"]}')
    for i in (1, 2):
        write_gguf(root / f"G/Shards/s-Q8_0-0000{i}-of-00002.gguf", "shard")
    write(root / "datasets/org/rows/train.jsonl", b'{"a": 1}\n')
    write(root / "org/pointer/model.safetensors",
          b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n")
    write_by_hand(root / "v2/named/model.safetensors", [tensor("w", "U8", (5,))])
    write(root / "v2/named/blobs/x.txt", b"a file of the Hub")
    cache = root / "models--org--cached"
    for commit, data in ((COMMIT, b"now"), (OTHER, b"before"), (NO_REF, b"without a ref")):
        write(cache / "snapshots" / commit / "notes.txt", data)
        write_by_hand(cache / "snapshots" / commit / "model.safetensors", [tensor("w", "U8", (9,), commit)])
        write_by_hand(cache / "snapshots" / commit / "inner/model.safetensors", [tensor("v", "U8", (9,), commit)])
    write(cache / "refs/main", COMMIT.encode())
    write(cache / "refs/v1.0", OTHER.encode())
    age(root)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("oci") / "root"
    build(root)
    return root


@pytest.fixture(scope="module")
def s(root):
    s = Server(root, rescan="0")
    yield s
    s.stop()


# The repositories of the registry, by name, with the folder on disk.
FOLDERS = {"demo": "demo", "g/shards": "G/Shards", "g/tiny-gguf": "G/Tiny-GGUF", "org/model_a": "org/model_a",
           "org/pointer": "org/pointer", "v2/named": "v2/named",
           "org/model_a-" + hashlib.sha256(b"Org/Model_A").hexdigest()[:8]: "Org/Model_A",
           "org/cached": f"models--org--cached/snapshots/{COMMIT}"}
MODELS = sorted(set(FOLDERS) - {"org/pointer"})


def error_of(r, status, code):
    """Check the form of an error (distribution-spec, "Error codes"), and return its message."""
    assert r.status == status, r
    assert r.get("Content-Type") == "application/json"
    body = r.json()
    assert set(body) == {"errors"} and len(body["errors"]) == 1, body
    error = body["errors"][0]
    assert set(error) == {"code", "message", "detail"} and error["message"], error
    assert error["code"] == code and re.fullmatch("[A-Z_]+", code), error
    return error["message"]


def manifest_of(s, name, tag="main", headers=()):
    r = s.get(f"/v2/{name}/manifests/{tag}", headers)
    assert r.status == 200, r
    assert r.get("Docker-Content-Digest") == digest_of(r.body)
    return r, json.loads(r.body)


def files_of(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# ------------------------------------------------------------------------------------------------ what is there

def test_root(s):
    for method in ("GET", "HEAD"):
        r = s.request("/v2/", method=method)
        assert r.status == 200 and r.get("Docker-Distribution-API-Version") == "registry/2.0"


def test_names(s):
    names = s.json("/v2/_catalog")["repositories"]
    assert names == sorted(FOLDERS) == sorted(names)
    assert all(NAME.fullmatch(n) and len(n) <= 255 for n in names)
    same = [manifest_of(s, n)[0].body for n in ("demo", "local/demo")]
    assert same[0] == same[1]
    alias = next(name for name, folder in FOLDERS.items() if folder == "Org/Model_A")
    assert manifest_of(s, "Org/Model_A")[0].body == manifest_of(s, alias)[0].body
    assert manifest_of(s, "g/tiny-gguf")[0].body == manifest_of(s, "G/Tiny-GGUF")[0].body


@pytest.mark.parametrize("name", MODELS)
def test_every_digest_is_that_of_the_bytes(s, root, name):
    """Each tag: GET and HEAD by tag and by digest agree, and each descriptor names the bytes that come."""
    tags = s.json(f"/v2/{name}/tags/list")
    assert tags["name"] == name and tags["tags"] == sorted(tags["tags"])
    assert {"main", "flat", "latest"} <= set(tags["tags"])
    for tag in tags["tags"]:
        assert TAG.fullmatch(tag)
        if name == "g/shards" and tag in ("Q8_0", "latest"):
            continue                               # for llama.cpp alone
        r, manifest = manifest_of(s, name, tag)
        by_digest, _ = manifest_of(s, name, r.get("Docker-Content-Digest"))
        head = s.head(f"/v2/{name}/manifests/{tag}")
        assert by_digest.body == r.body
        for h in ("Content-Type", "Content-Length", "ETag", "Docker-Content-Digest"):
            assert r.get(h) == head.get(h) == by_digest.get(h)
        assert r.get("ETag") == f'"{digest_of(r.body)}"' and r.get("Content-Type") == manifest["mediaType"]
        if tag == "image":
            continue                               # an index, for which there is test_oci_layers.py
        for descriptor in [manifest["config"], *manifest["layers"]]:
            blob = s.get(f"/v2/{name}/blobs/{descriptor['digest']}")
            assert blob.status == 200 and blob.get("Docker-Content-Digest") == descriptor["digest"]
            assert digest_of(blob.body) == descriptor["digest"]
            assert len(blob.body) == descriptor["size"] and blob.get("Accept-Ranges") == "bytes"
            head = s.head(f"/v2/{name}/blobs/{descriptor['digest']}")
            assert head.status == 200 and head.length == len(blob.body) and head.get("ETag") == blob.get("ETag")


@pytest.mark.parametrize("name", MODELS)
def test_layers_are_the_files(s, root, name):
    files = files_of(root / FOLDERS[name])
    _, manifest = manifest_of(s, name)
    layers = manifest["layers"]
    assert [l["annotations"][FILEPATH] for l in layers] == sorted(files, key=str.encode)
    for layer in layers:
        assert layer["annotations"] == {FILEPATH: layer["annotations"][FILEPATH], TITLE: layer["annotations"][FILEPATH]}
        data = files[layer["annotations"][FILEPATH]]
        assert layer["digest"] == digest_of(data) and layer["size"] == len(data) and LAYER.fullmatch(layer["mediaType"])
    config = json.loads(s.get(f"/v2/{name}/blobs/{manifest['config']['digest']}").body)
    assert config["modelfs"] == {"type": "layers", "diffIds": [l["digest"] for l in layers]}


def test_flat_titles(s, root):
    """Every title without '/', and no two alike: demo has a file whose name is what another one would become."""
    _, manifest = manifest_of(s, "demo", "flat")
    titles = [l["annotations"][TITLE] for l in manifest["layers"]]
    paths = [l["annotations"][FILEPATH] for l in manifest["layers"]]
    assert sorted(paths) == sorted(files_of(root / "demo")) and len(set(titles)) == len(titles)
    assert not any("/" in t for t in titles)
    digits = hashlib.sha256(b"sub/deeper/code.py").hexdigest()[:16]
    assert dict(zip(paths, titles))["sub/deeper/code.py"] == f"{digits}-sub--deeper--code.py"
    assert dict(zip(paths, titles))["sub--deeper--code.py"] == "sub--deeper--code.py"


def test_model_config(s):
    """modelpack/model-spec, docs/config.md and schema/config-schema.json: no other members."""
    _, manifest = manifest_of(s, "demo")
    assert manifest["artifactType"] == MODEL and manifest["config"]["mediaType"] == MODEL_CONFIG
    config = json.loads(s.get(f"/v2/demo/blobs/{manifest['config']['digest']}").body)
    assert set(config) == {"descriptor", "config", "modelfs"}
    assert config["descriptor"] == {"family": "llama", "name": "demo", "licenses": ["apache-2.0"]}
    assert config["config"] == {"architecture": "LlamaForCausalLM", "format": "safetensors", "paramSize": "150.0K",
                                "precision": config["config"]["precision"]}
    assert set(config["config"]["precision"].split(",")) == {"float16", "float32"}
    types = {l["annotations"][FILEPATH]: LAYER.fullmatch(l["mediaType"])[1] for l in manifest["layers"]}
    assert types["model.safetensors"] == "weight" and types["config.json"] == "weight.config"
    assert types["README.md"] == "doc" and types["sub/deeper/code.py"] == "code"


def schema(name):
    """A validator for a schema of the package. Each names the others by file."""
    if not SCHEMAS.is_dir():
        raise RuntimeError("golang-github-opencontainers-image-spec-dev is missing: scripts/deps.sh test")
    documents = {p.name: json.loads(p.read_text()) for p in SCHEMAS.glob("*.json")}
    draft = referencing.jsonschema.DRAFT4
    resources = []
    for file, document in documents.items():
        resource = referencing.Resource(contents=document, specification=draft)
        resources += [(file, resource), (document.get("id", file), resource),
                      ("https://opencontainers.org/schema/image/" + file, resource),
                      ("https://opencontainers.org/schema/" + file, resource),
                      ("https://opencontainers.org/schema/descriptor/" + file, resource)]
    return jsonschema.Draft4Validator(documents[name], registry=referencing.Registry().with_resources(resources))


def test_documents_are_valid(s):
    """The schemas of the image specification. They know no configuration but an image's, and the Docker media type is
    not theirs."""
    validator = schema("image-manifest-schema.json")
    for name in MODELS:
        for tag in ("main", "flat"):
            validator.validate(manifest_of(s, name, tag)[1])
    with pytest.raises(jsonschema.ValidationError):                           # the validator can fail
        validator.validate({**manifest_of(s, "demo")[1], "layers": [{"digest": "sha256:0", "size": 1}]})
    index = s.get(f"/v2/demo/referrers/{digest_of(b'')}")
    assert index.get("Content-Type") == "application/vnd.oci.image.index.v1+json" == json.loads(index.body)["mediaType"]
    schema("image-index-schema.json").validate(json.loads(index.body))
    assert json.loads(index.body)["manifests"] == []
    filtered = s.get(f"/v2/demo/referrers/{digest_of(b'')}?artifactType=x")
    assert filtered.get("OCI-Filters-Applied") == "artifactType" and filtered.body == index.body


def test_documents_of_images_are_valid(s):
    """Likewise those of an image: index, manifests, configurations."""
    config = schema("config-schema.json")
    with pytest.raises(jsonschema.ValidationError):
        config.validate({"os": "linux", "rootfs": {"type": "layers", "diff_ids": []}})
    for name in MODELS:
        _, index = manifest_of(s, name, "image")
        schema("image-index-schema.json").validate(index)
        for platform in index["manifests"]:
            _, manifest = manifest_of(s, name, platform["digest"])
            schema("image-manifest-schema.json").validate(manifest)
            config.validate(json.loads(s.get(f"/v2/{name}/blobs/{manifest['config']['digest']}").body))


def test_revisions_of_a_cache(s, root):
    """A ref of a cache is a tag; its bytes are those of the other commit, and can be had by their digests."""
    assert "v1.0" in s.json("/v2/org/cached/tags/list")["tags"]
    _, manifest = manifest_of(s, "org/cached", "v1.0")
    digests = {l["annotations"][FILEPATH]: l["digest"] for l in manifest["layers"]}
    assert digests["notes.txt"] == digest_of(b"before")
    assert s.get(f"/v2/org/cached/blobs/{digests['notes.txt']}").body == b"before"
    assert manifest_of(s, "org/cached", OTHER)[1] == manifest


@pytest.mark.parametrize("commit, notes", [(OTHER, b"before"), (NO_REF, b"without a ref")])
def test_a_commit_is_pulled(s, commit, notes):
    """Whatever a pull by the tag of a commit asks for, by digest: the manifest, the configuration and the layers."""
    r, manifest = manifest_of(s, "org/cached", commit)
    assert manifest_of(s, "org/cached", digest_of(r.body))[0].body == r.body
    got = [s.get(f"/v2/org/cached/blobs/{d['digest']}") for d in (manifest["config"], *manifest["layers"])]
    assert [digest_of(b.body) for b in got] == [d["digest"] for d in (manifest["config"], *manifest["layers"])]
    assert notes in [b.body for b in got]


# ------------------------------------------------------------------------------------------------ pages, ranges, errors

def pages(s, target, key):
    """Follow the links from page to page (RFC 8288; relative as in the specification's example)."""
    got = []
    while target:
        r = s.get(target)
        assert r.status == 200, r
        got.append(r.json()[key])
        link = r.get("Link")
        match = link and re.fullmatch(r'<(/v2/[^>]*)>; rel="next"', link)
        assert not link or match, link
        target = match and match[1]
    return got


@pytest.mark.parametrize("target, key", [("/v2/_catalog", "repositories"), ("/v2/g/tiny-gguf/tags/list", "tags")])
def test_pages(s, target, key):
    whole = s.json(target)[key]
    for n in (1, 2, 3, len(whole), len(whole) + 1):
        got = pages(s, f"{target}?n={n}", key)
        assert [x for page in got for x in page] == whole and max(map(len, got)) <= n, got
    assert s.json(f"{target}?n=0")[key] == []
    assert s.json(f"{target}?last={whole[1]}")[key] == whole[2:]
    assert s.json(f"{target}?last={whole[1]}0")[key] == [x for x in whole if x > whole[1] + "0"]
    assert s.json(f"{target}?last=zzz")[key] == []
    for n in ("x", "-1", "", "99999999999999999999"):
        error_of(s.get(f"{target}?n={n}"), 400, "UNSUPPORTED")


def test_resume(s, root):
    data = (root / "demo/model.safetensors").read_bytes()
    target = f"/v2/demo/blobs/{digest_of(data)}"
    r = s.get(target, [("Range", "bytes=1000-")])
    assert r.status == 206 and r.body == data[1000:]
    assert r.get("Content-Range") == f"bytes 1000-{len(data) - 1}/{len(data)}"
    r = s.get(target, [("Range", "bytes=5-9"), ("If-Range", f'"{digest_of(data)}"')])
    assert r.status == 206 and r.body == data[5:10]
    assert s.get(target, [("Range", f"bytes={len(data)}-")]).status == 416
    assert s.get(target, [("If-None-Match", f'"{digest_of(data)}"')]).status == 304
    error_of(s.get(target, [("If-Match", '"another"')]), 412, "UNSUPPORTED")
    with Conn(s.port) as c:                                      # broken off, and taken up again
        c.send(harness.request_bytes(target))
        head = c.read_head()
        assert head.length == len(data)
    assert s.get(target, [("Range", "bytes=0-99")]).body == data[:100]


# shows: security.md oci-requests
def test_errors(s):
    nowhere = digest_of(b"nowhere")
    for target, status, code in [
        ("/v2/none/manifests/main", 404, "NAME_UNKNOWN"),
        ("/v2/none/tags/list", 404, "NAME_UNKNOWN"),
        (f"/v2/none/blobs/{nowhere}", 404, "NAME_UNKNOWN"),
        (f"/v2/none/referrers/{nowhere}", 404, "NAME_UNKNOWN"),
        ("/v2/org/rows/manifests/main", 404, "NAME_UNKNOWN"),                  # a dataset
        ("/v2/datasets/org/rows/manifests/main", 404, "NAME_UNKNOWN"),
        ("/v2/a/../demo/manifests/main", 404, "NAME_UNKNOWN"),
        ("/v2/demo/manifests/none", 404, "MANIFEST_UNKNOWN"),
        ("/v2/demo/manifests/Q4_K_M", 404, "MANIFEST_UNKNOWN"),
        ("/v2/demo/manifests/.x", 404, "MANIFEST_UNKNOWN"),
        (f"/v2/demo/manifests/{'t' * 129}", 404, "MANIFEST_UNKNOWN"),
        (f"/v2/demo/manifests/{nowhere}", 404, "MANIFEST_UNKNOWN"),
        (f"/v2/demo/manifests/sha512:{'0' * 128}", 404, "MANIFEST_UNKNOWN"),
        (f"/v2/demo/blobs/{nowhere}", 404, "BLOB_UNKNOWN"),
        (f"/v2/demo/blobs/{digest_of((s.root / 'G/Tiny-GGUF/LICENSE').read_bytes())}", 404, "BLOB_UNKNOWN"),
        ("/v2/demo/blobs/sha256:0", 400, "DIGEST_INVALID"),
        (f"/v2/demo/blobs/sha256:{'A' * 64}", 400, "DIGEST_INVALID"),
        (f"/v2/demo/manifests/sha256:{'0' * 63}g", 400, "DIGEST_INVALID"),
        ("/v2/demo/blobs/x", 400, "DIGEST_INVALID"),
        ("/v2/demo/referrers/x", 400, "DIGEST_INVALID"),
        ("/v2", 404, "UNSUPPORTED"),                                           # no path of the specification
        ("/v2/nonsense", 404, "UNSUPPORTED"),
        ("/v2/demo/unknown/x?n=1", 404, "UNSUPPORTED"),
        ("/v2/demo/tags/list/", 404, "UNSUPPORTED"),
        ("/v2//", 404, "UNSUPPORTED"),
        ("/v2/demo/manifests/a%2Fb", 404, "UNSUPPORTED"),                      # no tag and no digest has a '/'
        ("/v2/demo%2Fmanifests/main", 404, "UNSUPPORTED"),
        ("/v2/demo/manifests%2Fmain", 404, "UNSUPPORTED"),
        (f"/v2/demo/manifests/x%2Fblobs%2F{nowhere}", 404, "UNSUPPORTED"),
        ("/v2/demo/manifests/%zz", 400, "UNSUPPORTED"),
        ("/v2/%00", 400, "UNSUPPORTED"),
        ("/v2/" + 9000 * "x", 431, "UNSUPPORTED"),
        ("/v2/demo/blobs/uploads/", 404, "BLOB_UPLOAD_UNKNOWN"),
        ("/v2/org/pointer/manifests/main", 409, "BLOB_UNKNOWN"),
        ("/v2/g/shards/manifests/Q8_0", 422, "UNSUPPORTED"),
    ]:
        r = s.get(target)
        message = error_of(r, status, code)
        assert r.get("Docker-Distribution-API-Version") == "registry/2.0", target
        head = s.head(target)
        assert head.status == status and head.get("Content-Type") == "application/json", target
        if target == "/v2/demo/manifests/none":
            assert message == ('demo has no tag "none"; it has flat, image, latest, main; '
                               "a rank's is spelled tp8-rank0-vllm")
        if "shards" in target:
            assert "shards" in message and "llama-gguf-split" in message


@pytest.mark.parametrize("method, path", [
    ("POST", "blobs/uploads/"), ("POST", f"blobs/uploads/?mount={digest_of(b'')}&from=x"), ("PUT", "manifests/main"),
    ("PATCH", "blobs/uploads/1-2"), ("PUT", "blobs/uploads/1-2"), ("DELETE", "manifests/main"),
    ("DELETE", f"blobs/{digest_of(b'')}"), ("POST", "unknown/x"), ("PUT", "x"), ("PATCH", "x"), ("DELETE", "x")])
# shows: security.md oci-requests
def test_push_is_refused(s, method, path):
    with s.conn() as c:
        c.send(harness.request_bytes(f"/v2/demo/{path}", [("Content-Length", "100000")], method))
        r = c.read_response(method)
    error_of(r, 405, "UNSUPPORTED")
    assert r.get("Allow") == "GET, HEAD" and r.get("Docker-Distribution-API-Version") == "registry/2.0"


def test_paths_of_the_hub_stay(s):
    """A repository of the Hub may have the namespace v2, and files with the words of this facade in their paths."""
    assert s.get("/v2/named/resolve/main/blobs/x.txt").body == b"a file of the Hub"
    assert s.json("/api/models/v2/named")["id"] == "v2/named"
    error_of(s.get("/v2/named/nothing/at/all"), 404, "UNSUPPORTED")                # the rest is the registry's


# ------------------------------------------------------------------------------------------------ Ollama and llama.cpp

def ollama_pull(s, name, tag):
    """Sends the requests of `ollama pull`, by server/images.go (pullModelManifest, GetModel) and server/download.go
    (blobDownload.Prepare and run, downloadChunk) of ollama 0.12: the manifest, then for each layer and the
    configuration HEAD for the length, GET for the address, and GET of ranges there. Versions before took the address
    from Location, and failed without one."""
    agent = [("User-Agent", "ollama/0.12.6 (amd64 linux) Go/go1.24.1"), ("Accept-Encoding", "gzip")]
    r = s.get(f"/v2/{name}/manifests/{tag}", [("Accept", DOCKER), *agent])
    assert r.status == 200, r
    got = {}
    manifest = json.loads(r.body)
    for layer in [*manifest["layers"], manifest["config"]]:
        target = f"/v2/{name}/blobs/{layer['digest']}"
        total = s.head(target, agent).length
        direct = s.get(target, agent)
        assert direct.status == 200
        target = direct.get("Location")
        half = total // 2
        parts = [s.get(target, [("Range", f"bytes={a}-{b - 1}"), *agent]) for a, b in ((0, half), (half, total))]
        data = b"".join(p.body for p in parts)
        assert [p.status for p in parts] == [206, 206] and digest_of(data) == layer["digest"]
        got[layer["mediaType"]] = data
    return r, got


@pytest.mark.parametrize("tag, file", [
    ("Q4_K_M", "tiny-Q4_K_M.gguf"), ("q8_0", "tiny-Q8_0.gguf"), ("UD-Q2_K_XL", "tiny-UD-Q2_K_XL.gguf"),
    ("latest", "tiny-Q4_K_M.gguf"), ("tiny-Q8_0.gguf", "tiny-Q8_0.gguf")])
def test_ollama(s, root, tag, file):
    place = root / "G/Tiny-GGUF"
    r, got = ollama_pull(s, "G/Tiny-GGUF", tag)
    assert r.get("Content-Type") == DOCKER == json.loads(r.body)["mediaType"] and r.get("Vary") == "User-Agent"
    kind = "application/vnd.ollama.image."
    config = json.loads(got.pop("application/vnd.docker.container.image.v1+json"))
    assert got == {kind + k: (place / f).read_bytes() for k, f in (
        ("model", file), ("projector", "mmproj-F16.gguf"), ("template", "template"), ("params", "params"),
        ("license", "LICENSE"))}
    assert config["rootfs"] == {"type": "layers", "diff_ids": [l["digest"] for l in json.loads(r.body)["layers"]]}
    assert config["model_format"] == "gguf" and config["model_family"] == "llama" and config["os"] == "linux"
    assert config["file_type"] == re.search(r"tiny-(.*)\.gguf", file)[1]


def test_llama_cpp(s, root):
    """Sends the requests of `llama-server -hf`, by common_get_hf_file of llama.cpp (common/arg.cpp of b5000,
    common/download.cpp of b7000): the manifest with its own User-Agent, and then the file from the Hub's path of its
    name."""
    agent = [("User-Agent", "llama-cpp/b7000-1a2b3c4"), ("Accept", "application/json")]
    for id, tag, file, projector in [("G/Tiny-GGUF", "latest", "tiny-Q4_K_M.gguf", "mmproj-F16.gguf"),
                                     ("G/Tiny-GGUF", "Q8_0", "tiny-Q8_0.gguf", "mmproj-F16.gguf"),
                                     ("G/Shards", "Q8_0", "s-Q8_0-00001-of-00002.gguf", None)]:
        r = s.get(f"/v2/{id}/manifests/{tag}", agent)
        assert r.status == 200 and r.get("Vary") == "User-Agent", r
        assert r.json()["ggufFile"]["rfilename"] == file
        assert r.json().get("mmprojFile", {}).get("rfilename") == projector
        assert s.get(f"/{id}/resolve/main/{file}", agent).body == (root / id / file).read_bytes()
    assert s.get("/v2/G/Tiny-GGUF/manifests/none", agent).status == 404
    r = s.get("/v2/demo/manifests/latest", agent)
    assert r.status == 404 and b"has no GGUF file" in r.body, r


def test_files_in_shards_come_last(tmp_path):
    """Ollama takes single files alone, llama.cpp also shards, and neither a set that lacks a shard."""
    root = tmp_path / "root"
    shard = "{}-0000{}-of-00002.gguf".format
    for file in ("m.gguf", shard("m", 1)):                                       # beside a set that is incomplete
        write_gguf(root / "o/incomplete" / file, file)
    for file in (shard("m-Q8_0", 1), shard("m-Q8_0", 2), "m-Q8_0.gguf", shard("n-Q6_K", 1), "o-Q6_K.gguf"):
        write_gguf(root / "o/both" / file, file)                                 # of one quantisation
    for file in (shard("m-Q4_K_M", 1), shard("m-Q4_K_M", 2), "m-Q2_K.gguf"):
        write_gguf(root / "o/usual" / file, file)
    age(root)
    agent = [("User-Agent", "llama-cpp/b7000-1a2b3c4")]
    with Server(root, rescan="0") as s:
        for name, tag, ollama, llama_cpp in [
                ("o/incomplete", "latest", "m.gguf", "m.gguf"),
                ("o/both", "Q8_0", "m-Q8_0.gguf", "m-Q8_0.gguf"), ("o/both", "Q6_K", "o-Q6_K.gguf", "o-Q6_K.gguf"),
                ("o/usual", "latest", "m-Q2_K.gguf", shard("m-Q4_K_M", 1))]:
            r, got = ollama_pull(s, name, tag)
            assert got["application/vnd.ollama.image.model"] == (root / name / ollama).read_bytes(), (name, tag)
            assert s.get(f"/v2/{name}/manifests/{tag}", agent).json()["ggufFile"]["rfilename"] == llama_cpp, name


# ------------------------------------------------------------------------------------------------ digests and restarts

def whole(s):
    """All manifests of all models, by name and tag."""
    got = {}
    for name in s.json("/v2/_catalog")["repositories"]:
        for tag in s.json(f"/v2/{name}/tags/list")["tags"]:
            got[name, tag] = s.get(f"/v2/{name}/manifests/{tag}").body
    return got


def test_equal_files_give_equal_bytes(s, root, tmp_path):
    """On another server with the same files, of other inodes and times, and after its restart."""
    shutil.copytree(root, tmp_path / "copy", symlinks=True)
    age(tmp_path / "copy", 100_000)
    known = whole(s)
    assert len(known) > 20
    for _ in range(2):
        with Server(tmp_path / "copy", rescan="0") as other:
            assert whole(other) == known
    digest = digest_of(known["demo", "main"])
    with Server(tmp_path / "copy", rescan="0") as other:            # a client that resumes after a restart, by digest
        assert manifest_of(other, "demo", digest)[0].body == known["demo", "main"]
        config = json.loads(known["demo", "main"])["config"]["digest"]
        assert digest_of(other.get(f"/v2/demo/blobs/{config}").body) == config


# shows: security.md oci-large-repositories
def test_digests_are_hashed_on_request(tmp_path):
    """A fresh server with files whose hashing takes minutes: small files are hashed first on request. A request for a
    manifest with a large one waits, here until the server drains; the answer then says how far hashing is, and to try
    again."""
    write_by_hand(tmp_path / "root/small/model.safetensors", [tensor("w", "U8", (1000,))])
    write_by_hand(tmp_path / "root/large/model.safetensors", [tensor("w", "U8", (1000,))])
    with open(tmp_path / "root/large/huge.bin", "wb") as f:
        f.truncate(1 << 40)
    age(tmp_path / "root")
    with Server(tmp_path / "root", rescan="0", hash_threads=1) as s:
        _, manifest = manifest_of(s, "small")
        assert manifest["layers"][0]["digest"] == digest_of((tmp_path / "root/small/model.safetensors").read_bytes())
        nowhere = digest_of(b"nowhere")
        assert s.get(f"/v2/small/blobs/{nowhere}").status == 404
        paths = "manifests/main", "manifests/flat", f"manifests/{nowhere}", f"blobs/{nowhere}"
        with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
            asked = [pool.submit(s.get, f"/v2/large/{path}") for path in paths]
            s.wait_for(lambda: s.gauge("tensord_http_requests_in_flight") > len(paths), "all wait")
            assert not any(r.done() for r in asked)
            s.term()
            answers = [r.result() for r in asked]
        for r in answers:
            message = error_of(r, 503, "UNAVAILABLE")
            assert int(r.get("Retry-After")) > 0 and "of 2 files" in message and "1099.51 GB" in message, message


def test_a_digest_is_found_while_hashing_goes_on(tmp_path):
    """A client resumes, by digest, right after a restart: the file is hashed first, and the manifest made of it."""
    write_by_hand(tmp_path / "root/m/model.safetensors", [tensor("w", "U8", (1000,))])
    with open(tmp_path / "root/m/large.bin", "wb") as f:
        f.truncate(300 << 20)
    age(tmp_path / "root")
    with Server(tmp_path / "root", rescan="0") as s:
        r, manifest = manifest_of(s, "m")
    for path, digest in (("manifests", digest_of(r.body)), ("blobs", manifest["config"]["digest"])):
        with Server(tmp_path / "root", rescan="0") as s:
            got = s.get(f"/v2/m/{path}/{digest}")
            assert got.status == 200 and digest_of(got.body) == digest


def test_without_hashing(tmp_path):
    """--hash-threads 0: an error that says what to change, and nothing to try again."""
    write_by_hand(tmp_path / "root/small/model.safetensors", [tensor("w", "U8", (1000,))])
    age(tmp_path / "root")
    with Server(tmp_path / "root", rescan="0", hash_threads=0) as s:
        for path in ("manifests/main", f"manifests/{digest_of(b'')}", f"blobs/{digest_of(b'')}"):
            assert "--hash-threads 1" in error_of(s.get(f"/v2/small/{path}"), 501, "UNSUPPORTED")
        assert s.json("/v2/small/tags/list")["tags"] == ["flat", "image", "latest", "main"]


# shows: security.md oci-file-changes
def test_a_changed_file_never_has_its_old_digest(tmp_path):
    path = tmp_path / "root/m/model.safetensors"
    write_by_hand(path, [tensor("w", "U8", (5000,), "old")])
    age(tmp_path / "root")
    with Server(tmp_path / "root", rescan="0", settle="0") as s:
        _, manifest = manifest_of(s, "m")
        old = manifest["layers"][0]["digest"]
        s.wait_hashed()                                          # the scan that publishes the digests is over
        write_by_hand(path, [tensor("w", "U8", (5000,), "new")])
        r = s.get(f"/v2/m/blobs/{old}")                          # no scan has seen the change
        assert r.status == 503, r
        s.hup()
        new = digest_of(path.read_bytes())
        s.wait_for(lambda: manifest_of(s, "m")[1]["layers"][0]["digest"] == new, "the new file")
        error_of(s.get(f"/v2/m/blobs/{old}"), 404, "BLOB_UNKNOWN")


# shows: security.md oci-file-changes
def test_an_equal_file_stands_in_for_one_that_has_changed(tmp_path):
    root, data = tmp_path / "root", b"the licence"
    for name in ("a.txt", "b.txt"):
        write(root / "m" / name, data)
    write_by_hand(root / "m/model.safetensors", [tensor("w", "U8", (5,))])
    age(root)
    with Server(root, rescan="0", settle="0") as s:
        manifest_of(s, "m")
        s.wait_hashed()
        target = f"/v2/m/blobs/{digest_of(data)}"
        write(root / "m/a.txt", b"other bytes")
        assert s.get(target).body == data
        write(root / "m/b.txt", b"other bytes")
        error_of(s.get(target), 503, "UNAVAILABLE")


def test_blobs_of_revisions_with_many_files(tmp_path):
    """Three revisions, each an artifact, with more than 10,000 files together, which share most of these."""
    cache = tmp_path / "root/models--org--many"
    (cache / "blobs").mkdir(parents=True)
    write(cache / "blobs/empty", b"")
    for commit in (COMMIT, OTHER, NO_REF):
        write(cache / "snapshots" / commit / "notes.txt", commit.encode())
        for i in range(4000):
            (cache / "snapshots" / commit / f"{i}.txt").symlink_to("../../blobs/empty")
    write(cache / "refs/main", COMMIT.encode())
    age(tmp_path / "root")
    with Server(tmp_path / "root", rescan="0") as s:
        for commit in (COMMIT, OTHER, NO_REF):
            _, manifest = manifest_of(s, "org/many", commit)
            digest = digest_of(commit.encode())
            assert digest in [l["digest"] for l in manifest["layers"]]
            assert s.get(f"/v2/org/many/blobs/{digest}").body == commit.encode()


# ------------------------------------------------------------------------------------------------ tokens

def basic(token, user="any"):
    return [("Authorization", "Basic " + base64.b64encode(f"{user}:{token}".encode()).decode())]


@pytest.fixture(scope="module")
def guarded(root, tmp_path_factory):
    tokens = tmp_path_factory.mktemp("oci-tokens") / "tokens.json"
    kinds = {"some": ("demo", "org/cached"), "inner": ("demo", "org/cached", "org/cached/*"), "all": ("*",)}
    made = {name: new(tokens, name, *globs) for name, globs in kinds.items()}
    s = Server(root, "--tokens", tokens, rescan="0")
    yield s, made
    s.stop()


def test_credentials(guarded):
    s, made = guarded
    for target in ("/v2/", "/v2/demo/manifests/main", "/v2/none/manifests/main", "/v2/_catalog",
                   "/v2/none"):
        for headers in ([], basic("td_wrong"), [("Authorization", "Basic !")], [("Authorization", "Basic YQ==")],
                        [("Authorization", "Bearer td_wrong")], basic("")):
            r = s.get(target, headers)
            error_of(r, 401, "UNAUTHORIZED")
            assert r.get("WWW-Authenticate") == 'Basic realm="tensord"'
            assert r.get("Docker-Distribution-API-Version") == "registry/2.0"
        for headers in (basic(made["all"]), basic(made["all"], ""), basic(made["all"], "é"),
                        [("Authorization", f"Bearer {made['all']}")]):
            assert s.get(target, headers).status == (404 if "none" in target else 200)
    assert "private" in s.get("/v2/demo/manifests/main", basic(made["all"])).get("Cache-Control")


def test_a_refusal_tells_a_person_what_to_do(guarded):
    """The command in the message works as it stands, with the token and the URL in it."""
    s, made = guarded
    message = error_of(s.get("/v2/"), 401, "UNAUTHORIZED")
    assert "the token is the password, with any user name" in message
    command = re.search(r"curl -u any:TOKEN URL", message).group()
    command = command.replace("TOKEN", made["all"]).replace("URL", f"http://127.0.0.1:{s.port}/v2/").split()
    answer = subprocess.run([*command, "--silent", "--write-out", "%{http_code}"], capture_output=True, timeout=30)
    assert answer.stdout == b"{}200", answer


def test_signed_urls(root, tmp_path):
    """A signature stands for the token, here as at the other paths; a wrong signature and a missing token have
    different errors."""
    tokens = TokensFile(tmp_path / "tokens.json").add("some", ["demo"])
    with Server(root, "--tokens", tokens, rescan="0") as s:
        r = s.get(tokens.sign("/v2/demo/manifests/main", "some"))
        assert r.status == 200 and r.get("Docker-Content-Digest") == digest_of(r.body), r
        layer = json.loads(r.body)["layers"][0]["digest"]
        target = tokens.sign(f"/v2/demo/blobs/{layer}", "some")
        assert digest_of(s.get(target).body) == layer
        assert s.json(tokens.sign("/v2/demo/tags/list?n=1", "some"))["tags"] == ["flat"]
        bad = target[:-1] + ("0" if target[-1] != "0" else "1")
        error_of(s.get(bad), 403, "DENIED")
        error_of(s.get(tokens.sign("/v2/demo/manifests/main", "some", -1)), 403, "DENIED")
        error_of(s.get(tokens.sign("/v2/org/model_a/manifests/main", "some")), 404, "NAME_UNKNOWN")
        error_of(s.get(target, basic("td_wrong")), 401, "UNAUTHORIZED")        # the field is judged first
        assert s.get(target, basic(tokens.text("some"))).status == 200


# shows: security.md oci-tokens
def test_hidden_is_like_absent(guarded):
    s, made = guarded
    some = basic(made["some"])
    assert s.get("/v2/_catalog", some).json()["repositories"] == ["demo", "org/cached"]
    hidden, absent = "org/model_a", "org/model_z"
    r, manifest = manifest_of(s, hidden, headers=basic(made["all"]))
    layer = manifest["layers"][0]["digest"]
    for path in ("manifests/main", "manifests/none", f"manifests/{digest_of(r.body)}",
                 f"blobs/{layer}", f"blobs/{manifest['config']['digest']}", "tags/list", f"referrers/{layer}"):
        a, b = (s.get(f"/v2/{name}/{path}", some) for name in (hidden, absent))
        error_of(a, 404, "NAME_UNKNOWN")
        assert a.body == b.body.replace(absent.encode(), hidden.encode())
        assert a.names() == b.names()
    error_of(s.get(f"/v2/demo/blobs/{layer}", some), 404, "BLOB_UNKNOWN")


# shows: security.md oci-tokens
def test_parts_of_a_repository_stay_hidden(guarded):
    """The model inside another one of a cache, whose commit is the same for both tokens, whichever asks first."""
    s, made = guarded
    for order in (("inner", "some"), ("some", "inner")):
        for kind in order:
            _, manifest = manifest_of(s, "org/cached", headers=basic(made[kind]))
            paths = [l["annotations"][FILEPATH] for l in manifest["layers"]]
            assert ("inner/model.safetensors" in paths) == (kind == "inner"), (kind, paths)
