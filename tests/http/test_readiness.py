"""When a server says that it is ready: with too few models (--require-models), and when it cannot start."""
import re
import shutil
import socket
import subprocess

import pytest

from harness import Server, age, tensor, tensord_binary, write_by_hand


def publish(root, *names):
    for name in names:
        write_by_hand(root / name / "model.safetensors", [tensor("w", "F32", [4])])
        age(root / name)


def health(server):
    p = subprocess.run([str(tensord_binary()), "health", f"http://127.0.0.1:{server.port}"], capture_output=True,
                       text=True, timeout=60)
    return p.returncode, p.stdout + p.stderr


def readiness(server):
    answer = server.get("/readyz")
    body = answer.json()
    assert body["ready"] == (answer.status == 200)
    return answer.status, body["state"], body["message"]


# shows: security.md file-root-empty
def test_an_empty_directory_is_ready_and_warned_of(tmp_path):
    """The default is ready, for directories that are filled later."""
    with Server(tmp_path) as s:
        assert readiness(s) == (200, "ready", "")
        s.wait_for(lambda: f'warn  "{tmp_path}" holds no model and no dataset (0 files): ' in s.stderr(), "the warning")
        assert health(s)[0] == 0 and "not ready" not in s.stderr()


@pytest.mark.parametrize("how", [{"env": {"TENSORD_REQUIRE_MODELS": "2"}}, {}])
# shows: security.md file-root-empty
def test_ready_when_enough_models_are_published(tmp_path, how):
    args = [] if how else ["--require-models", "2"]
    with Server(tmp_path, *args, ready=False, **how) as s:
        s.wait_for(lambda: s.get("/readyz").json()["scan"]["completed"] > 0 and readiness(s)[1] != "scanning",
                   "the first scan")
        assert readiness(s) == (503, "too few models", "0 of the 2 models that --require-models asks for are published")
        assert s.get("/readyz").get("Retry-After") and s.gauge("tensord_ready") == 0
        assert s.get("/healthz").status == 200      # the server is alive; a restart would not help
        assert s.json("/models")["models"] == []    # and it still answers requests
        code, said = health(s)
        assert code == 1 and "too few models" in said and "answered 503" in said
        publish(tmp_path, "a")
        s.wait_for(lambda: s.ids() == ["a"], "the first model")
        assert readiness(s) == (503, "too few models", "1 of the 2 models that --require-models asks for is published")
        publish(tmp_path, "b")
        s.wait_for(lambda: readiness(s) == (200, "ready", ""), "the second model")
        assert health(s)[0] == 0 and s.gauge("tensord_ready") == 1
        assert "not ready: 0 of the 2 models that --require-models asks for are published" in s.stderr()


# shows: security.md file-root-empty
def test_not_ready_any_more_when_models_vanish(tmp_path):
    """The requirement holds as long as the server runs: a replica that lost a model must not get requests."""
    publish(tmp_path, "a", "b")
    with Server(tmp_path, "--require-models", "2") as s:
        shutil.rmtree(tmp_path / "b")
        s.wait_for(lambda: readiness(s)[1] == "too few models", "one is missing")
        assert s.get("/models/a/tensors/w").status == 200
        publish(tmp_path, "b")
        s.wait_for(lambda: readiness(s) == (200, "ready", ""), "it is back")
        shutil.rmtree(tmp_path / "a")
        shutil.rmtree(tmp_path / "b")
        s.wait_for(lambda: readiness(s)[1] == "root missing", "all is gone at once: perhaps unmounted")
        s.wait_for(lambda: readiness(s)[1] == "too few models", "that is believed at the second look")


def test_each_change_of_readiness_is_one_line_of_the_log(tmp_path):
    """In both directions, for both reasons that occur at run time. A scan without a change logs nothing."""
    root, away = tmp_path / "root", tmp_path / "away"
    publish(root, "a", "b")

    def changes(s):
        return re.findall(r" info  ((?:not )?ready.*)", s.stderr())

    ready = "ready: /readyz answers 200 from now on"
    lost = "not ready any more: /readyz answers 503 from now on "
    with Server(root, "--require-models", "2") as s:
        s.wait_for(lambda: changes(s) == [ready], "the start")
        publish(root, "c")
        s.wait_for(lambda: s.ids() == ["a", "b", "c"], "another model")
        for name in ("b", "c"):
            shutil.rmtree(root / name)
        s.wait_for(lambda: changes(s) == [ready, lost + "(too few models)"], "one model is left")
        assert readiness(s)[0] == 503
        (root / "a/more.txt").write_text("x")
        age(root)
        s.wait_for(lambda: s.get("/models/a/files/more.txt").status == 200, "a change that does not concern readiness")
        publish(root, "b")
        s.wait_for(lambda: changes(s) == [ready, lost + "(too few models)", ready], "both are there")
        assert readiness(s)[0] == 200
        assert s.stderr().count("warn  not ready: 1 of the 2 models ") == 1
        root.rename(away)
        s.wait_for(lambda: changes(s)[3:] == [lost + "(root missing)"], "DIR is gone")
        away.rename(root)
        s.wait_for(lambda: changes(s)[4:] == [ready], "DIR is back")
        assert readiness(s)[0] == 200


def test_a_model_of_which_all_was_refused_does_not_count(tmp_path):
    publish(tmp_path, "half")
    (tmp_path / "half/bad.safetensors").write_bytes(b"x")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/model.safetensors").write_bytes(b"x")
    age(tmp_path)
    with Server(tmp_path, "--require-models", "2", ready=False) as s:
        s.wait_for(lambda: readiness(s)[1] == "too few models", "the first scan")
        assert s.ids() == ["broken", "half"]
        assert readiness(s)[2] == (
            "1 of the 2 models that --require-models asks for is published; others were refused, "
            "GET /models says why")


def test_young_files_are_waited_for_without_a_warning(tmp_path):
    write_by_hand(tmp_path / "m/model.safetensors", [tensor("w", "F32", [4])])
    with Server(tmp_path, "--require-models", "1", settle="2") as s:
        assert s.ids() == ["m"]
        assert "holds no model" not in s.stderr() and "not ready" not in s.stderr()


@pytest.mark.parametrize("option", ["--listen", "--s3-listen", "--access-log"])
def test_a_server_that_cannot_start_ends_with_the_reason(tmp_path, option):
    """The reason is the last line, and no line before it says that the server is ready."""
    publish(tmp_path / "root", *(f"m{i}" for i in range(20)))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = f"127.0.0.1:{taken.getsockname()[1]}"
        value, reason = (port, f"cannot listen on {port} ") if option != "--access-log" else (
            tmp_path / "none/log", "cannot open the access log ")
        options = {"--listen": "127.0.0.1:0", option: value}
        for _ in range(5):
            p = subprocess.run([tensord_binary(), "serve", tmp_path / "root", *(x for o in options.items() for x in o)],
                               capture_output=True, text=True, timeout=60)
            assert p.returncode == 1
            assert p.stderr.splitlines()[-1].startswith("tensord: " + reason), p.stderr
            assert not re.search(r"\bready\b", p.stderr), p.stderr
            assert "listening on" not in p.stderr and p.stdout == ""
