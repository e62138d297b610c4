"""Loads a model by vLLM's own loader classes, on a processor, as a rank of engine_ranks.py.

It prints, as JSON, the bytes of the rank's parameters, and the names of those that differ between vLLM's own
`--load-format safetensors` and `--load-format tensord`. WAY "error": the error of the latter alone; an object: the
same, with that extra config; "hub": without a URL, by HF_ENDPOINT; "sharded_state" or "runai_streamer_sharded": that
format in place of `tensord`, from the folder or bucket that stands in place of the URL, with all of the model's state.
"""
import json

import torch
import vllm_kit
from engine_ranks import become_rank
from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader

folder, url, rank, tp, store, way = become_rank()
me = vllm_kit.Rank(folder, rank, tp, store)


def load(load_format, extra=None):
    return dict(me.load_model(load_format, extra)[0].named_parameters())


def compare():
    local, remote = load("safetensors"), load("tensord", {"url": url} if way != "hub" else {})
    wrong = [key for key in local if key not in remote or not torch.equal(local[key], remote[key])]
    return {"bytes": sum(p.numel() * p.element_size() for p in remote.values()),
            "wrong": wrong + sorted(set(remote) - set(local))}


def compare_states(load_format):
    """Return the differences between the states of the model's own files and of the rank's."""
    wanted = ShardedStateLoader._filter_subtensors(me.load_model("safetensors", dtype=None)[0].state_dict())
    got = ShardedStateLoader._filter_subtensors(me.load_model(load_format, source=url, dtype=None)[0].state_dict())
    wrong = [key for key in wanted if key not in got or wanted[key].dtype != got[key].dtype
             or not torch.equal(wanted[key], got[key])]
    return {"wrong": wrong + sorted(set(got) - set(wanted)),
            "state": {key: [str(value.dtype), list(value.shape)] for key, value in wanted.items()}}


if way in ("sharded_state", "runai_streamer_sharded"):
    try:
        result = compare_states(way)
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
elif way in ("", "hub"):
    result = compare()
else:
    try:
        load("tensord", {"url": url} if way == "error" else json.loads(way))
        result = {"error": ""}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
print(json.dumps(result), flush=True)
me.end()
