"""The image, built and run for real: what docker/Dockerfile and docker/compose.yaml promise.

An engine that runs already is used; otherwise engine.sh starts a private one, with a base image made on the spot, and
removes it again. TENSORD_BASE_IMAGE names another base. Standard library only, apart from pytest.
"""

import json
import os
import shutil
import struct
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
ENGINE = Path(__file__).resolve().parent / "engine.sh"
IMAGE_LIMIT_BYTES = 20_000_000  # above the base
HEALTHY_WITHIN_SECONDS = 60

# The model that the container serves, written by hand so that nothing here depends on our own code.
TENSORS = [("embed.weight", "BF16", [300, 40]), ("norm.weight", "F32", [40]), ("steps", "I64", [7])]
ITEM_BYTES = {"BF16": 2, "F32": 4, "I64": 8}


def tensor_bytes(name, dtype, shape):
    """Bytes that depend on their position and the tensor: a wrong offset shows."""
    count = ITEM_BYTES[dtype]
    for size in shape:
        count *= size
    seed = sum(name.encode())
    return bytes((i * 7 + (i >> 8) * 13 + seed) & 0xFF for i in range(count))


def safetensors_file():
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, dtype, shape in TENSORS:
        data = tensor_bytes(name, dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


class Engine:
    """One Docker engine, by its command line."""

    def __init__(self, docker, env, base, private):
        self.docker, self.env, self.base, self.private = docker, env, base, private

    def run(self, *args, check=True, timeout=120):
        done = subprocess.run([self.docker, *args], env=self.env, cwd=REPO, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=timeout)
        if check and done.returncode != 0:
            raise AssertionError(f"docker {' '.join(args)} exited {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done

    def inspect(self, what):
        return json.loads(self.run("inspect", what).stdout)[0]

    def compose(self):
        """The compose command at hand: the client's own plugin (v2) or docker-compose (1.29)."""
        if self.run("compose", "version", check=False).returncode == 0:
            return [self.docker, "compose"]
        path = shutil.which("docker-compose")
        assert path, "neither `docker compose` nor docker-compose: apt-get install docker-compose"
        return [path]


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


@pytest.fixture(scope="session")
def image(engine):
    name = f"tensord-test:{os.getpid()}"
    engine.run("build", "--build-arg", f"BASE_IMAGE={engine.base}", "-t", name, "-f", "docker/Dockerfile", ".",
               timeout=540)
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


def wait_healthy(engine, container):
    """Seconds until the image's own health check passes."""
    began = time.monotonic()
    while time.monotonic() - began < HEALTHY_WITHIN_SECONDS:
        state = engine.inspect(container)["State"]
        if not state["Running"] or state["Health"]["Status"] == "unhealthy":
            break
        if state["Health"]["Status"] == "healthy":
            return time.monotonic() - began
        time.sleep(0.2)
    raise AssertionError(f"not healthy: {state}\n{logs(engine, container)}")


def logs(engine, container):
    done = engine.run("logs", container, check=False)
    return done.stdout + done.stderr


def base_url(engine, container):
    address = engine.run("port", container, "8080/tcp").stdout.split()[0]
    assert address.startswith("127.0.0.1:"), address
    return f"http://{address}"


@pytest.fixture(scope="module")
def container(engine, image, models):
    name = engine.run("run", "-d", "-p", "127.0.0.1:0:8080", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL",
                      "--security-opt", "no-new-privileges", "--pids-limit", "512", "--memory", "256m",
                      "-v", f"{models}:/models:ro", image).stdout.strip()
    try:
        wait_healthy(engine, name)
        yield name
    finally:
        engine.run("rm", "-fv", name, check=False)


def get(url, **headers):
    """(status, headers, body); proxies of the environment play no part."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def check_served(base):
    """The list, the manifest, and every tensor's bytes, against the file as it was written."""
    status, _, body = get(base + "/models")
    assert status == 200
    assert [m["id"] for m in json.loads(body)["models"]] == ["tiny"]
    status, _, body = get(base + "/models/tiny/tensors")
    assert status == 200
    manifest = json.loads(body)
    assert manifest["tensor_count"] == len(TENSORS)
    assert manifest["metadata"] == {"format": "pt"}
    by_name = {t["name"]: t for t in manifest["tensors"]}
    assert sorted(by_name) == sorted(name for name, _, _ in TENSORS)
    file = safetensors_file()
    for name, dtype, shape in TENSORS:
        entry, expected = by_name[name], tensor_bytes(name, dtype, shape)
        assert (entry["dtype"], entry["shape"], entry["nbytes"]) == (dtype, shape, len(expected))
        assert entry["file"] == "model.safetensors"
        assert file[entry["offset"]:entry["offset"] + entry["nbytes"]] == expected
        status, headers, body = get(base + entry["href"])
        assert (status, body) == (200, expected)
        assert headers["X-Tensor-Dtype"] == dtype
        assert json.loads(headers["X-Tensor-Shape"]) == shape


def test_the_image_is_small(engine, image):
    base, whole = engine.inspect(engine.base)["Size"], engine.inspect(image)["Size"]
    print(f"image {whole / 1e6:.1f} MB, base {base / 1e6:.1f} MB, above it {(whole - base) / 1e6:.1f} MB")
    assert whole - base < IMAGE_LIMIT_BYTES


def test_the_image_says_how_it_runs(engine, image):
    config = engine.inspect(image)["Config"]
    user, _, group = config["User"].partition(":")
    assert user.isdigit() and int(user) > 0, config["User"]
    assert group.isdigit() and int(group) > 0, config["User"]
    assert config["Entrypoint"] == ["/usr/local/bin/tensord"]
    assert config["Cmd"] == ["serve", "/models"]
    assert config["Healthcheck"]["Test"][:3] == ["CMD", "/usr/local/bin/tensord", "health"]
    assert list(config["ExposedPorts"]) == ["8080/tcp"]
    assert config["StopSignal"] == "SIGTERM"
    assert not config.get("Volumes")
    assert config["Labels"]["org.opencontainers.image.title"] == "tensord"


def test_it_is_healthy(engine, container):
    health = engine.inspect(container)["State"]["Health"]
    assert health["Status"] == "healthy"
    assert health["Log"][-1]["ExitCode"] == 0


def test_the_health_check_can_fail(engine, container):
    """The same binary and command, against a port where nobody listens."""
    done = engine.run("exec", container, "/usr/local/bin/tensord", "health", "http://127.0.0.1:9/readyz", check=False)
    assert done.returncode == 1, done


def test_a_state_directory_that_everybody_may_write_to(engine, image, models):
    """An emptyDir of Kubernetes is as this tmpfs: root's, 0777."""
    for mode in ("0777", "1777"):
        name = engine.run("run", "-d", "-p", "127.0.0.1:0:8080", "--read-only", "--cap-drop", "ALL", "-e",
                          "TENSORD_STATE_DIR=/state", "--tmpfs", f"/state:mode={mode}", "-v", f"{models}:/models:ro",
                          image).stdout.strip()
        try:
            wait_healthy(engine, name)
            assert 'digests are kept in its sub-directory "tensord-65532"' in logs(engine, name)
            assert engine.run("exec", name, "ls", "-A", "/state").stdout.split() == ["tensord-65532"]
            assert json.loads(get(base_url(engine, name) + "/readyz")[2])["digests"]["stored"] is True
        finally:
            engine.run("rm", "-fv", name, check=False)


def test_without_a_model_it_is_not_healthy(engine, image, tmp_path):
    """A volume that was forgotten, or mounted from an empty place; unless that is meant."""
    tmp_path.chmod(0o755)
    for env, healthy in ((), False), (("-e", "TENSORD_REQUIRE_MODELS=0"), True):
        name = engine.run("run", "-d", "--read-only", "--cap-drop", "ALL", *env, "-v", f"{tmp_path}:/models:ro",
                          image).stdout.strip()
        try:
            ask = ("exec", name, "/usr/local/bin/tensord", "health", "http://127.0.0.1:8080/readyz")
            for _ in range(100):
                done = engine.run(*ask, check=False)
                if healthy and done.returncode == 0 or "too few models" in done.stdout:
                    break
                time.sleep(0.2)
            assert done.returncode == (0 if healthy else 1), done
            assert ('0 of the 1 models that --require-models asks for' in done.stdout) != healthy
            assert '"/models" holds no model' in logs(engine, name)
        finally:
            engine.run("rm", "-fv", name, check=False)


def test_it_runs_without_rights(engine, container):
    """Not root, no capability, no way to gain one: as configured, and as the kernel sees the process."""
    host = engine.inspect(container)["HostConfig"]
    assert host["CapDrop"] == ["ALL"] and not host["CapAdd"] and not host["Privileged"]
    done = engine.run("exec", container, "cat", "/proc/1/status")
    status = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    assert status["Name"] == "tensord"
    for ids in (status["Uid"], status["Gid"]):
        assert all(int(number) == 65532 for number in ids.split()), ids
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == 0, f"{kind}: {status[kind]}"
    assert status["NoNewPrivs"] == "1"


@pytest.mark.parametrize("user", ["65532", "0"])
@pytest.mark.parametrize("path", ["/new", "/usr/local/bin/new", "/models/new", "/models/tiny/new"])
def test_nothing_can_be_written(engine, container, path, user):
    assert engine.inspect(container)["HostConfig"]["ReadonlyRootfs"] is True
    done = engine.run("exec", "--user", user, container, "touch", path, check=False)
    assert done.returncode == 1
    assert "Read-only file system" in done.stderr


def test_manifest_and_bytes_through_the_mapped_port(engine, container):
    check_served(base_url(engine, container))


def test_range_through_the_mapped_port(engine, container):
    url = base_url(engine, container) + "/models/tiny/tensors/embed.weight"
    name, dtype, shape = TENSORS[0]
    whole = tensor_bytes(name, dtype, shape)
    status, headers, body = get(url, Range="bytes=1000-1999")
    assert (status, body) == (206, whole[1000:2000])
    assert headers["Content-Range"] == f"bytes 1000-1999/{len(whole)}"
    assert headers["Content-Length"] == "1000"
    status, headers, body = get(url, Range="bytes=-5")
    assert (status, body) == (206, whole[-5:])
    status, headers, body = get(url, Range=f"bytes={len(whole)}-")
    assert status == 416
    assert headers["Content-Range"] == f"bytes */{len(whole)}"


def test_sigterm_ends_it_with_0(engine, image, models):
    name = engine.run("run", "-d", "-p", "127.0.0.1:0:8080", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL",
                      "--security-opt", "no-new-privileges", "--pids-limit", "512", "--memory", "256m",
                      "-v", f"{models}:/models:ro", image).stdout.strip()
    try:
        wait_healthy(engine, name)
        began = time.monotonic()
        engine.run("stop", "-t", "10", name)
        took = time.monotonic() - began
        state = engine.inspect(name)["State"]
        assert state["Status"] == "exited"
        assert (state["ExitCode"], state["OOMKilled"]) == (0, False), logs(engine, name)
        print(f"stopped in {took:.2f} s")
        assert took < 9, "docker had to kill it"
    finally:
        engine.run("rm", "-fv", name, check=False)


def test_compose_up_serves_and_down_cleans(engine, image, models):
    project = f"tensordtest{os.getpid()}"
    env = dict(engine.env, TENSORD_IMAGE=image, TENSORD_MODELS=str(models), TENSORD_PORT="0", BASE_IMAGE=engine.base)
    command = [*engine.compose(), "-f", "docker/compose.yaml", "-p", project]

    def compose(*args):
        done = subprocess.run([*command, *args], env=env, cwd=REPO, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120)
        assert done.returncode == 0, f"{args}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    label = f"label=com.docker.compose.project={project}"
    try:
        compose("up", "-d", "--no-build")
        name, = engine.run("ps", "-q", "--filter", label).stdout.split()
        wait_healthy(engine, name)
        host = engine.inspect(name)["HostConfig"]
        assert host["ReadonlyRootfs"] is True
        assert host["CapDrop"] == ["ALL"]
        assert [o for o in host["SecurityOpt"] if o.startswith("no-new-privileges")]
        assert host["PidsLimit"] > 0 and host["Memory"] > 0
        mount, = engine.inspect(name)["Mounts"]
        assert (mount["Destination"], mount["RW"]) == ("/models", False)
        check_served(base_url(engine, name))
    finally:
        compose("down", "-v")
    assert engine.run("ps", "-aq", "--filter", label).stdout == ""
    assert engine.run("network", "ls", "-q", "--filter", label).stdout == ""
