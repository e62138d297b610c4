"""SGLang's own loader, models and layers, without a GPU: tests/requirements-engines.txt has its wheel."""
import json
from pathlib import Path

import engines
import pytest
import torch
from conftest import bytes_of, url_of

RUN = Path(__file__).with_name("sglang_run.py")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with engines.Engine(RUN, tmp_path_factory.mktemp("sglang")) as engine:
        yield engine.run


def test_sglang_is_there():
    """./test.sh installs it; by hand: the command of set_up_alone there."""
    assert (engines.PACKAGES / "sglang").is_dir()


@pytest.mark.parametrize("name, tp", [("llama", 1), ("llama", 2), ("qwen3", 2), ("mixtral", 2)])
def test_sglang_loads_the_same_parameters_from_its_part(serve, run, name, tp):
    torch.manual_seed(4)
    engines.MODELS[name]().to(torch.bfloat16).save_pretrained(serve.root / "m")
    (serve.root / "m" / "tokenizer").mkdir()
    (serve.root / "m" / "tokenizer" / "vocab.txt").write_text("a b c")
    (serve.root / "m" / "empty.txt").write_text("")
    server = serve()
    ranks = run(serve.root / "m", url_of(server, "m"), tp)
    assert [rank["wrong"] for rank in ranks] == [[]] * tp
    assert {rank["loader"] for rank in ranks} == {"RemoteModelLoader"}
    assert ranks[0]["config"] == ["config.json", "generation_config.json"]
    assert ranks[0]["tokenizer"] == ["config.json", "empty.txt", "generation_config.json", "tokenizer"]
    sent = bytes_of(server, "boxes.bin") + bytes_of(server, "tensors:read")
    assert sent <= 1.05 * sum(rank["bytes"] for rank in ranks)
    assert bytes_of(server, "safetensors") == 0


def test_errors_name_what_to_do(serve, run):
    torch.manual_seed(4)
    engines.MODELS["llama"]().save_pretrained(serve.root / "m")
    server = serve()
    said = run("-", url_of(server, "none"), 1, "error")[0]["error"]
    assert said.startswith("NotFoundError") and 'model "none" not found' in said


def write_versions(root, name, change=lambda model: None):
    """Write two versions of a model with other weights in all of their tensors; `change` is done to the second one."""
    for number in (1, 2):
        torch.manual_seed(number)
        model = engines.MODELS[name]().to(torch.bfloat16)
        for tensor in model.state_dict().values():
            torch.nn.init.normal_(tensor)
        if number == 2:
            change(model)
        model.save_pretrained(root / "run" / f"weight_v{number:06d}")
    return root / "run" / "weight_v000001", root / "run" / "weight_v000002"


def update(run, folder, paths, tp=1):
    """Return what each rank says of the start from a folder, and of the update from each path after it."""
    ranks = run(folder, "-", tp, json.dumps([path if isinstance(path, list) else [path, "auto"] for path in paths]))
    return [(rank[0], rank[1:]) for rank in ranks]


@pytest.mark.parametrize("name, tp", [("llama", 1), ("llama", 2), ("mixtral", 2)])
def test_a_running_engine_takes_the_weights_of_a_url(serve, run, name, tp):
    """After an update from a version's URL each rank has what SGLang's own update reads from the version's folder."""
    first, second = write_versions(serve.root, name)
    server = serve()
    url = url_of(server, "run/weight_v000002")
    named = url_of(server, "run?version=2")
    ranks = update(run, first, [[named, "remote"]], tp)
    sent = bytes_of(server, "boxes.bin") + bytes_of(server, "tensors:read")
    assert sent <= 1.05 * sum(start["bytes"] for start, _ in ranks)
    assert bytes_of(server, "safetensors") == 0
    for (start, (updated,)), (other, steps) in zip(ranks, update(run, first, [str(second), str(first), url], tp)):
        local, back, again = steps
        assert updated["done"] and local["done"] and updated["digest"] == local["digest"] != start["digest"]
        assert updated["moved"] == [] and updated["fields"] == [named] and not updated["hooked"]
        assert back["done"] and back["digest"] == other["digest"] == start["digest"]
        assert again["done"] and again["digest"] == local["digest"]


def test_an_update_that_fails_leaves_the_old_weights(serve, run):
    first, _ = write_versions(serve.root, "llama")
    server = serve()
    paths = [url_of(server, "run/weight_v000009"), url_of(server, "run?version=9"), url_of(server, ""), "tensord://",
             url_of(server, "run?version="), url_of(server, "run?step=1"), url_of(server, "run?version=latest")]
    for start, steps in update(run, first, paths, 2):
        *failed, done = steps
        for step in failed:
            assert not step["done"] and step["digest"] == start["digest"] and step["fields"] == []
            assert step["path"] == str(first) and not step["hooked"]
        assert 'model "run/weight_v000009" not found' in failed[0]["said"] and "weight_v000002" in failed[1]["said"]
        assert done["done"] and done["digest"] != start["digest"]


def test_an_update_that_fails_half_way_leaves_the_old_weights(serve, run):
    """A tensor with a wrong shape comes after others that were written already."""
    def cut(model):
        model.model.norm.weight = torch.nn.Parameter(torch.zeros(100, dtype=torch.bfloat16))

    first, _ = write_versions(serve.root, "llama", cut)
    server = serve()
    for start, (step,) in update(run, first, [url_of(server, "run/weight_v000002")], 2):
        assert not step["done"] and step["digest"] == start["digest"] and step["said"]


def test_ranks_that_find_several_versions_take_that_of_the_first(serve, run):
    """Each rank asks for the latest version by itself, and it may change in between."""
    first, second = write_versions(serve.root, "llama")
    server = serve()
    ranks = update(run, second, [str(first), str(second), url_of(server, "run?version={rank}"),
                                 url_of(server, "run/weight_v00000{rank}")], 2)
    assert [rank["wrong"] for rank in run(first, url_of(server, "run?version={rank}"), 2)] == [[], []]
    for _, (local, _, named, folder) in ranks:
        assert named["done"] and named["digest"] == local["digest"]
        assert not folder["done"] and folder["digest"] == local["digest"] and "changed on the server" in folder["said"]
