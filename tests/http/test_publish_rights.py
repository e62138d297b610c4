"""Who may publish: the options of the server, tokens with the right to write, and signed URLs for PUT."""
import os
import subprocess

import pytest

import harness
from signing import TokensFile


def serve(root, *args):
    """Start a server that must not start. Return its code and what it said."""
    done = subprocess.run([harness.tensord_binary(), "serve", str(root), *map(str, args)], capture_output=True,
                          text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize("ports", [["--listen", "0.0.0.0:0"], ["--listen", "[::]:0"],
                                   ["--listen", "127.0.0.1:0", "--s3-listen", "0.0.0.0:0"]])
# shows: security.md publish-start
def test_nobody_publishes_without_a_token_from_elsewhere(tmp_path, ports):
    code, said = serve(tmp_path, *ports, "--publish", "any")
    assert code == 1 and "--publish any" in said and "--tokens" in said and "--write" in said
    assert not os.listdir(tmp_path)


def test_others_start(tmp_path, start):
    tokens = TokensFile(tmp_path / "tokens.json")
    root = tmp_path / "root"
    root.mkdir()
    for host, *args in (("127.0.0.1", "--publish", "any"), ("0.0.0.0", "--publish", "local"),
                        ("0.0.0.0", "--publish", "off"), ("0.0.0.0", "--publish", "any", "--tokens", tokens)):
        start(root, *args, host=host)


@pytest.mark.parametrize("args, says", [
    (["--publish", "local", "--upstream", "http://127.0.0.1:1"], "--publish local is not possible together with"),
    (["--publish", "any", "--upstream", "http://127.0.0.1:1"], "--publish any is not possible together with"),
    (["--publish", "on"], "--publish takes off, local or any"),
    (["--publish-max-bytes", "-1"], "--publish-max-bytes takes bytes, or a size"),
    (["--upload-expires", "0"], "--upload-expires takes seconds, or a time"),
    (["--keep-commits", "x"], "--keep-commits takes seconds, or a time"),
])
def test_wrong_options(tmp_path, args, says):
    code, said = serve(tmp_path, "--listen", "127.0.0.1:0", *args)
    assert code == 2 and says in said
