"""The page with the table of a checkpoint's tensors, beside the manifest as JSON."""
import json
import socket
import time
import urllib.parse

import pytest
from harness import (
    DTYPE_BITS,
    Server,
    age,
    enc,
    nbytes_of,
    release_binary,
    request_bytes,
    tensor,
    write_by_hand,
)
from page_reader import read_page

EVIL = "\"><script>alert(1)</script>&lt;'"
NAMES = ["", "..", ".", "/..", "//..", "/.", "a/../b", "a//b", "./a", "a/", "/a", "model.layers.0.weight",
         "Model.Layers.0.BIAS", EVIL, "é", "a b", "100%", "%41", "x" * 300, "right\u202eleft", "tab\tline\n[31m",
         "?q#f", "a+b", "javascript:alert(1)"]
COLUMNS = ["name", "dtype", "shape", "elements", "bytes", "file", "offset"]
MANY = 1234
LARGE = 100_000


def many():
    """Returns tensors in an order that no column has."""
    dtypes = ["F32", "BF16", "I64", "F8_E4M3", "U8"]
    return [tensor(f"layer.{(i * 7919) % MANY:04}.w", dtypes[i * i % 5], ((i * 31) % 17 + 1, i % 3))
            for i in range(MANY)]


@pytest.fixture(scope="module")
def srv(tmp_path_factory):
    root = tmp_path_factory.mktemp("tensors") / "root"
    write_by_hand(root / "names/model.safetensors", [tensor(name, "U8", (i + 1,)) for i, name in enumerate(NAMES)])
    tensors = many()
    parts = [tensors[0::3], tensors[1::3], tensors[2::3]]
    files = [f"model-{i + 1:05}-of-00003.safetensors" for i in range(3)]
    for file, part in zip(files, parts, strict=True):
        write_by_hand(root / "many" / file, part)
    index = {t.name: file for file, part in zip(files, parts, strict=True) for t in part}
    (root / "many/model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    dtypes = [tensor(dtype.lower(), dtype, (8, 3)) for dtype in DTYPE_BITS]
    write_by_hand(root / "dtypes/model.safetensors", dtypes)
    write_by_hand(root / "none/model.safetensors", [])
    write_by_hand(root / "part/model-00001-of-00002.safetensors", [tensor("here", "F32", (2, 2))])
    write_by_hand(root / "two/model.safetensors", [tensor("a", "F32", (2,))])
    write_by_hand(root / "two/other.safetensors", [tensor("b", "F32", (2,))])
    (root / "broken").mkdir()
    (root / "broken/model.safetensors").write_bytes(b"\xff" * 100)
    for step in (1, 2):
        write_by_hand(root / f"run/step-{step}/model.safetensors", [tensor(f"s{step}", "F32", (step,))])
    age(root)
    with Server(root, hash_threads=0) as s:
        yield s


def page(srv, model, query="", status=200):
    answer = srv.get(f"/models/{enc(model)}/view/tensors" + query)
    assert answer.status == status, answer.body
    return read_page(answer)


def rows(root):
    """Returns the rows of the table: each a dict of its cells, whose values are numbers where there are numbers."""
    found = []
    for row in root.one("table", id="tensors").all("tr", data_tensor=None):
        cells = {cell["data-col"]: cell for cell in row.all(data_col=None)}
        assert list(cells) == COLUMNS
        found.append({"tensor": row["data-tensor"], "href": row.one("a")["href"], **cells})
    return found


def names(root):
    return [row["tensor"] for row in rows(root)]


def manifest(srv, model, query=""):
    return srv.json(f"/models/{enc(model)}/tensors" + query)


def product(shape):
    n = 1
    for size in shape:
        n *= size
    return n


@pytest.mark.parametrize("model", ["names", "many", "dtypes"])
def test_rows_are_those_of_the_manifest(srv, model):
    listed = manifest(srv, model)["tensors"][:500]
    shown = rows(page(srv, model))
    assert [row["tensor"] for row in shown] == [t["name"] for t in listed]
    for row, t in zip(shown, listed, strict=True):
        assert row["dtype"].text == t["dtype"] and json.loads(row["shape"].text) == t["shape"]
        assert int(row["elements"]["data-value"]) == product(t["shape"])
        assert int(row["bytes"]["data-value"]) == t["nbytes"] == nbytes_of(t["dtype"], t["shape"])
        assert row["file"].text == t["file"] and int(row["offset"]["data-value"]) == t["offset"]
        assert row["elements"].text.replace(",", "") == str(product(t["shape"]))


def test_the_table_counts(srv):
    table = page(srv, "many", "?q=layer.00").one("table", id="tensors")
    assert (table["data-total"], table["data-matched"]) == (str(MANY), "100")
    assert [th.text for th in table.all("th", scope="col")] == ["Name", "Type", "Shape", "Elements", "Size", "File",
                                                                "Offset"]


@pytest.mark.parametrize("q", ["layer.0", "LAYER.0", "W", "0.w", ".", "nothing"])
@pytest.mark.parametrize("dtype", ["", "BF16"])
def test_filters(srv, q, dtype):
    listed = [t["name"] for t in manifest(srv, "many")["tensors"]
              if q.lower() in t["name"].lower() and dtype in ("", t["dtype"])]
    root = page(srv, "many", f"?q={enc(q)}&dtype={dtype}")
    assert names(root) == listed[:500]
    assert root.one("table", id="tensors")["data-matched"] == str(len(listed))
    assert root.one("input", id="filter")["value"] == q and root.one("input", id="filter")["name"] == "q"
    chosen = root.one("select", id="dtype").all("option", selected=None)
    assert [option["value"] for option in chosen] == ([dtype] if dtype else [])


def test_letters_beyond_ascii_keep_their_case(srv):
    assert names(page(srv, "names", "?q=%C3%A9")) == ["é"] and names(page(srv, "names", "?q=%C3%89")) == []


@pytest.mark.parametrize("name", [name for name in NAMES if name])
def test_every_name_is_found_as_it_is(srv, name):
    root = page(srv, "names", "?q=" + enc(name))
    assert name in names(root) and root.one("input", id="filter")["value"] == name


def test_types_that_occur(srv):
    options = page(srv, "dtypes").one("select", id="dtype").all("option")
    assert sorted(option["value"] for option in options) == sorted(["", *DTYPE_BITS])
    assert {o["value"] for o in page(srv, "names").one("select", id="dtype").all("option")} == {"", "U8"}


@pytest.mark.parametrize("sort", ["name", "dtype", "elements", "bytes", "file"])
@pytest.mark.parametrize("descending", [False, True])
def test_orders_are_over_all_tensors(srv, sort, descending):
    keys = {"name": lambda t: t["name"].encode(), "dtype": lambda t: t["dtype"], "bytes": lambda t: t["nbytes"],
            "elements": lambda t: product(t["shape"]), "file": lambda t: t["file"]}
    listed = sorted(manifest(srv, "many")["tensors"], key=keys[sort], reverse=descending)
    word = ("-" if descending else "") + sort
    shown = [name for n in (1, 2, 3) for name in names(page(srv, "many", f"?sort={word}&page={n}"))]
    assert shown == [t["name"] for t in listed]
    root = page(srv, "many", f"?sort={word}")
    sorted_by = root.all("th", aria_sort=None)
    assert [th["aria-sort"] for th in sorted_by] == ["descending" if descending else "ascending"]
    link = sorted_by[0].one("a", data_sort=sort)["href"]
    again = urllib.parse.parse_qs(link.partition("?")[2])["sort"]
    assert again == [sort if descending else "-" + sort]
    assert root.one("input", name="sort")["value"] == word if word != "name" else not root.all("input", name="sort")
    others = {a["data-sort"]: urllib.parse.parse_qs(a["href"].partition("?")[2])["sort"]
              for a in root.all(data_sort=None)}
    assert all(others[name] == [name] for name in others if name != sort) and len(others) == 5


def test_order_and_filter_together(srv):
    listed = [t for t in manifest(srv, "many", "?dtype=I64")["tensors"] if "1" in t["name"]]
    listed.sort(key=lambda t: t["nbytes"], reverse=True)
    root = page(srv, "many", "?q=1&dtype=I64&sort=-bytes")
    assert names(root) == [t["name"] for t in listed]
    link = urllib.parse.parse_qs(root.one("a", data_sort="file")["href"].partition("?")[2])
    assert link == {"q": ["1"], "dtype": ["I64"], "sort": ["file"]}


def test_pages_have_500_rows_and_lead_to_each_other(srv):
    at, seen = "", []
    for number in (1, 2, 3):
        root = page(srv, "many", at)
        seen += names(root)
        assert bool(root.all("a", rel="prev")) == (number > 1) and bool(root.all("a", rel="next")) == (number < 3)
        assert len(names(root)) == (500 if number < 3 else MANY - 1000)
        at = root.one("a", rel="next")["href"] if number < 3 else ""
    assert seen == [t["name"] for t in manifest(srv, "many")["tensors"]]
    assert names(page(srv, "many", "?page=9")) == seen[1000:], "past the last page is the last page"


@pytest.mark.parametrize("model, query, text", [
    ("many", "?q=nothing", 'no tensor has "nothing" in its name'),
    ("many", "?dtype=F64", "no tensor of type F64 is in this checkpoint"),
    ("many", "?q=zz&dtype=F32", 'no tensor of type F32 has "zz" in its name'),
    ("none", "", "no tensor is in this checkpoint"),
    ("names", "?q=" + enc(EVIL * 2), f'no tensor has "{EVIL * 2}" in its name'),
])
def test_where_no_tensor_matches(srv, model, query, text):
    root = page(srv, model, query)
    assert root.one(id="nothing").text == text and rows(root) == []


@pytest.mark.parametrize("query, says", [
    ("?sort=size", "no order"), ("?sort=-", "no order"), ("?sort=shape", "no order"), ("?dtype=F99", "unknown dtype"),
    ("?page=0", "page is 0"), ("?page=x", "page"), ("?page=-1", "page"), ("?match=a", "match"), ("?q=%FF", "UTF-8"),
    ("?partial=2", "partial"),
])
def test_bad_parameters(srv, query, says):
    answer = srv.get("/models/many/view/tensors" + query)
    assert answer.status == 400 and says in answer.json()["error"]["message"]
    browser = srv.get("/models/many/view/tensors" + query, {"Accept": "text/html"})
    assert browser.status == 400 and read_page(browser).one(id="error")["data-status"] == "400"


def test_every_name_has_a_page(srv):
    """A browser removes the segments "." and ".." of a link, plain or as %2e, and keeps the others."""
    shown = rows(page(srv, "names"))
    assert sorted(row["tensor"] for row in shown) == sorted(NAMES)
    for row in shown:
        assert urllib.parse.urljoin("http://h" + row["href"], row["href"]) == "http://h" + row["href"]
        assert not any(urllib.parse.unquote(part) in (".", "..") for part in row["href"].split("?")[0].split("/"))
        answer = srv.get(row["href"])
        assert answer.status == 200, (row["tensor"], row["href"], answer.body)
        assert answer.get("Content-Type").startswith("text/html")


def test_names_are_isolated_and_cut(srv):
    cells = {row["tensor"]: row["name"] for row in rows(page(srv, "names"))}
    assert cells["right\u202eleft"].one("bdi").text == r"right\xe2\x80\xaeleft"
    assert cells["x" * 300].one("bdi")["title"] == "x" * 300 and len(cells["x" * 300].text) < 270
    assert cells[""].text == '""' and cells[EVIL].one("bdi").text == EVIL


def test_incomplete_checkpoints_say_so(srv):
    root = page(srv, "part")
    assert names(root) == ["here"] and "missing" in root.one(id="incomplete").text
    assert srv.get("/models/part/tensors").status == 404, "programs have to ask for the part"
    assert names(page(srv, "part", "?partial=1")) == ["here"] and not page(srv, "many").all(id="incomplete")
    assert srv.get(rows(root)[0]["href"]).status == 200


def test_checkpoints_can_be_chosen(srv):
    root = page(srv, "two")
    links = {a.text: a["href"] for a in root.one(id="checkpoints").all("a")}
    assert len(links) == 2 and names(root) == ["a"]
    assert [a.text for a in root.one(id="checkpoints").all("a", aria_current="page")] == [next(iter(links))]
    other = page(srv, "two", list(links.values())[1])
    assert names(other) == ["b"] and other.one("input", name="checkpoint")["value"] == list(links)[1]
    assert srv.get(rows(other)[0]["href"]).status == 200
    assert not page(srv, "many").all(id="checkpoints")
    assert srv.get("/models/two/view/tensors?checkpoint=zz").status == 404


def test_versions(srv):
    root = page(srv, "run", "?version=step-2")
    assert names(root) == ["s2"] and root.one("input", name="version")["value"] == "step-2"
    assert rows(root)[0]["href"] == "/models/run/view/tensor/s2?version=step-2"
    assert srv.get(rows(root)[0]["href"]).status == 200


def test_models_without_tensors(srv):
    answer = srv.get("/models/broken/view/tensors", {"Accept": "text/html"})
    assert answer.status == 404 and "no readable checkpoint" in read_page(answer).one(id="error").text


def test_a_page_is_html_for_every_client(srv):
    for accept in ("*/*", "application/json", "text/html"):
        answer = srv.get("/models/two/view/tensors", {"Accept": accept})
        assert answer.status == 200 and answer.get("Content-Type").startswith("text/html")
    again = srv.get("/models/two/view/tensors", {"If-None-Match": answer.get("ETag")})
    assert again.status == 304
    head = srv.request("/models/two/view/tensors", method="HEAD")
    assert head.status == 200 and head.length == len(answer.body)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A release server of a model `m` of 100,000 tensors."""
    root = tmp_path_factory.mktemp("large")
    write_by_hand(root / "m/model.safetensors", [tensor(f"layer.{i}.experts.{i % 97}.weight", "U8", (i % 13, 1))
                                                 for i in range(LARGE)])
    age(root)
    with Server(root, hash_threads=0, binary=release_binary()) as s:
        yield s


def test_memory_of_many_tensors(large):
    """A page has the memory of its rows, and a sort returns what it takes."""
    page(large, "m")
    before = large.anon_bytes()
    for sort in ("name", "-name", "dtype", "elements", "-bytes", "file"):
        root = page(large, "m", f"?sort={sort}&page=200&q=experts")
        assert root.one("table", id="tensors")["data-matched"] == str(LARGE) and len(rows(root)) == 500
    assert large.anon_bytes() - before < 8 << 20


def first_byte_seconds(srv, path, accept):
    """Returns the seconds from a request on a new connection to the first bytes of its answer."""
    request = request_bytes(path, {"Accept": accept, "Connection": "close"}, port=srv.port)
    begin = time.perf_counter()
    with socket.create_connection(("127.0.0.1", srv.port)) as c:
        c.sendall(request)
        first = c.recv(65536)
        seconds = time.perf_counter() - begin
        while c.recv(1 << 20):
            pass
    assert first.startswith(b"HTTP/1.1 200 ")
    return seconds


def test_the_first_byte_comes_in_three_times_that_of_the_manifest(large):
    """Beside the first page of the manifest, of as many rows, in the same run: the fastest of each, since other
    programs that run only add time."""
    paths = [("/models/m/tensors?page_size=500", "*/*"), ("/models/m/view/tensors", "text/html")]
    seconds = [[first_byte_seconds(large, *path) for path in paths] for _ in range(200)]
    manifest_s, page_s = (min(times) for times in zip(*seconds, strict=True))
    assert page_s < 3 * manifest_s
