"""The client over TLS and through proxies: a TLS terminator and a proxy made here, in front of a real server."""
import base64
import contextlib
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request

import pytest
import torch
from safetensors.torch import save_file

import harness
import pki
import tensord
from listener import Listener, read_head
from tensord.net import http
from tensord.options import NAMES, of
from tensord.__main__ import main

TENSORS = {"large": torch.arange(2_500_000, dtype=torch.int32).reshape(500, 5000), "small": torch.arange(7.0)}
LOGIN, TOKEN = ("us er", "pass/w@rd"), "sesame-16"
PROXY_FIELD = b"Proxy-Authorization: Basic " + base64.b64encode(b"us er:pass/w@rd")
RETRIES = 2    # seconds in which a busy processor, too, has time for a second try
FAST = {"connections": 3, "range_bytes": 1024 * 1024, "progress": False}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    (root / "m").mkdir()
    save_file(TENSORS, root / "m" / "model.safetensors")
    harness.age(root)
    with harness.Server(root) as started:
        yield started


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A folder with ca.pem, and certificates signed by it: good.pem, other.pem (for other.test), expired.pem."""
    place = tmp_path_factory.mktemp("certificates")
    names = "DNS:localhost,DNS:weights.example.test,IP:127.0.0.1,IP:::1"
    (place / "ca.cnf").write_text(
        "[ca]\ndefault_ca=d\n[d]\ndatabase=index\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\n"
        "copy_extensions=copy\nunique_subject=no\n[p]\ncommonName=supplied\n")
    (place / "index").touch()
    (place / "serial").write_text("01\n")

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=place, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=a test's own", "-days", "2")
    for name, hosts, begin, end in (("good", names, "20200101000000Z", "20991231000000Z"),
                                    ("other", "DNS:other.test", "20200101000000Z", "20991231000000Z"),
                                    ("expired", names, "20200101000000Z", "20210101000000Z")):
        openssl("req", *key, "-keyout", "key", "-out", "request", "-subj", f"/CN={name}",
                "-addext", f"subjectAltName={hosts}")
        openssl("ca", "-batch", "-config", "ca.cnf", "-cert", "ca.pem", "-keyfile", "ca.key", "-in", "request",
                "-out", f"{name}.crt", "-startdate", begin, "-enddate", end, "-notext")
        (place / f"{name}.pem").write_bytes((place / f"{name}.crt").read_bytes() + (place / "key").read_bytes())
    return place


def relay(client, backend, seen=None, cut=None):
    """Passes bytes both ways until one side ends, or `cut` bytes of the backend's have passed. `seen` gets the
    client's."""
    left = [cut]

    def pump(source, target, count):
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(16384 if not count or left[0] is None else max(0, min(16384, left[0])))
                if not data:
                    break
                target.sendall(data)
                if count and left[0] is not None:
                    left[0] -= len(data)
                elif not count and seen is not None:
                    seen.append(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(end, socket.SHUT_RDWR)

    back = threading.Thread(target=pump, args=(backend, client, True), daemon=True)
    back.start()
    pump(client, backend, False)
    back.join()


class Terminator(Listener):
    """TLS in front of a server. The first `cuts` connections are cut after `cut` bytes of answers."""

    def __init__(self, backend, certificate, cut=None, cuts=0, host="127.0.0.1"):
        self.backend, self.cut, self.cuts, self.seen = backend, cut, cuts, []
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        super().__init__(host)

    def handle(self, client, number):
        with self.context.wrap_socket(client, server_side=True) as secure:
            with socket.create_connection(("127.0.0.1", self.backend)) as backend:
                relay(secure, backend, self.seen, self.cut if number <= self.cuts else None)


class Proxy(Listener):
    """An HTTP proxy: CONNECT, and GET and POST in absolute form. `login`: what Proxy-Authorization has to be.

    `routes` has ports for authorities that are not to be looked up. `answer(client, head)` answers in its place.
    """

    def __init__(self, login=None, routes=None, answer=None):
        self.login, self.routes, self.answer = login, routes or {}, answer
        self.heads, self.passed = [], []
        super().__init__()

    def handle(self, client, _):
        backend = None
        while True:
            head = read_head(client)
            if not head:
                return
            self.heads.append(head)
            if self.answer:
                return self.answer(client, head)
            if self.login and self.login not in head.split(b"\r\n"):
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                continue
            target = head.split(b" ")[1].decode()
            authority = re.match(r"(?:http://)?([^/]*)", target)[1]
            if head.startswith(b"CONNECT "):
                client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: a test\r\n\r\n")
                with self.connect(authority) as tunnel:
                    return relay(client, tunnel, self.passed)
            backend = backend or self.connect(authority)
            with contextlib.suppress(AttributeError):
                self.forward(client, backend, head, "http://" + authority)

    def connect(self, authority):
        host, _, port = authority.rpartition(":")
        return socket.create_connection(("127.0.0.1", self.routes.get(authority) or int(port)))

    def forward(self, client, backend, head, origin):
        """Passes one request on, in origin form, and its answer back."""
        lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Proxy-")]
        lines[0] = lines[0].replace(origin.encode(), b"", 1)
        found = re.search(rb"Content-Length: (\d+)", head)
        backend.sendall(b"\r\n".join(lines))
        for left in range(int(found[1]) if found else 0, 0, -16384):
            data = b""
            while len(data) < min(left, 16384):
                data += client.recv(min(left, 16384) - len(data))
            backend.sendall(data)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += backend.recv(65536)
        client.sendall(answer)
        head, _, rest = answer.partition(b"\r\n\r\n")
        left = int(re.search(rb"(?i)content-length: (\d+)", head)[1]) - len(rest)
        while left > 0:
            data = backend.recv(min(left, 65536))
            client.sendall(data)
            left -= len(data)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def check(url, **options):
    loaded = tensord.load_file(url, **{**FAST, **options})
    assert loaded.keys() == TENSORS.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in TENSORS.items())


def at_once(kind, text, url, **options):
    """Return the error of a load, which has to come at once though `retry_for` is long."""
    began = time.monotonic()
    with pytest.raises(kind, match=text) as caught:
        tensord.load_file(url, **{**FAST, "retry_for": 60, **options})
    assert time.monotonic() - began < 5
    return str(caught.value)


# ---- TLS


def test_https_reads_every_byte_over_several_connections(server, certificates):
    ca_file = str(certificates / "ca.pem")
    with Terminator(server.port, certificates / "good.pem") as front:
        url = f"https://127.0.0.1:{front.port}/models/m"
        check(url, ca_file=ca_file)
        assert front.accepted >= 3
        assert len(set(re.findall(rb"Range: bytes=(\d+)-", b"".join(front.seen)))) >= 9
        target = {"large": torch.zeros(500, 5000, dtype=torch.int32), "small": torch.zeros(7)}
        tensord.load_into(target, url, ca_file=ca_file, **FAST)
        assert all(torch.equal(target[name], TENSORS[name]) for name in TENSORS)
        part, = tensord.read_boxes(url, [("large", slice(3, 5))], ca_file=ca_file)
        assert torch.equal(part, TENSORS["large"][3:5])
        check(f"https://localhost:{front.port}/models/m", ca_file=ca_file)


def test_an_unknown_issuer_is_one_error_that_names_the_options(server, certificates):
    with Terminator(server.port, certificates / "good.pem") as front:
        url = f"https://127.0.0.1:{front.port}/models/m"
        message = at_once(tensord.SetupError, "the certificate of https://127.0.0.1:.* is not trusted: ", url)
        assert "issuer certificate" in message and "ca_file=" in message and "SSL_CERT_FILE" in message
        assert front.accepted == 1 and "\n" not in message
        code = f"import tensord; print(len(tensord.load_file({url!r}, framework='np')))"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                                env={**os.environ, "SSL_CERT_FILE": str(certificates / "ca.pem")})
        assert (result.stdout, result.stderr) == ("2\n", "")


@pytest.mark.parametrize("name, text", [("other", "not valid for '127.0.0.1'"), ("expired", "certificate has expired")])
def test_wrong_hosts_and_expired_certificates_are_refused(server, certificates, name, text):
    with Terminator(server.port, certificates / f"{name}.pem") as front:
        url = f"https://127.0.0.1:{front.port}/models/m"
        message = at_once(tensord.SetupError, text, url, ca_file=str(certificates / "ca.pem"))
        assert "ca_file" not in message  # it would not help
        check(url, verify=False)


def test_settings_that_cannot_work_fail_at_once(server, certificates, tmp_path):
    (tmp_path / "empty.pem").write_text("nothing")
    with Terminator(server.port, certificates / "good.pem") as front:
        for name in ("empty.pem", "missing.pem"):
            at_once(tensord.SetupError, f"{name}' cannot be used", f"https://127.0.0.1:{front.port}/models/m",
                    ca_file=str(tmp_path / name))
    at_once(tensord.SetupError, "does not answer in TLS", f"https://127.0.0.1:{server.port}/models/m")


def test_a_read_goes_on_after_tls_is_cut_in_a_body(server, certificates):
    with Terminator(server.port, certificates / "good.pem", cut=300_000, cuts=6) as front:
        check(f"https://127.0.0.1:{front.port}/models/m", ca_file=str(certificates / "ca.pem"))
        assert front.accepted > 6
        begins = [int(begin) for begin in re.findall(rb"Range: bytes=(\d+)-", b"".join(front.seen))]
        assert any(begin % (1024 * 1024) for begin in begins)  # a cut range resumes where it ended


def test_a_server_that_is_not_trusted_is_left_out_where_another_one_is(server, certificates):
    with Terminator(server.port, certificates / "expired.pem") as front:
        first, second = f"http://127.0.0.1:{server.port}/models/m", f"https://127.0.0.1:{front.port}/models/m"
        for url in (f"{first},{second}", f"{second},{first}"):
            check(url, ca_file=str(certificates / "ca.pem"), retry_for=10)
        assert front.accepted >= 2


def test_a_handshake_that_hangs_is_bounded_by_connect_timeout():
    with Proxy(answer=lambda client, head: time.sleep(30)) as silent:
        began = time.monotonic()
        with pytest.raises(tensord.ConnectError, match="timed out"):
            check(f"https://127.0.0.1:{silent.port}/models/m", connect_timeout=0.5, retry_for=0.2)
        assert time.monotonic() - began < 3


# ---- certificates of clients, by the server's own TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return pki.Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def closed(server, authority):
    """A server that wants certificates of clients. Its attribute `good` is such a one, with its key."""
    good = authority.sign("good", usage="clientAuth")
    with harness.Server(server.root, *pki.options_of(authority.sign("server")), "--tls-client-ca", authority.cert,
                        hash_threads=0, tls=authority.context(good)) as started:
        started.good = good
        yield started


def test_a_certificate_of_the_client_is_shown(closed, authority, tmp_path, capsys):
    url, good = f"https://127.0.0.1:{closed.port}/models/m", closed.good
    check(url, ca_file=authority.cert, cert_file=good.cert, key_file=str(good.key))
    both = tmp_path / "both.pem"
    both.write_text(good.cert.read_text() + good.key.read_text())
    check(f"https://127.0.0.1:{closed.port},localhost:{closed.port}/models/m", ca_file=authority.cert, cert_file=both)
    command = ["ls", url, "--ca-file", str(authority.cert)]
    assert main([*command, "--cert-file", str(good.cert), "--key-file", str(good.key)]) == 0
    assert main([*command, "--cert-file", str(both)]) == 0
    assert capsys.readouterr().out.count("2 tensors") == 2


def test_options_of_tls_that_differ_share_no_context(authority, monkeypatch):
    """An option that is not a part of the key of contexts would have no effect after another connection."""
    pair, other = (authority.sign(name, usage="clientAuth") for name in ("pair", "other"))
    base = tensord.Options(ca_file=authority.cert, cert_file=pair.cert)
    changes = {"ca_file": pair.cert, "cert_file": other.cert, "key_file": pair.key, "verify": False}
    assert set(changes) == {name for name in NAMES if name.endswith("_file") or name == "verify"}
    monkeypatch.setattr(http, "_contexts", {})
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", lambda *given, **named: None)
    found = {id(http._tls_context(of(base, **{name: value}))) for name, value in changes.items()}
    assert len(found | {id(http._tls_context(base))}) == 5 and len(http._contexts) == 5
    assert http._tls_context(of(base)) is http._tls_context(base) and len(http._contexts) == 5


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_that_is_refused_is_one_error_at_once(closed, authority, tmp_path, monkeypatch, version):
    make = ssl.create_default_context

    def of_version(**given):
        context = make(**given)
        context.minimum_version = context.maximum_version = version
        return context

    monkeypatch.setattr(http.ssl, "create_default_context", of_version)
    monkeypatch.setattr(http, "_contexts", {})
    url = f"https://127.0.0.1:{closed.port}/models/m"
    for pair, text in ((None, "(certificate required|handshake failure); does it want a certificate.* cert_file="),
                       (authority.sign("old", -1, "clientAuth"), "certificate expired; does it trust"),
                       (pki.Authority(tmp_path, "other").sign("alien", usage="clientAuth"), "unknown ca; does it tru"),
                       (authority.sign("no-client"), "bad certificate; .* is that one for clients")):
        given = {"cert_file": pair.cert, "key_file": pair.key} if pair else {}
        at_once(tensord.SetupError, f"refused the TLS handshake: {text}", url, ca_file=authority.cert, **given)


def test_a_server_that_refuses_the_certificate_is_left_out_where_another_one_is(server, closed, authority):
    first, second = f"http://127.0.0.1:{server.port}/models/m", f"https://127.0.0.1:{closed.port}/models/m"
    for url in (f"{first},{second}", f"{second},{first}"):
        check(url, ca_file=authority.cert, retry_for=10)


def test_certificates_that_cannot_be_used_fail_at_once(closed, authority, tmp_path):
    url, good = f"https://127.0.0.1:{closed.port}/models/m", closed.good
    other, locked = authority.sign("another", usage="clientAuth"), tmp_path / "locked.key"
    pki.openssl("pkey", "-in", good.key, "-aes128", "-passout", "pass:secret", "-out", locked)
    for key in (None, other.key, locked, tmp_path / "missing.key"):
        message = at_once(tensord.SetupError, "^cert_file=.*good.pem'.* cannot be used: ", url, ca_file=authority.cert,
                          cert_file=good.cert, key_file=key)
        assert "in PEM, without a password" in message and (key is None or f"key_file='{key}'" in message)
    with pytest.raises(ValueError, match="key_file is given and cert_file is not"):
        tensord.connect(url, key_file=good.key)


# ---- URLs without TLS where there is some


def test_tensord_urls_take_no_options_of_tls(server, certificates):
    """They are plain HTTP: the token of somebody who believes otherwise would be sent in the clear."""
    ca_file = str(certificates / "ca.pem")
    with Listener() as nobody:
        for given, name in (({"ca_file": ca_file}, "ca_file="), ({"cert_file": ca_file}, "cert_file="),
                            ({"verify": False}, "verify=")):
            for url, wanted in ((f"tensord://127.0.0.1:{nobody.port}/m?checkpoint=a", "models/m[?]checkpoint=a"),
                                (f"tensord://127.0.0.1:{nobody.port}/datasets/d", "datasets/d")):
                text = f"^{name} cannot .* plain HTTP: the URL over TLS is https://127.0.0.1:{nobody.port}/{wanted}$"
                with pytest.raises(tensord.AddressError, match=text):
                    tensord.connect(url, token=TOKEN, **given)
        assert nobody.accepted == 0
    model = tensord.open_model(f"tensord://127.0.0.1:{server.port}/m", token=TOKEN)
    with pytest.raises(tensord.AddressError, match="the URL over TLS is"):
        model.with_options(ca_file=ca_file)


@pytest.mark.parametrize("scheme, path, plain", [("tensord", "", "tensord:// is plain HTTP"),
                                                 ("http", "/models", "http:// has no TLS")])
def test_a_port_of_tls_gives_the_url_that_works(closed, scheme, path, plain):
    here = f"127.0.0.1:{closed.port}"
    url = f"{scheme}://{here}{path}/m"
    message = at_once(tensord.AnswerError, "400: this port speaks HTTPS", url)
    assert message.endswith(f"; {plain}, the URL over TLS is https://{here}/models/m")
    message = at_once(tensord.AnswerError, "400: this port speaks HTTPS", url, token=TOKEN)
    assert message.endswith("/models/m. The token was sent in the clear: others may have read it")
    assert TOKEN not in message


def test_a_model_without_models_before_it_gives_the_url_that_works(closed, authority):
    here, good = f"https://127.0.0.1:{closed.port}", closed.good
    given = {"ca_file": authority.cert, "cert_file": good.cert, "key_file": good.key}
    at_once(tensord.AddressError, f"that would be {here}/models/org/alpha$", f"{here}/org/alpha", **given)
    with pytest.raises(tensord.NotFoundError, match=f"if it is a model, its URL is {here}/models/org/alpha$"):
        tensord.connect(f"{here}/org/alpha", **given).models()


# ---- proxies


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_http_goes_through_the_proxy_of_the_environment(server, monkeypatch, variable):
    with Proxy() as proxy:
        monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.port}")
        check(f"http://127.0.0.1:{server.port}/models/m")
        origin = f"http://127.0.0.1:{server.port}/models/m/".encode()
        assert len(proxy.heads) > 9 and all(head.split(b" ")[1].startswith(origin) for head in proxy.heads)
        assert all(f"\r\nHost: 127.0.0.1:{server.port}\r\n".encode() in head for head in proxy.heads)


@pytest.mark.parametrize("variable", ["https_proxy", "HTTPS_PROXY", "all_proxy"])
def test_https_goes_through_a_tunnel(server, certificates, monkeypatch, variable):
    with Terminator(server.port, certificates / "good.pem") as front, Proxy() as proxy:
        monkeypatch.setenv(variable, f"127.0.0.1:{proxy.port}")
        check(f"https://127.0.0.1:{front.port}/models/m", ca_file=str(certificates / "ca.pem"))
        assert front.accepted == len(proxy.heads) >= 3
        assert {head.split(b"\r\n")[0] for head in proxy.heads} == {f"CONNECT 127.0.0.1:{front.port} HTTP/1.1".encode()}


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_writes_go_through_the_proxy_too(tmp_path, certificates, monkeypatch, scheme):
    """Small bodies through a proxy that passes requests on, and large ones of both kinds through a tunnel."""
    (tmp_path / "root").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here/a.bin").write_bytes(os.urandom(3_000_000 if scheme == "https" else 300_000))
    with harness.Server(tmp_path / "root", "--publish", "any") as writable, Proxy() as proxy, \
            Terminator(writable.port, certificates / "good.pem") as front:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://127.0.0.1:{proxy.port}")
        url = f"{scheme}://127.0.0.1:{front.port if scheme == 'https' else writable.port}/models/org/m"
        options = {"ca_file": str(certificates / "ca.pem")} if scheme == "https" else {}
        assert tensord.push(tmp_path / "here", url, **options).changed and proxy.heads
        if scheme == "https":
            tensord.save_model({"x": torch.arange(1_000_000)}, url, **options)
            assert torch.equal(tensord.load_file(url, **options)["x"], torch.arange(1_000_000))
            assert all(head.startswith(b"CONNECT ") for head in proxy.heads)
        else:
            assert any(head.startswith(b"PUT " + url.encode()) for head in proxy.heads)


@pytest.mark.parametrize("no_proxy", [
    "", "*", "weights.example.test", "example.test", ".example.test", "ample.test", "other.test", "a, example.test ,b",
    "weights.example.test:PORT", "weights.example.test:1", "EXAMPLE.TEST", "127.0.0.1", "127.0.0.0/8", "::1",
    "localhost",
])
@pytest.mark.parametrize("host", ["weights.example.test", "127.0.0.1", "localhost"])
def test_no_proxy_is_understood_as_urllib_does(server, monkeypatch, no_proxy, host):
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda name, *rest, **more: look_up(
        "127.0.0.1" if name == "weights.example.test" else name, *rest, **more))
    for variable in ("no_proxy", "NO_PROXY"):
        with Proxy(routes={f"{host}:{server.port}": server.port}) as proxy, monkeypatch.context() as environment:
            environment.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
            environment.setenv(variable, no_proxy.replace("PORT", str(server.port)))
            url = f"http://{host}:{server.port}/models"
            urllib.request.build_opener(urllib.request.ProxyHandler()).open(url, timeout=20).read()
            wanted = len(proxy.heads)
            assert len(tensord.connect(url).models()) == 1
            assert len(proxy.heads) == 2 * wanted


def test_lower_case_goes_before_upper_case(server, monkeypatch):
    with Proxy() as lower, Proxy() as upper:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{upper.port}")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{lower.port}")
        check(f"http://127.0.0.1:{server.port}/models/m")
        assert lower.heads and not upper.heads


def with_login(port):
    return f"http://us%20er:pass%2Fw%40rd@127.0.0.1:{port}"


def test_logins_go_to_the_proxy_and_tokens_to_the_server(server, certificates, monkeypatch):
    options = {"ca_file": str(certificates / "ca.pem"), "token": TOKEN}
    with Terminator(server.port, certificates / "good.pem") as front, Proxy(login=PROXY_FIELD) as proxy:
        url = f"https://127.0.0.1:{front.port}/models/m"
        monkeypatch.setenv("https_proxy", with_login(proxy.port))
        check(url, **options)
        assert proxy.heads and all(PROXY_FIELD in head and TOKEN.encode() not in head for head in proxy.heads)
        assert TOKEN.encode() not in b"".join(proxy.passed)
        assert b"Authorization: Bearer sesame-16\r\n" in b"".join(front.seen) and b"Proxy-" not in b"".join(front.seen)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        front.seen.clear()
        check(url, **options)
        assert front.seen and b"Proxy-" not in b"".join(front.seen)
    with Proxy(login=PROXY_FIELD) as proxy:
        monkeypatch.delenv("no_proxy")
        monkeypatch.setenv("http_proxy", with_login(proxy.port))
        check(f"http://127.0.0.1:{server.port}/models/m", token=TOKEN)
        assert all(PROXY_FIELD in head and b"Bearer sesame-16" in head for head in proxy.heads)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_a_login(server, monkeypatch, scheme):
    url = f"{scheme}://127.0.0.1:{server.port}/models/m"
    kind = tensord.AnswerError if scheme == "http" else tensord.SetupError
    with Proxy(login=b"Proxy-Authorization: Basic of another") as proxy:
        monkeypatch.setenv(f"{scheme}_proxy", f"127.0.0.1:{proxy.port}")
        message = at_once(kind, "407", url, token=TOKEN)
        assert f"it wants a login, in {scheme}_proxy as http://user:password@127.0.0.1:{proxy.port}" in message
        monkeypatch.setenv(f"{scheme}_proxy", with_login(proxy.port))
        message = at_once(kind, f"407.*it refuses the login in {scheme}_proxy", url, token=TOKEN)
        assert hidden(message)


def hidden(message):
    """Return whether a message has neither login nor token."""
    return not any(text in message for text in (TOKEN, *LOGIN, "%2F", "us%20er", PROXY_FIELD.decode()[-20:]))


def saying(status, fields=b""):
    """Return what answers with a status, and with the client's own head in its reason and its body."""
    def answer(client, head):
        body = b"you sent " + head
        reason = head.replace(b"\r\n", b" ")
        client.sendall(b"HTTP/1.1 %d %s\r\nContent-Length: %d\r\n%s\r\n%s" % (status, reason, len(body), fields, body))
    return answer


@pytest.mark.parametrize("status, kind", [(403, tensord.SetupError), (404, tensord.SetupError),
                                          (502, tensord.ConnectError), (503, tensord.ConnectError),
                                          (302, tensord.ConnectError), (429, tensord.ConnectError)])
def test_a_proxy_that_refuses_a_tunnel(server, monkeypatch, status, kind):
    with Proxy(answer=saying(status)) as proxy:
        monkeypatch.setenv("https_proxy", with_login(proxy.port))
        with pytest.raises(kind) as caught:
            check(f"https://127.0.0.1:{server.port}/models/m", token=TOKEN, retry_for=RETRIES)
        message = str(caught.value)
        assert f"the proxy 127.0.0.1:{proxy.port} answered {status} instead of connecting to 127.0.0.1:" in message
        assert hidden(message) and type(caught.value) is kind
        assert (len(proxy.heads) == 1) == (kind is tensord.SetupError)


def test_a_tunnel_that_is_refused_for_a_while_is_tried_again(server, certificates, monkeypatch):
    refused = []

    def answer(client, head):
        refused.append(head)
        if len(refused) == 2:
            proxy.answer = None
        saying(502 if len(refused) == 1 else 504)(client, head)

    with Terminator(server.port, certificates / "good.pem") as front, Proxy(answer=answer) as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        check(f"https://127.0.0.1:{front.port}/models/m", ca_file=str(certificates / "ca.pem"), retry_for=20)
        assert len(refused) == 2


@pytest.mark.parametrize("status", [403, 502])
def test_a_proxy_that_refuses_a_request(server, monkeypatch, status):
    with Proxy(answer=saying(status)) as proxy:
        monkeypatch.setenv("http_proxy", with_login(proxy.port))
        with pytest.raises(tensord.AnswerError) as caught:
            check(f"http://127.0.0.1:{server.port}/models/m", token=TOKEN, retry_for=RETRIES)
        message = str(caught.value)
        assert f"the proxy 127.0.0.1:{proxy.port}" in message and hidden(message)
        assert (len(proxy.heads) == 1) == (status == 403)


def drip(client, head):
    client.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(300):
        client.sendall(b"x")
        time.sleep(0.1)


def flood(client, head):
    client.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        client.sendall(b"X: y\r\n" * 1000)


@pytest.mark.parametrize("answer, text", [
    (lambda client, head: time.sleep(30), r"did not connect to 127.0.0.1:\d+ within 0.6 s \(connect_timeout\)"),
    (drip, r"did not connect to 127.0.0.1:\d+ within 0.6 s \(connect_timeout\)"),
    (flood, "sent a header of more than 65536 bytes"),
    (lambda client, head: client.sendall(b"SSH-2.0-x\r\n\r\n"), "does not answer in HTTP"),
    (lambda client, head: client.sendall(b"HTTP/1.1 2000 OK\r\n\r\n"), "does not answer in HTTP"),
    (lambda client, head: client.sendall(b"HTTP/1.1 200 OK\r\n"), "closed the connection"),
], ids=["hangs", "drips", "floods", "no HTTP", "bad status", "cut"])
def test_a_proxy_that_never_answers_is_given_up(monkeypatch, answer, text):
    with Proxy(answer=answer) as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        began = time.monotonic()
        patience = 0.6 if "0.6 s" in text else 30.0
        with pytest.raises((tensord.ConnectError, tensord.ProtocolError), match=text):
            check("https://127.0.0.1:1/models/m", connect_timeout=patience, retry_for=0.3)
        assert time.monotonic() - began < 8 and len(proxy.heads) >= 1


def test_ipv6_hosts_have_brackets_in_connect_and_host(server, certificates, monkeypatch):
    with Terminator(server.port, certificates / "good.pem") as front:
        with Proxy(routes={"[::1]:443": front.port, "[::1]:8443": front.port}) as proxy:
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
            for url, host in (("https://[::1]/models/m", "[::1]"), ("https://[::1]:8443/models/m", "[::1]:8443")):
                proxy.heads.clear()
                front.seen.clear()
                check(url, ca_file=str(certificates / "ca.pem"))
                target = host if host.endswith("8443") else "[::1]:443"
                assert proxy.heads[0] == f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
                assert set(re.findall(rb"\r\nHost: ([^\r]*)", b"".join(front.seen))) == {host.encode()}
            proxy.heads.clear()
            monkeypatch.setenv("no_proxy", "::1")
            with pytest.raises(tensord.ConnectError, match="cannot be reached"):
                check("https://[::1]:1/models/m", retry_for=0.1)
            assert proxy.heads == []


@pytest.mark.parametrize("value", [
    "socks5://us%20er:pass%2Fw%40rd@127.0.0.1:1", "https://us%20er:pass%2Fw%40rd@127.0.0.1:1", "http://",
    "http://us er:pass/w@rd@127.0.0.1:1", "http://us%20er:pass%2Fw%40rd@127.0.0.1:x", "http://[::1", "http://u:1/2@h:1",
])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_proxies_that_cannot_be_used_fail_at_once(monkeypatch, value, scheme):
    monkeypatch.setenv(f"{scheme.upper()}_PROXY", value)
    message = at_once(tensord.SetupError, f"^{scheme}_proxy of the environment", f"{scheme}://127.0.0.1:1/models/m")
    assert hidden(message) and "no_proxy" in message


def test_a_proxy_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("http_proxy", with_login(1))
    with pytest.raises(tensord.ConnectError, match="the proxy 127.0.0.1:1 cannot be reached") as caught:
        check("http://127.0.0.1:2/models/m", retry_for=0.1)
    assert hidden(str(caught.value))
