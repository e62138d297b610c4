"""`RemoteSlice`: a tensor on a server that is read in parts, by an index."""
from __future__ import annotations

import operator
from typing import Any, Callable, List, Tuple

from ..errors import FileError
from . import indexing, memory
from .manifest import TensorInfo
from .reading import Reader, Want


class RemoteSlice:
    """A slice view of a tensor on a server: `get_shape()`, `get_dtype()`, `view[index]`. The index may be whatever the
    framework's tensors take; the server sends the smallest box that it needs.

    `reader`: a function that returns a Reader of the tensor, such as `Model.reader`; called for each index."""

    def __init__(self, reader: Callable[[], Reader], info: TensorInfo, framework: str, device: Any = "cpu"):
        self._reader, self._info, self._framework, self._device = reader, info, framework, device

    def __repr__(self) -> str:
        return f"<tensord.RemoteSlice {self._info.name} {self._info.dtype} {list(self._info.shape)}>"

    def get_shape(self) -> List[int]:
        """Returns the tensor's shape, in elements of its dtype."""
        return list(self._info.shape)

    def get_dtype(self) -> str:
        """Returns the tensor's dtype by its name in safetensors, such as "BF16"."""
        return self._info.dtype

    def __getitem__(self, index: Any) -> Any:
        info = self._info
        if self._framework == "np":
            index = _safetensors_index(index, info.shape)
        else:
            indexing.check_index(info, index, "pt")
        box, rest = indexing.box_of(info, index, self._framework)
        tensor, view = memory.empty(self._framework, info.dtype, box.sizes)
        memory.ask_huge_pages([tensor])
        self._reader().read([Want(box, view=view)], info.name)
        part = indexing.apply(tensor, rest)
        if self._framework == "pt":
            return part.to(self._device) if str(self._device) != "cpu" else part
        import numpy

        return numpy.asarray(part)


def _safetensors_index(index: Any, shape: Tuple[int, ...]) -> Tuple[Any, ...]:
    """Checks that safetensors takes an index for numpy: integers, slices and one `...`; bounds are not clipped.

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
        first, end = ("" if bound is None else bound for bound in bounds)
        shown = f"{first}:{end}{'' if step == 1 else f':{step}'}"
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
