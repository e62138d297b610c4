#!/usr/bin/env python3
"""Writes tests/data/pt2/: small archives of torch.export.save, and beside each NAME.pt2 a NAME.txt with what torch.export.load
gives, a line per tensor as make_npy.py writes them; of deflated ones, which torch.export.load reads as well, that they are.

    .venv/bin/python tests/data/make_pt2.py
"""
import io
import pathlib
import re
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
        for name, data in (("models/model.json", artifact.exported_program), ("data/weights/model.pt",
                                                                              artifact.state_dict),
                           ("data/constants/model.pt", artifact.constants), ("data/sample_inputs/model.pt",
                                                                             artifact.example_inputs)):
            archive.write_bytes(name, data)


def write_2_7(program, path):
    """As torch 2.7 and before did."""
    artifact = serialize(program)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (("version", ".".join(map(str, torch._export.serde.schema.SCHEMA_VERSION))),
                           ("serialized_exported_program.json", artifact.exported_program), ("serialized_state_dict.pt",
                                                                                             artifact.state_dict),
                           ("serialized_constants.pt", artifact.constants), ("serialized_example_inputs.pt",
                                                                             artifact.example_inputs)):
            archive.writestr(zipfile.ZipInfo(name), data)  # with no date


WRITERS = {"current": write_current, "torch_2_8": write_2_8, "torch_2_7": write_2_7}


def load(path):
    """The state_dict and the constants that are tensors, by name."""
    program = torch.export.load(str(path))
    return {**program.state_dict, **{k: v for k, v in program.constants.items() if isinstance(v, torch.Tensor)}}


def repack(data, change, method):
    """The archive again, with change(name, bytes) of each member."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w") as made:
        for info in source.infolist():
            made.writestr(zipfile.ZipInfo(info.filename), change(source.read(info)), method)
    return out.getvalue()


def deflated(data):
    """Every member deflated; PyTorch's reader (miniz) takes it."""
    return repack(data, bytes, zipfile.ZIP_DEFLATED)


def inner_deflated(data):
    """Stored members; those that torch.save wrote are deflated archives themselves."""
    return repack(data, lambda member: deflated(member) if member[:4] == b"PK\3\4" else member, zipfile.ZIP_STORED)


REPACKED = {"deflated": ("current", deflated), "torch_2_8_deflated": ("torch_2_8", deflated),
            "torch_2_7_inner_deflated": ("torch_2_7", inner_deflated)}


def describe(tensors):
    lines = []
    for name in sorted(tensors, key=str.encode):
        t = tensors[name].detach()
        order = "C" if t.is_contiguous() else "F"
        data = t.contiguous().flatten().view(torch.uint8).numpy().tobytes()
        lines.append(f"{name}|{WORDS[t.dtype]}|[{','.join(map(str, t.shape))}]|{order}|-|{zlib.crc32(data):08x}\n")
    return "".join(lines)


def write_repacked():
    for name, (source, change) in REPACKED.items():
        path = OUT / f"{name}.pt2"
        path.write_bytes(change((OUT / f"{source}.pt2").read_bytes()))
        path.with_suffix(".txt").write_text(
            re.sub(r"-\|[0-9a-f]{8}$", "compressed (deflate)|-", describe(load(path)), flags=re.M))


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for name, write in WRITERS.items():
        program = torch.export.export(Net(), (torch.ones(2, 3),))
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # names where this file lies
        write(program, OUT / f"{name}.pt2")
        (OUT / f"{name}.txt").write_text(describe(load(OUT / f"{name}.pt2")))
    write_repacked()
