/* A hostile file can let its structures name each other by address without end. So the reader visits each structure at
 * most once (`visited`, a hash table), bytes of structure are counted against a budget (td_h5_spend), and scratch
 * and arena share one memory limit (account). Small structures are read through a cache of 64 pages of 4 KiB. */
#include "parser/hdf5/hdf5_file.h"

#include "core/array.h"
#include "core/checked.h"
#include "parser/hdf5/hdf5_cursor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIGNATURE_BYTES = 8,
    SUPERBLOCK_BYTES_MAX = 96, /* version 1 with 8-byte addresses has 100, the last 4 unused */
    FIRST_USERBLOCK_BYTES = 512,
    MAP_SLOTS_MIN = 64,
    /* A good hash never needs so many probes; only addresses that were made to collide do. */
    MAP_PROBES_MAX = 2048,
    /* The budget of bytes of structure: some structures may be read a few times (a committed datatype, a heap of
     * strings), and a small file must be able to afford that. */
    BUDGET_TIMES = 16,
    BUDGET_BYTES_MIN = 1024 * 1024,
};

static const uint8_t signature[SIGNATURE_BYTES] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1A, '\n'};

struct td_h5_slot {
    uint64_t key; /* address + 1; 0: free */
    size_t value;
};

bool td_h5_fail(struct td_h5 *h, uint64_t addr, const char *format, ...)
{
    char text[TD_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is, the line above
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    uint64_t pos = addr <= h->size_bytes ? h->base + addr : h->input->size_bytes;
    return td_error_at(h->err, TD_INVALID_ARGUMENT, pos, "%s", text);
}

bool td_h5_no_memory(struct td_h5 *h)
{
    return td_error_set(h->err, TD_RESOURCE_EXHAUSTED,
                        "out of memory: the file's structure needs more than one file's limit, or than there is");
}

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Takes `more` bytes of scratch from the arena's limit. */
static bool claim_scratch(struct td_h5 *h, size_t more)
{
    return td_arena_claim(&h->manifest->arena, more) || td_h5_no_memory(h);
}

bool td_h5_grow(struct td_h5 *h, void *items, size_t *capacity, size_t count, size_t size)
{
    if (count < *capacity)
        return true;
    size_t next = td_array_next_capacity(*capacity, count < 32 ? 32 : count + 1);
    size_t more;
    if (!td_mul_size(next - *capacity, size, &more))
        return td_h5_no_memory(h);
    return claim_scratch(h, more) && (td_array_reserve(items, capacity, next, size, NULL, NULL) || td_h5_no_memory(h));
}

void td_h5_buffer_fini(struct td_h5_buffer *buffer)
{
    free(buffer->p);
    *buffer = (struct td_h5_buffer){0};
}

static bool buffer_reserve(struct td_h5 *h, struct td_h5_buffer *buffer, size_t need)
{
    enum { AT_LEAST = 512 };
    if (need <= buffer->capacity && buffer->p != NULL) /* never NULL, not even for no bytes */
        return true;
    size_t capacity = buffer->capacity <= SIZE_MAX / 2 ? buffer->capacity * 2 : need;
    if (capacity < need)
        capacity = need;
    if (capacity < AT_LEAST)
        capacity = AT_LEAST;
    if (!claim_scratch(h, capacity - buffer->capacity))
        return false;
    uint8_t *p = realloc(buffer->p, capacity);
    if (p == NULL)
        return td_h5_no_memory(h);
    *buffer = (struct td_h5_buffer){.p = p, .capacity = capacity};
    return true;
}

/* ---- sets of addresses --------------------------------------------------------------------------------- */

/* Hashes an address: SplitMix64's finaliser. */
static uint64_t hash_address(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Returns the slot that holds the key, or a free slot for it; NULL after too many probes. */
static struct td_h5_slot *map_find(struct td_h5_slot *slots, size_t capacity, uint64_t key)
{
    size_t at = (size_t)hash_address(key) & (capacity - 1);
    for (size_t probes = 0; probes < MAP_PROBES_MAX; probes++) {
        if (slots[at].key == key || slots[at].key == 0)
            return &slots[at];
        at = (at + 1) & (capacity - 1);
    }
    return NULL;
}

static bool map_crowded(struct td_h5 *h)
{
    return td_error_set(h->err, TD_RESOURCE_EXHAUSTED, "the file's addresses were chosen to collide");
}

static bool map_enlarge(struct td_h5 *h, struct td_h5_map *map)
{
    size_t capacity = map->capacity == 0 ? MAP_SLOTS_MIN : map->capacity * 2;
    size_t bytes;
    if (!td_mul_size(capacity, sizeof *map->slots, &bytes))
        return td_h5_no_memory(h);
    if (!claim_scratch(h, bytes - map->capacity * sizeof *map->slots))
        return false;
    struct td_h5_slot *slots = calloc(capacity, sizeof *slots);
    if (slots == NULL)
        return td_h5_no_memory(h);
    bool ok = true;
    for (size_t i = 0; ok && i < map->capacity; i++) {
        if (map->slots[i].key == 0)
            continue;
        struct td_h5_slot *slot = map_find(slots, capacity, map->slots[i].key);
        ok = slot != NULL;
        if (ok)
            *slot = map->slots[i];
    }
    if (!ok) {
        free(slots);
        return map_crowded(h);
    }
    free(map->slots);
    map->slots = slots;
    map->capacity = capacity;
    return true;
}

bool td_h5_map_add(struct td_h5 *h, struct td_h5_map *map, uint64_t addr, size_t *value, bool *is_new)
{
    if (map->count >= map->capacity / 2 && !map_enlarge(h, map))
        return false;
    struct td_h5_slot *slot = map_find(map->slots, map->capacity, addr + 1);
    if (slot == NULL)
        return map_crowded(h);
    *is_new = slot->key == 0;
    if (*is_new) {
        *slot = (struct td_h5_slot){.key = addr + 1, .value = *value};
        map->count++;
    }
    *value = slot->value;
    return true;
}

void td_h5_map_fini(struct td_h5_map *map)
{
    free(map->slots);
    *map = (struct td_h5_map){0};
}

bool td_h5_visit(struct td_h5 *h, uint64_t addr, const char *what)
{
    size_t value = 0;
    bool is_new = false;
    if (!td_h5_within(h, addr, 1))
        return td_h5_fail(h, addr, "%s at address %" PRIu64 " is past the end of the file", what, addr);
    if (!td_h5_map_add(h, &h->visited, addr, &value, &is_new))
        return false;
    return is_new || td_h5_fail(h, addr, "%s at address %" PRIu64 " is used twice: a cycle, or two owners", what, addr);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

bool td_h5_within(const struct td_h5 *h, uint64_t addr, uint64_t len)
{
    return td_range_within(addr, len, h->size_bytes);
}

bool td_h5_undefined(const struct td_h5 *h, uint64_t addr)
{
    return addr == UINT64_MAX >> (64 - 8 * h->offset_bytes);
}

/* Returns the page with this number, from the cache or the file. NULL is an error. */
static const uint8_t *page_get(struct td_h5 *h, uint64_t number)
{
    size_t place = (size_t)(number % TD_H5_PAGE_COUNT);
    uint8_t *page = h->pages + place * TD_H5_PAGE_BYTES;
    if (h->page_at[place] == number + 1)
        return page;
    uint64_t off = number * TD_H5_PAGE_BYTES;
    uint64_t left = h->input->size_bytes - off;
    h->page_at[place] = 0;
    if (!td_input_read(h->input, off, page, left < TD_H5_PAGE_BYTES ? (size_t)left : TD_H5_PAGE_BYTES, h->err))
        return NULL;
    h->page_at[place] = number + 1;
    return page;
}

bool td_h5_spend(struct td_h5 *h, uint64_t addr, uint64_t len, const char *what)
{
    if (!td_h5_within(h, addr, len))
        return td_h5_fail(h, addr, "%s at address %" PRIu64 " with %" PRIu64 " bytes leaves the file", what, addr, len);
    if (len > h->budget_bytes)
        return td_error_at(h->err, TD_RESOURCE_EXHAUSTED, h->base + addr,
                           "%s: the file's structure makes its reader read more than it may, by limit or by "
                           "the file's size",
                           what);
    h->budget_bytes -= len;
    return true;
}

bool td_h5_read(struct td_h5 *h, uint64_t addr, void *out, size_t len, const char *what)
{
    if (!td_h5_spend(h, addr, len, what))
        return false;
    uint64_t off = h->base + addr;
    if (len >= TD_H5_PAGE_BYTES)
        return td_input_read(h->input, off, out, len, h->err);
    for (uint8_t *to = out; len > 0;) {
        const uint8_t *page = page_get(h, off / TD_H5_PAGE_BYTES);
        if (page == NULL)
            return false;
        size_t within = (size_t)(off % TD_H5_PAGE_BYTES);
        size_t n = len < TD_H5_PAGE_BYTES - within ? len : TD_H5_PAGE_BYTES - within;
        memcpy(to, page + within, n);
        to += n;
        off += n;
        len -= n;
    }
    return true;
}

bool td_h5_load(struct td_h5 *h, struct td_h5_buffer *buffer, size_t off, uint64_t addr, uint64_t len, const char *what)
{
    size_t need;
    if (!td_h5_within(h, addr, len) || len > h->budget_bytes)
        return td_h5_spend(h, addr, len, what);
    if (len > SIZE_MAX || !td_add_size(off, (size_t)len, &need))
        return td_h5_no_memory(h);
    return buffer_reserve(h, buffer, need) && td_h5_read(h, addr, buffer->p + off, (size_t)len, what);
}

/* ---- checksums: lookup3 by Bob Jenkins (public domain), hashlittle with initial value 0 ----------------- */

static uint32_t rotate_left(uint32_t x, unsigned by)
{
    return x << by | x >> (32 - by);
}

struct lookup3 {
    uint32_t a, b, c;
};

static void lookup3_mix(struct lookup3 *s)
{
    static const uint8_t by[] = {4, 6, 8, 16, 19, 4};
    for (unsigned i = 0; i < sizeof by; i += 3) {
        s->a = (s->a - s->c) ^ rotate_left(s->c, by[i]);
        s->c += s->b;
        s->b = (s->b - s->a) ^ rotate_left(s->a, by[i + 1]);
        s->a += s->c;
        s->c = (s->c - s->b) ^ rotate_left(s->b, by[i + 2]);
        s->b += s->a;
    }
}

static uint32_t lookup3_final(struct lookup3 s)
{
    s.c = (s.c ^ s.b) - rotate_left(s.b, 14);
    s.a = (s.a ^ s.c) - rotate_left(s.c, 11);
    s.b = (s.b ^ s.a) - rotate_left(s.a, 25);
    s.c = (s.c ^ s.b) - rotate_left(s.b, 16);
    s.a = (s.a ^ s.c) - rotate_left(s.c, 4);
    s.b = (s.b ^ s.a) - rotate_left(s.a, 14);
    s.c = (s.c ^ s.b) - rotate_left(s.b, 24);
    return s.c;
}

static uint32_t lookup3(const uint8_t *p, size_t len)
{
    uint32_t start = UINT32_C(0xdeadbeef) + (uint32_t)len;
    struct lookup3 s = {start, start, start};
    for (; len > 12; p += 12, len -= 12) {
        s.a += td_load_le32(p);
        s.b += td_load_le32(p + 4);
        s.c += td_load_le32(p + 8);
        lookup3_mix(&s);
    }
    if (len == 0)
        return s.c;
    uint8_t last[12] = {0};
    memcpy(last, p, len);
    s.a += td_load_le32(last);
    s.b += td_load_le32(last + 4);
    s.c += td_load_le32(last + 8);
    return lookup3_final(s);
}

bool td_h5_check_sum(struct td_h5 *h, const uint8_t *bytes, size_t len, uint32_t stored, uint64_t addr,
                     const char *what)
{
    uint32_t computed = lookup3(bytes, len);
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION /* a fuzzer cannot guess them */
    computed = stored;
#endif
    return stored == computed ||
           td_h5_fail(h, addr, "%s: its checksum is 0x%08" PRIx32 ", but its bytes make 0x%08" PRIx32, what, stored,
                      computed);
}

/* ---- superblock ---------------------------------------------------------------------------------------- */

/* Finds the signature at byte 0, or after a userblock of 512 bytes times a power of two. */
static bool find_signature(struct td_h5 *h)
{
    uint8_t bytes[SIGNATURE_BYTES];
    uint64_t size = h->input->size_bytes;
    for (uint64_t at = 0; td_range_within(at, SIGNATURE_BYTES, size); at = at == 0 ? FIRST_USERBLOCK_BYTES : at * 2) {
        if (!td_input_read(h->input, at, bytes, sizeof bytes, h->err))
            return false;
        if (memcmp(bytes, signature, sizeof bytes) == 0) {
            h->base = at;
            h->size_bytes = size - at;
            return true;
        }
        if (at > UINT64_MAX / 4)
            break;
    }
    return td_error_at(h->err, TD_INVALID_ARGUMENT, 0,
                       "no HDF5 signature at byte 0, 512, 1024 or a further power of two");
}

static bool read_sizes(struct td_h5 *h, unsigned offset_bytes, unsigned length_bytes, uint64_t at)
{
    const unsigned widths[] = {offset_bytes, length_bytes};
    for (size_t i = 0; i < 2; i++)
        if (widths[i] != 2 && widths[i] != 4 && widths[i] != 8)
            return td_h5_fail(h, at + i, "superblock: %s have %u bytes; 2, 4 or 8 would be right",
                              i == 0 ? "addresses" : "lengths", widths[i]);
    h->offset_bytes = offset_bytes;
    h->length_bytes = length_bytes;
    return true;
}

/* Refuses a file that is shorter than its superblock says, as libhdf5 does. Addresses count from the superblock's own
 * position and not from the base address it holds, because a userblock may have been added later. */
static bool check_end(struct td_h5 *h, uint64_t base, uint64_t end, uint64_t at)
{
    uint64_t length = end - base; /* both count from one place, wherever that was when they were written */
    if (end < base || length > h->size_bytes)
        return td_h5_fail(
            h, at, "superblock: the file ends at address %" PRIu64 ", but it has only %" PRIu64 " bytes: truncated",
            length, h->size_bytes);
    return true;
}

static bool read_superblock_0(struct td_h5 *h, struct td_h5_cursor c, unsigned version)
{
    enum { SIZES_AT = 13 };
    (void)td_h5_take(&c, 4); /* versions of the free space and the root's entry; reserved; shared headers' version */
    unsigned offset_bytes = td_h5_u8(&c);
    unsigned length_bytes = td_h5_u8(&c);
    if (!read_sizes(h, offset_bytes, length_bytes, SIZES_AT))
        return false;
    (void)td_h5_take(&c, 1 + 2 + 2 + 4); /* reserved, the B-trees' K, consistency flags */
    if (version == 1)
        (void)td_h5_take(&c, 2 + 2);
    uint64_t base = td_h5_number(&c, h->offset_bytes);
    (void)td_h5_take(&c, h->offset_bytes); /* free space */
    uint64_t end_at = c.addr;
    uint64_t end = td_h5_number(&c, h->offset_bytes);
    (void)td_h5_take(&c, 2 * (size_t)h->offset_bytes); /* driver information; the root's name */
    h->root = td_h5_number(&c, h->offset_bytes);
    if (c.bad)
        return td_h5_fail(h, 0, "superblock: the file ends within it");
    return check_end(h, base, end, end_at);
}

static bool read_superblock_2(struct td_h5 *h, struct td_h5_cursor c)
{
    enum { SIZES_AT = 9 };
    const uint8_t *start = c.p - SIGNATURE_BYTES - 1;
    unsigned offset_bytes = td_h5_u8(&c);
    unsigned length_bytes = td_h5_u8(&c);
    if (!read_sizes(h, offset_bytes, length_bytes, SIZES_AT))
        return false;
    (void)td_h5_take(&c, 1); /* consistency flags */
    uint64_t base = td_h5_number(&c, h->offset_bytes);
    (void)td_h5_take(&c, h->offset_bytes); /* extension: nothing in it changes what is read here */
    uint64_t end_at = c.addr;
    uint64_t end = td_h5_number(&c, h->offset_bytes);
    h->root = td_h5_number(&c, h->offset_bytes);
    size_t summed = (size_t)(c.p - start);
    uint32_t stored = td_h5_u32(&c);
    if (c.bad)
        return td_h5_fail(h, 0, "superblock: the file ends within it");
    return td_h5_check_sum(h, start, summed, stored, 0, "superblock") && check_end(h, base, end, end_at);
}

static bool read_superblock(struct td_h5 *h)
{
    uint8_t bytes[SUPERBLOCK_BYTES_MAX];
    size_t len = h->size_bytes < sizeof bytes ? (size_t)h->size_bytes : sizeof bytes;
    if (!td_h5_read(h, 0, bytes, len, "superblock"))
        return false;
    struct td_h5_cursor c = {.p = bytes, .left = len};
    (void)td_h5_take(&c, SIGNATURE_BYTES);
    unsigned version = td_h5_u8(&c);
    if (c.bad)
        return td_h5_fail(h, 0, "superblock: the file ends within it");
    if (version > 3)
        return td_h5_fail(h, SIGNATURE_BYTES, "superblock: version %u is unknown; 0 to 3 are known", version);
    return version < 2 ? read_superblock_0(h, c, version) : read_superblock_2(h, c);
}

bool td_h5_open(struct td_h5 *h, const struct td_input *input, const struct td_limits *limits,
                struct td_manifest *manifest, struct td_error *err)
{
    memset(h, 0, sizeof *h);
    h->input = input;
    h->manifest = manifest;
    h->err = err;
    if (!find_signature(h))
        return false;
    if (!td_mul_u64(h->size_bytes, BUDGET_TIMES, &h->budget_bytes) ||
        !td_add_u64(h->budget_bytes, BUDGET_BYTES_MIN, &h->budget_bytes) || h->budget_bytes > limits->max_header_bytes)
        h->budget_bytes = limits->max_header_bytes;
    h->chunk_budget_bytes = h->budget_bytes;
    if (!claim_scratch(h, (size_t)TD_H5_PAGE_BYTES * TD_H5_PAGE_COUNT))
        return false;
    h->pages = malloc((size_t)TD_H5_PAGE_BYTES * TD_H5_PAGE_COUNT);
    if (h->pages == NULL)
        return td_h5_no_memory(h);
    return read_superblock(h);
}

void td_h5_close(struct td_h5 *h)
{
    td_h5_map_fini(&h->visited);
    free(h->pages);
    h->pages = NULL;
}
