/* Allocation functions for zlib (zalloc and zfree of z_stream): plain malloc and free, so that tests can make them
 * fail. */
#ifndef TD_CORE_INFLATE_MEMORY_H
#define TD_CORE_INFLATE_MEMORY_H

#include "core/checked.h"

#include <stdlib.h>
#include <zlib.h>

/* The most memory that zlib takes to inflate one stream: a window of 32 KiB, its tables, and a margin. */
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
