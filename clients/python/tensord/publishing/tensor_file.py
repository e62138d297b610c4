"""Files of safetensors that are made from tensors while they are sent, and which tensors are in which file.

The layout is that of the package safetensors: tensors by type, those with larger elements first, and then by name; and
before them a header, with its length before it and spaces after it, up to a multiple of 8 bytes. Source:
safetensors/src/tensor.rs, `prepare` and `Dtype`.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import struct
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

from ..net.bodies import Body, Views
from .sources import Counter, Source
from .tensor_bytes import Tensor

# the types in the order of their tensors
ORDER = ("U64", "I64", "F64", "C64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16", "F8_E5M2FNUZ", "F8_E4M3FNUZ",
         "F8_E8M0", "F8_E4M3", "F8_E5M2", "I8", "U8", "F4", "BOOL")
MAX_HEADER_BYTES = 100_000_000  # more are refused by readers of safetensors
UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "KB": 10**3}


class TensorFile(Source):
    """A file of safetensors, whose bytes are made when they are read."""

    def __init__(self, name: str, tensors: Sequence[Tensor], metadata: Optional[Mapping[str, str]], block_bytes: int):
        """`block_bytes`: the most memory for tensors that must be copied. Raises TypeError for metadata that is not
        text, ValueError for a header that no reader takes."""
        ranks = {dtype: rank for rank, dtype in enumerate(ORDER)}
        self._tensors = sorted(tensors, key=lambda one: (ranks[one.dtype], one.name.encode()))
        self._head = _header(self._tensors, metadata)
        self._block_bytes = block_bytes
        super().__init__(len(self._head) + sum(tensor.nbytes for tensor in tensors), name)

    def views(self, first: int, end: int) -> Iterator[memoryview]:
        """Returns bytes [first, end) of the file; each view is good until the next one is taken."""
        at = len(self._head)
        if first < at:
            yield memoryview(self._head)[first:end]
        for tensor in self._tensors:
            if at >= end:
                return
            if at + tensor.nbytes > first:
                yield from tensor.views(max(0, first - at), min(tensor.nbytes, end - at), self._block_bytes)
            at += tensor.nbytes

    def digest(self, on_read: Counter = lambda count: None, check: Callable[[], None] = lambda: None) -> str:
        """See Source.digest."""
        digest = hashlib.sha256()
        for view in self.views(0, self.nbytes):
            check()
            digest.update(view)
            on_read(len(view))
        return f"sha256:{digest.hexdigest()}"

    @contextlib.contextmanager
    def body(self, first: int, end: int, on_sent: Counter) -> Iterator[Body]:
        """See Source.body."""
        yield Views(lambda: self.views(first, end), end - first, on_sent)


def _header(tensors: Sequence[Tensor], metadata: Optional[Mapping[str, str]]) -> bytes:
    about: Dict[str, Any] = {}
    if metadata is not None:
        if not all(isinstance(text, str) for pair in metadata.items() for text in pair):
            raise TypeError("metadata is a dict of texts by name")
        about["__metadata__"] = {name: metadata[name] for name in sorted(metadata)}
    at = 0
    for tensor in tensors:
        about[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(about, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise ValueError(f"the header of the file would have {len(text)} bytes, and readers take {MAX_HEADER_BYTES}: "
                         "save fewer tensors in one file")
    return struct.pack("<Q", len(text)) + text


def tensors_of(values: Any) -> List[Tensor]:
    """Returns the tensors of a dict by name. Raises TypeError, ValueError."""
    if not isinstance(values, Mapping):
        raise TypeError(f"expected a dict of tensors by name, not {type(values).__name__}")
    found = []
    for name, value in values.items():
        if not isinstance(name, str):
            raise TypeError(f"the name {name!r} is not a text")
        if name == "__metadata__" or any(0xD800 <= ord(character) < 0xE000 for character in name):
            raise ValueError(f"a tensor cannot have the name {name!r} in safetensors")
        found.append(Tensor(name, value))
    return found


def shared_groups(tensors: Sequence[Tensor]) -> List[List[Tensor]]:
    """Returns the groups of tensors that overlap in memory, each of two or more."""
    by_storage: Dict[Any, List[Any]] = {}
    for tensor in tensors:
        span = tensor.span
        if span is not None:
            by_storage.setdefault(span[0], []).append((span[1], span[2], tensor.name, tensor))
    groups = []
    for spans in by_storage.values():
        spans.sort(key=lambda span: span[:3])
        group: List[Tensor] = []
        until = 0
        for begin, end, _, tensor in spans:
            if group and begin >= until:
                groups.append(group)
                group = []
            group.append(tensor)
            until = max(until, end)
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def drop_shared(tensors: Sequence[Tensor], discard: Sequence[str]) -> Dict[str, str]:
    """Chooses the tensors to leave out, since another one has their memory: name -> the name that is kept.

    As safetensors' save_model: of those that use their storage whole the first name is kept, rather not one of
    `discard`. Raises RuntimeError where none does.
    """
    dropped = {}
    for group in shared_groups(tensors):
        whole = sorted(tensor.name for tensor in group if tensor.is_whole)
        names = sorted(tensor.name for tensor in group)
        if not whole:
            raise RuntimeError(f"{', '.join(names)} share memory, and none of them uses it whole, in its order: save a "
                               "copy (clone()) of each")
        kept = next((name for name in whole if name not in discard), whole[0])
        dropped.update({name: kept for name in names if name != kept})
    return dropped


class Shard(NamedTuple):
    """The tensors of one file."""

    name: str
    tensors: List[Tensor]


def split(tensors: Sequence[Tensor], max_shard_size: Union[int, str]) -> List[Shard]:
    """Distributes tensors, in their order, to files of at most `max_shard_size` bytes of tensors, with the names that
    huggingface_hub and transformers give them. A larger tensor gets a file of its own.

    Raises ValueError for a size that cannot be understood.
    """
    most = size_of(max_shard_size)
    shards: List[List[Tensor]] = []
    current: List[Tensor] = []
    nbytes = 0
    for tensor in tensors:
        if tensor.nbytes > most:
            shards.append([tensor])
            continue
        if nbytes + tensor.nbytes > most:
            shards.append(current)
            current, nbytes = [], 0
        current.append(tensor)
        nbytes += tensor.nbytes
    if current or not shards:
        shards.append(current)
    if len(shards) == 1:
        return [Shard("model.safetensors", shards[0])]
    return [Shard(f"model-{number:05d}-of-{len(shards):05d}.safetensors", shard)
            for number, shard in enumerate(shards, 1)]


def size_of(text: Union[int, str]) -> int:
    """Decodes a size, such as "5GB" or a number of bytes. Raises ValueError."""
    if isinstance(text, str):
        with contextlib.suppress(ValueError, KeyError, OverflowError):
            text = int(float(text.strip()[:-2]) * UNITS[text.strip()[-2:].upper()])
    if type(text) is not int or text < 1:
        raise ValueError(f"max_shard_size is {text!r}; it must be a number of bytes, or a text such as 5GB or 500MB")
    return text


def index_of(shards: Sequence[Shard], dropped: Mapping[str, str]) -> bytes:
    """Returns the index of several files, as huggingface_hub writes it."""
    total = sum(tensor.nbytes for shard in shards for tensor in shard.tensors)
    where = {tensor.name: shard.name for shard in shards for tensor in shard.tensors}
    return json.dumps({"metadata": {"total_size": total, **dropped}, "weight_map": where}, indent=2).encode()
