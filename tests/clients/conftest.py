"""Clients run in processes of their own, as users run them: configured by their environment alone."""
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "http"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import harness  # noqa: E402
from registry import Containerd  # noqa: E402

# Code in this process must not reach outside, either.
for name in [n for n in os.environ if n.lower().endswith("_proxy") or n.startswith(("HF_", "AWS_"))]:
    del os.environ[name]
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"


def pytest_collection_modifyitems(items):
    harness.longest_first(items, ("test_dcp_readers", "test_dataset_clients"))


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
def containerd(box):
    """A containerd in the module's box."""
    if os.geteuid() != 0:
        pytest.fail("containerd needs root here")
    with Containerd(box) as c:
        yield c
