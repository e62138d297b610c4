#include "core/input.h"

#include "core/checked.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool check_range(const struct td_input *input, uint64_t off, uint64_t len, struct td_error *err)
{
    return td_range_within(off, len, input->size_bytes) ||
           td_error_at(err, TD_INVALID_ARGUMENT, off,
                       "file ends at byte %" PRIu64 ", %" PRIu64 " bytes at %" PRIu64 " are missing", input->size_bytes,
                       len, off);
}

bool td_input_read(const struct td_input *input, uint64_t off, void *out, size_t len, struct td_error *err)
{
    return check_range(input, off, len, err) && (len == 0 || input->read(input->context, off, out, len, err));
}

static bool memory_read(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    (void)err;
    memcpy(out, (const uint8_t *)context + off, len);
    return true;
}

struct td_input td_input_memory(const void *bytes, size_t len)
{
    return (struct td_input){.size_bytes = len, .read = memory_read, .context = bytes};
}

static bool window_read(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct td_window *window = context;
    return td_input_read(window->outer, window->off + off, out, len, err);
}

bool td_input_window(const struct td_input *outer, uint64_t off, uint64_t len, struct td_window *window,
                     struct td_input *input, struct td_error *err)
{
    if (!td_range_within(off, len, outer->size_bytes))
        return td_error_at(err, TD_INVALID_ARGUMENT, off,
                           "%" PRIu64 " bytes at %" PRIu64 " leave the file, which ends at byte %" PRIu64, len, off,
                           outer->size_bytes);
    *window = (struct td_window){.outer = outer, .off = off};
    *input = (struct td_input){.size_bytes = len, .read = window_read, .context = window};
    return true;
}

uint8_t *td_input_load(const struct td_input *input, uint64_t off, uint64_t len, uint64_t limit_bytes,
                       struct td_error *err)
{
    if (!check_range(input, off, len, err))
        return NULL;
    if (len > limit_bytes || len >= SIZE_MAX) {
        (void)td_error_at(err, TD_RESOURCE_EXHAUSTED, off,
                          "%" PRIu64 " bytes would have to be read into memory, more than the limit of %" PRIu64, len,
                          limit_bytes);
        return NULL;
    }
    uint8_t *bytes = malloc((size_t)len + 1);
    if (bytes == NULL) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    if (!td_input_read(input, off, bytes, (size_t)len, err)) {
        free(bytes);
        return NULL;
    }
    return bytes;
}
