"""The servers under test, as processes on 127.0.0.1, and their costs: CPU seconds and memory from /proc."""

import contextlib
import ctypes
import http.client
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

import bench_fixture

START_SECONDS = 60
NGINX_CONF = """\
{user}daemon off;
worker_processes 2;
pid {prefix}/nginx.pid;
error_log {prefix}/error.log;
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush {nopush};
    open_file_cache max=1000 inactive=600s;
    keepalive_requests 1000000;
    keepalive_timeout 600s;
    default_type application/octet-stream;
    client_body_temp_path {prefix}/tmp;
    proxy_temp_path {prefix}/tmp;
    fastcgi_temp_path {prefix}/tmp;
    uwsgi_temp_path {prefix}/tmp;
    scgi_temp_path {prefix}/tmp;
    {settings}
    server {{ listen 127.0.0.1:{port}{listen}; root "{root}"; }}
}}
"""


class BenchError(Exception):
    """An error that ends the bench; its message is one line for standard error."""


def _die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ---- costs of a process ----

def process_cpu_s(pid):
    """Returns the CPU seconds of all threads of a process, ended threads included: the kernel's own sum, which
    utime + stime of /proc/PID/stat give in ticks of 10 ms and the process's CPU clock in ns."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        with open("/proc/%d/stat" % pid) as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def process_status_bytes(pid, key):
    with open("/proc/%d/status" % pid) as f:
        found = re.search(r"^%s:\s+(\d+) kB" % key, f.read(), re.M)
    return int(found.group(1)) * 1024 if found else 0


def ksoftirqd_pids():
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/%s/comm" % entry) as f:
                    if f.read().startswith("ksoftirqd/"):
                        found.append(int(entry))
            except OSError:
                pass
    return found


def machine_busy_s():
    """Returns the CPU seconds in which the processors were not idle, summed (stolen time included)."""
    with open("/proc/stat") as f:
        fields = [int(x) for x in f.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


class MemoryWatch:
    """Samples RssAnon of a server every few ms and keeps the largest."""

    def __init__(self, server, interval_s=0.005):
        self.server, self.interval_s, self.peak = server, interval_s, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._stop.wait(self.interval_s):
            self.peak = max(self.peak, self.server.anon_bytes())

    def __enter__(self):
        self.peak = self.server.anon_bytes()
        self._thread.start()
        return self

    def __exit__(self, *unused):
        self._stop.set()
        self._thread.join()


# ---- servers ----

class Server:
    """start() returns when the server answers. target(kind) returns (URL path, size of its bytes, their offset in the
    file)."""

    name = ""
    about = ""  # what distinguishes it, for the report

    def __init__(self, work, fixture):
        self.work, self.fixture = os.path.join(work, self.name), fixture
        self.log = os.path.join(self.work, "stderr.log")
        self.process, self.port, self.extra_pids = None, 0, []
        os.makedirs(self.work, exist_ok=True)

    def command(self):
        raise NotImplementedError

    def wait_ready(self):
        self.wait_for(self._connects, "listens")

    def target(self, _kind):
        return "/" + self.fixture.name, self.fixture.size, 0

    def start(self):
        command = self.command()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TENSORD")}
        with open(self.log, "wb") as log:
            try:
                self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                env=environment, preexec_fn=self.before_exec)
            except OSError as error:
                raise BenchError("cannot start %s: %s" % (command[0], error)) from error
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def before_exec(self):
        """Runs in the server's process before its program."""
        _die_with_parent()

    def wait_for(self, condition, what, seconds=START_SECONDS, step_s=0.002):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise BenchError("%s ended with %d: %s" % (self.name, self.process.returncode, self.last_log()))
            if condition():
                return
            time.sleep(step_s)
        raise BenchError("%s: not yet %s after %d s: %s" % (self.name, what, seconds, self.last_log()))

    def last_log(self):
        lines = []
        for path in (self.log, os.path.join(self.work, "error.log")):
            if os.path.exists(path):
                with open(path, errors="replace") as f:
                    lines += f.read().splitlines()[-3:]
        return " | ".join(lines) or "no message"

    def _connects(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def read_port(self):
        with open(self.log, errors="replace") as f:
            found = re.search(r"listening on https?://127\.0\.0\.1:(\d+)", f.read())
        if found:
            self.port = int(found.group(1))
        return found is not None

    def stop(self):
        """Ends the server and returns its exit status."""
        if self.process is None:
            return 0
        self.process.terminate()
        try:
            status = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.process, self.extra_pids = None, []
        return status

    def pids(self):
        return [self.process.pid] + self.extra_pids

    def cpu_s(self):
        return sum(process_cpu_s(pid) for pid in self.pids())

    def anon_bytes(self):
        return sum(process_status_bytes(pid, "RssAnon") for pid in self.pids())

    def resident_bytes(self):
        return sum(process_status_bytes(pid, "VmRSS") for pid in self.pids())

    def unmapped_bytes(self):
        """Returns the resident memory that is not of mapped files: anonymous, and shared memory."""
        return sum(process_status_bytes(pid, "VmRSS") - process_status_bytes(pid, "RssFile") for pid in self.pids())

    def threads(self):
        return sum(len(os.listdir("/proc/%d/task" % pid)) for pid in self.pids())

    def descriptors(self):
        return sum(len(os.listdir("/proc/%d/fd" % pid)) for pid in self.pids())

    def __enter__(self):
        return self.start()

    def __exit__(self, *unused):
        self.stop()


class Nginx(Server):
    name, nopush = "nginx", "off"
    listen, settings = "", ""  # of the directive `listen`, and more directives

    def __init__(self, work, fixture, binary, connections=4096):
        super().__init__(work, fixture)
        self.binary, self.connections = binary, connections

    def command(self):
        self.port = free_port()
        os.makedirs(os.path.join(self.work, "tmp"), exist_ok=True)
        conf = os.path.join(self.work, "nginx.conf")
        with open(conf, "w") as f:
            f.write(NGINX_CONF.format(user="user root;\n" if os.geteuid() == 0 else "", prefix=self.work,
                                      nopush=self.nopush, port=self.port, root=self.fixture.root,
                                      connections=self.connections, listen=self.listen, settings=self.settings))
        return [self.binary, "-p", self.work, "-e", os.path.join(self.work, "error.log"), "-c", conf]

    def wait_ready(self):
        super().wait_ready()
        self.wait_for(self._workers_found, "running two workers")

    def _workers_found(self):
        pid = self.process.pid
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            self.extra_pids = [int(x) for x in f.read().split()]
        return len(self.extra_pids) >= 2


class NginxNopush(Nginx):
    """nginx with tcp_nopush: head and body leave in one segment. Better for small answers, worse for large ones."""

    name, nopush = "nginx-nopush", "on"


class Raw(Server):
    name = "raw"

    def __init__(self, work, fixture, binary):
        super().__init__(work, fixture)
        self.binary = binary

    def command(self):
        return [self.binary, self.fixture.path]

    def wait_ready(self):
        self.wait_for(self.read_port, "listening")


class RawSendfile(Raw):
    """The raw sender with sendfile in place of send from a mapping."""

    name = "sendfile"

    def command(self):
        return [self.binary, "--sendfile", self.fixture.path]


class RawSlices(Raw):
    """The raw sender for slices: runs of one file, which the path names (/OFF/RUN/STRIDE/COUNT)."""

    def __init__(self, work, path, binary):
        super().__init__(work, None, binary)
        self.path = path

    def command(self):
        return [self.binary, "--" + self.name, self.path]


class RawGather(RawSlices):
    """Copies the runs into windows."""

    name = "gather"


class RawVectors(RawSlices):
    """Sends the runs from the mapping."""

    name = "vectors"


class Tensord(Server):
    name, about = "tensord", "under a lease, where the kernel grants one"

    def __init__(self, work, fixture, binary, root=None, options=()):
        super().__init__(work, fixture)
        self.binary, self.root, self.options = binary, root or fixture.root, list(options)

    def command(self):
        return [self.binary, "serve", self.root, "--listen", "127.0.0.1:%d" % self.port,
                "--access-log", "off", "--hash-threads", "0"] + self.options  # the last of two equal options counts

    def start(self):
        self.port = 0
        return super().start()

    def wait_ready(self):
        self.wait_for(self.read_port, "listening")
        self.wait_for(lambda: get_status(self.port, "/readyz") == 200, "ready")

    def ways(self):
        """Returns {way: answers}: how this server sent the bodies of all answers until now."""
        found = re.findall(r'^tensord_http_answers_total\{way="(\w+)"\} (\d+)$',
                           get(self.port, "/metrics")[2].decode(), re.M)
        return {way: int(count) for way, count in found}

    def target(self, kind):
        name = urllib.parse.quote(self.fixture.name)
        if kind == "tensors":
            return ("/models/%s/tensors/%s" % (name, bench_fixture.TENSOR), self.fixture.tensor_bytes,
                    self.fixture.tensor_off)
        return "/models/%s/files/%s" % (name, name), self.fixture.size, 0


class TensordImmutable(Tensord):
    """Files that are only ever replaced by rename, so that they need no lease."""

    name, about = "tensord-immutable", "`--files immutable`"

    def __init__(self, work, fixture, binary):
        super().__init__(work, fixture, binary, options=["--files", "immutable"])


class TensordLeasesOff(Tensord):
    """Files that are copied, because no lease is asked for."""

    name, about = "tensord-leases-off", "`--leases off`"

    def __init__(self, work, fixture, binary):
        super().__init__(work, fixture, binary, options=["--leases", "off"])


class TensordSendfileRemote(Tensord):
    """Files under a lease that are copied, because the load client is on this host."""

    name, about = "tensord-sendfile-remote", "`--sendfile remote`"

    def __init__(self, work, fixture, binary):
        super().__init__(work, fixture, binary, options=["--sendfile", "remote"])


class TensordOtherOwner(Tensord):
    """Runs as a user without privileges, as in a container whose volume belongs to somebody else. The kernel grants no
    lease then."""

    name, about = "tensord-other-owner", "run as the user nobody, who does not own the file"

    def __init__(self, work, fixture, binary):
        super().__init__(work, fixture, binary)
        self.user = pwd.getpwnam("nobody")
        if os.geteuid() != 0:
            raise BenchError("other-owner runs tensord as another user, which takes root")
        if os.stat(fixture.path).st_uid == self.user.pw_uid:
            raise BenchError("other-owner: %s belongs to %s" % (fixture.path, self.user.pw_name))
        self.binary = shutil.copy(binary, self.work)  # a home directory is closed to the user
        os.chmod(self.binary, 0o755)
        for path, mode in ((work, 0o011), (self.work, 0o011), (fixture.root, 0o055), (fixture.path, 0o044)):
            os.chmod(path, os.stat(path).st_mode | mode)

    def before_exec(self):
        os.setgroups([])
        os.setgid(self.user.pw_gid)
        os.setuid(self.user.pw_uid)
        super().before_exec()  # last, since a change of the user undoes it


class TensordBefore(Tensord):
    """A build of an older commit, to measure the cost of a change."""

    name, about = "before", ""


# ---- the host ----

CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"


@contextlib.contextmanager
def congestion_control(name):
    """Sets the host's default for new connections, and puts it back. None: leaves it. Yields the one in force."""
    with open(CONGESTION) as f:
        before = f.read().strip()
    try:
        if name not in (None, before):
            with open(CONGESTION, "w") as f:
                f.write(name)
        yield name or before
    except OSError as error:
        raise BenchError("cannot measure under %s: %s (it takes root, and the kernel's module tcp_%s)"
                         % (name, error.strerror, name)) from error
    finally:
        if name not in (None, before):
            with open(CONGESTION, "w") as f:
                f.write(before)


# ---- small requests ----

def get_status(port, path):
    """Returns the status of a GET, 0 when no server listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def get(port, path, headers=None):
    """Returns (status, headers, body) of a GET."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise BenchError("GET %s: %s" % (path, error)) from error
    finally:
        connection.close()


def check_identical(server, kind):
    """Checks that a few ranges from the server equal the file's bytes."""
    path, size, base = server.target(kind)
    ranges = [(0, 1), (0, 4096), (size - 1, 1), (size // 2 - 5, 100_003), (size - 70_000, 70_000),
              (size // 3 // 4096 * 4096, 1 << 20)]
    for off, length in ranges:
        length = min(length, size - off)
        status, headers, body = get(server.port, path, {"Range": "bytes=%d-%d" % (off, off + length - 1)})
        where = "%s: GET %s, bytes %d-%d" % (server.name, path, off, off + length - 1)
        if status != 206:
            raise BenchError("%s: status %d instead of 206: %s" % (where, status, body[:200]))
        if headers["Content-Range"] != "bytes %d-%d/%d" % (off, off + length - 1, size):
            raise BenchError("%s: Content-Range is %r" % (where, headers["Content-Range"]))
        if body != server.fixture.read(base + off, length):
            raise BenchError("%s: not the file's bytes" % where)


def find_nginx():
    return shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin")
