"""`rows?format=json`: rows in the form in which the Hub's dataset viewer answers, beside the rows and features that the
library `datasets`, and pandas for it, read from the same files. The tests import both themselves: that takes seconds,
and each of the processes of pytest imports all modules of tests."""
import json
import random
import struct

import pytest

import harness
from harness import Server, age


@pytest.fixture
def serve(tmp_path):
    def start(files):
        for name, data in files.items():
            path = tmp_path / "root" / "datasets" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
        age(tmp_path / "root")
        server = Server(tmp_path / "root")
        for name in {name.split("/")[0] for name in files}:
            server.wait_for(lambda: all(split["index"]["state"] != "building" for split in
                                        server.json(f"/datasets/{name}")["splits"]), "the indexes")
        return server

    yield start
    for server in list(Server.live):
        server.stop()


def page(server, id, query=""):
    answer = server.get(f"/datasets/{id}/rows?format=json{query}")
    assert answer.status == 200, answer.body
    assert answer.get("Content-Type") == "application/json"
    found = json.loads(answer.body)
    assert list(found) == ["features", "rows", "num_rows_total", "num_rows_per_page", "partial"]
    assert found["num_rows_per_page"] == 100 and found["partial"] is False
    assert [feature["feature_idx"] for feature in found["features"]] == list(range(len(found["features"])))
    assert all(set(feature) == {"feature_idx", "name", "type"} for feature in found["features"])
    assert all(list(row) == ["row_idx", "row", "truncated_cells"] and row["truncated_cells"] == []
               for row in found["rows"])
    return found


def refused(answer, status):
    return harness.check_error(answer, status, {400: "INVALID_ARGUMENT", 422: "FAILED_PRECONDITION"}[status])["message"]


def features_of(found):
    """Return the features as the library makes them of their description."""
    import datasets

    return datasets.Features.from_dict({feature["name"]: feature["type"] for feature in found["features"]})


def rows_of(found):
    return [row["row"] for row in found["rows"]]


ROWS = [{"id": number, "text": f"ä \"{number}\"\n", "score": number / 4, "whole": number if number % 2 else 0.5,
         "ok": number % 2 == 0, "none": None, "maybe": None if number < 3 else "x", "list": list(range(number % 4)),
         "deep": {"a": [{"b": [[number, None]], "c": "x"}], "d": {"e": {}}, "f": True}, "words": ["a", "b"],
         "big": 2**63 - 1 - number, "low": -2**63 + number} for number in range(250)]


def test_json_lines_beside_datasets(serve, tmp_path):
    import datasets

    text = "".join(json.dumps(row, ensure_ascii=number % 2 == 0) + "\n" for number, row in enumerate(ROWS))
    server = serve({"d/train.jsonl": text})
    oracle = datasets.load_dataset("json", data_files=str(tmp_path / "root/datasets/d/train.jsonl"), split="train",
                                   cache_dir=str(tmp_path / "cache"))
    found = page(server, "d", "&offset=0&length=250")
    assert rows_of(found) == ROWS and found["num_rows_total"] == 250
    ours, theirs = features_of(found), oracle.features
    for name in theirs:  # an object without members is null or an empty struct
        if name != "deep":
            assert ours[name] == theirs[name], name
    assert ours["deep"]["a"] == theirs["deep"]["a"] and ours["deep"]["f"] == theirs["deep"]["f"]
    assert found["features"][0] == {"feature_idx": 0, "name": "id", "type": {"dtype": "int64", "_type": "Value"}}
    first = page(server, "d")
    assert rows_of(first) == ROWS[:100] and [row["row_idx"] for row in first["rows"]] == list(range(100))


def test_offset_and_length(serve):
    server = serve({"d/train.jsonl": "".join(f'{{"n": {number}}}\n' for number in range(250))})
    for query, numbers in (("&offset=100&length=100", range(100, 200)), ("&offset=240&length=100", range(240, 250)),
                           ("&offset=250", range(0)), ("&length=0", range(0)), ("&start=7&count=2", range(7, 9)),
                           ("&offset=7&count=2", range(7, 9)), ("&order=shuffle&seed=5&length=9", None),
                           ("&shard=1/3&offset=2&length=2", (7, 10))):
        found = page(server, "d", query)
        got = [row["row_idx"] for row in found["rows"]]
        assert rows_of(found) == [{"n": number} for number in got], query
        if numbers is not None:
            assert got == list(numbers), query
        else:
            shuffled = server.get("/datasets/d/rows?order=shuffle&seed=5&count=9&format=raw").body
            assert [json.loads(line)["n"] for line in shuffled.splitlines()] == got
        assert found["num_rows_total"] == (83 if "shard" in query else 250)
    # The names are the viewer's, for rows in each form.
    assert server.get("/datasets/d/rows?format=raw&offset=3&length=1").body == b'{"n": 3}\n'
    for query, words in (("offset=251", "offset must be from 0 to 250"),
                         ("offset=1&start=1", "names of the same number"),
                         ("length=1&count=1", "names of the same number"), ("offset=-1", "offset"),
                         ("length=x", "length"), ("offset=99999999999999999999", "offset")):
        assert words in refused(server.get(f"/datasets/d/rows?format=json&{query}"), 400)
    answer = server.post("/datasets/d/rows:batchGet", {"indices": [9, 2, 9], "format": "json"})
    assert [row["row_idx"] for row in json.loads(answer.body)["rows"]] == [9, 2, 9]


def test_tags_and_ranges(serve):
    server = serve({"d/train.jsonl": '{"n": 1}\n{"n": 2}\n'})
    target = "/datasets/d/rows?format=json"
    whole = server.get(target)
    assert server.get(target, {"If-None-Match": whole.get("ETag")}).status == 304
    assert server.get(target, {"Range": "bytes=5-20"}).body == whole.body[5:21]
    assert server.request(target, method="HEAD").get("Content-Length") == str(len(whole.body))
    assert server.get("/datasets/d/rows?format=raw").get("ETag") != whole.get("ETag")
    assert [whole.get(f"X-Row-{name}") for name in ("Start", "Count", "Total")] == ["0", "2", "2"]


def test_values_of_different_types(serve):
    """Values that no column of one type holds are Json; the rows are as stored, with all digits and spellings."""
    lines = ['{"a": 1, "b": [1, "x"], "c": {"x": 1}, "d": [[1], {"y": 2}], "e": 1e400, "f": 18446744073709551615}',
             '{"a": "1", "b": [null], "c": [], "d": [], "e": 0.10, "g\\u0020\\"": null, "f": 1}',
             '  {"a": null, "b": [], "c": null, "new": {"k": [[]]}, "a ": {}}  ']
    server = serve({"d/train.jsonl": "\n".join(lines)})
    answer = server.get("/datasets/d/rows?format=json")
    found = page(server, "d")
    types = {feature["name"]: feature["type"] for feature in found["features"]}
    value = {kind: {"dtype": kind, "_type": "Value"} for kind in ("null", "float64", "int64")}
    json_type = {"_type": "Json"}
    empty = {"feature": value["null"], "_type": "List"}
    assert types == {"a": json_type, "b": {"feature": json_type, "_type": "List"}, "c": json_type,
                     "d": {"feature": json_type, "_type": "List"}, "e": value["float64"], "f": value["float64"],
                     'g "': value["null"], "new": {"k": {"feature": empty, "_type": "List"}}, "a ": {}}
    assert features_of(found)
    for line in lines:
        assert line.strip().encode() in answer.body
    assert rows_of(found) == [json.loads(line) for line in lines]


def test_rows_that_are_no_objects(serve):
    server = serve({"d/train.jsonl": '1\n"x"\n[1, 2]\nnull\n{"row": true}\n'})
    found = page(server, "d")
    assert rows_of(found) == [{"row": 1}, {"row": "x"}, {"row": [1, 2]}, {"row": None}, {"row": True}]
    assert [feature["name"] for feature in found["features"]] == ["row"]


def test_csv_beside_datasets(serve, tmp_path):
    import datasets
    import pandas

    table = ('\ufeffid,name,"a ""quoted"" one",,x,x\r\n1,Ada,"1,\n2",e,f,g\r\n\r\n2,"B ""b""",,e,f,h\r\n'
             '3,ä,z,e,f\r\n')
    tabs = "id\tname\nfirst\ta,b\nsecond\t\"c\td\"\n"
    server = serve({"c/train.csv": table, "t/train.tsv": tabs})
    found = page(server, "c")
    path = str(tmp_path / "root/datasets/c/train.csv")
    oracle = datasets.load_dataset("csv", data_files=path, split="train", cache_dir=str(tmp_path / "cache"))
    assert [feature["name"] for feature in found["features"]] == oracle.column_names
    texts = pandas.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    assert [{name: value or "" for name, value in row.items()} for row in rows_of(found)] == texts
    # The library has null for empty fields and for those that a row lacks: here the latter are null.
    assert [[value is None for value in row.values()] for row in oracle] == [
        [not value for value in row.values()] for row in rows_of(found)]
    assert rows_of(found)[2]["x.1"] is None and rows_of(found)[1]['a "quoted" one'] == ""
    assert all(feature["type"] == {"dtype": "string", "_type": "Value"} for feature in found["features"])
    assert rows_of(page(server, "t", "&offset=1")) == [{"id": "second", "name": "c\td"}]


def test_files_with_other_columns(serve):
    server = serve({"c/train-0.csv": "a,b\n1,2\n", "c/train-1.csv": "b,c,b\n3,4,5\n", "c/train-2.csv": "a,b\n6,7\n"})
    found = page(server, "c")
    assert rows_of(found) == [{"a": "1", "b": "2"}, {"b": "3", "c": "4", "b.1": "5"}, {"a": "6", "b": "7"}]
    assert [feature["name"] for feature in found["features"]] == ["a", "b", "c", "b.1"]


def test_rows_that_are_wrong(serve):
    """An invalid row makes the answer 422 with its number, and does not disturb other rows."""
    wrong = ['{"a": 1', '{"a": 1} x', '{"a": NaN}', "{'a': 1}", '{"a": "\\ud800"}', "[" * 200 + "]" * 200]
    files = {f"j{number}/train.jsonl": f'{{"a": 1}}\n{line}\n{{"a": 2}}\n' for number, line in enumerate(wrong)}
    files |= {"utf8/train.jsonl": b'{"a": 1}\n{"a": "\xff"}\n{"a": 2}\n', "c/train.csv": "a\n1\n1,2\n2\n",
              "cu/train.csv": b"a\n1\n\xff\n2\n", "cn/train.csv": b"\xff\xfe,b\n1,2\n"}
    server = serve(files)
    for name in {name.split("/")[0] for name in files} - {"cn"}:
        message = refused(server.get(f"/datasets/{name}/rows?format=json"), 422)
        assert "row 1 cannot be answered as format=json: " in message and "format=raw answers it" in message, message
        assert len(rows_of(page(server, name, "&offset=2"))) == 1
    assert rows_of(page(server, "cn")) == [{"\\xff\\xfe": "1", "b": "2"}]


def test_rows_of_other_formats(serve, tmp_path):
    import io

    import numpy
    import pyarrow.parquet
    from PIL import Image

    sinks = {"arrow": io.BytesIO(), "parquet": io.BytesIO(), "npy": io.BytesIO(), "png": io.BytesIO()}
    with pyarrow.ipc.new_stream(sinks["arrow"], pyarrow.schema([("a", pyarrow.int8())])) as writer:
        writer.write_batch(pyarrow.record_batch([pyarrow.array([1], pyarrow.int8())], ["a"]))
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), sinks["parquet"])
    numpy.save(sinks["npy"], numpy.zeros((2, 2)))
    Image.new("RGB", (2, 2)).save(sinks["png"], "PNG")
    server = serve({f"{kind}/train.{kind}": sink.getvalue() for kind, sink in sinks.items()})
    for kind, words in (("arrow", "ask for format=arrow"), ("npy", "ask for format=frame"),
                        ("parquet", "read row groups by Range"), ("png", "of image files are not answered")):
        message = refused(server.get(f"/datasets/{kind}/rows?format=json"), 422)
        assert words in message, message
    known = refused(server.get("/datasets/arrow/rows?format=jsno"), 400)
    assert "it is frame, raw, tar, arrow or json" in known


def test_bounds(serve):
    """Rows of hostile shapes cost no more than their bytes: many names, names that alternate, and large rows."""
    rng = random.Random(1)
    many = {f"k{number}": 1 for number in range(4097)}
    nested = [{"o": {f"{rng.random()}": [1] for _ in range(1000)}} for _ in range(40)]
    header = ",".join(["x"] * 1000)
    deep = '{"a":' * 100 + "1" + "}" * 100
    server = serve({"many/train.jsonl": json.dumps(many), "nested/train.jsonl": "\n".join(map(json.dumps, nested)),
                    "same/train.csv": f"{header}\n{header}\n", "deep/train.jsonl": deep,
                    "large/train.jsonl": '{"a": "' + "x" * 34_000_000 + '"}\n'})
    message = refused(server.get("/datasets/many/rows?format=json"), 422)
    assert "more than 4096 columns" in message
    found = page(server, "nested")
    assert rows_of(found) == nested and found["features"][0]["type"] == {"_type": "Json"}
    message = refused(server.get("/datasets/same/rows?format=json"), 422)
    assert "too many columns of the same name" in message
    found = page(server, "deep")
    assert rows_of(found) == [json.loads(deep)]
    kind = found["features"][0]["type"]
    for _ in range(31):
        kind, = kind.values()
    assert kind["a"] == {"_type": "Json"} if "a" in kind else kind == {"_type": "Json"}
    message = refused(server.get("/datasets/large/rows?format=json"), 422)
    assert "33554432 bytes" in message and "fewer rows" in message
    assert struct.unpack_from("<Q", server.get("/datasets/large/rows").body)[0] == 1
