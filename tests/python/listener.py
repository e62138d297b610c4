"""A server for tests, of a few bytes that a test chooses."""
import contextlib
import socket
import threading


def read_head(connection):
    """Reads the head of a request; b"": the connection has ended before its end."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        if not byte:
            return b""
        head += byte
    return head


class Listener:
    """Accepts connections and serves each by `handle(socket)` in a thread. A context manager."""

    def __init__(self, host="127.0.0.1"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listening = socket.create_server((host, 0), family=family, backlog=64)
        self.port = self.listening.getsockname()[1]
        self.accepted, self.open = 0, []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listening.accept()[0]
                self.accepted += 1
                self.open.append(client)
                threading.Thread(target=self.serve, args=(client, self.accepted), daemon=True).start()

    def serve(self, client, number):
        with contextlib.suppress(OSError), client:
            self.handle(client, number)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        for client in self.open:
            client.close()
