#!/usr/bin/env python3
"""What nginx as a cache in front of tensord costs in processor time: to fetch a file in slices and store it, to answer
from the cache, and to do that where each piece has to be asked for again (304). Standard library alone; needs nginx
with its slice module.

    bench/cache_cost.py build/tensord [--slice 4m] [--size-mib 1024] [--rounds 5]
"""
import argparse
import os
import shutil
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import bench_fixture  # noqa: E402
from bench_load import Load  # noqa: E402
from bench_report import median, number, table  # noqa: E402
from bench_servers import NGINX_CONF, BenchError, Nginx, Tensord, congestion_control  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
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


class Cache(Nginx):
    """nginx whose files are those of a tensord behind it."""

    name, valid = "nginx-cache", "1h"

    def __init__(self, work, fixture, binary, upstream, slice_size):
        super().__init__(work, fixture, binary)
        self.upstream, self.slice_size = upstream, slice_size

    def command(self):
        command = super().command()
        with open(command[-1]) as file:
            text = file.read()
        location = CACHE.format(slice=self.slice_size, valid=self.valid, port=self.upstream.port)
        folder = os.path.join(self.work, "cache")
        path = "proxy_cache_path %s keys_zone=pieces:10m inactive=1h use_temp_path=off;\n" % folder
        text = text.replace('root "%s";' % self.fixture.root, location)
        text = text.replace("    server {", "    %s    server {" % path)
        with open(command[-1], "w") as file:
            file.write(text)
        return command

    def target(self, kind):
        return self.upstream.target(kind)


class AskingCache(Cache):
    """A cache that uses a piece for a second, and then asks tensord whether its entity tag still holds, as the profile
    `scale` does."""

    name, valid = "nginx-asking", "1s"


FETCH = ("fetch and store", 16 << 20, 1, ["--order", "sequential", "--once"], 1, 0)


def measure(load, cache, upstream, cases):
    """Returns rows of (what, connections, GB/s, s/GB of nginx, s/GB of tensord, s/GB of the client). cases: (what,
    bytes of a request, connections, options of the client, rounds, seconds to wait before each)."""
    rows = []
    for what, size, connections, extra, times, pause_s in cases:
        samples = []
        for _ in range(times):
            time.sleep(pause_s)
            before = upstream.cpu_s()
            sample = load.run(cache, size, connections, extra)
            sample["upstream"] = (upstream.cpu_s() - before) / sample["bytes"] * 1e9
            samples.append(sample)
        keys = {"gb_per_s": 2, "server_cpu_s_per_gb": 3, "upstream": 3, "client_cpu_s_per_gb": 3}
        rows.append([what, connections, *(number(median([sample[key] for sample in samples]), digits)
                                          for key, digits in keys.items())])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("tensord", type=os.path.abspath)
    parser.add_argument("--slice", default="4m", help="of nginx (4m)")
    parser.add_argument("--size-mib", type=int, default=1024, help="of the file (1024)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--load-client", default=os.path.join(HERE, "..", "build", "bench", "load_client"))
    options = parser.parse_args()
    nginx = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    try:
        if not nginx:
            raise BenchError("nginx is not installed (Debian: apt install nginx-light)")
        with tempfile.TemporaryDirectory(prefix="tensord-bench-") as work, congestion_control("cubic"):
            root = os.path.join(work, "root")
            os.makedirs(root)
            fixture = bench_fixture.write_big(os.path.join(root, "bench.safetensors"), options.size_mib << 20)
            load = Load(options.load_client, reader="copy")
            with Tensord(work, fixture, options.tensord) as upstream:
                with Cache(work, fixture, nginx, upstream, options.slice) as cache:
                    rows = measure(load, cache, upstream, [
                        FETCH,
                        ("from the cache, 16 MiB", 16 << 20, 8, ["--order", "sequential", "--duration", "1"],
                         options.rounds, 0),
                        ("from the cache, whole", 0, 8, ["--duration", "1"], options.rounds, 0)])
                with AskingCache(work, fixture, nginx, upstream, options.slice) as cache:
                    rows += measure(load, cache, upstream, [
                        FETCH,
                        ("from the cache, each piece asked for again", 16 << 20, 8,
                         ["--order", "sequential", "--once"], options.rounds, 1.1)])
    except BenchError as error:
        sys.exit("cache_cost: %s" % error)
    print(table(["nginx", "connections", "GB/s", "nginx s/GB", "tensord s/GB", "client s/GB"], rows))


if __name__ == "__main__":
    main()
