"""`safe_open` for a model on a server: the interface of safetensors.safe_open; the server cuts the slices."""
from __future__ import annotations

import threading
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

from . import errors, indexing, memory
from .address import Urls
from .client import Model, framework_of, open_model
from .manifest import TensorInfo
from .reading import Want
from .transfer import LEAVE_SECONDS, Stop

try:  # code that catches safetensors' error catches ours
    from safetensors import SafetensorError
except ImportError:

    class SafetensorError(Exception):  # type: ignore[no-redef]
        """Stands for safetensors' error where that package is not installed."""


class FileError(errors.TensordError, SafetensorError):
    """An error that safetensors itself raises as SafetensorError, with its message."""


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
        self._model: Optional[Model] = url if isinstance(url, Model) else open_model(url, **options)
        self._own = not isinstance(url, Model)
        self._model.manifest()

    def __enter__(self) -> "safe_open":
        return self

    def __exit__(self, *_: object) -> None:
        if self._own and self._model is not None:
            self._model.client.close()
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
        """Returns the names of the tensors as they lie in the files."""
        tensors = self._open().manifest().tensors
        return sorted(tensors, key=lambda name: (tensors[name].file, tensors[name].offset or 0, name))

    def metadata(self) -> Optional[Dict[str, str]]:
        """Returns the metadata of the checkpoint; None if it has none."""
        return dict(self._open().manifest().metadata) or None

    def get_tensor(self, name: str) -> Any:
        """Reads a tensor. Raises FileError (a SafetensorError) if there is none of that name."""
        info = self._info(name)
        if self._lazy:
            from .lazy import LazyTensor

            return LazyTensor.of(self._open(), info, self._device)
        return self._open()._tensors([name], self._device, None, self._framework)[name]

    def get_tensors(self) -> Dict[str, Any]:
        """Reads all tensors at once, and returns them by name."""
        if self._lazy:
            return {name: self.get_tensor(name) for name in self.keys()}
        return self._open()._tensors(self.keys(), self._device, None, self._framework)

    def get_slice(self, name: str) -> "RemoteSlice":
        """Returns a slice view of a tensor; `view[...]` reads what the index needs. Raises as `get_tensor`."""
        return RemoteSlice(self._open(), self._info(name), self._framework, self._device, self._lazy)

    def prefetch(self, plan: Optional[PrefetchPlan] = None, *, device: Any = None,
                 threads: Optional[int] = None) -> "PrefetchLoader":
        """Starts to read tensors in the background, and returns what hands them out.

        `plan`: for each name None (the whole tensor), a slice of its first dimension, or a tuple of slices; None: all
        tensors whole. `device`: the handle's by default. `threads`: the most connections for it. Requires framework
        "pt". As safetensors 0.9, but for any device and for slices of any dimension.
        """
        if self._framework != "pt":
            raise FileError("prefetch needs framework=\"pt\"")
        if plan is not None and not isinstance(plan, dict):
            raise TypeError(f"the plan is a dict, not {type(plan).__name__}")
        wanted: Dict[str, Tuple[slice, ...]] = {}
        for name, part in ({name: None for name in self.keys()} if plan is None else plan).items():
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


class RemoteSlice:
    """A slice view of a tensor on a server: `get_shape()`, `get_dtype()`, `view[index]`. The index may be whatever the
    framework's tensors take; the server sends the smallest box that it needs."""

    def __init__(self, model: Model, info: TensorInfo, framework: str, device: Any = "cpu", lazy: bool = False):
        self._model, self._info, self._framework = model, info, framework
        self._device, self._lazy = device, lazy

    def __repr__(self) -> str:
        return f"<tensord.RemoteSlice {self._info.name} {self._info.dtype} {list(self._info.shape)}>"

    def get_shape(self) -> List[int]:
        """Returns the tensor's shape, in elements of its dtype."""
        return list(self._info.shape)

    def get_dtype(self) -> str:
        """Returns the tensor's dtype by its name in safetensors, such as "BF16"."""
        return self._info.dtype

    def __getitem__(self, index: Any) -> Any:
        if self._lazy:
            from .lazy import LazyTensor

            return LazyTensor.of(self._model, self._info, self._device)[index]
        info = self._info
        if self._framework == "np":
            index = _safetensors_index(index, info.shape)
        else:
            indexing.check_index(info, index, "pt")
        box, rest = indexing.box_of(info, index, self._framework)
        tensor, view = memory.empty(self._framework, info.dtype, box.sizes)
        memory.ask_huge_pages([tensor])
        self._model.reader().read([Want(box, view=view)], info.name)
        part = indexing.apply(tensor, rest)
        if self._framework == "pt":
            return part.to(self._device) if str(self._device) != "cpu" else part
        import numpy

        return numpy.asarray(part)


def _safetensors_index(index: Any, shape: Tuple[int, ...]) -> Tuple[Any, ...]:
    """Holds an index to what safetensors takes for numpy: integers, slices and one `...`; bounds are not clipped.

    Raises FileError with safetensors' messages, OverflowError for a negative bound as it does.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    if isinstance(index, list):
        if index:
            raise FileError("Non empty lists are not implemented")
        items = [slice(0, 0)]
    if sum(item is Ellipsis for item in items) > 1:
        raise FileError("Only one ellipsis (...) is allowed in slice index")
    if Ellipsis in [item for item in items if item is Ellipsis]:
        at = next(number for number, item in enumerate(items) if item is Ellipsis)
        items[at : at + 1] = [slice(None)] * (len(shape) - (len(items) - 1))
    parsed = [_safetensors_item(item, number, shape) for number, item in enumerate(items)]
    text = ", ".join(shown for shown, _ in parsed)
    if len(parsed) > len(shape):
        raise FileError(f"Error during slicing [{text}] with shape {list(shape)}: more slicing indexes than dimensions "
                        "in tensor")
    for axis in reversed(range(len(parsed))):
        item, size = parsed[axis][1], shape[axis]
        start, stop = (item, item + 1) if isinstance(item, int) else (item.start or 0, item.stop)
        stop = size if stop is None else stop
        if start >= size or stop > size:
            asked = start if start >= size else stop - 1
            fault = f"index {asked} out of bounds for tensor dimension #{axis} of size {size}"
        elif stop < start:
            fault = f"the slice of dimension #{axis} ends before it begins"  # where safetensors 0.8 raises SystemError
        else:
            continue
        raise FileError(f"Error during slicing [{text}] with shape {list(shape)}: {fault}")
    return tuple(item for _, item in parsed)


def _safetensors_item(item: Any, number: int, shape: Tuple[int, ...]) -> Tuple[str, Any]:
    import operator

    if isinstance(item, slice):
        bounds = []
        for bound in (item.start, item.stop):
            value = None if bound is None else operator.index(bound)
            if value is not None and value < 0:
                raise OverflowError("can't convert negative int to unsigned")
            bounds.append(value)
        step = 1 if item.step is None else operator.index(item.step)
        if step < 1:
            raise FileError(f"Slice step must be a positive integer, got {step}")
        start, stop = bounds
        shown = f"{'' if start is None else start}:{'' if stop is None else stop}{'' if step == 1 else f':{step}'}"
        return shown, slice(start, stop, step)
    try:
        value = operator.index(item)
    except TypeError:
        raise FileError(f"Unsupported slice index at position {number}: expected slice, int, or ellipsis") from None
    if value < 0:
        size = shape[number] if number < len(shape) else 0
        if value + size < 0:
            raise FileError(f"Invalid index {value} for dimension {number} of size {size}")
        value += size
    return str(value), value


class PrefetchLoader:
    """Hands out the tensors that `prefetch` reads in the background, each once. A context manager."""

    def __init__(self, model: Model, wanted: Dict[str, Tuple[slice, ...]], device: Any):
        self._changed = threading.Condition()
        self._wanted = wanted
        self._ready: Dict[str, Any] = {}
        self._taken: set = set()
        self._error: Optional[BaseException] = None
        self._closed = False
        self._stop = Stop()
        self._thread = threading.Thread(target=self._read, args=(model, device), name="tensord-prefetch", daemon=True)
        self._thread.start()

    def _read(self, model: Model, device: Any) -> None:
        try:
            for group in _groups(model, self._wanted):
                parts = [(name, self._wanted[name] or None) for name in group]
                tensors = model._read_boxes(parts, None, "pt", self._stop)
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
        """Yields what nobody has taken, as it comes. Raises as `take`."""
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
        """Stops the background read, and drops what was not taken."""
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
    """Cuts a plan into groups that are read at once, so that the first tensors are there while others are read."""
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
