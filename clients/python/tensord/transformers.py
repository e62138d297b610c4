"""Loads a model of transformers 5 from a server: nothing is written to disk, and a rank reads only its shards.
A callback pushes the checkpoints of a Trainer.

    import tensord.transformers
    from transformers import AutoModelForCausalLM

    model = tensord.transformers.from_pretrained(AutoModelForCausalLM, "tensord://host:8080/Qwen/Qwen3-0.6B")

Under torchrun `distributed_config=DistributedConfig(tp_plan="auto")` cuts the model.

    trainer = Trainer(..., callbacks=[tensord.transformers.PushCallback("tensord://host:8080/org/name")])
"""
from __future__ import annotations

import json
import os
from typing import Any, Dict, Optional, Tuple, Union

from . import errors, options
from .address import Urls, path_of
from .client import model_of
from .net import resources
from .tensors import dtypes
from .tensors.model import Model
from .tensors.remote_slice import RemoteSlice

_NOT_CONFIG = ("dtype", "torch_dtype", "quantization_config", "distributed_config")  # from_pretrained's own


def __getattr__(name: str) -> Any:
    if name == "PushCallback":  # needs transformers, which this module imports at its first use
        from .engines.trainer import PushCallback

        return PushCallback
    raise AttributeError(f"module 'tensord.transformers' has no attribute {name!r}")


def from_pretrained(cls: Any, url: Union[Urls, Model], **kwargs: Any) -> Any:
    """Returns a model of a class of transformers with a checkpoint's weights, as the class's from_pretrained does.

    `cls`: an Auto class (AutoModelForCausalLM) or a concrete one (Qwen3ForCausalLM). `url`: a model's. `kwargs`:
    options of `tensord.Options`, and all that transformers' from_pretrained takes beside a name (config, dtype,
    device_map, tp_plan, distributed_config, attributes of the configuration, ...); `token` is the server's. Raises
    NotFoundError for a model without config.json, TensordError for one that transformers has no code for, ChangedError
    if the ranks of a tensor-parallel load saw different versions, and the errors of transformers.
    """
    import transformers

    own = {name: kwargs.pop(name) for name in options.NAMES if name in kwargs}
    model = model_of(url, own)
    infos = sorted(model.manifest().tensors.values(), key=lambda info: info.file)
    text = _read_json(model, "config.json")
    config = kwargs.pop("config", None)
    if isinstance(config, (str, os.PathLike)):
        config = transformers.AutoConfig.from_pretrained(config)
    if config is None:
        config, kwargs = _config_of(cls, model, text, kwargs)
    cls, config = _class_of(cls, config)
    state_dict = {info.name: _Weight(model.reader, info, "pt") for info in infos}
    made = cls.from_pretrained(None, config=config, state_dict=state_dict, **kwargs)
    loaded = made[0] if isinstance(made, tuple) else made
    url = f"{model.session.endpoints[0]}{path_of(model.id, version=model.version)}"
    loaded.name_or_path = loaded.config.name_or_path = url
    if "generation_config" not in kwargs and loaded.can_generate():
        _set_generation_config(loaded, model, text)
    if getattr(loaded, "_device_mesh", None) is not None:
        _check_ranks(model)
    return made


class _Weight(RemoteSlice):
    """A tensor in the state dict for transformers: a slice view of safetensors, with the members by which transformers
    finds a dtype if config.json has none."""

    @property
    def dtype(self) -> Any:
        """Returns torch's dtype. Raises TensordError if torch has none."""
        return dtypes.torch_dtype(self._info.dtype)

    def is_floating_point(self) -> bool:
        """Returns whether the elements are floating-point numbers."""
        return bool(self.dtype.is_floating_point)


def _config_of(cls: Any, model: Model, text: Optional[Dict[str, Any]],
               kwargs: Dict[str, Any]) -> Tuple[Any, Dict[str, Any]]:
    """Returns the configuration for a class, after it takes the arguments that are its attributes, and the other
    arguments. Raises NotFoundError, TensordError."""
    import transformers

    if text is None:
        raise errors.NotFoundError(f"{model.id} has no config.json: give config=", 404, "NOT_FOUND")
    kind = text.get("model_type")
    config_class = getattr(cls, "config_class", None)
    if config_class is not None:
        text = _part_for(config_class, text)
    elif kind == "mistral" and "layer_types" in text and "ministral" in transformers.CONFIG_MAPPING:
        config_class = transformers.CONFIG_MAPPING["ministral"]  # AutoConfig's own exception
    elif kind in transformers.CONFIG_MAPPING:
        config_class = transformers.CONFIG_MAPPING[kind]
    else:
        code = " and names code of its own, which is never run" if "auto_map" in text else ""
        raise errors.TensordError(f"transformers {transformers.__version__} has no model type {kind!r}{code}: "
                                  "give config= and a class")
    held = {name: kwargs.pop(name) for name in _NOT_CONFIG if name in kwargs}
    config, rest = config_class.from_dict(dict(text), return_unused_kwargs=True, **kwargs)
    return config, {**rest, **held}


def _part_for(config_class: Any, text: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the part of a composite model's configuration that is of a class; all of it if no part is."""
    part = text.get(getattr(config_class, "base_config_key", None) or "")
    if isinstance(part, dict):
        return part
    wanted = getattr(config_class, "model_type", "")
    if wanted and text.get("model_type") != wanted:
        for part in text.values():
            if isinstance(part, dict) and part.get("model_type") == wanted:
                return part
    return text


def _class_of(cls: Any, config: Any) -> Tuple[Any, Any]:
    """Returns the concrete class that an Auto class has for a configuration, and the part of the configuration that it
    takes; a concrete class as it is. Raises TensordError."""
    mapping = getattr(cls, "_model_mapping", None)
    if mapping is None:
        return cls, config
    if type(config) not in mapping:
        raise errors.TensordError(f"{cls.__name__} has no class for {type(config).__name__}")
    found = mapping[type(config)]
    if isinstance(found, (list, tuple)):
        names = {one.__name__: one for one in found}
        found = next((names[name] for name in getattr(config, "architectures", None) or () if name in names), found[0])
    part = getattr(type(config), "sub_configs", {}).get("text_config")
    if part is not None and getattr(found, "config_class", None) == part:
        quantization = getattr(config, "quantization_config", None)
        config = config.get_text_config()
        if quantization is not None:
            config.quantization_config = quantization
    return found, config


def _set_generation_config(loaded: Any, model: Model, text: Optional[Dict[str, Any]]) -> None:
    """Sets the values of the model's generation_config.json, or of its config.json without that file."""
    import transformers

    generation = _read_json(model, "generation_config.json")
    if generation is not None:
        loaded.generation_config = transformers.GenerationConfig.from_dict(generation)
    elif text is not None:
        loaded.generation_config = transformers.GenerationConfig.from_model_config(dict(text))


def _check_ranks(model: Model) -> None:
    """Checks that all processes read one version. Raises ChangedError in all of them."""
    import torch.distributed

    tags = [""] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(tags, model.manifest().etag)
    model.agree(tags)


def _read_json(model: Model, name: str) -> Optional[Dict[str, Any]]:
    """Reads a JSON file of the model's directory; None if it does not exist."""
    try:
        data = resources.read_small_file(model.session, model.id, name, model.version)
    except errors.NotFoundError:
        return None
    try:
        text = json.loads(data)
    except ValueError as error:
        raise errors.TensordError(f"{name} of {model.id} is not JSON: {error}") from error
    return text if isinstance(text, dict) else None
