"""`tensord follow`: a directory that is kept at the newest version of a model, by whole versions and by deltas."""
import contextlib
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

import numpy as np
import pytest
from safetensors.numpy import save_file

from deltas import INDEX, assert_equal, read_full, step, tensors, write_delta, write_full
from harness import Server, age, temporary_directory, tensord_binary
from pulls import MIB, PacedRelay, environment, outputs_of, tree_of
from pushes import push

MARK = ".tensord-follow"


def command(url, *args, model="run"):
    return [tensord_binary(), "follow", url, model, *map(str, args)]


def once(url, *args, code=0, **kw):
    """Run the command with --once. Return the object and standard error."""
    p = subprocess.Popen(command(url, *args, "--once", "--json", "--retry-for", "3s", **kw), text=True,
                         env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = outputs_of(p, code, 120)
    return json.loads(out) if code != 2 else None, err


class Follower:
    """A command that runs until the test ends it. Its output goes to files."""

    def __init__(self, url, *args, **kw):
        self.place = temporary_directory(self, "tensord-follow-")
        self.out, self.err = (os.path.join(self.place, name) for name in ("out", "err"))
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.p = subprocess.Popen(command(url, *args, "--json", **kw), env=environment(), stdout=out, stderr=err)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.p.poll() is None:
            self.p.terminate()
        code = self.p.wait(timeout=60)
        if exc[0] is None:
            assert code == 1, self.said()
            assert "Sanitizer" not in self.said() and "runtime error" not in self.said(), self.said()

    def said(self):
        with open(self.err, encoding="utf-8") as f:
            return f.read()

    def reports(self):
        with open(self.out, encoding="utf-8") as f:
            return [json.loads(line) for line in f.read().splitlines(keepends=True) if line.endswith("\n")]

    def wait(self, test, what, timeout=60):
        end = time.monotonic() + timeout
        while not test():
            assert self.p.poll() is None, f"ended with {self.p.returncode}: {self.said()}"
            assert time.monotonic() < end, f"{what} not in {timeout} s: {self.reports()}\n{self.said()}"
            time.sleep(0.02)

    def wait_version(self, name):
        self.wait(lambda: any(r.get("version") == name for r in self.reports()), name)


def add(folder, value, size=1000):
    """Write a version as trainers do: under another name, then renamed."""
    hidden = folder.parent / f".{folder.name}"
    hidden.mkdir(parents=True)
    save_file({"w": np.full(size, value, np.float32)}, hidden / "model.safetensors")
    (hidden / "config.json").write_text(json.dumps({"value": value}))
    age(hidden)
    hidden.rename(folder)


def names(out):
    return sorted(name for name in os.listdir(out) if not name.startswith("."))


def check(out, name, source, model="run"):
    """The link leads to the version, which has the files of the source."""
    assert os.readlink(out / "latest") == name
    tree = tree_of(out / name)
    assert tree.pop(MARK) == f"{model} at {name}".encode()
    assert tree == tree_of(source)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out/deep"


def url_of(server):
    return f"http://127.0.0.1:{server.port}"


# ------------------------------------------------------------------------------------------------ whole versions

def test_once(serve, out):
    add(serve.root / "run/step-9", 9)
    add(serve.root / "run/step-10", 10)
    s = serve()
    report, err = once(url_of(s), "-o", out)
    check(out, "step-10", serve.root / "run/step-10")
    assert names(out) == ["latest", "step-10"] and err == ""
    size = sum(map(len, tree_of(serve.root / "run/step-10").values()))
    assert report == {"model": "run", "complete": True, "version": "step-10", "previous": "",
                      "directory": str(out / "step-10"), "new": True, "deltas": 0, "fetched_bytes": size,
                      "seconds": report["seconds"]}
    again, _ = once(url_of(s), "-o", out)
    assert (again["new"], again["fetched_bytes"], again["version"]) == (False, 0, "step-10")


def test_new_versions_come_and_older_ones_go(serve, out):
    add(serve.root / "run/step-1", 1)
    s = serve()
    (out / "mine").mkdir(parents=True)
    (out / "mine/file").write_text("mine")
    (out / "step-0").mkdir()
    with Follower(url_of(s), "-o", out) as f:
        for i in range(1, 6):
            if i > 1:
                add(serve.root / f"run/step-{i}", i)
            f.wait_version(f"step-{i}")
            check(out, f"step-{i}", serve.root / f"run/step-{i}")
        f.wait(lambda: names(out) == ["latest", "mine", "step-0", "step-4", "step-5"], "the versions that are kept")
        assert [r["previous"] for r in f.reports()] == ["", "step-1", "step-2", "step-3", "step-4"]
    assert (out / "mine/file").read_text() == "mine"
    assert not list((out / MARK / "trash").iterdir()) and not list((out / MARK / "new").iterdir())


def test_keep_counts_from_the_version_that_came_last(serve, out):
    """The newest version is taken back: the link goes back to the one before, which is there."""
    s = serve()
    with Follower(url_of(s), "-o", out, "--keep", "3") as f:
        for i in (1, 2, 3, 4):
            add(serve.root / f"run/step-{i}", i)
            f.wait_version(f"step-{i}")
        shutil.rmtree(serve.root / "run/step-4")
        f.wait(lambda: f.reports()[-1]["version"] == "step-3", "the version before")
        assert os.readlink(out / "latest") == "step-3" and f.reports()[-1]["fetched_bytes"] == 0
        f.wait(lambda: names(out) == ["latest", "step-2", "step-3", "step-4"], "three versions")


def test_follow_begins_before_the_model_is_there(serve, out):
    s = serve()
    with Follower(url_of(s), "-o", out) as f:
        time.sleep(0.5)
        add(serve.root / "run/v1", 1)
        f.wait_version("v1")


def test_a_cache_with_pushes(serve, tmp_path, out):
    """Versions that are pushed, each as a ref of one model."""
    with Server(serve.root, "--publish", "local") as server, \
            Follower(url_of(server), "-o", out, model="org/run") as f:
        for i in (1, 2):
            source = tmp_path / f"source{i}"
            source.mkdir()
            save_file({"w": np.full(100, i, np.float32)}, source / "model.safetensors")
            push(source, url_of(server), "--revision", f"weight_v{i:06d}", model="org/run")
            f.wait_version(f"weight_v{i:06d}")
            check(out, f"weight_v{i:06d}", source, "org/run")


def test_restart_of_the_server(serve, out):
    """The port answers no longer, then another server answers there."""
    add(serve.root / "run/step-1", 1)
    s = serve()
    with PacedRelay(s.port) as relay, Follower(url_of(relay), "-o", out, "--retry-for", "1s") as f:
        f.wait_version("step-1")
        s.stop()
        f.wait(lambda: "gave up" in f.said(), "the first giving up")
        add(serve.root / "run/step-2", 2)
        relay.to = serve().port
        f.wait_version("step-2")


def test_kill_at_any_moment(serve, out):
    """Whatever is killed, DIR has whole versions alone; the next run fetches only what is missing."""
    size = 3 * MIB
    add(serve.root / "run/step-1", 1, size)
    s = serve()
    with PacedRelay(s.port, pace=8 * MIB) as relay:
        for delay in (0.3, 0.6, 0.9):
            p = subprocess.Popen(command(url_of(relay), "-o", out, "--once", "--quiet"), env=environment())
            time.sleep(delay)
            p.kill()
            p.wait()
            if (out / "latest").is_symlink():
                check(out, "step-1", serve.root / "run/step-1")
            else:
                assert not out.exists() or names(out) == []
        relay.pace = None
        report, _ = once(url_of(relay), "-o", out)
    check(out, "step-1", serve.root / "run/step-1")
    assert report["fetched_bytes"] < 4 * size
    assert not list((out / MARK / "new").iterdir())


def test_leftovers_of_an_older_version_go(serve, out):
    """A version that was being fetched when the next one came is not kept."""
    add(serve.root / "run/step-1", 1, 3 * MIB)
    s = serve()
    with PacedRelay(s.port, pace=4 * MIB) as relay:
        p = subprocess.Popen(command(url_of(relay), "-o", out, "--once", "--quiet"), env=environment())
        end = time.monotonic() + 60
        while not list((out / MARK / "new").glob("*/.*part")) and time.monotonic() < end:
            time.sleep(0.02)
        p.kill()
        p.wait()
    assert os.listdir(out / MARK / "new") == [".step-1.tensord-pull"]
    add(serve.root / "run/step-2", 2)
    s.wait_for(lambda: s.json("/models/run/versions")["latest"] == "step-2", "the new version")
    once(url_of(s), "-o", out)
    check(out, "step-2", serve.root / "run/step-2")
    assert names(out) == ["latest", "step-2"] and os.listdir(out / MARK / "new") == []


# --------------------------------------------------------------------------------------------------------- deltas

class Run:
    """Versions of a run: a whole one and after it deltas, with the tensors of each."""

    def __init__(self, at):
        self.at, self.all = at, [tensors()]
        age(write_full(at / "weight_v000000", self.all[0]))

    def add(self):
        number = len(self.all)
        new = step(self.all[-1], seed=number)
        hidden = write_delta(self.at / f".{number}", self.all[-1], new, f"{number:06d}", f"{number - 1:06d}")
        age(hidden)
        hidden.rename(self.at / f"weight_v{number:06d}")
        self.all.append(new)

    def check(self, out, number):
        name = f"weight_v{number:06d}"
        assert os.readlink(out / "latest") == name
        assert_equal(read_full(out / name)[0], self.all[number])


def test_deltas(serve, out):
    """The first time the whole version and three deltas, then a delta at a time from the version that is there."""
    run = Run(serve.root / "run")
    for _ in range(3):
        run.add()
    s = serve()
    report, _ = once(url_of(s), "-o", out, "--apply")
    run.check(out, 3)
    assert (report["version"], report["deltas"]) == ("weight_v000003", 3)
    assert names(out) == ["latest", "weight_v000000", "weight_v000003"]
    with Follower(url_of(s), "-o", out, "--apply", "--keep", "1") as f:
        for i in (4, 5):
            run.add()
            f.wait_version(f"weight_v{i:06d}")
            run.check(out, i)
            assert f.reports()[-1]["deltas"] == 1
        size = sum(map(len, tree_of(serve.root / "run/weight_v000005").values()))
        assert f.reports()[-1]["fetched_bytes"] == size
        f.wait(lambda: names(out) == ["latest", "weight_v000005"], "one version")
        assert not list((out / MARK / "deltas").iterdir())


def test_a_whole_version_after_deltas(serve, out):
    run = Run(serve.root / "run")
    run.add()
    s = serve()
    once(url_of(s), "-o", out, "--apply")
    run.check(out, 1)
    write_full(serve.root / "run/.2", run.all[0])
    age(serve.root / "run/.2")
    (serve.root / "run/.2").rename(serve.root / "run/weight_v000002")
    s.wait_for(lambda: s.json("/models/run/versions")["latest"] == "weight_v000002", "the new version")
    report, _ = once(url_of(s), "-o", out, "--apply")
    assert (report["version"], report["deltas"]) == ("weight_v000002", 0)
    check(out, "weight_v000002", serve.root / "run/weight_v000002")


def test_without_apply_deltas_are_passed_over(serve, out):
    run = Run(serve.root / "run")
    run.add()
    report, _ = once(url_of(serve()), "-o", out)
    assert report["version"] == "weight_v000000"
    run.check(out, 0)


def test_a_delta_whose_base_is_not_there(serve, out):
    run = Run(serve.root / "run")
    run.add()
    run.add()
    shutil.rmtree(serve.root / "run/weight_v000001")
    report, err = once(url_of(serve()), "-o", out, "--apply", code=1)
    assert "weight_v000002 changes \"000001\", which the server does not list" in err
    assert not report["complete"] and not (out / "latest").is_symlink()


def test_a_damaged_delta_changes_nothing(serve, out):
    """The checksum of a changed tensor is wrong: the version before stays, and the next whole one is taken."""
    run = Run(serve.root / "run")
    s = serve()
    once(url_of(s), "-o", out, "--apply")
    run.all[0] = {n: a.copy() for n, a in run.all[0].items()}
    run.all[0]["scalar"] += 1          # the writer's base is another one
    run.add()
    s.wait_for(lambda: len(s.json("/models/run/versions")["versions"]) == 2, "the delta")
    _, err = once(url_of(s), "-o", out, "--apply", code=1)
    assert "checksum" in err
    assert os.readlink(out / "latest") == "weight_v000000" and names(out) == ["latest", "weight_v000000"]


# ----------------------------------------------------------------------------------------------------------- exec

TELL = 'echo "$TENSORD_VERSION|$TENSORD_PREVIOUS|$TENSORD_DIR|$(readlink "$TENSORD_DIR/../latest")" >> "$LOG"'


def test_exec(serve, tmp_path, out, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("LOG", str(log))
    monkeypatch.setenv("TENSORD_VERSION", "another")
    add(serve.root / "run/step-1", 1)
    s = serve()
    with Follower(url_of(s), "-o", out, "--exec", TELL + "; echo noise; exit 3") as f:
        f.wait(lambda: "--exec for step-1 ended with status 3" in f.said(), "the first report")
        add(serve.root / "run/step-2", 2)
        f.wait(lambda: "--exec for step-2 ended with status 3" in f.said(), "the second report")
    assert log.read_text().splitlines() == [f"step-1||{out}/step-1|step-1", f"step-2|step-1|{out}/step-2|step-2"]
    assert "noise" in f.said()
    # it runs once for a version, also over runs
    once(url_of(s), "-o", out, "--exec", TELL)
    assert len(log.read_text().splitlines()) == 2
    add(serve.root / "run/step-3", 3)
    s.wait_for(lambda: s.json("/models/run/versions")["latest"] == "step-3", "the new version")
    report, _ = once(url_of(s), "-o", out, "--exec", "kill -9 $$", code=1)
    assert report["complete"] and report["version"] == "step-3"


def test_exec_that_was_killed_runs_again(serve, tmp_path, out, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("LOG", str(log))
    add(serve.root / "run/step-1", 1)
    s = serve()
    with Follower(url_of(s), "-o", out, "--exec", TELL + "; sleep 100") as f:
        f.wait(log.exists, "the command")
        f.p.terminate()
        f.p.wait(timeout=60)
    once(url_of(s), "-o", out, "--exec", TELL)
    assert len(log.read_text().splitlines()) == 2


# ------------------------------------------------------------------------------------------------ what is refused

class Hostile(http.server.ThreadingHTTPServer):
    """Answers a list of versions that the test gives, and 404 to the rest."""
    daemon_threads = True

    def __init__(self, body):
        super().__init__(("127.0.0.1", 0), HostileAnswers)
        self.body, self.asked, self.port = body, [], self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __exit__(self, *exc):
        self.shutdown()
        self.server_close()


class HostileAnswers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        is_list = self.path.startswith("/models/run/versions")
        body = self.server.body if is_list else b"{}"
        self.send_response(200 if is_list else 404)
        self.send_header("ETag", '"a"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *args):
        pass


def listed(latest, **row):
    rows = [{"version": latest, "number": 1, "kind": "full", "base": None, **row}]
    return json.dumps({"model": "run", "latest": latest, "versions": rows, "next_page_token": ""}).encode()


@pytest.mark.parametrize("args", [[], ["--apply"]])
@pytest.mark.parametrize("name", ["..", "../up", "/etc", ".tensord-follow", ".hidden", "latest", "-rf", "a/b", "a\\b",
                                  "a\nb", "", "x" * 201, ".", "a\x00b"])
def test_names_that_leave_the_directory(tmp_path, out, name, args):
    with Hostile(listed(name)) as hostile:
        report, err = once(url_of(hostile), "-o", out, *args, code=1)
        assert all(path.startswith("/models/run/versions") for path in hostile.asked)
    assert not report["complete"] and len(err.splitlines()) == 1
    assert names(out) == [] and os.listdir(tmp_path) == ["out"] and os.listdir(tmp_path / "out") == ["deep"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"versions": 1}', b'{"latest": 1, "versions": []}',
                                  b'{"latest": null, "versions": [1]}', b"[" * 100000,
                                  b'{"latest": null, "versions": [{"version": "v1"}]}',
                                  b'{"latest": "v1", "versions": [], "next_page_token": "x"'])
def test_lists_that_are_wrong(out, body):
    with Hostile(body) as hostile:
        report, err = once(url_of(hostile), "-o", out, "--apply", code=1)
    assert "list of versions" in err and report["error"] in err


def test_a_list_that_never_ends(out):
    body = json.dumps({"latest": None, "versions": [], "next_page_token": "again"}).encode()
    with Hostile(body) as hostile:
        _, err = once(url_of(hostile), "-o", out, "--apply", code=1)
    assert "more than 4096 pages" in err


def test_deltas_that_change_one_another(out):
    rows = [{"version": f"v{i}", "number": i, "kind": "delta", "base": f"v{3 - i}"} for i in (1, 2)]
    body = json.dumps({"model": "run", "latest": None, "versions": rows, "next_page_token": ""}).encode()
    with Hostile(body) as hostile:
        _, err = once(url_of(hostile), "-o", out, "--apply", code=1)
    assert "changes it in turn" in err


def test_a_list_that_changes_without_end_is_not_asked_for_all_the_time(out):
    """A server that answers at once, whatever is waited for. A loaded machine asks less often."""
    began = time.monotonic()
    with Hostile(b'{"model": "run", "latest": null, "versions": [], "next_page_token": ""}') as hostile:
        with Follower(url_of(hostile), "-o", out) as f:
            f.wait(lambda: len(hostile.asked) >= 3, "some requests")
            time.sleep(1)
            assert len(hostile.asked) <= 3 + 3 * (time.monotonic() - began)
        assert "no version yet" in f.said() and len(f.said().splitlines()) == 2
    assert re.fullmatch(r"/models/run/versions\?page_size=1&timeout=\d+&wait=a", hostile.asked[1])


def test_what_is_in_the_way(serve, out):
    """A directory that follow did not make, and a directory called latest."""
    add(serve.root / "run/step-1", 1)
    s = serve()
    (out / "step-1").mkdir(parents=True)
    (out / "step-1/mine").write_text("mine")
    _, err = once(url_of(s), "-o", out, code=1)
    assert "follow has not made it" in err and tree_of(out / "step-1") == {"mine": b"mine"}
    # the mark of another version makes it none of ours
    (out / "step-1" / MARK).write_text("run at step-2")
    assert "follow has not made it" in once(url_of(s), "-o", out, code=1)[1]
    shutil.rmtree(out / "step-1")
    (out / "latest").mkdir()
    assert "is no symbolic link" in once(url_of(s), "-o", out, code=1)[1]


def test_a_version_of_another_model(serve, out):
    """Names of versions are alike in all runs: that of another one is neither taken for this one's nor removed."""
    for model in ("run", "other"):
        add(serve.root / model / "step-1", len(model))
    s = serve()
    once(url_of(s), "-o", out, model="other")
    assert "follow has not made it for this model" in once(url_of(s), "-o", out, code=1)[1]
    check(out, "step-1", serve.root / "other/step-1", "other")
    add(serve.root / "run/step-2", 2)
    s.wait_for(lambda: s.json("/models/run/versions")["latest"] == "step-2", "the new version")
    once(url_of(s), "-o", out, "--keep", "1")
    check(out, "step-2", serve.root / "run/step-2")
    assert names(out) == ["latest", "step-1", "step-2"]


def test_two_at_a_time(serve, out):
    add(serve.root / "run/step-1", 1)
    s = serve()
    with Follower(url_of(s), "-o", out) as f:
        f.wait_version("step-1")
        _, err = once(url_of(s), "-o", out, code=1)
        assert "another tensord with follow follows into" in err


def test_failures(serve, out):
    s = serve()
    assert "404" in once(url_of(s), "-o", out, model="org/none", code=1)[1]
    add(serve.root / "org/m", 1)
    s.wait_for(lambda: s.get("/models/org/m").status == 200, "the model")
    assert "has no version" in once(url_of(s), "-o", out, model="org/m", code=1)[1]
    for args in (["--keep", "0"], ["--keep", "x"], ["more"], ["--revision", "a"]):
        once(url_of(s), "-o", out, *args, code=2)
    once(url_of(s), "-o", out, model="../m", code=2)


def test_a_signal_ends_it(serve, out):
    add(serve.root / "run/step-1", 1)
    with Follower(url_of(serve()), "-o", out) as f:
        f.wait_version("step-1")
        f.p.send_signal(signal.SIGINT)
        assert f.p.wait(timeout=30) == 1
        assert "stopped by a signal" in f.said()
    assert f.reports()[-1] == {"model": "run", "complete": False, "error": "stopped"}


def test_index_of_versions_names_the_version(serve, out):
    """The index of a version that follow makes out of deltas says the version, as `tensord apply` writes it."""
    run = Run(serve.root / "run")
    run.add()
    once(url_of(serve()), "-o", out, "--apply")
    said = json.loads((out / "weight_v000001" / INDEX).read_text())["metadata"]
    assert said["version"] == "000001"
