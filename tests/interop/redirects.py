"""Pulls from servers that redirect, in a network namespace that has public and private addresses, and from a second
namespace behind a veth pair. Run by test_pull_attacks.py::test_where_redirects_may_lead, which says what has to come of
each; by hand as

    unshare --map-root-user --net .venv/bin/python tests/interop/redirects.py DIR

DIR is an empty directory. It prints an object: name of a case -> [exit code, standard error].
"""
import concurrent.futures
import contextlib
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
from history import Namespace  # noqa: E402

# RFC 5737's and RFC 3849's addresses for examples count as public, as all do that are not known to be otherwise
PUBLIC, OTHER, PUBLIC6 = "203.0.113.1", "203.0.113.2", "2001:db8:1::1"  # of the second namespace
PRIVATE, LOOPBACK, LINK_LOCAL = "10.1.1.1", "127.0.0.1", "169.254.169.254"  # of this one, as are these:
OWN, OWN_TOO, OWN6 = "198.51.100.1", "198.51.100.2", "2001:db8:2::1"
# a network that both are in: the end here, and two hosts there
NEAR, NEIGHBOUR, NEIGHBOUR_TOO = "192.0.2.1", "192.0.2.2", "192.0.2.3"
NEAR6, NEIGHBOUR6 = "2001:db8:3::1", "2001:db8:3::2"

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
    "public to public, IPv6": (PUBLIC, f"[{PUBLIC6}]", "lfs", "file"),
    "public to own": (PUBLIC, OWN, "lfs", "file"),
    "public to own, list": (PUBLIC, OWN, "lfs", "api"),
    "public to own, IPv6": (PUBLIC, f"[{OWN6}]", "lfs", "file"),
    "public to own, mapped": (PUBLIC, f"[::ffff:{OWN}]", "lfs", "file"),
    "public to own, translated": (PUBLIC, "[64:ff9b::c633:6401]", "lfs", "file"),
    "public to own, 6to4": (PUBLIC, "[2002:c633:6401::1]", "lfs", "file"),
    "public to the host's end of a network": (PUBLIC, NEAR, "lfs", "file"),
    "public to a neighbour": (PUBLIC, NEIGHBOUR, "lfs", "file"),
    "public to a neighbour, IPv6": (PUBLIC, f"[{NEIGHBOUR6}]", "lfs", "file"),
    "public to a neighbour, mapped": (PUBLIC, f"[::ffff:{NEIGHBOUR}]", "lfs", "file"),
    "neighbour to neighbour": (NEIGHBOUR, NEIGHBOUR_TOO, "lfs", "file"),
    "neighbour to public": (NEIGHBOUR, PUBLIC, "lfs", "file"),
    "neighbour to own": (NEIGHBOUR, OWN, "lfs", "file"),
    "neighbour to the host's end of the network": (NEIGHBOUR, NEAR, "lfs", "file"),
    "neighbour to loopback": (NEIGHBOUR, LOOPBACK, "lfs", "file"),
    "own to itself": (OWN, OWN, "lfs", "file"),
    "own to own": (OWN, OWN_TOO, "lfs", "file"),
    "own to loopback": (OWN, LOOPBACK, "lfs", "file"),
    "private to own": (PRIVATE, OWN, "lfs", "file"),
    "private to a neighbour": (PRIVATE, NEIGHBOUR, "lfs", "file"),
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


@contextlib.contextmanager
def everywhere(there, *arguments, **options):
    """Let hubs listen at all addresses of both namespaces, at one port: nothing but the rule stops a redirect."""
    with there.submit(FakeHub, *arguments, host="::", **options).result() as far, \
            FakeHub(*arguments, host="::", port=far.server.server_port, **options) as near:
        yield [far, near], far.server.server_port


def plain(out, there):
    """Yield the cases above."""
    for name, (first, second, digests, what) in CASES.items():
        with everywhere(there, {"a.txt": b"text"}, digests) as (hubs, port):
            if what:
                for hub in hubs:
                    redirect(hub, what, f"http://{second}:{port}")
            yield name, run(out / name, f"http://{first}:{port}")


def secure(out, there):
    """Yield cases with TLS: without a digest another host is allowed, but never http."""
    authority = pki.Authority(out)
    pair = authority.sign("server", names=f"IP:{PUBLIC},IP:{OTHER}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    files, trust = {"a.txt": b"text"}, ("--cacert", authority.cert)
    with there.submit(FakeHub, files, None, host="::", tls=context).result() as hub, \
            there.submit(FakeHub, files, None, host="::").result() as http:
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


def add_addresses(pair):
    """Give both namespaces their addresses, and routes to each other."""
    there = f"nsenter --net=/proc/{os.getpid()}/fd/{pair.fd} ip"
    commands = [f"ip address add {address} dev lo" for address in (PRIVATE, LINK_LOCAL, OWN, OWN_TOO, OWN6)]
    commands += [f"{there} address add {address} dev lo" for address in (PUBLIC, OTHER, PUBLIC6)]
    commands += [f"ip address add {address} dev {pair.link}" for address in (f"{NEAR}/24", f"{NEAR6}/64 nodad")]
    commands += [f"{there} address add {address} dev inside"
                 for address in (f"{NEIGHBOUR}/24", f"{NEIGHBOUR_TOO}/24", f"{NEIGHBOUR6}/64 nodad")]
    commands += [f"ip route add {address} via {NEIGHBOUR}" for address in (PUBLIC, OTHER)]
    commands += [f"ip route add {PUBLIC6} via {NEIGHBOUR6}"]
    for command in ["ip link set lo up", f"{there} link set lo up", *commands]:
        subprocess.run(command.split(), check=True)


def main():
    out = Path(sys.argv[1])
    with Namespace() as pair, concurrent.futures.ThreadPoolExecutor(1) as there:
        add_addresses(pair)
        there.submit(pair.enter).result()
        show(out, there)


def show(out, there):
    print(json.dumps(dict([*plain(out, there), *secure(out, there),
                           *proxied(out, PRIVATE, "proxied", "private, without the proxy"),
                           *proxied(out, LOOPBACK, "proxied by loopback", "loopback")])))


if __name__ == "__main__":
    main()
