"""Datasets as the server describes them: their splits, files and columns, and how far their indices are."""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from .. import errors
from ..address import dataset_path
from ..net.session import Session


@dataclass(frozen=True)
class FileInfo:
    """A file of a split. `rows`: None until its index is ready; `error`: why it is excluded ("": it is not)."""

    path: str
    nbytes: int
    rows: Optional[int] = None
    error: str = ""


@dataclass(frozen=True)
class SplitInfo:
    """A split of a dataset at one version, which `fingerprint` names.

    `format`: jsonl, csv, arrow, parquet, webdataset, mds, litdata, megatron, npy, tokens or images. `rows` and
    `fingerprint`: None until the index is ready. `columns`: the server's descriptions, each with "name" and "type"
    at least; None: not known. `reason` says why the server cannot cut rows out ("": it can). `state`: ready, building
    or failed; `done_bytes` of `index_bytes` are indexed. `files`: the files that the description lists, out of
    `file_count`.
    """

    name: str
    format: str
    rows: Optional[int]
    nbytes: int
    row_type: str
    columns: Optional[Tuple[Dict[str, Any], ...]]
    reason: str
    fingerprint: Optional[str]
    state: str
    done_bytes: int
    index_bytes: int
    files: Tuple[FileInfo, ...] = ()
    file_count: int = 0

    @property
    def column_names(self) -> Optional[List[str]]:
        """Returns the names of the columns; None: not known."""
        return None if self.columns is None else [column["name"] for column in self.columns]


@dataclass(frozen=True)
class DatasetInfo:
    """A dataset: its splits by name, and the errors that the server found in its files."""

    id: str
    splits: Dict[str, SplitInfo]
    problems: Tuple[str, ...] = ()

    @staticmethod
    def from_json(value: Any) -> "DatasetInfo":
        """Decodes a server's description of a dataset. Raises ProtocolError."""
        try:
            splits = [_split_of(row) for row in value["splits"]]
            named = {split.name: split for split in splits}
            if type(value["id"]) is not str or len(named) != len(splits):
                raise TypeError("its id, or a name of two splits,")
            problems = tuple(errors.printable(_text_of(one)) for one in value.get("errors") or ())
            return DatasetInfo(value["id"], named, problems)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise errors.ProtocolError(f"the dataset's description is malformed: {error} is missing or "
                                       "wrong") from error

    def split(self, name: Optional[str]) -> SplitInfo:
        """Returns a split; without a name the only one. Raises NotFoundError, ValueError with the names there are."""
        names = ", ".join(map(errors.printable, self.splits)) or "none"
        if name is None and len(self.splits) == 1:
            return next(iter(self.splits.values()))
        if not self.splits:
            why = f": {self.problems[0]}" if self.problems else ""
            raise errors.NotFoundError(f"{self.id} has no splits{why}", 404, "NOT_FOUND")
        if name is None:
            raise ValueError(f"{self.id} has {len(self.splits)} splits ({names}): split= chooses one")
        if name not in self.splits:
            raise errors.NotFoundError(f"{self.id} has no split {name!r}; its splits are {names}", 404, "NOT_FOUND")
        return self.splits[name]


def _split_of(row: Any) -> SplitInfo:
    texts = [row[key] for key in ("name", "format", "row_type")]
    index = row["index"]
    state = index["state"]
    if not all(type(one) is str for one in [*texts, state]) or not texts[0]:
        raise TypeError("the name, format, row_type or index.state of a split")
    reason, fingerprint = row.get("reason"), row.get("fingerprint")
    if type(reason) not in (str, type(None)) or type(fingerprint) not in (str, type(None)):
        raise TypeError(f"the reason or the fingerprint of split {texts[0]!r}")
    if fingerprint is not None and not re.fullmatch(r"[0-9A-Za-z_.-]{1,200}", fingerprint):
        raise TypeError(f"the fingerprint of split {texts[0]!r}")
    rows = _count_of(row["rows"], True)
    columns = row.get("columns")
    if columns is not None and not all(type(one["name"]) is str for one in columns):
        raise TypeError(f"a column of split {texts[0]!r}")
    files = tuple(_file_of(one) for one in row.get("files") or ())
    return SplitInfo(
        texts[0], texts[1], rows, _count_of(row["nbytes"]), texts[2], None if columns is None else tuple(columns),
        errors.printable(reason or ""), fingerprint, state, _count_of(index.get("done_bytes", 0)),
        _count_of(index.get("nbytes", 0)), files, _count_of(row.get("file_count", len(files))))


def _file_of(row: Any) -> FileInfo:
    path, error = row["path"], row.get("error")
    if type(path) is not str:
        raise TypeError("the path of a file")
    return FileInfo(path, _count_of(row["nbytes"]), _count_of(row.get("rows"), True),
                    "" if error is None else errors.printable(_text_of(error)))


def _count_of(value: Any, may_lack: bool = False) -> Any:
    if may_lack and value is None:
        return None
    if type(value) is not int or not 0 <= value < 2**63:
        raise TypeError(f"the number {value!r}")
    return value


def _text_of(value: Any) -> str:
    """Returns a problem as a text: the server's text, or the message of its description."""
    if isinstance(value, dict):
        return ": ".join(str(value[key]) for key in ("file", "message") if value.get(key)) or str(value)
    return str(value)


def read_info(session: Session, id: str, file_start: int = 0) -> DatasetInfo:
    """Reads the description of a dataset as it is now; see `Client.dataset_info`."""
    query = f"?file_start={file_start}" if file_start else ""
    info = DatasetInfo.from_json(session.ask_json("GET", dataset_path(id) + query))
    if info.id != id and f"local/{info.id}" != id:  # the Hub's name of an id of one segment
        raise errors.ProtocolError(f"the server answered dataset {info.id!r} instead of {id!r}")
    return info


def check_named(id: Optional[str]) -> str:
    """Returns the id of a dataset. Raises AddressError if it is missing."""
    if not id:
        raise errors.AddressError("no dataset is named: give its id, or a URL like http://host:8080/datasets/ID or "
                                  "tensord://host:8080/datasets/ID")
    return id
