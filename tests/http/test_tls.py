"""TLS of the main port and the S3 port, against Python's ssl (OpenSSL), `openssl s_client` and curl."""
import calendar
import contextlib
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest

import pki
from harness import Incomplete, Server, age, check_error, parse_multipart, tensor, tensord_binary, write_by_hand

FILE = "/models/m/files/model.safetensors"
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
BIG = 24 << 20


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    return pki.Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def pair(ca):
    return ca.sign("server")


def write_model(root, name="m", rows=3000):
    write_by_hand(root / name / "model.safetensors", [tensor("w", "F32", [rows, 256]), tensor("b", "F32", [8])])
    age(root)
    return (root / name / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("served") / "root"
    write_model(root, "a", rows=1)
    return root, write_model(root)


@pytest.fixture(scope="module")
def tls_srv(served, ca, pair):
    with Server(served[0], *pki.options_of(pair), "--s3-listen", "127.0.0.1:0", "--plain-listen", "127.0.0.1:0",
                "--log-level", "debug", hash_threads=0, tls=ca.context()) as s:
        yield s


def url_of(server, what):
    """Return the URL of the port that the log calls `what`."""
    return re.search(rf"listening {what} on (\S+)", server.stderr())[1]


def run(*args, env=None, **kw):
    p = subprocess.run([tensord_binary(), *map(str, args)], capture_output=True, text=True, timeout=60,
                       env={**os.environ, **(env or {})}, **kw)
    return p.returncode, p.stdout, p.stderr


def serve_fails(root, *args):
    """Return the last line of a `serve` that must not start."""
    code, _, err = run("serve", root, "--listen", "127.0.0.1:0", *args)
    assert code in (1, 2), err
    return err.strip().splitlines()[-1]


def s_client(port, *args, stdin=b""):
    """Return all that openssl's client says of a handshake. It ends when its input does."""
    p = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *map(str, args)], input=stdin,
                       capture_output=True, timeout=30)
    return (p.stdout + p.stderr).decode("utf-8", "replace")


# ------------------------------------------------------------------------------------------------ answers

@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_those_of_the_file(tls_srv, ca, served, version):
    data = served[1]
    with tls_srv.conn(tls=ca.context(version=VERSIONS[version])) as c:
        assert c.sock.version() == f"TLSv{version}"
        assert c.request(FILE).body == data                                       # by windows
        assert c.request(FILE, method="HEAD").length == len(data)
        for first, last in ((0, 0), (8, 4095), (100, 100 + (20 << 10)), (1, 1 + (64 << 10)), (3, (1 << 20) + 77)):
            r = c.request(FILE, [("Range", f"bytes={first}-{last}")])             # copied, or by windows
            assert (r.status, r.body) == (206, data[first:last + 1])
        r = c.request(FILE, [("Range", "bytes=0-9,1000-200999,-5")])
        assert [part[4] for part in parse_multipart(r)] == [data[:10], data[1000:201000], data[-5:]]
        assert c.request("/models/m/tensors/w").body in data
        assert c.request(FILE, [("If-None-Match", c.request(FILE, method="HEAD").etag)]).status == 304
        check_error(c.request("/models/none"), 404)


def test_rank_files_are_those_without_tls(tls_srv):
    target = "/models/m/shards/fsdp/tp2/rank-1.safetensors"
    plain = url_of(tls_srv, "without TLS")
    want = subprocess.run(["curl", "-sSf", plain + target], capture_output=True, check=True, timeout=30).stdout
    assert len(want) > 1 << 20 and tls_srv.get(target).body == want


def test_a_request_may_wait_and_may_have_a_body(tls_srv):
    etag = tls_srv.get("/models/m").etag
    began = time.monotonic()
    with tls_srv.conn() as c:
        assert c.request(f"/models/m?wait={etag.strip(chr(34))}&timeout=1").status == 304
    assert time.monotonic() - began >= 0.9
    r = tls_srv.post("/models/m/tensors:read", {"tensors": [{"name": "b"}]})
    assert r.status == 200, r
    assert tls_srv.request("/rescan", method="POST", headers=[("Content-Length", "0")]).status == 200   # is local


def test_links_to_further_pages_are_https(tls_srv):
    """Clients of the Hub send their token there."""
    for headers, scheme in (([], "https"), ([("X-Forwarded-Proto", "http")], "http"),
                            ([("X-Forwarded-Proto", "https")], "https")):
        r = tls_srv.get("/api/models?limit=1", headers)
        assert r.get("Link").startswith(f"<{scheme}://127.0.0.1:{tls_srv.port}/"), r


def test_boto3_reads_over_tls(tls_srv, ca, served):
    import boto3
    import botocore.config
    s3 = boto3.client("s3", endpoint_url=url_of(tls_srv, "for S3 clients").replace("127.0.0.1", "localhost"),
                      region_name="us-east-1", verify=str(ca.cert), aws_access_key_id="x", aws_secret_access_key="x",
                      config=botocore.config.Config(s3={"addressing_style": "path"}))
    bucket = next(b["Name"] for b in s3.list_buckets()["Buckets"])
    key = next(o["Key"] for o in s3.list_objects_v2(Bucket=bucket)["Contents"] if o["Key"] == "m/model.safetensors")
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == served[1]


# ------------------------------------------------------------------------------- versions, ciphers, other clients

# shows: security.md tls-old-version
def test_versions_and_ciphers(tls_srv):
    for option in ("-tls1", "-tls1_1"):
        assert "Cipher is (NONE)" in s_client(tls_srv.port, option, "-cipher", "ALL:@SECLEVEL=0")
    new = s_client(tls_srv.port, "-tls1_3", "-alpn", "h2,http/1.1")
    assert "Cipher is TLS_AES_128_GCM_SHA256" in new and "ALPN protocol: http/1.1" in new
    assert "Cipher is ECDHE-ECDSA-AES128-GCM-SHA256" in s_client(
        tls_srv.port, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256")
    for weak in ("AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES128-SHA",
                 "DHE-RSA-AES128-GCM-SHA256"):
        assert "Cipher is (NONE)" in s_client(tls_srv.port, "-tls1_2", "-cipher", f"{weak}:@SECLEVEL=0"), weak


# shows: security.md tls-renegotiation
def test_a_client_cannot_renegotiate(tls_srv):
    with subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{tls_srv.port}", "-tls1_2"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as p:
        said = b""
        while b"---\n" not in said[said.find(b"Extended master secret"):]:
            said += os.read(p.stdout.fileno(), 65536)
        p.stdin.write(b"R\n")
        p.stdin.flush()
        said = p.stdout.read()                      # until the server closes
        assert b"RENEGOTIATING" in said and b"Verify return" not in said
        p.stdin.close()
    assert tls_srv.get("/healthz").status == 200


# shows: security.md tls-old-version
def test_a_client_without_tls_is_told(tls_srv):
    with tls_srv.conn(tls=None) as c:
        error = check_error(c.request("/models"), 400, "https://")
        assert "this port speaks HTTPS" in error["message"]
        assert c.ended()
    s3 = url_of(tls_srv, "for S3 clients").replace("https:", "http:")
    p = subprocess.run(["curl", "-sS", "-i", s3], capture_output=True, text=True, timeout=30)
    assert p.stdout.startswith("HTTP/1.1 400 ") and "<Code>InvalidRequest</Code>" in p.stdout and "https://" in p.stdout


def hello():
    """Returns the first bytes of a client; most of them are random."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def answer_to(port, sent):
    with socket.create_connection(("127.0.0.1", port), timeout=30) as c:
        c.sendall(sent)
        answer = b""
        while part := c.recv(65536):
            answer += part
        return answer


# shows: security.md tls-on-plain-port
def test_a_tls_client_gets_400_on_plain_ports(served):
    """Clients of registries try https:// first, and http:// after an answer that is not TLS."""
    with Server(served[0], "--s3-listen", "127.0.0.1:0", hash_threads=0) as s:
        s3 = int(url_of(s, "for S3 clients").rpartition(":")[2])
        for port, error in ((s.port, b'"status":"INVALID_ARGUMENT"'), (s3, b"<Code>InvalidRequest</Code>")):
            # Random bytes with a line end, or without one, and a handshake whose rest comes later.
            hellos = [hello() for _ in range(40)]
            hellos += [b"\x16", b"\x16\n\n", b"\x16\r\n\r\n", b"\x16GET / HTTP/1.1\r\n\r\n"]
            answers = {answer_to(port, sent) for sent in hellos}
            assert len(answers) == 1, answers
            answer = answers.pop()
            assert answer.startswith(b"HTTP/1.1 400 ") and error in answer and b"http://" in answer, answer
        said = subprocess.run(["curl", "-sS", f"https://127.0.0.1:{s.port}/"], capture_output=True, timeout=30)
        assert said.returncode == 35, said      # "SSL connect error", and no "empty reply"


def test_the_plain_port_is_the_main_one_without_tls(tls_srv):
    plain = url_of(tls_srv, "without TLS")
    got = subprocess.run(["curl", "-sSf", plain + "/models"], capture_output=True, check=True, timeout=30).stdout
    assert got == tls_srv.get("/models").body


# shows: security.md tls-handshakes
def test_handshakes_that_end_half_way_leave_nothing(tls_srv):
    before = tls_srv.sockets(), tls_srv.threads()
    bytes_of_hello = hello()
    for i in range(200):
        with socket.create_connection(("127.0.0.1", tls_srv.port)) as c:
            c.sendall(bytes_of_hello[:1 + i % len(bytes_of_hello)] if i % 2 else bytes_of_hello)
            if i % 4 == 3:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))      # a reset
    tls_srv.wait_for(lambda: (tls_srv.sockets(), tls_srv.threads()) <= before, "connections and threads are gone")


# shows: security.md tls-handshakes
def test_a_handshake_has_the_deadline_of_a_header(served, pair, ca):
    with Server(served[0], *pki.options_of(pair), "--header-timeout", 1, hash_threads=0, tls=ca.context()) as s:
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", s.port)) as c:
            c.sendall(b"\x16\x03\x01\x02\x00\x01")      # of a record of 512 bytes
            c.settimeout(10)
            with contextlib.suppress(ConnectionError):
                assert c.recv(100) == b""
        assert 0.8 < time.monotonic() - began < 3
        assert s.gauge("tensord_http_connections") == 1      # that of the question


def test_a_connection_beyond_the_limit(served, pair, ca):
    """Within the reserved places the usual answers come; beyond the limit of an address the connection is closed."""
    with Server(served[0], *pki.options_of(pair), "--max-connections", 2, "--max-connections-per-address", 4,
                hash_threads=0, tls=ca.context()) as s, contextlib.ExitStack() as stack:
        one = {"source": "127.0.0.2"}    # a connection by which the harness saw the start may count for 127.0.0.1
        first = [stack.enter_context(s.conn(**one)) for _ in range(2)]
        for c in first:
            assert c.request("/healthz").status == 200
        third, fourth = (stack.enter_context(s.conn(**one)) for _ in range(2))
        assert third.request("/healthz").status == 200
        check_error(fourth.request("/models"), 503)
        fifth = stack.enter_context(s.conn(source="127.0.0.3"))      # another address
        assert fifth.request("/healthz").status == 200
        third2 = stack.enter_context(s.conn(**one))                  # in place of the fourth, which was closed
        assert third2.request("/healthz").status == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            s.conn(**one)


# ------------------------------------------------------------------------------------------- what is misconfigured

# shows: security.md tls-bad-pair
def test_faults_of_certificate_and_key_are_told(served, tmp_path, ca, pair):
    root = served[0]
    other = ca.sign("other-server")
    text = tmp_path / "text"
    text.write_text("no PEM\n")
    locked = tmp_path / "locked.key"
    pki.openssl("ec", "-in", pair.key, "-aes256", "-passout", "pass:x", "-out", locked)
    for args, message in (
            (["--tls-cert", pair.cert], "--tls-cert is given without --tls-key"),
            (["--tls-key", pair.key], "--tls-key is given without --tls-cert"),
            (["--tls-client-ca", ca.cert], "--tls-client-ca needs TLS"),
            (["--tls-cert", pair.cert, "--tls-key", other.key], "is not that of the certificate"),
            (["--tls-cert", tmp_path / "none", "--tls-key", pair.key], "No such file"),
            (["--tls-cert", tmp_path, "--tls-key", pair.key], "is not a regular file"),
            (["--tls-cert", text, "--tls-key", pair.key], "it must be PEM"),
            (["--tls-cert", pair.cert, "--tls-key", text], "it must be PEM"),
            (["--tls-cert", pair.cert, "--tls-key", locked], "without a passphrase"),
            (["--tls-cert", pair.cert, "--tls-key", pair.cert], "--tls-key takes its private key"),
            ([*pki.options_of(pair), "--tls-client-ca", text], "it must be PEM"),
            (["--plain-listen", "127.0.0.1:0"], "is for a server with TLS"),
            ([*pki.options_of(pair), "--plain-listen", "0.0.0.0:0"], "takes an address of this machine alone"),
    ):
        said = serve_fails(root, *args)
        assert message in said and ".;" not in said, args


def test_a_key_that_others_may_read_is_warned_of(served, tmp_path, pair, start):
    options = pki.put(pair, tmp_path)
    (tmp_path / "key.pem").chmod(0o644)
    assert "can be read by every user of this machine (mode 644)" in start(served[0], *options, ready=False).stderr()
    (tmp_path / "key.pem").chmod(0o640)
    assert "can be read" not in start(served[0], *options, ready=False).stderr()


# shows: security.md tls-required
def test_an_address_that_others_reach_wants_tls(served, pair, ca, start):
    warning = "without TLS: others on the network path"
    assert warning in start(served[0], host="0.0.0.0").stderr()
    assert warning not in start(served[0]).stderr()
    assert warning not in start(served[0], *pki.options_of(pair), host="0.0.0.0", ready=False).stderr()
    required = serve_fails(served[0], "--listen", "0.0.0.0:0", "--require-tls", "on")
    assert "--require-tls: others reach http://0.0.0.0:" in required and "--tls-cert" in required
    assert "others reach" in serve_fails(served[0], "--s3-listen", "0.0.0.0:0", "--require-tls", "on")
    start(served[0], "--require-tls", "on")
    start(served[0], *pki.options_of(pair), "--require-tls", "on", host="0.0.0.0", ready=False)


# -------------------------------------------------------------------------------------------- clients' certificates

@pytest.fixture(scope="module")
def closed_srv(served, ca, pair):
    with Server(served[0], *pki.options_of(pair), "--tls-client-ca", ca.cert, hash_threads=0,
                tls=ca.context(ca.sign("good-client", usage="clientAuth"))) as s:
        yield s


@pytest.mark.parametrize("version", VERSIONS)
# shows: security.md tls-client-certificates
def test_client_certificates(closed_srv, ca, tmp_path, version):
    def try_with(client):
        with closed_srv.conn(tls=ca.context(client, VERSIONS[version])) as c:
            return c.request("/healthz").status

    self_signed = pki.Authority(tmp_path, "self-signed")
    assert try_with(ca.sign("client", usage="clientAuth")) == 200
    for client, alert in ((ca.sign("expired", -1, "clientAuth"), "CERTIFICATE_EXPIRED"),
                          (pki.Authority(tmp_path, "other").sign("alien", usage="clientAuth"), "UNKNOWN_CA"),
                          (self_signed, "UNKNOWN_CA"), (ca.sign("no-client"), "BAD_CERTIFICATE"),
                          (None, "HANDSHAKE_FAILURE" if version == "1.2" else "CERTIFICATE_REQUIRED")):
        with pytest.raises(ssl.SSLError) as failed, closed_srv.conn(tls=ca.context(client, VERSIONS[version])) as c:
            c.fill()                # sends nothing: the alert could be lost to a reset
        assert alert in str(failed.value).upper().replace(" ", "_"), (client and client.cert, str(failed.value))


# --------------------------------------------------------------------------------------------------------- reload

def serial_of(server, ca):
    """The serial number of the certificate that a new connection gets."""
    with server.conn(tls=ca.context()) as c:
        return c.sock.getpeercert()["serialNumber"]


def serial_in(pair):
    return pki.openssl("x509", "-in", pair.cert, "-noout", "-serial").strip().partition("=")[2]


def expiry_in(pair):
    text = pki.openssl("x509", "-in", pair.cert, "-noout", "-enddate").strip().partition("=")[2]
    return calendar.timegm(time.strptime(text, "%b %d %H:%M:%S %Y GMT"))


def expiry_shown(server):
    return server.gauge("tensord_tls_certificate_expiry_timestamp_seconds")


def test_sighup_reads_the_certificate_again(served, tmp_path, ca, pair, start):
    second = ca.sign("second", days=20)
    s = start(served[0], *pki.put(pair, tmp_path), tls=ca.context())
    with s.conn() as old:
        assert old.request("/healthz").status == 200 and expiry_shown(s) == expiry_in(pair)
        pki.put(second, tmp_path)
        s.hup()
        s.wait_for(lambda: serial_of(s, ca) == serial_in(second), "the new certificate", every=0.1)
        s.wait_for(lambda: expiry_shown(s) == expiry_in(second), "its expiry")
        assert old.request("/healthz").status == 200
    (tmp_path / "key.pem").write_bytes(pair.key.read_bytes())       # does not fit
    s.hup()
    s.wait_for(lambda: "is not that of the certificate" in s.stderr(), "the fault in the log")
    assert serial_of(s, ca) == serial_in(second) and expiry_shown(s) == expiry_in(second)


# shows: security.md tls-bad-pair
def test_changed_files_are_noticed(served, tmp_path, ca, pair, start):
    """As Kubernetes changes a mounted Secret: by a symlink of a directory. A fault is reported once."""
    second = ca.sign("second-of-secret")
    for name, of in (("..1", pair), ("..2", second)):
        (tmp_path / name).mkdir()
        pki.put(of, tmp_path / name)
    (tmp_path / "..3").mkdir()
    (tmp_path / "..3/cert.pem").write_text("-----BEGIN CERTIFICATE-----\nbroken\n-----END CERTIFICATE-----\n")
    shutil.copy(second.key, tmp_path / "..3/key.pem")

    def point_to(name):
        (tmp_path / "new").symlink_to(name)
        os.rename(tmp_path / "new", tmp_path / "..data")

    point_to("..1")
    s = start(served[0], "--tls-cert", tmp_path / "..data/cert.pem", "--tls-key", tmp_path / "..data/key.pem",
              tls=ca.context())
    point_to("..2")
    s.wait_for(lambda: serial_of(s, ca) == serial_in(second), "the new certificate", timeout=10, every=0.2)
    point_to("..3")
    s.wait_for(lambda: "since the new one has a fault" in s.stderr(), "the fault in the log", timeout=10)
    time.sleep(2.2)                                                 # two more looks
    assert s.stderr().count("since the new one has a fault") == 1
    assert serial_of(s, ca) == serial_in(second)


# shows: security.md tls-reload
def test_a_hundred_reloads_under_load(served, tmp_path, ca, pair, start):
    root, data = served
    pairs = [pair, ca.sign("turn", days=3)]
    s = start(root, *pki.put(pair, tmp_path), tls=ca.context())
    stop, failures, done = threading.Event(), [], [0, 0]

    def load(i, keeps):
        try:
            while not stop.is_set():
                with s.conn(tls=context) as c:
                    for _ in range(20 if keeps else 1):
                        r = c.request(FILE, [("Range", "bytes=0-99999")])
                        assert r.status == 206 and r.body == data[:100000]
                        done[keeps] += 1
        except (AssertionError, OSError, Incomplete) as e:
            failures.append(e)

    context = ca.context()
    threads = [threading.Thread(target=load, args=(i, i % 2)) for i in range(4)]
    for t in threads:
        t.start()
    for i in range(1, 101):
        pki.put(pairs[i % 2], tmp_path)
        s.hup()
        s.wait_for(lambda i=i: s.stderr().count("cert.pem\" again") == i, f"reload {i}", every=0.005)
    stop.set()
    for t in threads:
        t.join(30)
    assert not failures and min(done) > 20, (failures[:1], done)
    assert "has a fault" not in s.stderr()


def test_a_certificate_that_ends_is_warned_of(served, tmp_path, ca, start):
    s = start(served[0], *pki.put(ca.sign("soon", days=13), tmp_path), ready=False)
    assert 'cert.pem" expires at ' in s.stderr()
    assert re.search(r'read the certificate ".*cert.pem": it is for localhost, 127\.0\.0\.1, until 20', s.stderr())
    pki.put(ca.sign("past", days=-1), tmp_path)
    s.hup()
    s.wait_for(lambda: "clients refuse it from now on" in s.stderr(), "the error")
    pki.put(ca.sign("long", days=15), tmp_path)
    s.hup()
    s.wait_for(lambda: s.stderr().count('cert.pem" again') == 2, "the reload")
    assert s.stderr().count("expires at") == 1


def test_without_tls_there_is_no_expiry(served, start):
    names = {name for name, _, _ in start(served[0]).metrics()[2]}
    assert "tensord_ready" in names and not any("tls" in name for name in names)


# --------------------------------------------------------------------------------------------------------- health

def test_health_over_https(served, tls_srv, ca, pair, tmp_path, start):
    url = f"https://localhost:{tls_srv.port}"
    assert run("health", url, "--ca", ca.cert)[0] == 0
    assert run("health", f"https://127.0.0.1:{tls_srv.port}/healthz", f"--ca={ca.cert}") == (0, "200 ok\n", "")
    other = pki.Authority(tmp_path, "stranger")
    expired = start(served[0], *pki.options_of(ca.sign("expired-server", -1)), ready=False)
    elsewhere = start(served[0], *pki.options_of(ca.sign("elsewhere", names="DNS:elsewhere.test")), ready=False)
    for args, message in (([url], "an authority that is not trusted here; name the authority with --ca FILE"),
                          ([url, "--ca", other.cert], "an authority that is not in the file of --ca"),
                          ([f"https://localhost:{expired.port}", "--ca", ca.cert], "its certificate has expired"),
                          ([f"https://localhost:{elsewhere.port}", "--ca", ca.cert],
                           'its certificate is for other names than "localhost"'),
                          ([f"http://localhost:{tls_srv.port}"], "answered 400"),
                          ([url, "--ca", tmp_path / "none"], "No such file"),
                          ([url_of(tls_srv, "without TLS").replace("http:", "https:"), "--ca", ca.cert],
                           "is this a port for http://?")):
        code, _, err = run("health", *args)
        assert code == 1 and message in err, (args, err)


def test_health_of_the_server_that_the_environment_describes(tls_srv, closed_srv, ca, pair):
    """As the image's HEALTHCHECK asks: the certificate need not be for the loopback address."""
    def health(**env):
        return run("health", "--local", env={f"TENSORD_{k}": str(v) for k, v in env.items()})

    plain = url_of(tls_srv, "without TLS").removeprefix("http://")
    assert health(LISTEN=f"0.0.0.0:{tls_srv.port}", TLS_CERT=pair.cert)[0] == 0
    assert health(LISTEN=plain)[0] == 0
    assert health(LISTEN="x:1", PLAIN_LISTEN=plain, TLS_CERT=pair.cert)[0] == 0
    code, _, err = health(LISTEN=f":{tls_srv.port}", TLS_CERT=ca.cert)
    assert code == 1 and "the server has another certificate" in err
    code, _, err = health(LISTEN=f":{closed_srv.port}", TLS_CERT=pair.cert)
    assert code == 1 and "asks for a certificate" in err and "--plain-listen" in err
    code, _, err = health(LISTEN=f":{tls_srv.port}")
    assert code == 1 and "answered 400; set TENSORD_TLS_CERT or TENSORD_PLAIN_LISTEN" in err
    code, _, err = run("health")
    assert code == 2 and "--local" in err and "health --local" in run("health", "--help")[1]
    assert health(LISTEN="x")[0] == 2 and run("health", "--local", "http://127.0.0.1:1")[0] == 2


# -------------------------------------------------------------------------------------------- answers that end early

@pytest.fixture
def big(tmp_path, ca, pair, start):
    """A server of a file that no socket holds as a whole, the file, and its content."""
    root = tmp_path / "big"
    write_by_hand(root / "m/model.safetensors", [tensor("w", "U8", [BIG])])
    age(root)
    path = root / "m/model.safetensors"
    return start(root, *pki.options_of(pair), rescan="0", tls=ca.context()), path, path.read_bytes()


def begin(server, **kw):
    """Ask for the file, and return the connection and the head of the answer."""
    c = server.conn(rcvbuf=1 << 16, **kw)
    c.send(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % FILE.encode())
    return c, c.read_head(FILE)


def rest_of(c, head):
    with pytest.raises(Incomplete) as e:
        c.read_exact(head.length, head)
    return e.value.body


# shows: security.md tls-file-changes
def test_a_file_that_is_truncated_while_it_is_sent(big):
    s, path, data = big
    c, head = begin(s)
    with c:
        os.truncate(path, 4096)
        body = rest_of(c, head)
    assert data.startswith(body) and len(body) < BIG
    assert s.get("/healthz").status == 200


# shows: security.md tls-file-changes
def test_a_file_that_is_changed_while_it_is_sent(big):
    s, path, data = big
    c, head = begin(s)
    with c:
        with open(path, "r+b") as f:
            f.seek(-100, os.SEEK_END)
            f.write(b"x" * 100)
        rest_of(c, head)
    assert s.get("/healthz").status == 200


def received_bytes(sock):
    """All bytes that the socket has received, those of TLS included (tcpi_bytes_received of linux/tcp.h)."""
    return struct.unpack_from("Q", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136), 128)[0]


def test_bytes_of_a_cut_answer_are_counted_fairly(big):
    """The access log has no more than the client's machine has received, and nearly all of it."""
    s, _, _ = big
    c, head = begin(s)
    with c:
        c.read_exact(5 << 20, head)
        c.sock.settimeout(5)
        last = -1
        while last != (last := received_bytes(c.sock)):     # until its queue is full
            time.sleep(0.2)
    line = next(line for line in s.whole_log().splitlines() if "model.safetensors" in line)
    sent = int(re.search(r" sent=(\d+)", line)[1])
    assert last * 0.99 - 4096 <= sent <= last < BIG, (sent, last, line)


def test_a_drain_lets_answers_end(big):
    s, _, data = big
    c, head = begin(s)
    with c:
        s.term()
        s.wait_for(lambda: "draining" in s.stderr(), "draining")
        assert c.read_exact(head.length, head) == data
    assert s.wait_exit() == 0
