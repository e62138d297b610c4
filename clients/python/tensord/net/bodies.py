"""Bodies of requests: views of memory, and ranges of files."""
from __future__ import annotations

import os
import threading
from typing import Callable, Iterable, Iterator, Optional, Protocol

from .. import errors
from ..options import MIB

SEND_BYTES = MIB  # between two looks whether the server has answered already
_reading = threading.Lock()
READ_BYTES = 256 * 1024  # of a file, where the kernel cannot send it


class Sink(Protocol):
    """A connection, as a body uses it."""

    @property
    def has_answered(self) -> bool:
        """See Connection."""

    @property
    def can_send_files(self) -> bool:
        """See Connection."""

    def send_part(self, view: memoryview) -> int:
        """See Connection."""

    def send_file(self, fd: int, offset: int, count: int) -> Optional[int]:
        """See Connection."""


class Body:
    """A body of `nbytes`; None: of any length, sent in chunks. It may be sent again from its beginning.

    `on_sent` is called with the number of bytes that were just sent.
    """

    def __init__(self, nbytes: Optional[int], on_sent: Optional[Callable[[int], None]] = None):
        self.nbytes = nbytes
        self.on_sent = on_sent or (lambda count: None)

    def send_to(self, connection: Sink) -> None:
        """Sends all bytes, or fewer if the server answers before their end. Raises Dropped."""
        for view in self.views():
            for at in range(0, len(view), SEND_BYTES):
                count = connection.send_part(view[at : at + SEND_BYTES])
                self.on_sent(count)
                if connection.has_answered:
                    return

    def views(self) -> Iterator[memoryview]:
        """Returns the bytes, as views of bytes one after the other."""
        raise NotImplementedError


class Views(Body):
    """A body of views of bytes. `make` returns them, and is called again when the body is sent again."""

    def __init__(self, make: Callable[[], Iterable[memoryview]], nbytes: Optional[int] = None,
                 on_sent: Optional[Callable[[int], None]] = None):
        super().__init__(nbytes, on_sent)
        self._make = make

    def views(self) -> Iterator[memoryview]:
        """Returns the views."""
        return iter(self._make())


class FileRange(Body):
    """Bytes [first, first + nbytes) of an open file, which the kernel sends where it can. `name` is for messages."""

    def __init__(self, fd: int, first: int, nbytes: int, name: str, on_sent: Optional[Callable[[int], None]] = None):
        super().__init__(nbytes, on_sent)
        self._fd, self._first, self._count, self._name = fd, first, nbytes, name

    def send_to(self, connection: Sink) -> None:
        """Sends all bytes, or fewer if the server answers before their end. Raises Dropped; TensordError for a file
        that has become shorter."""
        if not connection.can_send_files:
            super().send_to(connection)
            return
        done = 0
        while done < self._count and not connection.has_answered:
            count = connection.send_file(self._fd, self._first + done, min(self._count - done, SEND_BYTES))
            if count is None:  # this kind of file cannot be sent so
                if done:
                    raise self._too_short()
                super().send_to(connection)
                return
            if count == 0 and not connection.has_answered:
                raise self._too_short()
            done += count
            self.on_sent(count)

    def views(self) -> Iterator[memoryview]:
        """Reads the bytes into one buffer after the other. Raises TensordError for a file that has become shorter."""
        buffer = memoryview(bytearray(min(READ_BYTES, self._count)))
        done = 0
        while done < self._count:
            count = read_at(self._fd, buffer[: min(len(buffer), self._count - done)], self._first + done)
            if count == 0:
                raise self._too_short()
            yield buffer[:count]
            done += count

    def _too_short(self) -> errors.TensordError:
        return errors.TensordError(f"{self._name} became shorter while it was sent")


def read_at(fd: int, view: memoryview, offset: int) -> int:
    """Reads bytes of a file at an offset into a view, and returns their number; 0 at the end of the file."""
    if hasattr(os, "preadv"):
        return os.preadv(fd, [view], offset)
    with _reading:  # Windows has no read at an offset
        os.lseek(fd, offset, os.SEEK_SET)
        data = os.read(fd, len(view))
    view[: len(data)] = data
    return len(data)
