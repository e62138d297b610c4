/* Archives made by hand, by the fields of POSIX and of GNU's tar.h, and by the writers' own programs. */
#include "parser/rows/webdataset.h"

#include "parser/rows/tar_header.h"
#include "tests/unit/parser/row_fixture.h"

enum { BLOCK = TD_TAR_BLOCK_BYTES };

/* An archive that is being made. */
struct archive {
    uint8_t *bytes; /* owned */
    size_t len;
};

static void archive_free(struct archive *a)
{
    free(a->bytes);
}

static uint8_t *add_block(struct archive *a)
{
    a->bytes = realloc(a->bytes, a->len + BLOCK);
    memset(a->bytes + a->len, 0, BLOCK);
    a->len += BLOCK;
    return a->bytes + a->len - BLOCK;
}

static void set_checksum(uint8_t *header)
{
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += header[i];
    (void)snprintf((char *)header + 148, 8, "%06o", sum);
}

/* Appends a header of POSIX, whose data follow by add_data. */
static uint8_t *add_header(struct archive *a, const char *name, char type, uint64_t size)
{
    uint8_t *header = add_block(a);
    memcpy(header, name, strlen(name));
    (void)snprintf((char *)header + 124, 12, "%011" PRIo64, size);
    header[156] = (uint8_t)type;
    memcpy(header + 257,
           "ustar\0"
           "00",
           8);
    set_checksum(header);
    return header;
}

static void add_data(struct archive *a, const void *data, size_t len)
{
    for (size_t at = 0; at < len; at += BLOCK)
        memcpy(add_block(a), (const uint8_t *)data + at, len - at < BLOCK ? len - at : BLOCK);
}

static void add_member(struct archive *a, const char *name, char type, const char *data)
{
    (void)add_header(a, name, type, strlen(data));
    add_data(a, data, strlen(data));
}

/* Appends a header of pax with one record. */
static void add_record(struct archive *a, char type, const char *key, const char *value)
{
    char record[512];
    size_t len = strlen(key) + strlen(value) + 5; /* two digits, blank, =, line feed */
    (void)snprintf(record, sizeof record, "%zu %s=%s\n", len, key, value);
    assert_int_equal(strlen(record), len);
    add_member(a, "pax", type, record);
}

static struct row_case archive_case(const struct archive *a)
{
    return (struct row_case){.format = &td_row_format_webdataset, .name = "a.tar", .bytes = a->bytes, .len = a->len};
}

/* Checks that rows begin and end at these blocks, and frees the archive. */
static void check_blocks(struct archive *a, const size_t (*blocks)[2], size_t count, const char *what)
{
    struct row_case c = archive_case(a);
    struct td_row_index index = row_case_index(&c);
    CHECK(index.row_count == count, "%s: %d rows", what, (int)index.row_count);
    assert_int_equal(index.layout, TD_ROWS_PLACES);
    for (size_t i = 0; i < count; i++) {
        struct td_row row = row_case_find(&c, &index, i);
        CHECK(row.offset == blocks[i][0] * BLOCK && row.offset + row.bytes == blocks[i][1] * BLOCK,
              "%s, row %d: %d + %d", what, (int)i, (int)row.offset, (int)row.bytes);
    }
    td_row_index_fini(&index);
    row_case_prefixes(&c);
    row_case_allocations(&c, 1);
    archive_free(a);
}

#define CHECK_BLOCKS(a, what, ...)                                     \
    do {                                                               \
        static const size_t blocks[][2] = {__VA_ARGS__};               \
        check_blocks(a, blocks, sizeof blocks / sizeof *blocks, what); \
    } while (0)

static void keys_are_those_of_webdataset(void **state)
{
    (void)state;
    size_t len, count = 0;
    char *text = row_fixture_read("keys.json", &len);
    struct td_arena arena;
    struct td_json_document document;
    td_arena_init(&arena, 0);
    td_json_document_read(&document, td_text_n(text, len), &arena, NULL);
    const cJSON *list, *item;
    cJSON_ArrayForEach(list, document.root)
    {
        cJSON_ArrayForEach(item, list)
        {
            const char *path = td_json_document_string(&document, item);
            size_t got = td_webdataset_key(td_text_of(path));
            CHECK(got == strtoul(list->string, NULL, 10), "key of '%s': %zu bytes, not %s", path, got, list->string);
            count++;
        }
    }
    assert_true(count > 1000);
    td_arena_fini(&arena);
    __real_free(text);
}

static void samples_are_runs(void **state)
{
    (void)state;
    struct archive a = {0};
    add_member(&a, "a.txt", '0', "one");     /* 0 */
    add_member(&a, "a.png", '\0', "two");    /* 2 */
    add_member(&a, "b.txt", '7', "");        /* 4 */
    add_member(&a, "a.txt", '0', "a again"); /* 5 */
    add_member(&a, "A.txt", '0', "");        /* 7 */
    CHECK_BLOCKS(&a, "keys", {0, 4}, {4, 5}, {5, 7}, {7, 8});
    a = (struct archive){0};
    add_member(&a, "folder/", '5', "");       /* 0 */
    add_member(&a, "a.txt", '0', "one");      /* 1 */
    add_member(&a, "nothing", '0', "no key"); /* 3 */
    add_member(&a, "__m__/a.txt", '0', "m");  /* 5 */
    add_member(&a, "b.link", '2', "");        /* 7 */
    add_member(&a, "c.hard", '1', "");        /* 8 */
    add_member(&a, "d.pipe", '6', "");        /* 9 */
    add_member(&a, "e.volume", 'V', "");      /* 10 */
    add_member(&a, "f.unknown", 'Z', "data"); /* 11 */
    add_member(&a, "g.txt/", '\0', "");       /* 13: an old directory */
    add_member(&a, "a.png", '0', "two");      /* 14 */
    add_member(&a, "nothing", '0', "no key"); /* 16 */
    CHECK_BLOCKS(&a, "members of no sample", {1, 16});
    a = (struct archive){0};
    add_member(&a, "a.txt", '0', "one");
    (void)add_block(&a);
    add_member(&a, "b.txt", '0', "after the end");
    CHECK_BLOCKS(&a, "end", {0, 2});
    a = (struct archive){0};
    (void)add_block(&a);
    (void)add_block(&a);
    struct row_case c = archive_case(&a);
    struct td_row_index index = row_case_index(&c);
    assert_int_equal(index.row_count, 0);
    td_row_index_fini(&index);
    archive_free(&a);
}

static void headers_before_a_member_are_its_own(void **state)
{
    (void)state;
    struct archive a = {0};
    add_member(&a, "././@LongLink", 'L', "a.txt");       /* 0 */
    add_member(&a, "cut", '0', "one");                   /* 2 */
    add_record(&a, 'x', "path", "a.very-long-name.txt"); /* 4 */
    add_member(&a, "cut", '0', "two");                   /* 6 */
    add_member(&a, "././@LongLink", 'K', "target");      /* 8 */
    add_member(&a, "././@LongLink", 'L', "b.link.123");  /* 10 */
    add_member(&a, "cut", '2', "");                      /* 12 */
    add_record(&a, 'g', "comment", "for all of th");     /* 13 */
    add_record(&a, 'x', "mtime", "123456789.123");       /* 15 */
    add_member(&a, "b.txt", '0', "three");               /* 17 */
    add_record(&a, 'X', "path", "b.from-solaris///");    /* 19 */
    add_record(&a, 'g', "comment", "for all of th");     /* 21 */
    add_member(&a, "cut", '0', "");                      /* 23 */
    CHECK_BLOCKS(&a, "extensions", {0, 8}, {15, 24});
    a = (struct archive){0};
    add_record(&a, 'x', "size", "0000000000600"); /* 0: in place of the 3 in the header */
    (void)add_header(&a, "a.txt", '0', 3);        /* 2 */
    (void)add_block(&a);
    (void)add_block(&a);
    (void)add_header(&a, "b.txt", '0', 0); /* 5 */
    CHECK_BLOCKS(&a, "size by pax", {0, 5}, {5, 6});
}

static void paths_have_a_prefix(void **state)
{
    (void)state;
    struct archive a = {0};
    for (int i = 0; i < 4; i++) {
        uint8_t *header = add_header(&a, "a.txt", '0', 0);
        memcpy(header + 345, i % 2 == 0 ? "x" : "y", 1);
        if (i >= 2)
            memcpy(header + 257, "ustar  ", 8); /* GNU's own format has other fields there */
        set_checksum(header);
    }
    CHECK_BLOCKS(&a, "prefix", {0, 1}, {1, 2}, {2, 4});
    a = (struct archive){0};
    for (int i = 0; i < 2; i++) { /* fields without a NUL: the path has 256 bytes */
        uint8_t *header = add_header(&a, "", '0', 0);
        memset(header, 'n', 100);
        memset(header + 345, i == 0 ? 'p' : '.', 155);
        header[99] = '.';
        set_checksum(header);
    }
    CHECK_BLOCKS(&a, "full fields", {0, 1}, {1, 2});
}

static void numbers_have_several_forms(void **state)
{
    (void)state;
    static const struct {
        const char *size;
        bool ok;
    } cases[] = {
        {"00000000005\0", true},
        {"000000000005", true},
        {"5\0xxxxxxxxxx", true},
        {"   5       \0", true},
        {"          5 ", true},
        {"\x80\0\0\0\0\0\0\0\0\0\0\5", true},
        {"\x80\1\0\0\0\0\0\0\0\0\0\5", false}, /* 2^80 and 5 */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", false},
        {"\xc0\0\0\0\0\0\0\0\0\0\0\5", false},
        {"00000000008\0", false},
        {"-0000000005\0", false},
        {"5 5\0\0\0\0\0\0\0\0\0", false},
        {"0x5\0\0\0\0\0\0\0\0\0", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct archive a = {0};
        uint8_t *header = add_header(&a, "a.txt", '0', 5);
        memcpy(header + 124, cases[i].size, 12);
        set_checksum(header);
        add_data(&a, "12345", 5);
        struct row_case c = archive_case(&a);
        if (cases[i].ok) {
            struct td_row_index index = row_case_index(&c);
            assert_int_equal(row_case_find(&c, &index, 0).bytes, 2 * BLOCK);
            td_row_index_fini(&index);
        } else {
            row_case_refused(&c, 124, "its size is no number below 2^64");
        }
        archive_free(&a);
    }
}

/* Old writers summed signed bytes. */
static void checksums(void **state)
{
    (void)state;
    struct archive a = {0};
    uint8_t *header = add_header(&a, "\xc3\xa9.txt", '0', 0);
    unsigned sum = (unsigned)strtoul((char *)header + 148, NULL, 8);
    (void)snprintf((char *)header + 148, 8, "%06o", sum - 2 * 256);
    CHECK_BLOCKS(&a, "signed checksum", {0, 1});
    a = (struct archive){0};
    add_member(&a, "a.txt", '0', "");
    add_member(&a, "b.txt", '0', "");
    struct row_case c = archive_case(&a);
    for (size_t i = 0; i < BLOCK; i++) { /* any byte of the second header but those after the checksum's NUL */
        if (i == 155)
            continue;
        a.bytes[BLOCK + i] ^= 1;
        row_case_refused(&c, BLOCK + 148, "its checksum is");
        a.bytes[BLOCK + i] ^= 1;
    }
    archive_free(&a);
}

static void refused(struct archive *a, size_t block, size_t more, const char *says)
{
    struct row_case c = archive_case(a);
    row_case_refused(&c, block * BLOCK + more, says);
    archive_free(a);
}

static void wrong_members_are_refused(void **state)
{
    (void)state;
    struct archive a = {0};
    struct row_case none = {.format = &td_row_format_webdataset, .name = "a.tar", .bytes = "", .len = 0};
    row_case_refused(&none, 0, "the file is empty");
    add_member(&a, "a.txt", '0', "one");
    (void)add_header(&a, "a.png", '0', 513);
    (void)add_block(&a);
    refused(&a, 2, 0, "its 513 bytes, padded to 512, pass the end of the file, 512 bytes after its header");
    a = (struct archive){0};
    uint8_t *huge = add_header(&a, "a.txt", '0', 0);
    memcpy(huge + 124, "\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 12);
    set_checksum(huge);
    refused(&a, 0, 0, "its 18446744073709551615 bytes");
    a = (struct archive){0};
    add_member(&a, "a.txt", '0', "one");
    (void)add_block(&a);
    a.bytes[2 * BLOCK] = 'x';
    a.len -= 12;
    refused(&a, 2, 0, "only 500 of 512 bytes are there");
    a = (struct archive){0};
    add_member(&a, "a.txt", 'S', "");
    refused(&a, 0, 0, "it is sparse");
    for (char type = '1'; type <= '6'; type++) {
        a = (struct archive){0};
        add_member(&a, "a.txt", type, "data");
        refused(&a, 0, 0, "a directory, link, device or pipe has 4 bytes of data");
    }
    a = (struct archive){0};
    add_member(&a, "a.txt/", '\0', "data");
    refused(&a, 0, 0, "a directory, link, device or pipe has 4 bytes of data");
}

static void wrong_extensions_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *record;
        size_t at;
        const char *says;
    } cases[] = {
        {"12 path=a.b\n", 0, NULL},
        {"14 path=a.b\n", 0, "a record must be"},
        {"11 path=a.b\n", 0, "a record must be"},
        {"12 path=a.bx", 0, "a record must be"},
        {"12xpath=a.b\n", 0, "a record must be"},
        {"7 path\n", 0, "a record must be"},
        {"6 =ab\n", 0, "a record must be"},
        {"4 =\n", 0, "a record must be"},
        {"0 a=b\n", 0, "a record must be"},
        {"-6 a=b\n", 0, "a record must be"},
        {"99999999999999999999999 a=b\n", 0, "a record must be"},
        {"18446744073709551615 a=b\n", 0, "a record must be"},
        {"6 a=b\n6 a=b\nx", 12, "a record must be"},
        {"8 path=\n", 0, "a path is empty or holds a NUL"},
        {"6 a=b\n10 path=//\n", 6, "a record must be"},
        {"6 a=b\n11 path=//\n", 6, "a path is empty or holds a NUL"},
        {"6 a=b\n9 path=/\n", 6, "a path is empty or holds a NUL"},
        {"9 size=1\n9 size=x\n", 9, "its size is no number"},
        {"11 size=-1\n", 0, "its size is no number"},
        {"8 size=\n", 0, "its size is no number"},
        {"29 size=18446744073709551616\n", 0, "its size is no number"},
        {"22 GNU.sparse.major=1\n", SIZE_MAX, "it is sparse"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct archive a = {0};
        add_member(&a, "pax", 'x', cases[i].record);
        add_member(&a, "a.txt", '0', "");
        if (cases[i].says == NULL)
            CHECK_BLOCKS(&a, "record", {0, 3});
        else
            refused(&a, 0, cases[i].at == SIZE_MAX ? 0 : BLOCK + cases[i].at, cases[i].says);
    }
    struct archive a = {0};
    add_member(&a, "pax", 'x', "12 path=a?b\n");
    add_member(&a, "a.txt", '0', "");
    a.bytes[BLOCK + 9] = '\0';
    refused(&a, 0, BLOCK, "a path is empty or holds a NUL");
    static const char *const global[] = {"path", "size", "GNU.sparse.map"};
    static const char *const values[] = {"1234", "1234", "1234"};
    static const char *const says[] = {"a global one gives all members a path or a size",
                                       "a global one gives all members a path or a size", "it is sparse"};
    for (size_t i = 0; i < COUNT_OF(global); i++) {
        a = (struct archive){0};
        add_record(&a, 'g', global[i], values[i]);
        add_member(&a, "a.txt", '0', "");
        refused(&a, 0, 0, says[i]);
    }
}

static void one_member_has_one_path_and_size(void **state)
{
    (void)state;
    struct archive a = {0};
    add_record(&a, 'x', "path", "first.txt");
    add_member(&a, "././@LongLink", 'L', "second.txt");
    add_member(&a, "a.txt", '0', "");
    refused(&a, 2, 0, "a second one gives the member a path");
    a = (struct archive){0};
    add_record(&a, 'x', "size", "1234567890");
    add_record(&a, 'x', "size", "1234567890");
    add_member(&a, "a.txt", '0', "");
    refused(&a, 2, 0, "a second one gives the member a size");
    a = (struct archive){0};
    add_member(&a, "a.txt", '0', "");
    add_record(&a, 'x', "path", "first.txt");
    refused(&a, 1, 0, "the member that it describes is missing");
    a = (struct archive){0};
    add_member(&a, "././@LongLink", 'L', "a.txt");
    (void)add_block(&a);
    refused(&a, 0, 0, "the member that it describes is missing");
}

static void names_are_bounded(void **state)
{
    (void)state;
    size_t most = TD_TAR_PATH_BYTES, sizes[] = {0, 1, most, most + 1};
    char *name = malloc(most + 2);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct archive a = {0};
        memset(name, 'n', most + 1);
        name[sizes[i]] = '\0';
        if (sizes[i] > 1)
            name[sizes[i] - 1] = '.';
        (void)add_header(&a, "././@LongLink", 'L', sizes[i] + 1);
        add_data(&a, name, sizes[i] + 1);
        add_member(&a, "a.txt", '0', "");
        struct row_case c = archive_case(&a);
        if (sizes[i] == 0 || sizes[i] > most) {
            row_case_refused(&c, 0, "; 1 to 16383 are read");
        } else {
            struct td_row_index index = row_case_index(&c);
            assert_int_equal(index.row_count, sizes[i] > 1 ? 1 : 0);
            td_row_index_fini(&index);
        }
        archive_free(&a);
    }
    free(name);
    static const char types[] = "xgLK";
    for (size_t i = 0; types[i] != '\0'; i++) {
        struct archive a = {0};
        (void)add_header(&a, "long", types[i], TD_TAR_EXTENSION_BYTES + 1);
        refused(&a, 0, 0, "has 1048577 bytes; at most 1048576 are read");
        a = (struct archive){0};
        (void)add_header(&a, "long", types[i], TD_TAR_EXTENSION_BYTES);
        struct row_case c = archive_case(&a);
        struct td_row_index index;
        struct td_error err;
        assert_false(row_case_build(&c, 0, &index, &err));
        assert_int_equal(err.code, TD_INVALID_ARGUMENT); /* the data are missing */
        archive_free(&a);
    }
}

/* The index takes 16 bytes for each sample, and no more than it may. */
static void memory_is_bounded(void **state)
{
    (void)state;
    struct archive a = {0};
    char name[16];
    for (int i = 0; i < 3000; i++) {
        (void)snprintf(name, sizeof name, "%d.txt", i);
        add_member(&a, name, '0', "");
    }
    struct row_case c = archive_case(&a);
    struct td_row_index index = row_case_index(&c);
    assert_int_equal(index.row_count, 3000);
    assert_true(td_row_index_bytes(&index) <= sizeof index + 16 * 3000);
    td_row_index_fini(&index);
    struct td_error err;
    assert_false(row_case_build(&c, 30000, &index, &err));
    assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
    check_says(&err, "its index would take more than 30000 bytes", "memory");
    archive_free(&a);
}

static void a_build_can_be_watched_and_stopped(void **state)
{
    (void)state;
    struct archive a = {0};
    add_member(&a, "a.txt", '0', "one");
    add_member(&a, "b.txt", '0', "two");
    struct row_case c = archive_case(&a);
    struct td_row_files files = row_case_files(&c);
    struct td_limits limits = td_limits_default();
    _Atomic uint64_t done = 0;
    _Atomic bool stop = false;
    struct td_row_build build = {
        .files = &files, .name = c.name, .limits = &limits, .done_bytes = &done, .stop = &stop};
    struct td_row_index index;
    struct td_error err = TD_ERROR_INIT;
    assert_true(td_row_index_build(c.format, &build, &index, &err));
    assert_int_equal(done, 2 * BLOCK);
    td_row_index_fini(&index);
    stop = true;
    assert_false(td_row_index_build(c.format, &build, &index, &err));
    assert_int_equal(err.code, TD_UNAVAILABLE);
    archive_free(&a);
}

static void as_webdataset_reads(void **state)
{
    (void)state;
    row_fixtures_check("webdataset", 6, 8000, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_those_of_webdataset),
        cmocka_unit_test(samples_are_runs),
        cmocka_unit_test(headers_before_a_member_are_its_own),
        cmocka_unit_test(paths_have_a_prefix),
        cmocka_unit_test(numbers_have_several_forms),
        cmocka_unit_test(checksums),
        cmocka_unit_test(wrong_members_are_refused),
        cmocka_unit_test(wrong_extensions_are_refused),
        cmocka_unit_test(one_member_has_one_path_and_size),
        cmocka_unit_test(names_are_bounded),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(a_build_can_be_watched_and_stopped),
        cmocka_unit_test(as_webdataset_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
