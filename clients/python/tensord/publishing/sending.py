"""Sends the bytes of known blobs in parts, over several connections, and resumes after cuts."""
from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from .. import errors
from ..address import Endpoint
from ..net.http import Answer
from ..net.retry import Patience, Servers, attempt
from ..net.session import Session
from ..net.workers import do_all
from ..options import MIB
from .place import ANSWER_SECONDS, Blob, Place, State, read_state, refusal
from .sources import Counter, Source

PIECE_BYTES = 256 * 1024  # parts begin at its multiples, and end there or with the blob
PART_BYTES = 32 * MIB
MAX_STUCK = 3  # times in a row that the server lacks as much as before, although everything was sent

Ranges = List[Tuple[int, int]]  # [first, end), in order


@dataclass
class Tally:
    """Counts bytes, for all threads: `sent` with those that are sent again. `on_done` gets the bytes that the server
    has; less than 0 if bytes that were sent are lost."""

    on_done: Counter = lambda count: None
    sent: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_sent(self, count: int) -> None:
        """Counts bytes that were sent."""
        with self._lock:
            self.sent += count


@dataclass
class Lack:
    """A blob that a server lacks, of it the ranges (none: the whole blob), and where its bytes are."""

    source: Source
    blob: Blob
    ranges: Ranges
    tally: Tally
    complete: bool = False  # the server has it now


@dataclass
class _Part:
    """Bytes [first, end) of a blob, that one request sends."""

    lack: Lack
    first: int
    end: int


def known_state(session: Session, place: Place, blob: Blob) -> Optional[State]:
    """Asks what the server has of a blob; None: it knows nothing of it. Raises as Session.ask."""
    path = place.path("blobs", blob.digest)
    try:
        state: State = session.ask("GET", path, read=functools.partial(read_state, path=path), refusal=refusal,
                                   wait=ANSWER_SECONDS)[0]
    except errors.NotFoundError:
        return None
    return state


def send_lacks(session: Session, place: Place, lacks: Sequence[Lack]) -> None:
    """Sends everything that a server lacks. Each Lack then says whether its blob is complete.

    Raises AnswerError, DigestError, ConnectError, ProtocolError; TensordError for a file that has changed; OSError.
    """
    parts = [part for lack in lacks for part in _parts_of(lack, session.options.connections)]
    do_all(session, parts, functools.partial(_send_part, place), min(session.options.connections, len(parts)))


def _parts_of(lack: Lack, connections: int) -> Iterator[_Part]:
    """Cuts what is missing into parts. Raises ProtocolError for ranges that the blob does not have."""
    size = lack.blob.size
    for first, end in lack.ranges or [(0, size)]:
        if end > size:
            raise errors.ProtocolError(f"the server asks for bytes of {lack.source.name} that it does not have")
        first -= first % PIECE_BYTES
        end = min(size, end + -end % PIECE_BYTES)
        if connections == 1 or first == end:  # an empty blob is one part, too
            yield _Part(lack, first, end)
            continue
        for at in range(first - first % PART_BYTES, end, PART_BYTES):
            yield _Part(lack, max(at, first), min(at + PART_BYTES, end))


def _send_part(place: Place, session: Session, part: _Part, stopping: threading.Event) -> None:
    if part.lack.complete:  # by another client
        part.lack.tally.on_done(part.end - part.first)
        return
    sending = _Sending(session, place, part)
    attempt(Servers(session.endpoints), Patience(session.options, stopping), sending.send_rest,
            done=lambda: sending.arrived)


class _Sending:
    """A part on its way, with what is left of it after cuts."""

    def __init__(self, session: Session, place: Place, part: _Part):
        self._session, self._lack = session, part.lack
        self._path = place.path("blobs", part.lack.blob.digest)
        self._rest: Ranges = [(part.first, part.end)]
        self._has_failed = False
        self.arrived = 0  # bytes of the part that the server has

    def send_rest(self, endpoint: Endpoint) -> None:
        """Sends what is left. After a failure asks first what has arrived. Raises Fault."""
        if self._has_failed:
            self._look(endpoint)
        self._has_failed = True
        while self._rest and not self._lack.complete:
            first, end = self._rest[0]
            self._put(endpoint, first, end)
            self._rest.pop(0)
            self.arrived += end - first

    def _put(self, endpoint: Endpoint, first: int, end: int) -> None:
        """Sends one range, once. Raises Fault; DigestError, AnswerError."""
        lack, passed = self._lack, [0]
        fields = {}
        if first > 0 or end < lack.blob.size:
            fields["Content-Range"] = f"bytes {first}-{end - 1}/{lack.blob.size}"

        def count(sent: int) -> None:
            passed[0] += sent
            lack.tally.add_sent(sent)
            lack.tally.on_done(sent)

        try:
            with lack.source.body(first, end, count) as body:
                answer = self._session.begin_on(endpoint, lambda connection: connection.request(
                    "PUT", self._path, fields, body, ANSWER_SECONDS), lambda: not passed[0])
                state = self._session.end(answer, self._path, self._read, refusal)
        except BaseException as error:
            lack.tally.on_done(-passed[0])
            if isinstance(error, errors.DigestError):
                lack.source.check()  # then that is the cause
            raise
        lack.tally.on_done(end - first - passed[0])
        lack.complete = lack.complete or state.complete

    def _look(self, endpoint: Endpoint) -> None:
        """Keeps of the rest what the server lacks. Changes nothing if it knows nothing of the blob. Raises Fault."""
        try:
            answer = self._session.begin_on(endpoint, lambda connection: connection.request(
                "GET", self._path, wait=ANSWER_SECONDS))
            state = self._session.end(answer, self._path, self._read, refusal)
        except errors.NotFoundError:
            return
        before = _count(self._rest)
        self._lack.complete = self._lack.complete or state.complete
        self._rest = [] if state.complete else _common(self._rest, state.missing)
        gained = before - _count(self._rest)
        self.arrived += gained
        self._lack.tally.on_done(gained)

    def _read(self, answer: Answer) -> State:
        state = read_state(answer, self._path)
        if state.digest != self._lack.blob.digest or state.size != self._lack.blob.size:
            raise errors.ProtocolError(f"{self._path}: the server describes another blob: {state.digest} of "
                                       f"{state.size} bytes")
        return state


def _count(ranges: Ranges) -> int:
    return sum(end - first for first, end in ranges)


def _common(one: Ranges, other: Ranges) -> Ranges:
    """Returns the bytes that are in both."""
    found = []
    i = j = 0
    while i < len(one) and j < len(other):
        first, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if first < end:
            found.append((first, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


class Stuck:
    """Notices that a server asks for the same bytes again and again."""

    def __init__(self) -> None:
        self._least: Optional[int] = None
        self._times = 0

    def check(self, lacks: Sequence[Lack], what: str) -> int:
        """Returns the bytes that are lacking. Raises ProtocolError when they have not become fewer for a while."""
        nbytes = sum(_count(lack.ranges) if lack.ranges else lack.blob.size for lack in lacks)
        if self._least is None or nbytes < self._least:
            self._least, self._times = nbytes, 0
            return nbytes
        self._times += 1
        if self._times >= MAX_STUCK:
            raise errors.ProtocolError(f"{what}: the server asks for the same bytes again, although they were sent "
                                       "several times")
        return nbytes


def by_digest(missing: Dict[str, Ranges], lacks: Dict[str, Lack]) -> List[Lack]:
    """Returns those of `lacks` that a server says it lacks, with the ranges. Raises ProtocolError for any other."""
    found = []
    for digest, ranges in missing.items():
        lack = lacks.get(digest)
        if lack is None:
            raise errors.ProtocolError(f"the server asks for a blob that was not named: {digest[:80]!r}")
        lack.ranges, lack.complete = ranges, False
        found.append(lack)
    return found
