"""Reads boxes of a checkpoint's tensors, each to its destination.

A read requests all boxes as one answer: a small one by `tensors:read`, a large one as a registered plan. The answer of
a plan has an entity tag and ranges, so that it can be read over several connections and resumed after a cut. Both name
the manifest's tag, so that a server refuses (412) if its checkpoint has changed.
"""
from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from .. import errors
from ..address import Endpoint, path_of
from ..net import http, ring, transfer
from ..net.buffer import empty_bytes
from ..net.progress import Progress
from ..net.resources import read_resource
from ..net.session import Session
from ..options import MIB
from . import boxes, dtypes
from .boxes import Box
from .manifest import Manifest
from .verifying import Arrivals, Sums

AT_ONCE_BYTES = 2 * MIB  # read by one request without a plan
AT_ONCE_BOXES = 2000
PLAN_BOXES = 20000  # the most of one plan
PLAN_TEXT_BYTES = 4 * MIB  # about the most text of one; the server takes 8 MiB by default


@dataclass
class Want:
    """A box and its destination: `view`, memory of exactly its bytes; or `copy`, a function that takes pieces of it.

    `copy(memory, piece)` gets the bytes of a piece, a box within the box, in row-major order. It runs in any thread. It
    returns None when it no longer uses the memory, or a function that waits for that.
    """

    box: Box
    view: Optional[memoryview] = None
    copy: Optional[Callable[[memoryview, Box], Optional[Callable[[], None]]]] = None


class Reader:
    """Reads from one version of one checkpoint. For any number of threads; may be pickled."""

    def __init__(self, session: Session, manifest: Manifest, checkpoint: Optional[str]):
        self.session = session
        self.manifest = manifest
        self.checkpoint = checkpoint

    def read(self, wants: Sequence[Want], what: str = "", stop: Optional[transfer.Stop] = None,
             sums: Optional[Sums] = None) -> None:
        """Reads all boxes. Returns when each is in its place. `stop` lets another thread end the read.

        `sums`: the boxes are whole tensors, and their bytes are checked before anything is converted. Raises
        NotFoundError and TensordError for boxes that cannot be read, before anything is read; ChangedError if the
        checkpoint has changed since the manifest; ConnectError, ProtocolError, AnswerError; VerifyError.
        """
        direct = [_Piece(want, want.box, self._nbytes(want.box)) for want in wants if want.copy is None]
        for piece in direct:
            if len(piece.view) != piece.nbytes:
                raise ValueError(f"{piece.box.name}: the destination has {len(piece.view)} bytes, where the box "
                                 f"has {piece.nbytes}")
        staged_bytes = sum(self._nbytes(want.box) for want in wants if want.copy is not None)
        total = staged_bytes + sum(piece.nbytes for piece in direct)
        with Progress(total, what or self.manifest.model, self.session.options.progress) as progress:
            for plan in _plans(sorted((p for p in direct if p.nbytes), key=self._place)):
                self._read_plan(plan, progress, None, stop, sums)
            if staged_bytes and sums is not None:
                self._read_whole([want for want in wants if want.copy is not None], progress, stop, sums)
            elif staged_bytes:
                self._read_staged([want for want in wants if want.copy is not None], staged_bytes, progress, stop)

    def _read_whole(self, wants: List[Want], progress: Progress, stop: Optional[transfer.Stop], sums: Sums) -> None:
        """Reads tensors that are checked before they are copied: as many at once as fit into `ring_bytes`, at least
        one, each whole."""
        at = 0
        while at < len(wants):
            end, total = at, 0
            while end < len(wants) and (end == at or total + self._nbytes(wants[end].box)
                                        <= self.session.options.ring_bytes):
                total += self._nbytes(wants[end].box)
                end += 1
            held = [Want(want.box, view=memoryview(empty_bytes(self._nbytes(want.box)))) for want in wants[at:end]]
            pieces = [_Piece(want, want.box, self._nbytes(want.box)) for want in held]
            for plan in _plans(sorted((p for p in pieces if p.nbytes), key=self._place)):
                self._read_plan(plan, progress, None, stop, sums)
            for want, got in zip(wants[at:end], held):
                assert want.copy is not None and got.view is not None
                wait = want.copy(got.view, want.box) if len(got.view) else None
                if wait is not None:
                    wait()
            at = end

    def _read_staged(self, wants: List[Want], total: int, progress: Progress, stop: Optional[transfer.Stop]) -> None:
        nbytes, count = ring.pieces(self.session.options.ring_bytes, self.session.options.connections)
        pinned = any(getattr(want.copy, "pinned", False) for want in wants)
        memory = ring.take_pinned(nbytes, count) if pinned else ring.Ring(min(nbytes, max(4096, total)), count)
        pieces = []
        for want in wants:
            bits = dtypes.bits_of(self.manifest[want.box.name].dtype) or 8
            for box in boxes.pieces_of(want.box, max(1, memory.nbytes * 8 // bits)):
                pieces.append(_Piece(want, box, self._nbytes(box), bits))
        # Falling sizes of elements, so that each piece begins at a multiple of its own.
        pieces = sorted((p for p in pieces if p.nbytes), key=lambda p: (-p.bits, *self._place(p)))
        try:
            for plan in _plans(pieces):
                self._read_plan(plan, progress, memory, stop)
        finally:
            memory.drain()
        if pinned:
            ring.keep_pinned(memory)

    def _nbytes(self, box: Box) -> int:
        info = self.manifest.served(box.name)
        if box.sizes == info.shape:
            return info.nbytes
        return dtypes.nbytes_of(info.dtype, box.sizes)

    def _place(self, piece: "_Piece") -> Tuple[str, int, Tuple[int, ...]]:
        """Returns the key that sorts boxes by their place in the files, so that neighbours are sent as one run."""
        info = self.manifest[piece.box.name]
        return info.file, info.offset or 0, piece.box.start

    def _items(self, pieces: Sequence["_Piece"]) -> List[Dict[str, str]]:
        items = []
        for piece in pieces:
            text = piece.box.slice_text(self.manifest[piece.box.name].shape)
            items.append({"name": piece.box.name, "slice": text} if text else {"name": piece.box.name})
        return items

    def path(self, *rest: str) -> str:
        """Returns the server's path of a resource of the model: `path("plans")` is that of its plans. It names the
        checkpoint, if this Reader is of a named one, and the manifest's version."""
        return path_of(self.manifest.model, *rest, checkpoint=self.checkpoint, version=self.manifest.version)

    # ---- one answer

    def _read_plan(self, pieces: List["_Piece"], progress: Progress, memory: Optional[ring.Ring],
                   stop: Optional[transfer.Stop], sums: Optional[Sums] = None) -> None:
        """Reads pieces into their views, and checks each by `sums`; or by way of `memory`, where nothing is checked."""
        total = sum(piece.nbytes for piece in pieces)
        arrived = None if sums is None else Arrivals(sums, [(piece.box.name, piece.view) for piece in pieces])
        if stop is None and total <= AT_ONCE_BYTES and len(pieces) <= AT_ONCE_BOXES:
            self._read_at_once(pieces, total, progress)
            if arrived is not None:
                arrived(0, total)
            return
        source = transfer.Source(self.session.endpoints, lambda endpoint: self._register(endpoint, pieces, total))
        if memory is None:
            read_resource(self.session, source, [piece.view for piece in pieces], 0, progress, stop, arrived)
        else:
            jobs = list(_staged_jobs(pieces, memory))
            transfer.read(self.session, source, jobs, progress, memory.borrow, stop)

    def _read_at_once(self, pieces: List["_Piece"], total: int, progress: Progress) -> None:
        staging = bytearray(total) if any(piece.want.copy for piece in pieces) else None
        views = [memoryview(staging)] if staging is not None else [piece.view for piece in pieces]

        def receive(answer: http.Answer) -> None:
            if answer.status != 200 or answer.length != total:
                raise errors.ProtocolError(f"{answer.connection.endpoint} answered {answer.length} bytes with status "
                                           f"{answer.status}, where {total} were asked for")
            for view in views:
                answer.receive_into(view)

        body = {"tensors": self._items(pieces), "manifest": self.manifest.etag}
        try:
            self.session.ask("POST", self.path("tensors:read"), body, read=receive)
        except errors.ChangedError as error:
            raise self._changed(error) from error
        progress.add(total)
        at = 0
        for piece in pieces if staging is not None else ():
            done = piece.copy(views[0][at : at + piece.nbytes])
            if done is not None:
                done()
            at += piece.nbytes

    def _register(self, endpoint: Endpoint, pieces: List["_Piece"], total: int) -> transfer.Resource:
        """Registers the boxes as a plan on one server, and returns the address of its answer."""
        body = {"boxes": self._items(pieces), "manifest": self.manifest.etag}
        try:
            plan = self.session.ask_json("POST", self.path("plans"), body, endpoint=endpoint, once=True)
        except errors.ChangedError as error:
            raise self._changed(error) from error
        return plan_resource(plan, 0, endpoint, total)

    def _changed(self, error: errors.ChangedError) -> errors.ChangedError:
        return errors.ChangedError(f"{self.manifest.model} changed on the server after its manifest was read; nothing "
                                   f"of the new version was used: load again; call refresh() of an open model "
                                   f"first ({error})", 412, error.code, error.url)


def plan_resource(plan: Any, rank: int, endpoint: Endpoint, nbytes: Optional[int] = None) -> transfer.Resource:
    """Returns where a registered plan's answer for a rank is. Raises ProtocolError if the server did not answer
    with a plan, or with another length than `nbytes`."""
    try:
        row = plan["ranks"][rank]
        href, etag, length = row["href"], row["etag"], row["nbytes"]
        fits = re.fullmatch(r"/(?!/)[!-~]*", href) and re.fullmatch(r'"?[!#-~]+"?', etag) and type(length) is int
    except (KeyError, IndexError, TypeError) as error:
        raise errors.ProtocolError(f"{endpoint} did not answer with a plan") from error
    if not fits or not 0 <= length < 2**63:  # the path and the tag go into requests
        raise errors.ProtocolError(f"{endpoint} answered a plan with the path {href!r}, the tag {etag!r} and "
                                   f"{length!r} bytes, which no tensord server does")
    resource = transfer.Resource(href, _quoted(etag), length)
    if nbytes is not None and resource.nbytes != nbytes:
        raise errors.ProtocolError(f"{endpoint} would send {resource.nbytes} bytes, where the boxes have {nbytes}")
    return resource


def _quoted(etag: str) -> str:
    return etag if etag.startswith('"') else f'"{etag}"'


@dataclass
class _Piece:
    """A part of a want that is read in one go: the whole box, or a piece that fits into borrowed memory."""

    want: Want
    box: Box
    nbytes: int
    bits: int = 8

    @property
    def view(self) -> memoryview:
        """Returns the destination of a want without `copy`."""
        assert self.want.view is not None
        return self.want.view

    def copy(self, memory: memoryview) -> Optional[Callable[[], None]]:
        """Copies the piece to a want with `copy`. Returns a function that waits for the end of the copy; None: it has
        ended."""
        assert self.want.copy is not None
        return self.want.copy(memory, self.box)


def _plans(pieces: Sequence[_Piece]) -> Iterator[List[_Piece]]:
    """Cuts a list into plans that a server takes as one body."""
    plan: List[_Piece] = []
    text = 0
    for piece in pieces:
        size = len(json.dumps(piece.box.name)) + 40 + 40 * len(piece.box.sizes)
        if plan and (len(plan) == PLAN_BOXES or text + size > PLAN_TEXT_BYTES):
            yield plan
            plan, text = [], 0
        plan.append(piece)
        text += size
    if plan:
        yield plan


def _staged_jobs(pieces: Sequence[_Piece], memory: ring.Ring) -> Iterator[transfer.Job]:
    """Gathers pieces into ranges that fit into borrowed memory."""
    offset, at = 0, 0
    while at < len(pieces):
        end, nbytes = at, 0
        while end < len(pieces) and nbytes + pieces[end].nbytes <= memory.nbytes:
            nbytes += pieces[end].nbytes
            end += 1
        yield transfer.Job(offset, nbytes, finish=_copier(pieces[at:end], memory))
        offset += nbytes
        at = end


def _copier(pieces: Sequence[_Piece], memory: ring.Ring) -> Callable[[memoryview], None]:
    def finish(lent: memoryview) -> None:
        waits: List[Callable[[], None]] = []

        def wait_for_all() -> None:
            for wait in waits:
                wait()

        try:
            at = 0
            for piece in pieces:
                wait = piece.copy(lent[at : at + piece.nbytes])
                if wait is not None:
                    waits.append(wait)
                at += piece.nbytes
        finally:
            memory.give(lent, wait_for_all if waits else None)

    return finish
