"""Compares the bytes of whole tensors with the server's digests, as they arrive."""
from __future__ import annotations

import bisect
import hashlib
import threading
from typing import Dict, List, Sequence, Tuple

from .. import errors


class Sums:
    """The SHA-256 of tensors, by name, as the server has computed them. For any number of threads."""

    def __init__(self, model: str, digests: Dict[str, str]):
        self._model = model
        self._digests = digests

    def fits(self, name: str, data: memoryview) -> bool:
        """Returns whether these are the bytes of a tensor."""
        return self._digests.get(name) == hashlib.sha256(data).hexdigest()

    def check(self, name: str, data: memoryview) -> None:
        """Checks the bytes of a tensor. Raises VerifyError."""
        want = self._digests.get(name)
        if want is None:
            raise errors.VerifyError(f"the server of {self._model} has no SHA-256 of {name}: verify=False loads it "
                                     "without a check")
        found = hashlib.sha256(data).hexdigest()
        if found != want:
            raise errors.VerifyError(f"the bytes of {name} of {self._model} that arrived have the SHA-256 {found}, and "
                                     f"the server's have {want}: they were changed on the way or in the memory of this "
                                     "machine; load again")


class Arrivals:
    """Checks each tensor of an answer when its last byte has arrived, on the thread that received it.

    Called with the offset in the answer and the length of each part, as it arrives.
    """

    def __init__(self, sums: Sums, tensors: Sequence[Tuple[str, memoryview]], begin: int = 0):
        """`tensors`: the names and the destinations, in the order of the answer. `begin`: where the first one begins in
        it."""
        self._sums = sums
        self._tensors = [(name, view) for name, view in tensors if len(view)]
        self._begins: List[int] = []
        for _, view in self._tensors:
            self._begins.append(begin)
            begin += len(view)
        self._left = [len(view) for _, view in self._tensors]
        self._lock = threading.Lock()
        for name, view in tensors:
            if not len(view):
                sums.check(name, view)

    def __call__(self, offset: int, nbytes: int) -> None:
        """Takes note of bytes that have arrived. Raises VerifyError."""
        whole = []
        number = max(0, bisect.bisect_right(self._begins, offset) - 1)
        with self._lock:
            while number < len(self._begins) and self._begins[number] < offset + nbytes:
                begin, size = self._begins[number], len(self._tensors[number][1])
                self._left[number] -= max(0, min(begin + size, offset + nbytes) - max(begin, offset))
                if self._left[number] == 0:
                    whole.append(self._tensors[number])
                number += 1
        for name, view in whole:
            self._sums.check(name, view)
