"""A training loop over rows of JSON, read from a server: the same losses as with the local file, killed and resumed
at any step, and nothing written to a disk."""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import loaders_run
import pytest
import torch
import warm_python
from conftest import rows_url

import tensord

RUN = Path(__file__).with_name("loaders_run.py")
STEPS = int(os.environ.get("TENSORD_TRAINING_STEPS", 80))           # by hand 20,000: a million rows
BATCH = 50
COUNT = STEPS * BATCH


@pytest.fixture
def disk():
    """An empty folder for a process's temporary files. Its path is short: workers have sockets there, whose paths have
    107 bytes at most, and wait without end for one that cannot be made."""
    with tempfile.TemporaryDirectory(prefix="td-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def data(serve_rows):
    """A file of numbers x and y, and the URL of its rows."""
    rng = random.Random(9)
    path = serve_rows.root / "datasets" / "numbers" / "train.jsonl"
    path.parent.mkdir(parents=True)
    with open(path, "w") as file:
        for _ in range(COUNT):
            x = [rng.uniform(-1, 1) for _ in range(4)]
            file.write(json.dumps({"x": x, "y": x[0] * x[1] - x[2]}) + "\n")
    return path, rows_url(serve_rows(), "numbers")


def local_losses(path):
    """Return the losses of one epoch over the local file, in the order of the sampler."""
    lines = path.read_bytes().splitlines()
    torch.set_num_threads(1)
    model, optimizer = loaders_run.begin()
    order = list(tensord.ShuffleSampler(lines, seed=5))
    return [loaders_run.step(model, optimizer, loaders_run.numbers([lines[row] for row in order[at : at + BATCH]]))
            for at in range(0, COUNT, BATCH)]


def run(url, workers, state, kill_at, folder):
    """Run loaders_run.train in a process whose files are below a folder; return its losses by step."""
    environment = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*warm_python.command(), RUN, "train", url, str(workers), str(BATCH), state, str(kill_at)],
                          capture_output=True, text=True, timeout=500, env=environment, cwd=folder)
    assert done.returncode == (9 if kill_at else 0), done.stderr
    return {int(line.split()[0]): float(line.split()[1]) for line in done.stdout.splitlines()}


@pytest.mark.parametrize("workers, kills", [(0, [1, STEPS - 1]), (2, [STEPS // 5])])
def test_the_losses_of_a_local_file(data, disk, workers, kills, tmp_path):
    """Killed at some steps, and resumed by other processes."""
    path, url = data
    wanted = dict(enumerate(local_losses(path), 1))
    found = {}
    for kill_at in (*kills, 0):
        losses = run(url, workers, tmp_path / "state.pt", kill_at, disk)
        assert not set(losses) & set(found)
        found.update(losses)
    assert found == wanted and len(found) == STEPS and found[STEPS] < found[1] / 2
    assert list(disk.rglob("*")) == []


def files_written(code, trace):
    """Run a loop of loaders_run under strace, and return the files that it, with workers, opened for writing, renamed
    to or made: without devices and shared memory, random parts of names as _."""
    code = f"import sys; sys.path.insert(0, {str(RUN.parent)!r}); import loaders_run as run, torch\n{code}"
    calls = "trace=openat,open,creat,mkdir,mkdirat,rename,renameat,renameat2"
    tracer = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", calls, "-e", "signal=none", "-o", trace]
    done = subprocess.run([*tracer, sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0 and done.stdout.split() == [str(STEPS)], done
    found = set()
    for line in trace.read_text().splitlines():
        name = re.search(r'"([^"]*)"', line)
        if name and re.search("O_WRONLY|O_RDWR|O_CREAT|mkdir|rename", line) and " = -1 " not in line:
            if not name[1].startswith(("/dev/", "/proc/")):
                found.add(re.sub("[a-z0-9_]{8}$", "_", name[1]))
    return found


def test_nothing_is_written_to_a_disk(data, tmp_path):
    """A loop with workers opens no other file for writing than one over a list in memory, for which Python looks for a
    folder for temporary files, and multiprocessing makes one."""
    path, url = data
    local = files_written(f"rows = open({str(path)!r}).readlines()\n"
                          f"loader = torch.utils.data.DataLoader(rows, {BATCH}, num_workers=2,\n"
                          "                                     collate_fn=run.numbers)\n"
                          "print(sum(1 for _ in loader))", tmp_path / "local")
    for style in ("map", "stream"):
        found = files_written(f"loader, _ = run.{style}_loader({url!r}, 2, 'fork', {BATCH}, collate=run.numbers)\n"
                              "print(sum(1 for _ in loader))", tmp_path / style)
        assert found == local, style
    made = f"open({str(tmp_path / 'x')!r}, 'w'); print({STEPS})"
    assert str(tmp_path / "x") in files_written(made, tmp_path / "trace")
