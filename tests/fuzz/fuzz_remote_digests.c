/* The input is an answer with the digests of tensors. The rules of td_remote_digests_read are restated over the result,
 * and each digest must be in the text. */
#include "catalog/remote/remote_digests.h"

#include "core/digits.h"
#include "core/utf8.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

/* Checks that the text is "[", up to TD_REMOTE_MAX_DIMENSIONS numbers below 2^64 without leading zeros, and "]". */
static void check_shape(const char *shape)
{
    size_t dimensions = 0;
    FUZZ_CHECK(*shape == '[');
    for (shape++; *shape != ']'; dimensions++) {
        if (dimensions > 0)
            FUZZ_CHECK(*shape++ == ',');
        const size_t digits = strspn(shape, "0123456789");
        FUZZ_CHECK(digits > 0 && digits <= 20 && (shape[0] != '0' || digits == 1));
        FUZZ_CHECK(digits < 20 || strncmp(shape, "18446744073709551615", 20) <= 0);
        shape += digits;
    }
    FUZZ_CHECK(shape[1] == '\0' && dimensions <= TD_REMOTE_MAX_DIMENSIONS);
}

static void check_tensor(const struct td_remote_tensor *tensor, struct td_text text)
{
    char digits[TD_SHA256_TEXT_BYTES];
    FUZZ_CHECK(tensor->name != NULL && td_utf8_valid(tensor->name, strlen(tensor->name)));
    FUZZ_CHECK(tensor->dtype != NULL && strlen(tensor->dtype) < 32);
    check_shape(tensor->shape);
    td_hex_write(tensor->sha256, sizeof tensor->sha256, digits);
    /* a digit may be spelled by an escape, and is then not found as it is */
    FUZZ_CHECK(!tensor->has_sha256 || memchr(text.p, '\\', text.len) != NULL ||
               memmem(text.p, text.len, digits, strlen(digits)) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_remote_digests digests;
    struct td_error err = TD_ERROR_INIT;
    const struct td_text text = td_text_n((const char *)data, size);
    td_remote_digests_init(&digests);
    const bool ok = td_remote_digests_read(&digests, text, &err);
    FUZZ_CHECK(ok == (err.code == TD_OK));
    if (!ok)
        fuzz_check_message(&err);
    for (size_t i = 0; ok && i < digests.count; i++) {
        const struct td_remote_tensor *tensor = &digests.items[i];
        check_tensor(tensor, text);
        FUZZ_CHECK(i == 0 || strcmp(digests.items[i - 1].name, tensor->name) < 0);
        FUZZ_CHECK(td_remote_digests_find(&digests, tensor->name) == tensor);
    }
    FUZZ_CHECK(!ok || (digests.tag != NULL && td_remote_digests_find(&digests, "\xFF") == NULL));
    td_remote_digests_fini(&digests);
    return 0;
}
