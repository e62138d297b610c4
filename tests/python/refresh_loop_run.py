"""Brings a vLLM model to each version that a trainer makes, on a processor, as a rank of refresh_loop.py.

WAY is the path of a file: the ranks end when it is there. The first rank waits for the next version, and all ranks
update to it by the backend `tensord`. The folder has the weights of step 0, which vLLM's own loader reads: each later
step has these, each element XORed with one number of the step, so that a single element shows which step it is of. A
rank prints JSON, a line for each update: its time, the error, and what is wrong with the parameters after it.
"""
import json
import os
import time

import torch
import vllm_kit
from engine_ranks import become_rank
from refresh_steps import key_of, number_of, step_of
from vllm_refreshed import Refreshed

import tensord

folder, url, rank, tp, store, way = become_rank()
me = vllm_kit.Rank(folder, rank, tp, store)


def next_version(model, after):
    """Return the name of another latest version than `after`; None: it is time to end."""
    while not os.path.exists(way):
        try:
            return model.wait_version(after, timeout=3)
        except TimeoutError:
            pass
        except tensord.TensordError as error:
            print(json.dumps({"waiting": f"{type(error).__name__}: {error}"}), flush=True)
            time.sleep(0.5)
    return None


def shared(name):
    """Return the first rank's name of a version."""
    names = [name]
    torch.distributed.broadcast_object_list(names, src=0)
    return names[0]


class Parameters:
    """The parameters of a model that is at step 0, and copies of them."""

    def __init__(self, model):
        self.named = dict(model.named_parameters())
        assert all(parameter.dtype == torch.bfloat16 for parameter in self.named.values())
        self.first = {name: self.bits(name).clone() for name in self.named}
        self.nbytes = sum(parameter.nbytes for parameter in self.named.values())

    def bits(self, name):
        return self.named[name].detach().view(torch.int16)

    def find_wrong(self, step):
        """Return what differs from a step, as a text: up to three names of parameters with the steps that their
        elements have."""
        wrong = []
        for name, first in self.first.items():
            keys = self.bits(name) ^ first
            if not bool((keys == key_of(step)).all()):
                steps = sorted({step_of(key) for key in keys.unique().tolist()})
                wrong.append(f"{name} has {len(steps)} steps: {steps[:5]}")
        return "; ".join(wrong[:3])


refreshed = Refreshed(me, "safetensors")
parameters = Parameters(refreshed.model)
refreshed.init({"url": url})
print(json.dumps({"pid": os.getpid(), "bytes": parameters.nbytes}), flush=True)
model, at = tensord.connect(url).model(), None
while True:
    name = shared(next_version(model, at) if me.rank == 0 else None)
    if name is None:
        break
    error = ""
    try:
        refreshed.update({"version": name})
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    done = time.monotonic()
    wanted = at if error else name
    wrong = parameters.find_wrong(number_of(wanted) if wanted else 0)
    if refreshed.find_places() != refreshed.places:
        wrong += "; parameters are in other memory"
    print(json.dumps({"version": name, "done": done, "error": error, "wrong": wrong}), flush=True)
    at = wanted
    if error:
        time.sleep(0.2)
me.end()
