"""Requests that wait for what is not there yet: lists by `match` and `wait`, and names by an empty `wait`."""
import os
import shutil
import time

import pytest

from harness import Conn, age, check_error, enc
from test_tokens import new
from test_waiting import LONG, Waiter, publish, rescan, root, serve, target, waiting, write  # noqa: F401
from upstream_kit import cache, hubs, model  # noqa: F401


def listing(tag, kind="models", match="run/*", **parameters):
    query = {"match": enc(match), "wait": enc(tag), "timeout": LONG, **parameters}
    return f"/{kind}?" + "&".join(f"{k}={v}" for k, v in query.items() if v is not None)


def list_tag(s, kind="models", match="run/*"):
    return s.get(f"/{kind}?match={enc(match)}").etag


def write_rows(root, name, text='{"n": 1}\n', file="train.jsonl"):
    path = root / "datasets" / name / file
    path.parent.mkdir(parents=True, exist_ok=True)
    new_path = path.with_name(".new")
    new_path.write_text(text)
    os.replace(new_path, path)


def ids(answer, kind="models"):
    return [row["id"] for row in answer.json()[kind]]


@pytest.mark.parametrize("workers", ["2", "0"])
def test_a_list_waits_for_its_models(serve, workers):
    """A model that comes, changes and goes ends the wait; one that the glob does not match does not."""
    with serve("--workers", workers) as s:
        tag = list_tag(s)
        waiters = [Waiter(s, listing(tag)), Waiter(s, listing(tag.strip('"'))), Waiter(s, listing(tag), split=True),
                   Waiter(s, listing(tag, page_size=1)), Waiter(s, listing(tag), {"Accept": "text/html"}),
                   Waiter(s, listing(tag), method="HEAD")]
        waiting(s, len(waiters))
        publish(s, "other/step-1", 1)
        assert s.get(listing(tag, timeout=0)).status == 304
        waiting(s, len(waiters))
        publish(s, "run/step-1", 1)
        now = s.get("/models?match=run/*")
        assert now.etag != tag and ids(now) == ["run/step-1"]
        for waiter in waiters:
            answer = waiter.answer()
            assert (answer.status, answer.get("Content-Type")) == (200, "application/json"), answer
            assert answer.etag == now.etag and answer.body == (b"" if waiter.method == "HEAD" else now.body)
        for change in (lambda: write(s.root, "run/step-1", 2), lambda: write(s.root, "run/step-2", 1),
                       lambda: shutil.rmtree(s.root / "run/step-1")):
            tag = list_tag(s)
            waiter = Waiter(s, listing(tag))
            waiting(s, 1)
            change()
            rescan(s)
            assert waiter.answer().etag == list_tag(s) != tag
        assert ids(s.get("/models?match=run/*")) == ["run/step-2"]


def test_each_page_waits_for_the_whole_list(serve):
    with serve() as s:
        for step in (1, 2):
            publish(s, f"run/step-{step}", step)
        first = s.get("/models?match=run/*&page_size=1")
        token = first.json()["next_page_token"]
        second = s.get(f"/models?match=run/*&page_token={token}")
        assert first.etag != second.etag and ids(second) == ["run/step-2"]
        waiters = [Waiter(s, listing(first.etag, page_size=1)), Waiter(s, listing(second.etag, page_token=token)),
                   Waiter(s, listing(first.etag))]
        waiting(s, 3)
        publish(s, "run/step-3", 3)
        assert [ids(w.answer()) for w in waiters] == [
            ["run/step-1"], ["run/step-2", "run/step-3"], ["run/step-1", "run/step-2", "run/step-3"]]


def test_tags_of_lists(serve):
    """A tag is of one list: that of another `match` is answered at once. The timeout is a 304 with the same fields as
    any other."""
    with serve() as s, Conn(s.port) as c:
        publish(s, "run/a", 1)
        now = c.request("/models?match=run/*")
        everything = s.get("/models")
        for wait in ("", "x", '"', everything.etag, now.etag[:20]):
            answer = s.get(listing(wait))
            assert (answer.status, answer.etag, answer.body) == (200, now.etag, now.body), wait
        began = time.monotonic()
        answer = c.request(listing(now.etag, timeout=1))
        assert time.monotonic() - began >= 1
        usual = c.request("/models?match=run/*", {"If-None-Match": now.etag})
        assert (answer.status, answer.etag, answer.names()) == (304, now.etag, usual.names())
        assert c.request("/models", {"If-None-Match": everything.etag}).status == 304
        check_error(s.get(listing(now.etag, timeout=301)), 400, "timeout must be a whole number from 0 to 300")
        check_error(s.get(listing(now.etag, waits=1)), 400, "known here: page_size, page_token, match, wait, timeout")


@pytest.mark.parametrize("workers", ["2", "0"])
def test_a_model_that_comes(serve, workers):
    """Also one below a model that is there, as a trainer writes checkpoints below its last model."""
    names = ["step-3", "local/step-3", "demo/step-3", "org/a/b", "step-3/", "ü b"]
    with serve("--workers", workers) as s:
        waiters = [Waiter(s, target("", "/".join(map(enc, name.split("/"))))) for name in names]
        waiters += [Waiter(s, target("", "step-3"), method="HEAD"), Waiter(s, target("", "step-3"), split=True),
                    Waiter(s, target("", "step-3"), {"Accept": "text/html"}), Waiter(s, "/models/step-3?wait=")]
        names += ["step-3"] * 4
        waiting(s, len(waiters))
        publish(s, "other", 1)
        waiting(s, len(waiters))
        for name in ("step-3", "demo/step-3", "org/a/b", "ü b"):
            write(s.root, name, 1)
        rescan(s)
        for waiter, name in zip(waiters, names):
            answer = waiter.answer()
            assert answer.status == 200 and answer.get("Content-Type") == "application/json", (name, answer)
            if waiter.method == "GET":
                assert answer.json()["id"] == name.strip("/").removeprefix("local/")
            assert answer.etag and s.get(target(answer.etag, timeout=0)).status in (200, 304)
        waiting(s, 0)
        began = time.monotonic()
        assert s.get(target("", "step-3")).json()["id"] == "step-3"
        assert time.monotonic() - began < 30


def test_a_model_that_does_not_come(serve):
    with serve() as s, Conn(s.port) as c:
        plain = s.get("/models/step-3").json()
        for name in ("step-3", "demo/step-3", "step-3/"):
            began = time.monotonic()
            answer = c.request(target("", name, timeout=1))
            assert time.monotonic() - began >= 1
            check_error(answer, 404, "step-3")
        assert s.get(target("", "step-3", timeout=0)).json() == plain
        assert s.get(target("x", "step-3")).json() == plain  # a state of a model that is gone
        check_error(s.get(target("", "step-3", timeout=301)), 400, "timeout must be a whole number from 0 to 300")
        check_error(s.get(target("", "step-3", waits=1)), 400, "known here: wait, timeout")
        # what can never be a model's id is not waited for
        for path in ("step-3/tensors", "step-3/tensors/w", "step-3/files/x", "demo/files", "demo/shards/x"):
            began = time.monotonic()
            assert s.get(target("", path)).status in (400, 404), path
            assert time.monotonic() - began < 30
        assert s.request(target("", "step-3"), method="POST").status == 404


@pytest.mark.parametrize("workers", ["2", "0"])
def test_datasets_that_come_and_change(serve, workers):
    with serve("--workers", workers) as s:
        tag = list_tag(s, "datasets", "*")
        lists = [Waiter(s, listing(tag, "datasets", "*")), Waiter(s, listing(tag, "datasets", "*"), split=True)]
        names = [Waiter(s, f"/datasets/{name}?wait=&timeout={LONG}", headers)
                 for name in ("counts", "local/counts", "counts/") for headers in ((), {"Accept": "text/html"})]
        waiting(s, 8)
        publish(s, "other", 1)
        waiting(s, 8)
        write_rows(s.root, "counts")
        rescan(s)
        assert [ids(w.answer(), "datasets") for w in lists] == [["counts"], ["counts"]]
        assert [w.answer().json()["id"] for w in names] == ["counts"] * 6
        s.wait_for(lambda: s.json("/datasets/counts")["splits"][0]["index"]["state"] == "ready", "the index", 30)
        before = s.get("/datasets/counts")
        assert s.get(listing(list_tag(s, "datasets", "*"), "datasets", "*", timeout=0)).status == 304
        path = f"/datasets/counts?wait={enc(before.etag)}&timeout="
        assert s.get(path + "0").status == 304
        waiter = Waiter(s, path + "300")
        below = Waiter(s, "/datasets/counts/more?wait=")
        waiting(s, 2)
        write_rows(s.root, "counts", '{"n": 1}\n{"n": 2}\n')
        rescan(s)
        assert waiter.answer().etag.split("-")[0] != before.etag.split("-")[0]
        write_rows(s.root, "counts/more", file="x.jsonl")
        write_rows(s.root, "counts", file="test.jsonl")
        rescan(s)
        assert s.get(path + "300").status == 200
        below.conn.close()
        waiting(s, 0)
        for name in ("none", "none/none", "counts/none"):
            check_error(s.get(f"/datasets/{name}?wait=&timeout=1"), 404)
        check_error(s.get("/datasets/none?wait=&timeout=x"), 400, "timeout must be")
        for name in ("a/b/c", "none/rows", "counts/rows/1"):  # no ids of datasets
            assert s.get(f"/datasets/{name}?wait=").status in (400, 404)


def test_an_index_that_becomes_known_is_no_change(serve, root):
    write_rows(root, "counts", '{"n": 1}\n' * 10)
    with serve(hash_threads=1) as s:
        early = s.get("/datasets/counts").etag
        s.wait_for(lambda: s.json("/datasets/counts")["splits"][0]["index"]["state"] == "ready", "the index", 30)
        s.wait_hashed()
        assert s.get(f"/datasets/counts?wait={enc(early)}&timeout=0").status == 304


# shows: security.md token-hidden
def test_a_token_waits_for_what_it_may_see_alone(root, tmp_path, start):
    """A hidden name is waited for like one that is not there, and the list of a token does not change with hidden
    models."""
    write(root, "demo", 0)
    tokens = tmp_path / "tokens.json"
    some = {"Authorization": "Bearer " + new(tokens, "some", "run/*", "datasets/mine")}
    every = {"Authorization": "Bearer " + new(tokens, "every")}
    age(root)
    with start(root, "--tokens", tokens, settle="0", rescan="0") as s:
        def scan():
            assert s.request("/rescan", every, method="POST").status == 200

        def gauge(count):
            s.wait_for(lambda: f"\ntensord_waiters {count}\n" in s.get("/metrics", every).body.decode(),
                       f"{count} requests wait", 30)
        check_error(s.get(target("", "demo", timeout=1), some), 404, "demo")
        absent = s.get(target("", "none", timeout=0), some).json()
        hidden = s.get(target("", "demo", timeout=0), some).json()
        assert {k: v for k, v in hidden["error"].items() if k != "message"} == {
            k: v for k, v in absent["error"].items() if k != "message"}
        assert hidden["error"]["message"].replace("demo", "none") == absent["error"]["message"]
        tag = s.get("/models?match=*", some).etag
        waiters = [Waiter(s, listing(tag, match="*"), some), Waiter(s, target("", "secret"), some),
                   Waiter(s, f"/datasets/hidden?wait=&timeout={LONG}", some),
                   Waiter(s, f"/datasets/mine?wait=&timeout={LONG}", some)]
        gauge(4)
        write(s.root, "secret", 1)
        write_rows(s.root, "hidden")
        scan()
        assert s.get("/models/secret", every).status == 200 and s.get("/datasets/hidden", every).status == 200
        gauge(4)
        write(s.root, "run/step-1", 1)
        write_rows(s.root, "mine")
        scan()
        assert ids(waiters[0].answer()) == ["run/step-1"] and waiters[3].answer().json()["id"] == "mine"
        gauge(2)
        assert s.get(listing(tag, match="*")).status == 401 and s.get(target("", "run/step-1")).status == 401


@pytest.mark.parametrize("workers", ["2", "0"])
# shows: security.md host-waiters
def test_places_of_waiters(serve, workers):
    with serve("--max-waiters", "2", "--workers", workers) as s:
        tag = list_tag(s)
        waiters = [Waiter(s, target("", "none")), Waiter(s, listing(tag))]
        waiting(s, 2)
        for path in (target("", "none"), listing(tag), "/datasets/none?wait="):
            check_error(s.get(path), 503, "as many requests wait for a change as --max-waiters allows")
        assert s.get(target("", "demo")).status == 200 and s.get(target("", "none", timeout=0)).status == 404
        waiters.pop().conn.close()
        waiting(s, 1)
        publish(s, "none", 1)
        assert waiters[0].answer().status == 200


@pytest.mark.parametrize("workers", ["2", "0"])
def test_sigterm_ends_these_waits(serve, workers):
    with serve("--workers", workers, "--drain-timeout", "120") as s:
        waiters = [Waiter(s, target("", "none")), Waiter(s, listing(list_tag(s))), Waiter(s, "/datasets/x?wait=")]
        waiting(s, 3)
        s.term()
        assert [w.answer().status for w in waiters] == [404, 304, 404]
        assert s.wait_exit(30) == 0


def test_a_model_that_comes_to_the_upstream(hubs, cache):
    """A node cache asks its upstream again while a request waits: what is published there publishes nothing here."""
    hub = hubs({"org/other": model()})
    server = cache(hub.url)
    waiter = Waiter(server, target("", "org/m"))
    server.wait_for(lambda: server.gauge("tensord_waiters") == 1, "a request waits", 30)
    hub.models["org/m"] = model()
    waiter.conn.sock.settimeout(150)
    answer = waiter.answer()
    assert (answer.status, answer.json()["id"]) == (200, "org/m"), answer
