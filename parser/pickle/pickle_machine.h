/* The machine that runs a pickle's opcodes: its operands, its stack and its values. What pickle.c (the opcodes' table)
 * and the files of opcodes beside it share; for these only.
 *
 * Functions that return false have reported why. */
#ifndef TD_PARSER_PICKLE_MACHINE_H
#define TD_PARSER_PICKLE_MACHINE_H

#include "parser/pickle/pickle.h"
#include "parser/pickle/pickle_store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum td_operand_kind {
    TD_OPERAND_NONE,
    TD_OPERAND_U8,
    TD_OPERAND_U16,
    TD_OPERAND_U32,
    TD_OPERAND_U64,
    TD_OPERAND_TEXT8, /* that many bytes of length, then the bytes */
    TD_OPERAND_TEXT32,
    TD_OPERAND_TEXT31, /* a signed length */
    TD_OPERAND_TEXT64,
    TD_OPERAND_LINE, /* up to a newline */
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
    bool (*run)(struct td_machine *m, const struct td_operand *operand);
    unsigned argument; /* what distinguishes opcodes that share a function */
};

struct td_machine {
    struct td_pickle *pickle;
    struct td_pickle_store *store;
    const uint8_t *bytes;
    size_t len, pos;
    size_t opcode_at;
    const struct td_opcode *opcode;
    struct td_pool stack;             /* td_pickle_ref, the lowest at 1 */
    struct td_pool marks;             /* uint32_t: the stack's height at every MARK; marks[0] = 1, its bottom */
    struct td_chunks memo;            /* td_pickle_ref by index, as long as they come in order: 0, 1, 2 ... */
    struct td_memo_slot *sparse_memo; /* a hash table of the others */
    size_t sparse_slots;              /* a power of two */
    size_t sparse_count;
    uint64_t probes;
    uint32_t copied; /* items that calls of mappings copied */
    bool stopped;
    struct td_error *err;
};

/* ---- refusals ---- */

void td_machine_refuse(const struct td_machine *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Refuses the pickle for its current opcode. Always false, in a way that analysers see. */
#define TD_REFUSE(...) (td_machine_refuse(__VA_ARGS__), false)

/* Always false. */
bool td_machine_no_memory(const struct td_machine *m);

/* ---- operands ---- */

/* Reads what follows the current opcode. */
bool td_machine_take_operand(struct td_machine *m, struct td_operand *operand);

static inline const char *td_machine_text(const struct td_machine *m, struct td_pickle_span span)
{
    return (const char *)m->bytes + span.off;
}

/* ---- the stack ---- */

static inline td_pickle_ref *td_machine_stack(const struct td_machine *m)
{
    return m->stack.items;
}

/* The stack's height at the last MARK: what lies below cannot be taken before the mark is. */
static inline uint32_t td_machine_fence(const struct td_machine *m)
{
    return ((const uint32_t *)m->marks.items)[m->marks.count - 1];
}

/* The i-th value from the top, which is 0. */
static inline td_pickle_ref td_machine_peek(const struct td_machine *m, uint32_t i)
{
    return td_machine_stack(m)[m->stack.count - 1 - i];
}

/* Whether so many values lie above the last MARK. */
bool td_machine_needs(const struct td_machine *m, uint32_t count);

/* NIL is taken for want of memory. */
bool td_machine_push(struct td_machine *m, td_pickle_ref ref);

/* Takes the last MARK away. The values above it stay until the caller drops them: *count of them from
 * *first on. */
bool td_machine_take_mark(struct td_machine *m, uint32_t *first, uint32_t *count);

/* ---- values ---- */

/* A new value of the current opcode; NIL when out of memory, which is not reported. */
td_pickle_ref td_machine_add(struct td_machine *m, struct td_pickle_value value);

bool td_machine_push_value(struct td_machine *m, struct td_pickle_value value);
bool td_machine_push_bool(struct td_machine *m, bool truth);
bool td_machine_push_int(struct td_machine *m, int64_t integer);

/* A value whose bytes are `text`, which lies at `span` of the caller's bytes, or of the store's text with
 * TD_PICKLE_FLAG_DECODED. */
bool td_machine_push_text(struct td_machine *m, enum td_pickle_kind kind, const char *text, struct td_pickle_span span,
                          unsigned flags);

/* Two's complement without the bytes that only repeat the sign. */
uint32_t td_twos_complement_len(const uint8_t *bytes, uint32_t len);
int64_t td_load_twos_complement(const uint8_t *bytes, uint32_t len); /* at most 8 bytes */

/* ---- opcodes: functions of the table in pickle.c ---- */

/* pickle_memo.c */
bool td_run_put(struct td_machine *m, const struct td_operand *operand);
bool td_run_get(struct td_machine *m, const struct td_operand *operand);
bool td_run_memoize(struct td_machine *m, const struct td_operand *operand);
bool td_run_put_line(struct td_machine *m, const struct td_operand *operand);
bool td_run_get_line(struct td_machine *m, const struct td_operand *operand);

/* pickle_text.c */
bool td_run_int_line(struct td_machine *m, const struct td_operand *operand);
bool td_run_long_line(struct td_machine *m, const struct td_operand *operand);
bool td_run_float_line(struct td_machine *m, const struct td_operand *operand);
bool td_run_unicode_line(struct td_machine *m, const struct td_operand *operand);
bool td_run_string_line(struct td_machine *m, const struct td_operand *operand);

/* pickle_container.c */

/* What an OBJECT is when no items and no state can be given to it ("a tensor"); NULL for every other value. */
const char *td_machine_made_by_torch(const struct td_machine *m, td_pickle_ref ref);

/* Copies into the object that a REDUCE made the items that it is called with, if it is a mapping. */
bool td_machine_fill_mapping(struct td_machine *m, td_pickle_ref made);

bool td_run_tuple(struct td_machine *m, const struct td_operand *operand);
bool td_run_tuple_n(struct td_machine *m, const struct td_operand *operand);
bool td_run_empty(struct td_machine *m, const struct td_operand *operand);
bool td_run_append(struct td_machine *m, const struct td_operand *operand);
bool td_run_appends(struct td_machine *m, const struct td_operand *operand);
bool td_run_setitem(struct td_machine *m, const struct td_operand *operand);
bool td_run_setitems(struct td_machine *m, const struct td_operand *operand);
bool td_run_make(struct td_machine *m, const struct td_operand *operand);

#endif
