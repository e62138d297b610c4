"""A directory into a new model on one tensord: `tensord push` beside `aws s3 cp`, `rclone copy` and `hf upload`, each
with what it does by default at the start, and eight transfers at once where that can be set. One directory of 1,200
small files, and one with a large file."""

import os
import random
import re
import resource
import shutil
import subprocess
import time

import servers
from measure import BenchError, at_least, at_most, by_turns, bytes_text, result, rows_table, summarize
from works.uploads import wait_idle

SMALL_FILES, AT_ONCE = 1200, 8


def write_small(directory, count):
    """Writes small files into some folders. Returns their bytes."""
    numbers, total = random.Random(1), 0
    for i in range(count):
        folder = os.path.join(directory, "d%d" % (i % 12))
        os.makedirs(folder, exist_ok=True)
        data = numbers.randbytes(2000 + numbers.randrange(8000))
        total += len(data)
        with open(os.path.join(folder, "%d.bin" % i), "wb") as f:
            f.write(data)
    return total


def write_large(directory, size):
    os.makedirs(directory)
    with open(os.path.join(directory, "large.bin"), "wb") as f:
        for at in range(0, size, 1 << 20):
            f.write(os.urandom(min(1 << 20, size - at)))
    return size


def s3_url(server):
    found = re.search(r"listening for S3 clients on (https?://[\d.]+:\d+)", server.log_text())
    if not found:
        raise BenchError("%s has no port for clients of S3" % server.name)
    return found.group(1)


def commands(bench):
    """Returns {way: function(server, directory, model) -> (command, environment)} of the clients that are installed."""
    def push(server, directory, model):
        return [bench.options.tensord, "push", directory, server.url(), "bench/" + model, "--quiet",
                *(["--cacert", ca] if ca else [])], {}

    def aws(server, directory, model):
        return ["aws", "s3", "cp", "--recursive", "--only-show-errors", directory, "s3://bench/" + model,
                "--endpoint-url", s3_url(server)], {
                    "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1",
                    "AWS_EC2_METADATA_DISABLED": "true", **({"AWS_CA_BUNDLE": ca} if ca else {})}

    def rclone(server, directory, model):
        return ["rclone", "copy", directory, ":s3:bench/" + model, "--config", "", "--transfers", str(AT_ONCE),
                "--s3-provider", "Other", "--s3-endpoint", s3_url(server),
                "--s3-access-key-id", "any", "--s3-secret-access-key", "any", "--s3-no-check-bucket",
                *(["--ca-cert", ca] if ca else [])], {}

    def hub(server, directory, model):
        return [hf, "upload", "bench/" + model, directory, ".", "--quiet"], {
            "HF_ENDPOINT": server.url(), "HF_TOKEN": "any", "HF_HOME": os.path.join(bench.work, "hf"),
            **({"SSL_CERT_FILE": ca} if ca else {})}

    ca = bench.chosen_pair and bench.chosen_pair.authority
    hf = os.path.join(os.path.dirname(bench.options.python), "hf")
    ways = {"tensord push": push}
    if shutil.which("aws"):
        ways["aws s3 cp"] = aws
    if shutil.which("rclone"):
        ways["rclone copy"] = rclone
    if os.access(hf, os.X_OK):
        ways["hf upload"] = hub
    return ways


def send(server, way, command, directory, total):
    """Sends the directory. Returns seconds, and the processor time of the client and of the server."""
    model = re.sub(r"\W", "-", way)
    arguments, more = command(server, directory, model)
    environment = {**{name: value for name, value in os.environ.items() if not name.startswith("AWS_")}, **more}
    before, client, begin = server.cpu_s(), resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    run = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode != 0:
        raise BenchError("%s: exit status %d: %s" % (way, run.returncode, run.stderr.strip()[-300:]))
    wait_idle(server)
    cpu = server.cpu_s() - before
    status, _, listed = server.get("/api/models/bench/%s/tree/main?recursive=true&limit=10000" % model)
    found = sum(int(size) for size in re.findall(rb'"size":\s*(\d+)', re.sub(rb'"lfs":\s*\{[^}]*\}', b"", listed)))
    if status != 200 or found != total:
        raise BenchError("%s: the server shows %d bytes, not %d" % (way, found, total))
    server.get("/models/bench/" + model, method="DELETE")
    own = after.ru_utime + after.ru_stime - client.ru_utime - client.ru_stime
    return {"seconds": seconds, "rate": total / seconds, "client": own, "server cpu": cpu, "cpu": own + cpu}


def run(bench):
    size = bench.options.size // 4
    root, small, large = (os.path.join(bench.directory, "pushes-" + name) for name in ("root", "small", "large"))
    for directory in (root, small, large):
        shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(root)
    count = SMALL_FILES if not bench.quick else 100
    totals = {"%d small files" % count: (small, write_small(small, count)),
              "one file of " + bytes_text(size): (large, write_large(large, size))}
    ways = commands(bench)
    server = bench.tensord(root=root, pair=bench.chosen_pair,
                           options=["--publish", "local", "--keep-commits", "0", "--s3-listen", "127.0.0.1:0"])
    with bench.started([server]):
        cells = {(name,): {way: lambda _, way=way, command=command, directory=directory, total=total:
                           send(server, way, command, directory, total) for way, command in ways.items()}
                 for name, (directory, total) in totals.items()}
        samples = by_turns(cells, bench.options.rounds, not bench.quick, "pushes")
    for directory in (root, small, large):
        shutil.rmtree(directory, ignore_errors=True)
    rows = summarize(samples, ("what",), {"rate": "rate", "cpu": "cpu"}, label="client program")
    targets = []
    for row in rows:
        for other in ways if row["client program"] == "tensord push" else ():
            if other != "tensord push":
                targets += [at_least("%s: rate / that of %s" % (row["what"], other), row["rate / " + other], 1.5),
                            at_most("%s: CPU / that of %s" % (row["what"], other), row["cpu / " + other], 1.0)]
    about = [bench.transport,
             "each run makes a new model; %d rounds by turns; CPU is of client and server together"
             % bench.options.rounds]
    return result("Pushes beside other clients", about, [rows_table(rows, [
        ("what", "what"), ("client", "client program"), ("seconds", "seconds", 2), ("MB/s", "rate", 1, 1e-6),
        ("client CPU s", "client", 2), ("server CPU s", "server cpu", 2)])], targets, rows, samples)
