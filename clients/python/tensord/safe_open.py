"""`safe_open` for a model on a server: the interface of safetensors.safe_open; the server cuts the slices."""
from __future__ import annotations

import threading
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple, Union

from .address import Urls
from .client import model_of
from .errors import FileError
from .net.transfer import Stop
from .net.workers import LEAVE_SECONDS
from .tensors.manifest import TensorInfo
from .tensors.memory import framework_of
from .tensors.model import Model
from .tensors.remote_slice import RemoteSlice

PrefetchPlan = Dict[str, Optional[slice]]


class safe_open:
    """Opens a model on a server as safetensors.safe_open opens a file. A context manager.

    `url`: a model's (see `tensord.address`), or a Model. `framework`: "pt" or "np". `device`: torch's, for "pt".
    `lazy`: `get_tensor` and `get_slice` return LazyTensor, which read when they are copied from. `options`: by name.
    Raises AddressError, ValueError for a framework, NotFoundError, ConnectError.
    """

    def __init__(self, url: Union[Urls, Model], framework: str = "pt", device: Any = "cpu", *, lazy: bool = False,
                 **options: Any):
        self._framework = framework_of(framework)
        if lazy and self._framework != "pt":
            raise ValueError("lazy=True needs framework=\"pt\"")
        self._device = device
        self._lazy = lazy
        self._model: Optional[Model] = model_of(url, options)
        self._own = self._model is not url
        self._model.manifest()

    def __enter__(self) -> "safe_open":
        return self

    def __exit__(self, *_: object) -> None:
        if self._own and self._model is not None:
            self._model.session.close()
        self._model = None

    def _open(self) -> Model:
        if self._model is None:
            raise FileError("File is closed")
        return self._model

    def _info(self, name: str) -> TensorInfo:
        model = self._open()
        if name not in model.manifest():
            raise FileError(f"File does not contain tensor {name}")
        return model.manifest().served(name)

    def keys(self) -> List[str]:
        """Returns the names of the tensors, sorted."""
        return list(self._open().manifest().tensors)

    def offset_keys(self) -> List[str]:
        """Returns the names of the tensors in the order of the files."""
        tensors = self._open().manifest().tensors
        return sorted(tensors, key=lambda name: (tensors[name].file, tensors[name].offset or 0, name))

    def metadata(self) -> Optional[Dict[str, str]]:
        """Returns the metadata of the checkpoint; None if it has none."""
        return dict(self._open().manifest().metadata) or None

    def get_tensor(self, name: str) -> Any:
        """Reads a tensor. Raises FileError (a SafetensorError) for an unknown name."""
        info = self._info(name)
        if self._lazy:
            return _lazy_tensor(self._open(), info, self._device)
        return self._open().read_tensors([name], self._device, None, self._framework)[name]

    def get_tensors(self) -> Dict[str, Any]:
        """Reads all tensors at once, and returns them by name."""
        if self._lazy:
            return {name: self.get_tensor(name) for name in self.keys()}
        return self._open().read_tensors(self.keys(), self._device, None, self._framework)

    def get_slice(self, name: str) -> RemoteSlice:
        """Returns a slice view of a tensor; `view[...]` reads the bytes of the index. Raises as `get_tensor`."""
        if self._lazy:
            return _LazySlice(self._open(), self._info(name), self._device)
        return RemoteSlice(self._open().reader, self._info(name), self._framework, self._device)

    def prefetch(self, plan: Optional[PrefetchPlan] = None, *, device: Any = None,
                 threads: Optional[int] = None) -> "PrefetchLoader":
        """Starts to read tensors in the background, and returns a loader that yields them.

        `plan`: for each name None (the whole tensor), a slice of its first dimension, or a tuple of slices; None: all
        tensors whole. `device`: the handle's by default. `threads`: the most connections for it. Requires framework
        "pt". As safetensors 0.9, but for any device and for slices of any dimension.
        """
        if self._framework != "pt":
            raise FileError("prefetch needs framework=\"pt\"")
        if plan is not None and not isinstance(plan, dict):
            raise TypeError(f"the plan is a dict, not {type(plan).__name__}")
        wanted: Dict[str, Tuple[slice, ...]] = {}
        for name, part in (dict.fromkeys(self.keys()) if plan is None else plan).items():
            info = self._info(name)
            parts = () if part is None else part if isinstance(part, tuple) else (part,)
            for one in parts:
                if not isinstance(one, slice):
                    raise TypeError(f"{name}: a plan has None, a slice or a tuple of slices for a tensor")
                if one.step not in (None, 1):
                    raise FileError(f"{name}: a slice of a plan has a step of 1, not {one.step}")
            if len(parts) > len(info.shape):
                raise FileError(f"{name}: a slice of {len(parts)} dimensions for a tensor of {len(info.shape)}")
            wanted[name] = parts
        model = self._open() if threads is None else self._open().with_options(connections=threads)
        return PrefetchLoader(model, wanted, device if device is not None else self._device)


class _LazySlice(RemoteSlice):
    """A slice view of a tensor that returns LazyTensor, and reads nothing by itself."""

    def __init__(self, model: Model, info: TensorInfo, device: Any):
        super().__init__(model.reader, info, "pt", device)
        self._model = model

    def __getitem__(self, index: Any) -> Any:
        return _lazy_tensor(self._model, self._info, self._device)[index]


def _lazy_tensor(model: Model, info: TensorInfo, device: Any) -> Any:
    """Returns a LazyTensor of all of a tensor."""
    from .lazy import LazyTensor  # which needs torch

    return LazyTensor.of(model, info, device)


class PrefetchLoader:
    """Hands out the tensors that `prefetch` reads in the background, each once. A context manager."""

    def __init__(self, model: Model, wanted: Dict[str, Tuple[slice, ...]], device: Any):
        self._changed = threading.Condition()
        self._wanted = wanted
        self._ready: Dict[str, Any] = {}
        self._taken: Set[str] = set()
        self._error: Optional[BaseException] = None
        self._closed = False
        self._stop = Stop()
        self._thread = threading.Thread(target=self._read, args=(model, device), name="tensord-prefetch", daemon=True)
        self._thread.start()

    def _read(self, model: Model, device: Any) -> None:
        try:
            for group in _groups(model, self._wanted):
                parts = [(name, self._wanted[name] or None) for name in group]
                tensors = model.read_parts(parts, None, "pt", self._stop)
                with self._changed:
                    if self._closed:
                        return
                    for name, tensor in zip(group, tensors):
                        self._ready[name] = tensor if str(device) == "cpu" else tensor.to(device)
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def names(self) -> List[str]:
        """Returns the names that this loader hands out."""
        return list(self._wanted)

    def __len__(self) -> int:
        return len(self._wanted)

    def take(self, name: str) -> Any:
        """Takes a tensor, and waits for it. Raises FileError for a name that is not planned or was taken, and once the
        loader is closed; the error of the read."""
        with self._changed:
            if name not in self._wanted:
                raise FileError(f"tensor {name} is not in the prefetch plan")
            while name not in self._ready:
                if name in self._taken:
                    raise FileError(f"tensor {name} was taken already")
                self._wait()
            return self._hand_out(name)

    def __iter__(self) -> Iterator[Tuple[str, Any]]:
        """Yields the tensors that were not taken yet, as they arrive. Raises as `take`."""
        while True:
            with self._changed:
                while not self._ready:
                    if len(self._taken) == len(self._wanted):
                        return
                    self._wait()
                name = next(iter(self._ready))
                tensor = self._hand_out(name)
            yield name, tensor

    def _hand_out(self, name: str) -> Any:
        self._taken.add(name)
        self._changed.notify_all()  # others may wait for the same
        return self._ready.pop(name)

    def _wait(self) -> None:
        if self._closed:
            raise FileError("the loader is closed")
        if self._error is not None:
            raise self._error
        self._changed.wait(1.0)

    def close(self) -> None:
        """Stops the background read, and drops tensors that were not taken."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        self._stop.stop()
        self._thread.join(LEAVE_SECONDS)

    def __enter__(self) -> "PrefetchLoader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _groups(model: Model, wanted: Dict[str, Tuple[slice, ...]], most: int = 256 * 1024 * 1024) -> Iterator[List[str]]:
    """Cuts a plan into groups that are read at once, so that the first tensors arrive before the others."""
    group: List[str] = []
    nbytes = 0
    for name in wanted:
        size = model.manifest()[name].nbytes
        if group and nbytes + size > most:
            yield group
            group, nbytes = [], 0
        group.append(name)
        nbytes += size
    if group:
        yield group
