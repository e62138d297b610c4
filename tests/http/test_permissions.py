"""A server that is not the files' owner, as in a container with a read-only mount: no lease pins the files, and answers
are still right. A file that the server may not read is a 403 for that file alone."""
import os
import subprocess
import time

import pytest
from harness import NOBODY, Server, as_nobody, check_error, tensor, write_by_hand


def test_another_user(place):
    (place / "root" / "m").mkdir(parents=True)
    big = tensor("big", "U8", [3_000_000])
    write_by_hand(place / "root/m/model.safetensors", [big])
    secret = place / "root/m/notes.txt"
    secret.write_text("not for everybody")
    secret.chmod(0o000)
    write_by_hand(place / "root/closed.safetensors", [tensor("a", "F32", [4])])
    (place / "root/closed.safetensors").chmod(0o000)
    with Server(place / "root", binary=as_nobody(place)) as s:
        whole = s.get("/models/m/files/model.safetensors")
        assert whole.status == 200 and whole.body == (place / "root/m/model.safetensors").read_bytes()
        part = s.get("/models/m/tensors/big", {"Range": "bytes=1000000-2999998"})
        assert part.status == 206 and part.body == big.data[1_000_000:2_999_999]
        metrics = s.get("/metrics").body.decode()
        assert "\ntensord_mapped_files 1\n" in metrics, metrics
        if os.geteuid() == 0:
            assert "\ntensord_leased_files 0\n" in metrics, metrics
        check_error(s.get("/models/m/files/notes.txt"), 403, "Permission denied")
        errors = s.get("/models/closed.safetensors").json()["errors"]
        assert errors == [{"file": "closed.safetensors", "message": "cannot open it: Permission denied"}], errors
        assert s.get("/models/m").json()["errors"] == []


def test_a_state_directory_that_cannot_be_written(place):
    """The server reads the directory, continues to serve, and logs what docs/files.md explains."""
    write_by_hand(place / "root/m/model.safetensors", [tensor("a", "F32", [4])])
    state = place / "state"
    state.mkdir()
    if os.geteuid() == 0:
        os.chown(state, NOBODY, NOBODY)
    state.chmod(0o500)
    with Server(place / "root", "--state-dir", state, binary=as_nobody(place), hash_threads=1) as s:
        s.wait_for(lambda: s.gauge("tensord_hashed_files") == 1, "all is hashed")
        assert s.gauge("tensord_digest_store") == 0
        lines = [line for line in s.stderr().splitlines() if "--state-dir" in line]
        assert len(lines) == 4, lines
        for said in (f'cannot write to "{state}": Permission denied; its digests are read',
                     f'cannot write to "{state}": Permission denied; its digests of virtual files are read',
                     "indexes of rows are kept in memory alone", "patches are kept in temporary files alone"):
            assert sum(said in line and "Permission denied" in line for line in lines) == 1, lines
    assert list(state.iterdir()) == []
    state.chmod(0o700)


@pytest.mark.parametrize("command", ["serve", "inspect", "verify"])
def test_a_directory_that_cannot_be_read_is_refused_by_name(place, command):
    """The usual first failure in a container: the volume belongs to another user."""
    root = place / "root"
    root.mkdir()
    root.chmod(0o000)
    args = [command, str(root)] + (["--listen", "127.0.0.1:0"] if command == "serve" else [])
    p = subprocess.run([str(as_nobody(place)), *args], capture_output=True, text=True, timeout=60)
    root.chmod(0o755)
    assert p.returncode == 1, p
    assert f'cannot open "{root}": Permission denied' in p.stderr and p.stdout == "", p


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_what_cannot_be_read_is_named_once(place, command):
    write_by_hand(place / "root/m/model.safetensors", [tensor("a", "F32", [4])])
    (place / "root/m/model.safetensors").chmod(0o000)
    (place / "root/closed").mkdir(0o000)
    p = subprocess.run([as_nobody(place), command, place / "root"], capture_output=True, text=True, timeout=60)
    (place / "root/closed").chmod(0o755)
    lines = (p.stderr if command == "inspect" else p.stdout).splitlines()
    for path in ("m/model.safetensors", "closed"):
        line, = [line for line in lines if path in line]
        assert line.count(path) == 1 and line.endswith(f"{path}: cannot open it: Permission denied"), p


def test_a_directory_that_can_no_longer_be_listed(place):
    """The server keeps the last good state. The log, /readyz and /metrics say what is wrong; the log says so
    once, not with every scan."""
    root = place / "root"
    (root / "m").mkdir(parents=True)
    data = tensor("a", "F32", [4])
    write_by_hand(root / "m/model.safetensors", [data])
    with Server(root, "--rescan-interval", "0.1", binary=as_nobody(place)) as s:
        assert s.gauge("tensord_scan_failed") == 0
        assert s.get("/readyz").json()["scan"]["failed"] is False
        try:
            root.chmod(0o311)
            s.wait_for(lambda: s.gauge("tensord_scan_failed") == 1, "the scan fails")
            failed = s.gauge("tensord_failed_scans_total")
            s.wait_for(lambda: s.gauge("tensord_failed_scans_total") > failed + 3, "further scans")
            ready = s.get("/readyz")
            assert ready.status == 200, ready.body
            told = ready.json()
            assert told["ready"] and told["scan"]["failed"] and "Permission denied" in told["message"], told
            assert s.get("/models/m/tensors/a").body == data.data
        finally:
            root.chmod(0o755)
        s.wait_for(lambda: s.gauge("tensord_scan_failed") == 0, "the scan succeeds")
        told = s.get("/readyz").json()
        assert told["message"] == "" and not told["scan"]["failed"], told
        lines = s.stderr().splitlines()
        faults = [line for line in lines if "cannot scan" in line]
        assert len(
            faults) == 1 and "Permission denied" in faults[0] and "the last good state stays" in faults[0], faults
        assert len([line for line in lines if "can be scanned again" in line]) == 1, lines


def test_the_slow_way_is_told_once_with_its_remedy(place):
    """A server that may not take leases, and one that must not by an option."""
    told = "every answer is copied and checked, the slow way"
    write_by_hand(place / "root/m/model.safetensors", [tensor("w", "F32", [4])])
    for options, wanted in [([], 1), (["--files", "immutable"], 0), (["--leases", "off"], 0)]:
        with Server(place / "root", *options, hash_threads=0, binary=as_nobody(place)) as s:
            s.wait_for(lambda s=s: "ready: /readyz" in s.stderr(), "ready")
            time.sleep(0.3)
            log = s.stderr()
            assert log.count(told) == wanted, log
            assert not wanted or "belong to another user" in log and "--files immutable" in log
