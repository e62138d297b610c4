"""Stock clients of OCI registries push to the server: oras and a ModelPack client of Python, skopeo, podman, containerd
and Docker. What they push is compared with the files, on every face that shows it, by hashlib."""
import hashlib
import json
import os
import re

import pytest

import harness
import pki
from client import ClientError, Worker, digests
from registry import BUSYBOX, MANIFEST, Box, Containerd, DockerEngine, Layout, hex_of, titles
from signing import TokensFile

WEIGHT = "application/vnd.cncf.model.weight.v1"
DOC = "application/vnd.cncf.model.doc.v1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, as its owner has it."""
    folder = tmp_path_factory.mktemp("pushed") / "model"
    harness.write_by_hand(folder / "model.safetensors", [harness.tensor("w", "F32", (300, 400))])
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "docs").mkdir()
    (folder / "docs/README.md").write_text("# A model\n")
    return folder


@pytest.fixture(scope="module")
def srv(tmp_path_factory):
    root = tmp_path_factory.mktemp("push") / "root"
    harness.write_by_hand(root / "by/hand/model.safetensors", [harness.tensor("w", "F32", (30, 40))])
    (root / "by/hand/config.json").write_text("{}")
    harness.age(root)
    with harness.Server(root, "--publish", "local") as s:
        s.wait_hashed()
        yield s


@pytest.fixture(scope="module")
def python():
    with Worker("calls_registry") as w:
        yield w


def push(python, server, name, folder, files, **more):
    """Push files by oras. Return the digest of the manifest."""
    return python.push(host=host(server), name=name, folder=str(folder), files=files, **more)


@pytest.fixture(scope="module")
def box():
    with Box() as b:
        yield b


def host(srv):
    return f"127.0.0.1:{srv.port}"


def docker(srv, name):
    return f"docker://{host(srv)}/{name}"


def served(srv, name, revision="main"):
    """Return the files of a model, path -> SHA-256 of the bytes that the Hub's face sends."""
    listed = srv.json(f"/api/models/{name}/tree/{revision}?recursive=1")
    return {f["path"]: hex_of(srv.get(f"/{name}/resolve/{revision}/{f['path']}").body)
            for f in listed if f["type"] == "file"}


def manifest(srv, name, reference):
    r = srv.get(f"/v2/{name}/manifests/{reference}")
    assert r.status == 200, r
    return r


@pytest.mark.parametrize("chunk_bytes", [None, 100000])
def test_oras(srv, python, folder, tmp_path, chunk_bytes):
    """Plain files become files of the model, though their media type says tar. A directory stays an archive."""
    name = f"oras/{'chunks' if chunk_bytes else 'whole'}"
    digest = push(python, srv, f"{name}:v1", folder, ["model.safetensors", "config.json", "docs"],
                  chunk_bytes=chunk_bytes)
    r = manifest(srv, name, "v1")
    assert f"sha256:{hex_of(r.body)}" == digest == r.get("Docker-Content-Digest")
    wanted = digests(folder)
    del wanted["docs/README.md"]
    assert served(srv, name, "v1") == served(srv, name) == wanted
    assert srv.json(f"/models/{name}")["checkpoints"]
    python.pull(host=host(srv), name=f"{name}:v1", folder=str(tmp_path))
    assert digests(tmp_path) == digests(folder)
    assert "v1" in python.tags(host=host(srv), name=name)
    # again: nothing changes
    assert push(python, srv, f"{name}:v1", folder, ["model.safetensors", "config.json"]) != digest
    assert served(srv, name, "v1") == wanted


def test_oras_signs_and_deletes(srv, python, folder):
    name = "oras/signed"
    digest = push(python, srv, f"{name}:v1", folder, ["config.json"])
    size = len(manifest(srv, name, "v1").body)
    signature = push(python, srv, f"{name}:signature", folder, [],
                     subject=[MANIFEST, digest, size], manifest_annotations={"org.example.by": "me"})
    listed, = json.loads(srv.get(f"/v2/{name}/referrers/{digest}").body)["manifests"]
    assert listed["digest"] == signature and listed["annotations"] == {"org.example.by": "me"}
    assert set(served(srv, name)) == {"config.json"}
    assert python.delete_tag(host=host(srv), name=name, tag="signature") is True
    assert json.loads(srv.get(f"/v2/{name}/referrers/{digest}").body)["manifests"] == []
    assert python.delete_tag(host=host(srv), name=name, tag="v1") is True
    assert srv.get(f"/v2/{name}/tags/list").status == 404
    assert python.delete_tag(host=host(srv), name=name, tag="v1") is False


@pytest.mark.parametrize("chunked", [False, True])
def test_modelpack(srv, python, folder, tmp_path, chunked):
    """An artifact of raw layers becomes files, at their paths, and is pulled as it was pushed."""
    name = f"modelpack/{'chunks' if chunked else 'whole'}"
    layers = [{"path": str(folder / path), "media_type": f"{kind}.raw", "artifact_path": path}
              for path, kind in (("model.safetensors", WEIGHT), ("docs/README.md", DOC),
                                 ("config.json", "application/vnd.cncf.model.weight.config.v1"))]
    digest = python.push_model(host=host(srv), name=f"{name}:v1", layers=layers, chunked=chunked,
                               config={"descriptor": {"name": "m"}, "config": {}})
    assert manifest(srv, name, "v1").get("Docker-Content-Digest") == digest
    assert served(srv, name, "v1") == digests(folder)
    python.pull_model(host=host(srv), name=f"{name}:v1", folder=str(tmp_path))
    assert digests(tmp_path) == digests(folder)


def test_skopeo_copies_a_model(box, srv, tmp_path):
    """A model of the server, copied to another name and back, keeps its manifest, byte for byte."""
    made = manifest(srv, "by/hand", "main")
    copy = ("copy", "--src-tls-verify=false", "--dest-tls-verify=false", "--preserve-digests")
    box.ok("skopeo", *copy, docker(srv, "by/hand:main"), docker(srv, "skopeo/copy:v1"))
    assert manifest(srv, "skopeo/copy", "v1").body == made.body
    assert served(srv, "skopeo/copy", "v1") == served(srv, "by/hand") == digests(srv.root / "by/hand")
    box.ok("skopeo", *copy, docker(srv, "skopeo/copy:v1"), f"oci:{tmp_path}/layout:v1")
    assert titles(Layout(tmp_path / "layout").artifact()) == digests(srv.root / "by/hand")
    box.ok("skopeo", *copy, f"oci:{tmp_path}/layout:v1", docker(srv, "skopeo/other:v2"))
    assert manifest(srv, "skopeo/other", "v2").body == made.body
    tags = json.loads(box.ok("skopeo", "list-tags", "--tls-verify=false", docker(srv, "skopeo/other")))["Tags"]
    assert "v2" in tags
    box.ok("skopeo", "delete", "--tls-verify=false", docker(srv, "skopeo/other:v2"))
    assert srv.get("/v2/skopeo/other/manifests/v2").status == 404
    assert served(srv, "skopeo/copy", "v1") == digests(srv.root / "by/hand")


def test_podman(box, srv):
    """An image is pushed, pulled and run, beside a model of the same name or alone. Its blobs can be mounted."""
    box.import_busybox()
    pushed = {}
    for name in ("podman/alone", "podman/other"):
        image = f"{host(srv)}/{name}:latest"
        box.ok("podman", "push", "--tls-verify=false", BUSYBOX, image)
        pushed[name] = manifest(srv, name, "latest").get("Docker-Content-Digest")
        assert json.loads(srv.get(f"/v2/{name}/tags/list").body)["tags"] == ["latest"]
        assert srv.get(f"/models/{name}").status == 404
        box.ok("podman", "pull", "--tls-verify=false", f"{host(srv)}/{name}@{pushed[name]}")
        box.ok("podman", "pull", "--tls-verify=false", image)
        listed = json.loads(box.ok("podman", "image", "inspect", image))[0]
        assert pushed[name] in {d.rpartition("@")[2] for d in listed["RepoDigests"]}
    assert box.ok("podman", "run", "--rm", f"{host(srv)}/podman/alone:latest", "/bin/busybox", "echo", "it runs") == \
        "it runs"


def test_containerd(box, srv, tmp_path):
    """containerd pushes what it has pulled, with its layers, under another name."""
    source = f"{host(srv)}/by/hand:image"
    with Containerd(box) as cd:
        cd.pull(source, "--plain-http", "--all-platforms")
        cd.ctr("images", "tag", source, f"{host(srv)}/containerd/image:v1")
        cd.ctr("images", "push", "--plain-http", f"{host(srv)}/containerd/image:v1")
        pushed = manifest(srv, "containerd/image", "v1").get("Docker-Content-Digest")
        assert pushed == manifest(srv, "by/hand", "image").get("Docker-Content-Digest")
        cd.pull(f"{host(srv)}/containerd/image@{pushed}", "--plain-http")


def test_docker(srv):
    if os.geteuid() != 0:
        pytest.fail("a Docker engine needs root")
    with Box() as own, DockerEngine(own) as engine:
        engine.docker("pull", f"{host(srv)}/by/hand:image")
        name = f"{host(srv)}/docker/image:v1"
        engine.docker("tag", f"{host(srv)}/by/hand:image", name)
        said = engine.docker("push", name)
        digest = re.search(r"digest: (sha256:\w+)", said)[1]
        assert manifest(srv, "docker/image", "v1").get("Docker-Content-Digest") == digest
        engine.docker("rmi", name, f"{host(srv)}/by/hand:image")
        engine.docker("pull", name)


def test_with_a_token_and_tls(box, tmp_path, ca, folder):
    """The same over TLS by a token with the right to write; others are refused."""
    root = tmp_path / "root"
    root.mkdir()
    tokens = TokensFile(tmp_path / "tokens.json").add("reader").add("ci", ["org/*"])
    tokens.tokens["ci"]["rights"] = ["read", "write"]
    tokens.write()
    with harness.Server(root, *pki.options_of(ca.sign("server")), "--tokens", tokens, "--publish", "any",
                        tls=ca.context()) as s, Worker("calls_registry") as python:
        def push_as(token, name):
            python.push(host=f"localhost:{s.port}", name=name, folder=str(folder), files=["config.json"],
                        token=tokens.text(token), ca=str(ca.cert))

        push_as("ci", "org/m:v1")
        bearer = tokens.bearer("ci")
        assert s.get("/org/m/resolve/v1/config.json", bearer).body == (folder / "config.json").read_bytes()
        for name, token in (("elsewhere/m:v1", "ci"), ("org/m:v2", "reader")):
            with pytest.raises(ClientError) as e:
                push_as(token, name)
            assert re.search("the token may not publish to|Forbidden", e.value.text), e.value.text
        assert s.get("/v2/org/m/manifests/v2", bearer).status == 404
        box.ok("skopeo", "copy", f"--src-cert-dir={ca.folder}/certs", f"--dest-cert-dir={ca.folder}/certs",
               f"--src-creds=any:{tokens.text('ci')}", f"--dest-creds=any:{tokens.text('ci')}",
               f"docker://localhost:{s.port}/org/m:v1", f"docker://localhost:{s.port}/org/copy:v1")
        assert s.get("/org/copy/resolve/v1/config.json", bearer).body == (folder / "config.json").read_bytes()


def test_the_blobs_of_a_push_are_on_disk_once(srv, python, folder):
    """The blobs of a model that was pushed are where other tools look for a cache, each under its SHA-256."""
    push(python, srv, "oras/disk:v1", folder, ["model.safetensors", "config.json"])
    place = srv.root / "models--oras--disk"
    commit = (place / "refs/v1").read_text()
    for path in ("model.safetensors", "config.json"):
        link = place / "snapshots" / commit / path
        assert link.is_symlink() and link.resolve().name == hashlib.sha256((folder / path).read_bytes()).hexdigest()
