"""vLLM's own loader, models and layers, without a GPU: tests/requirements-engines.txt has its wheel."""
from pathlib import Path

import engines
import harness
import pytest
import torch
from conftest import bytes_of, url_of
from quantised_layouts import LAYOUTS, write_gpt_oss, write_llama
from safetensors.torch import load_file

RUN = Path(__file__).with_name("vllm_run.py")


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A server of org/m, and the folder where the Hub's client keeps what it has downloaded."""
    root = tmp_path_factory.mktemp("hub") / "root"
    torch.manual_seed(4)
    engines.MODELS["llama"]().save_pretrained(root / "org" / "m")
    harness.age(root)
    with harness.Server(root) as server:
        yield server, root.parent / "home"


@pytest.fixture(scope="module")
def run(hub, tmp_path_factory):
    """Runs ranks in an engine whose Hub is the server `hub`: HF_ENDPOINT counts when the Hub's client is imported."""
    server, home = hub
    with engines.Engine(RUN, tmp_path_factory.mktemp("vllm"), HF_ENDPOINT=f"http://127.0.0.1:{server.port}",
                        HF_HUB_OFFLINE="0", HF_HOME=str(home)) as engine:
        yield engine.run


def test_vllm_is_there():
    """./test.sh installs it; by hand: the command of set_up_alone there."""
    assert (engines.PACKAGES / "vllm").is_dir()


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", engines.MODELS)
def test_vllm_loads_the_same_parameters_from_its_part(serve, run, name, tp):
    torch.manual_seed(4)
    engines.MODELS[name]().to(torch.float32).save_pretrained(serve.root / "m")
    server = serve()
    ranks = run(serve.root / "m", url_of(server, "m"), tp)
    assert [rank["wrong"] for rank in ranks] == [[]] * tp
    sent = bytes_of(server, "boxes.bin") + bytes_of(server, "tensors:read")
    assert sent <= 1.05 * sum(rank["bytes"] for rank in ranks)


@pytest.mark.parametrize("layout", [*LAYOUTS, "mxfp4"])
def test_vllm_loads_quantised_layers_from_its_part(serve, run, layout):
    """Two ranks read together what the file has, and once more what each of them keeps whole."""
    if layout == "mxfp4":
        write_gpt_oss(serve.root / "m")
    else:
        write_llama(serve.root / "m", layout)
    server = serve()
    ranks = run(serve.root / "m", url_of(server, "m"), 2)
    assert [rank["wrong"] for rank in ranks] == [[], []]
    tensors = load_file(serve.root / "m" / "model.safetensors")
    kept_whole = {name for name, tensor in tensors.items()
                  if tensor.dim() < 2 or any(part in name for part in ("router", "down_proj_bias", "weight_shape"))}
    wanted = sum(tensor.nbytes * (1 + (name in kept_whole)) for name, tensor in tensors.items())
    sent = bytes_of(server, "boxes.bin") + bytes_of(server, "tensors:read")
    assert sent <= 1.05 * wanted, (sent, wanted)
    print(layout, sent / wanted)


def test_errors_name_what_to_do(serve, run):
    torch.manual_seed(4)
    model = engines.MODELS["llama"]()
    model.save_pretrained(serve.root / "m")
    tensors = {name: tensor for name, tensor in model.state_dict().items() if "layers.1.mlp.down_proj" not in name}
    model.save_pretrained(serve.root / "less", state_dict=tensors)
    server = serve()
    said = run(serve.root / "m", url_of(server, "less"), 1, "error")[0]["error"]
    assert said == "ValueError: less has no weights for model.layers.1.mlp.down_proj.weight"
    assert "takes url, token, connections" in run(serve.root / "m", "-", 1, '{"conections": 4}')[0]["error"]
    assert "HF_ENDPOINT to the server" in run(serve.root / "m", "-", 1, "{}", HF_ENDPOINT=None)[0]["error"]


def test_the_server_of_the_hub_is_the_source(hub, run):
    """HF_ENDPOINT gives vLLM the configuration, and this loader the weights, under the same name."""
    server, home = hub
    assert run("org/m", "-", 1, "hub")[0]["wrong"] == []
    assert bytes_of(server, "boxes.bin") + bytes_of(server, "tensors:read") > 0
    assert not list(home.rglob("tensord*"))
