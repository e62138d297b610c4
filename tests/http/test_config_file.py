"""The configuration file of `tensord serve`: --config, --print-config, and reading it again on SIGHUP."""
import contextlib
import json
import os
import re
import signal
import subprocess
import time

from harness import REPO, Server, age, tensor, tensord_binary, write_by_hand


def clean_environment(**env):
    return {**{k: v for k, v in os.environ.items() if not k.startswith("TENSORD_")}, **env}


def serve(*args, **env):
    return subprocess.run([str(tensord_binary()), "serve", *map(str, args)], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, env=clean_environment(**env))


def printed(*args, **env):
    p = serve(*args, "--print-config", **env)
    assert p.returncode == 0 and p.stderr == "", p
    return json.loads(p.stdout)


def publish(root, name):
    """Write a model of now: it is younger than any --settle."""
    write_by_hand(root / name / "model.safetensors", [tensor("w", "F32", [4])])


def write(path, **settings):
    """Write the file as an editor does, by rename. Keys have _ in place of -."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({k.replace("_", "-"): v for k, v in settings.items()}))
    fresh.rename(path)


# ------------------------------------------------------------------------------------------------ --print-config

def test_the_defaults_are_printed_under_the_options_names(tmp_path):
    """Every option of --help that has a value is a key, but --config; its default is the one that --help names, times
    in seconds and sizes in bytes."""
    helped = dict(re.findall(r"^  --(\S+) \S+ .*\((.*)\)$", serve("--help").stdout, re.MULTILINE))
    assert helped.pop("config") == "not set" and len(helped) > 20
    found = printed(tmp_path)
    assert found.pop("directory") == str(tmp_path)
    assert list(found) == list(helped)
    for key, value in found.items():
        shown = {"": "not set", True: "on", False: "off"}.get(value, value) if isinstance(value, (str, bool)) else value
        unit = re.fullmatch(r"(\d+)([sKMG])", helped[key])
        factor = unit and {"s": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[unit[2]]
        assert str(shown) == (str(int(unit[1]) * factor) if unit else helped[key]), key
    types = {k: type(v) for k, v in found.items()}
    assert types["max-files"] is int and types["leases"] is bool and types["settle"] is int and types["listen"] is str


def test_what_is_printed_can_be_read_again(tmp_path):
    odd = tmp_path / 'a "b" \\ \u00e8\u2603'
    args = [odd, "--settle", "0.000000001", "--max-memory", "999999999999", "--leases", "off", "--workers=3",
            "--access-log", "\u001f\t\n", "--header-timeout=1.50"]
    first = serve(*args, "--print-config", TENSORD_LOG_LEVEL="debug")
    assert json.loads(first.stdout)["directory"] == str(odd) and json.loads(first.stdout)["header-timeout"] == 1.5
    conf = tmp_path / "c.json"
    conf.write_text(first.stdout)
    assert serve("--config", conf, "--print-config").stdout == first.stdout
    assert serve("--print-config", TENSORD_CONFIG=str(conf)).stdout == first.stdout


def test_precedence(tmp_path):
    conf = tmp_path / "c.json"
    write(conf, settle=3, max_files=30, min_rate=300)
    found = printed(tmp_path, "--config", conf, "--settle", "1", TENSORD_SETTLE="2", TENSORD_MAX_FILES="20")
    assert (found["settle"], found["max-files"], found["min-rate"], found["max-maps"]) == (1, 20, 300, 16384)


def test_where_each_value_comes_from(tmp_path):
    conf = tmp_path / "c.json"
    write(conf, directory="/models", settle=3, log_level="warn")
    p = serve("--print-config=sources", "--settle=1", TENSORD_MAX_FILES="20", TENSORD_CONFIG=str(conf))
    assert p.returncode == 0 and p.stderr == "", p
    table = [line.split(maxsplit=2) for line in p.stdout.splitlines()]
    assert table[0] == ["KEY", "VALUE", "FROM"]
    table = {key: (value, source) for key, value, source in table[1:]}
    assert sorted(table) == sorted(printed(tmp_path))
    assert table["directory"] == ('"/models"', str(conf)) and table["log-level"] == ('"warn"', str(conf))
    assert table["settle"] == ("1", "--settle") and table["max-files"] == ("20", "TENSORD_MAX_FILES")
    assert table["listen"] == ('"127.0.0.1:8080"', "default")
    p = serve(tmp_path, "--print-config=sources")
    assert re.search(rf'^directory +"{re.escape(str(tmp_path))}" +DIR$', p.stdout, re.MULTILINE), p


def test_faults_end_with_2_and_one_line(tmp_path):
    conf = tmp_path / "c.json"
    conf.write_text('{\n  "setle": 1\n}\n')
    for args in ([tmp_path, "--config", conf], [tmp_path, "--config", conf, "--print-config"]):
        p = serve(*args)
        assert (p.returncode, p.stdout) == (2, ""), p
        assert p.stderr == f'tensord: "{conf}", line 2, column 3: unknown key "setle" (did you mean "settle"?)\n'
    p = serve(tmp_path, "--config", tmp_path / "none.json")
    assert p.returncode == 2 and p.stderr.endswith('none.json": No such file or directory\n'), p
    p = serve("--print-config")
    assert p.returncode == 2 and "no directory is given" in p.stderr, p
    p = serve(os.fsdecode(b"m\xff"), "--print-config")
    assert p.returncode == 1 and "directory is not UTF-8" in p.stderr and p.stdout == "", p


def test_output_that_cannot_be_written_is_a_failure(tmp_path):
    with open("/dev/full", "w") as full:
        p = subprocess.run([str(tensord_binary()), "serve", str(tmp_path), "--print-config"], stdout=full,
                           stderr=subprocess.PIPE, text=True, timeout=60, env=clean_environment())
    assert p.returncode == 1 and "No space left on device" in p.stderr, p


# ------------------------------------------------------------------------------------------------ serving

def test_keys_that_may_change_are_those_of_the_document():
    """Rows that end with LIVE in server/config/config_options.c, and those that say "yes" in docs/configuration.md."""
    source = (REPO / "server/config/config_options.c").read_text()
    rows = re.findall(r'\{"([a-z0-9-]+)", "[^{}]*?,\s+(LIVE|AT_START)\},', source)
    live = [name for name, when in rows if when == "LIVE"]
    assert len(rows) > 25 and len(live) > 5
    text = (REPO / "docs/configuration.md").read_text()
    cells = [re.split(r"(?<!\\)\|", line) for line in text.splitlines() if line.startswith("| `--")]
    assert [c[1].split()[0].strip("`-") for c in cells if c[4].strip() == "yes"] == live


def test_the_example_of_the_document(tmp_path):
    text = (REPO / "docs/configuration.md").read_text().partition("\n## Configuration file\n")[2]
    example = re.search(r"```json\n(.*?)```", text, re.DOTALL)[1]
    conf = tmp_path / "c.json"
    conf.write_text(example)
    assert json.loads(example).items() <= printed("--config", conf).items()


def test_a_server_with_nothing_but_a_file(tmp_path):
    publish(tmp_path / "models", "m")
    age(tmp_path / "models")
    conf = tmp_path / "c.json"
    write(conf, directory=str(tmp_path / "models"), listen="127.0.0.1:0", access_log="off", settle=0)
    proc = subprocess.Popen([str(tensord_binary()), "serve", "--config", str(conf)], stderr=subprocess.PIPE, text=True,
                            stdin=subprocess.DEVNULL, env=clean_environment())
    try:
        said = ""
        for line in proc.stderr:
            said += line
            if " ready: " in said and "listening on" in said:
                break
        assert f'serves "{tmp_path}/models", listening on http://127.0.0.1:' in said
        assert "indexed 1 model" in said
        proc.send_signal(signal.SIGTERM)
        rest = proc.stderr.read()
        assert proc.wait(30) == 0, rest
    finally:
        with contextlib.suppress(ProcessLookupError):
            proc.kill()
        proc.wait()


class Configured(Server):
    """A server whose settings, but for the address and the access log, come from a file."""

    def __init__(self, root, conf, *args, **settings):
        self.conf, self.settings = conf, settings
        write(conf, **settings)
        super().__init__(root, "--config", conf, *args, settle=None, rescan=None)

    def hup_and_wait(self, what):
        """Send SIGHUP, and return the lines of the log up to its end that hold `what`."""
        before = self.stderr()
        self.hup()
        self.wait_for(lambda: "SIGHUP: scanning again" in self.stderr()[len(before):], "the signal's last line")
        lines = self.stderr()[len(before):].splitlines()
        return [line.partition(" ")[2] for line in lines if what in line]

    def wait_scans(self, count):
        """Wait until so many further scans have ended."""
        before = self.get("/readyz").json()["scan"]["completed"]
        self.wait_for(lambda: self.get("/readyz").json()["scan"]["completed"] >= before + count, "scans")

    def change(self, **settings):
        """Change settings in the file, and return the lines that the log then has of it."""
        self.settings.update(settings)
        write(self.conf, **self.settings)
        return [line for line in self.hup_and_wait("SIGHUP: ") if "scanning" not in line]


def test_sighup_opens_the_access_log_again(tmp_path):
    """A program that rotates logs renames the file first. No line is lost, and each is in one of the two files. All
    requests come on one connection: lines of different ones may change places, as each follows its answer."""
    root, log, old = tmp_path / "root", tmp_path / "access.log", tmp_path / "access.log.1"
    root.mkdir()
    with Server(root, access_log=log) as s, s.conn() as c:
        asked = 0

        def ask(count):
            nonlocal asked
            for _ in range(count):
                c.request(f"/healthz?{asked}")
                asked += 1

        def numbers(path):
            return [int(n) for n in re.findall(r"/healthz\?(\d+)", path.read_text())]

        ask(20)
        log.rename(old)
        ask(20)
        s.hup()
        s.wait_for(lambda: f'SIGHUP: opened the access log "{log}" again' in s.stderr(), "the log is opened again")
        ask(20)
        s.wait_for(lambda: len(numbers(log)) + len(numbers(old)) == asked, "all lines are written")
        assert numbers(old) + numbers(log) == list(range(asked)) and numbers(log)[-20:] == list(range(40, 60))
        assert log.stat().st_mode & 0o777 == 0o640
        log.rename(tmp_path / "access.log.2")
        log.mkdir()
        s.hup()
        s.wait_for(lambda: "SIGHUP: the access log continues in the open file" in s.stderr(), "it is logged")
        ask(3)
        s.wait_for(lambda: numbers(tmp_path / "access.log.2")[-3:] == [60, 61, 62], "the log continues")


def test_sighup_applies_what_may_change(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    conf = tmp_path / "c.json"
    read = f'info  SIGHUP: read the configuration "{conf}" again; changed: '
    with Configured(root, conf, "--max-files", "50", settle=3600, rescan_interval=0) as s:
        assert s.change() == [read + "nothing"]
        assert s.change(rescan_interval=0.05) == [read + "rescan-interval"]
        s.wait_scans(5)     # more than the signals asked for
        publish(root, "a")
        s.wait_for(lambda: s.gauge("tensord_unsettled_files") == 1, "a is seen, and too young")
        assert s.change(settle=0) == [read + "settle"]
        s.wait_scans(5)
        publish(root, "b")
        s.wait_for(lambda: s.ids() == ["a", "b"], "no settling any more")
        assert s.request("/rescan", method="POST").status == 200
        assert s.change(rescan_from="none", require_models=9) == [read + "rescan-from, require-models"]
        assert s.request("/rescan", method="POST").status == 403
        assert s.get("/readyz").status == 503
        assert s.change(header_timeout=0.2, require_models=0) == [read + "header-timeout, require-models"]
        assert s.get("/readyz").status == 200
        with s.conn() as c:
            c.send(b"GET / HTTP/1.1\r\n")
            assert c.ended(10)
        assert s.change(max_files=1) == [read + "nothing"]      # the option takes precedence
        assert s.change(drain_delay=20, header_timeout=10) == [read + "header-timeout, drain-delay"]
        s.term()
        s.wait_for(lambda: " draining: " in s.stderr(), "the signal is taken")
        time.sleep(0.1)     # without a delay all ports are closed by now
        assert s.get("/readyz").json()["state"] == "draining"


def test_sighup_names_what_needs_a_restart(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with Configured(root, tmp_path / "c.json", settle=0, max_body_bytes=4096, workers=4) as s:
        told = s.change(max_body_bytes=2048, workers=5, min_rate=1, directory="/elsewhere", access_log="off")
        assert told == [
            f'info  SIGHUP: read the configuration "{s.conf}" again; changed: min-rate',
            "warn  SIGHUP: restart the server for the new values of: workers, max-body-bytes"]
        assert s.post("/models/m/tensors:read", b" " * 3000).status == 404      # with 2048 it would be 413
        assert s.change(max_body_bytes=4096, workers=4) == [
            f'info  SIGHUP: read the configuration "{s.conf}" again; changed: nothing']


# shows: security.md host-bad-config
def test_a_bad_file_changes_nothing(tmp_path):
    """Refused as a whole: not even the settings before the fault are taken. The scan comes all the same."""
    root = tmp_path / "root"
    root.mkdir()
    with Configured(root, tmp_path / "c.json", settle=0, rescan_interval=0) as s:
        publish(root, "m")
        s.conf.write_text('{"require-models": 7,\n "settle": "soon"}')
        told = s.hup_and_wait("SIGHUP: ")
        assert told[0] == (f'error SIGHUP: the configuration stays as it was: "{s.conf}", line 2, column 12: "settle" '
                           'takes seconds, or a time such as 500ms, 5s or 2m, from 0s to 1h, not "soon"')
        assert len(told) == 2
        s.wait_for(lambda: s.ids() == ["m"], "the scan")
        assert s.get("/readyz").status == 200
        s.conf.unlink()
        assert "No such file" in s.hup_and_wait("SIGHUP: ")[0]
        assert s.get("/readyz").status == 200
        assert len(s.change(require_models=7)) == 1
        assert s.get("/readyz").status == 503


def test_the_log_level_changes(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with Configured(root, tmp_path / "c.json", settle=0) as s:
        before = len(s.stderr())
        write(s.conf, log_level="error", require_models=1, settle=0)
        s.hup()
        s.wait_for(lambda: s.get("/readyz").status == 503, "the file was read")
        write(s.conf, log_level="info", require_models=0, settle=0, min_rate=7)
        s.hup()
        s.wait_for(lambda: re.search("min-rate.*\n.*scanning again", s.stderr()[before:]), "the second signal")
        told = re.findall(r"SIGHUP: .*", s.stderr()[before:])
        assert told == [
            f'SIGHUP: read the configuration "{s.conf}" again; changed: min-rate, require-models, log-level',
            "SIGHUP: scanning again"]


# shows: security.md host-config-storm
def test_sighup_while_requests_run(tmp_path):
    """Signals that change settings do not disturb answers."""
    root = tmp_path / "root"
    publish(root, "m")
    age(root)
    with Configured(root, tmp_path / "c.json", settle=0, rescan_interval=1) as s:
        for i in range(60):
            write(s.conf, settle=0, rescan_interval=1 + i % 2, rescan_from=["any", "none"][i % 2], min_rate=i,
                  header_timeout=5 + i % 2, max_files=1000 + i)
            s.hup()
            assert s.get("/models/m/tensors/w").status == 200
            assert s.request("/rescan", method="POST").status in (200, 403)
        assert "error" not in s.stderr()
