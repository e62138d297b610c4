"""The recipes of docs/proxies.md, and of docs/recipes.md, "nginx with TLS and a token", taken from
there: a real nginx and a real HAProxy that end TLS before tensord, and stock clients behind them."""
import gzip
import hashlib
import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import time
import urllib.parse

import boto3
import botocore.config
import pytest

import harness
from client import HUB0, NEWEST, ClientError, Worker, digests, s3_port, sha256
from signing import TokensFile

MODELS = 1_100                  # a page of the Hub's list has 1,000
BIG = 5_000_001
LONG = 64 << 20                 # far more than what sockets and proxies hold
ODD = "a//b/%2F c"              # a tensor's name


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("proxies") / "root"
    for i in range(MODELS):
        harness.write_by_hand(root / f"many/m{i:04}/model.safetensors", [harness.tensor("w", "U8", (8,), str(i))])
    harness.write_by_hand(root / "ns/m/model.safetensors", [harness.tensor(ODD, "F32", (20, 30)),
                                                            harness.tensor("w", "F32", (64, 32))])
    (root / "ns/m/config.json").write_text("{}")
    (root / "ns/m/big.dat").write_bytes(harness.pattern(BIG, "big"))
    with open(root / "ns/m/long.dat", "wb") as f:
        f.truncate(LONG)
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with harness.hashed_server(root, "--s3-listen", "127.0.0.1:0", "--max-connections-per-address", "1024") as s:
        yield s


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Returns the files of the authority, of the certificate, of its key, and of certificate and key together."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*args):
        subprocess.run(["/usr/bin/openssl", *args], cwd=folder, check=True, capture_output=True)
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days", "2",
            "-subj", "/CN=an authority", "-addext", "keyUsage=critical,keyCertSign")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "site.key", "-out", "site.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl("x509", "-req", "-in", "site.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out",
            "site.crt", "-days", "2", "-extfile", "names")
    (folder / "site.pem").write_bytes((folder / "site.crt").read_bytes() + (folder / "site.key").read_bytes())
    return folder


def free_ports(count):
    """Return ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def recipe(page, heading, language, replaced):
    """Return the block below that heading, with this test's addresses and paths in place of the page's."""
    text = (harness.REPO / "docs" / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    block, = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for old, new in replaced.items():
        assert re.search(old, block), f"the recipe has no {old}:\n{block}"
        block = re.sub(old, str(new), block)
    return block


class Proxy:
    """A proxy by its recipe: `port` leads to the main port, `s3_port` to the S3 port."""

    has_s3 = True

    def __init__(self, server, folder, certificate):
        self.folder, self.certificate = folder, certificate
        self.port, self.s3_port = free_ports(2)
        self.behind = {r"127\.0\.0\.1:8080\b": f"127.0.0.1:{server.port}",
                       r"127\.0\.0\.1:8081\b": f"127.0.0.1:{s3_port(server)}"}
        self.context = ssl.create_default_context(cafile=certificate / "ca.crt")
        with open(folder / "log", "wb") as log:
            self.proc = subprocess.Popen(self.command(server), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait(self):
        deadline = time.monotonic() + 20
        while True:
            try:
                if self.ask("/readyz").status == 200 and (not self.has_s3 or
                                                          self.ask("/", port=self.s3_port).status == 200):
                    return
            except OSError:
                pass
            assert self.proc.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def stop(self):
        self.proc.terminate()
        self.proc.wait(20)

    def log(self):
        return (self.folder / "log").read_text("utf-8", "replace")

    def connect(self, port=None):
        return http.client.HTTPSConnection("127.0.0.1", port or self.port, context=self.context, timeout=60)

    def ask(self, target, method="GET", headers=None, body=None, port=None):
        """Send one request on a connection of its own. Return the answer with its whole body."""
        connection = self.connect(port)
        try:
            connection.request(method, target, body=body, headers=headers or {})
            r = connection.getresponse()
            r.body = r.read()
            return r
        finally:
            connection.close()


class Nginx(Proxy):
    def recipe(self):
        return recipe("proxies.md", "nginx", "nginx", {
            **self.behind, r"listen 443 ": f"listen 127.0.0.1:{self.port} ",
            r"listen 8443 ": f"listen 127.0.0.1:{self.s3_port} ", r"\b8443 ": f"{self.s3_port} ",
            r"/etc/nginx/": f"{self.certificate}/"})

    def command(self, server):
        places = "".join(f"{of}_temp_path {self.folder}/{of};\n"
                         for of in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (self.folder / "nginx.conf").write_text(
            f"daemon off;\npid {self.folder}/pid;\nerror_log {self.folder}/log warn;\nworker_processes 2;\nuser root;\n"
            f"events {{}}\nhttp {{\naccess_log off;\n{places}{self.recipe()}}}\n")
        return ["/usr/sbin/nginx", "-c", str(self.folder / "nginx.conf")]


class TokenNginx(Nginx):
    """An nginx that requires this token."""

    token, has_s3 = "a" * 64, False

    def recipe(self):
        address, to = next(iter(self.behind.items()))
        return recipe("recipes.md", "nginx with TLS and a token", "nginx", {
            address: to, r"listen 443 ": f"listen 127.0.0.1:{self.port} ", r"REPLACE-BY-A-RANDOM-TOKEN": self.token,
            r"/etc/nginx/tensord\.": f"{self.certificate}/site."})


class Haproxy(Proxy):
    def recipe(self, server):
        return recipe("proxies.md", "HAProxy", "haproxy", {
            **self.behind, r"bind :443 ": f"bind 127.0.0.1:{self.port} ",
            r"bind :8443 ": f"bind 127.0.0.1:{self.s3_port} ", r"dst_port 8443\b": f"dst_port {self.s3_port}",
            r"\bport 8080\b": f"port {server.port}", r"/etc/haproxy/": f"{self.certificate}/"})

    def command(self, server):
        (self.folder / "haproxy.cfg").write_text(self.recipe(server))
        return ["/usr/sbin/haproxy", "-db", "-f", str(self.folder / "haproxy.cfg")]


def with_writers(block, language, left_out=()):
    """Return a recipe with the lines of "Writers" in place of those that begin with the same words."""
    text = (harness.REPO / "docs/proxies.md").read_text().partition("\n## Writers\n")[2].partition("\n## ")[0]
    more, = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for line in block.splitlines() if not any(word in line for word in left_out)]
    for line in more.splitlines():
        first = re.match(r"\s*(http-request deny deny_status \d+|timeout \w+|\w+)", line)[1]
        at = [i for i, old in enumerate(lines) if old.split("#")[0].strip().startswith(first + " ")]
        if at:
            lines[at[0]] = line
        else:
            lines.insert(next(i for i, old in enumerate(lines) if "proxy_pass" in old), line)
    return "\n".join(lines) + "\n"


class WritingNginx(Nginx):
    has_s3 = False

    def recipe(self):
        return with_writers(super().recipe(), "nginx")


class WritingHaproxy(Haproxy):
    has_s3 = False

    def recipe(self, server):
        return with_writers(super().recipe(server), "haproxy", ["8388608"])


@pytest.fixture(scope="module", params=[Nginx, Haproxy], ids=["nginx", "haproxy"])
def proxy(request, srv, certificate, tmp_path_factory):
    p = request.param(srv, tmp_path_factory.mktemp("proxy"), certificate)
    try:
        p.wait()
        yield p
        assert "upstream response is buffered" not in p.log(), p.log()
    finally:
        p.stop()


def path_of(file):
    return f"/models/ns/m/files/{file}"


# ------------------------------------------------------------------------------------------------ the Hub's clients

@pytest.fixture(scope="module", params=[NEWEST, HUB0], ids=["newest", "0.36"])
def hub(request, proxy):
    authority = str(proxy.certificate / "ca.crt")
    with Worker("calls_hub", python=request.param, HF_ENDPOINT=f"https://127.0.0.1:{proxy.port}", HF_TOKEN="hf_secret",
                SSL_CERT_FILE=authority, REQUESTS_CA_BUNDLE=authority) as w:
        yield w


# shows: security.md client-proxy
def test_all_pages_of_a_list(srv, hub):
    asked = len(srv.log().splitlines())
    assert sorted(hub.models()) == sorted(["ns/m", *(f"many/m{i:04}" for i in range(MODELS))])
    srv.wait_for(lambda: sum("/api/models" in line for line in srv.log().splitlines()[asked:]) == 2, "two pages")


def test_a_snapshot(hub, root, tmp_path):
    got = hub.snapshot(repo_id="ns/m", cache_dir=str(tmp_path), ignore_patterns=["long.dat"])
    wanted = digests(root / "ns/m")
    del wanted["long.dat"]
    assert digests(got) == wanted


@pytest.mark.parametrize("sent", [None, "http", "https", "javascript", "http, http"])
# shows: security.md client-forwarded
def test_the_scheme_is_the_proxys(proxy, sent):
    """The scheme is that of the proxy, whatever a client claims."""
    r = proxy.ask("/api/models?limit=1", headers={"X-Forwarded-Proto": sent} if sent else None)
    assert r.status == 200 and r.headers["Link"].startswith(
        f"<https://127.0.0.1:{proxy.port}/api/models?"), r.headers["Link"]


@pytest.mark.parametrize("python", [NEWEST, HUB0], ids=["newest", "0.36"])
def test_with_a_token(srv, root, certificate, tmp_path, python):
    """nginx requires the token for every page of a list, and tensord never gets it."""
    authority = str(certificate / "ca.crt")
    proxy = TokenNginx(srv, tmp_path, certificate)
    trust = {
        "HF_ENDPOINT": f"https://127.0.0.1:{proxy.port}", "SSL_CERT_FILE": authority, "REQUESTS_CA_BUNDLE": authority
    }
    try:
        proxy.wait()
        assert proxy.ask("/models").status == 401
        assert proxy.ask("/models", headers={"Authorization": "Bearer " + "b" * 64}).status == 401
        assert proxy.ask("/models", headers={"Authorization": f"Bearer {proxy.token}"}).status == 200
        with Worker("calls_hub", python=python, HF_TOKEN=proxy.token, **trust) as hub:
            assert len(hub.models()) == MODELS + 1
            got = hub.download(repo_id="ns/m", filename="big.dat", cache_dir=str(tmp_path / "cache"))
            assert sha256(got) == sha256(root / "ns/m/big.dat")
        with Worker("calls_hub", python=python, **trust) as hub, pytest.raises(ClientError):
            hub.models()
    finally:
        proxy.stop()


# ----------------------------------------------------------------------------------------------------- plain requests

ASKS = [("GET", {}), ("HEAD", {}), ("GET", {"Range": "bytes=1000000-3999999"}), ("GET", {"Range": "bytes=-5"}),
        ("GET", {"Range": "bytes=0-0,100-199,4000000-4000009"}), ("GET", {"Range": f"bytes={BIG}-"}),
        ("GET", {"If-None-Match": "ETAG"}), ("GET", {"If-Match": '"0"'}),
        ("GET", {"If-Range": "ETAG", "Range": "bytes=9-"}), ("GET", {"If-Range": '"0"', "Range": "bytes=9-"}),
        ("HEAD", {"Range": "bytes=9-"})]


@pytest.mark.parametrize("method, headers", ASKS, ids=lambda x: x if isinstance(x, str) else json.dumps(x))
def test_answers_are_those_of_the_server(proxy, srv, method, headers):
    etag = srv.head(path_of("big.dat")).etag
    headers = {k: v.replace("ETAG", etag) for k, v in headers.items()}
    there = proxy.ask(path_of("big.dat"), method, headers)
    here = srv.request(path_of("big.dat"), headers, method)
    boundary = re.search(r"boundary=(\S+)", here.get("Content-Type") or "")
    if boundary:            # which is new in each answer
        other = re.search(r"boundary=(\S+)", there.headers["Content-Type"]).group(1)
        there.body = there.body.replace(other.encode(), boundary.group(1).encode())
    assert there.status == here.status and there.body == here.body
    for name in ("ETag", "Content-Range", "Content-Length", "Accept-Ranges", "Last-Modified", "Cache-Control"):
        assert there.headers[name] == here.get(name), name


def test_names_arrive_as_they_were_sent(proxy, srv):
    target = "/models/ns/m/tensors/" + urllib.parse.quote(ODD, safe="")
    want = srv.get(target)
    assert want.status == 200 and len(want.body) == 2400
    for way in (target, "/models/ns/m/tensors/a//b/%252F%20c"):
        got = proxy.ask(way)
        assert got.status == 200 and got.body == want.body, way


def test_files_of_ranks(proxy, srv):
    target = "/models/ns/m/shards/fsdp/tp2/rank-1.safetensors"
    assert hashlib.sha256(proxy.ask(target).body).digest() == hashlib.sha256(srv.get(target).body).digest()


def test_bodies(proxy, srv):
    """Bodies of up to --max-body-bytes pass, larger ones do not."""
    ask = {"tensors": [{"name": "w"}] * 500}
    target = "/models/ns/m/tensors:read"
    want = srv.post(target, ask)
    long = json.dumps(ask).encode() + b" " * 4_000_000
    for body in (json.dumps(ask).encode(), long):
        got = proxy.ask(target, "POST", body=body)
        assert got.status == want.status == 200 and got.body == want.body
    connection = proxy.connect()
    connection.putrequest("POST", target)
    connection.putheader("Content-Length", str(8 * 1024 * 1024 + 1))
    connection.endheaders()         # which says enough
    assert connection.getresponse().status == 413
    connection.close()


def test_bodies_in_chunks(proxy, srv):
    """In chunks and packed by gzip they pass, for REST and for typed clients; longer ones and those of a GET do not."""
    target, ask = "/models/ns/m/tensors:read", json.dumps({"tensors": [{"name": "w"}]}).encode()
    want = srv.post(target, ask)
    assert want.status == 200
    packed, name = {"Content-Encoding": "gzip"}, {"Content-Type": "application/json"}
    for body, fields in ((ask, {}), (ask + b" " * 4_000_000, {}), (gzip.compress(ask), packed)):
        got = proxy.ask(target, "POST", fields, iter([body[:9], body[9:]]))
        assert (got.status, got.body) == (200, want.body), (len(body), fields, got.body)
    for body, fields in ((b'{"model": "ns/m"}', name), (gzip.compress(b'{"model": "ns/m"}'), {**name, **packed})):
        got = proxy.ask("/tensord.v1.ModelService/GetModel", "POST", fields, iter([body]))
        assert got.status == 200 and json.loads(got.body)["id"] == "ns/m", got.body
    assert proxy.ask(target, "POST", {}, iter([b" " * 65536] * 129)).status == 413
    for method in ("GET", "HEAD"):
        connection = proxy.connect()
        connection.putrequest(method, path_of("config.json"))
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders(b"1\r\nx\r\n0\r\n\r\n")     # in one piece with the header
        assert connection.getresponse().status == 400
        connection.close()


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_what_writes_ends_at_the_proxy(proxy, srv, method):
    asked = f'method="{method}"'
    assert proxy.ask(path_of("config.json"), method).status in (403, 405)
    assert asked not in srv.whole_log()


@pytest.mark.parametrize("kind", [WritingNginx, WritingHaproxy])
def test_clients_publish_through_a_proxy(certificate, tmp_path, kind):
    """A directory with more bytes than a proxy takes otherwise, a chunked body, an S3 client, a refusal, a deletion."""
    tokens = TokensFile(tmp_path / "tokens.json").add("w", ["org/*"], rights=("read", "write"))
    folder, root = tmp_path / "checkpoint", tmp_path / "root"
    for path in (folder, root, tmp_path / "proxy"):
        path.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "w.dat").write_bytes(harness.pattern(40_000_001, "w"))
    with harness.Server(root, "--publish", "any", "--tokens", tokens, "--s3-listen", "127.0.0.1:0", "--metrics-open",
                        "on") as s:
        proxy = kind(s, tmp_path / "proxy", certificate)
        try:
            s.wait_for(lambda: proxy.ask("/healthz").status == 200, "the proxy", 20)
            env = {**os.environ, "TENSORD_TOKEN": tokens.text("w"), "NO_PROXY": "127.0.0.1"}
            push = [harness.tensord_binary(), "push", folder, f"https://127.0.0.1:{proxy.port}", "--cacert",
                    certificate / "ca.crt"]
            done = subprocess.run([*push, "org/m"], env=env, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr + proxy.log()
            bearer = tokens.bearer("w")
            for path in digests(folder):
                assert s.get(f"/models/org/m/files/{path}", bearer).body == (folder / path).read_bytes(), path
            refused = subprocess.run([*push, "other/m"], env=env, capture_output=True, text=True, timeout=120)
            assert refused.returncode == 1 and "403" in refused.stderr
            chunked = proxy.ask("/models/org/m/files/x", "PUT", bearer, iter([b"1" * 10_000_000, b"2"]))
            assert chunked.status == 201, chunked.body
            assert proxy.ask("/models/org/m/files/x", "DELETE", bearer).status == 200
            assert proxy.ask("/models/org/m/files/x", "PUT", {}, b"x").status == 401
            access, secret = tokens.s3_keys("w")
            s3 = boto3.client("s3", endpoint_url=f"https://127.0.0.1:{proxy.s3_port}", region_name="us-east-1",
                              aws_access_key_id=access, aws_secret_access_key=secret,
                              verify=str(certificate / "ca.crt"),
                              config=botocore.config.Config(s3={"addressing_style": "path"}))
            s3.upload_file(str(folder / "w.dat"), "org", "by-s3/w.dat")
            assert s3.head_object(Bucket="org", Key="by-s3/w.dat")["ContentLength"] == 40_000_001
        finally:
            proxy.stop()


# ------------------------------------------------------------------------------------------------------------ streams

def test_a_long_answer_is_not_stored_on_its_way(proxy, srv):
    """A client reads a little and waits: the server still has most of the answer, so no proxy has stored it in a
    file."""
    connection = proxy.connect()
    connection.request("GET", path_of("long.dat"))
    r = connection.getresponse()
    assert r.status == 200 and r.length == LONG
    got = len(r.read(1 << 20))
    time.sleep(1)
    _, _, samples = srv.metrics()
    assert [v for name, _, v in samples if name == "tensord_http_requests_in_flight"] >= [2], "it is being answered"
    while data := r.read(1 << 20):
        got += len(data)
    connection.close()
    assert got == LONG
    assert not [p for p in proxy.folder.rglob("*") if p.is_file() and p.stat().st_size > 1 << 20]


def test_connections_are_kept(proxy, srv):
    """Connections of the client to the proxy, and of the proxy to the server."""
    def accepted():
        _, _, samples = srv.metrics()
        return sum(v for name, _, v in samples if name == "tensord_http_connections_accepted_total")
    connection = proxy.connect()
    before = accepted()
    for _ in range(60):
        connection.request("GET", path_of("config.json"))
        r = connection.getresponse()
        assert r.status == 200 and r.read() == b"{}"
        local = connection.sock.getsockname()
    assert connection.sock.getsockname() == local
    connection.close()
    assert accepted() - before < 30, "each request had a connection of its own"


# ----------------------------------------------------------------------------------------------------- clients of S3

@pytest.mark.parametrize("how", ["anonymous", "signed"])
def test_s3(proxy, root, how, tmp_path):
    keys = {"config": botocore.config.Config(signature_version=botocore.UNSIGNED, s3={"addressing_style": "path"})} \
        if how == "anonymous" else {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    s3 = boto3.client("s3", endpoint_url=f"https://127.0.0.1:{proxy.s3_port}", region_name="us-east-1",
                      verify=str(proxy.certificate / "ca.crt"), **keys)
    assert sorted(b["Name"] for b in s3.list_buckets()["Buckets"]) == ["many", "ns"]
    pages = list(s3.get_paginator("list_objects_v2").paginate(Bucket="many"))
    assert len(pages) == 2 and sum(len(p["Contents"]) for p in pages) == MODELS
    s3.download_file("ns", "m/big.dat", str(tmp_path / "big"))
    assert (tmp_path / "big").read_bytes() == (root / "ns/m/big.dat").read_bytes()
    got = s3.get_object(Bucket="ns", Key="m/big.dat", Range="bytes=10-29")
    assert got["Body"].read() == (root / "ns/m/big.dat").read_bytes()[10:30]
    again = s3.get_object(Bucket="ns", Key="m/big.dat", IfMatch=got["ETag"], Range="bytes=4000000-")
    assert len(again["Body"].read()) == BIG - 4_000_000
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        s3.put_object(Bucket="ns", Key="m/new", Body=b"x")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] in (403, 405)
