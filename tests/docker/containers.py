"""A Docker engine by its command line, and requests to what runs in it. Standard library only."""

import json
import shutil
import struct
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
HEALTHY_WITHIN_SECONDS = 60
# The version and the revision that the image is built with.
VERSION, REVISION = "1.2.3-test", "0123456789abcdef0123456789abcdef01234567"

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

    def run(self, *args, check=True, timeout=120, stdin=""):
        done = subprocess.run([self.docker, *args], env=self.env, cwd=REPO, input=stdin, capture_output=True, text=True,
                              timeout=timeout)
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
