#!/usr/bin/env python3
"""Checks that the load client notices errors: a bench that counts errors as answers measures nothing.

usage: test_load_client.py PATH_OF_load_client"""

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

SIZE = 1 << 20
CLIENT = None


class Stub:
    """A server that answers every request with answer(first, last), and closes when that returns None."""

    def __init__(self, answer, tls=None):
        self.answer, self.tls = answer, tls
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def close(self):
        """Close the listener when no thread is about to accept from its descriptor, which the next one may get."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        if self.tls:
            connection = self.tls.wrap_socket(connection, server_side=True)
        with connection:
            try:
                while request := connection.recv(4096).decode(errors="replace"):
                    found = re.search(r"\r\nRange: bytes=(\d+)-(\d+)\r\n", request)
                    first, last = (int(found[1]), int(found[2])) if found else (0, SIZE - 1)
                    data = self.answer(first, last)
                    if data is None:
                        return
                    connection.sendall(data)
            except OSError:
                pass


def good(first, last, status="206 Partial Content", length=None, shift=0, body=None):
    n = last - first + 1
    head = "HTTP/1.1 %s\r\nETag: \"x\"\r\ncontent-length: %d\r\nContent-Range: bytes %d-%d/%d\r\n\r\n" % (
        status, n if length is None else length, first + shift, last + shift, SIZE)
    return head.encode() + bytes(n if body is None else body)


def load(answer, *extra, tls=None):
    stub = Stub(answer, tls)
    try:
        run = subprocess.run([CLIENT, "--port", str(stub.port), "--path", "/f", "--file-size", str(SIZE)]
                             + [str(x) for x in extra], capture_output=True, text=True, timeout=60, check=False)
    finally:
        stub.close()
    return run.returncode, json.loads(run.stdout)


class LoadClient(unittest.TestCase):
    def assert_good(self, outcome, requests, nbytes):
        status, result = outcome
        self.assertEqual((status, result["errors"], result["first_error"]), (0, 0, ""))
        self.assertEqual((result["requests"], result["bytes"]), (requests, nbytes))
        self.assertLessEqual(result["p50_us"], result["p99_us"])

    def assert_bad(self, outcome, message):
        status, result = outcome
        self.assertEqual(status, 1)
        self.assertGreater(result["errors"], 0)
        self.assertIn(message, result["first_error"])

    def test_counts_every_answer_in_both_engines(self):
        for threads in (1, 2, 3):
            for size in (1, 4096, 65536):
                with self.subTest(threads=threads, size=size):
                    self.assert_good(load(good, "--range-size", size, "--requests", 60, "--connections", 3,
                                          "--threads", threads), 60, 60 * size)

    def test_copying_reader_counts_the_same(self):
        self.assert_good(load(good, "--range-size", 65536, "--requests", 20, "--copy"), 20, 20 * 65536)

    def test_whole_file_without_a_range(self):
        self.assert_good(load(lambda a, b: good(a, b, "200 OK"), "--requests", 4, "--connections", 2), 4, 4 * SIZE)

    def test_each_slot_once(self):
        for order in ("sequential", "shuffle"):
            seen = []

            def answer(first, last, seen=seen):
                seen.append((first, last))
                return good(first, last)
            self.assert_good(load(answer, "--range-size", 300_000, "--order", order, "--once"), 4, SIZE)
            self.assertEqual(sorted(seen), [(0, 299_999), (300_000, 599_999), (600_000, 899_999), (900_000, SIZE - 1)])

    def test_random_offsets_are_aligned_and_inside(self):
        seen = []

        def answer(first, last):
            seen.append((first, last))
            return good(first, last)
        load(answer, "--range-size", 10_000, "--requests", 200, "--seed", 5)
        self.assertTrue(all(a % 4096 == 0 and b == a + 9_999 and b < SIZE for a, b in seen))
        self.assertGreater(len(set(seen)), 50)

    def test_wrong_answers_are_errors(self):
        cases = {
            "status 404": lambda a, b: good(a, b, "404 Not Found"),
            "status 200": lambda a, b: good(a, b, "200 OK"),
            "Content-Length is not": lambda a, b: good(a, b, length=b - a),
            "Content-Range": lambda a, b: good(a, b, shift=4096),
            "Content-Length missing": lambda a, b: b"HTTP/1.1 206 x\r\nX: y\r\n\r\n",
            "head longer": lambda a, b: b"HTTP/1.1 206 x\r\nX: " + b"y" * 9000,
            "before an answer": lambda a, b: None,
        }
        for message, answer in cases.items():
            for threads in (1, 2):
                with self.subTest(message=message, threads=threads):
                    self.assert_bad(load(answer, "--range-size", 4096, "--requests", 4, "--connections", 2,
                                         "--threads", threads), message)

    def test_a_body_cut_short_is_an_error(self):
        def serve(self, connection):
            with connection:
                request = connection.recv(4096).decode()
                found = re.search(r"bytes=(\d+)-(\d+)", request)
                if found:  # not the connection that only sees the client close
                    connection.sendall(good(int(found[1]), int(found[2]), body=20_000))
        for threads in (1, 2):
            with self.subTest(threads=threads), unittest.mock.patch.object(Stub, "_serve", serve):
                self.assert_bad(load(None, "--range-size", 65536, "--requests", 2, "--connections", 2,
                                     "--threads", threads), "within a body")

    def test_bytes_beyond_the_length_are_an_error(self):
        self.assert_bad(load(lambda a, b: good(a, b, body=b - a + 2), "--range-size", 100, "--requests", 10,
                             "--connections", 1), "too many")

    def test_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            pair = [os.path.join(folder, name) for name in ("cert.pem", "key.pem")]
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                            "-out", pair[0], "-keyout", pair[1], "-subj", "/CN=test"], capture_output=True, check=True)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*pair)
        options = ["--tls", "TLS_AES_128_GCM_SHA256", "--range-size", 300_000, "--connections", 2]
        self.assert_good(load(good, *options, "--requests", 6, tls=context), 6, 6 * 300_000)
        self.assert_bad(load(lambda a, b: good(a, b, "404 Not Found"), *options, "--requests", 1, tls=context),
                        "status 404")
        self.assert_bad(load(lambda a, b: None, *options, "--requests", 1, tls=context), "before an answer")
        self.assert_bad(load(good, *options, "--requests", 1), "TLS handshake failed")

    def test_duration_ends(self):
        status, result = load(good, "--range-size", 4096, "--duration", 0.3)
        self.assertEqual((status, result["errors"]), (0, 0))
        self.assertTrue(0.3 <= result["seconds"] < 5)
        self.assertEqual(result["bytes"], 4096 * result["requests"])

    def test_interval_spaces_requests(self):
        begun = time.monotonic()
        status, result = load(good, "--range-size", 4096, "--requests", 20, "--connections", 2, "--threads", 2,
                              "--interval", 10_000)
        self.assertEqual((status, result["errors"], result["requests"]), (0, 0, 20))
        self.assertGreaterEqual(time.monotonic() - begun, 0.09)  # of 20 requests one connection starts 10 or more
        self.assertTrue(0 < result["pauses"] <= 20)
        self.assertLessEqual(result["late_p50_us"], result["late_p99_us"])

    def test_answers_later_than_the_interval_are_asked_for_at_once(self):
        def slow(first, last):
            time.sleep(0.02)
            return good(first, last)
        _, result = load(slow, "--range-size", 4096, "--requests", 5, "--connections", 1, "--interval", 1000)
        self.assertEqual((result["requests"], result["pauses"]), (5, 0))

    def test_latency_leaves_out_the_pause(self):
        _, result = load(good, "--range-size", 4096, "--requests", 20, "--connections", 1, "--interval", 50_000)
        self.assertLess(result["p50_us"], 50_000)

    def test_cut_leaves_answers_in_flight(self):
        ended = threading.Event()

        def serve(_, connection):
            with connection:
                connection.recv(4096)
                try:
                    connection.sendall(good(0, SIZE - 1, "200 OK", body=0))
                    while not ended.wait(0.01):
                        connection.sendall(b"x")  # never all of it
                except OSError:
                    pass
        for threads in (1, 2):
            with self.subTest(threads=threads), unittest.mock.patch.object(Stub, "_serve", serve):
                status, result = load(None, "--connections", 2, "--threads", threads, "--duration", 0.2, "--cut")
                self.assertEqual((status, result["errors"], result["requests"]), (0, 0, 0))
                self.assertGreater(result["bytes"], 0)
        with unittest.mock.patch.object(Stub, "_serve", serve):
            stub = Stub(None)
            with subprocess.Popen([CLIENT, "--port", str(stub.port), "--path", "/f", "--file-size", str(SIZE),
                                   "--duration", "600", "--cut"], stdout=subprocess.PIPE, text=True) as client:
                time.sleep(0.5)
                client.terminate()
                try:
                    result = json.loads(client.communicate(timeout=20)[0])
                finally:
                    client.kill()
            self.assertEqual((client.returncode, result["errors"]), (0, 0))
            self.assertTrue(0.1 < result["seconds"] < 100)
            stub.close()
        ended.set()

    def test_interval_needs_blocking_threads(self):
        run = subprocess.run([CLIENT, "--port", "1", "--path", "/f", "--file-size", "1", "--connections", "4",
                              "--threads", "2", "--interval", "1000"], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 2)
        self.assertIn("as many --threads as --connections", run.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    CLIENT = sys.argv.pop(1)
    unittest.main()
