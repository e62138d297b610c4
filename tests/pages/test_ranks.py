"""The page of ranks: their files, and lines to copy."""
import subprocess

import pytest

import harness
import models
import visits
from browser import inspect

COMMANDS = {"curl", "hf", "boto3", "python", "oras", "pull"}


@pytest.fixture(scope="module")
def srv(root):
    """A server that clients of S3 know, too: a page has lines for the clients that the server answers."""
    with harness.hashed_server(root, "--s3-listen", "127.0.0.1:0") as s:
        yield s


@pytest.mark.parametrize("name", visits.RANKS)
def test_looks(browser, srv, name):
    inspect(browser, f"http://127.0.0.1:{srv.port}{visits.RANKS[name]}", name)


def lengths(srv, tp):
    """Return the lengths of the ranks' files, from the server that sends them."""
    return [srv.head(f"/models/{models.LLAMA}/shards/vllm/tp{tp}/rank-{r}.safetensors").length for r in range(tp)]


def check_ranks(page, srv, tp):
    assert page.all("#ranks tr[data-rank]", "data-rank") == [str(r) for r in range(tp)]
    want = lengths(srv, tp)
    assert [int(n) for n in page.all("#ranks tr[data-rank]", "data-bytes")] == want
    assert page.count("svg [data-rank-bar]") == tp
    for link, nbytes in zip(page.all("#ranks tr[data-rank] a[data-link=file]", "href"), want, strict=True):
        assert srv.head(link).length == nbytes


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_bytes_of_each_rank(see, srv, script):
    with see(visits.RANKS["ranks"], script=script) as page:
        check_ranks(page, srv, 2)
        assert page.evaluate("() => document.querySelector('select#engine').value") == "vllm"
        page.act("fill", "input#tp", "1")
        if script:
            page.act("press", "input#tp", "Enter")
            page.wait("() => document.querySelectorAll('#ranks tr[data-rank]').length === 1")
        else:
            page.go("press", "input#tp", "Enter")
        check_ranks(page, srv, 1)
        assert "tp=1" in page.path()


@pytest.mark.parametrize("width", [1280, 360])
def test_bars_are_seen(see, width):
    """Beside the numbers, or below them over the width of the table where that is narrow; each as long as its part."""
    with see(visits.RANKS["ranks-moe"], width=width) as page:
        rows = page.evaluate("""() => [...document.querySelectorAll('#ranks tr[data-rank]')].map(row => {
            const box = e => e.getBoundingClientRect();
            const bar = box(row.querySelector('[data-rank-bar]')), size = box(row.querySelector('.number'));
            return {bytes: Number(row.dataset.bytes), width: bar.width, height: bar.height, whole: box(row).width,
                    below: bar.top >= size.bottom - 1};
        })""")
        most = max(row["bytes"] for row in rows)
        longest = max(row["width"] for row in rows)
        for row in rows:
            assert row["height"] >= 4 and row["below"] == (width == 360)
            assert abs(row["width"] / longest - row["bytes"] / most) < 0.01
        assert width == 1280 or longest > 0.9 * rows[0]["whole"]


def test_a_refusal_has_its_reason(see, srv):
    """Three ranks cannot share two heads of keys and four of queries."""
    reason = srv.get(f"/models/{models.LLAMA}/shards/vllm/tp3/rank-0.safetensors").json()["error"]["message"]
    with see(visits.RANKS["ranks-refused"]) as page:
        assert reason in page.one("#error[role=alert]") and page.count("#ranks tr[data-rank]") == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "tensord.test"], ids=["trusted", "over the network"])
def test_copy(browser, srv, host):
    """Each button copies its line and says so. Browsers give pages over plain HTTP no clipboard but for one command."""
    url = f"http://{host}:{srv.port}{visits.RANKS['ranks']}"
    with browser.visit(url) as page:
        kinds = set(page.all("pre[data-command]", "data-command"))
        assert kinds == COMMANDS
        for kind in sorted(kinds):
            button = f"button[data-copy={kind}]"
            page.click(button if page.count(button) else f"*:has(> pre[data-command={kind}]) button[data-copy]")
            page.wait("() => /copied/i.test(document.querySelector('[role=status]').textContent)")
            page.evaluate("""() => { document.querySelector("[role=status]").textContent = ""; }""")
            if host == "127.0.0.1":
                copied = page.evaluate("() => navigator.clipboard.readText()")
                assert copied.strip() == page.one(f"pre[data-command={kind}]"), kind
        page.axe()


def test_the_line_of_curl_saves_rank_0(see, srv, tmp_path):
    with see(visits.RANKS["ranks"]) as page:
        line = page.one("pre[data-command=curl]")
    subprocess.run(["bash", "-euo", "pipefail", "-c", line], cwd=tmp_path, check=True, timeout=60)
    want = srv.get(f"/models/{models.LLAMA}/shards/vllm/tp2/rank-0.safetensors").body
    assert {p.name: p.read_bytes() == want for p in tmp_path.iterdir()} == {"rank-0.safetensors": True}


def test_by_keyboard_alone(see):
    with see(visits.RANKS["ranks"]) as page:
        page.tab_to("select#engine")
        page.tab_to("input#tp")
        page.tab_to("button[data-copy]")
        page.press("Enter")
        page.wait("() => /copied/i.test(document.querySelector('[role=status]').textContent)")
