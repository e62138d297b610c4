"""The files of a directory that a push sends: those that a server of the directory would list."""
from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import re
import stat
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple, Union

from .. import errors
from .sources import FileSource

MAX_DEPTH = 64  # of directories below each other
UNFINISHED = (".tmp", ".incomplete")
DCP_METADATA = ".metadata"  # the one hidden file that is listed, beside parts of a distributed checkpoint
DCP_PART = ".distcp"

Note = Callable[[str], None]
Globs = Union[str, Sequence[str]]


class File(FileSource):
    """A file, by its path in the model."""

    def __init__(self, path: str, physical: str, about: os.stat_result):
        super().__init__(physical, path, about)
        self.path = path


def find_files(directory: Any, include: Globs, exclude: Globs, note: Note) -> List[File]:
    """Returns the files below a directory whose paths match `include` (none: all) and not `exclude`, by path.

    Symlinks are followed within the directory, or within the cache if it is a snapshot of a Hugging Face cache. `note`
    is called for each file that is left out. Raises TensordError for a directory without files, for an item that cannot
    be sent (a folder that cannot be read, a symlink that leads nowhere), and for the folder of a cache itself.
    """
    top = os.path.realpath(os.fspath(directory))
    if not os.path.isdir(top):
        code = errno.ENOTDIR if os.path.exists(top) else errno.ENOENT
        raise OSError(code, os.strerror(code), os.fspath(directory))
    walk = _Walk(top, _Globs(include, exclude), note)
    walk.run()
    if not walk.files:
        which = " that can be sent and that include and exclude let through" if walk.seen else ""
        raise errors.TensordError(f"{os.fspath(directory)!r} has no files{which}")
    return sorted(_without_stray_metadata(walk.files), key=lambda file: os.fsencode(file.path))


class _Globs:
    """Which paths a push takes."""

    def __init__(self, include: Globs, exclude: Globs):
        self._include, self._exclude = [[_compiled(one) for one in _listed(globs, name)] for globs, name in
                                        ((include, "include"), (exclude, "exclude"))]

    def take(self, path: str) -> bool:
        """Returns whether a path is taken."""
        return ((not self._include or any(one.match(path) for one in self._include)) and
                not any(one.match(path) for one in self._exclude))


def _listed(globs: Globs, name: str) -> List[str]:
    """Returns one glob, or several, as a list. Raises TypeError."""
    found = [globs] if isinstance(globs, str) else list(globs)
    if not all(isinstance(glob, str) for glob in found):
        raise TypeError(f"{name} is a glob or a list of globs, such as \"*.safetensors\"")
    return found


def _compiled(glob: str) -> "re.Pattern[str]":
    """Compiles a glob of this project: fnmatch's, in which a backslash before a character quotes it, and `^` negates a
    set as `!` does."""
    quoted = re.sub(r"\\([*?\[])|\\(.)|\[\^", lambda found: f"[{found[1]}]" if found[1] else found[2] or "[!", glob)
    return re.compile(fnmatch.translate(quoted), re.DOTALL)


@dataclass(frozen=True)
class _Folder:
    """A directory to visit: its place on disk, its path in the model, and those above it, which a loop leads to."""

    physical: str
    path: str
    above: Tuple[Tuple[int, int], ...] = ()


class _Walk:
    """The walk of a directory, without recursion."""

    def __init__(self, top: str, globs: _Globs, note: Note):
        self.files: List[File] = []
        self.seen = 0
        self._top, self._globs, self._note = top, globs, note
        self._bounds = _cache_of(top) or top  # links may lead below it
        self._left = [_Folder(top, "")]

    def run(self) -> None:
        """Finds the files. Raises TensordError, OSError."""
        _refuse_cache_folder(self._top)
        while self._left:
            self._visit(self._left.pop())

    def _visit(self, folder: _Folder) -> None:
        try:
            with os.scandir(folder.physical) as items:
                about = os.stat(folder.physical)
                here = (about.st_dev, about.st_ino)
                if here in folder.above:  # a loop of symlinks ends here
                    return
                if len(folder.above) > MAX_DEPTH:
                    raise self._fault(folder.path, f"it is nested deeper than {MAX_DEPTH} directories")
                inner = _Folder(folder.physical, folder.path, (*folder.above, here))
                for item in items:
                    self._visit_item(inner, item)
        except OSError as error:
            raise self._fault(folder.path or ".", error.strerror or str(error)) from error

    def _visit_item(self, folder: _Folder, item: "os.DirEntry[str]") -> None:
        name = item.name
        if (name.startswith(".") and name != DCP_METADATA) or name.endswith(UNFINISHED):
            return
        if name == "lost+found" and not folder.path:  # file systems have it, and only root reads it
            return
        path = f"{folder.path}/{name}" if folder.path else name
        try:
            path.encode()
        except UnicodeEncodeError:
            raise self._fault(path.encode(errors="backslashreplace").decode(), "its name is not UTF-8") from None
        self.seen += 1
        try:
            is_link, about = item.is_symlink(), os.stat(item.path)
            if is_link and not self._is_within(os.path.realpath(item.path)):
                self._leave_out(path, "is a symlink that leads outside DIR")
                return
        except OSError as error:
            if not os.path.lexists(item.path):  # it was removed just then
                return
            self._refuse_link(path, item.path, error)
            return
        if stat.S_ISDIR(about.st_mode):
            if self._bounds == self._top and _cache_id(name):
                raise self._fault(path, "it is the folder of a Hugging Face cache: push its snapshot, "
                                        "snapshots/COMMIT in it")
            self._left.append(_Folder(item.path, path, folder.above))
        elif not stat.S_ISREG(about.st_mode):
            self._leave_out(path, "is not a regular file")
        elif self._globs.take(path):
            self.files.append(File(path, item.path, about))

    def _is_within(self, physical: str) -> bool:
        return physical == self._bounds or physical.startswith(self._bounds.rstrip(os.sep) + os.sep)

    def _leave_out(self, path: str, why: str) -> None:
        if self._globs.take(path):
            self._note(f'"{errors.printable(path)}" is left out: it {why}')

    def _refuse_link(self, path: str, physical: str, error: OSError) -> None:
        """Raises the fault of a symlink that cannot be followed, unless the patterns leave it out or it leads out of
        the directory."""
        if not self._globs.take(path):
            return
        if error.errno != errno.ELOOP and not self._is_within(os.path.realpath(physical)):
            self._leave_out(path, "is a symlink that leads outside DIR")
            return
        why = {errno.ENOENT: "leads to something that does not exist",
               errno.ELOOP: "leads in a circle, or through too many others"}.get(error.errno or 0, "cannot be followed")
        raise self._fault(path, f"it is a symlink that {why}")

    def _fault(self, path: str, why: str) -> errors.TensordError:
        return errors.TensordError(f'{self._top!r}: "{errors.printable(path)}" cannot be sent: {why}')


def _without_stray_metadata(files: List[File]) -> Iterator[File]:
    """Yields the files but for each .metadata that has no part of a distributed checkpoint beside it."""
    parts = {os.path.dirname(file.path) for file in files if file.path.endswith(DCP_PART)}
    for file in files:
        if os.path.basename(file.path) != DCP_METADATA or os.path.dirname(file.path) in parts:
            yield file


def _cache_id(name: str) -> bool:
    """Returns whether a folder has the name of a repository in a Hugging Face cache, such as models--org--name."""
    return re.fullmatch(r"(models|datasets)--(?!\.)(?:(?!--).)+(--(?![.])(?:(?!--).)+)*", name) is not None


def _cache_of(physical: str) -> Optional[str]:
    """Returns the folder of the cache that a directory is a snapshot of, or in one of; None for any other."""
    found = re.match(r"(.*/([^/]+))/snapshots/[^/]+(/|$)", physical)
    return found[1] if found and _cache_id(found[2]) else None


def _refuse_cache_folder(physical: str) -> None:
    """Raises TensordError for the folder of a repository in a cache, whose files are blobs without names."""
    if not _cache_id(os.path.basename(physical)):
        return
    with contextlib.suppress(OSError):
        commits = sorted(os.listdir(os.path.join(physical, "snapshots")))
        if commits:
            raise errors.TensordError(f"{physical!r} is the folder of a Hugging Face cache: give its snapshot, "
                                      f"snapshots/{commits[0]} in it")
