"""The processes of an engine's ranks. The import of an engine takes seconds, so one process imports it and forks the
ranks of all runs."""
import json
import os
import sys


def become_rank():
    """Fork the ranks that each line of standard input names, [[output, environment, argument, ...], ...]. Standard
    input is a socket: write the exit statuses of the ranks to it, as JSON. Return in each rank, its variables of the
    environment set (null: unset), its output and errors redirected to files, with its arguments:
    [FOLDER, URL, RANK, TP, STORE, WAY]."""
    with open(0, "w", closefd=False) as statuses:
        for line in sys.stdin:
            ranks = []
            for output, environment, *arguments in json.loads(line):
                rank = os.fork()
                if rank == 0:
                    for name, value in environment.items():
                        if value is None:
                            os.environ.pop(name, None)
                        else:
                            os.environ[name] = value
                    for descriptor, name in ((1, output), (2, output + ".err")):
                        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
                    return arguments
                ranks.append(rank)
            print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]), file=statuses,
                  flush=True)
        os._exit(0)
