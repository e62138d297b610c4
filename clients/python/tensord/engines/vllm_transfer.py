"""vLLM's `--weight-transfer-config '{"backend": "tensord"}'`: a model that runs gets another version from a server.

    /init_weight_transfer_engine  {"init_info": {"url": "tensord://host:8080/run"}}
    /start_weight_update          {}
    /update_weights               {"update_info": {"version": "weight_v000012"}}
    /finish_weight_update         {"weight_version": "weight_v000012"}

Each rank reads the parts that its own weight loaders copy, all of them before it changes a parameter, if there is room
for them. `{"version": ..., "prefetch": true}` begins that and returns; then an update with the same version waits for
the bytes, and copies them. All ranks take the same version, or none.
"""
from __future__ import annotations

import inspect
import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Union

import torch
import vllm
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from .. import errors
from ..client import Client, connect
from ..net.transfer import Stop
from ..tensors.model import Model
from ..tensors.staging import StagedModel, StagingMemory
from . import vllm_state
from .vllm_ranks import agreed, together
from .vllm_state import name_of

log = logging.getLogger("tensord")

_PARAMETERS = ["self", "config", "vllm_config", "device", "model"]
_METHODS = {"init_transfer_engine", "start_weight_update", "receive_weights", "finish_weight_update", "shutdown"}
if ([*inspect.signature(WeightTransferEngine.__init__).parameters] != _PARAMETERS or
        not getattr(WeightTransferEngine, "__abstractmethods__", _METHODS) <= _METHODS):
    raise ImportError(f"the weight-transfer backend tensord needs vLLM 0.33 or newer, and this is {vllm.__version__}: "
                      "update vLLM; or restart it with --load-format tensord to load another version")

from . import vllm_weights  # noqa: E402  needs what older versions do not have


@dataclass
class TensordInitInfo(WeightTransferInitInfo):
    """`url`: of the model that has versions, such as tensord://host:8080/run. `staging_bytes`: the
    most memory of a rank for bytes that are read before they are used; by default half of what the machine has free,
    divided among its ranks. 0: each parameter is read when it is copied. `patches`: keep that memory after each update,
    so that the next one reads only the elements that differ: for links that are slower than the server compares two
    versions. `options`: of `tensord.Options`, by name."""

    url: str
    staging_bytes: Optional[int] = None
    patches: bool = False
    options: Dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.staging_bytes is not None and (type(self.staging_bytes) is not int or self.staging_bytes < 0):
            raise ValueError(f"staging_bytes is {self.staging_bytes!r}; it must be a number of bytes")
        if type(self.patches) is not bool:
            raise ValueError(f"patches is {self.patches!r}; it must be true or false")


@dataclass
class TensordUpdateInfo(WeightTransferUpdateInfo):
    """`version`: its name, its number, a ref, or "latest". `prefetch`: begin to read it, and change nothing."""

    version: Union[str, int]
    prefetch: bool = False

    def __post_init__(self) -> None:
        if type(self.version) not in (str, int) or self.version == "":
            raise ValueError(f"version is {self.version!r}; it must be the name or the number of a version")
        if type(self.prefetch) is not bool:
            raise ValueError(f"prefetch is {self.prefetch!r}; it must be true or false")


class TensordWeightTransferEngine(WeightTransferEngine[TensordInitInfo, TensordUpdateInfo]):
    """The backend of one rank."""

    init_info_cls = TensordInitInfo
    update_info_cls = TensordUpdateInfo
    supports_draft_weight_update = False  # it would need a URL of its own

    def __init__(self, config: Any, vllm_config: Any, device: torch.device, model: torch.nn.Module) -> None:
        super().__init__(config, vllm_config, device, model)
        self._client: Optional[Client] = None
        self._staging_bytes: Optional[int] = None
        self._memory = StagingMemory()
        self._uses: Optional[vllm_weights.Uses] = None
        self._fetch: Optional[_Fetch] = None

    def init_transfer_engine(self, init_info: TensordInitInfo) -> None:
        """Takes the URL; nothing is read yet. Raises AddressError, and TypeError or ValueError for wrong options."""
        client = connect(init_info.url, **init_info.options)
        client.model()  # the URL has to name one
        self.shutdown()
        self._client, self._staging_bytes = client, init_info.staging_bytes
        self._memory.takes_patches = init_info.patches

    def start_weight_update(self) -> None:
        """Does nothing: `receive_weights` begins and ends a reload, so that an error leaves the model complete."""

    def finish_weight_update(self) -> None:
        """Does nothing, see `start_weight_update`."""

    def update_weights(self, update_info: Dict[str, Any]) -> None:
        """Does what an update_info asks for. Raises ValueError if it is malformed, and as `receive_weights`."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: TensordUpdateInfo) -> None:
        """Brings the parameters of all ranks to a version, or begins to read it.

        Raises NotFoundError for an unknown version, ValueError for one that lacks parameters, ChangedError,
        ConnectError, and TensordError for an error on another rank. Then no parameter has changed, or all ranks have
        loaded the version again that they had; if that fails too, TensordError says so.
        """
        if update_info.prefetch:
            self.prefetch(update_info.version)
            return
        began = time.monotonic()
        model = self._resolve(update_info.version)
        staged = together(lambda: self._staged(model))[0]
        ready = time.monotonic()
        try:
            self._apply(model, staged)
        finally:
            self._memory.release_unpinned()
        log.info("%s is loaded: %.2f s until its bytes were there, %.2f s to copy them", name_of(model), ready - began,
                 time.monotonic() - ready)

    def prefetch(self, version: Union[str, int]) -> None:
        """Begins to read a version beside the model's work, in place of one that was not used yet. Raises as
        `receive_weights`; errors of the read are found by the update, which then reads again."""
        model = self._resolve(version)
        together(lambda: self._begin(model, version))

    def shutdown(self) -> None:
        """Ends a prefetch, closes the connections, and frees the memory."""
        self._end_fetch()
        self._memory.release()
        if self._client is not None:
            self._client.close()

    # ---- steps; those that are called by `together` do not wait for other ranks

    def _resolve(self, version: Union[str, int]) -> Model:
        """Returns a version, the same one on all ranks, with its manifest."""
        fetch = self._fetch
        known = fetch.model if fetch is not None and fetch.version == version != "latest" else None
        return agreed(lambda: known or self._open(version))

    def _open(self, version: Union[str, int]) -> Model:
        if self._client is None:
            raise RuntimeError('the backend tensord has no URL yet: /init_weight_transfer_engine {"init_info": '
                               '{"url": "tensord://host:8080/ID"}} gives it one')
        return self._client.model().at(version)

    def _uses_of(self, model: Model) -> vllm_weights.Uses:
        if self._uses is None or not self._uses.fit(model):
            self._uses = vllm_weights.Uses(self.model, self.model_config, model)
        return self._uses

    def _stage(self, model: Model) -> StagedModel:
        room = self._staging_bytes
        if room is None:
            room = max(self._memory.nbytes, vllm_state.room_for(self.parallel_config.local_world_size))
        return self._uses_of(model).staged(model, room, self._memory)

    def _has_room_for_copies(self, staged: StagedModel) -> bool:
        nbytes = vllm_weights.nbytes_of(self.model)
        if self._staging_bytes is None:
            return nbytes <= vllm_state.room_for(self.parallel_config.local_world_size)
        return staged.nbytes + nbytes <= self._staging_bytes

    def _begin(self, model: Model, version: Union[str, int]) -> None:
        self._end_fetch()
        self._fetch = _Fetch(version, model, self._stage(model))

    def _end_fetch(self) -> None:
        fetch, self._fetch = self._fetch, None
        if fetch is not None:
            fetch.end()

    def _staged(self, model: Model) -> StagedModel:
        """Returns a version whose first bytes are in the memory: all of them, if there is room."""
        fetch = self._fetch
        if fetch is not None and fetch.is_of(model) and fetch.wait():
            self._fetch = None
            return fetch.staged
        self._end_fetch()
        staged = self._stage(model)
        staged.fetch()
        return staged

    def _apply(self, model: Model, staged: StagedModel) -> None:
        """Copies a version into the parameters. After an error on any rank, all ranks load the version before again, or
        put copies back of a version that is not known."""
        before = vllm_state.loaded.get(self.model)
        copies = vllm_weights.Copies(self.model) if before is None and self._has_room_for_copies(staged) else None

        def put_back() -> None:
            if before is not None:
                vllm_weights.load_in_place(self.model, self.model_config, self._stage(before))
            elif copies is not None:
                copies.put_back()
            else:
                raise errors.TensordError("the version before is not known")

        try:
            together(lambda: vllm_weights.load_in_place(self.model, self.model_config, staged))
        except Exception as error:
            vllm_state.loaded.pop(self.model, None)
            mixed = f"the parameters are partly of {name_of(model)}: update again before the model serves"
            try:
                together(put_back)
            except Exception as second:
                raise errors.TensordError(f"{error}; and the old parameters are lost ({second}): {mixed}") from error
            if before is not None:
                vllm_state.loaded[self.model] = before
            log.warning("%s was not loaded: the parameters are as they were before", name_of(model))
            raise
        vllm_state.loaded[self.model] = model


class _Fetch:
    """A thread that reads the first bytes of a version. `version`: as it was asked for."""

    def __init__(self, version: Union[str, int], model: Model, staged: StagedModel):
        self.version, self.model, self.staged = version, model, staged
        self._stop = Stop()
        self._error: Optional[Exception] = None
        self._thread = threading.Thread(target=self._run, name="tensord-prefetch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self.staged.fetch(self._stop)
        except Exception as error:
            self._error = error
            log.warning("%s was not prefetched: %s", name_of(self.model), error)
            return
        log.info("%s is prefetched: %d bytes in %.2f s", name_of(self.model), self.staged.nbytes,
                 time.monotonic() - began)

    def is_of(self, model: Model) -> bool:
        """Returns whether it reads this version."""
        if model is self.model:
            return True
        if model.version != self.model.version:
            return False
        try:
            self.model.agree([model.manifest().etag])
        except errors.ChangedError:
            return False
        return True

    def wait(self) -> bool:
        """Returns whether the bytes are there, once the thread has ended."""
        self._thread.join()
        return self._error is None

    def end(self) -> None:
        """Stops the read, and returns when nothing writes to the memory."""
        self._stop.stop()
        self._thread.join()
