#include "api/handlers.h"

#include "core/buffer.h"
#include "storage/strided.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

_Static_assert((int)TD_STRIDED_MAX_RANK >= (int)TD_MAX_RANK && (int)TD_TILED_MAX_RANK >= (int)TD_MAX_RANK,
               "every tensor that parses can be gathered");

static const char octets[] = "application/octet-stream";

static bool map_file(const struct td_call *call, struct td_file *file, struct td_blob **blob,
                     struct td_error *err)
{
    return td_file_source_map(td_catalog_maps(call->api->catalog), call->snapshot->root, &file->source, blob,
                              err);
}

/* Makes [off, off+len) of the file the body. False: an error was answered. */
static bool set_file_bytes(const struct td_call *call, struct td_file *file, uint64_t off, uint64_t len)
{
    struct td_blob *blob = NULL;
    struct td_error err;
    td_error_init(&err);
    bool ok =
        map_file(call, file, &blob, &err) && td_body_append(&call->response->body, blob, off, len, &err);
    td_blob_unref(blob);
    if (!ok)
        td_response_fail_error(call->response, &err);
    return ok;
}

/* A tensor in logical order that lies in another. */
static bool map_strided(const struct td_call *call, struct td_file *file, const struct td_tensor *tensor,
                        struct td_blob **out, struct td_error *err)
{
    struct td_blob *source = NULL;
    bool ok = map_file(call, file, &source, err) &&
              td_blob_strided(source, tensor->offset, tensor->dtype->block_bytes, tensor->rank, tensor->shape,
                              tensor->strides, out, err);
    td_blob_unref(source);
    return ok;
}

/* A tensor whose boxes lie in several files. */
static bool map_pieces(const struct td_call *call, const struct td_checkpoint *checkpoint,
                       const struct td_tensor *tensor, struct td_blob **out, struct td_error *err)
{
    struct td_grid *grid = td_checkpoint_grid(checkpoint, tensor);
    size_t count;
    const uint32_t *parts = td_grid_parts(grid, &count);
    struct td_blob **sources = calloc(count, sizeof *sources);
    bool ok = sources != NULL || td_error_no_memory(err);
    for (size_t i = 0; ok && i < count; i++)
        ok = map_file(call, checkpoint->parts[parts[i]]->file, &sources[i], err);
    ok = ok && td_blob_tiled(grid, sources, out, err);
    for (size_t i = 0; sources != NULL && i < count; i++)
        td_blob_unref(sources[i]);
    free(sources);
    return ok;
}

static bool set_tensor_bytes(const struct td_call *call, const struct td_checkpoint *checkpoint,
                             struct td_tensor_ref ref)
{
    const struct td_tensor *tensor = ref.tensor;
    struct td_file *file = checkpoint->parts[ref.part]->file;
    if (tensor->strides == NULL && tensor->piece_count == 0)
        return set_file_bytes(call, file, tensor->offset, tensor->nbytes);
    struct td_blob *blob = NULL;
    struct td_error err;
    td_error_init(&err);
    bool ok = (tensor->piece_count > 0 ? map_pieces(call, checkpoint, tensor, &blob, &err)
                                       : map_strided(call, file, tensor, &blob, &err)) &&
              td_body_append(&call->response->body, blob, 0, tensor->nbytes, &err);
    td_blob_unref(blob);
    if (!ok)
        td_response_fail_error(call->response, &err);
    return ok;
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ p[i]) * UINT64_C(1099511628211); /* FNV-1a */
    return hash;
}

/* A file's tag and the place in it say which bytes these are; another order of them is another representation, and of a
 * tensor in several files the checkpoint's tag covers all. */
static void set_tensor_etag(struct td_response *response, const struct td_checkpoint *checkpoint,
                            struct td_tensor_ref ref)
{
    const struct td_tensor *tensor = ref.tensor;
    uint64_t hash = UINT64_C(14695981039346656037);
    if (tensor->piece_count > 0) {
        hash = mix(hash, tensor->name, tensor->name_len);
        td_response_set_etag(response, "%s-%" PRIx64, checkpoint->tag, hash);
        return;
    }
    const char *tag = checkpoint->parts[ref.part]->file->tag;
    if (tensor->strides == NULL) {
        td_response_set_etag(response, "%s-%" PRIx64 "-%" PRIx64, tag, tensor->offset, tensor->nbytes);
        return;
    }
    hash = mix(hash, tensor->shape, tensor->rank * sizeof *tensor->shape);
    hash = mix(hash, tensor->strides, tensor->rank * sizeof *tensor->strides);
    td_response_set_etag(response, "%s-%" PRIx64 "-%" PRIx64 "-%" PRIx64, tag, tensor->offset, tensor->nbytes,
                         hash);
}

void td_handle_tensor(const struct td_call *call)
{
    static const char *const known[] = {"checkpoint", NULL};
    struct td_response *response = call->response;
    if (!td_call_check_parameters(call, known))
        return;
    const struct td_checkpoint *checkpoint = td_call_checkpoint(call);
    if (checkpoint == NULL)
        return;
    struct td_tensor_ref ref;
    if (!td_checkpoint_find(checkpoint, call->rest.p, call->rest.len, &ref)) {
        td_response_fail(response, 404, NULL, "checkpoint \"%s\" of model \"%s\" has no tensor \"%.*s\"",
                         checkpoint->id, call->model->id, (int)(call->rest.len > 400 ? 400 : call->rest.len),
                         call->rest.p);
        return;
    }
    const struct td_tensor *tensor = ref.tensor;
    if (tensor->reason != NULL) {
        td_response_fail(response, 422, NULL, "the bytes of tensor \"%.400s\" cannot be served: %s",
                         tensor->name, tensor->reason);
        return;
    }
    if (!set_tensor_bytes(call, checkpoint, ref))
        return;
    struct td_buffer shape;
    td_buffer_init(&shape);
    td_manifest_write_shape(&shape, tensor);
    const char *text = td_buffer_terminate(&shape);
    if (text == NULL) {
        td_buffer_fini(&shape);
        td_call_no_memory(call);
        return;
    }
    td_response_add_header(response, "X-Tensor-Dtype", "%s", tensor->dtype->name);
    if (shape.len < TD_HEADER_VALUE_BYTES) /* dozens of dimensions: the manifest has them */
        td_response_add_header(response, "X-Tensor-Shape", "%s", text);
    td_buffer_fini(&shape);
    response->content_type = octets;
    response->cache_control = "no-cache";
    response->accept_ranges = true;
    set_tensor_etag(response, checkpoint, ref);
}

/* By extension; nothing that a browser would run as a page of ours. */
static const char *content_type_of(const char *path)
{
    static const struct {
        const char *extension, *type;
    } types[] = {
        {".json", "application/json"},          {".jsonl", "text/plain; charset=utf-8"},
        {".txt", "text/plain; charset=utf-8"},  {".md", "text/plain; charset=utf-8"},
        {".yaml", "text/plain; charset=utf-8"}, {".yml", "text/plain; charset=utf-8"},
        {".py", "text/plain; charset=utf-8"},   {".jinja", "text/plain; charset=utf-8"},
    };
    size_t len = strlen(path);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t n = strlen(types[i].extension);
        if (len > n && strcasecmp(path + len - n, types[i].extension) == 0)
            return types[i].type;
    }
    return octets;
}

void td_handle_file(const struct td_call *call)
{
    static const char *const known[] = {NULL};
    struct td_response *response = call->response;
    if (!td_call_check_parameters(call, known))
        return;
    const struct td_entry *entry =
        td_model_find_file(call->snapshot, call->model, call->rest.p, call->rest.len);
    if (entry == NULL) {
        td_response_fail(response, 404, NULL, "model \"%s\" has no file \"%.*s\"", call->model->id,
                         (int)(call->rest.len > 400 ? 400 : call->rest.len), call->rest.p);
        return;
    }
    const struct td_file_id *id = &entry->file->source.id;
    if (!set_file_bytes(call, entry->file, 0, id->size_bytes))
        return;
    response->content_type = content_type_of(entry->path);
    response->cache_control = "no-cache";
    response->accept_ranges = true;
    response->last_modified_s = id->mtime_ns >= 0 ? id->mtime_ns / 1000000000 : 0;
    td_response_add_header(response, "X-Content-Type-Options", "nosniff");
    td_response_set_etag(response, "%s", entry->file->tag);
}
