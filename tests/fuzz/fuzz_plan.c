/* Plans of clients for any model. The first line of the input is the plan (or an engine), the second is config.json,
 * and every further line is a tensor: its name, its sizes and its type ("a.b 4,6 BF16").
 *
 * Patterns are compared with a slow matcher. For plans with rules, all ranks together must have every element of each
 * tensor that is not dropped, and have it once unless a rule puts it on several ranks. The file of a plan with boxes
 * has the bytes of each box, and no run of it leaves its tensor. */
#include "slicing/engine/model_config.h"
#include "slicing/plan_spec.h"
#include "slicing/rank_file.h"

#include "parser/format/names.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_error.h"

#include <string.h>

enum { MOST_TENSORS = 24, MOST_RANK = 5, MOST_SIZE = 4096, MOST_NAME = 96, MOST_RANKS = 16 };

struct world {
    struct td_tensor tensors[MOST_TENSORS];
    char names[MOST_TENSORS][MOST_NAME + 1];
    uint64_t shapes[MOST_TENSORS][MOST_RANK];
    size_t count;
    uint32_t seen[MOST_TENSORS][MOST_SIZE]; /* how many ranks have this index of the split dimension */
};

static struct world world;

static const struct td_tensor *world_get(const void *context, size_t i)
{
    (void)context;
    FUZZ_CHECK(i < world.count);
    return &world.tensors[i];
}

static const struct td_tensor_list *world_list(void)
{
    static struct td_tensor_list list;
    list = (struct td_tensor_list){.count = world.count, .get = world_get};
    return &list;
}

/* ---- the model ---- */

static struct td_text next_line(const char **p, const char *end)
{
    const char *stop = memchr(*p, '\n', (size_t)(end - *p));
    struct td_text line = {.p = *p, .len = (size_t)((stop == NULL ? end : stop) - *p)};
    *p = stop == NULL ? end : stop + 1;
    return line;
}

/* Takes the word before the next blank off the line. */
static struct td_text next_word(struct td_text *line)
{
    const char *stop = memchr(line->p, ' ', line->len);
    struct td_text word = {.p = line->p, .len = stop == NULL ? line->len : (size_t)(stop - line->p)};
    size_t used = word.len + (stop == NULL ? 0 : 1);
    *line = td_text_skip(*line, used);
    return word;
}

/* Reads a tensor. Returns false when no manifest could have it. */
static bool read_tensor(struct td_text line, size_t i)
{
    struct td_tensor *tensor = &world.tensors[i];
    struct td_text name = next_word(&line);
    struct td_text sizes = next_word(&line);
    uint64_t elems = 1;
    if (name.len > MOST_NAME || !td_utf8_valid(name.p, name.len) || memchr(name.p, '\0', name.len) != NULL)
        return false;
    memcpy(world.names[i], name.p, name.len);
    world.names[i][name.len] = '\0';
    *tensor = (struct td_tensor){.name = world.names[i], .name_len = (uint32_t)name.len, .shape = world.shapes[i]};
    tensor->dtype = line.len > 0 ? td_dtype_find(line) : td_dtype_find(TD_TEXT("F32"));
    if (tensor->dtype == NULL)
        return false;
    while (sizes.len > 0) {
        uint64_t size = 0;
        for (; sizes.len > 0 && *sizes.p >= '0' && *sizes.p <= '9' && size < MOST_SIZE; sizes.p++, sizes.len--)
            size = size * 10 + (uint64_t)(*sizes.p - '0');
        if (tensor->rank == MOST_RANK || size > MOST_SIZE || (sizes.len > 0 && *sizes.p != ','))
            return false;
        sizes.p += sizes.len > 0 ? 1 : 0;
        sizes.len -= sizes.len > 0 ? 1 : 0;
        world.shapes[i][tensor->rank++] = size;
        elems *= size;
    }
    return td_dtype_nbytes(tensor->dtype, elems, &tensor->nbytes);
}

static int compare(const struct td_tensor *a, const struct td_tensor *b)
{
    return td_text_compare(td_tensor_name(a), td_tensor_name(b));
}

/* Reads the tensors. They end up sorted by name and without doubles, as those of a checkpoint. */
static void read_world(const char *p, const char *end)
{
    world.count = 0;
    while (p < end && world.count < MOST_TENSORS) {
        struct td_tensor *all = world.tensors;
        size_t at = world.count;
        if (!read_tensor(next_line(&p, end), at))
            continue;
        struct td_tensor fresh = all[at];
        while (at > 0 && compare(&all[at - 1], &fresh) > 0) {
            all[at] = all[at - 1];
            at--;
        }
        bool twice = at > 0 && compare(&all[at - 1], &fresh) == 0;
        if (twice) {
            memmove(&all[at], &all[at + 1], (world.count - at) * sizeof *all);
            continue;
        }
        all[at] = fresh;
        world.count++;
    }
}

/* ---- patterns ---- */

/* table[i][j]: whether pattern[i..] matches name[j..], filled in from the ends. "*" takes one or more characters, but
 * no dot; "**" takes any. */
static bool table[TD_RULE_MAX_PATTERN_BYTES + 2][MOST_NAME + 2];

static void fill_table(const char *pattern, size_t pattern_len, const char *name, size_t len)
{
    for (size_t i = pattern_len + 1; i-- > 0;) {
        for (size_t j = len + 1; j-- > 0;) {
            bool any = pattern[i] == '*' && pattern[i + 1] == '*';
            bool more = j < len && (any || name[j] != '.');
            if (i == pattern_len)
                table[i][j] = j == len;
            else if (any)
                table[i][j] = table[i + 2][j] || (more && table[i][j + 1]);
            else if (pattern[i] == '*')
                table[i][j] = more && (table[i + 1][j + 1] || table[i][j + 1]);
            else
                table[i][j] = j < len && name[j] == pattern[i] && table[i + 1][j + 1];
        }
    }
}

/* Checks the captures: from the left, each is the shortest possible. */
static void check_captures(const char *pattern, const char *name, size_t len, const struct td_captures *found)
{
    uint32_t count = 0;
    size_t j = 0;
    for (size_t i = 0; pattern[i] != '\0';) {
        bool any = pattern[i] == '*' && pattern[i + 1] == '*';
        if (pattern[i] != '*') {
            i++;
            j++;
            continue;
        }
        size_t n = any ? 0 : 1;
        i += any ? 2 : 1;
        while (!table[i][j + n])
            n++;
        FUZZ_CHECK(count < found->count && found->at[count].off == j && found->at[count].len == n);
        FUZZ_CHECK(j + n <= len && (any || memchr(name + j, '.', n) == NULL));
        count++;
        j += n;
    }
    FUZZ_CHECK(count == found->count && j == len);
}

static void check_patterns(const struct td_rule_list *rules)
{
    for (size_t i = 0; i < rules->count && i < 40; i++) {
        const char *pattern = rules->rules[i].match;
        FUZZ_CHECK(td_rule_check(&rules->rules[i]) == NULL);
        for (size_t k = 0; k < world.count; k++) {
            const struct td_tensor *tensor = &world.tensors[k];
            struct td_captures captures;
            bool matches = td_rule_match(pattern, td_tensor_name(tensor), &captures);
            fill_table(pattern, strlen(pattern), tensor->name, tensor->name_len);
            FUZZ_CHECK(matches == table[0][0]);
            if (matches)
                check_captures(pattern, tensor->name, tensor->name_len, &captures);
        }
    }
}

/* ---- plans ---- */

static void mark_piece(const struct td_plan_output *output, const struct td_plan_piece *piece, uint64_t *sum)
{
    *sum += piece->size * piece->count;
    if (piece->tensor == TD_PIECE_ZEROS)
        return;
    FUZZ_CHECK(piece->tensor < world.count && piece->selection == NULL && piece->count > 0 && piece->size > 0);
    const struct td_tensor *tensor = &world.tensors[piece->tensor];
    uint64_t size = tensor->rank == 0 ? 1 : tensor->shape[output->axis];
    FUZZ_CHECK(tensor->dtype == output->dtype && (tensor->rank == 0 || output->axis < tensor->rank));
    for (uint64_t i = 0; i < piece->count; i++) {
        FUZZ_CHECK(piece->start + i * piece->stride + piece->size <= size);
        for (uint64_t k = 0; k < piece->size; k++)
            world.seen[piece->tensor][piece->start + i * piece->stride + k]++;
    }
}

/* Checks that the shape is the sum of the pieces. */
static void check_output(const struct td_plan *plan, const struct td_plan_output *output)
{
    uint64_t elems = 1;
    uint64_t nbytes = 0;
    uint64_t sum = 0;
    FUZZ_CHECK(output->cell_count > 0 && output->first_piece + output->piece_count <= plan->piece_count);
    for (size_t i = 0; i < output->piece_count; i++)
        mark_piece(output, &plan->pieces[output->first_piece + i], &sum);
    for (uint32_t d = 0; d < output->rank; d++)
        elems *= output->shape[d];
    FUZZ_CHECK(td_dtype_nbytes(output->dtype, elems, &nbytes) && nbytes == output->nbytes);
    FUZZ_CHECK(sum % output->cell_count == 0);
    bool same = false; /* some dimension has this size; without dimensions it is 1 */
    for (uint32_t d = 0; d < output->rank; d++)
        same = same || output->shape[d] == sum / output->cell_count;
    FUZZ_CHECK(same || (output->rank == 0 && sum == (output->is_constant ? 0 : 1)));
    FUZZ_CHECK(!output->is_constant || (strcmp(output->dtype->name, "F32") == 0 && output->rank == 0));
}

static bool is_dropped(const struct td_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->dropped_count; i++)
        if (strcmp(plan->dropped[i], name) == 0)
            return true;
    return false;
}

/* Returns whether an element of the tensor may be on several ranks. For engines' rules this is not known here. */
static bool may_repeat(const struct td_plan_spec *spec, const struct td_tensor *tensor)
{
    struct td_captures captures;
    const struct td_rule *rule = td_rules_find(&spec->rules, td_tensor_name(tensor), &captures, NULL);
    bool repeats = spec->engine != NULL || rule == NULL || rule->whole || tensor->rank == 0;
    for (uint32_t i = 0; rule != NULL && i < rule->part_count; i++)
        repeats = repeats || rule->parts[i].replicate;
    return repeats;
}

static void check_coverage(const struct td_plan_spec *spec, const struct td_plan *last)
{
    for (size_t i = 0; i < world.count; i++) {
        const struct td_tensor *tensor = &world.tensors[i];
        bool dropped = is_dropped(last, tensor->name);
        uint64_t most = 0;
        for (uint32_t d = 0; d < tensor->rank; d++)
            most = tensor->shape[d] > most ? tensor->shape[d] : most;
        uint64_t marked = 0;
        uint32_t highest = 0;
        for (uint64_t k = 0; k < MOST_SIZE; k++) {
            marked += world.seen[i][k] > 0;
            highest = world.seen[i][k] > highest ? world.seen[i][k] : highest;
        }
        FUZZ_CHECK(!dropped || marked == 0);
        bool covered = tensor->rank == 0 && marked == 1;
        for (uint32_t d = 0; d < tensor->rank; d++)
            covered = covered || marked == tensor->shape[d];
        FUZZ_CHECK(dropped || covered);
        FUZZ_CHECK(highest <= 1 || may_repeat(spec, tensor));
    }
}

static void check_refusal(const struct td_error *err)
{
    size_t len = strlen(err->message);
    FUZZ_CHECK(err->code == TD_INVALID_ARGUMENT || err->code == TD_NOT_FOUND || err->code == TD_FAILED_PRECONDITION ||
               err->code == TD_RESOURCE_EXHAUSTED);
    FUZZ_CHECK(len > 0 && len < TD_ERROR_MESSAGE_BYTES && td_utf8_valid(err->message, len));
}

static void check_ranks(const struct td_plan_spec *spec, struct td_text config)
{
    bool all = spec->ranks == NULL && spec->tp_size <= MOST_RANKS;
    uint64_t ranks = spec->tp_size < MOST_RANKS ? spec->tp_size : MOST_RANKS;
    struct td_plan_basis basis;
    struct td_error err = TD_ERROR_INIT;
    memset(world.seen, 0, sizeof world.seen);
    bool matched = td_plan_spec_match(spec, config, world_list(), NULL, &basis, &err);
    if (!matched)
        check_refusal(&err);
    for (uint64_t rank = 0; matched && rank < ranks; rank++) {
        struct td_plan plan;
        td_error_init(&err);
        bool ok = td_plan_spec_rank(spec, &basis, world_list(), rank, &plan, &err);
        if (!ok)
            check_refusal(&err);
        all = all && ok;
        for (size_t i = 0; ok && spec->ranks == NULL && i < plan.output_count; i++)
            check_output(&plan, &plan.outputs[i]);
        if (all && rank + 1 == ranks)
            check_coverage(spec, &plan);
        td_plan_fini(&plan);
    }
    td_plan_basis_fini(&basis);
}

/* ---- boxes ---- */

/* Checks that the file has the bytes of all boxes, as each is by itself, and that each run is in its tensor. */
static void check_boxes(const struct td_plan_items *boxes)
{
    struct td_rank_file *file = NULL;
    struct td_error err = TD_ERROR_INIT;
    if (!td_box_file_create(boxes->items, boxes->count, world_list(), NULL, &file, &err)) {
        check_refusal(&err);
        return;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < boxes->count; i++) {
        struct td_plan plan;
        FUZZ_CHECK(td_plan_from_items(&boxes->items[i], 1, world_list(), NULL, &plan, &err));
        sum += plan.total_bytes;
        td_plan_fini(&plan);
    }
    FUZZ_CHECK(file->own == NULL && file->nbytes == sum && file->layout->total_bytes == sum);
    for (size_t i = 0; i < file->layout->block_count; i++) {
        const struct td_block *block = &file->layout->blocks[i];
        for (size_t k = 0; k < block->run_count; k++) {
            const struct td_run *run = &file->layout->runs[block->first_run + k];
            FUZZ_CHECK(run->source >= TD_RANK_SOURCE_TENSOR && run->source - TD_RANK_SOURCE_TENSOR < world.count);
            FUZZ_CHECK(run->off + (block->rounds - 1) * run->step + (run->count - 1) * run->stride + run->len <=
                       world.tensors[run->source - TD_RANK_SOURCE_TENSOR].nbytes);
        }
    }
    td_rank_file_unref(file);
}

/* ---- config.json ---- */

static void check_config(struct td_text config)
{
    struct td_model_config read;
    struct td_error err = TD_ERROR_INIT;
    if (!td_model_config_read(config, &read, &err)) {
        FUZZ_CHECK(err.code == TD_FAILED_PRECONDITION && strncmp(err.message, "config.json", 11) == 0);
        check_refusal(&err);
        return;
    }
    FUZZ_CHECK(read.heads <= TD_CONFIG_MAX_NUMBER && read.vocab_size <= TD_CONFIG_MAX_NUMBER);
    FUZZ_CHECK((read.kv_heads > 0 || read.heads == 0) && read.kv_heads <= TD_CONFIG_MAX_NUMBER);
    FUZZ_CHECK(memchr(read.architecture, '\0', TD_CONFIG_NAME_BYTES) != NULL);
    FUZZ_CHECK(memchr(read.model_type, '\0', TD_CONFIG_NAME_BYTES) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data;
    const char *end = p + size;
    struct td_plan_spec spec;
    struct td_error err = TD_ERROR_INIT;
    if (size == 0)
        return 0;
    struct td_text body = next_line(&p, end);
    struct td_text config = next_line(&p, end);
    read_world(p, end);
    check_config(config);
    if (td_plan_spec_parse(&spec, body, NULL, &err)) {
        check_patterns(&spec.rules);
        if (spec.boxes != NULL)
            check_boxes(spec.boxes);
        else
            check_ranks(&spec, config);
    } else {
        fuzz_check_refusal_somewhere(&err, body.len);
    }
    td_plan_spec_fini(&spec);
    return 0;
}
