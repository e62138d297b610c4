"""Changes are seen by inotify. No scan comes by time here and files settle for an hour, so whatever is listed within
seconds was seen by the watch, and was renamed into place."""
import os
import time

import pytest

from harness import Server, age, tensor, write_by_hand

LONG = "3600"
T = tensor("w", "F32", [10])


@pytest.fixture
def place(tmp_path):
    """Return a served directory, and one beside it."""
    root, out = tmp_path / "root", tmp_path / "out"
    root.mkdir()
    out.mkdir()
    return root, out


def fresh(path):
    """Write a model file whose mtime is now."""
    write_by_hand(path, [T])
    return path


def wait_listed(server, model):
    server.wait_for(lambda: server.get(f"/models/{model}/tensors/w").status == 200, f"{model} is listed", timeout=30)
    assert server.get(f"/models/{model}/tensors/w").body == T.data


def file_into_root(root, out):
    os.rename(fresh(out / "x"), root / "m.safetensors")
    return "m.safetensors"


def file_into_a_new_directory(root, out):
    fresh(out / "x")
    time.sleep(0.03)  # a tick of the clock: the file is older than the directory
    (root / "org/m").mkdir(parents=True)
    os.rename(out / "x", root / "org/m/model.safetensors")
    return "org/m"


def hidden_file(root, out):
    (root / "m").mkdir()
    fresh(root / "m/.model")
    time.sleep(0.2)
    os.rename(root / "m/.model", root / "m/model.safetensors")
    return "m"


def directory(root, out):
    fresh(out / "m/model.safetensors")
    os.rename(out / "m", root / "m")
    return "m"


def directory_into_a_new_one(root, out):
    fresh(out / "m/model.safetensors")
    time.sleep(0.03)
    (root / "org").mkdir()
    os.rename(out / "m", root / "org/m")
    return "org/m"


def download(root, out):
    """As huggingface_hub does it: a blob is renamed into place and linked, the ref comes last."""
    commit, cache = "0" * 40, root / "models--org--m"
    for part in ("blobs", "refs", f"snapshots/{commit}"):
        (cache / part).mkdir(parents=True)
    fresh(cache / "blobs/abc.incomplete")
    time.sleep(0.2)
    os.rename(cache / "blobs/abc.incomplete", cache / "blobs/abc")
    os.symlink("../../blobs/abc", cache / f"snapshots/{commit}/model.safetensors")
    (cache / "refs/main").write_text(commit)
    return "org/m"


def test_what_is_renamed_into_place_is_listed(place):
    root, out = place
    age(fresh(root / "known.safetensors"), 4000)
    with Server(root, settle=LONG, rescan=LONG, hash_threads=0) as s:
        fds = len(s.fds())
        for publish in (file_into_root, file_into_a_new_directory, hidden_file, directory, directory_into_a_new_one,
                        download):
            model = publish(root, out)
            wait_listed(s, model)
            top = root / ("models--org--m" if publish is download else model.split("/")[0])
            os.rename(top, out / "gone")
            s.wait_for(lambda: s.ids() == ["known.safetensors"], f"{publish.__name__}: {model} is gone", timeout=30)
            os.rename(out / "gone", out / f"gone-{publish.__name__}")
        # only the root is left: no other watch, no descriptor
        s.wait_for(lambda: s.gauge("tensord_watched_directories") == 1, "the watches of what is gone have ended")
        assert s.gauge("tensord_unwatched_directories") == 0 and s.gauge("tensord_watch_overflows_total") == 0
        assert s.gauge("tensord_watch_events_total") > 10
        s.wait_for(lambda: len(s.fds()) <= fds, "all descriptors are closed")


# shows: security.md file-written-after-rename
def test_what_is_written_in_place_settles(place):
    """Written in place, or written to after the rename."""
    root, out = place
    age(fresh(root / "known.safetensors"), 4000)
    with Server(root, settle=LONG, rescan=LONG, hash_threads=0) as s:
        fresh(root / "in-place/model.safetensors")
        fd = os.open(fresh(out / "x"), os.O_WRONLY)
        os.rename(out / "x", root / "written.safetensors")
        os.pwrite(fd, b" ", 8 + 10)
        os.close(fd)
        os.rename(fresh(out / "x"), root / "last.safetensors")
        wait_listed(s, "last.safetensors")
        assert s.ids() == ["known.safetensors", "last.safetensors"]
        assert s.gauge("tensord_unsettled_files") == 2
        with open(root / "known.safetensors", "r+b") as f:  # a known file is seen to change, too
            f.write(f.read(4))
        s.wait_for(lambda: s.gauge("tensord_unsettled_files") == 3, "the change in place is seen")


def test_in_place_without_a_scan_by_time(place):
    root, _ = place
    with Server(root, settle="0.5", rescan=LONG, hash_threads=0) as s:
        fresh(root / "m/model.safetensors")
        wait_listed(s, "m")
        (root / ".hidden").mkdir()
        os.rename(root / "m", root / ".hidden/m")
        s.wait_for(lambda: s.ids() == [], "what was renamed away is gone")
        assert s.gauge("tensord_watched_directories") == 1


def test_watch_off(place):
    root, out = place
    with Server(root, settle=LONG, rescan=LONG, hash_threads=0, watch="off") as s:
        os.rename(fresh(out / "x"), root / "m.safetensors")
        time.sleep(0.5)
        assert s.ids() == [] and s.gauge("tensord_scans_total") == 1
        assert s.gauge("tensord_watched_directories") == s.gauge("tensord_watch_events_total") == 0


def test_the_end_does_not_wait_for_watches(place):
    root, _ = place
    for i in range(2000):
        (root / f"d{i}").mkdir()
    with Server(root, settle=LONG, rescan=LONG, hash_threads=0) as s:
        assert s.gauge("tensord_watched_directories") == 2001
        began = time.monotonic()
        s.stop()
        assert time.monotonic() - began < 10
