"""Boxes of a model that are read before they are used, into memory of a bounded size."""
from __future__ import annotations

import os
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set

from ..errors import ChangedError, NotFoundError
from ..net.transfer import Stop
from . import dtypes
from .boxes import Box
from .memory import ask_huge_pages, view_of_torch
from .model import Model
from .patches import put_bytes
from .reading import Reader, Want
from .verifying import Sums

ALIGNMENT = 64  # of each box in the memory, in bytes


class StagingMemory:
    """Memory that is kept from one read to the next. With CUDA it is pinned, so that a GPU reads it by itself: as many
    bytes as are asked for, where torch's own pinned memory is rounded up to a power of two."""

    def __init__(self) -> None:
        self._tensor: Any = None
        self._is_pinned = False
        self.takes_patches = False  # True: the memory is kept for them, pinned or not
        self.held: Optional[Held] = None  # the version whose boxes the memory has now

    def take(self, nbytes: int) -> memoryview:
        """Returns uninitialised memory of that many bytes. Calls overwrite each other's memory."""
        import torch

        if self._tensor is None or self.nbytes < nbytes:
            self.release()
            self._tensor = torch.empty(nbytes, dtype=torch.uint8, device="cpu")
            ask_huge_pages([self._tensor])
            if torch.cuda.is_available():  # an error: the system lets no more be pinned, and copies are slower
                self._is_pinned = int(torch.cuda.cudart().cudaHostRegister(self._tensor.data_ptr(), nbytes, 0)) == 0
        return view_of_torch(self._tensor)[:nbytes]

    @property
    def nbytes(self) -> int:
        """How many bytes it has now."""
        return 0 if self._tensor is None else int(self._tensor.nbytes)

    def release(self) -> None:
        """Frees the memory, once no view of it exists. Nothing may be copied from it to a GPU any more."""
        if self._is_pinned:
            import torch

            torch.cuda.cudart().cudaHostUnregister(self._tensor.data_ptr())
        self._tensor, self._is_pinned, self.held = None, False, None

    def release_unpinned(self) -> None:
        """Frees memory that is not pinned, unless it is kept for patches: to make it again costs little."""
        if not self._is_pinned and not self.takes_patches:
            self.release()


class _Place(NamedTuple):
    """Where a box is staged: the number of its group, and its bytes [begin, end) in the memory."""

    group: int
    begin: int
    end: int


class Held(NamedTuple):
    """All boxes of a version that are in a memory, and where."""

    model: Model
    places: Dict[Box, _Place]


class StagedModel(Model):
    """A model at one version. Some of its boxes are read together, before they are used.

    The boxes form groups, each as large as the memory allows, in their order. `fetch` reads the first group. Later, if
    a box is used whose group was not read yet, the group is read, and replaces the one in the memory. So if all boxes
    are one group (`is_whole`), nothing is read after `fetch`. Each group is read once: boxes that are used after their
    group was replaced are read by themselves, and so are boxes that are in no group. For one thread at a time.

    If all boxes are one group, and the memory has the same boxes of another version, `fetch` reads only the elements
    that differ, where the server makes a patch of them.
    """

    def __init__(self, model: Model, wanted: Iterable[Box], room: int, memory: StagingMemory):
        """`wanted`: the boxes, in the order of their use. `room`: the most bytes of `memory` that are used.

        Raises NotFoundError and TensordError for boxes that cannot be read.
        """
        super().__init__(model.session, model.id, model.checkpoint, model.asked_version)
        self._manifest = manifest = model.manifest()
        self._memory = memory
        self._groups: List[List[Box]] = []
        self._places: Dict[Box, _Place] = {}
        self._view = memoryview(bytearray())
        self._present = -1  # the group in the memory
        self._past: Set[int] = set()  # groups that were read
        self.nbytes = 0  # of all boxes
        self.is_whole = True
        end = room
        for box in wanted:
            nbytes = dtypes.nbytes_of(manifest.served(box.name).dtype, box.sizes)
            self.nbytes += nbytes
            if nbytes > room:
                self.is_whole = False
            if not 0 < nbytes <= room:
                continue
            begin = -(-end // ALIGNMENT) * ALIGNMENT
            if begin + nbytes > room:
                self._groups.append([])
                begin = 0
            end = begin + nbytes
            self._groups[-1].append(box)
            self._places[box] = _Place(len(self._groups) - 1, begin, end)
        self.is_whole = self.is_whole and len(self._groups) <= 1

    def fetch(self, stop: Optional[Stop] = None) -> None:
        """Reads the first group. `stop` lets another thread end the read. Raises the errors of `Reader.read`."""
        if self._groups and not (self.is_whole and self._patch(stop)):
            self._read(0, stop)

    def _patch(self, stop: Optional[Stop]) -> bool:
        """Brings the boxes in the memory from the version that they are of to this one. Returns False if they are of no
        version, or the server has no patch that is smaller than the boxes; then nothing is written."""
        held = self._memory.held
        if not self._memory.takes_patches or held is None or held.model.id != self.id or self.version is None:
            return False
        if held.model.version is None or held.places != self._places:
            return False
        order = list(self._places)
        try:
            patch = self.patch_of_boxes(held.model, order)
        except (NotFoundError, ChangedError):  # the version before is gone, or has changed
            return False
        if patch is None or patch.nbytes >= self.nbytes:
            return False
        patch.check_types({str(number): self.manifest()[box.name].dtype for number, box in enumerate(order)})
        self._memory.held = None
        self._view = self._memory.take(self._places[order[-1]].end)
        views = {str(number): self._view_of(box) for number, box in enumerate(order)}
        for part in patch.parts(stop=stop):
            put_bytes(views[part.name], part)
        whole = [Want(order[int(name)], view=views[name]) for name in patch.whole]
        super().reader().read(whole, self.id, stop)
        self._finish(0)
        return True

    def _view_of(self, box: Box) -> memoryview:
        return self._view[self._places[box].begin : self._places[box].end]

    def _finish(self, group: int) -> None:
        """Notes that the memory has all boxes of a group."""
        self._present = group
        self._past.add(group)
        if self.is_whole:
            self._memory.held = Held(self, self._places)

    def reader(self) -> Reader:
        """Returns a Reader that takes staged boxes from the memory."""
        return _StagedReader(self, super().reader())

    def staged(self, box: Box) -> Optional[memoryview]:
        """Returns the bytes of a box, which another call may overwrite; None: it has to be read by itself. Raises the
        errors of `Reader.read`."""
        place = self._places.get(box)
        if place is None:
            return None
        if place.group not in self._past:
            self._read(place.group, None)
        return self._view[place.begin : place.end] if place.group == self._present else None

    def _read(self, group: int, stop: Optional[Stop]) -> None:
        self._present = -1
        self._memory.held = None
        found = self._groups[group]
        self._view = self._memory.take(self._places[found[-1]].end)
        super().reader().read([Want(box, view=self._view_of(box)) for box in found], self.id, stop)
        self._finish(group)


class _StagedReader(Reader):
    """Reads from a StagedModel."""

    def __init__(self, model: StagedModel, reader: Reader):
        super().__init__(reader.session, reader.manifest, reader.checkpoint)
        self._model = model

    def read(self, wants: Sequence[Want], what: str = "", stop: Optional[Stop] = None,
             sums: Optional[Sums] = None) -> None:
        """Copies staged boxes to their places, and reads the others. With `sums` it reads all of them."""
        rest = []
        for want in wants:
            found = self._model.staged(want.box) if sums is None else None
            if found is None:
                rest.append(want)
            elif want.copy is None:
                assert want.view is not None
                want.view[:] = found
            else:
                wait = want.copy(found, want.box)
                if wait is not None:
                    wait()
        if rest:
            super().read(rest, what, stop, sums)


def free_bytes() -> int:
    """Returns how many bytes of memory this process could take: what the system, and the process's cgroup, have free or
    could free. 0 where that cannot be found out."""
    found = [_pairs("/proc/meminfo").get("MemAvailable", 0) * 1024]
    for limit, used, cache in (("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "inactive_file"),
                               ("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                "/sys/fs/cgroup/memory/memory.usage_in_bytes", "total_inactive_file")):
        most, now = _number(limit), _number(used)
        if most is not None and now is not None:
            found.append(most - now + _pairs(os.path.join(os.path.dirname(limit), "memory.stat")).get(cache, 0))
    return max(0, min(found))


def _pairs(path: str) -> Dict[str, int]:
    """Returns the numbers of a file of lines "NAME NUMBER" by name; {} if it cannot be read."""
    try:
        with open(path, encoding="ascii") as file:
            words = [line.split() for line in file]
    except (OSError, ValueError):
        return {}
    return {found[0].rstrip(":"): int(found[1]) for found in words if len(found) > 1 and found[1].isdigit()}


def _number(path: str) -> Optional[int]:
    """Returns the number in a file; None if there is none, such as "max"."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None
