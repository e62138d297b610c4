"""The page of a model, beside the JSON of the same facts, the files themselves, and the clients that its lines name."""
import base64
import hashlib
import html.parser
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from harness import (REPO, Server, age, enc, hashed_server, release_binary, tensor, tensord_binary,
                     write_by_hand)
from upstream_kit import bearer_of, cache, free_port, hubs, model, new_token  # noqa: F401 (fixtures)

EVIL = "\"><img src=x onerror=alert(1)>&lt;'"
SHELL = "it's $(touch ran) `touch ran`; \"touch ran\" #"
VOID = {"meta", "link", "img", "input", "br"}


class Node:
    def __init__(self, tag, attrs, parent):
        self.tag, self.attrs, self.parent, self.children, self.own = tag, attrs, parent, [], []

    def all(self):
        for child in self.children:
            yield child
            yield from child.all()

    @property
    def text(self):
        return "".join(part if isinstance(part, str) else part.text for part in self.own)


class Page(html.parser.HTMLParser):
    """A page as a tree. Fails on a tag that another one does not end."""

    def __init__(self, text):
        super().__init__()
        self.at = self.top = Node(None, {}, None)
        self.feed(text)
        self.close()
        assert self.at is self.top, f"<{self.at.tag}> does not end"

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), names
        node = Node(tag, dict(attrs), self.at)
        self.at.children.append(node)
        self.at.own.append(node)
        if tag not in VOID:
            self.at = node

    def handle_endtag(self, tag):
        assert self.at.tag == tag, f"</{tag}> in <{self.at.tag}>"
        self.at = self.at.parent

    def handle_data(self, data):
        self.at.own.append(data)

    def find(self, within=None, **attrs):
        """Return the elements with these attributes (data_x: data-x; None: any value), below the one with this id."""
        start = self.one(id=within) if within else self.top
        wanted = {name.replace("_", "-"): value for name, value in attrs.items()}
        return [n for n in start.all()
                if all(name in n.attrs and value in (None, n.attrs[name]) for name, value in wanted.items())]

    def one(self, within=None, **attrs):
        found = self.find(within, **attrs)
        assert len(found) == 1, (within, attrs, len(found))
        return found[0]

    def fact(self, name):
        return self.one("summary", data_fact=name).attrs["data-value"]

    def values(self, within, name):
        return [n.attrs[name] for n in self.find(within, **{name: None})]

    def commands(self):
        return {n.attrs["data-command"]: n.text for n in self.find(data_command=None)}


def get_page(server, target, headers=()):
    r = server.get(target, [("Accept", "text/html,*/*;q=0.8"), *headers])
    assert r.status == 200 and r.get("Content-Type") == "text/html; charset=utf-8", r
    assert r.get("Vary") == "Accept, X-Forwarded-Proto", r
    text = r.body.decode("utf-8")
    assert "style=" not in text and "<script>" not in text
    page = Page(text)
    ids = [n.attrs["id"] for n in page.top.all() if "id" in n.attrs]
    assert len(ids) == len(set(ids)) and len([n for n in page.top.all() if n.tag == "h1"]) == 1
    return page


TENSORS = [tensor("model.embed.weight", "BF16", [32, 16]), tensor("lm_head.weight", "F16", [32, 16])]
TENSORS += [tensor(f"model.layers.{i}.{name}", "F32" if "norm" in name else "BF16", shape)
            for i in range(12) for name, shape in (("norm.weight", [16]), ("mlp.up.weight", [8, 16]))]
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("model_page") / "root"
    half = len(TENSORS) // 2
    shards = {"model-00001-of-00002.safetensors": TENSORS[:half], "model-00002-of-00002.safetensors": TENSORS[half:]}
    for name, tensors in shards.items():
        write_by_hand(root / "org/m" / name, tensors, {"format": "pt"})
    (root / "org/m/model.safetensors.index.json").write_text(json.dumps(
        {"weight_map": {t.name: name for name, tensors in shards.items() for t in tensors}}))
    (root / "org/m/config.json").write_text(json.dumps(CONFIG))
    (root / "org/m/README.md").write_text("---\nlicense: apache-2.0\nbase_model: org/base\ntags: [a-tag]\n---\n"
                                          "# A title\n"
                                          "[the configuration](config.json) ![p](p.png) <b id=main onclick=x>b</b>\n"
                                          "[x](javascript:alert(1))\n")
    write_by_hand(root / "org/pipe/unet/model.safetensors", [tensor("w", "F32", [4])])
    write_by_hand(root / "org/pipe" / SHELL / "model.safetensors", [tensor("w", "F32", [5])])
    (root / "org/pipe/model_index.json").write_text("{}")
    write_by_hand(root / "many/model.safetensors", [tensor("w", "F32", [2])])
    write_by_hand(root / "many/other & older.safetensors", [tensor("w", "F32", [3])])
    np.save(root / "many/wide.npy", np.zeros(2, np.complex128))
    write_by_hand(root / "part/model-00001-of-00002.safetensors", [tensor("a", "F32", [2])])
    (root / "part/model.safetensors.index.json").write_text(json.dumps(
        {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}))
    for name in "qr":
        write_by_hand(root / "parts/x.safetensors", [tensor("a", "F32", [2])])
        (root / f"parts/{name}.safetensors.index.json").write_text(json.dumps(
            {"weight_map": {"a": "x.safetensors", "b": "missing.safetensors"}}))
    (root / "bad").mkdir()
    (root / f"bad/{EVIL}.safetensors").write_bytes(b"rubbish!")
    (root / "bad/lfs.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 +
                                              "\nsize 12345\n")
    write_by_hand(root / EVIL / "model.safetensors", [tensor(EVIL + ".x", "U8", [2]), tensor("\x1b.y", "U8", [2])])
    for step in (1, 2, 30):
        write_by_hand(root / f"run/step-{step}/model.safetensors", [tensor("w", "F32", [step])])
    age(root)
    return root


@pytest.fixture(scope="module")
def srv(root):
    with hashed_server(root, "--s3-listen", f"127.0.0.1:{free_port()}") as s:
        yield s


def sums(tensors):
    elements, nbytes = Counter(), Counter()
    for t in tensors:
        elements[t.dtype] += math.prod(t.shape)
        nbytes[t.dtype] += t.nbytes
    return elements, nbytes


def test_facts(srv, root):
    about, (elements, nbytes) = srv.json("/models/org/m"), sums(TENSORS)
    for target in ("/models/org/m/", "/org/m"):
        page = get_page(srv, target)
        assert int(page.fact("parameters")) == sum(elements.values())
        assert int(page.fact("tensors")) == about["checkpoints"][0]["tensor_count"] == len(TENSORS)
        assert int(page.fact("bytes")) == about["checkpoints"][0]["total_bytes"] == sum(nbytes.values())
        assert page.fact("format") == "safetensors"
        assert int(page.fact("files")) == int(page.fact("hashed")) == about["file_count"]
        assert int(page.fact("file_bytes")) == about["file_bytes"]
        newest = max(p.stat().st_mtime_ns for p in (root / "org/m").iterdir())
        assert int(page.fact("updated")) == newest
        assert page.fact("license") == "apache-2.0" and page.fact("base_model") == "org/base"
        assert page.fact("architecture") == "LlamaForCausalLM" and page.fact("task") == "text-generation"
        assert page.values("tags", "data-tag") == ["a-tag"]
        rows = page.find("dtypes", data_dtype=None)
        assert {r.attrs["data-dtype"]: int(r.attrs["data-elements"]) for r in rows} == elements
        assert {r.attrs["data-dtype"]: int(r.attrs["data-bytes"]) for r in rows} == nbytes
        widths = [float(r.attrs["width"]) for r in rows]
        assert widths == sorted(widths, reverse=True) and abs(sum(widths) - 1000) < 0.1
        assert not page.find(id="errors") and not page.find(id="arriving") and not page.find(id="delta")


def test_modules(srv):
    """Sums of each module over the names, in the order of the numbers in them."""
    page = get_page(srv, "/models/org/m/")
    modules = page.find("tree", data_module=None)
    for node in modules:
        inside = [t for t in TENSORS if t.name.startswith(node.attrs["data-module"] + ".")]
        assert int(node.attrs["data-elements"]) == sum(math.prod(t.shape) for t in inside) > 0
        assert int(node.attrs["data-bytes"]) == sum(t.nbytes for t in inside)
    assert [n.attrs["data-module"] for n in modules] == ["lm_head", "model", "model.embed", "model.layers"] + [
        f"model.layers.{i}" for i in range(12)]
    for node in modules:  # nested as they are named
        above, _, _ = node.attrs["data-module"].rpartition(".")
        assert node.parent.attrs.get("data-module", "") == above
    assert {n.tag for n in modules if n.attrs["data-module"] in ("model", "model.layers")} == {"details"}


def test_files(srv, root):
    page = get_page(srv, "/models/org/m/")
    for path in (root / "org/m").iterdir():
        row = page.one("files", data_file=path.name)
        assert row.attrs["data-sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        link = next(n for n in row.all() if n.tag == "a")
        assert srv.get(link.attrs["href"]).body == path.read_bytes() and link.text == path.name
        assert str(path.stat().st_size) in [n.attrs["value"] for n in row.all() if n.tag == "data"]
    with Server(root, hash_threads=0) as s:
        page = get_page(s, "/models/org/m/")
        assert page.fact("hashed") == "0" and not page.find("files", data_sha256=None)


def test_the_card(srv, root, tmp_path):
    """The text of README.md as HTML, without its front matter; its links lead to the model's files."""
    for target in ("/models/org/m/", "/org/m"):
        page = get_page(srv, target)
        card = page.one(id="card")
        assert [n.text for n in card.all() if n.tag == "h2"] == ["A title"] and "apache" not in card.text
        assert [n.attrs["href"] for n in card.all() if n.tag == "a"] == ["/org/m/resolve/main/config.json"]
        assert [n.attrs["src"] for n in card.all() if n.tag == "img"] == ["/org/m/resolve/main/p.png"]
        assert "<b id=main onclick=x>" in card.text and not page.find(id="card-fault")
    assert not get_page(srv, "/models/many/").find(id="card")
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "F32", [2])])
    (tmp_path / "m/README.md").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 +
                                          "\nsize 12345\n")
    age(tmp_path)
    with Server(tmp_path, hash_threads=0) as s:
        page = get_page(s, "/models/m/")
        assert "LFS" in page.one(id="card-fault").text and not page.find(id="card")
        assert page.fact("tensors") == "1"


def test_links(srv):
    page = get_page(srv, "/models/org/m/")
    links = {name: page.find("main", data_link=name)[0].attrs["href"] for name in ("tensors", "ranks", "compare")}
    assert links == {"tensors": "/models/org/m/view/tensors", "ranks": "/models/org/m/view/ranks",
                     "compare": "/compare?a=org%2Fm"}
    assert srv.json(page.one("main", data_link="json").attrs["href"])["id"] == "org/m"
    hrefs = {n.attrs["href"] for n in page.find(href=None) if n.tag == "a"}
    assert {"/#", "/models/", "/models/org/m/files/"} <= hrefs
    ids = {n.attrs["id"] for n in page.find(id=None)}
    assert all(href[1:] in ids for href in hrefs if href.startswith("#"))


def test_every_checkpoint_is_linked(srv):
    """Each manifest is another checkpoint's. The link to one file stands where safetensors has all types."""
    about = srv.json("/models/many")["checkpoints"]
    page = get_page(srv, "/models/many/")
    assert page.values("checkpoints", "data-checkpoint") == [c["id"] for c in about]
    assert len(about) == 3
    manifests = [n.attrs["href"] for n in page.find("checkpoints", data_link="manifest")]
    assert [srv.json(link)["checkpoint"] for link in manifests] == [c["id"] for c in about]
    files = [n.attrs["href"] for n in page.find("checkpoints", data_link="safetensors")]
    assert [srv.get(link).status for link in files] == [200, 200] and "older" in files[1]
    views = [n.attrs["href"] for n in page.find("checkpoints", data_link="view")]
    assert views == [link.replace("/tensors", "/view/tensors") for link in manifests]
    assert page.fact("tensors") == "1" and page.fact("parameters") == "2"  # of the default one


def test_a_checkpoint_that_lacks_files(srv):
    page = get_page(srv, "/models/part/")
    problem = page.one("errors", data_file="model.safetensors.index.json")
    assert "model-00002-of-00002.safetensors" in problem.text and "Put the missing files" in problem.text
    row = page.one("checkpoints", data_checkpoint="safetensors")
    links = {n.attrs["data-link"]: n.attrs["href"] for n in row.all() if "data-link" in n.attrs}
    assert set(links) == {"view", "manifest"} and [t["name"] for t in srv.json(links["manifest"])["tensors"]] == ["a"]
    assert Page(srv.get(links["view"]).body.decode()).find("tensors", data_tensor="a")
    assert not page.find(data_fact="parameters") and not page.find(id="dtypes") and not page.find(id="tree")
    assert page.find("main", data_link="tensors") and not page.find("main", data_link="ranks")


def test_several_checkpoints_that_lack_files(srv):
    page = get_page(srv, "/models/parts/")
    manifests = [n.attrs["href"] for n in page.find("checkpoints", data_link="manifest")]
    assert [srv.json(link)["checkpoint"] for link in manifests] == page.values("checkpoints", "data-checkpoint")
    assert len(set(manifests)) == 2


def test_refused_files_have_reasons_and_advice(srv):
    page = get_page(srv, "/models/bad/")
    about = {e["file"]: e["message"] for e in srv.json("/models/bad")["errors"]}
    assert set(page.values("errors", "data-file")) == set(about) == {EVIL + ".safetensors", "lfs.safetensors"}
    for name, message in about.items():
        assert message in page.one("errors", data_file=name).text
    assert "git lfs pull" in page.one("errors", data_file="lfs.safetensors").text
    assert "Copy or fetch it again" in page.one("errors", data_file=EVIL + ".safetensors").text
    order = [n.attrs["id"] for n in page.find(id=None)]
    assert order.index("errors") < order.index("summary")


def test_hostile_names_are_text(srv):
    page = get_page(srv, f"/models/{enc(EVIL, '/')}/")
    title = next(n for n in page.top.all() if n.tag == "h1")
    assert title.text == EVIL
    assert {n.tag for n in page.find("main", id=None)} <= {"h2", "section", "dl", "table", "ul"}
    assert not [n for n in page.one(id="main").all() if n.tag in ("img", "script")]
    escape, evil = page.find("tree", data_module=None)
    assert escape.text.startswith("\\x1b") and evil.attrs["data-module"] == EVIL and evil.text.startswith(EVIL)
    hrefs = [n.attrs["href"] for n in page.find(href=None) if n.tag == "a"]
    assert all(href[0] in "/#" and "\"" not in href and "<" not in href for href in hrefs)
    assert not {"hf", "pull", "transformers"} & set(page.commands())  # these clients take no such id


def test_versions(srv):
    page = get_page(srv, "/models/run/step-2/")
    assert page.values("versions", "data-version") == ["step-30", "step-2", "step-1"]
    links = [n.attrs["href"] for n in page.one(id="versions").all() if n.tag == "a"]
    assert "/models/run/step-30/" in links and "/compare?a=run%2Fstep-30&b=run%2Fstep-2" in links
    assert len(srv.json(page.one("versions", data_link="versions").attrs["href"])["versions"]) == 3
    assert page.one("versions", aria_current="page").text == "step-2"
    same = get_page(srv, "/models/run/?version=step-2")
    assert same.fact("parameters") == "2" == page.fact("parameters")


def test_deltas(tmp_path):
    """The page of a delta names the version that it changes, and links it if it is here."""
    write_by_hand(tmp_path / "run/weight_v000011/model.safetensors", [tensor("w", "F32", [2])])
    for number, base in ((12, 11), (14, 13)):
        folder = tmp_path / f"run/weight_v{number:06d}"
        write_by_hand(folder / "d.safetensors", [tensor("w", "U8", [20])], {"w": "0"})
        (folder / "model.safetensors.index.json").write_text(json.dumps({
            "metadata": {"version": f"{number:06d}", "base_version": f"{base:06d}", "delta_encoding": "xor",
                         "compression_format": "zstd", "checksum_format": "xxh3-128"},
            "weight_map": {"w": "d.safetensors"}}))
    age(tmp_path)
    with Server(tmp_path, hash_threads=0) as s:
        assert s.json("/models/run/weight_v000012")["base"] == "weight_v000011"
        page = get_page(s, "/models/run/weight_v000012/")
        assert page.one("delta", data_link="base").attrs["href"] == "/models/run/weight_v000011/"
        page = get_page(s, "/models/run/weight_v000014/")
        assert "version 000013" in page.one(id="delta").text and not page.find("delta", data_link="base")
        assert not page.find("main", data_link="tensors") and not page.find(id="checkpoints")


def test_a_model_on_its_way(hubs, cache):  # noqa: F811
    """The page shows as much as the JSON's `upstream`, and asks for itself again. At the end the model is here."""
    hub = hubs({"org/m": model()})
    hub.open_gate(2 << 20)
    server = cache(hub.url)
    server.get("/models/org/m/files/config.json")
    about = server.json("/models/org/m")["upstream"]
    assert about["state"] == "incoming"
    page = get_page(server, "/models/org/m/")
    assert page.one(id="arriving").attrs["data-every"] == "2000"
    assert int(page.one("arriving", data_fact="arriving_bytes").attrs["data-value"]) == about["total_bytes"] > 6 << 20
    assert int(page.one("arriving", data_fact="arrived_bytes").attrs["data-value"]) < about["total_bytes"]
    assert page.fact("upstream") == "arriving" and "model.safetensors" in page.values("files", "data-file")
    hub.open_gate(None)
    server.wait_for(lambda: server.json("/models/org/m").get("upstream", {}).get("state") == "here", "the model")
    page = get_page(server, "/models/org/m/")
    assert page.fact("upstream") == "verified" and not page.find(id="arriving")


# ---- lines to copy: each is run ---------------------------------------------------------------------------

def run_line(line, folder, **env):
    folder.mkdir()
    binaries = folder.parent / "bin"
    if not binaries.exists():
        binaries.mkdir()
        (binaries / "tensord").symlink_to(tensord_binary())
    path = f"{binaries}:{REPO / '.venv/bin'}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(folder.parent), "PYTHONPATH": str(REPO / "clients/python"), **env}
    if line.startswith("import "):
        argv = [sys.executable, "-c", line + "\n"]
    else:
        argv = ["bash", "-c", line]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done


def test_lines_work(srv, root, tmp_path):
    lines = get_page(srv, "/models/org/m/").commands()
    assert set(lines) == {"curl", "hf", "pull", "python", "transformers", "vllm", "oras", "boto3"}
    assert all(f"127.0.0.1:{srv.port}" in line for name, line in lines.items() if name != "boto3")
    files = {p.name: p.read_bytes() for p in (root / "org/m").iterdir()}

    run_line(lines["curl"], tmp_path / "curl")
    assert (tmp_path / "curl/model.safetensors").read_bytes() == srv.get("/models/org/m/model.safetensors").body
    done = run_line(lines["hf"] + " --quiet", tmp_path / "hf")
    got = next((tmp_path / ".cache/huggingface/hub").glob("models--org--m/snapshots/*"))
    assert {p.name: p.read_bytes() for p in got.iterdir()} == files, done.stdout
    run_line(lines["pull"], tmp_path / "pull")
    assert {p.name: p.read_bytes() for p in (tmp_path / "pull/m").iterdir()} == files
    run_line(lines["boto3"], tmp_path / "boto3")
    (name, data), = ((p.name, p.read_bytes()) for p in (tmp_path / "boto3").iterdir())
    assert files[name] == data and name.endswith(".safetensors")
    shown = run_line(lines["python"] + "\nfor name in sorted(weights): print(name, list(weights[name].shape))",
                     tmp_path / "python")
    assert shown.stdout.splitlines() == sorted(f"{t.name} {t.shape}" for t in TENSORS)
    if shutil.which("oras"):
        run_line(lines["oras"], tmp_path / "oras")
        assert {p.name: p.read_bytes() for p in (tmp_path / "oras/model").iterdir()} == files
    # transformers and vLLM need weights of a whole model: their lines name what the Hub's interface has
    assert f'os.environ["HF_ENDPOINT"] = "http://127.0.0.1:{srv.port}"' in lines["transformers"]
    assert 'AutoModelForCausalLM.from_pretrained("org/m")' in lines["transformers"]
    assert lines["vllm"] == f"HF_ENDPOINT=http://127.0.0.1:{srv.port} vllm serve org/m"


def test_lines_for_folders_and_versions(srv, root, tmp_path):
    """A folder of a repository is included by a glob, a version is a revision, and its tag in registries."""
    lines = get_page(srv, "/models/org/pipe/unet/").commands()
    run_line(lines["pull"], tmp_path / "unet")
    assert [str(p.relative_to(tmp_path / "unet/pipe")) for p in (tmp_path / "unet/pipe").rglob("*") if p.is_file()] == [
        "unet/model.safetensors"]
    run_line(lines["hf"] + " --quiet", tmp_path / "hf")
    assert "oras" not in lines
    lines = get_page(srv, "/models/run/step-2/").commands()
    run_line(lines["pull"], tmp_path / "step")
    got, = (p for p in (tmp_path / "step").rglob("*.safetensors"))
    assert got.read_bytes() == (root / "run/step-2/model.safetensors").read_bytes()
    assert lines["hf"].endswith(" --revision step-2") and ":step-2 " in lines["oras"]
    tag = re.search(r"(\S+):(step-2) ", lines["oras"])[1].partition("/")[2]
    assert srv.get(f"/v2/{tag}/manifests/step-2").status == 200


def test_lines_with_hostile_names(srv, root, tmp_path):
    """Names are quoted: the lines fetch the model, and run nothing that a name says."""
    lines = get_page(srv, f"/models/{enc(EVIL, '/')}/").commands()
    assert set(lines) == {"curl", "python", "oras", "boto3"}
    run_line(lines["curl"], tmp_path / "curl")
    assert (tmp_path / "curl/model.safetensors").stat().st_size > 0
    compile(lines["python"], "line", "exec")
    run_line(lines["boto3"], tmp_path / "boto3")
    assert (tmp_path / "boto3/model.safetensors").read_bytes() == (root / EVIL / "model.safetensors").read_bytes()
    lines = get_page(srv, f"/models/org/pipe/{enc(SHELL)}/").commands()
    run_line(lines["pull"], tmp_path / "pull")
    run_line(lines["hf"] + " --quiet", tmp_path / "hf")
    got = next((tmp_path / ".cache/huggingface/hub").glob("models--org--pipe/snapshots/*"))
    for folder in (got, tmp_path / "pull/pipe"):
        assert (folder / SHELL / "model.safetensors").read_bytes() == (
            root / "org/pipe" / SHELL / "model.safetensors").read_bytes()
    assert not list(tmp_path.rglob("ran"))


def test_the_host_is_the_clients(srv):
    for host, scheme in (("weights.example:1234", "http"), ("weights.example", "https"), ("[::1]:8080", "http")):
        headers = [("Host", host), ("X-Forwarded-Proto", scheme)]
        lines = get_page(srv, "/models/org/m/", headers).commands()
        assert f"{scheme}://{host}/models/org/m/model.safetensors" in lines["curl"]
        assert ("--plain-http" in lines["oras"]) == (scheme == "http")
        name = host.rpartition(":")[0] if host[-1].isdigit() else host
        assert re.search(r'endpoint_url="(.*):\d+"', lines["boto3"])[1] == f"{scheme}://{name}"


def test_lines_take_the_token(root, tmp_path):
    token = new_token(tmp_path / "tokens", "reader")
    with Server(root, "--tokens", tmp_path / "tokens", hash_threads=0) as s:
        page = get_page(s, "/models/org/m/", bearer_of(token))
        lines = page.commands()
        assert "TENSORD_TOKEN" in page.one(id="commands").text and not [v for v in lines.values() if token in v]
        for name in ("curl", "hf", "pull", "python"):
            line = lines[name] + (" --quiet" if name == "hf" else "")
            run_line(line, tmp_path / name, TENSORD_TOKEN=token)
        assert "boto3" not in lines  # without the port
        assert base64.b64encode(token.encode()).decode() not in " ".join(lines.values())


# ---- bounds -----------------------------------------------------------------------------------------------

def test_many_files(tmp_path):
    """500 files are shown, and a link to all of them; the facts are of all."""
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "F32", [2])])
    for i in range(10_000):
        (tmp_path / f"m/part-{i:05d}.bin").touch()
    age(tmp_path)
    with Server(tmp_path, hash_threads=0) as s:
        page = get_page(s, "/models/m/")
        assert page.fact("files") == "10001" and len(page.find("files", data_file=None)) == 500
        assert [n for n in page.find(href="/models/m/files/") if "10,001" in n.text]


def test_many_tensors(tmp_path):
    """100,000 tensors: sums of all, 200 modules, and no memory that a page keeps after it was sent."""
    tensors = [tensor(f"m.{i // 1000}.w{i:06d}.weight", "U8", [1]) for i in range(100_000)]
    write_by_hand(tmp_path / "m/model.safetensors", tensors)
    age(tmp_path)
    with Server(tmp_path, hash_threads=0, binary=release_binary()) as s:
        page = get_page(s, "/models/m/")
        assert page.fact("tensors") == page.fact("parameters") == "100000"
        modules = page.values("tree", "data-module")
        assert len(modules) == 200 and {"m", "m.0", "m.99"} <= set(modules)
        more = sum(int(n.attrs["data-more"]) for n in page.find("tree", data_more=None))
        assert more + len(modules) == 1 + 100 + 100_000
        before = s.anon_bytes()
        for _ in range(20):
            assert s.get("/models/m/", [("Accept", "text/html")]).status == 200
        assert s.anon_bytes() - before < 8 << 20
