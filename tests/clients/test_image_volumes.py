"""Models as image volumes: podman and containerd pull the tag `image`, mount it, and run containers that read it. Each
byte is compared with the served directory."""
import json
import os
import stat
from pathlib import Path

import pytest

import harness
from client import CuttingProxy, digests
from registry import BUSYBOX, Box, hex_of
from signing import TokensFile

LONG_LAYER = 32 << 20
LONG_NAME = "a-directory-with-a-long-name/" * 5 + "a file whose path is longer than a header of tar has room for.txt"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("volumes") / "root"
    harness.write_by_hand(root / "Org/Small/model.safetensors", [harness.tensor("w", "F32", (30, 40))])
    for name, text in (("config.json", "{}"), ("tokens/of it/vocab é.txt", "a\n"), ("empty.txt", ""),
                       (LONG_NAME, "far down\n")):
        (root / "Org/Small" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "Org/Small" / name).write_text(text)
    for i in range(300):
        (root / f"Org/Many/{i % 7}").mkdir(parents=True, exist_ok=True)
        (root / f"Org/Many/{i % 7}/{i}.txt").write_text(str(i))
    harness.write_by_hand(root / "Org/Many/model.safetensors", [harness.tensor("w", "U8", (8,))])
    for part in range(2):
        path = root / f"long/model-{part}.safetensors"
        harness.write_by_hand(path, [harness.tensor(f"w{part}", "U8", (LONG_LAYER,))])
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def box():
    if os.geteuid() != 0:
        pytest.fail("mounting images and running containers needs root here")
    with Box() as b:
        b.import_busybox()
        yield b


def image(server, name):
    return f"127.0.0.1:{server.port}/{name}:image"


@pytest.fixture(scope="module")
def small(box, srv):
    """The image of the small model, pulled by podman."""
    box.ok("podman", "pull", "--tls-verify=false", image(srv, "org/small"))
    return image(srv, "org/small")


def check_tree(place, folder):
    """Every file is there with its bytes, everybody may read it, and nothing else is there."""
    assert digests(place) == digests(folder)
    for path in Path(place).rglob("*"):
        mode = path.stat().st_mode
        wanted = 0o555 if path.is_dir() else 0o444
        assert mode & wanted == wanted, f"{path}: {stat.filemode(mode)}"


# -------------------------------------------------------------------------------------------------- podman

def test_podman_image_mount(box, small, root):
    place = box.ok("podman", "image", "mount", small)
    try:
        check_tree(place, root / "Org/Small")
    finally:
        box.ok("podman", "image", "unmount", small)


def test_podman_knows_the_images_digests(box, srv, small):
    """The layers' digests are those of the unpacked archives; the digest is that of the bytes that the server sent."""
    told = json.loads(box.ok("podman", "image", "inspect", small))[0]
    index = srv.get("/v2/org/small/manifests/image")
    assert told["Digest"] == f"sha256:{hex_of(index.body)}" == index.get("Docker-Content-Digest")
    mine = next(m for m in json.loads(index.body)["manifests"] if m["platform"]["architecture"] == told["Architecture"])
    manifest = json.loads(srv.get(f"/v2/org/small/manifests/{mine['digest']}").body)
    assert told["RootFS"]["Layers"] == [layer["digest"] for layer in manifest["layers"]]


def run_with(box, volume, *command, user="65532:65532", run=None):
    """Run busybox with the image as a volume, as somebody without rights."""
    return (run or box.ok)("podman", "run", "--rm", "--read-only", "--user", user, "--cap-drop", "all",
                           "--security-opt", "no-new-privileges", "--mount",
                           f"type=image,source={volume},destination=/model", BUSYBOX, *command)


@pytest.mark.parametrize("user", ["0:0", "65532:65532"])
def test_podman_run_with_the_model_as_a_volume(box, small, root, user):
    """A container that has no part in the image reads every file."""
    said = run_with(box, small, "find", "/model", "-type", "f", "-exec", "sha256sum", "{}", "+", user=user)
    found = dict(reversed(line.split("  ", 1)) for line in said.splitlines())
    assert found == {f"/model/{path}": digest for path, digest in digests(root / "Org/Small").items()}


def test_the_volume_is_read_only(box, small):
    assert "Read-only file system" in run_with(box, small, "touch", "/model/new", user="0:0", run=box.refused)


def test_podman_has_nothing_to_run_in_it(box, small):
    """An image of files alone: podman says that there is no command."""
    assert "no command" in box.refused("podman", "run", "--rm", small).lower()


def test_podman_refuses_the_artifact(box, srv):
    """Podman of this version takes images alone, and says so of `main`."""
    said = box.refused("podman", "pull", "--tls-verify=false", f"127.0.0.1:{srv.port}/org/small:main")
    assert "unsupported image-specific operation on artifact" in said


def check_mounted(box, name, folder):
    """Check the files of an image that podman has pulled, and remove the image."""
    check_tree(box.ok("podman", "image", "mount", name), folder)
    box.ok("podman", "image", "unmount", name)
    box.ok("podman", "rmi", name)


def test_podman_after_a_cut(box, srv, root):
    """This version says that the layer broke off and has no image; a second run has it."""
    with CuttingProxy(srv.port, LONG_LAYER // 2, 1) as proxy:
        name = image(proxy, "local/long")
        assert "unexpected EOF" in box.refused("podman", "pull", "--tls-verify=false", name)
        assert proxy.done_cuts == 1 and box.run("podman", "image", "exists", name)[0] == 1
        box.ok("podman", "pull", "--tls-verify=false", name)
    check_mounted(box, name, root / "long")


# ---------------------------------------------------------------------------------------------- containerd

def test_containerd(containerd, srv, root):
    containerd.pull(image(srv, "org/small"), "--plain-http")
    with containerd.mounted(image(srv, "org/small")) as place:
        check_tree(place, root / "Org/Small")


def test_more_files_than_an_image_has_layers(containerd, srv, root):
    """Docker takes 125 layers at most, so layers hold several files."""
    name = image(srv, "org/many")
    containerd.pull(name, "--plain-http")
    with containerd.mounted(name) as place:
        check_tree(place, root / "Org/Many")
    index = json.loads(srv.get("/v2/org/many/manifests/image").body)
    manifest = json.loads(srv.get(f"/v2/org/many/manifests/{index['manifests'][0]['digest']}").body)
    assert len(manifest["layers"]) <= 125


def test_containerd_of_another_platform(containerd, srv, root):
    """The nodes of a cluster may have either platform."""
    name = image(srv, "org/small")
    containerd.pull(name, "--plain-http", "--platform", "linux/arm64")
    with containerd.mounted(name, "--platform", "linux/arm64") as place:
        check_tree(place, root / "Org/Small")


def test_containerd_goes_on_inside_a_layer(containerd, srv, root):
    """containerd asks for the rest of a layer that was cut, by a range. The server has this layer on no disk."""
    with CuttingProxy(srv.port, LONG_LAYER // 3, 4) as proxy:
        name = image(proxy, "local/long")
        containerd.pull(name, "--plain-http")
        assert proxy.done_cuts == 4 and proxy.carried < 2.2 * LONG_LAYER
        assert proxy.asked.lower().count(b"\r\nrange: bytes=") >= 4
    with containerd.mounted(name) as place:
        check_tree(place, root / "long")


def test_podman_and_containerd_at_once(root, box, containerd):
    """Both begin before any digest is known, and both get every byte."""
    with harness.Server(root) as s:
        name = image(s, "local/long")
        podman = box.start("podman", "pull", "--tls-verify=false", name)
        containerd.pull(name, "--plain-http")
        _, err = podman.communicate(timeout=120)
        assert podman.returncode == 0, err
        with containerd.mounted(name) as place:
            check_tree(place, root / "long")
        check_mounted(box, name, root / "long")


# ----------------------------------------------------------------------------------------- TLS and tokens

@pytest.fixture(scope="module")
def tokens(ca):
    made = TokensFile(ca.folder / "tokens.json")
    return made.add("good", ["Org/*"]).add("foreign", ["long"]).add("expired", expires_s=1_600_000_000)


@pytest.fixture
def own_box(box):
    """Another user's credentials, with the same store."""
    (box.folder / "auth.json").write_text("{}")
    yield box
    (box.folder / "auth.json").write_text("{}")


def login(box, server, ca, token, run=None):
    return (run or box.ok)("podman", "login", "--cert-dir", ca.folder / "certs", "--username", "any", "--password",
                           token, f"127.0.0.1:{server.port}")


def test_podman_login(own_box, guarded, ca, tokens, root):
    """The token is the password, whatever the user is called; `podman pull` takes what `podman login` kept."""
    assert "Login Succeeded" in login(own_box, guarded, ca, tokens.text("good"))
    own_box.ok("podman", "pull", "--cert-dir", ca.folder / "certs", image(guarded, "org/small"))
    check_mounted(own_box, image(guarded, "org/small"), root / "Org/Small")


@pytest.mark.parametrize("kind", ["wrong", "expired"])
def test_podman_login_is_refused(own_box, guarded, ca, tokens, kind):
    said = login(own_box, guarded, ca, tokens.text(kind), run=own_box.refused)
    assert "invalid username/password" in said, said


def test_podman_without_a_token(own_box, guarded, ca):
    said = own_box.refused("podman", "pull", "--cert-dir", ca.folder / "certs", image(guarded, "org/small"))
    assert "unauthorized" in said or "authentication required" in said, said


def test_podman_with_the_token_of_another_model(own_box, guarded, ca, tokens):
    login(own_box, guarded, ca, tokens.text("foreign"))
    said = own_box.refused("podman", "pull", "--cert-dir", ca.folder / "certs", image(guarded, "org/small"))
    assert "name unknown" in said, said


def test_containerd_with_a_token(containerd, guarded, ca, tokens, root):
    name = image(guarded, "org/small")
    hosts = containerd.know_host(f"127.0.0.1:{guarded.port}", ca.cert)
    containerd.pull(name, "--hosts-dir", hosts, "--user", f"any:{tokens.text('good')}")
    with containerd.mounted(name) as place:
        check_tree(place, root / "Org/Small")


def test_no_program_is_left(box):
    """The containers ended when their commands did."""
    assert box.ok("podman", "ps", "--all", "--quiet") == ""
