"""Tokens: who is refused and how, and that a model which a token may not see is like one that never existed. What a
token sees is compared with a server over the visible files alone."""
import base64
import contextlib
import hashlib
import json
import os
import re
import subprocess
import time

import pytest
import yaml

import harness
from harness import REPO, Server, check_error, enc, tensor, write_by_hand

# Names of hidden things, and of things that never existed, of the same length.
HIDDEN, ABSENT = "hidden", "absent"
# Fields of an answer that differ by chance or by time.
VARYING = {"date", "x-request-id", "x-amz-request-id", "server-timing"}
MAKE_TOKEN = [harness.tensord_binary(), "token"]


def token_command(*args, tokens=None, env=None, code=0):
    """Run `tensord token`; return what it printed."""
    args = [str(a) for a in args] + (["--tokens", str(tokens)] if tokens else [])
    done = subprocess.run(MAKE_TOKEN + args, capture_output=True, text=True, timeout=60,
                          env=dict(os.environ) | (env or {}))
    assert done.returncode == code, (args, done)
    return done.stdout if code == 0 else done.stderr


def new(tokens, name, *models, **kw):
    args = [a for glob in models for a in ("--models", glob)] + [a for k, v in kw.items() for a in (f"--{k}", v)]
    return json.loads(token_command("new", name, *args, "--json", tokens=tokens))["token"]


def bearer(token):
    return [("Authorization", f"Bearer {token}")]


def write_model(folder, *names):
    folder.mkdir(parents=True)
    write_by_hand(folder / "model.safetensors", [tensor(n, "F32", [4, 6], str(folder.name)) for n in names or ("w",)])
    (folder / "config.json").write_text('{"model_type": "test", "hidden_size": 4}')


VISIBLE = ["org/seen", "short", "org/seen/inner"]


def build(root, with_hidden=True):
    """The visible models first, in the same order in both trees, so that scans find the same."""
    for id in VISIBLE:
        write_model(root / id)
    (root / "datasets/org/rows").mkdir(parents=True)
    (root / "datasets/org/rows/train.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    if with_hidden:
        write_model(root / f"org/{HIDDEN}")
        write_model(root / f"{HIDDEN}", "w", "v")
        write_model(root / f"org/seen/{HIDDEN}")
        write_model(root / f"{HIDDEN}org/model")
        (root / f"org/{HIDDEN}/broken.safetensors").write_bytes(b"no safetensors")
        (root / f"datasets/org/{HIDDEN}").mkdir(parents=True)
        (root / f"datasets/org/{HIDDEN}/train.jsonl").write_text('{"a": 1}\n')
        (root / f"org/{HIDDEN}-files").mkdir()
        (root / f"org/{HIDDEN}-files/notes.txt").write_text("secret notes")
        (root / f"bad/tensors/{HIDDEN}/tensors").mkdir(parents=True)      # a problem of the whole server
        write_by_hand(root / f"bad/tensors/{HIDDEN}/tensors/w.safetensors", [tensor("w", "U8", [1])])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A server with tokens over all files, one without over links to the visible files, and the tokens."""
    top = tmp_path_factory.mktemp("tokens")
    root, shown, tokens = top / "root", top / "shown", top / "tokens.json"
    build(root)
    harness.age(root)
    build_links(root, shown)
    some = new(tokens, "some", *VISIBLE, "datasets/org/rows")
    every = new(tokens, "every")
    s = Server(root, "--tokens", tokens, hash_threads=0)
    plain = Server(shown, hash_threads=0)
    for server, fields in ((s, bearer(every)), (plain, [])):
        server.wait_for(lambda s=server, fields=fields: b'"ready"' in s.get("/datasets/org/rows", fields).body,
                        "the rows to be indexed")
    yield type("World", (), {"s": s, "plain": plain, "some": some, "every": every, "tokens": tokens, "root": root})
    s.stop()
    plain.stop()


def build_links(root, shown):
    """Link the visible files into a tree of their own: the same inodes, so that entity tags are the same."""
    build(shown, with_hidden=False)
    for path in sorted(p for p in shown.rglob("*") if p.is_file()):
        path.unlink()
        os.link(root / path.relative_to(shown), path)


# ------------------------------------------------------------------------------------------------- refusals

PATHS = ["/", "/models", "/models/org/seen", "/models/org/none", "/version", "/rescan", "/nothing/here", "/datasets",
         "/models/org/seen/files/config.json", "/%2e", "/healthz/x", "/models/org/seen?wait=x"]
HUB = ["/api/models", "/api/models/org/seen", "/api/models/org/none", "/api/whoami-v2", "/api/nothing",
       "/org/seen/resolve/main/config.json", "/org/none/resolve/main/x", "/datasets/org/rows/resolve/main/train.jsonl"]


def challenge(r):
    return r.get("WWW-Authenticate")


@pytest.mark.parametrize("path", PATHS + HUB)
# shows: security.md token-refusals
def test_nobody_is_refused(world, path):
    for method in ("GET", "HEAD", "OPTIONS"):
        r = world.s.request(path, method=method)
        assert r.status == 401 and challenge(r) == 'Bearer realm="tensord"', r   # RFC 6750 section 3.1: no error code
        assert r.get("Cache-Control") == "no-store"
    r = world.s.get(path)
    message = r.json()["error"] if path in HUB else check_error(r, 401)
    assert "Authorization: Bearer" in (message if isinstance(message, str) else message["message"])


POSTS = ["/sign", "/models/org/seen/tensors:read", "/models/org/none/plans", "/datasets/org/rows/rows:batchGet",
         "/api/models/org/seen/paths-info/main"]


@pytest.mark.parametrize("path", POSTS)
# shows: security.md token-bodies
def test_no_body_is_read_for_nobody(world, path):
    """RFC 9110 section 10.1.1: a final answer in place of 100. The body never comes."""
    length = [("Content-Length", "8388608")]
    for headers in (length, length + [("Expect", "100-continue")], length + bearer("td_" + "A" * 43)):
        with world.s.conn(timeout=5) as c:
            c.send(harness.request_bytes(path, headers, "POST"))
            r = c.read_response("POST")
            assert r.status == 401 and not r.interim and challenge(r).startswith("Bearer "), r
            assert c.ended()
    with world.s.conn() as c:
        c.send(harness.request_bytes(path, length + [("Expect", "100-continue")] + bearer(world.every), "POST"))
        assert c.read_head().status == 100
    with world.s.conn() as c:                      # a signature is for GET and HEAD alone
        c.send(harness.request_bytes(f"{path}?expires=9999999999&signature={'0' * 64}", length, "POST"))
        assert c.read_response("POST").status == 403
        assert c.ended()


# shows: security.md token-bodies
def test_bodies_of_nobody_take_no_memory(world):
    """A client without a token sends all but the end of twelve bodies of the longest kind, and holds up nobody."""
    before = world.s.anon_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            c = stack.enter_context(contextlib.closing(world.s.conn(source="127.0.0.2")))
            with contextlib.suppress(ConnectionError):
                c.send(harness.request_bytes("/sign", [("Content-Length", "8388608")], "POST") + b" " * 8388600)
        assert world.s.anon_bytes() - before < 32 << 20
        r = world.s.post("/sign", {"path": "/models", "expires_in": 60}, bearer(world.every))
        assert r.status == 200, r


@pytest.mark.parametrize("what,headers,invalid", [
    ("wrong", bearer("td_" + "A" * 43), True),
    ("empty", bearer(""), False),
    ("blank", bearer(" "), False),
    ("a secret key of S3", bearer("A" * 42 + "E"), True),
    ("a prefix", None, True),
    ("a longer one", None, True),
    ("long", bearer("x" * 5000), True),
    ("odd bytes", [("Authorization", b"Bearer \xff\x80\xc3".decode("latin-1"))], True),
    ("basic", [("Authorization", "Basic " + base64.b64encode(b"user:td_x").decode())], True),
    ("aws", [("Authorization", "AWS4-HMAC-SHA256 Credential=x")], False),
    ("no scheme", None, False),
    ("other name", [("X-Authorization", "Bearer x")], False),
])
# shows: security.md token-refusals
def test_wrong_credentials(world, what, headers, invalid):
    good = world.every
    headers = headers or {"a prefix": bearer(good[:-1]), "a longer one": bearer(good + "x"),
                          "no scheme": [("Authorization", good)]}[what]
    for path in ("/models", "/api/models/org/seen", "/org/seen/resolve/main/config.json"):
        r = world.s.get(path, headers)
        assert r.status == 401, (what, r)
        error = 'error="invalid_token"' in challenge(r)
        assert error == invalid or what in ("empty", "blank"), (what, r)
        assert challenge(r).startswith('Bearer realm="tensord"')
        if "/models" != path and error:
            # huggingface_hub: any other text would make this a missing repository
            assert r.get("X-Error-Message") == "Invalid credentials in Authorization header"
    assert good not in world.s.whole_log()


def test_mistakes_with_tokens_are_told(world):
    r = world.s.get("/models", bearer(""))
    check_error(r, 401, "no token after Bearer: is the variable empty")
    keys = json.loads(token_command("list", "--json", tokens=world.tokens))["tokens"][0]
    for key in ("A" * 42 + "E", keys["s3_access_key"]):
        check_error(world.s.get("/models", bearer(key)), 401, "looks like a key for clients of S3")


# shows: security.md token-refusals
def test_two_fields_are_none(world):
    r = world.s.get("/models", bearer(world.every) + bearer(world.every))
    assert r.status == 401 and "invalid_token" in challenge(r), r
    r = world.s.get("/models", bearer(world.every) + [("Authorization", "Basic eDp5")])
    assert r.status == 401, r


def test_the_scheme_has_no_case(world):                                        # RFC 9110 section 11.1
    for scheme in ("bearer", "BEARER", "BeArEr", "Bearer "):
        assert world.s.get("/models", [("Authorization", f"{scheme} {world.every}")]).status == 200


def test_what_is_open(world):
    for path in ("/healthz", "/readyz"):
        for headers in ([], bearer("wrong"), bearer(world.some)):
            assert world.s.get(path, headers).status == 200, path
    for path in ("/metrics", "/openapi.json"):       # from this machine; see test_access.c for others
        assert world.s.get(path).status == 200
        assert world.s.get(path, bearer(world.some)).status == 200
        assert world.s.get(path, bearer("wrong")).status == 401
    assert set(world.s.get("/readyz", bearer(world.some)).json()) == {"ready", "state"}
    assert world.s.get("/readyz").json()["models"] == world.s.get("/readyz", bearer(world.every)).json()["models"]


def test_hidden_models_are_not_in_labels(world):
    world.s.get(f"/models/org/{HIDDEN}", bearer(world.some))
    text = world.s.get("/metrics").body.decode()
    assert HIDDEN not in text and "some" not in re.sub(r"^#.*$", "", text, flags=re.M)


# shows: security.md token-shared-caches
def test_answers_are_private(world):
    commit = world.s.get("/api/models/org/seen", bearer(world.some)).json()["sha"]
    path = f"/org/seen/resolve/{commit}/config.json"
    assert world.s.get(path, bearer(world.some)).get("Cache-Control") == "private, max-age=31536000, immutable"
    assert world.plain.get(path).get("Cache-Control") == "public, max-age=31536000, immutable"
    for path in ("/models", "/models/org/seen", "/org/seen/resolve/main/config.json", "/api/models/org/seen",
                 "/openapi.json", "/datasets"):
        first = world.s.get(path, bearer(world.some))
        again = world.s.get(path, [*bearer(world.some), *([("If-None-Match", first.etag)] if first.etag else [])])
        assert first.status == 200 and again.status == (304 if first.etag else 200), path
        assert [r.get("Cache-Control") for r in (first, again)] == ["private, no-cache"] * 2, path
        assert world.plain.get(path).get("Cache-Control") == "no-cache", path


def test_s3_refuses_what_is_not_signed(world, start):
    s = start(world.root, "--tokens", world.tokens, "--s3-listen", "127.0.0.1:0")
    port = int(re.search(r"S3 clients on http://127.0.0.1:(\d+)", s.stderr())[1])
    for path in ("/", "/org", "/org/seen/config.json", "/none", "/healthz"):
        with harness.Conn(port) as c:
            r = c.request(path, (), "GET", "HTTP/1.1")
        assert r.status == 403 and b"<Code>AccessDenied</Code>" in r.body, r


# shows: security.md token-slow-patterns
def test_slow_patterns_hold_nothing_up(tmp_path, start):
    """Patterns that match each of 300 long names at great length, for longer than the test would wait."""
    root, tokens = tmp_path / "root", tmp_path / "tokens.json"
    for i in range(300):
        (root / f"{i:03}{'a' * 240}").mkdir(parents=True)
        write_by_hand(root / f"{i:03}{'a' * 240}/m.safetensors", [tensor("w", "U8", [1])])
    letters = "".join(chr(0x100 + i) for i in range(500))
    slow = new(tokens, "slow", *(f"*[{letters}]{i}?" for i in range(60)))
    fast = new(tokens, "fast")
    s = start(root, "--tokens", tokens, "--drain-timeout", "1")
    with s.conn() as first, s.conn() as second:
        for c in (first, second):
            c.send(harness.request_bytes("/models", bearer(slow), port=s.port))
        s.wait_for(lambda: s.get("/models", bearer(fast)).status == 200, "others are served")
        with pytest.raises(TimeoutError):
            second.sock.settimeout(0.5)
            second.sock.recv(1)
        began = time.monotonic()
        s.term()
        assert s.wait_exit() == 0
        assert time.monotonic() - began < 6, "--drain-timeout is 1"


# ------------------------------------------------------------------------------------------- what is hidden

def comparable(r, name):
    """Status, fields and body of an answer, with the name replaced."""
    def plain(text):
        return text.replace(name, "NAME")
    fields = sorted((k.lower(), plain(v)) for k, v in r.headers if k.lower() not in VARYING)
    return r.status, fields, plain(r.body.decode("utf-8", "surrogateescape"))


def targets(name):
    """All paths of the contract, for models and datasets of this name, and some that it does not have."""
    doc = yaml.safe_load((REPO / "api/openapi.yaml").read_text())
    fill = {"name": "w", "path": "config.json", "engine": "vllm", "size": "1", "rank": "0", "plan": "0" * 32,
            "file": "rank-0.safetensors", "revision": "main", "row": "0", "number": "0", "digest": "sha256:" + "0" * 64}
    ids = [f"org/{name}", name, f"local/{name}", f"org/seen/{name}", f"{name}org/model", f"{name}org",
           f"org/{name}/deeper", f"org/{name}-files", f"bad/tensors/{name}"]
    for path, item in doc["paths"].items():
        if "{id}" not in path:
            continue
        for id in ids:
            text = path.replace("{id}", enc(id, safe="/"))
            for key, value in fill.items():
                text = text.replace("{%s}" % key, value)
            assert "{" not in text, path
            for method in ("get", "head", "post"):
                yield method.upper(), text, None
                if "get" in item and method == "get":
                    yield "GET", text, [("Accept", "text/html")]
                    yield "GET", text + "?wait=x&timeout=0", None
                    yield "GET", text, [("Range", "bytes=0-3"), ("If-None-Match", "*")]
    for id in ids:
        quoted = enc(id, safe="/")
        for path in (f"/{quoted}", f"/{quoted}/", f"/datasets/{quoted}", f"/models/{quoted}/", f"/models/{quoted}/none",
                     f"/{quoted}/resolve/main/", f"/{quoted}/raw/main/config.json", f"/{quoted}/resolve/safetensors/x",
                     f"/{quoted}/resolve/tp1-rank0-vllm/model.safetensors", f"/api/models/{quoted}/refs",
                     f"/api/models/{quoted}/tree/main/sub", f"/api/models/{quoted}/auth-check",
                     f"/api/datasets/{quoted}", f"/api/models/{quoted}/revision/{'a' * 40}",
                     f"/{quoted}/resolve/{'a' * 40}/config.json", f"/models/org/seen/files/../{quoted}"):
            yield "GET", path, None
            yield "GET", path, [("Accept", "text/html")]
    for path in (f"/models?match=*{name}*", f"/api/models?search={name}", f"/api/models?author={name}org",
                 f"/api/datasets?search={name}", f"/models/org/seen/files/{name}/config.json",
                 f"/org/seen/resolve/main/{name}/config.json", f"/api/models/org/seen/tree/main/{name}"):
        yield "GET", path, None
    yield "GET", f"/?match={name}", [("Accept", "text/html")]


# shows: security.md token-hidden
def test_hidden_is_like_absent(world):
    """Everything that can be asked about a hidden name has the answer for a name that never existed."""
    def ask(method, target, headers):
        headers = bearer(world.some) + (headers or [])
        return world.s.post(target, b"{}", headers) if method == "POST" else world.s.request(target, headers, method)
    asked = 0
    for (method, hidden, headers), (_, absent, _) in zip(targets(HIDDEN), targets(ABSENT)):
        got, want = ask(method, hidden, headers), ask(method, absent, headers)
        assert comparable(got, HIDDEN) == comparable(want, ABSENT), f"{method} {hidden}\n{got}\n{want}"
        assert got.status in (200, 404, 405) or method == "POST" or "wait" in hidden, got
        asked += 1
    assert asked > 1000


def test_the_tree_has_what_is_hidden(world):
    """The test above would pass, too, if nothing were there."""
    for path in (f"/models/org/{HIDDEN}", f"/models/{HIDDEN}", f"/models/org/seen/{HIDDEN}/files/config.json",
                 f"/datasets/org/{HIDDEN}", f"/api/models/org/{HIDDEN}", f"/org/{HIDDEN}-files/resolve/main/notes.txt",
                 f"/models/local/{HIDDEN}/tensors"):
        r = world.s.get(path, bearer(world.every))
        assert r.status == 200, r
    assert HIDDEN in json.dumps(world.s.get("/models", bearer(world.every)).json())


def paths_of_lists(world):
    yield from ["/", "/models", "/models?page_size=1", "/datasets", "/api/models", "/api/models?full=true&limit=1",
                "/api/datasets", "/api/models?author=org", "/version", "/nothing", "/datasets/org/rows",
                "/datasets/org/rows/rows?split=train", "/datasets/org/rows/resolve/main/train.jsonl"]
    for id in VISIBLE:
        yield from [f"/models/{id}", f"/models/{id}/tensors", f"/models/{id}/files", f"/models/{id}/files/config.json",
                    f"/models/{id}/tensors/w", f"/models/{id}/shards/none/tp1/rank-0.safetensors", f"/{id}"]
    yield from ["/api/models/org/seen", "/api/models/org/seen/tree/main?recursive=1", "/api/models/org/seen/refs",
                "/api/models/org/seen/tree/main", "/org/seen/resolve/main/", "/org/seen/resolve/main/inner/config.json",
                "/api/models/local/short", "/api/models/short/commits/main", "/org/seen/resolve/main/model.safetensors",
                "/org/seen/resolve/safetensors/model.safetensors"]


# shows: security.md token-hidden
def test_the_rest_is_as_without_the_hidden(world):
    """A token that sees some models gets what a server without tokens has that serves these alone."""
    for path in paths_of_lists(world):
        for accept in ([], [("Accept", "text/html")]):
            got = world.s.get(path, bearer(world.some) + accept)
            want = world.plain.get(path, accept)
            for r in (got, want):
                r.headers[:] = [(k, re.sub("^public|^(?=no-cache)", lambda m: "private" if m[0] else "private, ", v)
                                 .replace(f":{world.s.port}", ":PORT").replace(f":{world.plain.port}", ":PORT"))
                                for k, v in r.headers]
                r.body = r.body.replace(b":%d" % world.s.port, b":PORT").replace(b":%d" % world.plain.port, b":PORT")
                # lines to copy have a variable with the token on a server with tokens
                r.body = re.sub(rb'<section id="commands".*?</section>', b"", r.body, flags=re.DOTALL)
                if b":PORT" in r.body or accept:  # the tag and the length are of the page with the port
                    r.headers[:] = [(k, v) for k, v in r.headers if k.lower() not in ("etag", "content-length")]
            assert comparable(got, "-") == comparable(want, "-"), f"{path}\n{got}\n{want}"


def test_a_token_for_all_sees_all(world):
    seen = {m["id"] for m in world.s.get("/models", bearer(world.every)).json()["models"]}
    assert seen == set(VISIBLE) | {HIDDEN, f"org/{HIDDEN}", f"org/seen/{HIDDEN}", f"{HIDDEN}org/model"}


# shows: security.md token-hidden
def test_plans_belong_to_their_model(world):
    plan = {"engine": "none", "tp_size": 1}
    for token, model in ((world.every, f"org/{HIDDEN}"), (world.every, HIDDEN)):
        made = world.s.post(f"/models/{model}/plans", plan, bearer(token))
        assert made.status == 201, made
    id = made.get("Location").removeprefix("plans/")
    assert world.s.get(f"/models/{HIDDEN}/plans/{id}", bearer(world.every)).status == 200
    for path in (f"/models/org/seen/plans/{id}", f"/models/org/seen/plans/{id}/rank-0.safetensors"):
        assert world.s.get(path, bearer(world.some)).status == 404
    made = world.s.post("/models/org/seen/plans", plan, bearer(world.some))
    assert made.status == 201, made                 # not 200: the other plan is not disclosed
    assert world.s.get(f"/models/org/seen/plans/{id}", bearer(world.some)).status == 200


def test_rescan_needs_a_token_and_names_what_it_sees(place, start):
    root, tokens = place / "root", place / "tokens"
    build(root)
    harness.age(root)
    some = new(tokens, "some", *VISIBLE, "org/seen2")
    s = start(root, "--tokens", tokens, rescan="0")
    assert s.request("/rescan", method="POST").status == 401
    write_model(root / "org/seen2")
    write_model(root / f"org/{HIDDEN}2")
    report = s.post("/rescan", b"", bearer(some)).json()
    assert report["published"] == ["org/seen2"] and report["models"] == 4 and HIDDEN not in json.dumps(report)


def test_a_waiting_request_hears_nothing_of_hidden_models(place, start):
    root, tokens = place / "root", place / "tokens"
    build(root)
    harness.age(root)
    some = new(tokens, "some", *VISIBLE)
    s = start(root, "--tokens", tokens, rescan="0")
    files = s.get("/readyz").json()["files"]
    tag = s.get("/models/org/seen", bearer(some)).etag
    (root / f"org/seen/{HIDDEN}/new.txt").write_text("x")
    s.hup()
    s.wait_for(lambda: s.get("/readyz").json()["files"] == files + 1, "the new file is listed")
    assert s.get("/models/org/seen", bearer(some)).etag == tag
    r = s.get(f"/models/org/seen?wait={enc(tag)}&timeout=1", bearer(some))
    assert r.status == 304, r


def test_the_right_to_read(place, start):
    root, tokens = place / "root", place / "tokens"
    write_model(root / "m")
    token = new(tokens, "writer")
    document = json.loads(tokens.read_text())
    document["tokens"][0]["rights"] = ["write"]
    tokens.write_text(json.dumps(document))
    s = start(root, "--tokens", tokens)
    check_error(s.get("/models", bearer(token)), 403, "right to read")
    r = s.get("/api/models/m", bearer(token))
    assert r.status == 403 and "right to read" in r.json()["error"] and "right to read" in r.get("X-Error-Message")
    assert challenge(r) is None


# ------------------------------------------------------------------------------------------------- changes

def test_changes_need_no_restart(place, start):
    root, tokens = place / "root", place / "tokens"
    write_model(root / "m")
    first = new(tokens, "first")
    s = start(root, "--tokens", tokens, rescan="0")
    assert s.get("/models", bearer(first)).status == 200
    second = new(tokens, "second")
    s.wait_for(lambda: s.get("/models", bearer(second)).status == 200, "the new token is known")
    assert s.get("/models", bearer(first)).status == 200
    token_command("revoke", "first", tokens=tokens)
    s.hup()
    s.wait_for(lambda: s.get("/models", bearer(first)).status == 401, "the revoked token is refused")
    assert "wrong or was revoked" in s.get("/models", bearer(first)).json()["error"]["message"]
    assert s.gauge("tensord_tokens") == 1 and s.gauge("tensord_tokens_file_failed") == 0
    assert f'requests need a token, those of "{tokens}": 1 token, 0 of them expired' in s.stderr()
    assert f'read the tokens file "{tokens}" again: 2 tokens, 0 of them expired' in s.stderr()
    token_command("revoke", "second", tokens=tokens)
    s.wait_for(lambda: "everybody is refused" in s.stderr(), "the warning that no token is left")


# shows: security.md token-bad-file
def test_a_bad_file_changes_nothing(place, start):
    root, tokens = place / "root", place / "tokens"
    write_model(root / "m")
    token = new(tokens, "t")
    good = tokens.read_text()
    s = start(root, "--tokens", tokens, rescan="0")
    for bad, says in (("{", "ends too early"), (good.replace('"name"', '"nam"'), 'unknown key "nam"'), (None, "0644")):
        if bad is None:
            tokens.write_text(good)
            tokens.chmod(0o644)
        else:
            tokens.write_text(bad)
        s.wait_for(lambda: s.gauge("tensord_tokens_file_failed") == 1 and says in s.stderr(), f"the log says {says}")
        assert s.get("/models", bearer(token)).status == 200
        assert s.get("/models", bearer("x")).status == 401
    count = s.stderr().count("the tokens stay as they were")
    time.sleep(2.2)                                  # two more looks: nothing has changed, nothing is said
    assert s.stderr().count("the tokens stay as they were") == count
    tokens.unlink()
    s.wait_for(lambda: "No such file" in s.stderr(), "the log says that the file is gone")
    assert s.get("/models", bearer(token)).status == 200
    tokens.write_text(good)
    tokens.chmod(0o600)
    s.wait_for(lambda: s.gauge("tensord_tokens_file_failed") == 0, "the file is read again")
    assert token not in s.stderr()


def test_an_expired_token_says_so(place, start):
    root, tokens = place / "root", place / "tokens"
    write_model(root / "m")
    token = new(tokens, "old")
    document = json.loads(tokens.read_text())
    document["tokens"][0]["expires"] = "2020-01-31T12:00:00Z"
    tokens.write_text(json.dumps(document))
    short = new(tokens, "short", expires="2s")
    s = start(root, "--tokens", tokens)
    r = s.get("/models", bearer(token))
    check_error(r, 401, "expired on 2020-01-31T12:00:00")
    assert 'error="invalid_token"' in challenge(r) and "2020-01-31" in challenge(r)
    assert "expired" in s.get("/api/models", bearer(token)).json()["error"]
    s.wait_for(lambda: s.get("/models", bearer(short)).status == 401, "the short token expires")
    assert "2 tokens, 1 of them expired" in s.stderr() and "everybody is refused" not in s.stderr()
    assert "token=old" in next(x for x in s.whole_log().splitlines() if "/models " in x.replace('"', " "))


def test_a_kubernetes_secret_is_followed(place, start):
    """Secrets are links to files in a directory behind a link, which is replaced."""
    root = place / "root"
    write_model(root / "m")
    volume = place / "volume"
    made = []
    for i in (1, 2):
        (volume / f"..{i}").mkdir(parents=True)
        made.append(new(volume / f"..{i}/tokens", "t"))
        (volume / f"..{i}/tokens").chmod(0o440)
    (volume / "..data").symlink_to("..1")
    (volume / "tokens").symlink_to("..data/tokens")
    s = start(root, "--tokens", volume / "tokens", rescan="0")
    assert [s.get("/models", bearer(t)).status for t in made] == [200, 401]
    (volume / "..new").symlink_to("..2")
    (volume / "..new").rename(volume / "..data")
    s.wait_for(lambda: [s.get("/models", bearer(t)).status for t in made] == [401, 200], "the new secret is used")


@pytest.mark.parametrize("form", ["text", "json"])
# shows: security.md token-logs
def test_the_log_has_names_alone(place, start, form):
    root, tokens = place / "root", place / "tokens"
    write_model(root / "m")
    token = new(tokens, "ci-7")
    s = start(root, "--tokens", tokens, "--log-format", form)
    with s.conn() as c:         # the lines of one connection are in order
        for target, sent in (("/models/m", token), ("/models/none", token), ("/models/m", token + "x")):
            c.request(target, bearer(sent))
    s.wait_for(lambda: s.log().count("/models/") == 3, "the lines of all answers")
    lines = s.log().splitlines()
    assert token not in s.log() and token not in s.stderr()
    if form == "json":
        names = [json.loads(line).get("token") for line in lines if "/models/" in line]
    else:
        names = [m and m[1] for m in (re.search(r" token=(\S+)", line) for line in lines if "/models/" in line)]
    assert names == ["ci-7", "ci-7", None]


# ------------------------------------------------------------------------------------------ starting, commands

def serve(root, *args, env=None):
    """Start a server that must not start. Return its code and what it said."""
    done = subprocess.run([harness.tensord_binary(), "serve", str(root), *map(str, args)], capture_output=True,
                          text=True, timeout=60, env=dict(os.environ) | (env or {}))
    return done.returncode, done.stderr


def test_require_auth(place, start):
    root, tokens = place / "root", place / "tokens"
    write_model(root / "m")
    code, said = serve(root, "--listen", "0.0.0.0:0", "--require-auth")
    assert code == 1 and "--require-auth" in said and "tensord token new" in said
    code, said = serve(root, "--require-auth", "no")
    assert code == 2 and '--require-auth takes on or off, not "no"' in said
    code, said = serve(root, "--listen", "127.0.0.1:0", "--s3-listen", "0.0.0.0:0", "--require-auth", "on")
    assert code == 1 and "--require-auth" in said
    s = start(root, "--require-auth")                                                   # on loopback
    assert s.get("/models").status == 200 and "without a token" not in s.stderr()
    new(tokens, "t")
    s = start(root, "--require-auth", "--tokens", tokens, host="0.0.0.0")
    assert s.get("/models").status == 401 and "without a token" not in s.stderr()
    s = start(root, host="0.0.0.0")
    assert s.get("/models").status == 200 and "every client that can connect can read every model" in s.stderr()


def test_a_bad_file_does_not_start(place):
    root, tokens = place / "root", place / "tokens"
    write_model(root / "m")
    code, said = serve(root, "--listen", "127.0.0.1:0", "--tokens", tokens)
    assert code == 1 and "No such file" in said and str(tokens) in said
    token = new(tokens, "t")
    code, said = serve(root, "--listen", "127.0.0.1:0", "--tokens", token)
    assert code == 1 and token not in said and "a token stands where the path" in said
    assert token not in token_command("new", "t", tokens=token, code=2)
    tokens.chmod(0o604)
    code, said = serve(root, "--listen", "127.0.0.1:0", env={"TENSORD_TOKENS": str(tokens)})
    assert code == 1 and "chmod 0600" in said


def test_the_commands(place):
    tokens = place / "tokens"
    text = token_command("new", "ci", "--models", "org/*", "--models=datasets/x", "--expires", "30d", tokens=tokens)
    shown = dict(re.findall(r"^(\w+):\s+(.*)$", text, re.M))
    assert shown["name"] == "ci" and shown["models"] == "org/* datasets/x" and "not shown again" in text
    assert re.fullmatch(r"td_[A-Za-z0-9_-]{43}", shown["token"])
    assert re.fullmatch(r"TD[A-Z0-9]{18}", shown["s3_access_key"])
    assert tokens.stat().st_mode & 0o7777 == 0o600
    stored = json.loads(tokens.read_text())
    assert stored["tokens"][0]["sha256"] == hashlib.sha256(shown["token"].encode()).hexdigest()
    assert shown["token"] not in tokens.read_text() and shown["s3_secret_key"] not in tokens.read_text()
    expires = time.mktime(time.strptime(shown["expires"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
    assert abs(expires - time.time() - 30 * 86400) < 60
    made = json.loads(token_command("new", "all", "--json", env={"TENSORD_TOKENS": str(tokens)}))
    assert set(made) == {"name", "token", "s3_access_key", "s3_secret_key", "models", "rights", "expires"}
    assert made["models"] is None and made["expires"] is None
    rows = [line.split() for line in token_command("list", tokens=tokens).splitlines()]
    assert rows[0] == ["NAME", "EXPIRES", "EXPIRED", "MODELS"]
    assert rows[1][0] == "ci" and rows[1][2:] == ["no", "org/*", "datasets/x"]
    assert rows[2] == ["all", "never", "no", "all"]
    listed = json.loads(token_command("list", "--json", tokens=tokens))["tokens"]
    assert [t["name"] for t in listed] == ["ci", "all"]
    assert not any("token" in t or "s3_secret_key" in t for t in listed)
    assert token_command("revoke", "ci", tokens=tokens) == "revoked ci; servers refuse it within 10 s\n"
    assert [t["name"] for t in json.loads(token_command("list", "--json", tokens=tokens))["tokens"]] == ["all"]
    assert json.loads(tokens.read_text())["master_key"] == stored["master_key"]


@pytest.mark.parametrize("args,code,says", [
    ([], 2, "give new, list or revoke"),
    (["make"], 2, "new, list and revoke, not make"),
    (["new"], 2, "give the token's name"),
    (["new", "a", "b"], 2, "only one name"),
    (["new", "a b"], 2, "1 to 64 letters"),
    (["new", "x", "--expires", "tomorrow"], 2, "such as 12h"),
    (["new", "x", "--expires", "0d"], 2, "12h or 30d, from 1s"),
    (["new", "x", "--expires", "0s"], 2, "from 1s to 100 years"),
    (["new", "x", "--models", "org/a", "org/b"], 2, "quote globs, such as --models 'org/*'"),
    (["new", "x", "--models", ""], 2, "1 to 1024 bytes"),
    (["new", "x", "--model", "y"], 2, "did you mean --models?"),
    (["list", "x"], 2, "list takes no name"),
    (["list", "--expires", "1d"], 2, "for new alone"),
    (["revoke", "nobody"], 1, 'no token "nobody"'),
    (["new", "taken"], 1, 'a token "taken" already'),
])
def test_wrong_commands(place, args, code, says):
    tokens = place / "tokens"
    new(tokens, "taken")
    before = tokens.read_bytes()
    assert says in token_command(*args, tokens=tokens, code=code)
    assert tokens.read_bytes() == before


def test_a_damaged_file_is_no_wrong_usage(place):
    tokens = place / "tokens"
    new(tokens, "t")
    tokens.write_text("{")
    for verb in (["list"], ["new", "x"], ["revoke", "t"]):
        assert "line 1" in token_command(*verb, tokens=tokens, code=1)


def test_a_comma_in_a_glob_is_told(place):
    done = subprocess.run([*MAKE_TOKEN, "new", "t", "--models", "a,b", "--tokens", str(place / "tokens")],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and 'the comma in "a,b" is part of one glob' in done.stderr


def test_no_file_is_named(place):
    said = token_command("list", env={"TENSORD_TOKENS": ""}, code=2)
    assert "--tokens FILE" in said and "TENSORD_TOKENS" in said


# shows: security.md token-concurrent-commands
def test_many_make_tokens_at_once(place):
    tokens = place / "tokens"
    command = MAKE_TOKEN + ["--tokens", str(tokens), "--json", "new"]
    running = [subprocess.Popen([*command, f"t{i}"], stdout=subprocess.PIPE) for i in range(12)]
    made = [json.loads(p.communicate(timeout=60)[0])["token"] for p in running]
    stored = {t["sha256"] for t in json.loads(tokens.read_text())["tokens"]}
    assert stored == {hashlib.sha256(t.encode()).hexdigest() for t in made} and len(stored) == 12
    assert sorted(p.name for p in place.iterdir()) == ["tokens"]                     # no temporary file is left
