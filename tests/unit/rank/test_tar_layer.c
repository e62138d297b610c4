/* Layers of images, by a reader of tar that is written here from POSIX.1-2017, pax. tests/interop/test_tar_layer.py
 * compares them with Python's tarfile and with GNU tar. */
#include "rank/tar_layer.h"

#include "tests/unit/alloc_trials.h"

enum { BLOCK = 512, PATH_CAPACITY = 5000 };

struct entry {
    char path[PATH_CAPACITY];
    uint64_t size_bytes;
    char type;
};

static uint64_t octal(const uint8_t *field, size_t len)
{
    uint64_t value = 0;
    for (size_t i = 0; i < len && field[i] != '\0' && field[i] != ' '; i++) {
        assert_true(field[i] >= '0' && field[i] <= '7');
        value = value * 8 + (uint64_t)(field[i] - '0');
    }
    return value;
}

static void check_block(const uint8_t *block)
{
    unsigned sum = 0;
    for (size_t i = 0; i < BLOCK; i++)
        sum += i >= 148 && i < 156 ? ' ' : block[i];
    assert_int_equal(octal(block + 148, 8), sum);
    assert_memory_equal(block + 257,
                        "ustar\0"
                        "00",
                        8);
    assert_int_equal(octal(block + 108, 8), 0);  /* user */
    assert_int_equal(octal(block + 116, 8), 0);  /* group */
    assert_int_equal(octal(block + 136, 12), 0); /* time */
}

/* Reads the records of a pax header. */
static void read_pax(const uint8_t *at, size_t len, struct entry *entry, bool *has_path, bool *has_size)
{
    while (len > 0) {
        char *end;
        unsigned long record = strtoul((const char *)at, &end, 10);
        size_t digits = (size_t)((const uint8_t *)end - at) + 1;
        assert_true(record > digits && record <= len && at[record - 1] == '\n');
        const char *key = (const char *)at + digits;
        size_t value_len = record - digits - 6;
        assert_true(memcmp(key, "path=", 5) == 0 || memcmp(key, "size=", 5) == 0);
        if (*key == 'p') {
            memcpy(entry->path, key + 5, value_len);
            entry->path[value_len] = '\0';
            *has_path = true;
        } else {
            entry->size_bytes = strtoull(key + 5, NULL, 10);
            *has_size = true;
        }
        at += record;
        len -= record;
    }
}

/* Reads the next entry's headers. Returns where they end. */
static const uint8_t *read_entry(const uint8_t *at, struct entry *entry)
{
    bool has_path = false;
    bool has_size = false;
    check_block(at);
    if (at[156] == 'x') {
        size_t len = (size_t)octal(at + 124, 12);
        read_pax(at + BLOCK, len, entry, &has_path, &has_size);
        at += BLOCK + (len + BLOCK - 1) / BLOCK * BLOCK;
        check_block(at);
    }
    if (!has_size)
        entry->size_bytes = octal(at + 124, 12);
    if (!has_path)
        (void)snprintf(entry->path, sizeof entry->path, "%.155s%s%.100s", (const char *)at + 345,
                       at[345] != '\0' ? "/" : "", (const char *)at);
    entry->type = (char)at[156];
    assert_int_equal(octal(at + 100, 8), entry->type == '5' ? 0755 : 0444);
    return at + BLOCK;
}

/* Checks that the headers of a file are those of its directories, and its own. */
static void check_headers(const char *path, uint64_t size_bytes)
{
    struct td_buffer header;
    struct entry entry;
    struct td_tar_file file = {.path = path, .size_bytes = size_bytes, .sha256 = ""};
    td_buffer_init(&header);
    td_tar_write_header(&header, &file, NULL);
    assert_false(header.failed);
    const uint8_t *at = (const uint8_t *)header.data;
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        at = read_entry(at, &entry);
        CHECK(entry.type == '5' && strlen(entry.path) == (size_t)(slash - path) + 1 &&
                  strncmp(entry.path, path, strlen(entry.path)) == 0 && entry.size_bytes == 0,
              "%s: '%s'", path, entry.path);
    }
    at = read_entry(at, &entry);
    CHECK(entry.type == '0' && strcmp(entry.path, path) == 0, "%s: '%s'", path, entry.path);
    assert_int_equal(entry.size_bytes, size_bytes);
    assert_int_equal((size_t)(at - (const uint8_t *)header.data), header.len);
    td_buffer_fini(&header);
}

/* Paths of every length, with a '/' at every `step`-th byte and a last part of one byte at least. */
static void every_length_of_a_path(void **state)
{
    (void)state;
    static const size_t steps[] = {1000, 2, 7, 50, 100, 101, 155, 156, 157};
    char path[400];
    for (size_t k = 0; k < COUNT_OF(steps); k++)
        for (size_t len = 1; len <= 300; len++) {
            for (size_t i = 0; i < len; i++)
                path[i] = i % steps[k] == steps[k] - 1 && i + 1 < len ? '/' : (char)('a' + i % 26);
            path[len] = '\0';
            check_headers(path, len);
        }
    check_headers("mod\303\250le/poids.safetensors", 5);
}

static bool size_of(const struct td_tar_file *files, size_t count, uint64_t *size_bytes, struct td_error *err)
{
    struct td_virtual_key key;
    return td_tar_layer_key("id", files, count, &key, size_bytes, err);
}

/* Makes the headers of files in deep directories with long names. */
/* shows: security.md oci-tar-headers */
static void the_bound_of_headers_holds(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 2, 50, 63, 99, 100, 101, 155, 255, 256, 300};
    static char paths[2][64 * 301 + 2];
    for (size_t k = 0; k < COUNT_OF(lengths); k++) {
        for (size_t depth = 0; depth <= 60; depth += 6) {
            for (size_t f = 0; f < 2; f++) { /* the second file has directories of its own */
                memset(paths[f], f == 0 ? 'a' : 'b', sizeof paths[f]);
                for (size_t i = 1; i <= depth; i++)
                    paths[f][i * (lengths[k] + 1) - 1] = '/';
                paths[f][depth * (lengths[k] + 1) + lengths[k]] = '\0';
            }
            const struct td_tar_file files[] = {{.path = paths[0], .size_bytes = UINT64_C(1) << 40, .sha256 = ""},
                                                {.path = paths[1], .size_bytes = 1, .sha256 = ""}};
            struct td_buffer header;
            td_buffer_init(&header);
            td_tar_write_header(&header, &files[0], NULL);
            td_tar_write_header(&header, &files[1], paths[0]);
            uint64_t bound = td_tar_header_bound(files, 2);
            CHECK(!header.failed && header.len <= bound && bound <= 4 * header.len, "%zu, %zu: %zu of %zu", lengths[k],
                  depth, header.len, (size_t)bound);
            td_buffer_fini(&header);
        }
    }
}

static void sizes_around_8_gib(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0,
                                     1,
                                     511,
                                     512,
                                     UINT64_C(8589934591),
                                     UINT64_C(8589934592),
                                     UINT64_C(8589934593),
                                     UINT64_C(1) << 40,
                                     INT64_MAX - UINT64_C(8192)};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct td_tar_file file = {.path = "a/b", .size_bytes = sizes[i], .sha256 = ""};
        uint64_t size_bytes;
        struct td_buffer header;
        check_headers("a/b", sizes[i]);
        td_buffer_init(&header);
        td_tar_write_header(&header, &file, NULL);
        assert_true(size_of(&file, 1, &size_bytes, NULL));
        assert_int_equal(size_bytes, header.len + (sizes[i] + 511) / 512 * 512 + 1024);
        /* base-256 is not used: a size of 8 GiB takes two more blocks */
        assert_int_equal(header.len, sizes[i] < UINT64_C(8589934592) ? 2 * BLOCK : 4 * BLOCK);
        td_buffer_fini(&header);
    }
    struct td_error err = TD_ERROR_INIT;
    struct td_tar_file file = {.path = "a", .size_bytes = INT64_MAX - UINT64_C(1024), .sha256 = ""};
    uint64_t size_bytes;
    assert_false(size_of(&file, 1, &size_bytes, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    file.size_bytes = UINT64_MAX;
    assert_false(size_of(&file, 1, &size_bytes, NULL));
}

static const struct td_tar_file three[] = {
    {.path = "a/b/one", .size_bytes = 513, .sha256 = "11"},
    {.path = "a/b/two", .size_bytes = 0, .sha256 = "22"},
    {.path = "a/c", .size_bytes = 1024, .sha256 = "33"},
};

static bool open_file(void *context, size_t i, struct td_blob **blob, struct td_error *err)
{
    (void)context;
    char *data = malloc((size_t)three[i].size_bytes + 1);
    if (data == NULL)
        return td_error_no_memory(err);
    memset(data, '1' + (int)i, (size_t)three[i].size_bytes);
    return td_blob_from_heap(data, (size_t)three[i].size_bytes, blob, err);
}

static const struct td_tar_opener opener = {.open = open_file};

static void a_layer_of_several_files(void **state)
{
    (void)state;
    static const char *const paths[] = {"a/", "a/b/", "a/b/one", "a/b/two", "a/c"}; /* each directory once */
    static uint8_t bytes[16384];
    struct td_body body;
    struct td_body_cursor cursor = {0};
    uint64_t size_bytes;
    td_body_init(&body);
    assert_true(td_tar_layer_append(three, COUNT_OF(three), &opener, &body, NULL));
    assert_true(size_of(three, COUNT_OF(three), &size_bytes, NULL));
    assert_int_equal(body.total_bytes, size_bytes);
    assert_true(size_bytes <= sizeof bytes && size_bytes % BLOCK == 0);
    assert_true(td_body_read(&body, &cursor, bytes, (size_t)size_bytes, NULL));
    const uint8_t *at = bytes;
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        struct entry entry;
        at = read_entry(at, &entry);
        assert_string_equal(entry.path, paths[i]);
        for (size_t k = 0; k < (entry.size_bytes + 511) / 512 * 512; k++)
            assert_int_equal(*at++, k >= entry.size_bytes ? 0 : i == 2 ? '1' : '3');
    }
    assert_int_equal((size_t)(at - bytes) + 1024, size_bytes);
    while (at < bytes + size_bytes)
        assert_int_equal(*at++, 0);
    td_body_fini(&body);
}

/* shows: security.md oci-hidden-layers */
static void keys_tell_layers_apart(void **state)
{
    (void)state;
    struct td_virtual_key keys[6];
    struct td_tar_file files[3];
    uint64_t size_bytes;
    memcpy(files, three, sizeof files);
    assert_true(td_tar_layer_key("id", files, 3, &keys[0], &size_bytes, NULL));
    assert_true(td_tar_layer_key("id", files, 2, &keys[1], &size_bytes, NULL));
    files[2].path = "a/d";
    assert_true(td_tar_layer_key("id", files, 3, &keys[2], &size_bytes, NULL));
    files[2].path = "a/c";
    files[2].size_bytes++;
    assert_true(td_tar_layer_key("id", files, 3, &keys[3], &size_bytes, NULL));
    files[2].size_bytes--;
    files[2].sha256 = "34";
    assert_true(td_tar_layer_key("id", files, 3, &keys[4], &size_bytes, NULL));
    files[2].sha256 = "33";
    assert_true(td_tar_layer_key("id", files, 3, &keys[5], &size_bytes, NULL));
    assert_memory_equal(&keys[0], &keys[5], sizeof keys[0]);
    assert_true(td_tar_layer_key("another", files, 3, &keys[5], &size_bytes, NULL)); /* of another repository */
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(&keys[i], &keys[k], sizeof keys[i]);
}

/* shows: security.md oci-layer-names */
static void whiteouts_are_no_files(void **state)
{
    (void)state;
    static const char *const bad[] = {".wh.a", ".wh.", "a/.wh.b", "a/.wh..wh..opq", ".wh.a/b", "a/b/.wh.c/d"};
    static const char *const good[] = {"a.wh.b", ".w", ".wha", "a/b.wh.", "x.wh./y", ""};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct td_error err = TD_ERROR_INIT;
        CHECK(!td_tar_path_check(bad[i], &err), "%s", bad[i]);
        assert_int_equal(err.code, TD_FAILED_PRECONDITION);
        check_says(&err, bad[i], "the message");
    }
    for (size_t i = 0; i < COUNT_OF(good); i++)
        CHECK(td_tar_path_check(good[i], NULL), "%s", good[i]);
}

static bool exercise(void)
{
    char path[301];
    struct td_body body;
    struct td_virtual_key key;
    struct td_error err = TD_ERROR_INIT;
    struct td_tar_file files[3];
    uint64_t size_bytes;
    memset(path, 'p', 300);
    path[300] = '\0';
    memcpy(files, three, sizeof files);
    files[1].path = path; /* needs a pax header */
    td_body_init(&body);
    bool ok = td_tar_layer_append(files, 3, &opener, &body, &err) &&
              td_tar_layer_key("id", files, 3, &key, &size_bytes, &err);
    assert_true(ok || err.code == TD_RESOURCE_EXHAUSTED);
    td_body_fini(&body);
    return ok;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct alloc_trials trials = {0};
    while (alloc_try(&trials))
        alloc_tried(&trials, exercise(), NULL);
    assert_true(trials.k > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_of_a_path),     cmocka_unit_test(sizes_around_8_gib),
        cmocka_unit_test(the_bound_of_headers_holds), cmocka_unit_test(a_layer_of_several_files),
        cmocka_unit_test(keys_tell_layers_apart),     cmocka_unit_test(whiteouts_are_no_files),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
