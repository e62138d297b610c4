/* The manifest of a checkpoint; one tensor or a part of it, as bare bytes, as a file of NumPy or safetensors, or as
 * statistics. */
#include "api/call/checkpoint_choice.h"
#include "api/call/hash_wait.h"
#include "api/call/shown_model.h"
#include "api/call/tensor_text.h"
#include "api/native/listing.h"
#include "api/native/manifest_view.h"
#include "api/native/routes.h"
#include "core/buffer.h"
#include "core/digest.h"
#include "core/digits.h"
#include "core/json/json.h"
#include "core/message/document.h"
#include "rank/file_answer.h"
#include "rank/npy_header.h"
#include "rank/tensor_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the manifest -------------------------------------------------------------------------------------- */

/* Sets the entity tag: a digest of the checkpoint's tag and of the parameters that select a part of the manifest. */
static void manifest_etag(const struct td_call *call, const struct td_checkpoint *checkpoint)
{
    char tag[TD_TAG_BYTES];
    char state[TD_TAG_BYTES];
    if (!td_shown_model_tag(call, checkpoint->tag, state))
        return;
    bool is_default = td_model_is_default_checkpoint(call->model, checkpoint);
    struct td_digest *digest = td_digest_create();
    td_digest_add_cstring(digest, state);
    td_digest_add_cstring(digest, is_default ? "default" : "");
    for (size_t i = 0; i < call->uri->parameter_count; i++) {
        const struct td_parameter *parameter = &call->uri->parameters[i];
        if (td_text_equals(parameter->name, "checkpoint") || td_text_equals(parameter->name, "version"))
            continue;
        td_digest_add(digest, parameter->name.p, parameter->name.len);
        td_digest_add(digest, parameter->value.p, parameter->value.len);
    }
    if (td_digest_finish(digest, tag))
        td_response_set_etag(call->response, tag);
    else
        (void)td_call_no_memory(call);
}

/* Answers the manifest, or its page, that the query describes; with_digests: each row has its tensor's digest. */
static void answer_manifest(const struct td_call *call, const struct td_checkpoint *checkpoint,
                            const struct td_manifest_query *query, bool with_digests)
{
    struct td_manifest_query shown = *query;
    struct td_error err = TD_ERROR_INIT;
    struct td_tensor_sums sums;
    struct td_tensor_sums *const sets[] = {&sums};
    struct td_blob *blob = NULL;
    td_digests_init(call, &sums, call->model, checkpoint, NULL);
    if (with_digests && !td_manifest_view_collect(query, &sums, &err)) {
        td_response_fail_error(call->response, &err);
    } else if (!with_digests || td_digests_wait(call, sets, 1)) {
        shown.sums = with_digests ? &sums : NULL;
        if (td_manifest_view_create(&call->api->manifests, call->snapshot, call->model, checkpoint, &shown, &blob,
                                    &err) &&
            td_body_append(&call->response->body, blob, 0, blob->len_bytes, &err)) {
            call->response->has_document = true;
            td_response_describe(call->response, "application/json");
            manifest_etag(call, checkpoint);
        } else {
            td_response_fail_error(call->response, &err);
        }
    }
    td_blob_unref(blob);
    td_tensor_sums_fini(&sums);
}

void td_handle_manifest(const struct td_call *call)
{
    static const char *const known[] = {"checkpoint", "partial",    "match",   "dtype",
                                        "page_size",  "page_token", "digests", NULL};
    struct td_manifest_query query = {.match = td_uri_parameter(call->uri, "match"),
                                      .kind = call->kind,
                                      .shown = td_shown_model_of(call, call->model)};
    const struct td_text *filters[] = {query.match, td_uri_parameter(call->uri, "dtype"),
                                       td_uri_parameter(call->uri, "checkpoint"),
                                       td_uri_parameter(call->uri, "partial")};
    struct td_buffer name;
    struct td_buffer after;
    bool with_digests = false;
    td_buffer_init(&name);
    td_buffer_init(&after);
    const struct td_checkpoint *checkpoint = NULL;
    bool ok = td_call_check_parameters(call, known) && (checkpoint = td_checkpoint_parameter_or_part(call)) != NULL &&
              td_digests_parameter(call, &with_digests) && td_dtype_parameter(call, &query.dtype) &&
              td_listing_page_size(call, &query.page_size) &&
              td_listing_name(call, &name, "tensors", call->model->id, filters, 4);
    query.listing = td_buffer_text(&name);
    if (ok && td_listing_page_token(call, query.listing, &after, &query.page_first)) {
        query.after = td_buffer_text(&after);
        answer_manifest(call, checkpoint, &query, with_digests);
    }
    td_buffer_fini(&name);
    td_buffer_fini(&after);
}

/* ---- one tensor ---------------------------------------------------------------------------------------- */

enum { SHAPE_HEADER_BYTES = 127 };

enum format { FORMAT_RAW, FORMAT_NPY, FORMAT_SAFETENSORS, FORMAT_STATS, FORMAT_COUNT };

static const char *const formats[FORMAT_COUNT + 1] = {"raw", "npy", "safetensors", "stats", NULL};

/* The requested part of a tensor and its output format. */
struct wanted {
    struct td_tensor_ref ref;
    size_t number; /* of the tensor */
    bool part;     /* a selection was given */
    struct td_selection selection;
    uint32_t rank; /* of what is sent */
    uint64_t shape[TD_MAX_RANK];
    uint64_t nbytes;
    enum format format;
    uint64_t bins; /* of the histogram of FORMAT_STATS */
};

/* Returns the format of this name; FORMAT_COUNT after it answered 400. */
static enum format read_format(const struct td_call *call, struct td_text text)
{
    enum format format = FORMAT_RAW;
    while (format < FORMAT_COUNT && !td_text_equals(text, formats[format]))
        format++;
    if (format == FORMAT_COUNT)
        td_call_fail_known(call, 400, formats, "no format \"%.*s\"; the formats are raw, npy, safetensors and stats",
                           TD_SHOW(text, 64));
    return format;
}

/* Reads ?slice= and ?shard=. */
static bool read_selection(const struct td_call *call, struct wanted *wanted, struct td_error *err)
{
    const struct td_text *slice = td_uri_parameter(call->uri, "slice");
    const struct td_text *shard = td_uri_parameter(call->uri, "shard");
    const struct td_tensor *tensor = wanted->ref.tensor;
    wanted->part = slice != NULL || shard != NULL;
    td_selection_all(tensor->rank, tensor->shape, &wanted->selection);
    if (slice != NULL && shard != NULL)
        return td_error_set(err, TD_INVALID_ARGUMENT, "slice and shard exclude each other");
    if (slice != NULL && !td_slice_parse(*slice, tensor->rank, tensor->shape, &wanted->selection, err))
        return false;
    if (shard != NULL && !td_shard_parse(*shard, tensor->rank, tensor->shape, &wanted->selection, err))
        return false;
    wanted->rank = td_selection_shape(&wanted->selection, wanted->shape);
    return td_selection_nbytes(&wanted->selection, tensor->shape, tensor->dtype, &wanted->nbytes, err);
}

/* Returns the part as rank/ reads it; borrows `wanted`. */
static struct td_tensor_slice slice_of(const struct td_call *call, const struct td_checkpoint *checkpoint,
                                       const struct wanted *wanted)
{
    return (struct td_tensor_slice){.catalog = call->api->catalog,
                                    .snapshot = call->snapshot,
                                    .checkpoint = checkpoint,
                                    .number = wanted->number,
                                    .selection = &wanted->selection,
                                    .budget = &call->api->ranks.live,
                                    .cancel = call->request->cancel};
}

/* Appends the part as a virtual file: with a header of safetensors or of NumPy, or bare. */
static bool append_part(const struct td_call *call, const struct td_checkpoint *checkpoint, const struct wanted *wanted,
                        struct td_error *err)
{
    const struct td_dtype *dtype = wanted->ref.tensor->dtype;
    const struct td_tensor_slice slice = slice_of(call, checkpoint, wanted);
    struct td_body *body = &call->response->body;
    struct td_blob *blob = NULL;
    struct td_buffer head;
    td_buffer_init(&head);
    bool ok = wanted->format != FORMAT_NPY || td_npy_write_header(&head, dtype, wanted->rank, wanted->shape, err);
    if (ok && head.len > 0) {
        size_t len;
        char *data = td_buffer_release(&head, &len);
        ok = td_body_append_heap(body, data, len, err);
    }
    td_buffer_fini(&head);
    ok = ok && td_note_read(call->api->catalog, call->snapshot, call->model->id, call->response, err) &&
         td_tensor_slice_open(&slice, wanted->format == FORMAT_SAFETENSORS, &blob, err) &&
         td_body_append(body, blob, 0, blob->len_bytes, err);
    td_blob_unref(blob);
    return ok;
}

/* Appends the whole tensor as bare bytes. */
static bool append_whole(const struct td_call *call, const struct td_checkpoint *checkpoint,
                         const struct wanted *wanted, struct td_error *err)
{
    struct td_blob *blob = NULL;
    uint64_t base = 0;
    bool ok = td_note_read(call->api->catalog, call->snapshot, call->model->id, call->response, err) &&
              td_tensor_open(call->api->catalog, call->snapshot, checkpoint, wanted->ref, call->request->cancel, &blob,
                             &base, err) &&
              td_body_append(&call->response->body, blob, base, wanted->nbytes, err);
    td_blob_unref(blob);
    return ok;
}

/* ---- statistics ---------------------------------------------------------------------------------------- */

/* Reads ?bins=. Returns false after it answered 400. */
static bool read_bins(const struct td_call *call, struct wanted *wanted)
{
    wanted->bins = TD_STATS_BINS;
    if (td_uri_parameter(call->uri, "bins") == NULL)
        return true;
    if (wanted->format != FORMAT_STATS)
        td_response_fail(call->response, 400, NULL, "bins is for format=stats alone");
    else if (td_call_read_number(call, "bins", TD_STATS_MOST_BINS, &wanted->bins) && wanted->bins == 0)
        td_response_fail(call->response, 400, NULL, "bins is 0; a histogram has 1 to %d bins", TD_STATS_MOST_BINS);
    return call->response->status == 200;
}

/* Adds a number that reads back as the same double; a value that is not finite as a string. */
static void add_real(struct td_document *json, const char *key, double value)
{
    struct td_buffer text;
    td_buffer_init(&text);
    td_json_write_real(&text, value, false);
    json->out->failed = json->out->failed || text.failed;
    td_document_add_raw(json, key, td_buffer_text(&text));
    td_buffer_fini(&text);
}

/* Adds a number that exists only if an element is finite; else null. */
static void add_finite(struct td_document *json, const char *key, const struct td_tensor_stats *stats, double value)
{
    if (stats->summary.finite > 0)
        add_real(json, key, value);
    else
        td_document_add_null(json, key);
}

static void add_sample(struct td_document *json, const struct td_tensor_stats *stats)
{
    const struct td_summary *summary = &stats->summary;
    td_document_add_u64(json, "elements", stats->elements);
    td_document_add_u64(json, "sampled", stats->sampled);
    td_document_add_string(json, "sample", stats->sampled == stats->elements ? "all" : "runs");
    add_finite(json, "min", stats, summary->min);
    add_finite(json, "max", stats, summary->max);
    add_finite(json, "mean", stats, summary->mean);
    add_finite(json, "std", stats, summary->std);
    td_document_add_u64(json, "zeros", summary->zeros);
    td_document_add_u64(json, "nans", summary->nans);
    td_document_add_u64(json, "infinities", summary->infinities);
}

static void add_histogram(struct td_document *json, const struct td_tensor_stats *stats)
{
    td_document_begin_object(json, "histogram");
    add_finite(json, "low", stats, stats->summary.min);
    add_finite(json, "high", stats, stats->summary.max);
    td_document_begin_array(json, "counts");
    for (uint32_t i = 0; i < stats->bin_count; i++)
        td_document_add_u64(json, NULL, stats->counts[i]);
    td_document_end(json);
    td_document_end(json);
}

static void add_heat_map(struct td_document *json, const struct td_tensor_stats *stats)
{
    if (stats->map_rows == 0) {
        td_document_add_null(json, "heatmap");
        return;
    }
    td_document_begin_object(json, "heatmap");
    td_document_add_u64(json, "rows", stats->map_rows);
    td_document_add_u64(json, "columns", stats->map_columns);
    td_document_begin_array(json, "values");
    for (uint32_t i = 0; i < stats->map_rows * stats->map_columns; i++)
        if (isnan(stats->map[i]))
            td_document_add_null(json, NULL);
        else
            add_real(json, NULL, stats->map[i]);
    td_document_end(json);
    td_document_end(json);
}

static void write_stats(struct td_buffer *out, const struct td_tensor *tensor, const struct td_tensor_stats *stats)
{
    struct td_document json;
    td_document_init(&json, out);
    td_document_begin_object(&json, NULL);
    td_tensor_add_facts(&json, &(struct td_tensor_facts){.name = td_tensor_name(tensor),
                                                         .dtype = stats->dtype,
                                                         .shape = stats->shape,
                                                         .rank = stats->rank,
                                                         .nbytes = stats->nbytes});
    add_sample(&json, stats);
    add_histogram(&json, stats);
    add_heat_map(&json, stats);
    td_document_begin_array(&json, "first");
    for (uint32_t i = 0; i < stats->first_count; i++)
        add_real(&json, NULL, stats->first[i]);
    td_document_end(&json);
    td_document_end(&json);
    td_buffer_putc(out, '\n');
}

/* Appends the statistics of the part as JSON. */
static bool append_stats(const struct td_call *call, const struct td_checkpoint *checkpoint,
                         const struct wanted *wanted, struct td_error *err)
{
    const struct td_tensor_slice slice = slice_of(call, checkpoint, wanted);
    if (!td_note_read(call->api->catalog, call->snapshot, call->model->id, call->response, err))
        return false;
    struct td_tensor_stats *stats = td_tensor_stats_create(&slice, (uint32_t)wanted->bins, err);
    if (stats == NULL)
        return false;
    struct td_buffer json;
    size_t len;
    td_buffer_init(&json);
    write_stats(&json, wanted->ref.tensor, stats);
    free(stats);
    char *text = td_buffer_release(&json, &len);
    td_buffer_fini(&json);
    return text == NULL ? td_error_no_memory(err) : td_body_append_heap(&call->response->body, text, len, err);
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

/* Finds the tensor that the path names. Returns false after it answered an error. */
static bool find_tensor(const struct td_call *call, const struct td_checkpoint *checkpoint, struct wanted *wanted)
{
    struct td_response *response = call->response;
    if (!td_tensor_find_in_path(checkpoint, call->rest, &wanted->number)) {
        td_call_fail_tensor(call, checkpoint);
        return false;
    }
    wanted->ref = td_checkpoint_tensor(checkpoint, wanted->number);
    const struct td_tensor *tensor = wanted->ref.tensor;
    if (tensor->reason != NULL)
        td_response_fail(response, 422, NULL, "the bytes of tensor \"%.400s\" cannot be served: %s", tensor->name,
                         tensor->reason);
    return tensor->reason == NULL;
}

/* Adds X-Tensor-Dtype and X-Tensor-Shape of the part that is answered. */
static bool add_tensor_headers(const struct td_call *call, const struct wanted *wanted)
{
    struct td_tensor sent = {.rank = wanted->rank, .shape = wanted->shape};
    struct td_buffer shape;
    td_buffer_init(&shape);
    td_tensor_write_shape(&shape, &sent);
    if (shape.failed) {
        td_buffer_fini(&shape);
        return td_call_no_memory(call);
    }
    td_response_add_header_text(call->response, "X-Tensor-Dtype", td_text_of(wanted->ref.tensor->dtype->name));
    if (shape.len <= SHAPE_HEADER_BYTES) /* a longer shape, of dozens of dimensions, is in the manifest alone */
        td_response_add_header_text(call->response, "X-Tensor-Shape", td_buffer_text(&shape));
    td_buffer_fini(&shape);
    return true;
}

static uint64_t mix_hash(uint64_t hash, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ p[i]) * UINT64_C(1099511628211); /* FNV-1a */
    return hash;
}

/* Returns a hash of the part and the format. Another order of the bytes, or a part of them, is another representation.
 */
static uint64_t hash_of_wanted(const struct wanted *wanted)
{
    const struct td_tensor *tensor = wanted->ref.tensor;
    const struct td_selection *part = &wanted->selection;
    uint64_t hash = UINT64_C(14695981039346656037);
    if (tensor->piece_count > 0)
        hash = mix_hash(hash, tensor->name, tensor->name_len);
    if (tensor->coding != NULL)
        hash = mix_hash(hash, &tensor->coding->number, sizeof tensor->coding->number);
    if (tensor->big_endian) {
        hash = mix_hash(hash, "big-endian", strlen("big-endian"));
        hash = mix_hash(hash, tensor->dtype->name, strlen(tensor->dtype->name));
    }
    if (tensor->strides != NULL) {
        hash = mix_hash(hash, tensor->shape, tensor->rank * sizeof *tensor->shape);
        hash = mix_hash(hash, tensor->strides, tensor->rank * sizeof *tensor->strides);
    }
    if (wanted->part || wanted->format != FORMAT_RAW) {
        hash = mix_hash(hash, tensor->name, tensor->name_len); /* a safetensors header holds the name */
        hash = mix_hash(hash, tensor->shape, tensor->rank * sizeof *tensor->shape);
        hash = mix_hash(hash, part->starts, tensor->rank * sizeof *part->starts);
        hash = mix_hash(hash, part->sizes, tensor->rank * sizeof *part->sizes);
        hash = mix_hash(hash, &part->dropped, sizeof part->dropped);
        hash = mix_hash(hash, tensor->dtype->name, strlen(tensor->dtype->name));
        hash = mix_hash(hash, formats[wanted->format], strlen(formats[wanted->format]));
    }
    if (wanted->format == FORMAT_STATS) {
        hash = mix_hash(hash, &wanted->bins, sizeof wanted->bins);
        hash = mix_hash(hash, TD_VERSION, strlen(TD_VERSION)); /* another version may compute or write them otherwise */
    }
    return hash;
}

/* Appends a number to a tag. Returns the end. */
static char *append_number(char *end, uint64_t number)
{
    *end++ = '-';
    return end + td_hex_write_number(number, end);
}

/* Writes the file's tag and the place in the file; for a tensor in several files the checkpoint's tag, which covers all
 * files. */
static void write_tensor_tag(const struct wanted *wanted, const char *tag, char out[TD_ETAG_BYTES])
{
    enum { TAG_DIGITS = 32 }; /* of a tag, or the first of a SHA-256 */
    _Static_assert(TAG_DIGITS + 3 * (1 + TD_HEX_NUMBER_BYTES) < TD_ETAG_BYTES, "a tag and three numbers fit");
    const struct td_tensor *tensor = wanted->ref.tensor;
    bool is_plain = td_tensor_access(tensor) == TD_ACCESS_DIRECT && !wanted->part && wanted->format == FORMAT_RAW;
    size_t len = strnlen(tag, TAG_DIGITS);
    memcpy(out, tag, len);
    char *end = out + len;
    if (is_plain || tensor->piece_count == 0) {
        end = append_number(end, tensor->offset);
        end = append_number(end, tensor->nbytes);
    }
    if (!is_plain)
        end = append_number(end, hash_of_wanted(wanted));
    *end = '\0';
}

static void set_tensor_etag(struct td_response *response, const struct td_checkpoint *checkpoint,
                            const struct wanted *wanted)
{
    const struct td_file *file = checkpoint->parts[wanted->ref.part]->file;
    bool joined = wanted->ref.tensor->piece_count > 0;
    char tag[TD_ETAG_BYTES];
    write_tensor_tag(wanted, joined ? checkpoint->tag : td_file_tag(file), tag);
    td_response_set_etag(response, tag);
    write_tensor_tag(wanted, joined ? checkpoint->former_tag : file->identity_tag, tag);
    td_response_set_former_etag(response, tag);
}

/* Fills the response with the part in the wanted format. Returns false after it answered an error. */
static bool answer_wanted(const struct td_call *call, const struct td_checkpoint *checkpoint, struct wanted *wanted)
{
    struct td_response *response = call->response;
    struct td_error err = TD_ERROR_INIT;
    bool is_stats = wanted->format == FORMAT_STATS;
    bool ok = read_selection(call, wanted, &err) &&
              (is_stats                                       ? append_stats(call, checkpoint, wanted, &err)
               : wanted->part || wanted->format != FORMAT_RAW ? append_part(call, checkpoint, wanted, &err)
                                                              : append_whole(call, checkpoint, wanted, &err));
    if (!ok)
        td_response_fail_error(response, &err);
    if (!ok || !add_tensor_headers(call, wanted))
        return false;
    td_response_describe_bytes(response, is_stats ? "application/json" : "application/octet-stream");
    return true;
}

void td_handle_tensor(const struct td_call *call)
{
    static const char *const known[] = {"checkpoint", "partial", "slice", "shard", "format", "bins", NULL};
    struct wanted wanted = {.format = FORMAT_RAW};
    const struct td_text *format = td_uri_parameter(call->uri, "format");
    const struct td_checkpoint *checkpoint = NULL;
    if (td_call_check_parameters(call, known) && (checkpoint = td_checkpoint_parameter_or_part(call)) != NULL &&
        (format == NULL || (wanted.format = read_format(call, *format)) != FORMAT_COUNT) && read_bins(call, &wanted) &&
        find_tensor(call, checkpoint, &wanted) && answer_wanted(call, checkpoint, &wanted))
        set_tensor_etag(call->response, checkpoint, &wanted);
}
