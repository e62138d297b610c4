"""Credentials that browsers send by themselves: the name and password of RFC 7617, which people type once, and which
then go with every request to the server, also with those of pages of other sites. So these pages change nothing. How
browsers mark their requests: https://www.w3.org/TR/fetch-metadata/ (Sec-Fetch-Site), and the Fetch standard, "append a
request Origin header"."""
import base64
import hashlib
import re
import xml.etree.ElementTree as ET

import pytest

import harness
from harness import age, check_error, tensor, write_by_hand
from oci_push_kit import MANIFEST, digest_of, manifest_of
from publishing import Repo, digest
from signing import TokensFile

VIEWER = "https://viewer.example"
CONFIG = b'{"model_type": "test"}'
SHA = hashlib.sha256(CONFIG).hexdigest()

# Requests that change something, (method, path), by facade.
CHANGES = {
    "native": [("PUT", f"/models/org/m/blobs/{digest(CONFIG)}"), ("POST", f"/models/org/m/blobs/{digest(CONFIG)}"),
               ("POST", "/models/org/m/blobs"), ("POST", "/models/org/m/commits"),
               ("PUT", "/models/org/m/files/config.json"), ("DELETE", "/models/org/m/files/config.json"),
               ("DELETE", "/models/org/m"), ("PUT", "/datasets/org/d/files/a.jsonl"), ("DELETE", "/datasets/org/d"),
               ("POST", "/rescan"), ("POST", "/sign"), ("POST", "/nothing/here"), ("PATCH", "/models/org/m")],
    "hub": [("POST", "/api/repos/create"), ("DELETE", "/api/repos/delete"), ("POST", "/api/repos/move"),
            ("POST", "/api/models/org/m/preupload/main"), ("POST", "/api/models/org/m/commit/main"),
            ("POST", "/org/m.git/info/lfs/objects/batch"), ("POST", "/api/models/org/m/branch/dev"),
            ("DELETE", "/api/models/org/m/branch/dev"), ("POST", "/api/models/org/m/tag/main"),
            ("DELETE", "/api/models/org/m/tag/t"), ("POST", "/api/models/org/m/super-squash/main"),
            ("PUT", "/api/models/org/m/settings"), ("POST", "/api/validate-yaml")],
    "oci": [("POST", "/v2/org/m/blobs/uploads/"), ("PATCH", "/v2/org/m/blobs/uploads/0123"),
            ("PUT", f"/v2/org/m/blobs/uploads/0123?digest=sha256:{SHA}"), ("PUT", "/v2/org/m/manifests/v1"),
            ("DELETE", "/v2/org/m/manifests/v1"), ("DELETE", f"/v2/org/m/blobs/sha256:{SHA}")],
    "s3": [("PUT", "/org/m/config.json"), ("PUT", "/org/m"), ("DELETE", "/org/m/config.json"),
           ("DELETE", "/org/m"), ("POST", "/org/m/big.bin?uploads"), ("POST", "/org/m/big.bin?uploadId=1"),
           ("PUT", "/org/m/big.bin?uploadId=1&partNumber=1"), ("POST", "/org/m?delete")],
}
EVERY = [(facade, method, path) for facade, asks in CHANGES.items() for method, path in asks]
# POST requests whose body says what to read; a plan is kept in memory alone.
READS = [("/models/org/m/tensors:read", b'{"tensors": [{"name": "w"}]}', 200),
         ("/models/org/m/plans", b'{"engine": "none", "tp_size": 1}', 201),
         ("/datasets/org/d/rows:batchGet", b'{"split": "train", "indices": [0]}', 200),
         ("/api/models/org/m/paths-info/main", b'{"paths": ["config.json"]}', 200)]

# The fields by which a browser names a page of another site.
OTHERS = [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "x"},
          {"Sec-Fetch-Site": ""}, {"Sec-Fetch-Site": "same-origin, cross-site"},
          {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": VIEWER}, {"Origin": "x"}, {"Origin": ""},
          {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1"}]


def basic(token, user="any"):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{token}".encode()).decode()}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    file = TokensFile(tmp_path_factory.mktemp("tokens") / "tokens.json")
    return file.add("w", rights=("read", "write")).add("r")


@pytest.fixture(scope="module", params=["open", "tokens"])
def srv(request, tmp_path_factory, tokens):
    root = tmp_path_factory.mktemp("site") / "root"
    write_by_hand(root / "org/m/model.safetensors", [tensor("w", "F32", [4])])
    (root / "org/m/config.json").write_bytes(CONFIG)
    (root / "datasets/org/d").mkdir(parents=True)
    (root / "datasets/org/d/train.jsonl").write_text('{"a": 1}\n')
    age(root)
    args = ["--publish", "any", "--rescan-from", "any", "--s3-listen", "127.0.0.1:0", "--cors-origin", VIEWER]
    with harness.Server(root, *args, *(["--tokens", tokens] if request.param == "tokens" else []),
                        hash_threads=0) as s:
        s.s3 = harness.s3_port(s)
        s.who = [basic(tokens.text("w")), tokens.bearer("w")] if request.param == "tokens" else [{}]
        s.is_open = request.param == "open"
        yield s


def message_of(facade, r):
    if facade == "s3":
        error = ET.fromstring(r.body)
        assert error.find("Code").text == "AccessDenied", r
        return error.find("Message").text
    if facade == "oci":
        assert r.json()["errors"][0]["code"] == "DENIED", r
        return r.json()["errors"][0]["message"]
    return r.json()["error"] if facade == "hub" else check_error(r, 403)["message"]


@pytest.mark.parametrize("facade, method, path", EVERY)
# shows: security.md client-cross-site
def test_pages_of_other_sites_change_nothing(srv, facade, method, path):
    """Refused before the body: it never comes. The page's own credentials do not matter, nor does --cors-origin."""
    for who in srv.who:
        for other in OTHERS:
            with harness.Conn(srv.s3 if facade == "s3" else srv.port, timeout=10) as c:
                c.send(harness.request_bytes(path, {"Content-Length": "1000000", **who, **other}, method))
                r = c.read_response(method)
            assert r.status == 403, (other, r)
            assert "a page of another site may not change anything" in message_of(facade, r), r
            name, value = next(iter(other.items()))
            assert f"({name}: {value})" in message_of(facade, r), r
    assert {str(p.relative_to(srv.root)) for p in srv.root.rglob("*") if p.is_file() and ".tensord" not in str(p)} == {
        "org/m/model.safetensors", "org/m/config.json", "datasets/org/d/train.jsonl"}


@pytest.mark.parametrize("path, body, status", READS)
def test_pages_of_other_sites_may_ask(srv, path, body, status):
    """CORS decides whether they can read the answer (test_cors.py)."""
    for who in srv.who:
        for other in OTHERS:
            r = srv.post(path, body, {**who, **other})
            assert r.status in (200, status), (other, r)
    for path in ("/models", "/models/org/m/files/config.json", "/api/models", "/v2/_catalog"):
        for method in ("GET", "HEAD"):
            assert srv.request(path, {**srv.who[0], **OTHERS[0]}, method).status == 200, path


def own(srv, scheme="http", host=None):
    return f"{scheme}://{host or f'127.0.0.1:{srv.port}'}"


def test_pages_of_this_server_may(srv):
    """By Sec-Fetch-Site, which counts first; or by the origin that the client addresses: the scheme that a proxy names,
    else that of the connection, and Host."""
    fits = [{}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {"Origin": own(srv)},
            {"Sec-Fetch-Site": "same-origin", "Origin": own(srv)}, {"Sec-Fetch-Site": "none", "Origin": VIEWER},
            {"Host": "w.example", "Origin": "http://w.example"}, {"Host": "w.example:80", "Origin": "http://w.example"},
            {"Host": "W.example", "Origin": "http://w.example"}, {"Host": "[::1]:8080", "Origin": "http://[::1]:8080"},
            {"Host": "w.example", "X-Forwarded-Proto": "https", "Origin": "https://w.example"},
            {"Host": "w.example:443", "X-Forwarded-Proto": "https, http", "Origin": "https://w.example"}]
    for fields in fits:
        for who in srv.who:
            assert srv.request("/rescan", {**who, **fields}, "POST").status == 200, fields
    differ = [{"Origin": own(srv, "https")}, {"Origin": own(srv, host="127.0.0.1")},
              {"Origin": own(srv, host=f"localhost:{srv.port}")},
              {"Host": "w.example", "Origin": "http://w.example:81"},
              {"Host": "w.example", "Origin": "https://w.example"}, {"Host": "", "Origin": "http://"},
              {"Host": "w.example", "X-Forwarded-Host": "v.example", "Origin": "http://v.example"},
              {"Host": "w.example", "X-Forwarded-Proto": "https", "Origin": "http://w.example"}]
    for fields in differ:
        check_error(srv.request("/rescan", {**srv.who[0], **fields}, "POST"), 403, "another site")
    for name in ("Origin", "Sec-Fetch-Site"):
        value = own(srv) if name == "Origin" else "same-origin"
        twice = [*srv.who[0].items(), (name, value), (name, value)]
        check_error(srv.request("/rescan", twice, "POST"), 403, "another site")


def test_own_pages_publish_with_a_token(srv):
    if srv.is_open:         # without a token nothing shows that a person wanted it: as ever
        repo = Repo(srv.port, "org/own", headers={"Origin": own(srv)}, is_checked=False)
        assert "a page in a browser may not publish" in repo.put(b"x").error()["message"]
        return
    for who in srv.who:
        repo = Repo(srv.port, "org/own", headers={**who, "Origin": own(srv), "Sec-Fetch-Site": "same-origin"},
                    is_checked=False)
        assert repo.push({"config.json": CONFIG, "a": who["Authorization"].encode()})[0].status in (200, 201)
        assert srv.get("/models/org/own/files/a", who).body == who["Authorization"].encode()
    assert Repo(srv.port, "org/own", headers=srv.who[0], is_checked=False).ask("DELETE").status in (200, 204)


def test_other_clients_change_what_they_like(srv):
    """Those that send neither field: curl, SDKs, registries' clients."""
    who = srv.who[0]
    location = srv.request("/v2/org/pushed/blobs/uploads/", who, "POST").get("Location")
    assert location, "a session"
    path = re.sub("^http://[^/]*", "", location)
    with srv.conn() as c:
        assert c.request(f"{path}?digest={digest_of(CONFIG)}", who, "PUT", body=CONFIG).status == 201
    with srv.conn() as c:
        text = manifest_of(config=CONFIG)
        r = c.request("/v2/org/pushed/manifests/v1", {**who, "Content-Type": MANIFEST}, "PUT", body=text)
        assert r.status == 201, r
    assert srv.post("/api/repos/create", {"name": "made", "organization": "org"}, who).status == 200
    with harness.Conn(srv.s3) as c:
        assert c.request("/org/put/a.bin", (), "PUT", body=b"x").status == (200 if srv.is_open else 403)


# ------------------------------------------------------------------------------------------- name and password

HTML = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
SITE = ["/", "/models/", "/models/org/m/", "/models/org/m/files/config.json", "/org/m", "/datasets/org/d",
        "/org/m/resolve/main/config.json", "/org/m/resolve/main/", "/nothing/here", "/version"]


@pytest.fixture(scope="module")
def asks(tmp_path_factory, tokens):
    root = tmp_path_factory.mktemp("basic") / "root"
    write_by_hand(root / "org/m/model.safetensors", [tensor("w", "F32", [4])])
    (root / "org/m/config.json").write_bytes(CONFIG)
    age(root)
    with harness.Server(root, "--tokens", tokens, hash_threads=0) as s:
        yield s


@pytest.mark.parametrize("path", SITE)
def test_a_browser_asks_once(asks, tokens, path):
    """RFC 9110 section 11.6.1: a challenge for each scheme. A browser takes the one that it knows, asks a person, and
    sends what was typed with each request from then on, whatever that accepts."""
    r = asks.get(path, HTML)
    assert r.status == 401 and r.all("WWW-Authenticate") == ['Bearer realm="tensord"', 'Basic realm="tensord"'], r
    assert asks.head(path, HTML).all("WWW-Authenticate") == r.all("WWW-Authenticate")
    r = asks.get(path, {"Accept": "*/*"})
    assert r.status == 401 and r.all("WWW-Authenticate") == ['Bearer realm="tensord"'], r
    wrong = asks.get(path, {**HTML, **basic("td_wrong")})
    assert wrong.status == 401 and wrong.all("WWW-Authenticate")[1:] == ['Basic realm="tensord"'], wrong
    assert wrong.all("WWW-Authenticate")[0].startswith('Bearer realm="tensord", error="invalid_token"')
    expected = asks.get(path, {**HTML, **tokens.bearer("r")})
    for user in ("any", "", "ü", "r"):
        r = asks.get(path, {**HTML, **basic(tokens.text("r"), user)})
        assert (r.status, r.body, r.etag) == (expected.status, expected.body, expected.etag), r
        assert asks.get(path, basic(tokens.text("r"), user)).status == asks.get(path, tokens.bearer("r")).status
    assert all(name.lower() != "set-cookie" for name, _ in wrong.headers + expected.headers)


def test_passwords_that_are_none(asks):
    for field, says in (("Basic", "no user and password"), ("Basic !", "no user and password"),
                        ("Basic " + base64.b64encode(b"td_x").decode(), "no user and password"),
                        ("Basic " + base64.b64encode(b"user:").decode(), "the password is empty"),
                        ("Basic " + base64.b64encode(b"td_x:other").decode(), "wrong or was revoked")):
        check_error(asks.get("/models", {"Authorization": field}), 401, says)
        r = asks.get("/org/m/resolve/main/config.json", {"Authorization": field})
        assert r.status == 401 and r.get("X-Error-Message") == "Invalid credentials in Authorization header", r
    assert asks.get("/healthz", HTML).status == asks.get("/readyz", HTML).status == 200


def test_the_token_is_not_in_the_log(asks, tokens):
    assert asks.get("/models", basic(tokens.text("r"))).status == 200
    log = asks.whole_log()
    assert tokens.text("r") not in log and basic(tokens.text("r"))["Authorization"].split()[1] not in log
    assert "token=r" in log or 'token="r"' in log
