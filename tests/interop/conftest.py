"""The interop tests use the harness of the HTTP tests."""
import sys
from pathlib import Path

import pytest

for folder in ("http", "data"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))

import fake_hub  # noqa: E402
import harness  # noqa: E402
import pulls  # noqa: E402
import warm_python  # noqa: E402


def pytest_configure(config):
    warm_python.begin(config)


def pytest_collection_modifyitems(items):
    harness.longest_first(items, ("test_pull", "test_messages", "test_torch", "test_plans", "test_pickle", "test_push",
                                  "test_kubernetes", "test_pull_attacks", "test_fanout"))


@pytest.fixture(scope="module", autouse=True)
def every_server_ended_well():
    yield
    for s in list(harness.Server.live):
        s.stop()


@pytest.fixture(scope="module")
def srv(root):
    """A server over the module's directory, whose entity tags stay as they are."""
    with harness.Server(root) as s:
        s.wait_hashed()
        yield s


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


@pytest.fixture
def hub():
    """A server with the Hub's interface, of a small and a large file."""
    with fake_hub.FakeHub({"config.json": b'{"a":1}', "model.safetensors": pulls.big()}) as hub:
        yield hub


@pytest.fixture
def model(serve):
    """model() starts a tensord that serves org/m."""
    harness.write_by_hand(serve.root / "org/m/model.safetensors",
                  [harness.tensor(f"model.layers.{i}.w", "F32", [64, 512]) for i in range(12)])
    (serve.root / "org/m/config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (serve.root / "org/m/deep/er").mkdir(parents=True)
    (serve.root / "org/m/deep/er/a b%c.txt").write_text("text")
    (serve.root / "org/m/empty.txt").touch()
    return serve
