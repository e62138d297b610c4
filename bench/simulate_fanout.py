#!/usr/bin/env python3
"""How long N ranks take to fetch their part of a model, over servers, replicas, caches and peers: a fluid model.

Each group of equal transfers has one rate for all its members. Rates are max-min fair: all grow alike until something
that they use is full (a network card, processors, a rack's uplink, a disk), which then holds its users back, while the
others grow on. Rates change when transfers begin or end, and when servers fail. Standard library alone.

    bench/simulate_fanout.py                                  # 8 to 10,000 ranks over all tiers
    bench/simulate_fanout.py --ranks 512                      # 64 nodes of 8
    bench/simulate_fanout.py --ranks 1024 --tiers replicas,rack --servers 16 --server-gbit 200
    tensord plan DIR MODEL --engine vllm --tp 8 --json > plan.json && bench/simulate_fanout.py --plan plan.json
    bench/simulate_fanout.py --assumptions                    # what each parameter means, and where its default is from

What the model leaves out: round trips and the start of TCP (it is for transfers of seconds), loss, the time of planning
(milliseconds), and that a reader who waits for its cache to be filled leaves its share of the cache to others. A reader
of a rack's cache gets pieces while the cache fetches, and ends at the same time as that fetch, or later. Rank files of
a node's cache exist when the whole model is on the node: their readers begin then.
"""
import argparse
import dataclasses
import heapq
import json
import math
import os
import random
import sys

sys.dont_write_bytecode = True

from measure import number, table  # noqa: E402

GB = 1e9
MERGE = 1e-3  # transfers that end within this fraction of the time leave together; each has its own end all the same

# Name, default, unit, what it is, where the default is from.
ASSUMPTIONS = [
    ("model-gb", 141.11, "GB", "bytes of the whole model", "Llama 3 70B in BF16, by `bench/run.py --model-bytes`"),
    ("tp", 8, "", "ranks of a tensor-parallel group; each group fetches the whole model", "one node of eight GPUs"),
    ("repeated", 0.00002, "", "share of the model's bytes that each rank gets whole (norms, repeated KV heads)",
     "`bench/run.py --model-bytes`, Llama 3 70B at tp 8"),
    ("ranks-per-node", 8, "", "ranks, and so GPUs, of a node", "common servers with GPUs"),
    ("nodes-per-rack", 4, "", "nodes of a rack", "assumed: the power of a rack allows about four such nodes"),
    ("node-gbit", 100, "Gbit/s", "of a node's card for storage, in each direction", "assumed"),
    ("rank-gbit", 20, "Gbit/s", "that one rank takes at most: a copy to memory by one or two processors",
     "docs/client-performance.md: 2 GB/s by the Python client into new memory, 7 into memory that exists"),
    ("oversubscription", 3, "", "bandwidth of a rack's nodes by that of its uplink",
     "assumed: common in leaf and spine"),
    ("mtu", 1500, "bytes", "of every link: a packet has 52 bytes of IP and TCP and 14 of Ethernet beside its payload",
     "Ethernet; 9000 where all switches have it"),
    ("servers", 8, "", "replicas; the tier `server` has one", "assumed"),
    ("server-gbit", 100, "Gbit/s", "of a server's card", "assumed"),
    ("server-cores", 16, "", "processors of a server", "assumed"),
    ("server-cpu", 0.15, "s/GB", "processor time of a server for long ranges over plain HTTP; 0.7 with TLS",
     "docs/scaling.md, measured over a link"),
    ("rank-cpu", 0.4, "s/GB", "the same for rank files, which are put together of many runs",
     "docs/scaling.md, measured over a link"),
    ("balance", "even", "", "how requests find a replica: even, as least connections does; or hash, by the key of a "
     "consistent hash, which puts all requests for one key onto one replica", "assumed"),
    ("keys", 0, "", "of the hash, all of the same length; 0: one for each rank file, or one for each 4 GB of the model",
     "files of checkpoints have about 4 GB; nginx with slices of 16 MiB has 8,400 for 141 GB"),
    ("cache-gbit", 100, "Gbit/s", "of the card of a rack's cache", "assumed"),
    ("cache-cores", 16, "", "processors of a rack's cache", "assumed"),
    ("cache-cpu", 0.13, "s/GB", "processor time of a rack's cache that answers from what it has",
     "docs/scaling.md, measured: nginx; tensord is --server-cpu"),
    ("fill-cpu", 1.5, "s/GB", "processor time of a rack's cache that fetches and stores",
     "docs/scaling.md, measured: nginx by slices; tensord by --upstream takes as much"),
    ("cache-disk", 5, "GB/s", "that a rack's cache writes to its disks; it is read from memory",
     "assumed: two NVMe disks"),
    ("hit", 0, "", "share of the bytes that the caches of racks or nodes have before the start", "a cold start"),
    ("node-disk", 3, "GB/s", "that a node's cache writes to its disk", "assumed: one NVMe disk"),
    ("local", 10, "GB/s", "at which a node's ranks together read from its own cache, over loopback",
     "docs/performance.md: 7 GB/s by two processors"),
    ("seeds", 4, "", "peers that fetch from the servers for all others", "assumed"),
    ("peer-efficiency", 0.8, "", "share of the peers' cards that exchanging pieces uses", "assumed"),
    ("spread", 0, "s", "racks begin at random times within so many seconds", "all at once, the worst case"),
    ("fail", 0, "", "replicas that die; less than --servers", "none"),
    ("fail-at", 1, "s", "when they die", ""),
    ("retry", 2, "s", "until their clients resume at another server",
     "a health check of a second, and a retry"),
    ("seed", 1, "", "of all that is random", ""),
]
TIERS = {
    "server": "every rank asks one server",
    "replicas": "every rank asks one of the replicas",
    "rack": "a cache in each rack, behind it the replicas: nginx; for whole models one that keeps whole files",
    "node": "a cache on each node (tensord serve --upstream), behind it the replicas; ranks wait for the model",
    "rack+node": "a cache on each node, behind it one in each rack (both with --upstream), behind it the replicas",
    "peers": "nodes that share pieces (as Dragonfly does) until they have the model; seeds ask the replicas",
}
WAYS = {"whole": "whole model", "rank": "rank files"}  # of tiers whose ranks ask for what they want themselves
ASKED = ("server", "replicas", "rack")


class SimulationError(Exception):
    """Parameters that make no sense; the message is one line."""


def defaults(**changes):
    """Returns the assumptions, some of them changed, as a namespace with underscores in its names."""
    values = {name.replace("-", "_"): value for name, value, *_ in ASSUMPTIONS}
    unknown = set(changes) - set(values)
    if unknown:
        raise SimulationError("no assumption is called %s" % ", ".join(sorted(unknown)))
    return argparse.Namespace(**{**values, **changes})


# ---- the fluid model

@dataclasses.dataclass(eq=False)
class Group:
    """Equal transfers. count: how many. uses: {resource: bytes that pass it for each byte of a transfer}. after: groups
    that must have ended first, as a cache's own fetch must before its readers can end. waits: these must have ended
    before it begins; such a group uses nothing that others use, so its rate does not depend on when that is."""
    count: float
    nbytes: float
    uses: dict
    start: float = 0.0
    after: list = dataclasses.field(default_factory=list)
    tag: str = ""
    waits: bool = False
    left: float = 0.0
    end: float = math.inf
    sent: float = 0.0  # bytes of all members together
    rate: float = 0.0
    limit: str = ""
    held_by: dict = dataclasses.field(default_factory=dict)  # resource: seconds for which it set the rate


def set_rates(groups, capacity):
    """Gives each group its max-min fair `rate`, and `limit`, the resource that set it."""
    users = {}
    for group in groups:
        group.rate = None
        for name in group.uses:
            users.setdefault(name, []).append(group)
    room = {name: capacity[name] for name in users}
    load = {name: sum(group.count * group.uses[name] for group in groups_) for name, groups_ in users.items()}
    order = [(room[name] / load[name], name) for name in users]
    heapq.heapify(order)
    while order:
        share, name = heapq.heappop(order)
        rest = [group for group in users[name] if group.rate is None]
        if not rest:
            continue
        now = max(0.0, room[name]) / load[name]
        if now > share * (1 + 1e-12):  # groups that others hold back leave more for the rest
            heapq.heappush(order, (now, name))
            continue
        for group in rest:
            group.rate, group.limit = now, name
            for other, factor in group.uses.items():
                room[other] -= group.count * factor * now
                load[other] = max(load[other] - group.count * factor, 1e-9)


def run_groups(groups, capacity, events=()):
    """Runs all groups to their end. events: (seconds, function of the time and of the groups that have not ended, which
    may change these and the capacity, and returns groups to add). Sets `end` of every group."""
    waiting = sorted(groups, key=lambda group: group.start)
    for group in waiting:
        group.left = group.nbytes
    running, events, now = [], sorted(events, key=lambda event: event[0]), 0.0
    while waiting or running:
        set_rates(running, capacity)
        ends = [now + group.left / group.rate if group.rate else math.inf for group in running]
        first = min(ends, default=math.inf)
        horizon = first + MERGE * (first - now) if first < math.inf else math.inf
        limit = min([group.start for group in waiting[:1]] + [event[0] for event in events[:1]], default=math.inf)
        until = min(horizon, limit)
        if until == math.inf:
            raise SimulationError("transfers do not end: something that they use has no capacity")
        advance(running, ends, now, until)
        now = until
        while events and events[0][0] <= now:
            waiting = sorted(waiting + events.pop(0)[1](now, running + waiting), key=lambda group: group.start)
        running += [group for group in waiting if group.start <= now]
        running = [group for group in running if group.end == math.inf]
        waiting = [group for group in waiting if group.start > now]
    settle_ends(groups)


def advance(running, ends, now, until):
    """Moves all groups to the time `until`. Those that end before get their own time of the end."""
    for group, end in zip(running, ends):
        seconds = min(end, until) - now
        group.held_by[group.limit] = group.held_by.get(group.limit, 0.0) + seconds
        group.sent += group.count * group.rate * seconds
        if end <= until:
            group.left, group.end = 0.0, end
        else:
            group.left -= group.rate * seconds


def settle_ends(groups):
    """Lets no reader of a cache end before the cache's own fetch, and gives a reader that waits for that fetch the time
    of both. Each group comes after those in its `after`. Call it once."""
    for group in groups:
        if not group.after:
            continue
        source = max(group.after, key=lambda other: other.end)
        if group.waits:
            group.end += source.end - group.start
            group.held_by = {name: group.held_by.get(name, 0.0) + source.held_by.get(name, 0.0)
                             for name in {**group.held_by, **source.held_by}}
        elif source.end > group.end:
            group.end, group.held_by = source.end, source.held_by


# ---- tiers

class Site:
    """The resources of a site, and the groups of transfers of one way to use it."""

    def __init__(self, a, ranks, tier, way):
        self.a, self.ranks, self.tier, self.way = a, ranks, tier, way
        self.random = random.Random("%s/%s/%s/%s" % (a.seed, ranks, tier, way))
        self.payload = (a.mtu - 52) / (a.mtu + 14)
        self.servers = 1 if tier == "server" else a.servers
        self.capacity, self.groups = {}, []
        self.model = a.model_gb * GB
        self.rank_bytes = self.model * (a.repeated + (1 - a.repeated) / a.tp)
        self.nodes = math.ceil(ranks / a.ranks_per_node)
        self.racks = math.ceil(self.nodes / a.nodes_per_rack)
        self.add_servers()
        for rack in range(self.racks):
            self.add_rack(rack)

    def link(self, gbit):
        """Returns the payload in bytes per second of a link."""
        return gbit * GB / 8 * self.payload

    def cpu(self, cores, seconds_per_gb):
        return cores / seconds_per_gb * GB

    def add_servers(self):
        """With an even balance the replicas are one resource; by a hash each is one, and some get more keys."""
        a = self.a
        asks_for_rank_files = self.way == "rank" and self.tier in ASKED
        pools = {"servers": self.servers} if a.balance == "even" else {
            "server %d" % number_: 1 for number_ in range(self.servers)}
        for name, size in pools.items():
            self.capacity[name + ": NIC"] = size * self.link(a.server_gbit)
            self.capacity[name + ": CPU"] = size * self.cpu(a.server_cores, a.rank_cpu if asks_for_rank_files else
                                                            a.server_cpu)
        self.pools = list(pools)
        keys = a.keys or (a.tp if asks_for_rank_files else math.ceil(a.model_gb / 4))
        counts = dict.fromkeys(self.pools, 0)
        for _ in range(keys):
            counts[self.random.choice(self.pools)] += 1
        self.shares = {name: count / keys for name, count in counts.items() if count}

    def from_servers(self, count, nbytes, uses, **more):
        """Adds groups that fetch from the replicas, one for each of them that has keys, and returns them."""
        groups = [Group(count * share, nbytes, {**uses, pool + ": NIC": 1, pool + ": CPU": 1}, **more)
                  for pool, share in self.shares.items()]
        self.groups += groups
        return groups

    def add_rack(self, rack):
        """Adds the resources and transfers of one rack. The last rack may have fewer nodes, the last node fewer
        ranks."""
        a, name = self.a, "rack %d" % rack
        nodes = min(a.nodes_per_rack, self.nodes - rack * a.nodes_per_rack)
        ranks = min(a.nodes_per_rack * a.ranks_per_node, self.ranks - rack * a.nodes_per_rack * a.ranks_per_node)
        start = self.random.uniform(0, a.spread) if a.spread else 0.0
        self.capacity.update({
            name + ": uplink": self.link(a.nodes_per_rack * a.node_gbit) / a.oversubscription,
            name + ": node NICs": nodes * self.link(a.node_gbit), name + ": ranks": ranks * self.link(a.rank_gbit),
            name + ": cache NIC": self.link(a.cache_gbit), name + ": cache CPU": self.cpu(a.cache_cores, a.cache_cpu),
            name + ": cache disk": a.cache_disk * GB, name + ": node disks": nodes * a.node_disk * GB,
            name + ": local reads": nodes * a.local * GB})
        {"server": self.ask_servers, "replicas": self.ask_servers, "rack": self.ask_rack, "node": self.ask_node,
         "rack+node": self.ask_node, "peers": self.ask_peers}[self.tier](name, nodes, ranks, start)

    def wanted(self):
        """Returns the bytes that one rank asks for."""
        return self.rank_bytes if self.way == "rank" else self.model

    def ask_servers(self, name, _nodes, ranks, start):
        self.from_servers(ranks, self.wanted(), {name + ": uplink": 1, name + ": node NICs": 1, name + ": ranks": 1},
                          start=start, tag="ranks")

    def fill_rack(self, name, objects, nbytes, start):
        """Adds the fetch of a rack's cache: each object once, less what it has already."""
        missing = 1 - self.a.hit
        if not missing:
            return []
        return self.from_servers(objects, nbytes * missing, {
            name + ": uplink": 1, name + ": cache disk": 1, name + ": cache CPU": self.a.fill_cpu / self.a.cache_cpu},
            start=start)

    def ask_rack(self, name, _nodes, ranks, start):
        objects = min(self.a.tp, ranks) if self.way == "rank" else 1
        source = self.fill_rack(name, objects, self.wanted(), start)
        self.groups.append(Group(ranks, self.wanted(), {
            name + ": cache NIC": 1, name + ": cache CPU": 1, name + ": node NICs": 1, name + ": ranks": 1},
            start, source, "ranks"))

    def ask_node(self, name, nodes, ranks, start):
        """The cache of a node fetches the whole model, and then makes rank files of it."""
        uses = {name + ": node NICs": 1, name + ": node disks": 1}
        missing = 1 - self.a.hit
        fetch = []
        if missing and self.tier == "node":
            fetch = self.from_servers(nodes, self.model * missing, {**uses, name + ": uplink": 1}, start=start)
        elif missing:
            source = self.fill_rack(name, 1, self.model, start)
            uses.update({name + ": cache NIC": 1, name + ": cache CPU": 1})
            fetch = [Group(nodes, self.model * missing, uses, start, source)]
            self.groups += fetch
        self.read_locally(name, ranks, start, fetch)

    def read_locally(self, name, ranks, start, source):
        """Adds the ranks of a rack that read rank files on their nodes, which are there when the whole model is."""
        uses = {name + ": local reads": 1, name + ": ranks": 1}
        self.groups.append(Group(ranks, self.rank_bytes, uses, start, source, "ranks", waits=True))

    def ask_peers(self, name, nodes, ranks, start):
        """Seeds fetch the model once; nodes fetch it from all nodes alike, so most pieces come from other racks. Ranks
        read it on their nodes when it is whole there, since peers share files by their digests."""
        a = self.a
        if not self.groups:
            self.capacity["peers"] = (self.nodes + a.seeds) * self.link(a.node_gbit) * a.peer_efficiency
            self.capacity["seeds: NICs"] = a.seeds * self.link(a.node_gbit)
            self.seeding = self.from_servers(1, self.model, {"seeds: NICs": 1}, start=start)
        fetch = Group(nodes, self.model, {"peers": 1, name + ": node NICs": 1, name + ": node disks": 1,
                                          name + ": uplink": 1 - (nodes - 1) / (self.nodes + a.seeds)}, start,
                      self.seeding)
        self.groups.append(fetch)
        self.read_locally(name, ranks, start, [fetch])

    def fail_servers(self, now, groups):
        """Takes --fail replicas away. Their transfers stop, and resume at the others after --retry."""
        a = self.a
        dead = ["server %d" % number_ for number_ in range(a.fail)] if a.balance == "hash" else []
        survivors = [pool for pool in self.pools if pool not in dead]
        if not dead:
            for kind in (": NIC", ": CPU"):
                self.capacity["servers" + kind] *= 1 - a.fail / self.servers
        moved = []
        for group in groups:
            pool = next((name for name in self.pools if name + ": NIC" in group.uses), None)
            share = 0 if pool is None else float(pool in dead) if dead else a.fail / self.servers
            if share:
                moved += self.move(group, pool, share, survivors, now, max(now + a.retry, group.start))
        return moved

    def move(self, group, pool, share, survivors, now, start):
        """Moves a share of a group's members to the survivors, and returns the groups that resume at `start`."""
        rest = {name: factor for name, factor in group.uses.items() if not name.startswith(pool + ": ")}
        moved = [Group(group.count * share / len(survivors), group.nbytes,
                       {**rest, survivor + ": NIC": 1, survivor + ": CPU": 1}, start, list(group.after), group.tag,
                       left=group.left) for survivor in survivors]
        group.count *= 1 - share
        if not group.count:
            group.end = now
        at = self.groups.index(group) + 1
        self.groups[at:at] = moved
        for other in self.groups:
            if group in other.after:
                other.after += moved
        return moved


def check(a, ranks):
    """Refuses parameters that make no sense."""
    whole = ("tp", "ranks_per_node", "nodes_per_rack", "servers", "seeds", "keys", "fail")
    for name, *_ in ASSUMPTIONS:
        value = getattr(a, name.replace("-", "_"))
        zero = name in ("repeated", "keys", "hit", "spread", "fail", "fail-at", "retry", "seed")
        if name == "balance":
            good = value in ("even", "hash")
        else:
            good = math.isfinite(value) and (value >= 0 if zero else value > 0)
            good = good and (name.replace("-", "_") not in whole or value == int(value))
        if not good:
            raise SimulationError("--%s cannot be %s" % (name, value))
    if a.repeated > 1 or a.hit > 1 or a.mtu <= 52:
        raise SimulationError("--repeated and --hit are shares from 0 to 1, --mtu is above 52")
    if not 1 <= ranks <= 100_000:
        raise SimulationError("--ranks must be from 1 to 100000, not %s" % ranks)


def simulate(a, ranks, tier, way="rank"):
    """Returns what happens when so many ranks begin: a dict of seconds (first, median and last rank), bytes, and the
    resource that held the last rank back. way: what ranks ask servers and caches of racks for."""
    check(a, ranks)
    site = Site(a, ranks, tier, way)
    events = []
    if a.fail and tier != "server":
        if a.fail >= a.servers:
            raise SimulationError("--fail %d leaves none of %d servers" % (a.fail, a.servers))
        events = [(a.fail_at, site.fail_servers)]
    run_groups(site.groups, site.capacity, events)
    return describe(site)


def describe(site):
    readers = sorted((group for group in site.groups if group.tag == "ranks" and group.count), key=lambda g: g.end)
    last = readers[-1]
    limit = max(last.held_by, key=last.held_by.get)
    served = sum(group.sent for group in site.groups if any(pool + ": NIC" in group.uses for pool in site.pools))
    uplinks = sum(group.sent * factor for group in site.groups for name, factor in group.uses.items()
                  if name.endswith(": uplink"))
    return {"ranks": site.ranks, "nodes": site.nodes, "racks": site.racks, "tier": site.tier, "way": site.way,
            "rank_bytes": site.rank_bytes, "first_s": readers[0].end, "median_s": middle(readers), "last_s": last.end,
            "servers_gb": served / GB, "uplinks_gb": uplinks / GB, "limit": limit.split(": ", 1)[-1]
            if limit.startswith("rack") else limit}


def middle(readers):
    """Returns the time when half of all ranks have ended."""
    half, seen = sum(group.count for group in readers) / 2, 0.0
    for group in readers:
        seen += group.count
        if seen >= half * (1 - 1e-9):
            return group.end
    return readers[-1].end


# ---- the command

def cases(ranks, tiers):
    for count in ranks:
        for tier in tiers:
            for way in WAYS if tier in ASKED else ["rank"]:
                yield count, tier, way


def report(a, rows):
    """Returns the table; of models below 1 GB in MB and ms."""
    factor, size, time = (1, "GB", "s") if a.model_gb >= 1 else (1000, "MB", "ms")
    lines = ["- %s %s, tp %d: a rank file has %s %s; %d ranks on a node, %d nodes in a rack"
             % (number(a.model_gb * factor, 1), size, a.tp, number(rows[0]["rank_bytes"] / GB * factor, 2), size,
                a.ranks_per_node, a.nodes_per_rack),
             "- servers: 1 or %d of %g Gbit/s; nodes: %g Gbit/s; racks: uplink 1:%g; --assumptions has the rest"
             % (a.servers, a.server_gbit, a.node_gbit, a.oversubscription)]
    cells = [[number(row["ranks"], 0), row["tier"], WAYS[row["way"]] if row["tier"] in ASKED else "-",
              *(number(row[name] * factor, 1) for name in ("first_s", "median_s", "last_s")),
              *(number(row[name] * factor, 0) for name in ("servers_gb", "uplinks_gb")), row["limit"]] for row in rows]
    columns = ["ranks", "tier", "ranks fetch", "first " + time, "median " + time, "last " + time,
               size + " from servers", size + " into racks", "limited by"]
    return "\n".join(lines) + "\n\n" + table(columns, cells)


def assumptions_text(a):
    rows = [["--" + name, getattr(a, name.replace("-", "_")), unit, what, source]
            for name, _, unit, what, source in ASSUMPTIONS]
    return table(["parameter", "value", "unit", "what", "default from"], rows) + "\n\n" + table(
        ["tier", "what"], list(TIERS.items()))


def read_plan(path, a):
    """Takes the model's bytes, tp and what ranks get whole from the JSON of `tensord plan`."""
    try:
        with sys.stdin if path == "-" else open(path) as file:
            plan = json.load(file)
        ranks = [rank["nbytes"] for rank in plan["ranks"]]
        whole, tp = plan["checkpoint_bytes"], plan["tp_size"]
        a.model_gb, a.tp = whole / GB, tp
        a.repeated = 0.0 if tp == 1 else max(0.0, (max(ranks) / whole - 1 / tp) / (1 - 1 / tp))
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise SimulationError("%s is not the JSON of `tensord plan`: %r" % (path, error)) from error


def chosen(all_of_them):
    def parse(text):
        names = text.split(",")
        if unknown := [name for name in names if name not in all_of_them]:
            raise argparse.ArgumentTypeError("unknown %s; known: %s" % (", ".join(unknown), ", ".join(all_of_them)))
        return names
    return parse


def plain_number(text):
    value = float(text)
    return int(value) if value.is_integer() else value


def whole_numbers(text):
    return [int(part) for part in text.split(",")]


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        epilog="Tiers:\n" + "\n".join("  %-10s %s" % item for item in TIERS.items()))
    parser.add_argument("--ranks", type=whole_numbers, default=[8, 64, 512, 4096, 10000], metavar="N,N",
                        help="how many at once (8,64,512,4096,10000); of N nodes: N x --ranks-per-node")
    parser.add_argument("--tiers", type=chosen(TIERS), default=list(TIERS), metavar="NAME,NAME", help="(all)")
    parser.add_argument("--plan", metavar="FILE", help="JSON of `tensord plan`: sets --model-gb, --tp and --repeated")
    parser.add_argument("--json", action="store_true", help="print an object: the assumptions, and a row for each case")
    parser.add_argument("--assumptions", action="store_true", help="print all parameters with their sources, and end")
    for name, value, unit, what, source in ASSUMPTIONS:
        text = "%s (%s%s%s)" % (what, value, unit and " " + unit, source and "; " + source)
        parser.add_argument("--" + name, type=str if isinstance(value, str) else plain_number, default=value,
                            metavar=unit or ("even|hash" if name == "balance" else "N"), help=text.replace("%", "%%"))
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse_arguments(arguments)
    a = argparse.Namespace(**{name.replace("-", "_"): getattr(options, name.replace("-", "_"))
                              for name, *_ in ASSUMPTIONS})
    try:
        if options.plan:
            read_plan(options.plan, a)
        if options.assumptions:
            print(assumptions_text(a))
            return 0
        rows = [simulate(a, *case) for case in cases(options.ranks, options.tiers)]
    except SimulationError as error:
        print("simulate_fanout: %s" % error, file=sys.stderr)
        return 2
    print(json.dumps({"assumptions": vars(a), "rows": rows}, indent=1) if options.json else report(a, rows))
    return 0


if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
