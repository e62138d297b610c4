"""Decodes samples of webdatasets: parts of a tar file, with members grouped as the package webdataset groups them.

This module does not use tarfile, which expands a sparse member to the size in its header, and takes long for crafted
headers. It refuses the same tar files as the server (parser/rows/webdataset.h), so a sample takes about as much memory
as its row.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Optional, Tuple

BLOCK_BYTES = 512
EXTENSION_BYTES = 2**20  # limit of a pax header or a GNU long name
PATH_BYTES = 16383
_METADATA = re.compile(r"__[^/]*__($|/)")


def decode_sample(row: bytes) -> Dict[str, Any]:
    """Returns the members of a sample by their extensions in lower case, and its `__key__`. Members without a key
    (hidden files, names without an extension, metadata such as __index__.json) are skipped.

    Raises ValueError for bytes that are not part of a tar file, sparse members, and two members of one name.
    """
    sample: Dict[str, Any] = {}
    for path, data in _files(row):
        key, extension = split_path(path)
        if key is None:
            continue
        if sample.setdefault("__key__", key) != key:
            raise ValueError(f"its members have two keys, {sample['__key__']!r} and {key!r}")
        if extension.lower() in sample:
            raise ValueError(f"it has two members for {extension.lower()!r}")
        sample[extension.lower()] = data
    if not sample:
        raise ValueError("no member has a key and an extension")
    return sample


def split_path(path: str) -> Tuple[Optional[str], str]:
    """Returns the key and the extension of a path; None and "" if the member belongs to no sample.

    Matches as webdataset's pattern ^((?:.*/|)[^.]+)[.]([^/]*)$ does, but in time proportional to the length.
    """
    line_end = path.find("\n")
    start = path.rfind("/", 0, len(path) if line_end < 0 else line_end) + 1
    dot = path.find(".", start)
    if dot < path.rfind("/") + 1 or _METADATA.match(path):
        return None, ""
    # A last component that begins with a dot belongs to its folder, if that folder's own name has no dot.
    if dot == start and (start == 0 or "." in path[path.rfind("/", 0, start - 1) + 1 : start]):
        return None, ""
    return path[:dot], path[dot + 1 :]


@dataclass
class _Next:
    """The path and size that pax and GNU headers give the next member."""

    path: Optional[bytes] = None
    size: Optional[int] = None

    def take_path(self, path: bytes) -> None:
        if self.path is not None:
            raise ValueError("two tar headers give a member its path")
        if not 0 < len(path) <= PATH_BYTES:
            raise ValueError(f"a tar header gives a member a path of {len(path)} bytes")
        self.path = path

    def take_size(self, text: bytes) -> None:
        if self.size is not None or not re.fullmatch(rb"[0-9]{1,20}", text):
            raise ValueError("a pax header gives a member two sizes, or one that is not a number")
        self.size = int(text)


def _files(row: bytes) -> Iterator[Tuple[str, bytes]]:
    """Yields paths and contents of the regular files of an archive. Raises ValueError."""
    at, following = 0, _Next()
    while at < len(row):
        header = row[at : at + BLOCK_BYTES]
        if not any(header):
            break
        _check_sum(header, at)
        kind, size = header[156:157], _number(header[124:136])
        is_extension = kind in b"xXgLK"
        size = size if is_extension or following.size is None else following.size
        data, at = _data(row, at, size)
        if is_extension:
            _take_extension(following, kind, data)
            continue
        name = header[:100].split(b"\0", 1)[0]
        is_folder = kind == b"5" or (kind == b"\0" and name.endswith(b"/"))
        if kind == b"S":
            raise ValueError("a member of it is sparse")
        if (is_folder or b"1" <= kind <= b"6") and size:
            raise ValueError("a directory, link, device or pipe of it has data")
        path, following = following.path or _path_of(header, name), _Next()
        if kind in (b"\0", b"0", b"7") and not is_folder:
            yield str(path, "utf-8", "surrogateescape"), data


def _data(row: bytes, at: int, size: int) -> Tuple[bytes, int]:
    """Returns the data after a header, and the position of the next header."""
    begin = at + BLOCK_BYTES
    end = begin + size + -size % BLOCK_BYTES
    if end > len(row):
        raise ValueError(f"it is not part of a tar file: {size} bytes of a member are past its end")
    return row[begin : begin + size], end


def _check_sum(header: bytes, at: int) -> None:
    """Raises ValueError unless a header is complete and its checksum is the sum of its unsigned or of its signed
    bytes."""
    if len(header) < BLOCK_BYTES:
        raise ValueError(f"it is not part of a tar file: {len(header)} bytes of a header at {at}")
    rest = header[:148] + b" " * 8 + header[156:]
    total = sum(rest)
    if _number(header[148:156]) not in (total, total - 256 * sum(byte > 127 for byte in rest)):
        raise ValueError(f"it is not part of a tar file: the checksum of the header at {at} is wrong")


def _number(field: bytes) -> int:
    """Decodes a number in octal, or in GNU's binary form: the byte 0x80 and a big-endian number."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    found = re.match(rb" *([0-7]*) *(\0|$)", field, re.DOTALL)
    if not found:
        raise ValueError("it is not part of a tar file: a header has a number that is not octal")
    return int(found[1] or b"0", 8)


def _path_of(header: bytes, name: bytes) -> bytes:
    prefix = header[345:500].split(b"\0", 1)[0]
    return prefix + b"/" + name if header[257:263] == b"ustar\0" and prefix else name


def _take_extension(following: _Next, kind: bytes, data: bytes) -> None:
    """Applies a header of pax (x, X: for the next member; g: for all) or GNU (L: a path; K: the target of a link)."""
    if len(data) > EXTENSION_BYTES:
        raise ValueError(f"a tar header has {len(data)} bytes; the limit is {EXTENSION_BYTES}")
    if kind == b"L":
        following.take_path(data.split(b"\0", 1)[0])
    if kind not in b"xXg":
        return
    wanted: Dict[bytes, bytes] = {}
    for key, value in _records(data):
        if key.startswith(b"GNU.sparse."):
            raise ValueError("a member of it is sparse")
        if key in (b"path", b"size"):
            wanted[key] = value
    if kind == b"g" and wanted:
        raise ValueError("a global pax header gives all members a path or a size")
    if b"path" in wanted:
        following.take_path(wanted[b"path"].rstrip(b"/"))
    if b"size" in wanted:
        following.take_size(wanted[b"size"])


def _records(data: bytes) -> Iterator[Tuple[bytes, bytes]]:
    """Yields the keys and values of a pax header. A record is LENGTH KEY=VALUE and a line feed."""
    at = 0
    while at < len(data):
        digits = re.match(rb"([0-9]{1,7}) ", data[at : at + 8])
        end = at + int(digits[1]) if digits else 0
        key, equals, value = data[at + (digits.end() if digits else 0) : max(at, end - 1)].partition(b"=")
        if not digits or end > len(data) or data[end - 1 : end] != b"\n" or not key or not equals:
            raise ValueError("a pax header has an invalid record")
        yield key, value
        at = end
