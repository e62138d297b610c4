"""The files of a model's directory: its configuration, its tokenizer, and whatever else lies beside the weights."""
from __future__ import annotations

import os
from typing import Any, Dict, List
from urllib.parse import quote

from . import errors, transfer
from .address import Endpoint, path_of
from .client import Client, Model
from .reading import write_resource


def rows_of(client: Client, model: str) -> List[Dict[str, Any]]:
    """Returns the files of a model as the server describes them: `path` below the model, `size` in bytes, `sha256` once
    the server knows it, and `format` for files of weights. Raises NotFoundError, ConnectError."""
    return client._session.ask_json("GET", path_of(model))["files"]


def read(model: Model, path: str) -> bytes:
    """Returns the bytes of a small file. Raises NotFoundError, ConnectError; ProtocolError if it is not small."""
    data, _ = model.client._session.ask("GET", path_of(model.id, "files", quote(path)))
    return data


def source_of(client: Client, model: str, path: str) -> transfer.Source:
    """Returns a file, at the version that the first server has; another one takes part if it has the same."""
    target = path_of(model, "files", quote(path))
    known: Dict[str, str] = {}

    def locate(endpoint: Endpoint) -> transfer.Resource:
        _, answer = client._session.ask("HEAD", target, endpoint=endpoint, once=True)
        etag, length = answer.fields.get("etag", ""), answer.fields.get("content-length", "")
        if not etag or not length.isdigit():
            raise errors.ProtocolError(f"{endpoint}{target} has no entity tag or no length")
        if known.setdefault("etag", etag) != etag:
            raise errors.ChangedError(f"{endpoint}{target} is another version than on the first server", 412,
                                      "FAILED_PRECONDITION")
        return transfer.Resource(target, etag, int(length))

    return transfer.Source(client._session.endpoints, locate)


def fetch(model: Model, path: str, folder: str) -> str:
    """Writes a file to its place below a folder, and returns where that is.

    Raises ProtocolError for a path that leads out of the folder; NotFoundError, ConnectError, FileExistsError.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part or os.path.basename(part) != part for part in parts):
        raise errors.ProtocolError(f"the server names a file {path!r}, which may lead out of {folder}: not written")
    place = os.path.join(folder, *parts)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    write_resource(model.client._session, source_of(model.client, model.id, path), place)
    return place
