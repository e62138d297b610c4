"""The recipes of docs/training.md, run as they are printed, without the trainers and engines that they are for."""
import asyncio
import importlib.util
import json
import re
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import harness
import numpy as np
import pytest
import torch
from client import digests
from safetensors.torch import load_file, save_file
from test_recipes import command, run

sys.path += [str(harness.REPO / "clients/python"), str(harness.REPO / "tests/interop")]

import deltas
import tensord

PAGE = (harness.REPO / "docs/training.md").read_text()
SECTIONS = {text.partition("\n")[0]: re.findall(r"^```(sh|python)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
            for text in ("\n## The server" + PAGE.partition("\n")[2]).split("\n## ")[1:]}
RESET = "/reset_prefix_cache?reset_running_requests=true"
FOLLOW = harness.REPO / "docker/kubernetes/overlays/training/follow.py"


def blocks(heading, language):
    return [text for found, text in SECTIONS[heading] if found == language]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A line that puts this build's program on the PATH."""
    return f"export PATH={harness.tensord_binary().parent}:$PATH\n"


@pytest.fixture
def srv(tmp_path):
    (tmp_path / "models").mkdir()
    with harness.Server(tmp_path / "models", "--publish", "local", "--s3-listen", "127.0.0.1:0", settle="0",
                        rescan="0") as s:
        yield s


def versions(srv, model):
    return [row["version"] for row in srv.json(f"/models/{model}/versions")["versions"]]


def weights(seed):
    """Return tensors as a small model has them."""
    made = torch.Generator().manual_seed(seed)
    return {"model.embed.weight": torch.randn(32, 16, generator=made).bfloat16(),
            "model.norm.weight": torch.randn(16, generator=made)}


def push(srv, folder, model, version, path):
    run(srv, folder.parent, f"{path}tensord push {folder.name} http://127.0.0.1:8080 {model} --revision {version}")


def test_the_server_of_the_page_is_that_of_these_tests(path, tmp_path):
    """The program takes the page's options."""
    (made, *others), = [blocks("The server", "sh")]
    assert not others and "--publish local" in made and "--s3-listen 127.0.0.1:8081" in made
    out = subprocess.run(["bash", "-ec", path + made.rstrip() + " --print-config"], cwd=tmp_path, capture_output=True,
                         text=True, check=True).stdout
    assert json.loads(out)["publish"] == "local"


def test_follow_a_trainer(srv, path, tmp_path):
    """The loop waits for the first version, and prints each latest one once, but no delta."""
    loop, = blocks("Follow a trainer", "sh")
    first, second = weights(1), weights(2)
    for name, tensors in (("full-1", first), ("full-2", second)):
        (tmp_path / name).mkdir()
        save_file(tensors, tmp_path / name / "model.safetensors")
    arrays = {"w": np.arange(64, dtype=np.float32)}
    deltas.write_delta(tmp_path / "delta", arrays, deltas.step(arrays, 1), "000002", "000001")
    folder = tmp_path / "folder"
    folder.mkdir()
    with subprocess.Popen(**command(srv, folder, loop), stdout=subprocess.PIPE) as follower:
        try:
            srv.wait_for(lambda: srv.gauge("tensord_waiters") == 1, "the loop waits for the first version")
            push(srv, tmp_path / "full-1", "run", "weight_v000001", path)
            assert follower.stdout.readline() == "latest: weight_v000001\n"
            push(srv, tmp_path / "delta", "run", "weight_v000002", path)
            push(srv, tmp_path / "full-2", "run", "weight_v000003", path)
            assert follower.stdout.readline() == "latest: weight_v000003\n"
        finally:
            follower.kill()


def loaded(name, code, monkeypatch):
    """Return the module of a recipe, importable by its name."""
    module = types.ModuleType(name)
    exec(compile(code, name, "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_hooks_of_slime(srv, path, tmp_path, monkeypatch, capfd):
    """The trainer's hook publishes by rank 0 alone. The engines' hook, called by three ranks at once, makes the
    trainer's directories by one pull each, and `tensord apply` applies them."""
    code, = blocks("slime", "python")
    hooks = loaded("weight_hooks", code.replace("127.0.0.1:8080", f"127.0.0.1:{srv.port}"), monkeypatch)
    monkeypatch.setenv("PATH", str(harness.tensord_binary().parent), prepend=":")
    sync, host = tmp_path / "sync", tmp_path / "host"
    states = [deltas.tensors()]
    deltas.write_full(sync / "weight_v000001", states[0])
    for number in (2, 3):
        states.append(deltas.step(states[-1], number))
        deltas.write_delta(sync / f"weight_v{number:06d}", *states[-2:], f"{number:06d}", f"{number - 1:06d}")
    for rank in (1, 0):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        hooks.publish_version(None, str(sync), [])
        for folder in sorted(sync.iterdir()):
            hooks.publish_version(None, str(folder), [])
        if rank == 1:
            assert srv.get("/models/slime-1/versions").status == 404
    names = [folder.name for folder in sorted(sync.iterdir())]
    assert versions(srv, "slime-1") == names

    with ThreadPoolExecutor(3) as ranks:
        list(ranks.map(lambda _: hooks.pull_versions(str(host), 2), range(3)))
    assert sorted(p.name for p in host.iterdir()) == [".lock", *names[:2]]
    said = "".join(capfd.readouterr())
    assert [said.count(f", in {host}/{name};") for name in names] == [1, 1, 0], said
    hooks.pull_versions(str(host), 3)
    for name in names:
        assert digests(host / name) == digests(sync / name)
    run(srv, host, f"{path}tensord apply {' '.join(names)} -o full")
    found = load_file(host / "full/model-00001-of-00002.safetensors") | load_file(
        host / "full/model-00002-of-00002.safetensors")
    for name, array in states[-1].items():
        assert found[name].reshape(-1).view(torch.uint8).numpy().tobytes() == deltas.raw(array).tobytes()


def test_exports_of_skyrl(srv, path, tmp_path):
    exported = tmp_path / "exports/global_step_10/policy"
    exported.mkdir(parents=True)
    save_file(weights(1), exported / "model.safetensors")
    block, = blocks("SkyRL", "sh")
    run(srv, tmp_path, path + block)
    assert versions(srv, "org/skyrl-full") == ["step-10"]


class Vllm:
    """Stands for vLLM's HTTP server: records requests, and refuses paths as often as `refuse` says, by 500. A refused
    reset of the prefix cache is a 200, as by vLLM 0.33."""

    def __init__(self):
        self.requests, self.refuse, self.arrived = [], {}, threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                refused, reset = outer.refuse.get(self.path, 0) > 0, self.path.startswith("/reset_prefix_cache")
                answer = json.dumps({"success": not refused} if reset else {"message": ""}).encode()
                outer.refuse[self.path] = outer.refuse.get(self.path, 0) - 1
                with outer.arrived:
                    outer.requests.append((self.path, body))
                    outer.arrived.notify_all()
                self.send_response(500 if refused and not reset else 200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def resumed(self, times):
        """Wait until generation was resumed so often, and return the requests."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: [p for p, _ in self.requests].count("/resume") >= times, 60), \
                self.requests
            return list(self.requests)


def update_to(version):
    return [("/pause?mode=keep", {}), ("/start_weight_update", {}),
            ("/update_weights", {"update_info": {"version": version}}),
            ("/finish_weight_update", {"weight_version": version}), (RESET, {}), ("/resume", {})]


def started(url):
    return [("/init_weight_transfer_engine", {"init_info": {"url": url}}), ("/finish_weight_update", {})]


def test_vllm_is_kept_at_the_latest_version(srv):
    """follow.py begins with the version that is there, and sends vLLM each later one; after an error it begins again,
    and vLLM is resumed only by an update that worked."""
    url = f"tensord://127.0.0.1:{srv.port}/run"
    tensord.save_model(weights(1), f"{url}@step-1")
    with Vllm() as vllm:
        vllm.refuse = {"/finish_weight_update": 1}      # as vLLM does without an update
        env = {"PYTHONPATH": str(harness.REPO / "clients/python"), "PATH": "/usr/bin:/bin"}
        with subprocess.Popen([sys.executable, FOLLOW, url, vllm.url], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as follower:
            try:
                assert vllm.resumed(1) == started(url) + update_to("step-1")
                assert follower.stdout.readline() == "vLLM has step-1\n"
                tensord.save_model(weights(2), f"{url}@step-2")
                assert vllm.resumed(2)[8:] == update_to("step-2")
                assert follower.stdout.readline() == "vLLM has step-2\n"
                vllm.refuse = {"/update_weights": 1}
                tensord.save_model(weights(3), f"{url}@step-3")
                assert vllm.resumed(3)[14:] == update_to("step-3")[:3] + started(url) + update_to("step-3")
                assert "500" in follower.stderr.readline()
                vllm.refuse = {RESET: 1}
                tensord.save_model(weights(4), f"{url}@step-4")
                assert vllm.resumed(4)[25:] == update_to("step-4")[:5] + started(url) + update_to("step-4")
            finally:
                follower.kill()


def test_transfer_of_trl(srv, monkeypatch):
    """Has what TRL calls, publishes what it is given, and numbers versions after those that are there."""
    spec = importlib.util.spec_from_file_location("follow", FOLLOW)
    follow = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(follow)
    monkeypatch.setitem(sys.modules, "follow", follow)
    code, = blocks("TRL", "python")
    module = loaded("trl_transfer", code, monkeypatch)
    url = f"tensord://127.0.0.1:{srv.port}/trl-1"
    with Vllm() as vllm:
        for number in (1, 2):
            transfer = module.TensordTransfer(url, vllm.url, {"model_type": "llama"})
            transfer.init_weight_transfer()
            transfer.pause()
            transfer.send_weights(iter(weights(number).items()))
            transfer.resume()
            transfer.destroy()
        version = ["weight_v000001", "weight_v000002"]
        assert vllm.requests == [request for v in version for request in started(url) + update_to(v)]
    assert versions(srv, "trl-1") == version
    for number, name in enumerate(version, 1):
        found = tensord.load_file(f"{url}?version={name}")
        assert all(torch.equal(found[key], tensor) for key, tensor in weights(number).items())


def test_engine_of_verl(srv, monkeypatch):
    """An actor of two ranks and two rollouts, called as verl's CheckpointEngineManager calls them: the rollouts wait
    for the version of this sync, also if an earlier one is there."""
    registry = {}
    verl = types.ModuleType("verl.checkpoint_engine")
    verl.CheckpointEngine = object
    verl.CheckpointEngineRegistry = types.SimpleNamespace(
        register=lambda name: lambda cls: registry.setdefault(name, cls))
    monkeypatch.setitem(sys.modules, "verl", types.ModuleType("verl"))
    monkeypatch.setitem(sys.modules, "verl.checkpoint_engine", verl)
    code, = blocks("verl", "python")
    loaded("tensord_engine", code, monkeypatch)
    options = {"bucket_size": 1 << 20, "url": f"tensord://127.0.0.1:{srv.port}/verl-1", "device": "cpu"}
    actors = [registry["tensord"](is_master=rank == 0, **options) for rank in range(2)]
    rollouts = [registry["tensord"](**options) for _ in range(2)]

    async def received(engine):
        return {name: tensor async for name, tensor in engine.receive_weights(global_steps=1)}

    async def sync(number):
        metadata = [engine.prepare() for engine in actors + rollouts]
        for engines, arguments in zip((actors, rollouts), registry["tensord"].build_topology(2, 2, metadata)):
            for rank, engine in enumerate(engines):
                engine.init_process_group(**{key: values[rank] for key, values in arguments.items()})
        reading = [asyncio.ensure_future(received(engine)) for engine in rollouts]
        await asyncio.sleep(0.7)        # the rollouts find no such version yet
        for engine in actors:
            left = iter(weights(number).items())
            await engine.send_weights(left, global_steps=1)
            assert next(left, None) is None
        for found in await asyncio.gather(*reading):
            assert found.keys() == weights(number).keys()
            assert all(torch.equal(found[key], tensor) for key, tensor in weights(number).items())
        for engine in actors + rollouts:
            engine.finalize()

    for number in (1, 2):
        asyncio.run(sync(number))
    assert versions(srv, "verl-1") == ["weight_v000001", "weight_v000002"]


def test_files_that_stay_the_same(srv, tmp_path):
    """The files of the version before stay as they are, and the linked tensor is not one of those that changed."""
    block, = blocks("Files that stay the same", "sh")
    index = {"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors",
                                            "b": "model-00002-of-00002.safetensors"}}
    old, new = tmp_path / "models/frozen/step-1", tmp_path / "step-2"
    for folder, value in ((old, 1.0), (new, 2.0)):
        folder.mkdir(parents=True)
        save_file({"b": torch.full((8,), value)}, folder / "model-00002-of-00002.safetensors")
    save_file({"a": torch.ones(8)}, old / "model-00001-of-00002.safetensors")
    (old / "model.safetensors.index.json").write_text(json.dumps(index))
    srv.post("/rescan", b"")
    srv.wait_for(lambda: srv.get("/models/frozen/step-1/tensors").status == 200, "the first version is there")
    before = [file.stat().st_ctime_ns for file in sorted(old.iterdir())]
    run(srv, tmp_path, block)
    srv.post("/rescan", b"")
    srv.wait_for(lambda: versions(srv, "frozen") == ["step-1", "step-2"], "the second version is there")
    found = srv.json("/models/frozen/changes?since=step-1")
    assert ([row["name"] for row in found["changed"]], found["same"]) == (["b"], 1)
    assert [file.stat().st_ctime_ns for file in sorted(old.iterdir())] == before


def test_removal_and_rank_files_of_a_version(srv, path, tmp_path):
    demo = tmp_path / "demo"
    subprocess.run([sys.executable, harness.REPO / "scripts/demo_model.py", demo], check=True)
    for number in (1, 2):
        (demo / "step.txt").write_text(str(number))
        push(srv, demo, "run", f"weight_v{number:06d}", path)
    block, = blocks("Rank files of a version", "sh")
    run(srv, tmp_path, block)
    folder = tmp_path / "run-weight_v000002"
    assert digests(folder)["config.json"] == digests(demo)["config.json"]
    for rank in range(2):
        found = load_file(folder / f"model-rank-{rank}-part-0.safetensors")
        assert found["model.layers.0.self_attn.attn._k_scale"] == 1.0       # a name of vLLM 0.33, not of 0.13
    removal, = blocks("Remove old versions", "sh")
    run(srv, tmp_path, removal)
    assert [v for v in versions(srv, "run") if v.startswith("weight")] == ["weight_v000002"]


def test_compile_caches(srv, path, tmp_path):
    """A folder comes back as it was, below a path that is not there yet; without one, the job continues."""
    tokens, before, after = blocks("Compile caches", "sh")
    run(srv, tmp_path, path + tokens)
    assert {t["name"] for t in json.loads((tmp_path / "tokens.json").read_text())["tokens"]} == {
        "cache-writer", "cache-reader"}
    cache = tmp_path / "vllm-cache"
    key = f"{path}key=0123456789abcdef\n"
    run(srv, tmp_path, key + before)
    assert not cache.exists()
    for name in ("torch_compile_cache/0a1b2c3d4e/rank_0_0/cache_key_factors.json",
                 "torch_compile_cache/torch_aot_compile/ff/rank_0_0/model",
                 "torch_compile_cache/0a1b2c3d4e/rank_0_0/inductor_cache/ab/cab.py"):
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_text(name)
    run(srv, tmp_path, f"export VLLM_CACHE_ROOT={cache}\n{key}{after}")
    was = digests(cache)
    cache.rename(tmp_path / "elsewhere")
    run(srv, tmp_path, key + before)
    assert digests(cache) == was and len(was) == 3
    assert srv.get("/models/caches/0123456789abcdef").status == 404


def test_no_block_is_passed_over():
    """Every block of shell and of Python is run by a test above."""
    assert {name: len(found) for name, found in SECTIONS.items() if found} == {
        "The server": 1, "Follow a trainer": 1, "slime": 1, "SkyRL": 1, "verl": 1, "TRL": 1,
        "Files that stay the same": 1, "Remove old versions": 1, "Rank files of a version": 1, "Compile caches": 3}


