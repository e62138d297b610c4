"""Loads a model by SGLang's own loader classes, on a processor, as a rank of engine_ranks.py.

It prints, as JSON, the bytes of the rank's parameters, the names of those that differ between SGLang's own loader and
the same model loaded from its URL, and the files that SGLang got for its configuration and its tokenizer. WAY "error":
the error of the latter alone.
"""
import importlib.abc
import importlib.machinery
import json
import os
import sys
import types
from unittest.mock import MagicMock

from engine_ranks import become_rank

os.environ.update(SGLANG_USE_CPU_ENGINE="1")

import torch  # noqa: E402
import torch._dynamo  # noqa: E402,F401  looks for triton, as the next does, before there is a stand-in
import torch.utils.flop_counter  # noqa: E402,F401
import transformers  # noqa: E402,F401


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands for packages whose wheels need a GPU or CUDA's torch. Loading weights does not use them."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("triton", "torchvision", "IPython", "sgl_kernel"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__version__ = "3.9.0"
        module.__getattr__ = self.made
        return module

    def exec_module(self, module):
        pass

    @staticmethod
    def made(name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {}) if name[0].isupper() else MagicMock()


sys.meta_path.append(StandIns())

import sglang.srt.model_loader.loader as loaders  # noqa: E402
from sglang.srt.configs.device_config import DeviceConfig  # noqa: E402
from sglang.srt.configs.load_config import LoadConfig  # noqa: E402
from sglang.srt.configs.model_config import ModelConfig  # noqa: E402
from sglang.srt.distributed.parallel_state import init_distributed_environment, initialize_model_parallel  # noqa: E402
from sglang.srt.plugins.hook_registry import HookRegistry  # noqa: E402
from sglang.srt.runtime_context import SpawnRanks, get_model, publish  # noqa: E402
from sglang.srt.server_args import ServerArgs  # noqa: E402
from sglang.srt.utils.hf_transformers.tokenizer import _resolve_tokenizer_name  # noqa: E402

import tensord.engines.plugins  # noqa: E402

# SGLang imports all its models when it loads the first one: here once for all ranks that are forked.
import sglang.srt.models.registry  # noqa: E402,F401

# As SGLang does by the entry point, which sources that are not installed do not have.
tensord.engines.plugins.register_sglang()
HookRegistry.apply_hooks()
folder, url, rank, tp, store, way = become_rank()
rank, tp = int(rank), int(tp)


def load(path):
    arguments = ServerArgs(model_path=path, device="cpu", tp_size=tp, skip_tokenizer_init=True, disable_cuda_graph=True,
                           attention_backend="torch_native", sampling_backend="pytorch")
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=rank, gpu_id=rank))
    if not torch.distributed.is_initialized():
        init_distributed_environment(tp, rank, f"file://{store}", rank, "gloo")
        initialize_model_parallel("gloo")
    config = ModelConfig.from_server_args(arguments)
    load_config = LoadConfig(load_format=get_model().load_format)
    loader = loaders.get_model_loader(load_config, config)
    model = loader.load_model(model_config=config, device_config=DeviceConfig("cpu"))
    return type(loader).__name__, dict(model.named_parameters()), config.model_path


def compare():
    _, local, _ = load(folder)
    loader, remote, place = load(url)
    wrong = [key for key in local if key not in remote or not torch.equal(local[key], remote[key])]
    return {"bytes": sum(p.numel() * p.element_size() for p in remote.values()), "loader": loader,
            "wrong": wrong + sorted(set(remote) - set(local)), "config": sorted(os.listdir(place)),
            "tokenizer": sorted(os.listdir(_resolve_tokenizer_name(url, {})))}


if way == "error":
    try:
        load(url)
        result = {"error": ""}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
else:
    result = compare()
print(json.dumps(result), flush=True)
if torch.distributed.is_initialized():
    torch.distributed.barrier()
os._exit(0)
