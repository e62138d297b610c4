"""Models of transformers from a server: the logits of a local load, and each rank reads only its part."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import harness
import pytest
import torch
import transformers
import warm_python
from conftest import bytes_of, url_of

import tensord
import tensord.transformers

SIZES = {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "head_dim": 32,
         "num_attention_heads": 4, "num_key_value_heads": 2}
# Folder: kind of model, its configuration, the size of a shard.
KINDS = {
    "llama": ("Llama", {}, None),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True}, "400KB"),
    "mixtral": ("Mixtral", {"num_local_experts": 4}, "1MB"),
    "gemma": ("Gemma", {}, None),
    "gemma3": ("Gemma3Text", {"sliding_window": 8}, None),
}
AUTO = transformers.AutoModelForCausalLM


def model_class(kind):
    return getattr(transformers, f"{kind.removesuffix('Text')}ForCausalLM")


def make(kind, sizes, seed=5):
    torch.manual_seed(seed)
    model = model_class(kind)(getattr(transformers, f"{kind}Config")(**SIZES, **sizes)).eval()
    for parameter in model.parameters():    # norms, too, must differ from those of a new model
        parameter.data.normal_(0, 0.1)
    return model


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a tiny model of each kind; some in several files."""
    root = tmp_path_factory.mktemp("root")
    for name, (kind, sizes, shard) in KINDS.items():
        make(kind, sizes).save_pretrained(root / name, **({"max_shard_size": shard} if shard else {}))
        assert (root / name / "model.safetensors.index.json").exists() == (shard is not None)
    make("Llama", {}, seed=6).save_pretrained(root / "llama-changed")
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def server(models):
    with harness.Server(models) as started:
        yield started


def logits_of(model):
    with torch.no_grad():
        return model(torch.arange(20)[None]).logits


def same_weights(one, other):
    return one.keys() == other.keys() and all(one[name].dtype == other[name].dtype and
                                              torch.equal(one[name], other[name]) for name in one)


def same_settings(remote, local):
    """Whether both models have one configuration but for where they came from, and one generation_config."""
    one, other = remote.config.to_dict(), local.config.to_dict()
    assert one.pop("_name_or_path") == remote.name_or_path and remote.name_or_path.startswith("http://127.0.0.1:")
    assert other.pop("_name_or_path") == local.name_or_path
    return one == other and remote.generation_config.to_dict() == local.generation_config.to_dict()


@pytest.mark.parametrize("name", KINDS)
def test_a_model_is_that_of_a_local_load(models, server, name):
    """Weights, logits, configuration and generation_config; each byte is read once."""
    local = AUTO.from_pretrained(models / name)
    concrete = model_class(KINDS[name][0])
    for cls in (AUTO, concrete):
        before = bytes_of(server, f"/{name}/")
        remote = tensord.transformers.from_pretrained(cls, url_of(server, name))
        nbytes = sum(parameter.nbytes for parameter in local.parameters())
        assert nbytes <= bytes_of(server, f"/{name}/") - before <= 1.05 * nbytes
        assert type(remote) is type(local) is concrete and not remote.training
        assert torch.equal(logits_of(remote), logits_of(local))
        assert same_weights(remote.state_dict(), local.state_dict())
        assert same_settings(remote, local)


def test_arguments_do_what_they_do_locally(models, server):
    def both(cls, name, **settings):
        return (tensord.transformers.from_pretrained(cls, url_of(server, name), **settings, connections=2),
                cls.from_pretrained(models / name, **settings))

    remote, local = both(AUTO, "llama", dtype=torch.bfloat16, attn_implementation="eager", output_attentions=True)
    assert same_weights(remote.state_dict(), local.state_dict()) and remote.dtype == torch.bfloat16
    assert remote.config._attn_implementation == local.config._attn_implementation == "eager"
    assert same_settings(remote, local) and remote.config.output_attentions
    (remote, said), (local, wanted) = both(transformers.AutoModelForSequenceClassification, "llama", num_labels=3,
                                           output_loading_info=True)
    assert said == wanted and said["missing_keys"] == {"score.weight"} and said["unexpected_keys"] == {"lm_head.weight"}
    assert remote.score.out_features == local.score.out_features == 3
    base, whole = remote.model.state_dict(), local.model.state_dict()
    assert same_weights(base, whole)
    given = transformers.GenerationConfig(max_new_tokens=7)
    remote, local = both(model_class("Llama"), "llama", generation_config=given, config=models / "llama/config.json")
    assert remote.generation_config.max_new_tokens == local.generation_config.max_new_tokens == 7


def test_what_config_json_leaves_open(models, serve):
    """Without a dtype that of the weights is taken, without generation_config.json what config.json says; a text model
    takes its part of a composite configuration."""
    folder = serve.root / "old"
    make("Llama", {"bos_token_id": 5}).to(torch.bfloat16).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    del config["dtype"]
    (folder / "config.json").write_text(json.dumps({**config, "max_length": 77}))
    (folder / "generation_config.json").unlink()
    shutil.copytree(models / "gemma3", serve.root / "composite")
    text = json.loads((models / "gemma3" / "config.json").read_text())
    (serve.root / "composite/config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    server = serve()
    for name, cls in (("old", AUTO), ("composite", transformers.Gemma3ForCausalLM)):
        local = cls.from_pretrained(serve.root / name)
        remote = tensord.transformers.from_pretrained(cls, url_of(server, name))
        assert same_weights(remote.state_dict(), local.state_dict())
        assert same_settings(remote, local)


def test_each_of_two_ranks_reads_its_part(models, server, tmp_path):
    """Tensor parallelism by both of its arguments, experts by rank, FSDP2: bit for bit what the same ranks load from
    the disk. All that is sent to a rank, descriptions too, is at most 1.05 of what it holds. Ranks that read different
    versions are reported."""
    cases = [(f"{name}.", name, None) for name in KINDS]
    cases += [("config.", "qwen3", {"tp_size": 2}), ("experts.", "mixtral", {"tp_size": 2, "ep_size": 2}),
              ("fsdp.", "qwen3", {"fsdp_size": 2})]
    rows = [{"name": case, "path": str(models / name), "urls": [url_of(server, name)] * 2, "how": how}
            for case, name, how in cases]
    torn = [url_of(server, "llama"), url_of(server, "llama-changed")]
    rows.append({"name": "torn.", "path": str(models / "llama"), "urls": torn, "how": None})
    (tmp_path / "cases.json").write_text(json.dumps(rows))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "--no-python",
               *warm_python.command(), Path(__file__).with_name("transformers_run.py"), tmp_path / "cases.json",
               tmp_path / "out"]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    for rank in (0, 1):
        found = json.loads((tmp_path / f"out-{rank}.json").read_text())
        assert found.pop("torn.")["error"].startswith("ChangedError: llama")
        for case, row in found.items():
            assert row["differ"] == [] and row["equal"], (rank, case, row)
            assert row["sharded"] > 0.9 * (row["sharded"] + row["whole"])
            ratio = bytes_of(server, agent=f"rank-{rank}-{case}") / (row["sharded"] + row["whole"])
            print(f"rank {rank}, {case} {ratio:.4f} of {row['sharded']} bytes sharded and {row['whole']} whole")
            assert 1 <= ratio <= 1.05, (rank, case, row)


def test_what_cannot_be_loaded_is_said(serve, models):
    from safetensors.torch import save_file

    for name in ("own", "bare"):
        (serve.root / name).mkdir()
        save_file({"w": torch.ones(2)}, serve.root / name / "model.safetensors")
    config = {"model_type": "novel", "auto_map": {"AutoModel": "x.X"}}
    (serve.root / "own" / "config.json").write_text(json.dumps(config))
    (serve.root / "pickled").mkdir()
    weights = make("Llama", {}).state_dict()
    weights["model.norm.weight"] = torch._neg_view(weights["model.norm.weight"])
    torch.save(weights, serve.root / "pickled/pytorch_model.bin")
    shutil.copy(models / "llama/config.json", serve.root / "pickled")
    server = serve()
    with pytest.raises(tensord.TensordError, match="no model type 'novel' and names code of its own, which is never"):
        tensord.transformers.from_pretrained(AUTO, url_of(server, "own"))
    with pytest.raises(tensord.NotFoundError, match="bare has no config.json: give config="):
        tensord.transformers.from_pretrained(AUTO, url_of(server, "bare"))
    with pytest.raises(tensord.NotFoundError, match='model "none" not found'):
        tensord.transformers.from_pretrained(AUTO, url_of(server, "none"))
    with pytest.raises(tensord.TensordError, match="'model.norm.weight' of pickled cannot be read: negated"):
        tensord.transformers.from_pretrained(AUTO, url_of(server, "pickled"))
    config = transformers.AutoConfig.from_pretrained(models / "llama")
    auto = transformers.AutoModelForSpeechSeq2Seq
    with pytest.raises(tensord.TensordError, match="AutoModelForSpeechSeq2Seq has no class for LlamaConfig"):
        tensord.transformers.from_pretrained(auto, url_of(server, "bare"), config=config)
