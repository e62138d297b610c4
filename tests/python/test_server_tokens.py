"""The client against a server that asks for tokens: the models that each token shows, and the messages."""
import json
import subprocess

import pytest
import tensord

import harness


@pytest.fixture
def place(serve, tmp_path):
    """The URL of a server, and tokens by name; `expired` has expired, and `revoked` is not in the file."""
    file = tmp_path / "tokens"
    for id in ("org/seen", "org/hidden"):
        (serve.root / id).mkdir(parents=True)
        harness.write_by_hand(serve.root / id / "model.safetensors", [harness.tensor("w", "F32", [2, 3])])
    tokens = {"wrong": "td_" + "A" * 43}
    for name, more in (("good", ["--models", "org/seen"]), ("expired", []), ("revoked", [])):
        made = subprocess.run([harness.tensord_binary(), "token", "new", name, "--tokens", file, "--json", *more],
                              check=True, capture_output=True)
        tokens[name] = json.loads(made.stdout)["token"]
    document = json.loads(file.read_text())
    document["tokens"][1]["expires"] = "2020-01-01T00:00:00Z"
    del document["tokens"][2]
    file.write_text(json.dumps(document))
    return f"http://127.0.0.1:{serve('--tokens', file).port}", tokens


def test_a_good_token(place, monkeypatch):
    url, tokens = place
    with tensord.connect(url, token=tokens["good"]) as client:
        assert [m["id"] for m in client.models()] == ["org/seen"]
    monkeypatch.setenv("TENSORD_TOKEN", tokens["good"])
    assert tensord.open_model(f"{url}/models/org/seen").names() == ["w"]
    messages = set()
    for id in ("org/hidden", "org/absent"):
        with pytest.raises(tensord.NotFoundError) as caught:
            tensord.open_model(f"{url}/models/{id}").names()
        messages.add(str(caught.value).replace(id, "ID"))
    assert len(messages) == 1, messages


@pytest.mark.parametrize("name,says", [
    ("wrong", "the token is wrong or was revoked; .*; the token was refused"),
    ("revoked", "the token is wrong or was revoked; .*; the token was refused"),
    ("expired", "the token has expired on 2020-01-01T00:00:00.000Z; .*; the token was refused"),
    (None, "this server needs a token: .*; give a token by token= or TENSORD_TOKEN"),
])
def test_a_bad_one(place, name, says):
    url, tokens = place
    with pytest.raises(tensord.AnswerError, match=f"401: {says}") as caught:
        with tensord.connect(url, token=tokens.get(name)) as client:
            client.models()
    assert name is None or tokens[name] not in str(caught.value)
