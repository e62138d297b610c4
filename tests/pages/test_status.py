"""The page of the server's status."""
import pytest

import visits
from browser import inspect

METRICS = ["models", "tensors", "connections", "requests", "bytes_sent", "hashed_bytes", "hash_total_bytes"]


@pytest.mark.parametrize("name", visits.STATUS)
def test_looks(browser, srv, name):
    inspect(browser, f"http://127.0.0.1:{srv.port}{visits.STATUS[name]}", name)


def metric(page, name):
    return int(page.one(f"[data-metric={name}]", "data-value"))


def test_figures(see, srv):
    with see("/status", script=False) as page:
        figures = {name: metric(page, name) for name in METRICS}
        assert figures["models"] == len(srv.ids())
        assert figures["hashed_bytes"] == figures["hash_total_bytes"] > 0
        assert figures["tensors"] > 10_300
        assert page.count("svg#rates") == 1 and "cut.safetensors" in page.one("#problems")


def test_figures_follow(see, srv):
    """The script asks again by itself, in place, and the page does not move."""
    with see("/status") as page:
        before = metric(page, "requests")
        for _ in range(20):
            srv.get("/healthz")
        page.wait("n => Number(document.querySelector('[data-metric=requests]').dataset.value) >= n", before + 20)
        page.axe()
        assert srv.json("/status?format=json")
