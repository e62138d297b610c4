/* The input is a zip archive. An accepted archive is walked again from its first byte, by its local headers alone, and
 * must be the same archive. The input is then parsed as an .npz. */
#include "parser/zip/zip.h"

#include "parser/npz.h"
#include "parser/zip/zip_unpack.h"
#include "tests/fuzz/fuzz_manifest.h"

enum { LOAD_LIMIT = 1 << 20 };

static void check_entry(const struct td_zip *zip, size_t i, const struct td_input *input)
{
    const struct td_zip_entry *e = &zip->entries[i];
    FUZZ_CHECK(strlen(e->name) == e->name_len && e->name_len > 0 && td_utf8_valid(e->name, e->name_len));
    FUZZ_CHECK(e->name[0] != '/' && e->name[e->name_len - 1] != '/');
    FUZZ_CHECK(td_zip_find(zip, td_text_n(e->name, e->name_len)) == e);
    FUZZ_CHECK(e->deflated || e->stored_bytes == e->size_bytes);
    FUZZ_CHECK(e->header_at < e->offset && e->offset <= input->size_bytes);
    FUZZ_CHECK(e->stored_bytes <= input->size_bytes - e->offset);
    const struct td_zip_entry *const *by_name = (const struct td_zip_entry *const *)zip->by_name;
    FUZZ_CHECK(i == 0 || td_text_compare(td_text_n(by_name[i - 1]->name, by_name[i - 1]->name_len),
                                         td_text_n(by_name[i]->name, by_name[i]->name_len)) < 0);
    /* a part that is unpacked alone equals the beginning of the whole */
    uint8_t *all = td_zip_load(input, e, LOAD_LIMIT, NULL);
    if (all != NULL) {
        uint8_t head[64];
        size_t len = e->size_bytes < sizeof head ? (size_t)e->size_bytes : sizeof head;
        FUZZ_CHECK(td_zip_load_head(input, e, head, len, NULL));
        FUZZ_CHECK(memcmp(all, head, len) == 0);
    }
    free(all);
}

/* Returns the entry whose header begins there, or NULL for a folder. */
static const struct td_zip_entry *entry_at(const struct td_zip *zip, uint64_t at)
{
    for (size_t i = 0; i < zip->count; i++)
        if (zip->entries[i].header_at == at)
            return &zip->entries[i];
    return NULL;
}

static bool is_record(const uint8_t *data, size_t size, size_t at)
{
    static const char *const signatures[] = {"PK\3\4", "PK\1\2", "PK\5\6", "PK\6\6"};
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++)
        if (at <= size && size - at >= 4 && memcmp(data + at, signatures[i], 4) == 0)
            return true;
    return false;
}

/* Returns the length of the descriptor at `at`, or 0 when the bytes after it do not show its length. */
static size_t descriptor_len(const uint8_t *data, size_t size, size_t at)
{
    size_t found = 0;
    size_t count = 0;
    for (size_t len = 12; len <= 24; len += 4)
        if (is_record(data, size, at + len)) {
            found = len;
            count++;
        }
    FUZZ_CHECK(count > 0);
    return count == 1 ? found : 0;
}

/* Walks from header to header up to the directory, and must meet every entry once. */
static void walk(const struct td_zip *zip, const uint8_t *data, size_t size)
{
    size_t at = 0;
    size_t met = 0;
    while (memcmp(data + at, "PK\3\4", 4) == 0) {
        FUZZ_CHECK(size - at >= 30);
        const uint8_t *header = data + at;
        const struct td_zip_entry *e = entry_at(zip, at);
        uint16_t name_len = td_load_le16(header + 26);
        at += 30 + (size_t)name_len + td_load_le16(header + 28);
        FUZZ_CHECK(at <= size);
        if (e != NULL) {
            met++;
            FUZZ_CHECK(e->name_len == name_len && memcmp(header + 30, e->name, name_len) == 0);
            FUZZ_CHECK(e->offset == at && e->deflated == (td_load_le16(header + 8) == 8));
            at += (size_t)e->stored_bytes;
        } else {
            FUZZ_CHECK(header[30 + name_len - 1] == '/');
            if (td_load_le16(header + 8) != 0)
                return; /* only the directory has the length of an empty deflated stream */
        }
        if ((header[6] & 8) != 0) {
            size_t len = descriptor_len(data, size, at);
            if (len == 0)
                return;
            at += len;
        }
        FUZZ_CHECK(is_record(data, size, at));
    }
    FUZZ_CHECK(met == zip->count);
}

static void read_zip(const struct td_input *input, size_t memory, const uint8_t *data)
{
    struct td_limits limits = td_limits_default();
    struct td_arena arena;
    struct td_zip zip;
    struct td_error err = TD_ERROR_INIT;
    limits.max_memory_bytes = memory;
    td_arena_init(&arena, memory);
    bool ok = td_zip_read(&zip, input, &limits, &arena, &err);
    FUZZ_CHECK(ok == (err.code == TD_OK) && arena.limit_bytes == memory);
    if (!ok)
        fuzz_check_refusal(&err, input->size_bytes);
    for (size_t i = 0; i < zip.count; i++)
        check_entry(&zip, i, input);
    if (ok)
        walk(&zip, data, (size_t)input->size_bytes);
    size_t root_len;
    if (ok && !(td_zip_check_root(&zip, &root_len, &err) && td_zip_check_case(&zip, &err)))
        fuzz_check_refusal(&err, input->size_bytes);
    td_arena_fini(&arena);
}

static void read_npz(const struct td_input *input)
{
    struct td_manifest manifest;
    struct td_error err;
    if (fuzz_parse(&td_format_npz, input, td_limits_default().max_memory_bytes, &manifest, &err))
        fuzz_check_manifest(&manifest, 0, input->size_bytes, NULL);
    else
        fuzz_check_refusal_somewhere(&err, input->size_bytes);
    td_manifest_fini(&manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct td_input input = td_input_memory(data, size);
    read_zip(&input, 0, data);
    read_zip(&input, 70000 + 4 * size, data);
    read_npz(&input);
    return 0;
}
