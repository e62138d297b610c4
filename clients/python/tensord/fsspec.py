"""A file system of fsspec: the files of models and datasets, read by range.

    fsspec.open("tensord://host:8080/Qwen/Qwen3-0.6B/config.json")
    fsspec.open("tensord://host:8080/datasets/fineweb/data/train-00000.parquet")

Datasets are below `datasets/`. `tensords://` is the same over TLS.
"""
from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from . import errors, options
from .address import glob_of
from .client import Client, connect
from .net import resources, transfer
from .net.buffer import empty_bytes
from .net.resources import read_resource
from .net.retry import Patience

DATASETS = "datasets"  # the folder of datasets below a server


@dataclass(frozen=True)
class _Target:
    """A model or a dataset by its id."""

    id: str
    is_dataset: bool

    @property
    def path(self) -> str:
        """The path of its folder below a server."""
        return f"{DATASETS}/{self.id}" if self.is_dataset else self.id

    def files(self, client: Client, path: str) -> List[Dict[str, Any]]:
        """Returns its files and folders; for a dataset, only those in the folder `path`. Each has `path`
        (for a folder with a slash at the end), `size` and, if the server knows it, `sha256`."""
        if self.is_dataset:
            return resources.dataset_files_of(client.session, self.id, path)
        return resources.files_of(client.session, self.id)

    def source_of(self, client: Client, path: str) -> transfer.Source:
        """Returns the source of one of its files."""
        find = resources.dataset_source_of if self.is_dataset else resources.source_of
        return find(client.session, self.id, path)


class TensordFileSystem(AbstractFileSystem):
    """Read-only. `kwargs`: options of `tensord.Options`, and fsspec's own. An open file has one version: when the file
    changes on the server, reading it raises ChangedError."""

    protocol = "tensord"
    root_marker = ""
    cachable = True

    def __init__(self, *args: Any, **kwargs: Any):
        self._own = {name: kwargs.pop(name) for name in options.NAMES if name in kwargs}
        super().__init__(*args, **kwargs)
        self._clients: Dict[str, Client] = {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return re.sub(r"^tensords?://", "", str(path)).rstrip("/")

    def _client(self, server: str) -> Client:
        if server not in self._clients:
            self._clients[server] = connect(f"{self.protocol}://{server}", **self._own)
        return self._clients[server]

    def _locate(self, path: str) -> Tuple[Client, Optional[_Target], str]:
        """Splits a path into the server's client, the model or dataset that holds it (None if no one does), and the
        rest of the path below that model, dataset or server."""
        server, _, rest = self._strip_protocol(path).partition("/")
        client = self._client(server)
        found = self._targets(client, rest) if rest else []
        for target in sorted(found, key=lambda one: (-len(one.path), not one.is_dataset)):
            if rest == target.path or rest.startswith(target.path + "/"):
                return client, target, rest[len(target.path) + 1 :]
        return client, None, rest

    @staticmethod
    def _targets(client: Client, rest: str) -> List[_Target]:
        """Returns the models and datasets of a server that may hold a path in their folders ("": all)."""
        def match_of(path: str) -> Optional[str]:
            first = path.partition("/")[0]
            return glob_of(first) + "*" if first else None

        first, _, below = rest.partition("/")
        found = [_Target(row["id"], False) for row in client.models(match=match_of(rest))]
        if first in ("", DATASETS):
            found += [_Target(row["id"], True) for row in client.datasets(match=match_of(below))]
        return found

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> List[Any]:
        """Lists the files and folders directly below a server, a folder of models or datasets, a model, a dataset or a
        folder in one. For a file, lists the file itself.

        A file has its `sha256` where the server knows it. Raises FileNotFoundError.
        """
        path = self._strip_protocol(path)
        client, target, rest = self._locate(path)
        base = path.partition("/")[0]
        found: Dict[str, Dict[str, Any]] = {}
        if target is not None:
            try:
                inside = [(f"{base}/{target.path}/{row['path']}", row) for row in target.files(client, rest)]
            except errors.NotFoundError:
                raise FileNotFoundError(path) from None
        else:
            inside = [(f"{base}/{one.path}/", {}) for one in self._targets(client, rest)]
        for name, row in inside:
            below, slash, _ = name[len(path) + 1 :].partition("/")
            if name.startswith(path + "/") and slash:
                found[f"{path}/{below}"] = {"name": f"{path}/{below}", "size": 0, "type": "directory"}
            elif name == path or name.startswith(path + "/"):
                about = {key: row[key] for key in ("sha256",) if key in row}
                found[name] = {"name": name, "size": row["size"], "type": "file", **about}
        if not found and rest:
            raise FileNotFoundError(path)
        rows = [found[name] for name in sorted(found)]
        return rows if detail else [row["name"] for row in rows]

    def info(self, path: str, **kwargs: Any) -> Dict[str, Any]:
        """Describes a file or folder. Raises FileNotFoundError."""
        path = self._strip_protocol(path)
        rows: List[Dict[str, Any]] = self.ls(path)
        for row in rows:
            if row["name"] == path:
                return row
        return {"name": path, "size": 0, "type": "directory"}

    def _open(self, path: str, mode: str = "rb", block_size: Optional[int] = None, **kwargs: Any) -> "TensordFile":
        if mode != "rb":
            raise self._read_only(path)
        source, resource, client = self._find(path)
        return TensordFile(self, path, source, client, resource.nbytes, block_size or "default", kwargs)

    def _find(self, path: str) -> Tuple[transfer.Source, transfer.Resource, Client]:
        """Returns a file at the version of now. Raises FileNotFoundError."""
        client, target, rest = self._locate(path)
        if target is None or not rest:
            raise FileNotFoundError(path)
        source = target.source_of(client, rest)
        try:
            return source, source.first(Patience(client.session.options)), client
        except errors.NotFoundError:
            raise FileNotFoundError(path) from None

    def ukey(self, path: str) -> str:
        """Returns the file's entity tag, which changes with its bytes. Raises FileNotFoundError."""
        return self._find(path)[1].etag

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None, **kwargs: Any) -> bytes:
        """Reads bytes [start, end) of a file, over several connections; negative ones count from its end."""
        with self._open(path) as file:
            first, last, _ = slice(start, end).indices(file.size)
            data: bytes = file._fetch_range(first, max(first, last))
            return data

    @staticmethod
    def _read_only(path: Any) -> OSError:
        return OSError(errno.EROFS, "the files of tensord can be read only", str(path))

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Raises OSError (EROFS), as everything that would change a file."""
        raise self._read_only(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Raises OSError (EROFS)."""
        raise self._read_only(path)

    def rmdir(self, path: str) -> None:
        """Raises OSError (EROFS)."""
        raise self._read_only(path)

    def _rm(self, path: str) -> None:
        raise self._read_only(path)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Raises OSError (EROFS)."""
        raise self._read_only(path2)

    def created(self, path: str) -> Any:
        """Raises NotImplementedError: the server does not report it."""
        raise NotImplementedError("tensord does not report when a file was created")

    def modified(self, path: str) -> Any:
        """Raises NotImplementedError: `info` of the model has the time of its newest change."""
        raise NotImplementedError("tensord does not report when a single file was changed")


class TensordTlsFileSystem(TensordFileSystem):
    """A TensordFileSystem over TLS."""

    protocol = "tensords"


class TensordFile(AbstractBufferedFile):
    """An open file: ranges of one version of it."""

    def __init__(self, fs: TensordFileSystem, path: str, source: transfer.Source, client: Client, nbytes: int,
                 block_size: Any, kwargs: Dict[str, Any]):
        self._source, self._client = source, client
        super().__init__(fs, path, "rb", block_size, size=nbytes, **kwargs)

    def _fetch_range(self, start: int, end: int) -> bytes:
        data = empty_bytes(max(0, min(end, self.size) - start))
        if data:
            read_resource(self._client.session, self._source, [memoryview(data)], start)
        return bytes(data)
