"""vLLM's `--load-format tensord`: each rank reads from a tensord server the parts that its own weight loaders copy.

The weights come from `--model-loader-extra-config '{"url": "tensord://host:8080/ID"}'`. Without it they come from the
server of HF_ENDPOINT, under the model's own name, so that configuration, tokenizer and weights have one source.
"""
from __future__ import annotations

import os
from typing import Any

import torch
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from .. import options
from ..client import open_model
from ..lazy import deferred, weights_of
from ..tensors.model import Model


@register_model_loader("tensord")
class TensordModelLoader(BaseModelLoader):
    """Loads weights through lazy tensors. The extra config takes "url" and the options of `tensord.Options` by name."""

    def __init__(self, load_config: Any):
        super().__init__(load_config)
        extra = dict(load_config.model_loader_extra_config or {})
        self._url = extra.pop("url", None)
        unknown = sorted(set(extra) - set(options.NAMES))
        if unknown:
            raise ValueError(f"--load-format tensord does not take {', '.join(unknown)} in the extra config: it takes "
                             f"url, {', '.join(options.NAMES)}")
        self._options = extra

    def download_model(self, model_config: Any) -> None:
        """Checks that the server has the model; nothing is written to a disk."""
        self._open(model_config).manifest()

    def load_weights(self, model: torch.nn.Module, model_config: Any) -> None:
        """Reads the model's parameters.

        Raises ValueError for parameters that the checkpoint lacks, as vLLM's own loader does for models that are not
        quantised; ChangedError and the other errors of tensord.
        """
        if getattr(model, "secondary_weights", None):
            raise ValueError("--load-format tensord reads one checkpoint, and this model has several "
                             "(secondary_weights)")
        remote = self._open(model_config)
        with deferred(remote):
            loaded = model.load_weights(weights_of(remote))
        if model_config.quantization is None and loaded is not None:
            missing = sorted(set(dict(model.named_parameters())) - set(loaded))
            if missing:
                raise ValueError(f"{remote.id} has no weights for {', '.join(missing)}")

    def _open(self, model_config: Any) -> Model:
        return open_model(self._url or _url_of(model_config.model), **self._options)


def _url_of(model: str) -> str:
    endpoint = os.environ.get("HF_ENDPOINT")
    if model.startswith(("tensord://", "tensords://")):
        return model
    if not endpoint:
        raise ValueError("--load-format tensord needs the model's URL: give --model-loader-extra-config "
                         "'{\"url\": \"tensord://host:8080/ID\"}', or set HF_ENDPOINT to the server")
    return f"{endpoint.rstrip('/')}/models/{model}"
