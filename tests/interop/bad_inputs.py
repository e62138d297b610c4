"""Bad inputs 1-31 for safetensors (and good ones that look bad), each built by hand, with the verdict they must get.

`verdict` is "refuse" or "accept" by the format's rules. STRICTER lists where those rules are deliberately stricter
than the safetensors package, with the reason; otherwise the package is the reference.
"""
import json
import struct

from harness import frame, pattern

D16 = pattern(16, "d16")


def head(**tensors):
    """{"name": (dtype, shape, [b, e])} -> header bytes; values may be any JSON."""
    return json.dumps({k: {"dtype": v[0], "shape": v[1], "data_offsets": v[2]} for k, v in tensors.items()}).encode()


def one(dtype, shape, offsets, data=b""):
    return frame(head(a=(dtype, shape, offsets)), data)


CASES = {
    # name: (number in the list of bad inputs, verdict, bytes)
    "empty file": (1, "refuse", b""),
    "seven bytes": (2, "refuse", b"\x01" * 7),
    "eight bytes, N 0": (3, "refuse", struct.pack("<Q", 0)),
    "N 0 and data": (3, "refuse", struct.pack("<Q", 0) + b"{}"),
    "N 2^64-1": (4, "refuse", struct.pack("<Q", 2**64 - 1) + b"{}"),
    "N 2^63": (4, "refuse", struct.pack("<Q", 2**63) + b"{}" * 50),
    "N 2^64-8 (N + 8 wraps to 0)": (4, "refuse", struct.pack("<Q", 2**64 - 8) + b"{}" * 50),
    "N one over the cap": (5, "refuse", struct.pack("<Q", 100_000_001) + b"{}"),
    "N 1000 in 88 bytes": (6, "refuse", struct.pack("<Q", 1000) + b"{" + b" " * 79),
    "N one more than there is": (6, "refuse", struct.pack("<Q", 3) + b"{}"),
    "header FF": (7, "refuse", frame(b"\xff")),
    "header with FF in a name": (7, "refuse", frame(b'{"\xff":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')),
    "header with overlong UTF-8": (7, "refuse", frame(b'{"\xc0\xaf":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')),
    "header with a UTF-8 surrogate":
    (7, "refuse", frame(b'{"\xed\xa0\x80":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')),
    "header {": (8, "refuse", frame(b"{")),
    "header {{": (8, "refuse", frame(b"{{")),
    "header [": (8, "refuse", frame(b"[]")),
    "header null": (8, "refuse", frame(b"null")),
    "header number": (8, "refuse", frame(b"5")),
    "header string": (8, "refuse", frame(b'"x"')),
    "two JSON values": (8, "refuse", frame(b"{}{}")),
    "trailing comma": (8, "refuse", frame(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},}')),
    "comment": (8, "refuse", frame(b'{/*x*/}')),
    "single quotes": (8, "refuse", frame(b"{'a':{}}")),
    "bare word": (8, "refuse", frame(b"{a:1}")),
    "byte order mark": (8, "refuse", frame(b"\xef\xbb\xbf{}")),
    "raw control character in a name": (8, "refuse", frame(b'{"a\n":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')),
    "bad escape in a name": (8, "refuse", frame(b'{"a\\x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')),
    "ten tensors on one range":
    (9, "refuse",
     frame(
         json.dumps({f"t{i}": {"dtype": "U8", "shape": [16], "data_offsets": [0, 16]} for i in range(10)}).encode(),
         D16)),
    "two that overlap by one": (9, "refuse", frame(head(a=("U8", [8], [0, 8]), b=("U8", [9], [7, 16])), D16)),
    "trailing byte": (10, "refuse", one("U8", [16], [0, 16], D16 + b"x")),
    "trailing data without tensors": (10, "refuse", frame(b"{}", b"x")),
    "two data bytes missing": (11, "refuse", one("U8", [16], [0, 16], D16[:14])),
    "all data missing": (11, "refuse", one("U8", [16], [0, 16])),
    "shape [2, 2^64-2]": (12, "refuse", one("U8", [2, 2**64 - 2], [0, 16], D16)),
    "shape [2, 2^63]": (12, "refuse", one("U8", [2, 2**63], [0, 0])),
    "shape [2^32, 2^32]": (12, "refuse", one("U8", [2**32, 2**32], [0, 0])),
    "shape [2, 2^63-1] I32": (13, "refuse", one("I32", [2, 2**63 - 1], [0, 16], D16)),
    "shape [2^61] F64 (bits overflow)": (13, "refuse", one("F64", [2**61], [0, 0])),
    "[0,4] declared for 16 bytes": (14, "refuse", one("F32", [0, 4], [0, 16], D16)),
    "16 bytes declared for none": (14, "refuse", one("F32", [4], [0, 0])),
    "one byte too many declared": (14, "refuse", one("F32", [4], [0, 17], D16 + b"x")),
    "gap between tensors": (15, "refuse", frame(head(a=("U8", [4], [0, 4]), b=("U8", [4], [8, 12])), D16[:12])),
    "gap before the first": (15, "refuse", one("U8", [8], [8, 16], D16)),
    "end before begin": (16, "refuse", one("U8", [8], [8, 0], D16[:8])),
    "end before begin, no bytes": (16, "refuse", one("U8", [0], [16, 0], D16)),
    "offsets as a string": (17, "refuse", one("U8", [1], ["0", 1], b"x")),
    "offsets as a float": (17, "refuse", one("U8", [1], [0, 1.0], b"x")),
    "offset -1": (17, "refuse", one("U8", [1], [-1, 0], b"")),
    "offset -0": (17, "refuse", frame(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[-0,1]}}', b"x")),
    "offset with an exponent": (17, "refuse",
                                frame(b'{"a":{"dtype":"U8","shape":[10],"data_offsets":[0,1e1]}}', D16[:10])),
    "offset with a leading zero": (17, "refuse", frame(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[00,1]}}',
                                                       b"x")),
    "offset 2^64": (17, "refuse", one("U8", [1], [0, 2**64], b"x")),
    "offset 2^64+1": (17, "refuse", one("U8", [1], [2**64, 2**64 + 1], b"x")),
    "offset of 40 digits": (17, "refuse", one("U8", [1], [0, int("9" * 40)], b"x")),
    "offsets null": (17, "refuse", one("U8", [1], None, b"x")),
    "offset true": (17, "refuse", one("U8", [1], [0, True], b"x")),
    "shape with a float": (17, "refuse", one("U8", [1.0], [0, 1], b"x")),
    "shape with -1": (17, "refuse", one("U8", [-1], [0, 1], b"x")),
    "shape with a string": (17, "refuse", one("U8", ["1"], [0, 1], b"x")),
    "shape as a number": (17, "refuse", one("U8", 1, [0, 1], b"x")),
    "shape null": (17, "refuse", one("U8", None, [0, 1], b"x")),
    "shape 2^64": (17, "refuse", one("U8", [2**64], [0, 1], b"x")),
    "shape nested": (17, "refuse", one("U8", [[1]], [0, 1], b"x")),
    "F4 [3]": (18, "refuse", one("F4", [3], [0, 2], b"xx")),
    "F6 [2] of 2 bytes": (18, "refuse", one("F6_E2M3", [2], [0, 2], b"xx")),
    "F4 [2]": (18, "accept", one("F4", [2], [0, 1], b"x")),
    "F6 [4]": (18, "accept", one("F6_E2M3", [4], [0, 3], b"xxx")),
    "unknown dtype": (19, "refuse", one("F31", [1], [0, 4], b"xxxx")),
    "dtype in lower case": (19, "refuse", one("f32", [1], [0, 4], b"xxxx")),
    "dtype empty": (19, "refuse", one("", [1], [0, 4], b"xxxx")),
    "dtype a number": (19, "refuse", one(5, [1], [0, 4], b"xxxx")),
    "dtype null": (19, "refuse", one(None, [1], [0, 4], b"xxxx")),
    "dtype with a NUL": (19, "refuse", one("F32\0", [1], [0, 4], b"xxxx")),
    "dtype of another format": (19, "refuse", one("Q4_K", [1], [0, 4], b"xxxx")),
    "dtype missing": (19, "refuse", frame(b'{"a":{"shape":[1],"data_offsets":[0,1]}}', b"x")),
    "shape missing": (19, "refuse", frame(b'{"a":{"dtype":"U8","data_offsets":[0,1]}}', b"x")),
    "offsets missing": (19, "refuse", frame(b'{"a":{"dtype":"U8","shape":[1]}}', b"x")),
    "tensor is empty object": (19, "refuse", frame(b'{"a":{}}')),
    "tensor is a number": (19, "refuse", frame(b'{"a":5}')),
    "tensor is null": (19, "refuse", frame(b'{"a":null}')),
    "duplicate tensor": (20, "refuse",
                         frame(
                             b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                             b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x")),
    "duplicate tensor, other bytes": (20, "refuse",
                                      frame(
                                          b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                                          b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"xy")),
    "duplicate by an escape": (20, "refuse",
                               frame(
                                   b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                                   b'"\\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x")),
    "duplicate dtype": (20, "refuse", frame(b'{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
                                            b"x")),
    "duplicate data_offsets":
    (20, "refuse", frame(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,0],"data_offsets":[0,1]}}', b"x")),
    "duplicate metadata key": (20, "refuse", frame(b'{"__metadata__":{"k":"1","k":"2"}}')),
    "duplicate metadata": (20, "refuse", frame(b'{"__metadata__":{"k":"1"},"__metadata__":{"k":"2"}}')),
    "metadata integer": (21, "refuse", frame(b'{"__metadata__":{"k":1}}')),
    "metadata null value": (21, "refuse", frame(b'{"__metadata__":{"k":null}}')),
    "metadata nested": (21, "refuse", frame(b'{"__metadata__":{"k":{"x":"y"}}}')),
    "metadata list": (21, "refuse", frame(b'{"__metadata__":["a"]}')),
    "metadata string": (21, "refuse", frame(b'{"__metadata__":"a"}')),
    "metadata null": (21, "accept", frame(b'{"__metadata__":null}')),
    "metadata good": (21, "accept", frame(b'{"__metadata__":{"k":"v","":""}}')),
    "metadata empty": (21, "accept", frame(b'{"__metadata__":{}}')),
    "three offsets": (22, "refuse", one("U8", [1], [0, 1, 2], b"x")),
    "one offset": (22, "refuse", one("U8", [1], [0], b"x")),
    "no offsets": (22, "refuse", one("U8", [0], [])),
    "100,000 deep in a value": (23, "refuse", frame(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")),
    "100,000 deep objects": (23, "refuse", frame(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)),
    "1,000,000 deep, unclosed": (23, "refuse", frame(b"[" * 1_000_000)),
    "deep in an unknown member":
    (23, "refuse",
     frame(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}")),
    "escaped NUL in a name": (24, "either", frame(b'{"a\\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
                                                  b"x")),
    "raw NUL in a name": (24, "refuse", frame(b'{"a\0b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x")),
    "lone high surrogate": (25, "refuse", frame(b'{"a\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x")),
    "lone low surrogate": (25, "refuse", frame(b'{"a\\udc00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x")),
    "surrogates in the wrong order": (25, "refuse",
                                      frame(b'{"a\\udc00\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
                                            b"x")),
    "surrogate pair": (25, "accept", frame(b'{"a\\ud83d\\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
                                           b"x")),
    "NUL padding": (26, "refuse", frame(head(a=("U8", [1], [0, 1])) + b"\0" * 5, b"x")),
    "NUL in front": (26, "refuse", frame(b"\0" + head(a=("U8", [1], [0, 1])), b"x")),
    "garbage behind the object": (26, "refuse", frame(head(a=("U8", [1], [0, 1])) + b" x", b"x")),
    "vertical tab behind": (26, "refuse", frame(head(a=("U8", [1], [0, 1])) + b"\x0b", b"x")),
    "dims [0, 2^63]": (27, "accept", one("U8", [0, 2**63], [0, 0])),
    "dims [2^64-1, 0]": (27, "accept", one("U8", [2**64 - 1, 0], [0, 0])),
    "dims [2^63, 2, 0] overflow before the 0": (27, "refuse", one("U8", [2**63, 2, 0], [0, 0])),
    "offsets whose end + N + 8 overflows": (28, "refuse", one("U8", [2**64 - 1], [0, 2**64 - 1])),
    "two offsets near 2^64": (28, "refuse",
                              frame(head(a=("U8", [2**63], [0, 2**63]), b=("U8", [2**63], [2**63, 2**64 - 1])))),
    "shape [2,0]": (29, "accept", one("F32", [2, 0], [0, 0])),
    "shape [0]": (29, "accept", one("F32", [0], [0, 0])),
    "zero-size between others": (29, "accept",
                                 frame(head(a=("U8", [8], [0, 8]), z=("F32", [0], [8, 8]), b=("U8", [8], [8, 16])),
                                       D16)),
    "shape []": (30, "accept", one("F32", [], [0, 4], b"xxxx")),
    "shape [] of 8 bytes": (30, "refuse", one("F32", [], [0, 8], b"xxxxxxxx")),
    "leading white space": (31, "accept", frame(b" \n\t\r" + head(a=("U8", [1], [0, 1])), b"x")),
    "trailing white space": (31, "accept", frame(head(a=("U8", [1], [0, 1])) + b" \n\t\r", b"x")),
    "white space within": (31, "accept",
                           frame(b'{ "a" : {\n"dtype" :\t"U8", "shape" : [ 1 ] , "data_offsets" : [ 0 , 1 ] } }',
                                 b"x")),
    # and good ones that look odd
    "no tensors": (0, "accept", frame(b"{}")),
    "members in another order": (0, "accept", frame(b'{"a":{"data_offsets":[0,1],"shape":[1],"dtype":"U8"}}', b"x")),
    "escapes in member names": (0, "accept",
                                frame(b'{"a":{"\\u0064type":"U8","sh\\u0061pe":[1],"data_offsets":[0,1]}}', b"x")),
    "header order is not data order": (0, "accept", frame(head(b=("U8", [8], [8, 16]), a=("U8", [8], [0, 8])), D16)),
    "unknown member of a tensor": (0, "accept",
                                   frame(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}', b"x")),
    "empty name": (0, "accept", frame(b'{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x")),
    "name of 100 KB": (0, "accept",
                       frame(b'{"' + b"n" * 100_000 + b'":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x")),
    "100 dimensions": (0, "either", one("U8", [1] * 100, [0, 1], b"x")),
    "unaligned header": (0, "accept", frame(head(a=("F64", [1], [0, 8])) + b" " * 3, D16[:8])),
    "odd data alignment": (0, "accept", frame(head(a=("U8", [1], [0, 1]), b=("F64", [1], [1, 9])), D16[:9])),
}

# Deliberately stricter than the package, with the reason.
STRICTER = {
    "duplicate tensor":
    "the format forbids duplicate keys; the package keeps the last, so two readers may see different bytes",
    "duplicate by an escape": "as above: the same key in other spelling",
    "duplicate metadata key": "as above, for metadata",
}
