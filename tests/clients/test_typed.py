"""Typed clients of tensord.v1: connectrpc, grpcio and buf from PyPI and connect-node from npm call every method, by
every protocol that they have. What they get is REST's answer; errors have REST's message."""
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

import harness
from client import Worker, quiet_environment
from json_process import JsonProcess
from grpc_kit import grpc_address
from rpc_kit import Rpc, check_errors, check_streams, check_unary, wait_until_whole, write_models
from test_proxies import free_ports

PROTOS = harness.REPO / "api/proto"
@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("typed") / "root"
    write_models(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    # Through proxies, too, anybody may ask for a scan.
    with harness.Server(root, "--rescan-from", "any", "--grpc-listen", "127.0.0.1:0") as s:
        wait_until_whole(s)
        yield s


@pytest.fixture(scope="module")
def rpc(srv):
    return Rpc(srv)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The clients for Python, with the code that their plugins make of the schema."""
    gen = tmp_path_factory.mktemp("generated")
    plugin = harness.REPO / ".venv/bin/protoc-gen-connectrpc"
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}",
                    f"--plugin=protoc-gen-connectrpc={plugin}", f"--python_out={gen}",
                    f"--grpc_python_out={gen}", f"--connectrpc_out={gen}", "--connectrpc_opt=protobuf=google",
                    *sorted(map(str, PROTOS.rglob("*.proto")))], check=True)
    with Worker("calls_rpc", PYTHONPATH=str(gen)) as worker:
        yield worker


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    home = tmp_path_factory.mktemp("node")
    with JsonProcess([shutil.which("node"), harness.REPO / "tests/js/rpc.mjs"], quiet_environment(home), home) as one:
        yield one


class GrpcProxy:
    """A proxy by its file in docker/, which speaks HTTP/2 without TLS on `port`."""

    def __init__(self, file, replaced, command, server, folder):
        self.port, = free_ports(1)
        text = (harness.REPO / "docker" / file).read_text()
        for old, new in replaced(self.port, server.port):
            assert text.count(old) == 1, (file, old)
            text = text.replace(old, new)
        conf = folder / os.path.basename(file)
        conf.write_text(text)
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.proc = subprocess.Popen(command(conf), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self):
        self.proc.terminate()
        self.proc.wait(20)


def haproxy_edits(port, server):
    return [("    bind :8082 proto h2", f"    bind 127.0.0.1:{port} proto h2"),
            ("    bind :8443 ssl crt /etc/haproxy/site.pem alpn h2,http/1.1\n", ""),
            ("server t1 127.0.0.1:8080", f"server t1 127.0.0.1:{server}")]


def envoy_edits(port, server):
    return [("address: 0.0.0.0, port_value: 8082", f"address: 127.0.0.1, port_value: {port}"),
            ("address: 127.0.0.1, port_value: 8080", f"address: 127.0.0.1, port_value: {server}")]


PROXIES = {
    "haproxy": ("haproxy/haproxy.cfg", haproxy_edits, lambda conf: ["/usr/sbin/haproxy", "-db", "-f", conf]),
    "envoy": ("envoy/envoy.yaml", envoy_edits,
              lambda conf: [harness.REPO / ".venv/bin/envoy", "-c", conf, "--use-dynamic-base-id", "--concurrency", "1",
                            "-l", "warning"]),
}


@pytest.fixture(scope="module", params=[*PROXIES, "itself"])
def grpc_target(request, srv, python, tmp_path_factory):
    """The address of a port for gRPC: of a proxy, or of the server itself."""
    if request.param == "itself":
        yield grpc_address(srv)
        return
    p = GrpcProxy(*PROXIES[request.param], srv, tmp_path_factory.mktemp("proxy"))
    deadline = time.monotonic() + 30
    while python.grpc(target=f"127.0.0.1:{p.port}", service="ServerService", method="GetVersion",
                      request={}).get("code") == "unavailable":
        assert p.proc.poll() is None and time.monotonic() < deadline, p.log.read_text()
        time.sleep(0.1)
    yield f"127.0.0.1:{p.port}"
    p.stop()


def base_of(srv, protocol):
    return f"http://{grpc_address(srv)}" if protocol.lower() == "grpc" else f"http://127.0.0.1:{srv.port}"


def by_connectrpc(python, srv, protocol, codec, compress, ask):
    return python.connect(base=base_of(srv, protocol), protocol=protocol, codec=codec, compress=compress, **ask)


def by_node(node, srv, protocol, as_json, gzip, get, ask):
    return node.ask({"base": base_of(srv, protocol), "schema": f"http://127.0.0.1:{srv.port}", "protocol": protocol,
                     "http": "2" if protocol == "grpc" else "1.1", "json": as_json, "gzip": gzip, "get": get, **ask})


def by_buf(srv, protocol, ask):
    """Run buf curl. It prints an answer as JSON, the messages of a stream one after another, or an error."""
    url = f"{base_of(srv, protocol)}/tensord.v1.{ask['service']}/{ask['method']}"
    more = ["--http2-prior-knowledge"] if protocol == "grpc" else []
    got = subprocess.run([harness.REPO / ".venv/bin/buf", "curl", "--schema", PROTOS, "--protocol", protocol, *more,
                          "-d", json.dumps(ask["request"]), url], capture_output=True, text=True, timeout=60,
                         check=False)
    if got.returncode != 0:
        error = json.loads(got.stderr[got.stderr.index("{"):])
        return {**error, "details": sorted(detail["type"] for detail in error.get("details", []))}
    decoder, text, found = json.JSONDecoder(), got.stdout.strip(), []
    while text:
        one, end = decoder.raw_decode(text)
        found.append(one)
        text = text[end:].lstrip()
    return found if ask.get("streams") else found[0]


@pytest.fixture(params=[
    *(pytest.param((by_connectrpc, protocol, codec, compress), id=f"connectrpc-{protocol}-{codec}-{compress}".lower())
      for protocol in ("CONNECT", "GRPC_WEB", "GRPC") for codec in ("proto", "json") for compress in (True, False)),
    *(pytest.param((by_node, protocol, as_json, gzip, get), id=f"node-{protocol}-{as_json}-{gzip}-{get}".lower())
      for protocol, as_json, gzip, get in [("connect", False, False, False), ("connect", True, False, True),
                                           ("connect", False, True, True), ("connect", True, True, False),
                                           ("grpcweb", False, False, False), ("grpcweb", True, True, False),
                                           ("grpc", False, False, False), ("grpc", True, True, False)]),
    *(pytest.param((by_buf, protocol), id=f"buf-{protocol}") for protocol in ("connect", "grpcweb", "grpc"))])
def caller(request, srv, python, node):
    """Calls a method by one client."""
    how, *options = request.param
    clients = {by_connectrpc: [python], by_node: [node], by_buf: []}[how]
    return functools.partial(how, *clients, srv, *options)


def test_every_method(rpc, caller):
    check_unary(rpc, caller)
    check_streams(rpc, caller)
    check_errors(rpc, caller)


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])
def test_every_method_by_grpc(rpc, python, grpc_target, compress):
    call = functools.partial(python.call, "grpc")

    def ask(about):
        return call({"target": grpc_target, "compress": compress, **about})

    check_unary(rpc, ask)
    check_streams(rpc, ask)
    check_errors(rpc, ask)


WATCH = {"service": "ModelService", "method": "WatchModel", "request": {"model": "org/a", "readMask": "id"},
         "streams": True}


@pytest.mark.parametrize("client, protocol", [
    *((client, protocol) for client in ("connectrpc", "node") for protocol in ("connect", "grpcweb", "grpc")),
    ("grpcio", "grpc")])
def test_a_watch_ends(srv, python, node, client, protocol):
    """At the client's deadline, with its code; and when the client has enough. Then its place is free."""
    call = {"connectrpc": functools.partial(by_connectrpc, python, srv,
                                            {"grpcweb": "GRPC_WEB"}.get(protocol, protocol.upper()), "proto", False),
            "node": functools.partial(by_node, node, srv, protocol, False, False, False),
            "grpcio": lambda ask: python.grpc(target=grpc_address(srv), **ask)}[client]
    got = call({**WATCH, "timeout": 0.7})
    assert got["code"].replace("_", "").lower() == "deadlineexceeded", got
    assert [one["model"]["id"] for one in got["messages"]] == ["org/a"]
    srv.wait_for(lambda: srv.gauge("tensord_waiters") == 0, "the place is free after the deadline", timeout=5)
    assert [one["model"]["id"] for one in call({**WATCH, "most": 1})] == ["org/a"]
    srv.wait_for(lambda: srv.gauge("tensord_waiters") == 0, "the place is free after the client has gone", timeout=5)


# ---- the pages of docs/ -----------------------------------------------------------------------------------

CODE = {"sh": ["bash", "-e", "-u", "-o", "pipefail", "-c"], "python": [sys.executable, "-c"]}


def blocks(page, language):
    """Return the blocks of a page of docs/ in this language."""
    text = (harness.REPO / "docs" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A server with the model of the pages' examples."""
    root = tmp_path_factory.mktemp("demo") / "root"
    subprocess.run([sys.executable, harness.REPO / "scripts/demo_model.py", root / "demo"], check=True)
    harness.age(root)
    with harness.Server(root) as s:
        yield s


def run_code(folder, command, block, *servers):
    """Run a block in a folder that has the schema where a checkout has it, with these (address in the page, address of
    a server here). Return what it prints."""
    for address, here in servers:
        block = block.replace(address, here)
    if not (folder / "api").exists():
        (folder / "api").symlink_to(harness.REPO / "api")
    path = f"{harness.REPO}/.venv/bin:{os.environ['PATH']}"
    env = quiet_environment(folder, PATH=path, PYTHONPATH=str(folder / "gen"))
    got = subprocess.run([*command, block], cwd=folder, env=env, capture_output=True, text=True, timeout=120,
                         check=False)
    assert got.returncode == 0, f"{block}\n{got.stdout}\n{got.stderr}"
    return got.stdout


def check_listing(srv, printed, shape):
    """The lines that the examples print of the first layer's tensors, and of a model that is missing."""
    tensors = srv.json("/models/demo/tensors?match=*.layers.0.*")["tensors"]
    lines = printed.splitlines()
    assert lines[0] == f"demo {srv.json('/models/demo')['total_bytes']}"
    assert lines[1:-1] == [f"{t['name']} {t['dtype']} {shape(t['shape'])} {t['href']}" for t in tensors] and tensors
    return lines[-1]


def test_the_page_for_python(demo, tmp_path):
    """As it is printed, beside the Python client of the same name."""
    install, = blocks("api-python.md", "sh")
    run_code(tmp_path, CODE["sh"], install.partition("\n")[2])
    listing, by_grpc, reading = blocks("api-python.md", "python")
    here = ("127.0.0.1:8080", f"127.0.0.1:{demo.port}")
    last = check_listing(demo, run_code(tmp_path, CODE["python"], listing, here), str)
    assert last == "not_found " + demo.get("/models/no/such").json()["error"]["message"]
    proxy = GrpcProxy(*PROXIES["haproxy"], demo, tmp_path)
    try:
        printed = run_code(tmp_path, CODE["python"], by_grpc.replace("timeout=10", "timeout=10, wait_for_ready=True"),
                           ("127.0.0.1:8082", f"127.0.0.1:{proxy.port}"))
    finally:
        proxy.stop()
    rank = demo.json("/models/demo/shards/vllm/tp2/rank-0.json")
    assert printed == f"{rank['href']} {rank['nbytes']}\n"
    tensor = demo.json("/models/demo/tensors")["tensors"][0]
    assert run_code(tmp_path, CODE["python"], reading, here) == \
        f"{tensor['name']} {demo.get(tensor['href']).body[:16].hex()}\n"
    both = "import tensord.client, tensord.v1.model_service_pb2 as m; print(tensord.load_file, m.Model)"
    env = {**os.environ, "PYTHONPATH": f"{harness.REPO}/clients/python:{tmp_path}/gen"}
    subprocess.run([sys.executable, "-c", both], env=env, check=True, capture_output=True)


def test_the_page_for_typescript(demo, tmp_path):
    """As it is printed, with the packages of tests/js."""
    (tmp_path / "node_modules").symlink_to(harness.REPO / "tests/js/node_modules")
    install, = blocks("api-typescript.md", "sh")
    generate = install[install.index("mkdir"):]
    packages = re.findall(r"(@[a-z]+/[a-z-]+)", install)
    pinned = json.loads((harness.REPO / "tests/js/package.json").read_text())["dependencies"]
    assert all(f"{name}@{pinned[name]}" in install or f"{name}@" not in install for name in packages)
    run_code(tmp_path, CODE["sh"], generate)
    listing, _, without = blocks("api-typescript.md", "js")
    here = ("127.0.0.1:8080", f"127.0.0.1:{demo.port}")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    node = [shutil.which("node"), "--input-type=module", "-e"]
    last = check_listing(demo, run_code(tmp_path, node, listing, here), lambda shape: "x".join(map(str, shape)))
    assert last == "NotFound " + demo.get("/models/no/such").json()["error"]["message"]
    assert run_code(tmp_path, node, without, here) == demo.json("/version")["version"] + "\n"


def test_the_page_for_curl(demo, tmp_path):
    here = ("127.0.0.1:8080", f"127.0.0.1:{demo.port}")
    model, page, missing, by_buf = (run_code(tmp_path, CODE["sh"], block, here)
                                    for block in blocks("api-curl.md", "sh"))
    assert json.loads(model)["id"] == "demo" and set(json.loads(model)) == {"id", "totalBytes", "checkpoints"}
    assert [t["name"] for t in json.loads(page)["tensors"]] == \
        [t["name"] for t in demo.json("/models/demo/tensors?page_size=3")["tensors"]]
    assert json.loads(missing.partition("curl ended")[0])["code"] == "not_found" and missing.endswith(" with 22\n")
    rank, _, ready = by_buf.partition("\n}\n")
    assert json.loads(rank + "}")["href"] == demo.json("/models/demo/shards/vllm/tp2/rank-0.json")["href"]
    assert json.loads(ready)["ready"] is True
