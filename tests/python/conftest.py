"""Tests of the Python client (clients/python) against a real server. The client is imported from its sources."""
import os
import re
import signal
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
CLIENT = REPO / "clients" / "python"

for folder in (CLIENT, REPO / "tests" / "http", Path(__file__).resolve().parent):
    sys.path.insert(0, str(folder))
# Processes that tests start import the same sources.
os.environ["PYTHONPATH"] = os.pathsep.join([str(CLIENT), str(Path(__file__).resolve().parent)])
for name in [n for n in os.environ if n.lower().endswith("_proxy") or n.startswith(("HF_", "TENSORD_TOKEN"))]:
    del os.environ[name]
os.environ["HF_HUB_OFFLINE"] = "1"
# Tests run side by side: the threads of torch's pools would wait for each other in loops that keep processors busy.
os.environ["OMP_NUM_THREADS"] = "1"
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore

import harness  # noqa: E402
import warm_python  # noqa: E402


def pytest_configure(config):
    warm_python.begin(config)


def pytest_collection_modifyitems(items):
    longest = ("test_faults", "test_publishing_faults", "test_datasets_loaders", "test_vllm_refresh", "test_vllm",
               "test_vllm_sharded", "test_datasets_faults", "test_datasets_arrow_types", "test_datasets_training",
               "test_dcp_reader")
    harness.longest_first(items, longest)


@pytest.fixture(scope="module", autouse=True)
def every_server_ended_well():
    yield
    for server in list(harness.Server.live):
        server.stop()


@pytest.fixture
def serve(tmp_path):
    """serve(*options) starts a server over serve.root, where the test has written its files."""
    began = []
    (tmp_path / "root").mkdir()

    def start(*options, **settings):
        harness.age(tmp_path / "root")
        began.append(harness.Server(tmp_path / "root", *options, **settings))
        return began[-1]

    start.root = tmp_path / "root"
    yield start
    for server in began:
        server.stop()


def url_of(server, model):
    """Return the URL of a model on a server under test."""
    return f"tensord://127.0.0.1:{server.port}/{model}"


def bytes_of(server, needle="", agent=""):
    """Return the sum of the body bytes that a server sent for targets that contain a text, to clients whose User-Agent
    contains another, from its access log."""
    total = 0
    for line in server.whole_log().splitlines():
        target, client = re.search(r' target="([^"]*)"', line), re.search(r' agent="([^"]*)"', line)
        if target and needle in target[1] and agent in (client[1] if client else ""):
            total += int(re.search(r" sent=(\d+)", line)[1])
    return total


@pytest.fixture
def serve_rows(serve, tmp_path):
    """serve_rows() serves the datasets that the test has written below serve_rows.root / "datasets"."""
    def start(*options):
        return serve("--state-dir", str(tmp_path / "state"), *options)

    (tmp_path / "state").mkdir()
    start.root = serve.root
    return start


def rows_url(server, dataset):
    """Return the URL of a dataset on a server under test."""
    return f"tensord://127.0.0.1:{server.port}/datasets/{dataset}"
