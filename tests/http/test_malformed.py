"""Malformed HTTP/1 requests, each with its section of RFC 9112 or 9110; then odd ones that must work.

No malformed request may be answered 2xx, none may hang past the header deadline, none may hurt the next client, and
nothing that follows it on its connection may be executed as a second request (request smuggling).
"""
import itertools
import re
import socket
import threading
import time

import pytest

from harness import Conn, Incomplete, ProtocolError, Server, check_error

HEADER_TIMEOUT = 2          # seconds, as configured below
PATIENCE = HEADER_TIMEOUT + 3

OK = b"/models/plain/files/config.json"        # answered 200 when asked properly
MARK = b"/models/smuggled-%s"                  # {M} in a case: a target that must never be asked


@pytest.fixture(scope="module")
def guard(tree):
    s = Server(tree.root, "--header-timeout", HEADER_TIMEOUT, "--max-connections-per-address", 1000)
    yield s
    s.stop()


def get(target=OK, headers=b"Host: x\r\n", version=b"HTTP/1.1", method=b"GET"):
    return method + b" " + target + b" " + version + b"\r\n" + headers + b"\r\n"


def hdr(*lines):
    """A good GET with further header lines, given without CRLF."""
    return get(headers=b"Host: x\r\n" + b"".join(l + b"\r\n" for l in lines))


SMUGGLE = b"GET {M} HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"0\r\n\r\n" + SMUGGLE


def body(n, *lines):
    return hdr(b"Content-Length: %d" % n, *lines)


# name: (section, bytes). RFC 9112 unless 9110 is said.
MALFORMED = {
    # --- request line
    "lower-case method": ("9110 9.1", get(method=b"get")),
    "mixed-case method": ("9110 9.1", get(method=b"Get")),
    "unknown method": ("9110 9.1, 15.6.2", get(method=b"FOO")),
    "unknown long method": ("9112 3", get(method=b"G" * 200)),
    "method that begins with GET": ("9110 9.1", get(method=b"GETX")),
    "method with a bad byte": ("9110 5.6.2", get(method=b"GE(T")),
    "method with a control byte": ("9110 5.6.2", get(method=b"GE\x01T")),
    "method with an 8-bit byte": ("9110 5.6.2", get(method=b"G\xcbT")),
    "space before the method": ("9112 3", b" " + get()),
    "no method": ("9112 3", OK + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
    "no target": ("9112 3", b"GET HTTP/1.1\r\nHost: x\r\n\r\n"),
    "two spaces instead of a target": ("9112 3", b"GET  HTTP/1.1\r\nHost: x\r\n\r\n"),
    "HTTP/0.9": ("9112 2.3", b"GET " + OK + b"\r\n\r\n"),
    "HTTP/0.9 with headers": ("9112 3", b"GET " + OK + b"\r\nHost: x\r\n\r\n"),
    "only a method": ("9112 3", b"GET\r\n\r\n"),
    "version 2.0": ("9112 2.3, 9110 15.6.6", get(version=b"HTTP/2.0")),
    "version 3.0": ("9112 2.3", get(version=b"HTTP/3.0")),
    "version 0.9 said aloud": ("9112 2.3", get(version=b"HTTP/0.9")),
    "version 9.9": ("9112 2.3", get(version=b"HTTP/9.9")),
    "version 1.10": ("9112 2.3", get(version=b"HTTP/1.10")),
    "version 01.1": ("9112 2.3", get(version=b"HTTP/01.1")),
    "version 1": ("9112 2.3", get(version=b"HTTP/1")),
    "version 1.": ("9112 2.3", get(version=b"HTTP/1.")),
    "version 1.1x": ("9112 2.3", get(version=b"HTTP/1.1x")),
    "version with a comma": ("9112 2.3", get(version=b"HTTP/1,1")),
    "version in lower case": ("9112 2.3", get(version=b"http/1.1")),
    "version HTTP": ("9112 2.3", get(version=b"HTTP")),
    "version of another protocol": ("9112 2.3", get(version=b"ICAP/1.0")),
    "version with a space in it": ("9112 2.3", get(version=b"HTTP/ 1.1")),
    "word after the target": ("9112 3.2", get(OK + b" junk")),
    "space in the target": ("9112 3.2", get(b"/models/sub dir")),
    "target without a slash": ("9112 3.2", get(OK[1:])),
    "authority-form with GET": ("9112 3.2.3", get(b"example.com:80")),
    "asterisk-form with GET": ("9112 3.2.4", get(b"*")),
    "asterisk-form with HEAD": ("9112 3.2.4", get(b"*", method=b"HEAD")),
    "CONNECT": ("9110 9.3.6", get(b"example.com:443", method=b"CONNECT")),
    "CONNECT with a path": ("9110 9.3.6", get(method=b"CONNECT")),
    "TRACE": ("9110 9.3.8", get(method=b"TRACE")),
    "OPTIONS *": ("9110 9.3.7, 405 by our interface", get(b"*", method=b"OPTIONS")),
    "absolute-form without an authority": ("9110 4.2.1", get(b"http://" + OK)),
    "absolute-form of another scheme": ("9112 3.2.2", get(b"ftp://x" + OK)),
    "absolute-form with user information": ("9110 4.2.4", get(b"http://u:p@x" + OK)),
    "fragment in the target": ("9112 3.2", get(OK + b"#frag")),
    "control byte in the target": ("9112 3.2, 3986 2", get(OK + b"\x01")),
    "DEL in the target": ("9112 3.2, 3986 2", get(OK + b"\x7f")),
    "8-bit byte in the target": ("9112 3.2, 3986 2", get(OK + b"\xff")),
    "raw UTF-8 in the target": ("9112 3.2, 3986 2.5", get("/models/plain/files/ünï".encode())),
    "tab in the target": ("9112 3.2", get(OK + b"\tx")),
    "bare CR in the target": ("9112 2.2", get(OK + b"\rx")),
    "quotes and angles in the target": ("9112 3.2, 3986 2", get(OK + b'?match="<>"')),
    "backslash in the target": ("9112 3.2, 3986 2", get(b"\\models\\plain")),
    "brace and pipe in the target": ("9112 3.2, 3986 2", get(OK + b"?match={a|b}^`")),
    "%00 in the target": ("3986 2.1, 7.3", get(OK + b"%00")),
    "%00 before an extension": ("3986 7.3", get(OK + b"%00.txt")),
    "%00 in a query": ("3986 7.3", get(b"/models?match=*%00")),
    "percent at the end": ("3986 2.1", get(OK + b"%")),
    "percent and one digit": ("3986 2.1", get(OK + b"%6")),
    "percent and no digits": ("3986 2.1", get(b"/models/plain/files/config%zzjson")),
    "percent-u": ("3986 2.1", get(b"/models/plain/files/config%u002ejson")),
    "bad escape in a query": ("3986 2.1", get(b"/models?match=%zz")),
    "escape that is not UTF-8": ("3986 2.5", get(b"/models/plain/files/%ff%fe")),
    "overlong UTF-8 slash": ("3629 3", get(b"/models/plain/files/..%c0%afmany/model.safetensors")),
    "request line of 20 KB": ("9112 3, 9110 15.5.15", get(OK + b"?match=" + b"a" * 20000)),
    "request line of 200 KB": ("9112 3", get(OK + b"?match=" + b"a" * 200000)),
    "endless request line": ("9112 3", b"GET /" + b"a" * 300000),
    # --- header lines
    "space before the colon": ("9112 5.1", hdr(b"X-A : b")),
    "tab before the colon": ("9112 5.1", hdr(b"X-A\t: b")),
    "space before the colon of Content-Length": ("9112 5.1", hdr(b"Content-Length : 5") + b"hello"),
    "space before the colon of Transfer-Encoding": ("9112 5.1", hdr(b"Transfer-Encoding : chunked") + CHUNKED),
    "space before the colon of Host": ("9112 5.1", get(headers=b"Host : x\r\n")),
    "header line without a colon": ("9112 5", hdr(b"Nocolon")),
    "header line of one word and a space": ("9112 5", hdr(b"Nocolon here")),
    "space in a name": ("9110 5.1", hdr(b"X A: b")),
    "parenthesis in a name": ("9110 5.1", hdr(b"X(A): b")),
    "at sign in a name": ("9110 5.1", hdr(b"X@A: b")),
    "slash in a name": ("9110 5.1", hdr(b"X/A: b")),
    "quote in a name": ("9110 5.1", hdr(b'"X": b')),
    "8-bit byte in a name": ("9110 5.1", hdr(b"X\xe9: b")),
    "control byte in a name": ("9110 5.1", hdr(b"X\x01A: b")),
    "DEL in a name": ("9110 5.1", hdr(b"X\x7fA: b")),
    "NUL in a name": ("9110 5.1", hdr(b"X\0A: b")),
    "white space before the first header": ("9112 2.2", get(headers=b" Host: x\r\n")),
    "white space line before Host": ("9112 2.2", get(headers=b" X: y\r\nHost: x\r\n")),
    "bare CR in a value": ("9112 2.2, 9110 5.5", hdr(b"X-A: b\rc")),
    "bare CR and a header in a value": ("9112 2.2", hdr(b"X-A: b\rContent-Length: 5")),
    "control byte in a value": ("9110 5.5", hdr(b"X-A: b\x01c")),
    "vertical tab in a value": ("9110 5.5", hdr(b"X-A: b\x0bc")),
    "DEL in a value": ("9110 5.5", hdr(b"X-A: b\x7fc")),
    "escape sequence in a value": ("9110 5.5", hdr(b"User-Agent: \x1b[2Jboo")),
    "100 header lines": ("9110 5.4, our limit of 64", hdr(*[b"X-%d: y" % i for i in range(100)])),
    "10,000 header lines": ("9110 5.4", hdr(*[b"X-%d: y" % i for i in range(10000)])),
    "header value of 20 KB": ("9110 5.4", hdr(b"X-A: " + b"y" * 20000)),
    "header value of 1 MB": ("9110 5.4", hdr(b"X-A: " + b"y" * 1000000)),
    "header name of 20 KB": ("9110 5.4", hdr(b"X" * 20000 + b": y")),
    "header without an end": ("9110 5.4", b"GET " + OK + b" HTTP/1.1\r\nHost: x\r\nX-A: " + b"y" * 300000),
    "obs-fold of Transfer-Encoding": ("9112 5.2", hdr(b"Transfer-Encoding:\r\n chunked") + CHUNKED),
    "obs-fold of Content-Length": ("9112 5.2", hdr(b"Content-Length:\r\n 5") + b"hello"),
    "obs-fold of Host": ("9112 5.2", get(headers=b"Host:\r\n x\r\n")),
    "bare LF hides Content-Length": ("9112 2.2", hdr(b"X-A: b\nContent-Length: 5") + b"hello"),
    # --- Host
    "no Host": ("9112 3.2", get(headers=b"")),
    "no Host among others": ("9112 3.2", get(headers=b"X-A: b\r\nAccept: */*\r\n")),
    "two Hosts": ("9112 3.2", get(headers=b"Host: x\r\nHost: y\r\n")),
    "two equal Hosts": ("9112 3.2", get(headers=b"Host: x\r\nHost: x\r\n")),
    "two Hosts apart": ("9112 3.2", get(headers=b"Host: x\r\nX-A: b\r\nhost: y\r\n")),
    "Host with a space": ("9112 3.2", get(headers=b"Host: a b\r\n")),
    "Host with a slash": ("9112 3.2", get(headers=b"Host: a/b\r\n")),
    "Host with user information": ("9112 3.2", get(headers=b"Host: a@b\r\n")),
    "Host with a scheme": ("9112 3.2", get(headers=b"Host: http://a\r\n")),
    "Host with a bad port": ("9112 3.2", get(headers=b"Host: a:port\r\n")),
    "Host list": ("9112 3.2", get(headers=b"Host: a, b\r\n")),
    "Host with an open bracket": ("9112 3.2", get(headers=b"Host: [::1\r\n")),
    "Host with a control byte": ("9112 3.2", get(headers=b"Host: a\x01b\r\n")),
    "Host with an 8-bit byte": ("9112 3.2", get(headers=b"Host: \xe9\r\n")),
    "Host with a quote": ("9112 3.2", get(headers=b'Host: "x"\r\n')),
    "Host with a question mark": ("9112 3.2", get(headers=b"Host: a?b\r\n")),
    # --- Content-Length
    "Content-Length in letters": ("9112 6.3", hdr(b"Content-Length: abc") + SMUGGLE),
    "Content-Length negative": ("9112 6.3", hdr(b"Content-Length: -1") + SMUGGLE),
    "Content-Length with a plus": ("9112 6.3", hdr(b"Content-Length: +5") + b"hello"),
    "Content-Length hexadecimal": ("9112 6.3", hdr(b"Content-Length: 0x5") + b"hello"),
    "Content-Length with a fraction": ("9112 6.3", hdr(b"Content-Length: 5.0") + b"hello"),
    "Content-Length with a space in it": ("9112 6.3", hdr(b"Content-Length: 5 5") + b"hello"),
    "Content-Length list": ("9112 6.3", hdr(b"Content-Length: 5, 5") + b"hello"),
    "Content-Length list that differs": ("9112 6.3", hdr(b"Content-Length: 5, 6") + b"hello!"),
    "Content-Length empty": ("9112 6.3", hdr(b"Content-Length:") + b"hello"),
    "Content-Length 2^64": ("9112 6.3", hdr(b"Content-Length: 18446744073709551616") + SMUGGLE),
    "Content-Length 2^64+5": ("9112 6.3", hdr(b"Content-Length: 18446744073709551621") + b"hello"),
    "Content-Length of 40 digits": ("9112 6.3", hdr(b"Content-Length: " + b"9" * 40) + SMUGGLE),
    "Content-Length with letters behind": ("9112 6.3", hdr(b"Content-Length: 0x") + SMUGGLE),
    "two Content-Lengths": ("9112 6.3", hdr(b"Content-Length: 5", b"Content-Length: 6") + b"hello!"),
    "two equal Content-Lengths": ("9112 6.3", hdr(b"Content-Length: 5", b"Content-Length: 5") + b"hello"),
    "Content-Length 0 and another": ("9112 6.3", hdr(b"Content-Length: 0", b"Content-Length: 39") + SMUGGLE),
    "Content-Length another and 0": ("9112 6.3", hdr(b"Content-Length: 39", b"content-length: 0") + SMUGGLE),
    "body on GET": ("9110 9.3.1, refused by our interface", body(5) + b"hello"),
    "body on HEAD": ("9110 9.3.2", get(method=b"HEAD", headers=b"Host: x\r\nContent-Length: 5\r\n") + b"hello"),
    "body on GET that never comes": ("9112 8", body(50)),
    "huge body on GET": ("9110 15.5.14", body(1 << 40) + b"x" * 1000),
    "body on POST": ("9110 15.5.6", get(method=b"POST", headers=b"Host: x\r\nContent-Length: 5\r\n") + b"hello"),
    # --- Transfer-Encoding
    "TE and CL": ("9112 6.1", hdr(b"Content-Length: 5", b"Transfer-Encoding: chunked") + CHUNKED),
    "CL and TE": ("9112 6.1", hdr(b"Transfer-Encoding: chunked", b"Content-Length: 5") + CHUNKED),
    "CL 0 and TE": ("9112 6.1", hdr(b"Content-Length: 0", b"Transfer-Encoding: chunked") + CHUNKED),
    "TE identity": ("9112 7, 6.1", hdr(b"Transfer-Encoding: identity")),
    "TE identity and CL": ("9112 6.1", hdr(b"Transfer-Encoding: identity", b"Content-Length: 5") + b"hello"),
    "TE unknown": ("9112 6.1", hdr(b"Transfer-Encoding: xchunked") + CHUNKED),
    "TE gzip": ("9112 6.1", hdr(b"Transfer-Encoding: gzip") + CHUNKED),
    "TE gzip, chunked": ("9112 6.1", hdr(b"Transfer-Encoding: gzip, chunked") + CHUNKED),
    "TE chunked, identity": ("9112 6.3", hdr(b"Transfer-Encoding: chunked, identity") + CHUNKED),
    "TE chunked twice": ("9112 6.1", hdr(b"Transfer-Encoding: chunked, chunked") + CHUNKED),
    "TE on two lines": ("9112 6.1", hdr(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity") + CHUNKED),
    "TE quoted": ("9112 6.1", hdr(b'Transfer-Encoding: "chunked"') + CHUNKED),
    "TE with a vertical tab": ("9110 5.5", hdr(b"Transfer-Encoding: \x0bchunked") + CHUNKED),
    "TE with a parameter": ("9112 7", hdr(b"Transfer-Encoding: chunked;x=y") + CHUNKED),
    "TE empty": ("9112 6.1", hdr(b"Transfer-Encoding:") + CHUNKED),
    "TE in HTTP/1.0":
    ("9112 6.1", get(version=b"HTTP/1.0", headers=b"Host: x\r\nTransfer-Encoding: chunked\r\n") + CHUNKED),
    "TE in capitals": ("9112 6.1", hdr(b"TRANSFER-ENCODING: CHUNKED") + CHUNKED),
    "chunked body on GET":
    ("9110 9.3.1, refused by our interface", hdr(b"Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n"),
    "chunk size in letters": ("9112 7.1", hdr(b"Transfer-Encoding: chunked") + b"zz\r\nhello\r\n" + CHUNKED),
    "chunk size negative": ("9112 7.1", hdr(b"Transfer-Encoding: chunked") + b"-5\r\nhello\r\n" + CHUNKED),
    "chunk size overflow":
    ("9112 7.1", hdr(b"Transfer-Encoding: chunked") + b"1" + b"0" * 16 + b"\r\nhello\r\n" + CHUNKED),
    "chunk size missing": ("9112 7.1", hdr(b"Transfer-Encoding: chunked") + b"\r\nhello\r\n" + CHUNKED),
    "chunk longer than said": ("9112 7.1", hdr(b"Transfer-Encoding: chunked") + b"3\r\nhello\r\n" + CHUNKED),
    "chunk extension without an end": ("9112 7.1.1", hdr(b"Transfer-Encoding: chunked") + b"5;" + b"x" * 100000),
    "chunked body that never comes": ("9112 8", hdr(b"Transfer-Encoding: chunked")),
    # --- Expect, upgrades, other protocols
    "Expect with a body": ("9110 10.1.1", body(5, b"Expect: 100-continue") + b"hello"),
    "Expect with a body that waits": ("9110 10.1.1", body(5, b"Expect: 100-continue")),
    "Expect on POST": ("9110 10.1.1",
                       get(method=b"POST", headers=b"Host: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n")),
    "HTTP/2 preface": ("9113 3.4", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"),
    "TLS hello": ("8446 4.1.2", bytes.fromhex("16030100700100006c0303") + bytes(range(1, 102))),
    "SSH banner": ("9112 3", b"SSH-2.0-OpenSSH_9.2\r\n"),
    "SMTP": ("9112 3", b"EHLO x\r\nMAIL FROM:<a@b>\r\n"),
    "answer instead of a request": ("9112 2.1", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "random bytes": ("9112 3", bytes((i * 167 + 13) % 256 for i in range(2000)) + b"\r\n\r\n"),
    "NULs": ("9112 3", b"\0" * 1000),
    "NULs and an end": ("9112 3", b"\0" * 100 + b"\r\n\r\n"),
    "empty lines without end": ("9112 2.2", b"\r\n" * 2000),
    "spaces": ("9112 3", b" " * 5000 + b"\r\n\r\n"),
    # --- requests that stop
    "half a request line": ("9112 9.5", b"GET /mod"),
    "half the headers": ("9112 9.5", b"GET " + OK + b" HTTP/1.1\r\nHost: x\r\nX-A: b\r\n"),
    "half an end": ("9112 9.5", b"GET " + OK + b" HTTP/1.1\r\nHost: x\r\n\r"),
    "one byte": ("9112 9.5", b"G"),
}

# Requests that are refused but whose end is certain: the connection may continue, and the next bytes are a new request.
WELL_FRAMED = {
    "lower-case method",
    "mixed-case method",
    "unknown method",
    "unknown long method",
    "method that begins with GET",
    "CONNECT with a path",
    "TRACE",
    "%00 in the target",
    "%00 before an extension",
    "%00 in a query",
    "percent at the end",
    "percent and one digit",
    "percent and no digits",
    "percent-u",
    "bad escape in a query",
    "escape that is not UTF-8",
    "overlong UTF-8 slash",
}

# Cases whose tail belongs to them, or rightly begins another request: only the first answer is checked.
TAIL_IS_NO_SMUGGLING = {
    "half a request line": "the tail completes it",
    "one byte": "the tail completes it",
    "empty lines without end": "9112 2.2: empty lines before a request are ignored",
    "NULs and an end": "libmicrohttpd 0.9.75 takes a line of NULs for an empty one; nothing before it was executed",
}

# Cases that Debian 12's libmicrohttpd 0.9.75 decides before the application sees them. Each: section, bytes, why it
# cannot be refused, and the most second answers it may draw from its own bytes. A case that the library (or the server)
# begins to refuse fails its test, so that it is moved up into MALFORMED.
KNOWN_LIBRARY_LIMITS = {
    "NUL in the target":
    ("9112 3.2", get(OK + b"\0.txt"), "the target reaches the application as a C string, cut at the NUL", 0),
    "NUL in a value": ("9110 5.5", hdr(b"X-A: b\0c"), "values reach the application as C strings", 0),
    "obs-fold":
    ("9112 5.2", hdr(b"X-A: b\r\n c"), "the library appends the folded line to the name, X-A becomes X-Ac", 0),
    "empty name": ("9112 5", hdr(b": b", b"X-B: c"), "the header block ends there for the library", 1),
    "empty name and a body behind":
    ("9112 5", hdr(b": b", b"Content-Length: 5") + b"hello", "the same: the rest is read as a request", 1),
    "bare LF everywhere":
    ("9112 2.2", hdr(b"X-A: b").replace(b"\r\n", b"\n"), "the library takes LF for CRLF (2.2 allows it)", 0),
    "bare LF after the request line": ("9112 2.2", get().replace(b"\r\n", b"\n", 1), "as above", 0),
    "bare LF after a header": ("9112 2.2", hdr(b"X-A: b\nX-B: c"), "as above", 0),
}
assert len(KNOWN_LIBRARY_LIMITS) <= 8

# Requests that libmicrohttpd 0.9.75 answers itself, before any callback but that for the request line: bytes, status,
# header blocks in front of the HTML. The connection ends.
LIBRARY_ANSWERS = {
    **{f"Content-Length {value}": (hdr(b"Content-Length: " + value.encode()), status, 2)
       for value, status in (("abc", 400), ("-1", 400), ("1,1", 400), ("9" * 23, 413))},
    "target of 31,000 bytes": (get(b"/" + b"a" * 31_000), 414, 1),
    "field of 31,000 bytes": (hdr(b"X-A: " + b"a" * 31_000), 431, 1),
    "3,000 fields": (hdr(*[b"X-A:"] * 3000), 431, 1),
    "HTTP/2.0": (get(version=b"HTTP/2.0"), 505, 1),
    "no version": (b"GET " + OK + b"\r\n\r\n", 400, 1),
}

assert len(MALFORMED) >= 66


class Outcome:
    """The result: the statuses of all answers on the connection, when the first was received, and whether and how the
    connection was closed."""

    def __init__(self):
        self.statuses, self.first_after, self.closed_after, self.raw, self.reset = [], None, None, b"", False

    def __repr__(self):
        return (
            f"answers {self.statuses}, first after {self.first_after and round(self.first_after, 2)} s, "
            f"closed after {self.closed_after and round(self.closed_after, 2)} s{' by reset' if self.reset else ''}: "
            f"{self.raw[:400]!r}"
        )


def ask(port, data, wait=PATIENCE, half_close=False):
    """Send the bytes, then listen until the server closes or `wait` is over."""
    out = Outcome()
    began = time.monotonic()
    with Conn(port, timeout=wait) as c:
        try:
            c.send(data)
            if half_close:
                c.sock.shutdown(socket.SHUT_WR)
        except (ConnectionError, TimeoutError):
            pass                                     # refused while we were still sending: fine
        while True:
            left = began + wait - time.monotonic()
            if left <= 0:
                break
            c.sock.settimeout(left)
            try:
                got = c.sock.recv(65536)
            except TimeoutError:
                break
            except ConnectionError:
                out.reset, got = True, b""
            if not got:
                out.closed_after = time.monotonic() - began
                break
            if out.first_after is None:
                out.first_after = time.monotonic() - began
            out.raw += got
    # Bodies of the answers are JSON or files of ours; none holds a line that looks like a status line.
    raw = out.raw
    head = raw[:raw.find(b"\r\n\r\n") + 4]
    if head and raw[len(head):].startswith(head) and b"Connection: close" in head:
        raw = raw[len(head):]        # libmicrohttpd 0.9.75 sends the head of its own refusals twice, then closes
    out.statuses = [int(x) for x in re.findall(rb"HTTP/1\.[01] (\d{3}) ", raw)]
    return out


def in_parallel(jobs, width=24):
    """Run {key: callable}; the waits overlap."""
    results, todo, lock = {}, iter(list(jobs.items())), threading.Lock()

    def work():
        while True:
            with lock:
                item = next(todo, None)
            if item is None:
                return
            try:
                results[item[0]] = item[1]()
            except Exception as e:                       # shown by the test of that case
                results[item[0]] = e
    threads = [threading.Thread(target=work) for _ in range(width)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def mark(name):
    return b"/models/smuggled-" + b"".join(b"%02x" % b for b in name.encode())


def instance(data, name):
    return data.replace(b"{M}", mark(name))


@pytest.fixture(scope="module")
def outcomes(guard):
    """Run every case once alone and once with a good request behind it, all in parallel."""
    jobs = {}
    for name, (_, data) in MALFORMED.items():
        alone = instance(data, name + " alone")
        tail = instance(data, name + " tail") + instance(SMUGGLE, name + " tail")
        jobs[name, "alone"] = lambda d=alone: ask(guard.port, d)
        jobs[name, "tail"] = lambda d=tail: ask(guard.port, d)
    for name, (_, data, *_) in KNOWN_LIBRARY_LIMITS.items():
        jobs[name, "alone"] = lambda d=instance(data, name + " alone"): ask(guard.port, d)
    results = in_parallel(jobs)
    results["log"] = guard.whole_log()
    return results


def outcome(outcomes, name, how):
    got = outcomes[name, how]
    if isinstance(got, Exception):
        raise got
    return got


@pytest.mark.parametrize("name", MALFORMED)
# shows: security.md client-malformed
def test_malformed_is_refused(guard, outcomes, name):
    section, data = MALFORMED[name]
    got = outcome(outcomes, name, "alone")
    what = f"{name} (by {section}), sent {data[:200]!r}: {got}"
    assert not any(200 <= s < 300 for s in got.statuses), f"answered 2xx: {what}"
    assert not any(s == 101 for s in got.statuses), what
    assert not any(s >= 500 and s not in (501, 505)
                   for s in got.statuses), f"a fault of the client answered 5xx: {what}"
    assert got.closed_after is not None or got.first_after is not None, f"silent for {PATIENCE} s: {what}"
    if name not in WELL_FRAMED:
        assert got.closed_after is not None, f"the connection stays open after a malformed request: {what}"
    assert len([s for s in got.statuses if s >= 200]) <= 1, f"several answers to one request: {what}"
    assert guard.get(OK.decode()).status == 200, "a good request on a new connection afterwards"


@pytest.mark.parametrize("name", MALFORMED)
# shows: security.md client-malformed
def test_nothing_after_it_is_executed(outcomes, name):
    """The bytes behind a malformed request are never executed as a second request (RFC 9112 11.2)."""
    got = outcome(outcomes, name, "tail")
    if name in WELL_FRAMED:
        assert 1 <= len(got.statuses) <= 2 and 400 <= got.statuses[0] < 600 and got.statuses[1:] in ([], [
            404
        ]), f"{name}: {got}"
        return
    if name in TAIL_IS_NO_SMUGGLING:
        assert not any(200 <= s < 300 for s in got.statuses), f"{name}: {got}"
        return
    assert len([s for s in got.statuses if s >= 200]) <= 1, f"{name}: {got}"
    assert not any(200 <= s < 300 for s in got.statuses), f"{name}: {got}"
    for how in ("alone", "tail"):
        assert mark(
            f"{name} {how}").decode() not in outcomes["log"], f"{name}: the smuggled request was executed: {got}"


def test_the_smuggling_alarm_works(guard):
    """A good pipelined request for a mark does show in the log, so the absence above means something."""
    name = "control"
    got = ask(guard.port, hdr() + instance(SMUGGLE, name), wait=1)
    assert got.statuses == [200, 404], got
    guard.wait_for(lambda: mark(name).decode() in guard.log(),
                   "the mark of a properly pipelined request in the access log")


def test_refusals_say_why(guard):
    """A refusal that is answered is the JSON error model; 400 unless a better code fits."""
    for name in ("two Hosts", "no Host", "TE and CL", "body on GET", "8-bit byte in the target",
                 "control byte in a value"):
        with guard.conn() as c:
            c.send(instance(MALFORMED[name][1], name))
            r = c.read_response(asked=name)
            check_error(r, (400, 413))
    with guard.conn() as c:
        c.send(MALFORMED["100 header lines"][1])
        check_error(c.read_response(asked="100 header lines"), (431, 400))


# ------------------------------------------------------------------------------- what the library hides

@pytest.mark.parametrize("name", KNOWN_LIBRARY_LIMITS)
# shows: security.md library-lets-through
def test_known_library_limits_are_no_worse_than_documented(guard, outcomes, name):
    section, data, why, most = KNOWN_LIBRARY_LIMITS[name]
    got = outcome(outcomes, name, "alone")
    what = f"{name} (by {section}; {why}): {got}"
    finals = [s for s in got.statuses if s >= 200]
    assert finals and 200 <= finals[0] < 300, f"now refused: move it from KNOWN_LIBRARY_LIMITS to MALFORMED: {what}"
    assert len(finals) - 1 <= most, f"desynchronises more than documented ({most}): {what}"
    assert guard.get(OK.decode()).status == 200


@pytest.mark.parametrize("name", LIBRARY_ANSWERS)
# shows: security.md library-answers
def test_what_the_library_answers_is_as_documented(guard, name):
    data, status, blocks = LIBRARY_ANSWERS[name]
    with guard.conn() as c:
        c.send(data)
        c.ended()
        *heads, html = bytes(c.buf).split(b"\r\n\r\n")
    assert len(heads) == blocks and all(h.startswith(b"HTTP/1.1 %d " % status) for h in heads), heads
    assert html.startswith(b"<html>") and all(b"Content-Length: %d" % len(html) in h.split(b"\r\n") for h in heads)
    assert guard.get(OK.decode()).status == 200


# -------------------------------------------------------------------------------- odd, yet to be served

def one(c, data, method="GET"):
    c.send(data)
    return c.read_response(method, repr(data[:200]))


@pytest.fixture(scope="module")
def config(guard):
    return guard.get(OK.decode()).body


def served(r, config):
    assert r.status == 200 and r.body == config, r


def test_odd_byte_by_byte(guard, config):
    """9112 2.1: a message is a stream, and the boundaries of its pieces mean nothing."""
    with guard.conn() as c:
        for b in hdr(b"Range: bytes=0-3"):
            c.send(bytes([b]))
        r = c.read_response()
        assert r.status == 206 and r.body == config[:4], r


@pytest.mark.parametrize("at", [1, 3, 4, 20, -1, -2, -3, -4, -5])
def test_odd_split_in_two(guard, config, at):
    data = hdr()
    with guard.conn() as c:
        c.send(data[:at])
        time.sleep(0.05)
        served(one(c, data[at:]), config)


def test_odd_pipelined_pair(guard, config):
    """9112 9.3.2: answers in the order of the requests."""
    with guard.conn() as c:
        c.send(hdr(b"Range: bytes=1-1") + hdr(b"Range: bytes=2-4"))
        assert c.read_response().body == config[1:2]
        assert c.read_response().body == config[2:5]


def test_odd_pipelined_40(guard, config):
    with guard.conn() as c:
        c.send(b"".join(hdr(b"Range: bytes=%d-%d" % (i, i + 2)) for i in range(40)))
        for i in range(40):
            r = c.read_response()
            assert r.status == 206 and r.body == config[i:i + 3], f"answer {i}: {r}"


def test_odd_pipelined_head_get_404_304(guard, config):
    tag = guard.get(OK.decode()).etag.encode()
    with guard.conn() as c:
        c.send(
            get(method=b"HEAD") + hdr(b"If-None-Match: " + tag) + get(b"/models/nope") +
            hdr(b"Range: bytes=99999999-") + hdr())
        h = c.read_response("HEAD")
        assert h.status == 200 and h.length == len(config)
        assert c.read_response().status == 304
        assert c.read_response().status == 404
        assert c.read_response().status == 416
        served(c.read_response(), config)


def test_odd_pipelined_split_inside_the_second(guard, config):
    data = hdr() + hdr()
    with guard.conn() as c:
        c.send(data[:len(data) // 2 + 7])
        served(c.read_response(), config)
        time.sleep(0.05)
        served(one(c, data[len(data) // 2 + 7:]), config)


def test_odd_http_1_0_without_host(guard, config):
    """9112 3.2 asks for Host in 1.1 only; 9112 9.3: 1.0 closes."""
    with guard.conn() as c:
        served(one(c, get(version=b"HTTP/1.0", headers=b"")), config)
        assert c.ended()


def test_odd_http_1_0_keep_alive(guard, config):
    with guard.conn() as c:
        r = one(c, get(version=b"HTTP/1.0", headers=b"Connection: keep-alive\r\n"))
        served(r, config)
        if "keep-alive" in r.get("Connection", "").lower():
            served(one(c, get(version=b"HTTP/1.0", headers=b"Connection: keep-alive\r\n")), config)
        else:
            assert c.ended()


def test_odd_connection_close(guard, config):
    for line in (b"Connection: close", b"connection: CLOSE", b"Connection: foo, close",
                 b"Connection: foo\r\nConnection: close"):
        with guard.conn() as c:
            r = one(c, hdr(line))
            served(r, config)
            assert "close" in ", ".join(r.all("Connection")).lower(), f"9112 9.6: {line}: {r}"
            assert c.ended(), line


def test_odd_close_then_pipelined_is_not_answered(guard, config):
    """9112 9.6: nothing is processed after a request with close."""
    with guard.conn() as c:
        c.send(hdr(b"Connection: close") + instance(SMUGGLE, "after close"))
        served(c.read_response(), config)
        assert c.ended() and not c.buf, c.buf[:100]
    assert mark("after close").decode() not in guard.log()


ODD_HEADERS = {
    "names in lower case":
    get(headers=b"host: x\r\naccept: */*\r\n"),
    "names in capitals":
    get(headers=b"HOST: x\r\nACCEPT: */*\r\n"),
    "no space after the colon":
    get(headers=b"Host:x\r\nX-A:b\r\n"),
    "white space around values":
    get(headers=b"Host: \t x \t \r\nX-A:    b\t\r\n"),
    "empty value":
    hdr(b"X-A:", b"X-B: "),
    "Host with a port":
    get(headers=b"Host: 127.0.0.1:80\r\n"),
    "Host with an IPv6 address":
    get(headers=b"Host: [::1]:8080\r\n"),
    "Host in capitals":
    get(headers=b"Host: EXAMPLE.COM\r\n"),
    "Host of one label with a dash":
    get(headers=b"Host: tensord-0_x\r\n"),
    "Host as the last header":
    get(headers=b"X-A: b\r\nX-B: c\r\nHost: x\r\n"),
    "every token character in a name":
    hdr(b"!#$%&'*+-.^_`|~09azAZ: x"),
    "tab inside a value":
    hdr(b"X-A: b\tc"),
    "8-bit bytes in a value":
    hdr(b"User-Agent: caf\xe9 \xff"),
    "40 header lines":
    hdr(*[b"X-%d: y" % i for i in range(40)]),
    "header value of 4 KB":
    hdr(b"Cookie: " + b"y" * 4096),
    "equal headers on several lines":
    hdr(b"Accept: a/b", b"Accept: c/d", b"Accept: */*"),
    "Content-Length 0":
    hdr(b"Content-Length: 0"),
    "Authorization of nobody":
    hdr(b"Authorization: Bearer hf_xxx"),
    "Cookie":
    hdr(b"Cookie: a=b; c=\"d\""),
    "Accept-Encoding":
    hdr(b"Accept-Encoding: gzip, br, *;q=0"),
    "Accept of something else":
    hdr(b"Accept: image/png;q=0.1"),
    "Keep-Alive":
    hdr(b"Connection: keep-alive", b"Keep-Alive: timeout=5, max=100"),
    "TE: trailers":
    hdr(b"TE: trailers", b"Connection: TE"),
    "Upgrade to h2c is ignored":
    hdr(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__"),
    "Upgrade to a web socket is ignored":
    hdr(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
    "Max-Forwards, Via, Forwarded":
    hdr(b"Max-Forwards: 0", b"Via: 1.1 a", b"Forwarded: for=1.2.3.4", b"X-Forwarded-For: 1.2.3.4"),
    "method override is ignored":
    hdr(b"X-HTTP-Method-Override: DELETE"),
    "URL override is ignored":
    hdr(b"X-Original-URL: /nope", b"X-Rewrite-URL: /nope"),
    "empty query":
    get(OK + b"?"),
    "one empty line before the request":
    b"\r\n" + hdr(),
    "two empty lines before the request":
    b"\r\n\r\n" + hdr(),
    "escaped letter in the target":
    get(OK.replace(b"plain", b"pl%61in")),
    "escaped slash-free path in lower-case hex":
    get(OK.replace(b"config.json", b"%63onfig%2ejson")),
}


@pytest.mark.parametrize("name", ODD_HEADERS)
def test_odd_but_valid(guard, config, name):
    """Valid by RFC 9110 and 9112 (2.2 for empty lines, 5 for headers, 3986 6.2.2.2 for escapes):
    served, twice on one connection."""
    with guard.conn() as c:
        served(one(c, ODD_HEADERS[name]), config)
        served(one(c, ODD_HEADERS[name]), config)


def test_odd_expect_without_a_body(guard, config):
    """9110 10.1.1: no content, so no 100 is needed; 417 would be allowed."""
    with guard.conn() as c:
        r = one(c, hdr(b"Expect: 100-continue"))
        assert r.status in (200, 417), r


def test_odd_absolute_form(guard, config):
    """9112 3.2.2: a server MUST accept the absolute form, and ignore Host then."""
    with guard.conn() as c:
        served(one(c, get(b"http://127.0.0.1:%d%s" % (guard.port, OK))), config)
        served(one(c, get(b"HTTP://elsewhere" + OK)), config)


def test_odd_version_1_2(guard, config):
    """9110 2.5: a higher minor version is read as the highest known one; some servers refuse it as unknown."""
    got = ask(guard.port, get(version=b"HTTP/1.2", headers=b"Host: x\r\nConnection: close\r\n"), wait=3)
    assert got.statuses and got.statuses[0] in (200, 400, 505), got


def test_odd_half_close_after_the_request(guard, config):
    """9112 9.6: a client may close its side once it has sent all; the answer still comes."""
    got = ask(guard.port, hdr(), wait=3, half_close=True)
    assert got.statuses == [200] and got.raw.endswith(config), got


def test_odd_long_target_within_the_limit(guard):
    with guard.conn() as c:
        r = c.request("/models/" + "x" * 6000)
        assert r.status == 404, r
        r = c.request("/models?match=" + "x" * 6000)
        assert r.status == 200, r


@pytest.mark.parametrize("query", [b"a=1&" * 400, b"&" * 6000, b"a?b&" * 1500, b"expand=x&" * 320],
                         ids=lambda q: q[:9].decode())
# shows: security.md client-query
def test_odd_very_many_parameters(guard, query):
    """They are answered, however many libmicrohttpd has room for; and so is the next request on the connection."""
    with guard.conn() as c:
        assert c.request("/models?" + query.decode()).status in (200, 400)
        assert c.request("/api/models/plain/x?" + query.decode()).status == 404
        assert c.request("/models?match=none").json()["models"] == []


def test_odd_many_requests_on_one_connection(guard, config):
    with guard.conn() as c:
        for _ in range(1000):
            assert c.request(OK.decode(), {"Range": "bytes=0-0"}).status == 206


def test_leading_empty_lines_between_pipelined_requests(guard, config):
    """9112 2.2: at least one empty line before a request line is ignored."""
    with guard.conn() as c:
        c.send(hdr() + b"\r\n" + hdr())
        served(c.read_response(), config)
        served(c.read_response(), config)


def test_limits_are_configurable(tree):
    with Server(tree.root, "--max-header-bytes", 1024, "--header-timeout", 1) as s:
        with s.conn() as c:
            r = one(c, hdr(b"X-A: " + b"y" * 1500))
            check_error(r, (431, 400))
            assert c.ended()
        with s.conn() as c:
            assert one(c, hdr(b"X-A: " + b"y" * 500)).status == 200
        began = time.monotonic()
        with s.conn() as c:
            c.send(b"GET / HTTP/1.1\r\n")
            while time.monotonic() - began < 6:              # a byte now and then does not reset the deadline
                try:
                    c.send(b"X")
                except ConnectionError:
                    break
                time.sleep(0.2)
                c.sock.settimeout(0.01)
                try:
                    if not c.fill():
                        break
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
            took = time.monotonic() - began
            assert took < 4, f"a header trickled in for {took:.1f} s, --header-timeout is 1"


# shows: security.md client-malformed
def test_random_mutations_never_desynchronise(guard):
    """400 good requests with one byte changed, removed or added: an answer or a close, and never two answers."""
    import random
    seed = int(time.time())
    rng = random.Random(seed)
    base = hdr(b"Range: bytes=0-9", b"If-None-Match: \"a\"", b"Accept: */*", b"Connection: close")
    jobs = {}
    for i in range(400):
        data = bytearray(base)
        at = rng.randrange(len(data))
        how = rng.randrange(3)
        byte = rng.choice([0, 1, 9, 10, 13, 32, 34, 37, 58, 92, 127, 128, 255, rng.randrange(256)])
        if how == 0:
            data[at] = byte
        elif how == 1:
            del data[at]
        else:
            data.insert(at, byte)
        jobs[bytes(data)] = lambda d=bytes(data): ask(guard.port, d, half_close=True)
    for data, got in in_parallel(jobs).items():
        where = f"seed {seed}: {data!r}: {got}"
        assert not isinstance(got, Exception), where
        assert got.closed_after is not None, where
        assert len([s for s in got.statuses if s >= 200]) <= 2, where
        assert not any(s >= 500 and s not in (501, 505) for s in got.statuses), where
    assert guard.get(OK.decode()).status == 200


def test_good_service_beside_a_stream_of_garbage(guard, config):
    stop = threading.Event()
    cases = itertools.cycle(
        [d for n, (_, d) in MALFORMED.items() if len(d) < 5000 and "never" not in n and "half" not in n])

    def noise():
        for data in cases:
            if stop.is_set():
                return
            try:
                with Conn(guard.port, timeout=0.2) as c:
                    c.send(data)
                    c.fill()
            except (OSError, ProtocolError, Incomplete):
                pass
    t = threading.Thread(target=noise)
    t.start()
    try:
        with guard.conn() as c:
            for _ in range(200):
                served(one(c, hdr()), config)
    finally:
        stop.set()
        t.join()
