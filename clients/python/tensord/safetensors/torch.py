"""The names of safetensors.torch; load_file, load_model, save_file and save_model take URLs too."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from ..address import is_url
from ..publishing import saving
from . import load_url, safe_open

if TYPE_CHECKING:
    from safetensors.torch import load, save

__all__ = ["load", "load_file", "load_model", "safe_open", "save", "save_file", "save_model"]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'tensord.safetensors.torch' has no attribute {name!r}")
    import safetensors.torch

    return getattr(safetensors.torch, name)


def load_file(filename: Any, device: Any = "cpu", **options: Any) -> Dict[str, Any]:
    """Returns all tensors of a file or of a model by name, on a device of torch. `options` and errors as of
    `safe_open`."""
    if is_url(filename):
        return load_url(filename, "pt", device, **options)
    import safetensors.torch

    loaded: Dict[str, Any] = safetensors.torch.load_file(filename, device, **options)
    return loaded


def load_model(model: Any, filename: Any, strict: bool = True, device: Any = "cpu",
               **options: Any) -> Tuple[List[str], List[str]]:
    """Reads a file, or a model on a server, into a module, and returns the names that are missing and unexpected.

    `strict`: raises RuntimeError if there are any. `options` and errors as of `safe_open`.
    """
    import safetensors.torch

    real: Any = safetensors.torch.load_model
    if not is_url(filename):
        missing, unexpected = real(model, filename, strict, device, **options)
        return missing, unexpected
    # safetensors' own function, for its rules about shared tensors, with another load_file.
    names = {**vars(safetensors.torch), "load_file": lambda url, device="cpu", **_: load_file(url, device, **options)}
    function = types.FunctionType(real.__code__, names, "load_model", real.__defaults__)
    function.__kwdefaults__ = real.__kwdefaults__
    missing, unexpected = function(model, filename, strict, device)
    return missing, unexpected


def save_file(tensors: Dict[str, Any], filename: Any, metadata: Optional[Dict[str, str]] = None,
              **options: Any) -> None:
    """Writes tensors to a path, or as tensord.save_file does to a file's URL, `URL/model.safetensors`. `options`: for a
    URL those of `tensord.Options`."""
    if is_url(filename):
        saving.save_file(tensors, filename, metadata, **options)
        return
    import safetensors.torch

    safetensors.torch.save_file(tensors, filename, metadata, **options)


def save_model(model: Any, filename: Any, metadata: Optional[Dict[str, str]] = None, force_contiguous: bool = True,
               **options: Any) -> None:
    """Writes the tensors of a module to a path or to a file's URL, those that share memory once. `options` and errors
    as of `save_file`; for a URL a tensor of any layout is written in order."""
    if is_url(filename):
        tensors, shared = saving.without_shared(model)
        saving.save_file(tensors, filename, {**shared, **metadata} if metadata else shared or None, **options)
        return
    import safetensors.torch

    safetensors.torch.save_model(model, filename, metadata, force_contiguous, **options)
