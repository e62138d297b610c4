"""Docker pulls models as images from tensord: a private engine, by commands that docs/recipes.md has, too. Each byte is
compared with the served directory."""
import json
import os
import tarfile

import pytest

import harness
import pki
from client import CuttingProxy, digests
from registry import Box, DockerEngine, hex_of, tar_digests
from signing import TokensFile

LONG_LAYER = 20 << 20
ADDED = {"etc/hosts", "etc/hostname", "etc/mtab", "etc/resolv.conf", "dev/console"}     # by Docker, to each container


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("docker") / "root"
    harness.write_by_hand(root / "Org/Small/model.safetensors", [harness.tensor("w", "F32", (30, 40))])
    for name, text in (("config.json", "{}"), ("tokens/of it/vocabulary.txt", "a\n"), ("empty.txt", "")):
        (root / "Org/Small" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "Org/Small" / name).write_text(text)
    harness.write_by_hand(root / "long/model.safetensors", [harness.tensor("w", "U8", (LONG_LAYER,))])
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def engine():
    if os.geteuid() != 0:
        pytest.fail("a Docker engine needs root")
    with Box() as box, DockerEngine(box) as e:
        yield e


def image(server, name):
    return f"127.0.0.1:{server.port}/{name}:image"


@pytest.fixture(scope="module")
def small(engine, srv):
    engine.docker("pull", image(srv, "org/small"))
    return image(srv, "org/small")


def saved_layers(engine, name):
    """Return the archives of an image's layers, as Docker writes them again from its store."""
    path = engine.folder / "saved.tar"
    engine.docker("save", "--output", path, name)
    with tarfile.open(path) as tar:
        listed, = json.load(tar.extractfile("manifest.json"))
        layers = [tar.extractfile(layer).read() for layer in listed["Layers"]]
    path.unlink()
    return layers


def check_unpacked(place, folder):
    """Every file of the model is there with its bytes, and everybody may read it."""
    found = digests(place)
    assert {path: found[path] for path in found if path not in ADDED} == digests(folder)
    for path in digests(folder):
        for part in (place / path, *(place / path).parents):
            if part == place:
                break
            wanted = 0o444 if part.is_file() else 0o555
            assert part.stat().st_mode & wanted == wanted, f"{part}: {part.stat().st_mode:o}"


def test_docker_pull(engine, srv, small, root):
    """The digest is that of the index; what Docker writes again from its store are the layers that the server sent."""
    index = srv.get("/v2/org/small/manifests/image")
    told = json.loads(engine.docker("image", "inspect", small))[0]
    assert told["RepoDigests"] == [f"127.0.0.1:{srv.port}/org/small@sha256:{hex_of(index.body)}"]
    layers = saved_layers(engine, small)
    assert [f"sha256:{hex_of(layer)}" for layer in layers] == told["RootFS"]["Layers"]
    assert all(srv.get(f"/v2/org/small/blobs/sha256:{hex_of(layer)}").body == layer for layer in layers)
    assert tar_digests(layers) == digests(root / "Org/Small")


def test_docker_create_and_copy(engine, small, root, tmp_path):
    check_unpacked(engine.unpacked(small, tmp_path / "model"), root / "Org/Small")


def test_docker_build_copies_from_it(engine, small, root, tmp_path):
    """Another image gets the model's files by one line of its Dockerfile."""
    (tmp_path / "context").mkdir()
    (tmp_path / "context/Dockerfile").write_text(f"FROM scratch\nCOPY --from={small} / /model/\n")
    engine.env["DOCKER_BUILDKIT"] = "1"
    engine.docker("build", "--quiet", "--tag", "with-a-model:test", tmp_path / "context")
    check_unpacked(engine.unpacked("with-a-model:test", tmp_path / "whole") / "model", root / "Org/Small")


def test_docker_by_digest(engine, srv, root):
    """A deployment pins the digest that it pulled."""
    digest = srv.get("/v2/org/small/manifests/image").get("Docker-Content-Digest")
    name = f"127.0.0.1:{srv.port}/org/small@{digest}"
    engine.docker("pull", name)
    assert tar_digests(saved_layers(engine, name)) == digests(root / "Org/Small")


def test_docker_goes_on_inside_a_layer(engine, srv, root):
    """After a cut Docker waits for five seconds and asks for the rest by a range."""
    with CuttingProxy(srv.port, LONG_LAYER // 2, 1) as proxy:
        engine.docker("pull", image(proxy, "local/long"))
        assert proxy.done_cuts == 1 and proxy.carried < 1.1 * LONG_LAYER
        assert b"\r\nrange: bytes=" in proxy.asked.lower()
        assert tar_digests(saved_layers(engine, image(proxy, "local/long"))) == digests(root / "long")


def test_docker_refuses_the_artifact(engine, srv):
    """Docker of this version takes images alone, and says so of `main`."""
    said = engine.docker("pull", f"127.0.0.1:{srv.port}/org/small:main", run=engine.box.refused)
    assert "unsupported media type application/vnd.cncf.model.config.v1+json" in said


@pytest.mark.parametrize("name, said", [("org/small:nothing", "manifest unknown"), ("org/nothing:image", "not found")])
def test_docker_says_what_is_not_there(engine, srv, name, said):
    assert said in engine.docker("pull", f"127.0.0.1:{srv.port}/{name}", run=engine.box.refused)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    made = TokensFile(tmp_path_factory.mktemp("tokens") / "tokens.json")
    return made.add("good", ["Org/*"]).add("foreign", ["long"]).add("expired", expires_s=1_600_000_000)


@pytest.fixture(scope="module")
def guarded(root, tokens, tmp_path_factory):
    """A server with TLS. For Docker: its engine trusts any certificate on 127.0.0.1."""
    ca = pki.Authority(tmp_path_factory.mktemp("pki"))
    with harness.Server(root, *pki.options_of(ca.sign("server")), "--tokens", tokens, tls=ca.context()) as s:
        yield s


def login(engine, server, token, run=None):
    return engine.docker("login", "--username", "any", "--password", token, f"127.0.0.1:{server.port}", run=run)


def test_docker_login(engine, guarded, tokens, root):
    assert "Login Succeeded" in login(engine, guarded, tokens.text("good"))
    engine.docker("pull", image(guarded, "org/small"))
    assert tar_digests(saved_layers(engine, image(guarded, "org/small"))) == digests(root / "Org/Small")
    login(engine, guarded, tokens.text("foreign"))
    assert "not found" in engine.docker("pull", image(guarded, "org/small"), run=engine.box.refused)
    engine.docker("logout", f"127.0.0.1:{guarded.port}")
    # Refused over TLS, Docker tries again without, which it does on 127.0.0.1 alone, and reports that.
    assert "this port speaks HTTPS" in engine.docker("pull", image(guarded, "org/small"), run=engine.box.refused)


@pytest.mark.parametrize("kind", ["wrong", "expired"])
def test_docker_login_is_refused(engine, guarded, tokens, kind):
    assert "unauthorized" in login(engine, guarded, tokens.text(kind), run=engine.box.refused).lower()
