"""The ranks of a vLLM model: those of one replica, of tensor and pipeline parallelism. vLLM makes each call of its
workers on all of them."""
from __future__ import annotations

from typing import Any, List

import torch
from vllm.distributed import parallel_state

from .ranks import Ranks


def _gathered(value: Any) -> List[Any]:
    """Returns the values of all ranks."""
    values = [value]
    for group in (parallel_state.get_tp_group(), parallel_state.get_pp_group()):
        if group.world_size > 1:
            made: List[Any] = [None] * group.world_size
            torch.distributed.all_gather_object(made, values, group=group.cpu_group)
            values = [one for part in made for one in part]
    return values


_ranks = Ranks(_gathered)
together, agreed = _ranks.together, _ranks.agreed
