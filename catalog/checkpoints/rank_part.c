/* Plan: read_words() counts words such as "rank" and "tp" that a number follows, and leaves their numbers out of the
 * key. By these counts, kind_of() recognizes the names that known writers of checkpoints use. */
#include "catalog/checkpoints/rank_part.h"

#include <stdlib.h>
#include <string.h>

/* Counts of the words in a name. */
struct words {
    unsigned rank_words, rank_axes;   /* "rank" with a number; those of them after an axis (tp_rank_0) */
    unsigned short_axes;              /* "tp", "pp" and "mp" with a number */
    unsigned shard_words, part_words; /* "shard" and "part" with a number */
    bool all_zero;                    /* all numbers of axes are 0 */
};

/* Returns the length of the number at the start of `rest`, with a separator before it if there is one; 0 when there is
 * no number. Sets *is_zero to whether all its digits are 0. */
static size_t number_len(struct td_text rest, bool *is_zero)
{
    size_t at = rest.len > 0 && strchr("-_.", rest.p[0]) != NULL && rest.p[0] != '\0' ? 1 : 0;
    size_t end = at;
    *is_zero = true;
    while (end < rest.len && td_is_digit(rest.p[end])) {
        *is_zero = *is_zero && rest.p[end] == '0';
        end++;
    }
    bool is_word = end < rest.len && td_is_letter(rest.p[end]);
    return end == at || is_word ? 0 : end;
}

/* Returns whether the text has the word at `at`, with no letter directly before or after it. */
static bool has_word(struct td_text text, size_t at, const char *word)
{
    const size_t len = strlen(word);
    return (at == 0 || !td_is_letter(text.p[at - 1])) && text.len - at >= len && memcmp(text.p + at, word, len) == 0 &&
           (text.len - at == len || !td_is_letter(text.p[at + len]));
}

/* Returns whether an axis ("tp", "zero_pp") and '_' or '-' stand before the word at `at`. */
static bool has_axis_before(struct td_text text, size_t at)
{
    static const char *const axes[] = {"mp", "tp", "pp", "dp", "ep", "cp", "fsdp"};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        const size_t len = strlen(axes[i]) + 1;
        if (at >= len && (text.p[at - 1] == '_' || text.p[at - 1] == '-') && has_word(text, at - len, axes[i]))
            return true;
    }
    return false;
}

/* Counts a known word at `at` that a number follows. Returns the word's length; 0 without such a word. Sets *is_axis to
 * whether the number is a rank's. With has_rank, the short words "tp", "pp" and "mp" do not count. */
static size_t take_word(struct td_text text, size_t at, bool has_rank, struct words *words, bool *is_axis,
                        bool *is_zero)
{
    static const char *const known[] = {"rank", "shard", "part", "tp", "pp", "mp"};
    enum { RANK, SHARD, PART };
    size_t i = 0;
    while (i < sizeof known / sizeof *known && !has_word(text, at, known[i]))
        i++;
    if (i == sizeof known / sizeof *known)
        return 0;
    const size_t len = strlen(known[i]);
    if (number_len(td_text_skip(text, at + len), is_zero) == 0)
        return 0;
    *is_axis = i == RANK || i == SHARD || (i > PART && !has_rank);
    words->rank_words += i == RANK;
    words->rank_axes += i == RANK && has_axis_before(text, at);
    words->shard_words += i == SHARD;
    words->part_words += i == PART;
    words->short_axes += i > PART && !has_rank;
    return i > PART && has_rank ? 0 : len;
}

static bool contains(struct td_text text, const char *part)
{
    const size_t len = strlen(part);
    for (size_t i = 0; i + len <= text.len; i++)
        if (memcmp(text.p + i, part, len) == 0)
            return true;
    return false;
}

/* Returns whether a number follows the word "rank" anywhere in the name. */
static bool has_rank_word(struct td_text name)
{
    bool is_zero;
    for (size_t i = 0; i + 4 <= name.len; i++)
        if (has_word(name, i, "rank") && number_len(td_text_skip(name, i + 4), &is_zero) > 0)
            return true;
    return false;
}

/* Counts the words of the name, and copies the name to the key with '#' in place of the numbers of these words. */
static void read_words(struct td_text name, struct words *words, char *key)
{
    const bool has_rank = has_rank_word(name);
    size_t used = 0;
    *words = (struct words){.all_zero = true};
    for (size_t at = 0; at < name.len && used + 2 < TD_RANK_KEY_BYTES;) {
        bool is_axis = false;
        bool is_zero = true;
        size_t len = take_word(name, at, has_rank, words, &is_axis, &is_zero);
        if (len == 0) {
            key[used++] = name.p[at++];
            continue;
        }
        for (size_t i = 0; i < len && used + 2 < TD_RANK_KEY_BYTES; i++)
            key[used++] = name.p[at + i];
        key[used++] = '#';
        const bool is_rank = has_word(name, at, "rank");
        at += len + number_len(td_text_skip(name, at + len), &is_zero);
        words->all_zero = words->all_zero && (!is_axis || is_zero);
        size_t next; /* mp_rank_00_001 has the number of a second axis */
        while (is_rank && at < name.len && name.p[at] == '_' &&
               (next = number_len(td_text_skip(name, at), &is_zero)) > 0) {
            at += next;
            words->all_zero = words->all_zero && is_zero;
        }
    }
    key[used] = '\0';
}

static enum td_rank_kind kind_of(struct td_text name, const struct words *words)
{
    bool is_states = contains(name, "_model_states") || contains(name, "-model_states");
    if (contains(name, "optim_states") ||
        (is_states && (contains(name, "zero_pp_rank") || contains(name, "layer_") || contains(name, "expert_"))))
        return TD_RANK_ALWAYS;
    if (words->rank_axes > 0 || words->short_axes > 1)
        return TD_RANK_KNOWN;
    if ((words->rank_words > 0 || words->short_axes > 0) && words->part_words > 0)
        return TD_RANK_KNOWN;
    if (words->rank_words > 0 || words->short_axes > 0)
        return TD_RANK_NUMBER;
    return words->shard_words + words->part_words > 0 ? TD_RANK_SHARD : TD_RANK_NONE;
}

/* Reads consolidated.NN.EXTENSION, in which NN is a rank. */
static bool read_consolidated(struct td_text name, struct td_rank_name *out)
{
    static const char before[] = "consolidated.";
    enum { BEFORE_BYTES = sizeof before - 1 };
    if (name.len < BEFORE_BYTES + 3 || memcmp(name.p, before, BEFORE_BYTES) != 0 ||
        !td_is_digit(name.p[BEFORE_BYTES]) || !td_is_digit(name.p[BEFORE_BYTES + 1]) || name.p[BEFORE_BYTES + 2] != '.')
        return false;
    out->kind = TD_RANK_KNOWN;
    out->is_first = memcmp(name.p + BEFORE_BYTES, "00", 2) == 0;
    memcpy(out->key, before, sizeof before);
    return true;
}

/* Reads modelR-mpN.EXTENSION of DeepSeek's convert.py: rank R of N. */
static bool read_numbered_model(struct td_text name, struct td_rank_name *out)
{
    static const char before[] = "model";
    size_t at = sizeof before - 1;
    bool is_zero = true;
    bool is_zero_total;
    if (name.len <= at || memcmp(name.p, before, at) != 0)
        return false;
    size_t len = td_is_digit(name.p[at]) ? number_len(td_text_skip(name, at), &is_zero) : 0;
    struct td_text rest = td_text_skip(name, at + len);
    if (len == 0 || !td_text_begins(rest, TD_TEXT("-mp")))
        return false;
    size_t total_len = number_len(td_text_skip(rest, 3), &is_zero_total);
    if (total_len == 0)
        return false;
    out->kind = total_len == 1 && rest.p[3] == '1' ? TD_RANK_NONE : TD_RANK_ALWAYS;
    out->is_first = is_zero;
    memcpy(out->key, before, sizeof before);
    return true;
}

/* Gives the files in which DeepSpeed saves a layer or an expert the key of mp_rank_00_model_states, which lacks their
 * tensors, so that all are one set. */
static void join_deepspeed_sets(struct td_rank_name *out)
{
    static const char rest[] = "mp_rank#_model_states";
    char *at = strstr(out->key, rest);
    const char *extension = strrchr(out->key, '.');
    if (strstr(out->key, "expert_") != NULL && at != NULL) {
        memmove(out->key, at, strlen(at) + 1);
    } else if (strncmp(out->key, "layer_", strlen("layer_")) == 0 && extension != NULL && strlen(extension) < 8) {
        char copy[8];
        memcpy(copy, extension, strlen(extension) + 1);
        memcpy(out->key, rest, sizeof rest);
        memcpy(out->key + sizeof rest - 1, copy, strlen(copy) + 1);
    } else {
        return;
    }
    out->is_first = false;
}

void td_rank_name_read(struct td_text name, struct td_rank_name *out)
{
    struct words words;
    *out = (struct td_rank_name){.kind = TD_RANK_NONE};
    if (read_consolidated(name, out) || read_numbered_model(name, out))
        return;
    read_words(name, &words, out->key);
    out->kind = kind_of(name, &words);
    out->is_first = words.all_zero;
    if (out->kind == TD_RANK_ALWAYS)
        join_deepspeed_sets(out);
}

static int item_compare(const void *a, const void *b)
{
    const struct td_rank_item *x = a;
    const struct td_rank_item *y = b;
    int order = td_text_compare(x->directory, y->directory);
    if (order == 0)
        order = strcmp(x->name->key, y->name->key);
    return order != 0 ? order : (x->number > y->number) - (x->number < y->number);
}

static void judge_set(struct td_rank_item *items, size_t count)
{
    bool has_first = false;
    bool has_other = false;
    for (size_t i = 0; i < count; i++) {
        has_first = has_first || items[i].name->is_first;
        has_other = has_other || !items[i].name->is_first;
    }
    for (size_t i = 0; i < count; i++) {
        const struct td_rank_name *name = items[i].name;
        items[i].may_be = name->kind == TD_RANK_SHARD && count > 1;
        items[i].is_part = name->kind == TD_RANK_ALWAYS || (name->kind == TD_RANK_KNOWN && has_other) ||
                           (name->kind == TD_RANK_NUMBER && has_first && has_other);
    }
}

void td_rank_items_judge(struct td_rank_item *items, size_t count)
{
    if (count > 0)
        qsort(items, count, sizeof *items, item_compare);
    for (size_t first = 0, end; first < count; first = end) {
        end = first + 1;
        while (end < count && td_text_compare(items[first].directory, items[end].directory) == 0 &&
               strcmp(items[first].name->key, items[end].name->key) == 0)
            end++;
        judge_set(&items[first], end - first);
    }
}
