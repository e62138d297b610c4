"""Staging memory for bytes that cannot be received into their destination: pieces that are borrowed and returned.

A piece is returned when the copy from it has ended; a copy to a GPU ends after the call that starts it.
"""
from __future__ import annotations

import queue
import threading
from typing import Any, Callable, Dict, Optional, Tuple

from ..errors import TensordError
from ..lock import ForkSafeLock


class Ring:
    """`count` pieces of `nbytes` each, made when they are first needed. Thread-safe.

    `pinned`: in memory that a GPU reads by itself (torch with CUDA).
    """

    def __init__(self, nbytes: int, count: int, pinned: bool = False):
        self.nbytes = nbytes
        self.count = count
        self._pinned = pinned
        self._free: "queue.Queue[memoryview]" = queue.Queue()
        self._lock = threading.Lock()
        self._left = count
        self._owners: Dict[int, Any] = {}
        self._waits: Dict[int, Callable[[], None]] = {}

    def borrow(self, stopping: Optional[threading.Event] = None) -> memoryview:
        """Returns a free piece, and waits for one if all are in use. Raises TensordError when the read is stopping."""
        with self._lock:
            make = self._free.empty() and self._left > 0
            if make:
                self._left -= 1
        if make:
            return self._make()
        while True:
            try:
                piece = self._free.get(timeout=0.5)
                break
            except queue.Empty:
                if stopping is not None and stopping.is_set():
                    raise TensordError("the read was stopped") from None
        wait = self._waits.pop(id(piece), None)
        if wait is not None:
            wait()
        return piece

    def give(self, piece: memoryview, when: Optional[Callable[[], None]] = None) -> None:
        """Takes a piece back. `when` returns once the piece may be overwritten."""
        if when is not None:
            self._waits[id(piece)] = when
        self._free.put(piece)

    def drain(self) -> None:
        """Waits until all copies from pieces have ended. No piece may be borrowed."""
        for wait in self._waits.values():
            wait()
        self._waits.clear()

    def _make(self) -> memoryview:
        if not self._pinned:
            return memoryview(bytearray(self.nbytes))
        import ctypes

        import torch

        tensor = torch.empty(self.nbytes, dtype=torch.uint8, device="cpu", pin_memory=True)
        piece = memoryview((ctypes.c_char * self.nbytes).from_address(tensor.data_ptr())).cast("B")
        self._owners[id(piece)] = tensor
        return piece


_kept: Dict[Tuple[int, int], Ring] = {}
_kept_lock = ForkSafeLock()


def take_pinned(nbytes: int, count: int) -> Ring:
    """Returns a pinned ring of this process, or a new one: to pin memory takes longer than to fill it."""
    with _kept_lock:
        return _kept.pop((nbytes, count), None) or Ring(nbytes, count, pinned=True)


def keep_pinned(ring: Ring) -> None:
    """Caches a drained pinned ring for the next read, in place of the one that was cached."""
    with _kept_lock:
        _kept.clear()
        _kept[ring.nbytes, ring.count] = ring


def pieces(ring_bytes: int, connections: int, most: int = 8 * 1024 * 1024) -> Tuple[int, int]:
    """Returns the bytes of a piece and the number of pieces: two for each connection, together within `ring_bytes`."""
    count = 2 * connections
    nbytes = max(4096, min(most, ring_bytes // count) // 4096 * 4096)
    return nbytes, max(1, min(count, ring_bytes // nbytes))
