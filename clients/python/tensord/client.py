"""Clients: `connect` gives one for servers, with their models and datasets."""
from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Union

from . import address, errors, watching
from .address import Urls, check_glob
from .net.pages import Listing, read_pages
from .net.session import Session
from .options import Options, of
from .rows.dataset import Dataset, RemoteSplit
from .rows.splits import DatasetInfo, check_named, read_info
from .tensors.manifest import Manifest, read_manifest
from .tensors.model import Model


def connect(url: Urls, options: Optional[Options] = None, **given: Any) -> "Client":
    """Returns a client of the servers that a URL names; no connection is made yet.

    `url`: a server's, a model's or a dataset's, or several as a list or between commas. `given`: options by name (see
    `Options`).
    Raises AddressError.
    """
    found = address.parse(url)
    return Client(Session(found.endpoints, of(options, **given)), found.model or None, found.checkpoint,
                  found.dataset or None, found.split, found.version)


def watch(url: Urls, match: Optional[str] = None, existing: bool = True, **options: Any) -> Iterator[Model]:
    """Returns an endless iterator that yields a Model for each model of a server that appears or changes. The Model's
    manifest is not read yet.

    `url`: of a server, or of a model to watch that model alone. `match`: a glob over ids, such as "run/*". `existing`:
    whether to yield the present models first, in the order of their ids. `options`: the options of `tensord.Options`,
    by name.

    The iterator yields a model only once it has a checkpoint. If a model changes several times between two steps of the
    iterator, the iterator yields it once. The iterator waits while a server restarts, and then yields only models that
    have changed.

    Raises AddressError, ValueError; the iterator AnswerError, ProtocolError, and ConnectError when no server answers
    for `retry_for` seconds.
    """
    return connect(url, **options).watch(match, existing)


def open_model(url: Urls, options: Optional[Options] = None, **given: Any) -> Model:
    """Returns the model that a URL names. Raises AddressError if the URL names none."""
    return connect(url, options, **given).model()


def model_of(source: Union[Urls, Model], given: Dict[str, Any]) -> Model:
    """Returns the model that a URL names, or a Model with options by name, for the other modules of this package: the
    Model itself if `given` has none."""
    if not isinstance(source, Model):
        return open_model(source, **given)
    return source.with_options(**given) if given else source


class Client:
    """Servers that hold the same models. Thread-safe; makes new connections when it was pickled or the process forked.

    `session`: the connections and options, for the other modules of this package."""

    def __init__(self, session: Session, model: Optional[str] = None, checkpoint: Optional[str] = None,
                 dataset: Optional[str] = None, split: Optional[str] = None, version: Optional[str] = None):
        self.session = session
        self._model = model
        self._checkpoint = checkpoint
        self._dataset = dataset
        self._split = split
        self._version = version

    def __repr__(self) -> str:
        return f"<tensord.Client {', '.join(map(str, self.session.endpoints))}>"

    def models(self, match: Optional[str] = None) -> List[Dict[str, Any]]:
        """Returns the models of the server, each as the server describes it (id, checkpoints, total_bytes, ...).

        `match`: a glob over ids. Raises ConnectError, AnswerError.
        """
        return self._list("models", {} if match is None else {"match": check_glob(match)}, _is_model).rows

    def _list(self, what: str, query: Dict[str, str], fits: Callable[[Any], bool]) -> Listing:
        """Returns the list of models or datasets that a query asks for. Raises as `models`."""
        return read_pages(self.session, f"/{what}", what, query, fits)

    def watch(self, match: Optional[str] = None, existing: bool = True) -> Iterator[Model]:
        """Yields models as they appear or change; see `tensord.watch`."""
        if self._dataset:
            raise errors.AddressError("watch takes the URL of a server or a model, and this is one of a dataset")
        if self._version is not None:
            raise errors.AddressError("watch takes no ?version= in the URL: Model.wait_version waits for a version")
        if self._model and match is not None:
            raise ValueError("match= is for the URL of a server, and this one names a model")
        glob = address.glob_of(self._model) if self._model else match
        checkpoint = self._checkpoint if self._model else None
        ids = watching.changed_ids(lambda query: self._list("models", query, _is_model), glob, existing,
                                   self.session.options.stall_timeout)
        return (Model(self.session, id, checkpoint) for id in ids)

    def datasets(self, match: Optional[str] = None) -> List[Dict[str, Any]]:
        """Returns the datasets of the server, each with its "id" and the names of its "splits".

        `match`: a glob over ids. Raises ConnectError, AnswerError.
        """
        return self._list("datasets", {} if match is None else {"match": check_glob(match)}, _is_dataset).rows

    def dataset_info(self, id: Optional[str] = None, file_start: int = 0) -> DatasetInfo:
        """Returns a dataset's splits as they are now, with their files and columns, and how far their indices are.

        `id`: by default the dataset of the client's URL. `file_start`: the first file to list of each split; an answer
        lists 1,000. Raises NotFoundError, ConnectError, AnswerError.
        """
        return read_info(self.session, self._dataset_name(id), file_start)

    def dataset(self, id: Optional[str] = None, split: Optional[str] = None, decode: Any = "auto",
                columns: Optional[Sequence[str]] = None, transform: Optional[Callable[[Any], Any]] = None) -> Dataset:
        """Opens a dataset; see `Dataset`, which has the same parameters. `id`: by default that in the client's URL."""
        return Dataset(self.remote_split(id, split), decode=decode, columns=columns, transform=transform)

    def remote_split(self, id: Optional[str] = None, split: Optional[str] = None) -> RemoteSplit:
        """Returns the split that `dataset` opens, for the other modules of this package. Raises AddressError."""
        chosen = split if split is not None or id is not None else self._split
        return RemoteSplit(self.session, self._dataset_name(id), chosen)

    def _dataset_name(self, id: Optional[str]) -> str:
        return check_named(id if id is not None else self._dataset)

    def manifest(self, model: Optional[str] = None, checkpoint: Optional[str] = None, match: Optional[str] = None,
                 version: Optional[str] = None) -> Manifest:
        """Reads the manifest of a model as it is now.

        `model`: its id; the one of the client's URL by default. `checkpoint`: its id; the first by default. `match`: a
        glob over names of tensors. `version`: the name of a version. For the model of the client's URL the checkpoint
        and the version of the URL are the defaults. Raises NotFoundError, ConnectError, AnswerError.
        """
        one = self.model(model, checkpoint, version)
        return read_manifest(self.session, one.id, one.checkpoint, match, one.asked_version)

    def model(self, id: Optional[str] = None, checkpoint: Optional[str] = None,
              version: Optional[str] = None) -> Model:
        """Returns a model. Nothing is read yet. `id`, `checkpoint` and `version` as in `manifest`."""
        if id is None:
            checkpoint = self._checkpoint if checkpoint is None else checkpoint
            version = self._version if version is None else version
        return Model(self.session, self._name(id), checkpoint, version)

    def close(self) -> None:
        """Closes the idle connections. The client may be used again."""
        self.session.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _name(self, model: Optional[str]) -> str:
        name = model if model is not None else self._model
        prefix = self.session.endpoints[0].prefix
        if not name and self._dataset:
            raise errors.AddressError(f"the URL names the dataset {self._dataset}, and no model: tensord.Dataset opens "
                                      f"it (a model of this name: http://host:port/models/datasets/{self._dataset})")
        if not name and prefix:
            raise errors.AddressError(f"the URL's path {prefix} names no model: that would be "
                                      f"{self.session.endpoints[0].origin}/models{prefix}")
        if not name:
            raise errors.AddressError("no model is named: give its id, or a URL like http://host:8080/models/ID")
        return name


def _is_model(row: Any) -> bool:
    """Returns whether a server's row describes a model, with an id that may be put into paths."""
    return (isinstance(row, dict) and isinstance(row.get("id"), str) and type(row.get("total_bytes")) is int and
            isinstance(row.get("checkpoints"), list) and all(isinstance(one, dict) for one in row["checkpoints"]) and
            not any(part in ("", ".", "..") for part in row["id"].split("/")))


def _is_dataset(row: Any) -> bool:
    """Returns whether a server's row names a dataset, with an id that may be put into paths."""
    return (isinstance(row, dict) and isinstance(row.get("id"), str) and isinstance(row.get("splits"), list) and
            all(isinstance(one, str) for one in row["splits"]) and
            not any(part in ("", ".", "..") for part in row["id"].split("/")))
