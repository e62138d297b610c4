"""Loads by a model's URL, or from a Model, in one call each. `options` are the options of `Options`, by name; or
`options=Options(...)`, which options by name may follow."""
from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from .address import Urls
from .client import connect
from .tensors.memory import framework_of
from .tensors.model import Model
from .tensors.rank_file import read_rank

UrlOrModel = Union[Urls, Model]


def _checks(verify: Optional[bool], options: Dict[str, Any]) -> bool:
    """Returns whether a load compares digests. `verify` is also the name of an option: False accepts any certificate,
    and True is its default."""
    if verify is False:
        options["verify"] = False
    return bool(verify)


@contextlib.contextmanager
def _opened(source: UrlOrModel, options: Dict[str, Any]) -> Iterator[Model]:
    """Yields the model that a URL names, with its connections for as long, or the model that is given."""
    if isinstance(source, Model):
        yield source.with_options(**options) if options else source
        return
    with connect(source, **options) as client:
        yield client.model()


def load_file(url: UrlOrModel, device: Any = "cpu", framework: str = "pt", verify: Optional[bool] = None,
              **options: Any) -> Dict[str, Any]:
    """Returns all tensors of a checkpoint by name, as safetensors.torch.load_file does for a file.

    `verify`, here and in the other loads: True compares the SHA-256 of what arrived with the server's (VerifyError if
    they differ); False accepts any certificate, as the option. Raises AddressError, NotFoundError, ChangedError,
    ConnectError, ProtocolError, AnswerError.
    """
    return state_dict(url, device=device, framework=framework, verify=verify, **options)


def state_dict(url: UrlOrModel, match: Optional[str] = None, device: Any = None, dtype: Any = None,
               framework: str = "pt", verify: Optional[bool] = None, **options: Any) -> Dict[str, Any]:
    """Returns the tensors with names that match a glob, by name; see Model.state_dict."""
    checks = _checks(verify, options)
    with _opened(url, options) as model:
        return model.state_dict(match, device, dtype, framework, checks)


def load_into(target: Any, url: UrlOrModel, strict: bool = True, dtype: Any = None, match: Optional[str] = None,
              names: Optional[Dict[str, str]] = None, verify: Optional[bool] = None,
              since: Union[str, int, None] = None, **options: Any) -> Tuple[List[str], List[str]]:
    """Reads a checkpoint into a module or a dict of tensors; see Model.load_into."""
    checks = _checks(verify, options)
    with _opened(url, options) as model:
        return model.load_into(target, strict, dtype, match, names, checks, since)


def read_boxes(url: UrlOrModel, wanted: Iterable[Tuple[str, Any]], out: Optional[Sequence[Any]] = None,
               framework: str = "pt", **options: Any) -> List[Any]:
    """Reads parts of tensors as one answer; see Model.read_boxes."""
    with _opened(url, options) as model:
        return model.read_boxes(wanted, out, framework)


def load_rank(url: UrlOrModel, engine: str, tp: int, rank: int, device: Any = "cpu", framework: str = "pt",
              verify: Optional[bool] = None, **options: Any) -> Dict[str, Any]:
    """Returns the tensors of one tensor-parallel rank as an engine of the server's cuts and joins them.

    `engine`: "vllm" (its newest version), "vllm@0.33", "vllm@0.13", "nano-vllm", "fsdp", "none". `tp`: the number of
    ranks. `rank`: from 0. Reads the rank's bytes and no others. Raises ValueError for a rank that is not below tp;
    AnswerError when the engine refuses the model.
    """
    checks = _checks(verify, options)
    with _opened(url, options) as model:
        return read_rank(model, engine, tp, rank, device, framework_of(framework), checks)
