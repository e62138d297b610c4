"""Which repository a URL names, and what a server answers about it."""
from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple, Type

from .. import errors
from ..address import Endpoint, Urls, dataset_path, parse, path_of
from ..net import http
from ..net.session import Session
from ..options import Options, of

MAX_STATE_BYTES = 1024 * 1024  # of an answer about a blob
MAX_REPLY_BYTES = 64 * 1024 * 1024  # of an answer about a commit, which may name 100,000 blobs
ANSWER_SECONDS = 600.0  # for the server to hash and to sync after the last byte of a body

_KINDS: Mapping[int, Type[errors.AnswerError]] = {412: errors.ConflictError, 422: errors.DigestError}
_ADVICE: Mapping[int, str] = {
    404: "is the URL that of a tensord with --publish?",
    405: "the server takes no uploads: its operator starts it with --publish",
    411: "is the URL that of a tensord with --publish?",  # others take no bodies in chunks
    412: "somebody else has changed it: look at the new state, and give its commit as parent",
    413: "it is more than the server takes; one without --publish takes no large bodies",
    422: "the source was changed while it was sent, or its bytes on the way",
    507: "its operator makes room, or raises --publish-max-bytes",
}


@dataclass(frozen=True)
class Blob:
    """Bytes that a server has: their digest, "sha256:" and 64 hexadecimal digits, and their number."""

    digest: str
    size: int


@dataclass(frozen=True)
class Place:
    """A repository on a server, and what a URL says beside it: `id` of the model or dataset, the `revision` (None: the
    URL has none), and the `folder` that paths are below ("": the repository)."""

    endpoint: Endpoint
    id: str
    is_dataset: bool = False
    revision: Optional[str] = None
    folder: str = ""

    @property
    def name(self) -> str:
        """The id, of a dataset with "datasets/" before it."""
        return f"datasets/{self.id}" if self.is_dataset else self.id

    def path(self, *rest: str) -> str:
        """Returns a path of the repository on the server; `rest` is encoded already."""
        return dataset_path(self.id, *rest) if self.is_dataset else path_of(self.id, *rest)

    def inside(self, path: str) -> str:
        """Returns the path in the repository of a path below the folder."""
        return f"{self.folder}/{path}" if self.folder else path

    def __str__(self) -> str:
        return f"{self.endpoint}{self.path()}"


def place_of(url: Urls) -> Place:
    """Decodes the URL of a repository or of a path in it: an id of one or two parts, `@revision` if any, and a path.
    An id of one part is followed by nothing or by `@revision`.

    Raises AddressError.
    """
    address = parse(url)
    name = address.model or address.dataset
    if len(address.endpoints) > 1:
        raise errors.AddressError(f"there are several servers, and writing is to one: {url}")
    if not name or any(part is not None for part in (address.checkpoint, address.version, address.split)):
        raise errors.AddressError(f"{url!r} does not name what to write to: it is tensord://host:port/org/name or "
                                  "https://host:port/models/org/name, with nothing after a question mark")
    parts = name.split("/")
    count = 1 if "@" in parts[0] else min(2, len(parts))
    identity, at, revision = "/".join(parts[:count]).partition("@")
    if not identity or (at and not revision) or any(part in ("", ".", "..") for part in parts):
        raise errors.AddressError(f"{url!r} does not name what to write to: a part of it is empty, or a dot")
    return Place(address.endpoints[0], identity, bool(address.dataset), revision or None, "/".join(parts[count:]))


def open_place(url: Urls, options: Optional[Options] = None, **given: Any) -> Tuple[Session, Place]:
    """Returns a session with the server of a URL, and the place that the URL names. Raises AddressError, TypeError."""
    place = place_of(url)
    return Session([place.endpoint], of(options, **given)), place


def refusal(answer: http.Answer, path: str) -> errors.AnswerError:
    """Returns the error of an answer that refuses a write; its message says who has to act."""
    advice: Dict[int, str] = dict(_ADVICE)
    if answer.connection.options.find_token():
        advice[403] = "the token needs the right to write this: tensord token new NAME --write --models GLOB"
    else:
        advice[403] = "this machine may not write there: see --publish and --tokens of the server"
    limit = MAX_REPLY_BYTES if answer.status == 409 else http.ERROR_TEXT_BYTES
    error = http.error_of(answer, path, _KINDS, advice, limit)
    if answer.status == 409 and isinstance(error.details, dict) and "missing" in error.details:
        return errors.MissingBlobsError(str(error.args[0]), 409, error.code, error.url, error.details)
    return error


@dataclass(frozen=True)
class State:
    """The state of a blob on a server: `complete`, or with `missing` ranges [first, end)."""

    digest: str
    size: int
    complete: bool
    missing: List[Tuple[int, int]]


def read_state(answer: http.Answer, path: str) -> State:
    """Reads an answer about a blob. Raises ProtocolError, Dropped."""
    url = f"{answer.connection.endpoint}{path}"
    try:
        about = json.loads(answer.read(MAX_STATE_BYTES))
        digest, size, complete = about["digest"], about["size"], about["complete"]
        missing = about.get("missing", [])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise errors.ProtocolError(f"{url} did not describe a blob: is this a tensord server?") from None
    if not (isinstance(digest, str) and re.fullmatch("sha256:[0-9a-f]{64}", digest) and type(size) is int and
            size >= 0 and isinstance(complete, bool)):
        raise errors.ProtocolError(f"{url} described a blob wrongly: is this a tensord server?")
    return State(digest, size, complete, errors.ranges_of(missing, url))
