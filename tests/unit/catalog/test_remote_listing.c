#include "catalog/remote/remote_listing.h"

#include "catalog/remote/remote_model.h"
#include "tests/unit/alloc_trials.h"

#define OID "0123456789abcdef0123456789abcdef01234567"
#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* As the Hub answers, with members that do not count. */
static const char page[] = "[{\"type\":\"directory\",\"oid\":\"" OID "\",\"size\":0,\"path\":\"d\"},"
                           "{\"type\":\"file\",\"oid\":\"" OID "\",\"size\":7,\"path\":\"d/\\u00e9.txt\"},"
                           "{\"type\":\"file\",\"oid\":\"" OID "\",\"size\":5000000000,\"lfs\":{\"oid\":\"" SHA
                           "\",\"size\":5000000000,\"pointerSize\":135},\"xetHash\":\"x\",\"path\":\"a.safetensors\"}]";

static void files_of_a_page(void **state)
{
    (void)state;
    struct td_remote_listing listing;
    struct td_error err = TD_ERROR_INIT;
    td_remote_listing_init(&listing);
    CHECK(td_remote_listing_add_page(&listing, td_text_of(page), true, &err), "%s", err.message);
    assert_true(td_remote_listing_add_page(&listing, TD_TEXT("[]"), true, &err));
    assert_true(td_remote_listing_finish(&listing, &err));
    assert_int_equal(listing.count, 2);
    assert_int_equal(listing.item_count, 3);
    assert_int_equal(listing.total_bytes, 5000000007);
    const struct td_remote_file *a = &listing.files[0];
    const struct td_remote_file *b = &listing.files[1];
    assert_string_equal(a->path, "a.safetensors");
    assert_true(a->expected.has_sha256 && !a->expected.has_git_sha1 && a->expected.size_bytes == 5000000000);
    assert_true(a->expected.sha256[0] == 0x01 && a->expected.sha256[31] == 0xef);
    assert_string_equal(b->path, "d/\xc3\xa9.txt");
    assert_true(!b->expected.has_sha256 && b->expected.has_git_sha1 && b->expected.git_sha1[19] == 0x67);
    td_remote_listing_fini(&listing);
}

static void other_numbers_are_no_names_of_git(void **state)
{
    (void)state;
    struct td_remote_listing listing;
    td_remote_listing_init(&listing);
    assert_true(td_remote_listing_add_page(&listing, td_text_of(page), false, NULL));
    assert_false(listing.files[0].expected.has_git_sha1);
    td_remote_listing_fini(&listing);
}

/* printf '' | git hash-object --stdin */
#define GIT_OF_NOTHING "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"

/* printf '' | sha256sum */
#define SHA_OF_NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

#define ONE(members) "[{\"type\":\"file\"," members "}]"

/* shows: security.md upstream-wrong-digest */
static void wrong_lists(void **state)
{
    (void)state;
    static const char *const lists[] = {
        "",
        "{}",
        "null",
        "[",
        "[1]",
        "[[]]",
        "[{}",
        "[{}]x",
        "[{\"type\":1}]",
        ONE("\"size\":1"),
        ONE("\"path\":\"x\""),
        ONE("\"path\":\"x\",\"size\":-1"),
        ONE("\"path\":\"x\",\"size\":1.5"),
        ONE("\"path\":\"x\",\"size\":\"1\""),
        ONE("\"path\":\"x\",\"size\":9223372036854775808"),
        ONE("\"path\":\"x\",\"size\":9223372036854775807"),
        ONE("\"path\":\"x\",\"size\":281474976710657"),
        ONE("\"path\":\"x\",\"size\":1,\"lfs\":{\"oid\":\"" SHA "\",\"size\":281474976710657}"),
        ONE("\"path\":null,\"size\":1"),
        ONE("\"path\":\"a\\u0000b\",\"size\":1"),
        ONE("\"path\":\"../x\",\"size\":1"),
        ONE("\"path\":\"x\",\"size\":1,\"oid\":\"abc\""),
        ONE("\"path\":\"x\",\"size\":1,\"lfs\":[]"),
        ONE("\"path\":\"x\",\"size\":1,\"lfs\":{}"),
        ONE("\"path\":\"x\",\"size\":1,\"lfs\":{\"oid\":\"" OID "\"}"),
        ONE("\"path\":\"x\",\"size\":1,\"lfs\":{\"oid\":\"" SHA "\",\"size\":-1}"),
        ONE("\"path\":\"x\",\"size\":0,\"lfs\":{\"oid\":\"" SHA "\",\"size\":0}"),
        ONE("\"path\":\"x\",\"size\":0,\"oid\":\"" OID "\""),
        ONE("\"path\":\"x\",\"size\":1") ",",
    };
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        struct td_remote_listing listing;
        struct td_error err = TD_ERROR_INIT;
        td_remote_listing_init(&listing);
        CHECK(!td_remote_listing_add_page(&listing, td_text_of(lists[i]), true, &err), "%s", lists[i]);
        CHECK(err.code == TD_INVALID_ARGUMENT, "%s: %s", lists[i], err.message);
        td_remote_listing_fini(&listing);
    }
}

static void an_empty_file_has_the_digest_of_nothing(void **state)
{
    (void)state;
    static const char *const list =
        ONE("\"path\":\"x\",\"size\":0,\"lfs\":{\"oid\":\"" SHA_OF_NOTHING "\",\"size\":0}");
    static const char *const git = ONE("\"path\":\"y\",\"size\":0,\"oid\":\"" GIT_OF_NOTHING "\"");
    static const char *const other = ONE("\"path\":\"z\",\"size\":0,\"oid\":\"" OID "\"");
    struct td_remote_listing listing;
    td_remote_listing_init(&listing);
    assert_true(td_remote_listing_add_page(&listing, td_text_of(list), true, NULL));
    assert_true(td_remote_listing_add_page(&listing, td_text_of(git), true, NULL));
    assert_true(td_remote_listing_add_page(&listing, td_text_of(other), false, NULL)); /* no name of Git's */
    assert_true(listing.files[0].expected.has_sha256 && listing.files[0].expected.size_bytes == 0);
    assert_true(listing.files[1].expected.has_git_sha1 && listing.files[1].expected.size_bytes == 0);
    td_remote_listing_fini(&listing);
}

static void sums_do_not_overflow(void **state)
{
    (void)state;
    struct td_remote_listing listing;
    td_remote_listing_init(&listing);
    const struct td_text most = TD_TEXT(ONE("\"path\":\"x\",\"size\":281474976710656")); /* 2^48 */
    for (size_t i = 0; i < 32767; i++)
        assert_true(td_remote_listing_add_page(&listing, most, true, NULL));
    assert_false(td_remote_listing_add_page(&listing, most, true, NULL)); /* 2^63 */
    td_remote_listing_fini(&listing);
}

static void paths(void **state)
{
    (void)state;
    static const char *const good[] = {"a",
                                       "a/b",
                                       ".gitattributes",
                                       "...",
                                       "a b",
                                       "-x",
                                       "\xc3\xa9",
                                       "a..b",
                                       "con",
                                       "x.tensord-part",
                                       ".a.tensord-parts",
                                       "a.tensord-pull",
                                       "tensord-upstream",
                                       ".tensord",
                                       ".github",
                                       "x.git"};
    static const char *const bad[] = {"",
                                      ".",
                                      "..",
                                      "/a",
                                      "a/",
                                      "a//b",
                                      "a/./b",
                                      "a/../b",
                                      "../a",
                                      "a\\b",
                                      "a\nb",
                                      "\x7f",
                                      "\xff",
                                      "\xc3(",
                                      "a/..",
                                      ".a.tensord-part",
                                      "d/.a.tensord-journal",
                                      ".out.tensord-pull/x",
                                      "d/.tensord-upstream/x",
                                      ".tensord-upstream",
                                      ".git/config",
                                      "d/.GIT"};
    for (size_t i = 0; i < COUNT_OF(good); i++)
        CHECK(td_remote_path_check(td_text_of(good[i]), NULL), "%s", good[i]);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK(!td_remote_path_check(td_text_of(bad[i]), NULL), "%s", bad[i]);
    assert_false(td_remote_path_check(td_text_n("a\0b", 3), NULL));
    char text[TD_REMOTE_MAX_PATH_BYTES + 2];
    memset(text, 'x', sizeof text);
    for (size_t i = 200; i < sizeof text; i += 200)
        text[i] = '/';
    assert_true(td_remote_path_check(td_text_n(text, TD_REMOTE_MAX_PATH_BYTES), NULL));
    assert_false(td_remote_path_check(td_text_n(text, TD_REMOTE_MAX_PATH_BYTES + 1), NULL));
    text[0] = 'y';
    memset(text + 1, 'x', TD_FETCH_MAX_SERVERS * 20);
    assert_false(td_remote_path_check(td_text_n(text, 239), NULL));
    assert_true(td_remote_path_check(td_text_n(text, 238), NULL));
    for (size_t i = 0; i < 2 * TD_REMOTE_MAX_DEPTH + 1; i++)
        text[i] = i % 2 == 0 ? 'x' : '/';
    assert_true(td_remote_path_check(td_text_n(text, 2 * TD_REMOTE_MAX_DEPTH - 1), NULL));
    assert_false(td_remote_path_check(td_text_n(text, 2 * TD_REMOTE_MAX_DEPTH + 1), NULL));
}

static void collisions(void **state)
{
    (void)state;
    static const struct {
        const char *paths[3];
        bool ok;
    } cases[] = {{{"a", "b", "a"}, false},
                 {{"a/b", "a", "c"}, false},
                 {{"a/b/c", "x", "a/b"}, false},
                 {{"a/b", "a.b", "ab"}, true}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_remote_listing listing;
        char text[100];
        td_remote_listing_init(&listing);
        for (size_t k = 0; k < 3; k++) {
            (void)snprintf(text, sizeof text, ONE("\"path\":\"%s\",\"size\":1"), cases[i].paths[k]);
            assert_true(td_remote_listing_add_page(&listing, td_text_of(text), true, NULL));
        }
        CHECK(td_remote_listing_finish(&listing, NULL) == cases[i].ok, "case %zu", i);
        td_remote_listing_fini(&listing);
    }
}

static void ids(void **state)
{
    (void)state;
    static const char *const good[] = {"m", "org/m", "Org.1/m-2_x", "_/x"};
    static const char *const bad[] = {"",     "/",  "a/",  "/a",  "a/b/c",    ".a",
                                      "a/.b", "..", "a b", "a%b", "\xc3\xa9", "a/../b"};
    for (size_t i = 0; i < COUNT_OF(good); i++)
        CHECK(td_remote_id_check(td_text_of(good[i]), NULL), "%s", good[i]);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        CHECK(!td_remote_id_check(td_text_of(bad[i]), NULL), "%s", bad[i]);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_remote_listing listing;
        struct td_error err = TD_ERROR_INIT;
        td_remote_listing_init(&listing);
        bool ok = td_remote_listing_add_page(&listing, td_text_of(page), true, &err) &&
                  td_remote_listing_finish(&listing, &err);
        alloc_tried(&trials, ok, &err);
        td_remote_listing_fini(&listing);
    }
    assert_in_range(trials.k, 3, 99);
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    for (size_t len = 0; len < sizeof page - 1; len++) {
        struct td_remote_listing listing;
        td_remote_listing_init(&listing);
        CHECK(!td_remote_listing_add_page(&listing, td_text_n(page, len), true, NULL), "%zu bytes", len);
        td_remote_listing_fini(&listing);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_a_page),
        cmocka_unit_test(other_numbers_are_no_names_of_git),
        cmocka_unit_test(wrong_lists),
        cmocka_unit_test(an_empty_file_has_the_digest_of_nothing),
        cmocka_unit_test(sums_do_not_overflow),
        cmocka_unit_test(paths),
        cmocka_unit_test(collisions),
        cmocka_unit_test(ids),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_prefix_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
