/* zlib's memory: ours, so that what it takes may fail like any other. */
#ifndef TD_STORAGE_INFLATE_MEMORY_H
#define TD_STORAGE_INFLATE_MEMORY_H

#include "core/checked.h"

#include <stdlib.h>
#include <zlib.h>

/* What zlib takes for one stream, with some room: a window of 32 KiB and its tables. */
enum { TD_INFLATE_STATE_BYTES = 48 * 1024 };

static inline voidpf td_inflate_alloc(voidpf opaque, uInt count, uInt size)
{
    size_t bytes;
    (void)opaque;
    return td_mul_size(count, size, &bytes) ? malloc(bytes) : NULL;
}

static inline void td_inflate_free(voidpf opaque, voidpf p)
{
    (void)opaque;
    free(p);
}

#endif
