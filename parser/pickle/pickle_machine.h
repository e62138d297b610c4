/* The machine that runs a pickle's opcodes: its operands, its stack and its values. Only for parser/pickle:
 *
 *   pickle            the table of opcodes, the simple opcodes and those of the memo, and the parser around them
 *   pickle_text       opcodes whose operand is a line of text
 *   pickle_container  opcodes of tuples, lists, sets and dicts
 *   pickle_map        the last step, unique keys; reading mappings
 *   pickle_store      the memory of all values
 *
 * A function that returns false has set m->err, unless its comment says otherwise. */
#ifndef TD_PARSER_PICKLE_PICKLE_MACHINE_H
#define TD_PARSER_PICKLE_PICKLE_MACHINE_H

#include "core/error.h"
#include "parser/pickle/pickle_store.h"
#include "parser/pickle/pickle_types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum td_operand_kind {
    TD_OPERAND_NONE,
    TD_OPERAND_U8,
    TD_OPERAND_U16,
    TD_OPERAND_U32,
    TD_OPERAND_U64,
    TD_OPERAND_TEXT8, /* a length of 8 bits (below: 32, 31 or 64 bits), then the bytes */
    TD_OPERAND_TEXT32,
    TD_OPERAND_TEXT31, /* the length is signed */
    TD_OPERAND_TEXT64,
    TD_OPERAND_LINE, /* the bytes up to a newline */
    TD_OPERAND_TWO_LINES,
};

struct td_pickle_span {
    uint32_t off, len; /* in the caller's bytes */
};

struct td_operand {
    uint64_t number;
    struct td_pickle_span text, second;
};

struct td_memo_slot {
    uint32_t index;
    td_pickle_ref ref; /* NIL: free */
};

struct td_machine;

struct td_opcode {
    const char *name;
    enum td_operand_kind operand;
    bool (*run)(struct td_machine *m);
    unsigned argument; /* distinguishes opcodes that share a function */
};

struct td_machine {
    struct td_pickle *pickle;
    struct td_pickle_store *store;
    const uint8_t *bytes;
    size_t len, pos;
    size_t opcode_at;
    const struct td_opcode *opcode;
    struct td_operand operand;        /* of the opcode */
    struct td_pool stack;             /* td_pickle_ref; the lowest is at 1 */
    struct td_pool marks;             /* uint32_t: the stack's height at every MARK; marks[0] = 1, the bottom */
    struct td_chunks memo;            /* td_pickle_ref by index, for indices that come in order: 0, 1, 2 ... */
    struct td_memo_slot *sparse_memo; /* a hash table of the other indices */
    size_t sparse_slots;              /* a power of two */
    size_t sparse_count;
    uint64_t probes; /* of sparse_memo so far */
    uint32_t copied; /* items that calls of mappings have copied so far */
    bool stopped;
    struct td_error *err;
};

/* ---- refusals ---- */

/* Sets the error "pickle: OPCODE message" at the current opcode. */
void td_machine_refuse(const struct td_machine *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Refuses the pickle for its current opcode. Is false, in a way that analysers see. */
#define TD_REFUSE(...) (td_machine_refuse(__VA_ARGS__), false)

/* Reports that memory is short. Returns false. */
bool td_machine_no_memory(const struct td_machine *m);

/* ---- operands ---- */

/* Reads the operand of the current opcode into m->operand. */
bool td_machine_take_operand(struct td_machine *m);

/* Returns the first byte of a span of the caller's bytes; not terminated. */
static inline const char *td_machine_text(const struct td_machine *m, struct td_pickle_span span)
{
    return (const char *)m->bytes + span.off;
}

/* ---- the stack ---- */

/* Returns the stack's values, the lowest at index 1. Valid until a value is pushed. */
static inline td_pickle_ref *td_machine_stack(const struct td_machine *m)
{
    return m->stack.items;
}

/* Returns the stack's height at the last MARK. Values below it cannot be taken before the MARK is. */
static inline uint32_t td_machine_fence(const struct td_machine *m)
{
    return ((const uint32_t *)m->marks.items)[m->marks.count - 1];
}

/* Returns the i-th value from the top of the stack; 0 is the top. */
static inline td_pickle_ref td_machine_peek(const struct td_machine *m, uint32_t i)
{
    return td_machine_stack(m)[m->stack.count - 1 - i];
}

/* Requires `count` values above the last MARK. */
bool td_machine_needs(const struct td_machine *m, uint32_t count);

/* Pushes a value. NIL is reported as want of memory. */
bool td_machine_push(struct td_machine *m, td_pickle_ref ref);

/* Removes the last MARK. The *count values above it, from *first on, stay until the caller drops them. */
bool td_machine_take_mark(struct td_machine *m, uint32_t *first, uint32_t *count);

/* ---- values ---- */

/* Adds a value at the current opcode. Returns NIL, without an error, when out of memory. */
td_pickle_ref td_machine_add(struct td_machine *m, struct td_pickle_value value);

/* Add a value and push it. */
bool td_machine_push_value(struct td_machine *m, struct td_pickle_value value);
bool td_machine_push_bool(struct td_machine *m, bool truth);
bool td_machine_push_int(struct td_machine *m, int64_t integer);

/* Adds and pushes a value whose bytes are `text`. The bytes are at `span` of the caller's bytes, or of the store's text
 * with TD_PICKLE_FLAG_DECODED. */
bool td_machine_push_text(struct td_machine *m, enum td_pickle_kind kind, const char *text, struct td_pickle_span span,
                          unsigned flags);

/* Returns the length of a little-endian two's complement number without the bytes that only repeat the sign. */
uint32_t td_twos_complement_len(const uint8_t *bytes, uint32_t len);

/* Returns a little-endian two's complement number of at most 8 bytes; 0 for none. */
int64_t td_load_twos_complement(const uint8_t *bytes, uint32_t len);

#endif
