/* Parses a file and counts the memory, and repeats the parse with faults that every format must survive: the file cut
 * short, any byte changed, any allocation failing, any read failing. Needs WRAP_MALLOC. */
#ifndef TD_TESTS_UNIT_PARSER_FORMAT_PARSE_H
#define TD_TESTS_UNIT_PARSER_FORMAT_PARSE_H

#include "core/buffer.h"
#include "core/checked.h"
#include "parser/format/format.h"
#include "tests/unit/alloc_hooks.h"
#include "tests/unit/unit.h"

#include <inttypes.h>

struct parsed {
    struct td_manifest manifest;
    struct td_error err;
    bool ok;
    struct alloc_count memory; /* of the parse, before parsed_fini */
};

/* Parses, and counts allocations from here. Blocks that exist already must outlive the manifest. */
static inline void parse_input(const struct td_format *format, const struct td_input *input,
                               const struct td_limits *limits, struct parsed *p)
{
    memset(p, 0, sizeof *p);
    td_error_init(&p->err);
    alloc_count_start();
    td_manifest_init(&p->manifest, limits->max_memory_bytes);
    p->ok = format->parse(input, limits, &p->manifest, &p->err);
    p->memory = alloc_count_get();
    assert_int_equal(p->ok, p->err.code == TD_OK);
    assert_true(p->manifest.arena.limit_bytes == limits->max_memory_bytes); /* not changed */
}

static inline void parse_bytes(const struct td_format *format, const void *bytes, size_t len, struct parsed *p)
{
    struct td_input input = td_input_memory(bytes, len);
    struct td_limits limits = td_limits_default();
    parse_input(format, &input, &limits, p);
}

static inline void parsed_fini(struct parsed *p)
{
    td_manifest_fini(&p->manifest);
    assert_int_equal(alloc_count_get().live_bytes, 0);
}

static inline const struct td_tensor *tensor(const struct parsed *p, const char *name)
{
    const struct td_tensor *found = td_manifest_find(&p->manifest, td_text_of(name));
    CHECK(found != NULL, "no tensor \"%s\"", name);
    return found;
}

static inline const char *metadata_value(const struct td_manifest *m, const char *key, size_t len)
{
    for (size_t i = 0; i < m->metadata_count; i++)
        if (strlen(m->metadata[i].key) == len && memcmp(m->metadata[i].key, key, len) == 0)
            return m->metadata[i].value;
    return NULL;
}

/* Returns a copy in a block of exactly len bytes, so that the sanitizer sees a read past the end. The caller frees it
 * with __real_free(). */
static inline void *exact_copy(const void *bytes, size_t len)
{
    void *copy = __real_malloc(len + (len == 0));
    assert_non_null(copy);
    if (len > 0)
        memcpy(copy, bytes, len);
    return copy;
}

static inline void parse_exact(const struct td_format *format, const void *bytes, size_t len, struct parsed *p)
{
    void *copy = exact_copy(bytes, len);
    parse_bytes(format, copy, len, p);
    __real_free(copy);
}

/* Checks that the parse was refused with this code, at a position within the file, in these words. */
static inline void check_refusal(const struct parsed *p, enum td_code code, size_t size, const char *says,
                                 const char *name)
{
    CHECK(!p->ok, "%s: accepted", name);
    CHECK(p->err.code == code, "%s: code %d, %s", name, (int)p->err.code, p->err.message);
    check_error(&p->err, size, true, name);
    check_says(&p->err, says, name);
}

/* Appends a shape: "[2,3]". */
static inline void list_shape(struct td_buffer *out, const uint64_t *shape, uint32_t rank)
{
    td_buffer_putc(out, '[');
    for (uint32_t d = 0; d < rank; d++)
        td_buffer_printf(out, d > 0 ? ",%" PRIu64 : "%" PRIu64, shape[d]);
    td_buffer_putc(out, ']');
}

/* ---- a file that is damaged ----------------------------------------------------------------------------- */

struct sample {
    const struct td_format *format;
    const char *name; /* for messages */
    void *bytes;      /* a block of exactly len bytes */
    size_t len;
    size_t memory_bytes; /* the most that a parse may hold at its peak; 0: not checked */
};

static inline void check_memory(const struct sample *s, const struct parsed *p)
{
    CHECK(s->memory_bytes == 0 || p->memory.peak_bytes <= s->memory_bytes, "%s: %zu bytes for a file of %zu", s->name,
          p->memory.peak_bytes, s->len);
}

/* Checks that a prefix is refused as invalid if it has fewer than `needed` bytes, and otherwise accepted. */
static inline void check_each_prefix(const struct sample *s, uint64_t needed)
{
    for (size_t len = 0; len < s->len; len++) {
        struct parsed p;
        parse_exact(s->format, s->bytes, len, &p);
        CHECK(p.ok == (len >= needed), "%s: %zu of %zu bytes: %s", s->name, len, s->len,
              p.ok ? "accepted" : p.err.message);
        if (!p.ok) {
            assert_int_equal(p.err.code, TD_INVALID_ARGUMENT);
            check_error(&p.err, len, true, s->name);
        }
        check_memory(s, &p);
        parsed_fini(&p);
    }
}

/* Returns whether the stored bytes of the coding are within the file's `len` bytes. */
static inline bool coding_within(const struct td_coding *coding, uint64_t len)
{
    if (coding->base > len)
        return false;
    len -= coding->base;
    if (coding->kind == TD_CODING_DEFLATE)
        return td_range_within(coding->offset, coding->stored_bytes, len);
    for (size_t i = 0; i < coding->grid.chunk_count; i++)
        if (!td_range_within(coding->grid.chunks[i].offset, coding->grid.chunks[i].bytes, len))
            return false;
    return true;
}

/* Returns whether the tensor has a reason, or is within the file's `len` bytes, from the first element to the last.
 */
static inline bool tensor_within(const struct td_tensor *t, uint64_t len)
{
    uint64_t bytes = t->nbytes;
    uint64_t steps = 0; /* from the first element to the last */
    if (t->reason != NULL || t->nbytes == 0)
        return true;
    for (uint32_t d = 0; t->strides != NULL && d < t->rank; d++) {
        uint64_t step;
        if (!td_mul_u64(t->shape[d] - 1, t->strides[d], &step) || !td_add_u64(steps, step, &steps))
            return false;
    }
    if (t->strides != NULL &&
        (!td_mul_u64(steps, t->dtype->block_bytes, &bytes) || !td_add_u64(bytes, t->dtype->block_bytes, &bytes)))
        return false;
    if (t->coding != NULL)
        return coding_within(t->coding, len) && td_range_within(t->offset, bytes, t->coding->size_bytes);
    return td_range_within(t->offset, bytes, len);
}

struct changes {
    size_t begin, end, step; /* the bytes to change */
    const void *by;          /* the `count` values that each becomes in turn */
    size_t count;
    bool flip;                                    /* `by` are bits to flip instead */
    bool (*unplaced)(const struct td_error *err); /* returns whether a refusal may lack a position; NULL: none may */
};

static inline bool any_refusal(const struct td_error *err)
{
    (void)err;
    return true;
}

/* Checks that a changed file is refused with a proper error, or gives a manifest that stays within the file. */
static inline void check_changed(const struct sample *s, const struct changes *changes, const struct parsed *p)
{
    if (!p->ok)
        check_error(&p->err, s->len, changes->unplaced == NULL || !changes->unplaced(&p->err), s->name);
    for (size_t i = 0; p->ok && i < p->manifest.tensor_count; i++) {
        const struct td_tensor *t = &p->manifest.tensors[i];
        CHECK(tensor_within(t, s->len), "%s: \"%s\" leaves the file", s->name, t->name);
        assert_true(td_utf8_valid(t->name, t->name_len));
    }
    check_memory(s, p);
}

static inline void check_each_change(const struct sample *s, const struct changes *changes)
{
    uint8_t *bytes = s->bytes;
    for (size_t at = changes->begin; at < changes->end; at += changes->step) {
        uint8_t kept = bytes[at];
        for (size_t k = 0; k < changes->count; k++) {
            struct parsed p;
            bytes[at] = (uint8_t)(((const uint8_t *)changes->by)[k] ^ (changes->flip ? kept : 0));
            parse_bytes(s->format, bytes, s->len, &p);
            check_changed(s, changes, &p);
            parsed_fini(&p);
        }
        bytes[at] = kept;
    }
}

/* Flips the bits of `by` in every step-th byte from `begin` to the file's end, and frees the file's bytes. */
static inline void check_each_flip(struct sample *s, struct changes changes)
{
    changes.end = s->len;
    changes.flip = true;
    check_each_change(s, &changes);
    __real_free(s->bytes);
}

/* Makes each allocation fail in turn: the parse must fail with TD_RESOURCE_EXHAUSTED and leak nothing. Without a
 * failure the verdict must be `code`. Returns the number of allocations. */
static inline size_t check_each_allocation(const struct sample *s, enum td_code code)
{
    for (size_t k = 1;; k++) {
        struct parsed p;
        alloc_fail_at(k);
        parse_bytes(s->format, s->bytes, s->len, &p);
        alloc_fail_at(0);
        bool done = p.memory.calls < k; /* there was no k-th allocation */
        CHECK(p.err.code == (done ? code : TD_RESOURCE_EXHAUSTED), "%s, allocation %zu: %s", s->name, k, p.err.message);
        if (!p.ok)
            check_error(&p.err, s->len, false, s->name);
        parsed_fini(&p);
        if (done)
            return k - 1;
    }
}

/* Checks that a parse without a td_error has the same verdict. */
static inline void check_without_error(const struct sample *s, size_t len, bool ok)
{
    struct td_input input = td_input_memory(s->bytes, len);
    struct td_limits limits = td_limits_default();
    struct td_manifest manifest;
    td_manifest_init(&manifest, 0);
    assert_int_equal(s->format->parse(&input, &limits, &manifest, NULL), ok);
    td_manifest_fini(&manifest);
}

/* ---- an input that is watched --------------------------------------------------------------------------- */

struct watched {
    struct watched *self;
    const uint8_t *bytes;
    uint64_t read_to;  /* the end of the furthest read */
    uint64_t read_sum; /* the sum of all lengths */
    unsigned reads;
    unsigned fail_at; /* the number of the read that fails, from 1; 0: none */
};

static inline bool watched_read(const void *context, uint64_t off, void *out, size_t len, struct td_error *err)
{
    struct watched *w = *(struct watched *const *)context;
    if (++w->reads == w->fail_at)
        return td_error_at(err, TD_IO, off, "the disk is on fire");
    memcpy(out, w->bytes + off, len);
    w->read_sum += len;
    if (off + len > w->read_to)
        w->read_to = off + len;
    return true;
}

static inline struct td_input watched_input(struct watched *w, const void *bytes, size_t len)
{
    *w = (struct watched){.self = w, .bytes = bytes};
    return (struct td_input){.size_bytes = len, .read = watched_read, .context = &w->self};
}

/* Makes each read fail in turn: no read may follow the failed one. Returns the number of reads. */
static inline unsigned check_each_read(const struct sample *s)
{
    struct td_limits limits = td_limits_default();
    struct watched watched;
    for (unsigned k = 1;; k++) {
        struct parsed p;
        struct td_input input = watched_input(&watched, s->bytes, s->len);
        watched.fail_at = k;
        parse_input(s->format, &input, &limits, &p);
        CHECK(p.err.code == (watched.reads < k ? TD_OK : TD_IO), "%s, read %u: %s", s->name, k, p.err.message);
        parsed_fini(&p);
        if (watched.reads < k)
            return k - 1;
        assert_int_equal(watched.reads, k);
    }
}

#endif
