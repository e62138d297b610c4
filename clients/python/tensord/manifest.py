"""Manifests: what a checkpoint holds, as the server lists it."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, Optional, Tuple

from . import dtypes, errors


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a checkpoint. `shape` counts elements of `dtype`, `nbytes` the bytes in logical order.

    `reason` says why the bytes cannot be served ("": they can). `file` and `offset` say where they lie.
    """

    name: str
    dtype: str
    shape: Tuple[int, ...]
    nbytes: int
    file: str = ""
    offset: Optional[int] = None
    alias_of: Optional[str] = None
    reason: str = ""


def _check_sizes(row: Any) -> None:
    """Holds a tensor's sizes to each other, since memory is made by them. Raises TypeError."""
    shape, nbytes = row["shape"], row["nbytes"]
    if not all(type(one) is int and 0 <= one < 2**63 for one in [*shape, nbytes]) or len(shape) > 64:
        raise TypeError(f"the shape of {row['name']!r}")
    if row.get("addressable", True) and dtypes.bits_of(row["dtype"]) is not None:
        if dtypes.nbytes_of(row["dtype"], shape) != nbytes:
            raise TypeError(f"the size of {row['name']!r}")


@dataclass(frozen=True)
class Manifest:
    """A checkpoint at one version, which `etag` names. `tensors` has all of them, or those that `match` left."""

    model: str
    checkpoint: str
    format: str
    etag: str
    metadata: Dict[str, Any]
    tensors: Dict[str, TensorInfo]

    @staticmethod
    def from_json(text: Any) -> "Manifest":
        """Makes a manifest from the server's. Raises ProtocolError if it is none."""
        try:
            tensors = {}
            for row in text["tensors"]:
                _check_sizes(row)
                tensors[row["name"]] = TensorInfo(
                    name=row["name"], dtype=row["dtype"], shape=tuple(row["shape"]), nbytes=row["nbytes"],
                    file=row["file"], offset=row.get("offset"), alias_of=row.get("alias_of"),
                    reason="" if row.get("addressable", True) else row.get("reason", "its bytes cannot be served"))
            return Manifest(text["model"], text["checkpoint"], text["format"], text["etag"], text["metadata"], tensors)
        except (KeyError, TypeError) as error:
            raise errors.ProtocolError(f"the manifest is not one of tensord: {error} is missing or wrong") from error

    def __getitem__(self, name: str) -> TensorInfo:
        """Returns a tensor. Raises NotFoundError with the names that are nearest."""
        try:
            return self.tensors[name]
        except KeyError:
            import difflib

            near = difflib.get_close_matches(str(name), self.tensors, 3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise errors.NotFoundError(f"{self.model} has no tensor {name!r}{hint}", 404, "NOT_FOUND") from None

    def served(self, name: str) -> TensorInfo:
        """Returns a tensor whose bytes can be served. Raises NotFoundError, or TensordError with the reason."""
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
