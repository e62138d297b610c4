"""How large a plan may be: POST /models/{id}/plans at its limits (docs/limits.md). No answer is 503, which
would invite clients to try again."""
import pytest

from harness import age, check_error, tensor, write_by_hand

TENSORS = 1000
DEEP = "a." * 60


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("plans")
    write_by_hand(root / "m/model.safetensors", [tensor(str(i), "F32", [4]) for i in range(TENSORS)])
    write_by_hand(root / "deep/model.safetensors", [tensor(f"{DEEP}{i}", "F32", [4]) for i in range(TENSORS)])
    age(root)
    return root


def post(server, rules, tp_size=1, model="m"):
    return server.post(f"/models/{model}/plans", {"tp_size": tp_size, "rules": rules}, timeout=120)


@pytest.mark.parametrize("count", [2000, 10000])
def test_many_short_rules(start, root, count):
    r = post(start(root), [{"match": "0"}] * count)
    assert r.status == 201, r
    plan = r.json()
    assert len(plan["outputs"]) == TENSORS and plan["tp_size"] == 1
    assert len(plan["unused_rules"]) == count - 1      # the first match counts


def test_past_the_limits(start, root):
    server = start(root)
    whole = [{"match": "**", "whole": True}]
    check_error(post(server, [{"match": "0"}] * 10001), 400, "10001 rules", "at most 10000")
    check_error(post(server, whole, tp_size=4097), 400, "tp_size is 4097", "from 1 to 4096")
    assert post(server, whole, tp_size=4).status == 201
    check_error(post(server, whole, tp_size=4096), 422, f"{TENSORS} tensors for 4096 ranks", "4000000")
    check_error(post(server, [{"match": f"**.b{i}.**"} for i in range(10000)], model="deep"), 422,
                "10000 rules for 1000 tensors take too long to match", "use fewer rules")
    assert post(server, whole).status in (200, 201), "and the server answers again"
