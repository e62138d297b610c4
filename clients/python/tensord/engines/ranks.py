"""Steps that the ranks of an engine's model do together: all of them succeed, or all raise an error."""
from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple, TypeVar

from ..errors import TensordError
from ..tensors.model import Model

Result = TypeVar("Result")


class Ranks:
    """The ranks of a model. `gather`: a function that each rank calls with a value, and that returns the values of all
    ranks, the first rank's first."""

    def __init__(self, gather: Callable[[Any], List[Any]]):
        self._gather = gather

    def together(self, work: Callable[[], Result], value_of: Callable[[Result], Any] = lambda _: None
                 ) -> Tuple[Result, List[Any]]:
        """Does this rank's part of a step. Returns its result, and the value of each rank's result, once all ranks have
        done theirs. Raises the error of this rank, or TensordError for one of another. `work` may not wait for ranks.
        """
        done: List[Result] = []
        failures: List[Exception] = []
        value, text = None, ""
        try:
            done.append(work())
            value = value_of(done[0])
        except Exception as error:
            failures.append(error)
            text = f"{type(error).__name__}: {error}"
        said = self._gather((value, text))
        if failures:
            raise failures[0]
        for rank, (_, text) in enumerate(said):
            if text:
                raise TensordError(f"rank {rank} failed: {text}")
        return done[0], [value for value, _ in said]

    def agreed(self, find: Callable[[], Model]) -> Model:
        """Returns a version of a model, the same on all ranks, with its manifest. `find` returns the one that this rank
        finds; if that is another one than on the first rank, since the latest version has just changed, that one is
        taken.

        Raises as `together`; ChangedError if the ranks found another content under one name.
        """
        model, said = self.together(find, _identity)
        found: Model = model
        first = said[0][0]
        if first is not None and any(version != first for version, _ in said):
            found, said = self.together(lambda: model if model.version == first else model.at(first), _identity)
        tags = [tag for _, tag in said]
        if len(set(tags)) > 1:
            self.together(lambda: found.agree(tags))
        return found


def _identity(model: Model) -> Tuple[Optional[str], str]:
    return model.version, model.manifest().etag
