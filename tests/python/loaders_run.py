"""Loops over a dataset by torch's loaders, for test_datasets_loaders.py; also as `python loaders_run.py NAME ...`, in a
process of its own. The rows are {"id": 0}, {"id": 1} and so on."""
import json
import sys

import torch
from torch.utils.data import DataLoader

import tensord

QUIET = {"progress": False, "retry_for": 20.0}


def plain(batch):
    return [row["id"] for row in batch]


def map_loader(url, workers, kind, batch=7, seed=1, state=None, loader=DataLoader, collate=plain, **how):
    dataset = tensord.Dataset(url, **QUIET)
    sampler = tensord.ShuffleSampler(dataset, seed=seed, **how)
    if state is not None:
        sampler.load_state_dict(state)
    return loader(dataset, batch_size=batch, sampler=sampler, num_workers=workers, collate_fn=collate,
                  multiprocessing_context=kind if workers else None), sampler


def stream_loader(url, workers, kind, batch=7, loader=DataLoader, batched=False, persistent=False,
                  collate=plain, **how):
    stream = tensord.IterableDataset(url, batch_size=batch, batched=batched, **{"shuffle": True, "seed": 1, **how},
                                     **QUIET)
    size = {"batch_size": None} if batched else {"batch_size": batch}
    return loader(stream, **size, num_workers=workers, collate_fn=collate,
                  persistent_workers=persistent and workers > 0,
                  multiprocessing_context=kind if workers else None), stream


def orders(url, kind, workers):
    """Print the batches of each style of loader, as a list of lists of ids each."""
    for make in (map_loader, stream_loader):
        print(json.dumps(list(make(url, int(workers), kind)[0])), flush=True)


def states(url, *cases):
    """Print the states of a stream for each kind and number of workers."""
    for kind, workers in zip(cases[::2], cases[1::2]):
        print(json.dumps(states_of(url, kind, int(workers))))


def states_of(url, kind, workers):
    """Return what a stream's state_dict() in this process returns or raises: before a loader's workers take rows, while
    they do, in the next epoch before they do, after a state was loaded, and where this process takes rows itself."""
    loader, stream = stream_loader(url, workers, kind)
    found = []

    def look():
        try:
            found.append([stream.state_dict()["epoch"], stream.state_dict()["position"]])
        except ValueError as error:
            found.append(str(error))

    look()
    walk = iter(loader)
    next(walk)
    look()
    del walk
    state = stream.state_dict(position=14)
    stream.set_epoch(1)
    look()
    stream.load_state_dict(state)
    look()
    next(iter(loader))
    look()
    for _ in zip(range(3), stream):
        look()
    return found


class Model(torch.nn.Module):
    """A small model of numbers x and y."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def forward(self, x):
        return self.layers(x).squeeze(1)


def numbers(batch):
    rows = [row if isinstance(row, dict) else json.loads(row) for row in batch]
    return torch.tensor([row["x"] for row in rows]), torch.tensor([row["y"] for row in rows])


def begin():
    torch.manual_seed(3)
    model = Model()
    return model, torch.optim.SGD(model.parameters(), lr=0.05)


def step(model, optimizer, batch):
    """Train on a batch, and return the loss."""
    x, y = batch
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def train(url, workers, batch, state_file, kill_at):
    """Train for one epoch from the state in a file, if there is one; print each step's loss. At step `kill_at` save the
    state and end at once, as a process that is killed."""
    import os

    torch.set_num_threads(1)
    dataset = tensord.Dataset(url, **QUIET)
    sampler = tensord.ShuffleSampler(dataset, seed=5)
    model, optimizer = begin()
    done = 0
    if os.path.exists(state_file):
        state = torch.load(state_file)
        model.load_state_dict(state["model"])
        sampler.load_state_dict(state["rows"])
        done = state["rows"]["position"] // int(batch)
    loader = DataLoader(dataset, batch_size=int(batch), sampler=sampler, num_workers=int(workers), collate_fn=numbers)
    for number, one in enumerate(loader, done + 1):
        print(number, repr(step(model, optimizer, one)), flush=True)
        if number == int(kill_at):
            rows = sampler.state_dict(position=number * int(batch))
            torch.save({"model": model.state_dict(), "rows": rows}, state_file)
            os._exit(9)


if __name__ == "__main__":
    {"orders": orders, "states": states, "train": train}[sys.argv[1]](*sys.argv[2:])
