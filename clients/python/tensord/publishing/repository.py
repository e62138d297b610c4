"""A model or a dataset on a server, to be written to."""
from __future__ import annotations

import json
import os
import stat
import threading
from dataclasses import dataclass, replace
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Set, TypeVar
from urllib.parse import quote

from .. import errors
from ..address import Urls
from ..net import http
from ..net.resources import tree_of
from ..net.session import Session
from ..net.workers import do_all
from ..options import MIB, Options
from .place import ANSWER_SECONDS, MAX_REPLY_BYTES, Blob, Place, open_place, refusal
from .sending import Lack, Stuck, Tally, known_state, send_lacks
from .sources import FileSource, MemorySource, Source, bytes_view
from .stream import BlobStream

J = TypeVar("J")
ASK_BYTES = 256 * 1024  # a source of more bytes is sent only after the server was asked what it has


@dataclass(frozen=True)
class Commit:
    """A commit that was made: its id, the commit that the `revision` was at before ("": none), whether it `changed`,
    and the `files` and `bytes` that the revision has now."""

    commit: str
    parent: str
    revision: str
    changed: bool
    files: int
    bytes: int


class Repository:
    """A model or a dataset on a server, which may not be there yet. For any number of threads and, pickled or after a
    fork, processes. Makes connections when it needs them."""

    def __init__(self, session: Session, place: Place):
        self._session, self._place = session, place

    @classmethod
    def open(cls, url: Urls, options: Optional[Options] = None, **given: Any) -> "Repository":
        """Returns the repository that a URL names; no connection is made yet.

        `url`: tensord://host:port/org/name, with `@revision` after it if not main, and then a folder; of a dataset
        tensord://host:port/datasets/org/name; or the same as https://host:port/models/org/name. `given`: options by
        name. Raises AddressError.
        """
        return cls(*open_place(url, options, **given))

    @property
    def id(self) -> str:
        """The id of the model or dataset."""
        return self._place.id

    @property
    def folder(self) -> str:
        """The folder of the URL, which all paths are below; "": the repository itself."""
        return self._place.folder

    @property
    def revision(self) -> str:
        """The revision of the URL, or "main"."""
        return self._place.revision or "main"

    @property
    def options(self) -> Options:
        """The options of all requests."""
        return self._session.options

    def send(self, source: Any, tally: Optional[Tally] = None) -> Blob:
        """Sends a blob, unless the server has it, and returns it: several connections send parts of it, and after a
        failure only what is missing is sent.

        `source`: bytes or any contiguous buffer; the path of a file; or a binary file, from its position on.

        Raises AnswerError for a refusal, DigestError if the source changed while it was sent; ConnectError,
        ProtocolError, OSError.
        """
        if isinstance(source, Source):
            return self._send(source, tally)
        if isinstance(source, (str, os.PathLike)):
            with open(source, "rb") as file:
                return self.send(file, tally)
        if not hasattr(source, "read"):
            return self._send(MemorySource([bytes_view(source)]), tally)
        found = _source_of_file(source)
        if found is not None:
            return self._send(found, tally)
        with self.stream() as out:
            while True:
                data = source.read(4 * MIB)
                if not data:
                    break
                out.write(data)
        return out.blob

    def _send(self, source: Source, tally: Optional[Tally] = None) -> Blob:
        blob = Blob(source.digest(), source.nbytes)
        lack, stuck = Lack(source, blob, [], tally or Tally()), Stuck()
        asks = blob.size > ASK_BYTES
        while not lack.complete:
            if asks:
                state = known_state(self._session, self._place, blob)
                if state is not None and state.complete:
                    break
                lack.ranges = state.missing if state is not None else []
                stuck.check([lack], source.name)
            self.send_lacks([lack])
            asks = True
        return blob

    def stream(self, size: Optional[int] = None) -> BlobStream:
        """Returns a stream whose bytes are sent while they are written; `blob` of it, after its end, names them.

        `size`: of the blob, if it is known.
        """
        return BlobStream(self._session, self._place, size, self._send)

    def commit(self, files: Mapping[str, Blob], keep: bool = False, delete: Iterable[str] = (),
               revision: Optional[str] = None, parent: Optional[str] = None, message: Optional[str] = "") -> Commit:
        """Gives a revision its files, all at once: `files` by path, which the server must have as blobs.

        `keep`: other files of the revision stay, but for those in `delete`; a folder there ends with "/". `revision`:
        the URL's by default; made if it is not there. `parent`: the commit that the revision must be at, "": none yet;
        None: any.

        Raises ConflictError for another parent, MissingBlobsError for blobs that are not on the server, NotFoundError
        for a path to delete that is not there, AnswerError for other refusals; ConnectError, ProtocolError; ValueError
        without `keep` where the URL has a folder, since all files beside it would go.
        """
        self.check_keep(keep)
        place = self._place
        body = {"files": [{"path": place.inside(path), "digest": blob.digest, "size": blob.size}
                          for path, blob in files.items()],
                "keep": keep, "revision": revision or self.revision}
        removed = [place.inside(path) for path in delete]
        if removed:
            body["delete"] = removed
        if parent is not None:
            body["parent"] = parent
        if message:
            body["message"] = message
        path = place.path("commits")
        found: Commit = self._session.ask("POST", path, body, read=lambda answer: _read_commit(answer, path),
                                          wait=ANSWER_SECONDS, refusal=refusal)[0]
        return found

    def at(self, folder: Optional[str] = None, revision: Optional[str] = None) -> "Repository":
        """Returns the same repository with another folder ("": the repository itself) or revision, if given."""
        place = self._place
        return Repository(self._session, replace(place, folder=place.folder if folder is None else folder,
                                                 revision=revision or place.revision))

    def with_session(self, session: Session) -> "Repository":
        """Returns the same repository, with the connections of another session."""
        return Repository(session, self._place)

    def check_keep(self, keep: bool) -> None:
        """Raises ValueError for a commit without `keep` to a folder."""
        if self.folder and not keep:
            raise ValueError(f"the URL names the folder {self.folder}: without keep=True a commit would remove all "
                             "files beside it")

    def send_lacks(self, lacks: Sequence[Lack]) -> None:
        """Sends what the server lacks; see sending.send_lacks."""
        send_lacks(self._session, self._place, lacks)

    def do_all(self, jobs: Iterable[J], do: Callable[[Session, J, threading.Event], None], count: int) -> None:
        """Calls a function for each job in several threads; see workers.do_all."""
        do_all(self._session, jobs, do, count)

    def has(self, blob: Blob) -> bool:
        """Returns whether the server has all bytes of a blob for this repository."""
        state = known_state(self._session, self._place, blob)
        return state is not None and state.complete

    def names(self) -> Set[str]:
        """Returns the names directly in the folder of the URL, at its revision: of files, and of folders with a slash
        at the end. It is empty if there is no such folder, revision or repository.

        Raises AnswerError, ConnectError, ProtocolError.
        """
        place = self._place
        path = place.path("tree", quote(self.revision, safe=""), *[quote(self.folder)] * bool(self.folder))
        begin = len(place.inside(""))
        try:
            return {file["path"][begin:] for file in tree_of(self._session, path, place.id)}
        except errors.NotFoundError:
            return set()

    def close(self) -> None:
        """Closes the idle connections. The repository may be used again."""
        self._session.close()

    def __enter__(self) -> "Repository":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return str(self._place)

    def __repr__(self) -> str:
        return f"Repository({self._place})"


def _source_of_file(file: Any) -> Optional[Source]:
    """Returns the rest of an open binary file; None if it can be read only once."""
    if hasattr(file, "getbuffer"):
        return MemorySource([file.getbuffer()[file.tell() :]])
    try:
        fd = file.fileno()
        about = os.fstat(fd)
        if stat.S_ISREG(about.st_mode):
            return FileSource(None, str(getattr(file, "name", "the file")), about, fd, file.tell())
    except (OSError, AttributeError, ValueError):
        pass
    return None


def _read_commit(answer: http.Answer, path: str) -> Commit:
    """Reads the answer to a commit. Raises ProtocolError, Dropped."""
    url = f"{answer.connection.endpoint}{path}"
    try:
        about = json.loads(answer.read(MAX_REPLY_BYTES))
        found = Commit(about["commit"], about.get("parent") or "", about["revision"], about["changed"], about["files"],
                       about["bytes"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise errors.ProtocolError(f"{url} did not describe a commit: is this a tensord server?") from None
    texts = (found.commit, found.parent, found.revision)
    if (not all(isinstance(text, str) for text in texts) or not _is_commit(found.commit) or
            type(found.changed) is not bool or type(found.files) is not int or type(found.bytes) is not int):
        raise errors.ProtocolError(f"{url} described a commit wrongly: is this a tensord server?")
    return found


def _is_commit(text: str) -> bool:
    return 0 < len(text) <= 71 and all(character in "0123456789abcdef" for character in text)
