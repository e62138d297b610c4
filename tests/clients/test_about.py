"""Stock clients read the facts about a model: task, library, tags, card; and lists filtered by these."""
import json
import shutil
from pathlib import Path

import pytest
import yaml

import harness
from client import HUB0, NEWEST, ClientError, Worker

CARD = """---
license: apache-2.0
language: [en, "no"]
pipeline_tag: fill-mask
library_name: transformers
tags:
- merge
- 1
model-index:
- name: x
  results:
  - task: {type: fill-mask}
    dataset: {name: d, type: d}
    metrics: [{type: accuracy, value: 0.5}]
datasets: [ns/rows]
nothing: ~
inference: false
size: 1.5e3
---
# A model
"""


@pytest.fixture(scope="module")
def architectures():
    """Returns class -> tasks, from transformers' own mappings."""
    with Worker("calls_transformers", HF_HUB_OFFLINE="1") as w:
        return w.tasks()


@pytest.fixture(scope="module")
def root(tmp_path_factory, architectures):
    root = tmp_path_factory.mktemp("about") / "root"
    with Worker("calls_transformers", HF_HUB_OFFLINE="1") as w:
        for kind in ("llama", "bert"):
            w.make_with_tokenizer(kind=kind, folder=str(root / "tiny"))
    for folder in [*root.glob("tiny/*-sharded"), *root.glob("tiny/*-bin")]:
        shutil.rmtree(folder)
    (root / "tiny/bert/README.md").write_text(CARD)
    weights = harness.safetensors_bytes([harness.tensor("w", "I8", (1,))])
    for name in architectures:
        (root / "arch" / name).mkdir(parents=True)
        (root / "arch" / name / "model.safetensors").write_bytes(weights)
        (root / "arch" / name / "config.json").write_text(json.dumps({"architectures": [name], "model_type": "x"}))
    harness.age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with harness.Server(root) as s:
        yield s


@pytest.fixture(scope="module", params=["newest", "0.36.2"])
def hub(request, srv):
    with Worker("calls_hub", NEWEST if request.param == "newest" else HUB0,
                HF_ENDPOINT=f"http://127.0.0.1:{srv.port}") as w:
        w.is_newest = request.param == "newest"
        yield w


@pytest.fixture(scope="module")
def transformers(srv):
    with Worker("calls_transformers", HF_ENDPOINT=f"http://127.0.0.1:{srv.port}") as w:
        yield w


def test_a_pipeline_without_a_task(transformers):
    """The task comes from the architecture of config.json, or from the card."""
    assert transformers.pipe(model="tiny/llama", text="a b")["task"] == "text-generation"
    assert transformers.pipe(model="tiny/bert", text="a [MASK]")["task"] == "fill-mask"


def test_tasks_are_those_of_transformers(hub, architectures):
    """Every class of the auto mappings for which the server names a task has one that transformers gives it."""
    told = {m["id"].split("/")[1]: m["task"] for m in hub.about_all(author="arch")}
    assert sorted(told) == sorted(architectures)
    wrong = {name: (told[name], tasks) for name, tasks in architectures.items() if told[name] not in (None, *tasks)}
    assert not wrong
    silent = [name for name in architectures if told[name] is None]
    assert len(silent) < len(architectures) / 20, silent


def test_model_info(hub, root):
    got = hub.about(repo_id="tiny/bert")
    assert got["task"] == "fill-mask" and got["library"] == "transformers"
    assert {"transformers", "safetensors", "bert", "fill-mask", "merge", "en", "no", "license:apache-2.0",
            "dataset:ns/rows"} <= set(got["tags"])
    assert got["config"]["architectures"] == ["BertForMaskedLM"] and got["config"]["model_type"] == "bert"
    with open(root / "tiny/bert/model.safetensors", "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    del header["__metadata__"]
    elements = sum(e["data_offsets"][1] - e["data_offsets"][0] for e in header.values()) // 4
    assert got["safetensors"] == {"parameters": {"F32": elements}, "total": elements}
    assert got["card"]["license"] == "apache-2.0" and got["card"]["language"] == ["en", "no"]
    got = hub.about(repo_id="tiny/llama")
    assert got["task"] == "text-generation" and got["card"] is None


def test_the_card_is_that_of_huggingface_hub(srv, root):
    """huggingface_hub's reader gives the same front matter the same meaning, except that YAML 1.1 reads `no` as
    false."""
    wanted = yaml.safe_load(CARD.split("---\n")[1].replace("1.5e3", "1500.0"))
    assert srv.get("/api/models/tiny/bert").json()["cardData"] == wanted


def test_lists(hub):
    assert hub.models(filter="fill-mask", author="tiny") == ["tiny/bert"]
    assert hub.models(filter=["license:apache-2.0", "en"]) == ["tiny/bert"]
    assert hub.models(filter=["license:apache-2.0", "fr"]) == []
    assert hub.models(trained_dataset="ns/rows") == ["tiny/bert"]
    assert sorted(hub.models(author="tiny", pipeline_tag="text-generation")) == ["tiny/llama"]
    assert hub.models(search="LLAM", author="tiny") == ["tiny/llama"]
    assert sorted(hub.models(author="tiny", gated=False)) == ["tiny/bert", "tiny/llama"]
    assert hub.models(author="tiny", gated=True) == []
    assert hub.models(inference="warm") == [] and hub.models(inference_provider="all") == []
    assert sorted(hub.models(author="tiny", sort="downloads")) == ["tiny/bert", "tiny/llama"]
    with pytest.raises(ClientError, match="apps"):
        hub.models(apps="vllm")
    if hub.is_newest:
        with pytest.raises(ClientError, match="num_parameters"):
            hub.models(num_parameters="min:6B")
    else:
        assert hub.models(library="transformers", author="tiny", tags="merge", language="en",
                          task="fill-mask") == ["tiny/bert"]
        assert hub.models(model_name="bert", search="tiny") == ["tiny/bert"]


def test_lists_with_more(hub):
    (got,) = hub.about_all(search="tiny/bert", cardData=True, fetch_config=True)
    assert got["card"]["license"] == "apache-2.0" and got["config"]["model_type"] == "bert" and got[
        "safetensors"] is None
    (got,) = hub.about_all(search="tiny/bert", expand=["safetensors", "pipeline_tag"])
    assert got["safetensors"]["total"] > 0 and got["task"] == "fill-mask" and got["card"] is None


def test_a_card_can_be_loaded(srv, root, tmp_path):
    """ModelCard.load reads the file itself."""
    assert srv.get("/tiny/bert/resolve/main/README.md").body == Path(root / "tiny/bert/README.md").read_bytes()
