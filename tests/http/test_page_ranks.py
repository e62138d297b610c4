"""The page of a model's ranks: sizes against the files that the server sends, and each line that the page gives to
copy, run as it stands where its tool is installed."""
import hashlib
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from harness import REPO, Server, age, enc, s3_port, tensor, tensord_binary, write_by_hand
from test_tokens import new

HOSTILE = "a' $(touch x)\"<b>&\u202e\u00e9"
COMMANDS = {"curl", "hf", "boto3", "python", "oras", "pull"}


class Page(html.parser.HTMLParser):
    """Collects the elements of a page as (tag, attributes), and the texts of those with an id or a data-command."""

    def __init__(self, text):
        super().__init__()
        self.found, self.texts, self.open = [], {}, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.found.append((tag, attrs))
        if tag in ("p", "pre"):
            self.open = [attrs.get("data-command") or attrs.get("id")]
            self.texts[self.open[0]] = ""

    def handle_endtag(self, tag):
        if tag in ("p", "pre"):
            self.open = []

    def handle_data(self, data):
        for name in self.open:
            self.texts[name] += data

    def having(self, name):
        return [attrs for _, attrs in self.found if name in attrs]

    def commands(self):
        return {attrs["data-command"]: self.texts[attrs["data-command"]] for attrs in self.having("data-command")}


def page_of(s, model, query="", headers=()):
    r = s.get(f"/models/{enc(model, '/')}/view/ranks{query}", [*headers, ("Accept", "text/html")], timeout=60)
    assert r.status == 200 and r.get("Content-Type") == "text/html; charset=utf-8", r
    return Page(r.body.decode())


def write_llama(folder):
    """A Llama of one layer with four heads of keys and queries."""
    hidden, vocab, layer = 64, 96, "model.layers.0."
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (vocab, hidden)}
    for name, shape in (("self_attn.q_proj", (64, 64)), ("self_attn.k_proj", (64, 64)), ("self_attn.v_proj", (64, 64)),
                        ("self_attn.o_proj", (64, 64)), ("mlp.gate_proj", (128, 64)), ("mlp.up_proj", (128, 64)),
                        ("mlp.down_proj", (64, 128)), ("input_layernorm", (64,)), ("post_attention_layernorm", (64,))):
        shapes[f"{layer}{name}.weight"] = shape
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    safetensors.numpy.save_file({n: rng.standard_normal(s).astype(np.float16) for n, s in shapes.items()},
                                folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": 128,
         "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 1, "vocab_size": vocab}))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("ranks") / "root"
    write_llama(root / "org/llama")
    write_llama(root / HOSTILE)
    write_llama(root / "two/parts/first")
    write_by_hand(root / "two/parts/second/model.safetensors", [tensor("w", "F32", [4, 2])])
    write_by_hand(root / "plain/model.safetensors", [tensor("w", "F32", [5, 3]), tensor("b", "F32", [5])])
    write_by_hand(root / "plain/other.safetensors", [tensor("w", "F32", [7, 3])])
    write_by_hand(root / "single.safetensors", [tensor("w", "F32", [4, 3])])
    age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with Server(root, "--s3-listen", "127.0.0.1:0", hash_threads=1) as s:
        s.wait_hashed()
        yield s


@pytest.mark.parametrize("engine", ["vllm", "vllm@0.13", "fsdp", "none"])
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_bytes_of_each_rank(srv, engine, tp):
    """They are the lengths of the files that the links lead to, and those of the JSON descriptions."""
    page = page_of(srv, "org/llama", f"?engine={engine}&tp={tp}")
    rows = page.having("data-rank")
    files = [attrs["href"] for attrs in page.having("data-link") if attrs["data-link"] == "file"]
    described = [attrs["href"] for attrs in page.having("data-link") if attrs["data-link"] == "json"]
    assert [int(row["data-rank"]) for row in rows] == list(range(tp)) and len(files) == len(described) == tp
    bars = page.having("data-rank-bar")
    assert [int(bar["data-rank-bar"]) for bar in bars] == list(range(tp))
    sizes = [len(srv.get(href).body) for href in files]
    assert [int(row["data-bytes"]) for row in rows] == sizes
    assert [srv.json(href)["nbytes"] for href in described] == sizes
    assert [int(bar["width"]) for bar in bars] == [1000 * size // max(sizes) for size in sizes]
    assert b"style=" not in srv.get("/models/org/llama/view/ranks").body


def test_the_form(srv):
    page = page_of(srv, "org/llama", "?engine=vllm%400.13&tp=4")
    selected = [attrs["value"] for tag, attrs in page.found if tag == "option" and "selected" in attrs]
    assert selected == ["vllm@0.13"]
    assert [attrs["value"] for tag, attrs in page.found if tag == "input" and attrs["id"] == "tp"] == ["4"]
    for query in ("", "?engine=&tp="):                  # as a form without values sends it
        assert len(page_of(srv, "org/llama", query).having("data-rank")) == 2
    known = [attrs["value"] for tag, attrs in page.found if tag == "option"]
    r = srv.get("/models/org/llama/view/ranks?engine=x")
    assert r.status == 400 and r.json()["error"]["details"]["known"] == known


@pytest.mark.parametrize("query", ["?tp=0", "?tp=4097", "?tp=x", "?tp=-1", "?engine=x", "?a=1"])
def test_bad_values(srv, query):
    assert srv.get("/models/org/llama/view/ranks" + query).status == 400
    page = srv.get("/models/org/llama/view/ranks" + query, {"Accept": "text/html"})
    assert page.status == 400 and b'role="alert"' in page.body


def test_a_refusal_has_its_reason(srv):
    for model, query, tp in (("org/llama", "?engine=vllm&tp=3", 3), ("plain", "?engine=vllm&tp=2", 2)):
        refused = srv.get(f"/models/{model}/shards/vllm/tp{tp}/rank-0.safetensors")
        page = page_of(srv, model, query)
        assert refused.status == 422 and page.texts["error"] == refused.json()["error"]["message"]
        assert not page.having("data-rank") and not page.commands()
    assert srv.get("/models/none/view/ranks").status == 404


def test_the_most_ranks(srv):
    page = page_of(srv, "plain", "?engine=fsdp&tp=4096")
    assert len(page.having("data-rank")) == 4096
    for rank in (0, 4, 5, 4095):
        length = srv.head(f"/models/plain/shards/fsdp/tp4096/rank-{rank}.safetensors").length
        assert int(page.having("data-rank")[rank]["data-bytes"]) == length


def test_too_much_at_once_is_refused(tmp_path, start):
    names = [f"w{i:05d}" for i in range(1000)]
    write_by_hand(tmp_path / "root/m/model.safetensors", [tensor(n, "U8", [2]) for n in names])
    age(tmp_path / "root")
    s = start(tmp_path / "root")
    assert "4096 ranks is too much at once" in page_of(s, "m", "?engine=fsdp&tp=4096").texts["error"]
    assert len(page_of(s, "m", "?engine=fsdp&tp=8").having("data-rank")) == 8


# ------------------------------------------------------------------------------------------------ the lines

def run(line, folder, **env):
    """Run a line in a shell, or as a program of Python, with `tensord`, `hf` and the client at hand."""
    bin = folder.parent / f"bin-{folder.name}"
    bin.mkdir()
    folder.mkdir()
    (bin / "tensord").symlink_to(tensord_binary())
    path = os.pathsep.join([str(bin), str(Path(sys.executable).parent), os.environ["PATH"]])
    is_python = line.startswith("import ")
    command = [sys.executable, "-c", line] if is_python else ["bash", "-euo", "pipefail", "-c", line]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PATH": path, "HOME": str(bin), "HF_HOME": str(bin / "hf"),
                               "PYTHONPATH": str(REPO / "clients/python"), **env})
    assert done.returncode == 0, (line, done)
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*")
            if p.is_file() and not re.match(r"rank-0/\.(cache|tensord)", str(p.relative_to(folder)))}


def rank_0(s, model, engine="vllm", query=""):
    r = s.get(f"/models/{enc(model, '/')}/shards/{enc(engine)}/tp2/rank-0.safetensors{query}")
    assert r.status == 200, r
    return r.body


@pytest.mark.parametrize("model", ["org/llama", HOSTILE, "two/parts/first", "single.safetensors"])
@pytest.mark.parametrize("engine", ["vllm@0.13", "fsdp"])
def test_every_line_fetches_rank_0(srv, tmp_path, model, engine):
    if engine != "fsdp" and model == "single.safetensors":
        engine = "none"
    want = rank_0(srv, model, engine)
    lines = page_of(srv, model, f"?engine={enc(engine)}&tp=2").commands()
    # hf takes no such name; pull and oras take the files of all models of a repository
    lacks = {HOSTILE: {"hf", "pull"}, "two/parts/first": {"pull", "oras"}}.get(model, set())
    assert set(lines) == COMMANDS - lacks
    where = {"vllm@0.13": "model-rank-0-part-0.safetensors"}.get(engine, "model.safetensors")
    folder = "first/" if model == "two/parts/first" else ""
    assert run(lines["curl"], tmp_path / "curl") == {"rank-0.safetensors": want}
    if "hf" in lines:
        got = run(lines["hf"], tmp_path / "hf")
        assert got[f"rank-0/{folder}{where}"] == want, list(got)
    if "pull" in lines:
        got = run(lines["pull"], tmp_path / "pull")
        assert want in got.values(), list(got)
    if "boto3" in lines:
        assert run(lines["boto3"], tmp_path / "boto3") == {"rank-0.safetensors": want}
    program = lines["python"] + textwrap.dedent("""
        import hashlib
        print({n: (list(t.shape), hashlib.sha256(t.numpy().tobytes()).hexdigest()) for n, t in weights.items()})
        open("out", "w").write(repr({n: hashlib.sha256(t.numpy().tobytes()).hexdigest() for n, t in weights.items()}))
        """)
    sums = {n: hashlib.sha256(x.tobytes()).hexdigest() for n, x in safetensors.numpy.load(want).items()}
    assert eval(run(program, tmp_path / "python")["out"]) == sums
    if "oras" not in lines:
        return
    if shutil.which("oras"):
        assert want in run(lines["oras"], tmp_path / "oras").values()
    else:       # what it asks for first
        name, tag = re.fullmatch(r"oras pull --plain-http 127\.0\.0\.1:\d+/(\S+):(\S+) -o rank-0",
                                 lines["oras"]).groups()
        manifest = srv.get(f"/v2/{name}/manifests/{tag}", {"Accept": "application/vnd.oci.image.manifest.v1+json"})
        digests = [layer["digest"] for layer in json.loads(manifest.body)["layers"]]
        assert "sha256:" + hashlib.sha256(want).hexdigest() in digests


def test_another_checkpoint(srv, tmp_path):
    ids = [c["id"] for c in srv.json("/models/plain")["checkpoints"]]
    assert len(ids) == 2
    page = page_of(srv, "plain", f"?engine=fsdp&tp=2&checkpoint={ids[1]}")
    want = rank_0(srv, "plain", "fsdp", f"?checkpoint={ids[1]}")
    assert want != rank_0(srv, "plain", "fsdp")
    lines = page.commands()
    assert set(lines) == {"curl", "python"} and int(page.having("data-rank")[0]["data-bytes"]) == len(want)
    assert run(lines["curl"], tmp_path / "curl") == {"rank-0.safetensors": want}
    assert f"checkpoint={ids[1]}" in lines["python"]


def test_lines_name_what_the_client_addressed(srv):
    headers = [("Host", "weights.example:8443"), ("X-Forwarded-Proto", "https")]
    lines = page_of(srv, "org/llama", "?engine=vllm&tp=2", headers).commands()
    assert "https://weights.example:8443/models/org/llama/" in lines["curl"]
    assert f"https://weights.example:{s3_port(srv)}" in lines["boto3"] and "--plain-http" not in lines["oras"]


def test_without_the_port_for_s3_and_without_digests(root, start):
    lines = page_of(start(root), "org/llama", "?engine=vllm&tp=2").commands()
    assert set(lines) == COMMANDS - {"boto3", "oras"}


def test_lines_with_tokens(root, tmp_path):
    """They read the token from the environment; a model that the token may not see is as one that does not exist."""
    tokens = tmp_path / "tokens.json"
    some = new(tokens, "some", "org/llama")
    with Server(root, "--tokens", tokens, hash_threads=0) as s:
        headers = [("Authorization", f"Bearer {some}")]
        lines = page_of(s, "org/llama", "?engine=fsdp&tp=2", headers).commands()
        want = s.get("/models/org/llama/shards/fsdp/tp2/rank-0.safetensors", headers).body
        assert some not in "".join(lines.values())
        for name in ("curl", "hf", "pull"):
            assert want in run(lines[name], tmp_path / name, TENSORD_TOKEN=some).values()
        hidden, absent = (s.get(f"/models/{name}/view/ranks", headers) for name in ("plain", "absen"))
        assert hidden.status == absent.status == 404 and hidden.body.replace(b"plain", b"absen") == absent.body
