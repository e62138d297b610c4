"""`tensord pull` against servers that attack; who asks, and TLS."""
import json
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pki
from fake_hub import FakeHub
from harness import Server, age, tensord_binary
from pulls import MIB, QUICK, big, check, environment, fails, pull, tree_of

# ------------------------------------------------------------------------------------- servers that attack

@pytest.mark.parametrize("path", [
    "../x", "a/../../x", "/etc/x", "a//b", "a/./b", "", "a/", "x\0y", "x\ny", "a\\b", "." , "..", "n" * 239,
    "/".join("d" * 33), "x" * 120 + "/" + ("y" * 200 + "/") * 5 + "z", ".a.tensord-part", "d/.a.tensord-journal",
    ".out.tensord-pull/x", ".tensord-upstream", "d/.tensord-upstream/x",
])
# shows: security.md pull-paths
def test_hostile_paths(hub, tmp_path, path):
    hub.tree = lambda: [hub.item("config.json", b'{"a":1}'), hub.item(path, b"evil")]
    report, err = pull(hub.url, "-o", tmp_path / "a/b/out", code=1)
    assert tree_of(tmp_path) == {} and err.count("\n") == 1 and report["files"] == []


@pytest.mark.parametrize("paths", [["a", "a"], ["a", "a/b"], ["a/b", "a/b/c"]])
# shows: security.md pull-paths
def test_paths_that_collide(hub, tmp_path, paths):
    hub.tree = lambda: [hub.item(path, b"x") for path in paths]
    pull(hub.url, "-o", tmp_path / "out", code=1)
    assert tree_of(tmp_path) == {}


# shows: security.md pull-paths
def test_links_lead_nowhere(hub, tmp_path):
    """A symlink in the destination is not followed out of it, nor written through."""
    out, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    out.mkdir()
    (outside / "kept").write_text("kept")
    (out / "d").symlink_to(outside)
    (out / "config.json").symlink_to(outside / "kept")
    pull(hub.url, "-o", out, "--include", "config.json")
    hub.files = {"d/x": b"evil"}
    _, err = pull(hub.url, "-o", out, code=1)
    assert tree_of(outside) == {"kept": b"kept"} and f'"d" in "{out}" is a symlink that leads outside of it' in err
    assert not (out / "config.json").is_symlink() and (out / "config.json").read_bytes() == b'{"a":1}'


@pytest.mark.parametrize("text", [
    b"", b"{}", b"[", b"[1]", b'[{"type":"file"}]', b'[{"type":"file","path":"x"}]',
    b'[{"type":"file","path":"x","size":-1}]', b'[{"type":"file","path":"x","size":9223372036854775808}]',
    b'[{"type":"file","path":7,"size":1}]', b'[{"type":"file","path":"x","size":1,"lfs":{}}]',
    b'[{"type":"file","path":"x","size":1,"lfs":{"oid":"ABC"}}]', b'[{"type":"file","path":"\\ud800","size":1}]',
    b"[" * 100_000, b'[{"type":"file","path":"x","size":9223372036854775807},{"type":"file","path":"y","size":1}]',
])
# shows: security.md pull-endless-answers
def test_hostile_lists(hub, tmp_path, text):
    hub.api = lambda h, path: FakeHub.api(hub, h, path) if "/revision/" in path else h.answer(200, text)
    _, err = pull(hub.url, "-o", tmp_path / "out", code=1)
    assert hub.url in err and not (tmp_path / "out").exists()


def endless(handler, beginning, more):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + beginning)
    with handler.server.hub.lock:
        handler.server.hub.sent = 0
    while True:
        handler.wfile.write(more * 1000)
        handler.server.hub.sent += 1000 * len(more)


@pytest.mark.parametrize("where", ["api", "file"])
# shows: security.md pull-endless-answers
def test_endless_header(hub, tmp_path, where):
    setattr(hub, where, lambda h, path: endless(h, b"", b"X-A: b\r\n"))
    fails(hub, tmp_path / "out", "header")
    assert hub.sent < 32 * MIB


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\nX-A: "])
@pytest.mark.parametrize("where", ["api", "file"])
# shows: security.md pull-endless-answers
def test_endless_line_of_a_header(hub, tmp_path, where, beginning):
    def answer(handler, path):
        handler.wfile.write(beginning or b"HTTP/1.1 200 O")
        while True:
            handler.wfile.write(b"x" * 8192)
    setattr(hub, where, answer)
    err = fails(hub, tmp_path / "out", "a line in the header of the answer is too long")
    assert "memory" not in err


# shows: security.md pull-endless-answers
def test_endless_list(hub, tmp_path):
    hub.api = lambda h, path: endless(h, b"\r\n[", b'{"type":"directory"},') if "/tree/" in path else \
        FakeHub.api(hub, h, path)
    fails(hub, tmp_path / "out", "more than")
    assert hub.sent < 64 * MIB


# shows: security.md pull-endless-answers
def test_endless_pages_and_links_elsewhere(hub, tmp_path):
    def api(handler, path):
        if "/tree/" in path:
            return handler.answer(200, hub.page, Link=f'<{hub.next}>; rel="next"')
        FakeHub.api(hub, handler, path)
    hub.api = api
    hub.page = json.dumps(hub.tree()).encode()
    for hub.next in ("http://127.0.0.2/x", "//127.0.0.2/x", "file:///etc/passwd", "x"):
        fails(hub, tmp_path / "out", "elsewhere")
    hub.next, hub.page = "/api/models/org/m/tree/main?recursive=true", b"[]"
    fails(hub, tmp_path / "out", "empty page")


# ------------------------------------------------------------------------------------------ who asks, and TLS

# shows: security.md pull-other-redirects
def test_token_stays_with_its_host(hub, tmp_path):
    """The Hub redirects files to another host, which must not get the token."""
    with FakeHub(hub.files) as cdn:
        def file(handler, name):
            handler.answer(302, b"", Location=f"{cdn.url.replace('127.0.0.1', 'localhost')}/x/resolve/y/{name}")
        hub.file = file
        (tmp_path / "token").write_text("hf_secret\n")
        _, err = check(hub, tmp_path / "out", env={"TENSORD_TOKEN": "hf_secret"})
        pull(hub.url, "-o", tmp_path / "out2", "--token-file", tmp_path / "token")
        assert tree_of(tmp_path / "out2") == hub.files and "hf_secret" not in err
        assert all(h.get("Authorization") == "Bearer hf_secret" for _, h in hub.requests)
        assert cdn.requests and all("Authorization" not in h for _, h in cdn.requests)


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "/loop"])
# shows: security.md pull-other-redirects
def test_redirects_that_are_not_followed(hub, tmp_path, location):
    hub.file = lambda h, name: h.answer(302, b"", Location=hub.url + "/org/m/resolve/x/" + name
                                        if location == "/loop" else location)
    fails(hub, tmp_path / "out")
    assert len(hub.requests) < 20


@pytest.mark.parametrize("text", ["", "two words", "a\nb", "x" * 5000])
def test_bad_token_files(hub, tmp_path, text):
    (tmp_path / "token").write_text(text)
    _, err = pull(hub.url, "-o", tmp_path / "out", "--token-file", tmp_path / "token", code=1)
    assert 'the line "token:"' in err and not hub.requests


def test_tokens_of_a_tensord(model, tmp_path):
    tokens = tmp_path / "tokens.json"
    made = subprocess.run([tensord_binary(), "token", "new", "a", "--tokens", tokens, "--models", "org/*", "--json"],
                          capture_output=True, text=True, check=True)
    secret = json.loads(made.stdout)["token"]
    age(model.root)
    with Server(model.root, "--tokens", tokens, ready=False) as server:
        url = f"http://127.0.0.1:{server.port}"
        _, err = pull(url, "-o", tmp_path / "out", *QUICK, code=1)
        assert "401" in err and "--token-file FILE or TENSORD_TOKEN" in err
        for end in ("\n\n", " "):
            _, err = pull(url, "-o", tmp_path / "out", env={"TENSORD_TOKEN": secret + end}, code=1)
            assert "TENSORD_TOKEN: the token must" in err and secret not in err
        _, err = pull(url, "-o", tmp_path / "out", env={"TENSORD_TOKEN": "wrong"}, code=1)
        assert "401" in err and "the token of TENSORD_TOKEN is wrong, expired or revoked" in err
        _, err = pull(url, "-o", tmp_path / "out", env={"TENSORD_TOKEN": secret}, model="org/none", code=1)
        assert "404" in err and ", or the token may not see it" in err
        file = tmp_path / ("t" * 100)
        file.write_text("wrong")
        _, err = pull(url + "/models" * 30, "-o", tmp_path / "out", "--token-file", file, code=1,
                      model="o" * 96 + "/" + "m" * 96)    # the longest that there are: our advice is whole
        assert "401 (the token of --token-file /" in err and " is wrong, expired or revoked)" in err
        pull(url, "-o", tmp_path / "crlf", env={"TENSORD_TOKEN": secret + "\r\n"})
        pull(url, "-o", tmp_path / "out", env={"TENSORD_TOKEN": secret + "\n"})
        assert tree_of(tmp_path / "out") == tree_of(model.root / "org/m")
        assert secret not in server.stderr()


# shows: security.md pull-certificates
def test_tls(model, tmp_path):
    ca, other = pki.Authority(tmp_path), pki.Authority(tmp_path, "other")
    pair, client = ca.sign("server"), ca.sign("client", usage="clientAuth")
    age(model.root)
    want = tree_of(model.root / "org/m")
    with Server(model.root, *pki.options_of(pair), tls=ca.context()) as server:
        url = f"https://127.0.0.1:{server.port}"
        pull(url, "-o", tmp_path / "out", "--cacert", ca.cert)
        assert tree_of(tmp_path / "out") == want
        _, err = pull(url.replace("https", "http"), "-o", tmp_path / "out2", code=1)
        assert "this port speaks HTTPS: use https://" in err and not (tmp_path / "out2").exists()
        for options in ([], ["--cacert", other.cert]):
            _, err = pull(url, "-o", tmp_path / "out2", *options, code=1)
            assert "certificate" in err and not (tmp_path / "out2").exists()
        _, err = pull(url, "-o", tmp_path / "out2", "--cacert", tmp_path / "missing", code=1)
        assert "missing" in err
    with Server(model.root, *pki.options_of(pair), "--tls-client-ca", ca.cert, tls=ca.context(client)) as server:
        url = f"https://127.0.0.1:{server.port}"
        _, err = pull(url, "-o", tmp_path / "out2", "--cacert", ca.cert, code=1)
        assert "certificate" in err
        pull(url, "-o", tmp_path / "out2", "--cacert", ca.cert, "--cert", client.cert, "--key", client.key)
        assert tree_of(tmp_path / "out2") == want


def test_https_to_a_port_without_tls(model, tmp_path):
    """That stays, and is not tried again; a connection that was reset before the answer could be read may be."""
    _, err = pull(f"https://127.0.0.1:{model().port}", "-o", tmp_path / "out", code=1)
    assert err.endswith(": this port does not speak TLS: use http://\n"), err
    assert all("SSL_ERROR_SYSCALL" in line or "reset" in line for line in err.splitlines()[:-1]), err


@pytest.mark.parametrize("body, words", [
    ({"error": {"code": 503, "message": "it is\nbeing\x1b[31m fetched"}}, "503, it is being [31m fetched"),
    ({"other": [1], "error": "it is being fetched " + "y" * 3000}, "503, it is being fetched yyy"),
])
def test_reasons_in_bodies_are_told(hub, tmp_path, body, words):
    for where in ("file", "api"):
        with FakeHub(hub.files) as busy:
            setattr(busy, where, lambda h, path: h.answer(503, json.dumps(body).encode()))
            err = fails(busy, tmp_path / "out", words, args=("--retry-for", "0"))
            assert "y" * 400 not in err and "\x1b" not in err and ("yyy..." in err) == ("yyy" in words)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"error":', b'{"error":{"message":7}}', b'{"error":"a\\u0000b"}',
                                  b'{"error":' * 5000, b'{"a":"' + b"x" * 70_000])
def test_bodies_without_reasons(hub, tmp_path, body):
    hub.file = lambda h, path: h.answer(503, body)
    fails(hub, tmp_path / "out", "503", args=("--retry-for", "0"))


# shows: security.md pull-other-redirects
def test_tls_is_not_given_up(tmp_path, hub):
    ca = pki.Authority(tmp_path)
    pair = ca.sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    with FakeHub(hub.files, tls=context) as secure:
        secure.file = lambda h, name: h.answer(302, b"", Location=f"{hub.url}/org/m/resolve/x/{name}")
        fails(secure, tmp_path / "out", args=(*QUICK, "--cacert", ca.cert))
        assert not hub.requests


def trickle(hub):
    """Let the hub send 2 kB/s of files."""
    hub.file = lambda h, name: h.send_file(hub.files[name], hub.etag(name), pace=2000)


def test_a_trickling_server_is_left_for_another_one(tmp_path):
    """2 MiB at 2 kB/s would take 17 minutes for each file."""
    files = {f"f{i}.bin": big(2 * MIB + i) for i in range(4)}
    with FakeHub(files) as slow, FakeHub(files) as good:
        trickle(slow)
        _, err = pull(f"{slow.url},{good.url}", "-o", tmp_path / "out", timeout=40)
        assert "less than 64 KiB/s came for 5 s" in err
        assert tree_of(tmp_path / "out") == files


def test_of_servers_that_all_trickle_the_last_one_goes_on(tmp_path):
    files = {"f.bin": big(22_000)}
    with FakeHub(files) as one, FakeHub(files) as two:
        trickle(one)
        trickle(two)
        _, err = pull(f"{one.url},{two.url}", "-o", tmp_path / "out", timeout=40)
        assert err.count("less than 64 KiB/s came for 5 s") == 1
        assert tree_of(tmp_path / "out") == files


# what has to come of the cases of redirects.py: None: the files come; else what the error says
REDIRECTS = {
    "public to public": None,
    "public to public, no digest": "no digest",
    "public to itself, no digest": None,
    "public to public, list": "no digest",
    "public to loopback": "redirects to 127.0.0.1",
    "public to a name of loopback": "redirects to ",
    "public to private": "redirects to 10.1.1.1, an address of this host or of a private network",
    "public to unspecified": "redirects to 0.0.0.0",
    "public to mapped loopback": "redirects to ::ffff:127.0.0.1",
    "public to loopback in digits": "redirects to 127.0.0.1",
    "private to loopback": None,
    "private to public": None,
    "private to link-local": "redirects to 169.254.169.254, which is link-local",
    "public to link-local": "redirects to 169.254.169.254, which is link-local",
    "link-local": "its address is 169.254.169.254, which is link-local",
    "https to https, no digest": None,
    "http to https to http": "from https to http",
    "public to public, IPv6": None,
    "public to own": "redirects to 198.51.100.1, an address of this host, but is not there itself",
    "public to own, list": "redirects to 198.51.100.1, an address of this host",
    "public to own, IPv6": "redirects to 2001:db8:2::1, an address of this host",
    "public to own, mapped": "redirects to ::ffff:198.51.100.1, an address of this host",
    "public to own, translated": "redirects to 64:ff9b::c633:6401, an address of this host",
    "public to own, 6to4": "redirects to 2002:c633:6401::1, an address of this host",
    "public to the host's end of a network": "redirects to 192.0.2.1, an address of this host, but",
    "public to a neighbour": "redirects to 192.0.2.2, an address of this host's network, but is not in that itself",
    "public to a neighbour, IPv6": "redirects to 2001:db8:3::2, an address of this host's network",
    "public to a neighbour, mapped": "redirects to ::ffff:192.0.2.2, an address of this host's network",
    "neighbour to neighbour": None,
    "neighbour to public": None,
    "neighbour to own": "redirects to 198.51.100.1, an address of this host",
    "neighbour to the host's end of the network": "redirects to 192.0.2.1, an address of this host",
    "neighbour to loopback": "redirects to 127.0.0.1",
    "own to itself": None,
    "own to own": "redirects to 198.51.100.2, an address of this host",
    "own to loopback": "redirects to 127.0.0.1",
    "private to own": None,
    "private to a neighbour": None,
    "proxied to proxied": None,
    "proxied to private, without the proxy": "redirects to 127.0.0.1",
    "proxied by loopback to proxied": None,
    "proxied by loopback to loopback": "redirects to 127.0.0.1",
}


# shows: security.md pull-near-redirects
def test_where_redirects_may_lead(tmp_path):
    """Not to addresses that only this host or its network can reach, unless the server is at such an address itself;
    never to those where clouds hand out credentials."""
    script = Path(__file__).resolve().parent / "redirects.py"
    done = subprocess.run(["unshare", "--map-root-user", "--net", sys.executable, "-B", script, tmp_path],
                          capture_output=True, text=True, env=environment(), timeout=120)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert set(results) == set(REDIRECTS)
    for name, words in REDIRECTS.items():
        code, err = results[name]
        assert code == (0 if words is None else 1) and (words or "") in err, (name, code, err)
        assert err.count("\n") == (0 if words is None else 1), (name, err)


def test_a_server_without_retries_is_left_out(hub, tmp_path):
    """It is not asked again, so no message says when."""
    with FakeHub(hub.files) as dead:
        dead.close()
        _, err = pull(f"{dead.url},{hub.url}", "-o", tmp_path / "out", "--retry-for", "0")
    first = err.splitlines()[0]
    assert dead.url in first and first.endswith("; this server is not asked for it again"), err
    assert "next try" not in err and tree_of(tmp_path / "out") == hub.files


def test_a_rank_of_a_list_without_end(tmp_path):
    """The work for each file of a list does not grow with the list."""
    with FakeHub({f"{i}/model.safetensors": b"x" for i in range(60_000)}) as hub:
        hub.file = lambda h, name: h.answer(404)
        begin = time.monotonic()
        _, err = pull(hub.url, "-o", tmp_path / "out", "--engine", "fsdp", "--tp", 2, "--rank", 0, code=1)
        assert "404" in err and time.monotonic() - begin < 25, err
