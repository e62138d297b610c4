"""Requests to servers that hold the same models: small answers, whole, from the first server that works."""
from __future__ import annotations

import copy
import functools
import json
import os
import threading
from typing import Any, Callable, Dict, Optional, Sequence, Tuple, TypeVar, Union

from .. import errors
from ..address import Endpoint
from ..options import Options
from . import http
from .bodies import Body
from .pool import LentPool, Pool
from .retry import Fault, Patience, Servers, attempt, is_retried, retry_after

T = TypeVar("T")
Refusal = Callable[[http.Answer, str], errors.AnswerError]  # makes an error of an answer and its path


class Session:
    """The servers of a client, its options, and its connections. For any number of threads; may be pickled."""

    def __init__(self, endpoints: Sequence[Endpoint], options: Options):
        """Raises AddressError for options of TLS with tensord://, which has none: a token would be sent in the clear.
        """
        self.endpoints = tuple(endpoints)
        for endpoint in self.endpoints:
            if endpoint.written == "tensord" and options.tls_names():
                raise errors.AddressError(f"{' and '.join(options.tls_names())} cannot be used with tensord://, which "
                                          f"is plain HTTP: the URL over TLS is {endpoint.https_url}")
        self.options = options
        self.pool = Pool(options)
        self._preferred: Optional[Endpoint] = None  # the server of the last exchange

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
        wait: Optional[float] = None,
        refusal: Refusal = http.error_of,
    ) -> Tuple[Any, http.Answer]:
        """Sends a request until a server answers with 2xx, and returns its body and head.

        `body`: a Body, sent as it is; anything else as JSON. `endpoint`: only this server. `read` reads the body; by
        default it is returned whole, at most `limit` bytes. `wait`: as of Connection.read_head. `refusal`: makes the
        error of an answer that is not 2xx.
        `once`: a fault is raised at once, for callers that try again by themselves.
        Raises AnswerError for a refusal, ConnectError and ProtocolError after `retry_for`.
        """
        data: Union[bytes, Body] = b""
        if body is not None:
            data = body if isinstance(body, Body) else json.dumps(body, separators=(",", ":")).encode()
        servers = Servers((endpoint,) if endpoint else self.endpoints)
        send = functools.partial(self._ask_once, method=method, path=path, data=data, fields=fields or {},
                                 read=read or (lambda answer: answer.read(limit)), wait=wait, refusal=refusal)
        if not once:
            return attempt(servers, Patience(self.options), send)
        try:
            return send(servers.endpoint(0))
        except Fault as fault:
            raise fault.error from None

    def begin(self, exchange: "Exchange") -> Optional["Begun"]:
        """Sends the request of an exchange, and does not wait for the answer. None: it could not be sent now."""
        try:
            connection = self.pool.take(self.endpoints[self._first()])
        except errors.TensordError:
            return None
        try:
            method, path, fields, data = exchange.request()
            connection.send(method, path, fields, data)
        except http.Dropped:
            self.pool.drop(connection)
            return None
        except BaseException:
            self.pool.drop(connection)
            raise
        return Begun(self.pool, connection, method, path)

    def finish(self, exchange: "Exchange", begun: Optional["Begun"]) -> None:
        """Does the rest of an exchange that `begin` began; all of it where that came to nothing. Raises as `exchange`.
        """
        connection = begun.take() if begun is not None else None
        if begun is not None and connection is not None:
            head = functools.partial(connection.read_head, begun.method)
            try:
                self.end(self._guarded(connection, head), begun.path, exchange.read)
                return
            except (http.Dropped, Fault, errors.TensordError):
                pass  # it may have waited for too long; a lasting fault comes again
        self.exchange(exchange)

    def exchange(self, exchange: "Exchange", stopping: Optional[threading.Event] = None) -> None:
        """Does an exchange, on the next server if one fails; bytes that arrived before a cut are not sent again.

        Processes begin with different servers, and stay with one that works. Servers that have another version, or not
        the resource, are skipped as long as others remain. `stopping` ends the waiting between tries, with
        TensordError. Raises AnswerError for a refusal, ConnectError and ProtocolError after `retry_for`.
        """

        def once(server: Endpoint) -> None:
            method, path, fields, data = exchange.request()
            try:
                self._ask_once(server, method, path, data, fields, exchange.read)
            except (errors.ChangedError, errors.NotFoundError) as error:
                raise Fault(error, lasting=True) from error
            self._preferred = server

        attempt(Servers(self.endpoints), Patience(self.options, stopping), once, self._first(), lambda: exchange.done)

    def _first(self) -> int:
        """Returns the index of the server for the first try of an exchange."""
        preferred = self._preferred
        return os.getpid() % len(self.endpoints) if preferred is None else self.endpoints.index(preferred)

    def _ask_once(self, server: Endpoint, method: str, path: str, data: Union[bytes, Body], fields: Dict[str, str],
                  read: Callable[[http.Answer], Any], wait: Optional[float] = None,
                  refusal: Refusal = http.error_of) -> Tuple[Any, http.Answer]:
        """Sends a request to one server, and returns the result of `read`, and the head. Raises AnswerError
        for a refusal, Fault for other failures."""
        answer = self.begin_on(server, lambda connection: connection.request(method, path, fields, data, wait))
        return self.end(answer, path, read, refusal), answer

    def begin_on(self, server: Endpoint, send: Callable[[http.Connection], T],
                 may_repeat: Callable[[], bool] = lambda: True) -> T:
        """Calls `send` with a connection to a server, and returns its result; calls it again with a new connection if
        an idle one turns out to be closed and `may_repeat` allows it. Raises Fault; the connection of a `send` that
        fails is closed."""
        connection = self._take(server)
        reused = connection.used
        while True:
            try:
                return self._guarded(connection, functools.partial(send, connection))
            except http.Dropped as error:
                if not reused or not may_repeat():
                    raise Fault(errors.ConnectError(str(error))) from error
                reused = False  # the server closed an idle connection just then
                connection = self._take(server, fresh=True)

    def _take(self, server: Endpoint, fresh: bool = False) -> http.Connection:
        """Returns a connection to a server. Raises Fault."""
        try:
            return self.pool.take(server, fresh)
        except (errors.ConnectError, errors.ProtocolError) as error:
            raise Fault(error) from error

    def _guarded(self, connection: http.Connection, do: Callable[[], T]) -> T:
        """Calls `do`, which uses a connection, and returns its result. Drops a connection that fails. Raises Dropped if
        it ended before an answer began, Fault for other faults."""
        try:
            return do()
        except http.Dropped as error:
            self.pool.drop(connection)
            if error.started:
                raise Fault(errors.ConnectError(str(error))) from error
            raise
        except (errors.SetupError, errors.ProtocolError) as error:
            self.pool.drop(connection)
            raise Fault(error) from error
        except BaseException:
            self.pool.drop(connection)
            raise

    def end(self, answer: http.Answer, path: str, read: Callable[[http.Answer], T],
            refusal: Refusal = http.error_of) -> T:
        """Calls `read` with an answer, gives its connection back, and returns the result. Raises AnswerError for a
        refusal, Fault for faults."""
        try:
            if answer.status >= 300:
                error = refusal(answer, path)
                if is_retried(answer):
                    raise Fault(error, retry_after(answer))
                raise error
            return read(answer)
        except http.Dropped as error:
            raise Fault(errors.ConnectError(str(error))) from error
        except errors.ProtocolError as error:
            raise Fault(error) from error
        finally:
            if answer.finished:
                self.pool.give(answer.connection)
            else:
                self.pool.drop(answer.connection)

    def lent(self) -> "Session":
        """Returns a session that uses the connections of this one. `break_lent` of it breaks those in use."""
        other = copy.copy(self)
        other.pool = LentPool(self.pool)
        return other

    def break_lent(self) -> None:
        """Breaks the connections in use, for good, if this session is from `lent`."""
        if isinstance(self.pool, LentPool):
            self.pool.stop()

    def ask_json(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        """Sends a request, and returns the JSON of its answer. `how` and errors as of `ask`."""
        return json_of(*self.ask(method, path, body, **how), path)

    def close(self) -> None:
        """Closes the idle connections. The session may be used again."""
        self.pool.close()


def json_of(text: bytes, answer: http.Answer, path: str) -> Any:
    """Returns the JSON of an answer's body. Raises ProtocolError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where = answer.connection.endpoint
        raise errors.ProtocolError(f"{where}{path} did not answer with JSON: is this a tensord server?") from error


class Begun:
    """A request that was sent and an answer that was not read yet. Closes the connection if it never is."""

    def __init__(self, pool: Pool, connection: http.Connection, method: str, path: str):
        self.method, self.path = method, path
        self._pool, self._pid = pool, os.getpid()
        self._connection: Optional[http.Connection] = connection

    def take(self) -> Optional[http.Connection]:
        """Returns the connection, once; None after a fork, when it is the parent's."""
        connection, self._connection = self._connection, None
        return connection if self._pid == os.getpid() else None

    def __del__(self) -> None:
        connection = self.take()
        if connection is not None:
            self._pool.drop(connection)


class Exchange:
    """A request with an answer that may come in parts: after a cut, `request` asks for the missing bytes."""

    done = 0  # bytes that have arrived and need not be sent again

    def request(self) -> Tuple[str, str, Dict[str, str], bytes]:
        """Returns the method, the path, further fields and the body of the next request."""
        raise NotImplementedError

    def read(self, answer: http.Answer) -> None:
        """Reads the body of an answer with 2xx. Raises ProtocolError, Dropped."""
        raise NotImplementedError
