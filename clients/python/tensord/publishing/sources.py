"""Where the bytes of a blob come from: memory, or a file, which must not change while it is sent."""
from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Tuple

from .. import errors
from ..net.bodies import Body, FileRange, Views, read_at
from ..options import MIB

HASH_BYTES = MIB  # of one read of a file
Counter = Callable[[int], None]  # called with numbers of bytes


class Source:
    """Bytes that may be read several times. `name` is for messages."""

    def __init__(self, nbytes: int, name: str):
        self.nbytes, self.name = nbytes, name

    def digest(self, on_read: Counter = lambda count: None,
               check: Callable[[], None] = lambda: None) -> str:
        """Computes the digest of all bytes. `check` is called now and then, and may raise. Raises OSError,
        TensordError for a file that has changed."""
        raise NotImplementedError

    def body(self, first: int, end: int, on_sent: Counter) -> "contextlib.AbstractContextManager[Body]":
        """Opens bytes [first, end) as a body. Raises OSError, TensordError for a file that has changed."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises TensordError for a file that has changed."""


class MemorySource(Source):
    """The bytes of views, one after the other."""

    def __init__(self, views: Sequence[memoryview], name: str = "the bytes"):
        super().__init__(sum(len(view) for view in views), name)
        self._views = views

    def digest(self, on_read: Counter = lambda count: None, check: Callable[[], None] = lambda: None) -> str:
        """See Source.digest."""
        digest = hashlib.sha256()
        for view in self._views:
            for at in range(0, len(view), 16 * MIB):
                check()
                digest.update(view[at : at + 16 * MIB])
                on_read(min(16 * MIB, len(view) - at))
        return f"sha256:{digest.hexdigest()}"

    @contextlib.contextmanager
    def body(self, first: int, end: int, on_sent: Counter) -> Iterator[Body]:
        """See Source.body."""
        yield Views(lambda: self._cut(first, end), end - first, on_sent)

    def _cut(self, first: int, end: int) -> Iterator[memoryview]:
        at = 0
        for view in self._views:
            part = view[max(0, first - at) : max(0, end - at)]
            at += len(view)
            if len(part):
                yield part


Identity = Tuple[int, int, int, int, int]


def identity_of(about: os.stat_result) -> Identity:
    """Returns what changes when a file is written to or replaced."""
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


class FileSource(Source):
    """A regular file, from byte `begin` on. It is opened for each use, unless `fd` is given, which stays the caller's.

    Raises OSError.
    """

    def __init__(self, path: Any, name: str, about: os.stat_result, fd: Optional[int] = None, begin: int = 0):
        super().__init__(max(0, about.st_size - begin), name)
        self._path, self._fd, self._begin, self._identity = path, fd, begin, identity_of(about)

    @contextlib.contextmanager
    def _open(self) -> Iterator[int]:
        fd = os.open(self._path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)) if self._fd is None else self._fd
        try:
            self._compare(fd)
            yield fd
        finally:
            if self._fd is None:
                os.close(fd)

    def _compare(self, fd: int) -> None:
        if identity_of(os.fstat(fd)) != self._identity:
            raise errors.TensordError(f"{self.name} has changed since it was read: push it when nothing writes to it")

    def check(self) -> None:
        """See Source.check."""
        with self._open():
            pass

    def digest(self, on_read: Counter = lambda count: None, check: Callable[[], None] = lambda: None) -> str:
        """See Source.digest."""
        digest, done = hashlib.sha256(), 0
        buffer = memoryview(bytearray(max(1, min(HASH_BYTES, self.nbytes))))
        with self._open() as fd:
            while done < self.nbytes:
                check()
                count = read_at(fd, buffer[: min(len(buffer), self.nbytes - done)], self._begin + done)
                if count == 0:
                    break
                digest.update(buffer[:count])
                done += count
                on_read(count)
            self._compare(fd)
        return f"sha256:{digest.hexdigest()}"

    @contextlib.contextmanager
    def body(self, first: int, end: int, on_sent: Counter) -> Iterator[Body]:
        """See Source.body."""
        with self._open() as fd:
            yield FileRange(fd, self._begin + first, end - first, self.name, on_sent)


def bytes_view(buffer: Any) -> memoryview:
    """Returns the bytes of an object with a buffer. Raises TypeError, and BufferError if they are not contiguous."""
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise BufferError("the memory is not contiguous: copy it first")
    if view.nbytes == 0:
        return memoryview(b"")
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def split_views(views: Iterable[memoryview], nbytes: int) -> Iterator[memoryview]:
    """Cuts views into parts of at most `nbytes`."""
    for view in views:
        for at in range(0, len(view), nbytes):
            yield view[at : at + nbytes]
