"""`Model` is one checkpoint of one model at one version."""
from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple, Union

from .. import errors
from ..address import Endpoint, path_of
from ..lock import ForkSafeLock
from ..net.buffer import empty_bytes
from ..net.session import Session
from ..net.transfer import Stop
from ..options import Options, of
from . import boxes, dtypes, indexing, memory
from .boxes import Box
from .manifest import Manifest, TensorInfo, read_manifest
from .patches import Patch, open_patch, put
from .reading import Reader, Want
from .remote_slice import RemoteSlice
from .verifying import Sums
from .versions import read_changes, read_versions, wait_version


class Model:
    """A checkpoint with the content of its manifest, which is read at the first use. Later reads return bytes of that
    content, or raise ChangedError. Thread-safe; may be pickled.

    `session`: the connections and options, for the other modules of this package. `asked_version`: the version as it
    was asked for, such as "latest"; None: the model itself."""

    def __init__(self, session: Session, id: str, checkpoint: Optional[str] = None,
                 version: Optional[str] = None):
        self.session = session
        self.id = id
        self.checkpoint = checkpoint
        self.asked_version = version
        self._manifest: Optional[Manifest] = None
        self._lock = ForkSafeLock()

    def __repr__(self) -> str:
        version = "" if self.asked_version is None else f" at version {self.asked_version}"
        return f"<tensord.Model {self.id}{version} on {', '.join(map(str, self.session.endpoints))}>"

    def __getstate__(self) -> Dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = ForkSafeLock()

    @property
    def options(self) -> Options:
        """The options of the session."""
        return self.session.options

    def with_options(self, options: Optional[Options] = None, **given: Any) -> "Model":
        """Returns the same model with the same content, read with other options (see `Options`).

        `options`: by default this model's own. `given`: options by name, which replace those of `options`.
        """
        session = Session(self.session.endpoints, of(options or self.session.options, **given))
        model = Model(session, self.id, self.checkpoint, self.asked_version)
        model._manifest = self.manifest()
        return model

    def manifest(self) -> Manifest:
        """Returns the manifest, read once. Raises NotFoundError, ConnectError, AnswerError."""
        with self._lock:
            if self._manifest is None:
                self._manifest = read_manifest(self.session, self.id, self.checkpoint, version=self.asked_version)
            return self._manifest

    def refresh(self) -> Manifest:
        """Reads the manifest again. Later reads are of its content; of a model that was opened at "latest", of the
        version that is the latest now."""
        with self._lock:
            self._manifest = None
        return self.manifest()

    @property
    def version(self) -> Optional[str]:
        """The name of the version; None for a model that was opened without one. A model that was opened at "latest"
        stays at the version that its manifest had until `refresh`. Raises as `manifest`."""
        return None if self.asked_version is None else self.manifest().version

    def versions(self) -> List[Dict[str, Any]]:
        """Returns the versions of the model as the server describes them (version, number, kind, base, total_bytes,
        updated, ...), in ascending order. Raises NotFoundError, ConnectError, AnswerError."""
        return read_versions(self.session, self.id).rows

    def at(self, version: Union[str, int]) -> "Model":
        """Returns another version of the model. Nothing is read yet. `version`: a name, a number, a ref, or "latest".
        """
        if type(version) not in (str, int) or version == "":
            raise ValueError(f"a version is a name or a number, not {version!r}")
        return Model(self.session, self.id, self.checkpoint, str(version))

    def wait_version(self, after: Union[str, int, None] = None, timeout: float = 600) -> str:
        """Waits until the latest version is another one than `after`, and returns its name.

        `after`: a name, a number or a ref; by default the version of this model, and if it was opened without one, the
        first version ends the wait. `timeout`: seconds. Raises TimeoutError, NotFoundError, ConnectError, AnswerError.
        """
        return wait_version(self.session, self.id, self.version if after is None else str(after), timeout)

    def changes(self, since: Union[str, int]) -> Dict[str, Any]:
        """Returns what changed from another version to this one, as the server describes it: "changed" and "added" have
        a row for each tensor (name, dtype, shape, nbytes, sha256, href), "removed" has names, and "same", "same_bytes"
        and "changed_bytes" are numbers.

        `since`: a name, a number or a ref. Of a model that was opened without a version, the latest version is
        compared. The server hashes tensors when somebody first asks. The call waits as long as that makes progress.
        Raises NotFoundError, ConnectError, AnswerError.
        """
        return read_changes(self.session, self.id, str(since), self.version)

    def patch(self, since: Union[str, int], engine: Optional[str] = None, tp: int = 1,
              rank: int = 0) -> Optional[Patch]:
        """Returns the elements in which the tensors of this version differ from those of another one, as the server has
        compared them; None if the server makes no such patch.

        `since`: a name, a number or a ref. `engine`, `tp`, `rank`: compares the tensors of this rank's file, by
        default all of the checkpoint's. The call waits while the server compares, for `retry_for` at most. Raises
        ValueError for a model that was opened without a version; NotFoundError, ChangedError, ConnectError,
        AnswerError.
        """
        part = {} if engine is None else {"engine": engine, "tp_size": str(tp), "tp_rank": str(rank)}
        return self._open_patch(lambda _: {"since": str(since), **part})

    def patch_of_boxes(self, since: "Model", wanted: Sequence[Box]) -> Optional[Patch]:
        """Returns the same for boxes of tensors, which the patch names by their numbers in the list, from 0. `since`: a
        version of this model, at the content of its manifest. Raises as `patch`."""
        items = [{"name": box.name, "as": str(number), "slice": text} if text else {"name": box.name, "as": str(number)}
                 for number, box in enumerate(wanted)
                 for text in [box.slice_text(self.manifest()[box.name].shape)]]

        def query(endpoint: Endpoint) -> Dict[str, str]:
            plan = self.session.ask_json("POST", self.reader().path("plans"), {"ranks": [{"tensors": items}]},
                                         endpoint=endpoint, once=True)
            if not isinstance(plan, dict) or not isinstance(plan.get("id"), str):
                raise errors.ProtocolError(f"{endpoint} did not answer with a plan")
            return {"since": str(since.version), "since_manifest": since.manifest().etag, "plan": plan["id"]}

        return self._open_patch(query)

    def _open_patch(self, query: Callable[[Endpoint], Dict[str, str]]) -> Optional[Patch]:
        if self.version is None:
            raise ValueError(f"since= compares versions, and {self.id} was opened without one: ?version=latest in the "
                             "URL, or at(version)")
        found = open_patch(self.session, self.id, lambda endpoint: path_of(
            self.id, "changes", version=self.version, format="patch", manifest=self.manifest().etag, **query(endpoint)))
        return None if found is None else found.check(self.version)

    def reader(self) -> Reader:
        """Returns a Reader for the manifest's version."""
        return Reader(self.session, self.manifest(), self.checkpoint)

    def names(self, match: Optional[str] = None) -> List[str]:
        """Returns the names of the tensors, sorted; `match` is the server's glob, which the server applies."""
        if match is None:
            return list(self.manifest().tensors)
        found = read_manifest(self.session, self.id, self.checkpoint, match, self.version)
        self.agree([found.etag])
        return list(found.tensors)

    def digests(self, match: Optional[str] = None) -> Dict[str, str]:
        """Returns the SHA-256 of the bytes of each tensor, by name, as the server has computed them, at the version of
        the manifest. `match` as in `names`. Tensors that cannot be served have none.

        The server hashes tensors when somebody first asks. The call waits as long as that makes progress. Raises
        ChangedError, ConnectError, AnswerError.
        """
        found = read_manifest(self.session, self.id, self.checkpoint, match, self.version, digests=True)
        self.agree([found.etag])
        return {name: info.sha256 for name, info in found.tensors.items() if info.sha256 is not None}

    def agree(self, tags: Iterable[str]) -> None:
        """Checks that manifests with these tags, read by others, are of this one's version.

        The server is asked where tags differ: a version has one tag until its files are hashed and another one from
        then on, and the server takes both. Raises ChangedError, ConnectError.
        """
        distinct = {*tags, self.manifest().etag}
        served = [name for name, info in self.manifest().tensors.items() if not info.reason]
        if len(distinct) == 1 or not served:
            return
        for tag in sorted(distinct):
            self._confirm(tag, served[0])

    def confirm(self, endpoint: Endpoint) -> None:
        """Checks that a server has this version now. Raises ChangedError; without retries, ConnectError and
        AnswerError."""
        tag = self.manifest().etag
        served = next((name for name, info in self.manifest().tensors.items() if not info.reason), None)
        if served is not None:
            self._confirm(tag, served, endpoint=endpoint, once=True)
            return
        found = self.session.ask_json("GET", self.reader().path("tensors"), endpoint=endpoint, once=True)
        if Manifest.from_json(found).etag != tag:
            raise self._changed(None)

    def _confirm(self, tag: str, served: str, **how: Any) -> None:
        """Requests a plan of one tensor with a manifest's tag. A server with another version refuses it."""
        try:
            self.session.ask("POST", self.reader().path("plans"), {"boxes": [{"name": served}], "manifest": tag}, **how)
        except errors.ChangedError as error:
            raise self._changed(error) from error

    def _changed(self, error: Optional[errors.ChangedError]) -> errors.ChangedError:
        text = f"{self.id} changed on the server while it was being loaded: load again"
        if error is None:
            return errors.ChangedError(text, 412, "FAILED_PRECONDITION")
        return errors.ChangedError(f"{text} ({error})", 412, error.code, error.url)

    def read_bytes(self, name: str) -> bytearray:
        """Returns the bytes of a tensor of any type, little-endian and row by row. Raises NotFoundError."""
        info = self.manifest().served(name)
        data = empty_bytes(info.nbytes)
        self.reader().read([Want(boxes.whole(name, info.shape), view=memoryview(data))], name)
        return data

    def read_boxes(self, wanted: Iterable[Tuple[str, Any]], out: Optional[Sequence[Any]] = None,
                   framework: str = "pt") -> List[Any]:
        """Reads parts of tensors as one answer, and returns them in the order of the list.

        `wanted`: (name, slices) pairs; slices is an index of a tensor: integers, slices, `...`, or None for the whole
        tensor. `out`: a tensor of torch, or None, for each; given tensors are filled, with conversion to their type,
        and returned. Raises IndexError for a slice that the tensor would refuse; NotFoundError,
        MismatchError.
        """
        return self.read_parts(list(wanted), out, memory.framework_of(framework))

    def read_parts(self, pairs: List[Tuple[str, Any]], out: Optional[Sequence[Any]], framework: str,
                   stop: Optional[Stop] = None) -> List[Any]:
        """Reads as `read_boxes`. `framework`: "pt" or "np". `stop` lets another thread end the read."""
        if out is not None and len(out) != len(pairs):
            raise errors.MismatchError(f"out has {len(out)} tensors for {len(pairs)} boxes")
        if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
            raise TypeError("boxes are given as a list of (name, slices) pairs, with None for a whole tensor")
        if out is not None and not all(one is None or hasattr(one, "element_size") for one in out):
            raise TypeError("out takes tensors of torch, or None")
        wants, results, fresh = [], [], []
        for number, (name, index) in enumerate(pairs):
            info = self.manifest().served(name)
            index = ... if index is None else index
            target = out[number] if out is not None else None
            want, finish, tensor = self._part(info, index, framework, target)
            wants.append(want)
            results.append(finish)
            fresh += [] if tensor is None else [tensor]
        memory.ask_huge_pages(fresh)
        self.reader().read(wants, f"{len(wants)} boxes", stop)
        return [finish() for finish in results]

    def _part(self, info: TensorInfo, index: Any, framework: str,
              target: Any) -> Tuple[Want, Callable[[], Any], Any]:
        """Returns the Want that reads an indexed part, a function that returns the part once it is read, and the tensor
        allocated for it (None if the part is read into the target)."""
        shape = indexing.check_index(info, index, framework)
        box, rest = indexing.box_of(info, index, framework)
        if target is not None:
            if shape is not None and tuple(target.shape) != shape:
                raise errors.MismatchError(f"{info.name}: out has shape {tuple(target.shape)}, the box {shape}")
            if indexing.is_plain(rest):
                return memory.want_into(target, box, info.dtype), lambda: target, None
        tensor, view = memory.empty(framework, info.dtype, box.sizes)

        def finish() -> Any:
            part = indexing.apply(tensor, rest)
            return part if target is None else indexing.copy(part, target)

        return Want(box, view=view), finish, tensor

    def state_dict(self, match: Optional[str] = None, device: Any = None, dtype: Any = None,
                   framework: str = "pt", verify: bool = False) -> Dict[str, Any]:
        """Returns all tensors, or those with names that `match`, by name.

        `device`: torch's; the processor by default. `dtype`: torch's type, to which floating-point tensors are
        converted. Tensors that are one in the checkpoint (`alias_of`) are read once and share memory. `verify`: the
        bytes that arrive are compared with the server's SHA-256 of each tensor (`digests`); VerifyError if they differ.
        """
        names = self.names(match)
        return self.read_tensors(names, device, dtype, memory.framework_of(framework), self._sums(match, verify))

    def _sums(self, match: Optional[str], verify: bool) -> Optional[Sums]:
        return Sums(self.id, self.digests(match)) if verify else None

    def read_tensors(self, names: Sequence[str], device: Any, dtype: Any, framework: str,
                     sums: Optional[Sums] = None) -> Dict[str, Any]:
        """Reads as `state_dict`, the tensors of these names. `framework`: "pt" or "np". `sums`: the digests that the
        bytes must have."""
        if framework == "np" and (dtype is not None or str(device or "cpu") != "cpu"):
            raise ValueError('device= and dtype= need framework="pt"')
        if dtype is not None and type(dtype).__module__ != "torch":
            raise TypeError(f"dtype is a type of torch, such as torch.bfloat16, not {dtype!r}")
        made: Dict[str, Any] = {}
        wants: List[Want] = []
        first_of: Dict[str, str] = {}
        for name in names:
            info = self.manifest().served(name)
            key = self._shared_with(info)
            if key in first_of:
                made[name] = made[first_of[key]]
                continue
            first_of[key] = name
            try:
                made[name], want = self._fresh(info, device, dtype, framework)
            except errors.TensordError as error:
                raise errors.TensordError(f"{name} of {self.id}: {error} (match= chooses other tensors)") from error
            if want is not None:
                wants.append(want)
        memory.ask_huge_pages(made.values())
        self.reader().read(wants, sums=sums)
        return made

    def _shared_with(self, info: TensorInfo) -> str:
        """Returns the name of the tensor that stores these bytes: the alias target if type and shape agree, else this.
        """
        first = self.manifest().tensors.get(info.alias_of or "")
        if first is not None and (first.dtype, first.shape) == (info.dtype, info.shape):
            return first.name
        return info.name

    def _fresh(self, info: TensorInfo, device: Any, dtype: Any, framework: str) -> Tuple[Any, Optional[Want]]:
        """Makes a tensor. Returns it and the Want that reads it; None on the meta device, which has no memory."""
        box = boxes.whole(info.name, info.shape)
        if framework == "np":
            tensor, view = memory.empty("np", info.dtype, info.shape)
            return tensor, Want(box, view=view)
        import torch

        source = dtypes.torch_dtype(info.dtype)
        wanted = dtype if dtype is not None and source.is_floating_point and info.dtype != "F4" else source
        tensor = torch.empty(dtypes.torch_shape(info.dtype, info.shape), dtype=wanted,
                             device="cpu" if device is None else device)
        return tensor, None if tensor.device.type == "meta" else memory.want_into(tensor, box, info.dtype)

    def load_into(self, target: Any, strict: bool = True, dtype: Any = None, match: Optional[str] = None,
                  names: Optional[Dict[str, str]] = None, verify: bool = False,
                  since: Union[str, int, None] = None) -> Tuple[List[str], List[str]]:
        """Reads the checkpoint into memory that exists: a module's parameters and buffers, or a dict of tensors.

        `strict`: every name must be on both sides, else MismatchError; False reads the common names. `dtype`: the
        type that tensors may be converted to, of torch, or "any"; by default types must be equal. `match`: only
        tensors of the checkpoint with names that match. `names`: the checkpoint's name for a name of the target, if
        they differ. `verify` as in `state_dict`. `since`: the version whose tensors the target has now, of a model
        that was opened at a version; only elements that differ are read (`patch`), or, where the server makes no patch
        or a patch is larger, tensors that changed or were added. Returns the names that the checkpoint lacks, and those
        that the target lacks. Shapes must be equal. Nothing is written before all of this has been checked.
        """
        if not isinstance(target, dict) and not hasattr(target, "state_dict"):
            raise TypeError(f"load_into fills a module or a dict of tensors of torch, not {type(target).__name__}")
        tensors = target if isinstance(target, dict) else target.state_dict(keep_vars=True)
        for name, tensor in tensors.items():
            if not hasattr(tensor, "element_size"):
                raise TypeError(f"{name} is of type {type(tensor).__name__}: load_into fills tensors of torch")
        offered = set(self.names(match))
        source_of = {name: names[name] if names and name in names else name for name in tensors}
        missing = [name for name in tensors if source_of[name] not in offered]
        unexpected = sorted(offered - set(source_of.values()))
        if strict and (missing or unexpected):
            differ = _some("missing", missing) + _some("unexpected", unexpected)
            raise errors.MismatchError(f"{self.id} does not fit: {differ}strict=False loads the names on both sides")
        wants: Dict[Any, Want] = {}
        targets: Dict[Any, Any] = {}  # the tensor of each want
        faults = []
        for name, tensor in tensors.items():
            if source_of[name] not in offered:
                continue
            info = self.manifest().served(source_of[name])
            fault = _fault_of(name, tensor, info, dtype)
            if fault:
                faults.append(fault)
                continue
            place: Any = name
            if tensor.numel() and memory.has_memory(tensor):  # of tied parameters the last counts, as for torch
                place = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.device)
            wants[place] = memory.want_into(tensor.detach(), boxes.whole(info.name, info.shape), info.dtype)
            targets[place] = tensor.detach()
        if faults:
            raise errors.MismatchError(f"{self.id} does not fit: {'; '.join(faults[:10])}")
        sums = self._sums(match, verify)
        read = list(wants.values())
        if since is not None:
            read = self._update([(wants[place], targets[place]) for place in wants], since, sums)
        self.reader().read(read, sums=sums)
        return missing, unexpected

    def _update(self, targets: List[Tuple[Want, Any]], since: Union[str, int], sums: Optional[Sums]) -> List[Want]:
        """Brings tensors from a version to this one where few of their elements differ. Returns those that have to be
        read whole. Raises ValueError for a model without a version, and as `changes` and `Patch.parts`."""
        patch = self.patch(since)
        whole_bytes = sum(self.manifest()[want.box.name].nbytes for want, _ in targets
                          if patch is not None and want.box.name in patch.entries)
        if patch is None or patch.nbytes >= whole_bytes > 0:
            fresh = self._changed_since(since)
            return [want for want, _ in targets if want.box.name in fresh]
        patch.check_types({name: info.dtype for name, info in self.manifest().tensors.items()})
        whole = set(patch.whole)
        read = [want for want, _ in targets if want.box.name in whole]
        changing: Dict[str, List[Tuple[Want, Any]]] = {}
        for want, tensor in targets:
            if want.box.name not in patch.entries:
                continue
            if self._takes_elements(want, tensor):
                changing.setdefault(want.box.name, []).append((want, tensor))
            else:
                read.append(want)
        for part in patch.parts(changing.__contains__):
            for _, tensor in changing[part.name]:
                put(tensor, part)
        if sums is not None:
            read += [want for found in changing.values() for want, tensor in found
                     if not sums.fits(want.box.name, memory.bytes_of_torch(tensor))]
        return read

    def _takes_elements(self, want: Want, tensor: Any) -> bool:
        """Returns whether a target has the checkpoint's type, in memory whose bits are the elements."""
        source = dtypes.torch_dtype(self.manifest()[want.box.name].dtype)
        return bool(tensor.dtype == source and memory.has_memory(tensor) and not tensor.is_conj() and
                    not tensor.is_neg())

    def _changed_since(self, since: Union[str, int]) -> Set[str]:
        """Returns the names of the tensors that changed since a version, or were added. Raises as `changes`."""
        found = self.changes(since)
        return {row["name"] for row in [*found["changed"], *found["added"]]}

    def __getitem__(self, name: str) -> Any:
        """Returns a slice view of a tensor: `get_shape()`, `get_dtype()`, `[...]`. Nothing is read yet."""
        return RemoteSlice(self.reader, self.manifest().served(name), "pt")


def _some(what: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{what} {', '.join(names[:5])}{more}; "


def _fault_of(name: str, tensor: Any, info: TensorInfo, dtype: Any) -> str:
    shape = dtypes.torch_shape(info.dtype, info.shape)
    if tuple(tensor.shape) != shape:
        return f"{name} has shape {tuple(tensor.shape)}, the checkpoint {shape}"
    source = dtypes.torch_dtype(info.dtype)
    if tensor.dtype != source and dtype != "any" and tensor.dtype != dtype:
        return f"{name} is {tensor.dtype}, the checkpoint {source} (dtype={tensor.dtype} converts)"
    return ""
