"""The page of a dataset: its splits and rows, against the rows themselves."""
import html
import json
import re

import pytest

from harness import Server
from page_reader import read_page
from test_page_models import Cells

HTML = {"Accept": "text/html"}
PIXEL = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0"
                      "000003010100c9fe92ef0000000049454e44ae426082")
EVIL = '<script>alert("1")</script> & \u202emore\x07'
ROWS = [{"a": i, "text": EVIL if i == 0 else f"row {i}", "x": i / 4, "list": [1, i], "deep": {"k": None},
         "a \"name\" <b>": None if i == 1 else i % 2 == 0} for i in range(23)] + [{"text": "y" * 5000}]
TYPES = {"a": "int64", "text": "string", "x": "float64", "list": "list", "deep": "object", "a \"name\" <b>": "bool"}
TEXTS = [b"caf\xc3\xa9 \xff", b"x" * 5000] + [b"line %d" % i for i in range(20)]


@pytest.fixture(scope="module")
def srv(tmp_path_factory):
    root = tmp_path_factory.mktemp("dataset") / "root"
    (root / "datasets/ns/it's").mkdir(parents=True)
    (root / "datasets/ns/it's/train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (root / "datasets/ns/it's/test.jsonl").write_text('{"a": 1}\n')
    (root / "datasets/ns/it's/README.md").write_text("---\nlicense: mit\n---\n# A title\n\n[rows](train.jsonl) "
                                                     "![p](p.png) <b onclick=x>\n")
    (root / "datasets/ns/it's/p.png").write_bytes(PIXEL)
    (root / "datasets/empty").mkdir()
    (root / "datasets/empty/train.csv").write_text("a,b\n")
    (root / "datasets/table").mkdir()
    (root / "datasets/table/train.csv").write_text("n,m\n1,\"a,\"\"b\"\n2,\n")
    (root / "datasets/lines").mkdir()
    (root / "datasets/lines/train.jsonl").write_bytes(b"\n".join(TEXTS))
    (root / "datasets/lines/README.md").write_text("version https://git-lfs.github.com/spec/v1\n"
                                                   f"oid sha256:{'0' * 64}\nsize 12345\n")
    (root / "datasets/broken").mkdir()
    (root / "datasets/broken/train.jsonl").write_bytes(b"{not json\n<b>\n")
    (root / "datasets/pictures/train/a b").mkdir(parents=True)
    (root / "datasets/pictures/train/a b/1.png").write_bytes(PIXEL)
    (root / "datasets/packed").mkdir()
    (root / "datasets/packed/train.uint16x4.bin").write_bytes(bytes(range(16)))
    with Server(root) as s:
        for dataset in ("ns/it's", "empty", "table", "lines", "pictures", "packed", "broken"):
            name = dataset.replace("'", "%27")
            s.wait_for(lambda name=name: b"not counted yet" not in s.get(f"/datasets/{name}", HTML).body
                       and s.get(f"/datasets/{name}", HTML).status == 200, f"{name} to be indexed")
        yield s


def visit(srv, target):
    answer = srv.get(target, HTML)
    assert answer.status == 200 and "script-src 'self'" in answer.get("Content-Security-Policy"), answer
    return answer.body.decode()


def table_of(text):
    """Returns ({column: type}, [(row number, [cell, ...])])."""
    columns, rows = {}, []
    body = text[text.index('<table id="rows"'):]
    for attrs, shown in re.findall(r"<th ([^>]*data-type[^>]*)>(.*?)</th>", body):
        columns[html.unescape(re.search("<bdi>(.*?)</bdi>", shown)[1])] = re.search('data-type="(.*?)"', attrs)[1]
    for number, cells in re.findall(r'<tr data-row="(\d+)">(.*?)</tr>', body, re.DOTALL):
        rows.append((int(number), [html.unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", cells, re.DOTALL)]))
    return columns, rows


def shown(value):
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def test_rows_of_json(srv):
    columns, rows = table_of(visit(srv, "/datasets/ns/it%27s"))
    assert columns == TYPES and [number for number, _ in rows] == list(range(10))
    for number, cells in rows[1:]:
        assert cells == [shown(ROWS[number][name]) for name in columns], number
    assert rows[0][1][1] == '<script>alert("1")</script> & \\xe2\\x80\\xaemore\\x07'


def test_search_by_the_number_of_a_row(srv):
    _, rows = table_of(visit(srv, "/datasets/ns/it%27s?split=train&row=17"))
    assert [number for number, _ in rows] == list(range(17, 24)) and rows[0][1][0] == "17"
    long = rows[-1][1][1]
    assert long == "y" * 1000 + " ..." and rows[-1][1][0] == ""
    _, rows = table_of(visit(srv, "/datasets/ns/it%27s?split=test"))
    assert rows == [(0, ["1"])]


@pytest.mark.parametrize("row", [24, 25, 18446744073709551615])
def test_a_row_past_the_end(srv, row):
    """The page says what the JSON API says, and keeps the number for another try."""
    root = read_page(srv.get(f"/datasets/ns/it%27s?split=train&row={row}", HTML))
    answer = srv.get(f"/datasets/ns/it%27s/rows/{row}?split=train", {"Accept": "application/json"})
    assert answer.status == 404
    assert root.one(id="reason").text == f"there is no row {row}; rows are 0 to 23"
    assert answer.json()["error"]["message"].replace('"', "") == root.one(id="reason").text
    assert root.one("input", name="row")["value"] == str(row) and not root.all(id="rows")


def test_rows_of_an_empty_split(srv):
    root = read_page(srv.get("/datasets/empty", HTML))
    assert not root.all(id="reason") and not root.all("tr", data_row=None)
    root = read_page(srv.get("/datasets/empty?row=1", HTML))
    assert root.one(id="reason").text == 'split "train" has no rows'


def test_the_card(srv):
    """README.md as HTML without its front matter; its links lead to the dataset's files. HTML in it is text."""
    root = read_page(srv.get("/datasets/ns/it%27s", HTML))
    card = root.one(id="card")
    assert [e.text for e in card.all("h2")] == ["A title"] and "mit" not in card.text
    links = [e["href"] for e in card.all("a")] + [e["src"] for e in card.all("img")]
    assert links == ["/datasets/ns/it%27s/resolve/main/train.jsonl", "/datasets/ns/it%27s/resolve/main/p.png"]
    assert all(srv.get(link).status == 200 for link in links)
    assert "<b onclick=x>" in card.text and not root.all(id="card-fault")
    assert [e.text for e in root.all("a", href="#card")] == ["README.md"]
    assert not read_page(srv.get("/datasets/table", HTML)).all(id="card")


def test_a_card_that_is_not_shown(srv):
    root = read_page(srv.get("/datasets/lines", HTML))
    assert "LFS" in root.one(id="card-fault").text and not root.all(id="card") and root.one("table", id="rows")


def test_links_lead_through_all_rows(srv):
    target, seen = "/datasets/ns/it%27s", []
    while target:
        text = visit(srv, target)
        seen += [number for number, _ in table_of(text)[1]]
        after = re.search(r'rel="next"[^>]*href="([^"]*)"', text)
        target = after and "/datasets/ns/it%27s" + html.unescape(after[1])
    assert seen == list(range(len(ROWS)))


def test_splits(srv):
    found = Cells(visit(srv, "/datasets/ns/it%27s"), "data-split", "data-value").found
    splits = [attrs["data-split"] for _, attrs, _ in found if "data-split" in attrs]
    assert splits == ["train", "test"] and ("td", "24") in [(tag, attrs.get("data-value")) for tag, attrs, _ in found]


def test_other_rows(srv):
    assert table_of(visit(srv, "/datasets/table")) == ({"n": "string", "m": "string"}, [(0, ["1", 'a,"b']),
                                                                                      (1, ["2", ""])])
    columns, rows = table_of(visit(srv, "/datasets/lines"))
    assert list(columns.values()) == ["text"] and rows[0][1] == ["caf\u00e9 \\xff"]
    assert rows[1][1] == ["x" * 1000 + " ..."] and rows[9] == (9, ["line 7"])
    assert [cells for _, cells in table_of(visit(srv, "/datasets/broken"))[1]] == [["{not json"], ["<b>"]]
    assert table_of(visit(srv, "/datasets/packed"))[1] == [(0, ["8 bytes"]), (1, ["8 bytes"])]
    picture = re.search(r'<img [^>]*src="(/datasets[^"]+)"', visit(srv, "/datasets/pictures"))[1]
    answer = srv.get(html.unescape(picture))
    assert answer.body == PIXEL and answer.get("Content-Type") == "image/png"
    assert answer.get("X-Content-Type-Options") == "nosniff"


def test_lines_to_copy(srv):
    text = visit(srv, "/datasets/ns/it%27s")
    line = html.unescape(re.search(r'<pre data-command="curl">(.*?)</pre>', text)[1])
    assert line == f"curl 'http://127.0.0.1:{srv.port}/datasets/ns/it%27s/rows?split=train&start=0&count=3'"
    assert srv.get(line.split("'")[1].split(str(srv.port))[1]).status == 200
    line = html.unescape(re.search(r'<pre data-command="hf">(.*?)</pre>', text)[1])
    assert line.endswith("hf download --repo-type dataset 'ns/it'\\''s'")


@pytest.mark.parametrize("query, status", [("split=none", 404), ("row=x", 400), ("row=-1", 400), ("none=1", 400)])
def test_bad_parameters(srv, query, status):
    assert srv.get("/datasets/table?" + query, HTML).status == status
