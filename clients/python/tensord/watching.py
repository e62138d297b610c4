"""Waits for models that appear or change on a server."""
from __future__ import annotations

import re
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from . import errors

LONGEST_WAIT = 60  # seconds of one request; the server takes up to 300
SHORTEST_WAIT = 1  # seconds of one request; pauses if the answer comes earlier, such as from a cache
LONGEST_PAUSE = 5.0  # seconds between requests, if the server answers at once without a change
MAX_GONE = 10_000  # removed models that are remembered


Rows = List[Dict[str, Any]]
ListModels = Callable[[Dict[str, str]], Tuple[Rows, str]]  # by a query: the models, and the ETag field of their list


def changed_ids(list_models: ListModels, match: Optional[str], existing: bool, stall_timeout: float) -> Iterator[str]:
    """Yields the id of each model that appears or changes; see `tensord.watch`. `match`: a glob over ids.
    `stall_timeout`: the seconds after which the session sends a request without an answer again."""
    known: Dict[str, Any] = {}  # the last row of each model, including removed ones
    tag, pause = None, 0.0
    wait = max(SHORTEST_WAIT, min(LONGEST_WAIT, int(stall_timeout / 2)))
    while True:
        rows, tag = _list(list_models, match, tag, wait)
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


def _list(list_models: ListModels, match: Optional[str], tag: Optional[str], wait: int) -> Tuple[Rows, str]:
    """Returns the models and the tag of their list. With the tag of an earlier list, waits until the list differs, in
    requests of `wait` seconds."""
    query = {} if match is None else {"match": match}
    if tag is not None:
        query.update(wait=tag, timeout=str(wait))
    while True:
        began = time.monotonic()
        try:
            rows, field = list_models(query)
            break
        except errors.AnswerError as error:
            if error.status != 304:
                raise
            time.sleep(max(0.0, began + SHORTEST_WAIT - time.monotonic()))
    found = re.fullmatch(r'(?:W/)?"([!#-~]+)"', field)
    if not found:
        raise errors.ProtocolError("the list of models has no entity tag, so that nothing can be waited for: does a "
                                   "proxy take it away?")
    return rows, found[1]
