"""The interop tests use the harness of the HTTP tests."""
import sys
from pathlib import Path

import pytest

for folder in ("http", "data"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))

import harness  # noqa: E402


def pytest_collection_modifyitems(items):
    harness.longest_first(items, ("test_torch", "test_pickle", "test_pull"))


@pytest.fixture(scope="module", autouse=True)
def every_server_ended_well():
    yield
    for s in list(harness.Server.live):
        s.stop()


@pytest.fixture
def serve(tmp_path):
    """serve(**options) starts a server over serve.root, where the test has written its files."""
    began = []
    (tmp_path / "root").mkdir()

    def start(**options):
        harness.age(tmp_path / "root")
        began.append(harness.Server(tmp_path / "root", **options))
        return began[-1]
    start.root = tmp_path / "root"
    yield start
    for server in began:
        server.stop()
