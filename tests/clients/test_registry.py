"""Stock clients of OCI registries and models as artifacts: skopeo, oras and a ModelPack client of Python, containerd's
content store, and the reference registry, into which models are copied. Each byte and digest is compared with the
served directory by hashlib."""
import json
import subprocess
import sys

import gguf
import numpy as np
import pytest

import harness
from client import ClientError, CuttingProxy, Worker, digests
from registry import INDEX, MANIFEST, Box, Layout, ReferenceRegistry, hex_of, tar_digests, titles
from signing import TokensFile

# Directory -> the name by which clients of registries know it: lower case, "-" for what names may not have, below
# "local/" if the id has one segment. Of two that would meet, the one that is spelled so keeps the name.
NAMES = {
    "demo": "local/demo",
    "Org/Qwen+Coder 2.5_Instruct": "org/qwen-coder-2.5_instruct",
    "twin/a-b": "twin/a-b",
    "Twin/A+B": f"twin/a-b-{hex_of(b'Twin/A+B')[:8]}",
    "gguf/tiny": "gguf/tiny",
}
LONG_LAYER = 32 << 20


def write_gguf(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    w = gguf.GGUFWriter(path, "llama")
    w.add_tensor("output.weight", np.full((16, 16), value, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("registry") / "root"
    subprocess.run([sys.executable, harness.REPO / "scripts/demo_model.py", root / "demo"], check=True)
    (root / "demo/README.md").write_text("---\nlicense: mit\n---\n# A model\n")
    (root / "demo/extra/vocabulary").mkdir(parents=True)
    (root / "demo/extra/vocabulary/tokens of it.txt").write_text("a\nb\n")
    (root / "demo/extra/empty.txt").touch()
    for folder in ("Org/Qwen+Coder 2.5_Instruct", "twin/a-b", "Twin/A+B"):
        harness.write_by_hand(root / folder / "model.safetensors", [harness.tensor("w", "F32", (30, 40), folder)])
        (root / folder / "config.json").write_text(json.dumps({"model_type": "llama", "_name_or_path": folder}))
    for name in ("Q4_K_M", "Q8_0"):
        write_gguf(root / f"gguf/tiny/tiny-{name}.gguf", len(name))
    for part in range(2):
        path = root / f"long/m/model-{part}.safetensors"
        harness.write_by_hand(path, [harness.tensor(f"w{part}", "U8", (LONG_LAYER,))])
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def box():
    with Box() as b:
        yield b


@pytest.fixture(scope="module")
def python():
    with Worker("calls_registry") as w:
        yield w


def host(server):
    return f"127.0.0.1:{server.port}"


def docker(server, name):
    """Return how skopeo writes an image of this server."""
    return f"docker://{host(server)}/{name}"


def copied(box, server, name, place, *options):
    """Copy an image or artifact into a layout, and open that."""
    box.ok("skopeo", "copy", "--src-tls-verify=false", "--preserve-digests", *options, docker(server, name),
           f"oci:{place}:copy")
    return Layout(place)


# ------------------------------------------------------------------------------------------------ artifacts

@pytest.mark.parametrize("folder", NAMES)
def test_skopeo_copy(box, srv, root, tmp_path, folder):
    """Layers are the model's files, by their own digests and relative names."""
    manifest = copied(box, srv, f"{NAMES[folder]}:main", tmp_path).artifact()
    assert titles(manifest) == digests(root / folder)


def test_skopeo_copy_of_flat_titles(box, srv, root, tmp_path):
    """The same files; no title has a directory, and no two are equal."""
    found = titles(copied(box, srv, "local/demo:flat", tmp_path).artifact())
    assert sorted(found.values()) == sorted(digests(root / "demo").values())
    assert not any("/" in title for title in found)
    assert found["model.safetensors"] == digests(root / "demo")["model.safetensors"]


@pytest.mark.parametrize("folder", ["demo", "gguf/tiny"])
def test_skopeo_list_tags(box, srv, folder):
    made = json.loads(box.ok("skopeo", "list-tags", "--tls-verify=false", docker(srv, NAMES[folder])))
    assert set(made["Tags"]) == {"demo": {"flat", "image", "latest", "main"},
                                 "gguf/tiny": {"flat", "image", "latest", "main", "Q4_K_M", "Q8_0"}}[folder]


def raw(box, image):
    """Return the bytes of a manifest."""
    code, out, err = box.run("skopeo", "inspect", "--raw", "--tls-verify=false", image)
    assert code == 0, err
    return out.encode()


def test_skopeo_inspect_by_tag_and_digest(box, srv):
    """The manifest by digest equals the manifest by tag, byte for byte. `latest` of this model is `main`."""
    by_tag = raw(box, docker(srv, "local/demo:main"))
    assert json.loads(by_tag)["mediaType"] == MANIFEST
    assert raw(box, docker(srv, f"local/demo@sha256:{hex_of(by_tag)}")) == by_tag
    assert raw(box, docker(srv, "local/demo:latest")) == by_tag


def test_skopeo_inspect_of_the_image(box, srv):
    """skopeo shows an image's digest, the repository's other tags, and the layers of this platform."""
    told = json.loads(box.ok("skopeo", "inspect", "--tls-verify=false", docker(srv, "local/demo:image")))
    index = raw(box, docker(srv, "local/demo:image"))
    assert told["Digest"] == f"sha256:{hex_of(index)}"
    assert set(told["RepoTags"]) == {"flat", "image", "latest", "main"}
    mine = next(m for m in json.loads(index)["manifests"] if m["platform"]["architecture"] == told["Architecture"])
    manifest = json.loads(raw(box, docker(srv, f"local/demo@{mine['digest']}")))
    assert told["Layers"] == [layer["digest"] for layer in manifest["layers"]]


def test_an_unknown_tag_name_or_digest(box, srv):
    """skopeo shows its user which tag, name or digest is unknown."""
    for name, said in (("local/demo:nothing", "manifest unknown"), ("local/nothing:main", "name unknown"),
                       ("local/demo:v1.0_rc-1", "manifest unknown"), (f"local/demo@sha256:{'0' * 64}", "manifest")):
        assert said in box.refused("skopeo", "inspect", "--raw", "--tls-verify=false", docker(srv, name)), name


@pytest.mark.parametrize("tag, file", [("Q4_K_M", "tiny-Q4_K_M.gguf"), ("Q8_0", "tiny-Q8_0.gguf"),
                                       ("q8_0", "tiny-Q8_0.gguf"), ("tiny-Q8_0.gguf", "tiny-Q8_0.gguf"),
                                       ("latest", "tiny-Q4_K_M.gguf")])
def test_a_quantisation(box, containerd, srv, root, tag, file):
    """The manifest that Ollama takes names the file of this quantisation. containerd fetches all that the manifest
    names; skopeo of this version takes no layers of Ollama's types."""
    manifest = json.loads(raw(box, docker(srv, f"gguf/tiny:{tag}")))
    layer, = (one for one in manifest["layers"] if one["mediaType"] == "application/vnd.ollama.image.model")
    assert layer["digest"] == f"sha256:{digests(root / 'gguf/tiny')[file]}"
    containerd.ctr("content", "fetch", "--plain-http", f"{host(srv)}/gguf/tiny:{tag}")
    assert containerd.content(layer["digest"]) == (root / "gguf/tiny" / file).read_bytes()
    for one in (manifest["config"], *manifest["layers"]):
        assert f"sha256:{hex_of(containerd.content(one['digest']))}" == one["digest"]
    assert "unsupported docker v2s2 media type" in box.refused(
        "skopeo", "copy", "--src-tls-verify=false", docker(srv, f"gguf/tiny:{tag}"), "dir:none")


@pytest.mark.parametrize("folder", NAMES)
def test_oras_pull(python, srv, root, tmp_path, folder):
    python.pull(host=host(srv), name=f"{NAMES[folder]}:main", folder=str(tmp_path))
    assert digests(tmp_path) == digests(root / folder)


def test_oras_tags(python, srv):
    assert set(python.tags(host=host(srv), name="local/demo")) == {"flat", "image", "latest", "main"}


def test_modelpack_pull(python, srv, root, tmp_path):
    """The client checks the configuration by the specification's schema, and digests of files and of layers."""
    for tag in ("main", "flat", "tp2-rank0-vllm"):
        config = python.pull_model(host=host(srv), name=f"local/demo:{tag}", folder=str(tmp_path / tag))
        assert config["config"]["format"] == "safetensors"
    assert digests(tmp_path / "main") == digests(root / "demo")


def hub_digests(srv, repo, revision):
    """Return path -> SHA-256 of the files that the Hub's interface answers for a revision."""
    tree = srv.json(f"/api/models/{repo}/tree/{revision}?recursive=true")
    paths = [entry["path"] for entry in tree if entry["type"] == "file"]
    return {p: hex_of(srv.get(f"/{repo}/resolve/{revision}/{harness.enc(p, '/')}").body) for p in paths}


@pytest.mark.parametrize("tag", ["tp2-rank0-vllm", "tp2-rank1-vllm", "tp4-rank3-fsdp"])
def test_one_rank(box, srv, python, tmp_path, tag):
    """A rank's artifact has the files of the Hub's revision of that name."""
    wanted = hub_digests(srv, "local/demo", tag)
    assert any("rank" in path or path.endswith(".safetensors") for path in wanted)
    assert titles(copied(box, srv, f"local/demo:{tag}", tmp_path / "skopeo").artifact()) == wanted
    python.pull(host=host(srv), name=f"local/demo:{tag}", folder=str(tmp_path / "oras"))
    assert digests(tmp_path / "oras") == wanted


def test_a_rank_that_cannot_be(box, srv):
    """The user reads why: the same words as elsewhere."""
    said = box.refused("skopeo", "inspect", "--raw", "--tls-verify=false", docker(srv, "local/demo:tp7-rank0-vllm"))
    assert "7" in said and "manifest" in said.lower(), said


def test_containerd_fetches_an_artifact(containerd, srv, root):
    """Its content store takes any artifact without empty files; it unpacks images alone."""
    containerd.ctr("content", "fetch", "--plain-http", f"{host(srv)}/{NAMES['twin/a-b']}:main")
    for name, digest in digests(root / "twin/a-b").items():
        assert containerd.content(f"sha256:{digest}") == (root / "twin/a-b" / name).read_bytes()


@pytest.mark.parametrize("folder", ["demo", "gguf/tiny"])
def test_another_registry_takes_a_model(box, srv, root, tmp_path, folder):
    """The reference registry accepts each manifest, which means that it is valid, and answers it under its digest."""
    name = NAMES[folder]
    with ReferenceRegistry(box) as theirs:
        for tag in ("main", "flat", "image"):
            box.ok("skopeo", "copy", "--all", "--preserve-digests", "--src-tls-verify=false", "--dest-tls-verify=false",
                   docker(srv, f"{name}:{tag}"), f"docker://{theirs.address}/{name}:{tag}")
            there = raw(box, f"docker://{theirs.address}/{name}:{tag}")
            assert there == raw(box, docker(srv, f"{name}:{tag}"))
        box.ok("skopeo", "copy", "--src-tls-verify=false", f"docker://{theirs.address}/{name}:main",
               f"oci:{tmp_path}/back:copy")
    assert titles(Layout(tmp_path / "back").artifact()) == digests(root / folder)


def test_skopeo_copies_both_platforms(box, srv, root, tmp_path):
    """The image's two platforms have the same layers. The layers' archives hold the model's files."""
    layout = copied(box, srv, "local/demo:image", tmp_path, "--all")
    top, = layout.manifests
    assert top["mediaType"] == INDEX
    manifests = layout.json(top)["manifests"]
    assert [(m["platform"]["os"], m["platform"]["architecture"]) for m in manifests] == [("linux", "amd64"),
                                                                                         ("linux", "arm64")]
    first, second = (layout.json(m) for m in manifests)
    assert first["layers"] == second["layers"]
    for manifest, platform in ((first, "amd64"), (second, "arm64")):
        config = layout.json(manifest["config"])
        assert config["architecture"] == platform and config["os"] == "linux"
        assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert tar_digests(layout.blob(layer) for layer in first["layers"]) == digests(root / "demo")


# ------------------------------------------------------------------------------------- cuts, several at once

def test_skopeo_after_a_cut(box, srv, root, tmp_path):
    """This version says that the layer broke off; nothing passes for a whole copy, and a second run makes one."""
    with CuttingProxy(srv.port, LONG_LAYER // 2, 1) as proxy:
        command = ("skopeo", "copy", "--src-tls-verify=false", f"docker://127.0.0.1:{proxy.port}/long/m:main",
                   f"oci:{tmp_path}:copy")
        assert "unexpected EOF" in box.refused(*command)
        assert proxy.done_cuts == 1 and not (tmp_path / "index.json").exists()
        box.ok(*command)
    assert titles(Layout(tmp_path).artifact()) == digests(root / "long/m")


def test_containerd_goes_on_inside_a_layer(containerd, srv, root):
    """containerd asks for the rest of a layer that was cut, by a range."""
    with CuttingProxy(srv.port, LONG_LAYER // 3, 4) as proxy:
        containerd.ctr("content", "fetch", "--plain-http", f"127.0.0.1:{proxy.port}/long/m:main")
        assert proxy.done_cuts == 4 and proxy.carried < 2.2 * LONG_LAYER
        assert proxy.asked.lower().count(b"\r\nrange: bytes=") >= 4
    for name, digest in digests(root / "long/m").items():
        assert containerd.content(f"sha256:{digest}") == (root / "long/m" / name).read_bytes()


def test_containerd_goes_on_inside_a_rank_file(containerd, srv):
    """The same for a file that is on no disk."""
    wanted = hub_digests(srv, "long/m", "tp2-rank1-fsdp")
    with CuttingProxy(srv.port, LONG_LAYER // 3, 2) as proxy:
        containerd.ctr("content", "fetch", "--plain-http", f"127.0.0.1:{proxy.port}/long/m:tp2-rank1-fsdp")
        assert proxy.done_cuts == 2 and proxy.asked.lower().count(b"\r\nrange: bytes=") >= 2
    assert wanted and all(hex_of(containerd.content(f"sha256:{digest}")) == digest for digest in wanted.values())


def test_two_at_once_from_a_server_that_has_hashed_nothing(box, root, tmp_path):
    """The digests are made on request, once, and both have every byte."""
    with harness.Server(root, "--hash-threads", "1") as s:
        running = [box.start("skopeo", "copy", "--retry-times", "3", "--src-tls-verify=false", docker(s, "long/m:main"),
                             f"oci:{tmp_path}/{i}:copy") for i in range(2)]
        for i, process in enumerate(running):
            _, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
            assert titles(Layout(tmp_path / str(i)).artifact()) == digests(root / "long/m")


def test_a_server_that_hashes_nothing(box, root):
    """skopeo's user sees a status that is no outage; the answer says which option to change."""
    with harness.Server(root, hash_threads=0) as s:
        said = box.refused("skopeo", "inspect", "--raw", "--tls-verify=false", docker(s, "local/demo:main"))
        assert "501 Not Implemented" in said
        assert b"--hash-threads" in s.get("/v2/local/demo/manifests/main").body


# ----------------------------------------------------------------------------------------- TLS and tokens

REFUSED = ["none", "wrong", "expired", "foreign"]


@pytest.fixture(scope="module")
def tokens(ca):
    made = TokensFile(ca.folder / "tokens.json")
    made.add("good", ["demo", "Org/*"]).add("foreign", ["twin/*"]).add("expired", expires_s=1_600_000_000)
    return made


def credentials(tokens, kind, option):
    """Return the option that gives skopeo or ctr the token as the password of any user."""
    return [] if kind == "none" else [option, f"any:{tokens.text(kind)}"]


def test_skopeo_with_a_token(box, guarded, ca, tokens, root, tmp_path):
    box.ok("skopeo", "copy", "--src-cert-dir", ca.folder / "certs", *credentials(tokens, "good", "--src-creds"),
           docker(guarded, "local/demo:main"), f"oci:{tmp_path}:copy")
    assert titles(Layout(tmp_path).artifact()) == digests(root / "demo")


@pytest.mark.parametrize("kind", REFUSED)
def test_skopeo_is_refused(box, guarded, ca, tokens, kind):
    """A model that a token may not see is a name that is not there."""
    said = box.refused("skopeo", "inspect", "--raw", "--cert-dir", ca.folder / "certs",
                       *credentials(tokens, kind, "--creds"), docker(guarded, "local/demo:main"))
    assert ("name unknown" if kind == "foreign" else "unauthorized") in said, said


def test_skopeo_without_the_authority(box, guarded, tokens):
    said = box.refused("skopeo", "inspect", "--raw", *credentials(tokens, "good", "--creds"),
                       docker(guarded, "local/demo:main"))
    assert "certificate signed by unknown authority" in said, said


@pytest.fixture(scope="module")
def hosts(ca, guarded, containerd):
    """The options by which containerd knows the server and its authority. Without them it takes 127.0.0.1 for a
    registry without TLS."""
    return ["--hosts-dir", containerd.know_host(host(guarded), ca.cert)]


def test_containerd_with_a_token(containerd, guarded, hosts, tokens, root):
    folder = "Org/Qwen+Coder 2.5_Instruct"
    containerd.ctr("content", "fetch", *hosts, *credentials(tokens, "good", "--user"),
                   f"{host(guarded)}/{NAMES[folder]}:main")
    for name, digest in digests(root / folder).items():
        assert containerd.content(f"sha256:{digest}") == (root / folder / name).read_bytes()


@pytest.mark.parametrize("kind", REFUSED)
def test_containerd_is_refused(containerd, guarded, hosts, tokens, kind):
    said = containerd.ctr("content", "fetch", *hosts, *credentials(tokens, kind, "--user"),
                          f"{host(guarded)}/local/demo:main", run=containerd.box.refused)
    assert ("StatusNotFound" if kind == "foreign" else "401 Unauthorized") in said, said


def test_oras_and_modelpack_with_a_token(python, guarded, ca, tokens, root, tmp_path):
    ask = {"host": host(guarded), "name": "local/demo:main", "ca": str(ca.cert), "token": tokens.text("good")}
    for call in ("pull", "pull_model"):
        getattr(python, call)(folder=str(tmp_path / call), **ask)
        assert digests(tmp_path / call) == digests(root / "demo")


@pytest.mark.parametrize("kind", REFUSED[1:])
def test_oras_is_refused(python, guarded, ca, tokens, tmp_path, kind):
    with pytest.raises(ClientError) as caught:
        python.pull(host=host(guarded), name="local/demo:main", ca=str(ca.cert), token=tokens.text(kind),
                    folder=str(tmp_path))
    assert caught.value.text.endswith("Not Found" if kind == "foreign" else "Unauthorized"), caught.value
    assert not digests(tmp_path)


def test_tags_of_a_token(box, guarded, ca, tokens):
    """A token sees its models' names alone."""
    ask = ("skopeo", "list-tags", "--cert-dir", ca.folder / "certs", *credentials(tokens, "good", "--creds"))
    assert "main" in json.loads(box.ok(*ask, docker(guarded, NAMES["Org/Qwen+Coder 2.5_Instruct"])))["Tags"]
    assert "404 (Not Found)" in box.refused(*ask, docker(guarded, "twin/a-b"))
