/* Wrong chunk tables of HDF5. h5py wrote the files (tests/data/make_hdf5.py: chunk_files), each with one dataset "x".
 * A test changes a field at the place that the HDF5 File Format Specification (version 3) gives it, and corrects the
 * checksum, so that only the reader's other checks can find the fault. */
#include "parser/hdf5/hdf5.h"
#include "parser/hdf5/hdf5_chunk_list.h"
#include "storage/decoded.h"

#include "tests/unit/parser/format_fixture.h"

enum { FILE_MAX_BYTES = 16384, SMALL_BYTES = 2097152 };

/* ---- files that are changed ---------------------------------------------------------------------------- */

static struct sample file_load(const char *name)
{
    size_t len;
    char *read = read_file("hdf5", name, ".h5", &len);
    struct sample file = {.format = &td_format_hdf5, .name = name, .len = len};
    assert_true(len < FILE_MAX_BYTES);
    file.bytes = __real_malloc(FILE_MAX_BYTES); /* room for bytes that a test adds */
    assert_non_null(file.bytes);
    memcpy(file.bytes, read, len);
    __real_free(read);
    return file;
}

/* Returns where structure number `nth`, from 0, with this signature begins. Of trees of version 1 only those of chunks
 * count: their fifth byte, the type, is 1. */
static size_t find_structure(const struct sample *file, const char *letters, unsigned nth)
{
    const uint8_t *p = file->bytes;
    for (size_t at = 0; at + 5 <= file->len; at++)
        if (memcmp(p + at, letters, 4) == 0 && (strcmp(letters, "TREE") != 0 || p[at + 4] == 1) && nth-- == 0)
            return at;
    fail_msg("%s: no further %s", file->name, letters);
    return 0;
}

static void put(struct sample *file, size_t at, unsigned width, uint64_t value)
{
    assert_true(at + width <= file->len);
    for (unsigned i = 0; i < width; i++)
        ((uint8_t *)file->bytes)[at + i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get(const struct sample *file, size_t at, unsigned width)
{
    uint64_t value = 0;
    for (unsigned i = width; i-- > 0;)
        value = value << 8 | ((const uint8_t *)file->bytes)[at + i];
    return value;
}

/* Returns Jenkins' lookup3 (hashlittle), as in his public-domain code. */
static uint32_t lookup3(const uint8_t *k, size_t len)
{
#define ROT(x, n) ((x) << (n) | (x) >> (32 - (n)))
    uint32_t a = 0xdeadbeef + (uint32_t)len;
    uint32_t b = a;
    uint32_t c = a;
    uint8_t last[12] = {0};
    uint32_t w[3];
    for (; len > 12; k += 12, len -= 12) {
        memcpy(w, k, 12);
        a += w[0], b += w[1], c += w[2];
        a -= c, a ^= ROT(c, 4), c += b;
        b -= a, b ^= ROT(a, 6), a += c;
        c -= b, c ^= ROT(b, 8), b += a;
        a -= c, a ^= ROT(c, 16), c += b;
        b -= a, b ^= ROT(a, 19), a += c;
        c -= b, c ^= ROT(b, 4), b += a;
    }
    memcpy(last, k, len);
    memcpy(w, last, 12);
    a += w[0], b += w[1], c += w[2];
    c ^= b, c -= ROT(b, 14);
    a ^= c, a -= ROT(c, 11);
    b ^= a, b -= ROT(a, 25);
    c ^= b, c -= ROT(b, 16);
    a ^= c, a -= ROT(c, 4);
    b ^= a, b -= ROT(a, 14);
    c ^= b, c -= ROT(b, 24);
    return c;
#undef ROT
}

/* Writes the checksum of the len bytes at `at` after them. */
static void sum_again(struct sample *file, size_t at, size_t len)
{
    put(file, at + len, 4, lookup3((const uint8_t *)file->bytes + at, len));
}

/* Returns the length of the first chunk of an object header of version 2, without the checksum. */
static size_t header_len(const struct sample *file, size_t at)
{
    unsigned flags = (unsigned)get(file, at + 5, 1);
    size_t prefix = 6U + ((flags & 0x20) != 0 ? 16U : 0U) + ((flags & 0x10) != 0 ? 4U : 0U);
    unsigned width = 1U << (flags & 3);
    return prefix + width + (size_t)get(file, at + prefix, width);
}

/* ---- the outcome --------------------------------------------------------------------------------------- */

static void parse(const struct sample *file, struct parsed *p)
{
    parse_exact(file->format, file->bytes, file->len, p);
}

static const struct td_tensor *only_tensor(const struct parsed *p)
{
    assert_int_equal(p->manifest.tensor_count, 1);
    assert_string_equal(p->manifest.tensors[0].name, "x");
    return &p->manifest.tensors[0];
}

/* Checks that the file is accepted and its tensor is listed with a reason that contains `says`. */
static void check_reason(const struct sample *file, const char *says, const char *what)
{
    struct parsed p;
    parse(file, &p);
    CHECK(p.ok, "%s: %s: %s", file->name, what, p.err.message);
    const struct td_tensor *t = only_tensor(&p);
    assert_non_null(t->reason);
    assert_null(t->coding);
    CHECK(strstr(t->reason, says) != NULL, "%s: %s: \"%s\", not \"%s\"", file->name, what, t->reason, says);
    CHECK(t->offset == 0 && td_utf8_valid(t->reason, strlen(t->reason)), "%s: %s", file->name, what);
    CHECK(p.memory.peak_bytes < SMALL_BYTES, "%s: %s: %zu bytes", file->name, what, p.memory.peak_bytes);
    parsed_fini(&p);
}

static void check_refused(const struct sample *file, const char *says, const char *what)
{
    struct parsed p;
    parse(file, &p);
    check_refusal(&p, TD_INVALID_ARGUMENT, file->len, says, what);
    parsed_fini(&p);
}

static void release(void *context)
{
    (void)context;
}

/* Decodes the tensor to *out. Returns false and sets *err when that fails. The caller frees *out in both cases. */
static bool decode(const struct sample *file, uint8_t **out, size_t *len, struct td_error *err)
{
    static const uint64_t file_number = 1;
    struct td_decoded_owner owner = {.release = release};
    struct td_decode_cache cache;
    struct td_blob *source;
    struct td_blob *blob;
    struct parsed p;
    parse(file, &p);
    CHECK(p.ok, "%s: %s", file->name, p.err.message);
    const struct td_tensor *t = only_tensor(&p);
    CHECK(t->coding != NULL, "%s: %s", file->name, t->reason);
    char *copy = malloc(file->len + 1);
    assert_non_null(copy);
    memcpy(copy, file->bytes, file->len);
    assert_true(td_blob_from_heap(copy, file->len, &source, NULL));
    assert_true(td_decode_cache_init(&cache, TD_DECODE_MEMORY_BYTES, NULL));
    assert_true(td_blob_decoded(source, t->coding, file_number, &cache, &owner, &blob, NULL));
    *len = (size_t)t->nbytes;
    *out = malloc(*len + 1);
    assert_non_null(*out);
    td_error_init(err);
    bool ok = td_blob_read(blob, 0, *out, *len, err);
    td_blob_unref(blob);
    td_blob_unref(source);
    td_decode_cache_fini(&cache);
    td_manifest_fini(&p.manifest);
    return ok;
}

/* Checks that element i of 4 bytes is i, except for zeros in the columns [begin, end) of the rows [top, bottom). */
static void check_matrix(const struct sample *file, uint32_t top, uint32_t bottom, uint32_t begin, uint32_t end)
{
    uint8_t *bytes;
    size_t len;
    struct td_error err;
    bool ok = decode(file, &bytes, &len, &err);
    CHECK(ok, "%s: %s", file->name, err.message);
    assert_int_equal(len, 240);
    const uint8_t *p = bytes;
    for (uint32_t i = 0; i < 60; i++, p += 4) {
        bool hole = i / 10 >= top && i / 10 < bottom && i % 10 >= begin && i % 10 < end;
        uint32_t value = (uint32_t)p[0] | (uint32_t)p[1] << 8;
        CHECK(value == (hole ? 0 : i), "%s: element %u is %u", file->name, i, value);
    }
    free(bytes);
}

static void check_damaged(const struct sample *file, const char *says)
{
    uint8_t *bytes;
    size_t len;
    struct td_error err;
    bool ok = decode(file, &bytes, &len, &err);
    free(bytes);
    CHECK(!ok && err.code == TD_FAILED_PRECONDITION, "%s: %s", file->name, ok ? "decoded" : err.message);
    CHECK(strstr(err.message, says) != NULL, "%s: \"%s\", not \"%s\"", file->name, err.message, says);
}

/* ---- one field at a time ------------------------------------------------------------------------------- */

#define ITSELF (UINT64_MAX - 1) /* the structure's own address */
#define NEXT (UINT64_MAX - 2)   /* the address of the next structure with this signature */
#define OUTSIDE (UINT64_C(1) << 40)

struct lie {
    const char *file, *letters;
    unsigned nth;
    size_t at;
    unsigned width;
    uint64_t value;
    size_t summed; /* bytes that the checksum to correct covers; 0: none is corrected */
    const char *says;
};

static const struct lie lies[] = {
    /* B-tree of version 1: a node's prefix has 24 bytes, a key of rank 2 with its child 40: size, mask, three offsets
     */
    {"chunks_tree", "TREE", 0, 24 + 40 + 16, 8, 0, 0, "one chunk occurs twice"},
    {"chunks_tree", "TREE", 0, 24 + 8, 8, 1, 0, "a chunk does not begin on the grid of chunks"},
    {"chunks_tree", "TREE", 0, 24 + 16, 8, 3, 0, "a chunk does not begin on the grid of chunks"},
    {"chunks_tree", "TREE", 0, 24, 4, UINT32_MAX, 0, "of 32 bytes is stored in 4294967295"},
    {"chunks_tree", "TREE", 0, 24, 4, 32 + 8 + 1025, 0, "of 32 bytes is stored in 1065"},
    {"chunks_tree", "TREE", 0, 24 + 4, 4, 7, 0, "of 32 bytes is stored in"}, /* not filtered, but of another size */
    {"chunks_tree", "TREE", 0, 24 + 32, 8, OUTSIDE, 0, "leaves the file"},
    {"chunks_tree", "TREE", 0, 24 + 32, 8, 4200, 0, "leaves the file"},
    {"chunks_tree", "TREE", 0, 24 + 32, 8, UINT64_MAX - 8, 0, "leaves the file"},
    {"chunks_tree", "TREE", 0, 4, 1, 0, 0, "a B-tree of another type"},
    {"chunks_tree", "TREE", 0, 5, 1, 1, 0, "B-tree node of chunks at address"}, /* chunks are read as nodes */
    {"chunks_tree", "TREE", 0, 6, 2, UINT16_MAX, 0, "leaves the file"},
    {"chunks_tree_deep", "TREE", 0, 24 + 24, 8, ITSELF, 0, "used twice: a cycle"},
    {"chunks_tree_deep", "TREE", 0, 24 + 24, 8, NEXT, 0, "used twice: a cycle, or two owners"},
    {"chunks_tree_deep", "TREE", 0, 24 + 24, 8, OUTSIDE, 0, "past the end of the file"},
    {"chunks_tree_deep", "TREE", 0, 5, 1, 2, 0, "level 0 where 1 would be right"},
    {"chunks_tree_deep", "TREE", 1, 5, 1, 1, 0, "level 1 where 0 would be right"},
    /* fixed array: a header, and a data block whose prefix has 14 bytes and an entry 14: address, size, mask */
    {"chunks_fixed", "FAHD", 0, 5, 1, 0, 24, "an unknown header"},
    {"chunks_fixed", "FAHD", 0, 6, 1, 255, 24, "entries of 255 bytes"},
    {"chunks_fixed", "FAHD", 0, 6, 1, 12, 24, "entries of 12 bytes"},
    {"chunks_fixed", "FAHD", 0, 7, 1, 255, 24, "pages of 2^255 entries"},
    {"chunks_fixed", "FAHD", 0, 8, 8, UINT64_C(1) << 63, 24, "leaves the file"},
    {"chunks_fixed", "FAHD", 0, 8, 8, 1000, 24, "leaves the file"},
    {"chunks_fixed", "FAHD", 0, 16, 8, ITSELF, 24, "used twice"},
    {"chunks_fixed", "FAHD", 0, 16, 8, OUTSIDE, 24, "past the end of the file"},
    {"chunks_fixed", "FAHD", 0, 16, 8, 100, 0, "checksum"},
    {"chunks_fixed", "FADB", 0, 6, 8, 48, 140, "no signature \"FADB\" of this array"}, /* it names another header */
    {"chunks_fixed", "FADB", 0, 14, 8, OUTSIDE, 140, "leaves the file"},
    {"chunks_fixed", "FADB", 0, 22, 2, UINT16_MAX, 140, "of 32 bytes is stored in 65535"},
    {"chunks_fixed", "FADB", 0, 24, 4, 7, 140, "of 32 bytes is stored in"},
    {"chunks_fixed_paged", "FAHD", 0, 7, 1, 0, 24, "checksum"}, /* pages of another size */
    {"chunks_fixed_paged", "FAHD", 0, 8, 8, UINT64_C(1) << 62, 24, "leaves the file"},
    {"chunks_fixed_paged", "FADB", 0, 14 + 5, 8, OUTSIDE, 0, "page of an array of chunks: its checksum"},
    {"chunks_fixed_paged", "FADB", 0, 14 + 5, 8, OUTSIDE, 19 + 1024 * 8, "checksum"},
    /* extensible array: header, index block (4 entries, 6 data blocks, 25 super blocks), data blocks, super blocks */
    {"chunks_extensible", "EAHD", 0, 7, 1, 200, 68, "impossible sizes"},
    {"chunks_extensible", "EAHD", 0, 7, 1, 0, 68, "impossible sizes"},
    {"chunks_extensible", "EAHD", 0, 9, 1, 0, 68, "impossible sizes"},
    {"chunks_extensible", "EAHD", 0, 9, 1, 3, 68, "impossible sizes"},
    {"chunks_extensible", "EAHD", 0, 10, 1, 0, 68, "impossible sizes"},
    {"chunks_extensible", "EAHD", 0, 11, 1, 255, 68, "impossible sizes"},
    {"chunks_extensible", "EAHD", 0, 6, 1, 9, 68, "entries of 9 bytes"},
    {"chunks_extensible", "EAHD", 0, 60, 8, ITSELF, 68, "used twice"},
    {"chunks_extensible", "EAHD", 0, 60, 8, OUTSIDE, 68, "past the end of the file"},
    {"chunks_extensible", "EAIB", 0, 14, 8, OUTSIDE, 294, "leaves the file"},
    {"chunks_extensible", "EAIB", 0, 46, 8, ITSELF, 294, "used twice"},
    {"chunks_extensible", "EAIB", 0, 54, 8, OUTSIDE, 294, "past the end of the file"},
    {"chunks_extensible", "EAIB", 0, 94, 8, ITSELF, 294, "used twice"},
    {"chunks_extensible", "EAIB", 0, 102, 8, 100, 294, "no signature \"EASB\" of this array"},
    {"chunks_extensible", "EAIB", 0, 102 + 23 * 8, 8, 100, 294, "do not fit into the file"}, /* the last */
    {"chunks_extensible", "EADB", 0, 18, 8, OUTSIDE, 146, "leaves the file"},
    {"chunks_extensible", "EADB", 1, 6, 8, 48, 274, "no signature \"EADB\" of this array"},
    {"chunks_extensible", "EASB", 0, 18, 8, ITSELF, 50, "used twice"},
    {"chunks_extensible", "EASB", 0, 26, 8, OUTSIDE, 50, "past the end of the file"},
    /* B-tree of version 2: header; nodes with a prefix of 6 bytes, records of address, size, mask, coordinates */
    {"chunks_tree_2", "BTHD", 0, 5, 1, 10, 34, "no signature \"BTHD\" with type 11"},
    {"chunks_tree_2", "BTHD", 0, 6, 4, 0, 34, "nodes of 0 bytes"},
    {"chunks_tree_2", "BTHD", 0, 10, 2, 0, 34, "records of 0"},
    {"chunks_tree_2", "BTHD", 0, 10, 2, 25, 34, "checksum"}, /* nodes have another length */
    {"chunks_tree_2", "BTHD", 0, 12, 2, UINT16_MAX, 34, "65535 levels"},
    {"chunks_tree_2", "BTHD", 0, 16, 8, ITSELF, 34, "used twice"},
    {"chunks_tree_2", "BTHD", 0, 16, 8, OUTSIDE, 34, "past the end of the file"},
    {"chunks_tree_2", "BTHD", 0, 24, 2, UINT16_MAX, 34, "65535 records do not fit"},
    {"chunks_tree_2", "BTLF", 0, 6, 8, OUTSIDE, 276, "leaves the file"},
    {"chunks_tree_2", "BTLF", 0, 14, 2, UINT16_MAX, 276, "of 32 bytes is stored in 65535"},
    {"chunks_tree_2", "BTLF", 0, 6 + 30 + 22, 8, 0, 276, "one chunk occurs twice"},
    {"chunks_tree_2_deep", "BTIN", 0, 6 + 24, 8, ITSELF, 48, "used twice: a cycle"},
    {"chunks_tree_2_deep", "BTIN", 0, 6 + 24 + 9, 8, ITSELF, 48, "used twice: a cycle"},
    {"chunks_tree_2_deep", "BTIN", 0, 6 + 24, 8, OUTSIDE, 48, "past the end of the file"},
    {"chunks_tree_2_deep", "BTIN", 0, 6 + 24 + 8, 1, 255, 48, "255 records do not fit"},
};

static void tell(const struct lie *lie)
{
    struct sample file = file_load(lie->file);
    char what[64];
    size_t at = find_structure(&file, lie->letters, lie->nth);
    uint64_t value = lie->value == ITSELF ? at
                     : lie->value == NEXT ? find_structure(&file, lie->letters, lie->nth + 1)
                                          : lie->value;
    put(&file, at + lie->at, lie->width, value);
    if (lie->summed > 0)
        sum_again(&file, at, lie->summed);
    (void)snprintf(what, sizeof what, "%s %u, byte %zu", lie->letters, lie->nth, lie->at);
    check_reason(&file, lie->says, what);
    __real_free(file.bytes);
}

/* shows: security.md content-hdf5-indexes */
static void indexes_that_lie(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(lies); i++)
        tell(&lies[i]);
}

/* The checksums that this test computes are those that the writer wrote. */
static void checksums_are_the_writers(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(lies); i++) {
        struct sample file = file_load(lies[i].file);
        size_t at = find_structure(&file, lies[i].letters, lies[i].nth);
        if (lies[i].summed > 0 && lies[i].summed < 1000)
            CHECK(get(&file, at + lies[i].summed, 4) == lookup3((uint8_t *)file.bytes + at, lies[i].summed),
                  "%s of %s: %zu bytes", lies[i].letters, lies[i].file, lies[i].summed);
        __real_free(file.bytes);
    }
}

/* Chunks outside the shape are ignored, and missing chunks have the fill value, as with libhdf5. */
/* shows: security.md content-hdf5-indexes */
static void chunks_outside_of_the_array(void **state)
{
    (void)state;
    struct sample file = file_load("chunks_tree");
    size_t tree = find_structure(&file, "TREE", 0);
    check_matrix(&file, 0, 0, 0, 0);
    put(&file, tree + 24 + 8, 8, 2000);
    check_matrix(&file, 0, 2, 0, 4);
    put(&file, tree + 24 + 8, 8, UINT64_MAX - 1);
    check_matrix(&file, 0, 2, 0, 4);
    put(&file, tree + 24 + 8, 8, 0);
    put(&file, tree + 24 + 16, 8, 12);
    check_matrix(&file, 0, 2, 0, 4);
    put(&file, tree + 24 + 16, 8, UINT64_MAX - 3);
    check_matrix(&file, 0, 2, 0, 4);
    __real_free(file.bytes);
    file = file_load("chunks_tree_2");
    size_t leaf = find_structure(&file, "BTLF", 0);
    put(&file, leaf + 6 + 14, 8, UINT64_MAX);
    sum_again(&file, leaf, 276);
    check_matrix(&file, 0, 2, 0, 4);
    __real_free(file.bytes);
}

/* ---- layouts ------------------------------------------------------------------------------------------- */

/* Returns the offset in the layout message of "x", in an old header, after its version and class. */
static size_t old_layout(const struct sample *file)
{
    uint8_t text[11] = {3, 2, 3};
    size_t tree = find_structure(file, "TREE", 0);
    for (unsigned i = 0; i < 8; i++)
        text[3 + i] = (uint8_t)(tree >> 8 * i);
    const uint8_t *p = memmem(file->bytes, file->len, text, sizeof text);
    assert_non_null(p);
    return (size_t)(p - (const uint8_t *)file->bytes) + 2;
}

/* shows: security.md content-hdf5-indexes */
static void layouts_of_another_rank(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        unsigned width;
        uint64_t value;
        const char *says; /* part of the reason; NULL: the file is refused */
    } rows[] = {
        {0, 1, 0, NULL},
        {0, 1, 1, NULL},
        {0, 1, 2, "do not fit its shape or type"},
        {0, 1, 4, NULL}, /* past the end of its message */
        {0, 1, 34, NULL},
        {0, 1, 255, NULL},
        {1, 8, OUTSIDE, "past the end of the file"},
        {1, 8, 0, "no signature \"TREE\""},
        {9, 4, 0, "do not fit its shape or type"},
        {9, 4, UINT32_MAX, "filtered chunks of more than 64 MiB"},
        {9, 8, UINT64_MAX, "filtered chunks of more than 64 MiB"},
        {9, 4, 3, "a chunk does not begin on the grid of chunks"},
        {17, 4, 8, "do not fit its shape or type"},
        {17, 4, 0, "do not fit its shape or type"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct sample file = file_load("chunks_tree");
        char what[64];
        put(&file, old_layout(&file) + rows[i].at, rows[i].width, rows[i].value);
        (void)snprintf(what, sizeof what, "layout, byte %zu: %" PRIu64, rows[i].at, rows[i].value);
        if (rows[i].says != NULL)
            check_reason(&file, rows[i].says, what);
        else
            check_refused(&file, "layout: its message is too short, or has", what);
        __real_free(file.bytes);
    }
}

/* Positions of a layout message of version 4 and of its object header. */
struct place {
    size_t header, layout;
};

static struct place new_layout(const struct sample *file)
{
    struct place place = {.header = find_structure(file, "OHDR", 1)};
    const uint8_t *begin = (const uint8_t *)file->bytes + place.header;
    const uint8_t *end = begin + header_len(file, place.header);
    for (const uint8_t *p = begin; p + 8 <= end; p++) /* version, class, flags, rank, width of the sizes */
        if (p[0] == 4 && p[1] == 2 && p[3] <= 3 && p[4] == 1 && p[-4] == 8) {
            place.layout = (size_t)(p - (const uint8_t *)file->bytes);
            return place;
        }
    fail_msg("%s has no layout", file->name);
    return place;
}

/* shows: security.md content-hdf5-indexes */
static void layouts_without_an_index(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        size_t at;
        unsigned width;
        uint64_t value;
        const char *says;
    } rows[] = {
        /* version, class, flags, rank, width, sizes, kind of index; then the size, the mask and the address */
        {"chunks_single", 9, 8, UINT64_MAX, "of 240 bytes is stored in 18446744073709551615"},
        {"chunks_single", 9, 8, UINT64_C(1) << 32, "is stored in 4294967296"},
        {"chunks_single", 17, 4, 1, "is stored in"},
        {"chunks_single", 21, 8, OUTSIDE, "leaves the file"},
        {"chunks_single", 21, 8, UINT64_MAX - 1, "leaves the file"},
        {"chunks_single", 5, 1, 5, "where the array has several"},
        {"chunks_single", 5, 1, 0, "do not fit its shape or type"},
        {"chunks_single", 8, 1, 0, "an index of an unknown kind"},
        {"chunks_single", 8, 1, 6, "an index of an unknown kind"},
        {"chunks_implicit", 9, 8, OUTSIDE, "leaves the file"},
        {"chunks_implicit", 9, 8, 700, "leaves the file"}, /* the last chunks */
        {"chunks_implicit", 9, 8, UINT64_MAX - 40, "leaves the file"},
        {"chunks_implicit", 5, 1, 255, "leaves the file"},
        {"chunks_implicit", 8, 1, 1, "where the array has several"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct sample file = file_load(rows[i].file);
        struct place place = new_layout(&file);
        char what[64];
        put(&file, place.layout + rows[i].at, rows[i].width, rows[i].value);
        sum_again(&file, place.header, header_len(&file, place.header));
        (void)snprintf(what, sizeof what, "layout, byte %zu: %" PRIu64, rows[i].at, rows[i].value);
        check_reason(&file, rows[i].says, what);
        __real_free(file.bytes);
    }
}

/* Reads the fixture, followed by endless zeros. */
static bool read_long(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    const struct sample *file = *(const struct sample *const *)context;
    (void)err;
    for (size_t i = 0; i < len; i++, off++)
        ((uint8_t *)out)[i] = off < file->len ? ((const uint8_t *)file->bytes)[off] : 0;
    return true;
}

/* Implicit chunks need no index, so a file can claim as many as its length allows. */
/* shows: security.md content-hdf5-indexes */
static void chunks_are_counted(void **state)
{
    (void)state;
    enum { DIMENSION = 1 << 23 };
    struct sample file = file_load("chunks_implicit");
    struct place place = new_layout(&file);
    static const uint8_t sizes[] = {6, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0};
    uint8_t *dims = memmem(file.bytes, file.len, sizes, sizeof sizes);
    assert_non_null(dims);
    size_t at = (size_t)(dims - (uint8_t *)file.bytes);
    put(&file, at, 8, DIMENSION);
    if (get(&file, at + 16, 8) == 6) /* the maximum size */
        put(&file, at + 16, 8, DIMENSION);
    put(&file, place.layout + 5, 2, 0x0101); /* chunks of one element */
    sum_again(&file, place.header, header_len(&file, place.header));
    const struct sample *context = &file;
    struct td_input input = {.size_bytes = UINT64_C(1) << 40, .read = read_long, .context = &context};
    struct td_limits limits = td_limits_default();
    struct parsed p;
    parse_input(&td_format_hdf5, &input, &limits, &p);
    CHECK(p.ok, "%s", p.err.message);
    const char *reason = only_tensor(&p)->reason;
    assert_non_null(reason);
    CHECK(strstr(reason, "there are more than 4194304 chunks") != NULL, "%s", reason);
    parsed_fini(&p);
    limits.max_memory_bytes = SMALL_BYTES / 2; /* the list counts as the file's memory */
    parse_input(&td_format_hdf5, &input, &limits, &p);
    assert_false(p.ok);
    assert_int_equal(p.err.code, TD_RESOURCE_EXHAUSTED);
    CHECK(p.memory.peak_bytes < SMALL_BYTES, "%zu bytes", p.memory.peak_bytes);
    parsed_fini(&p);
    __real_free(file.bytes);
}

static uint64_t added; /* calls of td_h5_add_chunk */

bool __real_td_h5_add_chunk(struct td_h5_chunk_reader *r, const uint64_t *scaled, uint64_t addr, uint64_t bytes,
                            uint32_t skipped);
bool __wrap_td_h5_add_chunk(struct td_h5_chunk_reader *r, const uint64_t *scaled, uint64_t addr, uint64_t bytes,
                            uint32_t skipped);
bool __wrap_td_h5_add_chunk(struct td_h5_chunk_reader *r, const uint64_t *scaled, uint64_t addr, uint64_t bytes,
                            uint32_t skipped)
{
    added++;
    return __real_td_h5_add_chunk(r, scaled, addr, bytes, skipped);
}

/* Sixteen datasets claim in 300 bytes each a few more chunks than the file has room for. All datasets together may
 * visit as many chunks as the read budget of the file's structure has room for addresses. */
/* shows: security.md content-hdf5-many-chunks */
static void chunks_of_all_datasets_are_bounded(void **state)
{
    (void)state;
    enum { DATASETS = 16, SIZE_BYTES = 1 << 20, DIMENSION = 300000, ELEM_BYTES = 4, ADDRESS_BYTES = 8 };
    enum {
        BUDGET_BYTES = 16 * SIZE_BYTES + 1024 * 1024
    }; /* BUDGET_TIMES and BUDGET_BYTES_MIN of parser/hdf5/hdf5_file.c */
    static const uint8_t size[] = {2, 0, 0, 0, 0, 0, 0, 0};
    struct sample file = file_load("chunks_implicit_many");
    for (unsigned i = 0; i < DATASETS; i++) {
        size_t header = find_structure(&file, "OHDR", i + 1); /* after the root's */
        uint8_t *begin = (uint8_t *)file.bytes + header;
        uint8_t *dim = memmem(begin, header_len(&file, header), size, sizeof size);
        assert_non_null(dim);
        put(&file, header + (size_t)(dim - begin), 8, DIMENSION);
        if (memcmp(dim + 8, size, sizeof size) == 0) /* the maximum size */
            put(&file, header + (size_t)(dim - begin) + 8, 8, DIMENSION);
        sum_again(&file, header, header_len(&file, header));
    }
    const struct sample *context = &file;
    struct td_input input = {.size_bytes = SIZE_BYTES, .read = read_long, .context = &context};
    struct td_limits limits = td_limits_default();
    struct parsed p;
    added = 0;
    parse_input(&td_format_hdf5, &input, &limits, &p);
    CHECK(p.ok && p.manifest.tensor_count == DATASETS, "%s", p.err.message);
    CHECK(strstr(p.manifest.tensors[0].reason, "leaves the file") != NULL, "%s", p.manifest.tensors[0].reason);
    CHECK(strstr(p.manifest.tensors[DATASETS - 1].reason, "than are read") != NULL, "%s",
          p.manifest.tensors[DATASETS - 1].reason);
    CHECK(added >= SIZE_BYTES / ELEM_BYTES / 2 && added <= BUDGET_BYTES / ADDRESS_BYTES, "%" PRIu64, added);
    parsed_fini(&p);
    __real_free(file.bytes);
}

/* ---- filters ------------------------------------------------------------------------------------------- */

/* Returns where the description of a filter begins: number, length of the name, flags, number of values, each in 2
 * bytes; then the name in 8 or 16 bytes, and the values. */
static size_t filter_named(const struct sample *file, const char *name)
{
    const uint8_t *p = memmem(file->bytes, file->len, name, strlen(name));
    assert_non_null(p);
    return (size_t)(p - (const uint8_t *)file->bytes) - 8;
}

enum { FILTER_SHUFFLE = 2, FILTER_DEFLATE = 1 };

/* shows: security.md content-hdf5-filters */
static void filters_with_wrong_parameters(void **state)
{
    (void)state;
    static const char text[] = "compressed (shuffle, gzip, fletcher32)";
    struct sample file = file_load("chunks_tree");
    size_t shuffle = filter_named(&file, "shuffle");
    size_t deflate = filter_named(&file, "deflate");
    assert_int_equal(get(&file, shuffle, 2), FILTER_SHUFFLE);
    put(&file, shuffle + 16, 4, 0); /* libhdf5: "invalid shuffle parameters" */
    check_reason(&file, text, "shuffle by 0 bytes");
    put(&file, shuffle + 16, 4, 4);
    put(&file, shuffle + 6, 2, 0); /* likewise */
    check_reason(&file, "(", "shuffle without a value");
    put(&file, shuffle + 6, 2, UINT16_MAX);
    check_refused(&file, "filters: version 1 is unknown, or the message is too short", "values past the end");
    put(&file, shuffle + 6, 2, 1);
    put(&file, shuffle - 7, 1, 9); /* filters */
    check_refused(&file, "filters: version 1 is unknown, or the message is too short", "more than there are");
    put(&file, shuffle - 7, 1, 255);
    check_refused(&file, "filters: version 1 is unknown, or the message is too short", "more than there may be");
    put(&file, shuffle - 7, 1, 3);
    put(&file, shuffle, 2, FILTER_DEFLATE);
    check_reason(&file, "compressed (gzip, gzip, fletcher32)", "deflated twice");
    put(&file, shuffle, 2, FILTER_SHUFFLE);
    put(&file, deflate + 16, 4, 9);
    check_matrix(&file, 0, 0, 0, 0);
    put(&file, deflate + 16, 4, 10); /* libhdf5: "invalid deflate aggression level" */
    check_reason(&file, text, "an unknown level");
    __real_free(file.bytes);
}

/* libhdf5 leaves bytes unshuffled if an element would be larger than half of them. */
/* shows: security.md content-hdf5-filters */
static void shuffled_by_more_than_there_is(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {17, 33, UINT32_MAX};
    struct sample file = file_load("chunks_tree");
    size_t shuffle = filter_named(&file, "shuffle");
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        uint8_t *bytes;
        size_t len;
        struct td_error err;
        put(&file, shuffle + 16, 4, sizes[i]);
        assert_true(decode(&file, &bytes, &len, &err));
        /* the low bytes of 0, 1, 2, 3 and 10, 11, 12, 13 come first, then zeros */
        assert_memory_equal(bytes, "\0\1\2\3\12\13\14\15\0\0\0\0\0\0\0\0", 16);
        free(bytes);
    }
    __real_free(file.bytes);
}

/* Replaces the first chunk by these bytes, to which the filters in `mask` were not applied. */
static void replace_chunk(struct sample *file, const void *bytes, size_t len, uint32_t mask)
{
    size_t tree = find_structure(file, "TREE", 0);
    assert_true(len <= FILE_MAX_BYTES - file->len);
    memcpy((uint8_t *)file->bytes + file->len, bytes, len);
    put(file, tree + 24, 4, len);
    put(file, tree + 24 + 4, 4, mask);
    put(file, tree + 24 + 32, 8, file->len);
    file->len += len;
}

static void check_stream(size_t raw_len, int keep, const char *says)
{
    enum { SKIP_ALL_BUT_GZIP = 5 };
    struct sample file = file_load("chunks_tree");
    uint8_t *raw = __real_malloc(raw_len + 1);
    uint8_t stored[2048];
    uLongf stored_len = sizeof stored;
    assert_non_null(raw);
    memset(raw, 0, raw_len + 1);
    assert_int_equal(compress2(stored, &stored_len, raw, raw_len, 9), Z_OK);
    replace_chunk(&file, stored, stored_len - (keep < 0 ? (size_t)-keep : 0), SKIP_ALL_BUT_GZIP);
    if (says == NULL) {
        check_matrix(&file, 0, 2, 0, 4);
    } else {
        alloc_count_start();
        check_damaged(&file, says);
        CHECK(alloc_count_get().peak_bytes < SMALL_BYTES, "%zu bytes", alloc_count_get().peak_bytes);
    }
    __real_free(raw);
    __real_free(file.bytes);
}

/* shows: security.md content-hdf5-filters */
static void chunks_that_unpack_to_another_size(void **state)
{
    (void)state;
    check_stream(32, 0, NULL);
    check_stream(33, 0, "do not unpack to its size");
    check_stream(31, 0, "do not unpack to its size");
    check_stream(0, 0, "do not unpack to its size");
    check_stream(32, -1, "do not unpack to its size");     /* the last byte is missing */
    check_stream(1000000, 0, "do not unpack to its size"); /* 994 bytes unpack to a megabyte */
}

/* shows: security.md content-hdf5-filters */
static void chunks_with_a_wrong_checksum(void **state)
{
    (void)state;
    enum { SKIP_ALL_BUT_FLETCHER = 3, SKIP_ALL_BUT_SHUFFLE = 6 };
    static const uint8_t zeros[40];
    for (size_t len = 1; len <= sizeof zeros; len++) {
        struct sample file = file_load("chunks_tree");
        replace_chunk(&file, zeros, len, SKIP_ALL_BUT_FLETCHER);
        if (len == 32 + 4)
            check_matrix(&file, 0, 2, 0, 4); /* the sum of zeros is zero */
        else
            check_damaged(&file, len < 4 ? "shorter than its checksum" : "another size than its shape");
        replace_chunk(&file, zeros, len, SKIP_ALL_BUT_SHUFFLE);
        if (len == 32)
            check_matrix(&file, 0, 2, 0, 4);
        else
            check_damaged(&file, "another size than its shape");
        __real_free(file.bytes);
    }
    struct sample file = file_load("chunks_tree");
    uint8_t bytes[36] = {1};
    replace_chunk(&file, bytes, sizeof bytes, SKIP_ALL_BUT_FLETCHER);
    check_damaged(&file, "fletcher32 checksum");
    __real_free(file.bytes);
}

/* ---- anything ------------------------------------------------------------------------------------------ */

static bool is_unplaced(const struct td_error *err)
{
    return err->code == TD_RESOURCE_EXHAUSTED;
}

static const char *const files[] = {"chunks_tree",        "chunks_tree_deep",  "chunks_fixed",
                                    "chunks_fixed_paged", "chunks_extensible", "chunks_tree_2",
                                    "chunks_tree_2_deep", "chunks_single",     "chunks_implicit"};

/* No change of a byte of the first structures gives a tensor without a reason that leaves the file. */
/* shows: security.md content-hdf5-indexes */
static void every_byte_changed(void **state)
{
    (void)state;
    static const uint8_t by[] = {0x01, 0xFF};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct sample file = file_load(files[i]);
        size_t begin = file.len > 1300 ? 400 : 0;
        check_each_flip(
            &file,
            (struct changes){
                .begin = begin, .step = SANITIZED ? 7 : 1, .by = by, .count = sizeof by, .unplaced = is_unplaced});
    }
}

static void every_allocation_and_read_fails(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct sample file = file_load(files[i]);
        assert_true(check_each_allocation(&file, TD_OK) >= 10);
        assert_true(check_each_read(&file) >= 2);
        __real_free(file.bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_the_writers),          cmocka_unit_test(indexes_that_lie),
        cmocka_unit_test(chunks_outside_of_the_array),        cmocka_unit_test(layouts_of_another_rank),
        cmocka_unit_test(layouts_without_an_index),           cmocka_unit_test(chunks_are_counted),
        cmocka_unit_test(chunks_of_all_datasets_are_bounded), cmocka_unit_test(filters_with_wrong_parameters),
        cmocka_unit_test(shuffled_by_more_than_there_is),     cmocka_unit_test(chunks_that_unpack_to_another_size),
        cmocka_unit_test(chunks_with_a_wrong_checksum),       cmocka_unit_test(every_byte_changed),
        cmocka_unit_test(every_allocation_and_read_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
