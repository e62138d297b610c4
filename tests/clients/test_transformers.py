"""from_pretrained of real, tiny models: loaded from tensord, a model is the saved one, whatever its format."""
from pathlib import Path

import pytest

import harness
from client import Worker, digests, sha256, wait_hashed

KINDS = ["llama", "qwen3", "bert"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("models") / "root"


@pytest.fixture(scope="module")
def saved(root):
    """Returns kind -> fingerprint of the saved model."""
    with Worker("calls_transformers", HF_HUB_OFFLINE="1") as w:
        made = {kind: w.make(kind=kind, folder=str(root / "tiny")) for kind in KINDS}
    harness.age(root)
    return made


@pytest.fixture(scope="module")
def srv(root, saved):
    with harness.Server(root) as s:
        wait_hashed(s, *(f"tiny/{kind}{form}" for kind in KINDS for form in ("", "-sharded", "-bin")))
        yield s


@pytest.fixture(scope="module")
def client(srv):
    with Worker("calls_transformers", HF_ENDPOINT=f"http://127.0.0.1:{srv.port}") as w:
        yield w


def downloaded(cache):
    """Return the names of all files in the snapshots of a cache."""
    return sorted(p.name for p in Path(cache).glob("models--*/snapshots/*/*"))


@pytest.mark.parametrize("form", ["", "-sharded", "-bin"])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_weights_and_logits(client, saved, tmp_path, kind, form):
    assert client.load(kind=kind, name=f"tiny/{kind}{form}", cache_dir=str(tmp_path)) == saved[kind]
    assert any(n.endswith(".bin" if form == "-bin" else ".safetensors") for n in downloaded(tmp_path))


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickle_without_a_pickle(client, saved, tmp_path, kind):
    """The revision `safetensors` of a repository of pickles: no downloaded file can contain code."""
    got = client.load(kind=kind, name=f"tiny/{kind}-bin", revision="safetensors", use_safetensors=True,
                      cache_dir=str(tmp_path))
    assert got == saved[kind]
    assert downloaded(tmp_path) == ["config.json", "model.safetensors"]


def test_main_and_safetensors_in_one_cache(client, saved, tmp_path):
    """The client remembers by commit which files main lacks; the other revision has another commit, whichever is
    first."""
    for order in (["main", "safetensors"], ["safetensors", "main"]):
        for revision in order:
            cache = str(tmp_path / "-".join(order))
            assert client.load(kind="llama", name="tiny/llama-bin", revision=revision,
                               cache_dir=cache) == saved["llama"]
        assert downloaded(cache) == ["config.json", "config.json", "model.safetensors", "pytorch_model.bin"]


def test_the_safetensors_revision_as_a_repository(hub, root, tmp_path):
    """All calls agree on the revision; for a model with safetensors it equals main."""
    info = hub.model_info(repo_id="tiny/bert-bin", revision="safetensors", files_metadata=True)
    main = hub.model_info(repo_id="tiny/bert-bin")
    assert info["sha"] != main["sha"]
    assert sorted(info["files"]) == ["config.json", "model.safetensors"]
    assert sorted(main["files"]) == ["config.json", "pytorch_model.bin"]
    assert hub.model_info(repo_id="tiny/bert-bin", revision=info["sha"])["sha"] == info["sha"]
    got = hub.snapshot(repo_id="tiny/bert-bin", revision="safetensors", cache_dir=str(tmp_path))
    assert Path(got).name == info["sha"]
    assert (Path(got) / "model.safetensors").stat().st_size == info["files"]["model.safetensors"]["size"]
    got = hub.snapshot(repo_id="tiny/bert", revision="safetensors", cache_dir=str(tmp_path))
    assert digests(got) == digests(root / "tiny/bert")


def test_hf_verifies_a_virtual_revision(hub, tmp_path):
    """Its files are made while they are sent; where the server gives their digests, these are right."""
    got = hub.snapshot(repo_id="tiny/bert-bin", revision="safetensors", cache_dir=str(tmp_path))
    commit = Path(got).name
    for e in hub.tree(repo_id="tiny/bert-bin", revision=commit, recursive=True):
        if e["lfs"]:
            assert e["lfs"]["sha256"] == sha256(Path(got) / e["path"]), e["path"]


@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_as_a_revision(hub, srv, root, tmp_path, rank):
    """A snapshot of `tp2-rank1-vllm` has that rank's file and the small files of the model."""
    revision = f"tp2-rank{rank}-vllm"
    got = Path(hub.snapshot(repo_id="tiny/llama", revision=revision, cache_dir=str(tmp_path)))
    assert sorted(digests(got)) == ["config.json", "generation_config.json", f"model-rank-{rank}-part-0.safetensors"]
    whole = srv.get(f"/models/tiny/llama/shards/vllm/tp2/rank-{rank}.safetensors")
    assert (got / f"model-rank-{rank}-part-0.safetensors").read_bytes() == whole.body
    assert sha256(got / "config.json") == sha256(root / "tiny/llama/config.json")
    by_name = hub.download(repo_id="tiny/llama", filename="model.safetensors", revision=revision,
                           cache_dir=str(tmp_path / "other"))
    assert Path(by_name).read_bytes() == whole.body
    assert got.name != hub.model_info(repo_id="tiny/llama")["sha"]


def test_two_ranks_in_one_cache(hub, tmp_path):
    first, second = (hub.snapshot(repo_id="tiny/llama", revision=f"tp2-rank{r}-vllm", cache_dir=str(tmp_path))
                     for r in (0, 1))
    assert first != second
    assert (digests(first)["model-rank-0-part-0.safetensors"] != digests(second)["model-rank-1-part-0.safetensors"])
