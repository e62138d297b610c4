"""`tensord push` to a tensord: what readers then get, on which terms, and through kills of either side. Digests and
bytes are compared by hashlib and with the files themselves."""
import hashlib
import json
import os
import signal
import socket
import threading
import time
import urllib.parse

import pytest

import pki
from fake_publish import PIECE
from harness import Server, pattern, tensor, write_by_hand
from pulls import MIB, PacedRelay, pull, tree_of
from pushes import large, push, start
from signing import TokensFile


class UploadRelay(PacedRelay):
    """Passes connections on, and the bytes of requests at this pace. `passed` counts them."""

    def finish_request(self, request, client_address):
        try:
            server = socket.create_connection(("127.0.0.1", self.to))
        except ConnectionError:
            return
        with server:
            answering = threading.Thread(target=self.copy, args=(server, request, lambda: None), daemon=True)
            answering.start()
            self.copy(request, server, lambda: self.pace)
            answering.join()

    def copy(self, source, sink, pace):
        super().copy(source, sink, pace)
        for side in (source, sink):
            try:
                side.shutdown(socket.SHUT_RDWR)     # a server that was killed ends the client's side, too
            except OSError:
                pass


@pytest.fixture
def here(tmp_path):
    """A model with files of several sizes."""
    root = tmp_path / "here"
    write_by_hand(root / "model.safetensors", [tensor(f"model.layers.{i}.w", "F32", [64, 512]) for i in range(12)])
    (root / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/er/a b%c.txt").write_text("text")
    (root / "empty.txt").touch()
    (root / "twin.txt").write_text("text")
    return root


def url_of(server):
    return f"http{'s' if server.tls else ''}://127.0.0.1:{server.port}"


def served(server, model="org/m", revision="main", headers=()):
    """Return path -> bytes of all files that the server shows of a model on the Hub's paths."""
    listed = server.get(f"/api/models/{model}/revision/{revision}", headers=headers)
    if listed.status == 404:
        return {}
    assert listed.status == 200, listed
    files = {}
    for path in (f["rfilename"] for f in listed.json()["siblings"]):
        answer = server.get(f"/{model}/resolve/{revision}/{urllib.parse.quote(path)}", headers=headers)
        assert answer.status == 200, answer
        files[path] = answer.body
    return files


def publisher(root, *args, **kw):
    root.mkdir(exist_ok=True)
    return Server(root, "--publish", "local", *args, **kw)


def test_readers_get_what_was_pushed(here, tmp_path):
    with publisher(tmp_path / "root") as server:
        report, err = push(here, url_of(server), "--message", "first")
        want = tree_of(here)
        assert served(server) == want and err == ""
        assert {f["path"]: f["sha256"] for f in report["files"]} == \
            {path: hashlib.sha256(data).hexdigest() for path, data in want.items()}
        assert report["changed"] and report["sent_bytes"] == sum(map(len, set(want.values())))
        about = server.get("/models/org/m/commits").json()
        assert about["refs"] == {"main": report["commit"]}
        assert [(c["commit"], c["message"]) for c in about["commits"]] == [(report["commit"], "first")]
        assert server.get("/models/org/m/tensors").json()["tensors"]
        back, _ = pull(url_of(server), "-o", tmp_path / "back")
        assert tree_of(tmp_path / "back") == want and back["verified"] and back["commit"] == report["commit"]
        again, _ = push(here, url_of(server))
        assert (again["changed"], again["sent_bytes"], again["commit"]) == (False, 0, report["commit"])
        # what is not there any more goes, and what is new is sent alone
        (here / "deep/er/a b%c.txt").unlink()
        (here / "new.txt").write_text("news")
        third, _ = push(here, url_of(server), "--parent", report["commit"])
        assert served(server) == tree_of(here) and third["sent_bytes"] == 4
        _, err = push(here, url_of(server), "--parent", report["commit"], code=1)
        assert "answered 412" in err and third["commit"] in err
        assert served(server, revision=report["commit"]) == want


def test_revisions_and_keep(here, tmp_path):
    with publisher(tmp_path / "root") as server:
        push(here, url_of(server), "--parent", "")
        _, err = push(here, url_of(server), "--parent", "", code=1)
        assert "answered 412" in err
        want = tree_of(here)
        other = tmp_path / "other"
        large(other / "notes/a.txt", 1000)
        push(other, url_of(server), "--keep")
        assert served(server) == {**want, **tree_of(other)}
        report, _ = push(other, url_of(server), "--revision", "v2", "--exclude", "x*")
        assert served(server, revision="v2") == tree_of(other) and report["sent_bytes"] == 0
        assert served(server) == {**want, **tree_of(other)}
        push(other, url_of(server))
        assert served(server) == tree_of(other)
        (other / "train.jsonl").write_text('{"a": 1}\n')
        push(other, url_of(server), model="datasets/org/d")
        got = server.get("/datasets/org/d/resolve/main/train.jsonl")
        assert got.status == 200 and got.body == b'{"a": 1}\n'


def test_a_directory_of_the_operator_is_not_changed(here, tmp_path):
    write_by_hand(tmp_path / "root/org/m/model.safetensors", [tensor("w", "F32", [8])])
    before = tree_of(tmp_path / "root/org")
    with publisher(tmp_path / "root") as server:
        _, err = push(here, url_of(server), code=1)
        assert "answered 409" in err and tree_of(tmp_path / "root/org") == before


def test_many_small_files(tmp_path):
    for i in range(400):
        large(tmp_path / f"here/{i % 9}/{i}.bin", 10 + i, i)
    with publisher(tmp_path / "root") as server:
        report, _ = push(tmp_path / "here", url_of(server))
        assert len(report["files"]) == 400 and served(server) == tree_of(tmp_path / "here")


def test_large_files_in_parts(tmp_path):
    large(tmp_path / "here/large.bin", 100 * MIB + 4321)
    large(tmp_path / "here/second.bin", 33 * MIB, 2)
    with publisher(tmp_path / "root") as server:
        for connections in (1, 5):
            report, _ = push(tmp_path / "here", url_of(server), "--connections", connections,
                             model=f"org/m{connections}")
            assert report["sent_bytes"] == report["bytes"] == 133 * MIB + 4321
            assert served(server, f"org/m{connections}") == tree_of(tmp_path / "here")


# ------------------------------------------------------------------------------------------- who may

def test_tokens(here, tmp_path):
    tokens = TokensFile(tmp_path / "tokens.json").add("reader").add("writer", ["org/*"], rights=("read", "write"))
    for name in ("reader", "writer", "nobody"):
        (tmp_path / name).write_text(TokensFile.text(name) + "\n")
    with publisher(tmp_path / "root", "--tokens", tokens) as server:
        for name, words in (("reader", ("answered 403", "the right to write")), ("nobody", ("answered 401",))):
            _, err = push(here, url_of(server), "--token-file", tmp_path / name, code=1)
            assert all(w in err for w in words), err
        _, err = push(here, url_of(server), code=1)
        assert "answered 401" in err and "--token-file" in err
        _, err = push(here, url_of(server), "--token-file", tmp_path / "writer", model="other/m", code=1)
        assert "answered 403" in err
        report, _ = push(here, url_of(server), env={"TENSORD_TOKEN": TokensFile.text("writer")})
        assert served(server, headers=list(tokens.bearer("reader").items())) == tree_of(here)
        about = server.get("/models/org/m/commits", headers=list(tokens.bearer("reader").items())).json()
        assert [c["token"] for c in about["commits"]] == ["writer"] and report["changed"]


def test_tls(here, tmp_path):
    ca = pki.Authority(tmp_path)
    client = ca.sign("client", usage="clientAuth")
    with publisher(tmp_path / "root", *pki.options_of(ca.sign("server")), "--tls-client-ca", ca.cert,
                   tls=ca.context(client)) as server:
        trusted = ("--cacert", ca.cert, "--cert", client.cert, "--key", client.key)
        large(here / "large.bin", 40 * MIB)
        push(here, url_of(server), *trusted)
        assert served(server) == tree_of(here)
        _, err = push(here, url_of(server), "--cert", client.cert, "--key", client.key, "--retry-for", "20s", code=1)
        assert "certificate" in err and "next try" not in err


def test_a_server_that_does_not_publish(here, tmp_path):
    (tmp_path / "root").mkdir()
    with Server(tmp_path / "root") as server:
        _, err = push(here, url_of(server), code=1)
        assert "--publish" in err and "next try" not in err


def test_no_room(here, tmp_path):
    large(here / "large.bin", 20 * MIB)
    with publisher(tmp_path / "root", "--publish-max-bytes", 10 * MIB) as server:
        report, err = push(here, url_of(server), code=1)
        assert "answered 507" in err and "--publish-max-bytes" in err and served(server) == {}
        assert report["sent_bytes"] < 10 * MIB
        (here / "large.bin").unlink()
        push(here, url_of(server))
        assert served(server) == tree_of(here)


# ------------------------------------------------------------------------------------------- kills

def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# shows: security.md push-kills
def test_it_resumes_after_a_kill_of_itself(tmp_path):
    size = 96 * MIB + 77
    large(tmp_path / "here/large.bin", size)
    large(tmp_path / "here/small.bin", 100, 2)
    with publisher(tmp_path / "root") as server, UploadRelay(server.port, 10 * MIB) as relay:
        p = start(tmp_path / "here", f"http://127.0.0.1:{relay.port}", "--connections", 3)
        wait_until(lambda: relay.passed > size // 2)
        p.send_signal(signal.SIGKILL)
        p.communicate()
        assert served(server) == {}
        time.sleep(0.5)
        report, _ = push(tmp_path / "here", url_of(server))
        assert served(server) == tree_of(tmp_path / "here")
        assert 0 < report["sent_bytes"] <= size - size // 2 + 12 * PIECE


# shows: security.md push-kills
@pytest.mark.parametrize("how", ["while it runs", "then again"])
def test_it_resumes_after_a_kill_of_the_server(tmp_path, how):
    size = 96 * MIB + 77
    large(tmp_path / "here/large.bin", size)
    server = publisher(tmp_path / "root")
    with UploadRelay(server.port, 10 * MIB) as relay:
        url = f"http://127.0.0.1:{relay.port}"
        p = start(tmp_path / "here", url, "--connections", 3, "--json",
                  "--retry-for", "60s" if how == "while it runs" else "0")
        wait_until(lambda: relay.passed > size // 2)
        server.kill()
        if how == "then again":
            out, _ = p.communicate(timeout=60)
            assert p.returncode == 1 and "error" in json.loads(out)
        before = relay.passed
        with publisher(tmp_path / "root") as server:
            relay.pace, relay.to = 100 * MIB, server.port
            if how == "then again":
                report, _ = push(tmp_path / "here", url)
            else:
                out, err = p.communicate(timeout=100)
                assert p.returncode == 0, err
                report = json.loads(out)
            assert report["changed"] and served(server) == tree_of(tmp_path / "here")
            assert relay.passed - before <= size - size // 2 + 20 * PIECE
            assert os.listdir(tmp_path / "here") == ["large.bin"]


# shows: security.md push-kills
def test_readers_never_see_half_of_it(tmp_path):
    """While one set of files takes the place of another one, again and again."""
    wanted = []
    for number in (1, 2):
        for i in range(20):
            large(tmp_path / f"set{number}/{number if i % 2 else 0}-{i}.bin", 3000 + i, 100 * number + i)
        wanted.append({p: hashlib.sha256(d).hexdigest() for p, d in tree_of(tmp_path / f"set{number}").items()})
    with publisher(tmp_path / "root") as server:
        push(tmp_path / "set1", url_of(server))
        stop, seen = threading.Event(), set()

        def watch():
            while not stop.is_set():
                tree = server.get("/api/models/org/m/tree/main?recursive=true").json()
                seen.add(json.dumps({f["path"]: f["lfs"]["oid"] for f in tree if f["type"] == "file"}, sort_keys=True))
        watcher = threading.Thread(target=watch)
        watcher.start()
        for i in range(6):
            push(tmp_path / f"set{2 - i % 2}", url_of(server))
        stop.set()
        watcher.join()
        assert seen <= {json.dumps(w, sort_keys=True) for w in wanted} and len(seen) == 2
        assert pattern(3001, 101) == server.get("/org/m/resolve/main/1-1.bin").body
