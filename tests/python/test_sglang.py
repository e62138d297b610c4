"""SGLang's own loader, models and layers, without a GPU: tests/requirements-engines.txt has its wheel."""
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
