#!/usr/bin/env python3
"""Writes the seeds of the fuzz corpora, tests/fuzz/corpus/TARGET/seed_*. Files of other names there are inputs
that once showed a defect, and are left alone."""

import json
import pathlib
import struct

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
    }


def main():
    targets = {"safetensors": safetensors_seeds(), "json": json_seeds(), "glob": glob_seeds(),
               "shard_index": shard_index_seeds()}
    for target, seeds in targets.items():
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("seed_*"):
            old.unlink()
        for name, data in seeds.items():
            (folder / f"seed_{name}").write_bytes(data)


if __name__ == "__main__":
    main()
