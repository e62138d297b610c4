#include "parser/torch.h"

#include "tests/unit/format_fixture.h"
#include "tests/unit/zip_file.h"

#include <cjson/cJSON.h>

/* ---- files by the real torch.save ---------------------------------------------------------------------- */

/* FNV-1a of the elements in logical order, each read where the manifest says. */
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

/* The line of a tensor as make_torch.py writes it; shape_known is false where that script leaves a "?". */
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
    if (t->reason != NULL)
        td_buffer_printf(out, "!%s\n", t->reason);
    else
        td_buffer_printf(out, "%016" PRIx64 "\n", tensor_fnv(t, bytes, len));
}

static const char *metadata_value(const struct td_manifest *m, const char *key, size_t len)
{
    for (size_t i = 0; i < m->metadata_count; i++)
        if (strlen(m->metadata[i].key) == len && memcmp(m->metadata[i].key, key, len) == 0)
            return m->metadata[i].value;
    return NULL;
}

/* One "=" line: the same JSON value, but for numbers of more than 64 bits, which are not spelt out. */
static void check_metadata_line(const struct td_manifest *m, const char *name, const char *line, size_t len)
{
    const char *key = line + 2;
    const char *tab = memchr(key, '\t', len - 2);
    assert_non_null(tab);
    const char *value = metadata_value(m, key, (size_t)(tab - key));
    CHECK(value != NULL, "%s: no metadata %.*s", name, (int)len, line);
    size_t wanted_len = (size_t)(line + len - tab - 1);
    if (strspn(tab + 1, "0123456789") == wanted_len && wanted_len > 20) {
        assert_string_equal(value, "\"a number of more than 64 bits\"");
        return;
    }
    cJSON *wanted = cJSON_ParseWithLength(tab + 1, wanted_len);
    cJSON *got = cJSON_Parse(value);
    CHECK(wanted != NULL && got != NULL && cJSON_Compare(wanted, got, true), "%s: %.*s, but %s", name,
          (int)len, line, value);
    cJSON_Delete(wanted);
    cJSON_Delete(got);
}

/* A manifest against the lines; returns how many tensors there were. */
static size_t check_lines(const struct td_manifest *m, const struct fixture *f, const char *bytes, size_t len)
{
    size_t tensors = 0;
    for (const char *line = f->bytes; line < f->bytes + f->len;) {
        size_t line_len =
            (size_t)((const char *)memchr(line, '\n', (size_t)(f->bytes + f->len - line)) - line);
        struct td_buffer out;
        if (line[0] == '=' && line[1] == '\t') {
            check_metadata_line(m, f->name, line, line_len);
            line += line_len + 1;
            continue;
        }
        CHECK(tensors < m->tensor_count, "%s: %zu tensors", f->name, m->tensor_count);
        td_buffer_init(&out);
        put_tensor(&out, &m->tensors[tensors++], bytes, len, memmem(line, line_len, "\t?\t", 3) == NULL);
        CHECK(out.len == line_len + 1 && memcmp(out.data, line, out.len) == 0, "%s: got\n%.*swanted\n%.*s",
              f->name, (int)out.len, out.data, (int)line_len, line);
        td_buffer_fini(&out);
        line += line_len + 1;
    }
    return tensors;
}

/* f is NAME.txt; NAME.pt lies beside. */
static void as_torch_reads(const struct fixture *f)
{
    size_t len;
    char *bytes = read_file("torch", f->name, ".pt", &len);
    struct parsed p;
    parse_bytes(&td_format_torch, bytes, len, &p);
    CHECK(p.ok, "%s: %s", f->name, p.err.message);
    assert_string_equal(p.manifest.format, "pytorch");
    size_t tensors = check_lines(&p.manifest, f, bytes, len);
    CHECK(tensors == p.manifest.tensor_count, "%s: also \"%s\"", f->name, p.manifest.tensors[tensors].name);
    parsed_fini(&p);
    __real_free(bytes);
}

static void what_torch_wrote(void **state)
{
    (void)state;
    each_fixture("torch", ".txt", 20, as_torch_reads);
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

/* Whatever is accepted after damage lies within the file. */
static void check_sound(const struct parsed *p, size_t len, const char *what)
{
    if (!p->ok) {
        check_error(&p->err, len, false, what);
        return;
    }
    for (size_t i = 0; i < p->manifest.tensor_count; i++) {
        const struct td_tensor *t = &p->manifest.tensors[i];
        CHECK(t->reason != NULL || t->nbytes == 0 || t->offset < len, "%s: \"%s\" leaves the file", what,
              t->name);
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

/* ---- archives by hand ---------------------------------------------------------------------------------- */

/* Pickles are written in the text opcodes of protocol 0: numbers and tuples are strings of opcodes too. */
#define ID(class, key, numel) "(S'storage'\nctorch\n" class "\nS'" key "'\nS'cpu'\nI" numel "\ntQ"
#define REBUILD(storage, offset, size, stride)                                                  \
    "ctorch._utils\n_rebuild_tensor_v2\n(" storage "I" offset "\n(" size "t(" stride "tI00\n(d" \
    "tR"
#define FLOATS REBUILD(ID("FloatStorage", "0", "4"), "0", "I4\n", "I1\n")
#define DICT(item) "(dS'w'\n" item "s."
#define RECORD "0123456789abcdef" /* data/0: four floats */

enum { TEXT_MAX = 8192 };

static struct zip_spec archive_of(const char *pickle, size_t pickle_len)
{
    return (struct zip_spec){
        .count = 2,
        .torch = true,
        .members = {{.name = "archive/data.pkl", .data = pickle, .data_len = pickle_len},
                    {.name = "archive/data/0", .data = RECORD, .data_len = 16}},
    };
}

static void parse_spec(const struct zip_spec *spec, struct parsed *p, struct zip_file *f)
{
    *f = zip_build(spec);
    parse_bytes(&td_format_torch, f->bytes, f->len, p);
}

static void parse_pickle(const char *pickle, size_t len, struct parsed *p, struct zip_file *f)
{
    struct zip_spec spec = archive_of(pickle, len);
    parse_spec(&spec, p, f);
}

/* The parse counts allocations from zero, so the file outlives the manifest. */
static void done(struct parsed *p, struct zip_file *f)
{
    parsed_fini(p);
    __real_free(f->bytes);
}

static const struct td_tensor *tensor(const struct parsed *p, const char *name)
{
    const struct td_tensor *found = td_manifest_find(&p->manifest, name, strlen(name));
    CHECK(found != NULL, "no tensor \"%s\"", name);
    return found;
}

static void check_refused(const struct parsed *p, int number, const char *says, size_t len)
{
    char what[32];
    (void)snprintf(what, sizeof what, "bad input %d", number);
    CHECK(!p->ok, "%s was accepted", what);
    check_error(&p->err, len, false, what);
    CHECK(strstr(p->err.message, says) != NULL, "%s: '%s' does not say '%s'", what, p->err.message, says);
}

#define I65 "I1\nI1\nI1\nI1\nI1\nI1\nI1\nI1\nI1\nI1\nI1\nI1\nI1\n"
#define ONES65 I65 I65 I65 I65 I65
#define QTENSOR(axis, scales)                                                                          \
    "ctorch._utils\n_rebuild_qtensor\n(" ID(                                                           \
        "QInt8Storage", "0", "16") "I0\n(I2\nI8\nt(I8\nI1\nt"                                          \
                                   "(ctorch\nper_channel_affine\n" scales scales "I" axis "\ntI00\n(d" \
                                   "tR"

#define QUANTIZED(quantizer)                                                                                 \
    "ctorch._utils\n_rebuild_qtensor\n(" ID("QInt8Storage", "0", "16") "I0\n(I2\nI8\nt(I8\nI1\nt(" quantizer \
                                                                       "tI00\n(dtR"
#define CONJUGATED(metadata)                                              \
    "ctorch._utils\n_rebuild_tensor_v2\n(" ID("ComplexFloatStorage", "0", \
                                              "2") "I0\n(I2\nt(I1\ntI00\n(d" metadata "tR"
#define CONVERTED(type) \
    "ctorch._utils\n_rebuild_device_tensor_from_cpu_tensor\n(" FLOATS "ctorch\n" type "\nS'xla:0'\nI00\ntR"

static const struct {
    int number;
    const char *pickle;
    const char *says;   /* of a file that is refused */
    const char *reason; /* of a tensor "w" that is listed without bytes; neither: accepted, and served */
} pickles[] = {
    {0, DICT(FLOATS), NULL, NULL},
    {79, "(dS'x'\ncos\nsystem\n(S'true'\ntRsS'w'\n" FLOATS "s.", NULL, NULL},
    {80, FLOATS "S'a'\nI1\ns.", "", NULL},
    {80, "(I1\ntS'a'\nI1\ns.", "", NULL},
    {84, DICT("(S'module'\nctorch\nLinear\nS'a.py'\nS'source'\ntQ"), "('storage', ...)", NULL},
    {84, DICT(REBUILD("(S'module'\nctorch\nLinear\nS'a.py'\nS'source'\ntQ", "0", "I4\n", "I1\n")), "", NULL},
    {85, DICT(REBUILD(ID("FloatStorage", "../0", "4"), "0", "I4\n", "I1\n")), "plain name", NULL},
    {85, DICT(REBUILD("(S'storage'\nctorch\nFloatStorage\nI0\nS'cpu'\nI4\ntQ", "0", "I4\n", "I1\n")),
     "plain name", NULL},
    {85, DICT(REBUILD(ID("FloatStorage", "7", "4"), "0", "I4\n", "I1\n")),
     "storage \"data/7\" is not in the file", NULL},
    {86, DICT(REBUILD(ID("FloatStorage", "0", "5"), "0", "I4\n", "I1\n")),
     "should hold 5 elements of F32, but has 16 bytes", NULL},
    {86, DICT(REBUILD(ID("FloatStorage", "0", "3"), "0", "I3\n", "I1\n")), "should hold 3 elements", NULL},
    {87, "(dS'v'\n" FLOATS "sS'w'\n" REBUILD(ID("ShortStorage", "0", "4"), "0", "I4\n", "I1\n") "s.",
     "should hold 4 elements of I16", NULL},
    {88, DICT(REBUILD(ID("FloatStorage", "0", "4"), "0", "I2\n", "I1099511627776\n")), "\"w\"", NULL},
    {88, DICT(REBUILD(ID("FloatStorage", "0", "4"), "4611686018427387904", "I1\n", "I1\n")), "\"w\"", NULL},
    {88, DICT(REBUILD(ID("FloatStorage", "0", "4"), "1", "I4\n", "I1\n")), "\"w\"", NULL},
    {89, DICT(REBUILD(ID("FloatStorage", "0", "4"), "0", "I2\n", "I-1\n")), "strides are not whole", NULL},
    {89, DICT(REBUILD(ID("FloatStorage", "0", "4"), "-1", "I2\n", "I1\n")), "offset is no whole", NULL},
    {89, DICT(REBUILD(ID("FloatStorage", "0", "4"), "0", "I-2\n", "I1\n")), "size is not of whole", NULL},
    {90, DICT(REBUILD(ID("FloatStorage", "0", "4"), "0", "I2\nI2\n", "I1\n")), "as many strides", NULL},
    {91, DICT(QTENSOR("-1", FLOATS)), "quantisation axis", NULL},
    {91, DICT(QTENSOR("2", FLOATS)), "quantisation axis", NULL},
    {91, DICT(QTENSOR("0", FLOATS)), "one scale for each index", NULL},
    {91, DICT(QUANTIZED("cos\nsystem\nF1.0\nI0\n")), "none that torch can load", NULL},
    {91, DICT(QUANTIZED("ctorch\nper_tensor_affine\nF1.0\n")), "none that torch can load", NULL},
    {91, DICT(QUANTIZED("ctorch\nper_channel_affine\nI1\nI1\nI0\n")), "one scale for each index", NULL},
    {91, DICT(QUANTIZED("ctorch\nper_channel_affine\n(lI1\na(lI1\naI0\n")), "one scale for each index", NULL},
    {0, DICT(QUANTIZED("ctorch\nper_channel_affine\n(lI1\naI1\na(lI1\naI1\naI0\n")), NULL, NULL},
    /* ids count whether a tensor comes of them or not */
    {84, "(S'module'\nctorch\nLinear\nS'a.py'\nS'source'\ntQ0" DICT(FLOATS), "('storage', ...)", NULL},
    {85, ID("FloatStorage", "7", "4") "0" DICT(FLOATS), "storage \"data/7\" is not in the file", NULL},
    {86, ID("FloatStorage", "0", "5") "0" DICT(FLOATS), "should hold 5 elements", NULL},
    {92, DICT(REBUILD(ID("FloatStorage", "0", "4"), "0", ONES65, ONES65)), "more than 64 dimensions", NULL},
    {98, DICT(REBUILD(ID("QuaternionStorage", "0", "4"), "0", "I4\n", "I1\n")), NULL,
     "of a type that is not known"},
    {0, DICT(CONVERTED("float32")), NULL, NULL},
    {0, DICT(CONVERTED("bfloat16")), NULL, "converted when it is loaded"},
    {0,
     DICT("ctorch.tensor\n_rebuild_from_type\n(ctorch._utils\n_rebuild_tensor\nca\nB\n(" ID(
         "FloatStorage", "0", "4") "I0\n(I4\nt(I1\ntt(dtR"),
     NULL, NULL},
    {0, DICT(CONJUGATED("(dS'conj'\nI01\ns")), NULL, "conjugated"},
    {0, DICT(CONJUGATED("(dS'conj'\nI00\nsS'neg'\nI01\ns")), NULL, "negated"},
    {0, DICT(CONJUGATED("(dS'conj'\nI00\ns")), NULL, NULL},
    {0, DICT(CONJUGATED("ctorch.jit._pickle\nrestore_type_tag\n((dS'conj'\nI01\nsS'Dict[str, bool]'\ntR")),
     NULL, "conjugated"},
    {0, DICT(REBUILD(ID("Float8_e4m3fnStorage", "0", "16"), "0", "I16\n", "I1\n")), NULL, NULL},
    {0, DICT(REBUILD(ID("ComplexHalfStorage", "0", "4"), "0", "I4\n", "I1\n")), NULL, NULL},
    /* a byte storage viewed as floats may leave a remainder; a tensor may have no elements */
    {0, DICT(REBUILD(ID("FloatStorage", "0", "4"), "3", "I1\n", "I1\n")), NULL, NULL},
    {0, DICT(REBUILD(ID("FloatStorage", "0", "4"), "9", "I0\n", "I1\n")), NULL, NULL},
    {0,
     DICT("ctorch._utils\n_rebuild_parameter\n(" FLOATS "I01\n(d"
          "tR"),
     NULL, NULL},
};

static void numbered_pickles(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(pickles); i++) {
        struct parsed p;
        struct zip_file f;
        parse_pickle(pickles[i].pickle, strlen(pickles[i].pickle), &p, &f);
        if (pickles[i].says != NULL) {
            check_refused(&p, pickles[i].number, pickles[i].says, f.len);
        } else {
            CHECK(p.ok, "row %zu, %d: %s", i, pickles[i].number, p.err.message);
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

#define GOOD DICT(FLOATS)

static const struct {
    int number;
    struct zip_member member; /* beside data.pkl and data/0, or in the place of data/0 */
    const char *says;         /* NULL: accepted */
} records[] = {
    {47, {.name = "archive/DATA.PKL", .data = "N.", .data_len = 2}, "DATA.PKL"},
    {54, {.name = "other/data/1", .data = "x", .data_len = 1}, "other/data/1"},
    {61, {.name = "archive/byteorder", .data = "middle", .data_len = 6}, "byteorder is \"middle\""},
    {61, {.name = "archive/byteorder", .data = "little", .data_len = 6}, NULL},
    {62, {.name = "archive/data/0", .data = "", .data_len = 0}, "should hold 4 elements"},
    {63, {.name = "archive/version", .data = "abc", .data_len = 3}, "version is \"abc\""},
    {63, {.name = "archive/version", .data = "3\n", .data_len = 2}, NULL},
    {63, {.name = "archive/version", .data = "\n", .data_len = 1}, "version is"},
    {65, {.name = "archive/data/1", .data = "", .data_len = 0}, NULL},
};

static void numbered_records(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(records); i++) {
        struct zip_spec spec = archive_of(GOOD, strlen(GOOD));
        struct parsed p;
        struct zip_file f;
        size_t at = strcmp(records[i].member.name, "archive/data/0") == 0 ? 1 : spec.count++;
        spec.members[at] = records[i].member;
        parse_spec(&spec, &p, &f);
        CHECK(records[i].says != NULL || p.ok, "%d: %s", records[i].number, p.err.message);
        if (records[i].says != NULL)
            check_refused(&p, records[i].number, records[i].says, f.len);
        done(&p, &f);
    }
}

/* 56: unpacked no further than the limit. */
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
    check_error(&p.err, f.len, false, "bad input 56");
    CHECK(p.memory.peak_bytes < LIMIT / 2, "%zu bytes", p.memory.peak_bytes);
    done(&p, &f);
    __real_free(bomb);
}

/* 57: the pickle is read all the same. */
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
    assert_string_equal(tensor(&p, "w")->reason, "compressed (deflate)");
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
    check_refused(&p, 0, "tar archive", sizeof tar);
    parsed_fini(&p);
    parse_bytes(&td_format_torch, "GGUF", 4, &p);
    check_refused(&p, 0, "neither a zip archive nor a pickle", 4);
    parsed_fini(&p);
    struct zip_spec spec = archive_of(GOOD, strlen(GOOD));
    struct zip_file f;
    spec.members[0].name = "archive/other.pkl";
    parse_spec(&spec, &p, &f);
    check_refused(&p, 0, "it holds no data.pkl", f.len);
    done(&p, &f);
}

#define MAGIC "\x80\x02L119547037146038801333356L\n."
#define VERSION "I1001\n."
#define SYSTEM "(dS'little_endian'\nI01\ns."

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
    static const char *const thrice[] = {"a.b", "a.b#2", "a.b#2#2"};
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

static void a_scalar_has_no_shape(void **state)
{
    (void)state;
    static const char pickle[] = DICT(REBUILD(ID("FloatStorage", "0", "4"), "3", "", ""));
    struct parsed p;
    struct zip_file f;
    parse_pickle(pickle, sizeof pickle - 1, &p, &f);
    CHECK(p.ok, "%s", p.err.message);
    const struct td_tensor *w = tensor(&p, "w");
    assert_true(w->rank == 0 && w->shape == NULL && w->strides == NULL && w->nbytes == 4);
    assert_int_equal(w->offset, f.data_at[1] + 12);
    done(&p, &f);
}

#define STATE_OF(class, state) "ca\n" class "\n)\x81" state "b"
#define MODULE(parameters, buffers, unsaved)                                                     \
    STATE_OF("Net", "(dS'_parameters'\n(d" parameters "sS'_modules'\n(dsS'_buffers'\n(d" buffers \
                    "sS'_non_persistent_buffers_set'\nc__builtin__\nset\n((l" unsaved "tRs")
#define WITH_STATE "ctorch._utils\n_rebuild_parameter_with_state\n(" FLOATS "I01\n(d(dS'mask'\n" FLOATS "stR"

/* Whatever an object is, what it holds is listed: its attributes, in slots too, beside its items. */
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
    static const char *const mixed[] = {"s", "s.col_indices", "s.crow_indices.0", "s.crow_indices.1.k",
                                        "s.values"};
    static const char *const rows[] = {"s", "s.col_indices", "s.crow_indices", "s.values"};
    check_names("(dS'x'\nctorch.jit._pickle\nrestore_type_tag\n((l" FLOATS "a" FLOATS
                "aS'List[Tensor]'\ntRs.",
                tagged, 2);
    check_names("(dS's'\nctorch._utils\n_rebuild_sparse_tensor\n(I1\n(I4\ntI00\n" FLOATS FLOATS "(dtRs.",
                sparse, 3);
    check_names("(dS's'\nctorch._utils\n_rebuild_sparse_tensor\n(I2\n(I4\ntI00\n" FLOATS FLOATS FLOATS
                "(dtRs.",
                rows, 4);
    check_names("(dS's'\nctorch._utils\n_rebuild_sparse_tensor\n(I2\n(I4\ntI00\n(l" FLOATS "a(dS'k'\n" FLOATS
                "sa" FLOATS FLOATS "(dtRs.",
                mixed, 5); /* parts that are no tensors */
    check_names("ccollections\nOrderedDict\n)RS'a'\n" FLOATS "s(dS'_metadata'\n(dS'a'\n" FLOATS "ssb.", a, 1);
}

/* state_dict() shows no attributes of parameters; by themselves they are tensors like others. */
static void modules_are_as_state_dict_has_them(void **state)
{
    (void)state;
    static const char *const one[] = {"w"};
    static const char *const kept[] = {"b", "w"};
    static const char *const with_mask[] = {"w", "w.mask"};
    check_names(MODULE("S'w'\n" WITH_STATE "s", "", "") ".", one, 1);
    check_names("(dS'w'\n" WITH_STATE "s.", with_mask, 2);
    check_names(MODULE("S'w'\n" FLOATS "sS'n'\nNs", "S'b'\n" FLOATS "sS'c'\n" FLOATS "s", "S'c'\na") ".",
                kept, 2);
}

/* A module of thousands of buffers and as many names that it does not save: each buffer is looked for among them. */
static void unsaved_buffers_are_bounded(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    struct td_buffer text;
    struct parsed p;
    td_buffer_init(&text);
    td_buffer_append(&text, MAGIC VERSION SYSTEM, sizeof MAGIC VERSION SYSTEM - 1);
    td_buffer_puts(&text, "ca\nNet\n)\x81(dS'_parameters'\n(dsS'_modules'\n(dsS'_buffers'\n(d(");
    for (int i = 0; i < COUNT; i++)
        td_buffer_printf(&text, "S'b%d'\nI1\n", i);
    td_buffer_puts(&text, "usS'_non_persistent_buffers_set'\nc__builtin__\nset\n((l(");
    for (int i = 0; i < COUNT; i++)
        td_buffer_printf(&text, "S'c%d'\n", i);
    td_buffer_puts(&text, "etRsb.(l.");
    double before = cpu_seconds();
    parse_bytes(&td_format_torch, text.data, text.len, &p);
    check_refused(&p, 76, "unfold without end", text.len);
    assert_true(cpu_seconds() - before < 2);
    td_manifest_fini(&p.manifest);
    td_buffer_fini(&text);
}

/* A module of thousands of parameters that are None, met a thousand times. */
static void shared_nothing_is_bounded(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    struct td_buffer text;
    struct parsed p;
    td_buffer_init(&text);
    td_buffer_append(&text, MAGIC VERSION SYSTEM, sizeof MAGIC VERSION SYSTEM - 1);
    td_buffer_puts(&text, "(l(ca\nNet\n)\x81p1\n(dS'_modules'\n(dsS'_parameters'\n(d(");
    for (int i = 0; i < COUNT; i++)
        td_buffer_printf(&text, "I%d\nN", i);
    td_buffer_puts(&text, "usb");
    for (int i = 0; i < COUNT; i++)
        td_buffer_puts(&text, "g1\n");
    td_buffer_puts(&text, "e.(l.");
    double before = cpu_seconds();
    parse_bytes(&td_format_torch, text.data, text.len, &p);
    check_refused(&p, 76, "unfold without end", text.len);
    assert_true(cpu_seconds() - before < 2);
    td_manifest_fini(&p.manifest);
    td_buffer_fini(&text);
}

/* Scales that have scales that have scales: the one place where the walk recurses. */
static void parts_are_bounded(void **state)
{
    (void)state;
    for (int depth = 7; depth <= 40; depth += 33) {
        struct td_buffer text;
        struct parsed p;
        struct zip_file f;
        td_buffer_init(&text);
        for (int i = 0; i < depth; i++)
            td_buffer_puts(&text,
                           "ctorch._utils\n_rebuild_qtensor\n(" ID(
                               "QInt8Storage", "0", "16") "I0\n(I2\nt(I1\nt(ctorch\nper_tensor_affine\n");
        td_buffer_puts(&text, "F1.0\n");
        for (int i = 0; i < depth; i++)
            td_buffer_puts(&text, "I0\ntI00\n(dtR");
        td_buffer_putc(&text, '.');
        parse_pickle(text.data, text.len, &p, &f);
        if (depth < 8)
            CHECK(p.ok, "%s", p.err.message);
        else
            check_refused(&p, 0, "more than 8 deep", f.len);
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

/* 76: forty lists, each holding the one before twice, unfold to 2^40 paths. */
static void sharing_is_bounded(void **state)
{
    (void)state;
    struct td_buffer text;
    struct parsed p;
    struct zip_file f;
    td_buffer_init(&text);
    td_buffer_puts(&text, "(lp0\n");
    for (int i = 0; i < 40; i++)
        td_buffer_printf(&text, "0(lp%d\ng%d\nag%d\na", i + 1, i, i);
    td_buffer_putc(&text, '.');
    double before = cpu_seconds();
    parse_pickle(text.data, text.len, &p, &f);
    check_refused(&p, 76, "unfold without end", f.len);
    assert_true(cpu_seconds() - before < 2);
    done(&p, &f);
    td_buffer_fini(&text);
}

/* An array of 3,000 items is looked at whole each of the 1,000 times that it is met. */
static void shared_arrays_are_bounded(void **state)
{
    (void)state;
    struct td_buffer text;
    struct parsed p;
    struct zip_file f;
    td_buffer_init(&text);
    td_buffer_puts(&text, "(l((lp0\n(");
    for (int i = 0; i < 3000; i++)
        td_buffer_putc(&text, 'N');
    td_buffer_putc(&text, 'e');
    for (int i = 0; i < 1000; i++)
        td_buffer_puts(&text, "g0\n");
    td_buffer_puts(&text, "e.");
    parse_pickle(text.data, text.len, &p, &f);
    check_refused(&p, 76, "unfold without end", f.len);
    done(&p, &f);
    td_buffer_fini(&text);
}

/* Forty dicts within one another, each under a key of 2,000 bytes that is one string in the pickle. */
static void paths_are_bounded(void **state)
{
    (void)state;
    struct td_buffer text;
    struct parsed p;
    struct zip_file f;
    td_buffer_init(&text);
    td_buffer_puts(&text, "(dS'");
    for (int i = 0; i < 2000; i++)
        td_buffer_putc(&text, 'k');
    td_buffer_puts(&text, "'\np0\n");
    for (int i = 0; i < 40; i++)
        td_buffer_puts(&text, "(dg0\n");
    td_buffer_puts(&text, FLOATS);
    for (int i = 0; i < 41; i++)
        td_buffer_putc(&text, 's');
    td_buffer_putc(&text, '.');
    parse_pickle(text.data, text.len, &p, &f);
    check_refused(&p, 0, "name is longer than 16,383 bytes", f.len);
    done(&p, &f);
    td_buffer_fini(&text);
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

static void put_string(struct td_buffer *out, const char *key, int count)
{
    td_buffer_printf(out, "S'%s'\nV", key);
    for (int i = 0; i < count; i++)
        td_buffer_putc(out, 'x');
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
    (void)state;
    struct td_buffer text;
    struct parsed p;
    struct zip_file f;
    td_buffer_init(&text);
    td_buffer_puts(&text, "(dS'one'\nI1\nsS'nan'\nFnan\nsS'none'\nNsS'bytes'\nS'\\xff'\ns");
    put_array(&text, "short", 64);
    put_array(&text, "long", 65);
    put_string(&text, "fits", 998);
    put_string(&text, "split", 999); /* the last character would be cut in half */
    put_string(&text, "cut", 1500);
    td_buffer_putc(&text, '.');
    parse_pickle(text.data, text.len, &p, &f);
    CHECK(p.ok, "%s", p.err.message);
    check_metadata(&p, "one", "1");
    check_metadata(&p, "nan", "\"nan\"");
    check_metadata(&p, "none", "null");
    check_metadata(&p, "bytes", "\"\\\\xff\"");
    assert_int_equal(metadata_value(&p.manifest, "short", 5)[0], '[');
    check_cut(&p, "long", 65, true, 64);
    assert_int_equal(strlen(metadata_value(&p.manifest, "fits", 4)), 1002);
    check_cut(&p, "split", 1001, false, 999);
    check_cut(&p, "cut", 1502, false, 1000);
    done(&p, &f);
    td_buffer_fini(&text);
}

/* A tensor past the head of a long array is met nevertheless. */
static void a_long_array_with_a_tensor_is_no_metadata(void **state)
{
    (void)state;
    struct td_buffer text;
    struct parsed p;
    struct zip_file f;
    td_buffer_init(&text);
    td_buffer_puts(&text, "(dS'a'\n(l");
    for (int i = 0; i < 70; i++)
        td_buffer_puts(&text, "Na");
    td_buffer_puts(&text, FLOATS "as.");
    parse_pickle(text.data, text.len, &p, &f);
    CHECK(p.ok, "%s", p.err.message);
    assert_int_equal(tensor(&p, "a.70")->nbytes, 16);
    assert_null(metadata_value(&p.manifest, "a", 1));
    done(&p, &f);
    td_buffer_fini(&text);
}

/* 93: the last counts, and that there were such is said. */
static void repeated_keys_are_told(void **state)
{
    (void)state;
    static const char pickle[] = "(dS'w'\nI1\nsS'w'\n" FLOATS "sS'n'\nI1\nsS'n'\nI2\ns.";
    struct parsed p;
    struct zip_file f;
    parse_pickle(pickle, sizeof pickle - 1, &p, &f);
    CHECK(p.ok, "%s", p.err.message);
    (void)tensor(&p, "w");
    check_metadata(&p, "n", "2");
    check_metadata(&p, "(repeated keys)", "2");
    assert_int_equal(p.manifest.metadata_count, 2);
    done(&p, &f);
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

/* ---- legacy files -------------------------------------------------------------------------------------- */

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

#define VIEW(view) \
    DICT(REBUILD("(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI4\n" view "tQ", "0", "I1\n", "I1\n"))

static const struct {
    int number;
    struct legacy file; /* what is 0 is as in the good one */
    const char *says;   /* NULL: accepted */
} legacies[] = {
    {0, {.more = 0}, NULL},
    {100, {.magic = "\x80\x02L119547037146038801333357L\n."}, "magic number is missing"},
    {100, {.magic = "\x80\x02I1\n."}, "magic number is missing"},
    {101, {.version = "I1002\n."}, "not 1001"},
    {0, {.system = "(d."}, "whether it is little-endian"},
    {0, {.keys = "N."}, "no list of storages"},
    {102, {.keys = "(lS'0'\naS'0'\na."}, "one of them twice"},
    {103, {.keys = "(lS'1'\na."}, "one that no tensor refers to"},
    {103, {.keys = "(lI0\na."}, "one that no tensor refers to"},
    {103, {.keys = "(l."}, "lacks one that a tensor refers to"},
    {104, {.count = "\xff\xff\xff\xff\xff\xff\xff\xff"}, "should have 4 elements, but says -1"},
    {105, {.count = "\5\0\0\0\0\0\0\0"}, "should have 4 elements, but says 5"},
    {106, {.object = VIEW("(S'v'\nI2\nI3\nt")}, "a view of a storage leaves it"},
    {106, {.object = VIEW("(S'v'\nI-1\nI3\nt")}, "a view of a storage leaves it"},
    {0, {.object = VIEW("(S'v'\nI2\nI2\nt")}, NULL},
    {0, {.object = VIEW("N")}, NULL},
    {107, {.more = 1}, "1 bytes follow the last storage"},
    {108,
     {.object = DICT(REBUILD(ID("FloatStorage", "0", "1073741824"), "0", "I1073741824\n", "I1\n")),
      .count = "\0\0\0\x40\0\0\0\0"},
     "needs 4294967296 bytes"},
    {0, {.object = "(dS'w'\n" FLOATS "sS'm'\n(S'module'\nctorch\nLinear\nS'a.py'\nS'source'\ntQs."}, NULL},
    {0,
     {.object = "(dS'w'\n" FLOATS "sS'v'\n" REBUILD(ID("FloatStorage", "0", "3"), "0", "I1\n", "I1\n") "s."},
     "two sizes"},
    {0,
     {.object = DICT(REBUILD(ID("OddStorage", "0", "4"), "0", "I4\n", "I1\n"))},
     "class that is not known"},
};

#define OR_GOOD(member) (legacies[i].file.member != 0 ? legacies[i].file.member : good_legacy.member)

static void numbered_legacy_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(legacies); i++) {
        struct legacy l = {OR_GOOD(magic), OR_GOOD(version), OR_GOOD(system),   OR_GOOD(object),
                           OR_GOOD(keys),  OR_GOOD(count),   OR_GOOD(data_len), OR_GOOD(more)};
        struct parsed p;
        struct td_buffer file;
        parse_legacy(&l, &p, &file);
        CHECK(legacies[i].says != NULL || p.ok, "row %zu: %s", i, p.err.message);
        if (legacies[i].says != NULL)
            check_refused(&p, legacies[i].number, legacies[i].says, file.len);
        else
            assert_true(p.manifest.tensor_count == 1 && tensor(&p, "w")->reason == NULL);
        CHECK(p.memory.peak_bytes < 1 << 20, "row %zu: %zu bytes", i, p.memory.peak_bytes);
        parsed_fini(&p);
        __real_free(file.data);
    }
}

/* A view begins where its storage's element does: elements 2 and 3 of four. */
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
        cmocka_unit_test(what_torch_wrote),
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_byte_changed),
        cmocka_unit_test(numbered_pickles),
        cmocka_unit_test(numbered_records),
        cmocka_unit_test(a_bomb_is_bounded),
        cmocka_unit_test(a_compressed_record_is_listed),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(names_are_paths),
        cmocka_unit_test(a_scalar_has_no_shape),
        cmocka_unit_test(attributes_are_names),
        cmocka_unit_test(modules_are_as_state_dict_has_them),
        cmocka_unit_test(unsaved_buffers_are_bounded),
        cmocka_unit_test(shared_nothing_is_bounded),
        cmocka_unit_test(parts_are_bounded),
        cmocka_unit_test(repeated_keys_are_told),
        cmocka_unit_test(what_holds_itself_ends),
        cmocka_unit_test(sharing_is_bounded),
        cmocka_unit_test(shared_arrays_are_bounded),
        cmocka_unit_test(paths_are_bounded),
        cmocka_unit_test(long_metadata_is_cut),
        cmocka_unit_test(a_long_array_with_a_tensor_is_no_metadata),
        cmocka_unit_test(many_entries_are_counted),
        cmocka_unit_test(numbered_legacy_files),
        cmocka_unit_test(a_view_of_a_storage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
