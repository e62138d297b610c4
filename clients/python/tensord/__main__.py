"""`python -m tensord ls|versions|get|rows|bench URL`: looks at a server, a tensor in a file, rows, and a measurement;
`python -m tensord push DIR URL`: the files of a directory become a commit."""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import json
import logging
import os
import re
import stat
import sys
import tempfile
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import errors
from ._version import VERSION
from .address import glob_of, parse
from .client import Client, connect
from .net.buffer import empty_bytes
from .options import Options
from .publishing.place import place_of
from .publishing.push import push
from .rows.decoding import TABLES
from .rows.splits import DatasetInfo
from .tensors import boxes, dtypes, memory
from .tensors.model import Model
from .tensors.rank_file import write_rank
from .tensors.reading import Want
from .tensors.versions import read_versions

TEXT_FORMATS = ("jsonl", "csv")  # formats with one row per line


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs a command, and returns its exit status: 0, or 1 after an error, which is printed in one line."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.run is None:
        parser.print_help()
        return 2
    try:
        chosen.run(chosen)
    except (errors.TensordError, ValueError, IndexError, OSError, RuntimeError, ImportError, MemoryError) as error:
        print(f"tensord: {errors.printable(str(error)) or type(error).__name__}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tensord: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tensord",
        description="Looks at, reads from, writes to and measures a tensord server. URL is "
                    "https://host:port/models/MODEL of a server with TLS, and tensord://host:port/MODEL or "
                    "http://host:port/models/MODEL of one without: tensord:// is plain HTTP, tensords:// the same over "
                    "TLS. ?checkpoint=ID after it chooses a checkpoint, ?version=NAME a version. The URL of a dataset "
                    "is https://host:port/datasets/ID or tensord://host:port/datasets/ID. Several servers stand "
                    "between commas: https://a:8443,b:8443/models/MODEL.")
    parser.add_argument("--version", action="version", version=VERSION)
    parser.set_defaults(run=None, default_retry_for=None)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--token", help="sent to the server; else TENSORD_TOKEN")
    common.add_argument("--retry-for", type=float, metavar="SECONDS",
                        help="give up after this time without a byte (default: 10 for ls, versions and rows, else "
                             "120)")
    common.add_argument("--ca-file", metavar="FILE", help="certificates to trust with https://")
    common.add_argument("--cert-file", metavar="FILE",
                        help="this client's certificate, and its key if there is no --key-file, for a server that "
                             "wants one")
    common.add_argument("--key-file", metavar="FILE", help="the key of --cert-file")
    common.add_argument("--no-verify", action="store_true", help="accept any certificate")
    model = argparse.ArgumentParser(add_help=False)
    model.add_argument("url", metavar="URL", help="of a model")
    model.add_argument("--connections", type=int, default=8, metavar="N", help="the most connections (default: 8)")
    model.add_argument("--quiet", action="store_true", help="show no progress")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    command = commands.add_parser("ls", parents=[common],
                                  help="list models and datasets, the tensors of a model, or the splits of a dataset")
    command.add_argument("url", metavar="URL", help="of a server, a model or a dataset")
    command.add_argument("--match", metavar="GLOB", help="only models or tensors with names that match")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_list, default_retry_for=10.0)

    command = commands.add_parser("versions", parents=[common], help="list the versions of a model")
    command.add_argument("url", metavar="URL", help="of a model")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_versions, default_retry_for=10.0)

    command = commands.add_parser("get", parents=[model, common],
                                  help="write a tensor's bytes, or a whole model as safetensors")
    command.add_argument("tensor", nargs="?", help="its name; without one the whole model is written")
    command.add_argument("-o", "--output", metavar="FILE", required=True,
                         help="the file to write; - for standard output")
    command.set_defaults(run=_get)

    command = commands.add_parser("rows", parents=[common], help="print rows of a dataset of text, unchanged")
    command.add_argument("url", metavar="URL", help="of a dataset")
    command.add_argument("rows", metavar="START[:STOP]", help="a row's number, or the first and the end of a range")
    command.add_argument("--split", metavar="NAME", help="the split; not needed where there is one")
    command.set_defaults(run=_rows, default_retry_for=10.0)

    command = commands.add_parser("push", parents=[common],
                                  help="put the files of a directory into a model or dataset, as one commit")
    command.add_argument("directory", metavar="DIR", help="whose files are sent; symlinks are followed within it")
    command.add_argument("url", metavar="URL", help="of a model or dataset, which may not be there yet")
    command.add_argument("--revision", metavar="NAME", help="the branch or tag that moves (default: main)")
    command.add_argument("--message", metavar="TEXT", help="describes the commit")
    command.add_argument("--parent", metavar="COMMIT",
                         help="fail unless the revision is at this commit; \"\": unless there is none")
    command.add_argument("--keep", action="store_true", help="files of the revision that are not in DIR stay")
    command.add_argument("--include", metavar="GLOB", action="append", default=[],
                         help="only files with paths that match; may be given several times")
    command.add_argument("--exclude", metavar="GLOB", action="append", default=[],
                         help="not files with paths that match; may be given several times")
    command.add_argument("--connections", type=int, default=8, metavar="N", help="the most connections (default: 8)")
    command.add_argument("--json", action="store_true", help="print JSON, also after a failure")
    command.add_argument("--quiet", action="store_true", help="show no progress and no notes")
    command.set_defaults(run=_push)

    command = commands.add_parser("bench", parents=[model, common], help="read a model into memory, and print the rate")
    command.add_argument("--match", metavar="GLOB", help="only tensors with names that match")
    command.add_argument("--rounds", type=int, default=3, metavar="N", help="the number of rounds (default: 3)")
    command.add_argument("--device", metavar="DEVICE", help="read into tensors of torch there, such as cuda")
    command.add_argument("--ring-bytes", type=int, metavar="N",
                         help="memory for bytes on the way to another device (default: 64 MiB)")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_bench)
    return parser


class _CommandOptions(Options):
    """Options that messages call by their names on the command line."""

    def named(self, name: str) -> str:
        return "--no-verify" if name == "verify" else "--" + name.replace("_", "-")


def _options(chosen: Any) -> Options:
    retry_for = chosen.default_retry_for if chosen.retry_for is None else chosen.retry_for
    given = {"token": chosen.token, "retry_for": retry_for, "ca_file": chosen.ca_file,
             "cert_file": chosen.cert_file, "key_file": chosen.key_file,
             "connections": getattr(chosen, "connections", None), "ring_bytes": getattr(chosen, "ring_bytes", None)}
    given = {name: value for name, value in given.items() if value is not None}
    return _CommandOptions(progress=False if getattr(chosen, "quiet", True) else None, verify=not chosen.no_verify,
                           **given)


def _client(chosen: Any) -> Client:
    return connect(chosen.url, _options(chosen))


def _list(chosen: Any) -> None:
    client = _client(chosen)
    address = parse(chosen.url)
    if address.dataset:
        _list_splits(client.dataset_info(), chosen.json)
        return
    if not address.model:
        _list_all(client, chosen)
        return
    manifest = client.manifest(match=chosen.match)
    if chosen.json:
        print(json.dumps({"model": manifest.model, "checkpoint": manifest.checkpoint, "etag": manifest.etag,
                          **({"version": manifest.version} if manifest.version else {}),
                          "tensors": [{"name": t.name, "dtype": t.dtype, "shape": list(t.shape), "nbytes": t.nbytes,
                                       **({"reason": t.reason} if t.reason else {})}
                                      for t in manifest.tensors.values()]}, indent=1))
        return
    rows = [[t.name, t.dtype, "x".join(map(str, t.shape)) or "-", _size(t.nbytes),
             f"not readable: {t.reason}" if t.reason else ""] for t in manifest.tensors.values()]
    _print_table(["tensor", "dtype", "shape", "size", ""], rows)
    version = f", version {errors.printable(manifest.version)}" if manifest.version else ""
    print(f"{len(rows)} tensor{'' if len(rows) == 1 else 's'}, {_size(manifest.total_bytes)}{version}")
    about = client.models(match=glob_of(manifest.model))
    others = [str(one.get("id")) for row in about if row["id"] == manifest.model for one in row["checkpoints"]]
    if len(others) > 1:
        print(errors.printable(f"of checkpoint {manifest.checkpoint}; the model has {', '.join(others)}: "
                               "?checkpoint=ID after the URL chooses one"))


def _list_all(client: Client, chosen: Any) -> None:
    """Prints the models and the datasets of a server; with --match the models alone."""
    models = client.models(chosen.match)
    datasets = []
    if chosen.match is None:
        with contextlib.suppress(errors.NotFoundError):  # a server that has no datasets yet
            datasets = client.datasets()
    if chosen.json:
        print(json.dumps({"models": models, "datasets": datasets}, indent=1))
        return
    rows = [[row["id"], _size(row["total_bytes"]), ", ".join(dict.fromkeys(
        str(one.get("format", "?")) for one in row["checkpoints"])) or "not readable"] for row in models]
    if rows or not datasets:
        _print_table(["model", "size", "formats"], rows)
    if datasets:
        print(end="\n" * bool(rows))
        _print_table(["dataset", "splits"], [[row["id"], ", ".join(row["splits"])] for row in datasets])


def _list_splits(info: DatasetInfo, as_json: bool) -> None:
    if as_json:
        print(json.dumps(dataclasses.asdict(info), indent=1))
        return
    rows = []
    for split in info.splits.values():
        done = f" ({_size(split.done_bytes)} of {_size(split.index_bytes)})" if split.state == "building" else ""
        rows.append([split.name, split.format, "-" if split.rows is None else str(split.rows), _size(split.nbytes),
                     split.state + done, f"not readable by row: {split.reason}"
                     if split.reason and split.format not in TABLES else ", ".join(split.column_names or ())])
    _print_table(["split", "format", "rows", "size", "index", "columns"], rows)
    faults = [f"{file.path}: {file.error}" for split in info.splits.values() for file in split.files if file.error]
    for text in [*faults, *info.problems]:
        print(errors.printable(text))


def _versions(chosen: Any) -> None:
    model = _client(chosen).model()
    found = read_versions(model.session, model.id)
    if chosen.json:
        print(json.dumps({"model": model.id, "latest": found.latest, "versions": found.rows}, indent=1))
        return
    rows = []
    for row in found.rows:
        refs = row.get("refs")
        notes = [*["latest"] * (row["version"] == found.latest), *(map(str, refs) if isinstance(refs, list) else ()),
                 *[f"from {row['base']}"] * isinstance(row.get("base"), str)]
        rows.append([row["version"], "-" if row["number"] is None else str(row["number"]), row["kind"],
                     _size(row["file_bytes"]), str(row.get("updated") or "-"), ", ".join(notes)])
    _print_table(["version", "number", "kind", "size", "updated", ""], rows)


def _rows(chosen: Any) -> None:
    found = re.fullmatch(r"(-?[0-9]+)(:(-?[0-9]*))?", chosen.rows)
    if not found or found[3] == "-":
        raise ValueError(f"{chosen.rows} names no rows: it is a number, such as 5, or two, such as 5:10")
    client = _client(chosen)
    info = client.dataset_info()
    asked = chosen.split or parse(chosen.url).split
    if asked is None and len(info.splits) > 1:
        names = ", ".join(map(errors.printable, info.splits))
        raise ValueError(f"{info.id} has {len(info.splits)} splits ({names}): --split NAME chooses one")
    split = info.split(asked)
    if split.format not in TEXT_FORMATS:
        raise ValueError(f"rows of split {split.name} are of format {split.format}, which is not text; in Python, "
                         "tensord.Dataset reads them")
    dataset = client.dataset(split=split.name, decode=None)
    if found[2] is None:
        numbers = range(len(dataset))[int(found[1]) : int(found[1]) + 1 or None]
        if not numbers:
            dataset[int(found[1])]  # its answer has the number of rows
    else:
        numbers = range(len(dataset))[int(found[1]) : int(found[3]) if found[3] else None]
    size = dataset.fetcher.part_rows(2**20)
    for at in range(numbers.start, numbers.stop, size):
        rows = dataset.read_bytes(slice(at, min(at + size, numbers.stop)))
        sys.stdout.buffer.write(b"".join(row + b"\n" for row in rows))
    sys.stdout.buffer.flush()


def _get(chosen: Any) -> None:
    model = _client(chosen).model()
    if chosen.tensor is None:
        if chosen.output == "-":
            raise ValueError("a whole model is written to a file, not to standard output")
        with _output(chosen.output) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"a whole model is written to a regular file, which {chosen.output} is not")
            write_rank(model, "none", 1, 0, file)
    elif chosen.output == "-":
        sys.stdout.buffer.write(model.read_bytes(chosen.tensor))
    else:
        with _output(chosen.output) as file:
            file.write(model.read_bytes(chosen.tensor))


def _push(chosen: Any) -> None:
    options, begun = _options(chosen), time.monotonic()
    if chosen.quiet:
        logging.getLogger("tensord").setLevel(logging.ERROR)
    report: Dict[str, Any] = {"model": place_of(chosen.url).name, "revision": chosen.revision, "changed": False,
                              "files": [], "bytes": 0, "sent_bytes": 0}
    try:
        made = push(chosen.directory, chosen.url, revision=chosen.revision, message=chosen.message,
                    parent=chosen.parent, keep=chosen.keep, include=chosen.include, exclude=chosen.exclude,
                    options=options)
        report.update(revision=made.revision, commit=made.commit, changed=made.changed,
                      files=[file._asdict() for file in made.files], bytes=made.bytes, sent_bytes=made.sent_bytes)
    except Exception as error:
        report["error"] = str(error) or type(error).__name__
        raise
    finally:
        if chosen.json:
            print(json.dumps({**report, "seconds": time.monotonic() - begun}))
    if not chosen.json and not chosen.quiet:
        text = f"{len(made.files)} files, {_size(made.bytes)}; {_size(made.sent_bytes)} were sent"
        print(f"{made.commit}: {text}{'' if made.changed else '; nothing has changed'}")


@contextlib.contextmanager
def _output(path: str) -> Iterator[Any]:
    """Yields a file that takes the place of a regular file, or of nothing, once all is written to it. Devices and pipes
    are written to as they are. Raises OSError."""
    place = os.path.realpath(path)
    folder = os.path.dirname(place)
    if os.path.isdir(place):
        raise IsADirectoryError(errno.EISDIR, "this is a directory", path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no such directory", folder)
    if os.path.exists(place) and not os.path.isfile(place):
        with open(place, "wb") as file:
            yield file
        return
    if os.path.exists(place):
        mode = stat.S_IMODE(os.stat(place).st_mode)
    else:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    number, part = tempfile.mkstemp(prefix=os.path.basename(place)[:200] + ".", suffix=".part", dir=folder)
    try:
        with os.fdopen(number, "wb+") as file:
            yield file
        os.chmod(part, mode)
        os.replace(part, place)
    except BaseException:
        os.unlink(part)
        raise


def _bench(chosen: Any) -> None:
    if chosen.rounds < 1:
        raise ValueError(f"--rounds is {chosen.rounds}; it must be at least 1")
    model = _client(chosen).model()
    names = [name for name in model.names(chosen.match) if not model.manifest()[name].reason]
    total = sum(model.manifest()[name].nbytes for name in names)
    if total == 0:
        raise ValueError("there is nothing to read" if chosen.match is None else
                         f"no tensor that matches {chosen.match} has bytes that can be read")
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
    """Returns wants that read tensors into plain memory."""
    infos = [model.manifest()[name] for name in names]
    return [Want(boxes.whole(info.name, info.shape), view=memoryview(empty_bytes(info.nbytes))) for info in infos]


def _wants_on(model: Model, names: List[str], device: str) -> List[Want]:
    """Returns wants that read tensors into tensors of torch on a device."""
    import torch

    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"torch cannot use the device {device}: {str(error).splitlines()[0]}") from error
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
    size, units = nbytes / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.1f} {units[0]}"


def _print_table(header: List[str], rows: List[List[str]]) -> None:
    rows = [[errors.printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(cell.rjust(width) if header[k] == "size" else cell.ljust(width)
                        for k, (cell, width) in enumerate(zip(row, widths))).rstrip())


if __name__ == "__main__":
    sys.exit(main())
