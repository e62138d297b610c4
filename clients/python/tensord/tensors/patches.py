"""Sparse patches: the elements in which the tensors of two versions differ, as a server compares them.

A patch is a safetensors file with NAME.indices and NAME.values for each tensor where few elements differ. It also
names the tensors that have to be read whole. Its elements are compared and copied as bits.
"""
from __future__ import annotations

import importlib.util
import json
import struct
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .. import errors
from ..address import Endpoint
from ..net import transfer
from ..net.buffer import empty_bytes
from ..net.progress import Progress
from ..net.resources import read_resource, resource_at
from ..net.retry import Patience
from ..net.session import Session
from . import dtypes

MAX_HEADER_BYTES = 100_000_000  # safetensors refuses longer ones
HEADER_GUESS_BYTES = 64 * 1024  # read with the first request
REFUSED = (400, 413, 422, 503)  # an older server; too many boxes; no patch of these versions; not made in time


class Entry(NamedTuple):
    """A tensor of a patch: how many `elements` of type `dtype`; the places of the indices and of the values in the
    file; the bytes of one index, 4 or 8."""

    dtype: str
    elements: int
    indices_at: int
    values_at: int
    index_bytes: int


class Part(NamedTuple):
    """Elements of one tensor: places in row-major order (`indices`, little-endian, `index_bytes` each), and values."""

    name: str
    dtype: str
    index_bytes: int
    indices: memoryview
    values: memoryview


class Patch:
    """A patch on the servers: `since` and `version` name the two versions, `entries` has a row for each tensor where
    some elements differ, `whole` names the tensors that have to be read whole, `removed` those that the newer version
    lacks, and `nbytes` is the length of the file."""

    def __init__(self, session: Session, source: transfer.Source, what: str):
        """Reads the header. Raises ConnectError, AnswerError, ProtocolError."""
        self._session, self._source, self._what = session, source, what
        self.nbytes = source.first(Patience(session.options)).nbytes
        self._head = empty_bytes(min(self.nbytes, HEADER_GUESS_BYTES))
        read_resource(session, source, [memoryview(self._head)], 0)
        self.entries: Dict[str, Entry] = {}
        self.since, self.version = "", ""
        self.whole: List[str] = []
        self.removed: List[str] = []
        self._read_header()

    def _read_header(self) -> None:
        if len(self._head) < 8:
            raise errors.ProtocolError(f"the patch of {self._what} has no header")
        length = struct.unpack_from("<Q", self._head)[0]
        if length > min(MAX_HEADER_BYTES, self.nbytes - 8):
            raise errors.ProtocolError(f"the patch of {self._what} has a header of {length} bytes")
        begin = 8 + length
        if begin > len(self._head):
            rest = empty_bytes(begin - len(self._head))
            read_resource(self._session, self._source, [memoryview(rest)], len(self._head))
            self._head += rest
        try:
            rows = json.loads(bytes(self._head[8:begin]))
            about = rows.pop("__metadata__")
            if about["format"] != "patch":
                raise ValueError("it is no patch")
            self.since, self.version = str(about["since"]), str(about["version"])
            self.whole, self.removed = _names(about["whole"]), _names(about["removed"])
            for name in [name[:-8] for name in rows if name.endswith(".indices")]:
                self.entries[name] = self._entry(rows[name + ".indices"], rows[name + ".values"], begin)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, errors.TensordError) as error:
            raise errors.ProtocolError(f"the patch of {self._what} has a damaged header: {error!r}") from error

    def _entry(self, indices: Dict[str, Any], values: Dict[str, Any], begin: int) -> Entry:
        index_bytes = {"I32": 4, "I64": 8}[indices["dtype"]]
        (count,) = values["shape"]
        if indices["shape"] != [count] or type(count) is not int or count < 1:
            raise ValueError("indices and values differ in number")
        for row in (indices, values):
            first, end = row["data_offsets"]
            if dtypes.nbytes_of(row["dtype"], [count]) != end - first or not 0 <= first <= end <= self.nbytes - begin:
                raise ValueError("bytes do not fit a shape")
        if dtypes.bits_of(values["dtype"]) not in (8, 16, 32, 64):
            raise ValueError(f"elements of type {values['dtype']}")
        return Entry(values["dtype"], count, begin + indices["data_offsets"][0], begin + values["data_offsets"][0],
                     index_bytes)

    def check(self, version: Optional[str]) -> "Patch":
        """Returns the patch. Raises ProtocolError unless it is one to this version."""
        if version != self.version:
            raise errors.ProtocolError(f"the server answered with a patch of {self._what} to {self.version}, where "
                                       f"{version} was asked for")
        return self

    def check_types(self, types: Dict[str, str]) -> None:
        """Raises ProtocolError unless the patch names only tensors of `types` (names and types), with elements of
        these types."""
        for name in [*self.entries, *self.whole]:
            if name not in types or (name in self.entries and self.entries[name].dtype != types[name]):
                raise errors.ProtocolError(f"the patch of {self._what} has {name!r} of a type that the manifest lacks")

    def parts(self, wanted: Callable[[str], bool] = lambda name: True,
              stop: Optional[transfer.Stop] = None) -> Iterator[Part]:
        """Yields the elements of the tensors that are `wanted`: all of a tensor in one part, or in several with
        ascending indices. The next part overwrites their memory. Takes about as much memory as the option ring_bytes
        says, and reads the file at once if it fits. `stop` lets another thread end the read.

        Raises ChangedError, ConnectError, AnswerError, ProtocolError.
        """
        chosen = [(name, entry) for name, entry in self.entries.items() if wanted(name)]
        room = self._session.options.ring_bytes
        total = sum(entry.elements * (entry.index_bytes + _element_bytes(entry)) for _, entry in chosen)
        with Progress(total, f"patch of {self._what}", self._session.options.progress) as progress:
            if chosen and self.nbytes <= room and 2 * total >= self.nbytes:
                yield from self._parts_at_once(chosen, progress, stop)
                return
            for name, entry in chosen:
                yield from self._parts_of(name, entry, room, progress, stop)

    def _parts_at_once(self, chosen: List[Tuple[str, Entry]], progress: Progress,
                       stop: Optional[transfer.Stop]) -> Iterator[Part]:
        file = empty_bytes(self.nbytes)
        got = min(len(self._head), self.nbytes)
        file[:got] = self._head[:got]
        if got < self.nbytes:
            read_resource(self._session, self._source, [memoryview(file)[got:]], got, progress, stop)
        view = memoryview(file)
        for name, entry in chosen:
            yield Part(name, entry.dtype, entry.index_bytes,
                       view[entry.indices_at : entry.indices_at + entry.elements * entry.index_bytes],
                       view[entry.values_at : entry.values_at + entry.elements * _element_bytes(entry)])

    def _parts_of(self, name: str, entry: Entry, room: int, progress: Progress,
                  stop: Optional[transfer.Stop]) -> Iterator[Part]:
        element = _element_bytes(entry)
        most = max(1, room // (entry.index_bytes + element))
        indices = memoryview(empty_bytes(min(most, entry.elements) * entry.index_bytes))
        values = memoryview(empty_bytes(min(most, entry.elements) * element))
        for first in range(0, entry.elements, most):
            count = min(most, entry.elements - first)
            part = Part(name, entry.dtype, entry.index_bytes, indices[: count * entry.index_bytes],
                        values[: count * element])
            read_resource(self._session, self._source, [part.indices], entry.indices_at + first * entry.index_bytes,
                          progress, stop)
            read_resource(self._session, self._source, [part.values], entry.values_at + first * element, progress, stop)
            yield part


def open_patch(session: Session, what: str, path: Callable[[Endpoint], str]) -> Optional[Patch]:
    """Opens the patch at a path, which `path` returns for each server; None if they have none: older servers, versions
    that no patch is made of, or one that is not made in time (`retry_for`). Raises NotFoundError, ChangedError,
    ConnectError, AnswerError, ProtocolError."""

    def locate(endpoint: Endpoint) -> transfer.Resource:
        return resource_at(session, path(endpoint), endpoint)

    try:
        return Patch(session, transfer.Source(session.endpoints, locate, one_tag=True), what)
    except (errors.NotFoundError, errors.ChangedError):
        raise
    except errors.AnswerError as error:
        if error.status in REFUSED:
            return None
        raise


def put(target: Any, part: Part) -> None:
    """Writes elements into a tensor of torch, or an array of numpy, of the part's type and in one piece of memory or
    not. Raises ProtocolError for an index that the tensor lacks; then none of the part's elements are written."""
    if hasattr(target, "data_ptr"):
        _put_torch(target, part)
    else:
        _put_numpy(target, part)


def put_bytes(target: memoryview, part: Part) -> None:
    """Writes elements into the bytes of a tensor, as `put` does."""
    import torch

    _put_torch(torch.frombuffer(target, dtype=_bits(torch, (dtypes.bits_of(part.dtype) or 8) // 8)), part)


def _bits(torch: Any, nbytes: int) -> Any:
    """Returns torch's type of whole numbers of that many bytes."""
    return getattr(torch, {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}[nbytes])


def _put_torch(target: Any, part: Part) -> None:
    import torch

    bits = _bits(torch, target.element_size())
    if target.device.type == "cpu" and target.is_contiguous() and importlib.util.find_spec("numpy") is not None:
        # torch divides the work among threads, whose waits take longer than the work where processors are busy
        _put_numpy(target.detach().view(bits).numpy(), part)
        return
    indices = torch.frombuffer(part.indices, dtype=torch.int32 if part.index_bytes == 4 else torch.int64)
    values = torch.frombuffer(part.values, dtype=bits)
    if bool((indices < 0).any()) or bool((indices >= target.numel()).any()):
        raise _outside(part)
    with torch.no_grad():
        target.detach().view(bits).put_(indices.to(target.device, torch.int64), values.to(target.device))


def _put_numpy(target: Any, part: Part) -> None:
    import numpy

    bits = numpy.dtype(f"<u{target.dtype.itemsize}")
    indices = numpy.frombuffer(part.indices, dtype=f"<i{part.index_bytes}")
    if (indices < 0).any() or (indices >= target.size).any():
        raise _outside(part)
    found = target.view(bits)
    values = numpy.frombuffer(part.values, dtype=bits)
    if found.flags.c_contiguous:
        found.reshape(-1)[indices] = values
    else:
        found.put(indices, values)


def _outside(part: Part) -> errors.ProtocolError:
    return errors.ProtocolError(f"the patch has an index that {part.name} lacks")


def _names(text: Any) -> List[str]:
    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError("a list of names")
    return found


def _element_bytes(entry: Entry) -> int:
    return (dtypes.bits_of(entry.dtype) or 8) // 8
