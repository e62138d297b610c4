"""The right to publish: the options of the server, tokens that may write, and signed URLs for PUT."""
import json
import os
import re
import subprocess

import pytest

import harness
from harness import check_error
from signing import TokensFile

HEX = "0123456789abcdef" * 4
FILE = "/models/org/m/files/config.json"


def serve(root, *args):
    """Start a server that must not start. Return its code and what it said."""
    done = subprocess.run([harness.tensord_binary(), "serve", str(root), *map(str, args)], capture_output=True,
                          text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize("ports", [["--listen", "0.0.0.0:0"], ["--listen", "[::]:0"],
                                   ["--listen", "127.0.0.1:0", "--s3-listen", "0.0.0.0:0"]])
# shows: security.md publish-start
def test_nobody_publishes_without_a_token_from_elsewhere(tmp_path, ports):
    code, said = serve(tmp_path, *ports, "--publish", "any")
    assert code == 1 and "--publish any" in said and "--tokens" in said and "--write" in said
    assert not os.listdir(tmp_path)


def test_others_start(tmp_path, start):
    tokens = TokensFile(tmp_path / "tokens.json")
    for i, (host, *args) in enumerate((
            ("127.0.0.1", "--publish", "any"), ("0.0.0.0", "--publish", "local"), ("0.0.0.0", "--publish", "off"),
            ("0.0.0.0", "--publish", "any", "--tokens", tokens))):
        root = tmp_path / str(i)       # one directory has one publisher
        root.mkdir()
        start(root, *args, host=host)


@pytest.mark.parametrize("args, says", [
    (["--publish", "local", "--upstream", "http://127.0.0.1:1"], "--publish local is not possible together with"),
    (["--publish", "any", "--upstream", "http://127.0.0.1:1"], "--publish any is not possible together with"),
    (["--publish", "on"], "--publish takes off, local or any"),
    (["--publish-max-bytes", "-1"], "--publish-max-bytes takes bytes, or a size"),
    (["--upload-expires", "0"], "--upload-expires takes seconds, or a time"),
    (["--keep-commits", "x"], "--keep-commits takes seconds, or a time"),
])
def test_wrong_options(tmp_path, args, says):
    code, said = serve(tmp_path, "--listen", "127.0.0.1:0", *args)
    assert code == 2 and says in said


# -------------------------------------------------------------------------------------------- tensord token

def token_command(tokens, *args, code=0):
    done = subprocess.run([harness.tensord_binary(), "token", *args, "--tokens", str(tokens)], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == code, done
    return done.stderr if code else done.stdout


def test_tokens_that_write(tmp_path):
    tokens = tmp_path / "tokens.json"
    shown = dict(re.findall(r"^(\w+):\s+(.*)$", token_command(tokens, "new", "ci", "--models", "org/*"), re.M))
    assert shown["rights"] == "read"
    assert token_command(tokens, "list").splitlines()[0].split() == ["NAME", "EXPIRES", "EXPIRED", "MODELS"]
    made = json.loads(token_command(tokens, "new", "writer", "--models", "org/*", "--write", "--json"))
    assert made["rights"] == ["read", "write"] and made["models"] == ["org/*"]
    shown = dict(re.findall(r"^(\w+):\s+(.*)$", token_command(tokens, "new", "all", "--write"), re.M))
    assert shown["rights"] == "read,write" and shown["models"] == "all"
    stored = {t["name"]: t["rights"] for t in json.loads(tokens.read_text())["tokens"]}
    assert stored == {"ci": ["read"], "writer": ["read", "write"], "all": ["read", "write"]}
    assert token_command(tokens, "revoke", "ci")        # the rights of the others stay
    rows = [line.split() for line in token_command(tokens, "list").splitlines()]
    assert rows == [["NAME", "EXPIRES", "EXPIRED", "RIGHTS", "MODELS"],
                    ["writer", "never", "no", "read,write", "org/*"], ["all", "never", "no", "read,write", "all"]]
    listed = json.loads(token_command(tokens, "list", "--json"))["tokens"]
    assert [t["rights"] for t in listed] == [["read", "write"]] * 2
    for verb in (["list"], ["revoke", "all"]):
        assert "for new alone" in token_command(tokens, *verb, "--write", code=2)


def test_rights_of_a_file(tmp_path, start):
    """Without the member a token reads; other words, and none, are refused."""
    root, tokens = tmp_path / "root", TokensFile(tmp_path / "tokens.json").add("ci")
    root.mkdir()
    text = tokens.path.read_text()
    assert '"rights": ["read"], ' in text
    for rights, says in (('["read", "admin"]', 'the rights are "read" and "write", not "admin"'),
                         ('["read", 1]', 'the rights are "read" and "write"'), ("[]", "must hold"),
                         ('"write"', "must be an array")):
        tokens.path.write_text(text.replace('["read"]', rights))
        said = token_command(tokens, "list", code=1)
        assert says in said and "line 1, column" in said, said
        code, said = serve(root, "--listen", "127.0.0.1:0", "--tokens", tokens)
        assert code == 1 and says in said
    tokens.path.write_text(text.replace('"rights": ["read"], ', ""))
    assert json.loads(token_command(tokens, "list", "--json"))["tokens"][0]["rights"] == ["read"]
    assert start(root, "--tokens", tokens).get("/models", tokens.bearer("ci")).status == 200


# ---------------------------------------------------------------------------------------------- signed URLs

@pytest.fixture
def signers(tmp_path):
    tokens = TokensFile(tmp_path / "tokens.json")
    tokens.add("reader").add("writer", ["org/m", "datasets/org/*"], rights=("read", "write"))
    return tokens.add("editor", rights=("read", "write"))


def expiry(url):
    return int(re.search(r"expires=(\d+)", url)[1])


def sign(tokens, *args):
    done = subprocess.run([harness.tensord_binary(), "sign", "--tokens", str(tokens), "--expires", "10m", *args],
                          capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.rstrip("\n"), done.stderr


@pytest.mark.parametrize("path", [FILE, f"/models/org/m/blobs/sha256:{HEX}", "/datasets/org/rows/files/a/b.jsonl",
                                  f"/datasets/org/rows/blobs/sha256:{HEX}", FILE + "?revision=x"])
def test_the_command_signs_puts(signers, path):
    for name in ("writer", "editor", ""):
        code, url, said = sign(signers, path, "--method", "PUT", *(["--as", name] if name else []))
        assert code == 0, said
        assert url == signers.sign(path, name, method="PUT", expires_s=expiry(url))
        assert url != signers.sign(path, name, expires_s=expiry(url))
    code, url, _ = sign(signers, path, "--method=GET")
    assert code == 0 and url == signers.sign(path, expires_s=expiry(url))


@pytest.mark.parametrize("args, code, says", [
    ([FILE, "--method", "PUT", "--as", "reader"], 1, 'the token "reader" may not sign a PUT to "org/m"'),
    (["/models/org/n/files/a", "--method", "PUT", "--as", "writer"], 1, 'may not sign a PUT to "org/n"'),
    (["/datasets/x/y/files/a", "--method", "PUT", "--as", "writer"], 1, 'may not sign a PUT to "datasets/x/y"'),
    (["/models/org/m", "--method", "PUT"], 2, "for PUT of a file or a blob alone"),
    (["/models/org/m/commits", "--method", "PUT"], 2, "for PUT of a file or a blob alone"),
    (["/models/org/m/blobs/sha256:00", "--method", "PUT"], 2, "for PUT of a file or a blob alone"),
    (["/org/m/resolve/main/a", "--method", "PUT"], 2, "for PUT of a file or a blob alone"),
    ([FILE, "--method", "POST"], 2, "--method takes GET or PUT, not POST"),
    ([FILE, "--method", "put"], 2, "--method takes GET or PUT, not put"),
    ([FILE, "--method"], 2, "a value is missing after --method"),
])
def test_the_command_refuses_puts(signers, args, code, says):
    got, out, said = sign(signers, *args)
    assert got == code and out == "" and says in said, said


@pytest.fixture
def publisher(tmp_path, start, signers):
    root = tmp_path / "root"
    harness.write_by_hand(root / "org/m/model.safetensors", [harness.tensor("w", "F32", [4])])
    (root / "org/m/config.json").write_text("{}")
    harness.age(root)
    return start(root, "--publish", "any", "--tokens", signers)


def wish(s, tokens, name, path, **members):
    return s.post("/sign", {"path": path, "expires_in": 60} | members, tokens.bearer(name))


# shows: security.md publish-signed-urls
def test_tokens_sign_puts(publisher, signers):
    for name in ("writer", "editor"):
        r = wish(publisher, signers, name, FILE, method="PUT")
        assert r.status == 200, r
        path = r.json()["path"]
        assert path == signers.sign(FILE, name, method="PUT", expires_s=expiry(path))
    assert wish(publisher, signers, "reader", FILE, method="GET").status == 200
    check_error(wish(publisher, signers, "reader", FILE, method="PUT"), 403, "needs the right to write")
    there, absent = (wish(publisher, signers, "reader", f"/models/org/{name}/files/a", method="PUT").body
                     for name in "mn")
    assert there.replace(b"org/m", b"org/n") == absent
    check_error(wish(publisher, signers, "writer", "/models/org/n/files/a", method="PUT"), 403, "pattern")
    for bad in ("POST", "put", "", None, 1, ["PUT"], "PUT\0"):
        check_error(wish(publisher, signers, "editor", FILE, method=bad), 400, '\\"GET\\" or \\"PUT\\"')
    check_error(wish(publisher, signers, "editor", "/models/org/m", method="PUT"), 400, "a file or a blob alone")
    check_error(publisher.post("/sign", f'{{"path":"{FILE}","method":"PUT","method":"GET","expires_in":5}}'.encode(),
                               signers.bearer("editor")), 400, "twice")


# shows: security.md publish-signed-urls
def test_a_signature_is_for_its_method(publisher, signers):
    for put in (signers.sign(FILE, "editor", method="PUT"), signers.sign(FILE, method="PUT")):
        for method in ("GET", "HEAD"):
            assert publisher.request(put, (), method).status == 403
        check_error(publisher.get(put), 403, "with the method that it was signed for")
        check_error(publisher.request(put, (), "DELETE"), 403, "GET and HEAD, or for PUT")
        check_error(publisher.request(put, (), "POST"), 403, "GET and HEAD, or for PUT")
    get = signers.sign(FILE, "editor")
    assert publisher.get(get).body == b"{}"
    check_error(publisher.request(get, [("Content-Length", "0")], "PUT"), 403, "signature is wrong")


def test_the_log_names_who_writes(publisher, signers):
    """No route takes these requests yet, or the token may not write; in any case the line has the token's name."""
    for method in ("PUT", "DELETE"):
        publisher.request(FILE, list(signers.bearer("editor").items()) + [("Content-Length", "0")], method)
    publisher.request(signers.sign(FILE, "writer", method="PUT"), [("Content-Length", "0")], "PUT")
    publisher.wait_for(lambda: publisher.whole_log().count("token=writer") == 1, "the last request is logged")
    lines = [line for line in publisher.whole_log().splitlines() if FILE in line]
    assert [re.search(r"token=(\S+)", line)[1] for line in lines] == ["editor", "editor", "writer"], lines
