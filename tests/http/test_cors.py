"""Pages of other origins (--cors-origin): which answers they may read, and which requests they may send.
cors_kit.py is the browser, by the Fetch standard; the fields that viewers send and read are those of their sources, as
named below."""
import contextlib
import json
import re
import subprocess

import pytest

import harness
from cors_kit import Blocked, Page, items
from harness import age, tensor, write_by_hand
from signing import TokensFile

VIEWER, DEV, STRANGER = "https://viewer.example", "http://localhost:5173", "https://stranger.example"
LIST = f"{VIEWER},{DEV}"
FILE = "/models/org/m/files/config.json"
EXPOSED = {"accept-ranges", "content-range", "etag", "link", "retry-after", "server-timing", "www-authenticate",
           "x-error-code", "x-error-message", "x-repo-commit", "x-request-id", "x-row-count", "x-row-skip",
           "x-row-start", "x-row-total", "x-tensor-dtype", "x-tensor-shape", "grpc-status", "grpc-message",
           "grpc-status-details-bin"}
ASKED = {"authorization", "content-type", "content-encoding", "range", "if-range", "if-match", "if-none-match",
         "if-modified-since", "connect-protocol-version", "connect-timeout-ms", "connect-content-encoding",
         "connect-accept-encoding", "grpc-timeout", "x-grpc-web", "x-user-agent", "x-request-id", "traceparent",
         "tensord-checks"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("cors") / "root"
    write_by_hand(root / "org/m/model.safetensors", [tensor("w", "F32", [4, 6])])
    (root / "org/m/config.json").write_text('{"model_type": "test"}')
    (root / "datasets/org/rows").mkdir(parents=True)
    (root / "datasets/org/rows/train.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    age(root)
    return root


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return TokensFile(tmp_path_factory.mktemp("tokens") / "tokens.json").add("t")


SERVERS = {"off": (), "listed": ("--cors-origin", LIST), "any": ("--cors-origin", "*"),
           "tokens": ("--cors-origin", LIST, "--tokens")}


@pytest.fixture(scope="module")
def servers(root, tokens):
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(harness.Server(root, *args, *([tokens] if name == "tokens" else []),
                                                        hash_threads=0)) for name, args in SERVERS.items()}


def tag_of(s, path):
    return s.get(path).etag


# (path, method, fields, status): answers of each facade and of each kind, also those before a request is routed
ANSWERS = [
    ("/models", "GET", {}, 200), ("/models", "HEAD", {}, 200), ("/models/", "GET", {"Accept": "text/html"}, 200),
    ("/", "GET", {}, 200), (FILE, "GET", {}, 200), (FILE, "GET", {"Range": "bytes=0-3"}, 206),
    (FILE, "GET", {"Range": "bytes=0-1,4-5"}, 206), (FILE, "GET", {"Range": "bytes=999-"}, 416),
    (FILE, "GET", {"If-None-Match": "*"}, 304), (FILE, "GET", {"If-Match": '"x"'}, 412),
    ("/models/org/m/tensors/w", "GET", {}, 200), ("/models/org/m/tensors/w?slice=x", "GET", {}, 400),
    ("/models/none", "GET", {}, 404), ("/models?x=1", "GET", {}, 400), ("/models/%zz", "GET", {}, 400),
    ("/models", "POST", {}, 405), ("/models", "DELETE", {}, 405), ("/models", "PROPFIND", {}, 405),
    ("/models", "GET", {"X-Long": "y" * 9000}, 431), ("/models", "GET", {"Transfer-Encoding": "chunked"}, 400),
    ("/models/org/m/tensors:read", "POST", {"Transfer-Encoding": "gzip"}, 400),
    ("/models/org/m/tensors:read", "POST", {"Content-Length": "99999999"}, 413),
    ("/datasets/org/rows/rows?split=train", "GET", {}, 200), ("/metrics", "GET", {}, 200),
    ("/healthz", "GET", {}, 200), ("/openapi.json", "GET", {}, 200),
    ("/org/m/resolve/main/config.json", "GET", {}, 200),
    ("/org/m/resolve/main/config.json", "GET", {"Range": "bytes=0-0"}, 206),
    ("/org/m/resolve/main/none", "GET", {}, 404), ("/org/m/resolve/none/config.json", "HEAD", {}, 404),
    ("/api/models", "GET", {}, 200), ("/api/models/none/none", "GET", {}, 404),
    ("/v2/", "GET", {}, 200), ("/v2/_catalog", "GET", {}, 200), ("/v2/none/tags/list", "GET", {}, 404),
    ("/v2/", "PUT", {}, 405),
]


def ask(s, path, method, fields, origin):
    return s.request(path, {**fields, **({"Origin": origin} if origin else {})}, method)


def check_fields(r, allowed, varies):
    """allowed: the value of Access-Control-Allow-Origin, or None. varies: the answer depends on Origin."""
    assert r.all("Access-Control-Allow-Origin") == ([allowed] if allowed else []), r
    assert items(r, "Access-Control-Expose-Headers") == (EXPOSED if allowed else set()), r
    assert ("origin" in items(r, "Vary")) == varies and len(r.all("Vary")) <= 1, r
    for name in ("Access-Control-Allow-Credentials", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers",
                 "Access-Control-Max-Age", "Access-Control-Allow-Private-Network"):
        assert r.get(name) is None, r


@pytest.mark.parametrize("path, method, fields, status", ANSWERS)
# shows: security.md client-cors
def test_every_answer_has_the_fields(servers, path, method, fields, status):
    for origin in (VIEWER, DEV, STRANGER, "null", "", VIEWER.upper(), VIEWER + ":443", VIEWER + "/"):
        for name in ("off", "listed", "any"):
            r = ask(servers[name], path, method, fields, origin)
            is_change = method in ("POST", "PUT", "DELETE") and status == 405      # of another site: test_cross_site.py
            assert r.status == (403 if is_change and origin else status), (name, r)
            listed = origin if origin in (VIEWER, DEV) else None
            check_fields(r, {"off": None, "listed": listed, "any": "*"}[name], name == "listed")


def test_the_caches_of_other_answers_stay_right(servers):
    """All other fields are those of a server without CORS, and Vary names all that the answer depends on."""
    for path, method, fields, status in ANSWERS:
        off, listed = (ask(servers[name], path, method, fields, VIEWER) for name in ("off", "listed"))
        ours = {"access-control-allow-origin", "access-control-expose-headers", "vary"}
        assert [n for n in off.names() if n not in ours] == [n for n in listed.names() if n not in ours], (off, listed)
        assert items(listed, "Vary") == items(off, "Vary") | {"origin"}, (off, listed)
        if (method, status) != ("GET", 200) or "metrics" not in path:
            assert off.status == listed.status and off.etag == listed.etag and off.length == listed.length


def test_two_fields_are_none(servers):
    r = servers["listed"].get("/models", [("Origin", VIEWER), ("Origin", VIEWER)])
    check_fields(r, None, True)


def test_pages_of_two_origins_share_a_connection(servers):
    """As over a proxy: each answer names the origin that asked for it, also where the answers are equal."""
    for path, fields in ((FILE, {}), (FILE, {"Range": "bytes=0-3"}),
                         ("/models/org/m/tensors/w", {"Range": "bytes=0-7"}),
                         ("/org/m/resolve/main/config.json", {"Range": "bytes=0-3"})):
        with servers["listed"].conn() as c:
            for origin in (VIEWER, VIEWER, DEV, STRANGER, DEV, None, VIEWER, None):
                r = c.request(path, {**fields, **({"Origin": origin} if origin else {})})
                check_fields(r, origin if origin in (VIEWER, DEV) else None, True)


def test_a_stream_of_events(servers):
    for name, allowed in (("off", None), ("listed", VIEWER), ("any", "*")):
        with servers[name].conn() as c:
            c.send(harness.request_bytes("/events", {"Accept": "text/event-stream", "Origin": VIEWER}))
            r = c.read_head()
            assert r.status == 200 and r.get("Content-Type").startswith("text/event-stream"), r
            check_fields(r, allowed, name == "listed")
            assert "accept" in items(r, "Vary")


def test_answers_at_the_limits(root, start):
    """Those that are sent before a request is read cannot know its origin: with a list they have no
    Access-Control-Allow-Origin, but caches keep them apart."""
    for name, allowed in (("off", None), ("listed", None), ("any", "*")):
        s = start(root, *SERVERS[name], "--max-connections-per-address", "2")
        with s.conn(source="127.0.0.2") as one, s.conn(source="127.0.0.2") as two:
            assert one.request("/healthz").status == two.request("/healthz").status == 200
            with s.conn(source="127.0.0.2") as c:
                r = c.read_response()
                assert r.status == 429 and r.get("Retry-After") == "1" and b"this address has too many" in r.body, r
                check_fields(r, allowed, name == "listed")
    for name, allowed in (("off", None), ("listed", VIEWER), ("any", "*")):
        s = start(root, *SERVERS[name], "--max-connections", "1")
        with s.conn() as one:
            assert one.request("/healthz").status == 200
            r = s.get("/models", {"Origin": VIEWER})
            assert r.status == 503 and b"--max-connections" in r.body, r
            check_fields(r, allowed, name == "listed")


def test_tls_on_a_port_without_it(root, start):
    s = start(root, *SERVERS["any"])
    with s.conn() as c:
        c.send(b"\x16\x03\x01\x00\x00")
        r = c.read_response()
        assert r.status == 400 and b"plain HTTP" in r.body, r
        check_fields(r, "*", False)


# ------------------------------------------------------------------------------------------------- preflights

PREFLIGHT_PATHS = [FILE, "/models", "/models/none", "/nothing/here", "/models/%zz", "/org/m/resolve/main/config.json",
                   "/api/models", "/v2/", "/v2/none/tags/list", "/", "/rescan", "/healthz"]


def preflight(s, path, origin, **more):
    fields = {"Origin": origin, "Access-Control-Request-Method": "GET",
              "Access-Control-Request-Headers": "authorization", **more}
    return s.request(path, {k: v for k, v in fields.items() if v is not None}, "OPTIONS")


@pytest.mark.parametrize("path", PREFLIGHT_PATHS)
def test_preflights(servers, path):
    """The same for every path, and without a token: a browser sends none."""
    for name, origin in (("listed", VIEWER), ("listed", DEV), ("any", STRANGER), ("any", "null"), ("tokens", VIEWER)):
        r = preflight(servers[name], path, origin)
        assert r.status == 204 and r.body == b"" and r.get("Content-Type") is None, r
        assert r.all("Access-Control-Allow-Origin") == ["*" if name == "any" else origin], r
        assert items(r, "Access-Control-Allow-Methods") == {"get", "head", "post"}, r
        assert items(r, "Access-Control-Allow-Headers") == ASKED, r
        assert r.get("Access-Control-Max-Age") == "7200", r
        assert items(r, "Vary") == {"access-control-request-method", "access-control-request-headers"} | (
            set() if name == "any" else {"origin"}) and len(r.all("Vary")) == 1, r
        assert r.get("Access-Control-Allow-Credentials") is None, r
        assert r.get("Access-Control-Allow-Private-Network") is None, r


@pytest.mark.parametrize("path", ["/models", FILE, "/org/m/resolve/main/config.json", "/v2/_catalog", "/nothing/here"])
def test_other_requests_by_options(servers, path):
    """Those of strangers, those without the fields of a preflight, and all where CORS is off, are as they were."""
    plain = servers["off"].request(path, (), "OPTIONS")
    assert plain.status in (404, 405), plain
    for s, origin, more in ((servers["off"], VIEWER, {}), (servers["listed"], STRANGER, {}),
                            (servers["listed"], "null", {}), (servers["listed"], None, {}),
                            (servers["listed"], VIEWER, {"Access-Control-Request-Method": None}),
                            (servers["any"], None, {})):
        r = preflight(s, path, origin, **more)
        assert (r.status, r.get("Allow"), r.body) == (plain.status, plain.get("Allow"), plain.body), r
        assert r.get("Access-Control-Allow-Methods") is r.get("Access-Control-Allow-Headers") is None, r
    assert preflight(servers["tokens"], path, STRANGER).status == 401
    assert preflight(servers["tokens"], path, STRANGER).get("Access-Control-Allow-Origin") is None


def test_a_preflight_may_have_what_it_likes(servers):
    """Any method, any field, a body of no length: the answer says what is allowed, and the browser compares."""
    s = servers["listed"]
    for more in ({"Access-Control-Request-Method": "DELETE"}, {"Access-Control-Request-Headers": "x-evil"},
                 {"Access-Control-Request-Headers": None}, {"Content-Length": "0"}, {"Cookie": "a=b"}):
        assert preflight(s, FILE, VIEWER, **more).status == 204, more
    with s.conn() as c:
        for _ in range(3):                                     # the connection stays open
            assert c.request(FILE, {"Origin": VIEWER, "Access-Control-Request-Method": "GET"}, "OPTIONS").status == 204
        assert c.request(FILE, {"Origin": VIEWER}).status == 200
    routes = {labels["route"] for name, labels, _ in s.metrics()[2] if name == "tensord_http_requests_total"}
    assert "none" in routes


def test_private_networks(servers):
    """https://wicg.github.io/private-network-access/: a field for those that ask."""
    asks = {"Access-Control-Request-Private-Network": "true"}
    assert preflight(servers["listed"], FILE, VIEWER, **asks).get("Access-Control-Allow-Private-Network") == "true"
    assert preflight(servers["any"], FILE, VIEWER, **asks).get("Access-Control-Allow-Private-Network") == "true"
    for name, origin in (("listed", STRANGER), ("off", VIEWER)):
        assert preflight(servers[name], FILE, origin, **asks).get("Access-Control-Allow-Private-Network") is None


# ---------------------------------------------------------------------------------------------------- viewers

def page(s, origin=VIEWER):
    return Page(origin, s.request)


def test_viewers_read_files(servers):
    """By the requests and the fields in their sources: @huggingface/hub (utils/WebBlob.ts, lib/file-download-info.ts),
    @huggingface/gguf (gguf.ts), wllama (cache-manager.ts), Netron (browser.js)."""
    for name in ("listed", "any"):
        p = page(servers[name])
        for file in (FILE, "/org/m/resolve/main/config.json"):
            whole = p.fetch(file)
            first = p.fetch(file, {"Range": "bytes=0-0", "Accept": "application/vnd.xet-fileinfo+json, */*"})
            assert first.status == 206 and first.get("Content-Range") == f"bytes 0-0/{len(whole.body)}", first
            assert first.etag == whole.etag and whole.length == len(whole.body)
            assert p.preflights == 0
            head = p.fetch(file, method="HEAD")
            assert head.length == len(whole.body) and head.etag == whole.etag and head.get("Last-Modified"), head
            assert p.fetch(file + "?cb=1700000000000").body == whole.body
            assert p.fetch(file, {"If-None-Match": whole.etag}).status == 304 and p.preflights == 1
            p.preflights = 0
        assert p.fetch("/org/m/resolve/main/config.json").get("X-Repo-Commit")
        assert p.fetch("/org/m/resolve/main/none").get("X-Error-Code") == "EntryNotFound"
        dtype = p.fetch("/models/org/m/tensors/w")
        assert (dtype.get("X-Tensor-Dtype"), dtype.get("X-Tensor-Shape")) == ("F32", "[4,6]"), dtype
        rows = p.fetch("/datasets/org/rows/rows?split=train")
        assert rows.get("X-Row-Total") == "2" and rows.get("X-Row-Start") == "0", rows
        listed = p.fetch("/api/models?limit=1")
        assert listed.status == 200 and listed.json()[0]["id"] == "org/m"


def test_scripts_send_bodies_and_tokens(servers, tokens):
    p = page(servers["listed"])
    read = p.fetch("/models/org/m/tensors:read", {"Content-Type": "application/json"}, "POST")
    assert read.status == 400 and p.preflights == 1, read      # without a body
    p = page(servers["tokens"])
    refused = p.fetch(FILE)
    assert refused.status == 401 and refused.get("WWW-Authenticate") == 'Bearer realm="tensord"', refused
    for file in (FILE, "/org/m/resolve/main/config.json", "/v2/_catalog"):
        assert p.fetch(file, tokens.bearer("t")).status == 200
    assert p.preflights == 3
    with pytest.raises(Blocked):
        page(servers["tokens"], STRANGER).fetch(FILE, tokens.bearer("t"))


def test_what_pages_may_not_do(servers):
    for method in ("PUT", "PATCH", "DELETE"):
        with pytest.raises(Blocked):
            page(servers["any"]).fetch(FILE, method=method)
    with pytest.raises(Blocked):
        page(servers["any"]).fetch(FILE, {"X-Other": "1"})
    for s, origin in ((servers["off"], VIEWER), (servers["listed"], STRANGER), (servers["listed"], "null")):
        for file in (FILE, "/org/m/resolve/main/config.json", "/v2/", "/models/none"):
            with pytest.raises(Blocked):
                page(s, origin).fetch(file)


# ---------------------------------------------------------------------------------------------------- options

def printed(*args, env=None, code=0):
    done = subprocess.run([harness.tensord_binary(), "serve", *map(str, args), "--print-config"], capture_output=True,
                          text=True, timeout=60, env=env)
    assert done.returncode == code, done
    return json.loads(done.stdout)["cors-origin"] if code == 0 else done.stderr


@pytest.mark.parametrize("wrong", [
    "https://viewer.example/", "https://viewer.example/x", "viewer.example", "https://", "http://a:0", "http://a:65536",
    "http://a:x", "null", "https://a.example,", ",https://a.example", "https://a.example, https://b.example",
    "https://a.example,*", "*,*", "http://user@a.example", "https://*.example", "http://bücher.example", "a b",
])
def test_what_is_no_origin(tmp_path, wrong):
    said = printed(tmp_path, "--cors-origin", wrong, code=2)
    assert "--cors-origin" in said and "is no origin" in said and said.count("\n") == 1, said
    file = tmp_path / "tensord.json"
    file.write_text(json.dumps({"directory": str(tmp_path), "cors-origin": wrong}))
    assert "is no origin" in printed("--config", file, code=2)
    done = subprocess.run([harness.tensord_binary(), "serve", tmp_path, "--cors-origin", wrong], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 2 and "is no origin" in done.stderr, done


def test_where_the_option_comes_from(tmp_path):
    assert printed(tmp_path) == ""
    assert printed(tmp_path, "--cors-origin", "*") == "*"
    assert printed(tmp_path, "--cors-origin", VIEWER, "--cors-origin", DEV) == LIST
    assert printed(tmp_path, env={"TENSORD_CORS_ORIGIN": LIST}) == LIST
    file = tmp_path / "tensord.json"
    file.write_text(json.dumps({"directory": str(tmp_path), "cors-origin": LIST}))
    assert printed("--config", file) == LIST
    many = [f"http://a{i}" for i in range(65)]
    assert printed(tmp_path, "--cors-origin", ",".join(many[:64]))
    assert "more than 64 origins" in printed(tmp_path, "--cors-origin", ",".join(many), code=2)


def test_origins_are_those_that_browsers_send(root, start):
    """The option may spell them otherwise: RFC 6454 section 6.2 has one spelling."""
    s = start(root, "--cors-origin", "HTTPS://Viewer.Example:443", "--cors-origin", "http://LOCALHOST:5173")
    for origin in (VIEWER, DEV):
        check_fields(s.get("/models", {"Origin": origin}), origin, True)


def test_the_port_for_s3_has_none(root, start):
    s = start(root, *SERVERS["any"], "--s3-listen", "127.0.0.1:0")
    port = int(re.search(r"S3 clients on http://127.0.0.1:(\d+)", s.stderr())[1])
    with harness.Conn(port) as c:
        check_fields(c.request("/org", {"Origin": VIEWER}), None, False)
        assert c.request("/org", {"Origin": VIEWER, "Access-Control-Request-Method": "GET"}, "OPTIONS").status == 405
