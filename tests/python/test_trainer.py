"""A Trainer of transformers whose checkpoints are pushed by PushCallback."""
import logging
import os

import pytest
import tensord
import torch
from conftest import url_of
from publishing import Repo
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import tensord.transformers
from tensord.transformers import PushCallback


def train(folder, callback, steps=3):
    """Train a small model for some steps, with a checkpoint after each. Return the model."""
    config = BertConfig(vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=16, max_position_embeddings=16)
    rows = [{"input_ids": torch.arange(8), "labels": torch.tensor(i % 2)} for i in range(8)]
    arguments = TrainingArguments(str(folder), max_steps=steps, save_steps=1, report_to=[], use_cpu=True)
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows, callbacks=[callback])
    trainer.train()
    return trainer.model


def names_of(server, id, revision="main"):
    tree = server.json(f"/api/models/{id}/tree/{revision}?recursive=1")
    return {file["path"] for file in tree if file["type"] == "file"}


def test_each_checkpoint_becomes_a_commit(serve, tmp_path):
    server = serve("--publish", "any")
    callback = PushCallback(url_of(server, "org/run"), exclude=["optimizer.pt", "rng_state*"], progress=False)
    model = train(tmp_path, callback)
    made = Repo(server.port, "org/run").commits()
    assert sorted(commit["message"] for commit in made["commits"]) == ["step 1", "step 2", "step 3"]
    assert made["refs"] == {"main": callback.result.commit} and callback.result.changed
    local = {str(path.relative_to(tmp_path / "checkpoint-3")) for path in (tmp_path / "checkpoint-3").rglob("*")}
    assert names_of(server, "org/run") == local - {"optimizer.pt", "rng_state.pth"}
    loaded = tensord.transformers.from_pretrained(BertForSequenceClassification, url_of(server, "org/run"))
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def test_revisions_and_folders(serve, tmp_path):
    server = serve("--publish", "any")
    train(tmp_path / "a", PushCallback(url_of(server, "org/run"), revision="step-{step}", progress=False), 2)
    assert Repo(server.port, "org/run").commits()["refs"].keys() == {"step-1", "step-2"}
    Repo(server.port, "org/other").push({"notes.txt": b"mine"})
    train(tmp_path / "b", PushCallback(url_of(server, "org/other@main/last"), include="*.safetensors",
                                       progress=False), 1)
    assert names_of(server, "org/other") == {"notes.txt", "last/model.safetensors"}


def test_a_server_that_fails(serve, tmp_path, caplog):
    """Training continues after a failed push. The last one is tried again, and raises."""
    caplog.set_level(logging.WARNING, "tensord")
    with pytest.raises(tensord.ConnectError):
        train(tmp_path / "a", PushCallback(f"tensord://127.0.0.1:1/org/run", retry_for=0.1), 2)
    warned = [record.message for record in caplog.records if "was not pushed" in record.message]
    assert len(warned) == 2 and warned[0].startswith("the checkpoint of step 1 was not pushed: http://127.0.0.1:")
    assert os.path.isdir(tmp_path / "a/checkpoint-2")
    server = serve("--publish", "any")
    callback = PushCallback(url_of(server, "org/run"), progress=False)
    right, callback.url = callback.url, f"tensord://127.0.0.1:1/org/run"
    callback.options["retry_for"] = 0.1
    on_train_end = callback.on_train_end

    def repaired(*arguments, **more):
        callback.url = right
        on_train_end(*arguments, **more)

    callback.on_train_end = repaired
    train(tmp_path / "b", callback, 1)
    assert [c["message"] for c in Repo(server.port, "org/run").commits()["commits"]] == ["step 1"]
