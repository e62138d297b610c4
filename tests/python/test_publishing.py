"""Writing to a server: blobs, streams and commits (tensord.publishing)."""
import hashlib
import io
import os
import pickle

import pytest
from conftest import url_of
from publishing import PIECE, Repo

import tensord
from tensord.publishing.repository import Blob, Repository


def blob_of(data):
    """The blob of bytes, as the contract names it."""
    return Blob(f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))


@pytest.fixture(scope="module")
def noise():
    return os.urandom(5 * 1024 * 1024 + 11)


def content(server, id, path):
    """A file of a repository, as an ordinary reader gets it."""
    return Repo(server.port, id).ask("GET", f"/files/{path}").body


SOURCES = {
    "bytes": lambda data, folder: data,
    "bytearray": lambda data, folder: bytearray(data),
    "view": lambda data, folder: memoryview(data),
    "path": lambda data, folder: written(folder, data),
    "text": lambda data, folder: str(written(folder, data)),
    "file": lambda data, folder: open(written(folder, data), "rb"),
    "memory": lambda data, folder: io.BytesIO(data),
    "pipe": lambda data, folder: io.BufferedReader(OnlyRead(data)),
}


class OnlyRead(io.RawIOBase):
    """A file without a descriptor and without positions."""

    def __init__(self, data):
        self.rest = memoryview(data)

    def readable(self):
        return True

    def readinto(self, target):
        count = min(len(target), len(self.rest), 100_000)
        target[:count] = self.rest[:count]
        self.rest = self.rest[count:]
        return count


def written(folder, data):
    (folder / "source.bin").write_bytes(data)
    return folder / "source.bin"


@pytest.mark.parametrize("kind", SOURCES)
def test_a_source_of_any_kind_becomes_a_blob(serve, tmp_path, noise, kind):
    server = serve("--publish", "any")
    with Repository.open(url_of(server, "org/name")) as repo:
        sent = repo.send(SOURCES[kind](noise, tmp_path))
        small = repo.send(SOURCES[kind](b"abc", tmp_path))
        empty = repo.send(SOURCES[kind](b"", tmp_path))
        assert (sent, small, empty) == (blob_of(noise), blob_of(b"abc"), blob_of(b""))
        made = repo.commit({"a.bin": sent, "sub/b.txt": small, "c.txt": empty})
    assert made.changed and made.parent == "" and made.revision == "main"
    assert (made.files, made.bytes) == (3, len(noise) + 3)
    assert Repo(server.port, "org/name").ask("GET", "/commits").json()["refs"] == {"main": made.commit}


def test_a_stream_sends_while_it_is_written(serve, noise):
    server = serve("--publish", "any")
    repo = pickle.loads(pickle.dumps(Repository.open(url_of(server, "org/name"))))
    for size in (None, len(noise)):
        with repo.stream(size) as out:
            for at in range(0, len(noise), PIECE + 1):
                assert out.write(noise[at:at + PIECE + 1]) == len(noise[at:at + PIECE + 1])
            assert out.tell() == len(noise)
        assert out.blob == blob_of(noise)
    with repo.stream() as out:
        out.write(b"")
    assert out.blob == blob_of(b"")
    repo.commit({"config.json": blob_of(b""), "a.bin": blob_of(noise)})
    assert content(server, "org/name", "a.bin") == noise


def test_an_exception_within_a_stream_leaves_no_blob(serve, noise):
    server = serve("--publish", "any")
    repo = Repository.open(url_of(server, "org/name"))
    with pytest.raises(KeyError), repo.stream() as out:
        out.write(noise)
        raise KeyError
    with pytest.raises(ValueError, match="no blob"):
        out.blob
    assert Repo(server.port, "org/name").ask("GET", f"/blobs/{blob_of(noise).digest}").status == 404


def test_commits_of_a_folder_and_of_a_revision(serve):
    server = serve("--publish", "any")
    repo = Repository.open(url_of(server, "org/name"))
    one = repo.send(b"{}")
    first = repo.commit({"config.json": one, "old.bin": one}, message="first", parent="")
    folder = Repository.open(url_of(server, "org/name@v2/runs/step-1"))
    assert (folder.id, folder.folder, folder.revision) == ("org/name", "runs/step-1", "v2")
    made = folder.commit({"x.bin": one}, keep=True)
    assert made.revision == "v2" and made.files == 1
    with pytest.raises(ValueError, match="keep=True"):
        folder.commit({"x.bin": one})
    second = repo.commit({"new.bin": one}, keep=True, delete=["old.bin"], parent=first.commit)
    assert second.parent == first.commit and second.files == 2
    with pytest.raises(tensord.ConflictError) as caught:
        repo.commit({"x": one}, parent=first.commit)
    assert caught.value.commit == second.commit
    assert pickle.loads(pickle.dumps(caught.value)).commit == second.commit
    with pytest.raises(tensord.MissingBlobsError) as caught:
        repo.commit({"x": blob_of(b"not sent")})
    assert caught.value.missing == {blob_of(b"not sent").digest: []}
