"""Loads a model by vLLM's own loader classes, on a processor, as a rank of engine_ranks.py.

It prints, as JSON, the bytes of the rank's parameters, and the names of those that differ between vLLM's own
`--load-format safetensors` and `--load-format tensord`. WAY "error": the error of the latter alone; an object: the
same, with that extra config; "hub": without a URL, by HF_ENDPOINT; "sharded_state" or "runai_streamer_sharded": that
format in place of `tensord`, from the folder or bucket that stands in place of the URL, with all of the model's state.
"""
import json
import os

import torch
from engine_ranks import become_rank

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", VLLM_DO_NOT_TRACK="1")

import vllm.platforms  # noqa: E402
from vllm.platforms.cpu import CpuPlatform  # noqa: E402

vllm.platforms._current_platform = CpuPlatform()  # the wheel for GPUs finds no platform without a GPU

from vllm.config import (DeviceConfig, LoadConfig, ModelConfig, ParallelConfig, VllmConfig,  # noqa: E402
                         set_current_vllm_config)
from vllm.distributed import init_distributed_environment, initialize_model_parallel  # noqa: E402
from vllm.model_executor.model_loader import get_model_loader  # noqa: E402
from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader  # noqa: E402
from vllm.utils.torch_utils import set_default_torch_dtype  # noqa: E402

import vllm.model_executor.kernels.linear as kernels  # noqa: E402
import vllm.model_executor.layers.quantization.mxfp4 as mxfp4  # noqa: E402

import tensord.engines.plugins  # noqa: E402

# vLLM imports these while it loads a model: here once for all ranks that are forked.
import vllm.model_executor.layers.quantization.online.base  # noqa: E402,F401
import vllm.model_executor.models.llama  # noqa: E402,F401
import vllm.v1.executor  # noqa: E402,F401


class NoKernel:
    """Stands for kernels that only GPUs have: weights are loaded without them."""

    def __init__(self, *_, **__):
        pass


def choose_kernel(*given, _choose=kernels.choose_scaled_mm_linear_kernel, **named):
    try:
        return _choose(*given, **named)
    except ValueError:
        return NoKernel


kernels.choose_scaled_mm_linear_kernel = choose_kernel
mxfp4.select_mxfp4_moe_backend = lambda moe: (mxfp4.Mxfp4MoeBackend.EMULATION, None)

# As vLLM does by the entry point, which sources that are not installed do not have.
tensord.engines.plugins.register_vllm()
tensord.engines.plugins.register_vllm()  # vLLM may do so in each process, and more than once
name, url, rank, tp, store, way = become_rank()
rank, tp = int(rank), int(tp)


def load_model(load_format, extra=None, source=name, dtype=torch.float32):
    load_config = LoadConfig(load_format=load_format, model_loader_extra_config=extra or {})
    model_config = ModelConfig(model=source, tokenizer=name, skip_tokenizer_init=True, dtype="auto",
                               enforce_eager=True)
    config = VllmConfig(model_config=model_config, load_config=load_config, device_config=DeviceConfig("cpu"),
                        parallel_config=ParallelConfig(tensor_parallel_size=tp))
    with set_current_vllm_config(config):
        if not torch.distributed.is_initialized():
            init_distributed_environment(tp, rank, f"file://{store}", rank, "gloo")
            initialize_model_parallel(tp)
        loader = get_model_loader(load_config)
        loader.download_model(model_config)
        with set_default_torch_dtype(dtype or model_config.dtype):
            model = loader.create_model(config, model_config)
        loader.load_weights(model, model_config)
        return model


def load(load_format, extra=None):
    return dict(load_model(load_format, extra).named_parameters())


def compare():
    local, remote = load("safetensors"), load("tensord", {"url": url} if way != "hub" else {})
    wrong = [key for key in local if key not in remote or not torch.equal(local[key], remote[key])]
    return {"bytes": sum(p.numel() * p.element_size() for p in remote.values()),
            "wrong": wrong + sorted(set(remote) - set(local))}


def compare_states(load_format):
    """Return the differences between the states of the model's own files and of the rank's."""
    wanted = ShardedStateLoader._filter_subtensors(load_model("safetensors", dtype=None).state_dict())
    got = ShardedStateLoader._filter_subtensors(load_model(load_format, source=url, dtype=None).state_dict())
    wrong = [key for key in wanted if key not in got or wanted[key].dtype != got[key].dtype
             or not torch.equal(wanted[key], got[key])]
    return {"wrong": wrong + sorted(set(got) - set(wanted)),
            "state": {key: [str(value.dtype), list(value.shape)] for key, value in wanted.items()}}


if way in ("sharded_state", "runai_streamer_sharded"):
    try:
        result = compare_states(way)
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
elif way in ("", "hub"):
    result = compare()
else:
    try:
        load("tensord", {"url": url} if way == "error" else json.loads(way))
        result = {"error": ""}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
print(json.dumps(result), flush=True)
if torch.distributed.is_initialized():
    torch.distributed.barrier()
os._exit(0)
