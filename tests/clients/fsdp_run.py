"""A small FSDP2 training run in WORLD_SIZE processes:

    fsdp_run.py save WORLD_SIZE DIRECTORY FULL  trains, saves with torch.distributed.checkpoint; the whole state to FULL
    fsdp_run.py load WORLD_SIZE CODE FULL       resumes by CODE, the lines of docs/recipes.md; the whole state to FULL
    fsdp_run.py hf   WORLD_SIZE DIRECTORY FULL  loads the weights of DIRECTORY by HuggingFaceStorageReader; likewise
"""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard


def build():
    """Return the sharded model and its optimizer, the same in all processes."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.ReLU(), torch.nn.Linear(24, 5))
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(model, optimizer):
    g = torch.Generator().manual_seed(7)
    for _ in range(3):
        model(torch.randn(6, 12, generator=g)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def whole(state):
    """Return every tensor of the state, unsharded, by a flat name."""
    found = {}
    for name, value in state.items():
        if isinstance(value, dict):
            found.update({f"{name}.{k}": v for k, v in whole(value).items()})
        elif torch.is_tensor(value):
            found[name] = value.full_tensor() if hasattr(value, "full_tensor") else value
    return found


def work(rank, world_size, store, verb, place, full):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    model, optimizer = build()
    if verb == "load":
        exec(place, {"model": model, "optimizer": optimizer})
    elif verb == "save":
        train(model, optimizer)
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments}
    if verb == "save":
        dcp.save(state, checkpoint_id=place)
    elif verb == "hf":
        dcp.load(weights, storage_reader=HuggingFaceStorageReader(place))
        state = {"model": weights}
    state = whole(state)
    if rank == 0:
        torch.save(state, full)
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)     # while the interpreter ends, a thread of Gloo that still wants it can abort the process (PyTorch)


def main():
    verb, world_size, place, full = sys.argv[1:]
    torch.set_num_threads(1)    # a pool of threads does not outlive a fork
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(work, (int(world_size), folder + "/store", verb, place, full), nprocs=int(world_size),
                           start_method="fork")     # this process imports torch for all of them


if __name__ == "__main__":
    main()
