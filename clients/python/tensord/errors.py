"""The errors of this package. Each message names what failed, where, and what to do about it."""
from __future__ import annotations

import contextlib
from typing import Any, Iterator, Tuple

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

    `status` is the HTTP status, `code` the server's name for the error ("": the answer has none), `url` the request's.
    """

    def __init__(self, message: str, status: int = 0, code: str = "", url: str = ""):
        super().__init__(message)
        self.status = status
        self.code = code
        self.url = url

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.args[0], self.status, self.code, self.url)


class NotFoundError(AnswerError, LookupError):
    """The server does not have the model, checkpoint, tensor, dataset, split or file."""


class ChangedError(AnswerError):
    """The checkpoint changed on the server after this load began. Do not use what was loaded so far; load again."""


class DatasetChanged(ChangedError):
    """The split's files differ from those at the opening of the dataset, or from those of a saved state. No row of them
    was returned; open the dataset again."""


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
