#!/usr/bin/env python3
"""Writes tests/data/dcp/: a small distributed checkpoint by the real torch.distributed.checkpoint, of one process, and
EXPECTED.txt, what its reader makes of it: name, type, shape, hex of the bytes, separated by tabs and sorted by name.

    .venv/bin/python tests/data/make_dcp.py

The ids of a save (UUIDs) are replaced, so that every run writes the same.
"""
import json
import shutil
import warnings
from pathlib import Path
from unittest import mock
import uuid

import torch
import torch.distributed.checkpoint as dcp

OUT = Path(__file__).resolve().parent / "dcp"
DTYPES = {torch.float32: "F32", torch.int64: "I64", torch.bfloat16: "BF16", torch.uint8: "U8", torch.bool: "BOOL"}


def state():
    return {
        "model": {
            "weight": torch.arange(6, dtype=torch.float32).reshape(2, 3), "bias":
            torch.tensor([1.5, -2.0], dtype=torch.bfloat16), "mask": torch.tensor([True, False,
                                                                                   True]), "scalar": torch.tensor(7)
        },
        "bytes": torch.arange(5, dtype=torch.uint8),
        "empty": torch.empty(0, 3),
        "step": 3,
        "name": "run",
    }


def main():
    warnings.simplefilter("ignore")
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    with mock.patch.object(uuid, "uuid4", lambda: uuid.UUID(int=0)):
        dcp.save(state(), storage_writer=dcp.FileSystemWriter(OUT, single_file_per_rank=True, sync_files=False,
                                                              thread_count=1), no_dist=True)
    loaded = state()
    for tensor in [*loaded["model"].values(), loaded["bytes"]]:
        tensor.zero_()
    dcp.load(loaded, storage_reader=dcp.FileSystemReader(OUT), no_dist=True)
    tensors = {f"model.{k}": v for k, v in loaded["model"].items()} | {k: loaded[k] for k in ("bytes", "empty")}
    lines = [
        f"{name}\t{DTYPES[t.dtype]}\t{json.dumps(list(t.shape), separators=(',', ':'))}\t{bytes(t.contiguous().untyped_storage()).hex() if t.numel() else ''}\n"
        for name, t in sorted(tensors.items())
    ]
    (OUT / "EXPECTED.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
