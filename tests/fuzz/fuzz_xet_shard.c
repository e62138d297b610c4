/* The input is a shard. Files follow one another and stay in it, and their terms are not empty: restated here. */
#include "api/hub/xet_shard.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

enum { RECORD = 48 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_text shard = td_text_n((const char *)data, size);
    struct td_error err = TD_ERROR_INIT;
    struct td_xet_file file;
    size_t at;
    if (!td_xet_shard_open(shard, &at, &err)) {
        fuzz_check_message(&err);
        return 0;
    }
    for (size_t before = at; td_xet_shard_next(shard, &at, &file, &err); before = at) {
        uint64_t bytes = 0;
        FUZZ_CHECK(at > before && at <= size && (at - before) % RECORD == 0);
        FUZZ_CHECK(file.terms.p == shard.p + before + RECORD && file.terms.len == file.term_count * RECORD);
        FUZZ_CHECK(before + RECORD + file.terms.len <= at);
        for (size_t i = 0; i < file.term_count; i++) {
            struct td_xet_term term = td_xet_file_term(&file, i);
            char text[TD_XET_HASH_TEXT_BYTES];
            uint8_t hash[TD_XET_HASH_BYTES];
            FUZZ_CHECK(term.bytes > 0 && term.first < term.end);
            td_xet_hash_write(term.xorb, text);
            FUZZ_CHECK(td_xet_hash_read(td_text_of(text), hash) && memcmp(hash, term.xorb, sizeof hash) == 0);
            bytes += term.bytes;
        }
        FUZZ_CHECK(bytes == file.bytes);
    }
    if (err.code != TD_OK)
        fuzz_check_message(&err);
    else
        FUZZ_CHECK(at + RECORD <= size && data[at] == 0xFF && data[at + 31] == 0xFF);
    return 0;
}
