"""Models of diffusers and transformers whose weights are one tensor, for test_defaults.py: a module of its own, because
the import of these libraries takes seconds, and each of pytest's processes imports all modules of tests."""
import torch
from diffusers import ConfigMixin, ModelMixin
from diffusers.configuration_utils import register_to_config
from transformers import PretrainedConfig, PreTrainedModel


class DiffusersModel(ModelMixin, ConfigMixin):
    @register_to_config
    def __init__(self, size=2):
        super().__init__()
        self.layer = torch.nn.Linear(size, size, bias=False)


class TransformersConfig(PretrainedConfig):
    model_type = "tiny"


class TransformersModel(PreTrainedModel):
    config_class = TransformersConfig

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(2, 2, bias=False)
        self.post_init()
