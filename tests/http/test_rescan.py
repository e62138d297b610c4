"""POST /rescan and SIGHUP: finished files are published at once, files that are being written never."""
import contextlib
import json
import mmap
import os
import shutil
import signal
import struct
import threading
import time

import pytest

from harness import Server, age, header_json, safetensors_bytes, tensor, write_by_hand

LONG = "600"       # longer than any test waits, so that nothing is published because it has settled


def rescan(server, status=200):
    answer = server.request("/rescan", method="POST")
    assert answer.status == status, answer
    return answer.json()


@pytest.fixture
def source(tmp_path):
    """Make a model elsewhere: two shards with an index, and another file. Return it and its tensors."""
    directory = tmp_path / "source"
    tensors = [tensor("a", "F32", [1000]), tensor("b", "F32", [3000])]
    for i, t in enumerate(tensors):
        write_by_hand(directory / f"model-0000{i + 1}-of-00002.safetensors", [t])
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {
        "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}))
    (directory / "config.json").write_text('{"model_type": "x"}')
    return directory, tensors


@pytest.fixture
def root(tmp_path):
    directory = tmp_path / "root"
    directory.mkdir()
    return directory


def test_what_was_copied_is_there_when_it_answers(root, source):
    """cp -r DIR; curl -X POST .../rescan; curl .../models/DIR: no command waits for --settle or for the next scan."""
    directory, tensors = source
    with Server(root, settle=LONG, rescan="0", hash_threads=0) as s:
        shutil.copytree(directory, root / "m", copy_function=shutil.copyfile)
        done = rescan(s)
        assert (done["published"], done["removed"], done["complete"], done["unsettled"]) == (["m"], [], True, 0)
        assert (done["models"], done["tensors"], done["files"]) == (1, 2, 4)
        for t in tensors:
            assert s.get(f"/models/m/tensors/{t.name}").body == t.data
        assert s.get("/models/m/files/config.json").body == b'{"model_type": "x"}'
        assert rescan(s)["published"] == []
        write_by_hand(root / "m/extra.safetensors", [tensor("e", "F32", [4])])
        write_by_hand(root / "other.safetensors", [tensor("o", "F32", [4])])
        assert rescan(s)["published"] == ["m", "other.safetensors"]
        os.rename(root / "m", root / "n")
        done = rescan(s)
        assert (done["published"], done["removed"]) == (["n"], ["m"])
        assert s.get("/models/m/tensors/a").status == 404 and s.get("/models/n/tensors/a").status == 200
        os.unlink(root / "n/extra.safetensors")
        assert (rescan(s)["published"], s.ids()) == (["n"], ["n", "other.safetensors"])


def test_datasets_are_named(root):
    """New, changed and vanished datasets, and their number, beside those of models."""
    with Server(root, settle=LONG, rescan="0", hash_threads=0) as s:
        (root / "datasets/one").mkdir(parents=True)
        (root / "datasets/one/train.jsonl").write_text("{}\n")
        done = rescan(s)
        assert (done["published_datasets"], done["removed_datasets"], done["datasets"]) == (["one"], [], 1)
        assert (done["published"], done["models"]) == ([], 0)
        (root / "two/train").mkdir(parents=True)
        (root / "two/train/a.csv").write_text("a\n1\n")
        (root / "datasets/one/test.jsonl").write_text("{}\n")
        done = rescan(s)
        assert (done["published_datasets"], done["removed_datasets"], done["datasets"]) == (["one", "two"], [], 2)
        assert rescan(s)["published_datasets"] == []
        shutil.rmtree(root / "datasets")
        done = rescan(s)
        assert (done["published_datasets"], done["removed_datasets"], done["datasets"]) == ([], ["one"], 1)


def test_sighup_publishes_too(root, source):
    with Server(root, settle=LONG, rescan="0", hash_threads=0) as s:
        shutil.copytree(source[0], root / "m", copy_function=shutil.copyfile)
        s.proc.send_signal(signal.SIGHUP)
        s.wait_for(lambda: s.ids() == ["m"], "the copy")
        os.rename(root / "m", root / "n")
        s.proc.send_signal(signal.SIGHUP)
        s.wait_for(lambda: s.ids() == ["n"], "the rename")


# shows: security.md file-scan-while-writing
def test_a_file_that_is_replaced(root):
    """Replaced by a rename and in place, also with times set back: the new bytes have a new tag."""
    path = root / "m.safetensors"
    old, new, newest = (tensor("w", "F32", [5000], salt) for salt in "abc")
    write_by_hand(path, [old])
    age(path)
    with Server(root, settle=LONG, rescan="0", hash_threads=0) as s:
        tags = [s.get("/models/m.safetensors/tensors/w").get("ETag")]
        before = os.stat(path)
        write_by_hand(root / ".new", [new])
        os.replace(root / ".new", path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert rescan(s)["published"] == ["m.safetensors"]
        answer = s.get("/models/m.safetensors/tensors/w")
        assert answer.body == new.data
        tags.append(answer.get("ETag"))
        path.write_bytes(safetensors_bytes([newest]))
        assert rescan(s)["published"] == ["m.safetensors"]
        answer = s.get("/models/m.safetensors/tensors/w")
        assert answer.body == newest.data
        assert len({*tags, answer.get("ETag")}) == 3


@contextlib.contextmanager
def rescans_in_a_loop(server, look):
    """Ask for scans, and after each call `look` at what is published, until the block ends; then raise a fault of
    `look`. Yield a function that waits for some rounds, or for a fault."""
    stop, faults, count = threading.Event(), [], [0]

    def loop():
        try:
            while not stop.is_set():
                if rescan(server)["complete"] is not True:
                    faults.append("a file that is written to was waited for")
                look()
                count[0] += 1
        except BaseException as e:
            faults.append(repr(e))

    def wait_rounds(least):
        deadline = time.monotonic() + 60
        while count[0] < least and not faults and time.monotonic() < deadline:
            time.sleep(0.05)
        assert faults or count[0] >= least, count

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield wait_rounds
    finally:
        stop.set()
        thread.join()
    assert not faults, faults


def absent(server, path):
    def look():
        answer = server.get(path)
        assert answer.status == 404, f"published while it is being written: {answer}"
    return look


# shows: security.md file-scan-while-writing
def test_what_is_being_written_is_not_published(root):
    """Written piece by piece, as cp does. The file has the length of its header only at the end; config.json never has
    one."""
    t = tensor("w", "F32", [20000])
    data = safetensors_bytes([t])
    with Server(root, settle=LONG, rescan="0", hash_threads=0) as s:
        (root / "m").mkdir()
        with open(root / "m/model.safetensors", "wb", buffering=0) as f:
            with rescans_in_a_loop(s, absent(s, "/models/m/tensors/w")) as wait_rounds:
                for i in range(0, len(data), len(data) // 20 + 1):
                    f.write(data[i:i + len(data) // 20 + 1])
                    time.sleep(0.1)
                wait_rounds(10)        # whole, but still open
        assert rescan(s)["published"] == ["m"]
        assert s.get("/models/m/tensors/w").body == t.data
        with open(root / "m/config.json", "wb", buffering=0) as f:
            with rescans_in_a_loop(s, absent(s, "/models/m/files/config.json")) as wait_rounds:
                for piece in (b'{"model', b'_type": ', b'"x"', b"}"):
                    f.write(piece)
                    time.sleep(0.3)
                wait_rounds(10)
        rescan(s)
        assert s.get("/models/m/files/config.json").body == b'{"model_type": "x"}'


@pytest.mark.parametrize("how", ["mapping", "out of order"])
# shows: security.md file-scan-while-writing
def test_a_file_of_full_length_that_is_being_filled(root, how):
    """The file parses from the first moment, with zeros for tensors, as downloaders and np.memmap write it. So parsing
    proves nothing, but an open descriptor does. A mapping counts when its descriptor is closed, too."""
    t = tensor("w", "F32", [20000])
    head = header_json([t])
    head = struct.pack("<Q", len(head)) + head
    with Server(root, settle=LONG, rescan="0", hash_threads=0) as s:
        fd = os.open(root / "m.safetensors", os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, len(head) + t.nbytes)
        os.pwrite(fd, head, 0)
        view = None
        if how == "mapping":
            view = mmap.mmap(fd, 0)
            os.close(fd)
        with rescans_in_a_loop(s, absent(s, "/models/m.safetensors/tensors/w")) as wait_rounds:
            for i in reversed(range(0, t.nbytes, 8000)):
                if view is not None:
                    view[len(head) + i:len(head) + i + 8000] = t.data[i:i + 8000]
                else:
                    os.pwrite(fd, t.data[i:i + 8000], len(head) + i)
                time.sleep(0.05)
            wait_rounds(20)
        if view is not None:
            view.close()
        else:
            os.close(fd)
        assert rescan(s)["published"] == ["m.safetensors"]
        assert s.get("/models/m.safetensors/tensors/w").body == t.data


def test_a_file_that_was_left_half_written(root):
    """Nobody has the file open, but it does not parse. It waits, because its writer may continue; then it is listed
    with the reason."""
    data = safetensors_bytes([tensor("w", "F32", [20000])])
    with Server(root, settle="3", rescan="0", ready=False) as s:
        (root / "m.safetensors").write_bytes(data[:len(data) // 2])
        done = rescan(s)
        assert (done["published"], done["unsettled"], done["complete"]) == ([], 1, True)
        (root / "m.safetensors").write_bytes(data)
        assert rescan(s)["published"] == ["m.safetensors"]
        (root / "n.safetensors").write_bytes(data[:100])
        s.wait_for(lambda: "n.safetensors" in s.ids(), "the refusal, when it has settled")


def test_without_leases_it_waits_until_files_have_settled(root):
    """Without leases the server cannot know whether a writer is done, so the answer waits for --settle."""
    with Server(root, "--leases", "off", settle="2", rescan="0") as s:
        write_by_hand(root / "m.safetensors", [tensor("w", "F32", [4])])
        written = time.time()
        done = rescan(s)
        assert (done["published"], done["complete"]) == (["m.safetensors"], True)
        assert time.time() - written >= 1.9


# ----------------------------------------------------------------------------------------------- who may, and how often

# shows: security.md host-rescan-from
def test_whose_requests_are_heeded(root):
    passed_on = [("Via", "1.1 x"), ("X-Forwarded-For", "10.0.0.1"), ("X-Forwarded-Proto", "https"),
                 ("Forwarded", "for=10.0.0.1"), ("X-Real-IP", "10.0.0.1"), ("Origin", "http://evil.example")]
    with Server(root) as s:
        assert s.request("/rescan", method="POST").status == 200
        for header in passed_on:
            answer = s.request("/rescan", [header], method="POST")
            why = "another site" if header[0] == "Origin" else "--rescan-from any"
            assert answer.status == 403 and why in answer.json()["error"]["message"], answer
        answer = s.request("/rescan", [("Origin", f"http://127.0.0.1:{s.port}")], method="POST")    # a page of its own
        assert answer.status == 403 and "--rescan-from any" in answer.json()["error"]["message"], answer
        for method in ("GET", "HEAD", "PUT", "DELETE"):
            answer = s.request("/rescan", method=method)
            assert (answer.status, answer.get("Allow")) == (405, "POST")
        assert s.request("/rescan?x=1", method="POST").status == 400
        assert s.post("/rescan", b"{}").status == 200
    with Server(root, "--rescan-from", "any") as s:
        for header in passed_on:
            assert s.request("/rescan", [header], method="POST").status == (403 if header[0] == "Origin" else 200)
    with Server(root, env={"TENSORD_RESCAN_FROM": "none"}) as s:
        answer = s.request("/rescan", method="POST")
        assert answer.status == 403 and "--rescan-from none" in answer.json()["error"]["message"]


# shows: security.md host-rescan-storm
def test_a_storm_of_them(root, source):
    """Scans are shared and spaced, other requests are served, and the number of waiting requests is bounded."""
    shutil.copytree(source[0], root / "m")
    age(root)
    with Server(root, "--max-connections-per-address", "1000", rescan="0", settle="0.2") as s:
        s.wait_for(lambda: s.gauge("tensord_http_connections") <= 1, "nothing else is open")
        scans, began = s.gauge("tensord_scans_total"), time.monotonic()
        statuses, threads = [], []

        def ask():
            for _ in range(10):
                statuses.append(s.request("/rescan", method="POST").status)

        for _ in range(100):
            threads.append(threading.Thread(target=ask))
            threads[-1].start()
        while any(t.is_alive() for t in threads):
            assert s.get("/models/m/tensors/a").status == 200
        for t in threads:
            t.join()
        took = time.monotonic() - began
        assert len(statuses) == 1000 and set(statuses) <= {200, 503} and statuses.count(200) >= 64
        assert s.gauge("tensord_scans_total") - scans <= took / 0.05 + 2       # scan_gap_ns of catalog/catalog.c
        s.wait_for(lambda: s.gauge("tensord_http_connections") <= 1, "all connections are gone")
        assert rescan(s)["complete"] is True


def test_a_scan_that_fails(root):
    write_by_hand(root / "m.safetensors", [tensor("w", "F32", [4])])
    age(root)
    with Server(root, rescan="0") as s:
        os.rename(root, str(root) + ".away")
        answer = s.request("/rescan", method="POST")
        assert answer.status == 503 and "the scan failed, what was published before stays" in answer.json(
        )["error"]["message"], answer
        os.rename(str(root) + ".away", root)
        assert rescan(s) | {"seconds": 0} == {
            "published": [], "removed": [], "published_datasets": [], "removed_datasets": [], "complete": True,
            "unsettled": 0, "models": 1, "datasets": 0, "tensors": 1, "files": 1, "seconds": 0
        }


def test_the_end_does_not_wait_for_it(root):
    """SIGTERM while a request waits for files to settle."""
    with Server(root, "--leases", "off", settle=LONG, rescan="0", ready=False) as s:
        write_by_hand(root / "m.safetensors", [tensor("w", "F32", [4])])
        answers = []
        thread = threading.Thread(target=lambda: answers.append(s.request("/rescan", method="POST", timeout=60)))
        thread.start()
        s.wait_for(lambda: s.gauge("tensord_http_requests_in_flight") >= 2, "it waits")
        began = time.monotonic()
        s.stop()
        thread.join()
        assert time.monotonic() - began < 10, "--drain-timeout is 25"
        assert answers[0].json()["complete"] is False
