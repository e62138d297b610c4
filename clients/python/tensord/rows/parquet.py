"""Rows of Parquet files: row groups are read by ranges of the files, and pyarrow decodes them."""
from __future__ import annotations

import bisect
import io
import itertools
from typing import Any, Callable, Dict, Optional, Sequence, Tuple
from urllib.parse import quote

from .. import errors
from ..address import dataset_path
from ..net.buffer import empty_bytes
from ..net.resources import read_resource, source_at
from ..net.retry import Patience
from ..net.session import Session
from . import columns
from .grouped import GroupedRows
from .splits import FileInfo


class ParquetRows(GroupedRows):
    """Rows of the Parquet files of a split, in the order of the files; a group is a row group.

    `found`: the files with their numbers of rows. `names`: the columns to read (None: all); `table` raises ValueError
    if a file lacks one. `check` raises DatasetChanged when the split is of another version than the dataset was opened
    at.
    """

    OWN = (*GroupedRows.OWN, "_open")

    def __init__(self, session: Session, dataset: str, found: Sequence[FileInfo], names: Optional[Sequence[str]],
                 check: Callable[[], None]):
        self._session, self._dataset, self._check = session, dataset, check
        self._files = [file for file in found if not file.error]
        self._starts = list(itertools.accumulate((file.rows or 0 for file in self._files), initial=0))
        self._names = None if names is None else list(names)
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        self._open: Dict[int, _File] = {}

    def _read_schema(self) -> Any:
        import pyarrow

        return self._file(0).schema if self._files else pyarrow.schema([])

    def _read_group(self, row: int) -> Tuple[int, Any]:
        number = bisect.bisect_right(self._starts, row) - 1
        file, within = self._file(number), row - self._starts[number]
        group = bisect.bisect_right(file.starts, within) - 1
        return self._starts[number] + file.starts[group], file.read(group)

    def _file(self, number: int) -> "_File":
        found = self._open.get(number)
        if found is None:
            about = self._files[number]
            found = _File(self._session, self._dataset, about, self._names)
            self._check()  # after the file has its version
            self._open[number] = found
        return found


class _File:
    """One Parquet file at one version. `starts`: the first row of each row group, and at last the number of rows."""

    def __init__(self, session: Session, dataset: str, about: FileInfo, names: Optional[Sequence[str]]):
        import pyarrow
        import pyarrow.parquet

        self._where = dataset_path(dataset, "resolve/main", about.path)
        with self._errors():
            self._parquet = pyarrow.parquet.ParquetFile(_Bytes(session, dataset, about.path), pre_buffer=True)
            metadata = self._parquet.metadata
            counts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
            schema = self._parquet.schema_arrow
        self.starts = list(itertools.accumulate(counts, initial=0))
        if self.starts[-1] != about.rows or min(counts, default=0) < 0:
            raise errors.ProtocolError(f"{self._where} has {self.starts[-1]} rows, and its description {about.rows}")
        self._names = names
        self.schema = schema if names is None else pyarrow.schema(
            [schema.field(place) for place in columns.places_of(schema, names, about.path)], schema.metadata)

    def read(self, group: int) -> Any:
        """Returns a row group as a table."""
        with self._errors():
            if self._names is None:
                return self._parquet.read_row_group(group)
            return columns.pick(self._parquet.read_row_group(group, columns=self._names), self._names)

    def _errors(self) -> Any:
        """Returns a context manager that raises DecodeError for bytes that pyarrow cannot read."""
        return errors.as_decode_error(f"{self._where} cannot be read as Parquet")


class _Bytes(io.RawIOBase):
    """The bytes of a dataset's file at the version that it has now, for pyarrow."""

    def __init__(self, session: Session, dataset: str, path: str):
        super().__init__()
        self._session = session
        self._source = source_at(session, dataset_path(dataset, "resolve/main", quote(path)))
        self._nbytes = self._source.first(Patience(session.options)).nbytes
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._nbytes}[whence]
        self._place = max(0, base + offset)
        return self._place

    def read(self, size: Optional[int] = -1) -> bytearray:
        left = max(0, self._nbytes - self._place)
        data = empty_bytes(left if size is None or size < 0 else min(size, left))
        if data:
            read_resource(self._session, self._source, [memoryview(data)], self._place)
        self._place += len(data)
        return data
