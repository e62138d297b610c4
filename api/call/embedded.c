#include "api/call/embedded.h"

#include <libdeflate.h>

void td_embedded_append(const unsigned char *packed, size_t packed_len, size_t len, struct td_buffer *out)
{
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    bool ok = decompressor != NULL && td_buffer_reserve(out, len) &&
              libdeflate_zlib_decompress(decompressor, packed, packed_len, out->data + out->len, len, NULL) ==
                  LIBDEFLATE_SUCCESS;
    libdeflate_free_decompressor(decompressor);
    out->len += ok ? len : 0;
    out->failed = out->failed || !ok;
}
