/* What every manifest must hold, whatever its format. */
#ifndef TD_TESTS_FUZZ_TENSORS_H
#define TD_TESTS_FUZZ_TENSORS_H

#include "core/utf8.h"
#include "parser/manifest.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

typedef unsigned __int128 fuzz_u128;

/* Names are sorted, unique UTF-8; sizes are what shapes and types say; all bytes lie in [begin, size) of the file. */
static inline void fuzz_check_tensor(const struct td_manifest *m, size_t i, uint64_t begin, uint64_t size)
{
    const struct td_tensor *t = &m->tensors[i];
    fuzz_u128 elems = 1;
    fuzz_u128 last = 0;
    int empty = 0;
    FUZZ_CHECK(strlen(t->name) == t->name_len && td_utf8_valid(t->name, t->name_len));
    FUZZ_CHECK(i == 0 || td_name_compare(t[-1].name, t[-1].name_len, t->name, t->name_len) < 0);
    FUZZ_CHECK(t->dtype != NULL && t->rank <= TD_MAX_RANK && (t->rank == 0) == (t->shape == NULL));
    for (uint32_t d = 0; d < t->rank; d++)
        empty |= t->shape[d] == 0;
    for (uint32_t d = 0; d < t->rank && !empty; d++) {
        elems *= t->shape[d];
        FUZZ_CHECK(elems <= UINT64_MAX);
        last += (fuzz_u128)(t->shape[d] - 1) * (t->strides != NULL ? t->strides[d] : 0);
    }
    if (empty)
        elems = 0;
    FUZZ_CHECK(elems * t->dtype->block_bytes == (fuzz_u128)t->nbytes * t->dtype->block_elems);
    fuzz_u128 extent = t->strides == NULL ? t->nbytes : (last + 1) * t->dtype->block_bytes;
    if (t->reason == NULL && elems > 0)
        FUZZ_CHECK(t->offset >= begin && t->offset <= size && extent <= size - t->offset);
    FUZZ_CHECK(t->reason != NULL || t->dtype->block_bytes > 0);
}

#endif
