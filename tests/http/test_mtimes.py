"""Files with an mtime in the future, past what 64 bits of nanoseconds hold, or before 1970."""
import os
import tempfile
import time
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path

import pytest

from harness import Conn, Server, s3_port, tensor, write_by_hand

TIMES = {"future": time.time() + 86400, "y2263": 9246182400, "y2400": 13569465600, "old": 86400, "early": -3155673600}


@pytest.fixture(scope="module")
def root():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # tmpfs keeps any time; disks end in 2038, 2446 or 2486
        yield Path(folder)


@pytest.fixture(scope="module")
def srv(root):
    for name, seconds in TIMES.items():
        write_by_hand(root / name / "model.safetensors", [tensor("t", "U8", [8])])
        os.utime(root / name / "model.safetensors", (seconds, seconds))
        assert abs(os.stat(root / name / "model.safetensors").st_mtime - seconds) < 2
    s = Server(root, "--s3-listen", "127.0.0.1:0")
    s.s3_port = s3_port(s)
    s.wait_for(lambda: s.ids() == sorted(TIMES), "all models are published")
    yield s
    s.stop()


FACES = {
    "main": "/models/{}/files/model.safetensors",
    "Hub": "/local/{}/resolve/main/model.safetensors",
    "Hub, a rank's file": "/local/{}/resolve/tp1-rank0-fsdp/model.safetensors",
    "S3": "/{}/model.safetensors",
}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("face", FACES)
def test_last_modified_is_not_after_date(srv, face, name, method):
    """RFC 9110 section 8.8.2.1."""
    with Conn(srv.s3_port if face == "S3" else srv.port) as c:
        r = c.request(FACES[face].format(name), method=method)
    assert r.status == 200, r
    modified, date = (parsedate_to_datetime(r.get(h)) for h in ("Last-Modified", "Date"))
    assert modified <= date
    if name == "old":
        assert modified.timestamp() == TIMES[name]


@pytest.mark.parametrize("path", ["/models/{}", "/models/{}/files/", "/models/{}/shards/fsdp/tp1/rank-0.safetensors",
                                  "/{}", "/"])
def test_what_has_no_date(srv, path):
    """An answer from several files, an HTML page too, has no date; only its entity tag distinguishes versions."""
    for name in TIMES:
        r = srv.get(path.format(name), [("Accept", "text/html")])
        assert r.status == 200 and r.get("Last-Modified") is None, r


def test_conditions_by_date(srv):
    """A file modified in the future counts as modified now: no 304 for a date that has passed."""
    path = "/models/future/files/model.safetensors"
    hour_ago = formatdate(time.time() - 3600, usegmt=True)
    assert srv.get(path, [("If-Modified-Since", hour_ago)]).status == 200
    assert srv.get(path, [("If-Unmodified-Since", hour_ago)]).status == 412
    assert srv.get("/models/old/files/model.safetensors", [("If-Modified-Since", hour_ago)]).status == 304
