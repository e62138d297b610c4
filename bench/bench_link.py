"""Two hosts on one machine: two network namespaces with a link between them whose server's end sends at a given rate
(tbf), and a tensord in each of them."""

import contextlib
import os
import subprocess

from bench_servers import Tensord

SERVER = "10.77.0.1"
LOOPBACK = "127.0.0.1"
BURST_BYTES = 128 << 10
QUEUE_MS = 50
SHAPE = "ip netns exec %%s tc qdisc add dev %%s root tbf rate %%dmbit burst %d latency %dms" % (BURST_BYTES, QUEUE_MS)


class NoLink(Exception):
    """This machine or user cannot make network namespaces; the text says why."""


@contextlib.contextmanager
def shaped_link(mbit, congestion=None, mtu=1500, loopback_mbit=0):
    """Makes two network namespaces with a link whose server's end sends mbit Mbit/s (0: as fast as it can), and gives
    their names, the server's first. congestion: the default of both; None: the host's. loopback_mbit: the rate within
    the other host. Raises NoLink."""
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
                run("ip netns exec %s sysctl -w net.ipv4.tcp_congestion_control=%s" % (name, congestion))
        if mbit:
            run(SHAPE % (ends[0], "v0", mbit))
        if loopback_mbit:
            run(SHAPE % (ends[1], "lo", loopback_mbit))

    try:
        try:
            make()
        except (subprocess.CalledProcessError, OSError) as error:
            raise NoLink((getattr(error, "stderr", "") or str(error)).strip()) from error
        yield ends
    finally:
        for name in ends:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "del", name], capture_output=True)


class FarTensord(Tensord):
    """A server in a namespace of its own, which this process cannot reach."""

    name, address = "tensord-far", SERVER

    def __init__(self, work, binary, root, namespace, options=()):
        super().__init__(work, None, binary, root, ["--settle", "0", *options])
        self.namespace = namespace

    def command(self):
        return ["ip", "netns", "exec", self.namespace] + super().command() + ["--listen", "%s:0" % self.address]

    def url(self, path=""):
        return "http://%s:%d%s" % (self.address, self.port, path)

    def log_has(self, text):
        with open(self.log, errors="replace") as f:
            return text in f.read()

    def read_port(self):
        with open(self.log, errors="replace") as f:
            text = f.read()
        _, found, after = text.partition("listening on http://%s:" % self.address)
        if found:
            self.port = int(after.split()[0].rstrip("/,"))
        return bool(found)

    def wait_ready(self):
        """Waits for the line of the log."""
        self.wait_for(self.read_port, "listening")
        self.wait_for(lambda: self.log_has("ready: /readyz"), "ready")


class NearCache(FarTensord):
    """A cold cache on the clients' host, in a directory of its own, which fetches models from a FarTensord."""

    name, address = "tensord-near", LOOPBACK

    def __init__(self, work, binary, namespace, upstream):
        root = os.path.join(work, "cache")
        os.mkdir(root)
        super().__init__(work, binary, root, namespace, ["--upstream", upstream.url()])
