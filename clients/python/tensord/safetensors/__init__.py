"""The names of the package safetensors, for files and for models on a server.

    from tensord.safetensors import safe_open, SafetensorError      # in place of: from safetensors import ...
    from tensord.safetensors.torch import load_file, save_file      # in place of: from safetensors.torch import ...

A name that begins with tensord://, tensords://, http:// or https:// is a model's URL, and goes to the server; any other
is a path, and goes to safetensors. `patch` makes safetensors itself take URLs, for code that cannot be changed.
safetensors is imported when a path is opened or another of its names is used.
"""
from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from .. import errors
from ..address import is_url, parse
from ..client import connect
from ..errors import FileError, SafetensorError
from ..options import NAMES
from ..safe_open import safe_open as _open_url
from ..tensors import memory
from ..tensors.model import Model

if TYPE_CHECKING:
    from safetensors import TensorSpec, __version__, deserialize, serialize, serialize_file

__all__ = ["MissingError", "SafetensorError", "TensorSpec", "__version__", "deserialize", "patch", "safe_open",
           "serialize", "serialize_file"]

_lock = threading.RLock()
_patches: List["patch"] = []  # that are in force, the last one last
_theirs: Any = None  # safetensors.safe_open itself
_shown: Any = None  # the present safe_open of safetensors


def __getattr__(name: str) -> Any:
    if name in __all__:
        import safetensors

        return getattr(safetensors, name)
    raise AttributeError(f"module 'tensord.safetensors' has no attribute {name!r}")


class MissingError(errors.NotFoundError, FileNotFoundError):
    """The server does not have the model; code that expects safetensors' FileNotFoundError catches it."""

    def __str__(self) -> str:
        return str(self.args[0])


def safe_open(filename: Any, framework: str, device: Any = "cpu", **options: Any) -> Any:
    """Opens a model's URL as tensord.safe_open does, and a path as safetensors.safe_open does.

    `filename`: a path, a model's URL, or the URL of one of its files of safetensors, `URL/model.safetensors`.
    `options`: safetensors' own, which are ignored for URLs; for a URL also the options of `tensord.Options`. Raises
    SafetensorError for an unknown framework or tensor; MissingError for an unknown model; otherwise as
    safetensors.safe_open or tensord.safe_open.
    """
    if not is_url(filename):
        return _real()(filename, framework, device, **options)
    if framework not in memory.FRAMEWORKS:
        raise FileError(f"framework {framework} is invalid: a URL is opened with pt or np")
    options.pop("backend", None)
    return _File(_model_of(filename, options), framework, device)


def load_url(url: str, framework: str, device: Any = "cpu", **options: Any) -> Dict[str, Any]:
    """Returns all tensors of a URL by name. `options` and errors as of `safe_open`."""
    with safe_open(url, framework, device, **options) as file:
        tensors: Dict[str, Any] = file.get_tensors()
        return tensors


class _File(_open_url):
    """A handle with connections of its own, which it closes."""

    def __init__(self, model: Model, framework: str, device: Any):
        super().__init__(model, framework, device)
        self._own = True


def _model_of(url: str, options: Dict[str, Any]) -> Model:
    """Returns the model that a URL names, or the checkpoint that is the file that it names. Its manifest is read.

    Raises MissingError.
    """
    client = connect(url, **options)
    model = client.model()
    try:
        model.manifest()
        return model
    except errors.NotFoundError as error:
        missing = MissingError(str(error), error.status, error.code, error.url)
    folder, _, file = parse(url).model.rpartition("/")
    if folder and file.endswith(".safetensors") and model.checkpoint is None:
        model = client.model(folder, "safetensors" if file == "model.safetensors" else file, model.asked_version)
        try:
            if all(info.file == file for info in model.manifest().tensors.values()):
                return model
        except errors.NotFoundError:
            pass
    client.close()
    raise missing


class patch:
    """Makes the `safe_open` of safetensors take URLs too, wherever a module has that name: safetensors, its torch and
    numpy (so that their load_file and load_model take URLs), and modules that imported the name.

    In force at once, for all threads, until `undo`; or as a context manager, until its end. `options`: the options of
    `tensord.Options`, for URLs. Several may be in force: the last one's options count. Paths are opened as before.
    Requires safetensors.
    """

    def __init__(self, **options: Any):
        for name in options:
            if name not in NAMES:
                raise TypeError(f"unknown option {name!r}; the options are {', '.join(NAMES)}")

        def patched_safe_open(filename: Any, framework: str, device: Any = "cpu", **given: Any) -> Any:
            return safe_open(filename, framework, device, **({**options, **given} if is_url(filename) else given))

        self._open = patched_safe_open
        with _lock:
            _real()
            _patches.append(self)
            _show()

    def undo(self) -> None:
        """Ends this patch. Nothing happens if it has ended."""
        with _lock:
            if self in _patches:
                _patches.remove(self)
                _show()

    def __enter__(self) -> "patch":
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


def _real() -> Any:
    """Returns safetensors.safe_open as it is without a patch."""
    global _theirs, _shown
    with _lock:
        if _theirs is None:
            import safetensors

            _theirs = _shown = safetensors.safe_open
        return _theirs


def _show() -> None:
    """Replaces safe_open of safetensors by that of the last patch, in all modules that have the name."""
    global _shown
    old, _shown = _shown, _patches[-1]._open if _patches else _theirs
    for module in list(sys.modules.values()):
        names: Optional[Dict[str, Any]] = getattr(module, "__dict__", None)
        if type(names) is dict and module is not sys.modules[__name__]:
            for name in [name for name, value in list(names.items()) if value is old]:
                names[name] = _shown
