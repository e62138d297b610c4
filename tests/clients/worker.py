"""A process with one client library: python worker.py MODULE. Reads calls of the module's functions from standard
input, one JSON object per line, and writes each result as such a line to standard output. Output of libraries goes to
standard error."""
import importlib
import json
import os
import sys
import traceback


def answer_of(module, ask):
    try:
        return {"result": getattr(module, ask["call"])(**ask["args"])}
    except Exception as e:  # noqa: BLE001  the caller gets every exception
        return {"error": [c.__name__ for c in type(e).__mro__], "text": str(e), "trace": traceback.format_exc()}


def main():
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    module = importlib.import_module(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(answer_of(module, json.loads(line))), file=answers, flush=True)


main()
