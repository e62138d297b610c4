"""One process of a distributed run of transformers, started by torch.distributed.run: transformers_run.py CASES OUT

CASES is a JSON file: [{"name", "path", "urls", "how"}]. For each case the process loads the model from the path by
transformers itself, and from its own URL by tensord, both with DistributedConfig(**how), or with tp_plan="auto" where
`how` is null. Its User-Agent is rank-RANK-NAME. OUT-RANK.json gets for each case the names of parameters that differ,
whether the logits are equal, and the bytes that the rank holds: sharded, and whole; or the error of tensord's load.
"""
import json
import os
import sys

import torch
import torch.distributed as dist
import transformers
from torch.distributed.tensor import DTensor
from transformers.distributed import DistributedConfig

import tensord
import tensord.net.http
import tensord.transformers

RANK = int(os.environ["RANK"])


def part_of(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def held(model):
    """Return the bytes of the rank's shards, and of what it holds whole; tied parameters count once."""
    sharded = whole = 0
    for tensor in model.parameters():
        if part_of(tensor).shape == tensor.shape:
            whole += part_of(tensor).nbytes
        else:
            sharded += part_of(tensor).nbytes
    return sharded, whole


def differences(one, other):
    one, other = dict(one.named_parameters()), dict(other.named_parameters())
    return sorted(one.keys() ^ other.keys()) + [name for name in one.keys() & other.keys()
                                                if not torch.equal(part_of(one[name]), part_of(other[name]))]


def logits_of(model):
    with torch.no_grad():
        return model(torch.arange(24).reshape(2, 12) * 7 % 500).logits


def run(case):
    def how():
        return {"tp_plan": "auto"} if case["how"] is None else {"distributed_config": DistributedConfig(**case["how"])}

    auto = transformers.AutoModelForCausalLM
    wanted = auto.from_pretrained(case["path"], **how())
    tensord.net.http.USER_AGENT = f"rank-{RANK}-{case['name']}"
    try:
        got = tensord.transformers.from_pretrained(auto, case["urls"][RANK], **how())
    except tensord.TensordError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    sharded, whole = held(wanted)
    return {"differ": differences(got, wanted), "equal": torch.equal(logits_of(got), logits_of(wanted)),
            "sharded": sharded, "whole": whole}


def main():
    cases, out = sys.argv[1:]
    transformers.logging.set_verbosity_error()
    with open(cases, encoding="utf-8") as file:
        results = {case["name"]: run(case) for case in json.load(file)}
    with open(f"{out}-{RANK}.json", "w", encoding="utf-8") as file:
        json.dump(results, file)
    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)     # while the interpreter ends, a thread of Gloo that still wants it can abort the process (PyTorch)


if __name__ == "__main__":
    main()
