"""verify=True: the bytes that arrive are compared with the server's SHA-256 of each tensor."""
import hashlib
import re
import socket
import threading

import numpy as np
import pytest
import torch
from conftest import bytes_of, url_of
from safetensors.torch import save_file
from test_loading import equal, write_sharded

import tensord
from tensord import errors
from tensord.tensors import manifest, rank_file


def bytes_of_tensor(t):
    return t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.fixture
def model(serve):
    """Two files, with a tensor that is read in several ranges by several connections, and an empty one."""
    tensors = write_sharded(serve.root)
    server = serve(hash_threads=1)
    return tensors, server


def test_every_load_with_verify(model):
    tensors, server = model
    url = url_of(server, "org/model")
    assert equal(tensord.load_file(url, verify=True), tensors)
    assert equal(tensord.state_dict(url, match="a.*", verify=True), {n: tensors[n] for n in ("a.weight", "a.bias")})
    assert equal(tensord.state_dict(url, verify=True, range_bytes=100_000, connections=3), tensors)
    arrays = tensord.state_dict(url, match="a.*", framework="np", verify=True)
    assert np.array_equal(arrays["a.bias"], tensors["a.bias"].numpy())
    target = {n: torch.zeros_like(t) for n, t in tensors.items()}
    assert tensord.load_into(target, url, verify=True) == ([], [])
    assert equal(target, tensors)
    ranks = [tensord.load_rank(url, "fsdp", 2, r, verify=True) for r in range(2)]
    assert torch.equal(torch.cat([r["a.weight"] for r in ranks]), tensors["a.weight"])


def test_a_server_that_hashes_its_files_meanwhile(serve, monkeypatch):
    """Tags of manifests and of ranks' files change once, when the files of a model are hashed: this may happen while
    the server hashes the tensors, and is no change of the model."""
    tensors = write_sharded(serve.root)
    for module in (manifest, rank_file):
        def ask(*args, ask=module.ask_hashed):
            server.wait_hashed()
            return ask(*args)

        monkeypatch.setattr(module, "ask_hashed", ask)
    for load in (lambda url: tensord.load_rank(url, "fsdp", 2, 0, verify=True)["a.weight"],
                 lambda url: tensord.load_file(url, verify=True)["a.weight"]):
        server = serve(hash_threads=1)
        loaded = load(url_of(server, "org/model"))
        assert torch.equal(loaded, tensors["a.weight"][:len(loaded)])


def test_tensors_that_are_converted(model):
    """Other types, and targets with gaps: what arrived is checked before it is converted."""
    tensors, server = model
    url = url_of(server, "org/model")
    halved = tensord.state_dict(url, dtype=torch.float16, verify=True, ring_bytes=1 << 20)
    assert torch.equal(halved["b.weight"], tensors["b.weight"].half())
    wide = torch.zeros(300, 1400)
    tensord.load_into({"a.weight": wide[:, ::2]}, url, strict=False, verify=True)
    assert torch.equal(wide[:, ::2], tensors["a.weight"]) and not wide[:, 1::2].any()


def test_digests_are_hashlibs(model):
    tensors, server = model
    with tensord.connect(url_of(server, "org/model")) as client:
        want = {n: hashlib.sha256(bytes_of_tensor(t)).hexdigest() for n, t in tensors.items()}
        assert client.model().digests() == want
        assert client.model().digests("a.*") == {n: d for n, d in want.items() if n.startswith("a.")}


def test_verify_false_is_the_option_of_tls(model):
    """False keeps its meaning: any certificate is accepted, and it makes sense with https:// alone."""
    _, server = model
    with pytest.raises(errors.TensordError, match="verify="):
        tensord.load_file(url_of(server, "org/model"), verify=False)


class Corrupter:
    """A proxy that changes one byte of each answer that is longer than a limit."""

    def __init__(self, port, limit):
        self.port_of_server, self.limit, self.changed = port, limit, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port_of_server))
            threading.Thread(target=self._copy, args=(client, server), daemon=True).start()
            threading.Thread(target=self._corrupt, args=(server, client), daemon=True).start()

    @staticmethod
    def _copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _corrupt(self, source, target):
        head, left = b"", 0
        try:
            while data := source.recv(65536):
                if left <= 0:
                    head += data
                    if b"\r\n\r\n" not in head:
                        continue
                    fields, _, body = head.partition(b"\r\n\r\n")
                    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", fields)
                    total = int(length[1]) if length else 0
                    is_json = b"application/json" in fields
                    left, head, data = total - len(body), b"", fields + b"\r\n\r\n" + body
                    if total > self.limit and not is_json:
                        self.changed += 1
                        if body:
                            data = data[:-1] + bytes([data[-1] ^ 1])
                        else:
                            target.sendall(data)
                            data = source.recv(65536)
                            left -= len(data)
                            data = bytes([data[0] ^ 1]) + data[1:]
                else:
                    left -= len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


@pytest.mark.parametrize("how", ["load_file", "load_into", "converted", "rank", "numpy"])
def test_bytes_that_were_changed_on_the_way(model, how):
    """A proxy flips one bit of each body: verify=True raises, the name of a tensor is in the message."""
    _, server = model
    proxy = Corrupter(server.port, 100)
    url = f"tensord://127.0.0.1:{proxy.port}/org/model"
    loads = {
        "load_file": lambda **o: tensord.load_file(url, **o),
        "load_into": lambda **o: tensord.load_into({"a.weight": torch.zeros(300, 700)}, url, strict=False, **o),
        "converted": lambda **o: tensord.state_dict(url, match="b.w*", dtype=torch.float32, **o),
        "rank": lambda **o: tensord.load_rank(url, "none", 1, 0, **o),
        "numpy": lambda **o: tensord.state_dict(url, match="a.*", framework="np", **o),
    }
    if how != "rank":  # its header is changed as well
        loads[how]()
    with pytest.raises((errors.VerifyError, errors.ProtocolError) if how == "rank" else errors.VerifyError,
                       match="SHA-256|header"):
        loads[how](verify=True)
    assert proxy.changed > 0
    proxy.listener.close()


def test_a_server_that_hashes_nothing(serve):
    tensors = write_sharded(serve.root)
    server = serve(hash_threads=0)
    url = url_of(server, "org/model")
    with pytest.raises(errors.AnswerError, match="--hash-threads"):
        tensord.load_file(url, verify=True)
    assert equal(tensord.load_file(url), tensors)


# ------------------------------------------------------------------------------------------------ since a version

@pytest.fixture
def run(serve):
    """Three steps: of the second, one tensor of three differs and one is new; the third is the second."""
    def step(number):
        g = torch.Generator().manual_seed(2)
        tensors = {n: torch.randn(500, 300, generator=g) for n in ("frozen.a", "frozen.b", "w")}
        tensors["w"] = tensors["w"] + min(number, 2)
        return tensors | ({} if number == 1 else {"new": torch.arange(10)})

    for number in (1, 2, 3):
        folder = serve.root / "run" / f"step-{number}"
        folder.mkdir(parents=True)
        save_file(step(number), folder / "model.safetensors")
    return step, serve(hash_threads=1)


def test_changes(run):
    step, server = run
    with tensord.connect(url_of(server, "run?version=step-2")) as client:
        found = client.model().changes("step-1")
        assert [row["name"] for row in found["changed"]] == ["w"] and [r["name"] for r in found["added"]] == ["new"]
        assert found["removed"] == [] and (found["same"], found["same_bytes"]) == (2, 2 * 500 * 300 * 4)
        assert found["changed"][0]["sha256"] == hashlib.sha256(bytes_of_tensor(step(2)["w"])).hexdigest()
        assert client.model().changes(1) == found
        assert client.model().at("step-1").changes("step-2")["removed"] == ["new"]
        with pytest.raises(errors.NotFoundError, match="step-9"):
            client.model().changes("step-9")


@pytest.mark.parametrize("verify", [False, True])
def test_load_into_reads_what_changed(run, verify):
    step, server = run
    before = bytes_of(server, "/plans/") + bytes_of(server, "tensors:read")
    target = step(1) | {"new": torch.zeros(10, dtype=torch.int64)}
    with tensord.connect(url_of(server, "run?version=step-2")) as client:
        assert client.model().load_into(target, since="step-1", verify=verify) == ([], [])
    assert equal(target, step(2))
    read = bytes_of(server, "/plans/") + bytes_of(server, "tensors:read") - before
    assert 500 * 300 * 4 + 80 <= read < 2 * 500 * 300 * 4
    before += read
    assert tensord.load_into(target, url_of(server, "run?version=latest"), since=2) == ([], [])
    assert equal(target, step(3))
    assert bytes_of(server, "/plans/") + bytes_of(server, "tensors:read") == before, "nothing has changed"


def test_what_since_refuses(run):
    """A model without a version has nothing to compare; nothing is written after an unknown version."""
    step, server = run
    target = step(1)
    with pytest.raises(ValueError, match="at\\(version\\)"):
        tensord.load_into(target, url_of(server, "run/step-2"), strict=False, since="step-1")
    with pytest.raises(errors.NotFoundError, match="step-9"):
        tensord.load_into(target, url_of(server, "run?version=2"), strict=False, since="step-9")
    assert equal(target, step(1))
