"""The public name of one function, `decode_sample`, which decodes a sample of a webdataset (a part of a tar archive)
without a Dataset. The decoders are in rows/decoding.py.
"""
from __future__ import annotations

from .rows.samples import decode_sample

__all__ = ["decode_sample"]
