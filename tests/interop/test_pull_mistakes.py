"""`tensord pull`: what people get wrong, and what it says then."""
import subprocess
import time

import pytest

from fake_hub import FakeHub
from harness import tensord_binary
from pulls import big, pull, staging, start, tree_of


HINTS = {"http://swapped": "(URL and model are swapped?)", "m:main": "given by --revision",
         "m@main": "given by --revision", "m:after": "no space", "http://space": "(no space after the comma?)",
         "directory": "(its directory is given by -o DIR)",
         "datasets/qa": "get it by HF_ENDPOINT=URL hf download --repo-type dataset qa",
         "datasets/org/qa": "get it by HF_ENDPOINT=URL hf download --repo-type dataset org/qa"}


@pytest.mark.parametrize("args", [
    [], ["http://h"], ["ftp://h", "m"], ["http://u:secret@h", "m"], ["http://h?x", "m"], ["http://", "m"],
    ["http://h", "m", "--ca", "x"],
    ["http://h,", "m"], ["http://h", "../m"], ["http://h", "a/b/c"], ["http://h", ".m"], ["http://h", "m", "n"],
    ["http://h", "m", "--engine", "vllm"], ["http://h", "m", "--engine", "vllm", "--tp", "2"],
    ["http://h", "m", "--engine", "vllm", "--tp", "2", "--rank", "2"],
    ["http://h", "m", "--engine", "vllm", "--tp", "2", "--rank", "1", "--revision", "main"],
    ["http://h", "m", "--engine", "a/b", "--tp", "2", "--rank", "1"], ["http://h", "m", "--connections", "0"],
    ["http://h", "m", "--connections", "65"], ["http://h", "m", "--retry-for", "60w"], ["http://h", "m", "--cert", "f"],
    ["http://h", "m", "-o"], ["http://h", "m", "--stall", "0"], ["http://h", "m", "--jsn"],
    *([("m" if word.startswith("http:") else "http://h"), word] for word in ("http://swapped", "m:main", "m@main")),
    ["http://h,", "http://space", "m:after"], ["http://h,", "http://space"], ["http://h", "m", "directory"],
    ["http://h", "datasets/qa"], ["http://h", "datasets/org/qa"],
])
def test_usage(args):
    p = subprocess.run([tensord_binary(), "pull", *args], capture_output=True, text=True, timeout=30)
    assert p.returncode == 2 and p.stdout == "" and p.stderr.count("\n") == 1, (p.returncode, p.stderr)
    assert "secret" not in p.stderr
    if args and args[-1] in HINTS:
        assert HINTS[args[-1]] in p.stderr
    assert ("comma too many" in p.stderr) == (args == ["http://h,", "m"])
    assert ("--cacert?" in p.stderr) == ("--ca" in args)


@pytest.mark.parametrize("args, hint", [
    (["m", "http://swapped"], "(URL and model are swapped?)"), (["http://h", "m:main"], "(follow takes no revision"),
    (["http://h,", "http://space"], "(no space after the comma?)"), (["http://h,", "http://space", "m"], "no space"),
    (["http://h", "m", "directory"], "only one model is followed at a time (its directory is given by -o DIR)"),
    (["http://h", "datasets/qa"], "follow copies models"), (["http://h"], "give the URL of a server and a model"),
    (["http://h", "m", "--keep", "0"], "--keep takes a number"),
])
def test_usage_of_follow(args, hint):
    p = subprocess.run([tensord_binary(), "follow", *args], capture_output=True, text=True, timeout=30)
    assert p.returncode == 2 and p.stdout == "" and p.stderr.count("\n") == 1 and hint in p.stderr, p.stderr


@pytest.mark.parametrize("command", [["pull", "http://h", "m"], ["sign"]])
def test_a_message_shows_200_bytes_of_an_argument(command):
    p = subprocess.run([tensord_binary(), *command, "-" + 5000 * "x"], capture_output=True, text=True, timeout=30)
    assert p.returncode == 2 and "-" + 199 * "x" in p.stderr and 200 * "x" not in p.stderr, p.stderr


def test_two_contents_never_come_together(model, tmp_path):
    """The files of an interrupted pull are of one model and revision; ranks of one engine and size come together."""
    url = f"http://127.0.0.1:{model().port}"
    with FakeHub({"other.bin": big(seed=3)}) as hub:
        hub.file = lambda h, name: h.answer(503)
        report, err = pull(hub.url, "-o", tmp_path / "out", "--retry-for", "1s", model="Org/Big", code=1)
        kept = staging(tmp_path / "out")
        assert report["directory"] == str(kept) and kept.is_dir()
        assert f'is 1 s; what was fetched is kept in "{kept}", and the same command resumes' in err
        hub.file = lambda h, name: FakeHub.file(hub, h, name)
        for options in ([], ["--engine", "fsdp", "--tp", 4, "--rank", 0]):
            _, err = pull(url, "-o", tmp_path / "out", *options, code=1)
            assert f'"{kept}" holds an unfinished pull of Org/Big at main: remove it, or give another -o' in err
        pull(hub.url, "-o", tmp_path / "out", model="Org/Big")
        assert tree_of(tmp_path / "out") == hub.files


@pytest.mark.parametrize("down_first", [True, False])
def test_only_all_servers_can_say_that_there_is_no_model(hub, tmp_path, down_first):
    """One has no such model; the other one may have it, and comes back while it is asked again."""
    with FakeHub({}) as down:
        url = down.url
    hub.api = lambda h, path: h.answer(404)
    servers = ",".join([url, hub.url] if down_first else [hub.url, url])
    begin = time.monotonic()
    report, err = pull(servers, "-o", tmp_path / "out", "--retry-for", "2s", code=1)
    assert f'{hub.url} has no model "org/m" at "main", and another server fails: {url}: ' in report["error"]
    assert time.monotonic() - begin >= 0.5 and "next try" in err
    p = start(servers, "-o", tmp_path / "out", "--retry-for", "30s")
    while "next try" not in p.stderr.readline():
        pass
    with FakeHub(hub.files, port=int(url.rsplit(":", 1)[1])):
        p.communicate(timeout=60)
    assert p.returncode == 0 and tree_of(tmp_path / "out") == hub.files
