"""A lock that a forked child may take although a thread of its parent held it: that thread is not in the child."""
from __future__ import annotations

import os
import threading
from typing import Any


class ForkSafeLock:
    """A threading.Lock for `with` statements that is free in a forked child, even if a thread of the parent held it."""

    __slots__ = ("_lock", "_pid")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def __enter__(self) -> "ForkSafeLock":
        if self._pid != os.getpid():
            with _renewing:
                if self._pid != os.getpid():
                    self._lock, self._pid = threading.Lock(), os.getpid()
        self._lock.acquire()
        return self

    def __exit__(self, *_: Any) -> None:
        self._lock.release()


_renewing = threading.Lock()


def _after_fork_in_child() -> None:
    global _renewing
    _renewing = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
