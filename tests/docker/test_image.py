"""The image, built and run for real: what docker/Dockerfile and docker/compose.yaml promise."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from spdx_tools.spdx.parser import parse_anything
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from containers import (
    REPO, REVISION, TENSORS, VERSION, base_url, check_served, get, logs, safetensors_file, tensor_bytes, wait_healthy)

IMAGE_LIMIT_BYTES = 15_000_000  # above the base


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


def test_the_labels_are_those_of_the_image_spec(engine, image):
    """Keys that the image spec names (annotations.md), with values; the time only if the build was given one."""
    prefix = "org.opencontainers.image."
    labels = engine.inspect(image)["Config"]["Labels"]
    ours = {key[len(prefix):]: value for key, value in labels.items() if key.startswith(prefix)}
    assert ours.pop("description")
    assert ours == {"title": "tensord", "version": VERSION, "revision": REVISION, "base.name": engine.base}


@pytest.fixture(scope="module")
def sbom(engine, image, tmp_path_factory):
    path = tmp_path_factory.mktemp("sbom") / "sbom.spdx.json"
    path.write_text(engine.run("run", "--rm", "--entrypoint", "cat", image, "/usr/share/doc/tensord/sbom.spdx.json")
                    .stdout)
    return path


def test_the_sbom_is_valid_spdx(sbom):
    """By the reader and the validator of SPDX's own library."""
    document = parse_anything.parse_file(str(sbom))
    assert document.creation_info.spdx_version == "SPDX-2.3"
    assert [str(m) for m in validate_full_spdx_document(document)] == []
    tensord, = (p for p in document.packages if p.name == "tensord")
    assert (tensord.version, tensord.source_info) == (VERSION, f"built from revision {REVISION}")


# shows: security.md host-sbom
def test_the_sbom_has_every_library_that_the_server_maps(engine, container, sbom):
    """Compares the document with the files that the kernel shows as mapped and with dpkg's data about them."""
    document = json.loads(sbom.read_text())
    files = {f["fileName"].lstrip("."): f for f in document["files"]}
    packages = {p["SPDXID"]: p for p in document["packages"]}
    origin = {r["spdxElementId"]: packages[r["relatedSpdxElement"]] for r in document["relationships"]
              if r["relationshipType"] == "GENERATED_FROM"}
    maps = engine.run("exec", container, "cat", "/proc/1/maps").stdout.splitlines()
    mapped = {line.split(maxsplit=5)[5] for line in maps if line.count("/") and " r-xp " in line}
    assert len(mapped) > 10 and "/usr/local/bin/tensord" in mapped
    sums = engine.run("exec", container, "sha256sum", *sorted(mapped)).stdout
    for line in sums.splitlines():
        digest, path = line.split()
        listed = files[path]
        assert {"algorithm": "SHA256", "checksumValue": digest} in listed["checksums"], path
        if path == "/usr/local/bin/tensord":
            assert origin[listed["SPDXID"]]["name"] == "tensord"
            continue
        owner = next(done.stdout.partition(":")[0] for name in (path, path.removeprefix("/usr"))
                     if (done := engine.run("exec", container, "dpkg", "-S", name, check=False)).returncode == 0)
        version = engine.run("exec", container, "dpkg-query", "-W", "-f", "${Version}", owner).stdout
        assert (origin[listed["SPDXID"]]["name"], origin[listed["SPDXID"]]["versionInfo"]) == (owner, version), path
    installed = engine.run("exec", container, "dpkg-query", "-W", "-f", "${Package}=${Version}\n").stdout.split()
    named = {f"{p['name']}={p['versionInfo']}" for p in document["packages"]}
    assert len(installed) > 50 and set(installed) <= named
    assert {p["name"] for p in document["packages"]} - {i.partition("=")[0] for i in installed} == {
        "tensord", "ca-certificates"}


def test_the_sbom_refuses_a_library_of_no_package(tmp_path):
    """A library that was copied by hand would be missing from every list of packages."""
    root = tmp_path / "root"
    (root / "var/lib/dpkg/info").mkdir(parents=True)
    (root / "usr/lib").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text("Package: libz\nStatus: install ok installed\nVersion: 1\n"
                                              "Architecture: amd64\n\n")
    (root / "var/lib/dpkg/info/libz:amd64.list").write_text("/.\n/lib/libz.so.1.3\n")
    (root / "lib").symlink_to("usr/lib")
    for name in ("libz.so.1.3", "libown.so", "tensord"):
        (root / "usr/lib" / name).write_bytes(b"x")
    (root / "usr/lib/libz.so.1").symlink_to("/lib/libz.so.1.3")
    text = "\tlinux-vdso.so.1 (0x0007)\n\tlibz.so.1 => /lib/libz.so.1 (0x0001)\n"

    def make(ldd):
        (tmp_path / "ldd.txt").write_text(ldd)
        return subprocess.run([sys.executable, "-B", REPO / "docker/make_sbom.py", "--root", root, "--ldd",
                               tmp_path / "ldd.txt", "--binary", "/usr/lib/tensord", "--version", "1", "--output",
                               tmp_path / "sbom.json"], capture_output=True, text=True)

    assert make(text).returncode == 0
    files = {f["fileName"] for f in json.loads((tmp_path / "sbom.json").read_text())["files"]}
    assert files == {"./usr/lib/tensord", "./usr/lib/libz.so.1.3"}
    done = make(text + "\tlibown.so => /lib/libown.so (0x0002)\n")
    assert (done.returncode, done.stderr) == (1, "make_sbom.py: /usr/lib/libown.so belongs to no package\n")
    done = make(text + "\tlibgone.so => not found\n")
    assert done.returncode == 1 and "libgone.so => not found" in done.stderr


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


def test_a_new_volume_can_remember_digests(engine, image, models):
    """A named volume that has just been made, and a user whom the image does not know."""
    volume = f"tensordstate{os.getpid()}"
    name = engine.run("run", "-d", "--read-only", "--cap-drop", "ALL", "--user", "1234:1234", "-e",
                      "TENSORD_STATE_DIR=/state", "-v", f"{volume}:/state", "-v", f"{models}:/models:ro",
                      image).stdout.strip()
    try:
        wait_healthy(engine, name)
        assert engine.run("exec", name, "ls", "-A", "/state").stdout.split() == ["tensord-1234"]
    finally:
        engine.run("rm", "-f", name, check=False)
        engine.run("volume", "rm", "-f", volume)


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


# shows: security.md host-container
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
# shows: security.md host-container
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


@contextlib.contextmanager
def composed(engine, image, *up, **env):
    """Start one service of docker/compose.yaml, and hand out its container. Nothing of it is left after that."""
    project = f"tensordtest{os.getpid()}"
    env = dict(engine.env, TENSORD_IMAGE=image, BASE_IMAGE=engine.base, **env)
    command = [*engine.compose(), "-f", "docker/compose.yaml", "-p", project]

    def compose(*args):
        done = subprocess.run([*command, *args], env=env, cwd=REPO, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120)
        assert done.returncode == 0, f"{args}:\n{done.stdout}\n{done.stderr}"

    label = f"label=com.docker.compose.project={project}"
    try:
        compose(*up, "up", "-d", "--no-build", *(["publisher"] if up else []))
        name, = engine.run("ps", "-q", "--filter", label).stdout.split()
        wait_healthy(engine, name)
        host = engine.inspect(name)["HostConfig"]
        assert host["ReadonlyRootfs"] is True
        assert host["CapDrop"] == ["ALL"]
        assert [o for o in host["SecurityOpt"] if o.startswith("no-new-privileges")]
        assert host["PidsLimit"] > 0 and host["Memory"] > 0
        yield name
    finally:
        compose(*up, "down", "-v")
    assert engine.run("ps", "-aq", "--filter", label).stdout == ""
    assert engine.run("network", "ls", "-q", "--filter", label).stdout == ""


def mounts(engine, name):
    return {m["Destination"]: m["RW"] for m in engine.inspect(name)["Mounts"]}


def test_compose_up_serves_and_down_cleans(engine, image, models):
    with composed(engine, image, TENSORD_MODELS=str(models), TENSORD_PORT="0") as name:
        assert mounts(engine, name) == {"/models": False}
        check_served(base_url(engine, name))


def put(url, data, **headers):
    request = urllib.request.Request(url, data, headers, method="PUT")
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_clients_publish_to_the_profile(engine, image, tmp_path_factory):
    """docs/containers.md: with a token, to directories that belong to the image's user."""
    folder = tmp_path_factory.mktemp("compose")
    for name in ("published", "tokens"):
        (folder / name).mkdir()
        os.chown(folder / name, 65532, 65532)
    made = engine.run("run", "--rm", "-v", f"{folder}/tokens:/tokens", image, "token", "new", "ci", "--tokens",
                      "/tokens/tokens.json", "--models", "org/*", "--write", "--json").stdout
    bearer = {"Authorization": "Bearer " + json.loads(made)["token"]}
    with composed(engine, image, "--profile", "publish", TENSORD_PUBLISHED=str(folder / "published"),
                  TENSORD_TOKENS_DIR=str(folder / "tokens"), TENSORD_PUBLISH_PORT="0",
                  TENSORD_PUBLISH_MAX_BYTES="1000000") as name:
        assert mounts(engine, name) == {"/models": True, "/etc/tensord-tokens": False}
        base = base_url(engine, name)
        url = base + "/models/org/tiny/files/model.safetensors"
        assert put(url, b"x") == 401
        assert put(url, safetensors_file(), **bearer) == 201
        assert put(base + "/models/other/m/files/x", b"x", **bearer) == 403
        assert put(base + "/models/org/large/files/x", bytes(1_000_001), **bearer) == 507
        assert get(url, **bearer)[2] == safetensors_file()
        assert b"tensord_publish_max_bytes 1000000\n" in get(base + "/metrics")[2]
