"""The page that compares two models: its counts and rows against what numpy, torch and gguf have written, what it may
read, and what it shows to whom."""
import html.parser
import os
import re
import shutil

import gguf
import numpy as np
import pytest
import safetensors.numpy
import torch

from harness import Server, age, enc, tensor, write_by_hand
from test_tokens import bearer, new

COUNTS = ["added", "removed", "dtype", "shape", "content", "same", "unknown"]
HOSTILE = "\"><img src=x onerror=alert(1)>&lt;'\u202e"
MIB = 1 << 20


class Elements(html.parser.HTMLParser):
    """Collects the elements of a page in their order, as (tag, attributes)."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def having(self, name):
        return [attrs for _, attrs in self.found if name in attrs]


def compare(s, a, b, more="", headers=()):
    r = s.get(f"/compare?a={enc(a)}&b={enc(b)}{more}", headers, timeout=60)
    assert r.status == 200 and r.get("Content-Type") == "text/html; charset=utf-8", r
    return Elements(r.body.decode())


def counts(page):
    found = {attrs["data-count"]: int(attrs["data-value"]) for attrs in page.having("data-count")}
    assert sorted(found) == sorted(COUNTS)
    return {name: n for name, n in found.items() if n > 0}


def rows(page):
    return [(attrs["data-tensor"], attrs["data-change"]) for attrs in page.having("data-tensor")]


def save(path, arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(arrays, path)


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    return {f"layer.{i}.w": rng.standard_normal((8, i + 1)).astype(np.float32) for i in range(6)}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("compare") / "root"
    first, second = arrays(), arrays()
    save(root / "a/model.safetensors", first | {"only a": np.zeros(3, np.float32)})
    second["layer.1.w"] = second["layer.1.w"].astype(np.float16)
    second["layer.2.w"] = second["layer.2.w"].reshape(3, 8)
    second["layer.3.w"] = second["layer.3.w"].copy()
    second["layer.3.w"][-1, -1] += 1
    save(root / "b/model.safetensors", second | {HOSTILE: np.zeros(3, np.float32)})
    save(root / "run/step-1/model.safetensors", arrays(1))
    save(root / "run/step-2/model.safetensors", arrays(1) | {"layer.5.w": arrays(2)["layer.5.w"]})
    (root / "pickle").mkdir()
    torch.save({n: torch.from_numpy(x) for n, x in arrays().items()}, root / "pickle/pytorch_model.bin")
    (root / "gguf").mkdir()
    writer = gguf.GGUFWriter(root / "gguf/model.gguf", "llama")
    for name, x in arrays().items():
        writer.add_tensor(name, x)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file,
                 writer.close):
        step()
    (root / "files").mkdir()
    (root / "files/config.json").write_text("{}")
    (root / "files/broken.safetensors").write_bytes(b"no safetensors")
    age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with Server(root, hash_threads=0) as s:
        yield s


def test_every_kind_of_change(srv):
    page = compare(srv, "a", "b")
    assert rows(page) == [(HOSTILE, "added"), ("layer.1.w", "dtype"), ("layer.2.w", "shape"),
                          ("layer.3.w", "content"), ("only a", "removed")]
    assert counts(page) == {"added": 1, "removed": 1, "dtype": 1, "shape": 1, "content": 1, "same": 3}
    back = compare(srv, "b", "a")
    assert counts(back) == counts(page)
    assert dict(rows(back)) == dict(rows(page)) | {HOSTILE: "removed", "only a": "added"}


def test_the_same_model(srv):
    page = compare(srv, "a", "a")
    assert rows(page) == [] and counts(page) == {"same": 7}
    assert [attrs for attrs in page.having("id") if attrs["id"] == "equal"]


def test_versions_by_their_ids(srv):
    page = compare(srv, "run/step-1", "run/step-2")
    assert rows(page) == [("layer.5.w", "content")] and counts(page) == {"content": 1, "same": 5}


@pytest.mark.parametrize("other", ["pickle", "gguf"])
def test_formats_with_the_same_bytes(srv, other):
    """numpy's arrays as safetensors, as a pickle of torch, and as GGUF: the tensors are the same."""
    assert counts(compare(srv, "a", other)) == {"removed": 1, "same": 6}
    assert counts(compare(srv, other, "b")) == {"added": 1, "dtype": 1, "shape": 1, "content": 1, "same": 3}


def test_names_of_strangers_are_text(srv):
    r = srv.get("/compare?a=a&b=b")
    tags = [tag for tag, attrs in Elements(r.body.decode()).found if "onerror" in attrs or tag == "script"]
    assert tags == ["script"] and b"<img src=x" not in r.body and "\u202e" not in re.sub(
        r'data-tensor="[^"]*"', "", r.body.decode())


def test_the_form_alone(srv):
    for query, typed in (("", ["", ""]), ("?a=" + enc(HOSTILE), [HOSTILE, ""]),
                         ("?a=&b=b", ["", "b"])):
        r = srv.get("/compare" + query)
        fields = [attrs for tag, attrs in Elements(r.body.decode()).found if tag == "input"]
        assert r.status == 200 and [f["name"] for f in fields] == ["a", "b"], r
        assert [f["value"] for f in fields] == typed and b"data-count" not in r.body


@pytest.mark.parametrize("query,status", [("a=a&b=none", 404), ("a=none&b=a", 404), ("a=a&b=files", 404),
                                          ("a=a&b=b&page=0", 400), ("a=a&b=b&page=x", 400), ("a=a&b=b&c=1", 400)])
def test_refusals(srv, query, status):
    assert srv.get("/compare?" + query).status == status
    page = srv.get("/compare?" + query, {"Accept": "text/html"})
    assert page.status == status and b'role="alert"' in page.body, page


def test_a_token_sees_only_its_models(tmp_path):
    root, tokens = tmp_path / "root", tmp_path / "tokens.json"
    for name in ("seen", "other", "hidden"):
        write_by_hand(root / name / "model.safetensors", [tensor("w", "F32", [4])])
    age(root)
    some = new(tokens, "some", "seen", "other")
    with Server(root, "--tokens", tokens, hash_threads=0) as s:
        assert s.get("/compare?a=seen&b=other").status == 401
        assert counts(compare(s, "seen", "other", headers=bearer(some))) == {"same": 1}
        for pair in ("a=seen&b=%s", "a=%s&b=seen", "a=%s&b=%s"):
            hidden, absent = (s.get("/compare?" + pair.replace("%s", name), bearer(some))
                              for name in ("hidden", "absent"))
            assert hidden.status == absent.status == 404
            assert hidden.body.replace(b"hidden", b"absent") == absent.body


def test_a_bounded_number_of_bytes_is_read(tmp_path):
    """Of two copies whose files are not hashed: tensors of 64 MiB in all, the smallest first. Once the files are
    hashed, nothing has to be read."""
    root = tmp_path / "root"
    sizes = [20 * MIB, 24 * MIB, 18 * MIB, 30 * MIB, 4096, MIB]
    save(root / "a/model.safetensors", {f"t{i}": np.zeros(n, np.uint8) for i, n in enumerate(sizes)})
    (root / "copy").mkdir()
    shutil.copy(root / "a/model.safetensors", root / "copy/model.safetensors")
    (root / "changed").mkdir()
    shutil.copy(root / "a/model.safetensors", root / "changed/model.safetensors")
    with open(root / "changed/model.safetensors", "r+b") as f:      # the last byte of the last tensor
        f.seek(-1, os.SEEK_END)
        f.write(b"\1")
    age(root)
    fits = sorted(sizes)[:5]
    assert sum(fits) <= 64 * MIB < sum(sizes)
    with Server(root, hash_threads=0) as s:
        page = compare(s, "a", "copy")
        assert counts(page) == {"same": 5, "unknown": 1} and rows(page) == [("t3", "unknown")]
        assert [attrs for attrs in page.having("id") if attrs["id"] == "unread"]
    with Server(root, hash_threads=1) as s:
        s.wait_hashed(timeout=240)
        assert counts(compare(s, "a", "copy")) == {"same": 6}
        assert counts(compare(s, "a", "changed"))["unknown"] == 1   # other files: read as before
        for model in ("a", "changed"):
            assert s.get(f"/models/{model}/tensors?digests=1", timeout=120).status == 200
        assert counts(compare(s, "a", "changed")) == {"same": 5, "content": 1}


def test_a_hundred_thousand_tensors(tmp_path):
    """Differences come in pages of 500, in the order of names."""
    count = 100_000
    names = [f"model.layers.{i:06d}.weight" for i in range(count)]
    write_by_hand(tmp_path / "root/a/model.safetensors", [tensor(n, "U8", [2]) for n in names])
    changed = [tensor(n, "U8", [2], "x" if i % 100 == 7 else "") for i, n in enumerate(names)]
    write_by_hand(tmp_path / "root/b/model.safetensors", changed)
    age(tmp_path / "root")
    with Server(tmp_path / "root", hash_threads=0) as s:
        before = s.anon_bytes()
        pages = [compare(s, "a", "b", f"&page={n}") for n in (1, 2)]
        assert counts(pages[0]) == counts(pages[1]) == {"content": count // 100, "same": count - count // 100}
        assert rows(pages[0]) + rows(pages[1]) == [(names[i], "content") for i in range(7, count, 100)]
        assert [attrs["href"] for attrs in pages[0].having("rel") if attrs["rel"] == "next"] == [
            "/compare?a=a&b=b&page=2"]
        assert not [attrs for attrs in pages[1].having("rel") if attrs["rel"] == "next"]
        assert rows(compare(s, "a", "b", "&page=99")) == rows(pages[1])
        assert s.anon_bytes() - before < 64 * MIB


def test_a_file_that_changed_since_the_scan(tmp_path):
    root = tmp_path / "root"
    for name in ("a", "b"):
        write_by_hand(root / name / "model.safetensors", [tensor("w", "F32", [4])])
    age(root)
    with Server(root, hash_threads=0, rescan="0") as s:
        os.truncate(root / "b/model.safetensors", 20)
        assert counts(compare(s, "a", "b")) == {"unknown": 1}
