/* ListParts and ListMultipartUploads. */
#include "api/call/publishing.h"
#include "api/s3/s3_commit.h"
#include "api/s3/s3_handlers.h"
#include "api/s3/s3_list.h"
#include "api/s3/s3_multipart.h"
#include "core/digits.h"
#include "http/xml.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Writes what is known of an upload's checksum. */
static void write_algorithm(struct td_buffer *xml, enum td_s3_algorithm algorithm, bool is_composite)
{
    if (algorithm == TD_S3_NO_ALGORITHM)
        return;
    td_xml_element(xml, "ChecksumAlgorithm", td_text_of(td_s3_algorithm_name(algorithm)));
    td_xml_element(xml, "ChecksumType", td_text_of(is_composite ? "COMPOSITE" : "FULL_OBJECT"));
}

/* ---- ListParts ----------------------------------------------------------------------------------------- */

static void write_part(struct td_buffer *xml, const struct td_part_info *part)
{
    td_buffer_printf(xml, "<Part><PartNumber>%u</PartNumber>", part->number);
    td_s3_date(xml, "LastModified", part->written_ns);
    td_buffer_printf(xml, "<ETag>&quot;%s" TD_S3_ETAG_END "&quot;</ETag><Size>%" PRIu64 "</Size>", part->tag,
                     part->size_bytes);
    td_s3_write_part_sum(xml, part);
    td_buffer_puts(xml, "</Part>");
}

/* Answers with a page of parts, which come after the number `marker`. */
static void answer_parts(const struct td_call *call, const struct td_s3_upload *upload,
                         const struct td_part_info *parts, size_t count, size_t marker, size_t most, bool has_more)
{
    struct td_buffer xml;
    td_s3_begin_document(&xml, "ListPartsResult");
    td_xml_element(&xml, "Bucket", upload->bucket);
    td_xml_element(&xml, "Key", upload->key);
    td_xml_element(&xml, "UploadId", td_text_of(upload->parts.id));
    td_buffer_puts(&xml, TD_S3_OWNER "<StorageClass>STANDARD</StorageClass>");
    td_buffer_printf(&xml, "<PartNumberMarker>%zu</PartNumberMarker>", marker);
    td_buffer_printf(&xml, "<NextPartNumberMarker>%zu</NextPartNumberMarker>",
                     count > 0 ? (size_t)parts[count - 1].number : marker);
    td_buffer_printf(&xml, "<MaxParts>%zu</MaxParts><IsTruncated>%s</IsTruncated>", most, has_more ? "true" : "false");
    write_algorithm(&xml, upload->algorithm, upload->is_composite);
    for (size_t i = 0; i < count; i++)
        write_part(&xml, &parts[i]);
    td_s3_answer_document(call, &xml, "ListPartsResult");
}

void td_s3_list_parts(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_s3_upload upload;
    size_t count, most;
    bool has_more;
    struct td_text after = td_s3_parameter(call, "part-number-marker");
    uint64_t marker = 0;
    if (!td_s3_count(call, "max-parts", 0, TD_S3_PAGE_ITEMS, &most))
        return;
    if (after.len > 0 && !td_number_read(after, INT32_MAX, &marker)) {
        td_response_fail(call->response, 400, NULL, "part-number-marker must be a number");
        return;
    }
    if (!td_s3_find_upload(call, bucket, key, false, &upload))
        return;
    struct td_part_info *parts = calloc(most + 1, sizeof *parts);
    if (parts == NULL)
        (void)td_call_no_memory(call);
    else if (td_parts_list(call->api->publish, upload.parts.id, (unsigned)marker, most, parts, &count, &has_more, &err))
        answer_parts(call, &upload, parts, count, (size_t)marker, most, has_more);
    else
        td_publishing_fail(call, &err, 500);
    free(parts);
}

/* ---- ListMultipartUploads ------------------------------------------------------------------------------ */

/* An upload, or a common prefix of several keys. */
struct listed {
    int64_t started_ns;
    enum td_s3_algorithm algorithm;
    bool is_composite;
    char id[TD_PARTS_ID_BYTES]; /* empty: a common prefix */
    size_t key_len;
    char key[]; /* the key, or the common prefix */
};

/* A page that is being made. Its first items are found while all uploads are visited: it keeps at most `capacity` of
 * those seen so far, and when it is full, drops all but the first `most` and one, which says that there are more. */
struct uploads {
    const struct td_call *call;
    struct td_text bucket, prefix, delimiter, key_marker, id_marker;
    bool is_encoded;
    size_t most;
    struct listed **items; /* each owned */
    size_t count, capacity;
    struct listed *last; /* the item `most`, once some were dropped: later ones are not wanted */
};

static struct td_text key_of(const struct listed *item)
{
    return td_text_n(item->key, item->key_len);
}

/* Orders items by key, then by id, which is by time. */
static int compare_listed(const void *a, const void *b)
{
    const struct listed *x = *(struct listed *const *)a, *y = *(struct listed *const *)b;
    int order = td_text_compare(key_of(x), key_of(y));
    return order != 0 ? order : strcmp(x->id, y->id);
}

/* Sorts the items, keeps one of those that are equal, and drops those that the page does not need. */
static void shrink(struct uploads *uploads)
{
    size_t kept = 0;
    if (uploads->count > 0)
        qsort(uploads->items, uploads->count, sizeof *uploads->items, compare_listed);
    for (size_t i = 0; i < uploads->count; i++) {
        struct listed *item = uploads->items[i];
        if (kept > uploads->most || (kept > 0 && compare_listed(&item, &uploads->items[kept - 1]) == 0))
            free(item);
        else
            uploads->items[kept++] = item;
    }
    uploads->count = kept;
    uploads->last = kept > uploads->most ? uploads->items[uploads->most] : NULL;
}

/* Returns whether the markers say that the client has the item. */
static bool was_listed(const struct uploads *uploads, const struct listed *item)
{
    int order = td_text_compare(key_of(item), uploads->key_marker);
    if (uploads->key_marker.len == 0 || order > 0)
        return false;
    return order < 0 || item->id[0] == '\0' || uploads->id_marker.len == 0 ||
           td_text_compare(td_text_of(item->id), uploads->id_marker) <= 0;
}

/* Makes the item for an upload: its own, or that of its common prefix. */
static struct listed *make_listed(const struct uploads *uploads, const struct td_s3_upload *upload)
{
    size_t common = td_s3_common_prefix(upload->key, uploads->prefix, uploads->delimiter);
    size_t len = common > 0 ? common : upload->key.len;
    struct listed *item = malloc(sizeof *item + len);
    if (item == NULL)
        return NULL;
    *item = (struct listed){.started_ns = upload->parts.started_ns,
                            .algorithm = upload->algorithm,
                            .is_composite = upload->is_composite,
                            .key_len = len};
    memcpy(item->key, upload->key.p, len);
    if (common == 0)
        memcpy(item->id, upload->parts.id, sizeof item->id);
    return item;
}

static bool note_upload(void *context, const struct td_parts_upload *parts, struct td_error *err)
{
    struct uploads *uploads = context;
    struct td_s3_upload upload = {.parts = *parts};
    td_s3_read_upload(&upload);
    if (td_text_compare(upload.bucket, uploads->bucket) != 0 || !td_text_begins(upload.key, uploads->prefix) ||
        !td_publishing_may_write(uploads->call, td_text_of(parts->repo_id), parts->is_dataset))
        return true;
    if (uploads->count == uploads->capacity)
        shrink(uploads);
    struct listed *item = make_listed(uploads, &upload);
    if (item == NULL)
        return td_error_no_memory(err);
    bool is_late = uploads->last != NULL && compare_listed(&item, &uploads->last) >= 0;
    if (is_late || was_listed(uploads, item))
        free(item);
    else
        uploads->items[uploads->count++] = item;
    return true;
}

static void write_upload(struct td_buffer *xml, const struct listed *item, bool is_encoded)
{
    td_buffer_puts(xml, "<Upload>");
    td_s3_element(xml, "Key", key_of(item), is_encoded);
    td_xml_element(xml, "UploadId", td_text_of(item->id));
    td_buffer_puts(xml, "<Initiator><ID>tensord</ID><DisplayName>tensord</DisplayName></Initiator>" TD_S3_OWNER
                        "<StorageClass>STANDARD</StorageClass>");
    td_s3_date(xml, "Initiated", item->started_ns);
    write_algorithm(xml, item->algorithm, item->is_composite);
    td_buffer_puts(xml, "</Upload>");
}

static void write_common_prefix(struct td_buffer *xml, const struct listed *item, bool is_encoded)
{
    td_buffer_puts(xml, "<CommonPrefixes>");
    td_s3_element(xml, "Prefix", key_of(item), is_encoded);
    td_buffer_puts(xml, "</CommonPrefixes>");
}

static void answer_uploads(const struct uploads *uploads)
{
    struct td_buffer xml;
    bool has_more = uploads->most > 0 && uploads->count > uploads->most;
    size_t end = uploads->count < uploads->most ? uploads->count : uploads->most;
    td_s3_begin_document(&xml, "ListMultipartUploadsResult");
    td_xml_element(&xml, "Bucket", uploads->bucket);
    td_s3_element(&xml, "KeyMarker", uploads->key_marker, uploads->is_encoded);
    td_xml_element(&xml, "UploadIdMarker", uploads->id_marker);
    td_s3_element(&xml, "Prefix", uploads->prefix, uploads->is_encoded);
    if (uploads->delimiter.len > 0)
        td_s3_element(&xml, "Delimiter", uploads->delimiter, uploads->is_encoded);
    if (uploads->is_encoded)
        td_buffer_puts(&xml, "<EncodingType>url</EncodingType>");
    if (has_more) {
        td_s3_element(&xml, "NextKeyMarker", key_of(uploads->items[end - 1]), uploads->is_encoded);
        td_xml_element(&xml, "NextUploadIdMarker", td_text_of(uploads->items[end - 1]->id));
    }
    td_buffer_printf(&xml, "<MaxUploads>%zu</MaxUploads><IsTruncated>%s</IsTruncated>", uploads->most,
                     has_more ? "true" : "false");
    for (size_t i = 0; i < end; i++)
        if (uploads->items[i]->id[0] != '\0')
            write_upload(&xml, uploads->items[i], uploads->is_encoded);
    for (size_t i = 0; i < end; i++)
        if (uploads->items[i]->id[0] == '\0')
            write_common_prefix(&xml, uploads->items[i], uploads->is_encoded);
    td_s3_answer_document(uploads->call, &xml, "ListMultipartUploadsResult");
}

void td_s3_list_uploads(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_error err = TD_ERROR_INIT;
    struct uploads uploads = {.call = call,
                              .bucket = bucket,
                              .prefix = td_s3_parameter(call, "prefix"),
                              .delimiter = td_s3_parameter(call, "delimiter"),
                              .key_marker = td_s3_parameter(call, "key-marker"),
                              .id_marker = td_s3_parameter(call, "upload-id-marker")};
    (void)key;
    if (!td_s3_may_write_bucket(call, bucket) || !td_s3_read_encoding(call, &uploads.is_encoded) ||
        !td_s3_count(call, "max-uploads", 0, TD_S3_PAGE_ITEMS, &uploads.most))
        return;
    uploads.capacity = 2 * (uploads.most + 1);
    uploads.items = calloc(uploads.capacity, sizeof *uploads.items);
    if (uploads.items == NULL) {
        (void)td_call_no_memory(call);
        return;
    }
    if (td_parts_each(call->api->publish, note_upload, &uploads, &err)) {
        shrink(&uploads);
        answer_uploads(&uploads);
    } else {
        td_publishing_fail(call, &err, 500);
    }
    for (size_t i = 0; i < uploads.count; i++)
        free(uploads.items[i]);
    free(uploads.items);
}
