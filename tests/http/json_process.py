"""A process that answers calls: one JSON object a line on its standard input, one answer a line on its output."""
import contextlib
import json
import subprocess
import threading
from pathlib import Path


class JsonProcess:
    """env: the process's whole environment; home: a directory of its own, where its standard error is kept."""

    def __init__(self, command, env, home):
        self.home, self.command = home, [str(word) for word in command]
        self.err_path = Path(home) / "stderr"
        with open(self.err_path, "wb") as err:
            self.proc = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err,
                                         text=True, encoding="utf-8", env=env)
        self.turn = threading.Lock()

    def ask(self, call):
        """Return the answer to a call. Threads take turns. Fail if the process has ended."""
        with self.turn:
            try:
                self.proc.stdin.write(json.dumps(call) + "\n")
                self.proc.stdin.flush()
                line = self.proc.stdout.readline()
            except BrokenPipeError:
                line = ""
        if not line:
            raise AssertionError(f"{' '.join(self.command)} ended with {self.proc.wait()}:\n{self.stderr()[-4000:]}")
        return json.loads(line)

    def stderr(self):
        return self.err_path.read_text("utf-8", "replace")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        with contextlib.suppress(BrokenPipeError):
            self.proc.stdin.close()
        try:
            self.proc.wait(20)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
        self.proc.stdout.close()
