"""Manifests: the tensors of a checkpoint, as the server lists them."""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Optional, Tuple

from .. import errors
from ..address import check_glob, path_of
from ..net import http
from ..net.session import Session
from . import dtypes

NAMES_COMPARED = 5000  # to find a misspelt one; more take too long


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a checkpoint. `shape` counts elements of `dtype`, `nbytes` the bytes in logical order.

    `reason` says why the bytes cannot be served ("": they can). `file` and `offset` say where they are. `sha256` is the
    digest of the bytes, if it was asked for.
    """

    name: str
    dtype: str
    shape: Tuple[int, ...]
    nbytes: int
    file: str = ""
    offset: Optional[int] = None
    alias_of: Optional[str] = None
    reason: str = ""
    sha256: Optional[str] = None


def _info_of(row: Any) -> TensorInfo:
    """Decodes a server's description of a tensor. Checks that its sizes agree, since memory is allocated by them.

    Raises TypeError, KeyError, ValueError.
    """
    name, dtype, shape, nbytes, file = row["name"], row["dtype"], row["shape"], row["nbytes"], row["file"]
    offset, alias, addressable = row.get("offset"), row.get("alias_of"), row.get("addressable", True)
    if not all(type(one) is str for one in (name, dtype, file)) or type(alias) not in (str, type(None)):
        raise TypeError(f"the description of {name!r}")
    name.encode()
    if type(addressable) is not bool or type(offset) not in (int, type(None)):
        raise TypeError(f"the description of {name!r}")
    if not all(type(one) is int and 0 <= one < 2**63 for one in [*shape, nbytes]) or len(shape) > 64:
        raise TypeError(f"the shape of {name!r}")
    if addressable and dtypes.bits_of(dtype) is not None and dtypes.nbytes_of(dtype, shape) != nbytes:
        raise TypeError(f"the size of {name!r}")
    reason = "" if addressable else errors.printable(str(row.get("reason") or "its bytes cannot be served"))
    return TensorInfo(name, dtype, tuple(shape), nbytes, file, offset, alias, reason, sha256_of(row))


def sha256_of(row: Any) -> Optional[str]:
    """Returns the digest in a server's description of a tensor; None: it has none. Raises TypeError."""
    found = row.get("sha256")
    if not (found is None or (isinstance(found, str) and re.fullmatch(r"[0-9a-f]{64}", found))):
        raise TypeError(f"the SHA-256 of {row['name']!r}")
    return found


@dataclass(frozen=True)
class Manifest:
    """A checkpoint with the content that `etag` names. `tensors` has all of them, or those that `match` selected.
    `version`: the name of the model's version, if one was asked for."""

    model: str
    checkpoint: str
    format: str
    etag: str
    metadata: Dict[str, Any]
    tensors: Dict[str, TensorInfo]
    version: Optional[str] = None

    @staticmethod
    def from_json(text: Any) -> "Manifest":
        """Decodes a server's manifest. Raises ProtocolError."""
        try:
            infos = [_info_of(row) for row in text["tensors"]]
            tensors = {info.name: info for info in infos}
            if len(tensors) != len(infos):
                raise TypeError("a name that two tensors have")
            named = {key: text[key] for key in ("model", "checkpoint", "format", "etag")}
            if not all(type(value) is str for value in named.values()) or type(text["metadata"]) is not dict:
                raise TypeError("its description")
            version = text.get("version")
            if type(version) not in (str, type(None)):
                raise TypeError("its version")
            return Manifest(**named, metadata=text["metadata"], tensors=tensors, version=version)
        except (KeyError, TypeError, ValueError) as error:
            raise errors.ProtocolError(f"the manifest is malformed: {error} is missing or wrong") from error

    def __getitem__(self, name: str) -> TensorInfo:
        """Returns a tensor. Raises NotFoundError with the names that are nearest."""
        try:
            return self.tensors[name]
        except KeyError:
            import difflib

            few = len(self.tensors) <= NAMES_COMPARED
            near = difflib.get_close_matches(str(name), self.tensors, 3) if few else ()
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise errors.NotFoundError(f"{self.model} has no tensor {name!r}{hint}", 404, "NOT_FOUND") from None

    def served(self, name: str) -> TensorInfo:
        """Returns a tensor that the server can send. Raises NotFoundError, or TensordError with the reason."""
        info = self[name]
        if info.reason:
            raise errors.TensordError(f"tensor {name!r} of {self.model} cannot be read: {info.reason}")
        return info

    @property
    def total_bytes(self) -> int:
        """The bytes of all tensors."""
        return sum(info.nbytes for info in self.tensors.values())

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self.tensors


def ask_hashed(session: Session, path: str) -> Any:
    """Returns the JSON at a path, as Session.ask_json does, whose answer may have to wait until the server has hashed
    tensors: asks again as long as more of them are hashed from one refusal to the next.

    Raises ConnectError, AnswerError, ProtocolError.
    """
    before = ""
    while True:
        try:
            return session.ask_json("GET", path, limit=http.MAX_MANIFEST_BYTES)
        except errors.AnswerError as error:
            now = str(error).partition("; gave up")[0]  # how far the server is
            if error.status != 503 or "hashed" not in now or now == before:
                raise
            before = now


def read_manifest(session: Session, model: str, checkpoint: Optional[str] = None,
                  match: Optional[str] = None, version: Optional[str] = None, digests: bool = False) -> Manifest:
    """Reads the manifest of a model as it is now; with the parameters of `Client.manifest`.

    `digests`: with the SHA-256 of each tensor, for which the server may have to hash them first. Raises NotFoundError,
    ConnectError, AnswerError, ProtocolError.
    """
    path = path_of(model, "tensors", checkpoint=checkpoint, version=version,
                   match=None if match is None else check_glob(match), digests="1" if digests else None)
    try:
        made = Manifest.from_json(ask_hashed(session, path))
    except errors.NotFoundError as error:
        if not model.startswith("models/"):
            raise
        raise errors.NotFoundError(f"{error}; a URL of tensord:// has no /models/ before the model's id",
                                   error.status, error.code, error.url) from None
    if made.model != model:
        raise errors.ProtocolError(f"the server answered the manifest of {made.model!r} instead of {model!r}")
    if (made.version is None) != (version is None):
        raise errors.ProtocolError(f"the server answered the manifest of version {made.version!r} of {model}, where "
                                   f"{version!r} was asked for")
    return made
