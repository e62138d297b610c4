"""Medians, aligned Markdown tables and the description of the machine."""

import os
import platform
import re
import statistics
import subprocess


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def ratio(a, b):
    return a / b if a is not None and b else None


def median_ratio(mine, other, key):
    """Returns the median of the ratios within each round, because a disturbance of the machine affects both sides."""
    return median([ratio(a[key], b[key]) for a, b in zip(mine, other)])


def bytes_text(n):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= size:
            return ("%d %s" if n % size == 0 else "%.1f %s") % (n / size, unit)
    return "%d B" % n


def connections_text(n):
    return "1 connection" if n == 1 else "%d connections" % n


def number(value, digits=2):
    if value is None:
        return "-"
    return "{:,.{}f}".format(value, digits)


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


class Targets:
    """The project's targets, with the measured values and those of the raw sender in its place."""

    def __init__(self):
        self.rows = []

    def at_least(self, what, value, limit, show=times, raw=None):
        self._add(what, value, ">= " + show(limit), show, raw, value is not None and value >= limit)

    def at_most(self, what, value, limit, show=times, raw=None):
        self._add(what, value, "<= " + show(limit), show, raw, value is not None and value <= limit)

    def _add(self, what, value, wanted, show, raw, met):
        self.rows.append({"what": what, "value": value, "text": show(value), "wanted": wanted, "met": met,
                          "raw": raw, "raw_text": "" if raw is None else show(raw)})

    def text(self):
        raw = any(r["raw_text"] for r in self.rows)
        return table(["target", "measured", "wanted", "met"] + (["raw reaches"] if raw else []),
                     [[r["what"], r["text"], r["wanted"], "yes" if r["met"] else "NO"]
                      + ([r["raw_text"]] if raw else []) for r in self.rows])

    def all_met(self):
        return all(r["met"] for r in self.rows)
