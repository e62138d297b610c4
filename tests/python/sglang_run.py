"""Loads a model by SGLang's own loader classes, on a processor, as a rank of engine_ranks.py.

It prints, as JSON, the bytes of the rank's parameters, the names of those that differ between SGLang's own loader and
the same model loaded from its URL, and the files that SGLang got for its configuration and its tokenizer. WAY "error":
the error of the latter alone; a list of [path, load format]: the model of FOLDER in an engine whose weights SGLang's
WeightUpdater updates from each path. It then prints the result of each update, what the parameters are after it, and
whether they are still in the same memory. In URLs, {rank} stands for the number of the rank, from 1.
"""
import hashlib
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
from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater  # noqa: E402
from sglang.srt.plugins.hook_registry import HookRegistry  # noqa: E402
from sglang.srt.runtime_context import SpawnRanks, get_model, publish  # noqa: E402
from sglang.srt.server_args import ServerArgs  # noqa: E402
from sglang.srt.utils.hf_transformers.tokenizer import _resolve_tokenizer_name  # noqa: E402

import tensord.engines.plugins  # noqa: E402
import tensord.lazy  # noqa: E402

# SGLang imports all its models when it loads the first one: here once for all ranks that are forked.
import sglang.srt.models.registry  # noqa: E402,F401

# As SGLang does by the entry point, which sources that are not installed do not have.
tensord.engines.plugins.register_sglang()
HookRegistry.apply_hooks()
folder, url, rank, tp, store, way = become_rank()
rank, tp = int(rank), int(tp)
url = url.replace("{rank}", str(rank + 1))


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
    return type(loader).__name__, loader.load_model(model_config=config, device_config=DeviceConfig("cpu")), config


def compare():
    local = dict(load(folder)[1].named_parameters())
    loader, model, config = load(url)
    remote, place = dict(model.named_parameters()), config.model_path
    wrong = [key for key in local if key not in remote or not torch.equal(local[key], remote[key])]
    return {"bytes": sum(p.numel() * p.element_size() for p in remote.values()), "loader": loader,
            "wrong": wrong + sorted(set(remote) - set(local)), "config": sorted(os.listdir(place)),
            "tokenizer": sorted(os.listdir(_resolve_tokenizer_name(url, {})))}


def digest(model):
    """Return one digest of all parameters: their names and bytes."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(name.encode() + parameter.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def update(steps):
    """Update a model from the path of each step, with the updater of SGLang's ModelRunner, whose other parts no update
    of weights uses without a GPU."""
    _, model, config = load(folder)
    tensord.lazy.DEFERRED_BYTES = 1  # each copy is written at once, as most are of a large model
    fields = []
    updater = WeightUpdater(tp_rank=rank, device="cpu", gpu_id=0, model_config=config, custom_weight_loaders={},
                            get_model=lambda: model, recapture_cuda_graph=lambda: None, get_model_runner=lambda: None,
                            update_model_fields=lambda model, **given: fields.append(given["model_path"]))
    places = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    results = [{"bytes": sum(p.numel() * p.element_size() for p in model.parameters()), "digest": digest(model)}]
    for path, load_format in steps:
        fields.clear()
        done, said = updater.update_weights_from_disk(path.replace("{rank}", str(rank + 1)), load_format)
        results.append({"done": done, "said": said, "digest": digest(model), "fields": list(fields),
                        "path": config.model_path,
                        "moved": [n for n, p in model.named_parameters() if p.data_ptr() != places[n]],
                        "hooked": "load_weights" in model.__dict__})
    return results


if way.startswith("["):
    result = update(json.loads(way))
elif way == "error":
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
