/* Legacy files: five pickles, then the storages. */
#include "tests/unit/parser/torch_fixture.h"

#define COUNT4 "\4\0\0\0\0\0\0\0"

struct legacy {
    const char *magic, *version, *system, *object, *keys;
    const char *count; /* 8 bytes */
    size_t data_len, more;
};

static const struct legacy good_legacy = {MAGIC, VERSION, SYSTEM, GOOD, "(lS'0'\na.", COUNT4, 16, 0};

static void parse_legacy(const struct legacy *l, struct parsed *p, struct td_buffer *out)
{
    td_buffer_init(out);
    td_buffer_puts(out, l->magic);
    td_buffer_puts(out, l->version);
    td_buffer_puts(out, l->system);
    td_buffer_puts(out, l->object);
    td_buffer_puts(out, l->keys);
    td_buffer_append(out, l->count, 8);
    for (size_t i = 0; i < l->data_len + l->more; i++)
        td_buffer_putc(out, (char)('a' + i));
    parse_bytes(&td_format_torch, out->data, out->len, p);
}

#define VIEW(view) DICT(REBUILD("(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI4\n" view "tQ", "0", "I1\n", "I1\n"))

/* A tensor over the view `other`, and before it a reference to the view `one` that no tensor uses. */
#define TWO_VIEWS(one, other) "(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI4\n" one "tQ0" VIEW(other)

static const struct {
    struct legacy file; /* members that are 0 are those of good_legacy */
    const char *says;   /* NULL: accepted */
} legacies[] = {
    {{.more = 0}, NULL},
    {{.magic = "\x80\x02L119547037146038801333357L\n."}, "magic number is missing"},
    {{.magic = "\x80\x02I1\n."}, "magic number is missing"},
    {{.version = "I1002\n."}, "not 1001"},
    {{.system = "(d."}, "whether it is little-endian"},
    {{.keys = "N."}, "not followed by a list of storages"},
    {{.keys = "(lS'0'\naS'0'\na."}, "has a storage twice"},
    {{.keys = "(lS'1'\na."}, "has a storage that no tensor refers to"},
    {{.keys = "(lI0\na."}, "has a storage that no tensor refers to"},
    {{.keys = "(l."}, "lacks a storage that a tensor refers to"},
    {{.count = "\xff\xff\xff\xff\xff\xff\xff\xff"}, "should have 4 elements, but says -1"},
    {{.count = "\5\0\0\0\0\0\0\0"}, "should have 4 elements, but says 5"},
    {{.object = VIEW("(S'v'\nI2\nI3\nt")}, "a view of a storage leaves it"},
    {{.object = VIEW("(S'v'\nI-1\nI3\nt")}, "a view of a storage leaves it"},
    {{.object = VIEW("(S'v'\nI2\nI2\nt")}, NULL},
    {{.object = VIEW("N")}, NULL},
    {{.more = 1}, NULL}, /* torch.load does not look at it */
    {{.object = DICT(REBUILD(ID("FloatStorage", "0", "1073741824"), "0", "I1073741824\n", "I1\n")),
      .count = "\0\0\0\x40\0\0\0\0"},
     "needs 4294967296 bytes"},
    {{.object = "(dS'w'\n" FLOATS "sS'm'\n(S'module'\nctorch\nLinear\nS'a.py'\nS'source'\ntQs."}, NULL},
    {{.object = "(dS'w'\n" FLOATS "sS'v'\n" REBUILD(ID("FloatStorage", "0", "3"), "0", "I1\n", "I1\n") "s."},
     "two sizes"},
    {{.object = "(dS'w'\n" FLOATS "sS'v'\n" REBUILD(ID("IntStorage", "0", "4"), "0", "I1\n", "I1\n") "s."},
     "two types"},
    {{.object = TWO_VIEWS("(S'v'\nI0\nI2\nt", "(S'v'\nI2\nI2\nt")}, "a view with the key of another view"},
    {{.object = TWO_VIEWS("(S'v'\nI0\nI2\nt", "(S'v'\nI0\nI1\nt")}, "a view with the key of another view"},
    {{.object = TWO_VIEWS("(S'0'\nI0\nI2\nt", "N")}, "a view with the key of a storage"},
    {{.object = TWO_VIEWS("(S'v'\nI0\nI2\nt", "(S'v'\nI0\nI2\nt")}, NULL},
    {{.object = TWO_VIEWS("(S'v'\nI0\nI2\nt", "(S'u'\nI2\nI2\nt")}, NULL},
    {{.object = VIEW("(I1\nI2\nI2\nt")}, "is not (key, offset, size)"},
    {{.object = DICT(REBUILD(ID("OddStorage", "0", "4"), "0", "I4\n", "I1\n"))}, "a storage has an unknown class"},
};

#define OR_GOOD(member) (legacies[i].file.member != 0 ? legacies[i].file.member : good_legacy.member)

/* shows: security.md content-pickle-mutation */
static void odd_legacy_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(legacies); i++) {
        struct legacy l = {OR_GOOD(magic), OR_GOOD(version), OR_GOOD(system),   OR_GOOD(object),
                           OR_GOOD(keys),  OR_GOOD(count),   OR_GOOD(data_len), OR_GOOD(more)};
        struct parsed p;
        struct td_buffer file;
        parse_legacy(&l, &p, &file);
        CHECK(p.ok == (legacies[i].says == NULL), "row %zu: %s", i, p.ok ? "accepted" : p.err.message);
        if (legacies[i].says != NULL)
            check_refused(&p, legacies[i].says, file.len);
        else
            assert_true(p.manifest.tensor_count == 1 && tensor(&p, "w")->reason == NULL);
        CHECK(p.memory.peak_bytes < 1 << 20, "row %zu: %zu bytes", i, p.memory.peak_bytes);
        parsed_fini(&p);
        __real_free(file.data);
    }
}

/* A view of elements 2 and 3 of four begins at element 2 of its storage. */
static void a_view_of_a_storage(void **state)
{
    (void)state;
    struct legacy l = good_legacy;
    struct parsed p;
    struct td_buffer file;
    l.object = VIEW("(S'v'\nI2\nI2\nt");
    parse_legacy(&l, &p, &file);
    CHECK(p.ok, "%s", p.err.message);
    assert_int_equal(tensor(&p, "w")->offset, file.len - 8);
    parsed_fini(&p);
    __real_free(file.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_legacy_files),
        cmocka_unit_test(a_view_of_a_storage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
