"""Types of elements: their names in manifests and safetensors, in torch and in numpy."""
from __future__ import annotations

import math
from typing import Any, Dict, Optional, Sequence, Tuple

from ..errors import TensordError

# name: bits of one element, torch's attribute, numpy's name. numpy has no bfloat16 and no float8 of its own; ml_dtypes
# has them. F4 counts elements of 4 bits; torch packs two of them into one.
_TABLE: Dict[str, Tuple[int, Optional[str], Optional[str]]] = {
    "BOOL": (8, "bool", "bool"),
    "U8": (8, "uint8", "uint8"),
    "I8": (8, "int8", "int8"),
    "U16": (16, "uint16", "uint16"),
    "I16": (16, "int16", "int16"),
    "U32": (32, "uint32", "uint32"),
    "I32": (32, "int32", "int32"),
    "U64": (64, "uint64", "uint64"),
    "I64": (64, "int64", "int64"),
    "F16": (16, "float16", "float16"),
    "BF16": (16, "bfloat16", "bfloat16"),
    "F32": (32, "float32", "float32"),
    "F64": (64, "float64", "float64"),
    "C64": (64, "complex64", "complex64"),
    "C128": (128, "complex128", "complex128"),
    "F8_E4M3": (8, "float8_e4m3fn", "float8_e4m3fn"),
    "F8_E5M2": (8, "float8_e5m2", "float8_e5m2"),
    "F8_E4M3FNUZ": (8, "float8_e4m3fnuz", "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": (8, "float8_e5m2fnuz", "float8_e5m2fnuz"),
    "F8_E8M0": (8, "float8_e8m0fnu", "float8_e8m0fnu"),
    "F4": (4, "float4_e2m1fn_x2", None),
}
_BY_TORCH = {row[1]: name for name, row in _TABLE.items() if row[1]}
_BY_NUMPY = {row[2]: name for name, row in _TABLE.items() if row[2]}
_ML_DTYPES = {name for name in _TABLE if name == "BF16" or name.startswith("F8_")}


def bits_of(dtype: str) -> Optional[int]:
    """Returns the bits of one element; None for a type with elements in blocks (such as GGUF's Q8_0)."""
    row = _TABLE.get(dtype)
    return row[0] if row else None


def nbytes_of(dtype: str, shape: Sequence[int]) -> int:
    """Returns the bytes of a box of elements. Raises TensordError for a type with elements in blocks."""
    bits = bits_of(dtype)
    if bits is None:
        raise TensordError(f"the type {dtype} has no elements of its own: read the tensor whole, by read_bytes")
    return math.prod(shape) * bits // 8


def torch_dtype(dtype: str) -> Any:
    """Returns torch's type. Raises TensordError when torch, or this release of it, has none."""
    import torch

    row = _TABLE.get(dtype)
    found = getattr(torch, row[1], None) if row and row[1] else None
    if found is None:
        raise TensordError(f"torch {torch.__version__} has no type for {dtype}: read the tensor's bytes by read_bytes")
    return found


def name_of_torch(dtype: Any) -> Optional[str]:
    """Returns the name of torch's type; None if it has none."""
    return _BY_TORCH.get(str(dtype).rpartition(".")[2])


def name_of_numpy(dtype: Any) -> Optional[str]:
    """Returns the name of a type of numpy or ml_dtypes, of any byte order; None if it has none."""
    return _BY_NUMPY.get(dtype.name)


def stored_shape(dtype: str, shape: Sequence[int]) -> Tuple[int, ...]:
    """Returns the shape of one of torch's tensors as files have it: the inverse of `torch_shape`."""
    if dtype != "F4" or not shape:
        return tuple(shape)
    return (*shape[:-1], shape[-1] * 2)


def torch_shape(dtype: str, shape: Sequence[int]) -> Tuple[int, ...]:
    """Returns the shape as torch counts it: the last dimension is halved for a type that packs two elements."""
    if dtype != "F4" or not shape:
        return tuple(shape)
    return (*shape[:-1], shape[-1] // 2)


def numpy_dtype(dtype: str) -> Any:
    """Returns the type of numpy or ml_dtypes. Raises TensordError if neither has it."""
    import numpy

    row = _TABLE.get(dtype)
    if not row or not row[2]:
        raise TensordError(f"numpy has no type for {dtype}: read the tensor's bytes by read_bytes")
    if dtype in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise TensordError(f"numpy has no type for {dtype}: pip install ml_dtypes, or use torch") from None
        return numpy.dtype(getattr(ml_dtypes, row[2]))
    return numpy.dtype(row[2])
