/* The input is the header of an answer, line by line. Whatever was read keeps the promises of the header. */
#include "storage/fetch/fetch_answer.h"

#include "storage/fetch/fetch_client.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void check(const struct td_fetch_answer *answer)
{
    size_t len = strlen(answer->etag);
    FUZZ_CHECK(len == 0 ||
               (len >= 2 && answer->etag[0] == '"' && strchr(answer->etag + 1, '"') == answer->etag + len - 1));
    FUZZ_CHECK(strlen(answer->next) < sizeof answer->next && strlen(answer->message) < sizeof answer->message);
    FUZZ_CHECK(answer->status <= 999 && answer->retry_after_s <= 3600);
    FUZZ_CHECK(answer->header_bytes <= TD_FETCH_MAX_HEADER_BYTES);
    if (answer->has_range)
        FUZZ_CHECK(answer->first <= answer->last && answer->last < answer->total && answer->total <= INT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_fetch_answer answer;
    struct td_text rest = td_text_n((const char *)data, size);
    size_t bytes = 0;
    td_fetch_answer_init(&answer);
    while (rest.len > 0) {
        struct td_text line = td_text_take_until(&rest, '\n');
        bool fits = line.len <= TD_FETCH_MAX_HEADER_BYTES - bytes;
        FUZZ_CHECK(td_fetch_answer_take_line(&answer, line) == fits);
        bytes += fits ? line.len : 0;
        FUZZ_CHECK(answer.header_bytes == bytes);
        check(&answer);
    }
    return 0;
}
