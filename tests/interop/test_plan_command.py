"""`tensord plan`: its numbers are those of the files that a server sends; and its messages when it cannot plan."""
import json
import re
import subprocess
import sys

import pytest

from harness import REPO, tensor, tensord_binary, write_by_hand

CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 32, "num_attention_heads": 8, "num_key_value_heads": 2,
          "vocab_size": 100}


def llama():
    """A Llama with a vocabulary of 100, so that padding is needed, and with two tensors that engine vllm drops."""
    layer = "model.layers.0."
    return [
        tensor("model.embed_tokens.weight", "BF16", [100, 32]),
        tensor("lm_head.weight", "BF16", [100, 32]),
        tensor("model.norm.weight", "BF16", [32]),
        tensor(layer + "self_attn.rotary_emb.inv_freq", "F32", [2]),
        tensor(layer + "self_attn.rotary_emb.cos_cached", "F32",
               [9]), *(tensor(f"{layer}self_attn.{n}_proj.weight", "BF16", [rows, 32])
                       for n, rows in (("q", 32), ("k", 8), ("v", 8), ("o", 32))),
        *(tensor(f"{layer}mlp.{n}_proj.weight", "BF16", shape)
          for n, shape in (("gate", [48, 32]), ("up", [48, 32]), ("down", [32, 48])))
    ]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("plan")
    subprocess.run([sys.executable, REPO / "scripts/demo_model.py", root / "demo"], check=True)
    for name in ("llama", "two", "long", "other"):
        write_by_hand(root / name / "model.safetensors", llama())
        (root / name / "config.json").write_text(json.dumps(CONFIG))
    write_by_hand(root / "two" / "extra.safetensors", [tensor("e", "F32", [8, 2])])
    (root / "long" / "config.json").write_text(json.dumps(CONFIG) + " " * (4 << 20))
    (root / "other" / "config.json").write_text(json.dumps(CONFIG | {"architectures": ["NovelForCausalLM"]}))
    write_by_hand(root / "bare" / "model.safetensors", llama())
    return root


def plan(*args, stdout=subprocess.PIPE):
    return subprocess.run([str(tensord_binary()), "plan", *map(str, args)], stdout=stdout, stderr=subprocess.PIPE,
                          text=True, timeout=120)


def good(*args):
    p = plan(*args)
    assert p.returncode == 0 and p.stderr == "", p
    return p.stdout


def refused(*args, status=1):
    """Return the message; nothing else may be printed."""
    p = plan(*args)
    assert p.returncode == status and p.stdout == "", p
    assert re.fullmatch(r"tensord: [^\n]+\n", p.stderr), p.stderr
    return p.stderr


def runs_of(entry):
    """Return the lengths of the runs of tensors' bytes in one entry of a rank's JSON, and the number of zeros."""
    lengths, zeros = [], 0
    for extent in entry["extents"]:
        for one in extent.get("extents", [extent]):
            times = one.get("count", 1) * one.get("count2", 1) * extent.get("repeat", 1)
            zeros += one.get("zeros", 0) * extent.get("repeat", 1)
            lengths += [one["length"]] * times if "length" in one else []
    return lengths, zeros


def check_against_server(srv, found, files):
    """Check every number of `plan --json` against the server's description of the files and their length."""
    ranks = [(srv.get(f"{url}.json").json(), int(srv.head(f"{url}.safetensors").get("Content-Length")))
             for url in files]
    assert [r["rank"] for r in found["ranks"]] == list(range(len(files))) and found["tp_size"] == len(files)
    smallest, largest, count, padding = [], [], 0, 0
    for mine, (theirs, length) in zip(found["ranks"], ranks):
        lengths, zeros = map(list, zip(*map(runs_of, theirs["tensors"])))
        lengths = sum(lengths, [])
        assert mine["nbytes"] == theirs["nbytes"] == length and mine["header_bytes"] == theirs["header_bytes"]
        assert mine["share"] == pytest.approx(length / found["checkpoint_bytes"], abs=1e-6)
        assert (mine["runs"], mine["smallest_run"], mine["largest_run"]) == (len(lengths), min(lengths, default=0),
                                                                             max(lengths, default=0))
        assert mine["padding_bytes"] == sum(zeros)
        assert (found["model"], found["checkpoint"], found["engine"],
                found["dropped"]) == tuple(theirs[k] for k in ("model", "checkpoint", "engine", "dropped"))
        smallest, largest = smallest + [min(lengths)], largest + [max(lengths)]
        count, padding = count + len(lengths), padding + sum(zeros)
    total = found["total"]
    assert (total["nbytes"], total["runs"], total["padding_bytes"]) == (sum(length
                                                                            for _, length in ranks), count, padding)
    assert (total["smallest_run"], total["largest_run"]) == (min(smallest), max(largest))
    assert total["header_bytes"] == sum(r["header_bytes"] for r in found["ranks"])


@pytest.mark.parametrize("engine, tp", [("vllm", 1), ("vllm", 2), ("vllm@0.33", 4), ("vllm@0.13", 2), ("fsdp", 2),
                                        ("none", 3)])
def test_an_engines_ranks_are_the_servers(srv, root, engine, tp):
    found = json.loads(good(root, "llama", "--engine", engine, "--tp", tp, "--json"))
    check_against_server(srv, found, [f"/models/llama/shards/{engine}/tp{tp}/rank-{r}" for r in range(tp)])


def test_what_vllms_ranks_have_twice(root):
    """Computed by hand: every rank has the norms; with 4 ranks, each key-value head is on two; vocabularies are padded
    from 100 to 128."""
    for tp, repeated in ((1, 0), (2, 32 * 2), (4, 3 * 32 * 2 + 2 * 8 * 32 * 2)):
        found = json.loads(good(root, "llama", "--engine", "vllm", "--tp", tp, "--json"))
        assert found["total"]["repeated_bytes"] == repeated and found["total"]["padding_bytes"] == 2 * 28 * 32 * 2
        assert found["total"]["constant_bytes"] == tp * 4 * 4  # the scales of one layer's attention
        assert len(found["dropped"]) == 2


def reordered(value):
    """Return the same JSON with the keys of every object in reverse order."""
    if isinstance(value, dict):
        return {k: reordered(value[k]) for k in reversed(value)}
    return [reordered(v) for v in value] if isinstance(value, list) else value


def test_one_plan_has_one_id(srv):
    """The id does not depend on the order of keys, blanks or escapes. Another order of rules is another plan."""
    body = {"tp_size": 2, "rules": [{"match": "lm_head.weight", "out": "head"}, {"match": "**", "uneven": "chunk"}]}
    first = srv.post("/models/llama/plans", body)
    assert first.status == 201, first
    for text in (json.dumps(reordered(body)), json.dumps(body, indent=7),
                 json.dumps(body).replace("lm_head", "lm\\u005fhead")):
        again = srv.post("/models/llama/plans", text.encode())
        assert again.status == 200 and again.json()["id"] == first.json()["id"], again
    other = srv.post("/models/llama/plans", {"tp_size": 2, "rules": body["rules"][::-1]})
    assert other.json().get("id") != first.json()["id"], other


@pytest.mark.parametrize("body", [
    {
        "tp_size": 2, "rules": [{"match": "**.inv_freq", "drop": True}, {"match": "lm_head"},
                                {"match": "**", "uneven": "chunk"}]
    },
    {
        "ranks": [{"tensors": [{"name": "lm_head.weight", "slice": "0:50,4:8"}]},
                  {"tensors": [{"name": "model.norm.weight", "as": "n"}]}]
    },
    {"engine": "vllm", "tp_size": 2},
], ids=["rules", "ranks", "engine"])
def test_a_plans_ranks_are_the_servers(srv, root, tmp_path, body):
    """They agree whatever the blanks and the order of keys in the plan."""
    (tmp_path / "plan.json").write_text(json.dumps(reordered(body), indent=3))
    r = srv.post("/models/llama/plans", body)
    assert r.status in (200, 201), r
    found = json.loads(good(root, "llama", f"--plan={tmp_path}/plan.json", "--json"))
    check_against_server(srv, found, [f"/models/llama/plans/{r.json()['id']}/rank-{k}" for k in range(2)])
    assert ("repeated_bytes" in found["total"]) == ("ranks" not in body)
    assert found["unused_rules"] == r.json()["unused_rules"]


def test_the_table(root):
    lines = good(root, "llama", "--engine", "vllm", "--tp", 4).splitlines()
    found = json.loads(good(root, "llama", "--engine", "vllm", "--tp", 4, "--json"))
    heading = r"llama  checkpoint safetensors, 12 tensors, .* KiB; engine vllm@0\.33, tp 4"
    assert re.fullmatch(heading, lines[0]), lines[0]
    assert lines[1].split() == ["RANK", "BYTES", "SHARE", "RUNS", "SMALLEST", "LARGEST"]
    assert [line.split()[0] for line in lines[2:7]] == ["0", "1", "2", "3", "all"]
    for line, rank in zip(lines[2:7], found["ranks"] + [found["total"]]):
        assert f"{100 * rank['share']:.1f} %" in line and f" {rank['runs']} " in line, line
    surplus = r"  of all: headers .*, padding 3.50 KiB, constants 64 B, repeated 1.19 KiB"
    assert re.fullmatch(surplus, lines[7]), lines[7]
    assert lines[8:] == [f"  dropped model.layers.0.self_attn.rotary_emb.{n}" for n in ("cos_cached", "inv_freq")]


def test_rules_without_a_tensor_are_told_with_the_cause(root, tmp_path):
    """The cause is a mistyped pattern, or earlier rules. Messages count rules from 1; the field of the JSON counts from
    0."""
    def lines(*patterns):
        rules = [{"match": m, "whole": True} for m in patterns]
        (tmp_path / "plan.json").write_text(json.dumps({"tp_size": 2, "rules": rules}))
        path = tmp_path / "plan.json"
        unused = json.loads(good(root, "llama", "--plan", path, "--json"))["unused_rules"]
        found = [x.strip() for x in good(root, "llama", "--plan", path).splitlines() if x.startswith("  rule ")]
        assert [int(x.split()[1]) - 1 for x in found] == unused
        return found

    assert lines("**") == []
    assert lines("lm_head.weights",
                 "**") == ['rule 1 of 2 ("lm_head.weights") is used for no tensor: it matches no tensor\'s name']
    assert lines("**", "lm_head.weight") == [
        'rule 2 of 2 ("lm_head.weight") is used for no tensor: rule 1 ("**") takes every tensor that it matches'
    ]
    assert lines("nope", "model.**", "**", "model.norm.*", "lm_head", "**.weight") == [
        'rule 1 of 6 ("nope") is used for no tensor: it matches no tensor\'s name',
        'rule 4 of 6 ("model.norm.*") is used for no tensor: rule 2 ("model.**") takes every tensor that it matches',
        'rule 5 of 6 ("lm_head") is used for no tensor: it matches no tensor\'s name',
        'rule 6 of 6 ("**.weight") is used for no tensor: rule 3 ("**") and others before it take every tensor '
        'that it matches'
    ]


def test_the_heading_says_what_the_plan_asks_for(root, tmp_path):
    """The heading names the file's engine. JSON says "plan", as the server does for the files of a registered plan."""
    for body, says in (({"engine": "vllm", "tp_size": 2}, "engine vllm, tp 2"),
                       ({"tp_size": 2, "rules": [{"match": "**", "whole": True}]}, "a plan with rules, tp 2"),
                       ({"ranks": [{"tensors": [{"name": "lm_head.weight"}]}]}, "a plan with ranks, tp 1")):
        (tmp_path / "plan.json").write_text(json.dumps(body))
        assert good(root, "llama", "--plan", tmp_path / "plan.json").splitlines()[0].endswith(f" KiB; {says}")
        assert json.loads(good(root, "llama", "--plan", tmp_path / "plan.json", "--json"))["engine"] == "plan"


def test_a_checkpoint_of_several(root):
    first = json.loads(good(root, "two", "--engine", "none", "--tp", 1, "--json"))
    other = json.loads(good(root, "two", "--engine", "none", "--tp", 1, "--json", "--checkpoint", "extra.safetensors"))
    assert first["checkpoint"] == "safetensors" and other["checkpoint"] == "extra.safetensors" and other[
        "checkpoint_bytes"] == 64
    assert "safetensors, extra.safetensors" in refused(root, "two", "--engine", "none", "--tp", 1, "--checkpoint", "x")


def test_a_rank_that_cannot_be_planned_prints_nothing(root, tmp_path):
    """The first one can."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"ranks": [{"tensors": [{"name": "lm_head.weight"}]}, {"tensors": [{"name": "nope"}]}]}))
    for more in ((), ("--json",)):
        assert '"nope"' in refused(root, "llama", "--plan", path, *more)


def test_what_is_refused(root, tmp_path, srv):
    assert 'no model "nope"' in refused(root, "nope", "--engine", "none", "--tp", 1)
    assert "no config.json" in refused(root, "bare", "--engine", "vllm", "--tp", 1)
    assert "NovelForCausalLM" in refused(root, "other", "--engine", "vllm", "--tp", 2)
    assert "cannot be divided evenly among 3 ranks" in refused(root, "llama", "--engine", "vllm", "--tp", 3)
    assert "does not exist" in refused(root / "nowhere", "llama", "--engine", "none", "--tp", 1)
    message = refused(root, "long", "--engine", "vllm", "--tp", 2)
    assert "config.json has" in message and "4194304" in message
    r = srv.get("/models/long/shards/vllm/tp2/rank-0.safetensors")
    assert r.status == 422 and r.json()["error"]["message"] in message, r
    assert srv.get("/models/long").json()["config"] is None
    good(root, "long", "--engine", "fsdp", "--tp", 2)  # which does not ask it
    assert srv.get("/models/long/shards/fsdp/tp2/rank-1.safetensors").status == 200


@pytest.mark.parametrize("config, tp, says", [
    ({"num_attention_heads": 4, "head_dim": 4}, 1,
     'self_attn.o_proj.weight": the rule\'s parts, 4 attention heads (num_attention_heads) of 4, '
     'are not the 32 elements of its dimension 1'),
    ({"num_key_value_heads": 4, "head_dim": 4}, 2,
     'self_attn.k_proj.weight": the rule\'s parts, 4 key-value heads (num_key_value_heads) of 4, '
     'are not the 8 elements of its dimension 0'),
    ({"vocab_size": 101}, 1,
     'lm_head.weight": the rule\'s parts, 101 rows of the vocabulary (vocab_size), '
     'are not the 100 elements of its dimension 0'),
    ({}, 3,
     'lm_head.weight": dimension 0 has 128 rows of the vocabulary (vocab_size), padded to a multiple of 64, which '
     'cannot be divided evenly among 3 ranks'),
    ({}, 16,
     'self_attn.o_proj.weight": dimension 1 has 8 attention heads (num_attention_heads) of 4, which '
     'cannot be divided evenly among 16 ranks'),
])
def test_which_number_is_wrong(tmp_path, config, tp, says):
    write_by_hand(tmp_path / "m" / "model.safetensors", llama())
    (tmp_path / "m" / "config.json").write_text(json.dumps(CONFIG | config))
    assert says in refused(tmp_path, "m", "--engine", "vllm", "--tp", tp)


def test_parts_of_rules_are_told_with_what_is_there(root, tmp_path):
    path = tmp_path / "plan.json"
    rule = {"match": "lm_head.weight", "groups": 5, "parts": [{"count": 10, "unit": 2}, {"unit": 4}, {"unit": 3}]}
    path.write_text(json.dumps({"tp_size": 2, "rules": [rule, {"match": "**"}]}))
    assert "the rule's parts, 10 units of 2, the other units of 4, the other units of 3 in 5 groups, " \
        "are not the 100 elements" in refused(root, "llama", "--plan", path)


def test_what_is_missing_or_differs_is_named(tmp_path):
    gate, up = "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"
    for name, tensors in (("lacks", [t for t in llama() if t.name != up]),
                          ("differs", [t for t in llama() if t.name != up] + [tensor(up, "F32", [48, 16])])):
        write_by_hand(tmp_path / name / "model.safetensors", tensors)
        (tmp_path / name / "config.json").write_text(json.dumps(CONFIG))
    vllm = ("--engine", "vllm", "--tp", 2)
    assert f'lacks a part beside tensor "{gate}": slot 1, from a tensor like "model.layers.*.mlp.up_proj.weight"' \
        in refused(tmp_path, "lacks", *vllm)
    assert f'tensors "{gate}", BF16 [48,32], and "{up}", F32 [48,16], cannot be joined' in refused(
        tmp_path, "differs", *vllm)
    write_by_hand(tmp_path / "experts" / "model.safetensors",
                  [tensor(f"e.{i}.{w}", "F32", [2]) for i, w in ((0, "a"), (0, "b"), (1, "b"), (2, "a"), (2, "b"))])
    path = tmp_path / "plan.json"
    path.write_text(
        json.dumps({
            "tp_size":
            1, "rules": [{"match": f"e.*.{w}", "out": "x", "slot": i, "stack": True} for i, w in ((3, "a"), (7, "b"))]
        }))
    assert '"x" lacks a part beside tensor "e.1.b": slot 3 of index 1, from a tensor like "e.*.a"' in refused(
        tmp_path, "experts", "--plan", path)


def test_numbers_of_one(tmp_path):
    """One tensor is "1 tensor", one dimension "1 dimension"."""
    write_by_hand(tmp_path / "m" / "model.safetensors", [tensor("w", "F32", [4])])
    assert "checkpoint safetensors, 1 tensor, " in good(tmp_path, "m", "--engine", "none", "--tp", 1)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"tp_size": 2, "rules": [{"match": "*", "dim": 1}]}))
    assert 'tensor "w": has 1 dimension, numbered from 0; its rule splits dimension 1' in refused(
        tmp_path, "m", "--plan", path)


def test_a_model_without_a_checkpoint_says_why(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.safetensors").write_bytes(b"rubbish!")
    message = refused(tmp_path, "m", "--engine", "none", "--tp", 1)
    assert 'model "m" has no checkpoint that can be read: model.safetensors: ' in message and \
        "tensord inspect DIR" in message


def test_files_of_plans(root, tmp_path):
    path = tmp_path / "plan.json"
    assert refused(root, "llama", "--plan", path) == f'tensord: "{path}" does not exist\n'
    assert f"{tmp_path}: cannot read it" in refused(root, "llama", "--plan", tmp_path)
    path.write_text('{"tp":2}')
    message = refused(root, "llama", "--plan", path)
    assert str(path) in message and "(at byte 1)" in message
    path.write_text("")
    assert str(path) in refused(root, "llama", "--plan", path)
    path.write_text('{"boxes":[{"name":"lm_head.weight"}]}')
    message = refused(root, "llama", "--plan", path)
    assert str(path) in message and '"boxes" is not for ranks' in message


@pytest.mark.parametrize("args, needle", [
    ((), "a directory and a model"),
    (("m", ), "a directory and a model"),
    (("a", "b"), "either"),
    (("a", "b", "c"), "also c"),
    (("a", "b", "--engine", "vllm"), "either"),
    (("a", "b", "--tp", "2"), "either"),
    (("a", "b", "--engine", "none", "--tp", "2", "--plan", "x"), "either"),
    (("a", "b", "--nope"), "--nope"),
    (("a", "b", "--engine"), "missing after --engine"),
    (("a", "b", "--engine", "vlm", "--tp", "2"), "the engines are "),
    *((("a", "b", "--engine", "none", "--tp", tp), "1 to 4096")
      for tp in ("two", "0", "4097", "", "-1", "2x", "99999999999999999999")),
])
def test_wrong_usage(args, needle):
    message = refused(*args, status=2)
    assert needle in message and "did you mean" not in message


def test_help():
    out = good("--help")
    assert "tensord plan DIR MODEL" in out and "--checkpoint" in out and "SMALLEST" in out and "--listen" not in out


def test_a_full_disk(root):
    with open("/dev/full", "w") as full:
        for more in ((), ("--json",)):
            p = plan(root, "llama", "--engine", "none", "--tp", 1, *more, stdout=full)
            assert p.returncode == 1 and p.stderr == "tensord: cannot write to standard output\n", p
