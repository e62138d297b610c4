"""Folders of images with labels and metadata, beside the builder "imagefolder" of the library datasets; classes also by
the rule that torchvision's ImageFolder documents: the names of the folders, sorted."""
import csv
import io
import json
import os
import pickle
import re
import tracemalloc

import datasets
import numpy
import pandas
import pyarrow
import pytest
import torch
from conftest import REPO, rows_url
from PIL import Image
from torch.utils.data import DataLoader

import tensord

QUIET = {"progress": False, "retry_for": 20.0}
FOLDERS = {
    "splits": ["train/dog/2.png", "train/cat/1.png", "test/cat/3.png", "train/Zebra/z.png", "train/ört/x.png"],
    "one-split": ["cat/1.png", "dog/2.png", "README.md"],
    "deeper": ["train/x/cat/1.png", "train/x/dog/2.png", "train/y/cat/3.png"],
    "above-splits": ["imgs/train/cat/1.png", "imgs/train/dog/1.png", "README.md"],
    "names": ["train/cat/1.JPG", "train/dog/2.jpeg", "validation/dog/3.webp", "validation/cat/4.gif"],
    "of-two-depths": ["train/cat/1.png", "train/2.png"],
    "of-one-class": ["train/cat/1.png", "train/cat/2.png"],
}
METADATA = {
    "csv": {"train/metadata.csv":
            'file_name,caption,n,x,ok,some\n2.png,"two, 2",2,.5,True,\n1.png,one,1,1e3,False,7.5\n',
            "test/metadata.csv": "file_name,caption,n,x,ok,some\nin/3.png,three,3,2.0,True,8.5\n"},
    "nulls": {"train/metadata.csv":
              'file_name,caption,n,x,ok\n2.png,None,NA,nan,TRUE\n1.png,"null ",1,1e3,n/a\n',
              "test/metadata.csv": "file_name,caption,n,x,ok\nin/3.png,nan.,,-inf,\nin/4.png,NULL,7,.5,false\n"},
    "lines": {"metadata.jsonl": '{"file_name": "train/2.png", "c": {"x": [1]}, "t": "a\u2028b\u0085"}\n'
                                '{"file_name": "train/1.png", "c": null, "t": null}\n'
                                '{"file_name": "test/in/3.png", "c": {"x": []}, "t": ""}\n'},
}
IMAGES_WITH_METADATA = {"csv": ["train/1.png", "train/2.png", "test/in/3.png"],
                        "nulls": ["train/1.png", "train/2.png", "test/in/3.png", "test/in/4.png"],
                        "lines": ["train/1.png", "train/2.png", "test/in/3.png"]}
FIELDS = ["", "NA", "nan", "null", "None", "N/A", "<NA>", "#N/A", " NA", "nan ", "0", "1", "-7", "+3", "007", " 1 ",
          "- 1", "1_000", "0x10", "1.5", ".5", "1.", ".", "1e3", "1.E-3 ", "1e", "1e400", "inf", "-Infinity", " inf",
          "True", "TRUE", "false", "tRUE", "True ", "yes", "text", "9223372036854775807", "\u0661", "1\u00a0"]


def put(root, path, number):
    """Write an image whose first pixel is its number."""
    path = root / path
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".md":
        path.write_text("about")
    else:
        Image.new("RGB", (4, 3), (10 * number, 0, 0)).save(path, **({"quality": 100} if path.suffix.lower() in (
            ".jpg", ".jpeg") else {"lossless": True} if path.suffix == ".webp" else {}))


def pixel(image):
    return round(image.convert("RGB").getpixel((0, 0))[0] / 10)


@pytest.fixture
def served(serve_rows):
    """served({path: text}, *images) writes a dataset `d` and returns its URL."""
    def start(files, *images):
        root = serve_rows.root / "datasets" / "d"
        for number, path in enumerate(images):
            put(root, path, number)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return rows_url(serve_rows(), "d")

    start.root = serve_rows.root
    return start


def open_folder(url, split=None, **how):
    return tensord.Dataset(url, split=split, decode="imagefolder", **QUIET, **how)


def oracle(served, tmp_path):
    return datasets.load_dataset("imagefolder", data_dir=str(served.root / "datasets" / "d"),
                                 cache_dir=str(tmp_path / "cache"))


@pytest.mark.parametrize("name", FOLDERS)
def test_labels_beside_datasets(served, tmp_path, name):
    url = served({}, *FOLDERS[name])
    wanted = oracle(served, tmp_path)
    assert set(wanted) == set(tensord.connect(url).dataset_info().splits)
    for split, rows in wanted.items():
        found = open_folder(url, split)
        has_labels = "label" in rows.features
        assert has_labels == (not name.startswith("of-"))
        assert found.classes == (rows.features["label"].names if has_labels else [])
        assert found.class_to_idx == {one: place for place, one in enumerate(found.classes)}
        assert [(pixel(row["image"]), row.get("label")) for row in found] == [
            (pixel(row["image"]), row.get("label")) for row in rows]
        assert all(list(row) == list(rows.features) for row in found)


def test_classes_by_the_rule_of_torchvision(served):
    url = served({}, *FOLDERS["splits"])
    names = sorted(entry.name for entry in os.scandir(served.root / "datasets" / "d" / "train") if entry.is_dir())
    found = open_folder(url, "train")
    assert found.classes == names == ["Zebra", "cat", "dog", "ört"]
    assert [found.classes[row["label"]] for row in found] == [path.split("/")[1] for path in found.paths()]
    assert tensord.Dataset(url, split="train", **QUIET).classes == names  # whatever rows become


@pytest.mark.parametrize("kind", METADATA)
def test_metadata_beside_datasets(served, tmp_path, kind):
    """Rows are those of the library, in the order of the images' paths."""
    url = served(METADATA[kind], *IMAGES_WITH_METADATA[kind])
    if kind != "lines":
        wanted = {split: list(rows) for split, rows in oracle(served, tmp_path).items()}
    else:  # of metadata above the folders of splits the library takes none
        text = METADATA[kind]["metadata.jsonl"]
        lines = {row.pop("file_name"): row for row in map(json.loads, text.rstrip("\n").split("\n"))}
        wanted = {split: [{"image": Image.open(served.root / "datasets/d" / path), **row} for path, row in
                          lines.items() if path.startswith(split)] for split in ("train", "test")}
    for split, rows in wanted.items():
        found = open_folder(url, split)
        assert found.classes == [] and len(found) == len(rows)
        rows = sorted(rows, key=lambda row: pixel(row["image"]))
        assert [{**row, "image": pixel(row["image"])} for row in found] == [
            {**row, "image": pixel(row["image"])} for row in rows]
        assert [list(row) for row in found] == [list(row) for row in rows]
        assert [[type(value) for name, value in row.items() if name != "image"] for row in found] == [
            [type(value) for name, value in row.items() if name != "image"] for row in rows]


def test_types_of_columns_beside_pandas(served):
    """One column for each pair of fields; the builder reads metadata.csv with pandas."""
    columns = [*((one, two) for one in FIELDS for two in FIELDS), ("18446744073709551615", "1")]
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(
        [["file_name", *range(len(columns))], *([f"{row}.png", *fields] for row, fields in enumerate(zip(*columns)))])
    found = open_folder(served({"train/metadata.csv": text.getvalue()}, "train/0.png", "train/1.png"))
    wanted = pyarrow.Table.from_pandas(pandas.read_csv(io.StringIO(text.getvalue())))
    for row, values in enumerate(wanted.to_pylist()):
        assert [(name, type(value), value) for name, value in found[row].items() if name != "image"] == [
            (name, type(value), value) for name, value in values.items() if name != "file_name"]


@pytest.mark.parametrize("names", ["x,x", ",", "x,x,x.1,x,x.1", "x.1,x,x", "x,,Unnamed: 2,", "x,x,x,x.1.1,x.1"])
def test_names_of_columns_beside_pandas(served, names):
    text = f"file_name,{names}\n" + ",".join(["1.png", *map(str, range(names.count(",") + 1))]) + "\n"
    row = open_folder(served({"train/metadata.csv": text}, "train/1.png"))[0]
    wanted = pandas.read_csv(io.StringIO(text)).to_dict("records")[0]
    del row["image"], wanted["file_name"]
    assert row == wanted and list(row) == list(wanted)


@pytest.mark.parametrize("lines", ["1.png\n2.png,1", "1.png,1\n2.png,2", "1.png,1\n2.png,2,x", "1.png\n2.png"])
def test_short_rows_beside_pandas(served, lines):
    text = f"file_name,a,b\n{lines}\n"
    found = open_folder(served({"train/metadata.csv": text}, "train/1.png", "train/2.png"))
    wanted = pyarrow.Table.from_pandas(pandas.read_csv(io.StringIO(text))).to_pylist()
    for row, values in zip(found, wanted):
        del row["image"], values["file_name"]
        assert repr(row) == repr(values)


def test_metadata_costs_time_and_memory_by_its_length(served):
    """Columns that no row fills, and rows with names of their own; and long fields that are nearly numbers: in time of
    the square of their length they would take longer than a test may."""
    count = 1000
    wide = ",".join(f"c{number}" for number in range(20_000))
    files = {"train/csv/metadata.csv": f"file_name,n\n1.png,{'1' * 200_000}x\n",
             "train/wide/metadata.csv": f"file_name,{wide}\n" + "1.png\n" * 20_000,
             "train/lines/metadata.jsonl": "".join(json.dumps({"file_name": f"{number}.png", f"n{number}": 1}) + "\n"
                                             for number in range(count))}
    image = io.BytesIO()
    Image.new("RGB", (1, 1)).save(image, "png")
    for path in ["train/csv/1.png", "train/wide/1.png", *(f"train/lines/{number}.png" for number in range(count))]:
        (served.root / "datasets/d" / path).parent.mkdir(parents=True, exist_ok=True)
        (served.root / "datasets/d" / path).write_bytes(image.getvalue())
    url = served(files)
    tracemalloc.start()
    found = open_folder(url)
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()
    assert found[0]["n"] == "1" * 200_000 + "x"


def test_images_without_metadata_and_metadata_without_images(served):
    url = served({"metadata.csv": "file_name,n\ntrain/1.png,1\nnot-there.png,5\n",
                  "train/metadata.jsonl": '{"file_name": "./2.png", "more": "x"}\n'}, "train/1.png", "train/2.png",
                 "train/3.png")
    found = [{name: value for name, value in row.items() if name != "image"} for row in open_folder(url)]
    assert found == [{"n": 1, "more": None}, {"n": None, "more": "x"}, {"n": None, "more": None}]


@pytest.mark.parametrize("path, text, words", [
    ("metadata.csv", "file_name,n\n../1.png,1\n", "leads out of its folder"),
    ("metadata.csv", "file_name,n\n/etc/passwd,1\n", "leads out of its folder"),
    ("metadata.csv", "name,n\n1.png,1\n", "has no file_name"),
    ("metadata.csv", "file_name,n\n1.png,1,2\n", "more fields than the header"),
    ("metadata.csv", 'file_name,n\n"1.png,1\n', "unexpected end of data"),
    ("metadata.jsonl", '{"file_name": 5}\n', "has no file_name"),
    ("metadata.jsonl", "[1]\n", "not a JSON object"), ("metadata.jsonl", "{\n", "cannot be read"),
    ("metadata.jsonl", "[" * 100000, "cannot be read"),
])
def test_metadata_that_is_wrong(served, path, text, words):
    url = served({path: text}, "train/1.png")
    with pytest.raises(tensord.DecodeError, match=f"{path} of d cannot be read: .*{words}" if "cannot" not in words
                       else f"{path} of d cannot be read"):
        open_folder(url)
    assert len(tensord.Dataset(url, **QUIET)) == 1  # its images can be read


def to_tensor(image):
    return torch.from_numpy(numpy.asarray(image.convert("RGB")).transpose(2, 0, 1).copy()).float() / 255


def test_batches_of_torch(served):
    images = [f"train/{kind}/{number:03}.png" for number in range(12) for kind in ("cat", "dog")]
    url = served({}, *images)
    dataset = open_folder(url, transform=to_tensor)
    labels = [row["label"] for row in dataset]
    assert labels == [0] * 12 + [1] * 12 and dataset[3]["image"].shape == (3, 3, 4)
    order = list(tensord.ShuffleSampler(dataset, seed=1))
    for workers in (0, 2):
        loader = DataLoader(dataset, batch_size=6, sampler=tensord.ShuffleSampler(dataset, seed=1), num_workers=workers)
        batches = list(loader)
        assert all(batch["image"].shape == (6, 3, 3, 4) and batch["label"].dtype == torch.int64 for batch in batches)
        assert [label for batch in batches for label in batch["label"].tolist()] == [labels[row] for row in order]
        stream = tensord.IterableDataset(dataset, shuffle=True, seed=1, batch_size=6)
        again = [label for batch in DataLoader(stream, batch_size=6, num_workers=workers)
                 for label in batch["label"].tolist()]
        assert again == [labels[row] for row in order]
    same = pickle.loads(pickle.dumps(dataset))
    assert same.classes == ["cat", "dog"] and same.__getitems__([23, 0])[0]["label"] == 1
    assert [row["label"] for row in dataset.shuffled(0, 24, seed=1)] == [labels[row] for row in order]


def test_transforms_and_columns(served):
    url = served({}, "train/cat/1.png", "train/dog/2.png")
    assert tensord.Dataset(url, decode="image", transform=pixel, **QUIET)[:] == [0, 1]
    assert open_folder(url, columns=["label"])[1] == {"label": 1}
    assert tensord.connect(url).dataset(decode="imagefolder", transform=pixel)[1] == {"image": 1, "label": 1}
    with pytest.raises(ValueError, match="it has no size"):
        open_folder(url, columns=["size"])[0]

    def fails(image):
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):  # a transform's errors are its own
        open_folder(url, transform=fails)[0]


def test_rows_of_other_formats(serve_rows):
    path = serve_rows.root / "datasets" / "text" / "train.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"n": 1}\n{"n": 2}\n')
    url = rows_url(serve_rows(), "text")
    with pytest.raises(ValueError, match="decode='imagefolder' does not fit split train of format jsonl"):
        open_folder(url)
    with pytest.raises(tensord.TensordError, match="format jsonl and have no classes"):
        tensord.Dataset(url, **QUIET).classes
    assert list(tensord.Dataset(url, transform=lambda row: row["n"], **QUIET)) == [1, 2]


def test_the_example_of_the_documentation(serve_rows):
    images = [f"train/{kind}/{number}.png" for kind in ("cat", "dog") for number in range(20)]
    for number, path in enumerate(images):
        put(serve_rows.root / "datasets" / "pets", path, number % 25)
    url = rows_url(serve_rows(), "pets")
    code, = re.findall(r"^```py\n(import numpy\n.*?)^```", (REPO / "docs/python.md").read_text(), re.M | re.S)
    names = {}
    exec(code.replace("tensord://127.0.0.1:8080/datasets/pets", url).replace("num_workers=4", "num_workers=0"), names)
    assert names["pets"].classes == ["cat", "dog"] and names["pets"][0]["label"] == 0
    batch = next(iter(names["loader"]))
    assert batch["image"].shape == (32, 3, 224, 224) and batch["label"].shape == (32,)


def test_damaged_images(served):
    url = served({"train/dog/2.png": "no image"}, "train/cat/1.png", "train/dog/3.png")
    found = open_folder(url)
    assert found.classes == ["cat", "dog"] and found[2]["label"] == 1
    with pytest.raises(tensord.DecodeError, match="row 1 of d .*decode='imagefolder'"):
        found[1]
