"""SGLang's connector for `--model-path tensord://host:8080/ID`: each rank reads the parts that its own weight loaders
copy; the configuration and the tokenizer go to the temporary directory that SGLang gives every connector.

SGLang has no list of connectors to be entered in. `register` puts hooks around two functions instead, by SGLang's
registry of hooks: the one that makes connectors, and the one that loads a model through a connector of files.
"""
from __future__ import annotations

import fnmatch
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple
from urllib.parse import urlsplit

import torch
from sglang.srt.connector import BaseFileConnector
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from ..client import open_model
from ..lazy import deferred, weights_of
from ..net import resources


def register() -> None:
    """Registers the hooks. SGLang applies them when all of its plugins are loaded."""
    HookRegistry.register("sglang.srt.connector.create_remote_connector", _create_connector, HookType.AROUND)
    HookRegistry.register("sglang.srt.model_loader.loader.RemoteModelLoader._load_model_from_remote_fs", _load_model,
                          HookType.AROUND)


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
            resources.fetch(self.model.session, self.model.id, path, self.local_dir)

    def weight_iterator(self, rank: int = 0) -> Iterator[Tuple[str, torch.Tensor]]:
        """Yields lazy tensors, the same for all ranks: a copy of a part reads that part."""
        return weights_of(self.model)

    def _paths(self, allow: Optional[Sequence[str]], ignore: Optional[Sequence[str]], weights: bool) -> List[str]:
        files = resources.files_of(self.model.session, self.model.id)
        return [file["path"] for file in files
                if (weights or "format" not in file) and (allow is None or _matches(file["path"], allow)) and
                not _matches(file["path"], ignore or ())]


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def _create_connector(original: Callable[..., Any], url: str, *args: Any, **kwargs: Any) -> Any:
    """Returns a TensordConnector for tensord(s)://host/ID and http(s)://host/models/ID, SGLang's own for other URLs.
    """
    parts = urlsplit(url)
    if parts.scheme in ("tensord", "tensords") or (parts.scheme in ("http", "https") and "/models/" in parts.path):
        return TensordConnector(url)
    return original(url, *args, **kwargs)


def _load_model(original: Callable[..., Any], loader: Any, model: torch.nn.Module, client: Any, *args: Any,
                **kwargs: Any) -> Any:
    """Has the copies of the model's `load_weights` read together. SGLang's later steps find the bytes in place."""
    if not isinstance(client, TensordConnector):
        return original(loader, model, client, *args, **kwargs)
    load_weights = model.load_weights

    def load_together(weights: Any) -> Any:
        with deferred(client.model):
            return load_weights(weights)

    model.load_weights = load_together
    try:
        return original(loader, model, client, *args, **kwargs)
    finally:
        del model.load_weights
