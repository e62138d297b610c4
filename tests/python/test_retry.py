"""The one loop by which the client tries servers again (net/retry.py), without servers."""
import threading
import time

import pytest

from tensord import errors
from tensord.address import Endpoint
from tensord.net.retry import Fault, Patience, Servers, attempt
from tensord.options import Options

A, B = (Endpoint("http", host, 80, "", "") for host in "ab")


class Tries:
    """Stands for a request: `faults` has what each server raises, one exception for each try; then the try works."""

    def __init__(self, **faults):
        self.faults, self.made, self.done = faults, "", 0

    def __call__(self, endpoint):
        self.made += endpoint.host
        left = self.faults.get(endpoint.host)
        if left:
            raise left.pop(0)
        return endpoint.host


class Waits(Patience):
    """Counts its waits, which take no time."""

    count = 0

    def wait(self, error, after=0.0):
        self.count += 1
        self.last = str(error), after


def refused(text="refused", **how):
    return Fault(errors.ConnectError(text), **how)


def test_the_next_server_is_tried_at_once():
    tries, patience = Tries(a=[refused()]), Waits(Options())
    assert attempt(Servers([A, B]), patience, tries) == "b"
    assert (tries.made, patience.count) == ("ab", 0)
    assert attempt(Servers([A, B]), patience, Tries(), 1) == "b"  # the first try is at the server of that number


def test_one_wait_after_each_server_failed():
    tries = Tries(a=[refused("a 1"), refused("a 2")], b=[refused("b 1", after=3), refused("b 2")])
    patience = Waits(Options())
    assert attempt(Servers([A, B]), patience, tries) == "a"
    assert (tries.made, patience.count, patience.last) == ("ababa", 2, ("a 2; b 2", 0.0))


def test_servers_with_a_lasting_fault_are_left_out():
    gone = errors.NotFoundError("not here", 404)
    tries, patience = Tries(a=[Fault(gone, lasting=True)], b=[refused(), refused()]), Waits(Options())
    assert attempt(Servers([A, B]), patience, tries) == "b"
    assert (tries.made, patience.count) == ("abbb", 2)
    servers = Servers([A])
    with pytest.raises(errors.NotFoundError, match="not here") as raised:
        attempt(servers, patience, Tries(a=[Fault(gone, lasting=True)]))
    assert raised.value is gone and servers.count == 0
    with pytest.raises(errors.NotFoundError, match="not here"):  # another job of the same read
        attempt(servers, patience, Tries())


UNTRUSTED, GONE = errors.SetupError("not trusted"), errors.NotFoundError("not here", 404)


@pytest.mark.parametrize("order", [[A, B], [B, A]])
def test_a_server_without_a_setup_is_left_out_in_any_order(order):
    """A SetupError says nothing about the other servers: they are tried until the patience ends. It is the error of
    the attempt only if no server answers."""
    tries, patience = Tries(a=[Fault(UNTRUSTED)], b=[refused(), refused()]), Waits(Options())
    assert attempt(Servers(order), patience, tries) == "b"
    assert (tries.made.count("a"), tries.made.count("b")) == (1, 3) and patience.count >= 1
    for faults, error in ({"a": [Fault(UNTRUSTED)], "b": [Fault(GONE, lasting=True)]}, GONE), (
            {"a": [Fault(UNTRUSTED)], "b": [Fault(UNTRUSTED)]}, UNTRUSTED):
        with pytest.raises(type(error)) as raised:
            attempt(Servers(order), Waits(Options()), Tries(**faults))
        assert raised.value is error
    with pytest.raises(errors.ConnectError, match="^b is down; not trusted; gave up after") as raised:
        attempt(Servers(order), Patience(Options(retry_for=0.03)),
                Tries(a=[Fault(UNTRUSTED)], b=[refused("b is down") for _ in range(99)]))
    assert type(raised.value) is errors.ConnectError


def test_other_errors_end_the_attempt():
    tries = Tries(a=[errors.AnswerError("no", 403)])
    with pytest.raises(errors.AnswerError, match="^no$"):
        attempt(Servers([A, B]), Waits(Options()), tries)
    assert tries.made == "a"


def test_the_patience_ends_without_progress_only():
    def slow(endpoint):
        time.sleep(0.02)
        if done[0] < 10:
            done[0] += 1
            raise refused()
        raise refused("no more")

    done = [0]
    with pytest.raises(errors.ConnectError, match=r"no more; gave up after [12] tries in 0 s \(retry_for=0.03\)"):
        attempt(Servers([A]), Patience(Options(retry_for=0.03)), slow, done=lambda: done[0])
    assert done == [10]


def test_a_stop_ends_waiting_and_trying():
    stopping = threading.Event()
    threading.Timer(0.2, stopping.set).start()
    began = time.monotonic()
    tries = Tries(a=[refused(after=30.0) for _ in range(9)])
    with pytest.raises(errors.TensordError, match="the read was stopped"):
        attempt(Servers([A]), Patience(Options(retry_for=60), stopping), tries)
    assert time.monotonic() - began < 10
    tries = Tries()
    with pytest.raises(errors.TensordError, match="the read was stopped"):
        attempt(Servers([A]), Patience(Options(), stopping), tries)
    assert tries.made == ""
