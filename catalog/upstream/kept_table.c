#include "catalog/upstream/kept_table.h"

#include "core/array.h"
#include "core/checked.h"
#include "parser/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void td_kept_table_fini(struct td_kept_table *table)
{
    free(table->rows);
    memset(table, 0, sizeof *table);
}

static struct td_text row_id(const void *context, size_t i)
{
    return td_text_of(((const struct td_kept_row *)context)[i].note.id);
}

static size_t search_row(const struct td_kept_table *table, struct td_text id, bool *found)
{
    const struct td_names names = {.count = table->count, .context = table->rows, .get = row_id};
    return td_names_search(&names, id, found);
}

struct td_kept_row *td_kept_table_find(const struct td_kept_table *table, struct td_text id)
{
    bool found;
    size_t at = search_row(table, id, &found);
    return found ? &table->rows[at] : NULL;
}

struct td_kept_row *td_kept_table_add(struct td_kept_table *table, const char *id, struct td_error *err)
{
    struct td_kept_row row = {.stage = TD_KEPT_LEFT};
    bool found;
    if (!td_kept_key(id, row.key)) {
        (void)td_error_no_memory(err);
        return NULL;
    }
    if (!TD_ARRAY_GROW(table->rows, table->count, table->capacity, err))
        return NULL;
    (void)snprintf(row.note.id, sizeof row.note.id, "%s", id);
    size_t at = search_row(table, td_text_of(id), &found);
    memmove(&table->rows[at + 1], &table->rows[at], (table->count - at) * sizeof row);
    table->rows[at] = row;
    table->count++;
    return &table->rows[at];
}

void td_kept_table_remove(struct td_kept_table *table, struct td_text id)
{
    bool found;
    size_t at = search_row(table, id, &found);
    if (!found)
        return;
    table->count--;
    memmove(&table->rows[at], &table->rows[at + 1], (table->count - at) * sizeof *table->rows);
}

bool td_kept_is_published(const struct td_kept_row *row)
{
    return row->stage == TD_KEPT_PUBLISHED || row->stage == TD_KEPT_NOTING;
}

static uint64_t sum_bytes(const struct td_kept_table *table, bool with_leaving)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < table->count; i++)
        if ((with_leaving || table->rows[i].stage != TD_KEPT_LEAVING) &&
            !td_add_u64(sum, table->rows[i].note.bytes, &sum))
            return UINT64_MAX;
    return sum;
}

uint64_t td_kept_table_bytes(const struct td_kept_table *table)
{
    return sum_bytes(table, true);
}

uint64_t td_kept_table_staying_bytes(const struct td_kept_table *table)
{
    return sum_bytes(table, false);
}

size_t td_kept_table_count(const struct td_kept_table *table, enum td_kept_stage stage)
{
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++)
        count += table->rows[i].stage == stage ? 1 : 0;
    return count;
}

/* Returns whether a leaves before b, both of which may leave and are in the same table. */
static bool leaves_before(const struct td_kept_row *a, const struct td_kept_row *b)
{
    if (a->stage != b->stage)
        return a->stage == TD_KEPT_LEFT;
    return a->read_ns != b->read_ns ? a->read_ns < b->read_ns : a < b;
}

/* Returns the row that leaves next after `last` (NULL: first), or NULL. */
static struct td_kept_row *victim_after(const struct td_kept_table *table, const struct td_kept_row *last)
{
    struct td_kept_row *victim = NULL;
    for (size_t i = 0; i < table->count; i++) {
        struct td_kept_row *row = &table->rows[i];
        if (row->stage != TD_KEPT_LEFT && row->stage != TD_KEPT_PUBLISHED)
            continue;
        if ((last == NULL || leaves_before(last, row)) && (victim == NULL || leaves_before(row, victim)))
            victim = row;
    }
    return victim;
}

struct td_kept_row *td_kept_table_choose_victim(const struct td_kept_table *table)
{
    return victim_after(table, NULL);
}

uint64_t td_kept_table_gain(const struct td_kept_table *table, uint64_t bytes)
{
    uint64_t gain = td_kept_table_bytes(table) - td_kept_table_staying_bytes(table);
    const struct td_kept_row *victim = NULL;
    while (gain < bytes && (victim = victim_after(table, victim)) != NULL)
        if (!td_add_u64(gain, victim->note.bytes, &gain))
            return UINT64_MAX;
    return gain;
}
