"""Starts Python programs in processes that have torch already: its import takes seconds. One process, the forkserver,
imports it when the first program starts, and forks a process for each:

    subprocess.run([*warm_python.command(), "script.py", "argument"], env=..., cwd=...)
    subprocess.run([*warm_python.command(), "-"], input="print('a script')")

This command sends its arguments, environment, working directory and descriptors 0 to 2 to the forkserver. It waits for
the forked process and ends as that one does: with its exit status, or by its signal. If the command is killed, the
forkserver kills the forked process and its children. The forkserver ends with the run of pytest. What it imports reads
no variable of the environment that tests set, but OMP_NUM_THREADS, which is 1.
"""
import json
import os
import signal
import socket
import sys

ADDRESS = "TENSORD_FORKSERVER"  # the variable with the path of the forkserver's socket
MODULES = ("torch.distributed.checkpoint", "torch.distributed.fsdp", "torch._dynamo")


def begin(config):
    """Start the forkserver of a run of pytest. The processes of pytest-xdist share it."""
    import subprocess
    import tempfile

    if ADDRESS in os.environ:
        return
    folder = tempfile.TemporaryDirectory(prefix="td-")
    os.environ[ADDRESS] = f"{folder.name}/forkserver"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(os.environ[ADDRESS])
        listener.listen(128)
        words = [sys.executable, __file__, "serve", str(listener.fileno())]
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
        server = subprocess.Popen(words, stdin=subprocess.PIPE, env=env, pass_fds=[listener.fileno()],
                                  start_new_session=True)

    def end():
        server.stdin.close()
        server.wait()
        folder.cleanup()
        del os.environ[ADDRESS]

    config.add_cleanup(end)


def command():
    """Return the words that stand for the interpreter's name in the command line of a program; without a forkserver,
    this name."""
    if ADDRESS not in os.environ:
        return [sys.executable]
    return [sys.executable, "-I", "-S", __file__, "run", os.environ[ADDRESS]]


def run(address, *arguments):
    """Have the forkserver run a program, and end as it does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(address)
        message = json.dumps([arguments, dict(os.environ), os.getcwd()])
        socket.send_fds(server, [message.encode()], [0, 1, 2])
        status = int(server.recv(16) or sys.exit("the forkserver has ended"))
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def serve(listener):
    """Fork a process for each command, until standard input ends. Return in each of these processes what its command
    sent, with the command's descriptors."""
    import contextlib
    import gc
    import importlib
    import select

    gc.disable()
    running = {}    # the descriptor of a forked process -> its number, and the connection of its command
    while True:
        commands = {connection: number for number, connection in running.values()}
        for one in select.select([sys.stdin, listener, *commands, *running], [], [])[0]:
            if one is sys.stdin:
                for number in commands.values():
                    os.killpg(number, signal.SIGKILL)
                os._exit(0)
            elif one in commands:   # the command has ended
                os.killpg(commands[one], signal.SIGKILL)
            elif one in running:
                number, connection = running.pop(one)
                status = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
                os.close(one)
                with contextlib.suppress(OSError), connection:
                    connection.send(b"%d" % status)
            else:
                connection = listener.accept()[0]
                message, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
                for name in MODULES:
                    importlib.import_module(name)
                assert len(os.listdir("/proc/self/task")) == 1, "forked processes would lack a thread"
                gc.freeze()     # forked processes share the memory of objects that no collection looks at
                number = os.fork()
                os.setpgid(number, number)      # both processes do it: each needs it done before it continues
                if number == 0:
                    for at, descriptor in enumerate(descriptors):
                        os.dup2(descriptor, at)
                    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
                    gc.enable()
                    return json.loads(message)
                for descriptor in descriptors:
                    os.close(descriptor)
                running[os.pidfd_open(number)] = number, connection


def become(arguments, environment, folder):
    """Run a program in this process, as the interpreter runs it, and end the process."""
    import atexit
    import tempfile
    import threading
    import traceback
    import types

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.argv = arguments
    others = [folder for folder in environment.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[:1] = [os.path.dirname(os.path.abspath(arguments[0])), *others]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    status = 0
    try:
        if arguments[0] == "-":
            script = sys.stdin.read()
        else:
            main.__file__ = arguments[0]
            with open(arguments[0], encoding="utf-8") as file:
                script = file.read()
        exec(compile(script, arguments[0], "exec"), main.__dict__)
    except SystemExit as end:
        status = end.code or 0
        if not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)    # an interpreter that ends frees all objects of all modules one by one


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(*sys.argv[2:])
    become(*serve(socket.socket(fileno=int(sys.argv[2]))))
