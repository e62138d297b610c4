"""What engines call when they look for plugins. Nothing of an engine is imported before."""
from __future__ import annotations


def register_vllm() -> None:
    """Makes `--load-format tensord` known to vLLM (entry point `vllm.general_plugins`). May be called again."""
    from . import vllm  # noqa: F401  registers itself
