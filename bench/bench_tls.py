"""Measures page-cached throughput over TLS 1.3: tensord beside nginx, with one certificate and one cipher."""

import http.client
import os
import ssl
import subprocess

import bench_fixture
import bench_servers
import bench_throughput
from bench_load import Load, disturbed_note
from bench_report import Targets, bytes_text, connections_text
from bench_servers import BenchError

CIPHER = "TLS_AES_128_GCM_SHA256"
SIZES = [1 << 20, 16 << 20, 256 << 20]
CONNECTIONS = [1, 8]


class NginxTls(bench_servers.Nginx):
    """nginx as for plain HTTP (without sendfile, which it cannot use here), two workers."""

    listen = " ssl"

    def __init__(self, work, fixture, binary, pair):
        super().__init__(work, fixture, binary)
        self.settings = ('ssl_certificate "%s"; ssl_certificate_key "%s"; ssl_protocols TLSv1.3; '
                         "ssl_conf_command Ciphersuites %s;" % (*pair, CIPHER))


class TensordTls(bench_servers.Tensord):
    def __init__(self, work, fixture, binary, pair):
        super().__init__(work, fixture, binary, options=["--tls-cert", pair[0], "--tls-key", pair[1]])

    def wait_ready(self):
        self.wait_for(self.read_port, "listening")
        self.wait_for(lambda: get(self.port, "/readyz")[0] == 200, "ready")


def make_pair(work):
    """Makes a certificate on P-256. Returns the paths of the certificate and the key."""
    cert, key = os.path.join(work, "cert.pem"), os.path.join(work, "key.pem")
    run = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                          "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=bench"],
                         capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise BenchError("openssl made no certificate: %s" % run.stderr.strip())
    return cert, key


def get(port, path, headers=None):
    """Returns (status, cipher, body)."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    try:
        connection.request("GET", path, headers=headers or {})
        cipher = connection.sock.cipher()[0]
        answer = connection.getresponse()
        return answer.status, cipher, answer.read()
    except OSError:
        return 0, "", b""
    finally:
        connection.close()


def check(server, load):
    """Checks that the server sends the file's bytes with the cipher, and that the client notices a wrong answer."""
    path, size, offset = server.target(load.kind)
    for first in (0, size // 2, size - 100000):
        status, cipher, body = get(server.port, path, {"Range": "bytes=%d-%d" % (first, first + 99999)})
        with open(server.fixture.path, "rb") as f:
            f.seek(offset + first)
            if status != 206 or body != f.read(100000) or cipher != CIPHER:
                raise BenchError("%s: a wrong answer: %d, %s" % (server.name, status, cipher))
    wrong = subprocess.run(load.command(server, 4096, 1, ["--requests", 1, "--path", "/none"]), capture_output=True,
                           text=True, check=False)
    if '"errors":1' not in wrong.stdout:
        raise BenchError("tls_load takes an error for an answer: %s" % wrong.stdout)


def run(client, work, fixture, options, congestion):
    load = Load(client, options.path, options.client_threads, "copy")
    pair = make_pair(work)
    servers = [NginxTls(work, fixture, options.nginx, pair), TensordTls(work, fixture, options.tensord, pair)]
    sizes = SIZES[:1] if options.quick else SIZES
    cells = [(size, n) for size in sizes for n in CONNECTIONS if size <= fixture.tensor_bytes]
    names = [s.name for s in servers]
    bench_fixture.fill_cache(fixture.path)
    try:
        for server in servers:
            server.start()
            check(server, load)
            load.run(server, 0, 1, ["--requests", 1])
        samples = bench_throughput.measure(load, servers, cells, options.rounds, options.duration, not options.quick)
    finally:
        for server in servers:
            server.stop()
    rows = bench_throughput.summarize(samples, names)
    targets = Targets()
    for r in rows:
        if r["server"] == "tensord" and r["range_bytes"] >= 1 << 20:
            cell = "%s, %s" % (bytes_text(r["range_bytes"]), connections_text(r["connections"]))
            targets.at_least("rate / nginx, " + cell, r["rate_vs_nginx"], 1.0)
    note = disturbed_note([s for cell in samples.values() for of in cell.values() for s in of])
    about = ["TLS 1.3, %s, a certificate on P-256, for both; congestion control %s" % (CIPHER, congestion),
             "one page-cached safetensors file, %s; ranges at random 4 KiB aligned offsets; the client (OpenSSL) "
             "decrypts and drops them, a thread for each connection" % bytes_text(fixture.tensor_bytes),
             "%d interleaved rounds of %g s; every number is a median over the rounds, every ratio the median of the "
             "rounds' ratios" % (options.rounds, options.duration)]
    return {"mode": "tls", "title": "TLS, page-cached, %s" % congestion, "about": about + ([note] if note else []),
            "table": bench_throughput.rate_table(rows, names), "targets": targets, "rows": rows,
            "congestion": congestion,
            "samples": [{"range_bytes": c[0], "connections": c[1], "servers": v} for c, v in samples.items()]}
