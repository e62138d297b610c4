"""Puts the files of a directory into a model or a dataset, as one commit."""
from __future__ import annotations

import logging
import os
import threading
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from .. import errors
from ..address import Urls
from ..net.progress import Progress
from ..net.session import Session
from ..options import Options
from .folder import File, find_files
from .place import Blob
from .repository import Commit, Repository
from .sending import Lack, Stuck, Tally, by_digest

log = logging.getLogger("tensord")


class PushedFile(NamedTuple):
    """A file of a push: its path, its length, its SHA-256, and the bytes that were sent for it, also again. Of equal
    files one is sent."""

    path: str
    bytes: int
    sha256: str
    sent_bytes: int


class PushResult(str):
    """The id of the commit that a push has made, or found.

    `commit`: the same. `parent`: the commit that the `revision` was at before, "": none. `changed`: whether the
    revision moved. `files`: a PushedFile for each. `bytes`: of all files. `sent_bytes`: that were sent now.
    """

    commit: str
    parent: str
    revision: str
    changed: bool
    files: Tuple[PushedFile, ...]
    bytes: int
    sent_bytes: int

    @classmethod
    def of(cls, made: Commit, files: Sequence[PushedFile], sent_bytes: int) -> "PushResult":
        """Returns the result of a push of these files."""
        result = cls(made.commit)
        result.commit, result.parent, result.revision, result.changed = (made.commit, made.parent, made.revision,
                                                                         made.changed)
        result.files, result.sent_bytes = tuple(files), sent_bytes
        result.bytes = sum(file.bytes for file in files)
        return result


def push(directory: Union[str, "os.PathLike[str]"], url: Urls, *, revision: Optional[str] = None,
         message: Optional[str] = None, parent: Optional[str] = None, keep: bool = False,
         include: Union[str, Sequence[str]] = (), exclude: Union[str, Sequence[str]] = (),
         options: Optional[Options] = None, **given: Any) -> PushResult:
    """Puts the files of a directory into a model or a dataset, all at once, and returns the commit.

    Sends what the server does not have. The same call after a failure sends only what is missing.

    `url`: tensord://host:port/org/name, of a dataset tensord://host:port/datasets/org/name; `@revision` and a folder
    may follow. `revision`: the branch or tag that moves to the commit, "main" by default; made if it is not there.
    `message`: describes the commit. `parent`: the commit that the revision must be at; "": it must not be there yet.
    `keep`: files of the revision that are not in the directory stay; needed if the URL has a folder. `include`,
    `exclude`: globs over paths, in which `*` also matches `/`. `given`: options of `tensord.Options`, by name.

    The files are those that a server of the directory lists: no hidden ones, and none that end in .tmp or .incomplete.
    A symlink that leads out of the directory is left out, as the logger "tensord" reports.

    Raises ConflictError for another parent; AnswerError for other refusals, whose message says who has to act;
    TensordError for a file that changes, and a directory that cannot be sent whole; DigestError, ConnectError,
    ProtocolError, OSError, AddressError. Then the revision is as before.
    """
    with Repository.open(url, options, **given) as repo:
        repo.check_keep(keep)
        files = find_files(directory, include, exclude, log.warning)
        blobs = _hashed(repo, files, f"hashing {os.fspath(directory)}")
        return commit_sources(repo, files, blobs, keep=keep, revision=revision, parent=parent, message=message)


def _hashed(repo: Repository, files: List[File], what: str) -> List[Blob]:
    """Computes the digests of files, on all processors."""
    blobs: List[Optional[Blob]] = [None] * len(files)
    with Progress(sum(file.nbytes for file in files), what, repo.options.progress) as progress:

        def hash_one(session: Session, number: int, stopping: threading.Event) -> None:
            def check() -> None:
                if stopping.is_set():
                    raise errors.TensordError("hashing was stopped")

            blobs[number] = Blob(files[number].digest(progress.add, check), files[number].nbytes)

        repo.do_all(range(len(files)), hash_one, min(len(files), os.cpu_count() or 1, 16))
    return [blob for blob in blobs if blob is not None]


def commit_sources(repo: Repository, files: Sequence[File], blobs: Sequence[Blob], **how: Any) -> PushResult:
    """Makes a commit of files, and sends what the server lacks for it. `how`: as of Repository.commit."""
    lacks: Dict[str, Lack] = {}
    for file, blob in zip(files, blobs):
        lacks.setdefault(blob.digest, Lack(file, blob, [], Tally()))
    wanted, stuck = {file.path: blob for file, blob in zip(files, blobs)}, Stuck()
    while True:
        try:
            made = repo.commit(wanted, **how)
            break
        except errors.MissingBlobsError as error:
            missing = by_digest(error.missing, lacks)
        nbytes = stuck.check(missing, str(repo))
        with Progress(nbytes, f"sending to {repo}", repo.options.progress) as progress:
            for lack in missing:
                lack.tally.on_done = progress.add
            repo.send_lacks(missing)
    pushed = []
    for file, blob in zip(files, blobs):
        lack = lacks[blob.digest]
        sent = lack.tally.sent if lack.source is file else 0
        pushed.append(PushedFile(file.path, blob.size, blob.digest.partition(":")[2], sent))
    return PushResult.of(made, pushed, sum(file.sent_bytes for file in pushed))
