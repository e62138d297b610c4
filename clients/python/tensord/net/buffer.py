"""Memory with uninitialised bytes."""
from __future__ import annotations

import ctypes
from typing import Any

_make: Any = None
if hasattr(ctypes, "pythonapi"):  # CPython
    _make = ctypes.pythonapi.PyByteArray_FromStringAndSize
    _make.restype = ctypes.py_object
    _make.argtypes = [ctypes.c_char_p, ctypes.c_ssize_t]


def empty_bytes(nbytes: int) -> bytearray:
    """Makes an array of uninitialised bytes: it takes memory as bytes arrive, whatever length a server promises."""
    data: bytearray = bytearray(nbytes) if _make is None else _make(None, nbytes)
    return data
