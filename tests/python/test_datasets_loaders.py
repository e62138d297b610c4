"""Datasets in torch's DataLoader and torchdata's StatefulDataLoader: the same rows in the same order for any number of
workers and ranks, forked or spawned, resumed at any step."""
import json
import subprocess
from pathlib import Path

import loaders_run
import pytest
import torch
import warm_python
from conftest import rows_url
from fault_proxy import FaultProxy
from loaders_run import map_loader, stream_loader
from torchdata.stateful_dataloader import StatefulDataLoader

import tensord
from tensord.rows.permutation import Permutation

COUNT, BATCH = 300, 7
RUN = Path(__file__).with_name("loaders_run.py")


def batches(rows, size=BATCH):
    return [rows[at : at + size] for at in range(0, len(rows), size)]


WHOLE = Permutation(COUNT, 1).take(0, COUNT)


@pytest.fixture
def server(serve_rows):
    folder = serve_rows.root / "datasets" / "ids"
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text("".join(f'{{"id": {number}}}\n' for number in range(COUNT)))
    return serve_rows()


@pytest.fixture
def url(server):
    return rows_url(server, "ids")


@pytest.mark.parametrize("style", ["map", "stream"])
def test_forked_workers(url, style):
    make = map_loader if style == "map" else stream_loader
    for workers in (0, 1, 2, 3, 8):
        loader, _ = make(url, workers, "fork")
        assert list(loader) == batches(WHOLE), workers
        assert list(loader) == batches(WHOLE), workers


def run(*arguments):
    """Run loops of loaders_run.py in a process of their own, and return what they print, a JSON value a line."""
    done = subprocess.run([*warm_python.command(), RUN, *arguments], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_spawned_workers(url):
    assert run("orders", url, "spawn", "2") == [batches(WHOLE)] * 2


def test_streams_of_batches_and_rows(url):
    for workers in (0, 3):
        loader, stream = stream_loader(url, workers, "fork", batched=True)
        assert list(loader) == batches(WHOLE) and len(loader) == len(batches(WHOLE)) == len(stream)
    quiet = loaders_run.QUIET
    assert [row["id"] for row in tensord.IterableDataset(url, **quiet)] == list(range(COUNT))
    assert [row["id"] for row in tensord.IterableDataset(url, shuffle=True, seed=1, **quiet)] == WHOLE
    for prefetch in (0, 1, 30):
        stream = tensord.IterableDataset(url, shuffle=True, seed=1, prefetch=prefetch, batch_size=11, **quiet)
        stream.dataset.fetcher._row_bytes = 2**15
        assert [row["id"] for row in stream] == WHOLE and len(stream) == COUNT


@pytest.mark.parametrize("world", [2, 8])
@pytest.mark.parametrize("shuffle", [True, False])
def test_ranks_and_workers(url, world, shuffle):
    order = WHOLE if shuffle else list(range(COUNT))
    for rank in range(world):
        for workers in (0, 2):
            how = {"rank": rank, "world": world, "shuffle": shuffle}
            assert list(map_loader(url, workers, "fork", **how)[0]) == batches(order[rank::world])
            assert list(stream_loader(url, workers, "fork", **how)[0]) == batches(order[rank::world])
            loader, stream = stream_loader(url, workers, "fork", drop_last=True, **how)
            length = COUNT // world // BATCH * BATCH
            assert list(loader) == batches(order[rank::world][:length]) and len(stream) == length
            padded = (order + order)[rank::world][: -(-COUNT // world)]
            assert list(stream_loader(url, workers, "fork", pad=True, **how)[0]) == batches(padded)


def test_epochs_reach_workers_that_persist(url):
    for workers in (0, 2):
        loader, stream = stream_loader(url, workers, "fork", persistent=True)
        for epoch in (0, 1, 2**40 + 5):
            stream.set_epoch(epoch)
            assert list(loader) == batches(Permutation(COUNT, 1, epoch).take(0, COUNT)), (workers, epoch)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_resuming_with_torchs_own_loader(url, workers):
    """The position is counted by the loop, and goes for any number of workers."""
    for steps in (0, 1, 20, 42, 43):
        position = steps * BATCH
        loader, sampler = map_loader(url, workers, "fork")
        state = sampler.state_dict(position=position)
        assert list(map_loader(url, workers, "fork", state=state)[0]) == batches(WHOLE)[steps:]
        loader, stream = stream_loader(url, workers, "fork")
        stream.load_state_dict(json.loads(json.dumps(stream.state_dict(position=position))))
        assert list(loader) == batches(WHOLE)[steps:]
        assert list(loader) == batches(WHOLE)    # a loaded position is that of the next iteration alone
        stream.load_state_dict(stream.state_dict(position=position))
        assert list(loader) == batches(WHOLE)[steps:]


def test_a_position_that_workers_count_is_not_guessed(url):
    """state_dict() of the main process raises while workers take the rows, and names what to do."""
    found = run("states", url, "fork", "1", "fork", "2", "spawn", "1")
    assert len(found) == 3
    for first, during, following, loaded, again, *own in found:
        assert (first, following, loaded) == ([0, 0], [1, 0], [0, 14])
        assert "give state_dict(position=) the number of rows" in during and again == during
        assert own[-1] == [0, own[-2][1] + 1]


@pytest.mark.parametrize("style", ["map", "stream"])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_stateful_loaders(url, style, workers):
    make = map_loader if style == "map" else stream_loader
    for steps in (0, 1, 2, 20, 42):
        loader, _ = make(url, workers, "fork", loader=StatefulDataLoader)
        walk = iter(loader)
        taken = [next(walk) for _ in range(steps)]
        state = loader.state_dict()
        del walk
        again, _ = make(url, workers, "fork", loader=StatefulDataLoader)
        again.load_state_dict(state)
        assert taken + list(again) == batches(WHOLE), steps
        assert list(again) == batches(WHOLE), steps


def test_a_stateful_loader_at_the_end_of_an_epoch(url):
    for make in (map_loader, stream_loader):
        loader, _ = make(url, 2, "fork", loader=StatefulDataLoader)
        assert list(loader) == batches(WHOLE)
        again, _ = make(url, 2, "fork", loader=StatefulDataLoader)
        again.load_state_dict(loader.state_dict())
        assert list(again) in ([], batches(WHOLE)) and list(again) == batches(WHOLE)


@pytest.mark.parametrize("worker", [0, 1, 2])
def test_a_worker_goes_on_in_the_middle_of_a_batch(url, worker, monkeypatch):
    """As loaders do that do not take whole batches of a worker."""
    monkeypatch.setattr("tensord.rows.iterable._own_worker", lambda: (worker, 3))
    stream = stream_loader(url, 0, "fork")[1]
    own = [row for batch in batches(WHOLE)[worker::3] for row in batch]
    assert [row["id"] for row in stream] == own
    for taken in (0, 1, 6, 7, 8, 50, len(own) - 1, len(own)):
        walk = iter(stream)
        for _ in range(taken):
            next(walk)
        again = stream_loader(url, 0, "fork")[1]
        again.load_state_dict(stream.state_dict())
        assert [row["id"] for row in again] == own[taken:], taken


def test_states_that_do_not_fit(url):
    loader, stream = stream_loader(url, 2, "fork")
    state = stream.state_dict()
    with pytest.raises(tensord.DatasetChanged, match="fingerprint x, this one has"):
        stream.load_state_dict({**state, "fingerprint": "x"})
    with pytest.raises(tensord.MismatchError, match="of seed 9"):
        stream.load_state_dict({**state, "seed": 9})
    stream.load_state_dict({**state, "yielded": 7, "workers": 3})
    with pytest.raises(tensord.MismatchError, match="one of 3 workers, and there are 2"):
        list(loader)
    for wrong in ({"batch_size": 0}, {"prefetch": -1}, {"batched": True}, {"seed": -1},
                  {"drop_last": True, "pad": True}):
        with pytest.raises(ValueError):
            tensord.IterableDataset(stream.dataset, **wrong)
    with pytest.raises(TypeError, match="token: given where the dataset is opened"):
        tensord.IterableDataset(stream.dataset, token="x")
    assert isinstance(stream, torch.utils.data.IterableDataset)


def test_errors_of_workers_arrive(url):
    """The error of a worker is one that can be sent, and says what was wrong."""
    dataset = tensord.Dataset(url, columns=["none"], **loaders_run.QUIET)
    with pytest.raises(tensord.DecodeError, match="it has no none, but id"):
        list(torch.utils.data.DataLoader(dataset, batch_size=5, num_workers=1))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("style", ["map", "stream"])
def test_faults_in_the_middle(server, style, workers):
    """Every third answer is cut, an empty one or an error: the batches are the same."""
    def fault(exchange):
        if exchange.number % 3 == 1:
            exchange.cut = (0, 13, len(exchange.body) // 2, len(exchange.body) - 1)[exchange.number % 4]
        if exchange.number % 5 == 2:
            exchange.status, exchange.body = 503, b""
            exchange.set("Content-Length", "0")

    proxy = FaultProxy(server.port, fault, of="/rows")
    make = map_loader if style == "map" else stream_loader
    loader, source = make(rows_url(proxy, "ids"), workers, "fork")
    if style == "stream":
        source.dataset.fetcher._row_bytes = 2**17  # one batch a request
    assert list(loader) == batches(WHOLE)
    assert len(proxy.seen) > 43 // 2
    proxy.stop()
