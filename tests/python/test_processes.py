"""Many processes and threads, interrupts and memory: the scripts are in processes_run.py."""
import subprocess
import sys
from pathlib import Path

import processes_run
import pytest
from conftest import url_of
from fault_proxy import FaultProxy
from safetensors.numpy import save_file

RUN = Path(__file__).with_name("processes_run.py")


def run(name, url, timeout=150):
    """Run a script, and return its output. A hang is an error that names it."""
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-W", "ignore", str(RUN), name, url],
                          capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def served(serve):
    (serve.root / "m").mkdir()
    tensors = {f"t{number:02}": processes_run.want(number) for number in range(processes_run.COUNT)}
    save_file(tensors, serve.root / "m" / "model.safetensors")
    return serve()


@pytest.mark.parametrize("script", ["fork", "spawn", "loader", "threads", "leak"])
def test_one_model_for_many(served, script):
    run(script, url_of(served, "m"))


def test_an_interrupt_ends_a_load_and_leaves_nothing(served):
    def stall(exchange):
        exchange.cut, exchange.stall = 10, True

    proxy = FaultProxy(served.port, stall)
    run("interrupt", f"tensord://127.0.0.1:{proxy.port}/m,{url_of(served, 'm')}")
    proxy.stop()


def test_memory_beyond_the_tensors_is_bounded(serve):
    """At most 64 MiB, and the ring of 64 MiB where the bytes are converted."""
    import torch
    from safetensors.torch import save_file as save_torch

    (serve.root / "m").mkdir()
    save_torch({f"w{number}": torch.rand(2048, 8192) for number in range(8)}, serve.root / "m" / "model.safetensors")
    straight, converted = map(float, run("memory", url_of(serve(), "m")).split())
    assert straight <= 64
    assert converted <= 128
    print(straight, converted)
