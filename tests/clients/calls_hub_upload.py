"""The calls of huggingface_hub that upload, in the version that runs this. Results have only JSON's types."""
import base64
from pathlib import Path

import huggingface_hub
from huggingface_hub import (CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi)

api = HfApi()


def version():
    return huggingface_hub.__version__


def create(repo_id, **kw):
    got = api.create_repo(repo_id, **kw)
    return {"url": str(got), "id": got.repo_id, "type": got.repo_type}


def delete(repo_id, **kw):
    return api.delete_repo(repo_id, **kw)


def move(a, b, **kw):
    return api.move_repo(a, b, **kw)


def upload_file(data=None, path=None, **kw):
    """Upload the base64 text `data`, or the file at `path`."""
    got = api.upload_file(path_or_fileobj=base64.b64decode(data) if path is None else path, **kw)
    return {"url": got.commit_url, "oid": got.oid, "text": str(got)}


def upload_folder(**kw):
    got = api.upload_folder(**kw)
    return {"url": getattr(got, "commit_url", None), "oid": getattr(got, "oid", None)}


def upload_large_folder(**kw):
    return api.upload_large_folder(**kw)


def commit(repo_id, add=None, delete=(), copy=None, **kw):
    """Make one commit: add: path -> base64; copy: path -> source."""
    ops = [CommitOperationAdd(path, base64.b64decode(data)) for path, data in (add or {}).items()]
    ops += [CommitOperationDelete(path) for path in delete]
    ops += [CommitOperationCopy(source, path) for path, source in (copy or {}).items()]
    got = api.create_commit(repo_id, ops, commit_message=kw.pop("message", "test"), **kw)
    return {"url": got.commit_url, "oid": got.oid}


def branch(repo_id, name, **kw):
    return api.create_branch(repo_id, branch=name, **kw)


def delete_branch(repo_id, name, **kw):
    return api.delete_branch(repo_id, branch=name, **kw)


def tag(repo_id, name, **kw):
    return api.create_tag(repo_id, tag=name, **kw)


def delete_tag(repo_id, name, **kw):
    return api.delete_tag(repo_id, tag=name, **kw)


def squash(repo_id, **kw):
    return api.super_squash_history(repo_id, **kw)


def refs(repo_id, **kw):
    got = api.list_repo_refs(repo_id, **kw)
    return {r.name: r.target_commit for r in got.branches + got.tags}


def commits(repo_id, **kw):
    return [{"id": c.commit_id, "title": c.title, "message": c.message} for c in api.list_repo_commits(repo_id, **kw)]


def files(repo_id, **kw):
    return sorted(api.list_repo_files(repo_id, **kw))


def read(repo_id, name, **kw):
    return Path(api.hf_hub_download(repo_id, name, **kw)).read_bytes().hex()


def delete_file(path, repo_id, **kw):
    return api.delete_file(path, repo_id, **kw).oid


def delete_folder(path, repo_id, **kw):
    return api.delete_folder(path, repo_id, **kw).oid


def settings(repo_id, **kw):
    return api.update_repo_settings(repo_id, **kw)


def push_card(repo_id, license):
    """Push a card, and return the license of the one that is read back."""
    from huggingface_hub import ModelCard
    ModelCard(f"---\nlicense: {license}\n---\n# A model\n").push_to_hub(repo_id)
    return ModelCard.load(repo_id).data.license


def file_system(repo_id, data):
    """Write, copy, move and remove files by HfFileSystem. Return the paths that stay, and whether they are right."""
    from huggingface_hub import HfFileSystem
    fs, large = HfFileSystem(), base64.b64decode(data)
    with fs.open(f"{repo_id}/d/w.txt", "w") as f:
        f.write("hello")
    with fs.open(f"{repo_id}/d/large.bin", "wb") as f:
        f.write(large)
    fs.pipe_file(f"{repo_id}/gone.txt", b"x")
    fs.cp_file(f"{repo_id}/d/large.bin", f"{repo_id}/copy.bin")
    fs.mv(f"{repo_id}/d/w.txt", f"{repo_id}/moved.txt")
    fs.rm(f"{repo_id}/gone.txt")
    fs.rm(f"{repo_id}/d", recursive=True)
    fs.invalidate_cache()
    right = fs.cat_file(f"{repo_id}/copy.bin") == large and fs.cat_file(f"{repo_id}/moved.txt") == b"hello"
    return {"files": sorted(p[len(repo_id) + 1:] for p in fs.find(repo_id)), "right": right}


def auth_check(repo_id, **kw):
    return api.auth_check(repo_id, **kw)


def push_to_hub(repo_id, **kw):
    """Push a small model of transformers with its configuration."""
    from transformers import BertConfig, BertModel
    config = BertConfig(vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=16, max_position_embeddings=16)
    got = BertModel(config).push_to_hub(repo_id, **kw)
    return getattr(got, "oid", None)


def train(repo_id, folder, strategy):
    """Train for four steps, and push every second one. Return the titles of the commits."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    config = BertConfig(vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=16, max_position_embeddings=16)
    rows = [{"input_ids": torch.arange(8), "labels": torch.tensor(i % 2)} for i in range(8)]
    arguments = TrainingArguments(folder, max_steps=4, save_steps=2, push_to_hub=True, hub_model_id=repo_id,
                                  hub_strategy=strategy, hub_always_push=True, report_to=[], use_cpu=True)
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows)
    trainer.train()
    trainer.push_to_hub(commit_message="The end")
    return [c.title for c in api.list_repo_commits(repo_id)]


def push_dataset(repo_id, **kw):
    from datasets import Dataset
    count = kw.pop("count", 100)
    Dataset.from_dict({"a": list(range(count)), "b": [str(i) for i in range(count)]}).push_to_hub(repo_id, **kw)


def rows(repo_id, split="train", **kw):
    from datasets import load_dataset
    table = load_dataset(repo_id, split=split, download_mode="force_redownload", **kw)
    return {"count": len(table), "last": table[len(table) - 1]}
