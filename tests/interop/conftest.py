"""The interop tests stand on the same harness as the HTTP tests."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "http"))

import harness  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def every_server_ended_well():
    yield
    for s in list(harness.Server.live):
        s.stop()
