"""GET /events: what changed, as server-sent events and as pages of JSON."""
import os
import shutil
import socket
import threading
import time

import pytest

import pki
from event_reader import STREAM, EventReader
from harness import check_error, enc, safetensors_bytes, tensor
from publishing import Repo
from signing import TokensFile


def weights(salt):
    return safetensors_bytes([tensor("w", "F32", [4, 6], str(salt))])


def write(root, name, salt=0):
    """Put a checkpoint into place by a rename, as an operator does."""
    path = root / name / "model.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(".new")
    new.write_bytes(weights(salt))
    os.replace(new, path)


def write_rows(root, name, count=2):
    path = root / "datasets" / name / "train.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(".new")
    new.write_text("".join(f'{{"a": {i}}}\n' for i in range(count)))
    os.replace(new, path)


def rescan(s):
    answer = s.request("/rescan", method="POST")
    assert answer.status == 200, answer


@pytest.fixture
def root(tmp_path):
    write(tmp_path / "root", "demo")
    return tmp_path / "root"


@pytest.fixture
def serve(root, start):
    """Serve the root; it is scanned when somebody asks for it, or publishes."""
    def go(*args, **kw):
        return start(root, *args, **{"settle": "0", "rescan": "0"} | kw)
    return go


@pytest.fixture
def publisher(serve):
    return serve("--publish", "local")


def newest(s, headers=()):
    return s.json("/events", headers)["next"]


# ---------------------------------------------------------------------------------------------- directories

def test_directories_that_the_operator_changes(serve, root):
    s = serve()
    with EventReader(s).opened() as reader:
        assert reader.head.get("Content-Type") == "text/event-stream"
        assert reader.head.get("Cache-Control") == "no-store" and reader.head.get("X-Accel-Buffering") == "no"
        assert reader.retry > 0 and reader.last_id == newest(s)
        reader.nothing(0.2)     # what was there at the start is no event
        write(root, "new/one")
        rescan(s)
        event = reader.next()
        assert event.named() == ("published", "model", "new/one", None)
        assert event["event"] == "published" and event["href"] == "/models/new/one" and "commit" not in event.data
        assert event["time"].endswith("Z") and s.get(event["href"]).status == 200
        write(root, "demo", 1)
        write_rows(root, "org/rows")
        rescan(s)
        assert [e.named()[:3] for e in reader.take(2)] == [("replaced", "model", "demo"),
                                                           ("published", "dataset", "org/rows")]
        write_rows(root, "org/rows", 3)
        shutil.rmtree(root / "new/one")
        rescan(s)
        assert [e.named()[:3] for e in reader.take(2)] == [("removed", "model", "new/one"),
                                                           ("replaced", "dataset", "org/rows")]
        shutil.rmtree(root / "datasets")
        rescan(s)
        event = reader.next()
        assert event.named()[:3] == ("removed", "dataset", "org/rows") and event["href"] == "/datasets/org/rows"
        assert s.get(event["href"]).status == 404
        rescan(s)
        reader.nothing(0.2)


def test_names_are_escaped(serve, root):
    s = serve()
    name = "ünï code/näme \"x\"%?#"
    with EventReader(s).opened() as reader:
        write(root, name)
        rescan(s)
        event = reader.next()
        assert event["id"] == name and s.json(event["href"])["id"] == name


def test_digests_that_become_known_are_no_event(root, start):
    s = start(root, hash_threads=1, settle="0", rescan="0")
    with EventReader(s).opened() as reader:
        s.wait_hashed()
        assert len(s.json("/models/demo")["id"]) > 0
        reader.nothing(0.3)


# ---------------------------------------------------------------------------------------------- publishing

def test_every_branch_and_tag_that_moves(publisher):
    s = publisher
    repo = Repo(s.port, "org/name")
    with EventReader(s).opened() as reader:
        commits = [repo.push({"model.safetensors": weights(i)})[0].json()["commit"] for i in range(2)]
        events = reader.take(2)
        assert [e.named() for e in events] == [("published", "model", "org/name", "main"),
                                               ("replaced", "model", "org/name", "main")]
        assert [e["commit"] for e in events] == commits
        for revision, expected in (("v1", "published"), ("exp/a", "published")):
            answer = repo.commit({}, revision=revision, keep=True, **{"from": commits[0]})
            assert answer.status == 201, answer
            event = reader.next()
            assert event.named() == (expected, "model", "org/name", revision) and event["commit"] == commits[0]
        answer = repo.commit({}, revision="v1", keep=True, delete=[], **{"from": commits[1]})
        moved = repo.push({"model.safetensors": weights(7)}, revision="v1")[0]
        assert moved.status == 201, moved
        events = [e for e in reader.take(1 if answer.status == 200 else 2)]
        assert events[-1].named() == ("replaced", "model", "org/name", "v1")
        assert events[-1]["commit"] == moved.json()["commit"]
        assert repo.ask("DELETE").status == 204
        gone = reader.take(3)
        assert sorted(e.named() for e in gone) == sorted(("removed", "model", "org/name", r)
                                                         for r in ("main", "v1", "exp/a"))
        assert {e["commit"] for e in gone if e["revision"] == "main"} == {commits[1]}
        reader.nothing(0.2)


def test_a_dataset_and_a_repository_that_is_no_model(publisher):
    s = publisher
    with EventReader(s).opened() as reader:
        rows = Repo(s.port, "org/rows", kind="datasets")
        assert rows.push({"train.jsonl": b'{"a": 1}\n'})[0].status == 201
        event = reader.next()
        assert event.named() == ("published", "dataset", "org/rows", "main")
        assert event["commit"] == rows.main() and event["href"] == "/datasets/org/rows"
        notes = Repo(s.port, "org/notes")
        assert notes.push({"notes.txt": b"only words"})[0].status == 201
        event = reader.next()
        assert event.named() == ("published", "model", "org/notes", "main") and event["commit"] == notes.main()
        assert notes.put_file("notes.txt", b"other words").status == 200
        assert reader.next().named() == ("replaced", "model", "org/notes", "main")
        assert rows.ask("DELETE").status == 204
        assert reader.next().named() == ("removed", "dataset", "org/rows", "main")


def test_the_answer_to_a_publisher_comes_after_the_event(publisher):
    """An event is in the ring when the commit is answered, so a page of JSON has it at once."""
    s = publisher
    repo = Repo(s.port, "org/name")
    for i in range(5):
        after = newest(s)
        commit = repo.push({"model.safetensors": weights(i)})[0].json()["commit"]
        page = s.json(f"/events?after={after}")
        assert [e["commit"] for e in page["events"]] == [commit] and page["next"] == page["events"][0]["event_id"]


def test_a_second_server_on_one_volume(publisher, start):
    other = start(publisher.root, settle="0.2", rescan="0.2")
    repo = Repo(publisher.port, "org/name")
    with EventReader(other).opened() as reader:
        for i in range(3):
            commit = repo.push({"model.safetensors": weights(i)})[0].json()["commit"]
            event = reader.next()
            assert event.named() == ("replaced" if i else "published", "model", "org/name", "main")
            assert event["commit"] == commit
        assert repo.ask("DELETE").status == 204
        assert reader.next().named() == ("removed", "model", "org/name", "main")


def test_order(publisher):
    """Two streams have the same events in the same order; ids grow by one."""
    s = publisher
    names = [f"org/m{i}" for i in range(4)]
    with EventReader(s).opened() as one, EventReader(s).opened() as two:
        def work(name):
            for i in range(5):
                assert Repo(s.port, name).push({"model.safetensors": weights(f"{name}{i}")})[0].status == 201
        threads = [threading.Thread(target=work, args=(name,)) for name in names]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        events = []
        while sum(e["commit"] == Repo(s.port, e["id"]).main() for e in events) < len(names):
            events.append(one.next())
        assert [(e.id, e.data) for e in two.take(len(events))] == [(e.id, e.data) for e in events]
        numbers = [int(e.id.rpartition("-")[2]) for e in events]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        for name in names:      # the first is the publication, and no state is reported twice
            mine = [e for e in events if e["id"] == name]
            assert [e.type for e in mine] == ["published"] + ["replaced"] * (len(mine) - 1)
            assert len({e["commit"] for e in mine}) == len(mine)


# ---------------------------------------------------------------------------------------------- resuming

def test_a_client_that_was_away_misses_nothing(publisher):
    s = publisher
    repo = Repo(s.port, "org/name")
    with EventReader(s).opened() as reader:
        repo.push({"model.safetensors": weights(0)})
        first = reader.next()
    commits = [repo.push({"model.safetensors": weights(i)})[0].json()["commit"] for i in (1, 2)]
    with EventReader(s, last=first.id) as reader:
        assert [e["commit"] for e in reader.take(2)] == commits
    with EventReader(s, f"/events?after={first.id}") as reader:      # for clients that cannot set the field
        assert [e["commit"] for e in reader.take(2)] == commits
    with EventReader(s, "/events?after=other-7", last=first.id) as reader:     # the field is newer than the URL
        assert [e["commit"] for e in reader.take(2)] == commits
    page = s.json(f"/events?after={first.id}")
    assert [e["commit"] for e in page["events"]] == commits and page["reset"] is False
    assert s.json(f"/events?after={page['next']}") == {"events": [], "reset": False, "next": page["next"]}


@pytest.mark.parametrize("id", ["7", "x", "0123456789abcdef-0", "0123456789abcdef-7", "-", "-1", "a" * 4000, "%s-99",
                                "%s-18446744073709551615", "%s-18446744073709551616", "%s--1", "%s-", "%s-0x1",
                                "%s-01", "%s- 0", "é-0"])
def test_an_id_that_this_server_never_gave_is_a_reset(publisher, id):
    s = publisher
    here = newest(s)
    id = id.replace("%s", here.rpartition("-")[0])
    with EventReader(s, last=id.encode().decode("latin-1")) as reader:
        event = reader.next()
        assert event.type == "reset" and event.data == {"event": "reset", "reason": "unknown"} and event.id == here
        Repo(s.port, "org/name").push({"model.safetensors": weights(0)})
        assert reader.next().named() == ("published", "model", "org/name", "main")
    page = s.json(f"/events?after={enc(id)}")
    assert page["reset"] is True and page["reason"] == "unknown" and page["events"] == []
    assert s.json(f"/events?after={page['next']}")["reset"] is False


def test_a_restart_is_a_reset(root, start):
    first = start(root, settle="0")
    id = newest(first)
    first.stop()
    second = start(root, settle="0")
    with EventReader(second, last=id) as reader:
        assert reader.next().type == "reset"
        reader.nothing(0.2)


def test_more_events_than_the_server_keeps_are_a_reset(serve, root):
    """docs/limits.md: 4,096 events are kept."""
    s = serve("--max-files", "20000")
    for i in range(1500):
        write_rows(root, f"a/d{i:05}", 1)
    before = newest(s)
    with EventReader(s).opened() as reader:
        rescan(s)
        assert len(reader.take(1500, 60)) == 1500
        after_first = reader.last_id
        for i in range(1500, 4200):
            write_rows(root, f"a/d{i:05}", 1)
        rescan(s)
        assert len(reader.take(2700, 60)) == 2700
    page = s.json(f"/events?after={before}")
    assert page["reset"] is True and page["reason"] == "lost" and page["events"] == []
    with EventReader(s, last=before) as reader:
        event = reader.next()
        assert event.type == "reset" and event["reason"] == "lost"
    page = s.json(f"/events?after={after_first}")
    assert page["reset"] is False and len(page["events"]) == 1000 and page["next"] == page["events"][-1]["event_id"]
    shutil.rmtree(root / "datasets/a")      # more at once than are kept: events of their own would be of no use
    here = newest(s)
    with EventReader(s, last=here).opened() as reader:
        rescan(s)
        event = reader.next(60)
        assert event.type == "reset" and event["reason"] == "lost"
        write(root, "demo", 5)
        rescan(s)
        assert reader.next(60).named() == ("replaced", "model", "demo", None)


# ---------------------------------------------------------------------------------------------- filters and pages

def test_filters(serve, root):
    s = serve()
    here = newest(s)
    with EventReader(s, "/events?match=org/*").opened() as org, \
            EventReader(s, "/events?kind=dataset").opened() as rows, \
            EventReader(s, "/events?kind=model&match=*one*").opened() as both:
        for name in ("org/one", "org/two", "one"):
            write(root, name)
        write_rows(root, "org/rows-one")
        rescan(s)
        assert [e["id"] for e in org.take(3)] == ["org/one", "org/two", "org/rows-one"]
        assert [e["id"] for e in rows.take(1)] == ["org/rows-one"]
        assert [e["id"] for e in both.take(2)] == ["one", "org/one"]
        for reader in (org, rows, both):
            reader.nothing(0.1)
    ids = [e["id"] for e in s.json(f"/events?after={here}&kind=model&match=org/*")["events"]]
    assert ids == ["org/one", "org/two"]


@pytest.mark.parametrize("query, word", [("kind=space", "kind"), ("nothing=1", "unknown"), ("match=a&match=b", "twice"),
                                         ("timeout=x", "timeout"), ("timeout=301", "timeout"), ("wait=", "after"),
                                         ("wait=x&after=y", "wait")])
def test_wrong_parameters(srv, query, word):
    check_error(srv.get(f"/events?{query}"), 400, "INVALID_ARGUMENT", word)


def test_wait_is_for_pages(srv):
    check_error(srv.get("/events?wait=&after=x", STREAM), 400, "INVALID_ARGUMENT", "stream")


def test_other_methods(srv):
    answer = srv.request("/events", STREAM, "HEAD")
    assert answer.status == 200 and answer.get("Content-Type") == "text/event-stream"
    assert answer.get("Content-Length") is None
    answer = srv.request("/events", (), "HEAD")
    assert answer.status == 200 and answer.get("Content-Type") == "application/json"
    for method in ("POST", "PUT", "DELETE"):
        answer = srv.request("/events", [("Content-Length", "0")], method)
        assert answer.status == 405 and answer.get("Allow") == "GET, HEAD", answer


@pytest.mark.parametrize("accept, is_stream", [
    ("text/event-stream", True), ("TEXT/Event-Stream; q=0.9", True), ("text/html, text/event-stream ,*/*", True),
    ("*/*", False), ("application/json", False), ("text/*", False), ("text/event-streams", False)])
def test_accept(srv, accept, is_stream):
    with srv.conn() as c:
        c.send(f"GET /events HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n".encode())
        head = c.read_head()
        assert head.get("Content-Type") == ("text/event-stream" if is_stream else "application/json")
        assert head.get("Vary") == "Accept"


def test_a_page_waits(publisher):
    s = publisher
    here = newest(s)
    began = time.monotonic()
    assert s.json(f"/events?after={here}&wait=&timeout=1") == {"events": [], "reset": False, "next": here}
    assert time.monotonic() - began >= 1
    got = []
    thread = threading.Thread(target=lambda: got.append(s.json(f"/events?after={here}&wait=&match=org/*")))
    thread.start()
    s.wait_for(lambda: s.gauge("tensord_waiters") == 1, "the page waits")
    Repo(s.port, "other/name").push({"model.safetensors": weights(0)})      # not of its filter
    Repo(s.port, "org/name").push({"model.safetensors": weights(1)})
    thread.join(20)
    assert [e["id"] for e in got[0]["events"]] == ["org/name"]
    page = s.json("/events?after=unknown&wait=")        # a reset does not wait
    assert page["reset"] is True


# ---------------------------------------------------------------------------------------------- tokens

def test_a_token_sees_events_of_what_it_may_see(serve, root, tmp_path):
    tokens = TokensFile(tmp_path / "tokens.json")
    tokens.add("some", ["org/*", "datasets/org/*", "local/single"]).add("every")
    some, every = tokens.bearer("some"), tokens.bearer("every")
    s = serve("--tokens", str(tokens.path), "--rescan-from", "any")
    check_error(s.get("/events"), 401, "UNAUTHENTICATED", "token")
    check_error(s.get("/events", [*STREAM, ("Authorization", "Bearer td_wrong")]), 401, "UNAUTHENTICATED", "token")
    here = newest(s, every)
    with EventReader(s, headers=some).opened() as seen, EventReader(s, headers=every).opened() as all:
        for name in ("org/a", "hidden/b", "single", "orgs/c"):
            write(root, name)
        write_rows(root, "org/rows")
        write_rows(root, "hidden/rows")
        assert s.request("/rescan", every, "POST").status == 200
        assert {e["id"] for e in all.take(6)} == {"org/a", "hidden/b", "single", "orgs/c", "org/rows", "hidden/rows"}
        assert [e.named()[1:3] for e in seen.take(3)] == [("model", "org/a"), ("model", "single"),
                                                          ("dataset", "org/rows")]
        seen.nothing(0.2)
    page = s.json(f"/events?after={here}", some)
    assert [e["id"] for e in page["events"]] == ["org/a", "single", "org/rows"]


def test_a_stream_ends_with_its_token(serve, root, tmp_path):
    tokens = TokensFile(tmp_path / "tokens.json")
    tokens.add("first").add("second").add("short", expires_s=time.time() + 4)
    first, second, short = (tokens.bearer(name) for name in ("first", "second", "short"))
    s = serve("--tokens", str(tokens.path))
    readers = [EventReader(s, headers=t).opened() for t in (first, second, short)]
    assert readers[2].ended(10) is True         # expired
    tokens.remove("first")
    assert readers[0].ended(10) is True         # docs/access.md: within 2 s, as for reads
    readers[1].nothing(0.2)
    write(root, "demo", 1)
    assert s.request("/rescan", second, "POST").status == 200
    assert readers[1].next().named()[:3] == ("replaced", "model", "demo")
    readers[1].close()
    assert s.request("/events", first).status == 401


# ---------------------------------------------------------------------------------------------- bounds

# shows: security.md host-waiters
def test_many_streams_take_no_threads(serve, root):
    s = serve("--max-waiters", "1000", "--max-connections", "600", "--max-connections-per-address", "600")
    with EventReader(s).opened():
        pass
    s.wait_for(lambda: s.gauge("tensord_event_streams") == 0, "the first stream has ended")
    before = s.threads()
    readers = [EventReader(s).opened() for _ in range(200)]
    assert s.gauge("tensord_event_streams") == 200 and s.gauge("tensord_waiters") == 200
    s.wait_for(lambda: s.threads() <= before + 4, "streams have no threads")
    write(root, "demo", 1)
    rescan(s)
    for reader in readers:
        assert reader.next().named()[:3] == ("replaced", "model", "demo")
        reader.close()
    s.wait_for(lambda: s.gauge("tensord_waiters") == 0, "clients that are gone are noticed")
    assert s.gauge("tensord_event_streams") == 0


def test_the_share_of_a_client_and_max_waiters(serve, tmp_path, root):
    tokens = TokensFile(tmp_path / "tokens.json")
    for i in range(5):
        tokens.add(f"t{i}")
    names = [tokens.bearer(f"t{i}") for i in range(5)]
    s = serve("--max-waiters", "8", "--tokens", str(tokens.path))
    readers = [EventReader(s, headers=names[0]).opened() for _ in range(2)]     # a quarter
    refused = s.get("/events", [*STREAM, *names[0].items()])
    check_error(refused, 503, "UNAVAILABLE", "quarter")
    assert refused.get("Retry-After")
    readers += [EventReader(s, headers=n).opened() for n in names[1:4] for _ in range(2)]
    check_error(s.get("/events", [*STREAM, *names[4].items()]), 503, "UNAVAILABLE", "--max-waiters")
    assert s.get("/events", names[4]).status == 200     # a page that does not wait
    readers.pop().close()
    s.wait_for(lambda: EventReader(s, headers=names[4]).head.status == 200, "a place is free again")
    for reader in readers:
        reader.close()


# shows: security.md host-waiters
def test_a_client_that_does_not_read_is_cut(serve, root):
    s = serve("--send-timeout", "2", "--max-files", "20000")
    conn = s.conn(rcvbuf=4096)
    conn.send(b"GET /events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
    assert conn.read_head().status == 200
    name = "x" * 200 + "/" + "y" * 200
    for round in range(60):         # more than its buffers hold
        for i in range(100):
            write(root, f"{name}{i}", round)
        rescan(s)
        if s.gauge("tensord_event_streams") == 0:
            break
    s.wait_for(lambda: s.gauge("tensord_event_streams") == 0, "the stream is cut", 20)
    _, _, samples = s.metrics()
    cuts = {labels["reason"]: v for n, labels, v in samples if n == "tensord_http_cut_transfers_total"}
    assert cuts["stalled"] == 1
    conn.close()


def test_an_idle_stream_is_not_cut(serve, root):
    """Shorter than the time between two comments, and far below --min-rate."""
    s = serve("--send-timeout", "1", "--min-rate", "1000000", "--idle-timeout", "1", "--header-timeout", "1")
    with EventReader(s).opened() as reader:
        reader.nothing(18)
        assert reader.comments, "no comment came"
        write(root, "demo", 1)
        rescan(s)
        assert reader.next().named()[:3] == ("replaced", "model", "demo")


def test_a_comment_has_the_newest_id(serve, root):
    """A client whose filter shows nothing must not fall behind the events that the server keeps."""
    s = serve()
    with EventReader(s, "/events?match=nothing").opened() as reader:
        write(root, "demo", 1)
        rescan(s)
        here = newest(s)
        assert reader.last_id != here
        reader.nothing(16)
        assert reader.last_id == here


# shows: security.md host-sigterm-waiters
def test_the_end_of_the_server_ends_streams(root, start):
    s = start(root, "--drain-timeout", "60", settle="0")
    with EventReader(s).opened() as reader:
        began = time.monotonic()
        s.term()
        assert reader.ended() is True, "the last chunk is missing"
        assert s.wait_exit() == 0 and time.monotonic() - began < 30
    lines = [line for line in s.log().splitlines() if "/events" in line]
    assert len(lines) == 1 and "status=200" in lines[0] and "reason=" not in lines[0], lines


def test_the_access_log(serve, tmp_path, root):
    tokens = TokensFile(tmp_path / "tokens.json")
    tokens.add("watcher")
    s = serve("--tokens", str(tokens.path))
    with EventReader(s, headers=tokens.bearer("watcher")).opened():
        time.sleep(0.3)
    s.wait_for(lambda: "/events" in s.log(), "a line for the stream", 20)
    line = next(line for line in s.log().splitlines() if "/events" in line)
    assert "token=watcher" in line and "route=events" in line, line


def test_tls(serve, root, tmp_path):
    ca = pki.Authority(tmp_path)
    s = serve(*pki.options_of(ca.sign("server")), "--max-waiters", "40", tls=ca.context())
    readers = [EventReader(s).opened() for _ in range(10)]
    write(root, "demo", 1)
    rescan(s)
    for reader in readers:
        assert reader.next().named()[:3] == ("replaced", "model", "demo")
    readers.pop().close()
    s.wait_for(lambda: s.gauge("tensord_event_streams") == 9, "a client that is gone is noticed")
    s.term()
    assert all([reader.ended() for reader in readers])
    assert s.wait_exit() == 0


def test_without_shared_threads(serve, root):
    s = serve("--workers", "0")
    with EventReader(s).opened() as reader:
        for i in range(3):
            write(root, "demo", i + 1)
            rescan(s)
            assert reader.next().named()[:3] == ("replaced", "model", "demo")
    s.wait_for(lambda: s.gauge("tensord_event_streams") == 0, "a client that is gone is noticed")


def test_a_client_that_sends_no_more(publisher):
    """As requests that wait do, a stream ends when the client has shut down its sending side."""
    with EventReader(publisher).opened() as reader:
        reader.conn.sock.shutdown(socket.SHUT_WR)
        reader.ended()
    publisher.wait_for(lambda: publisher.gauge("tensord_event_streams") == 0, "the stream has ended")


def test_http_1_0(publisher):
    s = publisher
    with s.conn() as c:
        c.send(b"GET /events HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n")
        head = c.read_head()
        assert head.status == 200 and head.get("Transfer-Encoding") is None
        Repo(s.port, "org/name").push({"model.safetensors": weights(0)})
        deadline = time.monotonic() + 20
        while b"event: published\n" not in c.buf and time.monotonic() < deadline:
            c.fill()
        assert c.buf.startswith(b"retry: ") and b'"id":"org/name"' in c.buf


def test_metrics(publisher):
    s = publisher
    with EventReader(s).opened() as reader, EventReader(s, last="x").opened():
        repo = Repo(s.port, "org/name")
        repo.push({"model.safetensors": weights(0)})
        repo.push({"model.safetensors": weights(1)})
        assert repo.ask("DELETE").status == 204
        reader.take(3)
        _, _, samples = s.metrics()
        made = {labels["event"]: v for n, labels, v in samples if n == "tensord_events_total"}
        assert made == {"published": 1, "replaced": 1, "removed": 1}
        assert s.gauge("tensord_event_streams") == 2 and s.gauge("tensord_event_resets_total") == 1
        s.wait_for(lambda: s.gauge("tensord_events_sent_total") == 6, "both streams have three events")
