"""Changes of several files that become one commit for each model or dataset."""
from __future__ import annotations

from typing import Dict, Optional, Set, Tuple

from .place import Blob
from .repository import Repository


class Changes:
    """Files to write and to remove, gathered by repository."""

    def __init__(self) -> None:
        self._gathered: Dict[int, Tuple[Repository, Dict[str, Blob], Set[str]]] = {}

    def add(self, repository: Repository, path: str, blob: Optional[Blob]) -> None:
        """Adds a file, or with None the removal of one. The last change of a path counts."""
        _, files, removed = self._gathered.setdefault(id(repository), (repository, {}, set()))
        if blob is None:
            files.pop(path, None)
            removed.add(path)
        else:
            removed.discard(path)
            files[path] = blob

    def apply(self) -> None:
        """Makes the commits, one after the other. Raises the errors of `Repository.commit`."""
        for repository, files, removed in self._gathered.values():
            repository.commit(files, keep=True, delete=sorted(removed))
