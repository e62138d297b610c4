#include "catalog/delta/delta_sum.h"

#include "core/digits.h"

#include <stdio.h>
#include <stdlib.h>
#define XXH_INLINE_ALL /* the header has the whole implementation, so the program needs no library */
#include <xxhash.h>
#include <zlib.h>

struct td_delta_sum {
    enum td_delta_sum_kind kind;
    XXH3_state_t *xxh3; /* owned; NULL for Adler-32 */
    uLong adler32;
};

bool td_delta_sum_find(struct td_text name, enum td_delta_sum_kind *kind)
{
    if (td_text_equals(name, "xxh3-128"))
        *kind = TD_DELTA_SUM_XXH3_128;
    else if (td_text_equals(name, "adler32"))
        *kind = TD_DELTA_SUM_ADLER32;
    else
        return false;
    return true;
}

bool td_delta_sum_is_text(enum td_delta_sum_kind kind, struct td_text text)
{
    return text.len == (kind == TD_DELTA_SUM_XXH3_128 ? 32 : 8) && td_hex_is_lower(text);
}

struct td_delta_sum *td_delta_sum_create(enum td_delta_sum_kind kind)
{
    struct td_delta_sum *sum = malloc(sizeof *sum);
    if (sum == NULL)
        return NULL;
    *sum = (struct td_delta_sum){.kind = kind, .adler32 = adler32(0, NULL, 0)};
    if (kind == TD_DELTA_SUM_ADLER32)
        return sum;
    sum->xxh3 = XXH3_createState();
    if (sum->xxh3 != NULL && XXH3_128bits_reset(sum->xxh3) == XXH_OK)
        return sum;
    td_delta_sum_free(sum);
    return NULL;
}

void td_delta_sum_free(struct td_delta_sum *sum)
{
    if (sum == NULL)
        return;
    if (sum->xxh3 != NULL)
        (void)XXH3_freeState(sum->xxh3);
    free(sum);
}

void td_delta_sum_add(struct td_delta_sum *sum, const void *bytes, size_t len)
{
    if (sum->kind == TD_DELTA_SUM_ADLER32)
        sum->adler32 = adler32_z(sum->adler32, bytes, len);
    else
        (void)XXH3_128bits_update(sum->xxh3, bytes, len);
}

void td_delta_sum_write(const struct td_delta_sum *sum, char text[TD_DELTA_SUM_TEXT_BYTES])
{
    XXH128_canonical_t bytes;
    if (sum->kind == TD_DELTA_SUM_ADLER32) {
        (void)snprintf(text, TD_DELTA_SUM_TEXT_BYTES, "%08lx", sum->adler32);
        return;
    }
    XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(sum->xxh3));
    td_hex_write(bytes.digest, sizeof bytes.digest, text);
}
