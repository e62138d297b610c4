"""Rank files: safetensors files that the server makes for one rank of an engine. Read into memory, header first."""
from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO, Dict, List, Optional, Tuple

from .. import errors
from ..address import Endpoint
from ..net import transfer
from ..net.progress import Progress
from ..net.resources import read_resource, write_resource
from ..net.retry import Patience
from ..net.session import Session
from . import dtypes, memory
from .manifest import ask_hashed, sha256_of
from .model import Model
from .reading import plan_resource
from .verifying import Arrivals, Sums

MAX_HEADER_BYTES = 100_000_000  # safetensors refuses longer ones


def read_rank(model: Model, engine: str, tp: int, rank: int, device: Any, framework: str,
              verify: bool = False) -> Dict[str, Any]:
    """Returns the tensors of a rank's file by name. `verify`: their bytes are compared with the server's SHA-256 of
    them. Raises as `tensord.load_rank`."""
    session = model.session
    source = _source(model, engine, tp, rank)
    sums = _sums(model, rank, source) if verify else None
    if verify and sums is None:
        # the file has another tag once the server has hashed the model's files, perhaps while it hashed the tensors
        source = _source(model, engine, tp, rank)
        sums = _sums(model, rank, source)
        if sums is None:
            raise errors.ChangedError(f"{model.id} changed on the server while it was being loaded: load again", 412,
                                      "FAILED_PRECONDITION")
    rows, begin = _read_header(session, source)
    made: Dict[str, Any] = {}
    views: List[Tuple[int, str, memoryview]] = []
    for name, row in rows:
        made[name], view = memory.empty(framework, row["dtype"], row["shape"])
        views.append((row["data_offsets"][0], name, view))
    views.sort(key=lambda place: place[0])
    at = 0
    for offset, _, view in views:
        if len(view) and offset != at:
            raise errors.ProtocolError(f"the rank file of {model.id} has gaps between its tensors")
        at += len(view)
    nbytes = source.first(Patience(session.options)).nbytes
    if begin + at != nbytes:
        raise errors.ProtocolError(f"the rank file of {model.id} has {nbytes} bytes, and its header describes "
                                   f"{begin + at}")
    memory.ask_huge_pages(made.values())
    arrived = None if sums is None else Arrivals(sums, [(name, view) for _, name, view in views], begin)
    with Progress(at, f"rank {rank}", session.options.progress) as progress:
        read_resource(session, source, [view for _, _, view in views], begin, progress, arrived=arrived)
    if framework == "pt" and str(device) != "cpu":
        return {name: tensor.to(device) for name, tensor in made.items()}
    return made


def _sums(model: Model, rank: int, source: transfer.Source) -> Optional[Sums]:
    """Reads the digests of a rank's tensors from the description beside its file; None if that has another tag than the
    file."""
    file = source.first(Patience(model.session.options))
    path = file.path.replace(f"rank-{rank}.safetensors", f"rank-{rank}.json")
    found = ask_hashed(model.session, path + ("&" if "?" in path else "?") + "digests=1")
    try:
        tag, digests = found["etag"], {row["name"]: sha256_of(row) for row in found["tensors"]}
    except (KeyError, TypeError) as error:
        raise errors.ProtocolError(f"the description of rank {rank} of {model.id} is malformed: {error}") from error
    if file.etag != f'"{tag}"':
        return None
    return Sums(model.id, {name: digest for name, digest in digests.items() if digest is not None})


def write_rank(model: Model, engine: str, tp: int, rank: int, file: BinaryIO) -> None:
    """Writes a rank's file, as the server makes it, to an open file. Raises as `read_rank` and `write_resource`."""
    write_resource(model.session, _source(model, engine, tp, rank), file)


def _source(model: Model, engine: str, tp: int, rank: int) -> transfer.Source:
    """Returns a rank's file of an engine's plan on the model's servers."""
    if type(tp) is not int or type(rank) is not int:
        raise TypeError(f"tp and rank are whole numbers, not {tp!r} and {rank!r}: int(...) makes them from text")
    if tp < 1:
        raise ValueError(f"tp is {tp}; it must be at least 1")
    if not 0 <= rank < tp:
        raise ValueError(f"rank {rank} is not one of {tp}: ranks count from 0")
    reader = model.reader()

    def locate(endpoint: Endpoint) -> transfer.Resource:
        body = {"engine": engine, "tp_size": tp, "manifest": reader.manifest.etag}
        plan = reader.session.ask_json("POST", reader.path("plans"), body, endpoint=endpoint, once=True)
        return plan_resource(plan, rank, endpoint)

    return transfer.Source(reader.session.endpoints, locate, one_tag=True)


def _read_header(session: Session, source: transfer.Source) -> Tuple[List[Tuple[str, Any]], int]:
    """Reads the header of the file. Returns its tensors, and where their bytes begin."""
    length = bytearray(8)
    read_resource(session, source, [memoryview(length)], 0)
    nbytes = struct.unpack("<Q", length)[0]
    if nbytes > MAX_HEADER_BYTES:
        raise errors.ProtocolError(f"the rank file has a header of {nbytes} bytes")
    text = bytearray(nbytes)
    read_resource(session, source, [memoryview(text)], 8)
    try:
        rows = [(name, row) for name, row in json.loads(bytes(text)).items() if name != "__metadata__"]
        for _, row in rows:
            begin, end = row["data_offsets"]
            if dtypes.nbytes_of(row["dtype"], row["shape"]) != end - begin:
                raise ValueError("a tensor's bytes do not fit its shape")
    except (ValueError, KeyError, TypeError) as error:
        raise errors.ProtocolError(f"the rank file has a damaged header: {error}") from error
    return rows, 8 + nbytes
