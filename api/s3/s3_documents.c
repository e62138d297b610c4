#include "api/s3/s3_documents.h"

#include "core/digits.h"
#include "http/xml_reader.h"

#include <string.h>

/* Reads the decoded content of the element that has just begun. */
static enum td_s3_document_fault read_leaf(struct td_xml_reader *reader, struct td_arena *arena, struct td_text *out)
{
    struct td_text raw;
    size_t len;
    if (!td_xml_reader_leaf(reader, &raw))
        return TD_S3_DOCUMENT_MALFORMED;
    char *text = td_arena_alloc(arena, raw.len + 1);
    if (text == NULL)
        return TD_S3_DOCUMENT_NO_MEMORY;
    if (!td_xml_read_text(raw, text, &len))
        return TD_S3_DOCUMENT_MALFORMED;
    *out = td_text_n(text, len);
    return TD_S3_DOCUMENT_OK;
}

/* Begins a document with this root. */
static bool begin_document(struct td_xml_reader *reader, struct td_text document, const char *root)
{
    td_xml_reader_begin(reader, document);
    return td_xml_reader_next(reader) == TD_XML_BEGIN && td_text_equals(reader->name, root);
}

/* Reads the elements within the root: calls `read` for each when it has just begun. */
static enum td_s3_document_fault read_elements(struct td_xml_reader *reader,
                                               enum td_s3_document_fault (*read)(struct td_xml_reader *reader,
                                                                                 void *context),
                                               void *context)
{
    while (true) {
        enum td_xml_event event = td_xml_reader_next(reader);
        if (event == TD_XML_END)
            return TD_S3_DOCUMENT_OK;
        if (event != TD_XML_BEGIN)
            return TD_S3_DOCUMENT_MALFORMED;
        enum td_s3_document_fault fault = read(reader, context);
        if (fault != TD_S3_DOCUMENT_OK)
            return fault;
    }
}

/* Reads the rest of a document whose root has ended. */
static enum td_s3_document_fault end_document(struct td_xml_reader *reader)
{
    return td_xml_reader_next(reader) == TD_XML_OVER ? TD_S3_DOCUMENT_OK : TD_S3_DOCUMENT_MALFORMED;
}

/* ---- CompleteMultipartUpload --------------------------------------------------------------------------- */

struct part_reading {
    struct td_arena *arena;
    struct td_s3_listed_part *items;
    size_t count, capacity;
};

static enum td_s3_document_fault read_part_sum(struct td_xml_reader *reader, struct td_arena *arena,
                                               struct td_s3_listed_part *part)
{
    struct td_text name = td_text_skip(reader->name, strlen("Checksum"));
    part->algorithm = td_s3_algorithm_named(name);
    return part->algorithm == TD_S3_NO_ALGORITHM ? TD_S3_DOCUMENT_MALFORMED : read_leaf(reader, arena, &part->sum);
}

static enum td_s3_document_fault read_part_member(struct td_xml_reader *reader, void *context)
{
    struct part_reading *reading = context;
    struct td_s3_listed_part *part = &reading->items[reading->count];
    struct td_text text = TD_TEXT("");
    uint64_t number;
    if (td_text_equals(reader->name, "ETag"))
        return read_leaf(reader, reading->arena, &part->etag);
    if (td_text_begins(reader->name, TD_TEXT("Checksum")))
        return read_part_sum(reader, reading->arena, part);
    if (!td_text_equals(reader->name, "PartNumber"))
        return td_xml_reader_skip(reader) ? TD_S3_DOCUMENT_OK : TD_S3_DOCUMENT_MALFORMED;
    enum td_s3_document_fault fault = read_leaf(reader, reading->arena, &text);
    if (fault != TD_S3_DOCUMENT_OK)
        return fault;
    if (!td_number_read(td_text_trim(text, " \t\n"), TD_S3_MOST_PARTS, &number) || number == 0)
        return TD_S3_DOCUMENT_MALFORMED;
    part->number = (unsigned)number;
    return TD_S3_DOCUMENT_OK;
}

static enum td_s3_document_fault read_part(struct td_xml_reader *reader, void *context)
{
    struct part_reading *reading = context;
    if (!td_text_equals(reader->name, "Part"))
        return td_xml_reader_skip(reader) ? TD_S3_DOCUMENT_OK : TD_S3_DOCUMENT_MALFORMED;
    if (reading->count == TD_S3_MOST_PARTS)
        return TD_S3_DOCUMENT_TOO_MANY;
    if (reading->count == reading->capacity)
        reading->items =
            td_arena_grow(reading->arena, reading->items, reading->count, &reading->capacity, sizeof *reading->items);
    if (reading->items == NULL)
        return TD_S3_DOCUMENT_NO_MEMORY;
    reading->items[reading->count] =
        (struct td_s3_listed_part){.algorithm = TD_S3_NO_ALGORITHM, .etag = TD_TEXT(""), .sum = TD_TEXT("")};
    enum td_s3_document_fault fault = read_elements(reader, read_part_member, reading);
    const struct td_s3_listed_part *part = &reading->items[reading->count];
    if (fault != TD_S3_DOCUMENT_OK || part->number == 0 || part->etag.len == 0)
        return fault != TD_S3_DOCUMENT_OK ? fault : TD_S3_DOCUMENT_MALFORMED;
    reading->count++;
    return TD_S3_DOCUMENT_OK;
}

enum td_s3_document_fault td_s3_read_parts(struct td_text document, struct td_arena *arena,
                                           struct td_s3_part_list *list)
{
    struct td_xml_reader reader;
    struct part_reading reading = {.arena = arena};
    *list = (struct td_s3_part_list){.items = NULL};
    if (!begin_document(&reader, document, "CompleteMultipartUpload"))
        return TD_S3_DOCUMENT_MALFORMED;
    enum td_s3_document_fault fault = read_elements(&reader, read_part, &reading);
    if (fault == TD_S3_DOCUMENT_OK)
        fault = end_document(&reader);
    *list = (struct td_s3_part_list){.items = reading.items, .count = reading.count};
    return fault == TD_S3_DOCUMENT_OK && reading.count == 0 ? TD_S3_DOCUMENT_MALFORMED : fault;
}

/* ---- Delete -------------------------------------------------------------------------------------------- */

struct key_reading {
    struct td_arena *arena;
    struct td_s3_key_list *list;
};

static enum td_s3_document_fault read_key_member(struct td_xml_reader *reader, void *context)
{
    struct key_reading *reading = context;
    struct td_s3_listed_key *key = &reading->list->items[reading->list->count];
    if (td_text_equals(reader->name, "Key"))
        return read_leaf(reader, reading->arena, &key->key);
    if (td_text_equals(reader->name, "VersionId"))
        return read_leaf(reader, reading->arena, &key->version_id);
    if (td_text_equals(reader->name, "ETag"))
        return read_leaf(reader, reading->arena, &key->etag);
    if (td_text_equals(reader->name, "LastModifiedTime") || td_text_equals(reader->name, "Size"))
        key->has_other_condition = true;
    return td_xml_reader_skip(reader) ? TD_S3_DOCUMENT_OK : TD_S3_DOCUMENT_MALFORMED;
}

static enum td_s3_document_fault read_quiet(struct td_xml_reader *reader, struct td_s3_key_list *list)
{
    struct td_text text;
    if (!td_xml_reader_leaf(reader, &text))
        return TD_S3_DOCUMENT_MALFORMED;
    text = td_text_trim(text, " \t\r\n");
    list->is_quiet = td_text_equals_ignore_case(text, "true");
    return list->is_quiet || td_text_equals_ignore_case(text, "false") ? TD_S3_DOCUMENT_OK : TD_S3_DOCUMENT_MALFORMED;
}

static enum td_s3_document_fault read_object(struct td_xml_reader *reader, void *context)
{
    struct key_reading *reading = context;
    struct td_s3_key_list *list = reading->list;
    if (td_text_equals(reader->name, "Quiet"))
        return read_quiet(reader, list);
    if (!td_text_equals(reader->name, "Object"))
        return TD_S3_DOCUMENT_MALFORMED;
    if (list->count == TD_S3_MOST_KEYS)
        return TD_S3_DOCUMENT_TOO_MANY;
    list->items[list->count] =
        (struct td_s3_listed_key){.key = TD_TEXT(""), .version_id = TD_TEXT(""), .etag = TD_TEXT("")};
    enum td_s3_document_fault fault = read_elements(reader, read_key_member, reading);
    if (fault != TD_S3_DOCUMENT_OK || list->items[list->count].key.len == 0)
        return fault != TD_S3_DOCUMENT_OK ? fault : TD_S3_DOCUMENT_MALFORMED;
    list->count++;
    return TD_S3_DOCUMENT_OK;
}

enum td_s3_document_fault td_s3_read_keys(struct td_text document, struct td_arena *arena, struct td_s3_key_list *list)
{
    struct td_xml_reader reader;
    struct key_reading reading = {.arena = arena, .list = list};
    *list = (struct td_s3_key_list){.items = td_arena_alloc(arena, TD_S3_MOST_KEYS * sizeof *list->items)};
    if (list->items == NULL)
        return TD_S3_DOCUMENT_NO_MEMORY;
    if (!begin_document(&reader, document, "Delete"))
        return TD_S3_DOCUMENT_MALFORMED;
    enum td_s3_document_fault fault = read_elements(&reader, read_object, &reading);
    if (fault == TD_S3_DOCUMENT_OK)
        fault = end_document(&reader);
    return fault == TD_S3_DOCUMENT_OK && list->count == 0 ? TD_S3_DOCUMENT_MALFORMED : fault;
}

/* ---- CreateBucketConfiguration ------------------------------------------------------------------------- */

bool td_s3_is_bucket_configuration(struct td_text document)
{
    struct td_xml_reader reader;
    return document.len == 0 || (begin_document(&reader, document, "CreateBucketConfiguration") &&
                                 td_xml_reader_skip(&reader) && end_document(&reader) == TD_S3_DOCUMENT_OK);
}
