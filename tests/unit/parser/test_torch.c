/* Pickles and records that break a rule, and some that keep it. */
#include "tests/unit/parser/torch_fixture.h"

enum { TEXT_MAX = 8192 };

#define I65 "I1\nI1\nI1\nI1\nI1\nI1\nI1\nI1\nI1\nI1\nI1\nI1\nI1\n"
#define ONES65 I65 I65 I65 I65 I65
#define QTENSOR(axis, scales)                                                                                        \
    "ctorch._utils\n_rebuild_qtensor\n(" ID("QInt8Storage", "0", "16") "I0\n(I2\nI8\nt(I8\nI1\nt"                    \
                                                                       "(ctorch\nper_channel_affine\n" scales scales \
                                                                       "I" axis "\ntI00\n(d"                         \
                                                                       "tR"

#define SCALES REBUILD(ID("QInt8Storage", "0", "16"), "0", "I4\n", "I1\n")
#define QUANTIZED(quantizer)                                                                                 \
    "ctorch._utils\n_rebuild_qtensor\n(" ID("QInt8Storage", "0", "16") "I0\n(I2\nI8\nt(I8\nI1\nt(" quantizer \
                                                                       "tI00\n(dtR"
#define CONJUGATED(metadata) \
    "ctorch._utils\n_rebuild_tensor_v2\n(" ID("ComplexFloatStorage", "0", "2") "I0\n(I2\nt(I1\ntI00\n(d" metadata "tR"
#define CONVERTED(type) \
    "ctorch._utils\n_rebuild_device_tensor_from_cpu_tensor\n(" FLOATS "ctorch\n" type "\nS'xla:0'\nI00\ntR"

/* A dict with a tensor "w" made from list 7, and the rest of the dict. */
#define OVER_LIST(size, stride, metadata, rest)                                                                \
    "(lp7\nI2\na0(dS'w'\nctorch._utils\n_rebuild_tensor_v2\n(" ID("FloatStorage", "0", "4") "I0\n" size stride \
                                                                                            "I00\n(d" metadata \
                                                                                            "tRs" rest "."
#define APPEND_LATER "S'n'\ng7\nI2\nas"
#define SIZE_OF(list) "ctorch\nSize\n(" list "tR"

static const struct {
    const char *pickle;
    const char *says;   /* part of the message of a refusal */
    const char *reason; /* of a tensor "w" without bytes; NULL as `says` is: served */
} pickles[] = {
    {DICT(FLOATS), NULL, NULL},
    {"(dS'x'\ncos\nsystem\n(S'true'\ntRsS'w'\n" FLOATS "s.", NULL, NULL},
    {FLOATS "S'a'\nI1\ns.", "", NULL},
    {"(I1\ntS'a'\nI1\ns.", "", NULL},
    {DICT("(S'module'\nctorch\nLinear\nS'a.py'\nS'source'\ntQ"), "('storage', ...)", NULL},
    {DICT(REBUILD("(S'module'\nctorch\nLinear\nS'a.py'\nS'source'\ntQ", "0", "I4\n", "I1\n")), "", NULL},
    {DICT(REBUILD(ID("FloatStorage", "../0", "4"), "0", "I4\n", "I1\n")), "plain name", NULL},
    {DICT(REBUILD("(S'storage'\nctorch\nFloatStorage\nI0\nS'cpu'\nI4\ntQ", "0", "I4\n", "I1\n")), "plain name", NULL},
    {DICT(REBUILD(ID("FloatStorage", "7", "4"), "0", "I4\n", "I1\n")), "storage \"data/7\" is not in the file", NULL},
    {DICT(REBUILD(ID("FloatStorage", "0", "5"), "0", "I4\n", "I1\n")),
     "should hold 5 elements of F32, but has 16 bytes", NULL},
    {DICT(REBUILD(ID("FloatStorage", "0", "3"), "0", "I3\n", "I1\n")), "should hold 3 elements", NULL},
    {"(dS'v'\n" FLOATS "sS'w'\n" REBUILD(ID("ShortStorage", "0", "4"), "0", "I4\n", "I1\n") "s.",
     "said to have two types or two sizes", NULL},
    {DICT(REBUILD(ID("ShortStorage", "0", "4"), "0", "I4\n", "I1\n")), "should hold 4 elements of I16", NULL},
    {ID("IntStorage", "0", "4") "0" DICT(FLOATS), "said to have two types or two sizes", NULL},
    {ID("FloatStorage", "0", "4") "0" DICT(FLOATS), NULL, NULL},
    {"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI4\n(S'v'\nI0\nI4\nttQ0" DICT(FLOATS), "('storage', ...)", NULL},
    /* with strides of 0 a tensor of any size fits the storage; the limit is torch's, 2^63-1 bytes */
    {DICT(REBUILD(ID("ByteStorage", "0", "16"), "0", "I9223372036854775807\n", "I0\n")), NULL, NULL},
    {DICT(REBUILD(ID("ByteStorage", "0", "16"), "0", "I4611686018427387904\nI2\n", "I0\nI0\n")),
     "of less than 2^63 bytes", NULL},
    {DICT(REBUILD(ID("ByteStorage", "0", "16"), "0", "I4294967295\nL4294967297L\n", "I0\nI0\n")),
     "of less than 2^63 bytes", NULL},
    {DICT(REBUILD(ID("FloatStorage", "0", "4"), "0", "I2\n", "I1099511627776\n")), "\"w\"", NULL},
    {DICT(REBUILD(ID("FloatStorage", "0", "4"), "4611686018427387904", "I1\n", "I1\n")), "\"w\"", NULL},
    {DICT(REBUILD(ID("FloatStorage", "0", "4"), "1", "I4\n", "I1\n")), "\"w\"", NULL},
    {DICT(REBUILD(ID("FloatStorage", "0", "4"), "0", "I2\n", "I-1\n")), "strides are not whole", NULL},
    {DICT(REBUILD(ID("FloatStorage", "0", "4"), "-1", "I2\n", "I1\n")), "offset is not a whole", NULL},
    {DICT(REBUILD(ID("FloatStorage", "0", "4"), "0", "I-2\n", "I1\n")), "sizes are not whole", NULL},
    {DICT(REBUILD(ID("FloatStorage", "0", "4"), "0", "I2\nI2\n", "I1\n")), "as many strides", NULL},
    {DICT(QTENSOR("-1", SCALES)), "quantisation axis", NULL},
    {DICT(QTENSOR("2", SCALES)), "quantisation axis", NULL},
    {DICT(QTENSOR("0", SCALES)), "one scale for each index", NULL},
    {DICT(QUANTIZED("cos\nsystem\nF1.0\nI0\n")), "torch cannot load its quantizer", NULL},
    {DICT(QUANTIZED("ctorch\nper_tensor_affine\nF1.0\n")), "torch cannot load its quantizer", NULL},
    {DICT(QUANTIZED("ctorch\nper_channel_affine\nI1\nI1\nI0\n")), "one scale for each index", NULL},
    {DICT(QUANTIZED("ctorch\nper_channel_affine\n(lI1\na(lI1\naI0\n")), "one scale for each index", NULL},
    {DICT(QUANTIZED("ctorch\nper_channel_affine\n(lI1\naI1\na(lI1\naI1\naI0\n")), NULL, NULL},
    /* ids are checked even if no tensor uses them */
    {"(S'module'\nctorch\nLinear\nS'a.py'\nS'source'\ntQ0" DICT(FLOATS), "('storage', ...)", NULL},
    {ID("FloatStorage", "7", "4") "0" DICT(FLOATS), "storage \"data/7\" is not in the file", NULL},
    {ID("FloatStorage", "0", "5") "0" DICT(FLOATS), "two types or two sizes", NULL},
    {DICT(REBUILD(ID("FloatStorage", "0", "4"), "0", ONES65, ONES65)), "more than 64 dimensions", NULL},
    {DICT(REBUILD(ID("QuaternionStorage", "0", "4"), "0", "I4\n", "I1\n")), NULL, "of a type that is not known"},
    {DICT(CONVERTED("float32")), NULL, NULL},
    {DICT(CONVERTED("bfloat16")), NULL, "converted when it is loaded"},
    {DICT("ctorch.tensor\n_rebuild_from_type\n(ctorch._utils\n_rebuild_tensor\nca\nB\n(" ID(
         "FloatStorage", "0", "4") "I0\n(I4\nt(I1\ntt(dtR"),
     NULL, NULL},
    {DICT(CONJUGATED("(dS'conj'\nI01\ns")), NULL, "conjugated"},
    {DICT(CONJUGATED("(dS'conj'\nI00\nsS'neg'\nI01\ns")), NULL, "negated"},
    {DICT(CONJUGATED("(dS'conj'\nI00\ns")), NULL, NULL},
    {DICT(CONJUGATED("ctorch.jit._pickle\nrestore_type_tag\n((dS'conj'\nI01\nsS'Dict[str, bool]'\ntR")), NULL,
     "conjugated"},
    /* torch accepts any true value as metadata */
    {DICT(CONJUGATED("ccollections\nOrderedDict\n)RS'neg'\nI01\ns")), NULL, "of metadata that is not known"},
    {DICT(CONJUGATED("(dS'neg'\nI1\ns")), NULL, "of metadata that is not known"},
    {DICT(CONJUGATED("(l")), NULL, "of metadata that is not known"},
    {DICT(CONJUGATED("N")), NULL, NULL},
    /* torch also allows changes to a tensor after its call */
    {DICT(FLOATS "(" ID("FloatStorage", "0", "4") "I1\n(I1\nt(I1\nttb"), "gives a state to a tensor", NULL},
    {DICT("ctorch._utils\n_rebuild_parameter\n(" FLOATS "I01\n(dtR(dS'a'\nI1\nsb"), "gives a state to a tensor", NULL},
    {OVER_LIST("g7\n", "(I1\nt", "", ""), NULL, NULL},
    {OVER_LIST(SIZE_OF("g7\n"), "(I1\nt", "", ""), NULL, NULL},
    {OVER_LIST("g7\n", "(I1\nt", "", APPEND_LATER), "is added to after it was made", NULL},
    {OVER_LIST("(I2\nt", "g7\n", "", APPEND_LATER), "is added to after it was made", NULL},
    {OVER_LIST(SIZE_OF("g7\n"), "(I1\nt", "", APPEND_LATER), "is added to after it was made", NULL},
    {OVER_LIST(SIZE_OF("g7\n") "p8\n0g7\nI2\na0g8\n", "(I1\nt", "", ""), "is added to after it was made", NULL},
    {OVER_LIST("(I2\nt", "(I1\nt", "(dp8\n", "S'm'\ng8\nS'neg'\nI01\nss"), "is added to after it was made", NULL},
    {"(lp7\n0" DICT(QUANTIZED("ctorch\nper_channel_affine\n(lI1\naI1\na(lp8\nI1\naI1\naI0\n") "sS'z'\ng8\nI1\na"),
     "is added to after it was made", NULL},
    {DICT(REBUILD(ID("Float8_e4m3fnStorage", "0", "16"), "0", "I16\n", "I1\n")), NULL, NULL},
    {DICT(REBUILD(ID("ComplexHalfStorage", "0", "4"), "0", "I4\n", "I1\n")), NULL, NULL},
    /* a byte storage viewed as floats may leave a remainder; a tensor may have no elements */
    {DICT(REBUILD(ID("FloatStorage", "0", "4"), "3", "I1\n", "I1\n")), NULL, NULL},
    {DICT(REBUILD(ID("FloatStorage", "0", "4"), "9", "I0\n", "I1\n")), NULL, NULL},
    {DICT("ctorch._utils\n_rebuild_parameter\n(" FLOATS "I01\n(d"
          "tR"),
     NULL, NULL},
};

/* shows: security.md content-tensors-outside content-pickle-mutation */
static void odd_pickles(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(pickles); i++) {
        struct parsed p;
        struct zip_file f;
        parse_pickle(pickles[i].pickle, strlen(pickles[i].pickle), &p, &f);
        CHECK(p.ok == (pickles[i].says == NULL), "row %zu: %s", i, p.ok ? "accepted" : p.err.message);
        if (pickles[i].says != NULL) {
            check_refused(&p, pickles[i].says, f.len);
        } else {
            const struct td_tensor *w = tensor(&p, "w");
            assert_int_equal(p.manifest.tensor_count, 1);
            if (pickles[i].reason == NULL)
                assert_null(w->reason);
            else
                assert_string_equal(w->reason, pickles[i].reason);
        }
        done(&p, &f);
    }
}

/* ---- archives: records that are missing, odd or twice --------------------------------------------------- */

static const struct {
    struct zip_member member; /* added to data.pkl and data/0, or in place of data/0 */
    const char *says;         /* NULL: accepted */
} records[] = {
    {{.name = "archive/DATA.PKL", .data = "N.", .data_len = 2}, "DATA.PKL"},
    {{.name = "other/data/1", .data = "x", .data_len = 1}, "other/data/1"},
    {{.name = "archive/byteorder", .data = "middle", .data_len = 6}, "byteorder is \"middle\""},
    {{.name = "archive/byteorder", .data = "little", .data_len = 6}, NULL},
    {{.name = "archive/data/0", .data = "", .data_len = 0}, "should hold 4 elements"},
    {{.name = "archive/version", .data = "abc", .data_len = 3}, "version is \"abc\""},
    {{.name = "archive/version", .data = "3\n", .data_len = 2}, NULL},
    {{.name = "archive/version", .data = "\n", .data_len = 1}, "version is"},
    {{.name = "archive/data/1", .data = "", .data_len = 0}, NULL},
};

static void odd_records(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(records); i++) {
        struct zip_spec spec = archive_of(GOOD, strlen(GOOD));
        struct parsed p;
        struct zip_file f;
        size_t at = strcmp(records[i].member.name, "archive/data/0") == 0 ? 1 : spec.count++;
        spec.members[at] = records[i].member;
        parse_spec(&spec, &p, &f);
        CHECK(p.ok == (records[i].says == NULL), "row %zu: %s", i, p.ok ? "accepted" : p.err.message);
        if (records[i].says != NULL)
            check_refused(&p, records[i].says, f.len);
        done(&p, &f);
    }
}

/* A bomb is not unpacked past the limit. */
/* shows: security.md content-archive-bombs */
static void a_bomb_is_bounded(void **state)
{
    (void)state;
    enum { BOMB = 4 << 20, LIMIT = 1 << 20 };
    char *bomb = __real_malloc(BOMB);
    assert_non_null(bomb);
    memset(bomb, '0', BOMB);
    struct zip_spec spec = archive_of(bomb, BOMB);
    spec.members[0].deflated = true;
    spec.torch = false;
    struct zip_file f = zip_build(&spec);
    struct td_input input = td_input_memory(f.bytes, f.len);
    struct td_limits limits = td_limits_default();
    struct parsed p;
    limits.max_header_bytes = LIMIT;
    parse_input(&td_format_torch, &input, &limits, &p);
    assert_false(p.ok);
    check_error(&p.err, f.len, false, "a bomb");
    CHECK(p.memory.peak_bytes < LIMIT / 2, "%zu bytes", p.memory.peak_bytes);
    done(&p, &f);
    __real_free(bomb);
}

/* A compressed pickle is read, and a compressed record is listed with its compression. */
static void a_compressed_record_is_listed(void **state)
{
    (void)state;
    struct zip_spec spec = archive_of(GOOD, strlen(GOOD));
    struct parsed p;
    struct zip_file f;
    spec.torch = false;
    spec.members[0].deflated = spec.members[1].deflated = true;
    parse_spec(&spec, &p, &f);
    CHECK(p.ok, "%s", p.err.message);
    assert_null(tensor(&p, "w")->reason);
    assert_string_equal(td_tensor_stored(tensor(&p, "w")), "compressed (deflate)");
    assert_int_equal(tensor(&p, "w")->nbytes, 16);
    done(&p, &f);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    char tar[1024] = "storages";
    struct parsed p;
    memcpy(tar + 257, "ustar", 5);
    parse_bytes(&td_format_torch, tar, sizeof tar, &p);
    check_refused(&p, "tar archive", sizeof tar);
    parsed_fini(&p);
    parse_bytes(&td_format_torch, "GGUF", 4, &p);
    check_refused(&p, "neither a zip archive nor a pickle", 4);
    parsed_fini(&p);
    struct zip_spec spec = archive_of(GOOD, strlen(GOOD));
    struct zip_file f;
    spec.members[0].name = "archive/other.pkl";
    parse_spec(&spec, &p, &f);
    check_refused(&p, "it holds no data.pkl", f.len);
    done(&p, &f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_pickles),
        cmocka_unit_test(odd_records),
        cmocka_unit_test(a_bomb_is_bounded),
        cmocka_unit_test(a_compressed_record_is_listed),
        cmocka_unit_test(other_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
