"""Reads rows of one version of a split: ranges by GET, lists by POST, large ones as several requests at once."""
from __future__ import annotations

import operator
import os
import re
import sys
import threading
from array import array
from collections import deque
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple
from urllib.parse import urlencode

from . import errors, http
from .address import dataset_path
from .buffer import empty_bytes
from .session import Exchange, Session

PART_ROWS = 8192  # the most of one request
PART_BYTES = 16 * 2**20  # about the most of one, unless a single row has more
MAX_BYTES = 2**40  # of one answer; more are not believed


class Fetcher:
    """Reads rows of a split. Each request names the split's fingerprint: an answer is of that version, or an error. For
    any number of threads; may be pickled, and used after a fork."""

    def __init__(self, session: Session, dataset: str, split: str, rows: int, nbytes: int, fingerprint: str):
        self.session = session
        self.dataset = dataset
        self.split = split
        self.rows = rows
        self.fingerprint = fingerprint
        self._row_bytes = max(1, nbytes // max(1, rows))

    def part_rows(self, nbytes: int = PART_BYTES) -> int:
        """Returns how many rows one request asks for, so that its answer has about `nbytes`."""
        return max(1, min(PART_ROWS, nbytes // self._row_bytes))

    # ---- frames: rows as they lie

    def read_range(self, start: int, count: int, order: Optional[Dict[str, Any]] = None,
                   stopping: Optional[threading.Event] = None) -> List[bytes]:
        """Returns `count` rows from `start` on, by one GET. `order`: further parameters, those of order=shuffle.

        Raises DatasetChanged, AnswerError, ConnectError, ProtocolError.
        """
        if count == 0:
            return []
        job = _Get(self._path("rows", start=start, count=count, format="frame", **(order or {})), start, count)
        self._run(job, stopping)
        return parse_frame(job.data, count, self._place("rows"))

    def read_row(self, row: int) -> bytes:
        """Returns a row. Raises as `read_range`."""
        job = _Get(self._path(f"rows/{row}"))
        self._run(job)
        return bytes(job.data)

    def read_list(self, rows: Sequence[int], stopping: Optional[threading.Event] = None) -> List[bytes]:
        """Returns rows in the order of a list, by one POST. Raises as `read_range`."""
        job = _Frame(self._path("rows:batchGet", format="frame"), rows, self._place("rows:batchGet"))
        self._run(job, stopping)
        return job.found

    # ---- Arrow: answers of rows as one stream

    def arrow_range(self, start: int, count: int, order: Optional[Dict[str, Any]] = None,
                    stopping: Optional[threading.Event] = None) -> bytearray:
        """Returns `count` rows from `start` on as a stream of Arrow's IPC. Raises as `read_range`."""
        job = _Get(self._path("rows", start=start, count=count, format="arrow", **(order or {})), start, count)
        self._run(job, stopping)
        return job.data

    def arrow_list(self, rows: Sequence[int], stopping: Optional[threading.Event] = None) -> bytearray:
        """Returns rows in the order of a list, as a stream of Arrow's IPC. Raises as `read_range`."""
        job = _Post(self._path("rows:batchGet", format="arrow"), rows)
        self._run(job, stopping)
        return job.data

    # ---- several requests at once

    def ranges(self, start: int, count: int, read: Callable[..., Any]) -> List[Any]:
        """Returns what `read(start, count, stopping=)` returns for each part of a range, over several connections."""
        size = self.part_rows()
        parts = [(at, min(size, start + count - at)) for at in range(start, start + count, size)]
        return self._at_once([lambda stopping, part=part: read(*part, stopping=stopping) for part in parts])

    def lists(self, rows: Sequence[int], read: Callable[..., Any]) -> List[Any]:
        """Returns what `read(rows, stopping=)` returns for each part of a list, over several connections."""
        size = self.part_rows()
        parts = [rows[at : at + size] for at in range(0, len(rows), size)]
        return self._at_once([lambda stopping, part=part: read(part, stopping=stopping) for part in parts])

    def _at_once(self, calls: Sequence[Callable[[threading.Event], Any]]) -> List[Any]:
        stopping = threading.Event()
        depth = min(self.session.options.connections, len(calls)) - 1
        return list(ahead([lambda call=call: call(stopping) for call in calls], depth, stopping))

    def _path(self, what: str, **query: Any) -> str:
        query = {"split": self.split, **query, "fingerprint": self.fingerprint}
        return f"{dataset_path(self.dataset, what)}?{urlencode(query)}"

    def _place(self, what: str) -> str:
        return dataset_path(self.dataset, what)

    def _run(self, job: Exchange, stopping: Optional[threading.Event] = None) -> None:
        try:
            self.session.exchange(job, stopping)
        except errors.ChangedError as error:
            raise errors.DatasetChanged(
                f"split {self.split} of {self.dataset} changed on the server after it was opened; nothing of the new "
                f"version was used: open it anew, and begin the epoch anew ({error})", 412, error.code,
                error.url) from error
        except MemoryError as error:
            raise MemoryError(f"rows of {self.dataset} do not fit into memory: ask for fewer at once") from error


def parse_frame(data: bytearray, count: int, where: str) -> List[bytes]:
    """Returns the rows of a frame (u64 count, count + 1 u64 offsets, the rows). Raises ProtocolError if it is none, or
    has another number of rows."""
    begin = 8 * (count + 2)
    offsets = _offsets_of(data, count, where)
    if begin + offsets[-1] != len(data):
        raise errors.ProtocolError(f"{where} answered a frame of {len(data)} bytes, where its rows end at "
                                   f"{begin + offsets[-1]}")
    return _cut(data, begin, offsets, count)


def _offsets_of(data: bytearray, count: int, where: str) -> array:
    """Returns the offsets at the start of a frame. Raises ProtocolError."""
    if len(data) < 8 * (count + 2):
        raise errors.ProtocolError(f"{where} answered {len(data)} bytes, too few for a frame of {count} rows")
    table = array("Q")
    table.frombytes(memoryview(data)[: 8 * (count + 2)])
    if sys.byteorder != "little":
        table.byteswap()
    if table.pop(0) != count:
        raise errors.ProtocolError(f"{where} answered a frame of another number of rows than {count}")
    if table[0] != 0 or any(map(operator.gt, table, memoryview(table)[1:])):
        raise errors.ProtocolError(f"{where} answered a frame whose offsets do not ascend from 0")
    return table


def _cut(data: bytearray, begin: int, offsets: array, count: int) -> List[bytes]:
    """Returns the first rows of a frame whose row area begins at `begin`."""
    rows = memoryview(data)[begin:]
    return [bytes(rows[offsets[k] : offsets[k + 1]]) for k in range(count)]


class _Get(Exchange):
    """An answer to GET. After a cut its rest is asked for by a range of the same entity tag."""

    def __init__(self, path: str, start: Optional[int] = None, count: Optional[int] = None):
        self._path = path
        self._wanted = {"x-row-start": start, "x-row-count": count}
        self._etag = ""
        self._got = 0
        self.data = bytearray()

    def request(self) -> Tuple[str, str, Dict[str, str], bytes]:
        fields = {}
        if self._got and self._etag:
            fields = {"Range": f"bytes={self._got}-", "If-Range": self._etag}
        return "GET", self._path, fields, b""

    def read(self, answer: http.Answer) -> None:
        where = f"{answer.connection.endpoint}{self._path}"
        for name, value in self._wanted.items():
            found = answer.fields.get(name, str(value))
            if value is not None and found != str(value):
                raise errors.ProtocolError(f"{where} answered {name} {found!r}, where {value} was asked for")
        if answer.status == 206:
            self._check_rest(answer, where)
        elif answer.status == 200:
            self._begin(answer, where)
        else:
            raise errors.ProtocolError(f"{where} answered {answer.status}")
        if answer.length is None:  # in chunks, by a proxy
            self.data = answer.read(MAX_BYTES)
            return
        try:
            answer.receive_into(memoryview(self.data)[self._got :])
        finally:
            self._got += answer.connection.received
            self.done = max(self.done, self._got)

    def _begin(self, answer: http.Answer, where: str) -> None:
        """Makes room for a whole answer; what had come of another one is forgotten."""
        etag = answer.fields.get("etag", "")
        self._etag = etag if re.fullmatch(r'"[!#-~]*"', etag) else ""
        self._got = 0
        self.data = _room(answer.length or 0, where)

    def _check_rest(self, answer: http.Answer, where: str) -> None:
        text, total = answer.fields.get("content-range", ""), len(self.data)
        if not self._got or text != f"bytes {self._got}-{total - 1}/{total}" or answer.length != total - self._got:
            raise errors.ProtocolError(f"{where} answered the range {text!r} in {answer.length} bytes, where bytes "
                                       f"{self._got}-{total - 1}/{total} were asked for")
        if answer.fields.get("etag", "") != self._etag:
            raise errors.ProtocolError(f"{where} answered a range of another version")


class _Post(Exchange):
    """An answer to a list of rows, asked for anew after a cut."""

    def __init__(self, path: str, rows: Sequence[int]):
        self._path = path
        self._left = list(rows)
        self.data = bytearray()

    def request(self) -> Tuple[str, str, Dict[str, str], bytes]:
        packed = array("Q", self._left)
        if sys.byteorder != "little":
            packed.byteswap()
        return "POST", self._path, {"Content-Type": "application/octet-stream"}, packed.tobytes()

    def read(self, answer: http.Answer) -> None:
        where = f"{answer.connection.endpoint}{self._path}"
        if answer.status != 200:
            raise errors.ProtocolError(f"{where} answered {answer.status}")
        if answer.length is None:
            self.data = answer.read(MAX_BYTES)
            return
        self.data = _room(answer.length, where)
        answer.receive_into(memoryview(self.data))


class _Frame(_Post):
    """A frame of a list of rows. Rows that had come whole before a cut are kept, and only the others asked for."""

    def __init__(self, path: str, rows: Sequence[int], where: str):
        super().__init__(path, rows)
        self._where = where
        self.found: List[bytes] = []

    def read(self, answer: http.Answer) -> None:
        try:
            super().read(answer)
        except http.Dropped:
            if answer.length is not None:
                self._keep(answer.connection.received)
            raise
        self.found += parse_frame(self.data, len(self._left), self._where)

    def _keep(self, received: int) -> None:
        count = len(self._left)
        begin = 8 * (count + 2)
        if received <= begin:
            return
        offsets = _offsets_of(self.data, count, self._where)
        whole = next(k for k in range(count - 1, -1, -1) if offsets[k] <= received - begin)
        self.found += _cut(self.data, begin, offsets, whole)
        self.done += whole
        self._left = self._left[whole:]


def _room(nbytes: int, where: str) -> bytearray:
    if nbytes > MAX_BYTES:
        raise errors.ProtocolError(f"{where} would send {nbytes} bytes, where {MAX_BYTES} are the most")
    return empty_bytes(nbytes)


# ---- tasks that run ahead of who takes their results

def ahead(tasks: Iterable[Callable[[], Any]], depth: int,
          stopping: Optional[threading.Event] = None) -> Iterator[Any]:
    """Yields the results of tasks in their order, while up to `depth` further ones run in threads of their own.

    Raises a task's error in its turn. When the iterator is closed, or ends by an error, no task begins any more, and
    `stopping` is set. After a fork, tasks whose threads are not in the child run again.
    """
    pending: "deque[_Task]" = deque()
    try:
        for task in tasks:
            pending.append(_Task(task, depth > 0))
            if len(pending) > depth:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        if stopping is not None:
            stopping.set()


class _Task:
    """A call that runs in a thread, or at once in the caller's when its result is asked for."""

    def __init__(self, call: Callable[[], Any], apart: bool):
        self._call = call
        self._done = threading.Event()
        self._value: Any = None
        self._error: Optional[BaseException] = None
        self._pid = os.getpid() if apart else -1
        if apart:
            threading.Thread(target=self._work, name="tensord-rows", daemon=True).start()

    def _work(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error
        self._done.set()

    def result(self) -> Any:
        if self._pid != os.getpid():
            return self._call()
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value
