#!/usr/bin/env python3
"""Writes tests/data/permutation.json: the first rows of permutations (order=shuffle), as docs/python.md defines them.

An array of {"rows", "seed", "epoch", "first"}: `first` has the rows at positions 0 to 7, fewer if there are fewer. Plain
integers, without the client's code. The same bytes at every run.

    python3 tests/data/make_permutation.py
"""
import json
import pathlib

WRAP = 2**64
G = 0x9E3779B97F4A7C15


def mix64(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 % WRAP
    x ^= x >> 27
    x = x * 0x94D049BB133111EB % WRAP
    x ^= x >> 31
    return x


def permute(i, n, seed, epoch):
    s = mix64((mix64((seed + G) % WRAP) + epoch + G) % WRAP)
    k = [mix64((s + (r + 1) * G) % WRAP) for r in range(8)]
    bits = 16
    while 2**bits < n:
        bits += 2
    h = bits // 2
    x = i
    while True:
        left, right = x >> h, x & (2**h - 1)
        for r in range(8):
            left, right = right, left ^ (mix64((right + k[r]) % WRAP) >> (64 - h))
        x = (left << h) | right
        if x < n:
            return x


def main():
    rows = [1, 2, 10, 1000, 65535, 65536, 65537, 262144, 262145, 1000003, 2**32, 2**33, 2**48 + 1, 2**62 + 1]
    seeds = [(0, 0), (1, 0), (0, 1), (42, 3), (2**63, 2**32), (2**64 - 1, 2**64 - 1)]
    lines = []
    for n in rows:
        for seed, epoch in seeds:
            first = [permute(i, n, seed, epoch) for i in range(min(8, n))]
            lines.append(json.dumps({"rows": n, "seed": seed, "epoch": epoch, "first": first}))
    path = pathlib.Path(__file__).with_name("permutation.json")
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
