"""The verification of AWS's signature version 4 against botocore's own signers, for random requests.

tests/kit/sigv4_check verifies; requests over a socket are in tests/http/test_signatures.py."""
import datetime
import random
import subprocess
import urllib.parse

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.utils import percent_encode

from harness import tensord_binary

ACCESS, SECRET = "TDEXAMPLE0123456789A", "wJalrXUtnFEMI-K7MDENG_bPxRfiCYEXAMPLEKEY"
NOW = 1_767_225_600
SKEW = 15 * 60
PARTS = ["a", "B9", "é", "日本", "𝄞", " ", "+", "~", "/", "//", "/./", "/../", "%", "%2F", "%7E", "&", "=", "?",
         "#", "-._", "!*'()", "$,:;@", "\"<>[]{}|\\^`", "\x7f"]
LEGAL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"


class Signed:
    """A request, signed by botocore `age` seconds before NOW."""

    def __init__(self, rng, monkeypatch, presigned, age, expires=None):
        self.host = rng.choice(["127.0.0.1:9000", "s3.example.org", "[::1]:80"])
        path = "/bucket/" + percent_encode(self.text(rng), safe="/~")
        pairs = [(self.text(rng, 3), self.text(rng, rng.randrange(4))) for _ in range(rng.randrange(5))]
        pairs = [(name + "x", value) for name, value in pairs]
        if not presigned and pairs and rng.random() < 0.5:      # again, with the same and with another value
            pairs += [pairs[0], (pairs[0][0], "other")]
        quote = lambda text: urllib.parse.quote(text, safe="-_.~")                      # noqa: E731
        query = "&".join(f"{quote(name)}={quote(value)}" for name, value in pairs)
        headers = {"Host": self.host}
        if not presigned:
            headers |= rng.choice([{}, {"Range": "bytes=0-9"}, {"x-amz-meta-a": "  two   blanks \t and a tab "},
                                   {"X-Amz-Request-Payer": "requester", "If-None-Match": '"é"'}])
        time = datetime.datetime.fromtimestamp(NOW - age, datetime.timezone.utc)
        monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: time)
        request = AWSRequest(rng.choice(["GET", "HEAD"]), f"http://{self.host}{path}" + (f"?{query}" if query else ""),
                             headers)
        region = rng.choice(["us-east-1", "eu-central-1", "x"])
        more = {} if expires is None else {"expires": expires}
        signer = botocore.auth.S3SigV4QueryAuth if presigned else botocore.auth.S3SigV4Auth
        signer(Credentials(ACCESS, SECRET), "s3", region, **more).add_auth(request)
        self.method = request.method
        self.target = request.url[len(f"http://{self.host}"):]
        self.headers = {k: str(v) for k, v in request.headers.items()}

    @staticmethod
    def text(rng, most=6):
        return "".join(rng.choice(PARTS) for _ in range(rng.randrange(most + 1)))

    def lines(self, target=None, headers=None, now=NOW):
        fields = [f"{k}:{v}" for k, v in (headers or self.headers).items()]
        return "\n".join([str(now), ACCESS, SECRET, self.method, target or self.target, *fields, "", ""])


def verdicts(requests):
    """Return the verdict on each of these texts of requests."""
    tool = tensord_binary().parent / "tests/kit/sigv4_check"
    done = subprocess.run([tool], input="".join(requests).encode("utf-8", "surrogateescape"), capture_output=True,
                          check=True)
    assert done.stderr == b"", done.stderr
    out = done.stdout.decode().split()
    assert len(out) == len(requests)
    return out


def respell(rng, target):
    """Write some bytes of a target in another way that means the same."""
    path, mark, query = target.partition("?")

    def one(text, kept):
        parts = urllib.parse.unquote_to_bytes(text)
        return "".join(chr(b) if chr(b) in kept and rng.random() < 0.7 else rng.choice([f"%{b:02X}", f"%{b:02x}"])
                       for b in parts)
    path = "/".join(one(segment, LEGAL + "!$&'()*+,;=:@") for segment in path.split("/"))
    items = [item.partition("=") for item in query.split("&")]
    return path + mark + "&".join(name + equals + one(value, LEGAL + "!$'()*,;:@/?") for name, equals, value in items)


def meaning(target):
    """Return the meaning of a target, whatever its spelling. The name of a parameter of the signature must be spelled
    plainly."""
    path, _, query = target.partition("?")
    items = [item.partition("=") for item in query.split("&") if item not in ("", "=")]
    return urllib.parse.unquote_to_bytes(path), sorted(
        (urllib.parse.unquote_to_bytes(name), urllib.parse.unquote_to_bytes(value.replace("+", " ")))
        for name, _, value in items)


@pytest.fixture
def rng():
    return random.Random(17)


def test_200_random_requests_are_accepted(rng, monkeypatch):
    ages = [-SKEW, SKEW, 0]
    signed = [Signed(rng, monkeypatch, i % 2 == 0, ages.pop() if ages else rng.randrange(-SKEW, SKEW + 1))
              for i in range(200)]
    asked = [s.lines() for s in signed]
    assert verdicts(asked) == ["ok"] * 200, [a for a, v in zip(asked, verdicts(asked)) if v != "ok"][:1]
    again = [s.lines(respell(rng, s.target)) for s in signed]
    assert sum(s.lines() != a for s, a in zip(signed, again)) > 150
    assert verdicts(again) == ["ok"] * 200, [a for a, v in zip(again, verdicts(again)) if v != "ok"][:1]


@pytest.mark.parametrize("age,code", [(-SKEW - 1, "RequestTimeTooSkewed"), (-SKEW, "ok"), (SKEW, "ok"),
                                      (SKEW + 1, "RequestTimeTooSkewed")])
# shows: security.md s3-signatures
def test_clocks_may_differ_by_15_minutes(rng, monkeypatch, age, code):
    assert verdicts([Signed(rng, monkeypatch, False, age).lines() for _ in range(5)]) == [code] * 5


def test_presigned_urls_expire(rng, monkeypatch):
    for expires in (1, 60, 604800):
        url = Signed(rng, monkeypatch, True, 0, expires)
        ends = [url.lines(now=NOW + later) for later in (-SKEW - 1, -SKEW, expires, expires + 1)]
        assert verdicts(ends) == ["AccessDenied", "ok", "ok", "AccessDenied"], expires
    for expires in (0, 604801):
        url = Signed(rng, monkeypatch, True, 0, expires)
        assert verdicts([url.lines()]) == ["AuthorizationQueryParametersError"]


def changes(rng, text):
    """Return the text with each of its bytes changed to another, with each taken out, and with each twice."""
    for i, c in enumerate(text):
        other = rng.choice([x for x in LEGAL if x != c])
        yield text[:i] + other + text[i + 1:]
        yield text[:i] + text[i + 1:]
        yield text[:i] + c + text[i:]


@pytest.mark.parametrize("presigned", [False, True])
# shows: security.md s3-signatures
def test_every_single_byte_change_is_refused(rng, monkeypatch, presigned):
    """Path, query, signed header values, date, scope and signature. What means the same may be accepted, as S3 does."""
    asked = []
    for _ in range(8):
        signed = Signed(rng, monkeypatch, presigned, rng.randrange(-SKEW, SKEW))
        asked += [signed.lines(target) for target in changes(rng, signed.target)
                  if target.startswith("/") and meaning(target) != meaning(signed.target)]
        for name, value in signed.headers.items():
            asked += [signed.lines(headers=signed.headers | {name: changed}) for changed in changes(rng, value)
                      if changed.split() != value.split() and changed.replace(" ", "") != value.replace(" ", "")]
    got = verdicts(asked)
    assert len(asked) > 8000 and "ok" not in got, next(a for a, v in zip(asked, got) if v == "ok")


def test_other_secrets_and_methods_are_refused(rng, monkeypatch):
    signed = Signed(rng, monkeypatch, False, 0)
    for wrong in (signed.lines().replace(SECRET, SECRET[:-1] + "Z"), signed.lines().replace(SECRET, ""),
                  signed.lines().replace(f"\n{signed.method}\n", "\nDELETE\n")):
        assert verdicts([wrong]) == ["SignatureDoesNotMatch"]
    assert verdicts([signed.lines().replace(f"\n{ACCESS}\n", "\nTDOTHER\n")]) == ["InvalidAccessKeyId"]
