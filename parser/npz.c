#include "parser/npz.h"

#include "parser/npy.h"
#include "parser/zip/zip.h"
#include "parser/zip/zip_unpack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const struct td_input *input;
    const struct td_limits *limits;
    struct td_manifest *manifest;
    struct td_error *err;
    uint64_t header_bytes; /* of all arrays so far */
};

/* A member as an input of its own. A read of a deflated member unpacks it from its start each time, which is fast
 * enough for headers. */
struct member {
    const struct td_input *archive;
    const struct td_zip_entry *entry;
};

static bool member_read(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct member *member = context;
    if (!member->entry->deflated)
        return td_input_read(member->archive, member->entry->offset + off, out, len, err);
    size_t head = (size_t)off + len;
    uint8_t *bytes = malloc(head);
    if (bytes == NULL)
        return td_error_no_memory(err);
    bool ok = td_zip_load_head(member->archive, member->entry, bytes, head, err);
    if (ok)
        memcpy(out, bytes + off, len);
    free(bytes);
    return ok;
}

/* Reports an error of one member as an error of the archive. */
static bool member_error(const struct reader *r, const struct td_zip_entry *entry, const struct td_error *err)
{
    uint64_t pos = entry->offset;
    if (!entry->deflated && err->pos <= entry->stored_bytes)
        pos += err->pos;
    return td_error_at(r->err, err->code, pos, "npz member \"%.96s\": %.300s", entry->name, err->message);
}

static void set_name(struct td_tensor *tensor, const struct td_zip_entry *entry, struct td_arena *arena)
{
    static const char suffix[] = ".npy";
    uint32_t len = entry->name_len;
    tensor->name = entry->name;
    if (len >= sizeof suffix - 1 && memcmp(entry->name + len - (sizeof suffix - 1), suffix, sizeof suffix - 1) == 0) {
        len -= (uint32_t)sizeof suffix - 1;
        tensor->name = td_arena_strndup(arena, td_text_n(entry->name, len));
    }
    tensor->name_len = len;
}

static bool add_member(struct reader *r, const struct td_zip_entry *entry, struct td_error *err)
{
    struct td_manifest *manifest = r->manifest;
    struct member member = {.archive = r->input, .entry = entry};
    struct td_input input = {.size_bytes = entry->size_bytes, .read = member_read, .context = &member};
    bool is_npy;
    uint64_t header_bytes;
    if (!td_npy_probe(&input, &is_npy, err))
        return false;
    if (!is_npy)
        return true;
    struct td_tensor *tensor = &manifest->tensors[manifest->tensor_count];
    if (!td_npy_read(&input, r->limits, &manifest->arena, tensor, &header_bytes, err))
        return false;
    r->header_bytes += header_bytes;
    if (r->header_bytes > r->limits->max_header_bytes)
        return td_error_set(err, TD_RESOURCE_EXHAUSTED,
                            "the arrays' headers take more than the limit of %" PRIu64 " bytes",
                            r->limits->max_header_bytes);
    set_name(tensor, entry, &manifest->arena);
    if (tensor->name == NULL)
        return td_error_no_memory(err);
    if (!entry->deflated)
        tensor->offset += entry->offset;
    else if (!td_zip_set_coding(manifest, entry, &tensor->coding, &tensor->reason))
        return td_error_no_memory(err);
    manifest->tensor_count++;
    return true;
}

static bool npz_parse(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                      struct td_error *err)
{
    struct reader r = {.input = input, .limits = limits, .manifest = manifest, .err = err};
    struct td_zip zip;
    if (!td_zip_read(&zip, input, limits, &manifest->arena, err))
        return false;
    manifest->tensors = td_arena_array(&manifest->arena, zip.count, sizeof *manifest->tensors);
    if (manifest->tensors == NULL)
        return td_error_no_memory(err);
    for (size_t i = 0; i < zip.count; i++) {
        struct td_error member_err = TD_ERROR_INIT;
        if (!add_member(&r, &zip.entries[i], &member_err))
            return member_error(&r, &zip.entries[i], &member_err);
    }
    return td_manifest_finish(manifest, err);
}

static const char *const extensions[] = {".npz", NULL};

const struct td_format td_format_npz = {
    .name = "npz",
    .extensions = extensions,
    .parse = npz_parse,
};
