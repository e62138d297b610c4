"""One engine, one image and one directory of models for all tests of this folder.

An engine that runs already is used; otherwise engine.sh starts a private one, with a base image made on the spot, and
removes it again. TENSORD_BASE_IMAGE names another base. Two private engines at once would undo each other's network
rules, so these tests run in one process.
"""

import os
import subprocess
from pathlib import Path

import pytest

from containers import REPO, REVISION, VERSION, Engine, safetensors_file

ENGINE = Path(__file__).resolve().parent / "engine.sh"


@pytest.fixture(scope="session")
def engine():
    # In a session of its own, so that Ctrl-C cannot end it before it has cleaned up: it ends with its standard input.
    keeper = subprocess.Popen(["bash", str(ENGINE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              start_new_session=True)
    try:
        said = {}
        for line in keeper.stdout:
            key, _, value = line.strip().partition("=")
            said[key] = value
            if key == "ready":
                break
        assert "ready" in said, f"engine.sh ended with {keeper.wait()} before an engine was there (see its messages)"
        env = {k: v for k, v in os.environ.items() if not k.startswith("TENSORD_")}
        env["DOCKER_BUILDKIT"] = "1"
        if "DOCKER_HOST" in said:
            env["DOCKER_HOST"] = said["DOCKER_HOST"]
            env.pop("DOCKER_CONTEXT", None)
        base = os.environ.get("TENSORD_BASE_IMAGE") or said.get("BASE_IMAGE") or "debian:bookworm-slim"
        made = Engine(said["DOCKER"], env, base, "DOCKER_HOST" in said)
        if made.run("image", "inspect", base, check=False).returncode != 0:
            made.run("pull", base, timeout=300)
        yield made
    finally:
        keeper.stdin.close()
        status = keeper.wait(timeout=180)
    assert status == 0, f"engine.sh ended with {status}"


def is_compiled_in_the_image():
    """Return whether the image compiles the program or copies build/tensord. It copies where nothing has changed of
    what decides how it compiles since ./test.sh image has passed, which writes docker/compiled.sha256."""
    if os.environ.get("TENSORD_COMPILE_IN_IMAGE"):
        return True
    return subprocess.run(["sha256sum", "--check", "--status", "docker/compiled.sha256"], cwd=REPO).returncode != 0


@pytest.fixture(scope="session")
def image(engine):
    name = f"tensord-test:{os.getpid()}"
    settings = {"BASE_IMAGE": engine.base, "VERSION": VERSION, "REVISION": REVISION,
                "BINARY": "" if is_compiled_in_the_image() else "build/tensord"}
    arguments = [word for key, value in settings.items() for word in ("--build-arg", f"{key}={value}")]
    engine.run("build", *arguments, "-t", name, "-f", "docker/Dockerfile", ".", timeout=540)
    yield name
    engine.run("rmi", "-f", name, check=False)


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A directory of one model, readable for the image's user, old enough to be published at once."""
    root = tmp_path_factory.mktemp("models")
    (root / "tiny").mkdir()
    for path, data in (("tiny/model.safetensors", safetensors_file()), ("tiny/config.json", b'{"model_type":"tiny"}')):
        (root / path).write_bytes(data)
        os.utime(root / path, (1_700_000_000, 1_700_000_000))
        (root / path).chmod(0o644)
    for directory in (root, root / "tiny"):
        directory.chmod(0o755)
    return root
