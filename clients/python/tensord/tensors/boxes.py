"""Boxes: parts of tensors, with a start and a size in each dimension; and the box that an index expression reads."""
from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, Iterator, List, Optional, Sequence, Tuple


@dataclass(frozen=True)
class Box:
    """A part of a tensor: indices [start, start + size) of each dimension. An index never drops a dimension."""

    name: str
    start: Tuple[int, ...]
    sizes: Tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.sizes)

    def slice_text(self, shape: Sequence[int]) -> str:
        """Returns the box as the server's `slice`; "" for all of a tensor of that shape."""
        if all(n == full for n, full in zip(self.sizes, shape)):
            return ""
        return ",".join(":" if n == full else f"{a}:{a + n}" for a, n, full in zip(self.start, self.sizes, shape))


def whole(name: str, shape: Sequence[int]) -> Box:
    """Returns the box of all of a tensor."""
    return Box(name, (0,) * len(shape), tuple(shape))


def pieces_of(box: Box, most: int) -> Iterator[Box]:
    """Cuts a box into boxes of at most `most` elements, in row-major order; each is one run of the box's elements."""
    if box.count <= most:
        yield box
        return
    axis, inner = len(box.sizes) - 1, 1
    while inner * box.sizes[axis] <= most:
        inner *= box.sizes[axis]
        axis -= 1
    step = max(1, most // inner)
    outer = [0] * axis
    while True:
        for at in range(0, box.sizes[axis], step):
            start = [a + i for a, i in zip(box.start, outer)] + [box.start[axis] + at, *box.start[axis + 1 :]]
            sizes = [1] * axis + [min(step, box.sizes[axis] - at), *box.sizes[axis + 1 :]]
            yield Box(box.name, tuple(start), tuple(sizes))
        for k in reversed(range(axis)):
            outer[k] += 1
            if outer[k] < box.sizes[k]:
                break
            outer[k] = 0
        else:
            return


def hull_of(index: Any, shape: Sequence[int]) -> Tuple[Tuple[int, ...], Tuple[int, ...], Tuple[Any, ...]]:
    """Finds the smallest box that an index expression reads, for a tensor of this shape.

    Returns start, sizes, and the index that gives the same result when it is applied to the box. Whatever is not an
    integer, a slice with a positive step, `...`, None or a list, range or array of integers in its place reads all of
    the dimensions from there on, and stays in the index as it is. The index must be valid for the shape.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    start, sizes = [0] * len(shape), list(shape)
    rest: List[Any] = []
    used = sum(_dimensions_of(item) for item in items)
    axis = 0
    for number, item in enumerate(items):
        if item is Ellipsis:
            later = items[number + 1 :]
            if not all(_takes_known(one) for one in later):
                rest += items[number:]
                break
            rest.append(item)
            axis = len(shape) - sum(_dimensions_of(one) for one in later)
            continue
        if item is None:
            rest.append(item)
            continue
        part = _part_of(item, shape[axis]) if axis < len(shape) and used <= len(shape) else None
        if part is None:
            rest += items[number:]
            break
        start[axis], sizes[axis], kept = part
        rest.append(kept)
        axis += 1
    return tuple(start), tuple(sizes), tuple(rest)


def _dimensions_of(item: Any) -> int:
    """Returns how many dimensions an item of an index takes; 1 for an unknown item, which ends the decoding."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return 1


def _takes_known(item: Any) -> bool:
    """Returns whether an item of an index is known to take one dimension or none."""
    if item is None or isinstance(item, (slice, range)):
        return True
    if isinstance(item, list):
        return all(type(one) is int for one in item)
    if isinstance(item, bool) or str(getattr(item, "dtype", "")).endswith("bool"):
        return False
    return hasattr(item, "__index__") or hasattr(item, "ndim")


def _part_of(item: Any, size: int) -> Optional[Tuple[int, int, Any]]:
    """Returns start and size of one item in a dimension of that size, and the index that remains to be applied;
    None: read the dimension whole."""
    if isinstance(item, slice):
        try:
            begin, end, step = item.indices(size)
        except (TypeError, ValueError):
            return None
        if step <= 0:
            return None
        if end <= begin:
            return min(begin, size), 0, slice(None)
        last = begin + (end - begin - 1) // step * step
        return begin, last + 1 - begin, slice(None, None, step)
    if isinstance(item, bool):
        return None
    if isinstance(item, (list, range)) and len(item) > 0 and all(type(one) is int for one in item):
        numbers = [one + size if one < 0 else one for one in item]
        if min(numbers) < 0 or max(numbers) >= size:
            return None
        return min(numbers), max(numbers) + 1 - min(numbers), [one - min(numbers) for one in numbers]
    if getattr(item, "ndim", 0) != 0 or str(getattr(item, "dtype", "")).endswith("bool"):
        return None
    try:
        number = operator.index(item)
    except TypeError:
        return None
    if not -size <= number < size:
        return None
    return number % size, 1, 0
