"""Pages of other origins and other sites in Chromium: @huggingface/hub, @huggingface/gguf, wllama, Netron and
connect-web read models there by CORS, and nothing that such a page sends changes the server, whatever password the
browser keeps."""
import functools
import http.server
import json
import re
import threading
from pathlib import Path

import netron
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import harness
import models
import rpc_kit
from harness import age, tensor, write_by_hand
from signing import TokensFile

# The browsers' builds of the packages, and the modules that they import.
PACKAGES = harness.REPO / "tests/js/node_modules"
MODULES = {"@huggingface/hub": "dist/browser/index.mjs", "@huggingface/gguf": "dist/browser/index.mjs",
           "@huggingface/tasks": "dist/esm/index.js", "@huggingface/blake3-jit": "dist/esm/index.js",
           "@huggingface/xetchunk-wasm": "dist/esm/index.js", "gearhash-jit": "dist/esm/index.js",
           "@wllama/wllama": "esm/index.js", "@connectrpc/connect": "dist/esm/index.js",
           "@connectrpc/connect/protocol": "../dist/esm/protocol/index.js",
           "@connectrpc/connect/protocol-connect": "../dist/esm/protocol-connect/index.js",
           "@connectrpc/connect/protocol-grpc-web": "../dist/esm/protocol-grpc-web/index.js",
           "@connectrpc/connect-web": "dist/esm/index.js", "@bufbuild/protobuf": "dist/esm/index.js",
           "@bufbuild/protobuf/codegenv2": "../dist/esm/codegenv2/index.js",
           "@bufbuild/protobuf/wire": "../dist/esm/wire/index.js",
           "@bufbuild/protobuf/wkt": "../dist/esm/wkt/index.js"}
VIEWER = f"""<!DOCTYPE html><html lang="en"><title>viewer</title>
<script type="importmap">{json.dumps({"imports": {name: f"/{name}/{path}" for name, path in MODULES.items()}})}</script>
<script type="module">
import * as hub from "@huggingface/hub";
import {{ gguf }} from "@huggingface/gguf";
import {{ Wllama }} from "@wllama/wllama";
import * as protobuf from "@bufbuild/protobuf";
import {{ FileDescriptorSetSchema }} from "@bufbuild/protobuf/wkt";
import {{ Code, ConnectError, createClient }} from "@connectrpc/connect";
import {{ createConnectTransport, createGrpcWebTransport }} from "@connectrpc/connect-web";
const connect = {{ Code, ConnectError, createClient, createConnectTransport, createGrpcWebTransport }};
Object.assign(globalThis, {{ hub, gguf, Wllama, protobuf, FileDescriptorSetSchema, connect }});
</script>"""
# Netron's build for browsers is in its package for Python. Without these two fields of its page it is a build from its
# sources, which sends no telemetry and does not ask to be updated when the package is old.
NETRON = Path(netron.__file__).parent
NETRON_FIELDS = re.compile(r'<meta name="(version|date)" content="[^"]*">\n')
# A host that a browser takes for another site than 127.0.0.1, and does not trust as it trusts this machine.
ELSEWHERE = "tensord.test"


class Viewer(http.server.SimpleHTTPRequestHandler):
    """Another web server: the viewer's page, Netron below /netron/, and the packages."""

    protocol_version = "HTTP/1.1"   # hundreds of modules come by a few connections
    extensions_map = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".png": "image/png",
                      ".wasm": "application/wasm", "": "application/octet-stream"}

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/":
            self.send_page(VIEWER)
        elif path == "/netron/":
            self.send_page(NETRON_FIELDS.sub("", (NETRON / "index.html").read_text()))
        else:
            super().do_GET()

    def send_page(self, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "consent=1")     # Netron asks for it before it opens anything
        self.end_headers()
        self.wfile.write(body)

    def translate_path(self, path):
        name = path.split("?")[0].removeprefix("/netron/")
        return str(NETRON / name) if path.startswith("/netron/") and "/" not in name else super().translate_path(path)

    def log_message(self, *args):
        pass


class ViewerServer(http.server.ThreadingHTTPServer):
    request_queue_size = 128    # with 5, Linux drops connections of a browser on a busy machine


@pytest.fixture(scope="module")
def viewer():
    """The port of the other web server."""
    server = ViewerServer(("127.0.0.1", 0), functools.partial(Viewer, directory=str(PACKAGES)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return TokensFile(tmp_path_factory.mktemp("tokens") / "tokens.json").add("w", rights=("read", "write"))


@pytest.fixture(scope="module")
def listed(root, viewer, tokens):
    """A server with tokens whose list has the viewer, by both of its names."""
    origins = [f"http://127.0.0.1:{viewer}", f"http://{ELSEWHERE}:{viewer}"]
    with harness.Server(root, "--cors-origin", ",".join(origins), "--tokens", tokens, hash_threads=0) as s:
        yield s


# The package takes only tokens of the Hub itself as accessToken, so its option fetch adds the token.
READ = """async ([hubUrl, token]) => {
    const repo = "org/gguf", path = "model.gguf", headers = { Authorization: `Bearer ${token}` };
    const add = (url, init = {}) => {
        const all = new Headers(init.headers);
        all.set("Authorization", headers.Authorization);
        return fetch(url, { ...init, headers: all });
    };
    const files = [];
    for await (const file of hub.listFiles({ repo, hubUrl, fetch: add })) files.push([file.path, file.size]);
    const info = await hub.fileDownloadInfo({ repo, path, hubUrl, fetch: add });
    const blob = await hub.downloadFile({ repo, path, hubUrl, fetch: add });
    const bytes = [...new Uint8Array(await blob.slice(0, 8).arrayBuffer())];
    const parts = [];
    for (const url of [`${hubUrl}/${repo}/resolve/main/${path}`, `${hubUrl}/models/${repo}/files/${path}?cb=1`]) {
        const { metadata, tensorInfos } = await gguf(url, { additionalFetchHeaders: headers });
        parts.push([metadata["general.architecture"], tensorInfos.map(t => t.name).sort()]);
    }
    const whole = await fetch(`${hubUrl}/models/${repo}/files/${path}`, { headers });
    const etag = whole.headers.get("ETag");
    const again = await fetch(whole.url, { headers: { ...headers, "If-None-Match": etag }, cache: "no-store" });
    return { files, info: [info.size, info.etag], size: blob.size, bytes, parts, etag, again: again.status };
}"""


@pytest.mark.parametrize("host", ["127.0.0.1", ELSEWHERE])
def test_viewers_read(browser, viewer, listed, root, tokens, host):
    """From another port of this machine, and from another site: lists, ranges, conditions, with a token."""
    file = root / models.GGUF / "model.gguf"
    base = f"http://127.0.0.1:{listed.port}"
    page = browser.visit(f"http://{host}:{viewer}/")
    try:
        page.wait("() => globalThis.gguf !== undefined")
        got = page.evaluate(READ, [base, tokens.text("w")])
    finally:
        page.close()
    size = file.stat().st_size
    assert ["model.gguf", size] in got["files"] and got["info"][0] == got["size"] == size
    assert bytes(got["bytes"]) == file.read_bytes()[:8] and got["etag"] and got["again"] == 304
    tensors = listed.json(f"/models/{models.GGUF}/tensors", tokens.bearer("w"))["tensors"]
    names = sorted(t["name"] for t in tensors)
    assert got["parts"] == [["llama", names]] * 2


# Calls a method by connect-web, as tests/js/rpc.mjs does by connect-node.
CALL = """async ([baseUrl, make, options, { service, method, request, timeout }]) => {
    const { Code, ConnectError, createClient } = connect;
    const { createFileRegistry, fromBinary, fromJson, toJson } = protobuf;
    try {
        const set = new Uint8Array(await (await fetch(`${baseUrl}/tensord.v1.binpb`)).arrayBuffer());
        const found = createFileRegistry(fromBinary(FileDescriptorSetSchema, set)).getService(`tensord.v1.${service}`);
        const about = found.methods.find(one => one.name === method);
        const client = createClient(found, connect[make]({ baseUrl, ...options }));
        const answer = client[about.localName](fromJson(about.input, request), { timeoutMs: timeout });
        if (about.methodKind === "unary") return toJson(about.output, await answer);
        const all = [];
        for await (const one of answer) all.push(toJson(about.output, one));
        return all;
    } catch (error) {
        const e = ConnectError.from(error);
        return { code: Code[e.code], message: e.rawMessage, details: e.details.map(detail => detail.type).sort() };
    }
}"""


@pytest.fixture(scope="module")
def typed(viewer, tmp_path_factory):
    """A server whose list has the viewer, with what typed clients are asked."""
    root = tmp_path_factory.mktemp("typed") / "root"
    rpc_kit.write_models(root)
    origins = [f"http://127.0.0.1:{viewer}", f"http://{ELSEWHERE}:{viewer}"]
    with harness.Server(root, "--cors-origin", ",".join(origins), "--rescan-from", "any") as s:
        rpc_kit.wait_until_whole(s)
        yield rpc_kit.Rpc(s)


@pytest.mark.parametrize("make, options", [
    ("createConnectTransport", {}), ("createConnectTransport", {"useBinaryFormat": True}),
    ("createConnectTransport", {"useHttpGet": True}), ("createGrpcWebTransport", {}),
    ("createGrpcWebTransport", {"useBinaryFormat": False})],
    ids=["connect", "connect-proto", "connect-get", "grpc-web", "grpc-web-json"])
@pytest.mark.parametrize("host", ["127.0.0.1", ELSEWHERE])
def test_connect_web_calls(browser, viewer, typed, host, make, options):
    """Every method, from another port of this machine and from another site, by what the package offers; its default
    deadline sends a field of its own, which a preflight must allow."""
    page = browser.visit(f"http://{host}:{viewer}/")
    try:
        page.wait("() => globalThis.connect !== undefined")

        def call(about):
            base = f"http://127.0.0.1:{typed.srv.port}"
            return page.evaluate(CALL, [base, make, options, {**about, "timeout": 30000}])

        rpc_kit.check_unary(typed, call, left_out=["Rescan"])
        rpc_kit.check_streams(typed, call)
        rpc_kit.check_errors(typed, call)
        got = call({"service": "ServerService", "method": "Rescan", "request": {}})
        assert got["code"] == "PermissionDenied", got
    finally:
        page.close()


TINY = "org/tiny"


@pytest.fixture(scope="module")
def root_of_opened(tmp_path_factory):
    """One model, with files of four formats that Netron draws."""
    root = tmp_path_factory.mktemp("opened") / "root"
    folder = root / TINY
    models.write_alphabet(folder / "alphabet.gguf")
    write_by_hand(folder / "model.safetensors", [tensor("encoder.layer.0.weight", "F32", [4, 6]),
                                                 tensor("encoder.layer.0.bias", "BF16", [4])])
    factor = helper.make_tensor("B", TensorProto.FLOAT, [2, 2], [1.0, 2.0, 3.0, 4.0])
    given, product = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in ("given", "product"))
    node = helper.make_node("MatMul", ["given", "B"], ["product"])
    onnx.save(helper.make_model(helper.make_graph([node], "graph", [given], [product], [factor])),
              folder / "graph.onnx")
    torch.save({"decoder.weight": torch.arange(6.0).reshape(2, 3)}, folder / "state.pt")
    age(root)
    return root


@pytest.fixture(scope="module")
def opened(root_of_opened):
    """A server that every origin may read."""
    with harness.Server(root_of_opened, "--cors-origin", "*", hash_threads=0) as s:
        yield s


@pytest.mark.parametrize("file, drawn", [
    ("model.safetensors", ["Module", "float32[4,6]weight", "bfloat16[4]bias"]),
    ("alphabet.gguf", ["EMBEDDING", "MULTI_HEAD_ATTENTION", "float32[32,32]attn_q.weight", "float32[32,285]weight"]),
    ("graph.onnx", ["given", "MatMul", "float32[2,2]B", "product"]),
    ("state.pt", ["dict", "float32[2,3]decoder.weight"])], ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("at", ["models/org/tiny/files", "org/tiny/resolve/main"])
@pytest.mark.parametrize("host", ["127.0.0.1", ELSEWHERE])
def test_netron_draws(browser, viewer, opened, host, at, file, drawn):
    """Netron's page at ?url= has the nodes and tensors of the file, and its console no complaint."""
    base = f"http://127.0.0.1:{opened.port}"
    page = browser.visit(f"http://{host}:{viewer}/netron/?url={base}/{at}/{file}")
    try:
        page.wait("() => /default|alert|message/.test(document.body.className)")
        texts = [text.split("\u3008")[0] for text in page.all("#target text")]
        assert [text for text in drawn if text not in texts] == [], page.evaluate("() => document.body.innerText")
        report = page.report()
        asked = [r["url"].split("?cb=") for r in report["requests"] if r["url"].startswith(base)]
        assert [url for url, _ in asked] == [f"{base}/{at}/{file}"]
        assert [report[kind] for kind in ("console", "errors", "failed", "refused")] == [[]] * 4
    finally:
        page.close()


# wllama keeps the file between visits, with the length and the tag that the server said.
SPEAK = """async ([url]) => {
    const quiet = { debug() {}, log() {}, warn() {}, error() {} };
    const wllama = new Wllama({ default: "/@wllama/wllama/esm/wasm/wllama.wasm" }, { logger: quiet });
    const steps = [];
    await wllama.loadModelFromUrl(url, { n_ctx: 256, n_threads: 1, n_gpu_layers: 0,
                                         progressCallback: ({ loaded, total }) => steps.push([loaded, total]) });
    const { meta, hparams } = wllama.getModelMetadata();
    const { choices } = await wllama.createCompletion({ prompt: "ab", max_tokens: 4, temperature: 0 });
    const kept = await wllama.cacheManager.list();
    await wllama.exit();
    return { name: meta["general.name"], vocabulary: hparams.nVocab, said: choices[0].text, last: steps.at(-1),
             kept: kept.map(({ size, metadata: m }) => [size, m.originalURL, m.originalSize, m.etag]) };
}"""


@pytest.mark.parametrize("at", ["models/org/tiny/files", "org/tiny/resolve/main"])
def test_wllama_runs(browser, viewer, opened, root_of_opened, at):
    """llama.cpp in a page of another port fetches the model by HEAD and GET, keeps it, and runs it. It needs the store
    for files that browsers give to trusted origins alone, so the page is not of the other host."""
    url = f"http://127.0.0.1:{opened.port}/{at}/alphabet.gguf"
    page = browser.visit(f"http://127.0.0.1:{viewer}/")
    try:
        page.wait("() => globalThis.Wllama !== undefined")
        got = page.evaluate(SPEAK, [url])
        asked = [r["method"] for r in page.report()["requests"] if r["url"] == url]
    finally:
        page.close()
    size = (root_of_opened / TINY / "alphabet.gguf").stat().st_size
    tag = re.sub("[^0-9A-Za-z]", "", opened.head(f"/{at}/alphabet.gguf").etag)
    assert got == {"name": "The alphabet", "vocabulary": 285, "said": "cdef", "last": [size, size],
                   "kept": [[size, url, size, tag]]}
    assert sorted(asked) == ["GET", "HEAD"]


@pytest.mark.parametrize("args", [(), ("--cors-origin", "https://viewer.example")], ids=["off", "another list"])
# shows: security.md client-cors
def test_others_read_nothing(browser, viewer, root, args):
    with harness.Server(root, *args, hash_threads=0) as s:
        page = browser.visit(f"http://127.0.0.1:{viewer}/")
        try:
            said = page.evaluate("""url => fetch(url).then(r => r.text(), e => String(e))""",
                                 f"http://127.0.0.1:{s.port}/models")
        finally:
            page.close()
        assert said == "TypeError: Failed to fetch"
        assert s.get("/models").status == 200


SEND = """async ([base, path]) => {
    const mode = location.origin === base ? "cors" : "no-cors";
    const r = await fetch(base + path, { method: "POST", body: "{}", mode, credentials: "include" });
    return [r.type, r.status];
}"""


@pytest.mark.parametrize("host", ["127.0.0.1", ELSEWHERE])
# shows: security.md client-cross-site
def test_other_sites_change_nothing(browser, viewer, tokens, tmp_path, host):
    """The browser has the server's password, and sends it with the requests of every page. 127.0.0.1 it trusts, so that
    it sends Sec-Fetch-Site there; to the other name, over plain HTTP, it sends Origin alone."""
    (tmp_path / "root").mkdir()
    args = ["--tokens", tokens, "--publish", "any", "--rescan-from", "any"]
    with harness.Server(tmp_path / "root", *args) as s:
        base, others = f"http://{host}:{s.port}", [f"http://{h}:{viewer}" for h in ("127.0.0.1", ELSEWHERE)]
        page = browser.visit(f"{base}/", user=("any", tokens.text("w")))
        try:
            assert page.evaluate(SEND, [base, "/rescan"]) == ["basic", 200]
            for other in others:
                page.act("goto", f"{other}/")
                assert page.evaluate("() => location.origin") == other
                for path in ("/rescan", "/models/org/m/commits", "/api/repos/create", "/v2/org/m/blobs/uploads/"):
                    assert page.evaluate(SEND, [base, path]) == ["opaque", 0], path
                page.act("setContent", f'<form method=POST action="{base}/rescan"><button>go</button></form>')
                page.go("click", "button")
                assert page.evaluate("() => document.body.textContent").count("another site") >= 1
        finally:
            page.close()
        lines = [line for line in s.whole_log().splitlines() if 'method="POST"' in line]
        assert [sum(f"status={code}" in line for line in lines) for code in (200, 403)] == [1, 10], lines
        assert not any((tmp_path / "root").rglob("m*")), "nothing was published"


def test_a_browser_that_knows_the_password_reads_all(browser, listed, tokens, viewer):
    """It is asked once, for the page, and sends the password with all else of this server, but not for a page of
    another origin: that has to bring a token."""
    base = f"http://127.0.0.1:{listed.port}"
    page = browser.visit(f"{base}/", user=("any", tokens.text("w")))
    try:
        for path in ("/models", f"/models/{models.GGUF}/files/model.gguf", f"/{models.GGUF}/resolve/main/model.gguf",
                     "/api/models", "/v2/_catalog"):
            assert page.evaluate("url => fetch(url).then(r => r.status)", path) == 200, path
        page.act("goto", f"http://127.0.0.1:{viewer}/")
        assert page.evaluate("url => fetch(url).then(r => r.status)", f"{base}/models") == 401
        with_credentials = "url => fetch(url, { credentials: 'include' }).then(r => r.status, e => String(e))"
        assert page.evaluate(with_credentials, f"{base}/models") == "TypeError: Failed to fetch"
    finally:
        page.close()
