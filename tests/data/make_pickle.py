#!/usr/bin/env python3
"""Writes tests/data/pickle: pickles by Python and by torch, and beside them what they hold, told without unpickling.

plain.N.pkl    one value in protocol N; plain.txt is that value as tests/unit/parser/test_pickle_files.c writes it
state.pkl      data.pkl of a state dict that torch.save wrote; state.txt has a line "name size stride" for each tensor
optimizer.pkl  likewise of an optimizer's state dict; optimizer.txt has its names with dots
"""

import pathlib
import pickle
import struct

import torch

OUT = pathlib.Path(__file__).resolve().parent / "pickle"

PLAIN = {
    "none": None,
    "yes": True,
    "no": False,
    "small": 7,
    "byte": 255,
    "word": 65535,
    "int": -(2**31),
    "long": 2**31,
    "max": 2**63 - 1,
    "min": -(2**63),
    "big": 2**63,
    "bigger": -(2**300) - 1,
    "huge": 7**900,
    "half": 0.5,
    "minus zero": -0.0,
    "infinite": float("inf"),
    "tiny": 5e-324,
    "": "",
    "naïve": "ä\n\\'\"\x00名😀",
    "lone": "\ud800",
    "long text": "x" * 300,
    "tuple": ((), (1, ), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    "list": [[], [1], list(range(40))],
    "dict": {},
    3: "int key",
    2.5: "float key",
    (1, "t"): "tuple key",
    None: "none key",
}


def text(value):
    """The value, as the C test writes it."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return str(value)
        return "i" + value.to_bytes(
            ((value if value >= 0 else ~value).bit_length()) // 8 + 1, "little", signed=True).hex()
    if isinstance(value, float):
        return "f" + struct.pack("<d", value).hex()
    if isinstance(value, str):
        return "s" + value.encode("utf-8", "surrogatepass").hex()
    if isinstance(value, dict):
        return "{" + "".join(f"{text(k)}:{text(v)}," for k, v in value.items()) + "}"
    opened, closed = "()" if isinstance(value, tuple) else "[]"
    return opened + "".join(text(v) + "," for v in value) + closed


def data_pkl(obj):
    path = OUT / "tmp.pt"
    torch.save(obj, path)
    data = torch._C.PyTorchFileReader(str(path)).get_record("data.pkl")
    path.unlink()
    return data


def main():
    OUT.mkdir(exist_ok=True)
    for protocol in range(6):
        (OUT / f"plain.{protocol}.pkl").write_bytes(pickle.dumps(PLAIN, protocol))
    (OUT / "plain.txt").write_text(text(PLAIN) + "\n")
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2, bias=False))
    state = module.state_dict()
    (OUT / "state.pkl").write_bytes(data_pkl(state))
    (OUT / "state.txt").write_text("".join(f"{n} {text(tuple(t.shape))} {text(t.stride())}\n"
                                           for n, t in state.items()))
    optimizer = torch.optim.AdamW(module.parameters())
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    state = optimizer.state_dict()
    (OUT / "optimizer.pkl").write_bytes(data_pkl(state))
    (OUT / "optimizer.txt").write_text("".join(f"{i} {n} {text(tuple(t.shape))}\n" for i, s in state["state"].items()
                                               for n, t in s.items()))


if __name__ == "__main__":
    main()
