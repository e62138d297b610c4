"""Reads rows of one version of a split: ranges by GET, lists by POST, large ones as several requests at once."""
from __future__ import annotations

import contextlib
import functools
import operator
import os
import re
import sys
import threading
from array import array
from collections import deque
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple
from urllib.parse import urlencode

from .. import errors
from ..address import dataset_path
from ..lock import ForkSafeLock
from ..net import http
from ..net.buffer import empty_bytes
from ..net.session import Begun, Exchange, Session

PART_ROWS = 8192  # the most of one request
PART_BYTES = 16 * 2**20  # about the most of one, unless a single row has more
AHEAD_BYTES = 2**20  # about the largest answer that fits into buffers; a server that cannot send closes the connection
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

    # ---- frames: the bytes of rows

    def read_range(self, start: int, count: int, order: Optional[Dict[str, Any]] = None,
                   stopping: Optional[threading.Event] = None) -> List[bytes]:
        """Returns `count` rows from `start` on, by one GET. `order`: the further parameters of order=shuffle.

        Raises DatasetChanged, AnswerError, ConnectError, ProtocolError.
        """
        if count == 0:
            return []
        job = _Get(self.path("rows", start=start, count=count, format="frame", **(order or {})), start, count)
        self._run(job, stopping)
        return parse_frame(job.data, count, self._place("rows"))

    def read_row(self, row: int) -> bytes:
        """Returns a row. Raises as `read_range`."""
        job = _Get(self.path(f"rows/{row}"))
        self._run(job)
        return bytes(job.data)

    def read_list(self, rows: Sequence[int], stopping: Optional[threading.Event] = None) -> List[bytes]:
        """Returns rows in the order of a list, by one POST. Raises as `read_range`."""
        job = self._list(rows, False)
        self._run(job, stopping)
        found: List[bytes] = job.result()
        return found

    # ---- Arrow: answers of rows as one stream

    def arrow_range(self, start: int, count: int, order: Optional[Dict[str, Any]] = None,
                    stopping: Optional[threading.Event] = None) -> bytearray:
        """Returns `count` rows from `start` on as a stream of Arrow's IPC. Raises as `read_range`."""
        job = _Get(self.path("rows", start=start, count=count, format="arrow", **(order or {})), start, count)
        self._run(job, stopping)
        return job.data

    def arrow_batch(self, row: int) -> Tuple[bytearray, int]:
        """Returns the batch that holds a row as a stream of Arrow's IPC, and how many of its rows come before the row:
        for batches that are compressed, and so cannot be cut. Raises as `read_range`."""
        job = _Get(self.path("rows", start=row, count=1, format="arrow"), row, 1)
        self._run(job)
        return job.data, job.skip

    def arrow_list(self, rows: Sequence[int], stopping: Optional[threading.Event] = None) -> bytearray:
        """Returns rows in the order of a list, as a stream of Arrow's IPC. Raises as `read_range`."""
        job = self._list(rows, True)
        self._run(job, stopping)
        return job.data

    def _list(self, rows: Sequence[int], as_arrow: bool) -> "_Post":
        path = self.path("rows:batchGet", format="arrow" if as_arrow else "frame")
        return _Post(path, rows) if as_arrow else _Frame(path, rows, self._place("rows:batchGet"))

    # ---- a list that is requested ahead of its use

    def begin(self, rows: Sequence[int], as_arrow: bool) -> Tuple["_Post", Optional[Begun]]:
        """Asks for a list of rows, as a frame or as a stream of Arrow. `finish` takes the result."""
        job = self._list(rows, as_arrow)
        return job, self.session.begin(job)

    def finish(self, job: "_Post", begun: Optional[Begun]) -> Any:
        """Receives the rows, and returns them as `read_list` or `arrow_list`. Raises as these."""
        with self.faults():
            self.session.finish(job, begun)
        return job.result()

    # ---- several requests at once

    def ranges(self, start: int, count: int, read: Callable[..., Any]) -> List[Any]:
        """Calls `read(start, count, stopping=)` for each part of a range, several at once. Returns the results."""
        size = self.part_rows()
        parts = [(at, min(size, start + count - at)) for at in range(start, start + count, size)]
        return self._at_once([functools.partial(read, *part) for part in parts])

    def lists(self, rows: Sequence[int], read: Callable[..., Any]) -> List[Any]:
        """Calls `read(rows, stopping=)` for each part of a list, several at once. Returns the results."""
        size = self.part_rows()
        parts = [rows[at : at + size] for at in range(0, len(rows), size)]
        return self._at_once([functools.partial(read, part) for part in parts])

    def list_parts(self, rows: Sequence[int], as_arrow: bool) -> List[Any]:
        """Returns the parts of a list of rows, each as `arrow_list` or `read_list` returns it."""
        return self.lists(rows, self.arrow_list if as_arrow else self.read_list)

    def _at_once(self, calls: Sequence[Callable[..., Any]]) -> List[Any]:
        stopping = threading.Event()
        depth = min(self.session.options.connections, len(calls)) - 1
        return list(ahead([functools.partial(call, stopping=stopping) for call in calls], depth, stopping))

    def path(self, what: str, **query: Any) -> str:
        """Returns the server's path of a resource of the split: `path("rows", start=0)` is that of its rows from 0 on.
        It names the split and its fingerprint, so that the server refuses (412) when the files have changed."""
        query = {"split": self.split, **query, "fingerprint": self.fingerprint}
        return f"{dataset_path(self.dataset, what)}?{urlencode(query)}"

    def _place(self, what: str) -> str:
        return dataset_path(self.dataset, what)

    def _run(self, job: Exchange, stopping: Optional[threading.Event] = None) -> None:
        with self.faults():
            self.session.exchange(job, stopping)

    def check_version(self) -> None:
        """Asks the server whether the split still has the fingerprint. Raises DatasetChanged if it has another one;
        AnswerError, ConnectError."""
        try:
            self._run(_Get(self.path("rows", start=0, count=0)))
        except errors.AnswerError as error:
            if error.status != 422:  # the fingerprint is right, and rows cannot be cut
                raise

    @contextlib.contextmanager
    def faults(self) -> Iterator[None]:
        """Raises DatasetChanged for ChangedError, and names the dataset where memory is short."""
        try:
            yield
        except errors.DatasetChanged:
            raise
        except errors.ChangedError as error:
            raise errors.DatasetChanged(
                f"split {self.split} of {self.dataset} changed on the server after it was opened; nothing of the new "
                f"version was used: open it again, and start the epoch again ({error})", 412, error.code,
                error.url) from error
        except MemoryError as error:
            raise MemoryError(f"rows of {self.dataset} do not fit into memory: ask for fewer at once") from error


def parse_frame(data: bytearray, count: int, where: str) -> List[bytes]:
    """Returns the rows of a frame (u64 count, count + 1 u64 offsets, the rows). Raises ProtocolError for other
    bytes, and for another number of rows."""
    begin = 8 * (count + 2)
    offsets = _offsets_of(data, count, where)
    if begin + offsets[-1] != len(data):
        raise errors.ProtocolError(f"{where} answered a frame of {len(data)} bytes, where its rows end at "
                                   f"{begin + offsets[-1]}")
    return _cut(data, begin, offsets, count)


def _offsets_of(data: bytearray, count: int, where: str) -> "array[int]":
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
        raise errors.ProtocolError(f"{where} answered a frame with offsets that do not ascend from 0")
    return table


def _cut(data: bytearray, begin: int, offsets: "array[int]", count: int) -> List[bytes]:
    """Returns the first rows of a frame. `begin`: where its row area begins."""
    rows = memoryview(data)[begin:]
    return [bytes(rows[offsets[k] : offsets[k + 1]]) for k in range(count)]


class _Get(Exchange):
    """An answer to GET. After a cut, requests the rest by a range of the same entity tag."""

    def __init__(self, path: str, start: Optional[int] = None, count: Optional[int] = None):
        self._path = path
        self._wanted = {"x-row-start": start, "x-row-count": count}
        self.skip = 0  # rows of a stream of Arrow before the first requested row
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
        """Makes room for a whole answer, in place of the bytes of an earlier one."""
        skip = answer.fields.get("x-row-skip", "0")
        if not re.fullmatch(r"[0-9]{1,18}", skip):
            raise errors.ProtocolError(f"{where} answered x-row-skip {skip!r}")
        self.skip = int(skip)
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
    """An answer to a list of rows, requested again after a cut."""

    def __init__(self, path: str, rows: Sequence[int]):
        self._path = path
        self.rows = self._left = list(rows)
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

    def result(self) -> Any:
        """Returns the whole answer."""
        return self.data


class _Frame(_Post):
    """A frame of a list of rows. After a cut, requests only the rows that did not arrive whole."""

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

    def result(self) -> List[bytes]:
        """Returns the rows."""
        return self.found

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
        raise errors.ProtocolError(f"{where} would send {nbytes} bytes; the limit is {MAX_BYTES}")
    return empty_bytes(nbytes)


class Lookahead:
    """Asks for the rows that a sampler takes next, while those before them are decoded and used: the answer comes into
    the buffers of the connection, and is read when its rows are taken. No thread takes part, since one would often wait
    for Python's lock.

    Thread-safe. Has no requests under way when it was pickled or the process forked.
    """

    def __init__(self, fetcher: Fetcher):
        self._fetcher = fetcher
        self._lock = ForkSafeLock()
        self._walk: Any = None
        self._next: Optional[Tuple[_Post, Optional[Begun]]] = None

    def __getstate__(self) -> Fetcher:
        return self._fetcher

    def __setstate__(self, fetcher: Fetcher) -> None:
        Lookahead.__init__(self, fetcher)

    def follow(self, walk: Any) -> None:
        """Sets the iteration that requests run ahead of: `walk.after(rows)` returns the rows that follow a list."""
        with self._lock:
            self._walk, self._next = walk, None

    def take(self, rows: List[int], as_arrow: bool) -> List[Any]:
        """Returns the parts of a list of rows, as `Fetcher.lists` does, and asks for those that come after them."""
        with self._lock:
            walk, ready, self._next = self._walk, self._next, None
        if ready is not None and ready[0].rows == rows:
            found = [self._fetcher.finish(*ready)]
        else:
            ready = None  # closes its connection
            found = self._fetcher.list_parts(rows, as_arrow)
        if walk is not None and len(rows) <= self._fetcher.part_rows(AHEAD_BYTES):
            following = walk.after(rows)
            if following:
                self._next = self._fetcher.begin(following, as_arrow)
        return found


# ---- tasks that run ahead of who takes their results

def ahead(tasks: Iterable[Callable[[], Any]], depth: int,
          stopping: Optional[threading.Event] = None) -> Iterator[Any]:
    """Yields the results of tasks in their order, while up to `depth` further ones run in threads of their own.

    Raises a task's error in its turn. When the iterator is closed, or ends by an error, no further task begins, and
    `stopping` is set. After a fork, the child runs tasks again that ran in threads of the parent.
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
    """A call that runs in a thread, or in the caller's thread if its result is needed before."""

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
