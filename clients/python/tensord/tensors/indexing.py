"""Divides an index of torch or numpy into a box to read from a server, and an index to apply to the box."""
from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

from . import boxes, dtypes
from .boxes import Box
from .manifest import TensorInfo


def check_index(info: TensorInfo, index: Any, framework: str) -> Optional[Tuple[int, ...]]:
    """Returns the shape of an indexed tensor; None if it depends on more than shapes.

    Raises the errors of torch, or numpy, for such an index.
    """
    if framework == "np":
        import numpy

        return tuple(numpy.broadcast_to(numpy.empty((), dtype=numpy.uint8), info.shape)[index].shape)
    import torch

    stand_in = torch.empty(dtypes.torch_shape(info.dtype, info.shape), dtype=torch.uint8, device="meta")
    try:
        return tuple(stand_in[index].shape)
    except NotImplementedError:  # a mask: its result's shape depends on its values
        return None


def box_of(info: TensorInfo, index: Any, framework: str) -> Tuple[Box, Tuple[Any, ...]]:
    """Returns the smallest box that an index of a framework's tensor reads, and the index to apply to the box.
    The index must be valid."""
    packed = info.dtype == "F4" and framework == "pt" and len(info.shape) > 0  # torch counts pairs
    start, sizes, rest = boxes.hull_of(index, dtypes.torch_shape(info.dtype, info.shape) if packed else info.shape)
    if packed:
        start, sizes = (*start[:-1], 2 * start[-1]), (*sizes[:-1], 2 * sizes[-1])
    return Box(info.name, start, sizes), rest


def _unpacked(tensor: Any) -> Any:
    """Returns a tensor of torch; packed pairs, for which torch has few operations, as bytes."""
    return tensor.view(dtypes.torch_dtype("U8")) if "float4" in str(tensor.dtype) else tensor


def apply(tensor: Any, rest: Tuple[Any, ...]) -> Any:
    """Applies the index that `box_of` returns to a tensor or an array of the box."""
    return _unpacked(tensor)[rest].view(tensor.dtype) if rest else tensor


def copy(part: Any, target: Any) -> Any:
    """Copies a tensor of torch into another one, and returns that."""
    _unpacked(target).copy_(_unpacked(part))
    return target


def is_plain(rest: Sequence[Any]) -> bool:
    """Returns whether an index over a box leaves all of its elements in their order."""
    return all(_is_plain_item(item) for item in rest)


def _is_plain_item(item: Any) -> bool:
    if item is None or item is Ellipsis:
        return True
    if isinstance(item, slice):
        return item.step in (None, 1)
    return type(item) is int
