"""The page of one tensor: facts, statistics, pictures of them, first values, links."""
import io
import math
import urllib.parse

import numpy as np
import pytest

import models
import visits
from browser import inspect
from harness import Server, age, write_by_hand

LLAMA = {t.name: t for t in models.llama_tensors()}


@pytest.mark.parametrize("name", visits.TENSOR)
def test_looks(browser, srv, name):
    inspect(browser, f"http://127.0.0.1:{srv.port}{visits.TENSOR[name]}", name)


def values_of(t):
    """Return a tensor's values as double."""
    if t.dtype == "BF16":
        wide = (np.frombuffer(t.data, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        wide = np.frombuffer(t.data, {"F32": "<f4", "U8": "u1"}[t.dtype])
    return wide.astype(np.float64).reshape(t.shape)


def statistic(page, name):
    return page.one(f"#stats [data-stat={name}]", "data-value")


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
@pytest.mark.parametrize("name", [visits.GATE, "model.norm.weight"])
def test_statistics_and_their_pictures(see, script, name):
    x = values_of(LLAMA[name])
    with see(visits.tensor(models.LLAMA, name), script=script) as page:
        for what, want in (("min", x.min()), ("max", x.max()), ("mean", x.mean()), ("std", x.std())):
            assert math.isclose(float(statistic(page, what)), want, rel_tol=1e-6, abs_tol=1e-12), what
        for what, want in (("elements", x.size), ("sampled", x.size), ("zeros", (x == 0).sum()), ("nans", 0),
                           ("infinities", 0)):
            assert int(statistic(page, what)) == want, what
        counts = [int(n) for n in page.all("svg#histogram [data-count]", "data-count")]
        low = [float(n) for n in page.all("svg#histogram [data-low]", "data-low")]
        assert sum(counts) == x.size and min(low) == pytest.approx(x.min(), rel=1e-6)
        if len(x.shape) == 2:
            cells = page.all("svg#heatmap [data-value]", "data-value")
            assert len(cells) == min(32, x.shape[0]) * min(32, x.shape[1])
        assert "sample" not in page.one("#stats").lower(), "all elements are counted"
        assert page.count("#values li") == min(16, x.size)
        for picture in page.all("svg[id]", "id"):
            assert page.evaluate("""id => { const e = document.getElementById(id);
                return e.querySelector("title")?.textContent || e.ariaLabel || e.getAttribute("aria-labelledby"); }""",
                                 picture), f"{picture} has a name"


def test_a_sample_says_so(browser, tmp_path_factory):
    """More than 1,048,576 elements: the page says that its figures are those of a sample."""
    root = tmp_path_factory.mktemp("large")
    write_by_hand(root / "m/model.safetensors", [models.normal("w", "F32", [1100, 1000])])
    age(root)
    with Server(root, hash_threads=0) as s, browser.visit(
            f"http://127.0.0.1:{s.port}{visits.tensor('m', 'w')}") as page:
        assert int(statistic(page, "sampled")) == 1_048_576 and int(statistic(page, "elements")) == 1_100_000
        assert "sample" in page.one("#stats").lower()


def test_links(see, srv):
    """The bytes as they are, as .npy and as .safetensors. NumPy has no BF16."""
    t = LLAMA["model.norm.weight"]
    with see(visits.TENSOR["tensor"]) as page:
        assert page.count("a[data-link=npy]") == 0
    with see(visits.TENSOR["tensor-vector"]) as page:
        links = {kind: page.one(f"a[data-link={kind}]", "href") for kind in ("raw", "npy", "safetensors")}
    base = visits.TENSOR["tensor-vector"]
    bodies = {kind: srv.get(urllib.parse.urljoin(base, link)).body for kind, link in links.items()}
    assert bodies["raw"] == t.data
    assert np.load(io.BytesIO(bodies["npy"])).tobytes() == t.data
    assert bodies["safetensors"].endswith(t.data)


def test_facts(see):
    with see(visits.TENSOR["tensor"]) as page:
        facts = page.one("#facts")
        assert "BF16" in facts and "128" in facts and "64" in facts and "model-0000" in facts


def test_types_without_statistics(see):
    """A type without statistics has the rest of its page, and a sentence in place of the figures."""
    with see(visits.tensor("org/all-dtypes", "C64.matrix")) as page:
        assert "C64" in page.one("#facts") and page.count("#stats [data-stat=min]") <= 1
