"""Asks the kernel for huge pages under new tensors. The first access to each page costs a page fault, and one page of 2
MiB replaces 512 small ones.

torch or numpy still owns the memory, which can be freed, grown, pinned, shared and pickled as usual. (numpy itself asks
from 4 MiB on, torch with THP_MEM_ALLOC_ENABLE=1 in the environment.) Tensors that are allocated one after the other are
neighbours in one mapping. One call therefore covers all of them before the first write: the mapping is not split, and a
page that holds the end of one tensor and the beginning of the next can also be huge.
"""
from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Callable, Iterable, List, Optional, Tuple

HUGE_PAGE_BYTES = 2 * 1024 * 1024  # of x86, and of arm64 with pages of 4 KiB
ALLOWED_FILE = "/sys/kernel/mm/transparent_hugepage/enabled"  # such as "always [madvise] never"
MAPS_FILE = "/proc/self/maps"
MOST_MAPS_FILE = "/proc/sys/vm/max_map_count"
GAP_PAGES = 2  # largest gap between neighbours: malloc writes a header before each block
MADV_HUGEPAGE = 14
MADV_COLLAPSE = 25  # Linux 6.1

Advise = Callable[[int, int, int], int]


def advise(blocks: Iterable[Tuple[int, int]]) -> None:
    """Asks for huge pages under blocks of memory (address, bytes) that nobody has written to yet. Ignores blocks
    below 2 MiB.

    Does nothing if the host forbids huge pages, on systems other than Linux, and if the process would come near its
    limit of mappings: advice can split a mapping into three.
    """
    large = sorted(block for block in blocks if block[1] >= HUGE_PAGE_BYTES)
    call = _find_madvise() if large else None
    spans = _joined(large)
    if call is None or not _has_room(2 * len(spans)):
        return
    collapses = True
    for begin, end, starts in spans:
        if call(begin, end - begin, MADV_HUGEPAGE) == 0 and collapses:
            collapses = _collapse(call, begin, end, starts)


def _joined(blocks: List[Tuple[int, int]]) -> List[Tuple[int, int, List[int]]]:
    """Returns the spans of whole pages that cover sorted blocks, each with the first pages of its blocks."""
    page = mmap.PAGESIZE
    spans: List[Tuple[int, int, List[int]]] = []
    for address, nbytes in blocks:
        begin, end = address // page * page, -(-(address + nbytes) // page) * page
        if spans and begin - spans[-1][1] <= GAP_PAGES * page:
            first, _, starts = spans[-1]
            starts.append(begin)
            spans[-1] = first, end, starts
        else:
            spans.append((begin, end, [begin]))
    return spans


def _collapse(call: Advise, begin: int, end: int, starts: List[int]) -> bool:
    """Makes the page at the beginning of each block huge. malloc has already written to it, so no page fault would do
    that. Returns False if the kernel cannot."""
    for start in starts:
        page = start // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        if begin <= page and page + HUGE_PAGE_BYTES <= end and call(page, HUGE_PAGE_BYTES, MADV_COLLAPSE) != 0:
            return False
    return True


def _find_madvise() -> Optional[Advise]:
    """Returns the madvise call; None if huge pages are forbidden or unknown."""
    if sys.platform != "linux":
        return None
    try:
        with open(ALLOWED_FILE, encoding="ascii") as file:
            if "[never]" in file.read():
                return None
        call = ctypes.CDLL(None).madvise
    except (OSError, AttributeError, ValueError):
        return None
    call.argtypes, call.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return call


def _has_room(more: int) -> bool:
    """Returns whether, with `more` mappings, the process has less than half of those that the kernel allows."""
    try:
        with open(MOST_MAPS_FILE, encoding="ascii") as file:
            most = int(file.read())
        with open(MAPS_FILE, "rb") as file:
            return 2 * (more + sum(1 for _ in file)) < most
    except (OSError, ValueError):
        return False
