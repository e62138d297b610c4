#include "parser/npz.h"

#include "tests/unit/parser/format_fixture.h"
#include "tests/unit/parser/zip_file.h"

static void what_numpy_wrote(void **state)
{
    (void)state;
    each_fixture("npz", ".npz", 4, &td_format_npz, check_fixture);
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    each_fixture("npz", ".npz", 4, &td_format_npz, check_prefixes);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    each_fixture("npz", ".npz", 4, &td_format_npz, check_allocations);
}

/* Writes a .npy file of version 1.0 with this header and data_len bytes of data to `out`. Returns its length. */
static size_t make_npy(char *out, const char *header, size_t data_len)
{
    size_t len = strlen(header);
    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (char)len;
    out[9] = (char)(len >> 8);
    memcpy(out + 10, header, len);
    for (size_t i = 0; i < data_len; i++)
        out[10 + len + i] = (char)(i * 7 + 1);
    return 10 + len + data_len;
}

#define GOOD "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"

static void parse_spec(const struct zip_spec *spec, struct parsed *p, struct zip_file *f)
{
    *f = zip_build(spec);
    parse_bytes(&td_format_npz, f->bytes, f->len, p);
}

/* Frees the manifest, then the file: the parse counts allocations from zero, so the file must outlive the manifest. */
static void done(struct parsed *p, struct zip_file *f)
{
    parsed_fini(p);
    __real_free(f->bytes);
}

static void check_member(const char *name, const char *header, size_t data_len, bool deflated, const char *says)
{
    char npy[1024];
    struct zip_file f;
    struct parsed p;
    struct zip_spec spec = {.count = 1};
    spec.members[0] = (struct zip_member){
        .name = name, .data = npy, .data_len = make_npy(npy, header, data_len), .deflated = deflated};
    parse_spec(&spec, &p, &f);
    CHECK(p.ok == (says == NULL), "%s: %s", header, p.err.message);
    if (says != NULL) {
        check_refusal(&p, TD_INVALID_ARGUMENT, f.len, says, header);
        assert_true(p.err.pos >= f.data_at[0] && p.err.pos <= f.data_at[0] + f.stored_len[0]);
    }
    done(&p, &f);
}

static void errors_name_the_member(void **state)
{
    (void)state;
    check_member("a.npy", GOOD, 8, false, NULL);
    check_member("a.npy", GOOD, 8, true, NULL);
    check_member("a.npy", GOOD, 100, true, NULL);
    check_member("a.npy", GOOD, 7, false, "npz member \"a.npy\": npy array has 8 bytes, but the file ends after 7");
    check_member("a.npy", GOOD, 7, true, "npz member \"a.npy\": npy array has 8 bytes, but the file ends after 7");
    check_member("b", "{'descr': 1}", 0, false, "npz member \"b\": npy header: descr must be");
}

static void names_must_differ_without_their_suffix(void **state)
{
    (void)state;
    char npy[256];
    size_t len = make_npy(npy, GOOD, 8);
    struct zip_spec spec = {
        .count = 2,
        .members = {{.name = "a.npy", .data = npy, .data_len = len}, {.name = "a", .data = npy, .data_len = len}}};
    struct zip_file f;
    struct parsed p;
    parse_spec(&spec, &p, &f);
    assert_false(p.ok);
    assert_non_null(strstr(p.err.message, "two tensors are named \"a\""));
    done(&p, &f);
    spec.members[1].name = "A.npy"; /* another name for NumPy */
    parse_spec(&spec, &p, &f);
    CHECK(p.ok, "%s", p.err.message);
    assert_int_equal(p.manifest.tensor_count, 2);
    done(&p, &f);
}

/* The array is listed with its compression. Of a bomb only the header is unpacked. */
static void a_deflated_array_is_unpacked_no_further_than_its_header(void **state)
{
    (void)state;
    static char npy[1 << 20];
    size_t len = make_npy(npy, "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000,), }", 1000000);
    memset(npy + (len - 1000000), 0, 1000000);
    struct zip_spec spec = {.count = 1, .members = {{.name = "a.npy", .data = npy, .data_len = len, .deflated = true}}};
    struct zip_file f;
    struct parsed p;
    parse_spec(&spec, &p, &f);
    CHECK(p.ok, "%s", p.err.message);
    const struct td_tensor *t = &p.manifest.tensors[0];
    assert_null(t->reason);
    assert_string_equal(td_tensor_stored(t), "compressed (deflate)");
    assert_int_equal(td_tensor_access(t), TD_ACCESS_DECODED);
    assert_true(t->coding->size_bytes == len && t->offset == len - 1000000);
    assert_int_equal(p.manifest.tensors[0].nbytes, 1000000);
    CHECK(p.memory.peak_bytes < 300000, "%zu bytes", p.memory.peak_bytes);
    done(&p, &f);
}

static void headers_count_against_the_limit(void **state)
{
    (void)state;
    char npy[256];
    size_t len = make_npy(npy, GOOD, 8);
    struct zip_spec spec = {.count = 3};
    static const char *const names[] = {"a.npy", "b.npy", "c.npy"};
    for (size_t i = 0; i < 3; i++)
        spec.members[i] = (struct zip_member){.name = names[i], .data = npy, .data_len = len};
    struct zip_file f = zip_build(&spec);
    struct td_input input = td_input_memory(f.bytes, f.len);
    struct td_limits limits = td_limits_default();
    size_t headers = 3 * (len - 8);
    for (limits.max_header_bytes = headers - 2; limits.max_header_bytes <= headers + 1; limits.max_header_bytes++) {
        struct parsed p;
        parse_input(&td_format_npz, &input, &limits, &p);
        CHECK(p.ok == (limits.max_header_bytes >= headers), "%s", p.err.message);
        assert_true(p.ok || p.err.code == TD_RESOURCE_EXHAUSTED);
        parsed_fini(&p);
    }
    __real_free(f.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_numpy_wrote),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(errors_name_the_member),
        cmocka_unit_test(names_must_differ_without_their_suffix),
        cmocka_unit_test(a_deflated_array_is_unpacked_no_further_than_its_header),
        cmocka_unit_test(headers_count_against_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
