"""Decodes the bytes of rows into the values that a training loop uses.

A decoder takes a row's bytes. JSON and CSV need nothing but Python, as does a sample of webdataset; images need Pillow,
tokens and arrays numpy, rows of Arrow pyarrow. Nothing is unpickled.
"""
from __future__ import annotations

import csv
import io
import json
import math
import struct
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from .. import errors
from ..lock import ForkSafeLock
from ..tensors import dtypes
from .samples import decode_sample
from .splits import SplitInfo

Decoder = Callable[[bytes], Any]
Decode = Union[None, str, Decoder]

OF_FORMAT = {"jsonl": "json", "csv": "csv", "arrow": "arrow", "parquet": "arrow", "webdataset": "sample", "mds": "mds",
             "megatron": "tokens", "npy": "npy", "tokens": "tokens", "images": "image"}  # others: bytes

TABLES = ("arrow", "parquet")  # formats with rows that are read as tables of pyarrow

# Bytes of MDS's encodings (mosaicml-streaming, base/format/mds/encodings.py) with values of one size.
_MDS_SIZES = {"int": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "int8": 1, "int16": 2, "int32": 4,
              "int64": 8, "float16": 2, "float32": 4, "float64": 8}
_MDS_FORMS = {"int": "<q", "uint8": "<B", "uint16": "<H", "uint32": "<I", "uint64": "<Q", "int8": "<b", "int16": "<h",
              "int32": "<i", "int64": "<q", "float16": "<e", "float32": "<f", "float64": "<d"}
_MDS_ARRAYS = {8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32",
               34: "float32", 64: "uint64", 65: "int64", 66: "float64"}


def decoder_of(decode: Decode, split: SplitInfo, columns: Optional[Sequence[str]]) -> Tuple[str, Optional[Decoder]]:
    """Returns the name of a decoder, and the decoder; None: rows are bytes, rows of tables are dicts.

    `decode`: "auto" (by the split's format), a name, None for bytes, or a function. `columns`: the keys to
    return of rows that are dicts. Raises ValueError for a name that is unknown or does not fit the format; ImportError.
    """
    if callable(decode):
        return _name_of(decode), decode if columns is None else _Chosen(decode, columns)
    name = OF_FORMAT.get(split.format, "bytes") if decode == "auto" else "bytes" if decode is None else decode
    if name not in _MAKERS:
        raise ValueError(f"unknown decode={decode!r}; choose one of {', '.join(_MAKERS)}, None or a function of a "
                         "row's bytes")
    if (name == "arrow") != (split.format in TABLES):
        raise ValueError(f"decode={decode!r} does not fit split {split.name} of format {split.format}: rows of Arrow's "
                         'and Parquet files, and only these, are read by decode="arrow", as dicts')
    if name == "imagefolder" and split.format != "images":
        raise ValueError(f"decode={decode!r} does not fit split {split.name} of format {split.format}: it is for "
                         "folders of images")
    made = _MAKERS[name](split)
    if made is None or name == "imagefolder" or columns is None:  # Dataset makes the dicts and picks their columns
        return name, made
    return name, _Chosen(made, columns)


def _name_of(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


class _Chosen:
    """Keeps some columns of the dicts that a decoder makes. A class, so that it can be pickled."""

    def __init__(self, made: Decoder, columns: Sequence[str]):
        self._made, self._columns = made, list(columns)

    def __call__(self, row: bytes) -> Any:
        return pick(self._made(row), self._columns)


def pick(value: Any, columns: Optional[Sequence[str]]) -> Any:
    """Returns a dict with some members of another one. Raises ValueError if it lacks one."""
    if columns is None:
        return value
    if not isinstance(value, dict):
        raise ValueError(f"columns= needs rows that are dicts; this one is of type {type(value).__name__}")
    lacking = [name for name in columns if name not in value]
    if lacking:
        raise ValueError(f"it has no {', '.join(lacking)}, but {', '.join(map(str, value))}")
    return {name: value[name] for name in columns}


_scan_json: Callable[[str, int], Tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def decode_json(row: bytes) -> Any:
    """Returns a value of JSON. Raises ValueError."""
    text = str(row, "utf-8")
    try:
        # The checks of json.loads around this take as long as a row of 1 KiB, and only find blanks at its ends.
        value, end = _scan_json(text, 0)
        return value if end == len(text) else json.loads(text)
    except StopIteration:  # it begins with no value
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error


def decode_image(row: bytes) -> Any:
    """Returns an image of PIL, read whole."""
    from PIL import Image

    image = Image.open(io.BytesIO(row))
    image.load()
    return image


CSV_LIMIT = 128 * 1024  # of the module csv: characters of a field, unless a program sets another limit
_limit_lock = ForkSafeLock()


def csv_lines(text: str, delimiter: str = ",") -> List[List[str]]:
    """Returns the fields of each line of CSV, of any length. Raises csv.Error.

    The module csv refuses fields above a limit that all of its readers share. While this function reads a longer text,
    that limit is as large as the text.
    """
    if len(text) <= CSV_LIMIT:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    with _limit_lock:
        limit = csv.field_size_limit(len(text))
        try:
            return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
        finally:
            csv.field_size_limit(limit)


class CsvDecoder:
    """Rows of CSV as dicts of texts, by the names of the columns; as lists where these are not known."""

    def __init__(self, split: SplitInfo):
        self._names = split.column_names
        tabs = {file.path.lower().endswith(".tsv") for file in split.files}
        if len(tabs) > 1:
            raise ValueError(f"split {split.name} has both .tsv and .csv files: decode=None reads its bytes")
        self._delimiter = "\t" if True in tabs else ","

    def __call__(self, row: bytes) -> Any:
        found = (csv_lines(str(row, "utf-8"), self._delimiter) or [[]])[0]
        if self._names is None:
            return found
        if len(found) != len(self._names):
            raise ValueError(f"it has {len(found)} fields, where there are {len(self._names)} columns")
        return dict(zip(self._names, found))


class ArrayDecoder:
    """Rows as arrays of numpy, of the type and shape of the only column; one dimension where no shape is known."""

    def __init__(self, split: SplitInfo):
        import numpy

        if not split.columns or len(split.columns) != 1 or type(split.columns[0].get("type")) is not str:
            raise ValueError(f"the type of split {split.name} of format {split.format} is not known: decode=None reads "
                             "its bytes")
        text = split.columns[0]["type"]
        try:
            self._dtype = _numpy_type(text, numpy)
        except TypeError as error:
            raise ValueError(f"numpy has no type {text!r}, as split {split.name} has: decode=None reads its "
                             "bytes") from error
        shape = split.columns[0].get("shape")
        if shape is not None and not all(type(one) is int and one >= 0 for one in shape):
            raise ValueError(f"split {split.name} has {shape!r} in place of a shape")
        self._shape = None if shape is None else tuple(shape)

    def __call__(self, row: bytes) -> Any:
        import numpy

        found = numpy.frombuffer(bytearray(row), self._dtype)  # of memory that may be written to
        if not self._dtype.isnative:
            found = found.astype(self._dtype.newbyteorder("="))
        return found if self._shape is None else found.reshape(self._shape)


def _numpy_type(text: str, numpy: Any) -> Any:
    try:
        return dtypes.numpy_dtype("BF16" if text == "bfloat16" else text)
    except errors.TensordError:
        made = numpy.dtype(text)
    if made.hasobject:
        raise TypeError(text)
    return made


class MdsDecoder:
    """Samples of MDS as dicts: numbers, str, JSON and arrays as such, whatever else (images, pickles) as its bytes."""

    def __init__(self, split: SplitInfo):
        columns = [(column["name"], str(column.get("type"))) for column in split.columns or ()]
        if not columns:
            raise ValueError(f"the columns of split {split.name} are not known: decode=None reads its bytes")
        self._columns = [(name, encoding, _mds_size(encoding)) for name, encoding in columns]

    def __call__(self, row: bytes) -> Dict[str, Any]:
        variable = sum(size is None for _, _, size in self._columns)
        sizes = iter(struct.unpack_from(f"<{variable}I", row))  # raises for a row that is too short
        at, sample = 4 * variable, {}
        for name, encoding, size in self._columns:
            end = at + (next(sizes) if size is None else size)
            if end > len(row):
                raise ValueError(f"column {name} ends after the end of the sample")
            sample[name] = _mds_value(row[at:end], encoding)
            at = end
        if at != len(row):
            raise ValueError(f"the columns have {at} bytes, and the sample {len(row)}")
        return sample


def _mds_size(encoding: str) -> Optional[int]:
    """Returns the bytes of a value of an encoding; None: each has its own size."""
    dtype, shape = _mds_array(encoding)
    if dtype and shape:
        return _MDS_SIZES[dtype] * math.prod(shape)
    return _MDS_SIZES.get(encoding)


def _mds_array(encoding: str) -> Tuple[str, Tuple[int, ...]]:
    """Returns the type and the shape that ndarray:TYPE:SHAPE has for all values; "" and () where each has its own."""
    kind, dtype, shape, *more = *encoding.split(":"), "", ""
    if kind != "ndarray":
        return "", ()
    if len(more) > 2 or (dtype and dtype not in _MDS_ARRAYS.values()):
        raise ValueError(f"the encoding {encoding!r} of MDS is not known: decode=None reads the bytes")
    return dtype, tuple(int(one) for one in shape.split(",")) if shape else ()


def _mds_value(data: bytes, encoding: str) -> Any:
    if encoding in _MDS_FORMS:
        return struct.unpack(_MDS_FORMS[encoding], data)[0]
    if encoding == "str":
        return str(data, "utf-8")
    if encoding == "json":
        return decode_json(data)
    if encoding.partition(":")[0] != "ndarray":
        return data
    import numpy

    dtype, shape = _mds_array(encoding)
    at = 0
    if not dtype:
        dtype, at = _MDS_ARRAYS[data[0]], 1
    if not shape:
        sizes = numpy.dtype(f"<u{1 << data[at] % 4}")
        end = at + 1 + (data[at] >> 2) * sizes.itemsize
        shape, at = tuple(numpy.frombuffer(data[at + 1 : end], sizes).tolist()), end
    return numpy.frombuffer(bytearray(data[at:]), dtype).reshape(shape)


def _image_decoder(split: SplitInfo) -> Decoder:
    import PIL.Image  # noqa: F401  so that a missing package is reported at once

    return decode_image


def _arrow_decoder(split: SplitInfo) -> None:
    import pyarrow  # noqa: F401

    return


# A new decode= kind is a line here; also name it in Dataset's docstring and in docs/python.md.
_MAKERS: Dict[str, Callable[[SplitInfo], Optional[Decoder]]] = {
    "bytes": lambda split: None,
    "json": lambda split: decode_json,
    "csv": CsvDecoder,
    "image": _image_decoder,
    "imagefolder": _image_decoder,
    "tokens": ArrayDecoder,
    "npy": ArrayDecoder,
    "sample": lambda split: decode_sample,
    "mds": MdsDecoder,
    "arrow": _arrow_decoder,
}
