"""A model's page: card, facts, dtypes, modules, files and errors."""
import hashlib
import math
import os
from collections import Counter

import pytest

import models
import visits
from browser import inspect
from harness import DTYPE_BITS


@pytest.mark.parametrize("name", visits.MODEL)
def test_looks(browser, srv, name):
    inspect(browser, f"http://127.0.0.1:{srv.port}{visits.MODEL[name]}", name)


def fact(page, name):
    return page.one(f"#summary [data-fact={name}]", "data-value")


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
@pytest.mark.parametrize("visit", ["model", "model-hub", "model-moe"])
def test_facts(see, script, visit):
    """Parameters and bytes, in all and by dtype."""
    tensors = models.moe_tensors() if visit == "model-moe" else models.llama_tensors()
    elements, nbytes = Counter(), Counter()
    for t in tensors:
        elements[t.dtype] += math.prod(t.shape)
        nbytes[t.dtype] += t.nbytes
    with see(visits.MODEL[visit], script=script) as page:
        assert int(fact(page, "tensors")) == len(tensors)
        assert int(fact(page, "parameters")) == sum(elements.values())
        assert int(fact(page, "bytes")) == sum(nbytes.values())
        assert fact(page, "format") == "safetensors"
        dtypes = page.all("#dtypes [data-dtype]", "data-dtype")
        assert sorted(dtypes) == sorted(elements)
        for dtype in dtypes:
            row = f"#dtypes [data-dtype={dtype}]"
            assert int(page.one(row, "data-bytes")) == nbytes[dtype]
            assert int(page.one(row, "data-elements")) == elements[dtype]
        for link in ("tensors", "ranks", "compare"):
            assert page.count(f"a[data-link={link}]") >= 1, link


def test_bytes_of_each_dtype_of_safetensors(see):
    with see(visits.model("org/all-dtypes")) as page:
        rows = dict(zip(page.all("#dtypes [data-dtype]", "data-dtype"), page.all("#dtypes [data-dtype]", "data-bytes")))
        assert rows == {name: str(48 * bits // 8) for name, bits in DTYPE_BITS.items()}


def test_links_lead_to_pages(see):
    for link in ("tensors", "ranks", "compare"):
        with see(visits.MODEL["model"]) as page:
            page.go("click", f"a[data-link={link}] >> nth=0")
            assert page.one("h1"), page.path()


def test_modules(see):
    """The tree of modules: at most three levels deep and 200 lines."""
    with see(visits.MODEL["model-moe"]) as page:
        modules = page.all("#tree [data-module]", "data-module")
        assert {"model", "lm_head"} <= set(modules) and 3 < len(modules) <= 200
        assert all(len(name.split(".")) <= 3 for name in modules)
        assert page.count("#tree details") > 0


def test_files_and_digests(see, root):
    folder = root / models.LLAMA
    with see(visits.MODEL["model"]) as page:
        files = page.all("#files tr[data-file]", "data-file")
        assert sorted(files) == sorted(p.name for p in folder.iterdir())
        for name in files:
            row = f"#files tr[data-file='{name}']"
            found = page.all(f"{row}[data-sha256], {row} [data-sha256]", "data-sha256")
            assert found == [hashlib.sha256((folder / name).read_bytes()).hexdigest()], name


def test_broken_files_have_their_reasons(see):
    with see(visits.MODEL["model-broken"]) as page:
        assert set(page.all("#errors [data-file]", "data-file")) == {"cut.safetensors", "not-json.safetensors"}
        assert len(page.one("#errors [data-file='cut.safetensors']")) > 20
        assert page.evaluate("""() => document.querySelector("#errors").compareDocumentPosition(
            document.querySelector("#files")) & Node.DOCUMENT_POSITION_FOLLOWING"""), "the reason comes first"


def test_a_model_that_arrives(browser, arriving):
    server, _ = arriving
    inspect(browser, f"http://127.0.0.1:{server.port}/models/org/arriving/", "model-arriving")


def test_hostile_names_of_files_are_listed(see, root):
    """Each name that the server lists is text, in its link too."""
    names = {name.decode() for name in os.listdir(os.fsencode(root / models.HOSTILE)) if is_utf8(name)}
    with see(visits.MODEL["model-hostile"]) as page:
        listed = set(page.all("#files tr[data-file]", "data-file"))
        assert {n for n in names if n.isprintable()} <= listed
        assert page.count("#files img") == 0 and page.count("#files script") == 0


def is_utf8(name):
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
