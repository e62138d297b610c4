"""Versions of a model in the Python client: of sibling folders, and of a Hub cache."""
import hashlib
import json
import os
import pickle
import threading
import time

import harness
import pytest
import torch
from conftest import bytes_of, url_of
from safetensors.torch import save_file
from test_hostile_server import answer, hostile  # noqa: F401

import tensord
from tensord.__main__ import main

FIRST, SECOND, THIRD = "weight_v000001", "weight_v000002", "weight_v000010"


def publish(root, version, value, model="run"):
    """Write a version beside its siblings, by one rename, as a trainer does."""
    folder = root / model / version
    staging = root / f".{version}"
    staging.mkdir(parents=True)
    save_file({"w": torch.full((64, 64), float(value)), "v": torch.full((3,), float(value))},
              staging / "model.safetensors")
    (staging / "config.json").write_text(json.dumps({"value": value}))
    harness.age(staging)
    folder.parent.mkdir(exist_ok=True, parents=True)
    staging.rename(folder)


@pytest.fixture
def family(serve):
    """A server of three versions of `run`, each with its number in all of its tensors."""
    for version, value in ((FIRST, 1), (SECOND, 2), (THIRD, 10)):
        publish(serve.root, version, value)
    return serve()


def value_of(model):
    values = {tensor.flatten()[0].item() for tensor in model.state_dict().values()}
    assert len(values) == 1
    return values.pop()


@pytest.mark.parametrize("version, value", [
    (FIRST, 1), (SECOND, 2), ("1", 1), ("2", 2), ("10", 10), ("latest", 10), (THIRD, 10),
])
def test_every_url_of_a_model_names_a_version(family, version, value):
    origin = f"127.0.0.1:{family.port}"
    for url in (f"tensord://{origin}/run?version={version}", f"http://{origin}/models/run?version={version}"):
        model = tensord.open_model(url)
        assert value_of(model) == value
        assert model.version == {1: FIRST, 2: SECOND, 10: THIRD}[value] and model.id == "run"
    assert tensord.load_file(url)["v"].tolist() == [value] * 3
    assert tensord.connect(url).model().version == model.version
    assert tensord.connect(origin_of(family)).model("run", version=version).version == model.version
    assert tensord.load_rank(url, "none", 1, 0)["w"][0, 0].item() == value
    into = {"w": torch.zeros(64, 64), "v": torch.zeros(3)}
    tensord.load_into(into, url)
    assert into["w"][5, 5].item() == value
    with tensord.safe_open(url) as file:
        assert file.get_tensor("v").tolist() == [value] * 3
    assert tensord.read_boxes(url, [("w", (slice(2, 3), slice(0, 1)))])[0].item() == value


def origin_of(server):
    return f"tensord://127.0.0.1:{server.port}"


def test_a_version_has_the_bytes_and_the_tag_of_its_folder(family):
    family.wait_hashed()
    named, folder = tensord.open_model(url_of(family, f"run?version={SECOND}")), tensord.open_model(
        url_of(family, f"run/{SECOND}"))
    assert named.manifest().etag == folder.manifest().etag
    assert named.read_bytes("w") == folder.read_bytes("w")
    assert folder.version is None and folder.asked_version is None


def test_the_list_of_versions(family):
    model = tensord.connect(origin_of(family)).model("run")
    rows = model.versions()
    assert [(row["version"], row["number"], row["kind"], row["base"]) for row in rows] == [
        (FIRST, 1, "full", None), (SECOND, 2, "full", None), (THIRD, 10, "full", None)]
    assert all(row["total_bytes"] == 64 * 64 * 4 + 12 and row["file_bytes"] > row["total_bytes"] for row in rows)
    assert tensord.open_model(url_of(family, f"run/{FIRST}")).versions() == []


def test_other_versions_of_a_model(family):
    model = tensord.open_model(url_of(family, f"run?version={FIRST}"))
    assert value_of(model.at(SECOND)) == 2 and value_of(model.at(10)) == 10 and value_of(model.at("latest")) == 10
    assert value_of(model) == 1 and model.version == FIRST
    assert model.names("w*") == ["w"]
    for wrong in ("", None, 1.5, True):
        with pytest.raises(ValueError, match="a version is a name or a number"):
            model.at(wrong)


def test_latest_stays_until_refresh(family, serve):
    model = tensord.open_model(url_of(family, "run?version=latest"))
    assert model.version == THIRD
    publish(serve.root, "weight_v000011", 11)
    assert model.wait_version(timeout=20) == "weight_v000011"
    assert model.version == THIRD and value_of(model) == 10
    assert model.names("*") == ["v", "w"] and value_of(pickle.loads(pickle.dumps(model))) == 10
    assert value_of(model.with_options(connections=1)) == 10
    model.refresh()
    assert model.version == "weight_v000011" and value_of(model) == 11


def test_unknown_versions_are_named(family):
    for version in ("weight_v000009", "9", "main", "x/y", "?&=#"):
        model = tensord.connect(origin_of(family)).model("run").at(version)
        with pytest.raises(tensord.NotFoundError) as caught:
            model.manifest()
        assert THIRD in str(caught.value) and {FIRST, THIRD} <= set(caught.value.details["known"])
    with pytest.raises(tensord.NotFoundError):
        tensord.load_file(url_of(family, "run"))
    with pytest.raises(tensord.NotFoundError):
        tensord.open_model(url_of(family, "none")).versions()


def test_waiting_for_a_version(family, serve):
    model = tensord.connect(origin_of(family)).model("run")
    assert model.wait_version() == THIRD  # it has no version of its own
    assert model.wait_version(after=FIRST) == THIRD and model.wait_version(after=2) == THIRD
    for after in (THIRD, 10, "10"):
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="run has no version after"):
            model.wait_version(after, timeout=0.5)
        assert time.monotonic() - began >= 0.5
    threading.Timer(0.5, publish, (serve.root, "weight_v000012", 12)).start()
    assert model.wait_version(THIRD, timeout=30) == "weight_v000012"
    assert value_of(model.at("latest")) == 12
    with pytest.raises(tensord.NotFoundError):
        tensord.connect(origin_of(family)).model("none").wait_version(timeout=5)


def test_it_waits_in_few_requests(family):
    """A wait is one request, not a loop of them."""
    model = tensord.open_model(url_of(family, "run?version=latest"))
    with pytest.raises(TimeoutError):
        model.wait_version(timeout=5)
    assert family.whole_log().count("/models/run/versions") <= 4  # with one each second there were 6


@pytest.fixture
def changing(serve):
    """A server of two versions: `frozen` is the same, `trained` has other values, `new` and `old` are in one each."""
    frozen = torch.arange(100_000.0)
    for version, value, other in ((FIRST, 1.0, "old"), (SECOND, 2.0, "new")):
        folder = serve.root / "run" / version
        folder.mkdir(parents=True)
        save_file({"frozen": frozen, "trained": torch.full((3000,), value), other: torch.zeros(5)},
                  folder / "model.safetensors")
    harness.age(serve.root)
    return serve()


def test_what_changed_between_versions(changing):
    model = tensord.open_model(url_of(changing, f"run?version={SECOND}"))
    for since in (FIRST, 1, "1"):
        found = model.changes(since)
        assert [row["name"] for row in found["changed"]] == ["trained"] and found["removed"] == ["old"]
        assert [row["name"] for row in found["added"]] == ["new"] and found["since"] == FIRST
        assert (found["same"], found["same_bytes"], found["changed_bytes"]) == (1, 400_000, 12_000)
    expected = hashlib.sha256(torch.full((3000,), 2.0).numpy().tobytes()).hexdigest()
    assert found["changed"][0]["sha256"] == expected
    assert model.changes(SECOND)["changed"] == []
    assert tensord.connect(origin_of(changing)).model("run").changes(1)["version"] == SECOND
    with pytest.raises(tensord.NotFoundError, match=FIRST):
        model.changes("weight_v000009")


@pytest.mark.parametrize("as_module", [False, True])
def test_a_load_reads_only_what_changed(changing, as_module):
    url = url_of(changing, "run?version=latest")
    held = tensord.load_file(url_of(changing, f"run?version={FIRST}"))
    del held["old"]
    held["new"] = torch.ones(5)
    held["frozen"][7] = -1.0  # shows that this tensor is not read
    target = held
    if as_module:
        target = torch.nn.Module()
        for name, tensor in held.items():
            target.register_buffer(name, tensor)
    before = bytes_of(changing, "boxes.bin") + bytes_of(changing, "tensors:read")
    assert tensord.load_into(target, url, since=FIRST) == ([], [])
    assert bytes_of(changing, "boxes.bin") + bytes_of(changing, "tensors:read") - before == 12_000 + 20
    assert held["trained"].eq(2).all() and held["new"].eq(0).all() and held["frozen"][7] == -1
    assert tensord.load_into(target, url, since=SECOND, verify=True) == ([], [])
    tensord.load_into(target, url)
    assert held["frozen"][7] == 7


def test_a_load_of_changes_checks_as_ever(changing):
    model = tensord.open_model(url_of(changing, "run?version=latest"))
    target = {"frozen": torch.zeros(7), "trained": torch.zeros(3000), "new": torch.zeros(5)}
    with pytest.raises(tensord.MismatchError, match="frozen has shape"):
        model.load_into(target, since=FIRST)
    assert target["trained"].eq(0).all()
    with pytest.raises(tensord.MismatchError, match="missing|unexpected"):
        model.load_into({"trained": torch.zeros(3000)}, since=FIRST)
    with pytest.raises(tensord.NotFoundError):
        model.load_into({"trained": torch.zeros(3000)}, strict=False, since="9")
    target["frozen"] = torch.zeros(100_000)
    with pytest.raises(ValueError, match="opened without"):
        tensord.open_model(url_of(changing, f"run/{SECOND}")).load_into(target, since=FIRST)
    assert target["trained"].eq(0).all()


@pytest.mark.parametrize("found", [
    [], {}, {"changed": [], "added": [], "removed": [1]}, {"changed": {}, "added": [], "removed": []},
    {"changed": [{"name": 1}], "added": [], "removed": []}, {"changed": [], "added": ["w"], "removed": []},
])
# shows: security.md python-lists
def test_changes_that_are_malformed(hostile, found):  # noqa: F811
    hostile.answers["GET"] = answer(found)
    with pytest.raises(tensord.ProtocolError):
        tensord.open_model(hostile.url).changes(1)


def test_versions_of_a_hub_cache(serve):
    """Snapshots are versions; their names are commits and refs."""
    commits = ["1" * 40, "2" * 40]
    cache = serve.root / "models--org--m"
    (cache / "refs").mkdir(parents=True)
    for number, commit in enumerate(commits, 1):
        publish(serve.root, commit, number, "models--org--m/snapshots")
    (cache / "refs" / "main").write_text(commits[0])
    (cache / "refs" / "step-2").write_text(commits[1])
    harness.age(serve.root)
    server = serve()
    model = tensord.open_model(url_of(server, "org/m"))
    assert value_of(model) == 1 and model.version is None
    assert value_of(model.at(commits[1])) == 2 and value_of(model.at("step-2")) == 2 and value_of(model.at(2)) == 2
    assert value_of(model.at("main")) == 1 and value_of(model.at(commits[0])) == 1
    assert model.at(commits[1]).version == "step-2"
    assert {tuple(row["refs"]) for row in model.versions()} == {("main",), ("step-2",)}
    with pytest.raises(TimeoutError):
        model.wait_version(commits[1], timeout=0.3)


def test_files_of_a_version(family):
    from tensord import transformers

    for version, value in ((FIRST, 1), ("latest", 10)):
        model = tensord.open_model(url_of(family, f"run?version={version}"))
        assert transformers._read_json(model, "config.json") == {"value": value}


def test_a_checkpoint_file_of_a_version(family):
    import tensord.safetensors

    with tensord.safetensors.safe_open(url_of(family, f"run/model.safetensors?version={SECOND}"), "pt") as file:
        assert file.get_tensor("v").tolist() == [2.0] * 3


@pytest.mark.parametrize("query, text", [
    ("version=", "empty version"), ("step=1", "checkpoint= and version= are allowed"),
    ("version=1&split=a", "checkpoint= and version= are allowed"),
])
def test_urls_that_are_refused(query, text):
    with pytest.raises(tensord.AddressError, match=text):
        tensord.open_model(f"tensord://h/m?{query}")
    with pytest.raises(tensord.AddressError, match="only split= is allowed"):
        tensord.connect("tensord://h/datasets/d?version=1")


def test_what_takes_no_version(tmp_path):
    with pytest.raises(tensord.AddressError, match="nothing after a question mark"):
        tensord.push(str(tmp_path), "tensord://h/org/m?version=1")
    with pytest.raises(tensord.AddressError, match="wait_version"):
        tensord.connect("tensord://h/m?version=latest").watch()


@pytest.mark.parametrize("name", ["a b", "x/../y", "a&b=c#d", "\u00e9", "%2e"])
def test_names_are_encoded_in_requests(hostile, name):  # noqa: F811
    hostile.answers["GET"] = answer({"error": {"code": 404, "status": "NOT_FOUND", "message": "no"}},
                                    "HTTP/1.1 404 Not Found")
    with pytest.raises(tensord.NotFoundError):
        tensord.connect(hostile.url).model().at(name).manifest()
    from urllib.parse import parse_qs, urlsplit

    assert parse_qs(urlsplit(hostile.seen[0].split(" ")[1]).query) == {"version": [name]}


GOOD = {"version": "v1", "number": 1, "kind": "full", "base": None, "href": "/models/m?version=v1", "total_bytes": 1,
        "file_bytes": 1, "updated": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize("page", [
    [], {"versions": {}}, {"versions": [1]}, {"versions": [{**GOOD, "version": 1}]}, {"versions": [{**GOOD,
     "number": "1"}]}, {"versions": [{**GOOD, "href": None}]}, {"versions": [{**GOOD, "file_bytes": None}]},
    {"versions": [GOOD], "latest": 1}, {"versions": [], "latest": ["v1"]},
])
# shows: security.md python-lists
def test_lists_that_are_malformed(hostile, page):  # noqa: F811
    hostile.answers["GET"] = answer(page, 'HTTP/1.1 200 OK\r\nETag: "x"')
    for call in (lambda model: model.versions(), lambda model: model.wait_version(timeout=1)):
        with pytest.raises(tensord.ProtocolError):
            call(tensord.open_model(hostile.url))


def test_a_list_that_is_the_same_at_once_is_not_asked_for_in_a_loop(hostile):  # noqa: F811
    hostile.answers["GET"] = answer({"versions": [GOOD], "latest": "v1"}, 'HTTP/1.1 200 OK\r\nETag: "x"')
    with pytest.raises(TimeoutError):
        tensord.open_model(hostile.url).wait_version("v1", timeout=1.5)
    assert len(hostile.seen) <= 5


@pytest.mark.parametrize("version", [None, 7, ["x"]])
def test_a_manifest_without_its_version(hostile, version):  # noqa: F811
    hostile.answers["GET"] = answer({"model": "m", "checkpoint": "c", "format": "safetensors", "etag": "ab",
                                     "metadata": {}, "tensors": [], "version": version})
    with pytest.raises(tensord.ProtocolError):
        tensord.open_model(hostile.url + "?version=latest").manifest()


def test_the_command_lists_versions(family, capsys):
    assert main(["versions", url_of(family, "run")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["version", "number", "kind", "size", "updated"]
    assert [line.split()[:3] for line in lines[1:]] == [[FIRST, "1", "full"], [SECOND, "2", "full"],
                                                        [THIRD, "10", "full"]]
    assert lines[3].endswith("latest") and len({line.index("full") for line in lines[1:]}) == 1
    assert main(["versions", url_of(family, "run"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["latest"] == THIRD and [row["number"] for row in said["versions"]] == [1, 2, 10]
    assert main(["ls", url_of(family, f"run?version={SECOND}")]) == 0
    assert f"version {SECOND}" in capsys.readouterr().out
    assert main(["ls", url_of(family, "run?version=9")]) == 1
    assert THIRD in capsys.readouterr().err


def test_a_lora_adapter_of_a_version(serve, tmp_path):
    """The resolver of adapters takes the latest version, or the one after "@"."""
    from test_lora import BASE, value_of, write_adapter

    from tensord.engines import adapters

    for number in (1, 2):
        write_adapter(serve.root / "lora" / "a" / f"step-{number}", number)
    harness.age(serve.root)
    server = serve()
    found = adapters.Adapters(url_of(server, "lora"), str(tmp_path / "cache"))
    assert value_of(found.find("a", BASE)) == 2
    assert value_of(found.find("a@step-1", BASE)) == 1 and value_of(found.find("a@1", BASE)) == 1
    assert found.find("a@3", BASE) is None and found.find("a@latest", BASE) == found.find("a", BASE)
    sent = bytes_of(server, "/files/")
    write_adapter(serve.root / ".new", 3)
    harness.age(serve.root / ".new")
    (serve.root / ".new").rename(serve.root / "lora" / "a" / "step-3")
    server.wait_for(lambda: value_of(found.find("a", BASE)) == 3, "the new version")
    assert bytes_of(server, "/files/") > sent
    assert os.listdir(found.find("a@2", BASE))
