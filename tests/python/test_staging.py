"""Boxes that are staged: whatever the room and the order of use, each has its bytes, and few are read twice."""
import random

import pytest
import torch
from conftest import bytes_of, url_of
from safetensors.torch import save_file

import tensord
from tensord.lazy import LazyTensor, noted
from tensord.net.transfer import Stop
from tensord.tensors import staging
from tensord.tensors.boxes import Box, whole

TYPES = (torch.bfloat16, torch.float32, torch.int8)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server, a model of it, and the model's tensors."""
    import harness

    root = tmp_path_factory.mktemp("root")
    (root / "m").mkdir()
    torch.manual_seed(5)
    tensors = {f"t{number:02}": torch.randint(-99, 99, (30 + number, 17)).to(TYPES[number % 3]) for number in range(40)}
    tensors["none"] = torch.empty(0, 17)
    save_file(tensors, root / "m" / "model.safetensors")
    harness.age(root)
    with harness.Server(root) as server:
        model = tensord.open_model(url_of(server, "m"))
        model.manifest()
        yield server, model, tensors


def boxes_of(tensors):
    return [whole(name, tensor.shape) for name, tensor in tensors.items()]


def read_of(server):
    return bytes_of(server, "/models/m/plans/") + bytes_of(server, "/models/m/tensors:read")


@pytest.mark.parametrize("room", [0, 1, 500, 5_000, 20_000, 10**9])
@pytest.mark.parametrize("order", ["same", "near", "random"])
def test_each_box_has_its_bytes(served, room, order):
    server, model, tensors = served
    total = sum(tensor.nbytes for tensor in tensors.values())
    chance, before = random.Random(7), read_of(server)
    staged = staging.StagedModel(model, boxes_of(tensors), room, staging.StagingMemory())
    assert staged.nbytes == total and staged.is_whole == (room == 10**9)
    staged.fetch()
    if staged.is_whole:
        assert read_of(server) - before == total
    names = list(tensors)
    if order == "near":  # as layers that are loaded when their last tensor has come
        names = [name for at in range(0, len(names), 3)
                 for name in chance.sample(names[at : at + 3], len(names[at : at + 3]))]
    elif order == "random":
        chance.shuffle(names)
    for name in names:
        target = torch.zeros_like(tensors[name])
        target.copy_(LazyTensor.of(staged, model.manifest()[name]))
        assert torch.equal(target, tensors[name]), name
        wide = torch.zeros(tensors[name].shape, dtype=torch.float64)  # by a copy that converts, from the memory again
        if staged.is_whole:
            wide.copy_(LazyTensor.of(staged, model.manifest()[name]))
            assert torch.equal(wide, tensors[name].to(torch.float64)), name
    limit = {"same": 1.0, "near": 2.0, "random": 2.0}[order]
    assert total <= read_of(server) - before <= limit * total


def test_boxes_that_are_not_staged_are_read(served):
    server, model, tensors = served
    staged = staging.StagedModel(model, [whole("t01", tensors["t01"].shape)], 10**6, staging.StagingMemory())
    staged.fetch()
    before = read_of(server)
    target = torch.zeros(5, 17, dtype=tensors["t02"].dtype)
    target.copy_(LazyTensor.of(staged, model.manifest()["t02"])[3:8])
    assert torch.equal(target, tensors["t02"][3:8])
    assert read_of(server) - before == target.nbytes


def test_noted_boxes_are_those_of_the_next_run(served):
    server, model, tensors = served

    def load(source, device):
        lazy = LazyTensor.of(source, source.manifest()["t00"])
        made = [torch.zeros(lazy.shape, dtype=lazy.dtype, device=device), torch.zeros(17, 4, device=device)]
        made[0][2:9].copy_(lazy[2:9])
        made[1][:] = lazy.t()[:, 5:9].float()
        return made

    with noted(model) as boxes:
        load(model, "meta")
    staged = staging.StagedModel(model, boxes, 10**6, staging.StagingMemory())
    staged.fetch()
    before = read_of(server)
    one, two = load(staged, "cpu")
    assert torch.equal(one[2:9], tensors["t00"][2:9]) and torch.equal(two, tensors["t00"].t()[:, 5:9].float())
    assert read_of(server) == before


def test_wrong_boxes_are_refused(served):
    _, model, _ = served
    with pytest.raises(tensord.NotFoundError):
        staging.StagedModel(model, [Box("gone", (0,), (1,))], 10, staging.StagingMemory())


def test_a_fetch_that_is_stopped_can_be_repeated(served):
    _, model, tensors = served
    staged = staging.StagedModel(model, boxes_of(tensors), 10**9, staging.StagingMemory())
    stop = Stop()
    stop.stop()
    with pytest.raises(tensord.TensordError, match="stopped"):
        staged.fetch(stop)
    target = torch.zeros_like(tensors["t07"])
    target.copy_(LazyTensor.of(staged, model.manifest()["t07"]))
    assert torch.equal(target, tensors["t07"])


def test_memory_is_kept_as_long_as_it_suffices():
    memory = staging.StagingMemory()
    first = memory.take(1000)
    assert (len(first), memory.nbytes) == (1000, 1000)
    first[:5] = b"abcde"
    assert bytes(memory.take(5)) == b"abcde"
    memory.take(2000)
    assert bytes(first[:5]) == b"abcde" and memory.nbytes == 2000
    memory.release()
    assert bytes(first[:5]) == b"abcde" and memory.nbytes == 0


@pytest.mark.parametrize("code", [0, 2])
def test_memory_is_pinned_where_a_gpu_is(monkeypatch, code):
    """By calls as torch has them; a system that lets nothing be pinned answers with an error."""
    calls = []

    class Cudart:
        def cudaHostRegister(self, address, nbytes, flags):
            calls.append(("pin", address, nbytes, flags))
            return code

        def cudaHostUnregister(self, address):
            calls.append(("unpin", address))
            return 0

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", Cudart)
    memory = staging.StagingMemory()
    memory.take(1000)
    address = calls[0][1]
    assert calls == [("pin", address, 1000, 0)]
    memory.release_unpinned()
    assert memory.nbytes == (1000 if code == 0 else 0)
    memory.release()
    assert calls[1:] == ([("unpin", address)] if code == 0 else [])
    memory.take(10)
    assert len([call for call in calls if call[0] == "pin"]) == 2
    monkeypatch.undo()


def test_free_bytes_are_of_the_system_and_of_the_cgroup(monkeypatch, tmp_path):
    files = {"/proc/meminfo": "MemTotal:  16 kB\nMemAvailable:   8000 kB\nHugePages_Total:  0\n"}
    real_open = open

    def fake_open(path, *args, **kwargs):
        if str(path).startswith(("/proc/meminfo", "/sys/fs/cgroup")):
            if path not in files:
                raise FileNotFoundError(path)
            text = tmp_path / "file"
            text.write_text(files[path])
            return real_open(text, *args, **kwargs)
        return real_open(path, *args, **kwargs)

    monkeypatch.setattr("builtins.open", fake_open)
    assert staging.free_bytes() == 8000 * 1024
    files["/sys/fs/cgroup/memory.max"], files["/sys/fs/cgroup/memory.current"] = "max\n", "5\n"
    assert staging.free_bytes() == 8000 * 1024
    files["/sys/fs/cgroup/memory.max"] = "1000000\n"
    files["/sys/fs/cgroup/memory.current"] = "700000\n"
    files["/sys/fs/cgroup/memory.stat"] = "anon 7\ninactive_file 50000\n"
    assert staging.free_bytes() == 350_000
    files["/sys/fs/cgroup/memory.current"] = "2000000\n"
    assert staging.free_bytes() == 0
    files.clear()
    assert staging.free_bytes() == 0
