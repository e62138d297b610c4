#include "parser/torch/torch_distcp.h"

#include "parser/torch/torch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* PKWARE APPNOTE 6.3.9, 4.3.14 to 4.3.16. PyTorch never writes a comment and always writes zip64 records. */
enum {
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
};

struct items {
    const struct td_input *input;
    const struct td_limits *limits;
    struct td_manifest *manifest;
    size_t capacity;
    struct td_error *err;
};

static bool refuse_item(const struct items *items, uint64_t at, const char *what)
{
    return td_error_at(items->err, TD_INVALID_ARGUMENT, at, "%s", what);
}

/* Sets *start to the start of the archive that ends at `end`. Archives follow one another without a mark between them,
 * so they are found from the end: the last record of each says how long its directory is and how far the directory is
 * from the archive's start. */
static bool find_start(const struct items *items, uint64_t end, uint64_t *start)
{
    uint8_t record[END_BYTES + LOCATOR_BYTES + END64_BYTES];
    size_t len = end < sizeof record ? (size_t)end : sizeof record;
    if (len < END_BYTES)
        return refuse_item(items, end, "an item ends here that is too short to be an archive of torch.save");
    if (!td_input_read(items->input, end - len, record + sizeof record - len, len, items->err))
        return false;
    const uint8_t *tail = record + sizeof record - END_BYTES;
    const uint8_t *locator = tail - LOCATOR_BYTES;
    const uint8_t *end64 = locator - END64_BYTES;
    if (td_load_le32(tail) != 0x06054b50)
        return refuse_item(items, end - END_BYTES, "no archive of torch.save ends where an item should");
    uint64_t directory_bytes = td_load_le32(tail + 12);
    uint64_t directory_offset = td_load_le32(tail + 16);
    uint64_t directory_end = end - END_BYTES;
    if (len == sizeof record && td_load_le32(locator) == 0x07064b50 && td_load_le32(end64) == 0x06064b50) {
        directory_bytes = td_load_le64(end64 + 40);
        directory_offset = td_load_le64(end64 + 48);
        directory_end = end - sizeof record;
    }
    if (directory_bytes > directory_end || directory_offset > directory_end - directory_bytes)
        return refuse_item(items, end - END_BYTES, "an archive's directory would start before the file");
    *start = directory_end - directory_bytes - directory_offset;
    return true;
}

size_t td_dcp_item_name(char out[TD_DCP_ITEM_NAME_MAX], uint64_t offset, uint64_t nbytes)
{
    return (size_t)snprintf(out, TD_DCP_ITEM_NAME_MAX, "@%" PRIu64 "+%" PRIu64, offset, nbytes);
}

static bool add_tensor(struct items *items, uint64_t start, uint64_t end, const struct td_tensor *found)
{
    char name[TD_DCP_ITEM_NAME_MAX];
    size_t name_len = td_dcp_item_name(name, start, end - start);
    struct td_tensor tensor = *found;
    if (tensor.reason == NULL) /* pieces can only be gathered from plain bytes */
        tensor.reason = td_tensor_stored(&tensor);
    tensor.coding = NULL;
    tensor.big_endian = false;
    const char *copy = td_arena_strndup(&items->manifest->arena, td_text_n(name, name_len));
    if (copy == NULL)
        return td_error_no_memory(items->err);
    return td_manifest_copy_tensor(items->manifest, &tensor, copy, NULL, start, &tensor, items->err) &&
           td_manifest_add_tensor(items->manifest, &tensor, &items->capacity, items->err) != NULL;
}

/* Reads one item: a tensor, or another object that a rank saved. Looks only at whether the item is a tensor, because a
 * file can hold very many items. */
static bool read_item(struct items *items, uint64_t start, uint64_t end)
{
    struct td_window window;
    struct td_input input;
    struct td_manifest found;
    if (!td_input_window(items->input, start, end - start, &window, &input, items->err))
        return false;
    td_manifest_init(&found, td_arena_left(&items->manifest->arena));
    struct td_limits limits = td_torch_inner_limits(items->limits, end - start, TD_TORCH_INNER_UNPACKED);
    bool ok = td_torch_parse_item(&input, &limits, &found, items->err);
    if (!ok)
        td_error_shift(items->err, start);
    if (ok && found.tensor_count == 1 && found.tensors[0].name_len == 0)
        ok = add_tensor(items, start, end, &found.tensors[0]);
    td_manifest_fini(&found);
    return ok;
}

static bool parse_distcp(const struct td_input *input, const struct td_limits *limits, struct td_manifest *manifest,
                         struct td_error *err)
{
    struct items items = {.input = input, .limits = limits, .manifest = manifest, .err = err};
    for (uint64_t end = input->size_bytes; end > 0;) {
        uint64_t start = 0;
        if (!find_start(&items, end, &start) || !read_item(&items, start, end))
            return false;
        end = start;
    }
    return td_manifest_finish(manifest, err);
}

static const char *const extensions[] = {".distcp", NULL};

const struct td_format td_format_distcp = {.name = "pytorch-distcp", .extensions = extensions, .parse = parse_distcp};
