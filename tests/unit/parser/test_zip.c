/* shows: security.md content-all-formats */
#include "parser/zip/zip.h"

#include "parser/zip/zip_unpack.h"
#include "tests/unit/parser/zip_opened.h"

static void check_members(const struct zip_spec *spec, const struct zip_file *f)
{
    struct opened o;
    struct td_input input = td_input_memory(f->bytes, f->len);
    open_bytes(f->bytes, f->len, &o);
    CHECK(o.ok, "%s", o.err.message);
    assert_int_equal(o.zip.count, spec->count);
    for (size_t i = 0; i < spec->count; i++) {
        const struct td_zip_entry *e = &o.zip.entries[i];
        const struct zip_member *m = &spec->members[i];
        assert_string_equal(e->name, m->name);
        assert_int_equal(e->name_len, strlen(m->name));
        assert_int_equal(e->deflated, m->deflated);
        assert_int_equal(e->offset, f->data_at[i]);
        assert_int_equal(e->header_at, f->local_at[i]);
        assert_int_equal(e->stored_bytes, f->stored_len[i]);
        assert_int_equal(e->size_bytes, m->data_len);
        assert_ptr_equal(td_zip_find(&o.zip, td_text_of(m->name)), e);
        uint8_t *bytes = td_zip_load(&input, e, m->data_len, &o.err);
        CHECK(bytes != NULL, "%s", o.err.message);
        assert_memory_equal(bytes, m->data, m->data_len);
        for (size_t head = 0; head <= m->data_len; head += 1 + head / 3) {
            memset(bytes, 0, m->data_len);
            assert_true(td_zip_load_head(&input, e, bytes, head, &o.err));
            assert_memory_equal(bytes, m->data, head);
        }
        free(bytes);
        assert_null(td_zip_find(&o.zip, td_text_n(m->name, strlen(m->name) - 1)));
        if (i > 0)
            assert_true(strcmp(o.zip.by_name[i - 1]->name, o.zip.by_name[i]->name) < 0);
    }
    assert_null(td_zip_find(&o.zip, TD_TEXT("")));
    close_opened(&o);
}

static void good_archives(void **state)
{
    (void)state;
    struct zip_spec specs[] = {plain_spec(), torch_spec(), {.count = 0}, {.count = 0, .torch = true}, plain_spec()};
    specs[4].comment = 100;
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        struct zip_file f = zip_build(&specs[i]);
        check_members(&specs[i], &f);
        free(f.bytes);
    }
}

/* ---- Bad inputs: a good archive with some fields changed ---- */

enum base { NONE, LOCAL, DATA, DESCRIPTOR, CENTRAL, DIRECTORY, END64, LOCATOR, END };

struct patch {
    enum base base;
    size_t member, at, width;
    uint64_t value;
};

struct bad_case {
    const char *name;
    bool torch;
    struct patch patches[4];
    const char *says;
};

static const struct bad_case bad_cases[] = {
    {"no end record", false, {{END, 0, 0, 4, 0}}, "cut short: its end record is missing"},
    {"no end record, torch", true, {{END, 0, 3, 1, 7}}, "cut short: its end record is missing"},
    {"zip64 locator past the end", true, {{LOCATOR, 0, 8, 8, UINT64_MAX}}, "zip64 end record is at byte 184467"},
    {"zip64 locator to the start", true, {{LOCATOR, 0, 8, 8, 0}}, "PK\\6\\6 and a length of 44"},
    {"zip64 record without signature", true, {{END64, 0, 0, 4, 0}}, "PK\\6\\6"},
    {"zip64 record longer", true, {{END64, 0, 4, 8, 45}}, "a length of 44"},
    {"zip64 count against end record", true, {{END64, 0, 24, 8, 3}, {END64, 0, 32, 8, 3}}, "3 and 4 members"},
    {"zip64 directory size against end record", true, {{END, 0, 12, 4, 7}}, "disagree"},
    {"zip64 offset against end record", true, {{END, 0, 16, 4, 7}}, "disagree"},
    {"2^64-1 entries",
     true,
     {{END64, 0, 24, 8, UINT64_MAX}, {END64, 0, 32, 8, UINT64_MAX}, {END, 0, 8, 4, UINT32_MAX}},
     "announces 18446744073709551615 members"},
    {"65535 entries", false, {{END, 0, 8, 4, UINT32_MAX}}, "announces 65535 members"},
    {"more entries than the directory", false, {{END, 0, 8, 4, 0x00020002}}, "bytes after its 2 members"},
    {"directory size", false, {{END, 0, 12, 4, 5}}, "does not end where the end records begin"},
    {"directory offset past the end", false, {{END, 0, 16, 4, UINT32_MAX}}, "does not end where"},
    {"another disk", false, {{END, 0, 4, 2, 1}}, "several parts"},
    {"directory on another disk", false, {{END, 0, 6, 2, 1}}, "several parts"},
    {"counts of parts", false, {{END, 0, 8, 2, 2}}, "several parts"},
    {"zip64 disk", true, {{END64, 0, 16, 4, 1}}, "several parts"},
    {"zip64 directory disk", true, {{END64, 0, 20, 4, 1}}, "several parts"},
    {"zip64 counts of parts", true, {{END64, 0, 24, 8, 2}}, "several parts"},
    {"locator disk", true, {{LOCATOR, 0, 4, 4, 1}}, "several parts"},
    {"locator disks", true, {{LOCATOR, 0, 16, 4, 2}}, "several parts"},
    {"member on another disk", false, {{CENTRAL, 1, 34, 2, 1}}, "another part"},
    {"central signature", false, {{CENTRAL, 1, 0, 4, 0}}, "no record (PK\\1\\2) for member 2"},
    {"central name past the directory", false, {{CENTRAL, 2, 28, 2, 60000}}, "ends within its record of member 3"},
    {"central comment past the directory", false, {{CENTRAL, 2, 32, 2, 1}}, "ends within its record of member 3"},
    {"duplicate name", false, {{LOCAL, 0, 32, 1, 'a'}, {CENTRAL, 0, 48, 1, 'a'}}, "two zip members are named \"x/a\""},
    {"local name differs", false, {{LOCAL, 0, 30, 1, 'y'}}, "another name in its local header"},
    {"local name longer", false, {{LOCAL, 0, 26, 2, 4}}, "another name in its local header"},
    {"flag 0x1", false, {{CENTRAL, 0, 8, 2, 1}, {LOCAL, 0, 6, 2, 1}}, "encrypted or a patch (flags 0x1)"},
    {"flag 0x20", false, {{CENTRAL, 0, 8, 2, 0x20}, {LOCAL, 0, 6, 2, 0x20}}, "encrypted or a patch"},
    {"flag 0x40", false, {{CENTRAL, 0, 8, 2, 0x40}, {LOCAL, 0, 6, 2, 0x40}}, "encrypted or a patch"},
    {"flag 0x2000", false, {{CENTRAL, 0, 8, 2, 0x2000}, {LOCAL, 0, 6, 2, 0x2000}}, "encrypted or a patch"},
    {"flag 0x1 in the local header", false, {{LOCAL, 0, 6, 2, 1}}, "its local header says flags 0x1"},
    {"descriptor flag in the local header", false, {{LOCAL, 0, 6, 2, 8}}, "its local header says flags 0x8"},
    {"descriptor flag without descriptor",
     false,
     {{LOCAL, 0, 6, 2, 8}, {CENTRAL, 0, 8, 2, 8}},
     "its data descriptor has"},
    {"method 12", false, {{CENTRAL, 0, 10, 2, 12}, {LOCAL, 0, 8, 2, 12}}, "method 12"},
    {"version 6.4", false, {{CENTRAL, 0, 6, 2, 64}}, "needs version 6.4"},
    {"methods differ", false, {{LOCAL, 0, 8, 2, 8}}, "and method 8, the directory 0x0 and 0"},
    {"two records at one place", false, {{CENTRAL, 1, 42, 4, 0}}, "overlaps what begins at byte 0"},
    {"record within another", false, {{CENTRAL, 1, 42, 4, 20}}, "overlaps what begins at byte 20"},
    {"record within another's data", false, {{CENTRAL, 1, 42, 4, 40}}, "overlap what begins at byte 40"},
    {"data in the directory", false, {{CENTRAL, 2, 20, 4, 100}, {LOCAL, 2, 18, 4, 100}}, "overlap what begins at byte"},
    {"header in the directory", false, {{CENTRAL, 2, 42, 4, 200}}, "not before the directory"},
    {"header past the end", false, {{CENTRAL, 2, 42, 4, UINT32_MAX}}, "said to begin at byte 4294967295"},
    {"no header there", false, {{LOCAL, 1, 0, 4, 0}}, "no local header"},
    {"NUL in a name", false, {{LOCAL, 0, 31, 1, 0}, {CENTRAL, 0, 47, 1, 0}}, "a name must be"},
    {"name not UTF-8", false, {{LOCAL, 0, 31, 1, 0xff}, {CENTRAL, 0, 47, 1, 0xff}}, "a name must be"},
    {"folder with bytes", false, {{LOCAL, 0, 32, 1, '/'}, {CENTRAL, 0, 48, 1, '/'}}, "is a folder, yet has 10"},
    {"stored with other sizes", false, {{CENTRAL, 0, 20, 4, 9}}, "is stored, yet takes 9 bytes for 10"},
    {"stored with other sizes, torch", true, {{CENTRAL, 0, 24, 4, 27}}, "is stored, yet takes 26 bytes for 27"},
    {"deflated too well", false, {{CENTRAL, 2, 24, 4, UINT32_MAX - 1}}, "cannot be deflated to"},
    {"descriptor: CRC", true, {{DESCRIPTOR, 0, 4, 1, 0}}, "its data descriptor does not say"},
    {"descriptor: stored", true, {{DESCRIPTOR, 0, 8, 4, 25}}, "its data descriptor does not say"},
    {"descriptor: size", true, {{DESCRIPTOR, 3, 12, 4, 25}}, "its data descriptor does not say"},
    {"descriptor: signature", true, {{DESCRIPTOR, 0, 0, 4, 0}}, "its data descriptor does not say"},
    {"zero-size record with flags 0x808",
     true,
     {{CENTRAL, 2, 8, 2, 0x808}, {LOCAL, 2, 6, 2, 0x808}},
     "0 bytes after zip member"},
    {"record with flags 0x800", true, {{CENTRAL, 0, 8, 2, 0x800}, {LOCAL, 0, 6, 2, 0x800}}, "local header says 0"},
    {"local extra past the header", false, {{LOCAL, 0, 28, 2, 60000}}, "overlap what begins at byte 43"},
    {"local extra into the next header", false, {{LOCAL, 0, 28, 2, 1}}, "overlap what begins at byte 43"},
    {"padding past the data", true, {{LOCAL, 0, 28, 2, 200}}, "overlap what begins"},
    {"local extra shorter: data end early", true, {{LOCAL, 0, 28, 2, 1}}, "bytes after zip member"},
    {"central extra past the record", false, {{CENTRAL, 2, 30, 2, 1}}, "ends within its record of member 3"},
    {"local size differs", false, {{LOCAL, 1, 22, 4, 25}}, "the directory 26 and 26"},
    {"local stored size differs", false, {{LOCAL, 1, 18, 4, 25}}, "the directory 26 and 26"},
    {"local sizes 0 without descriptor", false, {{LOCAL, 1, 18, 8, 0}}, "the directory 26 and 26"},
    {"local CRC differs", false, {{LOCAL, 1, 14, 4, 25}}, "or their CRCs differ"},
    {"local sizes differ, torch", true, {{LOCAL, 0, 18, 4, 25}}, "the directory 26 and 26"},
    {"local sizes 2^32-1 without zip64", false, {{LOCAL, 1, 18, 8, UINT64_MAX}}, "says 4294967295"},
    {"local sizes 2^32-1 with padding only", true, {{LOCAL, 0, 18, 8, UINT64_MAX}}, "says 4294967295"},
    {"symlink", false, {{CENTRAL, 0, 38, 4, 0120777u << 16}}, "is a link or a device"},
    {"FIFO", false, {{CENTRAL, 0, 38, 4, 0010777u << 16}}, "is a link or a device"},
    {"device", false, {{CENTRAL, 0, 38, 4, 0060777u << 16}}, "is a link or a device"},
};

static size_t patch_position(const struct zip_file *f, const struct patch *p)
{
    const size_t bases[] = {0,
                            f->local_at[p->member],
                            f->data_at[p->member],
                            f->descriptor_at[p->member],
                            f->central_at[p->member],
                            f->directory_at,
                            f->end64_at,
                            f->locator_at,
                            f->end_at};
    return bases[p->base] + p->at;
}

/* shows: security.md content-ambiguous-archives */
static void bad_fields(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad_cases); i++) {
        const struct bad_case *c = &bad_cases[i];
        struct zip_spec spec = c->torch ? torch_spec() : plain_spec();
        struct zip_file f = zip_build(&spec);
        for (size_t k = 0; k < COUNT_OF(c->patches) && c->patches[k].base != NONE; k++)
            zip_patch(&f, patch_position(&f, &c->patches[k]), c->patches[k].width, c->patches[k].value);
        check_refused(&f, c->name, c->says);
        free(f.bytes);
    }
}

/* ---- Other bad inputs ---- */

static void cut_short_or_no_archive(void **state)
{
    (void)state;
    struct zip_spec spec = plain_spec();
    struct zip_file f = zip_build(&spec);
    const size_t lengths[] = {4, 22, f.directory_at, f.end_at, f.len - 1};
    size_t whole = f.len;
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        f.len = lengths[i];
        check_refused(&f, "a beginning", "cut short: its end record is missing");
    }
    f.len = 3;
    check_refused(&f, "three bytes", "no zip archive");
    f.len = whole;
    zip_patch(&f, f.end_at, 4, 0);
    zip_patch(&f, 0, 4, 0);
    check_refused(&f, "something else", "no zip archive");
    free(f.bytes);
}

static void two_end_records(void **state)
{
    (void)state;
    struct zip_spec spec = plain_spec();
    struct zip_file f = zip_build(&spec);
    uint8_t end[22];
    memcpy(end, f.bytes + f.end_at, sizeof end);
    zip_put_bytes(&f, end, sizeof end);
    check_refused(&f, "one after the other", "does not end where the end records begin");
    zip_patch(&f, f.end_at + 20, 2, sizeof end);
    check_refused(&f, "one in the other's comment", "does not end where the end records begin");
    zip_put(&f, 0, 1);
    zip_patch(&f, f.end_at + 20, 2, sizeof end + 1);
    check_refused(&f, "and more", "does not end where the end records begin");
    /* a whole directory in the comment */
    f.len = f.end_at + sizeof end;
    size_t begin = f.len;
    zip_put_bytes(&f, f.bytes + f.directory_at, f.end_at - f.directory_at);
    zip_put_bytes(&f, end, sizeof end);
    zip_patch(&f, f.end_at + 20, 2, f.len - begin);
    zip_patch(&f, f.len - 6, 4, begin);
    check_refused(&f, "with a directory", "belong to no member");
    free(f.bytes);
}

static void bytes_that_belong_to_no_member(void **state)
{
    (void)state;
    for (int torch = 0; torch < 2; torch++) {
        struct zip_spec spec = torch ? torch_spec() : plain_spec();
        spec.prefix = 5;
        struct zip_file f = zip_build(&spec);
        check_refused(&f, "before the first", "5 bytes before zip member");
        free(f.bytes);
        spec.prefix = 0;
        spec.gap = 7;
        f = zip_build(&spec);
        check_refused(&f, "before the directory", torch ? "its data descriptor has" : "7 bytes after zip member");
        free(f.bytes);
        spec.count = 0;
        f = zip_build(&spec);
        check_refused(&f, "nothing but a gap", "7 bytes before the zip directory");
        free(f.bytes);
    }
}

/* zipfile and PyTorch search for the end record from the end, and use neither its comment nor what follows. */
static void bytes_behind_the_end_record_are_ignored(void **state)
{
    enum { MOST = 65536 };
    (void)state;
    for (int torch = 0; torch < 2; torch++) {
        struct zip_spec spec = torch ? torch_spec() : plain_spec();
        struct zip_file f = zip_build(&spec);
        const size_t end = f.len;
        f.bytes = __real_realloc(f.bytes, end + MOST + 1);
        assert_non_null(f.bytes);
        memset(f.bytes + end, 0, MOST + 1);
        memcpy(f.bytes + end, "abPK\5\6", 6);
        zip_patch(&f, f.end_at + 20, 2, 5);
        check_members(&spec, &f); /* a comment that is cut off */
        f.len = end + 6;
        check_members(&spec, &f); /* a signature without room for a record */
        memset(f.bytes + end, 0, 6);
        f.len = end + MOST;
        check_members(&spec, &f);
        f.len = end + MOST + 1;
        check_refused(&f, "65,537 bytes after", "cut short");
        free(f.bytes);
    }
}

/* Two archives, one after the other: PyTorch finds the first one's directory where the last one's would be, when their
 * sizes are equal; zipfile reads the last one. */
static void several_archives(void **state)
{
    (void)state;
    for (int torch = 0; torch < 2; torch++) {
        struct td_limits limits = td_limits_default();
        struct zip_spec spec = torch ? torch_spec() : plain_spec();
        struct zip_file f = zip_build(&spec);
        const size_t one = f.len;
        const char *says = torch ? "zip64 locator says" : "does not end where the end records begin";
        char message[64];
        uint8_t *copy = __real_malloc(one);
        assert_non_null(copy);
        memcpy(copy, f.bytes, one);
        zip_put_bytes(&f, copy, one);
        check_refused(&f, "as zipfile", says);
        struct opened o;
        struct td_input input = td_input_memory(f.bytes, f.len);
        open_by(td_zip_read_torch, &input, &limits, &o);
        CHECK(o.ok, "%s", o.err.message);
        assert_int_equal(o.zip.count, spec.count);
        for (size_t i = 0; i < o.zip.count; i++)
            assert_true(o.zip.entries[i].offset < one);
        close_opened(&o);
        f.len = one;
        zip_put(&f, 0, 1); /* now the second directory has another offset, at which PyTorch finds nothing */
        zip_put_bytes(&f, copy, one);
        zip_patch(&f, f.len - 22 + 16, 4, f.directory_at + 1);
        check_refused_by(td_zip_read_torch, &f, "another place", "");
        f.len = one;
        zip_put_bytes(&f, copy, one);
        zip_patch(&f, one - 22 + 16, 4, f.directory_at + 1); /* the first end record names another directory */
        (void)snprintf(message, sizeof message, " bytes at %zu does not end", (size_t)f.directory_at);
        check_refused_by(td_zip_read_torch, &f, "another directory", torch ? "" : message);
        free(copy);
        free(f.bytes);
    }
}

/* Any text may be a name, since names are not used as paths; PyTorch's archives have relative paths. */
static void names_are_texts(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t len;
        enum { NOBODY, ZIPFILE, ALL } readers;
    } names[] = {
        {"../data/0", 0, ZIPFILE}, {"..", 0, ZIPFILE},  {"a/..", 0, ZIPFILE},      {"a/../b", 0, ZIPFILE},
        {"a\\..\\b", 0, ZIPFILE},  {"/a", 0, ZIPFILE},  {"\\a", 0, ZIPFILE},       {"a\0b", 3, NOBODY},
        {"a\0", 2, NOBODY},        {"\xff", 0, NOBODY}, {"a/\xc0\xaf", 0, NOBODY}, {"...", 0, ALL},
        {"..a", 0, ALL},           {"a..", 0, ALL},     {"a/..b/c", 0, ALL},       {"a\\b", 0, ALL},
        {"\xc3\xa9", 0, ALL},      {"a b\nc", 0, ALL},  {"C:x", 0, ALL},           {".", 0, ALL},
        {"a//b", 0, ALL},
    };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct zip_spec spec = {.count = 1};
        spec.members[0] =
            (struct zip_member){.name = names[i].name, .name_len = names[i].len, .data = "x", .data_len = 1};
        struct zip_file f = zip_build(&spec);
        if (names[i].readers == NOBODY)
            check_refused(&f, names[i].name, "a name must be in UTF-8");
        else
            check_members(&spec, &f);
        if (names[i].readers == ZIPFILE)
            check_refused_by(td_zip_read_torch, &f, names[i].name, "a name must be a relative path");
        free(f.bytes);
    }
    struct zip_spec spec = {.count = 1, .members = {{.name = "x", .data = "", .data_len = 0}}};
    struct zip_file f = zip_build(&spec);
    zip_patch(&f, f.central_at[0] + 28, 2, 0); /* an empty name: its byte becomes an extra field */
    zip_patch(&f, f.central_at[0] + 30, 2, 1);
    check_refused(&f, "empty", "a name must be");
    free(f.bytes);
}

static void folders_are_left_out(void **state)
{
    (void)state;
    struct zip_spec spec = {.count = 3,
                            .members = {{.name = "d/", .data = "", .data_len = 0},
                                        {.name = "d/x", .data = "x", .data_len = 1},
                                        {.name = "e/", .data = "", .data_len = 0}}};
    struct zip_file f = zip_build(&spec);
    zip_patch(&f, f.central_at[0] + 38, 4, 040755u << 16);
    struct opened o;
    open_bytes(f.bytes, f.len, &o);
    CHECK(o.ok, "%s", o.err.message);
    assert_int_equal(o.zip.count, 1);
    assert_string_equal(o.zip.entries[0].name, "d/x");
    assert_ptr_equal(o.zip.by_name[0], &o.zip.entries[0]);
    close_opened(&o);
    free(f.bytes);
}

static void check_torch_rules(const char *const names[3], const char *says)
{
    struct zip_spec spec = {.count = 3, .torch = true};
    for (size_t i = 0; i < 3; i++)
        spec.members[i] = (struct zip_member){.name = names[i], .data = "x", .data_len = 1};
    struct zip_file f = zip_build(&spec);
    struct opened o;
    size_t root_len = 0;
    open_bytes(f.bytes, f.len, &o);
    CHECK(o.ok, "%s", o.err.message);
    bool ok = td_zip_check_root(&o.zip, &root_len, &o.err) && td_zip_check_case(&o.zip, &o.err);
    CHECK(ok == (says == NULL), "%s: %s", names[0], o.err.message);
    if (ok) {
        assert_int_equal(root_len, strchr(names[0], '/') - names[0] + 1);
    } else {
        check_error(&o.err, f.len, true, names[0]);
        check_says(&o.err, says, names[0]);
    }
    close_opened(&o);
    free(f.bytes);
}

static void torch_rules(void **state)
{
    (void)state;
    check_torch_rules((const char *const[]){"r/data.pkl", "r/data/0", "r/data/1"}, NULL);
    check_torch_rules((const char *const[]){"r/data.pkl", "r/x", "r/DATA.PKL"}, "differ in case only");
    check_torch_rules((const char *const[]){"r/B", "r/c", "r/b"}, "differ in case only");
    check_torch_rules((const char *const[]){"r/\xc3\xa9", "r/\xc3\x89", "r/{"},
                      NULL); /* only ASCII letters are folded */
    check_torch_rules((const char *const[]){"r/a", "s/b", "r/c"}, "\"s/b\" is not in");
    check_torch_rules((const char *const[]){"r/a", "r/b", "r"}, "\"r\" is not in");
    check_torch_rules((const char *const[]){"a", "r/b", "r/c"}, "not in a folder");
}

/* ---- zip64 fields ---- */

/* Builds a member as Python's force_zip64 does: sizes of 2^32-1, and a zip64 field with the true sizes. */
static struct zip_file build_zip64(size_t central_field, size_t local_field)
{
    struct zip_file f = {.bytes = calloc(1, ZIP_FILE_MAX)};
    const struct zip_member m = {.name = "a", .data = data_a, .data_len = 26};
    assert_non_null(f.bytes);
    zip_put(&f, 0x04034b50, 4);
    zip_put(&f, 45, 2);
    zip_put(&f, 0, 8);
    zip_put(&f, zip_crc(&m), 4);
    zip_put(&f, UINT64_MAX, 8);
    zip_put(&f, 1, 2);
    zip_put(&f, 4 + local_field, 2);
    zip_put(&f, 'a', 1);
    zip_put(&f, 1, 2);
    zip_put(&f, local_field, 2);
    zip_put(&f, 26, local_field < 8 ? local_field : 8);
    zip_put(&f, 26, local_field < 8 ? 0 : local_field - 8);
    f.data_at[0] = f.len;
    zip_put_bytes(&f, data_a, 26);
    f.directory_at = f.len;
    f.central_at[0] = f.len;
    zip_put(&f, 0x02014b50, 4);
    zip_put(&f, 45, 4);
    zip_put(&f, 0, 8);
    zip_put(&f, zip_crc(&m), 4);
    zip_put(&f, UINT64_MAX, 8);
    zip_put(&f, 1, 2);
    zip_put(&f, 4 + central_field, 2);
    zip_put(&f, 0, 10);
    zip_put(&f, UINT32_MAX, 4);
    zip_put(&f, 'a', 1);
    zip_put(&f, 1, 2);
    zip_put(&f, central_field, 2);
    zip_put(&f, 26, 8);
    zip_put(&f, 26, 8);
    zip_put(&f, 0, central_field - 16);
    zip_put_end(&f, &(struct zip_spec){.count = 1});
    return f;
}

static void zip64_fields(void **state)
{
    (void)state;
    struct zip_file f = build_zip64(24, 16);
    struct opened o;
    open_bytes(f.bytes, f.len, &o);
    CHECK(o.ok, "%s", o.err.message);
    assert_int_equal(o.zip.entries[0].size_bytes, 26);
    assert_int_equal(o.zip.entries[0].offset, f.data_at[0]);
    close_opened(&o);
    zip_patch(&f, 31 + 4, 8, 25); /* in the local header */
    check_refused(&f, "local zip64 size", "the directory 26 and 26");
    free(f.bytes);
    f = build_zip64(20, 16);
    check_refused(&f, "central zip64 field too short", "zip64 field is too short");
    free(f.bytes);
    f = build_zip64(24, 12);
    check_refused(&f, "local zip64 field too short", "zip64 field is too short");
    zip_patch(&f, f.central_at[0] + 47 + 2, 2, 25);
    check_refused(&f, "field past the extra", "extra fields run past their 28 bytes");
    free(f.bytes);
    f = build_zip64(28, 16);
    zip_patch(&f, f.central_at[0] + 47 + 2, 2, 24); /* the last four bytes become a field of their own */
    zip_patch(&f, f.central_at[0] + 47 + 28, 4, 1);
    check_refused(&f, "two zip64 fields", "occurs twice");
    free(f.bytes);
}

/* Local headers count against the limit, because their extra fields may be longer than the directory. */
static void local_headers_count_against_the_limit(void **state)
{
    (void)state;
    struct zip_file f = build_zip64(24, 300);
    struct td_input input = td_input_memory(f.bytes, f.len);
    struct td_limits limits = td_limits_default();
    for (limits.max_header_bytes = 330; limits.max_header_bytes <= 340; limits.max_header_bytes++) {
        struct opened o;
        open_input(&input, &limits, &o);
        CHECK(o.ok == (limits.max_header_bytes >= 31 + 304), "%s", o.err.message);
        assert_true(o.ok || o.err.code == TD_RESOURCE_EXHAUSTED);
        close_opened(&o);
    }
    free(f.bytes);
}

/* ---- Descriptors ---- */

/* With and without a signature, with sizes of four and of eight bytes. */
static void descriptors_in_all_forms(void **state)
{
    (void)state;
    for (size_t form = 0; form < 4; form++) {
        struct zip_spec spec = {.count = 1, .members = {{.name = "a", .data = data_a, .data_len = 26}}};
        struct zip_file f = zip_build(&spec);
        size_t width = form & 1 ? 8 : 4;
        f.len = f.data_at[0] + 26;
        if (form & 2)
            zip_put(&f, 0x08074b50, 4);
        zip_put(&f, zip_crc(&spec.members[0]), 4);
        zip_put(&f, 26, width);
        zip_put(&f, 26, width);
        size_t last = f.len - width;
        zip_patch(&f, 6, 2, 8);
        zip_patch(&f, 14, 4, 0);
        zip_patch(&f, 18, 8, 0);
        f.directory_at = f.len;
        zip_put_central(&f, &spec, 0);
        zip_patch(&f, f.central_at[0] + 8, 2, 8);
        zip_put_end(&f, &spec);
        check_members(&spec, &f);
        zip_patch(&f, last, 1, 27);
        check_refused(&f, "descriptor", "its data descriptor does not say");
        free(f.bytes);
    }
}

/* ---- Unpacking ---- */

static void load_refused(struct zip_file *f, const struct zip_spec *spec, uint64_t limit, enum td_code code,
                         const char *says)
{
    struct opened o;
    struct td_input input = td_input_memory(f->bytes, f->len);
    open_bytes(f->bytes, f->len, &o);
    CHECK(o.ok, "%s", o.err.message);
    size_t calls = alloc_count_get().calls;
    const struct td_zip_entry *e = &o.zip.entries[spec->count - 1];
    assert_null(td_zip_load(&input, e, limit, &o.err));
    CHECK(o.err.code == code, "%s", o.err.message);
    check_error(&o.err, f->len, code == TD_INVALID_ARGUMENT, says);
    check_says(&o.err, says, "zip");
    if (limit < e->size_bytes)
        assert_int_equal(alloc_count_get().calls, calls);
    close_opened(&o);
}

/* shows: security.md content-archive-bombs */
static void unpacked_members_are_what_they_say(void **state)
{
    (void)state;
    struct zip_spec spec = plain_spec();
    struct zip_file f = zip_build(&spec);
    size_t size_at[] = {f.local_at[2] + 22, f.central_at[2] + 24};
    load_refused(&f, &spec, LONG_BYTES - 1, TD_RESOURCE_EXHAUSTED, "more than the limit of 2999");
    for (int off = -1; off <= 1; off += 2) {
        for (size_t i = 0; i < 2; i++)
            zip_patch(&f, size_at[i], 4, (uint64_t)(LONG_BYTES + off));
        load_refused(&f, &spec, 1 << 20, TD_INVALID_ARGUMENT, off < 0 ? "unpack to more than" : "unpack to fewer than");
    }
    for (size_t i = 0; i < 2; i++)
        zip_patch(&f, size_at[i], 4, LONG_BYTES);
    uint32_t crc = zip_crc(&spec.members[2]);
    zip_patch(&f, f.local_at[2] + 14, 4, crc + 1);
    zip_patch(&f, f.central_at[2] + 16, 4, crc + 1);
    load_refused(&f, &spec, 1 << 20, TD_INVALID_ARGUMENT, "do not have the CRC");
    zip_patch(&f, f.local_at[2] + 14, 4, 0);
    zip_patch(&f, f.central_at[2] + 16, 4, 0);
    check_members(&spec, &f); /* a CRC of 0 is not checked */
    f.bytes[f.data_at[2]] = 0xff;
    load_refused(&f, &spec, 1 << 20, TD_INVALID_ARGUMENT, "its deflated bytes invalid block type");
    free(f.bytes);
}

static void deflated_bytes_end_where_the_member_does(void **state)
{
    (void)state;
    struct zip_spec spec = plain_spec();
    struct zip_file f = zip_build(&spec);
    struct opened o;
    struct td_input input = td_input_memory(f.bytes, f.len);
    open_bytes(f.bytes, f.len, &o);
    struct td_zip_entry e = o.zip.entries[2];
    for (e.stored_bytes = 0; e.stored_bytes < f.stored_len[2] + 2; e.stored_bytes++) {
        uint8_t *bytes = td_zip_load(&input, &e, LONG_BYTES, &o.err);
        CHECK((bytes != NULL) == (e.stored_bytes == f.stored_len[2]), "%" PRIu64 " bytes", e.stored_bytes);
        if (bytes == NULL)
            check_error(&o.err, f.len, true, "cut");
        free(bytes);
        td_error_init(&o.err);
    }
    assert_false(td_zip_load_head(&input, &o.zip.entries[2], NULL, LONG_BYTES + 1, &o.err));
    check_error(&o.err, f.len, true, "head");
    close_opened(&o);
    free(f.bytes);
}

/* The CRC of a stored member is not checked, because its data is not read in general. */
static void stored_crc_is_not_checked(void **state)
{
    (void)state;
    struct zip_spec spec = torch_spec();
    struct zip_file f = zip_build(&spec);
    zip_patch(&f, f.data_at[1], 1, 'x');
    struct opened o;
    struct td_input input = td_input_memory(f.bytes, f.len);
    open_bytes(f.bytes, f.len, &o);
    CHECK(o.ok, "%s", o.err.message);
    uint8_t *bytes = td_zip_load(&input, &o.zip.entries[1], 10, &o.err);
    assert_non_null(bytes);
    assert_memory_equal(bytes, "x123456789", 10);
    free(bytes);
    close_opened(&o);
    free(f.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_archives),
        cmocka_unit_test(bad_fields),
        cmocka_unit_test(cut_short_or_no_archive),
        cmocka_unit_test(two_end_records),
        cmocka_unit_test(bytes_that_belong_to_no_member),
        cmocka_unit_test(bytes_behind_the_end_record_are_ignored),
        cmocka_unit_test(several_archives),
        cmocka_unit_test(names_are_texts),
        cmocka_unit_test(folders_are_left_out),
        cmocka_unit_test(torch_rules),
        cmocka_unit_test(zip64_fields),
        cmocka_unit_test(descriptors_in_all_forms),
        cmocka_unit_test(unpacked_members_are_what_they_say),
        cmocka_unit_test(deflated_bytes_end_where_the_member_does),
        cmocka_unit_test(stored_crc_is_not_checked),
        cmocka_unit_test(local_headers_count_against_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
