"""A line of progress on a terminal, by tqdm if it is installed; nothing where nobody looks."""
from __future__ import annotations

import sys
import threading
import time
from typing import Any, Optional

from .. import errors


def shown(wanted: Optional[bool]) -> bool:
    """Returns whether progress is to be shown: as wanted, else if standard error is a terminal."""
    if wanted is not None:
        return wanted
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


class Progress:
    """Counts bytes of one load. Thread-safe. A context manager."""

    def __init__(self, total: int, what: str, wanted: Optional[bool] = None):
        self._bar: Any = None
        self._lock = threading.Lock()
        self._shown = shown(wanted) and total > 0
        self._total, self._what, self._done = total, errors.printable(what), 0
        self._begun = self._last = time.monotonic()
        self._written = False
        if self._shown:
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, desc=self._what, unit="B", unit_scale=True, unit_divisor=1024, leave=False)

    def add(self, count: int) -> None:
        """Adds bytes that have arrived."""
        if not self._shown:
            return
        with self._lock:
            self._done += count
            if self._bar is not None:
                self._bar.update(count)
            elif time.monotonic() - self._last > 0.2:
                self._last = time.monotonic()
                self._write()

    def _write(self) -> None:
        seconds = max(1e-3, self._last - self._begun)
        rate = self._done / seconds
        left = (self._total - self._done) / rate if rate > 0 else 0
        sys.stderr.write(f"\r{self._what}: {self._done / 2**20:,.0f} of {self._total / 2**20:,.0f} MiB, "
                         f"{rate / 2**20:,.0f} MiB/s, {left:,.0f} s left\033[K")
        sys.stderr.flush()
        self._written = True

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._written:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
