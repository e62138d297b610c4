"""huggingface_hub, the newest and 0.36.2, with HF_TOKEN against a server that asks for tokens."""
import json
import re
import subprocess
from pathlib import Path

import pytest

import harness
from client import HUB0, NEWEST, ClientError, Worker, digests, quiet_environment


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    top = tmp_path_factory.mktemp("hub-tokens")
    for id in ("ns/seen", "ns/hidden"):
        folder = top / "root" / id
        folder.mkdir(parents=True)
        harness.write_by_hand(folder / "model.safetensors", [harness.tensor("w", "F32", (30, 40))])
        (folder / "config.json").write_text('{"model_type": "none"}')
    harness.age(top / "root")
    return top


def new(place, name, *more):
    command = [harness.tensord_binary(), "token", "new", name, "--tokens", place / "tokens", "--json", *more]
    done = subprocess.run(command, check=True, capture_output=True)
    return json.loads(done.stdout)["token"]


@pytest.fixture(scope="module")
def tokens(place):
    made = {"good": new(place, "good", "--models", "ns/seen"), "expired": new(place, "expired"),
            "revoked": new(place, "revoked"), "wrong": "td_" + "A" * 43, "foreign": "hf_" + "x" * 34}
    document = json.loads((place / "tokens").read_text())
    document["tokens"][1]["expires"] = "2020-01-01T00:00:00Z"
    document["tokens"] = document["tokens"][:2]
    (place / "tokens").write_text(json.dumps(document))
    return made


@pytest.fixture(scope="module")
def srv(place, tokens):
    with harness.Server(place / "root", "--tokens", place / "tokens") as s:
        yield s


def worker(srv, token, version):
    more = {"HF_TOKEN": token} if token else {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}
    python = HUB0 if version == "0.36.2" else NEWEST
    return Worker("calls_hub", python, HF_ENDPOINT=f"http://127.0.0.1:{srv.port}", **more)


@pytest.mark.parametrize("version", ["newest", "0.36.2"])
def test_a_good_token_works_unchanged(srv, place, tokens, tmp_path, version):
    with worker(srv, tokens["good"], version) as hub:
        got = hub.snapshot(repo_id="ns/seen", cache_dir=str(tmp_path / "cache"))
        assert digests(got) == digests(place / "root/ns/seen")
        messages = set()
        for id in ("ns/hidden", "ns/absent"):
            with pytest.raises(ClientError) as caught:
                hub.snapshot(repo_id=id, cache_dir=str(tmp_path / "cache"))
            assert "RepositoryNotFoundError" in caught.value.kinds, caught.value
            messages.add(re.sub(r"[0-9A-F]{16}", "REQUEST", caught.value.text.replace(id, "ID")))
        assert len(messages) == 1, messages


@pytest.mark.parametrize("version", ["newest", "0.36.2"])
@pytest.mark.parametrize("kind,says", [
    ("wrong", "wrong or was revoked"), ("revoked", "wrong or was revoked"), ("foreign", "wrong or was revoked"),
    ("expired", "expired on 2020-01-01"), (None, "this server needs a token"),
])
def test_a_bad_one_is_refused_with_a_reason(srv, tokens, tmp_path, version, kind, says):
    with worker(srv, tokens.get(kind), version) as hub:
        with pytest.raises(ClientError) as caught:
            hub.model_info(repo_id="ns/seen")
        assert "401" in str(caught.value) and says in str(caught.value), caught.value
        with pytest.raises(ClientError):
            hub.download(repo_id="ns/seen", filename="config.json", cache_dir=str(tmp_path / "cache"))
    assert not list(tmp_path.glob("cache/**/config.json"))


def hf(srv, home, token, *args):
    env = quiet_environment(str(home), HF_ENDPOINT=f"http://127.0.0.1:{srv.port}", HF_TOKEN=token)
    return subprocess.run([Path(NEWEST).parent / "hf", *args], capture_output=True, text=True, timeout=120, env=env)


def test_the_command_line(srv, place, tokens, tmp_path):
    done = hf(srv, tmp_path, tokens["good"], "download", "ns/seen", "--local-dir", str(tmp_path / "here"))
    assert done.returncode == 0, done
    assert (tmp_path / "here/config.json").read_bytes() == (place / "root/ns/seen/config.json").read_bytes()
    assert "good" in hf(srv, tmp_path, tokens["good"], "auth", "whoami").stdout
    for token, says in ((tokens["expired"], "expired on 2020-01-01"), (tokens["wrong"], "wrong or was revoked")):
        done = hf(srv, tmp_path, token, "download", "ns/seen")
        assert done.returncode != 0 and says in done.stdout + done.stderr, done
        assert token not in done.stdout + done.stderr
