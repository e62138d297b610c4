"""The tools that the tests of `tensord pull` share: to run the command, and to look at its files."""
import contextlib
import json
import os
import pty
import select
import socket
import socketserver
import subprocess
import threading
import time
from pathlib import Path

from harness import pattern, tensord_binary

MIB = 1 << 20
QUICK = ("--retry-for", "3s")


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and k != "TENSORD_TOKEN"}
    env.setdefault("ASAN_OPTIONS", "detect_leaks=1")
    return {**env, **more}


def start(url, *args, model="org/m", env=None, **kw):
    return subprocess.Popen([tensord_binary(), "pull", url, model, *map(str, args)], text=True,
                            env=environment(**(env or {})), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)


def outputs_of(p, code, timeout):
    """Return what a command prints until it ends, which must be with this exit code."""
    try:
        out, err = p.communicate(timeout=timeout)
    finally:
        p.kill()
    assert p.returncode == code, f"exit code {p.returncode}\n{out}\n{err}"
    assert "Sanitizer" not in err and "runtime error" not in err, err
    return out, err


def pull(url, *args, code=0, timeout=60, **kw):
    """Run the command with --json. Return the object and standard error."""
    out, err = outputs_of(start(url, *args, "--json", **kw), code, timeout)
    return json.loads(out) if code != 2 else None, err


def shown_on_terminal(args, wanted, env=None):
    """Run a command on a terminal of its own until the terminal shows these bytes, and return all that it shows."""
    ours, theirs = pty.openpty()
    p = subprocess.Popen([str(tensord_binary()), *map(str, args)], stdout=subprocess.DEVNULL, stderr=theirs, env=env)
    os.close(theirs)
    seen = b""
    while wanted not in seen:
        ready, _, _ = select.select([ours], [], [], 60)
        assert ready, "no line"
        seen += os.read(ours, 65536)
    p.kill()
    p.wait()
    os.close(ours)
    return seen


def tree_of(directory):
    """Return path -> bytes of all files, hidden ones too, without those that a running pull removes during the call."""
    root, found = Path(directory), {}
    for path in root.rglob("*") if root.is_dir() else []:
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                found[str(path.relative_to(root))] = path.read_bytes()
    return found


def staging(out):
    """Return where the files are before a directory that was not there appears."""
    return Path(out).parent / f".{Path(out).name}.tensord-pull"


def big(size=9 * MIB + 12345, seed=1):
    """Return content that by default is fetched by several connections, since it has 8 MiB or more."""
    return pattern(size, seed)


def check(hub, out, *urls, **kw):
    """Pull from the hub, and compare all files."""
    report, err = pull(",".join([hub.url, *urls]), "-o", out, *QUICK, **kw)
    assert tree_of(out) == hub.files
    return report, err


def fails(hub, out, *words, args=QUICK):
    """A pull that must fail: the file does not get its name. Return standard error."""
    report, err = pull(hub.url, "-o", out, *args, code=1)
    assert not report["complete"] and report["error"] in err
    assert all(word in err for word in words), err
    assert not Path(out).exists() and "model.safetensors" not in tree_of(staging(out))
    return err


class PacedRelay(socketserver.ThreadingTCPServer):
    """Passes connections on to a port of this machine. pace: the bytes per second of each connection's answers, None:
    as they come. `passed` counts the bytes of answers."""
    daemon_threads, allow_reuse_address, request_queue_size = True, True, 64

    def __init__(self, to, pace=None):
        super().__init__(("127.0.0.1", 0), None)
        self.to, self.pace, self.passed, self.port = to, pace, 0, self.server_address[1]
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.shutdown()
        self.thread.join()
        self.server_close()

    def finish_request(self, request, client_address):
        with socket.create_connection(("127.0.0.1", self.to)) as server:
            asking = threading.Thread(target=self.copy, args=(request, server, lambda: None), daemon=True)
            asking.start()
            self.copy(server, request, lambda: self.pace)
            request.shutdown(socket.SHUT_RDWR)
            asking.join()

    def copy(self, source, sink, pace):
        """Copy until one side ends."""
        try:
            while some := source.recv(1 << 16):
                sink.sendall(some)
                self.passed += len(some) if pace() else 0
                time.sleep(len(some) / pace() if pace() else 0)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def handle_error(self, request, client_address):
        """Say nothing of clients that break off."""
