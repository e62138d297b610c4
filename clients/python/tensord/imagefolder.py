"""Finds the class of each image from its folder, or its metadata in metadata.csv and metadata.jsonl, as the builder
"imagefolder" of the library `datasets` does."""
from __future__ import annotations

import csv
import io
import json
import posixpath
import re
from array import array
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple
from urllib.parse import quote

from . import errors
from .address import dataset_path
from .session import Session

METADATA = ("metadata.csv", "metadata.jsonl")
METADATA_BYTES = 2**30  # limit of one file
PATHS_AT_ONCE = 5000  # in one request for files; the server accepts 10,000

# Folder names that mean a split and not a class, by split.
_WORDS = {"train": {"train", "training"}, "validation": {"validation", "valid", "val", "dev"},
          "test": {"test", "testing", "eval", "evaluation"}}


class ImageFolder:
    """The labels or metadata of the images of one split. Can be pickled.

    `classes`: the sorted class names of all splits; empty without labels. `columns`: the names of the metadata columns.
    """

    def __init__(self, classes: List[str], labels: Optional[Any], columns: List[str], known: Dict[int, List[Any]]):
        self.classes, self.columns = classes, columns
        self._labels, self._known = labels, known

    def row(self, number: int, image: Any) -> Dict[str, Any]:
        """Returns a row: the image with its label, or with its metadata (None for each column if it has none)."""
        if self._labels is not None:
            return {"image": image, "label": self._labels[number]}
        return {"image": image, **dict(zip(self.columns, self._known.get(number) or [None] * len(self.columns)))}


def read_folder(session: Session, dataset: str, split: str, paths: Dict[str, List[str]]) -> ImageFolder:
    """Reads the labels or metadata of a split's images. `paths`: the images' paths, by split, for all splits.

    Raises DecodeError for metadata that cannot be read; ConnectError, AnswerError.
    """
    found = _metadata_paths(session, dataset, [path for each in paths.values() for path in each])
    if found:
        columns, known = _read_metadata(session, dataset, found, paths[split])
        return ImageFolder([], None, columns, known)
    folders = {name: [_class_of(path, name) for path in each] for name, each in paths.items()}
    classes = sorted({folder[-1] for each in folders.values() for folder in each if folder})
    depths = {len(folder) for each in folders.values() for folder in each}
    if len(classes) < 2 or len(depths) > 1:
        return ImageFolder([], None, [], {})
    places = {name: place for place, name in enumerate(classes)}
    return ImageFolder(classes, array("q", [places[folder[-1]] for folder in folders[split]]), [], {})


def _class_of(path: str, split: str) -> List[str]:
    """Returns the folders of an image down to its class, without the folders at the end that only name the split."""
    folders = path.split("/")[:-1]
    words = _WORDS.get(split, set()) | {split.rpartition("/")[2].lower()}
    while folders and folders[-1].lower() in words:
        folders.pop()
    return folders


# ---- metadata

def _metadata_paths(session: Session, dataset: str, images: Iterable[str]) -> List[str]:
    """Returns the metadata files in the folders of images and their parents, outermost first."""
    folders: Set[str] = {""}
    for image in images:
        folder = posixpath.dirname(image)
        while folder not in folders:
            folders.add(folder)
            folder = posixpath.dirname(folder)
    asked = [posixpath.join(folder, name) for folder in sorted(folders) for name in METADATA]
    found: Set[str] = set()
    for at in range(0, len(asked), PATHS_AT_ONCE):
        answer = session.ask_json("POST", "/api" + dataset_path(dataset, "paths-info", "main"),
                                  {"paths": asked[at : at + PATHS_AT_ONCE]})
        try:
            found |= {item["path"] for item in answer if item["type"] == "file"}
        except (TypeError, KeyError) as error:
            raise errors.ProtocolError(f"the files of {dataset} are not described: is this a tensord "
                                       "server?") from error
    return sorted(found & set(asked), key=lambda path: (path.count("/"), path))


def _read_metadata(session: Session, dataset: str, found: Sequence[str],
                   images: Sequence[str]) -> Tuple[List[str], Dict[int, List[Any]]]:
    """Returns the column names, and the values of these columns for each image with metadata."""
    numbers = {path: number for number, path in enumerate(images)}
    rows: Dict[int, Dict[str, Any]] = {}
    names: Dict[str, None] = {}
    for path in found:
        text, _ = session.ask("GET", dataset_path(dataset, "resolve/main", quote(path)), limit=METADATA_BYTES)
        with errors.decoding(f"{path} of {dataset} cannot be read"):
            for row in (_rows_of_csv if path.endswith(".csv") else _rows_of_lines)(str(text, "utf-8-sig")):
                image = _image_path(path, row.pop("file_name", None))
                if image in numbers:
                    names.update(dict.fromkeys(row))
                    rows.setdefault(numbers[image], {}).update(row)
    return list(names), {number: [row.get(name) for name in names] for number, row in rows.items()}


def _image_path(metadata: str, name: Any) -> str:
    """Returns the path of the image that a row of a metadata file describes. Raises ValueError."""
    if not isinstance(name, str) or not name:
        raise ValueError("a row has no file_name")
    path = posixpath.normpath(name.replace("\\", "/"))
    if path.startswith(("/", "../")) or path == "..":
        raise ValueError(f"file_name {name!r} leads out of its folder")
    return posixpath.join(posixpath.dirname(metadata), path)


def _rows_of_lines(text: str) -> List[Dict[str, Any]]:
    rows = [json.loads(line) for line in text.split("\n") if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("a line is not a JSON object")
    return rows


def _rows_of_csv(text: str) -> List[Dict[str, Any]]:
    """Returns rows with the types that pandas gives their columns, and None for fields that pandas reads as null."""
    first, *lines = [line for line in csv.reader(io.StringIO(text, newline=""), strict=True) if line] or [[]]
    if any(len(line) > len(first) for line in lines):
        raise ValueError("a row has more fields than the header")
    header = _names_of(first)
    columns = ([line[place] if place < len(line) else "" for line in lines] for place in range(len(header)))
    columns = [column if name == "file_name" else _typed(column) for name, column in zip(header, columns)]
    return [dict(zip(header, row)) for row in zip(*columns)]


def _names_of(header: List[str]) -> List[str]:
    """Returns the names that pandas gives columns: a second column x is called x.1, column 3 without a name Unnamed: 3.
    """
    names = [name or f"Unnamed: {place}" for place, name in enumerate(header)]
    given = set(names)
    counts: Dict[str, int] = {}
    for place in sorted(range(len(names)), key=lambda one: not header[one]):  # columns without names last
        name = made = names[place]
        count = counts.get(name, 0)
        while count > 0:
            counts[name] = count + 1
            made = f"{name}.{count}"
            count = count + 1 if made in given else counts.get(made, 0)
        counts[made] = count + 1
        names[place] = made
    return names


# The default of pandas.read_csv's na_values.
_NULLS = frozenset(("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>",
                    "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"))
_TYPES: Sequence[Tuple["re.Pattern[str]", Callable[[str], Any]]] = tuple(
    (re.compile(pattern, re.ASCII | re.IGNORECASE), make) for pattern, make in (
        (r"\s*[+-]?[0-9]+\s*", int),
        (r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?\s*|[+-]?inf(inity)?", float),
        (r"true|false", lambda text: text.lower() == "true"),
        (r"(?s:.*)", str)))


def _typed(fields: List[str]) -> List[Any]:
    """Returns the values of a column: whole numbers (numbers, if a field is null), numbers, booleans or texts. Whole
    numbers outside int64 stay numbers, even in columns that pandas leaves as texts because of them."""
    known = [field for field in fields if field not in _NULLS]
    make = next(make for pattern, make in _TYPES if all(map(pattern.fullmatch, known)))
    if make is int and len(known) < len(fields):
        make = float
    return [None if field in _NULLS else make(field) for field in fields]
