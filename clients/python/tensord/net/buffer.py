"""Memory whose bytes are not set when it is made."""
from __future__ import annotations

import ctypes
from typing import Any

_make: Any = None
if hasattr(ctypes, "pythonapi"):  # CPython
    _make = ctypes.pythonapi.PyByteArray_FromStringAndSize
    _make.restype = ctypes.py_object
    _make.argtypes = [ctypes.c_char_p, ctypes.c_ssize_t]


def empty_bytes(nbytes: int) -> bytearray:
    """Makes an array of bytes that are not set: memory is used as they are written, not as a server promises them."""
    data: bytearray = bytearray(nbytes) if _make is None else _make(None, nbytes)
    return data
