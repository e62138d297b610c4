/* The expected digits were computed by openssl: printf 'GET\n/a?expires=2000000000' | openssl dgst -sha256 -mac HMAC
 * -macopt hexkey:000102...1f */
#include "http/auth/signed_url.h"

#include "tests/unit/alloc_trials.h"

#define OWNER_DIGITS "e32bfddec99cd1128569e60f80ea7c3d8991ef71767b29dbcca3d4ee1ba38f9c"
#define NAMED_DIGITS "8636d1c81fa3658968823871121e60b5e1ac9de54296af51fd2affa1c929d6f6"

static const uint8_t key[TD_SHA256_BYTES] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                             16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

/* Returns whether the key, which is that of the holder and that of the token ci.v-2, signed the target. */
static bool is_good(const char *target)
{
    struct td_signed_url url;
    struct td_error err = TD_ERROR_INIT;
    bool ok = td_signed_url_parse(td_text_of(target), &url) &&
              (url.name.len == 0 || td_text_equals(url.name, "ci.v-2")) &&
              td_signed_url_verify(&url, TD_SIGNED_GET, key, &err);
    assert_int_equal(err.code, TD_OK);
    return ok;
}

static void the_message_is_the_documented_one(void **state)
{
    (void)state;
    struct td_signed_url url;
    static const char owner[] = "/a?expires=2000000000&signature=" OWNER_DIGITS;
    static const char named[] = "/m%20n/x?b=1&a=%2B&expires=7&signature=ci.v-2." NAMED_DIGITS;
    assert_true(is_good(owner) && is_good(named));
    assert_true(td_signed_url_parse(td_text_of(owner), &url));
    assert_int_equal(url.expires_s, 2000000000);
    assert_true(td_text_equals(url.bare, "/a") && url.name.len == 0);
    assert_true(td_signed_url_parse(td_text_of(named), &url));
    assert_true(td_text_equals(url.bare, "/m%20n/x?b=1&a=%2B") && td_text_equals(url.name, "ci.v-2"));
    assert_int_equal(url.expires_s, 7);
    assert_true(is_good("http://host:80/a?expires=2000000000&signature=" OWNER_DIGITS)); /* absolute-form */
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct td_buffer out;
    static const struct {
        const char *path, *name, *signed_url;
        int64_t expires_s;
    } cases[] = {
        {"/a", "", "/a?expires=2000000000&signature=" OWNER_DIGITS, 2000000000},
        {"/m n/x?b=1&a=%2b", "ci.v-2", "/m%20n/x?b=1&a=%2B&expires=7&signature=ci.v-2." NAMED_DIGITS, 7},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        td_buffer_init(&out);
        td_buffer_puts(&out, "https://host");
        assert_true(td_signed_url_normalise(td_text_of(cases[i].path), &out, NULL));
        td_signed_url_append(&out, 12, TD_SIGNED_GET, cases[i].expires_s, td_text_of(cases[i].name), key);
        assert_string_equal(td_buffer_terminate(&out) + 12, cases[i].signed_url);
        td_buffer_fini(&out);
    }
}

/* shows: security.md signed-url-changes */
static void every_change_is_refused(void **state)
{
    (void)state;
    static const char good[] = "/m%20n/x?b=1&a=%2B&expires=7&signature=ci.v-2." NAMED_DIGITS;
    char changed[2 * sizeof good];
    for (size_t i = 0; i < sizeof good - 1; i++) {
        for (int c = 1; c < 256; c++) {
            memcpy(changed, good, sizeof good);
            changed[i] = (char)c;
            CHECK(changed[i] == good[i] || !is_good(changed), "byte %zu as %d", i, c);
        }
        memcpy(changed, good, i); /* a byte less, and a byte twice */
        memcpy(changed + i, good + i + 1, sizeof good - i - 1);
        CHECK(!is_good(changed), "without byte %zu", i);
        memcpy(changed + i, good + i, 1);
        memcpy(changed + i + 1, good + i, sizeof good - i);
        CHECK(!is_good(changed), "byte %zu twice", i);
    }
}

static void other_orders_and_spellings_are_refused(void **state)
{
    (void)state;
    static const char *const others[] = {
        "/m%20n/x?a=%2B&b=1&expires=7&signature=ci.v-2." NAMED_DIGITS,
        "/m%20n/x?b=1&a=%2B&signature=ci.v-2." NAMED_DIGITS "&expires=7",
        "/m%20n/x?b=1&a=%2B&expires=7&signature=ci.v-2." NAMED_DIGITS "&c=d",
        "/m%20n/x?b=1&a=%2B&expires=7&signature=ci.v-2." NAMED_DIGITS "&signature=ci.v-2." NAMED_DIGITS,
        "/m%20n/x?b=1&a=%2B&expires=7&expires=7&signature=ci.v-2." NAMED_DIGITS,
        "/m%20n/x?b=1&a=%2B&expires=07&signature=ci.v-2." NAMED_DIGITS,
        "/m%20n/x?b=1&expires=7&signature=ci.v-2." NAMED_DIGITS,
        "/m%20n/x?b=1&a=%2b&expires=7&signature=ci.v-2." NAMED_DIGITS,
        "/m n/x?b=1&a=%2B&expires=7&signature=ci.v-2." NAMED_DIGITS,
        "/a&expires=2000000000?signature=" OWNER_DIGITS,
        "/a?expires=2000000000&signature=." OWNER_DIGITS,
        "/a?expires=2000000000&signature=",
        "/a?expires=2000000000",
        "/a?expires=2000000000&signature",
        "?",
        "",
    };
    for (size_t i = 0; i < COUNT_OF(others); i++)
        CHECK(!is_good(others[i]), "%s", others[i]);
}

static void paths_are_spelled_as_clients_send_them(void **state)
{
    (void)state;
    static const struct {
        const char *path, *normal; /* NULL: refused */
    } cases[] = {
        {"/", "/"},
        {"/a/b?c=d&e", "/a/b?c=d&e"},
        {"/%7E~%41%c3%a9", "/~~A%C3%A9"},
        {"/\xC3\xA9 \"<>[]{}|\\^`'", "/%C3%A9%20%22%3C%3E%5B%5D%7B%7D%7C%5C%5E%60%27"},
        {"/a%2Fb%3F?x=%26%3d+", "/a%2Fb%3F?x=%26%3D+"},
        {"/a//b", "/a//b"},
        {"/expires=1", "/expires=1"},
        {"", NULL},
        {"a", NULL},
        {"/a#b", NULL},
        {"/a/../b", NULL},
        {"/a/%2e", NULL},
        {"/%", NULL},
        {"/%4", NULL},
        {"/%4g", NULL},
        {"/a?expires=1", NULL},
        {"/a?b&signature", NULL},
        {"/a?%65xpires=1", NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_error err = TD_ERROR_INIT;
        struct td_buffer out;
        td_buffer_init(&out);
        bool ok = td_signed_url_normalise(td_text_of(cases[i].path), &out, &err);
        CHECK(ok == (cases[i].normal != NULL), "%s: %s", cases[i].path, err.message);
        if (ok)
            assert_string_equal(td_buffer_terminate(&out), cases[i].normal);
        else
            check_error(&err, 0, false, cases[i].path);
        td_buffer_fini(&out);
    }
}

static void long_paths_are_refused(void **state)
{
    (void)state;
    static char path[TD_SIGNED_URL_PATH_BYTES + 1];
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer out;
    memset(path, '/', sizeof path);
    td_buffer_init(&out);
    assert_true(td_signed_url_normalise(td_text_n(path, sizeof path - 1), &out, &err));
    assert_false(td_signed_url_normalise(td_text_n(path, sizeof path), &out, &err));
    check_says(&err, "32768", "a long path");
    td_buffer_fini(&out);
}

static const int64_t now_s = 1767225600;

/* Returns a set with the tokens "ci", which never expires, "old", which expires 100 s after now_s, and "writer", which
 * may write to a few. */
static struct td_token_set *make_set(uint8_t master_byte, const char *first_name)
{
    const uint8_t master_key[TD_TOKEN_KEY_BYTES] = {master_byte};
    static const char *const written[] = {"org/m", "datasets/org/*", "local/one", NULL};
    const struct td_token tokens[] = {
        {.name = first_name, .sha256 = {1}, .rights = TD_RIGHT_READ},
        {.name = "old", .sha256 = {2}, .rights = TD_RIGHT_READ, .expires_s = now_s + 100},
        {.name = "writer", .sha256 = {3}, .rights = TD_RIGHT_READ | TD_RIGHT_WRITE, .models = written},
    };
    struct td_token_set *set = td_token_set_create(master_key, tokens, COUNT_OF(tokens), NULL);
    assert_non_null(set);
    return set;
}

/* Signs "/a?b" for `valid_s` as the token of this name (NULL: the holder). The caller frees the URL. */
static char *sign_for(const struct td_token_set *set, const char *name, uint64_t valid_s, int64_t *expires_s)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer out;
    const struct td_token *token = name == NULL ? NULL : td_token_set_find_name(set, td_text_of(name));
    td_buffer_init(&out);
    CHECK(td_signed_url_write(set, token, TD_SIGNED_GET, TD_TEXT("/a?b"), now_s, valid_s, &out, expires_s, &err), "%s",
          err.message);
    return td_buffer_terminate(&out);
}

/* Checks that the URL has the rights of the token of this name (NULL: all), later_s after now_s; or, with `says`, that
 * it is refused with a message that says so. */
static void check_rights(const struct td_token_set *set, const char *method, const char *url, int64_t later_s,
                         const char *name, const char *says)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_token *token = (const struct td_token *)&err; /* neither NULL nor a token */
    struct td_text bare;
    bool ok = td_signed_url_check(set, td_text_of(method), td_text_of(url), now_s + later_s, &token, &bare, &err);
    CHECK(ok == (says == NULL), "%s: %s", url, err.message);
    if (says != NULL) {
        assert_int_equal(err.code, TD_PERMISSION_DENIED);
        check_says(&err, says, url);
        return;
    }
    assert_true(td_text_equals(bare, "/a?b"));
    if (name == NULL)
        assert_null(token);
    else
        assert_string_equal(token->name, name);
}

static void urls_have_the_rights_of_who_signed(void **state)
{
    (void)state;
    struct td_token_set *set = make_set(1, "ci"), *revoked = make_set(1, "other"), *new_key = make_set(2, "ci");
    int64_t expires_s;
    char *owner = sign_for(set, NULL, 60, &expires_s);
    assert_int_equal(expires_s, now_s + 60);
    char *ci = sign_for(set, "ci", 60, &expires_s);
    assert_int_equal(expires_s, now_s + 60);
    check_rights(set, "GET", owner, 0, NULL, NULL);
    check_rights(set, "HEAD", owner, 59, NULL, NULL);
    check_rights(set, "GET", ci, 59, "ci", NULL);
    check_rights(set, "GET", ci, 60, "ci", "expired");
    check_rights(set, "POST", ci, 0, "ci", "GET and HEAD");
    check_rights(revoked, "GET", ci, 0, "ci", "wrong");
    check_rights(revoked, "GET", owner, 0, NULL, NULL);
    check_rights(new_key, "GET", ci, 0, "ci", "wrong");
    check_rights(new_key, "GET", owner, 0, NULL, "wrong");
    check_rights(set, "GET", "/a?b&signature=ci.00", 0, NULL, "wrong");
    strstr(ci, "=ci.")[1] = 'x'; /* another name before the digits */
    check_rights(set, "GET", ci, 0, NULL, "wrong");
    td_token_set_unref(set);
    td_token_set_unref(revoked);
    td_token_set_unref(new_key);
    free(owner);
    free(ci);
}

static void urls_do_not_outlive_their_token(void **state)
{
    (void)state;
    struct td_token_set *set = make_set(1, "ci");
    const struct td_token *old = td_token_set_find_name(set, TD_TEXT("old"));
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer out;
    int64_t expires_s;
    char *url = sign_for(set, "old", TD_SIGNED_URL_MOST_S, &expires_s);
    assert_int_equal(expires_s, now_s + 100);
    check_rights(set, "GET", url, 99, "old", NULL);
    check_rights(set, "GET", url, 100, "old", "expired");
    struct td_token_set *gone = make_set(2, "ci");
    check_rights(gone, "GET", url, 99, "old", "wrong");
    check_rights(gone, "GET", url, 100, "old", "expired"); /* the check of the time comes before that of the signer */
    td_token_set_unref(gone);
    td_buffer_init(&out);
    assert_false(td_signed_url_write(set, old, TD_SIGNED_GET, TD_TEXT("/a"), now_s + 100, 60, &out, &expires_s, &err));
    assert_int_equal(err.code, TD_PERMISSION_DENIED);
    static const uint64_t bad[] = {0, TD_SIGNED_URL_MOST_S + 1};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        td_error_init(&err);
        assert_false(
            td_signed_url_write(set, NULL, TD_SIGNED_GET, TD_TEXT("/a"), now_s, bad[i], &out, &expires_s, &err));
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    }
    td_buffer_fini(&out);
    td_token_set_unref(set);
    free(url);
}

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
/* printf 'PUT\n/a?expires=2000000000' | openssl dgst -sha256 -mac HMAC -macopt hexkey:000102...1f */
#define PUT_DIGITS "2b75668f79f0972559e68f2def7aa67037bf9bfde224ae43e178c2b5d2de3fdb"

static void the_method_is_signed(void **state)
{
    (void)state;
    struct td_signed_url get, put;
    struct td_error err = TD_ERROR_INIT;
    enum td_signed_method method = TD_SIGNED_GET;
    assert_true(td_signed_url_parse(TD_TEXT("/a?expires=2000000000&signature=" OWNER_DIGITS), &get));
    assert_true(td_signed_url_parse(TD_TEXT("/a?expires=2000000000&signature=" PUT_DIGITS), &put));
    assert_true(td_signed_url_verify(&put, TD_SIGNED_PUT, key, &err));
    assert_false(td_signed_url_verify(&put, TD_SIGNED_GET, key, &err));
    assert_false(td_signed_url_verify(&get, TD_SIGNED_PUT, key, &err));
    assert_true(td_signed_method_read(TD_TEXT("PUT"), &method) && method == TD_SIGNED_PUT);
    assert_true(td_signed_method_read(TD_TEXT("GET"), &method) && method == TD_SIGNED_GET);
    /* people have no URLs signed for POST; the server answers such URLs itself */
    static const char *const others[] = {"", "put", "HEAD", "POST", "PUTT", "DELETE"};
    for (size_t i = 0; i < COUNT_OF(others); i++)
        CHECK(!td_signed_method_read(td_text_of(others[i]), &method), "%s", others[i]);
}

/* A URL for POST is for one blob, and good for no other method. */
static void posts_ask_about_a_blob(void **state)
{
    (void)state;
    static const char *const others[] = {"GET", "HEAD", "PUT", "DELETE", "PATCH", "post"};
    struct td_token_set *set = make_set(1, "ci");
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer out;
    const struct td_token *token;
    struct td_text bare;
    int64_t expires_s;
    const struct td_token *writer = td_token_set_find_name(set, TD_TEXT("writer"));
    const struct td_token *ci = td_token_set_find_name(set, TD_TEXT("ci"));
    const struct td_text path = TD_TEXT("/models/org/m/blobs/sha256:" HEX), file = TD_TEXT("/models/org/m/files/a");
    td_buffer_init(&out);
    assert_true(td_signed_url_write(set, writer, TD_SIGNED_POST, path, now_s, 60, &out, &expires_s, &err));
    struct td_text url = td_buffer_text(&out);
    assert_true(td_signed_url_check(set, TD_TEXT("POST"), url, now_s, &token, &bare, &err) && token == writer);
    for (size_t i = 0; i < COUNT_OF(others); i++)
        CHECK(!td_signed_url_check(set, td_text_of(others[i]), url, now_s, &token, &bare, &err), "%s", others[i]);
    td_error_init(&err);
    assert_false(td_signed_url_write(set, ci, TD_SIGNED_POST, path, now_s, 60, &out, &expires_s, &err));
    assert_int_equal(err.code, TD_PERMISSION_DENIED);
    td_error_init(&err);
    assert_false(td_signed_url_write(set, writer, TD_SIGNED_POST, file, now_s, 60, &out, &expires_s, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    td_buffer_fini(&out);
    td_token_set_unref(set);
}

/* Checks what becomes of a wish for a URL for PUT; if it is signed, that it is good for no other method. */
static void check_put(const struct td_token_set *set, const char *path, const char *name, enum td_code code)
{
    static const char *const others[] = {"GET", "HEAD", "POST", "DELETE", "PATCH", "put"};
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer out;
    const struct td_token *token;
    struct td_text bare;
    int64_t expires_s;
    const struct td_token *signer = name == NULL ? NULL : td_token_set_find_name(set, td_text_of(name));
    td_buffer_init(&out);
    bool ok = td_signed_url_write(set, signer, TD_SIGNED_PUT, td_text_of(path), now_s, 60, &out, &expires_s, &err);
    CHECK(ok == (code == TD_OK) && err.code == code, "%s: %s", path, err.message);
    struct td_text url = td_buffer_text(&out);
    CHECK(!ok || td_signed_url_check(set, TD_TEXT("PUT"), url, now_s, &token, &bare, &err), "%s", err.message);
    assert_true(!ok || token == signer);
    for (size_t i = 0; ok && i < COUNT_OF(others); i++)
        CHECK(!td_signed_url_check(set, td_text_of(others[i]), url, now_s, &token, &bare, &err), "%s", others[i]);
    td_buffer_fini(&out);
}

/* shows: security.md publish-signed-urls */
static void puts_are_signed_by_who_may_write(void **state)
{
    (void)state;
    static const struct {
        const char *path, *name; /* of the token; NULL: the holder */
        enum td_code code;
    } cases[] = {
        {"/models/org/m/files/a", "writer", TD_OK},
        {"/models/org/m/files/a/b.bin?revision=x", "writer", TD_OK},
        {"/models/org%2fm/files/a", "writer", TD_OK},
        {"/models/one/files/files/a", "writer", TD_OK},
        {"/models/local/one/files/a", "writer", TD_OK},
        {"/models/org/m/blobs/sha256:" HEX, "writer", TD_OK},
        {"/models/org/m/blobs/sha256%3A" HEX, "writer", TD_OK},
        {"/datasets/org/rows/files/train.jsonl", "writer", TD_OK},
        {"/models/any/thing/files/a", NULL, TD_OK},
        {"/models/org/other/files/a", "writer", TD_PERMISSION_DENIED},
        {"/models/org/files/a", "writer", TD_PERMISSION_DENIED},
        {"/models/org/rows/files/a", "writer", TD_PERMISSION_DENIED},
        {"/datasets/other/rows/files/a", "writer", TD_PERMISSION_DENIED},
        {"/models/org/m/files/a", "ci", TD_PERMISSION_DENIED},
        {"/models/org/m", NULL, TD_INVALID_ARGUMENT},
        {"/models/org/m/", NULL, TD_INVALID_ARGUMENT},
        {"/models/org/m/files", NULL, TD_INVALID_ARGUMENT},
        {"/models/org/m/files/", NULL, TD_INVALID_ARGUMENT},
        {"/models//files/a", NULL, TD_INVALID_ARGUMENT},
        {"/models/org//files/a", NULL, TD_INVALID_ARGUMENT},
        {"/models/files/a", NULL, TD_INVALID_ARGUMENT},
        {"/models/a/b/c/files/a", NULL, TD_INVALID_ARGUMENT},
        {"/models/org/m/blobs", NULL, TD_INVALID_ARGUMENT},
        {"/models/org/m/blobs/", NULL, TD_INVALID_ARGUMENT},
        {"/models/org/m/blobs/sha256:" HEX "0", NULL, TD_INVALID_ARGUMENT},
        {"/models/org/m/blobs/sha512:" HEX, NULL, TD_INVALID_ARGUMENT},
        {"/models/org/m/blobs/" HEX, NULL, TD_INVALID_ARGUMENT},
        {"/models/org/m/commits", NULL, TD_INVALID_ARGUMENT},
        {"/models/org/m/tensors/w", NULL, TD_INVALID_ARGUMENT},
        {"/modelsx/org/m/files/a", NULL, TD_INVALID_ARGUMENT},
        {"/org/m/resolve/main/a", NULL, TD_INVALID_ARGUMENT},
        {"/sign", NULL, TD_INVALID_ARGUMENT},
        {"/", NULL, TD_INVALID_ARGUMENT},
    };
    struct td_token_set *set = make_set(1, "ci");
    int64_t expires_s;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_put(set, cases[i].path, cases[i].name, cases[i].code);
    char *get = sign_for(set, "writer", 60, &expires_s);
    check_rights(set, "GET", get, 0, "writer", NULL);
    check_rights(set, "PUT", get, 0, NULL, "wrong");
    free(get);
    td_token_set_unref(set);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct td_token_set *set = make_set(1, "ci");
    const struct td_token *ci = td_token_set_find_name(set, TD_TEXT("ci"));
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_error err = TD_ERROR_INIT;
        struct td_buffer out;
        const struct td_token *token;
        struct td_text bare;
        int64_t expires_s;
        td_buffer_init(&out);
        bool ok = td_signed_url_write(set, ci, TD_SIGNED_GET, TD_TEXT("/a?b"), now_s, 60, &out, &expires_s, &err) &&
                  td_signed_url_check(set, TD_TEXT("GET"), td_buffer_text(&out), now_s, &token, &bare, &err);
        td_buffer_clear(&out);
        ok = ok &&
             td_signed_url_write(set, NULL, TD_SIGNED_PUT, TD_TEXT("/models/m/files/a"), now_s, 60, &out, &expires_s,
                                 &err) &&
             td_signed_url_check(set, TD_TEXT("PUT"), td_buffer_text(&out), now_s, &token, &bare, &err);
        alloc_tried(&trials, ok, &err);
        td_buffer_fini(&out);
    }
    assert_true(trials.k > 3);
    td_token_set_unref(set);
}

/* A token of the form that `tensord token new` makes. */
#define TOKEN "td_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmno-_"

/* shows: security.md log-secrets */
static void logs_do_not_show_secrets(void **state)
{
    (void)state;
    static const struct {
        const char *target, *shown;
    } cases[] = {
        {"/a?b=c", "/a?b=c"},
        {"/signature", "/signature"},
        {"/signature/a=b?signatures=c", "/signature/a=b?signatures=c"},
        {"=?a%3", "=?a%3"},
        {"/signature=a", "/signature="},
        {"/a?expires=7&signature=ci.00", "/a?expires=7&signature="},
        {"/a?signature=ci.00&b=c", "/a?signature="},
        {"http://h/a?X-Amz-Signature=00", "http://h/a?X-Amz-Signature="},
        {"/a?AWSAccessKeyId=b&Signature=c", "/a?AWSAccessKeyId=b&Signature="},
        {"/a?expires=7&amp;signature=ci.00", "/a?expires=7&amp;signature="},
        {"/a?expires=7;signature=ci.00", "/a?expires=7;signature="},
        {"/a?expires=7%26signature=ci.00", "/a?expires=7%26signature="},
        {"/a%3Fexpires%3D7%26signature%3Dci.00", "/a%3Fexpires%3D7%26signature%3D"},
        {"/x?url=http%3a%2f%2fh%2fa%3fX-Amz-SIGNATURE%3d00&b", "/x?url=http%3a%2f%2fh%2fa%3fX-Amz-SIGNATURE%3d"},
        {"/a?a?signature=ci.00", "/a?a?signature="},
        {"/a?signature=ci.00&signature=ci.11", "/a?signature="},
        {"/a?token=b&c=d", "/a?token="},
        {"/a?c=d&Access_Token=b", "/a?c=d&Access_Token="},
        {"/a?page_token=b", "/a?page_token=b"},
        {"/a?key=" TOKEN, "/a?key="},
        {"/a?c&" TOKEN "&d", "/a?c&"},
        {"http://x:" TOKEN "@h/", "http://x:"},
        {"/a?x;token=b", "/a?x;token="},
        {"/a?match=td_model", "/a?match=td_model"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(td_text_equals(td_signed_url_without_secret(td_text_of(cases[i].target)), cases[i].shown), "%s",
              cases[i].target);
    assert_true(td_signed_url_is_meant(TD_TEXT("/a?b=c&signature=0&d")));
    assert_true(td_signed_url_is_meant(TD_TEXT("/a?signature")));
    assert_false(td_signed_url_is_meant(TD_TEXT("/signature=1?a=signature")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_message_is_the_documented_one),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(every_change_is_refused),
        cmocka_unit_test(other_orders_and_spellings_are_refused),
        cmocka_unit_test(paths_are_spelled_as_clients_send_them),
        cmocka_unit_test(long_paths_are_refused),
        cmocka_unit_test(urls_have_the_rights_of_who_signed),
        cmocka_unit_test(urls_do_not_outlive_their_token),
        cmocka_unit_test(the_method_is_signed),
        cmocka_unit_test(posts_ask_about_a_blob),
        cmocka_unit_test(puts_are_signed_by_who_may_write),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(logs_do_not_show_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
