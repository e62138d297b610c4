"""Functions that engines call to load plugins. No engine is imported before."""
from __future__ import annotations


def register_vllm() -> None:
    """Makes `--load-format tensord` known to vLLM (entry point `vllm.general_plugins`). May be called again."""
    from . import vllm  # noqa: F401  registers itself


def register_sglang() -> None:
    """Makes `--model-path tensord://host:port/ID` known to SGLang (entry point `sglang.srt.plugins`)."""
    from . import sglang

    sglang.register()
