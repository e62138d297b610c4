"""Ends tensord while a name server does not answer it. Run by
test_pull.py::test_a_resolver_that_is_silent_delays_no_end in a network and a mount namespace of its own; by hand as

    unshare --map-root-user --net --mount .venv/bin/python tests/interop/silent_resolver.py DIR pull|serve

DIR is an empty directory. It prints an object: exit code, seconds from SIGTERM to the end, standard error.
"""
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "http")]

from harness import tensord_binary  # noqa: E402

RESOLVER, PORT = "203.0.113.53", 8080           # RFC 5737's addresses for examples; the namespace has all ports free


def ask(port):
    """Ask for a model that is not here, as soon as the server is ready, so that it looks for its upstream."""
    conn, status = http.client.HTTPConnection("127.0.0.1", port, timeout=60), None
    while status != 200:
        try:
            conn.request("GET", "/readyz")
            answer = conn.getresponse()
            answer.read()
            status = answer.status
        except ConnectionRefusedError:
            conn.close()
            time.sleep(0.02)
    conn.request("GET", "/models/org/m", headers={"Tensord-Via": "0123456789abcdef"})   # so it waits for 2 s alone
    return conn


def main():
    folder, what = Path(sys.argv[1]), sys.argv[2]
    (folder / "resolv.conf").write_text(f"nameserver {RESOLVER}\noptions timeout:30 attempts:3\n")
    for command in (["ip", "link", "set", "lo", "up"], ["ip", "address", "add", f"{RESOLVER}/32", "dev", "lo"],
                    ["mount", "--bind", folder / "resolv.conf", "/etc/resolv.conf"]):
        subprocess.run(command, check=True)
    url, model = "http://nowhere.example", folder / "model"
    model.mkdir()
    args = ["pull", url, "org/m", "-o", folder / "out"] if what == "pull" else \
        ["serve", model, "--upstream", url, "--listen", f"127.0.0.1:{PORT}", "--drain-delay", "0", "--log-level",
         "warn"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.bind((RESOLVER, 53))
        resolver.settimeout(30)
        p = subprocess.Popen([tensord_binary(), *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            asked = ask(PORT) if what == "serve" else None       # stays open
            resolver.recv(512)                  # the question, which gets no answer
            begin = time.monotonic()
            p.send_signal(signal.SIGTERM)
            _, err = p.communicate(timeout=45)
        finally:
            p.kill()
        print(json.dumps({"code": p.returncode, "seconds": time.monotonic() - begin, "stderr": err}))
        if asked:
            asked.close()


if __name__ == "__main__":
    main()
