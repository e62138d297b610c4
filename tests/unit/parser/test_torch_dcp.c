#include "parser/torch/torch_dcp.h"

#include "parser/torch/torch_distcp.h"
#include "tests/unit/alloc_trials.h"
#include "tests/unit/parser/torch_fixture.h"
#include "tests/unit/work.h"

struct file {
    char *bytes;
    size_t len;
};

static struct file load(const char *name)
{
    struct file f;
    f.bytes = read_file("dcp", name, "", &f.len);
    return f;
}

struct dcp_parsed {
    struct td_dcp dcp;
    struct td_error err;
    bool ok;
    struct alloc_count memory;
};

static void parse_dcp(const void *bytes, size_t len, struct dcp_parsed *p)
{
    struct td_input input = td_input_memory(bytes, len);
    struct td_limits limits = td_limits_default();
    td_error_init(&p->err);
    alloc_count_start();
    p->ok = td_dcp_parse(&p->dcp, &input, &limits, &p->err);
    p->memory = alloc_count_get();
    assert_int_equal(p->ok, p->err.code == TD_OK);
}

static void dcp_done(struct dcp_parsed *p)
{
    td_dcp_fini(&p->dcp);
    assert_int_equal(alloc_count_get().live_bytes, 0);
}

/* ---- what torch.distributed.checkpoint wrote ------------------------------------------------------------ */

/* Returns a piece's item: the tensor of the .distcp file whose name gives this place. */
static const struct td_tensor *item_at(const struct td_manifest *m, uint64_t offset, uint64_t nbytes)
{
    char name[TD_DCP_ITEM_NAME_MAX];
    size_t len = td_dcp_item_name(name, offset, nbytes);
    const struct td_tensor *found = td_manifest_find(m, td_text_n(name, len));
    CHECK(found != NULL, "no item %s", name);
    return found;
}

/* Appends a tensor's line of EXPECTED.txt. One process wrote the checkpoint, so each tensor is a single piece. */
static void put_tensor(struct td_buffer *out, const struct td_dcp_tensor *t, const struct td_manifest *items,
                       const char *bytes, size_t len)
{
    td_buffer_printf(out, "%s\t%s\t", t->name, t->dtype->name);
    list_shape(out, t->shape, t->rank);
    td_buffer_putc(out, '\t');
    uint64_t elems = 1;
    for (uint32_t d = 0; d < t->rank; d++)
        elems *= t->shape[d];
    assert_true(t->piece_count == 1 || elems == 0);
    for (uint32_t i = 0; i < t->piece_count; i++) {
        const struct td_dcp_piece *piece = &t->pieces[i];
        assert_true(piece->file == 0 && piece->reason == NULL);
        for (uint32_t d = 0; d < t->rank; d++)
            assert_true(piece->starts[d] == 0 && piece->sizes[d] == t->shape[d]);
        const struct td_tensor *item = item_at(items, piece->item_offset, piece->item_bytes);
        assert_true(item->dtype == t->dtype && item->rank == t->rank && item->reason == NULL);
        assert_true(item->strides == NULL && item->offset <= len && item->nbytes <= len - item->offset);
        for (uint64_t k = 0; k < item->nbytes; k++)
            td_buffer_printf(out, "%02x", (unsigned char)bytes[item->offset + k]);
    }
    td_buffer_putc(out, '\n');
}

static void as_torch_reads(void **state)
{
    (void)state;
    struct file metadata = load(".metadata");
    struct file data = load("__0_0.distcp");
    struct file expected = load("EXPECTED.txt");
    struct dcp_parsed p;
    struct parsed items;
    struct td_buffer out;
    parse_bytes(&td_format_distcp, data.bytes, data.len, &items);
    CHECK(items.ok, "%s", items.err.message);
    struct td_input input = td_input_memory(metadata.bytes, metadata.len);
    struct td_limits limits = td_limits_default();
    td_error_init(&p.err);
    CHECK(td_dcp_parse(&p.dcp, &input, &limits, &p.err), "%s", p.err.message);
    assert_int_equal(p.dcp.file_count, 1);
    assert_string_equal(p.dcp.files[0], "__0_0.distcp");
    td_buffer_init(&out);
    for (size_t i = 0; i < p.dcp.tensor_count; i++)
        put_tensor(&out, &p.dcp.tensors[i], &items.manifest, data.bytes, data.len);
    CHECK(out.len == expected.len && memcmp(out.data, expected.bytes, out.len) == 0, "got\n%.*swanted\n%.*s",
          (int)out.len, out.data, (int)expected.len, expected.bytes);
    td_buffer_fini(&out);
    td_dcp_fini(&p.dcp);
    parsed_fini(&items);
    __real_free(metadata.bytes);
    __real_free(data.bytes);
    __real_free(expected.bytes);
}

/* ---- damage to it --------------------------------------------------------------------------------------- */

static void every_prefix_of_metadata_is_refused(void **state)
{
    (void)state;
    struct file f = load(".metadata");
    for (size_t len = 0; len < f.len; len++) {
        char *exact = exact_copy(f.bytes, len);
        struct dcp_parsed p;
        parse_dcp(exact, len, &p);
        CHECK(!p.ok, "%zu of %zu bytes accepted", len, f.len);
        assert_int_equal(p.err.code, TD_INVALID_ARGUMENT);
        check_error(&p.err, len, true, ".metadata");
        dcp_done(&p);
        __real_free(exact);
    }
    __real_free(f.bytes);
}

static void every_byte_of_metadata_changed(void **state)
{
    (void)state;
    struct file f = load(".metadata");
    static const uint8_t by[] = {0x01, 0x80, 0xFF};
    for (size_t at = 0; at < f.len * COUNT_OF(by); at++) {
        struct dcp_parsed p;
        char *byte = &f.bytes[at / COUNT_OF(by)];
        *byte = (char)(*byte ^ by[at % COUNT_OF(by)]);
        parse_dcp(f.bytes, f.len, &p);
        if (!p.ok)
            check_error(&p.err, f.len, false, ".metadata");
        for (size_t i = 0; p.ok && i < p.dcp.tensor_count; i++)
            for (uint32_t k = 0; k < p.dcp.tensors[i].piece_count; k++)
                assert_true(p.dcp.tensors[i].pieces[k].file < p.dcp.file_count);
        dcp_done(&p);
        *byte = (char)(*byte ^ by[at % COUNT_OF(by)]);
    }
    __real_free(f.bytes);
}

static void every_allocation_of_metadata_may_fail(void **state)
{
    (void)state;
    struct file f = load(".metadata");
    struct alloc_trials trials = {0};
    while (alloc_try(&trials)) {
        struct dcp_parsed p;
        parse_dcp(f.bytes, f.len, &p);
        alloc_tried(&trials, p.ok, &p.err);
        dcp_done(&p);
    }
    assert_true(trials.failed >= 30);
    __real_free(f.bytes);
}

/* The file has no header around its items, so a file cut after an item is a valid file with fewer items. */
static void prefixes_of_items(void **state)
{
    (void)state;
    struct file f = load("__0_0.distcp");
    size_t accepted = 0;
    for (size_t len = 0; len < f.len; len++) {
        struct parsed p;
        parse_exact(&td_format_distcp, f.bytes, len, &p);
        accepted += p.ok;
        if (!p.ok)
            check_error(&p.err, len, true, ".distcp");
        CHECK(!p.ok || len == 0 || memcmp(f.bytes + len - 22, "PK\5\6", 4) == 0, "%zu bytes accepted", len);
        parsed_fini(&p);
    }
    CHECK(accepted >= 2 && accepted <= 8, "%zu prefixes accepted", accepted);
    __real_free(f.bytes);
}

static void every_allocation_of_items_may_fail(void **state)
{
    (void)state;
    struct fixture f = {.name = ".distcp"};
    f.bytes = read_file("dcp", "__0_0.distcp", "", &f.len);
    check_allocations(&td_format_distcp, &f);
    __real_free(f.bytes);
}

/* ---- metadata changed by hand: the first occurrence of a text is replaced ------------------------------- */

static const struct {
    const char *old, *new; /* of one length */
    const char *says;
} changes[] = {
    {"__0_0.distcp", "../_0.distcp", "not the name of a file"},
    {"__0_0.distcp", "__0_0\0distc", "not the name of a file"},
    {"float32", "float99", "dtype is unknown"},
    {"storage_data", "storage_datb", "storage_data"},
    {"state_dict_metadata", "state_dict_metadatb", "state_dict_metadata"},
    {"chunks", "chunkz", "chunks"},
    {"length", "lengtj", "an item's length is not a whole number"},
};

static void changed_metadata_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        struct file f = load(".metadata");
        struct dcp_parsed p;
        size_t len = strlen(changes[i].old);
        char *at = memmem(f.bytes, f.len, changes[i].old, len);
        CHECK(at != NULL, "no %s", changes[i].old);
        memcpy(at, changes[i].new, len);
        parse_dcp(f.bytes, f.len, &p);
        CHECK(p.ok == (changes[i].says == NULL), "%s: %s", changes[i].new, p.err.message);
        if (!p.ok)
            check_says(&p.err, changes[i].says, changes[i].new);
        dcp_done(&p);
        __real_free(f.bytes);
    }
}

/* ---- sharing -------------------------------------------------------------------------------------------- */

/* Items that are lists of lists of one tensor. Items that are not tensors are not searched, whatever their number. */
/* shows: security.md content-pickle-growth */
static void items_are_not_walked(void **state)
{
    (void)state;
    enum { ITEMS = 200 };
    struct td_buffer text;
    struct td_buffer file;
    struct parsed p;
    td_buffer_init(&text);
    td_buffer_puts(&text, "(l(l(l" FLOATS "p1\na");
    for (int level = 1; level <= 3; level++) {
        for (int i = 1; i < 31; i++)
            td_buffer_printf(&text, "g%d\na", level);
        if (level < 3)
            td_buffer_printf(&text, "p%d\na", level + 1);
    }
    td_buffer_putc(&text, '.');
    struct zip_spec many = archive_of(text.data, text.len);
    struct zip_spec one = archive_of(FLOATS ".", sizeof FLOATS);
    struct zip_file unfolding = zip_build(&many);
    struct zip_file tensor = zip_build(&one);
    td_buffer_init(&file);
    for (int i = 0; i < ITEMS; i++)
        td_buffer_append(&file, unfolding.bytes, unfolding.len);
    td_buffer_append(&file, tensor.bytes, tensor.len);
    uint64_t work = work_now();
    parse_bytes(&td_format_distcp, file.data, file.len, &p);
    work = work_now() - work;
    CHECK(p.ok, "%s", p.err.message);
    CHECK(work > file.len / 4 && work < 60 * file.len, "%.1f blocks per byte", (double)work / (double)file.len);
    assert_int_equal(p.manifest.tensor_count, 1);
    const struct td_tensor *item = item_at(&p.manifest, file.len - tensor.len, tensor.len);
    assert_int_equal(item->offset, file.len - tensor.len + tensor.data_at[1]);
    td_manifest_fini(&p.manifest);
    td_buffer_fini(&file);
    td_buffer_fini(&text);
    __real_free(unfolding.bytes);
    __real_free(tensor.bytes);
}

/* Items whose pickles are deflated. A pickle may unpack to at most 64 times the bytes of its item. */
/* shows: security.md content-distcp-items */
static void packed_items_are_in_proportion(void **state)
{
    (void)state;
    static const size_t lengths[] = {10000, 100000};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        struct td_buffer text;
        struct parsed p;
        td_buffer_init(&text);
        put_times(&text, "N0", lengths[i] / 2); /* pushes None and pops it */
        td_buffer_puts(&text, FLOATS ".");
        struct zip_spec spec = archive_of(text.data, text.len);
        spec.members[0].deflated = true;
        spec.torch = false;
        struct zip_file item = zip_build(&spec);
        assert_true(item.len < lengths[0] / 2 && item.len > lengths[0] / 64);
        parse_bytes(&td_format_distcp, item.bytes, item.len, &p);
        if (i == 0)
            CHECK(p.ok && p.manifest.tensor_count == 1, "%s", p.err.message);
        else
            check_refused(&p, "more than the limit of", item.len);
        td_manifest_fini(&p.manifest);
        __real_free(item.bytes);
        td_buffer_fini(&text);
    }
}

/* Items that share one object, whose state is a list of very many pairs. A lookup of a member must not search them all
 * again for each item. */
/* shows: security.md content-pickle-growth */
static void shared_states_are_bounded(void **state)
{
    (void)state;
    const size_t count = SANITIZED ? 5000 : 50000;
    struct td_buffer text;
    struct dcp_parsed p;
    td_buffer_init(&text);
    td_buffer_puts(&text, "cx\nMetadata\n)\x81}(S'state_dict_metadata'\n}S'storage_data'\n}(");
    td_buffer_puts(&text, "cx\nK\n)\201(dS'fqn'\nS'w'\nsS'offset'\n(tsp0\nb");
    td_buffer_puts(&text, "cx\nV\n)\201ccollections\nOrderedDict\n((l((S'relative_path'\nS'a'\nt");
    td_buffer_puts(&text, "(S'offset'\nI0\nt(S'length'\nI1\nt(NNtp1\n");
    put_times(&text, "g1\n", count);
    td_buffer_puts(&text, "etRbp2\n");
    put_times(&text, "cx\nK\n)\x81g0\nbg2\n", count);
    td_buffer_puts(&text, "uub.");
    uint64_t work = work_now();
    parse_dcp(text.data, text.len, &p);
    work = work_now() - work;
    CHECK(work > text.len / 4 && work < 150 * text.len, "%.1f blocks per byte", (double)work / (double)text.len);
    CHECK(!p.ok, "%s", "a state that is no dict was read");
    dcp_done(&p);
    td_buffer_fini(&text);
}

static void an_empty_file_has_no_items(void **state)
{
    (void)state;
    struct parsed p;
    parse_bytes(&td_format_distcp, "", 0, &p);
    assert_true(p.ok && p.manifest.tensor_count == 0);
    parsed_fini(&p);
    struct dcp_parsed dcp;
    parse_dcp("N.", 2, &dcp);
    assert_false(dcp.ok);
    dcp_done(&dcp);
}

/* An item is an archive of torch.save with a tensor or an object of a rank. Tensors in an object are not listed. */
static void an_object_with_a_tensor_is_no_tensor(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        size_t tensors;
    } cases[] = {{"bare", 1}, {"unnamed", 0}, {"list", 0}, {"empty", 0}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct fixture f = fixture_read("torch", cases[i].file, ".pt");
        struct parsed p;
        parse_bytes(&td_format_distcp, f.bytes, f.len, &p);
        CHECK(p.ok, "%s: %s", cases[i].file, p.err.message);
        CHECK(p.manifest.tensor_count == cases[i].tensors, "%s: %zu", cases[i].file, p.manifest.tensor_count);
        parsed_fini(&p);
        fixture_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_torch_reads),
        cmocka_unit_test(every_prefix_of_metadata_is_refused),
        cmocka_unit_test(every_byte_of_metadata_changed),
        cmocka_unit_test(every_allocation_of_metadata_may_fail),
        cmocka_unit_test(prefixes_of_items),
        cmocka_unit_test(every_allocation_of_items_may_fail),
        cmocka_unit_test(changed_metadata_is_refused),
        cmocka_unit_test(items_are_not_walked),
        cmocka_unit_test(packed_items_are_in_proportion),
        cmocka_unit_test(shared_states_are_bounded),
        cmocka_unit_test(an_empty_file_has_no_items),
        cmocka_unit_test(an_object_with_a_tensor_is_no_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
