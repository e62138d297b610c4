"""Loads tensors, slices, rank files and rows of datasets from a tensord server straight into memory.

    import tensord

    weights = tensord.load_file("tensord://host:8080/Qwen/Qwen3-0.6B")
    with tensord.safe_open("tensord://host:8080/Qwen/Qwen3-0.6B", framework="pt") as f:
        rows = f.get_slice("lm_head.weight")[0:4096]
    dataset = tensord.Dataset("tensord://host:8080/datasets/fineweb", split="train")
    first = dataset[0]

The core needs nothing but Python; numpy and torch are used where they are installed. docs/python.md has the rest.
"""
from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

from ._version import VERSION as __version__
from .client import Client, connect, open_model, watch
from .errors import (
    AddressError,
    AnswerError,
    ChangedError,
    ConflictError,
    ConnectError,
    DatasetChanged,
    DecodeError,
    DigestError,
    MismatchError,
    MissingBlobsError,
    NotFoundError,
    ProtocolError,
    SetupError,
    TensordError,
    VerifyError,
)
from .loading import load_file, load_into, load_rank, read_boxes, state_dict
from .options import Options
from .rows.dataset import Dataset
from .rows.sampler import ShuffleSampler
from .rows.splits import DatasetInfo, FileInfo, SplitInfo
from .safe_open import PrefetchLoader, PrefetchPlan, safe_open
from .tensors.manifest import Manifest, TensorInfo
from .tensors.model import Model
from .tensors.remote_slice import RemoteSlice

# Code that protoc makes of the server's schema is in packages below "tensord", in a folder of its own.
__path__ = pkgutil.extend_path(__path__, __name__)

if TYPE_CHECKING:
    from .lazy import LazyTensor
    from .publishing.push import PushedFile, PushResult, push
    from .publishing.saving import save_file, save_model
    from .rows.iterable import IterableDataset

__all__ = [
    "AddressError", "AnswerError", "ChangedError", "Client", "ConflictError", "ConnectError", "Dataset",
    "DatasetChanged", "DatasetInfo", "DecodeError", "DigestError", "FileInfo", "IterableDataset", "LazyTensor",
    "Manifest", "MismatchError", "MissingBlobsError", "Model", "NotFoundError", "Options", "PrefetchLoader",
    "PrefetchPlan", "ProtocolError", "PushResult", "PushedFile", "RemoteSlice", "SetupError", "ShuffleSampler",
    "SplitInfo", "TensorInfo", "TensordError", "VerifyError", "__version__", "connect", "load_file", "load_into",
    "load_rank", "open_model", "push", "read_boxes", "safe_open", "save_file", "save_model", "state_dict", "watch",
]


def __getattr__(name: str) -> Any:
    if name == "LazyTensor":  # needs torch, which the core does not
        from .lazy import LazyTensor

        return LazyTensor
    if name == "IterableDataset":  # is torch's where torch is installed
        from .rows.iterable import IterableDataset

        return IterableDataset
    if name in ("PushResult", "PushedFile", "push", "save_file", "save_model"):  # readers need none of them
        from .publishing import push, saving

        return getattr(saving if name.startswith("save_") else push, name)
    raise AttributeError(f"module 'tensord' has no attribute {name!r}")
