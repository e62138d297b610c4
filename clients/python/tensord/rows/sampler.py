"""ShuffleSampler: the order of an epoch, for torch's DataLoader, with a state of one integer."""
from __future__ import annotations

import os
import sys
import warnings
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .. import errors
from .fetching import Lookahead
from .permutation import FIRST_CHUNK, LAST_CHUNK, Permutation, check_seed, check_shard, shard_rows


def own_shard(rank: Optional[int], world: Optional[int]) -> Tuple[int, int]:
    """Returns the rank of this process and the number of ranks: by the arguments, else by torch.distributed if it is
    initialised, else by RANK and WORLD_SIZE of the environment, as torchrun sets them; else (0, 1), with a warning if
    only one of these is set.

    Raises ValueError if only one is given.
    """
    if (rank is None) != (world is None):
        raise ValueError("rank= and world= are given together")
    if rank is not None and world is not None:
        return check_shard(rank, world)
    torch = sys.modules.get("torch")  # who has not imported torch has not initialised torch.distributed
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    texts = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if all(text.isascii() and text.isdigit() for text in texts):
        return check_shard(int(texts[0]), int(texts[1]))
    if any(texts):
        warnings.warn("RANK and WORLD_SIZE of the environment are not both set as numbers: this process reads the rows "
                      "of all ranks, unless rank= and world= are given", stacklevel=3)
    return 0, 1


class Order:
    """The rows of one rank in one epoch, by position: with `shuffle` by order=shuffle, else every world-th row.

    `drop_last`: all ranks have as many rows as the shortest, and the last rows of the order are dropped. `pad`: all
    have as many as the longest, and the first rows of the order are repeated. `length`: the number of rows; `own`:
    without padding.
    """

    def __init__(self, rows: int, seed: int, epoch: int, rank: int, world: int, shuffle: bool, drop_last: bool,
                 pad: bool):
        self.rank, self.world, self.shuffle = rank, world, shuffle
        self._permutation = Permutation(rows, seed, epoch)
        self.own = shard_rows(rows, rank, world)
        self.length = rows // world if drop_last else self.own
        if pad and rows:
            self.length = -(-rows // world)

    def take(self, start: int, count: int) -> Any:
        """Returns the rows at positions [start, start + count), fewer at the end."""
        end = min(start + count, self.length)
        own = min(end, self.own)
        found = list(self._part(start, own - start, self.rank)) if start < own else []
        for position in range(max(start, own), end):  # padding: at most one of each round of all rows
            again = (position * self.world + self.rank) % self._permutation.rows
            found += self._part(again // self.world, 1, again % self.world)
        return found

    def _part(self, start: int, count: int, rank: int) -> Any:
        if self.shuffle:
            return self._permutation.take(start, count, rank, self.world)
        end = min(start + count, shard_rows(self._permutation.rows, rank, self.world))
        return range(start * self.world + rank, end * self.world + rank, self.world)


class ShuffleSampler:
    """The row numbers of one rank in the order of an epoch: for DataLoader(sampler=).

    The order is computed, not stored: iteration starts at once at any position of any number of rows, and the state is
    the position. The server's order=shuffle is the same order. It is the same for any number of workers; the ranks,
    read in turns, have the order of a single rank.

    `dataset`: any object with a length; the fingerprint of a `Dataset` is part of the state. `seed`, `epoch`: of 64
    bits. `rank`, `world`: see `own_shard`. `shuffle`: False yields the rows in the order of the files. `drop_last`,
    `pad`: all ranks have the same number of rows, the fewest or the most. `position`: where the first iteration begins.
    """

    def __init__(self, dataset: Any, seed: int = 0, epoch: int = 0, rank: Optional[int] = None,
                 world: Optional[int] = None, shuffle: bool = True, drop_last: bool = False, pad: bool = False,
                 position: int = 0):
        if drop_last and pad:
            raise ValueError("drop_last and pad exclude each other")
        if isinstance(dataset, (str, bytes)):
            raise TypeError(f"ShuffleSampler takes a dataset, not its URL: give it tensord.Dataset({dataset!r})")
        self._rows = len(dataset)
        lookahead = getattr(dataset, "lookahead", None)
        self._lookahead = lookahead if isinstance(lookahead, Lookahead) else None
        self.fingerprint: Optional[str] = getattr(dataset, "fingerprint", None)
        self.seed, self.epoch = check_seed("seed", seed), check_seed("epoch", epoch)
        self.rank, self.world = own_shard(rank, world)
        self.shuffle, self._drop_last, self._pad = bool(shuffle), bool(drop_last), bool(pad)
        self._position = self._start = self._turn = 0
        self._go_to(position)

    def __repr__(self) -> str:
        return (f"tensord.ShuffleSampler({self._rows} rows, seed={self.seed}, epoch={self.epoch}, rank={self.rank}, "
                f"world={self.world}, shuffle={self.shuffle})")

    def _order(self) -> Order:
        return Order(self._rows, self.seed, self.epoch, self.rank, self.world, self.shuffle, self._drop_last, self._pad)

    def __len__(self) -> int:
        """Returns the rows of a whole epoch of this rank."""
        return self._order().length

    def __iter__(self) -> Iterator[int]:
        """Yields the rows: from the position of a state that was loaded, or that was given; afterwards from the first.

        The state counts the rows of the iteration that began last.
        """
        start, self._start = self._start, 0
        self._position = start
        self._turn += 1
        walk = Walk(self, start, self._turn)
        if self._lookahead is not None:
            self._lookahead.follow(walk)
        return walk

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration one of an epoch; of another one than so far, from its first row."""
        epoch = check_seed("epoch", epoch)
        if epoch != self.epoch:
            self.epoch, self._start, self._position = epoch, 0, 0

    def state_dict(self, position: Optional[int] = None) -> Dict[str, Any]:
        """Returns the state for `load_state_dict`: {"position", "seed", "epoch", "shard", "fingerprint"}.

        `position`: how many rows of this epoch were used, such as steps times the batch size; larger numbers mean all
        rows of the epoch. By default the number of rows taken from the sampler, which is larger with workers of torch's
        own DataLoader; StatefulDataLoader counts by itself.
        """
        position = self._position if position is None else min(position, len(self))
        return {"position": position, "seed": self.seed, "epoch": self.epoch,
                "shard": shard_text(self), "fingerprint": self.fingerprint}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Makes the next iteration resume where a state was taken, in its epoch.

        Raises DatasetChanged if the dataset has another fingerprint, MismatchError for another seed or shard, and for
        a position that this sampler does not have.
        """
        check_state(state, self)
        epoch = check_seed("epoch", state["epoch"])
        if not 0 <= state["position"] <= len(self):
            raise errors.MismatchError(f"the state has position {state['position']}, where the epoch has {len(self)} "
                                       "rows")
        self.epoch = epoch
        self._go_to(state["position"])
        self._turn += 1

    def _go_to(self, position: int) -> None:
        if type(position) is not int or not 0 <= position <= len(self):
            raise ValueError(f"position {position!r} is out of range: the epoch has {len(self)} rows")
        self._start = self._position = position


class Walk:
    """One iteration of a sampler. A dataset in the same process may ask for the next rows, in any thread."""

    def __init__(self, sampler: ShuffleSampler, start: int, turn: int):
        self._sampler, self._turn, self._position = sampler, turn, start
        self._order = sampler._order()
        self._known: Tuple[int, List[int]] = (start, [])  # rows that were computed, and the position of the first
        self._chunk = FIRST_CHUNK

    def __iter__(self) -> "Walk":
        return self

    def __next__(self) -> int:
        first, rows = self._known
        if self._position - first == len(rows):
            first, rows = self._known = self._compute(first, rows)
            if self._position - first == len(rows):
                raise StopIteration
        row = rows[self._position - first]
        self._position += 1
        if self._sampler._turn == self._turn:
            self._sampler._position = self._position
        return row

    def _compute(self, first: int, rows: List[int]) -> Tuple[int, List[int]]:
        """Computes further rows, and stores some earlier ones for `after`."""
        dropped = max(0, len(rows) - LAST_CHUNK)
        found = self._order.take(self._position, self._chunk)
        self._chunk = min(2 * self._chunk, LAST_CHUNK)
        return first + dropped, rows[dropped:] + list(found)

    def after(self, taken: List[int]) -> Optional[List[int]]:
        """Returns the rows that follow a list, as many or all that remain; None unless the list was taken last."""
        first, rows = self._known
        count, at = len(taken), self._position - first
        if count > at or rows[at - count : at] != taken:
            return None
        found = rows[at : at + count]
        return found + list(self._order.take(first + len(rows), count - len(found)))


def shard_text(owner: Any) -> str:
    """Returns the part of a state that identifies the rows of a rank."""
    return f"{owner.rank}/{owner.world}" + ("" if owner.shuffle else " in order")


def check_state(state: Any, owner: Any) -> None:
    """Raises DatasetChanged or MismatchError unless a state fits a sampler or dataset."""
    names = ("position", "seed", "epoch", "shard", "fingerprint")
    if not isinstance(state, dict) or any(name not in state for name in names) or type(state["position"]) is not int:
        raise errors.MismatchError(f"this is not a state of rows: a state has {', '.join(names)}")
    if state["fingerprint"] != owner.fingerprint:
        raise errors.DatasetChanged(f"the state is of a dataset with fingerprint {state['fingerprint']}, this one has "
                                    f"{owner.fingerprint}: its files changed, so the position means other rows. Begin "
                                    "the epoch again, or go back to the old files", 412, "FAILED_PRECONDITION")
    for name, own in (("seed", owner.seed), ("shard", shard_text(owner))):
        if state[name] != own:
            raise errors.MismatchError(f"the state is of {name} {state[name]}, this is {name} {own}: the position "
                                       f"means other rows; take the {name} of the state, or start a new epoch")
