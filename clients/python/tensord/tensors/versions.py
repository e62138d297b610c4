"""Versions of a model: their list, and how to wait for the next one."""
from __future__ import annotations

import time
from typing import Any, Dict, List, NamedTuple, Optional

from .. import errors
from ..address import path_of
from ..net.pages import longest_wait, pause_after, read_pages, tag_of
from ..net.session import Session
from .manifest import ask_hashed, sha256_of

_TEXTS = ("version", "kind", "href")


class Versions(NamedTuple):
    """The versions of a model as the server describes them, in its order, the name of the latest one (None: none), and
    the tag by which a change of the list can be waited for."""

    rows: List[Dict[str, Any]]
    latest: Optional[str]
    tag: str


def read_versions(session: Session, model: str, wait: Optional[str] = None, seconds: int = 0) -> Versions:
    """Reads the versions of a model.

    `wait`: the tag of an earlier list; the server answers when the list differs, or with status 304 after `seconds`.
    Raises NotFoundError, ConnectError, AnswerError, ProtocolError.
    """
    query = {} if wait is None else {"wait": wait, "timeout": str(seconds)}
    listing = read_pages(session, path_of(model, "versions"), "versions", query, _is_version)
    latest = listing.about.get("latest")
    if not (latest is None or isinstance(latest, str)):
        raise errors.ProtocolError(f"the latest version of {model} has no name: is this a tensord server?")
    return Versions(listing.rows, latest, tag_of(listing, "versions"))


def read_changes(session: Session, model: str, since: str, version: Optional[str]) -> Dict[str, Any]:
    """Reads what changed from one version of a model to another (None: the latest), as `Model.changes` returns it.

    Raises NotFoundError, ConnectError, AnswerError, ProtocolError.
    """
    found = ask_hashed(session, path_of(model, "changes", since=since, version=version))
    try:
        rows = [*found["changed"], *found["added"]]
        for row in rows:
            sha256_of(row)
        fits = (all(isinstance(row["name"], str) for row in rows) and
                all(isinstance(name, str) for name in found["removed"]) and
                all(type(found[key]) is int for key in ("same", "same_bytes", "changed_bytes")))
    except (KeyError, TypeError, AttributeError):
        fits = False
    if not fits or found.get("model") != model or version not in (None, found.get("version")):
        raise errors.ProtocolError(f"the changes of {model} are malformed: is this a tensord server?")
    checked: Dict[str, Any] = found
    return checked


def wait_version(session: Session, model: str, after: Optional[str], timeout: float) -> str:
    """Waits until the latest version of a model is another one than `after`, and returns its name.

    `after`: a name, a number, or a ref; None: the first version ends the wait. Raises TimeoutError after `timeout`
    seconds; NotFoundError, ConnectError, AnswerError, ProtocolError.
    """
    end = time.monotonic() + timeout
    tag: Optional[str] = None
    while True:
        began = time.monotonic()
        if tag is not None and began >= end:
            lack = "no version" if after is None else f"no version after {after}"
            raise TimeoutError(f"{model} has {lack} after {timeout:g} seconds")
        seconds = max(1, min(longest_wait(session.options.stall_timeout), int(end - began)))
        try:
            found = read_versions(session, model, tag, seconds)
        except errors.AnswerError as error:
            pause_after(error, began)
            continue
        if found.latest is not None and (after is None or not _is_named(found, after)):
            return found.latest
        if tag == found.tag:  # something on the way answers without waiting
            time.sleep(max(0.0, min(1.0, end - time.monotonic())))
        tag = found.tag


def _is_named(found: Versions, name: str) -> bool:
    """Returns whether a name, a number or a ref is that of the latest version."""
    if name == found.latest:
        return True
    row = next((row for row in found.rows if row["version"] == found.latest), {})
    refs = row.get("refs")
    return name in (str(row.get("number")), row.get("commit"), *(refs if isinstance(refs, list) else ()))


def _is_version(row: Any) -> bool:
    """Returns whether a server's row describes a version."""
    return (isinstance(row, dict) and all(isinstance(row.get(name), str) for name in _TEXTS) and
            type(row.get("number")) in (int, type(None)) and
            all(type(row.get(name)) is int for name in ("total_bytes", "file_bytes")))
