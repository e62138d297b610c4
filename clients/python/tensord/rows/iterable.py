"""IterableDataset: the rows of an epoch as a stream that reads ahead, split among ranks and workers."""
from __future__ import annotations

import sys
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

from .. import errors
from ..address import Urls
from .dataset import Dataset
from .fetching import ahead
from .permutation import check_seed
from .sampler import Order, check_state, own_shard, shard_text

try:
    from torch.utils.data import IterableDataset as _Base
except ImportError:
    _Base = object

ONE_READ_BYTES = 2**20  # of a request, where neighbouring batches are the same worker's


class IterableDataset(_Base):
    """Rows of a dataset, in order or shuffled over all of it, for torch's DataLoader or without it.

        loader = DataLoader(tensord.IterableDataset(url, shuffle=True, seed=1, batch_size=32), batch_size=32,
                            num_workers=4)

    Each rank has its own rows, by `rank` and `world` as for ShuffleSampler, and each worker its own batches: with the
    DataLoader's `batch_size` given, batches are the same in the same order for 0, 1 or 8 workers. The ranks, read in
    turns, have the order that one rank has.

    `dataset`: a Dataset or its URL, then with options and parameters of Dataset as `given`. `batch_size`: rows that a
    worker takes before the next worker does; None: 1. `batched`: yields lists of `batch_size` rows, for
    DataLoader(batch_size=None). `drop_last`, `pad`: see ShuffleSampler; with `drop_last` a short last batch is
    dropped too. `prefetch`: how many requests run ahead, each of one batch or more.
    """

    def __init__(self, dataset: Union[Urls, Dataset], shuffle: bool = False, seed: int = 0, epoch: int = 0,
                 rank: Optional[int] = None, world: Optional[int] = None, batch_size: Optional[int] = None,
                 batched: bool = False, drop_last: bool = False, pad: bool = False, prefetch: int = 4, **given: Any):
        super().__init__()
        if isinstance(dataset, Dataset) and given:
            raise TypeError(f"{', '.join(given)}: given where the dataset is opened")
        if batched and batch_size is None:
            raise ValueError("batched=True needs batch_size=")
        if drop_last and pad:
            raise ValueError("drop_last and pad exclude each other")
        size = 1 if batch_size is None else batch_size
        for name, value, least in (("batch_size", size, 1), ("prefetch", prefetch, 0)):
            if type(value) is not int or value < least:
                raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}")
        self.dataset = dataset if isinstance(dataset, Dataset) else Dataset(dataset, **given)
        self.seed, self.shuffle = check_seed("seed", seed), bool(shuffle)
        self.rank, self.world = own_shard(rank, world)
        self._batch, self._batched = size, bool(batched)
        self._drop_last, self._pad, self._prefetch = bool(drop_last), bool(pad), prefetch
        self._shared = _shared_with_workers(check_seed("epoch", epoch))
        self._turn = 0  # of iterations: the last one counts
        self._go_to(0, 0, 0)
        self._loaded = False

    def __repr__(self) -> str:
        return (f"tensord.IterableDataset({self.dataset!r}, shuffle={self.shuffle}, seed={self.seed}, "
                f"epoch={self.epoch}, rank={self.rank}, world={self.world})")

    @property
    def fingerprint(self) -> str:
        """Returns the fingerprint of the dataset."""
        return self.dataset.fingerprint

    @property
    def epoch(self) -> int:
        """Returns the epoch of the next iteration."""
        return int(self._shared[0]) | int(self._shared[1]) << 32

    def _order(self) -> Order:
        order = Order(len(self.dataset), self.seed, self.epoch, self.rank, self.world, self.shuffle, self._drop_last,
                      self._pad)
        if self._drop_last:
            order.length -= order.length % self._batch
        return order

    def __len__(self) -> int:
        """Returns the rows of a whole epoch of this rank; with `batched` its batches."""
        rows = self._order().length
        return -(-rows // self._batch) if self._batched else rows

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration one of an epoch, also in workers that persist; of another one than so far, from its
        first row."""
        epoch = check_seed("epoch", epoch)
        if epoch != self.epoch:
            self._shared[0], self._shared[1] = epoch & 2**32 - 1, epoch >> 32
            self._go_to(0, 0, 0)

    def _go_to(self, base: int, yielded: int, workers: int) -> None:
        """Makes the next iteration resume one that began at position `base`, after the rows that it yielded in this
        process, which was one of `workers`; 0: of any number."""
        self._base, self._yielded, self._workers = base, yielded, workers
        self._loaded, self._loaded_here = True, _in_worker()
        if not _in_worker():
            self._shared[2] = self._shared[3] = 0
        self._turn += 1

    def _was_resumed(self) -> bool:
        """Returns whether an earlier iteration of torch's DataLoader resumed at the position that was loaded: workers
        that were made for a later one have a copy of the state."""
        return _in_worker() and not self._loaded_here and int(self._shared[3]) not in (0, _own_iteration())

    def __iter__(self) -> Iterator[Any]:
        """Yields rows, or batches: from the position of a state that was loaded, afterwards from the first.

        Raises as the dataset's `__getitem__`; MismatchError for a state of another number of workers.
        """
        worker, workers = _own_worker()
        resumes = self._loaded and not self._was_resumed()
        if resumes and self._workers not in (0, workers):
            raise errors.MismatchError(f"the state is of one of {self._workers} workers, and there are {workers}: load "
                                       "it with as many, or a state of the position alone, before the DataLoader")
        if not resumes:
            self._base = self._yielded = 0
        elif _in_worker():
            self._shared[3] = _own_iteration()
        self._loaded = False
        self._turn += 1
        self._shared[2] = int(_in_worker())
        return self._walk(self._base, self._yielded, worker, workers, self._turn)

    def _walk(self, base: int, yielded: int, worker: int, workers: int, turn: int) -> Iterator[Any]:
        stopping = threading.Event()
        parts = self._parts(self._order(), base, yielded, worker, workers, stopping)
        for rows in ahead(parts, self._prefetch, stopping):
            size = self._batch if self._batched else 1
            for at in range(0, len(rows), size):
                yielded += min(size, len(rows) - at)
                if self._turn == turn:
                    self._yielded = yielded
                yield rows[at : at + size] if self._batched else rows[at]

    def _parts(self, order: Order, base: int, skip: int, worker: int, workers: int,
               stopping: threading.Event) -> Iterator[Callable[[], List[Any]]]:
        """Yields one read task for each batch of this worker, without the first `skip` rows."""
        size = self._batch
        number = base + (skip // size * workers + worker) * size
        skip %= size
        together = max(1, self.dataset.fetcher.part_rows(ONE_READ_BYTES) // size) if workers == 1 else 1
        while number < order.length:
            count = min(size * together, order.length - number)
            if count > skip:
                yield self._read(order, number + skip, count - skip, stopping)
            skip = 0
            number += size * together * workers

    def _read(self, order: Order, start: int, count: int, stopping: threading.Event) -> Callable[[], List[Any]]:
        """Returns a function that reads the rows at positions of an order: by a range of it, or by a list of rows."""
        if order.shuffle and start + count <= order.own and self.dataset.grouped is None:
            query = {"order": "shuffle", "seed": self.seed, "epoch": self.epoch, "shard": f"{self.rank}/{self.world}"}
            return self.dataset.task(start, count, query, stopping, _Lazily(order, start))
        if not order.shuffle and order.world == 1 and start + count <= order.own:
            return self.dataset.task(start, count, None, stopping)
        return lambda: self.dataset.read_list(order.take(start, count))

    def state_dict(self, position: Optional[int] = None) -> Dict[str, Any]:
        """Returns the state for `load_state_dict`: {"position", "seed", "epoch", "shard", "fingerprint"}, in a worker
        also "yielded" and "workers".

        `position`: how many rows of this rank all workers together used in this epoch; larger numbers mean all rows of
        the epoch. By default the number of rows taken in this process. If workers of torch's DataLoader take the rows,
        this process cannot count them: raises ValueError without `position`. StatefulDataLoader stores the workers'
        states by itself.
        """
        workers = _own_worker()[1]
        base, yielded = self._base, self._yielded
        if position is None and self._shared[2] and not _in_worker():
            raise ValueError("workers of torch's DataLoader take the rows, so this process cannot count them: give "
                             "state_dict(position=) the number of rows that were used in this epoch, such as steps * "
                             "batch_size, or use torchdata's StatefulDataLoader, which counts by itself")
        if position is not None or workers == 1:
            base = base + yielded if position is None else min(position, self._order().length)
            yielded, workers = 0, 0
        return {"position": base, "seed": self.seed, "epoch": self.epoch, "shard": shard_text(self),
                "fingerprint": self.fingerprint, "yielded": yielded, "workers": workers}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Makes the next iteration resume where a state was taken, in its epoch.

        A position that is a multiple of the batch size fits any number of workers; a worker's state fits the same
        number of workers. Raises DatasetChanged if the dataset has another fingerprint, MismatchError for another seed
        or shard.
        """
        check_state(state, self)
        epoch, yielded, workers = check_seed("epoch", state["epoch"]), state.get("yielded", 0), state.get("workers", 0)
        if not all(type(one) is int and one >= 0 for one in (state["position"], yielded, workers)):
            raise errors.MismatchError("position, yielded and workers of a state must be whole numbers of at least 0")
        self.set_epoch(epoch)
        self._go_to(state["position"], yielded, workers)


class _Lazily:
    """The rows at positions of an order from `start` on, for messages: computed on demand."""

    def __init__(self, order: Order, start: int):
        self._order, self._start = order, start

    def __getitem__(self, position: int) -> int:
        return int(self._order.take(self._start + position, 1)[0])


def _shared_with_workers(epoch: int) -> Any:
    """Returns four numbers: the low and the high 32 bits of an epoch, whether a worker of torch's DataLoader takes the
    rows (0 or 1), and the iteration whose workers resumed at a loaded position (0: none). With torch they are in memory
    that the workers share: a worker that persists sees a new epoch, and the main process sees that workers take the
    rows."""
    numbers = [epoch & 2**32 - 1, epoch >> 32, 0, 0]
    if _Base is object:
        return numbers
    import torch

    return torch.tensor(numbers, dtype=torch.int64).share_memory_()


def _own_worker() -> Tuple[int, int]:
    """Returns the number of this worker of torch's DataLoader, and how many there are; (0, 1) outside of one."""
    torch = sys.modules.get("torch")
    info = torch.utils.data.get_worker_info() if torch is not None else None
    return (0, 1) if info is None else (info.id, info.num_workers)


def _own_iteration() -> int:
    """Returns a number other than 0 that all workers of one iteration of torch's DataLoader have in common: its seed,
    which is random."""
    info = sys.modules["torch"].utils.data.get_worker_info()
    return int(info.seed - info.id) or 1


def _in_worker() -> bool:
    """Returns whether this process is a worker of torch's DataLoader."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.utils.data.get_worker_info() is not None
