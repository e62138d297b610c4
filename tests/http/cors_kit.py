"""A browser as far as CORS goes: what a page of an origin gets to see of an answer. By the Fetch standard
(https://fetch.spec.whatwg.org/), sections "HTTP extensions", "CORS check" and "CORS-preflight fetch"; no code of the
project."""
import re

# "CORS-safelisted method", "CORS-safelisted response-header name"
SAFE_METHODS = {"GET", "HEAD", "POST"}
SAFE_ANSWER_FIELDS = {"cache-control", "content-language", "content-length", "content-type", "expires",
                      "last-modified", "pragma"}
SAFE_TYPES = {"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"}


class Blocked(Exception):
    """The browser lets the page see nothing."""


def items(response, name):
    """The items of a list field, in small letters ("extract header list values")."""
    return {item.strip().lower() for line in response.all(name) for item in line.split(",")}


def is_safe(name, value):
    """"CORS-safelisted request-header"."""
    name = name.lower()
    if len(value) > 128:
        return False
    if name in ("accept", "accept-language", "content-language"):
        return True
    if name == "content-type":
        return value.split(";")[0].strip().lower() in SAFE_TYPES
    return name == "range" and re.fullmatch(r"bytes=\d+-\d*", value) is not None


def check(response, origin):
    """"CORS check", of a request without credentials."""
    allowed = response.all("Access-Control-Allow-Origin")
    if len(allowed) != 1 or allowed[0] not in ("*", origin):
        raise Blocked(f"{origin} is not allowed by {response}")


class Page:
    """A page of an origin whose script asks a server: `ask(path, headers, method)` sends a request and returns the
    answer of the strict client of harness.py."""

    def __init__(self, origin, ask):
        self.origin, self.ask, self.preflights = origin, ask, 0

    def fetch(self, path, headers=(), method="GET", **kw):
        """Return the answer to which the promise of fetch() resolves, with only those fields that the script can read.
        Raise Blocked where the promise rejects."""
        headers = dict(headers)
        unsafe = sorted(name.lower() for name, value in headers.items() if not is_safe(name, value))
        if unsafe or method not in SAFE_METHODS:
            self.preflight(path, method, unsafe)
        response = self.ask(path, {**headers, "Origin": self.origin}, method, **kw)
        check(response, self.origin)
        exposed = SAFE_ANSWER_FIELDS | items(response, "Access-Control-Expose-Headers")
        if "*" in exposed:
            exposed |= {name.lower() for name, _ in response.headers}
        response.headers = [(name, value) for name, value in response.headers if name.lower() in exposed]
        return response

    def preflight(self, path, method, names):
        self.preflights += 1
        fields = {"Accept": "*/*", "Access-Control-Request-Method": method, "Origin": self.origin}
        if names:
            fields["Access-Control-Request-Headers"] = ",".join(names)
        response = self.ask(path, fields, "OPTIONS")
        check(response, self.origin)
        if not 200 <= response.status <= 299:
            raise Blocked(f"the preflight's status is not ok: {response}")
        if method not in SAFE_METHODS and method.lower() not in items(response, "Access-Control-Allow-Methods"):
            raise Blocked(f"{method} is not allowed by {response}")
        allowed = items(response, "Access-Control-Allow-Headers")
        for name in names:
            if name not in allowed and ("*" not in allowed or name == "authorization"):
                raise Blocked(f"{name} is not allowed by {response}")
