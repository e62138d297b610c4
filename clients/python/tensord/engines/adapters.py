"""Copies of LoRA adapters of a server in a folder, for engines that read adapters from a disk.

An adapter is a model with adapter_config.json and a file of weights. A copy is a folder with these two files; the
folder's name is made of their SHA-256, so other content has another path, and the folder appears by one rename. Beside
the copies there is, for each name of an adapter, a file that says what the server had when the copy was made.
"""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
from typing import Any, Iterator, List, NamedTuple, Optional, Set, Tuple

from .. import errors
from ..address import Urls, is_url, parse
from ..client import connect
from ..net import resources
from ..net.retry import Patience
from ..tensors.versions import read_versions

log = logging.getLogger("tensord")

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt")  # the first that is there counts
MAX_NAME = 500  # characters
MAX_CONFIG_BYTES = 1024 * 1024
MAX_WEIGHTS_BYTES = 16 * 1024**3
RETRY_SECONDS = 10.0  # a request to the engine waits as long
COPY_TRIES = 3  # of an adapter that changes while it is copied
_REFUSED = (400, 404, 422)  # the server has no such adapter, or no adapter under such a name


class _File(NamedTuple):
    """A file of an adapter: its path, its bytes, and a tag of its content: its SHA-256 (`is_digest`) once the server
    knows that, its entity tag before."""

    path: str
    size: int
    tag: str
    is_digest: bool


class Adapters:
    """The adapters below a URL, and their copies below a folder. For any number of threads and processes."""

    def __init__(self, url: Urls, folder: str):
        """`url`: of a server, or of the prefix of the adapters' ids on it. Raises AddressError."""
        address = parse(url)
        if address.dataset or address.checkpoint is not None or address.version is not None:
            raise errors.AddressError(f"{url!r} names no prefix of adapters: it is tensord://host:port/PREFIX")
        self._session = connect(url, retry_for=RETRY_SECONDS, progress=False).session
        self._prefix = address.model
        self._folder = os.path.abspath(os.path.expanduser(folder))

    def find(self, name: str, base: str) -> Optional[str]:
        """Returns the folder of a copy of the adapter `name`, or `name@version`, which is made if there is none of what
        the server has now; without a version, of the latest.

        Returns None if the server has no adapter of LoRA of that name for the model `base`. Raises ConnectError,
        ProtocolError and other refusals of the server; OSError.
        """
        adapter, version = _split(name)
        if adapter is None:
            return None
        model = f"{self._prefix}/{adapter}" if self._prefix else adapter
        try:
            if version is None:
                version = self._latest(model)
            return self._current_copy(model, version, _names_of(base))
        except errors.AnswerError as error:
            if error.status not in _REFUSED:
                raise
            log.info("no adapter %r: %s", name, error)
            return None

    def _latest(self, model: str) -> Optional[str]:
        """Returns the name of the latest version of an adapter; None if it has no versions."""
        try:
            return read_versions(self._session, model).latest
        except errors.NotFoundError:  # also a server that does not know versions
            return None

    def _current_copy(self, model: str, version: Optional[str], bases: Set[str]) -> Optional[str]:
        files = self._files(model, version)
        if files is None:
            return None
        with self._state(model, version) as state:
            for _ in range(COPY_TRIES):
                folder = self._known(state, files)
                if folder is not None:
                    return folder if _is_for(os.path.join(folder, CONFIG), model, bases) else None
                with contextlib.suppress(errors.ChangedError):
                    digests = self._fetch(model, version, files, state + ".files", bases)
                    if digests is None:
                        return None
                    if self._are_same(files, digests, self._files(model, version)):
                        return self._publish(state, files, digests)
                files = self._files(model, version)
                if files is None:
                    return None
        raise errors.ChangedError(f"the adapter {model} changed on the server each time it was copied", 412,
                                  "FAILED_PRECONDITION")

    def _files(self, model: str, version: Optional[str]) -> Optional[List[_File]]:
        """Returns the two files of an adapter as the server has them now; None if it lacks one, or one is too large."""
        rows = {row["path"]: row for row in resources.files_of(self._session, model, version)}
        weights = next((path for path in WEIGHTS if path in rows), None)
        if CONFIG not in rows or weights is None:
            log.warning("%s is not an adapter: it lacks %s", model, CONFIG if weights else WEIGHTS[0])
            return None
        files = []
        for path, limit in ((CONFIG, MAX_CONFIG_BYTES), (weights, MAX_WEIGHTS_BYTES)):
            size, tag = rows[path]["size"], rows[path].get("sha256")
            if not 0 <= size <= limit:
                log.warning("%s is not taken as an adapter: its %s has %d bytes, of at most %d", model, path, size,
                            limit)
                return None
            if isinstance(tag, str) and re.fullmatch("[0-9a-f]{64}", tag):
                files.append(_File(path, size, tag, True))
                continue
            source = resources.source_of(self._session, model, path, version)
            tag = source.first(Patience(self._session.options)).etag
            is_digest = re.fullmatch('"[0-9a-f]{64}"', tag) is not None  # the server has learned it since
            files.append(_File(path, size, tag.strip('"') if is_digest else tag, is_digest))
        return files

    @staticmethod
    def _are_same(files: List[_File], digests: List[str], now: Optional[List[_File]]) -> bool:
        """Returns whether fetched files with these SHA-256 are what the server has now."""
        return now is not None and all(
            new.path == old.path and new.size == old.size and
            new.tag == (digest if new.is_digest else old.tag)
            for new, old, digest in zip(now, files, digests))

    @contextlib.contextmanager
    def _state(self, model: str, version: Optional[str]) -> Iterator[str]:
        """Holds the lock of an adapter's copies, and gives the path of the file about them."""
        key = json.dumps([sorted(map(str, self._session.endpoints)), model, version])
        folder = os.path.join(self._folder, ".state")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, hashlib.sha256(key.encode()).hexdigest())
        with open(path + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield path
            finally:
                shutil.rmtree(path + ".files", ignore_errors=True)

    def _known(self, state: str, files: List[_File]) -> Optional[str]:
        """Returns the folder of a copy of these files, or None."""
        try:
            with open(state, encoding="utf-8") as file:
                known = {(row["path"], row["tag"]): row["sha256"] for row in json.load(file)}
        except (OSError, ValueError, KeyError, TypeError):  # no copy was made, or the file is damaged
            known = {}
        # the server learns the SHA-256 of one file after the other
        digests = [one.tag if one.is_digest else str(known.get((one.path, one.tag))) for one in files]
        folder = self._folder_of(files, digests)
        is_there = all(os.path.isfile(os.path.join(folder, file.path)) and
                       os.path.getsize(os.path.join(folder, file.path)) == file.size for file in files)
        return folder if is_there else None

    def _folder_of(self, files: List[_File], digests: List[str]) -> str:
        key = json.dumps([[file.path, digest] for file, digest in zip(files, digests)])
        return os.path.join(self._folder, hashlib.sha256(key.encode()).hexdigest())

    def _fetch(self, model: str, version: Optional[str], files: List[_File], staging: str,
               bases: Set[str]) -> Optional[List[str]]:
        """Writes the files to a new folder, and returns their SHA-256; None if the configuration is not for the base.
        """
        shutil.rmtree(staging, ignore_errors=True)  # of a process that was killed
        os.makedirs(staging)
        digests = []
        for file in files:
            path = os.path.join(staging, file.path)
            source = resources.source_of(self._session, model, file.path, version)
            if source.first(Patience(self._session.options)).nbytes != file.size:
                raise errors.ChangedError(f"{file.path} of {model} changed on the server while it was copied", 412,
                                          "FAILED_PRECONDITION")
            with open(path, "wb+") as target:
                resources.write_resource(self._session, source, target)
                os.fsync(target.fileno())
                target.seek(0)
                digests.append(_sha256_of(target))
            if file.path == CONFIG and not _is_for(path, model, bases):
                return None
        return digests

    def _publish(self, state: str, files: List[_File], digests: List[str]) -> str:
        """Renames the fetched files to their folder, which is returned, and notes what they are copies of."""
        folder = self._folder_of(files, digests)
        try:
            os.rename(state + ".files", folder)
        except OSError:
            if not os.path.isdir(folder):  # of another name with the same content
                raise
        with open(state + ".new", "w", encoding="utf-8") as file:
            json.dump([{"path": one.path, "tag": one.tag, "sha256": digest} for one, digest in zip(files, digests)],
                      file)
        os.rename(state + ".new", state)
        return folder


def _split(name: str) -> Tuple[Optional[str], Optional[str]]:
    """Returns the adapter and the version (None: the latest) of a name `adapter` or `adapter@version`; (None, None) for
    a name that no adapter has."""
    adapter, at, version = name.partition("@")
    parts = [*adapter.split("/"), *[version] * bool(at)]
    if (len(name) > MAX_NAME or any(part in ("", ".", "..") for part in parts) or "/" in version or
            re.search(r"[?#\\@]", adapter + version) or not name.isprintable()):
        return None, None
    return adapter, version if at else None


def _names_of(base: str) -> Set[str]:
    """Returns the names that an adapter may have for an engine's model: the engine's, and the id in its URL."""
    names = {base}
    if is_url(base):
        with contextlib.suppress(errors.AddressError):
            names.add(parse(base).model)
    return names


def _is_for(path: str, model: str, bases: Set[str]) -> bool:
    """Returns whether an adapter's configuration is one of LoRA for one of the names of a base model."""
    try:
        with open(path, "rb") as file:
            config = json.loads(file.read(MAX_CONFIG_BYTES + 1))
    except (ValueError, RecursionError) as error:
        log.warning("%s of %s is not JSON: %s", CONFIG, model, errors.printable(str(error)))
        return False
    config = config if isinstance(config, dict) else {}
    kind, base = config.get("peft_type"), config.get("base_model_name_or_path")
    if kind != "LORA" or not isinstance(base, str) or base not in bases:
        log.warning("%s is not an adapter for %s: it is of type %.100r, for %.300r", model, " or ".join(sorted(bases)),
                    kind, base)
        return False
    return True


def _sha256_of(file: Any) -> str:
    digest = hashlib.sha256()
    while block := file.read(1024 * 1024):
        digest.update(block)
    return digest.hexdigest()
