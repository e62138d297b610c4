"""Servers and networks that fail in the middle of a load: no wrong byte, nothing read twice, one clear error."""
# shows: security.md python-versions
import itertools
import os
import random
import signal
import threading
import time

import harness
import pytest
import torch
from fault_proxy import FaultProxy
from safetensors.torch import save_file

import tensord
from tensord.lazy import deferred
from tensord.net import workers

ROWS, COLUMNS = 1024, 768
PATIENT = {"retry_for": 60.0, "stall_timeout": 60.0, "progress": False}     # so that a busy machine does not matter


def checkpoint(seed=3):
    generator = torch.Generator().manual_seed(seed)
    return {f"layers.{number}.weight": torch.randn(ROWS, COLUMNS, generator=generator) for number in range(4)}


def write(folder, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "new")
    os.replace(folder / "new", folder / "model.safetensors")


@pytest.fixture
def tensors(serve):
    made = checkpoint()
    write(serve.root / "m", made)
    return made


@pytest.fixture
def proxied(serve, tensors):
    """proxied(fault, of=...) starts a server behind a proxy. All servers have the same files, hashed."""
    made = []
    harness.age(serve.root)

    def start(fault=None, of="boxes.bin", root=serve.root):
        server = harness.Server(root)
        server.wait_hashed()
        made.append(FaultProxy(server.port, fault, of))
        made[-1].server = server
        return made[-1]

    yield start
    for proxy in made:
        proxy.stop()
        proxy.server.stop()


def url(*ports, path="m"):
    return f"tensord://{','.join(f'127.0.0.1:{port}' for port in ports)}/{path}"


# ---- ways to load: each returns what was loaded, by name


def by_load_file(address, **how):
    return tensord.load_file(address, **{**PATIENT, **how})


def by_load_into(address, **how):
    """Converts to another type, so that the bytes go through the ring."""
    made = {name: torch.zeros(ROWS, COLUMNS, dtype=torch.float64) for name in checkpoint()}
    tensord.load_into(made, address, dtype=torch.float64, ring_bytes=4 << 20, **{**PATIENT, **how})
    return {name: tensor.to(torch.float32) for name, tensor in made.items()}


def by_lazy(address, **how):
    model = tensord.open_model(address, **{**PATIENT, **how})
    made = {name: torch.zeros(ROWS, COLUMNS) for name in checkpoint()}
    with tensord.safe_open(model, "pt", lazy=True) as f, deferred(model):
        for name in made:
            for half in range(2):
                made[name].chunk(2)[half].copy_(f.get_tensor(name).chunk(2)[half])
    return made


LOADS = [by_load_file, by_load_into, by_lazy]


def check(got, want):
    assert got.keys() == want.keys()
    for name in want:
        assert torch.equal(got[name], want[name]), name


def check_read_once(proxies, nbytes):
    """The ranges that the proxies sent are adjacent: no byte is missing, and none was sent twice."""
    ranges = sorted(itertools.chain.from_iterable(proxy.ranges() for proxy in proxies))
    assert ranges[0][0] == 0 and ranges[-1][1] == nbytes
    assert all(a[1] == b[0] for a, b in itertools.pairwise(one for one in ranges if one[0] != one[1])), ranges


# ---- faults that another try mends


@pytest.mark.parametrize("load", LOADS)
def test_cut_answers_go_on_where_they_ended(proxied, tensors, load):
    chance = random.Random(5)

    def fault(exchange):
        if exchange.number % 3 != 2:
            exchange.cut = chance.randrange(len(exchange.body))

    proxy = proxied(fault)
    check(load(url(proxy.port)), tensors)
    check_read_once([proxy], 4 * ROWS * COLUMNS * 4)
    assert len(proxy.seen) > 12


@pytest.mark.parametrize("load", LOADS)
def test_stalled_answers_go_on_where_they_ended(proxied, tensors, load):
    def fault(exchange):
        if exchange.number in (1, 2, 5):
            exchange.cut, exchange.stall = len(exchange.body) // 3, True

    proxy = proxied(fault)
    began = time.monotonic()
    check(load(url(proxy.port), stall_timeout=1.0), tensors)
    check_read_once([proxy], 4 * ROWS * COLUMNS * 4)
    assert time.monotonic() - began < 30


def test_small_reads_are_asked_for_again(proxied, tensors):
    """A batch of slices is one answer without ranges: all of it is asked for again."""
    def fault(exchange):
        if exchange.number < 2:
            exchange.cut = exchange.number * 100

    proxy = proxied(fault, of="tensors:read")
    made = tensord.read_boxes(url(proxy.port), [("layers.1.weight", (slice(3, 9), slice(4)))], **PATIENT)
    assert torch.equal(made[0], tensors["layers.1.weight"][3:9, :4])
    assert [one.sent for one in proxy.seen] == [0, 96, 96] or [one.sent for one in proxy.seen] == [0, 96]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_busy_servers_are_asked_again_when_they_say(proxied, tensors, status):
    times = []

    def fault(exchange):
        times.append(time.monotonic())
        if exchange.number == 0:
            exchange.status, exchange.body, exchange.fields = status, b"", {"Content-Length": "0", "Retry-After": "1"}

    proxy = proxied(fault)
    check(by_load_file(url(proxy.port), connections=1), tensors)
    assert times[1] - times[0] >= 0.99


@pytest.mark.parametrize("load", LOADS)
def test_a_server_that_restarts_is_told_the_plan_again(proxied, tensors, load):
    """A restarted server knows no plans: it answers 404, and the client registers its plan once more."""
    second = proxied().server

    def fault(exchange):
        if exchange.number == 2:
            proxy.upstream = second.port
        if exchange.status == 404:
            forgotten.append(exchange.path)

    forgotten = []
    proxy = proxied(fault)
    check(load(url(proxy.port)), tensors)
    check_read_once([proxy], 4 * ROWS * COLUMNS * 4)
    assert forgotten


@pytest.mark.parametrize("load", LOADS)
def test_the_other_server_goes_on_when_one_dies(proxied, tensors, load):
    first, second = proxied(), proxied()

    def fault(exchange):
        if exchange.number == 2:
            exchange.cut = 1000
            first.server.stop()
            first.upstream = 1  # nobody listens there

    first.fault = fault
    check(load(url(first.port, second.port), connections=2), tensors)
    check_read_once([first, second], 4 * ROWS * COLUMNS * 4)
    assert len(second.seen) > 4


def test_a_server_that_was_never_there_costs_nothing(proxied, tensors):
    proxy = proxied()
    check(by_load_file(url(1, proxy.port)), tensors)
    check(by_load_file(url(proxy.port, 1)), tensors)


# ---- answers that are not what was asked for


def ignore_range(exchange):
    exchange.status = 200
    exchange.set("Content-Range", None)
    exchange.body = b"\xee" * (4 * ROWS * COLUMNS * 4)
    exchange.set("Content-Length", str(len(exchange.body)))


def other_range(exchange):
    begin, end, total = exchange.fields["Content-Range"].removeprefix("bytes ").replace("/", "-").split("-")
    exchange.set("Content-Range", f"bytes {int(begin) + 1}-{int(end) + 1}/{total}")
    exchange.body = b"\xee" * len(exchange.body)


def other_total(exchange):
    exchange.set("Content-Range", exchange.fields["Content-Range"].split("/")[0] + "/999999999")
    exchange.body = b"\xee" * len(exchange.body)


def no_range(exchange):
    exchange.set("Content-Range", None)
    exchange.body = b"\xee" * len(exchange.body)


def short(exchange):
    exchange.body = exchange.body[:-7]
    exchange.set("Content-Length", str(len(exchange.body)))


def long(exchange):
    exchange.body += b"\xee" * 7
    exchange.set("Content-Length", str(len(exchange.body)))


def chunked(exchange):
    body = b"\xee" * len(exchange.body)
    exchange.set("Content-Length", None)
    exchange.set("Transfer-Encoding", "chunked")
    exchange.body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def no_tag(exchange):
    exchange.set("ETag", None)
    exchange.body = b"\xee" * len(exchange.body)


def two_lengths(exchange):
    exchange.framing.append("Content-Length: 7")
    exchange.body = b"\xee" * len(exchange.body)


WRONG = {
    ignore_range: "answered 200 to a request for a range, where 206 is right",
    other_range: "answered the range 'bytes", other_total: "/999999999",
    no_range: "answered the range ''", short: "bytes, where [0-9]+ were asked for",
    long: "bytes, where [0-9]+ were asked for", chunked: "answered a range in chunks", no_tag: "without an entity tag",
    two_lengths: "content-length twice",
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: one.__name__)
@pytest.mark.parametrize("load", LOADS)
def test_wrong_answers_are_refused(proxied, load, wrong):
    proxy = proxied(wrong)
    with pytest.raises(tensord.ProtocolError, match=WRONG[wrong]) as caught:
        load(url(proxy.port))
    assert f"127.0.0.1:{proxy.port}/models/m/plans/" in str(caught.value) or wrong is two_lengths
    assert len(proxy.seen) < 80  # it does not ask for ever


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: one.__name__)
def test_wrong_answers_are_not_used_where_another_server_is_right(proxied, tensors, wrong):
    bad, good = proxied(wrong), proxied()
    check(by_load_file(url(bad.port, good.port), connections=2), tensors)
    check_read_once([good], 4 * ROWS * COLUMNS * 4)


@pytest.mark.parametrize("load", LOADS)
def test_another_tag_is_another_version(proxied, load):
    def fault(exchange):
        if exchange.number == 3:
            exchange.set("ETag", '"another"')
            exchange.body = b"\xee" * len(exchange.body)

    proxy = proxied(fault)
    with pytest.raises(tensord.ChangedError, match="changed while it was being read.*load again"):
        load(url(proxy.port))


@pytest.mark.parametrize("load", LOADS)
def test_a_checkpoint_that_is_replaced_is_an_error(serve, proxied, tensors, load):
    def fault(exchange):
        if exchange.number == 1:
            write(serve.root / "m", checkpoint(seed=4))
            proxy.server.post("/rescan", b"")

    proxy = proxied(fault)
    with pytest.raises(tensord.ChangedError, match="load again"):
        load(url(proxy.port), connections=1)
    check(load(url(proxy.port)), checkpoint(seed=4))


def test_a_lazy_tensor_stays_with_its_version(serve, proxied, tensors):
    proxy = proxied()
    f = tensord.safe_open(url(proxy.port), "pt", lazy=True, **PATIENT)
    first, second = f.get_tensor("layers.0.weight"), f.get_tensor("layers.1.weight")
    assert torch.equal(torch.empty(2, 3).copy_(first[:2, :3]), tensors["layers.0.weight"][:2, :3])
    write(serve.root / "m", checkpoint(seed=4))
    proxy.server.post("/rescan", b"")
    for read in (lambda: torch.empty(2, 3).copy_(second[:2, :3]), lambda: second + 1,
                 lambda: torch.empty(ROWS, COLUMNS).copy_(second)):
        with pytest.raises(tensord.ChangedError, match="load again"):
            read()


def test_a_server_with_another_version_is_left_out(proxied, tensors, tmp_path):
    write(tmp_path / "other" / "m", checkpoint(seed=4))
    harness.age(tmp_path / "other")
    one, other = proxied(), proxied(root=tmp_path / "other")
    check(by_load_file(url(one.port, other.port)), tensors)
    check(by_load_into(url(other.port, one.port)), checkpoint(seed=4))


# ---- nothing helps


@pytest.mark.parametrize("load", LOADS)
def test_answers_that_never_come_end_in_one_error(proxied, load):
    def fault(exchange):
        exchange.cut, exchange.stall = 0, True

    proxy = proxied(fault)
    began = time.monotonic()
    with pytest.raises(tensord.ConnectError, match=r"sent nothing for 0.4 s; gave up after \d+ tries in \d+ s "
                                                   r"\(retry_for=1\)"):
        load(url(proxy.port), retry_for=1.0, stall_timeout=0.4)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("load", LOADS)
def test_no_server_at_all(load):
    with pytest.raises(tensord.ConnectError, match="127.0.0.1:1 cannot be reached.*gave up after"):
        load(url(1), retry_for=1.0)


@pytest.mark.parametrize("load", LOADS)
def test_a_server_that_stays_busy(proxied, load):
    def fault(exchange):
        exchange.status, exchange.body = 503, b'{"error":{"message":"too many requests at once"}}'
        exchange.fields = {"Content-Length": str(len(exchange.body)), "Content-Type": "application/json"}

    proxy = proxied(fault)
    with pytest.raises(tensord.AnswerError, match="503.*too many requests at once.*gave up after") as caught:
        load(url(proxy.port), retry_for=1.0)
    assert caught.value.status == 503


def test_a_file_that_the_first_server_lacks(proxied, tmp_path):
    """Another server has it."""
    from tensord.net import resources

    write(tmp_path / "second/m", checkpoint())
    (tmp_path / "second/m/extra.txt").write_text("here")
    harness.age(tmp_path / "second")
    first, second = proxied(), proxied(root=tmp_path / "second")
    model = tensord.open_model(url(first.port, second.port), **PATIENT)
    with open(resources.fetch(model.session, model.id, "extra.txt", str(tmp_path)), encoding="utf-8") as file:
        assert file.read() == "here"
    with pytest.raises(tensord.NotFoundError):
        resources.fetch(model.session, model.id, "none.txt", str(tmp_path))


def test_a_refusal_is_not_asked_again(proxied):
    def fault(exchange):
        exchange.status, exchange.body = 403, b'{"error":{"message":"not yours"}}'
        exchange.fields = {"Content-Length": str(len(exchange.body)), "Content-Type": "application/json"}

    proxy = proxied(fault)
    with pytest.raises(tensord.AnswerError, match="403: not yours"):
        by_load_file(url(proxy.port), connections=1)
    assert len(proxy.seen) == 1


def test_rank_files_go_on_after_cuts(proxied, tensors):
    def fault(exchange):
        if exchange.number % 2 == 0 and len(exchange.body) > 100000:
            exchange.cut = len(exchange.body) // 2

    proxy = proxied(fault, of="/plans/")
    made = [tensord.load_rank(url(proxy.port), "fsdp", 2, rank, **PATIENT) for rank in range(2)]
    assert any(one.sent for one in proxy.seen if one.number % 2 == 0 and one.sent > 100000)
    for name, tensor in tensors.items():
        assert torch.equal(torch.cat([one[name] for one in made]), tensor)


def test_a_loader_that_is_closed_stops_its_read(proxied):
    def fault(exchange):
        exchange.cut, exchange.stall = 10, True

    proxy = proxied(fault)
    with tensord.safe_open(url(proxy.port), "pt", stall_timeout=60.0, progress=False) as f:
        loader = f.prefetch(dict.fromkeys(f.keys()))
        while len(proxy.seen) < 3:
            time.sleep(0.01)
        began = time.monotonic()
        loader.close()
    assert time.monotonic() - began < 5
    assert not any(thread.name.startswith("tensord-") for thread in threading.enumerate())


@pytest.mark.parametrize("of", ["boxes.bin", "/plans", "/tensors"])
def test_an_interrupt_does_not_wait_for_a_silent_server(proxied, of):
    """Whatever the server is silent about: the manifest, the plan, or the bytes."""
    def fault(exchange):
        exchange.cut, exchange.stall = 0, True
        timer.start()

    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start, start = lambda: timer.is_alive() or timer.ident or start(), timer.start
    proxy = proxied(fault, of=of)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        by_load_file(url(proxy.port))
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("late", [0.0, 0.1])
def test_an_interrupt_of_a_start_waits_for_the_thread(monkeypatch, late):
    """Thread.start() waits until the thread has begun; an interrupt of it leaves a thread that begins by itself."""
    monkeypatch.setattr(workers, "LEAVE_SECONDS", 60)
    stopping, ended = threading.Event(), []

    def work():
        stopping.wait(60)
        time.sleep(0.1)
        ended.append(True)

    class Interrupted(threading.Thread):
        def start(self):
            threading.Timer(late, super().start).start()
            raise KeyboardInterrupt

    threads = [threading.Thread(target=work), Interrupted(target=work), threading.Thread(target=work)]
    with pytest.raises(KeyboardInterrupt):
        workers.watch(threads, lambda error: stopping.set())
    assert len(ended) == 2 and threads[2].ident is None


def test_a_thread_that_cannot_start_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(workers, "LEAVE_SECONDS", 60)

    class Failed(threading.Thread):
        def start(self):
            raise RuntimeError("can't start new thread")

    stopping, begin = threading.Event(), time.monotonic()
    with pytest.raises(RuntimeError, match="can't start"):
        workers.watch([threading.Thread(target=stopping.wait), Failed()], lambda error: stopping.set())
    assert stopping.is_set() and time.monotonic() - begin < 30
