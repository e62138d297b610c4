/* Checks that every refusal must pass. */
#ifndef TD_TESTS_FUZZ_FUZZ_ERROR_H
#define TD_TESTS_FUZZ_FUZZ_ERROR_H

#include "core/error.h"
#include "core/utf8.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* The message must be one line of UTF-8, and there must be a code. */
static inline void fuzz_check_message(const struct td_error *err)
{
    size_t len = strlen(err->message);
    FUZZ_CHECK(err->code == TD_INVALID_ARGUMENT || err->code == TD_RESOURCE_EXHAUSTED);
    FUZZ_CHECK(len > 0 && len < TD_ERROR_MESSAGE_BYTES && td_utf8_valid(err->message, len));
    for (size_t i = 0; i < len; i++)
        FUZZ_CHECK((uint8_t)err->message[i] >= 0x20);
}

/* Does the same; the position must be within an input of `size` bytes. */
static inline void fuzz_check_refusal(const struct td_error *err, uint64_t size)
{
    fuzz_check_message(err);
    FUZZ_CHECK(err->code == TD_RESOURCE_EXHAUSTED || err->pos <= size);
}

/* Does the same for readers that refuse a whole file, or a name that occurs twice, without a position. */
static inline void fuzz_check_refusal_somewhere(const struct td_error *err, uint64_t size)
{
    fuzz_check_message(err);
    FUZZ_CHECK(err->code == TD_RESOURCE_EXHAUSTED || err->pos == TD_ERROR_POS_NONE || err->pos <= size);
}

#endif
