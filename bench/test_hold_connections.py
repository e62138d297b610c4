#!/usr/bin/env python3
"""Checks that hold_connections notices errors, and that it holds its connections until its standard input ends.

usage: test_hold_connections.py PATH_OF_hold_connections"""

import json
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

from test_load_client import SIZE, Stub, good

HOLDER = None


class Held:
    """A run of the holder against a stub."""

    def __init__(self, answer, connections=3, range_bytes=4096):
        self.stub = Stub(answer)
        self.process = subprocess.Popen(
            [HOLDER, str(self.stub.port), "/f", str(SIZE), str(range_bytes), str(connections)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self):
        """Ends the standard input. Returns (status, remaining output, standard error)."""
        out, err = self.process.communicate(timeout=60)
        self.stub.close()
        return self.process.returncode, out, err


class HoldConnections(unittest.TestCase):
    def test_each_connection_asks_for_one_range_and_stays(self):
        seen = []

        def answer(first, last):
            seen.append((first, last))
            return good(first, last)
        held = Held(answer, 200)
        opened = json.loads(held.process.stdout.readline())
        self.assertEqual(opened["connections"], 200)
        self.assertEqual(len(seen), 200)
        self.assertTrue(all(a % 4096 == 0 and b == a + 4095 and b < SIZE for a, b in seen))
        self.assertGreater(len(set(seen)), 100)
        self.assertEqual(held.end(), (0, '{"ended":0}\n', ""))

    def test_an_answer_that_comes_in_parts_is_awaited(self):
        sent = []

        def serve(_, connection):
            with connection:
                connection.recv(4096)
                data = good(0, 4095)
                for at in range(0, len(data), 1000):
                    sent.append(at)
                    connection.sendall(data[at:at + 1000])
                    time.sleep(0.01)
                connection.recv(1)
        with unittest.mock.patch.object(Stub, "_serve", serve):
            held = Held(None, 1)  # the first connection asks for the first range
            self.assertEqual(json.loads(held.process.stdout.readline())["connections"], 1)
            self.assertEqual(sent, [0, 1000, 2000, 3000, 4000])
            self.assertEqual(held.end(), (0, '{"ended":0}\n', ""))

    def test_wrong_answers_are_errors(self):
        cases = {
            "HTTP/1.1 404 Not Found instead of 206": lambda a, b: good(a, b, "404 Not Found"),
            "Content-Length or Content-Range": lambda a, b: good(a, b, length=b - a),
            "Content-Range missing or wrong": lambda a, b: good(a, b, shift=4096),
            "1 bytes too many": lambda a, b: good(a, b, body=b - a + 2),
            "closed before its answer": lambda a, b: None,
        }
        for message, answer in cases.items():
            with self.subTest(message=message):
                status, out, err = Held(answer, 1).end()
                self.assertEqual((status, out), (1, ""))
                self.assertIn(message, err)

    def test_connections_that_the_server_ends_are_counted(self):
        ended = threading.Event()

        def serve(_, connection):
            with connection:
                connection.recv(4096)
                connection.sendall(good(0, 4095))
            ended.set()
        with unittest.mock.patch.object(Stub, "_serve", serve):
            held = Held(None, 1)
            held.process.stdout.readline()
            self.assertTrue(ended.wait(10))
            time.sleep(0.1)  # the end is on the way
            self.assertEqual(held.end(), (0, '{"ended":1}\n', ""))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    HOLDER = sys.argv.pop(1)
    unittest.main()
