"""Finds the class of each image from its folder, or its metadata in metadata.csv and metadata.jsonl, as the builder
"imagefolder" of the library `datasets` does."""
from __future__ import annotations

import json
import posixpath
import re
from array import array
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple
from urllib.parse import quote

from .. import errors
from ..address import dataset_path
from ..net.session import Session
from .decoding import csv_lines

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

    def __init__(self, classes: List[str], labels: Optional[Any], columns: List[str],
                 known: Dict[int, Dict[str, Any]]):
        self.classes, self.columns = classes, columns
        self._labels, self._known = labels, known

    def row(self, number: int, image: Any) -> Dict[str, Any]:
        """Returns a row: the image with its label, or with its metadata (None for each column if it has none)."""
        if self._labels is not None:
            return {"image": image, "label": self._labels[number]}
        known = self._known.get(number, {})
        return {"image": image, **{name: known.get(name) for name in self.columns}}


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
            raise errors.ProtocolError(f"the list of the files of {dataset} is malformed: is this a tensord "
                                       "server?") from error
    return sorted(found & set(asked), key=lambda path: (path.count("/"), path))


def _read_metadata(session: Session, dataset: str, found: Sequence[str],
                   images: Sequence[str]) -> Tuple[List[str], Dict[int, Dict[str, Any]]]:
    """Returns the column names, and the known values by column name for each image with metadata."""
    numbers = {path: number for number, path in enumerate(images)}
    rows: Dict[int, Dict[str, Any]] = {}
    names: Dict[str, None] = {}
    for path in found:
        text, _ = session.ask("GET", dataset_path(dataset, "resolve/main", quote(path)), limit=METADATA_BYTES)
        with errors.as_decode_error(f"{path} of {dataset} cannot be read"):
            header, parsed = (_parse_csv if path.endswith(".csv") else _parse_lines)(str(text, "utf-8-sig"))
            for row in parsed:
                image = _image_path(path, row.pop("file_name", None))
                if image in numbers:
                    names.update(dict.fromkeys((*header, *row)))
                    header = []
                    rows.setdefault(numbers[image], {}).update(row)
    return list(names), rows


def _image_path(metadata: str, name: Any) -> str:
    """Returns the path of the image that a row of a metadata file describes. Raises ValueError."""
    if not isinstance(name, str) or not name:
        raise ValueError("a row has no file_name")
    path = posixpath.normpath(name.replace("\\", "/"))
    if path.startswith(("/", "../")) or path == "..":
        raise ValueError(f"file_name {name!r} leads out of its folder")
    return posixpath.join(posixpath.dirname(metadata), path)


def _parse_lines(text: str) -> Tuple[List[str], List[Dict[str, Any]]]:
    """Returns rows, and no names: each row has its own."""
    rows = [json.loads(line) for line in text.split("\n") if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("a line is not a JSON object")
    return [], rows


def _parse_csv(text: str) -> Tuple[List[str], List[Dict[str, Any]]]:
    """Returns the column names but file_name, and rows with the types that pandas gives their columns, and None for
    fields that pandas reads as null. A row that is shorter than the header lacks its last columns: filling it would
    make memory grow with columns times rows."""
    first, *lines = [line for line in csv_lines(text) if line] or [[]]
    if any(len(line) > len(first) for line in lines):
        raise ValueError("a row has more fields than the header")
    header = _names_of(first)
    columns: List[List[str]] = [[] for _ in header]
    for line in lines:
        for column, field in zip(columns, line):
            column.append(field)
    values = [iter(column if name == "file_name" else _typed(column, len(column) < len(lines)))
              for name, column in zip(header, columns)]
    rows = [{name: next(value) for _, name, value in zip(line, header, values)} for line in lines]
    return [name for name in header if name != "file_name"], rows


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
# The time to match each pattern is in proportion to the length of the field.
_TYPES: Sequence[Tuple["re.Pattern[str]", Callable[[str], Any]]] = tuple(
    (re.compile(pattern, re.ASCII | re.IGNORECASE), make) for pattern, make in (
        (r"\s*[+-]?[0-9]+\s*", int),
        (r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?\s*|[+-]?inf(inity)?", float),
        (r"true|false", lambda text: text.lower() == "true"),
        (r"(?s:.*)", str)))


def _typed(fields: List[str], lacks: bool) -> List[Any]:
    """Returns the values of a column: whole numbers (numbers, if a field is null), numbers, booleans or texts. Whole
    numbers outside int64 stay numbers, even in columns that pandas leaves as texts because of them. `lacks`: rows
    without this field, which count as null, are not in `fields`."""
    known = [field for field in fields if field not in _NULLS]
    make = next(make for pattern, make in _TYPES if all(map(pattern.fullmatch, known)))
    if make is int and (lacks or len(known) < len(fields)):
        make = float
    return [None if field in _NULLS else make(field) for field in fields]
