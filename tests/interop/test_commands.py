"""The program's commands for a newcomer: help, mistyped options, exit codes, and output."""
import contextlib
import datetime
import errno
import json
import os
import pty
import re
import select
import socket
import subprocess
import threading
import unicodedata

import pytest

from harness import REPO, Server, age, is_sanitized, tensor, tensord_binary, write_by_hand

COMMANDS = ["serve", "pull", "push", "apply", "follow", "inspect", "plan", "verify", "health", "token", "sign"]

# Bytes that act on a terminal, begin a line, are not UTF-8, or reverse the text around them.
HOSTILE = (
    b"\x1b]0;owned\x07\x1b[31mred\n2026-01-01T00:00:00.000Z error forged\r\x9b2J\xff\xc2\x9b1m"
    b"\xe2\x80\xaegpj\xe2\x81\xa6\xd8\x9c\xe2\x80\xa8\x7f")
BIDI = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}     # UAX 9, section 2


def run(*args, **env):
    return subprocess.run([os.fsencode(tensord_binary()), *map(os.fsencode, args)], capture_output=True, timeout=120,
                          stdin=subprocess.DEVNULL,
                          env={**{k: v for k, v in os.environ.items() if not k.startswith("TENSORD_")}, **env})


def assert_harmless(output, lines=None):
    text = output.decode()       # raises where it is not UTF-8
    for c in text:
        assert c == "\n" or (unicodedata.category(c) not in ("Cc", "Zl", "Zp") and ord(c) not in BIDI), (hex(ord(c)),
                                                                                                         text)
    if lines is not None:
        assert text.count("\n") == lines and text.endswith("\n"), text


@pytest.fixture
def hostile(tmp_path):
    """A directory with a hostile name that holds a good model and a broken one, both with hostile names too."""
    top = os.fsencode(tmp_path) + b"/" + HOSTILE.replace(b"/", b"")
    for name in (b"good" + HOSTILE.replace(b"\x9b2J\xff", b""), b"m"):
        os.makedirs(top + b"/" + name)
    write_by_hand(os.fsdecode(top + b"/m/model.safetensors"), [tensor("w", "F32", [4])])
    odd = HOSTILE.replace(b"\x9b2J\xff", b"").decode()
    write_by_hand(os.fsdecode(top + b"/good" + odd.encode() + b"/" + odd.encode() + b".safetensors"),
                  [tensor(odd, "F32", [4])], {odd: odd})
    with open(top + b"/m/bad" + HOSTILE + b".safetensors", "wb") as f:
        f.write(b"x")
    with open(top + b"/m/broken" + odd.encode() + b".safetensors", "wb") as f:
        f.write(b"x")
    return top


# shows: security.md log-terminal
def test_messages_do_not_act_on_a_terminal(hostile, tmp_path):
    """Checks paths, options and values of the command line of every command."""
    file = hostile + b"/m/bad" + HOSTILE + b".safetensors"
    gone = hostile + b"/gone"
    wrong = [  # arguments, exit status
        (["inspect", file], 1),
        (["inspect", gone], 1),
        (["inspect", b"--" + HOSTILE], 2),
        (["inspect", file, file], 2),
        (["plan", gone, HOSTILE, "--engine", "none", "--tp", "1"], 1),
        (["plan", hostile, HOSTILE, "--engine", "none", "--tp", "1"], 1),
        (["plan", hostile, "m", "--engine", HOSTILE, "--tp", "1"], 2),
        (["plan", hostile, "m", "--engine", "none", "--tp", HOSTILE], 2),
        (["plan", hostile, "m", "--engine", "none", "--tp", "1", "--checkpoint", HOSTILE], 1),
        (["plan", hostile, "m", "--plan", gone], 1),
        (["plan", hostile, "m", "--plan", file], 1),
        (["plan", b"-" + HOSTILE], 2),
        (["plan", hostile, "m", "x", HOSTILE], 2),
        (["verify", gone], 1),
        (["verify", b"-" + HOSTILE], 2),
        (["verify", hostile, HOSTILE], 2),
        (["verify", hostile, "--state-dir", file], 1),
        (["health", b"http://" + HOSTILE], 2),
        (["health", HOSTILE], 2),
        (["health", b"http://127.0.0.1:1/\r\n\r\nGET"], 2),
        ([HOSTILE], 2),
        ([b"--" + HOSTILE], 2),
        (["help", HOSTILE], 2),
        (["serve", gone], 1),
        (["serve", file], 1),
        (["serve", hostile, b"--" + HOSTILE], 2),
        (["serve", hostile, HOSTILE], 2),
        (["serve", hostile, "--listen", HOSTILE], 2),
        (["serve", hostile, "--s3-listen", HOSTILE], 2),
        (["serve", hostile, "--log-level", HOSTILE], 2),
        (["serve", hostile, "--access-log", gone + b"/x", "--listen", "127.0.0.1:0"], 1),
        (["serve", hostile, "--settle", HOSTILE], 2),
        (["serve", hostile, "--state-dir", file, "--listen", "127.0.0.1:0"], 1),
    ]
    for args, status in wrong:
        p = run(*args)
        assert p.returncode == status and p.stdout == b"", (args, p)
        errors = [line for line in p.stderr.split(b"\n")
                  if not re.match(rb"\d{4}-\d\d-\d\dT", line)]  # a server that starts may log first
        assert len(errors) == 2 and errors[0].startswith(b"tensord: ") and errors[1] == b"", (args, p.stderr)
        assert_harmless(p.stderr)
    p = run(hostile)
    assert p.returncode == 2 and b"is a directory" in p.stderr
    assert_harmless(p.stderr, 1)


# shows: security.md log-terminal
def test_what_is_printed_does_not_act_on_a_terminal(hostile):
    """Checks names from files and directories."""
    for args, status in ((["inspect", hostile], 1), (["verify", hostile], 1), (["verify", hostile + b"/m"], 1),
                         (["plan", hostile, "m", "--engine", "none", "--tp", "1"], 0)):
        p = run(*args)
        assert p.returncode == status and p.stdout != b"", (args, p)
        assert_harmless(p.stdout)
        assert_harmless(p.stderr)
    empty = hostile + b"/empty"
    os.mkdir(empty)
    for args in (["inspect", empty], ["verify", empty]):
        p = run(*args)
        assert b"empty" in p.stdout + p.stderr
        assert_harmless(p.stdout + p.stderr)


# shows: security.md log-terminal
def test_logs_do_not_act_on_a_terminal(hostile):
    """Checks names of directories and files in the log of a start and of a scan, and names that a client sends."""
    age(os.fsdecode(hostile))
    with Server(os.fsdecode(hostile), access_log="-") as s:
        s.wait_for(lambda: "indexed " in s.stderr() and s.gauge("tensord_models") == 2, "the scan's lines")
        with socket.create_connection(("127.0.0.1", s.port)) as c:
            c.sendall(
                b"GET /models/%1b%5d0;owned%07%e2%80%ae HTTP/1.1\r\nHost: x\r\n"
                b"User-Agent: \xe2\x80\xae\xc2\x9b2J\xff\r\nConnection: close\r\n\r\n"
            )
            answer = b"".join(iter(lambda: c.recv(65536), b""))
        assert b" 404 " in answer
        assert_harmless(answer.split(b"\r\n\r\n", 1)[1])
        s.wait_for(lambda: "route=none" in s.log() or "route=model" in s.log(), "the access log's line")
        log = s.stderr()
        assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z (error|warn |info |debug) ", line)
                   for line in log.splitlines()), log
        assert sum("forged" in line for line in log.splitlines()) >= 3 and not any(
            line.startswith("2026-01-01T00:00:00.000Z error") for line in log.splitlines())
        assert_harmless(log.encode())
        assert_harmless(s.log().encode())


@pytest.mark.parametrize("status", [b"503", b"\x1b[3", b"2\x1bc", b"20\x1b"])
def test_what_a_server_answers_does_not_act_on_a_terminal(status):
    """`health` prints the status and the body of any server that answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def answer():
            c, _ = listener.accept()
            with c:
                c.recv(65536)
                c.sendall(b"HTTP/1.1 " + status + b" bad\r\nContent-Length: 5\r\n\r\n" + HOSTILE + b"\nline two\n")
        thread = threading.Thread(target=answer)
        thread.start()
        p = run("health", f"http://127.0.0.1:{listener.getsockname()[1]}/x")
        thread.join()
    assert p.returncode == 1 and p.stdout.endswith(b"line two\n") == status.isdigit()
    assert status.isdigit() or b"is not HTTP" in p.stderr
    assert_harmless(p.stdout)
    assert_harmless(p.stderr, 1)


def test_progress_does_not_act_on_a_terminal(tmp_path):
    n = 100000 if is_sanitized(tensord_binary()) else 400000     # reading them takes longer than a second
    root = os.fsencode(tmp_path) + b"/" + HOSTILE.replace(b"/", b"")
    os.mkdir(root)
    text = b"{" + b",".join(b'"t%07d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}' % (i, i, i + 1)
                            for i in range(n)) + b"}"
    with open(root + b"/0.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + bytes(n))
    for k in range(1, 12):
        os.link(root + b"/0.safetensors", root + b"/%d.safetensors" % k)
    ours, theirs = pty.openpty()
    p = subprocess.Popen([os.fsencode(tensord_binary()), b"inspect", root, b"--json"], stdout=subprocess.DEVNULL,
                         stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        assert select.select([ours], [], [], 120)[0], "no end"
        try:
            more = os.read(ours, 65536)
        except OSError:
            break
        if not more:
            break
        seen += more
    os.close(ours)
    assert p.wait(60) == 0 and seen.count(b"checkpoint files read") >= 1
    assert b"\n" not in seen
    assert_harmless(seen.replace(b"\x1b[K", b"").replace(b"\r", b""))


def test_only_the_escaping_printer_writes_messages():
    """Commands write to standard error only through server/host/terminal.c, except the line of progress, which needs
    control bytes."""
    for path in sorted((REPO / "server").rglob("*.c")):
        if path.name not in ("terminal.c", "progress.c"):
            text = path.read_text()
            assert not re.search(
                r"(printf|fputs|puts|putc|write)\s*\(\s*stderr|,\s*stderr\s*\)|perror|STDERR_FILENO(?!\))",
                text.replace("brief(stderr)", "")), path


# ------------------------------------------------------------------------------------------------ help and slips

def test_help_is_there_in_every_way_it_is_asked_for():
    whole = run("--help").stdout.decode()
    assert whole == run("-h").stdout.decode() == run("help").stdout.decode() == run("help", "help").stdout.decode()
    for name in COMMANDS:
        assert f"  tensord {name} " in whole
        texts = {
            run(*args).stdout for args in (["help", name], [name, "--help"], [name, "-h"], [name, "x", "--json", "-h"])
        }
        assert len(texts) == 1, name
        text = texts.pop().decode()
        assert text.startswith(f"tensord {name} ") and "usage:" in text and "exit codes: 0" in text, text
        assert max(map(len, text.splitlines())) <= 120, text
    for args in (["--help"], ["help"], *(["help", name] for name in COMMANDS)):
        p = run(*args)
        assert p.returncode == 0 and p.stderr == b""
    assert run("help", "nothing").returncode == 2


def test_the_program_alone_lists_its_commands_on_a_line_each():
    p = run()
    assert p.returncode == 2 and p.stdout == b""
    lines = p.stderr.decode().splitlines()
    commands = [re.match(r"  tensord (\w+) ", line)[1] for line in lines[1:]]
    assert len(lines) == len(COMMANDS) + 2 and max(map(len, lines)) <= 100
    told = re.search(r"the commands are ([\w, ]+) and help", run("nothing").stderr.decode())[1].split(", ")
    assert sorted(commands) == sorted([*told, "help"]) and sorted(told) == sorted(COMMANDS)


@pytest.mark.parametrize("args, meant", [
    (["sevre", "x"], "serve"),
    (["inspct", "x"], "inspect"),
    (["plna"], "plan"),
    (["verfy"], "verify"),
    (["helath"], "health"),
    (["hlep"], "help"),
    (["--hepl"], "--help"),
    (["--verison"], "--version"),
    (["help", "serv"], "serve"),
    (["serve", "--lisen", "x"], "--listen"),
    (["serve", "--max-conections=3"], "--max-connections"),
    (["serve", "-listen", "x"], "--listen"),
    (["serve", "x", "--statedir", "y"], "--state-dir"),
    (["inspect", "x", "--jsno"], "--json"),
    (["plan", "x", "y", "--engin", "vllm"], "--engine"),
    (["verify", "x", "--state-dri", "y"], "--state-dir"),
    (["-v"], "--version"),
    (["-V"], "--version"),
    (["version"], "--version"),
])
def test_slips_are_told_what_was_meant(args, meant):
    p = run(*args)
    assert p.returncode == 2 and p.stdout == b""
    assert f"(did you mean {meant}?)" in p.stderr.decode()


@pytest.mark.parametrize("args", [["download"], ["serve", "--tls-cert", "x"], ["inspect", "--recursive"], ["x" * 5000],
                                  ["serve", "--" + "x" * 5000], ["-"], ["--"]])
def test_other_words_are_not_guessed_at(args):
    p = run(*args)
    assert p.returncode == 2 and b"did you mean" not in p.stderr and p.stderr.startswith(b"tensord: ")


def test_what_does_not_exist_is_told_in_one_form(tmp_path):
    path = tmp_path / "nosuch"
    for args in (["inspect", path], ["verify", path], ["plan", path, "m", "--engine", "none", "--tp",
                                                       "1"], ["plan", tmp_path, "m", "--plan",
                                                              path], ["serve", path, "--listen", "127.0.0.1:0"]):
        p = run(*args)
        assert p.returncode == 1 and f'"{path}" does not exist'.encode() in p.stderr, (args, p)


def test_a_file_or_url_in_place_of_a_directory_names_the_remedy(tmp_path):
    file = tmp_path / "model.safetensors"
    write_by_hand(file, [tensor("w", "F32", [4])])
    p = run("serve", file, "--listen", "127.0.0.1:0")
    assert p.returncode == 1 and f'"{file}" is not a directory: serve the one that'.encode() in p.stderr
    assert b"tensord inspect FILE" in p.stderr
    url = "http://127.0.0.1:8080/models/m"
    for args in (["inspect", url], ["verify", url], ["serve", url, "--listen", "127.0.0.1:0"],
                 ["plan", url, "m", "--engine", "none", "--tp", "1"], ["inspect", "tensord://h/m"],
                 ["verify", "s3://bucket"]):
        p = run(*args)
        told = f'"{args[1]}" is a URL, and tensord {args[0]} reads local files: tensord pull URL MODEL copies a model'
        assert p.returncode == 1 and told.encode() in p.stderr, p


@pytest.mark.parametrize("option", ["-p", "--port", "--port=80", "--host", "--bind=0.0.0.0"])
def test_options_of_other_servers_name_ours(option):
    p = run("serve", ".", option)
    assert p.returncode == 2 and b"address and port are given together, --listen 0.0.0.0:8080" in p.stderr, p
    p = run(option)
    assert p.returncode == 2 and b"tensord serve DIR --listen 127.0.0.1:8080" in p.stderr, p


@pytest.mark.parametrize("word", ["none", "no", "false", "0", "null", "NULL", "stdout", "stderr", "syslog", "Off"])
def test_an_access_log_is_no_file_of_such_a_name(tmp_path, word):
    for given in ({"args": ["--access-log", word]}, {"args": [], "TENSORD_ACCESS_LOG": word}):
        args = given.pop("args")
        p = run("serve", tmp_path, "--listen", "127.0.0.1:0", *args, **given)
        assert p.returncode == 2, p
        assert f'not "{word}" (did you mean off?); a file of that name is ./{word}'.encode() in p.stderr, p
    p = run("serve", tmp_path, "--access-log", "yes")
    assert p.returncode == 2 and b"(did you mean -?)" in p.stderr, p


def test_times_and_sizes_have_units_in_all_options(tmp_path):
    p = run("serve", tmp_path, "--settle", "1500ms", "--drain-timeout=2m", "--max-memory", "3G", "--min-rate", "4KiB",
            "--print-config", TENSORD_IDLE_TIMEOUT="1.5m")
    found = json.loads(p.stdout)
    assert (found["settle"], found["drain-timeout"], found["idle-timeout"]) == (1.5, 120, 90)
    assert (found["max-memory"], found["min-rate"]) == (3 << 30, 4096)
    tokens = tmp_path / "tokens"
    for expires in ("90", "90s", "1.5m"):
        p = run("token", "new", f"t{expires}".replace(".", ""), "--tokens", tokens, "--expires", expires, "--json")
        assert p.returncode == 0, p
        left = datetime.datetime.fromisoformat(json.loads(p.stdout)["expires"]) - datetime.datetime.now(datetime.UTC)
        assert 0 < left.total_seconds() <= 90, p
        p = run("sign", "/models", "--tokens", tokens, "--expires", expires)
        assert p.returncode == 0 and b"expires=" in p.stdout.lower(), p
    for args in (["token", "new", "x", "--tokens", tokens, "--expires"], ["sign", "/models", "--tokens", tokens,
                 "--expires"], ["pull", "http://127.0.0.1:1", "m", "--stall"]):
        for wrong in ("soon", "1w", "0.5", "0"):
            p = run(*args, wrong)
            assert p.returncode == 2, p
            assert re.search(rb"takes whole seconds, or a time such as \w+.* from 1s to", p.stderr), p


def test_addresses_that_are_none_are_told_with_an_example():
    for option, example in (("--listen", "127.0.0.1:8080"), ("--s3-listen", "127.0.0.1:8081")):
        p = run("serve", ".", option, "1.2.3.4:99999")
        assert p.returncode == 2 and b"with a port from 0 to 65535, not \"1.2.3.4:99999\"" in p.stderr, p
        p = run("serve", ".", option, "nowhere")
        wanted = f"{option} takes ADDRESS:PORT, such as {example}, with a port from 0 to 65535, not"
        assert p.returncode == 2 and wanted.encode() in p.stderr, p


def test_an_option_in_place_of_a_command():
    for args in (["--listen", "127.0.0.1:0"], ["--max-files=3"]):
        p = run(*args)
        wanted = f"tensord: {args[0]} is an option of tensord serve; usage: tensord serve DIR [options]\n"
        assert p.returncode == 2 and p.stderr == wanted.encode(), p
    p = run("--listne", "x")
    assert p.returncode == 2 and b'unknown option "--listne"' in p.stderr, p


def test_a_directory_in_place_of_a_command(tmp_path):
    p = run(tmp_path)
    assert p.returncode == 2 and f"tensord serve {tmp_path}" in p.stderr.decode()


# ------------------------------------------------------------------------------------------------ health

@pytest.mark.parametrize("url, says", [
    ("ftp://127.0.0.1", b'must begin with http:// or https://, but it is "ftp://127.0.0.1"\n'),
    ("https://", b'such as http://127.0.0.1:8080/readyz, not "https://"\n'),
    ("127.0.0.1:8080", b'but it is "127.0.0.1:8080"; did you mean http://127.0.0.1:8080?\n'),
    ("tensord://h:8080/m", b'but it is "tensord://h:8080/m"; did you mean http://h:8080?\n'),
    ("tensords://h", b'but it is "tensords://h"; did you mean https://h?\n'),
    ("localhost:8080/readyz", b"did you mean http://localhost:8080/readyz?\n"),
    ("http://", b'such as http://127.0.0.1:8080/readyz, not "http://"\n'),
    ("http://127.0.0.1:65536", b'not "http://127.0.0.1:65536"\n'),
    ("http://127.0.0.1:http", b'not "http://127.0.0.1:http"\n'),
    ("", b'not ""\n'),
])
def test_health_says_what_url_it_takes(url, says):
    p = run("health", url)
    assert p.returncode == 2 and p.stderr.endswith(says) and p.stderr.count(b"\n") == 1, p


def test_health_says_why_it_cannot_connect():
    """In the words of the C library (strerror, gai_strerror). A name with an empty label is not looked up anywhere."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        p = run("health", f"HTTP://127.0.0.1:{port}")      # RFC 3986 3.1: schemes are case-insensitive
        assert p.returncode == 1 and p.stderr.decode(
        ) == f"tensord: cannot connect to 127.0.0.1 port {port}: {os.strerror(errno.ECONNREFUSED)}\n", p
    p = run("health", "http://a..b:80/readyz")
    assert p.returncode == 1 and p.stderr == b"tensord: cannot connect to a..b port 80: Name or service not known\n", p
    with socket.socket() as full, contextlib.ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)          # its queue is full: more attempts get no answer
        for _ in range(4):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        port = full.getsockname()[1]
        p = run("health", f"http://127.0.0.1:{port}")
        assert p.returncode == 1 and p.stderr.decode(
        ) == f"tensord: cannot connect to 127.0.0.1 port {port}: {os.strerror(errno.ETIMEDOUT)}\n", p


# ------------------------------------------------------------------------------------------------ the environment

# The environment of a container in the namespace of a Service named tensord with a port "http", as the Kubernetes
# documentation shows it ("Discovering services: environment variables").
SERVICE_LINKS = {
    "TENSORD_SERVICE_HOST": "10.0.0.11", "TENSORD_SERVICE_PORT": "8080", "TENSORD_SERVICE_PORT_HTTP": "8080",
    "TENSORD_PORT": "tcp://10.0.0.11:8080", "TENSORD_PORT_8080_TCP": "tcp://10.0.0.11:8080",
    "TENSORD_PORT_8080_TCP_PROTO": "tcp", "TENSORD_PORT_8080_TCP_PORT": "8080", "TENSORD_PORT_8080_TCP_ADDR":
    "10.0.0.11"
}


def variables_told(log):
    return re.findall(r" (warn|info)  (TENSORD_\S+) is not an option of tensord and is ignored(.*)", log)


def test_mistyped_variables_are_told_at_the_start(tmp_path):
    with Server(
            tmp_path, env={
                "TENSORD_LISTENN": "127.0.0.1:1", "TENSORD_SETTLES": "9", "TENSORD_COLOUR": "red", "TENSORD_STATE_DIRR":
                ""
            }) as s:
        told = [t for t in variables_told(s.stderr()) if t[1] not in os.environ]
    assert sorted(told) == [("info", "TENSORD_COLOUR", "; tensord serve --help lists them"),
                            ("warn", "TENSORD_LISTENN", " (did you mean TENSORD_LISTEN?)"),
                            ("warn", "TENSORD_SETTLES", " (did you mean TENSORD_SETTLE?)")]


def test_a_kubernetes_service_of_the_same_name_is_no_option(tmp_path):
    """The server starts, takes no variable for an option, and logs nothing about it; no option has a name that a
    Service could have."""
    with Server(tmp_path, env=SERVICE_LINKS) as s:
        assert s.get("/readyz").status == 200
        assert [t for t in variables_told(s.stderr()) if t[1] not in os.environ] == []
    options = re.findall(r"^  --([a-z0-9-]+) ", run("help", "serve").stdout.decode(), re.MULTILINE)
    assert len(options) > 20
    for option in options:
        name = "TENSORD_" + option.upper().replace("-", "_")
        assert not re.search(r"(_SERVICE_HOST|_SERVICE_PORT(_.+)?|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$",
                             name), name


# ------------------------------------------------------------------------------------------------ verify's exit status

def test_verify_says_when_it_had_nothing_to_compare(tmp_path):
    """Exit status 0 means that something was compared and was unchanged."""
    empty = tmp_path / "empty"
    empty.mkdir()
    plain = tmp_path / "plain"
    write_by_hand(plain / "m/model.safetensors", [tensor("w", "F32", [4])])
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    for args in ([empty], [plain], [plain, "--state-dir", state], [empty, "--state-dir", state]):
        for json in ([], ["--json"]):
            p = run("verify", *args, *json)
            assert p.returncode == 3, (args, p)
            assert json or p.stderr.startswith(b"tensord: "), p
    unreadable = tmp_path / "odd"
    unreadable.mkdir()
    os.symlink("/etc/hostname", unreadable / "model.safetensors")
    assert run("verify", unreadable).returncode == 1      # a wrong file decides the exit status


def test_exit_codes_are_documented():
    helped = run("help").stdout.decode()
    text = (REPO / "docs/run.md").read_text()
    for code in "0123":
        assert re.search(rf"\b{code} [a-z]", helped.split("exit codes:")[1]), code
        assert f"\n| {code} | " in text
    assert "3 there was nothing to compare" in " ".join(run("help", "verify").stdout.decode().split())
