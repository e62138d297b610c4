"""Rows that a server cannot cut out, since they are compressed together: whole groups of them are read (row groups of
Parquet, compressed batches of Arrow), the latest ones are cached, and pyarrow cuts the rows.
"""
from __future__ import annotations

import bisect
import contextlib
import os
from collections import OrderedDict
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from .. import errors
from ..lock import ForkSafeLock
from . import columns

KEPT_BYTES = 128 * 2**20  # of groups, decoded, in each process
KEPT_LEAST = 2  # of the last ones, whatever their size: threads that read ahead are in neighbouring ones


class GroupedRows:
    """Rows of a split as tables of pyarrow. For any number of threads, which take turns; may be pickled, and used after
    a fork.

    Subclasses read the groups. `_begin` makes the attributes that belong to one process; `OWN` names these.
    """

    OWN: Tuple[str, ...] = ("_lock", "_pid", "_kept", "_firsts", "_nbytes")

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._kept: "OrderedDict[int, Any]" = OrderedDict()  # tables by their first row, used last: last
        self._firsts: List[int] = []  # sorted
        self._nbytes = 0

    def __getstate__(self) -> Dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in self.OWN}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = ForkSafeLock()
        self._begin()

    def schema(self) -> Any:
        """Returns pyarrow's schema of the rows. Raises as `table`."""
        with self._turn():
            return self._read_schema()

    def table(self, rows: Sequence[int]) -> Any:
        """Returns rows as a table of pyarrow, in the order of a list, which may repeat them.

        Raises ChangedError, ConnectError, AnswerError; DecodeError for bytes that pyarrow cannot read;
        TensordError for files with columns of different types.
        """
        import pyarrow

        if not len(rows):
            return columns.empty_table(self.schema())
        try:
            return self._gathered(rows)
        except pyarrow.ArrowInvalid as error:  # more rows than one array of a type can hold
            if len(rows) == 1:
                raise errors.DecodeError(f"row {rows[0]} cannot be taken out of its table: {error}") from error
        half = len(rows) // 2
        return columns.concat([self.table(rows[:half]), self.table(rows[half:])])

    def _gathered(self, rows: Sequence[int]) -> Any:
        """Returns rows as a table. Raises as `table`; pyarrow.ArrowInvalid for more rows than an array can hold."""
        order = sorted(range(len(rows)), key=rows.__getitem__)  # each group once
        parts, at = [], 0
        with self._turn():
            while at < len(order):
                first, group = self._group(rows[order[at]])
                wanted = []
                while at < len(order) and rows[order[at]] < first + len(group):
                    wanted.append(rows[order[at]] - first)
                    at += 1
                is_run = wanted == list(range(wanted[0], wanted[0] + len(wanted)))
                parts.append(group.slice(wanted[0], len(wanted)) if is_run else columns.take(group, wanted))
        table = self._joined(parts)
        if order == list(range(len(order))):
            return table
        places = [0] * len(order)
        for at, place in enumerate(order):
            places[place] = at
        return columns.take(table, places)

    def _joined(self, parts: Sequence[Any]) -> Any:
        import pyarrow

        try:
            return columns.concat(parts)
        except pyarrow.ArrowException as error:
            raise errors.TensordError(f"the files have columns of different types: {error}") from error

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        with self._lock:
            if self._pid != os.getpid():
                self._begin()
            yield

    def _group(self, row: int) -> Tuple[int, Any]:
        """Returns the group that holds a row, with the number of its first row."""
        at = bisect.bisect_right(self._firsts, row) - 1
        if at >= 0 and row < self._firsts[at] + len(self._kept[self._firsts[at]]):
            first = self._firsts[at]
            self._kept.move_to_end(first)
            return first, self._kept[first]
        first, table = self._read_group(row)
        while len(self._kept) >= KEPT_LEAST and self._nbytes + table.nbytes > KEPT_BYTES:
            oldest, dropped = self._kept.popitem(last=False)
            self._firsts.remove(oldest)
            self._nbytes -= dropped.nbytes
        bisect.insort(self._firsts, first)
        self._kept[first] = table
        self._nbytes += table.nbytes
        return first, table

    def _read_schema(self) -> Any:
        raise NotImplementedError

    def _read_group(self, row: int) -> Tuple[int, Any]:
        """Reads the group that holds a row, and returns the number of its first row and its table."""
        raise NotImplementedError
