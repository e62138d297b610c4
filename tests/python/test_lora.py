"""Adapters of LoRA for vLLM: copies on the disk, and vLLM's own registry of resolvers."""
import concurrent.futures
import hashlib
import http.server
import json
import os
import threading
from pathlib import Path

import engines
import harness
import pytest
import torch
from conftest import bytes_of, url_of
from safetensors.torch import load_file, save_file

import tensord
from tensord.engines import adapters

RUN = Path(__file__).with_name("vllm_lora_run.py")
BASE = "org/base"


def write_adapter(folder, value, base=BASE, **changes):
    """Write an adapter in PEFT's form: rank 2 for one projection."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"peft_type": "LORA", "base_model_name_or_path": base, "r": 2, "lora_alpha": 4,
              "target_modules": ["q_proj"], "bias": "none", **changes}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    prefix = "base_model.model.model.layers.0.self_attn.q_proj"
    save_file({f"{prefix}.lora_A.weight": torch.full((2, 128), float(value)),
               f"{prefix}.lora_B.weight": torch.full((128, 2), float(value))}, folder / "adapter_model.safetensors")


def value_of(folder):
    return next(iter(load_file(Path(folder) / "adapter_model.safetensors").values())).flatten()[0].item()


def copies_in(cache):
    """Return the folders with copies; everything else that was written is in the folder .state."""
    return sorted(path.name for path in cache.iterdir() if path.name != ".state") if cache.exists() else []


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def found(server, cache, name, base=BASE, prefix="lora"):
    return adapters.Adapters(url_of(server, prefix), str(cache)).find(name, base)


def test_an_adapter_is_copied_once(serve, cache):
    write_adapter(serve.root / "lora" / "a", 1)
    (serve.root / "lora" / "a" / "README.md").write_text("not needed")
    server = serve()
    folder = found(server, cache, "a")
    assert sorted(os.listdir(folder)) == ["adapter_config.json", "adapter_model.safetensors"]
    for name in os.listdir(folder):
        assert (Path(folder) / name).read_bytes() == (serve.root / "lora" / "a" / name).read_bytes()
    assert Path(folder).parent == cache and value_of(folder) == 1
    sent = bytes_of(server, "/files/")
    assert found(server, cache, "a") == folder  # another object, as another process has
    assert bytes_of(server, "/files/") == sent and copies_in(cache) == [Path(folder).name]


@pytest.mark.parametrize("hashed", [["adapter_config.json"], ["adapter_model.safetensors"],
                                    ["adapter_config.json", "adapter_model.safetensors"]])
def test_a_copy_is_known_when_files_are_hashed(serve, cache, monkeypatch, hashed):
    """A server learns the SHA-256 of one file after the other; the copy is still of what it has."""
    write_adapter(serve.root / "lora" / "a", 1)
    server = serve(hash_threads=0)
    folder = found(server, cache, "a")
    sent = bytes_of(server, "/files/")
    rows = adapters.resources.files_of

    def with_digests(*arguments):
        return [{**row, "sha256": hashlib.sha256((Path(folder) / row["path"]).read_bytes()).hexdigest()}
                if row["path"] in hashed else row for row in rows(*arguments)]

    monkeypatch.setattr(adapters.resources, "files_of", with_digests)
    assert found(server, cache, "a") == folder
    assert bytes_of(server, "/files/") == sent and copies_in(cache) == [Path(folder).name]


def test_new_content_has_another_path(serve, cache):
    write_adapter(serve.root / "lora" / "a", 1)
    server = serve()
    first = found(server, cache, "a")
    write_adapter(serve.root / "lora" / "a", 2)
    harness.age(serve.root)
    server.wait_for(lambda: found(server, cache, "a") != first, "the new adapter")
    assert value_of(found(server, cache, "a")) == 2 and value_of(first) == 1


def test_many_at_once_fetch_once(serve, cache):
    """Also before the server has hashed the files, and in processes: the lock is one of a file."""
    write_adapter(serve.root / "lora" / "a", 1)
    server = serve()
    one = adapters.Adapters(url_of(server, "lora"), str(cache))
    other = adapters.Adapters(url_of(server, "lora"), str(cache))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda number: (one, other)[number % 2].find("a", BASE), range(8)))
    assert len(folders) == 1
    files = sum(path.stat().st_size for path in (serve.root / "lora" / "a").iterdir())
    assert bytes_of(server, "/files/") == files


def test_a_tag_that_becomes_a_digest_is_no_change(cache, adapter_server):
    """The server's tags are not the digests at first: the copy stays current when they become known."""
    adapter_server.hashed = False
    folder = found(adapter_server, cache, "a")
    fetched = adapter_server.count("GET", "/files/")
    assert found(adapter_server, cache, "a") == folder
    adapter_server.hashed = True
    assert found(adapter_server, cache, "a") == folder
    assert adapter_server.count("GET", "/files/") == fetched > 0


@pytest.mark.parametrize("name", [
    "", "/", "/a", "a/", "a//b", "..", "../a", "a/../b", "x/..", ".", "./a", "a?", "a?checkpoint=x", "a#b", "#", "@",
    "a@", "@1", "a@1/2", "a@..", "a@1@2", "a@1?x", "a\\b", "a\0", "a\n", "\ud800", "a" * 501, "a@" + "1" * 500,
])
# shows: security.md python-paths
def test_names_that_no_adapter_has(cache, adapter_server, name):
    assert found(adapter_server, cache, name) is None
    assert adapter_server.seen == [] and not cache.exists()


def test_what_is_no_adapter_for_this_base(serve, cache):
    for name in ("other", "kind", "list", "nothing", "weightless", "bare"):
        write_adapter(serve.root / "lora" / name, 1, base="org/other" if name == "other" else BASE,
                      peft_type="IA3" if name == "kind" else "LORA")
    (serve.root / "lora" / "list" / "adapter_config.json").write_text("[1]")
    (serve.root / "lora" / "nothing" / "adapter_config.json").write_text("no JSON")
    (serve.root / "lora" / "weightless" / "adapter_model.safetensors").rename(serve.root / "lora" / "weightless" / "x")
    (serve.root / "lora" / "bare" / "adapter_config.json").unlink()
    server = serve()
    for name in ("other", "kind", "list", "nothing", "weightless", "bare", "unknown", "unknown@1", "other/deeper"):
        assert found(server, cache, name) is None, name
    assert copies_in(cache) == []
    assert bytes_of(server, "adapter_model") == 0
    assert value_of(found(server, cache, "other", "org/other")) == 1


def test_an_engine_whose_model_is_a_url(serve, cache):
    write_adapter(serve.root / "lora" / "a", 1)
    server = serve()
    assert found(server, cache, "a", url_of(server, BASE)) is not None
    assert found(server, cache, "a", url_of(server, "org/other")) is None


class AdapterServer(http.server.ThreadingHTTPServer):
    """A server of one adapter at any id, whose answers a test changes."""

    daemon_threads = True

    def __init__(self, folder):
        self.files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.seen, self.hashed, self.config, self.listed, self.version = [], True, None, {}, None
        super().__init__(("127.0.0.1", 0), Handler)
        self.port = self.server_port

    def count(self, method, text):
        return sum(line.startswith(method) and text in line for line in self.seen)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append(self.requestline)
        path = self.path.partition("?")[0]
        name = path.rpartition("/")[2]
        if path.endswith("/versions"):
            self.answer({"error": {"code": 404, "status": "NOT_FOUND", "message": "no"}}, 404)
        elif "/files/" in path:
            self.answer(self.server.files[name], tag=self.tag(name))
        else:
            self.answer({"files": [{"path": name, "size": len(data), **({"sha256": self.tag(name)} if
                                    self.server.hashed else {}), **self.server.listed}
                                   for name, data in self.server.files.items()]})

    do_HEAD = do_GET

    def tag(self, name):
        return hashlib.sha256(self.server.files[name]).hexdigest() if self.server.hashed else f"1-{name}"

    def answer(self, body, status=200, tag="x"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        found = self.headers.get("Range")
        begin, end = 0, len(data)
        if found:
            begin, last = found[len("bytes="):].split("-")
            begin, end, status = int(begin), int(last) + 1, 206
        self.send_response(status)
        self.send_header("Content-Length", str(end - begin))
        self.send_header("ETag", f'"{tag}"')
        if found:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[begin:end])

    def log_message(self, *_):
        pass


@pytest.fixture
def adapter_server(tmp_path):
    write_adapter(tmp_path / "adapter", 1)
    server = AdapterServer(tmp_path / "adapter")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_configurations_that_are_hostile(cache, adapter_server):
    for config in (b"", b"{", b"[" * 500_000, b"1" * 900_000, b"\xff\xfe", b"null", b'{"peft_type": "LORA"}',
                   json.dumps({"peft_type": "LORA", "base_model_name_or_path": {"a": 1}}).encode(),
                   json.dumps({"peft_type": ["LORA"], "base_model_name_or_path": BASE}).encode(), b" " * 2**21):
        adapter_server.files["adapter_config.json"] = config
        assert found(adapter_server, cache, "a") is None, config[:40]
    assert copies_in(cache) == [] and adapter_server.count("GET", "adapter_model") == 0


@pytest.mark.parametrize("path", ["../adapter_config.json", "/adapter_config.json", "a//b", "", None, "a\0b"])
# shows: security.md python-paths
def test_files_that_lead_elsewhere(cache, adapter_server, path):
    adapter_server.listed = {"path": path}
    with pytest.raises(tensord.ProtocolError, match="leads out of its model"):
        found(adapter_server, cache, "a")
    assert copies_in(cache) == []


@pytest.mark.parametrize("size", [-1, 2**40, 2**62])
def test_sizes_that_no_adapter_has(cache, adapter_server, size):
    adapter_server.listed = {"size": size}
    assert found(adapter_server, cache, "a") is None
    assert copies_in(cache) == []


def test_files_that_are_not_what_was_listed(cache, adapter_server):
    """Another size, or other bytes than the listed digest: an error, and nothing appears in the cache."""
    for listed in ({"size": 7}, {"sha256": "0" * 64}):
        adapter_server.listed = listed
        with pytest.raises(tensord.ChangedError, match="changed on the server each time"):
            found(adapter_server, cache, "a")
        assert copies_in(cache) == []
        assert [path.name for path in (cache / ".state").iterdir() if not path.name.endswith(".lock")] == []


def test_a_server_that_is_away_is_no_missing_adapter(serve, cache, monkeypatch):
    write_adapter(serve.root / "lora" / "a", 1)
    server = serve()
    monkeypatch.setattr(adapters, "RETRY_SECONDS", 0.5)
    server.stop()
    with pytest.raises(tensord.ConnectError):
        found(server, cache, "a")


@pytest.mark.parametrize("url", ["tensord://h/datasets/d", "tensord://h/m?checkpoint=c", "h", "tensord://"])
def test_urls_that_name_no_prefix(url, tmp_path):
    with pytest.raises(tensord.AddressError):
        adapters.Adapters(url, str(tmp_path))


# ---- vLLM's own classes


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with engines.Engine(RUN, tmp_path_factory.mktemp("vllm-lora")) as engine:
        yield engine.run


def resolved(run, url, names, **variables):
    way = json.dumps([[BASE, name] for name in names])
    return run("-", "-", 1, way, TENSORD_LORA_URL=url, **variables)[0]


def test_vllm_resolves_adapters(serve, run, cache):
    """vLLM's registry has the resolver, and its own reader of adapters reads what a request names."""
    write_adapter(serve.root / "lora" / "a", 1)
    write_adapter(serve.root / "lora" / "org" / "b", 2)
    server = serve()
    names = ["a", "a", "org/b", "c", "../lora/a", ""]
    said = resolved(run, url_of(server, "lora"), names, TENSORD_LORA_CACHE=str(cache))
    assert said["resolvers"] == ["tensord"]
    first, again, other, *none = said["requests"]
    assert first == again and none == [None] * 3
    assert first["name"] == "a" and first["id"] > 0 and first["rank"] == 2 and first["alpha"] == 4
    assert value_of(first["path"]) == 1 and value_of(other["path"]) == 2 and other["name"] == "org/b"
    assert first["modules"] == ["model.layers.0.self_attn.q_proj"]


def test_the_resolver_needs_its_variable(serve, run, tmp_path):
    """Without TENSORD_LORA_URL nothing is registered; without TENSORD_LORA_CACHE copies are below the home folder."""
    write_adapter(serve.root / "lora" / "a", 1)
    server = serve()
    assert resolved(run, None, [])["resolvers"] == []
    said = resolved(run, url_of(server, "lora"), ["a"], HOME=str(tmp_path), TENSORD_LORA_CACHE=None)
    assert Path(said["requests"][0]["path"]).parent == tmp_path / ".cache" / "tensord" / "lora"
