"""The page of all models, at "/" and "/models/": rows, search, order and pages, against the JSON of the same server."""
import html.parser
import math
import os
import re

import pytest

from harness import Server, age, tensor, write_by_hand

HTML = {"Accept": "text/html"}
EVIL = "\"><script>alert(1)</script>&lt;'"
RIGHT_TO_LEFT = "a\u202egnp.exe"
CONTROLS = "tab\tbell\x07"
LONG = "l" * 200
SIZES = {"one": (3, 5), "Two": (7,), "three": (2, 2, 2)}


class Cells(html.parser.HTMLParser):
    """Collects the elements that have one of the attributes `keys`, as (attributes, text within them)."""

    def __init__(self, text, *keys):
        super().__init__()
        self.keys, self.found, self.stack = keys, [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if any(key in attrs for key in self.keys):
            self.found.append([tag, attrs, ""])
            self.stack.append((tag, len(self.found) - 1))
        elif tag not in ("br", "img", "input", "link", "meta"):
            self.stack.append((tag, None))

    def handle_endtag(self, tag):
        while self.stack and self.stack.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for _, at in self.stack:
            if at is not None:
                self.found[at][2] += data


def rows_of(srv, target="/models/"):
    """Returns [{"id": ..., column: (data-value, text)}] of the rows of models."""
    answer = srv.get(target, HTML)
    assert answer.status == 200, answer
    rows = []
    for _, attrs, text in Cells(answer.body.decode(), "data-model", "data-col").found:
        if "data-model" in attrs:
            rows.append({"id": attrs["data-model"]})
        else:
            rows[-1][attrs["data-col"]] = (attrs.get("data-value"), text)
    return rows


def ids_of(srv, target="/models/"):
    return [row["id"] for row in rows_of(srv, target)]


@pytest.fixture(scope="module")
def srv(tmp_path_factory):
    root = tmp_path_factory.mktemp("models") / "root"
    for name, shape in SIZES.items():
        (root / "org" / name).mkdir(parents=True)
        write_by_hand(root / "org" / name / "model.safetensors", [tensor("w", "F32", shape), tensor("v", "BF16", (2,))])
    for name in (EVIL.replace("/", ""), RIGHT_TO_LEFT, CONTROLS, LONG):
        (root / "bad" / name).mkdir(parents=True)
        write_by_hand(root / "bad" / name / "model.safetensors", [tensor("w", "F32", (1,))])
    (root / "broken").mkdir()
    (root / "broken/model.safetensors").write_bytes(b"\xff" * 100)
    (root / "datasets/ns/<rows>").mkdir(parents=True)
    (root / "datasets/ns/<rows>/train.jsonl").write_bytes(b'{"a": 1}\n')
    age(root)
    for i, name in enumerate(SIZES):
        os.utime(root / "org" / name / "model.safetensors", (1.6e9 + i, 1.6e9 + i))
    with Server(root) as s:
        yield s


def test_rows_are_those_of_the_json(srv):
    models = {model["id"]: model for model in srv.json("/models")["models"]}
    rows = {row["id"]: row for row in rows_of(srv)}
    assert set(rows) == {id.replace("\x07", "") for id in models}  # html.parser drops what a browser keeps
    for id, model in models.items():
        id = id.replace("\x07", "")
        assert int(rows[id]["bytes"][0]) == model["total_bytes"], id
        format = model["checkpoints"][0]["format"] if model["checkpoints"] else ""
        assert rows[id]["format"][1] == format
    for name, shape in SIZES.items():
        assert int(rows[f"org/{name}"]["parameters"][0]) == math.prod(shape) + 2


def test_names_from_strangers(srv):
    text = srv.get("/models/", HTML).body.decode()
    assert "<script>alert" not in text and "\x07" not in text
    shown = {row["id"]: row["name"][1] for row in rows_of(srv)}
    assert not any("\u202e" in name for name in shown.values())
    assert shown["bad/" + EVIL.replace("/", "")] == "bad/" + EVIL.replace("/", "")
    assert shown["bad/" + RIGHT_TO_LEFT] == "bad/a\\xe2\\x80\\xaegnp.exe"
    assert shown["bad/tab\tbell"] == "bad/tab\\x09bell\\x07"
    for _, attrs, _ in Cells(text, "href").found:
        if attrs["href"].startswith("/models/") and "?" not in attrs["href"]:
            assert srv.get(attrs["href"], HTML).status == 200, attrs


def test_the_reason_of_a_broken_model_is_in_its_row(srv):
    row, = (row for row in rows_of(srv) if row["id"] == "broken")
    problem, = srv.json("/models/broken")["errors"]
    assert row["state"][0] == "broken" and problem["message"] in row["name"][1]


@pytest.mark.parametrize("target", ["/", "/models/"])
def test_search(srv, target):
    assert ids_of(srv, target + "?q=tw") == ["org/Two"] and ids_of(srv, target + "?q=ORG%2F") == sorted(
        f"org/{name}" for name in SIZES)
    text = srv.get(target + "?q=%22%3E%3Cnothing", HTML).body.decode()
    assert ids_of(srv, target + "?q=%22%3E%3Cnothing") == [] and 'value="&quot;&gt;&lt;nothing"' in text
    assert "No model" in text


def test_order(srv):
    everything = ids_of(srv)
    assert everything == sorted(everything, key=str.encode)
    assert ids_of(srv, "/models/?sort=-name") == everything[::-1]
    for column in ("bytes", "parameters", "updated"):
        values = [int(row[column][0]) for row in rows_of(srv, f"/models/?q=org&sort={column}")]
        assert values == sorted(values) and len(set(values)) == 3
        assert [int(row[column][0]) for row in rows_of(srv, f"/models/?q=org&sort=-{column}")] == values[::-1]
    headings = Cells(srv.get("/models/?sort=-bytes", HTML).body.decode(), "aria-sort", "data-sort").found
    assert [attrs["aria-sort"] for _, attrs, _ in headings if "aria-sort" in attrs] == ["descending"]
    links = {attrs["data-sort"]: attrs["href"] for _, attrs, _ in headings if "data-sort" in attrs}
    assert links == {name: f"/models/?q=&sort={name}" for name in ("name", "parameters", "bytes", "updated")}


@pytest.mark.parametrize("query", ["sort=size", "sort=", "sort=--name", "page=x", "page=-1", "page=0", "none=1",
                                   "q=a&q=b"])
def test_bad_parameters(srv, query):
    answer = srv.get("/models/?" + query, HTML)
    assert answer.status == 400 and answer.get("Content-Type") == "text/html; charset=utf-8"
    assert b'role="alert"' in answer.body


def test_datasets_are_on_the_start_page_alone(srv):
    found = Cells(srv.get("/", HTML).body.decode(), "data-dataset").found
    assert [attrs["data-dataset"] for _, attrs, _ in found] == ["ns/<rows>"]
    assert not Cells(srv.get("/models/", HTML).body.decode(), "data-dataset").found


def test_pages_of_many_models(tmp_path):
    for i in range(1201):
        (tmp_path / f"m{i:04d}").mkdir()
        write_by_hand(tmp_path / f"m{i:04d}/model.safetensors", [tensor("w", "U8", (1 + i % 7,))])
    age(tmp_path)
    with Server(tmp_path, hash_threads=0) as s:
        seen, target = [], "/models/?sort=-bytes"
        while target:
            text = s.get(target, HTML).body.decode()
            seen += rows_of(s, target)
            following = re.search(r'rel="next"[^>]*href="([^"]*)"', text)
            target = following and following[1].replace("&amp;", "&")
        assert len(seen) == 1201 and len({row["id"] for row in seen}) == 1201
        keys = [(-int(row["bytes"][0]), row["id"]) for row in seen]
        assert keys == sorted(keys)
        assert ids_of(s, "/models/?page=1000000") == ids_of(s, "/models/?page=3")
