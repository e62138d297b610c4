"""Files, tensors and rows of strangers run nowhere in the server's origin: not opened by themselves, and not as a
script or a style of a page, whatever the page was brought to load."""
import pytest

import harness
import models
from harness import Tensor, age, write_by_hand

EVIL = "org/evil"
SCRIPT = b"globalThis.ran = location.href; //"
STYLE = b"h1 { display: none }"
PAGE = b"<html><body><script>globalThis.ran = location.href;</script></body></html>"
SVG = (b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>globalThis.ran = location.href;</script>'
       b'</svg>')
FILES = {"page.html": PAGE, "page.HTM": PAGE, "page.xhtml": PAGE, "page.mhtml": PAGE, "picture.svg": SVG,
         "tree.xml": SVG, "script.js": SCRIPT, "script.mjs": SCRIPT, "style.css": STYLE, "text.txt": PAGE,
         "notes.md": PAGE,
         "data.json": SCRIPT, "code.py": SCRIPT, "nothing": PAGE, "frame.gif": PAGE, "vocabulary.jsonl": PAGE}
TENSORS = {"script": SCRIPT, "style": STYLE, "page": PAGE}


def addresses():
    """Return the addresses of all bytes that a stranger chose, by every path that answers them."""
    of_files = [f"{base}/{name}" for base in (f"/models/{EVIL}/files", f"/{EVIL}/resolve/main", f"/{EVIL}/raw/main")
                for name in FILES]
    of_tensors = [f"/models/{EVIL}/tensors/{name}{query}" for name in TENSORS
                  for query in ("", "?format=npy", "?format=safetensors", "?format=stats", "?slice=:5")]
    return [*of_files, *of_tensors, f"/models/{EVIL}/model.safetensors", f"/models/{EVIL}/tensors",
            f"/models/{EVIL}/shards/none/tp1/rank-0.safetensors", f"/models/{EVIL}/shards/none/tp1/rank-0.json",
            f"/{EVIL}/resolve/tp1-rank0-none/model.safetensors", "/datasets/org/evil/rows/0",
            "/datasets/org/evil/rows?format=raw", "/datasets/org/evil/rows?format=json",
            "/datasets/org/pictures/rows/0", "/datasets/org/pictures/rows/1",
            "/datasets/org/pictures/resolve/main/train/a/x.svg"]


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    root = tmp_path_factory.mktemp("evil") / "root"
    write_by_hand(root / EVIL / "model.safetensors", [Tensor(name, "U8", [len(data)], data)
                                                      for name, data in TENSORS.items()])
    for name, data in FILES.items():
        (root / EVIL / name).write_bytes(data)
    rows, pictures = root / "datasets/org/evil", root / "datasets/org/pictures/train/a"
    rows.mkdir(parents=True)
    pictures.mkdir(parents=True)
    (rows / "train.jsonl").write_bytes(b'"<script>globalThis.ran = 1</script>"\n')
    for name in ("page.png", "svg.png", "x.svg"):
        (pictures / name).write_bytes(PAGE if name == "page.png" else SVG)
    age(root)
    with harness.hashed_server(root) as s:
        for dataset in ("org/evil", "org/pictures"):
            s.wait_for(lambda d=dataset: s.get(f"/datasets/{d}/rows").status == 200, f"{dataset} is indexed", 30)
        yield s


# shows: security.md content-browser-types
def test_nothing_is_a_page(browser, evil):
    """Opened by itself an address is saved, or shown as text or a picture: the document has no script and no element of
    the stranger's."""
    base = f"http://127.0.0.1:{evil.port}"
    page = browser.visit(f"{base}/healthz")
    try:
        for path in addresses():
            answer = evil.get(path)
            kind = answer.get("Content-Type").split(";")[0]
            assert answer.status == 200 and answer.get("X-Content-Type-Options") == "nosniff" or \
                kind == "application/json", (path, answer)
            assert kind in ("application/octet-stream", "application/json", "text/plain", "image/png"), (path, answer)
            shown = page.open_or_save(base + path)
            assert shown["saved"] or shown["ran"] is None and shown["scripts"] == 0, (path, shown)
            assert shown["saved"] == (kind == "application/octet-stream"), (path, shown)
    finally:
        page.close()


LOAD = """async paths => {
    const loaded = [];
    const put = (name, attributes) => new Promise(done => {
        const element = Object.assign(document.createElement(name), attributes);
        element.onload = () => done(true);
        element.onerror = () => done(false);
        document.head.append(element);
    });
    for (const path of paths) {
        const as = [await put("script", { src: path }), await put("link", { rel: "stylesheet", href: path }),
                    await put("script", { type: "module", src: path })];
        loaded.push([path, as, globalThis.ran ?? null, getComputedStyle(document.querySelector("h1")).display]);
        delete globalThis.ran;
    }
    const worker = await navigator.serviceWorker.register(paths[0]).then(() => "registered", e => e.name);
    return { loaded, worker };
}"""


# shows: security.md content-browser-types
def test_nothing_is_a_script_of_a_page(browser, evil):
    """A page whose policy allows its own server's scripts and styles, and which loads a stranger's bytes as such."""
    page = browser.visit(f"http://127.0.0.1:{evil.port}/")
    try:
        got = page.evaluate(LOAD, addresses())
    finally:
        page.close()
    for path, loaded, ran, shown in got["loaded"]:
        assert (ran, shown) == (None, "block"), (path, loaded)
    assert got["worker"] == "SecurityError"
