/* The fixtures of tests/data/hdf5 with what h5py says of them (tests/data/make_hdf5.py), and what damage does. */
#include "parser/hdf5.h"

#include "core/buffer.h"
#include "parser/torch.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <dirent.h>
#include <inttypes.h>

#define DATA TD_TEST_DATA "/hdf5/"

struct file {
    uint8_t *bytes;
    size_t len;
};

static struct file file_read(const char *name, const char *extension)
{
    char path[512];
    struct file file = {0};
    (void)snprintf(path, sizeof path, DATA "%s%s", name, extension);
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return file;
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    file.len = (size_t)ftell(f);
    rewind(f);
    file.bytes = __real_malloc(file.len + 1);
    assert_int_equal(fread(file.bytes, 1, file.len, f), file.len);
    file.bytes[file.len] = 0;
    assert_int_equal(fclose(f), 0);
    return file;
}

/* A fixture, or what its patch makes of another: the other's name, then an offset and a byte on every line. */
static struct file file_load(const char *name)
{
    struct file file = file_read(name, ".h5");
    if (file.bytes != NULL)
        return file;
    struct file patch = file_read(name, ".patch");
    CHECK(patch.bytes != NULL, "there is no fixture %s", name);
    char *line = strchr((char *)patch.bytes, '\n');
    *line++ = '\0';
    file = file_read((const char *)patch.bytes, ".h5");
    CHECK(file.bytes != NULL, "there is no fixture %s", (const char *)patch.bytes);
    while (*line != '\0') {
        size_t at = strtoul(line, &line, 10);
        assert_true(at < file.len);
        file.bytes[at] = (uint8_t)strtoul(line, &line, 16);
        line++;
    }
    __real_free(patch.bytes);
    return file;
}

static void file_free(struct file *file)
{
    __real_free(file->bytes);
}

/* Where the needle stands; it must be there. */
static size_t position(const struct file *file, const void *needle, size_t len)
{
    const uint8_t *p = memmem(file->bytes, file->len, needle, len);
    CHECK(p != NULL, "no %s", (const char *)needle);
    return (size_t)(p - file->bytes);
}

struct parsed {
    struct td_manifest manifest;
    struct td_error err;
    bool ok;
    struct alloc_count memory;
};

static void parse_input(const struct td_input *input, const struct td_limits *limits, struct parsed *out)
{
    memset(out, 0, sizeof *out);
    td_error_init(&out->err);
    alloc_count_start();
    td_manifest_init(&out->manifest, limits->max_memory_bytes);
    out->ok = td_format_hdf5.parse(input, limits, &out->manifest, &out->err);
    out->memory = alloc_count_get();
    assert_int_equal(out->ok, out->err.code == TD_OK);
    assert_true(out->manifest.arena.limit_bytes == limits->max_memory_bytes); /* left as it was */
}

static void parse(const struct file *file, struct parsed *out)
{
    struct td_input input = td_input_memory(file->bytes, file->len);
    struct td_limits limits = td_limits_default();
    parse_input(&input, &limits, out);
}

static void parsed_fini(struct parsed *p)
{
    td_manifest_fini(&p->manifest);
    assert_int_equal(alloc_count_get().live_bytes, 0);
}

static const struct td_tensor *tensor(const struct parsed *p, const char *name)
{
    const struct td_tensor *found = td_manifest_find(&p->manifest, name, strlen(name));
    CHECK(found != NULL, "no tensor \"%s\"", name);
    return found;
}

/* A manifest as the descriptions spell it. */
static char *list_manifest(const struct td_manifest *m)
{
    struct td_buffer out;
    td_buffer_init(&out);
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct td_tensor *t = &m->tensors[i];
        td_buffer_printf(&out, "T\t%s\t%s\t[", t->name, t->dtype->name);
        for (uint32_t d = 0; d < t->rank; d++)
            td_buffer_printf(&out, d > 0 ? ",%" PRIu64 : "%" PRIu64, t->shape[d]);
        td_buffer_printf(&out, "]\t%" PRIu64 "\t%" PRIu64 "\t%s\t%s\n", t->offset, t->nbytes,
                         t->reason == NULL ? "" : t->reason, t->alias_of == NULL ? "" : t->alias_of);
    }
    assert_non_null(td_buffer_terminate(&out));
    return out.data;
}

static const char *metadata_value(const struct td_manifest *m, const char *key, size_t len)
{
    for (size_t i = 0; i < m->metadata_count; i++)
        if (strlen(m->metadata[i].key) == len && memcmp(m->metadata[i].key, key, len) == 0)
            return m->metadata[i].value;
    return NULL;
}

/* h5py lists attributes by name, the file holds them in another order: compared one by one. */
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
    struct file file = file_load(name);
    struct file expected = file_read(name, ".txt");
    const char *text = (const char *)expected.bytes;
    struct parsed p;
    parse(&file, &p);
    if (text[0] == 'R') {
        CHECK(!p.ok, "%s: accepted", name);
        assert_int_equal(p.err.code, TD_INVALID_ARGUMENT);
        check_error(&p.err, file.len, true, name);
    } else {
        CHECK(p.ok, "%s: %s at %" PRIu64, name, p.err.message, p.err.pos);
        assert_string_equal(p.manifest.format, "hdf5");
        const char *metadata = text[0] == 'M' ? text : strstr(text, "\nM\t");
        size_t tensors_len =
            metadata == NULL ? expected.len : (size_t)(metadata - text) + (*metadata == '\n');
        char *listing = list_manifest(&p.manifest);
        CHECK(strlen(listing) == tensors_len && memcmp(listing, text, tensors_len) == 0,
              "%s: expected\n%.*sgot\n%s", name, (int)tensors_len, text, listing);
        free(listing);
        check_metadata(&p.manifest, text + tensors_len, name);
    }
    parsed_fini(&p);
    file_free(&file);
    file_free(&expected);
}

static void every_fixture_is_what_h5py_says(void **state)
{
    (void)state;
    DIR *dir = opendir(DATA);
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

/* ---- the numbered bad inputs --------------------------------------------------------------------------- */

static const struct {
    int number;
    const char *file, *name, *reason; /* no name: the file is refused, with reason in the message */
} bad_inputs[] = {
    {137, "links", "external", "external link to ../etc/passwd:/q"},
    {137, "links_latest", "external", "external link to ../etc/passwd:/q"},
    {138, "links", "soft", "soft link to /a/data"},
    {138, "links_latest", "soft", "soft link to /a/data"},
    {139, "links", "loop1", "soft link to /loop2"},
    {139, "links_latest", "loop2", "soft link to /loop1"},
    {140, "layouts", "external", "external storage"},
    {140, "layouts_latest", "external", "external storage"},
    {141, "layouts_latest", "virtual", "virtual"},
    {142, "layouts", "huge", "compressed (gzip)"},
    {142, "layouts_latest", "huge", "compressed (gzip)"},
    {143, "userblock", "unallocated", "not allocated"},
    {144, "bad_144_continuation_cycle", NULL, "used twice"},
    {145, "bad_145_past_the_end", "g/a", "past the end of the file"},
    {146, "layouts", "unknown_filter", "compressed (filter 40000)"},
    {146, "layouts_latest", "unknown_filter", "compressed (filter 40000)"},
    {0, "bad_superblock_checksum", NULL, "checksum"},
    {0, "bad_header_checksum", NULL, "checksum"},
    {0, "bad_tree_checksum", NULL, "checksum"},
    {0, "bad_heap_checksum", NULL, "checksum"},
    {0, "bad_block_checksum", NULL, "checksum"},
    {0, "bad_symbol_table", NULL, "SNOD"},
    {0, "bad_tree", NULL, "TREE"},
    {0, "bad_local_heap", NULL, "HEAP"},
};

static void bad_inputs_137_to_146(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad_inputs); i++) {
        struct file file = file_load(bad_inputs[i].file);
        struct parsed p;
        parse(&file, &p);
        if (bad_inputs[i].name == NULL) {
            CHECK(!p.ok && strstr(p.err.message, bad_inputs[i].reason) != NULL, "%d %s: '%s'",
                  bad_inputs[i].number, bad_inputs[i].file, p.err.message);
            check_error(&p.err, file.len, true, bad_inputs[i].file);
        } else {
            CHECK(p.ok, "%d %s: %s", bad_inputs[i].number, bad_inputs[i].file, p.err.message);
            const struct td_tensor *t = tensor(&p, bad_inputs[i].name);
            assert_non_null(t->reason);
            assert_string_equal(t->reason, bad_inputs[i].reason);
            assert_int_equal(t->offset, 0);
        }
        parsed_fini(&p);
        file_free(&file);
    }
}

/* Two messages of one kind in an object's header: libhdf5 takes the first. The fill value of "g/a" and what follows the
 * layout are made into others. */
static void messages_that_are_there_twice(void **state)
{
    (void)state;
    static const char fill[] = "\5\0\x08\0\1\0\0\0";
    enum { AFTER_LAYOUT = 48 };
    static const struct {
        uint8_t fill_value, after_layout;
    } types[] = {{1, 0}, {3, 0}, {8, 0}, {7, 7}, {11, 11}, {0, 8}, {0, 3}};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct file file = file_load("small");
        struct parsed p;
        uint8_t *at = memmem(file.bytes, file.len, fill, sizeof fill - 1);
        assert_non_null(at);
        *at = types[i].fill_value;
        if (types[i].after_layout != 0)
            at[AFTER_LAYOUT] = types[i].after_layout;
        parse(&file, &p);
        CHECK(!p.ok && strstr(p.err.message, "where one may be") != NULL, "%zu: '%s'", i, p.err.message);
        check_error(&p.err, file.len, true, "twice");
        parsed_fini(&p);
        file_free(&file);
    }
}

/* ---- damage -------------------------------------------------------------------------------------------- */

static const char *const small_files[] = {"small", "small_latest", "userblock", "narrow"};

static void every_prefix_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(small_files); i++) {
        struct file file = file_load(small_files[i]);
        for (size_t len = 0; len < file.len; len++) {
            struct file cut = {.bytes = __real_malloc(len + 1), .len = len};
            memcpy(cut.bytes, file.bytes, len);
            struct parsed p;
            parse(&cut, &p);
            CHECK(!p.ok, "%s: %zu of %zu bytes accepted", small_files[i], len, file.len);
            assert_int_equal(p.err.code, TD_INVALID_ARGUMENT);
            check_error(&p.err, len, true, small_files[i]);
            parsed_fini(&p);
            file_free(&cut);
        }
        file_free(&file);
    }
}

/* Whatever was accepted lies within the file. */
static void check_sound(const struct parsed *p, const struct file *file, const char *what)
{
    if (!p->ok) {
        bool no_position =
            p->err.code == TD_RESOURCE_EXHAUSTED || strstr(p->err.message, "must be unique") != NULL;
        check_error(&p->err, file->len, !no_position, what);
        return;
    }
    for (size_t i = 0; i < p->manifest.tensor_count; i++) {
        const struct td_tensor *t = &p->manifest.tensors[i];
        CHECK(t->reason != NULL || (t->offset <= file->len && t->nbytes <= file->len - t->offset),
              "%s: \"%s\" leaves the file", what, t->name);
        assert_true(td_utf8_valid(t->name, t->name_len));
    }
}

static void every_byte_changed(void **state)
{
    (void)state;
    static const char *const files[] = {"small", "small_latest", "types", "links", "attributes"};
    static const uint8_t by[] = {0x01, 0x80, 0xFF};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct file file = file_load(files[i]);
        size_t step = SANITIZED ? 3 : 1;
        for (size_t at = 0; at < file.len; at += step) {
            for (size_t k = 0; k < COUNT_OF(by); k++) {
                struct parsed p;
                file.bytes[at] ^= by[k];
                parse(&file, &p);
                check_sound(&p, &file, files[i]);
                parsed_fini(&p);
                file.bytes[at] ^= by[k];
            }
        }
        file_free(&file);
    }
}

/* Every byte of the new structures is under a checksum: only data and gaps may change unseen. */
static void checksums_cover_the_structure(void **state)
{
    (void)state;
    struct file file = file_load("small_latest");
    struct parsed p;
    size_t unseen = 0;
    for (size_t at = 0; at < file.len; at++) {
        file.bytes[at] ^= 0x10;
        parse(&file, &p);
        unseen += p.ok;
        parsed_fini(&p);
        file.bytes[at] ^= 0x10;
    }
    parse(&file, &p);
    assert_true(p.ok);
    CHECK(unseen >= p.manifest.total_bytes && unseen < file.len - 300, "%zu of %zu bytes changed unseen",
          unseen, file.len);
    parsed_fini(&p);
    file_free(&file);
}

static void every_failing_allocation(void **state)
{
    (void)state;
    static const char *const files[] = {"small", "many_latest", "attributes_latest",
                                        "types", "many",        "links"};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct file file = file_load(files[i]);
        struct td_input input = td_input_memory(file.bytes, file.len);
        struct td_limits limits = td_limits_default();
        bool ok = false;
        for (size_t k = 1; !ok; k++) {
            struct td_manifest manifest;
            struct td_error err;
            td_error_init(&err);
            alloc_count_start();
            alloc_fail_at(k);
            td_manifest_init(&manifest, 0);
            ok = td_format_hdf5.parse(&input, &limits, &manifest, &err);
            alloc_fail_at(0);
            CHECK(ok || err.code == TD_RESOURCE_EXHAUSTED, "%s, allocation %zu: %s", files[i], k,
                  err.message);
            assert_true(!ok || k > 5);
            td_manifest_fini(&manifest);
            assert_int_equal(alloc_count_get().live_bytes, 0);
        }
        file_free(&file);
    }
}

static void memory_stays_within_its_limit(void **state)
{
    (void)state;
    struct file file = file_load("many_latest");
    struct td_input input = td_input_memory(file.bytes, file.len);
    struct td_limits limits = td_limits_default();
    size_t refused = 0;
    bool ok = false;
    for (limits.max_memory_bytes = 1000; !ok; limits.max_memory_bytes += 9973) {
        struct parsed p;
        parse_input(&input, &limits, &p);
        ok = p.ok;
        CHECK(ok || p.err.code == TD_RESOURCE_EXHAUSTED, "%zu bytes: %s", limits.max_memory_bytes,
              p.err.message);
        CHECK(p.memory.peak_bytes <= limits.max_memory_bytes + 64 * 1024, "%zu bytes at a limit of %zu",
              p.memory.peak_bytes, limits.max_memory_bytes);
        refused += !ok;
        parsed_fini(&p);
    }
    assert_true(refused > 10);
    file_free(&file);
}

static void structure_stays_within_its_limit(void **state)
{
    (void)state;
    struct file file = file_load("many");
    struct td_input input = td_input_memory(file.bytes, file.len);
    struct td_limits limits = td_limits_default();
    struct parsed p;
    for (limits.max_header_bytes = 0; limits.max_header_bytes < 3000; limits.max_header_bytes += 100) {
        parse_input(&input, &limits, &p);
        assert_false(p.ok);
        assert_int_equal(p.err.code, TD_RESOURCE_EXHAUSTED);
        parsed_fini(&p);
    }
    limits.max_header_bytes = file.len;
    parse_input(&input, &limits, &p);
    CHECK(p.ok, "%s", p.err.message);
    parsed_fini(&p);
    file_free(&file);
}

/* A disk that fails at its k-th read. */
struct failing {
    const struct file *file;
    unsigned left;
};

static bool failing_read(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct failing *failing = *(struct failing *const *)context;
    if (failing->left-- == 0)
        return td_error_at(err, TD_IO, off, "the disk is on fire");
    memcpy(out, failing->file->bytes + off, len);
    return true;
}

static void every_failing_read(void **state)
{
    (void)state;
    struct file file = file_load("attributes");
    struct td_limits limits = td_limits_default();
    bool ok = false;
    for (unsigned k = 0; !ok; k++) {
        struct failing failing = {.file = &file, .left = k};
        struct failing *context = &failing;
        struct td_input input = {.size_bytes = file.len, .read = failing_read, .context = &context};
        struct parsed p;
        parse_input(&input, &limits, &p);
        ok = p.ok;
        CHECK(ok || p.err.code == TD_IO, "read %u: %s", k, p.err.message);
        assert_true(!ok || k > 2);
        parsed_fini(&p);
    }
    file_free(&file);
}

/* ---- names and links ----------------------------------------------------------------------------------- */

static void names_are_escaped(void **state)
{
    (void)state;
    struct file file = file_load("many");
    memcpy(file.bytes + position(&file, "deeper", 7), "d/\xff\xc3(\x01", 6);
    struct parsed p;
    parse(&file, &p);
    CHECK(p.ok, "%s", p.err.message);
    (void)tensor(&p, "g/d\\x2F\\xFF\\xC3(\x01/x");
    parsed_fini(&p);
    file_free(&file);
}

/* Two links of one name, which libhdf5 never writes. */
static void a_name_twice_is_refused(void **state)
{
    (void)state;
    struct file file = file_load("many");
    memcpy(file.bytes + position(&file, "link33", 7), "link00", 6);
    struct parsed p;
    parse(&file, &p);
    CHECK(!p.ok && strstr(p.err.message, "link00") != NULL, "%s", p.err.message);
    parsed_fini(&p);
    file_free(&file);
}

static void the_superblock_is_found_behind_any_userblock(void **state)
{
    (void)state;
    struct file file = file_load("small");
    for (size_t before = 256; before <= 16384; before *= 2) {
        struct file moved = {.bytes = __real_calloc(1, before + file.len), .len = before + file.len};
        memcpy(moved.bytes + before, file.bytes, file.len);
        struct parsed p;
        parse(&moved, &p);
        assert_int_equal(p.ok, before >= 512);
        for (size_t i = 0; p.ok && i < tensor(&p, "b")->nbytes; i++)
            assert_int_equal(moved.bytes[tensor(&p, "b")->offset + i], i);
        parsed_fini(&p);
        file_free(&moved);
    }
    file_free(&file);
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
        {"\x89HDF\r\n\x1a\n\0\0\0\0\0\3\10\0", 16, "addresss have 3 bytes"},
        {"PK\3\4PK\3\4PK\3\4", 12, "signature"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct file file = {.bytes = __real_malloc(cases[i].len + 1), .len = cases[i].len};
        memcpy(file.bytes, cases[i].bytes, cases[i].len);
        struct parsed p;
        parse(&file, &p);
        CHECK(!p.ok && strstr(p.err.message, cases[i].says) != NULL, "case %zu: '%s'", i, p.err.message);
        check_error(&p.err, file.len, true, "other");
        parsed_fini(&p);
        file_free(&file);
    }
}

/* ---- torch archives ------------------------------------------------------------------------------------ */

static unsigned archives_parsed;

/* Stands in for parser/torch.c, which has tests of its own: one tensor for each record that it is told of. */
__attribute__((weak)) bool td_torch_parse_records(const struct td_torch_records *records,
                                                  const struct td_limits *limits,
                                                  struct td_manifest *manifest, struct td_error *err)
{
    static const char *const names[] = {"data/0", "data/1", "data/2"};
    size_t len;
    struct td_torch_record record;
    archives_parsed++;
    assert_int_equal(manifest->tensor_count, 0);
    assert_false(records->find(records->context, "data/3", 6, &record));
    assert_null(records->load(records->context, "data/2", 6, 100, &len, NULL));
    assert_null(records->load(records->context, "data.pkl", 8, 3, &len, NULL));
    uint8_t *pickle = records->load(records->context, "data.pkl", 8, limits->max_header_bytes, &len, err);
    assert_true(pickle != NULL && len == 10);
    assert_memory_equal(pickle, "not pickle", len);
    free(pickle);
    manifest->tensors = td_arena_array(&manifest->arena, COUNT_OF(names), sizeof *manifest->tensors);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        assert_true(records->find(records->context, names[i], 6, &record));
        manifest->tensors[manifest->tensor_count++] = (struct td_tensor){
            .name = names[i],
            .name_len = 6,
            .dtype = td_dtype_find("U8", 2),
            .offset = record.offset,
            .nbytes = record.nbytes,
            .reason = record.reason,
        };
    }
    return td_manifest_finish(manifest, err);
}

static void a_torch_archive_is_read_as_one(void **state)
{
    (void)state;
    struct file file = file_read("archive", ".hdf5");
    struct parsed p;
    unsigned before = archives_parsed;
    parse(&file, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_int_equal(archives_parsed, before + 1);
    assert_string_equal(p.manifest.format, "hdf5");
    for (size_t i = 0; i < 2; i++) {
        const struct td_tensor *t = &p.manifest.tensors[i];
        assert_true(t->reason == NULL && t->nbytes == 8 + i);
        for (size_t k = 0; k < t->nbytes; k++)
            assert_int_equal(file.bytes[t->offset + k], 16 * (i + 1) + k);
    }
    assert_string_equal(p.manifest.tensors[2].reason, "compressed (gzip)");
    parsed_fini(&p);
    file_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fixture_is_what_h5py_says),
        cmocka_unit_test(bad_inputs_137_to_146),
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
