"""The errors of this package. Each message names what failed, where, and what to do about it."""
from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, Tuple

try:  # code that catches safetensors' error catches ours
    from safetensors import SafetensorError as SafetensorError
except ImportError:

    class SafetensorError(Exception):  # type: ignore[no-redef]
        """Stands for safetensors' error where that package is not installed."""


def printable(text: str) -> str:
    """Returns a server's text for a terminal: unprintable characters become escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class TensordError(Exception):
    """The base of all errors that this package raises by itself."""


class AddressError(TensordError, ValueError):
    """A URL that is not one of a tensord server or of a model on one."""


class ConnectError(TensordError, ConnectionError):
    """No server could be reached, or all stopped answering for longer than `retry_for`."""


class SetupError(ConnectError):
    """A connection that no retry can make: the server's certificate is not trusted, the server refuses the client's
    or wants one, or the proxy of the environment refuses or cannot be used. With several servers, the others are asked;
    raised at once if none remains."""


class ProtocolError(TensordError, ConnectionError):
    """An answer that breaks HTTP or does not fit the request, such as 200 for a range. None of its bytes were used."""


class AnswerError(TensordError):
    """A server refused a request.

    `status` is the HTTP status, `code` the server's name for the error ("": the answer has none), `url` the request's,
    `details` what the answer says beside its message (None: nothing).
    """

    def __init__(self, message: str, status: int = 0, code: str = "", url: str = "", details: Any = None):
        super().__init__(message)
        self.status = status
        self.code = code
        self.url = url
        self.details = details

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.args[0], self.status, self.code, self.url, self.details)


class NotFoundError(AnswerError, LookupError):
    """The server does not have the model, checkpoint, tensor, dataset, split or file."""


class ChangedError(AnswerError):
    """The checkpoint changed on the server after this load began. Do not use what was loaded so far; load again."""


class DatasetChanged(ChangedError):
    """The split's files differ from those at the opening of the dataset, or from those of a saved state. No row of them
    was returned; open the dataset again."""


class ConflictError(AnswerError):
    """The revision is not at the commit that `parent=` names: another writer was first, and nothing was changed."""

    @property
    def commit(self) -> str:
        """The commit that the revision is at; "" if there is none, or the server does not say it."""
        commit = self.details.get("commit") if isinstance(self.details, dict) else None
        return printable(commit) if isinstance(commit, str) else ""


class MissingBlobsError(AnswerError):
    """A commit names blobs that the server does not have, or not all bytes of: send them, and commit again.

    `missing`: for each the digest, and the ranges of bytes [first, end) that are missing; an empty list: all of it.
    """

    @property
    def missing(self) -> Dict[str, List[Tuple[int, int]]]:
        """The missing blobs. Raises ProtocolError for an answer that does not name them as it should."""
        listed = self.details.get("missing") if isinstance(self.details, dict) else None
        if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
            raise ProtocolError(f"{self.url} does not say which blobs are missing: is this a tensord server?")
        found: Dict[str, List[Tuple[int, int]]] = {}
        for one in listed:
            digest = one.get("digest")
            if not isinstance(digest, str) or digest in found:
                raise ProtocolError(f"{self.url} names a missing blob twice, or without a digest")
            found[digest] = ranges_of(one.get("missing", []), self.url)
        return found


def ranges_of(listed: Any, url: str) -> List[Tuple[int, int]]:
    """Decodes ranges of bytes [[first, last], ...], in order, to [first, end). Raises ProtocolError."""
    found: List[Tuple[int, int]] = []
    before = 0
    for one in listed if isinstance(listed, list) else [None]:
        if (not isinstance(one, list) or [type(bound) for bound in one] != [int, int] or
                not before <= one[0] <= one[1] < 2**63 - 1):
            raise ProtocolError(f"{url} answered ranges that are wrong, or not in order: is this a tensord server?")
        before = one[1] + 1
        found.append((one[0], before))
    return found


class DigestError(AnswerError):
    """The bytes that arrived have another SHA-256 than they should: they were changed while they were sent, or on the
    way. Nothing of them stays on the server."""


class VerifyError(TensordError):
    """The bytes of a tensor that arrived have another SHA-256 than those of the server. Do not use what was loaded."""


class MismatchError(TensordError, ValueError):
    """The destination of a load does not fit the checkpoint: names, shapes or dtypes differ."""


class FileError(TensordError, SafetensorError):
    """An error that safetensors itself raises as SafetensorError, with its message."""


class DecodeError(TensordError, ValueError):
    """A row that `decode` cannot read. The message has its number."""


@contextlib.contextmanager
def as_decode_error(what: str) -> Iterator[None]:
    """Converts any error of a library that decodes a file's bytes (OSError, OverflowError, KeyError and others) into a
    DecodeError with a message that begins with `what`. Passes on this package's errors, ImportError and Python's own
    MemoryError unchanged."""
    try:
        yield
    except (TensordError, ImportError):
        raise
    except Exception as error:
        if type(error) is MemoryError:
            raise
        raise DecodeError(f"{what}: {printable(str(error)) or type(error).__name__}") from error
