"""tensord.watch: models as they appear and change, over changes of many kinds and restarts of the server."""
import os
import queue
import shutil
import threading
import time

import harness
import pytest
import torch
from conftest import url_of
from safetensors.torch import save_file

import tensord

FAST = {"retry_for": 60.0, "stall_timeout": 4.0, "progress": False}


def publish(root, name, value):
    """Write a model beside its place, and rename it there."""
    place, new = root / name, root.parent / "new"
    new.mkdir()
    save_file({"w": torch.full((3,), float(value))}, new / "model.safetensors")
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        os.rename(new / "model.safetensors", place / "model.safetensors")
        new.rmdir()
    else:
        os.rename(new, place)


class Follower:
    """Reads an iterator in a thread: `next()` waits for what comes, `quiet()` says that nothing does."""

    def __init__(self, iterator):
        self._found = queue.Queue()
        threading.Thread(target=self._follow, args=(iterator,), daemon=True).start()

    def _follow(self, iterator):
        try:
            for model in iterator:
                self._found.put((model.id, model.state_dict()["w"][0].item()))
        except BaseException as error:      # is raised by next()
            self._found.put(error)

    def next(self, seconds=40):
        found = self._found.get(timeout=seconds)
        if isinstance(found, BaseException):
            raise found
        return found

    def quiet(self, seconds=1.5):
        with pytest.raises(queue.Empty):
            raise AssertionError(self._found.get(timeout=seconds))


@pytest.fixture
def settled(serve):
    """start() serves models `run/step-1` and `other`."""
    publish(serve.root, "run/step-1", 1)
    publish(serve.root, "other", 7)
    return serve


def server_url(server):
    return f"tensord://127.0.0.1:{server.port}"


def test_models_that_appear_and_change(settled):
    """Those that are there come first; then each that comes or changes, when it does, and no other."""
    server = settled("--settle", "0")
    follower = Follower(tensord.watch(server_url(server), "run/*", **FAST))
    assert follower.next() == ("run/step-1", 1.0)
    began = time.monotonic()
    publish(settled.root, "run/step-2", 2)
    assert follower.next() == ("run/step-2", 2.0)
    assert time.monotonic() - began < 10
    publish(settled.root, "run/step-1", 10)
    assert follower.next() == ("run/step-1", 10.0)
    publish(settled.root, "other", 8)
    shutil.rmtree(settled.root / "run/step-2")
    server.wait_for(lambda: len(tensord.connect(server_url(server)).models()) == 2, "step-2 is gone")
    follower.quiet()
    publish(settled.root, "run/step-2", 3)
    assert follower.next() == ("run/step-2", 3.0)
    follower.quiet(5)           # longer than one request waits


def test_without_those_that_are_there(settled):
    server = settled("--settle", "0")
    follower = Follower(tensord.connect(server_url(server), **FAST).watch(existing=False))
    follower.quiet()
    publish(settled.root, "run/step-2", 2)
    assert follower.next() == ("run/step-2", 2.0)


def test_one_model(settled):
    """A model's URL is watched for this model, which may not be there yet; its name is no pattern."""
    publish(settled.root, "run/a[b]", 1)
    server = settled("--settle", "0")
    follower = Follower(tensord.watch(url_of(server, "run/a[b]"), **FAST))
    assert follower.next() == ("run/a[b]", 1.0)
    publish(settled.root, "run/ab", 5)
    publish(settled.root, "run/a[b]", 2)
    assert follower.next() == ("run/a[b]", 2.0)
    later = Follower(tensord.watch(url_of(server, "run/later"), **FAST))
    later.quiet(0.5)
    publish(settled.root, "run/later", 9)
    assert later.next() == ("run/later", 9.0)
    follower.quiet(0.1)


def test_a_model_comes_when_it_has_a_checkpoint(settled):
    server = settled("--settle", "0")
    follower = Follower(tensord.watch(server_url(server), "run/*", existing=False, **FAST))
    follower.quiet(0.5)
    folder = settled.root / "run/step-2"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    follower.quiet()
    publish(settled.root, "run/step-2", 2)
    assert follower.next() == ("run/step-2", 2.0)


def test_the_server_restarts(settled):
    """After the restart, only new and changed models are yielded, each once."""
    server = settled("--settle", "0")
    port = server.port
    follower = Follower(tensord.watch(server_url(server), "run/*", **FAST))
    assert follower.next() == ("run/step-1", 1.0)
    for number in (2, 3):
        server.stop()
        publish(settled.root, f"run/step-{number}", number)
        server = harness.Server(settled.root, "--settle", "0", "--listen", f"127.0.0.1:{port}")
        assert server.port == port
        assert follower.next() == (f"run/step-{number}", float(number))
        follower.quiet()
    publish(settled.root, "run/step-4", 4)
    assert follower.next() == ("run/step-4", 4.0)
    server.stop()
    follower = Follower(tensord.watch(server_url(server), retry_for=0.5))
    with pytest.raises(tensord.ConnectError, match="gave up"):
        follower.next()


def test_long_lists(settled):
    """A list of several pages is one list, and its first page waits for it."""
    server = settled("--settle", "0")
    client = tensord.connect(server_url(server), **FAST)
    pages = client._list
    client._list = lambda what, query, fits: pages(what, {**query, "page_size": "1"}, fits)
    publish(settled.root, "run/step-0", 0)
    server.wait_for(lambda: len(client.models()) == 3, "all are listed")
    follower = Follower(client.watch())
    assert [follower.next()[0] for _ in range(3)] == ["other", "run/step-0", "run/step-1"]
    publish(settled.root, "run/step-5", 5)
    assert follower.next() == ("run/step-5", 5.0)
    publish(settled.root, "run/step-1", 11)
    assert follower.next() == ("run/step-1", 11.0)
    follower.quiet()


def test_it_asks_seldom(settled):
    """Nothing is asked for in a loop, and a request ends before it counts as stalled."""
    server = settled("--settle", "0", "--log-level", "debug")
    follower = Follower(tensord.watch(server_url(server), "run/*", **{**FAST, "stall_timeout": 8.0}))
    follower.next()
    follower.quiet(6)
    asked = [line for line in server.whole_log().splitlines() if 'target="/models?' in line]
    assert 1 <= len(asked) <= 4, asked


@pytest.mark.parametrize("url, match, error, text", (
    ("tensord://h/datasets/d", None, tensord.AddressError, "one of a dataset"),
    ("ftp://h", None, tensord.AddressError, "not the URL"),
    ("tensord://h/m", "x*", ValueError, "names a model")))
def test_what_cannot_be_watched(url, match, error, text):
    with pytest.raises(error, match=text):
        tensord.watch(url, match)
