"""Files are parsed in processes that can do nothing else. Parsers that a hostile file has taken over are those of
tensord-hostile (tests/kit/hostile_parsers.c): it parses as tensord does, but for files whose names begin with one of a
few words. It is a release build, since no sanitizer can live in the sandbox."""
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness import Server, age, is_sanitized, release_binary, tensor, tensord_binary, write_by_hand

CALL = r"the parser made a system call that it may not make and was stopped \(signal 31\)"
# The parser's misdeed, and the reason that the file's owner gets.
HOSTILE = {
    "crash": r"the parser crashed \(signal 11, Segmentation fault\)",
    "abort": r"the parser crashed \(signal 6, Aborted\)",
    "leave": r"the parser ended by itself \(exit code 7\)",
    "spin": r"the parser needed more than 1 s and was stopped \(--parse-timeout\)",
    "eat": r"the parser stopped: out of memory; its process may take 134217728 bytes of memory \(--parse-memory\)",
    "lie": r"the parser's process gave an answer that cannot be right",  # words: quoted
    "socket": CALL, "open": CALL, "stat": CALL, "exec": CALL, "fork": CALL, "ptrace": CALL, "kill": CALL,
    "mapcode": CALL, "makecode": CALL, "share": CALL,
}
REASONS = {"crashed": 3, "timeout": 1, "memory": 1, "wrong_answer": 1, "forbidden_call": 10, "killed": 0}


def hostile_binary():
    path = release_binary().with_name("tensord-hostile")
    assert os.access(path, os.X_OK), f"{path} is missing: build the target tensord-hostile beside tensord"
    return path


def model(root, name):
    """A model of one file in a directory of its own."""
    write_by_hand(root / name / f"{name}-x.safetensors", [tensor("w", "F32", [4, 4]), tensor("v", "I8", [3])])
    age(root / name)


def restarts(s):
    _, _, samples = s.metrics()
    return {labels["reason"]: int(v) for name, labels, v in samples if name == "tensord_parse_workers_restarted_total"}


def parsers(s):
    """The pids of the server's processes that parse."""
    path = Path(f"/proc/{s.pid}/task")
    found = [int(pid) for task in path.iterdir() for pid in (task / "children").read_text().split()]
    return [pid for pid in found if b"__parse-worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def status_of(pid):
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


# shows: security.md content-parser-attacks
def test_a_hostile_file_costs_itself_and_nothing_else(start, tmp_path):
    """Each parser that crashes, spins, eats memory, sends a wrong answer or makes a forbidden call: its file is refused
    with a reason
    that its owner understands, its neighbours are listed, no scan tries it again, and standard error has log lines
    alone."""
    for word in HOSTILE:
        model(tmp_path, f"{word}-")
        model(tmp_path, f"{word}a-good")
    began = time.monotonic()
    s = start(tmp_path, "--parse-timeout", "1", "--parse-memory", 128 << 20, binary=hostile_binary(), rescan="0")
    assert time.monotonic() - began < 10, "one file takes its second, the others none"
    for word, wanted in HOSTILE.items():
        (error,) = s.json(f"/models/{word}-")["errors"]
        assert error["file"] == f"{word}--x.safetensors" and re.fullmatch(wanted, error["message"]), error
        good = s.json(f"/models/{word}a-good")
        assert good["errors"] == [] and good["checkpoints"][0]["tensor_count"] == 2, good
    told = restarts(s)
    assert {reason: told[reason] for reason in REASONS} == REASONS
    model(tmp_path, "new")
    assert s.post("/rescan", b"").status == 200
    assert s.json("/models/new")["checkpoints"][0]["tensor_count"] == 2
    assert restarts(s) == told, "a refused file is not parsed again"
    for line in s.stderr().splitlines():
        assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z (info|warn) ", line), line


def test_a_file_whose_disk_is_waited_for_is_tried_again(start, tmp_path):
    """A parser that has used no processor time is not to blame, and nor is its file."""
    model(tmp_path, "wait-")
    model(tmp_path, "good")
    s = start(tmp_path, "--parse-timeout", "1", binary=hostile_binary(), rescan="0")
    (error,) = s.json("/models/wait-")["errors"]
    assert "waited for the file's disk for 1 s" in error["message"] and "tries again" in error["message"], error
    assert s.json("/models/good")["errors"] == []
    told = restarts(s)["timeout"]
    assert s.post("/rescan", b"").status == 200
    assert restarts(s)["timeout"] == told + 1


# shows: security.md content-parser-rights
def test_the_process_has_its_socket_and_its_file_and_no_rights(start, tmp_path):
    """Seen by /proc while it parses: two descriptors, no environment, no new privileges, a filter of system calls, and
    the limits."""
    model(tmp_path, "hold-")
    s = start(tmp_path, binary=hostile_binary(), ready=False)
    (pid,) = s.wait_for(lambda: parsers(s), "the parser's process runs")
    files = Path(f"/proc/{pid}/fd")
    if os.geteuid() != 0:
        with pytest.raises(PermissionError):
            list(files.iterdir())
        return
    seen = s.wait_for(lambda: (lambda f: f if len(f) > 1 else None)([os.readlink(p) for p in files.iterdir()]),
                      "it has its file")
    assert {re.sub(r"socket:.*", "socket", path) for path in seen} == {
        str(tmp_path / "hold-/hold--x.safetensors"), "socket"} and len(seen) == 2, seen
    status = status_of(pid)
    assert (status["NoNewPrivs"], status["Seccomp"], status["Threads"]) == ("1", "2", "1")
    assert Path(f"/proc/{pid}/environ").read_bytes() == b""
    assert os.getpgid(pid) == pid, "a terminal's interrupt does not reach it"
    limits = Path(f"/proc/{pid}/limits").read_text()
    for name, value in (("Max data size", 1 << 30), ("Max processes", 0), ("Max file size", 0),
                        ("Max core file size", 0), ("Max open files", 8)):
        assert re.search(rf"^{name} +{value} +{value} ", limits, re.MULTILINE), limits
    assert os.stat(f"/proc/{pid}").st_uid == 0, "not dumpable: /proc is root's"
    s.wait_ready()
    assert s.json("/models/hold-")["errors"] == []


# shows: security.md content-parser-killed
def test_a_process_that_is_killed_from_outside_is_replaced(start, tmp_path):
    """In the middle of a scan: the next process parses the file."""
    model(tmp_path, "a")
    model(tmp_path, "hold-")
    model(tmp_path, "z")
    s = start(tmp_path, binary=hostile_binary(), ready=False)
    (first,) = s.wait_for(lambda: parsers(s), "the parser's process runs")
    s.wait_for(lambda: len(os.listdir(f"/proc/{first}/fd")) > 1, "it has its file")
    os.kill(first, signal.SIGKILL)
    s.wait_ready()
    assert s.ids() == ["a", "hold-", "z"] and s.json("/models/hold-")["errors"] == []
    assert restarts(s)["killed"] == 1 and first not in parsers(s)
    (second,) = parsers(s)
    os.kill(second, signal.SIGKILL)  # while it is idle: nobody notices
    model(tmp_path, "new")
    assert s.post("/rescan", b"").status == 200
    assert s.json("/models/new")["errors"] == [] and restarts(s)["killed"] == 2
    assert s.stderr().count("which is read again") == 1


# shows: security.md content-parser-killed
def test_no_process_outlives_the_server(tmp_path):
    """Not even one that spins when the server is killed."""
    model(tmp_path, "spin-")
    s = Server(tmp_path, binary=hostile_binary(), ready=False)
    (pid,) = s.wait_for(lambda: parsers(s), "the parser's process runs")
    s.kill()
    deadline = time.monotonic() + 5
    while os.path.exists(f"/proc/{pid}") and status_of(pid)["State"][0] not in "ZX":
        assert time.monotonic() < deadline, "the parser's process is still there"
        time.sleep(0.01)


def test_the_parsers_need_no_other_system_call():
    """Every fixture of every format, and every index of rows, is parsed as without a sandbox: the unit test, which is
    also run with sanitizers, in a build that has all layers."""
    path = release_binary().parent / "tests/unit/catalog/test_parse_pool"
    assert os.access(path, os.X_OK), f"{path} is missing: build the target test_parse_pool beside tensord"
    p = subprocess.run([path], capture_output=True, text=True, timeout=300)
    assert p.returncode == 0 and "PASSED" in p.stdout + p.stderr, p.stdout + p.stderr


@pytest.mark.parametrize("how", ["best-effort", "required", "off"])
def test_layers_are_told(start, tmp_path, how):
    """In the log and in metrics. `required` starts here only because all layers hold."""
    model(tmp_path, "m")
    s = start(tmp_path, "--sandbox", how, binary=release_binary())
    _, _, samples = s.metrics()
    layers = {labels["layer"]: v for name, labels, v in samples if name == "tensord_sandbox_layer"}
    holds = 0 if how == "off" else 1
    assert layers == {"seccomp": holds, "landlock": holds, "rlimits": holds}
    assert s.gauge("tensord_parse_workers") == holds and len(parsers(s)) == holds
    assert ("processes of their own; seccomp on, landlock on, rlimits on" in s.stderr()) == (holds == 1)
    assert s.json("/models/m")["errors"] == []


# shows: security.md content-no-sandbox
def test_required_layers(start, tmp_path):
    """A build with all layers starts. A sanitizer's build has no seccomp, which stands for a host without it."""
    if not is_sanitized():
        start(tmp_path, "--sandbox", "required")
        return
    p = subprocess.run([tensord_binary(), "serve", tmp_path, "--listen", "127.0.0.1:0", "--sandbox", "required"],
                       capture_output=True, text=True, timeout=60)
    assert p.returncode == 1 and "--sandbox required: this host does not have rlimits seccomp" in p.stderr, p.stderr
    start(tmp_path, "--sandbox", "required", binary=release_binary())


def without_proc(*args):
    """Run tensord where it cannot start itself, because there is no /proc."""
    command = 'mount -t tmpfs none /proc && exec "$@"'
    return subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-c", command, "sh", release_binary(), *args],
                          capture_output=True, text=True, timeout=60)


# shows: security.md content-no-sandbox
def test_without_proc_files_are_parsed_without_a_sandbox(tmp_path):
    model(tmp_path, "m")
    p = without_proc("inspect", tmp_path)
    assert p.returncode == 0 and "F32" in p.stdout, p.stderr
    assert "without a sandbox: cannot start the parser's process: No such file or directory" in p.stderr
    p = without_proc("serve", tmp_path, "--listen", "127.0.0.1:0", "--sandbox", "required")
    assert p.returncode == 1 and "cannot start the parser's process" in p.stderr, p.stderr


# shows: security.md content-sandbox-is-transparent
def test_two_thousand_files_are_the_same_with_and_without(tmp_path):
    """More than one process parses, one after the other."""
    for i in range(2000):
        tensors = [tensor(f"layer.{k}", "F16", [i % 7, k]) for k in range(i % 5)]
        write_by_hand(tmp_path / f"m{i:04}.safetensors", tensors)
    run = [subprocess.run([release_binary(), "inspect", tmp_path, "--json", *more], capture_output=True, timeout=120)
           for more in ([], ["--no-sandbox"])]
    assert run[0].returncode == run[1].returncode == 0 and run[0].stdout == run[1].stdout, run[0].stderr
    assert run[0].stdout.count(b'"etag"') == 2000
    assert run[0].stderr == b""


def test_people_do_not_start_it():
    p = subprocess.run([tensord_binary(), "__parse-worker", "1000"], capture_output=True, text=True, timeout=60,
                       stdin=subprocess.DEVNULL)
    assert p.returncode == 2 and "is started by tensord alone" in p.stderr
    assert "__parse-worker" not in subprocess.run([tensord_binary(), "help"], capture_output=True, text=True,
                                                  timeout=60).stdout
