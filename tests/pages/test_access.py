"""Pages of a server with tokens: a browser asks for a name and a password once."""
import pytest

import harness
import models
import visits
from browser import inspect
from signing import TokensFile


@pytest.fixture(scope="module")
def guarded(root, tmp_path_factory):
    """(server, its tokens): one token may see everything, another one model."""
    tokens = TokensFile(tmp_path_factory.mktemp("tokens") / "tokens.json").add("all").add("one", [models.LLAMA])
    with harness.Server(root, "--tokens", tokens, hash_threads=0) as s:
        yield s, tokens


def test_without_a_token(browser, guarded):
    """The page says how to sign in, and its fields make a browser ask. It is seen after a wrong answer."""
    server, _ = guarded
    url, wrong = f"http://127.0.0.1:{server.port}/", ("anybody", "wrong")
    inspect(browser, url, "sign-in", 401, user=wrong)
    with browser.visit(url, status=401, user=wrong) as page:
        assert page.headers["www-authenticate"].count("Basic") == 1
        assert "token" in page.one("#error[role=alert]") and page.count("[data-model]") == 0


def test_with_a_token_as_password(browser, guarded):
    """Any user name will do. Only what the token may see is shown, from page to page."""
    server, tokens = guarded
    base = f"http://127.0.0.1:{server.port}"
    with browser.visit(base, user=("anybody", tokens.text("one"))) as page:
        assert page.all("#models tr[data-model]", "data-model") == [models.LLAMA]
        page.go("click", f"#models tr[data-model='{models.LLAMA}'] a")
        page.go("click", "a[data-link=tensors] >> nth=0")
        assert page.path() == visits.TENSORS["tensors"]
        page.act("fill", "input#filter", "layers.0.mlp")
        page.wait("() => document.querySelector('#tensors').dataset.matched === '3'")
    with browser.visit(base + visits.MODEL["model-moe"], user=("x", tokens.text("one")), status=404):
        pass
