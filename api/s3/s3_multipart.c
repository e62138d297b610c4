/* Uploads in parts: create, send and copy parts, complete, abort. What S3 knows of an upload besides its file is its
 * bucket, its key and its checksum; publish_parts.h keeps that as a line of text. */
#include "api/s3/s3_multipart.h"

#include "api/call/publishing.h"
#include "api/s3/s3_commit.h"
#include "api/s3/s3_documents.h"
#include "api/s3/s3_handlers.h"
#include "api/s3/s3_list.h"
#include "api/s3/s3_sink.h"
#include "core/digits.h"
#include "core/file_io.h"
#include "http/range.h"
#include "http/xml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COPY_BYTES = 1024 * 1024 };

/* ---- the line about an upload -------------------------------------------------------------------------- */

/* Writes "BUCKET ALGORITHM TYPE KEY"; neither has a line end. */
static bool write_label(struct td_s3_upload *upload)
{
    int len = snprintf(upload->parts.label, sizeof upload->parts.label, "%.*s %s %s %.*s", (int)upload->bucket.len,
                       upload->bucket.p,
                       upload->algorithm == TD_S3_NO_ALGORITHM ? "-" : td_s3_algorithm_name(upload->algorithm),
                       upload->is_composite ? "COMPOSITE" : "FULL_OBJECT", (int)upload->key.len, upload->key.p);
    return len > 0 && (size_t)len < sizeof upload->parts.label;
}

void td_s3_read_upload(struct td_s3_upload *upload)
{
    struct td_text rest = td_text_of(upload->parts.label);
    upload->bucket = td_text_take_until(&rest, ' ');
    upload->algorithm = td_s3_algorithm_named(td_text_take_until(&rest, ' '));
    upload->is_composite = td_text_equals(td_text_take_until(&rest, ' '), "COMPOSITE");
    upload->key = rest;
}

static bool fail_upload(const struct td_call *call)
{
    td_response_fail_as(
        call->response, 404, "NoSuchUpload",
        "The specified upload does not exist. The upload ID may be invalid, or the upload may have been "
        "aborted or completed");
    return false;
}

bool td_s3_find_upload(struct td_call *call, struct td_text bucket, struct td_text key, bool or_done,
                       struct td_s3_upload *upload)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_s3_target target;
    const struct td_text *id = td_uri_parameter(call->uri, "uploadId");
    if (!td_s3_target_begin(call, bucket, key, &target))
        return false;
    if (id == NULL || !td_parts_find(call->api->publish, *id, &upload->parts, &err))
        return fail_upload(call);
    td_s3_read_upload(upload);
    /* the same answer, whether the upload belongs to another key or does not exist */
    if (td_text_compare(bucket, upload->bucket) != 0 || td_text_compare(key, upload->key) != 0 ||
        (upload->parts.is_done && !or_done))
        return fail_upload(call);
    return true;
}

/* Sets the target that the upload had when it began. Returns false after it answered. */
static bool read_target(const struct td_call *call, const struct td_s3_upload *upload, struct td_s3_target *target)
{
    *target =
        (struct td_s3_target){.bucket = upload->bucket, .key = upload->key, .is_dataset = upload->parts.is_dataset};
    (void)snprintf(target->repo_id, sizeof target->repo_id, "%s", upload->parts.repo_id);
    (void)snprintf(target->path, sizeof target->path, "%s", upload->parts.path);
    return td_publishing_begin(call, td_text_of(target->repo_id), target->is_dataset, &target->name);
}

/* ---- CreateMultipartUpload ----------------------------------------------------------------------------- */

/* Reads the checksum that the parts will have. Returns false after it answered. */
static bool read_algorithm(const struct td_call *call, struct td_s3_upload *upload)
{
    const struct td_header *name = td_request_single_header(call->request, "x-amz-checksum-algorithm");
    const struct td_header *type = td_request_single_header(call->request, "x-amz-checksum-type");
    upload->algorithm = name == NULL ? TD_S3_NO_ALGORITHM : td_s3_algorithm_named(name->value);
    bool is_full = type != NULL && td_text_equals_ignore_case(type->value, "FULL_OBJECT");
    bool is_composite = type != NULL && td_text_equals_ignore_case(type->value, "COMPOSITE");
    if (name != NULL && upload->algorithm == TD_S3_NO_ALGORITHM)
        td_response_fail_as(call->response, 400, "InvalidRequest", "The checksum algorithm %.*s is not implemented",
                            TD_SHOW(name->value, 32));
    else if (type != NULL && (name == NULL || !(is_full || is_composite)))
        td_response_fail_as(call->response, 400, "InvalidRequest",
                            "x-amz-checksum-type must be COMPOSITE or FULL_OBJECT, beside x-amz-checksum-algorithm");
    else {
        upload->is_composite = !is_full && upload->algorithm != TD_S3_CRC64NVME;
        return true;
    }
    return false;
}

void td_s3_create_upload(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_s3_target target;
    struct td_s3_upload upload = {.bucket = bucket, .key = key};
    struct td_buffer xml;
    if (!td_s3_target_begin(call, bucket, key, &target) || !td_s3_check_fields(call) || !read_algorithm(call, &upload))
        return;
    if (target.is_folder) {
        td_response_fail(call->response, 400, NULL, "A key that ends in \"/\" has no content");
        return;
    }
    if (!td_s3_check_conditions(call, &target))
        return;
    (void)snprintf(upload.parts.repo_id, sizeof upload.parts.repo_id, "%s", target.repo_id);
    (void)snprintf(upload.parts.path, sizeof upload.parts.path, "%s", target.path);
    (void)snprintf(upload.parts.owner, sizeof upload.parts.owner, "%s", call->response->token);
    upload.parts.is_dataset = target.is_dataset;
    if (!write_label(&upload)) {
        td_response_fail_as(call->response, 400, "KeyTooLongError", "Your key is too long");
        return;
    }
    if (!td_parts_begin(call->api->publish, &upload.parts, &err)) {
        td_publishing_fail(call, &err, 503);
        return;
    }
    td_s3_begin_document(&xml, "InitiateMultipartUploadResult");
    td_xml_element(&xml, "Bucket", bucket);
    td_xml_element(&xml, "Key", key);
    td_xml_element(&xml, "UploadId", td_text_of(upload.parts.id));
    td_s3_answer_document(call, &xml, "InitiateMultipartUploadResult");
    if (call->response->status != 200 || upload.algorithm == TD_S3_NO_ALGORITHM)
        return;
    td_response_add_header(call->response, "x-amz-checksum-algorithm", "%s", td_s3_algorithm_name(upload.algorithm));
    td_response_add_header(call->response, "x-amz-checksum-type", "%s",
                           upload.is_composite ? "COMPOSITE" : "FULL_OBJECT");
}

void td_s3_abort_upload(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_s3_upload upload;
    if (!td_s3_find_upload(call, bucket, key, false, &upload))
        return;
    if (td_parts_remove(call->api->publish, upload.parts.id, &err))
        td_s3_answer_status(call, 204);
    else if (err.code == TD_NOT_FOUND)
        (void)fail_upload(call);
    else
        td_publishing_fail(call, &err, 500);
}

/* ---- UploadPart ---------------------------------------------------------------------------------------- */

static bool read_part_number(const struct td_call *call, unsigned *number)
{
    const struct td_text *text = td_uri_parameter(call->uri, "partNumber");
    uint64_t value;
    if (text != NULL && td_number_read(*text, TD_S3_MOST_PARTS, &value) && value > 0) {
        *number = (unsigned)value;
        return true;
    }
    td_response_fail(call->response, 400, NULL, "Part number must be an integer between 1 and %d, inclusive",
                     TD_S3_MOST_PARTS);
    return false;
}

struct td_body_sink *td_s3_begin_part(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_s3_upload upload;
    unsigned number;
    if (!td_s3_find_upload(call, bucket, key, false, &upload) || !read_part_number(call, &number))
        return NULL;
    struct td_s3_sink *sink = td_s3_sink_make(call, upload.algorithm);
    if (sink == NULL)
        return NULL;
    if (td_s3_sink_hash(call, sink)) {
        if (td_part_begin(call->api->publish, &upload.parts, number, sink->content_bytes, &sink->part, &err))
            return &sink->sink;
        if (err.code == TD_NOT_FOUND)
            (void)fail_upload(call);
        else
            td_publishing_fail(call, &err, 500);
    }
    sink->sink.ops->release(&sink->sink);
    return NULL;
}

/* Ends a part with what is known of its checksum. Returns false after it answered. */
static bool end_part(const struct td_call *call, struct td_part_writer *writer, enum td_s3_algorithm algorithm,
                     const uint8_t *sum, struct td_part_info *info)
{
    struct td_error err = TD_ERROR_INIT;
    char label[TD_PART_LABEL_BYTES] = "", text[TD_S3_SUM_TEXT_BYTES];
    if (algorithm != TD_S3_NO_ALGORITHM) {
        td_s3_write_sum(algorithm, sum, text);
        (void)snprintf(label, sizeof label, "%s %s", td_s3_algorithm_name(algorithm), text);
    }
    if (td_part_end(writer, label, info, &err))
        return true;
    if (err.code == TD_NOT_FOUND)
        return fail_upload(call);
    if (err.code == TD_INVALID_ARGUMENT)
        td_response_fail_as(call->response, 400, "IncompleteBody", "%s", err.message);
    else
        td_publishing_fail(call, &err, 500);
    return false;
}

void td_s3_end_part(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_s3_upload upload;
    struct td_part_info info;
    struct td_s3_sink *sink = td_s3_sink_of(call);
    if (!td_s3_find_upload(call, bucket, key, false, &upload) || !td_s3_sink_check(call, sink))
        return;
    struct td_part_writer *writer = sink->part;
    enum td_s3_algorithm algorithm = upload.algorithm != TD_S3_NO_ALGORITHM ? upload.algorithm : sink->echoed;
    sink->part = NULL;
    if (!end_part(call, writer, algorithm, algorithm == TD_S3_NO_ALGORITHM ? NULL : sink->checksums.sums[algorithm],
                  &info))
        return;
    sink->echoed = algorithm;
    td_s3_answer_status(call, 200);
    td_response_add_header(call->response, "ETag", "\"%s" TD_S3_ETAG_END "\"", info.tag);
    td_s3_sink_echo(call, sink);
}

/* ---- UploadPartCopy ------------------------------------------------------------------------------------ */

/* Reads "bytes=FIRST-LAST", both within the source. Returns false after it answered. */
static bool read_copy_range(const struct td_call *call, uint64_t size_bytes, uint64_t *first, uint64_t *end)
{
    const struct td_header *range = td_request_single_header(call->request, "x-amz-copy-source-range");
    uint64_t last;
    *first = 0;
    *end = size_bytes;
    if (range == NULL)
        return true;
    struct td_text text = range->value;
    struct td_text unit = td_text_take_until(&text, '=');
    struct td_text from = td_text_take_until(&text, '-');
    if (td_text_equals(unit, "bytes") && td_number_read(from, INT64_MAX, first) &&
        td_number_read(text, INT64_MAX, &last) && *first <= last && last < size_bytes) {
        *end = last + 1;
        return true;
    }
    td_response_fail(call->response, 400, NULL,
                     "The x-amz-copy-source-range value must be of the form bytes=first-last, within the %" PRIu64
                     " bytes of the source",
                     size_bytes);
    return false;
}

/* A part that bytes of an object are copied to. */
struct copying {
    struct td_part_writer *writer;
    struct td_s3_checksums *checksums;
};

static bool take_copied(void *context, const void *bytes, size_t len, struct td_error *err)
{
    struct copying *copying = context;
    if (!td_part_write(copying->writer, bytes, len, err))
        return false;
    td_s3_checksums_write(copying->checksums, bytes, len);
    return true;
}

/* Copies a part. Returns false after it answered. */
static bool copy_part(const struct td_call *call, const struct td_s3_upload *upload, unsigned number,
                      const struct td_s3_source *source, struct td_s3_checksums *checksums, struct td_part_info *info)
{
    struct td_error err = TD_ERROR_INIT;
    struct copying copying = {.writer = NULL, .checksums = checksums};
    uint64_t first, end;
    if (!read_copy_range(call, source->size_bytes, &first, &end))
        return false;
    if (upload->algorithm != TD_S3_NO_ALGORITHM && !td_s3_checksums_add(checksums, upload->algorithm))
        return td_call_no_memory(call);
    if (!td_part_begin(call->api->publish, &upload->parts, number, end - first, &copying.writer, &err) ||
        !td_blob_copy_to(source->blob, first, end - first, take_copied, &copying, &err)) {
        td_part_abandon(copying.writer);
        if (err.code == TD_NOT_FOUND)
            return fail_upload(call);
        td_publishing_fail(call, &err, 500);
        return false;
    }
    (void)td_s3_checksums_end(checksums);
    return end_part(call, copying.writer, upload->algorithm,
                    upload->algorithm == TD_S3_NO_ALGORITHM ? NULL : checksums->sums[upload->algorithm], info);
}

/* Appends the element of a checksum, such as <ChecksumCRC32>. */
static void write_sum(struct td_buffer *xml, enum td_s3_algorithm algorithm, struct td_text sum)
{
    char element[32];
    (void)snprintf(element, sizeof element, "Checksum%s", td_s3_algorithm_name(algorithm));
    td_xml_element(xml, element, sum);
}

void td_s3_end_part_copy(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_s3_upload upload;
    struct td_s3_source source;
    struct td_s3_checksums checksums;
    struct td_part_info info = {.number = 0};
    struct td_buffer xml;
    unsigned number = 0;
    if (!td_s3_find_upload(call, bucket, key, false, &upload) || !read_part_number(call, &number) ||
        !td_s3_sink_check(call, td_s3_sink_of(call)) || !td_s3_open_copy_source(call, &source))
        return;
    td_s3_checksums_init(&checksums);
    bool ok = copy_part(call, &upload, number, &source, &checksums, &info);
    td_s3_checksums_fini(&checksums);
    td_s3_source_fini(&source);
    if (!ok)
        return;
    td_s3_begin_document(&xml, "CopyPartResult");
    td_s3_date(&xml, "LastModified", info.written_ns);
    td_buffer_printf(&xml, "<ETag>&quot;%s" TD_S3_ETAG_END "&quot;</ETag>", info.tag);
    td_s3_write_part_sum(&xml, &info);
    td_s3_answer_document(call, &xml, "CopyPartResult");
}

void td_s3_write_part_sum(struct td_buffer *xml, const struct td_part_info *info)
{
    struct td_text sum = td_text_of(info->label);
    enum td_s3_algorithm algorithm = td_s3_algorithm_named(td_text_take_until(&sum, ' '));
    if (algorithm != TD_S3_NO_ALGORITHM)
        write_sum(xml, algorithm, sum);
}

/* ---- CompleteMultipartUpload --------------------------------------------------------------------------- */

/* A completion that is under way. */
struct completing {
    struct td_call *call;
    struct td_s3_upload *upload;
    struct td_s3_target target;
    struct td_s3_part_list list;
    bool is_row; /* the parts stand in the row of the upload, one after the other */
    uint64_t total_bytes;
    struct td_s3_checksums whole;     /* of the object */
    struct td_s3_checksums composite; /* of the sums of the parts */
    struct td_text expected;          /* what the request says of the object's checksum; empty: nothing */
    enum td_s3_algorithm expected_algorithm;
};

struct td_body_sink *td_s3_begin_complete(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_s3_upload upload;
    if (!td_s3_find_upload(call, bucket, key, true, &upload))
        return NULL;
    return td_s3_sink_take_text(call, td_s3_sink_make_document(call), TD_S3_DOCUMENT_BYTES);
}

/* Reads the document. Returns false after it answered. */
static bool read_list(struct completing *completing, struct td_text document, struct td_arena *arena)
{
    const struct td_call *call = completing->call;
    enum td_s3_document_fault fault = td_s3_read_parts(document, arena, &completing->list);
    if (fault == TD_S3_DOCUMENT_NO_MEMORY)
        return td_call_no_memory(call);
    if (fault != TD_S3_DOCUMENT_OK) {
        td_response_fail_as(call->response, 400, "MalformedXML",
                            "The XML you provided was not well-formed, or does not name 1 to %d parts",
                            TD_S3_MOST_PARTS);
        return false;
    }
    for (size_t i = 1; i < completing->list.count; i++) {
        if (completing->list.items[i].number > completing->list.items[i - 1].number)
            continue;
        td_response_fail_as(call->response, 400, "InvalidPartOrder",
                            "The list of parts was not in ascending order. Parts must be ordered by part number");
        return false;
    }
    return true;
}

/* Returns whether the listed tag and sum are those of the part that is here. */
static bool is_part(const struct td_s3_listed_part *listed, const struct td_part_info *info)
{
    struct td_text sum = td_text_of(info->label);
    enum td_s3_algorithm algorithm = td_s3_algorithm_named(td_text_take_until(&sum, ' '));
    return td_s3_is_tag(td_text_trim(listed->etag, " \t\r\n"), info->tag) &&
           (listed->algorithm == TD_S3_NO_ALGORITHM || algorithm != listed->algorithm ||
            td_text_compare(td_text_trim(listed->sum, " \t\r\n"), sum) == 0);
}

static void answer_completed(const struct completing *completing, const struct td_publish_sum *sum);

/* Answers for a part that is not here, or is another one: as a request that completed the upload at the same time,
 * if there was one, else 400. Returns false. */
static bool end_without_part(struct completing *completing, unsigned number)
{
    const struct td_call *call = completing->call;
    struct td_parts_upload now;
    if (td_parts_find(call->api->publish, td_text_of(completing->upload->parts.id), &now, NULL) && now.is_done) {
        completing->list.count = 0;
        answer_completed(completing, &now.sum);
        return false;
    }
    td_response_fail_as(call->response, 400, "InvalidPart",
                        "One or more of the specified parts could not be found: part %u was not uploaded, or has "
                        "another entity tag or checksum",
                        number);
    return false;
}

/* Checks that all listed parts are here, and sums up their sizes and checksums. Returns false after it answered. */
static bool check_parts(struct completing *completing)
{
    const struct td_call *call = completing->call;
    enum td_s3_algorithm algorithm = completing->upload->algorithm;
    for (size_t i = 0; i < completing->list.count; i++) {
        const struct td_s3_listed_part *listed = &completing->list.items[i];
        struct td_part_info info;
        uint8_t sum[TD_S3_SUM_BYTES];
        int fd = td_parts_open(call->api->publish, completing->upload->parts.id, listed->number, &info);
        if (fd >= 0)
            (void)close(fd);
        if (fd < 0 || !is_part(listed, &info))
            return end_without_part(completing, listed->number);
        completing->is_row = (i == 0 || completing->is_row) && info.is_in_row && listed->number == i + 1 &&
                             info.off == completing->total_bytes;
        completing->total_bytes += info.size_bytes;
        struct td_text text = td_text_of(info.label);
        if (algorithm != TD_S3_NO_ALGORITHM && td_s3_algorithm_named(td_text_take_until(&text, ' ')) == algorithm &&
            td_s3_read_sum(algorithm, text, sum))
            td_s3_checksums_write(&completing->composite, sum, td_s3_sum_bytes(algorithm));
    }
    return true;
}

/* Reads what the request says of the whole object. Returns false after it answered. */
static bool read_expectations(struct completing *completing)
{
    const struct td_call *call = completing->call;
    const struct td_header *size = td_request_single_header(call->request, "x-amz-mp-object-size");
    enum td_s3_algorithm algorithm;
    uint64_t bytes;
    completing->expected_algorithm = TD_S3_NO_ALGORITHM;
    if (size != NULL && (!td_number_read(size->value, INT64_MAX, &bytes) || bytes != completing->total_bytes)) {
        td_response_fail_as(call->response, 400, "InvalidRequest",
                            "x-amz-mp-object-size is not the size of the parts, %" PRIu64, completing->total_bytes);
        return false;
    }
    for (size_t i = 0; i < call->request->header_count; i++) {
        const struct td_header *header = &call->request->headers[i];
        if (!td_s3_is_checksum_field(header->name, &algorithm) || algorithm == TD_S3_CONTENT_MD5)
            continue;
        if (algorithm == TD_S3_NO_ALGORITHM || completing->expected.len > 0) {
            td_response_fail_as(call->response, 400, "InvalidRequest",
                                "The checksum %.*s is not implemented, or the request has two",
                                TD_SHOW(header->name, 64));
            return false;
        }
        completing->expected = header->value;
        completing->expected_algorithm = algorithm;
    }
    bool ok = completing->upload->algorithm == TD_S3_NO_ALGORITHM || completing->upload->is_composite ||
              td_s3_checksums_add(&completing->whole, completing->upload->algorithm);
    if (ok && completing->expected.len > 0)
        ok = td_s3_checksums_add(&completing->whole, completing->expected_algorithm);
    return ok || td_call_no_memory(call);
}

/* Passes the bytes of a part to the checksums and, unless it is NULL, to the stream. Returns false after it answered.
 */
static bool stream_part(struct completing *completing, const struct td_s3_listed_part *listed,
                        struct td_publish_stream *stream, char *bytes)
{
    const struct td_call *call = completing->call;
    struct td_error err = TD_ERROR_INIT;
    struct td_part_info info;
    int fd = td_parts_open(call->api->publish, completing->upload->parts.id, listed->number, &info);
    bool ok = fd >= 0 && is_part(listed, &info);
    if (!ok)
        (void)end_without_part(completing, listed->number);
    for (uint64_t at = 0; ok && at < info.size_bytes;) {
        size_t len = info.size_bytes - at < COPY_BYTES ? (size_t)(info.size_bytes - at) : COPY_BYTES;
        ok = td_read_at(fd, bytes, len, info.off + at) == (ssize_t)len ||
             td_error_sys(&err, TD_IO, errno, "a part cannot be read");
        ok = ok && (stream == NULL || td_publish_stream_write(stream, bytes, len, &err));
        if (ok)
            td_s3_checksums_write(&completing->whole, bytes, len);
        else
            td_publishing_fail(call, &err, 500);
        at += len;
    }
    if (fd >= 0)
        (void)close(fd);
    return ok;
}

/* Checks the checksum that the request has for the object: of its bytes, or, with "-N", of the sums of its parts.
 * Returns false after it answered. */
static bool check_whole(struct completing *completing)
{
    const struct td_call *call = completing->call;
    enum td_s3_algorithm algorithm = completing->expected_algorithm;
    struct td_text digits = completing->expected;
    struct td_text text = td_text_take_until(&digits, '-');
    uint8_t expected[TD_S3_SUM_BYTES];
    uint64_t count = 0;
    (void)td_s3_checksums_end(&completing->whole);
    (void)td_s3_checksums_end(&completing->composite);
    if (algorithm == TD_S3_NO_ALGORITHM)
        return true;
    bool is_composite = text.len < completing->expected.len;
    const struct td_s3_checksums *have = is_composite ? &completing->composite : &completing->whole;
    bool ok = td_s3_read_sum(algorithm, text, expected) &&
              (!is_composite || (algorithm == completing->upload->algorithm &&
                                 td_number_read(digits, TD_S3_MOST_PARTS, &count) && count == completing->list.count));
    if (!ok)
        td_response_fail_as(call->response, 400, "InvalidRequest", "Value for %s header is invalid",
                            td_s3_algorithm_field(algorithm));
    else if (memcmp(have->sums[algorithm], expected, td_s3_sum_bytes(algorithm)) != 0)
        td_response_fail_as(call->response, 400, "BadDigest",
                            "The %s you specified did not match the calculated checksum",
                            td_s3_algorithm_field(algorithm));
    else
        return true;
    return false;
}

/* Passes the bytes of all parts to the checksums of the object and, unless it is NULL, to the stream. Returns false
 * after it answered. */
static bool read_parts(struct completing *completing, struct td_publish_stream *stream)
{
    char *bytes = malloc(COPY_BYTES);
    bool ok = bytes != NULL || td_call_no_memory(completing->call);
    for (size_t i = 0; ok && i < completing->list.count; i++)
        ok = stream_part(completing, &completing->list.items[i], stream, bytes);
    free(bytes);
    return ok;
}

/* Makes a blob of the row of the upload, which is read only for a checksum of the object. Ends the join. Returns false
 * after it answered. */
static bool join_parts(struct completing *completing, struct td_parts_row *row, struct td_publish_sum *sum)
{
    struct td_publish *publish = completing->call->api->publish;
    struct td_error err = TD_ERROR_INIT;
    if ((td_s3_checksums_computes_any(&completing->whole) && !read_parts(completing, NULL)) ||
        !check_whole(completing)) {
        td_parts_unjoin(publish, row);
        return false;
    }
    if (td_parts_join(publish, &completing->upload->parts, row, &completing->target.name, completing->total_bytes, sum,
                      &err))
        return true;
    td_publishing_fail(completing->call, &err, 500);
    return false;
}

/* Makes a blob of copies of the parts. Returns false after it answered. */
static bool copy_parts(struct completing *completing, struct td_publish_sum *sum)
{
    const struct td_call *call = completing->call;
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_stream *stream = NULL;
    if (!td_publish_stream_begin(call->api->publish, &completing->target.name, completing->total_bytes, &stream,
                                 &err)) {
        td_publishing_fail(call, &err, 500);
        return false;
    }
    if (!read_parts(completing, stream) || !check_whole(completing)) {
        td_publish_stream_abandon(stream);
        return false;
    }
    if (td_publish_stream_end(stream, NULL, sum, &err))
        return true;
    td_publishing_fail(call, &err, 500);
    return false;
}

/* Makes a blob of the parts. Returns false after it answered. */
static bool assemble(struct completing *completing, struct td_publish_sum *sum)
{
    struct td_parts_row *row = !completing->is_row
                                   ? NULL
                                   : td_parts_begin_join(completing->call->api->publish, completing->upload->parts.id,
                                                         (unsigned)completing->list.count);
    return row != NULL ? join_parts(completing, row, sum) : copy_parts(completing, sum);
}

static void write_object_sum(const struct completing *completing, struct td_buffer *xml)
{
    enum td_s3_algorithm algorithm = completing->upload->algorithm;
    bool is_composite = completing->upload->is_composite;
    char text[TD_S3_SUM_TEXT_BYTES + TD_NUMBER_BYTES + 1];
    if (algorithm == TD_S3_NO_ALGORITHM || completing->list.count == 0)
        return;
    td_s3_write_sum(algorithm, (is_composite ? &completing->composite : &completing->whole)->sums[algorithm], text);
    size_t len = strlen(text);
    if (is_composite)
        (void)snprintf(text + len, sizeof text - len, "-%zu", completing->list.count);
    write_sum(xml, algorithm, td_text_of(text));
    td_xml_element(xml, "ChecksumType", td_text_of(is_composite ? "COMPOSITE" : "FULL_OBJECT"));
}

static void answer_completed(const struct completing *completing, const struct td_publish_sum *sum)
{
    const struct td_call *call = completing->call;
    struct td_buffer xml;
    char hex[TD_SHA256_TEXT_BYTES];
    td_hex_write(sum->sha256, sizeof sum->sha256, hex);
    td_s3_begin_document(&xml, "CompleteMultipartUploadResult");
    td_xml_element(&xml, "Location", call->uri->raw_path);
    td_xml_element(&xml, "Bucket", completing->upload->bucket);
    td_xml_element(&xml, "Key", completing->upload->key);
    td_s3_write_etag(&xml, hex);
    write_object_sum(completing, &xml);
    td_s3_answer_document(call, &xml, "CompleteMultipartUploadResult");
}

/* Completes an upload whose document is read. */
static void complete(struct completing *completing)
{
    struct td_call *call = completing->call;
    struct td_error err = TD_ERROR_INIT;
    struct td_publish_sum sum;
    if (!td_s3_check_conditions(call, &completing->target) || !check_parts(completing) ||
        !read_expectations(completing) || !assemble(completing, &sum) ||
        !td_s3_commit_object(call, &completing->target, &sum))
        return;
    if (!td_parts_finish(call->api->publish, completing->upload->parts.id, &sum, &err) && err.code != TD_NOT_FOUND)
        td_publishing_fail(call, &err, 500); /* the same request again ends it */
    else
        answer_completed(completing, &sum);
}

void td_s3_end_complete(struct td_call *call, struct td_text bucket, struct td_text key)
{
    struct td_s3_upload upload;
    struct td_arena arena;
    struct td_s3_sink *sink = td_s3_sink_of(call);
    struct completing completing = {.call = call, .upload = &upload};
    if (!td_s3_find_upload(call, bucket, key, true, &upload) || !td_s3_sink_check(call, sink) ||
        !read_target(call, &upload, &completing.target))
        return;
    td_arena_init(&arena, 0);
    td_s3_checksums_init(&completing.whole);
    td_s3_checksums_init(&completing.composite);
    bool ok = upload.algorithm == TD_S3_NO_ALGORITHM || td_s3_checksums_add(&completing.composite, upload.algorithm) ||
              td_call_no_memory(call);
    if (ok && read_list(&completing, td_buffer_text(&sink->text), &arena)) {
        completing.list.count = upload.parts.is_done ? 0 : completing.list.count;
        if (upload.parts.is_done) /* the answer to the same request was lost */
            answer_completed(&completing, &upload.parts.sum);
        else
            complete(&completing);
    }
    td_s3_checksums_fini(&completing.whole);
    td_s3_checksums_fini(&completing.composite);
    td_arena_fini(&arena);
}
