"""ShuffleSampler: its order, its state of one integer, its ranks. It needs no server: a list has a length, too."""
import pickle
import time

import pytest

import tensord
from tensord.rows.permutation import LAST_CHUNK, Permutation

ROWS = range(1003)


def whole(seed=1, epoch=0):
    return Permutation(len(ROWS), seed, epoch).take(0, len(ROWS))


def test_the_order():
    assert list(tensord.ShuffleSampler(ROWS, seed=1)) == whole()
    assert list(tensord.ShuffleSampler(ROWS, seed=1, epoch=4)) == whole(1, 4)
    assert list(tensord.ShuffleSampler(ROWS, shuffle=False)) == list(ROWS)
    assert all(type(row) is int for row in tensord.ShuffleSampler(ROWS, seed=1))


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("shuffle", [True, False])
def test_ranks(world, shuffle):
    """Each row is one rank's; the ranks in turns have the order of one rank."""
    order = whole() if shuffle else list(ROWS)
    for rank in range(world):
        sampler = tensord.ShuffleSampler(ROWS, seed=1, rank=rank, world=world, shuffle=shuffle)
        assert list(sampler) == order[rank::world] and len(sampler) == len(order[rank::world])
        short = tensord.ShuffleSampler(ROWS, seed=1, rank=rank, world=world, shuffle=shuffle, drop_last=True)
        assert list(short) == order[rank::world][: len(ROWS) // world] and len(short) == len(ROWS) // world
        padded = tensord.ShuffleSampler(ROWS, seed=1, rank=rank, world=world, shuffle=shuffle, pad=True)
        assert list(padded) == (order + order)[rank::world][: -(-len(ROWS) // world)]
        assert len(padded) == len(list(padded))


def test_padding_of_very_few_rows():
    for rank in range(8):
        assert list(tensord.ShuffleSampler(range(3), rank=rank, world=8, pad=True, shuffle=False)) == [rank % 3]
        assert list(tensord.ShuffleSampler(range(0), rank=rank, world=8, pad=True)) == []


@pytest.mark.parametrize("stop", [0, 1, 255, 256, 257, 1002, 1003])
def test_a_state_goes_on_anywhere(stop):
    sampler = tensord.ShuffleSampler(ROWS, seed=1, epoch=2, rank=0, world=1)
    walk = iter(sampler)
    taken = [next(walk) for _ in range(stop)]
    state = sampler.state_dict()
    assert state == {"position": stop, "seed": 1, "epoch": 2, "shard": "0/1", "fingerprint": None}
    again = tensord.ShuffleSampler(ROWS, seed=1)
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert taken + list(again) == whole(1, 2)
    assert list(again) == whole(1, 2)  # the next iteration is whole
    assert tensord.ShuffleSampler(ROWS, seed=1).state_dict(position=17)["position"] == 17
    assert tensord.ShuffleSampler(ROWS).state_dict(position=32 * 32)["position"] == 1003
    assert list(tensord.ShuffleSampler(ROWS, seed=1, epoch=2, position=stop)) == whole(1, 2)[stop:]


def test_epochs():
    sampler = tensord.ShuffleSampler(ROWS, seed=1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert list(sampler) == whole(1, epoch)
    sampler.load_state_dict({**sampler.state_dict(), "position": 100, "epoch": 1})
    sampler.set_epoch(1)  # as a loop does after a state was loaded
    assert list(sampler) == whole(1, 1)[100:]
    sampler.load_state_dict({**sampler.state_dict(), "position": 100})
    sampler.set_epoch(2)
    assert list(sampler) == whole(1, 2)


def test_the_state_is_of_the_last_iteration():
    sampler = tensord.ShuffleSampler(ROWS, seed=1)
    old, new = iter(sampler), None
    for _ in range(10):
        next(old)
    new = iter(sampler)
    next(new)
    next(old)
    assert sampler.state_dict()["position"] == 1
    assert list(pickle.loads(pickle.dumps(sampler))) == whole()


def test_a_state_that_does_not_fit():
    sampler = tensord.ShuffleSampler(ROWS, seed=1, rank=1, world=4)
    state = sampler.state_dict()
    for wrong, text in (({"seed": 2}, "the state is of seed 2, this is seed 1"),
                        ({"shard": "0/4"}, "the state is of shard 0/4, this is shard 1/4"),
                        ({"shard": "1/4 in order"}, "this is shard 1/4: the position"),
                        ({"position": 252}, "position 252, where the epoch has 251 rows"),
                        ({"position": -1}, "position -1"), ({"position": "1"}, "this is not a state of rows")):
        with pytest.raises(tensord.MismatchError, match=text):
            sampler.load_state_dict({**state, **wrong})
    with pytest.raises(tensord.DatasetChanged, match="fingerprint abc, this one has None: its files changed"):
        sampler.load_state_dict({**state, "fingerprint": "abc"})
    with pytest.raises(tensord.MismatchError, match="not a state of rows: a state has position"):
        sampler.load_state_dict({"position": 1})
    assert list(sampler) == whole()[1::4]  # as if nothing had been loaded


def test_what_is_refused():
    for wrong in ({"seed": -1}, {"rank": 1}, {"rank": 3, "world": 3}, {"drop_last": True, "pad": True},
                  {"position": 1004}, {"position": -1}):
        with pytest.raises(ValueError):
            tensord.ShuffleSampler(ROWS, **wrong)


def test_ranks_of_the_environment(monkeypatch):
    monkeypatch.setenv("RANK", "2")
    with pytest.warns(UserWarning, match="not both set as numbers: this process reads the rows of all ranks"):
        assert tensord.ShuffleSampler(ROWS).world == 1
    monkeypatch.setenv("WORLD_SIZE", "5")
    sampler = tensord.ShuffleSampler(ROWS, seed=1)
    assert (sampler.rank, sampler.world) == (2, 5) and list(sampler) == whole()[2::5]
    assert tensord.ShuffleSampler(ROWS, rank=0, world=1).world == 1


def test_resuming_takes_no_time():
    """At nine tenths of 100,000,000 rows, the first row after a state is loaded: the median of ten below 50 ms."""
    sampler = tensord.ShuffleSampler(range(100_000_000), seed=1)
    state = sampler.state_dict(position=90_000_000)
    taken = []
    for _ in range(10):
        began = time.perf_counter()
        again = tensord.ShuffleSampler(range(100_000_000), seed=1)
        again.load_state_dict(state)
        row = next(iter(again))
        taken.append(time.perf_counter() - began)
    assert row == Permutation(100_000_000, 1)[90_000_000] and sorted(taken)[5] < 0.05, taken


def test_what_comes_after_rows_that_were_taken():
    sampler = tensord.ShuffleSampler(range(50000), seed=1)
    order, walk = list(sampler), iter(sampler)
    at = 0
    for count in (1, 3, 252, 1, 600, 20000, 7, 29000):  # across the chunks that are computed
        taken = [next(walk) for _ in range(count)]
        at += count
        expected = order[at : at + count]
        # Of what was taken long ago nothing is known any more.
        assert walk.after(taken) == expected or count > LAST_CHUNK and walk.after(taken) is None
        assert walk.after(taken[:-1] + [taken[-1] + 1]) is None and walk.after(taken[:1] * (count + 1)) is None
    assert walk.after(order[at - 10 : at]) == order[at : at + 10]
    assert list(walk) == order[at:] and walk.after(order[-5:]) == [] and walk.after(order[:5]) is None
