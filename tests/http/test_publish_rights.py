"""The right to publish: the options of the server, tokens that may write, and signed URLs for PUT."""
import io
import json
import os
import pickle
import re
import socket
import subprocess
import tarfile
import time

import pytest

import harness
from harness import check_error, s3_port
from oci_push_kit import layer, manifest_of
from publishing import Repo, digest
from s3_writer import Writer
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

    def lines():
        return [line for line in publisher.whole_log().splitlines() if FILE in line]

    publisher.wait_for(lambda: len(lines()) == 3, "all requests are logged")
    assert sorted(re.search(r"token=(\S+)", line)[1] for line in lines()) == ["editor", "editor", "writer"], lines()


def begin_put(publisher, url, body):
    """Send the head of a PUT, and return the connection if the server asks for the body; else None."""
    c = socket.create_connection(("127.0.0.1", publisher.port), timeout=60)
    c.sendall(f"PUT {url} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n".encode())
    if c.recv(12) == b"HTTP/1.1 100":
        return c
    c.close()
    return None


def test_an_upload_outlives_its_signature(publisher, signers):
    """A URL that is good when the request begins is good until the body has ended, however long that takes."""
    path, body = "/models/org/n/files/late.txt", b"late"
    for valid_s in (3, 12, 48):      # a busy machine may take long to begin
        expires_s = int(time.time()) + valid_s
        url = signers.sign(path, "editor", method="PUT", expires_s=expires_s)
        c = begin_put(publisher, url, body)
        if c is not None:
            break
    with c:
        time.sleep(max(0, expires_s + 1.2 - time.time()))
        again = begin_put(publisher, url, body)
        assert again is None, "the URL has expired for others"
        c.sendall(body)
        answer = b""
        while b"201" not in answer and (more := c.recv(4096)):
            answer += more
        assert b"HTTP/1.1 201" in answer, answer


# ------------------------------------------------------------------------- what a writer can do to others

THEIRS = {"config.json": b'{"model_type": "llama"}', "secret.dat": b"theirs" * 1000}
STOLEN = digest(THEIRS["secret.dat"])


@pytest.fixture
def shared(tmp_path, start):
    """A server with a model of somebody else, which the token "mine" neither sees nor may write to."""
    root = tmp_path / "root"
    root.mkdir()
    tokens = TokensFile(tmp_path / "tokens.json").add("mine", ["org/mine", "org/mine-*"], rights=("read", "write"))
    s = start(root, "--publish", "any", "--tokens", tokens.add("all", rights=("read", "write")), "--s3-listen",
              "127.0.0.1:0")
    s.tokens = tokens
    s.theirs = Repo(s.port, "org/theirs", headers=tokens.bearer("all"))
    s.mine = Repo(s.port, "org/mine", headers=tokens.bearer("mine"))
    assert s.theirs.push(THEIRS)[0].status == 201
    assert s.mine.push({"config.json": b"{}", "own.dat": b"own"})[0].status == 201
    return s


def hub_lines(*operations):
    return "".join(json.dumps(o) + "\n" for o in ({"key": "header", "value": {"summary": "x"}}, *operations)).encode()


# shows: security.md publish-patterns
def test_a_writer_reaches_no_other_model(shared):
    """By no face, neither to change it nor to copy from it: each request is refused before anything is done, and says
    the same of a model that is not there."""
    s, before = shared, shared.theirs.commits()
    bearer = s.tokens.bearer("mine")

    def ask(method, target, body=b"", **headers):
        with s.conn() as c:
            return c.request(target, {**bearer, **headers}, method, body=body)

    blob = f"/models/ID/blobs/{digest(b'x')}"
    add = hub_lines({"key": "file", "value": {"content": "eA==", "path": "x", "encoding": "base64"}})
    of_hub = {"Content-Type": "application/x-ndjson"}
    for method, target, body, headers in (
            ("PUT", blob, b"x", {}), ("POST", "/models/ID/blobs", b"x", {}), ("PUT", "/models/ID/files/x", b"x", {}),
            ("DELETE", "/models/ID/files/secret.dat", b"", {}), ("DELETE", "/models/ID", b"", {}),
            ("POST", "/models/ID/commits", b'{"files": []}', {}),
            ("POST", "/sign", b'{"path": "/models/ID/files/x", "method": "PUT", "expires_in": 9}', {}),
            ("POST", "/api/models/ID/commit/main", add, of_hub), ("POST", "/api/models/ID/branch/b", b"{}", {}),
            ("DELETE", "/api/models/ID/branch/main", b"", {}), ("POST", "/api/models/ID/tag/main", b'{"tag": "t"}', {}),
            ("POST", "/ID.git/info/lfs/objects/batch", json.dumps(
                {"operation": "upload", "objects": [{"oid": "0" * 64, "size": 1}]}).encode(), {}),
            ("POST", "/v2/ID/blobs/uploads/", b"", {}), ("PUT", "/v2/ID/manifests/v1", manifest_of(), {}),
            ("DELETE", "/v2/ID/manifests/main", b"", {})):
        answers = []
        for id in ("org/theirs", "org/absent"):
            r = ask(method, target.replace("ID", id), body.replace(b"ID", id.encode()), **headers)
            assert r.status == 403, (method, target, r)
            answers.append(re.sub(rb"org/(theirs|absent)", b"ID", r.body))
        assert answers[0] == answers[1], target
    for body in ({"fromRepo": "org/mine", "toRepo": "org/taken"}, {"fromRepo": "org/theirs", "toRepo": "org/mine-2"}):
        assert ask("POST", "/api/repos/move", json.dumps({**body, "type": "model"}).encode()).status in (403, 404)
    for method, target in (("POST", "/api/repos/create"), ("DELETE", "/api/repos/delete")):
        assert ask(method, target, b'{"organization": "org", "name": "theirs"}').status == 403

    s3 = Writer(s3_port(s), s.tokens.s3_keys("mine"))
    for method, key, query, headers in (
            ("PUT", "theirs/x", "", {}), ("DELETE", "theirs/secret.dat", "", {}), ("POST", "theirs/x", "uploads=", {}),
            ("PUT", "theirs/x", "", {"x-amz-copy-source": "/org/mine/own.dat"})):
        assert s3.ask(method, f"/org/{key}", query=query, headers=headers).code() == "AccessDenied", key

    # Their bytes are not copied either.
    copied = s3.ask("PUT", "/org/mine/copy", headers={"x-amz-copy-source": "/org/theirs/secret.dat"})
    absent = s3.ask("PUT", "/org/mine/copy", headers={"x-amz-copy-source": "/org/absent/secret.dat"})
    assert copied.status == absent.status == 404 and copied.code() == absent.code(), copied
    mounted = ask("POST", f"/v2/org/mine/blobs/uploads/?mount={STOLEN}&from=org/theirs")
    assert mounted.status == 202, mounted       # an upload begins, as for a blob that is nowhere
    claimed = s.mine.commit({"own.dat": b"own", "secret.dat": THEIRS["secret.dat"]})
    assert claimed.status == 409 and claimed.error()["details"]["missing"][0]["digest"] == STOLEN
    stolen = manifest_of(layer("secret.dat", THEIRS["secret.dat"]))
    assert ask("PUT", "/v2/org/mine/manifests/v1", stolen).status == 400        # MANIFEST_BLOB_UNKNOWN
    lfs = hub_lines({"key": "lfsFile", "value": {"path": "s", "algo": "sha256", "oid": STOLEN[7:], "size": 6000}})
    assert ask("POST", "/api/models/org/mine/commit/main", lfs, **of_hub).status >= 400

    assert s.theirs.commits() == before
    assert {p: s.theirs.file(p).body for p in THEIRS} == THEIRS
    assert {p.name for p in s.root.glob("models--*")} == {"models--org--theirs", "models--org--mine"}


class Runs:
    """A pickle that would write a file when somebody loaded it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


# shows: security.md publish-content
def test_nothing_that_is_published_runs(shared, tmp_path):
    """Pickles with calls are refused by the parser, archives are not unpacked, pages are no pages; the writer's own
    model has the errors, and others are served as before."""
    mark, s = tmp_path / "it-ran", shared
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("../escaped.txt", str(tmp_path / "absolute.txt")):
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"evil"))
    page = b"<script>fetch('/models')</script>"
    files = {"pytorch_model.bin": pickle.dumps(Runs(mark)), "data.tar": packed.getvalue(), "index.html": page,
             "model.safetensors": b"\xff" * 64, "config.json": b"{}"}
    assert s.mine.push(files)[0].status == 201
    described = s.mine.ask("GET").json()
    assert {e["file"] for e in described["errors"]} >= {"pytorch_model.bin", "model.safetensors"}, described
    shown = s.mine.file("index.html")
    assert shown.body == page and "html" not in shown.get("Content-Type") and shown.get("X-Content-Type-Options")
    for path in files:
        assert s.mine.file(path).body == files[path]
    assert not mark.exists() and {p.name for p in tmp_path.iterdir()} == {"root", "tokens.json"}
    assert s.theirs.file("secret.dat").body == THEIRS["secret.dat"]
    assert s.get("/readyz", s.tokens.bearer("all")).status == 200


# shows: security.md publish-readers
def test_a_commit_is_what_it_was(shared):
    """Its writer can replace what is behind a revision, and can remove it; by the commit's id nobody gets other
    bytes."""
    s = shared
    commit = s.mine.main()

    def pinned():
        r = s.get(f"/org/mine/resolve/{commit}/own.dat", s.tokens.bearer("mine"))
        assert r.status in (200, 404), r
        return r.body if r.status == 200 else None

    tag = s.mine.file("own.dat").get("ETag")
    assert pinned() == b"own"
    assert s.mine.put_file("own.dat", b"other").status == 200
    assert pinned() == b"own" and s.mine.file("own.dat").body == b"other"
    check_error(s.mine.ask("GET", "/files/own.dat", headers={"If-Match": tag}), 412)
    assert s.mine.ask("DELETE").status == 204 and pinned() is None
    assert s.mine.push({"config.json": b"{}", "own.dat": b"third"})[0].status == 201 and pinned() is None
    assert s.mine.push({"config.json": b"{}", "own.dat": b"own"})[0].json()["commit"] == commit
    assert pinned() == b"own"
