"""Functions that engines call to load plugins. No engine is imported before."""
from __future__ import annotations

import os


def register_vllm() -> None:
    """Makes `--load-format tensord` and the weight-transfer backend `tensord` known to vLLM (entry point
    `vllm.general_plugins`), and the resolver of adapters if TENSORD_LORA_URL is set. May be called again."""
    from . import vllm  # noqa: F401  registers both

    if os.environ.get("TENSORD_LORA_URL"):
        from . import vllm_lora

        vllm_lora.register()


def register_sglang() -> None:
    """Makes `--model-path tensord://host:port/ID` known to SGLang (entry point `sglang.srt.plugins`)."""
    from . import sglang

    sglang.register()
