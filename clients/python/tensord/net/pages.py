"""Reads lists that a server gives in pages, and waits for them to change."""
from __future__ import annotations

import re
import time
from typing import Any, Callable, Dict, List, NamedTuple
from urllib.parse import urlencode

from .. import errors
from .session import Session, json_of

MAX_ROWS = 1_000_000  # of one list; more are not believed
LONGEST_WAIT = 60  # seconds of one request; the server takes up to 300
SHORTEST_WAIT = 1  # seconds of one request; a pause follows an answer that comes earlier, such as from a cache


class Listing(NamedTuple):
    """A list: the `rows` of all pages, the ETag field of the first page, which is that of the whole list ("": none),
    and the other members of the first page."""

    rows: List[Dict[str, Any]]
    etag: str
    about: Dict[str, Any]


def read_pages(session: Session, path: str, what: str, query: Dict[str, str],
               fits: Callable[[Any], bool]) -> Listing:
    """Reads all pages of the list at a path; `what` is the member that has a page's rows. Only the first page waits, if
    the query has `wait`.

    Raises ProtocolError for rows that do not fit; ConnectError, AnswerError, which has status 304 after a wait without
    a change.
    """
    rows: List[Dict[str, Any]] = []
    query, first = {"page_size": "1000", **query}, None
    while True:
        target = f"{path}?{urlencode(query)}"
        text, answer = session.ask("GET", target)
        page = json_of(text, answer, target)
        found = page.get(what) if isinstance(page, dict) else None
        if not isinstance(found, list) or not all(fits(row) for row in found):
            raise errors.ProtocolError(f"the list of {what} is malformed: is this a tensord server?")
        if first is None:
            first = Listing(rows, answer.fields.get("etag", ""),
                            {name: value for name, value in page.items() if name != what})
        rows += found
        token = page.get("next_page_token")
        if not token:
            return first
        if not found or len(rows) > MAX_ROWS:
            raise errors.ProtocolError(f"the list of {what} does not end: {len(rows)} were read")
        query["page_token"] = token
        query.pop("wait", None)
        query.pop("timeout", None)


def tag_of(listing: Listing, what: str) -> str:
    """Returns the tag by which a change of a list can be waited for. Raises ProtocolError if the list has none."""
    found = re.fullmatch(r'(?:W/)?"([!#-~]+)"', listing.etag)
    if not found:
        raise errors.ProtocolError(f"the list of {what} has no entity tag, so that nothing can be waited for: does a "
                                   "proxy take it away?")
    return found[1]


def longest_wait(stall_timeout: float) -> int:
    """Returns the seconds that one request may wait, if the session sends a request without an answer again after
    `stall_timeout` seconds."""
    return max(SHORTEST_WAIT, min(LONGEST_WAIT, int(stall_timeout / 2)))


def pause_after(error: errors.AnswerError, began: float) -> None:
    """Sleeps after a wait that ended without a change, if its answer came at once. `began`: the time of the request by
    time.monotonic. Raises any other error."""
    if error.status != 304:
        raise error
    time.sleep(max(0.0, began + SHORTEST_WAIT - time.monotonic()))
