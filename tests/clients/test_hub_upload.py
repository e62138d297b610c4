"""huggingface_hub, the newest and 0.36.2, and what builds on it, upload to tensord in the place of the Hub."""
import base64
import contextlib
import hashlib
import math
import os
import socket
import struct
import subprocess

import pytest

import harness
from client import HUB0, NEWEST, ClientError, CuttingProxy, Worker, quiet_environment
from signing import TokensFile

LARGE = (8 << 20) + 12_345    # more than what comes in a commit
NO_XET = {"HF_HUB_DISABLE_XET": "1"}


def b64(data):
    return base64.b64encode(data).decode()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("uploads") / "root"
    root.mkdir()
    return root


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    tokens = TokensFile(tmp_path_factory.mktemp("tokens") / "tokens.json")
    return tokens.add("writer", rights=("read", "write")).add("reader").add("half", ["org/half-*"],
                                                                          rights=("read", "write"))


@pytest.fixture(scope="module")
def srv(root, tokens):
    with harness.Server(root, "--publish", "any", "--tokens", tokens) as s:
        yield s


def environment(srv, tokens, name="writer"):
    return {"HF_ENDPOINT": f"http://127.0.0.1:{srv.port}", "HF_TOKEN": tokens.text(name), **NO_XET}


@pytest.fixture(scope="module", params=["newest", "0.36.2"])
def hub(srv, tokens, request):
    python = NEWEST if request.param == "newest" else HUB0
    with Worker("calls_hub_upload", python, **environment(srv, tokens)) as w:
        w.label = request.param.replace(".", "-")
        yield w


def new(hub, name):
    """Create a repository, and return its id."""
    return hub.create(repo_id=f"org/{name}-{hub.label}")["id"]


@pytest.fixture
def folder(tmp_path):
    """A model with a large file, a card, subfolders and files that stay at home. Also returns what must arrive."""
    files = {"config.json": b"{}\n", "README.md": b"---\nlicense: mit\n---\n# A model\n", "empty.txt": b"",
             "model.safetensors": harness.safetensors_bytes([harness.tensor("w", "U8", (LARGE, ))]),
             "sub/deeper/\u00e9 b.bin": os.urandom(70_000), "sub/notes.txt": b"notes"}
    for name, data in {**files, ".gitattributes": b"x"}.items():
        path = tmp_path / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "model", files


def check_files(srv, tokens, id, files, revision="main"):
    """Check that the repository has exactly these files, and their digests."""
    bearer = tokens.bearer("writer")
    items = srv.json(f"/api/models/{id}/tree/{revision}?recursive=true", bearer)
    digests = {i["path"]: i["lfs"]["oid"] for i in items if i["type"] == "file"}
    assert digests == {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    for path, data in files.items():
        answer = srv.get(f"/{id}/resolve/{revision}/{harness.enc(path, '/')}", bearer)
        assert answer.status == 200 and answer.body == data, path


def test_versions(hub):
    assert hub.version().startswith("2." if hub.label == "newest" else "0.36.2")


def test_a_folder(hub, srv, tokens, folder):
    """All files arrive; sent again, nothing changes; deletions and subfolders work."""
    path, files = folder
    id = new(hub, "folder")
    first = hub.upload_folder(repo_id=id, folder_path=str(path))["oid"]
    check_files(srv, tokens, id, files)
    assert hub.upload_folder(repo_id=id, folder_path=str(path))["oid"] == first
    (path / "config.json").write_bytes(b'{"changed": 1}\n')
    files["config.json"] = b'{"changed": 1}\n'
    del files["sub/notes.txt"]
    (path / "sub/notes.txt").unlink()
    second = hub.upload_folder(repo_id=id, folder_path=str(path), delete_patterns=["sub/*"],
                               commit_message="Second", commit_description="With words")["oid"]
    check_files(srv, tokens, id, files)
    log = hub.commits(repo_id=id)
    assert log[0] == {"id": second, "title": "Second", "message": "With words"}
    assert hub.read(repo_id=id, name="config.json", revision=second) == files["config.json"].hex()
    hub.upload_folder(repo_id=id, folder_path=str(path / "sub"), path_in_repo="other")
    assert "other/deeper/\u00e9 b.bin" in hub.files(repo_id=id)


def test_many_files(hub, tmp_path):
    """The newest client makes several commits of them."""
    for i in range(400):
        (tmp_path / f"{i:03}.txt").write_text(str(i))
    id = new(hub, "many")
    hub.upload_folder(repo_id=id, folder_path=str(tmp_path))
    assert hub.files(repo_id=id) == [f"{i:03}.txt" for i in range(400)]
    assert hub.read(repo_id=id, name="399.txt") == b"399".hex()


def test_one_large_file(hub, srv, tokens, tmp_path):
    """Large files go to a signed URL, once."""
    id, data = new(hub, "large"), os.urandom(LARGE)
    (tmp_path / "x.bin").write_bytes(data)
    got = hub.upload_file(path=str(tmp_path / "x.bin"), path_in_repo="d/x.bin", repo_id=id)
    again = hub.upload_file(path=str(tmp_path / "x.bin"), path_in_repo="d/y.bin", repo_id=id)
    assert got["url"] == f"http://127.0.0.1:{srv.port}/{id}/commit/{got['oid']}" and again["oid"] != got["oid"]
    check_files(srv, tokens, id, {"d/x.bin": data, "d/y.bin": data})
    puts = [line for line in srv.log().splitlines() if 'method="PUT"' in line and f"/{id}/blobs/sha256:" in line]
    assert len(puts) == 1 and "status=201" in puts[0] and "token=writer" in puts[0]


class UploadCutter(CuttingProxy):
    """Cuts a connection once clients have sent more than `after` bytes, on all connections together."""

    sent = 0

    def forward(self, near, far):
        with contextlib.suppress(OSError):
            while data := near.recv(1 << 18):
                with self.guard:
                    self.sent += len(data)
                if self.sent > self.after and self.take_cut():
                    break
                far.sendall(data)
        for s in (near, far):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("python", [NEWEST, HUB0], ids=["newest", "0.36.2"])
def test_a_cut_costs_a_part(srv, tokens, tmp_path, python):
    """Git LFS sends a file of more than 128 MiB in parts of 64 MiB, so a cut does not cost what came before."""
    part = 64 << 20
    data = harness.pattern(1 << 20, str(python)) * 150
    (tmp_path / "x.bin").write_bytes(data)
    with UploadCutter(srv.port, after=100 << 20, cuts=1) as cutter:
        env = {**environment(srv, tokens), "HF_ENDPOINT": f"http://127.0.0.1:{cutter.port}"}
        with Worker("calls_hub_upload", python, **env) as w:
            id = w.create(repo_id=f"org/cut-{'new' if python == NEWEST else 'old'}")["id"]
            w.upload_file(path=str(tmp_path / "x.bin"), path_in_repo="x.bin", repo_id=id)
    assert cutter.done_cuts == 1 and len(data) < cutter.sent < len(data) + part
    check_files(srv, tokens, id, {"x.bin": data})


def test_operations(hub, srv, tokens):
    """Add, copy and delete in one commit; a parent that has moved; files that are not there."""
    id, large = new(hub, "operations"), os.urandom(LARGE)
    first = hub.commit(repo_id=id, add={"a.txt": b64(b"a"), "large.bin": b64(large), "old/x": b64(b"x")})
    hub.commit(repo_id=id, add={"b.txt": b64(b"b")}, copy={"c.txt": "a.txt", "copy.bin": "large.bin"},
               delete=["old/", "a.txt"], parent_commit=first["oid"])
    check_files(srv, tokens, id, {"b.txt": b"b", "c.txt": b"a", "copy.bin": large, "large.bin": large})
    with pytest.raises(ClientError, match="412.*\n.*\n?.*somebody has committed since"):
        hub.commit(repo_id=id, add={"d.txt": b64(b"d")}, parent_commit=first["oid"])
    hub.delete_file(path="b.txt", repo_id=id)
    with pytest.raises(ClientError) as missing:
        hub.delete_file(path="b.txt", repo_id=id)
    assert "EntryNotFoundError" in missing.value.kinds
    with pytest.raises(ClientError, match="no pull requests"):
        hub.commit(repo_id=id, add={"d.txt": b64(b"d")}, create_pr=True)
    assert hub.files(repo_id=id) == ["c.txt", "copy.bin", "large.bin"]


def test_branches_and_tags(hub):
    id = new(hub, "refs")
    first = hub.commit(repo_id=id, add={"a": b64(b"1")})["oid"]
    hub.branch(repo_id=id, name="dev/x")
    hub.branch(repo_id=id, name="dev/x", exist_ok=True)
    with pytest.raises(ClientError, match="exists"):
        hub.branch(repo_id=id, name="dev/x")
    hub.tag(repo_id=id, name="v1", tag_message="one")
    hub.tag(repo_id=id, name="v1", exist_ok=True)
    second = hub.commit(repo_id=id, add={"a": b64(b"2")}, revision="dev/x")["oid"]
    assert hub.refs(repo_id=id) == {"main": first, "v1": first, "dev/x": second}
    assert hub.read(repo_id=id, name="a", revision="dev/x") == b"2".hex()
    assert hub.read(repo_id=id, name="a", revision="v1") == b"1".hex()
    hub.squash(repo_id=id, branch="dev/x", commit_message="one")
    assert [c["title"] for c in hub.commits(repo_id=id, revision="dev/x")] == ["one"]
    hub.delete_tag(repo_id=id, name="v1")
    hub.delete_branch(repo_id=id, name="dev/x")
    assert hub.refs(repo_id=id) == {"main": first}
    for call, kind in ((lambda: hub.delete_tag(repo_id=id, name="v1"), "RevisionNotFoundError"),
                       (lambda: hub.commit(repo_id=id, add={"a": b64(b"3")}, revision="no"), "RevisionNotFoundError"),
                       (lambda: hub.commit(repo_id="org/none", add={"a": b64(b"3")}), "RepositoryNotFoundError")):
        with pytest.raises(ClientError) as refused:
            call()
        assert kind in refused.value.kinds, refused.value.text


def test_names_of_repositories(hub):
    id = new(hub, "names")
    with pytest.raises(ClientError, match="already created"):
        hub.create(repo_id=id)
    assert hub.create(repo_id=id, exist_ok=True)["id"] == id
    bare = hub.create(repo_id=f"bare-{hub.label}")["id"]
    assert bare == f"local/bare-{hub.label}"
    hub.commit(repo_id=bare, add={"a": b64(b"1")})
    assert hub.files(repo_id=bare) == ["a"] and hub.files(repo_id=id) == []
    hub.commit(repo_id=id, add={"a": b64(b"1")})
    hub.move(a=id, b=id + "-moved")
    assert hub.files(repo_id=id + "-moved") == ["a"]
    hub.delete(repo_id=id + "-moved")
    hub.delete(repo_id=id + "-moved", missing_ok=True)
    with pytest.raises(ClientError) as gone:
        hub.delete(repo_id=id + "-moved")
    assert "RepositoryNotFoundError" in gone.value.kinds
    rows = hub.create(repo_id=f"org/rows-{hub.label}", repo_type="dataset")
    assert rows["type"] == "dataset"
    hub.upload_file(data=b64(b'{"a": 1}\n'), path_in_repo="train.jsonl", repo_id=rows["id"], repo_type="dataset")
    assert hub.files(repo_id=rows["id"], repo_type="dataset") == ["train.jsonl"]


@pytest.mark.parametrize("hub", ["newest"], indirect=True)
def test_a_card(hub):
    """The newest asks this server whether a card is good, without a token. (0.36.2 asks the Hub itself.)"""
    id = new(hub, "card")
    assert [hub.push_card(repo_id=id, license=name) for name in ("mit", "apache-2.0")] == ["mit", "apache-2.0"]


def test_other_calls(hub):
    """Files by HfFileSystem; settings; folders that are deleted; a branch of an older commit."""
    id = new(hub, "other")
    data = os.urandom(LARGE)
    assert hub.file_system(repo_id=id, data=b64(data)) == {"files": ["copy.bin", "moved.txt"], "right": True}
    hub.settings(repo_id=id, private=True)
    with pytest.raises(ClientError, match="gated"):
        hub.settings(repo_id=id, gated="auto")
    first = hub.commit(repo_id=id, add={"f/a": b64(b"1"), "f/g/b": b64(b"2"), "f.txt": b64(b"3")})["oid"]
    hub.delete_folder(path="f", repo_id=id)
    assert hub.files(repo_id=id) == ["copy.bin", "f.txt", "moved.txt"]
    with pytest.raises(ClientError) as missing:
        hub.delete_folder(path="f", repo_id=id)
    assert "EntryNotFoundError" in missing.value.kinds
    hub.branch(repo_id=id, name="old", revision=first)
    assert "f/g/b" in hub.files(repo_id=id, revision="old") and hub.refs(repo_id=id)["old"] == first


def hf(python, srv, tokens, home, *args, name="writer", **env):
    """Run the command line of this version."""
    command = [str(python.parent / "hf"), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120,
                          env={**quiet_environment(home), **environment(srv, tokens, name), **env})
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("python", [NEWEST, HUB0], ids=["newest", "0.36.2"])
def test_the_command(srv, tokens, folder, tmp_path, python):
    """hf upload makes the repository and the branch; without the right it says so."""
    path, files = folder
    id = f"org/half-{'new' if python == NEWEST else 'old'}"
    code, said = hf(python, srv, tokens, tmp_path, "upload", id, str(path), name="half")
    assert code == 0 and id in said, said
    check_files(srv, tokens, id, files)
    code, said = hf(python, srv, tokens, tmp_path, "upload", id, str(path / "config.json"), "x/c.json", "--revision",
                    "next", "--commit-message", "One file")
    assert code == 0, said
    check_files(srv, tokens, id, {**files, "x/c.json": files["config.json"]}, "next")
    code, said = hf(python, srv, tokens, tmp_path, "upload", id + "-branch", str(path), "--revision", "first",
                    name="half")
    assert code == 0, said
    check_files(srv, tokens, id + "-branch", files, "first")
    for name in ("reader", "half"):
        code, said = hf(python, srv, tokens, tmp_path, "upload", "org/whole", str(path), name=name)
        assert code != 0 and "right to write" in said, said


@pytest.mark.parametrize("python", [NEWEST, HUB0], ids=["newest", "0.36.2"])
def test_by_default(srv, tokens, folder, tmp_path, python):
    """The newest sends large files by Xet: all kinds of bytes, in several objects, and once more what has changed."""
    path, files = folder
    id = f"org/default-{'new' if python == NEWEST else 'old'}"
    floats = struct.pack("<3000000f", *(math.sin(i) for i in range(3_000_000)))
    for name, data in {"random.bin": os.urandom(70 << 20), "zeros.bin": bytes(LARGE), "floats.bin": floats,
                       "text.bin": b"the quick brown fox\n" * 500_000}.items():
        (path / name).write_bytes(data)
        files[name] = data
    code, said = hf(python, srv, tokens, tmp_path, "upload", id, str(path), HF_HUB_DISABLE_XET="0")
    assert code == 0, said
    check_files(srv, tokens, id, files)
    files["random.bin"] = files["random.bin"][:40 << 20] + b"changed" + files["random.bin"][40 << 20:]
    (path / "random.bin").write_bytes(files["random.bin"])
    code, said = hf(python, srv, tokens, tmp_path, "upload", id, str(path), HF_HUB_DISABLE_XET="0")
    assert code == 0, said
    check_files(srv, tokens, id, files)
    xorbs = [line for line in srv.log().splitlines() if f"/{id}/xet/" in line and "/v1/xorbs/" in line]
    assert bool(xorbs) == (python == NEWEST)
    code, said = hf(python, srv, tokens, tmp_path, "upload", "org/not-mine", str(path), name="half",
                    HF_HUB_DISABLE_XET="0")
    assert code != 0 and "right to write" in said, said


def test_a_large_folder(srv, tokens, folder):
    """The last release with upload_large_folder."""
    path, files = folder
    with Worker("calls_hub_upload", HUB0, **environment(srv, tokens)) as w:
        w.upload_large_folder(repo_id="org/large-folder", folder_path=str(path), repo_type="model", print_report=False)
    check_files(srv, tokens, "org/large-folder", files)


def test_libraries_push(srv, tokens):
    """transformers and datasets push, and read what they pushed."""
    with Worker("calls_hub_upload", **environment(srv, tokens)) as w:
        assert w.push_to_hub(repo_id="org/pushed")
        assert set(w.files(repo_id="org/pushed")) == {"config.json", "model.safetensors", "README.md"}
        assert w.push_to_hub(repo_id="org/steps", revision="step-1")
        assert w.push_to_hub(repo_id="org/steps", revision="step-2")
        assert "model.safetensors" in w.files(repo_id="org/steps", revision="step-2")
        w.push_dataset(repo_id="org/table")
        assert w.rows(repo_id="org/table") == {"count": 100, "last": {"a": 99, "b": "99"}}
        assert "README.md" in w.files(repo_id="org/table", repo_type="dataset")


def test_a_dataset_again(srv, tokens):
    """A second push replaces the rows of its split, and leaves other splits, configurations and revisions."""
    id = "org/again"
    with Worker("calls_hub_upload", **environment(srv, tokens)) as w:
        w.push_dataset(repo_id=id, num_shards=3)
        w.push_dataset(repo_id=id, count=20)
        w.push_dataset(repo_id=id, count=30, split="test")
        w.push_dataset(repo_id=id, count=40, config_name="more")
        w.push_dataset(repo_id=id, count=50, revision="next")
        assert [f for f in w.files(repo_id=id, repo_type="dataset") if f.startswith("data/")] == [
            "data/test-00000-of-00001.parquet", "data/train-00000-of-00001.parquet"]
        counts = [w.rows(repo_id=id, **kw)["count"] for kw in (
            {"name": "default"}, {"name": "default", "split": "test"}, {"name": "more"}, {"revision": "next"})]
        assert counts == [20, 30, 40, 50]


def test_a_trainer(srv, tokens, tmp_path):
    """Trainer pushes while it trains: each push is one commit, and adds a checkpoint."""
    with Worker("calls_hub_upload", **environment(srv, tokens)) as w:
        titles = w.train(repo_id="org/trained", folder=str(tmp_path / "out"), strategy="all_checkpoints")
        assert titles[0] == "The end" and titles[-1].startswith("Training in progress"), titles
        files = w.files(repo_id="org/trained")
        assert {"README.md", "model.safetensors", "checkpoint-2/model.safetensors", "checkpoint-2/optimizer.pt",
                "checkpoint-4/model.safetensors"} <= set(files)
