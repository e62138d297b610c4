/* Checks that every parse must pass, whatever the format: of its verdict, of its memory, and of its manifest by every
 * rule of parser/format/manifest.h. A target adds the rules of its own format. */
#ifndef TD_TESTS_FUZZ_FUZZ_MANIFEST_H
#define TD_TESTS_FUZZ_FUZZ_MANIFEST_H

#include "core/json/json.h"
#include "parser/format/format.h"
#include "tests/fuzz/fuzz_error.h"

typedef unsigned __int128 fuzz_u128;

/* ---- what was found ------------------------------------------------------------------------------------- */

/* Checks that a name is UTF-8 without a NUL and sorts after the name before it (NULL for the first). */
static inline void fuzz_check_name(const char *name, size_t len, const char *before, size_t before_len)
{
    FUZZ_CHECK(strlen(name) == len && td_utf8_valid(name, len));
    FUZZ_CHECK(before == NULL || td_text_compare(td_text_n(before, before_len), td_text_n(name, len)) < 0);
}

/* Checks what holds for every tensor, also for one that has only a description. */
static inline void fuzz_check_listed(const struct td_manifest *m, size_t i)
{
    const struct td_tensor *t = &m->tensors[i];
    fuzz_check_name(t->name, t->name_len, i == 0 ? NULL : t[-1].name, i == 0 ? 0 : t[-1].name_len);
    FUZZ_CHECK(td_manifest_find(m, td_tensor_name(t)) == t);
    FUZZ_CHECK(t->dtype != NULL && t->rank <= TD_MAX_RANK && (t->rank == 0) == (t->shape == NULL));
    if (t->reason == NULL)
        FUZZ_CHECK(t->dtype->block_bytes > 0);
    else
        FUZZ_CHECK(t->reason[0] != '\0' && td_utf8_valid(t->reason, strlen(t->reason)));
    if (t->alias_of != NULL) {
        const struct td_tensor *first = td_manifest_find(m, td_text_of(t->alias_of));
        FUZZ_CHECK(first != NULL && first < t && first->alias_of == NULL && first->reason == NULL);
        FUZZ_CHECK(t->reason == NULL && first->offset == t->offset && first->nbytes == t->nbytes);
    }
}

/* Returns the size of what a tensor's offset counts in: the file, of `size` bytes, or the decoded bytes of its
 * coding. */
static inline uint64_t fuzz_size_of_storage(const struct td_tensor *t, uint64_t size)
{
    return t->coding != NULL ? t->coding->size_bytes : size;
}

/* Checks that the tensor's coding is in the manifest's list, so that it lives as long as the manifest. */
static inline void fuzz_check_coding(const struct td_manifest *m, const struct td_tensor *t)
{
    const struct td_coding *coding = m->codings;
    while (coding != NULL && coding != t->coding)
        coding = coding->next;
    FUZZ_CHECK(t->coding == NULL || (coding == t->coding && coding->number < m->coding_count));
}

/* Checks that the size follows from shape and type, and that all bytes that can be served are in [begin, size) of the
 * file, or within the decoded bytes of the coding. */
static inline void fuzz_check_bytes(const struct td_tensor *t, uint64_t begin, uint64_t size)
{
    fuzz_u128 elems = 1;
    fuzz_u128 last = 0;
    bool empty = false;
    for (uint32_t d = 0; d < t->rank; d++)
        empty = empty || t->shape[d] == 0;
    for (uint32_t d = 0; d < t->rank && !empty; d++) {
        elems *= t->shape[d];
        FUZZ_CHECK(elems <= UINT64_MAX);
        last += (fuzz_u128)(t->shape[d] - 1) * (t->strides != NULL ? t->strides[d] : 0);
    }
    if (empty)
        elems = 0;
    FUZZ_CHECK(elems * t->dtype->block_bytes == (fuzz_u128)t->nbytes * t->dtype->block_elems);
    fuzz_u128 extent = t->strides == NULL ? t->nbytes : (last + 1) * t->dtype->block_bytes;
    if (t->coding != NULL)
        begin = 0;
    size = fuzz_size_of_storage(t, size);
    if (t->reason == NULL && elems > 0)
        FUZZ_CHECK(t->offset >= begin && t->offset <= size && extent <= size - t->offset);
}

/* Checks that keys are UTF-8 and that each value is one JSON value. */
static inline void fuzz_check_metadata(const struct td_manifest *m)
{
    for (size_t i = 0; i < m->metadata_count; i++) {
        const struct td_metadata *pair = &m->metadata[i];
        struct td_json json;
        FUZZ_CHECK(td_utf8_valid(pair->key, strlen(pair->key)));
        td_json_init(&json, td_text_of(pair->value), 0, NULL);
        FUZZ_CHECK(td_json_skip(&json) && td_json_next(&json) == TD_JSON_END && json.depth == 0);
    }
}

/* Checks that no key occurs twice, for formats whose keys come from one dictionary. */
static inline void fuzz_check_keys_differ(const struct td_manifest *m)
{
    for (size_t i = 0; i < m->metadata_count; i++)
        for (size_t j = 0; j < i; j++)
            FUZZ_CHECK(strcmp(m->metadata[i].key, m->metadata[j].key) != 0);
}

/* Checks the whole manifest. is_opaque (NULL: never) returns whether a tensor's size in bytes is unknown. */
static inline void fuzz_check_manifest(const struct td_manifest *m, uint64_t begin, uint64_t size,
                                       bool (*is_opaque)(const struct td_tensor *t))
{
    uint64_t sum = 0;
    for (size_t i = 0; i < m->tensor_count; i++) {
        fuzz_check_listed(m, i);
        fuzz_check_coding(m, &m->tensors[i]);
        if (is_opaque == NULL || !is_opaque(&m->tensors[i]))
            fuzz_check_bytes(&m->tensors[i], begin, size);
        sum += m->tensors[i].nbytes;
    }
    FUZZ_CHECK(m->total_bytes == sum);
    fuzz_check_metadata(m);
}

/* ---- the parse ------------------------------------------------------------------------------------------ */

/* Prepares the manifest and *err for a parse that may take `memory` bytes (0: any number). */
static inline struct td_limits fuzz_parse_begin(struct td_manifest *m, struct td_error *err, size_t memory)
{
    struct td_limits limits = td_limits_default();
    limits.max_memory_bytes = memory;
    td_error_init(err);
    td_manifest_init(m, memory);
    return limits;
}

/* Checks that the verdict agrees with *err, and that the bound on memory was kept and not changed. */
static inline void fuzz_parse_end(const struct td_manifest *m, const struct td_error *err, bool ok, size_t memory)
{
    FUZZ_CHECK(ok == (err->code == TD_OK));
    FUZZ_CHECK(m->arena.limit_bytes == memory);
    FUZZ_CHECK(memory == 0 || m->arena.used_bytes <= memory);
}

/* Parses. The caller ends the manifest with td_manifest_fini, on failure too. */
static inline bool fuzz_parse(const struct td_format *format, const struct td_input *input, size_t memory,
                              struct td_manifest *m, struct td_error *err)
{
    struct td_limits limits = fuzz_parse_begin(m, err, memory);
    bool ok = format->parse(input, &limits, m, err);
    fuzz_parse_end(m, err, ok, memory);
    return ok;
}

#endif
