"""Decodes rows without a Dataset: `decode_sample` takes a sample of a webdataset, a part of a tar archive."""
from __future__ import annotations

from .rows.samples import decode_sample

__all__ = ["decode_sample"]
