/* The input is pages of a list of files, separated by NUL. All paths of a list that is accepted stay below a directory
 * and do not collide: restated here over the result. */
#include "catalog/remote/remote_listing.h"

#include "core/utf8.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

static void check_path(const char *path)
{
    size_t len = strlen(path);
    FUZZ_CHECK(len > 0 && len <= TD_REMOTE_MAX_PATH_BYTES && path[0] != '/' && path[len - 1] != '/');
    FUZZ_CHECK(td_utf8_valid(path, len) && strstr(path, "//") == NULL);
    char buffer[TD_REMOTE_MAX_PATH_BYTES + 32] = "................"; /* may be looked at after a short name */
    char *framed = buffer + 16;
    (void)snprintf(framed, sizeof buffer - 16, "/%s/", path);
    FUZZ_CHECK(strstr(framed, "/./") == NULL && strstr(framed, "/../") == NULL);
    for (size_t i = 0; i < len; i++)
        FUZZ_CHECK((unsigned char)path[i] >= 0x20 && path[i] != 0x7F && path[i] != '\\');
    for (const char *hidden = strstr(framed, "/."); hidden != NULL; hidden = strstr(hidden + 1, "/.")) {
        const char *end = strchr(hidden + 1, '/');
        FUZZ_CHECK(memcmp(end - 13, ".tensord-part", 13) != 0 && memcmp(end - 16, ".tensord-journal", 16) != 0);
        FUZZ_CHECK(memcmp(end - 13, ".tensord-pull", 13) != 0 && memcmp(hidden, "/.tensord-", 10) != 0);
    }
}

/* Checks all pairs: neither path is the other one, or a directory of it. */
static void check_pairs(const struct td_remote_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++)
        for (size_t k = 0; k < listing->count; k++) {
            const char *a = listing->files[i].path;
            const char *b = listing->files[k].path;
            size_t len = strlen(a);
            FUZZ_CHECK(i == k || strncmp(a, b, len) != 0 || (b[len] != '\0' && b[len] != '/'));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_remote_listing listing;
    struct td_error err = TD_ERROR_INIT;
    struct td_text rest = td_text_n((const char *)data, size);
    bool ok = true;
    td_remote_listing_init(&listing);
    while (ok && rest.len > 0)
        ok = td_remote_listing_add_page(&listing, td_text_take_until(&rest, '\0'), true, &err);
    ok = ok && td_remote_listing_finish(&listing, &err);
    FUZZ_CHECK(ok == (err.code == TD_OK));
    if (!ok)
        fuzz_check_message(&err);
    uint64_t total = 0;
    for (size_t i = 0; i < listing.count; i++) {
        check_path(listing.files[i].path);
        FUZZ_CHECK(listing.files[i].expected.size_bytes <= INT64_MAX - total);
        total += listing.files[i].expected.size_bytes;
        FUZZ_CHECK(!ok || i == 0 || strcmp(listing.files[i - 1].path, listing.files[i].path) < 0);
    }
    FUZZ_CHECK(total == listing.total_bytes || !ok);
    if (ok && listing.count < 200)
        check_pairs(&listing);
    td_remote_listing_fini(&listing);
    return 0;
}
