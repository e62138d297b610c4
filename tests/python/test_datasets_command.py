"""`python -m tensord ls` and `rows` of datasets."""
import json

import numpy
import pyarrow
import pyarrow.parquet
import pytest
from conftest import rows_url
from safetensors.numpy import save_file

from tensord.__main__ import main

LINES = ['{"id": 0}', '{"id": 1, "text": "ä\\t"}', "{}", '"last"']


@pytest.fixture
def url(serve_rows):
    folder = serve_rows.root / "datasets" / "org" / "text"
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text("\n".join(LINES) + "\n")
    (folder / "test.jsonl").write_text("1\n")
    (serve_rows.root / "datasets" / "table").mkdir()
    (serve_rows.root / "datasets" / "table" / "train.csv").write_text("a,b\n1,2\n")
    (serve_rows.root / "datasets" / "words").mkdir()
    (serve_rows.root / "datasets" / "words" / "train.uint16x4.bin").write_bytes(bytes(16))
    (serve_rows.root / "datasets" / "parquet").mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), serve_rows.root / "datasets" / "parquet" / "train.parquet")
    return rows_url(serve_rows(), "org/text")


def test_ls(url, serve_rows, capsys):
    server = url.partition("/datasets")[0]
    assert main(["ls", server]) == 0
    assert capsys.readouterr().out.splitlines() == ["dataset   splits", "org/text  train, test", "parquet   train",
                                                    "table     train", "words     train"]
    assert main(["ls", server, "--json"]) == 0
    found = [one["id"] for one in json.loads(capsys.readouterr().out)["datasets"]]
    assert found == ["org/text", "parquet", "table", "words"]
    assert main(["rows", url, "0", "--split", "train"]) == 0  # so that the index is there
    capsys.readouterr()
    assert main(["ls", url]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["split", "format", "rows", "size", "index", "columns"]
    assert shown[1].split()[:3] == ["train", "jsonl", "4"] and "ready" in shown[1] and shown[2].split()[0] == "test"
    assert main(["ls", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["splits"]["train"]["rows"] == 4
    main(["rows", url.replace("org/text", "table"), "0"])
    assert main(["ls", url.replace("org/text", "table")]) == 0
    assert "a, b" in capsys.readouterr().out


def test_ls_of_models_and_datasets(serve_rows, capsys):
    (serve_rows.root / "datasets" / "d").mkdir(parents=True)
    (serve_rows.root / "datasets" / "d" / "train.jsonl").write_text("1\n")
    (serve_rows.root / "m").mkdir()
    save_file({"w": numpy.zeros(3)}, serve_rows.root / "m" / "model.safetensors")
    server = rows_url(serve_rows(), "").partition("/datasets")[0]
    assert main(["ls", server]) == 0
    assert capsys.readouterr().out.splitlines() == ["model  size  formats", "m      24 B  safetensors", "",
                                                    "dataset  splits", "d        train"]
    assert main(["ls", server, "--match", "m"]) == 0
    assert "dataset" not in capsys.readouterr().out


def test_rows(url, capfdbinary):
    for text, wanted in (("0", LINES[:1]), ("1:3", LINES[1:3]), ("2:", LINES[2:]), ("-1", LINES[3:]),
                         ("-2:", LINES[2:]), ("0:99", LINES), ("3:1", []), ("0:-1", LINES[:3])):
        assert main(["rows", url, "--split", "train", "--", text]) == 0
        assert capfdbinary.readouterr().out.decode() == "".join(line + "\n" for line in wanted), text


def test_messages(url, capsys):
    for arguments, text in ((["rows", url, "0"], "org/text has 2 splits (train, test): --split NAME chooses one"),
                            (["rows", url, "4", "--split", "train"], "split train has 4 rows, -4 to 3"),
                            (["rows", url, "a", "--split", "train"], "a names no rows: it is a number, such as 5"),
                            (["rows", url, "--split", "train", "--", "1:-"], "1:- names no rows"),
                            (["rows", url.replace("org/text", "words"), "0"],
                             "are of format tokens, which is not text"),
                            (["rows", url.replace("org/text", "parquet"), "0"],
                             "rows of split train are of format parquet, which is not text; in Python, "
                             "tensord.Dataset"),
                            (["rows", url + "x", "0"], "404"), (["ls", url + "x"], "404"),
                            (["rows", url.partition("/datasets")[0], "0"], "no dataset is named")):
        assert main(arguments) == 1
        shown = capsys.readouterr().err
        assert text in shown and shown.startswith("tensord: ") and shown.count("\n") == 1, (arguments, shown)
