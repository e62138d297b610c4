"""The profiles scale and observe of docker/compose.yaml, run for real: two replicas behind nginx, seen by Prometheus.

nginx and Prometheus are Debian's (Dockerfile.tools). Grafana has no package: a test here looks at its files.
"""

import concurrent.futures
import http.client
import json
import os
import random
import re
import struct
import subprocess
import threading
import time
from collections import Counter

import pytest
import yaml

from containers import REPO, get, logs, wait_healthy

REPLICAS = ("replica-1", "replica-2")
PIECE = 4 << 20  # what nginx keeps
ROWS, ROW_BYTES, TENSOR_COUNT = 6, 1 << 20, 8  # each tensor of 6 MiB is two pieces
REQUESTS, AT_ONCE = 500, 8
CACHED = {"HIT", "REVALIDATED"}  # no byte of the answer came from a replica


def tensors(seed):
    """The bytes of each tensor, U8 of ROWS x ROW_BYTES: random, so that any wrong piece shows."""
    source = random.Random(seed)
    return {f"w{i}": source.randbytes(ROWS * ROW_BYTES) for i in range(TENSOR_COUNT)}


def safetensors(data):
    header, at = {}, 0
    for name, content in data.items():
        header[name] = {"dtype": "U8", "shape": [ROWS, ROW_BYTES], "data_offsets": [at, at + len(content)]}
        at += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data.values())


def columns(content, rank, size):
    """The part of a tensor that ?shard=1:rank/size names: equal pieces of every row."""
    step = ROW_BYTES // size
    return b"".join(content[row * ROW_BYTES + rank * step:row * ROW_BYTES + (rank + 1) * step] for row in range(ROWS))


def publish(root, seed):
    """Puts the model of this seed in place by a rename, as something complete. Returns its tensors and its file."""
    data = tensors(seed)
    file = safetensors(data)
    (root / ".new").write_bytes(file)
    (root / ".new").chmod(0o644)
    os.utime(root / ".new", (1_700_000_000 + seed, 1_700_000_000 + seed))
    (root / ".new").rename(root / "wide" / "model.safetensors")
    return data, file


def test_grafana_finds_our_dashboard_and_prometheus():
    """Grafana has no package here, so that it was not run: its files against each other and against compose.yaml."""
    compose = yaml.safe_load((REPO / "docker/compose.yaml").read_text())
    mounts = dict(v.split(":")[:2] for v in compose["services"]["grafana"]["volumes"])
    at = {target: (REPO / "docker" / source).resolve() for source, target in mounts.items()}
    provisioning = at["/etc/grafana/provisioning"]
    provider, = yaml.safe_load((provisioning / "dashboards/tensord.yaml").read_text())["providers"]
    assert provider["type"] == "file"
    dashboards = [json.loads(p.read_text()) for p in at[provider["options"]["path"]].glob("*.json")]
    assert [d["uid"] for d in dashboards] == ["tensord"]
    variable = dashboards[0]["templating"]["list"][0]
    source, = yaml.safe_load((provisioning / "datasources/tensord.yaml").read_text())["datasources"]
    assert (variable["type"], variable["query"]) == ("datasource", source["type"]) and source["isDefault"]
    assert source["url"] == "http://prometheus:9090" and "prometheus" in compose["services"]
    assert compose["services"]["prometheus"]["ports"][0].endswith(":9090")


class Scale:
    """The running project: nginx's URL, and each replica's own for looking at it behind nginx's back."""

    def __init__(self, engine, project, models):
        self.engine, self.project, self.models = engine, project, models
        self.containers = {name: self.container(name) for name in (*REPLICAS, "nginx", "prometheus")}
        self.port = int(engine.run("port", self.containers["nginx"], "8080/tcp").stdout.split()[0].rpartition(":")[2])
        self.url = f"http://127.0.0.1:{self.port}"

    def container(self, service):
        name, = self.engine.run("ps", "-aq", "--filter", f"label=com.docker.compose.project={self.project}", "--filter",
                                f"label=com.docker.compose.service={service}").stdout.split()
        return name

    def address(self, replica):
        networks = self.engine.inspect(self.containers[replica])["NetworkSettings"]["Networks"]
        return networks[f"{self.project}_replicas"]["IPAddress"]

    def counts(self, *routes):
        """How many answers with bytes each replica gave on these routes, by its own metrics."""
        found = {}
        for replica in REPLICAS:
            text = get(f"http://{self.address(replica)}:8080/metrics")[2].decode()
            sent = re.findall(r'^tensord_http_requests_total\{route="(\w+)",code="20[06]"\} (\d+)$', text, re.MULTILINE)
            found[replica] = sum(int(count) for route, count in sent if route in routes)
        return found


@pytest.fixture(scope="module")
def tools(engine):
    name = f"tensord-test-tools:{os.getpid()}"
    engine.run("build", "--build-arg", f"BASE_IMAGE={engine.base}", "-t", name, "-f", "tests/docker/Dockerfile.tools",
               "tests/docker", timeout=300)
    # As in its official image, Prometheus is the entry point.
    engine.run("build", "-t", name + "-prometheus", "-", timeout=60,
               stdin=f'FROM {name}\nENTRYPOINT ["/usr/bin/prometheus"]\n')
    yield name
    engine.run("rmi", "-f", name + "-prometheus", name, check=False)


@pytest.fixture(scope="module")
def scale(engine, image, tools, tmp_path_factory):
    models = tmp_path_factory.mktemp("scaled")
    (models / "wide").mkdir()
    for directory in (models, models / "wide"):
        directory.chmod(0o755)
    publish(models, 1)
    project = f"tensordscale{os.getpid()}"
    env = dict(engine.env, TENSORD_IMAGE=image, TENSORD_MODELS=str(models), TENSORD_SCALE_PORT="0", PROMETHEUS_PORT="0",
               TENSORD_SUBNET=f"10.213.{os.getpid() % 256}", TENSORD_CACHE_SIZE="1g", NGINX_IMAGE=tools,
               PROMETHEUS_IMAGE=tools + "-prometheus")

    def compose(*args):
        done = subprocess.run([*engine.compose(), "-f", "docker/compose.yaml", "-p", project, "--profile", "scale",
                               "--profile", "observe", *args], env=env, cwd=REPO, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{args}:\n{done.stdout}\n{done.stderr}"

    try:
        compose("up", "-d", "--no-build", "nginx", "prometheus")
        made = Scale(engine, project, models)
        for replica in REPLICAS:
            wait_healthy(engine, made.containers[replica])
            wait_hashed(made, replica)
        yield made
    finally:
        compose("down", "-v", "-t", "2")
    label = f"label=com.docker.compose.project={project}"
    assert engine.run("ps", "-aq", "--filter", label).stdout == ""


def wait_until(condition, what, seconds=30):
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.05)
    return result


def wait_hashed(scale, replica):
    """Until the replica knows all digests: from then on its entity tags are those of the other one, too."""
    def hashed():
        digests = json.loads(get(f"http://{scale.address(replica)}:8080/readyz")[2])["digests"]
        return digests["published_files"] == digests["files"] > 0
    wait_until(hashed, f"the digests of {replica}")


def read_range(connections, scale, target, first, last):
    """(cache status, whether an answer broke off, bytes) of one range. As HTTP's clients do, it resumes where an answer
    broke off, which may be before its first byte (RFC 9110, 9.2.2). Any other status than 206 is a failure."""
    body, tries, status = b"", 0, None
    while len(body) < last - first + 1:
        if not hasattr(connections, "own"):
            connections.own = http.client.HTTPConnection("127.0.0.1", scale.port, timeout=30)
        connection = connections.own
        tries += 1
        assert tries <= 3, f"{target}: {len(body)} bytes after {tries - 1} answers"
        try:
            connection.request("GET", target, headers={"Range": f"bytes={first + len(body)}-{last}"})
            answer = connection.getresponse()
            assert answer.status == 206, (target, answer.status, answer.read())
            status = answer.getheader("X-Cache-Status")
            body += answer.read()
        except http.client.IncompleteRead as error:
            body += error.partial
            connection.close()
        except http.client.RemoteDisconnected:
            connection.close()
    return status, tries > 1, body


def test_no_request_fails_while_replicas_die(scale, record_property):
    """500 ranges, 8 at a time. Each replica in turn is killed and started again in the middle."""
    data, file = tensors(1), safetensors(tensors(1))
    source = random.Random(5)
    wanted = []
    for _ in range(REQUESTS):
        name, size = source.choice(sorted(data)), 4
        rank = source.randrange(size)
        choice = source.randrange(4)
        target, content = (
            ("/models/wide/files/model.safetensors", file), (f"/models/wide/tensors/{name}", data[name]),
            (f"/models/wide/tensors/{name}?shard=1:{rank}/{size}", columns(data[name], rank, size)),
            ("/wide/resolve/main/model.safetensors", file))[choice]
        first = source.randrange(len(content) - 65536)
        wanted.append((target, first, first + source.randrange(1, 65536), content))
    killed = {replica: threading.Event() for replica in REPLICAS}
    started = {replica: threading.Event() for replica in REPLICAS}
    # A request with this number waits for the event, so that requests do meet a dead replica and a starting one.
    gates = {60: killed["replica-1"], 180: started["replica-1"], 300: killed["replica-2"], 400: started["replica-2"]}
    done, connections = Counter(), threading.local()

    def play_havoc():
        for replica, at in (("replica-1", 30), ("replica-2", 280)):
            wait_until(lambda: done["requests"] >= at, f"request {at}", 60)
            scale.engine.run("kill", "-s", "KILL", scale.containers[replica])
            killed[replica].set()
            wait_until(lambda: done["requests"] >= at + 100, f"request {at + 100}", 60)
            scale.engine.run("start", scale.containers[replica])
            wait_healthy(scale.engine, scale.containers[replica])
            started[replica].set()
        for replica in REPLICAS:
            wait_hashed(scale, replica)

    def fetch(number):
        for gate, event in gates.items():
            if number == gate:
                assert event.wait(60)
        target, first, last, content = wanted[number]
        status, broke, body = read_range(connections, scale, target, first, last)
        assert body == content[first:last + 1], (target, first, last)
        done["requests"] += 1
        done[status] += 1
        done["broken off"] += broke

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE + 1) as pool:
        havoc = pool.submit(play_havoc)
        for future in [pool.submit(fetch, number) for number in range(REQUESTS)]:
            future.result()
        havoc.result()
    through_cache = sum(done[s] for s in (*CACHED, "MISS", "EXPIRED"))
    hits = sum(done[s] for s in CACHED)
    text = logs(scale.engine, scale.containers["nginx"])
    first_choice = Counter(re.findall(r"replica=([\d.]+):8080", text))
    record_property("hits", f"{hits} of {through_cache}")
    print(f"{REQUESTS} requests, {done['broken off']} resumed; the cache answered {hits} of {through_cache} of "
          f"tensors; the replicas were asked {dict(first_choice)}")
    assert done["requests"] == REQUESTS and through_cache > 200
    # A cold cache has to fetch each piece once. A tenth may be fetched again, because a replica died during the fetch.
    pieces = {(target, first // PIECE) for target, first, _, _ in wanted if "/tensors/" in target}
    assert hits >= 0.9 * (through_cache - len(pieces)), (len(pieces), done)
    assert all(first_choice[scale.address(replica)] > 20 for replica in REPLICAS)
    assert re.search(r"replica=[\d.:]+, [\d.:]+ replica_status=(502|503|504), 206", text), "no request met a dead one"


def test_bytes_of_a_second_rank_do_not_reach_the_replicas(scale):
    """Two clients ask for the same slice, manifest and rank file, and for a rank file of the Hub by its commit, as the
    Hub's clients do. The second one costs no bytes."""
    data = tensors(1)
    routes = ("tensor", "manifest", "shard", "hub_file")
    commit = json.loads(get(scale.url + "/api/models/wide/revision/tp2-rank1-fsdp")[2])["sha"]
    targets = {"/models/wide/tensors/w3?shard=1:1/2": columns(data["w3"], 1, 2), "/models/wide/tensors": None,
               "/models/wide/shards/fsdp/tp2/rank-1.safetensors": None,
               f"/wide/resolve/{commit}/model.safetensors": None}
    before = scale.counts(*routes)
    answers = {target: get(scale.url + target) for target in targets}
    filled = scale.counts(*routes)
    assert sum(filled.values()) > sum(before.values())
    for target, expected in targets.items():
        status, headers, body = get(scale.url + target)
        assert status == 200 and body == answers[target][2], target
        assert expected is None or body == expected
        assert headers["X-Cache-Status"] in CACHED, (target, headers["X-Cache-Status"])
    assert scale.counts(*routes) == filled
    # The rank file against its parts: of two, rank 1 has the last rows of each tensor.
    file = answers["/models/wide/shards/fsdp/tp2/rank-1.safetensors"][2]
    length, = struct.unpack("<Q", file[:8])
    header = json.loads(file[8:8 + length])
    for name, content in data.items():
        begin, end = header[name]["data_offsets"]
        assert file[8 + length + begin:8 + length + end] == content[len(content) // 2:], name


def test_one_path_goes_to_one_replica(scale):
    """Whatever its query; /v2/NAME/ and the plans of a model as a whole."""
    groups = [[f"/models/wide/files/model.safetensors?x={i}" for i in range(4)],
              ["/v2/org/wide/tags/list", "/v2/org/wide/manifests/main", "/v2/org/wide/blobs/sha256:00",
               "/v2/org/wide/referrers/sha256:00"],
              ["/models/wide/plans", "/models/wide/plans/p1/rank-0.json", "/models/wide/plans/p2"]]
    for targets in groups:
        for target in targets:
            get(scale.url + target)
    text = wait_until(lambda: (t := logs(scale.engine, scale.containers["nginx"])) and groups[-1][-1] + " " in t and t,
                      "nginx's log")
    for targets in groups:
        replicas = {re.search(re.escape(f'"GET {target} ') + r".* replica=(\S+)", text)[1] for target in targets}
        assert len(replicas) == 1, (targets, replicas)


# shows: security.md token-nginx-cache
def test_credentials_go_past_the_cache(scale):
    """An answer to a token is never cached, and no cached answer is sent to a token."""
    target = scale.url + "/models/wide/tensors/w5?shard=1:0/8"
    for headers, query in (({"Authorization": "Bearer one"}, ""), ({}, "&expires=1&signature=x")):
        for _ in range(2):
            before = scale.counts("tensor")
            _, answered, _ = get(target + query, **headers)
            assert answered["X-Cache-Status"] == "BYPASS"
        if headers:
            assert sum(scale.counts("tensor").values()) == sum(before.values()) + 1
    assert get(target)[1]["X-Cache-Status"] == "MISS"
    assert get(target)[1]["X-Cache-Status"] in CACHED
    before = scale.counts("tensor")
    assert get(target, Authorization="Bearer two")[1]["X-Cache-Status"] == "BYPASS"
    assert sum(scale.counts("tensor").values()) == sum(before.values()) + 1


def test_ranges_and_conditions_are_those_of_tensord(scale):
    """RFC 9110, 13 and 14, through the cache as well as past it."""
    data, url = tensors(1)["w6"], scale.url + "/models/wide/tensors/w6"
    _, headers, body = get(url)
    assert body == data
    tag = headers["ETag"]
    across = PIECE - 10
    status, headers, body = get(url, Range=f"bytes={across}-{across + 19}")
    assert (status, body) == (206, data[across:across + 20])
    assert headers["Content-Range"] == f"bytes {across}-{across + 19}/{len(data)}"
    assert get(url, Range="bytes=-7")[::2] == (206, data[-7:])
    status, headers, body = get(url, Range="bytes=0-1,5-6")
    assert status == 206 and headers["Content-Type"].startswith("multipart/byteranges")
    assert get(url, **{"If-None-Match": tag})[0] == 304
    assert get(url, **{"If-None-Match": '"other"'})[0] == 200
    assert get(url, **{"If-Match": '"other"'})[0] == 412
    assert get(url, Range="bytes=3-5", **{"If-Match": tag})[::2] == (206, data[3:6])
    assert get(url, Range="bytes=3-5", **{"If-Range": '"other"'})[::2] == (200, data)
    for beyond in (len(data), 1 << 30):
        status, headers, body = get(url, Range=f"bytes={beyond}-")
        assert status == 416 and f"bytes={beyond}-" in json.loads(body)["error"]["message"]
        assert f"bytes */{len(data)}" in headers["Content-Range"]
    status, _, body = get(scale.url + "/models/wide/tensors/none")
    assert status == 404 and "none" in json.loads(body)["error"]["message"]


def test_a_model_that_changes_is_never_mixed(scale):
    """Complete answers are the old file's or the new one's, and soon only the new one's."""
    old, url = tensors(1), scale.url + "/models/wide/tensors/w2"
    assert get(url)[2] == old["w2"]
    new, _ = publish(scale.models, 2)

    def read(*allowed):
        """A complete answer, or None: pieces of two versions met, or both replicas say that the file is being read."""
        try:
            status, _, body = get(url)
        except http.client.HTTPException:
            return None
        if status == 503:
            return None
        assert status == 200 and body in allowed
        return body

    wait_until(lambda: read(old["w2"], new["w2"]) == new["w2"], "the new bytes")
    for _ in range(20):
        read(new["w2"])
    publish(scale.models, 1)
    wait_until(lambda: read(new["w2"], old["w2"]) == old["w2"], "the old bytes again")


def test_nginx_runs_without_rights(scale):
    nginx = scale.engine.inspect(scale.containers["nginx"])
    host = nginx["HostConfig"]
    assert nginx["Config"]["User"] == "65534:65534" and host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"]
    assert [o for o in host["SecurityOpt"] if o.startswith("no-new-privileges")]


def test_prometheus_sees_the_replicas_and_has_our_rules(scale):
    address = scale.engine.run("port", scale.containers["prometheus"], "9090/tcp").stdout.split()[0]

    def ask(path):
        return json.loads(get(f"http://{address}/api/v1/{path}")[2])["data"]

    def up():
        samples = ask("query?query=tensord_ready")["result"]
        return {s["metric"]["instance"] for s in samples if s["value"][1] == "1"} == set(REPLICAS)

    wait_until(up, "both replicas in Prometheus", 40)
    loaded = {rule["name"] for group in ask("rules")["groups"] for rule in group["rules"]}
    written = set(re.findall(r"- alert: (\w+)", (REPO / "docs/monitoring/tensord-alerts.yml").read_text()))
    assert loaded == written and "TensordDown" in written


def test_without_a_replica_the_answer_says_so(scale):
    """503 with Retry-After and a message in tensord's form; last, since both replicas end."""
    for replica in REPLICAS:
        scale.engine.run("kill", scale.containers[replica])
    for target in ("/models", "/models/wide/tensors/w7?shard=1:0/2"):
        status, headers, body = get(scale.url + target)
        assert (status, headers["Retry-After"]) == (503, "1"), target
        assert json.loads(body)["error"]["message"] == "no replica of tensord answers"
