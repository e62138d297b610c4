"""Finds what the weight loaders of a vLLM model read of a checkpoint, and loads into the memory of a model that runs.

vLLM reloads a model layer by layer: it moves the parameters to the meta device, collects the tensors of a layer, loads
them into temporary memory, processes them as for the first start, and copies the result to the layer's own memory.
"""
from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, Set

import torch
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.model_executor.model_loader.reload.meta import restore_layer_on_meta, to_meta_tensor

from ..errors import MismatchError
from ..lazy import noted, weights_of
from ..tensors.boxes import Box
from ..tensors.model import Model
from ..tensors.staging import StagedModel, StagingMemory
from .vllm_state import check_complete, check_one_checkpoint

_TENSORS = ("_parameters", "_buffers", "_non_persistent_buffers_set")  # where torch keeps those of a module


class Uses:
    """The boxes of a checkpoint that the weight loaders of a model use, for this version and for all that have the same
    tensors, of the same types and shapes."""

    def __init__(self, model: torch.nn.Module, model_config: Any, remote: Model):
        """Runs the weight loaders with all parameters on the meta device: reads nothing but the tensors on which the
        model's code computes, and changes nothing in the model.

        Raises ValueError for parameters that the checkpoint lacks; whatever a weight loader raises for a tensor that
        does not fit.
        """
        check_one_checkpoint(model)
        names = _names_in(model)
        with _on_meta(model), noted(remote) as boxes:
            names &= _names_in(model)  # without what vLLM makes of them
            found = model.load_weights(weights_of(remote))
        check_complete(names, found, model_config, remote)
        self.boxes: Dict[Box, None] = boxes
        self._tensors = remote.manifest().tensors

    def fit(self, remote: Model) -> bool:
        """Returns whether they are the same for another version."""
        tensors = remote.manifest().tensors
        return (self._tensors.keys() == tensors.keys() and
                all((one.dtype, one.shape, one.reason) == (tensors[name].dtype, tensors[name].shape,
                                                           tensors[name].reason)
                    for name, one in self._tensors.items()))

    def staged(self, remote: Model, room: int, memory: StagingMemory) -> StagedModel:
        """Returns a version whose boxes are staged in at most `room` bytes of memory; nothing is read yet."""
        return StagedModel(remote, self.boxes, room, memory)


def _names_in(model: torch.nn.Module) -> Set[str]:
    """Returns the names of a model's parameters, as they are without adapters."""
    return {name.replace(".base_layer.", ".") for name, _ in model.named_parameters()}


def load_in_place(model: torch.nn.Module, model_config: Any, remote: Model) -> None:
    """Copies a version into the memory of a model's parameters, layer by layer.

    After an error each parameter has the memory that it had, with its old bytes or with those of the new version.
    Raises what a weight loader raises; the errors of a read; MismatchError if vLLM left parameters on the meta device.
    """
    initialize_layerwise_reload(model)
    try:
        model.load_weights(weights_of(remote))
        finalize_layerwise_reload(model, model_config)
    except BaseException:
        _give_up(model, model_config)
        raise
    absent = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if absent:
        raise MismatchError(f"vLLM left {', '.join(absent[:5])} without memory")


class Copies:
    """Copies of a model's parameters and buffers in the host's memory."""

    def __init__(self, model: torch.nn.Module):
        self._copies = [(tensor, tensor.detach().to("cpu", copy=True)) for tensor in _memory_of(model)]

    def put_back(self) -> None:
        """Gives the parameters and buffers the bytes that they had."""
        with torch.no_grad():
            for tensor, copy in self._copies:
                tensor.detach().copy_(copy)


def nbytes_of(model: torch.nn.Module) -> int:
    """Returns the bytes of a model's parameters and buffers."""
    return sum(tensor.nbytes for tensor in _memory_of(model))


def _memory_of(model: torch.nn.Module) -> List[torch.Tensor]:
    """Returns the parameters and buffers of a model; one that has several names only once."""
    return [*model.parameters(), *model.buffers()]


def _give_up(model: torch.nn.Module, model_config: Any) -> None:
    """Ends a reload that failed: layers that are not complete get their own memory back, as it was."""
    for layer in model.modules():
        info = get_layerwise_info(layer)
        if info.can_load():
            info.load_numel = 0
            info.loaded_weights.clear()
    finalize_layerwise_reload(model, model_config)


@contextlib.contextmanager
def _on_meta(model: torch.nn.Module) -> Iterator[None]:
    """Puts tensors on the meta device in place of a model's parameters and buffers, in the form that its weight loaders
    take; and the model's own back at the end."""
    kept = [(layer, {name: vars(layer)[name].copy() for name in _TENSORS}) for layer in model.modules()]
    try:
        for layer, _ in kept:
            restore_layer_on_meta(layer, get_layerwise_info(layer))
            for name, parameter in layer.named_parameters(recurse=False, remove_duplicate=False):
                vars(layer)["_parameters"][name] = _loadable(parameter)
            for name, buffer in layer.named_buffers(recurse=False, remove_duplicate=False):
                if buffer.is_meta:
                    vars(layer)["_buffers"][name] = _loadable(buffer)
        yield
    finally:
        for layer, own in kept:
            for name, tensors in own.items():
                vars(layer)[name].clear()
                vars(layer)[name].update(tensors)


def _loadable(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy on the meta device, whose weight loader is the one that vLLM's reload of layers wraps."""
    made = to_meta_tensor(tensor)
    loader: Any = getattr(made, "weight_loader", None)
    while getattr(loader, "__name__", "") == "online_process_loader":
        loader = loader.__wrapped__
        made.weight_loader = loader
    return made
