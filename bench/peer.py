"""The common part of client_peer.py, decode_peer.py and parse_peer.py: a Python that keeps running and answers one
request for every line of standard input, in lines of JSON."""

import json
import sys


def missing(packages):
    """Imports the packages, outside all measured times, and returns those that this Python lacks."""
    lacking = []
    for name in packages:
        try:
            __import__(name)
        except ImportError:
            lacking.append(name)
    return lacking


def serve(packages, answer):
    """Prints the missing packages first, then answer(request) for each request."""
    print(json.dumps({"missing": missing(packages), "python": sys.version.split()[0]}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
