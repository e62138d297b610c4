"""Shared parts of all works of the bench: rounds in which the ways take turns, medians, ratios, tables, targets, and
the description of the machine."""

import json
import os
import platform
import re
import statistics
import subprocess
import sys


class BenchError(Exception):
    """A work cannot be measured, or an answer was wrong. The message is one line for standard error."""


class LeftOut(Exception):
    """This machine cannot run a work, which is not an error. The message says why."""


# ---- rounds

def rotated(items, by):
    by %= len(items)
    return items[by:] + items[:by]


def by_turns(cells, rounds, warm_up=True, name=None):
    """Measures {cell: {way: function(turn) -> sample}} round after round, in each cell one way after the other, another
    way first each time. Returns {cell: {way: [sample of each round]}}. Turn 0, the warm-up, does not count: it touches
    mappings, and on a virtual machine the memory of the socket buffers, for the first time. name: for the progress."""
    samples = {cell: {way: [] for way in ways} for cell, ways in cells.items()}
    for turn in range(0 if warm_up else 1, rounds + 1):
        for position, (cell, ways) in enumerate(cells.items()):
            for way in rotated(list(ways), turn + position):
                sample = ways[way](turn)
                if turn:
                    samples[cell][way].append(sample)
        if name:
            print("%s: round %d of %d done" % (name, turn, rounds), file=sys.stderr, flush=True)
    return samples


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def median_of(samples, key):
    return median([sample.get(key) for sample in samples])


def ratio(a, b):
    return a / b if a is not None and b else None


def median_ratio(mine, other, key):
    """Returns the median of the ratios within each round, because a disturbance of the machine affects both sides."""
    return median([ratio(a[key], b[key]) for a, b in zip(mine, other)])


def summarize(samples, fields=(), ratios=None, label="server"):
    """Returns a row for each cell and way: the cell's values by the names `fields`, the way under `label`, the medians
    of all numbers, and for each of ratios, {short name: key}, "SHORT / OTHER" for every other way of the cell."""
    rows = []
    for cell, ways in samples.items():
        for way, mine in ways.items():
            row = {**dict(zip(fields, cell)), label: way}
            row.update({key: median_of(mine, key) for key, value in mine[0].items()
                        if isinstance(value, (int, float)) and key not in row})
            for other in ways:
                for short, key in (ratios or {}).items() if other != way else ():
                    row["%s / %s" % (short, other)] = median_ratio(mine, ways[other], key)
            rows.append(row)
    return rows


# ---- text

def bytes_text(n):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= size:
            return ("%d %s" if n % size == 0 else "%.1f %s") % (n / size, unit)
    return "%d B" % n


def connections_text(n):
    return "1 connection" if n == 1 else "%d connections" % n


def number(value, digits=2):
    return "-" if value is None else "{:,.{}f}".format(value, digits)


def times(value):
    return "-" if value is None else "%.2fx" % value


def table(columns, rows):
    """Returns a Markdown table whose columns also line up as plain text, with numbers to the right."""
    cells = [[str(c) for c in row] for row in rows]
    widths = [max([len(name)] + [len(row[i]) for row in cells]) for i, name in enumerate(columns)]
    right = [all(re.match(r"^[-\d]", row[i]) and not re.match(r"^\d+ [KMG]?i?B$", row[i]) for row in cells)
             for i in range(len(columns))]

    def line(values):
        return "| " + " | ".join(v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right)) + " |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if r else "-") for w, r in zip(widths, right)) + "|"
    return "\n".join([line(columns), rule] + [line(row) for row in cells])


def rows_table(rows, columns):
    """Returns the table of rows. columns: (title, key, form, factor): form is a number of digits, or a function that
    returns the text; factor, which may be missing, multiplies the value first."""
    def cell(row, _title, key, form=str, factor=1):
        value = row.get(key)
        if value is None:
            return "-"
        if isinstance(value, str):
            return value
        value = value * factor
        return number(value, form) if isinstance(form, int) else form(value)

    return table([column[0] for column in columns], [[cell(row, *column) for column in columns] for row in rows])


# ---- targets

def at_least(what, value, limit, show=times):
    return {"what": what, "value": value, "text": show(value), "wanted": ">= " + show(limit),
            "met": value is not None and value >= limit}


def at_most(what, value, limit, show=times):
    return {"what": what, "value": value, "text": show(value), "wanted": "<= " + show(limit),
            "met": value is not None and value <= limit}


# ---- the report

def result(title, about, tables, targets=(), rows=None, samples=None):
    """Returns what a work hands to the report; rows and samples are for the JSON."""
    return {"title": title, "about": [line for line in about if line], "tables": tables, "targets": list(targets),
            "rows": rows, "samples": samples}


def rounds_text(options):
    return ("%d interleaved rounds of %g s; every number is a median over the rounds, every ratio the median of the "
            "rounds' ratios" % (options.rounds, options.duration))


def report_text(results, environment):
    parts = [environment_text(environment)]
    for r in results:
        parts += ["## " + r["title"], "\n".join("- " + line for line in r["about"]), *r["tables"]]
        if r["targets"]:
            parts.append(table(["target", "measured", "wanted", "met"], [
                [t["what"], t["text"], t["wanted"], "yes" if t["met"] else "NO"] for t in r["targets"]]))
    return "\n\n".join(part for part in parts if part) + "\n"


def json_text(results, environment):
    plain = [{key: [list(pair) for pair in value.items()] if key == "samples" and value else value
              for key, value in r.items() if key != "tables"} for r in results]
    return json.dumps({"environment": environment, "results": plain}, indent=1, default=str) + "\n"


def first_line(command):
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return (run.stdout + run.stderr).strip().splitlines()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return "unknown"


def environment(nginx, tensord):
    """Returns the properties of the machine that the numbers depend on."""
    def grep(path, pattern, missing="unknown"):
        try:
            with open(path) as f:
                found = re.search(pattern, f.read(), re.M)
                return found.group(1).strip() if found else missing
        except OSError:
            return missing

    return {
        "processor": grep("/proc/cpuinfo", r"^model name\s*:\s*(.*)$"),
        "processors": os.cpu_count(),
        "memory_gib": round(int(grep("/proc/meminfo", r"^MemTotal:\s+(\d+)", "0")) / (1 << 20), 1),
        "kernel": platform.release(),
        "congestion_control": grep("/proc/sys/net/ipv4/tcp_congestion_control", r"(\S+)"),
        "receive_buffer_max": int(grep("/proc/sys/net/ipv4/tcp_rmem", r"(\d+)\s*$", "0")),
        "nginx": first_line([nginx, "-v"]).replace("nginx version: ", "") if nginx else None,
        "tensord": first_line([tensord, "--version"]) if tensord else None,
        "load_before": round(os.getloadavg()[0], 2),
    }


def environment_text(env):
    return "\n".join([
        "- machine: %d x %s, %.1f GiB, Linux %s; load average before the run %.2f"
        % (env["processors"], env["processor"], env["memory_gib"], env["kernel"], env["load_before"]),
        "- network: loopback, congestion control %s, receive buffers up to %s"
        % (env["congestion_control"], bytes_text(env["receive_buffer_max"])),
        "- servers: %s" % (", ".join(env[k] for k in ("nginx", "tensord") if env[k]) or "raw alone")])
