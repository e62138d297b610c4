"""Brings a vLLM model to other versions while it stays in memory, on a processor, as a rank of engine_ranks.py.

WAY is a JSON list of steps, each a list: ["init", INIT_INFO], ["update", UPDATE_INFO], ["reload", PATH or null] by
vLLM's own reload_weights, ["zero"] as sleep level 2 leaves it, ["fail", N]: the Nth copy of the next step fails on the
last rank, ["fail_read"]: its read fails, ["wait"] for a prefetch, ["finds", VERSION]: other ranks than the first find
it next, ["offline"]: no later step may make a request, ["as_older", VERSION]: the backend with an older vLLM, ["load",
EXTRA]: another model for the later steps, by --load-format tensord, ["expect", FOLDER]: one of that folder, by vLLM's
own loader. It prints a list with an object for each: the SHA-256 of each parameter, as vLLM's weight checker computes
it, whether each is in the memory that it had, and the error.
"""
import abc
import importlib
import json
import sys
from types import SimpleNamespace

import torch
import vllm_kit
from engine_ranks import become_rank
from vllm.config import WeightTransferConfig, set_current_vllm_config
from vllm.distributed.weight_transfer import WeightTransferEngineFactory, base
from vllm.model_executor.model_loader.reload.inplace import reload_weights
from vllm.model_executor.model_loader.utils import process_weights_after_loading
from vllm.model_executor.model_loader.weight_checksum import compute_tensor_digests, zero_weights
from vllm.v1.worker.gpu_worker import Worker

import tensord.lazy
from tensord.net.session import Session
from tensord.tensors.reading import Reader
from tensord.tensors.staging import StagedModel

folder, url, rank, tp, store, way = become_rank()
me = vllm_kit.Rank(folder, rank, tp, store)


class Refreshed:
    """A model in memory, and vLLM's worker of it."""

    def __init__(self, load_format, extra=None, source=None):
        self.model, self.config = me.load_model(load_format, extra, source, dtype=None)
        with set_current_vllm_config(self.config):
            process_weights_after_loading(self.model, self.config.model_config, torch.device("cpu"))
        self.engine = WeightTransferEngineFactory.create_engine(
            WeightTransferConfig(backend="tensord"), self.config, torch.device("cpu"), self.model)
        self.worker = Worker.__new__(Worker)  # whose constructor wants a GPU
        self.worker.vllm_config, self.worker.rank = self.config, me.rank
        self.worker.weight_transfer_engine = self.engine
        self.worker._weight_update_active = self.worker._weight_update_is_draft = False
        self.worker.model_runner = SimpleNamespace(reset_lora_state=lambda: None)
        self.places = self.find_places()

    def find_places(self):
        return {name: parameter.data_ptr() for name, parameter in self.model.named_parameters()}

    def init(self, info):
        self.worker.init_weight_transfer_engine(info)

    def update(self, info):
        self.worker.start_weight_update()
        self.worker.update_weights(info)
        self.worker.finish_weight_update()

    def wait(self):
        """Wait until what was prefetched is there."""
        self.engine._fetch.wait()

    def reload(self, path):
        with set_current_vllm_config(self.config):
            reload_weights(self.config, self.model, None, path, True)

    def zero(self):
        zero_weights(self.model)

    def fail(self, number):
        """Make a copy of a lazy tensor to memory fail, once."""
        if me.rank != me.tp - 1:
            return
        original, left = tensord.lazy._copy, [number]

        def copy(target, source):
            if target.device.type != "meta":
                left[0] -= 1
                if left[0] == 0:
                    tensord.lazy._copy = original
                    raise OSError("a copy that fails")
            return original(target, source)

        tensord.lazy._copy = copy


    def fail_read(self):
        """Make the read of staged boxes fail, once."""
        if me.rank != me.tp - 1:
            return
        original = StagedModel.fetch

        def fetch(*_):
            StagedModel.fetch = original
            raise OSError("a read that fails")

        StagedModel.fetch = fetch

    def finds(self, version):
        """Make the ranks but the first find this version once, whatever they ask for."""
        original = self.engine._open

        def open_other(_):
            self.engine._open = original
            return original(version)

        if me.rank > 0:
            self.engine._open = open_other

    def offline(self):
        """Make every request fail from now on."""
        def ask(*_, **__):
            raise OSError("no request may be made")

        Session.ask = Reader.read = ask

    def as_older(self, version):
        """Import the backend beside a base class like that of vLLM 0.24 or 0.25."""
        class Of24:
            def __init__(self, config, parallel_config, model):
                pass

        class Of25(base.WeightTransferEngine):
            @abc.abstractmethod
            def trainer_send_weights(self):
                pass

        base.WeightTransferEngine = Of24 if version == "0.24" else Of25
        del sys.modules["tensord.engines.vllm_transfer"]
        importlib.import_module("tensord.engines.vllm_transfer")


results = []
refreshed = Refreshed("safetensors")
for name, *given in [["start"], *json.loads(way)]:
    error = ""
    try:
        if name == "load":
            refreshed = Refreshed("tensord", *given)
        elif name == "expect":
            refreshed = Refreshed("safetensors", source=given[0])
        elif name != "start":
            getattr(refreshed, name)(*given)
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    results.append({"error": error, "digests": compute_tensor_digests(refreshed.model),
                    "bytes": sum(p.nbytes for p in refreshed.model.parameters()),
                    "stays": refreshed.find_places() == refreshed.places})
print(json.dumps(results), flush=True)
me.end()
