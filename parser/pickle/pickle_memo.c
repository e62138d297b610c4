/* Picklers number their memo entries from 0, so the entries fill an array of four bytes each. An entry with an index
 * out of turn goes to a hash table. So an index never decides how much memory is allocated. */
#include "parser/pickle/pickle_memo.h"

#include "core/digits.h"

#include <inttypes.h>

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

bool td_run_put(struct td_machine *m, const struct td_operand *operand)
{
    return memo_put(m, (uint32_t)operand->number);
}

bool td_run_get(struct td_machine *m, const struct td_operand *operand)
{
    return memo_get(m, (uint32_t)operand->number);
}

bool td_run_memoize(struct td_machine *m, const struct td_operand *operand)
{
    (void)operand;
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

bool td_run_put_line(struct td_machine *m, const struct td_operand *operand)
{
    uint32_t index;
    return line_index(m, operand->text, &index) && memo_put(m, index);
}

bool td_run_get_line(struct td_machine *m, const struct td_operand *operand)
{
    uint32_t index;
    return line_index(m, operand->text, &index) && memo_get(m, index);
}
