"""`python -m tensord ls|get|bench URL`: a look at a server, a tensor in a file, and a measurement."""
from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, List, Optional, Tuple

from . import boxes, errors
from ._version import VERSION
from .address import parse
from .client import Client, Model, connect
from .reading import Want


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs a command, and returns its exit status: 0, or 1 after an error, which is printed in one line."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.run is None:
        parser.print_help()
        return 2
    try:
        chosen.run(chosen)
    except (errors.TensordError, ValueError, OSError, RuntimeError, ImportError) as error:
        print(f"tensord: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tensord: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tensord",
        description="Looks at, reads from and measures a tensord server. URL is tensord://host:port/MODEL or "
                    "http://host:port/models/MODEL.")
    parser.add_argument("--version", action="version", version=VERSION)
    parser.set_defaults(run=None)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("url", metavar="URL", help="of a server or of a model")
    common.add_argument("--token", help="sent to the server; else TENSORD_TOKEN")
    common.add_argument("--connections", type=int, default=8, metavar="N", help="the most connections (default: 8)")
    common.add_argument("--quiet", action="store_true", help="show no progress")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    command = commands.add_parser("ls", parents=[common], help="list models, or the tensors of a model")
    command.add_argument("--match", metavar="GLOB", help="only names that match")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_list)

    command = commands.add_parser("get", parents=[common],
                                  help="write a tensor's bytes, or a whole model as safetensors")
    command.add_argument("tensor", nargs="?", help="its name; without one the whole model is written")
    command.add_argument("-o", "--output", metavar="FILE", required=True,
                         help="the file to write; - for standard output")
    command.set_defaults(run=_get)

    command = commands.add_parser("bench", parents=[common], help="read a model into memory, and print the rate")
    command.add_argument("--match", metavar="GLOB", help="only tensors whose names match")
    command.add_argument("--rounds", type=int, default=3, metavar="N", help="the number of rounds (default: 3)")
    command.add_argument("--device", metavar="DEVICE", help="read into tensors of torch there, such as cuda")
    command.add_argument("--ring-bytes", type=int, metavar="N",
                         help="memory for bytes on the way to another device (default: 64 MiB)")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_bench)
    return parser


def _client(chosen: Any) -> Client:
    more = {} if getattr(chosen, "ring_bytes", None) is None else {"ring_bytes": chosen.ring_bytes}
    return connect(chosen.url, token=chosen.token, connections=chosen.connections,
                   progress=False if chosen.quiet else None, **more)


def _list(chosen: Any) -> None:
    client = _client(chosen)
    if not parse(chosen.url).model:
        models = client.models(chosen.match)
        if chosen.json:
            print(json.dumps(models, indent=1))
            return
        rows = [[row["id"], _size(row["total_bytes"]), ", ".join(c["format"] for c in row["checkpoints"])]
                for row in models]
        _print_table(["model", "size", "formats"], rows)
        return
    manifest = client.manifest(match=chosen.match)
    if chosen.json:
        print(json.dumps({"model": manifest.model, "checkpoint": manifest.checkpoint, "etag": manifest.etag,
                          "tensors": [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape), "nbytes": t.nbytes}
                                      for t in manifest.tensors.values()]}, indent=1))
        return
    rows = [[t.name, t.dtype, "x".join(map(str, t.shape)) or "-", _size(t.nbytes)] for t in manifest.tensors.values()]
    _print_table(["tensor", "dtype", "shape", "size"], rows)
    print(f"{len(rows)} tensors, {_size(manifest.total_bytes)}")


def _get(chosen: Any) -> None:
    model = _client(chosen).model()
    if chosen.tensor is not None:
        data = model.read_bytes(chosen.tensor)
        if chosen.output == "-":
            sys.stdout.buffer.write(data)
            return
        _write(chosen.output, [memoryview(data)])
        return
    if chosen.output == "-":
        raise ValueError("a whole model is written to a file, not to standard output")
    from .rank_file import write_rank

    part = f"{chosen.output}.part"
    try:
        write_rank(model, "none", 1, 0, part)
        os.replace(part, chosen.output)
    finally:
        if os.path.exists(part):
            os.unlink(part)


def _write(path: str, parts: List[memoryview]) -> None:
    part = f"{path}.part"
    try:
        with open(part, "wb") as file:
            for one in parts:
                file.write(one)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)


def _bench(chosen: Any) -> None:
    if chosen.rounds < 1:
        raise ValueError("--rounds is at least 1")
    model = _client(chosen).model()
    names = [name for name in model.names(chosen.match) if not model.manifest()[name].reason]
    total = sum(model.manifest()[name].nbytes for name in names)
    if total == 0:
        raise ValueError("there is nothing to read")
    wants = _wants_on(model, names, chosen.device) if chosen.device else _wants(model, names)
    rounds = [_round(model, wants) for _ in range(chosen.rounds)]
    rounds.sort()
    seconds, cpu = rounds[len(rounds) // 2]
    result = {"tensors": len(names), "bytes": total, "connections": chosen.connections, "rounds": chosen.rounds,
              "seconds": seconds, "gigabytes_per_second": total / seconds / 1e9,
              "cpu_seconds_per_gigabyte": cpu / total * 1e9}
    if chosen.json:
        print(json.dumps(result))
        return
    print(f"{len(names)} tensors, {_size(total)}, {chosen.connections} connections, median of {chosen.rounds}:")
    print(f"{result['gigabytes_per_second']:.2f} GB/s, {seconds:.3f} s, "
          f"{result['cpu_seconds_per_gigabyte']:.2f} s of this process's processor time per GB")


def _wants(model: Model, names: List[str]) -> List[Want]:
    """Returns what reads tensors into plain memory."""
    infos = [model.manifest()[name] for name in names]
    return [Want(boxes.whole(info.name, info.shape), view=memoryview(bytearray(info.nbytes))) for info in infos]


def _wants_on(model: Model, names: List[str], device: str) -> List[Want]:
    """Returns what reads tensors into tensors of torch on a device."""
    import torch

    from . import dtypes, memory

    wants = []
    for info in (model.manifest()[name] for name in names):
        made = torch.empty(dtypes.torch_shape(info.dtype, info.shape), dtype=dtypes.torch_dtype(info.dtype),
                           device=device)
        wants.append(memory.want_into(made, boxes.whole(info.name, info.shape), info.dtype))
    return wants


def _round(model: Model, wants: List[Want]) -> Tuple[float, float]:
    """Reads once. Returns the seconds and the processor time."""
    began, cpu = time.perf_counter(), time.process_time()
    model.reader().read(wants)
    return time.perf_counter() - began, time.process_time() - cpu


def _size(nbytes: int) -> str:
    if nbytes < 1024:
        return f"{nbytes} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        nbytes /= 1024
        if nbytes < 1024 or unit == "TiB":
            return f"{nbytes:.1f} {unit}"
    return ""


def _print_table(header: List[str], rows: List[List[str]]) -> None:
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(cell.rjust(width) if header[k] == "size" else cell.ljust(width)
                        for k, (cell, width) in enumerate(zip(row, widths))).rstrip())


if __name__ == "__main__":
    sys.exit(main())
