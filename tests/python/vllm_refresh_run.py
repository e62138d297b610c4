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

import vllm_kit
from engine_ranks import become_rank
from vllm.config import set_current_vllm_config
from vllm.distributed.weight_transfer import base
from vllm.model_executor.model_loader.reload.inplace import reload_weights
from vllm.model_executor.model_loader.weight_checksum import compute_tensor_digests, zero_weights
from vllm_refreshed import Refreshed

import tensord.lazy
from tensord.net.session import Session
from tensord.tensors.reading import Reader
from tensord.tensors.staging import StagedModel

folder, url, rank, tp, store, way = become_rank()
me = vllm_kit.Rank(folder, rank, tp, store)


class Stepped(Refreshed):
    """A model in memory, with the steps that are no vLLM's own calls."""

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
refreshed = Stepped(me, "safetensors")
for name, *given in [["start"], *json.loads(way)]:
    error = ""
    try:
        if name == "load":
            refreshed = Stepped(me, "tensord", *given)
        elif name == "expect":
            refreshed = Stepped(me, "safetensors", source=given[0])
        elif name != "start":
            getattr(refreshed, name)(*given)
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    results.append({"error": error, "digests": compute_tensor_digests(refreshed.model),
                    "bytes": sum(p.nbytes for p in refreshed.model.parameters()),
                    "stays": refreshed.find_places() == refreshed.places})
print(json.dumps(results), flush=True)
me.end()
