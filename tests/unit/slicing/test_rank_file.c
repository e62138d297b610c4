#include "slicing/rank_file.h"

#include "core/arena.h"
#include "parser/safetensors.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/slicing/tensor_library.h"

enum { MOST_OUTPUTS = 8 };

/* Four results, each a whole tensor of the library. */
static const struct {
    const char *name, *dtype;
    uint32_t rank;
    uint64_t shape[2];
} whole[] = {
    {"a", "F32", 1, {2}},
    {"e", "F32", 2, {0, 3}},
    {"q\"\xc3\xa9\n", "F32", 2, {1, 3}},
    {"s", "F32", 0, {0}},
};

/* The header that safetensors 0.8.0 writes for them with safetensors.numpy.save(tensors, metadata={"format": "pt"}). */
static const char by_safetensors[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
    "\"e\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[8,8]},"
    "\"q\\\"\xc3\xa9\\n\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[8,20]},"
    "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[20,24]}}";

static const struct td_rank_metadata pt[] = {{"format", "pt"}};

static struct tensor_library library;

static void fill_library(void)
{
    memset(&library, 0, sizeof library);
    for (size_t i = 0; i < COUNT_OF(whole); i++)
        (void)library_add(&library, whole[i].name, whole[i].dtype, whole[i].rank, whole[i].shape);
}

/* Returns a plan with every whole tensor of the library, in order. */
static struct td_plan plan_all(void)
{
    struct td_plan plan = {.tp_size = 1};
    td_arena_init(&plan.arena, 0);
    plan.outputs = td_arena_array(&plan.arena, MOST_OUTPUTS, sizeof *plan.outputs);
    plan.pieces = td_arena_array(&plan.arena, MOST_OUTPUTS, sizeof *plan.pieces);
    assert_true(plan.outputs != NULL && plan.pieces != NULL);
    for (size_t i = 0; i < library.count; i++) {
        const struct td_tensor *t = &library.tensors[i];
        plan.pieces[i] =
            (struct td_plan_piece){.tensor = (uint32_t)i, .size = t->rank > 0 ? t->shape[0] : 1, .count = 1};
        plan.outputs[i] = (struct td_plan_output){.name = t->name,
                                                  .dtype = t->dtype,
                                                  .rank = t->rank,
                                                  .shape = t->shape,
                                                  .nbytes = t->nbytes,
                                                  .cell_count = 1,
                                                  .first_piece = i,
                                                  .piece_count = 1};
        plan.total_bytes += t->nbytes;
    }
    plan.output_count = plan.piece_count = library.count;
    return plan;
}

static bool create(const struct td_rank_metadata *metadata, size_t count, bool header, struct td_rank_file **out,
                   struct td_error *err)
{
    struct td_plan plan = plan_all();
    struct td_tensor_list list = library_list(&library);
    bool ok = td_rank_file_create(&plan, &list, metadata, count, header, NULL, out, err);
    td_plan_fini(&plan); /* the file does not point to the plan */
    return ok;
}

static uint8_t *file_bytes(struct td_rank_file *file)
{
    library.header = file->own;
    return library_read(&library, file->layout);
}

static void the_file_is_what_safetensors_writes(void **state)
{
    (void)state;
    struct td_rank_file *file;
    fill_library();
    assert_true(create(pt, 1, true, &file, NULL));
    size_t len = strlen(by_safetensors);
    assert_true(len % 8 == 0 && file->nbytes == 8 + len + 24);
    uint8_t *bytes = file_bytes(file);
    assert_true(bytes[0] == (len & 0xff) && bytes[1] == len >> 8);
    assert_memory_equal(bytes + 2, "\0\0\0\0\0\0", 6);
    assert_memory_equal(bytes + 8, by_safetensors, len);
    assert_memory_equal(bytes + 8 + len, library.blobs[0]->bytes + LIBRARY_BASE, 8);
    assert_memory_equal(bytes + 16 + len, library.blobs[2]->bytes + LIBRARY_BASE, 12);
    assert_memory_equal(bytes + 28 + len, library.blobs[3]->bytes + LIBRARY_BASE, 4);
    assert_true(td_rank_file_memory_bytes(file) > sizeof *file + 8 + len);
    assert_ptr_equal(td_rank_file_ref(file), file);
    td_rank_file_unref(file);
    free(bytes);
    td_rank_file_unref(file);
    td_rank_file_unref(NULL);
    library_free(&library);
}

static void raw_files_are_the_bytes_alone(void **state)
{
    (void)state;
    struct td_rank_file *file;
    fill_library();
    (void)library_add(&library, "x", "C128", 1, whole[0].shape); /* a type that safetensors lacks */
    assert_true(create(NULL, 0, false, &file, NULL));
    assert_true(file->own == NULL && file->nbytes == 24 + 32);
    uint8_t *bytes = file_bytes(file);
    assert_memory_equal(bytes, library.blobs[0]->bytes + LIBRARY_BASE, 8);
    assert_memory_equal(bytes + 24, library.blobs[4]->bytes + LIBRARY_BASE, 32);
    assert_true(td_rank_file_memory_bytes(file) > sizeof *file);
    free(bytes);
    td_rank_file_unref(file);
    library_free(&library);
}

/* Constants are stored among the tensors as little-endian F32, with a header and without. */
static void constants_are_bytes_of_the_file(void **state)
{
    (void)state;
    fill_library();
    struct td_tensor_list list = library_list(&library);
    for (int with_header = 0; with_header < 2; with_header++) {
        struct td_rank_file *file;
        struct td_error err = TD_ERROR_INIT;
        struct td_plan plan = plan_all();
        size_t last = plan.output_count - 1;
        uint64_t replaced = plan.outputs[0].nbytes + plan.outputs[last].nbytes;
        plan.outputs[0] = (struct td_plan_output){.name = "a",
                                                  .dtype = td_dtype_find(TD_TEXT("F32")),
                                                  .nbytes = 4,
                                                  .cell_count = 1,
                                                  .is_constant = true,
                                                  .constant = 1};
        plan.outputs[last] = plan.outputs[0];
        plan.outputs[last].name = "b";
        plan.outputs[last].constant = -0.15625F; /* 0xbe200000 */
        bool ok = td_rank_file_create(&plan, &list, NULL, 0, with_header == 1, NULL, &file, &err);
        CHECK(ok, "%s", err.message);
        uint64_t tensors = plan.total_bytes - replaced;
        assert_int_equal(file->nbytes, file->header_bytes + tensors + 8);
        assert_int_equal(file->header_bytes > 0, with_header);
        uint8_t *bytes = file_bytes(file);
        if (with_header == 1) {
            assert_int_equal(bytes[0] | bytes[1] << 8, file->header_bytes - 8);
            assert_non_null(memmem(bytes, file->header_bytes, "\"shape\":[],\"data_offsets\":[0,4]", 31));
        }
        assert_memory_equal(bytes + file->header_bytes, "\0\0\x80\x3f", 4);
        assert_memory_equal(bytes + file->nbytes - 4, "\0\0\x20\xbe", 4);
        free(bytes);
        td_rank_file_unref(file);
        td_plan_fini(&plan);
    }
    library_free(&library);
}

/* Headers of every length are padded with spaces to a multiple of 8 bytes, and the file parses to the same tensors. */
static void headers_are_padded_with_spaces(void **state)
{
    (void)state;
    fill_library();
    for (size_t n = 0; n < 20; n++) {
        char value[32] = {0};
        const struct td_rank_metadata metadata[] = {{"k", value}, {"two\x1f", "\xe2\x82\xac \"\\"}};
        struct td_rank_file *file;
        memset(value, 'v', n);
        assert_true(create(metadata, n % 3, true, &file, NULL));
        uint8_t *bytes = file_bytes(file);
        size_t header = (size_t)bytes[0] | (size_t)bytes[1] << 8;
        assert_true(header % 8 == 0 && header == file->header_bytes - 8 && bytes[8] == '{');
        size_t end = 8 + header;
        while (bytes[end - 1] == ' ')
            end--;
        assert_true(bytes[end - 1] == '}' && 8 + header - end < 8);
        assert_true((memmem(bytes + 8, header, "__metadata__", 12) != NULL) == (n % 3 > 0));
        struct td_manifest manifest;
        struct td_limits limits = td_limits_default();
        struct td_input input = td_input_memory(bytes, (size_t)file->nbytes);
        td_manifest_init(&manifest, 0);
        assert_true(td_format_safetensors.parse(&input, &limits, &manifest, NULL));
        assert_true(manifest.tensor_count == COUNT_OF(whole) && manifest.metadata_count == n % 3);
        for (size_t i = 0; i < manifest.tensor_count; i++) {
            assert_string_equal(manifest.tensors[i].name, whole[i].name);
            assert_int_equal(manifest.tensors[i].nbytes, library.tensors[i].nbytes);
        }
        td_manifest_fini(&manifest);
        free(bytes);
        td_rank_file_unref(file);
    }
    library_free(&library);
}

static void nothing_is_a_file_too(void **state)
{
    (void)state;
    struct td_rank_file *file;
    memset(&library, 0, sizeof library);
    assert_true(create(NULL, 0, true, &file, NULL));
    assert_true(file->nbytes == 16);
    assert_memory_equal(file->own->bytes, "\x08\0\0\0\0\0\0\0{}      ", 16); /* safetensors.numpy.save({}) */
    td_rank_file_unref(file);
    assert_true(create(NULL, 0, false, &file, NULL));
    assert_true(file->nbytes == 0 && file->layout->block_count == 0);
    td_rank_file_unref(file);
}

static void what_safetensors_cannot_say_is_refused(void **state)
{
    (void)state;
    static const char *const types[] = {"C128", "F128", "C32", "QINT8", "Q8_0"};
    static const uint64_t shape[] = {32};
    struct td_rank_file *file = NULL;
    struct td_error err;
    for (size_t i = 0; i <= COUNT_OF(types); i++) {
        bool reserved = i == COUNT_OF(types);
        fill_library();
        (void)library_add(&library, reserved ? "__metadata__" : "odd", reserved ? "F32" : types[i], 1, shape);
        td_error_init(&err);
        assert_false(create(pt, 1, true, &file, &err));
        assert_int_equal(err.code, TD_FAILED_PRECONDITION);
        assert_non_null(strstr(err.message, reserved ? "__metadata__" : "odd"));
        library_free(&library);
    }
}

static void plans_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct td_rank_file *file = NULL;
    struct td_error err = TD_ERROR_INIT;
    fill_library();
    struct td_plan plan = plan_all();
    struct td_tensor_list list = library_list(&library);
    plan.outputs[0].nbytes++;
    assert_false(td_rank_file_create(&plan, &list, pt, 1, true, NULL, &file, &err));
    assert_int_equal(err.code, TD_INTERNAL);
    td_plan_fini(&plan);
    plan = plan_all();
    plan.outputs[2].nbytes = UINT64_MAX - 7;
    td_error_init(&err);
    assert_false(td_rank_file_create(&plan, &list, pt, 1, true, NULL, &file, &err));
    assert_int_equal(err.code, TD_INVALID_ARGUMENT);
    td_plan_fini(&plan);
    library_free(&library);
}

/* MAX_HEADER_SIZE of safetensors' tensor.rs: readers refuse a header of one byte more. */
static void headers_stay_within_what_is_read(void **state)
{
    (void)state;
    enum { MOST = 100000000 };
    struct td_rank_file *file = NULL;
    struct td_error err = TD_ERROR_INIT;
    const size_t around = strlen("{\"__metadata__\":{\"k\":\"\"}}");
    char *value = malloc(MOST);
    assert_non_null(value);
    memset(value, 'x', MOST);
    memset(&library, 0, sizeof library);
    const struct td_rank_metadata metadata[] = {{"k", value}};
    value[MOST - around] = '\0';
    assert_true(create(metadata, 1, true, &file, NULL));
    assert_true(file->header_bytes == 8 + MOST);
    td_rank_file_unref(file);
    value[MOST - around] = 'x';
    value[MOST - around + 1] = '\0';
    assert_false(create(metadata, 1, true, &file, &err));
    assert_int_equal(err.code, TD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.message, "100000000"));
    free(value);
}

static void want_of_memory_is_an_error(void **state)
{
    (void)state;
    struct alloc_trials trials = {.may_do_without = true};
    fill_library();
    struct td_plan plan = plan_all();
    struct td_tensor_list list = library_list(&library);
    while (alloc_try(&trials)) {
        struct td_error err = TD_ERROR_INIT;
        struct td_rank_file *file = NULL;
        alloc_tried(&trials, td_rank_file_create(&plan, &list, pt, 1, true, NULL, &file, &err), &err);
        td_rank_file_unref(file);
    }
    assert_true(trials.k > 7);
    td_plan_fini(&plan);
    library_free(&library);
}

/* A budget of any size is never exceeded, and all of it is returned. */
static void budgets_are_never_exceeded(void **state)
{
    (void)state;
    fill_library();
    struct td_tensor_list list = library_list(&library);
    bool ok = false;
    for (size_t max = 0; !ok; max += 7) {
        struct td_budget budget;
        struct td_error err = TD_ERROR_INIT;
        struct td_rank_file *file = NULL;
        struct td_plan plan = plan_all();
        td_budget_init(&budget, max, "files");
        ok = td_rank_file_create(&plan, &list, pt, 1, true, &budget, &file, &err);
        CHECK(ok || err.code == TD_RESOURCE_EXHAUSTED || err.code == TD_FAILED_PRECONDITION, "%zu: %s", max,
              err.message);
        assert_true(max < 100000 && (!ok || td_budget_used(&budget) == td_rank_file_memory_bytes(file)));
        td_rank_file_unref(file);
        assert_int_equal(td_budget_used(&budget), 0);
        td_plan_fini(&plan);
    }
    library_free(&library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_is_what_safetensors_writes),
        cmocka_unit_test(raw_files_are_the_bytes_alone),
        cmocka_unit_test(constants_are_bytes_of_the_file),
        cmocka_unit_test(headers_are_padded_with_spaces),
        cmocka_unit_test(nothing_is_a_file_too),
        cmocka_unit_test(what_safetensors_cannot_say_is_refused),
        cmocka_unit_test(plans_that_do_not_fit_are_refused),
        cmocka_unit_test(headers_stay_within_what_is_read),
        cmocka_unit_test(want_of_memory_is_an_error),
        cmocka_unit_test(budgets_are_never_exceeded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
