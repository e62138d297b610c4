"""Files that each hold one rank's part of the tensors are joined where they say how, else never taken for the model."""
import json
import shutil
import subprocess
import textwrap

import pytest
import torch
import warm_python
from safetensors.torch import load, save_file
from upstream_kit import free_port

FULL = torch.arange(48.0).reshape(8, 6)

# Names of the files of two ranks. The first is never the whole where the second is beside it.
SETS = {
    "meta": ["consolidated.00.pth", "consolidated.01.pth"],
    "meta-pt": ["consolidated.00.pt", "consolidated.01.pt"],
    "vllm": ["model-rank-0-part-0.safetensors", "model-rank-1-part-0.safetensors"],
    "vllm-stages": ["model-pp-0-tp-0-part-0.safetensors", "model-pp-0-tp-1-part-0.safetensors"],
    "vllm-bin": ["model-rank-0-part-0.bin", "model-rank-1-part-0.bin"],
    "deepspeed": ["mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"],
    "deepspeed-moe": ["mp_rank_00_model_states.pt", "layer_0_expert_0_mp_rank_00_model_states.pt"],
    "deepspeed-pipeline": ["layer_00-model_00-model_states.pt", "layer_01-model_00-model_states.pt"],
    "zero-3": ["zero_pp_rank_0_mp_rank_00_model_states.pt", "zero_pp_rank_1_mp_rank_00_model_states.pt"],
    "zero-optimizer": ["zero_pp_rank_0_mp_rank_00_optim_states.pt", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"],
    "megatron": ["mp_rank_00/model_optim_rng.pt", "mp_rank_01/model_optim_rng.pt"],
    "megatron-stages": ["mp_rank_00_000/model_optim_rng.pt", "mp_rank_00_001/model_optim_rng.pt"],
    "nemo": ["tp_rank_00_pp_rank_000/model_weights.ckpt", "tp_rank_01_pp_rank_000/model_weights.ckpt"],
    "neuron": ["dp_rank_00_tp_rank_00_pp_rank_00.pt", "dp_rank_00_tp_rank_01_pp_rank_00.pt"],
    "neuron-inference": ["tp0_sharded_checkpoint.safetensors", "tp1_sharded_checkpoint.safetensors"],
    "tensorrt-llm": ["rank0.safetensors", "rank1.safetensors"],
    "accelerate": ["pytorch_model_rank0.bin", "pytorch_model_rank1.bin"],
    "composer": ["ep0-ba10-rank0.pt", "ep0-ba10-rank1.pt"],
    "fairseq": ["checkpoint_last-shard0.pt", "checkpoint_last-shard1.pt"],
    "opt": ["reshard-model_part-0.pt", "reshard-model_part-1.pt"],
    "deepseek": ["model0-mp2.safetensors", "model1-mp2.safetensors"],
    "numbered": ["weights-shard-1.safetensors", "weights-shard-2.safetensors"],
    "second-rank-alone": ["consolidated.01.pth"],
    "third-rank-alone": ["model-rank-2-part-0.safetensors"],
    "zero-3-alone": ["zero_pp_rank_0_mp_rank_00_model_states.pt"],
}
# Names that look like the former and are whole: one rank, or numbers of something else.
WHOLE = {
    "one-rank": ["consolidated.00.pth"],
    "one-rank-vllm": ["model-rank-0-part-0.safetensors"],
    "one-rank-deepspeed": ["mp_rank_00_model_states.pt", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"],
    "one-rank-megatron": ["mp_rank_00/model_optim_rng.pt"],
    "one-rank-composer": ["ep0-ba10-rank0.pt", "ep1-ba20-rank0.pt"],
    "consolidated": ["consolidated.safetensors"],
    "adapters": ["lora_rank_8.safetensors"],
    "adapters-of-ranks": ["lora_rank_16/adapter_model.safetensors", "lora_rank_8/adapter_model.safetensors"],
    "deepseek-one": ["model0-mp1.safetensors"],
    "no-number": ["rank.safetensors"],
}


def write(path, state):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)


def write_set(folder, names):
    for i, name in enumerate(names):
        write(folder / name, {"tok.weight": FULL[4 * i:4 * i + 4].clone(), "norm": torch.ones(3)})


def model_of(root, name):
    return f"{root}/{name.split('/')[0]}" if "/" in name else root


def base(name):
    return name.split("/")[-1]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("parts") / "root"
    for what, names in {**SETS, **WHOLE}.items():
        write_set(root / what, names)
        (root / what / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    for name in SETS["meta"]:
        write(root / "beside" / name, {"tok.weight": FULL[:4].clone()})
    write(root / "beside/model.safetensors", {"tok.weight": FULL})
    write(root / "training/mp_rank_00_model_states.pt", {"w": FULL[:4].clone()})
    write(root / "training/mp_rank_01_model_states.pt", {"w": FULL[4:].clone()})
    write(root / "training/rng_state_0.pth", {"cpu": torch.ones(2)})
    write(root / "training/args.bin", {"lr": 1})
    for rank in range(2):
        write(root / f"disjoint/shard_{rank}.safetensors", {f"w{rank}": FULL[:4].clone()})
    return root


@pytest.fixture(scope="module")
def server(root):
    import harness
    harness.age(root)
    with harness.Server(root, "--s3-listen", "127.0.0.1:0") as s:
        yield s


@pytest.mark.parametrize("what", SETS)
def test_a_part_is_never_the_model(server, what):
    for name in SETS[what]:
        model = model_of(what, name)
        about = server.json(f"/models/{model}")
        parts = {part["id"]: part for part in about["parts"]}
        assert about["checkpoints"] == [] and base(name) in parts, about
        assert any("one rank's part" in error["message"] for error in about["errors"]), about["errors"]
        for path in ("tensors", "model.safetensors", f"model.safetensors?checkpoint={base(name)}", "tensors?partial=1",
                     "tensors/tok.weight", "shards/none/tp2/rank-0.safetensors",
                     f"shards/none/tp2/rank-0.safetensors?checkpoint={base(name)}"):
            answer = server.get(f"/models/{model}/{path}")
            assert answer.status == 404, (path, answer.status)
        assert "rank's part" in server.get(f"/models/{model}/model.safetensors").json()["error"]["message"]
        assert "add ?checkpoint=ID to .../tensors" in server.get(f"/models/{model}/tensors").json()["error"]["message"]
        manifest = server.json(f"/models/{model}/tensors?checkpoint={base(name)}")
        assert "one rank's part" in manifest["incomplete"]["reason"]
        tensor = next(t for t in manifest["tensors"] if t["name"] == "tok.weight")
        rank = SETS[what].index(name)
        assert server.get(tensor["href"]).body == FULL[4 * rank:4 * rank + 4].numpy().tobytes()


@pytest.mark.parametrize("what", SETS)
def test_no_facade_offers_a_part_as_the_whole(server, what):
    """The Hub has no virtual revision and the registry no layer of a model; the files are served as they are."""
    repo = what if server.get(f"/api/models/{what}/revision/main").status == 200 else None
    assert repo is not None
    for revision in ("safetensors", "tp1-none", "tp1-rank0-none"):
        assert server.get(f"/api/models/{what}/revision/{revision}").status == 404, revision
    for name in SETS[what]:
        assert server.get(f"/{what}/resolve/main/{name}").status == 200
    tags = server.json(f"/v2/{what}/tags/list")["tags"]
    assert "safetensors" not in tags and not any(tag.startswith("tp") for tag in tags), tags


@pytest.mark.parametrize("what", WHOLE)
def test_names_that_are_whole(server, what):
    for name in WHOLE[what]:
        model = model_of(what, name)
        about = server.json(f"/models/{model}")
        if "optim_states" in name:
            assert [part["id"] for part in about["parts"]] == [name]
            continue
        assert base(name) in [c["id"] for c in about["checkpoints"]] or about["checkpoints"][0]["id"] == "safetensors"
        assert about["errors"] == []
    manifest = server.json(f"/models/{model_of(what, WHOLE[what][0])}/tensors")
    assert base(WHOLE[what][0]) == manifest["tensors"][0]["file"] and "incomplete" not in manifest


def test_a_whole_file_beside_parts_is_the_model(server):
    about = server.json("/models/beside")
    assert [c["id"] for c in about["checkpoints"]] == ["safetensors"] and about["errors"] == []
    assert [part["id"] for part in about["parts"]] == SETS["meta"]
    assert server.json("/models/beside/tensors")["tensors"][0]["shape"] == [8, 6]


def test_what_a_trainer_saves_beside_parts_is_not_the_model(server):
    about = server.json("/models/training")
    assert about["checkpoints"] == []
    assert "rng_state_0.pth" in [part["id"] for part in about["parts"]]
    assert server.get("/models/training/tensors").status == 404


def test_numbered_files_of_different_tensors_are_one_model(server):
    assert {t["name"] for t in server.json("/models/disjoint/tensors")["tensors"]} == {"w0", "w1"}


def test_parts_directly_in_the_served_directory(serve):
    write_set(serve.root, SETS["meta"])
    server = serve()
    for name in SETS["meta"]:
        about = server.json(f"/models/{name}")
        assert about["checkpoints"] == [] and [part["id"] for part in about["parts"]] == [name]
        assert server.get(f"/models/{name}/model.safetensors").status == 404


def test_what_comes_from_an_upstream_has_the_same_groups(serve, root, tmp_path):
    """Names alone are known of a model on its way. Once it is here, its groups are those of the upstream."""
    import shutil

    import harness
    for what in ("meta", "deepspeed", "megatron", "one-rank", "beside"):
        shutil.copytree(root / what, serve.root / "org" / what)
    zero = serve.root / "org/zero"
    for i in range(3):
        write(zero / f"model-{i:05}-of-00002.safetensors", {f"w{i}": FULL.clone()})
    write(serve.root / "org/tarred/best.tar", {"w": FULL.clone()})
    write(serve.root / "org/tarred/model.th", {"w": FULL.clone()})
    (serve.root / "org/tarred/config.json").write_text("{}")
    upstream = serve()
    ids = [model for model in upstream.ids() if model.startswith("org/")]
    assert {"org/meta", "org/megatron/mp_rank_00", "org/zero", "org/tarred"} <= set(ids)
    (tmp_path / "cache").mkdir()
    with harness.Server(tmp_path / "cache", "--upstream", f"http://127.0.0.1:{upstream.port}") as near:
        repos = {"/".join(model.split("/")[:2]) for model in ids}
        for repo in repos:
            near.get(f"/api/models/{repo}")
        near.wait_for(lambda: set(ids) <= set(near.ids()), "all models are here", timeout=60)
        for model in ids:
            here, there = near.json(f"/models/{model}"), upstream.json(f"/models/{model}")
            for member in ("checkpoints", "parts", "errors"):
                assert here.get(member) == there.get(member), (model, member)


# ---- what torch.distributed.checkpoint writes in safetensors files ------------------------------------------

WRITE = textwrap.dedent("""
    import gc, os, sys
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    import torch.multiprocessing as mp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def run(rank, size, folder, port, mapped):
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        dist.init_process_group("gloo", rank=rank, world_size=size)
        line, grid = init_device_mesh("cpu", (size,)), init_device_mesh("cpu", (2, size // 2))
        def full(*shape):
            return torch.arange(float(torch.Size(shape).numel())).reshape(shape)
        state = {
            "rows": distribute_tensor(full(10, 3), line, [Shard(0)]),
            "columns": distribute_tensor(full(3, 10), line, [Shard(1)]),
            "boxes": distribute_tensor(full(6, 8), grid, [Shard(0), Shard(1)]),
            "few": distribute_tensor(full(3), line, [Shard(0)]),
            "same": distribute_tensor(full(4, 2), line, [Replicate()]),
            "half": distribute_tensor(full(4, 4).bfloat16(), line, [Shard(0)]),
            "plain": full(5) + 1,
            "scalar": torch.tensor(7.0),
        }
        names = {name: 1 + i % 2 for i, name in enumerate(sorted(state))} if mapped == "mapped" else None
        writer = dcp.HuggingFaceStorageWriter(folder, fqn_to_index_mapping=names, save_distributed=True)
        dcp.save(state, storage_writer=writer)
        if rank == 0:
            whole = {name: value.full_tensor() if hasattr(value, "full_tensor") else value
                     for name, value in state.items()}
            torch.save(whole, folder + "/whole.tmp")
        else:
            for value in state.values():
                if hasattr(value, "full_tensor"):
                    value.full_tensor()
        dist.barrier()
        dist.destroy_process_group()

    if __name__ == "__main__":
        torch.set_num_threads(1)    # a pool of threads does not outlive a fork
        gc.freeze()                 # collections in the ranks leave the memory shared that they were forked with
        mp.start_processes(run, (int(sys.argv[2]), sys.argv[1], sys.argv[3], sys.argv[4]), nprocs=int(sys.argv[2]),
                           start_method="fork")
""")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """saved("plain") is a folder that four ranks wrote, and the whole tensors."""
    place = tmp_path_factory.mktemp("saved")
    (place / "write.py").write_text(WRITE)
    made = {}

    def get(mapped):
        folder = place / mapped
        if mapped not in made:
            folder.mkdir()
            command = [*warm_python.command(), place / "write.py", folder, "4", str(free_port()), mapped]
            subprocess.run(command, check=True)
            made[mapped] = torch.load(folder / "whole.tmp")
            (folder / "whole.tmp").unlink()
        return folder, made[mapped]
    return get


def bytes_of(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.dim() > 0 else tensor.numpy().tobytes()


@pytest.mark.parametrize("mapped", ["plain", "mapped"])
def test_boxes_of_ranks_are_joined(serve, saved, mapped):
    folder, whole = saved(mapped)
    assert len(list(folder.iterdir())) > 3
    shutil.copytree(folder, serve.root / "org/m")
    server = serve()
    about = server.json("/models/org/m")
    assert [c["id"] for c in about["checkpoints"]] == ["safetensors"] and about["errors"] == []
    manifest = server.json("/models/org/m/tensors")
    got = {t["name"]: t for t in manifest["tensors"]}
    assert sorted(got) == sorted(whole) and manifest["metadata"] == {"format": "pt"}
    for name, tensor in whole.items():
        assert got[name]["shape"] == list(tensor.shape), name
        assert server.get(got[name]["href"]).body == bytes_of(tensor), name
    assert len(got["boxes"]["pieces"]) == 4 and "pieces" not in got["plain"]
    for target in ("/models/org/m/model.safetensors", "/org/m/resolve/safetensors/model.safetensors"):
        joined = load(server.get(target).body)
        assert all(torch.equal(joined[name], tensor) for name, tensor in whole.items()), target
    files = {f["path"] for f in server.json("/api/models/org/m/tree/safetensors?recursive=true")}
    assert files == {"model.safetensors"}
    rank = load(server.get("/models/org/m/shards/fsdp/tp2/rank-1.safetensors").body)
    assert torch.equal(rank["rows"], whole["rows"].chunk(2)[1])


def test_boxes_that_lack_a_file_are_parts(serve, saved):
    folder, _ = saved("plain")
    names = sorted(path.name for path in folder.iterdir())
    shutil.copytree(folder, serve.root / "m", ignore=shutil.ignore_patterns(names[1]))
    server = serve()
    about = server.json("/models/m")
    assert about["checkpoints"] == [] and [part["id"] for part in about["parts"]] == names[:1] + names[2:]
    assert "do not fill it" in about["errors"][0]["message"]
    assert server.get("/models/m/model.safetensors").status == 404
    one = server.json(f"/models/m/tensors?checkpoint={names[2]}")
    assert "boxes" in one["incomplete"]["reason"]


def test_boxes_directly_in_the_served_directory(serve, saved):
    folder, whole = saved("mapped")
    shutil.copytree(folder, serve.root, dirs_exist_ok=True)
    server = serve()
    models = server.json("/models")["models"]
    assert len(models) == 1
    assert {t["name"] for t in server.json(f"/models/{models[0]['id']}/tensors")["tensors"]} == set(whole)


def test_a_whole_file_beside_boxes_is_the_default(serve, saved):
    folder, whole = saved("plain")
    shutil.copytree(folder, serve.root / "m")
    save_file({name: tensor.contiguous() for name, tensor in whole.items()}, serve.root / "m/model.safetensors")
    manifest = serve().json("/models/m/tensors")
    assert {t["file"] for t in manifest["tensors"]} == {"model.safetensors"}


@pytest.mark.parametrize("info, says", [
    ("{}", "no saved_offsets of"), ("[]", "an object of tensor names"), ('{"w": {}}', "no saved_offsets of"),
    ('{"w": {"saved_offsets": [0]}}', "list of 2 whole numbers"),
    ('{"w": {"saved_offsets": [0, 0, 0]}}', "list of 2 whole numbers"),
    ('{"w": {"saved_offsets": [-1, 0]}}', "not a whole number"),
    ('{"w": {"saved_offsets": [18446744073709551615, 0]}}', "list of 2 whole numbers"), ("{", "")])
def test_boxes_that_are_nonsense_are_refused(serve, info, says):
    (serve.root / "m").mkdir()
    save_file({"w": torch.ones(2, 2)}, serve.root / "m/model.safetensors", {"DCP_SHARDING_INFO": info})
    about = serve().json("/models/m")
    assert about["checkpoints"] == [] and says in about["errors"][0]["message"], about
    assert "DCP_SHARDING_INFO" in about["errors"][0]["message"]


def test_huge_boxes_are_bounded(serve):
    """Offsets that make a tensor of 2^63 bytes and more: the file is a part, and nothing is allocated for it."""
    for i, start in enumerate((1 << 40, (1 << 63) - 1, 5)):
        (serve.root / f"m{i}").mkdir()
        info = json.dumps({"w": {"saved_offsets": [start, start]}})
        save_file({"w": torch.ones(2, 2)}, serve.root / f"m{i}/a.safetensors", {"DCP_SHARDING_INFO": info})
    server = serve()
    for i in range(3):
        about = server.json(f"/models/m{i}")
        assert about["checkpoints"] == [] and [part["id"] for part in about["parts"]] == ["a.safetensors"]
