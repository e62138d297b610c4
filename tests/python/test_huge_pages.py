"""New tensors of 2 MiB and more are in memory for which huge pages were asked, and are ordinary tensors otherwise."""
import gc
import io
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import harness
import numpy
import pytest
import torch
from conftest import url_of
from safetensors.torch import save_file

import tensord
from tensord.tensors import huge_pages

MIB = 1 << 20
ALLOWED = Path(huge_pages.ALLOWED_FILE)
# This host's choice: "always", "madvise" or "never".
SETTING = re.search(r"\[(\w+)\]", ALLOWED.read_text())[1] if ALLOWED.exists() else "never"
# Sizes on both sides of 2 MiB, and such as leave a part of a huge page at an end.
SIZES = {"least": 2 * MIB, "less": 2 * MIB - 4096, "odd": 3 * MIB + 20, "large": 40 * MIB, "small": 1000}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("huge") / "root"
    for name, sizes in (("m", SIZES), ("many", {f"{n}": 2 * MIB + 4096 * (n % 3) for n in range(300)})):
        (root / name).mkdir(parents=True)
        save_file({key: torch.arange(size // 4, dtype=torch.int32) for key, size in sizes.items()},
                  root / name / "model.safetensors")
    harness.age(root)
    with harness.Server(root, hash_threads=0) as server:
        yield server


def flags_at(addresses):
    """Return for each address the flags of the mapping that holds it. To read them all costs 50 ms with torch."""
    text = Path("/proc/self/smaps").read_text()
    spans = [(int(begin, 16), int(end, 16), flags.split()) for begin, end, flags in re.findall(
        r"^([0-9a-f]+)-([0-9a-f]+) .*\n(?:\w+:.*\n)*?VmFlags:(.*)$", text, re.M)]
    found = [[flags for begin, end, flags in spans if begin <= address < end] for address in addresses]
    assert all(len(flags) == 1 for flags in found), "each is in one mapping"
    return [flags[0] for flags in found]


def inside(address, nbytes):
    """Return addresses in a block of memory: its first byte, one in each 2 MiB, its last one."""
    return [address, *range(address, address + nbytes, 2 * MIB), address + nbytes - 1]


def ways(server):
    """Return dicts of tensors and arrays by each function that makes new ones."""
    url = url_of(server, "m")
    with tensord.safe_open(url, framework="pt", lazy=True) as f:
        lazy = {name: f.get_tensor(name).materialize() for name in SIZES}
    with tensord.safe_open(url, framework="pt") as f:
        opened = {name: f.get_tensor(name) for name in SIZES}
    return {"load_file": tensord.load_file(url), "numpy": tensord.load_file(url, framework="np"), "lazy": lazy,
            "match": tensord.state_dict(url, match="*"), "opened": opened,
            "boxes": dict(zip(SIZES, tensord.read_boxes(url, [(name, None) for name in SIZES]))),
            "rank": tensord.load_rank(url, "none", 1, 0)}


@pytest.fixture
def asked(monkeypatch):
    """A list of the calls of madvise (address, bytes, advice), also on hosts that forbid huge pages."""
    calls, real = [], huge_pages._find_madvise()

    def call(*args):
        calls.append(args)
        return 0 if real is None else real(*args)

    monkeypatch.setattr(huge_pages, "_find_madvise", lambda: call)
    return calls


def test_which_memory_asks_for_huge_pages(served, asked):
    for way, tensors in ways(served).items():
        for name, size in SIZES.items():
            one = tensors[name]
            assert (one == (numpy if way == "numpy" else torch).arange(size // 4)).all(), (way, name)
            address = one.ctypes.data if way == "numpy" else one.data_ptr()
            if size >= 2 * MIB:
                assert all(any(begin <= at < begin + nbytes and advice == huge_pages.MADV_HUGEPAGE
                               for begin, nbytes, advice in asked) for at in inside(address, size)), (way, name)
                flags = flags_at(inside(address, size))
                assert SETTING == "never" or all("hg" in each for each in flags), (way, name)


@pytest.mark.parametrize("text, allowed", [
    ("always [madvise] never\n", True), ("[always] madvise never\n", True), ("always madvise [never]\n", False),
    (None, False)])
def test_what_the_host_allows(tmp_path, monkeypatch, text, allowed):
    if text is not None:
        (tmp_path / "enabled").write_text(text)
    monkeypatch.setattr(huge_pages, "ALLOWED_FILE", str(tmp_path / "enabled"))
    assert (huge_pages._find_madvise() is not None) == allowed


SCRIPT = """
import json, resource, sys, tensord
from tensord.tensors import huge_pages
mode, url = sys.argv[1:]
if mode == "never":         # is read in place of the kernel's file
    open("never", "w").write("always madvise [never]\\n"); huge_pages.ALLOWED_FILE = "never"
if mode == "full":
    open("most", "w").write("10\\n"); huge_pages.MOST_MAPS_FILE = "most"
if mode == "unknown":
    huge_pages.ALLOWED_FILE = "not-there"
import torch
tensord.load_file(url, match="small", progress=False)
def state():
    smaps = open("/proc/self/smaps").read()
    flags = [line.split() for line in smaps.splitlines() if line.startswith("VmFlags:")]
    return {"maps": len(flags), "hg": sum("hg" in one for one in flags),
            "rss": int(open("/proc/self/statm").read().split()[1]) * 4096}
before, faults = state(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
tensors = tensord.load_file(url, progress=False)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
held = state()
names = list(tensors)
view = tensors[names[-1]][5:]
first = int(view[0])
del tensors
after = state()
assert int(view[0]) == first
print(json.dumps({"before": before, "held": held, "after": after, "faults": faults}))
"""


def run(server, model, mode, folder):
    done = subprocess.run([sys.executable, "-c", SCRIPT, mode, url_of(server, model)], capture_output=True, text=True,
                          timeout=120, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def many(served, tmp_path_factory):
    """Return what a process reports that has loaded 300 tensors of 600 MiB, and has freed all but a view."""
    return run(served, "many", "as it is", tmp_path_factory.mktemp("many"))


def test_memory_returns_with_the_tensors(many):
    """There are few mappings, and the memory goes back when the tensors are freed, but for a view's."""
    found = many
    print(found)
    assert found["held"]["rss"] - found["before"]["rss"] > 590 * MIB
    assert found["after"]["rss"] - found["before"]["rss"] < 80 * MIB
    assert found["held"]["maps"] - found["before"]["maps"] < 100
    assert (found["held"]["hg"] > found["before"]["hg"]) == (SETTING != "never")


def test_fewer_page_faults(served, many, tmp_path):
    """One page fault replaces 512: for the memory asked for ("madvise"), for all ("always") or for none ("never")."""
    with_, without = many["faults"], run(served, "many", "never", tmp_path)["faults"]
    print(f"{with_} page faults, {without} without asking for huge pages")
    small_pages = 600 * MIB // 4096
    if SETTING == "always":
        assert with_ < small_pages / 4
    else:
        assert without > small_pages * 0.9 and (with_ < without / 4) == (SETTING == "madvise")


@pytest.mark.parametrize("mode", ("never", "full", "unknown"))
def test_where_none_are_asked_for(served, tmp_path, mode):
    """The host forbids them or does not know them, or the process has half of the mappings that it may have."""
    found = run(served, "m", mode, tmp_path)
    assert found["held"]["hg"] == found["before"]["hg"]


def test_they_are_ordinary_tensors(served):
    """They can be grown, pickled, copied, shared and saved; arrays own their memory."""
    want = torch.arange(SIZES["odd"] // 4, dtype=torch.int32)
    made = tensord.load_file(url_of(served, "m"))
    one = made["odd"]
    assert torch.equal(pickle.loads(pickle.dumps(one)), want) and torch.equal(one.clone(), want)
    file = io.BytesIO()
    torch.save(one, file)
    assert len(file.getvalue()) < want.nbytes + 10_000
    assert one.untyped_storage().nbytes() == want.nbytes and one.storage_offset() == 0
    one.resize_(2 * len(want))
    assert torch.equal(one[: len(want)], want)
    one.share_memory_()
    assert one.is_shared() and torch.equal(one[: len(want)], want)
    if torch.cuda.is_available():
        assert made["large"].pin_memory().is_pinned()
    view = made["large"][1000:]
    del made, one
    gc.collect()
    assert view[0] == 1000 and view[-1] == SIZES["large"] // 4 - 1
    array = tensord.load_file(url_of(served, "m"), framework="np")["odd"]
    assert array.flags.owndata and array.flags.writeable
    array.resize(2 * len(want), refcheck=False)
    assert (array[: len(want)] == want.numpy()).all() and not array[len(want) :].any()
