"""Clients run in processes of their own, as users run them: configured by their environment alone."""
import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "http"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import harness  # noqa: E402
import pki  # noqa: E402
import warm_python  # noqa: E402
from client import Worker  # noqa: E402
from registry import Containerd  # noqa: E402

# Code in this process must not reach outside, either.
for name in [n for n in os.environ if n.lower().endswith("_proxy") or n.startswith(("HF_", "AWS_"))]:
    del os.environ[name]
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"


def pytest_configure(config):
    warm_python.begin(config)


def pytest_collection_modifyitems(items):
    harness.longest_first(items, ("test_hub_upload", "test_s3_put_clients", "test_typed", "test_s3_sync", "test_hub",
                                  "test_publish_clients", "test_dcp_readers", "test_dataset_clients"))


@pytest.fixture(scope="module", autouse=True)
def every_server_ended_well():
    yield
    for s in list(harness.Server.live):
        s.stop()


@pytest.fixture(scope="module")
def srv(root):
    """A server over the module's directory, which has hashed all files. Many modules have a server of their own."""
    with harness.hashed_server(root) as s:
        yield s


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    """An authority, with its certificate in a directory as clients of containers want it."""
    made = pki.Authority(tmp_path_factory.mktemp("pki"))
    (made.folder / "certs").mkdir()
    shutil.copy(made.cert, made.folder / "certs/ca.crt")
    return made


@pytest.fixture(scope="module")
def guarded(root, ca, tokens):
    """A server over the module's directory, with TLS and the module's tokens."""
    with harness.Server(root, *pki.options_of(ca.sign("server")), "--tokens", tokens, tls=ca.context()) as s:
        yield s


@pytest.fixture(scope="module")
def hub(srv):
    """A process with the Hub's client, which knows the module's server."""
    with Worker("calls_hub", HF_ENDPOINT=f"http://127.0.0.1:{srv.port}") as w:
        yield w


@pytest.fixture(scope="module")
def containerd(box):
    """A containerd in the module's box."""
    if os.geteuid() != 0:
        pytest.fail("containerd needs root here")
    with Containerd(box) as c:
        yield c
