"""Versions of a model by vLLM's own classes, into a model that stays in memory: by the backend `tensord` of its weight
transfer, and by its reload_weights."""
import hashlib
import json
import re
import shutil
import threading
import time
from pathlib import Path

import engines
import pytest
import torch
from conftest import bytes_of, url_of
from quantised_layouts import write_llama
from safetensors.torch import load, load_file, save_file

RUN = Path(__file__).with_name("vllm_refresh_run.py")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with engines.Engine(RUN, tmp_path_factory.mktemp("vllm")) as engine:
        yield engine.run


def name_of(number):
    return f"weight_v{number:06}"


def write_versions(root, architecture, count):
    for number in range(1, count + 1):
        engines.write_architecture(architecture, root / "run" / name_of(number), torch.bfloat16, seed=number)


def sent_of(server, number):
    """Return the bytes that the server sent of a version, lists of its tensors excepted."""
    name = name_of(number)
    return sum(bytes_of(server, text) for text in (f"/models/run/{name}/plans/", f"/models/run/{name}/tensors:read",
                                                   f"/boxes.bin?version={name}", f"/tensors:read?version={name}"))


def digests_of_rank(server, number, tp, rank):
    """Return the SHA-256 of each tensor of a rank's file."""
    answer = server.get(f"/models/run/{name_of(number)}/shards/vllm/tp{tp}/rank-{rank}.safetensors")
    assert answer.status == 200
    return {name: hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy()).hexdigest()
            for name, tensor in load(bytes(answer.body)).items()}


class Steps:
    """Steps of vllm_refresh_run.py, and the version that the model should have after each (None: it is not checked)."""

    def __init__(self, root):
        self.root, self.steps, self.wanted, self.errors = root, [], [1], [""]

    def then(self, wanted, step, *given, error=""):
        self.steps.append([step, *given])
        self.wanted.append(wanted)
        self.errors.append(error)
        return self

    def run(self, run, tp):
        """Run them, check each, and return what each rank said of its own steps."""
        numbers = sorted({number for number in self.wanted if number is not None})
        fresh = [["expect", str(self.root / "run" / name_of(number))] for number in numbers]
        ranks = run(self.root / "run" / name_of(1), "-", tp, json.dumps(self.steps + fresh))
        for rank, said in enumerate(ranks):
            assert all(one["error"] == "" for one in said[-len(fresh):]), said[-1]["error"]
            expected = {number: one["digests"] for number, one in zip(numbers, said[-len(fresh):], strict=True)}
            assert len({one["model.norm.weight"] for one in expected.values()}) == len(numbers)
            for step, wanted, error, one in zip([["start"], *self.steps], self.wanted, self.errors, said):
                what = f"rank {rank}, {step}: {one['error']}"
                assert re.search(error, one["error"]) if error else one["error"] == "", what
                assert one["stays"], what
                assert wanted is None or one["digests"] == expected[wanted], what
        return [said[:-len(fresh)] for said in ranks]


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "mixtral", "deepseek_v3", "gemma2", "gemma3"])
def test_parameters_get_the_bytes_of_a_version(serve, run, architecture, tp):
    """By the backend with all bytes first, with a prefetch, and parameter by parameter; by reload_weights with a path;
    and without one after the weights were lost."""
    write_versions(serve.root, architecture, 5)
    server = serve()
    url = url_of(server, "run")
    steps = Steps(serve.root)
    steps.then(1, "init", {"url": url}).then(2, "update", {"version": name_of(2)})
    steps.then(2, "update", {"version": name_of(3), "prefetch": True}).then(2, "wait")
    steps.then(3, "update", {"version": name_of(3)})
    steps.then(3, "init", {"url": url, "staging_bytes": 0}).then(4, "update", {"version": 4})
    steps.then(1, "load", {"url": f"{url}/{name_of(1)}"}).then(5, "reload", f"{url}?version={name_of(5)}")
    steps.then(None, "zero").then(5, "reload", None)
    ranks = steps.run(run, tp)
    for rank, said in enumerate(ranks):
        for number, one in ((2, said[2]), (5, said[-1])):
            file = digests_of_rank(server, number, tp, rank)
            for name, digest in one["digests"].items():
                if name in file:
                    assert digest == file[name], name
                elif not name.endswith((".W_UK_T", ".W_UV")):  # vLLM computes these
                    assert digest in file.values(), name  # it is there under another name of the same tensor
    parameters = sum(said[0]["bytes"] for said in ranks)
    for number, times in ((1, 1), (2, 1), (3, 1), (4, 1), (5, 2)):
        print(architecture, tp, name_of(number), sent_of(server, number) / times / parameters)
        assert 0.9 * times * parameters < sent_of(server, number) <= 1.05 * times * parameters


def change_elements(folder, before, seed, share=0.004):
    """Write a version whose tensors differ from those of another one in their first element and in that share of the
    others, by bits."""
    shutil.copytree(before, folder)
    generator = torch.Generator().manual_seed(seed)
    for path in folder.glob("*.safetensors"):
        tensors = load_file(path)
        for tensor in tensors.values():
            bits = tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()])
            bits[torch.rand(bits.shape, generator=generator) < share] ^= 1
            bits.view(-1)[0] ^= 1 << seed % 6
        save_file(tensors, path)


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("architecture", ["llama", "mixtral", "deepseek_v3", "gemma3", "fp8-blocks"])
def test_patches_bring_parameters_to_a_version(serve, run, architecture, tp):
    """Memory that is kept is brought from one version to the next by the elements that differ: forward, back, with a
    prefetch, after an error, and after the version before is gone."""
    root = serve.root / "run"
    if architecture == "fp8-blocks":
        write_llama(root / name_of(1), architecture, seed=1)
    else:
        write_versions(serve.root, architecture, 1)
    for number in (2, 3, 4, 5):
        change_elements(root / name_of(number), root / name_of(number - 1), number)
    server = serve()
    url = url_of(server, "run")
    steps = Steps(serve.root)
    steps.then(1, "init", {"url": url, "patches": True}).then(2, "update", {"version": 2})
    steps.then(3, "update", {"version": 3})
    steps.then(3, "update", {"version": 4, "prefetch": True}).then(3, "wait").then(4, "update", {"version": 4})
    steps.then(2, "update", {"version": 2})
    steps.then(2, "fail_read").then(2, "update", {"version": 3}, error="a read that fails|another rank")
    steps.then(3, "update", {"version": 3})
    steps.then(3, "init", {"url": url, "patches": False}).then(5, "update", {"version": 5})
    ranks = steps.run(run, tp)
    for rank, said in enumerate(ranks if architecture != "fp8-blocks" else []):
        file = digests_of_rank(server, 4, tp, rank)
        for name, digest in said[6]["digests"].items():
            assert name not in file or digest == file[name], name
    parameters = sum(said[0]["bytes"] for said in ranks)
    sent = {number: sent_of(server, number) for number in (2, 3, 4, 5)}
    print(architecture, tp, {number: count / parameters for number, count in sent.items()})
    assert sent[2] > 0.9 * parameters and sent[5] > 0.9 * parameters
    assert bytes_of(server, "format=patch") > 0
    assert sent[4] < 0.1 * parameters  # tensors of few elements, which are read whole


@pytest.mark.parametrize("tp", [1, 2])
def test_fp8_in_blocks(serve, run, tp):
    for number in (1, 2, 3):
        write_llama(serve.root / "run" / name_of(number), "fp8-blocks", seed=number)
    server = serve()
    url = url_of(server, "run")
    steps = Steps(serve.root)
    steps.then(1, "init", {"url": url}).then(2, "update", {"version": name_of(2)})
    steps.then(1, "load", {"url": f"{url}/{name_of(1)}"}).then(3, "reload", f"{url}/{name_of(3)}")
    ranks = steps.run(run, tp)
    parameters = sum(said[0]["bytes"] for said in ranks)
    assert max(sent_of(server, 2), sent_of(server, 3)) <= 1.05 * parameters


@pytest.mark.parametrize("tp", [1, 2])
def test_the_latest_version_of_a_family_and_of_a_cache(serve, run, tp):
    """By a number, by "latest", by the name of a ref; a prefetch of "latest" is used by an update that names it."""
    write_versions(serve.root, "llama", 3)
    cache = serve.root / "models--org--hub"
    for number, commit in ((2, "2" * 40), (1, "1" * 40)):
        shutil.copytree(serve.root / "run" / name_of(number), cache / "snapshots" / commit)
        (cache / "refs").mkdir(exist_ok=True)
        (cache / "refs" / f"v{number}").write_text(commit)
    (cache / "refs" / "main").write_text("1" * 40)
    server = serve()
    steps = Steps(serve.root)
    steps.then(1, "init", {"url": url_of(server, "run")}).then(3, "update", {"version": "latest"})
    steps.then(3, "finds", 2).then(3, "update", {"version": "latest"})
    steps.then(2, "update", {"version": 2}).then(1, "update", {"version": "1"})
    steps.then(1, "update", {"version": "latest", "prefetch": True}).then(1, "wait")
    steps.then(3, "update", {"version": name_of(3)})
    steps.then(3, "init", {"url": url_of(server, "org/hub")}).then(2, "update", {"version": "v2"})
    steps.then(1, "update", {"version": "main"}).then(2, "update", {"version": "latest"})
    steps.then(1, "update", {"version": "1" * 40})
    steps.then(1, "load", {"url": url_of(server, "run") + "?version=1"})
    steps.then(3, "reload", url_of(server, "run") + "?version=latest")
    ranks = steps.run(run, tp)
    assert sent_of(server, 3) <= 4.05 * sum(said[0]["bytes"] for said in ranks)


def test_both_ranks_take_one_version_while_others_appear(serve, run, tmp_path):
    """Versions are renamed into place and removed while two ranks update to the latest one again and again. An update
    fails, or all parameters of both ranks are of one version."""
    write_versions(serve.root, "llama", 1)
    write_versions(tmp_path, "llama", 12)
    server = serve()
    files = {1: [digests_of_rank(server, 1, 2, rank) for rank in range(2)]}

    def is_latest(number):
        return server.get("/models/run/versions").json()["latest"] == name_of(number)

    def train():
        while bytes_of(server, "version=latest") == 0:  # the ranks have not begun
            time.sleep(0.1)
        for number in range(2, 13):
            (tmp_path / "run" / name_of(number)).rename(serve.root / "run" / name_of(number))
            while not is_latest(number):
                time.sleep(0.02)
            files[number] = [digests_of_rank(server, number, 2, rank) for rank in range(2)]
            if number > 3:
                shutil.rmtree(serve.root / "run" / name_of(number - 2))

    trainer = threading.Thread(target=train, daemon=True)
    trainer.start()
    steps = [["init", {"url": url_of(server, "run")}]] + [["update", {"version": "latest"}]] * 80
    ranks = run(serve.root / "run" / name_of(1), "-", 2, json.dumps(steps))
    trainer.join(60)
    assert len(files) == 12
    seen = set()
    for step in zip(*ranks, strict=True):
        fitting = [number for number, both in files.items()
                   if all(one["digests"].items() <= file.items() for one, file in zip(step, both, strict=True))]
        assert fitting, [one["error"] for one in step]
        seen.update(fitting)
    assert len(seen) > 1
    print(sorted(seen), {one["error"] for said in ranks for one in said})


def test_little_room_reads_parts_together(serve, run):
    """Parts of the model are staged one after the other; few tensors are needed when their part has gone."""
    write_versions(serve.root, "llama", 3)
    server = serve()
    steps = Steps(serve.root)
    steps.then(1, "init", {"url": url_of(server, "run"), "staging_bytes": 300_000})
    steps.then(2, "update", {"version": name_of(2)})
    steps.then(2, "update", {"version": name_of(3), "prefetch": True}).then(3, "update", {"version": name_of(3)})
    ranks = steps.run(run, 2)
    for number in (2, 3):
        assert sent_of(server, number) <= 1.25 * sum(said[0]["bytes"] for said in ranks)


@pytest.mark.parametrize("tp", [1, 2])
def test_a_prefetched_version_needs_no_server(serve, run, tp):
    """Nothing is left to read in the pause, also for a version with other tensors than the one before."""
    write_versions(serve.root, "llama", 3)
    file = serve.root / "run" / name_of(3) / "model.safetensors"
    unused = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(16)}
    save_file({**load_file(file), **unused}, file, {"format": "pt"})
    steps = Steps(serve.root)
    steps.then(1, "init", {"url": url_of(serve(), "run")}).then(2, "update", {"version": name_of(2)})
    steps.then(2, "update", {"version": name_of(3), "prefetch": True}).then(2, "wait").then(2, "offline")
    steps.then(3, "update", {"version": name_of(3)})
    steps.then(3, "update", {"version": name_of(2)}, error="no request may be made")
    steps.run(run, tp)


def test_an_error_before_the_copy_changes_nothing(serve, run):
    """Each error is followed by an update that works."""
    write_versions(serve.root, "llama", 4)
    file = serve.root / "run" / name_of(7) / "model.safetensors"
    for number in (7, 8):
        engines.write_architecture("llama", serve.root / "run" / name_of(number), torch.bfloat16, seed=number)
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.down_proj.weight"]
    save_file(tensors, file, {"format": "pt"})
    file = serve.root / "run" / name_of(8) / "model.safetensors"
    save_file({**load_file(file), "model.norm.weight": torch.ones(64, dtype=torch.bfloat16)}, file, {"format": "pt"})
    (serve.root / "run" / name_of(9)).mkdir()
    (serve.root / "run" / name_of(9) / "config.json").write_text("{}")
    server = serve()
    url = url_of(server, "run")
    steps = Steps(serve.root)
    steps.then(1, "update", {"version": name_of(2)}, error="RuntimeError: .*no URL yet: /init_weight_transfer_engine")
    steps.then(1, "init", {"link": url}, error="ValueError: Invalid init_info")
    steps.then(1, "init", {"url": "ftp://host/run"}, error="AddressError: .*use http://, https://, tensord://")
    steps.then(1, "init", {"url": url_of(server, "")}, error="AddressError: no model is named")
    steps.then(1, "init", {"url": url, "staging_bytes": -1}, error="ValueError: staging_bytes is -1")
    steps.then(1, "init", {"url": url})
    for wrong in ("", None, True, 1.5, ["a"]):
        steps.then(1, "update", {"version": wrong}, error="ValueError: version is ")
    for wrong in ("../m", "a//b", ".", 6, "9&checkpoint=x", "v\n"):
        steps.then(1, "update", {"version": wrong}, error="NotFoundError: ")
    steps.then(1, "update", {}, error="ValueError: Invalid update_info")
    steps.then(1, "update", {"version": name_of(6)}, error="NotFoundError: ")
    steps.then(1, "update", {"version": name_of(6), "prefetch": True}, error="NotFoundError: ")
    steps.then(2, "update", {"version": name_of(2)})
    steps.then(2, "update", {"version": name_of(7)}, error="ValueError: .*no weights for .*layers.1.mlp.down_proj")
    steps.then(3, "update", {"version": name_of(3)})
    steps.then(3, "update", {"version": name_of(8)}, error="Error: ")
    steps.then(3, "update", {"version": name_of(9)}, error="Error: ")
    steps.then(3, "update", {"version": name_of(2), "prefetch": True})
    steps.then(4, "update", {"version": name_of(4)})
    steps.then(1, "load", {"url": f"{url}/{name_of(1)}"})
    for wrong in (6, 7, 8):
        steps.then(1, "reload", f"{url}/{name_of(wrong)}", error="Error: ")
    steps.then(2, "reload", f"{url}/{name_of(2)}")
    steps.run(run, 1)


def test_ranks_change_their_version_together(serve, run):
    """One rank's copy fails: the others have copied by then. They put back copies of what vLLM's own loader read, if
    there is room for them; they load the version before again if it came from the server."""
    write_versions(serve.root, "llama", 3)
    server = serve()
    url = url_of(server, "run")
    steps = Steps(serve.root)
    steps.then(1, "init", {"url": url})
    steps.then(1, "fail", 5).then(1, "update", {"version": name_of(2)}, error="OSError: a copy that fails")
    steps.then(1, "init", {"url": url, "staging_bytes": 500_000})
    steps.then(1, "fail", 5).then(None, "update", {"version": name_of(2)},
                                  error="a copy that fails; .*partly of version weight_v000002 of run: update again")
    steps.then(2, "update", {"version": name_of(2)})
    steps.then(2, "fail", 5).then(2, "update", {"version": name_of(3)}, error="OSError: a copy that fails")
    steps.then(3, "update", {"version": name_of(3)})
    steps.then(1, "load", {"url": f"{url}/{name_of(1)}"}).then(1, "init", {"url": url, "staging_bytes": 0})
    steps.then(1, "fail", 5).then(1, "update", {"version": name_of(2)}, error="OSError: a copy that fails")
    steps.then(3, "update", {"version": name_of(3)})
    steps.run(run, 2)


@pytest.mark.parametrize("tp", [1, 2])
def test_a_read_that_fails_on_one_rank_fails_on_all(serve, run, tp):
    """No parameter changes on any; a prefetch that fails is read again by the update."""
    write_versions(serve.root, "llama", 3)
    server = serve()
    url = url_of(server, "run")
    error = "OSError: a read that fails"
    steps = Steps(serve.root)
    steps.then(1, "init", {"url": url})
    steps.then(1, "fail_read").then(1, "update", {"version": name_of(2)}, error=error)
    steps.then(1, "fail_read").then(1, "update", {"version": name_of(2), "prefetch": True})
    steps.then(2, "update", {"version": name_of(2)})
    steps.then(1, "load", {"url": f"{url}/{name_of(1)}"})
    steps.then(1, "fail_read").then(1, "reload", f"{url}/{name_of(3)}", error=error)
    steps.then(3, "reload", f"{url}/{name_of(3)}")
    said = steps.run(run, tp)[-1]
    assert [one["error"] for one in said if one["error"]] == [error, error]


@pytest.mark.parametrize("version", ["0.24", "0.25"])
def test_older_vllm_is_refused(serve, run, version):
    """The base class of 0.24 takes three arguments; that of 0.25 wants a method for the trainer."""
    write_versions(serve.root, "llama", 1)
    said = run(serve.root / "run" / name_of(1), "-", 1, json.dumps([["as_older", version]]))[0]
    wanted = "ImportError: .*needs vLLM 0.33 or newer, and this is .*: update vLLM; or restart"
    assert re.search(wanted, said[1]["error"])
