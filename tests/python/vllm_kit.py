"""Models of vLLM on a processor: its platform, the kernels that only GPUs have, and models that are made and loaded as
by a rank of vLLM. Import this before anything else of vLLM."""
import os

import torch

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", VLLM_DO_NOT_TRACK="1")

import vllm.platforms  # noqa: E402
from vllm.platforms.cpu import CpuPlatform  # noqa: E402

vllm.platforms._current_platform = CpuPlatform()  # the wheel for GPUs finds no platform without a GPU

from vllm.config import (DeviceConfig, LoadConfig, ModelConfig, ParallelConfig, VllmConfig,  # noqa: E402
                         set_current_vllm_config)
from vllm.distributed import init_distributed_environment, initialize_model_parallel  # noqa: E402
from vllm.model_executor.model_loader import get_model_loader  # noqa: E402
from vllm.utils.torch_utils import set_default_torch_dtype  # noqa: E402

import vllm.model_executor.kernels.linear as kernels  # noqa: E402
import vllm.model_executor.layers.fused_moe.experts.cpu_moe as cpu_moe  # noqa: E402
import vllm.model_executor.layers.quantization.mxfp4 as mxfp4  # noqa: E402
import vllm.model_executor.models.registry as registry  # noqa: E402

import tensord.engines.plugins  # noqa: E402

# vLLM imports these while it loads a model: here once for all ranks that are forked.
import vllm.model_executor.layers.quantization.online.base  # noqa: E402,F401
import vllm.model_executor.models.llama  # noqa: E402,F401
import vllm.v1.executor  # noqa: E402,F401


class NoKernel:
    """Stands for kernels that only GPUs have: weights are loaded without them."""

    def __init__(self, *_, **__):
        pass

    def process_weights_after_loading(self, layer):
        pass


def choose_kernel(*given, _choose=kernels.choose_scaled_mm_linear_kernel, **named):
    try:
        return _choose(*given, **named)
    except ValueError:
        return NoKernel


kernels.choose_scaled_mm_linear_kernel = choose_kernel
cpu_moe.cpu_prepack_moe_weight = lambda weight, isa: weight.clone()  # the wheel for GPUs lacks it
registry._run_in_subprocess = lambda look: look()  # a process that spares the GPU imports all of vLLM: 13 s a model
mxfp4.select_mxfp4_moe_backend = lambda moe: (mxfp4.Mxfp4MoeBackend.EMULATION, None)

# As vLLM does by the entry point, which sources that are not installed do not have.
tensord.engines.plugins.register_vllm()
tensord.engines.plugins.register_vllm()  # vLLM may do so in each process, and more than once


class Rank:
    """A rank: makes models of a folder's configuration, with the parameters that it has of tp ranks."""

    def __init__(self, folder, rank, tp, store):
        self.folder, self.rank, self.tp, self.store = folder, int(rank), int(tp), store

    def load_model(self, load_format, extra=None, source=None, dtype=torch.float32):
        """Return a model that is loaded, and vLLM's configuration. `extra`: the loader's extra config. `source`: what
        to load, by default the folder. `dtype`: of its parameters; None: that of the configuration."""
        load_config = LoadConfig(load_format=load_format, model_loader_extra_config=extra or {})
        model_config = ModelConfig(model=source or self.folder, tokenizer=self.folder, skip_tokenizer_init=True,
                                   dtype="auto", enforce_eager=True)
        config = VllmConfig(model_config=model_config, load_config=load_config, device_config=DeviceConfig("cpu"),
                            parallel_config=ParallelConfig(tensor_parallel_size=self.tp))
        with set_current_vllm_config(config):
            if not torch.distributed.is_initialized():
                init_distributed_environment(self.tp, self.rank, f"file://{self.store}", self.rank, "gloo")
                initialize_model_parallel(self.tp)
            loader = get_model_loader(load_config)
            loader.download_model(model_config)
            with set_default_torch_dtype(dtype or model_config.dtype):
                model = loader.create_model(config, model_config)
            loader.load_weights(model, model_config)
            return model, config

    def end(self):
        """End the process when all ranks are here."""
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        os._exit(0)
