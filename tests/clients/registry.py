"""Runs the clients of OCI registries as a user of them does, each with a store and settings of its own, and reads what
they stored: hashlib and tarfile say whether it is right, not the clients."""
import contextlib
import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

import harness
from client import quiet_environment

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
TITLE = "org.opencontainers.image.title"
BUSYBOX = "localhost/busybox:test"
BIN = "/usr/sbin:/usr/bin:/sbin:/bin"

# Limits: podman's own are above what some machines allow.
CONTAINERS_CONF = """[containers]
cgroups = "no-conmon"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
image_copy_tmp_dir = "{folder}/tmp"
lock_type = "file"
runtime = "runc"
tmp_dir = "{folder}/libpod"
"""
STORAGE_CONF = """[storage]
driver = "vfs"
graphroot = "{folder}/store"
runroot = "{folder}/run"
"""
CONTAINERD_CONF = """version = 2
root = "{folder}/containerd"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{folder}/sock"
[ttrpc]
address = "{folder}/ttrpc"
"""


def tool(name):
    """Return the path of Debian's program of this name. A missing one is a failure."""
    path = shutil.which(name, path=BIN)
    assert path, f"{name} is missing: scripts/deps.sh test installs it"
    return path


def hex_of(data):
    return hashlib.sha256(data).hexdigest()


class Box:
    """A user's machine: a home, credentials, and stores of podman and skopeo below one folder. Takes the folder along
    when it is closed."""

    def __init__(self):
        self.folder = Path(harness.temporary_directory(self, "td-box-"))
        for name in ("home", "tmp"):
            (self.folder / name).mkdir()
        for name, text in (("containers.conf", CONTAINERS_CONF), ("storage.conf", STORAGE_CONF)):
            (self.folder / name).write_text(text.format(folder=self.folder))
        (self.folder / "registries.conf").write_text("")
        (self.folder / "auth.json").write_text("{}")
        self.env = quiet_environment(
            self.folder / "home", PATH=BIN, CONTAINERS_CONF=str(self.folder / "containers.conf"),
            CONTAINERS_STORAGE_CONF=str(self.folder / "storage.conf"), TMPDIR=str(self.folder / "tmp"),
            CONTAINERS_REGISTRIES_CONF=str(self.folder / "registries.conf"),
            REGISTRY_AUTH_FILE=str(self.folder / "auth.json"))

    def new_folder(self, prefix):
        """Return a new folder of a short path, since sockets are put there."""
        return Path(tempfile.mkdtemp(prefix=prefix, dir=self.folder))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        """Remove containers, mounts, images, and the control groups above containers, unless others use them."""
        for words in ("rm", "image unmount", "rmi"):
            self.run("podman", *words.split(), "--all", "--force")
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if line.split()[1].startswith(f"{self.folder}/"):
                subprocess.run([tool("umount"), line.split()[1]], check=True)
        for above in ("", "*/"):
            for group in Path("/sys/fs/cgroup").glob(f"{above}libpod_parent"):
                with contextlib.suppress(OSError):
                    group.rmdir()

    def start(self, name, *args, **more):
        """Start a program with its standard output and error in pipes, as text."""
        return subprocess.Popen([tool(name), *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=self.env | more, cwd=self.folder)

    def run(self, name, *args, **more):
        """Run a program to its end. Return (exit status, standard output, standard error)."""
        with self.start(name, *args, **more) as process:
            try:
                out, err = process.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return process.returncode, out, err

    def ok(self, name, *args, **more):
        """Run a program that must succeed. Return its standard output without the last line break."""
        code, out, err = self.run(name, *args, **more)
        assert code == 0, f"{name} {' '.join(map(str, args))}: exit status {code}\n{out}\n{err}"
        return out.rstrip("\n")

    def refused(self, name, *args, **more):
        """Run a program that must fail by itself. Return what it printed."""
        code, out, err = self.run(name, *args, **more)
        assert code not in (0, 2) and code > 0, f"{name} {' '.join(map(str, args))}: exit status {code}\n{out}\n{err}"
        return out + err

    def import_busybox(self):
        """Give podman an image to run that no registry has: Debian's static busybox alone, under a few names."""
        with tarfile.open(self.folder / "busybox.tar", "w") as tar:
            tar.add(tool("busybox"), "bin/busybox")
            for name in ("find", "ls", "sha256sum", "touch"):
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        self.ok("podman", "import", self.folder / "busybox.tar", BUSYBOX)


class Daemon:
    """A program that serves until the `with` block ends, at the latest until this process ends. Subclasses say when it
    is ready."""

    def __init__(self, command, folder, env):
        self.folder, self.log = folder, folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([tool("setpriv"), "--pdeathsig", "TERM", tool(command[0]), *command[1:]],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)

    def __enter__(self):
        deadline = time.monotonic() + 60
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise AssertionError(f"{self.process.args[3]} is not ready:\n{self.log.read_text()}")
            time.sleep(0.02)
        return self

    def __exit__(self, *exc):
        self.process.terminate()
        self.process.wait(60)


class Containerd(Daemon):
    """A private containerd and its client `ctr`, with overlayfs, its default."""

    def __init__(self, box):
        self.box, folder = box, box.new_folder("cd")
        (folder / "config.toml").write_text(CONTAINERD_CONF.format(folder=folder))
        super().__init__(["containerd", "--config", folder / "config.toml"], folder, box.env)

    def is_ready(self):
        return self.ctr("version", run=self.box.run)[0] == 0

    def know_host(self, address, authority):
        """Say that a registry has TLS by this authority, as a node of a cluster is configured. Return the directory for
        `--hosts-dir`."""
        folder = self.folder / "hosts" / address
        folder.mkdir(parents=True)
        (folder / "hosts.toml").write_text(f"""server = "https://{address}"
[host."https://{address}"]
capabilities = ["pull", "resolve"]
ca = "{authority}"
""")
        return folder.parent

    def ctr(self, *args, run=None, **more):
        return (run or self.box.ok)("ctr", "--address", self.folder / "sock", *args, **more)

    def pull(self, reference, *options, run=None):
        """Pull an image and unpack it. options: `--plain-http` or what TLS and credentials need, a platform."""
        return self.ctr("images", "pull", *options, reference, run=run)

    @contextlib.contextmanager
    def mounted(self, reference, *options):
        """Mount a pulled image read-only, and unmount it afterwards. options: a platform."""
        place = self.box.new_folder("mounted")
        self.ctr("images", "mount", *options, reference, place)
        try:
            yield place
        finally:
            self.ctr("images", "unmount", "--rm", place)

    def content(self, digest):
        """Return the bytes of one piece of the content store."""
        blobs = self.folder / "containerd/io.containerd.content.v1.content/blobs"
        return (blobs / digest.replace(":", "/")).read_bytes()


class DockerEngine(Daemon):
    """A private Docker engine without a network of its own, so that it changes nothing of the machine's. It takes
    registries on 127.0.0.1 for ones without TLS, as every engine does."""

    def __init__(self, box):
        self.box, folder = box, box.new_folder("de")
        self.env = {"DOCKER_HOST": f"unix://{folder}/sock"}
        super().__init__(["dockerd", "--data-root", folder / "data", "--exec-root", folder / "exec", "--pidfile",
                          folder / "pid", "--host", self.env["DOCKER_HOST"], "--storage-driver", "vfs", "--bridge",
                          "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"], folder, box.env)

    def is_ready(self):
        return self.docker("version", run=self.box.run)[0] == 0

    def docker(self, *args, run=None):
        return (run or self.box.ok)("docker", *args, **self.env)

    def unpacked(self, image, place):
        """Return a directory with the image's files. Docker makes a container for that, which never runs, and adds
        empty files and directories of its own."""
        container = self.docker("create", image, "nothing")
        try:
            self.docker("cp", f"{container}:/", place)
        finally:
            self.docker("rm", container)
        return place


class Layout:
    """An OCI image layout that a client wrote. Opening it checks that each blob is what its name says."""

    def __init__(self, folder):
        self.folder = Path(folder)
        assert json.loads((self.folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
        for blob in (self.folder / "blobs/sha256").iterdir():
            with open(blob, "rb") as f:
                assert hashlib.file_digest(f, "sha256").hexdigest() == blob.name
        self.manifests = json.loads((self.folder / "index.json").read_text())["manifests"]

    def blob(self, descriptor):
        data = (self.folder / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
        assert len(data) == descriptor["size"], descriptor
        return data

    def json(self, descriptor):
        return json.loads(self.blob(descriptor))

    def artifact(self):
        """Return the only manifest, after a check that a blob for each of its layers is here."""
        top, = self.manifests
        made = self.json(top)
        for descriptor in (made["config"], *made["layers"]):
            self.blob(descriptor)
        return made


def titles(manifest):
    """Return the title of each layer -> its SHA-256 as `sha256sum` prints it. No title may occur twice."""
    found = {layer["annotations"][TITLE]: layer["digest"].removeprefix("sha256:") for layer in manifest["layers"]}
    assert len(found) == len(manifest["layers"]), "a title occurs twice"
    return found


def tar_digests(layers):
    """Return path -> SHA-256 of all regular files in these tar archives (bytes), unpacked one after the other."""
    found = {}
    for layer in layers:
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            for member in tar:
                if member.isfile():
                    found[member.name.removeprefix("./")] = hex_of(tar.extractfile(member).read())
    return found


class ReferenceRegistry(Daemon):
    """The registry of the distribution project, from Debian's package: it refuses manifests that are not valid."""

    def __init__(self, box):
        folder = box.new_folder("registry")
        (folder / "config.yml").write_text("version: 0.1\nhttp: {addr: '127.0.0.1:0'}\n"
                                           f"storage: {{filesystem: {{rootdirectory: '{folder}/data'}}}}\n")
        # It would take REGISTRY_AUTH_FILE of the box for a setting.
        super().__init__(["docker-registry", "serve", folder / "config.yml"], folder, quiet_environment(folder))

    def is_ready(self):
        listening = re.search(r"listening on 127\.0\.0\.1:(\d+)", self.log.read_text())
        self.port = int(listening[1]) if listening else None
        self.address = f"127.0.0.1:{self.port}"
        return listening

    def get(self, target, headers=()):
        with harness.Conn(self.port) as c:
            return c.request(target, headers)
