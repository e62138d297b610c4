"""Reads resources of servers over several connections, and lists the files of models and datasets.

A resource is a file of a model, such as the configuration or the tokenizer, a file of a dataset, or a plan's answer.
"""
from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Sequence
from urllib.parse import quote

from .. import errors
from ..address import Endpoint, dataset_path, path_of
from ..options import MIB, Options
from . import transfer
from .progress import Progress
from .retry import Patience
from .session import Session

MIN_RANGE_BYTES = MIB
MAX_FILES = 10_000_000  # of one dataset; a longer list is refused


def files_of(session: Session, model: str, version: Optional[str] = None) -> List[Dict[str, Any]]:
    """Returns the files of a model, or of a version of it, as the server describes them: `path` below the model, `size`
    in bytes, `sha256` once the server knows it, and `format` for files of weights.

    Raises NotFoundError, ConnectError; ProtocolError for a path that leads out of the model.
    """
    about = session.ask_json("GET", path_of(model, version=version))
    files = about.get("files") if isinstance(about, dict) else None
    if not isinstance(files, list) or not all(
            isinstance(file, dict) and type(file.get("size")) is int for file in files):
        raise errors.ProtocolError(f"the list of the files of {model} is malformed: is this a tensord server?")
    for file in files:
        check_path(file.get("path"))
    return files


def dataset_files_of(session: Session, dataset: str, path: str) -> List[Dict[str, Any]]:
    """Returns the files and folders directly in a folder of a dataset ("": its root), or one file, in the form of
    `files_of`, without `format`. The `path` of a folder ends with "/".

    Raises NotFoundError, ConnectError; ProtocolError for a path that leads out of the dataset.
    """
    return tree_of(session, dataset_path(dataset, "tree", "main", *[quote(path)] * bool(path)), dataset)


def tree_of(session: Session, path: str, name: str) -> List[Dict[str, Any]]:
    """Returns the files and folders at the path of a tree, such as "/models/org/name/tree/main/folder", in the form of
    `files_of`, without `format`. The `path` of a folder ends with "/". `name`: of the repository, for messages.

    Raises NotFoundError, ConnectError; ProtocolError for a path that leads out of the repository.
    """
    target, cursor = "/api" + path, ""
    files: List[Dict[str, Any]] = []
    while True:
        text, answer = session.ask("GET", target + cursor)
        files += _tree_files(text, name)
        found = re.search(r'[?&]cursor=([0-9]{1,18})[^>]*>; *rel="next"', answer.fields.get("link", ""))
        if not found:
            return files
        if f"?cursor={found[1]}" == cursor or len(files) > MAX_FILES:
            raise errors.ProtocolError(f"the list of the files of {name} does not end: {len(files)} were read")
        cursor = f"?cursor={found[1]}"


def _tree_files(text: bytes, name: str) -> List[Dict[str, Any]]:
    """Decodes a page of a file list in the Hub's form. Raises ProtocolError."""
    files = []
    try:
        for item in json.loads(text):
            check_path(item["path"])
            if type(item["size"]) is not int or item["size"] < 0:
                raise TypeError("a size")
            if item["type"] == "directory":
                files.append({"path": item["path"] + "/", "size": 0})
            else:
                files.append({"path": item["path"], "size": item["size"], **_sha256_of(item.get("lfs"))})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise errors.ProtocolError(f"the list of the files of {name} is malformed: is this a tensord "
                                   "server?") from error
    return files


def _sha256_of(lfs: Any) -> Dict[str, str]:
    oid = lfs.get("oid") if isinstance(lfs, dict) else None
    return {"sha256": oid} if isinstance(oid, str) and re.fullmatch(r"[0-9a-f]{64}", oid) else {}


def check_path(path: Any) -> None:
    """Raises ProtocolError for a path that leads elsewhere when it is put after a folder's."""
    parts = path.split("/") if isinstance(path, str) else [""]
    if any(part in ("", ".", "..") or "\0" in part or os.path.basename(part) != part for part in parts):
        raise errors.ProtocolError(f"the server names a file {path!r}, which leads out of its model")


def read_small_file(session: Session, model: str, path: str, version: Optional[str] = None) -> bytes:
    """Returns the bytes of a small file of a model, or of a version of it.

    Raises NotFoundError, ConnectError; ProtocolError if it is not small.
    """
    data, _ = session.ask("GET", path_of(model, "files", quote(path), version=version))
    return bytes(data)


def source_of(session: Session, model: str, path: str, version: Optional[str] = None) -> transfer.Source:
    """Returns the source of a file of a model, or of a version of it. The first server decides what the file's bytes
    are; another server takes part if it has the same."""
    return source_at(session, path_of(model, "files", quote(path), version=version))


def dataset_source_of(session: Session, dataset: str, path: str) -> transfer.Source:
    """Returns the source of a dataset's file; see `source_of`."""
    return source_at(session, dataset_path(dataset, "resolve", "main", quote(path)))


def source_at(session: Session, target: str,
              check: Optional[Callable[[Endpoint], None]] = None) -> transfer.Source:
    """Returns the source of a resource at a path of the servers; see `source_of`.

    `check`: a function that is called with each server after its answer. It raises ChangedError if the server has
    another version.
    """

    def locate(endpoint: Endpoint) -> transfer.Resource:
        found = resource_at(session, target, endpoint)
        if check is not None:
            check(endpoint)
        return found

    return transfer.Source(session.endpoints, locate, one_tag=True)


def resource_at(session: Session, target: str, endpoint: Endpoint) -> transfer.Resource:
    """Asks one server, once, for the entity tag and the length of the resource at a path. Raises AnswerError,
    ConnectError, ProtocolError."""
    _, answer = session.ask("HEAD", target, endpoint=endpoint, once=True)
    etag, length = answer.fields.get("etag", ""), answer.fields.get("content-length", "")
    if not re.fullmatch(r'"[!#-~]*"', etag) or not re.fullmatch(r"[0-9]{1,18}", length):
        raise errors.ProtocolError(f"{endpoint}{target} has no entity tag or no length")
    return transfer.Resource(target, etag, int(length))


def fetch(session: Session, model: str, path: str, folder: str, version: Optional[str] = None) -> str:
    """Writes a file of a model, or of a version of it, to its path below a folder, and returns where that is.

    Raises ProtocolError for a path that leads out of the folder; NotFoundError, ConnectError, OSError.
    """
    check_path(path)
    target = os.path.join(folder, *path.split("/"))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "wb+") as file:
        write_resource(session, source_of(session, model, path, version), file)
    return target


def read_resource(session: Session, source: transfer.Source, views: Sequence[memoryview], begin: int,
                  progress: Optional[Progress] = None, stop: Optional[transfer.Stop] = None,
                  arrived: Optional[Callable[[int, int], None]] = None) -> None:
    """Reads the bytes of a resource from `begin` on into views, one after the other, over several connections.

    `arrived`: see `transfer.Job`; it is called for each range. Raises as `transfer.read`.
    """
    jobs = list(_jobs(views, begin, session.options))
    for job in jobs:
        job.arrived = arrived
    transfer.read(session, source, jobs, progress or Progress(0, "", False), stop=stop)


def write_resource(session: Session, source: transfer.Source, file: BinaryIO) -> None:
    """Writes the bytes of a resource to a regular file that is open for reading and writing, and empty.

    Raises as `transfer.read`; OSError, before anything is read where the disk has too little room.
    """
    nbytes = source.first(Patience(session.options)).nbytes
    if nbytes == 0:
        return
    if hasattr(os, "posix_fallocate"):  # a hole that the disk cannot fill would end the process by SIGBUS
        os.posix_fallocate(file.fileno(), 0, nbytes)
    else:
        file.truncate(nbytes)
    mapping = mmap.mmap(file.fileno(), nbytes)
    try:
        with Progress(nbytes, str(file.name), session.options.progress) as progress:
            read_resource(session, source, [memoryview(mapping)], 0, progress)
    finally:
        with contextlib.suppress(BufferError):  # an error holds views of it, and then it ends with them
            mapping.close()


def _jobs(views: Sequence[memoryview], begin: int, options: Options) -> Iterator[transfer.Job]:
    """Cuts an answer into ranges, enough of them to keep all connections at work."""
    total = sum(len(view) for view in views)
    size = max(MIN_RANGE_BYTES, min(options.range_bytes, -(-total // (4 * options.connections))))
    job = transfer.Job(begin, 0)
    for view in views:
        while len(view):
            taken = min(len(view), size - job.nbytes)
            job.views.append(view[:taken])
            job.nbytes += taken
            view = view[taken:]
            if job.nbytes == size:
                yield job
                job = transfer.Job(job.offset + size, 0)
    if job.nbytes:
        yield job
