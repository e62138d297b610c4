"""./serve.sh as a newcomer runs it: its output while it builds, where requests are logged, and the commands to try."""
import os
import re
import signal
import subprocess
import time
import urllib.request

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
        deadline = time.monotonic() + 500        # a whole build, where there is none yet
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
        assert re.search(r"^Building build/tensord .*\n(.*\n)*Built build/tensord in \d+ s$", said, re.MULTILINE), said
        script.wait_for(script.out, rf"^Requests are logged to {re.escape(str(log))}$")
        assert ask(url + "/models/m/tensors/w") == 200
        script.wait_for(log, r'target="/models/m/tensors/w" status=200')
        assert "target=" not in script.out.read_text(), "requests run through what is printed"
    finally:
        ended = script.stop()
    assert ended == 0, script.err.read_text()
