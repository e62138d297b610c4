/* The opcodes. A table names each, says what operand follows it and which function runs it; the operand is
 * read and bounded before the function is called. */
#include "parser/pickle.h"

#include "core/input.h"
#include "core/utf8.h"
#include "parser/pickle_store.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HIGHEST_PROTOCOL = 5,
    MAX_DIGITS = 4300, /* sys.int_info.default_max_str_digits: converting decimals is quadratic */
    LIMB_DIGITS = 9,
    MEMO_FIRST_SLOTS = 32,
    PROBES_PER_OPCODE = 32, /* see sparse_slot */
    PROBES_FREE = 4096,
};

enum operand_kind {
    OPERAND_NONE,
    OPERAND_U8,
    OPERAND_U16,
    OPERAND_U32,
    OPERAND_U64,
    OPERAND_TEXT8, /* that many bytes of length, then the bytes */
    OPERAND_TEXT32,
    OPERAND_TEXT31, /* a signed length */
    OPERAND_TEXT64,
    OPERAND_LINE, /* up to a newline */
    OPERAND_TWO_LINES,
};

struct span {
    uint32_t off, len; /* in the caller's bytes */
};

struct operand {
    uint64_t number;
    struct span text, second;
};

struct memo_slot {
    uint32_t index;
    td_pickle_ref ref; /* NIL: free */
};

struct machine;

struct opcode {
    const char *name;
    enum operand_kind operand;
    bool (*run)(struct machine *m, const struct operand *operand);
    unsigned argument; /* what distinguishes opcodes that share a function */
};

struct machine {
    struct td_pickle *pickle;
    struct td_pickle_store *store;
    const uint8_t *bytes;
    size_t len, pos;
    size_t opcode_at;
    const struct opcode *opcode;
    struct td_pool stack;          /* td_pickle_ref, the lowest at 1 */
    struct td_pool marks;          /* uint32_t: the stack's height at every MARK; marks[0] = 1, its bottom */
    struct td_chunks memo;         /* td_pickle_ref by index, as long as they come in order: 0, 1, 2 ... */
    struct memo_slot *sparse_memo; /* a hash table of the others */
    size_t sparse_slots;           /* a power of two */
    size_t sparse_count;
    uint64_t probes;
    bool stopped;
    struct td_error *err;
};

/* ---- refusals ---- */

static void report(const struct machine *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void report(const struct machine *m, const char *format, ...)
{
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)td_error_at(m->err, TD_INVALID_ARGUMENT, m->pickle->base + m->opcode_at, "pickle: %s %s",
                      m->opcode->name, text);
}

/* Refuses the pickle for its current opcode. Always false, in a way that analysers see. */
#define FAIL(...) (report(__VA_ARGS__), false)

static bool no_memory(const struct machine *m)
{
    (void)td_error_at(m->err, TD_RESOURCE_EXHAUSTED, m->pickle->base + m->opcode_at,
                      "out of memory: the pickle needs more than one file's limit, or than there is");
    return false;
}

/* ---- operands ---- */

static bool take(struct machine *m, uint64_t len, const uint8_t **bytes)
{
    if (len > m->len - m->pos)
        return FAIL(m, "is cut off: it needs %" PRIu64 " more bytes and %zu are left", len, m->len - m->pos);
    *bytes = m->bytes + m->pos;
    m->pos += (size_t)len;
    return true;
}

static bool take_number(struct machine *m, unsigned width, uint64_t *number)
{
    const uint8_t *p;
    if (!take(m, width, &p))
        return false;
    switch (width) {
    case 1:
        *number = p[0];
        break;
    case 2:
        *number = td_load_le16(p);
        break;
    case 4:
        *number = td_load_le32(p);
        break;
    default:
        *number = td_load_le64(p);
        break;
    }
    return true;
}

static bool take_text(struct machine *m, unsigned width, bool is_signed, struct span *text)
{
    uint64_t len;
    const uint8_t *p;
    if (!take_number(m, width, &len))
        return false;
    if (is_signed && len > INT32_MAX)
        return FAIL(m, "has a negative length, %" PRId32, (int32_t)(uint32_t)len);
    size_t off = m->pos;
    if (!take(m, len, &p))
        return false;
    *text = (struct span){.off = (uint32_t)off, .len = (uint32_t)len};
    return true;
}

static bool take_line(struct machine *m, struct span *text)
{
    const uint8_t *line = m->bytes + m->pos;
    const uint8_t *newline = memchr(line, '\n', m->len - m->pos);
    if (newline == NULL)
        return FAIL(m, "has no newline after its text");
    *text = (struct span){.off = (uint32_t)m->pos, .len = (uint32_t)(newline - line)};
    m->pos += text->len + (size_t)1;
    return true;
}

static bool take_operand(struct machine *m, struct operand *operand)
{
    switch (m->opcode->operand) {
    case OPERAND_NONE:
        return true;
    case OPERAND_U8:
        return take_number(m, 1, &operand->number);
    case OPERAND_U16:
        return take_number(m, 2, &operand->number);
    case OPERAND_U32:
        return take_number(m, 4, &operand->number);
    case OPERAND_U64:
        return take_number(m, 8, &operand->number);
    case OPERAND_TEXT8:
        return take_text(m, 1, false, &operand->text);
    case OPERAND_TEXT32:
        return take_text(m, 4, false, &operand->text);
    case OPERAND_TEXT31:
        return take_text(m, 4, true, &operand->text);
    case OPERAND_TEXT64:
        return take_text(m, 8, false, &operand->text);
    case OPERAND_LINE:
        return take_line(m, &operand->text);
    default:
        return take_line(m, &operand->text) && take_line(m, &operand->second);
    }
}

static const char *span_text(const struct machine *m, struct span span)
{
    return (const char *)m->bytes + span.off;
}

/* ---- the stack ---- */

static td_pickle_ref *stack_of(const struct machine *m)
{
    return m->stack.items;
}

/* The stack's height at the last MARK: what lies below cannot be taken before the mark is. */
static uint32_t fence(const struct machine *m)
{
    return ((const uint32_t *)m->marks.items)[m->marks.count - 1];
}

static bool needs(const struct machine *m, uint32_t count)
{
    uint32_t there = m->stack.count - fence(m);
    if (there >= count)
        return true;
    return FAIL(m, "needs %" PRIu32 " values on the stack, which has %" PRIu32 "%s", count, there,
                m->marks.count > 1 ? " since the last MARK" : "");
}

/* The i-th value from the top, which is 0. */
static td_pickle_ref peek(const struct machine *m, uint32_t i)
{
    return stack_of(m)[m->stack.count - 1 - i];
}

static bool push(struct machine *m, td_pickle_ref ref)
{
    if (ref == TD_PICKLE_NIL || !td_pickle_store_reserve(m->store, &m->stack, 1, sizeof ref))
        return no_memory(m);
    stack_of(m)[m->stack.count++] = ref;
    return true;
}

static td_pickle_ref add(struct machine *m, struct td_pickle_value value)
{
    value.at = (uint32_t)m->opcode_at;
    return td_pickle_store_add(m->store, value);
}

static bool push_value(struct machine *m, struct td_pickle_value value)
{
    return push(m, add(m, value));
}

/* Takes the last MARK away. The values above it stay until the caller drops them: *count of them from
 * *first on. */
static bool take_mark(struct machine *m, uint32_t *first, uint32_t *count)
{
    if (m->marks.count == 1)
        return FAIL(m, "has no MARK on the stack to go back to");
    *first = fence(m);
    *count = m->stack.count - *first;
    m->marks.count--;
    return true;
}

static bool run_mark(struct machine *m, const struct operand *operand)
{
    (void)operand;
    if (!td_pickle_store_reserve(m->store, &m->marks, 1, sizeof(uint32_t)))
        return no_memory(m);
    ((uint32_t *)m->marks.items)[m->marks.count++] = m->stack.count;
    return true;
}

/* As in Python, a POP with nothing above the last MARK takes the MARK. */
static bool run_pop(struct machine *m, const struct operand *operand)
{
    (void)operand;
    if (m->marks.count > 1 && fence(m) == m->stack.count) {
        m->marks.count--;
        return true;
    }
    if (!needs(m, 1))
        return false;
    m->stack.count--;
    return true;
}

static bool run_pop_mark(struct machine *m, const struct operand *operand)
{
    uint32_t first, count;
    (void)operand;
    if (!take_mark(m, &first, &count))
        return false;
    m->stack.count = first;
    return true;
}

static bool run_dup(struct machine *m, const struct operand *operand)
{
    (void)operand;
    return needs(m, 1) && push(m, peek(m, 0));
}

static bool run_stop(struct machine *m, const struct operand *operand)
{
    (void)operand;
    if (m->marks.count > 1)
        return FAIL(m, "comes while %" PRIu32 " MARKs are open", m->marks.count - 1);
    if (m->stack.count != 2)
        return FAIL(m, "must find one value on the stack, which has %" PRIu32, m->stack.count - 1);
    m->pickle->root = peek(m, 0);
    m->stopped = true;
    return true;
}

/* ---- the memo ----
 * Picklers number their entries from 0 and so fill an array, four bytes for each. An index out of turn goes
 * to a hash table: no memory is ever sized by an index. */

/* The slot of an index: the one that holds it, or the free one where it goes; NULL when looking has cost
 * more than chance allows, which takes indices that were made up for it. Without that bound, and without a
 * secret in the hash, such a pickle would take quadratic time. */
static struct memo_slot *sparse_slot(struct machine *m, uint32_t index)
{
    size_t mask = m->sparse_slots - 1;
    uint64_t hash = index * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = (size_t)(hash >> __builtin_clzll(mask));; i = (i + 1) & mask) {
        struct memo_slot *slot = &m->sparse_memo[i];
        if (slot->ref == TD_PICKLE_NIL || slot->index == index)
            return slot;
        if (++m->probes > PROBES_FREE + m->pickle->op_count * PROBES_PER_OPCODE)
            return NULL;
    }
}

static bool memo_collides(const struct machine *m)
{
    return FAIL(m, "uses memo indices that are made up to collide");
}

/* Room for one more: at most three quarters full. */
static bool sparse_reserve(struct machine *m)
{
    if (m->sparse_count < m->sparse_slots / 4 * 3)
        return true;
    size_t old_slots = m->sparse_slots;
    struct memo_slot *old = m->sparse_memo;
    size_t slots = old_slots == 0 ? MEMO_FIRST_SLOTS : 2 * old_slots;
    struct memo_slot *fresh = td_pickle_store_claim(m->store, slots, sizeof *fresh);
    if (fresh == NULL)
        return no_memory(m);
    m->sparse_memo = fresh;
    m->sparse_slots = slots;
    bool ok = true;
    for (size_t i = 0; i < old_slots && ok; i++) {
        if (old[i].ref == TD_PICKLE_NIL)
            continue;
        struct memo_slot *slot = sparse_slot(m, old[i].index);
        if (slot != NULL)
            *slot = old[i];
        else
            ok = memo_collides(m);
    }
    td_pickle_store_release(m->store, old, old_slots, sizeof *old);
    return ok;
}

/* What was put at the index, or NIL; false when it could not be looked for. */
static bool sparse_find(struct machine *m, uint32_t index, td_pickle_ref *ref)
{
    *ref = TD_PICKLE_NIL;
    if (m->sparse_count == 0)
        return true;
    const struct memo_slot *slot = sparse_slot(m, index);
    if (slot == NULL)
        return memo_collides(m);
    *ref = slot->ref;
    return true;
}

static bool sparse_put(struct machine *m, uint32_t index, td_pickle_ref ref)
{
    if (!sparse_reserve(m))
        return false;
    struct memo_slot *slot = sparse_slot(m, index);
    if (slot == NULL)
        return memo_collides(m);
    if (slot->ref == TD_PICKLE_NIL) {
        m->sparse_count++;
        m->pickle->memo_count++;
    }
    *slot = (struct memo_slot){.index = index, .ref = ref};
    return true;
}

/* An entry stays where it was put first, so that it is in one place only. */
static bool memo_put(struct machine *m, uint32_t index)
{
    td_pickle_ref before;
    if (!needs(m, 1))
        return false;
    if (index < m->memo.count) {
        *(td_pickle_ref *)td_chunks_at(&m->memo, index, sizeof before) = peek(m, 0);
        return true;
    }
    if (index > m->memo.count)
        return sparse_put(m, index, peek(m, 0));
    if (!sparse_find(m, index, &before))
        return false;
    if (before != TD_PICKLE_NIL)
        return sparse_put(m, index, peek(m, 0));
    td_pickle_ref *entry = td_chunks_add(m->store, &m->memo, sizeof *entry);
    if (entry == NULL)
        return no_memory(m);
    *entry = peek(m, 0);
    m->pickle->memo_count++;
    return true;
}

static bool memo_get(struct machine *m, uint32_t index)
{
    td_pickle_ref ref;
    if (index < m->memo.count)
        return push(m, *(td_pickle_ref *)td_chunks_at(&m->memo, index, sizeof ref));
    if (!sparse_find(m, index, &ref))
        return false;
    if (ref == TD_PICKLE_NIL)
        return FAIL(m, "reads memo entry %" PRIu32 ", which was never written", index);
    return push(m, ref);
}

static bool run_put(struct machine *m, const struct operand *operand)
{
    return memo_put(m, (uint32_t)operand->number);
}

static bool run_get(struct machine *m, const struct operand *operand)
{
    return memo_get(m, (uint32_t)operand->number);
}

static bool run_memoize(struct machine *m, const struct operand *operand)
{
    (void)operand;
    return memo_put(m, m->pickle->memo_count);
}

/* The index of a text PUT or GET: digits only. */
static bool line_index(const struct machine *m, struct span line, uint32_t *index)
{
    const char *text = span_text(m, line);
    uint64_t number = 0;
    bool ok = line.len > 0 && line.len <= 10;
    for (uint32_t i = 0; i < line.len && ok; i++) {
        ok = text[i] >= '0' && text[i] <= '9';
        number = number * 10 + (uint64_t)(text[i] - '0');
    }
    if (!ok || number > UINT32_MAX)
        return FAIL(m, "has the index \"%.*s\", which is not a number below 2^32",
                    (int)(line.len < 32 ? line.len : 32), text);
    *index = (uint32_t)number;
    return true;
}

static bool run_put_line(struct machine *m, const struct operand *operand)
{
    uint32_t index;
    return line_index(m, operand->text, &index) && memo_put(m, index);
}

static bool run_get_line(struct machine *m, const struct operand *operand)
{
    uint32_t index;
    return line_index(m, operand->text, &index) && memo_get(m, index);
}

/* ---- plain values ---- */

static bool run_none(struct machine *m, const struct operand *operand)
{
    (void)operand;
    return push_value(m, (struct td_pickle_value){.kind = TD_PICKLE_NONE});
}

static bool push_bool(struct machine *m, bool truth)
{
    return push_value(m, (struct td_pickle_value){.kind = TD_PICKLE_BOOL, .as.truth = truth});
}

static bool run_bool(struct machine *m, const struct operand *operand)
{
    (void)operand;
    return push_bool(m, m->opcode->argument != 0);
}

static bool push_int(struct machine *m, int64_t integer)
{
    return push_value(m, (struct td_pickle_value){.kind = TD_PICKLE_INT, .as.integer = integer});
}

static bool run_uint(struct machine *m, const struct operand *operand)
{
    return push_int(m, (int64_t)operand->number);
}

static bool run_int32(struct machine *m, const struct operand *operand)
{
    return push_int(m, (int32_t)(uint32_t)operand->number);
}

/* Two's complement without the bytes that only repeat the sign. */
static uint32_t trimmed_len(const uint8_t *bytes, uint32_t len)
{
    while (len > 1 && ((bytes[len - 1] == 0x00 && bytes[len - 2] < 0x80) ||
                       (bytes[len - 1] == 0xff && bytes[len - 2] >= 0x80)))
        len--;
    return len;
}

static int64_t load_twos_complement(const uint8_t *bytes, uint32_t len)
{
    uint64_t number = len > 0 && bytes[len - 1] >= 0x80 ? UINT64_MAX : 0;
    for (uint32_t i = len; i > 0; i--)
        number = number << 8 | bytes[i - 1];
    return (int64_t)number;
}

static bool run_long(struct machine *m, const struct operand *operand)
{
    const uint8_t *bytes = m->bytes + operand->text.off;
    uint32_t len = trimmed_len(bytes, operand->text.len);
    if (len <= sizeof(int64_t))
        return push_int(m, load_twos_complement(bytes, len));
    return push_value(m, (struct td_pickle_value){.kind = TD_PICKLE_INT,
                                                  .flags = TD_PICKLE_FLAG_BIG,
                                                  .as.text = {.off = operand->text.off, .len = len}});
}

/* Eight bytes, big-endian. */
static bool run_binfloat(struct machine *m, const struct operand *operand)
{
    uint64_t bits = __builtin_bswap64(operand->number);
    struct td_pickle_value value = {.kind = TD_PICKLE_FLOAT};
    memcpy(&value.as.real, &bits, sizeof bits);
    return push_value(m, value);
}

static bool push_text(struct machine *m, enum td_pickle_kind kind, const char *text, struct span span,
                      unsigned flags)
{
    if (kind == TD_PICKLE_STRING && td_utf8_valid(text, span.len))
        flags |= TD_PICKLE_FLAG_UTF8;
    return push_value(m, (struct td_pickle_value){.kind = (uint8_t)kind,
                                                  .flags = (uint8_t)flags,
                                                  .as.text = {.off = span.off, .len = span.len}});
}

static bool run_text(struct machine *m, const struct operand *operand)
{
    return push_text(m, (enum td_pickle_kind)m->opcode->argument, span_text(m, operand->text), operand->text,
                     0);
}

/* ---- numbers in text (protocol 0) ---- */

static bool is_decimal(const char *text, size_t len)
{
    if (len == 0 || (text[0] == '0' && len > 1))
        return false;
    for (size_t i = 0; i < len; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return true;
}

/* limbs[0..count) = limbs * factor + more. Returns the new count. */
static size_t multiply_add(uint32_t *limbs, size_t count, uint32_t factor, uint32_t more)
{
    uint64_t carry = more;
    for (size_t i = 0; i < count; i++) {
        carry += (uint64_t)limbs[i] * factor;
        limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry > 0)
        limbs[count++] = (uint32_t)carry;
    return count;
}

/* Nine digits fill less than a limb, and one more byte is for the sign. */
enum { MAX_LIMBS = MAX_DIGITS / LIMB_DIGITS + 2 };

static size_t limbs_of_decimal(const char *digits, size_t len, uint32_t limbs[MAX_LIMBS])
{
    size_t count = 0;
    for (size_t i = 0; i < len;) {
        uint32_t factor = 1;
        uint32_t chunk = 0;
        for (int k = 0; k < LIMB_DIGITS && i < len; k++, i++) {
            factor *= 10;
            chunk = chunk * 10 + (uint32_t)(digits[i] - '0');
        }
        count = multiply_add(limbs, count, factor, chunk);
    }
    limbs[count++] = 0; /* the sign */
    return count;
}

static void negate(uint32_t *limbs, size_t count)
{
    uint64_t carry = 1;
    for (size_t i = 0; i < count; i++) {
        carry += (uint32_t)~limbs[i];
        limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

/* A decimal of any size: its bytes go to the store's text when it does not fit. */
static bool push_decimal(struct machine *m, const char *digits, size_t len, bool negative)
{
    uint32_t limbs[MAX_LIMBS];
    uint8_t bytes[sizeof limbs];
    size_t count = limbs_of_decimal(digits, len, limbs);
    if (negative)
        negate(limbs, count);
    for (size_t i = 0; i < count * sizeof *limbs; i++)
        bytes[i] = (uint8_t)(limbs[i / 4] >> 8 * (i % 4));
    uint32_t used = trimmed_len(bytes, (uint32_t)(count * sizeof *limbs));
    if (used <= sizeof(int64_t))
        return push_int(m, load_twos_complement(bytes, used));
    struct td_pool *text = &m->store->text;
    if (!td_pickle_store_reserve(m->store, text, used, 1))
        return no_memory(m);
    struct td_pickle_value value = {.kind = TD_PICKLE_INT,
                                    .flags = TD_PICKLE_FLAG_BIG | TD_PICKLE_FLAG_DECODED,
                                    .as.text = {.off = text->count, .len = used}};
    memcpy((char *)text->items + text->count, bytes, used);
    text->count += used;
    return push_value(m, value);
}

static bool push_int_line(struct machine *m, const char *text, size_t len)
{
    bool negative = len > 0 && text[0] == '-';
    size_t sign = negative ? 1 : 0;
    if (!is_decimal(text + sign, len - sign))
        return FAIL(m, "has \"%.*s\", which is not a decimal number", (int)(len < 32 ? len : 32), text);
    if (len - sign > MAX_DIGITS)
        return FAIL(m, "has a number of %zu digits; Python reads at most %d", len - sign, MAX_DIGITS);
    return push_decimal(m, text + sign, len - sign, negative);
}

/* INT is also how protocols 0 and 1 spell bools: 00 and 01. */
static bool run_int_line(struct machine *m, const struct operand *operand)
{
    const char *text = span_text(m, operand->text);
    uint32_t len = operand->text.len;
    if (len == 2 && text[0] == '0' && (text[1] == '0' || text[1] == '1'))
        return push_bool(m, text[1] == '1');
    return push_int_line(m, text, len);
}

static bool run_long_line(struct machine *m, const struct operand *operand)
{
    const char *text = span_text(m, operand->text);
    uint32_t len = operand->text.len;
    if (len > 0 && text[len - 1] == 'L')
        len--;
    return push_int_line(m, text, len);
}

/* What Python's repr writes; strtod alone would read hexadecimal and "infinity" too. */
static bool run_float_line(struct machine *m, const struct operand *operand)
{
    const char *text = span_text(m, operand->text);
    uint32_t len = operand->text.len;
    char copy[64];
    char *end = copy;
    struct td_pickle_value value = {.kind = TD_PICKLE_FLOAT};
    if (len > 0 && len < sizeof copy) {
        memcpy(copy, text, len);
        copy[len] = '\0';
        const char *digits = copy + (copy[0] == '-');
        bool is_word = strcmp(digits, "inf") == 0 || strcmp(digits, "nan") == 0;
        if (is_word || strspn(copy, "0123456789+-.eE") == len)
            value.as.real = strtod(copy, &end);
    }
    if (end == copy || *end != '\0' || end != copy + len)
        return FAIL(m, "has \"%.*s\", which is not a number", (int)(len < 32 ? len : 32), text);
    return push_value(m, value);
}

/* ---- strings in text (protocol 0) ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Exactly `digits` of them at text; false when there are fewer. */
static bool read_hex(const char *text, size_t len, size_t digits, uint32_t *out)
{
    uint32_t number = 0;
    if (digits > len)
        return false;
    for (size_t i = 0; i < digits; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0)
            return false;
        number = number << 4 | (uint32_t)digit;
    }
    *out = number;
    return true;
}

/* Surrogates are written like any code point, as by "surrogatepass"; td_utf8_valid then says no. */
static size_t encode_code_point(uint32_t cp, char out[4])
{
    if (cp < 0xd800 || cp > 0xdfff)
        return td_utf8_encode(cp, out);
    out[0] = (char)0xed;
    out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[2] = (char)(0x80 | (cp & 0x3f));
    return 3;
}

/* One character of Python's raw-unicode-escape: \uXXXX, \UXXXXXXXX, or a byte of Latin-1. Any other
 * backslash stands for itself and covers the byte after it. Returns how much was read, 0 when it is
 * malformed. */
static size_t decode_raw_unicode(const char *text, size_t len, char *out, size_t *out_len)
{
    uint32_t cp;
    if (text[0] == '\\' && len > 1 && (text[1] == 'u' || text[1] == 'U')) {
        size_t digits = text[1] == 'u' ? 4 : 8;
        if (!read_hex(text + 2, len - 2, digits, &cp) || cp > 0x10ffff)
            return 0;
        *out_len = encode_code_point(cp, out);
        return 2 + digits;
    }
    *out_len = td_utf8_encode((uint8_t)text[0], out);
    if (text[0] != '\\' || len == 1)
        return 1;
    *out_len += td_utf8_encode((uint8_t)text[1], out + *out_len);
    return 2;
}

/* One byte of Python's string_escape: what repr writes between its quotes. An unknown escape stands for
 * itself. */
static size_t decode_escape(const char *text, size_t len, char *out, size_t *out_len)
{
    static const char letters[] = "\\'\"abfnrtv";
    static const char meant[] = "\\'\"\a\b\f\n\r\t\v";
    *out_len = 1;
    out[0] = text[0];
    if (text[0] != '\\')
        return 1;
    if (len == 1)
        return 0;
    const char *letter = memchr(letters, text[1], sizeof letters - 1);
    if (letter != NULL) {
        out[0] = meant[letter - letters];
        return 2;
    }
    if (text[1] == 'x') {
        uint32_t byte;
        if (!read_hex(text + 2, len - 2, 2, &byte))
            return 0;
        out[0] = (char)byte;
        return 4;
    }
    size_t digits = 0;
    unsigned octal = 0;
    while (digits < 3 && 1 + digits < len && text[1 + digits] >= '0' && text[1 + digits] <= '7')
        octal = octal * 8 + (unsigned)(text[1 + digits++] - '0');
    if (digits > 0) {
        out[0] = (char)(uint8_t)octal;
        return 1 + digits;
    }
    out[1] = text[1];
    *out_len = 2;
    return 2;
}

/* Decodes to the store's text and pushes a STRING. No character grows to more than twice its length. */
static bool push_decoded(struct machine *m, const char *text, size_t len,
                         size_t (*decode)(const char *text, size_t len, char *out, size_t *out_len))
{
    struct td_pool *pool = &m->store->text;
    if (!td_pickle_store_reserve(m->store, pool, 2 * (uint64_t)len, 1))
        return no_memory(m);
    uint32_t off = pool->count;
    char *out = (char *)pool->items + off;
    size_t used = 0;
    for (size_t i = 0; i < len;) {
        char decoded[8];
        size_t out_len;
        size_t read = decode(text + i, len - i, decoded, &out_len);
        if (read == 0)
            return FAIL(m, "has a malformed escape \"%.*s\"", (int)(len - i < 10 ? len - i : 10), text + i);
        memcpy(out + used, decoded, out_len);
        used += out_len;
        i += read;
    }
    pool->count += (uint32_t)used;
    struct span span = {.off = off, .len = (uint32_t)used};
    return push_text(m, TD_PICKLE_STRING, out, span, TD_PICKLE_FLAG_DECODED);
}

static bool run_unicode_line(struct machine *m, const struct operand *operand)
{
    return push_decoded(m, span_text(m, operand->text), operand->text.len, decode_raw_unicode);
}

static bool run_string_line(struct machine *m, const struct operand *operand)
{
    const char *text = span_text(m, operand->text);
    uint32_t len = operand->text.len;
    if (len < 2 || text[0] != text[len - 1] || (text[0] != '\'' && text[0] != '"'))
        return FAIL(m, "has a text that is not in quotes");
    return push_decoded(m, text + 1, len - 2, decode_escape);
}

/* ---- containers ---- */

static bool push_tuple(struct machine *m, uint32_t first, uint32_t count)
{
    struct td_pickle_value value = {.kind = TD_PICKLE_TUPLE, .as.tuple.count = count};
    if (!td_pickle_store_tuple(m->store, stack_of(m) + first, count, &value.as.tuple.first))
        return no_memory(m);
    m->stack.count = first;
    return push_value(m, value);
}

static bool run_tuple(struct machine *m, const struct operand *operand)
{
    uint32_t first, count;
    (void)operand;
    return take_mark(m, &first, &count) && push_tuple(m, first, count);
}

static bool run_tuple_n(struct machine *m, const struct operand *operand)
{
    uint32_t count = m->opcode->argument;
    (void)operand;
    return needs(m, count) && push_tuple(m, m->stack.count - count, count);
}

static bool run_empty(struct machine *m, const struct operand *operand)
{
    (void)operand;
    return push_value(m, (struct td_pickle_value){.kind = (uint8_t)m->opcode->argument});
}

/* Real pickle could not put these into a set or under a key. */
static bool check_hashable(const struct machine *m, td_pickle_ref ref)
{
    enum td_pickle_kind kind = td_pickle_kind(m->pickle, ref);
    if (kind != TD_PICKLE_LIST && kind != TD_PICKLE_DICT && kind != TD_PICKLE_SET &&
        kind != TD_PICKLE_BYTEARRAY)
        return true;
    return FAIL(m, "would hash %s, which is not hashable", td_pickle_kind_name(kind));
}

/* What torch makes tensors of: not containers, though objects. */
static bool is_tensor(const struct td_pickle *pickle, td_pickle_ref ref)
{
    static const char prefix[] = "_rebuild_";
    td_pickle_ref callable = td_pickle_callable(pickle, ref);
    td_pickle_ref module = td_pickle_module(pickle, callable);
    if (!td_pickle_string_is(pickle, module, "torch._utils") &&
        !td_pickle_string_is(pickle, module, "torch._tensor"))
        return false;
    size_t len;
    const char *name = td_pickle_text(pickle, td_pickle_name(pickle, callable), &len);
    return len >= sizeof prefix - 1 && memcmp(name, prefix, sizeof prefix - 1) == 0;
}

/* Appends the stack's values from `first` on to what lies below them. */
static bool append_items(struct machine *m, td_pickle_ref target, uint32_t first, uint32_t count)
{
    enum td_pickle_kind kind = td_pickle_kind(m->pickle, target);
    bool to_set = m->opcode->argument == TD_PICKLE_SET;
    bool is_object = kind == TD_PICKLE_OBJECT && !is_tensor(m->pickle, target);
    if (!is_object && kind != (enum td_pickle_kind)m->opcode->argument)
        return FAIL(m, "adds to %s; it must be %s or an object like one",
                    kind == TD_PICKLE_OBJECT ? "a tensor" : td_pickle_kind_name(kind),
                    to_set ? "a set" : "a list");
    for (uint32_t i = 0; i < count && to_set; i++)
        if (!check_hashable(m, stack_of(m)[first + i]))
            return false;
    uint32_t *part = is_object ? &td_pickle_store_object(m->store, target)->list
                               : &td_pickle_store_value(m->store, target)->as.part;
    if (!td_pickle_store_append(m->store, &m->store->lists, part, stack_of(m) + first, count))
        return no_memory(m);
    m->stack.count = first;
    return true;
}

static bool run_append(struct machine *m, const struct operand *operand)
{
    (void)operand;
    return needs(m, 2) && append_items(m, peek(m, 1), m->stack.count - 1, 1);
}

/* Values since the last MARK, and below it what they are for. */
static bool take_batch(struct machine *m, td_pickle_ref *target, uint32_t *first, uint32_t *count)
{
    if (!take_mark(m, first, count))
        return false;
    if (*first == fence(m))
        return FAIL(m, "has nothing below its MARK to add to");
    *target = stack_of(m)[*first - 1];
    return true;
}

static bool run_appends(struct machine *m, const struct operand *operand)
{
    td_pickle_ref target;
    uint32_t first, count;
    (void)operand;
    return take_batch(m, &target, &first, &count) && append_items(m, target, first, count);
}

static bool set_items(struct machine *m, td_pickle_ref target, uint32_t first, uint32_t count)
{
    enum td_pickle_kind kind = td_pickle_kind(m->pickle, target);
    bool is_object = kind == TD_PICKLE_OBJECT && !is_tensor(m->pickle, target);
    if (kind != TD_PICKLE_DICT && !is_object)
        return FAIL(m, "sets items of %s; it must be a dict or an object like one",
                    kind == TD_PICKLE_OBJECT ? "a tensor" : td_pickle_kind_name(kind));
    if (count % 2 != 0)
        return FAIL(m, "has %" PRIu32 " values; keys and values must come in pairs", count);
    const td_pickle_ref *items = stack_of(m) + first;
    for (uint32_t i = 0; i < count; i += 2) {
        if (!is_object && !check_hashable(m, items[i]))
            return false;
        td_pickle_store_value(m->store, items[i])->flags |= TD_PICKLE_FLAG_KEY;
    }
    uint32_t *part = is_object ? &td_pickle_store_object(m->store, target)->map
                               : &td_pickle_store_value(m->store, target)->as.part;
    if (!td_pickle_store_append(m->store, &m->store->maps, part, items, count))
        return no_memory(m);
    m->stack.count = first;
    return true;
}

static bool run_setitem(struct machine *m, const struct operand *operand)
{
    (void)operand;
    return needs(m, 3) && set_items(m, peek(m, 2), m->stack.count - 2, 2);
}

static bool run_setitems(struct machine *m, const struct operand *operand)
{
    td_pickle_ref target;
    uint32_t first, count;
    (void)operand;
    return take_batch(m, &target, &first, &count) && set_items(m, target, first, count);
}

/* LIST, FROZENSET and DICT are made of the values since the last MARK. */
static bool run_make(struct machine *m, const struct operand *operand)
{
    unsigned kind = m->opcode->argument;
    uint32_t first, count;
    (void)operand;
    if (!take_mark(m, &first, &count))
        return false;
    for (uint32_t i = 0; i < count && kind == TD_PICKLE_FROZENSET; i++)
        if (!check_hashable(m, stack_of(m)[first + i]))
            return false;
    td_pickle_ref made = add(m, (struct td_pickle_value){.kind = (uint8_t)kind});
    if (made == TD_PICKLE_NIL)
        return no_memory(m);
    if (kind == TD_PICKLE_DICT)
        return set_items(m, made, first, count) && push(m, made);
    uint32_t *part = &td_pickle_store_value(m->store, made)->as.part;
    if (!td_pickle_store_append(m->store, &m->store->lists, part, stack_of(m) + first, count))
        return no_memory(m);
    m->stack.count = first;
    return push(m, made);
}

/* ---- globals, persistent ids, calls ---- */

static td_pickle_ref add_name(struct machine *m, struct span span)
{
    struct td_pickle_value value = {.kind = TD_PICKLE_STRING, .as.text = {.off = span.off, .len = span.len}};
    if (td_utf8_valid(span_text(m, span), span.len))
        value.flags = TD_PICKLE_FLAG_UTF8;
    return add(m, value);
}

static bool push_global(struct machine *m, td_pickle_ref module, td_pickle_ref name)
{
    if (module == TD_PICKLE_NIL || name == TD_PICKLE_NIL)
        return no_memory(m);
    return push_value(
        m, (struct td_pickle_value){.kind = TD_PICKLE_GLOBAL, .as.global = {.module = module, .name = name}});
}

static bool run_global(struct machine *m, const struct operand *operand)
{
    return push_global(m, add_name(m, operand->text), add_name(m, operand->second));
}

static bool run_stack_global(struct machine *m, const struct operand *operand)
{
    (void)operand;
    if (!needs(m, 2))
        return false;
    td_pickle_ref module = peek(m, 1);
    td_pickle_ref name = peek(m, 0);
    if (td_pickle_kind(m->pickle, module) != TD_PICKLE_STRING ||
        td_pickle_kind(m->pickle, name) != TD_PICKLE_STRING)
        return FAIL(m, "needs two strings, module and name");
    m->stack.count -= 2;
    return push_global(m, module, name);
}

static bool run_binpersid(struct machine *m, const struct operand *operand)
{
    (void)operand;
    if (!needs(m, 1))
        return false;
    td_pickle_ref id = peek(m, 0);
    enum td_pickle_kind kind = td_pickle_kind(m->pickle, id);
    if (kind != TD_PICKLE_TUPLE)
        return FAIL(m, "has %s for an id; it must be a tuple", td_pickle_kind_name(kind));
    m->stack.count--;
    return push_value(m, (struct td_pickle_value){.kind = TD_PICKLE_PERSISTENT, .as.part = id});
}

static bool check_call(const struct machine *m, const struct td_pickle_object *object)
{
    enum td_pickle_kind callable = td_pickle_kind(m->pickle, object->callable);
    enum td_pickle_kind args = td_pickle_kind(m->pickle, object->args);
    enum td_pickle_kind kwargs = td_pickle_kind(m->pickle, object->kwargs);
    /* Legacy torch files pickle the class of a module as a persistent id, ('module', class, file, source). */
    if (callable != TD_PICKLE_GLOBAL && callable != TD_PICKLE_OBJECT && callable != TD_PICKLE_PERSISTENT)
        return FAIL(m, "calls %s; it must be a global, an object or a persistent id",
                    td_pickle_kind_name(callable));
    if (args != TD_PICKLE_TUPLE)
        return FAIL(m, "has %s for arguments; they must be a tuple", td_pickle_kind_name(args));
    if (kwargs != TD_PICKLE_DICT && kwargs != TD_PICKLE_NOTHING)
        return FAIL(m, "has %s for keyword arguments; they must be a dict", td_pickle_kind_name(kwargs));
    return true;
}

/* Callable and arguments lie on the stack, then for NEWOBJ_EX keyword arguments. */
static bool run_call(struct machine *m, const struct operand *operand)
{
    struct td_pickle_store *store = m->store;
    uint32_t count = m->opcode->argument == TD_PICKLE_NEWOBJ_EX ? 3 : 2;
    (void)operand;
    if (!needs(m, count))
        return false;
    struct td_pickle_object object = {
        .callable = peek(m, count - 1),
        .args = peek(m, count - 2),
        .kwargs = count == 3 ? peek(m, 0) : TD_PICKLE_NIL,
    };
    if (!check_call(m, &object))
        return false;
    struct td_pickle_object *kept = td_chunks_add(store, &store->objects, sizeof object);
    if (kept == NULL)
        return no_memory(m);
    *kept = object;
    m->stack.count -= count;
    return push_value(m, (struct td_pickle_value){.kind = TD_PICKLE_OBJECT,
                                                  .call = (uint8_t)m->opcode->argument,
                                                  .as.part = store->objects.count - 1});
}

static bool run_build(struct machine *m, const struct operand *operand)
{
    (void)operand;
    if (!needs(m, 2))
        return false;
    td_pickle_ref target = peek(m, 1);
    enum td_pickle_kind kind = td_pickle_kind(m->pickle, target);
    if (kind != TD_PICKLE_OBJECT)
        return FAIL(m, "gives a state to %s; it must be an object", td_pickle_kind_name(kind));
    td_pickle_store_object(m->store, target)->state = peek(m, 0);
    m->stack.count--;
    return true;
}

/* ---- the rest ---- */

static bool run_proto(struct machine *m, const struct operand *operand)
{
    if (operand->number <= HIGHEST_PROTOCOL)
        return true;
    return FAIL(m, "says protocol %" PRIu64 "; 0 to %d are known", operand->number, HIGHEST_PROTOCOL);
}

/* As CPython's unpickler in C: the frame must be there, opcodes may cross its end. */
static bool run_frame(struct machine *m, const struct operand *operand)
{
    if (operand->number <= m->len - m->pos)
        return true;
    return FAIL(m, "is of %" PRIu64 " bytes and %zu are left", operand->number, m->len - m->pos);
}

static bool run_refused(struct machine *m, const struct operand *operand)
{
    (void)operand;
    return FAIL(m, "is an opcode that checkpoints do not use, and is not supported");
}

static const struct opcode opcodes[256] = {
    ['('] = {"MARK", OPERAND_NONE, run_mark, 0},
    [')'] = {"EMPTY_TUPLE", OPERAND_NONE, run_tuple_n, 0},
    ['.'] = {"STOP", OPERAND_NONE, run_stop, 0},
    ['0'] = {"POP", OPERAND_NONE, run_pop, 0},
    ['1'] = {"POP_MARK", OPERAND_NONE, run_pop_mark, 0},
    ['2'] = {"DUP", OPERAND_NONE, run_dup, 0},
    ['B'] = {"BINBYTES", OPERAND_TEXT32, run_text, TD_PICKLE_BYTES},
    ['C'] = {"SHORT_BINBYTES", OPERAND_TEXT8, run_text, TD_PICKLE_BYTES},
    ['F'] = {"FLOAT", OPERAND_LINE, run_float_line, 0},
    ['G'] = {"BINFLOAT", OPERAND_U64, run_binfloat, 0},
    ['I'] = {"INT", OPERAND_LINE, run_int_line, 0},
    ['J'] = {"BININT", OPERAND_U32, run_int32, 0},
    ['K'] = {"BININT1", OPERAND_U8, run_uint, 0},
    ['L'] = {"LONG", OPERAND_LINE, run_long_line, 0},
    ['M'] = {"BININT2", OPERAND_U16, run_uint, 0},
    ['N'] = {"NONE", OPERAND_NONE, run_none, 0},
    ['P'] = {"PERSID", OPERAND_NONE, run_refused, 0},
    ['Q'] = {"BINPERSID", OPERAND_NONE, run_binpersid, 0},
    ['R'] = {"REDUCE", OPERAND_NONE, run_call, TD_PICKLE_REDUCE},
    ['S'] = {"STRING", OPERAND_LINE, run_string_line, 0},
    ['T'] = {"BINSTRING", OPERAND_TEXT31, run_text, TD_PICKLE_STRING},
    ['U'] = {"SHORT_BINSTRING", OPERAND_TEXT8, run_text, TD_PICKLE_STRING},
    ['V'] = {"UNICODE", OPERAND_LINE, run_unicode_line, 0},
    ['X'] = {"BINUNICODE", OPERAND_TEXT32, run_text, TD_PICKLE_STRING},
    [']'] = {"EMPTY_LIST", OPERAND_NONE, run_empty, TD_PICKLE_LIST},
    ['a'] = {"APPEND", OPERAND_NONE, run_append, TD_PICKLE_LIST},
    ['b'] = {"BUILD", OPERAND_NONE, run_build, 0},
    ['c'] = {"GLOBAL", OPERAND_TWO_LINES, run_global, 0},
    ['d'] = {"DICT", OPERAND_NONE, run_make, TD_PICKLE_DICT},
    ['e'] = {"APPENDS", OPERAND_NONE, run_appends, TD_PICKLE_LIST},
    ['g'] = {"GET", OPERAND_LINE, run_get_line, 0},
    ['h'] = {"BINGET", OPERAND_U8, run_get, 0},
    ['i'] = {"INST", OPERAND_NONE, run_refused, 0},
    ['j'] = {"LONG_BINGET", OPERAND_U32, run_get, 0},
    ['l'] = {"LIST", OPERAND_NONE, run_make, TD_PICKLE_LIST},
    ['o'] = {"OBJ", OPERAND_NONE, run_refused, 0},
    ['p'] = {"PUT", OPERAND_LINE, run_put_line, 0},
    ['q'] = {"BINPUT", OPERAND_U8, run_put, 0},
    ['r'] = {"LONG_BINPUT", OPERAND_U32, run_put, 0},
    ['s'] = {"SETITEM", OPERAND_NONE, run_setitem, 0},
    ['t'] = {"TUPLE", OPERAND_NONE, run_tuple, 0},
    ['u'] = {"SETITEMS", OPERAND_NONE, run_setitems, 0},
    ['}'] = {"EMPTY_DICT", OPERAND_NONE, run_empty, TD_PICKLE_DICT},
    [0x80] = {"PROTO", OPERAND_U8, run_proto, 0},
    [0x81] = {"NEWOBJ", OPERAND_NONE, run_call, TD_PICKLE_NEWOBJ},
    [0x82] = {"EXT1", OPERAND_NONE, run_refused, 0},
    [0x83] = {"EXT2", OPERAND_NONE, run_refused, 0},
    [0x84] = {"EXT4", OPERAND_NONE, run_refused, 0},
    [0x85] = {"TUPLE1", OPERAND_NONE, run_tuple_n, 1},
    [0x86] = {"TUPLE2", OPERAND_NONE, run_tuple_n, 2},
    [0x87] = {"TUPLE3", OPERAND_NONE, run_tuple_n, 3},
    [0x88] = {"NEWTRUE", OPERAND_NONE, run_bool, 1},
    [0x89] = {"NEWFALSE", OPERAND_NONE, run_bool, 0},
    [0x8a] = {"LONG1", OPERAND_TEXT8, run_long, 0},
    [0x8b] = {"LONG4", OPERAND_TEXT31, run_long, 0},
    [0x8c] = {"SHORT_BINUNICODE", OPERAND_TEXT8, run_text, TD_PICKLE_STRING},
    [0x8d] = {"BINUNICODE8", OPERAND_TEXT64, run_text, TD_PICKLE_STRING},
    [0x8e] = {"BINBYTES8", OPERAND_TEXT64, run_text, TD_PICKLE_BYTES},
    [0x8f] = {"EMPTY_SET", OPERAND_NONE, run_empty, TD_PICKLE_SET},
    [0x90] = {"ADDITEMS", OPERAND_NONE, run_appends, TD_PICKLE_SET},
    [0x91] = {"FROZENSET", OPERAND_NONE, run_make, TD_PICKLE_FROZENSET},
    [0x92] = {"NEWOBJ_EX", OPERAND_NONE, run_call, TD_PICKLE_NEWOBJ_EX},
    [0x93] = {"STACK_GLOBAL", OPERAND_NONE, run_stack_global, 0},
    [0x94] = {"MEMOIZE", OPERAND_NONE, run_memoize, 0},
    [0x95] = {"FRAME", OPERAND_U64, run_frame, 0},
    [0x96] = {"BYTEARRAY8", OPERAND_TEXT64, run_text, TD_PICKLE_BYTEARRAY},
    [0x97] = {"NEXT_BUFFER", OPERAND_NONE, run_refused, 0},
    [0x98] = {"READONLY_BUFFER", OPERAND_NONE, run_refused, 0},
};

static bool run_next(struct machine *m)
{
    struct operand operand = {.number = 0};
    uint64_t at = m->pickle->base + m->pos;
    if (m->pos == m->len)
        return td_error_at(m->err, TD_INVALID_ARGUMENT, at, "pickle: it ends without STOP");
    m->opcode_at = m->pos;
    m->opcode = &opcodes[m->bytes[m->pos++]];
    if (m->opcode->run == NULL)
        return td_error_at(m->err, TD_INVALID_ARGUMENT, at, "pickle: 0x%02x is no opcode",
                           m->bytes[m->opcode_at]);
    m->pickle->op_count++;
    return take_operand(m, &operand) && m->opcode->run(m, &operand);
}

static bool run_all(struct machine *m)
{
    struct td_pickle *pickle = m->pickle;
    if (!td_pickle_store_reserve(m->store, &m->stack, 1, sizeof(td_pickle_ref)) ||
        !td_pickle_store_reserve(m->store, &m->marks, 1, sizeof(uint32_t)))
        return no_memory(m);
    ((uint32_t *)m->marks.items)[0] = 1;
    while (!m->stopped)
        if (!run_next(m))
            return false;
    pickle->end = m->pos;
    pickle->value_count = m->store->values.count - 1;
    return true;
}

static bool parse(struct machine *m, bool allow_trailing)
{
    bool ok = run_all(m);
    td_chunks_drop(m->store, &m->memo, sizeof(td_pickle_ref));
    td_pickle_store_release(m->store, m->sparse_memo, m->sparse_slots, sizeof *m->sparse_memo);
    td_pickle_store_drop(m->store, &m->stack, sizeof(td_pickle_ref));
    td_pickle_store_drop(m->store, &m->marks, sizeof(uint32_t));
    if (!ok)
        return false;
    if (!allow_trailing && m->pos < m->len)
        return td_error_at(m->err, TD_INVALID_ARGUMENT, m->pickle->base + m->pos,
                           "pickle: %zu bytes follow STOP, which must be the last", m->len - m->pos);
    return td_pickle_store_finish_maps(m->pickle) || no_memory(m);
}

bool td_pickle_parse(struct td_pickle *pickle, const uint8_t *bytes, size_t len, size_t start,
                     const struct td_pickle_options *options, struct td_error *err)
{
    *pickle = (struct td_pickle){.bytes = bytes, .base = options->base};
    if (len > UINT32_MAX)
        return td_error_set(err, TD_RESOURCE_EXHAUSTED, "a pickle of %zu bytes; at most %" PRIu32 " are read",
                            len, UINT32_MAX);
    if (start > len)
        return td_error_at(err, TD_INVALID_ARGUMENT, options->base + len, "pickle: begins past the end");
    struct machine m = {
        .pickle = pickle,
        .bytes = bytes,
        .len = len,
        .pos = start,
        .opcode_at = start,
        .err = err,
    };
    m.store = pickle->store = td_pickle_store_create(options->max_memory_bytes);
    if (m.store == NULL)
        return no_memory(&m);
    if (parse(&m, options->allow_trailing))
        return true;
    td_pickle_fini(pickle);
    return false;
}

void td_pickle_fini(struct td_pickle *pickle)
{
    td_pickle_store_destroy(pickle->store);
    memset(pickle, 0, sizeof *pickle);
}
