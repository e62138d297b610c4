"""The names of safetensors.numpy; load_file and save_file take URLs too."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional

from ..address import is_url
from ..publishing import saving
from . import load_url, safe_open

if TYPE_CHECKING:
    from safetensors.numpy import load, save

__all__ = ["load", "load_file", "safe_open", "save", "save_file"]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'tensord.safetensors.numpy' has no attribute {name!r}")
    import safetensors.numpy

    return getattr(safetensors.numpy, name)


def load_file(filename: Any, **options: Any) -> Dict[str, Any]:
    """Returns all tensors of a file or of a model by name. `options` and errors as of `safe_open`."""
    if is_url(filename):
        return load_url(filename, "np", **options)
    import safetensors.numpy

    loaded: Dict[str, Any] = safetensors.numpy.load_file(filename, **options)
    return loaded


def save_file(tensor_dict: Dict[str, Any], filename: Any, metadata: Optional[Dict[str, str]] = None,
              **options: Any) -> None:
    """Writes arrays to a path, or as tensord.save_file does to a file's URL, `URL/model.safetensors`. `options`: for a
    URL those of `tensord.Options`."""
    if is_url(filename):
        saving.save_file(tensor_dict, filename, metadata, **options)
        return
    import safetensors.numpy

    safetensors.numpy.save_file(tensor_dict, filename, metadata, **options)
