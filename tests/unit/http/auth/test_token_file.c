#include "http/auth/token_file.h"

#include "core/buffer.h"
#include "core/clock.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/tree_fixture.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY "\"master_key\": \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\""
#define SHA_A "6455c3042fb1e95d7bdf2402e178fe52864f37de5f2b993b469816e303e19ac5"
#define SHA_B "7455c3042fb1e95d7bdf2402e178fe52864f37de5f2b993b469816e303e19ac5"
#define SHA_C "0055c3042fb1e95d7bdf2402e178fe52864f37de5f2b993b469816e303e19ac5"
#define TOKEN(name, sha, more) "{\"name\": \"" name "\", \"sha256\": \"" sha "\"" more "}"
#define FILE_OF(tokens) "{\"version\": 1, " KEY ", \"tokens\": [" tokens "]}"

/* Tokens with all keys, with keys that are null, and one that sees nothing. */
#define CI                                               \
    TOKEN("ci", SHA_A,                                   \
          ", \"models\": [\"org/*\", \"d\\u00e9mo\"], "  \
          "\"rights\": [\"write\", \"read\"], "          \
          "\"expires\": \"2027-01-31T12:00:00+01:00\", " \
          "\"created\": \"2026-01-02T03:04:05.678Z\"")
#define ALL TOKEN("all", SHA_B, ", \"models\": null, \"expires\": null")
#define NONE TOKEN("none", SHA_C, ", \"models\": [], \"rights\": [\"write\"]")

static struct td_token_set *parse(const char *text, struct td_error *err)
{
    struct td_token_set *set = NULL;
    bool ok = td_token_text_parse(td_text_of(text), &set, err);
    assert_int_equal(ok, set != NULL);
    return set;
}

static void a_file_is_read(void **state)
{
    (void)state;
    struct td_error err = TD_ERROR_INIT;
    struct td_token_set *set = parse(FILE_OF(CI "," ALL "," NONE), &err);
    CHECK(set != NULL, "%s", err.message);
    const struct td_token *tokens = td_token_set_tokens(set);
    assert_int_equal(td_token_set_count(set), 3);
    assert_string_equal(tokens[0].name, "ci");
    assert_string_equal(tokens[0].models[0], "org/*");
    assert_string_equal(tokens[0].models[1], "d\xC3\xA9mo");
    assert_null(tokens[0].models[2]);
    assert_int_equal(tokens[0].rights, TD_RIGHT_READ | TD_RIGHT_WRITE);
    assert_int_equal(tokens[0].expires_s, 1801393200); /* date -d 2027-01-31T12:00:00+01:00 +%s */
    assert_int_equal(tokens[0].created_s, 1767323045);
    assert_true(tokens[0].sha256[0] == 0x64 && tokens[0].sha256[31] == 0xC5);
    assert_string_equal(tokens[0].access_key, "TD56YXPSLFTWP6RYUOEL"); /* as in test_token_set.c: the key was read */
    assert_true(tokens[1].models == NULL && tokens[1].expires_s == 0 && tokens[1].rights == TD_RIGHT_READ);
    assert_true(tokens[2].models != NULL && tokens[2].models[0] == NULL && tokens[2].rights == TD_RIGHT_WRITE);
    td_token_set_unref(set);
    set = parse("{\"tokens\": [], \"version\": 1, " KEY "}", &err);
    assert_int_equal(td_token_set_count(set), 0);
    td_token_set_unref(set);
}

/* shows: security.md token-bad-file */
static void every_fault_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", ""},
        {"[]", "an object with version, master_key and tokens"},
        {"{}", "the key \"version\" is missing"},
        {"{\"version\": 1}", "the key \"master_key\" is missing"},
        {"{\"version\": 1, " KEY "}", "the key \"tokens\" is missing"},
        {FILE_OF("") "x", ""},
        {"{\"version\": 2, " KEY ", \"tokens\": []}", "\"version\" must be 1"},
        {"{\"version\": \"1\", " KEY ", \"tokens\": []}", "\"version\" must be 1"},
        {"{\"version\": -1, " KEY ", \"tokens\": []}", "-1"},
        {"{\"version\": 1, \"version\": 1, " KEY ", \"tokens\": []}", "the key \"version\" is given twice"},
        {"{\"version\": 1, " KEY ", \"token\": []}", "unknown key \"token\"; the keys are version, master_key and"},
        {"{\"version\": 1, \"master_key\": 7, \"tokens\": []}", "\"master_key\" must be a string"},
        {"{\"version\": 1, \"master_key\": \"\", \"tokens\": []}", "\"master_key\" must be 32 random bytes"},
        {"{\"version\": 1, \"master_key\": \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh\", \"tokens\": []}",
         "\"master_key\" must be 32 random bytes"},
        {"{\"version\": 1, \"master_key\": \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8A\", \"tokens\": []}",
         "\"master_key\" must be 32 random bytes"},
        {"{\"version\": 1, \"master_key\": \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\", \"tokens\": []}",
         "\"master_key\" must be 32 random bytes"},
        {"{\"version\": 1, \"master_key\": \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\", \"tokens\": []}",
         "\"master_key\" must be random"},
        {"{\"version\": 1, " KEY ", \"tokens\": {}}", "\"tokens\" must be an array"},
        {FILE_OF("1"), "a token must be an object"},
        {FILE_OF("{}"), "the token lacks the key \"name\""},
        {FILE_OF("{\"name\": \"a\"}"), "the token lacks the key \"sha256\""},
        {FILE_OF(TOKEN("a b", SHA_A, "")), "not \"a b\""},
        {FILE_OF(TOKEN("", SHA_A, "")), "a name has 1 to 64"},
        {FILE_OF(TOKEN("a\\u0000", SHA_A, "")), ""},
        {FILE_OF("{\"name\": null}"), "\"name\" must be a string"},
        {FILE_OF(TOKEN("a", "ab", "")), "\"sha256\" must be the SHA-256"},
        {FILE_OF(TOKEN("a", SHA_A "0", "")), "\"sha256\" must be the SHA-256"},
        {FILE_OF(TOKEN("a", "6455C3042fb1e95d7bdf2402e178fe52864f37de5f2b993b469816e303e19ac5", "")),
         "lower-case hexadecimal"},
        {FILE_OF(TOKEN("a", SHA_A, ", \"models\": \"x\"")), "\"models\" must be null or an array"},
        {FILE_OF(TOKEN("a", SHA_A, ", \"models\": [\"\"]")), "a glob must be a string of 1 to 1024 bytes"},
        {FILE_OF(TOKEN("a", SHA_A, ", \"models\": [1]")), "a glob must be a string of 1 to 1024 bytes"},
        {FILE_OF(TOKEN("a", SHA_A, ", \"models\": [\"a\\u0000\"]")), ""},
        {FILE_OF(TOKEN("a", SHA_A, ", \"rights\": \"read\"")), "\"rights\" must be an array"},
        {FILE_OF(TOKEN("a", SHA_A, ", \"rights\": []")), "\"rights\" must hold"},
        {FILE_OF(TOKEN("a", SHA_A, ", \"rights\": [\"admin\"]")),
         "the rights are \"read\" and \"write\", not \"admin\""},
        {FILE_OF(TOKEN("a", SHA_A, ", \"expires\": \"tomorrow\"")), "not \"tomorrow\""},
        {FILE_OF(TOKEN("a", SHA_A, ", \"expires\": \"1970-01-01T00:00:00Z\"")), "a time after 1970"},
        {FILE_OF(TOKEN("a", SHA_A, ", \"expires\": \"9999-12-31T23:59:59-05:00\"")), "a time after 1970"},
        {FILE_OF(TOKEN("a", SHA_A, ", \"expires\": 1801393200")), "\"expires\" must be a string"},
        {FILE_OF(TOKEN("a", SHA_A, ", \"created\": null")), "\"created\" must be a string"},
        {FILE_OF(TOKEN("a", SHA_A, ", \"token\": \"x\"")), "unknown key \"token\"; a token has name"},
        {FILE_OF(TOKEN("a", SHA_A, ", \"name\": \"b\"")), "the key \"name\" is given twice"},
        {FILE_OF(TOKEN("a", SHA_A, "") "," TOKEN("b", SHA_B, "") "," TOKEN("a", SHA_B, "")),
         "two tokens have the name \"a\""},
        {FILE_OF(TOKEN("a", SHA_A, "") "," TOKEN("b", SHA_A, "")), "\"a\" and \"b\" have the same \"sha256\""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct td_error err = TD_ERROR_INIT;
        CHECK(parse(cases[i].text, &err) == NULL, "%s", cases[i].text);
        check_error(&err, strlen(cases[i].text), true, cases[i].text);
        check_says(&err, cases[i].says, cases[i].text);
        assert_int_equal(err.code, TD_INVALID_ARGUMENT);
        assert_null(strstr(err.message, "AAECAwQF")); /* the master key */
    }
}

/* Nothing of the master key, as text or as bytes, is left in memory that was freed. */
static void the_master_key_is_erased(void **state)
{
    static const char key[] = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
    struct tree *tree = *state;
    struct td_error err = TD_ERROR_INIT;
    struct td_token_set *set = NULL;
    char path[TREE_PATH_BYTES];
    struct td_buffer text;
    uint8_t bytes[32];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    td_buffer_init(&text);
    td_buffer_puts(&text, FILE_OF(CI));
    while (text.len < 400000) /* more than one step of reading */
        td_buffer_putc(&text, '\n');
    tree_at(tree, "tokens", path);
    tree_write(tree, "tokens", text.data, text.len);
    assert_int_equal(chmod(path, 0600), 0);
    td_buffer_fini(&text);
    for (int as_bytes = 0; as_bytes < 2; as_bytes++) {
        alloc_look_for(as_bytes ? (const void *)bytes : key, as_bytes ? sizeof bytes : sizeof key - 1);
        CHECK(td_token_file_read(path, &set, &err), "%s", err.message);
        td_token_set_unref(set);
        assert_int_equal(alloc_found(), 0);
    }
    alloc_look_for(key, sizeof key - 1);
    td_buffer_puts(&text, key);
    td_buffer_fini(&text);
    assert_int_equal(alloc_found(), 1);
    alloc_look_for(NULL, 0);
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    static const char text[] = FILE_OF(TOKEN("a", SHA_A, ", \"models\": [\"x\", \"y*\"], \"rights\": [\"read\"]"));
    for (size_t len = 0; len < sizeof text - 1; len++) {
        struct td_error err = TD_ERROR_INIT;
        struct td_token_set *set = NULL;
        CHECK(!td_token_text_parse(td_text_n(text, len), &set, &err), "%zu bytes", len);
        check_error(&err, len, true, text);
    }
}

static void want_of_memory_is_an_error(void **state)
{
    (void)state;
    static const char text[] = FILE_OF(TOKEN("a", SHA_A, ", \"models\": [\"x\"]") "," TOKEN("b", SHA_B, ""));
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct td_error err = TD_ERROR_INIT;
        struct td_token_set *set = parse(text, &err);
        alloc_tried(&trials, set != NULL, &err);
        td_token_set_unref(set);
    }
    assert_true(trials.k > 3);
}

/* ---- files ----------------------------------------------------------------------------------------------- */

static void path_in(const struct tree *tree, const char *name, char path[TREE_PATH_BYTES])
{
    tree_at(tree, name, path);
}

static void set_mode(const char *path, mode_t mode)
{
    assert_int_equal(chmod(path, mode), 0);
}

static bool reads(const char *path, struct td_error *err)
{
    struct td_token_set *set = NULL;
    td_error_init(err);
    bool ok = td_token_file_read(path, &set, err);
    assert_int_equal(ok, set != NULL);
    td_token_set_unref(set);
    return ok;
}

/* shows: security.md token-bad-file */
static void only_narrow_modes_are_read(void **state)
{
    struct tree *tree = *state;
    struct td_error err;
    char path[TREE_PATH_BYTES];
    path_in(tree, "tokens", path);
    tree_write(tree, "tokens", FILE_OF(""), strlen(FILE_OF("")));
    for (mode_t mode = 0; mode <= 07777; mode++) {
        bool is_narrow = mode == 0600 || mode == 0400 || mode == 0640 || mode == 0440;
        set_mode(path, mode);
        bool ok = reads(path, &err);
        CHECK(ok == is_narrow, "mode %04o: %s", (unsigned)mode, err.message);
        if (!ok && (mode & 0400) != 0) {
            check_says(&err, "chmod 0600", path);
            assert_int_equal(err.code, TD_PERMISSION_DENIED);
        }
    }
    set_mode(path, 0600);
    if (geteuid() == 0) { /* only root can give files away, and can run as another user */
        assert_int_equal(chown(path, 12345, (gid_t)-1), 0);
        assert_false(reads(path, &err));
        check_says(&err, "belongs to user 12345", path);
        assert_int_equal(seteuid(12345), 0);
        bool ok = reads(path, &err);
        assert_int_equal(seteuid(0), 0);
        CHECK(ok || strstr(err.message, "Permission denied") != NULL, "%s", err.message); /* of the directory */
    }
}

/* shows: security.md token-bad-file */
static void other_files_are_refused(void **state)
{
    struct tree *tree = *state;
    struct td_error err;
    char path[TREE_PATH_BYTES];
    path_in(tree, "none", path);
    assert_false(reads(path, &err));
    check_says(&err, "No such file", path);
    assert_false(reads(tree->path, &err));
    check_says(&err, "not a regular file", path);
    path_in(tree, "fifo", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(reads(path, &err)); /* at once: nobody writes to it */
    check_says(&err, "not a regular file", path);
    tree_write(tree, "bad", "{\n\n  7}", 7);
    path_in(tree, "bad", path);
    set_mode(path, 0600);
    assert_false(reads(path, &err));
    check_says(&err, "bad\", line 3, column 3: ", path);
    int fd = open(path, O_WRONLY);
    assert_int_equal(ftruncate(fd, TD_TOKEN_FILE_BYTES + 1), 0);
    assert_int_equal(close(fd), 0);
    assert_false(reads(path, &err));
    check_says(&err, "has more than 16777216 bytes", path);
}

static void too_many_tokens_are_refused(void **state)
{
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        struct td_buffer text;
        struct td_token_set *set = NULL;
        struct td_error err = TD_ERROR_INIT;
        td_buffer_init(&text);
        td_buffer_puts(&text, "{\"version\": 1, " KEY ", \"tokens\": [");
        for (size_t i = 0; i < TD_TOKENS_MAX + more; i++)
            td_buffer_printf(&text, "%s{\"name\": \"t%zu\", \"sha256\": \"%064zx\"}", i == 0 ? "" : ",", i, i);
        td_buffer_puts(&text, "]}");
        assert_int_equal(td_token_text_parse(td_buffer_text(&text), &set, &err), more == 0);
        if (more > 0)
            check_says(&err, "at most 10000 tokens", "tokens");
        else
            assert_string_equal(td_token_set_find_name(set, TD_TEXT("t9999"))->name, "t9999");
        td_token_set_unref(set);
        td_buffer_clear(&text);
        td_buffer_puts(&text, "{\"version\": 1, " KEY ", \"tokens\": [{\"name\": \"a\", \"sha256\": \"" SHA_A
                              "\", \"models\": [\"m\"");
        for (size_t i = 1; i < TD_TOKEN_MODELS_MAX + more; i++)
            td_buffer_printf(&text, ",\"m%zu\"", i);
        td_buffer_puts(&text, "]}]}");
        td_error_init(&err);
        assert_int_equal(td_token_text_parse(td_buffer_text(&text), &set, &err), more == 0);
        if (more > 0)
            check_says(&err, "at most 1000 globs", "models");
        td_token_set_unref(set);
        td_buffer_fini(&text);
    }
}

/* 64 globs of 1,024 bytes are as much as a token may have. */
/* shows: security.md token-slow-patterns */
static void long_globs_are_few(void **state)
{
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        struct td_buffer text;
        struct td_token_set *set = NULL;
        struct td_error err = TD_ERROR_INIT;
        td_buffer_init(&text);
        td_buffer_puts(&text, "{\"version\": 1, " KEY ", \"tokens\": [{\"name\": \"a\", \"sha256\": \"" SHA_A
                              "\", \"models\": [");
        for (size_t i = 0; i < 64; i++)
            td_buffer_printf(&text, "%s\"%01024zu\"", i == 0 ? "" : ",", i);
        td_buffer_puts(&text, more == 0 ? "]}]}" : ",\"x\"]}]}");
        assert_int_equal(td_token_text_parse(td_buffer_text(&text), &set, &err), more == 0);
        if (more > 0)
            check_says(&err, "65536 bytes together", "models");
        td_token_set_unref(set);
        td_buffer_fini(&text);
    }
}

static void the_right_to_write_is_kept(void **state)
{
    struct tree *tree = *state;
    struct td_error err = TD_ERROR_INIT;
    struct td_token_set *set = NULL;
    char path[TREE_PATH_BYTES], text[TD_TOKEN_TEXT_BYTES];
    const struct td_new_token writer = {.name = "writer", .may_write = true}, reader = {.name = "reader"};
    path_in(tree, "tokens", path);
    CHECK(td_token_file_add(path, &writer, text, &set, &err), "%s", err.message);
    assert_int_equal(td_token_set_tokens(set)[0].rights, TD_RIGHT_READ | TD_RIGHT_WRITE);
    td_token_set_unref(set);
    CHECK(td_token_file_add(path, &reader, text, &set, &err), "%s", err.message);
    td_token_set_unref(set);
    CHECK(td_token_file_read(path, &set, &err), "%s", err.message);
    assert_int_equal(td_token_set_find_name(set, TD_TEXT("writer"))->rights, TD_RIGHT_READ | TD_RIGHT_WRITE);
    assert_int_equal(td_token_set_find_name(set, TD_TEXT("reader"))->rights, TD_RIGHT_READ);
    td_token_set_unref(set);
}

/* ---- changes --------------------------------------------------------------------------------------------- */

static bool add(const char *path, const char *name, const char *const *models, int64_t expires_s,
                char text[TD_TOKEN_TEXT_BYTES], struct td_error *err)
{
    const struct td_new_token token = {.name = name, .models = models, .expires_s = expires_s};
    struct td_token_set *set = NULL;
    td_error_init(err);
    bool ok = td_token_file_add(path, &token, text, &set, err);
    assert_int_equal(ok, set != NULL);
    if (ok)
        assert_string_equal(td_token_set_find(set, td_text_of(text))->name, name);
    td_token_set_unref(set);
    return ok;
}

static void tokens_are_added_and_removed(void **state)
{
    static const char *const globs[] = {"org/*", "a\"b\\c", NULL};
    struct tree *tree = *state;
    struct td_error err;
    struct stat st;
    char path[TREE_PATH_BYTES];
    char first[TD_TOKEN_TEXT_BYTES], second[TD_TOKEN_TEXT_BYTES], third[TD_TOKEN_TEXT_BYTES];
    path_in(tree, "tokens", path);
    CHECK(add(path, "a", NULL, 0, first, &err), "%s", err.message);
    assert_true(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600);
    CHECK(add(path, "b", globs, 1801393200, second, &err), "%s", err.message);
    assert_true(strlen(first) == 46 && memcmp(first, "td_", 3) == 0 && strcmp(first, second) != 0);
    assert_false(add(path, "b", NULL, 0, third, &err));
    check_says(&err, "there is a token \"b\" already", path);
    assert_int_equal(err.code, TD_CONFLICT);

    struct td_token_set *set = NULL;
    td_error_init(&err);
    CHECK(td_token_file_read(path, &set, &err), "%s", err.message);
    const struct td_token *token = td_token_set_find(set, td_text_of(second));
    assert_string_equal(token->name, "b");
    assert_string_equal(token->models[1], "a\"b\\c");
    assert_int_equal(token->expires_s, 1801393200);
    int64_t age_s = td_wall_now().seconds - token->created_s;
    assert_true(age_s >= 0 && age_s < 60);
    struct td_token_set *before = set;

    assert_true(td_token_file_remove(path, "a", &err));
    assert_false(td_token_file_remove(path, "a", &err));
    check_says(&err, "there is no token \"a\"", path);
    td_error_init(&err);
    assert_true(td_token_file_read(path, &set, &err));
    assert_null(td_token_set_find(set, td_text_of(first)));
    assert_string_equal(td_token_set_find(set, td_text_of(second))->access_key,
                        token->access_key); /* same master key */
    td_token_set_unref(set);
    td_token_set_unref(before);
}

static void mode_owner_and_link_stay(void **state)
{
    struct tree *tree = *state;
    struct td_error err;
    struct stat st;
    char path[TREE_PATH_BYTES], link_path[TREE_PATH_BYTES], text[TD_TOKEN_TEXT_BYTES];
    path_in(tree, "tokens", path);
    path_in(tree, "link", link_path);
    tree_write(tree, "tokens", FILE_OF(""), strlen(FILE_OF("")));
    assert_int_equal(symlink("tokens", link_path), 0);
    set_mode(path, 0640);
    if (geteuid() == 0)
        assert_int_equal(chown(path, 0, 12345), 0);
    CHECK(add(link_path, "a", NULL, 0, text, &err), "%s", err.message);
    assert_true(lstat(link_path, &st) == 0 && S_ISLNK(st.st_mode));
    assert_true(stat(path, &st) == 0 && (st.st_mode & 07777) == 0640);
    assert_true(geteuid() != 0 || st.st_gid == 12345);
    char dangling[TREE_PATH_BYTES];
    path_in(tree, "dangling", dangling);
    assert_int_equal(symlink("nowhere", dangling), 0);
    assert_false(add(dangling, "b", NULL, 0, text, &err)); /* the link must stay */
    check_says(&err, "is a link to a file that does not exist", dangling);
    assert_true(lstat(dangling, &st) == 0 && S_ISLNK(st.st_mode));
    td_error_init(&err);
    assert_true(td_token_file_remove(link_path, "a", &err));
    assert_true(stat(path, &st) == 0 && (st.st_mode & 07777) == 0640);
    assert_true(geteuid() != 0 || st.st_gid == 12345);
    set_mode(path, 0644);
    assert_false(add(path, "b", NULL, 0, text, &err)); /* a file that others read is not made worse */
    check_says(&err, "chmod 0600", path);
}

/* shows: security.md token-bad-commands */
static void bad_tokens_change_nothing(void **state)
{
    static const char *const bad_utf8[] = {"\xFF", NULL};
    static const char *const empty[] = {"", NULL};
    struct tree *tree = *state;
    struct td_error err;
    char path[TREE_PATH_BYTES], text[TD_TOKEN_TEXT_BYTES];
    path_in(tree, "tokens", path);
    assert_false(add(path, "a b", NULL, 0, text, &err));
    check_says(&err, "not \"a b\"", path);
    assert_false(add(path, "a", bad_utf8, 0, text, &err));
    check_says(&err, "a glob of models", path);
    assert_false(add(path, "a", empty, 0, text, &err));
    check_says(&err, "a glob of models", path);
    static char long_glob[1025];
    const char *long_globs[66] = {NULL};
    memset(long_glob, 'x', sizeof long_glob - 1);
    for (size_t i = 0; i < 65; i++)
        long_globs[i] = long_glob;
    assert_false(add(path, "a", long_globs, 0, text, &err));
    check_says(&err, "65536 bytes together", path);
    assert_false(add(path, "a", NULL, INT64_C(253402300800), text, &err)); /* 10000-01-01T00:00:00Z */
    check_says(&err, "could not be read again", path);
    assert_int_equal(access(path, F_OK), -1);
    td_error_init(&err);
    assert_false(td_token_file_remove(path, "a", &err));
    check_says(&err, "No such file", path);
    assert_false(add("/nonexistent/tokens", "a", NULL, 0, text, &err));
    check_says(&err, "/nonexistent/tokens", path);
}

/* shows: security.md token-concurrent-commands */
static void writers_wait_for_each_other(void **state)
{
    enum { WRITERS = 16 };
    struct tree *tree = *state;
    char path[TREE_PATH_BYTES];
    path_in(tree, "tokens", path);
    for (int i = 0; i < WRITERS; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct td_error err = TD_ERROR_INIT;
            struct td_token_set *set = NULL;
            char name[8], text[TD_TOKEN_TEXT_BYTES];
            (void)snprintf(name, sizeof name, "t%d", i);
            const struct td_new_token token = {.name = name};
            bool ok = td_token_file_add(path, &token, text, &set, &err);
            td_token_set_unref(set);
            _exit(ok ? 0 : 1);
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        int status;
        assert_true(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    struct td_token_set *set = NULL;
    struct td_error err = TD_ERROR_INIT;
    CHECK(td_token_file_read(path, &set, &err), "%s", err.message);
    assert_int_equal(td_token_set_count(set), WRITERS);
    td_token_set_unref(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read),
        cmocka_unit_test(every_fault_is_named),
        TEST_IN(tree, the_master_key_is_erased),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(want_of_memory_is_an_error),
        TEST_IN(tree, only_narrow_modes_are_read),
        TEST_IN(tree, other_files_are_refused),
        cmocka_unit_test(too_many_tokens_are_refused),
        cmocka_unit_test(long_globs_are_few),
        TEST_IN(tree, tokens_are_added_and_removed),
        TEST_IN(tree, the_right_to_write_is_kept),
        TEST_IN(tree, mode_owner_and_link_stay),
        TEST_IN(tree, bad_tokens_change_nothing),
        TEST_IN(tree, writers_wait_for_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
