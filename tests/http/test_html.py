"""HTML pages: for a browser, and for a program that follows the links of a folder, as fsspec's http file system
does."""
import html.parser
import re
import urllib.parse

import pytest

from harness import Conn, Server, age, pattern, tensor, write_by_hand

# fsspec/implementations/http.py finds links by this
FSSPEC_LINKS = re.compile(r"""(<(a|A)\s+(?:[^>]*?\s+)?(href|HREF)=["'](?P<url>[^"']+))""")
EVIL = "\"><img src=x onerror=alert(1)>&lt;'"
NAMES = ["config.json", "a b.txt", "é.txt", "a+b%41.txt", "100%.txt", "?x#y", EVIL]


@pytest.fixture(scope="module")
def srv(tmp_path_factory):
    root = tmp_path_factory.mktemp("html") / "root"
    for name in NAMES:
        (root / "org/m" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "org/m" / name).write_bytes(pattern(100, name))
    (root / "org/m/sub/deeper").mkdir(parents=True)
    (root / "org/m/sub/deeper/x.bin").write_bytes(b"x")
    write_by_hand(root / "org/m/model.safetensors", [tensor("w", "F32", (2,))])
    write_by_hand(root / EVIL / "model.safetensors", [tensor("w", "F32", (2,))])
    (root / "datasets/ns/rows" / EVIL).mkdir(parents=True)
    (root / "datasets/ns/rows" / EVIL / "a b.csv").write_bytes(b"a,b")
    (root / "datasets/ns/rows/train.parquet").write_bytes(b"rows")
    age(root)
    with Server(root, hash_threads=0) as s:
        yield s


class Page(html.parser.HTMLParser):
    """Collects all tags and attributes, and the targets and texts of links within the main part."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.sources, self.links, self.is_main = set(), set(), set(), {}, False
        self.open = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.sources |= {value for name, value in attrs if name in ("src", "srcset", "data", "action", "formaction")}
        self.is_main = self.is_main or tag == "main"
        if tag == "a" and self.is_main:
            self.open = dict(attrs)["href"]
            self.links[self.open] = ""

    def handle_endtag(self, tag):
        self.open = None if tag == "a" else self.open
        self.is_main = self.is_main and tag != "main"

    def handle_data(self, data):
        if self.open is not None:
            self.links[self.open] += data


# All tags of the pages but scripts and styles, which are files of the server's own.
OURS = {"html", "head", "meta", "title", "link", "script", "body", "a", "header", "nav", "img", "main", "h1", "h2",
        "h3", "form", "label", "input", "button", "select", "option", "section", "div", "table", "caption", "thead",
        "tbody", "tr", "th", "td", "data", "bdi", "br", "span", "p", "footer", "dl", "dt", "dd", "ul", "li", "details",
        "summary", "pre", "code", "svg", "rect", "g", "text", "path", "line", "polyline",
        "strong", "progress"}
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
          "form-action 'self'; base-uri 'none'; frame-ancestors 'none'")


def get_page(srv, target, accept="text/html,*/*;q=0.8"):
    r = srv.get(target, {"Accept": accept})
    assert r.status == 200 and r.get("Content-Type") == "text/html; charset=utf-8", r
    assert r.get("Content-Security-Policy") == POLICY and r.get("X-Content-Type-Options") == "nosniff", r
    assert r.get("Referrer-Policy") == "no-referrer"
    page = Page(r.body.decode("utf-8"))
    assert page.tags <= OURS, page.tags - OURS
    assert not {name for name in page.attributes if name.startswith("on") or name in ("style", "srcdoc")}
    assert all(re.match(r"/(?!/)|\?", source) for source in page.sources), page.sources
    return page, r


# shows: security.md content-html-names
def test_from_the_start_to_every_file(srv):
    todo, seen, files = ["/"], set(), {}
    while todo:
        target = todo.pop()
        page, _ = get_page(srv, target)
        for link in page.links:
            where = urllib.parse.urldefrag(urllib.parse.urljoin(target, link)).url
            if where in seen or "?" in where:  # other orders of the same rows
                continue
            seen.add(where)
            if where.endswith("/") or where.endswith("/datasets/ns/rows"):
                todo.append(where)
            elif "/files/" in where:
                files[urllib.parse.unquote(where.split("/files/", 1)[1])] = srv.get(where).body
            elif "/datasets/" in where:
                files[urllib.parse.unquote(where)] = srv.get(where).body
            else:
                assert srv.get(where).status == 200, where
    assert {name: files[name] for name in NAMES} == {name: pattern(100, name) for name in NAMES}
    assert files["sub/deeper/x.bin"] == b"x"
    rows = "/datasets/ns/rows/resolve/main/"
    assert {k: v for k, v in files.items()
            if k.startswith("/datasets/")} == {rows + EVIL + "/a b.csv": b"a,b", rows + "train.parquet": b"rows"}


def test_a_folder_as_fsspec_reads_it(srv):
    """Accept: */*. Every link of the page is an item of the folder, except links that lead up or to the start:
    _ls_real of fsspec passes over "..", "../" and absolute paths that are not below the folder,
    and takes "/" alone for an item."""
    for target, wanted in (("/models/org/m/files/", {*NAMES, "model.safetensors",
                                                     "sub/"}), ("/models/org/m/files/sub/", {"deeper/"}),
                           ("/datasets/ns/rows/resolve/main/", {EVIL + "/", "train.parquet"})):
        r = srv.get(target, {"Accept": "*/*"})
        links = {m.group("url") for m in FSSPEC_LINKS.finditer(r.body.decode())}
        assert "/" not in links
        links = {u for u in links if not u.startswith("/") or u.startswith(target)}
        assert {urllib.parse.unquote(urllib.parse.urljoin(target, u))[len(target):] for u in links} == wanted
        assert "http:" not in r.body.decode() and "https:" not in r.body.decode()


def test_names_are_shown_as_they_are(srv):
    page, _ = get_page(srv, "/models/org/m/files/")
    assert set(page.links.values()) == {*NAMES, "model.safetensors", "sub/", "up"}
    page, _ = get_page(srv, "/models/")
    assert {text for link, text in page.links.items() if "?" not in link} == {"org/m", EVIL}


def test_head_ranges_and_conditions(srv):
    for target in ("/", "/models/", "/models/org/m/", "/models/org/m/files/", "/datasets/ns/rows/resolve/main/"):
        get = srv.get(target, {"Accept": "text/html"})
        head = srv.head(target, {"Accept": "text/html"})
        assert head.status == 200 and head.length == len(get.body) and head.etag == get.etag, head
        assert srv.get(target, {"Accept": "text/html", "If-None-Match": get.etag}).status == 304
        assert srv.get(target,
                       {"Accept": "text/html", "Range": "bytes=0-14"}).body == get.body[:15] == b"<!DOCTYPE html>"
        assert srv.request(target, {"Accept": "text/html"}, "POST").status == 405


def test_programs_get_json(srv):
    for target in ("/models", "/models/", "/models/org/m", "/models/org/m/"):
        for accept in ("*/*", "application/json", "text/htmlx"):
            assert srv.get(target, {"Accept": accept}).get("Content-Type") == "application/json", (target, accept)
    for path in ("/datasets", "/datasets/"):
        assert [dataset["id"] for dataset in srv.json(path)["datasets"]] == ["ns/rows"], path
    r = srv.get("/api")
    assert r.status == 404 and "/api/models" in r.body.decode() and "begin with GET /models" in r.body.decode(), r
    assert srv.get("/models/org/m/files/none/").status == 404


def test_the_start_for_programs(srv):
    """GET / leads a program to all else: each link answers 200, and that to the pages a page for a browser."""
    r = srv.get("/")
    start, version = srv.json("/"), srv.json("/version")
    assert (start["name"], start["version"]) == ("tensord", version["version"]), start
    assert {"models", "datasets", "openapi", "metrics", "pages"} <= set(start["links"]), start
    for name, link in start["links"].items():
        fields = {"Accept": "text/html"} if name == "pages" else {"Accept": "application/json"}
        assert srv.get(link, fields).status == 200, (name, link)
    assert "models" in srv.json(start["links"]["models"]) and "datasets" in srv.json(start["links"]["datasets"])
    get_page(srv, start["links"]["pages"])
    assert r.get("Vary") == "Accept" and srv.get("/", {"If-None-Match": r.etag}).status == 304
    for accept in ("*/*", "application/json", "text/htmlx"):
        assert srv.get("/", {"Accept": accept}).json() == start
    assert srv.head("/").length == len(r.body) and srv.get("/", {"Range": "bytes=0-0"}).body == b"{"
    assert srv.request("/", method="POST").status == 405
    assert srv.get("/?x=1").status == 400


def test_clients_of_s3_at_the_start_are_still_on_the_wrong_port(srv):
    """They would take the answer for a broken list of buckets."""
    for target, fields in (("/", {"Authorization": "AWS4-HMAC-SHA256 Credential=x"}), ("/?list-type=2", {}),
                           ("/?x-id=ListBuckets", {}), ("/", {"X-Amz-Date": "20260101T000000Z"})):
        r = srv.get(target, fields)
        assert r.status == 404 and "--s3-listen" in r.body.decode(), r


PAGES = ["/", "/models/", "/models/org/m/", "/org/m", "/models/org/m/files/", "/models/org/m/view/tensors",
         "/models/org/m/view/tensor/w", "/models/org/m/view/ranks?engine=none", "/datasets/ns/rows",
         "/compare?a=org/m&b=org/m", "/status", "/models/none/"]


# shows: security.md client-forwarded
def test_caches_know_what_a_page_depends_on(srv):
    """A shared cache gives one client's page to another one only if all fields that Vary names are equal: none may get
    a page with lines to copy that name another scheme. Host alone chooses the host, a part of the address."""
    others = [("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "evil.example"), ("X-Forwarded-Port", "1"),
              ("Forwarded", "host=evil.example;proto=https"), ("X-Original-URL", "/evil"), ("X-Rewrite-URL", "/evil"),
              ("Accept-Language", "fr"), ("User-Agent", "evil"), ("Referer", "http://evil.example/"),
              ("X-HTTP-Method-Override", "DELETE"), ("Accept", "application/json")]
    varied = set()
    for target in PAGES:
        plain = srv.get(target, {"Accept": "text/html"})
        for name, value in others:
            other = srv.get(target, {"Accept": "text/html", name: value})
            if (other.status, plain_body(other)) != (plain.status, plain_body(plain)):
                for r in (plain, other):
                    assert name in (r.get("Vary") or "").split(", ") or r.get("Cache-Control") == "no-store", (name, r)
                varied.add((target, name))
    assert {name for _, name in varied} == {"X-Forwarded-Proto", "Accept"}
    assert {target for target, name in varied if name == "X-Forwarded-Proto"} == {
        "/models/org/m/", "/org/m", "/models/org/m/view/ranks?engine=none", "/datasets/ns/rows"}


def plain_body(r):
    """Return the body without what changes from request to request: the numbers of /status."""
    return re.sub(rb"[0-9]+(\.[0-9]+)?( [kKMG]i?B?)?", b"", r.body)


# shows: security.md client-html
def test_many_readers_of_a_large_folder(tmp_path):
    """A reader that is slow or stopped does not hold the page in memory: the page is megabytes, a reader's memory is
    not."""
    files, readers = 20000, 64
    (tmp_path / "m/data").mkdir(parents=True)
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "F32", (2,))])
    for i in range(files):
        (tmp_path / f"m/data/part-{i:05d} of a large data set.bin").touch()
    age(tmp_path)
    with Server(tmp_path, hash_threads=0) as s:
        whole = s.get("/models/m/files/data/")
        assert whole.length > files * 100 and len(FSSPEC_LINKS.findall(whole.body.decode())) == files + 1
        assert whole.body[5000:7000] == s.get("/models/m/files/data/", {"Range": "bytes=5000-6999"}).body
        before = s.anon_bytes()
        conns = [Conn(s.port, rcvbuf=4096) for _ in range(readers)]
        for c in conns:
            c.send(b"GET /models/m/files/data/ HTTP/1.1\r\nHost: h\r\n\r\n")
        for c in conns:
            assert c.read_head().status == 200
        grown = s.anon_bytes() - before
        assert grown < readers * whole.length / 3, f"{grown >> 20} MiB"
        for c in conns:
            c.close()
        assert s.get("/models/m/files/data/").body == whole.body
