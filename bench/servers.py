"""The servers of the bench, as processes on 127.0.0.1 or in a network namespace, and their costs: processor time and
memory from /proc."""

import contextlib
import ctypes
import http.client
import os
import pwd
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import typing
import urllib.parse

import files
from measure import BenchError, LeftOut

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
    server {{ listen 127.0.0.1:{port}{listen}; {content} }}
}}
"""
CACHE = """location / {{
        slice {slice};
        proxy_cache pieces;
        proxy_cache_key $uri$slice_range;
        proxy_set_header Range $slice_range;
        proxy_ignore_headers Cache-Control;
        proxy_cache_valid 200 206 {valid};
        proxy_cache_revalidate on;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_pass http://127.0.0.1:{port};
    }}"""
BODY_BUFFER = "512k"  # for PUT: nginx takes less processor time with it than with its default of 16 KiB
CIPHER = "TLS_AES_128_GCM_SHA256"


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

    name, address = "", "127.0.0.1"
    about = ""  # what distinguishes it, for the report

    def __init__(self, work, fixture, name=None, root=None, pair=None):
        """pair: a Pair, for TLS 1.3."""
        self.name = name or self.name
        self.pair, self.https = pair, pair is not None
        self.root = root or fixture.root
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

    def log_text(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def read_port(self):
        found = re.search(r"listening on https?://%s:(\d+)" % re.escape(self.address), self.log_text())
        if found:
            self.port = int(found.group(1))
        return found is not None

    def url(self, path=""):
        return "%s://%s:%d%s" % ("https" if self.https else "http", self.address, self.port, path)

    def get(self, path, headers=None, method="GET"):
        return get(self.port, path, headers, self.https, method)

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
        return [self.process.pid, *self.extra_pids]

    def cpu_s(self):
        return sum(process_cpu_s(pid) for pid in self.pids())

    def anon_bytes(self):
        return sum(process_status_bytes(pid, "RssAnon") for pid in self.pids())

    def resident_bytes(self):
        return sum(process_status_bytes(pid, "VmRSS") for pid in self.pids())

    def unmapped_bytes(self):
        """Returns the resident memory that is not of mapped files: anonymous, and shared memory."""
        return self.resident_bytes() - sum(process_status_bytes(pid, "RssFile") for pid in self.pids())

    def threads(self):
        return sum(len(os.listdir("/proc/%d/task" % pid)) for pid in self.pids())

    def descriptors(self):
        return sum(len(os.listdir("/proc/%d/fd" % pid)) for pid in self.pids())

    def __enter__(self):
        return self.start()

    def __exit__(self, *unused):
        self.stop()


class Nginx(Server):
    """nginx with two workers. nopush: head and body leave in one segment, which is better for small answers and worse
    for large ones. pair: TLS goes without sendfile, which nginx cannot use there. cache: {"upstream": a Tensord,
    "slice": "4m", "valid": "1h"}, whose answers it then stores. dav: takes PUT, with its temporary files beside the
    root, so that the last step is a rename."""

    name = "nginx"

    def __init__(self, work, fixture, binary, name=None, root=None, connections=4096, nopush=False, pair=None,
                 cache=None, dav=False):
        super().__init__(work, fixture, name, root, pair)
        if not binary:
            raise BenchError("nginx is not installed (Debian: apt install nginx-light); or leave it out: --servers")
        self.binary, self.connections, self.nopush, self.cache, self.dav = binary, connections, nopush, cache, dav
        self.listen, self.settings = "", ""
        if pair:
            self.listen = " ssl"
            self.settings = ('ssl_certificate "%s"; ssl_certificate_key "%s"; ssl_protocols TLSv1.3; '
                             "ssl_conf_command Ciphersuites %s;" % (pair.cert, pair.key, CIPHER))

    def command(self):
        self.port = free_port()
        os.makedirs(os.path.join(self.work, "tmp"), exist_ok=True)
        conf, content = os.path.join(self.work, "nginx.conf"), 'root "%s";' % self.root
        if self.cache:
            self.settings = ("proxy_cache_path %s keys_zone=pieces:10m inactive=1h use_temp_path=off;"
                             % os.path.join(self.work, "cache"))
            content = CACHE.format(port=self.cache["upstream"].port, **self.cache)
        if self.dav:
            content += (' dav_methods PUT; client_max_body_size 0; client_body_temp_path "%s-temporary"; '
                        "client_body_buffer_size %s;" % (self.root, BODY_BUFFER))
        with open(conf, "w") as f:
            f.write(NGINX_CONF.format(user="user root;\n" if os.geteuid() == 0 else "", prefix=self.work,
                                      nopush="on" if self.nopush else "off", port=self.port, content=content,
                                      connections=self.connections, listen=self.listen, settings=self.settings))
        return [self.binary, "-p", self.work, "-e", os.path.join(self.work, "error.log"), "-c", conf]

    def target(self, kind):
        return self.cache["upstream"].target(kind) if self.cache else super().target(kind)

    def wait_ready(self):
        super().wait_ready()
        self.wait_for(self._workers_found, "running two workers")

    def _workers_found(self):
        pid = self.process.pid
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            self.extra_pids = [int(x) for x in f.read().split()]
        return len(self.extra_pids) >= 2


class Raw(Server):
    """The bare loop. how: "" for send from a mapping, --sendfile, or for slices (runs of the file that the path names,
    /OFF/RUN/STRIDE/COUNT) --gather, which copies runs into windows, or --vectors, which sends them from the mapping."""

    def __init__(self, work, fixture, binary, name, how):
        super().__init__(work, fixture, name)
        self.binary, self.how = binary, how

    def command(self):
        return [self.binary, *([self.how] if self.how else []), self.fixture.path]

    def wait_ready(self):
        self.wait_for(self.read_port, "listening")


class Moto(Server):
    """The S3 server of moto, a Python package that tests use."""

    name = "moto"

    def __init__(self, work):
        super().__init__(work, None, root=work)

    def command(self):
        self.port = free_port()
        return ["moto_server", "-H", "127.0.0.1", "-p", str(self.port)]


class Tensord(Server):
    """tensord with its defaults, no access log, no hashing; options come after these. namespace: the network that it
    is in, with this process outside."""

    name = "tensord"

    def __init__(self, work, fixture, binary, name=None, root=None, options=(), about="", namespace=None,
                 address="127.0.0.1", pair=None):
        super().__init__(work, fixture, name, root, pair)
        if not os.access(binary, os.X_OK):
            raise BenchError("no tensord at %s; build it or name it with --tensord" % binary)
        self.binary, self.options, self.about = binary, list(options), about
        self.namespace, self.address = namespace, address

    def command(self):
        inside = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        over_tls = ["--tls-cert", self.pair.cert, "--tls-key", self.pair.key] if self.pair else []
        return [*inside, self.binary, "serve", self.root, "--listen", "%s:%d" % (self.address, self.port),
                "--access-log", "off", "--hash-threads", "0", *over_tls,
                *self.options]  # the last of two equal options counts

    def start(self):
        self.port = 0
        return super().start()

    def wait_ready(self):
        self.wait_for(self.read_port, "listening")
        if self.namespace:
            self.wait_for(lambda: "ready: /readyz" in self.log_text(), "ready")
        else:
            self.wait_for(lambda: get_status(self.port, "/readyz", self.https) == 200, "ready")

    def metric(self, name):
        found = re.search(r"^%s (\S+)$" % re.escape(name), get(self.port, "/metrics")[2].decode(), re.M)
        if not found:
            raise BenchError("%s has no metric %s" % (self.name, name))
        return float(found.group(1))

    def ways(self):
        """Returns {way: answers}: how this server sent the bodies of all answers until now."""
        found = re.findall(r'^tensord_http_answers_total\{way="(\w+)"\} (\d+)$',
                           get(self.port, "/metrics")[2].decode(), re.M)
        return {way: int(count) for way, count in found}

    def target(self, kind):
        name = urllib.parse.quote(self.fixture.name)
        if kind == "tensors":
            return ("/models/%s/tensors/%s" % (name, files.TENSOR), self.fixture.tensor_bytes, self.fixture.tensor_off)
        return "/models/%s/files/%s" % (name, name), self.fixture.size, 0


class TensordOtherOwner(Tensord):
    """Runs as a user without privileges, as in a container whose volume belongs to somebody else. The kernel grants no
    lease then."""

    def __init__(self, work, fixture, binary, **more):
        super().__init__(work, fixture, binary, **more)
        self.user = pwd.getpwnam("nobody")
        if os.geteuid() != 0:
            raise BenchError("other-owner runs tensord as another user, which takes root")
        if os.stat(fixture.path).st_uid == self.user.pw_uid:
            raise BenchError("other-owner: %s belongs to %s" % (fixture.path, self.user.pw_name))
        self.binary = shutil.copy(binary, self.work)  # a home directory is closed to the user
        os.chmod(self.binary, 0o755)
        for path, mode in ((os.path.dirname(work), 0o011), (work, 0o011), (self.work, 0o011), (fixture.root, 0o055),
                           (fixture.path, 0o044)):
            os.chmod(path, os.stat(path).st_mode | mode)

    def before_exec(self):
        os.setgroups([])
        os.setgid(self.user.pw_gid)
        os.setuid(self.user.pw_uid)
        super().before_exec()  # last, since a change of the user undoes it


# --servers: name: (program, class, what its constructor gets)
SERVERS = {
    "nginx": ("nginx", Nginx, {}),
    "nginx-nopush": ("nginx", Nginx, {"nopush": True}),
    "tensord": ("tensord", Tensord, {"about": "under a lease, where the kernel grants one"}),
    "raw": ("raw_send", Raw, {"how": ""}),
    "sendfile": ("raw_send", Raw, {"how": "--sendfile"}),
}
# --also, for more ways to run tensord
ALSO = {
    "immutable": ("tensord", Tensord, {"options": ["--files", "immutable"], "about": "`--files immutable`"}),
    "leases-off": ("tensord", Tensord, {"options": ["--leases", "off"], "about": "`--leases off`"}),
    "sendfile-remote": ("tensord", Tensord, {"options": ["--sendfile", "remote"], "about": "`--sendfile remote`"}),
    "other-owner": ("tensord", TensordOtherOwner, {"about": "run as the user nobody, who does not own the file"}),
}


# ---- the host ----

CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"


@contextlib.contextmanager
def congestion_control(name):
    """Sets the host's default for new connections, and puts it back. None: leaves it. Yields the one in force."""
    with open(CONGESTION) as f:
        before = f.read().strip()
    try:
        set_congestion_control(before, name)
        yield name or before
    finally:
        set_congestion_control(name, before)


def set_congestion_control(before, name):
    if name in (None, before) or before is None:
        return
    try:
        with open(CONGESTION, "w") as f:
            f.write(name)
    except OSError as error:
        raise BenchError("cannot measure under %s: %s (it takes root, and the kernel's module tcp_%s)"
                         % (name, error.strerror, name)) from error


ALLOWED = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"


def allow_congestion_control(name):
    """Lets network namespaces choose a control that the kernel has. It takes root outside of them; without, they may be
    refused it."""
    with contextlib.suppress(OSError):
        with open(ALLOWED) as f:
            allowed = f.read().split()
        if name not in allowed:
            with open(ALLOWED, "w") as f:
                f.write(" ".join([*allowed, name]))


FAR_ADDRESS = "10.77.0.1"  # of the server's end
BURST_BYTES = 128 << 10
QUEUE_MS = 50
SHAPE = "ip netns exec %%s tc qdisc add dev %%s root tbf rate %%dmbit burst %d latency %dms" % (BURST_BYTES, QUEUE_MS)


@contextlib.contextmanager
def shaped_link(mbit, congestion=None, mtu=1500, loopback_mbit=0):
    """Makes two network namespaces with a link whose server's end sends mbit Mbit/s (0: as fast as it can), and yields
    their names, the server's first. congestion: the default of both; None: the host's. loopback_mbit: the rate within
    the other host. Raises LeftOut."""
    ends = ["tdb%d%s" % (os.getpid(), side) for side in "sc"]

    def run(text):
        subprocess.run(text.split(), check=True, capture_output=True, text=True)

    def make():
        for name in ends:
            run("ip netns add %s" % name)
        run("ip -n %s link add v0 type veth peer name v0 netns %s" % tuple(ends))
        for number, name in enumerate(ends):
            run("ip -n %s addr add 10.77.0.%d/24 dev v0" % (name, number + 1))
            run("ip -n %s link set v0 mtu %d up" % (name, mtu))
            run("ip -n %s link set lo up" % name)
            if congestion:
                allow_congestion_control(congestion)
                run("ip netns exec %s sysctl -w net.ipv4.tcp_congestion_control=%s" % (name, congestion))
        if mbit:
            run(SHAPE % (ends[0], "v0", mbit))
        if loopback_mbit:
            run(SHAPE % (ends[1], "lo", loopback_mbit))

    try:
        try:
            make()
        except (subprocess.CalledProcessError, OSError) as error:
            raise LeftOut((getattr(error, "stderr", "") or str(error)).strip()) from error
        yield ends
    finally:
        for name in ends:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "del", name], capture_output=True)


# ---- TLS ----

class Pair(typing.NamedTuple):
    """Paths of a certificate, its key, and the certificate of the authority that signed it."""

    cert: str
    key: str
    authority: str


def make_pair(work):
    """Makes a certificate for 127.0.0.1 and an authority, both on P-256."""
    pair = Pair(*(os.path.join(work, name + ".pem") for name in ("cert", "key", "authority")))
    authority_key = os.path.join(work, "authority-key.pem")
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    for more in (["-subj", "/CN=bench authority", "-keyout", authority_key, "-out", pair.authority],
                 ["-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1", "-addext",
                  "basicConstraints=critical,CA:FALSE", "-CA", pair.authority, "-CAkey", authority_key, "-keyout",
                  pair.key, "-out", pair.cert]):
        run = subprocess.run([*new, *more], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise BenchError("openssl made no certificate: %s" % run.stderr.strip())
    return pair


# ---- small requests ----

def opened(port, https=False, timeout=60):
    if not https:
        return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=context)


def get(port, path, headers=None, https=False, method="GET"):
    """Returns (status, headers, body) of a request over a connection of its own."""
    with contextlib.closing(opened(port, https)) as connection:
        try:
            connection.request(method, path, headers=headers or {})
            if https and connection.sock.cipher()[0] != CIPHER:
                raise BenchError("GET %s: the cipher is %s" % (path, connection.sock.cipher()[0]))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise BenchError("GET %s: %s" % (path, error)) from error


def get_status(port, path, https=False):
    """Returns the status of a GET, 0 when no server listens."""
    try:
        return get(port, path, https=https)[0]
    except BenchError:
        return 0


def check_identical(server, kind):
    """Checks that a few ranges from the server equal the file's bytes."""
    path, size, base = server.target(kind)
    ranges = [(0, 1), (0, 4096), (size - 1, 1), (size // 2 - 5, 100_003), (size - 70_000, 70_000),
              (size // 3 // 4096 * 4096, 1 << 20)]
    for off, length in ranges:
        length = min(length, size - off)
        status, headers, body = server.get(path, {"Range": "bytes=%d-%d" % (off, off + length - 1)})
        where = "%s: GET %s, bytes %d-%d" % (server.name, path, off, off + length - 1)
        if status != 206:
            raise BenchError("%s: status %d instead of 206: %s" % (where, status, body[:200]))
        if headers["Content-Range"] != "bytes %d-%d/%d" % (off, off + length - 1, size):
            raise BenchError("%s: Content-Range is %r" % (where, headers["Content-Range"]))
        if body != server.fixture.read(base + off, length):
            raise BenchError("%s: not the file's bytes" % where)


def find_nginx():
    return shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin")
