"""`tensord push` to several servers: each gets what it lacks, then all get the commit, and one that fails stops no
other."""
import contextlib
import json
import signal
import threading

import pytest

from fake_publish import FakePublish, Refusal
from harness import Server
from pulls import MIB, tree_of
from pushes import PART, large, push, shown_on_terminal, start
from test_push_served import publisher, served, url_of


@pytest.fixture
def here(tmp_path):
    root = tmp_path / "here"
    large(root / "model.bin", 3 * MIB + 17)
    large(root / "deep/other.bin", 70000, 2)
    (root / "config.json").write_text('{"a": 1}')
    (root / "empty.txt").touch()
    return root


@pytest.fixture
def fakes():
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(FakePublish()) for _ in range(3)]


def urls_of(fakes):
    return ",".join(f.url for f in fakes)


def outcomes(report):
    """Return what the report has of each site: whether it has the commit, and what was sent there."""
    return [("commit" in s, "error" in s, s["sent_bytes"]) for s in report["sites"]]


def watch(fakes):
    """Return a list that gets (number of the server, "put", "dry run" or "commit") when each is done."""
    events = []
    for number, fake in enumerate(fakes):
        def put(*args, number=number, fake=fake):
            status = FakePublish.put(fake, *args)
            events.append((number, "put"))
            return status

        def commit(name, wish, number=number, fake=fake):
            kind = "dry run" if wish.get("dry_run") else "commit"
            try:
                return FakePublish.commit(fake, name, wish)
            finally:
                events.append((number, kind))
        fake.put, fake.commit = put, commit
    return events


# ------------------------------------------------------------------------------------------- what all get

def test_all_get_the_files_and_then_the_commit(fakes, here):
    events = watch(fakes)
    report, err = push(here, urls_of(fakes), "--message", "first")
    want = tree_of(here)
    total = sum(map(len, want.values()))
    assert err == "" and [f.files() for f in fakes] == [want] * 3
    assert set(report) == {"model", "revision", "commit", "changed", "sites", "files", "bytes", "sent_bytes", "seconds"}
    assert all(set(s) == {"url", "commit", "changed", "sent_bytes"} for s in report["sites"])
    assert [s["url"] for s in report["sites"]] == [f.url for f in fakes]
    assert {s["commit"] for s in report["sites"]} == {report["commit"]} and report["changed"]
    assert [s["sent_bytes"] for s in report["sites"]] == [f.sent() for f in fakes] == [total] * 3
    assert (report["bytes"], report["sent_bytes"]) == (total, 3 * total)
    assert {f["path"]: f["sent_bytes"] for f in report["files"]} == {p: 3 * len(d) for p, d in want.items()}
    # no server has the commit before all have the files
    kinds = [kind for _, kind in events]
    assert kinds[-3:] == ["commit"] * 3 and kinds.count("commit") == 3
    for number in range(3):
        assert [k for n, k in events if n == number] == ["dry run", *["put"] * 4, "dry run", "commit"]
    # the same again: nothing changes
    del events[:]
    again, _ = push(here, urls_of(fakes))
    assert outcomes(again) == [(True, False, 0)] * 3 and not again["changed"]
    assert sorted(events) == sorted((n, kind) for n in range(3) for kind in ("dry run", "commit"))


def test_each_gets_what_it_lacks(fakes, here):
    push(here, fakes[0].url)
    push(here, fakes[1].url, "--include", "*.json")
    for fake in fakes:
        del fake.requests[:]
    report, _ = push(here, urls_of(fakes))
    sizes = {path: len(data) for path, data in tree_of(here).items()}
    total = sum(sizes.values())
    assert outcomes(report) == [(True, False, 0), (True, False, total - sizes["config.json"]), (True, False, total)]
    assert [s["changed"] for s in report["sites"]] == [False, True, True] and report["changed"]
    assert [f.files() for f in fakes] == [tree_of(here)] * 3


def test_they_are_sent_to_side_by_side_with_all_connections_each(fakes, tmp_path):
    for i in range(12):
        large(tmp_path / f"here/{i}.bin", 1000 + i, i)
    seen, all_are_here, alone = set(), threading.Event(), []

    def before(handler):
        if handler.command != "PUT":
            return
        seen.add(handler)
        if len(seen) == 6:
            all_are_here.set()
        if not alone and not all_are_here.wait(20):      # until two connections of each server send at once
            alone.append(handler)
    for fake in fakes:
        fake.before = before
    push(tmp_path / "here", urls_of(fakes), "--connections", 2)
    assert not alone and [f.files() for f in fakes] == [tree_of(tmp_path / "here")] * 3


def test_with_keep_the_commits_differ(fakes, here, tmp_path):
    large(tmp_path / "before/x.bin", 100, 5)
    push(tmp_path / "before", fakes[0].url)
    report, _ = push(here, urls_of(fakes[:2]), "--keep")
    assert report["sites"][0]["commit"] != report["sites"][1]["commit"] and "commit" not in report
    assert fakes[0].files() == {**tree_of(here), **tree_of(tmp_path / "before")}


def test_the_lines_of_the_result(fakes, here):
    fakes[1].before = lambda handler: (_ for _ in ()).throw(Refusal(507, "no room"))
    p = start(here, urls_of(fakes))
    out, err = p.communicate(timeout=60)
    assert p.returncode == 1 and len(out.splitlines()) == 2
    for line, fake in zip(out.splitlines(), (fakes[0], fakes[2])):
        commit = fake.model("org/m")["refs"]["main"][0]
        assert line.startswith(f"org/m at {fake.url}: main is now commit {commit[:12]}: 4 files, 3.07 MiB; sent "), line
    assert err.count("\n") == 1 and fakes[1].url in err and "answered 507" in err
    out, err = start(here, urls_of(fakes), "--quiet").communicate(timeout=60)
    assert out == "" and fakes[1].url in err


def test_progress_on_a_terminal(fakes, tmp_path):
    large(tmp_path / "here/large.bin", 2 * PART)
    for fake in fakes[:2]:
        fake.reads = lambda handler: threading.Event().wait(0.002)
    text = shown_on_terminal(tmp_path / "here", urls_of(fakes[:2]))
    assert "to 2 servers [" in text and " of 128.00 MiB, " in text, text


# ------------------------------------------------------------------------------------------- one fails

def test_one_that_is_down_stops_no_other(fakes, here):
    with FakePublish() as late:
        down = late.url
    urls = f"{fakes[0].url},{down},{fakes[1].url}"
    report, err = push(here, urls, "--retry-for", 0, code=1)
    total = sum(map(len, tree_of(here).values()))
    assert outcomes(report) == [(True, False, total), (False, True, 0), (True, False, total)]
    assert report["sites"][1]["error"] == report["error"] and down in report["error"]
    assert "commit" not in report and report["changed"]
    assert down in err and fakes[0].url not in err and err.count("\n") == 1
    assert [f.files() for f in fakes[:2]] == [tree_of(here)] * 2
    with late:
        report, _ = push(here, urls)
        assert outcomes(report) == [(True, False, 0), (True, False, total), (True, False, 0)]
        assert late.files() == tree_of(here) and report["commit"] == late.model("org/m")["refs"]["main"][0]


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_one_without_room_stops_no_other(fakes, here, method):
    def before(handler):
        if handler.command == method:
            raise Refusal(507, "published models take all of --publish-max-bytes")
    fakes[1].before = before
    report, err = push(here, urls_of(fakes), code=1)
    assert [o[:2] for o in outcomes(report)] == [(True, False), (False, True), (True, False)]
    assert "answered 507" in err and "makes room" in err and fakes[1].url in err and "next try" not in err
    assert fakes[1].files() == {}
    fakes[1].before = lambda handler: None
    report, _ = push(here, urls_of(fakes))
    assert [f.files() for f in fakes] == [tree_of(here)] * 3 and [s["changed"] for s in report["sites"]] == \
        [False, True, False]


def test_each_has_its_own_time_to_retry(fakes, here):
    """One is always busy; another one takes longer than --retry-for, and makes progress."""
    def busy(handler):
        raise Refusal(503, "busy")

    def slow(handler):
        if handler.command == "PUT":
            given_up.wait(1.5)
    given_up = threading.Event()
    fakes[0].before, fakes[1].before = busy, slow
    report, err = push(here, urls_of(fakes[:2]), "--retry-for", "1s", "--connections", 1, code=1)
    assert outcomes(report)[1][:2] == (True, False) and fakes[1].files() == tree_of(here)
    assert f"{fakes[0].url}: the server answered 503, busy; gave up, since --retry-for is 1 s" in err


def test_the_parent_is_compared_at_each(fakes, here, tmp_path):
    large(tmp_path / "before/x.bin", 100, 5)
    first, _ = push(tmp_path / "before", urls_of(fakes))
    large(tmp_path / "before/y.bin", 100, 6)
    other, _ = push(tmp_path / "before", fakes[1].url)
    report, err = push(here, urls_of(fakes), "--parent", first["commit"], code=1)
    assert [o[:2] for o in outcomes(report)] == [(True, False), (False, True), (True, False)]
    assert f"org/m to {fakes[1].url}: the server answered 412" in err and other["commit"] in err
    assert fakes[1].sent() < 300 and fakes[1].model("org/m")["refs"]["main"][0] == other["commit"]


def test_a_parent_that_changes_after_the_dry_run(fakes, here, tmp_path):
    """Another writer is first at one server, while the files are sent."""
    large(tmp_path / "other/x.bin", 100, 5)
    done = []

    def before(handler):
        if handler.command == "PUT" and not done:
            done.append(handler)
            fakes[0].before = lambda handler: None
            push(tmp_path / "other", fakes[0].url)
    fakes[0].before = before
    report, err = push(here, urls_of(fakes[:2]), "--parent", "", "--connections", 1, code=1)
    assert [o[:2] for o in outcomes(report)] == [(False, True), (True, False)] and "answered 412" in err
    assert fakes[0].files() == tree_of(tmp_path / "other") and fakes[1].files() == tree_of(here)


def test_blobs_that_go_before_the_commit_are_sent_again(fakes, here):
    """As when they expire at one server while another one is still sent to."""
    def commit(name, wish):
        if not wish.get("dry_run") and not gone:
            gone.append(wish)
            fakes[0].model(name)["blobs"].clear()
        return FakePublish.commit(fakes[0], name, wish)
    gone = []
    fakes[0].commit = commit
    report, _ = push(here, urls_of(fakes[:2]))
    total = sum(map(len, tree_of(here).values()))
    assert outcomes(report) == [(True, False, 2 * total), (True, False, total)] and gone
    assert [f.files() for f in fakes[:2]] == [tree_of(here)] * 2


def test_a_file_that_changes_is_one_message(fakes, tmp_path):
    path = tmp_path / "here/large.bin"
    large(path, 4 * MIB)
    done = threading.Event()

    def before(handler):
        if handler.command == "PUT":
            with open(path, "r+b") as f:
                f.write(b"changed")
            done.set()
    for fake in fakes:
        fake.before = before
    report, err = push(tmp_path / "here", urls_of(fakes), code=1)
    assert err.count('"large.bin" has changed since it was read') == 1 and done.is_set()
    assert [o[:2] for o in outcomes(report)] == [(False, True)] * 3 and [f.files() for f in fakes] == [{}] * 3


def test_nothing_is_asked_when_the_directory_is_wrong(fakes, tmp_path):
    (tmp_path / "empty").mkdir()
    report, err = push(tmp_path / "empty", urls_of(fakes), code=1)
    assert "has no files" in err and err.count("\n") == 1 and outcomes(report) == [(False, False, 0)] * 3
    assert all(f.requests == [] for f in fakes)


def test_a_signal_ends_all(fakes, tmp_path):
    large(tmp_path / "here/large.bin", 2 * PART)
    begun = [threading.Event() for _ in fakes]

    def slowly(event):
        def reads(handler):
            if handler.record[3] > 0:
                event.set()
                threading.Event().wait(0.1)
        return reads
    for fake, event in zip(fakes, begun):
        fake.reads = slowly(event)
    p = start(tmp_path / "here", urls_of(fakes), "--json")
    assert all(event.wait(30) for event in begun)
    p.send_signal(signal.SIGTERM)
    out, err = p.communicate(timeout=30)
    assert p.returncode == 1 and err.count("stopped by a signal; the server keeps what has arrived") == 1, err
    assert [o[:2] for o in outcomes(json.loads(out))] == [(False, True)] * 3


# shows: security.md push-kills
def test_a_kill_between_the_commits_is_completed_by_the_same_command(fakes, here):
    made, release = threading.Event(), threading.Event()

    def commit(name, wish):
        if not wish.get("dry_run"):
            assert made.wait(30)
            release.wait(30)
            raise ConnectionError
        return FakePublish.commit(fakes[1], name, wish)

    def first(name, wish):
        answer = FakePublish.commit(fakes[0], name, wish)
        if not wish.get("dry_run"):
            made.set()
        return answer
    fakes[0].commit, fakes[1].commit = first, commit
    p = start(here, urls_of(fakes[:2]))
    assert made.wait(60)
    p.send_signal(signal.SIGKILL)
    p.communicate()
    release.set()
    assert fakes[0].files() == tree_of(here) and fakes[1].files() == {}
    del fakes[0].commit, fakes[1].commit
    report, _ = push(here, urls_of(fakes[:2]))
    assert outcomes(report) == [(True, False, 0)] * 2 and [s["changed"] for s in report["sites"]] == [False, True]
    assert fakes[1].files() == tree_of(here)


# ------------------------------------------------------------------------------------------- real servers

def test_three_servers(here, tmp_path):
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(publisher(tmp_path / f"root{i}")) for i in range(3)]
        urls = ",".join(map(url_of, servers))
        report, err = push(here, urls)
        assert err == "" and [served(s) == tree_of(here) for s in servers] == [True] * 3
        assert [s.get("/models/org/m/commits").json()["refs"]["main"] for s in servers] == [report["commit"]] * 3
        (here / "config.json").write_text("{}")
        second, _ = push(here, urls, "--parent", report["commit"])
        assert outcomes(second) == [(True, False, 2)] * 3
        assert [served(s) == tree_of(here) for s in servers] == [True] * 3
        _, err = push(here, urls, "--parent", report["commit"], code=1)
        assert err.count("answered 412") == 3


def test_one_server_has_no_room_and_then_has(here, tmp_path):
    large(here / "large.bin", 20 * MIB, 9)
    small = publisher(tmp_path / "small", "--publish-max-bytes", 10 * MIB)
    with publisher(tmp_path / "root") as server:
        with small:
            report, err = push(here, f"{url_of(small)},{url_of(server)}", code=1)
            assert [o[:2] for o in outcomes(report)] == [(False, True), (True, False)] and "answered 507" in err
            assert served(small) == {} and served(server) == tree_of(here)
        with Server(tmp_path / "small", "--publish", "local") as small:
            push(here, f"{url_of(small)},{url_of(server)}")
            assert served(small) == served(server) == tree_of(here)


# shows: security.md push-kills
def test_one_server_is_killed_and_comes_back(here, tmp_path):
    large(here / "large.bin", 48 * MIB, 9)
    root = tmp_path / "killed"
    killed = publisher(root)
    with publisher(tmp_path / "root") as server:
        p = start(here, f"{url_of(killed)},{url_of(server)}", "--json", "--retry-for", 0)
        blobs = root / ".tensord-publish/new/models--org--m/blobs"
        while p.poll() is None and not any(blobs.glob("*")):
            threading.Event().wait(0.005)
        killed.kill()
        out, err = p.communicate(timeout=90)
        assert p.returncode == 1 and url_of(killed) in err and served(server) == tree_of(here), err
        assert [o[:2] for o in outcomes(json.loads(out))] == [(False, True), (True, False)]
        with publisher(root) as back:
            report, _ = push(here, f"{url_of(back)},{url_of(server)}")
            assert served(back) == served(server) == tree_of(here)
            assert report["sites"][0]["changed"] and not report["sites"][1]["changed"]
