"""docs/systemd/tensord.service against systemd's own tools, and the server's side of sd_notify(3)."""
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from harness import REPO, Server, age, release_binary, tensor, write_by_hand
from publishing import PIECE, Repo

UNIT = REPO / "docs/systemd/tensord.service"


def analyze(*args):
    """Run systemd-analyze, and return all that it printed."""
    assert shutil.which("systemd-analyze"), "systemd-analyze is missing: scripts/deps.sh test installs Debian's systemd"
    p = subprocess.run(["systemd-analyze", *map(str, args)], capture_output=True, text=True, timeout=60,
                       env={**os.environ, "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""})
    assert p.returncode == 0, p.stdout + p.stderr
    return p.stdout + p.stderr


@pytest.fixture
def unit(tmp_path):
    """The unit with a program that exists here."""
    path = tmp_path / "tensord.service"
    path.write_text(UNIT.read_text().replace("/usr/local/bin/tensord", str(release_binary())))
    return path


def test_systemd_reads_the_unit_without_a_complaint(unit):
    assert analyze("verify", unit) == ""


# shows: security.md host-privileges
def test_the_settings_of_a_publisher(unit):
    """The settings of docs/run.md: systemd reads them, and makes the directory that is served."""
    text, = re.findall(r"^```ini\n(.*?)^```", (REPO / "docs/run.md").read_text(), re.MULTILINE | re.DOTALL)
    folders = re.search(r"StateDirectory=(.*)", text)[1].split()
    assert "tensord" in folders and re.search(r"serve %S/(\S+)$", text, re.MULTILINE)[1] in folders
    served = text.replace("/usr/local/bin/tensord", str(release_binary()))
    unit.write_text(unit.read_text().replace("[Install]", served.replace("[Service]\n", "") + "\n[Install]", 1))
    assert "tensord-models" in unit.read_text() and analyze("verify", unit) == ""


def test_the_exposure_is_small(unit):
    """0.0 is everything forbidden, 9.6 a unit without any setting. The document has the figure; releases of systemd
    differ a little."""
    found = re.search(r"exposure level for tensord\.service: ([0-9.]+)", analyze("security", "--offline=true", unit))
    assert float(found[1]) <= 2.0, found[0]
    documented = re.search(r"exposure level of ([0-9.]+)", (REPO / "docs/run.md").read_text())
    assert documented and abs(float(documented[1]) - float(found[1])) <= 0.5, found[0]


def calls_of(group, groups=None):
    """Return the names of the system calls of a group, such as @system-service, with those of the groups in it."""
    if not group.startswith("@"):
        return {group}
    lines = [line.strip() for line in analyze("syscall-filter", group).splitlines()]
    return set().union(*(calls_of(line) for line in lines if line and line != group and not line.startswith("#")))


def allowed_calls():
    allowed = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", UNIT.read_text(), re.MULTILINE):
        named = set().union(*(calls_of(group) for group in line.lstrip("~").split()))
        allowed = allowed - named if line.startswith("~") else allowed | named
    return allowed


def test_the_unit_allows_each_system_call_that_the_server_makes(tmp_path):
    """A server with leases, digests, indexes, both logs and writers is traced from its start to its end. (strace and
    systemd of Debian 12 do not know cachestat. Where it is refused, the server reads instead.)"""
    allowed = allowed_calls()
    assert "sendfile" in allowed and "mount" not in allowed and "setuid" not in allowed
    root, trace = tmp_path / "root", tmp_path / "calls"
    (tmp_path / "state").mkdir()
    write_by_hand(root / "m/model.safetensors", [tensor("w", "F32", [1024, 1024]), tensor("v", "F32", [4])])
    (root / "d").mkdir()
    (root / "d/train.jsonl").write_text('{"a":1}\n' * 100)
    for name in ("m", "d"):
        age(root / name)
    traced = tmp_path / "traced"
    traced.write_text(f'#!/bin/sh\nexec strace -D -f -c -U name -o "{trace}" "{release_binary()}" "$@"\n')
    traced.chmod(0o755)
    with Server(root, "--state-dir", tmp_path / "state", "--access-log", tmp_path / "log", "--publish", "local",
                access_log=None, binary=traced) as s:
        s.wait_hashed()
        s.wait_for(lambda: s.get("/datasets/d/rows?split=train").status == 200, "the index")
        for target in ("/models", "/models/m/tensors/w", "/models/m/files/model.safetensors", "/metrics",
                       "/models/m/shards/none/tp2/rank-0.safetensors", "/m/resolve/main/model.safetensors"):
            assert s.get(target).status == 200, target
        assert s.get("/models/m/tensors/w", [("Range", "bytes=0-3,8-9")]).status == 206
        assert s.post("/models/m/plans", {"engine": "none", "tp_size": 1}).status == 201
        repo, data = Repo(s.port, "org/m"), bytes(3 * PIECE)
        assert repo.piece(data, 0, 2 * PIECE - 1).status == 202
        assert repo.ask("POST", "/blobs", iter([data])).status == 201
        assert repo.push({"config.json": b"{}", "w.dat": data})[0].status == 201
        assert repo.put_file("x", b"1").status == 201 and repo.delete_file("x").status == 200
        assert repo.ask("DELETE").status == 204
        with open(root / "m/model.safetensors", "r+b") as file:     # breaks the lease
            file.write(b"\x00")
        s.post("/rescan", {})
        os.kill(s.pid, signal.SIGHUP)
        s.wait_for(lambda: "SIGHUP" in s.stderr(), "the scan")
    deadline = time.monotonic() + 20
    while not (trace.exists() and "total" in trace.read_text()):    # the tracer ends after the server
        assert time.monotonic() < deadline, "strace wrote nothing"
        time.sleep(0.05)
    made = {line.split()[-1] for line in trace.read_text().splitlines() if re.match(r"\s*\w+\s*$", line)}
    assert {"sendfile", "epoll_wait", "mmap", "openat2"} & made and len(made) > 30, sorted(made)
    assert not made - {"total", "syscall"} - allowed, sorted(made - allowed)


# shows: security.md host-privileges
def test_the_server_gives_up_new_privileges(tmp_path):
    """no_new_privs of proc(5), in every thread."""
    with Server(tmp_path) as s:
        states = [re.search(r"^NoNewPrivs:\s*(\d)$", (task / "status").read_text(), re.MULTILINE)[1]
                  for task in Path(f"/proc/{s.pid}/task").iterdir()]
        assert len(states) > 3 and set(states) == {"1"}


class Manager:
    """Systemd's side: a socket, and what came over it."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(20)
        self.heard = []

    def wait_for(self, pattern):
        """Receive until a message matches, and return the match."""
        deadline = time.monotonic() + 20
        while True:
            assert time.monotonic() < deadline, f"no {pattern} in {self.heard}"
            self.heard.append(self.socket.recv(4096).decode())
            found = re.fullmatch(pattern, self.heard[-1])
            if found:
                return found


@pytest.fixture
def manager(place):
    m = Manager(place / "notify")
    yield m
    m.socket.close()


def test_systemd_is_told_how_the_service_is(tmp_path, place, manager):
    """In the order of a service's life. A young file is published by the scan that SIGHUP asks for, before READY=1."""
    with Server(tmp_path, "--require-models", "1", ready=False, settle="3600", rescan="0",
                env={"NOTIFY_SOCKET": str(place / "notify"), "WATCHDOG_USEC": "600000"}) as s:
        manager.wait_for("STATUS=not ready: 0 of the 1 models? that .*")
        manager.wait_for("WATCHDOG=1")
        manager.wait_for("WATCHDOG=1")
        assert "READY=1" not in manager.heard and s.get("/readyz").status == 503
        write_by_hand(tmp_path / "a/model.safetensors", [tensor("w", "F32", [4])])
        age(tmp_path / "a", 7200)
        os.kill(s.pid, signal.SIGHUP)
        manager.wait_for("STATUS=ready: 1 model, 0 datasets, 1 file")
        assert "READY=1" not in manager.heard
        manager.wait_for("READY=1")
        assert s.get("/readyz").status == 200 and not any("RELOADING" in m for m in manager.heard)
        write_by_hand(tmp_path / "b/model.safetensors", [tensor("w", "F32", [4])])
        time.sleep(0.05)        # more than a tick of the kernel's clock: before, another write might leave the times
        before = time.monotonic()
        os.kill(s.pid, signal.SIGHUP)
        began = int(manager.wait_for(r"RELOADING=1\nMONOTONIC_USEC=(\d+)")[1]) / 1e6
        assert before <= began <= time.monotonic()
        manager.wait_for("READY=1")
        assert s.ids() == ["a", "b"]
        os.kill(s.pid, signal.SIGTERM)
        manager.wait_for("STOPPING=1")
        manager.wait_for("STATUS=draining: .*")
    assert manager.heard.count("READY=1") == 2
