"""`python -m tensord get` and what it writes to; and what each command says when it cannot do its work."""
import os
import stat
import subprocess
import sys
import threading

import pytest
import torch
from conftest import CLIENT, url_of
from safetensors.torch import load_file, save_file

import harness
import pki
from tensord.__main__ import main


@pytest.fixture
def url(serve):
    (serve.root / "m").mkdir()
    save_file({"w": torch.arange(1024.0), "v": torch.zeros(3)}, serve.root / "m" / "model.safetensors")
    return url_of(serve(), "m")


def get(url, *arguments):
    return main(["get", url, *map(str, arguments), "--quiet"])


def test_get_replaces_regular_files_alone(url, tmp_path):
    bytes_ = torch.arange(1024.0).numpy().tobytes()
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o640)
    (tmp_path / "link").symlink_to("old")
    assert get(url, "w", "-o", tmp_path / "link") == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "old").read_bytes() == bytes_
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o640
    os.mkfifo(tmp_path / "pipe")
    found = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_bytes()), daemon=True)
    reader.start()
    assert get(url, "w", "-o", tmp_path / "pipe") == 0
    reader.join(20)
    assert found == [bytes_] and (tmp_path / "pipe").is_fifo()
    assert get(url, "w", "-o", "/dev/null") == 0 and not os.path.isfile("/dev/null")


def test_get_of_a_model_needs_a_regular_file(url, tmp_path, capsys):
    assert get(url, "-o", "/dev/null") == 1 and not os.path.isfile("/dev/null")
    assert "a whole model is written to a regular file, which /dev/null is not" in capsys.readouterr().err
    old = os.umask(0o027)
    try:
        assert get(url, "-o", tmp_path / "new.safetensors") == 0
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new.safetensors").stat().st_mode) == 0o640
    assert torch.equal(load_file(tmp_path / "new.safetensors")["w"], torch.arange(1024.0))
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []


# shows: security.md python-full-disk
def test_get_leaves_the_files_of_others_alone(url, tmp_path, capsys):
    (tmp_path / "out.part").write_text("precious")
    assert get(url, "-o", tmp_path / "out") == 0 and get(url, "w", "-o", tmp_path / "out") == 0
    assert (tmp_path / "out.part").read_text() == "precious"
    (tmp_path / "kept").write_text("kept")
    assert get(url, "none", "-o", tmp_path / "kept") == 1
    assert (tmp_path / "kept").read_text() == "kept"
    assert get(url, "w", "-o", tmp_path) == 1 and "this is a directory" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "out", "out.part", "root"]


# shows: security.md python-full-disk
def test_get_on_a_full_disk_ends_with_a_message(serve, tmp_path):
    """On a file system of 1 MiB, where it is shown that a hole that cannot be filled does not end the process."""
    (serve.root / "m").mkdir()
    save_file({"w": torch.zeros(2**20)}, serve.root / "m" / "model.safetensors")
    url = url_of(serve(), "m")
    (tmp_path / "small").mkdir()
    script = (f"mount -t tmpfs -o size=1m small {tmp_path}/small && cd {tmp_path}/small && "
              f"{sys.executable} -W ignore -m tensord get {url} -o m.safetensors --quiet; echo $?; ls -A")
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(CLIENT)}, timeout=60)
    assert done.stdout.split() == ["1"], done
    assert done.stderr == "tensord: [Errno 28] No space left on device\n"


def test_messages(url, capsys):
    assert main(["bench", url, "--match", "none*"]) == 1
    assert "no tensor that matches none* has bytes" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert main(["bench", url, "--device", "cuda"]) == 1
        assert "tensord: torch cannot use the device cuda: " in capsys.readouterr().err
    assert main(["ls", "tensord://127.0.0.1:9/m", "--retry-for", "0.2"]) == 1
    assert "gave up after" in capsys.readouterr().err
    assert main(["ls", url, "--match", "w"]) == 0
    assert "1 tensor, 4.0 KiB" in capsys.readouterr().out


def said(capsys, *arguments):
    """Return what a command says that fails."""
    assert main([*map(str, arguments)]) == 1
    return capsys.readouterr().err


def test_messages_name_the_options_of_the_command_line(serve, tmp_path, capsys):
    pair, tokens = pki.Authority(tmp_path), tmp_path / "tokens.json"
    subprocess.run([harness.tensord_binary(), "token", "new", "all", "--tokens", tokens], check=True,
                   capture_output=True, timeout=60)
    port = serve(*pki.options_of(pair), "--tokens", tokens, tls=pair.context(), ready=False).port
    url = f"https://localhost:{port}/models/m"
    assert "; --ca-file or the environment's SSL_CERT_FILE names" in said(capsys, "ls", url)
    assert "401: " in (text := said(capsys, "ls", url, "--no-verify")) and "give a token by --token or TENSOR" in text
    assert "the token of --token has a space" in said(capsys, "ls", url, "--no-verify", "--token", "a b")
    for option, what in (("--ca-file", "--ca-file '/none' cannot be used: "),
                         ("--cert-file", "--cert-file '/none' cannot be used: "),
                         ("--key-file", "--key-file is given and --cert-file is not"),
                         ("--retry-for", "--retry-for is -1.0; it must be a number of seconds above 0")):
        assert f"tensord: {what}" in said(capsys, "ls", url, option, "-1" if option == "--retry-for" else "/none")
    assert "--connections is 0; " in said(capsys, "bench", url, "--connections", "0")
    assert "(--retry-for 0.1)" in said(capsys, "ls", "tensord://127.0.0.1:9/m", "--retry-for", "0.1")
    text = said(capsys, "ls", f"tensord://localhost:{port}/m", "--no-verify", "--ca-file", pair.cert, "--token", "x")
    assert text == ("tensord: --ca-file and --no-verify cannot be used with tensord://, which is plain HTTP: the URL "
                    f"over TLS is {url}\n")


def test_commands_that_only_look_give_up_sooner(monkeypatch, tmp_path, capsys):
    found = {}

    def connect(url, options):
        found[chosen[0]] = options.retry_for
        raise ValueError("not further")

    monkeypatch.setattr("tensord.__main__.connect", connect)
    for chosen in (["ls"], ["rows", "0"], ["get", "-o", tmp_path / "file"], ["bench"]):
        said(capsys, chosen[0], "tensord://127.0.0.1:9/m", *chosen[1:])
    assert found == {"ls": 10, "rows": 10, "get": 120, "bench": 120}
    chosen = ["get"]
    said(capsys, "get", "tensord://127.0.0.1:9/m", "-o", tmp_path / "file", "--retry-for", "3")
    assert found["get"] == 3


def test_help_says_which_urls_there_are(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("https://host:port/models/MODEL of a server with TLS", "tensord:// is plain HTTP",
                 "https://a:8443,b:8443/models/MODEL"):
        assert text in shown


def test_ls_names_the_checkpoints_of_a_model(serve, capsys):
    (serve.root / "two").mkdir()
    save_file({"a": torch.zeros(1)}, serve.root / "two" / "a.safetensors")
    torch.save({"b": torch.zeros(1), "meta": torch.zeros(1, device="meta")}, serve.root / "two" / "b.pt")
    url = url_of(serve(), "two")
    assert main(["ls", url]) == 0
    shown = capsys.readouterr().out
    assert "of checkpoint safetensors; the model has safetensors, b.pt: ?checkpoint=ID after the URL" in shown
    assert main(["ls", f"{url}?checkpoint=b.pt"]) == 0
    assert "not readable: " in capsys.readouterr().out
