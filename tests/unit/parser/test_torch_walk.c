/* The walk over a pickle's values: names of tensors, bounds for shared values, metadata. */
#include "tests/unit/parser/torch_fixture.h"
#include "tests/unit/parser/walk_hooks.h"
#include "tests/unit/work.h"

#include <cjson/cJSON.h>

/* Parses the text as a legacy file without storages, which may be longer than an archive of zip_build. */
static void parse_long(struct td_buffer *text, struct parsed *p)
{
    td_buffer_puts(text, "(l.");
    parse_bytes(&td_format_torch, text->data, text->len, p);
}

static void begin_long(struct td_buffer *text)
{
    td_buffer_init(text);
    td_buffer_append(text, MAGIC VERSION SYSTEM, sizeof MAGIC VERSION SYSTEM - 1);
}

static void done_long(struct td_buffer *text, struct parsed *p)
{
    td_manifest_fini(&p->manifest);
    td_buffer_fini(text);
}

/* A pickle, the archive around it, and the manifest. */
struct walk {
    struct td_buffer text;
    struct zip_file f;
    struct parsed p;
};

static void open_archive(struct walk *walk)
{
    td_buffer_init(&walk->text);
}

static void open_legacy(struct walk *walk)
{
    begin_long(&walk->text);
}

static void close_walk(struct walk *walk)
{
    done(&walk->p, &walk->f);
    td_buffer_fini(&walk->text);
}

FIXTURE(archive, struct walk, open_archive, close_walk)
FIXTURE(legacy, struct walk, open_legacy, close_walk)

/* ---- names --------------------------------------------------------------------------------------------- */

static void check_names(const char *pickle, const char *const *names, size_t count)
{
    struct parsed p;
    struct zip_file f;
    parse_pickle(pickle, strlen(pickle), &p, &f);
    CHECK(p.ok, "%s", p.err.message);
    CHECK(p.manifest.tensor_count == count, "%zu tensors in %s", p.manifest.tensor_count, pickle);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(p.manifest.tensors[i].name, names[i]);
    done(&p, &f);
}

static void names_are_paths(void **state)
{
    (void)state;
    static const char *const twice[] = {"a.b", "a.b#2"};
    static const char *const thrice[] = {"a.b", "a.b#2", "a.b#3"};
    static const char *const items[] = {"-3", "0.0", "0.1", "x.y\xc3\xa4"};
    static const char *const escaped[] = {"a\\x00b", "a\\xff"};
    static const char *const bare[] = {""};
    check_names("(dS'a'\n(dS'b'\n" FLOATS "ssS'a.b'\n" FLOATS "s.", twice, 2);
    check_names("(dS'a'\n(dS'b'\n" FLOATS "ssS'a.b'\n" FLOATS "sS'a.b#2'\n" FLOATS "s.", thrice, 3);
    check_names("(dI0\n(l" FLOATS "a" FLOATS "asI-3\n" FLOATS "sS'x'\n(dV"
                "y\\u00e4\n" FLOATS "ss.",
                items, 4);
    check_names("(dS'a\\xff'\n" FLOATS "sS'a\\x00b'\n" FLOATS "s.", escaped, 2);
    check_names(FLOATS ".", bare, 1);
}

/* Keys are shown as by Python's str(). */
static void keys_are_shown(void **state)
{
    (void)state;
    static const char *const shown[] = {
        "('a', 0.1, None, False)", "()", "(0, 1)", "(0,)", "-0.0", "1.5", "1e+16", "None", "True", "nan",
    };
    static const char *const positions[] = {"0", "1", "2", "3", "4", "5"};
    static const char *const clashing[] = {"1.5", "1.5#2", "True", "True#2"};
    check_names("(dI01\n" FLOATS "sN" FLOATS "sF1.5\n" FLOATS "sF-0.0\n" FLOATS "sF1e16\n" FLOATS "sFnan\n" FLOATS
                "s(t" FLOATS "s(I0\nt" FLOATS "s(I0\nI1\nt" FLOATS "s(S'a'\nF0.1\nNI00\nt" FLOATS "s.",
                shown, COUNT_OF(shown));
    check_names("(d((I0\ntt" FLOATS "scos\nsystem\n" FLOATS "sL18446744073709551616L\n" FLOATS "s(S'it\\'s'\nt" FLOATS
                "s(S'\\xff'\nt" FLOATS "s(I1\nca\nb\nt" FLOATS "s.",
                positions, COUNT_OF(positions));
    check_names("(dI01\n" FLOATS "sS'True'\n" FLOATS "sS'1.5'\n" FLOATS "sF1.5\n" FLOATS "s.", clashing,
                COUNT_OF(clashing));
}

/* Many names that end like the numbers that repeated names get. */
static void clashes_never_end_in_an_error(void **state)
{
    (void)state;
    enum { DEEP = 40 };
    struct td_buffer text;
    struct td_buffer name;
    struct parsed p;
    struct zip_file f;
    td_buffer_init(&text);
    td_buffer_init(&name);
    td_buffer_puts(&text, "(dS'a'\n(dS'b'\n" FLOATS "ss");
    td_buffer_puts(&name, "a.b");
    for (int i = 0; i < DEEP; i++) {
        td_buffer_printf(&text, "S'%.*s'\n" FLOATS "s", (int)name.len, name.data);
        td_buffer_puts(&name, "#2");
    }
    td_buffer_putc(&text, '.');
    parse_pickle(text.data, text.len, &p, &f);
    CHECK(p.ok, "%s", p.err.message);
    assert_int_equal(p.manifest.tensor_count, DEEP + 1);
    (void)tensor(&p, "a.b");
    (void)tensor(&p, "a.b#2#2");
    (void)tensor(&p, "a.b#3"); /* the name that was changed */
    done(&p, &f);
    td_buffer_fini(&text);
    td_buffer_fini(&name);
}

static void a_scalar_has_no_shape(void **state)
{
    static const char pickle[] = DICT(REBUILD(ID("FloatStorage", "0", "4"), "3", "", ""));
    struct walk *walk = *state;
    parse_pickle(pickle, sizeof pickle - 1, &walk->p, &walk->f);
    CHECK(walk->p.ok, "%s", walk->p.err.message);
    const struct td_tensor *w = tensor(&walk->p, "w");
    assert_true(w->rank == 0 && w->shape == NULL && w->strides == NULL && w->nbytes == 4);
    assert_int_equal(w->offset, walk->f.data_at[1] + 12);
}

#define STATE_OF(class, state) "ca\n" class "\n)\x81" state "b"
#define MODULE(parameters, buffers, unsaved)                                                     \
    STATE_OF("Net", "(dS'_parameters'\n(d" parameters "sS'_modules'\n(dsS'_buffers'\n(d" buffers \
                    "sS'_non_persistent_buffers_set'\nc__builtin__\nset\n((l" unsaved "tRs")
#define WITH_STATE "ctorch._utils\n_rebuild_parameter_with_state\n(" FLOATS "I01\n(d(dS'mask'\n" FLOATS "stR"

/* The attributes of any object are listed, also those in slots, and its items. */
static void attributes_are_names(void **state)
{
    (void)state;
    static const char *const a[] = {"a"};
    static const char *const x[] = {"x.a"};
    static const char *const both[] = {"x.a", "x.b"};
    static const char *const item[] = {"x.i", "x.k"};
    static const char *const list[] = {"x.0", "x.k"};
    static const char *const root[] = {"i", "k"};
    check_names(STATE_OF("B", "(dS'a'\n" FLOATS "s") ".", a, 1);
    check_names("(dS'x'\n" STATE_OF("B", "(dS'a'\n" FLOATS "s") "s.", x, 1);
    check_names("(dS'x'\n" STATE_OF("B", "(N(dS'a'\n" FLOATS "st") "s.", x, 1);
    check_names("(dS'x'\n" STATE_OF("B", "((dS'a'\n" FLOATS "s(dS'b'\n" FLOATS "st") "s.", both, 2);
    check_names("(dS'x'\n" STATE_OF("B", "S'i'\n" FLOATS "s(dS'k'\n" FLOATS "s") "s.", item, 2);
    check_names("(dS'x'\n" STATE_OF("B", FLOATS "a(dS'k'\n" FLOATS "s") "s.", list, 2);
    check_names(STATE_OF("B", "S'i'\n" FLOATS "s(dS'k'\n" FLOATS "s") ".", root, 2);
    static const char *const tagged[] = {"x.0", "x.1"};
    static const char *const sparse[] = {"s", "s.indices", "s.values"};
    static const char *const mixed[] = {"s", "s.col_indices", "s.crow_indices.0", "s.crow_indices.1.k", "s.values"};
    static const char *const rows[] = {"s", "s.col_indices", "s.crow_indices", "s.values"};
    check_names("(dS'x'\nctorch.jit._pickle\nrestore_type_tag\n((l" FLOATS "a" FLOATS "aS'List[Tensor]'\ntRs.", tagged,
                2);
    check_names("(dS's'\nctorch._utils\n_rebuild_sparse_tensor\n(I1\n(I4\ntI00\n" FLOATS FLOATS "(dtRs.", sparse, 3);
    check_names("(dS's'\nctorch._utils\n_rebuild_sparse_tensor\n(I2\n(I4\ntI00\n" FLOATS FLOATS FLOATS "(dtRs.", rows,
                4);
    check_names("(dS's'\nctorch._utils\n_rebuild_sparse_tensor\n(I2\n(I4\ntI00\n(l" FLOATS "a(dS'k'\n" FLOATS
                "sa" FLOATS FLOATS "(dtRs.",
                mixed, 5); /* parts that are not tensors */
    check_names("ccollections\nOrderedDict\n)RS'a'\n" FLOATS "s(dS'_metadata'\n(dS'a'\n" FLOATS "ssb.", a, 1);
}

/* As in state_dict(), a module's parameters have no attributes. Outside a module the attributes are listed. */
static void modules_are_as_state_dict_has_them(void **state)
{
    (void)state;
    static const char *const one[] = {"w"};
    static const char *const kept[] = {"b", "w"};
    static const char *const with_mask[] = {"w", "w.mask"};
    check_names(MODULE("S'w'\n" WITH_STATE "s", "", "") ".", one, 1);
    check_names("(dS'w'\n" WITH_STATE "s.", with_mask, 2);
    check_names(MODULE("S'w'\n" FLOATS "sS'n'\nNs", "S'b'\n" FLOATS "sS'c'\n" FLOATS "s", "S'c'\na") ".", kept, 2);
}

/* A module copies its attributes and its set of names when it is made, so later additions are not part of it. */
/* shows: security.md content-pickle-mutation */
static void modules_that_change_later_are_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "(lca\nNet\n)\x81(dp1\nS'_parameters'\n(dS'w'\n" FLOATS "ssS'_modules'\n(dsbag1\nS'_buffers'\n(dsa.",
        "(l(lp1\nS'a'\naa" MODULE("", "S'b'\n" FLOATS "s", "") "ag1\nS'b'\naa.",
        "(l" STATE_OF("Net", "(dS'_parameters'\n(dsS'_modules'\n(dsS'_buffers'\n(dS'b'\n" FLOATS
                             "ssS'_non_persistent_buffers_set'\nc__builtin__\nset\n((lp1\ntRs") "ag1\nS'b'\naa.",
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct parsed p;
        struct zip_file f;
        parse_pickle(rows[i], strlen(rows[i]), &p, &f);
        if (i == 1)
            CHECK(p.ok, "%s", p.err.message); /* the list that grows is not the module's */
        else
            check_refused(&p, "what a module is made of is added to after it was made", f.len);
        done(&p, &f);
    }
}

/* As with torch.load, the last of pairs with one key counts, and a mapping has the items that existed at its call. */
static void mappings_are_made_when_they_are_called(void **state)
{
    (void)state;
    static const char *const w[] = {"w"};
    static const char *const both[] = {"v", "w"};
    static const char *const copied[] = {"d.v", "d.w", "o.w"};
    check_names("ccollections\nOrderedDict\n((l(lS'w'\na" FLOATS "aa(lS'w'\na" FLOATS "aatR.", w, 1);
    check_names("ccollections\nOrderedDict\n((l(lS'v'\na" FLOATS "aatRS'w'\n" FLOATS "s.", both, 2);
    check_names("(dS'd'\n(dp1\nS'w'\n" FLOATS "ssS'o'\nccollections\nOrderedDict\n(g1\ntRsS'n'\ng1\nS'v'\n" FLOATS
                "s0Ns.",
                copied, 3);
}

/* Returns how many visits a walk over a file of `len` bytes may make: 10,000, and 8 for each byte (VISITS_FREE and
 * VISITS_PER_BYTE of parser/torch/torch_walk.c). */
static uint64_t visits_of(size_t len)
{
    return 10000 + 8 * (uint64_t)len;
}

/* Starts to count the work of a walk and bounds it. A visit takes a few looks at a value; up to 64 bytes of a key are a
 * visit. Without the walk's own bound these tests would take at least ten times as much. */
static void start_bounded_walk(size_t len)
{
    enum { LOOKS_PER_VISIT = 16, KEY_BYTES_PER_VISIT = 64 };
    uint64_t visits = visits_of(len);
    walk_count_start(LOOKS_PER_VISIT * visits, KEY_BYTES_PER_VISIT * visits);
}

/* A module of 20,000 buffers and as many names of unsaved ones, among which each buffer is looked up. */
static void unsaved_buffers_are_bounded(void **state)
{
    enum { COUNT = 20000 };
    struct walk *walk = *state;
    td_buffer_puts(&walk->text, "ca\nNet\n)\x81(dS'_parameters'\n(dsS'_modules'\n(dsS'_buffers'\n(d(");
    for (int i = 0; i < COUNT; i++)
        td_buffer_printf(&walk->text, "S'b%d'\nI1\n", i);
    td_buffer_puts(&walk->text, "usS'_non_persistent_buffers_set'\nc__builtin__\nset\n((l(");
    for (int i = 0; i < COUNT; i++)
        td_buffer_printf(&walk->text, "S'c%d'\n", i);
    td_buffer_puts(&walk->text, "etRsb.");
    start_bounded_walk(walk->text.len);
    parse_long(&walk->text, &walk->p);
    walk_count_end();
    check_refused(&walk->p, "unfold without end", walk->text.len);
}

/* A module with 5,000 parameters, all of them None, occurs 5,000 times. */
static void shared_nothing_is_bounded(void **state)
{
    enum { COUNT = 5000 };
    struct walk *walk = *state;
    td_buffer_puts(&walk->text, "(l(ca\nNet\n)\x81p1\n(dS'_modules'\n(dsS'_parameters'\n(d(");
    for (int i = 0; i < COUNT; i++)
        td_buffer_printf(&walk->text, "I%d\nN", i);
    td_buffer_puts(&walk->text, "usb");
    put_times(&walk->text, "g1\n", COUNT);
    td_buffer_puts(&walk->text, "e.");
    start_bounded_walk(walk->text.len);
    parse_long(&walk->text, &walk->p);
    walk_count_end();
    check_refused(&walk->p, "unfold without end", walk->text.len);
}

/* Scales that have scales of their own, at any depth: the only place where the walk recurses. */
static void parts_are_bounded(void **state)
{
    (void)state;
    for (size_t depth = 7; depth <= 40; depth += 33) {
        struct td_buffer text;
        struct parsed p;
        struct zip_file f;
        td_buffer_init(&text);
        put_times(&text,
                  "ctorch._utils\n_rebuild_qtensor\n(" ID("QInt8Storage", "0",
                                                          "16") "I0\n(I2\nt(I1\nt(ctorch\nper_tensor_affine\n",
                  depth);
        td_buffer_puts(&text, "F1.0\n");
        put_times(&text, "I0\ntI00\n(dtR", depth);
        td_buffer_putc(&text, '.');
        parse_pickle(text.data, text.len, &p, &f);
        if (depth < 8)
            CHECK(p.ok, "%s", p.err.message);
        else
            check_refused(&p, "more than 8 deep", f.len);
        done(&p, &f);
        td_buffer_fini(&text);
    }
}

static void what_holds_itself_ends(void **state)
{
    (void)state;
    static const char *const w[] = {"w"};
    check_names("(lp0\ng0\na.", NULL, 0);
    check_names("(dp0\nS'me'\ng0\nsS'w'\n" FLOATS "s.", w, 1);
    check_names("ca\nb\n)Rp0\n(dS'me'\ng0\nsS'w'\n" FLOATS "sb.", w, 1);
}

/* Forty lists, each holding the one before twice, unfold to 2^40 paths. */
/* shows: security.md content-tensors-outside */
static void sharing_is_bounded(void **state)
{
    struct walk *walk = *state;
    td_buffer_puts(&walk->text, "(lp0\n");
    for (int i = 0; i < 40; i++)
        td_buffer_printf(&walk->text, "0(lp%d\ng%d\nag%d\na", i + 1, i, i);
    td_buffer_putc(&walk->text, '.');
    start_bounded_walk(walk->text.len);
    parse_pickle(walk->text.data, walk->text.len, &walk->p, &walk->f);
    walk_count_end();
    check_refused(&walk->p, "unfold without end", walk->f.len);
}

/* An array of 3,000 items is read at each of its 1,000 occurrences. */
static void shared_arrays_are_bounded(void **state)
{
    struct walk *walk = *state;
    td_buffer_puts(&walk->text, "(l((lp0\n(");
    put_times(&walk->text, "N", 3000);
    td_buffer_putc(&walk->text, 'e');
    put_times(&walk->text, "g0\n", 1000);
    td_buffer_puts(&walk->text, "e.");
    parse_pickle(walk->text.data, walk->text.len, &walk->p, &walk->f);
    check_refused(&walk->p, "unfold without end", walk->f.len);
}

/* Forty dicts within one another, each under a key of 2,000 bytes that is one string in the pickle. */
/* shows: security.md content-tensors-outside */
static void paths_are_bounded(void **state)
{
    struct walk *walk = *state;
    td_buffer_puts(&walk->text, "(dS'");
    put_times(&walk->text, "k", 2000);
    td_buffer_puts(&walk->text, "'\np0\n");
    put_times(&walk->text, "(dg0\n", 40);
    td_buffer_puts(&walk->text, FLOATS);
    put_times(&walk->text, "s", 41);
    td_buffer_putc(&walk->text, '.');
    parse_pickle(walk->text.data, walk->text.len, &walk->p, &walk->f);
    check_refused(&walk->p, "name is longer than 16,383 bytes", walk->f.len);
}

/* One tensor in lists of lists under two keys of 3,500 bytes: a small file with as many long names as occurrences. */
/* shows: security.md content-pickle-growth */
static void names_are_in_proportion(void **state)
{
    struct walk *walk = *state;
    td_buffer_puts(&walk->text, "(dS'");
    put_times(&walk->text, "k", 3500);
    td_buffer_puts(&walk->text, "'\np9\n(dg9\n(l(l(l" FLOATS "p1\na");
    for (int level = 1; level <= 3; level++) {
        for (int i = 1; i < 24; i++)
            td_buffer_printf(&walk->text, "g%d\na", level);
        td_buffer_printf(&walk->text, level < 3 ? "p%d\na" : "ss.", level + 1);
    }
    parse_pickle(walk->text.data, walk->text.len, &walk->p, &walk->f);
    check_refused(&walk->p, "names unfold without end", walk->f.len);
    CHECK(walk->p.memory.peak_bytes < 6 << 20, "%zu bytes of %zu", walk->p.memory.peak_bytes, walk->f.len);
}

/* Metadata is copied for each name: a list of 64 strings of 90 bytes occurs 1,000 times. */
/* shows: security.md content-pickle-growth */
static void metadata_is_in_proportion(void **state)
{
    struct walk *walk = *state;
    td_buffer_puts(&walk->text, "(l((lp0\n(");
    put_times(&walk->text,
              "S'012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789'\n", 64);
    td_buffer_putc(&walk->text, 'e');
    put_times(&walk->text, "g0\n", 1000);
    td_buffer_puts(&walk->text, "e.");
    parse_long(&walk->text, &walk->p);
    check_refused(&walk->p, "unfold without end", walk->text.len);
    CHECK(walk->p.memory.peak_bytes < 6 << 20, "%zu bytes of %zu", walk->p.memory.peak_bytes, walk->text.len);
}

/* Real files share as much: one value many times in a list, a few words in a list of labels. */
static void much_is_shared(void **state)
{
    enum { TENSORS = 5000, WORDS = 100000 };
    struct walk *walk = *state;
    td_buffer_puts(&walk->text, "((l((dS'x'\nNsp0\n");
    put_times(&walk->text, "g0\n", TENSORS - 1);
    td_buffer_puts(&walk->text, "e(l(S'cat'\np1\nS'dog'\np2\n");
    put_times(&walk->text, "h\1h\2", WORDS / 2);
    td_buffer_puts(&walk->text, "et.");
    parse_long(&walk->text, &walk->p);
    CHECK(walk->p.ok, "%s", walk->p.err.message);
}

/* Five pickles of a legacy file, each with many values that it drops again, share one memory limit. */
/* shows: security.md content-legacy-memory */
static void memory_is_one_budget(void **state)
{
    (void)state;
    enum { VALUES = 100000, SLACK = 512 * 1024 };
    static const char *const parts[] = {MAGIC, VERSION, SYSTEM, "(d.", "(l."};
    struct td_buffer text;
    size_t accepted = 0;
    td_buffer_init(&text);
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        td_buffer_putc(&text, '(');
        put_times(&text, "N", VALUES);
        td_buffer_putc(&text, '1');
        td_buffer_append(&text, parts[i], i == 0 ? sizeof MAGIC - 1 : strlen(parts[i]));
    }
    memmove(text.data + 2, text.data, VALUES + 2); /* the file begins with PROTO */
    memcpy(text.data, "\x80\2", 2);
    struct td_input input = td_input_memory(text.data, text.len);
    struct td_limits limits = td_limits_default();
    for (limits.max_memory_bytes = 1 << 20; limits.max_memory_bytes < 24 << 20; limits.max_memory_bytes += 1 << 20) {
        struct parsed p;
        parse_input(&td_format_torch, &input, &limits, &p);
        accepted += p.ok;
        CHECK(p.ok || p.err.code == TD_RESOURCE_EXHAUSTED, "%s", p.err.message);
        CHECK(p.memory.peak_bytes < limits.max_memory_bytes + SLACK, "%zu bytes at a limit of %zu", p.memory.peak_bytes,
              limits.max_memory_bytes);
        td_manifest_fini(&p.manifest);
    }
    assert_in_range(accepted, 5, 20);
    td_buffer_fini(&text);
}

/* A dict with one item occurs 50,000 times: writing its key is work too. */
static void check_key_is_bounded(const struct td_buffer *key)
{
    struct td_buffer text;
    struct parsed p;
    begin_long(&text);
    td_buffer_puts(&text, "(l((dp0\n");
    td_buffer_append(&text, key->data, key->len);
    td_buffer_puts(&text, "Ns");
    put_times(&text, "g0\n", 50000);
    td_buffer_puts(&text, "e.");
    start_bounded_walk(text.len);
    parse_long(&text, &p);
    walk_count_end();
    check_refused(&p, "so often that they unfold without end",
                  text.len); /* the message about visits, not the one about memory */
    done_long(&text, &p);
}

static void shared_keys_are_bounded(void **state)
{
    (void)state;
    struct td_buffer key;
    td_buffer_init(&key);
    td_buffer_puts(&key, "S'");    /* short enough that the memory of a thousand such names is allowed */
    put_times(&key, "\xff", 2000); /* shown as four bytes each */
    td_buffer_puts(&key, "'\n");
    check_key_is_bounded(&key);
    td_buffer_clear(&key);
    td_buffer_puts(&key, "(");
    put_times(&key, "F0.1\n", 1000);
    td_buffer_puts(&key, "(tt"); /* its last item cannot be shown */
    check_key_is_bounded(&key);
    td_buffer_fini(&key);
}

/* A name may have 16,383 bytes, whatever the kind of its key. */
static void long_keys_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *before, *piece, *after;
        size_t fit; /* the most pieces that fit a name */
        size_t name_bytes;
    } rows[] = {
        {"S'", "k", "'\n", 16383, 16383},
        {"S'", "\xff", "'\n", 4095, 16380}, /* "\xff" */
        {"(", "I1\n", "t", 5461, 16383},    /* "(1, 1 ... 1)" */
        {"(", "S'k'\n", "t", 3276, 16380},  /* "('k', 'k' ... 'k')" */
    };
    for (size_t i = 0; i < 2 * COUNT_OF(rows); i++) {
        const size_t count = rows[i / 2].fit + i % 2;
        struct td_buffer text;
        struct parsed p;
        begin_long(&text);
        td_buffer_puts(&text, "(d");
        td_buffer_puts(&text, rows[i / 2].before);
        put_times(&text, rows[i / 2].piece, count);
        td_buffer_puts(&text, rows[i / 2].after);
        td_buffer_puts(&text, "I1\ns.");
        parse_long(&text, &p);
        CHECK(p.ok || i % 2 == 1, "row %zu: %s", i / 2, p.err.message);
        if (i % 2 == 0)
            assert_int_equal(strlen(p.manifest.metadata[0].key), rows[i / 2].name_bytes);
        else
            check_refused(&p, "name is longer than 16,383 bytes", text.len);
        done_long(&text, &p);
    }
}

/* ---- metadata ------------------------------------------------------------------------------------------ */

static void check_metadata(const struct parsed *p, const char *key, const char *value)
{
    const char *found = metadata_value(&p->manifest, key, strlen(key));
    CHECK(found != NULL && strcmp(found, value) == 0, "%s is %s", key, found != NULL ? found : "missing");
}

static void put_array(struct td_buffer *out, const char *key, int count)
{
    td_buffer_printf(out, "S'%s'\n(l", key);
    for (int i = 0; i < count; i++)
        td_buffer_printf(out, "I%d\na", i % 3);
    td_buffer_putc(out, 's');
}

static void put_string(struct td_buffer *out, const char *key, size_t count)
{
    td_buffer_printf(out, "S'%s'\nV", key);
    put_times(out, "x", count);
    td_buffer_puts(out, "\\u00e4\ns");
}

/* {"length":N,"first":HEAD} */
static void check_cut(const struct parsed *p, const char *key, size_t length, bool array, int first)
{
    cJSON *json = cJSON_Parse(metadata_value(&p->manifest, key, strlen(key)));
    assert_non_null(json);
    const cJSON *head = cJSON_GetObjectItem(json, "first");
    CHECK(cJSON_GetNumberValue(cJSON_GetObjectItem(json, "length")) == (double)length, "%s", key);
    if (array)
        assert_int_equal(cJSON_GetArraySize(head), first);
    else
        assert_int_equal(strlen(cJSON_GetStringValue(head)), first);
    cJSON_Delete(json);
}

static void long_metadata_is_cut(void **state)
{
    struct walk *walk = *state;
    td_buffer_puts(&walk->text, "(dS'one'\nI1\nsS'nan'\nFnan\nsS'none'\nNsS'bytes'\nS'\\xff'\ns");
    put_array(&walk->text, "short", 64);
    put_array(&walk->text, "long", 65);
    put_string(&walk->text, "fits", 998);
    put_string(&walk->text, "split", 999); /* the last character would be cut in half */
    put_string(&walk->text, "cut", 1500);
    td_buffer_putc(&walk->text, '.');
    parse_pickle(walk->text.data, walk->text.len, &walk->p, &walk->f);
    CHECK(walk->p.ok, "%s", walk->p.err.message);
    check_metadata(&walk->p, "one", "1");
    check_metadata(&walk->p, "nan", "\"NaN\"");
    check_metadata(&walk->p, "none", "null");
    check_metadata(&walk->p, "bytes", "\"\\\\xff\"");
    assert_int_equal(metadata_value(&walk->p.manifest, "short", 5)[0], '[');
    check_cut(&walk->p, "long", 65, true, 64);
    assert_int_equal(strlen(metadata_value(&walk->p.manifest, "fits", 4)), 1002);
    check_cut(&walk->p, "split", 1001, false, 999);
    check_cut(&walk->p, "cut", 1502, false, 1000);
}

/* An integer of more than 64 bytes is shown by its length. The fixtures have shorter ones, shown in full. */
static void an_integer_of_any_size_is_told_of(void **state)
{
    struct walk *walk = *state;
    td_buffer_puts(&walk->text, "(dS'large'\nL1");
    put_times(&walk->text, "0", 155); /* 10^155: 515 bits */
    td_buffer_puts(&walk->text, "L\nsS'w'\n" FLOATS "s.");
    parse_pickle(walk->text.data, walk->text.len, &walk->p, &walk->f);
    CHECK(walk->p.ok, "%s", walk->p.err.message);
    check_metadata(&walk->p, "large", "{\"reason\":\"an integer of 65 bytes\"}");
}

/* A call that does not make bytes is walked like any object: its arguments are listed. */
static void encodings_but_latin1_are_no_bytes(void **state)
{
    static const char text[] = "(dS'x'\nc_codecs\nencode\n(Va\nVutf8\ntRsS'y'\nc_codecs\nencode\n(V\\u0100\n"
                               "Vlatin1\ntRsS'z'\nc__builtin__\nbytes\n(I5\ntRs.";
    struct walk *walk = *state;
    parse_pickle(text, sizeof text - 1, &walk->p, &walk->f);
    CHECK(walk->p.ok, "%s", walk->p.err.message);
    check_metadata(&walk->p, "x.0", "\"a\"");
    check_metadata(&walk->p, "x.1", "\"utf8\"");
    check_metadata(&walk->p, "y.0", "\"\xc4\x80\"");
    check_metadata(&walk->p, "z.0", "5");
    assert_int_equal(walk->p.manifest.metadata_count, 5);
}

/* Writes a legacy file with bytes of `len` characters in a dict, and further in `lists` lists, ten times in each. */
static void put_shared_bytes(struct td_buffer *text, size_t len, int lists)
{
    begin_long(text);
    td_buffer_puts(text, "(d(S'long'\nc_codecs\nencode\n(V");
    put_times(text, "x", len);
    td_buffer_puts(text, "\nVlatin1\ntRp1\n");
    for (int i = 0; i < lists; i++)
        td_buffer_printf(text, "I%d\n(g1\ng1\ng1\ng1\ng1\ng1\ng1\ng1\ng1\ng1\nl", i);
    td_buffer_puts(text, "u.");
}

/* All characters of long bytes are read at each of their occurrences, because they are counted. 64 of them are a visit,
 * so the bound on visits bounds this work, too: without that, the second file would take six times as much. */
static void shared_bytes_are_bounded(void **state)
{
    (void)state;
    enum { TEXT_BYTES = 400000, LISTS = 300, BYTES_PER_VISIT = 64 };
    struct td_buffer text;
    struct parsed p;
    put_shared_bytes(&text, TEXT_BYTES, 0);
    uint64_t once = work_now();
    parse_long(&text, &p);
    once = work_now() - once;
    CHECK(p.ok && once >= TEXT_BYTES, "%" PRIu64 " blocks: %s", once, p.err.message);
    check_cut(&p, "long", TEXT_BYTES, false, 1000);
    done_long(&text, &p);
    put_shared_bytes(&text, TEXT_BYTES, LISTS);
    uint64_t shared = work_now();
    parse_long(&text, &p);
    shared = work_now() - shared;
    check_refused(&p, "unfold without end", text.len);
    uint64_t times = visits_of(text.len) * BYTES_PER_VISIT / TEXT_BYTES;
    CHECK(shared / once <= times + 1, "%" PRIu64 " blocks, %" PRIu64 " for one occurrence", shared, once);
    done_long(&text, &p);
}

/* The walk finds a tensor past the head of a long array. */
static void a_long_array_with_a_tensor_is_no_metadata(void **state)
{
    struct walk *walk = *state;
    td_buffer_puts(&walk->text, "(dS'a'\n(l");
    put_times(&walk->text, "Na", 70);
    td_buffer_puts(&walk->text, FLOATS "as.");
    parse_pickle(walk->text.data, walk->text.len, &walk->p, &walk->f);
    CHECK(walk->p.ok, "%s", walk->p.err.message);
    assert_int_equal(tensor(&walk->p, "a.70")->nbytes, 16);
    assert_null(metadata_value(&walk->p.manifest, "a", 1));
}

/* The last of repeated keys counts, and the metadata has the number of repetitions. */
static void repeated_keys_are_counted(void **state)
{
    static const char pickle[] = "(dS'w'\nI1\nsS'w'\n" FLOATS "sS'n'\nI1\nsS'n'\nI2\ns.";
    struct walk *walk = *state;
    parse_pickle(pickle, sizeof pickle - 1, &walk->p, &walk->f);
    CHECK(walk->p.ok, "%s", walk->p.err.message);
    (void)tensor(&walk->p, "w");
    check_metadata(&walk->p, "n", "2");
    check_metadata(&walk->p, "(repeated keys)", "2");
    assert_int_equal(walk->p.manifest.metadata_count, 2);
}

static void clashing_entries_are_numbered(void **state)
{
    static const char pickle[] = "(dNI1\nsS'None'\nI2\nsF1.5\nI3\nsS'1.5'\nI4\ns.";
    struct walk *walk = *state;
    parse_pickle(pickle, sizeof pickle - 1, &walk->p, &walk->f);
    CHECK(walk->p.ok, "%s", walk->p.err.message);
    check_metadata(&walk->p, "None", "1");
    check_metadata(&walk->p, "None#2", "2");
    check_metadata(&walk->p, "1.5", "3");
    check_metadata(&walk->p, "1.5#2", "4");
}

static void many_entries_are_counted(void **state)
{
    (void)state;
    for (int count = 1000; count <= 1001; count++) {
        struct td_buffer text;
        struct parsed p;
        struct zip_file f;
        td_buffer_init(&text);
        td_buffer_puts(&text, "(d(");
        for (int i = 0; i < count; i++)
            td_buffer_printf(&text, "M%c%cN", (char)i, (char)(i >> 8));
        td_buffer_puts(&text, "u.");
        parse_pickle(text.data, text.len, &p, &f);
        CHECK(p.ok, "%s", p.err.message);
        assert_int_equal(p.manifest.metadata_count, 1000);
        if (count > 1000)
            check_metadata(&p, "(further entries)", "2");
        else
            check_metadata(&p, "999", "null");
        done(&p, &f);
        td_buffer_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_paths),
        cmocka_unit_test(keys_are_shown),
        cmocka_unit_test(clashes_never_end_in_an_error),
        TEST_IN(archive, a_scalar_has_no_shape),
        cmocka_unit_test(attributes_are_names),
        cmocka_unit_test(modules_are_as_state_dict_has_them),
        cmocka_unit_test(modules_that_change_later_are_refused),
        cmocka_unit_test(mappings_are_made_when_they_are_called),
        TEST_IN(legacy, unsaved_buffers_are_bounded),
        TEST_IN(legacy, shared_nothing_is_bounded),
        cmocka_unit_test(parts_are_bounded),
        cmocka_unit_test(what_holds_itself_ends),
        TEST_IN(archive, sharing_is_bounded),
        TEST_IN(archive, shared_arrays_are_bounded),
        TEST_IN(archive, paths_are_bounded),
        TEST_IN(archive, names_are_in_proportion),
        TEST_IN(legacy, metadata_is_in_proportion),
        TEST_IN(legacy, much_is_shared),
        cmocka_unit_test(memory_is_one_budget),
        cmocka_unit_test(shared_keys_are_bounded),
        cmocka_unit_test(long_keys_are_refused),
        TEST_IN(archive, long_metadata_is_cut),
        TEST_IN(archive, an_integer_of_any_size_is_told_of),
        TEST_IN(archive, encodings_but_latin1_are_no_bytes),
        cmocka_unit_test(shared_bytes_are_bounded),
        TEST_IN(archive, a_long_array_with_a_tensor_is_no_metadata),
        TEST_IN(archive, repeated_keys_are_counted),
        TEST_IN(archive, clashing_entries_are_numbered),
        cmocka_unit_test(many_entries_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
