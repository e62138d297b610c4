#!/usr/bin/env python3
"""Writes the seeds of the fuzz corpora, tests/fuzz/corpus/TARGET/seed_*. Files of other names there are inputs
that once showed a defect, and are left alone.

    tests/fuzz/make_corpus.py [TARGET...]    of all targets, or of these

Seeds of the target `zip` depend on the version of Python's zipfile."""

import base64
import gzip
import io
import collections
import hashlib
import itertools
import json
import pathlib
import pickle
import struct
import sys
import tarfile
import zipfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent


def tensor(dtype, shape, begin, end, **others):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **others}


def text(value):
    return json.dumps(value, separators=(",", ":")).encode()


def whole(header, data):
    """A file: length, header, data."""
    header = header if isinstance(header, bytes) else text(header)
    return struct.pack("<Q", len(header)) + header + bytes(range(data % 251)) + bytes(data - data % 251)


def headed(header, data):
    """The target's other reading: a header, then the size of the data in two bytes."""
    return (header if isinstance(header, bytes) else text(header)) + struct.pack("<H", data)


def safetensors_seeds():
    two = {"b": tensor("F32", [2, 2], 2, 18), "a": tensor("U8", [2], 0, 2)}
    many = {"__metadata__": {"format": "pt"}}
    for i in range(12):
        many[f"model.layers.{11 - i}.w"] = tensor("BF16", [1, 2], 4 * i, 4 * i + 4)
    return {
        "whole_empty": whole({}, 0),
        "whole_two": whole(two, 18),
        "whole_bad_length": struct.pack("<Q", 2**64 - 1) + b"{}",
        "whole_long_length": struct.pack("<Q", 1000) + b"{}",
        "empty": headed({}, 0),
        "two": headed(two, 18),
        "many": headed(many, 48),
        "metadata": headed({"__metadata__": {"a": "x", "b": "\u00e9\n"}, "t": tensor("I64", [], 0, 8)}, 8),
        "metadata_null": headed(b'{"__metadata__":null}', 0),
        "blanks": headed(b' {\n"a" : {"dtype":"U8" , "shape":[ 1 ], "data_offsets" :[0,1] } } \t', 1),
        "escapes": headed(b'{"\\u0061\\ud83d\\ude00":{"dty\\u0070e":"\\u00558","shape":[1],"data_offsets":[0,1]}}', 1),
        "sub_byte": headed({"a": tensor("F4", [4], 0, 2), "b": tensor("F6_E2M3", [4], 2, 5)}, 5),
        "empty_tensors": headed({"a": tensor("F64", [0, 3], 0, 0), "b": tensor("I8", [3], 0, 3),
                                 "c": tensor("I8", [0], 3, 3)}, 3),
        "unknown_members": headed({"a": tensor("U8", [1], 0, 1, x=[{"y": None}], z=1.5)}, 1),
        "duplicate": headed(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                            b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', 2),
        "duplicate_metadata": headed(b'{"__metadata__":{"b":"1","a":"2","b":"3"}}', 0),
        "wrong_size": headed({"a": tensor("F32", [2], 0, 7)}, 7),
        "two_values": headed(b"{}{}", 0),
        "gap": headed({"a": tensor("U8", [1], 0, 1), "b": tensor("U8", [1], 2, 3)}, 3),
        "overlap": headed({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}, 3),
        "overflow": headed({"a": tensor("I32", [2, 2**63 - 1], 0, 4)}, 4),
        "overflow_to_the_size": headed({"a": tensor("I32", [2, 2**63 + 1], 0, 8)}, 8),
        "huge_offsets": headed({"a": tensor("U8", [2**64 - 1], 0, 2**64 - 1)}, 9),
        "all_types": headed({d: tensor(d, [0], 0, 0) for d in (
            "F4 F6_E2M3 F6_E3M2 BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 "
            "F32 C64 F64 I64 U64").split()}, 0),
    }


def json_seeds():
    return {
        "values": b'{"a":[1,-0,2.5,1e+9,-1.5E-7,18446744073709551615,18446744073709551616],"b":[true,false,null]}',
        "strings": rb'["","\"\\\/\b\f\n\r\t","\u0041\u00e9\uFFFF","\ud83d\ude00","\u0000"]',
        "utf8": '["é","日本","\U0001f600","\x7f"]'.encode(),
        "utf8_surrogate": b'["\xed\xa0\x80"]',
        "utf8_overlong": b'["\xc0\xaf"]',
        "utf8_none": b'["\xff"]',
        "high_surrogate": rb'["\ud800"]',
        "low_surrogate": rb'["\udc00"]',
        "surrogate_and_letter": rb'["\ud800\u0041"]',
        "two_high_surrogates": rb'["\ud800\ud800"]',
        "surrogate_and_private": rb'["\ud800\ue000"]',
        "raw_control": b'["\x1f"]',
        "bad_hex": rb'["\u1G00"]',
        "blanks": b' \t\r\n{ "a" : [ ] , "b" : { } } \n',
        "nested": b"[" * 130 + b"]" * 130,
        "nested_enough": b"[" * 127 + b'{"":{}}'.replace(b"{}", b"0") + b"]" * 127,
        "two_zeros": b"[00]",
        "leading_zero": b"[01]",
        "minus": b"[-]",
        "no_fraction": b"[1.]",
        "no_exponent": b"[1e]",
        "plus": b"[+1]",
        "scalar": b"123",
        "half_a_literal": b"[tru]",
        "infinity": b"[Infinity]",
        "comma_at_the_end": b"[1,]",
        "comma_in_an_object": b'{"a":1,}',
        "two_commas": b"[1,,2]",
        "two_values": b"{}[]",
    }


def glob_seeds():
    pairs = ["*\nanything", "model.layers.*.weight\nmodel.layers.10.mlp.weight", "?\né", "[a-c]x\nbx", "[!a-c]\nd",
             "[]a]\n]", "[a\n[a", "\\*\n*", "*a*a*a*b\naaaaaaaaaaaa", "[^\u00e0-\u00ef]*\n日本", "[a-]\n-", "\\\n\\",
             "**?*\nab", "*??xy\n日xy", "[[]\n[", "\n", "*[!y]x\néx"]
    return {f"{i:02}": pair.encode() for i, pair in enumerate(pairs)} | {"not_utf8": b"*\xff?\n\xe6\x97\xff"}


def shard_index_seeds():
    names = {f"model.layers.{i}.w": f"model-{i % 3 + 1:05}-of-00003.safetensors" for i in range(12)}
    return {
        "real": json.dumps({"metadata": {"total_size": 1234}, "weight_map": names}, indent=2).encode(),
        "empty": text({"weight_map": {}}),
        "alternating": text({"weight_map": {"c": "x", "b": "y", "a": "x", "d": "y"}}),
        "parent": text({"weight_map": {"a": "../x"}}),
        "absolute": text({"weight_map": {"a": "/etc/passwd"}}),
        "empty_file": text({"weight_map": {"a": ""}}),
        "dot": text({"weight_map": {"a": "."}}),
        "dot_dot": text({"weight_map": {"a": ".."}}),
        "escapes": rb'{"weight\u005fmap":{"\u0061":"\u0062\u002e\u0063","\ud83d\ude00":"b.c"}}',
        "duplicate": b'{"weight_map":{"b":"x","a":"x","b":"y"}}',
        "twice": b'{"weight_map":{},"weight_map":{}}',
        "nul": rb'{"weight_map":{"a":"x\u0000y"}}',
        "others": b'{"x":[{"weight_map":1}],"weight_map":{"a":"f"},"x":null}',
        "delta": text({"metadata": {"version": "000002", "base_version": "000001", "delta_encoding": "xor",
                                    "compression_format": "zstd", "checksum_format": "adler32"},
                       "weight_map": {"a": "model-00000-of-00001.safetensors"}}),
        "delta_of_a_number": b'{"weight_map":{},"metadata":{"base_version":1e3,"delta_encoding":{"a":[1]}}}',
        "delta_of_a_list": b'{"metadata":{"base_version":["a"],"delta_encoding":"xor"},"weight_map":{}}',
        "delta_twice": rb'{"metadata":{"base_version":"a","delta_encoding":"xor","base_version":"\u0061\ud83d\ude00"},'
                       rb'"metadata":{"delta\u005fencoding":1,"base_version":null},"weight_map":{}}',
    }


def delta_seeds():
    def raw_frame(content):     # one raw block (RFC 8878)
        return b"\x28\xb5\x2f\xfd\x00\x38" + struct.pack("<I", len(content) << 3 | 1)[:3] + content

    said = {"version": "000002", "base_version": "000001", "delta_encoding": "xor", "compression_format": "zstd",
            "checksum_format": "xxh3-128"}
    indexes = {
        "real": text({"metadata": said, "weight_map": {"a": "model-00000-of-00002.safetensors", "b": "c"}}),
        "base": text({"metadata": {"total_size": 1234, "x": [{}]}, "weight_map": {"a": "b"}, "y": None}),
        "bare": text({"weight_map": {}}),
        "null": text({"metadata": None, "weight_map": {}}),
        "numbers": text({"weight_map": {}, "metadata": {"version": 12, "base_version": "\u20ac\\"}}),
        "twice": b'{"metadata":{"version":"1","version":"2"},"weight_map":{}}',
        "metadata_twice": b'{"metadata":{},"metadata":{},"weight_map":{}}',
        "escapes": rb'{"met\u0061data":{"versi\u006fn":"\ud83d\ude00","a":"b"},"weight_map":{"\u0061":"b"}}',
    }
    record = {"name": "a", "payload_file": "delta-rank00000-file000000.safetensors", "payload_key": "a",
              "checksum": "0" * 32}
    indexes |= {
        "manifest": text({"version": 2, "base_version": 1, "tensors": [record, {
            **record, "name": "b", "payload_key": "b", "checksum_algorithm": "xxh3-128", "shape": [2, 3]}]}),
        "manifest_twice": text({"version": 2, "base_version": 1, "tensors": [record, record]}),
        "manifest_bare": b'{"tensors":[],"base_version":0,"version":1,"x":[{}]}',
        "manifest_escapes": rb'{"version":1,"base_version":0,"tensors":[{"name":"\u0061","payload_key":"\u0061",'
                            rb'"payload_file":"./\u0062","checksum":"x","checksum_algorithm":"sha256"}]}',
    }
    overwrite = struct.pack("<IIII", 3, 9, 0, 4) + b"abc"
    real = bytes.fromhex(  # 3,328 bytes by zstd -1 --check
        "28b52ffd64000c2d010080000000000004000000000200000000010700cb34cac34d8196835c039e02322f80a22c01d9"
        "83dd1b")
    contents = {
        "xor": b"\x02\x0a\x00" + bytes(range(10)),
        "xor_adler32": b"\x0a\x0a\x00" + bytes(10),
        "xor_short": b"\x02\x0a\x00" + bytes(9),
        "xor_wrong_sum": b"\x12\x0a\x00" + bytes(10),
        "xor_blocks": b"\x02\xd0\x07" + bytes(i % 251 for i in range(2000)),
        "overwrite": b"\x06\x0a\x00" + overwrite,
        "overwrite_outside": b"\x06\x09\x00" + overwrite,
        "overwrite_more": b"\x06\x02\x00" + overwrite,
        "overwrite_none": b"\x06\x0a\x00" + bytes(4),
        "nothing": b"\x02\x00\x00",
        "frame": b"\x01\x0a\x00" + raw_frame(bytes(range(10))),
        "frame_overwrite": b"\x05\x0a\x00" + raw_frame(overwrite),
        "frame_after": b"\x01\x0a\x00" + raw_frame(bytes(10)) * 2,
        "frame_cut": b"\x01\x0a\x00" + raw_frame(bytes(10))[:-2],
        "frame_repeated_byte": b"\x01\x00\x0d\x28\xb5\x2f\xfd\x60\x00\x0c" +
                               struct.pack("<I", 3328 << 3 | 3)[:3] + b"\0",
        "frame_compressed": b"\x01\x00\x0d" + real,
        "frame_window": b"\x01\x0a\x00\x28\xb5\x2f\xfd\x00\xff" + struct.pack("<I", 10 << 3 | 1)[:3] + bytes(10),
        "skippable": b"\x01\x0a\x00\x50\x2a\x4d\x18\x04\x00\x00\x00abcd",
    }
    return {f"index_{name}": b"\0" + data for name, data in indexes.items()} | contents


def model_card_seeds():
    real = ("---\nlicense: apache-2.0\nlanguage:\n- en\n- \"no\"\ntags: [a, 'b', 1, 1.5e3, ~, true, 0x1F, 2024-01-31]\n"
            "model-index:\n- name: x\n  results: [{task: {type: t}, metrics: []}]\ntext: |\n  a\n  b\n---\n# Model\n")
    return {
        "real": real.encode(),
        "none": b"# Model\n",
        "empty": b"---\n---\n",
        "open": b"---\na: 1\n",
        "blanks": b" \t\r\n---\r\na: 1\r\n---\r\n",
        "alias": b"---\na: &a [1]\nb: [*a, *a]\n---\n",
        "merges": b"---\na: &a {x: 1, y: [2]}\nb: &b {<<: *a, x: 3}\nc: {<<: [*b, *a], z: *a}\n---\n",
        "unfold": b"---\na: &a [x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b]\n*a : [*c]\n&k k: *k\n---\n",
        "merge": b"---\n<<: {a: 1}\na: 2\n---\n",
        "twice": b"---\na: 1\nb: {c: 1, \"c\": 2}\n---\n",
        "tags": b"---\na: !!str 1\nb: !!int '2'\nc: !x y\n---\n",
        "deep": b"---\na: " + b"[" * 70 + b"]" * 70 + b"\n---\n",
        "escapes": b'---\n"\\u00e9\\0\\x41": "\\ud83d\\ude00"\n---\n',
        "numbers": b"---\na: [-0, +1_000, 0o17, 0b11, 017, .5, 1., .inf, -.NaN, 18446744073709551616, 1e999]\n---\n",
        "documents": b"---\na: 1\n...\n--- b\n---\n",
        "directives": b"---\n%YAML 1.1\n%TAG !t! tag:yaml.org,2002:\n--- \na: !t!str 1\n---\n",
        "many_directives": b"---\n" + b"".join(b"%%TAG !%x! x\n" % i for i in range(17)) + b"--- \na: 1\n---\n",
        "keys": b"---\n? a\n: 1\n? [b]\n: 2\n---\n",
        "folded": b"---\na: >-\n  x\n\n  y\nb: 'it''s'\n---\n",
    }


def card_begin(node, number=0, *texts):
    """The beginning of a node, as catalog/sandbox/card_wire.c writes it."""
    return bytes([0, node]) + struct.pack("<I", number) + b"".join(map(card_text, texts))


def card_text(text):
    return struct.pack("<Q", len(text)) + text


def card_seeds():
    cards = {
        "real": "---\nlicense: mit\n---\n# Model *x*\n\nText with `code`, [a link](docs/a.md#b \"title\") and\n"
                "<https://example.org>.\n\n- [ ] a\n- [x] b\n  1. c\n\n| a | b |\n|:-:|---:|\n| c | ~~d~~ |\n\n"
                "```python\nx = '<b>'\n```\n\n![image](a.png) ![other](http://example.org/b.png)\n",
        "html": "<script>a</script>\n<img src=x onerror=a>\n\n<div id=\"card\">\n*a*\n</div>\n"
                "&lt;b&gt; &#60; &#0; &x;\n",
        "schemes": "[a](javascript:b) [a](java&#115;cript:b) [a](%6aavascript:b) <vbscript:a> [a](data:,b) [a](//b/c)\n"
                   "[a](/b) [a](../b) [a](b/../../c) [a](b%2f..%2f..) [a](#b) [a](?b) [a](mailto:b@c) [a](http:b)\n",
        "titles": "[a](b 'c &quot; \\\" <d> &')\n\n[e]: f \"g\"\n[e] ![e] [e][] [h][e]\n",
        "images": "[![a](b.png)](http://c) ![a ![b](c) [d](e) *f*](g) ![](data:h) [![](http://i)](j) ![k](http://l)\n",
        "headings": "# a\n## a\na\n===\n# a-1\n####### a\n#\n# \u00c4 \u6f22 \U0001f680 [b](#c)\n",
        "deep": "> " * 40 + "- " * 40 + "*a **b " * 40 + "c\n",
        "tables": "|a|b|\n|---|---|\n|c\n|d|e|f|\n\n" + "|a" * 50 + "|\n" + "|---" * 50 + "|\n" + "|b\n" * 50,
        "lists": "1. a\n2. b\n\n   c\n- d\n\n      e\n+ f\n\n9999999999. g\n0. h\n",
        "definition": "[a]: b \"" + "c" * 500 + "\"\n\n" + "[a] " * 200,
        "breaks": "a  \nb\\\nc\n***\n_d_ __e__ *f __g* h__\n",
        "links": "http://a.b/c_(d)_e https://a.b. http://a http://<b> *http://a.b*c [http://a.b](http://c.d)\n",
    }
    end, word, no_error = b"\1", b"\2" + card_text(b"a"), struct.pack("<IIQQ", 0, 0, 2**64 - 1, 0)
    wire = {
        "paragraph": card_begin(7) + word + end + b"\6\0" + no_error,
        "link": card_begin(7) + card_begin(18, 0, b"b", b"&c;") + word + b"\3" + card_text(b"&#9;") + b"\4\5" +
                end * 2 + b"\6\1" + no_error,
        "script": card_begin(7) + b"\3" + card_text(b"<script>") + end + b"\6\0" + no_error,
        "out_of_order": card_begin(7) + card_begin(8),
        "no_node": card_begin(20),
        "open": card_begin(0) * 100 + card_begin(7) + word,
    }
    return ({name: b"\1" + card.encode() for name, card in cards.items()} |
            {"nul": b"\1# a\0<b>", "latin1": b"\1# \xe4 <b>", "cut_utf8": b"\1# \xe6\xbc"} |
            {f"wire_{name}": b"\0" + data for name, data in wire.items()})


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text


def gguf_pair(key, kind, value):
    return gguf_text(key) + struct.pack("<I", kind) + value


def gguf_info(name, dims, kind, offset):
    return gguf_text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf_file(pairs, infos, data, version=3, alignment=32):
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(pairs)) + b"".join(pairs) + b"".join(infos)
    return head + bytes(-len(head) % alignment) + bytes(range(data))


def gguf_seeds():
    """Files, also of the real writer (tests/data/gguf), and what follows a header of two tensors and three pairs."""
    sizes = {
        0: b"\xff", 1: b"\x80", 2: b"\xfe\xff", 3: b"\x00\x80", 4: b"\1\2\3\4", 5: b"\xff\xff\xff\xff", 6: b"\0\0\x80?",
        7: b"\1", 10: b"\xff" * 8, 11: b"\0" * 7 + b"\x80", 12: struct.pack("<d", 0.1)
    }
    scalars = [gguf_pair(b"s%d" % kind, kind, value) for kind, value in sizes.items()]
    arrays = [gguf_pair(b"a%d" % kind, 9, struct.pack("<IQ", kind, 3) + value * 3) for kind, value in sizes.items()]
    long = [
        gguf_pair(b"l%d" % kind, 9,
                  struct.pack("<IQ", kind, 65) + value * 65) for kind, value in ((0, b"1"), (7, b"\1"))
    ]
    strings = [
        gguf_pair(b"t", 8, gguf_text(b"text \xff\n")),
        gguf_pair(b"tt", 9,
                  struct.pack("<IQ", 8, 2) + gguf_text(b"") + gguf_text(b"x"))
    ]
    aligned = gguf_pair(b"general.alignment", 4, struct.pack("<I", 8))
    two = [gguf_info(b"a", [3], 24, 0), gguf_info(b"b", [32, 2], 2, 32)]
    fixtures = HERE.parent / "data" / "gguf"
    seeds = {path.stem: path.read_bytes() for path in fixtures.glob("*.gguf") if path.stat().st_size < 1100}
    return seeds | {
        "empty":
        gguf_file([], [], 0),
        "version_2":
        gguf_file([], two, 100, 2),
        "big_endian":
        b"GGUF\0\0\0\3" + bytes(16),
        "scalars":
        gguf_file(scalars, [], 0),
        "arrays":
        gguf_file(arrays, [], 0),
        "long":
        gguf_file(long, [], 0),
        "strings":
        gguf_file(strings, two, 100),
        "alignment":
        gguf_file([aligned], [gguf_info(b"a", [3], 24, 0), gguf_info(b"b", [3], 24, 8)], 11, alignment=8),
        "empty_tensors":
        gguf_file([], [gguf_info(b"a", [32, 0], 2, 0),
                       gguf_info(b"", [], 0, 0),
                       gguf_info(b"c", [0], 1, 32)], 36),
        "duplicate":
        gguf_file([], [gguf_info(b"a", [3], 24, 0), gguf_info(b"a", [3], 24, 32)], 40),
        "duplicate_key":
        gguf_file([strings[0], strings[0]], [], 0),
        "overflow":
        gguf_file([], [gguf_info(b"a", [2**61 - 1], 27, 0)], 0),
        "two_halves":
        gguf_file([], [gguf_info(b"a", [2**63 - 64], 24, 0),
                       gguf_info(b"b", [2**63 - 64], 24, 2**63 - 64)], 0),
        "headless":
        gguf_file([aligned, *strings], two, 100)[24:],
    }


def range_seeds():
    """The length of the representation in eight bytes, then the field value."""
    values = {
        "first": (10000, "bytes=0-499"),
        "suffix": (10000, "bytes=-500"),
        "open": (10000, "bytes=9500-"),
        "two": (10000, "bytes=0-0,-1"),
        "blanks": (10000, "bytes= 0-999, 4500-5499,\t-1000"),
        "beyond": (10, "bytes=10-"),
        "mixed": (10, "bytes=20-30,0-1"),
        "reversed": (10, "bytes=1-0"),
        "vast": (10, "bytes=99999999999999999999-"),
        "vast_pair": (10, "bytes=99999999999999999999-99999999999999999998"),
        "most": (2**64 - 1, "bytes=0-18446744073709551615"),
        "last_byte": (2**64 - 1, "bytes=18446744073709551614-"),
        "wrap": (2**63, "bytes=-18446744073709551616"),
        "zeros": (10, "bytes=0003-00004"),
        "none": (10, "bytes=-0"),
        "empty": (0, "bytes=0-"),
        "unit": (10, "items=0-1"),
        "case": (10, "ByTeS=0-1"),
        "commas": (10, "bytes=,,0-1,,3-4,,"),
        "junk": (10, "bytes=0-1,x"),
        "overlaps": (100, "bytes=0-9,5-14,10-19,15-24"),
        "nested": (100, "bytes=0-99,10-11,20-21,30-31"),
        "many": (10**6, "bytes=" + ",".join(f"{10 * i}-{10 * i}" for i in range(256))),
        "too_many": (10**6, "bytes=" + ",".join(f"{10 * i}-" for i in range(257))),
    }
    return {name: struct.pack("<Q", size) + value.encode() for name, (size, value) in values.items()}


RPC = "/tensord.v1.ModelService/"


def router_seeds():
    """Method, target, header lines."""
    requests = {
        "models": "GET\n/models",
        "models_page": "GET\n/models?page_size=1",
        "models_match": "GET\n/models?match=*&page_size=2",
        "model": "GET\n/models/m",
        "encoded": "GET\n/models/m%2Ftensors/n",
        "bad_model": "GET\n/models/bad",
        "root_file": "GET\n/models/root.safetensors/files/root.safetensors",
        "manifest": "GET\n/models/m/tensors",
        "manifest_all": "GET\n/models/m/tensors?checkpoint=safetensors&match=*&dtype=U8&page_size=1&page_token=",
        "manifest_other": "GET\n/models/m/tensors?checkpoint=other.safetensors",
        "tensor": "GET\n/models/m/tensors/a",
        "tensor_name": "GET\n/models/m/tensors/b/c%20d",
        "tensor_utf8": "GET\n/models/m/tensors/%C3%A9",
        "tensor_empty": "GET\n/models/m/tensors/none",
        "tensor_slice": "GET\n/models/m/tensors/a?slice=0:1",
        "file": "GET\n/models/m/files/notes.txt",
        "range": "GET\n/models/m/tensors/a\nRange: bytes=1-3",
        "ranges": "GET\n/models/m/files/notes.txt\nRange: bytes=1-3,5-,-1",
        "range_beyond": "GET\n/models/m/tensors/a\nRange: bytes=40-",
        "range_manifest": "GET\n/models/m/tensors\nRange: bytes=10-20",
        "range_list": "GET\n/models\nRange: bytes=0-0,2-2",
        "range_hub_page": "GET\n/api/models?limit=1\nRange: bytes=6-\nHost: h",
        "if_range": "GET\n/models/m/tensors/a\nRange: bytes=1-3\nIf-Range: \"x\"",
        "if_none": "GET\n/models/m/tensors/a\nIf-None-Match: *",
        "if_match": "HEAD\n/models/m/tensors/a\nIf-Match: \"x\"",
        "if_date": "GET\n/models/m/files/notes.txt\nIf-Modified-Since: Sun, 06 Nov 2094 08:49:37 GMT",
        "rpc_json": f'POST\n{RPC}GetModel\nContent-Type: application/json\n\n{{"model":"m"}}',
        "rpc_get": f"GET\n{RPC}GetModel?connect=v1&encoding=json&message=%7B%22model%22%3A%22m%22%7D",
        "rpc_base64": f"GET\n{RPC}GetModel?encoding=proto&base64=1&message=CgFt\nIf-None-Match: *",
        "rpc_web": f"POST\n{RPC}ListModels\nContent-Type: application/grpc-web+json\n\n\0\0\0\0\x02{{}}",
        "rpc_mask": f'POST\n{RPC}GetManifest\nContent-Type: application/json\n\n'
                    '{"model":"m","readMask":"etag,tensors","pageSize":1,"dtype":"U8"}',
        "rpc_plan": f'POST\n{RPC}RegisterPlan\nContent-Type: application/json\n\n'
                    '{"model":"m","tpSize":1,"rules":[{"match":"**","whole":true,"parts":[{"unit":2}]}]}',
        "rpc_rank": f'POST\n{RPC}GetRankFile\nContent-Type: application/json\n\n'
                    '{"model":"m","engine":"none","tpSize":2,"tpRank":1}',
        "rpc_versions": f'POST\n{RPC}ListVersions\nContent-Type: application/json\n\n{{"model":"m"}}',
        "rpc_ready": "POST\n/tensord.v1.ServerService/GetReadiness\nContent-Type: application/grpc-web\n\n\0\0\0\0\0",
        "rpc_unknown": "POST\n/tensord.v1.X/Y\nContent-Type: application/proto\n\n",
        "rpc_read": f"POST\n{RPC}ReadTensors\nContent-Type: application/connect+json\n\n\0\0\0\0\x28"
                    '{"model":"m","tensors":[{"name":"n/t"}]}',
        "rpc_watch": f'POST\n{RPC}WatchModel\nContent-Type: application/grpc-web+json\n\n\0\0\0\0\x0d{{"model":"m"}}',
        "rpc_rows": "POST\n/tensord.v1.DatasetService/StreamRows\nContent-Type: application/grpc+json\n\n"
                    "\0\0\0\0\x1f" '{"dataset":"d","split":"train"}',
        "rpc_health": "POST\n/grpc.health.v1.Health/Check\nContent-Type: application/grpc\n\n\0\0\0\0\0",
        "rpc_reflect": "POST\n/grpc.reflection.v1.ServerReflection/ServerReflectionInfo\n"
                       "Content-Type: application/grpc\n\n\0\0\0\0\x02:\0",
        "healthz": "GET\n/healthz",
        "readyz": "HEAD\n/readyz",
        "metrics": "GET\n/metrics",
        "version": "GET\n/version",
        "openapi": "GET\n/openapi.json\nRange: bytes=0-9",
        "post": "POST\n/models",
        "unknown": "GET\n/nothing",
        "absolute": "GET\nHTTP://host/models/m",
        "bad_escape": "GET\n/models/%zz",
        "nul": "GET\n/models/%00",
        "not_utf8": "GET\n/models/%ff",
        "token": "GET\n/models?page_token=AAAA",
        "twice": "GET\n/models?match=a&match=b",
        "dots": "GET\n/models/m/files/../../etc/passwd",
        "method_name": "GET\n/models/m/tensors/n/tensors/t",
        "datasets": "GET\n/datasets?page_size=2&match=*",
        "dataset": "GET\n/datasets/d",
        "dataset_page": "GET\n/datasets/ns/images\nAccept: text/html",
        "dataset_none": "GET\n/datasets/ns",
        "rows": "GET\n/datasets/d/rows?split=train&start=1&count=2",
        "rows_raw": "GET\n/datasets/local/d/rows?split=test&format=raw\nRange: bytes=0-1,3-3",
        "rows_shuffle": "GET\n/datasets/d/rows?split=train&order=shuffle&seed=1&epoch=2&shard=1/2&start=0&count=9",
        "rows_images": "GET\n/datasets/ns/images/rows?format=raw",
        "rows_tar": "GET\n/datasets/d/rows?split=train&format=tar",
        "rows_none": "GET\n/datasets/none/rows",
        "rows_changed": "GET\n/datasets/d/rows?split=test&fingerprint=0",
        "rows_page": "GET\n/datasets/d/rows?split=test\nAccept: text/html",
        "row": "GET\n/datasets/d/rows/1?split=train\nRange: bytes=-2",
        "row_image": "HEAD\n/datasets/ns/images/rows/1",
        "row_none": "GET\n/datasets/d/rows/4?split=train",
        "batch": "POST\n/datasets/d/rows:batchGet\n\n{\"split\":\"train\",\"indices\":[3,0,3],\"format\":\"frame\"}",
        "batch_bad": "POST\n/datasets/ns/images/rows:batchGet\n\n{\"indices\":[2]}",
        "batch_packed":
        "POST\n/datasets/d/rows:batchGet?split=test\nContent-Type: application/octet-stream\n\n\x02" + "\0" * 7,
        "s3_buckets": "S3 GET\n/?max-buckets=1&prefix=o",
        "s3_bucket": "S3 HEAD\n/org",
        "s3_location": "S3 GET\n/local?location",
        "s3_list":
        "S3 GET\n/local?list-type=2&prefix=m/&delimiter=/&max-keys=2&start-after=m/a&encoding-type=url"
        "&fetch-owner=true",
        "s3_list_v1": "S3 GET\n/local?marker=m/config.json&delimiter=t",
        "s3_token": "S3 GET\n/local?list-type=2&continuation-token=AAAA",
        "s3_shards": "S3 GET\n/local?list-type=2&prefix=m/shards/none/tp1",
        "s3_shards_many": "S3 GET\n/local?prefix=m/shards/fsdp/tp11/&max-keys=3",
        "s3_rank": "S3 GET\n/local/m/shards/none/tp1/model-rank-0-part-0.safetensors\nRange: bytes=3-9",
        "s3_object": "S3 GET\n/local/m/notes.txt?versionId=null\nIf-Match: \"x\"",
        "s3_part": "S3 GET\n/local/m/notes.txt?partNumber=1",
        "s3_acl": "S3 GET\n/local/m/notes.txt?acl",
        "s3_none": "S3 GET\n/org/absent",
        "s3_put": "S3 PUT\n/local/new",
        "s3_no_bucket": "S3 GET\n/m/notes.txt",
        "s3_root": "S3 GET\n/local/root.safetensors\nRange: bytes=0-0,2-2",
        "oci_root": "GET\n/v2/",
        "oci_catalog": "GET\n/v2/_catalog?n=2&last=m",
        "oci_tags": "GET\n/v2/Org/G-GGUF/tags/list?n=1",
        "oci_main": "GET\n/v2/local/m/manifests/main\nRange: bytes=1-9",
        "oci_flat": "HEAD\n/v2/m/manifests/flat",
        "oci_image": "GET\n/v2/m/manifests/image",
        "oci_rank": "GET\n/v2/m/manifests/tp2-rank0-vllm",
        "oci_no_rank": "GET\n/v2/m/manifests/tp2-rank2-vllm",
        "oci_safetensors": "GET\n/v2/ns/hub/manifests/safetensors",
        "oci_ref": "GET\n/v2/ns/hub/manifests/c1",
        "oci_quant": "GET\n/v2/org/g-gguf/manifests/q4_k_m",
        "oci_llama": "GET\n/v2/Org/G-GGUF/manifests/latest\nUser-Agent: llama-cpp/b1",
        "oci_shards": "GET\n/v2/Org/G-GGUF/manifests/Q8_0",
        "oci_digest": f"GET\n/v2/m/manifests/sha256:{'0' * 64}",
        "oci_blob": f"GET\n/v2/m/blobs/sha256%3A{hashlib.sha256(b'0123456789').hexdigest()}\nRange: bytes=3-",
        "oci_no_blob": "GET\n/v2/m/blobs/sha512:0",
        "oci_referrers": f"GET\n/v2/m/referrers/sha256:{'0' * 64}?artifactType=x",
        "oci_upload": "POST\n/v2/m/blobs/uploads/",
        "oci_none": "GET\n/v2/none/manifests/main",
        "oci_odd": "GET\n/v2/a%2Fb%20c/manifests/x%2Fy",
        "html": "GET\n/\nAccept: text/html",
        "html_models": "GET\n/models/\nAccept: text/html,*/*",
        "html_range": "GET\n/\nAccept: text/html\nRange: bytes=1-3",
        "html_model": "GET\n/models/m/\nAccept: text/html",
        "html_folder": "GET\n/models/m/files/",
        "html_hub": "GET\n/m/resolve/main/sub/",
        "html_sub": "GET\n/models/m/files/sub/deeper/",
        "hub_file": "GET\n/m/resolve/main/notes.txt\nRange: bytes=1-3",
        "hub_raw": "HEAD\n/local/m/raw/HEAD/notes.txt",
        "hub_safetensors": "GET\n/ns/npy/resolve/safetensors/model.safetensors\nRange: bytes=0-7",
        "hub_rank": "GET\n/m/resolve/tp2-rank1-none/model-rank-1-part-0.safetensors",
        "hub_ref": "GET\n/ns/hub/resolve/refs%2Fpr%2F1/x.safetensors",
        "hub_ref_plain": "GET\n/ns/hub/resolve/refs/pr/1/x.safetensors",
        "hub_commit": "GET\n/ns/hub/resolve/0123456789abcdef0123456789abcdef01234567/x.safetensors",
        "hub_dataset": "GET\n/datasets/rows/resolve/main/data.csv",
        "hub_no_entry": "GET\n/m/resolve/main/none",
        "hub_no_revision": "GET\n/m/resolve/none/none",
        "hub_no_repo": "GET\n/ns/none/resolve/main/none",
        "hub_list": "GET\n/api/models?limit=1&search=m&author=local&sort=lastModified&full=true\nHost: h:80",
        "hub_page": "GET\n/api/models?limit=1&cursor=1&expand=siblings&expand=sha\nHost: h\nX-Forwarded-Proto: https",
        "hub_filters":
        "GET\n/api/models?filter=a&filter=b%2Cc&search=m&pipeline_tag=x&sort=likes&direction=1&expand=gguf",
        "hub_datasets": "GET\n/api/datasets",
        "hub_info": "GET\n/api/models/m?blobs=true",
        "hub_at": "GET\n/api/models/m/revision/HEAD",
        "hub_made": "GET\n/api/models/ns/npy/revision/safetensors",
        "hub_refs": "GET\n/api/models/ns/hub/refs?include_prs=1",
        "hub_commits": "GET\n/api/models/ns/hub/commits/refs/pr/1",
        "hub_tree": "GET\n/api/models/m/tree/main?recursive=true&expand=true&cursor=2",
        "hub_subtree": "GET\n/api/models/m/tree/main/sub%2Fdeeper?recursive=false",
        "hub_auth": "GET\n/api/models/m/auth-check/write",
        "hub_whoami": "GET\n/api/whoami-v2\nAuthorization: Bearer x",
        "hub_nothing": "GET\n/api/agent-harnesses",
        "hub_form": "POST\n/api/models/m/paths-info/main\n\npaths=sub%2Fdeeper&paths=notes.txt&expand=true",
        "hub_json": 'POST\n/api/models/m/paths-info/main\n\n{"expand":true,"paths":["notes.txt","sub","none"]}',
    }
    return {name: text.encode() for name, text in requests.items()}


def signature_seeds():
    """Method, target, header lines. The signed ones are the examples of the Amazon S3 API Reference."""
    scope = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    fields = f"\nHost: examplebucket.s3.amazonaws.com\nx-amz-date: 20130524T000000Z\nx-amz-content-sha256: {digest}"
    signed = (f"{fields}\nAuthorization: AWS4-HMAC-SHA256 Credential={scope},"
              "SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=")
    presigned = ("GET\n/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" + scope.replace("/", "%2F") +
                 "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=")
    requests = {
        "object": "GET\n/test.txt" + signed.replace("host;x", "host;range;x") +
                  "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41\nRange: bytes=0-9",
        "lifecycle": "GET\n/?lifecycle" + signed + "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        "list": "GET\n/?max-keys=2&prefix=J" + signed +
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        "presigned": presigned + "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404\n"
                                 "Host: examplebucket.s3.amazonaws.com",
        "presigned_token": presigned + "0&X-Amz-Security-Token=a\nHost: a",
        "chunks": "PUT\n/a" + signed.replace(digest, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD") + "0",
        "http_date": "GET\n/a" + signed.replace("x-amz-date: 20130524T000000Z", "Date: Fri, 24 May 2013 00:00:00 GMT")
                                       .replace(";x-amz-date", "") + "0",
        "version_2": "GET\n/a?AWSAccessKeyId=a&Signature=b&Expires=1\nHost: a",
        "version_4a": "GET\n/a\nAuthorization: AWS4-ECDSA-P256-SHA256 Credential=a",
        "bearer": "GET\n/a\nAuthorization: Bearer td_a",
        "both": presigned + "0" + signed + "0",
        "no_signature": "GET\n/a\nHost: a",
        "odd_query": "GET\n/%7e~%C3%a9//a?b&a=2&a=1&=c&&d=%zz+%2B&a-=1" + signed + "0",
        "signed": "GET\n/models/a/files/b?expires=1369353600&signature=ci." + "0" * 64,
        "signed_by_holder": "HEAD\nhttp://host/a?b=c&expires=1369353600&signature=" + "a" * 64,
        "put_file": "PUT\n/models/org/m/files/a%20b.bin?revision=x\nHost: h",
        "put_blob": "PUT\n/datasets/org/rows/blobs/sha256%3A" + "0" * 64 + "\nHost: h",
        "signed_twice": "GET\n/a?expires=1&signature=ci.0&expires=1&signature=ci.0",
        "question_marks": "GET\n/a??b?&c=?d",
    }
    return {name: text.encode() for name, text in requests.items()}


def request_guard_seeds():
    """Version, method, target, header lines."""
    host = "HTTP/1.1\nGET\n/models/m?x=%41[]\nHost: localhost:8080"
    requests = {
        "good": host,
        "no_host": "HTTP/1.0\nHEAD\n/",
        "missing_host": "HTTP/1.1\nGET\n/",
        "two_hosts": host + "\nhost: b",
        "ipv6": "HTTP/1.1\nGET\n/\nHost: [::1]:80",
        "absolute": "HTTP/1.1\nGET\nhttps://[::1]:80/a\nHost: b",
        "empty_host": "HTTP/1.1\nGET\nhttp:///a\nHost:",
        "user": "HTTP/1.1\nGET\nHTTP://a@b/\nHost: b",
        "length": host + "\nContent-Length: 0",
        "length_twice": host + "\nContent-Length: 0\ncontent-length: 0",
        "body": host + "\nContent-Length: 5",
        "chunked": host + "\nTransfer-Encoding: chunked",
        "version": "HTTP/1.2\nGET\n/\nHost: a",
        "tab": host + "\nX: a\tb",
        "control": host + "\nX: a\x01b",
        "blank_name": host + "\nX : y",
        "no_name": host + "\n: y",
        "fragment": "HTTP/1.1\nGET\n/a#b\nHost: a",
        "asterisk": "HTTP/1.1\nOPTIONS\n*\nHost: a",
        "method": "HTTP/1.1\nGE T\n/\nHost: a",
        "large": host + "\nX: " + "y" * 300,
        "batch": "HTTP/1.1\nPOST\n/datasets/org/d/rows:batchGet?split=a\nHost: a\nContent-Length: 5",
        "rows_body": "HTTP/1.1\nPOST\n/datasets/d/rows\nHost: a\nContent-Length: 5",
    }
    return {name: text.encode() for name, text in requests.items()}


def conditional_seeds():
    """Header lines."""
    date = "Sun, 06 Nov 1994 08:49:37 GMT"
    fields = {
        "match": 'If-Match: "abc"',
        "match_list": 'If-Match: "x", W/"abc",,"abc"',
        "match_any": "If-Match: *",
        "match_not": 'If-Match: "x"',
        "none": 'If-None-Match: W/"abc"',
        "none_lines": 'If-None-Match: "x"\nIf-None-Match: "abc"',
        "none_bad": 'If-None-Match: abc, "abc"',
        "comma": 'If-Match: "a,b" , "abc"',
        "modified": "If-Modified-Since: " + date,
        "unmodified": "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT",
        "obsolete": "If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT",
        "asctime": "If-Unmodified-Since: Sun Nov  6 08:49:38 1994",
        "order": 'If-Match: "x"\nIf-None-Match: "abc"',
        "beside": f'If-None-Match: "x"\nIf-Modified-Since: {date}',
        "range_tag": 'If-Range: "abc"',
        "range_weak": 'If-Range: W/"abc"',
        "range_date": "If-Range: " + date,
        "range_twice": 'If-Range: "abc"\nIf-Range: "abc"',
        "open": 'If-Match: "abc',
    }
    return {name: text.encode() for name, text in fields.items()}


def npy_header(text, version=1, data=32):
    """The target's other reading: a version, a header, then the size of the data in two bytes."""
    text = text if isinstance(text, bytes) else text.encode()
    return bytes([version - 1]) + text + struct.pack("<H", data)


def npy_file(text, version=1, data=32):
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I",
                                                            len(text)) + text.encode() + bytes(range(data))


def npy_seeds():
    def array(descr, shape, order="False"):
        return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
    plain = array("'<f4'", "(2, 3)")
    types = ["|b1", "<i8", ">u2", "<f16", "<c32", "|O", "|S5", "<U3", "|V7", "<M8[ns]", ">m8[25us]", "<f1", "<f3"]
    return {
        "file_1": npy_file(plain),
        "file_2": npy_file(plain, 2),
        "file_3": npy_file(plain, 3),
        "file_short": npy_file(plain, 1, 23),
        "file_long_header": b"\x93NUMPY\2\0\xff\xff\xff\xff",
        "plain": npy_header(plain),
        "plain_3": npy_header(plain, 3),
        "fortran": npy_header(array("'<f4'", "(2, 3)", "True")),
        "scalar": npy_header(array("'<f8'", "()")),
        "zero": npy_header(array("'<f8'", "(0, 9223372036854775807)")),
        "huge": npy_header(array("'<f8'", "(4294967296, 4294967296)")),
        "python_2": npy_header(array("'<f4'", "(2L, 3L)")),
        "quotes": npy_header('{"shape":(1,),"descr":"<f4","fortran_order":True}\n'),
        "struct": npy_header(array("[('a', '<f4'), (('t', 'b'), '|i1', (2, 3)), ('', '|V2')]", "(2,)")),
        "struct_nested": npy_header(array("[('a', [('b', [('c', '|u1', 3)], (2,)), ('d', [])])]", "(2,)")),
        "utf8": npy_header(array("[('\u65e5', '<f4')]", "(2,)"), 3),
        "escape": npy_header(array("[('a\\'\\\\', '<f4')]", "(2,)")),
        "call": npy_header(array("__import__('os')", "(2,)")),
        "twice": npy_header("{'shape': (), 'shape': ()}"),
    } | {f"type_{i}": npy_header(array(repr(t), "(2,)")) for i, t in enumerate(types)}


def onnx_seeds():
    """Models of the real writer (tests/data/onnx), and initialisers alone, which the target puts into a model."""
    fixtures = HERE.parent / "data" / "onnx"
    seeds = {path.stem: path.read_bytes() for path in fixtures.glob("*.onnx") if path.stat().st_size < 1000}
    name, kind, dims, raw = b"\x42\x01w", b"\x10\x01", b"\x08\x02", b"\x4a\x08" + bytes(range(8))
    outside = (
        b"\x70\x01\x6a\x0f\x0a\x08location\x12\x03d/e\x6a\x0b\x0a\x06offset\x12\x014"
        b"\x6a\x0b\x0a\x06length\x12\x018")
    seeds |= {
        "tensor": name + kind + dims + raw, "tensor_floats": name + kind + dims + b"\x22\x08" + bytes(8),
        "tensor_int64": name + b"\x10\x07" + dims + b"\x3a\x02\x01\x02", "tensor_outside": name + kind + dims + outside,
        "tensor_packed_dims": name + b"\x10\x15\x0a\x02\x03\x05" + raw, "tensor_segment":
        name + kind + dims + raw + b"\x1a\x02\x08\x01"
    }
    return seeds


def pt2_seeds():
    """Archives of the real writer (tests/data/pt2) without the program, which is passed over: what is left is small."""
    def members(config, record):
        return [(b"m/archive_format", b"pt2"), (b"m/archive_version", b"0"), (b"m/models/model.json", b"{}"),
                (b"m/data/weights/weight_0", record), (b"m/data/weights/model_weights_config.json", config)]
    saved = (HERE.parent / "data" / "torch" / "legacy_bare.pt").read_bytes()
    pickled = b'"%s": {"path_name": "weight_0", "is_param": false, "use_pickle": true, "tensor_meta": null}'
    entry = (
        b'"%s": {"path_name": "weight_0", "is_param": true, "use_pickle": false, "tensor_meta": {"dtype": 7, '
        b'"sizes": [{"as_int": 2}, {"as_int": 3}], "requires_grad": true, "device": {"type": "cpu", "index": null}, '
        b'"strides": [{"as_int": 3}, {"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7}}')
    def archive(config, method=zipfile.ZIP_STORED, record=bytes(range(24))):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as file:
            for name, data in members(config, record):
                file.writestr(zipfile.ZipInfo(name.decode()), data, method)
        return out.getvalue()
    fixtures = HERE.parent / "data" / "pt2"
    return {
        "empty":
        archive(b'{"config": {}}'), "one":
        archive(b'{"config": {' + entry % b"w" + b"}}"), "two":
        archive(b'{"config": {' + entry % b"w" + b", " + entry % b"v" + b"}}"), "pickled":
        archive(b'{"config": {' + pickled % b"w" + b"}}", record=saved), "pickled_twice":
        archive(b'{"config": {' + pickled % b"w" + b", " + pickled % b"v" + b"}}", record=saved), "two_deflated":
        archive(b'{"config": {' + entry % b"w" + b", " + entry % b"v" + b"}}",
                zipfile.ZIP_DEFLATED), "deflated": (fixtures / "deflated.pt2").read_bytes(), "torch_2_8_deflated":
        (fixtures / "torch_2_8_deflated.pt2").read_bytes(), "object":
        archive(
            b'{"config": {"o": {"path_name": "custom_obj_0", "is_param": false, "use_pickle": true, '
            b'"tensor_meta": null}}}'
        )
    }


def hdf5_seeds():
    """Files of the real writer (tests/data/hdf5), one for each structure; those in chunks that are short."""
    folder = HERE.parent / "data" / "hdf5"
    names = ["archive.hdf5"] + [f"{name}.h5" for name in (
        "links", "links_latest", "many", "many_latest", "narrow", "numbers", "small", "small_latest", "userblock",
        "chunks_fixed", "chunks_implicit", "chunks_implicit_many", "chunks_single", "chunks_tree", "chunks_tree_2")]
    return {name.split(".")[0]: (folder / name).read_bytes() for name in names}


def decode_seeds():
    """A letter for the format, then a file with tensors that are not stored as they are answered: in chunks, deflated,
    big-endian, transposed."""
    data = HERE.parent / "data"
    files = {name: b"h" + (data / "hdf5" / f"{name}.h5").read_bytes() for name in (
        "chunks_tree", "chunks_fixed", "chunks_extensible", "chunks_tree_2", "chunks_tree_2_deep", "chunks_single",
        "chunks_implicit", "filters")}
    files |= {
        f"npy_{name}": b"n" + (data / "npy" / f"{name}.npy").read_bytes() for name in ("big_f4", "big_i2", "fortran_3")
    }
    files |= {f"npz_{name}": b"z" + (data / "npz" / f"{name}.npz").read_bytes() for name in ("compressed", "mixed")}
    files |= {
        f"torch_{name}": b"t" + (data / "torch" / f"{name}.pt").read_bytes() for name in ("big_endian", "compressed")
    }
    files |= {f"pt2_{name}": b"p" + (data / "pt2" / f"{name}.pt2").read_bytes() for name in (
        "deflated", "torch_2_8_deflated", "torch_2_7_inner_deflated")}
    files["gguf_big_endian"] = (
        b"gGGUF" + struct.pack(">IQQ", 3, 1, 0) + struct.pack(">Q", 1) + b"w"  # one tensor, F16 (2)
        + struct.pack(">IQIQ", 1, 8, 1, 0)).ljust(65, b"\0") + bytes(range(16))
    array = npy_file("{'descr': '>u2', 'fortran_order': False, 'shape': (1500000,), }", data=0)
    files["npz_parts"] = b"z" + python_zip({"a.npy": (array + bytes(3000000), 8)})  # three parts of a stream
    files["npz_big_endian"] = b"z" + python_zip({"a.npy": (npy_file(
        "{'descr': '>u2', 'fortran_order': True, 'shape': (3, 5), }"), 8)})
    return files


def torch_zip(members, gap=0):
    """As PyTorch's writer: nothing in local headers, descriptors, padding in FB fields, zip64 end records."""
    out, directory = b"", b""
    for name, data in members.items():
        flags = 0x808 if data else 0x800
        begin = len(out)
        padding = 64 - (begin + 34 + len(name)) % 64
        out += struct.pack("<IHHHIIIIHH", 0x04034B50, 0, flags, 0, 0, 0, 0, 0, len(name), 4 + padding) + name.encode()
        out += struct.pack("<HH", 0x4246, padding) + b"Z" * padding + data
        rest = struct.pack("<III", zlib.crc32(data), len(data), len(data))
        out += b"PK\7\10" + rest if data else b""
        directory += struct.pack("<IHHHHI", 0x02014B50, 0, 0, flags, 0, 0) + rest
        directory += struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, begin) + name.encode()
    out += bytes(gap)
    n, at, end = len(members), len(out), len(out) + len(directory)
    return (out + directory + struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 0x31E, 45, 0, 0, n, n, len(directory), at) +
            struct.pack("<IIQI", 0x07064B50, 0, end, 1) +
            struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, n, n, len(directory), at, 0))


class Pipe(io.RawIOBase):
    """A stream that cannot seek: zipfile then writes descriptors."""
    data = b""

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data)
        return len(data)


def python_zip(members, out=None, comment=b"", zip64=False):
    """members: name -> (data, method)."""
    out = out or io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.comment = comment
        for name, (data, method) in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            with z.open(info, "w", force_zip64=zip64) as f:
                f.write(data)
    return out.getvalue() if isinstance(out, io.BytesIO) else out.data


def zip_seeds():
    array = npy_file("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }")
    two = {"a.npy": (array, 0), "b.npy": (array, 8)}
    torch = {
        "archive/data.pkl": b"\x80\2}.", "archive/byteorder": b"little", "archive/data/0": bytes(range(20)),
        "archive/data/1": b""
    }
    good = python_zip(two)
    return {
        "npz": good,
        "npz_zip64": python_zip(two, zip64=True),
        "comment": python_zip(two, comment=b"PK"),
        "empty": python_zip({}),
        "piped": python_zip(two | {"d/": (b"", 0)}, Pipe()),
        "piped_zip64": python_zip(two, Pipe(), zip64=True),
        "folders": python_zip({"d/": (b"", 0), "d/x": (b"x", 0), "e/": (b"", 8)}),
        "torch": torch_zip(torch),
        "torch_empty": torch_zip({}),
        "torch_case": torch_zip(torch | {"archive/DATA.PKL": b"x"}),
        "torch_root": torch_zip(torch | {"x/y": b"x"}),
        "gap": torch_zip(torch, 16),
        "parent": python_zip({"../a": (b"x", 0)}),
        "cut": good[:-1],
        "prefix": b"x" + good,
        "two_ends": good + good[-22:],
        "bomb": python_zip({"a.npy": (array + bytes(20000), 8)}),
        "not_npy": python_zip({"a": (b"text", 0)}),
    }
class Opaque:
    def __init__(self):
        self._parameters = {"w": 1}


def pickle_seeds():
    """Small ones: a value in every protocol, objects, and by hand what picklers of today do not write."""
    plain = {
        "a": [1, -1, 300, 2**40, -2**90, 0.5, None, True, False], "\u00e4": ("x", b"y", ()), 3: {1, 2}, (1, 2):
        frozenset("z")
    }
    seeds = {f"plain_{p}": pickle.dumps(plain, p) for p in range(6)}
    ring = []
    ring.append({"me": ring})
    objects = [collections.OrderedDict(a=1, b=[2]), Opaque(), complex(1, 2), bytearray(b"abc"), ring, ring]
    seeds |= {f"objects_{p}": pickle.dumps(objects, p) for p in (0, 2, 4, 5)}
    seeds["many_keys"] = pickle.dumps({f"layer.{i * 7 % 20}.w": i for i in range(20)}, 2)
    tensor = (
        b"ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x04tQ"
        b"K\x00K\x02K\x02\x86K\x02K\x01\x86\x89ccollections\nOrderedDict\n)RtRq\x01")
    seeds["state"] = b"\x80\x02}(X\x01\x00\x00\x00w" + tensor + b"U\x01vh\x01u."
    seeds["python_2"] = (
        b"(dp0\nS'a\\n\\x41\\101'\np1\nI01\nsg1\nL12345678901234567890L\nsV\\u00e4\\U0001f600\np2\n"
        b"(lp3\nF-1.5e3\nasg2\ng3\ns.")
    seeds["pairs"] = b"ccollections\nOrderedDict\n((lp1\n(lp2\nS'a'\naI1\naatR."
    seeds["laughs"] = b"]q\x00" + b"".join(b"(h%ch%ch%clq%c" % (i, i, i, i + 1)
                                           for i in range(5)) + b"0\x85\x85\x85\x85."
    seeds["duplicates"] = b"}(K\x01NI01\nNF1.0\nNU\x01aNX\x01\x00\x00\x00aNFnan\nNFnan\nNu."
    seeds["newobj_ex"] = b"ca\nb\n)}\x92}U\x01sK\x01sb(K\x01K\x02e(U\x01kNu."
    seeds["pops"] = b"(NN1N(0N20\x8c\x02os\x8c\x06system\x93)R0."
    seeds["memo_out_of_turn"] = b"Nr\xff\xff\xff\xffq\x02q\x01q\x00\x94\x94j\xff\xff\xff\xffh\x02\x87."
    return seeds


def torch_pickles():
    """data.pkl by hand, in the text opcodes of protocol 0; every record of the fuzz target has 96 bytes."""
    def stored(kind, numel, key="0"):
        return f"(S'storage'\nctorch\n{kind}\nS'{key}'\nS'cpu'\nI{numel}\ntQ"

    def numbers(values):
        return "(" + "".join(f"I{v}\n" for v in values) + "t"

    def rebuilt(storage, size, stride, offset=0, how="_rebuild_tensor_v2", rest="I00\n(d"):
        return f"ctorch._utils\n{how}\n({storage}I{offset}\n{numbers(size)}{numbers(stride)}{rest}tR"
    floats, longs = rebuilt(stored("FloatStorage", 24), [4, 6], [6, 1]), rebuilt(stored("LongStorage", 12), [2], [1], 3)
    doubles = rebuilt(stored("DoubleStorage", 12), [2], [1])
    items = {
        "views":
        floats + "sS'v'\n" + rebuilt(stored("FloatStorage", 24), [6, 2], [1, 6], 6) + "sI3\n" +
        rebuilt(stored("ByteStorage", 96), [], []),
        "v3":
        rebuilt(stored("UntypedStorage", 96), [3, 2], [2, 1], 1, "_rebuild_tensor_v3",
                "I00\n(dctorch\nuint16\n(dS'conj'\nI01\ns"),
        "conj":
        rebuilt(stored("ComplexFloatStorage", 12), [3], [1], 0, rest="I00\n(d(dS'neg'\nI01\ns"),
        "quantized":
        f"ctorch._utils\n_rebuild_qtensor\n({stored('QInt8Storage', 96)}I0\n{numbers([2, 8])}{numbers([8, 1])}"
        f"(cx\ny\n{doubles}{longs}I0\ntI00\n(dtR",
        "scaled":
        f"ctorch._utils\n_rebuild_qtensor\n({stored('QInt8Storage', 96)}I0\n{numbers([8])}{numbers([1])}"
        "(cx\ny\nF0.5\nI3\ntI00\n(dtR",
        "sparse":
        "ctorch._utils\n_rebuild_sparse_tensor\n(cx\ny\n(S'torch.sparse_csr'\ntR"
        f"({longs}{longs}{floats}{numbers([3, 3])}I00\nttR",
        "nested":
        f"ctorch._utils\n_rebuild_nested_tensor\n({floats}{longs}{longs}{longs}tR",
        "meta":
        f"ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\n{numbers([3, 4])}{numbers([4, 1])}I00\ntR",
        "parameter":
        f"ctorch._utils\n_rebuild_parameter_with_state\n({floats}I01\n(d(dS't'\n{longs}stR",
        "type":
        "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\ncx\ny\n"
        f"({stored('FloatStorage', 24)}I0\n{numbers([2])}{numbers([1])}I00\n(dt(dtR",
        "module":
        f"cx\ny\n)R(dS'_parameters'\n(dS'w'\n{floats}ssS'_buffers'\n(dS'b'\n{longs}sS'c'\n{longs}ss"
        "S'_modules'\n(dS'm'\nNssS'_non_persistent_buffers_set'\nc__builtin__\nset\n((lS'c'\natRsb",
        "storage":
        stored("IntStorage", 24),
        "unknown":
        rebuilt(stored("OddStorage", 1), [2], [1]),
        "scalars":
        "(lI1\naF0.5\naNaI01\naS'x\\xff'\naV\\u00e4\na" + "I7\na" * 70,
        "numpy":
        "cnumpy._core.multiarray\nscalar\n(cnumpy\ndtype\n(S'f4'\ntR"
        "c_codecs\nencode\n(V\\u0000\\u0000\\u00c0\\u003f\nS'latin1'\ntRtR",
    }
    seeds = {f"made_{name}": b"R\0(dS'w'\n" + item.encode() + b"sS'n'\nI5\ns." for name, item in items.items()}
    seeds["made_big"] = seeds["made_views"].replace(b"R\0", b"R\1", 1)
    seeds["made_compressed"] = seeds["made_v3"].replace(b"R\0", b"R\2", 1)
    seeds["made_constants"] = seeds["made_quantized"].replace(b"R\0", b"R\4", 1)
    seeds["made_same_name"] = b"R\0(dS'a'\n(dS'b'\n" + floats.encode() + b"ssS'a.b'\n" + longs.encode() + b"s."
    seeds["made_ring"] = b"R\0(dp0\nS'me'\ng0\nsS'w'\n" + floats.encode() + b"s."
    return seeds


def torch_seeds():
    """The fixtures that tests/data/make_torch.py and make_dcp.py write, those of up to 4 KiB; and pickles by hand."""
    data, seeds = HERE.parent / "data", torch_pickles()
    for path in sorted((data / "torch").glob("*.pt")):
        content = path.read_bytes()
        if len(content) <= 4096:
            seeds[path.stem] = content
    seeds["distcp"] = b"D" + seeds["bare"] + seeds["empty"]
    for path in sorted((data / "dcp").glob("**/*")):
        kind = {".distcp": b"D", "": b"M"}.get(path.suffix)
        if kind and path.is_file() and path.stat().st_size <= 4096:
            seeds[f"dcp_{path.parent.name}_{path.name.strip('._').replace('.', '_')}"] = kind + path.read_bytes()
    return seeds


def digest_log_seeds():
    """The first byte: 1 checksums are made right, 2 the header is; then the log."""
    header = b"tdigests" + struct.pack("<II", 1, 0x01020304)

    def record(i, length=88, kind=1, zero=0):
        body = struct.pack("<IIQQQqq", length, kind, 2049, 100 + i, 1000 * i, 10**18 + i, 10**18 + 2 * i) + bytes(
            [i] * 32)
        return body + struct.pack("<II", zlib.crc32(body), zero)

    three = b"".join(record(i) for i in range(3))
    return {
        "empty": b"\0",
        "header": b"\0" + header,
        "three": b"\0" + header + three,
        "many": b"\0" + header + b"".join(record(i) for i in range(40)),
        "cut": b"\0" + header + three[:-1],
        "twice": b"\0" + header + three + three,
        "checksums": b"\3" + bytes(16) + record(1) + bytes(88) + record(2),
        "bad_middle": b"\0" + header + record(1) + record(2)[:-8] + bytes(8) + record(3),
        "length": b"\1" + header + record(1, length=96),
        "kind": b"\1" + header + record(1, kind=2),
        "zero": b"\1" + header + record(1) + record(2, zero=1),
        "version": b"\0tdigests" + struct.pack("<II", 2, 0x01020304) + three,
        "byte_order": b"\0tdigests" + struct.pack(">II", 1, 0x01020304) + three,
        "garbage": b"\0" + bytes(range(256)) * 3,
    }


def slice_seeds():
    """The first byte: 0 slice, 1 shard, 2 box, 3 plan, 4 runs. A type by its place in the target's list, a rank, sizes;
    then a text, or numbers."""
    def number(value):
        return bytes([value]) if value < 240 else b"\xff" + struct.pack("<Q", value)

    def shape(*sizes):
        return bytes([len(sizes)]) + b"".join(number(size) for size in sizes)

    def run(source, off, length, count=1, stride=0, step=0):
        return bytes([source]) + b"".join(number(n) for n in (off, length, count, stride, step))

    def block(rounds, *runs):
        return (b"\0" if rounds == 1 else b"\1" + number(rounds)) + bytes([len(runs)]) + b"".join(runs)

    big = 2**64 - 1
    seeds = {
        f"slice_{i}": b"\0\2" + shape(*sizes) + text
        for i, (sizes, text) in enumerate([((4, 6), b"1:3,2:"), ((4, 6), b"...,-1"), ((
            4, 6), b":-9,9:"), ((4, 6, 2), b"0,...,1"), ((), b"..."), ((
                0, 3), b":"), ((big, 2),
                               b"18446744073709551614,:1"), ((3, 3), b"::2"), ((3, 3), b"5"), ((3, 3),
                                                                                               b""), ((3, 3), b"a,1_")])
    }
    seeds |= {
        f"shard_{i}": b"\1\1" + shape(*sizes) + text
        for i, (sizes, text) in enumerate([((7, 6), b"0:2/3"), ((7, 6), b"-1:3/4"), ((
            7, ), b"0:9/16"), ((big, ),
                               b"0:18446744073709551613/18446744073709551614"), ((7, 6),
                                                                                 b"2:0/1"), ((7, 6),
                                                                                             b"0:1"), ((7, 6),
                                                                                                       b"0:3/3")])
    }
    # starts and sizes follow each dimension; block types count in blocks of the last one
    seeds["box"] = b"\2\2\3" + bytes([5, 1, 3, 6, 2, 2, 4, 1, 2])
    seeds["box_deep"] = b"\2\0\6" + bytes([3, 1, 2] * 6)
    seeds["box_blocks"] = b"\2\5\2" + bytes([4, 1, 2, 3, 32, 33, 1])
    seeds["box_split"] = b"\2\4\2" + bytes([4, 1, 2, 3, 0, 2])
    # dimensions but one, the axis's sizes, cells, pieces: not zeros, which, start, size, one or several
    joined = bytes([1, 0, 0, 3, 0]) + bytes([1, 1, 1, 2, 0])
    seeds["plan_rows"] = b"\3\1\2\0\1" + bytes([3, 2, 4, 5]) + b"\0\1" + joined
    seeds["plan_columns"] = b"\3\1\2\1\1" + bytes([3, 2, 4, 5]) + b"\0\1" + joined
    seeds["plan_cells"] = b"\3\2\3\1\2" + bytes([2, 3, 4, 5, 5, 5]) + b"\1\1" + joined * 2
    seeds["plan_strided"] = b"\3\0\1\0\0" + bytes([4, 8]) + b"\0\0" + bytes([1, 0, 0, 2, 1, 0, 3])
    seeds["plan_zeros"] = b"\3\1\2\0\0" + bytes([3, 2, 4]) + b"\0\1" + bytes([1, 0, 1, 2, 0]) + bytes([0, 4])
    seeds["plan_blocks"] = b"\3\5\2\0\0" + bytes([3, 2, 4]) + b"\0\0" + bytes([1, 0, 1, 2, 0])
    seeds["plan_scalars"] = b"\3\1\0\2\1\0" + bytes([1, 0, 0, 1, 0, 1, 1, 0, 1, 0])
    seeds["runs"] = b"\4\3" + block(1, run(0, 3, 20)) + block(5, run(1, 2, 4, step=9)) + block(1, run(3, 0, 99))
    seeds["runs_columns"] = b"\4\1" + block(6, run(0, 0, 3, 2, 5, 11), run(1, 1, 2, step=7), run(3, 0, 1))
    seeds["runs_touch"] = b"\4\4" + block(1, run(0, 3, 20)) + block(1, run(0, 23, 7)) \
        + block(4, run(0, 30, 2, 3, 2, 6)) + block(1, run(0, 54, 1))
    seeds["runs_vast"] = b"\4\2" + block(big, run(3, 0, 1)) + block(2, run(0, 2**63, 2**63, 1, 0, 1))
    seeds["runs_wrap"] = b"\4\2" + block(3, run(0, 1, 1, 3, 2**63, 2**63)) + block(1, run(2, big - 1, 1))
    seeds["runs_outside"] = b"\4\2" + block(1, run(0, 0, 200, 1)) + block(1, run(0, 200, 200))
    return seeds


def plan_seeds():
    """A plan, config.json, tensors; a line each."""
    def seed(plan, config, *tensors):
        plan = plan if isinstance(plan, str) else json.dumps(plan)
        config = config if isinstance(config, str) else json.dumps(config)
        return "\n".join([plan, config, *tensors]).encode()

    layer = "model.layers.0."
    llama = [
        layer + f"self_attn.{n}_proj.weight {s} BF16"
        for n, s in (("q", "32,16"), ("k", "8,16"), ("v", "8,16"), ("o", "16,32"))
    ]
    llama += [
        layer + f"mlp.{n}_proj.weight {s} BF16" for n, s in (("gate", "24,16"), ("up", "24,16"), ("down", "16,24"))
    ]
    llama += [
        "model.embed_tokens.weight 100,16 BF16", "lm_head.weight 100,16 BF16", "model.norm.weight 16",
        layer + "self_attn.rotary_emb.inv_freq 2"
    ]
    config = {
        "architectures": ["LlamaForCausalLM"], "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 32,
        "vocab_size": 100
    }
    seeds = {f"{engine.replace('-', '_')}_{tp}": seed({"engine": engine, "tp_size": tp}, config, *llama)
             for engine, tp in (("vllm", 2), ("vllm", 4), ("vllm", 3), ("nano-vllm", 2), ("fsdp", 3), ("none", 2))}
    experts = [
        f"model.layers.0.block_sparse_moe.experts.{i}.{w}.weight 8,4" for i in range(3) for w in ("w1", "w2", "w3")
    ]
    seeds["experts"] = seed(
        {"engine": "vllm", "tp_size": 2},
        {"architectures": ["MixtralForCausalLM"], "n_head": 2, "head_dim": 2, "num_local_experts": 3}, *experts)
    seeds["text_config"] = seed({"engine": "vllm", "tp_size": 2}, {
        "architectures": ["Gemma3ForCausalLM"], "text_config": {"n_head": 2, "head_dim": 4, "vocab_size": 8},
        "quantization_config": {}
    }, "model.norm.weight 4")
    rules = [{"match": "experts.*.w1", "out": "w13", "stack": True, "stack_size":
              2}, {"match": "experts.*.w3", "out": "w13", "slot": 1, "stack": True, "stack_size": 2}, {
                  "match": "h.*.qkv", "out": "transformer.h.*.qkv", "groups": 4, "parts":
                  [{"count": 16, "unit": 1}, {"count": 4, "unit": 1, "replicate": True}, {"count": 4, "unit": 1}]
              },
             {"match": "**.packed", "dim": 1, "pack": 8, "parts": [{"count": 4, "unit": 8}, {"count": 0, "unit": 8}]},
             {"match": "*.whole.**", "whole": True}, {"match": "e", "pad_to": 64}, {"match": "**.gone", "drop": True},
             {"match": "**.bad", "refuse": "not this"}, {"match": "a.**", "uneven":
                                                         "chunk"}, {"match": "b.*", "dim": -1, "uneven":
                                                                    "balanced"}, {"match": "**.x.**.y"}]
    tensors = [
        "experts.0.w1 4,3", "experts.1.w1 4,3", "experts.0.w3 4,3", "experts.1.w3 4,3", "h.7.qkv 24,2",
        "q.packed 3,12 I32", "l.whole.z 5,5", "e 70,2", "x.gone 9", "a.n 7,3", "b.n 4,7", "p.x.q.y 8", "scalar ",
        "bits.x.1.y 8,16 F4"
    ]
    seeds["rules"] = seed({"tp_size": 4, "rules": rules}, "", *tensors)
    seeds["refused"] = seed({"tp_size": 2, "rules": rules}, "{}", "x.bad 4")
    seeds["ranks"] = seed(
        {"ranks": [{"tensors": [{"name": "a", "slice": "0:2,...", "as": "b"}, {"name": "c"}]}, {"tensors": []}]}, "",
        "a 4,4", "c 3 F16")
    boxes = [{"name": "a", "slice": "1:3,:2"}, {"name": "a"}, {"name": "q", "slice": ":,32:"}, {"name": "a", "slice":
                                                                                                "0,...,3"}]
    boxes.append({"name": "c", "slice": "2:2"})
    seeds["boxes"] = seed({"boxes": boxes, "manifest": "0" * 32}, "", "a 4,4", "c 3 F16", "q 2,64 Q8_0")
    seeds["unknown"] = seed('{"tp":2}', "{")
    seeds["wildcards"] = seed(
        {
            "tp_size":
            1, "rules": [{"match": "**.a.**.a.**", "whole": True}, {"match": "*.*.*", "out": "**_**-**", "whole": True},
                         {"match": "**", "whole": True}]
        }, "", "a.a.a.a.a 2,2", "b.c.d 2,2", ".b. 2,2", ".a..a. 2,2", "a.b 2")
    return seeds


def line_index_seeds():
    """Each: the parts less one, the first row, the number of rows, and a text."""
    texts = {
        "empty": b"", "one": b"{}", "crlf": b'{"a": 1}\r\n{"b": 2}\r\n', "blank": b"\n \t\r\n{}\n\n{}\n\x0b\x0c\n",
        "mark": b"\xef\xbb\xbf{}\n[]", "half_mark": b"\xef\xbb", "nul": b"a\0b\n\0\n", "cr": b"a\rb\r\r\nc\r",
        "many": b"".join(b"%d\n" % number for number in range(300)), "long": b"x" * 2000 + b"\n" + b"y" * 2000,
    }
    return {name: bytes([number, number % 3, number % 4]) + text for number, (name, text) in enumerate(texts.items())}


def rows_arrow_seeds(extensions, before=b""):
    """Files of pyarrow (tests/data/rows_arrow) with these extensions."""
    paths = sorted((HERE.parent / "data" / "rows_arrow").iterdir())
    return {path.name.replace(".", "_"): before + path.read_bytes() for path in paths if path.suffix in extensions}


def arrow_seeds():
    """Each: the first row to cut, the number of rows, four rows to gather, and a file."""
    return rows_arrow_seeds((".arrow", ".feather"), bytes([1, 3, 4, 0, 2, 2]))


def row_file_seeds(suffix, prefix=b"", most=20000):
    """The files of this name that tests/data/make_rows.py wrote."""
    files = sorted((HERE.parent / "data" / "rows").glob("*" + suffix))
    return {path.name: prefix + path.read_bytes() for path in files if path.stat().st_size <= most}


def csv_seeds():
    seeds = {name: b"\6" + data for name, data in row_file_seeds(".csv").items()}
    seeds |= {name: b"\7" + data for name, data in row_file_seeds(".tsv").items()}
    return seeds | {"open": b'\0a,b\n1,"\n\n', "closed": b'\2a\n""""\n"x"y"\n",\n"', "empty": b"\0"}


def webdataset_seeds():
    """Small archives; make_rows.py has those of the real writers."""
    def archive(tar_format, *members, **options):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tar_format, **options) as tar:
            for name, data, *kind in members:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                info.type = kind[0] if kind else tarfile.REGTYPE
                tar.addfile(info, io.BytesIO(data))
        return out.getvalue()

    two = [("a/0.txt", b"one"), ("a/0.cls", b"7"), ("a/1.txt", b"x" * 513)]
    seeds = {
        "ustar": archive(tarfile.USTAR_FORMAT, *two),
        "gnu": archive(tarfile.GNU_FORMAT, ("n" * 120 + ".txt", b"1"), ("n" * 120 + ".cls", b"")),
        "pax": archive(tarfile.PAX_FORMAT, ("\u00e9" * 80 + ".txt", b"1"), pax_headers={"comment": "all"}),
        "kinds": archive(tarfile.USTAR_FORMAT, ("a/", b"", tarfile.DIRTYPE), ("b", b"", tarfile.SYMTYPE),
                         ("__m__/a.b", b""), ("x.y", b"", tarfile.CONTTYPE), ("z.y", b"1", b"Z"), (".h.i", b"")),
        "sparse": archive(tarfile.GNU_FORMAT, ("a.b", b"", tarfile.GNUTYPE_SPARSE)),
        "global": archive(tarfile.PAX_FORMAT, *two, pax_headers={"size": "3", "path": "x"}),
        "key": b"a.b/c/.hidden.txt",
    }
    for name, data in seeds.items():
        data = data.rstrip(b"\0") if name != "key" else data
        seeds[name] = data + bytes(-len(data) % 512 + 512 if name != "key" else 0)
    return seeds


def mds_seeds():
    config = b'{"column_encodings": ["str"], "column_names": ["a"], "version": 2}'
    made = bytes([3, 5, 0, 9, len(config) + 1]) + config + b"x" * 14
    return row_file_seeds(".mds") | {"made": made, "none": struct.pack("<II", 0, 8), "count": b"\xff" * 12,
                                     "within": struct.pack("<5I", 3, 20, 19, 20, 20)}


def litdata_seeds():
    arrow = b"ARROW1" + struct.pack("<I", 6) + b"LDARW01\0"
    return row_file_seeds(".bin", most=800) | {"made": b"\3\5\0\2abcdefg", "arrow": b"\1\2ab" + arrow,
                                               "slim": b"\2\0\0" + arrow}


def megatron_seeds():
    folder = HERE.parent / "data" / "rows"
    seeds = {}
    for path in folder.glob("*.idx"):
        size = path.with_suffix(".bin").stat().st_size
        seeds[path.name] = struct.pack("<H", size) + path.read_bytes()
    body = struct.pack("<2i2qq", 2, 3, 0, 4, 0)
    late = struct.pack("<H9sQBQQiqq", 8, b"MMIDIDX", 1, 8, 1, 1, 3, 2, 1)  # the first sequence begins at byte 2
    return seeds | {"made": struct.pack("<HBB", 10, 8, 2) + body, "below": struct.pack("<HBB", 10, 8, 1) + bytes(8),
                    "late": late}


def tokens_seeds():
    names = ["a.uint16.bin", "a.uint8x3.bin", "b.bfloat16x2.bin", "c.float64x10.bin", "d.int8x01.bin", ".int8.bin",
             "e.uint64x1152921504606846975.bin", "f.int32x0.bin", "g.bin"]
    return {name: struct.pack("<H", 48) + name.encode() for name in names}


def row_index_seeds():
    """The form of td_row_index_write: magic, format, layout, rows, sizes, six parameters, lengths; words; texts."""
    def seed(name, layout, rows, sizes, params, words=(), columns=b"", reason=b""):
        numbers = [layout, rows, *sizes, *params, *[0] * (6 - len(params)), len(words), len(columns), len(reason)]
        return (bytes(sizes) + b"tdrows2\0" + name.encode().ljust(16, b"\0") + struct.pack("<13Q", *numbers) +
                struct.pack(f"<{len(words)}Q", *words) + columns + reason)

    return {
        "lines": seed("jsonl", 0, 3, [60, 0], [1, 0, 0, 1], [0, 2, 30]),
        "csv": seed("csv", 0, 3, [200, 0], [0, 5, 44, 1], [5], b'[{"name":"a"}]\0'),
        "even": seed("tokens", 1, 4, [24, 0], [4, 5]),
        "offsets": seed("mds", 2, 3, [100, 0], [4, 4]),
        "wide": seed("litdata", 2, 3, [100, 0], [4, 8]),
        "pointers": seed("megatron", 3, 3, [50, 44], [1, 20, 4]),
        "places": seed("webdataset", 4, 3, [20, 0], [], [0, 10, 20, 0, 12, 8]),
        "even_past": seed("tokens", 1, 5, [24, 0], [4, 5]),
        "places_past": seed("webdataset", 4, 2, [20, 0], [], [0, 10, 15, 6]),
        "blocks": seed("npy", 5, 7, [20, 0], [4], [0, 10, 5, 77, 10, 10, 2, 88], b"[]\0", b"why\0"),
    }




def card_splits_seeds():
    """Each: the front matter as JSON, and paths, separated by NUL."""
    paths = b"train.jsonl\0data/train-00000-of-00001.parquet\0en/a.json\0fr/sub/b.json\0a]b\0" + "caf\u00e9".encode()

    def configs(*files):
        return [{"config_name": f"c{i}", "data_files": f} for i, f in enumerate(files)]

    cards = {
        "one": {"configs": [{"data_files": "*.jsonl"}]},
        "splits": {"configs": [{"data_files": [{"split": "train", "path": "data/train-*"},
                                               {"split": "test", "path": ["**/*.json", "./a.csv"]}]}]},
        "several": {"configs": configs("en/*.json", ["fr/**"], [{"split": "x", "path": "**"}])},
        "default": {"configs": [*configs("a"), {"config_name": "d", "default": True, "data_files": "b"}]},
        "sets": {"configs": configs("[a-c]*", "[!a]**/?", "[]a]", "[!]]*", "[", "a[z-a]", "**/**/x", "*a*a*a*b")},
        "folders": {"configs": [{"config_name": "a", "data_dir": "en"}, {"config_name": 2, "data_dir": "./fr/",
                                                                         "data_files": "sub/*"}, {"data_dir": ".."}]},
        "wrong": {"configs": [1, None, {}, {"data_files": {"a": "b"}}, {"data_files": [[], {"split": 1}]}], "x": []},
    }
    seeds = {name: json.dumps(card).encode() + b"\0" + paths for name, card in cards.items()}
    seeds["cut"] = json.dumps(cards["splits"]).encode()[:40] + b"\0" + paths
    return seeds


def content_wire_seeds():
    """Returns messages of the parser's process (catalog/sandbox): a byte for the kind of the file, its size in two
    bytes, an
    error, and the content."""
    u32, u64 = struct.Struct("<I").pack, struct.Struct("<Q").pack

    def string(value):
        return u64(len(value.encode())) + value.encode()

    def maybe(value):
        return b"\0" if value is None else b"\1" + string(value)

    def tensor_of(name, shape=(2, 2), dtype=17, nbytes=16, offset=0, strides=(), coding=0, file=0, reason=None):
        flags = 1 if strides else 0
        return (string(name) + bytes([dtype, len(shape), flags]) + b"".join(map(u64, shape)) + b"".join(
            map(u64, strides)) + u64(nbytes) + u64(offset) + u32(coding) + u32(file) + maybe(reason))

    def manifest(tensors, codings=(), files=(), metadata=(), marks=0, total=0):
        pairs = [string(k) + string(v) for k, v in metadata]
        lists = [codings, [*map(string, files)], pairs, tensors]
        return (bytes([marks]) + u32(2**32 - 1) * 2 + b"".join(u64(len(items)) + b"".join(items) for items in lists) +
                u64(total))

    def seed(kind, content, code=0, message=""):
        return bytes([kind]) + struct.pack("<H", 4096) + u32(code) + u32(0) + u64(2**64 - 1) + string(message) + content

    fine, onnx, distcp = u32(1), u32(9), u32(3)
    stream = u32(0) + b"\0" + string("deflate") + u64(16) + u64(0) + u64(100) + u64(10) + u32(0)
    grid = (u32(1) + b"\1" + string("chunks") + u64(16) + u64(0) * 3 + u32(0) + u32(2) + u32(4) + u64(2) * 4 + b"\0" +
            u32(1) + b"\1" + u32(4) + u64(1) + u64(0) + u64(64) + u32(9) + u32(0))
    piece = u32(0) + u64(10) + u64(20) + u64(0) + u64(4) + b"\0"
    return {
        "error": seed(0, b"", 1, "the file is wrong"),
        "no_format": seed(0, u32(0)),
        "empty": seed(0, fine + manifest([])),
        "two": seed(0, fine + manifest([tensor_of("a"), tensor_of("b", offset=16)], total=32)),
        "shared": seed(0, fine + manifest([tensor_of("a"), tensor_of("b")], marks=2, total=32)),
        "strides": seed(0, fine + manifest([tensor_of("a", strides=(1, 2))], total=16)),
        "reason": seed(0, fine + manifest([tensor_of("a", reason="sparse", offset=9999)], total=16)),
        "codings": seed(0, fine + manifest([tensor_of("a", coding=1), tensor_of("b", coding=2)], [grid, stream],
                                           total=32)),
        "external": seed(0, onnx + manifest([tensor_of("a", file=1, reason="stored in another file")], files=["d/x"],
                                            metadata=[("k", "[1]")], total=16)),
        "part": seed(1, distcp + manifest([tensor_of("@0+16")], total=16)),
        "index": seed(2, b"\0\0" + maybe(None) + u64(2) + string("a.bin") + string("b.bin") + u64(2) + string("t") +
                      u32(0) + string("u") + u32(1)),
        "delta": seed(2, b"\0\1" + maybe("000001") + u64(1) + string("a.bin") + u64(1) + string("t") + u32(0)),
        "no_delta": seed(2, b"\0\0" + maybe("000001") + u64(0) + u64(0)),
        "dcp": seed(3, u64(1) + string("__0_0.distcp") + u64(1) + string("t") + b"\1\x11" + u64(4) + u64(1) + piece),
        "facts": seed(4, b"\1" + string("{}") + maybe("x") + maybe(None) * 3 + b"\0" + u64(1) + string("en") + u32(1) +
                      b"\0"),
        "no_facts": seed(4, b"\0"),
        "rows": bytes([5]) + struct.pack("<H", 4096) + u32(1) + u64(10) + u64(100) + u64(10) + u64(0) * 4 +
                maybe("[]") + maybe(None) + u64(0),
    }


def fetch_answer_seeds():
    return {
        "part": b"HTTP/1.1 206 Partial Content\r\nETag: \"abc\"\r\nContent-Range: bytes 0-9/100\r\n"
                b"Content-Length: 10\r\n\r\n",
        "redirect": b"HTTP/1.1 302 Found\nLocation: /x\nETag: \"a\"\n\nHTTP/2 200\nContent-Length: 3\n\n",
        "page": b'HTTP/1.1 200 OK\nLink: </a>; rel="prev", <https://h/b?cursor=c>; rel="next"\n'
                b"Content-Encoding: gzip\n",
        "busy": b"HTTP/1.1 503 No\nRetry-After: Fri, 31 Dec 2100 23:59:59 GMT\nX-Error-Message: why\n"
                b'ETag: W/"a"\n',
        "twice": b"HTTP/1.1 200 OK\nContent-Length: 3\nContent-Length: 4\nContent-Range: bytes */3\n",
    }


def fetch_journal_seeds():
    """Each: a head of 512 bytes, whose checksum the target makes, and bits."""
    def head(size, digest=b"", etag=b"", boot=b"", piece=256 * 1024, magic=b"tensord fetch 1\0"):
        text = magic + struct.pack("<QII", size, piece, 1 if digest else 0) + digest.ljust(32, b"\0")
        return (text + etag.ljust(256, b"\0") + boot.ljust(40, b"\0")).ljust(512, b"\0")

    return {
        "digest": head(3 << 20, b"d" * 32, b'"tag"', b"boot") + b"\xff\x03",
        "tag": head(1, b"", b'"tag"', b"boot") + b"\1",
        "empty": head(0), "huge": head(1 << 63), "piece": head(100, piece=1), "magic": head(100, magic=b"x" * 16),
        "long": head(9, b"", b"x" * 256, b"y" * 40),
    }


def remote_listing_seeds():
    """Each: pages, separated by NUL."""
    def file(path, size=7, **others):
        return {"type": "file", "path": path, "size": size, "oid": "0" * 40, **others}

    lfs = {"oid": "a" * 64, "size": 1 << 40, "pointerSize": 135}
    lists = {
        "hub": [[{"type": "directory", "path": "d", "size": 0, "oid": "0" * 40}, file("d/x.json"),
                 file("a.safetensors", 1 << 40, lfs=lfs, xetHash="x")], [file("b")]],
        "colliding": [[file("a"), file("a/b")], [file("a")]],
        "leaving": [[file("a/../../b")], [file("/a")], [file(".a.tensord-part")]],
        "wrong": [[file("x", -1)], [file("x", lfs={})], [1], {"error": "no"}],
        "large": [[file("x", (1 << 63) - 1), file("y", 1)]],
        "pull_folder": [[file(".out.tensord-pull/x")]],
        "upstream_folder": [[file("d/.tensord-upstream/x")]],
    }
    return {name: b"\0".join(json.dumps(page).encode() for page in pages) for name, pages in lists.items()}


def hub_commit_lines_seeds():
    """Bodies of commits, as clients of the Hub send them, and faulty ones."""
    def line(key, **value):
        return json.dumps({"key": key, "value": value}).encode() + b"\n"

    def content(data):
        return {"content": base64.b64encode(data).decode(), "path": "config.json", "encoding": "base64"}

    header = line("header", summary="Upload", description="", parentCommit="a" * 40)
    oid = hashlib.sha256(b"").hexdigest()
    return {
        "header": header, "file": header + line("file", **content(b"{}" * 50)),
        "long": header + line("file", **content(bytes(range(256)) * 20)),
        "all": header + line("lfsFile", path="m", algo="sha256", oid=oid, size=0) + line("lfsFile", path="n", oid=oid) +
        line("deletedFile", path="old") + line("deletedFolder", path="d/") + line("file", **content(b"")),
        "escapes": header + b'{"key":"file","value":{"path":"\\u00e9","content":"Pz8\\/","encoding":"base64"}}\r\n\n',
        "twice": header + header, "unknown": line("copy", path="a"),
        "cut": header + line("file", **content(b"abc"))[:50],
        "padding": header + b'{"key":"file","value":{"content":"YQ==YQ==","path":"p","encoding":"base64"}}',
    }


def xet_xorb_seeds():
    """Xorbs of one chunk, an LZ4 frame: blocks that are linked, a match from 0 bytes back, a long frame."""
    def xorb(descriptor, *blocks, length):
        frame = bytes.fromhex("04224d18" + descriptor) + b"".join(
            struct.pack("<I", len(block)) + block for block in blocks) + bytes(4)
        return b"\0" + len(frame).to_bytes(3, "little") + b"\1" + length.to_bytes(3, "little") + frame

    return {
        "linked": xorb("4040c0", b"\x50abcde", b"\x0f\5\0\xff\x0a\x50vwxyz", length=294),
        "from_itself": xorb("604082", b"\x2aab\0\0\x50cdefg", length=21),
        "bomb": xorb("4070df", b"\x1fx\1\0" + b"\xff" * 4000 + b"\x0a\x50vwxyz", length=100),
    }


def pushed_manifest_seeds():
    """Manifests as clients push them: of oras, modctl, KitOps, Ollama, an image, an index, a signature; wrong ones."""
    title, path = "org.opencontainers.image.title", "org.cncf.model.filepath"
    tar = "application/vnd.oci.image.layer.v1.tar"

    def item(kind, digit="a", **notes):
        made = {"mediaType": kind, "digest": "sha256:" + digit * 64, "size": 7}
        return {**made, "annotations": notes} if notes else made

    def manifest(*layers, kind="application/vnd.oci.image.config.v1+json", **others):
        return {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": item(kind),
                "layers": list(layers), **others}

    ollama = [item(f"application/vnd.ollama.image.{kind}") for kind in ("model", "license", "license", "params")]
    made = {
        "oras": manifest(item(tar, "b", **{title: "a.bin"}),
                         item(tar + "+gzip", "c", **{title: "d", "io.deis.oras.content.unpack": "true"})),
        "modelpack": manifest(item("application/vnd.cncf.model.weight.v1.raw", **{path: "w/a.safetensors"}),
                              item("application/vnd.cncf.model.doc.v1.tar", **{path: "docs"}),
                              artifactType="application/vnd.cncf.model.manifest.v1+json"),
        "kitops": manifest(item("application/vnd.kitops.modelkit.model.v1.tar+gzip")),
        "ollama": manifest(*ollama, kind="application/vnd.docker.container.image.v1+json"),
        "image": manifest(item("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip")),
        "index": {"schemaVersion": 2, "manifests": [item("application/vnd.oci.image.manifest.v1+json")]},
        "signature": manifest(item("application/jose+json"), subject=item("t", "d"), annotations={"io.cncf": "x"}),
        "leaving": manifest(item(tar, **{title: "../a"})),
        "colliding": manifest(item(tar, **{title: "a"}), item(tar, **{title: "a/b"})),
        "both": {**manifest(), "manifests": []},
    }
    return {name: json.dumps(value).encode() for name, value in made.items()}


def commit_text_seeds():
    """Bodies of POST commits, and faulty ones."""
    def file(path="a", **more):
        return {"path": path, "digest": "sha256:" + hashlib.sha256(b"").hexdigest(), "size": 0, **more}

    orders = {
        "files": {"files": [file(), file("b/c")]}, "keep": {"keep": True, "delete": ["a", "d/"]},
        "all": {"files": [file("\u00e9")], "keep": False, "delete": [], "revision": "dev", "from": "main",
                "parent": "", "message": "one\n\"two\""},
        "unknown": {"files": [], "mode": 1}, "missing": {}, "member": {"files": [file(mode=1)]},
        "size": {"files": [file(size=1.5)]}, "large": {"files": [file(size=2**64 - 1)]},
    }
    seeds = {name: json.dumps(order).encode() for name, order in orders.items()}
    return {**seeds, "twice": b'{"files":[],"files":[]}', "cut": seeds["all"][:60],
            "nul": b'{"files":[],"from":"\\u0000"}'}


def event_reader_seeds():
    """Streams of server-sent events after a byte with the length of their pieces: examples of the HTML standard,
    section 9.2.6, and a stream of a server's."""
    streams = {
        "stocks": b"data: YHOO\ndata: +2\ndata: 10\n\n",
        "ids": b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
        "empty": b"data\n\ndata\ndata\n\ndata:",
        "ends": b"data: a\r\ndata: b\rdata: c\n\r\nevent: x\r\rdata: d\r\r\n",
        "mark": b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n",
        "server": b'retry: 2000\nid: 5f1c-1\n\n:\n\nid: 5f1c-2\nevent: replaced\ndata: {"kind":"model"}\n\n',
        "long": b"data: " + b"x" * 20000 + b"\n\n",
        "nul": b"id: a\0b\nevent: \0\ndata: \0\n\n",
    }
    return {name: bytes([step]) + stream for (name, stream), step in zip(streams.items(), itertools.cycle((0, 2, 255)))}


def message_seeds():
    """Messages after a byte with the position of their type in the schema, doubled, and one more for JSON."""
    stream_rows_response, model, get_manifest, extent, register_plan, read_tensors = 12, 18, 25, 33, 34, 44
    binary = {
        "manifest": (get_manifest,
                     b"\x0a\x01m\x20\x01\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x4a\x06\x0a\x04name"),
        "plan": (register_plan,
                 b"\x0a\x01m\x28\x02\x32\x13\x0a\x02**\x48\x01\x52\x04\x08\x01\x10\x02\x79\0\0\0\0\0\0\xf0\x3f"),
        "tensors": (read_tensors, b"\x22\x07\x0a\x01w\x12\x020:\x22\x03\x0a\x01v\x30\x80\x20"),
        "extents": (extent, b"\x60\x02" + b"\x6a\x06\x6a\x04\x6a\x02\x50\x07"),
        "rows": (stream_rows_response, b"\x08\x01\x1a\x03abc\x1a\0"),
        "model": (model, b"\x0a\x01m\x32\x02\x18\x05\x5a\x02\x08\x01\x62\x05\x0a\x03\x0a\x01a\x7a\x02\x10\0"),
        "unknown": (model, b"\xa0\x06\x05\xa2\x06\x01a\xa5\x06abcd\xa1\x06abcdefgh\x0a\x01m"),
        "group": (model, b"\x0b\x0c"),
        "cut": (model, b"\x0a\x05m"),
    }
    text = {
        "manifest": (get_manifest, {"model": "m", "pageSize": "2", "page_token": "", "digests": True,
                                    "readMask": "a,bC"}),
        "plan": (register_plan, {"rules": [{"match": "\u00e9\0", "dim": -1, "groups": "3", "constant": "NaN",
                                            "parts": [{"count": 1e1}]}], "ranks": [{"tensors": [{"as": "x"}]}]}),
        "extents": (extent, {"repeat": 2, "extents": [{"zeros": "7", "extents": [{}]}], "constant": -2.5e-3}),
        "rows": (stream_rows_response, {"start": 1, "rows": ["", "YWJj", "_-8"], "noSuch": [{"a": [None]}]}),
        "null": (model, {"id": None, "checkpoints": None}),
    }
    seeds = {name: bytes([2 * number]) + data for name, (number, data) in binary.items()}
    return seeds | {f"{name}_json": bytes([2 * number + 1]) + json.dumps(value).encode()
                    for name, (number, value) in text.items()}


def gzip_seeds():
    """Members after a byte with the length of the pieces."""
    data = b"to be packed, " * 20
    member = gzip.compress(data, mtime=0)

    def with_header(flags, more):
        return b"\x1f\x8b\x08" + bytes([flags]) + member[4:10] + more + member[10:]

    fixed = zlib.compressobj(9, zlib.DEFLATED, 31, 8, zlib.Z_FIXED)
    streams = {
        "one": member, "stored": gzip.compress(data, 0, mtime=0), "fixed": fixed.compress(data) + fixed.flush(),
        "empty": gzip.compress(b"", mtime=0), "three": member + gzip.compress(b"", mtime=0) + member,
        "name": with_header(0x08, b"name\0"), "extra": with_header(0x14, b"\x04\0abcdcomment\0"),
        "zeros": gzip.compress(bytes(60000), mtime=0), "too_long": gzip.compress(bytes(70000), mtime=0),
        "cut": member[:-3], "trailing": member + b"x", "checksum": member[:-8] + b"\0" + member[-7:],
    }
    return {name: bytes([step]) + stream for (name, stream), step in zip(streams.items(), itertools.cycle((0, 6, 255)))}


def h2_seeds():
    """Records of fuzz_h2.c: type, flags, stream, length, payload."""
    data, headers, priority, rst_stream, settings, _, ping, goaway, window_update, continuation = range(10)
    raw, wait, drain, publish, reading, pieces, again, close, end = range(0xf0, 0xf9)
    end_stream, ack, end_headers, padded, prioritised = 1, 1, 4, 8, 0x20
    latest, following = 254, 255

    def record(kind, flags=0, stream=0, payload=b""):
        return struct.pack("<BBBH", kind, flags, stream, len(payload)) + payload

    def short(value):   # a text of HPACK (RFC 7541 section 5.2) of less than 127 bytes, without Huffman's code
        return bytes([len(value)]) + value.encode()

    def call(path, kind="application/grpc", fields=b""):
        """POST, http, and the path, the authority, the type and `te` as literals that are not kept."""
        return (b"\x83\x86\x04" + short(path) + b"\x01" + short("x") + b"\x0f\x10" + short(kind) +
                b"\x00" + short("te") + short("trailers") + fields)

    def message(content=b"", packed=0):
        return struct.pack(">BI", packed, len(content)) + content

    def asks(path, *messages, last=True, stream=following):
        whole = b"".join(messages)
        return (record(headers, end_headers, stream, call(path)) +
                record(data, end_stream if last else 0, latest if stream == following else stream, whole))

    model, dataset = "/tensord.v1.ModelService/", "/tensord.v1.DatasetService/"
    check, watch = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
    reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    begin = record(raw, payload=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + record(settings)
    of_model = message(b"\x0a\x01m")
    read = message(b"\x0a\x01m\x22\x03\x0a\x01a")
    large = b"\x40" + short("x-a") + b"\x7f" + bytes([0x80 + (900 - 127) % 128, (900 - 127) // 128]) + b"y" * 900
    reset = record(rst_stream, 0, latest, struct.pack(">I", 8))
    no_window = record(settings, payload=struct.pack(">HI", 4, 0))
    window = record(window_update, 0, latest, struct.pack(">I", 1 << 20))
    return {
        "health_check": begin + record(settings, ack) + asks(check, message()),
        "health_watch": begin + asks(watch, message()) + record(publish) + reset + record(publish),
        "unary": begin + asks(model + "ListModels", message()) + asks(model + "GetModel", of_model),
        "unary_in_pieces": begin + record(pieces, 0, 1) + asks(model + "ListModels", message()),
        "streams": begin + asks(model + "ReadTensors", read) + asks(dataset + "StreamRows", message(b"\x0a\x01d")) +
                   record(window_update, 0, 0, struct.pack(">I", 1 << 20)) + window,
        "small_windows": begin + no_window + asks(model + "ReadTensors", read) + record(wait, 0, 2) +
                         record(window_update, 0, latest, struct.pack(">I", 7)) * 3 + window,
        "not_reading": begin + record(reading) + asks(model + "ReadTensors", read) + record(again, 2, 30) +
                       record(wait, 0, 5) + record(reading, 1),
        "each_message": begin + asks(reflection, message(b"\x3a\x00"), last=False) +
                        record(data, 0, latest, message(b"\x22\x01x")[:4]) +
                        record(data, 0, latest, message(b"\x22\x01x")[4:]) + record(data, end_stream, latest),
        "each_message_drained": begin + asks(reflection, message(b"\x3a\x00"), last=False) + record(drain) +
                                record(wait, 0, 1),
        "rapid_reset": begin + record(pieces, 0, 255) + record(headers, end_headers | end_stream, following,
                                                               call(model + "ListModels")) + reset +
                       record(again, 2, 255) * 3,
        "reset_at_work": begin + asks(model + "ReadTensors", read) + reset + record(again, 3, 40),
        "continuation": begin + record(headers, end_stream, following, call(check)[:9]) +
                        record(continuation, 0, latest, call(check)[9:20]) +
                        record(continuation, end_headers, latest, call(check)[20:]),
        "continuation_flood": begin + record(headers, 0, following, call(check)) +
                              record(continuation, 0, latest, b"\0\1a\1b") + record(again, 1, 20),
        "continuation_of_another": begin + record(headers, 0, 1, call(check)) + record(continuation, 4, 3),
        "ping": begin + record(ping, 0, 0, b"12345678") + record(ping, ack, 0, b"12345678") + record(again, 2, 9),
        "ping_flood": begin + record(pieces, 0, 255) + record(ping, 0, 0, bytes(8)) + record(again, 1, 255) * 9,
        "settings_flood": begin + record(pieces, 0, 255) + record(settings) + record(again, 1, 255) * 3,
        "settings": begin + record(settings, payload=struct.pack(">HIHIHI", 1, 0, 4, 1, 5, 1 << 20)) +
                    asks(check, message()),
        "settings_bad": begin + record(settings, payload=struct.pack(">HI", 4, 1 << 31)),
        "goaway": begin + asks(check, message()) + record(goaway, 0, 0, bytes(8)) + asks(check, message()),
        "window_overflow": begin + record(window_update, 0, 0, struct.pack(">I", (1 << 31) - 1)) * 2,
        "window_of_zero": begin + asks(watch, message()) + record(window_update, 0, latest, bytes(4)),
        "header_too_large": begin + record(headers, end_headers, following, call(check, fields=large)) +
                            record(data, end_stream, latest, message()) +
                            record(headers, end_headers, following, call(check, fields=b"\xbe\xbe")) +
                            record(data, end_stream, latest, message()) + asks(check, message()),
        "header_far_too_large": begin + record(headers, end_headers | end_stream, following,
                                               call(check, fields=large + b"\xbe" * 30)),
        "fields_too_many": begin + record(headers, end_headers | end_stream, following,
                                          call(check, fields=b"\0\1a\1b" * 120)),
        "body_too_large": begin + record(headers, end_headers, following, call(model + "ListModels")) +
                          record(data, 0, latest, bytes(1000)) + record(again, 1, 9),
        "body_without_end": begin + asks(model + "ListModels", message(bytes(9))[:-3], last=False) +
                            record(wait, 0, 255),
        "trailers": begin + asks(check, message(), last=False) +
                    record(headers, end_headers | end_stream, latest, b"\0" + short("a") + short("b")),
        "padded": begin + record(headers, end_headers | padded | prioritised, following,
                                 b"\2\0\0\0\0\1" + call(check) + bytes(2)) +
                  record(data, end_stream | padded, latest, b"\3" + message() + bytes(3)),
        "priority": begin + record(priority, 0, 3, b"\0\0\0\1\7") + asks(check, message(), stream=3),
        "unknown_frame": begin + record(0x50, 255, 9, b"abc") + asks(check, message()),
        "not_grpc": begin + record(headers, end_headers | end_stream, following, call(check, "text/html")) +
                    record(headers, end_headers | end_stream, following, b"\x82\x86\x84\x01\1x"),
        "not_a_method": begin + asks("/x.Y/Z", message()) + asks("/", message()),
        "objects": begin + asks(watch, message()) + reset + record(again, 3, 149) + record(headers, end_headers,
                   following, call(check)) + record(again, 1, 99),
        "many_streams": begin + asks(watch, message()) + record(again, 2, 120),
        "id_used_twice": begin + asks(check, message(), stream=1) + asks(check, message(), stream=1),
        "id_even": begin + asks(check, message(), stream=2),
        "packed": begin + asks(check, message(gzip.compress(b"", mtime=0), 1)),
        "http1": record(raw, payload=b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        "no_settings": begin[:29] + asks(check, message()),
        "frame_too_long": begin + record(raw, payload=b"\xff\xff\xff\0\0\0\0\0\1abc"),
        "frame_without_end": begin + record(raw, payload=b"\0\0\x09\0\0\0\0\0\1abc") + record(wait, 0, 200),
        "drain": begin + asks(watch, message()) + record(drain) + record(wait, 0, 1) + asks(check, message()),
        "closed": begin + record(pieces, 0, 255) + asks(model + "ReadTensors", read) + record(close),
        "ended": begin + asks(watch, message()) + asks(model + "ReadTensors", read) + record(end),
    }


def main(wanted):
    targets = {
        "gzip": gzip_seeds(), "h2": h2_seeds(),
        "message": message_seeds(),
        "commit_text": commit_text_seeds(), "event_reader": event_reader_seeds(),
        "fetch_answer": fetch_answer_seeds(), "fetch_journal": fetch_journal_seeds(),
        "remote_listing": remote_listing_seeds(), "hub_commit_lines": hub_commit_lines_seeds(),
        "pushed_manifest": pushed_manifest_seeds(), "delta": delta_seeds(), "xet_xorb": xet_xorb_seeds(),
        "content_wire": content_wire_seeds(),
        "card": card_seeds(),
        "model_card": model_card_seeds(), "slice": slice_seeds(), "digest_log": digest_log_seeds(), "plan":
        plan_seeds(), "gguf": gguf_seeds(), "safetensors": safetensors_seeds(), "json": json_seeds(), "glob":
        glob_seeds(), "shard_index": shard_index_seeds(), "range": range_seeds(), "router": router_seeds(),
        "request_guard": request_guard_seeds(), "signature": signature_seeds(),
        "conditional": conditional_seeds(), "npy": npy_seeds(), "onnx":
        onnx_seeds(), "pt2": pt2_seeds(), "hdf5": hdf5_seeds(), "decode": decode_seeds(), "zip": zip_seeds(), "pickle":
        pickle_seeds(), "torch": torch_seeds(), "line_index": line_index_seeds(), "row_index": row_index_seeds(), "csv":
        csv_seeds(), "webdataset": webdataset_seeds(), "mds": mds_seeds(), "litdata": litdata_seeds(), "megatron":
        megatron_seeds(), "npy_rows": npy_seeds(), "tokens": tokens_seeds(),
        "arrow": arrow_seeds(), "parquet": rows_arrow_seeds((".parquet", )), "card_splits": card_splits_seeds()
    }
    if unknown := set(wanted) - set(targets):
        sys.exit(f"no seeds for the target {min(unknown)}; there are those of {', '.join(sorted(targets))}")
    for target in wanted or targets:
        seeds = targets[target]
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("seed_*"):
            old.unlink()
        for name, data in seeds.items():
            (folder / f"seed_{name}").write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1:])
