"""Scripts of test_processes.py: each runs in a process of its own, as `python processes_run.py NAME URL`."""
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time

import numpy

import tensord

ROWS, COLUMNS, COUNT = 512, 256, 32
QUIET = {"progress": False, "retry_for": 20.0}


def want(number):
    """Return the tensor of a number, as test_processes.py wrote it."""
    return numpy.full((ROWS, COLUMNS), number, dtype=numpy.float32) + numpy.arange(COLUMNS, dtype=numpy.float32) / 1000


def check(model, number):
    got = model.state_dict(f"t{number:02}", framework="np")
    assert list(got) == [f"t{number:02}"] and numpy.array_equal(got[f"t{number:02}"], want(number)), number


def check_part(model, number, row):
    got = model.read_boxes([(f"t{number:02}", slice(row, row + 7))], framework="np")[0]
    assert numpy.array_equal(got, want(number)[row : row + 7]), (number, row)


def check_all(model):
    got = model.state_dict(framework="np")
    assert len(got) == COUNT
    for number in range(COUNT):
        assert numpy.array_equal(got[f"t{number:02}"], want(number)), number


def in_child(model, number):
    check(model, number)
    check_part(model, number, 3 * number)
    check_all(model)


def of_processes(kind, url):
    """The parent's connections are open, and its threads read while the children start."""
    model = tensord.open_model(url, **QUIET)
    check_all(model)
    stop = threading.Event()

    def go_on():
        while not stop.is_set():
            check(model, 5)

    threads = [threading.Thread(target=go_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    context = multiprocessing.get_context(kind)
    children = [context.Process(target=in_child, args=(model, number)) for number in range(6)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    stop.set()
    for thread in threads:
        thread.join()
    assert [child.exitcode for child in children] == [0] * 6
    check_all(model)


def fork(url):
    of_processes("fork", url)


def spawn(url):
    of_processes("spawn", url)


def loader(url):
    """A DataLoader with forked workers; each reads rows."""
    import torch

    model = tensord.open_model(url, **QUIET)

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 200

        def __getitem__(self, index):
            return model.read_boxes([(f"t{index % COUNT:02}", index)], framework="np")[0]

    check(model, 1)
    rows = [row for batch in torch.utils.data.DataLoader(Rows(), batch_size=10, num_workers=3) for row in batch]
    for index, row in enumerate(rows):
        assert numpy.array_equal(row.numpy().reshape(-1), want(index % COUNT)[index]), index
    assert len(rows) == 200


def threads(url):
    """32 threads read different parts of one model, all at once."""
    model = tensord.open_model(url, **QUIET)
    faults, start = [], threading.Barrier(32)

    def work(number):
        start.wait()
        try:
            for step in range(10):
                check(model, (number + step) % COUNT)
                check_part(model, number, 11 * step)
            check_all(model)
        except BaseException as error:
            faults.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(32)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not faults, faults
    assert threading.active_count() == 1


def state():
    """Return the numbers of descriptors and threads, and the resident MiB."""
    gc.collect()
    with open("/proc/self/status") as status:
        resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
    return len(os.listdir("/proc/self/fd")), threading.active_count(), resident / 1024


def leak(url):
    """Many loads, good ones and failed ones, leave nothing behind."""
    def some():
        model = tensord.open_model(url, **QUIET)
        check_all(model)
        model.session.close()
        for bad in (url + "x", url + "-there-is-none"):
            try:
                tensord.load_file(bad, framework="np", **QUIET)
                raise AssertionError(bad)
            except tensord.NotFoundError:
                pass

    for _ in range(5):
        some()
    before = state()
    for _ in range(60):
        some()
    after = state()
    assert after[0] <= before[0] and after[1] == before[1] and after[2] < before[2] + 20, (before, after)


def interrupt(url):
    """SIGINT ends a load that waits for a server which says nothing; afterwards the process can load again.

    The first argument is a URL whose answers stall, then a comma and one that works.
    """
    stalled, good = url.split(",")
    check_all(tensord.open_model(good, **QUIET))
    before = state()
    for _ in range(3):
        timer = threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        began = time.monotonic()
        try:
            tensord.load_file(stalled, framework="np", progress=False, stall_timeout=60.0)
            raise AssertionError("the load ended")
        except KeyboardInterrupt:
            assert time.monotonic() - began < 5
        timer.join()
    after = state()
    assert after[:2] == before[:2], (before, after)
    check_all(tensord.open_model(good, **QUIET))


def memory(url):
    """Prints the peak memory beyond the tensors in MiB, of a load into tensors that exist, straight and converted."""
    import torch

    from tensord import loading

    def peak(load):
        with open("/proc/self/clear_refs", "w") as clear:
            clear.write("5")
        before = state()[2]
        load()
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024 - before

    with tensord.safe_open(url, "pt", **QUIET) as f:
        shapes = {name: f.get_slice(name).get_shape() for name in f.keys()}
    for dtype in (torch.float32, torch.bfloat16):
        made = {name: torch.ones(shape, dtype=dtype) for name, shape in shapes.items()}
        given = {} if dtype == torch.float32 else {"dtype": dtype}
        loading.load_into(made, url, **given, **QUIET)
        print(f"{peak(lambda: loading.load_into(made, url, **given, **QUIET)):.1f}")


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
