/* Files by the real torch.save, whole and damaged. */
/* shows: security.md content-all-formats */
#include "tests/unit/parser/torch_fixture.h"

#include <cjson/cJSON.h>

/* Returns FNV-1a of the elements in logical order, each read where the manifest places it. */
static uint64_t tensor_fnv(const struct td_tensor *t, const char *bytes, size_t len)
{
    uint64_t index[TD_MAX_RANK] = {0};
    size_t item = t->dtype->block_bytes;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    uint64_t contiguous = t->offset;
    for (uint64_t done = 0; done < t->nbytes; done += item, contiguous += item) {
        uint64_t at = t->strides != NULL ? t->offset : contiguous;
        for (uint32_t d = 0; t->strides != NULL && d < t->rank; d++)
            at += index[d] * t->strides[d] * item;
        assert_true(at <= len && item <= len - at);
        for (size_t i = 0; i < item; i++)
            hash = (hash ^ (uint8_t)bytes[at + i]) * UINT64_C(0x100000001b3);
        for (uint32_t d = t->rank; d-- > 0 && ++index[d] == t->shape[d];)
            index[d] = 0;
    }
    return hash;
}

static void put_numbers(struct td_buffer *out, const uint64_t *numbers, uint32_t count)
{
    td_buffer_putc(out, '[');
    for (uint32_t d = 0; d < count; d++)
        td_buffer_printf(out, d > 0 ? ",%" PRIu64 : "%" PRIu64, numbers[d]);
    td_buffer_puts(out, "]\t");
}

/* Appends the line of a tensor as make_torch.py writes it. shape_known is false where the script writes a "?". */
static void put_tensor(struct td_buffer *out, const struct td_tensor *t, const char *bytes, size_t len,
                       bool shape_known)
{
    td_buffer_printf(out, "%s\t%s\t", t->name, t->dtype->name);
    if (shape_known)
        put_numbers(out, t->shape, t->rank);
    else
        td_buffer_puts(out, "?\t");
    if (t->strides != NULL)
        put_numbers(out, t->strides, t->rank);
    else
        td_buffer_puts(out, "-\t");
    const char *stored = t->reason == NULL ? td_tensor_stored(t) : t->reason;
    if (stored != NULL)
        td_buffer_printf(out, "!%s\n", stored);
    else
        td_buffer_printf(out, "%016" PRIx64 "\n", tensor_fnv(t, bytes, len));
}

/* Checks that an "=" line has the metadata's JSON value. Numbers are compared as text, because cJSON rounds them. */
static void check_metadata_line(const struct td_manifest *m, const char *name, const char *line, size_t len)
{
    const char *key = line + 2;
    const char *tab = memchr(key, '\t', len - 2);
    assert_non_null(tab);
    const char *value = metadata_value(m, key, (size_t)(tab - key));
    CHECK(value != NULL, "%s: no metadata %.*s", name, (int)len, line);
    size_t wanted_len = (size_t)(line + len - tab - 1);
    if (memchr(tab + 1, '"', wanted_len) == NULL) {
        CHECK(strlen(value) == wanted_len && memcmp(value, tab + 1, wanted_len) == 0, "%s: %.*s, but %s", name,
              (int)len, line, value);
        return;
    }
    cJSON *wanted = cJSON_ParseWithLength(tab + 1, wanted_len);
    cJSON *got = cJSON_Parse(value);
    CHECK(wanted != NULL && got != NULL && cJSON_Compare(wanted, got, true), "%s: %.*s, but %s", name, (int)len, line,
          value);
    cJSON_Delete(wanted);
    cJSON_Delete(got);
}

/* Checks a manifest against the lines. Returns the number of tensors. */
static size_t check_lines(const struct td_manifest *m, const struct fixture *f, const char *bytes, size_t len)
{
    size_t tensors = 0;
    for (const char *line = f->bytes; line < f->bytes + f->len;) {
        size_t line_len = (size_t)((const char *)memchr(line, '\n', (size_t)(f->bytes + f->len - line)) - line);
        struct td_buffer out;
        if (line[0] == '=' && line[1] == '\t') {
            check_metadata_line(m, f->name, line, line_len);
            line += line_len + 1;
            continue;
        }
        CHECK(tensors < m->tensor_count, "%s: %zu tensors", f->name, m->tensor_count);
        td_buffer_init(&out);
        put_tensor(&out, &m->tensors[tensors++], bytes, len, memmem(line, line_len, "\t?\t", 3) == NULL);
        CHECK(out.len == line_len + 1 && memcmp(out.data, line, out.len) == 0, "%s: got\n%.*swanted\n%.*s", f->name,
              (int)out.len, out.data, (int)line_len, line);
        td_buffer_fini(&out);
        line += line_len + 1;
    }
    return tensors;
}

/* Checks NAME.pt against the lines of f, which is NAME.txt beside it. */
static void as_torch_reads(const struct td_format *format, const struct fixture *f)
{
    size_t len;
    char *bytes = read_file("torch", f->name, ".pt", &len);
    struct parsed p;
    parse_bytes(format, bytes, len, &p);
    CHECK(p.ok, "%s: %s", f->name, p.err.message);
    size_t tensors = check_lines(&p.manifest, f, bytes, len);
    CHECK(tensors == p.manifest.tensor_count, "%s: also \"%s\"", f->name, p.manifest.tensors[tensors].name);
    parsed_fini(&p);
    __real_free(bytes);
}

static void what_torch_wrote(void **state)
{
    (void)state;
    each_fixture("torch", ".txt", 20, &td_format_torch, as_torch_reads);
}

/* The sizes are torch's Tensor.nbytes. A nested tensor has 0 bytes, because its dimensions are not all numbers. */
static void sizes_of_what_is_not_stored(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t nbytes;
    } cases[] = {{"row", 12},   {"rows", 48}, {"columns", 48}, {"ones", 10},
                 {"scalar", 4}, {"none", 0},  {"nested", 0},   {"nested.values", 36}};
    size_t len;
    char *bytes = read_file("torch", "unstored", ".pt", &len);
    struct parsed p;
    parse_bytes(&td_format_torch, bytes, len, &p);
    CHECK(p.ok, "%s", p.err.message);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        CHECK(tensor(&p, cases[i].name)->nbytes == cases[i].nbytes, "%s: %" PRIu64, cases[i].name,
              tensor(&p, cases[i].name)->nbytes);
    parsed_fini(&p);
    __real_free(bytes);
}

static void each_named(const char *const *names, size_t count,
                       void (*check)(const struct td_format *format, const struct fixture *f))
{
    for (size_t i = 0; i < count; i++) {
        struct fixture f = fixture_read("torch", names[i], ".pt");
        check(&td_format_torch, &f);
        fixture_free(&f);
    }
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"bare",        "empty",       "list",         "protocol4",
                                        "legacy_bare", "legacy_flat", "legacy_views", "rezipped"};
    each_named(names, COUNT_OF(names), check_prefixes);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const names[] = {"kinds",       "checkpoint",   "module",     "views",     "scripted",
                                        "legacy_flat", "legacy_views", "compressed", "big_endian"};
    each_named(names, COUNT_OF(names), check_allocations);
}

/* Checks that a damaged file is refused with a proper error, or that its tensors are within the file. */
static void check_sound(const struct parsed *p, size_t len, const char *what)
{
    if (!p->ok) {
        check_error(&p->err, len, false, what);
        return;
    }
    for (size_t i = 0; i < p->manifest.tensor_count; i++) {
        const struct td_tensor *t = &p->manifest.tensors[i];
        CHECK(tensor_within(t, len), "%s: \"%s\" leaves the file", what, t->name);
        assert_true(td_utf8_valid(t->name, t->name_len));
    }
}

static void every_byte_changed(void **state)
{
    (void)state;
    static const char *const names[] = {"bare", "kinds", "checkpoint", "legacy_views"};
    static const uint8_t by[] = {0x01, 0x80, 0xFF};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        size_t len;
        char *bytes = read_file("torch", names[i], ".pt", &len);
        for (size_t at = 0; at < len; at += SANITIZED ? 5 : 1) {
            for (size_t k = 0; k < COUNT_OF(by); k++) {
                struct parsed p;
                bytes[at] = (char)(bytes[at] ^ by[k]);
                parse_bytes(&td_format_torch, bytes, len, &p);
                check_sound(&p, len, names[i]);
                parsed_fini(&p);
                bytes[at] = (char)(bytes[at] ^ by[k]);
            }
        }
        __real_free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_torch_wrote),        cmocka_unit_test(sizes_of_what_is_not_stored),
        cmocka_unit_test(every_prefix_is_refused), cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_byte_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
