/* The input is a byte of options and a body in the coding aws-chunked, without signatures that are checked. Whatever
 * the pieces are that the body comes in, the decoder passes on the same bytes, no more than were announced, and says
 * the same of it. */
#include "http/auth/aws_chunked.h"

#include "core/buffer.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { ANNOUNCED = 11 };

static bool take(void *context, const char *bytes, size_t len)
{
    td_buffer_append(context, bytes, len);
    return true;
}

static bool decode(const uint8_t *data, size_t size, unsigned options, size_t step, struct td_aws_chunked *decoder,
                   struct td_buffer *out)
{
    td_buffer_init(out);
    td_aws_chunked_begin(decoder, (options & 1) != 0, (options & 2) != 0, NULL, ANNOUNCED);
    bool ok = true;
    for (size_t at = 0; ok && at < size; at += step)
        ok = td_aws_chunked_write(decoder, (const char *)data + at, size - at < step ? size - at : step, take, out);
    ok = ok && td_aws_chunked_end(decoder);
    td_aws_chunked_fini(decoder);
    FUZZ_CHECK(ok == (decoder->fault == TD_AWS_CHUNKED_OK) && !out->failed && out->len <= ANNOUNCED);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_aws_chunked whole, pieces;
    struct td_buffer a, b;
    if (size == 0)
        return 0;
    bool ok = decode(data + 1, size - 1, data[0], size, &whole, &a);
    FUZZ_CHECK(decode(data + 1, size - 1, data[0], 1 + data[0] / 4 % 7, &pieces, &b) == ok);
    FUZZ_CHECK(whole.fault == pieces.fault);
    if (ok) {
        struct td_text rest = td_aws_chunked_trailer(&whole), name, value;
        FUZZ_CHECK(a.len == ANNOUNCED && td_text_compare(td_buffer_text(&a), td_buffer_text(&b)) == 0);
        FUZZ_CHECK(td_text_compare(rest, td_aws_chunked_trailer(&pieces)) == 0);
        while (td_aws_chunked_next_field(&rest, &name, &value))
            FUZZ_CHECK(name.len > 0);
    }
    td_buffer_fini(&a);
    td_buffer_fini(&b);
    return 0;
}
