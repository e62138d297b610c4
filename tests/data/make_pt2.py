#!/usr/bin/env python3
"""Writes tests/data/pt2/: small archives of torch.export.save, and beside each NAME.pt2 a NAME.txt with what torch.export.load
gives, a line per tensor as make_npy.py writes them.

    .venv/bin/python tests/data/make_pt2.py
"""
import pathlib
import zipfile
import zlib

import torch
from torch import nn
from torch._export.serde.serialize import serialize
from torch.export.pt2_archive._package import PT2ArchiveWriter

OUT = pathlib.Path(__file__).resolve().parent / "pt2"
WORDS = {torch.float32: "F32", torch.int64: "I64", torch.bfloat16: "BF16"}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.).reshape(2, 3))
        self.tied = self.weight
        self.turned = nn.Parameter(torch.arange(6.).to(torch.bfloat16).reshape(3, 2).t())
        self.register_buffer("steps", torch.arange(3))
        self.constant = torch.arange(3.) + 1

    def forward(self, x):
        return x * self.weight + self.tied + self.turned.float() + self.steps + self.constant


def write_current(program, path):
    torch.export.save(program, path)


def write_2_8(program, path):
    """As torch 2.8 did."""
    artifact = serialize(program)
    with PT2ArchiveWriter(str(path)) as archive:
        for name, data in (("models/model.json", artifact.exported_program), ("data/weights/model.pt", artifact.state_dict),
                           ("data/constants/model.pt", artifact.constants), ("data/sample_inputs/model.pt", artifact.example_inputs)):
            archive.write_bytes(name, data)


def write_2_7(program, path):
    """As torch 2.7 and before did."""
    artifact = serialize(program)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (("version", ".".join(map(str, torch._export.serde.schema.SCHEMA_VERSION))),
                           ("serialized_exported_program.json", artifact.exported_program), ("serialized_state_dict.pt", artifact.state_dict),
                           ("serialized_constants.pt", artifact.constants), ("serialized_example_inputs.pt", artifact.example_inputs)):
            archive.writestr(zipfile.ZipInfo(name), data)  # with no date


WRITERS = {"current": write_current, "torch_2_8": write_2_8, "torch_2_7": write_2_7}


def load(path):
    """The state_dict and the constants that are tensors, by name."""
    program = torch.export.load(str(path))
    return {**program.state_dict, **{k: v for k, v in program.constants.items() if isinstance(v, torch.Tensor)}}


def describe(tensors):
    lines = []
    for name in sorted(tensors, key=str.encode):
        t = tensors[name].detach()
        order = "C" if t.is_contiguous() else "F"
        data = t.contiguous().flatten().view(torch.uint8).numpy().tobytes()
        lines.append(f"{name}|{WORDS[t.dtype]}|[{','.join(map(str, t.shape))}]|{order}|-|{zlib.crc32(data):08x}\n")
    return "".join(lines)


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for name, write in WRITERS.items():
        program = torch.export.export(Net(), (torch.ones(2, 3),))
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # names where this file lies
        write(program, OUT / f"{name}.pt2")
        (OUT / f"{name}.txt").write_text(describe(load(OUT / f"{name}.pt2")))
