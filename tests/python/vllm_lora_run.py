"""Resolves adapters by vLLM's own registry of resolvers, as a rank of engine_ranks.py.

It prints, as JSON, the names of the registered resolvers, and what the one of this package answers to each [base model,
adapter] of WAY, as vLLM's own reader of adapters reads it.
"""
import asyncio
import json
import os

import torch
from engine_ranks import become_rank

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", VLLM_DO_NOT_TRACK="1")

import vllm.platforms  # noqa: E402
from vllm.platforms.cpu import CpuPlatform  # noqa: E402

vllm.platforms._current_platform = CpuPlatform()  # the wheel for GPUs finds no platform without a GPU

from vllm.lora.lora_model import LoRAModel  # noqa: E402
from vllm.lora.peft_helper import PEFTHelper  # noqa: E402
from vllm.lora.resolver import LoRAResolver, LoRAResolverRegistry  # noqa: E402

import tensord.engines.plugins  # noqa: E402

# The plugin imports this: here once for all ranks that are forked.
import vllm.model_executor.model_loader  # noqa: E402,F401

way = become_rank()[5]


def described(request):
    """Return what a LoRARequest says, and what vLLM reads from its path; None for None."""
    if request is None:
        return None
    helper = PEFTHelper.from_local_dir(request.lora_path, 4096)
    adapter = LoRAModel.from_local_checkpoint(request.lora_path, {"q_proj"}, helper, lora_model_id=request.lora_int_id,
                                              device="cpu", dtype=torch.float32)
    return {"name": request.lora_name, "id": request.lora_int_id, "path": request.lora_path, "rank": helper.r,
            "alpha": helper.lora_alpha, "modules": sorted(adapter.loras)}


async def resolve(pairs):
    resolver = LoRAResolverRegistry.get_resolver("tensord")
    assert isinstance(resolver, LoRAResolver)
    return await asyncio.gather(*[resolver.resolve_lora(base, name) for base, name in pairs])


tensord.engines.plugins.register_vllm()
tensord.engines.plugins.register_vllm()  # vLLM may do so more than once
pairs = json.loads(way)
requests = asyncio.run(resolve(pairs)) if pairs else []
print(json.dumps({"resolvers": list(LoRAResolverRegistry.get_supported_resolvers()),
                  "requests": [described(request) for request in requests]}), flush=True)
os._exit(0)
