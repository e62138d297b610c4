"""Writes a distributed checkpoint with four processes of torch.distributed: make_dcp.py DIRECTORY. Also writes the
whole tensors, as torch has them, to whole.pt."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

RANKS = 4


def whole():
    g = torch.Generator().manual_seed(5)
    made = {f"{str(d)[6:]}.rows": torch.randn(9, 6, generator=g).to(d)
            for d in (torch.float32, torch.bfloat16, torch.float16, torch.float64)}
    made["ints.rows"] = torch.arange(64, dtype=torch.int64).reshape(16, 4)
    made["grid"] = torch.randn(10, 7, 3, generator=g)
    made["columns"] = torch.randn(5, 11, generator=g)
    made["middle"] = torch.randn(3, 8, 4, generator=g)
    made["replicated"] = torch.randn(4, 4, generator=g)
    made["vector"] = torch.randn(13, generator=g)
    made["few"] = torch.randn(2, 3, generator=g)  # fewer rows than ranks
    made["plain"] = torch.randn(3, 2, generator=g)
    made["scalar"] = torch.tensor(2.5)
    made["empty"] = torch.zeros(0, 3)
    return made


def placements(name):
    if name == "grid":
        return [Shard(0), Shard(1)]
    if name == "columns":
        return [Shard(1), Replicate()]
    if name == "middle":
        return [Shard(1), Shard(1)]
    if name == "replicated":
        return [Replicate(), Replicate()]
    return [Shard(0), Shard(0)]


def work(rank, directory, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (2, 2))
    state = {}
    for name, tensor in whole().items():
        plain = name in ("plain", "scalar", "empty")
        state[name] = tensor if plain else distribute_tensor(tensor, mesh, placements(name))
    state["step"] = 12
    state["extra"] = {"a": torch.arange(3), "text": "x"}
    dcp.save(state, checkpoint_id=directory)
    dist.barrier()
    os._exit(0)     # while the interpreter ends, a thread of Gloo that still wants it can abort the process (PyTorch)


def main():
    directory = sys.argv[1]
    torch.set_num_threads(1)    # a pool of threads does not outlive a fork
    mp.start_processes(work, (directory, directory + ".store"), nprocs=RANKS, start_method="fork")
    os.path.exists(directory + ".store") and os.remove(directory + ".store")
    torch.save(whole() | {"extra.a": torch.arange(3)}, directory + ".whole.pt")


if __name__ == "__main__":
    main()
