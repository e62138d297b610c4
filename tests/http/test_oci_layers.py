"""Layers of a registry that do not exist on disk: the image of a model, and the files of ranks. The oracles are
Python's tarfile and hashlib, and the paths of the Hub, which answer the same rank files."""
import hashlib
import io
import json
import os
import shutil
import struct
import subprocess
import tarfile
import threading
import time
from pathlib import Path

import kill_digests
import pytest
from harness import Server, age, enc, pattern, request_bytes, tensor, tensord_binary, write_by_hand

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
RANK_TAGS = ("tp2-rank0-vllm", "tp2-rank1-vllm", "tp1-rank0-fsdp", "safetensors")


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    model = root / "org" / "m"
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
              "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 1, "vocab_size": 96}
    write_by_hand(model / "model.safetensors", [
        tensor("model.embed_tokens.weight", "BF16", [96, 64]), tensor("lm_head.weight", "BF16", [96, 64]),
        tensor("model.norm.weight", "BF16", [64])])
    (model / "config.json").write_text(json.dumps(config))
    (model / "empty.txt").write_bytes(b"")
    (model / "large.dat").write_bytes(pattern(5 << 20, 1))
    (model / "sub" / "deeper").mkdir(parents=True)
    (model / "sub" / "deeper" / "poids-modèle.json").write_text("{}")
    (model / "sub" / ("long" * 40)).mkdir()
    (model / "sub" / ("long" * 40) / ("name" * 30)).write_bytes(pattern(513, 2))
    write_by_hand(root / "single" / "model.safetensors", [tensor("a/b", "F32", [10, 10])])
    age(root)
    return root


def files_of(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def get(s, path, status=200, headers=()):
    r = s.get("/v2/" + path, headers)
    assert r.status == status, r
    return r


def document(s, path, media_type):
    """Return a document and check what every answer with one has."""
    r = get(s, path)
    assert r.get("Content-Type") == media_type and r.get("Docker-Content-Digest") == digest(r.body), r
    head = s.head("/v2/" + path)
    assert head.length == len(r.body) and head.get("Docker-Content-Digest") == digest(r.body)
    return json.loads(r.body)


def blob(s, name, descriptor):
    r = get(s, f"{name}/blobs/{descriptor['digest']}")
    assert (digest(r.body), len(r.body)) == (descriptor["digest"], descriptor["size"])
    assert r.get("Docker-Content-Digest") == descriptor["digest"] and r.get("Accept-Ranges") == "bytes"
    assert r.etag == f'"{descriptor["digest"]}"' and r.get("Location") == f"/v2/{name}/blobs/{descriptor['digest']}"
    return r.body


def image_layers(s, name):
    """Return the descriptors of the image's layers, the same in the manifests of both platforms."""
    index = document(s, f"{name}/manifests/image", INDEX)
    assert index["schemaVersion"] == 2 and index["mediaType"] == INDEX
    assert [m["platform"] for m in index["manifests"]] == [{"architecture": a, "os": "linux"}
                                                          for a in ("amd64", "arm64")]
    seen = []
    for m in index["manifests"]:
        assert m["mediaType"] == MANIFEST
        manifest = document(s, f"{name}/manifests/{m['digest']}", MANIFEST)
        assert manifest["schemaVersion"] == 2 and manifest["config"]["mediaType"] == CONFIG
        config = json.loads(blob(s, name, manifest["config"]))
        assert config.pop("architecture") == m["platform"]["architecture"]
        assert config == {"os": "linux", "config": {}, "rootfs": {
            "type": "layers", "diff_ids": [layer["digest"] for layer in manifest["layers"]]}}
        assert {layer["mediaType"] for layer in manifest["layers"]} <= {LAYER}
        seen.append(manifest["layers"])
    assert seen[0] == seen[1]
    return seen[0]


def unpack(layers):
    """Unpack layers over each other, as a runtime does, with tarfile. Return {path: content}."""
    files, directories = {}, set()
    for data in layers:
        assert len(data) % 512 == 0 and data[-1024:] == bytes(1024)
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                assert (member.uid, member.gid, member.mtime) == (0, 0, 0)
                parent = os.path.dirname(member.name)
                assert parent == "" or parent in directories, "a directory comes before what is in it"
                if member.isdir():
                    assert member.mode == 0o755
                    directories.add(member.name)
                    continue
                assert member.isreg() and member.mode == 0o444 and member.name not in files
                files[member.name] = archive.extractfile(member).read()
    return files


# ------------------------------------------------------------------------------------------------- images

def test_an_image_has_the_files_at_its_root(root, start):
    s = start(root, hash_threads=1)
    for name, directory in (("org/m", root / "org" / "m"), ("local/single", root / "single")):
        layers = image_layers(s, name)
        assert unpack(blob(s, name, layer) for layer in layers) == files_of(directory)
        assert len(layers) == len(files_of(directory))
    assert "image" in get(s, "org/m/tags/list").json()["tags"]


def test_many_files_share_layers(tmp_path, start):
    root = tmp_path / "root"
    for i in range(250):
        path = root / "org" / "m" / f"d{i % 7}" / f"{i}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pattern(i * 11, i))
    write_by_hand(root / "org" / "m" / "model.safetensors", [tensor("w", "U8", [8])])
    age(root)
    s = start(root, hash_threads=1)
    layers = image_layers(s, "org/m")
    assert len(layers) == 100
    assert unpack(blob(s, "org/m", layer) for layer in layers) == files_of(root / "org" / "m")


def test_a_layer_is_cut_and_resumed(root, start):
    s = start(root, hash_threads=1)
    large = max(image_layers(s, "org/m"), key=lambda layer: layer["size"])
    whole = blob(s, "org/m", large)
    path = f"org/m/blobs/{large['digest']}"
    size = large["size"]
    for first, last in ((0, 0), (0, 511), (500, 520), (511, 512), (3 << 20, size - 1), (size - 1025, size - 1)):
        r = get(s, path, 206, {"Range": f"bytes={first}-{last}", "If-Range": f'"{large["digest"]}"'})
        assert r.body == whole[first:last + 1] and r.get("Content-Range") == f"bytes {first}-{last}/{size}"
    assert get(s, path, 304, {"If-None-Match": f'"{large["digest"]}"'}).body == b""
    assert get(s, path, 416, {"Range": f"bytes={size}-"}).get("Content-Range") == f"bytes */{size}"


def test_equal_files_give_equal_images(root, tmp_path, start):
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    age(copy, 7200)
    a, b = start(root, hash_threads=1), start(copy, hash_threads=1)
    for tag in ("image", *RANK_TAGS):
        assert get(a, f"org/m/manifests/{tag}").body == get(b, f"org/m/manifests/{tag}").body, tag


# shows: security.md oci-foreign-digests
def test_layers_of_another_repository_are_unknown(root, start):
    s = start(root, hash_threads=1)
    for layer in image_layers(s, "org/m"):
        if layer["size"] > 100000:
            get(s, f"local/single/blobs/{layer['digest']}", 404)
    rank = document(s, "org/m/manifests/tp2-rank0-vllm", MANIFEST)
    weights = [layer for layer in rank["layers"] if "weight.v1" in layer["mediaType"]]
    assert len(weights) == 1
    get(s, f"org/m/blobs/{weights[0]['digest']}")
    r = get(s, f"local/single/blobs/{weights[0]['digest']}", 404)
    assert r.json()["errors"][0]["code"] == "BLOB_UNKNOWN"


def test_no_name_removes_files(root, start):
    """In a layer, a name that begins with ".wh." removes a file. Hidden files belong to no model."""
    path = root / "org" / "m" / "sub" / ".wh.config.json"
    path.write_text("x")
    wanted = files_of(root / "org" / "m")
    del wanted["sub/.wh.config.json"]
    age(root)
    s = start(root, hash_threads=1)
    assert unpack(blob(s, "org/m", layer) for layer in image_layers(s, "org/m")) == wanted


def test_without_hash_threads(root, tmp_path, start):
    """Whether the files are not hashed, or only what is made of them."""
    state = tmp_path / "state"
    for known in (False, True):
        if known:
            s = start(root, "--state-dir", state, hash_threads=1)
            s.wait_hashed()
            s.stop()
        s = start(root, "--state-dir", state, hash_threads=0)
        for tag in ("image", "tp2-rank0-vllm"):
            r = get(s, f"org/m/manifests/{tag}", 501)
            assert "--hash-threads" in r.json()["errors"][0]["message"]
        get(s, f"org/m/blobs/sha256:{'0' * 64}", 404 if known else 501)
        s.stop()


# ------------------------------------------------------------------------------------------------- ranks

def test_rank_tags_are_artifacts(root, start):
    s = start(root, hash_threads=1)
    listed = get(s, "org/m/tags/list").json()["tags"]
    for tag in RANK_TAGS:
        manifest = document(s, f"org/m/manifests/{tag}", MANIFEST)
        assert manifest["artifactType"] == "application/vnd.cncf.model.manifest.v1+json" and tag not in listed
        config = json.loads(blob(s, "org/m", manifest["config"]))
        assert config["modelfs"]["diffIds"] == [layer["digest"] for layer in manifest["layers"]]
        for layer in manifest["layers"]:
            path = layer["annotations"]["org.cncf.model.filepath"]
            hub = s.get(f"/org/m/resolve/{tag}/{enc(path, '/')}")
            assert hub.status == 200 and blob(s, "org/m", layer) == hub.body, path
        r = get(s, f"org/m/manifests/{tag}")
        assert get(s, f"org/m/manifests/{digest(r.body)}").body == r.body


def test_a_rank_file_is_cut(root, start):
    s = start(root, hash_threads=1)
    manifest = document(s, "org/m/manifests/tp2-rank1-vllm", MANIFEST)
    layer = max(manifest["layers"], key=lambda layer: "weight.v1" in layer["mediaType"])
    whole = blob(s, "org/m", layer)
    for first in (0, 9, 1000, len(whole) - 1):
        r = get(s, f"org/m/blobs/{layer['digest']}", 206,
                {"Range": f"bytes={first}-", "If-Range": f'"{layer["digest"]}"'})
        assert r.body == whole[first:]


@pytest.mark.parametrize("tag, says", [("tp2-rank2-vllm", "rank0 to rank1"), ("tp0-rank0-vllm", "tp1 to"),
                                       ("tp2-rank0-none-such", "engine"), ("nothing", "no tag")])
def test_wrong_rank_tags(root, start, tag, says):
    s = start(root, hash_threads=1)
    error = get(s, f"org/m/manifests/{tag}", 404).json()["errors"][0]
    assert error["code"] == "MANIFEST_UNKNOWN" and says in error["message"]


def hub_tree(s, revision):
    """Return path -> item of the Hub's list of files."""
    r = s.get(f"/api/models/org/m/tree/{revision}?recursive=true")
    assert r.status == 200, r
    return {item["path"]: item for item in r.json() if item["type"] == "file"}


def add_exports(root):
    """Add what published models have in folders: an export and the original, neither with a config.json. Such a one
    with a config.json is a model that is wanted, as a second part of a pipeline."""
    model = root / "org" / "m"
    write_by_hand(model / "onnx" / "model.safetensors", [tensor("x", "F32", [8])])
    (model / "original").mkdir()
    shutil.copy(Path(__file__).parents[1] / "data/torch/checkpoint.pt", model / "original" / "consolidated.00.pth")
    (model / "original" / "params.json").write_text("{}")
    (model / "text").mkdir()
    shutil.copy(model / "config.json", model / "text" / "config.json")
    shutil.copy(model / "model.safetensors", model / "text" / "model.safetensors")
    age(root)


def test_exports_beside_a_model(root, start):
    """The Hub, the registry and the native API agree about the files of a rank: folders without a config.json have
    none, since the engine could make none."""
    add_exports(root)
    s = start(root, hash_threads=1)
    kept = set(files_of(root / "org" / "m")) - {"onnx/model.safetensors", "original/consolidated.00.pth"}
    for tag, engine in (("tp2-rank0-vllm", "vllm"), ("tp2-rank1-vllm-0.33", "vllm"),
                        ("tp2-rank1-vllm-0.13", "vllm@0.13")):
        file = f"model-rank-{tag[8]}-part-0.safetensors"
        wanted = {path.replace("model.safetensors", file) for path in kept}
        manifest = document(s, f"org/m/manifests/{tag}", MANIFEST)
        layers = {layer["annotations"]["org.cncf.model.filepath"]: layer for layer in manifest["layers"]}
        info = s.get(f"/api/models/org/m/revision/{tag}").json()
        assert set(layers) == set(hub_tree(s, tag)) == {file["rfilename"] for file in info["siblings"]} == wanted
        for folder in ("", "text/"):
            weights = blob(s, "org/m", layers[f"{folder}{file}"])
            rank = s.get(f"/models/org/m/{folder}shards/{engine}/tp2/rank-{tag[8]}.safetensors")
            assert rank.body == weights == s.get(f"/org/m/resolve/{tag}/{folder}model.safetensors").body
            assert rank.body == s.get(f"/org/m/resolve/{tag}/{folder}{file}").body
        for revision in (tag, info["sha"]):
            assert s.get(f"/org/m/resolve/{revision}/onnx/model.safetensors").status == 404
            assert s.get(f"/org/m/resolve/{revision}/original/model.safetensors").status == 404
    assert s.get("/models/org/m/onnx/shards/vllm/tp2/rank-0.safetensors").status == 422
    assert {"onnx/model.safetensors", "original/model.safetensors"} < set(hub_tree(s, "tp2-rank0-fsdp"))


def test_a_folder_that_cannot_be_split_is_named(root, start):
    """Without a model in the repository's own folder, nothing is left out."""
    add_exports(root)
    (root / "org" / "m" / "model.safetensors").unlink()
    s = start(root, hash_threads=1)
    said = ('in "onnx": the model has no config.json, from which engine vllm@0.33 learns the architecture: '
            'put one beside the checkpoint')
    for path in ("api/models/org/m/tree/tp2-rank0-vllm?recursive=true",
                 "org/m/resolve/tp2-rank0-vllm/onnx/model.safetensors"):
        r = s.get(f"/{path}")
        assert (r.status, r.json()["error"]) == (422, said)
    assert get(s, "org/m/manifests/tp2-rank0-vllm", 422).json()["errors"][0]["message"] == said


def git_blob(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def test_the_hub_tells_digests_that_the_registry_found_out(root, tmp_path, start):
    """As of files on disk, under Git LFS's names. It does not find them out itself, and keeps them over a restart."""
    tag, name, state = "tp2-rank1-vllm", "model-rank-1-part-0.safetensors", tmp_path / "state"
    s = start(root, "--state-dir", state, hash_threads=1)
    s.wait_hashed()
    before = s.get(f"/api/models/org/m/tree/{tag}")
    head = s.head(f"/org/m/resolve/{tag}/{name}")
    assert "lfs" not in hub_tree(s, tag)[name]
    get(s, f"org/m/manifests/{tag}")
    after = s.get(f"/api/models/org/m/tree/{tag}")
    weights = s.get(f"/org/m/resolve/{tag}/{name}")
    assert (weights.etag, weights.get("X-Repo-Commit")) == (head.etag, head.get("X-Repo-Commit"))
    assert before.get("X-Repo-Commit") == after.get("X-Repo-Commit") == head.get("X-Repo-Commit")
    assert before.etag != after.etag == s.get(f"/api/models/org/m/tree/{tag}").etag
    sha256, size = hashlib.sha256(weights.body).hexdigest(), len(weights.body)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
    wanted = {"type": "file", "oid": git_blob(pointer), "size": size, "path": name,
              "lfs": {"oid": sha256, "size": size, "pointerSize": len(pointer)}}
    for revision in (tag, head.get("X-Repo-Commit")):
        assert hub_tree(s, revision)[name] == wanted
    assert "lfs" not in hub_tree(s, "tp2-rank0-vllm")["model-rank-0-part-0.safetensors"]
    s.stop()
    s = start(root, "--state-dir", state, hash_threads=0)
    assert hub_tree(s, tag)[name] == wanted


# ------------------------------------------------------------------------------------------------- restarts

def pulled(s):
    """Ask for the image and a rank. Return {path: digest} of all that a client may ask for afterwards."""
    paths = {}

    def add(manifest):
        paths[f"org/m/manifests/{digest(manifest)}"] = digest(manifest)
        manifest = json.loads(manifest)
        for child in manifest.get("manifests", []):
            add(get(s, f"org/m/manifests/{child['digest']}").body)
        for descriptor in [manifest["config"], *manifest["layers"]] if "layers" in manifest else []:
            paths[f"org/m/blobs/{descriptor['digest']}"] = descriptor["digest"]

    for tag in ("image", "tp2-rank0-vllm"):
        add(get(s, f"org/m/manifests/{tag}").body)
    return paths


@pytest.mark.parametrize("order", [1, -1])
def test_a_pull_goes_on_after_a_restart(root, tmp_path, start, order):
    """With --state-dir all digests that were given out are still known, and nothing is hashed again."""
    state = tmp_path / "state"
    s = start(root, "--state-dir", state, hash_threads=1)
    paths = pulled(s)
    s.stop()
    before = (state / "virtual-digests").read_bytes()
    s = start(root, "--state-dir", state, hash_threads=0)
    for path in list(paths)[::order]:
        assert digest(get(s, path).body) == paths[path], path
    s.stop()
    after = (state / "virtual-digests").read_bytes()
    # a rank's digest may be noted again: its key changes once all files are hashed
    assert after.startswith(before) and (len(after) - len(before)) in (0, 112)


def test_without_a_state_directory(root, start):
    """A server that hashed nothing yet finds the image's digests when it is asked for one. A rank's file it finds after
    it was asked for the rank's manifest."""
    s = start(root, hash_threads=1)
    paths = pulled(s)
    ranks = [layer["digest"] for layer in document(s, "org/m/manifests/tp2-rank0-vllm", MANIFEST)["layers"]
             if "weight.v1" in layer["mediaType"]]
    s.stop()
    for path in [path for path in paths if "blobs" in path][:3]:    # of the image: a configuration, two layers
        s = start(root, hash_threads=1)
        s.wait_hashed()
        assert digest(get(s, path).body) == paths[path]
        s.stop()
    s = start(root, hash_threads=1)
    s.wait_hashed()
    get(s, f"org/m/blobs/{ranks[0]}", 404)
    get(s, "org/m/manifests/tp2-rank0-vllm")
    for path, wanted in paths.items():
        assert digest(get(s, path).body) == wanted, path


# shows: security.md oci-damaged-log
def test_a_damaged_log_is_only_a_cache(root, tmp_path, start):
    state = tmp_path / "state"
    s = start(root, "--state-dir", state, hash_threads=1)
    index = get(s, "org/m/manifests/image").body
    s.stop()
    log = state / "virtual-digests"
    data = log.read_bytes()
    assert len(data) == 16 + 112 * len(files_of(root / "org" / "m"))
    at = 16 + 112 + 50
    log.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
    s = start(root, "--state-dir", state, hash_threads=1)
    assert '"virtual-digests" is damaged' in s.stderr()
    assert get(s, "org/m/manifests/image").body == index
    s.stop()
    assert sorted(log.read_bytes()[i:i + 112] for i in range(16, len(data), 112)) == sorted(
        data[i:i + 112] for i in range(16, len(data), 112))


def test_a_log_that_is_not_ours_is_refused(root, tmp_path):
    """A user who can write to the log decides what layers hash to."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "virtual-digests").symlink_to("/etc/passwd")
    arguments = ["serve", str(root), "--listen", "127.0.0.1:0", "--state-dir", str(state)]
    p = subprocess.run([str(tensord_binary()), *arguments], capture_output=True, text=True, timeout=60)
    assert p.returncode == 1 and '"virtual-digests" in it must be a file' in p.stderr, p


# ------------------------------------------------------------------------------------------------- long files

TIB = 1 << 40


@pytest.fixture
def endless(tmp_path):
    """A model with a file of 1 TiB, whose digest the log of digests claims to know. Hashing its layer takes minutes."""
    root, state = tmp_path / "root", tmp_path / "state"
    write_by_hand(root / "org" / "m" / "model.safetensors", [tensor("w", "U8", [8])])
    large = root / "org" / "m" / "large.dat"
    with open(large, "wb") as f:
        f.truncate(TIB)
    age(root)
    state.mkdir(mode=0o700)
    records = [kill_digests.record(kill_digests.identity(large.stat()), bytes(32))]
    (state / "digests").write_bytes(kill_digests.HEADER + b"".join(records))
    (state / "digests").chmod(0o600)
    return root, state, large


def ask_in_thread(s, path, answers):
    def ask():
        with s.conn(timeout=60) as c:
            answers.append((c.request("/v2/" + path), time.monotonic()))
    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def progress(r):
    """Return (done, of) in GB of a 503's message."""
    assert r.status == 503 and int(r.get("Retry-After")) > 0, r
    words = json.loads(r.body)["errors"][0]["message"].replace("(", "").split()
    assert "hashed" in words, words
    return float(words[words.index("GB)") - 3]), float(words[words.index("GB)") - 1])


# shows: security.md oci-many-hashes
def test_a_long_wait_is_told(endless, start):
    """Two requests wait for one layer. SIGTERM ends the waiting and the hashing in the middle: both learn how far
    hashing is."""
    root, state, large = endless
    s = start(root, "--state-dir", state, hash_threads=1)
    s.wait_hashed()
    answers = []
    threads = [ask_in_thread(s, "org/m/manifests/image", answers) for _ in range(2)]
    s.wait_for(lambda: os.fsencode(large.name) in open(f"/proc/{s.pid}/maps", "rb").read(), "the file is mapped")
    s.wait_for(lambda: s.gauge("tensord_http_requests_in_flight") >= 3, "both wait")
    time.sleep(1)                                       # for some gigabytes of zeros
    assert not answers
    began = time.monotonic()
    s.term()
    for thread in threads:
        thread.join()
    s.stop()
    assert time.monotonic() - began < 15
    for done, of in (progress(r) for r, _ in answers):
        assert 0 < done < 1000 and 1099 < of < 1100


def write_sparse(path, nbytes, rows):
    """A checkpoint of one tensor of zeros that take no room on the disk."""
    header = json.dumps({"a": {"dtype": "U8", "shape": [rows, nbytes // rows], "data_offsets": [0, nbytes]}}).encode()
    header += b" " * (-len(header) % 8)
    path.parent.mkdir(parents=True)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.truncate(8 + len(header) + nbytes)


# shows: security.md oci-open-files oci-many-hashes
def test_one_client_does_not_take_all_places(tmp_path):
    """A client asks for all 64 ranks of a model whose hashing takes long: 32 wait, the others are 503 at once. The
    ranks of another model are hashed at the same time, also for the same client."""
    root, answers = tmp_path / "root", []
    write_sparse(root / "large" / "model.safetensors", 1 << 40, 1 << 20)
    write_sparse(root / "small" / "model.safetensors", 4096, 64)
    age(root)
    with Server(root, hash_threads=1) as s:
        threads = [ask_in_thread(s, f"local/large/manifests/tp64-rank{r}-fsdp", answers) for r in range(64)]
        s.wait_for(lambda: len(answers) >= 32, "refusals", 60)
        for rank in range(2):
            get(s, f"local/small/manifests/tp2-rank{rank}-fsdp")
        assert len(answers) == 32
        for r, _ in answers:
            assert r.status == 503 and int(r.get("Retry-After")) > 0, r
            assert "32 files of this model wait" in json.loads(r.body)["errors"][0]["message"]
        s.term()
        for thread in threads:
            thread.join()


# shows: security.md oci-hash-changes
def test_a_file_that_changes_in_the_middle(endless, start):
    """A waiting client gets an error at once, and no digest is kept. The same after a kill in the middle."""
    root, state, large = endless
    s = Server(root, "--state-dir", state, hash_threads=1)
    s.wait_hashed()
    answers, began = [], time.monotonic()
    thread = ask_in_thread(s, "org/m/manifests/image", answers)
    s.wait_for(lambda: b"large.dat" in open(f"/proc/{s.pid}/maps", "rb").read(), "the file is mapped")
    with open(large, "r+b") as f:
        f.write(b"changed")
    thread.join()
    r, ended = answers[0]
    assert r.status == 503 and "changed" in json.loads(r.body)["errors"][0]["message"] and ended - began < 15, r
    s.kill()
    small = (root / "org" / "m" / "model.safetensors").read_bytes()
    data = (state / "virtual-digests").read_bytes()
    assert len(data) in (16, 16 + 112)      # the other file's layer, which may have been hashed before or after
    large.unlink()
    age(root)
    s = start(root, "--state-dir", state, hash_threads=1)
    assert unpack(blob(s, "org/m", layer) for layer in image_layers(s, "org/m")) == {"model.safetensors": small}


# ------------------------------------------------------------------------------------------------- many files

def many_files(model, count, size):
    model.mkdir(parents=True)
    for i in range(count):
        (model / f"{i}.json").write_bytes(pattern(size, i))
    write_by_hand(model / "model.safetensors", [tensor("w", "U8", [8])])
    age(model)


# shows: security.md oci-open-files
def test_layers_that_wait_hold_no_files_open(endless, start):
    """Behind a layer that takes minutes, the layers of thousands of files wait: they take no descriptors."""
    root, state, _ = endless
    many_files(root / "org" / "many", 1000, 9)
    with open(state / "digests", "ab") as log:      # claims to know them, too
        for path in (root / "org" / "many").glob("*.json"):
            os.truncate(path, 8 << 20)              # so that each layer has more than 64 MiB
            os.utime(path, (path.stat().st_mtime - 3600,) * 2)
            log.write(kill_digests.record(kill_digests.identity(path.stat()), bytes(32)))
    s = start(root, "--state-dir", state, hash_threads=1)
    s.wait_hashed()
    answers = []
    threads = [ask_in_thread(s, "org/m/manifests/image", answers)]
    s.wait_for(lambda: b"large.dat" in open(f"/proc/{s.pid}/maps", "rb").read(), "the file is mapped")
    before = len(s.fds())
    threads.append(ask_in_thread(s, "org/many/manifests/image", answers))
    s.wait_for(lambda: s.gauge("tensord_http_requests_in_flight") >= 3, "both wait")
    time.sleep(1)                                       # the requests still wait, with all layers in the queue
    assert not answers and len(s.fds()) < before + 50
    s.term()
    for thread in threads:
        thread.join()
    assert [r.status for r, _ in answers] == [503, 503]


# shows: security.md oci-open-files
def test_layers_that_are_sent_hold_few_files_open(tmp_path, start):
    """A layer of many files has one of them open while a slow client reads, not all."""
    root = tmp_path / "root"
    many_files(root / "org" / "many", 1000, 60000)
    s = start(root, "--max-maps", "64", hash_threads=1)
    s.wait_hashed()
    layers = image_layers(s, "org/many")
    assert len(layers) == 100
    before, readers = len(s.fds()), []
    for layer in layers[:30]:
        readers.append(s.conn(rcvbuf=4096))
        readers[-1].send(request_bytes(f"/v2/org/many/blobs/{layer['digest']}"))
    heads = [c.read_head() for c in readers]
    assert {r.status for r in heads} == {200}
    assert len(s.fds()) < before + 2 * len(readers) + 64
    data = readers[3].read_exact(layers[3]["size"], heads[3])
    assert digest(data) == layers[3]["digest"]
    for c in readers:
        c.close()


# shows: security.md oci-tar-headers
def test_headers_are_bounded(tmp_path, start):
    """400 files of 3 bytes, each below 40 directories of its own with long names: headers of 40 MB."""
    root = tmp_path / "root"
    model = root / "org" / "deep"
    write_by_hand(model / "model.safetensors", [tensor("w", "U8", [8])])
    for i in range(400):
        path = model / f"d{i}" / "/".join(["d" * 63] * 40)
        path.mkdir(parents=True)
        (path / "f").write_bytes(b"abc")
    age(root)
    s = start(root, hash_threads=1)
    r = get(s, "org/deep/manifests/image", 422)
    assert "32" in r.body.decode() and "headers" in r.body.decode()
