"""vLLM's `--load-format tensord`: each rank reads from a tensord server the parts that its own weight loaders copy.

The weights come from `--model-loader-extra-config '{"url": "tensord://host:8080/ID"}'`. Without it they come from the
server of HF_ENDPOINT, under the model's own name, so that configuration, tokenizer and weights have one source. A
model's name that is a URL itself, as after `reload_weights(weights_path="tensord://...")`, comes before both.

`--weight-transfer-config '{"backend": "tensord"}'` is in `vllm_transfer`, which is imported when it is used.
"""
from __future__ import annotations

import os
from typing import Any, Iterator, Tuple

import torch
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from .. import options
from ..client import open_model
from ..lazy import deferred, weights_of
from ..tensors.model import Model
from ..tensors.staging import StagedModel, StagingMemory
from . import vllm_state

try:
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
except ImportError:  # a vLLM without backends
    pass
else:
    WeightTransferEngineFactory.register_engine("tensord", "tensord.engines.vllm_transfer",
                                                "TensordWeightTransferEngine")


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
        vllm_state.check_one_checkpoint(model)
        remote = self._open(model_config)
        with deferred(remote):
            found = model.load_weights(weights_of(remote))
        vllm_state.check_complete({name for name, _ in model.named_parameters()}, found, model_config, remote)
        vllm_state.loaded[model] = remote

    def get_all_weights(self, model_config: Any, model: torch.nn.Module) -> Iterator[Tuple[str, torch.Tensor]]:
        """Returns the weights for vLLM's `reload_weights`, as lazy tensors. Their bytes are read first, as far as there
        is room for them, so that errors of the read, on any rank, come before a parameter has changed.

        Raises ValueError for parameters that the checkpoint lacks; NotFoundError, ConnectError; TensordError for an
        error on another rank.
        """
        from vllm.config import get_current_vllm_config_or_none

        from . import vllm_weights  # older versions of vLLM have no reload
        from .vllm_ranks import agreed, together

        remote = agreed(lambda: self._open(model_config))
        config = get_current_vllm_config_or_none()
        room = vllm_state.room_for(config.parallel_config.local_world_size if config is not None else 1)

        def read() -> StagedModel:
            made = vllm_weights.Uses(model, model_config, remote).staged(remote, room, StagingMemory())
            made.fetch()
            return made

        staged = together(read)[0]
        vllm_state.loaded[model] = remote
        return weights_of(staged)

    def _open(self, model_config: Any) -> Model:
        named = model_config.model if model_config.model.startswith(("tensord://", "tensords://")) else None
        return open_model(named or self._url or _url_of(model_config.model), **self._options)


def _url_of(model: str) -> str:
    endpoint = os.environ.get("HF_ENDPOINT")
    if not endpoint:
        raise ValueError("--load-format tensord needs the model's URL: give --model-loader-extra-config "
                         "'{\"url\": \"tensord://host:8080/ID\"}', or set HF_ENDPOINT to the server")
    return f"{endpoint.rstrip('/')}/models/{model}"
