#!/usr/bin/env python3
"""Writes tests/data/keras/ with Keras 3, and beside each file what h5py reads from its weights, a line per dataset:
NAME|DTYPE|[SHAPE]|C|REASON|CRC32. The same at every run, but for Keras' version
and the ids of objects that config.json holds.

    .venv/bin/python tests/data/make_keras.py
"""
import datetime
import io
import os
import pathlib
import time
import types
import zipfile
import zlib

os.environ["KERAS_BACKEND"] = "torch"

import h5py  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras.src.saving import saving_lib  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent / "keras"
WORDS = {"float32": "F32", "int64": "I64", "float16": "F16", "int32": "I32"}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 5, 6, 7, 8, 9)


def expected(archive):
    with zipfile.ZipFile(archive) as z, h5py.File(io.BytesIO(z.read("model.weights.h5"))) as f:
        lines = {}

        def add(name, item):
            if isinstance(item, h5py.Dataset):
                a = item[()]
                crc = zlib.crc32(np.ascontiguousarray(a).tobytes())
                lines[name] = f"{name}|{WORDS[item.dtype.name]}|[{','.join(map(str, item.shape))}]|C|-|{crc:08x}\n"
        f.visititems(add)
    return "".join(lines[name] for name in sorted(lines, key=str.encode))


def main():
    saving_lib.datetime = types.SimpleNamespace(datetime=Clock)
    now = time.gmtime(1715000000)
    time.localtime = lambda *_: now
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.BatchNormalization()])
    model.save(HERE / "plain.keras")
    (HERE / "plain.txt").write_text(expected(HERE / "plain.keras"))
    # Zipped again by somebody else: what Keras stores is compressed.
    with zipfile.ZipFile(HERE / "plain.keras") as z, zipfile.ZipFile(HERE / "deflated.keras", "w",
                                                                     zipfile.ZIP_DEFLATED) as out:
        for name in z.namelist():
            out.writestr(name, z.read(name))


if __name__ == "__main__":
    main()
