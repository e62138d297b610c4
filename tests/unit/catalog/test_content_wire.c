/* The bytes between the parser's process and the server: values are read as they were written, for every fixture of
 * every format; and false values are refused. */
#include "catalog/sandbox/content_wire.h"

#include "catalog/sandbox/manifest_wire.h"
#include "catalog/sandbox/parse_pool.h"
#include "core/buffer.h"
#include "parser/formats.h"
#include "parser/rows/row_formats.h"
#include "storage/file_source.h"
#include "tests/unit/catalog/content_check.h"

/* Appends a part to the buffer: a writer's `take`. */
static bool keep(void *context, const void *bytes, size_t len)
{
    td_buffer_append(context, bytes, len);
    return true;
}

static struct td_wire_writer writer;

static struct td_wire_writer *begin(struct td_buffer *out)
{
    td_buffer_init(out);
    td_wire_writer_init(&writer, keep, out);
    return &writer;
}

/* Moves the last part to the buffer. */
static void finish(struct td_buffer *out)
{
    td_buffer_append(out, writer.part, writer.len);
    assert_false(out->failed);
}

/* Reads an outcome. Returns whether the bytes are right. */
static bool read_outcome(const void *bytes, size_t len, struct td_file *file, const struct td_limits *limits,
                         struct td_error *of_parse, struct td_error *err)
{
    struct td_wire_reader in = td_wire_reader_of(bytes, len);
    td_error_read(&in, of_parse);
    return td_content_read(&in, of_parse, file, limits, err);
}

static size_t right_count, wrong_count;

static void write_and_read(const char *path, const char *name)
{
    const struct td_limits limits = td_limits_default();
    struct td_error of_parse = TD_ERROR_INIT;
    struct td_error told;
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer bytes;
    int fd;
    struct td_file *file = open_fixture(path, name, &limits, &fd);
    struct td_input input = td_input_descriptor(&fd, file->source.id.size_bytes);
    bool ok = td_file_parse(file, name, &input, &limits, &of_parse);
    (void)close(fd);
    struct td_file *copy = td_file_create(path, name, &file->source.id, NULL, &limits);
    if (td_parse_pool_takes(copy->kind, copy->facts_kind) && !file->is_lfs_pointer) {
        td_content_write(file, &of_parse, begin(&bytes));
        finish(&bytes);
        CHECK(read_outcome(bytes.data, bytes.len, copy, &limits, &told, &err), "%s: %s", path, err.message);
        check_same_error(&of_parse, &told, path);
        check_same_content(file, copy, ok, path);
        td_buffer_fini(&bytes);
        right_count += ok ? 1 : 0;
        wrong_count += ok ? 0 : 1;
    }
    td_file_unref(copy);
    td_file_unref(file);
}

static void every_fixture_is_the_same_after_the_wire(void **state)
{
    (void)state;
    assert_true(each_fixture(write_and_read) > 500);
    CHECK(right_count > 200 && wrong_count > 80, "%zu right, %zu wrong", right_count, wrong_count);
}

/* ---- false values -------------------------------------------------------------------------------------- */

enum { FILE_BYTES = 4096 };

static uint64_t shape[] = {4, 8}, chunk_shape[] = {2, 8}, strides[] = {1, 4};
static struct td_coding_chunk chunks[] = {{.number = 0, .offset = 10, .bytes = 20},
                                          {.number = 1, .offset = 40, .bytes = 20}};
static const uint8_t fill[4] = {1, 2, 3, 4};

/* A manifest of three tensors, a coding of each kind, metadata and an external file. */
struct sample {
    struct td_coding codings[2];
    struct td_tensor tensors[4];
    struct td_metadata metadata[1];
    const char *files[2];
    struct td_manifest manifest;
};

static void make_sample(struct sample *s)
{
    const struct td_dtype *f32 = td_dtype_find(TD_TEXT("F32"));
    s->codings[0] = (struct td_coding){
        .kind = TD_CODING_DEFLATE, .text = "deflate", .size_bytes = 128, .offset = 100, .stored_bytes = 50};
    s->codings[1] = (struct td_coding){.kind = TD_CODING_CHUNKS,
                                       .text = "chunks",
                                       .number = 1,
                                       .size_bytes = 128,
                                       .base = 100,
                                       .grid = {.rank = 2,
                                                .elem_bytes = 4,
                                                .shape = shape,
                                                .chunk_shape = chunk_shape,
                                                .fill = fill,
                                                .chunks = chunks,
                                                .chunk_count = 2,
                                                .filter_count = 1,
                                                .filters = {{.kind = TD_FILTER_SHUFFLE, .elem_bytes = 4}}},
                                       .next = &s->codings[0]};
    const struct td_tensor plain = {
        .name = "a", .name_len = 1, .rank = 2, .dtype = f32, .shape = shape, .nbytes = 128, .offset = FILE_BYTES - 128};
    for (size_t i = 0; i < COUNT_OF(s->tensors); i++)
        s->tensors[i] = plain;
    s->tensors[1].name = "b";
    s->tensors[1].coding = &s->codings[1];
    s->tensors[1].offset = 0;
    s->tensors[2].name = "c";
    s->tensors[2].file = 1;
    s->tensors[2].offset = UINT64_C(1) << 40;
    s->tensors[2].reason = TD_REASON_OTHER_FILE;
    s->tensors[3].name = "d";
    s->tensors[3].strides = strides;
    s->metadata[0] = (struct td_metadata){.key = "k", .value = "{\"v\":1}"};
    s->files[0] = "data/one";
    s->files[1] = "two";
    s->manifest = (struct td_manifest){.tensors = s->tensors,
                                       .tensor_count = COUNT_OF(s->tensors),
                                       .metadata = s->metadata,
                                       .metadata_count = 1,
                                       .files = s->files,
                                       .file_count = 2,
                                       .codings = &s->codings[1],
                                       .coding_count = 2,
                                       .total_bytes = 4 * 128,
                                       .split_number = -1,
                                       .split_count = -1};
}

/* Returns whether the manifest is read after it was written. */
static bool survives(const struct td_manifest *manifest)
{
    struct td_buffer bytes;
    struct td_manifest copy;
    struct td_error err = TD_ERROR_INIT;
    td_manifest_write(manifest, begin(&bytes));
    finish(&bytes);
    struct td_wire_reader in = td_wire_reader_of(bytes.data, bytes.len);
    td_manifest_init(&copy, 1 << 20);
    bool ok = td_manifest_read(&in, FILE_BYTES, &copy, &err);
    assert_true(ok || err.code == TD_INTERNAL || err.code == TD_INVALID_ARGUMENT);
    if (ok)
        check_manifest(manifest, &copy, "sample");
    td_manifest_fini(&copy);
    td_buffer_fini(&bytes);
    return ok;
}

/* Defines a function that makes one value false. */
#define LIE(name, ...)                       \
    static void lie_##name(struct sample *s) \
    {                                        \
        __VA_ARGS__;                         \
    }

static uint64_t zero_shape[] = {0, 8}, huge_shape[] = {UINT64_C(1) << 40, UINT64_C(1) << 40},
                long_strides[] = {1, 4000}, row_major[] = {8, 1};
static struct td_coding_chunk twice[] = {{.number = 1}, {.number = 1}}, far_chunk[] = {{.number = 2}},
                              past_chunk[] = {{.number = 0, .offset = UINT64_MAX - 50}},
                              late_chunk[] = {{.number = 0, .offset = FILE_BYTES - 110, .bytes = 20}};

LIE(leaves_the_file, s->tensors[0].offset++)
LIE(begins_nowhere, s->tensors[0].offset = UINT64_MAX)
LIE(says_more_bytes, s->tensors[0].nbytes++; s->manifest.total_bytes++)
LIE(huge_shape, s->tensors[0].shape = huge_shape)
LIE(strides_leave_the_file, s->tensors[3].strides = long_strides)
LIE(strides_of_no_use, s->tensors[3].strides = row_major)
LIE(leaves_its_coding, s->tensors[1].offset = 4)
LIE(has_no_size, s->tensors[0].dtype = td_dtype_find(TD_TEXT("STRING")))
LIE(names_out_of_order, s->tensors[0].name = "e")
LIE(names_twice, s->tensors[0].name = "b")
LIE(name_is_no_utf8, s->tensors[3].name = "\xff")
LIE(empty_reason, s->tensors[0].reason = "")
LIE(reason_is_no_utf8, s->tensors[0].reason = "\xff")
LIE(file_without_reason, s->tensors[2].reason = NULL)
LIE(file_that_is_not_listed, s->tensors[2].file = 3)
LIE(external_with_strides, s->tensors[2].strides = strides)
LIE(external_of_another_size, s->tensors[2].nbytes = 64)
LIE(total, s->manifest.total_bytes++)
LIE(bare, s->manifest.bare = true)
LIE(split, s->manifest.split_number = -2)
LIE(metadata_is_no_json, s->metadata[0].value = "{\"v\":1}}")
LIE(metadata_is_empty, s->metadata[0].value = "")
LIE(file_above, s->files[0] = "../one")
LIE(file_absolute, s->files[0] = "/one")
LIE(file_with_dots, s->files[0] = "data/./one")
LIE(file_empty, s->files[0] = "")
LIE(file_ends_with_slash, s->files[0] = "data/")
LIE(files_out_of_order, s->files[0] = "zwei")
LIE(stream_leaves_the_file, s->codings[0].stored_bytes = FILE_BYTES)
LIE(stream_wraps, s->codings[0].offset = UINT64_MAX)
LIE(stream_base_wraps, s->codings[0].base = UINT64_MAX)
LIE(stream_too_long, s->codings[0].size_bytes = TD_CODING_STREAM_MAX_BYTES + 1)
LIE(coding_text, s->codings[0].text = "\xff")
LIE(coding_number, s->codings[0].number = 7)
LIE(grid_rank, s->codings[1].grid.rank = 0)
LIE(grid_shape_zero, s->codings[1].grid.shape = zero_shape)
LIE(grid_shape_huge, s->codings[1].grid.shape = huge_shape)
LIE(chunk_shape_zero, s->codings[1].grid.chunk_shape = zero_shape)
LIE(chunk_shape_huge, s->codings[1].grid.chunk_shape = huge_shape)
LIE(grid_of_another_size, s->codings[1].size_bytes = 256)
LIE(chunks_twice, s->codings[1].grid.chunks = twice)
LIE(chunk_that_is_not_there, s->codings[1].grid.chunks = far_chunk; s->codings[1].grid.chunk_count = 1)
LIE(chunk_leaves_the_file, s->codings[1].grid.chunks = past_chunk; s->codings[1].grid.chunk_count = 1)
LIE(chunk_ends_past_the_file, s->codings[1].grid.chunks = late_chunk; s->codings[1].grid.chunk_count = 1)
LIE(filter_kind, s->codings[1].grid.filters[0].kind = (enum td_filter_kind)9)

static const struct {
    const char *name;
    void (*tell)(struct sample *s);
} lies[] = {
    {"leaves_the_file", lie_leaves_the_file},
    {"begins_nowhere", lie_begins_nowhere},
    {"says_more_bytes", lie_says_more_bytes},
    {"huge_shape", lie_huge_shape},
    {"strides_leave_the_file", lie_strides_leave_the_file},
    {"strides_of_no_use", lie_strides_of_no_use},
    {"leaves_its_coding", lie_leaves_its_coding},
    {"has_no_size", lie_has_no_size},
    {"names_out_of_order", lie_names_out_of_order},
    {"names_twice", lie_names_twice},
    {"name_is_no_utf8", lie_name_is_no_utf8},
    {"empty_reason", lie_empty_reason},
    {"reason_is_no_utf8", lie_reason_is_no_utf8},
    {"file_without_reason", lie_file_without_reason},
    {"file_that_is_not_listed", lie_file_that_is_not_listed},
    {"external_with_strides", lie_external_with_strides},
    {"external_of_another_size", lie_external_of_another_size},
    {"total", lie_total},
    {"bare", lie_bare},
    {"split", lie_split},
    {"metadata_is_no_json", lie_metadata_is_no_json},
    {"metadata_is_empty", lie_metadata_is_empty},
    {"file_above", lie_file_above},
    {"file_absolute", lie_file_absolute},
    {"file_with_dots", lie_file_with_dots},
    {"file_empty", lie_file_empty},
    {"file_ends_with_slash", lie_file_ends_with_slash},
    {"files_out_of_order", lie_files_out_of_order},
    {"stream_leaves_the_file", lie_stream_leaves_the_file},
    {"stream_wraps", lie_stream_wraps},
    {"stream_base_wraps", lie_stream_base_wraps},
    {"stream_too_long", lie_stream_too_long},
    {"coding_text", lie_coding_text},
    {"coding_number", lie_coding_number},
    {"grid_rank", lie_grid_rank},
    {"grid_shape_zero", lie_grid_shape_zero},
    {"grid_shape_huge", lie_grid_shape_huge},
    {"chunk_shape_zero", lie_chunk_shape_zero},
    {"chunk_shape_huge", lie_chunk_shape_huge},
    {"grid_of_another_size", lie_grid_of_another_size},
    {"chunks_twice", lie_chunks_twice},
    {"chunk_that_is_not_there", lie_chunk_that_is_not_there},
    {"chunk_leaves_the_file", lie_chunk_leaves_the_file},
    {"chunk_ends_past_the_file", lie_chunk_ends_past_the_file},
    {"filter_kind", lie_filter_kind},
};

/* shows: security.md content-parser-lies */
static void each_lie_about_a_manifest_is_refused(void **state)
{
    (void)state;
    struct sample s;
    make_sample(&s);
    assert_true(survives(&s.manifest));
    for (size_t i = 0; i < COUNT_OF(lies); i++) {
        make_sample(&s);
        lies[i].tell(&s);
        CHECK(!survives(&s.manifest), "%s", lies[i].name);
    }
}

/* Every prefix is refused, and a byte too many; a changed byte is refused or gives a manifest that is right. */
/* shows: security.md content-parser-lies */
static void every_prefix_is_refused(void **state)
{
    (void)state;
    const struct td_limits limits = td_limits_default();
    const struct td_file_id id = {.size_bytes = FILE_BYTES};
    struct td_error none = TD_ERROR_INIT;
    struct td_error told;
    struct td_buffer bytes;
    struct sample s;
    make_sample(&s);
    struct td_file whole = {.kind = TD_FILE_TENSORS, .format = td_format_for_name("x.onnx"), .manifest = s.manifest};
    td_content_write(&whole, &none, begin(&bytes));
    finish(&bytes);
    td_buffer_putc(&bytes, '\0');
    for (size_t len = 0; len <= bytes.len; len++) {
        struct td_error err = TD_ERROR_INIT;
        struct td_file *file = td_file_create("x.onnx", "x.onnx", &id, NULL, &limits);
        char *exact = malloc(len + 1); /* so that a read past the end is seen */
        memcpy(exact, bytes.data, len);
        exact = realloc(exact, len == 0 ? 1 : len);
        bool ok = read_outcome(exact, len, file, &limits, &told, &err);
        CHECK(ok == (len == bytes.len - 1), "%zu of %zu", len, bytes.len);
        free(exact);
        td_file_unref(file);
    }
    td_buffer_fini(&bytes);
}

/* A manifest that needs more than its file may take is refused, and nothing leaks. */
static void memory_is_bounded(void **state)
{
    (void)state;
    struct td_buffer bytes;
    struct sample s;
    make_sample(&s);
    td_manifest_write(&s.manifest, begin(&bytes));
    finish(&bytes);
    for (size_t most = 64; most < 1024; most += 64) {
        struct td_wire_reader in = td_wire_reader_of(bytes.data, bytes.len);
        struct td_error err = TD_ERROR_INIT;
        struct td_manifest copy;
        td_manifest_init(&copy, most);
        assert_false(td_manifest_read(&in, FILE_BYTES, &copy, &err));
        assert_int_equal(err.code, TD_RESOURCE_EXHAUSTED);
        td_manifest_fini(&copy);
    }
    td_buffer_fini(&bytes);
}

/* ---- paths --------------------------------------------------------------------------------------------- */

enum { PATHS_MAX = 3 };

/* Writes the paths up to the first NULL, and reads them. `room` is the arena's limit; 0: none. Returns the error's
 * code, TD_OK for success. */
static enum td_code code_of_paths(const char *const *paths, size_t room)
{
    struct td_error err = TD_ERROR_INIT;
    struct td_buffer bytes;
    struct td_arena arena;
    size_t count = 0;
    size_t read_count = SIZE_MAX;
    while (count < PATHS_MAX && paths[count] != NULL)
        count++;
    td_wire_put_paths(begin(&bytes), paths, count);
    finish(&bytes);
    td_arena_init(&arena, room);
    struct td_wire_reader in = td_wire_reader_of(bytes.data, bytes.len);
    const char **copies = td_wire_get_paths(&in, &arena, &read_count);
    if (in.failed) {
        assert_int_equal(read_count, 0);
        assert_false(td_wire_refuse(&in, &err));
    } else {
        assert_true(read_count == count && in.p == in.end);
        for (size_t i = 0; i < count; i++)
            assert_string_equal(copies[i], paths[i]);
    }
    td_arena_fini(&arena);
    td_buffer_fini(&bytes);
    return err.code;
}

static void paths_are_in_order_and_below_their_directory(void **state)
{
    (void)state;
    static const struct {
        const char *paths[PATHS_MAX];
        bool is_right;
    } cases[] = {
        {{NULL}, true},
        {{"a"}, true},
        {{"a", "b", "c"}, true},
        {{"a-b", "a/b", "a0"}, true}, /* the order of the bytes, not of the directories */
        {{"B", "a", "\xc3\xa9"}, true},
        {{"a", "a"}, false},
        {{"b", "a"}, false},
        {{"a", "c", "b"}, false},
        {{"a/b", "a-b"}, false},
        {{""}, false},
        {{"/a"}, false},
        {{".."}, false},
        {{"../a"}, false},
        {{"a/../b"}, false},
        {{"a", "b/.."}, false},
        {{"a", "\xff"}, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        enum td_code code = code_of_paths(cases[i].paths, 0);
        CHECK(code == (cases[i].is_right ? TD_OK : TD_INTERNAL), "case %zu: %d", i, (int)code);
    }
}

/* A count that does not fit into the bytes, and a text that ends early, are refused before memory is allocated. */
static void paths_that_end_early_are_refused(void **state)
{
    (void)state;
    static const char *const paths[] = {"a", "bc"};
    struct td_buffer bytes;
    struct td_arena arena;
    size_t count;
    td_wire_put_paths(begin(&bytes), paths, COUNT_OF(paths));
    finish(&bytes);
    for (size_t len = 0; len < bytes.len; len++) {
        struct td_wire_reader in = td_wire_reader_of(bytes.data, len);
        td_arena_init(&arena, 0);
        (void)td_wire_get_paths(&in, &arena, &count);
        assert_true(in.failed && !in.no_memory && count == 0);
        td_arena_fini(&arena);
    }
    td_buffer_fini(&bytes);
    td_wire_put_u64(begin(&bytes), UINT64_MAX);
    finish(&bytes);
    struct td_wire_reader in = td_wire_reader_of(bytes.data, bytes.len);
    td_arena_init(&arena, 0);
    (void)td_wire_get_paths(&in, &arena, &count);
    assert_true(in.failed && !in.no_memory && count == 0);
    td_arena_fini(&arena);
    td_buffer_fini(&bytes);
}

static void paths_without_memory_are_refused(void **state)
{
    (void)state;
    static char longest[2][70000];
    memset(longest[0], 'a', sizeof longest[0] - 1);
    memset(longest[1], 'b', sizeof longest[1] - 1);
    const char *const paths[PATHS_MAX] = {longest[0], longest[1]};
    assert_int_equal(code_of_paths(paths, 0), TD_OK);
    assert_int_equal(code_of_paths(paths, 100000), TD_RESOURCE_EXHAUSTED);
}

/* ---- deltas -------------------------------------------------------------------------------------------- */

static void lies_about_deltas_are_refused(void **state)
{
    (void)state;
    const struct td_limits limits = td_limits_default();
    static char longest[TD_SHARD_VERSION_BYTES + 1];
    memset(longest, '1', sizeof longest - 1);
    const struct {
        struct td_shard_index index;
        bool right;
    } indexes[] = {
        {{.is_delta = true, .base_version = "000001"}, true},
        {{.is_delta = true, .base_version = longest + 1}, true},
        {{.is_delta = true}, true},
        {{.by_group = true}, true},
        {{.base_version = "000001"}, false},
        {{.is_delta = true, .base_version = longest}, false},
        {{.is_delta = true, .by_group = true}, false},
    };
    for (size_t i = 0; i < COUNT_OF(indexes); i++) {
        struct td_file_id id = {.size_bytes = FILE_BYTES};
        struct td_file *file =
            td_file_create("model.safetensors.index.json", "x.safetensors.index.json", &id, NULL, &limits);
        struct td_file *copy =
            td_file_create("model.safetensors.index.json", "x.safetensors.index.json", &id, NULL, &limits);
        struct td_error of_parse = TD_ERROR_INIT;
        struct td_error told;
        struct td_error err = TD_ERROR_INIT;
        struct td_buffer bytes;
        file->index = indexes[i].index;
        td_content_write(file, &of_parse, begin(&bytes));
        finish(&bytes);
        CHECK(read_outcome(bytes.data, bytes.len, copy, &limits, &told, &err) == indexes[i].right, "%zu: %s", i,
              err.message);
        CHECK(!indexes[i].right || copy->index.is_delta == indexes[i].index.is_delta, "%zu", i);
        memset(&file->index, 0, sizeof file->index);
        td_buffer_fini(&bytes);
        td_file_unref(copy);
        td_file_unref(file);
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------- */

static void lies_about_rows_are_refused(void **state)
{
    (void)state;
    const struct td_row_format *format = td_row_format_named(TD_TEXT("npy"));
    assert_non_null(format);
    static char good[] = "[]", bad[] = "[]]";
    const struct td_row_index right = {.format = format,
                                       .layout = TD_ROWS_EVEN,
                                       .row_count = 10,
                                       .data_bytes = 200,
                                       .params = {100, 10},
                                       .columns = good};
    struct td_row_index lies_of_rows[5];
    for (size_t i = 0; i < COUNT_OF(lies_of_rows); i++)
        lies_of_rows[i] = right;
    lies_of_rows[1].row_count = 11;
    lies_of_rows[2].params[0] = UINT64_MAX;
    lies_of_rows[3].layout = TD_ROWS_LAYOUTS;
    lies_of_rows[4].columns = bad;
    for (size_t i = 0; i < COUNT_OF(lies_of_rows); i++) {
        struct td_row_index copy;
        struct td_error err = TD_ERROR_INIT;
        struct td_buffer bytes;
        td_rows_write(&lies_of_rows[i], begin(&bytes));
        finish(&bytes);
        struct td_wire_reader in = td_wire_reader_of(bytes.data, bytes.len);
        CHECK(td_rows_read(&in, format, 200, 0, &copy, &err) == (i == 0), "%zu: %s", i, err.message);
        if (i == 0)
            td_row_index_fini(&copy);
        else
            assert_int_equal(err.code, TD_INTERNAL);
        td_buffer_fini(&bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fixture_is_the_same_after_the_wire),
        cmocka_unit_test(each_lie_about_a_manifest_is_refused),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(paths_are_in_order_and_below_their_directory),
        cmocka_unit_test(paths_that_end_early_are_refused),
        cmocka_unit_test(paths_without_memory_are_refused),
        cmocka_unit_test(lies_about_deltas_are_refused),
        cmocka_unit_test(lies_about_rows_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
