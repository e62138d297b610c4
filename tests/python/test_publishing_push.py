"""tensord.push and `python -m tensord push`: which files are sent, and what a failure leaves."""
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from urllib.parse import quote

import pytest
from conftest import REPO, url_of

sys.path.insert(0, str(REPO / "tests" / "interop"))

from fake_publish import PIECE, FakePublish, Refusal  # noqa: E402
from harness import pattern  # noqa: E402
from publishing import Repo  # noqa: E402
from pulls import MIB, tree_of  # noqa: E402
from pushes import small_files  # noqa: E402

import tensord  # noqa: E402
from tensord.__main__ import main  # noqa: E402


@pytest.fixture
def fake():
    with FakePublish() as fake:
        fake.to = f"tensord://127.0.0.1:{fake.port}/org/m"
        yield fake


@pytest.fixture
def here(tmp_path):
    return small_files(tmp_path / "here")


def push(directory, url, **how):
    return tensord.push(directory, url, **{"retry_for": 3, "progress": False, **how})


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def test_a_directory_becomes_a_commit(fake, here):
    want = tree_of(here)
    made = push(here, fake.to)
    assert fake.files() == want
    assert made == made.commit == fake.model("org/m")["refs"]["main"][0]
    assert (made.changed, made.parent, made.revision) == (True, "", "main")
    assert {file.path: (file.bytes, file.sha256) for file in made.files} == \
        {path: (len(data), sha256(data)) for path, data in want.items()}
    assert [file.path for file in made.files] == sorted(want, key=os.fsencode)
    unique = sum(map(len, set(want.values())))  # of the two files with the same content one is sent
    assert (made.bytes, made.sent_bytes, fake.sent()) == (sum(map(len, want.values())), unique, unique)
    assert fake.commit_bodies[0] == fake.commit_bodies[1]
    del fake.requests[:]
    again = push(here, fake.to)
    assert (again.changed, again.commit, again.sent_bytes) == (False, made.commit, 0)
    assert [request[0] for request in fake.requests] == ["POST"]
    (here / "new.bin").write_bytes(b"new")
    (here / "config.json").unlink()
    again = push(here, fake.to, parent=made, message="second")
    assert again.changed and again.sent_bytes == 3 and fake.files() == tree_of(here)
    with pytest.raises(tensord.ConflictError) as caught:
        push(here, fake.to, parent=made)
    assert caught.value.commit == again


def test_the_real_server_shows_what_was_pushed(serve, here):
    server = serve("--publish", "local")
    made = push(here, url_of(server, "org/m@v1"), message="first", keep=True)
    listed = Repo(server.port, "org/m").ask("GET", "/commits").json()
    assert listed["refs"] == {"v1": made.commit} and listed["commits"][0]["message"] == "first"
    second = push(here, url_of(server, "org/m"), exclude="*.txt")
    for path, data in tree_of(here).items():
        answer = Repo(server.port, "org/m").ask("GET", "/files/" + quote(path))
        if not path.endswith(".txt"):
            assert answer.body == data
    assert second.sent_bytes == 0 and len(second.files) == 2  # the other revision has these blobs
    inside = push(here, url_of(server, "datasets/org/d/runs/1"), keep=True, include=["*.json", "*.txt"])
    assert sorted(file.path for file in inside.files) == ["config.json", "deep/er/a b%c+#?.txt", "empty.txt",
                                                          "ünï.txt"]
    with pytest.raises(ValueError, match="keep=True"):
        push(here, url_of(server, "org/m/folder"))


def test_the_files_are_those_that_a_server_lists(fake, here, tmp_path, caplog):
    want = tree_of(here)
    (here / ".hidden").write_text("x")
    (here / ".git").mkdir()
    (here / ".git/config").write_text("x")
    (here / "x.tmp").write_text("x")
    (here / "y.incomplete").write_text("x")
    (here / ".metadata").write_text("x")  # without a part of a distributed checkpoint
    (here / "inner.txt").symlink_to("config.json")
    (here / "absolute.txt").symlink_to(here / "config.json")
    (here / "deep/up").symlink_to("../deep/er")
    (here / "loop").symlink_to(".")
    (tmp_path / "secret.txt").write_text("secret")
    (here / "out.txt").symlink_to(tmp_path / "secret.txt")
    (here / "up.txt").symlink_to("../secret.txt")
    (here / "none.txt").symlink_to("../nothing.txt")
    os.mkfifo(here / "fifo")
    push(here, fake.to)
    want |= {"inner.txt": want["config.json"], "absolute.txt": want["config.json"], "deep/up/a b%c+#?.txt": b"text"}
    assert fake.files() == want
    notes = [record.getMessage() for record in caplog.records]
    assert len(notes) == 4
    for name, why in (("out.txt", "leads outside DIR"), ("up.txt", "leads outside DIR"),
                      ("none.txt", "leads outside DIR"), ("fifo", "not a regular file")):
        assert any(f'"{name}" is left out' in note and why in note for note in notes), notes
    caplog.clear()
    push(here, fake.to, exclude=["*.txt", "fifo"])
    assert not caplog.records and set(fake.files()) == {"config.json", "model.safetensors"}
    (here / "__0_0.distcp").write_text("x")
    push(here, fake.to, include=["*.distcp", ".metadata"])
    assert set(fake.files()) == {".metadata", "__0_0.distcp"}


@pytest.mark.parametrize("target, why", [("nowhere", "does not exist"), ("gone.txt", "in a circle")])
def test_a_link_that_leads_nowhere_is_a_failure(fake, here, target, why):
    (here / "gone.txt").symlink_to(target)
    with pytest.raises(tensord.TensordError, match=f'"gone.txt" cannot be sent: it is a symlink.*{why}'):
        push(here, fake.to)
    assert fake.requests == []
    push(here, fake.to, exclude="gone.*")
    assert "gone.txt" not in fake.files()


def test_directories_that_cannot_be_pushed(fake, here, tmp_path):
    with pytest.raises(FileNotFoundError):
        push(tmp_path / "none", fake.to)
    with pytest.raises(NotADirectoryError):
        push(here / "config.json", fake.to)
    (tmp_path / "empty").mkdir()
    with pytest.raises(tensord.TensordError, match="has no files$"):
        push(tmp_path / "empty", fake.to)
    with pytest.raises(tensord.TensordError, match="include and exclude"):
        push(here, fake.to, include="*.none")
    with open(os.fsencode(here) + b"/\xff.bin", "wb"):
        pass
    with pytest.raises(tensord.TensordError, match="not UTF-8"):
        push(here, fake.to)
    assert fake.requests == []


def test_a_snapshot_of_a_cache_is_pushed(fake, tmp_path):
    folder = tmp_path / "models--org--name"
    (folder / "blobs").mkdir(parents=True)
    (folder / "snapshots/abc/sub").mkdir(parents=True)
    (folder / "blobs/one").write_bytes(b"one")
    (folder / "snapshots/abc/config.json").symlink_to("../../blobs/one")
    (folder / "snapshots/abc/sub/deep.bin").symlink_to("../../../blobs/one")
    (folder / "snapshots/abc/out.bin").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("secret")
    push(folder / "snapshots/abc", fake.to)
    assert fake.files() == {"config.json": b"one", "sub/deep.bin": b"one"}
    push(folder / "snapshots/abc/sub", fake.to)
    assert fake.files() == {"deep.bin": b"one"}
    with pytest.raises(tensord.TensordError, match="snapshots/abc in it"):
        push(folder, fake.to)


# The left column is core/glob's contract (docs/push.md: `*` also matches `/`).
@pytest.mark.parametrize("glob, taken", [
    ("*.txt", {"a.txt", "b/c.txt"}), ("?.txt", {"a.txt"}), ("[ab]*", {"a.txt", "b/c.txt"}), ("[!a]*", {"b/c.txt", "*"}),
    ("[^a]*", {"b/c.txt", "*"}), ("\\*", {"*"}), ("b/*", {"b/c.txt"}), ("A.TXT", set()), ("[", set())])
def test_globs(fake, tmp_path, glob, taken):
    (tmp_path / "here/b").mkdir(parents=True)
    for name in ("a.txt", "b/c.txt", "*"):
        (tmp_path / "here" / name).touch()
    if taken:
        push(tmp_path / "here", fake.to, include=glob)
        assert set(fake.files()) == taken
    else:
        with pytest.raises(tensord.TensordError, match="has no files"):
            push(tmp_path / "here", fake.to, include=[glob])


def test_large_files_are_sent_in_parts_by_several_connections(fake, tmp_path):
    (tmp_path / "here").mkdir()
    data = pattern(70 * MIB + 5, 1)
    (tmp_path / "here/a.bin").write_bytes(data)
    busy, most = set(), [0]

    def reads(handler):
        if handler.command == "PUT":
            busy.add(threading.get_ident())
        most[0] = max(most[0], len(busy))

    fake.reads = reads
    made = push(tmp_path / "here", fake.to)
    assert made.sent_bytes == len(data) and fake.files() == {"a.bin": data}
    ranges = sorted(request[2] for request in fake.requests if request[0] == "PUT")
    bounds = [tuple(map(int, re.findall(r"\d+", one))) for one in ranges]
    assert sorted(bounds) == [(0, 32 * MIB - 1, len(data)), (32 * MIB, 64 * MIB - 1, len(data)),
                              (64 * MIB, len(data) - 1, len(data))]
    assert most[0] == 3


def test_what_was_cut_off_is_not_sent_again(fake, tmp_path):
    (tmp_path / "here").mkdir()
    data = pattern(20 * MIB, 2)
    (tmp_path / "here/a.bin").write_bytes(data)
    left = [3]

    def reads(handler):
        if left[0] and handler.record[3] > 8 * MIB // left[0]:
            left[0] -= 1
            raise ConnectionError

    fake.reads = reads
    made = push(tmp_path / "here", fake.to, connections=2)
    assert fake.files() == {"a.bin": data} and left == [0]
    arrived = sum(request[3] for request in fake.requests if request[0] == "PUT")
    assert arrived <= len(data) + 3 * PIECE and made.sent_bytes >= len(data)


@pytest.mark.parametrize("status, words, method", [
    (401, "TENSORD_TOKEN", "POST"), (403, "--publish and --tokens", "POST"), (404, "--publish", "POST"),
    (405, "--publish", "POST"), (413, "more than the server takes", "PUT"), (507, "--publish-max-bytes", "PUT")])
def test_a_refusal_says_who_must_act(fake, here, status, words, method):
    def before(handler):
        if handler.command == method:
            raise Refusal(status, "no")

    fake.before = before
    with pytest.raises(tensord.AnswerError) as caught:
        push(here, fake.to)
    assert caught.value.status == status and words in str(caught.value) and ": no;" in str(caught.value)
    assert len([request for request in fake.requests if request[0] == method]) <= 8  # one try of each connection
    assert fake.files() == {}


def test_a_file_that_changes_is_a_failure(fake, tmp_path):
    (tmp_path / "here").mkdir()
    file = tmp_path / "here/a.bin"
    file.write_bytes(pattern(40 * MIB, 3))

    def before(handler):
        if handler.command == "PUT":
            with open(file, "r+b") as out:
                out.seek(35 * MIB)
                out.write(b"changed")
    fake.before = before
    with pytest.raises(tensord.TensordError, match="a.bin has changed since it was read"):
        push(tmp_path / "here", fake.to, connections=1)
    assert fake.files() == {}


@pytest.mark.parametrize("details", [
    {"missing": "all"}, {"missing": []}, {"missing": [5]}, {"missing": [{}]}, {"missing": [{"digest": "sha256:00"}]},
    {"missing": [{"digest": "OWN", "missing": [[5, 4]]}]}, {"missing": [{"digest": "OWN", "missing": [[0, 2**70]]}]},
    {"missing": [{"digest": "OWN", "missing": [[0, 99], [50, 60]]}]}, {"missing": [{"digest": "OWN", "missing": 7}]},
    {"missing": [{"digest": "OWN", "missing": [[0, 10**9]]}]}, {"missing": [{"digest": "OWN"}, {"digest": "OWN"}]}])
def test_wrong_answers_about_what_is_missing(fake, tmp_path, details):
    (tmp_path / "here").mkdir()
    (tmp_path / "here/a.txt").write_bytes(b"text")
    text = json.dumps(details).replace("OWN", "sha256:" + sha256(b"text"))

    def before(handler):
        if handler.command == "POST":
            raise Refusal(409, "no", json.loads(text))

    fake.before = before
    with pytest.raises(tensord.ProtocolError):
        push(tmp_path / "here", fake.to)


def test_a_server_that_never_has_enough(fake, here):
    def lacks(name, wish):
        raise Refusal(409, "no", {"missing": [{"digest": wish["files"][0]["digest"]}]})

    fake.commit = lacks
    with pytest.raises(tensord.ProtocolError, match="the same bytes again"):
        push(here, fake.to)


def test_the_command(fake, here):
    def run(*arguments):
        return subprocess.run([sys.executable, "-m", "tensord", "push", str(here), fake.to, *arguments], text=True,
                              capture_output=True, timeout=60)

    (here / "out.txt").symlink_to("/etc/passwd")
    done = run("--message", "text", "--revision", "v1", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0 and done.stderr == '"out.txt" is left out: it is a symlink that leads outside DIR\n'
    assert set(report) == {"model", "revision", "commit", "changed", "files", "bytes", "sent_bytes", "seconds"}
    assert (report["model"], report["revision"], report["changed"]) == ("org/m", "v1", True)
    assert fake.commit_bodies[0]["message"] == "text" and report["commit"] == fake.model("org/m")["refs"]["v1"][0]
    assert {file["path"]: file["sha256"] for file in report["files"]} == \
        {path: sha256(data) for path, data in tree_of(here).items() if path != "out.txt"}
    done = run("--parent", "0" * 40, "--json", "--quiet")
    assert done.returncode == 1 and done.stderr.startswith("tensord: ") and done.stderr.count("\n") == 1
    assert json.loads(done.stdout)["error"] in done.stderr
    done = run("--exclude", "*.txt", "--keep")
    assert done.returncode == 0 and re.fullmatch(
        r"[0-9a-f]{40}: 2 files, 3.0 MiB; .* were sent\n", done.stdout), done.stdout
    assert main(["push", str(here), "nowhere"]) == 1
