"""Large reads: ranges of one resource over several connections, straight into their destinations.

The resource is cut into jobs; each worker takes the next job from one cursor. A job that is cut resumes where it ended,
on the next server if there are several. Every request names the version that was agreed on (If-Match). Every
answer must have the requested range, length and version, which is checked before its first byte is used.
"""
from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

from .. import errors
from ..address import Endpoint
from . import http
from .http import Connection
from .progress import Progress
from .retry import RETRIED_STATUSES, Fault, Patience, Servers, attempt, retry_after
from .session import Session
from .workers import watch


@dataclass
class Resource:
    """A resource on one server: its path, entity tag and length in bytes."""

    path: str
    etag: str
    nbytes: int


class Source(Servers):
    """A resource on several servers. `locate` asks one server for it; the answers are cached, and requested again when
    the server has forgotten the resource. Thread-safe.

    `one_tag`: all answers must have the entity tag and the length of the first; others raise ChangedError. Without it
    the request alone determines the bytes.
    """

    def __init__(self, endpoints: Sequence[Endpoint], locate: Callable[[Endpoint], Resource], one_tag: bool = False):
        super().__init__(endpoints)
        self._locate = locate
        self._one_tag = one_tag
        self._version: Optional[Tuple[str, int]] = None
        self._found: Dict[Endpoint, Resource] = {}
        self._turns: Dict[Endpoint, threading.Lock] = {}

    def on(self, endpoint: Endpoint) -> Resource:
        """Returns the resource on a server. Raises as `locate`."""
        with self._lock:
            turn = self._turns.setdefault(endpoint, threading.Lock())
        with turn:  # one worker asks, the others wait for its answer
            found = self._found.get(endpoint)
            if found is None:
                found = self._locate(endpoint)
                with self._lock:
                    version = self._version = self._version or (found.etag, found.nbytes)
                if self._one_tag and version != (found.etag, found.nbytes):
                    where = f"{endpoint}{found.path}"
                    raise errors.ChangedError(f"{where} is another version than this load began with: load again", 412,
                                              "FAILED_PRECONDITION", where)
                self._found[endpoint] = found
            return found

    def found_on(self, endpoint: Endpoint) -> Resource:
        """Returns the resource on a server. Raises Fault for an error that another try may cure."""
        try:
            return self.on(endpoint)
        except (errors.ChangedError, errors.NotFoundError) as error:
            raise Fault(error, lasting=True) from error
        except errors.AnswerError as error:
            if error.status not in RETRIED_STATUSES:
                raise
            raise Fault(error) from error
        except (errors.ConnectError, errors.ProtocolError) as error:
            raise Fault(error) from error

    def first(self, patience: Patience) -> Resource:
        """Returns the resource on the first server that has it; asks all of them again until the patience ends.

        Raises NotFoundError and other refusals of a server; ConnectError, ProtocolError.
        """
        return attempt(self, patience, self.found_on)

    def forget(self, endpoint: Endpoint) -> None:
        """Makes the next `on` ask the server again."""
        self._found.pop(endpoint, None)


@dataclass
class Job:
    """Bytes of the resource from `offset` on, into `views` one after the other.

    With `finish` the bytes are received into memory from `borrow`; `finish` gets that memory when all bytes have
    arrived, and returns it to its ring. Without it, `arrived` gets the job's offset and length when all bytes are in
    the views. Both are called on the thread that received the bytes.
    """

    offset: int
    nbytes: int
    views: List[memoryview] = field(default_factory=list)
    finish: Optional[Callable[[memoryview], None]] = None
    arrived: Optional[Callable[[int, int], None]] = None


class Stop:
    """Ends a read that another thread does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._run: Optional["_Run"] = None
        self._stopped = False

    def stop(self) -> None:
        """Ends the read, now or when it begins. Returns when no thread writes to its destinations."""
        with self._lock:
            self._stopped = True
            run = self._run
        if run is not None:
            run.stop(_stopped())
            run.wait_idle()

    def begin(self, run: "_Run") -> None:
        """Makes `stop` end this run. Raises TensordError after `stop`."""
        with self._lock:
            self._run = run
            if self._stopped:
                raise _stopped()


def _stopped() -> errors.TensordError:
    return errors.TensordError("the read was stopped")


def read(
    session: Session,
    source: Source,
    jobs: Sequence[Job],
    progress: Progress,
    borrow: Optional[Callable[[threading.Event], memoryview]] = None,
    stop: Optional[Stop] = None,
) -> None:
    """Does all jobs, over as many connections as the options allow. Returns when every byte is in its destination.

    Raises the first error that ended a job: ConnectError, ProtocolError, AnswerError, ChangedError; an error of
    `finish` or `arrived`; KeyboardInterrupt; TensordError when it was stopped. Nothing is written to destinations from
    then on; they hold parts.
    """
    run = _Run(session, source, jobs, progress, borrow)
    if stop is not None:
        stop.begin(run)
    count = min(session.options.connections, len(jobs))
    if count <= 1:
        run.work(0)
    else:
        threads = [threading.Thread(target=run.work_apart, args=(number,), name=f"tensord-{number}", daemon=True)
                   for number in range(count)]
        watch(threads, run.interrupt)
    if run.error is not None:
        raise run.error


class _Run:
    """One call of `read`."""

    def __init__(self, session: Session, source: Source, jobs: Sequence[Job], progress: Progress,
                 borrow: Optional[Callable[[threading.Event], memoryview]]):
        self.session, self.source, self.progress, self.borrow = session, source, progress, borrow
        self.error: Optional[BaseException] = None
        self.stopping = threading.Event()
        self._jobs = iter(jobs)
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._busy: Set[Connection] = set()
        self._finishing = 0  # workers that run a job's `finish`

    def interrupt(self, error: BaseException) -> None:
        """Ends the run, and waits until no worker writes to memory. A worker that connects, or asks for the resource,
        ends by itself when it is answered."""
        self.stop(error)
        self.wait_idle()

    def wait_idle(self) -> None:
        """Waits until no worker writes to memory. After `stop` none begins to."""
        with self._idle:
            while self._busy or self._finishing:
                self._idle.wait(1.0)

    def stop(self, error: BaseException) -> None:
        """Stores the first error, and breaks the connections that workers wait for."""
        with self._lock:
            if self.error is None:
                self.error = error
            self.stopping.set()
            busy = list(self._busy)
        for connection in busy:
            connection.stop()

    def work_apart(self, number: int) -> None:
        """Works in a thread of its own: stores an error for the caller's thread."""
        try:
            self.work(number)
        except BaseException as error:
            self.stop(error)

    def work(self, number: int) -> None:
        """Does jobs from the cursor until it ends."""
        while not self.stopping.is_set():
            with self._lock:
                job = next(self._jobs, None)
            if job is None:
                return
            if job.finish is None:
                self._do(job, job.views, number)
                if job.arrived is not None:
                    job.arrived(job.offset, job.nbytes)
            else:
                assert self.borrow is not None
                memory = self.borrow(self.stopping)
                self._do(job, [memory[: job.nbytes]], number)
                with self._lock:
                    if self.stopping.is_set():
                        return
                    self._finishing += 1
                try:
                    job.finish(memory)
                finally:
                    with self._idle:
                        self._finishing -= 1
                        self._idle.notify_all()

    def _do(self, job: Job, views: Sequence[memoryview], number: int) -> None:
        """Receives the bytes of a job, with as many tries as needed."""
        destination = _Destination(views)
        if job.nbytes:
            attempt(self.source, Patience(self.session.options, self.stopping),
                    lambda endpoint: self._receive(endpoint, job, destination), number, lambda: destination.done)

    def _receive(self, endpoint: Endpoint, job: Job, destination: "_Destination") -> None:
        """Asks one server for the rest of a job, and receives as much as comes. Raises Fault."""
        resource = self.source.found_on(endpoint)
        try:
            connection = self.session.pool.take(endpoint)
        except (errors.ConnectError, errors.ProtocolError) as error:
            raise Fault(error) from error
        with self._lock:
            stopped = self.stopping.is_set()
            if not stopped:
                self._busy.add(connection)
        answer = None
        try:
            if not stopped:
                answer = self._begin(connection, resource, job.offset + destination.done, job.offset + job.nbytes)
                self._fill(answer, destination)
        except http.Dropped as error:
            raise Fault(errors.ConnectError(str(error))) from error
        except (errors.SetupError, errors.ProtocolError) as error:
            raise Fault(error) from error
        finally:
            with self._idle:
                self._busy.discard(connection)
                self._idle.notify_all()
            if answer is not None and answer.finished and not self.stopping.is_set():
                self.session.pool.give(connection)
            else:
                self.session.pool.drop(connection)

    def _fill(self, answer: http.Answer, destination: "_Destination") -> None:
        while answer.left > 0:
            try:
                answer.receive_into(destination.rest)
            finally:  # bytes before a cut count too
                destination.advance(answer.connection.received)
                self.progress.add(answer.connection.received)

    def _begin(self, connection: Connection, resource: Resource, begin: int, end: int) -> http.Answer:
        """Requests bytes [begin, end), and returns the answer if it is exactly these, of the right version."""
        fields = {"Range": f"bytes={begin}-{end - 1}", "If-Match": resource.etag, "If-Range": resource.etag}
        answer = connection.request("GET", resource.path, fields)
        where = f"{connection.endpoint}{resource.path}"
        if answer.status >= 300:
            error = http.error_of(answer, resource.path)
            if answer.status == 404:  # the server may have forgotten a plan: it is registered again
                self.source.forget(connection.endpoint)
                raise Fault(errors.ProtocolError(str(error)))
            if answer.status in (412, 416):
                raise Fault(_changed(error, where), lasting=True)
            if answer.status in RETRIED_STATUSES:
                raise Fault(error, retry_after(answer))
            raise error
        etag = answer.fields.get("etag", "")
        if not etag:
            raise errors.ProtocolError(f"{where} answered without an entity tag: does a proxy take it away?")
        if etag != resource.etag:
            raise Fault(_changed(None, where), lasting=True)
        whole = begin == 0 and end == resource.nbytes
        if answer.status == 200 and not whole:
            raise errors.ProtocolError(f"{where} answered 200 to a request for a range, where 206 is right: a server "
                                       "or proxy that ignores Range cannot be used; ask the server itself, or let the "
                                       "proxy pass Range on")
        if answer.status not in (200, 206):
            raise errors.ProtocolError(f"{where} answered {answer.status} to a request for a range, where 206 is "
                                       "right: is this a tensord server?")
        if answer.status == 206:
            _check_content_range(answer.fields.get("content-range", ""), begin, end, resource.nbytes, where)
        if answer.length is None:
            raise errors.ProtocolError(f"{where} answered a range in chunks, without its length")
        if answer.length != end - begin:
            raise errors.ProtocolError(f"{where} answered {answer.length} bytes, where {end - begin} were asked for")
        return answer


class _Destination:
    """Where the next byte goes: a position in a list of views."""

    def __init__(self, views: Sequence[memoryview]):
        self._views = [view for view in views if len(view)]
        self._number = 0
        self._at = 0
        self.done = 0

    @property
    def rest(self) -> memoryview:
        """The rest of the view that is being filled."""
        return self._views[self._number][self._at :]

    def advance(self, count: int) -> None:
        """Advances by `count` bytes, at most the rest."""
        self.done += count
        self._at += count
        if self._at == len(self._views[self._number]):
            self._number, self._at = self._number + 1, 0


def _changed(error: Optional[errors.AnswerError], where: str) -> errors.ChangedError:
    reason = f" ({error})" if error is not None else ""
    return errors.ChangedError(f"the checkpoint at {where} changed while it was being read{reason}; the bytes that "
                               "were loaded are of one version, but not all of it: load again; call refresh() of an "
                               "open model first", 412,
                               "FAILED_PRECONDITION", where)


def _check_content_range(text: str, begin: int, end: int, nbytes: int, where: str) -> None:
    match = re.fullmatch(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)", text)
    if not match or (int(match[1]), int(match[2])) != (begin, end - 1) or match[3] not in (str(nbytes), "*"):
        raise errors.ProtocolError(f"{where} answered the range {text!r}, where bytes {begin}-{end - 1}/{nbytes} were "
                                   "asked for")
