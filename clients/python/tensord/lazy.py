"""Lazy tensors: tensors with shape and dtype that read their bytes when a program copies from them.

An engine's own `load_weights` narrows a tensor to its rank's part and copies that into a parameter. A LazyTensor
records the narrowing (`narrow`, `chunk`, `split`, indexing, `unsqueeze`, `squeeze`, `transpose`, ...), and `copy_`
reads just the remaining box. Every other operation reads the tensor, logs this once, and continues with ordinary
tensors: slower, never wrong. If it may write to the tensor or return a view of it, the whole source is read once, and
all parts of the source, old and new, are views of these bytes from then on.

A write to a tensor on the meta device takes place there, for programs that count elements, and reads nothing. Within
`noted()` the boxes that are used are collected, so that a program can read all of them before it copies them.

Within `deferred(model)` copies are collected and read together, over several connections, when there are enough of
them, at the end, and before any other operation touches a tensor that waits for its bytes.
"""
from __future__ import annotations

import bisect
import contextlib
import logging
import math
import threading
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from .lock import ForkSafeLock
from .tensors import dtypes, memory
from .tensors.boxes import Box, whole
from .tensors.manifest import TensorInfo
from .tensors.model import Model

log = logging.getLogger("tensord")

DEFERRED_BYTES = 1024 * 1024 * 1024  # of copies that wait to be read together
DEFERRED_COPIES = 20000


class _Cut(NamedTuple):
    """The part of the source that a lazy tensor covers: a box, and the order of its dimensions.

    `axes[k]` are the source's dimensions that form dimension k: one, or neighbours that were joined, where all but the
    first are whole; () for a dimension of size 1 that the source does not have. Dimensions of the source in no tuple
    have size 1 in the box.
    """

    start: Tuple[int, ...]
    sizes: Tuple[int, ...]
    axes: Tuple[Tuple[int, ...], ...]

    @property
    def shape(self) -> Tuple[int, ...]:
        sizes = self.sizes
        return tuple([sizes[axes[0]] if len(axes) == 1 else math.prod([sizes[axis] for axis in axes])
                      for axes in self.axes])

    @property
    def named(self) -> List[int]:
        """The source's dimensions in the order of the cut's."""
        return [axis for axes in self.axes for axis in axes]

    def narrow(self, dim: int, start: int, length: int) -> "Optional[_Cut]":
        """Returns a part of a dimension; None if the part is not a box."""
        axes = self.axes[dim]
        if not axes:
            return self if length == 1 else None
        axis, *joined = axes
        if joined:
            inner = math.prod([self.sizes[one] for one in joined])
            if inner == 0 or start % inner or length % inner:
                return None
            start, length = start // inner, length // inner
        starts, sizes = list(self.start), list(self.sizes)
        starts[axis] += start
        sizes[axis] = length
        return self._replace(start=tuple(starts), sizes=tuple(sizes))

    def without(self, dim: int) -> "_Cut":
        return self._replace(axes=self.axes[:dim] + self.axes[dim + 1 :])

    def with_one(self, dim: int) -> "_Cut":
        return self._replace(axes=(*self.axes[:dim], (), *self.axes[dim:]))


class _Source:
    """The memory that lazy tensors of one source share, once it is needed: a box of a tensor on the server."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.made: Optional[torch.Tensor] = None
        self.lock = ForkSafeLock()

    def layout_of(self, cut: _Cut) -> Tuple[Tuple[int, ...], int]:
        """Returns the strides and the storage offset that a cut has in this memory, in elements."""
        own, step = [], 1
        for size in reversed(self.box.sizes):
            own.append(step)
            step *= max(size, 1)
        own.reverse()
        shape = cut.shape
        strides: List[int] = []
        for dim in reversed(range(len(shape))):
            axes = cut.axes[dim]
            after = shape[dim + 1] * strides[-1] if dim + 1 < len(shape) else 1
            strides.append(own[axes[-1]] if axes else after)
        return tuple(reversed(strides)), sum((a - b) * n for a, b, n in zip(cut.start, self.box.start, own))


class LazyTensor(torch.Tensor):
    """A tensor of a model on a server, or a part of one. Made by `safe_open(lazy=True)`. Its storage is nowhere; its
    device is the one to which it would be read."""

    @staticmethod
    def of(model: Model, info: TensorInfo, device: Any = "cpu") -> "LazyTensor":
        """Returns a lazy tensor of all of a tensor. Raises TensordError when torch lacks the type."""
        shape = tuple(info.shape)
        cut = _Cut((0,) * len(shape), shape, tuple((axis,) for axis in range(len(shape))))
        return LazyTensor(model, info, cut, device, _Source(whole(info.name, shape)))

    @staticmethod
    def __new__(cls, model: Model, info: TensorInfo, cut: _Cut, device: Any, source: _Source) -> Any:
        shape = dtypes.torch_shape(info.dtype, cut.shape)
        strides, offset = (None, None) if info.dtype == "F4" else source.layout_of(cut)
        return torch.Tensor._make_wrapper_subclass(cls, shape, strides, offset, dtype=dtypes.torch_dtype(info.dtype),
                                                   device=torch.device(device), requires_grad=False)

    def __init__(self, model: Model, info: TensorInfo, cut: _Cut, device: Any, source: _Source):
        super().__init__()
        self._model, self._info, self._cut, self._device, self._source = model, info, cut, device, source

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"LazyTensor({self._info.name!r}, shape={tuple(self.shape)}, dtype={self.dtype})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Reads the bytes, so that the saved tensor does not need the server and holds no token."""
        return self.materialize().clone().__reduce_ex__(protocol)

    def __copy__(self) -> "LazyTensor":
        return self._with(self._cut)

    def materialize(self) -> torch.Tensor:
        """Returns the tensor as an ordinary one: read now, or as a view of its source if the source was read."""
        cut, made = self._cut, self._source.made
        if made is None:
            return _arranged(self._fetch(self._box()), cut)
        base = self._source.box.start
        return _arranged(made[tuple(slice(a - b, a - b + n) for a, b, n in zip(cut.start, base, cut.sizes))], cut)

    def _view(self) -> torch.Tensor:
        """Returns a view of the source's memory, which is read whole if it was not."""
        with self._source.lock:
            if self._source.made is None:
                self._source.made = self._fetch(self._source.box)
        return self.materialize()

    def _fetch(self, box: Box) -> torch.Tensor:
        """Returns a box of the source as a new tensor. Reads nothing for the meta device."""
        _note(self._model, box)
        made = torch.empty(dtypes.torch_shape(self._info.dtype, box.sizes), dtype=dtypes.torch_dtype(self._info.dtype),
                           device=self._device)
        if made.device.type == "meta":
            return made
        memory.ask_huge_pages([made])
        self._model.reader().read([memory.want_into(made, box, self._info.dtype)], self._info.name)
        return made

    def _on_meta(self) -> torch.Tensor:
        """Returns a tensor of this shape, layout and type on the meta device. Reads nothing."""
        _note(self._model, self._box())
        with torch._C.DisableTorchFunctionSubclass():
            return torch.empty_strided(tuple(self.shape), self.stride(), dtype=self.dtype, device="meta")

    def _box(self) -> Box:
        return Box(self._info.name, self._cut.start, self._cut.sizes)

    def _with(self, cut: _Cut) -> "LazyTensor":
        return LazyTensor(self._model, self._info, cut, self._device, self._source)

    # ---- called by torch

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recorded = _RECORDED.get(func)
        if recorded is not None and isinstance(args[0] if args else None, LazyTensor) and args[0]._info.dtype != "F4":
            try:
                result = recorded(*args, **kwargs)
            except (_NotRecorded, TypeError):  # TypeError: arguments by names, or of kinds, that are not recorded
                result = NotImplemented
            if result is not NotImplemented:
                return result
        if func in _COPIES and len(args) > 1 and isinstance(args[1], LazyTensor) \
                and not isinstance(args[0], LazyTensor) and _copy(args[0], args[1]):
            return args[0]
        if func in _RESHAPES_ITSELF:
            raise TypeError(f"a lazy tensor cannot change its own shape or storage ({_name_of(func)}): use its "
                            "materialize()")
        if func in _ATTRIBUTES:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        return _read_first(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _read_first(func, args, kwargs or {})


class _NotRecorded(Exception):
    """An operation that no cut stands for."""


_told: Set[Any] = set()
_told_lock = ForkSafeLock()


def _read_first(func: Any, args: Any, kwargs: Any) -> Any:
    """Reads the lazy tensors among the arguments, and calls the function with ordinary ones."""
    leaves = tree_flatten((args, kwargs))[0]
    lazy = [one for one in leaves if isinstance(one, LazyTensor)]
    pending = _pending()
    if pending is not None and any(type(one) is not LazyTensor and isinstance(one, torch.Tensor) and
                                   pending.touches(one) for one in leaves):
        pending.flush()
    name = _name_of(func)
    written = tree_flatten(args[:1] or kwargs.get("input"))[0] if _is_in_place(name) else ()
    if _needs_no_bytes(func, name, args, kwargs, written):
        return _with_replaced(func, args, kwargs, {id(one): one._on_meta() for one in lazy})
    with _told_lock:
        is_new = name not in _told
        _told.add(name)
    if is_new and lazy:
        log.warning("%s is not recorded by lazy tensors: %s is read whole (%s); said once for each operation", name,
                    lazy[0]._info.name, list(lazy[0]._info.shape))
    writes_elsewhere = len(written) > 0 and not any(isinstance(one, LazyTensor) for one in written)
    is_read_only = (func in _FRESH or writes_elsewhere) and kwargs.get("out") is None
    return _with_replaced(func, args, kwargs, {id(one): one.materialize() if is_read_only else one._view()
                                               for one in lazy})


def _with_replaced(func: Any, args: Any, kwargs: Any, plain: Dict[int, torch.Tensor]) -> Any:
    """Calls a function with ordinary tensors in place of lazy ones. `plain`: the ordinary one by the lazy one's id."""

    def swap(one: Any) -> Any:
        return plain[id(one)] if isinstance(one, LazyTensor) else one

    return func(*tree_map(swap, args), **tree_map(swap, kwargs))


def _needs_no_bytes(func: Any, name: str, args: Any, kwargs: Any, written: Sequence[Any]) -> bool:
    """Returns whether an operation writes to tensors on the meta device alone, or moves a lazy tensor to it. `written`:
    the tensors to which an operation in place writes."""
    if written:
        index = args[1:2] if name == "__setitem__" else ()  # masks need their bytes
        return (all(_is_on_meta(one) for one in written) and
                not any(isinstance(one, LazyTensor) for one in tree_flatten(index)[0]))
    return func is _T.to and any(_is_on_meta(one) for one in tree_flatten((args[1:], kwargs))[0])


def _is_on_meta(one: Any) -> bool:
    """Returns whether a tensor is on the meta device, or an argument names it."""
    if isinstance(one, torch.Tensor):
        return bool(one.is_meta)
    return isinstance(one, (str, torch.device)) and torch.device(one).type == "meta"


def _name_of(func: Any) -> str:
    """Returns the name of a function of torch; the name of the attribute for a getter or setter."""
    func = getattr(func, "overloadpacket", func)  # copy_ for aten.copy_.default
    name = getattr(func, "__name__", str(func))
    return getattr(getattr(func, "__self__", None), "__name__", name) if name in ("__get__", "__set__") else name


def _is_in_place(name: str) -> bool:
    """Returns whether a function writes to its first argument and to no other."""
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def _arranged(made: torch.Tensor, cut: _Cut) -> torch.Tensor:
    """Returns a view of a tensor of the box's sizes in the order of the cut's dimensions."""
    named = cut.named
    dropped = [axis for axis in range(made.dim()) if axis not in named]
    view = made.permute(*named, *dropped) if made.dim() else made
    for _ in dropped:
        view = view.squeeze(-1)
    for dim, axes in enumerate(cut.axes):
        if not axes:
            view = view.unsqueeze(dim)
        elif len(axes) > 1:
            view = view.flatten(dim, dim + len(axes) - 1)
    return view


# ---- recorded operations: with the parameters of torch's; each returns a lazy tensor or NotImplemented


def _dim(tensor: LazyTensor, dim: int, extra: int = 0) -> int:
    count = len(tensor._cut.axes) + extra
    if not isinstance(dim, int) or not -count <= dim < count:
        raise _NotRecorded  # torch raises its own error
    return dim % count


def _narrow(tensor: LazyTensor, dim: int, start: Any, length: int) -> Any:
    dim = _dim(tensor, dim)
    size = tensor._cut.shape[dim]
    start = int(start)
    if start < 0:
        start += size
    if not 0 <= start <= size or length < 0 or start + length > size:
        raise _NotRecorded
    cut = tensor._cut.narrow(dim, start, int(length))
    return NotImplemented if cut is None else tensor._with(cut)


def _split(tensor: LazyTensor, split_size_or_sections: Any, dim: int = 0) -> Any:
    dim = _dim(tensor, dim)
    size = tensor._cut.shape[dim]
    if isinstance(split_size_or_sections, int):
        step = split_size_or_sections
        if step < 1:
            raise _NotRecorded
        sections = [min(step, size - at) for at in range(0, size, step)] or [0]
    else:
        sections = [int(one) for one in split_size_or_sections]
        if sum(sections) != size or min(sections, default=0) < 0:
            raise _NotRecorded
    return _cut_up(tensor, dim, sections)


def _chunk(tensor: LazyTensor, chunks: int, dim: int = 0) -> Any:
    dim = _dim(tensor, dim)
    size = tensor._cut.shape[dim]
    if chunks < 1:
        raise _NotRecorded
    step = -(-size // chunks)
    if step == 0:
        return _cut_up(tensor, dim, [0] * chunks)
    return _cut_up(tensor, dim, [min(step, size - at) for at in range(0, size, step)])


def _tensor_split(tensor: LazyTensor, indices_or_sections: Any, dim: int = 0) -> Any:
    dim = _dim(tensor, dim)
    size = tensor._cut.shape[dim]
    if not isinstance(indices_or_sections, int) or indices_or_sections < 1:
        raise _NotRecorded
    small, larger = divmod(size, indices_or_sections)
    return _cut_up(tensor, dim, [small + (number < larger) for number in range(indices_or_sections)])


def _cut_up(tensor: LazyTensor, dim: int, sections: Sequence[int]) -> Any:
    """Returns the parts of a dimension; `sections` are their sizes, which add up to the dimension's."""
    parts, at = [], 0
    for section in sections:
        cut = tensor._cut.narrow(dim, at, section)
        if cut is None:
            return NotImplemented
        parts.append(tensor._with(cut))
        at += section
    return tuple(parts)


def _select(tensor: LazyTensor, dim: int, index: int) -> Any:
    dim = _dim(tensor, dim)
    size = tensor._cut.shape[dim]
    if not -size <= index < size:
        raise _NotRecorded
    cut = tensor._cut.narrow(dim, index % size, 1)
    return NotImplemented if cut is None else tensor._with(cut.without(dim))


def _unbind(tensor: LazyTensor, dim: int = 0) -> Any:
    dim = _dim(tensor, dim)
    parts = tuple(_select(tensor, dim, number) for number in range(tensor._cut.shape[dim]))
    return NotImplemented if any(part is NotImplemented for part in parts) else parts


def _unsqueeze(tensor: LazyTensor, dim: int) -> Any:
    return tensor._with(tensor._cut.with_one(_dim(tensor, dim, 1)))


def _squeeze(tensor: LazyTensor, dim: Any = None) -> Any:
    shape = tensor._cut.shape
    given = dim if isinstance(dim, tuple) else (dim,)
    dims = range(len(shape)) if dim is None else [_dim(tensor, one) for one in given]
    cut = tensor._cut
    for one in sorted(set(dims), reverse=True):
        if shape[one] == 1:
            cut = cut.without(one)
    return tensor._with(cut)


def _transpose(tensor: LazyTensor, dim0: int, dim1: int) -> Any:
    axes = list(tensor._cut.axes)
    a, b = _dim(tensor, dim0), _dim(tensor, dim1)
    axes[a], axes[b] = axes[b], axes[a]
    return tensor._with(tensor._cut._replace(axes=tuple(axes)))


def _t(tensor: LazyTensor) -> Any:
    count = len(tensor._cut.axes)
    return tensor if count < 2 else _transpose(tensor, 0, 1) if count == 2 else NotImplemented


def _permute(tensor: LazyTensor, *dims: Any) -> Any:
    order = [_dim(tensor, dim) for dim in (dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims)]
    if sorted(order) != list(range(len(tensor._cut.axes))):
        raise _NotRecorded
    return tensor._with(tensor._cut._replace(axes=tuple(tensor._cut.axes[dim] for dim in order)))


def _reshape(tensor: LazyTensor, *shape: Any, **named: Any) -> Any:
    """Records a reshape that adds or drops dimensions of size 1, or joins neighbours with adjacent elements."""
    wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list, torch.Size)) else shape
    if named or not all(isinstance(one, int) for one in wanted):
        raise _NotRecorded
    cut, now = tensor._cut, tensor._cut.shape
    known = math.prod(one for one in wanted if one != -1)
    if list(wanted).count(-1) == 1 and known > 0 and math.prod(now) % known == 0:
        wanted = [math.prod(now) // known if one == -1 else one for one in wanted]
    if 0 in now or math.prod(wanted) != math.prod(now):
        raise _NotRecorded
    left = [axes for axes, size in zip(cut.axes, now) if size != 1]
    made = []
    for size in wanted:
        axes: Tuple[int, ...] = ()
        while size != 1 and math.prod([cut.sizes[axis] for axis in axes]) < size:
            axes += left.pop(0)
        if math.prod([cut.sizes[axis] for axis in axes]) != size:
            raise _NotRecorded
        made.append(_joined(axes, tensor))
    return tensor._with(cut._replace(axes=tuple(made)))


def _joined(axes: Tuple[int, ...], tensor: LazyTensor) -> Tuple[int, ...]:
    """Returns the axes of a joined dimension. Raises _NotRecorded if their elements are not adjacent."""
    axes = tuple(axis for axis in axes if tensor._cut.sizes[axis] != 1)
    for before, axis in zip(axes, axes[1:]):
        full = tensor._source.box.sizes
        if axis <= before or math.prod(full[before + 1 : axis]) != 1 or tensor._cut.sizes[axis] != full[axis]:
            raise _NotRecorded
    return axes


def _flatten(tensor: LazyTensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    first, last = _dim(tensor, start_dim), _dim(tensor, end_dim)
    shape = tensor._cut.shape
    if first > last:
        raise _NotRecorded
    return _reshape(tensor, *shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])


def _getitem(tensor: LazyTensor, index: Any) -> Any:
    """Records integers, slices with step 1, `...` and None."""
    items = list(index) if isinstance(index, tuple) else [index]
    for item in items:
        if not (item is None or item is Ellipsis or (isinstance(item, int) and not isinstance(item, bool)) or
                (isinstance(item, slice) and item.step in (None, 1))):
            raise _NotRecorded
    if sum(item is Ellipsis for item in items) > 1:
        raise _NotRecorded
    taken = sum(item is not None and item is not Ellipsis for item in items)
    if taken > len(tensor._cut.axes):
        raise _NotRecorded
    result, dim = tensor, 0
    for item in items:
        if item is Ellipsis:
            dim += len(tensor._cut.axes) - taken
        elif item is None:
            result = _unsqueeze(result, dim)
            dim += 1
        elif isinstance(item, int):
            result = _select(result, dim, item)
        else:
            begin, end, _ = item.indices(result._cut.shape[dim])
            result = _narrow(result, dim, begin, max(0, end - begin))
            dim += 1
        if result is NotImplemented:
            return result
    return result


def _same(tensor: LazyTensor, *args: Any, **kwargs: Any) -> Any:
    return tensor


def _to(tensor: LazyTensor, *args: Any, **kwargs: Any) -> Any:
    """Records a move to the device and the dtype that the tensor has already."""
    with torch._C.DisableTorchFunctionSubclass():
        device, dtype = tensor.device, tensor.dtype
        given = [one for one in (*args, *(v for k, v in kwargs.items() if k in ("device", "dtype", "other")))
                 if one is not None]
        given = [part for one in given
                 for part in ((one.device, one.dtype) if isinstance(one, torch.Tensor) else (one,))]
    if sum(isinstance(one, bool) for one in args) > 1 and args[-1]:
        raise _NotRecorded  # copy=True by its position
    for one in given:
        if isinstance(one, torch.dtype):
            if one != dtype:
                raise _NotRecorded
        elif isinstance(one, (str, torch.device)):
            if torch.device(one) != device:
                raise _NotRecorded
        elif not isinstance(one, bool):
            raise _NotRecorded
    return tensor if given and not kwargs.get("copy") else NotImplemented


def _contiguous(tensor: LazyTensor, *args: Any, **kwargs: Any) -> Any:
    """Records a copy as a new source, which later writes to this tensor do not change."""
    cut = tensor._cut
    if args or kwargs or tensor._source.made is not None:
        return NotImplemented
    if tensor.is_contiguous():
        return tensor
    if cut.named != sorted(cut.named):
        return tensor.materialize().contiguous()
    source = _Source(Box(tensor._info.name, cut.start, cut.sizes))
    return LazyTensor(tensor._model, tensor._info, cut, tensor._device, source)


# An operation that is new to these tables: into _RECORDED if a box can stand for its result; into _FRESH
# if its result never shares memory with its argument; into _ATTRIBUTES if it looks at no bytes; into _VIEWS if it
# returns a view of an ordinary tensor whatever its arguments. Operations in none of them read, which is always right.
_T = torch.Tensor
_RECORDED: Dict[Any, Callable[..., Any]] = {
    _T.narrow: _narrow, torch.narrow: _narrow, _T.split: _split, torch.split: _split, _T.chunk: _chunk,
    torch.chunk: _chunk, _T.tensor_split: _tensor_split, torch.tensor_split: _tensor_split, _T.select: _select,
    torch.select: _select, _T.unbind: _unbind, torch.unbind: _unbind, _T.unsqueeze: _unsqueeze,
    torch.unsqueeze: _unsqueeze, _T.squeeze: _squeeze, torch.squeeze: _squeeze, _T.transpose: _transpose,
    torch.transpose: _transpose, _T.t: _t, torch.t: _t, _T.permute: _permute, torch.permute: _permute,
    _T.reshape: _reshape, torch.reshape: _reshape, _T.view: _reshape, _T.flatten: _flatten, torch.flatten: _flatten,
    _T.__getitem__: _getitem, _T.detach: _same, _T.detach_: _same, _T.to: _to,
    _T.cpu: lambda tensor: _to(tensor, "cpu"),
    _T.float: lambda tensor: _to(tensor, torch.float32), _T.half: lambda tensor: _to(tensor, torch.float16),
    _T.bfloat16: lambda tensor: _to(tensor, torch.bfloat16), _T.double: lambda tensor: _to(tensor, torch.float64),
    _T.contiguous: _contiguous, _T.data.__get__: _same,
    _T.requires_grad_: lambda tensor, on=True: NotImplemented if on else tensor,
}
_RECORDED[_T.T.__get__] = _t
_RECORDED[_T.mT.__get__] = lambda tensor: _transpose(tensor, -2, -1)
_COPIES = {_T.copy_}
_FRESH = {  # functions that return new memory: to and others if not recorded, arithmetic, comparisons
    getattr(place, name)
    for name in ("to float half bfloat16 double clone item tolist add sub mul div neg abs sum mean amax amin "
                 "max min matmul mm bmm cat concat stack equal allclose eq ne lt le gt ge isnan isinf isfinite "
                 "any all where gather index_select norm exp log sqrt rsqrt reciprocal pow square clamp round "
                 "floor ceil sigmoid nonzero count_nonzero argmax argmin sort cumsum repeat flip roll __add__ "
                 "__radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __neg__ __float__ __int__ __bool__ "
                 "__index__ __eq__ __ne__ __deepcopy__").split()
    for place in (_T, torch) if hasattr(place, name)
}
_RESHAPES_ITSELF = {
    getattr(_T, name)
    for name in ("unsqueeze_ squeeze_ t_ transpose_ swapaxes_ swapdims_ resize_ resize_as_ as_strided_ set_ "
                 "rename_").split()
    if hasattr(_T, name)
} | {_T.data.__set__}
_ATTRIBUTES = {
    getattr(_T, name).__get__
    for name in ("shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_leaf", "is_cuda", "is_cpu",
                 "is_meta", "is_sparse", "is_quantized", "is_nested", "is_mps", "is_xpu", "itemsize", "nbytes", "grad",
                 "grad_fn", "names", "is_mkldnn", "is_vulkan", "is_ipu", "is_maia", "is_mtia", "is_sparse_csr",
                 "is_xla")
    if hasattr(getattr(_T, name, None), "__get__")
} | {_T.size, _T.dim, _T.numel, _T.nelement, _T.stride, _T.ndimension, _T.element_size, _T.is_floating_point,
     _T.is_complex, _T.is_signed, _T.is_contiguous, torch.numel, torch.is_floating_point, torch.is_complex, _T.__len__,
     _T.__hash__, _T.is_inference, _T.storage_offset, _T.is_shared}


# ---- copying


def _copy(target: torch.Tensor, source: LazyTensor) -> bool:
    """Reads a lazy tensor into a tensor, now or with others later. Returns False where torch has to do it."""
    if type(target) not in (torch.Tensor, torch.nn.Parameter) and not isinstance(target, torch.nn.Parameter):
        return False
    if target.requires_grad and torch.is_grad_enabled():
        return False  # torch refuses, or records it
    with torch._C.DisableTorchFunctionSubclass():
        target = target.detach()
        if tuple(target.shape) != source._cut.shape or source._info.dtype == "F4" or not memory.has_memory(target):
            return False
        if source._source.made is not None:
            return False  # it may have been written to
        place = _placed(target, source._cut)
    pending = _pending()
    box = source._box()
    _note(source._model, box)
    if pending is not None and pending.model is source._model:
        pending.add(target, place, box, source._info)
        return True
    if pending is not None and pending.touches(target):
        pending.flush()  # this copy comes later
    source._model.reader().read([memory.want_into(place, box, source._info.dtype)], source._info.name)
    return True


def _placed(target: torch.Tensor, cut: _Cut) -> torch.Tensor:
    """Returns a view of the target with the dimensions of the box, in the source's order."""
    for dim in reversed(range(len(cut.axes))):
        axes = cut.axes[dim]
        if not axes:
            target = target.squeeze(dim)
        elif len(axes) > 1:
            target = target.unflatten(dim, [cut.sizes[axis] for axis in axes])
    named = cut.named
    target = target.permute(*sorted(range(len(named)), key=lambda k: named[k])) if named else target
    for axis in range(len(cut.sizes)):
        if axis not in named:
            target = target.unsqueeze(axis)
    return target


def weights_of(model: Model) -> Iterator[Tuple[str, LazyTensor]]:
    """Yields the tensors of a model by name, for an engine's `load_weights`.

    Raises TensordError for a tensor that the server does not serve."""
    manifest = model.manifest()
    for name in manifest.tensors:
        yield name, LazyTensor.of(model, manifest.served(name))


@contextlib.contextmanager
def noted(model: Model) -> Iterator[Dict[Box, None]]:
    """Collects the boxes of a model that operations of this thread use: those that they read, and those that they would
    read if the tensors to which they write were not on the meta device. Yields the collection, in the order of the
    first use. Another call within belongs to the outer one.
    """
    notes = getattr(_deferring, "notes", None)
    if notes is not None and notes[0] is model:
        yield notes[1]
        return
    boxes: Dict[Box, None] = {}
    _deferring.notes = model, boxes
    try:
        yield boxes
    finally:
        _deferring.notes = notes


def _note(model: Model, box: Box) -> None:
    notes = getattr(_deferring, "notes", None)
    if notes is not None and notes[0] is model:
        notes[1][box] = None


# ---- copies that are read together

_deferring = threading.local()


def _pending() -> Optional["_Pending"]:
    return getattr(_deferring, "pending", None)


class _Pending:
    """Copies that wait to be read, and the memory that waits for them.

    They are not read while others are recorded: two threads that take turns at Python's lock were slower.
    """

    def __init__(self, model: Model):
        self.model = model
        self._copies: List[Tuple[torch.Tensor, Box, TensorInfo]] = []
        self._nbytes = 0
        self._waiting: Dict[torch.device, _Spans] = {}
        self._error: Optional[BaseException] = None

    def add(self, target: torch.Tensor, place: torch.Tensor, box: Box, info: TensorInfo) -> None:
        self.check()
        begin, end = _span(target)
        if target.device in self._waiting and self._waiting[target.device].overlap(begin, end):
            self.flush()  # a later copy into the same memory has to come later
        self._waiting.setdefault(target.device, _Spans()).add(begin, end)
        self._copies.append((place, box, info))
        self._nbytes += dtypes.nbytes_of(info.dtype, box.sizes)
        if self._nbytes >= DEFERRED_BYTES or len(self._copies) >= DEFERRED_COPIES:
            self.flush()

    def touches(self, tensor: torch.Tensor) -> bool:
        """Returns whether the tensor's storage holds memory that waits; True where that cannot be known."""
        if not self._waiting or tensor.device.type == "meta":
            return False
        if not memory.has_memory(tensor):  # a DTensor's parts may wait
            return True
        try:
            storage = tensor.untyped_storage()
            begin, spans = storage.data_ptr(), self._waiting.get(tensor.device)
            return spans is not None and spans.overlap(begin, begin + storage.nbytes())
        except (RuntimeError, NotImplementedError):  # tensors of functorch
            return True

    def check(self) -> None:
        """Raises the error of an earlier read again: code that caught it has memory that was not filled."""
        if self._error is not None:
            raise self._error

    def flush(self) -> None:
        """Does the pending copies. Raises the errors of the read, now and at the end."""
        copies, self._copies, self._nbytes, self._waiting = self._copies, [], 0, {}
        if not copies:
            return
        try:
            wants = [memory.want_into(place, box, info.dtype) for place, box, info in copies]
            self.model.reader().read(wants)
        except BaseException as error:
            self._error = error
            raise


class _Spans:
    """Ranges of addresses that do not overlap, in order."""

    def __init__(self) -> None:
        self._begins: List[int] = []
        self._ends: List[int] = []

    def overlap(self, begin: int, end: int) -> bool:
        """Returns whether a range overlaps one of these."""
        number = bisect.bisect_left(self._begins, end)
        return number > 0 and self._ends[number - 1] > begin

    def add(self, begin: int, end: int) -> None:
        """Adds a range that overlaps no other one; ignores an empty range."""
        if begin < end:
            number = bisect.bisect_left(self._begins, begin)
            self._begins.insert(number, begin)
            self._ends.insert(number, end)


def _span(tensor: torch.Tensor) -> Tuple[int, int]:
    """Returns the addresses [begin, end) of the elements, gaps included."""
    if tensor.numel() == 0:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


class _Watch(TorchFunctionMode):
    """Does the pending copies before any operation that looks at bytes."""

    def __init__(self, pending: _Pending):
        super().__init__()
        self._pending = pending

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_copy = func in _COPIES and len(args) > 1 and isinstance(args[1], LazyTensor)
        if not is_copy and func not in _ATTRIBUTES and not _is_view(func, args):
            with torch._C.DisableTorchFunction():
                if any(self._touches(one) for one in (*args, *kwargs.values())):
                    self._pending.flush()
        return func(*args, **kwargs)

    def _touches(self, one: Any) -> bool:
        if isinstance(one, torch.Tensor):
            return not isinstance(one, LazyTensor) and self._pending.touches(one)
        if one is None or isinstance(one, (int, float, str, torch.Size, torch.dtype, torch.device)):
            return False
        return any(self._touches(leaf) for leaf in tree_flatten(one)[0] if isinstance(leaf, torch.Tensor))


_VIEWS = {
    _T.narrow, torch.narrow, _T.split, torch.split, _T.chunk, torch.chunk, _T.tensor_split, torch.tensor_split,
    _T.select, torch.select, _T.unbind, torch.unbind, _T.unsqueeze, torch.unsqueeze, _T.squeeze, torch.squeeze,
    _T.transpose, torch.transpose, _T.t, torch.t, _T.T.__get__, _T.mT.__get__, _T.permute, torch.permute, _T.view,
    _T.detach, _T.data.__get__, _T.requires_grad_,
}


def _is_view(func: Any, args: Any) -> bool:
    """Returns whether a call looks at no bytes, because it returns a view or its argument."""
    if func is not _T.__getitem__:
        return func in _VIEWS and not any(isinstance(one, torch.Tensor) for one in args[1:])
    items = args[1] if isinstance(args[1], tuple) else (args[1],)
    return all(item is None or item is Ellipsis or type(item) is int or
               (isinstance(item, slice) and not any(isinstance(one, torch.Tensor)
                                                    for one in (item.start, item.stop, item.step)))
               for item in items)


@contextlib.contextmanager
def deferred(model: Model) -> Iterator[None]:
    """Collects copies from lazy tensors of a model in this thread, and reads them together.

    Within, `parameter.copy_(lazy)` may return before the bytes are there; all other operations of torch on that memory
    in this thread wait for them. Code that reads the memory without torch (numpy views and DLPack capsules made before)
    does not see them until the end. Raises the errors of the reads, also if the body has caught them; then the memory
    holds parts. Copies from another model, or from a second `Model` of the same one, are read at once.
    """
    if _pending() is not None:
        yield
        return
    pending = _deferring.pending = _Pending(model)
    try:
        with _Watch(pending):
            yield
        pending.flush()
        pending.check()
    finally:
        _deferring.pending = None
