"""Starts clients: workers with an environment of their own, a proxy that cuts connections, and helpers to compare."""
import contextlib
import hashlib
import os
import re
import socket
import threading
from pathlib import Path

import harness
import warm_python
from json_process import JsonProcess

HERE = Path(__file__).resolve().parent
NEWEST = harness.REPO / ".venv/bin/python"
HUB0 = harness.REPO / ".venv-hub0/bin/python"
READERS = harness.REPO / ".venv-readers"


def quiet_environment(home, **more):
    """Return an environment without the user's token, proxy and cache, in which no client calls home."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "AWS_", "RUNAI_"))}
    env.update(HOME=str(home), HF_HOME=str(Path(home) / "hf"), HF_HUB_DISABLE_TELEMETRY="1", DO_NOT_TRACK="1",
               HF_HUB_DISABLE_UPDATE_CHECK="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TRANSFORMERS_VERBOSITY="error",
               AWS_EC2_METADATA_DISABLED="true", AWS_DEFAULT_REGION="us-east-1", OMP_NUM_THREADS="1",
               no_proxy="*")
    env.update(more)
    return env


class ClientError(Exception):
    """An exception in the client: `kinds` are the names of its class and of the classes above it."""

    def __init__(self, answer):
        super().__init__(answer["trace"])
        self.kinds, self.text = answer["error"], answer["text"]


class Worker(JsonProcess):
    """worker.py with one module of calls; methods are that module's functions."""

    def __init__(self, module, python=NEWEST, **env):
        home = harness.temporary_directory(self, "tensord-client-")
        words = warm_python.command() if python == NEWEST else [python]
        super().__init__([*words, HERE / "worker.py", module], quiet_environment(home, **env), home)

    def __getattr__(self, name):
        return lambda **args: self.call(name, args)

    def call(self, name, args):
        answer = self.ask({"call": name, "args": args})
        if "error" in answer:
            raise ClientError(answer)
        return answer["result"]


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def digests(folder):
    """Return path below folder -> SHA-256 of every regular file that is served: no hidden and no incomplete files."""
    folder = Path(folder)
    paths = (p.relative_to(folder) for p in sorted(folder.rglob("*")) if p.is_file())
    return {p.as_posix(): sha256(folder / p) for p in paths
            if not any(part.startswith(".") for part in p.parts) and not p.name.endswith(".incomplete")}


def wait_hashed(server, *ids, kind="models"):
    """Wait until the digests of all files of these repositories are known and shown in their trees."""
    def done():
        for repo in ids:
            r = server.get(f"/api/{kind}/{repo}/tree/main?recursive=true")
            if r.status != 200 or any("lfs" not in e for e in r.json() if e["type"] == "file"):
                return False
        return True
    server.wait_for(done, f"digests of {ids}", 30)


def s3_port(server):
    """Return the port of the second address that the server logs."""
    ports = re.findall(r"https?://127\.0\.0\.1:(\d+)", server.stderr())
    return int(next(p for p in ports if int(p) != server.port))


class CuttingProxy:
    """Passes connections on to a port. Ends the first `cuts` connections that send more than `after` bytes to the
    client, with a FIN, as a server or a middlebox that restarts does."""

    def __init__(self, port, after, cuts):
        self.port_behind, self.after, self.cuts = port, after, cuts
        self.asked, self.done_cuts, self.carried = bytearray(), 0, 0      # what clients sent; bytes sent to them
        self.guard = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()  # it must not accept from the descriptor, which another listener may get
        self.listener.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                threading.Thread(target=self.connect, args=(near,), daemon=True).start()

    def connect(self, near):
        with near, socket.create_connection(("127.0.0.1", self.port_behind)) as far, contextlib.suppress(OSError):
            threading.Thread(target=self.forward, args=(near, far), daemon=True).start()
            self.back(far, near)
            near.shutdown(socket.SHUT_RDWR)
            far.shutdown(socket.SHUT_RDWR)

    def forward(self, near, far):
        with contextlib.suppress(OSError):
            while data := near.recv(1 << 16):
                with self.guard:
                    self.asked += data
                far.sendall(data)
            far.shutdown(socket.SHUT_WR)

    def back(self, far, near):
        left = self.after
        while data := far.recv(1 << 16):
            is_cut = len(data) > left and self.take_cut()
            near.sendall(data[:left] if is_cut else data)
            with self.guard:
                self.carried += left if is_cut else len(data)
            if is_cut:
                return
            left = max(0, left - len(data))

    def take_cut(self):
        with self.guard:
            if self.done_cuts == self.cuts:
                return False
            self.done_cuts += 1
            return True
