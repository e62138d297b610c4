"""The tests of pages have one browser in each process of pytest, and the harness of the HTTP tests."""
import contextlib
import sys
import threading
from pathlib import Path

import pytest

for folder in ("http", "pages"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / folder))

import harness  # noqa: E402
import models  # noqa: E402
from browser import Browser  # noqa: E402
from hub_like import HubLike  # noqa: E402
from upstream_kit import MIB, model  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def every_server_ended_well():
    yield
    for server in list(harness.Server.live):
        server.stop()


@pytest.fixture(scope="session")
def browser():
    with Browser() as b:
        yield b


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """Models and datasets, written once. No test changes them."""
    root = tmp_path_factory.mktemp("pages") / "root"
    models.build(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    """A server over all models, which has hashed their files and indexed the datasets."""
    with harness.hashed_server(root) as s:
        for dataset in (models.PICTURES, models.TEXTS):
            s.wait_for(lambda d=dataset: s.get(f"/datasets/{d}/rows").status == 200, f"{dataset} is indexed", 30)
        yield s


@pytest.fixture(scope="module")
def see(browser, srv):
    """see(path, **options) visits a page of the server."""
    return lambda path, **options: browser.visit(f"http://127.0.0.1:{srv.port}{path}", **options)


@pytest.fixture(scope="module")
def arriving(tmp_path_factory):
    """A server with a model, org/arriving, that is being fetched from another server: one of its 6 MiB is here. The
    fixture's value is (server, function that lets the rest arrive)."""
    root = tmp_path_factory.mktemp("arriving")
    with HubLike({"org/arriving": model()}) as hub:
        hub.open_gate(MIB)
        with harness.Server(root, "--upstream", hub.url) as s:
            path = "/models/org/arriving/files/model.safetensors"

            def read():
                with contextlib.suppress(OSError, harness.Incomplete):
                    s.get(path, timeout=120)

            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            s.wait_for(lambda: s.json("/models/org/arriving")["upstream"]["state"] == "incoming", "it arrives", 30)
            yield s, lambda: hub.open_gate(None)
            hub.open_gate(None)
            reader.join(60)
