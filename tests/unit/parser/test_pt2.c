/* shows: security.md content-all-formats */
#include "parser/torch/pt2.h"

#include "tests/unit/parser/torch_fixture.h"

static void what_torch_wrote(void **state)
{
    (void)state;
    each_fixture("pt2", ".pt2", 6, &td_format_pt2, check_fixture);
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    each_fixture("pt2", ".pt2", 6, &td_format_pt2, check_prefixes);
}

/* shows: security.md content-pt2-deflated */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    each_fixture("pt2", ".pt2", 6, &td_format_pt2, check_allocations);
}

static void changes(const struct td_format *format, const struct fixture *f)
{
    static const uint8_t bits[] = {0x01, 0x10};
    struct sample s = fixture_sample(format, f);
    const struct changes each = {
        .end = f->len, .step = 3, .by = bits, .count = sizeof bits, .flip = true, .unplaced = any_refusal};
    check_each_change(&s, &each);
}

/* shows: security.md content-pt2-configs */
static void any_byte_may_change(void **state)
{
    (void)state;
    each_fixture("pt2", ".pt2", 6, &td_format_pt2, changes);
}

/* ---- work in proportion to the file ------------------------------------------------------------------------ */

enum { RECORDS_MAX = 16, NAME_BYTES = 40 };

/* An archive made by hand, like one of torch.export.save, with records that are pickled tensors. */
struct archive {
    struct td_buffer config;
    char names[RECORDS_MAX][NAME_BYTES];
    struct zip_spec spec;
    struct zip_file file;
};

static void add_member(struct archive *a, const char *name, const void *data, size_t len, bool deflated)
{
    assert_true(a->spec.count < ZIP_MEMBERS_MAX);
    a->spec.members[a->spec.count++] =
        (struct zip_member){.name = name, .data = data, .data_len = len, .deflated = deflated};
}

static void begin(struct archive *a)
{
    memset(a, 0, sizeof *a);
    td_buffer_init(&a->config);
    td_buffer_puts(&a->config, "{\"config\": {");
    add_member(a, "m/archive_format", "pt2", 3, false);
    add_member(a, "m/archive_version", "0", 1, false);
    add_member(a, "m/models/model.json", "{}", 2, false);
}

static void add_entry(struct archive *a, unsigned number, const char *name, unsigned record)
{
    td_buffer_printf(&a->config,
                     "%s\"%s%u\": {\"path_name\": \"weight_%u\", \"is_param\": false, \"use_pickle\": true, "
                     "\"tensor_meta\": null}",
                     number > 0 ? ", " : "", name, number, record);
}

static void add_record(struct archive *a, unsigned number, const void *data, size_t len, bool deflated)
{
    assert_true(number < RECORDS_MAX);
    (void)snprintf(a->names[number], NAME_BYTES, "m/data/weights/weight_%u", number);
    add_member(a, a->names[number], data, len, deflated);
}

/* Completes the archive and parses it. *read_sum is the number of bytes read. The caller calls end(). */
static void parse(struct archive *a, const struct td_limits *limits, struct parsed *p, uint64_t *read_sum)
{
    struct watched watched;
    td_buffer_puts(&a->config, "}}");
    add_member(a, "m/data/weights/model_weights_config.json", a->config.data, a->config.len, false);
    a->file = zip_build(&a->spec);
    struct td_input input = watched_input(&watched, a->file.bytes, a->file.len);
    parse_input(&td_format_pt2, &input, limits, p);
    *read_sum = watched.read_sum;
}

static void end(struct archive *a, struct parsed *p)
{
    td_manifest_fini(&p->manifest);
    __real_free(a->file.bytes);
    td_buffer_fini(&a->config);
}

static struct zip_file saved_tensor(const char *pickle, size_t len, bool deflated)
{
    struct zip_spec spec = archive_of(pickle, len);
    spec.members[0].deflated = deflated;
    spec.torch = !deflated;
    return zip_build(&spec);
}

/* Adds an entry whose record is a tensor's plain storage. Type 7 is float32, 6 float16, 2 int8. */
static void add_plain(struct archive *a, unsigned number, unsigned type, unsigned offset, unsigned size)
{
    td_buffer_printf(&a->config,
                     "%s\"w%u\": {\"path_name\": \"weight_%u\", \"is_param\": true, \"use_pickle\": false, "
                     "\"tensor_meta\": {\"dtype\": %u, \"layout\": 7, \"storage_offset\": {\"as_int\": %u}, "
                     "\"sizes\": [{\"as_int\": %u}], \"strides\": [{\"as_int\": 1}]}}",
                     number > 0 ? ", " : "", number, number, type, offset, size);
}

/* A record without bytes stands for weights that were fake when saved, so there are no bytes to serve. */
static void tensors_without_bytes_have_a_reason(void **state)
{
    (void)state;
    struct td_limits limits = td_limits_default();
    struct archive a;
    struct parsed p;
    uint64_t read;
    begin(&a);
    add_record(&a, 0, "", 0, false);
    add_plain(&a, 0, 7, 0, 4);
    add_record(&a, 1, "", 0, false);
    add_plain(&a, 1, 7, 0, 0); /* no elements: nothing is missing */
    parse(&a, &limits, &p, &read);
    CHECK(p.ok, "%s", p.err.message);
    const struct td_tensor *fake = tensor(&p, "w0");
    CHECK(fake->reason != NULL && strcmp(fake->reason, "no bytes of it are stored") == 0, "%s", fake->reason);
    assert_int_equal(fake->nbytes, 16);
    assert_null(tensor(&p, "w1")->reason);
    end(&a, &p);
}

/* The server must not answer big-endian bytes as little-endian ones. */
static void big_endian_tensors_have_a_reason(void **state)
{
    (void)state;
    static const char *const orders[] = {"little", "big"};
    for (size_t i = 0; i < COUNT_OF(orders); i++) {
        struct td_limits limits = td_limits_default();
        struct archive a;
        struct parsed p;
        uint64_t read;
        begin(&a);
        add_member(&a, "m/byteorder", orders[i], strlen(orders[i]), false);
        add_record(&a, 0, RECORD, 16, false);
        add_plain(&a, 0, 7, 0, 4);
        add_record(&a, 1, RECORD, 16, false);
        add_plain(&a, 1, 2, 0, 16); /* single bytes have no order */
        parse(&a, &limits, &p, &read);
        CHECK(p.ok, "%s", p.err.message);
        const char *reason = tensor(&p, "w0")->reason;
        CHECK(i == 0 ? reason == NULL : reason != NULL && strcmp(reason, "big-endian") == 0, "%s: %s", orders[i],
              reason);
        assert_null(tensor(&p, "w1")->reason);
        end(&a, &p);
    }
}

/* A tensor must not reach into the members that follow its record in the archive. */
static void tensors_end_with_their_records(void **state)
{
    (void)state;
    static const struct {
        unsigned type, offset, size;
        bool ok;
    } cases[] = {
        {7, 0, 4, true},  {7, 3, 1, true},  {7, 0, 5, false},  {7, 1, 4, false},
        {7, 4, 1, false}, {2, 0, 16, true}, {2, 0, 17, false}, {6, 1, 8, false},
    };
    for (size_t i = 0; i < 2 * COUNT_OF(cases); i++) {
        const bool deflated = i >= COUNT_OF(cases);
        struct td_limits limits = td_limits_default();
        struct archive a;
        struct parsed p;
        uint64_t read;
        begin(&a);
        add_record(&a, 0, RECORD, 16, deflated);
        add_plain(&a, 0, cases[i % COUNT_OF(cases)].type, cases[i % COUNT_OF(cases)].offset,
                  cases[i % COUNT_OF(cases)].size);
        parse(&a, &limits, &p, &read);
        const bool ok = cases[i % COUNT_OF(cases)].ok;
        CHECK(p.ok == ok, "case %zu: %s", i, p.ok ? "accepted" : p.err.message);
        if (!ok)
            check_refused(&p, "leaves its storage", a.file.len);
        end(&a, &p);
    }
}

/* Entries that share a record are refused, or each would read the record: 4,000 entries in 562 KB took 23 s. */
/* shows: security.md content-pt2-growth */
static void a_record_is_read_once(void **state)
{
    (void)state;
    struct zip_file saved = saved_tensor(FLOATS ".", sizeof FLOATS, false);
    struct td_limits limits = td_limits_default();
    struct archive a;
    struct parsed p;
    uint64_t read;
    begin(&a);
    add_record(&a, 0, saved.bytes, saved.len, false);
    for (unsigned k = 0; k < 60; k++)
        add_entry(&a, k, "w", 0);
    parse(&a, &limits, &p, &read);
    CHECK(read <= 3 * a.file.len, "%" PRIu64 " bytes read of %zu", read, a.file.len);
    check_refused(&p, "\"m/data/weights/weight_0\" is named twice", a.file.len);
    end(&a, &p);
    __real_free(saved.bytes);
}

/* Twice as many records cause at most about twice as many bytes to be read. */
/* shows: security.md content-pt2-growth */
static void records_are_read_in_proportion(void **state)
{
    (void)state;
    struct zip_file saved = saved_tensor(FLOATS ".", sizeof FLOATS, false);
    struct td_limits limits = td_limits_default();
    uint64_t reads[2];
    for (unsigned i = 0; i < 2; i++) {
        const unsigned count = i == 0 ? RECORDS_MAX / 2 : RECORDS_MAX;
        struct archive a;
        struct parsed p;
        begin(&a);
        for (unsigned k = 0; k < count; k++) {
            add_record(&a, k, saved.bytes, saved.len, false);
            add_entry(&a, k, "w", k);
        }
        parse(&a, &limits, &p, &reads[i]);
        CHECK(p.ok && p.manifest.tensor_count == count, "%s", p.err.message);
        assert_int_equal(tensor(&p, "w1")->offset, a.file.data_at[4] + saved.data_at[1]);
        end(&a, &p);
    }
    CHECK(reads[1] <= 2 * reads[0] + reads[0] / 4, "%" PRIu64 " and %" PRIu64 " bytes", reads[0], reads[1]);
    __real_free(saved.bytes);
}

/* One limit bounds the unpacked bytes of all members together. */
/* shows: security.md content-pt2-growth */
static void unpacked_structure_is_one_budget(void **state)
{
    (void)state;
    static const char much[20000];
    struct zip_spec inner = archive_of(FLOATS ".", sizeof FLOATS);
    inner.members[inner.count++] = (struct zip_member){.name = "archive/data/1", .data = much, .data_len = sizeof much};
    struct zip_file saved = zip_build(&inner);
    struct td_limits limits = td_limits_default();
    limits.max_header_bytes = 100000;
    for (unsigned count = 4; count <= 5; count++) {
        struct archive a;
        struct parsed p;
        uint64_t read;
        begin(&a);
        for (unsigned k = 0; k < count; k++) {
            add_record(&a, k, saved.bytes, saved.len, true);
            add_entry(&a, k, "w", k);
        }
        parse(&a, &limits, &p, &read);
        if (count == 4)
            CHECK(p.ok, "%s", p.err.message);
        else
            check_refused(&p, "more than the limit of", a.file.len);
        end(&a, &p);
    }
    __real_free(saved.bytes);
}

/* A deflated pickle within a stored record: a few hundred bytes of each record could unpack to the limit of a file. */
/* shows: security.md content-pt2-growth */
static void packed_pickles_are_in_proportion(void **state)
{
    (void)state;
    static const size_t lengths[] = {10000, 100000};
    struct td_limits limits = td_limits_default();
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        struct td_buffer pickle;
        struct archive a;
        struct parsed p;
        uint64_t read;
        td_buffer_init(&pickle);
        put_times(&pickle, "N0", lengths[i] / 2); /* pushes None and pops it */
        td_buffer_puts(&pickle, FLOATS ".");
        struct zip_file saved = saved_tensor(pickle.data, pickle.len, true);
        begin(&a);
        add_record(&a, 0, saved.bytes, saved.len, false);
        add_entry(&a, 0, "w", 0);
        parse(&a, &limits, &p, &read);
        if (i == 0)
            CHECK(p.ok && saved.len < lengths[i], "%s", p.err.message);
        else
            check_refused(&p, "more than the limit of", a.file.len);
        end(&a, &p);
        __real_free(saved.bytes);
        td_buffer_fini(&pickle);
    }
}

/* A long name before each of many names. */
/* shows: security.md content-pt2-growth */
static void names_are_in_proportion(void **state)
{
    (void)state;
    enum { LENGTH = 8000, TENSORS = 300 };
    struct td_limits limits = td_limits_default();
    struct td_buffer pickle;
    char name[LENGTH + 1];
    struct archive a;
    struct parsed p;
    uint64_t read;
    memset(name, 'n', LENGTH);
    name[LENGTH] = '\0';
    td_buffer_init(&pickle);
    td_buffer_puts(&pickle, "(l" FLOATS "p1\na");
    put_times(&pickle, "g1\na", TENSORS);
    td_buffer_putc(&pickle, '.');
    struct zip_file saved = saved_tensor(pickle.data, pickle.len, false);
    begin(&a);
    add_record(&a, 0, saved.bytes, saved.len, false);
    add_entry(&a, 0, name, 0);
    parse(&a, &limits, &p, &read);
    check_refused(&p, "unfold without end", a.file.len);
    size_t used = p.manifest.arena.used_bytes;
    CHECK(used <= 2 * 1024 * 1024 + 32 * a.file.len, "%zu bytes for a file of %zu", used, a.file.len);
    end(&a, &p);
    __real_free(saved.bytes);
    td_buffer_fini(&pickle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_torch_wrote),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(any_byte_may_change),
        cmocka_unit_test(tensors_without_bytes_have_a_reason),
        cmocka_unit_test(big_endian_tensors_have_a_reason),
        cmocka_unit_test(tensors_end_with_their_records),
        cmocka_unit_test(a_record_is_read_once),
        cmocka_unit_test(records_are_read_in_proportion),
        cmocka_unit_test(unpacked_structure_is_one_budget),
        cmocka_unit_test(packed_pickles_are_in_proportion),
        cmocka_unit_test(names_are_in_proportion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
