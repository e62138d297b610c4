"""Writes the schema as C: tables of its messages and methods (core/message/message.h), and the descriptor sets: of the
schema, and of the services of gRPC.

    compile_schema.py DESCRIPTOR_SET SERVICES_SET HEADER SOURCE

DESCRIPTOR_SET is what `protoc --include_imports --descriptor_set_out` writes, a google.protobuf.FileDescriptorSet. This
script reads its binary form itself, so that a build needs no package of Python."""

import pathlib
import re
import sys
import zlib

PACKAGE = ".tensord.v1."
# google.protobuf.FieldDescriptorProto.Type
TYPES = {1: "DOUBLE", 4: "UINT64", 5: "INT32", 8: "BOOL", 9: "STRING", 11: "MESSAGE", 12: "BYTES", 13: "UINT32"}
KNOWN = {
    ".google.protobuf.FieldMask": "MASK",
    ".google.protobuf.Struct": "STRUCT",
    ".google.protobuf.Timestamp": "TIMESTAMP",
}
MOST_FIELDS = 64
REPEATED, NO_SIDE_EFFECTS = 3, 1


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Returns the fields of a message: lists of values by number, integers or bytes."""
    found, at = {}, 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        elif tag & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            sys.exit(f"compile_schema.py: a descriptor has a field of wire type {tag & 7}")
        found.setdefault(tag >> 3, []).append(value)
    return found


def text(message, number):
    return message.get(number, [b""])[0].decode()


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def read_schema(descriptor_set):
    """Returns the messages (name, fields) and the methods of the package, in the order of the files."""
    messages, methods = [], []
    for file in map(fields, fields(descriptor_set)[1]):
        if f".{text(file, 2)}." != PACKAGE:
            continue
        for message in map(fields, file.get(4, [])):
            if 3 in message or 4 in message:
                sys.exit(f"compile_schema.py: {text(message, 1)} has nested types, which the tables do not hold")
            messages.append((text(message, 1), [fields(field) for field in message.get(2, [])]))
        for service in map(fields, file.get(6, [])):
            methods += [(text(service, 1), fields(method)) for method in service.get(2, [])]
    return messages, methods


def field_row(owner, field):
    name, number, kind, target = text(field, 1), field[3][0], TYPES.get(field[5][0]), text(field, 6)
    if kind == "MESSAGE":
        kind = KNOWN.get(target, kind)
    if kind is None or number >= MOST_FIELDS or (kind == "MESSAGE" and not target.startswith(PACKAGE)):
        sys.exit(f"compile_schema.py: the tables do not hold the field {owner}.{name}")
    message = f"&td_schema_{snake(target.removeprefix(PACKAGE))}" if kind == "MESSAGE" else "NULL"
    repeated = field[4][0] == REPEATED
    presence = not repeated and (17 in field or kind in ("MESSAGE", *KNOWN.values()))
    return (
        f'    {{.name = "{name}", .json_name = "{text(field, 10)}", .message = {message}, .number = {number}, '
        f".type = TD_FIELD_{kind}, .is_repeated = {str(repeated).lower()}, .has_presence = {str(presence).lower()}}},"
    )


def message_lines(name, rows):
    lines = []
    if rows:
        lines.append(f"static const struct td_field {snake(name)}_fields[] = {{")
        lines += [field_row(name, field) for field in sorted(rows, key=lambda field: field[3][0])]
        lines.append("};")
    table = f"{snake(name)}_fields" if rows else "NULL"
    lines.append(
        f'const struct td_message td_schema_{snake(name)} = {{.name = "{PACKAGE[1:]}{name}", '
        f".fields = {table}, .field_count = {len(rows)}}};"
    )
    return lines


def method_row(service, method):
    name, of_input, output = (text(method, number).removeprefix(PACKAGE) for number in (1, 2, 3))
    if 5 in method:
        sys.exit(f"compile_schema.py: the request of {service}.{name} is a stream, which the facade does not serve")
    options = fields(method[4][0]) if 4 in method else {}
    only_reads = options.get(34, [0])[0] == NO_SIDE_EFFECTS
    return (
        f'    {{.path = "{PACKAGE[1:]}{service}/{name}", .input = &td_schema_{snake(of_input)}, '
        f".output = &td_schema_{snake(output)}, .is_stream = {str(6 in method).lower()}, "
        f".only_reads = {str(only_reads).lower()}}},"
    )


def packed_lines(name, packed):
    lines = [f"const unsigned char {name}[] = {{"]
    lines += ["    " + ", ".join(map(str, packed[at : at + 24])) + "," for at in range(0, len(packed), 24)]
    return [*lines, "};"]


def main(descriptor_path, services_path, header_path, source_path):
    data = pathlib.Path(descriptor_path).read_bytes()
    messages, methods = read_schema(data)
    for name, rows in messages:
        if len(rows) > MOST_FIELDS:
            sys.exit(f"compile_schema.py: {name} has more than {MOST_FIELDS} fields")
    packed = zlib.compress(data, 9)
    services = pathlib.Path(services_path).read_bytes()
    packed_services = zlib.compress(services, 9)
    header = [
        "/* Written by api/proto/compile_schema.py: the messages and methods of package tensord.v1. */",
        "#ifndef TD_API_PROTO_SCHEMA_H",
        "#define TD_API_PROTO_SCHEMA_H",
        '#include "core/message/message.h"',
        f"enum {{ TD_SCHEMA_MESSAGES = {len(messages)}, TD_SCHEMA_METHODS = {len(methods)} }};",
        *(f"extern const struct td_message td_schema_{snake(name)};" for name, _ in messages),
        "extern const struct td_message *const td_schema_messages[TD_SCHEMA_MESSAGES];",
        "extern const struct td_method td_schema_methods[TD_SCHEMA_METHODS];",
        "/* The FileDescriptorSet with its imports, compressed by zlib. */",
        f"enum {{ TD_SCHEMA_SET_BYTES = {len(data)}, TD_SCHEMA_PACKED_BYTES = {len(packed)} }};",
        "extern const unsigned char td_schema_packed[TD_SCHEMA_PACKED_BYTES];",
        "/* The same of the services of gRPC: health and reflection. */",
        f"enum {{ TD_SERVICES_SET_BYTES = {len(services)}, TD_SERVICES_PACKED_BYTES = {len(packed_services)} }};",
        "extern const unsigned char td_services_packed[TD_SERVICES_PACKED_BYTES];",
        "#endif",
    ]
    source = ['#include "api/proto/schema.h"', "", "#include <stddef.h>", ""]
    for name, rows in messages:
        source += message_lines(name, rows)
    source.append("const struct td_message *const td_schema_messages[TD_SCHEMA_MESSAGES] = {")
    source += [f"    &td_schema_{snake(name)}," for name, _ in messages]
    source += ["};", "const struct td_method td_schema_methods[TD_SCHEMA_METHODS] = {"]
    source += [method_row(service, method) for service, method in methods]
    source += ["};", *packed_lines("td_schema_packed", packed), *packed_lines("td_services_packed", packed_services)]
    for path, lines in ((header_path, header), (source_path, source)):
        pathlib.Path(path).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
