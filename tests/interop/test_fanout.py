"""Ranks that fetch their own files beside ranks that fetch the whole, over a shaped link between two hosts in network
namespaces (bench/run.py --fanout), and what bench/simulate_fanout.py says of the same."""
import json
import os
import re
import subprocess
import sys

import pytest

from harness import REPO, release_binary, tensord_binary

sys.path.append(str(REPO / "bench"))

import simulate_fanout as sim  # noqa: E402

RANKS, MBIT = 8, 500
NODE_MBIT = 250  # of the link, and within the node: a round takes 3 s, half of it in each


def bench_fanout(mbit, *options):
    """Measure one rate, eight ranks of tp 8, two rounds. Who is not root becomes it in a user namespace."""
    command = [sys.executable, "-B", REPO / "bench/run.py", "--fanout", "--tensord", release_binary(), "--rates",
               str(mbit), "--ranks", str(RANKS), "--rounds", "2", "--json", "-", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result, = json.loads(done.stdout)["results"]
    return result


@pytest.fixture(scope="module")
def measured():
    return bench_fanout(MBIT)


def middle(values):
    return sorted(values)[len(values) // 2]


def test_ranks_take_an_eighth_of_the_time_of_whole_downloads(measured):
    """Within 10%. Their bytes are an eighth, and the little that each rank gets whole."""
    row, = measured["rows"]
    assert row["time_ratio"] == pytest.approx(1 / RANKS, rel=0.1), row
    extra = sum(row["rank_bytes"]) - row["whole_bytes"]
    assert 0 < row["repeated_bytes"] <= extra < 0.01 * row["whole_bytes"], row


def test_the_bytes_of_ranks_are_those_of_the_plan(measured):
    """Each tensor of two dimensions is cut into eighths; the three norms of 1,024 numbers in BF16 are whole on each."""
    row, = measured["rows"]
    norms = 3 * 1024 * 2
    tensors = 2 * (2 * 4096 * 1024 + 4 * 1024 * 1024 + 3 * 2816 * 1024) + norms
    assert row["repeated_bytes"] == (RANKS - 1) * norms
    assert 0 < row["whole_bytes"] - tensors < 4096, "a header"
    # Each rank's scales of queries, keys, values and probabilities, in F32, for each of the layers.
    assert row["constant_bytes"] > 0 and row["constant_bytes"] % (RANKS * 4 * 4) == 0
    assert sum(row["rank_bytes"]) == tensors + row["repeated_bytes"] + row["constant_bytes"] + row["padding_bytes"] + \
        row["header_bytes"]


@pytest.mark.parametrize("way", ["rank", "whole"])
def test_the_simulation_agrees(measured, way):
    """Within 15% of what was measured, for rank files and for whole downloads."""
    row, = measured["rows"]
    a = sim.defaults(model_gb=row["whole_bytes"] / 1e9, tp=RANKS, server_gbit=MBIT / 1000, mtu=measured["mtu"],
                     repeated=row["repeated_bytes"] / (RANKS - 1) / row["whole_bytes"])
    said = sim.simulate(a, RANKS, "server", way)
    assert said["limit"] == "servers: NIC"
    seconds = middle(row["seconds"]["ranks" if way == "rank" else way])
    assert said["last_s"] == pytest.approx(seconds, rel=0.15), row


def test_the_simulation_agrees_on_a_cold_cache_of_a_node():
    """Within 15% of the quicker of two rounds: what else the machine does can only delay them. Ranks read from the
    cache once the whole model is there, so that the time is that of the link and that of the node."""
    measured = bench_fanout(NODE_MBIT, "--node", str(NODE_MBIT))
    row, = measured["rows"]
    a = sim.defaults(model_gb=row["whole_bytes"] / 1e9, tp=RANKS, servers=1, server_gbit=NODE_MBIT / 1000,
                     mtu=measured["mtu"], local=NODE_MBIT / 8000,
                     repeated=row["repeated_bytes"] / (RANKS - 1) / row["whole_bytes"])
    said = sim.simulate(a, RANKS, "node")
    assert said["last_s"] == pytest.approx(min(row["seconds"]["node"]), rel=0.15), row


# ---- the simulation beside sums that can be done by hand

def run(groups, capacity, events=()):
    sim.run_groups(groups, capacity, events)
    return [group.end for group in groups]


def near(*values):
    return [pytest.approx(value, rel=2 * sim.MERGE) for value in values]


def test_a_narrow_link_leaves_the_rest_of_a_wide_one_to_others():
    """10 bytes/s for both. One gets no more than 2: 8 remain for the other."""
    groups = [sim.Group(1, 20, {"wide": 1, "narrow": 1}), sim.Group(1, 80, {"wide": 1})]
    assert run(groups, {"wide": 10, "narrow": 2}) == near(10, 10)
    assert max(groups[0].held_by, key=groups[0].held_by.get) == "narrow" and list(groups[1].held_by) == ["wide"]


def test_three_links_in_a_row():
    """The example of Bertsekas and Gallager's Data Networks, 6.5.2, in small: one flow over both links, one over each.
    The first link has 3 flows of 1/3; the second then has 1 - 1/3 left for its own."""
    groups = [sim.Group(1, 1, {"a": 1, "b": 1}), sim.Group(2, 1, {"a": 1}), sim.Group(1, 1, {"b": 1})]
    sim.set_rates(groups, {"a": 1, "b": 1})
    assert [group.rate for group in groups] == [pytest.approx(1 / 3), pytest.approx(1 / 3), pytest.approx(2 / 3)]


def test_what_others_leave_goes_to_who_can_use_it():
    """The narrow link holds the first to 1 of the wide link's 10; the second could have 9, and its own link takes 6."""
    groups = [sim.Group(1, 1, {"wide": 1, "narrow": 1}), sim.Group(1, 1, {"wide": 1, "own": 1})]
    sim.set_rates(groups, {"wide": 10, "narrow": 1, "own": 6})
    assert [(group.rate, group.limit) for group in groups] == [(1, "narrow"), (6, "own")]


def test_those_who_stay_get_the_share_of_those_who_ended():
    """5 bytes/s each for 2 s, then 10 for the other."""
    assert run([sim.Group(1, 10, {"x": 1}), sim.Group(1, 30, {"x": 1})], {"x": 10}) == near(2, 4)


def test_who_comes_later_takes_a_share():
    """10 bytes/s for 1 s, 5 for 2 s, 10 for 1 s."""
    assert run([sim.Group(1, 30, {"x": 1}), sim.Group(1, 10, {"x": 1}, start=1)], {"x": 10}) == near(4, 3)


def test_members_and_factors_count():
    """Four that use half a byte of the link for each of theirs: 5 bytes/s each of 10."""
    assert run([sim.Group(4, 50, {"x": 0.5})], {"x": 10}) == near(10)


def test_nobody_reads_more_than_the_cache_has():
    """The cache reads 100 bytes at 10 bytes/s; its reader, who could have them in a second, ends with it."""
    fill = sim.Group(1, 100, {"up": 1})
    groups = [fill, sim.Group(1, 100, {"down": 1}, after=[fill])]
    assert run(groups, {"up": 10, "down": 100}) == near(10, 10)
    assert list(groups[1].held_by) == ["up"]
    fill = sim.Group(1, 100, {"up": 1})
    assert run([fill, sim.Group(1, 100, {"down": 1}, after=[fill])], {"up": 100, "down": 10}) == near(1, 10)


def test_who_waits_for_a_whole_model_begins_when_it_is_there():
    """The fetch takes 10 s. 100 bytes at 20 bytes/s take 5 s, which count from then on. What the fetch waits for
    itself counts as well."""
    fill = sim.Group(1, 100, {"up": 1})
    groups = [fill, sim.Group(1, 100, {"down": 1}, after=[fill], waits=True)]
    assert run(groups, {"up": 10, "down": 20}) == near(10, 15)
    assert groups[1].held_by == {"up": pytest.approx(10), "down": pytest.approx(5)}
    fill = sim.Group(1, 100, {"up": 1}, start=2)
    fetch = sim.Group(1, 100, {"between": 1}, 2, [fill])
    assert run([fill, fetch, sim.Group(1, 100, {"down": 1}, 2, [fetch], waits=True)],
               {"up": 10, "between": 1000, "down": 20}) == near(12, 12, 17)
    assert run([sim.Group(1, 100, {"down": 1}, 3, waits=True)], {"down": 20}) == near(8), "nothing to wait for"


def test_what_has_no_capacity_is_an_error():
    with pytest.raises(sim.SimulationError, match="do not end"):
        run([sim.Group(1, 1, {"x": 1})], {"x": 0})


BOUND = {"model_gb": 80, "tp": 8, "repeated": 0, "server_gbit": 10, "mtu": 1500, "rank_gbit": 10 ** 6,
         "node_gbit": 1000, "oversubscription": 1, "cache_gbit": 1000, "cache_disk": 1000, "cache_cores": 1000,
         "server_cores": 1000, "node_disk": 1000, "local": 10 ** 6, "servers": 4}
PER_SECOND = 10e9 / 8 * 1448 / 1514           # payload of 10 Gbit/s in packets of 1,500 bytes


@pytest.mark.parametrize("tier, way, ranks, gb", [
    ("server", "whole", 64, 64 * 80),
    ("server", "rank", 64, 64 * 10),
    ("replicas", "whole", 64, 64 * 80),
    ("replicas", "rank", 64, 64 * 10),
    ("rack", "whole", 64, 2 * 80),            # 8 nodes in 2 racks
    ("rack", "rank", 64, 2 * 80),
    ("node", "rank", 64, 8 * 80),
    ("rack+node", "rank", 64, 2 * 80),
    ("peers", "rank", 64, 80),
    ("rack", "rank", 4, 40),                  # half of the ranks ask for half of the files
])
def test_bytes_of_each_tier(tier, way, ranks, gb):
    """Where nothing but the servers' cards is in the way, time is bytes by rate."""
    r = sim.simulate(sim.defaults(**BOUND), ranks, tier, way)
    assert r["servers_gb"] == pytest.approx(gb, rel=1e-3)
    servers = 1 if tier == "server" else 4
    assert r["last_s"] == pytest.approx(gb * 1e9 / servers / PER_SECOND, rel=2 * sim.MERGE)
    assert r["limit"] == "servers: NIC"


def test_what_caches_have_is_not_fetched():
    r = sim.simulate(sim.defaults(**BOUND, hit=0.75), 64, "rack", "rank")
    assert r["servers_gb"] == pytest.approx(2 * 20)


def test_what_each_rank_gets_whole_is_added():
    r = sim.simulate(sim.defaults(**BOUND | {"repeated": 0.1}), 8, "server", "rank")
    assert r["servers_gb"] == pytest.approx(8 * (8 + 9)), "a tenth of 80 GB, and an eighth of the rest"


@pytest.mark.parametrize("change, tier, seconds, limit", [
    ({"server_cores": 2, "rank_cpu": 8}, "server", 320 / (2 / 8), "servers: CPU"),
    ({"node_gbit": 8, "mtu": 10 ** 9}, "server", 80, "node NICs"),
    ({"rank_gbit": 4, "mtu": 10 ** 9}, "server", 20, "ranks"),
    ({"oversubscription": 10, "node_gbit": 80, "mtu": 10 ** 9}, "server", 320 / 4, "uplink"),
    ({"cache_gbit": 8, "mtu": 10 ** 9}, "rack", 320, "cache NIC"),
    ({"cache_cores": 1, "cache_cpu": 2, "fill_cpu": 4}, "rack", 320 * 2 + 80 * 4, "cache CPU"),
    ({"cache_cores": 1, "cache_cpu": 0.001, "fill_cpu": 4}, "rack", 320, "cache CPU"),
    ({"server_cores": 2, "server_cpu": 8, "rank_cpu": 1}, "node", 320 / (2 / 8) / 4, "servers: CPU"),
    ({"cache_disk": 0.5}, "rack", 160, "cache disk"),
    ({"node_disk": 2}, "node", 40, "node disks"),
    ({"node_disk": 2, "local": 0.5}, "node", 40 + 160, "local reads"),
    ({"node_disk": 0.5, "local": 2}, "node", 160 + 40, "node disks"),
    ({"node_disk": 2, "local": 0.5}, "rack+node", 40 + 160, "local reads"),
    ({"node_disk": 2, "local": 0.5}, "peers", 40 + 160, "local reads"),
    ({"hit": 0.75, "node_disk": 2, "local": 0.5}, "node", 10 + 160, "local reads"),
    ({"hit": 1, "node_disk": 2, "local": 0.5}, "node", 160, "local reads"),
])
def test_each_resource_can_be_the_limit(change, tier, seconds, limit):
    """One rack of four nodes, 32 ranks of 10 GB, servers that are never in the way. Ranks read 80 GB from their node's
    cache after that has fetched 80 GB."""
    r = sim.simulate(sim.defaults(**BOUND | {"server_gbit": 100000} | change), 32, tier, "rank")
    assert (r["limit"], r["last_s"]) == (limit, pytest.approx(seconds, rel=2 * sim.MERGE))
    if change.get("hit") == 1:
        assert r["servers_gb"] == 0


def test_one_key_of_a_hash_is_one_replica():
    """All requests for one object go to one replica; with very many keys all have the same to do."""
    even = sim.simulate(sim.defaults(**BOUND), 64, "replicas", "rank")["last_s"]
    hot = sim.simulate(sim.defaults(**BOUND, balance="hash", keys=1), 64, "replicas", "rank")["last_s"]
    fine = sim.simulate(sim.defaults(**BOUND, balance="hash", keys=100_000), 64, "replicas", "rank")["last_s"]
    assert hot == pytest.approx(4 * even, rel=1e-3) and fine == pytest.approx(even, rel=0.03)


@pytest.mark.parametrize("balance", ["even", "hash"])
def test_replicas_that_die_leave_their_work_to_the_others(balance):
    """640 GB; four replicas for 100 s, then two that are never idle. What was fetched is not fetched again."""
    a = sim.defaults(**BOUND, balance=balance, keys=100_000, fail=2, fail_at=100, retry=5)
    r = sim.simulate(a, 64, "replicas", "rank")
    assert r["last_s"] == pytest.approx(100 + (640e9 - 400 * PER_SECOND) / 2 / PER_SECOND, rel=0.03)
    assert r["servers_gb"] == pytest.approx(640, rel=1e-3)


def test_a_cache_waits_for_what_goes_on_at_another_replica():
    """Half of what the racks' caches fetch stops for an hour."""
    r = sim.simulate(sim.defaults(**BOUND, fail=2, fail_at=10, retry=3600), 64, "rack", "rank")
    assert r["first_s"] > 3610 and r["servers_gb"] == pytest.approx(160, rel=1e-3)


def test_peers_fetch_most_from_other_racks():
    """Of the 12 peers with seeds, 3 are others in the same rack."""
    r = sim.simulate(sim.defaults(**BOUND), 64, "peers")
    assert r["uplinks_gb"] == pytest.approx(8 * 80 * 9 / 12)


def test_a_failure_that_leaves_nobody_is_refused():
    with pytest.raises(sim.SimulationError, match="leaves none of 4"):
        sim.simulate(sim.defaults(**BOUND, fail=4), 64, "replicas")


def test_chance_is_that_of_the_seed():
    one, same, other = (sim.simulate(sim.defaults(**BOUND, spread=30, balance="hash", seed=seed), 512, "rack", "rank")
                        for seed in (1, 1, 2))
    assert one == same and one["last_s"] != other["last_s"] and one["first_s"] < one["median_s"] < one["last_s"]


def command(*arguments, **more):
    return subprocess.run([sys.executable, "-B", REPO / "bench/simulate_fanout.py", *map(str, arguments)],
                          capture_output=True, text=True, **more)


def test_the_command_prints_a_table_or_json():
    done = command("--ranks", "8,10000")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1 and len(lines) == 2 + 2 * (3 * 2 + 3)
    data = json.loads(command("--ranks", 64, "--tiers", "rack", "--servers", 2, "--json").stdout)
    assert data["assumptions"]["servers"] == 2 and [row["way"] for row in data["rows"]] == ["whole", "rank"]
    named = command("--assumptions").stdout
    assert all(f"--{name} " in named and what in named for name, _, _, what, _ in sim.ASSUMPTIONS)


@pytest.mark.parametrize("arguments, message", [
    (["--tp", 0], "--tp cannot be 0"),
    (["--servers", 1.5], "--servers cannot be 1.5"),
    (["--node-gbit", "nan"], "--node-gbit cannot be nan"),
    (["--hit", 2], "shares from 0 to 1"),
    (["--balance", "best"], "--balance cannot be best"),
    (["--ranks", 0], "--ranks must be from 1 to 100000"),
    (["--tiers", "moon"], "unknown moon"),
    (["--plan", os.devnull], "not the JSON of `tensord plan`"),
    (["--fail", 8], "leaves none of 8"),
    (["--nodes", 64], "unrecognized arguments: --nodes 64"),     # it does not stand for --nodes-per-rack
])
def test_wrong_parameters_are_refused(arguments, message):
    done = command(*arguments)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_plan_sets_the_bytes(tmp_path):
    """A rank of three gets a third of 60 GB and 4 GB more: 10% of the model is whole on each."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"checkpoint_bytes": 60 * 10 ** 9, "tp_size": 3,
                                "ranks": [{"nbytes": 24 * 10 ** 9}] * 3}))
    data = json.loads(command("--plan", plan, "--ranks", 3, "--tiers", "server", "--json").stdout)
    assert data["rows"][1]["servers_gb"] == pytest.approx(72) and data["assumptions"]["repeated"] == pytest.approx(0.1)


# ---- docs/scaling.md

def rows_of_page(first):
    """Return the cells of the rows of the table of docs/scaling.md whose head begins with these cells."""
    lines = iter((REPO / "docs/scaling.md").read_text().splitlines())
    for line in lines:
        if re.match(r"\|\s*" + r"\s*\|\s*".join(map(re.escape, first)), line):
            break
    next(lines)
    found = []
    for line in lines:
        if not line.startswith("|"):
            return found
        found.append([cell.strip().replace(",", "") for cell in line.split("|")[1:-1]])


def test_the_page_has_the_seconds_of_the_simulation():
    cases = [("server", "whole"), ("server", "rank"), ("replicas", "whole"), ("replicas", "rank"), ("rack", "rank"),
             ("node", "rank"), ("rack+node", "rank"), ("peers", "rank")]
    rows = rows_of_page(["ranks", "server, whole"])
    assert [row[0] for row in rows] == ["8", "64", "512", "4096", "10000"]
    for ranks, *cells in rows:
        said = [round(sim.simulate(sim.defaults(), int(ranks), *case)["last_s"]) for case in cases]
        assert list(map(int, cells)) == pytest.approx(said, abs=1), ranks


def test_the_page_has_the_bytes_of_the_plans():
    """And the defaults of the simulation are those of the 70B model at tp 8."""
    done = subprocess.run([sys.executable, "-B", REPO / "bench/run.py", "--model-bytes", "--tensord", tensord_binary()],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if "|" in line]
    rows = rows_of_page(["Llama 3", "tp"])
    assert len(rows) == 8 and all(row in printed for row in rows), printed
    whole, rank = next((float(row[2]), float(row[3])) for row in rows if row[:2] == ["70B", "8"])
    a = sim.defaults()
    assert (a.model_gb, a.tp) == (whole, 8) and sim.Site(a, 8, "server", "rank").rank_bytes / 1e9 == \
        pytest.approx(rank, abs=0.005)


def test_the_page_has_the_ranks_that_a_processor_feeds():
    """In 60 s, by the bytes of rank files or of whole models, and by the processor time that the simulation takes."""
    a = sim.defaults()
    sizes = {row[0]: row for row in rows_of_page(["Llama 3", "tp"]) if row[1] == "8"}
    whole, rank = ([float(sizes[model][column]) for model in ("8B", "70B", "405B")] for column in (2, 3))
    cells = {row[0]: row[5] for row in rows_of_page(["what is sent"]) if row[5]}
    said = {"whole files": (a.server_cpu, whole), "rank files": (a.rank_cpu, rank), "ranges of 1 to 256": (0.7, whole),
            "nginx that answers": (a.cache_cpu, rank)}
    assert len(cells) == len(said)
    for name, (seconds, sizes_gb) in said.items():
        cell, = (cells[what] for what in cells if what.startswith(name))
        assert ("whole models: " in cell) == (sizes_gb is whole), name
        assert list(map(float, cell.rpartition(": ")[2].split("; "))) == \
            [pytest.approx(60 / seconds / gb, abs=0.06) for gb in sizes_gb], name


def test_small_models_are_told_in_mb_and_ms():
    """10 MB over 8 ranks: 1.25 MB each; all eight fetch 10 MB from one server, whose rank files leave it once."""
    command = [sys.executable, "-B", REPO / "bench/simulate_fanout.py", "--model-gb", "0.01", "--repeated", "0",
               "--ranks", "8", "--tiers", "server"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "- 10.0 MB, tp 8: a rank file has 1.25 MB;" in text
    head, rank = (next(line for line in text.splitlines() if word in line).split("|")
                  for word in ("last ms", "| rank files"))
    assert rank[[cell.strip() for cell in head].index("MB from servers")].strip() == "10"


def test_a_reader_that_has_seen_enough_is_no_error():
    """The end that reads is closed before anything is written."""
    reader, writer = os.pipe()
    os.close(reader)
    p = subprocess.run([sys.executable, "-B", REPO / "bench/simulate_fanout.py", "--ranks", "8", "--tiers", "server"],
                       stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (p.returncode, p.stderr) == (0, "")
