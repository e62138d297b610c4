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


def test_weights_in_shards(serve):
    """save_weights writes model.weights.json and shards; no shard has all weights of a layer."""
    folder = serve.root / "m"
    folder.mkdir()
    model = keras.Sequential([keras.Input((64,)), *(keras.layers.Dense(64) for _ in range(6))])
    model.save_weights(folder / "model.weights.json", max_shard_size=17e-6)
    shards = sorted(folder.glob("*.h5"))
    want = {}
    for shard in shards:
        with h5py.File(shard) as f:
            f.visititems(lambda name, item: want.update({name: item[...]}) if isinstance(item, h5py.Dataset) else None)
    kinds = {type(files) for files in json.loads((folder / "model.weights.json").read_text())["weight_map"].values()}
    assert len(shards) > 2 and len(want) == 12 and list in kinds
    (serve.root / "part").mkdir()
    for path in folder.iterdir():
        if path != shards[1]:
            (serve.root / "part" / path.name).write_bytes(path.read_bytes())
    (serve.root / "bad").mkdir()
    (serve.root / "bad" / shards[0].name).write_bytes(shards[0].read_bytes())
    (serve.root / "bad/model.weights.json").write_text("{")
    server = serve()
    assert [c["id"] for c in server.json("/models/m")["checkpoints"]] == ["model.weights.json"]
    got = {t["name"]: t for t in server.json("/models/m/tensors")["tensors"]}
    assert sorted(got) == sorted(want)
    for name, array in want.items():
        assert server.get(got[name]["href"]).body == array.tobytes(), name
    assert server.get("/models/part/tensors").status == 404
    assert shards[1].name in server.json("/models/part")["errors"][0]["message"]
    part = server.json("/models/part/tensors?partial=1")
    assert part["incomplete"]["missing_files"] == [shards[1].name] and "missing_tensor_count" not in part["incomplete"]
    assert 0 < part["tensor_count"] < 12
    lost = next(name for name in want if name not in {t["name"] for t in part["tensors"]})
    absent = server.get(f"/models/part/tensors/{lost}?partial=1")
    assert absent.status == 404 and shards[1].name in absent.json()["error"]["message"]
    assert server.get("/models/bad/tensors").status == 404
