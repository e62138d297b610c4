"""URLs of servers, models and datasets.

    http://host:port/models/ID      tensord://host:port/ID            a model
    http://host:port/datasets/ID    tensord://host:port/datasets/ID   a dataset
    https://host/prefix/models/ID   tensord://a:8080,b:8080/ID        after a prefix; on two servers
    http://host:port                tensord://host:port               a server

tensord:// and http:// are plain HTTP; tensords:// and https:// use TLS. tensords://host:8443/ID means
https://host:8443/models/ID; with two servers it is tensords://a:8443,b:8443/ID. `?checkpoint=ID` after a model's URL
chooses a checkpoint, `?version=NAME` a version, `?split=NAME` after a dataset's a split. Several URLs, as a list or
between commas, name one model or dataset on several servers.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, List, Optional, Sequence, Tuple, Union
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from .errors import AddressError

DEFAULT_PORT = 8080  # of tensord:// and tensords://, as the server's own default
SCHEMES = {"http": ("http", 80), "https": ("https", 443), "tensord": ("http", DEFAULT_PORT),
           "tensords": ("https", DEFAULT_PORT)}  # by URL scheme: the HTTP scheme and the default port

Urls = Union[str, Sequence[str]]


@dataclass(frozen=True)
class Endpoint:
    """The address of one server, and the prefix that a proxy puts before its paths ("" or "/x"). `written` and
    `resource` are parts of the user's URL, for messages."""

    scheme: str  # http or https
    host: str
    port: int
    prefix: str = ""
    written: str = field(default="", compare=False)  # the scheme in the URL, such as "tensord" for http
    resource: str = field(default="", compare=False)  # the path in the URL: "/models/ID" or ""

    @property
    def authority(self) -> str:
        """Returns the host, an IPv6 address in brackets, and the port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def host_header(self) -> str:
        """Returns the host, with the port unless it is the scheme's own, for the Host field and for messages."""
        own = f":{80 if self.scheme == 'http' else 443}"
        return self.authority[: -len(own)] if self.authority.endswith(own) else self.authority

    @property
    def https_url(self) -> str:
        """Returns the URL of the same over TLS."""
        return f"https://{self.authority}{self.prefix}{self.resource}"

    @property
    def origin(self) -> str:
        """Returns the scheme, the host and the port."""
        return f"{self.scheme}://{self.host_header}"

    def __str__(self) -> str:
        return self.origin + self.prefix


@dataclass(frozen=True)
class Address:
    """A decoded URL: its servers, and either a model with a checkpoint (None: the first) and a version (None: the URL
    has none), or a dataset with a split (None: the URL has none). `model` and `dataset` are "" if the URL does not have
    them."""

    endpoints: Tuple[Endpoint, ...]
    model: str = ""
    checkpoint: Optional[str] = None
    dataset: str = ""
    split: Optional[str] = None
    version: Optional[str] = None


def is_url(text: object) -> bool:
    """Returns whether a text looks like a URL of this package rather than like a path."""
    return isinstance(text, str) and re.match(r"(tensord|http)s?://", text) is not None


def glob_of(text: str) -> str:
    """Returns the glob that matches a text and nothing else."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", text)


def parse(urls: Urls) -> Address:
    """Parses one URL, several between commas, or a list of them. All must name the same model or dataset.

    Raises AddressError.
    """
    texts: List[str] = []
    if not isinstance(urls, (str, list, tuple)):
        raise AddressError(f"a URL is a string, or a list of them; this is of type {type(urls).__name__}")
    for text in [urls] if isinstance(urls, str) else list(urls):
        if not isinstance(text, str):
            raise AddressError(f"a URL is a string, not {type(text).__name__}")
        texts += re.split(r",(?=\w+://)", text.strip())
    if not texts:
        raise AddressError("no URL is given")
    addresses = [_parse_one(text) for text in texts]
    first = addresses[0]
    if len({replace(a, endpoints=()) for a in addresses}) > 1:
        raise AddressError(f"the URLs name different {'datasets' if first.dataset else 'models'}: {', '.join(texts)}")
    return replace(first, endpoints=tuple(dict.fromkeys(e for a in addresses for e in a.endpoints)))


def _parse_one(text: str) -> Address:
    try:
        parts = urlsplit(text)
    except ValueError:  # such as brackets without an IPv6 address
        raise AddressError(f"{text!r} has no host, or brackets that are not around an IPv6 address") from None
    if parts.scheme not in SCHEMES:
        raise AddressError(f"{text!r} is not the URL of a tensord server: use http://, https://, tensord:// or "
                           "tensords://")
    if "@" in parts.netloc:
        raise AddressError(f"the URL of {parts.netloc.rpartition('@')[2]} has a user or a password: "
                           "give the token by TENSORD_TOKEN, or as the option token")
    if parts.scheme.startswith("tensord"):
        found = re.match(r"()/+(datasets)/+(.*[^/].*)$", parts.path) or re.match(r"()()(.*)$", parts.path)
    else:
        found = re.match(r"(.*?)/(models|datasets)(?:/(.*))?$", parts.path) or re.match(r"(.*)()()$", parts.path)
    assert found  # urlsplit removes line ends
    prefix, kind, name = found[1].rstrip("/"), found[2], unquote((found[3] or "").strip("/"))
    resource = _resource(kind, name, parts.query)
    endpoints = tuple(_endpoint(parts.scheme, one, prefix, resource, text) for one in parts.netloc.split(","))
    what, allowed = ("dataset", ("split",)) if kind == "datasets" else ("model", ("checkpoint", "version"))
    chosen = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key not in allowed:
            raise AddressError(f"{text!r} has a parameter {key!r}: only {' and '.join(f'{one}=' for one in allowed)} "
                               f"{'is' if len(allowed) == 1 else 'are'} allowed in a {what}'s URL")
        chosen[key] = value
    if chosen.get("version") == "":
        raise AddressError(f"{text!r} has an empty version: version=latest is the latest one")
    if kind == "datasets":
        return Address(endpoints, dataset=name, **chosen)
    return Address(endpoints, name, **chosen)


def _resource(kind: str, name: str, query: str) -> str:
    """Returns the end of an http:// URL of a model or dataset; "" for a server's."""
    if not name:
        return ""
    return (dataset_path(name) if kind == "datasets" else path_of(name)) + (f"?{query}" if query else "")


def _endpoint(written: str, netloc: str, prefix: str, resource: str, text: str) -> Endpoint:
    scheme, default = SCHEMES[written]
    try:
        parts = urlsplit("//" + netloc)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port == 0 or re.search(r"[\x00-\x20\x7f]", netloc + prefix):
        raise AddressError(f"{text!r} has no host, or a port that is not a number")
    return Endpoint(scheme, host, port or default, prefix, written, resource)


def path_of(model: str, *rest: str, **query: Optional[str]) -> str:
    """Returns the path of a model on a server, percent-encoded, with `rest` (encoded already) after it, and the
    parameters of `query` that are not None."""
    given = urlencode({name: text for name, text in query.items() if text is not None}, quote_via=quote)
    return "/".join(("/models", quote(model, safe="/"), *rest)) + (f"?{given}" if given else "")


def dataset_path(dataset: str, *rest: str) -> str:
    """Returns the path of a dataset on a server, as `path_of` does for a model."""
    return "/".join(("/datasets", quote(dataset, safe="/"), *rest))


def check_glob(match: Any) -> str:
    """Returns a glob over ids or names. Raises TypeError if it is not a string."""
    if not isinstance(match, str):
        raise TypeError(f"match is a glob, such as \"layers.0.*\", not {match!r}")
    return match
