"""Datasets: any row of any file of a split by its number, read on demand; nothing is stored on the client's disk.

    dataset = tensord.Dataset("tensord://host:8080/datasets/fineweb", split="train")
    dataset[5], dataset[-1], dataset[10:20], len(dataset)
"""
from __future__ import annotations

import operator
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Protocol, Sequence, Tuple, Union

from .. import errors
from ..address import Urls, dataset_path, parse
from ..net.progress import Progress
from ..net.session import Session
from ..options import Options, of
from . import columns as arrow_columns
from . import decoding
from .arrow import BatchRows, table_of
from .fetching import Fetcher, Lookahead, ahead
from .grouped import GroupedRows
from .imagefolder import ImageFolder, read_folder
from .parquet import ParquetRows
from .permutation import Permutation, check_shard, shard_rows
from .places import Paths, paths_of
from .splits import DatasetInfo, FileInfo, SplitInfo, check_named, read_info

if TYPE_CHECKING:
    import datasets
    import pyarrow

AHEAD_BYTES = 2**20  # of one request of a loop over all rows
AHEAD_DEPTH = 2  # requests ahead of it
POLL_SECONDS = (0.05, 1.0)  # between looks at an index that is being built: at first, at last


@dataclass(frozen=True)
class RemoteSplit:
    """A split of a dataset on the servers of a session. `split`: its name; None: the only one."""

    session: Session
    id: str
    split: Optional[str] = None


class Named(Protocol):
    """An object that names a split: a Client with the URL of a dataset."""

    def remote_split(self) -> RemoteSplit:
        """Returns the split. Raises AddressError if the object names no dataset."""


class Dataset:
    """The rows of one split at the version of the opening: a later read returns rows of that version, or raises
    DatasetChanged. Map-style for torch's DataLoader, a RandomAccessDataSource for grain. Thread-safe; may be pickled
    (with its token), and used after a fork.

    `url`: tensord://host:port/datasets/ID or http://host:port/datasets/ID, or several servers as for models.
    `split`: its name; not needed where there is one.
    `decode`: the decoder of rows: "bytes" or None, "json", "csv" (dicts of texts), "image" (PIL), "tokens" or "npy"
    (arrays of numpy), "sample" (webdataset: a dict of extensions and bytes, with "__key__"), "mds" and "arrow" (dicts;
    "arrow" is for Arrow and Parquet), "imagefolder" (dicts: the image with its label or its metadata), or a function of
    a row's bytes (of its dict for Arrow and Parquet); "auto" goes by the split's format.
    `columns`: the keys to keep of rows that are dicts. `transform`: a function of each decoded row, or with
    "imagefolder" of its image; its errors are passed on unchanged. `given`: options by name (see `Options`).

    Waits while the server builds the split's index, up to `retry_for` seconds without progress. Raises NotFoundError,
    ConnectError, AnswerError; ValueError where `split` is needed, or `decode` does not fit.

    `session`, `fetcher`, `grouped`, `lookahead`, `task` and `read_list` are for the other modules of this package.
    """

    def __init__(self, url: Union[Urls, RemoteSplit, Named], split: Optional[str] = None,
                 decode: decoding.Decode = "auto", columns: Optional[Sequence[str]] = None,
                 options: Optional[Options] = None, transform: Optional[Callable[[Any], Any]] = None, **given: Any):
        remote = _remote_of(url, of(options, **given))
        if isinstance(columns, str):
            raise TypeError(f"columns is a list of names, not {columns!r}")
        self.session = remote.session
        self.info, self.split_info = _open(remote, split)
        self.id, self.split = self.info.id, self.split_info.name
        rows, fingerprint = self.split_info.rows, self.split_info.fingerprint
        if rows is None or not fingerprint:
            raise errors.ProtocolError(f"the index of split {self.split} of {self.id} is there, and has no rows or no "
                                       "fingerprint")
        self._rows = rows
        self.fingerprint: str = fingerprint
        self._columns = None if columns is None else list(dict.fromkeys(columns))
        self._own_function = callable(decode)
        self._transform = transform
        self._decode_name, self._decode = decoding.decoder_of(decode, self.split_info, self._columns)
        self.fetcher = Fetcher(self.session, self.id, self.split, rows, self.split_info.nbytes, fingerprint)
        self._as_tables = self.split_info.format in decoding.TABLES
        self.grouped = self._open_grouped()
        self._paths: Optional[Paths] = None
        self.lookahead = Lookahead(self.fetcher)
        self._as_folder = not self._own_function and self._decode_name == "imagefolder"
        self._folder = self._read_folder() if self._as_folder else None

    def __repr__(self) -> str:
        """Returns the same text for the same rows, wherever they are served: grain's checkpoints compare it."""
        columns = "" if self._columns is None else f", columns={self._columns!r}"
        return (f"tensord.Dataset({self.id!r}, split={self.split!r}, rows={self._rows}, decode={self._decode_name!r}"
                f"{columns}, fingerprint={self.fingerprint!r})")

    @property
    def column_names(self) -> Optional[List[str]]:
        """Returns the names of the columns; None: not known. Of Parquet the first file is read for them."""
        if self.grouped is None or self.is_arrow:
            return self.split_info.column_names
        with self.fetcher.faults():
            return list(self.grouped.schema().names)

    @property
    def classes(self) -> List[str]:
        """Returns the sorted class names of an image folder, over all splits; a label is an index into them. The list
        is empty if the folders form no classes or metadata files describe the images.

        Raises TensordError for rows of other formats; ConnectError, AnswerError.
        """
        if self._folder is None:
            self._folder = self._read_folder()
        return list(self._folder.classes)

    @property
    def class_to_idx(self) -> Dict[str, int]:
        """Returns the label of each class. Raises as `classes`."""
        return {name: label for label, name in enumerate(self.classes)}

    @property
    def is_arrow(self) -> bool:
        """Returns whether rows are read as streams of Arrow."""
        return self.split_info.format == "arrow"

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: Any) -> Any:
        """Returns a row by its number, negative from the end, or a list of rows for a slice.

        Raises IndexError; DatasetChanged, ConnectError, AnswerError; DecodeError for a row that `decode` cannot read.
        """
        if isinstance(index, slice):
            return self._slice(range(self._rows)[index])
        row = self._number(index)
        if self._as_tables:
            return self._dicts(self._tables([row]), 1, [row])[0]
        return self._decoded([self.fetcher.read_row(row)], [row])[0]

    def __getitems__(self, indices: Sequence[int]) -> List[Any]:
        """Returns rows in the order of a list, which may repeat them, as one request; a large list as several at once.

        torch's DataLoader asks for its batches by this; while one is used, the next is on its way, if a ShuffleSampler
        of this dataset gives the rows. Raises as `__getitem__`.
        """
        rows = self._numbers(indices)
        if not rows or self.grouped is not None:
            return self.read_list(rows)
        return self._made(self.lookahead.take(rows, self.is_arrow), rows)

    def __iter__(self) -> Iterator[Any]:
        """Yields all rows in order; a few requests run ahead. Raises as `__getitem__`."""
        return self.walk()

    def walk(self, start: int = 0) -> Iterator[Any]:
        """Yields the rows from `start` on, as `__iter__` does."""
        size = self.fetcher.part_rows(AHEAD_BYTES)
        stopping = threading.Event()
        tasks = (self.task(at, min(size, self._rows - at), None, stopping) for at in range(start, self._rows, size))
        for part in ahead(tasks, AHEAD_DEPTH, stopping):
            yield from part

    def read_bytes(self, rows: Union[slice, Sequence[int]]) -> List[bytes]:
        """Returns the bytes of rows as in their files, of text without line ends. A slice, or a list of numbers.

        Raises as `__getitem__`; TensordError for rows of Arrow and Parquet, which have no bytes of their own.
        """
        if self._as_tables:
            raise errors.TensordError(f"rows of {self.id} are parts of tables, and have no bytes of their own: arrow() "
                                      "returns them as a table")
        return self._bytes(self._chosen(rows))

    def paths(self, rows: Union[slice, Sequence[int]] = slice(None)) -> List[str]:
        """Returns the paths, below the dataset, of the files that hold rows. The paths of an image folder show its
        classes. A slice, or a list of numbers.

        The first call reads 4 bytes for each row of the split, and the names of all files. Raises as `__getitem__`;
        AnswerError where the rows of a format have no places (Parquet).
        """
        numbers = self._chosen(rows)
        if self._paths is None:
            with self.fetcher.faults():
                self._paths = paths_of(self.session, self.fetcher.path("index"), self._rows)
        return self._paths.take(numbers)

    def shuffled(self, start: int, count: int, seed: int = 0, epoch: int = 0, rank: int = 0,
                 world: int = 1) -> List[Any]:
        """Returns the rows at positions [start, start + count) of a shard of the shuffled order, fewer at its end.

        `ShuffleSampler` and the server's order=shuffle have the same order. Raises as `__getitem__`; ValueError.
        """
        rank, world = check_shard(rank, world)
        permutation = Permutation(self._rows, seed, epoch)
        end = min(start + count, shard_rows(self._rows, rank, world))
        if start < 0 or count < 0:
            raise ValueError(f"start and count must not be negative, not {start} and {count}")
        if start >= end:
            return []
        order = {"order": "shuffle", "seed": permutation.seed, "epoch": permutation.epoch, "shard": f"{rank}/{world}"}
        numbers = permutation.take(start, end - start, rank, world)
        if self.grouped is not None:  # the server shuffles only rows that it can cut
            return self.read_list(numbers)
        read = _with(self.fetcher.arrow_range if self.is_arrow else self.fetcher.read_range, order)
        return self._made(self.fetcher.ranges(start, end - start, read), numbers)

    def arrow(self, rows: Union[slice, Sequence[int]] = slice(None)) -> "pyarrow.Table":
        """Returns rows as a table of pyarrow: a slice, or a list of numbers, which may repeat them. For rows of
        formats other than Arrow and Parquet, it is made of decoded rows; rows that are not dicts become one column,
        "row".

        Raises as `__getitem__`; ImportError.
        """
        import pyarrow

        if self._as_tables:
            tables = self._tables(self._chosen(rows))
            with errors.as_decode_error(f"rows of {self.id} cannot be joined to one table"):
                table = arrow_columns.concat(tables)
            return self._picked(table)
        made = self[rows] if isinstance(rows, slice) else self.__getitems__(rows)
        dicts = [row if isinstance(row, dict) else {"row": row} for row in made]
        with errors.as_decode_error(f"rows of {self.id} cannot be made columns of one table"):
            return pyarrow.Table.from_pylist([{name: _plain(value) for name, value in row.items()} for row in dicts])

    def to_datasets(self, rows: Union[slice, Sequence[int]] = slice(None)) -> "datasets.Dataset":
        """Returns rows as a `datasets.Dataset` in memory, of Arrow's and Parquet files with their features. Raises as
        `arrow`."""
        import datasets

        table = self.arrow(rows)
        with errors.as_decode_error(f"rows of {self.id} cannot be made a datasets.Dataset"):
            return datasets.Dataset(datasets.table.InMemoryTable(table))

    # ---- how

    def __getstate__(self) -> Dict[str, Any]:
        return dict(self.__dict__)

    def _open_grouped(self) -> Optional[GroupedRows]:
        """Returns a reader of rows that the server cannot cut out; None if the server can."""
        if self.split_info.format == "parquet":
            return ParquetRows(self.session, self.id, self._all_files(), self._columns,
                               self.fetcher.check_version)
        return BatchRows(self.fetcher) if self.is_arrow and self.split_info.reason else None

    def _read_folder(self) -> ImageFolder:
        """Reads the labels or metadata of the images. Raises as `classes`; DecodeError for invalid metadata."""
        if self.split_info.format != "images":
            raise errors.TensordError(f"rows of {self.id} are of format {self.split_info.format} and have no classes: "
                                      "only folders of images have classes")
        with self.fetcher.faults():
            return read_folder(self.session, self.id, self.split, self._paths_of_splits())

    def _paths_of_splits(self) -> Dict[str, List[str]]:
        """Returns the paths of the images of all splits that have images."""
        found = {}
        for name, split in self.info.splits.items():
            if name != self.split and split.format == "images":
                found[name] = Dataset(RemoteSplit(self.session, self.id, name), decode=None).paths()
        return {**found, self.split: self.paths()}

    def _all_files(self) -> List[FileInfo]:
        """Returns all files of the split. Raises DatasetChanged, ProtocolError."""
        files, count = list(self.split_info.files), self.split_info.file_count
        while len(files) < count:
            found = read_info(self.session, self.id, len(files)).split(self.split)
            if found.fingerprint != self.fingerprint:
                self.fetcher.check_version()
            if not found.files or found.file_count != count:
                raise errors.ProtocolError(f"{dataset_path(self.id)} describes {len(files)} of {count} files")
            files += found.files
        if sum(file.rows or 0 for file in files if not file.error) != self._rows:
            raise errors.ProtocolError(f"{dataset_path(self.id)} describes files that do not have {self._rows} rows")
        return files

    def _number(self, index: Any) -> int:
        if isinstance(index, bool):
            raise TypeError(f"a row is named by a number, not by {index!r}")
        number = operator.index(index)
        if not -self._rows <= number < self._rows:
            raise IndexError(f"row {number} of {self.id}: split {self.split} has {self._rows} rows" +
                             (f", {-self._rows} to {self._rows - 1}" if self._rows else ""))
        return number + self._rows if number < 0 else number

    def _numbers(self, indices: Sequence[int]) -> List[int]:
        if isinstance(indices, (str, bytes)):
            raise TypeError(f"rows are named by a list of numbers, not by {indices!r}")
        return [self._number(index) for index in getattr(indices, "tolist", lambda: indices)()]

    def _chosen(self, rows: Union[slice, Sequence[int]]) -> Sequence[int]:
        return range(self._rows)[rows] if isinstance(rows, slice) else self._numbers(rows)

    def _slice(self, numbers: range) -> List[Any]:
        if self._as_tables:
            return self._dicts(self._tables(numbers), len(numbers), numbers) if len(numbers) else []
        return self._decoded(self._bytes(numbers), numbers)

    def read_list(self, rows: List[int]) -> List[Any]:
        """Returns rows in the order of a list, and asks for none ahead."""
        if not rows:
            return []
        parts = self._tables(rows) if self.grouped is not None else self.fetcher.list_parts(rows, self.is_arrow)
        return self._made(parts, rows)

    def _made(self, parts: List[Any], rows: Sequence[int]) -> List[Any]:
        """Returns decoded rows of parts of an answer: lists of bytes, streams of Arrow, or tables."""
        if self._as_tables:
            return self._dicts(parts if self.grouped is not None else self._tables_of(parts), len(rows), rows)
        return self._decoded([row for part in parts for row in part], rows)

    def _bytes(self, numbers: Sequence[int]) -> List[bytes]:
        if not len(numbers):
            return []
        run = _run_of(numbers)
        if run is None:
            parts = self.fetcher.lists(numbers, self.fetcher.read_list)
        else:
            parts = self.fetcher.ranges(run.start, len(run), self.fetcher.read_range)
        return [row for part in parts for row in part]

    def _streams(self, numbers: Sequence[int]) -> List[bytearray]:
        """Returns streams of Arrow with rows; without any, one stream of none, for its schema."""
        run = range(0) if not len(numbers) else _run_of(numbers)
        if run is None:
            return self.fetcher.lists(numbers, self.fetcher.arrow_list)
        if not run:
            return [self.fetcher.arrow_range(0, 0)]
        return self.fetcher.ranges(run.start, len(run), self.fetcher.arrow_range)

    def _decoded(self, rows: List[bytes], numbers: Sequence[int]) -> List[Any]:
        made = self._finished(self._decode_all(rows, numbers))
        if self._folder is None or not self._as_folder:
            return made
        dicts = [self._folder.row(numbers[place], image) for place, image in enumerate(made)]
        return [decoding.pick(row, self._columns) for row in dicts]

    def _finished(self, rows: List[Any]) -> List[Any]:
        """Applies `transform` to rows."""
        return rows if self._transform is None else [self._transform(row) for row in rows]

    def _decode_all(self, rows: List[bytes], numbers: Sequence[int]) -> List[Any]:
        if self._decode is None:
            return rows
        if self._own_function:  # its errors are passed on unchanged
            return [self._decode(row) for row in rows]
        made: List[Any] = []
        try:
            for row in rows:
                made.append(self._decode(row))
        except Exception as error:
            raise self._undecoded(numbers[len(made)], error) from error
        return made

    def _undecoded(self, number: int, error: Exception) -> errors.DecodeError:
        text = errors.printable(str(error)) or type(error).__name__
        return errors.DecodeError(f"row {number} of {self.id} (split {self.split}) cannot be read by decode="
                                  f"{self._decode_name!r}: {text}; read_bytes([{number}]) returns its bytes")

    def _picked(self, table: "pyarrow.Table") -> "pyarrow.Table":
        """Returns a table with the requested columns only."""
        return table if self._columns is None else arrow_columns.pick(table, self._columns)

    def _dicts(self, tables: List["pyarrow.Table"], count: int, numbers: Any) -> List[Any]:
        """Returns the rows of tables as dicts, or the results of a given function. `numbers`: the rows' numbers, for
        messages."""
        if sum(map(len, tables)) != count:
            raise errors.ProtocolError(f"{dataset_path(self.id)} answered {sum(map(len, tables))} rows, where {count} "
                                       "were asked for")
        found: List[Any] = []
        for table in map(self._picked, tables):
            try:
                found += table.to_pylist()
            except Exception:  # any error of a value's type; the loop finds the row that has it
                for place in range(len(table)):
                    with errors.as_decode_error(f"row {numbers[len(found)]} of {self.id} (split {self.split}) cannot "
                                                "be read as a dict; arrow() returns it as a table"):
                        found += table.slice(place, 1).to_pylist()
        return self._finished(found if self._decode is None else [self._decode(row) for row in found])

    def _tables(self, rows: Sequence[int]) -> List["pyarrow.Table"]:
        """Returns rows as tables, one of no rows without any."""
        if self.grouped is None:
            return self._tables_of(self._streams(rows))
        with self.fetcher.faults():
            return [self.grouped.table(rows)]

    def _tables_of(self, streams: List[bytearray]) -> List["pyarrow.Table"]:
        return [table_of(stream, self.id) for stream in streams]

    def task(self, start: int, count: int, order: Optional[Dict[str, Any]], stopping: threading.Event,
             numbers: Any = None) -> Callable[[], List[Any]]:
        """Returns a function that reads and decodes one part of an order. `numbers`: its row numbers, for messages."""
        known = range(start, start + count) if numbers is None else numbers
        if self.grouped is not None:
            return lambda: self._dicts(self._tables(known), count, known)
        if self.is_arrow:
            return lambda: self._dicts(
                self._tables_of([self.fetcher.arrow_range(start, count, order, stopping)]), count, known)
        return lambda: self._decoded(self.fetcher.read_range(start, count, order, stopping), known)


def _remote_of(url: Union[Urls, RemoteSplit, Named], options: Options) -> RemoteSplit:
    """Returns the split that a URL or an object names. Raises AddressError."""
    if isinstance(url, RemoteSplit):
        return url
    if hasattr(url, "remote_split"):
        return url.remote_split()
    address = parse(url)
    return RemoteSplit(Session(address.endpoints, options), check_named(address.dataset), address.split)


def _open(remote: RemoteSplit, split: Optional[str]) -> Tuple[DatasetInfo, SplitInfo]:
    """Waits for the index of a split. Returns the descriptions of the dataset and the split."""
    info = read_info(remote.session, remote.id)
    found = info.split(split if split is not None else remote.split)
    if found.state == "ready":
        return info, found
    pause, last = POLL_SECONDS
    options = remote.session.options
    with Progress(found.index_bytes, f"index of {info.id}", options.progress) as progress:
        since, done = time.monotonic(), 0
        while found.state != "ready":
            if found.state != "building":
                raise errors.TensordError(f"the index of split {found.name} of {info.id} cannot be built"
                                          f"{_why(info, found)}")
            if found.done_bytes > done:
                progress.add(found.done_bytes - done)
                since, done = time.monotonic(), found.done_bytes
            spent = time.monotonic() - since
            if spent > options.retry_for:
                raise errors.ConnectError(
                    f"the index of split {found.name} of {info.id} is being built, and stands at {done} of "
                    f"{found.index_bytes} bytes for {spent:.0f} s ({options.with_value('retry_for')})")
            time.sleep(pause)
            pause = min(last, 2 * pause)
            info = read_info(remote.session, remote.id)
            found = info.split(found.name)
    return info, found


def _why(info: DatasetInfo, split: SplitInfo) -> str:
    reasons = [f"{file.path}: {file.error}" for file in split.files if file.error]
    reasons += [split.reason] * bool(split.reason) + list(info.problems)
    return ": " + "; ".join(dict.fromkeys(reasons[:5])) if reasons else ""


def _with(read: Any, order: Dict[str, Any]) -> Any:
    return lambda start, count, stopping: read(start, count, order, stopping)


def _run_of(numbers: Sequence[int]) -> Optional[range]:
    """Returns a list of numbers as a range, if each is one more than the one before it."""
    run = range(numbers[0], numbers[0] + len(numbers))
    if isinstance(numbers, range):
        return run if numbers.step == 1 or len(numbers) == 1 else None
    return run if list(numbers) == list(run) else None


def _plain(value: Any) -> Any:
    """Returns an array of numpy as nested lists, for pyarrow; other values as they are."""
    return value.tolist() if type(value).__module__ == "numpy" else value
