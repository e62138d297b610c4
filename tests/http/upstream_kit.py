"""The models, upstreams, and servers that pull from them, that the tests of pull-through share."""
import re
import socket
import subprocess

import pytest

from harness import safetensors_bytes, tensor, tensord_binary
from hub_like import HubLike

MIB = 1024 * 1024
WINDOW = 256 * 1024      # what is sent at a time
CHECKS = ("Tensord-Checks", "sha256")     # this client checks digests: it may have bytes that are not checked yet
CONFIG = b'{"architectures": ["LlamaForCausalLM"], "hidden_size": 64}\n'


def weights(nbytes=6 * MIB, salt="w"):
    """A safetensors file of about this size."""
    return safetensors_bytes([tensor("a", "U8", [nbytes], salt), tensor("b", "F32", [4, 8], salt)])


def model(salt="w", nbytes=6 * MIB):
    return {"config.json": CONFIG, "README.md": b"# hello\n", "model.safetensors": weights(nbytes, salt)}


# Files that no scan finds, so that no server shows them: a repository of the Hub has the first one as a rule.
HIDDEN = {".gitattributes": b"*.safetensors filter=lfs\n", ".cache/x": b"x", "d/.e/f.txt": b"f", "a.tmp": b"a",
          "b.incomplete": b"b"}


@pytest.fixture
def hubs():
    began = []

    def go(models, **kw):
        began.append(HubLike(models, **kw))
        return began[-1]

    yield go
    for hub in began:
        hub.close()


@pytest.fixture
def cache(tmp_path, start):
    """Start a server that pulls: cache(url, *args). It hashes nothing, so the digests that it knows are those of the
    fetch."""
    def go(url, *args, root="cache", **kw):
        (tmp_path / root).mkdir(exist_ok=True)
        return start(tmp_path / root, "--upstream", url, *args, **kw)

    return go


def new_token(tokens, name, *globs):
    """Add a token for these models, or all, to a file. Return it."""
    made = subprocess.run([tensord_binary(), "token", "new", name, "--tokens", tokens] +
                          [word for glob in globs for word in ("--models", glob)],
                          capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return re.search(r"token: +(\S+)", made.stdout)[1]


def bearer_of(token):
    return [("Authorization", f"Bearer {token}")]


def published(server, name):
    """Wait until the model is an ordinary one."""
    server.wait_for(lambda: name in server.ids(), f"{name} is published")


def count(server, name):
    """One sample of the upstream's metrics."""
    return server.gauge(f"tensord_upstream_{name}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
