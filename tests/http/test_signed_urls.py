"""Signed URLs: who may ask for what by them, over a socket, and the command and the request that make them."""
import re
import subprocess
import time
import urllib.parse

import pytest
import requests

from harness import Server, age, check_error, pattern, tensor, tensord_binary, write_by_hand
from signing import TokensFile

CONTENT = pattern(5000, "content")
FILE = "/models/org/open/files/notes.bin"
RANK = "/models/org/open/shards/fsdp/tp2/rank-{}.safetensors"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("signed") / "root"
    for name in ("open", "hidden"):
        write_by_hand(root / f"org/{name}/model.safetensors", [tensor(n, "F32", [32, 8]) for n in "abc"])
        (root / f"org/{name}/config.json").write_text("{}")
        (root / f"org/{name}/notes.bin").write_bytes(CONTENT)
        (root / f"org/{name}/é ~+%'&;[x].bin").write_bytes(CONTENT)
    age(root)
    return root


def make_tokens(folder):
    file = TokensFile(folder / "tokens.json")
    return file.add("all").add("part", ["org/open"]).add("other.name-1", ["org/hidden"])


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return make_tokens(tmp_path_factory.mktemp("tokens"))


@pytest.fixture
def own_tokens(tmp_path):
    """A file for a test that changes it."""
    return make_tokens(tmp_path)


@pytest.fixture(scope="module")
def srv(root, tokens):
    with Server(root, "--tokens", tokens, hash_threads=0) as s:
        yield s


def sign_by_command(*args):
    done = subprocess.run([tensord_binary(), "sign", *map(str, args)], capture_output=True, text=True)
    return done.returncode, done.stdout.rstrip("\n"), done.stderr


def check_refused(r, *statuses):
    """Check that an answer refuses, and shows nothing of the content."""
    assert r.status in statuses, r
    assert CONTENT[:64] not in r.body and len(r.body) < 2000, r


@pytest.mark.parametrize("at", ["@", "%40"])
def test_rank_files_of_an_engines_version_are_signed(srv, tokens, at):
    """The model has no architecture, so that a valid signature ends in 422."""
    url = f"http://127.0.0.1:{srv.port}/models/org/open/shards/vllm{at}0.33/tp2/rank-0.safetensors"
    code, signed, err = sign_by_command(url, "--tokens", tokens, "--expires", "30m", "--as", "part")
    assert code == 0, err
    r = srv.get(signed.removeprefix(f"http://127.0.0.1:{srv.port}"))
    assert r.status == 422 and "vllm@0.33" in r.json()["error"]["message"], r
    check_refused(srv.get(signed.removeprefix(f"http://127.0.0.1:{srv.port}").replace("0.33", "0.13")), 403)


def test_a_url_has_the_rights_of_who_signed(srv, tokens):
    for name in ("", "all", "part"):
        r = srv.get(tokens.sign(FILE, name))
        assert r.status == 200 and r.body == CONTENT, r
    check_refused(srv.get(tokens.sign(FILE, "other.name-1")), 404)
    missing = FILE.replace("open", "nothing")
    hidden, never = (srv.get(tokens.sign(FILE.replace("open", model), "part")) for model in ("hidden", "nothing"))
    assert hidden.status == never.status == 404
    assert hidden.body.replace(b"hidden", b"nothing") == never.body, missing
    assert srv.get(FILE).status == 401
    assert [m["id"] for m in srv.json(tokens.sign("/models", "part"))["models"]] == ["org/open"]


def test_head_ranges_and_conditions_work(srv, tokens):
    url = tokens.sign(FILE, "part")
    r = srv.head(url)
    assert r.status == 200 and r.length == len(CONTENT)
    got = srv.get(url, {"Range": "bytes=100-199"})
    assert got.status == 206 and got.body == CONTENT[100:200]
    assert srv.get(url, {"If-None-Match": r.etag}).status == 304
    for method in ("POST", "DELETE"):
        check_error(srv.request(url, (), method), 403, "GET and HEAD")


def changes(url):
    """The URL with each byte changed, taken out, and twice."""
    for i, c in enumerate(url):
        yield url[:i] + ("a" if c != "a" else "b") + url[i + 1:]
        yield url[:i] + (c.upper() if c.islower() else "/") + url[i + 1:]
        yield url[:i] + url[i + 1:]
        yield url[:i] + c + url[i:]


# shows: security.md signed-url-changes
def test_no_byte_can_be_changed(srv, tokens):
    """400 and 401: it is no signed URL any more. 404: another token's, which may not see this."""
    url = tokens.sign(FILE + "?x-unknown=1", "part")
    tried = 0
    with srv.conn() as c:
        assert c.request(url).status == 200, "the parameter is unknown there, and the signature is good"
        url = tokens.sign(FILE, "part")
        assert c.request(url).status == 200
    for changed in changes(url):
        if changed == url or not changed.startswith("/"):
            continue
        with srv.conn() as c:                                   # a 400 ends the connection
            check_refused(c.request(changed), 400, 401, 403)
        tried += 1
    assert tried > 500
    path, _, query = url.partition("?")
    expires, signature = query.split("&")
    for query in (f"{signature}&{expires}", f"{expires}&{expires}&{signature}", f"{expires}&{signature}&{signature}",
                  f"a=b&{expires}&{signature}", f"{expires}&{signature}&a=b", f"{expires}&{signature.upper()}",
                  f"{expires[:-1]}&{signature}", f"{expires}0&{signature}",
                  f"{expires}&{signature.replace('part', 'all')}", f"{expires}&signature={signature.rsplit('.')[-1]}",
                  f"{expires}&signature=", signature):
        check_refused(srv.get(f"{path}?{query}"), 400, 401, 403)
    later = f"expires={int(expires[8:]) + 1}"
    check_error(srv.get(f"{path}?{later}&{signature}"), 403, "signature is wrong")


# shows: security.md signed-url-changes
def test_a_url_ends(root, own_tokens, start):
    s = start(root, "--tokens", own_tokens)
    ended = own_tokens.sign(FILE, "part", -1)
    check_error(s.get(ended), 403, "expired")
    own_tokens.add("old", expires_s=int(time.time()) - 5)
    s.hup()
    s.wait_for(lambda: "1 of them expired" in s.stderr(), "the expired token is known")
    check_error(s.get(own_tokens.sign(FILE, "old", -1)), 403, "expired")
    check_error(s.get(own_tokens.sign(FILE, "old")), 403, "the token that signed the URL has expired")
    assert s.whole_log().count("token=old") == 2
    by_part, by_holder = own_tokens.sign(FILE, "part"), own_tokens.sign(FILE)
    assert s.get(by_part).status == s.get(by_holder).status == 200
    own_tokens.remove("part")
    s.hup()
    s.wait_for(lambda: s.get(by_part).status == 403, "the token is revoked")
    check_error(s.get(by_part), 403, "signature is wrong")
    assert s.get(by_holder).status == 200
    own_tokens.master_key = bytes(range(1, 33))
    own_tokens.write()
    s.hup()
    s.wait_for(lambda: s.get(by_holder).status == 403, "the master key is another")


def test_one_rank_and_nothing_else(srv, tokens):
    url = tokens.sign(RANK.format(0), "part")
    mine = srv.get(url)
    assert mine.status == 200 and len(mine.body) > 1000
    check_refused(srv.get(url.replace("rank-0", "rank-1")), 403)
    assert srv.get(tokens.sign(RANK.format(1), "part")).body != mine.body


def test_the_field_authorization_is_judged_first(srv, tokens):
    """A bad token is a 401 whatever the URL says; beside a good one, the signature's rights count."""
    url = tokens.sign(FILE, "part")
    for bad in ("Bearer td_wrong", "Basic eDp5", "AWS4-HMAC-SHA256 Credential=a"):
        assert srv.get(url, {"Authorization": bad}).status == 401
    assert srv.get(url, tokens.bearer("other.name-1")).body == CONTENT
    hidden = tokens.sign(FILE.replace("open", "hidden"), "part")
    assert srv.get(hidden, tokens.bearer("all")).status == 404
    check_error(srv.get(url[:-1] + "x", tokens.bearer("all")), 403)


def test_the_hub_s_paths(srv, tokens):
    url = tokens.sign("/org/open/resolve/main/notes.bin", "part")
    assert srv.get(url).body == CONTENT and srv.head(url).length == len(CONTENT)
    r = srv.get(url[:-1] + "x")
    assert r.status == 403 and "error" in r.json(), r
    assert [m["id"] for m in srv.get(tokens.sign("/api/models?limit=5", "part")).json()] == ["org/open"]
    assert srv.get(tokens.sign("/api/models/org/hidden", "part")).status != 200
    assert srv.get("/org/open/resolve/main/notes.bin").status == 401


def test_a_url_can_wait(srv, tokens):
    first = srv.get(tokens.sign("/models/org/open", "part"))
    r = srv.get(tokens.sign(f"/models/org/open?wait={urllib.parse.quote(first.etag)}&timeout=1", "part"))
    assert r.status == 304, r


def test_logs_have_the_name_and_not_the_signature(srv, tokens):
    url = tokens.sign(FILE, "part")
    srv.get(url)
    log = srv.whole_log()
    assert "part" in log and url.rpartition(".")[2] not in log and "signature= " in log.replace('"', " ")


# ------------------------------------------------------------------------------------------- the command

def test_the_command_signs_as_documented(srv, tokens):
    base = f"http://127.0.0.1:{srv.port}"
    for name in ("", "part", "other.name-1"):
        as_name = ["--as", name] if name else []
        rc, url, err = sign_by_command(base + FILE, "--tokens", tokens, "--expires", "10m", *as_name)
        assert rc == 0 and not err, err
        target = url[len(base):]
        assert url.startswith(base + FILE + "?expires=")
        expires = int(re.search(r"expires=(\d+)", url)[1])
        assert 590 < expires - time.time() < 601
        assert target == tokens.sign(FILE, name, expires - int(time.time())), "as signing.py computes it"
        assert srv.get(target).status == (404 if name == "other.name-1" else 200)
    rc, path, _ = sign_by_command(FILE, f"--tokens={tokens}", "--expires=7d")
    assert rc == 0 and path.startswith(FILE + "?expires=")
    assert srv.get(path).body == CONTENT


def test_clients_send_what_was_signed(srv, tokens, tmp_path):
    """A path with all kinds of characters, given to the command as it is or quoted in different ways."""
    base, name = f"http://127.0.0.1:{srv.port}/models/org/open/files/", "é ~+%'&;[x].bin"
    given = {"é ~+%25'&;[x].bin", urllib.parse.quote(name), urllib.parse.quote(name, safe="~+'&;[]"),
             re.sub("%..", lambda m: m[0].lower(), urllib.parse.quote(name)),
             "".join(f"%{b:02x}" for b in name.encode())}
    for spelled in given:
        rc, url, err = sign_by_command(base + spelled, "--tokens", tokens, "--expires", "1h", "--as", "part")
        assert rc == 0, err
        assert requests.get(url, timeout=10).content == CONTENT, spelled
        done = subprocess.run(["curl", "--silent", "--show-error", "--fail", "--location", url, "--output",
                               tmp_path / "got"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "got").read_bytes() == CONTENT


@pytest.mark.parametrize("args,rc,says", [
    ([], 2, "give a URL"),
    (["/a"], 2, "--expires 1h"),
    (["/a", "--expires", "8d"], 2, "from 1s to 7d"),
    (["/a", "--expires", "0s"], 2, "from 1s to 7d"),
    (["/a", "--expires", "5w"], 2, "from 1s to 7d"),
    (["/a", "--expires"], 2, "a value is missing after --expires"),
    (["/a", "/b", "--expires", "1s"], 2, "only one URL"),
    (["/a", "--expire", "1s"], 2, "--expires"),
    (["a/b", "--expires", "1s"], 2, "must begin with"),
    (["ftp://h/b", "--expires", "1s"], 2, "must begin with"),
    (["http://", "--expires", "1s"], 2, "must begin with"),
    (["http://h\x01/a", "--expires", "1s"], 2, "must begin with"),
    (["/a#b", "--expires", "1s"], 2, "fragment"),
    (["/a/../b", "--expires", "1s"], 2, "segment"),
    (["/a%4", "--expires", "1s"], 2, "hexadecimal"),
    (["/a?expires=1", "--expires", "1s"], 2, "is it signed already?"),
    (["/sign", "--expires", "1s"], 2, "POST /sign"),
    (["http://h/sign?a", "--expires", "1s"], 2, "POST /sign"),
    (["/a", "--expires", "1s", "--as", "nobody"], 1, 'no token "nobody"'),
    (["/a", "--expires", "1s", "--as", "old"], 1, "expired"),
])
def test_the_command_refuses(own_tokens, args, rc, says):
    own_tokens.add("old", expires_s=int(time.time()) - 5)
    got, out, err = sign_by_command("--tokens", own_tokens, *args)
    assert got == rc and out == "" and says in err, err
    assert err.startswith("tensord: ") and err.count("\n") == 1


def test_the_command_needs_a_good_file(own_tokens, tmp_path):
    assert sign_by_command("/a", "--expires", "1s")[0] == 2
    rc, _, err = sign_by_command("/a", "--expires", "1s", "--tokens", tmp_path / "none.json")
    assert rc == 1 and "none.json" in err
    own_tokens.path.chmod(0o644)
    rc, out, err = sign_by_command("/a", "--expires", "1s", "--tokens", own_tokens)
    assert rc == 1 and out == "" and "chmod" in err, err
    own_tokens.path.chmod(0o400)
    assert sign_by_command("/a", "--expires", "1s", "--tokens", own_tokens)[0] == 0


# --------------------------------------------------------------------------------------------- POST /sign

def test_what_loopback_may_have_is_signed_too(srv, tokens):
    """Without credentials these are free from loopback; with a signature, its parameters do not count as theirs."""
    for path in ("/metrics", "/openapi.json"):
        r = srv.get(srv.post("/sign", {"path": path, "expires_in": 60}, tokens.bearer("part")).json()["path"])
        assert r.status == 200 and r.body, r
        check_error(srv.get(tokens.sign(path, "part") + "x"), 403, "signature is wrong")


def test_a_token_signs_for_itself(srv, tokens):
    r = srv.post("/sign", {"path": FILE, "expires_in": 60}, tokens.bearer("part"))
    assert r.status == 200 and r.get("Cache-Control") == "no-store", r
    signed = r.json()
    assert set(signed) == {"path", "url", "expires"}
    assert signed["url"] == f"http://127.0.0.1:{srv.port}" + signed["path"]
    expires = int(re.search(r"expires=(\d+)", signed["path"])[1])
    assert signed["path"] == tokens.sign(FILE, "part", expires - int(time.time()))
    assert srv.get(signed["path"]).body == CONTENT
    assert time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(expires)) in signed["expires"]
    r = srv.post("/sign", {"path": "/models/é b", "expires_in": 60}, {**tokens.bearer("part"), "Host": "h<>"})
    assert r.status == 400 or "url" not in r.json()
    forwarded = srv.post("/sign", {"path": FILE, "expires_in": 60},
                         {**tokens.bearer("part"), "Host": "models.example", "X-Forwarded-Proto": "https"})
    assert forwarded.json()["url"].startswith("https://models.example/models/")


# shows: security.md signed-url-rights
def test_signing_does_not_tell_what_exists(srv, tokens):
    for path in (FILE, FILE.replace("open", "hidden"), FILE.replace("open", "nothing"), "/nothing"):
        r = srv.post("/sign", {"path": path, "expires_in": 60}, tokens.bearer("part"))
        assert r.status == 200 and set(r.json()) == {"path", "url", "expires"}, r
        assert srv.get(r.json()["path"]).status == (200 if path == FILE else 404)


# shows: security.md signed-url-rights
def test_a_url_does_not_outlive_its_token(root, own_tokens, start):
    end = int(time.time()) + 100
    s = start(root, "--tokens", own_tokens.add("short", expires_s=end))
    r = s.post("/sign", {"path": FILE, "expires_in": 604800}, own_tokens.bearer("short"))
    assert r.status == 200 and f"expires={end}&" in r.json()["path"], r
    rc, out, _ = sign_by_command(FILE, "--tokens", own_tokens, "--expires", "7d", "--as", "short")
    assert rc == 0 and out == r.json()["path"]


@pytest.mark.parametrize("body,says", [
    (b"", ""), (b"[]", "an object"), ({}, "is missing"), ({"path": FILE}, "expires_in"),
    ({"expires_in": 5}, "path"), ({"path": 5, "expires_in": 5}, "string"),
    ({"path": "models", "expires_in": 5}, "begin with '/'"), ({"path": FILE, "expires_in": 0}, "from 1 to 604800"),
    ({"path": FILE, "expires_in": 604801}, "from 1 to 604800"), ({"path": FILE, "expires_in": "1h"}, "from 1 to"),
    ({"path": FILE, "expires_in": -1}, ""), ({"path": FILE, "expires_in": 1.5}, ""),
    ({"path": FILE, "expires_in": 5, "as": "all"}, "known are"), ({"path": FILE + "#a", "expires_in": 5}, "fragment"),
    ({"path": FILE + "?signature=a", "expires_in": 5}, "signed already"),
    ({"path": "/%73ign", "expires_in": 5}, "POST /sign"),
    ({"path": "/%zz", "expires_in": 5}, "hexadecimal"),
    (b'{"path": "/a", "path": "/b", "expires_in": 5}', "twice"), (b'{"path": "/a\\u0000", "expires_in": 5}', ""),
])
def test_bad_wishes_are_refused(srv, tokens, body, says):
    r = srv.post("/sign", body, tokens.bearer("all"))
    check_error(r, 400, says)


def test_long_wishes_are_refused(srv, tokens):
    r = srv.post("/sign", {"path": "/" + "a" * 32768, "expires_in": 5}, tokens.bearer("all"))
    check_error(r, 400, "32768")
    assert srv.post("/sign", {"path": "/" + "\u20ac" * 10000, "expires_in": 5}, tokens.bearer("all")).status == 200
    check_error(srv.post("/sign", b" " * 262145, tokens.bearer("all")), 413)


def test_signing_needs_a_token(srv, tokens):
    wish = {"path": FILE, "expires_in": 60}
    assert srv.post("/sign", wish).status == 401
    assert srv.post("/sign", wish, {"Authorization": "Bearer td_wrong"}).status == 401
    check_error(srv.post(tokens.sign("/sign", "all"), wish), 403)
    check_error(srv.post(tokens.sign("/sign"), wish, tokens.bearer("all")), 403)
    check_error(srv.get("/sign", tokens.bearer("all")), 405, allow=("POST",))


def test_without_tokens_there_is_nothing_to_sign_with(root, start):
    s = start(root)
    check_error(s.post("/sign", {"path": FILE, "expires_in": 60}), 404, "--tokens")
    check_error(s.get("/models?expires=1&signature=a"), 400, "unknown query parameter")
    assert s.get(FILE + "?expires=1&signature=a").status == 200    # as with any parameter that nobody knows
