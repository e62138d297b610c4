"""When a request is sent again, and when the client gives up."""
from __future__ import annotations

import logging
import math
import random
import threading
import time
from typing import Optional

from .. import errors
from ..options import Options
from .http import Answer

log = logging.getLogger("tensord")

RETRIED_STATUSES = (408, 429, 500, 502, 503, 504)
TOLD_AFTER = 4  # tries; some two seconds
MAX_FAULTS = 6  # answers in a row that are not what was asked for; waiting does not mend those


class Patience:
    """Counts the time and the faults since the last progress. One for each job; for one thread."""

    def __init__(self, options: Options, stopping: Optional[threading.Event] = None):
        self.retry_for = options.retry_for
        self._limit = options.with_value("retry_for")
        self._stopping = stopping
        self.progress()

    def progress(self) -> None:
        """Starts over: bytes have come."""
        self._since = time.monotonic()
        self._tries = 0
        self._faults = 0

    def wait(self, error: Exception, after: float = 0.0) -> None:
        """Waits before the next try, at least `after` seconds as the server says; raises the error when it is time to
        give up, a SetupError at once."""
        if isinstance(error, errors.SetupError):
            raise error
        self._tries += 1
        if isinstance(error, errors.ProtocolError):
            self._faults += 1
        spent = time.monotonic() - self._since
        delay = max(after, min(5.0, 0.05 * 2 ** min(self._tries, 8)) * random.uniform(0.5, 1.0))
        if self._faults >= MAX_FAULTS:
            raise error
        if spent >= self.retry_for:
            text = f"{error}; gave up after {self._tries} tries in {spent:.0f} s ({self._limit})"
            if isinstance(error, errors.AnswerError):
                raise type(error)(text, error.status, error.code, error.url) from error
            raise (type(error) if isinstance(error, errors.ProtocolError) else errors.ConnectError)(text) from error
        delay = min(delay, self.retry_for - spent)  # the last try is at the end
        if self._tries == TOLD_AFTER:
            _tell(f"{error}; trying again for {self.retry_for - spent:.0f} s")
        if self._stopping is None:
            time.sleep(delay)
        else:
            self._stopping.wait(delay)


_told_at = -math.inf


def _tell(text: str) -> None:
    """Logs a fault, one of all jobs and loads in ten seconds."""
    global _told_at
    now = time.monotonic()
    if now - _told_at >= 10:
        _told_at = now
        log.warning("%s", text)


def retry_after(answer: Answer) -> float:
    """Returns the seconds that the server asks to wait; 0 if it names none that is a number."""
    text = answer.fields.get("retry-after", "")
    return min(60.0, float(text)) if text.isascii() and text.isdigit() else 0.0
