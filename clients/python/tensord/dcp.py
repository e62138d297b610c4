"""Checkpoints of torch.distributed.checkpoint on a server: each rank reads the boxes that its tensors have, and sends
its part of a new checkpoint.

    dcp.load(state_dict, storage_reader=TensordReader("tensord://host:8080/Qwen/Qwen3-0.6B"))
    dcp.save(state_dict, storage_writer=TensordWriter("tensord://host:8080/org/run/step-100"))

Tensors have the names of the checkpoint. The world size and the sharding may differ from those at its saving.
"""
from __future__ import annotations

import dataclasses
import io
import os
import posixpath
import re
import warnings
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import torch
from torch.distributed.checkpoint import FileSystemWriter, StorageReader
from torch.distributed.checkpoint.filesystem import FileSystemBase
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from . import errors
from .address import Urls, is_url
from .client import model_of, open_model
from .engines import dcp_objects
from .engines.dcp_objects import Index
from .publishing.place import Blob
from .publishing.repository import Commit, Repository
from .publishing.stream import BlobStream
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


# ---- saving

METADATA = ".metadata"
SAVE_TRIES = 5  # to replace a checkpoint that others change at the same time


@dataclasses.dataclass(frozen=True)
class _Sent:
    """A rank's report on an item to the coordinator: torch's own record of it, and the blob of the item's file."""

    record: Any
    name: str
    blob: Blob


class _Pending(FileSystemBase):
    """The files of a checkpoint that is being saved: `blobs` that the server has, by name. Nothing else exists yet."""

    def __init__(self, repository: Repository):
        self.repository = repository
        self.blobs: Dict[str, Blob] = {}

    @contextmanager
    def create_stream(self, path: Union[str, "os.PathLike[str]"], mode: str) -> Iterator[BlobStream]:
        """Opens a file whose bytes are sent while they are written. It is dropped after an exception."""
        if mode != "wb":
            raise ValueError(f"a file of a checkpoint is opened in mode {mode!r}; it can only be written")
        with self.repository.stream() as stream:
            try:
                yield stream
            except RuntimeError as error:  # of torch.save, which hides why a write failed
                if stream.error is not None:
                    raise stream.error from error
                raise
        self.blobs[posixpath.basename(os.fspath(path))] = stream.blob

    def concat_path(self, path: Union[str, "os.PathLike[str]"], suffix: str) -> str:
        """Returns the path of a name in the folder."""
        return posixpath.join(os.fspath(path), suffix)

    def init_path(self, path: Union[str, "os.PathLike[str]"]) -> str:
        """Returns the path as it is."""
        return os.fspath(path)

    def rename(self, path: Union[str, "os.PathLike[str]"], new_path: Union[str, "os.PathLike[str]"]) -> None:
        """Gives a pending file another name."""
        blob = self.blobs.pop(posixpath.basename(os.fspath(path)))
        self.blobs[posixpath.basename(os.fspath(new_path))] = blob

    def mkdir(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Does nothing: folders exist with their files."""

    def exists(self, path: Union[str, "os.PathLike[str]"]) -> bool:
        """Returns whether a file of this name is pending."""
        return posixpath.basename(os.fspath(path)) in self.blobs

    def rm_file(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Removes a pending file."""
        del self.blobs[posixpath.basename(os.fspath(path))]

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Union[str, "os.PathLike[str]"]) -> bool:
        """Returns whether a checkpoint id is a URL of this package."""
        return is_url(checkpoint_id)


class TensordWriter(FileSystemWriter):
    """A StorageWriter that saves into a model on a server: `url` names the model, such as
    "tensord://host:8080/org/name", and may name a revision, "org/name@v2", and a folder, "org/run/step-100".

    Each rank sends its bytes while they are serialised, and nothing is written to disk. The checkpoint appears at the
    end of the save, by one commit: whole or not at all, also in place of an earlier one. Other files stay. Blobs of a
    save that fails expire on the server. `overwrite`: False raises if the folder has a checkpoint. `message`: of the
    commit. `options` are the options of `tensord.Options`, by name; the token needs the right to write.
    """

    def __init__(self, url: Urls, *, single_file_per_rank: bool = True, thread_count: int = 1,
                 per_thread_copy_ahead: int = 10_000_000, cache_staged_state_dict: bool = False,
                 overwrite: bool = True, message: str = "", **options: Any):
        super().__init__(str(url), single_file_per_rank=single_file_per_rank, sync_files=False,
                         thread_count=thread_count, per_thread_copy_ahead=per_thread_copy_ahead,
                         cache_staged_state_dict=cache_staged_state_dict, overwrite=overwrite)
        self._options, self._message = options, message
        self.commit: Optional[Commit] = None  # of the last save, in the process of the coordinator
        self._open(url)

    def _open(self, url: Urls) -> None:
        self.path = str(url)
        self.fs = _Pending(Repository.open(url, **self._options))

    def reset(self, checkpoint_id: Union[str, "os.PathLike[str]", None] = None) -> None:
        """Begins a save: to `checkpoint_id`, a URL, if it is given."""
        super().reset()
        self._open(self.path if checkpoint_id is None else str(checkpoint_id))

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Raises ValueError for a save in which every rank ends by itself: one rank must make the commit."""
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)
        if not kwargs.get("use_collectives", True):
            raise ValueError("TensordWriter needs use_collectives=True: one rank commits the files of all ranks")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Returns the plan. Raises RuntimeError if there is a checkpoint that is not to be overwritten."""
        if not self.overwrite and METADATA in self.fs.repository.names():
            raise RuntimeError(f"{self.path} is a checkpoint already, and overwrite=False")
        return super().prepare_local_plan(plan)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> "Future[List[WriteResult]]":
        """Sends the files of this rank, and returns what the coordinator needs to commit them."""
        sent = []
        for result in super().write_data(plan, planner).value():
            record = result.storage_data
            blob = self.fs.blobs[record.relative_path]
            sent.append(dataclasses.replace(result, storage_data=_Sent(record, record.relative_path, blob)))
        future: "Future[List[WriteResult]]" = Future()
        future.set_result(sent)
        return future

    def finish(self, metadata: Metadata, results: List[List[WriteResult]]) -> None:
        """Sends the metadata, and makes the checkpoint appear.

        Raises MissingBlobsError if blobs have expired on the server since they were sent; other errors of
        `Repository.commit`.
        """
        files = {result.storage_data.name: result.storage_data.blob for rank in results for result in rank}
        super().finish(metadata, [[dataclasses.replace(result, storage_data=result.storage_data.record)
                                   for result in rank] for rank in results])
        files[METADATA] = self.fs.blobs[METADATA]
        for tries_left in reversed(range(SAVE_TRIES)):
            former = {name for name in self.fs.repository.names() if re.fullmatch(r"__[0-9]+_[0-9]+\.distcp", name)}
            try:
                self.commit = self.fs.repository.commit(files, keep=True, delete=former - set(files),
                                                        message=self._message)
                return
            except errors.NotFoundError:  # somebody else has removed a part of the former checkpoint
                if not former or tries_left == 0:
                    raise

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Union[str, "os.PathLike[str]"]) -> bool:
        """Returns whether a checkpoint id is a URL of this package."""
        return is_url(checkpoint_id)
