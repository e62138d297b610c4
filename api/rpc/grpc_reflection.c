/* The descriptors are unpacked and read into trees (core/message/decode.h) when they are first asked for, and stay
 * until the program ends. A symbol is found by walking through all files: there are few. */
#include "api/rpc/grpc_reflection.h"

#include "api/call/embedded.h"
#include "api/proto/schema.h"
#include "core/message/decode.h"
#include "core/message/wire.h"

#include <pthread.h>

#define FIELD(field_name, field_number, field_type, of)                                             \
    {                                                                                               \
        .name = (field_name), .json_name = (field_name), .message = (of), .number = (field_number), \
        .type = (field_type)                                                                        \
    }
#define LIST(field_name, field_number, field_type, of)                                              \
    {                                                                                               \
        .name = (field_name), .json_name = (field_name), .message = (of), .number = (field_number), \
        .type = (field_type), .is_repeated = true                                                   \
    }
#define MESSAGE(message_name, table)                                                              \
    {                                                                                             \
        .name = (message_name), .fields = (table), .field_count = sizeof(table) / sizeof *(table) \
    }

/* The fields of google/protobuf/descriptor.proto that are read. */
static const struct td_field name_fields[] = {FIELD("name", 1, TD_FIELD_STRING, NULL)};
static const struct td_message named = MESSAGE("google.protobuf.MethodDescriptorProto", name_fields);
static const struct td_field type_fields[];
static const struct td_message type_message = {
    .name = "google.protobuf.DescriptorProto", .fields = type_fields, .field_count = 3};
static const struct td_field type_fields[] = {FIELD("name", 1, TD_FIELD_STRING, NULL),
                                              LIST("nested_type", 3, TD_FIELD_MESSAGE, &type_message),
                                              LIST("enum_type", 4, TD_FIELD_MESSAGE, &named)};
static const struct td_field service_fields[] = {FIELD("name", 1, TD_FIELD_STRING, NULL),
                                                 LIST("method", 2, TD_FIELD_MESSAGE, &named)};
static const struct td_message service_message = MESSAGE("google.protobuf.ServiceDescriptorProto", service_fields);
static const struct td_field file_fields[] = {
    FIELD("name", 1, TD_FIELD_STRING, NULL), FIELD("package", 2, TD_FIELD_STRING, NULL),
    LIST("message_type", 4, TD_FIELD_MESSAGE, &type_message), LIST("enum_type", 5, TD_FIELD_MESSAGE, &named),
    LIST("service", 6, TD_FIELD_MESSAGE, &service_message)};
static const struct td_message file_message = MESSAGE("google.protobuf.FileDescriptorProto", file_fields);
static const struct td_field set_fields[] = {LIST("file", 1, TD_FIELD_BYTES, NULL)};
static const struct td_message set_message = MESSAGE("google.protobuf.FileDescriptorSet", set_fields);

static const struct td_field extension_fields[] = {FIELD("containing_type", 1, TD_FIELD_STRING, NULL)};
static const struct td_message extension_message = MESSAGE("grpc.reflection.v1.ExtensionRequest", extension_fields);
static const struct td_field request_fields[] = {
    FIELD("host", 1, TD_FIELD_STRING, NULL),
    {.name = "file_by_filename", .json_name = "", .number = 3, .type = TD_FIELD_STRING, .has_presence = true},
    {.name = "file_containing_symbol", .json_name = "", .number = 4, .type = TD_FIELD_STRING, .has_presence = true},
    {.name = "file_containing_extension",
     .json_name = "",
     .message = &extension_message,
     .number = 5,
     .type = TD_FIELD_MESSAGE,
     .has_presence = true},
    {.name = "all_extension_numbers_of_type",
     .json_name = "",
     .number = 6,
     .type = TD_FIELD_STRING,
     .has_presence = true},
    {.name = "list_services", .json_name = "", .number = 7, .type = TD_FIELD_STRING, .has_presence = true},
};
static const struct td_message request_message = MESSAGE("grpc.reflection.v1.ServerReflectionRequest", request_fields);

enum { MOST_FILES = 64 };

struct file {
    struct td_text bytes;
    struct td_record record;
};

static struct {
    pthread_mutex_t lock; /* of the first use */
    bool is_ready;
    struct td_buffer bytes;
    struct td_arena arena;
    struct file files[MOST_FILES];
    size_t count;
} set = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Unpacks the descriptors of the schema and of the services of gRPC: two sets, one after the other, are one. */
static bool unpack(struct td_error *err)
{
    enum { ARENA_BYTES = 8 * 1024 * 1024 };
    struct td_record record;
    td_buffer_init(&set.bytes);
    td_arena_init(&set.arena, ARENA_BYTES);
    td_embedded_append(td_schema_packed, TD_SCHEMA_PACKED_BYTES, TD_SCHEMA_SET_BYTES, &set.bytes);
    td_embedded_append(td_services_packed, TD_SERVICES_PACKED_BYTES, TD_SERVICES_SET_BYTES, &set.bytes);
    bool ok = !set.bytes.failed || td_error_no_memory(err);
    ok = ok && td_record_read(&record, &set_message, td_buffer_text(&set.bytes), &set.arena, err);
    set.count = 0;
    for (const struct td_value *value = ok ? record.first : NULL; ok && value != NULL && set.count < MOST_FILES;
         value = value->next) {
        struct file *file = &set.files[set.count++];
        file->bytes = value->text;
        ok = td_record_read(&file->record, &file_message, value->text, &set.arena, err);
    }
    if (!ok) {
        td_arena_fini(&set.arena);
        td_buffer_fini(&set.bytes);
    }
    return ok;
}

/* Makes the set ready. Errors: TD_RESOURCE_EXHAUSTED. */
static bool open_set(struct td_error *err)
{
    pthread_mutex_lock(&set.lock);
    set.is_ready = set.is_ready || unpack(err);
    const bool is_ready = set.is_ready;
    pthread_mutex_unlock(&set.lock);
    return is_ready;
}

/* Takes the name, and the dot after it, from the beginning of a symbol. Returns false when the symbol begins in another
 * way. */
static bool take_name(struct td_text *symbol, struct td_text name)
{
    if (!td_text_begins(*symbol, name))
        return false;
    struct td_text rest = td_text_skip(*symbol, name.len);
    if (rest.len > 0 && name.len > 0 && !td_text_take_char(&rest, '.'))
        return false;
    *symbol = rest;
    return true;
}

/* Returns the element of a list of the record that the symbol begins with, and takes its name from the symbol; NULL:
 * the symbol begins with no element. */
static const struct td_record *take_element(const struct td_record *record, const char *list, struct td_text *symbol)
{
    for (const struct td_value *value = record->first; value != NULL; value = value->next)
        if (td_text_equals(td_text_of(value->field->name), list) &&
            take_name(symbol, td_record_text(value->record, "name")))
            return value->record;
    return NULL;
}

/* Returns whether the record, a file or a type, defines the symbol: a type, at any depth, or an enum. */
static bool defines_type(const struct td_record *record, struct td_text symbol)
{
    const char *types = "message_type";
    while (record != NULL && symbol.len > 0) {
        struct td_text rest = symbol;
        if (take_element(record, "enum_type", &rest) != NULL && rest.len == 0)
            return true;
        record = take_element(record, types, &symbol);
        types = "nested_type";
    }
    return record != NULL && symbol.len == 0;
}

/* Returns whether the file defines the symbol: a type, a service or a method. */
static bool defines(const struct td_record *file, struct td_text symbol)
{
    if (!take_name(&symbol, td_record_text(file, "package")) || symbol.len == 0)
        return false;
    struct td_text rest = symbol;
    const struct td_record *service = take_element(file, "service", &rest);
    if (service != NULL && (rest.len == 0 || (take_element(service, "method", &rest) != NULL && rest.len == 0)))
        return true;
    return defines_type(file, symbol);
}

static const struct file *find_file(struct td_text name)
{
    for (size_t i = 0; i < set.count; i++)
        if (td_text_compare(td_record_text(&set.files[i].record, "name"), name) == 0)
            return &set.files[i];
    return NULL;
}

static const struct file *find_symbol(struct td_text symbol)
{
    for (size_t i = 0; i < set.count; i++)
        if (defines(&set.files[i].record, symbol))
            return &set.files[i];
    return NULL;
}

/* ---- answers ------------------------------------------------------------------------------------------- */

static void write_error(struct td_text name, struct td_buffer *out)
{
    enum { ERROR = 7, CODE = 1, MESSAGE = 2, NOT_FOUND = 5 };
    struct td_buffer words;
    td_buffer_init(&words);
    td_buffer_printf(&words, "there is no \"%.*s\"", TD_SHOW(name, 200));
    const size_t start = td_wire_begin(out, ERROR);
    td_wire_u64(out, CODE, NOT_FOUND);
    td_wire_text(out, MESSAGE, td_buffer_text(&words));
    td_wire_end(out, start);
    out->failed = out->failed || words.failed;
    td_buffer_fini(&words);
}

static void write_file(const struct file *file, struct td_text name, struct td_buffer *out)
{
    enum { FILES = 4, FILE = 1 };
    if (file == NULL) {
        write_error(name, out);
        return;
    }
    const size_t start = td_wire_begin(out, FILES);
    td_wire_text(out, FILE, file->bytes);
    td_wire_end(out, start);
}

static void write_services(struct td_buffer *out)
{
    enum { SERVICES = 6, SERVICE = 1, NAME = 1 };
    const size_t all = td_wire_begin(out, SERVICES);
    for (size_t i = 0; i < set.count; i++)
        for (const struct td_value *value = set.files[i].record.first; value != NULL; value = value->next) {
            if (!td_text_equals(td_text_of(value->field->name), "service"))
                continue;
            const struct td_text package = td_record_text(&set.files[i].record, "package");
            const struct td_text name = td_record_text(value->record, "name");
            struct td_buffer full;
            td_buffer_init(&full);
            td_buffer_append(&full, package.p, package.len);
            td_buffer_putc(&full, '.');
            td_buffer_append(&full, name.p, name.len);
            const size_t one = td_wire_begin(out, SERVICE);
            td_wire_text(out, NAME, td_buffer_text(&full));
            td_wire_end(out, one);
            out->failed = out->failed || full.failed;
            td_buffer_fini(&full);
        }
    td_wire_end(out, all);
}

/* Answers for the extensions of a type: the schema has none. */
static void write_extensions(struct td_text type, struct td_buffer *out)
{
    enum { NUMBERS = 5, BASE = 1 };
    if (find_symbol(type) == NULL) {
        write_error(type, out);
        return;
    }
    const size_t start = td_wire_begin(out, NUMBERS);
    td_wire_text(out, BASE, type);
    td_wire_end(out, start);
}

bool td_grpc_reflect(struct td_text message, struct td_buffer *out, struct td_error *err)
{
    enum { VALID_HOST = 1, ORIGINAL = 2 };
    struct td_arena arena;
    struct td_record request;
    if (!open_set(err))
        return false;
    td_arena_init(&arena, TD_DECODE_FREE_BYTES + TD_DECODE_PER_BYTE * message.len);
    const bool ok = td_record_read(&request, &request_message, message, &arena, err);
    if (ok) {
        const struct td_value *file = td_record_get(&request, "file_by_filename");
        const struct td_value *symbol = td_record_get(&request, "file_containing_symbol");
        const struct td_value *extension = td_record_get(&request, "file_containing_extension");
        const struct td_value *numbers = td_record_get(&request, "all_extension_numbers_of_type");
        if (td_record_text(&request, "host").len > 0)
            td_wire_text(out, VALID_HOST, td_record_text(&request, "host"));
        td_wire_text(out, ORIGINAL, message);
        if (file != NULL)
            write_file(find_file(file->text), file->text, out);
        else if (symbol != NULL)
            write_file(find_symbol(symbol->text), symbol->text, out);
        else if (extension != NULL)
            write_error(td_record_text(extension->record, "containing_type"), out);
        else if (numbers != NULL)
            write_extensions(numbers->text, out);
        else
            write_services(out);
    }
    td_arena_fini(&arena);
    return ok;
}
