"""Compares splits of folders with those that the package datasets finds: by words in paths, by cards, in .json
files."""
import bz2
import gzip
import json
import lzma
import random

import pyarrow
import pytest

import harness
from client import ClientError, Worker

ROW = b'{"n": 1}\n'

# From reports about datasets: words within words, folders before names, several words in one path, numbers of shards.
LAYOUTS = {
    "vigo": ["www_farodevigo_es.jsonl"],
    "photo": ["a photo of a train.jsonl", "photo of test tubes.jsonl", "photo of a cat.jsonl"],
    "folders": ["train/train_1.jsonl", "test/test_1.jsonl", "validation/val_1.jsonl", "validation/234.jsonl"],
    "both": ["train.jsonl", "train/1.jsonl", "test.jsonl"],
    "hash": ["data/train-00000-of-00002-6f3344faa23e9b0a.jsonl", "data/train-00001-of-00002-0a1b2c3d4e5f6071.jsonl",
             "data/test-00000-of-00001-abcdefabcdef0123.jsonl"],
    "custom": ["data/train_sft-00000-of-00001.jsonl", "data/test_gen-00000-of-00001.jsonl"],
    "words": ["training_set.jsonl", "my-test.jsonl", "x.valid.jsonl", "latest.jsonl", "contest.jsonl", "eval1.jsonl",
              "dev2.jsonl"],
    "numbers": ["train1.jsonl", "train2.jsonl", "test10.jsonl", "1train.jsonl", "2_test_3.jsonl"],
    "deep": ["en/train/a.jsonl", "en/test/a.jsonl", "fr/train/a.jsonl"],
    "named": ["data/a.jsonl", "holdout/b.jsonl"],
    "upper": ["Train.jsonl", "TEST.jsonl", "Validation/x.jsonl"],
    "hidden": ["train.jsonl", ".hidden/test.jsonl", "__pycache__/test.jsonl", "_private/test.jsonl"],
    "hidden-folder": ["train/a.jsonl", "train/__x/b.jsonl", "__test/test.jsonl"],
    "single": ["test.jsonl"],
    "nested": ["data/train/part-0.jsonl", "data/train/part-1.jsonl", "data/dev/part-0.jsonl"],
    "under": ["my_train_file.jsonl", "my_dev_file.jsonl", "file_eval.jsonl"],
    "dataword": ["train_data/1.jsonl", "test_data/1.jsonl", "dataset-train/2.jsonl"],
    "spaces": ["the train set/1.jsonl", "the test set/1.jsonl"],
    "one-folder": ["train/1.jsonl", "valid.jsonl", "test.jsonl"],
    "test-folder": ["train.jsonl", "heldout/test/x.jsonl"],
    "folder-and-file": ["train/test_1.jsonl", "train/dev.jsonl", "test/train_1.jsonl"],
    "two-words": ["train/test/x.jsonl", "test/y.jsonl", "train-dev/z.jsonl"],
    "two-words-in-names": ["train_test.jsonl", "dev.jsonl"],
    "shards-and-others": ["data/train-00000-of-00001.jsonl", "test/1.jsonl", "validation.jsonl"],
    "shard-below": ["data/en/train-00000-of-00001.jsonl", "data/en/test-00000-of-00001.jsonl"],
    "shard-digits": ["data/train-0000-of-0001.jsonl", "data/test-000000-of-000001.jsonl"],
    "brackets": ["data(train).jsonl", "data[test].jsonl", "train+more.jsonl"],
    "keep": ["train/1.jsonl", "extra/2.jsonl", "3.jsonl"],
}

FOLDERS = ["train", "test", "dev", "val", "data", "Train", "en", "my-train", "test_1", "valid set", "x.eval", "contest",
           "__x", "_y", "training", "evaluation", "trained", "7", "data-test-x", "(test)"]
STEMS = ["train", "test", "dev", "a", "1", "part-0", "my_train", "train-test", "x valid y", "TRAIN", "retrain", "eval2",
         "2val", "testing.v1", "train-00000-of-00001", "b-00000-of-00002-c", "x_y-00001-of-00002", "00000-of-00001",
         "validation+x", "é train", "evaluation", "__dev"]


def random_layout(rng):
    files = set()
    for _ in range(rng.randrange(1, 7)):
        depth = rng.choice([0, 0, 1, 1, 2])
        files.add("/".join([*rng.choices(FOLDERS, k=depth), rng.choice(STEMS) + ".jsonl"]))
    return sorted(files)


CARD_FILES = ["a/train.jsonl", "a/test.jsonl", "b/train.jsonl", "b/extra/x.jsonl", "all.jsonl", "more.jsonl",
              "c/data/train-00000-of-00001.jsonl", "c/dev/x.jsonl"]
CARDS = {
    "text": "configs:\n- config_name: default\n  data_files: all.jsonl\n",
    "list": "configs:\n- config_name: default\n  data_files:\n  - all.jsonl\n  - more.jsonl\n",
    "splits": "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: all.jsonl\n"
              "  - split: test\n    path: more.jsonl\n",
    "paths": "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path:\n    - all.jsonl\n"
             "    - more.jsonl\n  - split: test\n    path: [a/test.jsonl]\n",
    "dir": "configs:\n- config_name: first\n  data_dir: a\n- config_name: second\n  data_dir: b\n",
    "dir-only": "configs:\n- config_name: default\n  data_dir: a\n",
    "dirs": "configs:\n- config_name: x\n  data_dir: c\n- config_name: y\n  data_dir: c/dev\n- config_name: z\n"
            "  data_dir: b/extra\n",
    "dir-slash": "configs:\n- config_name: default\n  data_dir: a/\n- config_name: other\n  data_dir: ./b\n",
    "dir-and-files": "configs:\n- config_name: whole\n- config_name: other\n  data_dir: b\n  data_files:\n"
                     "  - split: validation\n    path: extra/*.jsonl\n",
    "no-files-beside": "configs:\n- config_name: default\n  features: []\n- config_name: other\n"
                       "  data_files: all.jsonl\n",
    "two": "configs:\n- config_name: x\n  data_files: a/*.jsonl\n- config_name: y\n  default: true\n"
           "  data_files: b/train.jsonl\n",
    "stars": "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: \"**/train.jsonl\"\n"
             "  - split: test\n    path: 'b/**'\n",
    "question": "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: \"?/t[er]*.jsonl\"\n",
    "dot": "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: ./all.jsonl\n",
    "alias": "configs:\n- config_name: x\n  data_files: &f\n  - split: train\n    path: all.jsonl\n"
             "- config_name: y\n  data_files: *f\n",
    "alias-of-text": "path: &p all.jsonl\nconfigs:\n- config_name: x\n  data_files: [*p, more.jsonl]\n",
    "merge": "configs:\n- &base\n  config_name: x\n  data_files: all.jsonl\n- <<: *base\n  config_name: y\n"
             "- <<: *base\n  config_name: z\n  data_files: more.jsonl\n",
    "comment": "# a comment\nconfigs: # another\n- config_name: \"default\" # and one\n  data_files:\n"
               "  - {split: train, path: all.jsonl}\n",
    "folded": "license: mit\npretty_name: >-\n  a long\n  name: with a colon\nconfigs:\n  - config_name: default\n"
              "    data_files:\n      - split: train\n        path: >-\n          all.jsonl\n",
    "odd-split": "configs:\n- config_name: default\n  data_files:\n  - split: train_sft\n    path: all.jsonl\n"
                 "  - split: v1.0\n    path: more.jsonl\n",
    "no-files": "configs:\n- config_name: default\n  features: []\n",
    "crlf": "configs:\r\n- config_name: default\r\n  data_files:\r\n  - split: test\r\n    path: all.jsonl\r\n",
}

JSON_LINES = b'{"n": 1}\n{"n": 2}\n'
JSON_FILES = {
    "json": {"train.json": JSON_LINES, "test.json": JSON_LINES},
    "mixed": {"train.json": JSON_LINES, "test.jsonl": JSON_LINES},
    "one-line": {"train.json": b'{"n": 1}', "test.json": b'\xef\xbb\xbf{"n": 1}\r\n{"n": 2}'},
    "packed": {"train.jsonl.gz": gzip.compress(JSON_LINES), "test.jsonl": JSON_LINES},
    "zst": {"train.jsonl.zst": pyarrow.compress(JSON_LINES, "zstd", asbytes=True), "test.jsonl": JSON_LINES},
    "xz": {"train.json.xz": lzma.compress(JSON_LINES), "test.jsonl": JSON_LINES},
    "bz2": {"train.jsonl.bz2": bz2.compress(JSON_LINES), "test.jsonl": JSON_LINES},
    "text": {"train.txt.gz": gzip.compress(b"a\nb\n"), "test.txt": b"a\n"},
    "all-packed": {"train.jsonl.gz": gzip.compress(JSON_LINES), "test.json.gz": gzip.compress(JSON_LINES)},
    "array": {"train.json": b'[{"n": 1}, {"n": 2}]', "test.jsonl": JSON_LINES},
    "arrays": {"train.json": b'[\n {"n": 1},\n {"n": 2}\n]\n'},
    "object": {"train.json": b'{\n "n": 1\n}\n', "test.jsonl": JSON_LINES},
}


def write(base, files):
    for name, data in files.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_bytes(data)


@pytest.fixture(scope="module")
def layouts():
    rng = random.Random(5)
    return LAYOUTS | {f"random-{i}": random_layout(rng) for i in range(250)}


@pytest.fixture(scope="module")
def root(tmp_path_factory, layouts):
    root = tmp_path_factory.mktemp("layouts") / "root"
    for name, files in layouts.items():
        write(root / "datasets" / name, {"README.md": b"# a dataset\n"} | dict.fromkeys(files, ROW))
    for name, card in CARDS.items():
        end = "\r\n" if "\r\n" in card else "\n"
        text = f"---{end}{card}---{end}# words{end}"
        write(root / "datasets" / "cards" / name, {"README.md": text.encode()} | dict.fromkeys(CARD_FILES, ROW))
    write(root / "datasets" / "broken", {"README.md": b"---\nconfigs:\n- data_files: [all.jsonl\n---\n",
                                         "all.jsonl": ROW, "train.jsonl": ROW})
    write(root / "datasets" / "refused", {"README.md": b"---\nconfigs:\n- config_name: default\n  data_files:\n"
                                          b"    train: all.jsonl\n---\n", "train.jsonl": ROW})
    for name, files in JSON_FILES.items():
        write(root / "datasets" / "json" / name, files)
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with harness.Server(root) as s:
        yield s


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    with Worker("calls_layouts", HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1",
                HF_DATASETS_CACHE=str(tmp_path_factory.mktemp("cache"))) as w:
        yield w


def splits_of(srv, id):
    about = srv.json(f"/datasets/{id}")
    return {s["name"]: sorted(f["path"] for f in s["files"]) for s in about["splits"]}, about["errors"]


def check_each_file_is_reported(files, splits, errors):
    """Check that each file is in a split or in the errors, except hidden files, which no scan sees."""
    named = {e["file"] for e in errors} | {path for paths in splits.values() for path in paths}
    assert {f for f in files if not any(part.startswith(".") for part in f.split("/"))} <= named


def test_words_in_paths(srv, library, root, layouts):
    refused = 0
    for name, files in layouts.items():
        try:
            want = library.splits_by_paths(base=str(root / "datasets" / name), ending=".jsonl")
        except ClientError as error:  # such as a split that is called "a-b"
            assert name.startswith("random-"), error
            refused += 1
            continue
        got, errors = splits_of(srv, name)
        assert got == want, (name, files)
        check_each_file_is_reported(files, got, errors)
    assert refused < 40


@pytest.mark.parametrize("name", CARDS)
def test_cards(srv, library, root, name):
    got, _ = splits_of(srv, f"cards/{name}")
    assert got == library.splits_by_card(base=str(root / "datasets" / "cards" / name))


@pytest.mark.parametrize("name", JSON_FILES)
def test_json_files(srv, library, root, name):
    """A split that the library has is there with its rows, or a line says which file it lacks."""
    base = root / "datasets" / "json" / name
    want = library.splits_by_paths(base=str(base), ending="")
    got, errors = splits_of(srv, f"json/{name}")
    check_each_file_is_reported(JSON_FILES[name], got, errors)
    lost = {split for split, files in want.items() if set(files) & {e["file"] for e in errors}}
    assert set(got) == set(want) - lost and (lost == set()) == (name in ("json", "mixed", "one-line"))
    for split in got:
        srv.wait_for(lambda: all(s["rows"] is not None for s in srv.json(f"/datasets/json/{name}")["splits"]), "rows")
        rows = srv.get(f"/datasets/json/{name}/rows?split={split}&format=raw")
        assert [json.loads(line) for line in rows.body.splitlines()] == library.rows(base=str(base), split=split)


def test_rows_of_a_dataset_without_splits(srv):
    """The answer says why the dataset has no splits."""
    assert srv.json("/datasets/json/arrays")["splits"] == []
    for tail in ("rows", "rows?split=train", "rows/0", "index"):
        harness.check_error(srv.get(f"/datasets/json/arrays/{tail}"), 422, "has no split", "train.json",
                            "one JSON array")
    assert srv.get("/datasets/json/arrays", {"Accept": "text/html"}).status == 200


def test_a_card_that_does_not_parse(srv):
    splits, errors = splits_of(srv, "broken")
    assert splits == {"train": ["train.jsonl"]}
    assert [e["file"] for e in errors] == ["README.md", "all.jsonl"] or \
        [e["file"] for e in errors] == ["all.jsonl", "README.md"]
    assert "front matter" in next(e["message"] for e in errors if e["file"] == "README.md")


def test_a_card_that_the_library_refuses(srv, library, root):
    """Its data_files are a mapping."""
    with pytest.raises(ClientError, match="Expected data_files in YAML"):
        library.splits_by_card(base=str(root / "datasets" / "refused"))
    splits, (error,) = splits_of(srv, "refused")
    assert splits == {"train": ["train.jsonl"]} and error["file"] == "README.md" and "data_files" in error["message"]
