#include "parser/safetensors.h"

#include "tests/unit/parser/format_parse.h"
#include "tests/unit/parser/st_cases.h"
#include "tests/unit/parser/st_file.h"

/* Returns the most that a parse may hold at its peak: an arena's first chunks, and 6 times the file. */
static size_t memory_bound(size_t file_bytes)
{
    return 4096 + 6 * file_bytes;
}

static struct sample st_sample(const char *name, const struct st_file *file)
{
    return (struct sample){.format = &td_format_safetensors,
                           .name = name,
                           .bytes = file->bytes,
                           .len = file->len,
                           .memory_bytes = memory_bound(file->len)};
}

static void parse(const struct st_file *file, struct parsed *p)
{
    parse_bytes(&td_format_safetensors, file->bytes, file->len, p);
}

/* Returns a listing of the manifest in the form of st_cases.h. The caller frees it. */
static char *list_manifest(const struct td_manifest *m, uint64_t data_start)
{
    struct td_buffer out;
    td_buffer_init(&out);
    for (size_t i = 0; i < m->tensor_count; i++) {
        const struct td_tensor *t = &m->tensors[i];
        assert_int_equal(strlen(t->name), t->name_len);
        assert_true(t->rank > 0 || t->shape == NULL);
        td_buffer_printf(&out, "%s %s ", t->name, t->dtype->name);
        list_shape(&out, t->shape, t->rank);
        td_buffer_printf(&out, " %" PRIu64 "+%" PRIu64 "\n", t->offset - data_start, t->nbytes);
    }
    for (size_t i = 0; i < m->metadata_count; i++)
        td_buffer_printf(&out, "%s=%s\n", m->metadata[i].key, m->metadata[i].value);
    assert_non_null(td_buffer_terminate(&out));
    return out.data;
}

static void check_accepted(const struct st_case *c, const struct st_file *file, const struct parsed *p)
{
    uint64_t sum = 0;
    CHECK(p->ok, "%s: %s", c->name, p->err.message);
    for (size_t i = 0; i < p->manifest.tensor_count; i++) {
        const struct td_tensor *t = &p->manifest.tensors[i];
        assert_ptr_equal(td_manifest_find(&p->manifest, td_tensor_name(t)), t);
        sum += t->nbytes;
    }
    assert_true(sum == c->data_len && p->manifest.total_bytes == sum);
    struct alloc_count before = alloc_count_get();
    char *listing = list_manifest(&p->manifest, file->len - c->data_len);
    assert_string_equal(listing, c->listing);
    free(listing);
    assert_int_equal(alloc_count_get().live_bytes, before.live_bytes);
}

static void check_refused(const struct st_case *c, const struct st_file *file, const struct parsed *p)
{
    check_refusal(p, c->code, file->len, c->says, c->name);
    if (c->at != NULL) {
        const char *at = strstr(c->header, c->at);
        CHECK(at != NULL, "%s: no '%s' in it", c->name, c->at);
        CHECK(p->err.pos == (uint64_t)(ST_PREFIX_BYTES + (at - c->header)), "%s: at %llu, %llu expected: %s", c->name,
              (unsigned long long)p->err.pos, (unsigned long long)(ST_PREFIX_BYTES + (at - c->header)), p->err.message);
    }
}

static void one_case(void **state)
{
    const struct st_case *c = *state;
    struct st_file file = st_file_make(c->header, c->header_len, c->data_len);
    struct parsed p;
    parse(&file, &p);
    if (c->code == TD_OK)
        check_accepted(c, &file, &p);
    else
        check_refused(c, &file, &p);
    struct sample sample = st_sample(c->name, &file);
    check_memory(&sample, &p);
    parsed_fini(&p);
    st_file_free(&file);
}

/* Checks that a file with a wrong length or header length is refused without an allocation. */
static void refuse_unread(const void *bytes, size_t len, enum td_code code, uint64_t pos, const char *says)
{
    struct st_file file = st_file_raw(bytes, len);
    struct parsed p;
    parse(&file, &p);
    check_refusal(&p, code, len, says, says);
    assert_true(p.err.pos == pos);
    assert_int_equal(p.memory.calls, 0);
    parsed_fini(&p);
    st_file_free(&file);
}

static void bad_01_empty_file(void **state)
{
    (void)state;
    refuse_unread("", 0, TD_INVALID_ARGUMENT, 0, "has 0 bytes");
}

static void bad_02_seven_bytes(void **state)
{
    (void)state;
    refuse_unread("\2\0\0\0\0\0\0", 7, TD_INVALID_ARGUMENT, 7, "has 7 bytes");
}

static void bad_03_header_length_0(void **state)
{
    (void)state;
    refuse_unread("\0\0\0\0\0\0\0\0", 8, TD_INVALID_ARGUMENT, 0, "header length is 0");
    refuse_unread("\0\0\0\0\0\0\0\0{}", 10, TD_INVALID_ARGUMENT, 0, "header length is 0");
}

/* shows: security.md content-lengths */
static void bad_04_header_length_2_64_minus_1(void **state)
{
    (void)state;
    refuse_unread("\xff\xff\xff\xff\xff\xff\xff\xff", 8, TD_INVALID_ARGUMENT, 0, "length 18446744073709551615 ");
    refuse_unread("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, TD_INVALID_ARGUMENT, 0, "the 2 bytes that follow");
    refuse_unread("\xf8\xff\xff\xff\xff\xff\xff\xff{}", 10, TD_INVALID_ARGUMENT, 0, "larger than the 2 bytes");
    refuse_unread("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10, TD_INVALID_ARGUMENT, 0, "larger than the 2 bytes");
}

/* A file of any size without its bytes in memory: the header's length, then `text`, then blanks. */
struct virtual_file {
    uint64_t header_len;
    const char *text;
    size_t text_len;
    unsigned reads;
    unsigned fail_at; /* the read that fails, from 1; 0 = none */
};

static bool virtual_read(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct virtual_file *file = *(struct virtual_file *const *)context;
    if (++file->reads == file->fail_at)
        return td_error_at(err, TD_IO, off, "the disk is on fire");
    uint8_t *to = out;
    for (size_t i = 0; i < len; i++) {
        uint64_t at = off + i;
        if (at < ST_PREFIX_BYTES)
            to[i] = (uint8_t)(file->header_len >> 8 * at);
        else
            to[i] = at - ST_PREFIX_BYTES < file->text_len ? (uint8_t)file->text[at - ST_PREFIX_BYTES] : ' ';
    }
    return true;
}

static void bad_05_header_length_100000001(void **state)
{
    (void)state;
    refuse_unread("\x01\xe1\xf5\x05\0\0\0\0{}", 10, TD_INVALID_ARGUMENT, 0, "length 100000001 ");
    /* the same for a file that is large enough */
    struct virtual_file file = {.header_len = 100000001};
    const struct virtual_file *context = &file;
    struct td_input input = {.size_bytes = UINT64_C(1) << 40, .read = virtual_read, .context = &context};
    struct td_limits limits = td_limits_default();
    struct parsed p;
    parse_input(&td_format_safetensors, &input, &limits, &p);
    check_refusal(&p, TD_RESOURCE_EXHAUSTED, input.size_bytes, "limit of 100000000 bytes", "virtual");
    assert_int_equal(p.memory.calls, 0);
    assert_int_equal(file.reads, 1);
    parsed_fini(&p);
}

static void bad_06_header_length_1000_in_88_bytes(void **state)
{
    (void)state;
    uint8_t bytes[88] = {0xe8, 0x03};
    memset(bytes + ST_PREFIX_BYTES, ' ', sizeof bytes - ST_PREFIX_BYTES);
    refuse_unread(bytes, sizeof bytes, TD_INVALID_ARGUMENT, 0, "length 1000 is larger than the 80 bytes");
    bytes[0] = 81;
    bytes[1] = 0;
    refuse_unread(bytes, sizeof bytes, TD_INVALID_ARGUMENT, 0, "length 81 is larger than the 80 bytes");
}

/* 100,000 levels at each place of a value. The parser does not recurse, so the stack does not overflow. */
/* shows: security.md content-json-depth */
static void bad_23_100k_deep_json(void **state)
{
    (void)state;
    static const char *const before[] = {
        "", "{\"a\":", "{\"__metadata__\":", "{\"__metadata__\":{\"a\":", "{\"a\":{\"x\":", "{\"a\":{\"shape\":"};
    enum { DEEP = 100000 };
    for (size_t i = 0; i < COUNT_OF(before); i++) {
        for (size_t kind = 0; kind < 2; kind++) {
            struct td_buffer text;
            td_buffer_init(&text);
            td_buffer_puts(&text, before[i]);
            for (size_t n = 0; n < DEEP; n++)
                td_buffer_puts(&text, kind == 0 ? "[" : "{\"x\":");
            struct st_file file = st_file_make(text.data, text.len, 0);
            td_buffer_fini(&text);
            struct parsed p;
            parse(&file, &p);
            check_refusal(&p, TD_INVALID_ARGUMENT, file.len, "", before[i]);
            assert_true(p.memory.peak_bytes <= memory_bound(file.len));
            parsed_fini(&p);
            st_file_free(&file);
        }
    }
}

/* The reference does not limit dimensions. The limit of 64 is that of torch and NumPy. */
static void rank_is_at_most_64(void **state)
{
    (void)state;
    for (size_t rank = 63; rank <= 66; rank++) {
        struct td_buffer text;
        td_buffer_init(&text);
        td_buffer_puts(&text, "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[1");
        for (size_t i = 1; i < rank; i++)
            td_buffer_puts(&text, ",1");
        td_buffer_puts(&text, "]}}");
        struct st_file file = st_file_make(text.data, text.len, 1);
        td_buffer_fini(&text);
        struct parsed p;
        parse(&file, &p);
        assert_int_equal(p.ok, rank <= TD_MAX_RANK);
        if (p.ok)
            assert_int_equal(p.manifest.tensors[0].rank, rank);
        else
            assert_non_null(strstr(p.err.message, "more than 64 dimensions"));
        parsed_fini(&p);
        st_file_free(&file);
    }
}

/* Offsets past 2^53 and 2^63, which doubles and signed integers cannot hold. */
static void offsets_are_exact_to_64_bits(void **state)
{
    (void)state;
    static const char header[] = "{" T("b", "U8", "[9007199254740993]", 0, 9007199254740993) "," T(
        "a", "U8", "[9223372036854775807]", 9007199254740993,
        9232379236109516800) "," T("c", "I16", "[3]", 9232379236109516800, 9232379236109516806) "}";
    struct virtual_file file = {.header_len = sizeof header - 1, .text = header, .text_len = sizeof header - 1};
    const struct virtual_file *context = &file;
    uint64_t start = ST_PREFIX_BYTES + sizeof header - 1;
    struct td_input input = {
        .size_bytes = start + UINT64_C(9232379236109516806), .read = virtual_read, .context = &context};
    struct td_limits limits = td_limits_default();
    struct parsed p;
    parse_input(&td_format_safetensors, &input, &limits, &p);
    CHECK(p.ok, "%s", p.err.message);
    assert_true(td_manifest_find(&p.manifest, TD_TEXT("b"))->nbytes == UINT64_C(9007199254740993));
    assert_true(td_manifest_find(&p.manifest, TD_TEXT("a"))->offset == start + UINT64_C(9007199254740993));
    assert_true(td_manifest_find(&p.manifest, TD_TEXT("a"))->nbytes == UINT64_C(9223372036854775807));
    assert_true(td_manifest_find(&p.manifest, TD_TEXT("c"))->offset == start + UINT64_C(9232379236109516800));
    assert_true(p.manifest.total_bytes == UINT64_C(9232379236109516806));
    parsed_fini(&p);
    input.size_bytes++; /* one byte too many, then one too few, at the end */
    parse_input(&td_format_safetensors, &input, &limits, &p);
    assert_true(!p.ok && p.err.pos == input.size_bytes - 1);
    parsed_fini(&p);
    input.size_bytes -= 2;
    parse_input(&td_format_safetensors, &input, &limits, &p);
    assert_false(p.ok);
    parsed_fini(&p);
}

static void every_byte_is_where_the_manifest_says(void **state)
{
    (void)state;
    static const char header[] =
        "{" T("b", "U8", "[100]", 300, 400) "," T("a", "U8", "[300]", 0, 300) "," T("c", "U8", "[1]", 400, 401) "}";
    struct st_file file = st_file_make(header, sizeof header - 1, 401);
    struct parsed p;
    parse(&file, &p);
    CHECK(p.ok, "%s", p.err.message);
    static const size_t begins[] = {0, 300, 400};
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < p.manifest.tensors[i].nbytes; k++)
            assert_int_equal(file.bytes[p.manifest.tensors[i].offset + k], st_data_byte(begins[i] + k));
    parsed_fini(&p);
    st_file_free(&file);
}

/* shows: security.md content-prefixes */
static void every_prefix_of_every_good_file_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(st_cases); i++) {
        const struct st_case *c = &st_cases[i];
        if (c->code != TD_OK)
            continue;
        struct st_file whole = st_file_make(c->header, c->header_len, c->data_len);
        struct sample sample = st_sample(c->name, &whole);
        check_each_prefix(&sample, whole.len);
        st_file_free(&whole);
    }
}

/* Every prefix of the JSON is refused when the header's length fits the prefix. */
static void every_prefix_of_every_header_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(st_cases); i++) {
        const struct st_case *c = &st_cases[i];
        size_t len = c->header_len;
        while (len > 0 && strchr(" \t\r\n", c->header[len - 1]) != NULL)
            len--;
        for (size_t cut = 0; c->code == TD_OK && cut < len; cut++) {
            struct st_file file = st_file_make(c->header, cut, c->data_len);
            struct parsed p;
            parse(&file, &p);
            check_refusal(&p, TD_INVALID_ARGUMENT, file.len, "", c->name);
            parsed_fini(&p);
            st_file_free(&file);
        }
    }
}

/* shows: security.md content-prefixes */
static void every_byte_of_every_header_changed(void **state)
{
    (void)state;
    static const char others[] = "\"{}[],:0919eE-.\\u \x01\xff";
    for (size_t i = 0; i < COUNT_OF(st_cases); i++) {
        const struct st_case *c = &st_cases[i];
        struct st_file file = st_file_make(c->header, c->header_len, c->data_len);
        struct sample sample = st_sample(c->name, &file);
        const struct changes changes = {.begin = ST_PREFIX_BYTES,
                                        .end = ST_PREFIX_BYTES + c->header_len,
                                        .step = 1,
                                        .by = others,
                                        .count = sizeof others};
        check_each_change(&sample, &changes);
        st_file_free(&file);
    }
}

/* shows: security.md content-parse-memory */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    size_t failed = 0;
    for (size_t i = 0; i < COUNT_OF(st_cases); i++) {
        const struct st_case *c = &st_cases[i];
        struct st_file file = st_file_make(c->header, c->header_len, c->data_len);
        struct sample sample = st_sample(c->name, &file);
        failed += check_each_allocation(&sample, c->code);
        st_file_free(&file);
    }
    assert_true(failed > 2 * COUNT_OF(st_cases));
}

/* A parse makes two reads and no byte is read twice, so a file that changes cannot differ from what was checked. */
static void nothing_is_read_twice_and_no_tensor_at_all(void **state)
{
    (void)state;
    static const char header[] = "{" T("b", "U8", "[100]", 300, 400) "," T("a", "U8", "[300]", 0, 300) "}";
    for (unsigned fail_at = 0; fail_at <= 2; fail_at++) {
        struct virtual_file file = {
            .header_len = sizeof header - 1, .text = header, .text_len = sizeof header - 1, .fail_at = fail_at};
        const struct virtual_file *context = &file;
        struct td_input input = {
            .size_bytes = ST_PREFIX_BYTES + sizeof header - 1 + 400, .read = virtual_read, .context = &context};
        struct td_limits limits = td_limits_default();
        struct parsed p;
        parse_input(&td_format_safetensors, &input, &limits, &p);
        assert_int_equal(file.reads, fail_at == 0 ? 2 : fail_at);
        assert_int_equal(p.err.code, fail_at == 0 ? TD_OK : TD_IO);
        if (fail_at != 0)
            assert_string_equal(p.err.message, "the disk is on fire");
        parsed_fini(&p);
    }
}

static void header_limit_is_a_limit(void **state)
{
    (void)state;
    static const char header[] = "{" T("a", "U8", "[1]", 0, 1) "}";
    struct st_file file = st_file_make(header, sizeof header - 1, 1);
    struct td_input input = td_input_memory(file.bytes, file.len);
    struct td_limits limits = td_limits_default();
    struct parsed p;
    limits.max_header_bytes = sizeof header - 1;
    parse_input(&td_format_safetensors, &input, &limits, &p);
    CHECK(p.ok, "%s", p.err.message);
    parsed_fini(&p);
    limits.max_header_bytes--;
    parse_input(&td_format_safetensors, &input, &limits, &p);
    assert_int_equal(p.err.code, TD_RESOURCE_EXHAUSTED);
    assert_int_equal(p.memory.calls, 0);
    parsed_fini(&p);
    st_file_free(&file);
}

/* At any limit a parse stays within it or fails with TD_RESOURCE_EXHAUSTED. */
static void memory_limit_is_a_limit(void **state)
{
    (void)state;
    struct td_buffer text;
    td_buffer_init(&text);
    td_buffer_putc(&text, '{');
    for (unsigned i = 0; i < 200; i++)
        td_buffer_printf(&text, "%s\"t%u\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1],\"data_offsets\":[%u,%u]}",
                         i > 0 ? "," : "", i * 7919 % 200, i, i + 1);
    td_buffer_putc(&text, '}');
    struct st_file file = st_file_make(text.data, text.len, 200);
    td_buffer_fini(&text);
    struct td_input input = td_input_memory(file.bytes, file.len);
    size_t refused = 0;
    for (size_t limit = 64; limit < 80000; limit += 64) {
        struct td_limits limits = td_limits_default();
        limits.max_memory_bytes = limit;
        struct parsed p;
        parse_input(&td_format_safetensors, &input, &limits, &p);
        assert_int_equal(p.err.code, p.ok ? TD_OK : TD_RESOURCE_EXHAUSTED);
        CHECK(p.memory.peak_bytes <= limit + limit / 4 + 2048, "%zu bytes, limit %zu", p.memory.peak_bytes, limit);
        refused += !p.ok;
        parsed_fini(&p);
    }
    assert_true(refused > 100 && refused < 1000);
    st_file_free(&file);
}

static void error_may_be_left_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(st_cases); i++) {
        struct st_file file = st_file_make(st_cases[i].header, st_cases[i].header_len, st_cases[i].data_len);
        struct sample sample = st_sample(st_cases[i].name, &file);
        check_without_error(&sample, file.len, st_cases[i].code == TD_OK);
        st_file_free(&file);
    }
}

int main(void)
{
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(bad_01_empty_file),
        cmocka_unit_test(bad_02_seven_bytes),
        cmocka_unit_test(bad_03_header_length_0),
        cmocka_unit_test(bad_04_header_length_2_64_minus_1),
        cmocka_unit_test(bad_05_header_length_100000001),
        cmocka_unit_test(bad_06_header_length_1000_in_88_bytes),
        cmocka_unit_test(bad_23_100k_deep_json),
        cmocka_unit_test(rank_is_at_most_64),
        cmocka_unit_test(offsets_are_exact_to_64_bits),
        cmocka_unit_test(every_byte_is_where_the_manifest_says),
        cmocka_unit_test(every_prefix_of_every_good_file_is_refused),
        cmocka_unit_test(every_prefix_of_every_header_is_refused),
        cmocka_unit_test(every_byte_of_every_header_changed),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(nothing_is_read_twice_and_no_tensor_at_all),
        cmocka_unit_test(header_limit_is_a_limit),
        cmocka_unit_test(memory_limit_is_a_limit),
        cmocka_unit_test(error_may_be_left_out),
    };
    struct CMUnitTest tests[COUNT_OF(st_cases) + COUNT_OF(others)];
    for (size_t i = 0; i < COUNT_OF(st_cases); i++)
        tests[i] = (struct CMUnitTest){
            .name = st_cases[i].name, .test_func = one_case, .initial_state = (void *)(uintptr_t)&st_cases[i]};
    memcpy(tests + COUNT_OF(st_cases), others, sizeof others);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
