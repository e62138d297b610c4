"""Waits for models that appear or change on a server."""
from __future__ import annotations

import re
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import errors
from .address import Urls
from .client import Client, Model, connect

LONGEST_WAIT = 60  # seconds of one request; the server takes up to 300
LONGEST_PAUSE = 5.0  # seconds between requests, if the server answers at once without a change
MAX_GONE = 10_000  # removed models that are remembered


def watch(url: Urls, match: Optional[str] = None, existing: bool = True, **options: Any) -> Iterator[Model]:
    """Returns an endless iterator that yields a Model for each model of a server that appears or changes. The Model's
    manifest is not read yet.

    `url`: of a server, or of a model to watch that model alone. `match`: a glob over ids, such as "run/*". `existing`:
    whether to yield the models that are there at the beginning first, in the order of their ids. `options`: those of
    `tensord.Options`, by name.

    The iterator yields a model only once it has a checkpoint. If a model changes several times between two steps of the
    iterator, the iterator yields it once. The iterator waits while a server restarts, and then yields only models that
    have changed.

    Raises AddressError, ValueError; the iterator AnswerError, ProtocolError, and ConnectError when no server answers
    for `retry_for` seconds.
    """
    return watch_client(connect(url, **options), match, existing)


def watch_client(client: Client, match: Optional[str], existing: bool) -> Iterator[Model]:
    """Returns the iterator of `watch` for a client."""
    if client._dataset:
        raise errors.AddressError("watch takes the URL of a server or a model, and this is one of a dataset")
    if client._model and match is not None:
        raise ValueError("match= is for the URL of a server, and this one names a model")
    if client._model:
        match = re.sub(r"([*?\[\]\\])", r"\\\1", client._model)
    return _changes(client, match, existing)


def _changes(client: Client, match: Optional[str], tell: bool) -> Iterator[Model]:
    known: Dict[str, Any] = {}  # the last row of each model, including removed ones
    tag, pause = None, 0.0
    while True:
        rows, tag = _list(client, match, tag)
        changed = [row for row in rows if row["checkpoints"] and known.get(row["id"]) != row]
        for row in rows:
            known.pop(row["id"], None)  # keeps the removed models first, to delete the oldest of them
        excess = len(known) - MAX_GONE
        for name in list(known)[: max(0, excess)]:
            del known[name]
        known.update((row["id"], row) for row in rows)
        for row in sorted(changed, key=lambda one: one["id"]) if tell else ():
            yield Model(client, row["id"], client._checkpoint if client._model else None)
        tell = True
        pause = 0.0 if changed else min(LONGEST_PAUSE, 2 * pause + 0.05)
        time.sleep(pause)


def _list(client: Client, match: Optional[str], tag: Optional[str]) -> Tuple[List[Dict[str, Any]], str]:
    """Returns the models and the tag of their list. With the tag of an earlier list, waits until the list differs."""
    query = {} if match is None else {"match": match}
    if tag is not None:
        # The session sends a request again if it gets no answer for stall_timeout.
        seconds = max(1, min(LONGEST_WAIT, int(client._session.options.stall_timeout / 2)))
        query.update(wait=tag, timeout=str(seconds))
    while True:
        try:
            rows, field = client._models_and_tag(query)
            break
        except errors.AnswerError as error:
            if error.status != 304:
                raise
    found = re.fullmatch(r'(?:W/)?"([!#-~]+)"', field)
    if not found:
        raise errors.ProtocolError("the list of models has no entity tag, so that nothing can be waited for: does a "
                                   "proxy take it away?")
    return rows, found[1]
