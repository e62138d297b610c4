"""The files that hold the rows of a split, by the server's table of places (`index`, a safetensors file)."""
from __future__ import annotations

import json
import struct
import sys
from array import array
from typing import Any, List, Sequence

from .. import errors
from ..net.buffer import empty_bytes
from ..net.resources import read_resource, source_at
from ..net.retry import Patience
from ..net.session import Session
from ..options import MIB

MAX_HEADER_BYTES = 1024 * MIB  # with the paths of millions of images


def paths_of(session: Session, target: str, count: int) -> "Paths":
    """Reads the column `file` of the table at a path of the server, for `count` rows.

    Raises ChangedError, AnswerError (422 for rows that have no places), ConnectError, ProtocolError.
    """
    source = source_at(session, target)
    whole = source.first(Patience(session.options)).nbytes

    def read(begin: int, nbytes: int) -> bytearray:
        data = empty_bytes(nbytes)
        if nbytes:
            read_resource(session, source, [memoryview(data)], begin)
        return data

    try:
        (size,) = struct.unpack("<Q", read(0, 8))
        if size > min(MAX_HEADER_BYTES, whole - 8):
            raise ValueError(f"a header of {size} bytes")
        header = json.loads(str(read(8, size), "utf-8"))
        found = json.loads(header["__metadata__"]["files"])
        column = header["file"]
        begin, end = column["data_offsets"]
        if column["dtype"] != "U32" or column["shape"] != [count] or end - begin != 4 * count or begin < 0:
            raise ValueError("another column `file`")
        if 8 + size + end > whole or not all(type(path) is str for path in found):
            raise ValueError("a column past the end, or a path that is not text")
    except (KeyError, TypeError, ValueError, RecursionError, struct.error) as error:
        raise errors.ProtocolError(f"{target} did not answer with a table of places: {error}") from error
    numbers = array("I")
    numbers.frombytes(read(8 + size + begin, 4 * count))
    if sys.byteorder != "little":
        numbers.byteswap()
    if count and max(numbers) >= len(found):
        raise errors.ProtocolError(f"{target} answered a table of places that names a file which is not in its list")
    return Paths(found, numbers)


class Paths:
    """The path of the file of each row."""

    def __init__(self, names: List[str], numbers: Any):
        self._names, self._numbers = names, numbers

    def take(self, rows: Sequence[int]) -> List[str]:
        """Returns the paths of rows, in the order of a list."""
        return [self._names[self._numbers[row]] for row in rows]
