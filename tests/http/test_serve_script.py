"""./serve.sh as a newcomer runs it: its output while it builds, where requests are logged, and the commands to try."""
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from harness import REPO, age, tensor, write_by_hand


class Script:
    def __init__(self, tmp_path, *args, **env):
        self.out, self.err = tmp_path / "out", tmp_path / "err"
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.proc = subprocess.Popen([REPO / "serve.sh", tmp_path / "models", "--listen", "127.0.0.1:0", *args],
                                         stdout=out, stderr=err, stdin=subprocess.DEVNULL, start_new_session=True,
                                         env={**os.environ, **env})

    def wait_for(self, path, pattern):
        deadline = time.monotonic() + 500        # a whole build, where nothing is built yet
        while not (found := re.search(pattern, path.read_text(), re.MULTILINE)):
            assert self.proc.poll() is None and time.monotonic() < deadline, self.out.read_text() + self.err.read_text()
            time.sleep(0.1)
        return found

    def stop(self):
        self.proc.send_signal(signal.SIGINT)
        return self.proc.wait(30)


@pytest.fixture
def models(tmp_path):
    write_by_hand(tmp_path / "models/m/model.safetensors", [tensor("w", "F32", [4])])
    age(tmp_path)
    return tmp_path


@pytest.mark.parametrize("fault", ["does not exist", "is not a directory"])
def test_a_path_that_is_no_directory(tmp_path, fault):
    if fault == "is not a directory":
        (tmp_path / "models").touch()
    p = subprocess.run([REPO / "serve.sh", tmp_path / "models"], capture_output=True, text=True, timeout=60)
    assert p.returncode == 1 and p.stdout == ""
    assert p.stderr == f"serve.sh: {tmp_path}/models {fault}; name a directory that holds models, or none for a demo\n"


@pytest.mark.parametrize("args, env", [(["--s3-listen", "127.0.0.1:0"], {}),
                                       ([], {"TENSORD_S3_LISTEN": "127.0.0.1:0", "LISTEN": "127.0.0.1:1"})])
def test_the_port_for_clients_of_s3(models, args, env):
    """The command to try has the port. Requests are logged to a file that is named by the main port as it was given,
    and the requests of the script itself are recognisable there."""
    script = Script(models, *args, TENSORD_ACCESS_LOG="", **env)
    try:
        aws = r"^  aws --no-sign-request --endpoint-url (http://127\.0\.0\.1:\d+) s3 ls$"
        url = script.wait_for(script.out, aws).group(1)
        assert f"listening for S3 clients on {url}\n" in script.err.read_text()
        assert "<Name>local</Name>" in fetch(url + "/")
        log = Path(script.wait_for(script.out, r"^Requests are logged to (\S+)$").group(1))
        assert log == REPO / "build/requests-0.log"
    finally:
        ended = script.stop()
    assert ended == 0, script.err.read_text()


def fetch(url):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=20) as answer:
        return answer.read().decode()


def ask(url):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=20) as answer:
        return answer.status


@pytest.mark.parametrize("way", ["option", "option=", "environment"])
def test_it_says_what_it_does_and_logs_to_a_file(models, way):
    log = models / "requests.log"
    args = {"option": ["--access-log", str(log)], "option=": [f"--access-log={log}"], "environment": []}[way]
    script = Script(models, *args, TENSORD_ACCESS_LOG=str(log) if way == "environment" else "")
    try:
        url = script.wait_for(script.out, r"^Serving (\S+) ").group(1)
        said = script.err.read_text()
        built = r"^(?:B|Reb)uilding build/tensord .*\n(.*\n)*Built build/tensord in \d+ s$"
        assert re.search(built, said, re.MULTILINE), said
        script.wait_for(script.out, rf"^Requests are logged to {re.escape(str(log))}$")
        assert ask(url + "/models/m/tensors/w") == 200
        script.wait_for(log, r'target="/models/m/tensors/w" status=200')
        assert "target=" not in script.out.read_text(), "requests run through what is printed"
        others = [line for line in log.read_text().splitlines() if 'target="/models/m/tensors/w"' not in line]
        assert others and all('agent="serve.sh"' in line and "/readyz" not in line for line in others), others
    finally:
        ended = script.stop()
    assert ended == 0, script.err.read_text()


@pytest.mark.parametrize("args, env, publish", [
    ([], {}, "local"), (["DIR"], {}, "off"), (["--publish", "off"], {}, "off"), ([], {"TENSORD_PUBLISH": "off"}, "off"),
    (["--upstream", "http://127.0.0.1:1"], {}, "off"), ([], {"TENSORD_CONFIG": "CONFIG"}, "off"),
    (["DIR", "--publish", "local"], {}, "local")])
def test_clients_may_publish_to_the_demo_alone(tmp_path, args, env, publish):
    """A directory that the caller names is only read, unless the caller says otherwise."""
    (tmp_path / "config.json").write_text("{}")
    places = {"DIR": str(tmp_path), "CONFIG": str(tmp_path / "config.json")}
    p = subprocess.run([REPO / "serve.sh", *(places.get(a, a) for a in args), "--print-config"], capture_output=True,
                       text=True, env={**os.environ, **{k: places.get(v, v) for k, v in env.items()}}, timeout=500)
    assert p.returncode == 0 and json.loads(p.stdout)["publish"] == publish, p
    assert not (tmp_path / ".tensord-publish").exists()
