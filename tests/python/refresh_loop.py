"""Lets two models of vLLM, of two ranks each, follow a trainer that pushes a step of its model every few seconds.

After each update every parameter of both ranks is of the version that the update named; after one that failed, of the
version before. Progress is on standard error, and figures in JSON are on standard output. `--kill` kills the server,
the trainer and the ranks of one loader at random moments, and starts each again. The exit status is 1 for a wrong byte,
and if a loader does not come to the last step. It needs .venv-engines, which `./test.sh python` makes. By hand:

    .venv/bin/python tests/python/refresh_loop.py --size 500M --every 5 --minutes 10 --kill --seed 7
"""
import argparse
import contextlib
import http.client
import json
import math
import multiprocessing
import os
import random
import re
import select
import signal
import sys
import tempfile
import time
from pathlib import Path

import engines  # which sets the paths of the client and of the HTTP tests
import harness
import torch
import transformers
from refresh_steps import key_of, name_of, number_of
from safetensors.torch import load_file, save_file

import tensord

RUN = Path(__file__).with_name("refresh_loop_run.py")
ID = "run/model"
TP = 2
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
OF_WEIGHTS = re.compile(r' target="/models/run/model/(?:plans|tensors:read)[^"]*".* sent=(\d+)')
UP_TIME = 60  # seconds in which a loader has to come to the last step, and a killed process has to be there again


def say(*what):
    print(f"{time.strftime('%H:%M:%S')}", *what, file=sys.stderr, flush=True)


def write_first_step(folder, nbytes):
    """Write a model of Llama's architecture, of about so many bytes in BF16, whose elements depend on the tensor and on
    their place in it."""
    hidden, vocabulary = (1024, 4096) if nbytes >= 100 << 20 else (128, 512)  # vLLM pads those to multiples of 64
    of_layer = 2 * 16 * hidden * hidden
    config = transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=4 * hidden, num_attention_heads=hidden // 32,
        num_key_value_heads=hidden // 32, vocab_size=vocabulary, tie_word_embeddings=False, dtype="bfloat16",
        num_hidden_layers=max(1, round((nbytes - 4 * hidden * vocabulary) / of_layer)),
        architectures=["LlamaForCausalLM"])
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in transformers.LlamaForCausalLM(config).state_dict().items()}
    config.save_pretrained(folder)
    tensors = {name: torch.frombuffer(bytearray(harness.pattern(2 * shape.numel(), name)), dtype=torch.bfloat16)
               for name, shape in shapes.items()}
    save_file({name: tensor.view(shapes[name]) for name, tensor in tensors.items()}, folder / "model.safetensors",
              {"format": "pt"})


# ---- the trainer, a process of its own


def train(port, folder, every, keep, log, stop):
    """Push steps until the file `stop` is there, after the last one that the server has. Keep the newest `keep`. Write
    a line of JSON for each, with the time at which its push ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first = {name: tensor.view(torch.int16) for name, tensor in load_file(folder / "model.safetensors").items()}
    tensors = {name: torch.empty_like(tensor) for name, tensor in first.items()}
    config = (folder / "config.json").read_text()
    url = f"tensord://127.0.0.1:{port}/{ID}"
    step = last_step(url) + 1
    while not stop.exists():
        began = time.monotonic()
        for name, tensor in first.items():
            torch.bitwise_xor(tensor, key_of(step), out=tensors[name])
        pushing = time.monotonic()
        made = {name: tensor.view(torch.bfloat16) for name, tensor in tensors.items()}
        tensord.save_model(made, url, config=config, revision=name_of(step), progress=False)
        done = time.monotonic()
        with open(log, "a") as lines:
            print(json.dumps({"step": step, "pushed": done, "seconds": done - pushing}), file=lines)
        remove(port, step - keep)
        step += 1
        while time.monotonic() < began + every and not stop.exists():
            time.sleep(0.05)


def last_step(url):
    try:
        return max((row["number"] or 0 for row in tensord.connect(url).model().versions()), default=0)
    except tensord.NotFoundError:
        return 0


def remove(port, step):
    """Remove the branch of a step, and so its commit. If the server dies then, the branch stays."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("DELETE", f"/api/models/{ID}/branch/{name_of(step)}")
        connection.getresponse().read()
        connection.close()


# ---- the other processes, as this one sees them


class Lines:
    """The lines of JSON that a process appends to a file."""

    def __init__(self, path):
        self.path, self.offset = path, 0

    def read(self):
        """Return the objects of the lines that have been added."""
        if not self.path.exists():
            return []
        data = self.path.read_bytes()[self.offset:]
        whole = data[:data.rfind(b"\n") + 1]
        self.offset += len(whole)
        return [json.loads(line) for line in whole.splitlines() if line.startswith(b"{")]


class Loader:
    """A model of vLLM in TP ranks. `updates`: lists of what its ranks said of an update each."""

    def __init__(self, number, first, url, place, stop):
        self.name, self.first, self.url, self.stop = f"loader {number}", first, url, stop
        self.folder = place / f"loader-{number}"
        self.folder.mkdir()
        self.engine = engines.Engine(RUN, self.folder)
        self.reached = []      # (time, step): when all ranks had the step
        self.errors, self.nbytes, self.wrong = {}, 0, []  # kinds of errors with how many there were
        self.start()

    def start(self):
        for rank in range(TP):  # what its ranks said before, if they were killed
            (self.folder / f"rank-{rank}").unlink(missing_ok=True)
        self.outputs = [Lines(path) for path in self.engine.begin(self.first, self.url, TP, str(self.stop))]
        self.pids, self.said = {}, [[] for _ in range(TP)]

    def is_up(self):
        return len(self.pids) == TP

    def step(self):
        return self.reached[-1][1] if self.reached else 0

    def look(self):
        """Read what the ranks have said since the last look."""
        for rank, lines in enumerate(self.outputs):
            for line in lines.read():
                if "pid" in line:
                    self.pids[rank], self.bytes = line["pid"], line["bytes"]
                elif "done" in line:
                    self.said[rank].append(line)
                    self.wrong += [f"{self.name}, rank {rank}, {line}"] if line["wrong"] else []
        while all(self.said):
            both = [said.pop(0) for said in self.said]
            versions, errors = {line["version"] for line in both}, [line["error"] for line in both if line["error"]]
            if len(versions) > 1 or len(errors) not in (0, TP):
                self.wrong.append(f"{self.name}: the ranks differ: {both}")
            elif errors:
                kind = next((text for text in errors if not text.startswith("TensordError: rank ")), errors[0])
                kind = kind.partition(":")[0]
                self.errors[kind] = self.errors.get(kind, 0) + 1
                say(self.name, "stays at step", self.step(), errors[0][:600])
            else:
                self.reached.append((max(line["done"] for line in both), number_of(both[0]["version"])))
                self.nbytes += TP * self.bytes

    def ended(self):
        """Return whether all ranks have ended."""
        return bool(select.select([self.engine.statuses], [], [], 0)[0])

    def check_runs(self):
        if self.ended():
            raise AssertionError(f"{self.name} ended with {self.engine.wait()}: "
                                 + Path(f"{self.outputs[0].path}.err").read_text()[-3000:])

    def kill(self):
        for pid in self.pids.values():
            os.kill(pid, signal.SIGKILL)
        self.engine.wait()
        self.look()

    def resources(self):
        """Return the bytes of memory and the descriptors of its ranks together."""
        return [sum(values) for values in zip(*map(resources_of, self.pids.values()), strict=True)]


def resources_of(pid):
    return harness.anon_bytes_of(pid), len(os.listdir(f"/proc/{pid}/fd"))


def disk_below(folder):
    """Return the bytes that files take on the disk, each counted once."""
    found = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            found[status.st_ino] = 512 * status.st_blocks
    return sum(found.values())


class Loop:
    """All processes, and what was seen of them."""

    def __init__(self, args, place):
        self.args, self.place, self.random = args, place, random.Random(args.seed)
        self.root, self.first, self.stop = place / "root", place / "first", place / "stop"
        self.trainer_stop, self.pushed = place / "trainer-stop", []
        self.root.mkdir()
        write_first_step(self.first, args.size)
        self.sent, self.kills, self.samples = 0, {}, []
        self.port = None
        self.server = self.serve()
        self.port = self.server.port
        self.trainer_log = Lines(place / "trainer")
        self.trainer = self.start_trainer()
        self.loaders = []

    def serve(self):
        listen = [] if self.port is None else ["--listen", f"127.0.0.1:{self.port}"]
        return harness.Server(self.root, "--publish", "local", "--keep-commits", self.args.keep_commits,
                              "--upload-expires", self.args.upload_expires, *listen, binary=harness.release_binary())

    def start_trainer(self):
        given = (self.port, self.first, self.args.every, self.args.keep, self.trainer_log.path, self.trainer_stop)
        trainer = multiprocessing.get_context("spawn").Process(target=train, args=given)
        trainer.start()
        return trainer

    def run(self):
        url = f"tensord://127.0.0.1:{self.port}/{ID}"
        for number in (1, 2):
            self.loaders.append(Loader(number, self.first, url, self.place, self.stop))
        self.wait(lambda: all(loader.step() for loader in self.loaders), 120, "the first updates")
        end = time.monotonic() + 60 * self.args.minutes
        sample, kill = 0.0, self.next_kill()
        while time.monotonic() < end:
            self.look()
            self.check_all_run()
            if time.monotonic() > sample:
                self.sample()
                sample = time.monotonic() + 2
            if self.args.kill and time.monotonic() > kill:
                self.kill_one()
                kill = self.next_kill()
            time.sleep(0.02)
        self.trainer_stop.touch()
        self.trainer.join(UP_TIME)
        last = last_step(url)
        self.wait(lambda: all(loader.step() == last for loader in self.loaders), UP_TIME, f"step {last} in all loaders")
        self.sample()
        self.stop.touch()
        self.wait(lambda: all(loader.ended() for loader in self.loaders), UP_TIME, "the end of the loaders", False)
        self.count_sent()
        self.server.stop()

    def look(self):
        for loader in self.loaders:
            loader.look()
        for line in self.trainer_log.read():
            self.pushed.append((line["step"], line["pushed"], line["seconds"]))
            if line["step"] % max(1, int(10 / self.args.every)) == 0:
                say("step", line["step"], "is pushed; loaders have", *(loader.step() for loader in self.loaders))

    def check_all_run(self):
        """Fail if a process has ended that nothing here has ended."""
        for loader in self.loaders:
            loader.check_runs()
        if self.trainer.exitcode is not None and not self.trainer_stop.exists():
            raise AssertionError(f"the trainer ended with {self.trainer.exitcode}")

    def wait(self, test, seconds, what, running=True):
        """Wait until test() is true. `running`: fail if a process ends."""
        end = time.monotonic() + seconds
        while not test():
            self.look()
            if running:
                self.check_all_run()
            if time.monotonic() > end:
                steps = [loader.step() for loader in self.loaders]
                raise AssertionError(f"waited {seconds} s for {what}; loaders are at {steps}; the server said "
                                     + self.server.stderr()[-2000:])
            time.sleep(0.02)

    def sample(self):
        if not all(loader.is_up() for loader in self.loaders):
            return
        loaders = [sum(values) for values in zip(*(loader.resources() for loader in self.loaders), strict=True)]
        memory, descriptors = resources_of(self.server.pid)
        self.samples.append({"server_memory": memory, "server_descriptors": descriptors, "loader_memory": loaders[0],
                             "loader_descriptors": loaders[1], "disk": disk_below(self.root)})

    def next_kill(self):
        return time.monotonic() + self.args.every * self.random.uniform(0.5, 3)

    def kill_one(self):
        victim = self.random.choice(["server", "trainer", *(loader for loader in self.loaders if loader.is_up())])
        name = victim if isinstance(victim, str) else victim.name
        say("kill", name)
        self.kills[name] = self.kills.get(name, 0) + 1
        if victim == "server":
            self.server.kill()
            self.count_sent(False)
            time.sleep(self.random.uniform(0, 1))
            self.server = self.serve()
        elif victim == "trainer":
            self.trainer.kill()
            self.trainer.join()
            self.trainer = self.start_trainer()
        else:
            victim.kill()
            victim.start()

    def count_sent(self, alive=True):
        """Add what the server has sent of weights; each process of it begins a new log."""
        log = self.server.whole_log() if alive else self.server.log()
        self.sent += sum(map(int, OF_WEIGHTS.findall(log)))

    def result(self):
        delays = sorted(found for step, pushed, _ in self.pushed for loader in self.loaders
                        if (found := self.delay(loader, step, pushed)) is not None)
        pushes = sorted(seconds for _, _, seconds in self.pushed)
        nbytes = sum(loader.nbytes for loader in self.loaders)
        return {"seed": self.args.seed, "model_bytes": (self.first / "model.safetensors").stat().st_size,
                "steps": len(self.pushed), "updates": [len(loader.reached) for loader in self.loaders],
                "failed_updates": [loader.errors for loader in self.loaders], "kills": self.kills,
                "push_p50": share(pushes, 0.5), "push_p99": share(pushes, 0.99),
                "delay_p50": share(delays, 0.5), "delay_p99": share(delays, 0.99),
                "sent_of_parameters": round(self.sent / nbytes, 4) if nbytes else None,
                **{name: {"first": self.samples[0][name], "last": self.samples[-1][name],
                          "most": max(sample[name] for sample in self.samples)}
                   for name in (self.samples[0] if self.samples else ())},
                "wrong": [text for loader in self.loaders for text in loader.wrong]}

    @staticmethod
    def delay(loader, step, pushed):
        """Return the seconds from the end of a push until all parameters of a loader were of its step, or of a later
        one; None: it never had it."""
        return next((max(0.0, done - pushed) for done, reached in loader.reached if reached >= step), None)

    def close(self):
        """End all processes."""
        for loader in self.loaders:
            loader.engine.__exit__()
        self.trainer.kill()
        self.server.kill()


def share(values, part):
    """Return the value that a part of sorted values does not exceed, in milliseconds' precision; None: no values."""
    return round(values[max(0, math.ceil(part * len(values)) - 1)], 3) if values else None


def size_of(text):
    return int(float(text.rstrip("KMG")) * UNITS.get(text[-1], 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=size_of, default="500M", help="bytes of the model: 500M")
    parser.add_argument("--every", type=float, default=5, help="seconds from a push to the next one")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--keep", type=int, default=3, help="how many steps the trainer leaves on the server")
    parser.add_argument("--keep-commits", default="10", help="of the server, in seconds")
    parser.add_argument("--upload-expires", default="20", help="of the server, in seconds")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    say("seed", args.seed)
    with tempfile.TemporaryDirectory(prefix="tensord-refresh-") as place:
        loop = Loop(args, Path(place))
        failure = ""
        try:
            loop.run()
        except AssertionError as error:
            failure = str(error)
        finally:
            loop.close()
        result = loop.result()
    print(json.dumps({**result, "failure": failure}, indent=1))
    sys.exit(1 if result["wrong"] or failure else 0)


if __name__ == "__main__":
    main()
