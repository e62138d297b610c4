"""The page of one tensor, beside the manifest as JSON and the bytes of the file."""
import hashlib
import io
import json

import gguf
import numpy as np
import pytest
import torch
from harness import DTYPE_BITS, Server, Tensor, age, enc, tensor, write_by_hand
from page_reader import read_page
from test_page_tensors import NAMES

CODEBOOKS = ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
DTYPES = [tensor(dtype.lower(), dtype, (8, 3)) for dtype in DTYPE_BITS]


def codebook_blocks(name):
    """Return 3 rows of 2 random blocks of a type of 256 elements."""
    _, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    return np.random.default_rng(6).integers(0, 120, (3, 2 * nbytes), dtype=np.uint8)  # no scale is NaN or infinite


def write_gguf(path):
    writer = gguf.GGUFWriter(path, "llama")
    rng = np.random.default_rng(5)
    for name, kind in (("q4", gguf.GGMLQuantizationType.Q4_0), ("q8", gguf.GGMLQuantizationType.Q8_0)):
        values = rng.standard_normal((4, 64), dtype=np.float32)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    for name in CODEBOOKS:
        writer.add_tensor(name, codebook_blocks(name), raw_dtype=gguf.GGMLQuantizationType[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def srv(tmp_path_factory):
    root = tmp_path_factory.mktemp("tensor") / "root"
    write_by_hand(root / "names/model.safetensors", [tensor(name, "U8", (i + 1,)) for i, name in enumerate(NAMES)])
    write_by_hand(root / "dtypes/model.safetensors", DTYPES)
    write_by_hand(root / "part/model-00001-of-00002.safetensors", [tensor("here", "F32", (2, 2))])
    (root / "gguf").mkdir()
    write_gguf(root / "gguf/model.gguf")
    (root / "torch").mkdir()
    shared = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    torch.save({"tied.a": shared, "tied.b": shared, "turned": shared.t(), "alone": torch.zeros(2)},
               root / "torch/pytorch_model.bin")
    (root / "npz").mkdir()
    np.savez_compressed(root / "npz/weights.npz", packed=np.zeros((50, 20), np.float32))
    (root / "delta").mkdir()
    age(root)
    with Server(root) as s:
        yield s


def page(srv, model, name, query="", status=200):
    answer = srv.get(f"/models/{enc(model)}/view/tensor/{enc(name)}" + query)
    assert answer.status == status, answer.body
    return read_page(answer)


def facts(root):
    return {row["data-fact"]: (row["data-value"], row.one("dd").text)
            for row in root.one(id="facts").all(data_fact=None)}


def listed(srv, model):
    return {t["name"]: t for t in srv.json(f"/models/{model}/tensors")["tensors"]}


@pytest.mark.parametrize("model", ["dtypes", "gguf", "torch", "npz"])
def test_facts_are_those_of_the_manifest(srv, model):
    for name, t in listed(srv, model).items():
        got = facts(page(srv, model, name))
        assert got["dtype"] == (t["dtype"], t["dtype"]) and json.loads(got["shape"][0]) == t["shape"]
        assert int(got["elements"][0]) == int(np.prod(t["shape"])) and int(got["bytes"][0]) == t["nbytes"]
        assert got["file"] == (t["file"], t["file"])
        assert got["checkpoint"][0] == srv.json(f"/models/{model}")["checkpoints"][0]["id"]
        assert json.loads(got.get("strides", ("null",))[0]) == t.get("strides")
        assert int(got.get("offset", ("-1",))[0]) == t.get("offset", -1)
        assert got["stored"][0] == t.get("access", "direct")
        assert t.get("stored", "") in got["stored"][1]


def test_blocks_of_gguf(srv):
    """gguf.GGML_QUANT_SIZES: the elements and bytes of a block."""
    for name, kind in (("q4", gguf.GGMLQuantizationType.Q4_0), ("q8", gguf.GGMLQuantizationType.Q8_0)):
        elements, nbytes = gguf.GGML_QUANT_SIZES[kind]
        got = facts(page(srv, "gguf", name))
        assert got["elements"][0] == str(4 * 64) and got["bytes"][0] == str(4 * 64 // elements * nbytes)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_a_page_and_links(srv, name):
    href = next(t["href"] for t in srv.json("/models/names/tensors")["tensors"] if t["name"] == name)
    root = read_page(srv.get(href.replace("/tensors/", "/view/tensor/", 1)))
    data = tensor(name, "U8", (NAMES.index(name) + 1,)).data
    links = {a["data-link"]: a["href"] for a in root.all("a", data_link=None)}
    assert srv.get(links["raw"]).body == data
    assert np.load(io.BytesIO(srv.get(links["npy"]).body)).tobytes() == data
    assert srv.get(links["safetensors"]).body.endswith(data)
    assert root.one("h1").text != "" and (len(name) <= 256 or name in root.one("main").text)
    for a in root.one("main").all("a"):
        assert srv.get(a["href"]).status == 200, a["href"]


@pytest.mark.parametrize("name", [t.name for t in DTYPES])
def test_links_lead_to_what_exists(srv, name):
    """NumPy lacks some types, and no link leads to an error."""
    root = page(srv, "dtypes", name)
    links = {a["data-link"]: srv.get(a["href"]) for a in root.all("a", data_link=None)}
    assert all(answer.status == 200 for answer in links.values()) and {"raw", "safetensors"} <= set(links)
    assert ("npy" in links) == (srv.get(f"/models/dtypes/tensors/{name}?format=npy").status == 200)


def test_other_names_of_the_same_bytes(srv):
    assert [a.text for a in page(srv, "torch", "tied.a").one(id="aliases").all("a")] == ["tied.b"]
    root = page(srv, "torch", "tied.b")
    assert [a.text for a in root.one(id="aliases").all("a")] == ["tied.a"]
    assert srv.get(root.one(id="aliases").one("a")["href"]).status == 200
    assert not page(srv, "torch", "alone").all(id="aliases")


def test_a_digest_is_shown_once_it_is_known(srv):
    assert "sha256" not in facts(page(srv, "dtypes", "i64"))
    assert srv.get("/models/dtypes/tensors?match=i64&digests=1").status == 200
    data = next(t.data for t in DTYPES if t.name == "i64")
    assert facts(page(srv, "dtypes", "i64"))["sha256"][0] == hashlib.sha256(data).hexdigest()


def test_a_part_of_a_model(srv):
    root = page(srv, "part", "here")
    assert srv.get(root.one("a", data_link="raw")["href"]).body == tensor("here", "F32", (2, 2)).data


def test_what_is_not_there(srv):
    for target, says in [("dtypes/view/tensor/zz", "has no tensor"), ("dtypes/view/tensor/", "has no tensor"),
                         ("dtypes/view/tensor", "no page"), ("dtypes/view/tensor/i8?checkpoint=zz", "no checkpoint"),
                         ("zz/view/tensor/x", "not found")]:
        answer = srv.get(f"/models/{target}", {"Accept": "text/html"})
        assert answer.status == 404 and says in read_page(answer).one(id="error").text, target
    assert srv.get("/models/dtypes/view/tensor/i8?slice=0:1").status == 400


# ------------------------------------------------------------------------------------------------ statistics

@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """A server of tensors whose values matter."""
    root = tmp_path_factory.mktemp("values") / "root"
    rng = np.random.default_rng(7)
    odd = np.array([[1, -2, np.nan, 0], [np.inf, 5, -np.inf, 0]], "<f4")
    rows = [("normal", rng.standard_normal((40, 50)).astype("<f4")), ("odd", odd), ("equal", np.full((3, 2), 7, "<f4")),
            ("nothing", np.zeros((0, 3), "<f4")), ("never", np.full((2, 2), np.nan, "<f4")), ("one", np.float32(2.5)),
            ("wide", np.array([-1.7e308, 0, 1.7e308])), ("line", np.arange(100, dtype="<f4")),
            ("large", rng.standard_normal((1100, 1000)).astype("<f4"))]
    tensors = [Tensor(name, "F64" if a.dtype == np.float64 else "F32", list(a.shape), a.tobytes()) for name, a in rows]
    write_by_hand(root / "m/model.safetensors", tensors)
    age(root)
    with Server(root, hash_threads=0) as s:
        s.arrays = dict(rows)
        yield s


def numbers(elements, name):
    return [float(e[name]) for e in elements]


@pytest.mark.parametrize("name", ["normal", "odd", "equal", "one", "wide", "line"])
def test_figures_are_numpys(values, name):
    """The population's deviation, of the finite elements; numpy.histogram has the rule of the bins."""
    x = np.asarray(values.arrays[name], np.float64)
    finite = x[np.isfinite(x)]
    root = page(values, "m", name)
    got = {e["data-stat"]: float(e["data-value"]) for e in root.one(id="stats").all(data_stat=None)}
    scale = 2.0**600 if name == "wide" else 1.0  # sums of the largest doubles overflow
    small = finite / scale
    want = {"min": finite.min(), "max": finite.max(), "mean": small.mean() * scale, "std": small.std() * scale,
            "zeros": (x == 0).sum(), "nans": np.isnan(x).sum(), "infinities": np.isinf(x).sum(), "sampled": x.size,
            "elements": x.size}
    assert got == pytest.approx(want, rel=1e-9) and list(got) == list(want)
    assert "sample" not in root.one(id="stats").text.lower()
    bins = root.one("svg", id="histogram").all("rect")
    low, high = numbers(bins, "data-low"), numbers(bins, "data-high")
    assert (low[0], high[-1]) == (finite.min(), finite.max()) and low[1:] == high[:-1] and low == sorted(low)
    assert len(bins) == (1 if finite.min() == finite.max() else 64)
    if name != "wide":
        counts, _ = np.histogram(finite, len(bins), (finite.min(), finite.max()))
        assert numbers(bins, "data-count") == list(counts)
    first = [e.text for e in root.one(id="values").all("li")]
    assert [float(text) for text in first] == pytest.approx(list(x.reshape(-1)[:16]), nan_ok=True)
    assert set(first) - {"NaN", "Infinity", "-Infinity"} or not finite.size


@pytest.mark.parametrize("name", ["normal", "odd", "large"])
def test_the_page_shows_what_the_json_has(values, name):
    stats = values.json(f"/models/m/tensors/{name}?format=stats")
    root = page(values, "m", name)
    got = {e["data-stat"]: e["data-value"] for e in root.one(id="stats").all(data_stat=None)}
    assert {key: float(value) for key, value in got.items()} == {key: float(stats[key]) for key in got}
    assert [int(e["data-count"]) for e in root.one("svg", id="histogram").all("rect")] == stats["histogram"]["counts"]
    cells = root.one("svg", id="heatmap").all("rect")
    shown = [None if e.get("data-value") is None else float(e["data-value"]) for e in cells]
    assert shown == stats["heatmap"]["values"]
    assert [(int(e["x"]), int(e["y"])) for e in cells] == [
        (j, i) for i in range(stats["heatmap"]["rows"]) for j in range(stats["heatmap"]["columns"])]
    assert all(0 <= float(e["fill-opacity"]) <= 1 for e in cells)


@pytest.mark.parametrize("name", CODEBOOKS)
def test_figures_of_codebooks_are_ggufs(srv, name):
    """GGUF's types whose elements are numbers of points of a table."""
    x = gguf.quants.dequantize(codebook_blocks(name), gguf.GGMLQuantizationType[name]).astype(np.float64)
    root = page(srv, "gguf", name)
    got = {e["data-stat"]: float(e["data-value"]) for e in root.one(id="stats").all(data_stat=None)}
    assert (got["min"], got["max"], got["nans"], got["infinities"]) == (x.min(), x.max(), 0, 0)
    assert (got["mean"], got["std"]) == pytest.approx((x.mean(), x.std()), rel=1e-9)
    counts, _ = np.histogram(x, 64, (x.min(), x.max()))
    assert numbers(root.one("svg", id="histogram").all("rect"), "data-count") == list(counts)
    assert [float(e.text) for e in root.one(id="values").all("li")] == pytest.approx(list(x.reshape(-1)[:16]))
    cells = [float(e["data-value"]) for e in root.one("svg", id="heatmap").all("rect")]
    assert cells == pytest.approx(list(np.abs(x).reshape(3 * 32, 16).mean(axis=1)))


def test_a_sample_says_so(values):
    stats = page(values, "m", "large").one(id="stats")
    assert "sample: 1,048,576 of 1,100,000 elements" in stats.text
    assert stats.one(data_stat="sampled")["data-value"] == "1048576"


def test_where_nothing_is_finite(values):
    for name, elements in (("nothing", "0"), ("never", "4")):
        root = page(values, "m", name)
        stats = root.one(id="stats")
        assert stats.one(data_stat="elements")["data-value"] == elements
        assert stats.one(data_stat="min").get("data-value") is None and not root.all("svg", id="histogram")
    assert [e.get("data-value") for e in root.one("svg", id="heatmap").all("rect")] == [None] * 4
    assert not page(values, "m", "line").all("svg", id="heatmap"), "one dimension is no matrix"


def test_types_without_statistics(srv):
    """The sentence is that of ?format=stats."""
    for model in ("dtypes", "gguf", "torch", "npz"):
        for name, t in listed(srv, model).items():
            answer = srv.get(t["href"] + "?format=stats")
            stats = page(srv, model, name).one(id="stats")
            if answer.status == 422:
                assert answer.json()["error"]["message"] in stats.text
            else:
                elements = stats.one(data_stat="elements")["data-value"]
                assert answer.status == 200 and elements == str(np.prod(t["shape"]))
