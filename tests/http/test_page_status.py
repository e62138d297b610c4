"""The page of the server's state, and its JSON."""
import json
import re
import subprocess

import pytest

from harness import Server, age, tensor, tensord_binary, write_by_hand
from test_page_models import Cells

HTML = {"Accept": "text/html"}
METRICS = ("models", "tensors", "connections", "requests", "bytes_sent", "hashed_bytes", "hash_total_bytes")


@pytest.fixture(scope="module")
def srv(tmp_path_factory):
    root = tmp_path_factory.mktemp("status") / "root"
    for name in ("one", "two"):
        (root / name).mkdir(parents=True)
        write_by_hand(root / name / "model.safetensors", [tensor("w", "F32", (3, 5)), tensor("v", "BF16", (2,))])
    (root / "<b>roken").mkdir()
    (root / "<b>roken/model.safetensors").write_bytes(b"\xff" * 100)
    age(root)
    with Server(root) as s:
        s.wait_for(lambda: s.json("/readyz")["digests"]["known_files"] == 3, "all files to be hashed")
        yield s


def numbers_of(srv):
    answer = srv.get("/status", HTML)
    assert answer.status == 200 and answer.get("Content-Type") == "text/html; charset=utf-8", answer
    found = Cells(answer.body.decode(), "data-metric").found
    return {attrs["data-metric"]: int(attrs["data-value"]) for _, attrs, _ in found}


def test_numbers_of_page_and_json(srv):
    numbers, document = numbers_of(srv), srv.json("/status?format=json")
    assert set(METRICS) <= set(numbers)
    assert numbers["models"] == document["models"] == 3 and numbers["tensors"] == document["tensors"] == 4
    sizes = sum(path.stat().st_size for path in srv.root.rglob("*.safetensors"))
    assert numbers["hashed_bytes"] == numbers["hash_total_bytes"] == document["hash_total_bytes"] == sizes
    assert document["state"] == "ready" and document["ready"] is True and numbers["connections"] >= 1


def test_requests_and_bytes_are_counted(srv):
    before = srv.json("/status?format=json")
    body = srv.get("/models/one/model.safetensors").body

    def are_counted():  # after the last byte has gone
        after = srv.json("/status?format=json")
        return after["requests"] >= before["requests"] + 2 and after["bytes_sent"] >= before["bytes_sent"] + len(body)

    srv.wait_for(are_counted, "the requests to be counted")


def test_rates_of_the_last_seconds(srv):
    """Each second is counted once: over two seconds the sums grow by what was asked for in between."""
    def total(document):
        return sum(document["seconds"]["requests"])

    srv.wait_for(lambda: len(srv.json("/status?format=json")["seconds"]["requests"]) >= 2, "two samples")
    for _ in range(20):
        srv.get("/healthz")
    srv.wait_for(lambda: total(srv.json("/status?format=json")) >= 20, "the requests to be sampled")
    document = srv.json("/status?format=json")
    lengths = {len(values) for values in document["seconds"].values()}
    assert len(lengths) == 1 and lengths.pop() <= 126 and total(document) <= document["requests"]
    text = srv.get("/status", HTML).body.decode()
    lines = re.findall(r'<polyline [^>]*points="([^"]*)"', text)
    assert len(lines) == 3
    for line in lines:
        points = [tuple(map(float, point.split(","))) for point in line.split(" ")]
        assert all(0 <= x <= 720 and 10 <= y <= 190 for x, y in points) and points[-1][0] == 720


def test_problems(srv):
    document = srv.json("/status?format=json")
    problem, = document["problems"]
    expected, = srv.json("/models/%3Cb%3Eroken")["errors"]
    assert problem == {"model": "<b>roken", **expected}
    text = srv.get("/status", HTML).body.decode()
    assert "&lt;b&gt;roken" in text and "<b>roken" not in text and 'id="problems"' in text


@pytest.mark.parametrize("query", ["format=xml", "none=1"])
def test_bad_parameters(srv, query):
    assert srv.get("/status?" + query).status == 400


def test_with_tokens_names_are_for_those_who_may_see_them(srv, tmp_path):
    """As /metrics: numbers for this machine without a token; names of models for their tokens alone."""
    tokens = tmp_path / "tokens"

    def new(name, *options):
        made = subprocess.run([tensord_binary(), "token", "new", name, "--tokens", tokens, "--json", *options],
                              check=True, capture_output=True)
        return json.loads(made.stdout)["token"]

    some, everything = new("some", "--models", "one"), new("all")
    with Server(srv.root, "--tokens", str(tokens)) as s:
        assert s.json("/status?format=json")["problems"] == [] and s.json("/status?format=json")["models"] == 3
        for token, count in ((some, 0), (everything, 1)):
            answer = s.get("/status?format=json", {"Authorization": f"Bearer {token}"})
            assert answer.status == 200 and len(json.loads(answer.body)["problems"]) == count, (token, answer)
