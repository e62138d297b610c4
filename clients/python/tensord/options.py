"""The settings of a client: each can be given to `connect` and to every function that takes a URL."""
from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any, List, Optional

MIB = 1024 * 1024
TLS_FILES = ("ca_file", "cert_file", "key_file")
TLS_NAMES = (*TLS_FILES, "verify")  # all options of TLS


@dataclass(frozen=True)
class Options:
    """token: sent as `Authorization: Bearer`; None: TENSORD_TOKEN, or none.
    connections: the most connections of one read. range_bytes: the most bytes of one request of a large read.
    ring_bytes: the most memory for bytes that cannot be received in place (another dtype, gaps, a GPU).
    connect_timeout: seconds. stall_timeout: seconds without a byte, after which a request is sent again.
    retry_for: seconds without progress, after which a read gives up.
    ca_file: certificates to trust with https; None: the system's. verify: False accepts any certificate.
    cert_file, key_file: the client's own certificate and its key, in PEM, for servers that want one of clients; a
    key_file of None: the key is in cert_file.
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
    cert_file: Optional[str] = None
    key_file: Optional[str] = None
    verify: bool = True
    progress: Optional[bool] = None

    def __post_init__(self) -> None:
        for name in ("connections", "range_bytes", "ring_bytes"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{self._bare(name)} is {value!r}; it must be a whole number of at least 1")
        for name in ("connect_timeout", "stall_timeout", "retry_for"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not value > 0:
                raise ValueError(f"{self._bare(name)} is {value!r}; it must be a number of seconds above 0")
        for name, kinds in (("verify", (bool,)), ("progress", (bool, type(None))), ("token", (str, type(None))),
                            *((file, (str, os.PathLike, type(None))) for file in TLS_FILES)):
            if not isinstance(getattr(self, name), kinds):
                names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
                raise ValueError(f"{self._bare(name)} is of type {type(getattr(self, name)).__name__}; it must be "
                                 f"{names}")
        if self.key_file is not None and self.cert_file is None:
            raise ValueError(f"{self._bare('key_file')} is given and {self._bare('cert_file')} is not: a client shows "
                             "a certificate and its key")

    def named(self, name: str) -> str:
        """Returns the name of an option for messages, in the form in which its user writes it."""
        return f"{name}="

    def _bare(self, name: str) -> str:
        """Returns the name of an option alone, for messages about its value."""
        return self.named(name).rstrip("=")

    def with_value(self, name: str) -> str:
        """Returns an option that is a number or a path, with its value, in the form in which its user writes it."""
        value, named = getattr(self, name), self.named(name)
        shown = f"{value:g}" if isinstance(value, (int, float)) else repr(os.fspath(value))
        return named + ("" if named.endswith("=") else " ") + shown

    def tls_names(self) -> List[str]:
        """Returns the options that are given and make sense with https:// alone, as messages call them."""
        return [self.named(name) for name in TLS_NAMES if getattr(self, name) not in (None, True)]

    def find_token(self) -> Optional[str]:
        """Returns the token to send, from the option or the environment; None: none."""
        token = self.token if self.token is not None else os.environ.get("TENSORD_TOKEN")
        if token and any(not 32 < ord(c) < 127 for c in token):
            where = self.named("token") if self.token is not None else "TENSORD_TOKEN"
            raise ValueError(f"the token of {where} has a space, a line end or another character that HTTP does not "
                             "allow in one")
        return token or None


NAMES = tuple(field.name for field in dataclasses.fields(Options))


def of(options: Optional[Options] = None, **given: Any) -> Options:
    """Returns options with some replaced. Raises TypeError for a name that is not one of them."""
    for name in given:
        if name not in NAMES:
            raise TypeError(f"unknown option {name!r}; the options are {', '.join(NAMES)}")
    return dataclasses.replace(options or Options(), **given)
