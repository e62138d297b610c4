"""Requests to servers that hold the same models: small answers, whole, from the first server that works."""
from __future__ import annotations

import json
import os
import threading
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from . import errors, http
from .address import Endpoint
from .options import Options
from .pool import Pool
from .retry import RETRIED_STATUSES, Patience, retry_after


class Session:
    """The servers of a client, its options, and its connections. For any number of threads; may be pickled."""

    def __init__(self, endpoints: Sequence[Endpoint], options: Options):
        self.endpoints = tuple(endpoints)
        self.options = options
        self.pool = Pool(options)
        self._moved = 0  # how often `exchange` went on with the next server

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        fields: Optional[Dict[str, str]] = None,
        endpoint: Optional[Endpoint] = None,
        read: Optional[Callable[[http.Answer], Any]] = None,
        once: bool = False,
        limit: int = http.MAX_TEXT_BYTES,
    ) -> Tuple[Any, http.Answer]:
        """Sends a request until a server answers with 2xx, and returns its body and head.

        `body` is sent as JSON. `endpoint`: only this server. `read` reads the body; by default it is returned whole, at
        most `limit` bytes.
        `once`: a fault is raised at once, for callers that try again by themselves.
        Raises AnswerError for a refusal, ConnectError and ProtocolError after `retry_for`.
        """
        data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        read = read or (lambda answer: answer.read(limit))
        servers = (endpoint,) if endpoint else self.endpoints
        patience = Patience(self.options.retry_for)
        faults: Dict[Endpoint, Exception] = {}
        attempt = 0
        while True:
            server = servers[attempt % len(servers)]
            attempt += 1
            try:
                return self._ask_once(server, method, path, data, fields or {}, read)
            except _Again as again:
                if once:
                    raise again.error from None
                faults[server] = again.error
                if attempt % len(servers) == 0:
                    patience.wait(_together(faults, again.error), again.after)

    def exchange(self, exchange: "Exchange", stopping: Optional[threading.Event] = None) -> None:
        """Does an exchange, on the next server if one fails; what had come before a cut is kept.

        Processes begin with different servers, and stay with one that works. A server that has another version, or does
        not have what is asked for, is left out while others are left. `stopping` ends the waiting between tries, with
        TensordError. Raises AnswerError for a refusal, ConnectError and ProtocolError after `retry_for`.
        """
        servers = list(self.endpoints)
        patience = Patience(self.options.retry_for, stopping)
        faults: Dict[Endpoint, Exception] = {}
        while stopping is None or not stopping.is_set():
            server = servers[(os.getpid() + self._moved) % len(servers)]
            done = exchange.done
            try:
                method, path, fields, data = exchange.request()
                self._ask_once(server, method, path, data, fields, exchange.read)
                return
            except (errors.ChangedError, errors.NotFoundError):
                servers.remove(server)
                if not servers:
                    raise
            except _Again as again:
                if exchange.done > done:
                    patience.progress()
                    faults.clear()
                faults[server] = again.error
                self._moved += 1
                if len(faults) >= len(servers):
                    patience.wait(_together(faults, again.error), again.after)
                    faults.clear()
        raise errors.TensordError("the read was stopped")

    def _ask_once(self, server, method, path, data, fields, read):
        try:
            connection = self.pool.take(server)
        except (errors.ConnectError, errors.ProtocolError) as error:
            raise _Again(error) from error
        reused = connection.used
        while True:
            try:
                answer = connection.request(method, path, fields, data)
                break
            except http.Dropped as error:
                self.pool.drop(connection)
                if not reused or error.started:
                    raise _Again(errors.ConnectError(str(error))) from error
                reused = False  # the server closed an idle connection just then
                try:
                    connection = self.pool.take(server, fresh=True)
                except (errors.ConnectError, errors.ProtocolError) as refused:
                    raise _Again(refused) from refused
            except errors.ProtocolError as error:
                self.pool.drop(connection)
                raise _Again(error) from error
            except BaseException:
                self.pool.drop(connection)
                raise
        try:
            if answer.status >= 300:
                error = http.error_of(answer, path)
                if answer.status in RETRIED_STATUSES:
                    raise _Again(error, retry_after(answer))
                raise error
            body = read(answer)
        except http.Dropped as error:
            raise _Again(errors.ConnectError(str(error))) from error
        except errors.ProtocolError as error:
            raise _Again(error) from error
        finally:
            if answer.finished:
                self.pool.give(connection)
            else:
                self.pool.drop(connection)
        return body, answer

    def ask_json(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        """Sends a request, and returns the JSON of its answer. `how` and errors as of `ask`."""
        text, answer = self.ask(method, path, body, **how)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            where = answer.connection.endpoint
            raise errors.ProtocolError(f"{where}{path} answered no JSON: is this a tensord server?") from error


class Exchange:
    """A request whose answer may come in parts: after a cut, `request` asks for what is missing."""

    done = 0  # grows with what has come and is kept

    def request(self) -> Tuple[str, str, Dict[str, str], bytes]:
        """Returns the method, the path, further fields and the body of the next request."""
        raise NotImplementedError

    def read(self, answer: http.Answer) -> None:
        """Reads the body of an answer with 2xx. Raises ProtocolError, Dropped."""
        raise NotImplementedError


def _together(faults: Dict[Endpoint, Exception], last: Exception) -> Exception:
    """Returns an error that names what happened on each server, where none could be reached."""
    if len(faults) > 1 and all(type(fault) is errors.ConnectError for fault in faults.values()):
        return errors.ConnectError("; ".join(map(str, faults.values())))
    return last


class _Again(Exception):
    """A fault that another try may mend."""

    def __init__(self, error: Exception, after: float = 0.0):
        super().__init__(str(error))
        self.error = error
        self.after = after
