/* The opcodes. A table gives each opcode its name, its kind of operand and the function that runs it. The operand is
 * read and bounded before the function runs. An opcode takes its arguments from the stack and pushes its result there,
 * as in CPython, but a value is a number into the store and no call is ever made.
 *
 * What is hard: nothing may take more time or memory than the pickle's length allows. Shared values are therefore never
 * copied, with one exception: a REDUCE of a mapping copies its items (td_machine_fill_mapping), within a bound. */
#include "parser/pickle/pickle.h"

#include "core/digits.h"
#include "core/utf8.h"
#include "parser/pickle/pickle_container.h"
#include "parser/pickle/pickle_machine.h"
#include "parser/pickle/pickle_map.h"
#include "parser/pickle/pickle_store.h"
#include "parser/pickle/pickle_text.h"

#include <inttypes.h>
#include <string.h>

enum { HIGHEST_PROTOCOL = 5 };

/* ---- the stack ---- */

static bool run_mark(struct td_machine *m)
{
    if (!td_pickle_store_reserve(m->store, &m->marks, 1, sizeof(uint32_t)))
        return td_machine_no_memory(m);
    ((uint32_t *)m->marks.items)[m->marks.count++] = m->stack.count;
    return true;
}

/* As in Python, a POP with nothing above the last MARK removes the MARK. */
static bool run_pop(struct td_machine *m)
{
    if (m->marks.count > 1 && td_machine_fence(m) == m->stack.count) {
        m->marks.count--;
        return true;
    }
    if (!td_machine_needs(m, 1))
        return false;
    m->stack.count--;
    return true;
}

static bool run_pop_mark(struct td_machine *m)
{
    uint32_t first, count;
    if (!td_machine_take_mark(m, &first, &count))
        return false;
    m->stack.count = first;
    return true;
}

static bool run_dup(struct td_machine *m)
{
    return td_machine_needs(m, 1) && td_machine_push(m, td_machine_peek(m, 0));
}

static bool run_stop(struct td_machine *m)
{
    if (m->marks.count > 1)
        return TD_REFUSE(m, "comes while %" PRIu32 " MARKs are open", m->marks.count - 1);
    if (m->stack.count != 2)
        return TD_REFUSE(m, "must find one value on the stack, which has %" PRIu32, m->stack.count - 1);
    m->pickle->root = td_machine_peek(m, 0);
    m->stopped = true;
    return true;
}

/* ---- plain values ---- */

static bool run_none(struct td_machine *m)
{
    return td_machine_push_value(m, (struct td_pickle_value){.kind = TD_PICKLE_NONE});
}

static bool run_bool(struct td_machine *m)
{
    return td_machine_push_bool(m, m->opcode->argument != 0);
}

static bool run_uint(struct td_machine *m)
{
    return td_machine_push_int(m, (int64_t)m->operand.number);
}

static bool run_int32(struct td_machine *m)
{
    return td_machine_push_int(m, (int32_t)(uint32_t)m->operand.number);
}

static bool run_long(struct td_machine *m)
{
    const uint8_t *bytes = m->bytes + m->operand.text.off;
    uint32_t len = td_twos_complement_len(bytes, m->operand.text.len);
    if (len <= sizeof(int64_t))
        return td_machine_push_int(m, td_load_twos_complement(bytes, len));
    return td_machine_push_value(m, (struct td_pickle_value){.kind = TD_PICKLE_INT,
                                                             .flags = TD_PICKLE_FLAG_BIG,
                                                             .as.text = {.off = m->operand.text.off, .len = len}});
}

/* Eight bytes, big-endian. */
static bool run_binfloat(struct td_machine *m)
{
    uint64_t bits = __builtin_bswap64(m->operand.number);
    struct td_pickle_value value = {.kind = TD_PICKLE_FLOAT};
    memcpy(&value.as.real, &bits, sizeof bits);
    return td_machine_push_value(m, value);
}

static bool run_text(struct td_machine *m)
{
    return td_machine_push_text(m, (enum td_pickle_kind)m->opcode->argument, td_machine_text(m, m->operand.text),
                                m->operand.text, 0);
}

/* ---- globals, persistent ids, calls ---- */

/* Adds a STRING that is a part of a GLOBAL. */
static td_pickle_ref add_name(struct td_machine *m, struct td_pickle_span span)
{
    struct td_pickle_value value = {.kind = TD_PICKLE_STRING, .as.text = {.off = span.off, .len = span.len}};
    if (td_utf8_valid(td_machine_text(m, span), span.len))
        value.flags = TD_PICKLE_FLAG_UTF8;
    return td_machine_add(m, value);
}

static bool push_global(struct td_machine *m, td_pickle_ref module, td_pickle_ref name)
{
    if (module == TD_PICKLE_NIL || name == TD_PICKLE_NIL)
        return td_machine_no_memory(m);
    return td_machine_push_value(
        m, (struct td_pickle_value){.kind = TD_PICKLE_GLOBAL, .as.global = {.module = module, .name = name}});
}

static bool run_global(struct td_machine *m)
{
    return push_global(m, add_name(m, m->operand.text), add_name(m, m->operand.second));
}

static bool run_stack_global(struct td_machine *m)
{
    if (!td_machine_needs(m, 2))
        return false;
    td_pickle_ref module = td_machine_peek(m, 1);
    td_pickle_ref name = td_machine_peek(m, 0);
    if (td_pickle_kind(m->pickle, module) != TD_PICKLE_STRING || td_pickle_kind(m->pickle, name) != TD_PICKLE_STRING)
        return TD_REFUSE(m, "needs two strings, module and name");
    m->stack.count -= 2;
    return push_global(m, module, name);
}

static bool run_binpersid(struct td_machine *m)
{
    if (!td_machine_needs(m, 1))
        return false;
    td_pickle_ref id = td_machine_peek(m, 0);
    enum td_pickle_kind kind = td_pickle_kind(m->pickle, id);
    if (kind != TD_PICKLE_TUPLE)
        return TD_REFUSE(m, "has %s for an id; it must be a tuple", td_pickle_kind_name(kind));
    m->stack.count--;
    return td_machine_push_value(m, (struct td_pickle_value){.kind = TD_PICKLE_PERSISTENT, .as.part = id});
}

static bool check_call(const struct td_machine *m, const struct td_pickle_object *object)
{
    enum td_pickle_kind callable = td_pickle_kind(m->pickle, object->callable);
    enum td_pickle_kind args = td_pickle_kind(m->pickle, object->args);
    enum td_pickle_kind kwargs = td_pickle_kind(m->pickle, object->kwargs);
    /* Legacy torch files pickle the class of a module as a persistent id, ('module', class, file, source). */
    if (callable != TD_PICKLE_GLOBAL && callable != TD_PICKLE_OBJECT && callable != TD_PICKLE_PERSISTENT)
        return TD_REFUSE(m, "calls %s; it must be a global, an object or a persistent id",
                         td_pickle_kind_name(callable));
    if (args != TD_PICKLE_TUPLE)
        return TD_REFUSE(m, "has %s for arguments; they must be a tuple", td_pickle_kind_name(args));
    if (kwargs != TD_PICKLE_DICT && kwargs != TD_PICKLE_NOTHING)
        return TD_REFUSE(m, "has %s for keyword arguments; they must be a dict", td_pickle_kind_name(kwargs));
    return true;
}

/* The stack holds the callable, the arguments and, for NEWOBJ_EX, the keyword arguments. */
static bool run_call(struct td_machine *m)
{
    struct td_pickle_store *store = m->store;
    uint32_t count = m->opcode->argument == TD_PICKLE_NEWOBJ_EX ? 3 : 2;
    if (!td_machine_needs(m, count))
        return false;
    struct td_pickle_object object = {
        .callable = td_machine_peek(m, count - 1),
        .args = td_machine_peek(m, count - 2),
        .kwargs = count == 3 ? td_machine_peek(m, 0) : TD_PICKLE_NIL,
    };
    if (!check_call(m, &object))
        return false;
    struct td_pickle_object *kept = td_chunks_add(store, &store->objects, sizeof object);
    if (kept == NULL)
        return td_machine_no_memory(m);
    *kept = object;
    m->stack.count -= count;
    if (!td_machine_push_value(m, (struct td_pickle_value){.kind = TD_PICKLE_OBJECT,
                                                           .call = (uint8_t)m->opcode->argument,
                                                           .as.part = store->objects.count - 1}))
        return false;
    return m->opcode->argument != TD_PICKLE_REDUCE || td_machine_fill_mapping(m, td_machine_peek(m, 0));
}

static bool run_build(struct td_machine *m)
{
    if (!td_machine_needs(m, 2))
        return false;
    td_pickle_ref target = td_machine_peek(m, 1);
    enum td_pickle_kind kind = td_pickle_kind(m->pickle, target);
    if (kind != TD_PICKLE_OBJECT)
        return TD_REFUSE(m, "gives a state to %s; it must be an object", td_pickle_kind_name(kind));
    const char *made = td_machine_made_by_torch(m, target);
    if (made != NULL)
        return TD_REFUSE(m, "gives a state to %s, which then would be another", made);
    struct td_pickle_object *object = td_pickle_store_object(m->store, target);
    if (object->state != TD_PICKLE_NIL)
        return TD_REFUSE(m, "gives a state to an object that has one");
    object->state = td_machine_peek(m, 0);
    object->built_at = (uint32_t)m->opcode_at;
    m->stack.count--;
    return true;
}

/* ---- the memo ----
 * Picklers number their memo entries from 0, so the entries fill an array of four bytes each. An entry with an index
 * out of turn goes to a hash table. So an index never decides how much memory is allocated. */

enum {
    MEMO_FIRST_SLOTS = 32,
    PROBES_PER_OPCODE = 32, /* see sparse_slot */
    PROBES_FREE = 4096,
};

/* Returns the slot that holds the index, or the free slot for it. Returns NULL when all searches together took more
 * probes than chance allows, which happens only with indices that were made up to collide. The hash has no secret, so
 * without this bound such a pickle would take quadratic time. */
static struct td_memo_slot *sparse_slot(struct td_machine *m, uint32_t index)
{
    size_t mask = m->sparse_slots - 1;
    uint64_t hash = index * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = (size_t)(hash >> __builtin_clzll(mask));; i = (i + 1) & mask) {
        struct td_memo_slot *slot = &m->sparse_memo[i];
        if (slot->ref == TD_PICKLE_NIL || slot->index == index)
            return slot;
        if (++m->probes > PROBES_FREE + m->pickle->op_count * PROBES_PER_OPCODE)
            return NULL;
    }
}

static bool memo_collides(const struct td_machine *m)
{
    return TD_REFUSE(m, "uses memo indices that are made up to collide");
}

/* Makes room for one more entry: the table is at most three quarters full. */
static bool sparse_reserve(struct td_machine *m)
{
    if (m->sparse_count < m->sparse_slots / 4 * 3)
        return true;
    size_t old_slots = m->sparse_slots;
    struct td_memo_slot *old = m->sparse_memo;
    size_t slots = old_slots == 0 ? MEMO_FIRST_SLOTS : 2 * old_slots;
    struct td_memo_slot *fresh = td_pickle_store_claim(m->store, slots, sizeof *fresh);
    if (fresh == NULL)
        return td_machine_no_memory(m);
    m->sparse_memo = fresh;
    m->sparse_slots = slots;
    bool ok = true;
    for (size_t i = 0; i < old_slots && ok; i++) {
        if (old[i].ref == TD_PICKLE_NIL)
            continue;
        struct td_memo_slot *slot = sparse_slot(m, old[i].index);
        if (slot != NULL)
            *slot = old[i];
        else
            ok = memo_collides(m);
    }
    td_pickle_store_release(m->store, old, old_slots, sizeof *old);
    return ok;
}

/* Sets *ref to the value at the index, or to NIL. Returns false when the search was refused. */
static bool sparse_find(struct td_machine *m, uint32_t index, td_pickle_ref *ref)
{
    *ref = TD_PICKLE_NIL;
    if (m->sparse_count == 0)
        return true;
    const struct td_memo_slot *slot = sparse_slot(m, index);
    if (slot == NULL)
        return memo_collides(m);
    *ref = slot->ref;
    return true;
}

static bool sparse_put(struct td_machine *m, uint32_t index, td_pickle_ref ref)
{
    if (!sparse_reserve(m))
        return false;
    struct td_memo_slot *slot = sparse_slot(m, index);
    if (slot == NULL)
        return memo_collides(m);
    if (slot->ref == TD_PICKLE_NIL) {
        m->sparse_count++;
        m->pickle->memo_count++;
    }
    *slot = (struct td_memo_slot){.index = index, .ref = ref};
    return true;
}

/* Puts the top of the stack at the index. An entry stays in the array or in the table, wherever it was put first, so
 * that it is in one place only. */
static bool memo_put(struct td_machine *m, uint32_t index)
{
    td_pickle_ref before;
    if (!td_machine_needs(m, 1))
        return false;
    if (index < m->memo.count) {
        *(td_pickle_ref *)td_chunks_at(&m->memo, index, sizeof before) = td_machine_peek(m, 0);
        return true;
    }
    if (index > m->memo.count)
        return sparse_put(m, index, td_machine_peek(m, 0));
    if (!sparse_find(m, index, &before))
        return false;
    if (before != TD_PICKLE_NIL)
        return sparse_put(m, index, td_machine_peek(m, 0));
    td_pickle_ref *entry = td_chunks_add(m->store, &m->memo, sizeof *entry);
    if (entry == NULL)
        return td_machine_no_memory(m);
    *entry = td_machine_peek(m, 0);
    m->pickle->memo_count++;
    return true;
}

static bool memo_get(struct td_machine *m, uint32_t index)
{
    td_pickle_ref ref;
    if (index < m->memo.count)
        return td_machine_push(m, *(td_pickle_ref *)td_chunks_at(&m->memo, index, sizeof ref));
    if (!sparse_find(m, index, &ref))
        return false;
    if (ref == TD_PICKLE_NIL)
        return TD_REFUSE(m, "reads memo entry %" PRIu32 ", which was never written", index);
    return td_machine_push(m, ref);
}

static bool run_put(struct td_machine *m)
{
    return memo_put(m, (uint32_t)m->operand.number);
}

static bool run_get(struct td_machine *m)
{
    return memo_get(m, (uint32_t)m->operand.number);
}

static bool run_memoize(struct td_machine *m)
{
    return memo_put(m, m->pickle->memo_count);
}

/* Reads the index of a PUT or GET in text: digits only. */
static bool line_index(const struct td_machine *m, struct td_pickle_span line, uint32_t *index)
{
    const char *text = td_machine_text(m, line);
    uint64_t number = 0;
    if (!td_number_read(td_text_n(text, line.len), UINT32_MAX, &number))
        return TD_REFUSE(m, "has the index \"%.*s\", which is not a number below 2^32",
                         TD_SHOW(td_text_n(text, line.len), 32));
    *index = (uint32_t)number;
    return true;
}

static bool run_put_line(struct td_machine *m)
{
    uint32_t index;
    return line_index(m, m->operand.text, &index) && memo_put(m, index);
}

static bool run_get_line(struct td_machine *m)
{
    uint32_t index;
    return line_index(m, m->operand.text, &index) && memo_get(m, index);
}

/* ---- the rest ---- */

static bool run_proto(struct td_machine *m)
{
    if (m->operand.number <= HIGHEST_PROTOCOL)
        return true;
    return TD_REFUSE(m, "says protocol %" PRIu64 "; 0 to %d are known", m->operand.number, HIGHEST_PROTOCOL);
}

/* Does as CPython's unpickler in C: all bytes of the frame must be there, but opcodes may cross its end. */
static bool run_frame(struct td_machine *m)
{
    if (m->operand.number <= m->len - m->pos)
        return true;
    return TD_REFUSE(m, "has %" PRIu64 " bytes, but %zu are left", m->operand.number, m->len - m->pos);
}

static bool run_refused(struct td_machine *m)
{
    return TD_REFUSE(m, "is an opcode that checkpoints do not use, and is not supported");
}

static const struct td_opcode opcodes[256] = {
    ['('] = {"MARK", TD_OPERAND_NONE, run_mark, 0},
    [')'] = {"EMPTY_TUPLE", TD_OPERAND_NONE, td_run_tuple_n, 0},
    ['.'] = {"STOP", TD_OPERAND_NONE, run_stop, 0},
    ['0'] = {"POP", TD_OPERAND_NONE, run_pop, 0},
    ['1'] = {"POP_MARK", TD_OPERAND_NONE, run_pop_mark, 0},
    ['2'] = {"DUP", TD_OPERAND_NONE, run_dup, 0},
    ['B'] = {"BINBYTES", TD_OPERAND_TEXT32, run_text, TD_PICKLE_BYTES},
    ['C'] = {"SHORT_BINBYTES", TD_OPERAND_TEXT8, run_text, TD_PICKLE_BYTES},
    ['F'] = {"FLOAT", TD_OPERAND_LINE, td_run_float_line, 0},
    ['G'] = {"BINFLOAT", TD_OPERAND_U64, run_binfloat, 0},
    ['I'] = {"INT", TD_OPERAND_LINE, td_run_int_line, 0},
    ['J'] = {"BININT", TD_OPERAND_U32, run_int32, 0},
    ['K'] = {"BININT1", TD_OPERAND_U8, run_uint, 0},
    ['L'] = {"LONG", TD_OPERAND_LINE, td_run_long_line, 0},
    ['M'] = {"BININT2", TD_OPERAND_U16, run_uint, 0},
    ['N'] = {"NONE", TD_OPERAND_NONE, run_none, 0},
    ['P'] = {"PERSID", TD_OPERAND_NONE, run_refused, 0},
    ['Q'] = {"BINPERSID", TD_OPERAND_NONE, run_binpersid, 0},
    ['R'] = {"REDUCE", TD_OPERAND_NONE, run_call, TD_PICKLE_REDUCE},
    ['S'] = {"STRING", TD_OPERAND_LINE, td_run_string_line, 0},
    ['T'] = {"BINSTRING", TD_OPERAND_TEXT31, run_text, TD_PICKLE_STRING},
    ['U'] = {"SHORT_BINSTRING", TD_OPERAND_TEXT8, run_text, TD_PICKLE_STRING},
    ['V'] = {"UNICODE", TD_OPERAND_LINE, td_run_unicode_line, 0},
    ['X'] = {"BINUNICODE", TD_OPERAND_TEXT32, run_text, TD_PICKLE_STRING},
    [']'] = {"EMPTY_LIST", TD_OPERAND_NONE, td_run_empty, TD_PICKLE_LIST},
    ['a'] = {"APPEND", TD_OPERAND_NONE, td_run_append, TD_PICKLE_LIST},
    ['b'] = {"BUILD", TD_OPERAND_NONE, run_build, 0},
    ['c'] = {"GLOBAL", TD_OPERAND_TWO_LINES, run_global, 0},
    ['d'] = {"DICT", TD_OPERAND_NONE, td_run_make, TD_PICKLE_DICT},
    ['e'] = {"APPENDS", TD_OPERAND_NONE, td_run_appends, TD_PICKLE_LIST},
    ['g'] = {"GET", TD_OPERAND_LINE, run_get_line, 0},
    ['h'] = {"BINGET", TD_OPERAND_U8, run_get, 0},
    ['i'] = {"INST", TD_OPERAND_NONE, run_refused, 0},
    ['j'] = {"LONG_BINGET", TD_OPERAND_U32, run_get, 0},
    ['l'] = {"LIST", TD_OPERAND_NONE, td_run_make, TD_PICKLE_LIST},
    ['o'] = {"OBJ", TD_OPERAND_NONE, run_refused, 0},
    ['p'] = {"PUT", TD_OPERAND_LINE, run_put_line, 0},
    ['q'] = {"BINPUT", TD_OPERAND_U8, run_put, 0},
    ['r'] = {"LONG_BINPUT", TD_OPERAND_U32, run_put, 0},
    ['s'] = {"SETITEM", TD_OPERAND_NONE, td_run_setitem, 0},
    ['t'] = {"TUPLE", TD_OPERAND_NONE, td_run_tuple, 0},
    ['u'] = {"SETITEMS", TD_OPERAND_NONE, td_run_setitems, 0},
    ['}'] = {"EMPTY_DICT", TD_OPERAND_NONE, td_run_empty, TD_PICKLE_DICT},
    [0x80] = {"PROTO", TD_OPERAND_U8, run_proto, 0},
    [0x81] = {"NEWOBJ", TD_OPERAND_NONE, run_call, TD_PICKLE_NEWOBJ},
    [0x82] = {"EXT1", TD_OPERAND_NONE, run_refused, 0},
    [0x83] = {"EXT2", TD_OPERAND_NONE, run_refused, 0},
    [0x84] = {"EXT4", TD_OPERAND_NONE, run_refused, 0},
    [0x85] = {"TUPLE1", TD_OPERAND_NONE, td_run_tuple_n, 1},
    [0x86] = {"TUPLE2", TD_OPERAND_NONE, td_run_tuple_n, 2},
    [0x87] = {"TUPLE3", TD_OPERAND_NONE, td_run_tuple_n, 3},
    [0x88] = {"NEWTRUE", TD_OPERAND_NONE, run_bool, 1},
    [0x89] = {"NEWFALSE", TD_OPERAND_NONE, run_bool, 0},
    [0x8a] = {"LONG1", TD_OPERAND_TEXT8, run_long, 0},
    [0x8b] = {"LONG4", TD_OPERAND_TEXT31, run_long, 0},
    [0x8c] = {"SHORT_BINUNICODE", TD_OPERAND_TEXT8, run_text, TD_PICKLE_STRING},
    [0x8d] = {"BINUNICODE8", TD_OPERAND_TEXT64, run_text, TD_PICKLE_STRING},
    [0x8e] = {"BINBYTES8", TD_OPERAND_TEXT64, run_text, TD_PICKLE_BYTES},
    [0x8f] = {"EMPTY_SET", TD_OPERAND_NONE, td_run_empty, TD_PICKLE_SET},
    [0x90] = {"ADDITEMS", TD_OPERAND_NONE, td_run_appends, TD_PICKLE_SET},
    [0x91] = {"FROZENSET", TD_OPERAND_NONE, td_run_make, TD_PICKLE_FROZENSET},
    [0x92] = {"NEWOBJ_EX", TD_OPERAND_NONE, run_call, TD_PICKLE_NEWOBJ_EX},
    [0x93] = {"STACK_GLOBAL", TD_OPERAND_NONE, run_stack_global, 0},
    [0x94] = {"MEMOIZE", TD_OPERAND_NONE, run_memoize, 0},
    [0x95] = {"FRAME", TD_OPERAND_U64, run_frame, 0},
    [0x96] = {"BYTEARRAY8", TD_OPERAND_TEXT64, run_text, TD_PICKLE_BYTEARRAY},
    [0x97] = {"NEXT_BUFFER", TD_OPERAND_NONE, run_refused, 0},
    [0x98] = {"READONLY_BUFFER", TD_OPERAND_NONE, run_refused, 0},
};

static bool run_next(struct td_machine *m)
{
    uint64_t at = m->pickle->base + m->pos;
    if (m->pos == m->len)
        return td_error_at(m->err, TD_INVALID_ARGUMENT, at, "pickle: it ends without STOP");
    m->opcode_at = m->pos;
    m->opcode = &opcodes[m->bytes[m->pos++]];
    if (m->opcode->run == NULL)
        return td_error_at(m->err, TD_INVALID_ARGUMENT, at, "pickle: 0x%02x is not an opcode", m->bytes[m->opcode_at]);
    m->pickle->op_count++;
    return td_machine_take_operand(m) && m->opcode->run(m);
}

static bool run_all(struct td_machine *m)
{
    struct td_pickle *pickle = m->pickle;
    if (!td_pickle_store_reserve(m->store, &m->stack, 1, sizeof(td_pickle_ref)) ||
        !td_pickle_store_reserve(m->store, &m->marks, 1, sizeof(uint32_t)))
        return td_machine_no_memory(m);
    ((uint32_t *)m->marks.items)[0] = 1;
    while (!m->stopped)
        if (!run_next(m))
            return false;
    pickle->end = m->pos;
    pickle->value_count = m->store->values.count - 1;
    return true;
}

static bool run_pickle(struct td_machine *m, bool allow_trailing)
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
    return td_pickle_finish_maps(m->pickle) || td_machine_no_memory(m);
}

bool td_pickle_parse(struct td_pickle *pickle, const uint8_t *bytes, size_t len, size_t start,
                     const struct td_pickle_options *options, struct td_error *err)
{
    *pickle = (struct td_pickle){.bytes = bytes, .base = options->base};
    if (len > UINT32_MAX)
        return td_error_set(err, TD_RESOURCE_EXHAUSTED, "a pickle of %zu bytes; at most %" PRIu32 " are read", len,
                            UINT32_MAX);
    if (start > len)
        return td_error_at(err, TD_INVALID_ARGUMENT, options->base + len, "pickle: begins past the end");
    struct td_machine m = {
        .pickle = pickle,
        .bytes = bytes,
        .len = len,
        .pos = start,
        .opcode_at = start,
        .err = err,
    };
    m.store = pickle->store = td_pickle_store_create(options->max_memory_bytes);
    if (m.store == NULL)
        return td_machine_no_memory(&m);
    if (run_pickle(&m, options->allow_trailing))
        return true;
    td_pickle_fini(pickle);
    return false;
}

void td_pickle_fini(struct td_pickle *pickle)
{
    td_pickle_store_destroy(pickle->store);
    memset(pickle, 0, sizeof *pickle);
}

size_t td_pickle_memory_bytes(const struct td_pickle *pickle)
{
    return pickle->store == NULL ? 0 : pickle->store->used_bytes;
}
