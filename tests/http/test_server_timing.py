"""Server-Timing (https://www.w3.org/TR/server-timing/): on answers that took the server 1 ms or more, on no others."""
import re
import time

import pytest

from harness import age, tensor, write_by_hand

TENSORS = 3000
FIELD = re.compile(r"total;dur=(\d+\.\d)(?:, plan;dur=(\d+\.\d))?")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("timing")
    write_by_hand(root / "m" / "model.safetensors", [tensor(f"layers.{i}.w", "U8", [4, 4]) for i in range(TENSORS)])
    age(root)
    return root


def timed(ask):
    """Return the answer and its times in ms, or None. A time is what the client saw, or less."""
    began = time.monotonic()
    r = ask()
    took = (time.monotonic() - began) * 1000
    if r.get("Server-Timing") is None:
        return r, None
    total, plan = FIELD.fullmatch(r.get("Server-Timing")).groups()
    assert 1 <= float(total) <= took, r
    assert plan is None or float(plan) <= float(total), r
    return r, (float(total), plan)


def test_a_plan_that_takes_long(start, root):
    """All ranks are planned at the registration. The bytes of their files are sent without planning."""
    s = start(root)
    body = {"tp_size": 64, "rules": [{"match": "**", "uneven": "chunk"}]}
    r, times = timed(lambda: s.post("/models/m/plans", body))
    assert r.status == 201 and times is not None and times[1] is not None, r
    href = r.json()["ranks"][0]["href"]
    file, times = timed(lambda: s.get(href))
    assert file.status == 200 and len(file.body) == r.json()["ranks"][0]["nbytes"]
    assert times is None or times[1] is None, file
    boxes = {"boxes": [{"name": f"layers.{i}.w", "slice": f"{i % 4}"} for i in range(TENSORS)] * 30}
    r, times = timed(lambda: s.post("/models/m/plans", boxes))
    assert r.status == 201 and times is not None and times[1] is not None, r


def test_errors_tell_it_too(start, root):
    s = start(root)
    boxes = {"boxes": [{"name": f"layers.{i}.w"} for i in range(TENSORS)] * 30 + [{"name": "nope"}]}
    r, times = timed(lambda: s.post("/models/m/plans", boxes))
    assert r.status == 404 and times is not None, r


def test_on_one_connection(start, root):
    """Answers with and without the field follow each other, also those for which the server uses a response again."""
    s = start(root)
    body = '{"tp_size":%d,"rules":[{"match":"**","uneven":"chunk"}]}'
    with s.conn() as c:
        without = 0
        for i in range(60):
            r, times = timed(lambda: c.request("/models/m/tensors/layers.7.w"))
            assert r.status == 200 and len(r.body) == 16
            without += times is None
            r, times = timed(lambda: c.request("/models/m/tensors/layers.8.w", {"Range": f"bytes={i % 8}-{i % 8 + 3}"}))
            assert r.status == 206 and len(r.body) == 4 and r.get("Content-Range") == f"bytes {i % 8}-{i % 8 + 3}/16"
            without += times is None
            if i % 20 == 0:
                r, times = timed(lambda: c.request("/models/m/plans", method="POST",
                                                   body=(body % (32 + i)).encode()))
                assert r.status == 201 and times is not None, r
        assert without > 0, "no answer took less than 1 ms"
