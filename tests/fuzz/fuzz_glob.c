/* The input is a pattern, a newline and a text. The result for UTF-8 is compared with the oracle; for other bytes the
 * function must return. */
#include "core/glob.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/glob_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *newline = size == 0 ? NULL : memchr(data, '\n', size);
    if (newline == NULL || size > 4096)
        return 0;
    const char *pattern = (const char *)data;
    size_t pattern_len = (size_t)(newline - data);
    const char *text = pattern + pattern_len + 1;
    size_t text_len = size - pattern_len - 1;
    bool matches = td_glob_match(td_text_n(pattern, pattern_len), td_text_n(text, text_len));
    struct glob_points p, t;
    if (glob_oracle_points(pattern, pattern_len, &p) && glob_oracle_points(text, text_len, &t))
        FUZZ_CHECK(matches == glob_oracle(&p, &t));
    return 0;
}
