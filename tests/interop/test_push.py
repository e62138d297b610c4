"""`tensord push` against a server in memory that keeps the contract, and fails where a test wants it to."""
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time

import pytest

from fake_publish import PIECE, Blob, FakePublish, Refusal
from harness import pattern, tensord_binary
from pulls import MIB, environment, tree_of
from pushes import PART, QUICK, large, push, shown_on_terminal, small_files, start


@pytest.fixture
def fake():
    with FakePublish() as fake:
        yield fake


@pytest.fixture
def here(tmp_path):
    return small_files(tmp_path / "here")


# ------------------------------------------------------------------------------------------- what is pushed

def test_a_directory_becomes_a_commit(fake, here):
    report, err = push(here, fake.url + "/")
    want = tree_of(here)
    assert fake.files() == want and err == ""
    assert {f["path"]: (f["bytes"], f["sha256"]) for f in report["files"]} == \
        {path: (len(data), hashlib.sha256(data).hexdigest()) for path, data in want.items()}
    assert [f["path"] for f in report["files"]] == sorted(want, key=os.fsencode)
    total = sum(map(len, want.values()))
    unique = sum(map(len, set(want.values())))       # two files have the same content, which is sent once
    assert set(report) == {"model", "revision", "commit", "changed", "files", "bytes", "sent_bytes", "seconds"}
    assert all(set(f) == {"path", "bytes", "sha256", "sent_bytes"} for f in report["files"])
    assert (report["model"], report["revision"], report["changed"]) == ("org/m", "main", True)
    assert report["commit"] == fake.model("org/m")["refs"]["main"][0]
    assert (report["bytes"], report["sent_bytes"], fake.sent()) == (total, unique, unique)
    assert 0 <= report["seconds"] < 60
    assert fake.commit_bodies[0] == fake.commit_bodies[1]
    assert set(fake.commit_bodies[0]) == {"files", "keep", "revision"} and fake.commit_bodies[0]["keep"] is False
    # the same again: one request, and nothing changes
    del fake.requests[:]
    again, _ = push(here, fake.url)
    assert (again["changed"], again["commit"], again["sent_bytes"]) == (False, report["commit"], 0)
    assert [r[0] for r in fake.requests] == ["POST"]
    # one file more: it alone is sent
    (here / "new.bin").write_bytes(b"new")
    (here / "config.json").unlink()
    again, _ = push(here, fake.url)
    assert again["changed"] and again["sent_bytes"] == 3 and fake.files() == tree_of(here)


# shows: security.md push-links
def test_the_files_are_those_that_a_server_lists(fake, here, tmp_path):
    want = tree_of(here)
    (here / ".hidden").write_text("x")
    (here / ".git").mkdir()
    (here / ".git/config").write_text("x")
    (here / "x.tmp").write_text("x")
    (here / "y.incomplete").write_text("x")
    (here / ".metadata").write_text("x")             # without a part of a distributed checkpoint
    (here / "inner.txt").symlink_to("config.json")
    (here / "deep/up").symlink_to("../deep/er")
    (here / "loop").symlink_to(".")
    (tmp_path / "secret.txt").write_text("secret")
    (here / "out.txt").symlink_to(tmp_path / "secret.txt")
    (here / "up.txt").symlink_to("../secret.txt")
    os.mkfifo(here / "fifo")
    _, err = push(here, fake.url)
    want |= {"inner.txt": want["config.json"], "deep/up/a b%c+#?.txt": b"text"}
    assert fake.files() == want
    for name, why in (("out.txt", "leads outside DIR"), ("up.txt", "leads outside DIR"),
                      ("fifo", "not a regular file")):
        assert f'"{name}" is left out: it is' in err and why in err, err
    assert err.count("\n") == 3
    _, err = push(here, fake.url, "--quiet", "--exclude", "*.txt")
    assert err == "" and set(fake.files()) == {"config.json", "model.safetensors"}
    # a distributed checkpoint
    (here / "__0_0.distcp").write_text("x")
    push(here, fake.url, "--quiet", "--include", "*.distcp", "--include", ".metadata")
    assert set(fake.files()) == {".metadata", "__0_0.distcp"}


@pytest.mark.parametrize("path, why", [("a\\b.txt", "a control character or a backslash"),
                                       ("x" * 239, "a part of more than 238 bytes"),
                                       ("line\nfeed", "a control character"), ("d/" * 32 + "x", "more than 32 parts")])
def test_a_path_that_no_model_may_have_is_a_failure(fake, here, path, why):
    """Before anything is hashed or sent, since the server would refuse the commit, and no pull would take it."""
    (here / path).parent.mkdir(parents=True, exist_ok=True)
    (here / path).write_text("x")
    report, err = push(here, fake.url, code=1)
    assert "cannot be sent: its path has " + why in err and fake.requests == [], err
    push(here, fake.url, "--exclude", "*" + path[-3:])
    assert path not in fake.files()


@pytest.mark.parametrize("target, why", [("nowhere", "does not exist"), ("gone.txt", "in a circle")])
def test_a_link_that_leads_nowhere_is_a_failure(fake, here, target, why):
    """A model without one of its files is no model; a pattern leaves the link out."""
    (here / "gone.txt").symlink_to(target)
    _, err = push(here, fake.url, code=1)
    assert '"gone.txt" cannot be sent: it is' in err and why in err and fake.requests == [], err
    push(here, fake.url, "--exclude", "gone.txt")
    (here / "gone.txt").unlink()
    assert fake.files() == tree_of(here)


def test_a_snapshot_of_a_cache_is_pushed(fake, tmp_path):
    cache = tmp_path / "models--a--b"
    (cache / "blobs").mkdir(parents=True)
    (cache / "snapshots/c0ffee/sub").mkdir(parents=True)
    (cache / "blobs/x").write_text("content")
    (cache / "snapshots/c0ffee/config.json").symlink_to("../../blobs/x")
    (cache / "snapshots/c0ffee/sub/again.json").symlink_to("../../../blobs/x")
    push(cache / "snapshots/c0ffee", fake.url)
    assert fake.files() == {"config.json": b"content", "sub/again.json": b"content"}
    push(cache / "snapshots/c0ffee/sub", fake.url)
    assert fake.files() == {"again.json": b"content"}
    report, err = push(cache, fake.url, code=1)
    assert "snapshots/c0ffee" in err and report["files"] == [] and "commit" not in report


def test_options_go_into_the_commit(fake, here):
    push(here, fake.url, "--revision", "v1", "--message", "first \"words\"\nünï", "--parent", "",
         "--include", "*.json")
    assert {k: v for k, v in fake.commit_bodies[-1].items() if k != "files"} == \
        {"keep": False, "revision": "v1", "message": "first \"words\"\nünï", "parent": ""}
    assert set(fake.files(revision="v1")) == {"config.json"}
    at = fake.model("org/m")["refs"]["v1"][0]
    push(here, fake.url, "--revision=v1", "--keep", f"--parent={at}", "--include", "empty*", "--connections", 1)
    assert set(fake.files(revision="v1")) == {"config.json", "empty.txt"} and fake.commit_bodies[-1]["keep"] is True
    report, err = push(here, fake.url, "--revision", "v1", "--parent", at, code=1)
    assert "answered 412" in err and "--parent" in err and not report["changed"]
    assert fake.model("org/m")["refs"]["v1"][0] in err
    push(here, fake.url, model="datasets/org/d")
    assert fake.requests[-1][1] == "/datasets/org/d/commits" and fake.files("datasets/org/d") == tree_of(here)


# ------------------------------------------------------------------------------------------- how it is sent

def test_large_files_are_sent_in_parts_by_several_connections(fake, tmp_path):
    size = 3 * PART + 12345
    large(tmp_path / "here/large.bin", size)
    large(tmp_path / "here/second.bin", PART, 2)
    seen, meeting, alone = set(), threading.Event(), []

    def reads(handler):
        if handler.command != "PUT":
            return
        seen.add(handler)
        if len(seen) == 3:
            meeting.set()
        if not alone and not meeting.wait(20):       # until three connections send at once
            alone.append(handler)
    fake.reads = reads
    report, _ = push(tmp_path / "here", fake.url, "--connections", 3)
    assert not alone
    assert fake.files() == tree_of(tmp_path / "here") and report["sent_bytes"] == size + PART == fake.sent()
    ranges = [r[2] for r in fake.requests if r[0] == "PUT"]
    assert sorted(r for r in ranges if r) == sorted(
        f"bytes {i * PART}-{min((i + 1) * PART, size) - 1}/{size}" for i in range(4))
    assert ranges.count(None) == 1
    # one connection sends a file at once
    fake.models.clear()
    del fake.requests[:]
    fake.reads = lambda handler: None
    push(tmp_path / "here", fake.url, "--connections", 1)
    assert fake.files() == tree_of(tmp_path / "here")
    assert [r[2:] for r in fake.requests if r[0] == "PUT"] == [[None, size], [None, PART]]


def test_many_small_files_are_sent_in_parallel(fake, tmp_path):
    for i in range(300):
        large(tmp_path / f"here/{i % 7}/{i}.bin", 100 + i, i)
    lock, busy, most, connections = threading.Lock(), [0], [0], set()

    def before(handler):
        with lock:
            connections.add(handler)
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        time.sleep(0.005)
        with lock:
            busy[0] -= 1
    fake.before = before
    report, _ = push(tmp_path / "here", fake.url)
    assert fake.files() == tree_of(tmp_path / "here") and len(report["files"]) == 300
    assert 2 <= most[0] <= 8
    assert len(connections) <= 9, "connections are not used again"       # the answer of 409 closes its own


def test_only_what_is_missing_is_sent(fake, tmp_path):
    digest = large(tmp_path / "here/large.bin", 20 * PIECE + 5)
    data = (tmp_path / "here/large.bin").read_bytes()
    blob = fake.model("org/m")["blobs"][digest] = Blob(len(data))
    for first, end in ((0, 3 * PIECE), (7 * PIECE, 8 * PIECE), (20 * PIECE, len(data))):
        blob.take(first, data[first:end])
    assert blob.missing() == [[3 * PIECE, 7 * PIECE - 1], [8 * PIECE, 20 * PIECE - 1]]
    report, _ = push(tmp_path / "here", fake.url)
    assert report["sent_bytes"] == 16 * PIECE == fake.sent() and fake.files() == tree_of(tmp_path / "here")


# shows: security.md push-broken-answers
def test_what_was_cut_off_is_not_sent_again(fake, tmp_path):
    """Each connection ends within the body, several times; what had arrived is not sent again."""
    size = 40 * PIECE + 99
    large(tmp_path / "here/large.bin", size)
    cuts = [0]

    def reads(handler):
        if cuts[0] < 5 and handler.record[3] >= 3 * PIECE:
            cuts[0] += 1
            raise ConnectionError
    fake.reads = reads
    report, err = push(tmp_path / "here", fake.url, "--connections", 1, "--retry-for", "20s")
    assert fake.files() == tree_of(tmp_path / "here") and cuts[0] == 5
    assert fake.sent() <= size + 5 * PIECE, "pieces that had arrived were sent again"
    assert report["sent_bytes"] >= size and err.count("next try in") == 5


def test_a_failure_after_a_long_time_is_no_reason_to_give_up(fake, tmp_path):
    """A request takes longer than --retry-for before it fails."""
    size = 40 * PIECE
    large(tmp_path / "here/large.bin", size)
    failed = []

    def reads(handler):
        if not failed and handler.command == "PUT":
            time.sleep(0.02)
            if handler.record[3] >= 39 * PIECE:
                failed.append(handler)
                raise ConnectionError

    def commit(*args):
        if len(failed) == 1 and fake.sent() >= size:
            failed.append(args)
            time.sleep(3)
            raise Refusal(503, "busy")
        return FakePublish.commit(fake, *args)
    fake.reads, fake.commit = reads, commit
    push(tmp_path / "here", fake.url, "--retry-for", "2s")
    assert fake.files() == tree_of(tmp_path / "here") and len(failed) == 2


def test_a_server_that_is_busy_is_asked_again(fake, here):
    left = {"POST": 2, "PUT": 3, "GET": 1}
    lock = threading.Lock()

    def before(handler):
        with lock:
            left[handler.command] -= 1
            if left[handler.command] >= 0:
                raise Refusal(503, "busy", Retry_After=0)
    fake.before = before
    report, err = push(here, fake.url, "--retry-for", "30s")
    assert fake.files() == tree_of(here) and "the server answered 503, busy; next try in" in err
    assert report["changed"]


# shows: security.md push-broken-answers
def test_it_gives_up_without_progress(fake, here):
    def before(handler):
        if handler.command == "PUT":
            raise Refusal(500, "broken")
    fake.before = before
    began = time.monotonic()
    report, err = push(here, fake.url, *QUICK, code=1)
    assert "gave up, since --retry-for is 3 s" in err and "the same command sends the rest" in err
    assert time.monotonic() - began < 30 and not report["changed"] and "commit" not in report
    began = time.monotonic()
    push(here, fake.url, "--retry-for", 0, code=1)
    assert time.monotonic() - began < 10
    fake.before = lambda handler: None
    push(here, fake.url)
    assert fake.files() == tree_of(here)


# shows: security.md push-broken-answers
def test_a_server_that_takes_nothing_has_failed(fake, tmp_path):
    large(tmp_path / "here/large.bin", 64 * MIB)
    release = threading.Event()
    fake.reads = lambda handler: release.wait(30) if handler.command == "PUT" else None
    began = time.monotonic()
    _, err = push(tmp_path / "here", fake.url, "--retry-for", 0, "--stall", "2s", code=1)
    release.set()
    assert "it took too few bytes for 2 s" in err and time.monotonic() - began < 20


def test_a_slow_answer_is_waited_for(fake, here):
    """The server hashes and syncs before it answers, which may take longer than --stall."""
    def put(*args):
        time.sleep(3)
        return FakePublish.put(fake, *args)
    fake.put = put
    push(here, fake.url, "--stall", "1s", "--retry-for", 0)
    assert fake.files() == tree_of(here)


# ------------------------------------------------------------------------------------------- refusals

@pytest.mark.parametrize("status, words", [
    (401, ("a token is needed", "--token-file", "TENSORD_TOKEN")), (403, ("may not write",)),
    (404, ("a tensord with --publish",)), (405, ("--publish",)), (409, ("it is in the way",)),
    (413, ("more than the server takes",)), (507, ("makes room", "--publish-max-bytes"))])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_refusal_says_who_must_act(fake, here, status, words, method):
    def before(handler):
        if handler.command == method:
            raise Refusal(status, "it is in the way")
    fake.before = before
    large(here / "large.bin", 40 * MIB)
    began = time.monotonic()
    report, err = push(here, fake.url, "--retry-for", "30s", code=1)
    assert f"answered {status}" in err and "it is in the way" in err and all(w in err for w in words), err
    assert time.monotonic() - began < 20 and "next try" not in err      # it is not asked again
    # a client that waits for 100 Continue sends no body
    assert fake.sent() == 0 and {r[0] for r in fake.requests} == {"POST", method}


def test_tokens(here, tmp_path):
    with FakePublish(token="tdt_secret") as fake:
        (tmp_path / "token").write_text("tdt_secret\n")
        (tmp_path / "wrong").write_text("tdt_other\n")
        push(here, fake.url, "--token-file", tmp_path / "token")
        assert fake.files() == tree_of(here)
        push(here, fake.url, env={"TENSORD_TOKEN": "tdt_secret"})
        _, err = push(here, fake.url, "--token-file", tmp_path / "wrong", code=1)
        assert "answered 401" in err and "wrong, expired or revoked" in err and "tdt_" not in err
        fake.before = lambda handler: (_ for _ in ()).throw(Refusal(403, "no"))
        _, err = push(here, fake.url, "--token-file", tmp_path / "token", code=1)
        assert "the right to write" in err and "--write" in err


def test_wrong_bytes_are_a_failure(fake, here):
    """The server has computed another digest, although the file is as it was."""
    def before(handler):
        if handler.command == "PUT":
            raise Refusal(422, "the bytes have another digest")
    fake.before = before
    report, err = push(here, fake.url, code=1)
    assert "answered 422" in err and "changed while it was sent" in err and not report["changed"]


# shows: security.md push-file-changes
def test_a_file_that_changes_while_it_is_sent_is_a_failure(fake, tmp_path):
    path = tmp_path / "here/large.bin"
    large(path, 64 * PIECE)
    done = threading.Event()

    def reads(handler):
        if handler.command == "PUT" and handler.record[3] > 0 and not done.is_set():
            with open(path, "r+b") as f:
                f.seek(60 * PIECE)
                f.write(b"changed")
            done.set()
    fake.reads = reads
    report, err = push(tmp_path / "here", fake.url, code=1)
    assert '"large.bin" has changed since it was read' in err and fake.files() == {} and "commit" not in report
    push(tmp_path / "here", fake.url)
    assert fake.files() == tree_of(tmp_path / "here")
    # one that becomes shorter
    done.clear()
    path.write_bytes(pattern(64 * PIECE, 5))

    def cuts(handler):
        if handler.command == "PUT" and not done.is_set():
            os.truncate(path, PIECE)
            done.set()
    fake.reads = cuts
    _, err = push(tmp_path / "here", fake.url, code=1)
    assert '"large.bin" has changed since it was read' in err


# shows: security.md push-redirects
def test_a_redirect_is_not_followed(fake, here):
    with FakePublish() as other:
        def before(handler):
            if handler.command == "POST":
                raise Refusal(308, Location=other.url + handler.path)
        fake.before = before
        _, err = push(here, fake.url, code=1, env={"TENSORD_TOKEN": "tdt_secret"})
        assert "answered 308" in err and other.url in err and other.requests == []


def test_a_proxy_of_the_environment(fake, here):
    """It gets whole URLs, and passes them on."""
    def before(handler):
        assert handler.path.startswith("http://weights.invalid/")
        handler.path = handler.path.removeprefix("http://weights.invalid")
    fake.before = before
    push(here, "http://weights.invalid", env={"http_proxy": fake.url, "TENSORD_TOKEN": "tdt_secret"})
    assert fake.files() == tree_of(here)


@pytest.mark.parametrize("answer, words", [
    ({"missing": [{"digest": "sha256:" + "0" * 64}]}, "no file has"),
    ({"missing": [{"digest": "sha256:" + "0" * 63}]}, "the digest is wrong"),
    ({"missing": [{"digest": "MD5"}]}, "the digest is wrong"),
    ({"missing": [{"digest": 7}]}, "a digest"),
    ({"missing": [{}]}, "no digest"),
    ({"missing": ["x"]}, "is an object"),
    ({"missing": "x"}, "a list of blobs"),
    ({"missing": []}, "answered 409"),
    ({"missing": [{"digest": "FIRST", "missing": [[5, 4]]}]}, "the range is wrong"),
    ({"missing": [{"digest": "FIRST", "missing": [[0, 8]]}]}, "bytes that the file does not have"),
    ({"missing": [{"digest": "FIRST", "missing": [[0, 1 << 63]]}]}, "the range is wrong"),
    ({"missing": [{"digest": "FIRST", "missing": [[0, 3], [0, 3]]}]}, "not in their order"),
    ({"missing": [{"digest": "FIRST", "missing": [[-1, 3]]}]}, "wrong"),
    ({"missing": [{"digest": "FIRST", "missing": [[0]]}]}, "number"),
    ({"missing": [{"digest": "FIRST"}, {"digest": "FIRST"}]}, "twice"),
])
# shows: security.md push-wrong-answers
def test_wrong_answers_to_a_commit(fake, here, answer, words):
    first = hashlib.sha256((here / "config.json").read_bytes()).hexdigest()
    answer = json.loads(json.dumps(answer).replace("FIRST", "sha256:" + first))

    def before(handler):
        if handler.command == "POST":
            raise Refusal(409, "blobs are not here", answer)
    fake.before = before
    report, err = push(here, fake.url, *QUICK, code=1)
    assert words in err and fake.sent() == 0, err


# shows: security.md push-wrong-answers
def test_an_answer_that_is_cut_is_asked_for_again(fake, here):
    """A refusal whose body ends before its Content-Length is no answer."""
    cuts = []

    def before(handler):
        if handler.command != "POST" or len(cuts) == 2:
            return
        cuts.append(handler.path)
        body = json.dumps({"error": {"code": "CONFLICT", "message": "another conflict"}}).encode()
        handler.wfile.write(b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n" % (len(body) + 1) + body)
        raise ConnectionError
    fake.before = before
    push(here, fake.url, "--retry-for", "20s")
    assert len(cuts) == 2 and fake.files() == tree_of(here)


# shows: security.md push-wrong-answers
def test_a_server_that_never_has_enough(fake, here):
    """It says each time that the same blobs are missing."""
    first = hashlib.sha256((here / "config.json").read_bytes()).hexdigest()

    def before(handler):
        if handler.command == "POST":
            raise Refusal(409, "blobs are not here", {"missing": [{"digest": "sha256:" + first}]})
    fake.before = before
    _, err = push(here, fake.url, code=1)
    assert "although they were sent several times" in err and len(fake.requests) < 12


@pytest.mark.parametrize("body", [b"", b"[]", b'{"commit": "../x"}', b'{"commit": 7}', b'{"changed": true}',
                                  b'{"commit": "' + b"a" * 100 + b'"}', b"{" * 10000, b"\xff"])
# shows: security.md push-wrong-answers
def test_wrong_answers_of_200(fake, here, body):
    def commit(*args):
        raise Raw(body)

    class Raw(Exception):
        pass
    fake.commit = commit
    handler = fake.server.RequestHandlerClass
    do = handler.do_PUT

    def do_raw(self):
        try:
            do(self)
        except Raw:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
    handler.do_POST = do_raw
    _, err = push(here, fake.url, code=1)
    assert "the answer is wrong" in err, err


# ------------------------------------------------------------------------------------------- kills

# shows: security.md push-kills
def test_it_resumes_after_a_kill_of_itself(fake, tmp_path):
    size = 5 * PART
    large(tmp_path / "here/large.bin", size)
    large(tmp_path / "here/small.bin", 100, 2)
    half = threading.Event()

    def reads(handler):
        if fake.sent() > size // 2:
            half.set()
            time.sleep(0.05)
    fake.reads = reads
    p = start(tmp_path / "here", fake.url, "--connections", 3)
    assert half.wait(60)
    p.send_signal(signal.SIGKILL)
    p.communicate()
    fake.reads = lambda handler: None
    end = time.monotonic() + 30
    while fake.server.open and time.monotonic() < end:      # until the server has noticed
        time.sleep(0.05)
    assert fake.files() == {}
    before = fake.sent()
    report, _ = push(tmp_path / "here", fake.url)
    assert fake.files() == tree_of(tmp_path / "here")
    assert report["sent_bytes"] <= size + 100 - before + 4 * PIECE and before > size // 2


# shows: security.md push-kills
def test_it_goes_on_after_the_server_was_gone(fake, tmp_path):
    """The server ends within bodies, and is back after a while with what it had, on the same port."""
    size = 4 * PART
    large(tmp_path / "here/large.bin", size)
    half = threading.Event()

    def reads(handler):
        if fake.sent() > size // 3:
            half.set()
            time.sleep(0.02)
    fake.reads = reads
    p = start(tmp_path / "here", fake.url, "--connections", 2, "--retry-for", "30s", "--json")
    assert half.wait(60)
    fake.__exit__()
    fake.reads = lambda handler: None
    time.sleep(1)
    fake.__enter__()
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0, err
    assert fake.files() == tree_of(tmp_path / "here") and "next try in" in err
    assert fake.sent() <= size + 8 * PIECE and json.loads(out)["changed"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(fake, tmp_path, number):
    large(tmp_path / "here/large.bin", 2 * PART)
    begun = threading.Event()

    def reads(handler):
        if handler.record[3] > 0:
            begun.set()
            time.sleep(0.1)
    fake.reads = reads
    p = start(tmp_path / "here", fake.url, "--json")
    assert begun.wait(30)
    p.send_signal(number)
    out, err = p.communicate(timeout=20)
    assert p.returncode == 1 and "stopped by a signal; the server keeps what has arrived" in err, err
    assert "commit" not in json.loads(out)


def test_random_faults(fake, tmp_path):
    """Connections end, and the server is busy, at random places: the bytes are right at the end."""
    rng = random.Random(7)
    for i in range(30):
        large(tmp_path / f"here/{i}.bin", rng.choice([0, 1, PIECE - 1, PIECE, 5 * PIECE + 3]), i)
    large(tmp_path / "here/large.bin", 2 * PART + 77, 99)
    lock = threading.Lock()

    def maybe(handler, chance):
        with lock:
            return rng.random() < chance

    def before(handler):
        if maybe(handler, 0.1):
            raise Refusal(rng.choice([429, 500, 503]))

    def reads(handler):
        if maybe(handler, 0.004):
            raise ConnectionError
    fake.before, fake.reads = before, reads
    push(tmp_path / "here", fake.url, "--retry-for", "60s", timeout=120)
    assert fake.files() == tree_of(tmp_path / "here")


# ------------------------------------------------------------------------------------------- the command

@pytest.mark.parametrize("args, words", [
    ((), "give a directory, the URL of a server and a model"),
    (("DIR",), "give a directory"),
    (("DIR", "http://x"), "give a directory"),
    (("DIR", "http://x", "org/m", "more"), "only one directory"),
    (("http://x", "DIR", "org/m"), "the directory comes first"),
    (("DIR", "ftp://x", "org/m"), "must begin with http"),
    (("DIR", "http://x,", "org/m"), "no space may be after the comma"),
    (("DIR", "http://x,", "http://y", "org/m"), "no space may be after the comma"),
    (("DIR", "http://x,,http://y", "org/m"), "a comma too many"),
    (("DIR", "http://x,ftp://y", "org/m"), "must begin with http"),
    (("DIR", "http://x,http://y,http://x/", "org/m"), "the same URL is given twice"),
    (("DIR", ",".join(f"http://x{i}" for i in range(17)), "org/m"), "at most 16 URLs"),
    (("DIR", "http://u:p@x", "org/m"), "password"),
    (("DIR", "http://x", "a/b/c"), "is called org/name"),
    (("DIR", "http://x", "../c"), "is called org/name"),
    (("DIR", "http://x", "datasets/a/b/c"), "is called org/name"),
    (("DIR", "http://x", "m", "--parant", "x"), "did you mean --parent"),
    (("DIR", "http://x", "m", "--revision"), "a value is missing after --revision"),
    (("DIR", "http://x", "m", "--revision", ""), "a value is missing after --revision"),
    (("DIR", "http://x", "m", "--connections", "0"), "1 to 64"),
    (("DIR", "http://x", "m", "--retry-for", "soon"), "--retry-for takes"),
    (("DIR", "http://x", "m", "--cert", "x"), "--cert and --key"),
    (("DIR", "http://x", "m", *["--include", "x"] * 65), "more than 64 times"),
])
def test_wrong_usage(tmp_path, args, words):
    p = subprocess.run([tensord_binary(), "push", *(str(tmp_path) if a == "DIR" else a for a in args)],
                       capture_output=True, text=True, env=environment(), timeout=20, check=False)
    assert p.returncode == 2 and words in p.stderr and p.stdout == "" and p.stderr.count("\n") == 1, p


def test_directories_that_cannot_be_pushed(fake, tmp_path):
    for name, words in (("absent", "does not exist"), ("file", "not a directory"), ("empty", "has no files")):
        (tmp_path / "file").touch()
        (tmp_path / "empty").mkdir(exist_ok=True)
        _, err = push(tmp_path / name, fake.url, code=1)
        assert words in err, err
    large(tmp_path / "here/a.bin", 5)
    _, err = push(tmp_path / "here", fake.url, "--include", "*.txt", code=1)
    assert "--include and --exclude" in err
    (tmp_path / "here/a.bin").chmod(0)
    (tmp_path / "here/closed").mkdir(mode=0)
    if os.geteuid() != 0:
        _, err = push(tmp_path / "here", fake.url, code=1)
        assert '"closed" cannot be sent' in err
        (tmp_path / "here/closed").rmdir()
        _, err = push(tmp_path / "here", fake.url, code=1)
        assert "a.bin" in err and "ermission" in err
    assert fake.requests == []
    (tmp_path / "here/a.bin").chmod(0o600)
    (tmp_path / os.fsdecode(b"here/\xff.bin")).touch()
    _, err = push(tmp_path / "here", fake.url, code=1)
    assert "not UTF-8" in err


def test_the_line_of_the_result(fake, here):
    for word in ("now", "still"):
        out, err = start(here, fake.url).communicate(timeout=30)
        commit = fake.model("org/m")["refs"]["main"][0]
        assert out.startswith(f"org/m: main is {word} commit {commit[:12]}: 5 files, 3.00 MiB; sent ") and err == ""
    out, err = start(here, fake.url, "--quiet").communicate(timeout=30)
    assert out == err == ""


def test_progress_on_a_terminal(fake, tmp_path):
    large(tmp_path / "here/large.bin", 2 * PART)
    fake.reads = lambda handler: time.sleep(0.004)
    text = shown_on_terminal(tmp_path / "here", fake.url, "--connections", 2)
    assert "\r" in text and "%, " in text and " of 64.00 MiB, " in text and "MiB/s" in text, text


def test_it_does_not_need_its_directory_writable(fake, here):
    for path in here.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    here.chmod(0o555)
    before = sorted((str(p), p.stat().st_mtime_ns) for p in here.rglob("*"))
    push(here, fake.url)
    assert before == sorted((str(p), p.stat().st_mtime_ns) for p in here.rglob("*"))
    for path in [here, *here.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(here)
