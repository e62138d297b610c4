"""Views of the memory of torch's tensors and numpy's arrays, and tensors of given types."""
from __future__ import annotations

import ctypes
import importlib.util
import sys
from typing import Any, Callable, Dict, Iterable, Optional, Sequence, Tuple

from .. import errors
from . import dtypes, huge_pages
from .boxes import Box
from .reading import Want

FRAMEWORKS = {"pt": "pt", "torch": "pt", "pytorch": "pt", "np": "np", "numpy": "np"}


def framework_of(name: str) -> str:
    """Returns "pt" or "np" for a framework's name. Raises ValueError; ImportError if its package is not installed."""
    found = FRAMEWORKS.get(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"framework {name} is invalid: it is pt or np")
    if sys.byteorder != "little":
        raise errors.TensordError("tensors are little-endian, which this machine is not: read_bytes gives their bytes")
    package, other = ("torch", "np") if found == "pt" else ("numpy", "pt")
    if importlib.util.find_spec(package) is None:
        raise ImportError(f"{package} is not installed: pip install {package}, or framework=\"{other}\"")
    return found


def has_memory(tensor: Any) -> bool:
    """Returns whether the elements of a tensor of torch are in memory, from `data_ptr` on, by shape and strides: false
    on the meta device, and for classes that wrap other tensors (DTensor)."""
    import torch

    wraps = type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    return not wraps and tensor.layout == torch.strided and tensor.device.type != "meta"


def view_of_torch(tensor: Any) -> memoryview:
    """Returns the bytes of a contiguous tensor in the processor's memory. The view keeps the tensor alive."""
    nbytes = tensor.numel() * tensor.element_size()
    if nbytes == 0:
        return memoryview(bytearray())
    array = (ctypes.c_char * nbytes).from_address(tensor.data_ptr())
    array.owner = tensor  # ctypes arrays take attributes; the memory lives as long as the view
    return memoryview(array).cast("B")


def bytes_of_torch(tensor: Any) -> memoryview:
    """Returns the bytes of a tensor of any device and strides, row by row: its own memory, or a copy."""
    return view_of_torch(tensor.detach().to("cpu").contiguous())


def empty(framework: str, dtype: str, shape: Sequence[int]) -> Tuple[Any, memoryview]:
    """Makes an uninitialised tensor ("pt") or array ("np") of a manifest's type and shape, and a view of its bytes.

    Raises TensordError when the framework has no such type.
    """
    if framework == "pt":
        import torch

        tensor = torch.empty(dtypes.torch_shape(dtype, shape), dtype=dtypes.torch_dtype(dtype), device="cpu")
        return tensor, view_of_torch(tensor)
    import numpy

    array: Any = numpy.empty(tuple(shape), dtype=dtypes.numpy_dtype(dtype))
    if array.nbytes == 0:
        return array, memoryview(bytearray())
    flat = array.reshape(-1).view(numpy.uint8)
    return array, memoryview(flat).cast("B")


def ask_huge_pages(tensors: Iterable[Any]) -> None:
    """Asks for huge pages under new torch tensors and numpy arrays, before anything is written to them. One call covers
    all tensors of a load."""
    blocks = []
    for tensor in tensors:
        if not hasattr(tensor, "data_ptr"):
            blocks.append((tensor.ctypes.data, tensor.nbytes))
        elif tensor.device.type == "cpu":
            blocks.append((tensor.data_ptr(), tensor.numel() * tensor.element_size()))
    huge_pages.advise(blocks)


def want_into(tensor: Any, box: Box, dtype: str) -> Want:
    """Returns a Want that reads a box of a manifest's type into a tensor of torch of the box's shape; dimensions of
    size 1 may differ.

    The bytes come straight into the tensor where it is contiguous, of the same type and in the processor's memory; else
    they are copied, converted to the tensor's type, and moved to its device. Raises MismatchError for a tensor that
    takes no bytes.
    """
    import torch

    source = dtypes.torch_dtype(dtype)
    shape = dtypes.torch_shape(dtype, box.sizes)
    if tensor.device.type == "meta":
        raise errors.MismatchError(f"the destination of {box.name} is on the meta device, which has no memory: make "
                                   "it on a device first, a module by to_empty(device=...)")
    if hasattr(tensor, "device_mesh"):
        raise errors.MismatchError(f"the destination of {box.name} is a DTensor: tensord.dcp.TensordReader loads a "
                                   "distributed model; to_local() gives a rank's part")
    if (has_memory(tensor) and tensor.device.type == "cpu" and tensor.is_contiguous() and tensor.dtype == source and
            not tensor.is_conj() and not tensor.is_neg()):
        _tell_autograd(tensor)
        return Want(box, view=view_of_torch(tensor))
    with torch.no_grad():
        target = tensor.detach()
    if target.numel() != _count(shape):
        raise ValueError(f"{box.name}: the destination has shape {tuple(tensor.shape)}, the box {tuple(shape)}")
    return Want(box, copy=_TorchCopy(_with_shape(target, shape), box, source, dtype))


def _tell_autograd(tensor: Any) -> None:
    """Counts a write that torch does not do, so that a gradient that needs the old values is refused."""
    import torch

    count = getattr(torch.autograd.graph, "increment_version", None)  # torch 2.2 has it
    if count is not None and not tensor.is_inference():
        count(tensor)


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _with_shape(target: Any, shape: Sequence[int]) -> Any:
    """Returns a view of the target with dimensions of size 1 added or dropped."""
    if tuple(target.shape) == tuple(shape):
        return target
    squeezed = target.squeeze()
    if [n for n in shape if n != 1] != list(squeezed.shape):
        raise ValueError(f"a box of shape {tuple(shape)} does not fit a tensor of shape {tuple(target.shape)}")
    for axis, size in enumerate(shape):
        if size == 1:
            squeezed = squeezed.unsqueeze(axis)
    return squeezed


class _TorchCopy:
    """Copies pieces of a box into a tensor of the box's shape: converts types, fills gaps, moves to a GPU."""

    def __init__(self, target: Any, box: Box, source: Any, dtype: str):
        self.target, self.box, self.source, self.dtype = target, box, source, dtype
        self.pinned = target.device.type == "cuda"
        self._before = _event_on(target.device) if self.pinned else None  # follows the caller's work on the target

    def __call__(self, memory: memoryview, piece: Box) -> Optional[Callable[[], None]]:
        import torch

        shape = dtypes.torch_shape(self.dtype, piece.sizes)
        start = [a - b for a, b in zip(piece.start, self.box.start)]
        if self.dtype == "F4" and start:
            start[-1] //= 2
        place = self.target[tuple(slice(a, a + n) for a, n in zip(start, shape))]
        with torch.no_grad():
            bytes_ = torch.frombuffer(memory, dtype=torch.uint8)
            if not self.pinned:
                place.copy_(bytes_.view(self.source).view(shape))
                return None
            return _copy_to_gpu(bytes_.view(self.source).view(shape), place, self._before)


_streams: Dict[Any, Any] = {}


def _event_on(device: Any) -> Any:
    """Returns an event that follows the work queued on the caller's stream of a GPU."""
    import torch

    return torch.cuda.current_stream(device).record_event()


def _copy_to_gpu(values: Any, place: Any, before: Any) -> Callable[[], None]:
    """Copies from pinned memory on a stream of its own, after an event and beside the caller's streams. Returns a
    function that waits for the end of the copy."""
    import torch

    stream = _streams.get(place.device)
    if stream is None:
        stream = _streams[place.device] = torch.cuda.Stream(place.device)
    with torch.cuda.stream(stream):
        stream.wait_event(before)
        place.copy_(values, non_blocking=True)
        event = torch.cuda.Event()
        event.record(stream)
    wait: Callable[[], None] = event.synchronize
    return wait
