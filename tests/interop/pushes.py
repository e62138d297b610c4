"""The tools that the tests of pushes share: to run `tensord push`, and to write the files that are pushed."""
import contextlib
import hashlib
import json
import os
import pty
import select
import subprocess
import time

from harness import pattern, tensord_binary
from pulls import MIB, environment, outputs_of

PART = 32 * MIB
QUICK = ("--retry-for", "3s")


def start(directory, url, *args, model="org/m", env=None, **kw):
    return subprocess.Popen([tensord_binary(), "push", str(directory), url, model, *map(str, args)], text=True,
                            env=environment(**(env or {})),
                            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kw})


def push(directory, url, *args, code=0, timeout=60, **kw):
    """Run the command with --json. Return the object and standard error."""
    out, err = outputs_of(start(directory, url, *args, "--json", **kw), code, timeout)
    if code == 2:
        assert out == "" and err.count("\n") == 1, err
        return None, err
    report = json.loads(out)
    assert report["sent_bytes"] == sum(f["sent_bytes"] for f in report["files"])
    assert ("error" in report) == (code == 1) and report.get("error", "") in err
    return report, err


def shown_on_terminal(directory, url, *args, timeout=60):
    """Run the command with a terminal as its standard error. Return what it shows there."""
    shown, side = pty.openpty()
    p = start(directory, url, *args, stdout=subprocess.DEVNULL, stderr=side)
    os.close(side)
    text, end = "", time.monotonic() + timeout
    with contextlib.suppress(OSError):      # the command has closed the other side
        while time.monotonic() < end:
            if select.select([shown], [], [], 0.2)[0]:
                text += os.read(shown, 65536).decode()
    assert p.wait(timeout=20) == 0
    os.close(shown)
    return text


def small_files(root):
    """Write a few small files, two of them with the same content. Return the directory."""
    (root / "deep/er").mkdir(parents=True)
    (root / "config.json").write_text('{"a": 1}')
    (root / "deep/er/a b%c+#?.txt").write_text("text")
    (root / "ünï.txt").write_text("text")
    (root / "empty.txt").touch()
    (root / "model.safetensors").write_bytes(pattern(3 * MIB + 17, 1))
    return root


def large(path, size, seed=1):
    """Write a file of this size and return its digest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = pattern(size, seed)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()
