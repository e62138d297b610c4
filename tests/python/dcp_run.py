"""Saves a small model by torch.distributed.checkpoint, or loads it through TensordReader, or saves it through
TensordWriter, by forked processes:

    dcp_run.py save FOLDER RANKS            FOLDER/fsdp (sharded by FSDP2), FOLDER/plain (the same tensors in each
                                            process) and FOLDER/hf (safetensors); the tensors also as FOLDER.pt
    dcp_run.py load FOLDER OUT URL RANKS... loads them by each number of ranks. OUT gets a JSON list of what each rank
                                            found; its User-Agent is ranks-RANKS-RANK-CASE
    dcp_run.py write URL RANKS [async]      URL gets the model, sharded by FSDP2
"""
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

import tensord.net.http
from tensord.dcp import TensordReader, TensordWriter


def make_model():
    """Return a module whose sizes few numbers divide; some ranks of 8 get no row of the last layers."""
    torch.manual_seed(11)
    model = torch.nn.Sequential(torch.nn.Linear(701, 903), torch.nn.ReLU(), torch.nn.Linear(903, 7, bias=False),
                                torch.nn.LayerNorm(7))
    model.register_buffer("steps", torch.tensor(3))
    return model


def state_of(number, count=6):
    """Return tensors of a step, a number and a text."""
    tensors = {f"layer.{i}.weight": torch.full((257, 129), float(100 * number + i)) for i in range(count)}
    return {**tensors, "half": torch.arange(7, dtype=torch.bfloat16) + number, "step": number, "note": f"step {number}"}


def by_fsdp():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = make_model()
    for layer in (model[0], model[2], model[3]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh).state_dict()


def by_columns():
    """Return the tensors, those of two dimensions cut along the second one: runs with gaps between them."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return {name: distribute_tensor(tensor, mesh, [Shard(1)]) if tensor.dim() == 2 else tensor
            for name, tensor in make_model().state_dict().items()}


def by_copies():
    return make_model().state_dict()


def save(rank, folder):
    dcp.save(by_fsdp(), checkpoint_id=f"{folder}/fsdp")
    dcp.save({**by_copies(), "note": {"epoch": 7}}, checkpoint_id=f"{folder}/plain")


def part_of(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def load(rank, folder, url):
    """Return the bytes that the rank holds, and whether they are right, for each case."""
    want, found = torch.load(f"{folder}.pt"), []
    for case, model, make in (("fsdp", "fsdp", by_fsdp), ("columns", "fsdp", by_columns),
                              ("copies", "plain", by_copies),
                              ("safetensors", "hf", by_fsdp)):
        state = {name: torch.zeros_like(tensor) for name, tensor in make().items()}
        agent = tensord.net.http.USER_AGENT = f"ranks-{dist.get_world_size()}-{rank}-{case}"
        dcp.load(state, storage_reader=TensordReader(f"{url}/{model}", progress=False))
        held = sum(part_of(tensor).nbytes for tensor in state.values())
        whole = {name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
                 for name, tensor in state.items()}
        same = whole.keys() == want.keys() and all(torch.equal(whole[name], want[name]) for name in want)
        found.append({"agent": agent, "held": held, "same": same})
    return found


def write(rank, url, how):
    if how == "async":
        dcp.async_save(by_fsdp(), storage_writer=TensordWriter(url)).result()
    else:
        dcp.save(by_fsdp(), storage_writer=TensordWriter(url, thread_count=2))


def torn(rank, folder, url):
    """Return the error of a load in which the last rank finds another checkpoint than the first."""
    name = "fsdp" if rank == 0 else "changed"
    state = {name: torch.zeros_like(tensor) for name, tensor in by_copies().items()}
    try:
        dcp.load(state, storage_reader=TensordReader(f"{url}/{name}", progress=False))
    except dcp.CheckpointException as error:
        return [{"agent": f"torn-{rank}", "error": str(error)}]
    return [{"agent": f"torn-{rank}", "error": ""}]


def work(rank, ranks, store, out, step, *arguments):
    """Be one process of a group."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    found = globals()[step](rank, *arguments)
    if out:
        with open(f"{out}-{step}-{ranks}-{rank}", "w", encoding="utf-8") as file:
            json.dump(found, file)
    dist.barrier()
    os._exit(0)     # while the interpreter ends, a thread of Gloo that still wants it can abort the process (PyTorch)


def spawn(ranks, out, step, *arguments):
    """Run a step in so many processes. They are forked, and so they import torch once together."""
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(work, (ranks, folder + "/store", out, step, *arguments), nprocs=ranks, start_method="fork")


def main():
    verb, folder, *rest = sys.argv[1:]
    torch.set_num_threads(1)    # a pool of threads does not outlive a fork
    if verb == "save":
        spawn(int(rest[0]), None, "save", folder)
        os.makedirs(f"{folder}/hf")
        save_file(by_copies(), f"{folder}/hf/model.safetensors")
        torch.save(by_copies(), f"{folder}.pt")
        return
    if verb == "write":
        spawn(int(rest[0]), None, "write", folder, "".join(rest[1:]))
        return
    out, url, numbers = rest[0], rest[1], [int(number) for number in rest[2:]]
    for ranks in numbers:
        spawn(ranks, out, "load", folder, url)
    spawn(2, out, "torn", folder, url)


if __name__ == "__main__":
    main()
