"""vLLM's resolver of LoRA adapters: adapters come from a tensord server when a request names them.

TENSORD_LORA_URL=tensord://host:8080/PREFIX registers it: a request for the model `a`, or `a@VERSION`, gets the adapter
`PREFIX/a`. Copies are below TENSORD_LORA_CACHE.
"""
from __future__ import annotations

import asyncio
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from vllm.lora.request import LoRARequest
from vllm.lora.resolver import LoRAResolver, LoRAResolverRegistry

from .adapters import Adapters

NAME = "tensord"  # in vLLM's registry
URL, CACHE = "TENSORD_LORA_URL", "TENSORD_LORA_CACHE"  # of the environment
DEFAULT_CACHE = "~/.cache/tensord/lora"
THREADS = 8  # that fetch adapters


class TensordLoRAResolver(LoRAResolver):
    """Finds adapters below a URL; see `Adapters`."""

    def __init__(self, url: str, cache: str):
        """Raises AddressError."""
        self._adapters = Adapters(url, cache)
        self._threads = ThreadPoolExecutor(THREADS, "tensord-lora")

    async def resolve_lora(self, base_model_name: str, lora_name: str) -> Any:
        """Returns a LoRARequest with the folder of the adapter; None if the server has none of this name for this base.
        Raises as `Adapters.find`."""
        loop = asyncio.get_running_loop()
        folder = await loop.run_in_executor(self._threads, self._adapters.find, lora_name, base_model_name)
        if folder is None:
            return None
        number = 1 + zlib.crc32(lora_name.encode())  # the engine's server replaces it
        return LoRARequest(lora_name=lora_name, lora_int_id=number, lora_path=folder)


def register() -> None:
    """Registers the resolver for the URL in the environment. Raises AddressError."""
    cache = os.environ.get(CACHE) or DEFAULT_CACHE
    if NAME not in LoRAResolverRegistry.get_supported_resolvers():
        LoRAResolverRegistry.register_resolver(NAME, TensordLoRAResolver(os.environ[URL], cache))
