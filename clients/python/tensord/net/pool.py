"""A pool of connections between requests: one per process, for all threads, and never across a fork."""
from __future__ import annotations

import os
import threading
import weakref
from typing import Dict, List, Set

from .. import errors
from ..address import Endpoint
from ..options import Options
from .http import Connection


class Pool:
    """Idle connections by server. A connection is with one thread at a time; a forked child starts with none.

    Pickled, a pool is its options alone.
    """

    def __init__(self, options: Options):
        self.options = options
        self._start()
        _pools.add(self)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._idle: Dict[Endpoint, List[Connection]] = {}
        self._busy: Set[Connection] = set()

    def take(self, endpoint: Endpoint, fresh: bool = False) -> Connection:
        """Returns an idle connection, or a new one. `fresh`: always a new one. Raises ConnectError."""
        while not fresh:
            with self._lock:
                idle = self._idle.get(endpoint)
                connection = idle.pop() if idle else None
                if connection is not None:
                    self._busy.add(connection)
            if connection is None:
                break
            if not connection.stale:
                return connection
            self.drop(connection)
        connection = Connection(endpoint, self.options)
        with self._lock:
            self._busy.add(connection)
        return connection

    def give(self, connection: Connection) -> None:
        """Takes back a connection after its last answer was read to the end."""
        with self._lock:
            self._busy.discard(connection)
            idle = self._idle.setdefault(connection.endpoint, [])
            if len(idle) < self.options.connections:
                idle.append(connection)
                return
        connection.close()

    def drop(self, connection: Connection) -> None:
        """Closes a connection that cannot be used again."""
        with self._lock:
            self._busy.discard(connection)
        connection.close()

    def close(self) -> None:
        """Closes the idle connections. The pool may be used again."""
        with self._lock:
            idle = [connection for kept in self._idle.values() for connection in kept]
            self._idle.clear()
        for connection in idle:
            connection.close()

    def __getstate__(self) -> Options:
        return self.options

    def __setstate__(self, options: Options) -> None:
        Pool.__init__(self, options)

    def _forget_after_fork(self) -> None:
        """Closes a child's copies of its parent's sockets. The lock may have been held by a thread that is gone."""
        inherited = list(self._busy) + [connection for kept in self._idle.values() for connection in kept]
        self._start()
        for connection in inherited:
            connection.abandon()


class LentPool(Pool):
    """A pool that takes its connections from another one. `stop` breaks those that are in use, for good."""

    def __init__(self, pool: Pool):
        self._pool = pool
        self._stopped = False
        super().__init__(pool.options)

    def take(self, endpoint: Endpoint, fresh: bool = False) -> Connection:
        """Returns a connection of the other pool. Raises as Pool.take; ConnectError after `stop`."""
        connection = self._pool.take(endpoint, fresh)
        with self._lock:
            if not self._stopped:
                self._busy.add(connection)
                return connection
        self._pool.drop(connection)
        raise errors.ConnectError("the work was stopped")

    def give(self, connection: Connection) -> None:
        """Gives a connection back to the other pool."""
        with self._lock:
            self._busy.discard(connection)
            stopped = self._stopped
        if stopped:
            self._pool.drop(connection)
        else:
            self._pool.give(connection)

    def drop(self, connection: Connection) -> None:
        """Closes a connection that cannot be used again."""
        with self._lock:
            self._busy.discard(connection)
        self._pool.drop(connection)

    def stop(self) -> None:
        """Breaks the connections that are in use. Threads that wait for them get ConnectError."""
        with self._lock:
            self._stopped = True
            busy = list(self._busy)
        for connection in busy:
            connection.stop()


_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool._forget_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
