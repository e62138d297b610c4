/* The Git LFS batch interface, by which clients ask where to send large files. Each file goes to its native URL: in one
 * piece (the transfer "basic"), or in parts if it is large and the client knows the Hub's transfer "multipart". A cut
 * then costs a part. */
#include "api/hub/hub_writers.h"
#include "catalog/publish/publish_upload.h"
#include "core/clock.h"
#include "core/digits.h"
#include "http/auth/signed_url.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Signed URLs for uploads are good for a day: a client gets them for all files before it sends the first one. */
#define SIGNED_S UINT64_C(86400)

/* The least bytes of a part but the last one: whole pieces of the store (TD_FETCH_PIECE_BYTES). */
#define PART_BYTES (UINT64_C(64) * 1024 * 1024)

/* A file of more bytes is sent in parts. */
#define WHOLE_BYTES (2 * PART_BYTES)

enum {
    BATCH_OBJECTS = 1000, /* most objects of a request; huggingface_hub asks for 256, git-lfs for 100 */
    MOST_PARTS = 100,     /* of a file */
    BATCH_PARTS = 4000,   /* of all files of a request; the files after these are sent whole */
};

/* An answer that is being written. */
struct batch {
    struct td_hub_write *write;
    struct td_hub_body *body;
    const cJSON *objects;
    struct td_document json;
    bool in_parts; /* the transfer is "multipart", for all files of the answer */
    size_t part_count;
    char numbers[MOST_PARTS][4]; /* "1" to "100", the names of the parts */
};

/* Appends the URL for a request about the blob that needs no token: the native one, signed where there are tokens.
 * range: the part that a PUT sends, "FIRST-LAST/SIZE", or empty. Returns false after it answered. */
static bool write_href(struct td_hub_write *write, enum td_signed_method method, const char *hex, const char *range,
                       struct td_buffer *href)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer path;
    int64_t expires_s;
    const struct td_hub_call *hub = &write->hub;
    const struct td_caller *caller = &hub->call->caller;
    struct td_text host = td_request_host(hub->call->request);
    td_buffer_init(&path);
    td_buffer_puts(&path, hub->as_dataset ? "/datasets/" : "/models/");
    td_uri_encode(&path, hub->id, true);
    td_buffer_printf(&path, "/blobs/sha256:%s%s%s", hex, range[0] == '\0' ? "" : "?range=", range);
    td_buffer_printf(href, "%s://%.*s", td_request_scheme(hub->call->request), (int)host.len, host.p);
    bool ok = !path.failed || td_buffer_refuse(&path, &err);
    if (ok && caller->tokens == NULL)
        td_buffer_append(href, path.data, path.len);
    else if (ok)
        ok = td_signed_url_write(caller->tokens, caller->token, method, td_buffer_text(&path), td_wall_now().seconds,
                                 SIGNED_S, href, &expires_s, &err);
    td_buffer_fini(&path);
    ok = ok && (!href->failed || td_buffer_refuse(href, &err));
    return ok || td_hub_fail_error(&write->hub, &err);
}

/* Adds the URL as a member of this name. Returns as write_href. */
static bool add_href(struct batch *batch, const char *name, enum td_signed_method method, const char *hex,
                     const char *range)
{
    struct td_buffer href;
    td_buffer_init(&href);
    bool ok = write_href(batch->write, method, hex, range, &href);
    if (ok)
        td_document_add_text(&batch->json, name, td_buffer_text(&href));
    td_buffer_fini(&href);
    return ok;
}

/* Adds an error of one object, which ends the upload with its message. */
static void add_error(struct td_document *json, unsigned code, const char *message)
{
    td_document_begin_object(json, "error");
    td_document_add_u64(json, "code", code);
    td_document_add_string(json, "message", message);
    td_document_end(json);
}

/* Returns the length of the parts in which a file is sent. */
static uint64_t part_bytes_of(const struct batch *batch, uint64_t size_bytes)
{
    uint64_t part = PART_BYTES;
    if (size_bytes <= WHOLE_BYTES || batch->part_count + MOST_PARTS > BATCH_PARTS)
        return size_bytes;
    while (part * MOST_PARTS < size_bytes)
        part *= 2;
    return part;
}

/* Adds the header of a file that is sent in parts: their length, and a URL for each, by its number from 1 on. */
static bool add_parts(struct batch *batch, const char *hex, uint64_t size_bytes)
{
    bool ok = true;
    uint64_t part_bytes = part_bytes_of(batch, size_bytes);
    char text[64];
    td_document_begin_object(&batch->json, "header");
    (void)snprintf(text, sizeof text, "%" PRIu64, part_bytes);
    td_document_add_string(&batch->json, "chunk_size", text);
    for (uint64_t i = 0; ok && i * part_bytes < size_bytes; i++) {
        uint64_t left = size_bytes - i * part_bytes;
        uint64_t last = i * part_bytes + (left < part_bytes ? left : part_bytes) - 1;
        (void)snprintf(text, sizeof text, "%" PRIu64 "-%" PRIu64 "/%" PRIu64, i * part_bytes, last, size_bytes);
        ok = add_href(batch, batch->numbers[i], TD_SIGNED_PUT, hex, text);
        batch->part_count++;
    }
    td_document_end(&batch->json);
    return ok;
}

/* Adds where the client sends the blob. In parts, `href` is asked whether all of them have arrived. */
static bool add_action(struct batch *batch, const char *hex, uint64_t size_bytes)
{
    bool in_parts = batch->in_parts && size_bytes > 0;
    td_document_begin_object(&batch->json, "actions");
    td_document_begin_object(&batch->json, "upload");
    bool ok = add_href(batch, "href", in_parts ? TD_SIGNED_POST : TD_SIGNED_PUT, hex, "") &&
              (!in_parts || add_parts(batch, hex, size_bytes));
    td_document_end(&batch->json);
    td_document_end(&batch->json);
    return ok;
}

/* Returns whether so many bytes more would pass --publish-max-bytes. */
static bool is_too_much(struct td_publish *publish, uint64_t more)
{
    struct td_publish_status status;
    td_publish_get_status(publish, &status);
    return status.max_bytes > 0 &&
           (status.used_bytes > status.max_bytes || more > status.max_bytes - status.used_bytes);
}

/* Adds what the client has to do for a blob. */
static bool add_object(struct batch *batch, const char *oid, uint64_t size_bytes)
{
    uint8_t sha256[TD_SHA256_BYTES];
    struct td_publish_blob blob;
    struct td_error err = TD_ERROR_INIT;
    struct td_document *json = &batch->json;
    struct td_publish *publish = batch->write->hub.call->api->publish;
    bool ok = true;
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "oid", oid);
    td_document_add_u64(json, "size", size_bytes);
    td_document_add_bool(json, "authenticated", true); /* no token is needed at href */
    bool is_good = td_hex_read_bytes(td_text_of(oid), sha256, sizeof sha256);
    bool is_here = is_good && td_publish_find_blob(publish, &batch->write->name, sha256, &blob, &err);
    bool is_complete = is_here && blob.is_complete;
    if (!is_good)
        add_error(json, 422, "an oid is 64 lower-case hexadecimal digits");
    else if (!is_here && err.code != TD_NOT_FOUND)
        add_error(json, 500, err.message);
    else if (is_here && blob.size_bytes != size_bytes)
        add_error(json, 422, "an object with this oid and another size is here");
    else if (size_bytes > INT64_MAX)
        add_error(json, 422, "no file has so many bytes");
    else if (!is_here && is_too_much(publish, size_bytes))
        add_error(json, 507, "there is no room for it (--publish-max-bytes)");
    else if (!is_complete)
        ok = add_action(batch, oid, size_bytes);
    if (is_here)
        td_publish_blob_fini(&blob);
    td_document_end(json);
    return ok;
}

/* Reads the size of an object. Returns false after it answered. */
static bool read_size(struct batch *batch, const cJSON *object, uint64_t *size_bytes)
{
    const cJSON *size = cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, "size") : NULL;
    if (size == NULL)
        return td_hub_fail(&batch->write->hub, 400, NULL, "an object has \"oid\" and \"size\"");
    return td_json_document_u64(&batch->body->document, size, size_bytes) ||
           td_hub_write_refuse(batch->write, batch->body);
}

/* Sets *offers to whether the client can send parts. Returns false after it answered. */
static bool read_transfers(struct batch *batch, bool *offers)
{
    const cJSON *transfers = cJSON_GetObjectItemCaseSensitive(batch->body->root, "transfers");
    *offers = false;
    if (!cJSON_IsArray(transfers))
        return true;
    for (const cJSON *transfer = transfers->child; transfer != NULL; transfer = transfer->next) {
        if (!td_json_item_is_string(transfer))
            continue;
        const char *text = td_json_document_string(&batch->body->document, transfer);
        if (text == NULL)
            return td_hub_write_refuse(batch->write, batch->body);
        *offers = *offers || strcmp(text, "multipart") == 0;
    }
    return true;
}

/* Counts the objects, and sets in_parts to whether one is large and the client can send parts. Git LFS wants one
 * transfer for all. Returns false after it answered. */
static bool choose_transfer(struct batch *batch)
{
    bool offers;
    size_t count = 0;
    uint64_t size_bytes = 0;
    if (!read_transfers(batch, &offers))
        return false;
    for (const cJSON *object = batch->objects->child; object != NULL; object = object->next) {
        if (count++ == BATCH_OBJECTS)
            return td_hub_fail(&batch->write->hub, 413, NULL, "a request may name at most %d objects", BATCH_OBJECTS);
        if (!read_size(batch, object, &size_bytes))
            return false;
        batch->in_parts = batch->in_parts || (offers && size_bytes > WHOLE_BYTES);
    }
    return true;
}

static bool add_objects(struct batch *batch)
{
    uint64_t size_bytes = 0;
    struct td_document *json = &batch->json;
    td_document_begin_object(json, NULL);
    td_document_add_string(json, "transfer", batch->in_parts ? "multipart" : "basic");
    td_document_add_string(json, "hash_algo", "sha256");
    td_document_begin_array(json, "objects");
    for (const cJSON *object = batch->objects->child; object != NULL; object = object->next) {
        if (!read_size(batch, object, &size_bytes))
            return false;
        const char *oid = td_hub_write_string(batch->write, batch->body, object, "oid", "");
        if (oid == NULL || !add_object(batch, oid, size_bytes))
            return false;
    }
    td_document_end(json);
    td_document_end(json);
    return true;
}

static void answer_batch(struct batch *batch)
{
    struct td_buffer out;
    struct td_response *response = batch->write->hub.call->response;
    for (unsigned i = 0; i < MOST_PARTS; i++)
        (void)snprintf(batch->numbers[i], sizeof batch->numbers[i], "%u", (i + 1) % 1000);
    td_buffer_init(&out);
    td_document_init(&batch->json, &out);
    bool ok = add_objects(batch);
    if (ok)
        td_hub_write_answer(batch->write, &out);
    if (ok && response->status == 200)
        response->content_type = "application/vnd.git-lfs+json";
    td_buffer_fini(&out);
}

void td_hub_lfs_batch(struct td_hub_write *write)
{
    struct td_hub_body body;
    struct batch batch = {.write = write, .body = &body};
    if (!td_hub_write_begin(write) || !td_hub_write_read(write, &body))
        return;
    const char *operation = td_hub_write_string(write, &body, body.root, "operation", "");
    if (operation == NULL)
        return;
    if (strcmp(operation, "upload") != 0) {
        (void)td_hub_fail(&write->hub, 422, NULL, "only uploads go through this; files are read at /{id}/resolve");
        return;
    }
    if (!td_hub_write_has_repo(write))
        return;
    batch.objects = cJSON_GetObjectItemCaseSensitive(body.root, "objects");
    if (!cJSON_IsArray(batch.objects))
        (void)td_hub_fail(&write->hub, 400, NULL, "\"objects\" is an array");
    else if (choose_transfer(&batch))
        answer_batch(&batch);
}
