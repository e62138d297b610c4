"""The command of warm_python.py behaves as an interpreter of its own: tests trust the ends that it passes on."""
import os
import signal
import subprocess
import sys
import time

import pytest
import warm_python


def run(words, script, *arguments, **options):
    return subprocess.run([*words, "-", *arguments], input=script, text=True, capture_output=True, timeout=120,
                          check=False, **options)


@pytest.mark.parametrize("script", [
    "print(1)", "import sys; sys.exit(3)", "import sys; sys.exit('why')", "1 / 0",
    "import atexit; atexit.register(print, 'last'); print('first')",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "import os; os.abort()", "import os; os._exit(9)",
    "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
])
def test_it_ends_as_the_interpreter_does(script):
    want, done = run([sys.executable], script), run(warm_python.command(), script)
    assert (done.returncode, done.stdout) == (want.returncode, want.stdout)
    assert done.stderr.splitlines()[-1:] == want.stderr.splitlines()[-1:]


def test_what_it_is_given(tmp_path):
    code = "import os, sys; print(sys.argv, os.getcwd(), os.environ, sep='\\n')"
    options = {"cwd": tmp_path, "env": {"ONLY": "this"}}
    want = run([sys.executable], code, "a b", "", **options)
    assert "'a b', ''" in want.stdout and "'ONLY': 'this'" in want.stdout and str(tmp_path) in want.stdout
    assert run(warm_python.command(), code, "a b", "", **options).stdout == want.stdout


def test_torch_is_there():
    code = "import sys; print('torch' in sys.modules, 'transformers' in sys.modules)"
    assert run(warm_python.command(), code).stdout == "True False\n"


def test_a_killed_command_ends_its_processes(tmp_path):
    code = "import os, time\nchild = os.fork() or os.getpid()\nos.write(1, b'%d\\n' % child)\ntime.sleep(600)\n"
    script = tmp_path / "script.py"
    script.write_text(code)
    command = subprocess.Popen([*warm_python.command(), script], stdout=subprocess.PIPE, text=True)
    numbers = {int(command.stdout.readline()) for _ in range(2)}
    command.send_signal(signal.SIGKILL)
    command.wait(60)
    until = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{n}") for n in numbers):
        assert time.monotonic() < until, numbers
        time.sleep(0.01)
    command.stdout.close()
