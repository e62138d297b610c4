"""Reads a checkpoint on a server by torch.distributed.checkpoint: each rank reads the boxes that its tensors have.

    dcp.load(state_dict, storage_reader=TensordReader("tensord://host:8080/Qwen/Qwen3-0.6B"))

Names are those of the checkpoint. The world size, and how tensors are sharded, may be others than when it was saved.
"""
from __future__ import annotations

import os
from typing import Any, List, Union

import torch
from torch.distributed.checkpoint import StorageReader
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, StorageMeta, TensorProperties,
                                                   TensorStorageMetadata)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner
from torch.futures import Future

from . import dtypes, errors, memory
from .address import Urls, is_url
from .boxes import Box
from .client import Model, open_model


class TensordReader(StorageReader):
    """A StorageReader for a model's URL, or a Model. `options` are those of `tensord.Options`, by name.

    It reads tensors. Objects that a checkpoint holds as pickles are not read: a state dict that asks for one ends with
    torch's error for a missing key.
    """

    def __init__(self, url: Union[Urls, Model], **options: Any):
        super().__init__()
        self._options = options
        self._model = url if isinstance(url, Model) else open_model(url, **options)

    def reset(self, checkpoint_id: Union[str, os.PathLike, None] = None) -> None:
        """Begins a load: of `checkpoint_id`, a URL, if it is given."""
        if checkpoint_id is not None:
            self._model = open_model(str(checkpoint_id), **self._options)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Returns the manifest as torch's metadata: each tensor is one chunk, whatever the files hold. A load begins
        with this, so the manifest is read anew."""
        tensors = {}
        for info in self._model.refresh().tensors.values():
            if dtypes.bits_of(info.dtype) is None:
                continue
            size = torch.Size(dtypes.torch_shape(info.dtype, info.shape))
            chunk = ChunkStorageMetadata(offsets=torch.Size([0] * len(size)), sizes=size)
            properties = TensorProperties(dtype=dtypes.torch_dtype(info.dtype))
            tensors[info.name] = TensorStorageMetadata(properties=properties, size=size, chunks=[chunk])
        return Metadata(state_dict_metadata=tensors, storage_meta=StorageMeta(checkpoint_id=repr(self._model)))

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
        """Reads all items of the plan as one answer, into the tensors that the planner names."""
        wants, targets = [], []
        for item in plan.items:
            name = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                raise errors.TensordError(f"{name} is an object and not a tensor: tensord reads no pickles")
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
        future: Future = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Union[str, os.PathLike]) -> bool:
        """Returns whether a checkpoint id is a URL of this package."""
        return is_url(checkpoint_id)


