"""Loads weights into a model of nano-vllm by the weight loaders of its parameters. Each rank reads only the parts that
these copy.

    import tensord.nano_vllm

    tensord.nano_vllm.load_model(model, "tensord://host:8080/Qwen/Qwen3-0.6B")   # in place of load_model(model, path)
"""
from __future__ import annotations

from typing import Any, Union

from .address import Urls
from .client import model_of
from .lazy import deferred, weights_of
from .tensors.model import Model


def load_model(model: Any, url: Union[Urls, Model], **options: Any) -> None:
    """Fills a model's parameters, by the `weight_loader` of each as nano-vllm's loader does.

    `model`: a module with `packed_modules_mapping`. Raises AttributeError for a tensor that the model has no parameter
    for, as nano-vllm does; NotFoundError, ChangedError, ConnectError.
    """
    source = model_of(url, options)
    packed = getattr(model, "packed_modules_mapping", {})
    with deferred(source):
        for name, weight in weights_of(source):
            for part, (whole, shard) in packed.items():
                if part in name:
                    parameter = model.get_parameter(name.replace(part, whole))
                    parameter.weight_loader(parameter, weight, shard)
                    break
            else:
                parameter = model.get_parameter(name)
                loader = getattr(parameter, "weight_loader", lambda target, value: target.data.copy_(value))
                loader(parameter, weight)
