"""Decides when a request is sent again, and when the client gives up."""
from __future__ import annotations

import logging
import math
import random
import threading
import time
from typing import Callable, Dict, List, Optional, Sequence, TypeVar

from .. import errors
from ..address import Endpoint
from ..options import Options
from .http import Answer

T = TypeVar("T")
log = logging.getLogger("tensord")

RETRIED_STATUSES = (408, 429, 500, 502, 503, 504)
NO_ROOM = 507  # is retried if the server says when
WARN_AFTER = 4  # tries; some two seconds
MAX_WRONG_ANSWERS = 6  # wrong answers in a row; waiting does not cure them


class Fault(Exception):
    """A failed try. Another one may succeed: on the same server after `after` seconds, or only on another server if the
    fault is `lasting`, as a SetupError always is. `error` is raised if no other try follows."""

    def __init__(self, error: Exception, after: float = 0.0, lasting: bool = False):
        super().__init__(str(error))
        self.error, self.after, self.lasting = error, after, lasting or isinstance(error, errors.SetupError)


class Servers:
    """The servers for one request or one read, without those that were left out of it. Thread-safe."""

    def __init__(self, endpoints: Sequence[Endpoint]):
        self._lock = threading.Lock()
        self._usable: List[Endpoint] = list(endpoints)
        self._refusal: Optional[Exception] = None

    @property
    def count(self) -> int:
        """Returns how many servers remain."""
        return len(self._usable)

    def endpoint(self, number: int) -> Endpoint:
        """Returns the server for the try of that number. Raises the last refusal if all servers were left out; a
        SetupError only if no server answered."""
        with self._lock:
            if not self._usable:
                raise self._refusal or errors.ConnectError("no server remains")
            return self._usable[number % len(self._usable)]

    def leave_out(self, endpoint: Endpoint, reason: Exception) -> None:
        """Removes a server, since it has another version or cannot be connected to."""
        with self._lock:
            if endpoint in self._usable:
                self._usable.remove(endpoint)
            if self._refusal is None or not isinstance(reason, errors.SetupError):
                self._refusal = reason

    def together(self, faults: Dict[Endpoint, Exception], last: Exception) -> Exception:
        """Returns an error that names the fault of each server if none could be reached, else the last fault."""
        with self._lock:
            reasons = [*faults.values(), *([self._refusal] if self._refusal else [])]
        if len(reasons) > 1 and all(isinstance(reason, errors.ConnectError) for reason in reasons):
            return errors.ConnectError("; ".join(map(str, reasons)))
        return last


class Patience:
    """Counts the time and the faults since the last progress. One for each job; for one thread."""

    def __init__(self, options: Options, stopping: Optional[threading.Event] = None):
        self.retry_for = options.retry_for
        self._limit = options.with_value("retry_for")
        self._stopping = stopping
        self.progress()

    def check(self) -> None:
        """Raises TensordError if the job was stopped."""
        if self._stopping is not None and self._stopping.is_set():
            raise errors.TensordError("the read was stopped")

    def progress(self) -> None:
        """Resets the time and the faults, because bytes have arrived."""
        self._since = time.monotonic()
        self._tries = 0
        self._wrong_answers = 0

    def wait(self, error: Exception, after: float = 0.0) -> None:
        """Waits before the next try, at least for the `after` seconds that the server asked for; raises the error when
        it is time to give up."""
        self._tries += 1
        if isinstance(error, errors.ProtocolError):
            self._wrong_answers += 1
        spent = time.monotonic() - self._since
        delay = max(after, min(5.0, 0.05 * 2 ** min(self._tries, 8)) * random.uniform(0.5, 1.0))
        if self._wrong_answers >= MAX_WRONG_ANSWERS:
            raise error
        if spent >= self.retry_for:
            text = f"{error}; gave up after {self._tries} tries in {spent:.0f} s ({self._limit})"
            if isinstance(error, errors.AnswerError):
                raise type(error)(text, error.status, error.code, error.url) from error
            raise (type(error) if isinstance(error, errors.ProtocolError) else errors.ConnectError)(text) from error
        delay = min(delay, self.retry_for - spent)  # the last try is at the end
        if self._tries == WARN_AFTER:
            _warn(f"{error}; trying again for {self.retry_for - spent:.0f} s")
        if self._stopping is None:
            time.sleep(delay)
        else:
            self._stopping.wait(delay)


def attempt(servers: Servers, patience: Patience, once: Callable[[Endpoint], T], number: int = 0,
            done: Callable[[], int] = lambda: 0) -> T:
    """Calls `once` with one server after the other until it returns, and returns its result.

    `once` raises Fault for a failed try; its other exceptions end the attempt. After a fault of each server this waits,
    as `patience` says. `number`: of the first try, see `Servers.endpoint`. `done`: returns how many bytes have
    arrived and need not be sent again; while it grows, the patience does not end.

    Raises ConnectError, ProtocolError or AnswerError at the end of the patience; a lasting fault if every server
    had one; TensordError when the job was stopped.
    """
    faults: Dict[Endpoint, Exception] = {}
    while True:
        patience.check()
        endpoint, before = servers.endpoint(number), done()
        try:
            return once(endpoint)
        except Fault as fault:
            patience.check()  # a stop also breaks connections
            if done() > before:
                patience.progress()
            if fault.lasting:
                servers.leave_out(endpoint, fault.error)
                continue
            number += 1
            faults[endpoint] = fault.error
            if len(faults) >= servers.count:
                patience.wait(servers.together(faults, fault.error), fault.after)
                faults.clear()


_warned_at = -math.inf


def _warn(text: str) -> None:
    """Logs a fault; at most one in ten seconds, over all jobs and loads."""
    global _warned_at
    now = time.monotonic()
    if now - _warned_at >= 10:
        _warned_at = now
        log.warning("%s", text)


def retry_after(answer: Answer) -> float:
    """Returns the seconds that the server asks to wait; 0 if it names none that is a number."""
    text = answer.fields.get("retry-after", "")
    return min(60.0, float(text)) if text.isascii() and text.isdigit() else 0.0


def is_retried(answer: Answer) -> bool:
    """Returns whether a request that was answered so is sent again."""
    return answer.status in RETRIED_STATUSES or (answer.status == NO_ROOM and "retry-after" in answer.fields)
