"""Waits for models that appear or change on a server."""
from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterator, Optional

from . import errors
from .net.pages import Listing, longest_wait, pause_after, tag_of

LONGEST_PAUSE = 5.0  # seconds between requests, if the server answers at once without a change
MAX_GONE = 10_000  # removed models that are remembered


ListModels = Callable[[Dict[str, str]], Listing]  # by a query


def changed_ids(list_models: ListModels, match: Optional[str], existing: bool, stall_timeout: float) -> Iterator[str]:
    """Yields the id of each model that appears or changes; see `tensord.watch`. `match`: a glob over ids.
    `stall_timeout`: the seconds after which the session sends a request without an answer again."""
    known: Dict[str, Any] = {}  # the last row of each model, including removed ones
    tag, pause = None, 0.0
    wait = longest_wait(stall_timeout)
    while True:
        listing = _list(list_models, match, tag, wait)
        rows, tag = listing.rows, tag_of(listing, "models")
        changed = [row for row in rows if row["checkpoints"] and known.get(row["id"]) != row]
        for row in rows:
            known.pop(row["id"], None)  # keeps the removed models first, to delete the oldest of them
        excess = len(known) - MAX_GONE
        for name in list(known)[: max(0, excess)]:
            del known[name]
        known.update((row["id"], row) for row in rows)
        if existing:
            yield from sorted(row["id"] for row in changed)
        existing = True
        pause = 0.0 if changed else min(LONGEST_PAUSE, 2 * pause + 0.05)
        time.sleep(pause)


def _list(list_models: ListModels, match: Optional[str], tag: Optional[str], wait: int) -> Listing:
    """Returns the list of models. With the tag of an earlier list, waits until the list differs, in requests of `wait`
    seconds."""
    query = {} if match is None else {"match": match}
    if tag is not None:
        query.update(wait=tag, timeout=str(wait))
    while True:
        began = time.monotonic()
        try:
            return list_models(query)
        except errors.AnswerError as error:
            pause_after(error, began)
