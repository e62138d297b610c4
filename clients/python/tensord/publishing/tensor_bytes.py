"""The bytes of tensors of torch and of arrays of numpy as files have them: little-endian, in C order."""
from __future__ import annotations

import itertools
import sys
from typing import Any, Iterator, Optional, Sequence, Tuple, Union

from ..tensors import dtypes, memory

Index = Tuple[Union[int, slice], ...]


class Tensor:
    """A tensor to be written: its type and shape as files have them, its bytes, and the tensor itself.

    Contiguous memory of the processor is sent as it is. Anything else (another layout or byte order, a GPU) is copied
    in blocks.
    """

    def __init__(self, name: str, value: Any):
        """Raises TypeError or ValueError, with the name, for what is no tensor, or has no bytes or no type of files."""
        self.name, self.value = name, value
        kind = _Torch if hasattr(value, "data_ptr") else _Numpy if hasattr(value, "__array_interface__") else None
        if kind is None or (kind is _Numpy and not hasattr(value, "dtype")):
            raise TypeError(f"{name!r} is of type {type(value).__name__}: it must be a tensor of torch or an array of "
                            "numpy")
        self._own: Union[_Torch, _Numpy] = kind(name, value)
        self.dtype, self.shape = self._own.dtype, self._own.shape
        self.nbytes = dtypes.nbytes_of(self.dtype, self.shape)
        self.is_direct = self._own.is_direct

    @property
    def span(self) -> Optional[Tuple[Any, int, int]]:
        """The memory that the tensor uses: a key of its storage, and the first byte and the end of it; None if there
        are no bytes, or if it cannot be shared."""
        return self._own.span() if self.nbytes else None

    @property
    def is_whole(self) -> bool:
        """Whether the tensor uses all of its storage, in C order."""
        return self._own.is_whole()

    def views(self, first: int, end: int, block_bytes: int) -> Iterator[memoryview]:
        """Returns bytes [first, end) of the tensor; each view is good until the next one is taken.

        Copies take at most `block_bytes`: a reader may hold one block until it has the next one, so that each has half.
        """
        if self.is_direct:
            yield self._own.view()[first:end]
            return
        at = 0
        for index, nbytes in _blocks(self._own.count_shape, self._own.itemsize, block_bytes // 2):
            if at < end and at + nbytes > first:
                view = self._own.copy(index)
                yield view[max(0, first - at) : min(nbytes, end - at)]
            at += nbytes


def _blocks(shape: Sequence[int], itemsize: int, limit: int) -> Iterator[Tuple[Index, int]]:
    """Cuts a box, in C order, into indexes of blocks of at most `limit` bytes (but one element), and their bytes."""
    if 0 in shape:
        return
    row, axis = itemsize, len(shape)
    while axis > 0 and row * shape[axis - 1] <= limit:
        axis -= 1
        row *= shape[axis]
    if axis == 0:
        yield (), row
        return
    axis -= 1
    step = max(1, limit // row)
    for outer in itertools.product(*map(range, shape[:axis])):
        for begin in range(0, shape[axis], step):
            count = min(step, shape[axis] - begin)
            yield (*outer, slice(begin, begin + count)), count * row


class _Torch:
    """A tensor of torch."""

    def __init__(self, name: str, tensor: Any):
        self._tensor: Any = tensor.detach()
        dtype = dtypes.name_of_torch(tensor.dtype)
        if not memory.has_memory(self._tensor):
            what = ("is on the meta device" if tensor.device.type == "meta" else
                    "is sparse: save to_dense() of it" if str(tensor.layout) != "torch.strided" else
                    "is a DTensor: save full_tensor() of it, or the checkpoint by tensord.dcp"
                    if hasattr(tensor, "device_mesh") else f"is a {type(tensor).__name__}, which wraps other tensors")
            raise ValueError(f"{name!r} {what}; it has no bytes of its own")
        if dtype is None or dtype == "C128":
            raise ValueError(f"{name!r} is of type {tensor.dtype}, which safetensors does not have")
        if sys.byteorder != "little":
            raise ValueError(f"{name!r}: tensors of torch are saved on little-endian machines alone")
        self.dtype, self.shape = dtype, dtypes.stored_shape(dtype, tuple(tensor.shape))
        self.count_shape, self.itemsize = tuple(tensor.shape), tensor.element_size()
        self.is_direct = (tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and
                          not tensor.is_neg())

    def view(self) -> memoryview:
        """Returns all bytes, where `is_direct`."""
        return memory.view_of_torch(self._tensor)

    def span(self) -> Optional[Tuple[Any, int, int]]:
        """See Tensor.span."""
        tensor = self._tensor
        storage = tensor.untyped_storage()
        if storage.data_ptr() == 0:
            return None
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        begin: int = tensor.data_ptr()
        return (str(tensor.device), storage.data_ptr(), storage.nbytes()), begin, begin + (last + 1) * self.itemsize

    def is_whole(self) -> bool:
        """See Tensor.is_whole."""
        tensor, storage = self._tensor, self._tensor.untyped_storage()
        return bool(tensor.is_contiguous() and tensor.data_ptr() == storage.data_ptr() and
                    tensor.numel() * self.itemsize == storage.nbytes())

    def copy(self, index: Index) -> memoryview:
        """Copies a block to the processor's memory; from a GPU to pinned memory, which torch uses again."""
        import torch

        block = self._tensor[index]
        if block.device.type == "cuda":
            target = torch.empty(block.shape, dtype=block.dtype, pin_memory=True)
            target.copy_(block)
        else:
            target = block.resolve_conj().resolve_neg().to("cpu").contiguous()
        return memory.view_of_torch(target)


class _Numpy:
    """An array of numpy."""

    def __init__(self, name: str, array: Any):
        self._array = array
        dtype = dtypes.name_of_numpy(array.dtype)
        if dtype is None or dtype == "C128":
            raise ValueError(f"{name!r} is of type {array.dtype}, which safetensors does not have")
        self.dtype, self.shape = dtype, tuple(array.shape)
        self.count_shape, self.itemsize = self.shape, array.itemsize
        self._little = array.dtype.newbyteorder("<")
        self.is_direct = array.flags.c_contiguous and (array.dtype == self._little)

    def view(self) -> memoryview:
        """Returns all bytes, where `is_direct`."""
        import numpy

        if self._array.size == 0:
            return memoryview(b"")
        return memoryview(self._array.reshape(-1).view(numpy.uint8)).cast("B")

    def span(self) -> Optional[Tuple[Any, int, int]]:
        """Returns None: arrays that share memory are written once each."""
        return None

    def is_whole(self) -> bool:
        """Returns True."""
        return True

    def copy(self, index: Index) -> memoryview:
        """Copies a block."""
        import numpy

        block = numpy.ascontiguousarray(self._array[index], self._little)
        return memoryview(block.reshape(-1).view(numpy.uint8)).cast("B")


def wait_for_devices(tensors: Sequence[Tensor]) -> None:
    """Waits for the work that was queued on GPUs, since other threads copy the tensors."""
    devices = {tensor.value.device for tensor in tensors if hasattr(tensor.value, "data_ptr") and
               tensor.value.device.type == "cuda"}
    if devices:
        import torch

        for device in devices:
            torch.cuda.synchronize(device)
