"""Reads a checkpoint on a server by torch.distributed.checkpoint: each rank reads the boxes that its tensors have.

    dcp.load(state_dict, storage_reader=TensordReader("tensord://host:8080/Qwen/Qwen3-0.6B"))

Tensors have the names of the checkpoint. The world size and the sharding may differ from those at its saving.
"""
from __future__ import annotations

import io
import os
import warnings
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from torch.distributed.checkpoint import StorageReader
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

from . import errors
from .address import Urls, is_url
from .client import model_of, open_model
from .engines import dcp_objects
from .engines.dcp_objects import Index
from .tensors import dtypes, memory
from .tensors.boxes import Box
from .tensors.model import Model

TRIES = 3  # to read a manifest and the index of the same version
MAX_SHOWN = 50  # names in a message


class TensordReader(StorageReader):
    """A StorageReader for a model's URL, or a Model. `options` are the options of `tensord.Options`, by name.

    It reads tensors, and pickled objects that are numbers, texts, booleans, None, or lists and tuples of these. It
    never runs a pickle. If a state dict asks for another object, the load raises MismatchError before it writes
    anything. If the planner's `allow_partial_load` is true, the object keeps its value instead, and a UserWarning names
    it.
    """

    def __init__(self, url: Union[Urls, Model], **options: Any):
        super().__init__()
        self._options = options
        self._model = model_of(url, options)
        self._index: Optional[Tuple[str, Index]] = None  # with the tag of its manifest

    def reset(self, checkpoint_id: Union[str, "os.PathLike[str]", None] = None) -> None:
        """Begins a load: of `checkpoint_id`, a URL, if it is given."""
        if checkpoint_id is not None:
            self._model = open_model(str(checkpoint_id), **self._options)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Returns the manifest as torch's metadata: each tensor is one chunk, whatever the files hold. A load begins
        with this, so it reads the manifest again."""
        found: Dict[str, Any] = {}
        index = self._refresh()
        for info in self._model.manifest().tensors.values():
            if dtypes.bits_of(info.dtype) is None:
                continue
            size = torch.Size(dtypes.torch_shape(info.dtype, info.shape))
            chunk = ChunkStorageMetadata(offsets=torch.Size([0] * len(size)), sizes=size)
            properties = TensorProperties(dtype=dtypes.torch_dtype(info.dtype))
            found[info.name] = TensorStorageMetadata(properties=properties, size=size, chunks=[chunk])
        for name in index.places:
            found.setdefault(name, BytesStorageMetadata())
        return Metadata(found, index.paths, storage_meta=StorageMeta(checkpoint_id=repr(self._model)))

    def _refresh(self) -> Index:
        """Rereads the manifest, and the index of objects of the same version."""
        for _ in range(TRIES):
            self._model.refresh()
            try:
                return self._find_index()
            except errors.ChangedError as error:
                changed = error
        raise changed

    def _find_index(self) -> Index:
        """Returns the index of objects at the manifest's version. Reads it once for each version."""
        tag = self._model.manifest().etag
        if self._index is None or self._index[0] != tag:
            self._index = (tag, dcp_objects.read_index(self._model))
        return self._index[1]

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Does nothing: every rank reads by itself."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Returns the plan, with the version that this rank sees."""
        return LoadPlan(plan.items, self._model.manifest().etag, plan.planner_data)

    def prepare_global_plan(self, plans: List[LoadPlan]) -> List[LoadPlan]:
        """Checks that all ranks see one version. Raises ChangedError."""
        self._model.agree(plan.storage_data for plan in plans)
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future:
        """Reads the plan's objects, and with one request its tensors, into the tensors that the planner names.

        Raises MismatchError for an object that cannot be read.
        """
        objects = self._read_objects([item for item in plan.items if item.type == LoadItemType.BYTE_IO], planner)
        wants, targets = [], []
        for item in plan.items:
            name = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                continue
            target = planner.resolve_tensor(item).detach()
            info = self._model.manifest().served(name)
            start, sizes = list(item.storage_offsets), list(item.lengths)
            if info.dtype == "F4" and start:
                start[-1], sizes[-1] = 2 * start[-1], 2 * sizes[-1]
            wants.append(memory.want_into(target, Box(name, tuple(start), tuple(sizes)), info.dtype))
            targets.append((item, target))
        self._model.reader().read(wants)
        for item, target in targets:
            planner.commit_tensor(item, target)
        for item, archive in objects:
            planner.load_bytes(item, archive)
        future: Future = Future()
        future.set_result(None)
        return future

    def _read_objects(self, items: List[ReadItem], planner: LoadPlanner) -> List[Tuple[ReadItem, io.BytesIO]]:
        """Returns the readable objects. Each is a torch.save archive that this process wrote, because planners unpickle
        their input. Raises MismatchError, or warns, for the others."""
        if not items:
            return []
        names = [item.storage_index.fqn for item in items]
        values, unread = dcp_objects.read_objects(self._model, self._find_index(), names)
        made: List[Tuple[ReadItem, io.BytesIO]] = []
        for item in items:
            name = item.storage_index.fqn
            if name in values:
                try:
                    made.append((item, _archive_of(values[name])))
                except RecursionError:
                    unread[name] = "its lists are nested too deep"
        if unread:
            _report_unread(self._model.id, unread, getattr(planner, "allow_partial_load", False), planner)
        return made

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Union[str, "os.PathLike[str]"]) -> bool:
        """Returns whether a checkpoint id is a URL of this package."""
        return is_url(checkpoint_id)


def _archive_of(value: Any) -> io.BytesIO:
    archive = io.BytesIO()
    torch.save(value, archive)
    archive.seek(0)
    return archive


def _report_unread(model: str, unread: Dict[str, str], partial: bool, planner: LoadPlanner) -> None:
    """Warns of objects that were not read. Raises MismatchError unless the planner allows a partial load."""
    shown = [f"{errors.printable(name)} ({reason})" for name, reason in list(unread.items())[:MAX_SHOWN]]
    more = f" and {len(unread) - MAX_SHOWN} more" if len(unread) > MAX_SHOWN else ""
    text = (f"{len(unread)} objects of {model} are not read, since tensord runs no pickles and reads only numbers, "
            f"texts, booleans, None, and lists and tuples of these: {', '.join(shown)}{more}")
    if partial:
        warnings.warn(f"{text}. They stay as they are in the state dict", UserWarning, stacklevel=2)
        return
    raise errors.MismatchError(
        f"{text}. Leave them out of the state dict, or give planner=DefaultLoadPlanner(allow_partial_load=True), which "
        f"leaves them as they are (the planner of this load is {type(planner).__name__})")
