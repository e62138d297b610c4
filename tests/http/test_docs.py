"""The documents against the program: options, metrics, routes, links, and the tests that show the promises of
docs/security.md."""
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness import REPO, Server, age, tensor, tensord_binary, write_by_hand

sys.path.insert(0, str(REPO / "scripts"))
import list_promises
import print_man
import print_tables

DOCS = [*sorted(REPO.glob("*.md")), *sorted((REPO / "docs").glob("*.md")), REPO / "bench" / "README.md"]
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def names_in(path):
    """Return the names of the tensors that safetensors loads from a file."""
    from safetensors.torch import load_file     # here, because the import of torch takes long
    return set(load_file(path))


def rows(text, first):
    """Cells of every table row whose first cell is one of the matches of `first` in backquotes."""
    found = []
    for line in text.splitlines():
        cells = print_tables.cells_of(line)
        if cells and re.fullmatch(rf"`(?:{first})`", cells[0]):
            found.append([c.strip("`") for c in cells])
    return found


@pytest.mark.parametrize("name", ["options", "metrics"])
def test_tables_are_as_the_script_prints_them(name):
    """docs/configuration.md has the tables of the sources: after a change, scripts/print_tables.py --write."""
    printed = print_tables.TABLES[name]()
    assert len(printed.splitlines()) > 40
    assert print_tables.table_in((REPO / "docs" / "configuration.md").read_text(), name) == printed


def test_the_printed_metrics_are_those_of_the_server(srv):
    """The script reads the sources: type and help of each metric are those that the server writes."""
    types, helps, _ = srv.metrics()
    with_tls = "tensord_tls_certificate_expiry_timestamp_seconds"
    printed = {name: row for name, row in print_tables.read_metrics().items() if name != with_tls}
    assert printed == {name: (types[name], helps[name]) for name in types}


def test_the_manual_page_is_as_the_script_prints_it():
    """docs/tensord.1 has the texts of help: after a change, scripts/print_man.py --write. man reads it, too."""
    page = REPO / "docs" / "tensord.1"
    assert page.read_text() == print_man.manual_page(tensord_binary())
    p = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, check=True,
                       env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
    assert p.stderr == ""
    for name in ["--max-connections-per-address N", "--print-config", "--retry-for", "EXIT STATUS", "SIGHUP"]:
        assert name in p.stdout


def test_the_manual_page_is_installed(tmp_path):
    build = Path(tensord_binary()).parent
    subprocess.run(["cmake", "--install", build, "--prefix", tmp_path], capture_output=True, check=True)
    installed = tmp_path / "share/man/man1/tensord.1"
    assert installed.read_bytes() == (REPO / "docs" / "tensord.1").read_bytes()


def test_options_are_those_of_help():
    """Compare name, value and default of every option, in the same order."""
    out = subprocess.run([tensord_binary(), "--help"], capture_output=True, text=True, check=True).stdout
    helped = [list(m) for m in re.findall(r"^  (--\S+ \S+) .*\((.*)\)$", out, re.MULTILINE)]
    assert len(helped) >= 15, out
    documented = [r[:2] for r in rows((REPO / "docs" / "configuration.md").read_text(), r"--\S+ \S+")]
    assert documented == helped


def test_bounds_of_options_are_those_of_the_program():
    """A value that is no number is refused with the bounds; an option without bounds has an empty cell."""
    for name, _, bounds, *_ in rows((REPO / "docs" / "configuration.md").read_text(), r"--\S+ \S+"):
        option, value = name.split(" ")
        if value in ("N", "SIZE", "TIME"):
            p = subprocess.run([tensord_binary(), "serve", ".", option, "none"], capture_output=True, text=True)
            assert re.search(r" from (\S+ to \S+), not ", p.stderr)[1] == bounds, (option, p.stderr)
        else:
            assert bounds == "", option


def test_metrics_are_those_of_the_server(srv):
    types, helps, samples = srv.metrics()
    documented = {r[0]: r[1] for r in rows((REPO / "docs" / "configuration.md").read_text(), r"tensord_\w+")}
    with_tls = {"tensord_tls_certificate_expiry_timestamp_seconds": "gauge"}      # test_tls.py shows it
    assert documented == types | with_tls


def test_reasons_and_limits_are_those_of_the_server(srv):
    text = (REPO / "docs" / "configuration.md").read_text()
    _, _, samples = srv.metrics()
    cuts = {labels["reason"] for name, labels, _ in samples if name == "tensord_http_cut_transfers_total"}
    assert cuts == {r[0] for r in rows(text, "|".join(cuts))}
    limits = {labels["limit"] for name, labels, _ in samples if name == "tensord_http_connections_refused_total"}
    line = next(line for line in text.splitlines() if "| `tensord_http_connections_refused_total` | `" in line)
    assert limits <= set(re.findall(r"`(\w+)`", line)), line


def test_codes_of_the_registry_are_those_of_the_server():
    """Each code that the facade may answer with its status is in the table of codes; nothing else is."""
    sources = "".join(path.read_text() for path in sorted((REPO / "api" / "oci").glob("*.c")))
    answered = {(code, status) for status, code in
                re.findall(r'td_oci_fail\(&?(?:\w+->)*\w*oci, (\d+), "(\w+)"', sources)}
    answered |= {(code, "400") for code in re.findall(r'td_oci_write_fail\([^;]*?, "(\w+)"\);', sources)}
    answered |= {(code, status) for status, code in re.findall(r'\{(\d{3}), "(\w+)"\}', sources)}
    assert len(answered) > 12
    text = (REPO / "docs" / "registry.md").read_text()
    documented = {(code, status) for row in re.findall(r"^\| (`[A-Z_]+` \d{3}.*?) \|", text, re.MULTILINE)
                  for code, rest in re.findall(r"`([A-Z_]+)`([ \d,]+)", row) for status in re.findall(r"\d{3}", rest)}
    unknown = {("MANIFEST_UNKNOWN", "404"), ("BLOB_UNKNOWN", "404")}    # passed on by td_oci_fail_error
    assert documented == {*answered, *unknown, ("UNKNOWN", "500")}


def test_routes_are_those_of_the_server():
    """The values of the label `route`, against TD_ROUTES of http/response.h."""
    text = (REPO / "docs" / "configuration.md").read_text()
    line, = (line for line in text.splitlines() if line.startswith("| `route` |"))
    documented = re.findall(r"`(\w+)`", line.split("|")[3])
    routes = re.findall(r'ROUTE\(TD_ROUTE_\w+, "(\w+)"\)', (REPO / "http" / "response.h").read_text())
    assert len(routes) > 20 and sorted(documented) == sorted(routes)


def test_methods_of_the_schema_are_in_the_table():
    """Each method is in the table of docs/api.md, with its service."""
    text = (REPO / "docs" / "api.md").read_text()
    documented = {f"{service}.{name}" for service, rest in re.findall(r"^\| `(\w+Service)\.(.*?) \|", text, re.M)
                  for name in re.findall(r"\b[A-Z]\w+", rest)}
    protos = "".join(path.read_text() for path in (REPO / "api" / "proto" / "tensord" / "v1").glob("*.proto"))
    methods = {f"{service}.{name}" for service, body in re.findall(r"^service (\w+) \{(.*?)^\}", protos, re.M | re.S)
               for name in re.findall(r"^  rpc (\w+)\(", body, re.MULTILINE)}
    assert len(methods) > 10 and documented == methods


# Texts of the C library, libcurl and OpenSSL inside of our messages, and values that stand for any.
FOREIGN = ["Permission denied", "Address already in use", "Too many open files", "Cannot allocate memory",
           "SSL certificate problem", "certificate verify failed: unable to get local issuer certificate",
           "Read-only file system", "root missing", "too few models"]
# Fragments that the program puts together from several texts.
COMPOSED = {
    "takes a whole number from",                              # config_options.c: what an option takes
    "takes seconds, or a time such as",
    "takes bytes, or a size such as",
    "--state-dir: cannot write to",                           # or lock
    "N files changed less than --settle ago; they will be published once they are stable",      # or it is
    "N files are still refused, for the reasons logged above",  # or is
    "is not there: the index says that it is in",             # by partial_checkpoint.c
    "is not there: it may be in",
    "which is missing, or in N other missing or refused files",
    "the server answered 404, no model",                      # the server's message behind ours
    "there is a dataset of that id",                          # or a model
    "is a symbolic link, so",                                 # or not a directory
}
PLACEHOLDER = re.compile("|".join([r'"[^"]*"', r"\.\.\.", r"\b(?:FILE|DIR|path|name|file|reason|config\.json)\b(?=:| )",
                                   *FOREIGN]))


def bare(word):
    return word.strip(" :;,.()[]`'\"")


@functools.lru_cache
def program_words():
    """The words of all texts in the program. A NUL stands for what is put into a text when the program runs."""
    words = []
    for folder in print_tables.PROGRAM:
        for path in sorted((REPO / folder).rglob("*.[ch]")):
            source = re.sub(r"\bPRI\w+", '""', print_tables.strip_comments(path.read_text()))
            for literals in re.findall(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+', source):
                text = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', literals))
                text = re.sub(r"%[-0-9.*]*(?:ll|z|h|l)?[a-zA-Z]?", "\0", re.sub(r'\\["n]', " ", text))
                words += [*(bare(w) for w in text.split()), "|"]
    return words


def stand_together(fragment, words, places):
    """Whether the program has these words one behind the other; fewer than half of them may be put in."""
    wanted = [bare(w) for w in fragment.split()]
    fixed = [len(w) > 1 and not w.isdigit() for w in wanted]
    for at, word in enumerate(wanted):
        for place in places.get(word, ()):
            there = words[place - at:place - at + len(wanted)]
            if len(there) == len(wanted) and all(
                    w == t or "\0" in t and re.fullmatch(re.escape(t).replace("\0", ".*"), w)
                    for w, t in zip(wanted, there)):
                if sum(f and len(t.strip("\0")) > 1 for f, t in zip(fixed, there)) * 2 > sum(fixed):
                    return True
    return False


def is_said(fragment, words, places):
    """Whether the program has this text, as a whole or in parts of two and more words between commas and colons."""
    parts = [p for p in re.split("[,:;] ", fragment + " ") if len(bare(p)) >= 4]
    return stand_together(fragment, words, places) or (
        all(len(p.split()) >= 2 and stand_together(p, words, places) for p in parts))


# From and up to these headings and lines, the tables of docs/troubleshooting.md quote what the program says.
QUOTED = [("## It does not start", "From the Hub's clients"), ("From `tensord pull`:", "From clients of registries:"),
          ("## Tensors that cannot be served", "\n## ")]


@pytest.mark.parametrize("first, end", QUOTED)
def test_quoted_messages_are_those_of_the_program(first, end):
    """Each message that these tables quote stands in the program, word for word but for what varies."""
    words = program_words()
    places = {}
    for i, word in enumerate(words):
        places.setdefault(word, []).append(i)
    section = (REPO / "docs" / "troubleshooting.md").read_text().partition(first)[2].partition(end)[0]
    cells = [print_tables.cells_of(line)[0] for line in section.splitlines() if line[:1] == "|"]
    quoted = [q for cell in cells for q in re.findall(r"`([^`]+)`", cell)]
    assert len(quoted) >= 8
    fragments = {bare(f): q for q in quoted for f in PLACEHOLDER.split(q)}
    unknown = [f"{f!r} of {q!r}" for f, q in fragments.items()
               if len(f) >= 4 and f not in COMPOSED and not is_said(f, words, places)]
    assert not unknown, "\n".join(unknown)


FOLDERS = [*print_tables.PROGRAM, "clients", "tests", "scripts", "bench", "docker"]
# Names in backquotes that need not exist: a library's, and those that stand for any name.
NOT_OURS = {"MHD_quiesce_daemon", "TCP_DEFER_ACCEPT", "td_module_verb", "td_x"}


FOR_DEVELOPERS = ["architecture.md", "contributing.md", "extending.md", "reading.md", "sending.md"]


@functools.lru_cache
def words_of_sources():
    """Return the words of the program, the tests and the build, and the names of their files."""
    files = [p for f in FOLDERS for p in (REPO / f).rglob("*")]
    sources = [p for p in files if p.suffix in (".c", ".h", ".py", ".sh", ".txt", ".yaml") and p.name != "test_docs.py"]
    sources += [REPO / "CMakeLists.txt", *REPO.glob("*.sh")]
    return {p.stem for p in files} | set(re.findall(r"\w+", "\n".join(p.read_text() for p in sources)))


@pytest.mark.parametrize("name", FOR_DEVELOPERS)
def test_identifiers_exist(name):
    """Every word in backquotes with an underscore stands in the program, the tests or the build."""
    text = FENCE.sub("", (REPO / "docs" / name).read_text())
    words = re.findall(r"\b[A-Za-z]\w*_\w+(?!\w|\*|\.\.\.)", "\n".join(re.findall(r"`([^`]+)`", text)))
    named = {w for w in words if not re.search("NAME|FOLDER|MODULE|LIBRARY", w)}
    assert len(named) > 30
    unknown = sorted(named - words_of_sources() - NOT_OURS)
    assert not unknown, " ".join(unknown)


@pytest.mark.parametrize("name", [*FOR_DEVELOPERS, "slicing.md"])
def test_modules_are_where_the_pages_say(name):
    """Every path in backquotes that begins with a folder of the project is a file, a module or a folder."""
    text = FENCE.sub("", (REPO / "docs" / name).read_text())
    named = {w.rstrip("/") for w in re.findall(rf"`((?:{'|'.join([*FOLDERS, 'docs'])})/[\w./-]+)`", text)}
    missing = [w for w in sorted(named) if not re.search("NAME|FOLDER|MODULE|node_modules", w) and not any(
        (REPO / (w + end)).exists() for end in ("", ".c", ".h", ".py"))]
    assert named and not missing, missing


def headings(path):
    """Anchors as GitHub makes them."""
    text = FENCE.sub("", path.read_text())
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("path", DOCS, ids=lambda p: str(p.relative_to(REPO)))
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", path.read_text())):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        to = (path.parent / file).resolve() if file else path
        assert to.exists(), f"{path.name}: {target}"
        assert to.is_relative_to(REPO), f"{path.name}: {target}"
        if anchor:
            assert anchor in headings(to), f"{path.name}: {target}: there is {sorted(headings(to))}"


@pytest.mark.parametrize("path", DOCS, ids=lambda p: str(p.relative_to(REPO)))
def test_contents_name_every_section(path):
    """Where a page begins with a list of its sections, none is missing, and they stand in the page's order."""
    top, *sections = re.split(r"^## ", FENCE.sub("", path.read_text()), flags=re.MULTILINE)
    names = [section.partition("\n")[0] for section in sections]
    listed = [" ".join(name.split()) for name in re.findall(r"\[([^\]]+)\]\(#[^)]+\)", top)]
    if re.search(r"^- \[[^\]]+\]\(#", top, re.MULTILINE):
        assert [name for name in listed if name in names] == names


@pytest.mark.parametrize("path", sorted((REPO / "docs").glob("*.md")), ids=lambda p: p.name)
def test_pages_are_short(path):
    assert len(path.read_text().splitlines()) <= 400


def test_version_and_commit(srv):
    """The version is written in CMakeLists.txt alone; every other place takes it from there. The commit is Git's."""
    version = re.search(r"project\(tensord VERSION (\S+)", (REPO / "CMakeLists.txt").read_text())[1]
    out = subprocess.run([tensord_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    assert re.search(rf"\b{re.escape(version)}\b", out.splitlines()[0]), out
    assert srv.get("/version").json()["version"] == version
    assert srv.get("/openapi.json").json()["info"]["version"] == version
    _, _, samples = srv.metrics()
    labels, = (labels for name, labels, _ in samples if name == "tensord_build_info")
    told = re.search(r"\(commit (\S+)\)$", out.splitlines()[0])[1]
    assert labels == {"version": version, "commit": told} and srv.get("/version").json()["commit"] == told
    head = subprocess.run(["git", "-C", REPO, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    if head.returncode == 0:    # in a checkout; it may have new commits since the build
        assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?", told), told


def test_every_fuzz_target_is_in_the_table():
    """docs/contributing.md says of each target what it reads and what it compares with."""
    targets = {path.stem for path in (REPO / "tests" / "fuzz").glob("fuzz_*.c")}
    documented = rows((REPO / "docs" / "contributing.md").read_text(), r"fuzz_\w+")
    both = rows((REPO / "docs" / "contributing.md").read_text(), r"fuzz_\w+`, `fuzz_\w+")
    assert targets == {name for row in documented + both for name in re.findall(r"fuzz_\w+", row[0])}


def test_every_promise_of_security_has_a_test():
    """Each row of docs/security.md has a mark that a test has, or says that none shows it; no test has another mark."""
    text = (REPO / "docs" / "security.md").read_text()
    shown = list_promises.read_tests(REPO / "tests")
    assert list_promises.faults(text, shown) == []
    assert len(list_promises.read_promises(text)) > 220 and text.count("*not tested* |") <= 6


@pytest.mark.parametrize("change, fault", [
    ("| `file-truncated` |", "no test shows file-nobody"), ("`file-unlinked` |", "needs a mark or"),
    ("`file-replaced`", "has no promise file-replaced")])
def test_a_promise_without_a_test_is_found(change, fault):
    text = (REPO / "docs" / "security.md").read_text()
    assert text.count(change) == 1
    new = {"no test": "| `file-nobody` |", "needs a": "|", "has no ": "*not tested*"}[fault[:7]]
    found = list_promises.faults(text.replace(change, new), list_promises.read_tests(REPO / "tests"))
    assert any(fault in line for line in found), found


def test_the_lines_to_try_come_at_once(tmp_path):
    """serve.sh prints the lines to where the server writes its access log: in one write, after the last request."""
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "F32", [4])])
    age(tmp_path / "m/model.safetensors")
    ours, theirs = os.pipe()
    with Server(tmp_path) as s:
        s.wait_for(lambda: "indexed 1 model, 1 tensor in 1 file in " in s.stderr(), "the log of one of each")
        url = f"http://127.0.0.1:{s.port}"
        p = subprocess.Popen([sys.executable, REPO / "scripts/curl_lines.py", url, "m"], stdout=theirs)
        os.close(theirs)
        text = os.read(ours, 65536).decode()
        assert p.wait(30) == 0 and os.read(ours, 1) == b""
        os.close(ours)
        assert f"Serving {url} " in text and text.endswith("\n\n")
        lines = re.findall(r"^  (curl .*)$", text, re.MULTILINE)
        for line in lines:
            assert subprocess.run(
                ["bash", "-o", "pipefail", "-c", line.replace("curl ", "curl -fsS ", 1)], cwd=tmp_path,
                capture_output=True).returncode == 0, line
        assert len(lines) == 4 and names_in(tmp_path / "rank-0.safetensors") == {"w"}, text
        assert f"\n  HF_ENDPOINT={url} hf download local/m\n" in text and f"\nIn a browser: {url}/\n" in text, text
        assert s.get("/api/models/local/m").status == 200
        assert "tensord push" not in text
        p = subprocess.run([sys.executable, REPO / "scripts/curl_lines.py", url, "m", "--publish", "local"],
                           capture_output=True, text=True, check=True)
        assert f"\n  build/tensord push DIR {url} my/model\n" in p.stdout, p.stdout


def test_the_rank_file_to_try_is_a_part(tmp_path):
    """The lines name a model that vLLM can split, though it is not the first."""
    write_by_hand(tmp_path / "a/model.safetensors", [tensor("w", "F32", [4])])
    write_by_hand(tmp_path / "b/model.safetensors", [tensor("model.norm.weight", "F32", [8])])
    (tmp_path / "b/config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLM"], "num_attention_heads": 2, "hidden_size": 8}))
    age(tmp_path)
    with Server(tmp_path) as s:
        url = f"http://127.0.0.1:{s.port}"
        text = subprocess.run([sys.executable, REPO / "scripts/curl_lines.py", url], capture_output=True, text=True,
                              check=True).stdout
    assert f"curl {url}/models/a/tensors\n" in text and \
        f"{url}/models/b/shards/vllm/tp2/rank-0.safetensors\n" in text, text
    (tmp_path / "none").mkdir()
    with Server(tmp_path / "none") as s:
        text = subprocess.run([sys.executable, REPO / "scripts/curl_lines.py", f"http://127.0.0.1:{s.port}"],
                              capture_output=True, text=True, check=True).stdout
    assert "\nThere is no model with tensors yet. When there is one, try:\n" in text, text


def shell_blocks(path):
    """The document's sh blocks that ask a server on port 8080, by curl or by hf, or `tensord plan`."""
    for block in re.findall(r"^```sh\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
        if re.search(r"127\.0\.0\.1:8080[/\s]", block) or "tensord plan " in block:
            yield block


@pytest.mark.parametrize("name, least", [("README.md", 3), ("docs/slicing.md", 3)])
def test_examples_run_as_printed(tmp_path, name, least):
    """On the demo model that ./serve.sh makes in ./models, and one after the other.
    An error counts where curl hides it, too. README.md shows what its first example prints."""
    subprocess.run([sys.executable, REPO / "scripts/demo_model.py", tmp_path / "models/demo"], check=True)
    (tmp_path / "build").mkdir()
    (tmp_path / "build/tensord").symlink_to(tensord_binary())
    blocks = list(shell_blocks(REPO / name))
    assert len(blocks) >= least, blocks
    env = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "NO_PROXY": "127.0.0.1",
           "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    curl = "set -e -o pipefail\ncurl() { command curl -fsS --noproxy '*' \"$@\"; }\n"
    with Server(tmp_path / "models", "--publish", "local") as s:     # as ./serve.sh does for its demo
        printed = re.search(r"^```sh\n[^`]*^```\n\n```\n(.*?)^```", (REPO / name).read_text(), re.MULTILINE | re.DOTALL)
        for block in blocks:
            p = subprocess.run(["bash", "-c", curl + block.replace("127.0.0.1:8080", f"127.0.0.1:{s.port}")],
                               cwd=tmp_path, capture_output=True, text=True, timeout=60, env=env)
            assert p.returncode == 0, f"{block}\n{p.stderr}"
            if name == "README.md" and block == blocks[0]:
                assert p.stdout == printed[1], p.stdout
    if name == "README.md":
        assert np.load(tmp_path / "part.npy").tolist() == list(range(16))
        assert len(list((tmp_path / "hf").rglob("snapshots/*/model.safetensors"))) == 2, "main and safetensors"
        pushed, = (tmp_path / "models/models--my--model/snapshots").glob("*/model.safetensors")
        assert pushed.read_bytes() == (tmp_path / "models/demo/model.safetensors").read_bytes()
    else:
        assert (tmp_path / "rows.bin").stat().st_size == 4 * 8 * 2
        assert names_in(tmp_path / "some.safetensors") == {"model.norm.weight", "head"}
