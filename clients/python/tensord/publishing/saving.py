"""Writes tensors to a server: one file of safetensors, or a model in several."""
from __future__ import annotations

import json
import posixpath
import re
import threading
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .. import errors
from ..address import Urls
from ..net.progress import Progress
from ..net.retry import RETRIED_STATUSES
from ..net.session import Session
from ..options import MIB, Options
from .place import Blob
from .push import PushedFile, PushResult
from .repository import Commit, Repository
from .sending import Tally
from .sources import split_views
from .tensor_bytes import wait_for_devices
from .tensor_file import TensorFile, drop_shared, index_of, shared_groups, split, tensors_of

STEP_BYTES = 64 * MIB  # of one write
INDEX = "model.safetensors.index.json"
WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")  # files of an earlier model


def save_file(tensors: Mapping[str, Any], url: Urls, metadata: Optional[Mapping[str, str]] = None, *,
              revision: Optional[str] = None, message: Optional[str] = None, parent: Optional[str] = None,
              options: Optional[Options] = None, **given: Any) -> Commit:
    """Writes tensors to a file of safetensors on a server, as one commit that keeps the other files.

    The bytes come straight from the tensors' memory, and are those of safetensors' own save_file.

    `tensors`: of torch or arrays of numpy, by name, on any device and of any layout. `url`: of the file, such as
    tensord://host:port/org/name/model.safetensors. `metadata`: texts for the file's header. `revision`, `message`,
    `parent`: as of `push`. `given`: options of `tensord.Options`, by name.

    Raises TypeError or ValueError for what cannot be saved; RuntimeError for tensors that share memory, which
    `save_model` saves once; and as `push`. Then the server's files are as before.
    """
    with Repository.open(url, options, **given) as repo:
        folder, name = posixpath.split(repo.folder)
        if not name:
            raise errors.AddressError(f"{url!r} does not name a file: tensord://host:port/org/name/model.safetensors")
        found = tensors_of(tensors)
        for group in shared_groups(found):
            names = ", ".join(sorted(tensor.name for tensor in group))
            raise RuntimeError(f"{names} share memory, which a file would hold once for each: tensord.save_model saves "
                               "it once")
        file = TensorFile(name, found, metadata, repo.options.ring_bytes)
        wait_for_devices(found)
        blobs = _send_all(repo, [file], f"saving {repo}")
        return repo.at(folder, revision).commit({name: blobs[0]}, keep=True, parent=parent, message=message)


def save_model(model: Any, url: Urls, *, max_shard_size: Union[int, str] = "5GB", config: Any = None,
               files: Optional[Mapping[str, Any]] = None, metadata: Optional[Mapping[str, str]] = None,
               revision: Optional[str] = None, message: Optional[str] = None, parent: Optional[str] = None,
               keep: Optional[bool] = None, options: Optional[Options] = None, **given: Any) -> PushResult:
    """Writes a model to a server as files of safetensors, all at once, and returns the commit.

    The bytes come straight from the tensors' memory; nothing is written to a disk here. Files and index have the names
    that huggingface_hub and transformers give them. A tensor that shares the memory of another is saved once, as by
    safetensors' save_model.

    `model`: a module of torch, or tensors by name. `url`: of the model, as of `push`; in a folder of it, older files of
    the same names as these go, and all others stay. `max_shard_size`: bytes of tensors in one file, or a text such as
    "500MB". `config`: config.json, as an object of JSON, a text, bytes, or an object of transformers; the `config` of a
    module of transformers by default. `files`: further files, by path: bytes, the path of a file, or a binary file.
    `metadata`: texts for the header of each file, beside `"format": "pt"`. `keep`: whether other files of the revision
    stay; by default they do if the URL names a folder. `revision`, `message`, `parent`, `given`: as of `push`.

    Raises TypeError or ValueError for what cannot be saved; RuntimeError for tensors that overlap in memory where none
    has all of it; and as `push`. Then the server's files are as before.
    """
    with Repository.open(url, options, **given) as repo:
        keep = bool(repo.folder) if keep is None else keep
        repo.check_keep(keep)
        values, dropped = without_shared(model, list(getattr(model, "_tied_weights_keys", None) or ()))
        tensors = tensors_of(values)
        shards = split(tensors, max_shard_size)
        header = {"format": "pt", **(dropped if len(shards) == 1 else {}), **(metadata or {})}
        sent = _send_files(repo, _extra_files(model, config, files))
        if len(shards) > 1:
            sent.update(_send_files(repo, {INDEX: index_of(shards, dropped)}))
        wait_for_devices(tensors)
        count = min(repo.options.connections, len(shards))
        made = [TensorFile(shard.name, shard.tensors, header, max(MIB, repo.options.ring_bytes // count))
                for shard in shards]
        blobs = _send_all(repo, made, f"saving {repo}")
        sent.update((file.name, blob) for file, blob in zip(made, blobs))
        target = repo.at(revision=revision)
        stale = [name for name in target.names() if WEIGHTS.fullmatch(name) and name not in sent] if keep else []
        commit = target.commit(sent, keep, stale, parent=parent, message=message)
        pushed = [PushedFile(path, blob.size, blob.digest.partition(":")[2], blob.size)
                  for path, blob in sorted(sent.items())]
        return PushResult.of(commit, pushed, sum(file.bytes for file in pushed))


def without_shared(model: Any, discard: Sequence[str] = ()) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Returns the tensors of a module, or of a dict by name, without those that others hold: and of these, by which
    name. `discard` and errors as of `drop_shared`."""
    values = model.state_dict() if hasattr(model, "state_dict") else model
    dropped = drop_shared(tensors_of(values), discard)
    return {name: value for name, value in values.items() if name not in dropped}, dropped


def _extra_files(model: Any, config: Any, files: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Returns the files beside the weights, by path."""
    found = dict(files or {})
    own = getattr(model, "config", None)
    if config is None and own is not None and hasattr(own, "to_json_string"):
        config = json.loads(own.to_json_string())
        config.setdefault("architectures", [type(model).__name__])
    if config is not None:
        found["config.json"] = _json_of(config)
    generation = getattr(model, "generation_config", None)
    if generation is not None and hasattr(generation, "to_json_string"):
        found.setdefault("generation_config.json", generation.to_json_string().encode())
    return found


def _json_of(config: Any) -> bytes:
    """Returns a configuration as bytes of JSON. Raises TypeError for anything else."""
    if hasattr(config, "to_json_string"):
        config = config.to_json_string()
    if isinstance(config, str):
        return config.encode()
    if isinstance(config, (bytes, bytearray, memoryview)):
        return bytes(config)
    return (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()


def _send_files(repo: Repository, files: Mapping[str, Any]) -> Dict[str, Blob]:
    return {path: repo.send(source) for path, source in files.items()}


def _send_all(repo: Repository, files: Sequence[TensorFile], what: str) -> List[Blob]:
    """Sends files, several at once. Returns their blobs."""
    blobs: List[Optional[Blob]] = [None] * len(files)
    with Progress(sum(file.nbytes for file in files), what, repo.options.progress) as progress:

        def send_one(session: Session, number: int, stopping: threading.Event) -> None:
            blobs[number] = _send_one(repo.with_session(session), files[number], progress, stopping)

        repo.do_all(range(len(files)), send_one, min(len(files), repo.options.connections))
    return [blob for blob in blobs if blob is not None]


def _send_one(repo: Repository, file: TensorFile, progress: Progress, stopping: threading.Event) -> Blob:
    """Sends a file while it is made and hashed. If that breaks off, hashes the rest, and sends it in parts, which
    resume."""
    done = 0
    out = repo.stream(file.nbytes)
    try:
        with out:
            for view in split_views(file.views(0, file.nbytes), STEP_BYTES):
                out.write(view)
                done += len(view)
                progress.add(len(view))
        return out.blob
    except (errors.ConnectError, errors.ProtocolError):
        if stopping.is_set() or not out.has_begun:
            raise
    except errors.AnswerError as error:
        if error.status not in RETRIED_STATUSES or not out.has_begun:
            raise
    progress.add(-done)
    return repo.send(file, Tally(progress.add))
