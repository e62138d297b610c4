"""Threads that do jobs over the connections of a session, until all are done or one fails."""
from __future__ import annotations

import threading
import time
from typing import Callable, Iterable, List, Optional, Sequence, TypeVar

from .session import Session

J = TypeVar("J")
LEAVE_SECONDS = 1.0  # for threads to end after an interrupt


def do_all(session: Session, jobs: Iterable[J], do: Callable[[Session, J, threading.Event], None], count: int) -> None:
    """Calls `do` for each job, in up to `count` threads, and returns when all are done.

    `do` gets a session with the same servers, the job, and an event that is set when it is to give up. Raises the first
    error that ended a job, and KeyboardInterrupt; then the connections of all jobs are broken.
    """
    crew = _Crew(session, jobs, do)
    if count <= 1:
        crew.work()
    else:
        watch([threading.Thread(target=crew.work_apart, name=f"tensord-{number}", daemon=True)
               for number in range(count)], crew.stop)
    if crew.error is not None:
        raise crew.error


class _Crew:
    """One call of `do_all`."""

    def __init__(self, session: Session, jobs: Iterable[J], do: Callable[[Session, J, threading.Event], None]):
        self.error: Optional[BaseException] = None
        self._session, self._jobs, self._do = session.lent(), iter(jobs), do
        self._stopping = threading.Event()
        self._lock = threading.Lock()

    def work(self) -> None:
        """Does jobs until there are no more."""
        while not self._stopping.is_set():
            with self._lock:
                job = next(self._jobs, None)
            if job is None:
                return
            self._do(self._session, job, self._stopping)

    def work_apart(self) -> None:
        """Works in a thread of its own: stores an error for the caller's thread."""
        try:
            self.work()
        except BaseException as error:
            self.stop(error)

    def stop(self, error: BaseException) -> None:
        """Stores the first error, and breaks the connections of the others."""
        with self._lock:
            if self.error is None:
                self.error = error
            self._stopping.set()
        self._session.break_lent()


def watch(threads: Sequence[threading.Thread], stop: Callable[[BaseException], None]) -> None:
    """Starts threads and waits for them. After an interrupt it calls `stop`, which makes them end, and raises again."""
    begun: List[threading.Thread] = []
    try:
        for thread in threads:
            begun.append(thread)
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(1.0)
    except BaseException as error:
        if isinstance(error, Exception):
            begun.pop()  # start() has failed
        stop(error)
        end = time.monotonic() + LEAVE_SECONDS
        for thread in begun:
            _join(thread, end)
        raise


def _join(thread: threading.Thread, end: float) -> None:
    """Waits until a thread has ended, until `end` at the latest. An interrupt of start() leaves a thread that begins a
    moment later: then it would still write, or crash an interpreter that ends."""
    while True:
        try:
            thread.join(max(0.0, end - time.monotonic()))
            return
        except RuntimeError:  # it has not begun
            if time.monotonic() >= end:
                return
            time.sleep(0.01)
