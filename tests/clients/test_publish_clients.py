"""The examples of docs/publish-clients.md, run as they are printed: each client publishes the same directory, and every
face of the server has its bytes."""
import os
import re
import shlex
import subprocess
import tomllib

import pytest

import harness
import pki
import warm_python
from client import digests
from registry import BUSYBOX, Box, DockerEngine, hex_of
from signing import TokensFile
from test_recipes import run

CLIENT = harness.REPO / "clients/python"
PAGE = (harness.REPO / "docs/publish-clients.md").read_text()
SECTIONS = {text.partition("\n")[0]: re.findall(r"^```(sh|python)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
            for text in PAGE.split("\n## ")[1:]}
IMAGES = {"podman", "Docker"}       # what they push is no model
BY_HAND = {"Which one", "With a token", "Ollama"}     # Ollama has no package
# Sections whose example publishes something else than the directory.
OTHERS = {"A model in memory", "Distributed checkpoints", "transformers", "datasets", *IMAGES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The directory that the examples are run in, with `checkpoint`."""
    folder = tmp_path_factory.mktemp("examples")
    harness.write_by_hand(folder / "checkpoint/model.safetensors", [harness.tensor("w", "F32", (300, 400))])
    (folder / "checkpoint/config.json").write_text('{"model_type": "llama"}')
    about = folder / "site/tensord-0.dist-info"     # as if the client were installed, for fsspec
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tensord\nVersion: 0\n")
    points = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]["entry-points"]["fsspec.specs"]
    (about / "entry_points.txt").write_text("\n".join(["[fsspec.specs]", *(f"{k} = {v}" for k, v in points.items())]))
    return folder


@pytest.fixture(scope="module")
def srv(tmp_path_factory):
    root = tmp_path_factory.mktemp("published") / "models"
    root.mkdir()
    with harness.Server(root, "--s3-listen", "127.0.0.1:0", "--publish", "local") as s:
        yield s


def run_section(srv, folder, name, **env):
    """Run the examples of a section. Return what they print, and the ids that they name, in the page's order."""
    blocks = SECTIONS[name]
    assert blocks, name
    said = ""
    for language, block in blocks:
        if language == "python":
            block = f"{shlex.join(warm_python.command())} - <<'END'\n{block}END\n"
        env = {"PYTHONPATH": f"{CLIENT}:{folder / 'site'}", **env}
        said += run(srv, folder, f"export PATH={harness.tensord_binary().parent}:$PATH\n{block}", **env)
    return said, list(dict.fromkeys(re.findall(r"(?<!from:)org/by-[\w-]+", "\n".join(b for _, b in blocks))))


def served(srv, id):
    """Return path -> SHA-256 of what the Hub's face sends of a model's files."""
    tree = srv.json(f"/api/models/{id}/tree/main?recursive=1")
    return {f["path"]: hex_of(srv.get(f"/{id}/resolve/main/{f['path']}").body) for f in tree if f["type"] == "file"}


@pytest.mark.parametrize("name", [n for n in SECTIONS if n not in OTHERS | BY_HAND])
def test_the_directory_is_published(srv, folder, name):
    if name == "skopeo":        # copies what tensord push has made
        run_section(srv, folder, "tensord push")
    ids = run_section(srv, folder, name)[1] or ["org/by-boto3"]      # by bucket and key
    for id in ids:
        assert served(srv, id) == digests(folder / "checkpoint"), id
        assert srv.json(f"/models/{id}")["checkpoints"], id


def test_the_dataset_by_fsspec(srv):
    """The section's other example; test_the_directory_is_published has the models."""
    split, = srv.wait_for(lambda: [s for s in srv.json("/datasets/org/numbers")["splits"] if s["rows"] is not None],
                          "the rows are counted")
    assert (split["name"], split["rows"]) == ("train", 1000)


def test_a_distributed_checkpoint(srv, folder):
    _, ids = run_section(srv, folder, "Distributed checkpoints")
    for id in ids:
        manifest = srv.json(f"/models/{id}/step-100/tensors")
        assert [(t["name"], t["shape"]) for t in manifest["tensors"]] == [("weight", [1000])]
    assert len(ids) == 2


def test_a_model_in_memory(srv, folder):
    _, (id,) = run_section(srv, folder, "A model in memory")
    assert set(served(srv, id)) == {"config.json", "model.safetensors"}
    shapes = {t["name"]: t["shape"] for t in srv.json(f"/models/{id}/tensors")["tensors"]}
    assert shapes == {"weight": [64, 64], "bias": [64]}


def test_a_model_of_transformers(srv, folder):
    _, (id,) = run_section(srv, folder, "transformers")
    assert {"config.json", "model.safetensors"} <= set(served(srv, id))
    assert "model.norm.weight" in {t["name"] for t in srv.json(f"/models/{id}/tensors")["tensors"]}


def test_a_dataset(srv, folder):
    _, (id,) = run_section(srv, folder, "datasets")
    split, = srv.wait_for(lambda: [s for s in srv.json(f"/datasets/{id}")["splits"] if s["rows"] is not None],
                          "the rows are counted")
    assert (split["name"], split["rows"], split["columns"]) == ("train", 1000, [{"name": "n", "type": "INT64"}])


def test_images(srv, folder):
    """They can be pulled again, and are in no list of models."""
    if os.geteuid() != 0:
        pytest.fail("running containers needs root here")
    with Box() as box:
        box.import_busybox()
        box.ok("podman", "tag", BUSYBOX, "my-image")
        _, (by_podman,) = run_section(srv, folder, "podman", **box.env)
        with DockerEngine(box) as engine:
            box.ok("podman", "save", "-o", folder / "image.tar", "my-image")
            subprocess.run(["docker", "load", "-i", folder / "image.tar"], env={**os.environ, **engine.env}, check=True,
                           capture_output=True, timeout=120)
            subprocess.run(["docker", "tag", "localhost/my-image:latest", "my-image"], check=True,
                           env={**os.environ, **engine.env}, timeout=60)
            _, (by_docker,) = run_section(srv, folder, "Docker", **engine.env)
    for id in (by_podman, by_docker):
        assert srv.get(f"/v2/{id}/manifests/v1").status == 200, id
        assert id not in {m["id"] for m in srv.json("/models")["models"]}


def test_every_section_is_run():
    tested = {n for n in SECTIONS if n not in BY_HAND}
    assert len(tested) > 12 and all(SECTIONS[n] for n in tested)
    assert not any(SECTIONS[n] for n in BY_HAND), "an example that no test runs"


# The table of "With a token", for each client: replacements in its example, and variables of the environment.
SECURED = {
    "curl": ([("curl -fsS", 'curl -fsS -H "Authorization: Bearer $TOKEN" --cacert ca.pem')], {}),
    "tensord push": ([("tensord push", "TENSORD_TOKEN=$TOKEN tensord push --cacert ca.pem")], {}),
    "Python": ([('message=', 'ca_file="ca.pem", message=')], {"TENSORD_TOKEN": "$TOKEN"}),
    "The AWS command line": ([("AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any ", "")], {"AWS_CA_BUNDLE": "ca.pem"}),
    "boto3": ([(', aws_access_key_id="any"', ""), ('aws_secret_access_key="any", ', "")], {"AWS_CA_BUNDLE": "ca.pem"}),
    "s3fs": ([(', key="any", secret="any"', "")], {"AWS_CA_BUNDLE": "ca.pem"}),
    "rclone": ([("ACCESS_KEY_ID=any", "ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID"),
                ("SECRET_ACCESS_KEY=any", "SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY"),
                ("rclone sync", "rclone --ca-cert ca.pem sync")], {}),
    "hf": ([("HF_TOKEN=any", "HF_TOKEN=$TOKEN")], {"SSL_CERT_FILE": "ca.pem"}),
    "huggingface_hub": ([(', token="any"', "")], {"HF_TOKEN": "$TOKEN", "SSL_CERT_FILE": "ca.pem"}),
    "skopeo": ([("--src-tls-verify=false --dest-tls-verify=false",
                 "--src-creds any:$TOKEN --dest-creds any:$TOKEN --src-cert-dir certs --dest-cert-dir certs")], {}),
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory, folder):
    place = tmp_path_factory.mktemp("secured")
    (place / "models").mkdir()
    tokens = TokensFile(place / "tokens.json").add("w", ["org/*"], rights=("read", "write"))
    authority = pki.Authority(place)
    pair = authority.sign("server")
    (folder / "ca.pem").write_text(authority.cert.read_text())
    (folder / "certs").mkdir()
    (folder / "certs/ca.crt").write_text(authority.cert.read_text())
    with harness.Server(place / "models", "--s3-listen", "127.0.0.1:0", "--publish", "any", "--tokens", tokens,
                        *pki.options_of(pair), tls=authority.context()) as s:
        s.access, s.secret = tokens.s3_keys("w")
        s.token, s.bearer = tokens.text("w"), tokens.bearer("w")
        yield s


def secure(block, edits):
    """Return the example as one writes it for a server with TLS and tokens."""
    for old, new in edits:
        block = block.replace(old, new)
    return block.replace("http://127", "https://127").replace("tensord://", "tensords://")


@pytest.mark.parametrize("name", SECURED)
def test_with_a_token(secured, folder, name, monkeypatch):
    """The same examples against a server with TLS, with what the table adds."""
    edits, env = SECURED[name]
    keys = {"TOKEN": secured.token, "AWS_ACCESS_KEY_ID": secured.access, "AWS_SECRET_ACCESS_KEY": secured.secret}
    env = keys | {key: str(folder / "ca.pem") if value == "ca.pem" else secured.token for key, value in env.items()}
    for other in ("tensord push", name) if name == "skopeo" else (name,):
        changed = [(language, secure(block, SECURED[other][0])) for language, block in SECTIONS[other]]
        assert all(old in "".join(b for _, b in SECTIONS[other]) for old, _ in SECURED[other][0])
        monkeypatch.setitem(SECTIONS, other, changed)
        _, ids = run_section(secured, folder, other, **env)
    for id in ids or ["org/by-boto3"]:
        tree = secured.get(f"/api/models/{id}/tree/main?recursive=1", secured.bearer).json()
        assert {f["path"]: hex_of(secured.get(f"/{id}/resolve/main/{f['path']}", secured.bearer).body)
                for f in tree} == digests(folder / "checkpoint"), id
