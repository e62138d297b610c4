"""Pulls from servers that redirect, in a network namespace that has public and private addresses. Run by
test_pull.py::test_where_redirects_may_lead, which says what has to come of each; by hand as

    unshare --map-root-user --net .venv/bin/python tests/interop/redirects.py DIR

DIR is an empty directory. It prints an object: name of a case -> [exit code, standard error].
"""
import json
import os
import ssl
import subprocess
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "http")]

import pki  # noqa: E402
from fake_hub import FakeHub  # noqa: E402
from harness import tensord_binary  # noqa: E402

# RFC 5737's and RFC 3849's addresses for examples count as public, as all do that are not known to be otherwise
PUBLIC, OTHER, PRIVATE, LOOPBACK, LINK_LOCAL = "203.0.113.1", "203.0.113.2", "10.1.1.1", "127.0.0.1", "169.254.169.254"

# name: (host of the URL, host that it redirects to, digests that the list has, what is redirected)
CASES = {
    "public to public": (PUBLIC, OTHER, "lfs", "file"),
    "public to public, no digest": (PUBLIC, OTHER, None, "file"),
    "public to itself, no digest": (PUBLIC, PUBLIC, None, "file"),
    "public to public, list": (PUBLIC, OTHER, "lfs", "api"),
    "public to loopback": (PUBLIC, LOOPBACK, "lfs", "file"),
    "public to a name of loopback": (PUBLIC, "localhost", "lfs", "file"),
    "public to private": (PUBLIC, PRIVATE, "lfs", "file"),
    "public to unspecified": (PUBLIC, "0.0.0.0", "lfs", "file"),
    "public to mapped loopback": (PUBLIC, "[::ffff:127.0.0.1]", "lfs", "file"),
    "public to loopback in digits": (PUBLIC, "2130706433", "lfs", "file"),
    "private to loopback": (PRIVATE, LOOPBACK, "lfs", "file"),
    "private to public": (PRIVATE, PUBLIC, "lfs", "file"),
    "private to link-local": (PRIVATE, LINK_LOCAL, "lfs", "file"),
    "public to link-local": (PUBLIC, LINK_LOCAL, "lfs", "file"),
    "link-local": (LINK_LOCAL, LINK_LOCAL, "lfs", None),
}


def run(out, urls, *options, env=None):
    command = [tensord_binary(), "pull", urls, "org/m", "-o", out, "--retry-for", "1s", *options]
    done = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, timeout=60,
                          env={**os.environ, **(env or {})})
    return [done.returncode, done.stderr]


def redirect(hub, what, base):
    """Let the hub redirect requests for files, or its interface, to the same paths with ?on at the base URL."""
    def handle(handler, name):
        if handler.path.endswith("on"):
            return getattr(FakeHub, what)(hub, handler, name)
        mark = "&on" if "?" in handler.path else "?on"
        handler.answer(302, b"", Location=base + handler.path + mark)
    setattr(hub, what, handle)


def plain(out):
    """Yield the cases above. One server listens at all addresses, so nothing but the rule stops a redirect."""
    for name, (first, second, digests, what) in CASES.items():
        with FakeHub({"a.txt": b"text"}, digests, host="0.0.0.0") as hub:
            port = hub.server.server_port
            if what:
                redirect(hub, what, f"http://{second}:{port}")
            yield name, run(out / name, f"http://{first}:{port}")


def secure(out):
    """Yield cases with TLS: without a digest another host is allowed, but never http."""
    authority = pki.Authority(out)
    pair = authority.sign("server", names=f"IP:{PUBLIC},IP:{OTHER}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    files, trust = {"a.txt": b"text"}, ("--cacert", authority.cert)
    with FakeHub(files, None, host="0.0.0.0", tls=context) as hub, FakeHub(files, None, host="0.0.0.0") as http:
        port = hub.server.server_port
        redirect(hub, "file", f"https://{OTHER}:{port}")
        yield "https to https, no digest", run(out / "s1", f"https://{PUBLIC}:{port}", *trust)
        redirect(http, "file", f"https://{OTHER}:{port}")
        hub.file = lambda h, name: h.answer(302, b"", Location=f"http://{PUBLIC}:{http.server.server_port}{h.path}&on")
        # the last request could use the connection of the first one
        yield "http to https to http", run(out / "s2", f"http://{PUBLIC}:{http.server.server_port}", *trust)


def proxied(out, proxy_host, kind, other_kind):
    """Yield redirects from a public host behind a proxy, which answers in place of all hosts: to another public host,
    and to a server on this host beside the proxy."""
    with FakeHub({"a.txt": b"text"}, host=proxy_host) as proxy, FakeHub({"a.txt": b"text"}, host=LOOPBACK) as local:
        env = {"http_proxy": proxy.url, "no_proxy": LOOPBACK}
        for name, base in ((f"{kind} to proxied", f"http://{OTHER}"), (f"{kind} to {other_kind}", local.url)):
            proxy.file = lambda h, name, base=base: FakeHub.file(proxy, h, name) if OTHER in h.path else \
                h.answer(302, b"", Location=base + "/org/m/resolve/main/a.txt")
            yield name, run(out / name, f"http://{PUBLIC}", env=env)


def main():
    out = Path(sys.argv[1])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (PUBLIC, OTHER, PRIVATE, LINK_LOCAL):
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    print(json.dumps(dict([*plain(out), *secure(out),
                           *proxied(out, PRIVATE, "proxied", "private, without the proxy"),
                           *proxied(out, LOOPBACK, "proxied by loopback", "loopback")])))


if __name__ == "__main__":
    main()
