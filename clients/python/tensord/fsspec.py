"""A file system of fsspec: the files of models and datasets, read by range, and written where the server has --publish.

    fsspec.open("tensord://host:8080/Qwen/Qwen3-0.6B/config.json")
    fsspec.open("tensord://host:8080/datasets/fineweb/data/train-00000.parquet")
    fsspec.open("tensord://host:8080/org/name/notes.txt", "w")

Datasets are below `datasets/`. `org/name@revision` is a model at a revision. `tensords://` is the same over TLS.
"""
from __future__ import annotations

import errno
import io
import os
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union
from urllib.parse import quote

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from fsspec.transaction import Transaction

from . import errors, options
from .address import dataset_path, glob_of, path_of
from .client import Client, connect
from .net import resources, transfer
from .net.buffer import empty_bytes
from .net.resources import read_resource
from .net.retry import Patience
from .publishing.changes import Changes
from .publishing.place import Blob
from .publishing.repository import Repository

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


@dataclass(frozen=True)
class _Tree:
    """The files of a model or dataset at a revision, whether they make a model or not."""

    id: str
    is_dataset: bool
    revision: str
    path: str  # of its folder below a server, as the caller writes it

    def files(self, client: Client, path: str) -> List[Dict[str, Any]]:
        """Returns the files and folders in the folder `path`, as _Target.files does for a dataset."""
        find = dataset_path if self.is_dataset else path_of
        tree = find(self.id, "tree", quote(self.revision, safe=""), *[quote(path)] * bool(path))
        return resources.tree_of(client.session, tree, self.path)

    def source_of(self, client: Client, path: str) -> transfer.Source:
        """Returns the source of one of its files."""
        target = "/".join(("", *[DATASETS] * self.is_dataset, quote(self.id), "resolve",
                           quote(self.revision, safe=""), quote(path)))
        return resources.source_at(client.session, target)


def _tree_of(rest: str, count: int = 2) -> Optional[_Tree]:
    """Returns the model or dataset that a path below a server names by its first `count` parts, or by a first part with
    a revision; None for a shorter path."""
    is_dataset = rest == DATASETS or rest.startswith(DATASETS + "/")
    parts = rest.split("/")[1 if is_dataset else 0 :]
    count = 1 if parts and "@" in parts[0] else count
    if len(parts) < count or not parts[0]:
        return None
    name, _, revision = "/".join(parts[:count]).partition("@")
    path = "/".join([DATASETS] * is_dataset + parts[:count])
    return _Tree(name, is_dataset, revision or "main", path)


class _Transaction(Transaction):
    """A transaction whose files appear by one commit for each model or dataset."""

    def complete(self, commit: bool = True) -> None:
        """Ends the transaction."""
        if not commit:
            super().complete(False)
            return
        with self.fs.together():
            super().complete(True)


@dataclass
class _Deferred:
    """A change that waits for the end of a transaction."""

    fs: "TensordFileSystem"
    path: str
    blob: Optional[Blob]

    def commit(self) -> None:
        """Makes the change."""
        self.fs.apply(self.path, self.blob)

    def discard(self) -> None:
        """Does nothing: the blob expires on the server."""


class TensordFileSystem(AbstractFileSystem):
    """`kwargs`: options of `tensord.Options`, and fsspec's own. An open file has one version: when the file changes on
    the server, reading it raises ChangedError.

    A file that is written appears when it is closed, whole or not at all, by a commit; other files stay. The files of
    one call (`put`, `pipe`, `cp`, `mv` and `rm` of several) and those of a transaction appear by one commit. Folders
    exist with their files. A name that the server does not list, such as `x.tmp` or a hidden one, is kept for this
    object alone until `mv` gives the file another name.
    """

    protocol = "tensord"
    root_marker = ""
    cachable = True
    transaction_type = _Transaction

    def __init__(self, *args: Any, **kwargs: Any):
        self._own = {name: kwargs.pop(name) for name in options.NAMES if name in kwargs}
        super().__init__(*args, **kwargs)
        self._clients: Dict[str, Client] = {}
        self._repositories: Dict[str, Repository] = {}
        self._single: Dict[str, bool] = {}  # of a first part of ids: whether it is an id by itself
        self._unlisted: Dict[str, Blob] = {}  # files with names that the server does not list
        self._gathered = threading.local()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return re.sub(r"^tensords?://", "", str(path)).rstrip("/")

    def _client(self, server: str) -> Client:
        if server not in self._clients:
            self._clients[server] = connect(f"{self.protocol}://{server}", **self._own)
        return self._clients[server]

    def _locate(self, path: str) -> Tuple[Client, Union[_Target, _Tree, None], str]:
        """Splits a path into the server's client, the model, dataset or tree that holds it (None if no one does), and
        the rest of the path below that model, dataset or server."""
        server, _, rest = self._strip_protocol(path).partition("/")
        client = self._client(server)
        found = self._targets(client, rest) if rest else []
        for target in sorted(found, key=lambda one: (-len(one.path), not one.is_dataset)):
            if rest == target.path or rest.startswith(target.path + "/"):
                return client, target, rest[len(target.path) + 1 :]
        if not any(one.path.startswith(rest + "/") for one in found):
            tree = self._tree(server, rest)
            if tree is not None:
                return client, tree, rest[len(tree.path) + 1 :]
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
            inside += self._files_beside(client, base, rest)
        for name, row in inside:
            below, slash, _ = name[len(path) + 1 :].partition("/")
            if name.startswith(path + "/") and slash:
                found[f"{path}/{below}"] = {"name": f"{path}/{below}", "size": 0, "type": "directory"}
            elif name == path or name.startswith(path + "/"):
                about = {key: row[key] for key in ("sha256",) if key in row}
                found[name] = {"name": name, "size": row["size"], "type": "file", **about}
        if not found and (rest or isinstance(target, _Tree)):
            raise FileNotFoundError(path)
        rows = [found[name] for name in sorted(found)]
        return rows if detail else [row["name"] for row in rows]

    @staticmethod
    def _files_beside(client: Client, base: str, rest: str) -> List[Tuple[str, Dict[str, Any]]]:
        """Returns the files of a model or dataset that has models only in its folders."""
        tree = _tree_of(rest)
        if tree is None:
            return []
        try:
            return [(f"{base}/{tree.path}/{row['path']}", row)
                    for row in tree.files(client, rest[len(tree.path) + 1 :])]
        except errors.NotFoundError:
            return []

    def info(self, path: str, **kwargs: Any) -> Dict[str, Any]:
        """Describes a file or folder. Raises FileNotFoundError."""
        path = self._strip_protocol(path)
        if path in self._unlisted:
            return {"name": path, "size": self._unlisted[path].size, "type": "file"}
        rows: List[Dict[str, Any]] = self.ls(path)
        for row in rows:
            if row["name"] == path:
                return row
        return {"name": path, "size": 0, "type": "directory"}

    def _open(self, path: str, mode: str = "rb", block_size: Optional[int] = None, autocommit: bool = True,
              **kwargs: Any) -> Union["TensordFile", "TensordUpload"]:
        if mode in ("wb", "xb"):
            if mode == "xb" and self.exists(path):
                raise FileExistsError(errno.EEXIST, "the file is there", path)
            return TensordUpload(self, path, self._repository(path)[0], autocommit)
        if mode != "rb":
            raise OSError(errno.EINVAL, f"files of tensord are read (rb) or written whole (wb, xb), not {mode}", path)
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
        source, resource, client = self._find(path)
        first, last, _ = slice(start, end).indices(resource.nbytes)
        data = empty_bytes(max(0, last - first))
        if data:
            read_resource(client.session, source, [memoryview(data)], first)
        return bytes(data)

    # ---- writing

    def _repository(self, path: str) -> Tuple[Repository, str]:
        """Returns the model or dataset that a file to write is in, and the path of the file in it.

        Raises OSError (EINVAL) for a path that names no file in a model or dataset.
        """
        path = self._strip_protocol(path)
        server, _, rest = path.partition("/")
        tree = self._tree(server, rest)
        if tree is None or not rest.startswith(tree.path + "/"):
            raise OSError(errno.EINVAL, "not a file of a model or dataset: org/name/file, or name@main/file", path)
        url = f"{self.protocol}://{server}/{'datasets/' if tree.is_dataset else ''}{tree.id}@{tree.revision}"
        if url not in self._repositories:
            self._single.pop(f"{server}/{tree.path.partition('@')[0]}", None)
            self._repositories[url] = Repository.open(quote(url, safe=":/@[],"), **self._own)
        return self._repositories[url], rest[len(tree.path) + 1 :]

    def _tree(self, server: str, rest: str) -> Optional[_Tree]:
        """Returns the model or dataset that a path below a server is in: with an id of one part if there is one, else
        as _tree_of does."""
        first = _tree_of(rest, 1)
        if first is None or "@" in first.path:
            return _tree_of(rest)
        key = f"{server}/{first.path}"
        if key not in self._single:
            try:
                first.files(self._client(server), "")
                self._single[key] = True
            except errors.AnswerError as error:
                if error.status not in (401, 403, 404):  # the Hub's answers for what is not there
                    raise
                self._single[key] = False
        return first if self._single[key] else _tree_of(rest)

    def invalidate_cache(self, path: Optional[str] = None) -> None:
        """Forgets which ids of one part the servers had."""
        self._single.clear()
        super().invalidate_cache(path)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Gathers the changes of this thread, and makes those of each model or dataset by one commit at the end. They
        are not made after an exception."""
        if getattr(self._gathered, "changes", None) is not None:
            yield
            return
        self._gathered.changes = changes = Changes()
        try:
            yield
        finally:
            self._gathered.changes = None
        changes.apply()

    def apply(self, path: str, blob: Optional[Blob]) -> None:
        """Gives a path a blob of its repository; None removes the file. The change is made at once, or with those that
        are gathered."""
        repository, inside = self._repository(path)
        if blob is not None and _is_unlisted(inside):
            self._unlisted[self._strip_protocol(path)] = blob
            return
        with self.together():
            self._gathered.changes.add(repository, inside, blob)

    def _change(self, path: str, blob: Optional[Blob]) -> None:
        """Makes a change, in a transaction at its end."""
        if self._intrans:
            self.transaction.files.append(_Deferred(self, path, blob))
        else:
            self.apply(path, blob)

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Writes a file. Raises FileExistsError if `mode` is "create" and the file is there."""
        if mode == "create" and self.exists(path):
            raise FileExistsError(errno.EEXIST, "the file is there", path)
        self._change(path, self._repository(path)[0].send(value))

    def pipe(self, path: Any, value: Any = None, **kwargs: Any) -> None:
        """Writes files: a path and its bytes, or a dict of them, which appear together."""
        with self.together():
            super().pipe(path, value, **kwargs)

    def put_file(self, lpath: Any, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite",
                 **kwargs: Any) -> None:
        """Sends a local file, in parts over several connections. Raises FileExistsError if `mode` is "create" and the
        file is there."""
        if os.path.isdir(lpath):
            return
        if mode == "create" and self.exists(rpath):
            raise FileExistsError(errno.EEXIST, "the file is there", rpath)
        callback.set_size(os.path.getsize(lpath))
        blob = self._repository(rpath)[0].send(os.fspath(lpath))
        callback.absolute_update(blob.size)
        self._change(rpath, blob)

    def put(self, *args: Any, **kwargs: Any) -> None:
        """Sends local files, which appear together."""
        with self.together():
            super().put(*args, **kwargs)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies a file: inside a model or dataset without its bytes, as far as the server knows its digest."""
        path1 = self._strip_protocol(path1)
        about = self.info(path1)
        if about["type"] == "directory":
            return
        repository, _ = self._repository(path2)
        blob = self._unlisted.get(path1)
        if self._repository(path1)[0] is not repository:
            blob = None
        elif blob is None and "sha256" in about:
            blob = Blob(f"sha256:{about['sha256']}", about["size"])
        if blob is None or not repository.has(blob):
            with self.open(path1) as file:
                blob = repository.send(file)
        self._change(path2, blob)

    def copy(self, *args: Any, **kwargs: Any) -> None:
        """Copies files, which appear together."""
        with self.together():
            super().copy(*args, **kwargs)

    def mv(self, path1: Any, path2: Any, *args: Any, **kwargs: Any) -> None:
        """Moves files, by one commit for each model or dataset."""
        with self.together():
            super().mv(path1, path2, *args, **kwargs)

    def rm(self, *args: Any, **kwargs: Any) -> None:
        """Removes files, together. Raises FileNotFoundError."""
        with self.together():
            super().rm(*args, **kwargs)

    def rm_file(self, path: str) -> None:
        """Removes a file. Raises FileNotFoundError."""
        path = self._strip_protocol(path)
        if self._unlisted.pop(path, None) is None and self.info(path)["type"] == "file":
            self._change(path, None)

    _rm = rm_file

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Does nothing: folders exist with their files."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Does nothing: folders exist with their files."""

    def rmdir(self, path: str) -> None:
        """Does nothing: folders go with their last file."""

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


class TensordUpload(io.RawIOBase):
    """A file that is being written: its bytes are sent while they are written. It appears when it is closed, and not at
    all after an exception in a `with` block. Without `autocommit`, `commit` and `discard` decide after `close`."""

    def __init__(self, fs: TensordFileSystem, path: str, repository: Repository, autocommit: bool):
        super().__init__()
        self.fs, self.path, self.autocommit = fs, path, autocommit
        self._stream = repository.stream()

    def writable(self) -> bool:
        """Returns True."""
        return True

    def write(self, data: Any) -> int:
        """Sends bytes. Raises the errors of `Repository.stream`."""
        return self._stream.write(data)

    def tell(self) -> int:
        """Returns the number of bytes that were written."""
        return self._stream.tell()

    def close(self) -> None:
        """Ends the file. Raises the errors of `Repository.stream` and of `Repository.commit`."""
        if self.closed:
            return
        super().close()
        self._stream.close()
        if self.autocommit and self._stream.error is None:
            self.commit()

    def commit(self) -> None:
        """Makes the file appear."""
        self.fs.apply(self.path, self._stream.blob)

    def discard(self) -> None:
        """Drops the file."""
        self._stream.abort()
        super().close()

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        if hasattr(self, "_stream"):
            self.discard()


def _is_unlisted(path: str) -> bool:
    """Returns whether servers do not list a path, and take no file of this name."""
    parts = path.split("/")
    return any(part.startswith(".") and part != ".metadata" for part in parts) or path.endswith((".tmp", ".incomplete"))
