"""The readers and the writer of messages (core/message) against google.protobuf, in both codecs: random messages of
every type of the schema go through tests/kit/message_tool, which reads and writes them again."""
import random
import struct
import subprocess

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import REPO, tensord_binary
from rpc_kit import Schema

# Fields that the program only reads (field masks) or only writes, from JSON (Struct, Timestamp).
ONE_WAY = {"google.protobuf.FieldMask", "google.protobuf.Struct", "google.protobuf.Timestamp"}
INTEGERS = {"uint32": st.integers(0, 2**32 - 1), "uint64": st.integers(0, 2**64 - 1),
            "int32": st.integers(-2**31, 2**31 - 1)}
KINDS = {1: "double", 4: "uint64", 5: "int32", 8: "bool", 9: "string", 11: "message", 12: "bytes", 13: "uint32"}
MESSAGES = 10000
MESSAGES_OF_A_RUN = 100


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    out = tmp_path_factory.mktemp("schema") / "set"
    protos = sorted((REPO / "api/proto/tensord/v1").glob("*.proto"))
    subprocess.run(["protoc", "-I", REPO / "api/proto", "--include_imports", f"--descriptor_set_out={out}", *protos],
                   check=True)
    return Schema(out.read_bytes())


def convert(cases):
    """Gives (message's name, from, to, bytes) to the tool: 'j' is JSON, 'b' binary. Returns bytes, or the text of an
    error."""
    text = b"".join(name.encode() + b"\n" + (a + b).encode() + struct.pack(">I", len(data)) + data
                    for name, a, b, data in cases)
    tool = tensord_binary().parent / "tests/kit/message_tool"
    r = subprocess.run([tool], input=text, capture_output=True, check=True)
    assert not r.stderr, r.stderr
    answers, at = [], 0
    while at < len(r.stdout):
        size = struct.unpack(">I", r.stdout[at + 1:at + 5])[0]
        data = r.stdout[at + 5:at + 5 + size]
        answers.append(data if r.stdout[at:at + 1] == b"+" else data.decode())
        at += 5 + size
    assert len(answers) == len(cases)
    return answers


def values(field, depth):
    kind = KINDS[field.type]
    if kind in INTEGERS:
        return INTEGERS[kind] | st.sampled_from([0, 1, 127, 128, 2**14, 2**31 - 1])
    if kind == "double":
        return st.floats(allow_nan=False)
    if kind == "bool":
        return st.booleans()
    if kind == "string":
        return st.text(max_size=40) | st.text("\0\"\\/\n\x7f\u2028\ud7ff\U0001f600", max_size=6)
    return st.binary(max_size=40) if kind == "bytes" else messages(field.message_type, depth - 1)


def messages(descriptor, depth=3):
    """Strategies of a message as a dict of its fields' values."""
    fields = {}
    for field in descriptor.fields:
        is_message = KINDS[field.type] == "message"
        if is_message and (depth == 0 or field.message_type.full_name in ONE_WAY):
            continue
        value = values(field, depth)
        fields[field.name] = st.lists(value, max_size=4) if field.is_repeated else value
    return st.fixed_dictionaries({}, optional=fields)


def fill(message, given_fields):
    for name, value in given_fields.items():
        field = message.DESCRIPTOR.fields_by_name[name]
        is_message = KINDS[field.type] == "message"
        if is_message and field.is_repeated:
            for item in value:
                fill(getattr(message, name).add(), item)
        elif is_message:
            getattr(message, name).SetInParent()
            fill(getattr(message, name), value)
        elif field.is_repeated:
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return message


def names_of(schema):
    files = [file for file in schema.set.file if file.package == "tensord.v1"]
    return sorted(message.name for file in files for message in file.message_type)


def test_random_messages(schema):
    """From each codec to each: the message is the same for google.protobuf, byte for byte in the binary form."""
    classes = {name: schema.message(name) for name in names_of(schema)}
    of_any = st.sampled_from(sorted(classes)).flatmap(
        lambda name: st.tuples(st.just(name), messages(classes[name].DESCRIPTOR)))
    tried = 0

    @settings(max_examples=MESSAGES // MESSAGES_OF_A_RUN, deadline=None, derandomize=True, database=None)
    @given(st.lists(of_any, min_size=MESSAGES_OF_A_RUN, max_size=MESSAGES_OF_A_RUN))
    def run(chosen):
        nonlocal tried
        made = [fill(classes[name](), fields) for name, fields in chosen]
        forms = {"b": lambda m: m.SerializeToString(deterministic=True),
                 "j": lambda m: json_format.MessageToJson(m).encode()}
        cases = [(m.DESCRIPTOR.full_name, a, b, forms[a](m)) for m in made for a in "bj" for b in "bj"]
        for (_, a, b, _), answer, message in zip(cases, convert(cases), [m for m in made for _ in range(4)]):
            assert isinstance(answer, bytes), (answer, message)
            read = type(message)()
            if b == "b":
                read.ParseFromString(answer)
                assert answer == message.SerializeToString(deterministic=True), (a, message)
            else:
                json_format.Parse(answer, read)
            assert read == message, (a, b)
        tried += len(made)

    run()
    assert tried >= MESSAGES


def test_unpacked_numbers_and_repeated_fields(schema):
    """Lists of numbers that are not packed, and fields that stand twice: the last value counts, messages are merged."""
    cases = [("Tensor", b"\x18\x05\x18\x80\x01\x1a\x02\x01\x02"), ("Tensor", b"\x0a\x01a\x0a\x01b"),
             ("Model", b"\x7a\x02\x10\x05\x7a\x02\x18\x06"), ("Extent", b"\x59\0\0\0\0\0\0\xf0\x3f"),
             ("ListModelsRequest", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
             ("ReadTensorsRequest", b"\x30\xff\xff\xff\xff\xff\x01"), ("Upstream", b"\x20\x02")]
    answers = convert([(f"tensord.v1.{name}", "b", "b", data) for name, data in cases])
    for (name, data), answer in zip(cases, answers):
        assert answer == schema.message(name).FromString(data).SerializeToString(deterministic=True), (name, data)


def test_mutated_messages(schema):
    """Damaged bytes are refused, or read as google.protobuf reads them. It takes a field of a wrong wire type for an
    unknown one, which the program refuses."""
    rng = random.Random(36)
    rule = {"match": "**", "parts": [{"unit": 3}]}
    request = schema.request("RegisterPlan", {"model": "m", "tp_size": 2, "rules": [rule]})
    whole = request.SerializeToString()
    data = []
    for _ in range(3000):
        changed = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        data.append(bytes(changed[:rng.randint(0, len(changed))]))
    agreed = refused = 0
    for text, answer in zip(data, convert([(request.DESCRIPTOR.full_name, "b", "b", text) for text in data])):
        try:
            message = type(request).FromString(text)
            message.DiscardUnknownFields()
        except Exception:
            message = None
        if isinstance(answer, bytes):
            assert message is not None and type(request).FromString(answer) == message, text
            agreed += 1
        else:
            refused += 1
    assert agreed > 200 and refused > 200
