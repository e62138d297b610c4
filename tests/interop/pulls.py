"""What the tests of `tensord pull` share: running the command, and looking at what it has left."""
import json
import os
import subprocess
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


def pull(url, *args, code=0, timeout=60, **kw):
    """Run the command with --json. Return the object and standard error."""
    p = start(url, *args, "--json", **kw)
    try:
        out, err = p.communicate(timeout=timeout)
    finally:
        p.kill()
    assert p.returncode == code, f"exit code {p.returncode}\n{out}\n{err}"
    assert "Sanitizer" not in err and "runtime error" not in err, err
    return json.loads(out) if code != 2 else None, err


def tree_of(directory):
    """Return path -> bytes of all files, hidden ones too."""
    root = Path(directory)
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()} if root.is_dir() else {}


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
