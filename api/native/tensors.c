/* The manifest of a checkpoint; one tensor or a part of it, as bare bytes or as a file of NumPy or safetensors. */
#include "api/call/checkpoint_choice.h"
#include "api/call/hash_wait.h"
#include "api/call/shown_model.h"
#include "api/call/tensor_text.h"
#include "api/native/listing.h"
#include "api/native/manifest_view.h"
#include "api/native/routes.h"
#include "catalog/checkpoints/partial_checkpoint.h"
#include "core/buffer.h"
#include "core/digest.h"
#include "core/digits.h"
#include "rank/file_answer.h"
#include "rank/npy_header.h"
#include "rank/tensor_source.h"
#include "slicing/plan/plan_items.h"

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

enum format { FORMAT_RAW, FORMAT_NPY, FORMAT_SAFETENSORS, FORMAT_COUNT };

static const char *const formats[FORMAT_COUNT + 1] = {"raw", "npy", "safetensors", NULL};

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
};

/* Returns the format of this name; FORMAT_COUNT after it answered 400. */
static enum format read_format(const struct td_call *call, struct td_text text)
{
    enum format format = FORMAT_RAW;
    while (format < FORMAT_COUNT && !td_text_equals(text, formats[format]))
        format++;
    if (format == FORMAT_COUNT)
        td_call_fail_known(call, 400, formats, "no format \"%.*s\"; the formats are raw, npy and safetensors",
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

/* Appends the part as a virtual file: with a header of safetensors or of NumPy, or bare. */
static bool append_part(const struct td_call *call, const struct td_checkpoint *checkpoint, const struct wanted *wanted,
                        struct td_error *err)
{
    static const struct td_rank_metadata metadata[] = {{"format", "pt"}};
    const struct td_tensor *tensor = wanted->ref.tensor;
    struct td_tensor_list tensors = td_checkpoint_tensors(checkpoint);
    struct td_budget *budget = &call->api->ranks.live;
    struct td_plan plan = {0};
    struct td_rank_file *file = NULL;
    struct td_buffer head;
    td_buffer_init(&head);
    bool ok =
        wanted->format != FORMAT_NPY || td_npy_write_header(&head, tensor->dtype, wanted->rank, wanted->shape, err);
    if (ok && head.len > 0) {
        size_t len;
        char *data = td_buffer_release(&head, &len);
        ok = td_body_append_heap(&call->response->body, data, len, err);
    }
    td_buffer_fini(&head);
    ok = ok && td_note_read(call->api->catalog, call->snapshot, call->model->id, call->response, err) &&
         td_plan_from_selection(&tensors, wanted->number, &wanted->selection, budget, &plan, err) &&
         td_rank_file_create(&plan, &tensors, metadata, 1, wanted->format == FORMAT_SAFETENSORS, budget, &file, err) &&
         td_rank_file_append(call->api->catalog, call->snapshot, checkpoint, file, call->request->cancel,
                             &call->response->body, err);
    td_plan_fini(&plan);
    td_rank_file_unref(file);
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

/* Answers that the checkpoint does not have the tensor that the path names. */
static void fail_absent(const struct td_call *call, const struct td_checkpoint *checkpoint)
{
    struct td_buffer absence;
    td_buffer_init(&absence);
    if (checkpoint->lacks != NULL)
        td_partial_write_absence(call->snapshot, checkpoint, call->rest, &absence);
    const char *text = absence.len > 0 ? td_buffer_terminate(&absence) : NULL;
    if (text != NULL)
        td_response_fail(call->response, 404, NULL, "%s", text);
    else
        td_response_fail(call->response, 404, NULL, "checkpoint \"%s\" of model \"%s\" has no tensor \"%.*s\"",
                         checkpoint->id, call->model->id, TD_SHOW(call->rest, 400));
    td_buffer_fini(&absence);
}

/* Finds the tensor that the path names. Returns false after it answered an error. */
static bool find_tensor(const struct td_call *call, const struct td_checkpoint *checkpoint, struct wanted *wanted)
{
    struct td_response *response = call->response;
    if (!td_checkpoint_find_number(checkpoint, call->rest, &wanted->number)) {
        fail_absent(call, checkpoint);
        return false;
    }
    wanted->ref = td_checkpoint_tensor(checkpoint, wanted->number);
    const struct td_tensor *tensor = wanted->ref.tensor;
    if (tensor->reason != NULL)
        td_response_fail(response, 422, NULL, "the bytes of tensor \"%.400s\" cannot be served: %s", tensor->name,
                         tensor->reason);
    return tensor->reason == NULL;
}

/* Adds X-Tensor-Dtype and X-Tensor-Shape of the bytes that are sent. */
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

void td_handle_tensor(const struct td_call *call)
{
    static const char *const known[] = {"checkpoint", "partial", "slice", "shard", "format", NULL};
    struct td_response *response = call->response;
    struct wanted wanted = {.format = FORMAT_RAW};
    struct td_error err = TD_ERROR_INIT;
    const struct td_text *format = td_uri_parameter(call->uri, "format");
    const struct td_checkpoint *checkpoint = NULL;
    if (!td_call_check_parameters(call, known) || (checkpoint = td_checkpoint_parameter_or_part(call)) == NULL ||
        (format != NULL && (wanted.format = read_format(call, *format)) == FORMAT_COUNT) ||
        !find_tensor(call, checkpoint, &wanted))
        return;
    bool ok = read_selection(call, &wanted, &err) &&
              (wanted.part || wanted.format != FORMAT_RAW ? append_part(call, checkpoint, &wanted, &err)
                                                          : append_whole(call, checkpoint, &wanted, &err));
    if (!ok)
        td_response_fail_error(response, &err);
    if (!ok || !add_tensor_headers(call, &wanted))
        return;
    td_response_describe(response, "application/octet-stream");
    set_tensor_etag(response, checkpoint, &wanted);
}
