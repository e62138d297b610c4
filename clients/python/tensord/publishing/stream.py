"""A blob that is sent while it is written, and hashed on both sides."""
from __future__ import annotations

import hashlib
import io
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, List, Optional

from .. import errors
from ..address import Endpoint
from ..net import http
from ..net.retry import Fault, Patience, Servers, attempt
from ..net.session import Session
from ..options import MIB
from .place import ANSWER_SECONDS, Blob, Place, State, read_state, refusal
from .sources import MemorySource, bytes_view

BUFFER_BYTES = MIB  # of small writes; a blob of at most this length is sent when it is whole, with retries
APART_BYTES = 256 * 1024  # of a write that another thread hashes while it is sent
STEP_BYTES = 64 * MIB  # that are hashed and sent at the same time


class BlobStream(io.RawIOBase):
    """A writable stream whose bytes go to the server as a blob. For one thread at a time, and no other process.

    `write` takes the memory of any contiguous buffer without a copy, and returns when it may be changed. A connection
    that breaks while bytes are sent is an error, since they are not kept: write the blob again. `close` ends the blob;
    an exception within `with`, or an error of `write`, drops it.
    """

    def __init__(self, session: Session, place: Place, size: Optional[int], send: Callable[[MemorySource], Blob]):
        super().__init__()
        self._session, self._path, self._size, self._send = session.lent(), place.path("blobs"), size, send
        self._held = bytearray()  # small writes
        self._connection: Optional[http.Connection] = None
        self._hasher: Optional[ThreadPoolExecutor] = None
        self._digest = hashlib.sha256()
        self._written = 0
        self._has_begun = False
        self._error: Optional[BaseException] = None
        self._blob: Optional[Blob] = None
        self._pid = os.getpid()

    @property
    def error(self) -> Optional[BaseException]:
        """The error with which the stream has failed; None: it has not."""
        return self._error

    @property
    def has_begun(self) -> bool:
        """Whether a server takes bytes of the blob; false also when none could be reached, or none wanted them."""
        return self._has_begun

    @property
    def blob(self) -> Blob:
        """The blob, after `close`. Raises ValueError before."""
        if self._blob is None:
            raise ValueError("the stream has not been closed, or it failed: there is no blob")
        return self._blob

    def writable(self) -> bool:
        """Returns True."""
        return True

    def tell(self) -> int:
        """Returns the number of bytes that were written."""
        return self._written

    def write(self, buffer: Any) -> int:
        """Writes all bytes of a buffer, and returns their number.

        Raises ValueError for more bytes than `size`, BufferError for memory that is not contiguous; AnswerError when
        the server refuses the blob, ConnectError, ProtocolError. After an error the stream can only be closed.
        """
        view = bytes_view(buffer)
        self._check()
        if self._size is not None and self._written + len(view) > self._size:
            raise ValueError(f"{self._written + len(view)} bytes were written to a stream of {self._size}")
        self._written += len(view)
        if len(self._held) + len(view) <= BUFFER_BYTES:
            self._held += view
            return len(view)
        try:
            self._pass_on([memoryview(bytes(self._held)), view])
        except BaseException as error:
            self._fail(error)
            raise
        self._held.clear()
        return len(view)

    def _check(self) -> None:
        if self.closed:
            raise ValueError("the stream is closed")
        if self._pid != os.getpid():
            raise errors.TensordError("the stream is of another process: a stream cannot be used after fork")
        if self._error is not None:
            raise errors.TensordError(f"the stream has failed: {self._error}") from self._error

    def _pass_on(self, views: List[memoryview]) -> None:
        """Hashes and sends bytes. The first ones open the connection, with retries."""
        if self._connection is None:
            self._connection = attempt(Servers(self._session.endpoints), Patience(self._session.options), self._begin)
            self._has_begun = True
        for view in views:
            for at in range(0, len(view), STEP_BYTES):
                self._step(self._connection, view[at : at + STEP_BYTES])

    def _begin(self, endpoint: Endpoint) -> http.Connection:
        """Begins the request. Raises Fault, and AnswerError when the server refuses the blob before its bytes."""

        def begin(connection: http.Connection) -> http.Connection:
            connection.begin("POST", self._path, None, self._size)
            return connection

        connection = self._session.begin_on(endpoint, begin)
        if connection.has_answered:
            self._finish(connection)
            raise Fault(errors.ProtocolError(f"{endpoint}{self._path} answered before the blob was sent"))
        return connection

    def _step(self, connection: http.Connection, view: memoryview) -> None:
        hashed: Optional["Future[None]"] = None
        if len(view) >= APART_BYTES:
            self._hasher = self._hasher or ThreadPoolExecutor(1, "tensord-hash")
            hashed = self._hasher.submit(self._digest.update, view)
        else:
            self._digest.update(view)
        try:
            done = 0
            while done < len(view) and not connection.has_answered:
                done += connection.send_part(view[done : done + MIB])
        except http.Dropped as error:
            raise errors.ConnectError(f"{error}, after {self._written} bytes of a blob were written: write it "
                                      "again") from error
        finally:
            if hashed is not None:
                hashed.result()
        if connection.has_answered:
            self._refused(connection)

    def _refused(self, connection: http.Connection) -> None:
        """Raises the error of a server that answered before the end of the blob."""
        self._connection = None
        try:
            self._finish(connection)
        except Fault as fault:
            raise fault.error from None
        raise errors.ProtocolError(f"{self._path}: the server answered before the end of the blob")

    def _finish(self, connection: http.Connection) -> State:
        """Reads the answer, and returns the connection to its pool. Raises Fault, AnswerError."""
        try:
            answer = connection.read_head("POST", ANSWER_SECONDS)
        except http.Dropped as error:
            self._session.pool.drop(connection)
            raise Fault(errors.ConnectError(f"{error}: write the blob again")) from error
        except BaseException:
            self._session.pool.drop(connection)
            raise
        return self._session.end(answer, self._path, lambda answer: read_state(answer, self._path), refusal)

    def _fail(self, error: BaseException) -> None:
        """Drops the blob: the connection ends before it is whole."""
        self._error = self._error or error
        connection, self._connection = self._connection, None
        if self._pid != os.getpid():  # the pool has closed this process's descriptor
            return
        if connection is not None:
            self._session.pool.drop(connection)
        if self._hasher is not None:
            self._hasher.shutdown(wait=False)

    def close(self) -> None:
        """Ends the blob, and waits until the server has it. Nothing happens on a stream that is closed or has failed.

        Raises as `write`; ValueError for fewer bytes than `size`; DigestError if the server got other bytes.
        """
        if self.closed:
            return
        super().close()
        if self._error is not None or self._pid != os.getpid():
            return
        try:
            self._blob = self._end()
        except BaseException as error:
            self._fail(error)
            raise
        if self._hasher is not None:
            self._hasher.shutdown(wait=False)

    def _end(self) -> Blob:
        if self._size is not None and self._written != self._size:
            raise ValueError(f"{self._written} bytes were written to a stream of {self._size}")
        if self._connection is None:
            return self._send(MemorySource([memoryview(self._held)]))
        self._pass_on([memoryview(self._held)])
        connection = self._connection
        try:
            connection.end()
        except http.Dropped as error:
            raise errors.ConnectError(f"{error}: write the blob again") from error
        self._connection = None
        try:
            state = self._finish(connection)
        except Fault as fault:
            raise fault.error from None
        blob = Blob(f"sha256:{self._digest.hexdigest()}", self._written)
        if (state.digest, state.size) != (blob.digest, blob.size) or not state.complete:
            raise errors.DigestError(f"{self._path}: the server got {state.size} bytes with the digest {state.digest}, "
                                     f"where {blob.size} with {blob.digest} were sent: they changed on their way", 422)
        return blob

    def abort(self) -> None:
        """Drops the blob, and closes the stream."""
        if not self.closed:
            self._fail(errors.TensordError("it was aborted"))
            super().close()

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        self.abort()


