/* prepare finds the counts and units of all parts in elements before packing; deal computes the range of units that a
 * rank gets; append_units turns that range into pieces. With groups, a part's units recur in each group, so a range is
 * at most the end of a first group, whole groups, and the beginning of a last one. append converts to stored elements,
 * refuses cuts within a packed one, and merges pieces that adjoin. */
#include "slicing/plan/split.h"

#include "core/checked.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

struct splitter {
    const struct td_rule *rule;
    const char *name;
    uint64_t size; /* of the dimension, in elements before packing */
    uint64_t groups, pack;
    struct td_rule_part parts[TD_RULE_MAX_PARTS]; /* with counts and units filled in */
    uint32_t part_count;
    uint64_t tp_size, tp_rank;
    struct td_split *out;
    struct td_error *err;
};

static uint64_t at_least_1(uint64_t n)
{
    return n == 0 ? 1 : n;
}

enum { PART_TEXT_BYTES = 104, PARTS_TEXT_BYTES = 232 };

/* Writes a part for a message: "16 attention heads (num_attention_heads) of 128". */
static void describe_part(const struct td_rule_part *part, char *out, size_t capacity)
{
    static const char *const words[] = {
        [TD_UNITS_ANY] = "units",
        [TD_UNITS_HEADS] = "attention heads (num_attention_heads)",
        [TD_UNITS_KEY_VALUE_HEADS] = "key-value heads (num_key_value_heads)",
        [TD_UNITS_VOCABULARY] = "rows of the vocabulary (vocab_size)",
    };
    const char *word = part->what == TD_UNITS_ANY && part->unit == 1 ? "elements" : words[part->what];
    char count[32] = "the other";
    char size[40] = "";
    if (part->count > 0)
        (void)snprintf(count, sizeof count, "%" PRIu64, part->count);
    if (part->unit > 1)
        (void)snprintf(size, sizeof size, " of %" PRIu64, part->unit);
    (void)snprintf(out, capacity, "%s %s%s", count, word, size);
}

/* Sets the error for parts that do not make up the dimension, with both. */
static bool not_the_dimension(const struct splitter *s)
{
    const struct td_rule *rule = s->rule;
    char text[PARTS_TEXT_BYTES] = "one";
    size_t len = 0;
    for (uint32_t i = 0; i < rule->part_count && len < sizeof text - 1; i++) {
        char part[PART_TEXT_BYTES];
        describe_part(&rule->parts[i], part, sizeof part);
        int n = snprintf(text + len, sizeof text - len, "%s%s", i > 0 ? ", " : "", part);
        len += n < 0 ? 0 : (size_t)n;
    }
    char groups[48] = "";
    if (s->groups > 1)
        (void)snprintf(groups, sizeof groups, " in %" PRIu64 " groups", s->groups);
    return td_error_set(s->err, TD_FAILED_PRECONDITION,
                        "tensor \"%.120s\": the rule's parts, %s%s, are not the %" PRIu64
                        " elements of its dimension %" PRId32,
                        s->name, text, groups, s->size, rule->dim);
}

/* Sets the error for units that cannot be divided evenly among the ranks. */
static bool uneven(const struct splitter *s, struct td_rule_part part, uint64_t count)
{
    char text[PART_TEXT_BYTES];
    bool padded = s->rule->pad_to > 1;
    char pad[64] = "";
    if (padded)
        (void)snprintf(pad, sizeof pad, ", padded to a multiple of %" PRIu64, s->rule->pad_to);
    part.count = count;
    describe_part(&part, text, sizeof text);
    return td_error_set(
        s->err, TD_FAILED_PRECONDITION,
        "tensor \"%.160s\": dimension %" PRId32 " has %s%s, which cannot be divided evenly among %" PRIu64 " ranks%s",
        s->name, s->rule->dim, text, pad, s->tp_size, part.replicate ? "; one number must divide the other" : "");
}

/* Fills in missing units, then missing counts: the parts without a count share the rest of the dimension. */
static bool fill_counts(struct splitter *s)
{
    uint64_t rest = s->size;
    uint64_t open = 0;
    for (uint32_t i = 0; i < s->part_count; i++) {
        struct td_rule_part *part = &s->parts[i];
        uint64_t elems;
        if (part->count > 0 && part->unit == 0)
            part->unit = s->size % part->count == 0 ? s->size / part->count : 0;
        if (!td_mul_u64(part->count, part->unit, &elems) || elems > rest)
            return not_the_dimension(s);
        rest -= elems;
        open += part->count == 0;
    }
    if (open == 0)
        return rest == 0 || not_the_dimension(s);
    for (uint32_t i = 0; i < s->part_count; i++) {
        struct td_rule_part *part = &s->parts[i];
        if (part->count > 0)
            continue;
        if (part->unit == 0 || rest % open != 0 || rest / open % part->unit != 0)
            return not_the_dimension(s);
        part->count = rest / open / part->unit;
    }
    return true;
}

static bool prepare_split(struct splitter *s, uint64_t stored)
{
    const struct td_rule *rule = s->rule;
    s->groups = at_least_1(rule->groups);
    s->pack = at_least_1(rule->pack);
    s->part_count = rule->part_count;
    if (!td_mul_u64(stored, s->pack, &s->size))
        return td_error_set(s->err, TD_FAILED_PRECONDITION, "tensor \"%.160s\": a dimension is past 2^64-1", s->name);
    for (uint32_t i = 0; i < s->part_count; i++)
        s->parts[i] = rule->parts[i];
    if (s->part_count == 0) {
        s->parts[0] = (struct td_rule_part){.unit = 1};
        s->part_count = 1;
    }
    if (!fill_counts(s))
        return false;
    for (uint32_t i = 0; i < s->part_count; i++)
        if (s->parts[i].count % s->groups != 0)
            return not_the_dimension(s);
    return true;
}

/* Computes the units [*first, *end) of `count` that this rank gets. */
static bool deal_units(const struct splitter *s, const struct td_rule_part *part, uint64_t count, uint64_t *first,
                       uint64_t *end)
{
    uint64_t t = s->tp_size;
    uint64_t r = s->tp_rank;
    uint64_t share = count / t;
    uint64_t more = count % t;
    if (part->replicate && count > 0 && count < t && t % count == 0) {
        *first = r / (t / count);
        *end = *first + 1;
        return true;
    }
    if (more != 0 && s->rule->uneven == TD_UNEVEN_ERROR)
        return uneven(s, *part, count);
    if (more != 0 && s->rule->uneven == TD_UNEVEN_CHUNK) {
        uint64_t chunk = share + 1;
        uint64_t full = count / chunk; /* ranks that get a whole chunk */
        *first = r <= full ? r * chunk : count;
        *end = r < full ? *first + chunk : count;
        return true;
    }
    *first = r * share + (r < more ? r : more);
    *end = *first + share + (r < more ? 1 : 0);
    return true;
}

/* Appends a piece, which is in elements before packing. */
static bool append_piece(struct splitter *s, struct td_split_piece piece)
{
    struct td_split *out = s->out;
    if (piece.size == 0 || piece.count == 0)
        return true;
    if (piece.start % s->pack != 0 || piece.size % s->pack != 0 || piece.stride % s->pack != 0)
        return td_error_set(s->err, TD_FAILED_PRECONDITION,
                            "tensor \"%.160s\": a rank's part would begin or end within a packed element (%" PRIu64
                            " to one)",
                            s->name, s->pack);
    piece.start /= s->pack;
    piece.size /= s->pack;
    piece.stride /= s->pack;
    if (piece.count > 1 && piece.stride == piece.size)
        piece = (struct td_split_piece){.start = piece.start, .size = piece.size * piece.count, .count = 1};
    if (piece.count == 1)
        piece.stride = 0;
    if (!td_add_u64(out->size, piece.size * piece.count, &out->size))
        return td_error_set(s->err, TD_FAILED_PRECONDITION, "tensor \"%.160s\": a dimension is past 2^64-1", s->name);
    struct td_split_piece *last = out->count > 0 ? &out->pieces[out->count - 1] : NULL;
    if (last != NULL && !last->zeros && !piece.zeros && last->count == 1 && piece.count == 1 &&
        last->start + last->size == piece.start)
        last->size += piece.size;
    else
        out->pieces[out->count++] = piece;
    return true;
}

/* Appends the units [first, end) of a part that has `per` units in each group of `span` elements, from element `off` of
 * the group on. */
static bool append_units(struct splitter *s, uint64_t first, uint64_t end, uint64_t per, uint64_t span, uint64_t off,
                         uint64_t unit)
{
    if (first == end || per == 0)
        return true;
    uint64_t from = first / per;
    uint64_t to = end / per;
    uint64_t head = first % per;
    uint64_t tail = end % per;
    uint64_t base = off + from * span + head * unit;
    if (from == to)
        return append_piece(s, (struct td_split_piece){.start = base, .size = (end - first) * unit, .count = 1});
    if (head > 0) {
        if (!append_piece(s, (struct td_split_piece){.start = base, .size = (per - head) * unit, .count = 1}))
            return false;
        from++;
    }
    if (!append_piece(s, (struct td_split_piece){
                             .start = off + from * span, .size = per * unit, .count = to - from, .stride = span}))
        return false;
    return append_piece(s, (struct td_split_piece){.start = off + to * span, .size = tail * unit, .count = 1});
}

/* Splits a single part that is padded with zeros. */
static bool split_padded(struct splitter *s)
{
    const struct td_rule_part *part = &s->parts[0];
    uint64_t to = s->rule->pad_to;
    uint64_t padded;
    uint64_t first = 0;
    uint64_t end = 0;
    uint64_t more = s->size % to == 0 ? 0 : to - s->size % to;
    if (part->unit == 0 || !td_add_u64(s->size, more, &padded) || padded % part->unit != 0)
        return not_the_dimension(s);
    if (!deal_units(s, part, padded / part->unit, &first, &end))
        return false;
    first *= part->unit;
    end *= part->unit;
    uint64_t real_first = first < s->size ? first : s->size;
    uint64_t real_end = end < s->size ? end : s->size;
    return append_piece(s, (struct td_split_piece){.start = real_first, .size = real_end - real_first, .count = 1}) &&
           append_piece(
               s, (struct td_split_piece){.size = (end - first) - (real_end - real_first), .count = 1, .zeros = true});
}

bool td_split_dimension(const struct td_rule *rule, const char *name, uint64_t size, uint64_t tp_size, uint64_t tp_rank,
                        struct td_split *out, struct td_error *err)
{
    struct splitter s = {.rule = rule, .name = name, .tp_size = tp_size, .tp_rank = tp_rank, .out = out, .err = err};
    out->count = 0;
    out->size = 0;
    if (!prepare_split(&s, size))
        return false;
    if (rule->pad_to > 1)
        return split_padded(&s);
    uint64_t span = s.size / s.groups;
    uint64_t off = 0;
    for (uint32_t i = 0; i < s.part_count; i++) {
        const struct td_rule_part *part = &s.parts[i];
        uint64_t per = part->count / s.groups;
        uint64_t first = 0;
        uint64_t end = 0;
        if (!deal_units(&s, part, part->count, &first, &end) ||
            !append_units(&s, first, end, per, span, off, part->unit))
            return false;
        off += per * part->unit;
    }
    return true;
}
