/* The fixtures of tests/data/hdf5 against h5py's descriptions of them (tests/data/make_hdf5.py), and damaged. */
/* shows: security.md content-all-formats */
#include "parser/hdf5/hdf5.h"

#include "tests/unit/parser/format_fixture.h"

static struct sample hdf5_sample(const char *name, void *bytes, size_t len)
{
    return (struct sample){.format = &td_format_hdf5, .name = name, .bytes = bytes, .len = len};
}

/* Loads a fixture. If it is a patch, loads the fixture that the first line names and changes it: each further line has
 * an offset and a byte. */
static struct sample file_load(const char *name)
{
    size_t len;
    char *bytes = read_if_there("hdf5", name, ".h5", false, &len);
    if (bytes != NULL)
        return hdf5_sample(name, bytes, len);
    char *patch = read_text("hdf5", name, ".patch");
    char *line = strchr(patch, '\n');
    *line++ = '\0';
    bytes = read_file("hdf5", patch, ".h5", &len);
    while (*line != '\0') {
        size_t at = strtoul(line, &line, 10);
        assert_true(at < len);
        bytes[at] = (char)strtoul(line, &line, 16);
        line++;
    }
    __real_free(patch);
    return hdf5_sample(name, bytes, len);
}

/* Returns the position of the needle, which must be in the file. */
static uint8_t *position(const struct sample *file, const void *needle, size_t len)
{
    uint8_t *p = memmem(file->bytes, file->len, needle, len);
    CHECK(p != NULL, "no %s", (const char *)needle);
    return p;
}

static void parse(const struct sample *file, struct parsed *p)
{
    parse_bytes(file->format, file->bytes, file->len, p);
}

/* Returns a listing of the manifest in the form of the descriptions. The caller frees it. */
static char *list_manifest(const struct td_manifest *m)
{
    struct td_buffer out;
    td_buffer_init(&out);
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct td_tensor *t = &m->tensors[i];
        td_buffer_printf(&out, "T\t%s\t%s\t", t->name, t->dtype->name);
        list_shape(&out, t->shape, t->rank);
        const char *stored = t->reason == NULL ? td_tensor_stored(t) : t->reason;
        td_buffer_printf(&out, "\t%" PRIu64 "\t%" PRIu64 "\t%s\t%s\n", t->offset, t->nbytes,
                         stored == NULL ? "" : stored, t->alias_of == NULL ? "" : t->alias_of);
    }
    assert_non_null(td_buffer_terminate(&out));
    return out.data;
}

/* Finds each attribute by name, because h5py's order is not the file's. */
static void check_metadata(const struct td_manifest *m, const char *lines, const char *name)
{
    size_t count = 0;
    for (const char *line = lines; *line == 'M'; count++) {
        const char *key = line + 2;
        const char *tab = strchr(key, '\t');
        const char *end = strchr(line, '\n');
        const char *value = metadata_value(m, key, (size_t)(tab - key));
        CHECK(value != NULL, "%s: no metadata %.*s", name, (int)(tab - key), key);
        CHECK(strlen(value) == (size_t)(end - tab - 1) && memcmp(value, tab + 1, strlen(value)) == 0,
              "%s: metadata %.*s is %s", name, (int)(end - key), key, value);
        line = end + 1;
    }
    CHECK(count == m->metadata_count, "%s: %zu items of metadata, not %zu", name, m->metadata_count, count);
}

static void one_fixture(const char *name)
{
    struct sample file = file_load(name);
    char *text = read_text("hdf5", name, ".txt");
    struct parsed p;
    parse(&file, &p);
    if (text[0] == 'R') {
        check_refusal(&p, TD_INVALID_ARGUMENT, file.len, "", name);
    } else {
        CHECK(p.ok, "%s: %s at %" PRIu64, name, p.err.message, p.err.pos);
        const char *metadata = text[0] == 'M' ? text : strstr(text, "\nM\t");
        size_t tensors_len = metadata == NULL ? strlen(text) : (size_t)(metadata - text) + (*metadata == '\n');
        char *listing = list_manifest(&p.manifest);
        CHECK(strlen(listing) == tensors_len && memcmp(listing, text, tensors_len) == 0, "%s: expected\n%.*sgot\n%s",
              name, (int)tensors_len, text, listing);
        free(listing);
        check_metadata(&p.manifest, text + tensors_len, name);
    }
    parsed_fini(&p);
    __real_free(file.bytes);
    __real_free(text);
}

static void every_fixture_is_what_h5py_says(void **state)
{
    (void)state;
    DIR *dir = opendir(TD_TEST_DATA "/hdf5");
    assert_non_null(dir);
    size_t count = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        char name[256];
        size_t len = strlen(entry->d_name);
        if (len < 5 || strcmp(entry->d_name + len - 4, ".txt") != 0)
            continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)len - 4, entry->d_name);
        one_fixture(name);
        count++;
    }
    assert_int_equal(closedir(dir), 0);
    assert_true(count >= 24);
}

/* ---- what is refused, or has a reason ------------------------------------------------------------------- */

static const struct {
    const char *file, *name, *reason; /* no name: the file is refused, with reason in the message */
} bad_inputs[] = {
    {"links", "external", "external link to ../etc/passwd:/q"},
    {"links_latest", "external", "external link to ../etc/passwd:/q"},
    {"links", "soft", "soft link to /a/data"},
    {"links_latest", "soft", "soft link to /a/data"},
    {"links", "loop1", "soft link to /loop2"},
    {"links_latest", "loop2", "soft link to /loop1"},
    {"layouts", "external", "external storage"},
    {"layouts_latest", "external", "external storage"},
    {"layouts_latest", "virtual", "virtual"},
    {"layouts", "huge", "compressed (gzip)"},
    {"layouts_latest", "huge", "compressed (gzip)"},
    {"userblock", "unallocated", "not allocated"},
    {"bad_144_continuation_cycle", NULL, "used twice"},
    {"bad_145_past_the_end", "g/a", "past the end of the file"},
    {"layouts", "unknown_filter", "filtered (filter 40000)"},
    {"layouts_latest", "unknown_filter", "filtered (filter 40000)"},
    {"bad_superblock_checksum", NULL, "checksum"},
    {"bad_header_checksum", NULL, "checksum"},
    {"bad_tree_checksum", NULL, "checksum"},
    {"bad_heap_checksum", NULL, "checksum"},
    {"bad_block_checksum", NULL, "checksum"},
    {"bad_symbol_table", NULL, "SNOD"},
    {"bad_tree", NULL, "TREE"},
    {"bad_local_heap", NULL, "HEAP"},
};

/* shows: security.md content-hdf5-links */
static void bad_inputs_are_told_of(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad_inputs); i++) {
        struct sample file = file_load(bad_inputs[i].file);
        struct parsed p;
        parse(&file, &p);
        if (bad_inputs[i].name == NULL) {
            check_refusal(&p, TD_INVALID_ARGUMENT, file.len, bad_inputs[i].reason, bad_inputs[i].file);
        } else {
            CHECK(p.ok, "%s: %s", bad_inputs[i].file, p.err.message);
            const struct td_tensor *t = tensor(&p, bad_inputs[i].name);
            const char *stored = t->reason == NULL ? td_tensor_stored(t) : t->reason;
            assert_non_null(stored);
            assert_string_equal(stored, bad_inputs[i].reason);
            assert_int_equal(t->offset, 0);
        }
        parsed_fini(&p);
        __real_free(file.bytes);
    }
}

/* Two messages of one kind in an object's header are refused; libhdf5 takes the first. The test changes the type of the
 * fill value of "g/a", and in some rows of the message after its layout. */
/* shows: security.md content-hdf5-duplicates */
static void messages_that_are_there_twice(void **state)
{
    (void)state;
    static const char fill[] = "\5\0\x08\0\1\0\0\0";
    enum { AFTER_LAYOUT = 48 };
    static const struct {
        uint8_t fill_value, after_layout;
    } types[] = {{1, 0}, {3, 0}, {8, 0}, {7, 7}, {11, 11}, {0, 8}, {0, 3}};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct sample file = file_load("small");
        struct parsed p;
        uint8_t *at = memmem(file.bytes, file.len, fill, sizeof fill - 1);
        assert_non_null(at);
        *at = types[i].fill_value;
        if (types[i].after_layout != 0)
            at[AFTER_LAYOUT] = types[i].after_layout;
        parse(&file, &p);
        check_refusal(&p, TD_INVALID_ARGUMENT, file.len, "where one may be", "twice");
        parsed_fini(&p);
        __real_free(file.bytes);
    }
}

/* ---- damage -------------------------------------------------------------------------------------------- */

static const char *const small_files[] = {"small", "small_latest", "userblock", "narrow"};

static void every_prefix_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(small_files); i++) {
        struct sample file = file_load(small_files[i]);
        check_each_prefix(&file, file.len);
        __real_free(file.bytes);
    }
}

static bool is_unplaced(const struct td_error *err)
{
    return err->code == TD_RESOURCE_EXHAUSTED || strstr(err->message, "must be unique") != NULL;
}

static void every_byte_changed(void **state)
{
    (void)state;
    static const char *const files[] = {"small", "small_latest", "types", "links", "attributes"};
    static const uint8_t by[] = {0x01, 0x80, 0xFF};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct sample file = file_load(files[i]);
        check_each_flip(
            &file, (struct changes){.step = SANITIZED ? 3 : 1, .by = by, .count = sizeof by, .unplaced = is_unplaced});
    }
}

/* Checksums cover every byte of the newer structures: only changes to data and gaps go unseen. */
/* shows: security.md content-hdf5-links */
static void checksums_cover_the_structure(void **state)
{
    (void)state;
    struct sample file = file_load("small_latest");
    struct parsed p;
    uint8_t *bytes = file.bytes;
    size_t unseen = 0;
    for (size_t at = 0; at < file.len; at++) {
        bytes[at] ^= 0x10;
        parse(&file, &p);
        unseen += p.ok;
        parsed_fini(&p);
        bytes[at] ^= 0x10;
    }
    parse(&file, &p);
    assert_true(p.ok);
    CHECK(unseen >= p.manifest.total_bytes && unseen < file.len - 300, "%zu of %zu bytes changed unseen", unseen,
          file.len);
    parsed_fini(&p);
    __real_free(file.bytes);
}

static void every_failing_allocation(void **state)
{
    (void)state;
    static const char *const files[] = {"small", "many_latest", "attributes_latest", "types", "many", "links"};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct sample file = file_load(files[i]);
        assert_true(check_each_allocation(&file, TD_OK) >= 5);
        __real_free(file.bytes);
    }
}

static void memory_stays_within_its_limit(void **state)
{
    (void)state;
    struct sample file = file_load("many_latest");
    struct td_input input = td_input_memory(file.bytes, file.len);
    struct td_limits limits = td_limits_default();
    size_t refused = 0;
    bool ok = false;
    for (limits.max_memory_bytes = 1000; !ok; limits.max_memory_bytes += 9973) {
        struct parsed p;
        parse_input(&td_format_hdf5, &input, &limits, &p);
        ok = p.ok;
        CHECK(ok || p.err.code == TD_RESOURCE_EXHAUSTED, "%zu bytes: %s", limits.max_memory_bytes, p.err.message);
        CHECK(p.memory.peak_bytes <= limits.max_memory_bytes + 64 * 1024, "%zu bytes at a limit of %zu",
              p.memory.peak_bytes, limits.max_memory_bytes);
        refused += !ok;
        parsed_fini(&p);
    }
    assert_true(refused > 10);
    __real_free(file.bytes);
}

static void structure_stays_within_its_limit(void **state)
{
    (void)state;
    struct sample file = file_load("many");
    struct td_input input = td_input_memory(file.bytes, file.len);
    struct td_limits limits = td_limits_default();
    struct parsed p;
    for (limits.max_header_bytes = 0; limits.max_header_bytes < 3000; limits.max_header_bytes += 100) {
        parse_input(&td_format_hdf5, &input, &limits, &p);
        assert_false(p.ok);
        assert_int_equal(p.err.code, TD_RESOURCE_EXHAUSTED);
        parsed_fini(&p);
    }
    limits.max_header_bytes = file.len;
    parse_input(&td_format_hdf5, &input, &limits, &p);
    CHECK(p.ok, "%s", p.err.message);
    parsed_fini(&p);
    __real_free(file.bytes);
}

static void every_failing_read(void **state)
{
    (void)state;
    struct sample file = file_load("attributes");
    assert_true(check_each_read(&file) > 2);
    __real_free(file.bytes);
}

/* ---- names and links ----------------------------------------------------------------------------------- */

static void names_are_escaped(void **state)
{
    (void)state;
    struct sample file = file_load("many");
    memcpy(position(&file, "deeper", 7), "d/\xff\xc3(\x01", 6);
    struct parsed p;
    parse(&file, &p);
    CHECK(p.ok, "%s", p.err.message);
    (void)tensor(&p, "g/d\\x2F\\xFF\\xC3(\x01/x");
    parsed_fini(&p);
    __real_free(file.bytes);
}

/* libhdf5 never writes two links of one name. */
static void a_name_twice_is_refused(void **state)
{
    (void)state;
    struct sample file = file_load("many");
    memcpy(position(&file, "link33", 7), "link00", 6);
    struct parsed p;
    parse(&file, &p);
    CHECK(!p.ok && strstr(p.err.message, "link00") != NULL, "%s", p.err.message);
    parsed_fini(&p);
    __real_free(file.bytes);
}

static void the_superblock_is_found_behind_any_userblock(void **state)
{
    (void)state;
    struct sample file = file_load("small");
    for (size_t before = 256; before <= 16384; before *= 2) {
        uint8_t *moved = __real_calloc(1, before + file.len);
        memcpy(moved + before, file.bytes, file.len);
        struct parsed p;
        parse_bytes(file.format, moved, before + file.len, &p);
        assert_int_equal(p.ok, before >= 512);
        for (size_t i = 0; p.ok && i < tensor(&p, "b")->nbytes; i++)
            assert_int_equal(moved[tensor(&p, "b")->offset + i], i);
        parsed_fini(&p);
        __real_free(moved);
    }
    __real_free(file.bytes);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        const char *says;
    } cases[] = {
        {"", 0, "signature"},
        {"\x89HDF\r\n\x1a", 7, "signature"},
        {"\x89HDF\r\n\x1a\n", 8, "ends within"},
        {"\x89HDF\r\n\x1a\n\4", 9, "version 4 is unknown"},
        {"\x89HDF\r\n\x1a\n\0\0\0\0\0\3\10\0", 16, "superblock: addresses have 3 bytes"},
        {"\x89HDF\r\n\x1a\n\0\0\0\0\0\10\3\0", 16, "superblock: lengths have 3 bytes"},
        {"PK\3\4PK\3\4PK\3\4", 12, "signature"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct parsed p;
        parse_exact(&td_format_hdf5, cases[i].bytes, cases[i].len, &p);
        check_refusal(&p, TD_INVALID_ARGUMENT, cases[i].len, cases[i].says, cases[i].says);
        parsed_fini(&p);
    }
}

/* ---- torch archives ------------------------------------------------------------------------------------ */

/* make_hdf5.py made the archive with torch.save. */
static void a_torch_archive_is_read_as_one(void **state)
{
    (void)state;
    static const struct {
        const char *name, *dtype, *reason;
        uint64_t nbytes;
        int first; /* the first byte; each later one is larger by 1 */
    } wanted[] = {{"a", "U8", NULL, 8, 16},
                  {"b", "I8", NULL, 9, 32},
                  {"c", "U8", "compressed (gzip)", 100, 0},
                  {"d", "I32", "not a byte dataset", 20, 0}};
    size_t len;
    char *bytes = read_file("hdf5", "archive", ".hdf5", &len);
    struct parsed p;
    parse_bytes(&td_format_hdf5, bytes, len, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_int_equal(p.manifest.tensor_count, COUNT_OF(wanted));
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        const struct td_tensor *t = tensor(&p, wanted[i].name);
        assert_string_equal(t->dtype->name, wanted[i].dtype);
        assert_true(t->nbytes == wanted[i].nbytes);
        if (wanted[i].reason != NULL) {
            assert_string_equal(t->reason == NULL ? td_tensor_stored(t) : t->reason, wanted[i].reason);
            continue;
        }
        assert_null(t->reason);
        for (size_t k = 0; k < t->nbytes; k++)
            assert_int_equal(bytes[t->offset + k], wanted[i].first + (int)k);
    }
    parsed_fini(&p);
    __real_free(bytes);
}

static void a_torch_archive_lacks_what_it_needs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"archive_without_a_record", "storage \"data/1\" is not in the file"},
        {"archive_compressed_pickle", "dataset \"archive/data.pkl\" cannot be read: compressed (gzip)"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t len;
        char *bytes = read_file("hdf5", cases[i][0], ".hdf5", &len);
        struct parsed p;
        parse_bytes(&td_format_hdf5, bytes, len, &p);
        assert_int_equal(p.err.code, TD_INVALID_ARGUMENT);
        check_error(&p.err, len, false, cases[i][0]);
        check_says(&p.err, cases[i][1], cases[i][0]);
        parsed_fini(&p);
        __real_free(bytes);
    }
}

/* The pickle is longer than all of the structure, so at some limits only the pickle is refused. */
static void the_pickle_in_a_torch_archive_is_limited(void **state)
{
    (void)state;
    size_t len;
    char *bytes = read_file("hdf5", "archive", ".hdf5", &len);
    struct td_input input = td_input_memory(bytes, len);
    struct td_limits limits = td_limits_default();
    size_t pickles = 0;
    bool ok = false;
    for (limits.max_header_bytes = 0; !ok; limits.max_header_bytes += 250) {
        struct parsed p;
        parse_input(&td_format_hdf5, &input, &limits, &p);
        ok = p.ok;
        CHECK(ok || p.err.code == TD_RESOURCE_EXHAUSTED, "%s", p.err.message);
        pickles += strstr(p.err.message, "would have to be read into memory") != NULL;
        parsed_fini(&p);
    }
    assert_true(pickles > 2 && limits.max_header_bytes > 6000 && limits.max_header_bytes < 7000);
    __real_free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fixture_is_what_h5py_says),
        cmocka_unit_test(bad_inputs_are_told_of),
        cmocka_unit_test(messages_that_are_there_twice),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(every_byte_changed),
        cmocka_unit_test(checksums_cover_the_structure),
        cmocka_unit_test(every_failing_allocation),
        cmocka_unit_test(memory_stays_within_its_limit),
        cmocka_unit_test(structure_stays_within_its_limit),
        cmocka_unit_test(every_failing_read),
        cmocka_unit_test(names_are_escaped),
        cmocka_unit_test(a_name_twice_is_refused),
        cmocka_unit_test(the_superblock_is_found_behind_any_userblock),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(a_torch_archive_is_read_as_one),
        cmocka_unit_test(a_torch_archive_lacks_what_it_needs),
        cmocka_unit_test(the_pickle_in_a_torch_archive_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
