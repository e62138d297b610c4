"""Keras saves, tensord inspects: the datasets of model.weights.h5, at their place in the archive."""
import io
import json
import os
import zipfile

import h5py
import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
import keras  # noqa: E402

from test_safetensors import inspect_json, run

WORDS = {"float16": "F16", "float32": "F32", "float64": "F64", "int32": "I32", "int64": "I64", "uint32": "U32"}


def layers(kind, dtype):
    inputs = keras.Input((8, 4))
    if kind == "dense":
        return keras.Model(inputs,
                           keras.layers.Dense(3, dtype=dtype)(keras.layers.BatchNormalization(dtype=dtype)(inputs)))
    if kind == "conv":
        return keras.Model(inputs,
                           keras.layers.Conv1D(5, 3, dtype=dtype)(keras.layers.LayerNormalization(dtype=dtype)(inputs)))
    return keras.Model(
        inputs,
        keras.layers.Dropout(0.5)(keras.layers.LSTM(3, recurrent_initializer="ones", dtype=dtype)(inputs)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("kind", ["dense", "conv", "lstm"])
def test_keras_archives(tmp_path, kind, dtype):
    path = tmp_path / "model.keras"
    model = layers(kind, dtype)
    model.compile(optimizer="adam", loss="mse")
    model.save(path)
    document = inspect_json(path)
    tensors = {t["name"]: t for t in document["tensors"]}
    data = path.read_bytes()
    with zipfile.ZipFile(path) as z, h5py.File(io.BytesIO(z.read("model.weights.h5"))) as f:
        datasets = {}
        f.visititems(lambda name, item: datasets.update({name: item}) if isinstance(item, h5py.Dataset) else None)
        assert sorted(tensors) == sorted(datasets) and datasets
        for name, dataset in datasets.items():
            t = tensors[name]
            assert (t["dtype"], tuple(t["shape"])) == (WORDS[dataset.dtype.name], dataset.shape)
            got = data[t["offset"]:t["offset"] + t["nbytes"]]
            assert got == np.ascontiguousarray(dataset[()]).tobytes(), name
        metadata = json.loads(z.read("metadata.json"))
    assert {k: document["metadata"][k] for k in metadata} == metadata


def test_compressed_weights_are_refused(tmp_path):
    path, again = tmp_path / "model.keras", tmp_path / "again.keras"
    layers("dense", "float32").save(path)
    with zipfile.ZipFile(path) as z, zipfile.ZipFile(again, "w", zipfile.ZIP_DEFLATED) as out:
        for name in z.namelist():
            out.writestr(name, z.read(name))
    code, _, err = run("inspect", again)
    assert code != 0 and "model.weights.h5 compressed (deflate)" in err
