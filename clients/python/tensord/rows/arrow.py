"""Rows of Arrow: streams of its IPC format as tables, and batches that are compressed, and so cannot be cut."""
from __future__ import annotations

from typing import Any, Tuple

from .. import errors
from ..address import dataset_path
from . import columns
from .fetching import Fetcher
from .grouped import GroupedRows


def table_of(stream: bytearray, dataset: str) -> Any:
    """Decodes an Arrow IPC stream into a pyarrow table. Raises DecodeError for invalid bytes."""
    import pyarrow

    with errors.as_decode_error(f"rows of {dataset} cannot be read as Arrow"):
        table = pyarrow.ipc.open_stream(pyarrow.py_buffer(stream)).read_all()
        columns.check(table)
        return table


class BatchRows(GroupedRows):
    """Reads rows of Arrow files with compressed batches, which the server cannot cut: it sends the whole batch that
    holds a row. A batch is a group."""

    def __init__(self, fetcher: Fetcher):
        self._fetcher = fetcher
        super().__init__()

    def _read_schema(self) -> Any:
        return table_of(self._fetcher.arrow_range(0, 0), self._fetcher.dataset).schema

    def _read_group(self, row: int) -> Tuple[int, Any]:
        stream, skip = self._fetcher.arrow_batch(row)
        table = table_of(stream, self._fetcher.dataset)
        if not skip < len(table) or skip > row:
            raise errors.ProtocolError(f"{dataset_path(self._fetcher.dataset)} answered a batch of {len(table)} rows, "
                                       f"with row {row} at {skip}")
        return row - skip, table
