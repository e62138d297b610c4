"""What decode_peer.py and parse_peer.py have in common: a Python that runs on, and answers one request for every line
of standard input, in lines of JSON."""

import json
import sys


def missing(packages):
    """Which of the packages this Python lacks; importing them is not part of any time."""
    lacking = []
    for name in packages:
        try:
            __import__(name)
        except ImportError:
            lacking.append(name)
    return lacking


def serve(packages, answer):
    """First says what is missing, then prints answer(request) for each request."""
    print(json.dumps({"missing": missing(packages), "python": sys.version.split()[0]}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
