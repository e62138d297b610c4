/* The input is the head of a journal; the target makes its checksum right, as a fuzzer could not. A head that is
 * accepted is the one that is written for what was read from it. */
#include "storage/fetch/fetch_journal.h"

#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t head[TD_FETCH_JOURNAL_HEAD_BYTES];
    uint8_t again[TD_FETCH_JOURNAL_HEAD_BYTES];
    struct td_fetch_journal journal;
    if (size < sizeof head)
        return 0;
    memcpy(head, data, sizeof head);
    const size_t at = sizeof head - TD_SHA256_BYTES;
    bool was_right = td_fetch_journal_read(head, &journal);
    td_sha256(head, at, head + at);
    FUZZ_CHECK(!was_right || memcmp(head, data, sizeof head) == 0);
    if (!td_fetch_journal_read(head, &journal))
        return 0;
    FUZZ_CHECK(strlen(journal.etag) < sizeof journal.etag && strlen(journal.boot) < sizeof journal.boot);
    FUZZ_CHECK(journal.size_bytes <= INT64_MAX);
    td_fetch_journal_write(&journal, again);
    FUZZ_CHECK(memcmp(head, again, sizeof head) == 0);
    FUZZ_CHECK(td_fetch_journal_fits(&journal, &journal) ==
               (journal.has_sha256 || (journal.etag[0] != '\0' && journal.boot[0] != '\0')));
    return 0;
}
