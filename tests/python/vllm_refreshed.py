"""A vLLM model that stays in memory while its weights change, by calls of vLLM's own worker, on a processor."""
from types import SimpleNamespace

import torch
import vllm_kit  # noqa: F401  before anything else of vLLM
from vllm.config import WeightTransferConfig, set_current_vllm_config
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.model_executor.model_loader.utils import process_weights_after_loading
from vllm.v1.worker.gpu_worker import Worker


class Refreshed:
    """A model in memory, and vLLM's worker of it, with the backend `tensord` of its weight transfer. `rank`: a
    vllm_kit.Rank; the other arguments are those of its load_model."""

    def __init__(self, rank, load_format, extra=None, source=None):
        self.model, self.config = rank.load_model(load_format, extra, source, dtype=None)
        with set_current_vllm_config(self.config):
            process_weights_after_loading(self.model, self.config.model_config, torch.device("cpu"))
        self.engine = WeightTransferEngineFactory.create_engine(
            WeightTransferConfig(backend="tensord"), self.config, torch.device("cpu"), self.model)
        self.worker = Worker.__new__(Worker)  # whose constructor wants a GPU
        self.worker.vllm_config, self.worker.rank = self.config, rank.rank
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
