"""Fixtures shared by the HTTP tests. After each module, all servers that it started must have ended well."""
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fixtures  # noqa: E402
import harness  # noqa: E402


def pytest_collection_modifyitems(items):
    longest = ("test_publish_faces", "test_rank_memory", "test_history", "test_upstream", "test_touched_files",
               "test_slow_clients", "test_waiting_for_names", "test_changing_files", "test_events", "test_grpc_attacks",
               "test_upstream_versions", "test_upstream_bounds", "test_upstream_events")
    harness.longest_first(items, longest)


@pytest.fixture(scope="module", autouse=True)
def every_server_ended_well():
    """Check that no server outlives its module and that no server's output has a sanitizer report."""
    yield
    left = list(harness.Server.live)
    for s in left:
        s.stop()


@pytest.fixture
def place():
    """A directory that any user can reach; pytest's own directory is closed to others."""
    where = Path(tempfile.mkdtemp(prefix="tensord-place-"))
    where.chmod(0o755)
    yield where
    shutil.rmtree(where)


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    """The big read-only tree of good models: written once, served by many modules."""
    root = tmp_path_factory.mktemp("tree") / "root"
    yield fixtures.build_tree(root)
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def srv(tree):
    """A server over the big tree, one per module. Nothing is hashed, so entity tags do not change."""
    s = harness.Server(tree.root, hash_threads=0)
    yield s
    s.stop()


@pytest.fixture
def start(request):
    """Start servers within one test: start(root, *args, **kw). Nothing is hashed unless hash_threads says so."""
    began = []

    def go(root, *args, **kw):
        s = harness.Server(root, *args, **{"hash_threads": 0} | kw)
        began.append(s)
        return s

    yield go
    for s in began:
        s.stop()
