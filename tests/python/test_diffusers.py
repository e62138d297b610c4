"""diffusers: the recipe of docs/python.md, which needs no adapter."""
import re

import fsspec
import pytest
import torch
from conftest import REPO, bytes_of

import tensord
from tensord.fsspec import TensordFileSystem


@pytest.fixture
def diffusers():
    """The library, whose import takes seconds, and each of the processes of pytest imports all modules of tests."""
    import diffusers
    return diffusers


def make(diffusers):
    torch.manual_seed(3)
    return diffusers.UNet2DConditionModel(
        sample_size=8, block_out_channels=(32, 64), layers_per_block=1, cross_attention_dim=32,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D")).eval()


def output_of(model):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        return model(torch.randn(1, 4, 8, 8, generator=generator), 3, torch.randn(1, 5, 32, generator=generator)).sample


def test_the_recipe_loads_a_unet(serve, diffusers):
    saved = make(diffusers)
    saved.save_pretrained(serve.root / "org/name/unet")
    diffusers.DDIMScheduler().save_pretrained(serve.root / "org/name/scheduler")
    server = serve()
    text = (REPO / "docs" / "python.md").read_text()
    recipe = re.search(r"^\*\*diffusers\.\*\*.*?^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]
    fsspec.register_implementation("tensord", TensordFileSystem, clobber=True)  # an installed wheel does this itself
    names = {}
    exec(recipe.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}"), names)
    assert torch.equal(output_of(names["unet"]), output_of(saved)) and not names["unet"].training
    nbytes = sum(parameter.nbytes for parameter in saved.parameters())
    assert nbytes <= bytes_of(server, "/unet/") <= 1.05 * nbytes
    half = diffusers.UNet2DConditionModel.from_config(names["unet"].config).to(torch.bfloat16)
    with pytest.raises(tensord.MismatchError, match="is torch.bfloat16, the checkpoint torch.float32"):
        tensord.load_into(half, names["url"])
    tensord.load_into(half, names["url"], dtype="any")
    assert torch.equal(half.conv_in.weight, saved.conv_in.weight.bfloat16())
