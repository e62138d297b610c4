/* ListParts and ListMultipartUploads. */
#include "api/call/publishing.h"
#include "api/s3/s3_commit.h"
#include "api/s3/s3_handlers.h"
#include "api/s3/s3_list.h"
#include "api/s3/s3_multipart.h"
#include "core/array.h"
#include "core/digits.h"
#include "http/xml.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LISTED = 1000 };

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

/* Answers with the parts after the number `marker`, at most so many. */
static void answer_parts(const struct td_call *call, const struct td_s3_upload *upload,
                         const struct td_part_info *parts, size_t count, size_t marker, size_t most)
{
    struct td_buffer xml;
    size_t first = 0;
    while (first < count && parts[first].number <= marker)
        first++;
    size_t end = count - first > most ? first + most : count;
    td_s3_begin_document(&xml, "ListPartsResult");
    td_xml_element(&xml, "Bucket", upload->bucket);
    td_xml_element(&xml, "Key", upload->key);
    td_xml_element(&xml, "UploadId", td_text_of(upload->parts.id));
    td_buffer_puts(&xml, TD_S3_OWNER "<StorageClass>STANDARD</StorageClass>");
    td_buffer_printf(&xml, "<PartNumberMarker>%zu</PartNumberMarker>", marker);
    td_buffer_printf(&xml, "<NextPartNumberMarker>%zu</NextPartNumberMarker>",
                     end > first ? (size_t)parts[end - 1].number : marker);
    td_buffer_printf(&xml, "<MaxParts>%zu</MaxParts><IsTruncated>%s</IsTruncated>", most,
                     end < count ? "true" : "false");
    if (upload->algorithm != TD_S3_NO_ALGORITHM) {
        td_xml_element(&xml, "ChecksumAlgorithm", td_text_of(td_s3_algorithm_name(upload->algorithm)));
        td_xml_element(&xml, "ChecksumType", td_text_of(upload->is_composite ? "COMPOSITE" : "FULL_OBJECT"));
    }
    for (size_t i = first; i < end; i++)
        write_part(&xml, &parts[i]);
    td_s3_answer_document(call, &xml, "ListPartsResult");
}

void td_s3_list_parts(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_s3_upload upload;
    struct td_part_info *parts;
    size_t count, most, marker = 0;
    const struct td_text *after = td_uri_parameter(call->uri, "part-number-marker");
    uint64_t number = 0;
    if (!td_s3_count(call, "max-parts", 0, MOST_LISTED, &most))
        return;
    if (after != NULL && after->len > 0 && !td_number_read(*after, INT32_MAX, &number)) {
        td_response_fail(call->response, 400, NULL, "part-number-marker must be a number");
        return;
    }
    marker = (size_t)number;
    if (!td_s3_find_upload(call, bucket, key, false, &upload))
        return;
    if (!td_parts_list(call->api->publish, upload.parts.id, &parts, &count, &err)) {
        td_publishing_fail(call, &err, 500);
        return;
    }
    answer_parts(call, &upload, parts, count, marker, most);
    free(parts);
}

/* ---- ListMultipartUploads ------------------------------------------------------------------------------ */

/* A listing that is being made. */
struct uploads {
    const struct td_call *call;
    struct td_text bucket, prefix, key_marker, id_marker;
    struct td_s3_upload **items; /* each owned */
    size_t count, capacity;
};

/* Orders uploads by key, then by time, then by id. */
static int compare_uploads(const void *a, const void *b)
{
    const struct td_s3_upload *x = *(struct td_s3_upload *const *)a, *y = *(struct td_s3_upload *const *)b;
    int order = td_text_compare(x->key, y->key);
    if (order == 0 && x->parts.started_ns != y->parts.started_ns)
        return x->parts.started_ns < y->parts.started_ns ? -1 : 1;
    return order != 0 ? order : strcmp(x->parts.id, y->parts.id);
}

static bool note_upload(void *context, const struct td_parts_upload *parts, struct td_error *err)
{
    struct uploads *uploads = context;
    struct td_s3_upload *upload = malloc(sizeof *upload);
    if (upload == NULL)
        return td_error_no_memory(err);
    upload->parts = *parts;
    td_s3_read_upload(upload);
    bool is_listed = td_text_compare(upload->bucket, uploads->bucket) == 0 &&
                     td_text_begins(upload->key, uploads->prefix) &&
                     td_publishing_may_write(uploads->call, td_text_of(parts->repo_id), parts->is_dataset);
    bool ok = !is_listed || TD_ARRAY_GROW(uploads->items, uploads->count, uploads->capacity, err);
    if (is_listed && ok)
        uploads->items[uploads->count++] = upload;
    else
        free(upload);
    return ok;
}

/* Returns the number of uploads that the markers say the client has. */
static size_t skip_listed(const struct uploads *uploads)
{
    size_t i = 0;
    while (i < uploads->count && uploads->key_marker.len > 0) {
        int order = td_text_compare(uploads->items[i]->key, uploads->key_marker);
        if (order > 0)
            break;
        i++;
        if (order == 0 && uploads->id_marker.len > 0 &&
            td_text_equals(uploads->id_marker, uploads->items[i - 1]->parts.id))
            break;
    }
    return i;
}

static void write_upload(struct td_buffer *xml, const struct td_s3_upload *upload)
{
    td_buffer_puts(xml, "<Upload>");
    td_xml_element(xml, "Key", upload->key);
    td_xml_element(xml, "UploadId", td_text_of(upload->parts.id));
    td_buffer_puts(xml, "<Initiator><ID>tensord</ID><DisplayName>tensord</DisplayName></Initiator>" TD_S3_OWNER
                        "<StorageClass>STANDARD</StorageClass>");
    td_s3_date(xml, "Initiated", upload->parts.started_ns);
    if (upload->algorithm != TD_S3_NO_ALGORITHM) {
        td_xml_element(xml, "ChecksumAlgorithm", td_text_of(td_s3_algorithm_name(upload->algorithm)));
        td_xml_element(xml, "ChecksumType", td_text_of(upload->is_composite ? "COMPOSITE" : "FULL_OBJECT"));
    }
    td_buffer_puts(xml, "</Upload>");
}

static void answer_uploads(const struct uploads *uploads, size_t most)
{
    struct td_buffer xml;
    size_t first = skip_listed(uploads);
    size_t end = uploads->count - first > most ? first + most : uploads->count;
    td_s3_begin_document(&xml, "ListMultipartUploadsResult");
    td_xml_element(&xml, "Bucket", uploads->bucket);
    td_xml_element(&xml, "KeyMarker", uploads->key_marker);
    td_xml_element(&xml, "UploadIdMarker", uploads->id_marker);
    td_xml_element(&xml, "Prefix", uploads->prefix);
    if (end < uploads->count && end > first) {
        td_xml_element(&xml, "NextKeyMarker", uploads->items[end - 1]->key);
        td_xml_element(&xml, "NextUploadIdMarker", td_text_of(uploads->items[end - 1]->parts.id));
    }
    td_buffer_printf(&xml, "<MaxUploads>%zu</MaxUploads><IsTruncated>%s</IsTruncated>", most,
                     end < uploads->count && most > 0 ? "true" : "false");
    for (size_t i = first; i < end; i++)
        write_upload(&xml, uploads->items[i]);
    td_s3_answer_document(uploads->call, &xml, "ListMultipartUploadsResult");
}

static struct td_text parameter(const struct td_call *call, const char *name)
{
    const struct td_text *value = td_uri_parameter(call->uri, name);
    return value == NULL ? TD_TEXT("") : *value;
}

void td_s3_list_uploads(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_error err = TD_ERROR_INIT;
    struct uploads uploads = {.call = call,
                              .bucket = bucket,
                              .prefix = parameter(call, "prefix"),
                              .key_marker = parameter(call, "key-marker"),
                              .id_marker = parameter(call, "upload-id-marker")};
    size_t most;
    (void)key;
    if (!td_s3_may_write_bucket(call, bucket) || !td_s3_count(call, "max-uploads", 0, MOST_LISTED, &most))
        return;
    if (parameter(call, "delimiter").len > 0) {
        td_response_fail(call->response, 501, NULL, "Uploads are listed without a delimiter here");
        return;
    }
    if (td_parts_each(call->api->publish, note_upload, &uploads, &err)) {
        if (uploads.count > 0)
            qsort(uploads.items, uploads.count, sizeof(struct td_s3_upload *), compare_uploads);
        answer_uploads(&uploads, most);
    } else {
        td_publishing_fail(call, &err, 500);
    }
    for (size_t i = 0; i < uploads.count; i++)
        free(uploads.items[i]);
    free(uploads.items);
}
