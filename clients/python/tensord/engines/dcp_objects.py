"""Reads the objects of a distributed checkpoint that are not tensors: learning rates, steps and others that torch
pickled. `.metadata` says where each one is: as a torch.save archive in a `.distcp` file.

Source: torch 2.13, torch/distributed/checkpoint/{metadata,filesystem}.py. No pickle is run: see pickles.py.
"""
from __future__ import annotations

import io
import warnings
import zipfile
import zlib
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple
from urllib.parse import quote

from .. import errors
from ..address import path_of
from ..net import transfer
from ..net.buffer import empty_bytes
from ..net.progress import Progress
from ..net.resources import read_resource, source_at
from ..net.retry import Patience
from ..options import MIB
from ..tensors.model import Model
from . import pickles
from .pickles import NotReadable, Pairs, Record

FORMAT = "dcp"  # of manifests
MAX_METADATA_BYTES = 256 * MIB
MAX_OBJECT_BYTES = 16 * MIB
GAP_BYTES = 64 * 1024  # largest gap within a range that is read at once
MAX_PATH_STEPS = 100
MAX_LIST_PLACES = 1_000_000  # total length of the lists that a state dict's paths need

Path = Tuple[Any, ...]  # texts and indexes


@dataclass(frozen=True)
class Place:
    """The location of an object's archive. `reason` says why it cannot be read ("" if it can)."""

    file: str = ""
    offset: int = 0
    nbytes: int = 0
    reason: str = ""


@dataclass
class Index:
    """The objects of a checkpoint by name, and the path of each name in the saved state dict (None: unknown).
    """

    places: Dict[str, Place] = field(default_factory=dict)
    paths: Optional[Dict[str, Path]] = None


def read_index(model: Model) -> Index:
    """Reads `.metadata` at the version of the model's manifest. Returns no objects if the checkpoint is not a
    distributed one, and, with a warning, if `.metadata` has more than 256 MiB.

    Raises ChangedError, ConnectError; ProtocolError for an invalid `.metadata`.
    """
    if model.manifest().format != FORMAT:
        return Index()
    source = _source_of(model, ".metadata")
    nbytes = source.first(Patience(model.options)).nbytes
    if nbytes > MAX_METADATA_BYTES:
        warnings.warn(f".metadata of {model.id} has {nbytes} bytes; the limit is {MAX_METADATA_BYTES}: its "
                      "tensors are read, and none of its objects", UserWarning, stacklevel=2)
        return Index()
    data = empty_bytes(nbytes)
    read_resource(model.session, source, [memoryview(data)], 0)
    try:
        return parse_index(bytes(data))
    except NotReadable as error:
        raise errors.ProtocolError(f".metadata of {model.id} cannot be read: {error}") from error


def parse_index(data: bytes) -> Index:
    """Returns the index of objects in a `.metadata`. Raises NotReadable."""
    metadata = pickles.read_records(data)
    if not isinstance(metadata, Record) or not metadata.is_a("Metadata"):
        raise NotReadable("it is not a Metadata of torch.distributed.checkpoint")
    names = [name for name, value in _items(metadata.member("state_dict_metadata"))
             if type(name) is str and isinstance(value, Record) and value.is_a("BytesStorageMetadata")]
    places = dict.fromkeys(names, Place(reason="its place is not in .metadata"))
    for key, value in _items(metadata.member("storage_data")):
        name = key.member("fqn") if isinstance(key, Record) else None
        if type(name) is str and name in places and isinstance(value, Record):
            places[name] = _place_of(value)
    paths = metadata.member("planner_data")
    return Index(places, _paths_of(paths, len(data)) if isinstance(paths, Pairs) else None)


def _items(pairs: Any) -> Iterator[Tuple[Any, Any]]:
    if not isinstance(pairs, Pairs):
        raise NotReadable("a dict is missing")
    return zip(pairs.items[::2], pairs.items[1::2])


def _place_of(info: Record) -> Place:
    """Decodes a _StorageInfo into a Place."""
    file, offset, nbytes = (info.member(name) for name in ("relative_path", "offset", "length"))
    if type(file) is not str or "/" in file or not all(type(n) is int and 0 <= n < 2**62 for n in (offset, nbytes)):
        raise NotReadable("the place of an object is not a file name, an offset and a length")
    if info.member("transform_descriptors"):
        return Place(reason="it is compressed or otherwise transformed")
    if nbytes > MAX_OBJECT_BYTES:
        return Place(reason=f"it has {nbytes} bytes; the limit is {MAX_OBJECT_BYTES}")
    return Place(file, offset, nbytes)


def _paths_of(pairs: Pairs, most_steps: int) -> Optional[Dict[str, Path]]:
    """Returns the path of each name. Returns None for invalid paths, for more than `most_steps` steps in all, and for
    paths that need too many list places: torch makes each list as long as its largest index demands."""
    paths: Dict[str, Path] = {}
    lengths: Dict[Path, int] = {}
    for name, path in _items(pairs):
        if type(name) is not str or type(path) is not tuple or not 0 < len(path) <= MAX_PATH_STEPS:
            return None
        most_steps -= len(path)
        for depth, step in enumerate(path):
            if type(step) is int and 0 <= step < MAX_LIST_PLACES and depth:  # chosen larger numbers could hash alike
                lengths[path[:depth]] = max(step + 1, lengths.get(path[:depth], 0))
            elif type(step) is not str:
                return None
        paths[name] = path
        if most_steps < 0:
            return None
    return paths if sum(lengths.values()) <= MAX_LIST_PLACES else None


def read_objects(model: Model, index: Index, names: Iterable[str]) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Reads objects at the version of the model's manifest. Returns the plain values (see pickles.py), and for
    each other object the reason why it was not read.

    Raises ChangedError, ConnectError, ProtocolError.
    """
    values: Dict[str, Any] = {}
    unread: Dict[str, str] = {}
    in_file: Dict[str, List[Tuple[Place, str]]] = {}
    for name in dict.fromkeys(names):
        place = index.places.get(name, Place(reason="the checkpoint has no such object"))
        if place.reason:
            unread[name] = place.reason
        else:
            in_file.setdefault(place.file, []).append((place, name))
    for file, wanted in in_file.items():
        source = _source_of(model, file)
        for group in _groups(sorted(wanted, key=lambda one: one[0].offset)):
            _read_group(model, source, group, values, unread)
    return values, unread


def _groups(wanted: List[Tuple[Place, str]]) -> Iterator[List[Tuple[Place, str]]]:
    """Splits a list into groups of neighbours, each read as one range."""
    group: List[Tuple[Place, str]] = []
    for one in wanted:
        if group:
            first, last = group[0][0], group[-1][0]
            end = one[0].offset + one[0].nbytes
            if one[0].offset > last.offset + last.nbytes + GAP_BYTES or end - first.offset > MAX_OBJECT_BYTES:
                yield group
                group = []
        group.append(one)
    if group:
        yield group


def _read_group(model: Model, source: transfer.Source, group: List[Tuple[Place, str]], values: Dict[str, Any],
                unread: Dict[str, str]) -> None:
    """Reads neighbours as one range. Skips an object that begins within the one before it: no writer makes such files,
    and overlaps could turn few bytes into much work."""
    begin, at = group[0][0].offset, 0
    data = empty_bytes(max(place.offset + place.nbytes for place, _ in group) - begin)
    job = transfer.Job(begin, len(data), [memoryview(data)])
    transfer.read(model.session, source, [job] if data else [], Progress(0, "", False))
    for place, name in group:
        offset = place.offset - begin
        if offset < at:
            unread[name] = "it overlaps another object"
            continue
        at = offset + place.nbytes
        try:
            values[name] = value_of(bytes(data[offset:at]))
        except NotReadable as error:
            unread[name] = str(error)


def value_of(archive: bytes) -> Any:
    """Returns the value in an archive of torch.save. Raises NotReadable."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as members:
            found = [name for name in members.namelist() if name.partition("/")[2] == "data.pkl"]
            if len(found) != 1:
                raise NotReadable("it is not an archive of torch.save")
            with members.open(found[0]) as member:
                data = member.read(MAX_OBJECT_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError, OverflowError) as error:
        if isinstance(error, NotReadable):
            raise
        raise NotReadable("it is not an archive of torch.save") from error
    if len(data) > MAX_OBJECT_BYTES:
        raise NotReadable(f"it unpacks to more than {MAX_OBJECT_BYTES} bytes")
    return pickles.read_plain(data)


def _source_of(model: Model, path: str) -> transfer.Source:
    """Returns the source of a model's file, on the servers that have the manifest's version."""
    target = path_of(model.id, "files", quote(path), version=model.version)
    return source_at(model.session, target, model.confirm)
