"""Checks that the loader and the weight-transfer backend for vLLM share, and the version that each model has. Any vLLM
that has loaders has what this needs."""
from __future__ import annotations

from typing import Any, Optional, Set
from weakref import WeakKeyDictionary

import torch

from ..tensors.model import Model
from ..tensors.staging import free_bytes

# The version that a model has, where it is known.
loaded: "WeakKeyDictionary[torch.nn.Module, Model]" = WeakKeyDictionary()


def check_one_checkpoint(model: torch.nn.Module) -> None:
    """Raises ValueError for a model of several checkpoints."""
    if getattr(model, "secondary_weights", None):
        raise ValueError("tensord reads one checkpoint, and this model has several (secondary_weights)")


def check_complete(names: Set[str], found: Optional[Set[str]], model_config: Any, remote: Model) -> None:
    """Raises ValueError for parameters that the checkpoint lacks, as vLLM's own loader does for models that are not
    quantised. `names`: of the model's parameters. `found`: of those that were loaded; None: the model does not say it.
    """
    if model_config.quantization is None and found is not None:
        missing = sorted(names - set(found))
        if missing:
            raise ValueError(f"{name_of(remote)} has no weights for {', '.join(missing)}")


def name_of(remote: Model) -> str:
    """Returns the name of a model and of its version, for messages."""
    return remote.id if remote.version is None else f"version {remote.version} of {remote.id}"


def room_for(ranks: int) -> int:
    """Returns how many bytes each of a machine's ranks may stage: together half of what is free."""
    return free_bytes() // (2 * max(1, ranks))
