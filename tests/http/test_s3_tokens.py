"""The S3 port of a server that has tokens: raw requests, signed by botocore. Real clients are in tests/clients; random
requests and every single-byte change without a socket are in tests/interop/test_sigv4.py."""
import datetime
import random
import time

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from harness import Conn, Server, age, check_error, pattern, tensor, write_by_hand
from signing import TokensFile
from test_s3_port import NS, S3, check_s3_error

CONTENT = pattern(5000, "content")
ODD = "é ~+%&;[x].bin"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("s3") / "root"
    for name in ("org/open", "org/hidden", "secret/model"):
        write_by_hand(root / name / "model.safetensors", [tensor(n, "F32", [32, 8]) for n in "abc"])
        (root / name / "notes.bin").write_bytes(CONTENT)
        (root / name / ODD).write_bytes(CONTENT)
    age(root)
    return root


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    file = TokensFile(tmp_path_factory.mktemp("tokens") / "tokens.json")
    return file.add("all").add("part", ["org/open"]).add("old", expires_s=int(time.time()) - 5)


@pytest.fixture(scope="module")
def s3(root, tokens):
    with Server(root, "--s3-listen", "127.0.0.1:0", "--tokens", tokens) as s:
        yield S3(s)


@pytest.fixture
def sign(s3, tokens, monkeypatch):
    """Sign a request as a client does: sign(target, name, ...) returns its target and header fields."""
    def go(target, name, method="GET", presigned=False, age_s=0, keys=None, headers=(), expires=600):
        moment = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=age_s)
        monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: moment)
        base = f"http://127.0.0.1:{s3.port}"
        request = AWSRequest(method, base + target, {"Host": f"127.0.0.1:{s3.port}", **dict(headers)})
        credentials = Credentials(*(keys or tokens.s3_keys(name)))
        if presigned:
            botocore.auth.S3SigV4QueryAuth(credentials, "s3", "us-east-1", expires=expires).add_auth(request)
        else:
            botocore.auth.S3SigV4Auth(credentials, "s3", "us-east-1").add_auth(request)
        return request.url[len(base):], {k: str(v) for k, v in request.headers.items()}
    return go


@pytest.mark.parametrize("presigned", [False, True])
def test_signed_requests_are_answered(s3, sign, presigned):
    quoted = "/org/open/%C3%A9%20~%2B%25%26%3B%5Bx%5D.bin"
    for target in ("/org/open/notes.bin", quoted, quoted + "?x-id=GetObject", "/org/open/notes.bin?partNumber=1"):
        r = s3.ask(*sign(target, "part", presigned=presigned))
        assert r.status in (200, 206) and r.body == CONTENT, r
    r = s3.ask(*sign("/org/open/notes.bin", "part", "HEAD", presigned), method="HEAD")
    assert r.status == 200 and r.length == len(CONTENT)
    target, headers = sign("/org/open/notes.bin", "part", presigned=presigned)
    r = s3.ask(target, {**headers, "Range": "bytes=5-9"})
    assert r.status == 206 and r.body == CONTENT[5:10]
    for target in ("/", "/org", "/org?list-type=2&prefix=open%2F&delimiter=%2F&max-keys=7&encoding-type=url",
                   "/org?location", "/org?versioning="):
        assert s3.ask(*sign(target, "part", presigned=presigned)).status == 200, target


def ask_absolute(s3, authority, host, target, headers):
    """Send a target in absolute-form, RFC 9112 section 3.2.2, with a field Host that need not agree with it."""
    lines = [f"GET http://{authority}{target} HTTP/1.1", f"Host: {host}",
             *(f"{k}: {v}" for k, v in headers.items() if k.lower() != "host")]
    with Conn(s3.port) as c:
        c.send(("\r\n".join(lines) + "\r\n\r\n").encode())
        return c.read_response("GET", target)


@pytest.mark.parametrize("presigned", [False, True])
def test_the_authority_of_an_absolute_target_is_the_host_that_is_signed(s3, sign, presigned):
    """It replaces the field Host: a signature for one host is not valid for a target at another host."""
    target, headers = sign("/org/open/notes.bin", "part", presigned=presigned)
    here = headers.get("Host") or headers["host"]
    for authority, host, status in ((here, here, 200), (here, "other.example", 200), (f"user@{here}", here, 400),
                                    ("other.example", here, 403), ("other.example", "other.example", 403)):
        r = ask_absolute(s3, authority, host, target, headers)
        assert r.status == status, (authority, host, r)
        assert r.body == CONTENT if status == 200 else status == 400 or b"SignatureDoesNotMatch" in r.body


# shows: security.md s3-signatures
def test_who_is_refused_and_why(s3, sign, tokens):
    target, plain = "/org/open/notes.bin", {"Host": f"127.0.0.1:{s3.port}"}
    access, secret = tokens.s3_keys("part")
    cases = [
        ((target, plain), 403, "AccessDenied", "not signed"),
        ((target, {**plain, **tokens.bearer("part")}), 400, "InvalidArgument", "HF_ENDPOINT"),
        (sign(target, "", keys=("any", "any")), 403, "InvalidAccessKeyId", "(any)"),
        (sign(target, "", keys=(access, "any")), 403, "SignatureDoesNotMatch", ""),
        (sign(target, "old"), 403, "InvalidAccessKeyId", "expired"),
        (sign(target, "part", age_s=20 * 60), 403, "RequestTimeTooSkewed", "behind"),
        (sign(target, "part", age_s=-20 * 60), 403, "RequestTimeTooSkewed", "ahead"),
        (sign(target, "part", presigned=True, age_s=-20 * 60), 403, "AccessDenied", "not valid yet"),
        (sign(target, "part", presigned=True, age_s=700), 403, "AccessDenied", "expired"),
        (sign(target, "part", presigned=True, expires=604801), 400, "AuthorizationQueryParametersError", "604800"),
        (sign(target, "", keys=(access, secret, "session")), 400, "InvalidToken", "AWS_SESSION_TOKEN"),
        ((target + f"?AWSAccessKeyId={access}&Signature=a&Expires=2000000000", plain), 400, "InvalidRequest", "s3v4"),
    ]
    for (asked, headers), status, code, says in cases:
        e = check_s3_error(s3.ask(asked, headers), status, code)
        assert says in e.find("Message").text and secret not in e.find("Message").text
        r = s3.ask(asked, headers, "HEAD") if not says == "" else None
        assert r is None or (r.status in (status, 403) and r.body == b""), r


def test_a_token_sees_its_models_alone(s3, sign):
    def keys(name, bucket):
        r = s3.ask(*sign(f"/{bucket}?list-type=2", name))
        return r.status, r.body.decode()
    assert "hidden" not in keys("part", "org")[1] and "hidden" in keys("all", "org")[1]
    assert "<Name>secret</Name>" not in s3.ask(*sign("/", "part")).body.decode()
    assert "<Name>secret</Name>" in s3.ask(*sign("/", "all")).body.decode()
    for hidden, never, code in (("/secret", "/nothin", "NoSuchBucket"),
                                ("/secret/model/notes.bin", "/nothin/model/notes.bin", "NoSuchBucket"),
                                ("/org/hidden/notes.bin", "/org/nothin/notes.bin", "NoSuchKey")):
        texts = []
        for target in (hidden, never):
            r = s3.ask(*sign(target, "part"))
            e = check_s3_error(r, 404, code)
            texts.append(e.find("Message").text.replace(target.split("/")[1 + (code == "NoSuchKey")], "X"))
        assert texts[0] == texts[1]


@pytest.mark.parametrize("presigned", [False, True])
def test_the_main_port_names_the_other(s3, sign, presigned):
    target, headers = sign("/org/open/notes.bin", "all", presigned=presigned)
    check_error(s3.server.get(target, headers), 401, "--s3-listen")


def test_nothing_can_be_written_with_keys_either(s3, sign):
    for method in ("PUT", "DELETE", "POST"):
        target, headers = sign("/org/open/new", "all", method)
        check_s3_error(s3.ask(target, headers, method, body=b"x"), 405, "MethodNotAllowed")


@pytest.mark.parametrize("presigned", [False, True])
def test_a_sample_of_single_byte_changes_is_refused(s3, sign, presigned):
    rng = random.Random(5)
    target, headers = sign("/org/open/notes.bin?x-id=GetObject", "part", presigned=presigned)
    assert s3.ask(target, headers).body == CONTENT
    signed = {k: v for k, v in headers.items() if k != "User-Agent"}
    with_target = [(target[:i] + ("a" if c != "a" else "b") + target[i + 1:], headers)
                   for i, c in enumerate(target) if i > 0 and c not in "%"]
    with_field = [(target, {**headers, k: v[:i] + ("a" if v[i] != "a" else "b") + v[i + 1:]})
                  for k, v in signed.items() for i in range(len(v))]
    for asked, fields in rng.sample(with_target + with_field, 150):
        with Conn(s3.port) as c:
            r = c.request(asked, fields)
        assert r.status in (400, 403) and CONTENT[:64] not in r.body, (asked, fields, r)


def test_the_log_names_the_token(s3, sign):
    s3.ask(*sign("/org/open/notes.bin?x-id=logged", "part"))
    s3.ask(*sign("/org/open/notes.bin?x-id=late", "old"))
    lines = s3.server.whole_log().splitlines()
    assert "part" in next(x for x in lines if "x-id=logged" in x)
    assert "token=old" in next(x for x in lines if "x-id=late" in x)


def test_without_tokens_every_key_is_good(root, start, sign):
    plain = S3(start(root, "--s3-listen", "127.0.0.1:0"))
    target, headers = sign("/org/open/notes.bin", "", keys=("any", "any"))
    assert plain.ask(target, headers).body == CONTENT
    assert plain.list("org").find("s3:KeyCount", NS) is not None
