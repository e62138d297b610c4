#include "core/input.h"

#include "core/checked.h"

#include <inttypes.h>
#include <string.h>

bool td_input_read(const struct td_input *input, uint64_t off, void *out, size_t len, struct td_error *err)
{
    if (!td_range_within(off, len, input->size_bytes))
        return td_error_at(err, TD_INVALID_ARGUMENT, off,
                           "file ends at byte %" PRIu64 ", %zu bytes at %" PRIu64 " are missing",
                           input->size_bytes, len, off);
    if (len == 0)
        return true;
    return input->read(input->context, off, out, len, err);
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
