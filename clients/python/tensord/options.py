"""The settings of a client: each can be given to `connect` and to every function that takes a URL."""
from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any, Optional

MIB = 1024 * 1024


@dataclass(frozen=True)
class Options:
    """token: sent as `Authorization: Bearer`; None: TENSORD_TOKEN, or none.
    connections: the most connections of one read. range_bytes: the most bytes of one request of a large read.
    ring_bytes: the most memory for bytes that cannot be received in place (another dtype, gaps, a GPU).
    connect_timeout: seconds. stall_timeout: seconds without a byte, after which a request is sent again.
    retry_for: seconds without progress, after which a read gives up.
    ca_file: certificates to trust with https; None: the system's. verify: False accepts any certificate.
    progress: True, False or None (True if standard error is a terminal).
    """

    token: Optional[str] = dataclasses.field(default=None, repr=False)
    connections: int = 8
    range_bytes: int = 16 * MIB
    ring_bytes: int = 64 * MIB
    connect_timeout: float = 10.0
    stall_timeout: float = 30.0
    retry_for: float = 120.0
    ca_file: Optional[str] = None
    verify: bool = True
    progress: Optional[bool] = None

    def __post_init__(self):
        for name in ("connections", "range_bytes", "ring_bytes"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is {value!r}; it is a whole number of at least 1")
        for name in ("connect_timeout", "stall_timeout", "retry_for"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not value > 0:
                raise ValueError(f"{name} is {value!r}; it is a number of seconds above 0")
        for name, kinds in (("verify", (bool,)), ("progress", (bool, type(None))), ("token", (str, type(None))),
                            ("ca_file", (str, os.PathLike, type(None)))):
            if not isinstance(getattr(self, name), kinds):
                names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
                raise ValueError(f"{name} is of type {type(getattr(self, name)).__name__}; it is {names}")

    def find_token(self) -> Optional[str]:
        """Returns the token to send, from the option or the environment; None: none."""
        token = self.token if self.token is not None else os.environ.get("TENSORD_TOKEN")
        if token and any(not 32 < ord(c) < 127 for c in token):
            where = "token=" if self.token is not None else "TENSORD_TOKEN"
            raise ValueError(f"the token of {where} has a space, a line end or another character that HTTP does not "
                             "allow in one")
        return token or None


NAMES = tuple(field.name for field in dataclasses.fields(Options))


def of(options: Optional[Options] = None, **given: Any) -> Options:
    """Returns options with some replaced. Raises TypeError for a name that is not one of them."""
    for name in given:
        if name not in NAMES:
            raise TypeError(f"there is no option {name!r}; the options are {', '.join(NAMES)}")
    return dataclasses.replace(options or Options(), **given)
