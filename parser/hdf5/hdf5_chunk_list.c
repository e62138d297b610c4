#include "parser/hdf5/hdf5_chunk_list.h"

#include <inttypes.h>

enum { CHUNKS_MAX = 4 * 1024 * 1024 }; /* of one dataset */

bool td_h5_add_chunk(struct td_h5_chunk_reader *r, const uint64_t *scaled, uint64_t addr, uint64_t bytes,
                     uint32_t skipped)
{
    struct td_h5 *h = r->h;
    struct td_h5_chunk_list *list = r->list;
    uint64_t number = 0;
    bool at_edge = false;
    if (td_h5_undefined(h, addr))
        return true;
    for (uint32_t i = 0; i < r->layout->rank; i++) {
        if (scaled[i] >= r->along[i])
            return true;
        number = number * r->along[i] + scaled[i];
        at_edge = at_edge || r->layout->shape[i] > r->space->dims[i] - scaled[i] * r->layout->shape[i];
    }
    uint32_t all = (UINT32_C(1) << r->filter_count) - 1;
    if (r->layout->plain_edges && at_edge)
        skipped = all;
    bool plain = (skipped & all) == all;
    if (bytes == 0 || (r->layout->plain_edges && at_edge))
        bytes = r->chunk_bytes;
    if (plain ? bytes != r->chunk_bytes : bytes > r->chunk_bytes + r->chunk_bytes / 4 + 1024)
        return td_h5_fail(h, addr, "a chunk of %" PRIu64 " bytes is stored in %" PRIu64, r->chunk_bytes, bytes);
    if (!td_h5_within(h, addr, bytes))
        return td_h5_fail(h, addr, "a chunk at address %" PRIu64 " with %" PRIu64 " bytes leaves the file", addr,
                          bytes);
    if (list->count >= CHUNKS_MAX)
        return td_h5_fail(h, addr, "there are more than %d chunks", CHUNKS_MAX);
    if (!td_h5_grow(h, &list->chunks, &list->capacity, list->count, sizeof *list->chunks))
        return false;
    list->chunks[list->count++] = (struct td_coding_chunk){
        .number = number,
        .offset = h->base + addr,
        .bytes = plain ? 0 : (uint32_t)bytes, /* at most 80 MiB */
        .skipped_filters = skipped,
    };
    return true;
}
