"""rclone, s3cmd and the AWS command line against the S3 facade. The first two compare the fetched bytes with an entity
tag that looks like an MD5."""
import hashlib
import re
import subprocess

import pytest

import harness
from client import digests, quiet_environment, s3_port

NAMES = ["config.json", "name with space.txt", "é/ü+plus.txt", "100%.txt", "empty.txt", "sub/deeper/file.dat"]
BIG = 9_000_001
RANKS = "ns/model/shards/fsdp/tp2"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("sync") / "root"
    for name in NAMES:
        path = root / "ns/model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if name == "empty.txt" else harness.pattern(2000 + len(name), name))
    (root / "ns/model/config.json").write_text("{}")
    (root / "ns/model/big.dat").write_bytes(harness.pattern(BIG, "big"))
    harness.write_by_hand(root / "ns/model/model.safetensors",
                          [harness.tensor(n, "F32", (64, 32)) for n in ("a", "b", "c")])
    harness.age(root)
    return root


@pytest.fixture(scope="module", params=["hashed", "not hashed"])
def srv(request, root):
    threads = None if request.param == "hashed" else 0
    with harness.Server(root, "--s3-listen", "127.0.0.1:0", hash_threads=threads) as s:
        if threads is None:
            s.wait_hashed()
        yield s


@pytest.fixture(scope="module", params=["ns/model", RANKS], ids=["files", "ranks"])
def served(request, srv, root):
    """Returns a prefix, and the digests of its objects: of the files on disk, and of the rank files from the main
    port."""
    if request.param == "ns/model":
        return request.param, digests(root / "ns/model")
    wanted = {n: d for n, d in digests(root / "ns/model").items() if n != "model.safetensors"}
    for rank in range(2):
        body = srv.get(f"/models/{RANKS}/rank-{rank}.safetensors").body
        wanted[f"model-rank-{rank}-part-0.safetensors"] = hashlib.sha256(body).hexdigest()
    return request.param, wanted


class Tool:
    """A command with the arguments of every call; records which objects the calls fetched."""

    def __init__(self, server, command, home, **env):
        self.server, self.command, self.env = server, command, quiet_environment(home, LC_ALL="C.UTF-8", **env)

    def __call__(self, *args):
        """Run the command. Return its output. It must succeed and print no warning."""
        got = subprocess.run([*self.command, *args], env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, timeout=120, check=False)
        said = got.stdout + got.stderr
        assert got.returncode == 0, said
        assert not re.search(r"warn|error|corrupt|mismatch", said, re.IGNORECASE), said
        return said

    def fetched(self, *args):
        """Return the objects that a call fetched bytes of."""
        before = len(self.fetches())
        self(*args)
        return self.fetches()[before:]

    def fetches(self):
        return re.findall(r'method="GET" target="([^"]*)" .* route=s3_object', self.server.whole_log())


@pytest.fixture
def rclone(srv, tmp_path):
    remote = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": f"http://127.0.0.1:{s3_port(srv)}", "ENV_AUTH": "false",
              "ACCESS_KEY_ID": "any", "SECRET_ACCESS_KEY": "any", "REGION": "us-east-1"}
    (tmp_path / "rclone.conf").write_text("")
    return Tool(srv, ["/usr/bin/rclone", "--config", str(tmp_path / "rclone.conf")], tmp_path,
                **{f"RCLONE_CONFIG_T_{k}": v for k, v in remote.items()})


@pytest.fixture
def s3cmd(srv, tmp_path):
    host = f"127.0.0.1:{s3_port(srv)}"
    (tmp_path / "s3cfg").write_text("[default]\n")
    return Tool(srv, ["/usr/bin/s3cmd", "--config", str(tmp_path / "s3cfg"), f"--host={host}", f"--host-bucket={host}",
                      "--no-ssl", "--access_key=any", "--secret_key=any", "--no-progress"], tmp_path)


@pytest.fixture
def aws(srv, tmp_path):
    return Tool(srv, ["/usr/bin/aws", "--endpoint-url", f"http://127.0.0.1:{s3_port(srv)}"], tmp_path,
                AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any")


def test_the_manual(srv, root, tmp_path):
    """The lines of docs/s3.md, with this server's address and model name."""
    text = (harness.REPO / "docs/s3.md").read_text()
    block, = [b for b in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if "rclone sync" in b]
    block = block.replace("weights:8081", f"127.0.0.1:{s3_port(srv)}").replace("Qwen/Qwen3-0.6B", "ns/model")
    (tmp_path / "to/Qwen3-0.6B").mkdir(parents=True)
    env = quiet_environment(tmp_path, LC_ALL="C.UTF-8", PATH="/usr/bin:/bin")
    got = subprocess.run(["bash", "-e", "-c", block], cwd=tmp_path / "to", env=env,
                         capture_output=True, text=True, timeout=120, check=False)
    assert got.returncode == 0 and "WARNING" not in got.stderr, got.stderr
    assert digests(tmp_path / "to/Qwen3-0.6B") == digests(root / "ns/model")


def test_rclone_copies(rclone, served, tmp_path):
    prefix, wanted = served
    rclone("copy", f"T:{prefix}", str(tmp_path / "to"))
    assert digests(tmp_path / "to") == wanted
    assert rclone("cat", f"T:{prefix}/config.json") == "{}"


def test_rclone_syncs_once(rclone, served, tmp_path):
    prefix, wanted = served
    to = str(tmp_path / "to")
    assert len(set(rclone.fetched("sync", f"T:{prefix}", to))) == len(wanted)
    assert digests(to) == wanted
    assert rclone.fetched("sync", f"T:{prefix}", to) == [], "nothing is new"
    said = rclone("check", "-v", f"T:{prefix}", to)
    assert "0 differences found" in said and f"{len(wanted)} matching files" in said, said
    said = rclone("check", "-v", "--download", f"T:{prefix}", to)
    assert "0 differences found" in said and f"{len(wanted)} matching files" in said, said


def test_s3cmd_gets(s3cmd, served, tmp_path):
    prefix, wanted = served
    to = tmp_path / "to"
    to.mkdir()
    s3cmd("get", "--recursive", f"s3://{prefix}/", f"{to}/")
    assert digests(to) == wanted
    s3cmd("get", f"s3://{prefix}/config.json", str(tmp_path / "one"))
    assert (tmp_path / "one").read_text() == "{}"


def test_s3cmd_syncs_once(s3cmd, served, tmp_path):
    prefix, wanted = served
    to = tmp_path / "to"
    to.mkdir()
    assert len(s3cmd.fetched("sync", f"s3://{prefix}/", f"{to}/")) == len(wanted)
    assert digests(to) == wanted
    assert s3cmd.fetched("sync", f"s3://{prefix}/", f"{to}/") == [], "nothing is new"


def test_aws_syncs_once(aws, served, tmp_path):
    prefix, wanted = served
    to = tmp_path / "to"
    fetched = aws.fetched("s3", "sync", "--no-progress", f"s3://{prefix}/", str(to))
    assert len({target.partition("?")[0] for target in fetched}) == len(wanted)
    assert digests(to) == wanted
    assert aws.fetched("s3", "sync", "--no-progress", f"s3://{prefix}/", str(to)) == [], "nothing is new"
