"""Writes of objects by clients of S3: small ones over eight connections, a large one, and the same in parts. Beside
tensord's S3 port stand nginx's DAV module, which neither hashes nor syncs, and moto's server, if moto_server is
installed. Each body is new, so that no server has it already."""

import concurrent.futures
import http.client
import itertools
import os
import re
import shutil
import time

import servers
from measure import BenchError, by_turns, bytes_text, result, rows_table, summarize

SMALL, SMALL_BYTES, CONNECTIONS = 200, 1000, 8
PART_BYTES, PARTS_AT_ONCE = 16 << 20, 4
NUMBERS = itertools.count(1)


class Client:
    """Connects to a server. The names of its objects begin with `prefix`."""

    def __init__(self, server):
        self.port, self.has_parts = getattr(server, "s3", server.port), not isinstance(server, servers.Nginx)
        self.prefix = ("/bench/m%d/" if self.has_parts else "/m%d-") % next(NUMBERS)  # nginx makes no folders
        if isinstance(server, servers.Moto):
            self.ask(self.connect(), "PUT", "/bench", b"")

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    def ask(self, connection, method, path, body=b""):
        headers = {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD", "Content-Length": str(len(body)),
                   "Authorization": "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, "
                                    "SignedHeaders=host, Signature=0"}
        connection.request(method, path, body, headers if self.has_parts else {})
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status not in (200, 201, 204):
            raise BenchError("%s %s: %d %s" % (method, path, answer.status, text[:300]))
        return answer, text

    def at_once(self, count, paths_and_bodies):
        """PUTs over `count` connections. Returns the entity tags in order."""
        work = enumerate(paths_and_bodies)
        tags = {}

        def put_some(_):
            connection = self.connect()
            for i, (path, body) in iter(lambda: next(work, None) or (None, (None, None)), (None, (None, None))):
                tags[i] = self.ask(connection, "PUT", path, body)[0].getheader("ETag")
            connection.close()
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            list(pool.map(put_some, range(count)))
        return [tags[i] for i in sorted(tags)]


def small(client, _block):
    bodies = [os.urandom(SMALL_BYTES) for _ in range(SMALL)]
    client.at_once(CONNECTIONS, [("%sf%d" % (client.prefix, i), body) for i, body in enumerate(bodies)])


def whole(client, block):
    client.at_once(1, [(client.prefix + "f", block)])


def parts(client, block):
    """Sends the block in parts. Returns the seconds of the completion."""
    connection, path = client.connect(), client.prefix + "f"
    upload = re.search("<UploadId>(.*)</UploadId>", client.ask(connection, "POST", path + "?uploads=")[1]).group(1)
    pieces = [("%s?partNumber=%d&uploadId=%s" % (path, n + 1, upload), block[at:at + PART_BYTES])
              for n, at in enumerate(range(0, len(block), PART_BYTES))]
    tags = client.at_once(PARTS_AT_ONCE, pieces)
    items = "".join("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>" % (n + 1, tag.replace('"', "&quot;"))
                    for n, tag in enumerate(tags))
    begin = time.monotonic()
    client.ask(connection, "POST", "%s?uploadId=%s" % (path, upload),
               ("<CompleteMultipartUpload>%s</CompleteMultipartUpload>" % items).encode())
    connection.close()
    return time.monotonic() - begin


WAYS = {"%d objects of %d B, %d at once" % (SMALL, SMALL_BYTES, CONNECTIONS): small, "one object": whole,
        "the same in parts, %d at once" % PARTS_AT_ONCE: parts}


def measure(server, way, block):
    block[:8] = next(NUMBERS).to_bytes(8, "little")
    body = memoryview(block).toreadonly()
    client = Client(server)
    before, begin = server.cpu_s(), time.monotonic()
    completion = WAYS[way](client, body)
    sample = {"seconds": time.monotonic() - begin, "cpu": server.cpu_s() - before}
    return sample if completion is None else {**sample, "completion": completion}


def run(bench):
    roots = [os.path.join(bench.directory, name) for name in ("objects-nginx", "objects-tensord")]
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)
        os.makedirs(root)
    port = servers.free_port()
    tensord = bench.tensord(root=roots[1], options=["--publish", "local", "--keep-commits", "0", "--s3-listen",
                                                    "127.0.0.1:%d" % port])
    tensord.s3 = port
    compared = [bench.nginx(root=roots[0], dav=True), tensord]
    if shutil.which("moto_server"):
        compared.append(servers.Moto(bench.work))
    block = bytearray(os.urandom(1 << 20) * (bench.options.size >> 20))
    with bench.started(compared) as started:
        cells = {(way,): {server.name: lambda _, server=server, way=way: measure(server, way, block)
                          for server in started if way != list(WAYS)[2] or not isinstance(server, servers.Nginx)}
                 for way in WAYS}
        samples = by_turns(cells, bench.options.rounds, not bench.quick, "objects")
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)
    rows = summarize(samples, ("objects",), {"time": "seconds"})
    about = ["objects and parts of %s and %s; %d rounds by turns" % (bytes_text(len(block)), bytes_text(PART_BYTES),
                                                                      bench.options.rounds),
             "tensord hashes each body, syncs it and makes it a commit; nginx does none of this; moto keeps objects in "
             "memory or in files that it does not sync"]
    return result("Writes of objects", about, [rows_table(rows, [
        ("objects", "objects"), ("server", "server"), ("s", "seconds", 2), ("time / nginx", "time / nginx", 1),
        ("time / moto", "time / moto", 2), ("completion s", "completion", 2), ("server CPU s", "cpu", 2)])], (), rows,
        samples)
