"""SGLang's connector for `--model-path tensord://host:8080/ID`, and updates of a running engine's weights from such
URLs: each rank reads the parts that its own weight loaders copy. The configuration and the tokenizer go to the
temporary directory that SGLang gives every connector.

SGLang has no list of connectors to be entered in. `register` puts hooks around functions instead, by SGLang's registry
of hooks: the one that makes connectors, the one that loads a model through a connector of files, the one that updates
weights, and the one that yields the weights for that.
"""
from __future__ import annotations

import contextlib
import fnmatch
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple
from urllib.parse import urlsplit

import torch
from sglang.srt.connector import BaseFileConnector
from sglang.srt.distributed.parallel_state import get_tp_group
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from ..client import open_model
from ..lazy import deferred, weights_of
from ..net import resources
from ..tensors.model import Model
from .ranks import Ranks

_LOADER = "sglang.srt.model_loader.loader"
_UPDATER = "sglang.srt.model_executor.model_runner_components.weight_updater"
# Formats of SGLang's start that its updates refuse. The URL of an update says where the weights come from.
_NOT_FOR_UPDATES = ("remote", "dummy")


def register() -> None:
    """Registers the hooks. SGLang applies them when all of its plugins are loaded."""
    HookRegistry.register("sglang.srt.connector.create_remote_connector", _create_connector, HookType.AROUND)
    HookRegistry.register(f"{_LOADER}.RemoteModelLoader._load_model_from_remote_fs", _load_model, HookType.AROUND)
    HookRegistry.register(f"{_LOADER}.DefaultModelLoader._get_weights_iterator", _weights, HookType.AROUND)
    HookRegistry.register(f"{_UPDATER}.WeightUpdater.update_weights_from_disk", _update, HookType.AROUND)


class TensordConnector(BaseFileConnector):
    """A model on a server. Options come from the environment, and a checkpoint from `?checkpoint=` in the URL."""

    def __init__(self, url: str):
        """Raises AddressError."""
        self.model = open_model(url)
        super().__init__(url)

    def glob(self, allow_pattern: Any = None) -> List[str]:
        """Returns the URLs of the model's files that match a pattern, or one of several."""
        allow = [allow_pattern] if isinstance(allow_pattern, str) else allow_pattern
        return [f"{self.url.rstrip('/')}/{path}" for path in self._paths(allow, None, weights=True)]

    def pull_files(self, allow_pattern: Optional[Sequence[str]] = None,
                   ignore_pattern: Optional[Sequence[str]] = None) -> None:
        """Writes files of the model that match to the connector's directory; files of weights never.

        Raises NotFoundError, ConnectError, ProtocolError, OSError.
        """
        for path in self._paths(allow_pattern, ignore_pattern, weights=False):
            resources.fetch(self.model.session, self.model.id, path, self.local_dir, self.model.version)

    def weight_iterator(self, rank: int = 0) -> Iterator[Tuple[str, torch.Tensor]]:
        """Yields lazy tensors, the same for all ranks: a copy of a part reads that part."""
        return weights_of(self.model)

    def _paths(self, allow: Optional[Sequence[str]], ignore: Optional[Sequence[str]], weights: bool) -> List[str]:
        files = resources.files_of(self.model.session, self.model.id, self.model.version)
        return [file["path"] for file in files
                if (weights or "format" not in file) and (allow is None or _matches(file["path"], allow)) and
                not _matches(file["path"], ignore or ())]


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def _is_model(url: Any) -> bool:
    """Returns whether a path of SGLang is tensord(s)://host/ID or http(s)://host/models/ID."""
    parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
    return parts.scheme in ("tensord", "tensords") or (parts.scheme in ("http", "https") and "/models/" in parts.path)


def _create_connector(original: Callable[..., Any], url: str, *args: Any, **kwargs: Any) -> Any:
    """Returns a TensordConnector for the URL of a model on a server, SGLang's own for other URLs."""
    return TensordConnector(url) if _is_model(url) else original(url, *args, **kwargs)


@contextlib.contextmanager
def _loading_by(model: torch.nn.Module, load_weights: Callable[[Any], Any]) -> Iterator[None]:
    """Replaces the model's `load_weights` within a block."""
    own = model.__dict__.get("load_weights")  # a quantised loader of SGLang's may have put one there
    model.load_weights = load_weights
    try:
        yield
    finally:
        del model.load_weights
        if own is not None:
            model.load_weights = own


def _load_model(original: Callable[..., Any], loader: Any, model: torch.nn.Module, client: Any, *args: Any,
                **kwargs: Any) -> Any:
    """Has the copies of the model's `load_weights` read together, from the same content in all ranks. SGLang's later
    steps find the bytes in place."""
    if not isinstance(client, TensordConnector):
        return original(loader, model, client, *args, **kwargs)
    client.model = _ranks().agreed(lambda: client.model)
    load_weights = model.load_weights

    def load_together(weights: Any) -> Any:
        with deferred(client.model):
            return load_weights(weights)

    with _loading_by(model, load_together):
        return original(loader, model, client, *args, **kwargs)


# ---- updates of the weights of a running engine


class _Update:
    """An update of a model's weights from a server.

    SGLang loads the new weights, and loads again after an error. The first time the old weights are copied to the
    host's memory, and the new ones are read over them; the second time the old ones are put back.

    `ranks`: those that make this update. They decide together whether it has failed.
    """

    def __init__(self, remote: Model, model: torch.nn.Module, ranks: Ranks):
        self._remote, self._model, self._load_weights = remote, model, model.load_weights
        self._ranks = ranks
        self._has_begun = False
        self._old: Dict[str, torch.Tensor] = {}

    def weights(self) -> Iterator[Tuple[str, torch.Tensor]]:
        """Yields lazy tensors of the new weights; nothing when SGLang loads again after an error."""
        return iter(()) if self._has_begun else weights_of(self._remote)

    def load_weights(self, weights: Any) -> None:
        """Does what the model's `load_weights` does, or puts the old weights back if that was done before. Raises the
        errors of the model and of the server, TensordError if another rank has failed."""
        if self._has_begun:
            state = self._state()
            for name, old in self._old.items():
                state[name].copy_(old)
            return
        self._has_begun = True
        self._ranks.together(lambda: self._replace(weights))

    def _replace(self, weights: Any) -> None:
        """Copies the old weights, and reads the new ones over them."""
        self._old = {name: tensor.to("cpu", copy=True) for name, tensor in self._state().items()}
        with deferred(self._remote):
            self._load_weights(weights)

    def _state(self) -> Dict[str, torch.Tensor]:
        """Returns the memory of the parameters and buffers by name; of those that share memory only the first."""
        return {name: tensor.detach() for name, tensor in (*self._model.named_parameters(),
                                                           *self._model.named_buffers())}


_updates = threading.local()  # `current`: the update that this thread makes


def _update(original: Callable[..., Tuple[bool, str]], updater: Any, model_path: str, load_format: Any,
            weight_name_filter: Any = None, *args: Any, **kwargs: Any) -> Tuple[bool, str]:
    """Updates a running engine's weights from the URL of a model on a server, and from other paths as SGLang does.
    Returns False and a reason after an error, with the old weights in place."""
    if not _is_model(model_path):
        return original(updater, model_path, load_format, weight_name_filter, *args, **kwargs)
    old_path = updater.model_config.model_path
    ranks = _ranks(is_alone=weight_name_filter is not None)  # SGLang filters on a rank that has lost experts
    if str(getattr(load_format, "value", load_format)) in _NOT_FOR_UPDATES:
        load_format = "auto"
    done, said = False, ""
    try:
        update = _Update(ranks.agreed(lambda: open_model(model_path)), updater.get_model(), ranks)
        _updates.current = update
        with _loading_by(updater.get_model(), update.load_weights):
            done, said = original(updater, model_path, load_format, weight_name_filter, *args, **kwargs)
    except Exception as error:
        said = f"Failed to update weights: {str(error) or type(error).__name__}"
    finally:
        _updates.current = None
        if not done:
            updater.model_config.model_path = old_path
    return done, said


def _ranks(is_alone: bool = False) -> Ranks:
    """Returns the ranks that load a model together: those of tensor parallelism, or this one."""
    if is_alone or not torch.distributed.is_initialized():
        return Ranks(lambda value: [value])
    return Ranks(get_tp_group().all_gather_object)


def _weights(original: Callable[..., Any], loader: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
    """Yields the weights of an update from a server; else those that SGLang's loader yields."""
    update = getattr(_updates, "current", None)
    if update is None or not _is_model(source.model_or_path):
        return original(loader, source, *args, **kwargs)
    return ((source.prefix + name, tensor) for name, tensor in update.weights())
