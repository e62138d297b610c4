/* Messages of Protocol Buffers (proto3) as tables: names, numbers and types of fields. api/proto/compile_schema.py
 * writes the tables of the schema when the program is built. */
#ifndef TD_CORE_MESSAGE_MESSAGE_H
#define TD_CORE_MESSAGE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fields with more numbers than this, and messages with more fields, do not compile. */
enum { TD_MESSAGE_FIELDS = 64 };

/* A message of ours that grows beyond this is cut into pages: common clients take 4 MiB at most. */
enum { TD_MESSAGE_MOST_BYTES = 2880 * 1024 };

enum td_field_type {
    TD_FIELD_BOOL,
    TD_FIELD_INT32,
    TD_FIELD_UINT32,
    TD_FIELD_UINT64,
    TD_FIELD_DOUBLE,
    TD_FIELD_STRING,
    TD_FIELD_BYTES,
    TD_FIELD_MESSAGE,
    TD_FIELD_TIMESTAMP, /* google.protobuf.Timestamp */
    TD_FIELD_STRUCT,    /* google.protobuf.Struct */
    TD_FIELD_MASK,      /* google.protobuf.FieldMask */
};

struct td_message;

struct td_field {
    const char *name;                 /* as in the schema and in REST: "page_size" */
    const char *json_name;            /* as in proto3 JSON: "pageSize" */
    const struct td_message *message; /* of TD_FIELD_MESSAGE; else NULL */
    uint8_t number;                   /* 1 to 63 */
    uint8_t type;                     /* enum td_field_type */
    bool is_repeated;
    bool has_presence; /* `optional`, or a message: 0, false and "" differ from an absent value */
};

struct td_message {
    const char *name;              /* "tensord.v1.Model" */
    const struct td_field *fields; /* in the order of their numbers */
    size_t field_count;
};

/* A method of a service. */
struct td_method {
    const char *path; /* "tensord.v1.ModelService/GetModel" */
    const struct td_message *input, *output;
    bool is_stream;  /* it answers with a stream of messages */
    bool only_reads; /* idempotency_level is NO_SIDE_EFFECTS: a GET may call it */
};

#endif
