"""Clients: `connect` gives one for servers; `Model` is one checkpoint of one model at one version."""
from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple
from urllib.parse import quote, urlencode

from . import address, boxes, dtypes, errors, http, indexing, memory, watching
from .address import Endpoint, Urls, path_of
from .buffer import empty_bytes
from .lock import ForkSafeLock
from .manifest import Manifest, TensorInfo
from .options import Options, of
from .reading import Reader, Want
from .session import Session, json_of
from .splits import DatasetInfo
from .transfer import Stop

if TYPE_CHECKING:
    from .dataset import Dataset

MAX_MODELS = 1_000_000  # or datasets, of one list; more are not believed


def connect(url: Urls, options: Optional[Options] = None, **given: Any) -> "Client":
    """Returns a client of the servers that a URL names; no connection is made yet.

    `url`: a server's, a model's or a dataset's, or several as a list or between commas. `given`: options by name (see
    `Options`).
    Raises AddressError.
    """
    place = address.parse(url)
    return Client(Session(place.endpoints, of(options, **given)), place.model or None, place.checkpoint,
                  place.dataset or None, place.split)


def watch(url: Urls, match: Optional[str] = None, existing: bool = True, **options: Any) -> Iterator["Model"]:
    """Returns an endless iterator that yields a Model for each model of a server that appears or changes. The Model's
    manifest is not read yet.

    `url`: of a server, or of a model to watch that model alone. `match`: a glob over ids, such as "run/*". `existing`:
    whether to yield the models that are there at the beginning first, in the order of their ids. `options`: those of
    `tensord.Options`, by name.

    The iterator yields a model only once it has a checkpoint. If a model changes several times between two steps of the
    iterator, the iterator yields it once. The iterator waits while a server restarts, and then yields only models that
    have changed.

    Raises AddressError, ValueError; the iterator AnswerError, ProtocolError, and ConnectError when no server answers
    for `retry_for` seconds.
    """
    return connect(url, **options).watch(match, existing)


def open_model(url: Urls, options: Optional[Options] = None, **given: Any) -> "Model":
    """Returns the model that a URL names. Raises AddressError if the URL names none."""
    return connect(url, options, **given).model()


class Client:
    """Servers that hold the same models. For any number of threads; pickled or forked it makes connections anew.

    `session`: the connections and options, for the other modules of this package."""

    def __init__(self, session: Session, model: Optional[str] = None, checkpoint: Optional[str] = None,
                 dataset: Optional[str] = None, split: Optional[str] = None):
        self.session = session
        self._model = model
        self._checkpoint = checkpoint
        self._dataset = dataset
        self._split = split

    def __repr__(self) -> str:
        return f"<tensord.Client {', '.join(map(str, self.session.endpoints))}>"

    def models(self, match: Optional[str] = None) -> List[Dict[str, Any]]:
        """Returns the models of the server, each as the server describes it (id, checkpoints, total_bytes, ...).

        `match`: a glob over ids. Raises ConnectError, AnswerError.
        """
        return self._pages("models", {} if match is None else {"match": _glob(match)}, _is_model)

    def _models_and_tag(self, query: Dict[str, str]) -> Tuple[List[Dict[str, Any]], str]:
        """Returns the models that a query asks for, and the ETag field of their list. Raises as `models`."""
        return self._pages_with_tag("models", query, _is_model)

    def _pages(self, what: str, query: Dict[str, str], fits: Callable[[Any], bool]) -> List[Dict[str, Any]]:
        """Returns the rows of all pages of a list. Raises ProtocolError for rows that do not fit."""
        return self._pages_with_tag(what, query, fits)[0]

    def _pages_with_tag(self, what: str, query: Dict[str, str],
                        fits: Callable[[Any], bool]) -> Tuple[List[Dict[str, Any]], str]:
        """Returns the rows of all pages of a list, and the entity tag of the first page, which covers the whole list
        ("" without a tag). Raises ProtocolError for rows that do not fit."""
        rows: List[Dict[str, Any]] = []
        query, tag = {"page_size": "1000", **query}, None
        while True:
            path = f"/{what}?{urlencode(query)}"
            text, answer = self.session.ask("GET", path)
            page = json_of(text, answer, path)
            tag = answer.fields.get("etag", "") if tag is None else tag
            found = page.get(what) if isinstance(page, dict) else None
            if not isinstance(found, list) or not all(fits(row) for row in found):
                raise errors.ProtocolError(f"the list of {what} is not one of tensord: is this a tensord server?")
            rows += found
            token = page.get("next_page_token")
            if not token:
                return rows, tag
            if not found or len(rows) > MAX_MODELS:
                raise errors.ProtocolError(f"the list of {what} does not end: {len(rows)} were read")
            query["page_token"] = token
            query.pop("wait", None)  # only the first page waits
            query.pop("timeout", None)

    def watch(self, match: Optional[str] = None, existing: bool = True) -> Iterator["Model"]:
        """Yields models as they appear or change; see `tensord.watch`."""
        if self._dataset:
            raise errors.AddressError("watch takes the URL of a server or a model, and this is one of a dataset")
        if self._model and match is not None:
            raise ValueError("match= is for the URL of a server, and this one names a model")
        glob = address.glob_of(self._model) if self._model else match
        checkpoint = self._checkpoint if self._model else None
        ids = watching.changed_ids(self._models_and_tag, glob, existing, self.session.options.stall_timeout)
        return (Model(self, id, checkpoint) for id in ids)

    def datasets(self, match: Optional[str] = None) -> List[Dict[str, Any]]:
        """Returns the datasets of the server, each with its "id" and the names of its "splits".

        `match`: a glob over ids. Raises ConnectError, AnswerError.
        """
        return self._pages("datasets", {} if match is None else {"match": _glob(match)}, _is_dataset)

    def dataset_info(self, id: Optional[str] = None, file_start: int = 0) -> DatasetInfo:
        """Returns a dataset's splits as they are now, with their files and columns, and how far their indices are.

        `id`: that of the client's URL by default. `file_start`: the first file that is listed of each split; an answer
        lists 1,000. Raises NotFoundError, ConnectError, AnswerError.
        """
        name = self._dataset_name(id)
        query = f"?file_start={file_start}" if file_start else ""
        info = DatasetInfo.from_json(self.session.ask_json("GET", address.dataset_path(name) + query))
        if info.id != name and f"local/{info.id}" != name:  # the Hub's name of an id of one segment
            raise errors.ProtocolError(f"the server answered dataset {info.id!r} instead of {name!r}")
        return info

    def dataset(self, id: Optional[str] = None, split: Optional[str] = None, decode: Any = "auto",
                columns: Optional[Sequence[str]] = None, transform: Optional[Callable[[Any], Any]] = None) -> "Dataset":
        """Opens a dataset; see `Dataset`, which has the same parameters. `id`: that of the client's URL by default."""
        from .dataset import Dataset

        chosen = split if split is not None or id is not None else self._split
        client = Client(self.session, dataset=self._dataset_name(id), split=chosen)
        return Dataset(client, decode=decode, columns=columns, transform=transform)

    def _dataset_name(self, id: Optional[str]) -> str:
        name = id if id is not None else self._dataset
        if not name:
            raise errors.AddressError("no dataset is named: give its id, or a URL like http://host:8080/datasets/ID or "
                                      "tensord://host:8080/datasets/ID")
        return name

    def manifest(self, model: Optional[str] = None, checkpoint: Optional[str] = None,
                 match: Optional[str] = None) -> Manifest:
        """Reads the manifest of a model as it is now.

        `model`: its id; the one of the client's URL by default. `checkpoint`: its id; the first by default. `match`: a
        glob over names of tensors. Raises NotFoundError, ConnectError, AnswerError.
        """
        name = self._name(model)
        if checkpoint is None and model is None:
            checkpoint = self._checkpoint
        query = {"checkpoint": checkpoint, "match": None if match is None else _glob(match)}
        query = {key: value for key, value in query.items() if value is not None}
        path = path_of(name, "tensors") + (f"?{urlencode(query, quote_via=quote)}" if query else "")
        try:
            made = Manifest.from_json(self.session.ask_json("GET", path, limit=http.MAX_MANIFEST_BYTES))
        except errors.NotFoundError as error:
            if not name.startswith("models/"):
                raise
            raise errors.NotFoundError(f"{error}; a URL of tensord:// has no /models/ before the model's id",
                                       error.status, error.code, error.url) from None
        if made.model != name:
            raise errors.ProtocolError(f"the server answered the manifest of {made.model!r} instead of {name!r}")
        return made

    def model(self, id: Optional[str] = None, checkpoint: Optional[str] = None) -> "Model":
        """Returns a model. Nothing is read yet. `id` and `checkpoint` as in `manifest`."""
        if id is None and checkpoint is None:
            checkpoint = self._checkpoint
        return Model(self, self._name(id), checkpoint)

    def close(self) -> None:
        """Closes the idle connections. The client may be used again."""
        self.session.pool.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _name(self, model: Optional[str]) -> str:
        name = model if model is not None else self._model
        prefix = self.session.endpoints[0].prefix
        if not name and self._dataset:
            raise errors.AddressError(f"the URL names the dataset {self._dataset}, and no model: tensord.Dataset opens "
                                      f"it (a model of this name: http://host:port/models/datasets/{self._dataset})")
        if not name and prefix:
            raise errors.AddressError(f"the URL's path {prefix} names no model: that would be "
                                      f"{self.session.endpoints[0].origin}/models{prefix}")
        if not name:
            raise errors.AddressError("no model is named: give its id, or a URL like http://host:8080/models/ID")
        return name


class Model:
    """A checkpoint at one version: that of the manifest, which is read when it is first needed. All that is read later
    is of that version, or ends with ChangedError. For any number of threads; may be pickled."""

    def __init__(self, client: Client, id: str, checkpoint: Optional[str] = None):
        self.client = client
        self.id = id
        self.checkpoint = checkpoint
        self._manifest: Optional[Manifest] = None
        self._lock = ForkSafeLock()

    def __repr__(self) -> str:
        return f"<tensord.Model {self.id} on {', '.join(map(str, self.client.session.endpoints))}>"

    def __getstate__(self) -> Dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = ForkSafeLock()

    @property
    def options(self) -> Options:
        """The options of the client."""
        return self.client.session.options

    def with_options(self, **given: Any) -> "Model":
        """Returns the same model at the same version, read with other options (see `Options`)."""
        session = self.client.session
        client = Client(Session(session.endpoints, of(session.options, **given)), self.client._model,
                        self.client._checkpoint)
        model = Model(client, self.id, self.checkpoint)
        model._manifest = self.manifest()
        return model

    def manifest(self) -> Manifest:
        """Returns the manifest, read once. Raises NotFoundError, ConnectError, AnswerError."""
        with self._lock:
            if self._manifest is None:
                self._manifest = self.client.manifest(self.id, self.checkpoint)
            return self._manifest

    def refresh(self) -> Manifest:
        """Reads the manifest anew; what is read from now on is of that version."""
        with self._lock:
            self._manifest = None
        return self.manifest()

    def reader(self) -> Reader:
        """Returns what reads boxes of the manifest's version."""
        return Reader(self.client.session, self.manifest(), self.checkpoint)

    def names(self, match: Optional[str] = None) -> List[str]:
        """Returns the names of the tensors, sorted; `match` is the server's glob, which the server applies."""
        if match is None:
            return list(self.manifest().tensors)
        found = self.client.manifest(self.id, self.checkpoint, match)
        self.agree([found.etag])
        return list(found.tensors)

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
        found = self.client.session.ask_json("GET", self.reader().path("tensors"), endpoint=endpoint, once=True)
        if Manifest.from_json(found).etag != tag:
            raise self._changed(None)

    def _confirm(self, tag: str, served: str, **how: Any) -> None:
        """Requests a plan of one tensor with a manifest's tag. A server with another version refuses it."""
        try:
            self.client.session.ask("POST", self.reader().path("plans"),
                                     {"boxes": [{"name": served}], "manifest": tag}, **how)
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

        `wanted`: (name, slices) pairs; slices is what a tensor takes between brackets: integers, slices, `...`, or None
        for all of it. `out`: a tensor of torch, or None, for each; those that are there are filled (their type
        converts) and returned. Raises IndexError for a slice that the tensor would refuse; NotFoundError,
        MismatchError.
        """
        return self._read_boxes(list(wanted), out, framework_of(framework), None)

    def _read_boxes(self, pairs: List[Tuple[str, Any]], out: Optional[Sequence[Any]], framework: str,
                    stop: Optional[Stop]) -> List[Any]:
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

    def _part(self, info: TensorInfo, index: Any, framework: str, target: Any):
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

        def finish():
            part = indexing.apply(tensor, rest)
            return part if target is None else indexing.copy(part, target)

        return Want(box, view=view), finish, tensor

    def state_dict(self, match: Optional[str] = None, device: Any = None, dtype: Any = None,
                   framework: str = "pt") -> Dict[str, Any]:
        """Returns all tensors, or those whose names `match`, by name.

        `device`: torch's; the processor by default. `dtype`: torch's type, to which floating-point tensors are
        converted. Tensors that are one in the checkpoint (`alias_of`) are read once and share memory.
        """
        return self._tensors(self.names(match), device, dtype, framework_of(framework))

    def _tensors(self, names: Sequence[str], device: Any, dtype: Any, framework: str) -> Dict[str, Any]:
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
        self.reader().read(wants)
        return made

    def _shared_with(self, info: TensorInfo) -> str:
        """Returns the tensor under whose bytes another one lies, if it also has its type and shape."""
        first = self.manifest().tensors.get(info.alias_of or "")
        if first is not None and (first.dtype, first.shape) == (info.dtype, info.shape):
            return first.name
        return info.name

    def _fresh(self, info: TensorInfo, device: Any, dtype: Any, framework: str) -> Tuple[Any, Optional[Want]]:
        """Makes a tensor, and returns with it what reads it; None on the meta device, which keeps no bytes."""
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
                  names: Optional[Dict[str, str]] = None) -> Tuple[List[str], List[str]]:
        """Reads the checkpoint into memory that exists: a module's parameters and buffers, or a dict of tensors.

        `strict`: every name has to be on both sides, else MismatchError; False reads what is on both. `dtype`: what the
        tensors may be converted to, a type of torch or "any"; by default types have to be equal. `match`: only
        tensors of the checkpoint whose names match. `names`: the checkpoint's name for a name of the target, where they
        differ. Returns the names that the checkpoint lacks, and those that the target lacks. Shapes have to be equal.
        Nothing is written before all of this has been checked.
        """
        if not isinstance(target, dict) and not hasattr(target, "state_dict"):
            raise TypeError(f"load_into fills a module or a dict of tensors of torch, not {type(target).__name__}")
        tensors = target if isinstance(target, dict) else target.state_dict(keep_vars=True)
        for name, tensor in tensors.items():
            if not hasattr(tensor, "element_size"):
                raise TypeError(f"{name} is of type {type(tensor).__name__}: load_into fills tensors of torch")
        offered = set(self.names(match))
        source_of = {name: (names or {}).get(name, name) for name in tensors}
        missing = [name for name in tensors if source_of[name] not in offered]
        unexpected = sorted(offered - set(source_of.values()))
        if strict and (missing or unexpected):
            differ = _some("missing", missing) + _some("unexpected", unexpected)
            raise errors.MismatchError(f"{self.id} does not fit: {differ}strict=False loads what is on both sides")
        wants: Dict[Any, Want] = {}
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
        if faults:
            raise errors.MismatchError(f"{self.id} does not fit: {'; '.join(faults[:10])}")
        self.reader().read(list(wants.values()))
        return missing, unexpected

    def __getitem__(self, name: str) -> Any:
        """Returns a slice view of a tensor: `get_shape()`, `get_dtype()`, `[...]`. Nothing is read yet."""
        from .safe_open import RemoteSlice

        return RemoteSlice(self, self.manifest().served(name), "pt")


def framework_of(name: str) -> str:
    """Returns "pt" or "np" for a framework's name. Raises ValueError; ImportError if its package is not installed."""
    found = memory.FRAMEWORKS.get(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"framework {name} is invalid: it is pt or np")
    if sys.byteorder != "little":
        raise errors.TensordError("tensors are little-endian, which this machine is not: read_bytes gives their bytes")
    package, other = ("torch", "np") if found == "pt" else ("numpy", "pt")
    if importlib.util.find_spec(package) is None:
        raise ImportError(f"{package} is not installed: pip install {package}, or framework=\"{other}\"")
    return found


def _glob(match: Any) -> str:
    if not isinstance(match, str):
        raise TypeError(f"match is a glob, such as \"layers.0.*\", not {match!r}")
    return match


def _is_model(row: Any) -> bool:
    """Returns whether a server's row describes a model whose id may be put into paths."""
    return (isinstance(row, dict) and isinstance(row.get("id"), str) and type(row.get("total_bytes")) is int and
            isinstance(row.get("checkpoints"), list) and all(isinstance(one, dict) for one in row["checkpoints"]) and
            not any(part in ("", ".", "..") for part in row["id"].split("/")))


def _is_dataset(row: Any) -> bool:
    """Returns whether a server's row names a dataset whose id may be put into paths."""
    return (isinstance(row, dict) and isinstance(row.get("id"), str) and isinstance(row.get("splits"), list) and
            all(isinstance(one, str) for one in row["splits"]) and
            not any(part in ("", ".", "..") for part in row["id"].split("/")))


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
